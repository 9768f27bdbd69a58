#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tuner/base/rng.h"
#include "tuner/search/refine.h"

enum { VARS = 3 };

/* Gain in percent of each value of three variables, and what variables 0 and 1 add together. */
struct box {
    const char *name;
    double gain[VARS][3];
    double together;
    int fails_var, fails_value; /* fails_var -1: none */
    uint32_t budget;
    uint32_t want[VARS];
};

static const struct box boxes[] = {
    {"nothing helps", {{0, -5, -1}, {0, 0.3, 0}, {0, 0, -9}}, 0, -1, 0, 30, {0, 0, 0}},
    {"one helps", {{0, -5, -1}, {0, 1, 6}, {0, 0, -9}}, 0, -1, 0, 30, {0, 2, 0}},
    {"two help", {{0, 5, 3}, {0, 1, 6}, {0, 0, -9}}, 0, -1, 0, 30, {1, 2, 0}},
    {"two that spoil each other", {{0, 5, 3}, {0, 1, 6}, {0, 0, -9}}, -9, -1, 0, 30, {0, 2, 0}},
    {"three help, by a second round", {{0, 5, 3}, {0, 1, 6}, {0, 4, 0}}, 0, -1, 0, 30, {1, 2, 1}},
    {"below the hysteresis", {{0, 0.4, 0}, {0, 0, 0}, {0, 0, 0}}, 0, -1, 0, 30, {0, 0, 0}},
    {"the best one hangs", {{0, 5, 3}, {0, 1, 60}, {0, 0, -9}}, 0, 1, 2, 30, {1, 1, 0}},
    {"no budget", {{0, 5, 3}, {0, 1, 6}, {0, 0, 0}}, 0, -1, 0, 0, {0, 0, 0}},
    {"budget for two singles", {{0, 5, 3}, {0, 1, 60}, {0, 0, 0}}, 0, -1, 0, 2, {1, 0, 0}},
};

static double score_of(const struct box *b, const uint32_t *setting)
{
    double sum = setting[0] != 0 && setting[1] != 0 ? b->together : 0.0;
    for (size_t i = 0; i < VARS; i++) {
        sum += b->gain[i][setting[i]];
    }
    return log1p(sum / 100.0);
}

static const struct nt_refine_var three_of_three[VARS] = {{3, 9}, {3, 5}, {3, 1}};

static struct nt_refine *start_with(const struct nt_refine_var *vars, uint32_t budget,
                                    uint64_t seed)
{
    struct nt_refine_config c = nt_refine_defaults;
    struct nt_refine *r = NULL;
    c.budget = budget;
    c.seed = seed;
    assert_int_equal(nt_refine_new(&c, vars, VARS, &r, NULL), 0);
    return r;
}

static struct nt_refine *start(uint32_t budget, uint64_t seed)
{
    return start_with(three_of_three, budget, seed);
}

/* As if by enough gangs to know the error. */
static void tell(struct nt_refine *r, double mean, double se)
{
    nt_refine_tell(r, &(struct nt_score){.mean = mean, .se = se, .df = 30, .price = 0.2});
}

/* Gangs that were asked for, of each setting. */
struct seen {
    double sum;
    uint32_t gangs;
};

/* Runs to the end; gangs scatter by sd. The setting that is as is is never asked for. Returns the
 * gangs of all. */
static uint32_t run(struct nt_refine *r, const struct box *b, double sd, struct nt_rng *rng)
{
    uint32_t setting[VARS], all = 0;
    struct seen seen[27] = {{0}};
    while (nt_refine_next(r, setting)) {
        struct seen *s = &seen[setting[0] * 9 + setting[1] * 3 + setting[2]];
        bool fails = b->fails_var >= 0 && setting[b->fails_var] == (uint32_t)b->fails_value;
        assert_true(s != &seen[0] && s->gangs < nt_refine_defaults.max_gangs);
        s->sum += sd * nt_rng_normal(rng);
        s->gangs++;
        all++;
        if (fails) {
            nt_refine_fail(r);
        } else {
            tell(r, score_of(b, setting) + s->sum / s->gangs, sd / sqrt(s->gangs));
        }
    }
    return all;
}

