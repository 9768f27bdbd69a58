#include "tuner/store/db.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The five columns of a case, always in this order (nt_db_read_case). */
#define CASE_COLUMNS "collective, bytes, dtype, place, mode"

static const char *const sql[NT_SQL_COUNT] = {
    [NT_SQL_BEGIN] = "BEGIN IMMEDIATE",
    [NT_SQL_COMMIT] = "COMMIT",
    [NT_SQL_ROLLBACK] = "ROLLBACK",
    [NT_SQL_GET_TOPOLOGY] = "SELECT id FROM topology WHERE hash = ?1",
    [NT_SQL_PUT_TOPOLOGY] = "INSERT INTO topology (hash, identity, mask, json, xml, health)"
                            " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [NT_SQL_GET_HOST] = "SELECT id FROM host WHERE hash = ?1",
    [NT_SQL_PUT_HOST] = "INSERT INTO host (hash, name, facts) VALUES (?1, ?2, ?3)",
    [NT_SQL_GET_STACK] = "SELECT id FROM stack WHERE hash = ?1",
    [NT_SQL_PUT_STACK] =
        "INSERT INTO stack (hash, nccl, nccl_sha256, cuda, driver, framework, gpu, site)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [NT_SQL_GET_SETTING] = "SELECT id FROM setting WHERE hash = ?1",
    [NT_SQL_PUT_SETTING] =
        "INSERT INTO setting (hash, vars, algo, proto, channels, chunk_bytes, label, backend)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [NT_SQL_READ_SETTING] =
        "SELECT vars, algo, proto, channels, chunk_bytes, backend FROM setting WHERE id = ?1",
    [NT_SQL_GET_CASE] = "SELECT id FROM cases WHERE collective = ?1 AND bytes = ?2 AND dtype = ?3"
                        " AND place = ?4 AND mode = ?5",
    [NT_SQL_PUT_CASE] = "INSERT INTO cases (" CASE_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5)",
    [NT_SQL_GET_EXECUTED] =
        "SELECT id FROM executed WHERE algo = ?1 AND proto = ?2 AND channels = ?3 AND warps = ?4",
    [NT_SQL_PUT_EXECUTED] = "INSERT INTO executed (algo, proto, channels, warps, label)"
                            " VALUES (?1, ?2, ?3, ?4, ?5)",
    [NT_SQL_ADD_JOB] =
        "INSERT INTO job (key, spec, seed, rig, ranks, nodes, placement, topology_id, host_id,"
        " stack_id, state, stage, created_ms, device_ns, owner_pid, owner_boot, owner_start)"
        " VALUES (coalesce(?14, lower(hex(randomblob(16)))), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "
        "'new',"
        " '', ?10, 0, ?11, ?12, ?13)",
    [NT_SQL_JOB_OWNER] = "SELECT owner_pid, owner_boot, owner_start FROM job WHERE id = ?1",
    [NT_SQL_OWN_JOB] = "UPDATE job SET owner_pid = ?2, owner_boot = ?3, owner_start = ?4,"
                       " state = 'running', finished_ms = NULL WHERE id = ?1",
    [NT_SQL_FREE_JOB] = "UPDATE job SET owner_pid = NULL, owner_boot = NULL, owner_start = NULL"
                        " WHERE id = ?1",
    [NT_SQL_JOB_STATE] = "UPDATE job SET state = ?2, finished_ms = ?3 WHERE id = ?1",
    [NT_SQL_JOB_PLACE] = "UPDATE job SET topology_id = coalesce(?2, topology_id),"
                         " host_id = coalesce(?3, host_id), stack_id = coalesce(?4, stack_id),"
                         " placement = coalesce(?5, placement)"
                         " WHERE id = ?1",
    [NT_SQL_JOB_STAGE] = "UPDATE job SET stage = ?2, device_ns = ?3 WHERE id = ?1",
    [NT_SQL_ADD_STEP] = "INSERT INTO step (job_id, seq, kind) VALUES (?1, ?2, ?3)",
    [NT_SQL_ADD_GANG] =
        "INSERT INTO gang (job_id, seq, number, arm, setting_id, start_ns, init_ns, status,"
        " memory_bytes, error) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [NT_SQL_ADD_CELLS] =
        "INSERT INTO cells (job_id, seq, gang, case_id, asked, status, error, cost)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [NT_SQL_ADD_TRIAL] =
        "INSERT INTO trial (job_id, seq, gang, case_id, setting_id, executed_id, status, n,"
        " median_ns, mean_ns, min_ns, p95_ns, sd_ns, base_ns, elapsed_ns, connect_ns, memory_bytes,"
        " wrong, flags, error, samples, bits, own_chunk_bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7,"
        " ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
    [NT_SQL_SAVE_VERDICT] =
        "INSERT INTO verdict (job_id, stage, product, case_id, setting_id, kind, default_ns,"
        " tuned_ns, speedup, lo, hi, p, pairs, reason)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
        " ON CONFLICT (job_id, stage, product, case_id, setting_id) DO UPDATE SET"
        " kind = excluded.kind, default_ns = excluded.default_ns, tuned_ns = excluded.tuned_ns,"
        " speedup = excluded.speedup, lo = excluded.lo, hi = excluded.hi, p = excluded.p,"
        " pairs = excluded.pairs, reason = excluded.reason",
    [NT_SQL_GET_PROFILE] = "SELECT id FROM profile WHERE job_id = ?1 AND hash = ?2",
    [NT_SQL_ADD_PROFILE] =
        "INSERT INTO profile (job_id, hash, created_ms, json) VALUES (?1, ?2, ?3, ?4)",
    [NT_SQL_ADD_PROFILE_ROW] =
        "INSERT INTO profile_row (profile_id, product, case_id, min_bytes, max_bytes, setting_id,"
        " kind, default_ns, as_found_ns, tuned_ns, speedup, lo, hi, p, pairs)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    [NT_SQL_LOAD_PROFILE] = "SELECT json FROM profile WHERE job_id = ?1"
                            " ORDER BY created_ms DESC, id DESC LIMIT 1",
    [NT_SQL_ADD_EVENT] = "INSERT INTO event (job_id, at_ms, kind, text) VALUES (?1, ?2, ?3, ?4)",
    [NT_SQL_ADD_CHECK] =
        "INSERT INTO checkrun (key, at_ms, profile, product, rig, ranks, nodes, topology_id,"
        " host_id, stack_id, pairs, verdict, differs, copy_bytes, copy_ns, launch_ns)"
        " VALUES (lower(hex(randomblob(16))), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,"
        " ?13, ?14, ?15)",
    [NT_SQL_ADD_CHECK_ROW] =
        "INSERT INTO checkrow (check_id, nr, case_id, setting_id, min_bytes, max_bytes, was_ratio,"
        " ratio, lo, hi, default_ns, tuned_ns, default_move, tuned_move, verdict, why)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
    [NT_SQL_GET_IMPORT] = "SELECT id FROM import WHERE sha256 = ?1 AND kind = ?2",
    [NT_SQL_ADD_IMPORT] = "INSERT INTO import (sha256, kind, source, provenance, setup, at_ms)"
                          " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [NT_SQL_ADD_MEASUREMENT] =
        "INSERT INTO measurement (import_id, " CASE_COLUMNS ", backend, setting, ranks, repeat,"
        " samples, ns, sd_ns, algbw_gbps, busbw_gbps, wrong)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
};

