#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "probes/nccl/kernels.h"

/* Matrix products in flight: the device never waits for the thread that launches them. */
enum { BUSY_BATCH = 4, BUSY_BATCHES = 2 };

struct nt_dev {
    unsigned device;
    unsigned long long *differing; /* device */
    unsigned *ticks;               /* device */
    float *matrices;               /* device: a, b, c; NULL until first busy */
    unsigned product_blocks;
    int product_shared; /* bytes */
    pthread_t busy;
    bool busy_started;
    atomic_bool busy_stop;
    int busy_result;
};

static int check(cudaError_t e, const char *what, struct nt_err *err)
{
    return e == cudaSuccess ? 0 : nt_fail(err, NT_E_IO, 0, "%s: %s", what, cudaGetErrorString(e));
}

int nt_dev_count(unsigned *ret, struct nt_err *err)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess || n == 0) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "no usable GPU: %s; look at nvidia-smi and CUDA_VISIBLE_DEVICES",
                       e != cudaSuccess ? cudaGetErrorString(e) : "none visible");
    }
    *ret = (unsigned)n;
    return 0;
}

static void write_uuid(const cudaUUID_t *u, char *out, size_t size)
{
    static const int dashes[] = {4, 6, 8, 10};
    size_t at = (size_t)snprintf(out, size, "GPU-"), next = 0;
    for (int i = 0; i < (int)sizeof(u->bytes) && at + 4 < size; i++) {
        if (next < 4 && dashes[next] == i) {
            out[at++] = '-';
            next++;
        }
        at += (size_t)snprintf(out + at, size - at, "%02x", (unsigned char)u->bytes[i]);
    }
}

int nt_dev_describe(unsigned device, struct nt_dev_info *ret, struct nt_err *err)
{
    struct cudaDeviceProp prop;
    struct nt_dev_info info = {0};
    int rc = check(cudaGetDeviceProperties(&prop, (int)device), "device properties", err);
    if (rc != 0) {
        return rc;
    }
    (void)snprintf(info.name, sizeof(info.name), "%.*s", (int)sizeof(info.name) - 1, prop.name);
    write_uuid(&prop.uuid, info.uuid, sizeof(info.uuid));
    (void)cudaDeviceGetPCIBusId(info.pci, sizeof(info.pci), (int)device);
    info.memory_bytes = prop.totalGlobalMem;
    info.multiprocessors = prop.multiProcessorCount > 0 ? (unsigned)prop.multiProcessorCount : 1;
    info.capability = 10 * prop.major + prop.minor;
    info.l2_bytes = prop.l2CacheSize > 0 ? (uint64_t)prop.l2CacheSize : 0;
    *ret = info;
    return 0;
}

void nt_dev_versions(int *ret_cuda, int *ret_driver)
{
    if (cudaRuntimeGetVersion(ret_cuda) != cudaSuccess) {
        *ret_cuda = 0;
    }
    if (cudaDriverGetVersion(ret_driver) != cudaSuccess) {
        *ret_driver = 0;
    }
}

/* Copies and clearing go through the legacy stream, for which our own streams do not wait. */
static int settle(cudaError_t e, const char *what, struct nt_err *err)
{
    return check(e == cudaSuccess ? cudaStreamSynchronize(cudaStreamLegacy) : e, what, err);
}

static int zeroed(size_t bytes, void **ret, struct nt_err *err)
{
    void *p = NULL;
    int rc = check(cudaMalloc(&p, bytes), "device memory", err);
    if (rc == 0) {
        rc = settle(cudaMemset(p, 0, bytes), "clear device memory", err);
    }
    if (rc == 0) {
        *ret = p;
    } else {
        (void)cudaFree(p);
    }
    return rc;
}

int nt_dev_open(unsigned device, struct nt_dev **ret, struct nt_err *err)
{
    struct nt_dev *d = calloc(1, sizeof(*d));
    void *p = NULL;
    int rc;
    if (d == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "device");
    }
    d->device = device;
    rc = check(cudaSetDevice((int)device), "use device", err);
    if (rc == 0) {
        rc = zeroed(sizeof(*d->differing), &p, err);
        d->differing = p;
        p = NULL;
    }
    if (rc == 0) {
        rc = zeroed(sizeof(*d->ticks), &p, err);
        d->ticks = p;
    }
    if (rc != 0) {
        nt_dev_close(d);
        return nt_wrap(err, rc, "device %u", device);
    }
    *ret = d;
    return 0;
}

