#include "probes/model/graphs.h"
#include "probes/model/links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RING_CHANNELS = 32, MAX_CHANNELS = 64, MAX_LOCAL = 128, SEARCH_STEPS = 20000 };

/* GB/s a channel, tried from the left (NCCL's lists). */
static const float intra_old[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 0};
static const float intra_90[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3, 0};
static const float intra_100[] = {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18, 0};
static const float inter_old[] = {48, 30, 28, 24, 20, 18,   15,   12,   10,   9,
                                  7,  6,  5,  4,  3,  2.4F, 1.2F, .24F, .12F, 0};
static const float inter_90[] = {48, 45, 42, 40, 30,   24,   22,   20,   17.5F,
                                 15, 12, 6,  3,  2.4F, 1.2F, .24F, .12F, 0};
static const float inter_100[] = {96,    86, 80, 48, 45.1F, 42,   40,   30,   24,   22, 20,
                                  17.5F, 15, 12, 6,  3,     2.4F, 1.2F, .24F, .12F, 0};
static const float *const speeds[2][3] = {{intra_old, intra_90, intra_100},
                                          {inter_old, inter_90, inter_100}};

struct search {
    const struct machine *m;
    bool inter, closed;    /* closed: a ring */
    struct route *between; /* [nodes * nodes]: GPUs, then NICs; type DIS: no way */
    int nodes, nics;
    double *left; /* capacities not yet used */
    int order[MAX_LOCAL];
    bool used[MAX_LOCAL];
    double speed;
    enum nt_path limit; /* of GPU to GPU */
    enum nt_path worst, worst_inter;
    int steps;
};

static const struct route *way(const struct search *s, int a, int b)
{
    return &s->between[a * s->nodes + b];
}

static bool take(struct search *s, int a, int b)
{
    const struct route *r = way(s, a, b);

    if (r->type >= NT_PATH_NET || (a < s->m->gpus && b < s->m->gpus && r->type > s->limit)) {
        return false;
    }
    for (int i = 0; i < r->n; i++) {
        s->left[r->link[i]] -= s->speed * (double)r->share[i];
    }
    for (int i = 0; i < r->n; i++) {
        if (s->left[r->link[i]] < -1e-6) {
            for (int k = 0; k < r->n; k++) {
                s->left[r->link[k]] += s->speed * (double)r->share[k];
            }
            return false;
        }
    }
    return true;
}

static void give(struct search *s, int a, int b)
{
    const struct route *r = way(s, a, b);
    for (int i = 0; i < r->n; i++) {
        s->left[r->link[i]] += s->speed * (double)r->share[i];
    }
}

/* Does the channel that holds all GPUs end well? A ring comes home; between nodes both leave. */
static bool close_channel(struct search *s, int nic)
{
    int first = s->order[0], last = s->order[s->m->gpus - 1];

    if (s->inter) { /* a tree leaves from the GPU that it came in by */
        return take(s, s->closed ? last : first, nic);
    }
    return !s->closed || s->m->gpus < 2 || take(s, last, first);
}

/* GPUs still free, nearest first from `at`, lowest number among equals; starting behind `at` so
 * that rings go round. */
static int candidates(const struct search *s, int at, int *out)
{
    int n = 0, gpus = s->m->gpus;

    for (int i = 0; i < gpus; i++) {
        int g = (at < gpus ? at + 1 + i : i) % gpus, k = n;
        if (s->used[g]) {
            continue;
        }
        for (; k > 0; k--) {
            const struct route *x = way(s, at, out[k - 1]), *y = way(s, at, g);
            if (x->type < y->type || (x->type == y->type && x->gbs >= y->gbs)) {
                break;
            }
            out[k] = out[k - 1];
        }
        out[k] = g;
        n++;
    }
    return n;
}

