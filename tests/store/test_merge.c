/* Merging again, merging what is older, holds less or is broken: by content, and all or nothing. */
#include "tests/store/fixture.h"
#include "tuner/base/rng.h"
#include "tuner/store/service.h"

static uint64_t mix_rows(sqlite3 *db, const char *sql, uint64_t h)
{
    sqlite3_stmt *st = NULL;

    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(st); i++) {
            const unsigned char *b = sqlite3_column_blob(st, i);
            int n = sqlite3_column_bytes(st, i);
            h = nt_mix(h, (uint64_t)n);
            for (int k = 0; k < n; k++) {
                h = nt_mix(h, b[k]);
            }
        }
    }
    assert_int_equal(sqlite3_finalize(st), SQLITE_OK);
    return h;
}

/* Of everything that a database holds. */
static uint64_t content(const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    uint64_t h = 0;

    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
                           -1, &st, NULL),
        SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW) {
        char sql[160];
        (void)snprintf(sql, sizeof(sql), "SELECT * FROM \"%s\"", sqlite3_column_text(st, 0));
        h = mix_rows(db, sql, h);
    }
    (void)sqlite3_finalize(st);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return h;
}

/* b.db: a finished job of `trials` trials with a withheld profile, an event, an import, an entry of
 * the queue. */
