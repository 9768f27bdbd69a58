#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "probes/nccl/barrier.h"
#include "tests/probe/fake/fake.h"

enum { MEMORY = 1 << 30, L2 = 1 << 18, VERSION = 13000 };

struct node {
    int (*fn)(void *arg);
    void *arg;
    struct node *next;
};
struct CUstream_st {
    bool captured;
    struct node *first, **end;
};
struct CUgraphExec_st {
    struct node *first;
};
struct CUevent_st {
    uint64_t at_ns;
};
struct block { /* in front of each allocation */
    size_t bytes;
    char pad[4096 - sizeof(size_t)];
};
struct nt_dev {
    uint64_t differing;
};

static struct {
    int64_t taken;
    unsigned waits;
    bool lost;
} device;

static unsigned setting(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static int still_there(struct nt_err *err)
{
    return device.lost
               ? nt_fail(err, NT_E_IO, 0, "device: an illegal memory access was encountered")
               : 0;
}

int nt_dev_count(unsigned *ret, struct nt_err *err)
{
    unsigned n = setting("FAKE_DEV_COUNT", 8);
    if (n == 0) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "no usable GPU: none visible; look at nvidia-smi and CUDA_VISIBLE_DEVICES");
    }
    *ret = n;
    return 0;
}

int nt_dev_describe(unsigned d, struct nt_dev_info *ret, struct nt_err *err)
{
    unsigned count = 0;
    int rc = nt_dev_count(&count, err);
    if (rc != 0) {
        return rc;
    }
    if (d >= count) {
        return nt_fail(err, NT_E_INVAL, 0, "device %u of %u", d, count);
    }
    *ret = (struct nt_dev_info){.name = "Fake GPU",
                                .memory_bytes = MEMORY,
                                .l2_bytes = L2,
                                .capability = (int)setting("FAKE_DEV_CAPABILITY", 90)};
    (void)snprintf(ret->uuid, sizeof(ret->uuid), "GPU-fa4e0000-0000-0000-0000-%012u", d);
    (void)snprintf(ret->pci, sizeof(ret->pci), "0000:%02x:00.0", d + 1);
    return 0;
}

void nt_dev_versions(int *ret_cuda, int *ret_driver)
{
    *ret_cuda = *ret_driver = VERSION;
}

int nt_dev_open(unsigned d, struct nt_dev **ret, struct nt_err *err)
{
    struct nt_dev_info info;
    struct nt_dev *dev;
    int rc = nt_dev_describe(d, &info, err);
    if (rc != 0) {
        return rc;
    }
    dev = calloc(1, sizeof(*dev));
    if (dev == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "device");
    }
    *ret = dev;
    return 0;
}

void nt_dev_close(struct nt_dev *d)
{
    free(d);
}

int nt_dev_free_bytes(struct nt_dev *d, uint64_t *ret, struct nt_err *err)
{
    (void)d;
    *ret = (uint64_t)(MEMORY - device.taken);
    return still_there(err);
}

int nt_dev_alloc(struct nt_dev *d, size_t bytes, void **ret, struct nt_err *err)
{
    struct block *b;
    (void)d;
    if ((int64_t)bytes > MEMORY - device.taken) {
        return nt_fail(err, NT_E_IO, 0, "device memory: out of memory");
    }
    b = aligned_alloc(sizeof(struct block), sizeof(struct block) + (bytes + 4095) / 4096 * 4096);
    if (b == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "device memory");
    }
    b->bytes = bytes;
    memset(b + 1, 0, bytes);
    device.taken += (int64_t)bytes;
    *ret = b + 1;
    return 0;
}

void nt_dev_free(struct nt_dev *d, void *p)
{
    (void)d;
    if (p != NULL) {
        struct block *b = (struct block *)p - 1;
        device.taken -= (int64_t)b->bytes;
        free(b);
    }
}

void fake_memory_take(int64_t bytes)
{
    device.taken += bytes;
}

int nt_dev_put(struct nt_dev *d, void *to, const void *from, size_t bytes, struct nt_err *err)
{
    (void)d;
    memcpy(to, from, bytes);
    return still_there(err);
}

int nt_dev_get(struct nt_dev *d, void *to, const void *from, size_t bytes, struct nt_err *err)
{
    return nt_dev_put(d, to, from, bytes, err);
}

bool nt_dev_is_lost(struct nt_dev *d)
{
    (void)d;
    return device.lost;
}

int nt_stream_open(struct nt_dev *d, struct CUstream_st **ret, struct nt_err *err)
{
    struct CUstream_st *s = calloc(1, sizeof(*s));
    (void)d;
    if (s == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "stream");
    }
    *ret = s;
    return 0;
}

