/*
 * The profiler plugin (opt-in): counts what NCCL executed, per collective, size class, algorithm
 * and protocol, eager and captured, into the receipt.
 *
 * It keeps no state of its own, so it needs no memory: the context is the communicator's number of
 * ranks, and the handle of a call says whether a graph captures it, which is all that its
 * collective asks later. An event of a captured call comes when NCCL sends it, at capture or at
 * replay. Before v5 NCCL does not tell captured calls: they count as eager. Before v4 it tells an
 * upper bound of channels instead of their number: none is written.
 */
#include <string.h>
#include <strings.h>
#include "profiles/plugin/process.h"

static const struct nt_process *process;     /* NULL: told nothing */
static const char captured_call, eager_call; /* only their addresses matter */

static const char *const funcs[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                    "AllReduce"};
static const char *const algos[] = {"TREE",      "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS",
                                    "NVLS_TREE", "PAT"};
static const char *const protos[] = {"LL", "LL128", "SIMPLE"};
/* ncclDataType_t in its order, with bytes of an element. */
static const struct {
    const char *name;
    uint8_t bytes;
} types[] = {{"ncclInt8", 1},    {"ncclUint8", 1},    {"ncclInt32", 4},      {"ncclUint32", 4},
             {"ncclInt64", 8},   {"ncclUint64", 8},   {"ncclFloat16", 2},    {"ncclFloat32", 4},
             {"ncclFloat64", 8}, {"ncclBfloat16", 2}, {"ncclFloat8e4m3", 1}, {"ncclFloat8e5m2", 1}};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* What was executed, whatever the version that said it. -1: not known. */
struct executed {
    int func, algo, proto;
    uint64_t bytes; /* of one part where ranks have parts of it, else of the buffer */
    uint64_t total; /* of all parts, 0 where it is not told */
    unsigned channels;
    bool captured;
};