/* --- errors --------------------------------------------------------------------------------------
 */

/* Words after the path. */
static const struct {
    int primary; /* SQLite's result code */
    enum nt_code code;
    const char *words;
} advice[] = {
    {SQLITE_BUSY, NT_E_STORE, "is locked by another program; let it finish or stop it"},
    {SQLITE_LOCKED, NT_E_STORE, "is locked by another use in this program"},
    {SQLITE_NOTADB, NT_E_DAMAGED, "is not an nccltune database, or is damaged; name another"},
    {SQLITE_CORRUPT, NT_E_DAMAGED,
     "is damaged; 'sqlite3 OLD .recover | sqlite3 NEW' saves what can be read"},
    {SQLITE_READONLY, NT_E_STORE,
     "cannot be written; see owner and mode of the file and its folder"},
    {SQLITE_PERM, NT_E_STORE, "cannot be used: no permission"},
    {SQLITE_AUTH, NT_E_INVAL, "refused a statement"},
    {SQLITE_FULL, NT_E_STORE, "has no space left to grow; what was committed is safe"},
    {SQLITE_IOERR, NT_E_STORE, "could not be read or written; what was committed is safe"},
    {SQLITE_CANTOPEN, NT_E_STORE, "cannot be opened"},
    {SQLITE_CONSTRAINT, NT_E_INVAL, "does not take this row"},
    {SQLITE_TOOBIG, NT_E_INVAL, "does not take values that large"},
    {SQLITE_RANGE, NT_E_BUG, "was asked wrongly"},
    {SQLITE_MISUSE, NT_E_BUG, "was used wrongly"},
};

