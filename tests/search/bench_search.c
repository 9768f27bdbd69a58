/*
 * bench_search [SEEDS [ARMS]] - how near to the best, and at what share of the grid's cost: our
 * race beside exhaustive measurement, random subsets and successive halving, on made-up machines.
 * The cost of a block is its time; starting a gang is free here, so that all are compared by what
 * they measure. A pick counts as missed when it is more than 1.5 % slower than the best.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/search/landscape.h"

enum strategy { RACE, GRID, RANDOM, HALVING, STRATEGIES };
static const char *const strategy_names[STRATEGIES] = {"race", "grid", "random half", "halving"};

struct total {
    double share, gap, worst, gangs;
    unsigned missed, runs;
};

/* Time spent deciding, over all races: what a job pays beside measuring. */
static double race_s;
static unsigned long race_blocks;

static uint32_t run_race(struct landscape *l, uint64_t seed, double *ret_gangs)
{
    static struct nt_race_arm arms[MAX_ARMS];
    struct nt_race_config c;
    struct nt_race *r = NULL;
    struct nt_race_verdict v;
    struct timespec begin, end;
    landscape_config(l, seed, &c, arms);
    nt_assert(nt_race_new(&c, arms, l->arms, &r, NULL) == 0);
    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    v = landscape_run(l, r);
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    race_s += (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    for (uint32_t g = 0; g < MAX_GANGS; g++) {
        race_blocks += l->blocks[g];
    }
    *ret_gangs = v.gangs;
    nt_race_free(r);
    return v.pick;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof(*x), by_value);
    return n % 2 == 1 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

/* Of the arms in list, the least median over gangs of the median of 5 blocks less the default's. */
static uint32_t run_grid(struct landscape *l, const uint32_t *list, uint32_t n)
{
    static double value[MAX_ARMS][4], blocks[MAX_ARMS][5];
    uint32_t best = 0;
    double least = INFINITY;
    for (uint32_t g = 0; g < 4; g++) {
        for (uint32_t b = 0; b < 5; b++) {
            for (uint32_t k = 0; k < n; k++) {
                blocks[k][b] = landscape_block(l, g, list[k], 1.0);
            }
        }
        for (uint32_t k = 0; k < n; k++) {
            value[k][g] = median(blocks[k], 5);
        }
    }
    for (uint32_t g = 0; g < 4; g++) {
        double level = value[0][g];
        for (uint32_t k = 0; k < n; k++) {
            value[k][g] -= level;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        double mean = (value[k][0] + value[k][1] + value[k][2] + value[k][3]) / 4.0;
        if (mean < least) {
            least = mean;
            best = list[k];
        }
    }
    return best;
}

/* Each gang: one block of every arm left, twice the blocks for half the arms each time. */
static uint32_t run_halving(struct landscape *l, uint32_t *list, uint32_t n)
{
    static double sum[MAX_ARMS];
    uint32_t gang = 0, blocks = 2;
    for (; n > 1; gang++, blocks *= 2) {
        uint32_t keep = (n + 1) / 2;
        memset(sum, 0, sizeof(sum));
        for (uint32_t b = 0; b < blocks; b++) {
            for (uint32_t k = 0; k < n; k++) {
                sum[list[k]] += landscape_block(l, gang, list[k], 1.0);
            }
        }
        for (uint32_t i = 1; i < n; i++) { /* insertion sort by the round's mean */
            for (uint32_t k = i; k > 0 && sum[list[k]] < sum[list[k - 1]]; k--) {
                uint32_t t = list[k];
                list[k] = list[k - 1];
                list[k - 1] = t;
            }
        }
        n = keep;
    }
    return list[0];
}

static uint32_t run_strategy(struct landscape *l, enum strategy s, uint64_t seed, double *ret_gangs)
{
    static uint32_t list[MAX_ARMS];
    struct nt_rng rng;
    nt_rng_seed(&rng, seed);
    for (uint32_t i = 0; i < l->arms; i++) {
        list[i] = i;
    }
    *ret_gangs = 4.0;
    switch (s) {
    case RANDOM:
        nt_rng_shuffle(&rng, list + 1, l->arms - 1);
        return run_grid(l, list, (l->arms + 1) / 2);
    case HALVING:
        return run_halving(l, list, l->arms);
    case GRID:
        return run_grid(l, list, l->arms);
    case RACE:
    default:
        return run_race(l, seed, ret_gangs);
    }
}

static void print_total(const char *shape, const char *twist, const char *strategy,
                        const struct total *t)
{
    double n = (double)t->runs;
    printf("%-13s %-7s %-12s cost %5.1f %%  missed %5.2f %%  gap mean %5.2f %% worst %5.1f %%  "
           "gangs %.1f\n",
           shape, twist, strategy, 100.0 * t->share / n, 100.0 * (double)t->missed / n,
           100.0 * t->gap / n, 100.0 * t->worst, t->gangs / n);
}

enum twist { PLAIN, DRIFT, STRAY, TWISTS };
static const char *const twist_names[TWISTS] = {"plain", "drift", "stray"};

int main(int argc, char **argv)
{
    static struct landscape l;
    unsigned seeds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 300;
    uint32_t arms = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 20;
    if (arms < 2 || arms > MAX_ARMS || seeds == 0) {
        fprintf(stderr, "usage: bench_search [SEEDS [ARMS (2..%d)]]\n", (int)MAX_ARMS);
        return 2;
    }
    for (int shape = 0; shape < SHAPES; shape++) {
        for (int twist = 0; twist < TWISTS; twist++) {
            for (int s = 0; s < STRATEGIES; s++) {
                struct total t = {0};
                for (unsigned seed = 1; seed <= seeds; seed++) {
                    double gangs, gap;
                    landscape_init(&l, (enum shape)shape, arms, seed);
                    l.drift = twist == DRIFT ? (seed % 2 != 0 ? 0.10 : -0.10) : 0.0;
                    l.stray = twist == STRAY ? 0.01 : 0.0;
                    gap =
                        expm1(landscape_gap(&l, run_strategy(&l, (enum strategy)s, seed, &gangs)));
                    t.share += l.cost / landscape_grid_cost(&l);
                    t.gap += gap;
                    t.worst = fmax(t.worst, gap);
                    t.missed += gap > 0.015;
                    t.gangs += gangs;
                    t.runs++;
                }
                print_total(shape_names[shape], twist_names[twist], strategy_names[s], &t);
            }
        }
    }
    printf("race: %.1f us a block for deciding, %lu blocks\n", 1e6 * race_s / (double)race_blocks,
           race_blocks);
    return 0;
}
