#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "tuner/base/rng.h"
#include "tuner/stats/stats.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void near(double got, double want, double within, const char *what)
{
    if (!(fabs(got - want) <= within)) {
        fail_msg("%s: %.10g, not %.10g within %g", what, got, want, within);
    }
}

static void test_order_statistics(void **state)
{
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
    uint32_t ns[] = {40, 10, 4000000000U, 20, 30};
    (void)state;
    near(nt_median(odd, 3), 3, 0, "odd");
    near(nt_median(even, 4), 2.5, 0, "even");
    near(nt_quantile(even, 4, 0.0), 1, 0, "least");
    near(nt_quantile(even, 4, 1.0), 4, 0, "most");
    near(nt_quantile(even, 4, 0.25), 1.75, 1e-12, "type 7");
    near(nt_median(one, 1), 7, 0, "one");
    near(nt_quantile_u32(ns, 5, 0.5), 30, 0, "raw");
    near(nt_quantile_u32(ns, 5, 1.0), 4e9, 0, "raw above 2^31");
    assert_true(isnan(nt_median(odd, 0)));
    assert_true(isnan(nt_mean(odd, 0)));
    near(nt_sd(even, 4), 1.2909944487, 1e-9, "sd");
    near(nt_sd(one, 1), 0, 0, "sd of one");
}

static void test_chi_square(void **state)
{
    static const struct {
        double p, df, x;
    } rows[] = {
        {0.95, 1, 3.841458820694},    {0.995, 2, 10.596634733096}, {0.99, 7, 18.475306906582},
        {0.999, 11, 31.264133620240}, {0.05, 10, 3.940299136076},  {0.5, 100, 99.334129235989},
        {0.9999, 7, 29.877503910922},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        near(nt_chi_square_quantile(rows[i].p, rows[i].df), rows[i].x, 1e-8 * rows[i].x,
             "quantile");
        near(nt_chi_square_cdf(rows[i].x, rows[i].df), rows[i].p, 1e-9, "cdf");
    }
    assert_true(isnan(nt_chi_square_quantile(0.9, 0.0)));
    near(nt_chi_square_cdf(0, 3), 0, 0, "nothing is below 0");
    /* 8 values: sqrt(7 / 18.475) at 1 % */
    near(nt_sd_at_least(2.0, 8, 0.01), 2.0 * 0.615535, 1e-5, "an sd is at least");
    near(nt_sd_at_least(2.0, 1, 0.01), 0, 0, "of one value nothing is known");
}

