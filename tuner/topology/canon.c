#include "tuner/topology/canon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/buf.h"

/* Effort of one search in tree nodes × (graph nodes)²; depth of taking apart. Both depend on the
 * graph alone and not on its order, so equal graphs stop at the same point. */
enum { SEARCH_EFFORT = 1 << 19, MAX_DEPTH = 48, MAX_SEARCH = 64 };

struct graph {
    int n; /* row length of edge */
    const uint32_t *node, *edge;
};

static uint32_t edge_of(const struct graph *g, int a, int b)
{
    return g->edge[a * g->n + b];
}

/* ---- colour refinement over a subset of the nodes ---- */

struct refiner {
    const struct graph *g;
    const int *v; /* the subset */
    int m;
    uint64_t *sig; /* m rows of m + 1: own colour, then sorted (edge colour, colour) */
    int *order;    /* m */
    bool failed;
};

static int by_u64(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int row_compare(const struct refiner *r, int a, int b)
{
    const uint64_t *x = r->sig + (size_t)a * ((size_t)r->m + 1);
    const uint64_t *y = r->sig + (size_t)b * ((size_t)r->m + 1);
    for (int i = 0; i <= r->m; i++) {
        if (x[i] != y[i]) {
            return x[i] < y[i] ? -1 : 1;
        }
    }
    return 0;
}

static int order_compare(const void *a, const void *b, void *arg)
{
    return row_compare(arg, *(const int *)a, *(const int *)b);
}

/* Splits colours until none splits further; colours become ranks that depend on the structure only.
 * Returns how many there are. */
static int refine(struct refiner *r, int *colour)
{
    int count = -1;

    for (;;) {
        int ranks = 0, *rank = r->order;
        for (int i = 0; i < r->m; i++) {
            uint64_t *row = r->sig + (size_t)i * ((size_t)r->m + 1);
            row[0] = (uint64_t)colour[i];
            for (int j = 0, k = 1; j < r->m; j++) {
                if (j != i) {
                    row[k++] =
                        (uint64_t)edge_of(r->g, r->v[i], r->v[j]) << 32 | (uint32_t)colour[j];
                }
            }
            row[r->m] = 0;
            qsort(row + 1, (size_t)r->m - 1, sizeof(*row), by_u64);
            r->order[i] = i;
        }
        qsort_r(rank, (size_t)r->m, sizeof(*rank), order_compare, r);
        for (int i = 0; i < r->m; i++) {
            ranks += i > 0 && row_compare(r, rank[i - 1], rank[i]) != 0;
            colour[rank[i]] = ranks;
        }
        ranks++;
        if (ranks == count) {
            return count;
        }
        count = ranks;
    }
}

/* ---- search for the least labelling ---- */

struct search {
    struct refiner r;
    int budget;
    uint32_t *best, *form; /* m × m: node colours on the diagonal */
    bool have_best;
};

static bool twins(const struct refiner *r, int a, int b)
{
    for (int i = 0; i < r->m; i++) {
        if (i != a && i != b &&
            edge_of(r->g, r->v[a], r->v[i]) != edge_of(r->g, r->v[b], r->v[i])) {
            return false;
        }
    }
    return true;
}

static void leaf(struct search *s, const int *colour)
{
    int m = s->r.m, where[MAX_SEARCH];

    for (int i = 0; i < m; i++) {
        where[colour[i]] = s->r.v[i];
    }
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < m; j++) {
            s->form[i * m + j] =
                i == j ? s->r.g->node[where[i]] : edge_of(s->r.g, where[i], where[j]);
        }
    }
    for (int i = 0; i < m * m && s->have_best; i++) {
        if (s->form[i] != s->best[i]) {
            if (s->form[i] > s->best[i]) {
                return;
            }
            break;
        }
    }
    memcpy(s->best, s->form, (size_t)m * (size_t)m * sizeof(*s->best));
    s->have_best = true;
}

