#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "probes/nccl/barrier.h"
#include "probes/nccl/shots.h"
#include "tests/probe/fake/fake.h"

/* BLOCKS: few, as each is run by one process. */
enum { MEMORY = 1 << 30, L2 = 1 << 18, VERSION = 13000, BLOCKS = 12 };

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
struct block { /* in front of each allocation, which is a file that other processes can map */
    size_t bytes;
    int fd;
    char pad[4096 - sizeof(size_t) - sizeof(int)];
};
struct shared { /* a handle */
    int pid, fd;
    size_t bytes;
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
                                .multiprocessors = 8,
                                .capability = (int)setting("FAKE_DEV_CAPABILITY", 90)};
    (void)snprintf(ret->uuid, sizeof(ret->uuid), "GPU-fa4e0000-0000-0000-0000-%012u", d);
    (void)snprintf(ret->pci, sizeof(ret->pci), "ffff:%02x:00.0", d + 1);
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

int nt_dev_use(struct nt_dev *d, struct nt_err *err)
{
    (void)d;
    return still_there(err);
}

int nt_dev_reach(struct nt_dev *from, struct nt_dev *to, struct nt_reach *ret, struct nt_err *err)
{
    (void)from;
    (void)to;
    *ret = (struct nt_reach){.access = getenv("FAKE_DEV_NO_PEER") == NULL};
    return still_there(err);
}

