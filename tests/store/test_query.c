/* Questions: what is answered, what is refused, and when it ends. */
#include "tests/store/fixture.h"

struct table {
    unsigned calls, rows, ncols;
    char text[4096];
};

static int keep(void *data, unsigned ncols, const char *const *names, const struct nt_value *values,
                struct nt_err *err)
{
    struct table *t = data;
    (void)err;
    t->calls++;
    t->rows += values != NULL;
    t->ncols = ncols;
    for (unsigned i = 0; i < ncols; i++) {
        size_t n = strlen(t->text);
        const char *sep = i + 1 < ncols ? "|" : "\n";
        if (values == NULL) {
            (void)snprintf(t->text + n, sizeof(t->text) - n, "%s%s", names[i], sep);
        } else if (values[i].type == NT_VALUE_INT) {
            (void)snprintf(t->text + n, sizeof(t->text) - n, "%lld%s", (long long)values[i].i, sep);
        } else if (values[i].type == NT_VALUE_REAL) {
            (void)snprintf(t->text + n, sizeof(t->text) - n, "%g%s", values[i].r, sep);
        } else {
            (void)snprintf(t->text + n, sizeof(t->text) - n, "%.*s%s", (int)values[i].len,
                           values[i].type == NT_VALUE_NULL ? "" : values[i].text, sep);
        }
    }
    return 0;
}

static struct nt_store *filled(struct place *p, enum nt_store_mode mode)
{
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t setting = 0, job;
    struct nt_store_trial t;
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    t = some_trial(2, setting);
    OK(nt_store_add_trial(s, job, &t, &e));
    if (mode == NT_STORE_READ) {
        nt_store_close(s);
        s = NULL;
        OK(nt_store_open(p->db, NT_STORE_READ, &s, &e));
    }
    return s;
}

static void test_answers(void **state)
{
    static const struct {
        const char *sql, *text;
    } rows[] = {
        {"SELECT 1 AS a, 2.5 AS b, 'x' AS c, NULL AS d, x'41' AS e", "a|b|c|d|e\n1|2.5|x||A\n"},
        {"SELECT 1 AS a WHERE false", "a\n"},
        {" -- words\n SELECT count(*) AS n FROM trial ; /* end */ -- of it", "n\n1\n"},
        {"WITH t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT count(*) AS c "
         "FROM t",
         "c\n3\n"},
        {"SELECT value AS v FROM json_each('[4,5]')", "v\n4\n5\n"},
        {"SELECT name AS n FROM sqlite_schema WHERE name = 'trial'", "n\ntrial\n"},
        {"SELECT sum(median_ns) OVER () AS s FROM trial", "s\n7000\n"},
        {"SELECT round(sqrt(4)) AS r, lower('A') LIKE 'a' AS l", "r|l\n2|1\n"},
    };
    struct place *p = *state;
    struct nt_err e = {0};
    for (int mode = NT_STORE_READ; mode <= NT_STORE_WRITE; mode++) {
        struct nt_store *s = filled(p, (enum nt_store_mode)mode);
        for (size_t i = 0; i < NT_COUNT(rows); i++) {
            struct table t = {0};
            bool cut = true;
            OK(nt_store_query(s, rows[i].sql, NULL, 0, NULL, keep, &t, &cut, &e));
            assert_false(cut);
            assert_string_equal(t.text, rows[i].text);
        }
        nt_store_close(s);
        (void)unlink(p->db);
    }
}

static void test_arguments(void **state)
{
    struct nt_store *s = filled(*state, NT_STORE_READ);
    struct nt_err e = {0};
    struct table t = {0};
    const struct nt_value args[] = {nt_v_text("'; DROP TABLE job; --"), nt_v_int(4)};
    OK(nt_store_query(s, "SELECT ?1 AS a, ?2 AS b", args, 2, NULL, keep, &t, NULL, &e));
    assert_string_equal(t.text, "a|b\n'; DROP TABLE job; --|4\n");
    FAILS(nt_store_query(s, "SELECT ?1, ?2, ?3", args, 2, NULL, keep, &t, NULL, &e), NT_E_INVAL,
          "3 parameters, 2 values");
    nt_store_close(s);
}

