/* What the daemon keeps: queue, snapshots, states of profiles; its questions; retention, backup. */
#include "tuner/store/service.h"
#include "tuner/store/db.h"
#include "tuner/store/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define X(name, word) word,
const char *const nt_queue_state_names[] = {NT_QUEUE_STATES(X) NULL};
#undef X
const char *const nt_queue_kind_names[] = {"tune", "check", NULL};
const char *const nt_profile_state_names[] = {"current", "stale", "withheld", "retired", NULL};

static struct nt_value time_or_null(uint64_t ms)
{
    return ms != 0 ? nt_v_u64(ms) : nt_v_null();
}

/* --- statements that are not hot: prepared, run, forgotten -------------------------------------
 */

/* Prepares and binds; the caller finalizes *ret, whatever this returns. */
static int ask(struct nt_store *s, const char *sql, const struct nt_value *v, size_t n,
               sqlite3_stmt **ret, struct nt_err *err)
{
    return sqlite3_prepare_v2(s->db, sql, -1, ret, NULL) != SQLITE_OK
               ? nt_db_fail(s, err, NULL)
               : nt_db_bind(s, *ret, v, n, err);
}

/* A statement that changes rows, alone or in the caller's transaction. */
static int change(struct nt_store *s, const char *sql, const struct nt_value *v, size_t n,
                  int *ret_changes, struct nt_err *err)
{
    sqlite3_stmt *st = NULL;
    bool own = false;
    int rc = nt_db_enter(s, &own, err);

    if (rc != 0) {
        return rc;
    }
    rc = ask(s, sql, v, n, &st, err);
    if (rc == 0 && sqlite3_step(st) != SQLITE_DONE) {
        rc = nt_db_fail(s, err, NULL);
    }
    if (rc == 0 && ret_changes != NULL) {
        *ret_changes = sqlite3_changes(s->db);
    }
    (void)sqlite3_finalize(st);
    return nt_db_leave(s, own, rc, err);
}

/* --- the queue ----------------------------------------------------------------------------------
 */

int nt_store_queue_add(struct nt_store *s, const struct nt_store_entry *e, int64_t *ret_id,
                       struct nt_err *err)
{
    static const char sql[] =
        "INSERT INTO queue (key, kind, rig, ask, priority, state, reason, cause, asked_by,"
        " attempts, not_before_ms, created_ms)"
        " VALUES (lower(hex(randomblob(16))), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, ?9, ?10)"
        " ON CONFLICT DO NOTHING";
    const struct nt_value v[] = {nt_v_text(nt_queue_kind_names[e->kind]),
                                 nt_v_text(e->rig),
                                 nt_v_text(e->ask),
                                 nt_v_int(e->priority),
                                 nt_v_text(nt_queue_state_names[e->state]),
                                 nt_v_text(e->reason),
                                 nt_v_text(e->cause),
                                 nt_v_text(e->by),
                                 nt_v_u64(e->not_before_ms),
                                 nt_v_u64(e->created_ms != 0 ? e->created_ms : nt_db_now_ms())};
    int n = 0;
    int rc = change(s, sql, v, NT_COUNT(v), &n, err);
    if (rc == 0) {
        *ret_id = n > 0 ? sqlite3_last_insert_rowid(s->db) : 0;
    }
    return rc;
}

int nt_store_queue_save(struct nt_store *s, const struct nt_store_entry *e, struct nt_err *err)
{
    static const char sql[] =
        "UPDATE queue SET state = ?2, reason = ?3, priority = ?4, attempts = ?5,"
        " not_before_ms = ?6, started_ms = ?7, finished_ms = ?8, owner_pid = ?9, owner_boot = ?10,"
        " owner_start = ?11 WHERE id = ?1";
    const struct nt_value v[] = {nt_v_int(e->id),
                                 nt_v_text(nt_queue_state_names[e->state]),
                                 nt_v_text(e->reason),
                                 nt_v_int(e->priority),
                                 nt_v_int(e->attempts),
                                 nt_v_u64(e->not_before_ms),
                                 time_or_null(e->started_ms),
                                 time_or_null(e->finished_ms),
                                 nt_v_id(e->owner.pid),
                                 e->owner.pid != 0 ? nt_v_text(e->owner.boot) : nt_v_null(),
                                 nt_v_id(e->owner.start)};
    int n = 0;
    int rc = change(s, sql, v, NT_COUNT(v), &n, err);
    return rc == 0 && n == 0
               ? nt_fail(err, NT_E_MISSING, 0, "there is no queued job %lld", (long long)e->id)
               : rc;
}

