/* What the pairs of a confirm cost: how many blocks, how long they take, and by how much a guess of
 * that is off. */
#include "tuner/job/plan_i.h"

#include <math.h>

enum { BLOCKS = 2 };
static const double BLOCKS_NS = 12e6; /* an arm's time at one point of a pair, worth it anywhere */

/* One block of an arm, with its gate or warm-up. */
static double block_ns(enum nt_mode m, double est_ns)
{
    return est_ns * plan_inner(m, est_ns) * (plan_samples(m, est_ns) + 1) + 1e6;
}

bool confirm_once(enum check kind)
{
    return kind == CHECK_OFF || kind == CHECK_BUSY || kind == CHECK_GROUP;
}

/* Blocks an arm and pair. A pair costs its starts, a second or so, and short blocks next to nothing
 * beside that: they are repeated. So are those by which a whole row falls: beside compute and in
 * groups single blocks scatter by 10 to 20 % on a shared GPU. */
uint32_t confirm_blocks(enum check kind, enum nt_mode m, double est_ns)
{
    uint32_t n = BLOCKS;

    if (confirm_once(kind)) {
        return MOST_BLOCKS;
    }
    while (n < MOST_BLOCKS && (n + 2) * block_ns(m, est_ns) <= BLOCKS_NS) {
        n += 2; /* A B … B A */
    }
    return n;
}

double confirm_sd_of(const struct nt_plan *p, uint32_t point, enum nt_mode m, double gang_sd)
{
    double block = p->points[point].pre[m].noise.block_sd;
    uint32_t blocks = confirm_blocks(CHECK_CLASS, m, plan_default_ns(p, point, m));

    return sqrt(2 * (block * block / blocks + gang_sd * gang_sd));
}

double confirm_sd(const struct nt_plan *p, uint32_t point, enum nt_mode m)
{
    return confirm_sd_of(p, point, m, p->points[point].pre[m].gang_sd);
}

double confirm_beside_ns(enum check kind)
{
    static const double PRODUCT_NS = 20e6;

    return kind == CHECK_BUSY ? PRODUCT_NS : 0;
}

/* What an arm's blocks at one point of a pair take. */
static double blocks_ns(enum check kind, enum nt_mode m, double est_ns)
{
    return confirm_blocks(kind, m, est_ns) * (block_ns(m, est_ns) + confirm_beside_ns(kind));
}

/* Time that the confirm of a table takes, by guess, before its rows are known: what the search may
 * not use. */
uint64_t confirm_cost_ns(const struct nt_plan *p)
{
    enum { ROWS = 3, OTHERS = 3 }; /* rows as there often are; sizes of an untuned collective */
    double pair = (double)p->start_ns * 1.5;
    double mid = plan_default_ns(p, p->npoints / 2, p->modes[0]), arms = 2;

    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            /* About as much again for edges. */
            pair +=
                arms * 2 * blocks_ns(CHECK_CLASS, p->modes[k], plan_default_ns(p, i, p->modes[k]));
        }
    }
    if (p->spec.extra_guards) {
        pair += ROWS * arms * blocks_ns(CHECK_OFF, p->modes[0], mid);
    }
    if (p->spec.extra_guards && !p->spec.no_overlap) {
        pair += ROWS * arms * blocks_ns(CHECK_BUSY, p->modes[0], mid);
    }
    for (int coll = 0; coll < NT_TUNER_COLLS && p->spec.nsettings > 1; coll++) {
        pair += p->spec.extra_guards && !p->spec.colls[coll]
                    ? OTHERS * arms * blocks_ns(CHECK_OTHER, NT_EAGER, 2 * mid)
                    : 0;
    }
    if (p->spec.extra_guards && !p->spec.no_groups) {
        unsigned groups = ROWS + (p->spec.nsettings > 1);
        pair += groups * arms * blocks_ns(CHECK_GROUP, p->modes[0], 8 * mid);
    }
    return (uint64_t)(pair * p->spec.pairs);
}

/* A pair of all points, or of those alone that are looked at for longer. */
static double pair_ns(const struct nt_plan *p, bool further)
{
    double pair = (double)p->start_ns * 1.5;
    unsigned baselines = p->spec.as_found[0] != '\0' ? 2 : 1;

    for (size_t i = 0; i < p->confirm.npoints; i++) {
        const struct check_point *c = &p->confirm.points[i];
        unsigned arms = baselines + c->arms[NT_ARM_TABLE] + c->arms[NT_ARM_STATIC];
        double factor = c->kind == CHECK_GROUP ? 1.5 : nt_case_flags(&c->cs) != 0 ? 2 : 1;
        pair += !further || c->longer
                    ? arms * blocks_ns(c->kind, (enum nt_mode)c->cs.mode, factor * c->est_ns)
                    : 0;
    }
    return pair;
}

/* The same when all points are known. */
double confirm_exact_ns(const struct nt_plan *p)
{
    return pair_ns(p, false) * p->spec.pairs;
}

double confirm_further_ns(const struct nt_plan *p)
{
    return pair_ns(p, true);
}

/* How long pairs take, by what they were guessed to take. */
double confirm_pace(const struct nt_plan *p)
{
    const struct confirm *c = &p->confirm;
    double guess = c->further > 0 ? 0 : confirm_exact_ns(p) * c->pair / p->spec.pairs;

    return guess > 0 ? (double)(plan_used_ns(p) - c->begun_ns) / guess : c->pace > 0 ? c->pace : 1;
}