void nt_dev_close(struct nt_dev *d)
{
    if (d == NULL) {
        return;
    }
    (void)nt_dev_busy_stop(d, NULL);
    (void)cudaFree(d->differing);
    (void)cudaFree(d->ticks);
    (void)cudaFree(d->matrices);
    free(d);
}

int nt_dev_use(struct nt_dev *d, struct nt_err *err)
{
    return check(cudaSetDevice((int)d->device), "use device", err);
}

int nt_dev_reach(struct nt_dev *from, struct nt_dev *to, struct nt_reach *ret, struct nt_err *err)
{
    int a = (int)from->device, b = (int)to->device, access = 0, atomics = 0, rank = 0;
    int rc = check(cudaDeviceCanAccessPeer(&access, a, b), "peer access", err);
    if (rc == 0 && access != 0) {
        (void)cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, a, b);
        (void)cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, a, b);
        rc = nt_dev_use(from, err);
        if (rc == 0) {
            cudaError_t e = cudaDeviceEnablePeerAccess(b, 0);
            (void)cudaGetLastError(); /* forgets that it was on before */
            rc = check(e == cudaErrorPeerAccessAlreadyEnabled ? cudaSuccess : e,
                       "switch on peer access", err);
        }
    }
    if (rc == 0) {
        *ret = (struct nt_reach){.access = access != 0, .atomics = atomics != 0, .rank = rank};
    }
    return rc;
}

int nt_dev_copy(struct nt_dev *to_dev, void *to, struct nt_dev *from_dev, const void *from,
                size_t bytes, struct CUstream_st *s, struct nt_err *err)
{
    return check(to_dev == from_dev ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, s)
                                    : cudaMemcpyPeerAsync(to, (int)to_dev->device, from,
                                                          (int)from_dev->device, bytes, s),
                 "copy between devices", err);
}

int nt_dev_free_bytes(struct nt_dev *d, uint64_t *ret, struct nt_err *err)
{
    size_t free_bytes = 0, total = 0;
    int rc = check(cudaMemGetInfo(&free_bytes, &total), "free device memory", err);
    (void)d;
    if (rc == 0) {
        *ret = free_bytes;
    }
    return rc;
}

int nt_dev_alloc(struct nt_dev *d, size_t bytes, void **ret, struct nt_err *err)
{
    (void)d;
    return zeroed(bytes, ret, err);
}

void nt_dev_free(struct nt_dev *d, void *p)
{
    (void)d;
    (void)cudaFree(p);
}

int nt_dev_put(struct nt_dev *d, void *to, const void *from, size_t bytes, struct nt_err *err)
{
    (void)d;
    return settle(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy to device", err);
}

int nt_dev_get(struct nt_dev *d, void *to, const void *from, size_t bytes, struct nt_err *err)
{
    (void)d;
    return check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copy from device", err);
}

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(struct nt_dev_handle), "a handle");

int nt_dev_share(struct nt_dev *d, void *p, struct nt_dev_handle *ret, struct nt_err *err)
{
    cudaIpcMemHandle_t h;
    int rc = check(cudaIpcGetMemHandle(&h, p), "IPC handle", err);
    (void)d;
    if (rc == 0) {
        memcpy(ret, &h, sizeof(*ret));
    }
    return rc;
}

int nt_dev_map(struct nt_dev *d, const struct nt_dev_handle *h, void **ret, struct nt_err *err)
{
    cudaIpcMemHandle_t handle;
    (void)d;
    memcpy(&handle, h, sizeof(handle));
    return check(cudaIpcOpenMemHandle(ret, handle, cudaIpcMemLazyEnablePeerAccess),
                 "map another rank's memory", err);
}

void nt_dev_unmap(struct nt_dev *d, void *p)
{
    (void)d;
    if (p != NULL) {
        (void)cudaIpcCloseMemHandle(p);
    }
}