static void test_boxes(void **state)
{
    struct nt_rng rng;
    (void)state;
    nt_rng_seed(&rng, 41);
    for (size_t i = 0; i < sizeof(boxes) / sizeof(boxes[0]); i++) {
        struct nt_refine *r = start(boxes[i].budget, 1);
        uint32_t got[VARS], gangs;
        double score;
        /* without noise one gang of each tells */
        gangs = run(r, &boxes[i], 0.0, &rng);
        assert_int_equal(gangs, nt_refine_tried(r));
        score = nt_refine_incumbent(r, got, NULL);
        if (memcmp(got, boxes[i].want, sizeof(got)) != 0) {
            fail_msg("%s: %u %u %u", boxes[i].name, got[0], got[1], got[2]);
        }
        assert_true(fabs(score - score_of(&boxes[i], got)) < 1e-12);
        assert_true(nt_refine_tried(r) <= boxes[i].budget);
        nt_refine_free(r);
    }
}

static void test_a_failed_change_is_out_for_good(void **state)
{
    struct nt_refine *r = start(30, 1);
    uint32_t setting[VARS];
    (void)state;
    while (nt_refine_next(r, setting)) {
        if (setting[2] == 1) {
            assert_true(setting[0] == 0 && setting[1] == 0); /* once, alone */
            nt_refine_fail(r);
        } else {
            tell(r, score_of(&boxes[2], setting), 0.0);
        }
    }
    nt_refine_free(r);
}

/* What one gang leaves open gets more of them; what is clear does not. */
static void test_noise_is_not_accepted(void **state)
{
    static const struct {
        const char *name;
        int box;
        double sd; /* of a gang */
        unsigned harmful, helpful;
        uint32_t least, most; /* gangs, of 200 runs each */
    } rows[] = {{"nothing, little noise", 0, 0.002, 4, 0, 6, 8},
                {"nothing, much noise", 0, 0.012, 20, 0, 9, 20},
                {"one helps", 1, 0.01, 4, 195, 11, 24},
                {"two that spoil each other", 3, 0.012, 4, 190, 12, 26},
                {"three", 4, 0.008, 4, 175, 15, 30}};
    struct nt_rng rng;
    (void)state;
    nt_rng_seed(&rng, 42);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct box *b = &boxes[rows[i].box];
        unsigned harmful = 0, helpful = 0;
        uint32_t gangs = 0;
        for (uint64_t seed = 1; seed <= 200; seed++) {
            struct nt_refine *r = start(30, seed);
            uint32_t got[VARS];
            gangs += run(r, b, rows[i].sd, &rng);
            (void)nt_refine_incumbent(r, got, NULL);
            harmful += score_of(b, got) < -0.005;
            helpful += score_of(b, b->want) > 0.0 && score_of(b, got) > score_of(b, b->want) - 0.01;
            nt_refine_free(r);
        }
        if (harmful > rows[i].harmful || helpful < rows[i].helpful || gangs < 200 * rows[i].least ||
            gangs > 200 * rows[i].most) {
            fail_msg("%s: %u harmful, %u helpful of 200, %.1f gangs", rows[i].name, harmful,
                     helpful, gangs / 200.0);
        }
    }
}

