/*
 * record - the exhaustive landscape of a rig, as a planner: every distinct executed tuple of every
 * size under every process setting, most samples where they decide.
 *
 * Gangs of all settings are alive together and take turns, so that they share what drifts. Rounds
 * come in order of worth: all tuples in the first LEAST_GANGS rounds, then only the default and the
 * leaders, at their sizes, in both placements and at the edges where their rows would end.
 *
 * A budget is kept: with a quarter of it gone, what is not explored yet is left out (the largest
 * sizes, of all collectives alike); every tuple found is measured in one gang, what leads first;
 * the next three rounds go down from the leaders as far as there is time, and a round that would
 * end too late is not begun.
 *
 * Pure like the plan. Ownership: nt_record_new() gives *ret to the caller, who passes it to
 * nt_record_free().
 */
#pragma once
#include "tuner/job/plan.h"

struct nt_record; /* opaque */

/* spec: rig, ranks, sizes, modes, settings, dtypes and places (the first raced), budget. gangs:
 * rounds in all, at least 4. first_gang: number of the first gang, so that a recording can be
 * continued. */
NT_MUST_CHECK int nt_record_new(const struct nt_spec *spec, unsigned gangs, uint64_t first_gang,
                                struct nt_record **ret, struct nt_err *err);
void nt_record_free(struct nt_record *r);
NT_MUST_CHECK int nt_record_next(struct nt_record *r, struct nt_plan_step *ret, struct nt_err *err);
NT_MUST_CHECK int nt_record_tell(struct nt_record *r, const struct nt_plan_outcome *o,
                                 struct nt_err *err);
struct nt_record_progress {
    unsigned round, rounds;
    uint64_t blocks, tuples;
    uint64_t unexplored; /* sizes, each collective and setting by itself */
    uint64_t held_ns;
};
void nt_record_progress(const struct nt_record *r, struct nt_record_progress *ret);
