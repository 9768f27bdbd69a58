/*
 * rivals - ways to search a landscape, each with its device seconds and what it would pick after
 * them.
 *
 * `ours` is the job's own plan up to the confirm. The others are published methods; they begin with
 * the looks by which ours finds the distinct tuples of every case, and may use what those saw. Only
 * the exhaustive grid is told the tuples for nothing. Every gang's start is paid by all.
 */
#pragma once
#include <stdio.h>

#include "tests/bench/land.h"

enum rival {
    RIVAL_OURS,
    RIVAL_EXHAUSTIVE,
    RIVAL_RANDOM,
    RIVAL_DESCENT, /* coordinate descent with restarts: the published tuner for NCCL */
    RIVAL_HALVING,
    RIVAL_TPE,    /* Optuna's, the real package, over a pipe */
    RIVAL_RACING, /* over sizes: what wins at one size is raced at the next, as for RCCL */
    RIVALS
};
extern const char *const rival_names[RIVALS];

struct standing {
    double seconds;     /* device seconds so far; of ours, from the end of the preflight on */
    double mean, worst; /* gap over the cases; worst: what is sure of it */
    double exact;       /* share of cases whose gap is at most 1 %, as far as is sure */
};
enum { STANDINGS = 160 };
struct outcome {
    struct standing at[STANDINGS]; /* by seconds; the last is the end */
    unsigned n;
    uint32_t setting; /* of the landscape, at the end */
    double preflight_s;
    uint64_t blocks;
    uint64_t decide_ns; /* ours: time to think, all blocks together */
};

/* The other end of a pipe to Optuna; NULL where there is none. */
struct tpe;
/* python: an interpreter that has optuna. NULL and why in *err: it has not. */
struct tpe *tpe_open(const char *python, const char *script, struct nt_err *err);
void tpe_close(struct tpe *t); /* NULL is fine */

NT_MUST_CHECK int rival_run(enum rival r, const struct land *l, struct tpe *tpe, uint64_t seed,
                            struct outcome *ret, struct nt_err *err);

extern FILE *ours_decisions; /* not NULL: every step of ours, and what it found, to the last bit */
extern bool ours_verbose;    /* prints picks that lose, and what the search had seen */
/* What rival_run() does for RIVAL_OURS. */
NT_MUST_CHECK int ours_run(const struct land *l, struct outcome *ret, struct nt_err *err);

/* A whole job with its confirm. *ret_published classes of the table and, of those, how many are not
 * faster in truth. */
NT_MUST_CHECK int rival_job(const struct land *l, unsigned *ret_published, unsigned *ret_false,
                            double *ret_worst, struct nt_err *err);
