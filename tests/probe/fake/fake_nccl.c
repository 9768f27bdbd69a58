/* libfakenccl.so: the functions of NCCL that the probe uses, with NCCL's names and ABI. */
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "probes/nccl/barrier.h"
#include "probes/nccl/plugin_abi.h"
#include "tests/probe/fake/fake.h"
#include "tests/probe/fake/model.h"
#include "tests/probe/fake/move.h"
#include "tests/probe/fake/number.h"

#define X(type, name, args) type nccl##name args;
NT_NCCL_FUNCTIONS(X)
NT_NCCL_OPTIONAL(X)
#undef X

enum { VERSION = 22809, CHUNKS_SINCE = 23003 };
enum { SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_USAGE = 5, MOST_OPS = 128 };
enum { CONNECT_BYTES = 4 << 20, CONNECT_US = 2000, SEND = -1, RECV = -2 };

struct op {
    int coll; /* enum nt_coll, SEND or RECV */
    const void *in;
    void *out;
    size_t count;
    int dtype, op;
    unsigned peer; /* or root */
    int algo, proto;
    unsigned channels;
    uint64_t chunk;
};

struct ncclComm {
    struct wire wire;
    struct model model;
    void *tuner_lib, *profiler_lib, *tuner_context, *profiler_context;
    const struct nt_tuner_v5 *tuner;    /* v6 begins as v5 does */
    const struct nt_tuner_v6 *tuner_v6; /* NULL: older, or it does not care for chunks */
    const struct nt_tuner_v4 *tuner_v4;
    const struct nt_profiler_v5 *profiler;
    int mask; /* the profiler's */
    uint64_t calls;
    struct {
        const char *begin;
        size_t bytes;
    } windows[2];
    bool connected[NT_ALGO_COUNT + 1]; /* the last: send and receive */
};

struct batch {
    struct ncclComm *comm;
    bool report; /* to the profiler, when it runs */
    size_t n;
    struct op ops[MOST_OPS];
};

static struct {
    unsigned depth;
    struct batch batch;
    struct CUstream_st *stream;
    char last[256];
} group;

static int fail(int result, const char *words)
{
    (void)snprintf(group.last, sizeof(group.last), "%s", words);
    return result;
}

static uint64_t bytes_of(const struct ncclComm *c, const struct op *o)
{
    uint64_t bytes = o->count * number_bytes(o->dtype);
    bool shares = o->coll == NT_ALL_GATHER || o->coll == NT_REDUCE_SCATTER;
    return bytes * (shares ? c->wire.world : 1);
}

static void wait_until(uint64_t ns)
{
    while (nt_now_ns() < ns) {
        (void)sched_yield();
    }
}

/* Plugins, found as NCCL finds them. */
static void *open_plugin(const char *name)
{
    const char *text = getenv(name);
    if (text == NULL || strcasecmp(text, "none") == 0) {
        return NULL;
    }
    return dlopen(strcasecmp(text, "STATIC_PLUGIN") == 0 ? NULL : text, RTLD_NOW | RTLD_LOCAL);
}

static int version(void)
{
    const char *text = getenv("FAKE_NCCL_VERSION");
    return text != NULL ? (int)strtol(text, NULL, 10) : VERSION;
}

static int open_tuner(struct ncclComm *c)
{
    int nvlink[3] = {1, (int)c->wire.world, (int)c->wire.world};
    double constants[256] = {0};
    c->tuner_lib = open_plugin("NCCL_TUNER_PLUGIN");
    if (c->tuner_lib == NULL) {
        return 0;
    }
    if (version() >= CHUNKS_SINCE) {
        c->tuner_v6 = dlsym(c->tuner_lib, "ncclTunerPlugin_v6");
    }
    c->tuner = c->tuner_v6 != NULL ? &c->tuner_v6->base : dlsym(c->tuner_lib, "ncclTunerPlugin_v5");
    if (c->tuner != NULL) {
        return c->tuner->init(&c->tuner_context, 1, c->wire.world, 1, NULL, nvlink, constants);
    }
    c->tuner_v4 = dlsym(c->tuner_lib, "ncclTunerPlugin_v4");
    return c->tuner_v4 == NULL ? 0 : c->tuner_v4->init(c->wire.world, 1, NULL, &c->tuner_context);
}