#define ENTRY_SELECT                                                                               \
    "SELECT q.id, q.key, q.kind, q.rig, q.ask, q.priority, q.state, q.reason, q.cause,"            \
    " q.asked_by, q.attempts, q.not_before_ms, q.created_ms, q.started_ms, q.finished_ms,"         \
    " q.owner_pid, q.owner_boot, q.owner_start, j.id,"                                             \
    " (SELECT max(p.id) FROM profile AS p WHERE p.job_id = j.id)"                                  \
    " FROM queue AS q LEFT JOIN job AS j ON j.key = q.key "

static void read_owner(sqlite3_stmt *st, int column, struct nt_store_owner *ret)
{
    ret->pid = sqlite3_column_int64(st, column);
    (void)snprintf(ret->boot, sizeof(ret->boot), "%s", nt_db_text(st, column + 1));
    ret->start = sqlite3_column_int64(st, column + 2);
}

static int read_entry(struct nt_store *s, sqlite3_stmt *st, struct nt_store_entry *e,
                      struct nt_err *err)
{
    int rc;
    *e = (struct nt_store_entry){.id = sqlite3_column_int64(st, 0),
                                 .ask = nt_db_text(st, 4),
                                 .priority = sqlite3_column_int(st, 5),
                                 .reason = nt_db_text(st, 7),
                                 .cause = nt_db_text(st, 8),
                                 .by = nt_db_text(st, 9),
                                 .attempts = (unsigned)nt_db_u64(st, 10),
                                 .not_before_ms = nt_db_u64(st, 11),
                                 .created_ms = nt_db_u64(st, 12),
                                 .started_ms = nt_db_u64(st, 13),
                                 .finished_ms = nt_db_u64(st, 14),
                                 .job = sqlite3_column_int64(st, 18),
                                 .profile = sqlite3_column_int64(st, 19)};
    (void)snprintf(e->key, sizeof(e->key), "%s", nt_db_text(st, 1));
    (void)snprintf(e->rig, sizeof(e->rig), "%s", nt_db_text(st, 3));
    read_owner(st, 15, &e->owner);
    rc = nt_db_word(s, st, 2, nt_queue_kind_names, &e->kind, err);
    return rc == 0 ? nt_db_word(s, st, 6, nt_queue_state_names, &e->state, err) : rc;
}

/* Walks the rows of a SELECT of entries; *ret_n counts them, when it is not NULL. */
static int walk_entries(struct nt_store *s, const char *sql, const struct nt_value *v, size_t n,
                        nt_store_entry_cb on_entry, void *data, unsigned *ret_n, struct nt_err *err)
{
    sqlite3_stmt *st = NULL;
    unsigned found = 0;
    int step = SQLITE_DONE, rc = ask(s, sql, v, n, &st, err);

    while (rc == 0 && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct nt_store_entry e;
        rc = read_entry(s, st, &e, err);
        rc = rc == 0 ? on_entry(data, &e, err) : rc;
        found++;
    }
    if (rc == 0 && step != SQLITE_DONE) {
        rc = nt_db_fail(s, err, NULL);
    }
    (void)sqlite3_finalize(st);
    if (ret_n != NULL) {
        *ret_n = found;
    }
    return rc;
}

int nt_store_queue_list(struct nt_store *s, int state, int64_t before, unsigned limit,
                        nt_store_entry_cb on_entry, void *data, struct nt_err *err)
{
    static const char sql[] = ENTRY_SELECT
        "WHERE (?1 IS NULL OR q.state = ?1) AND (?2 = 0 OR q.id < ?2) ORDER BY q.id DESC LIMIT ?3";
    const struct nt_value v[] = {state >= 0 ? nt_v_text(nt_queue_state_names[state]) : nt_v_null(),
                                 nt_v_int(before), nt_v_int(limit)};
    return walk_entries(s, sql, v, NT_COUNT(v), on_entry, data, NULL, err);
}

