/* Which algorithm, protocol, channels and warps NCCL would run (its src/enqueue.cc). */
#include "probes/model/sim_priv.h"

enum { MIN_TRAFFIC = 32 << 10, STEPS = 8 };

/* send/recv and all-to-all have no choice of algorithm; they are timed like an all-gather's ring,
 * which moves the same bytes over the same links. */
enum nt_coll sim_modelled(enum nt_coll c)
{
    return c <= NT_ALL_REDUCE ? c : NT_ALL_GATHER;
}

int sim_max_threads(const struct nt_sim_gang *g, int algo, int proto)
{
    const struct nt_graph *ring = &g->comm.graph[NT_GRAPH_RING];

    if (algo != NT_RING && algo != NT_TREE) {
        return 640;
    }
    if (proto == NT_LL128) {
        return 640;
    }
    if (g->threads > 0) {
        return g->threads;
    }
    return algo == NT_RING && proto == NT_SIMPLE && ring->bw_intra * (float)ring->channels <= 12
               ? 256
               : 512;
}

static uint64_t threshold(const struct nt_sim_gang *g, int algo, int proto)
{
    return proto == NT_SIMPLE                  ? 64
           : proto == NT_LL && algo == NT_RING ? 8 * (uint64_t)g->comm.ranks
                                               : 8;
}

/* NCCL's own channels and threads for so many bytes. */
static void shape(const struct nt_sim_gang *g, int algo, int proto, uint64_t bytes,
                  uint64_t *ret_channels, uint64_t *ret_threads)
{
    bool nvls = algo == NT_NVLS || algo == NT_NVLS_TREE;
    uint64_t nc = (uint64_t)(nvls ? g->comm.nvls_channels : g->comm.channels);
    uint64_t nt = (uint64_t)sim_max_threads(g, algo, proto), per = threshold(g, algo, proto);

    while ((algo == NT_RING || algo == NT_TREE) && bytes < nc * nt * per) {
        if (nc > 1) {
            nc--;
        } else if (nt % 128 == 0) {
            nt /= 2;
        } else {
            break;
        }
    }
    *ret_channels = nc;
    *ret_threads = nt < 96 ? 96 : nt;
}

static uint64_t div_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}
static uint64_t up16(uint64_t x)
{
    return (x + 15) / 16 * 16;
}

/* Of `bound` channels, those that get work of one collective. */
static uint64_t used(const struct nt_sim_gang *g, enum nt_coll coll, int proto, uint64_t bytes,
                     uint64_t bound)
{
    bool gathers = coll == NT_ALL_GATHER || coll == NT_REDUCE_SCATTER;
    uint64_t ranks = (uint64_t)g->comm.ranks;
    uint64_t share = gathers ? div_up(bytes, ranks) : bytes; /* count × element size */
    uint64_t k = coll == NT_ALL_REDUCE ? 2 : gathers ? ranks : 1, ll = proto == NT_LL ? 4 : 1;
    uint64_t cell = up16(div_up(MIN_TRAFFIC, k * ll)), cells = div_up(share, cell);
    uint64_t traffic = share * k * ll, per, cells_per;

    per = up16(div_up(traffic > MIN_TRAFFIC ? traffic : MIN_TRAFFIC, bound));
    cells_per = div_up(per, cell * k * ll);
    cells_per = cells_per > cells ? cells : cells_per;
    return cells == 0 ? 1 : div_up(cells, cells_per);
}

bool nt_sim_executed(const struct nt_sim_gang *g, const struct nt_case *c,
                     const struct nt_call *call, struct nt_executed *ret)
{
    enum nt_coll coll = sim_modelled((enum nt_coll)c->coll);
    enum nt_algo algo = NT_RING;
    enum nt_proto proto = NT_SIMPLE;
    uint64_t own, threads, bound;
    float lat, bw;

    if (call->algo >= 0) {
        algo = (enum nt_algo)call->algo;
        proto = (enum nt_proto)call->proto;
    } else if (c->coll <= NT_ALL_REDUCE &&
               !nt_cost_choose(&g->cost, coll, c->bytes, &algo, &proto)) {
        return false;
    }
    if ((call->algo >= 0 && c->coll > NT_ALL_REDUCE) ||
        !nt_cost_parts(&g->cost, coll, algo, proto, c->bytes, &lat, &bw) ||
        (algo >= NT_COLLNET_DIRECT && algo <= NT_NVLS_TREE && c->dtype == NT_FP8)) {
        return false;
    }
    shape(g, (int)algo, (int)proto, c->bytes, &own, &threads);
    bound = (uint64_t)(algo == NT_NVLS || algo == NT_NVLS_TREE ? g->comm.nvls_channels
                                                               : g->comm.channels);
    bound = call->channels == 0 ? own : call->channels < bound ? call->channels : bound;
    *ret = (struct nt_executed){
        .algo = (int8_t)algo,
        .proto = (int8_t)proto,
        .channels = (uint16_t)used(g, coll, (int)proto, c->bytes, bound),
        .warps = (uint16_t)(threads / 32 + (algo == NT_RING && proto == NT_SIMPLE))};
    return true;
}

int sim_chunk_bytes(const struct nt_sim_gang *g, const struct nt_case *c,
                    const struct nt_executed *x)
{
    bool gathers =
        c->coll == NT_ALL_REDUCE || c->coll == NT_ALL_GATHER || c->coll == NT_REDUCE_SCATTER;
    uint64_t chunk = g->buffer[x->proto] / STEPS;

    if (x->proto == NT_SIMPLE && x->algo == NT_RING && gathers) {
        chunk *= 4;
    }
    if (x->algo == NT_NVLS || x->algo == NT_NVLS_TREE) {
        chunk = chunk > (128U << 10) ? 128U << 10 : chunk;
    }
    chunk = x->proto == NT_LL ? chunk / 2 : x->proto == NT_LL128 ? chunk / 16 * 15 : chunk;
    return chunk > INT32_MAX ? INT32_MAX : chunk < 512 ? 512 : (int)chunk;
}
