#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tuner/workload/explain.h"

#define POINT(b, t)                                                                                \
    {                                                                                              \
        .bytes = (b), .us = (t), .sd = -1, .repeats = 1                                            \
    }

static const struct nt_point nccl[] = {POINT(1024, 20), POINT(16384, 24), POINT(65536, 30),
                                       POINT(1048576, 100)};
static const struct nt_point custom[] = {POINT(1024, 8), POINT(16384, 12), POINT(65536, 26),
                                         POINT(1048576, 300)};
static const struct nt_wl_curve curves[] = {
    {.arm = "custom", .coll = NT_ALL_REDUCE, .mode = -1, .ranks = 8, .points = custom, .n = 4},
    {.arm = "nccl", .coll = NT_ALL_REDUCE, .mode = -1, .ranks = 8, .points = nccl, .n = 4},
};

static void test_interpolation(void **state)
{
    static const struct {
        uint64_t bytes;
        bool known, exact;
        double lo, mid, hi;
    } rows[] = {{16384, true, true, 21.6, 24, 26.4},
                {32768, true, false, 21.6, 26.83, 33}, /* half way in logarithms; spans both ends */
                {512, false, false, 0, 0, 0},
                {2097152, false, false, 0, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_span t = {0, 0, 0};
        bool exact = false;
        bool known = nt_curve_time(&curves[1], rows[i].bytes, &t, &exact);
        if (known != rows[i].known || exact != rows[i].exact || fabs(t.lo - rows[i].lo) > 0.01 ||
            fabs(t.mid - rows[i].mid) > 0.01 || fabs(t.hi - rows[i].hi) > 0.01) {
            fail_msg("%llu: %d %d %f %f %f", (unsigned long long)rows[i].bytes, known, exact, t.lo,
                     t.mid, t.hi);
        }
    }
}

static void test_repeats_narrow(void **state)
{
    const struct nt_point p = {.bytes = 1, .us = 100, .sd = 2, .repeats = 4};
    const struct nt_wl_curve c = {.points = &p, .n = 1};
    struct nt_span t;
    bool exact;
    (void)state;
    assert_true(nt_curve_time(&c, 1, &t, &exact));
    assert_true(fabs(t.lo - 98) < 1e-9 && fabs(t.hi - 102) < 1e-9);
}

static struct nt_wl_phase phase_of(uint64_t bytes, uint32_t count, enum nt_mode mode)
{
    return (struct nt_wl_phase){.name = "p",
                                .mode = (uint8_t)mode,
                                .ncalls = 1,
                                .calls = {{.coll = NT_ALL_REDUCE, .bytes = bytes, .count = count}}};
}

struct blame_case {
    const char *name;
    uint64_t bytes;
    uint32_t count, ranks;
    double step_ms;
    enum nt_blame blame;
    double now_ms, best_ms;
};

static const struct blame_case blames[] = {
    {"a tenth of a long step", 16384, 100, 8, 24, NT_BLAME_NOT_IT, 2.4, 1.2},
    {"a quarter", 16384, 100, 8, 9, NT_BLAME_PART, 2.4, 1.2},
    {"nearly all", 16384, 100, 8, 3, NT_BLAME_MOST, 2.4, 1.2},
    {"more than there is", 16384, 100, 8, 1, NT_BLAME_IMPOSSIBLE, 2.4, 1.2},
    {"the default is the fastest", 1048576, 10, 8, 2, NT_BLAME_PART, 1, 1},
    {"too large", 4194304, 100, 8, 24, NT_BLAME_NOT_MEASURED, 0, 0},
    {"other ranks", 16384, 100, 4, 24, NT_BLAME_NOT_MEASURED, 0, 0},
};

static void test_blame(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(blames) / sizeof(blames[0]); i++) {
        const struct blame_case *c = &blames[i];
        struct nt_wl_phase p = phase_of(c->bytes, c->count, NT_GRAPH);
        struct nt_explained e;
        const char *hints[8];
        nt_explain(&p, c->step_ms, c->ranks, curves, 2, NULL, &e);
        if (e.blame != c->blame || fabs(e.now_ms.mid - c->now_ms) > 0.01 ||
            fabs(e.best_ms - c->best_ms) > 0.01) {
            fail_msg("%s: %s, %f, %f", c->name, nt_blame_words[e.blame], e.now_ms.mid, e.best_ms);
        }
        assert_true(nt_explain_hints(&e, hints) > 0);
    }
}

/* A step in a graph is never held against times that were measured eagerly, when there are better.
 */
static void test_mode_is_preferred(void **state)
{
    const struct nt_point fast[] = {POINT(1024, 5), POINT(65536, 6)};
    const struct nt_wl_curve c[] = {{.arm = "nccl",
                                     .coll = NT_ALL_REDUCE,
                                     .mode = NT_EAGER,
                                     .ranks = 8,
                                     .points = nccl,
                                     .n = 4},
                                    {.arm = "nccl",
                                     .coll = NT_ALL_REDUCE,
                                     .mode = NT_GRAPH,
                                     .ranks = 8,
                                     .points = fast,
                                     .n = 2}};
    struct nt_wl_phase p = phase_of(1024, 100, NT_GRAPH);
    struct nt_explained e;
    (void)state;
    nt_explain(&p, 10, 8, c, 2, NULL, &e);
    assert_true(fabs(e.now_ms.mid - 0.5) < 1e-9);
    assert_false(e.other_mode);
    assert_true(fabs(e.turned_ms - 2) < 1e-9); /* without the graph */
    p.mode = NT_EAGER;
    nt_explain(&p, 10, 8, c, 2, NULL, &e);
    assert_true(fabs(e.now_ms.mid - 2) < 1e-9);
    assert_true(fabs(e.best_ms - 2) <
                1e-9); /* the graph's time is no alternative for an eager step */
}

static void test_named_arm(void **state)
{
    struct nt_wl_phase p = phase_of(16384, 100, NT_GRAPH);
    struct nt_explained e;
    (void)state;
    nt_explain(&p, 24, 8, curves, 2, "custom", &e);
    assert_true(isnan(e.turned_ms)); /* the curves name no mode */
    assert_true(fabs(e.now_ms.mid - 1.2) < 1e-9);
    nt_explain(&p, 24, 8, curves, 2, "nobody", &e);
    assert_int_equal(e.blame, NT_BLAME_NOT_MEASURED);
}

static void test_difference(void **state)
{
    struct nt_wl_phase slow = phase_of(65536, 100, NT_EAGER), fast = phase_of(16384, 100, NT_GRAPH);
    struct nt_explained a, b;
    struct nt_span d;
    (void)state;
    nt_explain(&slow, 29, 8, curves, 2, NULL, &a);
    nt_explain(&fast, 12, 8, curves, 2, NULL, &b);
    d = nt_explain_difference(&a, &b); /* 3.0 - 2.4 of 17 ms */
    assert_true(fabs(d.mid - 0.6 / 17) < 1e-6);
    assert_true(d.hi < 0.1);
    d = nt_explain_difference(&b, &a);
    assert_true(d.hi <= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interpolation), cmocka_unit_test(test_repeats_narrow),
        cmocka_unit_test(test_blame),         cmocka_unit_test(test_mode_is_preferred),
        cmocka_unit_test(test_named_arm),     cmocka_unit_test(test_difference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
