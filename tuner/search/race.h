/*
 * race - which executed tuple is fastest for one case, by as few blocks as it takes.
 *
 * An arm is an executed tuple, by number; arm 0 is the default (NCCL left alone). A block is a
 * short run of timed iterations of one arm in one gang; its value is the natural log of its median
 * in ns. The race says which block to measure next (ask) and learns its value (tell).
 *
 * Model      log ns = arm + level of the gang at that time + (arm, gang) + noise. The level is
 *            followed by the gang's default blocks, so gang effects and drift cancel; what remains
 *            between gangs is the interaction, so an arm still in contention needs several gangs
 *            while a clear loser is dropped after short looks in the first. Variances start from
 *            the preflight's and learn. Stray blocks are set aside.
 * Gangs      What an arm did in few gangs is believed as far as Student's t of that few goes, so a
 *            pick has stood in several, and what may yet be better is seen in more of them. Who is
 *            out by what one gang says gets a look in the next, which is not run for that.
 * Verdicts   follow from this race's own blocks; priors and boosts set the order. Only how much
 *            gangs differ is shared between races, and what is far behind in another mode of the
 *            same case may be passed over.
 * Ownership  nt_race_new() gives *ret to the caller, who passes it to nt_race_free().
 * Errors     0 or -enum nt_code. An arm or gang out of range is a bug of the caller (nt_assert).
 * Pure       the same config, seed and calls give the same answers. O(arms) a decision.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "tuner/base/err.h"

#define NT_NO_ARM UINT32_MAX
enum { NT_RACE_MAX_GANGS = 16 }; /* numbers 0..15 within a race, gangs that died included */

struct nt_race_config {
    double margin;         /* an arm this much slower than the leader, by z_drop, is dropped */
    double z_drop;         /* normal quantile of that one-sided bound; 2.33 is 99 %: after the first
                              gang that of Student's t by the gangs behind it */
    double tie;            /* arms estimated this near to the leader are as good … */
    double home;           /* … and the default this near, when that may be chance */
    double slack;          /* enough is known when the pick cannot lose more than this … */
    double z_stop;         /* … by this one-sided bound, of Student's t likewise */
    double block_sd;       /* log units, of a full block within a gang (preflight) */
    double gang_sd;        /* log units, between gangs (preflight) */
    double interaction_sd; /* log units, per arm and gang; 0: taken from gang_sd */
    uint32_t block_samples; /* iterations of a full block */
    uint32_t look_samples;  /* iterations of a first look; at most block_samples */
    uint32_t looks;         /* blocks that an arm gets before it may be dropped */
    uint32_t default_every; /* one in so many blocks of a gang is the default's; at least 2 */
    uint32_t min_gangs;     /* that a pick must have stood in before the race is over */
    uint32_t max_gangs;     /* at most NT_RACE_MAX_GANGS */
    uint32_t max_blocks;    /* full blocks per arm and gang */
    uint32_t contenders;    /* arms that go on from the looks; half as many into the second gang, a
                               third into the third, … at least 3. In a gang the best 3 get all
                               blocks that they are worth, the others a fourth of them. */
    uint32_t room;          /* arms that nt_race_add() may add */
    double gang_blocks;     /* what this race's share of a gang's start costs, in full blocks */
    uint64_t seed;
};
extern const struct nt_race_config nt_race_defaults; /* seed and sds are the caller's to set */

struct nt_race_arm {
    double prior;      /* expected log ns or any score: smaller is tried sooner; NAN: last */
    uint32_t tie_rank; /* among tied arms the smaller wins (fewer channels) */
};

struct nt_race; /* opaque */

/* arms: n >= 1 descriptions, copied. */
NT_MUST_CHECK int nt_race_new(const struct nt_race_config *config, const struct nt_race_arm *arms,
                              uint32_t n, struct nt_race **ret, struct nt_err *err);
void nt_race_free(struct nt_race *r); /* NULL is fine */

/* One arm more, of whom nothing is known; returns its number, the next. A race that was over goes
 * on until it has been looked at. More than config.room are a bug of the caller. */
uint32_t nt_race_add(struct nt_race *r, const struct nt_race_arm *arm);

/* The arm is tried sooner: a neighbouring size or the other mode likes it. Larger is sooner. */
void nt_race_boost(struct nt_race *r, uint32_t arm, double by);
/* Another gang's start, as far as this race would pay for it, costs so many full blocks: > 0. All
 * that may be best in other gangs is measured from now on. */