int nt_store_queue_living(struct nt_store *s, nt_store_entry_cb on_entry, void *data,
                          struct nt_err *err)
{
    static const char sql[] = ENTRY_SELECT
        "WHERE q.state IN ('proposed', 'queued', 'running', 'cancelling') ORDER BY q.id";
    return walk_entries(s, sql, NULL, 0, on_entry, data, NULL, err);
}

int nt_store_queue_load(struct nt_store *s, int64_t id, nt_store_entry_cb on_entry, void *data,
                        struct nt_err *err)
{
    static const char sql[] = ENTRY_SELECT "WHERE q.id = ?1";
    const struct nt_value v[] = {nt_v_int(id)};
    unsigned n = 0;
    int rc = walk_entries(s, sql, v, NT_COUNT(v), on_entry, data, &n, err);
    return rc == 0 && n == 0
               ? nt_fail(err, NT_E_MISSING, 0, "there is no job %lld in the queue", (long long)id)
               : rc;
}

/* The two numbers of the first row; zeros: no row. */
static int two_numbers(struct nt_store *s, const char *sql, const struct nt_value *v, size_t n,
                       int64_t *a, int64_t *b, struct nt_err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = ask(s, sql, v, n, &st, err), step = SQLITE_DONE;
    *a = *b = 0;
    if (rc == 0) {
        step = sqlite3_step(st);
        if (step == SQLITE_ROW) {
            *a = sqlite3_column_int64(st, 0);
            *b = sqlite3_column_int64(st, 1);
        } else if (step != SQLITE_DONE) {
            rc = nt_db_fail(s, err, NULL);
        }
    }
    (void)sqlite3_finalize(st);
    return rc;
}

int nt_store_rig_profile(struct nt_store *s, const char *rig, int64_t *ret_profile,
                         int64_t *ret_job, struct nt_err *err)
{
    static const char sql[] =
        "SELECT p.id, p.job_id FROM queue AS q JOIN job AS j ON j.key = q.key"
        " JOIN profile AS p ON p.job_id = j.id"
        " WHERE q.rig = ?1 AND p.id NOT IN (SELECT profile_id FROM profile_state)"
        " ORDER BY p.id DESC LIMIT 1";
    const struct nt_value v[] = {nt_v_text(rig)};
    return two_numbers(s, sql, v, NT_COUNT(v), ret_profile, ret_job, err);
}

int nt_store_queue_last(struct nt_store *s, enum nt_queue_kind kind, const char *rig,
                        uint64_t *ret_ms, struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_text(nt_queue_kind_names[kind]), nt_v_text(rig)};
    int64_t at = 0, none;
    int rc = two_numbers(s, "SELECT max(created_ms), 0 FROM queue WHERE kind = ?1 AND rig = ?2", v,
                         NT_COUNT(v), &at, &none, err);
    *ret_ms = (uint64_t)at;
    return rc;
}

bool nt_store_owner_of(int64_t pid, struct nt_store_owner *ret)
{
    struct nt_owner o;
    if (!nt_owner_of(pid, &o)) {
        return false;
    }
    *ret = (struct nt_store_owner){.pid = o.pid, .start = o.start};
    (void)snprintf(ret->boot, sizeof(ret->boot), "%s", o.boot);
    return true;
}

bool nt_store_owner_alive(const struct nt_store_owner *o)
{
    struct nt_owner x = {.pid = o->pid, .start = o->start};
    (void)snprintf(x.boot, sizeof(x.boot), "%s", o->boot);
    return nt_owner_alive(&x);
}

int nt_store_job_of_key(struct nt_store *s, const char *key, int64_t *ret_job,
                        struct nt_store_owner *ret_owner, struct nt_err *err)
{
    static const char sql[] =
        "SELECT id, owner_pid, owner_boot, owner_start FROM job WHERE key = ?1";
    const struct nt_value v[] = {nt_v_text(key)};
    sqlite3_stmt *st = NULL;
    int rc = ask(s, sql, v, NT_COUNT(v), &st, err), step;

