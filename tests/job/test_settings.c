/* What is believed of a process setting: the scores of whole jobs in a made-up machine. */
#include "tests/job/play.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tuner/base/rng.h"

#define THREADS  "NCCL_NTHREADS=256"
#define CHANNELS "NCCL_MIN_NCHANNELS=16"
static const char LADDER[] = "1K,8K,64K,512K,4M,32M";

/* A gang is faster or slower than others in all that it does. */
static double by_gang(const struct world_call *c)
{
    struct nt_rng r;
    nt_rng_seed(&r, nt_mix(c->step->gang, 77));
    return exp(0.03 * nt_rng_normal(&r));
}

static double nothing_helps(const struct world_call *c)
{
    return by_gang(c);
}

/* Two sizes of six gain a quarter by channels that there are not as is; all else stays as it is. */
static double channels_help(const struct world_call *c)
{
    return by_gang(c) * (c->x.channels == 16 && c->step->m.cs.bytes >= 4U << 20 ? 0.7 : 1);
}

/* As much in every call, by what no tuple shows. */
static double threads_help(const struct world_call *c)
{
    return by_gang(c) * (strstr(c->step->vars, THREADS) != NULL ? 0.85 : 1);
}

/* A block in a hundred takes three times as long. */
static double strays(const struct world_call *c)
{
    return nt_mix(c->measure, 5) % 100 == 0 ? 3 : 1;
}

static const struct row {
    const char *name, *setting;
    double (*factor)(const struct world_call *c);
    double least_se, most_se, gain;
    bool chosen;
} rows[] = {
    /* one gang scatters by 0.03: its score does, whatever it is by */
    {"an inert variable", THREADS, nothing_helps, 0.007, 0.05, 0, false},
    {"a variable that helps everywhere", THREADS, threads_help, 0.007, 0.05, 0.163, true},
    /* the same tuples are no other with the variable: their times tell what is the gang's */
    {"channels that nothing gains by", CHANNELS, nothing_helps, 0, 0.006, 0, false},
    {"channels that two sizes gain by", CHANNELS, channels_help, 0, 0.006, 0.093, true},
    {"stray blocks", THREADS, strays, 0.001, 0.03, 0, false},
};

static void test_scores(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned wrong = 0;
        for (uint64_t seed = 1; seed <= 10; seed++) {
            struct play p = {.spec = play_spec(LADDER, seed)};
            const struct nt_setting_score *s;
            world_init(&p.w, seed);
            p.w.factor = rows[i].factor;
            p.w.block_sd = p.w.gang_sd = 0.005;
            p.w.interaction_sd = 0.002;
            p.spec.pairs = 8;
            p.spec.extra_guards = false; /* other collectives pay for more channels */
            (void)snprintf(p.spec.settings[1], NT_SETTING_LEN, "%s", rows[i].setting);
            p.spec.nsettings = 2;
            play(&p);
            assert_int_equal(p.rc, 0);
            s = &p.r->settings[1];
            if (!(s->se >= rows[i].least_se && s->se <= rows[i].most_se) ||
                !(fabs(s->table_gain - rows[i].gain) < 3.5 * s->se + 0.005)) {
                fail_msg("%s, seed %llu: %.4f +- %.4f", rows[i].name, (unsigned long long)seed,
                         s->table_gain, s->se);
            }
            wrong += (strcmp(nt_plan_table_vars(p.plan), rows[i].setting) == 0) != rows[i].chosen;
            play_done(&p);
        }
        if (wrong > 1) {
            fail_msg("%s: wrong in %u of 10 jobs", rows[i].name, wrong);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
