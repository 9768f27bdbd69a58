/*
 * The figures are NCCL's own (v2.30.7). Where it mixes float and double, so does this: constants
 * are double, what is kept is float.
 */
#include "probes/model/cost.h"

#include <math.h>
#include <string.h>

enum { VOLTA, AMPERE, HOPPER, BLACKWELL, GENERATIONS };
enum { LINK_NVLINK, LINK_PCI, LINK_NET, LINKS };

static const float base_lat[NT_ALGO_COUNT][NT_PROTO_COUNT] = {
    [NT_TREE] = {6.8F, 14.0F, 8.4F}, [NT_RING] = {6.6F, 14.0F, 8.4F}, [NT_PAT] = {8, 8, 8}};

static const float hw_lat[LINKS][NT_ALGO_COUNT][NT_PROTO_COUNT] = {
    [LINK_NVLINK] = {[NT_TREE] = {0.6F, 1.25F, 4.0F},
                     [NT_RING] = {0.6F, 1.9F, 3.4F},
                     [NT_COLLNET_DIRECT] = {0, 0, 3.7F},
                     [NT_COLLNET_CHAIN] = {0, 0, 2.8F},
                     [NT_NVLS] = {0, 0, 25},
                     [NT_NVLS_TREE] = {0, 0, 25},
                     [NT_PAT] = {0, 0, 4.0F}},
    [LINK_PCI] = {[NT_TREE] = {1.0F, 1.9F, 4.0F},
                  [NT_RING] = {1.0F, 2.5F, 5.7F},
                  [NT_COLLNET_DIRECT] = {0, 0, 3.7F},
                  [NT_COLLNET_CHAIN] = {0, 0, 2.8F},
                  [NT_PAT] = {0, 0, 4.0F}},
    [LINK_NET] = {[NT_TREE] = {5.0F, 8.5F, 14},
                  [NT_RING] = {2.7F, 4.0F, 14},
                  [NT_COLLNET_DIRECT] = {0, 0, 31},
                  [NT_COLLNET_CHAIN] = {0, 0, 30},
                  [NT_NVLS] = {0, 0, 18},
                  [NT_NVLS_TREE] = {0, 0, 20.9F},
                  [NT_PAT] = {0, 0, 14}}};

/* GB/s; columns: one node, two, more. */
static const double ll_max[GENERATIONS][3] = {
    {39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}};
static const double ring_ll128_max[GENERATIONS][3] = {
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {40, 40, 40}};
static const double tree_ll128_max[GENERATIONS][3] = {
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}};
static const double tree_max[GENERATIONS][3] = {
    {26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}};
static const double nvls_tree_max[GENERATIONS][3] = {
    {26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 80}};
static const double nvls_efficiency[GENERATIONS] = {0, 0, 0.85, 0.74};

/* By log2(bytes / 64): trees fall short of their bandwidth in the middle sizes. */
enum { CORRECTIONS = 24 };
static const float correction[NT_PROTO_COUNT][CORRECTIONS] = {
    {1.0F, 1.0F, 1.0F, 1.0F, .9F, .8F, .7F, .7F, .7F, .7F, .6F, .5F,
     .4F,  .4F,  .5F,  .6F,  .7F, .8F, .9F, 1.F, 1.F, 1.F, 1.F, 1.F},
    {1.0F, 1.0F, 1.0F, 1.0F, 1.F, .9F, .8F, .8F, .8F, .7F, .6F, .6F,
     .6F,  .6F,  .6F,  .6F,  .8F, .9F, .9F, .9F, .9F, 1.F, 1.F, 1.F},
    {.9F, .9F, .9F, .9F, .9F, .9F, .9F, .8F, .7F, .6F, .6F, .5F,
     .5F, .5F, .5F, .6F, .7F, .8F, .7F, .7F, .8F, .9F, .9F, .9F}};

enum { WORKS_PER_BATCH = 8 };

static const enum nt_graph_kind graph_of[NT_ALGO_COUNT] = {[NT_TREE] = NT_GRAPH_TREE,
                                                           [NT_RING] = NT_GRAPH_RING,
                                                           [NT_COLLNET_DIRECT] = NT_GRAPH_DIRECT,
                                                           [NT_COLLNET_CHAIN] = NT_GRAPH_CHAIN,
                                                           [NT_NVLS] = NT_GRAPH_NVLS,
                                                           [NT_NVLS_TREE] = NT_GRAPH_NVLS,
                                                           [NT_PAT] = NT_GRAPH_TREE};