void nt_stream_close(struct nt_dev *d, struct CUstream_st *s)
{
    (void)d;
    free(s);
}

int nt_stream_sync(struct CUstream_st *s, struct nt_err *err)
{
    const char *lost = getenv("FAKE_DEV_LOST");
    char *after = NULL;
    (void)s;
    device.waits++;
    if (lost != NULL && strtoul(lost, &after, 10) == setting("NCCLTUNE_RANK", 0) && *after == ':' &&
        device.waits > strtoul(after + 1, NULL, 10)) {
        device.lost = true;
    }
    return still_there(err);
}

int nt_event_open(struct CUevent_st **ret, struct nt_err *err)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret != NULL ? 0 : nt_fail(err, NT_E_NOMEM, 0, "event");
}

void nt_event_close(struct CUevent_st *e)
{
    free(e);
}

int nt_event_record(struct CUevent_st *e, struct CUstream_st *s, struct nt_err *err)
{
    (void)s;
    e->at_ns = nt_now_ns();
    return still_there(err);
}

int nt_event_between_ns(struct CUevent_st *from, struct CUevent_st *to, uint64_t *ret,
                        struct nt_err *err)
{
    double factor = setting("FAKE_DEV_EVENT_FACTOR", 1);
    *ret = (uint64_t)((double)(to->at_ns - from->at_ns) * factor);
    return still_there(err);
}

int nt_capture_begin(struct CUstream_st *s, struct nt_err *err)
{
    s->captured = true;
    s->first = NULL;
    s->end = &s->first;
    return still_there(err);
}

int nt_capture_end(struct CUstream_st *s, struct CUgraphExec_st **ret, struct nt_err *err)
{
    struct CUgraphExec_st *g = calloc(1, sizeof(*g));
    s->captured = false;
    if (g == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "graph");
    }
    g->first = s->first;
    s->first = NULL;
    *ret = g;
    return still_there(err);
}

int nt_graph_launch(struct CUgraphExec_st *g, struct CUstream_st *s, struct nt_err *err)
{
    (void)s;
    for (struct node *n = g->first; n != NULL; n = n->next) {
        if (n->fn(n->arg) != 0) {
            return nt_fail(err, NT_E_IO, 0, "launch a graph: a call in it failed");
        }
    }
    return still_there(err);
}

void nt_graph_free(struct CUgraphExec_st *g)
{
    while (g != NULL && g->first != NULL) {
        struct node *n = g->first;
        g->first = n->next;
        free(n->arg);
        free(n);
    }
    free(g);
}

bool fake_stream_is_captured(struct CUstream_st *s)
{
    return s->captured;
}

int fake_stream_put(struct CUstream_st *s, int (*fn)(void *arg), void *arg)
{
    struct node *n;
    if (!s->captured) {
        int rc = fn(arg);
        free(arg);
        return rc;
    }
    n = calloc(1, sizeof(*n));
    nt_assert(n != NULL);
    *n = (struct node){.fn = fn, .arg = arg};
    *s->end = n;
    s->end = &n->next;
    return 0;
}

int nt_dev_fill(struct CUstream_st *s, void *buf, uint64_t count, const struct nt_pattern *p,
                struct nt_err *err)
{
    (void)s;
    for (uint64_t i = 0; i < count; i++) {
        nt_pattern_store(p, buf, i);
    }
    return still_there(err);
}

int nt_dev_compare(struct nt_dev *d, struct CUstream_st *s, const void *buf, uint64_t count,
                   const struct nt_pattern *p, struct nt_err *err)
{
    (void)s;
    for (uint64_t i = 0; i < count; i++) {
        d->differing += nt_pattern_differs(p, buf, i);
    }
    return still_there(err);
}

int nt_dev_differing(struct nt_dev *d, struct CUstream_st *s, uint64_t *ret, struct nt_err *err)
{
    int rc = nt_stream_sync(s, err);
    if (rc == 0) {
        *ret = d->differing;
        d->differing = 0;
    }
    return rc;
}

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

int nt_dev_tick(struct nt_dev *d, struct CUstream_st *s, struct nt_err *err)
{
    (void)d;
    (void)fake_stream_put(s, nothing, NULL);
    return still_there(err);
}

int nt_dev_busy_start(struct nt_dev *d, struct nt_err *err)
{
    (void)d;
    return still_there(err);
}

int nt_dev_busy_stop(struct nt_dev *d, struct nt_err *err)
{
    (void)d;
    return still_there(err);
}
