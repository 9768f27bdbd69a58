/*
 * Every allocation fails in turn, once and then for good: the store says so, the database holds all
 * or nothing of a call, the next call works, and no memory is left. All memory of the store is
 * SQLite's.
 */
#include "tests/store/fixture.h"

static struct {
    sqlite3_mem_methods real;
    long live, calls, fail_at; /* fail_at < 0: never */
    bool for_good;
    unsigned fired;
} mem = {.fail_at = -1};

static bool fault(void)
{
    long n = mem.calls++;
    bool hit = mem.fail_at >= 0 && (mem.for_good ? n >= mem.fail_at : n == mem.fail_at);
    mem.fired += hit;
    return hit;
}
static void *mem_malloc(int n)
{
    void *p = fault() ? NULL : mem.real.xMalloc(n);
    mem.live += p != NULL;
    return p;
}
static void mem_free(void *p)
{
    mem.live -= p != NULL;
    mem.real.xFree(p);
}
static void *mem_realloc(void *p, int n)
{
    return fault() ? NULL : mem.real.xRealloc(p, n);
}

static int work(const char *path, unsigned *ret_done, struct nt_err *e)
{
    struct nt_store *s = NULL;
    struct nt_store_cursor *c = NULL;
    const struct nt_store_step *step = NULL;
    struct nt_store_setting plain = {.vars = "NCCL_X=1", .call = NT_CALL_DEFAULT};
    struct nt_store_job j = {.spec = "{}", .ranks = 4, .nodes = 1};
    struct nt_store_gang g = {.seq = 1, .number = 1, .arm = "search"};
    int64_t job = 0;
    int rc = nt_store_open(path, NT_STORE_WRITE, &s, e);
    *ret_done = 0;
    if (rc == 0 && (rc = nt_store_put_setting(s, &plain, &g.setting, e)) == 0 &&
        (rc = nt_store_job_create(s, &j, &job, e)) == 0 &&
        (rc = nt_store_add_gang(s, job, &g, e)) == 0) {
        for (uint64_t seq = 2; rc == 0 && seq < 4; seq++) {
            struct nt_store_trial t = some_trial(seq, g.setting);
            rc = nt_store_add_trial(s, job, &t, e);
            *ret_done += rc == 0;
        }
    }
    if (rc == 0) {
        rc = nt_store_steps_open(s, job, 1, &c, e);
    }
    while (rc == 0 && (rc = nt_store_steps_next(c, &step, e)) == 0 && step != NULL) {
    }
    nt_store_steps_close(c);
    if (rc != 0 && s != NULL && job != 0) { /* memory is back: the same store goes on */
        struct nt_err again = {0};
        mem.fail_at = -1;
        if (nt_store_add_event(s, job, "after", "words", &again) != 0) {
            fail_msg("the next call: %s", again.msg);
        }
    }
    nt_store_close(s);
    return rc;
}

/* fresh: from no database on; else one that is there loses nothing. `every` points apart. */
static void torture(struct place *p, bool for_good, bool fresh, long every)
{
    long point = 0;
    bool clean = false;
    if (!fresh) {
        struct nt_err e = {0};
        struct nt_store *s = NULL;
        OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
        nt_store_close(s);
    }
    for (; !clean; point += every) {
        struct nt_err e = {0};
        unsigned done = 0;
        long live = mem.live;
        char helper[128];
        int rc;
        if (fresh) {
            (void)unlink(p->db);
        } else {
            run_sql(p->db, "DELETE FROM trial; DELETE FROM gang; DELETE FROM step;"
                           "DELETE FROM event; DELETE FROM job; DELETE FROM setting;"
                           "DELETE FROM cases; DELETE FROM executed");
        }
        (void)snprintf(helper, sizeof(helper), "%s-wal", p->db);
        if (fresh) {
            (void)unlink(helper);
        }
        mem.calls = 0;
        mem.fired = 0;
        mem.for_good = for_good;
        mem.fail_at = point;
        rc = work(p->db, &done, &e);
        mem.fail_at = -1;
        clean = mem.fired == 0;
        if (mem.live != live) {
            fail_msg("point %ld: %ld allocations left", point, mem.live - live);
        }
        if (rc != 0 && (rc != -NT_E_NOMEM || e.msg[0] == '\0')) {
            fail_msg("point %ld: %d '%s'", point, rc, e.msg);
        }
        if (rc == 0 && done != 2) {
            fail_msg("point %ld: success without the work", point);
        }
        if (done > 0) {
            assert_int_equal(count_of(p->db, "SELECT count(*) FROM trial"), done);
            assert_int_equal(count_of(p->db, "SELECT count(*) FROM step"), done + 1);
        }
    }
    (void)printf("%ld points, %s, every %ld\n", point, for_good ? "for good" : "once", every);
    assert_true(point > 200);
}

/* Strides keep it quick (all points take minutes); NT_TORTURE=full leaves none out. */
static long stride(long quick)
{
    const char *how = getenv("NT_TORTURE");
    return how != NULL && strcmp(how, "full") == 0 ? 1 : quick;
}
static void test_making_a_database(void **state)
{
    torture(*state, false, true, stride(131));
    torture(*state, true, true, stride(499));
}
static void test_adding_once(void **state)
{
    torture(*state, false, false, stride(13));
}
static void test_adding_for_good(void **state)
{
    torture(*state, true, false, stride(41));
}

int main(void)
{
    sqlite3_mem_methods counting;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_making_a_database, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_adding_once, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_adding_for_good, place_make, place_remove),
    };
    (void)sqlite3_config(SQLITE_CONFIG_GETMALLOC, &mem.real);
    counting = mem.real;
    counting.xMalloc = mem_malloc;
    counting.xFree = mem_free;
    counting.xRealloc = mem_realloc;
    (void)sqlite3_config(SQLITE_CONFIG_MALLOC, &counting);
    (void)sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
