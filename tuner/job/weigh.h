/*
 * weigh - a workload's say in a job: which sizes are raced, and what each is worth.
 *
 * A weight is the number of calls in the workload's steps; the plan makes time of it by the
 * default's own time, so that a saved microsecond counts the same everywhere. A spec without
 * weights: every case weighs the same. A mode or size without calls weighs nothing, and guards all
 * the same.
 */
#pragma once
#include "tuner/job/spec.h"
#include "tuner/workload/workload.h"

/* The job's collectives are the workload's. */
void nt_weigh_colls(struct nt_spec *s, const struct nt_workload *w);
/* Adds the workload's sizes to the ladder, rounded up to what every rank can hold. Needs ranks and
 * collectives; a workload of other ranks is NT_E_INVAL. */
NT_MUST_CHECK int nt_weigh_sizes(struct nt_spec *s, const struct nt_workload *w,
                                 struct nt_err *err);
/* After nt_spec_finish(). Each call weighs for the nearest ladder size of its collective and mode,
 * when that is within a factor of two. *ret_covered: share of the workload's calls that found one;
 * none: NT_E_INVAL. */
NT_MUST_CHECK int nt_weigh(struct nt_spec *s, const struct nt_workload *w, double *ret_covered,
                           struct nt_err *err);
/* Calls of that ladder size; 1 when the spec has no weights. */
double nt_spec_weight(const struct nt_spec *s, int coll, uint64_t bytes, int mode);
