/*
 * decide - which of several arms is the fastest at one size, by how much, and whether that may be
 * believed. Pure.
 *
 * Times are lower-is-better, bandwidths of one collective at one size and rank count higher; an
 * arm's value is positive and finite.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "tuner/base/err.h"

enum nt_verdict {
    NT_WINNER,
    NT_TIE,       /* under 2 percent, or one library behind two labels */
    NT_NO_WINNER, /* repeats are known and the difference does not stand out of their noise */
    NT_OUTLIER,   /* the gain rests on a value that its own neighbours contradict */
    NT_ALONE,     /* fewer than two arms to compare */
    NT_VERDICT_COUNT
};
extern const char *const nt_verdict_names[]; /* "winner", "tie", … */
extern const char *const nt_verdict_words[]; /* "winner", "tie", "no winner: too noisy", … */

#define NT_TIE_PCT 2.0

struct nt_arm {
    const char *name;
    double value;
    double sd;        /* standard deviation over repeats; < 0: not known */
    uint32_t repeats; /* behind value; 1 when not said */
    bool spike, dip;  /* off its own curve over sizes: too slow, too fast (nt_curve_flags) */
    bool drift;       /* its later repeats are all slower than its first ones */
    bool overlap;     /* listed more than once, without a standard deviation */
};

struct nt_decision {
    int best, second;  /* indices; -1: none */
    double margin_pct; /* of the second's time over the best's; NAN with fewer than two */
    enum nt_verdict verdict;
    char why[160];
};

void nt_decide(const struct nt_arm *arms, size_t n, bool higher_is_better, struct nt_decision *ret);

/* Flags of point i of one arm's curve: time_us over ascending bytes. A spike is slower than both
 * neighbours by a tenth, a dip faster than all smaller sizes by a tenth. */
void nt_curve_flags(const double *time_us, size_t n, size_t i, bool *ret_spike, bool *ret_dip);

/* The library behind a backend's label: "nccl" for pynccl, torch.distributed, …; the label itself
 * otherwise. */
const char *nt_backend_library(const char *label);