static void fill(const char *path, unsigned trials)
{
    struct nt_store *s = NULL;
    struct nt_err e = {0};
    struct nt_store_measurement row = {.collective = "all_reduce",
                                       .dtype = "bf16",
                                       .place = "out",
                                       .mode = "eager",
                                       .backend = "nccl",
                                       .setting = "x",
                                       .bytes = 1024,
                                       .ns = 5000,
                                       .sd_ns = NAN,
                                       .algbw_gbps = NAN,
                                       .busbw_gbps = NAN};
    const struct nt_store_import im = {
        .source = "x",
        .sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        .kind = "recording",
        .provenance = "{}",
        .setup = "y"};
    int64_t setting = 0, id = 0, job;
    bool known = false;

    OK(nt_store_open(path, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    for (unsigned i = 0; i < trials; i++) {
        struct nt_store_trial t = some_trial(2 + i, setting);
        OK(nt_store_add_trial(s, job, &t, &e));
    }
    OK(nt_store_save_profile(s, job, "{}", NULL, 0, &id, &e));
    OK(nt_store_profile_set_state(s, id, NT_PS_WITHHELD, "the driver changed", &e));
    OK(nt_store_add_event(s, job, "kind", "text", &e));
    OK(nt_store_add_import(s, &im, &row, 1, &id, &known, &e));
    OK(nt_store_job_set_state(s, job, NT_JOB_DONE, &e));
    nt_store_close(s);
    run_sql(path,
            "INSERT INTO queue (key, kind, rig, ask, priority, state, reason, cause, asked_by, "
            "attempts, not_before_ms, created_ms) VALUES (hex(randomblob(16)), 'tune', 'nccl', "
            "'{}', 0, 'running', '', '', 'a', 1, 0, 1)");
}

static struct nt_store_merged merged(const char *into, const char *from)
{
    struct nt_store *s = NULL;
    struct nt_store_merged m = {0};
    struct nt_err e = {0};

    OK(nt_store_open(into, NT_STORE_WRITE, &s, &e));
    OK(nt_store_merge(s, from, &m, &e));
    nt_store_close(s);
    return m;
}

static void other_of(const struct place *p, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/b.db", p->folder);
}

static void test_again(void **state)
{
    struct place *p = *state;
    struct nt_store_merged m;
    char b[128];
    uint64_t here, there;

    other_of(p, b, sizeof(b));
    fill(b, 3);
    m = merged(p->db, b);
    assert_true(m.jobs == 1 && m.trials == 3 && m.profiles == 1 && m.measurements == 1);
    /* A profile that no longer holds there is not handed out here; nobody asked for anything here.
     */
    assert_int_equal(count_of(p->db,
                              "SELECT count(*) FROM profiles WHERE state = 'withheld' AND why = "
                              "'the driver changed'"),
                     1);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM queue"), 0);
    here = content(p->db);
    there = content(b);
    for (unsigned i = 0; i < 3; i++) {
        m = merged(p->db, b);
        assert_true(m.jobs + m.trials + m.profiles + m.measurements + m.conflicts == 0);
    }
    assert_true(content(p->db) == here && content(b) == there);
    m = merged(b, p->db); /* and back: nothing that is not there already */
    assert_true(m.jobs + m.trials + m.profiles + m.measurements + m.conflicts == 0);
    assert_true(content(b) == there);
}

/* What was said here about a profile stays, unless it was said later there. */
static void test_profile_states(void **state)
{
    static const struct {
        const char *here, *there, *want;
    } rows[] = {
        {"DELETE FROM profile_state", "SELECT 1", "current"},
        {"UPDATE profile_state SET state = 'retired', at_ms = at_ms + 5", "SELECT 1", "retired"},
        {"SELECT 1", "UPDATE profile_state SET state = 'stale', at_ms = at_ms + 9000", "stale"},
        {"SELECT 1", "DELETE FROM profile_state", "withheld"}};
    struct place *p = *state;
    char b[128], sql[160];

    other_of(p, b, sizeof(b));
    fill(b, 1);
    for (size_t i = 0; i < NT_COUNT(rows); i++) {
        (void)merged(p->db, b);
        run_sql(p->db,
                "DELETE FROM profile_state; INSERT INTO profile_state SELECT id, 'withheld', "
                "'', 1000 FROM profile");
        run_sql(b,
                "DELETE FROM profile_state; INSERT INTO profile_state SELECT id, 'withheld', '', "
                "1000 FROM profile");
        run_sql(p->db, rows[i].here);
        run_sql(b, rows[i].there);
        (void)merged(p->db, b);
        (void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM profiles WHERE state = '%s'",
                       rows[i].want);
        if (count_of(p->db, sql) != 1) {
            fail_msg("row %zu: not %s", i, rows[i].want);
        }
    }
}

/* Rows that are missing there: what is here stays, and what is broken is refused as a whole. */
static void test_missing_rows(void **state)
{
    static const struct {
        const char *sql;  /* what became of the source */
        const char *says; /* NULL: fine, and nothing changes here */
        bool fresh;       /* into a database that does not have the job */
    } rows[] = {
        {"DELETE FROM trial WHERE seq = 3", "is damaged", false},
        {"DELETE FROM trial; DELETE FROM step WHERE kind = 3", NULL, false},
        {"DELETE FROM profile_state; DELETE FROM profile", NULL, false},
        {"DELETE FROM measurement", NULL, false},
        {"UPDATE trial SET samples = substr(samples, 1, 4), n = 1, thinned = 4", NULL, false},
        {"UPDATE job SET state = 'interrupted', finished_ms = NULL, stage = 'race'", NULL, false},
        {"PRAGMA foreign_keys = OFF; DROP TABLE verdict", "is damaged", false},
        {"PRAGMA foreign_keys = OFF; DELETE FROM gang", "is damaged", false},
        {"PRAGMA foreign_keys = OFF; DELETE FROM gang", "is damaged", true},
        {"PRAGMA foreign_keys = OFF; DELETE FROM step", "is damaged", true}};
    struct place *p = *state;
    char b[128];

    other_of(p, b, sizeof(b));
    for (size_t i = 0; i < NT_COUNT(rows); i++) {
        struct nt_store *s = NULL;
        struct nt_store_merged m = {0};
        struct nt_err e = {0};
        uint64_t before;
        int rc;
        fill(b, 4);
        OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
        if (!rows[i].fresh) {
            OK(nt_store_merge(s, b, &m, &e));
            assert_int_equal(m.trials, 4);
        }
        before = content(p->db);
        run_sql(b, rows[i].sql);
        rc = nt_store_merge(s, b, &m, &e);
        if ((rc == 0) != (rows[i].says == NULL) ||
            (rc != 0 && strstr(e.msg, rows[i].says) == NULL) || content(p->db) != before) {
            fail_msg("%s: %d '%s', %s", rows[i].sql, rc, rc != 0 ? e.msg : "",
                     content(p->db) == before ? "unchanged" : "changed");
        }
        nt_store_close(s);
        assert_int_equal(unlink(b), 0);
    }
}

/* A page of the source is damaged: said of the source, and nothing changes here. */
static void test_damaged_page(void **state)
{
    struct place *p = *state;
    struct nt_store *s = NULL;
    struct nt_store_merged m = {0};
    struct nt_err e = {0};
    char b[128], junk[4096];
    uint64_t before;
    long at;
    FILE *f;

    other_of(p, b, sizeof(b));
    fill(b, 4);
    at = (long)sizeof(junk) *
         (count_of(b, "SELECT rootpage FROM sqlite_schema WHERE name = 'trial'") - 1);
    run_sql(b, "PRAGMA wal_checkpoint(TRUNCATE)");
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    before = content(p->db);
    memset(junk, 0xa5, sizeof(junk));
    f = fopen(b, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(junk, sizeof(junk), 1, f), 1);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(nt_store_merge(s, b, &m, &e), -NT_E_DAMAGED);
    if (strstr(e.msg, b) == NULL || strstr(e.msg, p->db) != NULL || content(p->db) != before) {
        fail_msg("'%s', %s", e.msg, content(p->db) == before ? "unchanged" : "changed");
    }
    nt_store_close(s);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)
    const struct CMUnitTest tests[] = {T(test_again), T(test_profile_states), T(test_missing_rows),
                                       T(test_damaged_page)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
