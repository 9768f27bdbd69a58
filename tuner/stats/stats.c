#include "tuner/stats/stats.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_value_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Where quantile q of n sorted values lies: between *ret_at and the next, at the fraction returned.
 */
static double position(size_t n, double q, size_t *ret_at)
{
    double h = (double)(n - 1) * fmin(fmax(q, 0.0), 1.0);
    *ret_at = (size_t)h;
    return h - (double)*ret_at;
}

double nt_quantile(double *x, size_t n, double q)
{
    size_t at;
    double f;
    if (n == 0) {
        return NAN;
    }
    qsort(x, n, sizeof(*x), by_value);
    f = position(n, q, &at);
    return f > 0.0 ? x[at] + f * (x[at + 1] - x[at]) : x[at];
}

double nt_median(double *x, size_t n)
{
    return nt_quantile(x, n, 0.5);
}

double nt_quantile_u32(uint32_t *ns, size_t n, double q)
{
    size_t at;
    double f;
    if (n == 0) {
        return NAN;
    }
    qsort(ns, n, sizeof(*ns), by_value_u32);
    f = position(n, q, &at);
    return f > 0.0 ? (double)ns[at] + f * ((double)ns[at + 1] - (double)ns[at]) : (double)ns[at];
}

double nt_mean(const double *x, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i];
    }
    return n > 0 ? sum / (double)n : NAN;
}

double nt_sd(const double *x, size_t n)
{
    double mean = nt_mean(x, n), squares = 0.0;
    for (size_t i = 0; i < n; i++) {
        squares += (x[i] - mean) * (x[i] - mean);
    }
    return n == 0 ? NAN : n == 1 ? 0.0 : sqrt(squares / (double)(n - 1));
}

/* mean, sd, n and se are set; df is what Student's quantile takes. */
static void set_bounds(struct nt_est *e, double df, double level)
{
    double two = INFINITY, one = INFINITY;
    if (df > 0.0) {
        two = nt_student_quantile(0.5 + level / 2.0, df) * e->se;
        one = nt_student_quantile(level, df) * e->se;
    }
    e->lo = e->mean - two;
    e->hi = e->mean + two;
    e->lower = e->mean - one;
    e->upper = e->mean + one;
}

static const struct nt_est nothing = {0, NAN, NAN, NAN, NAN, NAN, NAN, NAN};

struct nt_est nt_estimate_pairs(const double *a, const double *b, size_t n, double level)
{
    struct nt_est e = {0};
    double squares = 0.0;
    for (size_t i = 0; i < n; i++) { /* Welford: one pass, no scratch */
        double x = b == NULL ? a[i] : a[i] - b[i], d = x - e.mean;
        if (isnan(x)) {
            continue;
        }
        e.n++;
        e.mean += d / (double)e.n;
        squares += d * (x - e.mean);
    }
    if (e.n == 0) {
        return nothing;
    }
    e.sd = e.n > 1 ? sqrt(squares / (double)(e.n - 1)) : 0.0;
    e.se = e.n > 1 ? e.sd / sqrt((double)e.n) : INFINITY;
    set_bounds(&e, (double)e.n - 1.0, level);
    return e;
}

struct nt_est nt_estimate(const double *x, size_t n, double level)
{
    return nt_estimate_pairs(x, NULL, n, level);
}

/* The non-central t distribution, by the normal approximation of Johnson and Welch: within 0.01 of
 * the truth from 3 degrees of freedom on. */
double nt_sd_at_least(double sd, size_t n, double alpha)
{
    double df = (double)n - 1.0;
    return n < 2 ? 0.0 : sd * sqrt(df / nt_chi_square_quantile(1.0 - alpha, df));
}

double nt_power(double effect, double sd, size_t n, double alpha)
{
    double df, t, shift;
    if (n < 2 || !(alpha > 0.0 && alpha < 1.0)) {
        return 0.0;
    }
    if (!(sd > 0.0)) {
        return effect > 0.0 ? 1.0 : 0.0;
    }
    df = (double)n - 1.0;
    t = nt_student_quantile(1.0 - alpha, df);
    shift = effect / sd * sqrt((double)n);
    return nt_normal_cdf((shift - t * (1.0 - 0.25 / df)) / sqrt(1.0 + t * t / (2.0 * df)));
}

double nt_detectable(double sd, size_t n, double alpha, double power)
{
    double df, t;
    if (n < 2 || !(alpha > 0.0 && alpha < 1.0) || !(power > 0.0 && power < 1.0)) {
        return INFINITY;
    }
    df = (double)n - 1.0;
    t = nt_student_quantile(1.0 - alpha, df);
    return sd / sqrt((double)n) * /* nt_power() solved for its effect */
           (t * (1.0 - 0.25 / df) + nt_normal_quantile(power) * sqrt(1.0 + t * t / (2.0 * df)));
}

