/*
 * change - where a history of values changed: binary segmentation with a permutation test of the
 * largest CUSUM. The test is made on ranks, so that single outliers are no change; the price is
 * that a change shows only when some six values lie on each side of it.
 *
 * Pure and deterministic by its seed; values in order of time.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "tuner/base/err.h"

enum nt_change_kind {
    NT_CHANGE_STEP,
    NT_CHANGE_DRIFT /* a line describes the values on both sides better than a step does */
};

struct nt_change {
    size_t at; /* the first value after the change; at - 1 is the last one before it */
    enum nt_change_kind kind;
    double before, after; /* medians of the values on both sides, up to the next change */
    double p;             /* of the permutation test, within its part of the history */
};

enum { NT_CHANGE_LEAST = 5 /* values; fewer hold no change that could be told from chance */ };

/* Changes with p ≤ alpha, in order of time, at most max. Values must be finite (NT_E_INVAL). */
NT_MUST_CHECK int nt_changes(const double *x, size_t n, double alpha, uint64_t seed,
                             struct nt_change *ret, size_t max, size_t *ret_n, struct nt_err *err);
