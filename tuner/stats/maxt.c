#include "tuner/stats/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/rng.h"

struct family {
    size_t n, pairs;  /* classes with values, in descending order of their observed statistic */
    size_t *class_of; /* [n] caller's index */
    double *value;    /* [n * pairs] over the root of the class's sum of squares; missing: 0 */
    double *observed; /* [n] */
    double *stat;     /* [n] under the current flip */
    uint64_t *count;  /* [n] flips whose maximum from here on reaches the observed one */
};

static void family_done(struct family *f)
{
    free(f->class_of);
    free(f->value);
    free(f->observed);
    free(f->stat);
    free(f->count);
}

static double statistic(const double *x, size_t pairs, double *ret_root)
{
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < pairs; i++) {
        double v = isnan(x[i]) ? 0.0 : x[i];
        sum += v;
        squares += v * v;
    }
    *ret_root = sqrt(squares);
    return squares > 0.0 ? sum / *ret_root : 0.0;
}

static int family_init(struct family *f, const double *x, size_t classes, size_t pairs,
                       struct nt_err *err)
{
    *f = (struct family){.pairs = pairs,
                         .class_of = calloc(classes, sizeof(size_t)),
                         .value = calloc(classes * pairs, sizeof(double)),
                         .observed = calloc(classes, sizeof(double)),
                         .stat = calloc(classes, sizeof(double)),
                         .count = calloc(classes, sizeof(uint64_t))};
    if (f->class_of == NULL || f->value == NULL || f->observed == NULL || f->stat == NULL ||
        f->count == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "%zu classes of %zu pairs", classes, pairs);
    }
    for (size_t c = 0; c < classes; c++) {
        double root, t = statistic(x + c * pairs, pairs, &root);
        size_t at = f->n;
        if (root == 0.0) {
            continue; /* no value, or nothing but zeros: p stays 1 */
        }
        for (; at > 0 && f->observed[at - 1] < t; at--) { /* insertion: equal ones keep order */
            f->observed[at] = f->observed[at - 1];
            f->class_of[at] = f->class_of[at - 1];
        }
        f->observed[at] = t;
        f->class_of[at] = c;
        f->n++;
    }
    for (size_t k = 0; k < f->n; k++) {
        const double *from = x + f->class_of[k] * pairs;
        double root;
        (void)statistic(from, pairs, &root);
        for (size_t i = 0; i < pairs; i++) {
            f->value[k * pairs + i] = isnan(from[i]) ? 0.0 : from[i] / root;
        }
        f->stat[k] = f->observed[k];
    }
    return 0;
}

/* Step-down: each class against the maximum over itself and those with smaller observed values. */
static void count_flip(struct family *f)
{
    double max = -INFINITY;
    for (size_t k = f->n; k-- > 0;) {
        max = fmax(max, f->stat[k]);
        f->count[k] += max >= f->observed[k] - 1e-9; /* rounding must not lose the identity */
    }
}

/* One pair changes its sign; sign[] is the state after the change. */
static void flip_pair(struct family *f, size_t pair, double sign)
{
    for (size_t k = 0; k < f->n; k++) {
        f->stat[k] += 2.0 * sign * f->value[k * f->pairs + pair];
    }
}

/* All flips in Gray code's order: one pair changes from each to the next. */
static uint64_t flip_all(struct family *f)
{
    uint64_t total = UINT64_C(1) << f->pairs, flipped = 0;
    count_flip(f);
    for (uint64_t i = 1; i < total; i++) {
        size_t pair = (size_t)__builtin_ctzll(i);
        flipped ^= UINT64_C(1) << pair;
        flip_pair(f, pair, (flipped >> pair) & 1 ? -1.0 : 1.0);
        count_flip(f);
    }
    return total;
}

static uint64_t flip_random(struct family *f, uint64_t seed)
{
    uint64_t total = UINT64_C(1) << NT_FLIPS_EXACT_PAIRS;
    struct nt_rng rng;
    nt_rng_seed(&rng, seed);
    count_flip(f); /* the identity: p is never 0 */
    for (uint64_t i = 1; i < total; i++) {
        uint64_t flipped = nt_rng_next(&rng);
        memcpy(f->stat, f->observed, f->n * sizeof(*f->stat));
        for (size_t pair = 0; pair < f->pairs; pair++) {
            if ((flipped >> pair) & 1) {
                flip_pair(f, pair, -1.0);
            }
        }
        count_flip(f);
    }
    return total;
}

int nt_maxt(const double *x, size_t classes, size_t pairs, uint64_t seed, double *ret_p,
            struct nt_err *err)
{
    struct family f = {0};
    uint64_t total;
    double p = 0.0;
    int rc;
    if (classes == 0 || pairs == 0 || pairs > 63) {
        return nt_fail(err, NT_E_INVAL, 0, "%zu classes of %zu pairs to test", classes, pairs);
    }
    rc = family_init(&f, x, classes, pairs, err);
    if (rc == 0) {
        total = pairs <= NT_FLIPS_EXACT_PAIRS ? flip_all(&f) : flip_random(&f, seed);
        for (size_t c = 0; c < classes; c++) {
            ret_p[c] = 1.0;
        }
        for (size_t k = 0; k < f.n; k++) { /* a class is never surer than the one before it */
            p = fmax(p, (double)f.count[k] / (double)total);
            ret_p[f.class_of[k]] = p;
        }
    }
    family_done(&f);
    return rc;
}

double nt_maxt_least_p(size_t pairs)
{
    return ldexp(1.0, pairs < NT_FLIPS_EXACT_PAIRS ? -(int)pairs : -NT_FLIPS_EXACT_PAIRS);
}
