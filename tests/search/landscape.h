/*
 * landscape - a made-up machine for tests of the search: arms with true times, and blocks drawn as
 * real gangs give them (level of the gang, interaction of arm and gang, drift, noise, stray
 * blocks).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "tuner/base/rng.h"
#include "tuner/search/race.h"

enum { MAX_ARMS = 1024, MAX_GANGS = 16 };

enum shape { SPREAD, CLUSTERED, TWO_PEAKS, ALL_EQUAL, DEFAULT_BEST, LATE_WINNER, SHAPES };
extern const char *const shape_names[SHAPES];

struct landscape {
    uint32_t arms;
    double effect[MAX_ARMS]; /* log(arm / default), the truth; [0] is 0 */
    double prior[MAX_ARMS];  /* what NCCL would have estimated */
    double block_sd, gang_sd, interaction_sd;
    double drift; /* log units over 100 blocks of a gang; negative: gets faster */
    double step;  /* log units: a jump in the middle of 40 blocks */
    double stray; /* share of blocks that are 10 times slower */
    double level[MAX_GANGS], interaction[MAX_ARMS][MAX_GANGS];
    uint32_t blocks[MAX_GANGS]; /* drawn so far */
    double cost;                /* so far, in full blocks of the default */
    struct nt_rng rng;
};

void landscape_init(struct landscape *l, enum shape shape, uint32_t arms, uint64_t seed);
/* Draws one block: log of its median. share: of a full block. */
double landscape_block(struct landscape *l, uint32_t gang, uint32_t arm, double share);
double landscape_grid_cost(const struct landscape *l); /* all arms, 4 gangs x 5 full blocks */
double landscape_gap(const struct landscape *l, uint32_t pick); /* log units above the best */

/* Config and arms as a job would give them: sds from a preflight that is off by up to 1.4. */
void landscape_config(const struct landscape *l, uint64_t seed, struct nt_race_config *c,
                      struct nt_race_arm *arms);
/* Runs a race to its end, one gang after the other. */
struct nt_race_verdict landscape_run(struct landscape *l, struct nt_race *r);