static bool extend(struct search *s, int depth, int nic)
{
    int list[MAX_LOCAL], n, at = depth > 0 ? s->order[depth - 1] : nic;

    if (depth == s->m->gpus) {
        return close_channel(s, nic);
    }
    n = candidates(s, at, list);
    for (int i = 0; i < n && s->steps > 0; i++) {
        int g = list[i];
        s->steps--;
        if (depth > 0 || s->inter ? !take(s, at, g) : false) {
            continue;
        }
        s->order[depth] = g;
        s->used[g] = true;
        if (extend(s, depth + 1, nic)) {
            s->used[g] = false;
            return true;
        }
        s->used[g] = false;
        if (depth > 0 || s->inter) {
            give(s, at, g);
        }
    }
    return false;
}

static void note_types(struct search *s, int nic)
{
    int n = s->m->gpus, last = s->order[s->closed ? n - 1 : 0];

    for (int i = 0; i + 1 < n + (s->closed && !s->inter); i++) {
        enum nt_path p = way(s, s->order[i], s->order[(i + 1) % n])->type;
        s->worst = p > s->worst && n > 1 ? p : s->worst;
    }
    if (s->inter) {
        enum nt_path in = way(s, nic, s->order[0])->type, out = way(s, last, nic)->type;
        s->worst_inter = in > s->worst_inter ? in : s->worst_inter;
        s->worst_inter = out > s->worst_inter ? out : s->worst_inter;
    }
}

/* How many channels of s->speed fit, at most `most`. */
static int fit_channels(struct search *s, int most)
{
    int found = 0, idle = 0;

    memcpy(s->left, s->m->cap, (size_t)s->m->links * sizeof(s->left[0]));
    s->worst = NT_PATH_LOC;
    s->worst_inter = NT_PATH_LOC;
    s->steps = SEARCH_STEPS;
    for (int c = 0; found < most && idle < (s->inter ? s->nics : 2); c++) {
        /* Without NICs a channel starts at the first GPU that works, odd ones from the far end. */
        int nic = s->inter ? s->m->gpus + c % s->nics : c % 2 == 0 ? s->m->gpus - 1 : 0;
        memset(s->used, 0, sizeof(s->used));
        if (extend(s, 0, nic)) {
            note_types(s, nic);
            found++;
            idle = 0;
        } else {
            idle++;
        }
    }
    return found;
}

static double total_bw(const struct machine *m)
{
    double most = 0;
    for (int g = 0; g < m->gpus; g++) {
        struct route r = {.gbs = 0};
        double nv = machine_nvlink(m, g), pci = 0;
        for (int h = 0; h < m->gpus; h++) {
            if (h != g && machine_route(m, g, h, &r) && r.type > NT_PATH_NVB) {
                pci = fmax(pci, r.gbs);
            }
        }
        most = fmax(most, m->no_p2p ? pci : fmax(nv, pci));
    }
    return most > 0 ? most : 5000;
}

static void keep(const struct search *s, int channels, struct nt_graph *g)
{
    g->channels = channels;
    g->bw_intra = g->bw_inter = (float)s->speed;
    g->type_intra = s->worst;
    g->type_inter = s->inter ? s->worst_inter : NT_PATH_PIX;
    g->same_channels = !s->inter;
}

/* All path types at one speed, near ones first; true: better than *g. */
static bool try_speed(struct search *s, float speed, int least, int most, struct nt_graph *g)
{
    enum nt_path top = g->channels > 0 ? g->type_intra : NT_PATH_SYS;
    bool better = false;

    s->speed = speed;
    for (int type = NT_PATH_LOC; type <= (int)top && !better; type++) {
        int n;
        s->limit = (enum nt_path)type;
        n = fit_channels(s, most);
        if (n >= least && n > 0 && (float)n * speed > (float)g->channels * g->bw_intra) {
            keep(s, n, g);
            better = true;
        }
    }
    return better;
}

static const float *speed_list(const struct machine *m, bool inter)
{
    return speeds[inter][m->cc >= 100 ? 2 : m->cc >= 90 ? 1 : 0];
}

