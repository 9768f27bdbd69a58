/*
 * stats - estimators and tests over block times and their logarithms.
 *
 * Units      whatever goes in comes out; ratios are differences of natural logarithms.
 * Missing    NAN where a function says so, nowhere else.
 * Ownership  nothing is kept; "reorders" means that the caller's array is used as scratch.
 * Errors     0 or -enum nt_code. Functions of no observations return NAN.
 * Pure       no clock, no I/O, no global; the same input gives the same output.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "tuner/base/err.h"

/* Order statistics; both reorder x. q in [0, 1], linear between neighbours (type 7). */
double nt_quantile(double *x, size_t n, double q);
double nt_median(double *x, size_t n);
/* The same on raw samples: what a block of iterations is summarised by. Reorders ns. */
double nt_quantile_u32(uint32_t *ns, size_t n, double q);

double nt_mean(const double *x, size_t n);
double nt_sd(const double *x, size_t n); /* n - 1 below; 0 for a single value */
/* What the sd of normal values is at least, wrong with chance alpha, when n of them have this one;
 * 0 for fewer than 2. */
double nt_sd_at_least(double sd, size_t n, double alpha);

/* Distributions. p in (0, 1); df > 0, need not be whole. */
double nt_normal_cdf(double z);
double nt_normal_quantile(double p);
double nt_student_cdf(double t, double df);
double nt_student_quantile(double p, double df);
double nt_chi_square_cdf(double x, double df);
double nt_chi_square_quantile(double p, double df);

/* A mean with its uncertainty, from independent values (one per pair or gang). With one value the
 * interval is infinite, with none everything is NAN. */
struct nt_est {
    size_t n;
    double mean, sd, se;
    double lo, hi;       /* two-sided interval at `level` */
    double lower, upper; /* one-sided bounds at `level`, each by itself */
};

/* level: 0.95 for 95 %. NAN entries of x are left out. */
struct nt_est nt_estimate(const double *x, size_t n, double level);
/* Mean of a[i] - b[i]; a pair with a NAN is left out. */
struct nt_est nt_estimate_pairs(const double *a, const double *b, size_t n, double level);

/*
 * Westfall-Young step-down max-T over classes that share their pairs, by flips of the signs of
 * whole pairs: all classes of a pair are flipped together, so whatever dependence there is between
 * classes is kept. One-sided: small p says that the mean of the class is above 0.
 *
 * x[class * pairs + pair], NAN where a class has no value for that pair; the statistic is the sum
 * over the root of the sum of squares (monotone in Student's t, and bounded). Up to
 * NT_FLIPS_EXACT_PAIRS all 2^pairs flips are used; above it 2^16 random ones, drawn from seed, the
 * identity among them. ret_p[class]: adjusted p, 1 for a class without values.
 * The smallest p that can come out is nt_maxt_least_p(pairs).
 * Errors: NT_E_NOMEM, NT_E_INVAL (no class, no pair, more than 63 pairs).
 */
enum { NT_FLIPS_EXACT_PAIRS = 16 };
NT_MUST_CHECK int nt_maxt(const double *x, size_t classes, size_t pairs, uint64_t seed,
                          double *ret_p, struct nt_err *err);
double nt_maxt_least_p(size_t pairs);

/* Power of a one-sided test at alpha of n pairs whose differences have this sd, for a true mean
 * `effect` (effect and sd in the same unit); and the smallest effect with that power. For a family
 * of classes pass alpha divided by their number: a bound from the safe side for step-down max-T.
 * Fewer than 2 pairs: power 0, effect INFINITY. */
double nt_power(double effect, double sd, size_t n, double alpha);
double nt_detectable(double sd, size_t n, double alpha, double power);
/* Pairs needed for that power, at most max; 0 if max do not suffice. */
size_t nt_pairs_needed(double effect, double sd, double alpha, double power, size_t max);

/* Two-level noise of one case: value[i] is the log of a block's median, gang[i] (below gangs) where
 * it comes from. Blocks far outside (4 robust sd from their gang's median) are left out. */
struct nt_noise {
    size_t gangs, blocks; /* used */
    double block_sd;      /* within a gang */
    double gang_sd;       /* between gangs, the blocks' share taken off; 0 if none is left */
    double mean;          /* over gangs */
};
NT_MUST_CHECK int nt_noise_fit(const double *value, const uint32_t *gang, size_t n, uint32_t gangs,
                               struct nt_noise *ret, struct nt_err *err);
/* sd of the difference of two arms measured in `gangs` common gangs with `blocks` blocks each, when
 * gang effects cancel but for a part with sd `interaction_sd` per arm and gang. */
double nt_noise_of_difference(const struct nt_noise *n, double interaction_sd, size_t gangs,
                              size_t blocks);

/* Do later values lie above earlier ones? Values in order of time; the first third against the last
 * third, Welch's interval of (late - early) at `level`. Fewer than 6 values: n is 0, the rest NAN.
 */
struct nt_est nt_drift(const double *x, size_t n, double level);