int nt_dev_pin(struct nt_dev *d, void *host, size_t bytes, void **ret, struct nt_err *err)
{
    int rc = check(cudaHostRegister(host, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
                   "pin host memory", err);
    (void)d;
    if (rc == 0) {
        rc = check(cudaHostGetDevicePointer(ret, host, 0), "host memory on the device", err);
        if (rc != 0) {
            (void)cudaHostUnregister(host);
        }
    }
    return rc;
}

void nt_dev_unpin(struct nt_dev *d, void *host)
{
    (void)d;
    if (host != NULL) {
        (void)cudaHostUnregister(host);
    }
}

bool nt_dev_is_lost(struct nt_dev *d)
{
    (void)d;
    (void)cudaGetLastError();                      /* forgets what was not sticky … */
    return cudaDeviceSynchronize() != cudaSuccess; /* … and finds what is */
}

int nt_stream_open(struct nt_dev *d, struct CUstream_st **ret, struct nt_err *err)
{
    (void)d;
    return check(cudaStreamCreateWithFlags(ret, cudaStreamNonBlocking), "stream", err);
}

void nt_stream_close(struct nt_dev *d, struct CUstream_st *s)
{
    (void)d;
    if (s != NULL) {
        (void)cudaStreamDestroy(s);
    }
}

int nt_stream_sync(struct CUstream_st *s, struct nt_err *err)
{
    return check(cudaStreamSynchronize(s), "wait for the stream", err);
}

int nt_stream_done(struct CUstream_st *s, bool *ret, struct nt_err *err)
{
    cudaError_t e = cudaStreamQuery(s);
    *ret = e == cudaSuccess;
    return check(e == cudaErrorNotReady ? cudaSuccess : e, "look at the stream", err);
}

int nt_event_open(struct CUevent_st **ret, struct nt_err *err)
{
    return check(cudaEventCreate(ret), "event", err);
}

void nt_event_close(struct CUevent_st *e)
{
    if (e != NULL) {
        (void)cudaEventDestroy(e);
    }
}

int nt_event_record(struct CUevent_st *e, struct CUstream_st *s, struct nt_err *err)
{
    return check(cudaEventRecord(e, s), "record an event", err);
}

int nt_event_capture(struct CUevent_st *e, struct CUstream_st *s, struct nt_err *err)
{
    return check(cudaEventRecordWithFlags(e, s, cudaEventRecordExternal), "an event in a graph",
                 err);
}

int nt_event_between_ns(struct CUevent_st *from, struct CUevent_st *to, uint64_t *ret,
                        struct nt_err *err)
{
    float ms = 0;
    int rc = check(cudaEventElapsedTime(&ms, from, to), "time between events", err);
    if (rc == 0) {
        *ret = (uint64_t)((double)ms * 1e6);
    }
    return rc;
}

/* Thread-local: another thread may keep launching meanwhile (the busy one). */
int nt_capture_begin(struct CUstream_st *s, struct nt_err *err)
{
    return check(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "begin capture", err);
}

int nt_capture_end(struct CUstream_st *s, struct CUgraphExec_st **ret, struct nt_err *err)
{
    cudaGraph_t graph = NULL;
    int rc = check(cudaStreamEndCapture(s, &graph), "end capture", err);
    if (rc == 0) {
        rc = check(cudaGraphInstantiate(ret, graph, 0), "instantiate a graph", err);
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    return rc;
}

int nt_graph_upload(struct CUgraphExec_st *g, struct CUstream_st *s, struct nt_err *err)
{
    return check(cudaGraphUpload(g, s), "upload a graph", err);
}

int nt_graph_launch(struct CUgraphExec_st *g, struct CUstream_st *s, struct nt_err *err)
{
    return check(cudaGraphLaunch(g, s), "launch a graph", err);
}

void nt_graph_free(struct CUgraphExec_st *g)
{
    if (g != NULL) {
        (void)cudaGraphExecDestroy(g);
    }
}

int nt_dev_fill(struct CUstream_st *s, void *buf, uint64_t count, const struct nt_pattern *p,
                struct nt_err *err)
{
    return count == 0 ? 0
                      : check((cudaError_t)nt_kernel_fill(s, buf, count, p), "fill kernel", err);
}

int nt_dev_compare(struct nt_dev *d, struct CUstream_st *s, const void *buf, uint64_t count,
                   const struct nt_pattern *p, struct nt_err *err)
{
    return count == 0 ? 0
                      : check((cudaError_t)nt_kernel_compare(s, buf, count, p, d->differing),
                              "compare kernel", err);
}

int nt_dev_differ(struct nt_dev *d, struct CUstream_st *s, const void *a, const void *b,
                  uint64_t count, unsigned elem_bytes, struct nt_err *err)
{
    return count == 0
               ? 0
               : check((cudaError_t)nt_kernel_differ(s, a, b, count, elem_bytes, d->differing),
                       "compare kernel", err);
}

int nt_dev_shots_load(struct nt_dev *d, unsigned world, unsigned *ret_blocks, struct nt_err *err)
{
    int each = 0;
    unsigned held = 0;
    int rc = check((cudaError_t)nt_kernel_shots_load(world, &held), "load kernels", err);
    if (rc == 0) {
        rc = check(cudaDeviceGetAttribute(&each, cudaDevAttrMultiProcessorCount, (int)d->device),
                   "multiprocessors", err);
    }
    if (rc == 0) {
        *ret_blocks = held * (unsigned)each;
    }
    return rc;
}

int nt_dev_shot(struct CUstream_st *s, const struct nt_shot *shot, unsigned blocks,
                struct nt_err *err)
{
    return check((cudaError_t)nt_kernel_shot(s, shot, blocks), "all_reduce kernel", err);
}

int nt_dev_differing(struct nt_dev *d, struct CUstream_st *s, uint64_t *ret, struct nt_err *err)
{
    unsigned long long n = 0;
    int rc = nt_stream_sync(s, err);
    if (rc == 0) {
        rc = nt_dev_get(d, &n, d->differing, sizeof(n), err);
    }
    if (rc == 0) {
        rc = settle(cudaMemset(d->differing, 0, sizeof(n)), "clear the counter", err);
    }
    if (rc == 0) {
        *ret = n;
    }
    return rc;
}

int nt_dev_tick(struct nt_dev *d, struct CUstream_st *s, struct nt_err *err)
{
    return check((cudaError_t)nt_kernel_tick(s, d->ticks), "small kernel", err);
}

/* The products are short kernels that end by themselves, never one that runs until told, and they
 * fill half of the multiprocessors, each a whole one: NCCL's blocks, which are large, run on the
 * others. Where products lay on all of them a call waited for the end of one or did not, by chance,
 * 290 µs or 22. */
static cudaError_t keep_busy(struct nt_dev *d, cudaStream_t s, cudaEvent_t done[BUSY_BATCHES])
{
    const size_t n = (size_t)NT_PRODUCT_SIZE * NT_PRODUCT_SIZE;
    cudaError_t e = cudaSuccess;
    for (unsigned batch = 0; e == cudaSuccess && !atomic_load(&d->busy_stop); batch++) {
        cudaEvent_t ev = done[batch % BUSY_BATCHES];
        e = cudaEventSynchronize(ev); /* the batch before the last; at first: done at once */
        for (int i = 0; e == cudaSuccess && i < BUSY_BATCH; i++) {
            e = (cudaError_t)nt_kernel_product(s, d->matrices, d->matrices + n, d->matrices + 2 * n,
                                               d->product_blocks, d->product_shared);
        }
        if (e == cudaSuccess) {
            e = cudaEventRecord(ev, s);
        }
    }
    return e == cudaSuccess ? cudaStreamSynchronize(s) : e;
}

static void *busy_thread(void *arg)
{
    struct nt_dev *d = arg;
    cudaStream_t s = NULL;
    cudaEvent_t done[BUSY_BATCHES] = {NULL};
    cudaError_t e = cudaSetDevice((int)d->device);
    if (e == cudaSuccess) {
        e = cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    }
    for (int i = 0; e == cudaSuccess && i < BUSY_BATCHES; i++) {
        e = cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming);
    }
    if (e == cudaSuccess) {
        e = keep_busy(d, s, done);
    }
    for (int i = 0; i < BUSY_BATCHES; i++) {
        nt_event_close(done[i]);
    }
    nt_stream_close(d, s);
    d->busy_result = e;
    return NULL;
}

int nt_dev_busy_start(struct nt_dev *d, unsigned sharers, struct nt_err *err)
{
    void *p = NULL;
    int rc;
    if (d->matrices == NULL) {
        int processors = 0;
        rc = check(
            cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, (int)d->device),
            "multiprocessors", err);
        if (rc == 0) {
            rc = check((cudaError_t)nt_kernel_product_load((int)d->device, &d->product_shared),
                       "load the busy kernel", err);
        }
        if (rc != 0) {
            return rc;
        }
        d->product_blocks = (unsigned)processors / 2 / (sharers > 0 ? sharers : 1);
        d->product_blocks += d->product_blocks == 0;
        rc = zeroed(3 * sizeof(float) * NT_PRODUCT_SIZE * NT_PRODUCT_SIZE, &p, err);
        if (rc != 0) {
            return rc;
        }
        d->matrices = p;
    }
    atomic_store(&d->busy_stop, false);
    d->busy_result = cudaSuccess;
    rc = pthread_create(&d->busy, NULL, busy_thread, d);
    if (rc != 0) {
        return nt_fail(err, NT_E_IO, rc, "start the busy thread");
    }
    d->busy_started = true;
    return 0;
}

int nt_dev_busy_stop(struct nt_dev *d, struct nt_err *err)
{
    if (!d->busy_started) {
        return 0;
    }
    atomic_store(&d->busy_stop, true);
    (void)pthread_join(d->busy, NULL);
    d->busy_started = false;
    return check((cudaError_t)d->busy_result, "busy kernels", err);
}
