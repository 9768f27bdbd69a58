#include "tuner/job/drift.h"
#include "tuner/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_GANGS = 6, ROUNDS = 20 };

struct nt_drift_block {
    uint64_t gang, what;
    double x;
    size_t order;
    uint8_t kind;
};
/* Blocks of one gang at one case, put together. */
struct group {
    size_t gang, what; /* indices */
    double x;
};
struct groups {
    struct group *v;
    size_t n, gangs, whats;
};

void nt_drift_add(struct nt_drift_log *l, enum nt_drift_kind kind, uint64_t gang, uint64_t what,
                  double log_ns)
{
    if (!isfinite(log_ns)) {
        return;
    }
    if (l->n == l->cap) {
        size_t cap = l->cap > 0 ? 2 * l->cap : 256;
        struct nt_drift_block *v = realloc(l->v, cap * sizeof(v[0]));
        if (v == NULL) {
            return;
        }
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n] = (struct nt_drift_block){
        .gang = gang, .what = what, .x = log_ns, .order = l->n, .kind = (uint8_t)kind};
    l->n++;
}

void nt_drift_free(struct nt_drift_log *l)
{
    free(l->v);
    *l = (struct nt_drift_log){0};
}

static int by_gang(const void *a_, const void *b_)
{
    const struct nt_drift_block *a = a_, *b = b_;
    if (a->gang != b->gang) {
        return a->gang < b->gang ? -1 : 1;
    }
    if (a->what != b->what) {
        return a->what < b->what ? -1 : 1;
    }
    return a->order < b->order ? -1 : a->order > b->order;
}

static int by_word(const void *a_, const void *b_)
{
    const uint64_t *a = a_, *b = b_;
    return *a < *b ? -1 : *a > *b;
}

static double mean_of(const struct nt_drift_block *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += v[i].x;
    }
    return sum / (double)n;
}

/* `v` sorted by gang, what and time. Of a group that is split: its later half less its first. */
static void put_together(const struct nt_drift_block *v, size_t n, bool split, struct groups *ret,
                         uint64_t *whats)
{
    for (size_t i = 0; i < n; i++) {
        whats[i] = v[i].what;
    }
    qsort(whats, n, sizeof(whats[0]), by_word);
    for (size_t i = 0; i < n; i++) {
        if (ret->whats == 0 || whats[ret->whats - 1] != whats[i]) {
            whats[ret->whats++] = whats[i];
        }
    }
    for (size_t i = 0, k; i < n; i = k) {
        size_t half;
        const uint64_t *what = bsearch(&v[i].what, whats, ret->whats, sizeof(whats[0]), by_word);
        for (k = i; k < n && v[k].gang == v[i].gang && v[k].what == v[i].what; k++) {
        }
        half = (k - i) / 2;
        ret->gangs += i == 0 || v[i].gang != v[i - 1].gang;
        if (!split || half > 0) {
            ret->v[ret->n++] = (struct group){
                .gang = ret->gangs - 1,
                .what = (size_t)(what - whats),
                .x = split ? mean_of(v + k - half, half) - mean_of(v + i, half)
                           : mean_of(v + i, k - i),
            };
        }
    }
}

/* Effects of gangs beside those of cases, by turns; NAN: no value. Cases that not every gang
 * measured are no bias that way. */
static void fit_gangs(const struct groups *g, double *gang, double *what, double *sum, double *n)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int side = 0; side < 2; side++) {
            size_t count = side == 0 ? g->whats : g->gangs;
            double *to = side == 0 ? what : gang;
            const double *from = side == 0 ? gang : what;
            memset(sum, 0, count * sizeof(sum[0]));
            memset(n, 0, count * sizeof(n[0]));
            for (size_t i = 0; i < g->n; i++) {
                size_t at = side == 0 ? g->v[i].what : g->v[i].gang;
                size_t by = side == 0 ? g->v[i].gang : g->v[i].what;
                sum[at] += g->v[i].x - from[by];
                n[at]++;
            }
            for (size_t k = 0; k < count; k++) {
                to[k] = n[k] > 0 ? sum[k] / n[k] : NAN;
            }
        }
    }
}

/* Groups of a gang lie side by side. */
static void median_of_gangs(const struct groups *g, double *gang, double *scratch)
{
    for (size_t i = 0; i < g->gangs; i++) {
        gang[i] = NAN;
    }
    for (size_t i = 0, k; i < g->n; i = k) {
        for (k = i; k < g->n && g->v[k].gang == g->v[i].gang; k++) {
            scratch[k - i] = g->v[k].x;
        }
        gang[g->v[i].gang] = nt_median(scratch, k - i);
    }
}

struct nt_est nt_drift_of(const struct nt_drift_log *l, enum nt_drift_kind kind)
{
    const double level = 1 - NT_DRIFT_ALPHA / NT_DRIFT_COUNT;
    struct nt_est e = nt_estimate(NULL, 0, level);
    struct nt_drift_block *v = calloc(l->n + 1, sizeof(v[0]));
    struct groups g = {.v = calloc(l->n + 1, sizeof(g.v[0]))};
    uint64_t *whats = calloc(l->n + 1, sizeof(whats[0]));
    double *x = calloc(4 * (l->n + 1), sizeof(x[0]));
    size_t n = 0, known = 0;

    if (v == NULL || g.v == NULL || whats == NULL || x == NULL) {
        goto out;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].kind == kind) {
            v[n++] = l->v[i];
        }
    }
    qsort(v, n, sizeof(v[0]), by_gang);
    put_together(v, n, kind == NT_DRIFT_WITHIN, &g, whats);
    if (kind == NT_DRIFT_WITHIN) {
        median_of_gangs(&g, x, x + n + 1);
    } else {
        fit_gangs(&g, x, x + n + 1, x + 2 * (n + 1), x + 3 * (n + 1));
    }
    for (size_t i = 0; i < g.gangs; i++) {
        if (!isnan(x[i])) {
            x[known++] = x[i];
        }
    }
    if (known >= LEAST_GANGS) {
        e = kind == NT_DRIFT_WITHIN ? nt_estimate(x, known, level) : nt_drift(x, known, level);
    }
out:
    free(v);
    free(g.v);
    free(whats);
    free(x);
    return e;
}

bool nt_drift_found(const struct nt_est *e)
{
    return e->n >= LEAST_GANGS && e->lower > 0 && e->mean >= NT_DRIFT_LEAST;
}

void nt_drift_text(enum nt_drift_kind kind, const struct nt_est *e, char *out, size_t size)
{
    static const char *const what[NT_DRIFT_COUNT] = {
        [NT_DRIFT_WITHIN] = "NCCL's default within the gangs of the search: later blocks",
        [NT_DRIFT_OF_DEFAULT] = "NCCL's default in the pairs of the confirm: the last third",
        [NT_DRIFT_OF_TUNED] = "the table in the pairs of the confirm: the last third"};

    (void)snprintf(out, size,
                   "slower with time: %s took %.1f %% more than the first (%zu gangs, at least "
                   "%.1f %%): does the machine throttle?",
                   what[kind], 100 * expm1(e->mean), e->n, 100 * expm1(e->lower));
}