static void test_quantiles_of_distributions(void **state)
{
    static const struct {
        double p, df, x; /* df 0: normal */
    } rows[] = {
        {0.975, 0, 1.959963984540},
        {0.995, 0, 2.575829303549},
        {0.5, 0, 0.0},
        {1e-6, 0, -4.753424308823},
        {0.001, 0, -3.090232306168},
        {0.975, 1, 12.70620473617},
        {0.95, 2, 2.919985580354},
        {0.975, 10, 2.228138851986},
        {0.995, 11, 3.105806515539},
        {0.999, 30, 3.385184866829},
        {0.9, 5, 1.475884048824},
        {0.975, 1000, 1.962339080816},
        {0.5, 7, 0.0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        double x = rows[i].df > 0 ? nt_student_quantile(rows[i].p, rows[i].df)
                                  : nt_normal_quantile(rows[i].p);
        double p =
            rows[i].df > 0 ? nt_student_cdf(rows[i].x, rows[i].df) : nt_normal_cdf(rows[i].x);
        near(x, rows[i].x, 1e-8, "quantile");
        near(p, rows[i].p, 1e-10, "cdf");
    }
    for (double df = 0.5; df < 1e4; df *= 1.7) { /* there and back, far out too */
        for (double p = 1e-14; p < 0.5; p *= 3.0) {
            near(nt_student_cdf(nt_student_quantile(p, df), df) / p, 1.0, 1e-10, "and back");
        }
    }
    assert_true(isinf(nt_normal_quantile(1.0)));
    assert_true(isnan(nt_normal_quantile(1.5)));
    assert_true(isnan(nt_student_quantile(0.9, 0.0)));
}

static void test_estimate(void **state)
{
    static const double a[] = {5, NAN, 7, 9}, b[] = {4, 4, NAN, 6};
    static const double x[] = {1, 2, 3, 4, 5};
    struct nt_est e = nt_estimate_pairs(a, b, 4, 0.95);
    (void)state;
    assert_int_equal(e.n, 2);
    near(e.mean, 2, 1e-12, "mean of pairs");
    e = nt_estimate(x, 5, 0.95);
    near(e.lo, 3 - 2.776445105 * 0.7071067812, 1e-8, "lo");
    near(e.upper, 3 + 2.131846786 * 0.7071067812, 1e-8, "upper");
    near(e.hi - e.mean, e.mean - e.lo, 1e-12, "symmetry");
    e = nt_estimate(x, 1, 0.95);
    assert_true(e.n == 1 && isinf(e.hi) && isinf(e.lower) && e.mean == 1.0);
    e = nt_estimate(x, 0, 0.95);
    assert_true(e.n == 0 && isnan(e.mean) && isnan(e.hi));
}

/* Of 4,000 intervals at 95 % from 12 pairs, how many hold the truth? */
static void test_intervals_cover(void **state)
{
    struct nt_rng rng;
    int two = 0, one = 0, runs = 4000;
    (void)state;
    nt_rng_seed(&rng, 11);
    for (int i = 0; i < runs; i++) {
        double x[12];
        struct nt_est e;
        for (size_t k = 0; k < 12; k++) {
            x[k] = 0.3 + 0.05 * nt_rng_normal(&rng);
        }
        e = nt_estimate(x, 12, 0.95);
        two += e.lo <= 0.3 && 0.3 <= e.hi;
        one += 0.3 <= e.upper;
    }
    near((double)two / runs, 0.95, 0.012, "two-sided coverage, seed 11");
    near((double)one / runs, 0.95, 0.012, "one-sided coverage, seed 11");
}

static void test_power_is_what_happens(void **state)
{
    static const struct {
        double effect;
        size_t n;
        double alpha;
    } rows[] = {{0.02, 12, 0.05}, {0.03, 12, 0.005}, {0.05, 12, 0.005}, {0.04, 6, 0.05}};
    struct nt_rng rng;
    (void)state;
    nt_rng_seed(&rng, 12);
    for (size_t i = 0; i < COUNT(rows); i++) {
        double t = nt_student_quantile(1.0 - rows[i].alpha, (double)rows[i].n - 1.0);
        int seen = 0, runs = 4000;
        for (int k = 0; k < runs; k++) {
            double x[16];
            struct nt_est e;
            for (size_t j = 0; j < rows[i].n; j++) {
                x[j] = rows[i].effect + 0.03 * nt_rng_normal(&rng);
            }
            e = nt_estimate(x, rows[i].n, 0.95);
            seen += e.mean / e.se > t;
        }
        near((double)seen / runs, nt_power(rows[i].effect, 0.03, rows[i].n, rows[i].alpha), 0.03,
             "power, seed 12");
        near(nt_power(nt_detectable(0.03, rows[i].n, rows[i].alpha, 0.8), 0.03, rows[i].n,
                      rows[i].alpha),
             0.8, 1e-9, "detectable has its power");
    }
    assert_true(isinf(nt_detectable(0.03, 1, 0.05, 0.8)));
    near(nt_power(1.0, 0.0, 12, 0.05), 1.0, 0, "no noise");
    assert_int_equal(nt_pairs_needed(0.001, 0.5, 0.05, 0.8, 20), 0);
    assert_in_range(nt_pairs_needed(0.05, 0.03, 0.05, 0.8, 20), 3, 6);
    for (size_t max = 0; max < 40; max++) { /* the least number, whatever the limit */
        size_t n = 2;
        while (n <= max && nt_power(0.02, 0.03, n, 0.05) < 0.8) {
            n++;
        }
        assert_int_equal(nt_pairs_needed(0.02, 0.03, 0.05, 0.8, max), n <= max ? n : 0);
    }
}

static void test_noise_in_two_levels(void **state)
{
    struct nt_rng rng;
    double block = 0.0, gang = 0.0;
    int runs = 200;
    (void)state;
    nt_rng_seed(&rng, 13);
    for (int i = 0; i < runs; i++) {
        double x[60];
        uint32_t g[60];
        struct nt_noise n;
        size_t k = 0;
        for (uint32_t a = 0; a < 10; a++) {
            double level = 0.04 * nt_rng_normal(&rng);
            for (uint32_t b = 0; b < 4 + a % 3; b++, k++) {
                x[k] = 9.0 + level + 0.02 * nt_rng_normal(&rng);
                g[k] = a;
            }
        }
        x[k / 2] += 2.3; /* one block ten times slower must not count for much */
        assert_int_equal(nt_noise_fit(x, g, k, 10, &n, NULL), 0);
        assert_true(n.gangs == 10 && n.blocks < k && n.blocks >= k - 4);
        block += n.block_sd * n.block_sd / runs;
        gang += n.gang_sd * n.gang_sd / runs;
    }
    near(sqrt(block), 0.02, 0.001, "block sd, seed 13");
    near(sqrt(gang), 0.04, 0.005, "gang sd, seed 13");
}

static void test_noise_of_little(void **state)
{
    static const double x[] = {1.0, 1.0, 1.0};
    static const uint32_t g[] = {0, 0, 0};
    struct nt_noise n;
    struct nt_err err = {0};
    (void)state;
    assert_int_equal(nt_noise_fit(x, g, 3, 1, &n, &err), 0);
    assert_true(n.block_sd == 0.0 && n.gang_sd == 0.0 && n.gangs == 1);
    assert_int_equal(nt_noise_fit(x, g, 0, 1, &n, &err), -NT_E_INVAL);
    n = (struct nt_noise){.block_sd = 0.02};
    near(nt_noise_of_difference(&n, 0.01, 4, 4), sqrt(2 * 2e-4 / 4), 1e-12, "difference");
    assert_true(isinf(nt_noise_of_difference(&n, 0.01, 0, 4)));
}

static void test_drift(void **state)
{
    double x[30];
    struct nt_rng rng;
    int found = 0, false_found = 0, runs = 1000;
    (void)state;
    nt_rng_seed(&rng, 14);
    for (int i = 0; i < runs; i++) {
        for (size_t k = 0; k < 30; k++) {
            x[k] = 0.02 * nt_rng_normal(&rng);
        }
        false_found += nt_drift(x, 30, 0.95).lower > 0.0;
        for (size_t k = 0; k < 30; k++) {
            x[k] += 0.10 * (double)k / 30.0;
        }
        found += nt_drift(x, 30, 0.95).lower > 0.0;
    }
    near((double)false_found / runs, 0.05, 0.02, "drift where there is none, seed 14");
    assert_true(found > 990);
    assert_int_equal(nt_drift(x, 5, 0.95).n, 0);
    assert_true(isnan(nt_drift(x, 5, 0.95).mean));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_statistics),
        cmocka_unit_test(test_quantiles_of_distributions),
        cmocka_unit_test(test_chi_square),
        cmocka_unit_test(test_estimate),
        cmocka_unit_test(test_intervals_cover),
        cmocka_unit_test(test_power_is_what_happens),
        cmocka_unit_test(test_noise_in_two_levels),
        cmocka_unit_test(test_noise_of_little),
        cmocka_unit_test(test_drift),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
