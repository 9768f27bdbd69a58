/*
 * fit - the race's model of its blocks (internal to search).
 *
 * log ns = level(gang, time) + effect(arm) + shift(gang) + interaction(arm, gang) + noise.
 * The level follows the default's blocks of the gang. What error the level has is common to all
 * arms of the gang: the shift, told from arms seen in several gangs. Where most of these are far
 * faster than in others, it was the default that was disturbed: they give the level. Effects are
 * relative; only differences mean anything.
 */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tuner/base/err.h"

#define FIT_NONE UINT32_MAX
enum { FIT_GANGS = 16 };

struct fit_mark { /* a block of the default */
    uint32_t pos; /* number of the block in its gang */
    double y, weight;
    double level; /* smoothed */
    double filtered, var;
    bool stray;
};

struct fit_obs { /* a block of another arm */
    double y, weight;
    double above;         /* the level; NAN: its gang has none */
    double between;       /* where between two marks, 0 … 1; NAN: not worked out */
    uint32_t gang, prev;  /* prev: the arm's block before, or FIT_NONE */
    uint32_t pos, before; /* before: the gang's marks that it follows */
};

struct fit_cell {
    double mean;   /* of the arm in the gang, less the level */
    double weight; /* full blocks in it; 0: not seen */
    double told;   /* the same, strays included */
};

struct fit_seen { /* what is used of a cell again and again */
    double mean, info;
    uint32_t gang;
};

struct fit_arm {
    uint32_t last, fastest; /* of its blocks; fastest: strays included, or FIT_NONE */
    uint32_t blocks;        /* told, strays included */
    uint32_t told;          /* gangs that it has blocks in, a bit each … */
    uint32_t seen;          /* … and those with blocks that are no strays */
    uint32_t gangs;         /* how many these are */
    uint32_t absent;        /* those that it cannot be measured in */
    double ss, df;          /* of its blocks within cells, per full block */
    double var;             /* of a full block: its own, shrunk to that of all */
    double effect, info;
    bool failed;
};

struct fit_gang {
    struct fit_mark *marks;
    size_t n_marks, cap;
    uint32_t blocks;         /* told, the default's included */
    double shift, shift_var; /* 0 while no arm tells */
    double off;              /* of its level from what the default says, by most arms; else 0 */
    double ss, df;           /* of the default's blocks around a level that stands still */
};

struct fit {
    uint32_t n_arms, n_gangs; /* n_gangs: highest number seen, plus 1 */
    struct fit_arm *arms;
    struct fit_cell *cells; /* [gang * n_arms + arm]: most arms are seen in the first gang only */
    struct fit_gang gangs[FIT_GANGS];
    struct fit_obs *obs;
    double *scratch;   /* room for all blocks */
    double *votes;     /* [gang * n_arms …]: how far off the gang is for each arm that can say */
    uint32_t *several; /* arms seen in more than one gang, ascending … */
    uint32_t n_several;
    struct fit_seen *seen;                   /* … and their cells, one arm's after the other's */
    size_t n_obs, cap, n_scratch, n_seen;    /* n_scratch, n_seen: there is room for */
    double block_var0, inter_var0, gang_var; /* beliefs from before */
    double inter_df0;                        /* what that of the interaction weighs */
    double inter_excess, inter_df;           /* seen: squares less their noise, of so many */
    double block_var, inter_var;             /* … and now */
    double shift_var_most;                   /* of all gangs */
    double stray_least;                      /* a block nearer to its arm's median is no stray */
    bool moved;                              /* a level changed: all cells are to be redone */
    uint32_t touched;                        /* else only this arm's, or FIT_NONE */
};

NT_MUST_CHECK int fit_init(struct fit *f, uint32_t n_arms, double block_sd, double gang_sd,
                           double interaction_sd, struct nt_err *err);
void fit_done(struct fit *f);
/* weight in full blocks, > 0 */
NT_MUST_CHECK int fit_add(struct fit *f, uint32_t gang, uint32_t arm, double y, double weight,
                          struct nt_err *err);
/* The arm cannot be measured in the gang: what was told of it there is forgotten. */
void fit_absent(struct fit *f, uint32_t gang, uint32_t arm);
static inline bool fit_is_absent(const struct fit *f, uint32_t gang, uint32_t arm)
{
    return (f->arms[arm].absent >> gang & 1) != 0;
}
void fit_fail(struct fit *f, uint32_t arm);
/* Another belief about the interaction, as if from df observations. */
void fit_believe(struct fit *f, double interaction_sd, double df);
/* Brings everything up to date; cheap when nothing changed. */
void fit_update(struct fit *f);
static inline const struct fit_cell *fit_cell(const struct fit *f, uint32_t arm, uint32_t gang)
{
    return &f->cells[(size_t)gang * f->n_arms + arm];
}
/* Can an arm's block in the gang be told from the default? */
bool fit_has_level(const struct fit *f, uint32_t gang);
/* How well the noise of an arm's blocks is known, in degrees of freedom. */
double fit_noise_df(const struct fit *f, uint32_t arm);
/* effect(a) - effect(b) alone; NAN when one was not seen. */
static inline double fit_apart(const struct fit *f, uint32_t a, uint32_t b)
{
    const struct fit_arm *x = &f->arms[a], *y = &f->arms[b];
    if (!(x->info > 0.0 && y->info > 0.0)) {
        return NAN;
    }
    return a == b ? 0.0 : x->effect - y->effect;
}
/* effect(a) - effect(b) with its standard error; NAN and INFINITY when one was not seen. */
double fit_difference(const struct fit *f, uint32_t a, uint32_t b, double *ret_se);
/* effect(arm) without what speaks most against it: without its slowest gang, of one gang all blocks
 * but the fastest; and its standard error by itself. Of any arm but the default; NAN and INFINITY
 * when it was not seen. */
double fit_effect_at_best(const struct fit *f, uint32_t arm, double *ret_se);
