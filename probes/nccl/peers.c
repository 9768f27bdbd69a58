#include "probes/nccl/peers.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "probes/nccl/barrier.h"
#include "probes/nccl/dev.h"

/* MOST_BYTES: beyond any L2; a small device is asked for less. */
enum {
    MOST = 16,
    MOST_BYTES = 64 << 20,
    CHUNK = 1 << 20,
    COPIES = 8,
    RUNS = 5,
    SALT = 7,
    SHARE = 256
};
static const uint64_t limit_ns = 5000000000U;

struct peer {
    struct nt_dev *dev;
    struct CUstream_st *stream;
    void *a, *b;
    uint64_t bytes; /* of each */
};

/* ---- multicast ---- */

static const struct {
    const char *name, *forbids;
} forbidden[] = {{"NCCL_NVLS_ENABLE", "0"},
                 {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"},
                 {"NVSHMEM_DISABLE_NVLS", "1"}};

/* In the child: 0 no, 1 yes, else not to be told. */
static int ask_driver(void)
{
    enum { MULTICAST_SUPPORTED = 132 }; /* CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED */
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *symbol;
    int (*init)(unsigned) = NULL, (*get)(int *, int, int) = NULL, yes = 0;
    if (lib == NULL) {
        return 2;
    }
    symbol = dlsym(lib, "cuInit");
    memcpy(&init, &symbol, sizeof(init));
    symbol = dlsym(lib, "cuDeviceGetAttribute");
    memcpy(&get, &symbol, sizeof(get));
    if (init == NULL || get == NULL || init(0) != 0 || get(&yes, MULTICAST_SUPPORTED, 0) != 0) {
        return 2;
    }
    return yes != 0;
}

void nt_peers_multicast(struct nt_buf *out)
{
    static const char *const words[] = {"not supported", "supported", "not to be told"};
    uint64_t until = nt_now_ns() + limit_ns;
    int status = 0;
    pid_t pid, got = 0;
    for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++) {
        const char *value = getenv(forbidden[i].name);
        if (value != NULL && strcmp(value, forbidden[i].forbids) == 0) {
            nt_buf_printf(out, "\"not asked: %s=%s\"", forbidden[i].name, value);
            return;
        }
    }
    pid = fork();
    if (pid == 0) {
        _exit(ask_driver());
    }
    while (pid > 0 && (got = waitpid(pid, &status, WNOHANG)) == 0 && nt_now_ns() < until) {
        const struct timespec pause = {.tv_nsec = 5000000};
        (void)nanosleep(&pause, NULL);
    }
    if (pid > 0 && got == 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
    }
    nt_buf_printf(out, "\"%s\"",
                  pid > 0 && got == pid && WIFEXITED(status) && WEXITSTATUS(status) < 2
                      ? words[WEXITSTATUS(status)]
                      : words[2]);
}

/* ---- copies ---- */

/* Waits for the stream, but not for ever. */
static int wait_for(const struct peer *p, struct nt_err *err)
{
    uint64_t until = nt_now_ns() + limit_ns;
    bool done = false;
    int rc = 0;
    while (rc == 0 && !done) {
        rc = nt_stream_done(p->stream, &done, err);
        if (rc == 0 && !done && nt_now_ns() > until) {
            rc = nt_fail(err, NT_E_INTERRUPTED, 0, "does not end");
        }
    }
    return rc;
}

static struct nt_pattern pattern(unsigned from, unsigned to)
{
    return (struct nt_pattern){
        .kind = NT_PATTERN_RAW, .elem_bytes = 4, .rank = from, .salt = SALT + to};
}

/* What stands in p's own or mapped memory, seen by p. */
static int expect(const struct peer *p, const void *at, const struct nt_pattern *want,
                  struct nt_err *err)
{
    uint64_t differing = 0;
    int rc = nt_dev_compare(p->dev, p->stream, at, CHUNK / 4, want, err);
    if (rc == 0) {
        rc = wait_for(p, err);
    }
    if (rc == 0) {
        rc = nt_dev_differing(p->dev, p->stream, &differing, err);
    }
    return rc == 0 && differing > 0 ? nt_fail(err, NT_E_IO, 0, "other data arrives") : rc;
}