static void test_what_is_accepted(void **state)
{
    static const struct nt_refine_var one[VARS] = {{2, 0}, {1, 0}, {1, 0}};
    static const struct {
        double mean, se, df;
        bool accepted;
    } rows[] = {{0.03, 0.0, 30, true},    {0.03, 0.01, 30, true}, {0.03, 0.02, 30, false},
                {0.03, 0.011, 2, false},  /* one gang's error is hardly known */
                {0.006, 0.002, 30, true}, /* little, for sure: a few sizes gain much */
                {0.004, 0.0, 30, false},  {NAN, 0.0, 30, false},  {0.5, 1e3, 30, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_refine *r = start_with(one, 1, 1);
        struct nt_score x = {
            .mean = rows[i].mean, .se = rows[i].se, .df = rows[i].df, .price = 1e6};
        uint32_t setting[VARS], got[VARS];
        assert_true(nt_refine_next(r, setting));
        nt_refine_tell(r, &x);
        assert_false(nt_refine_next(r, setting)); /* no other gang is worth that */
        if ((nt_refine_incumbent(r, got, NULL) > 0.0) != rows[i].accepted) {
            fail_msg("score %g, se %g, df %g", rows[i].mean, rows[i].se, rows[i].df);
        }
        nt_refine_free(r);
    }
}

/* Of which settings another gang is wanted after one of each, told so. */
static void test_more_gangs(void **state)
{
    static const struct nt_refine_var vars[VARS] = {{2, 2}, {2, 1}, {1, 0}};
    static const struct {
        const char *name;
        double mean[2], se[2], price;
        int wanted; /* variable; -1: none */
    } rows[] = {{"both far behind", {-0.05, -0.04}, {0.01, 0.01}, 0.2, -1},
                {"one may be good", {-0.05, 0.001}, {0.01, 0.01}, 0.2, 1},
                {"it is not worth that", {-0.05, 0.001}, {0.01, 0.01}, 20, -1},
                {"an inert one, well known", {-0.05, 0.0}, {0.01, 0.001}, 0.2, -1},
                {"good, or noise", {0.02, -0.05}, {0.012, 0.01}, 0.2, 0},
                {"which of two is better", {0.10, 0.098}, {0.004, 0.012}, 0.2, 1},
                {"the better one for sure", {0.10, 0.03}, {0.004, 0.004}, 0.2, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_refine *r = start_with(vars, 2, 1);
        uint32_t setting[VARS];
        int wanted = -1;
        for (int k = 0; k < 2; k++) {
            assert_true(nt_refine_next(r, setting));
            assert_true(setting[k] == 1 && setting[!k] == 0);
            nt_refine_tell(r, &(struct nt_score){.mean = rows[i].mean[k],
                                                 .se = rows[i].se[k],
                                                 .df = 10,
                                                 .price = rows[i].price});
        }
        if (nt_refine_next(r, setting)) {
            wanted = setting[1] == 1;
        }
        if (wanted != rows[i].wanted) {
            fail_msg("%s: %d", rows[i].name, wanted);
        }
        nt_refine_free(r);
    }
}

/* What further gangs say of what was found: each case is told after the search of a box is over. */
static void test_again(void **state)
{
    static const struct {
        const char *name;
        uint32_t of[VARS];
        double mean; /* NAN: it is out */
        uint32_t want[VARS];
    } rows[] = {{"it holds", {1, 2, 0}, 0.09, {1, 2, 0}},
                {"no better than one of them", {1, 2, 0}, 0.06, {0, 2, 0}},
                {"worse than nothing", {1, 2, 0}, -0.02, {0, 2, 0}},
                {"it is out", {1, 2, 0}, NAN, {0, 2, 0}},
                {"what it came from is out", {0, 2, 0}, NAN, {1, 2, 0}},
                {"what it came from is as good", {0, 2, 0}, 0.105, {0, 2, 0}}};
    struct nt_rng rng;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static const struct nt_refine_var vars[VARS] = {{2, 2}, {3, 1}, {1, 0}};
        struct nt_refine *r = start_with(vars, 30, 1);
        struct nt_score x = {.mean = rows[i].mean, .se = 0.002, .df = 30, .price = 1};
        uint32_t got[VARS];
        nt_rng_seed(&rng, i);
        (void)run(r, &boxes[2], 0.0, &rng);
        nt_refine_again(r, rows[i].of, isnan(x.mean) ? NULL : &x);
        (void)nt_refine_incumbent(r, got, NULL);
        if (memcmp(got, rows[i].want, sizeof(got)) != 0) {
            fail_msg("%s: %u %u %u", rows[i].name, got[0], got[1], got[2]);
        }
        nt_refine_free(r);
    }
}

static void test_asked_until_answered(void **state)
{
    struct nt_refine *r = start(30, 1);
    uint32_t setting[VARS], again[VARS];
    (void)state;
    assert_true(nt_refine_next(r, setting));
    assert_true(nt_refine_next(r, again));
    assert_memory_equal(setting, again, sizeof(setting));
    assert_true(setting[0] == 1); /* the urgent variable first */
    assert_int_equal(nt_refine_tried(r), 0);
    assert_true(nt_refine_incumbent(r, again, NULL) == 0.0);
    tell(r, 0.10, 0.0);
    assert_int_equal(nt_refine_tried(r), 1);
    assert_true(nt_refine_next(r, again));
    assert_true(again[0] == 2);
    nt_refine_free(r);
}

static void test_bounds(void **state)
{
    static const struct nt_refine_var one = {1, 0};
    struct nt_refine *r = NULL;
    struct nt_err err = {0};
    uint32_t setting[1] = {7};
    (void)state;
    assert_int_equal(nt_refine_new(&nt_refine_defaults, &one, NT_REFINE_MAX_VARS + 1, &r, &err),
                     -NT_E_INVAL);
    assert_int_equal(nt_refine_new(&nt_refine_defaults, &one, 1, &r, &err), 0);
    assert_false(nt_refine_next(r, setting)); /* a domain of one: nothing to try */
    assert_true(nt_refine_incumbent(r, setting, NULL) == 0.0);
    assert_int_equal(setting[0], 0);
    nt_refine_free(r);
    nt_refine_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_a_failed_change_is_out_for_good),
        cmocka_unit_test(test_what_is_accepted),
        cmocka_unit_test(test_more_gangs),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_asked_until_answered),
        cmocka_unit_test(test_noise_is_not_accepted),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