enum nt_graph_kind nt_algo_graph(enum nt_algo a)
{
    return graph_of[a];
}

static int generation(int cc)
{
    return cc >= 100 ? BLACKWELL : cc >= 90 ? HOPPER : cc >= 80 ? AMPERE : VOLTA;
}

static bool gathers(enum nt_coll coll)
{
    return coll == NT_ALL_GATHER || coll == NT_REDUCE_SCATTER;
}

static int steps(const struct nt_comm *m, enum nt_coll coll)
{
    return coll == NT_ALL_REDUCE ? 2 * (m->ranks - 1) : gathers(coll) ? m->ranks - 1 : m->ranks;
}

/* ------------------------------------------------------------------ what there is */

/* Kernels that exist, and the hardware's conditions. */
static bool ll128_works(const struct nt_comm *m, enum nt_algo a)
{
    const struct nt_graph *g = &m->graph[graph_of[a]];
    bool inter_ok =
        g->type_inter <= NT_PATH_PXB || (m->cc_min >= 90 && g->type_inter <= NT_PATH_PXN);

    return m->ll128_forced || (m->cc_min >= 70 && (m->cc_min == m->cc_max || m->cc_min >= 90) &&
                               g->type_intra <= NT_PATH_NVB && (m->nodes == 1 || inter_ok));
}

static bool exists(enum nt_coll coll, enum nt_algo a, enum nt_proto p)
{
    switch (a) {
    case NT_RING:
        return true;
    case NT_TREE:
        return coll == NT_ALL_REDUCE;
    case NT_COLLNET_CHAIN:
    case NT_NVLS_TREE:
        return coll == NT_ALL_REDUCE && p == NT_SIMPLE;
    case NT_PAT:
        return gathers(coll) && p == NT_SIMPLE;
    default: /* NVLS, CollNetDirect */
        return (coll == NT_ALL_REDUCE || gathers(coll)) && p == NT_SIMPLE;
    }
}

static bool available(const struct nt_comm *m, enum nt_coll coll, enum nt_algo a, enum nt_proto p)
{
    const struct nt_graph *g = &m->graph[graph_of[a]];
    bool several = m->nodes > 1;

    if (!exists(coll, a, p) || g->channels < 1 || (p == NT_LL128 && !ll128_works(m, a))) {
        return false;
    }
    switch (a) {
    case NT_NVLS:
        return m->nvls && g->channels >= 2 && (!several || m->collnet) &&
               (!gathers(coll) || ((!several || m->collnet_gather) && m->local_ranks <= 32));
    case NT_NVLS_TREE:
        return m->nvls && g->channels >= 2 && several;
    case NT_COLLNET_DIRECT:
        return m->collnet && several && m->local_ranks <= 8 &&
               (!gathers(coll) || m->collnet_gather);
    case NT_COLLNET_CHAIN:
        return m->collnet && several;
    case NT_PAT:
        return m->pat_forced || m->ranks == m->nodes;
    default:
        return true;
    }
}

/* ------------------------------------------------------------------ bandwidth */

static float tree_bus(const struct nt_comm *m, float bus, enum nt_proto p, int gen, int col,
                      double llmax)
{
    const struct nt_graph *g = &m->graph[NT_GRAPH_TREE];

    bus = (float)fmin(bus * .92, g->channels * tree_max[gen][col]);
    if (p == NT_LL) {
        bus = (float)fmin(bus * 1.0 / 3.8, llmax);
    } else if (p == NT_LL128) {
        bus = (float)fmin(bus * (m->nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0),
                          g->channels * tree_ll128_max[gen][col]);
    }
    return g->simple_tree ? (float)(bus * .85) : bus;
}

static float nvls_channel(const struct nt_comm *m, enum nt_coll coll, enum nt_algo a, int gen,
                          int col)
{
    const struct nt_graph *g = &m->graph[NT_GRAPH_NVLS];
    double ppn = (float)m->ranks / (float)m->nodes;
    float intra = (float)(g->bw_intra * nvls_efficiency[gen] * (g->channels - 1) / g->channels *
                          (coll == NT_ALL_REDUCE ? 2.0 : (ppn - 1) / ppn));
    float inter = g->bw_inter * (a == NT_NVLS_TREE && m->nodes <= 2 ? 2.0F : 1.0F);
    float bw = fminf(intra, inter);

    return a == NT_NVLS_TREE ? fminf(bw, (float)nvls_tree_max[gen][col]) : bw;
}

