#include "tests/search/landscape.h"

#include <math.h>

const char *const shape_names[SHAPES] = {"spread",    "clustered",    "two peaks",
                                         "all equal", "default best", "late winner"};

static double between(struct nt_rng *rng, double lo, double hi)
{
    return lo + (hi - lo) * nt_rng_unit(rng);
}

static double draw_effect(struct nt_rng *rng, enum shape shape, uint32_t arm, uint32_t arms)
{
    double x = (double)arm / (double)arms;
    switch (shape) {
    case CLUSTERED: /* four families whose members differ by some percent, as channels do */
        return 0.35 * (double)(arm % 4) - 0.3 + between(rng, 0.0, 0.12);
    case TWO_PEAKS: /* two far settings nearly as good as each other, the rest slower */
        return arm == 1 ? -0.20 : arm == arms - 1 ? -0.23 : between(rng, 0.0, 1.2) + 0.2 * x;
    case ALL_EQUAL:
        return 0.0;
    case DEFAULT_BEST:
        return between(rng, 0.02, 1.4);
    case LATE_WINNER: /* the one that the prior puts last */
        return arm == arms - 1 ? -0.15 : between(rng, -0.08, 1.4);
    case SPREAD:
    default:
        return between(rng, log(0.7), log(4.0));
    }
}

void landscape_init(struct landscape *l, enum shape shape, uint32_t arms, uint64_t seed)
{
    *l = (struct landscape){.arms = arms};
    nt_rng_seed(&l->rng, nt_mix(seed, 77));
    l->block_sd = between(&l->rng, 0.01, 0.06);
    l->gang_sd = between(&l->rng, 0.02, 0.05);
    l->interaction_sd = between(&l->rng, 0.01, 0.02);
    for (uint32_t i = 0; i < arms; i++) {
        l->effect[i] = i == 0 ? 0.0 : draw_effect(&l->rng, shape, i, arms);
        l->prior[i] = l->effect[i] + 0.3 * nt_rng_normal(&l->rng); /* the model is a guess */
        for (uint32_t g = 0; g < MAX_GANGS; g++) {
            l->interaction[i][g] = nt_rng_normal(&l->rng);
        }
    }
    if (shape == LATE_WINNER) {
        l->prior[arms - 1] = 99.0;
    }
    for (uint32_t g = 0; g < MAX_GANGS; g++) {
        l->level[g] = nt_rng_normal(&l->rng);
    }
}

double landscape_block(struct landscape *l, uint32_t gang, uint32_t arm, double share)
{
    double t = (double)l->blocks[gang]++;
    double y = 11.0 + l->effect[arm] + l->gang_sd * l->level[gang] +
               l->interaction_sd * l->interaction[arm][gang] + l->drift * t / 100.0 +
               (t >= 20.0 ? l->step : 0.0) + l->block_sd / sqrt(share) * nt_rng_normal(&l->rng);
    l->cost += share * exp(l->effect[arm]);
    return nt_rng_unit(&l->rng) < l->stray ? y + log(10.0) : y;
}

double landscape_grid_cost(const struct landscape *l)
{
    double cost = 0.0;
    for (uint32_t i = 0; i < l->arms; i++) {
        cost += 20.0 * exp(l->effect[i]);
    }
    return cost;
}

double landscape_gap(const struct landscape *l, uint32_t pick)
{
    double best = INFINITY;
    for (uint32_t i = 0; i < l->arms; i++) {
        best = fmin(best, l->effect[i]);
    }
    return l->effect[pick] - best;
}

void landscape_config(const struct landscape *l, uint64_t seed, struct nt_race_config *c,
                      struct nt_race_arm *arms)
{
    struct nt_rng rng;
    nt_rng_seed(&rng, nt_mix(seed, 78));
    *c = nt_race_defaults;
    c->seed = seed;
    c->block_sd = l->block_sd * between(&rng, 0.7, 1.4);
    c->gang_sd = l->gang_sd * between(&rng, 0.7, 1.4);
    c->gang_blocks = 40; /* starts are free here, but there are not endless gangs */
    for (uint32_t i = 0; i < l->arms; i++) {
        arms[i] = (struct nt_race_arm){.prior = l->prior[i], .tie_rank = i % 8};
    }
}

struct nt_race_verdict landscape_run(struct landscape *l, struct nt_race *r)
{
    struct nt_ask ask;
    for (uint32_t gang = 0; gang < MAX_GANGS && nt_race_wants_gang(r); gang++) {
        while (nt_race_next(r, gang, &ask)) {
            double share = (double)ask.samples / (double)nt_race_defaults.block_samples;
            double y = landscape_block(l, gang, ask.arm, share);
            nt_assert(nt_race_tell(r, gang, ask.arm, y, ask.samples, NULL) == 0);
        }
    }
    return nt_race_verdict(r);
}