    if (rc == 0) {
        step = sqlite3_step(st);
        if (step == SQLITE_ROW) {
            *ret_job = sqlite3_column_int64(st, 0);
            read_owner(st, 1, ret_owner);
        } else if (step == SQLITE_DONE) {
            *ret_job = 0;
            *ret_owner = (struct nt_store_owner){0};
        } else {
            rc = nt_db_fail(s, err, NULL);
        }
    }
    (void)sqlite3_finalize(st);
    return rc;
}

/* --- snapshots ----------------------------------------------------------------------------------
 */

int nt_store_snapshot_get(struct nt_store *s, const char *name, struct nt_buf *json,
                          uint64_t *ret_at_ms, bool *ret_found, struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_text(name)};
    sqlite3_stmt *st = NULL;
    int rc = ask(s, "SELECT at_ms, json FROM snapshot WHERE name = ?1", v, NT_COUNT(v), &st, err);
    int step = SQLITE_DONE;

    if (rc == 0) {
        step = sqlite3_step(st);
        if (step == SQLITE_ROW) {
            nt_buf_puts(json, nt_db_text(st, 1));
            *ret_at_ms = nt_db_u64(st, 0);
        } else if (step != SQLITE_DONE) {
            rc = nt_db_fail(s, err, NULL);
        }
    }
    (void)sqlite3_finalize(st);
    if (rc == 0) {
        *ret_found = step == SQLITE_ROW;
    }
    return rc;
}

int nt_store_snapshot_put(struct nt_store *s, const char *name, const char *json,
                          struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_text(name), nt_v_u64(nt_db_now_ms()), nt_v_text(json)};
    return change(s,
                  "INSERT INTO snapshot (name, at_ms, json) VALUES (?1, ?2, ?3)"
                  " ON CONFLICT (name) DO UPDATE SET at_ms = ?2, json = ?3",
                  v, NT_COUNT(v), NULL, err);
}

/* --- profiles -----------------------------------------------------------------------------------
 */

#define PROFILE_SELECT(json)                                                                       \
    "SELECT p.id, p.job_id, p.created_ms, coalesce(s.state, 'current'), coalesce(s.why, ''),"      \
    " p.hash, coalesce(json_extract(p.json, '$.rig.kind'), j.rig), coalesce(t.identity, ''), "     \
    "coalesce(t.mask, ''), coalesce(k.gpu, ''),"                                                   \
    " coalesce(k.nccl, ''), coalesce(k.driver, ''), j.placement, j.ranks, j.nodes,"                \
    " coalesce(k.site, ''), " json " FROM profile AS p JOIN job AS j ON j.id = p.job_id"           \
    " LEFT JOIN profile_state AS s ON s.profile_id = p.id"                                         \
    " LEFT JOIN topology AS t ON t.id = j.topology_id LEFT JOIN stack AS k ON k.id = j.stack_id "

static int walk_profiles(struct nt_store *s, const char *sql, const struct nt_value *v, size_t n,
                         nt_store_profile_cb on_profile, void *data, unsigned *ret_n,
                         struct nt_err *err)
{
    sqlite3_stmt *st = NULL;
    int step = SQLITE_DONE, rc = ask(s, sql, v, n, &st, err);

