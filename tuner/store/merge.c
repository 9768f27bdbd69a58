/* Two databases into one: the SQL of schema/sql/merge.sql between an attached file and ours. */
#include "tuner/store/db.h"
#include "tuner/store/owner.h"

#include <stdio.h>
#include <string.h>

#define COUNTS                                                                                     \
    "SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM trial),"                             \
    " (SELECT count(*) FROM measurement), (SELECT count(*) FROM profile)"
#define DROP_MAPS                                                                                  \
    "DROP TABLE temp.m_topology; DROP TABLE temp.m_host; DROP TABLE temp.m_stack;"                 \
    "DROP TABLE temp.m_setting; DROP TABLE temp.m_executed; DROP TABLE temp.m_cases;"              \
    "DROP TABLE temp.m_conflict; DROP TABLE temp.m_job; DROP TABLE temp.m_import;"                 \
    "DROP TABLE temp.m_before; DROP TABLE temp.m_alive; DROP TABLE temp.m_driven"

static int numbers(struct nt_store *s, const char *sql, uint64_t *ret, int n, struct nt_err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = 0;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK ||
        sqlite3_step(st) != SQLITE_ROW) {
        rc = nt_db_fail(s, err, NULL);
    }
    for (int i = 0; rc == 0 && i < n; i++) {
        ret[i] = nt_db_u64(st, i);
    }
    (void)sqlite3_finalize(st);
    return rc;
}

static int attach(struct nt_store *s, const char *path, struct nt_err *err)
{
    char *uri = nt_db_uri(path, nt_db_immutable(path) ? "mode=ro&immutable=1" : "mode=ro");
    sqlite3_stmt *st = NULL;
    int rc = 0;
    if (uri == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "database %s: out of memory", path);
    }
    if (sqlite3_prepare_v2(s->db, "ATTACH ?1 AS src", -1, &st, NULL) != SQLITE_OK ||
        sqlite3_bind_text(st, 1, uri, -1, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_step(st) != SQLITE_DONE) {
        rc = nt_db_fail_of(s, path, err, NULL);
    }
    (void)sqlite3_finalize(st);
    sqlite3_free(uri);
    return rc;
}

/* Pages first, so that what is damaged there is never said of the database here. Then rows that
 * others refer to, and what each step of a job was: a merge by joins would leave out what lacks
 * them, and say nothing. */
static int check_whole(struct nt_store *s, const char *path, struct nt_err *err)
{
    static const char *const questions[] = {
        "SELECT replace(replace(quick_check, '*** in database src ***' || char(10), ''), char(10), "
        "' ')"
        " FROM pragma_quick_check(1, 'src') WHERE quick_check <> 'ok'",
        "SELECT 'table ' || m.name FROM main.sqlite_schema AS m WHERE m.type = 'table' AND NOT "
        "EXISTS"
        " (SELECT 1 FROM src.sqlite_schema AS x WHERE x.type = 'table' AND x.name = m.name) LIMIT "
        "1",
        "SELECT \"table\" || ' → ' || parent FROM pragma_foreign_key_check(NULL, 'src') LIMIT 1",
        "SELECT 'step ' || seq || ' of job ' || job_id FROM src.step AS s WHERE NOT"
        " (kind = 1 AND EXISTS (SELECT 1 FROM src.gang AS x"
        "                       WHERE x.job_id = s.job_id AND x.seq = s.seq)"
        "  OR kind = 2 AND EXISTS (SELECT 1 FROM src.cells AS x"
        "                          WHERE x.job_id = s.job_id AND x.seq = s.seq)"
        "  OR kind = 3 AND EXISTS (SELECT 1 FROM src.trial AS x"
        "                          WHERE x.job_id = s.job_id AND x.seq = s.seq)) LIMIT 1"};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < NT_COUNT(questions); i++) {
        sqlite3_stmt *st = NULL;
        int step = SQLITE_ERROR;
        if (sqlite3_prepare_v2(s->db, questions[i], -1, &st, NULL) == SQLITE_OK) {
            step = sqlite3_step(st);
        }
        if (step == SQLITE_ROW) {
            rc = nt_fail(err, NT_E_DAMAGED, 0,
                         "database %s is damaged: %s%.200s%s; nothing of it was merged", path,
                         i > 0 ? "rows that others need are missing (" : "", nt_db_text(st, 0),
                         i > 0 ? ")" : "");
        } else if (step != SQLITE_DONE) {
            rc = nt_db_fail_of(s, path, err, NULL);
        }
        (void)sqlite3_finalize(st);
    }
    return rc;
}