static int open_profiler(struct ncclComm *c)
{
    c->profiler_lib = open_plugin("NCCL_PROFILER_PLUGIN");
    if (c->profiler_lib != NULL) {
        c->profiler = dlsym(c->profiler_lib, "ncclProfiler_v5");
    }
    return c->profiler == NULL ? 0
                               : c->profiler->init(&c->profiler_context, 1, &c->mask, NULL, 1,
                                                   (int)c->wire.world, (int)c->wire.rank, NULL);
}

static void close_plugins(struct ncclComm *c)
{
    if (c->tuner != NULL) {
        (void)c->tuner->finalize(c->tuner_context);
    } else if (c->tuner_v4 != NULL) {
        (void)c->tuner_v4->destroy(c->tuner_context);
    }
    if (c->profiler != NULL) {
        (void)c->profiler->finalize(c->profiler_context);
    }
    if (c->tuner_lib != NULL) {
        (void)dlclose(c->tuner_lib);
    }
    if (c->profiler_lib != NULL) {
        (void)dlclose(c->profiler_lib);
    }
}

static bool in_window(const struct ncclComm *c, const void *p)
{
    bool in = false;
    for (unsigned i = 0; i < 2; i++) {
        const char *begin = c->windows[i].begin;
        in = in || (begin != NULL && (const char *)p >= begin &&
                    (const char *)p < begin + c->windows[i].bytes);
    }
    return in;
}

static void note_chunk(const struct ncclComm *c, uint64_t bytes, uint64_t chunk)
{
    const char *path = getenv("FAKE_NCCL_CHUNKS"), *plugin = getenv("NCCL_TUNER_PLUGIN");
    FILE *f = path != NULL && c->wire.rank == 0 ? fopen(path, "ae") : NULL;
    if (f != NULL) {
        (void)fprintf(f, "%s %llu %llu\n", plugin, (unsigned long long)bytes,
                      (unsigned long long)chunk);
        (void)fclose(f);
    }
}

/* As NCCL does, but once: for one of its channels, with that channel's bytes. */
static int choose_chunk(struct ncclComm *c, struct op *o)
{
    static const size_t grain[NT_PROTO_COUNT] = {
        [NT_LL] = 16, [NT_LL128] = 1920, [NT_SIMPLE] = 512};
    size_t most = model_chunk((enum nt_coll)o->coll, o->algo, o->proto), chunk = most;
    uint64_t bytes = bytes_of(c, o);
    int rc = 0;
    if (c->tuner_v6 != NULL && c->tuner_v6->chunk_size != NULL) {
        rc = c->tuner_v6->chunk_size(c->tuner_context, o->coll, bytes / o->channels, o->algo,
                                     o->proto, 1, &chunk);
    }
    chunk = (chunk < most ? chunk : most) / grain[o->proto] * grain[o->proto];
    if (rc != 0 || chunk == 0) {
        return fail(INTERNAL_ERROR, "a division by zero, had it been NCCL");
    }
    if (chunk != most) {
        note_chunk(c, bytes, chunk);
    }
    o->chunk = chunk;
    return 0;
}

/* The choice, as in NCCL: a symmetric kernel without asking anybody; else the smallest entry that
 * is not negative. */