size_t nt_pairs_needed(double effect, double sd, double alpha, double power, size_t max)
{
    size_t low = 1, high = 2; /* low never suffices */

    while (high < max && nt_power(effect, sd, high, alpha) < power) {
        low = high;
        high *= 2;
    }
    high = high < max ? high : max;
    if (high < 2 || nt_power(effect, sd, high, alpha) < power) {
        return 0;
    }
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (nt_power(effect, sd, mid, alpha) < power) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return high;
}

/* Sums of the one-way analysis of variance with unequal group sizes. */
struct anova {
    double within, sum_n, sum_n2, sum_mean, sum_n_mean, sum_n_mean2;
    size_t groups;
};

static void anova_add(struct anova *a, const double *x, size_t n)
{
    double mean = nt_mean(x, n), sd = nt_sd(x, n), k = (double)n;
    a->within += sd * sd * (k - 1.0);
    a->sum_n += k;
    a->sum_n2 += k * k;
    a->sum_mean += mean;
    a->sum_n_mean += k * mean;
    a->sum_n_mean2 += k * mean * mean;
    a->groups++;
}

static size_t gather(double *x, const double *value, const uint32_t *gang, size_t n, uint32_t g)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (gang[i] == g) {
            x[k++] = value[i];
        }
    }
    return k;
}

/* How far from its gang's median a block may lie: 4 robust sds over all gangs together, as one gang
 * has too few blocks to tell. x: room for n. */
static double stray_limit(const double *value, const uint32_t *gang, size_t n, uint32_t gangs,
                          double *x, double *mid)
{
    size_t m = 0;
    for (uint32_t g = 0; g < gangs; g++) {
        mid[g] = nt_median(x, gather(x, value, gang, n, g));
    }
    for (size_t i = 0; i < n; i++) {
        if (gang[i] < gangs) {
            x[m++] = fabs(value[i] - mid[gang[i]]);
        }
    }
    return 4.0 * 1.4826 * nt_median(x, m);
}

int nt_noise_fit(const double *value, const uint32_t *gang, size_t n, uint32_t gangs,
                 struct nt_noise *ret, struct nt_err *err)
{
    double *x = malloc((n + gangs + 1) * sizeof(*x)), *mid = x + n;
    struct anova a = {0};
    struct nt_noise out = {0};
    double groups, block_var = 0.0, limit;
    if (x == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "noise of %zu blocks", n);
    }
    limit = stray_limit(value, gang, n, gangs, x, mid);
    for (uint32_t g = 0; g < gangs; g++) {
        size_t all = gather(x, value, gang, n, g), k = 0;
        for (size_t i = 0; i < all; i++) {
            if (all < 3 || fabs(x[i] - mid[g]) <= limit) {
                x[k++] = x[i];
            }
        }
        if (k > 0) {
            anova_add(&a, x, k);
        }
    }
    free(x);
    if (a.groups == 0) {
        return nt_fail(err, NT_E_INVAL, 0, "no blocks to tell the noise from");
    }
    groups = (double)a.groups;
    out.gangs = a.groups;
    out.blocks = (size_t)a.sum_n;
    out.mean = a.sum_mean / groups;
    if (a.sum_n > groups) {
        block_var = a.within / (a.sum_n - groups);
        out.block_sd = sqrt(block_var);
    }
    if (a.groups > 1) {
        double between = a.sum_n_mean2 - a.sum_n_mean * a.sum_n_mean / a.sum_n;
        double n0 = (a.sum_n - a.sum_n2 / a.sum_n) / (groups - 1.0);
        out.gang_sd = sqrt(fmax(0.0, (between / (groups - 1.0) - block_var) / n0));
    }
    *ret = out;
    return 0;
}

double nt_noise_of_difference(const struct nt_noise *n, double interaction_sd, size_t gangs,
                              size_t blocks)
{
    double per_gang = n->block_sd * n->block_sd / (double)blocks + interaction_sd * interaction_sd;
    return gangs > 0 && blocks > 0 ? sqrt(2.0 * per_gang / (double)gangs) : INFINITY;
}

struct nt_est nt_drift(const double *x, size_t n, double level)
{
    size_t k = n / 3;
    struct nt_est e = nothing;
    double early, late, u, v, df;
    if (k < 2) {
        return e;
    }
    early = nt_sd(x, k);
    late = nt_sd(x + n - k, k);
    u = early * early / (double)k;
    v = late * late / (double)k;
    df = u + v > 0.0 ? (u + v) * (u + v) * ((double)k - 1.0) / (u * u + v * v) : (double)k;
    e.n = n;
    e.mean = nt_mean(x + n - k, k) - nt_mean(x, k);
    e.sd = sqrt((early * early + late * late) / 2.0);
    e.se = sqrt(u + v);
    set_bounds(&e, df, level);
    return e;
}
