/* Rows of a profile as a check sees them, and what a check says of them. */
#include "tuner/job/check_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tuner/base/text.h"

/* A row that is only said to be no slower may be this much slower; times move when they move more
 * than this. */
static const double GUARD = 1.03, MOVES = 1.05;
static const double LEVEL = 0.95, POWER = 0.8;
enum { MOST_NEEDED = 1000 };

const char *const nt_check_verdict_names[] = {[NT_CK_HOLDS] = "holds",
                                              [NT_CK_DRIFTED] = "drifted",
                                              [NT_CK_CANNOT_TELL] = "cannot tell",
                                              [NT_CK_NOT_MEASURED] = "not measured",
                                              [NT_CK_COUNT] = NULL};
const char *const nt_move_names[] = {[NT_MOVE_UNKNOWN] = "cannot tell",
                                     [NT_MOVE_SAME] = "as before",
                                     [NT_MOVE_SLOWER] = "slower",
                                     [NT_MOVE_FASTER] = "faster",
                                     [NT_MOVE_COUNT] = NULL};

static double log_of_gain(double gain)
{
    return gain < 1 ? -log1p(-gain) : NAN;
}

static int add_row(const struct nt_profile_class *c, const struct nt_profile_row *row,
                   const struct nt_case *like, struct nt_check_row *rows, size_t *n,
                   struct nt_err *err)
{
    struct nt_check_row *r = &rows[*n];

    if (*n == NT_CHECK_ROWS) {
        return nt_fail(err, NT_E_INVAL, 0, "the profile has more than %d rows and modes to check",
                       NT_CHECK_ROWS);
    }
    *r = (struct nt_check_row){.cs = *like,
                               .call = NT_CALL_DEFAULT,
                               .executed = NT_EXECUTED_NONE,
                               .was = log_of_gain(c->gain),
                               .was_lo = log_of_gain(c->interval[0]),
                               .was_hi = log_of_gain(c->interval[1]),
                               .was_default_ns = c->default_ns,
                               .was_tuned_ns = c->tuned_ns};
    r->cs.coll = (uint8_t)c->coll;
    r->cs.mode = (uint8_t)c->mode;
    r->cs.bytes = c->bytes;
    r->gains = c->verdict == NT_VD_TUNED && r->was_lo > 0;
    if (row != NULL) {
        r->min_bytes = row->min_bytes;
        r->max_bytes = row->max_bytes;
        r->call = nt_profile_row_call(row);
        r->executed = (struct nt_executed){.algo = (int8_t)row->algo,
                                           .proto = (int8_t)row->proto,
                                           .channels = (uint16_t)row->executed_channels,
                                           .warps = (uint16_t)row->executed_warps};
    }
    r->asked = r->call;
    (*n)++;
    return 0;
}

/* A class that the row is published for. */
static bool serves(const struct nt_profile_row *row, const struct nt_profile_class *c)
{
    return (c->verdict == NT_VD_TUNED || c->verdict == NT_VD_KEPT) && c->coll == row->coll &&
           c->bytes >= row->min_bytes && c->bytes <= row->max_bytes;
}

/* The middle one of the sizes that a row has evidence for, of those that gain where there are any:
 * classes of one size differ by mode. */
static uint64_t inside(const struct nt_profile_classes *all, const struct nt_profile_row *row)
{
    uint64_t size[NT_CHECK_ROWS];
    bool gains = false;
    size_t n = 0;

    for (size_t i = 0; i < all->n; i++) {
        gains = gains || (serves(row, &all->v[i]) && all->v[i].verdict == NT_VD_TUNED);
    }
    for (size_t i = 0; i < all->n && n < NT_CHECK_ROWS; i++) {
        const struct nt_profile_class *c = &all->v[i];
        size_t k = n;
        if (!serves(row, c) || (gains && c->verdict != NT_VD_TUNED)) {
            continue;
        }
        while (k > 0 && size[k - 1] >= c->bytes) {
            k--;
        }
        if (k < n && size[k] == c->bytes) {
            continue;
        }
        memmove(&size[k + 1], &size[k], (n - k) * sizeof(size[0]));
        size[k] = c->bytes;
        n++;
    }
    return n > 0 ? size[(n - 1) / 2] : 0;
}

int nt_check_rows(const struct nt_profile *p, enum nt_product *ret_product,
                  struct nt_check_row *rows, size_t *ret_n, struct nt_err *err)
{
    const struct nt_profile_product *table = &p->product[NT_TABLE], *use;
    struct nt_case like = {.dtype = NT_BF16, .place = NT_OUT_OF_PLACE};
    size_t n = 0;
    int rc = 0, dtype = -1;

