#include "tuner/search/compose.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const struct nt_compose_config nt_compose_defaults = {
    .min_gain = 0.02, .guard = 0.01, .guard_z = 1.0, .tie = 0.01};

/* Best way to cover the sizes below an index: `rows` rows worth `value`, the last of which (if the
 * size before the index has one at all) starts at `start` with `choice`. */
struct cover {
    uint32_t rows, start, choice; /* choice 0: the default serves the size before the index */
    double value;
};

struct plan {
    const struct nt_compose_config *config;
    const struct nt_compose_in *in;
    double *gain;        /* [size * n_choices + choice], NAN: may not serve the size */
    bool *usable;        /* [size]: some choice beats the default */
    double *sum;         /* [choice] gain over the row under construction, NAN: cannot serve it */
    struct cover *cover; /* [n_sizes + 1] */
};

static double weight_of_size(const struct nt_compose_in *in, size_t size)
{
    double sum = 0.0;
    for (size_t m = 0; m < in->n_modes; m++) {
        sum += in->weights == NULL ? 1.0 : in->weights[size * in->n_modes + m];
    }
    return sum;
}

/* Weighted gain of a choice at a size, NAN if a mode does not know it or may lose by it. */
static double gain_at(const struct plan *p, size_t size, size_t choice, double weight)
{
    const struct nt_compose_in *in = p->in;
    double gain = 0.0;
    for (size_t m = 0; m < in->n_modes; m++) {
        size_t cell = size * in->n_modes + m;
        const struct nt_effect *e = &in->effects[cell * in->n_choices + choice];
        double w = in->weights == NULL || weight <= 0.0 ? 1.0 : in->weights[cell];
        if (!(e->log_ratio + p->config->guard_z * e->se <= log1p(p->config->guard))) {
            return NAN;
        }
        gain -= w * e->log_ratio;
    }
    return gain / (weight > 0.0 ? weight : (double)in->n_modes);
}

/* Leaves in p->gain what may serve each size: better than the default by enough, and as good as the
 * best but for a tie. */
static void find_usable(struct plan *p)
{
    size_t n = p->in->n_choices;
    for (size_t s = 0; s < p->in->n_sizes; s++) {
        double *gain = p->gain + s * n, best = -INFINITY, least, weight = weight_of_size(p->in, s);
        gain[0] = NAN;
        for (size_t c = 1; c < n; c++) {
            gain[c] = gain_at(p, s, c, weight);
            best = fmax(best, gain[c]); /* fmax() passes over NAN */
        }
        least = fmax(best - log1p(p->config->tie), log1p(p->config->min_gain));
        p->usable[s] = best >= least;
        for (size_t c = 1; c < n; c++) {
            gain[c] = gain[c] >= least ? gain[c] : NAN;
        }
    }
}

static uint32_t rank_of(const struct plan *p, size_t choice)
{
    return p->in->tie_rank == NULL ? (uint32_t)choice : p->in->tie_rank[choice];
}

/* Of the choices that can serve the whole row: all are tied, so the smaller rank, then the gain. */
static uint32_t best_of_row(const struct plan *p)
{
    size_t best = 0;
    for (size_t c = 1; c < p->in->n_choices; c++) {
        if (!isnan(p->sum[c]) &&
            (best == 0 || rank_of(p, c) < rank_of(p, best) ||
             (rank_of(p, c) == rank_of(p, best) && p->sum[c] > p->sum[best]))) {
            best = c;
        }
    }
    return (uint32_t)best;
}

