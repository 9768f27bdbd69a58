/* Which points make up which curve. */
#include "tuner/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {[NT_SERIES_DEFAULT] = "default",
                                         [NT_SERIES_AS_FOUND] = "as found",
                                         [NT_SERIES_TABLE] = "tuned (table)",
                                         [NT_SERIES_STATIC] = "tuned (static)",
                                         [NT_SERIES_RUNNER] = NULL}; /* its setting */

/* What has a place on logarithmic axes. */
static void add_point(struct nt_figures *f, size_t *n, struct nt_figure_point x)
{
    if (isfinite(x.ns) && x.ns > 0 && x.bytes > 0 && x.name != NULL) {
        if (!isfinite(x.lo_ns) || !isfinite(x.hi_ns)) {
            x.lo_ns = x.hi_ns = NAN;
        }
        f->points[(*n)++] = x;
    }
}

static struct nt_figure_point blank(const struct nt_profile_class *c, int kind, double ns)
{
    return (struct nt_figure_point){.coll = c->coll,
                                    .mode = c->mode,
                                    .kind = kind,
                                    .name = kind_names[kind],
                                    .bytes = c->bytes,
                                    .ns = ns,
                                    .lo_ns = NAN,
                                    .hi_ns = NAN,
                                    .gain = NAN,
                                    .gain_lo = NAN,
                                    .gain_hi = NAN};
}

/* The interval of a class is that of its gain over the faster baseline. */
static struct nt_figure_point tuned(const struct nt_profile_class *c, enum nt_product product)
{
    struct nt_figure_point x =
        blank(c, product == NT_TABLE ? NT_SERIES_TABLE : NT_SERIES_STATIC, c->tuned_ns);
    double base = fmin(c->default_ns, c->as_found_ns);

    x.published = c->verdict == NT_VD_TUNED || c->verdict == NT_VD_KEPT;
    x.gain = c->gain;
    x.gain_lo = c->interval[0];
    x.gain_hi = c->interval[1];
    x.lo_ns = base * (1 - c->interval[1]);
    x.hi_ns = base * (1 - c->interval[0]);
    return x;
}

static void add_class(struct nt_figures *f, size_t *n, const struct nt_report_in *in,
                      const struct nt_profile_class *c, enum nt_product product)
{
    struct nt_figure_point base = blank(c, NT_SERIES_DEFAULT, c->default_ns);

    base.published = true;
    add_point(f, n, base);
    add_point(f, n, blank(c, NT_SERIES_AS_FOUND, c->as_found_ns));
    if (c->verdict != NT_VD_DEFAULT) {
        add_point(f, n, tuned(c, product));
    }
    for (size_t i = 0; in->narms == 0 && i < c->runners_up.n; i++) {
        struct nt_figure_point x = blank(c, NT_SERIES_RUNNER, c->runners_up.v[i].ns);
        x.name = c->runners_up.v[i].setting;
        if (x.name == NULL || strcmp(x.name, "default") != 0) {
            add_point(f, n, x);
        }
    }
}

static void add_arm(struct nt_figures *f, size_t *n, const struct nt_report_arm *a)
{
    struct nt_figure_point x = {.coll = a->coll,
                                .mode = a->mode,
                                .kind = NT_SERIES_RUNNER,
                                .name = a->setting,
                                .bytes = a->bytes,
                                .ns = a->ns,
                                .lo_ns = a->lo_ns,
                                .hi_ns = a->hi_ns,
                                .gain = NAN,
                                .gain_lo = NAN,
                                .gain_hi = NAN};
    if (strcmp(a->setting, "default") == 0) {
        x.kind = NT_SERIES_DEFAULT;
        x.name = kind_names[NT_SERIES_DEFAULT];
    }
    if (!a->rejected) {
        add_point(f, n, x);
    }
}

/* ------------------------------------------------------------------ order */

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int by_place(const void *a, const void *b)
{
    const struct nt_figure_point *x = a, *y = b;
    int order = ORDER(x->coll, y->coll);

    order = order != 0 ? order : ORDER(x->mode, y->mode);
    order = order != 0 ? order : ORDER(x->kind, y->kind);
    order = order != 0 ? order : strcmp(x->name, y->name);
    order = order != 0 ? order : ORDER(x->bytes, y->bytes);
    return order != 0 ? order : ORDER(y->published, x->published);
}

/* One point a size and series: both products and the search know the default. The profile's time is
 * kept, with the spread that the search saw. */