    *ret_n = 0;
    while (rc == 0 && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct nt_store_profile p = {.id = sqlite3_column_int64(st, 0),
                                     .job = sqlite3_column_int64(st, 1),
                                     .created_ms = nt_db_u64(st, 2),
                                     .why = nt_db_text(st, 4),
                                     .hash = nt_db_text(st, 5),
                                     .rig = nt_db_text(st, 6),
                                     .identity = nt_db_text(st, 7),
                                     .mask = nt_db_text(st, 8),
                                     .gpu = nt_db_text(st, 9),
                                     .nccl = nt_db_text(st, 10),
                                     .driver = nt_db_text(st, 11),
                                     .placement = nt_db_text(st, 12),
                                     .ranks = (uint32_t)nt_db_u64(st, 13),
                                     .nodes = (uint32_t)nt_db_u64(st, 14)};
        p.site = nt_db_text(st, 15);
        if (sqlite3_column_type(st, 16) != SQLITE_NULL) {
            p.json = nt_db_text(st, 16);
        }
        rc = nt_db_word(s, st, 3, nt_profile_state_names, &p.state, err);
        rc = rc == 0 ? on_profile(data, &p, err) : rc;
        (*ret_n)++;
    }
    if (rc == 0 && step != SQLITE_DONE) {
        rc = nt_db_fail(s, err, NULL);
    }
    (void)sqlite3_finalize(st);
    return rc;
}

int nt_store_profile_list(struct nt_store *s, int64_t before, unsigned limit,
                          nt_store_profile_cb on_profile, void *data, struct nt_err *err)
{
    static const char sql[] =
        PROFILE_SELECT("NULL") "WHERE ?1 = 0 OR p.id < ?1 ORDER BY p.id DESC LIMIT ?2";
    const struct nt_value v[] = {nt_v_int(before), nt_v_int(limit)};
    unsigned n;
    return walk_profiles(s, sql, v, NT_COUNT(v), on_profile, data, &n, err);
}

int nt_store_profile_load(struct nt_store *s, int64_t id, nt_store_profile_cb on_profile,
                          void *data, struct nt_err *err)
{
    static const char sql[] = PROFILE_SELECT("p.json") "WHERE p.id = ?1";
    const struct nt_value v[] = {nt_v_int(id)};
    unsigned n = 0;
    int rc = walk_profiles(s, sql, v, NT_COUNT(v), on_profile, data, &n, err);
    return rc == 0 && n == 0
               ? nt_fail(err, NT_E_MISSING, 0, "there is no profile %lld", (long long)id)
               : rc;
}

int nt_store_profile_set_state(struct nt_store *s, int64_t id, enum nt_profile_state state,
                               const char *why, struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_int(id), nt_v_text(nt_profile_state_names[state]),
                                 nt_v_text(why), nt_v_u64(nt_db_now_ms())};
    return state == NT_PS_CURRENT
               ? change(s, "DELETE FROM profile_state WHERE profile_id = ?1", v, 1, NULL, err)
               : change(s,
                        "INSERT INTO profile_state (profile_id, state, why, at_ms)"
                        " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (profile_id)"
                        " DO UPDATE SET state = ?2, why = ?3, at_ms = ?4",
                        v, NT_COUNT(v), NULL, err);
}

/* --- questions ----------------------------------------------------------------------------------
 */

const char *nt_store_list_sql(enum nt_store_list which)
{
    static const char *const sql[NT_LIST_COUNT] = {
        [NT_LIST_TOPOLOGIES] =
            "SELECT t.id, t.identity, t.mask, t.health, length(t.xml) AS xml_bytes,"
            " (SELECT count(*) FROM job AS j WHERE j.topology_id = t.id) AS jobs,"
            " (SELECT group_concat(DISTINCT k.gpu) FROM job AS j JOIN stack AS k ON"
            " k.id = j.stack_id WHERE j.topology_id = t.id) AS gpu"
            " FROM topology AS t ORDER BY t.id DESC LIMIT 1000",
        [NT_LIST_TOPOLOGY] = "SELECT id, identity, mask, health, json, xml FROM topology"
                             " WHERE id = ?1",
        [NT_LIST_EVENTS] = "SELECT id, job_id AS job, at_ms, kind, text FROM event"
                           " WHERE ?1 = 0 OR id < ?1 ORDER BY id DESC LIMIT ?2",
        [NT_LIST_COUNTS] =
            "SELECT (SELECT count(*) FROM job) AS jobs, (SELECT count(*) FROM profile) AS profiles,"
            " (SELECT count(*) FROM topology) AS topologies,"
            " (SELECT count(*) FROM event) AS events",
    };
    return sql[which];
}

