/*
 * db - what the files of the store share: the connection, its statements, values bound and read.
 * Memory is SQLite's (sqlite3_malloc64), so that one failing allocator tests all of it.
 */
#pragma once
#include <sqlite3.h>
#include "tuner/store/migrate.h"
#include "tuner/store/store.h"

enum nt_stmt_id {
    NT_SQL_BEGIN,
    NT_SQL_COMMIT,
    NT_SQL_ROLLBACK,
    NT_SQL_GET_TOPOLOGY,
    NT_SQL_PUT_TOPOLOGY,
    NT_SQL_GET_HOST,
    NT_SQL_PUT_HOST,
    NT_SQL_GET_STACK,
    NT_SQL_PUT_STACK,
    NT_SQL_GET_SETTING,
    NT_SQL_PUT_SETTING,
    NT_SQL_READ_SETTING,
    NT_SQL_GET_CASE,
    NT_SQL_PUT_CASE,
    NT_SQL_GET_EXECUTED,
    NT_SQL_PUT_EXECUTED,
    NT_SQL_ADD_JOB,
    NT_SQL_JOB_OWNER,
    NT_SQL_OWN_JOB,
    NT_SQL_FREE_JOB,
    NT_SQL_JOB_STATE,
    NT_SQL_JOB_PLACE,
    NT_SQL_JOB_STAGE,
    NT_SQL_ADD_STEP,
    NT_SQL_ADD_GANG,
    NT_SQL_ADD_CELLS,
    NT_SQL_ADD_TRIAL,
    NT_SQL_SAVE_VERDICT,
    NT_SQL_GET_PROFILE,
    NT_SQL_ADD_PROFILE,
    NT_SQL_ADD_PROFILE_ROW,
    NT_SQL_LOAD_PROFILE,
    NT_SQL_ADD_EVENT,
    NT_SQL_ADD_CHECK,
    NT_SQL_ADD_CHECK_ROW,
    NT_SQL_GET_IMPORT,
    NT_SQL_ADD_IMPORT,
    NT_SQL_ADD_MEASUREMENT,
    NT_SQL_COUNT
};

struct nt_store {
    sqlite3 *db;
    sqlite3_stmt *stmt[NT_SQL_COUNT]; /* prepared on first use */
    enum nt_store_mode mode;
    bool in_transaction; /* between nt_store_begin and nt_store_end */
    bool broken;         /* a call failed inside it: it can only be undone */
    void *scratch;       /* for packing and sorting samples */
    size_t scratch_bytes;
    char path[]; /* as the user wrote it, for messages */
};

/* nt_store_open with another busy timeout and list of migrations, for tests. */
NT_MUST_CHECK int nt_db_open(const char *path, enum nt_store_mode mode, int busy_ms,
                             const struct nt_migration *list, struct nt_store **ret,
                             struct nt_err *err);
/* "file:" URI of a path with a query; freed with sqlite3_free, NULL when memory runs out. */
char *nt_db_uri(const char *path, const char *query);
/* A WAL database in a folder where its helper files cannot be made is read as if it never changed.
 */
bool nt_db_immutable(const char *path);

/* What SQLite says now, as an error with advice. Call it before the statement is reset. */
int nt_db_fail(struct nt_store *s, struct nt_err *err, const char *doing);
/* The same of an attached database. */
int nt_db_fail_of(struct nt_store *s, const char *path, struct nt_err *err, const char *doing);

/* Values of a row to be bound, in order of ?1, ?2 … */
struct nt_value nt_v_int(int64_t x);
struct nt_value nt_v_u64(uint64_t x);     /* over 63 bits: binding fails */
struct nt_value nt_v_id(int64_t id);      /* 0: NULL */
struct nt_value nt_v_real(double x);      /* NAN: NULL */
struct nt_value nt_v_text(const char *x); /* NULL: "" */
struct nt_value nt_v_blob(const void *x, size_t len);
struct nt_value nt_v_null(void);

#define NT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

NT_MUST_CHECK int nt_db_bind(struct nt_store *s, sqlite3_stmt *st, const struct nt_value *v,
                             size_t n, struct nt_err *err);
NT_MUST_CHECK int nt_db_prepare(struct nt_store *s, enum nt_stmt_id id, struct nt_err *err);
/* A statement of the table, prepared and bound; reset it with nt_db_done. */
NT_MUST_CHECK int nt_db_start(struct nt_store *s, enum nt_stmt_id id, const struct nt_value *v,
                              size_t n, sqlite3_stmt **ret, struct nt_err *err);
void nt_db_done(sqlite3_stmt *st);
/* Runs a statement that gives no rows. */
NT_MUST_CHECK int nt_db_run(struct nt_store *s, enum nt_stmt_id id, const struct nt_value *v,
                            size_t n, struct nt_err *err);
/* First column of the first row; *ret_found false: no row. */
NT_MUST_CHECK int nt_db_get(struct nt_store *s, enum nt_stmt_id id, const struct nt_value *v,
                            size_t n, int64_t *ret, bool *ret_found, struct nt_err *err);
/* Get or create: `get` takes the first nkey values, `put` all. */
NT_MUST_CHECK int nt_db_intern(struct nt_store *s, enum nt_stmt_id get, enum nt_stmt_id put,
                               const struct nt_value *v, size_t nkey, size_t n, int64_t *ret_id,
                               struct nt_err *err);
/* Constant SQL without values or rows of interest. */
NT_MUST_CHECK int nt_db_exec(struct nt_store *s, const char *sql, struct nt_err *err);

/* One call that writes: its own transaction, or part of the caller's, which a failure spoils. */
NT_MUST_CHECK int nt_db_enter(struct nt_store *s, bool *ret_own, struct nt_err *err);
NT_MUST_CHECK int nt_db_leave(struct nt_store *s, bool own, int rc, struct nt_err *err);

/* Text of a column, "" for NULL; *rc becomes -NT_E_NOMEM when memory ran out. */
const char *nt_db_text(sqlite3_stmt *st, int column);
double nt_db_real(sqlite3_stmt *st, int column);  /* NULL: NAN */
uint64_t nt_db_u64(sqlite3_stmt *st, int column); /* negative or NULL: 0 */
/* Index of a column's word in a name table; an unknown one is NT_E_STORE. */
NT_MUST_CHECK int nt_db_word(struct nt_store *s, sqlite3_stmt *st, int column,
                             const char *const *names, uint8_t *ret, struct nt_err *err);
/* Five columns from `column` on: collective, bytes, dtype, place, mode. */
NT_MUST_CHECK int nt_db_read_case(struct nt_store *s, sqlite3_stmt *st, int column,
                                  struct nt_case *ret, struct nt_err *err);

NT_MUST_CHECK int nt_db_scratch(struct nt_store *s, size_t bytes, struct nt_err *err);
uint64_t nt_db_now_ms(void);

NT_MUST_CHECK int nt_db_case(struct nt_store *s, const struct nt_case *c, int64_t *ret_id,
                             struct nt_err *err);
NT_MUST_CHECK int nt_db_executed(struct nt_store *s, const struct nt_executed *x, int64_t *ret_id,
                                 struct nt_err *err);