static int choose(struct ncclComm *c, struct op *o, uint64_t bytes)
{
    float table[NT_ALGO_COUNT][NT_PROTO_COUNT];
    float **flat = (float **)(void *)table, best = 1e30F;
    int bound = 0, rc = 0;
    if (in_window(c, o->in) && in_window(c, o->out)) {
        o->algo = NT_RING;
        o->proto = NT_SIMPLE;
        o->channels = 1;
        return 0;
    }
    model_table(&c->model, (enum nt_coll)o->coll, bytes, table);
    if (c->tuner != NULL) {
        rc = c->tuner->coll_info(c->tuner_context, o->coll, bytes, 1, flat, NT_ALGO_COUNT,
                                 NT_PROTO_COUNT, 0, &bound);
    } else if (c->tuner_v4 != NULL) {
        rc = c->tuner_v4->coll_info(c->tuner_context, o->coll, bytes, 1, flat, NT_ALGO_COUNT,
                                    NT_PROTO_COUNT, 0, &bound);
    }
    o->algo = o->proto = -1;
    for (int a = 0; a < NT_ALGO_COUNT; a++) {
        for (int p = 0; p < NT_PROTO_COUNT; p++) {
            if (table[a][p] >= 0 && table[a][p] < best) {
                best = table[a][p];
                o->algo = a;
                o->proto = p;
            }
        }
    }
    if (rc != 0 || o->algo < 0) {
        return fail(INTERNAL_ERROR, "no algorithm/protocol available");
    }
    o->channels = model_channels(&c->model, bytes_of(c, o), (unsigned)bound);
    return choose_chunk(c, o);
}

/* The first use of an algorithm: all ranks, some time, some memory. */
static int connect_algo(struct ncclComm *c, int algo)
{
    bool *done = &c->connected[algo < 0 ? NT_ALGO_COUNT : algo];
    uint64_t begin = nt_now_ns();
    if (*done) {
        return 0;
    }
    *done = true;
    if (wire_meet(&c->wire) != 0) {
        return fail(INTERNAL_ERROR, "aborted");
    }
    wait_until(begin + 1000ULL * CONNECT_US);
    fake_memory_take(CONNECT_BYTES);
    return 0;
}

