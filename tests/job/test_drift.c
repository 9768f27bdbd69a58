/* Does a machine get slower while it is measured? The rate of false alarms of made-up gangs, and
 * whole jobs on machines that do and do not. */
#include "tests/job/play.h"
#include "tuner/base/rng.h"
#include "tuner/job/drift.h"

#include <math.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ------------------------------------------------------------------ made-up gangs */

/* Gangs of `cells` cases with two blocks each; some cases are left out of some gangs. */
static void fill(struct nt_drift_log *l, enum nt_drift_kind kind, unsigned gangs, uint64_t seed,
                 double within, double between)
{
    enum { CELLS = 5 };
    struct nt_rng rng;

    nt_rng_seed(&rng, seed);
    for (unsigned g = 0; g < gangs; g++) {
        double gang = 0.03 * nt_rng_normal(&rng) + between * g / (gangs - 1);
        for (unsigned block = 0; block < 2; block++) {
            for (unsigned c = 0; c < CELLS; c++) {
                if (c == 0 || (g + c) % 3 != 0) {
                    nt_drift_add(l, kind, 100 + g, c,
                                 10 + c + gang + within * block + 0.02 * nt_rng_normal(&rng));
                }
            }
        }
    }
}

static void test_found(void **state)
{
    const struct {
        const char *name;
        enum nt_drift_kind kind;
        unsigned gangs;
        double within, between;
        bool found;
    } rows[] = {
        {"none", NT_DRIFT_WITHIN, 20, 0, 0, false},
        {"within", NT_DRIFT_WITHIN, 20, 0.08, 0, true},
        {"faster within", NT_DRIFT_WITHIN, 20, -0.08, 0, false},
        {"within too few", NT_DRIFT_WITHIN, 5, 0.08, 0, false},
        {"between does not count within", NT_DRIFT_WITHIN, 20, 0, 0.3, false},
        {"between", NT_DRIFT_OF_DEFAULT, 12, 0, 0.3, true},
        {"faster between", NT_DRIFT_OF_DEFAULT, 12, 0, -0.3, false},
        {"within does not count between", NT_DRIFT_OF_TUNED, 12, 0.08, 0, false},
        {"nothing", NT_DRIFT_OF_TUNED, 0, 0, 0, false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_drift_log l = {0};
        struct nt_est e;
        char text[240];
        fill(&l, rows[i].kind, rows[i].gangs, 3, rows[i].within, rows[i].between);
        e = nt_drift_of(&l, rows[i].kind);
        if (nt_drift_found(&e) != rows[i].found) {
            fail_msg("%s: %.3f, at least %.3f, over %zu", rows[i].name, e.mean, e.lower, e.n);
        }
        nt_drift_text(rows[i].kind, &e, text, sizeof(text));
        assert_true(strlen(text) < sizeof(text) - 1);
        for (int k = 0; k < NT_DRIFT_COUNT; k++) {
            assert_true(k == (int)rows[i].kind || nt_drift_of(&l, (enum nt_drift_kind)k).n == 0);
        }
        nt_drift_free(&l);
    }
}

/* Machines that do not drift: warned of as often as is stated, at most. Small drifts count here, so
 * that the bound alone is tried. */
static void test_false_alarms(void **state)
{
    enum { JOBS = 4000 };
    const struct {
        enum nt_drift_kind kind;
        unsigned gangs;
    } rows[] = {
        {NT_DRIFT_WITHIN, 6},      {NT_DRIFT_WITHIN, 20},     {NT_DRIFT_OF_DEFAULT, 6},
        {NT_DRIFT_OF_DEFAULT, 12}, {NT_DRIFT_OF_DEFAULT, 16},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        double most = JOBS * NT_DRIFT_ALPHA / NT_DRIFT_COUNT;
        unsigned n = 0;
        for (uint64_t seed = 1; seed <= JOBS; seed++) {
            struct nt_drift_log l = {0};
            fill(&l, rows[i].kind, rows[i].gangs, seed * 7919, 0, 0);
            n += nt_drift_of(&l, rows[i].kind).lower > 0;
            nt_drift_free(&l);
        }
        print_message("kind %d, %u gangs: %u of %d, stated %.0f\n", (int)rows[i].kind,
                      rows[i].gangs, n, JOBS, most);
        assert_true(n <= most + 3 * sqrt(most));
    }
}

/* ------------------------------------------------------------------ whole jobs */

/* 12 % slower over the confirm of a job. */
static double throttles(const struct world_call *c)
{
    return c->step->stage == NT_CONFIRM ? exp(0.01 * (double)(c->step->gang % 64) / 2) : 1;
}

static void test_jobs(void **state)
{
    const struct {
        const char *name;
        double (*factor)(const struct world_call *c);
        bool warned;
    } rows[] = {{"as ever", NULL, false}, {"throttles", throttles, true}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (uint64_t seed = 1; seed <= 4; seed++) {
            struct play p = {.spec = play_spec("64K,512K,1M,2M", seed)};
            unsigned found = 0;
            world_init(&p.w, seed);
            p.w.factor = rows[i].factor;
            play(&p);
            assert_non_null(p.r);
            for (int k = 0; k < NT_DRIFT_COUNT; k++) {
                print_message("%s: kind %d: %.3f, at least %.3f, over %zu\n", rows[i].name, k,
                              p.r->drift[k].mean, p.r->drift[k].lower, p.r->drift[k].n);
                found += nt_drift_found(&p.r->drift[k]);
            }
            assert_int_equal(found > 0, rows[i].warned);
            play_done(&p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_false_alarms),
        cmocka_unit_test(test_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
