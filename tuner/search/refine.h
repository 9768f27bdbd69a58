/*
 * refine - settings of process scope, each of which costs gangs: one variable at a time from the
 * incumbent, then the best pair of improving ones, again from there while it pays.
 *
 * A setting is one value index per variable; index 0 is "as is". A score is the weighted mean over
 * the cases of log(default / setting), so 0 is NCCL left alone, larger is better.
 *
 * Gangs      Each setting of a round gets one gang. What that leaves open gets more of them, as
 *            long as one is expected to save what it costs: what would be lost by judging wrong,
 *            by Student's t of the score's own error.
 * Ownership  nt_refine_new() gives *ret to the caller, who passes it to nt_refine_free().
 * Pure       the same calls give the same answers.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "tuner/base/err.h"

enum { NT_REFINE_MAX_VARS = 32 };

struct nt_refine_config {
    double min_gain;    /* a setting must beat the incumbent by this: 0.005 */
    double z;           /* … and be above it by this one-sided normal quantile's bound: 2.33 */
    double worth;       /* log units that a gang of price 1 must be expected to save */
    uint32_t max_gangs; /* of one setting */
    uint32_t budget;    /* settings to ask for; 0: nothing is asked */
    uint64_t seed;      /* order among variables that the caller does not rank */
};
extern const struct nt_refine_config nt_refine_defaults;

struct nt_refine_var {
    uint32_t values;  /* in its domain, index 0 included; 1: nothing to try */
    uint32_t urgency; /* larger is tried sooner */
};

struct nt_score {
    double mean, se; /* by all gangs of the setting so far; log units */
    double df;       /* degrees of freedom of the error */
    double price;    /* of another gang; the unit is that of `worth` */
};

struct nt_refine; /* opaque */

NT_MUST_CHECK int nt_refine_new(const struct nt_refine_config *config,
                                const struct nt_refine_var *vars, uint32_t n,
                                struct nt_refine **ret, struct nt_err *err);
void nt_refine_free(struct nt_refine *r); /* NULL is fine */

/* The setting that a gang is wanted of: room for one index per variable. False: done. Asked again
 * until told or failed. */
bool nt_refine_next(struct nt_refine *r, uint32_t *setting);
/* Answers the last ask: what is known of that setting now. */
void nt_refine_tell(struct nt_refine *r, const struct nt_score *score);
/* The asked setting hung, was wrong or unavailable: it and pairs with it are out. */
void nt_refine_fail(struct nt_refine *r);
/* What is known of a setting that was tried, by gangs that were not asked for; score NULL: it is
 * out. */
void nt_refine_again(struct nt_refine *r, const uint32_t *setting, const struct nt_score *score);
/* The best accepted so far: each must stand against what it was tried from, by what is known now.
 * Returns its score, 0 for "as is"; ret_se may be NULL. */
double nt_refine_incumbent(const struct nt_refine *r, uint32_t *setting, double *ret_se);
uint32_t nt_refine_tried(const struct nt_refine *r); /* settings asked for and answered */