    if (p->dtypes.n > 0) {
        dtype = nt_vocab_find(nt_dtype_names, "data type", p->dtypes.v[0], err);
        if (dtype < 0) {
            return dtype;
        }
        like.dtype = (uint8_t)dtype;
    }
    *ret_product =
        table->present && (table->rows.n > 0 || table->vars.n > 0) ? NT_TABLE : NT_STATIC;
    use = &p->product[*ret_product];
    for (size_t i = 0; i < use->rows.n && rc == 0; i++) {
        uint64_t bytes = inside(&use->classes, &use->rows.v[i]);
        for (size_t k = 0; k < use->classes.n && rc == 0; k++) {
            const struct nt_profile_class *c = &use->classes.v[k];
            if (serves(&use->rows.v[i], c) && c->bytes == bytes) {
                rc = add_row(c, &use->rows.v[i], &like, rows, &n, err);
            }
        }
    }
    for (size_t k = 0; k < use->classes.n && rc == 0 && use->vars.n > 0; k++) {
        const struct nt_profile_class *c = &use->classes.v[k];
        bool by_row = false;
        for (size_t i = 0; i < use->rows.n; i++) {
            by_row = by_row || serves(&use->rows.v[i], c);
        }
        if (!by_row && c->verdict == NT_VD_TUNED) {
            rc = add_row(c, NULL, &like, rows, &n, err);
        }
    }
    *ret_n = n;
    return rc;
}

/* ------------------------------------------------------------------ judging */

static double percent(double log_ratio)
{
    return -100 * expm1(-log_ratio);
}

double nt_check_spent(unsigned pairs, unsigned most)
{
    return pairs < most ? sqrt((double)pairs / most) : 1;
}

unsigned nt_check_next_look(unsigned pairs, unsigned most)
{
    return pairs < most / 2 ? 2 * pairs : most;
}

/* What would tell a row apart: pairs, by the scatter and the mean that were seen. */
static void cannot_tell(struct nt_check_row *r, double holds, double drifts, double miss,
                        double alarm)
{
    const struct nt_est *x = &r->ratio;
    double up = x->mean - holds, down = drifts - x->mean;
    size_t a = up > 0 ? nt_pairs_needed(up, x->sd, miss, POWER, MOST_NEEDED) : 0;
    size_t b = down > 0 ? nt_pairs_needed(down, x->sd, alarm, POWER, MOST_NEEDED) : 0;
    size_t need = a == 0 || (b != 0 && b < a) ? b : a;
    int n = snprintf(r->why, sizeof(r->why), "after %zu pairs between %.1f and %.1f %% less time; ",
                     x->n, percent(x->lo), percent(x->hi));

    r->verdict = NT_CK_CANNOT_TELL;
    if (need == 0) {
        (void)snprintf(r->why + n, sizeof(r->why) - (size_t)n,
                       "pairs scatter by %.1f %%, %d would not tell", percent(x->sd), MOST_NEEDED);
    } else {
        (void)snprintf(r->why + n, sizeof(r->why) - (size_t)n,
                       "pairs scatter by %.1f %%, some %zu would tell", percent(x->sd),
                       need > x->n ? need : x->n + 1);
    }
}

void nt_check_row_judge(struct nt_check_row *r, const double *log_default, const double *log_tuned,
                        size_t pairs, double miss, double alarm)
{
    const struct nt_est *x = &r->ratio;
    double holds = r->gains ? 0 : -log(GUARD), drifts = r->gains ? r->was_lo : -log(GUARD);

    r->ratio = nt_estimate_pairs(log_default, log_tuned, pairs, 1 - 2 * miss);
    r->most = nt_estimate_pairs(log_default, log_tuned, pairs, 1 - 2 * alarm).hi;
    r->log_default = nt_estimate(log_default, pairs, LEVEL);
    r->log_tuned = nt_estimate(log_tuned, pairs, LEVEL);
    r->verdict = NT_CK_NOT_MEASURED;
    r->why[0] = '\0';
    if (x->n < NT_CHECK_LEAST_PAIRS) {
        (void)snprintf(r->why, sizeof(r->why), "%zu pairs of it could be measured", x->n);
        return;
    }
    if (r->most < drifts) {
        r->verdict = NT_CK_DRIFTED;
        if (isnan(r->was)) {
            (void)snprintf(r->why, sizeof(r->why),
                           "slower: faster was proved, now %.1f %% less time", percent(x->mean));
            return;
        }
        (void)snprintf(r->why, sizeof(r->why), "%s: %.1f %% less time was proved, now %.1f %%",
                       r->most < 0 ? "slower"
                       : x->lo > 0 ? "less"
                                   : "gone",
                       percent(r->was), percent(x->mean));
    } else if (x->lo > holds) {
        r->verdict = NT_CK_HOLDS;
    } else {
        cannot_tell(r, holds, drifts, miss, alarm);
    }
}

enum nt_check_verdict nt_check_worst(const struct nt_check_row *rows, size_t n)
{
    enum nt_check_verdict worst = NT_CK_HOLDS;

    for (size_t i = 0; i < n; i++) {
        if (rows[i].verdict == NT_CK_DRIFTED) {
            return NT_CK_DRIFTED;
        }
        worst = rows[i].verdict > worst ? rows[i].verdict : worst;
    }
    return worst == NT_CK_NOT_MEASURED ? NT_CK_CANNOT_TELL : worst;
}

enum nt_move nt_check_move(const struct nt_est *log_now, double was_ns)
{
    double by;

    if (log_now->n < NT_CHECK_LEAST_PAIRS || !(was_ns > 0)) {
        return NT_MOVE_UNKNOWN;
    }
    by = log(was_ns);
    if (log_now->lo - by > log(MOVES)) {
        return NT_MOVE_SLOWER;
    }
    if (log_now->hi - by < -log(MOVES)) {
        return NT_MOVE_FASTER;
    }
    return fabs(log_now->mean - by) < log(MOVES) ? NT_MOVE_SAME : NT_MOVE_UNKNOWN;
}
