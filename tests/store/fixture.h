/* fixture - a store in a folder of its own, and rows to put in. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/store/db.h"

static inline void expect(int rc, int want, const char *says, const struct nt_err *e,
                          const char *call)
{
    if (rc != want || (rc != 0 && strstr(e->msg, says) == NULL)) {
        fail_msg("%s: %d '%s'", call, rc, e->msg);
    }
}
#define OK(call) expect((call), 0, "", &e, #call)
/* `says` must stand in the error, and the code be this one. */
#define FAILS(call, code_, says) expect((call), -(int)(code_), says, &e, #call)

struct place {
    char folder[64], db[96];
};

static inline int place_make(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    /* Memory where there is some: thousands of databases are made, each flushed to disk. */
    (void)snprintf(p->folder, sizeof(p->folder), "%s/nt-store-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(p->folder));
    (void)snprintf(p->db, sizeof(p->db), "%s/a.db", p->folder);
    *state = p;
    return 0;
}

static inline int place_remove(void **state)
{
    struct place *p = *state;
    static const char *const suffixes[] = {"a.db",
                                           "a.db-wal",
                                           "a.db-shm",
                                           "a.db-journal",
                                           "b.db",
                                           "b.db-wal",
                                           "b.db-shm",
                                           "file:x?mode=memory.db",
                                           "file:x?mode=memory.db-wal",
                                           "file:x?mode=memory.db-shm"};
    (void)chmod(p->folder, 0700);
    for (size_t i = 0; i < NT_COUNT(suffixes); i++) {
        char path[160];
        (void)snprintf(path, sizeof(path), "%s/%s", p->folder, suffixes[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(p->folder), 0);
    free(p);
    return 0;
}

/* A job with its default setting and gang 1 as step 1. */
static inline int64_t start_job(struct nt_store *s, int64_t *ret_setting)
{
    struct nt_err e = {0};
    struct nt_store_job j = {.spec = "{\"ranks\":4}", .seed = 7, .ranks = 4, .nodes = 1};
    struct nt_store_setting plain = {.call = NT_CALL_DEFAULT};
    struct nt_store_gang g = {.seq = 1, .number = 1, .arm = "search", .start_ns = 5, .init_ns = 6};
    int64_t job = 0;
    OK(nt_store_put_setting(s, &plain, &g.setting, &e));
    OK(nt_store_job_create(s, &j, &job, &e));
    OK(nt_store_add_gang(s, job, &g, &e));
    *ret_setting = g.setting;
    return job;
}

#define CASE_14K ((struct nt_case){.bytes = 14336, .coll = NT_ALL_REDUCE, .mode = NT_GRAPH})

static inline struct nt_store_trial some_trial(uint64_t seq, int64_t setting)
{
    static const uint32_t ns[] = {5000, 3000, 9000, UINT32_MAX};
    return (struct nt_store_trial){.seq = seq,
                                   .gang = 1,
                                   .cs = CASE_14K,
                                   .setting = setting,
                                   .executed = {.algo = NT_RING, .channels = 2, .warps = 8},
                                   .own_chunk_bytes = 2097152,
                                   .ns = ns,
                                   .count = NT_COUNT(ns),
                                   .base_ns = 1,
                                   .elapsed_ns = 2,
                                   .connect_ns = 3,
                                   .memory_bytes = 4,
                                   .wrong = 5,
                                   .flags = 6,
                                   .error = "'); DROP TABLE trial; --"};
}

/* A number by SQL, through a connection of the test's own. */
static inline int64_t count_of(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    int64_t n = -1;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 2000);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    if (sqlite3_step(st) == SQLITE_ROW) {
        n = sqlite3_column_int64(st, 0);
    }
    (void)sqlite3_finalize(st);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return n;
}

static inline void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    char *why = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s: %s", sql, why);
    }
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}
