#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include "tuner/base/rng.h"
#include "tuner/stats/change.h"

enum { MOST = 8, LENGTH = 60 };
static const double SD = 0.02, ALPHA = 0.01;

/* A history of log ratios: noise, a step down by `step` at `at`, a slope, outliers every tenth. */
static void make(uint64_t seed, size_t n, double step, size_t at, double slope, double outlier,
                 double *x)
{
    struct nt_rng r;
    nt_rng_seed(&r, seed);
    for (size_t i = 0; i < n; i++) {
        x[i] = 0.35 + SD * nt_rng_normal(&r) - (i >= at ? step : 0) - slope * (double)i;
        x[i] -= i % 10 == 7 ? outlier : 0;
    }
}

static size_t find(const double *x, size_t n, struct nt_change *c)
{
    size_t found = 99;
    assert_int_equal(nt_changes(x, n, ALPHA, 1, c, MOST, &found, NULL), 0);
    return found;
}

/* Of a hundred histories without a change about one may show one; outliers are none. */
static void test_none(void **state)
{
    double x[LENGTH];
    struct nt_change c[MOST];
    size_t plain = 0, outliers = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        make(seed, LENGTH, 0, 0, 0, 0, x);
        plain += find(x, LENGTH, c) > 0;
        make(seed, LENGTH, 0, 0, 0, 0.5, x);
        outliers += find(x, LENGTH, c) > 0;
    }
    assert_in_range(plain, 0, 4);
    assert_in_range(outliers, 0, 4);
}

static void test_step(void **state)
{
    static const size_t ats[] = {8, 12, 30, 51};
    double x[LENGTH];
    struct nt_change c[MOST];
    (void)state;
    for (size_t i = 0; i < sizeof(ats) / sizeof(ats[0]); i++) {
        for (uint64_t seed = 1; seed <= 20; seed++) {
            if (seed % 2 == 0 && (ats[i] < 10 || ats[i] > 50)) {
                continue; /* few values on one side, and outliers among them */
            }
            make(seed, LENGTH, 0.15, ats[i], 0, seed % 2 == 0 ? 0.5 : 0, x);
            assert_true(find(x, LENGTH, c) >= 1);
            if (seed % 2 == 1) {
                assert_in_range(c[0].at, ats[i] - 1, ats[i] + 1);
                assert_int_equal(c[0].kind, NT_CHANGE_STEP);
                assert_true(fabs(c[0].before - 0.35) < 0.02 && fabs(c[0].after - 0.20) < 0.03);
            } else {
                assert_in_range(c[0].at, ats[i] - 3, ats[i] + 3);
            }
            assert_true(c[0].p <= ALPHA);
        }
    }
}

static void test_short(void **state)
{
    /* As a schedule sees it: six good ones, then bad ones. */
    static const double x[] = {.41, .40, .42, .405, .398, .411, .02, .01, .03, .0, .015, .02};
    struct nt_change c[MOST];
    (void)state;
    assert_int_equal(find(x, 4, c), 0);
    assert_int_equal(find(x, 6, c), 0);
    assert_int_equal(find(x, 12, c), 1);
    assert_int_equal(c[0].at, 6);
}

static void test_drift(void **state)
{
    double x[LENGTH];
    struct nt_change c[MOST];
    size_t drifts = 0, n;
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        make(seed, LENGTH, 0, 0, 0.3 / LENGTH, 0, x);
        n = find(x, LENGTH, c);
        assert_true(n >= 1);
        for (size_t i = 0; i < n; i++) {
            drifts += c[i].kind == NT_CHANGE_DRIFT;
        }
    }
    assert_true(drifts >= 15);
}

static void test_there_and_back(void **state)
{
    double x[LENGTH];
    struct nt_change c[MOST];
    (void)state;
    make(3, LENGTH, 0.2, 20, 0, 0, x);
    for (size_t i = 40; i < LENGTH; i++) {
        x[i] += 0.2;
    }
    assert_int_equal(find(x, LENGTH, c), 2);
    assert_int_equal(c[0].at, 20);
    assert_int_equal(c[1].at, 40);
    assert_true(c[1].after > c[1].before);
}

static void test_same_twice_and_bad(void **state)
{
    double x[LENGTH];
    struct nt_change a[MOST], b[MOST];
    struct nt_err err;
    size_t n = 0;
    (void)state;
    make(9, LENGTH, 0.05, 25, 0, 0.2, x);
    n = find(x, LENGTH, a);
    assert_int_equal(find(x, LENGTH, b), n);
    assert_memory_equal(a, b, n * sizeof(a[0]));
    for (size_t i = 0; i < LENGTH; i++) {
        x[i] = 1;
    }
    assert_int_equal(find(x, LENGTH, a), 0); /* all equal */
    assert_int_equal(find(x, 0, a), 0);
    x[3] = NAN;
    assert_int_equal(nt_changes(x, LENGTH, ALPHA, 1, a, MOST, &n, &err), -NT_E_INVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),           cmocka_unit_test(test_step),
        cmocka_unit_test(test_short),          cmocka_unit_test(test_drift),
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_same_twice_and_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
