/*
 * compose - from what the races found to the rows of a table.
 *
 * A choice is what a row can ask for, by number; choice 0 is the default. At one size several
 * choices may execute the same tuple: the caller gives them equal estimates. The reader of a table
 * cannot see the mode, so one choice per size must serve all modes.
 *
 * Pure; memory is the caller's but for scratch (NT_E_NOMEM). Sizes are bytes, ascending.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tuner/base/err.h"

struct nt_effect {
    double log_ratio; /* log(choice / default); NAN: unknown or failed, never chosen */
    double se;
};

struct nt_compose_config {
    double min_gain; /* weighted over modes, below it the default stays: 0.02 */
    double guard;    /* in no mode slower than the default by more: 0.01 … */
    double guard_z;  /* … with so many standard errors: 1 */
    double tie;      /* choices this near to the best of a size serve it as well: 0.01 */
};
extern const struct nt_compose_config nt_compose_defaults;

struct nt_compose_in {
    const uint64_t *sizes; /* [n_sizes], ascending */
    size_t n_sizes, n_modes, n_choices;
    const struct nt_effect *effects; /* [(size * n_modes + mode) * n_choices + choice] */
    const double *weights;           /* [size * n_modes + mode], >= 0; NULL: all equal. A mode of
                                        weight 0 still guards. */
    const uint32_t *tie_rank; /* [n_choices]: the smaller wins among equals; NULL: by number */
};

struct nt_row {
    uint64_t min_bytes, max_bytes; /* inclusive */
    uint32_t choice;               /* never 0 */
    uint32_t first, last;          /* indices into sizes that it serves */
    double gain;                   /* log units, weighted over its sizes and modes, estimated */
};

/* rows: room for n_sizes. Fewest rows, and among those the largest weighted gain. Sizes where the
 * default wins get no row; rows end at geometric midpoints between sizes, and never reach beyond
 * the smallest and largest size. Errors: NT_E_INVAL (sizes not ascending), NT_E_NOMEM. */
NT_MUST_CHECK int nt_compose(const struct nt_compose_config *config, const struct nt_compose_in *in,
                             struct nt_row *rows, size_t *ret_rows, struct nt_err *err);

/* For a table with process variables. A size that is kept as it is without them has the channels
 * that it had: beyond it, where NCCL would open more, a row of them is a cap. So a row whose last
 * size is one ends there, if no other row serves the next. kept: [size]. */
void nt_compose_end(const uint64_t *sizes, const bool *kept, struct nt_row *rows, size_t n);

/* Where the row of a ladder size ends and that of the next one, b > a, begins: the last byte of the
 * former. */
uint64_t nt_compose_midpoint(uint64_t a, uint64_t b);