int nt_store_version(struct nt_store *s, int64_t *ret, struct nt_err *err)
{
    static const char sql[] =
        "SELECT (SELECT coalesce(max(id), 0) FROM profile) * 1000003"
        " + (SELECT count(*) + coalesce(sum(at_ms % 1000000007), 0) FROM profile_state)";
    sqlite3_stmt *st = NULL;
    int rc = ask(s, sql, NULL, 0, &st, err);
    if (rc == 0 && sqlite3_step(st) != SQLITE_ROW) {
        rc = nt_db_fail(s, err, NULL);
    }
    if (rc == 0) {
        *ret = sqlite3_column_int64(st, 0) & INT64_MAX;
    }
    (void)sqlite3_finalize(st);
    return rc;
}

enum { STOP_EACH = 1000 }; /* steps of SQLite's machine: less than a millisecond */

static int is_stopped(void *data)
{
    return *(const volatile sig_atomic_t *)data != 0;
}

/* The copy under another name, on disk. */
static int copy_to(struct nt_store *s, const char *path, const volatile sig_atomic_t *stop,
                   struct nt_err *err)
{
    char *uri = nt_db_uri(path, "mode=rwc"); /* bare, "", ":memory:" or "file:x" are no files */
    const struct nt_value v[] = {nt_v_text(uri)};
    sqlite3_stmt *st = NULL;
    int fd, rc;

    if (uri == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "backup to %s", path);
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); /* SQLite's reason is another */
    if (fd < 0) {
        sqlite3_free(uri);
        return nt_fail(err, NT_E_IO, errno, "create %s", path);
    }
    (void)close(fd);
    if (stop != NULL) {
        sqlite3_progress_handler(s->db, STOP_EACH, is_stopped, (void *)(uintptr_t)stop);
    }
    rc = ask(s, "VACUUM INTO ?1", v, NT_COUNT(v), &st, err);
    if (rc == 0 && sqlite3_step(st) != SQLITE_DONE) {
        rc = sqlite3_errcode(s->db) == SQLITE_FULL /* not the database that is read */
                 ? nt_fail(err, NT_E_IO, ENOSPC, "write %s", path)
                 : nt_db_fail(s, err, "backup");
    }
    if (stop != NULL && *stop != 0) {
        rc = nt_fail(err, NT_E_INTERRUPTED, 0, "interrupted; there is no backup");
    }
    (void)sqlite3_finalize(st);
    sqlite3_progress_handler(s->db, 0, NULL, NULL);
    sqlite3_free(uri);
    if (rc == 0) {
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fsync(fd) != 0) {
            rc = nt_fail(err, NT_E_IO, errno, "write %s", path);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    return rc;
}

