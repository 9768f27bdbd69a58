#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "probes/nccl/cpu.h"

static cpu_set_t first(int n)
{
    cpu_set_t s;
    CPU_ZERO(&s);
    for (int c = 0; c < n; c++) {
        CPU_SET((size_t)c, &s);
    }
    return s;
}

static void test_candidates(void **state)
{
    static const struct {
        int cores;
        unsigned rank, world, n;
        int want[NT_CPU_TRIES];
    } rows[] = {
        {32, 0, 2, 4, {1, 5, 9, 13}},
        {32, 1, 2, 4, {3, 7, 11, 15}},
        {32, 7, 8, 2, {15, 31}},
        {16, 3, 4, 2, {7, 15}},
        {16, 7, 8, 1, {15}},
        {15, 0, 8, 0, {0}}, /* less than two for every rank */
        {2, 0, 1, 1, {1}},
        {1, 0, 1, 0, {0}},
        {2, 0, 2, 0, {0}},
        {2, 1, 0, 0, {0}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cpu_set_t s = first(rows[i].cores);
        int got[NT_CPU_TRIES] = {0};
        unsigned n = nt_cpu_candidates(&s, rows[i].rank, rows[i].world, got);
        assert_int_equal(n, rows[i].n);
        assert_memory_equal(got, rows[i].want, sizeof(got[0]) * n);
    }
}

static void test_no_core_for_two_ranks(void **state)
{
    cpu_set_t s = first(64), used;
    (void)state;
    for (unsigned world = 1; world <= 32; world++) {
        CPU_ZERO(&used);
        for (unsigned r = 0; r < world; r++) {
            int got[NT_CPU_TRIES];
            unsigned n = nt_cpu_candidates(&s, r, world, got);
            assert_true(n > 0);
            for (unsigned k = 0; k < n; k++) {
                assert_false(CPU_ISSET((size_t)got[k], &used));
                CPU_SET((size_t)got[k], &used);
            }
        }
    }
}

static void test_parse(void **state)
{
    static const struct {
        const char *list;
        int count; /* -1: refused */
    } rows[] = {
        {"0-3,8\n", 5}, {"7", 1},    {"0-0", 1},      {"0,2,4-5", 4}, {"", -1},
        {"\n", -1},     {"3-1", -1}, {"1-", -1},      {"-1", -1},     {"1,,2", -1},
        {"a", -1},      {"1 2", -1}, {"0-99999", -1}, {"1,", -1},     {"4294967296", -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cpu_set_t s;
        bool ok = nt_cpu_parse(rows[i].list, &s);
        assert_int_equal(ok ? CPU_COUNT(&s) : -1, rows[i].count);
    }
}

static void test_choose(void **state)
{
    static const struct {
        uint64_t ns[NT_CPU_TRIES];
        unsigned n, want;
    } rows[] = {
        {{150, 149, 184, 148}, 4, 0}, /* as good as any: the preferred one */
        {{184, 185, 150, 149}, 4, 2}, {{184, 150}, 2, 1}, {{100}, 1, 0}, {{0, 0}, 2, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(nt_cpu_choose(rows[i].ns, rows[i].n), rows[i].want);
    }
}

/* The last core tried is the fastest, by far. */
static int faster_each_time(void *arg, uint64_t *ret_ns, struct nt_err *err)
{
    unsigned *runs = arg;
    cpu_set_t now;
    (void)err;
    assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
    assert_int_equal(CPU_COUNT(&now), 1);
    *ret_ns = 1000U >> (*runs)++;
    return 0;
}

static int any_core(void *arg, uint64_t *ret_ns, struct nt_err *err)
{
    unsigned *runs = arg;
    (void)err;
    (*runs)++;
    *ret_ns = 1;
    return 0;
}

static int fails(void *arg, uint64_t *ret_ns, struct nt_err *err)
{
    (void)arg;
    (void)ret_ns;
    return nt_fail(err, NT_E_IO, 0, "no device");
}

static void test_pick(void **state)
{
    cpu_set_t before, after;
    struct nt_cpu c = {.ntried = 2, .core = -1};
    struct nt_err err = {0};
    unsigned runs = 0;
    int core = -1;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    while (core < CPU_SETSIZE - 1 && !CPU_ISSET((size_t)++core, &before)) {
    }
    c.free = before;
    c.tried[0] = c.tried[1] = core;
    assert_int_equal(nt_cpu_pick(&c, faster_each_time, &runs, &err), 0);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_int_equal(runs, 2);
    assert_int_equal(c.core, core);
    nt_cpu_stay(&c);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_int_equal(CPU_COUNT(&after), 1);
    nt_cpu_roam(&c);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_int_equal(nt_cpu_pick(&c, fails, NULL, &err), -NT_E_IO);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

/* A core that cannot be had is run through, since the others do, and not picked. */
static void test_core_that_is_not_there(void **state)
{
    struct nt_cpu c = {.ntried = 1, .core = -1, .tried = {CPU_SETSIZE - 1}};
    struct nt_err err = {0};
    unsigned runs = 0;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(c.free), &c.free), 0);
    if (!CPU_ISSET(CPU_SETSIZE - 1, &c.free)) {
        assert_int_equal(nt_cpu_pick(&c, any_core, &runs, &err), 0);
        assert_int_equal(runs, 1);
        assert_int_equal(c.core, -1);
    }
}

static void test_nothing_to_try(void **state)
{
    struct nt_cpu c;
    (void)state;
    nt_cpu_find(&c, 0, 2, "no such device");
    assert_int_equal(c.ntried, 0);
    assert_int_equal(c.core, -1);
    nt_cpu_stay(&c);
    nt_cpu_find(&c, 0, CPU_SETSIZE, "0000:00:00.0");
    assert_int_equal(c.ntried, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_candidates),     cmocka_unit_test(test_no_core_for_two_ranks),
        cmocka_unit_test(test_parse),          cmocka_unit_test(test_choose),
        cmocka_unit_test(test_pick),           cmocka_unit_test(test_core_that_is_not_there),
        cmocka_unit_test(test_nothing_to_try),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