static void report(struct ncclComm *c, const struct op *o)
{
    static const char *const algos[] = {
        "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
    static const char *const protos[] = {"LL", "LL128", "SIMPLE"};
    bool lie = model_fault(&c->model, "lie", bytes_of(c, o), o->algo, o->proto);
    void *handle = NULL;
    struct nt_profiler_event_v5 e = {.type = NT_PROFILE_COLL, .rank = (int)c->wire.rank};
    if (c->profiler == NULL || o->coll < 0) {
        return;
    }
    e.coll = (struct nt_profiler_coll){.number = c->calls,
                                       .count = o->count,
                                       .channels = (uint8_t)(o->channels + (lie ? 1 : 0)),
                                       .warps = o->algo == NT_TREE ? 20 : 16,
                                       .algo = algos[o->algo],
                                       .proto = protos[o->proto]};
    (void)c->profiler->start(c->profiler_context, &handle, &e);
}

static bool faulty(struct ncclComm *c, const struct op *o, const char *kind)
{
    return model_fault(&c->model, kind, bytes_of(c, o), o->algo, o->proto);
}

static int start_faults(struct ncclComm *c, const struct op *o)
{
    if (faulty(c, o, "hang")) {
        (void)wire_hang(&c->wire);
        return fail(INTERNAL_ERROR, "aborted");
    }
    if (faulty(c, o, "crash")) {
        abort();
    }
    return faulty(c, o, "error") ? fail(SYSTEM_ERROR, "a fault was asked for") : 0;
}

static void spoil(struct ncclComm *c, const struct op *o)
{
    uint64_t bytes = o->count * number_bytes(o->dtype);
    uint64_t in = bytes * (o->coll == NT_REDUCE_SCATTER ? c->wire.world : 1);
    uint64_t out = bytes * (o->coll == NT_ALL_GATHER ? c->wire.world : 1);
    if (faulty(c, o, "wrong")) {
        ((char *)o->out)[out - 1] ^= 0x10;
    }
    if (faulty(c, o, "overrun")) {
        ((char *)o->out)[out] = 0x10;
    }
    if (faulty(c, o, "input")) {
        ((char *)(uintptr_t)o->in)[in - 1] ^= 0x10;
    }
}

/* Ranks that call different things hang, as they do in NCCL. */
static int agree(struct ncclComm *c, const struct op *o)
{
    struct wire *w = &c->wire;
    const struct wire_call mine = {o->coll,          o->algo,        o->proto,
                                   (int)o->channels, bytes_of(c, o), o->chunk};
    bool same = true;
    *wire_call_of(w, w->rank) = mine;
    if (wire_meet(w) != 0) {
        return -1;
    }
    for (unsigned r = 0; r < w->world; r++) {
        same = same && memcmp(wire_call_of(w, r), &mine, sizeof(mine)) == 0;
    }
    return same ? wire_meet(w) : wire_hang(w);
}

static int run_collective(struct ncclComm *c, const struct op *o)
{
    struct move_call m = {.coll = (enum nt_coll)o->coll,
                          .in = o->in,
                          .out = o->out,
                          .count = o->count,
                          .dtype = o->dtype,
                          .larger = o->op == NT_NCCL_MAX,
                          .root = o->peer};
    uint64_t begin;
    int rc = start_faults(c, o);
    if (rc != 0) {
        return rc;
    }
    if (agree(c, o) != 0) {
        return fail(INTERNAL_ERROR, "aborted");
    }
    begin = nt_now_ns();
    if (move_collective(&c->wire, &m) != 0) {
        return fail(INTERNAL_ERROR, "aborted");
    }
    spoil(c, o);
    wait_until(begin + model_ns(&c->model, m.coll, bytes_of(c, o), o->algo, o->proto, o->channels,
                                o->chunk));
    return 0;
}

/* The n-th message to and from each peer. */
static void nth_messages(const struct batch *b, unsigned n, struct move_exchange *x)
{
    unsigned sent[WIRE_RANKS] = {0}, received[WIRE_RANKS] = {0};
    *x = (struct move_exchange){0};
    for (size_t i = 0; i < b->n; i++) {
        const struct op *o = &b->ops[i];
        uint64_t bytes = o->count * number_bytes(o->dtype);
        if (o->coll == SEND && sent[o->peer]++ == n) {
            x->in[o->peer] = o->in;
            x->in_bytes[o->peer] = bytes;
        } else if (o->coll == RECV && received[o->peer]++ == n) {
            x->out[o->peer] = o->out;
            x->out_bytes[o->peer] = bytes;
        }
    }
}

/* Sends and receives of a group; every rank has the same number of messages for each peer. */
static int run_exchange(struct ncclComm *c, const struct batch *b)
{
    struct move_exchange x;
    uint64_t most = 0, begin = nt_now_ns();
    const struct op *last = NULL;
    unsigned messages = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < b->n; i++) {
        const struct op *o = &b->ops[i];
        most += o->count * number_bytes(o->dtype);
        messages += o->coll == RECV && o->peer == b->ops[0].peer;
        last = o->coll == RECV ? o : last;
        rc = start_faults(c, o);
    }
    for (unsigned n = 0; rc == 0 && (n == 0 || n < messages); n++) {
        nth_messages(b, n, &x);
        rc = move_exchanges(&c->wire, &x) == 0 ? 0 : fail(INTERNAL_ERROR, "aborted");
    }
    if (rc == 0 && last != NULL) {
        spoil(c, last);
        wait_until(begin +
                   model_ns(&c->model, NT_SENDRECV, most / 2, -1, NT_SIMPLE, 4, UINT64_MAX));
    }
    return rc;
}

static int run_batch(void *arg)
{
    struct batch *b = arg;
    int rc = 0;
    if (b->n > 0 && b->ops[0].coll < 0) {
        return run_exchange(b->comm, b);
    }
    for (size_t i = 0; rc == 0 && i < b->n; i++) {
        b->comm->calls++;
        if (b->report) {
            report(b->comm, &b->ops[i]);
        }
        rc = run_collective(b->comm, &b->ops[i]);
    }
    return rc;
}