static float direct_bus(const struct nt_comm *m, enum nt_coll coll, float bus)
{
    const struct nt_graph *g = &m->graph[NT_GRAPH_DIRECT];
    float ppn = (float)m->ranks / (float)m->nodes;
    float f = ppn / (float)g->channels;

    if (gathers(coll)) {
        return ppn * fminf(g->bw_intra, g->bw_inter * 0.9F);
    }
    f -= (f - 1) / 2;
    bus /= f;
    return m->cc_min >= 90 ? bus * 0.85F : bus;
}

static float bandwidth(const struct nt_comm *m, enum nt_coll coll, enum nt_algo a, enum nt_proto p)
{
    const struct nt_graph *g = &m->graph[graph_of[a]];
    bool collnet = a == NT_COLLNET_DIRECT || a == NT_COLLNET_CHAIN;
    int gen = generation(m->cc_min), col = m->nodes <= 2 ? m->nodes - 1 : 2;
    /* On several nodes NCCL's row of LL describes the CPU. */
    int ll_row = m->nodes == 1                                    ? gen
                 : m->cpu == NT_CPU_AMD || m->cpu == NT_CPU_MIXED ? AMPERE
                                                                  : VOLTA;
    double llmax = ll_max[ll_row][col];
    float bw = m->nodes <= 2 || collnet ? g->bw_intra : g->bw_inter, bus;

    if (a == NT_NVLS || a == NT_NVLS_TREE) {
        bw = nvls_channel(m, coll, a, gen, col);
    }
    bus = (float)g->channels * bw;
    if (a == NT_RING && p == NT_LL) {
        bus = (float)fmin(llmax, bus * .5);
    } else if (a == NT_RING && p == NT_LL128) {
        bus = (float)fmin(bus * 0.92, g->channels * ring_ll128_max[gen][col]);
    } else if (a == NT_TREE) {
        bus = tree_bus(m, bus, p, gen, col, llmax);
    } else if (a == NT_PAT) {
        bus = (float)(bus * .75);
    } else if (a == NT_COLLNET_DIRECT) {
        bus = direct_bus(m, coll, bus);
    }
    if (a != NT_RING && gathers(coll)) {
        return bus;
    }
    if (a == NT_RING || a == NT_NVLS || a == NT_NVLS_TREE) {
        return bus * (float)(1.0 * m->ranks / steps(m, coll));
    }
    return bus * .5F;
}

/* ------------------------------------------------------------------ latency */

static float hw(const struct nt_comm *m, int link, enum nt_algo a, enum nt_proto p)
{
    /* On POWER the tree crosses the same slow bus as the ring. */
    bool power = m->cpu == NT_CPU_POWER && link == LINK_PCI && a == NT_TREE && p == NT_SIMPLE;
    return hw_lat[link][power ? NT_RING : a][p];
}

static float ring_latency(const struct nt_comm *m, enum nt_coll coll, enum nt_proto p, int link,
                          float intra, float inter)
{
    const struct nt_graph *g = &m->graph[NT_GRAPH_RING];
    int n = steps(m, coll);
    int crossings = m->nodes == 1 ? 0 : coll == NT_ALL_REDUCE ? 2 * (m->nodes - 1) : m->nodes - 1;
    float over = m->net_overhead > 0 ? m->net_overhead : m->cpu == NT_CPU_AMD ? 2.0F : 1.0F;

    if (coll == NT_BROADCAST || coll == NT_REDUCE) {
        int hop = m->nodes == 1 ? link : LINK_NET;
        return g->same_channels ? hw(m, hop, NT_RING, p)
                                : (float)n * hw(m, hop, p == NT_SIMPLE ? NT_TREE : NT_RING, p);
    }
    if (m->nodes > 1) {
        intra = fmaxf(intra, over * (p == NT_SIMPLE ? 3.0F : 1.0F));
    }
    return (float)(n - crossings) * intra + (float)crossings * inter;
}