static size_t distinct(struct nt_figure_point *v, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        struct nt_figure_point *k = kept > 0 ? &v[kept - 1] : NULL;
        bool same = k != NULL && k->coll == v[i].coll && k->mode == v[i].mode &&
                    k->kind == v[i].kind && k->bytes == v[i].bytes &&
                    strcmp(k->name, v[i].name) == 0;
        if (!same) {
            v[kept++] = v[i];
        } else if (isnan(k->lo_ns)) {
            k->lo_ns = v[i].lo_ns * k->ns / v[i].ns;
            k->hi_ns = v[i].hi_ns * k->ns / v[i].ns;
        }
    }
    return kept;
}

static int by_bytes(const void *a, const void *b)
{
    const struct nt_figure_point *x = a, *y = b;
    return ORDER(x->bytes, y->bytes);
}

/* Where a setting takes much longer than the default it is no runner-up. Those points go; what is
 * left is worth a look by how near to the default or below it it is, at how many sizes. */
static void keep_near(struct nt_series *s, const struct nt_series *base)
{
    struct nt_figure_point *v = (struct nt_figure_point *)(uintptr_t)s->v; /* of our own pool */
    size_t kept = 0;

    for (size_t i = 0; i < s->n && base->n > 0; i++) {
        const struct nt_figure_point *d =
            bsearch(&v[i], base->v, base->n, sizeof(base->v[0]), by_bytes);
        if (d != NULL && v[i].ns <= NT_FIGURE_NEAR * d->ns) {
            s->score += fmin(d->ns / v[i].ns, 4);
            v[kept++] = v[i];
        }
    }
    s->n = kept;
}

/* Runners-up are last and the best NT_FIGURE_RUNNERS of them are kept, best first. */
static void add_series(struct nt_figure *f, struct nt_series s)
{
    static const struct nt_series none = {0};
    bool runner = s.v[0].kind == NT_SERIES_RUNNER;
    size_t at = f->nseries, first = 0;

    if (runner) {
        keep_near(&s, f->nseries > 0 ? &f->series[0] : &none);
        for (; first < at && f->series[first].v[0].kind != NT_SERIES_RUNNER;) {
            first++;
        }
        while (at > first && f->series[at - 1].score < s.score) {
            at--;
        }
        if (s.n == 0 || at - first >= NT_FIGURE_RUNNERS) {
            return;
        }
        if (f->nseries - first == NT_FIGURE_RUNNERS) {
            f->nseries--;
        }
    }
    memmove(&f->series[at + 1], &f->series[at], (f->nseries - at) * sizeof(f->series[0]));
    f->series[at] = s;
    f->nseries++;
}

static size_t run_length(const struct nt_figure_point *v, size_t n, bool whole_figure)
{
    size_t k = 1;

    while (k < n && v[k].coll == v[0].coll && v[k].mode == v[0].mode &&
           (whole_figure || (v[k].kind == v[0].kind && strcmp(v[k].name, v[0].name) == 0))) {
        k++;
    }
    return k;
}

static void split(struct nt_figures *f, size_t n)
{
    for (size_t i = 0; i < n;) {
        struct nt_figure *g = &f->v[f->n++];
        size_t end = i + run_length(&f->points[i], n - i, true);
        *g = (struct nt_figure){.coll = f->points[i].coll, .mode = f->points[i].mode};
        while (i < end) {
            size_t k = run_length(&f->points[i], end - i, false);
            add_series(g, (struct nt_series){.v = &f->points[i], .n = k});
            i += k;
        }
    }
}

int nt_figures_new(const struct nt_report_in *in, struct nt_figures *ret, struct nt_err *err)
{
    struct nt_figures f = {0};
    size_t room = in->narms, n = 0;

    for (int k = 0; k < NT_PRODUCT_COUNT; k++) {
        const struct nt_profile_classes *c = &in->profile->product[k].classes;
        for (size_t i = 0; i < c->n; i++) {
            room += 3 + c->v[i].runners_up.n;
        }
    }
    f.points = calloc(room + 1, sizeof(f.points[0]));
    f.v = calloc((size_t)NT_COLL_COUNT * NT_MODE_COUNT, sizeof(f.v[0]));
    if (f.points == NULL || f.v == NULL) {
        nt_figures_free(&f);
        return nt_fail(err, NT_E_NOMEM, 0, "figures");
    }
    for (int k = NT_PRODUCT_COUNT - 1; k >= 0; k--) {
        const struct nt_profile_classes *c = &in->profile->product[k].classes;
        for (size_t i = 0; i < c->n; i++) {
            add_class(&f, &n, in, &c->v[i], (enum nt_product)k);
        }
    }
    for (size_t i = 0; i < in->narms; i++) {
        add_arm(&f, &n, &in->arms[i]);
    }
    qsort(f.points, n, sizeof(f.points[0]), by_place);
    split(&f, distinct(f.points, n));
    *ret = f;
    return 0;
}

void nt_figures_free(struct nt_figures *f)
{
    if (f != NULL) {
        free(f->points);
        free(f->v);
        *f = (struct nt_figures){0};
    }
}
