/* Jobs: made, driven by one process at a time, taken from stage to stage, listed. */
#include "tuner/store/db.h"
#include "tuner/store/owner.h"

#include <stdio.h>
#include <string.h>

static bool same(const struct nt_owner *a, const struct nt_owner *b)
{
    return a->pid == b->pid && a->start == b->start && strcmp(a->boot, b->boot) == 0;
}

static void read_owner(sqlite3_stmt *st, int column, struct nt_owner *ret)
{
    ret->pid = sqlite3_column_int64(st, column);
    ret->start = sqlite3_column_int64(st, column + 2);
    (void)snprintf(ret->boot, sizeof(ret->boot), "%s", nt_db_text(st, column + 1));
}

int nt_store_job_create(struct nt_store *s, const struct nt_store_job *j, int64_t *ret_id,
                        struct nt_err *err)
{
    struct nt_owner self;
    int64_t id;
    bool own = false;
    int rc = nt_owner_self(&self, err);
    if (rc == 0 && j->rig >= NT_RIG_COUNT) {
        rc = nt_fail(err, NT_E_INVAL, 0, "rig %u is outside the vocabulary", j->rig);
    }
    if (rc == 0) {
        rc = nt_db_enter(s, &own, err);
    }
    if (rc != 0) {
        return rc;
    }
    const struct nt_value v[] = {nt_v_text(j->spec),
                                 nt_v_int((int64_t)j->seed),
                                 nt_v_text(nt_rig_names[j->rig]),
                                 nt_v_int(j->ranks),
                                 nt_v_int(j->nodes),
                                 nt_v_text(j->placement),
                                 nt_v_id(j->topology),
                                 nt_v_id(j->host),
                                 nt_v_id(j->stack),
                                 nt_v_u64(nt_db_now_ms()),
                                 nt_v_int(self.pid),
                                 nt_v_text(self.boot),
                                 nt_v_int(self.start),
                                 j->key != NULL ? nt_v_text(j->key) : nt_v_null()};
    rc = nt_db_run(s, NT_SQL_ADD_JOB, v, NT_COUNT(v), err);
    id = sqlite3_last_insert_rowid(s->db);
    rc = nt_db_leave(s, own, rc, err);
    if (rc == 0) {
        *ret_id = id;
    }
    return rc;
}

/* "3, 7, 12": the newest jobs, for people who named one that is not there. */
static void recent_jobs(struct nt_store *s, char *out, size_t size)
{
    sqlite3_stmt *st = NULL;
    size_t n = 0;
    out[0] = '\0';
    if (sqlite3_prepare_v2(s->db, "SELECT id FROM job ORDER BY id DESC LIMIT 8", -1, &st, NULL) ==
        SQLITE_OK) {
        while (sqlite3_step(st) == SQLITE_ROW && n < size) {
            n += (size_t)snprintf(out + n, size - n, "%s%lld", n > 0 ? ", " : "",
                                  (long long)sqlite3_column_int64(st, 0));
        }
    }
    (void)sqlite3_finalize(st);
}

static int no_job(struct nt_store *s, int64_t job, struct nt_err *err)
{
    char known[128];
    recent_jobs(s, known, sizeof(known));
    return nt_fail(err, NT_E_INVAL, 0, "database %s holds no job %lld; %s%s", s->path,
                   (long long)job, known[0] != '\0' ? "it has " : "it has none", known);
}

/* An UPDATE of one job by its id, alone or in the caller's transaction. */
static int update(struct nt_store *s, enum nt_stmt_id id, int64_t job, const struct nt_value *v,
                  size_t n, struct nt_err *err)
{
    bool own = false;
    int rc = nt_db_enter(s, &own, err);
    if (rc != 0) {
        return rc;
    }
    rc = nt_db_run(s, id, v, n, err);
    if (rc == 0 && sqlite3_changes(s->db) == 0) {
        rc = no_job(s, job, err);
    }
    return nt_db_leave(s, own, rc, err);
}

static int find_owner(struct nt_store *s, int64_t job, struct nt_owner *ret, struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_int(job)};
    sqlite3_stmt *st = NULL;
    int rc = nt_db_start(s, NT_SQL_JOB_OWNER, v, NT_COUNT(v), &st, err);
    int step;
    if (rc != 0) {
        return rc;
    }
    step = sqlite3_step(st);
    if (step == SQLITE_ROW) {
        read_owner(st, 0, ret);
    } else if (step != SQLITE_DONE) {
        rc = nt_db_fail(s, err, NULL);
    }
    nt_db_done(st);
    return rc == 0 && step == SQLITE_DONE ? no_job(s, job, err) : rc;
}

static int claim(struct nt_store *s, int64_t job, const struct nt_owner *self, struct nt_err *err)
{
    struct nt_owner now = {0};
    int rc = find_owner(s, job, &now, err);
    if (rc == 0 && !same(&now, self) && nt_owner_alive(&now)) {
        rc = nt_fail(err, NT_E_NO, 0,
                     "job %lld is being run by process %lld; wait for it, or end it, then resume",
                     (long long)job, (long long)now.pid);
    }
    if (rc == 0) {
        const struct nt_value v[] = {nt_v_int(job), nt_v_int(self->pid), nt_v_text(self->boot),
                                     nt_v_int(self->start)};
        rc = nt_db_run(s, NT_SQL_OWN_JOB, v, NT_COUNT(v), err);
    }
    return rc;
}

int nt_store_job_claim(struct nt_store *s, int64_t job, struct nt_err *err)
{
    struct nt_owner self;
    bool own = false;
    int rc = nt_owner_self(&self, err);
    if (rc == 0) {
        rc = nt_db_enter(s, &own, err);
    }
    return rc == 0 ? nt_db_leave(s, own, claim(s, job, &self, err), err) : rc;
}

