/*
 * land - a landscape for the benchmark of the search: a machine with a known truth that answers a
 * job's steps in process. From a topology (simulated), from a recording, or a simulated machine
 * with a twist that a search may stumble over.
 *
 * Truth    of a simulated machine is its time without noise; of a recording the median over every
 *          other of its gangs, while the search draws from the rest. What such a half of the gangs
 * can tell for sure (truth_gap) is less than what it seems to.
 * Settings of process scope, if any, are a dimension more: a choice is one of them, for all cases
 *          together, and a tuple of each case under it. The best setting is the one whose best
 *          tuples have the least mean of logs; gaps are to its best tuple of the case.
 */
#pragma once
#include "probes/model/sim.h"
#include "probes/recording/recording.h"
#include "tuner/job/plan.h"

enum twist {
    TWIST_NONE,
    TWIST_PEAKS, /* two far counts of channels are fast, those between slow */
    TWIST_CLIFF, /* the winner of small sizes is four times as slow above one size */
    TWIST_WRONG, /* a tuple is fast and gives wrong data */
    TWIST_NOISY, /* one size is six times as noisy */
    TWIST_DRIFT, /* every gang gets slower, by 15 % over its life */
    TWIST_LATE,  /* the winner is what NCCL believes to be the worst */
    TWIST_NULL,  /* nothing is faster than the default */
    TWISTS
};
extern const char *const twist_names[TWISTS];

enum { LAND_ARMS = 96, LAND_CASES = 96, LAND_LOOKS = 192, LAND_SETTINGS = 8 };

/* One tuple that can be had in a case. */
struct land_arm {
    struct nt_call call;
    struct nt_executed executed;
    double true_ns; /* +inf: broken, never to be picked */
    double gap;     /* to the best of the case: 0.01 is 1 %; under another setting than the best
                       it may be below 0 */
    double told;    /* what is sure of it, this case seen alone; of a simulated machine all */
    double sure;    /* … and all cases together */
};
struct land_case {
    struct nt_case cs;
    struct land_arm arm[LAND_ARMS]; /* [0]: the default */
    uint32_t n;
    double best_ns;
    struct { /* requests, until one of a kind runs less than it asks for */
        struct nt_call call;
        uint32_t arm;
    } look[LAND_LOOKS];
    uint32_t looks;
};

struct land_setting {
    char vars[NT_SETTING_LEN];
    struct land_case *cases; /* [ncases], owned */
    double mean_log;         /* of the best tuple of each case */
};

struct land {
    char name[96];
    enum twist twist;
    struct nt_topology *topology; /* owned; of a simulated machine */
    unsigned ranks, nodes;
    uint64_t machine;         /* of the name: equal topologies are still different machines */
    struct nt_recording *rec; /* owned; of a recording */
    struct nt_spec spec;
    struct land_setting setting[LAND_SETTINGS]; /* [0]: as is */
    uint32_t nsettings, best;                   /* best: index */
    uint32_t ncases;
    double grid_s; /* device seconds of measuring everything (design: "grid") */
    /* of the running world */
    struct nt_sim *sim;
    uint64_t seed;
};

/* settings: beside "as is" some of process scope, those recorded or a few that matter. Takes what
 * it is given, also on failure. */
NT_MUST_CHECK int land_model(struct land *l, struct nt_topology *t, unsigned ranks, unsigned nodes,
                             enum twist twist, bool settings, const char *name, struct nt_err *err);
NT_MUST_CHECK int land_recording(struct land *l, struct nt_recording *rec, bool settings,
                                 const char *name, struct nt_err *err);
void land_done(struct land *l);

/* Simulated machines scatter as eager calls of two H200 on NVLink did (scripts/bench/model), in all
 * modes; else as nt_sim_defaults. */
extern bool land_recorded_noise;
/* Another world of the same truth: other noise. */
NT_MUST_CHECK int land_seed(struct land *l, uint64_t seed, struct nt_err *err);
/* A gang of the world; plain data. */
struct land_gang {
    struct nt_sim_gang sim;
    struct nt_replay replay;
    uint64_t start_ns;
    uint32_t measures;
};
void land_start(const struct land *l, uint64_t number, const char *vars, struct land_gang *ret);
void land_cells(const struct land *l, const struct land_gang *g, const struct nt_case *c,
                struct nt_cells *ret);
/* ret->ns is the caller's. */
void land_measure(const struct land *l, struct land_gang *g, const struct nt_measure *m,
                  struct nt_result *ret);

/* Index of a setting; NONE where there is none of these variables. */
uint32_t land_setting(const struct land *l, const char *vars);
const struct land_case *land_find(const struct land *l, uint32_t setting, const struct nt_case *c);
/* The tuple of a case; NULL when the landscape does not know it. */
const struct land_arm *land_tuple(const struct land_case *c, const struct nt_executed *x);
/* pick / best - 1 of a tuple; NAN when the landscape does not know it. */
double land_gap(const struct land_case *c, const struct nt_executed *x);
