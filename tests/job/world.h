/*
 * world - a made-up machine that answers the steps of a planner: deterministic by seed, with gang
 * effects and noise, and with what a test makes different about it.
 *
 * Pure: the answer to a step depends on the world, the step and the number of measures so far.
 */
#pragma once
#include "tuner/job/plan.h"

/* A measure as the machine sees it. */
struct world_call {
    const struct nt_plan_step *step;
    struct nt_call call; /* in a table arm what the served rows decide */
    struct nt_executed x;
    uint64_t measure; /* number of this measure, from 1 */
};

struct world {
    uint64_t seed;
    bool null;      /* every call takes the default's time */
    bool framework; /* the probe is the framework's: what it measures is there, the rest is not */
    double block_sd, gang_sd, interaction_sd;
    double row_factor; /* what the delivery path makes of a table's gains: 1 = all of it arrives */
    double backend_tail_share; /* the same of the calls of backends other than NCCL */
    struct nt_case other_bits; /* mode and type in which a symmetric window has other bits than
                                  NCCL; type bf16: none */
    double tail_share;         /* of a table arm's iterations that take three times as long */
    uint64_t tail_every;       /* … in one gang of so many; 0: in all */
    bool no_fp8;               /* NCCL or the device has none */
    uint64_t
        backend_beside_ns; /* what a block of theirs takes beside its calls: looks at its data */
    uint64_t product_ns;   /* what a product beside a block takes of its own */
    uint64_t hang_at;      /* measure number that hangs, 0: none */
    /* Its NCCL lets a tuner choose chunk sizes; 0: it does not. From 512 KiB on a ring's calls are
     * 40 % shorter by chunks of a fourth of this, 20 % by half of it. */
    uint32_t own_chunk;
    /* What is different on this machine; NULL: nothing. */
    double (*factor)(const struct world_call *c);                         /* times the true time */
    uint8_t (*fault)(const struct world_call *c);                         /* enum nt_status */
    uint8_t (*start)(const struct nt_plan_gang *g, uint64_t *ret_memory); /* enum nt_status */
    const struct nt_row_result *rows; /* that a table arm serves; world_run() takes the plan's */
    size_t nrows;

    uint64_t clock_ns; /* time that gangs held the GPUs */
    uint64_t steps, measures;
    struct nt_plan_step hung; /* the step of hang_at; its vars are gone */
    /* scratch */
    uint32_t ns[NT_MAX_SAMPLES];
    struct nt_result result;
};

void world_init(struct world *w, uint64_t seed);
/* True time of a call under a process setting, without noise and without `factor`. */
double world_true_ns(const struct world *w, const struct nt_case *cs, const struct nt_call *call,
                     const char *vars);
/* What a call runs under a process setting. */
void world_executed(const struct nt_case *cs, const struct nt_call *call, const char *vars,
                    struct nt_executed *x);
void world_do(struct world *w, const struct nt_plan_step *s, struct nt_plan_outcome *o);
/* Runs a whole job. Returns 0 or the plan's error. */
int world_run(struct world *w, struct nt_plan *p, struct nt_err *err);