static float latency(const struct nt_comm *m, enum nt_coll coll, enum nt_algo a, enum nt_proto p)
{
    const struct nt_graph *g = &m->graph[graph_of[a]];
    int link = g->type_intra == NT_PATH_NVL ? LINK_NVLINK : LINK_PCI;
    int per_node = m->ranks / m->nodes;
    float depth = floorf(log2f((float)m->nodes));
    float intra = hw(m, link, a, p);
    float inter = hw_lat[LINK_NET][m->ranks == m->nodes ? NT_TREE : a][p];
    float lat = base_lat[a][p];

    inter += g->latency_inter * (p == NT_SIMPLE ? 2.0F : 1.0F);
    switch (a) {
    case NT_RING:
        return lat + ring_latency(m, coll, p, link, intra, inter);
    case NT_TREE:
        return lat + 2 * ((float)(per_node - 1) * intra + depth * inter);
    case NT_COLLNET_DIRECT:
        return lat + 2 * ((float)(per_node > 1) * intra + (float)(per_node - 1) * 0.4F) + inter;
    case NT_COLLNET_CHAIN:
        return lat + 2 * (float)(per_node - 1) * intra + inter;
    case NT_NVLS:
        return intra + (m->nodes > 1 ? inter : 0);
    case NT_NVLS_TREE:
        return lat + intra + 2 * depth * inter;
    default: /* PAT */
        return lat + depth * (inter / 3.5F) + (float)m->ranks * 2.8F;
    }
}

void nt_cost_init(const struct nt_comm *comm, struct nt_cost *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->ranks = comm->ranks;
    ret->nodes = comm->nodes;
    ret->channels = comm->channels;
    ret->cc_min = comm->cc_min;
    ret->x86 = comm->cpu <= NT_CPU_MIXED;
    for (int c = 0; c < NT_TUNER_COLLS; c++) {
        for (int a = 0; a < NT_ALGO_COUNT; a++) {
            for (int p = 0; p < NT_PROTO_COUNT; p++) {
                if (comm->ranks > 1 &&
                    available(comm, (enum nt_coll)c, (enum nt_algo)a, (enum nt_proto)p)) {
                    ret->bw[c][a][p] =
                        bandwidth(comm, (enum nt_coll)c, (enum nt_algo)a, (enum nt_proto)p);
                    ret->lat[c][a][p] =
                        latency(comm, (enum nt_coll)c, (enum nt_algo)a, (enum nt_proto)p);
                }
            }
        }
    }
}

/* ------------------------------------------------------------------ query */

static int log2_floor(uint64_t x)
{
    return x == 0 ? -1 : 63 - __builtin_clzll(x);
}

bool nt_cost_parts(const struct nt_cost *c, enum nt_coll coll, enum nt_algo a, enum nt_proto p,
                   uint64_t bytes, float *ret_lat, float *ret_bw)
{
    int size = log2_floor(bytes / 64);
    float bw, lat;

    if (coll > NT_ALL_REDUCE || c->bw[coll][a][p] <= 0) {
        return false;
    }
    bw = c->bw[coll][a][p];
    lat = c->lat[coll][a][p];
    if (coll == NT_ALL_REDUCE && a == NT_TREE && size >= 0 && size < CORRECTIONS - 1) {
        bw *= correction[p][size];
    }
    if (coll == NT_ALL_REDUCE && a == NT_NVLS_TREE && size >= 0 && size < CORRECTIONS &&
        c->cc_min >= 100 && c->x86) {
        bw *= correction[NT_SIMPLE][size];
    }
    if (coll == NT_ALL_REDUCE && a == NT_RING && p == NT_SIMPLE && c->nodes > 1 &&
        bytes / ((uint64_t)c->channels * (uint64_t)c->ranks) >= 64) {
        lat *= c->cc_min < 80 ? 1.9F : 1.4F;
    }
    *ret_lat = lat;
    *ret_bw = bw;
    return true;
}

float nt_cost_us(const struct nt_cost *c, enum nt_coll coll, enum nt_algo a, enum nt_proto p,
                 uint64_t bytes, unsigned pipe_ops)
{
    float bw, lat;
    unsigned times = a == NT_RING ? pipe_ops : (pipe_ops + WORKS_PER_BATCH - 1) / WORKS_PER_BATCH;

    return nt_cost_parts(c, coll, a, p, bytes, &lat, &bw)
               ? lat * (float)times + (float)bytes / (1000 * bw)
               : -1;
}

bool nt_cost_choose(const struct nt_cost *c, enum nt_coll coll, uint64_t bytes,
                    enum nt_algo *ret_algo, enum nt_proto *ret_proto)
{
    float least = INFINITY;

    for (int a = 0; a < NT_ALGO_COUNT; a++) {
        for (int p = 0; p < NT_PROTO_COUNT; p++) {
            float t = nt_cost_us(c, coll, (enum nt_algo)a, (enum nt_proto)p, bytes, 1);
            if (t >= 0 && t < least) {
                least = t;
                *ret_algo = (enum nt_algo)a;
                *ret_proto = (enum nt_proto)p;
            }
        }
    }
    return !isinf(least);
}
