/* From entries to verdicts: repeats become means, curves mark outliers, each size is decided. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/import/internal.h"
#include "tuner/import/table_build.h"

enum { MAX_NAMES = 20000 };
/* Later rounds this much slower than every earlier one are drift, not noise. */
#define DRIFT 1.10

int nt_table_new(const char *name, enum nt_metric metric, struct nt_table **ret, struct nt_err *err)
{
    struct nt_table *t = calloc(1, sizeof(*t));
    if (t == NULL || (t->name = strdup(name)) == NULL) {
        free(t);
        return nt_fail(err, NT_E_NOMEM, 0, "%s", name);
    }
    t->metric = metric;
    *ret = t;
    return 0;
}

static void free_names(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(names[i]);
    }
    free(names);
}

void nt_table_free(struct nt_table *t)
{
    if (t != NULL) {
        free_names(t->groups, t->ngroups);
        free_names(t->arms, t->narms);
        nt_imp_notes_done(&t->notes);
        free(t->entries);
        free(t->name);
        free(t);
    }
}

/* Index of a name, added when new; -1 when there is no room. The newest are looked at first: rows
 * of one group stand together. */
static int64_t name_index(char ***names, size_t *n, const char *name)
{
    char **slot;
    char text[256];
    nt_imp_copy(text, sizeof(text), name, strlen(name));
    for (size_t i = *n; i > 0; i--) {
        if (strcmp((*names)[i - 1], text) == 0) {
            return (int64_t)i - 1;
        }
    }
    slot = nt_imp_push(names, n, sizeof(*slot), MAX_NAMES);
    if (slot == NULL) {
        return -1;
    }
    *slot = strdup(text);
    if (*slot == NULL) {
        (*n)--;
        return -1;
    }
    return (int64_t)*n - 1;
}

bool nt_table_add(struct nt_table *t, const char *group, const char *arm, const struct nt_entry *e)
{
    int64_t g = name_index(&t->groups, &t->ngroups, group);
    int64_t a = name_index(&t->arms, &t->narms, arm);
    struct nt_entry *slot;
    if (g < 0 || a < 0) {
        return false;
    }
    slot = nt_imp_push(&t->entries, &t->n, sizeof(*slot), NT_TABLE_MAX);
    if (slot == NULL) {
        return false;
    }
    *slot = *e;
    slot->group = (uint32_t)g;
    slot->arm = (uint32_t)a;
    return true;
}

/* One arm at one size. */
struct point {
    uint32_t group, arm, line, ranks;
    int8_t coll, mode;
    uint64_t bytes;
    struct nt_arm sum;
};

#define ORDER(x, y)                                                                                \
    if ((x) != (y)) {                                                                              \
        return (x) < (y) ? -1 : 1;                                                                 \
    }

static int entry_order(const void *pa, const void *pb) /* arm's curves, repeats in their order */
{
    const struct nt_entry *a = pa, *b = pb;
    ORDER(a->group, b->group)
    ORDER(a->arm, b->arm)
    ORDER(a->bytes, b->bytes)
    ORDER(a->round, b->round)
    ORDER(a->line, b->line)
    return 0;
}

static int point_order(const void *pa, const void *pb) /* sizes, arms in order of appearance */
{
    const struct point *a = pa, *b = pb;
    ORDER(a->group, b->group)
    ORDER(a->bytes, b->bytes)
    ORDER(a->arm, b->arm)
    return 0;
}

static double mean_of(const struct nt_entry *e, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += e[i].value;
    }
    return sum / (double)n;
}

