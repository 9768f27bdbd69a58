/*
 * Placement classes. Two GPU subsets are of one class when they are alike inside: the same models,
 * the same path types, NVLinks and peer access between them. What lies around them (other GPUs,
 * NICs, sockets behind an NVSwitch) does not count.
 *
 * GPUs that may change places without anything changing ("twins") are counted, not listed, so a
 * machine of 72 GPUs on one NVSwitch is as quick as one of two.
 */
#include "tuner/topology/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/rng.h"
#include "tuner/topology/canon.h"

enum { EFFORT = 100000000 }; /* subsets × ranks³ looked at, at most */

static uint32_t node_colour(const struct nt_topology *t, int gpu)
{
    const struct nt_topo_gpu *g = &t->gpus[gpu];
    const struct nt_topo_pci *p = g->pci >= 0 ? &t->pcis[g->pci] : NULL;

    if (p != NULL && p->device != 0) {
        return (uint32_t)p->vendor << 16 | p->device;
    }
    return (uint32_t)g->sm;
}

static uint32_t edge_colour(const struct nt_topology *t, int a, int b)
{
    uint8_t p2p = t->p2p[a * t->ngpus + b];
    bool off = p2p != NT_P2P_OK && p2p != NT_P2P_UNKNOWN;
    return (uint32_t)t->links[a * t->ngpus + b] << 8 | (uint32_t)off << 7 |
           t->wire[a * t->ndevs + b];
}

/* ---- one subset ---- */

/* Equal for subsets that are alike; different for all others but such as only a search tells apart
 * (strongly regular ones, which no machine is). Pairs are told by what the third ones see. */
static uint64_t look(const struct nt_topology *t, const uint16_t *gpus, int n)
{
    uint64_t sum = (uint64_t)n;

    for (int i = 0; i < n; i++) {
        uint64_t node = nt_mix64(node_colour(t, gpus[i]));
        for (int j = 0; j < n; j++) {
            uint64_t pair = 0;
            for (int k = 0; k < n; k++) {
                if (k != i && k != j) {
                    pair +=
                        nt_mix(edge_colour(t, gpus[i], gpus[k]), edge_colour(t, gpus[k], gpus[j]));
                }
            }
            if (j != i) {
                node += nt_mix(edge_colour(t, gpus[i], gpus[j]), pair);
            }
        }
        sum += nt_mix64(node);
    }
    return sum;
}

/* As NCCL would find it with these GPUs alone. */
static enum nt_path inner_path(const struct nt_topology *t, const uint16_t *gpus, int n, int a,
                               int b)
{
    for (int i = 0; i < n && t->links[a * t->ngpus + b] == 0; i++) {
        if (t->links[a * t->ngpus + gpus[i]] > 0 && t->links[gpus[i] * t->ngpus + b] > 0 &&
            !nt_has_xgmi(t)) {
            return NT_PATH_NVB;
        }
    }
    return (enum nt_path)t->wire[a * t->ndevs + b];
}

static void describe(const struct nt_topology *t, struct nt_placement *p)
{
    int nv[257] = {0}, path[NT_PATH_COUNT] = {0};
    size_t at = 0;

    for (int i = 0; i < p->ngpus; i++) {
        for (int j = 0; j < i; j++) {
            int links = t->links[p->gpus[i] * t->ngpus + p->gpus[j]];
            if (links > 0) {
                nv[links > 256 ? 256 : links]++;
            } else {
                path[inner_path(t, p->gpus, p->ngpus, p->gpus[i], p->gpus[j])]++;
            }
        }
    }
    p->text[0] = '\0';
    for (int i = 256; i > 0 && at < sizeof(p->text); i--) {
        if (nv[i] > 0) {
            at += (size_t)snprintf(p->text + at, sizeof(p->text) - at, "%s%s%d ×%d",
                                   at > 0 ? ", " : "", nt_has_xgmi(t) ? "XG" : "NV", i, nv[i]);
        }
    }
    for (int i = 0; i < NT_PATH_COUNT && at < sizeof(p->text); i++) {
        if (path[i] > 0) {
            at += (size_t)snprintf(p->text + at, sizeof(p->text) - at, "%s%s ×%d",
                                   at > 0 ? ", " : "", nt_path_names[i], path[i]);
        }
    }
    if (p->ngpus == 1) {
        char model[80];
        (void)snprintf(p->text, sizeof(p->text), "%s",
                       nt_gpu_model(t, p->gpus[0], model, sizeof(model)));
    }
}

