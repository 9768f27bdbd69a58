/*
 * drift - did a machine get slower while a job measured it (throttling)? Three questions, each
 * answered by values that are independent of each other when nothing drifts:
 *
 * within    search gangs: of each case, later blocks of the default against its first ones in the
 *           same gang; a value a gang, the median over its cases.
 * default,  confirm: gangs in order of time, the last third against the first, by what a gang is
 * tuned     slower than others at the same check points.
 *
 * A drift is found when the one-sided bound of NT_DRIFT_ALPHA, shared by the three, lies above 0
 * and the drift is NT_DRIFT_LEAST at least: a job on a machine that does not drift warns with a
 * chance of at most NT_DRIFT_ALPHA. Fewer than 6 gangs say nothing. The default alone is looked at
 * in the search: an arm that a race drops ends with a block that was slow by chance.
 *
 * Units      natural logarithms; positive: slower later.
 * Pure       no clock, no I/O. Memory that cannot be had: no drift is found.
 */
#pragma once
#include <stdbool.h>
#include "tuner/stats/stats.h"

#define NT_DRIFT_ALPHA 0.01
#define NT_DRIFT_LEAST 0.02

enum nt_drift_kind { NT_DRIFT_WITHIN, NT_DRIFT_OF_DEFAULT, NT_DRIFT_OF_TUNED, NT_DRIFT_COUNT };

struct nt_drift_block; /* private */
struct nt_drift_log {
    struct nt_drift_block *v;
    size_t n, cap;
};

/* Blocks in order of time; `what` tells cases (and whatever else makes times differ) apart. */
void nt_drift_add(struct nt_drift_log *l, enum nt_drift_kind kind, uint64_t gang, uint64_t what,
                  double log_ns);
void nt_drift_free(struct nt_drift_log *l);
/* The estimate over gangs, its lower bound at the level above; n is 0 when too few say anything. */
struct nt_est nt_drift_of(const struct nt_drift_log *l, enum nt_drift_kind kind);
bool nt_drift_found(const struct nt_est *e);
/* One line for whoever reads the profile. */
void nt_drift_text(enum nt_drift_kind kind, const struct nt_est *e, char *out, size_t size);