/* The end of a group: choose, connect, then put it on the stream. */
static int launch(void)
{
    struct batch *b = &group.batch, *kept;
    struct ncclComm *c = b->comm;
    const char *when = getenv("FAKE_NCCL_EVENTS");
    bool at_capture = when != NULL && strcmp(when, "capture") == 0;
    uint64_t sum = 0;
    int rc = 0;
    if (b->n == 0) {
        return 0;
    }
    for (size_t i = 0; i < b->n; i++) {
        sum += bytes_of(c, &b->ops[i]);
    }
    for (size_t i = 0; rc == 0 && i < b->n; i++) {
        struct op *o = &b->ops[i];
        if (o->coll >= 0) {
            rc = choose(c, o, sum);
        }
        if (rc == 0) {
            rc = connect_algo(c, o->algo);
        }
    }
    if (rc == 0) {
        kept = malloc(sizeof(*kept));
        if (kept == NULL) {
            return fail(SYSTEM_ERROR, "out of memory");
        }
        *kept = *b;
        kept->report = (c->mask & NT_PROFILE_COLL) != 0;
        if (kept->report && at_capture && fake_stream_is_captured(group.stream)) {
            report(c, &kept->ops[0]);
            kept->report = false;
        }
        rc = fake_stream_put(group.stream, run_batch, kept);
    }
    return rc;
}

static int add(struct ncclComm *c, struct CUstream_st *s, const struct op *o)
{
    if (group.batch.n == MOST_OPS) {
        return fail(INVALID_USAGE, "too many calls in one group");
    }
    group.batch.comm = c;
    group.stream = s;
    group.batch.ops[group.batch.n++] = *o;
    if (group.depth > 0) {
        return 0;
    }
    group.depth = 1;
    return ncclGroupEnd();
}

int ncclGroupStart(void)
{
    group.depth++;
    return 0;
}

int ncclGroupEnd(void)
{
    int rc;
    if (--group.depth > 0) {
        return 0;
    }
    rc = launch();
    group.batch.n = 0;
    return rc;
}

int ncclAllReduce(NT_NCCL_BUFS, int op, NT_NCCL_TAIL)
{
    struct op o = {NT_ALL_REDUCE, in, out, count, dtype, op, 0, -1, -1, 0, 0};
    return add(comm, stream, &o);
}

int ncclBroadcast(NT_NCCL_BUFS, int root, NT_NCCL_TAIL)
{
    struct op o = {NT_BROADCAST, in, out, count, dtype, NT_NCCL_SUM, (unsigned)root, -1, -1, 0, 0};
    return add(comm, stream, &o);
}

int ncclReduce(NT_NCCL_BUFS, int op, int root, NT_NCCL_TAIL)
{
    struct op o = {NT_REDUCE, in, out, count, dtype, op, (unsigned)root, -1, -1, 0, 0};
    return add(comm, stream, &o);
}

int ncclAllGather(NT_NCCL_BUFS, NT_NCCL_TAIL)
{
    struct op o = {NT_ALL_GATHER, in, out, count, dtype, NT_NCCL_SUM, 0, -1, -1, 0, 0};
    return add(comm, stream, &o);
}

int ncclReduceScatter(NT_NCCL_BUFS, int op, NT_NCCL_TAIL)
{
    struct op o = {NT_REDUCE_SCATTER, in, out, count, dtype, op, 0, -1, -1, 0, 0};
    return add(comm, stream, &o);
}

int ncclSend(const void *buf, size_t count, int dtype, int peer, NT_NCCL_TAIL)
{
    struct op o = {SEND, buf, NULL, count, dtype, NT_NCCL_SUM, (unsigned)peer, -1, -1, 0, 0};
    return add(comm, stream, &o);
}

int ncclRecv(void *buf, size_t count, int dtype, int peer, NT_NCCL_TAIL)
{
    struct op o = {RECV, NULL, buf, count, dtype, NT_NCCL_SUM, (unsigned)peer, -1, -1, 0, 0};
    return add(comm, stream, &o);
}

int ncclMemAlloc(void **ret, size_t bytes)
{
    *ret = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *ret != NULL ? 0 : fail(SYSTEM_ERROR, "out of memory");
}

int ncclMemFree(void *p)
{
    free(p);
    return 0;
}

int ncclCommRegister(struct ncclComm *comm, void *p, size_t bytes, void **ret)
{
    (void)comm;
    (void)bytes;
    *ret = p;
    return 0;
}

int ncclCommDeregister(struct ncclComm *comm, void *handle)
{
    (void)comm;
    (void)handle;
    return 0;
}