/* The first colour with several nodes; its size, or 0. */
static int target_cell(const int *colour, int m, int *ret_colour)
{
    int size[MAX_SEARCH] = {0};
    for (int i = 0; i < m; i++) {
        size[colour[i]]++;
    }
    for (int c = 0; c < m; c++) {
        if (size[c] > 1) {
            *ret_colour = c;
            return size[c];
        }
    }
    return 0;
}

static void search(struct search *s, const int *colour_in)
{
    int colour[MAX_SEARCH], cell = 0, m = s->r.m, first = -1;
    bool all_twins = true;

    if (--s->budget < 0) {
        return;
    }
    memcpy(colour, colour_in, (size_t)m * sizeof(*colour));
    (void)refine(&s->r, colour);
    if (target_cell(colour, m, &cell) == 0) {
        leaf(s, colour);
        return;
    }
    for (int i = 0; i < m && all_twins; i++) {
        if (colour[i] == cell) {
            first = first < 0 ? i : first;
            all_twins = first == i || twins(&s->r, first, i);
        }
    }
    for (int i = 0; i < m && s->budget >= 0; i++) {
        int next[MAX_SEARCH];
        if (colour[i] != cell) {
            continue;
        }
        for (int j = 0; j < m; j++) { /* i alone before the rest of its cell */
            next[j] = colour[j] * 2 + (colour[j] == cell && j != i);
        }
        search(s, next);
        if (all_twins) {
            return; /* the others give the same */
        }
    }
}

static bool refiner_init(struct refiner *r, const struct graph *g, const int *v, int m)
{
    *r = (struct refiner){.g = g, .v = v, .m = m};
    r->sig = malloc((size_t)m * ((size_t)m + 1) * sizeof(*r->sig));
    r->order = malloc((size_t)m * sizeof(*r->order));
    if (r->sig == NULL || r->order == NULL) {
        free(r->sig);
        free(r->order);
        return false;
    }
    return true;
}

static void refiner_done(struct refiner *r)
{
    free(r->sig);
    free(r->order);
}

/* Fallback: the colours of refinement, as a multiset of rows. */
static void refined_name(struct refiner *r, int *colour, struct nt_buf *out)
{
    (void)refine(r, colour);
    nt_buf_printf(out, "r%d", r->m);
    for (int i = 0; i < r->m; i++) {
        const uint64_t *row = r->sig + (size_t)r->order[i] * ((size_t)r->m + 1);
        nt_buf_printf(out, "/%u", r->g->node[r->v[r->order[i]]]);
        for (int j = 0; j < r->m; j++) {
            nt_buf_printf(out, ",%llx", (unsigned long long)row[j]);
        }
    }
}

static int indivisible(const struct graph *g, const int *v, int m, struct nt_buf *out,
                       struct nt_err *err)
{
    struct search s = {.budget = SEARCH_EFFORT / (m * m)};
    int rc = 0, *colour;

    if (!refiner_init(&s.r, g, v, m)) {
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    colour = malloc((size_t)m * sizeof(*colour));
    s.best = malloc((size_t)m * (size_t)m * sizeof(*s.best));
    s.form = malloc((size_t)m * (size_t)m * sizeof(*s.form));
    if (colour == NULL || s.best == NULL || s.form == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "topology");
        goto out;
    }
    for (int i = 0; i < m; i++) {
        colour[i] = (int)g->node[v[i]];
    }
    if (m <= MAX_SEARCH) {
        search(&s, colour);
    }
    if (m <= MAX_SEARCH && s.budget >= 0) {
        nt_buf_printf(out, "p%d", m);
        for (int i = 0; i < m * m; i++) {
            nt_buf_printf(out, ",%x", s.best[i]);
        }
    } else {
        refined_name(&s.r, colour, out);
    }
out:
    refiner_done(&s.r);
    free(colour);
    free(s.best);
    free(s.form);
    return rc;
}

/* ---- taking apart ---- */

/* Parts of v that are joined to each other by edges of one colour only. Writes the part of each
 * node to part[] and returns how many there are: 1 when v cannot be taken apart. */
