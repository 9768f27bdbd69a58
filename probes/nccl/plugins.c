#include "probes/nccl/plugins.h"
#include <stdatomic.h>
#include <strings.h>
#include <time.h>
#include "probes/nccl/plugin_abi.h"

/*
 * NCCL finds these plugins by symbol and calls them without anything of ours in hand, so their
 * state is the process's. The tuner's part is touched only inside NCCL calls of the main thread.
 */
static struct {
    int version;
    size_t nodes;
    bool active;
    enum nt_coll coll;
    struct nt_call call;
    struct nt_tuner_seen seen;
} tuner = {.call = {.algo = -1, .proto = -1}};

void nt_tuner_ask(enum nt_coll coll, const struct nt_call *call)
{
    tuner.coll = coll;
    tuner.call = *call;
    tuner.seen = (struct nt_tuner_seen){0};
    tuner.active = true;
}

void nt_tuner_rest(void)
{
    tuner.active = false;
}

void nt_tuner_resume(void)
{
    tuner.active = true;
}

void nt_tuner_seen(struct nt_tuner_seen *ret)
{
    *ret = tuner.seen;
}

int nt_tuner_version(void)
{
    return tuner.version;
}

static void remember(const float *table, int algos, int protos)
{
    for (int a = 0; a < NT_ALGO_COUNT; a++) {
        for (int p = 0; p < NT_PROTO_COUNT; p++) {
            tuner.seen.cost[a][p] = a < algos && p < protos ? table[a * protos + p] : -1.0F;
        }
    }
    tuner.seen.consulted = true;
}

/* CollNet, and NVLS over several nodes, take the number as it is: above what the communicator has
 * they write out of bounds. There it is left to NCCL. */
static bool channels_are_a_bound(const float *table, int algos, int protos)
{
    int8_t algo = tuner.call.algo;
    if (algo >= 0) {
        return algo != NT_COLLNET_DIRECT && algo != NT_COLLNET_CHAIN &&
               (algo != NT_NVLS || tuner.nodes <= 1);
    }
    for (int a = NT_COLLNET_DIRECT; a < algos && a <= NT_NVLS; a++) {
        for (int p = 0; p < protos; p++) {
            if (table[a * protos + p] >= 0 && (a != NT_NVLS || tuner.nodes > 1)) {
                return false;
            }
        }
    }
    return true;
}

static int coll_info(void *context, int coll, size_t bytes, int pipe_ops, float **table_by_type,
                     int algos, int protos, int registered, int *channels)
{
    float *table = (float *)(void *)table_by_type;
    const struct nt_call *call = &tuner.call;
    (void)context, (void)bytes, (void)pipe_ops, (void)registered;
    if (!tuner.active || coll != (int)tuner.coll) {
        return 0;
    }
    if (!tuner.seen.consulted) {
        remember(table, algos, protos);
    }
    if (call->algo >= 0) {
        int cell = call->algo * protos + call->proto;
        /* A cell below zero may have no kernel at all; not only -1 stands there (fp8: -1024). */
        if (call->algo >= algos || call->proto < 0 || call->proto >= protos || table[cell] < 0) {
            tuner.seen.unavailable = true;
            return 0;
        }
        table[cell] = 0.0F;
    }
    if (call->channels > 0 && channels_are_a_bound(table, algos, protos)) {
        *channels = call->channels;
    }
    return 0;
}

static int chunk_size(void *context, int coll, size_t bytes, int algo, int proto, int channels,
                      size_t *chunk_bytes)
{
    /* NCCL rounds down to the grain and divides by the result. */
    static const size_t grain[NT_PROTO_COUNT] = {
        [NT_LL] = 16, [NT_LL128] = 1920, [NT_SIMPLE] = 512};
    const struct nt_call *call = &tuner.call;
    (void)context, (void)bytes, (void)channels;
    if (tuner.active && coll == (int)tuner.coll && *chunk_bytes > tuner.seen.chunk_bytes) {
        tuner.seen.chunk_bytes = *chunk_bytes < UINT32_MAX ? (uint32_t)*chunk_bytes : UINT32_MAX;
    }
    if (tuner.active && coll == (int)tuner.coll && call->chunk_bytes > 0 && proto >= 0 &&
        proto < NT_PROTO_COUNT && (call->algo < 0 || call->algo == algo)) {
        *chunk_bytes = call->chunk_bytes > grain[proto] ? call->chunk_bytes : grain[proto];
    }
    return 0;
}

static int tuner_open(int version, size_t nodes, void **context)
{
    tuner.version = version;
    tuner.nodes = nodes;
    *context = &tuner;
    return 0;
}

static int tuner_open_v4(size_t ranks, size_t nodes, nt_nccl_log_fn log, void **context)
{
    (void)ranks, (void)log;
    return tuner_open(4, nodes, context);
}

static int tuner_open_v5(void **context, uint64_t comm_id, size_t ranks, size_t nodes,
                         nt_nccl_log_fn log, void *nvlink_domains, void *constants)
{
    (void)comm_id, (void)ranks, (void)log, (void)nvlink_domains, (void)constants;
    return tuner_open(5, nodes, context);
}

static int tuner_open_v6(void **context, uint64_t comm_id, size_t ranks, size_t nodes,
                         nt_nccl_log_fn log, void *nvlink_domains, void *constants)
{
    (void)comm_id, (void)ranks, (void)log, (void)nvlink_domains, (void)constants;
    return tuner_open(6, nodes, context);
}

static int tuner_close(void *context)
{
    (void)context;
    tuner.version = 0;
    return 0;
}