/* Collective, as NCCL's. */
int ncclCommWindowRegister(struct ncclComm *comm, void *p, size_t bytes, void **ret, int flags)
{
    unsigned at = comm->windows[0].begin != NULL;
    (void)flags;
    if (wire_meet(&comm->wire) != 0) {
        return fail(INTERNAL_ERROR, "aborted");
    }
    *ret = getenv("FAKE_NCCL_NO_WINDOWS") != NULL ? NULL : p;
    comm->windows[at].begin = *ret;
    comm->windows[at].bytes = bytes;
    return 0;
}

int ncclCommWindowDeregister(struct ncclComm *comm, void *window)
{
    (void)window;
    return wire_meet(&comm->wire) == 0 ? 0 : fail(INTERNAL_ERROR, "aborted");
}

int ncclGetVersion(int *ret)
{
    *ret = version();
    return 0;
}

const char *ncclGetErrorString(int result)
{
    return result == SYSTEM_ERROR    ? "unhandled system error"
           : result == INVALID_USAGE ? "invalid usage"
                                     : "internal error";
}

const char *ncclGetLastError(struct ncclComm *comm)
{
    (void)comm;
    return group.last;
}

int ncclGetUniqueId(struct nt_nccl_id *id)
{
    return wire_make_id(id) == 0 ? 0 : fail(SYSTEM_ERROR, "no shared memory");
}

static void dump_topology(const struct ncclComm *c)
{
    const char *path = getenv("NCCL_TOPO_DUMP_FILE");
    FILE *f = path != NULL && c->wire.rank == 0 ? fopen(path, "we") : NULL;
    if (f != NULL) {
        (void)fprintf(f, "<system version=\"1\"><cpu numaid=\"0\">");
        for (unsigned r = 0; r < c->wire.world; r++) {
            (void)fprintf(f, "<pci busid=\"0000:%02x:00.0\"><gpu dev=\"%u\" rank=\"%u\"/></pci>",
                          r + 1, r, r);
        }
        (void)fprintf(f, "</cpu></system>\n");
        (void)fclose(f);
    }
}

int ncclCommInitRank(struct ncclComm **ret, int world, struct nt_nccl_id id, int rank)
{
    struct ncclComm *c = calloc(1, sizeof(*c));
    if (c == NULL || wire_open(&c->wire, &id, (unsigned)rank, (unsigned)world) != 0) {
        free(c);
        return fail(SYSTEM_ERROR, "cannot reach the root of the unique id");
    }
    model_init(&c->model, (unsigned)rank, (unsigned)world);
    if (model_fault(&c->model, "init-hang", 0, -1, -1)) {
        (void)wire_hang(&c->wire);
    }
    if (model_fault(&c->model, "init-crash", 0, -1, -1)) {
        abort();
    }
    if (model_fault(&c->model, "init-error", 0, -1, -1)) {
        return fail(INVALID_USAGE, "a fault was asked for");
    }
    if (wire_meet(&c->wire) != 0) {
        return fail(INTERNAL_ERROR, "aborted");
    }
    /* As NCCL does: a rank that is asked for its topology goes through it once more, with all the
     * others. */
    if (getenv("NCCL_TOPO_DUMP_FILE") != NULL && wire_meet(&c->wire) != 0) {
        return fail(INTERNAL_ERROR, "aborted");
    }
    dump_topology(c);
    if (wire_meet(&c->wire) != 0) {
        return fail(INTERNAL_ERROR, "aborted");
    }
    if (open_profiler(c) != 0 || open_tuner(c) != 0) {
        return fail(INTERNAL_ERROR, "a plugin refused");
    }
    fake_memory_take(CONNECT_BYTES);
    *ret = c;
    return 0;
}

int ncclCommAbort(struct ncclComm *comm)
{
    if (model_fault(&comm->model, "abort-hang", 0, -1, -1)) {
        for (;;) {
            (void)pause();
        }
    }
    /* Another thread may be inside a call: it leaves by itself, and the process ends. */
    atomic_store(&comm->wire.aborted, true);
    return 0;
}

int ncclCommDestroy(struct ncclComm *comm)
{
    close_plugins(comm);
    wire_close(&comm->wire);
    free(comm);
    return 0;
}