/* Extends the cover by size `s`, with a last row from each possible start. */
static void cover_size(struct plan *p, size_t s)
{
    size_t n = p->in->n_choices;
    struct cover best = p->cover[s];
    if (!p->usable[s]) {
        best.choice = 0;
        p->cover[s + 1] = best;
        return;
    }
    best.rows = UINT32_MAX;
    memset(p->sum, 0, n * sizeof(*p->sum));
    for (size_t start = s + 1; start-- > 0 && p->usable[start];) {
        double weight = weight_of_size(p->in, start), value;
        uint32_t choice;
        for (size_t c = 1; c < n; c++) {
            p->sum[c] += fmax(weight, 1e-9) * p->gain[start * n + c];
        }
        choice = best_of_row(p);
        if (choice == 0) {
            break; /* nor can a longer row be served */
        }
        value = p->cover[start].value + p->sum[choice];
        if (p->cover[start].rows + 1 < best.rows ||
            (p->cover[start].rows + 1 == best.rows && value > best.value)) {
            best = (struct cover){p->cover[start].rows + 1, (uint32_t)start, choice, value};
        }
    }
    p->cover[s + 1] = best;
}

uint64_t nt_compose_midpoint(uint64_t a, uint64_t b)
{
    uint64_t mid = (uint64_t)sqrt((double)a * (double)b);
    return mid < a ? a : mid >= b ? b - 1 : mid;
}

void nt_compose_end(const uint64_t *sizes, const bool *kept, struct nt_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t last = rows[i].last;
        bool served = i + 1 < n && rows[i + 1].first == last + 1;
        if (kept[last] && !served) {
            rows[i].max_bytes = sizes[last];
        }
    }
}

static void write_row(const struct plan *p, size_t end, const struct cover *c, struct nt_row *row)
{
    const struct nt_compose_in *in = p->in;
    double sum = 0.0, weight = 0.0;
    for (size_t s = c->start; s < end; s++) {
        double w = fmax(weight_of_size(in, s), 1e-9);
        sum += w * p->gain[s * in->n_choices + c->choice];
        weight += w;
    }
    *row = (struct nt_row){
        .min_bytes = c->start == 0
                         ? in->sizes[0]
                         : nt_compose_midpoint(in->sizes[c->start - 1], in->sizes[c->start]) + 1,
        .max_bytes = end == in->n_sizes ? in->sizes[end - 1]
                                        : nt_compose_midpoint(in->sizes[end - 1], in->sizes[end]),
        .choice = c->choice,
        .first = c->start,
        .last = (uint32_t)end - 1,
        .gain = sum / weight};
}

static size_t write_rows(const struct plan *p, struct nt_row *rows)
{
    size_t n = p->cover[p->in->n_sizes].rows, left = n;
    for (size_t end = p->in->n_sizes; end > 0;) {
        const struct cover *c = &p->cover[end];
        if (c->choice == 0) {
            end--;
            continue;
        }
        write_row(p, end, c, &rows[--left]);
        end = c->start;
    }
    return n;
}

int nt_compose(const struct nt_compose_config *config, const struct nt_compose_in *in,
               struct nt_row *rows, size_t *ret_rows, struct nt_err *err)
{
    struct plan p = {.config = config, .in = in};
    int rc = 0;
    for (size_t s = 1; s < in->n_sizes; s++) {
        if (in->sizes[s] <= in->sizes[s - 1]) {
            return nt_fail(err, NT_E_INVAL, 0, "sizes to compose rows from are not ascending");
        }
    }
    if (in->n_choices == 0 || in->n_modes == 0) {
        return nt_fail(err, NT_E_INVAL, 0, "nothing to compose rows from");
    }
    p.gain = calloc(in->n_sizes * in->n_choices + 1, sizeof(*p.gain));
    p.usable = calloc(in->n_sizes + 1, sizeof(*p.usable));
    p.sum = calloc(in->n_choices, sizeof(*p.sum));
    p.cover = calloc(in->n_sizes + 1, sizeof(*p.cover));
    if (p.gain == NULL || p.usable == NULL || p.sum == NULL || p.cover == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "%zu sizes, %zu choices", in->n_sizes, in->n_choices);
    } else {
        find_usable(&p);
        for (size_t s = 0; s < in->n_sizes; s++) {
            cover_size(&p, s);
        }
        *ret_rows = write_rows(&p, rows);
    }
    free(p.gain);
    free(p.usable);
    free(p.sum);
    free(p.cover);
    return rc;
}