static void search_ring(struct search *s, struct nt_graph *g)
{
    const float *list = speed_list(s->m, s->inter);
    double most = total_bw(s->m);

    s->closed = true;
    for (; *list > 0; list++) {
        if ((double)*list > most) {
            continue;
        }
        if (g->channels > 0 &&
            (*list / g->bw_intra <= .49F || (double)((float)g->channels * g->bw_intra) >= most)) {
            break;
        }
        (void)try_speed(s, *list, 1, MAX_RING_CHANNELS, g);
    }
    /* Twice the channels at half the speed use the links as well and more multiprocessors. */
    if (g->bw_intra >= 25 && (s->m->cc <= 80 || g->bw_intra >= 50 || g->channels <= 4) &&
        g->channels * 2 <= MAX_RING_CHANNELS) {
        g->channels *= 2;
        g->bw_intra /= 2;
        g->bw_inter /= 2;
    }
}

/* As many channels as the ring has; then, as long as it goes, more inside the node. */
static void search_tree(struct search *s, int channels, struct nt_graph *g)
{
    const float *list = speed_list(s->m, s->inter), *first = list;

    s->closed = false;
    while (*list > 0 && !try_speed(s, *list, channels, channels, g)) {
        list++;
    }
    while (!s->inter && g->channels > 0 && list > first && g->bw_intra < 2 * *list) {
        struct nt_graph more = *g;
        list--;
        if (!try_speed(s, *list, channels, channels, &more)) {
            break;
        }
        *g = more;
    }
}

/* NCCL's heads share what NVLink has: 16 channels in a node, one a NIC between nodes. */
static void find_nvls(const struct machine *m, bool inter, int nics, const struct nt_graph *ring,
                      struct nt_graph *g)
{
    double least = INFINITY;
    const float *list = speed_list(m, false);

    for (int i = 0; i < m->gpus; i++) {
        least = fmin(least, m->switch_links[i] * m->link_gbs);
    }
    if (m->cc < 90 || m->gpus < 2 || least <= 0 || (inter && nics < 2)) {
        return;
    }
    *g = (struct nt_graph){.type_intra = NT_PATH_NVL, .type_inter = ring->type_inter};
    g->channels = inter ? (nics < m->gpus ? nics : m->gpus) : 16;
    while (*list > 0 && (double)(*list * (float)g->channels) > least) {
        list++;
    }
    g->bw_intra = *list;
    g->bw_inter = inter ? fminf(ring->bw_inter, *list) : *list;
}

/* Where nothing is found NCCL goes on with one very slow channel. */
static void fall_back(struct nt_graph *g)
{
    if (g->channels == 0) {
        *g = (struct nt_graph){.channels = 1,
                               .bw_intra = .1F,
                               .bw_inter = .1F,
                               .type_intra = NT_PATH_SYS,
                               .type_inter = NT_PATH_SYS};
    }
}

static int find_routes(struct search *s, struct nt_err *err)
{
    const struct nt_topology *t = s->m->t;

    s->nics = t->nnets > 0 ? t->nnets : 1;
    s->nics = s->nics > MAX_LOCAL ? MAX_LOCAL : s->nics;
    s->nodes = s->m->gpus + (s->inter ? s->nics : 0);
    s->between = calloc((size_t)s->nodes * (size_t)s->nodes, sizeof(s->between[0]));
    s->left = calloc((size_t)s->m->links, sizeof(s->left[0]));
    if (s->between == NULL || s->left == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "routes of the machine");
    }
    for (int a = 0; a < s->nodes; a++) {
        for (int b = 0; b < s->nodes; b++) {
            struct route *r = &s->between[a * s->nodes + b];
            int da = a < s->m->gpus ? a : t->ngpus + a - s->m->gpus;
            int db = b < s->m->gpus ? b : t->ngpus + b - s->m->gpus;
            if ((a >= s->m->gpus && b >= s->m->gpus) || a == b || !machine_route(s->m, da, db, r)) {
                r->type = NT_PATH_DIS;
            }
        }
    }
    return 0;
}