static int fail_code(struct nt_err *err, const char *path, int ext, int sys, const char *what)
{
    int primary = ext & 0xff;
    if (primary == SQLITE_NOMEM) {
        return nt_fail(err, NT_E_NOMEM, -ext, "database %s: out of memory", path);
    }
    for (size_t i = 0; i < NT_COUNT(advice); i++) {
        if (advice[i].primary == primary) {
            return nt_fail(err, advice[i].code, -ext, "database %s %s (%s%s%s)", path,
                           advice[i].words, what, sys != 0 ? ": " : "",
                           sys != 0 ? strerror(sys) : "");
        }
    }
    return nt_fail(err, NT_E_STORE, -ext, "database %s: %s", path, what);
}

int nt_db_fail(struct nt_store *s, struct nt_err *err, const char *doing)
{
    return nt_db_fail_of(s, s->path, err, doing);
}

int nt_db_fail_of(struct nt_store *s, const char *path, struct nt_err *err, const char *doing)
{
    char what[256];
    int ext = sqlite3_extended_errcode(s->db);
    int primary = ext & 0xff;
    bool system = primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN || primary == SQLITE_FULL;

    (void)snprintf(what, sizeof(what), "%s%s%s", doing != NULL ? doing : "",
                   doing != NULL ? ": " : "", sqlite3_errmsg(s->db));
    return fail_code(err, path, ext, system ? sqlite3_system_errno(s->db) : 0, what);
}

/* --- values --------------------------------------------------------------------------------------
 */

#define TOO_LARGE ((enum nt_value_type)(NT_VALUE_BLOB + 1)) /* binding refuses it */

struct nt_value nt_v_int(int64_t x)
{
    return (struct nt_value){.type = NT_VALUE_INT, .i = x};
}
struct nt_value nt_v_u64(uint64_t x)
{
    if (x > INT64_MAX) {
        return (struct nt_value){.type = TOO_LARGE};
    }
    return nt_v_int((int64_t)x);
}
struct nt_value nt_v_id(int64_t id)
{
    return id != 0 ? nt_v_int(id) : nt_v_null();
}
struct nt_value nt_v_real(double x)
{
    return isnan(x) ? nt_v_null() : (struct nt_value){.type = NT_VALUE_REAL, .r = x};
}
struct nt_value nt_v_text(const char *x)
{
    const char *text = x != NULL ? x : "";
    return (struct nt_value){.type = NT_VALUE_TEXT, .text = text, .len = strlen(text)};
}
struct nt_value nt_v_blob(const void *x, size_t len)
{
    return (struct nt_value){.type = NT_VALUE_BLOB, .text = x != NULL ? x : "", .len = len};
}
struct nt_value nt_v_null(void)
{
    return (struct nt_value){.type = NT_VALUE_NULL};
}

static int bind_one(sqlite3_stmt *st, int at, const struct nt_value *v)
{
    switch (v->type) {
    case NT_VALUE_NULL:
        return sqlite3_bind_null(st, at);
    case NT_VALUE_INT:
        return sqlite3_bind_int64(st, at, v->i);
    case NT_VALUE_REAL:
        return sqlite3_bind_double(st, at, v->r);
    case NT_VALUE_TEXT:
        return sqlite3_bind_text64(st, at, v->text, v->len, SQLITE_STATIC, SQLITE_UTF8);
    case NT_VALUE_BLOB:
        return sqlite3_bind_blob64(st, at, v->text, v->len, SQLITE_STATIC);
    }
    return SQLITE_TOOBIG;
}

