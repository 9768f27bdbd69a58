#include "tuner/stats/stats.h"

#include <math.h>

double nt_normal_cdf(double z)
{
    return 0.5 * erfc(-z * M_SQRT1_2);
}

/* Acklam's rational approximation (relative error 1e-9), then one step of Halley to full precision.
 */
static double normal_guess(double p)
{
    static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                               -2.759285104469687e+02, 1.383577518672690e+02,
                               -3.066479806614716e+01, 2.506628277459239e+00};
    static const double b[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                               -1.556989798598866e+02, 6.680131188771972e+01,
                               -1.328068155288572e+01};
    static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                               -2.400758277161838e+00, -2.549732539343734e+00,
                               4.374664141464968e+00,  2.938163982698783e+00};
    static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                               3.754408661907416e+00};
    double q, r;
    if (p > 0.5) {
        return -normal_guess(1.0 - p);
    }
    if (p < 0.02425) {
        q = sqrt(-2.0 * log(p));
        return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
               ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1.0);
    }
    q = p - 0.5;
    r = q * q;
    return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
           (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1.0);
}

double nt_normal_quantile(double p)
{
    double z, e, u;
    if (!(p > 0.0 && p < 1.0)) {
        return p == 0.0 ? -INFINITY : p == 1.0 ? INFINITY : NAN;
    }
    z = normal_guess(p);
    e = nt_normal_cdf(z) - p;
    u = e * sqrt(2.0 * M_PI) * exp(z * z / 2.0);
    return z - u / (1.0 + z * u / 2.0);
}

/* Continued fraction of the incomplete beta function (Lentz). */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1.0, d = 1.0 - (a + b) * x / (a + 1.0), h;
    d = 1.0 / (fabs(d) < tiny ? tiny : d);
    h = d;
    for (int i = 1; i <= 500; i++) {
        double m = i, even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)), odd, step;
        d = 1.0 + even * d;
        c = 1.0 + even / c;
        d = 1.0 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        h *= d * c;
        odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 + odd * d;
        c = 1.0 + odd / c;
        d = 1.0 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        step = d * c;
        h *= step;
        if (fabs(step - 1.0) < 1e-15) {
            break;
        }
    }
    return h;
}

/* lgamma() writes the global signgam; this variant does not. */
static double log_gamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

static double incomplete_beta(double a, double b, double x)
{
    double front;
    if (x <= 0.0 || x >= 1.0) {
        return x <= 0.0 ? 0.0 : 1.0;
    }
    front = exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1.0) / (a + b + 2.0) ? front * beta_fraction(a, b, x) / a
                                         : 1.0 - front * beta_fraction(b, a, 1.0 - x) / b;
}

double nt_student_cdf(double t, double df)
{
    double tail;
    if (isnan(t) || !(df > 0.0)) {
        return NAN;
    }
    if (isinf(t)) {
        return t > 0.0 ? 1.0 : 0.0;
    }
    tail = 0.5 * incomplete_beta(df / 2.0, 0.5, df / (df + t * t));
    return t > 0.0 ? 1.0 - tail : tail;
}

/* On the lower tail, where the distribution function keeps its relative precision: Newton's steps
 * on its logarithm, which is concave, or a bisection where one would leave the bracket. */
double nt_student_quantile(double p, double df)
{
    double lo = -2.0, hi = 0.0, t, front;
    if (!(p > 0.0 && p < 1.0) || !(df > 0.0)) {
        return df > 0.0 && p == 0.0 ? -INFINITY : df > 0.0 && p == 1.0 ? INFINITY : NAN;
    }
    if (p >= 0.5) {
        return p > 0.5 ? -nt_student_quantile(1.0 - p, df) : 0.0;
    }
    while (nt_student_cdf(lo, df) > p && lo > -1e300) {
        hi = lo;
        lo *= 2.0;
    }
    front = log_gamma((df + 1.0) / 2.0) - log_gamma(df / 2.0) - 0.5 * log(df * M_PI);
    t = 0.5 * (lo + hi);
    for (int i = 0; i < 200 && hi - lo > 1e-13 * fabs(lo); i++) {
        double f = nt_student_cdf(t, df), next;
        double density = exp(front - 0.5 * (df + 1.0) * log1p(t * t / df));
        *(f > p ? &hi : &lo) = t;
        next = t - log(f / p) * f / density;
        if (fabs(next - t) <= 1e-14 * fabs(t)) {
            return next;
        }
        t = next > lo && next < hi ? next : 0.5 * (lo + hi);
    }
    return t;
}

/* Regularised lower incomplete gamma function: a series below, a continued fraction (Lentz) above.
 */
static double incomplete_gamma(double a, double x)
{
    const double tiny = 1e-300, small = 1e-16;
    double front = exp(a * log(x) - x - log_gamma(a)), b, c, d, h, step = 0.0;
    if (x < a + 1.0) {
        double term = 1.0 / a, sum = term;
        for (double k = a + 1.0; term > small * sum; k += 1.0) {
            term *= x / k;
            sum += term;
        }
        return front * sum;
    }
    b = x + 1.0 - a;
    c = 1.0 / tiny;
    d = 1.0 / b;
    h = d;
    for (int i = 1; i <= 1000 && fabs(step - 1.0) > small; i++) {
        double m = -i * (i - a);
        b += 2.0;
        d = m * d + b;
        d = 1.0 / (fabs(d) < tiny ? tiny : d);
        c = b + m / c;
        c = fabs(c) < tiny ? tiny : c;
        step = d * c;
        h *= step;
    }
    return 1.0 - front * h;
}

double nt_chi_square_cdf(double x, double df)
{
    if (isnan(x) || !(df > 0.0)) {
        return NAN;
    }
    return x <= 0.0 ? 0.0 : isinf(x) ? 1.0 : incomplete_gamma(df / 2.0, x / 2.0);
}

double nt_chi_square_quantile(double p, double df)
{
    double lo = 0.0, hi = df;
    if (!(p > 0.0 && p < 1.0) || !(df > 0.0)) {
        return df > 0.0 && p == 0.0 ? 0.0 : df > 0.0 && p == 1.0 ? INFINITY : NAN;
    }
    while (nt_chi_square_cdf(hi, df) < p) {
        lo = hi;
        hi *= 2.0;
    }
    for (int i = 0; i < 200 && hi - lo > 1e-13 * hi; i++) {
        double mid = 0.5 * (lo + hi);
        *(nt_chi_square_cdf(mid, df) < p ? &lo : &hi) = mid;
    }
    return 0.5 * (lo + hi);
}