/* Entries of one arm at one size into one value. */
static void collapse(struct nt_table *t, const struct nt_entry *e, size_t n, struct point *p)
{
    bool higher = t->metric != NT_TIME_US, repeats = e[0].round != NT_ROUND_UNKNOWN;
    double best = e[0].value, worst = e[0].value, mean = mean_of(e, n), sum = 0;
    *p = (struct point){.group = e->group,
                        .arm = e->arm,
                        .bytes = e->bytes,
                        .line = e->line,
                        .ranks = e->ranks,
                        .coll = e->coll,
                        .mode = e->mode};
    p->sum = (struct nt_arm){
        .name = t->arms[e->arm], .value = e->value, .sd = e->sd, .repeats = e->repeats};
    if (n == 1) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        sum += (e[i].value - mean) * (e[i].value - mean);
        best = (higher ? e[i].value > best : e[i].value < best) ? e[i].value : best;
        worst = (higher ? e[i].value < worst : e[i].value > worst) ? e[i].value : worst;
    }
    if (repeats) {
        p->sum.value = mean;
        p->sum.sd = sqrt(sum / (double)(n - 1));
        p->sum.repeats = (uint32_t)n;
        return;
    }
    p->sum.value = best;
    p->sum.overlap = true;
    nt_imp_note(
        &t->notes, NT_IMP_DUPLICATE_ENTRY, e[n - 1].line,
        "%s at %llu bytes is listed %zu times, %g to %g: the best is taken, and says nothing "
        "about noise",
        t->arms[e->arm], (unsigned long long)e->bytes, n, best, worst);
}

/* Whether the values from some round on all lie above every earlier one. Returns that round's
 * index, 0 for none. */
static size_t drift_from(const struct nt_entry *e, size_t n, bool higher)
{
    for (size_t k = 1; n >= 3 && k + 1 < n; k++) {
        double slowest = 0, fastest = INFINITY;
        for (size_t i = 0; i < n; i++) {
            double time = higher ? 1 / e[i].value : e[i].value;
            slowest = i < k && time > slowest ? time : slowest;
            fastest = i >= k && time < fastest ? time : fastest;
        }
        if (fastest > DRIFT * slowest) {
            return k;
        }
    }
    return 0;
}

struct drift {
    uint64_t first, last;
    size_t sizes, round;
    double most;
};

static bool note_drift(struct nt_table *t, const struct nt_entry *e, size_t n, struct drift *d)
{
    bool higher = t->metric != NT_TIME_US;
    size_t k = e[0].round != NT_ROUND_UNKNOWN ? drift_from(e, n, higher) : 0;
    double ratio;
    if (k == 0) {
        return false;
    }
    ratio = mean_of(e + k, n - k) / mean_of(e, k);
    ratio = higher ? 1 / ratio : ratio;
    d->first = d->sizes == 0 ? e->bytes : d->first;
    d->last = e->bytes;
    d->sizes++;
    if (ratio > d->most) {
        d->most = ratio;
        d->round = k + 1;
    }
    return true;
}

static void tell_drift(struct nt_table *t, const struct nt_entry *e, const struct drift *d)
{
    char a[24], b[24];
    if (d->sizes > 0) {
        nt_imp_note(
            &t->notes, NT_IMP_DRIFT, 0,
            "%s: rounds from number %zu on are slower than the first, up to %.1f times, at %zu "
            "sizes from %s to %s: drift, not noise; compare within interleaved rounds",
            t->arms[e->arm], d->round, d->most, d->sizes, nt_format_bytes(d->first, a, sizeof(a)),
            nt_format_bytes(d->last, b, sizeof(b)));
    }
}

/* Entries, sorted, into points; returns how many. */
static size_t to_points(struct nt_table *t, struct point *points)
{
    size_t n = 0;
    struct drift d = {0};
    for (size_t i = 0, k; i < t->n; i = k) {
        const struct nt_entry *e = &t->entries[i];
        bool curve_ends;
        for (k = i + 1; k < t->n && t->entries[k].group == e->group &&
                        t->entries[k].arm == e->arm && t->entries[k].bytes == e->bytes;) {
            k++;
        }
        collapse(t, e, k - i, &points[n++]);
        points[n - 1].sum.drift = note_drift(t, e, k - i, &d);
        curve_ends = k == t->n || t->entries[k].group != e->group || t->entries[k].arm != e->arm;
        if (curve_ends) {
            tell_drift(t, e, &d);
            d = (struct drift){0};
        }
    }
    return n;
}