int nt_dev_copy(struct nt_dev *to_dev, void *to, struct nt_dev *from_dev, const void *from,
                size_t bytes, struct CUstream_st *s, struct nt_err *err)
{
    (void)s;
    /* Nobody looks at a large copy within a device: it is only timed. */
    memcpy(to, from, to_dev == from_dev && bytes > 1 << 20 ? 1 << 20 : bytes);
    if (to_dev != from_dev && getenv("FAKE_DEV_BAD_COPY") != NULL) {
        ((char *)to)[0] ^= 1;
    }
    return still_there(err);
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
    int fd;
    (void)d;
    if ((int64_t)bytes > MEMORY - device.taken) {
        return nt_fail(err, NT_E_IO, 0, "device memory: out of memory");
    }
    fd = memfd_create("fake-device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)(sizeof(*b) + bytes)) != 0) {
        return nt_fail(err, NT_E_NOMEM, errno, "device memory");
    }
    b = mmap(NULL, sizeof(*b) + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (b == MAP_FAILED) {
        (void)close(fd);
        return nt_fail(err, NT_E_NOMEM, errno, "device memory");
    }
    b->bytes = bytes;
    b->fd = fd;
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
        (void)close(b->fd);
        (void)munmap(b, sizeof(*b) + b->bytes);
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

int nt_dev_share(struct nt_dev *d, void *p, struct nt_dev_handle *ret, struct nt_err *err)
{
    const struct block *b = (struct block *)p - 1;
    const struct shared s = {getpid(), b->fd, b->bytes};
    (void)d;
    memset(ret, 0, sizeof(*ret));
    memcpy(ret, &s, sizeof(s));
    return getenv("FAKE_DEV_NO_PEER") != NULL
               ? nt_fail(err, NT_E_IO, 0, "IPC handle: operation not supported")
               : still_there(err);
}

int nt_dev_map(struct nt_dev *d, const struct nt_dev_handle *h, void **ret, struct nt_err *err)
{
    struct shared s;
    struct block *b;
    char path[64];
    int fd;
    (void)d;
    memcpy(&s, h, sizeof(s));
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", s.pid, s.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return nt_fail(err, NT_E_IO, errno, "map another rank's memory");
    }
    b = mmap(NULL, sizeof(*b) + s.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (b == MAP_FAILED) {
        return nt_fail(err, NT_E_IO, errno, "map another rank's memory");
    }
    *ret = b + 1;
    return 0;
}

void nt_dev_unmap(struct nt_dev *d, void *p)
{
    (void)d;
    if (p != NULL) {
        struct block *b = (struct block *)p - 1;
        (void)munmap(b, sizeof(*b) + b->bytes);
    }
}

int nt_dev_pin(struct nt_dev *d, void *host, size_t bytes, void **ret, struct nt_err *err)
{
    (void)d;
    (void)bytes;
    *ret = host;
    return still_there(err);
}

void nt_dev_unpin(struct nt_dev *d, void *host)
{
    (void)d;
    (void)host;
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

int nt_stream_done(struct CUstream_st *s, bool *ret, struct nt_err *err)
{
    (void)s;
    *ret = true;
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

static int note_time(void *arg)
{
    struct CUevent_st **e = arg;
    (*e)->at_ns = nt_now_ns();
    return 0;
}

int nt_event_capture(struct CUevent_st *e, struct CUstream_st *s, struct nt_err *err)
{
    struct CUevent_st **arg = malloc(sizeof(struct CUevent_st *));
    nt_assert(arg != NULL && s->captured);
    *arg = e;
    (void)fake_stream_put(s, note_time, arg);
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

int nt_graph_upload(struct CUgraphExec_st *g, struct CUstream_st *s, struct nt_err *err)
{
    (void)g;
    (void)s;
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

int nt_dev_differ(struct nt_dev *d, struct CUstream_st *s, const void *a, const void *b,
                  uint64_t count, unsigned elem_bytes, struct nt_err *err)
{
    (void)s;
    for (uint64_t i = 0; i < count; i++) {
        d->differing += memcmp((const char *)a + i * elem_bytes, (const char *)b + i * elem_bytes,
                               elem_bytes) != 0;
    }
    return still_there(err);
}

int nt_dev_shots_load(struct nt_dev *d, unsigned world, unsigned *ret_blocks, struct nt_err *err)
{
    (void)d;
    (void)world;
    *ret_blocks = BLOCKS;
    return still_there(err);
}

struct shot_call {
    struct nt_shot s;
    unsigned blocks;
    bool replayed;
};

/* KIND:RANK[:BYTES[:WHEN]] of FAKE_SHOT_FAULT (fake.h). */
static bool shot_fault(const struct shot_call *c, const char *kind)
{
    static unsigned calls;
    const char *text = getenv("FAKE_SHOT_FAULT");
    char copy[64], *rest = copy, *f[4] = {NULL};
    if (text == NULL) {
        return false;
    }
    (void)snprintf(copy, sizeof(copy), "%s", text);
    for (size_t i = 0; i < 4 && rest != NULL; i++) {
        f[i] = strsep(&rest, ":");
    }
    if (strcmp(f[0], kind) != 0 || f[1] == NULL || strtoul(f[1], NULL, 10) != c->s.rank ||
        (f[2] != NULL && c->s.bytes < strtoull(f[2], NULL, 10))) {
        return false;
    }
    return f[3] == NULL                     ? true
           : strcmp(f[3], "replay") == 0    ? c->replayed
           : strcmp(f[3], "in-place") == 0  ? c->s.in[c->s.rank] == c->s.out[c->s.rank]
           : strcmp(f[3], "sometimes") == 0 ? calls++ % 10 < 3
                                            : false;
}

/* The blocks of a rank run one after the other, in the same order on all ranks. */
static int run_shot(void *arg)
{
    struct shot_call *c = arg;
    unsigned world = c->s.world;
    unsigned batch = world == 2 || world == 4 || world == 8 ? NT_SHOT_FLIGHT / world : 0;
    bool direct = c->s.proto == NT_DIRECT;
    if (shot_fault(c, "hang")) { /* this rank never comes: the others give up */
        return 0;
    }
    for (unsigned b = 0; b < c->blocks; b++) {
        const struct nt_lane lane = {.block = b, .blocks = c->blocks, .lanes = 1};
        if (c->s.proto == NT_LL) {
            nt_shot_run_ll(&c->s, lane, world, c->s.dtype);
        } else {
            nt_shot_run(&c->s, lane, world, c->s.dtype, batch, c->s.algo == NT_ONE_SHOT, direct);
        }
    }
    if (shot_fault(c, "wrong")) {
        ((char *)c->s.out[c->s.rank])[c->s.bytes - 1] ^= 0x10;
    }
    c->replayed = true;
    return 0;
}

int nt_dev_shot(struct CUstream_st *s, const struct nt_shot *shot, unsigned blocks,
                struct nt_err *err)
{
    struct shot_call *c = malloc(sizeof(*c));
    if (c == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "a call");
    }
    *c = (struct shot_call){.s = *shot, .blocks = blocks};
    (void)fake_stream_put(s, run_shot, c);
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

int nt_dev_busy_start(struct nt_dev *d, unsigned sharers, struct nt_err *err)
{
    (void)sharers;
    (void)d;
    return still_there(err);
}

int nt_dev_busy_stop(struct nt_dev *d, struct nt_err *err)
{
    (void)d;
    return still_there(err);
}