static int clamp_channels(int n, const struct nt_comm_opts *o)
{
    n = n > MAX_CHANNELS ? MAX_CHANNELS : n;
    n = o->max_channels > 0 && n > (int)o->max_channels ? (int)o->max_channels : n;
    return n < (int)o->min_channels ? (int)o->min_channels : n;
}

static void count_channels(struct nt_comm *c, const struct nt_comm_opts *o)
{
    struct nt_graph *ring = &c->graph[NT_GRAPH_RING], *tree = &c->graph[NT_GRAPH_TREE];
    int n = ring->channels < tree->channels ? ring->channels : tree->channels;

    ring->channels = tree->channels = n;
    n *= 2;
    if (c->cc_min >= 90 && c->nodes > 1 && ring->bw_intra > 45 && n < 16) {
        n *= 2;
    }
    c->channels = clamp_channels(n, o);
    c->nvls_channels = clamp_channels(c->cc_min >= 100 ? (c->nodes > 1 ? 32 : 24) : 16, o);
}

static int search_all(const struct machine *m, const struct nt_comm_opts *o, struct nt_comm *c,
                      struct nt_err *err)
{
    struct search s = {.m = m, .inter = c->nodes > 1};
    int rc = find_routes(&s, err);

    if (rc == 0) {
        struct nt_graph *g = c->graph;
        search_ring(&s, &g[NT_GRAPH_RING]);
        fall_back(&g[NT_GRAPH_RING]);
        search_tree(&s, g[NT_GRAPH_RING].channels, &g[NT_GRAPH_TREE]);
        fall_back(&g[NT_GRAPH_TREE]);
        /* With one GPU a node Hopper and later settle for the simple pattern. */
        g[NT_GRAPH_TREE].simple_tree = c->nodes > 1 && m->gpus == 1 && m->cc >= 90;
        if (!o->no_nvls && !o->no_p2p) {
            find_nvls(m, s.inter, m->t->nnets, &g[NT_GRAPH_RING], &g[NT_GRAPH_NVLS]);
        }
        c->nvls = g[NT_GRAPH_NVLS].channels > 1;
        count_channels(c, o);
    }
    free(s.between);
    free(s.left);
    return rc;
}

int nt_comm_init(const struct nt_topology *t, const struct nt_comm_opts *opts, struct nt_comm *ret,
                 struct nt_buf *note, struct nt_err *err)
{
    int nodes = opts->nodes > 0 ? (int)opts->nodes : 1;
    int ranks = opts->ranks > 0 ? (int)opts->ranks : t->ngpus * nodes;
    struct machine m;
    int rc;

    if (t->ngpus < 1) {
        return nt_fail(err, NT_E_INVAL, 0, "this topology has no GPU");
    }
    if (ranks < 2 || ranks % nodes != 0 || ranks / nodes > t->ngpus || ranks / nodes > MAX_LOCAL) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%d ranks on %d nodes: at least two, the same number on each, and at most "
                       "%d a node here",
                       ranks, nodes, t->ngpus > MAX_LOCAL ? MAX_LOCAL : t->ngpus);
    }
    rc = machine_init(&m, t, ranks / nodes, opts->no_p2p, note, err);
    if (rc != 0) {
        return rc;
    }
    *ret = (struct nt_comm){.ranks = ranks,
                            .nodes = nodes,
                            .local_ranks = ranks / nodes,
                            .cc_min = m.cc,
                            .cc_max = m.cc_max,
                            .cpu = m.cpu,
                            .ll128_forced = opts->ll128};
    if (nodes > 1 && t->nnets == 0 && note != NULL) {
        nt_buf_puts(note, "no NIC told: sockets of 10 Gbit/s; ");
    }
    rc = search_all(&m, opts, ret, err);
    machine_done(&m);
    return rc;
}
