/* When is a machine too noisy to tune? Preflights of many jobs, and whole ones. */
#include "tests/job/play.h"
#include "tuner/base/rng.h"
#include "tuner/stats/stats.h"

#include <math.h>

#define LADDER "1K,16K,128K,512K,1M,2M,8M"
enum { CLASSES = 14, JOBS = 200 };

/* How far gangs differ where a gain of 60 % can just be told. */
static double limit(const struct nt_spec *s)
{
    double of_pair =
        (log(1.6) - log(s->margin)) / nt_detectable(1, s->pairs, s->alpha / CLASSES, 0.8);
    return of_pair / sqrt(2);
}

/* Runs a job to the end of its preflight; 0 or the plan's error. */
static int preflight(double gang_sd, double (*factor)(const struct world_call *c), uint64_t seed,
                     uint64_t *ret_gangs)
{
    struct nt_spec spec = play_spec(LADDER, seed);
    struct nt_plan *plan = NULL;
    struct nt_err err = {0};
    struct world w;
    int rc = nt_plan_new(&spec, &plan, &err);

    world_init(&w, seed);
    w.null = true;
    w.gang_sd = gang_sd;
    w.block_sd = 0.01;
    w.factor = factor;
    *ret_gangs = 0;
    while (rc == 0) {
        struct nt_plan_step s;
        struct nt_plan_outcome o;
        rc = nt_plan_next(plan, &s, &err);
        if (rc != 0 || s.stage != NT_PREFLIGHT) {
            break;
        }
        *ret_gangs += s.kind == NT_DO_START;
        world_do(&w, &s, &o);
        rc = nt_plan_tell(plan, &o, &err);
    }
    nt_plan_free(plan);
    return rc;
}

/* All that one gang does is off, each size by another factor. */
static double second_gang_is_disturbed(const struct world_call *c)
{
    struct nt_rng rng;
    nt_rng_seed(&rng, c->step->cs.bytes);
    return c->step->gang == 2 ? exp(0.8 + 0.4 * nt_rng_unit(&rng)) : 1;
}

static void test_rates(void **state)
{
    static const struct {
        const char *name;
        double limits; /* gangs differ by so many times what lets 60 % be told */
        double (*factor)(const struct world_call *c);
        unsigned least, most; /* jobs that end as too noisy */
        double gangs;         /* of a preflight, at most */
    } rows[] = {
        {"quiet", 0.2, NULL, 0, 0, 3.0},
        {"quiet but for one gang", 0.2, second_gang_is_disturbed, 0, 0, 8.0},
        {"just quiet enough", 1.0, NULL, 0, 3, 8.0}, /* alpha: 1 of them */
        {"far too noisy", 4.0, NULL, JOBS - 1, JOBS, 8.0},
    };
    struct nt_spec spec = play_spec(LADDER, 1);
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned noisy = 0;
        uint64_t gangs = 0;
        for (uint64_t seed = 1; seed <= JOBS; seed++) {
            uint64_t n;
            int rc = preflight(rows[i].limits * limit(&spec), rows[i].factor, seed, &n);
            assert_true(rc == 0 || rc == -NT_E_NOISY);
            noisy += rc != 0;
            gangs += n;
        }
        if (noisy < rows[i].least || noisy > rows[i].most || (double)gangs > JOBS * rows[i].gangs) {
            fail_msg("%s: %u of %d jobs end as too noisy, %.2f gangs each", rows[i].name, noisy,
                     JOBS, (double)gangs / JOBS);
        }
    }
}

/* The job goes on, and claims nothing of nothing. */
static void test_disturbed_gang(void **state)
{
    struct play p = {.spec = play_spec(LADDER, 1)};
    (void)state;

    world_init(&p.w, 1);
    p.w.null = true;
    p.w.factor = second_gang_is_disturbed;
    play(&p);
    if (p.rc != 0) {
        fail_msg("%s", p.err.msg);
    }
    assert_false(p.r->table_present || p.r->static_present);
    play_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_disturbed_gang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