static int find(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; name != NULL && i < n; i++) {
        if (strcasecmp(name, names[i]) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static uint64_t type_bytes(const char *name)
{
    for (size_t i = 0; name != NULL && i < COUNT(types); i++) {
        if (strcasecmp(name, types[i].name) == 0) {
            return types[i].bytes;
        }
    }
    return 0;
}

static bool in_parts(int func)
{
    return func == NT_TABLE_ALL_GATHER || func == NT_TABLE_REDUCE_SCATTER;
}

/* The receipt's classes are those of the tuner: all ranks' parts together. */
static int note(uintptr_t nranks, const struct executed *x)
{
    const struct nt_process *p = __atomic_load_n(&process, __ATOMIC_ACQUIRE);
    uint64_t bytes = x->total > 0 ? x->total : x->bytes * (in_parts(x->func) ? nranks : 1);
    unsigned cell = NT_RECEIPT_CELLS - 1;

    if (p == NULL || x->func < 0 || x->func >= NT_TABLE_COLLS || bytes == 0) {
        return NT_NCCL_SUCCESS; /* 0 bytes: unknown type, or v3, which tells no number of ranks */
    }
    if (x->algo >= 0 && x->algo < NT_TABLE_ALGOS && x->proto >= 0 && x->proto < NT_TABLE_PROTOS) {
        cell = (unsigned)(x->algo * NT_TABLE_PROTOS + x->proto);
    }
    nt_receipt_add_executed(p->receipt, (unsigned)x->func, bytes, cell, x->channels, x->captured);
    return NT_NCCL_SUCCESS;
}

/* ---- starting ---- */

/* nranks 0: this version does not say. */
static int init(void **context, int *mask, int wanted, int nranks, nt_logger log)
{
    const struct nt_process *p = NULL;
    int rc;

    *context = NULL;
    *mask = 0;
    if (nt_process_disabled()) {
        return NT_NCCL_SUCCESS;
    }
    rc = nt_process_get(NT_RECEIPT_PROFILER, log, &p);
    if (rc != NT_NCCL_SUCCESS || p->told == NT_TOLD_NOTHING || !p->has_receipt) {
        return rc;
    }
    __atomic_store_n(&process, p, __ATOMIC_RELEASE);
    /* odd, so that it is never NULL: NCCL would not finalize */
    *context = (void *)((uintptr_t)(nranks > 0 ? nranks : 0) * 2U + 1U);
    *mask = wanted;
    return NT_NCCL_SUCCESS;
}

static uintptr_t ranks_of(const void *context)
{
    return (uintptr_t)context / 2;
}

static int init_v1(void **context, int *mask)
{
    return init(context, mask, NT_PROF_COLL, 0, NULL);
}

static int init_v4(void **context, int *mask, const char *comm_name, uint64_t comm_hash, int nnodes,
                   int nranks, int rank, nt_logger log)
{
    (void)comm_name, (void)comm_hash, (void)nnodes, (void)rank;
    return init(context, mask, NT_PROF_COLL, nranks, log);
}

static int init_v5(void **context, uint64_t comm_id, int *mask, const char *comm_name, int nnodes,
                   int nranks, int rank, nt_logger log)
{
    (void)comm_id, (void)comm_name, (void)nnodes, (void)rank;
    return init(context, mask, NT_PROF_COLL | NT_PROF_COLL_API, nranks, log);
}

static int init_v6(void **context, uint64_t comm_id, int *mask, const char *comm_name, int nnodes,
                   int nranks, int rank, nt_logger log)
{
    (void)comm_id, (void)comm_name, (void)nnodes, (void)rank;
    return init(context, mask, NT_PROF_COLL | NT_PROF_COLL_API | NT_PROF_CE_COLL, nranks, log);
}

/* ---- events ---- */

static int start_v1(void *context, void **handle, const struct nt_prof_event_v1 *e)
{
    struct executed x = {.func = e->coll.func, .algo = e->coll.algo, .proto = e->coll.proto};

    *handle = NULL; /* nothing to stop */
    if (e->type != NT_PROF_COLL || e->coll.datatype >= COUNT(types)) {
        return NT_NCCL_SUCCESS;
    }
    x.bytes = e->coll.count * types[e->coll.datatype].bytes;
    x.total = in_parts(x.func) ? e->coll.traffic_bytes : 0;
    return note(ranks_of(context), &x);
}

static struct executed named(const char *func, const char *algo, const char *proto, size_t count,
                             const char *type)
{
    return (struct executed){.func = find(func, funcs, COUNT(funcs)),
                             .algo = find(algo, algos, COUNT(algos)),
                             .proto = find(proto, protos, COUNT(protos)),
                             .bytes = count * type_bytes(type)};
}

static int start_v2(void *context, void **handle, const struct nt_prof_event_v2 *e)
{
    *handle = NULL;
    if (e->type != NT_PROF_COLL) {
        return NT_NCCL_SUCCESS;
    }
    struct executed x =
        named(e->coll.func, e->coll.algo, e->coll.proto, e->coll.count, e->coll.datatype);
    x.total = in_parts(x.func) ? e->coll.traffic_bytes : 0;
    return note(ranks_of(context), &x);
}

static int start_v3(void *context, void **handle, const struct nt_prof_event_v3 *e)
{
    *handle = NULL;
    if (e->type != NT_PROF_COLL) {
        return NT_NCCL_SUCCESS;
    }
    struct executed x =
        named(e->coll.func, e->coll.algo, e->coll.proto, e->coll.count, e->coll.datatype);
    return note(ranks_of(context), &x);
}

static int start_coll(const void *context, const struct nt_prof_event_v4 *e)
{
    struct executed x =
        named(e->coll.func, e->coll.algo, e->coll.proto, e->coll.count, e->coll.datatype);
    x.channels = e->coll.channels;
    x.captured = e->parent == &captured_call;
    return note(ranks_of(context), &x);
}

static int start_v4(void *context, void **handle, const struct nt_prof_event_v4 *e)
{
    *handle = NULL;
    return e->type_v4 == NT_PROF_COLL ? start_coll(context, e) : NT_NCCL_SUCCESS;
}

static int start_v5(void *context, void **handle, const struct nt_prof_event_v4 *e)
{
    struct executed x;

    *handle = NULL;
    switch (e->type_v5) {
    case NT_PROF_COLL_API:
        *handle = (void *)(uintptr_t)(e->coll_api.captured ? &captured_call : &eager_call);
        return NT_NCCL_SUCCESS;
    case NT_PROF_COLL:
        return start_coll(context, e);
    case NT_PROF_CE_COLL:
        x = named(e->ce_coll.func, NULL, NULL, e->ce_coll.count, e->ce_coll.datatype);
        x.captured = e->parent == &captured_call;
        return note(ranks_of(context), &x);
    default:
        return NT_NCCL_SUCCESS;
    }
}

static int stop(void *handle)
{
    (void)handle;
    return NT_NCCL_SUCCESS;
}

static int record(void *handle, int state, void *args)
{
    (void)handle, (void)state, (void)args;
    return NT_NCCL_SUCCESS;
}

static int finalize(void *context)
{
    (void)context;
    return NT_NCCL_SUCCESS;
}

#define EXPORT(v, init_v, start_v)                                                                 \
    NT_EXPORT extern const struct nt_profiler_v##v ncclProfiler_v##v;                              \
    const struct nt_profiler_v##v ncclProfiler_v##v = {"nccltune", init_v, start_v,                \
                                                       stop,       record, finalize}
EXPORT(1, init_v1, start_v1);
EXPORT(2, init_v1, start_v2);
EXPORT(3, init_v1, start_v3);
EXPORT(4, init_v4, start_v4);
EXPORT(5, init_v5, start_v5);
EXPORT(6, init_v6, start_v5);
