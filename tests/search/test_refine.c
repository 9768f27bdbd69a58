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
    {"nothing helps", {{0, -5, -1}, {0, 1, 0}, {0, 0, -9}}, 0, -1, 0, 30, {0, 0, 0}},
    {"one helps", {{0, -5, -1}, {0, 1, 6}, {0, 0, -9}}, 0, -1, 0, 30, {0, 2, 0}},
    {"two help", {{0, 5, 3}, {0, 1, 6}, {0, 0, -9}}, 0, -1, 0, 30, {1, 2, 0}},
    {"two that spoil each other", {{0, 5, 3}, {0, 1, 6}, {0, 0, -9}}, -9, -1, 0, 30, {0, 2, 0}},
    {"three help, by a second round", {{0, 5, 3}, {0, 1, 6}, {0, 4, 0}}, 0, -1, 0, 30, {1, 2, 1}},
    {"below the hysteresis", {{0, 1.9, 0}, {0, 0, 0}, {0, 0, 0}}, 0, -1, 0, 30, {0, 0, 0}},
    {"the best one hangs", {{0, 5, 3}, {0, 1, 60}, {0, 0, -9}}, 0, 1, 2, 30, {1, 0, 0}},
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

static struct nt_refine *start(uint32_t budget, uint64_t seed)
{
    static const struct nt_refine_var vars[VARS] = {{3, 9}, {3, 5}, {3, 1}};
    struct nt_refine_config c = nt_refine_defaults;
    struct nt_refine *r = NULL;
    c.budget = budget;
    c.seed = seed;
    assert_int_equal(nt_refine_new(&c, vars, VARS, &r, NULL), 0);
    return r;
}

/* Runs to the end; every setting is asked for once, and never the one that is as is. */
static void run(struct nt_refine *r, const struct box *b, double se, struct nt_rng *rng)
{
    uint32_t setting[VARS];
    bool seen[27] = {true};
    while (nt_refine_next(r, setting)) {
        uint32_t key = setting[0] * 9 + setting[1] * 3 + setting[2];
        bool fails = b->fails_var >= 0 && setting[b->fails_var] == (uint32_t)b->fails_value;
        assert_false(seen[key]);
        seen[key] = true;
        if (fails) {
            nt_refine_fail(r);
        } else {
            nt_refine_tell(r, score_of(b, setting) + se * nt_rng_normal(rng), se);
        }
    }
}

static void test_boxes(void **state)
{
    struct nt_rng rng;
    (void)state;
    nt_rng_seed(&rng, 41);
    for (size_t i = 0; i < sizeof(boxes) / sizeof(boxes[0]); i++) {
        struct nt_refine *r = start(boxes[i].budget, 1);
        uint32_t got[VARS];
        double score;
        run(r, &boxes[i], 0.0, &rng);
        score = nt_refine_incumbent(r, got, NULL);
        if (memcmp(got, boxes[i].want, sizeof(got)) != 0) {
            fail_msg("%s: %u %u %u", boxes[i].name, got[0], got[1], got[2]);
        }
        assert_true(fabs(score - score_of(&boxes[i], got)) < 1e-12);
        assert_true(nt_refine_gangs(r) <= boxes[i].budget);
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
            nt_refine_tell(r, score_of(&boxes[2], setting), 0.0);
        }
    }
    nt_refine_free(r);
}

static void test_noise_is_not_accepted(void **state)
{
    struct nt_rng rng;
    int wrong = 0, right = 0;
    (void)state;
    nt_rng_seed(&rng, 42);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct nt_refine *r = start(12, seed);
        uint32_t got[VARS];
        double se;
        run(r, &boxes[0], 0.01, &rng);
        wrong += nt_refine_incumbent(r, got, &se) > 0.0 && score_of(&boxes[0], got) < 0.0;
        nt_refine_free(r);
        r = start(12, seed);
        run(r, &boxes[1], 0.01, &rng);
        (void)nt_refine_incumbent(r, got, &se);
        right += got[1] == 2 && se > 0.0;
        nt_refine_free(r);
    }
    if (wrong > 10 || right < 190) {
        fail_msg("seeds 1 to 200: %d harmful accepted, %d helpful", wrong, right);
    }
}

static void test_what_is_accepted(void **state)
{
    static const struct {
        double score, se;
        bool accepted;
    } rows[] = {{0.03, 0.0, true},   {0.03, 0.01, true}, {0.03, 0.02, false},
                {0.019, 0.0, false}, {NAN, 0.0, false},  {0.5, INFINITY, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_refine *r = start(1, 1);
        uint32_t setting[VARS], got[VARS];
        assert_true(nt_refine_next(r, setting));
        nt_refine_tell(r, rows[i].score, rows[i].se);
        if ((nt_refine_incumbent(r, got, NULL) > 0.0) != rows[i].accepted) {
            fail_msg("score %g, se %g", rows[i].score, rows[i].se);
        }
        nt_refine_free(r);
    }
}

static void test_hopeless(void **state)
{
    struct nt_refine *r = start(30, 1);
    uint32_t setting[VARS], again[VARS];
    (void)state;
    assert_true(nt_refine_next(r, setting));
    assert_true(nt_refine_next(r, again)); /* not answered: asked again */
    assert_memory_equal(setting, again, sizeof(setting));
    assert_true(setting[0] == 1); /* the urgent variable first */
    assert_true(nt_refine_hopeless(r, -0.05, 0.01));
    assert_false(nt_refine_hopeless(r, -0.05, 0.05));
    assert_false(nt_refine_hopeless(r, 0.015, 0.0)); /* half of a pair */
    nt_refine_tell(r, 0.10, 0.0);
    assert_true(nt_refine_next(r, setting));
    assert_false(nt_refine_hopeless(r, 0.05, 0.0));
    nt_refine_free(r);
}

static void test_undecided(void **state)
{
    static const struct {
        double score, se;
        bool undecided;
    } rows[] = {
        {0.05, 0.01, false},   /* accepted as it is */
        {0.05, 0.04, true},    /* large, but may be noise */
        {0.015, 0.004, true},  /* just below what is needed */
        {-0.02, 0.004, false}, /* hopeless */
        {NAN, 0.01, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_refine *r = start(30, 1);
        uint32_t setting[VARS];
        assert_true(nt_refine_next(r, setting));
        if (nt_refine_undecided(r, rows[i].score, rows[i].se) != rows[i].undecided) {
            fail_msg("%g +- %g", rows[i].score, rows[i].se);
        }
        nt_refine_free(r);
    }
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
        cmocka_unit_test(test_hopeless),
        cmocka_unit_test(test_undecided),
        cmocka_unit_test(test_noise_is_not_accepted),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