#define TUNER_NAME "nccltune-probe"
extern const struct nt_tuner_v4 ncclTunerPlugin_v4;
extern const struct nt_tuner_v5 ncclTunerPlugin_v5;
extern const struct nt_tuner_v6 ncclTunerPlugin_v6;
const struct nt_tuner_v4 ncclTunerPlugin_v4 = {TUNER_NAME, tuner_open_v4, coll_info, tuner_close};
const struct nt_tuner_v5 ncclTunerPlugin_v5 = {TUNER_NAME, tuner_open_v5, coll_info, tuner_close};
const struct nt_tuner_v6 ncclTunerPlugin_v6 = {{TUNER_NAME, tuner_open_v6, coll_info, tuner_close},
                                               chunk_size};

/* The first event wins; NCCL's own threads may bring it. */
enum { EVENT_NONE, EVENT_WRITING, EVENT_THERE };
static struct {
    int version;
    int *mask; /* NCCL's own variable, read by it at each call */
    atomic_bool listening;
    atomic_int state;
    struct nt_executed executed;
} profiler;

static void set_mask(int mask)
{
    if (profiler.mask != NULL) {
        __atomic_store_n(profiler.mask, mask, __ATOMIC_RELAXED);
    }
}

void nt_profiler_on(void)
{
    atomic_store(&profiler.state, EVENT_NONE);
    atomic_store(&profiler.listening, true);
    set_mask(NT_PROFILE_COLL);
}

void nt_profiler_off(void)
{
    set_mask(0);
    atomic_store(&profiler.listening, false);
}

bool nt_profiler_executed(unsigned wait_ms, struct nt_executed *ret)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (unsigned waited = 0; atomic_load(&profiler.state) != EVENT_THERE; waited++) {
        if (profiler.version == 0 || waited >= wait_ms) {
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
    *ret = profiler.executed;
    return true;
}

int nt_profiler_version(void)
{
    return profiler.version;
}

/* NCCL writes "NVLS_TREE", "COLLNET_DIRECT"; our names are the same in lower case. */
static int8_t name_index(const char *const *names, const char *word)
{
    for (int8_t i = 0; word != NULL && names[i] != NULL; i++) {
        if (strcasecmp(names[i], word) == 0) {
            return i;
        }
    }
    return -1;
}

static void take(const struct nt_profiler_coll *c)
{
    int none = EVENT_NONE;
    if (!atomic_load(&profiler.listening) ||
        !atomic_compare_exchange_strong(&profiler.state, &none, EVENT_WRITING)) {
        return;
    }
    profiler.executed = (struct nt_executed){.algo = name_index(nt_algo_names, c->algo),
                                             .proto = name_index(nt_proto_names, c->proto),
                                             .channels = c->channels,
                                             .warps = c->warps};
    atomic_store(&profiler.state, EVENT_THERE);
}

/* NCCL passes a null handle on to nothing, so no event needs one. */
static int start_v4(void *context, void **handle, struct nt_profiler_event_v4 *event)
{
    (void)context;
    *handle = NULL;
    if (event->type == NT_PROFILE_COLL) {
        take(&event->coll);
    }
    return 0;
}

static int start_v5(void *context, void **handle, struct nt_profiler_event_v5 *event)
{
    (void)context;
    *handle = NULL;
    if (event->type == NT_PROFILE_COLL) {
        take(&event->coll);
    }
    return 0;
}

static int stop(void *handle)
{
    (void)handle;
    return 0;
}

static int record(void *handle, int state, void *args)
{
    (void)handle, (void)state, (void)args;
    return 0;
}

static int profiler_open(int version, void **context, int *mask)
{
    profiler.version = version;
    profiler.mask = mask;
    *context = &profiler;
    set_mask(0);
    return 0;
}

static int profiler_open_v4(void **context, int *mask, const char *comm_name, uint64_t comm_id,
                            int nodes, int ranks, int rank, nt_nccl_log_fn log)
{
    (void)comm_name, (void)comm_id, (void)nodes, (void)ranks, (void)rank, (void)log;
    return profiler_open(4, context, mask);
}

static int profiler_open_v5(void **context, uint64_t comm_id, int *mask, const char *comm_name,
                            int nodes, int ranks, int rank, nt_nccl_log_fn log)
{
    (void)comm_name, (void)comm_id, (void)nodes, (void)ranks, (void)rank, (void)log;
    return profiler_open(5, context, mask);
}

static int profiler_open_v6(void **context, uint64_t comm_id, int *mask, const char *comm_name,
                            int nodes, int ranks, int rank, nt_nccl_log_fn log)
{
    (void)comm_name, (void)comm_id, (void)nodes, (void)ranks, (void)rank, (void)log;
    return profiler_open(6, context, mask);
}

static int profiler_close(void *context)
{
    (void)context;
    profiler.version = 0;
    profiler.mask = NULL;
    return 0;
}

extern const struct nt_profiler_v4 ncclProfiler_v4;
extern const struct nt_profiler_v5 ncclProfiler_v5;
extern const struct nt_profiler_v5 ncclProfiler_v6;
const struct nt_profiler_v4 ncclProfiler_v4 = {TUNER_NAME, profiler_open_v4, start_v4,
                                               stop,       record,           profiler_close};
const struct nt_profiler_v5 ncclProfiler_v5 = {TUNER_NAME, profiler_open_v5, start_v5,
                                               stop,       record,           profiler_close};
const struct nt_profiler_v5 ncclProfiler_v6 = {TUNER_NAME, profiler_open_v6, start_v5,
                                               stop,       record,           profiler_close};