static void mark_outliers(const struct nt_table *t, struct point *p, size_t n, double *time)
{
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i; k < n && p[k].group == p[i].group && p[k].arm == p[i].arm; k++) {
            time[k - i] =
                t->metric == NT_TIME_US ? p[k].sum.value : (double)p[k].bytes / p[k].sum.value;
        }
        for (size_t m = 0; m < k - i; m++) {
            nt_curve_flags(time, k - i, m, &p[i + m].sum.spike, &p[i + m].sum.dip);
        }
    }
}

/* Two arms that beat each other in turn by much and agree at the largest size, with no repeats to
 * judge by: nothing tells them from two runs of one setting. */
static void doubt_alternation(struct nt_verdict_row *rows, size_t n)
{
    double most[2] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct nt_decision *d = &rows[i].decision;
        if (rows[i].narms != 2 || rows[i].arms[0].sd >= 0 || rows[i].arms[1].sd >= 0 ||
            d->best < 0) {
            return;
        }
        most[d->best] = d->margin_pct > most[d->best] ? d->margin_pct : most[d->best];
    }
    if (n < 3 || most[0] < 10 || most[1] < 10 || rows[n - 1].decision.margin_pct >= 1) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct nt_decision *d = &rows[i].decision;
        d->verdict = NT_NO_WINNER;
        (void)snprintf(
            d->why, sizeof(d->why),
            "the two win in turn, by up to %.0f and %.0f %%, and agree at the largest size: "
            "as two runs of one setting would",
            most[0], most[1]);
    }
}

int nt_table_decide(struct nt_table *t, struct nt_verdicts *ret, struct nt_err *err)
{
    struct nt_verdicts v = {0};
    struct point *p = calloc(t->n + 1, sizeof(*p));
    double *time = calloc(t->n + 1, sizeof(*time));
    size_t n, max = NT_TABLE_MAX, from = 0;
    int rc = 0;
    if (p == NULL || time == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "%s", t->name);
        goto out;
    }
    if (t->n > 0) {
        qsort(t->entries, t->n, sizeof(*t->entries), entry_order);
    }
    n = to_points(t, p);
    mark_outliers(t, p, n, time);
    qsort(p, n, sizeof(*p), point_order);
    for (size_t i = 0, k; i < n; i = k) {
        struct nt_verdict_row *row = nt_imp_push(&v.rows, &v.n, sizeof(*row), max);
        for (k = i; k < n && p[k].group == p[i].group && p[k].bytes == p[i].bytes;) {
            k++;
        }
        if (row == NULL || (row->arms = calloc(k - i, sizeof(*row->arms))) == NULL) {
            rc = nt_fail(err, NT_E_NOMEM, 0, "%s", t->name);
            goto out;
        }
        row->group = p[i].group;
        row->bytes = p[i].bytes;
        row->ranks = p[i].ranks;
        row->coll = p[i].coll;
        row->mode = p[i].mode;
        for (size_t m = i; m < k; m++) {
            row->arms[row->narms++] = p[m].sum;
        }
        nt_decide(row->arms, row->narms, t->metric != NT_TIME_US, &row->decision);
    }
    for (size_t i = 1; i <= v.n; i++) {
        if (i == v.n || v.rows[i].group != v.rows[from].group) {
            doubt_alternation(v.rows + from, i - from);
            from = i;
        }
    }
    *ret = v;
    v = (struct nt_verdicts){0};
out:
    nt_verdicts_done(&v);
    free(p);
    free(time);
    return rc;
}

void nt_verdicts_done(struct nt_verdicts *v)
{
    for (size_t i = 0; i < v->n; i++) {
        free(v->rows[i].arms);
    }
    free(v->rows);
    *v = (struct nt_verdicts){0};
}