/* Jobs here that a living process drives, into m_alive. */
static int find_alive(struct nt_store *s, struct nt_err *err)
{
    sqlite3_stmt *jobs = NULL, *add = NULL;
    int rc = nt_db_exec(s, "CREATE TEMP TABLE m_alive (id INTEGER PRIMARY KEY)", err), step;

    if (rc != 0) {
        return rc;
    }
    if (sqlite3_prepare_v2(s->db,
                           "SELECT id, owner_pid, owner_start, owner_boot FROM main.job"
                           " WHERE state = 'running' AND owner_pid IS NOT NULL",
                           -1, &jobs, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(s->db, "INSERT INTO temp.m_alive VALUES (?1)", -1, &add, NULL) !=
            SQLITE_OK) {
        rc = nt_db_fail(s, err, NULL);
    }
    while (rc == 0 && (step = sqlite3_step(jobs)) != SQLITE_DONE) {
        struct nt_owner o = {sqlite3_column_int64(jobs, 1), sqlite3_column_int64(jobs, 2), ""};
        if (step != SQLITE_ROW) {
            rc = nt_db_fail(s, err, NULL);
            break;
        }
        (void)snprintf(o.boot, sizeof(o.boot), "%s", nt_db_text(jobs, 3));
        if (nt_owner_alive(&o) &&
            (sqlite3_bind_int64(add, 1, sqlite3_column_int64(jobs, 0)) != SQLITE_OK ||
             sqlite3_step(add) != SQLITE_DONE || sqlite3_reset(add) != SQLITE_OK)) {
            rc = nt_db_fail(s, err, NULL);
        }
    }
    (void)sqlite3_finalize(jobs);
    (void)sqlite3_finalize(add);
    return rc;
}

static int merge(struct nt_store *s, struct nt_store_merged *ret, struct nt_err *err)
{
    uint64_t before[4] = {0}, after[4] = {0}, left[2] = {0};
    int rc = numbers(s, COUNTS, before, 4, err);
    rc = rc == 0 ? find_alive(s, err) : rc;
    if (rc == 0) {
        rc = nt_db_exec(s, nt_merge_sql, err);
    }
    if (rc == 0) {
        rc = numbers(s, COUNTS, after, 4, err);
    }
    if (rc == 0) {
        rc = numbers(s,
                     "SELECT (SELECT count(*) FROM temp.m_conflict),"
                     " (SELECT count(*) FROM temp.m_driven)",
                     left, 2, err);
    }
    if (rc == 0) {
        rc = nt_db_exec(s, DROP_MAPS, err);
    }
    if (rc == 0) {
        *ret = (struct nt_store_merged){.jobs = after[0] - before[0],
                                        .trials = after[1] - before[1],
                                        .measurements = after[2] - before[2],
                                        .profiles = after[3] - before[3],
                                        .conflicts = left[0],
                                        .driven = left[1]};
    }
    return rc;
}

int nt_store_merge(struct nt_store *s, const char *src_path, struct nt_store_merged *ret,
                   struct nt_err *err)
{
    struct nt_store *src = NULL;
    struct nt_store_merged merged = {0};
    int rc;
    if (s->in_transaction) {
        return nt_fail(err, NT_E_BUG, 0, "a merge inside a transaction");
    }
    /* Opened once for its checks: is it ours, of this version, whole. */
    rc = nt_store_open(src_path, NT_STORE_READ, &src, err);
    nt_store_close(src);
    if (rc == 0) {
        rc = attach(s, src_path, err);
    }
    if (rc != 0) {
        return rc;
    }
    rc = check_whole(s, src_path, err);
    rc = rc == 0 ? nt_store_begin(s, err) : rc;
    if (rc == 0) {
        rc = nt_store_end(s, merge(s, &merged, err), err);
    }
    (void)sqlite3_exec(s->db, "DETACH src", NULL, NULL, NULL);
    if (rc == 0) {
        *ret = merged;
    }
    return rc;
}