int nt_store_job_release(struct nt_store *s, int64_t job, struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_int(job)};
    return update(s, NT_SQL_FREE_JOB, job, v, NT_COUNT(v), err);
}

int nt_store_job_set_state(struct nt_store *s, int64_t job, enum nt_job_state state,
                           struct nt_err *err)
{
    bool over = state == NT_JOB_DONE || state == NT_JOB_FAILED;
    if ((unsigned)state >= NT_JOB_STATE_COUNT) {
        return nt_fail(err, NT_E_INVAL, 0, "job state %d is outside the vocabulary", (int)state);
    }
    const struct nt_value v[] = {nt_v_int(job), nt_v_text(nt_job_state_names[state]),
                                 over ? nt_v_u64(nt_db_now_ms()) : nt_v_null()};
    return update(s, NT_SQL_JOB_STATE, job, v, NT_COUNT(v), err);
}

int nt_store_job_set_place(struct nt_store *s, int64_t job, int64_t topology, int64_t host,
                           int64_t stack, const char *placement, struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_int(job), nt_v_id(topology), nt_v_id(host), nt_v_id(stack),
                                 placement != NULL ? nt_v_text(placement) : nt_v_null()};
    return update(s, NT_SQL_JOB_PLACE, job, v, NT_COUNT(v), err);
}

int nt_store_checkpoint_stage(struct nt_store *s, int64_t job, const char *stage,
                              uint64_t device_ns, struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_int(job), nt_v_text(stage), nt_v_u64(device_ns)};
    int rc;
    if (s->in_transaction) {
        return nt_fail(err, NT_E_BUG, 0, "a stage ends inside a transaction");
    }
    /* The commit then flushes the log, and with it every commit before. */
    rc = nt_db_exec(s, "PRAGMA synchronous = FULL", err);
    if (rc == 0) {
        rc = update(s, NT_SQL_JOB_STAGE, job, v, NT_COUNT(v), err);
        (void)sqlite3_exec(s->db, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
    }
    return rc;
}

/* --- reading
 * -------------------------------------------------------------------------------------- */

#define JOB_SELECT                                                                                 \
    "SELECT id, key, spec, seed, rig, ranks, nodes, placement, topology_id, host_id, stack_id,"    \
    " state, stage, created_ms, finished_ms, device_ns, owner_pid, owner_boot, owner_start,"       \
    " (SELECT count(*) FROM step WHERE job_id = job.id),"                                          \
    " (SELECT count(*) FROM step WHERE job_id = job.id AND kind = 3) FROM job"

static int read_job(struct nt_store *s, sqlite3_stmt *st, struct nt_store_job *j,
                    struct nt_err *err)
{
    struct nt_owner owner;
    int rc;
    *j = (struct nt_store_job){
        .id = sqlite3_column_int64(st, 0),
        .key = nt_db_text(st, 1),
        .spec = nt_db_text(st, 2),
        .seed = (uint64_t)sqlite3_column_int64(st, 3),
        .ranks = (uint32_t)nt_db_u64(st, 5),
        .nodes = (uint32_t)nt_db_u64(st, 6),
        .placement = nt_db_text(st, 7),
        .topology = sqlite3_column_int64(st, 8),
        .host = sqlite3_column_int64(st, 9),
        .stack = sqlite3_column_int64(st, 10),
        .stage = nt_db_text(st, 12),
        .created_ms = nt_db_u64(st, 13),
        .finished_ms = nt_db_u64(st, 14),
        .device_ns = nt_db_u64(st, 15),
        .steps = nt_db_u64(st, 19),
        .trials = nt_db_u64(st, 20),
    };
    rc = nt_db_word(s, st, 4, nt_rig_names, &j->rig, err);
    if (rc == 0) {
        rc = nt_db_word(s, st, 11, nt_job_state_names, &j->state, err);
    }
    read_owner(st, 16, &owner);
    j->owned = nt_owner_alive(&owner);
    return rc;
}

static int walk_jobs(struct nt_store *s, const char *text, int64_t job, nt_store_job_cb on_job,
                     void *data, struct nt_err *err)
{
    sqlite3_stmt *st = NULL;
    unsigned found = 0;
    int step = SQLITE_DONE, rc = 0;
    if (sqlite3_prepare_v2(s->db, text, -1, &st, NULL) != SQLITE_OK ||
        (job != 0 && sqlite3_bind_int64(st, 1, job) != SQLITE_OK)) {
        rc = nt_db_fail(s, err, NULL);
    }
    while (rc == 0 && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct nt_store_job j;
        rc = read_job(s, st, &j, err);
        if (rc == 0) {
            rc = on_job(data, &j, err);
        }
        found++;
    }
    if (rc == 0 && step != SQLITE_DONE) {
        rc = nt_db_fail(s, err, NULL);
    }
    (void)sqlite3_finalize(st);
    return rc == 0 && job != 0 && found == 0 ? no_job(s, job, err) : rc;
}

int nt_store_job_list(struct nt_store *s, nt_store_job_cb on_job, void *data, struct nt_err *err)
{
    return walk_jobs(s, JOB_SELECT " ORDER BY id DESC", 0, on_job, data, err);
}

int nt_store_job_load(struct nt_store *s, int64_t job, nt_store_job_cb on_job, void *data,
                      struct nt_err *err)
{
    return job == 0 ? no_job(s, job, err)
                    : walk_jobs(s, JOB_SELECT " WHERE id = ?1", job, on_job, data, err);
}
