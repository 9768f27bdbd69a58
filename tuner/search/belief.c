#include "tuner/search/belief.h"

#include <math.h>

#include "tuner/stats/stats.h"

void belief_init(struct belief *b, double z_drop, double z_stop)
{
    b->z_stop = z_stop;
    for (uint32_t df = BELIEF_KIND; df <= BELIEF_MOST; df++) {
        b->by[df].drop = nt_student_quantile(nt_normal_cdf(z_drop), df);
        b->by[df].stop = nt_student_quantile(nt_normal_cdf(z_stop), df);
        b->by[df].density =
            exp(lgamma((df + 1) / 2.0) - lgamma(df / 2.0)) / sqrt(df * 3.141592653589793);
    }
}

uint32_t belief_gangs(const struct fit *f, uint32_t a, uint32_t b)
{
    uint32_t x = f->arms[a].gangs, y = f->arms[b].gangs;
    return x < y ? x : y;
}

uint32_t belief_least_degrees(const struct fit *f, uint32_t a, uint32_t b)
{
    double df = fmin(fit_noise_df(f, a), fit_noise_df(f, b));
    return (uint32_t)fmin(belief_gangs(f, a, b) + BELIEF_KIND, fmin(df, BELIEF_MOST));
}

/* Of an error of the two of which so much is what gangs do to them, and the rest noise of blocks.
 */
static uint32_t degrees(const struct fit *f, uint32_t a, uint32_t b, double variance,
                        double of_gangs)
{
    double df = fmin(fit_noise_df(f, a), fit_noise_df(f, b));
    double by_gangs = fmin(of_gangs, variance), rest = variance - by_gangs;
    df = variance * variance /
         (by_gangs * by_gangs / (belief_gangs(f, a, b) + BELIEF_KIND) + rest * rest / df);
    return (uint32_t)(fmin(df, BELIEF_MOST) + 1e-9);
}

uint32_t belief_degrees(const struct fit *f, uint32_t a, uint32_t b, double se)
{
    double gangs = 1.0 / f->arms[a].gangs + 1.0 / f->arms[b].gangs;
    return degrees(f, a, b, se * se, f->inter_var * gangs);
}

uint32_t belief_arm_degrees(const struct fit *f, uint32_t arm)
{
    const struct fit_arm *a = &f->arms[arm];
    return degrees(f, arm, arm, 1.0 / a->info, f->inter_var / a->gangs);
}

double belief_cautious(const struct belief *b, const struct fit *f, uint32_t arm)
{
    const struct fit_arm *a = &f->arms[arm];
    return a->info > 0.0 ? a->effect + 0.5 * b->by[belief_arm_degrees(f, arm)].stop / b->z_stop /
                                           sqrt(a->info)
                         : INFINITY;
}

double belief_promise(const struct belief *b, const struct fit *f, uint32_t arm)
{
    const struct fit_arm *a = &f->arms[arm];
    return a->info > 0.0 ? a->effect - b->by[belief_arm_degrees(f, arm)].stop / sqrt(a->info)
                         : -INFINITY;
}

double belief_loss(const struct belief *b, double mean, double sd, uint32_t df)
{
    double u = -mean / sd, density;
    if (!(sd > 0.0)) {
        return fmax(mean, 0.0);
    }
    density = b->by[df].density * pow(1 + u * u / df, -0.5 * (df + 1));
    return sd * ((df + u * u) / (df - 1) * density - u * (1 - nt_student_cdf(u, df)));
}