void nt_race_price(struct nt_race *r, double blocks);
/* Until told otherwise only arms are measured that were not looked at yet or are pinned. */
void nt_race_rest(struct nt_race *r, bool rest);
/* The arm is not dropped and is seen in min_gangs gangs whatever its ratio: the other mode's
 * choice, of which compose must know how it does here. */
void nt_race_pin(struct nt_race *r, uint32_t arm);
/* Until told otherwise the arm gets no looks: it is far behind by what the caller knows. A pinned
 * one is measured all the same; the default is never passed over. */
void nt_race_pass(struct nt_race *r, uint32_t arm, bool pass);

struct nt_ask {
    uint32_t arm;
    uint32_t samples; /* iterations wanted: a look or a full block */
    bool look;        /* one of the first, that all arms get */
};
/* The next block for this gang, or false: nothing more is wanted of it. An ask that is not answered
 * by tell or fail (its gang died) is asked again. */
bool nt_race_next(struct nt_race *r, uint32_t gang, struct nt_ask *ret);
/* log_ns: log of the median of `samples` iterations, finite. Blocks that were not asked for are
 * welcome too. */
NT_MUST_CHECK int nt_race_tell(struct nt_race *r, uint32_t gang, uint32_t arm, double log_ns,
                               uint32_t samples, struct nt_err *err);
/* The arm, not the default, cannot be measured in this gang: it sits out, and what was told of it
 * there is forgotten. */
void nt_race_absent(struct nt_race *r, uint32_t gang, uint32_t arm);
/* The arm is out, for a reason in the caller's words (a gate, a crash); the default's failure ends
 * the race, as there is nothing to compare with. */
void nt_race_fail(struct nt_race *r, uint32_t arm, int why);
/* Once nt_race_next() is false for every gang alive: would a fresh one help? False when decided or
 * when max_gangs have given blocks. */
bool nt_race_wants_gang(struct nt_race *r);

enum nt_race_end {
    NT_RACE_RUNNING,
    NT_RACE_SEPARATED, /* all others are dropped or failed */
    NT_RACE_TIED,      /* what is left is within the tie */
    NT_RACE_LIMIT,     /* the last gang is in use or was used; it may still want blocks */
    NT_RACE_NO_BASELINE
};
struct nt_race_verdict {
    enum nt_race_end end;
    uint32_t leader; /* smallest estimate; NT_NO_ARM before the first block */
    uint32_t pick;   /* among those tied with the leader: the default, else the smallest tie rank */
    uint32_t alive;  /* arms, default included, still in contention */
    uint32_t gangs;  /* seen */
    double loss;     /* log units: upper bound (z_stop) of what the pick may lose to the best */
    double saving;   /* log units: what one gang more is expected to save of that */
};
struct nt_race_verdict nt_race_verdict(struct nt_race *r);
/* log(a / b) by all that was measured, and its standard error; NAN and INFINITY: unknown. */
double nt_race_apart(struct nt_race *r, uint32_t a, uint32_t b, double *ret_se);
/* By how much the arm is slower than the leader at least, by z_drop; log units, -INFINITY: unknown.
 */
double nt_race_behind(struct nt_race *r, uint32_t arm);

/* A dropped arm comes back when the leader that it lost to fails or turns out slower. */
enum nt_arm_state { NT_ARM_ALIVE, NT_ARM_DROPPED, NT_ARM_FAILED };
struct nt_standing {
    uint32_t arm;
    enum nt_arm_state state;
    int why;                /* of nt_race_fail */
    uint32_t blocks, gangs; /* seen; stray blocks included */
    double log_ratio, se;   /* log(arm / default); NAN when not known */
};
struct nt_standing nt_race_standing(struct nt_race *r, uint32_t arm);
/* out: one entry per arm, best first: alive, then dropped, then failed. */
void nt_race_standings(struct nt_race *r, struct nt_standing *out);

/* What the variances are believed to be now, in log units. */
void nt_race_noise(struct nt_race *r, double *ret_block_sd, double *ret_interaction_sd);

/* Races of neighbouring sizes have their interaction in common: before a gang begins, each believes
 * what it and its neighbours saw. races: by size. */
void nt_race_share(struct nt_race *const *races, uint32_t n);