static int split_by(const struct graph *g, const int *v, int m, uint32_t joint, int *part)
{
    int parts = 0, *queue = part + m;

    for (int i = 0; i < m; i++) {
        part[i] = -1;
    }
    for (int i = 0; i < m; i++) {
        int head = 0, tail = 0;
        if (part[i] >= 0) {
            continue;
        }
        part[i] = parts;
        queue[tail++] = i;
        while (head < tail) {
            int a = queue[head++];
            for (int b = 0; b < m; b++) {
                if (part[b] < 0 && edge_of(g, v[a], v[b]) != joint) {
                    part[b] = parts;
                    queue[tail++] = b;
                }
            }
        }
        parts++;
    }
    return parts;
}

/* The one colour that can join all parts occurs at every node: only the first node's are tried. */
static int split(const struct graph *g, const int *v, int m, int *part, uint32_t *ret_joint)
{
    for (int i = 1; i < m; i++) {
        uint32_t c = edge_of(g, v[0], v[i]);
        bool tried = false;
        for (int j = 1; j < i && !tried; j++) {
            tried = edge_of(g, v[0], v[j]) == c;
        }
        if (!tried && split_by(g, v, m, c, part) > 1) {
            *ret_joint = c;
            return split_by(g, v, m, c, part);
        }
    }
    return 1;
}

static int by_text(const void *a, const void *b)
{
    return memcmp(a, b, NT_HEX_LEN);
}

static int name_of(const struct graph *g, const int *v, int m, int depth, char *hex,
                   struct nt_err *err);

static int name_of_parts(const struct graph *g, const int *v, int m, int depth, const int *part,
                         int parts, struct nt_buf *out, struct nt_err *err)
{
    int rc = 0, *sub = malloc((size_t)m * sizeof(*sub));
    char(*names)[NT_HEX_LEN + 1] = malloc((size_t)parts * sizeof(*names));

    if (sub == NULL || names == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "topology");
        goto out;
    }
    for (int p = 0; p < parts && rc == 0; p++) {
        int k = 0;
        for (int i = 0; i < m; i++) {
            if (part[i] == p) {
                sub[k++] = v[i];
            }
        }
        rc = name_of(g, sub, k, depth + 1, names[p], err);
    }
    if (rc == 0) {
        qsort(names, (size_t)parts, sizeof(*names), by_text);
        for (int p = 0; p < parts; p++) {
            nt_buf_add(out, names[p], NT_HEX_LEN);
        }
    }
out:
    free(sub);
    free(names);
    return rc;
}

static int name_of(const struct graph *g, const int *v, int m, int depth, char *hex,
                   struct nt_err *err)
{
    struct nt_buf text;
    uint32_t joint = 0;
    int rc = 0, parts = 1, *part;

    nt_assert(m > 0);
    part = malloc((size_t)m * 2 * sizeof(*part));
    if (part == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    nt_buf_init(&text, 8U << 20);
    if (m > 1 && depth < MAX_DEPTH) {
        parts = split(g, v, m, part, &joint);
    }
    if (m == 1) {
        nt_buf_printf(&text, "v%x", g->node[v[0]]);
    } else if (parts > 1) {
        nt_buf_printf(&text, "s%x:", joint);
        rc = name_of_parts(g, v, m, depth, part, parts, &text, err);
    } else {
        rc = indivisible(g, v, m, &text, err);
    }
    if (rc == 0 && text.failed) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    if (rc == 0) {
        nt_sha256_hex(nt_buf_str(&text), text.len, hex);
    }
    nt_buf_done(&text);
    free(part);
    return rc;
}

int nt_canon(int n, const uint32_t *node, const uint32_t *edge, char hex[NT_HEX_LEN + 1],
             struct nt_err *err)
{
    struct graph g = {.n = n, .node = node, .edge = edge};
    int rc, *v;

    if (n <= 0) {
        nt_sha256_hex("empty", 5, hex);
        return 0;
    }
    v = malloc((size_t)n * sizeof(*v));
    if (v == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    for (int i = 0; i < n; i++) {
        v[i] = i;
    }
    rc = name_of(&g, v, n, 0, hex, err);
    free(v);
    return rc;
}