int nt_db_bind(struct nt_store *s, sqlite3_stmt *st, const struct nt_value *v, size_t n,
               struct nt_err *err)
{
    for (size_t i = 0; i < n; i++) {
        int rc = bind_one(st, (int)i + 1, &v[i]);
        if (rc != SQLITE_OK) {
            return fail_code(err, s->path, rc, 0, sqlite3_errstr(rc));
        }
    }
    return 0;
}

/* --- statements
 * ----------------------------------------------------------------------------------- */

int nt_db_prepare(struct nt_store *s, enum nt_stmt_id id, struct nt_err *err)
{
    if (s->stmt[id] == NULL && sqlite3_prepare_v3(s->db, sql[id], -1, SQLITE_PREPARE_PERSISTENT,
                                                  &s->stmt[id], NULL) != SQLITE_OK) {
        return nt_db_fail(s, err, NULL);
    }
    return 0;
}

int nt_db_start(struct nt_store *s, enum nt_stmt_id id, const struct nt_value *v, size_t n,
                sqlite3_stmt **ret, struct nt_err *err)
{
    int rc = nt_db_prepare(s, id, err);
    if (rc == 0) {
        rc = nt_db_bind(s, s->stmt[id], v, n, err);
        if (rc != 0) {
            nt_db_done(s->stmt[id]);
        } else {
            *ret = s->stmt[id];
        }
    }
    return rc;
}

void nt_db_done(sqlite3_stmt *st)
{
    (void)sqlite3_reset(st);
    (void)sqlite3_clear_bindings(st);
}

int nt_db_run(struct nt_store *s, enum nt_stmt_id id, const struct nt_value *v, size_t n,
              struct nt_err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = nt_db_start(s, id, v, n, &st, err);
    if (rc == 0) {
        rc = sqlite3_step(st) == SQLITE_DONE ? 0 : nt_db_fail(s, err, NULL);
        nt_db_done(st);
    }
    return rc;
}

int nt_db_get(struct nt_store *s, enum nt_stmt_id id, const struct nt_value *v, size_t n,
              int64_t *ret, bool *ret_found, struct nt_err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = nt_db_start(s, id, v, n, &st, err);
    int step;

    if (rc != 0) {
        return rc;
    }
    step = sqlite3_step(st);
    if (step == SQLITE_ROW) {
        *ret = sqlite3_column_int64(st, 0);
    } else if (step != SQLITE_DONE) {
        rc = nt_db_fail(s, err, NULL);
    }
    *ret_found = step == SQLITE_ROW;
    nt_db_done(st);
    return rc;
}

int nt_db_intern(struct nt_store *s, enum nt_stmt_id get, enum nt_stmt_id put,
                 const struct nt_value *v, size_t nkey, size_t n, int64_t *ret_id,
                 struct nt_err *err)
{
    bool found = false, own = false;
    int64_t id = 0;
    int rc = nt_db_get(s, get, v, nkey, &id, &found, err);
    if (rc != 0) {
        return rc;
    }
    if (!found) { /* look again under the lock: another program may have been faster */
        rc = nt_db_enter(s, &own, err);
        if (rc != 0) {
            return rc;
        }
        rc = nt_db_get(s, get, v, nkey, &id, &found, err);
        if (rc == 0 && !found) {
            rc = nt_db_run(s, put, v, n, err);
            id = sqlite3_last_insert_rowid(s->db);
        }
        rc = nt_db_leave(s, own, rc, err);
    }
    if (rc == 0) {
        *ret_id = id;
    }
    return rc;
}

