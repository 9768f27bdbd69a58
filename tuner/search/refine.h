/*
 * refine - settings of process scope, each of which costs a fresh gang: one variable at a time from
 * the incumbent, then the best pair of improving ones, again from there while it pays.
 *
 * A setting is one value index per variable; index 0 is "as is". A score is the weighted mean over
 * the cases of log(default / setting), so 0 is NCCL left alone, larger is better.
 *
 * Ownership  nt_refine_new() gives *ret to the caller, who passes it to nt_refine_free().
 * Pure       the same calls give the same answers.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "tuner/base/err.h"

enum { NT_REFINE_MAX_VARS = 32 };

struct nt_refine_config {
    double min_gain; /* a setting must beat the incumbent by this: 0.02 */
    double z;        /* … and by so many standard errors be above it: 1.64 */
    uint32_t budget; /* gangs, that is settings to ask for; 0: nothing is asked */
    uint64_t seed;   /* order among variables that the caller does not rank */
};
extern const struct nt_refine_config nt_refine_defaults;

struct nt_refine_var {
    uint32_t values;  /* in its domain, index 0 included; 1: nothing to try */
    uint32_t urgency; /* larger is tried sooner */
};

struct nt_refine; /* opaque */

NT_MUST_CHECK int nt_refine_new(const struct nt_refine_config *config,
                                const struct nt_refine_var *vars, uint32_t n,
                                struct nt_refine **ret, struct nt_err *err);
void nt_refine_free(struct nt_refine *r); /* NULL is fine */

/* setting: room for one index per variable. False: done. Asked again until told or failed. */
bool nt_refine_next(struct nt_refine *r, uint32_t *setting);
/* Answers the last ask. */
void nt_refine_tell(struct nt_refine *r, double score, double se);
/* The asked setting hung, was wrong or unavailable: it and pairs with it are out. */
void nt_refine_fail(struct nt_refine *r);
/* Half-way through the asked setting: can it still be accepted? True: stop measuring it and tell
 * what there is. */
bool nt_refine_hopeless(const struct nt_refine *r, double score, double se);
/* The asked setting may be worth it, and another gang under it could tell. */
bool nt_refine_undecided(const struct nt_refine *r, double score, double se);
/* The best accepted so far; the score of "as is" is 0. Returns its score; ret_se may be NULL. */
double nt_refine_incumbent(const struct nt_refine *r, uint32_t *setting, double *ret_se);
uint32_t nt_refine_gangs(const struct nt_refine *r); /* asked and answered */