json_t *nt_verdicts_json(const struct nt_table *t, const struct nt_verdicts *v)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < v->n; i++) {
        const struct nt_verdict_row *r = &v->rows[i];
        const struct nt_decision *d = &r->decision;
        const struct nt_arm *best = d->best >= 0 ? &r->arms[d->best] : NULL;
        const struct nt_arm *second = d->second >= 0 ? &r->arms[d->second] : NULL;
        (void)json_array_append_new(
            rows,
            json_pack("{s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "group",
                      nt_json_text(t->groups[r->group]), "bytes", (json_int_t)r->bytes, "best",
                      best != NULL ? nt_json_text(best->name) : json_null(), "best_value",
                      best != NULL ? json_real(best->value) : json_null(), "second",
                      second != NULL ? nt_json_text(second->name) : json_null(), "second_value",
                      second != NULL ? json_real(second->value) : json_null(), "margin_pct",
                      isfinite(d->margin_pct) ? json_real(d->margin_pct) : json_null(), "verdict",
                      nt_verdict_names[d->verdict], "why", nt_json_text(d->why)));
    }
    return json_pack("{s:o, s:s, s:o, s:o}", "table", nt_json_text(t->name), "metric",
                     nt_metric_names[t->metric], "verdicts", rows, "notes",
                     nt_imp_notes_json(&t->notes));
}

void nt_verdicts_text(const struct nt_table *t, const struct nt_verdicts *v, struct nt_buf *out)
{
    for (size_t i = 0; i < v->n; i++) {
        const struct nt_verdict_row *r = &v->rows[i];
        const struct nt_decision *d = &r->decision;
        char size[24];
        if (i == 0 || r->group != v->rows[i - 1].group) {
            nt_buf_printf(out, "%s: %s (%s)\n", t->name, t->groups[r->group],
                          nt_metric_names[t->metric]);
        }
        nt_buf_printf(out, "%10s  ", nt_format_bytes(r->bytes, size, sizeof(size)));
        if (d->best >= 0) {
            nt_buf_printf(out, "%-22s %10.2f", r->arms[d->best].name, r->arms[d->best].value);
        }
        if (d->second >= 0) {
            nt_buf_printf(out, "  %-22s %10.2f ", r->arms[d->second].name,
                          r->arms[d->second].value);
            if (d->margin_pct > 9999) { /* not a figure that anybody measured */
                nt_buf_puts(out, "  >9999 %");
            } else {
                nt_buf_printf(out, "%7.1f %%", d->margin_pct);
            }
        }
        nt_buf_printf(out, "  %s%s%s\n", nt_verdict_words[d->verdict],
                      d->why[0] != '\0' ? ": " : "", d->why);
    }
    nt_imp_notes_text(&t->notes, t->name, out);
}

static void csv_cell(struct nt_buf *out, const char *text)
{
    if (strpbrk(text, ",\"\n") == NULL) {
        nt_buf_puts(out, text);
        return;
    }
    nt_buf_puts(out, "\"");
    for (; *text != '\0'; text++) {
        nt_buf_printf(out, *text == '"' ? "\"\"" : "%c", *text);
    }
    nt_buf_puts(out, "\"");
}

void nt_verdicts_csv(const struct nt_table *t, const struct nt_verdicts *v, struct nt_buf *out)
{
    nt_buf_puts(
        out, "table,group,size_bytes,best,best_value,second,second_value,margin_pct,verdict,why\n");
    for (size_t i = 0; i < v->n; i++) {
        const struct nt_verdict_row *r = &v->rows[i];
        const struct nt_decision *d = &r->decision;
        csv_cell(out, t->name);
        nt_buf_puts(out, ",");
        csv_cell(out, t->groups[r->group]);
        nt_buf_printf(out, ",%llu,", (unsigned long long)r->bytes);
        csv_cell(out, d->best >= 0 ? r->arms[d->best].name : "");
        nt_buf_printf(out, ",%.6g,", d->best >= 0 ? r->arms[d->best].value : 0.0);
        csv_cell(out, d->second >= 0 ? r->arms[d->second].name : "");
        if (d->second >= 0) {
            nt_buf_printf(out, ",%.6g,%.1f,", r->arms[d->second].value, d->margin_pct);
        } else {
            nt_buf_puts(out, ",,,");
        }
        nt_buf_printf(out, "%s,", nt_verdict_names[d->verdict]);
        csv_cell(out, d->why);
        nt_buf_puts(out, "\n");
    }
}