static int name_class(const struct nt_topology *t, struct nt_placement *p, struct nt_err *err)
{
    uint32_t *node = malloc((size_t)p->ngpus * sizeof(*node));
    uint32_t *edge = malloc((size_t)p->ngpus * (size_t)p->ngpus * sizeof(*edge));
    char hex[NT_HEX_LEN + 1] = "";
    int rc = 0;

    if (node == NULL || edge == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "placement classes");
    } else {
        for (int i = 0; i < p->ngpus; i++) {
            node[i] = node_colour(t, p->gpus[i]);
            for (int j = 0; j < p->ngpus; j++) {
                edge[i * p->ngpus + j] = edge_colour(t, p->gpus[i], p->gpus[j]);
            }
        }
        rc = nt_canon(p->ngpus, node, edge, hex, err);
    }
    free(node);
    free(edge);
    if (rc == 0) {
        (void)snprintf(p->key, sizeof(p->key), "%.12s", hex);
        describe(t, p);
    }
    return rc;
}

/* Smaller is nearer. */
static uint64_t distance(const struct nt_topology *t, const struct nt_placement *p)
{
    uint64_t sum = 0;
    for (int i = 0; i < p->ngpus; i++) {
        for (int j = 0; j < i; j++) {
            int links = t->links[p->gpus[i] * t->ngpus + p->gpus[j]];
            enum nt_path path = inner_path(t, p->gpus, p->ngpus, p->gpus[i], p->gpus[j]);
            sum += (uint64_t)path * 256 + (uint64_t)(255 - (links > 255 ? 255 : links));
        }
    }
    return sum;
}

/* ---- all subsets ---- */

struct found {
    uint64_t look, subsets;
    uint16_t gpus[NT_MAX_GPUS];
};

struct finder {
    const struct nt_topology *t;
    struct nt_err *err;
    int want;
    int kind[NT_MAX_GPUS], size[NT_MAX_GPUS], nkinds; /* twin class of each GPU */
    int take[NT_MAX_GPUS];
    int64_t effort;
    struct found *v;
    int n, cap;
};

static bool twins(const struct nt_topology *t, int a, int b)
{
    if (node_colour(t, a) != node_colour(t, b)) {
        return false;
    }
    for (int i = 0; i < t->ngpus; i++) {
        if (i != a && i != b && edge_colour(t, a, i) != edge_colour(t, b, i)) {
            return false;
        }
    }
    return true;
}

static void find_twins(struct finder *f)
{
    for (int i = 0; i < f->t->ngpus; i++) {
        int j = 0;
        while (j < i && !twins(f->t, j, i)) {
            j++;
        }
        f->kind[i] = j < i ? f->kind[j] : f->nkinds++;
        f->size[f->kind[i]]++;
    }
}

/* n over k, UINT64_MAX when larger. */
static uint64_t choose(int n, int k)
{
    double guess = 1;
    uint64_t c = 1;
    k = k > n - k ? n - k : k;
    for (int i = 1; i <= k; i++) {
        guess = guess * (n - k + i) / i;
        if (guess > 1e17) {
            return UINT64_MAX;
        }
        c = c * (uint64_t)(n - k + i) / (uint64_t)i;
    }
    return c;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* The subset that f->take asks for: the first GPUs of each kind, ascending. */
static int on_subset(struct finder *f)
{
    uint16_t gpus[NT_MAX_GPUS];
    int left[NT_MAX_GPUS], n = 0;
    uint64_t subsets = 1, seen;
    struct found *v;

    memcpy(left, f->take, sizeof(left));
    for (int i = 0; i < f->t->ngpus; i++) {
        if (left[f->kind[i]] > 0) {
            left[f->kind[i]]--;
            gpus[n++] = (uint16_t)i;
        }
    }
    for (int k = 0; k < f->nkinds; k++) {
        subsets = times(subsets, choose(f->size[k], f->take[k]));
    }
    f->effort -= (int64_t)n * n * n + 1;
    if (f->effort < 0) {
        return nt_fail(f->err, NT_E_INVAL, 0, "too many kinds of subsets of %d GPUs to look at",
                       f->want);
    }
    seen = look(f->t, gpus, n);
    for (int i = 0; i < f->n; i++) {
        if (f->v[i].look == seen) {
            f->v[i].subsets = plus(f->v[i].subsets, subsets);
            for (int k = 0; k < n; k++) { /* keep the first in order */
                if (gpus[k] != f->v[i].gpus[k]) {
                    if (gpus[k] < f->v[i].gpus[k]) {
                        memcpy(f->v[i].gpus, gpus, sizeof(gpus));
                    }
                    break;
                }
            }
            return 0;
        }
    }
    if (f->n == f->cap) {
        int cap = f->cap == 0 ? 16 : f->cap * 2;
        v = cap > 1 << 14 ? NULL : realloc(f->v, (size_t)cap * sizeof(*v));
        if (v == NULL) {
            return nt_fail(f->err, NT_E_INVAL, 0, "too many placement classes of %d GPUs", f->want);
        }
        f->v = v;
        f->cap = cap;
    }
    v = &f->v[f->n++];
    *v = (struct found){.look = seen, .subsets = subsets};
    memcpy(v->gpus, gpus, (size_t)n * sizeof(*gpus));
    return 0;
}

/* All ways to take `left` GPUs from the kinds from k on. */
static int enumerate(struct finder *f, int k, int left, int room)
{
    int rc = 0;

    if (left == 0) {
        for (int i = k; i < f->nkinds; i++) {
            f->take[i] = 0;
        }
        return on_subset(f);
    }
    if (left > room) {
        return 0; /* not enough GPUs left */
    }
    for (int n = f->size[k] < left ? f->size[k] : left; n >= 0 && rc == 0; n--) {
        f->take[k] = n;
        rc = enumerate(f, k + 1, left - n, room - f->size[k]);
    }
    return rc;
}

struct ranked {
    struct nt_placement p;
    uint64_t distance;
};

static int by_distance(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->distance != y->distance) {
        return x->distance < y->distance ? -1 : 1;
    }
    return strcmp(x->p.key, y->p.key);
}