/* The name itself, so that a power cut does not take it. */
static void keep_name(const char *path)
{
    char folder[PATH_MAX];
    char *slash;
    int fd;

    (void)snprintf(folder, sizeof(folder), "./%s", path);
    slash = strrchr(folder, '/');
    slash[1] = '\0';
    fd = open(path[0] == '/' ? folder + 2 : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
}

int nt_store_backup(struct nt_store *s, const char *path, const volatile sig_atomic_t *stop,
                    struct nt_err *err)
{
    static const char there[] = "%s is there already; a backup overwrites nothing";
    char beside[PATH_MAX];
    int rc;

    if (path[0] == '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "the path of the backup is empty");
    }
    if (snprintf(beside, sizeof(beside), "%s.tmp.%ld", path, (long)getpid()) >=
        (int)sizeof(beside)) {
        return nt_fail(err, NT_E_INVAL, ENAMETOOLONG, "backup to %.200s", path);
    }
    if (access(path, F_OK) == 0) {
        return nt_fail(err, NT_E_INVAL, 0, there, path);
    }
    rc = nt_wrap(err, copy_to(s, beside, stop, err), "backup to %s", path);
    /* Not over what came there meanwhile. */
    if (rc == 0 && renameat2(AT_FDCWD, beside, AT_FDCWD, path, RENAME_NOREPLACE) != 0 &&
        (errno != EINVAL || access(path, F_OK) == 0 || rename(beside, path) != 0)) {
        rc = access(path, F_OK) == 0 ? nt_fail(err, NT_E_INVAL, 0, there, path)
                                     : nt_fail(err, NT_E_IO, errno, "backup to %s", path);
    }
    if (rc == 0) {
        keep_name(path);
    } else {
        (void)unlink(beside);
    }
    return rc;
}

/* --- retention ----------------------------------------------------------------------------------
 */

enum { KEPT_SAMPLES = 16 };

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int thin_one(struct nt_store *s, int64_t job, int64_t seq, struct nt_buf *samples,
                    struct nt_err *err)
{
    size_t n = samples->len / sizeof(uint32_t);
    uint32_t kept[KEPT_SAMPLES], *all = (uint32_t *)(void *)samples->data;

    qsort(all, n, sizeof(all[0]), by_value);
    for (size_t i = 0; i < KEPT_SAMPLES; i++) {
        kept[i] = all[i * (n - 1) / (KEPT_SAMPLES - 1)];
    }
    const struct nt_value v[] = {nt_v_int(job), nt_v_int(seq), nt_v_u64(n),
                                 nt_v_blob(kept, sizeof(kept)), nt_v_int(KEPT_SAMPLES)};
    return change(s,
                  "UPDATE trial SET thinned = ?3, samples = ?4, n = ?5"
                  " WHERE job_id = ?1 AND seq = ?2",
                  v, NT_COUNT(v), NULL, err);
}

/* Trials of one job, at most `limit`; *ret_n: how many. */
static int thin_job(struct nt_store *s, int64_t job, unsigned limit, uint64_t *ret_n,
                    struct nt_err *err)
{
    static const char sql[] = "SELECT job_id, seq, samples FROM trial"
                              " WHERE job_id = ?1 AND thinned IS NULL AND n > ?2 LIMIT ?3";
    const struct nt_value v[] = {nt_v_int(job), nt_v_int(KEPT_SAMPLES), nt_v_int(limit)};
    sqlite3_stmt *st = NULL;
    struct nt_buf samples;
    uint64_t n = 0;
    int step = SQLITE_DONE, rc = ask(s, sql, v, NT_COUNT(v), &st, err);

    nt_buf_init(&samples, 64 << 20);
    while (rc == 0 && (step = sqlite3_step(st)) == SQLITE_ROW) {
        nt_buf_clear(&samples);
        nt_buf_add(&samples, sqlite3_column_blob(st, 2), (size_t)sqlite3_column_bytes(st, 2));
        rc = samples.failed ? nt_fail(err, NT_E_NOMEM, 0, "samples of a trial")
                            : thin_one(s, job, sqlite3_column_int64(st, 1), &samples, err);
        n++;
    }
    if (rc == 0 && step != SQLITE_DONE) {
        rc = nt_db_fail(s, err, NULL);
    }
    (void)sqlite3_finalize(st);
    nt_buf_done(&samples);
    *ret_n = n;
    return rc;
}

int nt_store_thin(struct nt_store *s, uint64_t before_ms, unsigned limit, uint64_t *ret_n,
                  struct nt_err *err)
{
    static const char sql[] =
        "SELECT id, 0 FROM job WHERE thinned = 0 AND finished_ms < ?1 ORDER BY finished_ms LIMIT 1";
    const struct nt_value v[] = {nt_v_u64(before_ms)};
    int64_t job = 0, none;
    uint64_t n = 0;
    bool own = false;
    int rc = two_numbers(s, sql, v, NT_COUNT(v), &job, &none, err);

    if (rc == 0 && job != 0) { /* nothing is locked when there is nothing to do */
        const struct nt_value id[] = {nt_v_int(job)};
        rc = nt_db_enter(s, &own, err);
        if (rc == 0) {
            rc = thin_job(s, job, limit, &n, err);
            if (rc == 0 && n < limit) {
                rc = change(s, "UPDATE job SET thinned = 1 WHERE id = ?1", id, 1, NULL, err);
            }
            rc = nt_db_leave(s, own, rc, err);
        }
    }
    if (rc == 0) {
        *ret_n = n;
    }
    return rc;
}