/* Whatever the mode of the store, nothing but reading is possible. */
static void test_refused(void **state)
{
    static const struct {
        const char *sql, *says;
    } rows[] = {
        {"DELETE FROM trial", "only read"},
        {"UPDATE job SET state = 'done'", "only read"},
        {"INSERT INTO host (hash, name, facts) VALUES ('', '', '')", "only read"},
        {"INSERT INTO host SELECT * FROM host RETURNING id", "only read"},
        {"REPLACE INTO host (hash, name, facts) VALUES ('', '', '')", "only read"},
        {"WITH x AS (SELECT 1) DELETE FROM trial", "only read"},
        {"DROP TABLE trial", "only read"},
        {"DROP VIEW jobs", "only read"},
        {"CREATE TABLE x (y)", "only read"},
        {"CREATE TEMP TABLE x (y)", "only read"},
        {"CREATE VIEW x AS SELECT 1", "only read"},
        {"CREATE TEMP VIEW x AS SELECT 1", "only read"},
        {"CREATE TRIGGER x AFTER INSERT ON job BEGIN SELECT 1; END", "only read"},
        {"CREATE INDEX x ON job (id)", "only read"},
        {"CREATE VIRTUAL TABLE x USING fts5(y)", "only read"},
        {"ALTER TABLE job RENAME TO x", "only read"},
        {"REINDEX", "only read"},
        {"ANALYZE", "only read"},
        {"VACUUM", "only read"},
        {"VACUUM INTO '/tmp/nt-never.db'", "only read"},
        {"ATTACH '/tmp/nt-never.db' AS x", "only read"},
        {"DETACH main", "only read"},
        {"PRAGMA user_version = 7", "only read"},
        {"PRAGMA journal_mode = DELETE", "only read"},
        {"PRAGMA writable_schema = 1", "only read"},
        {"PRAGMA table_info(job)", "only read"},
        {"SELECT * FROM pragma_table_info('job')", "not authorized"},
        {"SELECT count(*) FROM pragma_database_list", ""},
        {"SELECT * FROM pragma_journal_mode", "not authorized"},
        {"SELECT * FROM dbstat", "dbstat"},
        {"SELECT sql FROM sqlite_stmt", "sqlite_stmt"},
        {"BEGIN", "only read"},
        {"COMMIT", "only read"},
        {"SAVEPOINT x", "only read"},
        {"SELECT load_extension('x')", "not authorized to use function: load_extension"},
        {"SELECT fts3_tokenizer('x')", "not authorized to use function"},
        {"SELECT randomblob(1000000000)", "not authorized to use function"},
        {"SELECT zeroblob(1000000000)", "not authorized to use function"},
        {"SELECT sqlite_compileoption_get(1)", "not authorized to use function"},
        {"SELECT last_insert_rowid()", "not authorized to use function"},
        {"SELECT readfile('/etc/passwd')", "no such function"},
        {"SELECT \"no such column\"", "no such column"},
        {"SELECT * FROM no_such", "no such table"},
        {"SELEC 1", "syntax error"},
        {"SELECT 1; SELECT 2", "one statement"},
        {"SELECT 1; DROP TABLE job", "one statement"},
        {"SELECT 1 /* */; /* x */ ; DELETE FROM job", "one statement"},
        {"", "no SQL"},
        {" ; -- nothing", "no SQL"},
        {"SELECT printf('%.*c', 1000000000, 'x')", "not authorized to use function: printf"},
        {"SELECT trim('b', 'a')", "not authorized to use function: trim"},
        {"WITH t(n, x) AS (SELECT 1, 'x' UNION ALL SELECT n + 1, x || x FROM t WHERE n < 40)"
         " SELECT max(length(x)) FROM t",
         "too large"},
    };
    struct place *p = *state;
    for (int mode = NT_STORE_READ; mode <= NT_STORE_WRITE; mode++) {
        struct nt_store *s = filled(p, (enum nt_store_mode)mode);
        for (size_t i = 0; i < NT_COUNT(rows); i++) {
            struct nt_err e = {0};
            struct table t = {0};
            int rc = nt_store_query(s, rows[i].sql, NULL, 0, NULL, keep, &t, NULL, &e);
            if (rc != -NT_E_INVAL || strstr(e.msg, rows[i].says) == NULL || t.rows != 0) {
                fail_msg("%s: %d '%s'", rows[i].sql, rc, e.msg);
            }
        }
        if (mode == NT_STORE_WRITE) { /* and the store still writes by itself */
            struct nt_err e = {0};
            OK(nt_store_add_event(s, 0, "k", "t", &e));
        }
        nt_store_close(s);
        assert_int_equal(count_of(p->db, "SELECT count(*) FROM trial"), 1);
        assert_int_equal(count_of(p->db, "SELECT count(*) FROM job WHERE state = 'new'"), 1);
        (void)unlink(p->db);
    }
    assert_int_not_equal(access("/tmp/nt-never.db", F_OK), 0);
}

#define ENDLESS "WITH t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) "

static void test_limits(void **state)
{
    struct nt_store *s = filled(*state, NT_STORE_READ);
    struct nt_err e = {0};
    struct table t = {0};
    bool cut = false;
    const struct nt_query_limits time = {.time_ns = 50000000}, rows = {.rows = 3},
                                 bytes = {.bytes = 100}, exact = {.rows = 1};
    FAILS(nt_store_query(s, ENDLESS "SELECT max(n) FROM t", NULL, 0, &time, keep, &t, NULL, &e),
          NT_E_NO, "longer than 50 ms");
    OK(nt_store_query(s, ENDLESS "SELECT n FROM t", NULL, 0, &rows, keep, &t, &cut, &e));
    assert_true(cut);
    assert_int_equal(t.rows, 3);
    t.rows = 0;
    OK(nt_store_query(s, ENDLESS "SELECT n FROM t", NULL, 0, &bytes, keep, &t, &cut, &e));
    assert_true(cut);
    assert_int_equal(t.rows, 12); /* of 8 bytes each */
    t.rows = 0;
    OK(nt_store_query(s, "SELECT 1", NULL, 0, &exact, keep, &t, &cut, &e));
    assert_false(cut);
    assert_int_equal(t.rows, 1);
    nt_store_close(s);
}