static int fill(const struct peer *p, void *at, const struct nt_pattern *want, struct nt_err *err)
{
    int rc = nt_dev_fill(p->stream, at, CHUNK / 4, want, err);
    return rc != 0 ? rc : wait_for(p, err);
}

/* Best of a few; 0 when not to be had. */
static int bandwidth(const struct peer *to, const struct peer *from, double *ret,
                     struct nt_err *err)
{
    struct CUevent_st *begin = NULL, *end = NULL;
    double best = 0;
    uint64_t bytes = to->bytes < from->bytes ? to->bytes : from->bytes;
    int rc = nt_event_open(&begin, err);
    if (rc == 0) {
        rc = nt_event_open(&end, err);
    }
    for (int run = 0; rc == 0 && run < RUNS; run++) {
        uint64_t ns = 0;
        rc = nt_event_record(begin, from->stream, err);
        for (int i = 0; rc == 0 && i < COPIES; i++) {
            rc = nt_dev_copy(to->dev, to->b, from->dev, from->a, bytes, from->stream, err);
        }
        if (rc == 0) {
            rc = nt_event_record(end, from->stream, err);
        }
        if (rc == 0) {
            rc = wait_for(from, err);
        }
        if (rc == 0) {
            rc = nt_event_between_ns(begin, end, &ns, err);
        }
        if (rc == 0 && ns > 0 && (double)bytes * COPIES * 1e9 / (double)ns > best) {
            best = (double)bytes * COPIES * 1e9 / (double)ns;
        }
    }
    nt_event_close(begin);
    nt_event_close(end);
    *ret = best;
    return rc;
}

/* The copy engine's way, then a kernel's writing and reading. */
static int try_copy(const struct peer *f, const struct peer *t, unsigned from, unsigned to,
                    struct nt_err *err)
{
    struct nt_pattern m = pattern(from, to);
    int rc = nt_dev_use(f->dev, err);
    if (rc == 0) {
        rc = fill(f, f->a, &m, err);
    }
    if (rc == 0) {
        rc = nt_dev_copy(t->dev, t->b, f->dev, f->a, CHUNK, f->stream, err);
    }
    if (rc == 0) {
        rc = wait_for(f, err);
    }
    if (rc == 0) {
        rc = nt_dev_use(t->dev, err);
    }
    return rc != 0 ? rc : expect(t, t->b, &m, err);
}

static int try_write(const struct peer *f, const struct peer *t, unsigned from, unsigned to,
                     struct nt_err *err)
{
    struct nt_pattern m = pattern(from + MOST, to);
    int rc = nt_dev_use(f->dev, err);
    if (rc == 0) {
        rc = fill(f, t->b, &m, err);
    }
    if (rc == 0) {
        rc = nt_dev_use(t->dev, err);
    }
    return rc != 0 ? rc : expect(t, t->b, &m, err);
}

static int try_read(const struct peer *f, const struct peer *t, unsigned from, unsigned to,
                    struct nt_err *err)
{
    struct nt_pattern m = pattern(to + 2 * MOST, from);
    int rc = nt_dev_use(t->dev, err);
    if (rc == 0) {
        rc = fill(t, t->b, &m, err);
    }
    if (rc == 0) {
        rc = nt_dev_use(f->dev, err);
    }
    return rc != 0 ? rc : expect(f, t->b, &m, err);
}

static const struct {
    const char *name;
    int (*run)(const struct peer *f, const struct peer *t, unsigned from, unsigned to,
               struct nt_err *err);
    bool direct; /* needs peer access */
} trials[] = {{"copy", try_copy, false}, {"write", try_write, true}, {"read", try_read, true}};

/* Words of an error in a JSON string. */
static void say_error(struct nt_buf *out, const char *words)
{
    char clean[160];
    (void)snprintf(clean, sizeof(clean), "%.*s", (int)sizeof(clean) - 1, words);
    for (char *c = clean; *c != '\0'; c++) {
        *c = *c == '"' || *c == '\\' || (unsigned char)*c < ' ' ? '\'' : *c;
    }
    nt_buf_printf(out, "\"%s\"", clean);
}

