#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "tuner/base/rng.h"
#include "tuner/stats/stats.h"

static void test_by_hand(void **state)
{
    /* one class of 4 pairs: the sum reaches 4 + 3 + 2 + 1 by 1 flip in 16, 4 + 3 + 2 - 1 by 2 */
    static const double all[] = {4, 3, 2, 1}, but_one[] = {4, 3, 2, -1}, down[] = {-1, -2, -3, -4};
    static const double none[] = {NAN, NAN, NAN, NAN}, zero[] = {0, 0, 0, 0};
    static const double some[] = {1, NAN, 1, 1};
    static const struct {
        const double *x;
        double p;
    } rows[] = {{all, 1.0 / 16}, {but_one, 2.0 / 16}, {down, 1.0},
                {none, 1.0},     {zero, 1.0},         {some, 2.0 / 16}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double p = -1.0;
        assert_int_equal(nt_maxt(rows[i].x, 1, 4, 1, &p, NULL), 0);
        if (fabs(p - rows[i].p) > 1e-12) {
            fail_msg("row %zu: p %g, not %g", i, p, rows[i].p);
        }
    }
}

/* The definition, flip by flip and without order statistics kept between flips. */
static void by_definition(const double *x, size_t classes, size_t pairs, double *p)
{
    double observed[8], stat[8], root[8];
    for (size_t c = 0; c < classes; c++) {
        double squares = 0.0;
        observed[c] = 0.0;
        for (size_t i = 0; i < pairs; i++) {
            squares += x[c * pairs + i] * x[c * pairs + i];
            observed[c] += x[c * pairs + i];
        }
        root[c] = sqrt(squares);
        observed[c] /= root[c];
    }
    for (size_t c = 0; c < classes; c++) {
        p[c] = 0.0;
        for (size_t d = 0; d < classes; d++) { /* step d: those not above d's observed value */
            double count = 0.0;
            if (observed[d] < observed[c]) {
                continue;
            }
            for (unsigned flips = 0; flips < 1U << pairs; flips++) {
                double max = -INFINITY;
                for (size_t e = 0; e < classes; e++) {
                    stat[e] = 0.0;
                    for (size_t i = 0; i < pairs; i++) {
                        stat[e] += (flips >> i & 1 ? -1.0 : 1.0) * x[e * pairs + i] / root[e];
                    }
                    max = observed[e] <= observed[d] ? fmax(max, stat[e]) : max;
                }
                count += max >= observed[d] - 1e-9;
            }
            p[c] = fmax(p[c], count / (double)(1U << pairs));
        }
    }
}

static void test_against_the_definition(void **state)
{
    struct nt_rng rng;
    (void)state;
    nt_rng_seed(&rng, 21);
    for (int run = 0; run < 20; run++) {
        double x[5 * 7], got[5], want[5];
        for (size_t i = 0; i < 35; i++) {
            size_t class_of = i / 7;
            x[i] = nt_rng_normal(&rng) + (double)class_of * 0.4;
        }
        assert_int_equal(nt_maxt(x, 5, 7, 0, got, NULL), 0);
        by_definition(x, 5, 7, want);
        for (size_t c = 0; c < 5; c++) {
            if (fabs(got[c] - want[c]) > 1e-12) {
                fail_msg("seed 21 run %d class %zu: %g, not %g", run, c, got[c], want[c]);
            }
        }
    }
}

/* 10 classes that share their pairs' noise, `real` of them with an effect; one value missing. */
static void draw(struct nt_rng *rng, double *x, size_t real, double effect)
{
    for (size_t i = 0; i < 10; i++) {
        double common = 0.02 * nt_rng_normal(rng);
        for (size_t c = 0; c < 10; c++) {
            x[c * 10 + i] = common + 0.03 * nt_rng_normal(rng) + (c < real ? effect : 0.0);
        }
    }
    x[9 * 10 + 3] = NAN;
}

static void test_error_of_the_family(void **state)
{
    struct nt_rng rng;
    int runs = 600, none = 0, partly = 0, found = 0;
    (void)state;
    nt_rng_seed(&rng, 22);
    for (int run = 0; run < runs; run++) {
        double x[100], p[10];
        bool any = false, any_of_rest = false;
        draw(&rng, x, 0, 0.0);
        assert_int_equal(nt_maxt(x, 10, 10, 0, p, NULL), 0);
        for (size_t c = 0; c < 10; c++) {
            any = any || p[c] <= 0.05;
        }
        draw(&rng, x, 4, 0.06);
        assert_int_equal(nt_maxt(x, 10, 10, 0, p, NULL), 0);
        for (size_t c = 0; c < 10; c++) {
            any_of_rest = any_of_rest || (c >= 4 && p[c] <= 0.05);
            found += c < 4 && p[c] <= 0.05;
        }
        none += any;
        partly += any_of_rest;
    }
    /* binomial, 600 runs at 5 %: 46 is 3 sd above 30 */
    if (none > 46 || partly > 46 || found < 4 * runs * 8 / 10) {
        fail_msg("seed 22: %d and %d false families of %d, %d of %d found", none, partly, runs,
                 found, 4 * runs);
    }
}

static void test_random_flips_agree(void **state)
{
    struct nt_rng rng;
    double x[2 * 17], exact[2], drawn[2], again[2];
    (void)state;
    nt_rng_seed(&rng, 23);
    for (size_t i = 0; i < 34; i++) {
        x[i] = nt_rng_normal(&rng) + 0.4;
    }
    x[16] = x[33] = NAN; /* the 17th pair is empty, so 16 give the exact answer */
    assert_int_equal(nt_maxt(x, 2, 17, 5, drawn, NULL), 0);
    assert_int_equal(nt_maxt(x, 2, 17, 5, again, NULL), 0);
    for (size_t i = 16; i < 32; i++) {
        x[i] = x[i + 1];
    }
    assert_int_equal(nt_maxt(x, 2, 16, 5, exact, NULL), 0);
    for (size_t c = 0; c < 2; c++) {
        assert_true(drawn[c] == again[c]);
        assert_true(fabs(drawn[c] - exact[c]) < 0.01);
    }
}

static void test_bounds(void **state)
{
    struct nt_err err = {0};
    double x = 1.0, p = -1.0;
    (void)state;
    assert_int_equal(nt_maxt(&x, 0, 1, 0, &p, &err), -NT_E_INVAL);
    assert_int_equal(nt_maxt(&x, 1, 0, 0, &p, &err), -NT_E_INVAL);
    assert_int_equal(nt_maxt(&x, 1, 64, 0, &p, &err), -NT_E_INVAL);
    assert_true(p == -1.0);
    assert_true(nt_maxt_least_p(12) == 1.0 / 4096);
    assert_true(nt_maxt_least_p(30) == 1.0 / 65536);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_against_the_definition),
        cmocka_unit_test(test_error_of_the_family),
        cmocka_unit_test(test_random_flips_agree),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