static int rank_classes(struct finder *f, struct nt_placements *ret)
{
    struct ranked *r = calloc((size_t)f->n + 1, sizeof(*r));
    struct nt_placement *v = calloc((size_t)f->n + 1, sizeof(*v));
    int rc = 0;

    if (r == NULL || v == NULL) {
        rc = nt_fail(f->err, NT_E_NOMEM, 0, "placement classes");
        goto out;
    }
    for (int i = 0; i < f->n && rc == 0; i++) {
        r[i].p.ngpus = f->want;
        r[i].p.subsets = f->v[i].subsets;
        memcpy(r[i].p.gpus, f->v[i].gpus, sizeof(r[i].p.gpus));
        r[i].distance = distance(f->t, &r[i].p);
        rc = name_class(f->t, &r[i].p, f->err);
    }
    if (rc == 0) {
        qsort(r, (size_t)f->n, sizeof(*r), by_distance);
        for (int i = 0; i < f->n; i++) {
            v[i] = r[i].p;
        }
        *ret = (struct nt_placements){.v = v, .n = f->n};
        v = NULL;
    }
out:
    free(r);
    free(v);
    return rc;
}

int nt_placements_find(const struct nt_topology *t, int ngpus, struct nt_placements *ret,
                       struct nt_err *err)
{
    struct nt_err spare;
    struct finder *f;
    int rc;

    err = err != NULL ? err : &spare;
    if (ngpus < 1 || ngpus > t->ngpus) {
        return nt_fail(err, NT_E_INVAL, 0, "%d ranks, but the machine has %d GPUs", ngpus,
                       t->ngpus);
    }
    f = calloc(1, sizeof(*f));
    if (f == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "placement classes");
    }
    f->t = t;
    f->err = err;
    f->want = ngpus;
    f->effort = EFFORT;
    find_twins(f);
    rc = enumerate(f, 0, ngpus, t->ngpus);
    if (rc == 0) {
        rc = rank_classes(f, ret);
    }
    free(f->v);
    free(f);
    return rc;
}

/* Ways to take k GPUs from the kinds so far, kind by kind. */
uint64_t nt_placements_cost(const struct nt_topology *t, int ngpus)
{
    uint64_t ways[NT_MAX_GPUS + 1] = {1};
    struct finder *f = calloc(1, sizeof(*f));

    if (f == NULL || ngpus < 1 || ngpus > t->ngpus) {
        free(f);
        return UINT64_MAX;
    }
    f->t = t;
    find_twins(f);
    for (int k = 0; k < f->nkinds; k++) {
        for (int n = ngpus; n > 0; n--) {
            for (int take = 1; take <= f->size[k] && take <= n; take++) {
                ways[n] = plus(ways[n], ways[n - take]);
            }
        }
    }
    free(f);
    return times(ways[ngpus], (uint64_t)ngpus * (uint64_t)ngpus * (uint64_t)ngpus) > EFFORT
               ? UINT64_MAX
               : ways[ngpus];
}

void nt_placements_done(struct nt_placements *p)
{
    free(p->v);
    *p = (struct nt_placements){0};
}

static int ascending(const void *a, const void *b)
{
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

int nt_placement_of(const struct nt_topology *t, const uint16_t *gpus, int ngpus,
                    struct nt_placement *ret, struct nt_err *err)
{
    struct nt_placement p = {.ngpus = ngpus};
    struct nt_err spare;
    int rc;

    err = err != NULL ? err : &spare;
    if (ngpus < 1 || ngpus > t->ngpus) {
        return nt_fail(err, NT_E_INVAL, 0, "%d ranks, but the machine has %d GPUs", ngpus,
                       t->ngpus);
    }
    memcpy(p.gpus, gpus, (size_t)ngpus * sizeof(*gpus));
    qsort(p.gpus, (size_t)ngpus, sizeof(*p.gpus), ascending);
    for (int i = 0; i < ngpus; i++) {
        if (p.gpus[i] >= t->ngpus || (i > 0 && p.gpus[i] == p.gpus[i - 1])) {
            return nt_fail(err, NT_E_INVAL, 0, "GPU %d is not there, or is named twice", p.gpus[i]);
        }
    }
    rc = name_class(t, &p, err);
    if (rc == 0) {
        *ret = p;
    }
    return rc;
}
