/* world - a made-up machine that answers the plan's steps: deterministic by seed, with gang effects
 * and noise. */
#pragma once
#include "tuner/job/plan.h"

struct world {
    uint64_t seed;
    bool null; /* every call takes the default's time */
    double block_sd, gang_sd, interaction_sd;
    uint64_t clock_ns; /* time that gangs held the GPUs */
    uint64_t steps, measures;
    uint64_t hang_at;            /* measure number that hangs, 0: none */
    int wrong_algo, wrong_proto; /* wrong data from this, -1: none */
    uint64_t wrong_above;        /* … above so many bytes */
    bool wrong_in_place;         /* … only in place */
    double row_factor; /* what the delivery path makes of a table's gains: 1 = all of it arrives */
    /* scratch */
    uint32_t ns[NT_MAX_SAMPLES];
    struct nt_result result;
};

void world_init(struct world *w, uint64_t seed);
/* True time of a call under a process setting, without noise. */
double world_true_ns(const struct world *w, const struct nt_case *cs, const struct nt_call *call,
                     const char *vars);
void world_do(struct world *w, const struct nt_plan_step *s, struct nt_plan_outcome *o);
/* Runs a whole job. Returns 0 or the plan's error. */
int world_run(struct world *w, struct nt_plan *p, struct nt_err *err);