static int stop(void *data, unsigned ncols, const char *const *names, const struct nt_value *values,
                struct nt_err *err)
{
    (void)data;
    (void)ncols;
    (void)names;
    return values != NULL ? nt_fail(err, NT_E_IO, 0, "the reader is gone") : 0;
}

static void test_reader_stops(void **state)
{
    struct nt_store *s = filled(*state, NT_STORE_READ);
    struct nt_err e = {0};
    FAILS(nt_store_query(s, ENDLESS "SELECT n FROM t", NULL, 0, NULL, stop, NULL, NULL, &e),
          NT_E_IO, "gone");
    nt_store_close(s);
}

static void test_views(void **state)
{
    struct nt_store *s = filled(*state, NT_STORE_READ);
    struct nt_err e = {0};
    const char *sql = NULL;
    size_t n = 0;
    for (; nt_store_views[n].name != NULL; n++) {
        struct table t = {0};
        OK(nt_store_view_sql(nt_store_views[n].name, &sql, &e));
        OK(nt_store_query(s, sql, NULL, 0, NULL, keep, &t, NULL, &e));
        assert_true(t.ncols >= 5 && t.calls == t.rows + 1);
    }
    nt_store_close(s);
    assert_int_equal(count_of(((struct place *)*state)->db,
                              "SELECT count(*) FROM sqlite_schema WHERE type = 'view'"),
                     n);
    FAILS(nt_store_view_sql("speedup", &sql, &e), NT_E_INVAL, "did you mean 'speedups'");
    FAILS(nt_store_view_sql("x; DROP TABLE job", &sql, &e), NT_E_INVAL, "unknown view");
}

/* What failed while measured is listed, but not what a recording lacks. */
static void test_rejected(void **state)
{
    static const uint8_t statuses[] = {NT_ST_CRASHED, NT_ST_NOT_RECORDED};
    struct nt_store *s = filled(*state, NT_STORE_WRITE);
    struct nt_err e = {0};
    int64_t setting = 0, job = start_job(s, &setting);
    struct table t = {0};
    for (unsigned i = 0; i < 2; i++) {
        struct nt_store_trial x = some_trial(2 + i, setting);
        x.status = statuses[i];
        x.count = 0;
        OK(nt_store_add_trial(s, job, &x, &e));
    }
    OK(nt_store_query(s, "SELECT why, times FROM rejected", NULL, 0, NULL, keep, &t, NULL, &e));
    assert_string_equal(t.text, "why|times\ncrashed|1\n");
    nt_store_close(s);
}

/* A stranger's file: views of our names that never end, functions that must not run. */
static void test_hostile_views(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct table t = {0};
    struct nt_store *s = NULL;
    const struct nt_query_limits time = {.time_ns = 50000000};
    nt_store_close(filled(p, NT_STORE_WRITE));
    run_sql(p->db, "DROP VIEW jobs; CREATE VIEW jobs AS " ENDLESS "SELECT max(n) FROM t;"
                   "DROP VIEW best; CREATE VIEW best AS SELECT load_extension('/tmp/x.so');"
                   "DROP VIEW noise; CREATE VIEW noise AS SELECT * FROM pragma_database_list");
    OK(nt_store_open(p->db, NT_STORE_READ, &s, &e));
    FAILS(nt_store_query(s, "SELECT * FROM jobs", NULL, 0, &time, keep, &t, NULL, &e), NT_E_NO,
          "longer");
    FAILS(nt_store_query(s, "SELECT * FROM best", NULL, 0, &time, keep, &t, NULL, &e), NT_E_INVAL,
          "load_extension");
    FAILS(nt_store_query(s, "SELECT * FROM noise", NULL, 0, &time, keep, &t, NULL, &e), NT_E_INVAL,
          "");
    nt_store_close(s);
}

/* What an aggregate collects is under no limit of one value before it ends. */
static void test_memory(void **state)
{
    struct nt_store *s = filled(*state, NT_STORE_READ);
    struct nt_err e = {0};
    struct table t = {0};
    FAILS(nt_store_query(s,
                         "WITH RECURSIVE w(n, s) AS (SELECT 0, 'sixteen letters.' UNION ALL"
                         " SELECT n + 1, s || s FROM w WHERE n < 17), l AS (SELECT s FROM w WHERE"
                         " n = 17), t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t LIMIT 1000)"
                         " SELECT length(json_group_array(l.s)) FROM t, l",
                         NULL, 0, NULL, keep, &t, NULL, &e),
          NT_E_NO, "memory");
    OK(nt_store_query(s, "SELECT 1", NULL, 0, NULL, keep, &t, NULL, &e));
    nt_store_close(s);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)
    const struct CMUnitTest tests[] = {
        T(test_answers),       T(test_arguments),    T(test_refused),
        T(test_limits),        T(test_reader_stops), T(test_views),
        T(test_hostile_views), T(test_memory),       T(test_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