int nt_db_exec(struct nt_store *s, const char *text, struct nt_err *err)
{
    return sqlite3_exec(s->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : nt_db_fail(s, err, NULL);
}

/* --- transactions
 * --------------------------------------------------------------------------------- */

static int refuse_reader(struct nt_store *s, struct nt_err *err)
{
    return s->mode == NT_STORE_WRITE
               ? 0
               : nt_fail(err, NT_E_STORE, 0, "database %s is open for reading only", s->path);
}

static void undo(struct nt_store *s)
{
    if (!sqlite3_get_autocommit(s->db)) { /* SQLite may have rolled back by itself */
        (void)sqlite3_step(s->stmt[NT_SQL_ROLLBACK]);
        (void)sqlite3_reset(s->stmt[NT_SQL_ROLLBACK]);
    }
}

int nt_store_begin(struct nt_store *s, struct nt_err *err)
{
    int rc = refuse_reader(s, err);
    if (rc == 0 && s->in_transaction) {
        rc = nt_fail(err, NT_E_BUG, 0, "a transaction inside a transaction");
    }
    if (rc == 0) {
        undo(s); /* one left open where even the rollback found no memory */
        rc = nt_db_run(s, NT_SQL_BEGIN, NULL, 0, err);
    }
    if (rc == 0) {
        s->in_transaction = true;
        s->broken = false;
    }
    return rc;
}

int nt_store_end(struct nt_store *s, int rc, struct nt_err *err)
{
    if (rc == 0 && s->broken) {
        rc = nt_fail(err, NT_E_STORE, 0,
                     "database %s: a call inside this transaction failed; all of it is undone",
                     s->path);
    }
    if (rc == 0) {
        rc = nt_db_run(s, NT_SQL_COMMIT, NULL, 0, err);
    }
    undo(s);
    s->in_transaction = false;
    s->broken = false;
    return rc;
}

int nt_db_enter(struct nt_store *s, bool *ret_own, struct nt_err *err)
{
    *ret_own = !s->in_transaction;
    return *ret_own ? nt_store_begin(s, err) : 0;
}

int nt_db_leave(struct nt_store *s, bool own, int rc, struct nt_err *err)
{
    if (own) {
        return nt_store_end(s, rc, err);
    }
    s->broken = s->broken || rc != 0;
    return rc;
}

/* --- columns
 * -------------------------------------------------------------------------------------- */

const char *nt_db_text(sqlite3_stmt *st, int column)
{
    const char *text = (const char *)sqlite3_column_text(st, column);
    return text != NULL ? text : "";
}

double nt_db_real(sqlite3_stmt *st, int column)
{
    return sqlite3_column_type(st, column) == SQLITE_NULL ? (double)NAN
                                                          : sqlite3_column_double(st, column);
}

uint64_t nt_db_u64(sqlite3_stmt *st, int column)
{
    int64_t x = sqlite3_column_int64(st, column);
    return x > 0 ? (uint64_t)x : 0;
}

int nt_db_word(struct nt_store *s, sqlite3_stmt *st, int column, const char *const *names,
               uint8_t *ret, struct nt_err *err)
{
    const char *word = nt_db_text(st, column);
    for (unsigned i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], word) == 0) {
            *ret = (uint8_t)i;
            return 0;
        }
    }
    return nt_fail(err, NT_E_STORE, 0, "database %s: %s '%.40s' is not known to this nccltune",
                   s->path, sqlite3_column_name(st, column), word);
}

int nt_db_read_case(struct nt_store *s, sqlite3_stmt *st, int column, struct nt_case *ret,
                    struct nt_err *err)
{
    struct nt_case c = {.bytes = nt_db_u64(st, column + 1)};
    int rc = nt_db_word(s, st, column, nt_coll_names, &c.coll, err);
    if (rc == 0) {
        rc = nt_db_word(s, st, column + 2, nt_dtype_names, &c.dtype, err);
    }
    if (rc == 0) {
        rc = nt_db_word(s, st, column + 3, nt_place_names, &c.place, err);
    }
    if (rc == 0) {
        rc = nt_db_word(s, st, column + 4, nt_mode_names, &c.mode, err);
    }
    if (rc == 0) {
        *ret = c;
    }
    return rc;
}

int nt_db_scratch(struct nt_store *s, size_t bytes, struct nt_err *err)
{
    if (bytes > s->scratch_bytes) {
        void *more = sqlite3_realloc64(s->scratch, bytes);
        if (more == NULL) {
            return nt_fail(err, NT_E_NOMEM, 0, "database %s: out of memory", s->path);
        }
        s->scratch = more;
        s->scratch_bytes = bytes;
    }
    return 0;
}

uint64_t nt_db_now_ms(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