/* False: something does not end, and nothing more can be asked of these devices. */
static bool try_pair(const struct peer *peers, unsigned from, unsigned to, struct nt_buf *out)
{
    const struct peer *f = &peers[from], *t = &peers[to];
    struct nt_reach reach = {0};
    struct nt_err err = {0};
    double rate = 0;
    bool ended = true;
    if (nt_dev_reach(f->dev, t->dev, &reach, &err) != 0) {
        reach.access = false;
    }
    nt_buf_printf(out, "{\"from\":%u,\"to\":%u,\"access\":%s,\"atomics\":%s,\"rank\":%d", from, to,
                  reach.access ? "true" : "false", reach.atomics ? "true" : "false", reach.rank);
    for (size_t i = 0; ended && i < sizeof(trials) / sizeof(trials[0]); i++) {
        int rc;
        if (trials[i].direct && !reach.access) {
            continue;
        }
        rc = trials[i].run(f, t, from, to, &err);
        ended = rc != -NT_E_INTERRUPTED;
        nt_buf_printf(out, ",\"%s\":", trials[i].name);
        say_error(out, rc == 0 ? "ok" : err.msg);
    }
    if (ended && nt_dev_use(f->dev, &err) == 0 && bandwidth(t, f, &rate, &err) == 0) {
        nt_buf_printf(out, ",\"bytes_per_s\":%.4g", rate);
    }
    nt_buf_puts(out, "}");
    return ended;
}

static int open_peer(unsigned device, struct peer *p, struct nt_err *err)
{
    int rc = nt_dev_open(device, &p->dev, err);
    if (rc == 0) {
        rc = nt_stream_open(p->dev, &p->stream, err);
    }
    if (rc == 0) {
        rc = nt_dev_alloc(p->dev, p->bytes, &p->a, err);
    }
    return rc != 0 ? rc : nt_dev_alloc(p->dev, p->bytes, &p->b, err);
}

static int say_device(struct peer *p, unsigned device, struct nt_buf *out, struct nt_err *err)
{
    struct nt_dev_info info;
    double rate = 0;
    int rc = nt_dev_describe(device, &info, err);
    if (rc == 0) {
        p->bytes = info.memory_bytes / SHARE;
        p->bytes = p->bytes > MOST_BYTES ? MOST_BYTES : p->bytes < CHUNK ? CHUNK : p->bytes;
        rc = open_peer(device, p, err);
    }
    if (rc == 0) {
        rc = bandwidth(p, p, &rate, err);
    }
    if (rc == 0) {
        nt_buf_printf(out,
                      "%s{\"uuid\":\"%s\",\"pci\":\"%s\",\"name\":\"%s\","
                      "\"multiprocessors\":%u,\"copy_bytes_per_s\":%.4g}",
                      device > 0 ? "," : "", info.uuid, info.pci, info.name, info.multiprocessors,
                      rate);
    }
    return rc;
}

int nt_peers_run(struct nt_buf *out, struct nt_err *err)
{
    struct peer peers[MOST] = {{0}};
    unsigned n = 0;
    bool ended = true;
    int rc;
    nt_buf_puts(out, "{\"v\":1,\"multicast\":");
    nt_peers_multicast(out);
    rc = nt_dev_count(&n, err);
    n = n > MOST ? MOST : n;
    nt_buf_puts(out, ",\"devices\":[");
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = say_device(&peers[i], i, out, err);
    }
    nt_buf_puts(out, "],\"pairs\":[");
    for (unsigned k = 0, said = 0; rc == 0 && ended && k < n * n; k++) {
        if (k / n != k % n) {
            nt_buf_puts(out, said++ > 0 ? "," : "");
            ended = try_pair(peers, k / n, k % n, out);
        }
    }
    nt_buf_printf(out, "],\"ended\":%s}\n", ended ? "true" : "false");
    for (unsigned i = 0; ended && i < n; i++) {
        if (peers[i].dev != NULL && nt_dev_use(peers[i].dev, NULL) == 0) {
            nt_dev_free(peers[i].dev, peers[i].a);
            nt_dev_free(peers[i].dev, peers[i].b);
            nt_stream_close(peers[i].dev, peers[i].stream);
            nt_dev_close(peers[i].dev);
        }
    }
    return rc;
}
