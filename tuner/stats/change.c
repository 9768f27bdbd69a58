#include "tuner/stats/change.h"
#include "tuner/base/rng.h"
#include "tuner/stats/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PERMUTATIONS = 1999 };

struct history {
    const double *x;
    double *scratch, *rank;
    struct nt_rng rng;
    double alpha;
    struct nt_change *found;
    size_t max, n;
};

/* Mid-ranks of x[0, n), less their mean. Small n: the square of it costs nothing. */
static void take_ranks(const double *x, size_t n, double *rank)
{
    for (size_t i = 0; i < n; i++) {
        double below = 0, equal = 0;
        for (size_t k = 0; k < n; k++) {
            below += x[k] < x[i];
            equal += x[k] == x[i];
        }
        rank[i] = below + (equal + 1) / 2 - ((double)n + 1) / 2;
    }
}

/* Largest sum of the first k values over its standard deviation under chance, which is that of k
 * draws out of n: changes near the ends count as much as those in the middle. */
static double largest(const double *rank, size_t n, size_t *ret_at)
{
    double sum = 0, best = -1;

    for (size_t k = 1; k < n; k++) {
        double s;
        sum += rank[k - 1];
        s = fabs(sum) / sqrt((double)k * (double)(n - k));
        if (s > best + 1e-12) {
            best = s;
            *ret_at = k;
        }
    }
    return best;
}

static double chance(struct history *h, double *rank, size_t n, double seen)
{
    size_t at = 0;
    unsigned as_large = 1;

    for (unsigned i = 0; i < PERMUTATIONS; i++) {
        for (size_t k = n; k > 1; k--) {
            size_t j = (size_t)nt_rng_below(&h->rng, k);
            double swap = rank[k - 1];
            rank[k - 1] = rank[j];
            rank[j] = swap;
        }
        as_large += largest(rank, n, &at) >= seen - 1e-9;
    }
    return (double)as_large / (PERMUTATIONS + 1);
}

/* Sum of absolute deviations: an outlier on either side weighs no more than it is far. */
static double step_cost(const double *x, size_t n, size_t at, double before, double after)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += fabs(x[i] - (i < at ? before : after));
    }
    return sum;
}

static double line_cost(const double *x, size_t n)
{
    double mean_t = ((double)n - 1) / 2, mean = nt_mean(x, n), st = 0, sx = 0, sum = 0;

    for (size_t i = 0; i < n; i++) {
        st += ((double)i - mean_t) * ((double)i - mean_t);
        sx += ((double)i - mean_t) * (x[i] - mean);
    }
    for (size_t i = 0; i < n; i++) {
        sum += fabs(x[i] - mean - sx / st * ((double)i - mean_t));
    }
    return sum;
}

static double median_of(struct history *h, size_t from, size_t to)
{
    memcpy(h->scratch, h->x + from, (to - from) * sizeof(h->x[0]));
    return nt_median(h->scratch, to - from);
}

/* Ranks tell that there is a change; where it is, the values say better. */
static size_t place(struct history *h, size_t from, size_t to)
{
    size_t best = from + 1;
    double least = INFINITY;

    for (size_t at = from + 1; at < to; at++) {
        double cost = step_cost(h->x + from, to - from, at - from, median_of(h, from, at),
                                median_of(h, at, to));
        best = cost < least ? at : best;
        least = cost < least ? cost : least;
    }
    return best;
}

static void look(struct history *h, size_t from, size_t to)
{
    size_t n = to - from, at = 0;
    double seen, p;

    if (n < NT_CHANGE_LEAST || h->n == h->max) {
        return;
    }
    take_ranks(h->x + from, n, h->rank);
    seen = largest(h->rank, n, &at);
    p = seen > 0 ? chance(h, h->rank, n, seen) : 1;
    if (p > h->alpha) {
        return;
    }
    at = place(h, from, to);
    look(h, from, at);
    if (h->n < h->max) {
        h->found[h->n++] = (struct nt_change){.at = at, .p = p};
    }
    look(h, at, to);
}

/* Both sides are known only when all changes are. */
static void describe(struct history *h, size_t n)
{
    for (size_t i = 0; i < h->n; i++) {
        struct nt_change *c = &h->found[i];
        size_t from = i > 0 ? h->found[i - 1].at : 0, to = i + 1 < h->n ? h->found[i + 1].at : n;
        c->before = median_of(h, from, c->at);
        c->after = median_of(h, c->at, to);
        c->kind = line_cost(h->x + from, to - from) <
                          step_cost(h->x + from, to - from, c->at - from, c->before, c->after)
                      ? NT_CHANGE_DRIFT
                      : NT_CHANGE_STEP;
    }
}

int nt_changes(const double *x, size_t n, double alpha, uint64_t seed, struct nt_change *ret,
               size_t max, size_t *ret_n, struct nt_err *err)
{
    struct history h = {.x = x, .alpha = alpha, .found = ret, .max = max};

    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return nt_fail(err, NT_E_INVAL, 0, "value %zu of a history is no number", i);
        }
    }
    h.scratch = calloc(2 * n + 1, sizeof(double));
    if (h.scratch == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "history");
    }
    h.rank = h.scratch + n;
    nt_rng_seed(&h.rng, seed);
    look(&h, 0, n);
    describe(&h, n);
    free(h.scratch);
    *ret_n = h.n;
    return 0;
}
