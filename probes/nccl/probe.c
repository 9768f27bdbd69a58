#include "probes/nccl/probe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tuner/base/hash.h"

/* Exit codes of a rank; the driver reads the words, not these. */
enum { EXIT_QUIT = 0, EXIT_FAILED = 1, EXIT_MISSING = 3 };

/* A topology longer than this would not fit a line; NCCL's of eight GPUs has some 20 KiB. */
enum { TOPOLOGY_MAX = NT_LINE_MAX / 4, CONF_MAX = 1 << 20 };

static _Noreturn void die(struct nt_probe *p, int rc, const struct nt_err *err)
{
    nt_barrier_leave(&p->barrier);
    nt_link_die(p->link, rc == -NT_E_MISSING ? EXIT_MISSING : EXIT_FAILED, err->msg);
}

static int env_number(const char *name, unsigned *ret, struct nt_err *err)
{
    const char *text = getenv(name);
    char *rest = NULL;
    unsigned long v = text != NULL ? strtoul(text, &rest, 10) : 0;
    if (text == NULL || rest == text || *rest != '\0' || v > INT32_MAX) {
        return nt_fail(err, NT_E_INVAL, 0, "%s must be a number; a launcher sets it", name);
    }
    *ret = (unsigned)v;
    return 0;
}

static int where_on_host(struct nt_probe *p, struct nt_err *err)
{
    unsigned first = 0;
    int rc = 0;
    p->host_ranks = p->world;
    if (getenv(NT_ENV_HOST_FIRST) != NULL) {
        rc = env_number(NT_ENV_HOST_FIRST, &first, err);
        rc = rc == 0 ? env_number(NT_ENV_HOST_RANKS, &p->host_ranks, err) : rc;
    }
    if (rc == 0 && (p->rank < first || p->rank - first >= p->host_ranks)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "rank %u is none of the %u of this host, from %u on",
                     p->rank, p->host_ranks, first);
    }
    p->host_rank = p->rank - first;
    return rc;
}

static int where_am_i(struct nt_probe *p, const char **ret_driver, struct nt_err *err)
{
    const char *driver = getenv(NT_ENV_DRIVER);
    int rc = env_number(NT_ENV_RANK, &p->rank, err);
    if (rc == 0) {
        rc = env_number(NT_ENV_WORLD, &p->world, err);
    }
    if (rc == 0 && (p->world == 0 || p->rank >= p->world)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "rank %u of %u", p->rank, p->world);
    }
    if (rc == 0) {
        rc = where_on_host(p, err);
    }
    if (rc == 0 && driver == NULL) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s is not set; this program is started by nccltune",
                     NT_ENV_DRIVER);
    }
    *ret_driver = driver;
    return rc;
}

/* Which device it will be is said by init; until then the rank's number is the best guess. */
static int say_hello(struct nt_probe *p, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_HELLO};
    struct nt_hello *h = &m.hello;
    struct nt_dev_info info;
    unsigned devices = 0;
    int rc = nt_dev_count(&devices, err);
    if (rc == 0) {
        rc = nt_dev_describe(p->host_rank % devices, &info, err);
    }
    if (rc == 0) {
        rc = nt_nccl_open(&p->nccl, err);
    }
    if (rc != 0) {
        return rc;
    }
    h->v = NT_PROTOCOL_VERSION;
    h->rank = p->rank;
    h->world = p->world;
    h->pid = (long)getpid();
    (void)gethostname(h->host, sizeof(h->host) - 1);
    (void)snprintf(h->gpu_uuid, sizeof(h->gpu_uuid), "%s", info.uuid);
    (void)snprintf(h->gpu_pci, sizeof(h->gpu_pci), "%s", info.pci);
    (void)snprintf(h->gpu_name, sizeof(h->gpu_name), "%s", info.name);
    h->gpu_memory_bytes = info.memory_bytes;
    h->nccl = p->nccl.version;
    nt_dev_versions(&h->cuda, &h->driver);
    (void)snprintf(h->nccl_file, sizeof(h->nccl_file), "%s", p->nccl.file);
    (void)snprintf(h->rig, sizeof(h->rig), "%s", nt_rig_names[NT_RIG_NCCL]);
    nt_link_send(p->link, &m);
    return 0;
}

static int make_uid(struct nt_probe *p, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_UID};
    struct nt_nccl_id id;
    int rc = nt_nccl_check(&p->nccl, NULL, p->rank, p->nccl.GetUniqueId(&id), "unique id", err);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < sizeof(id.bytes); i++) {
        (void)snprintf(&m.uid[2 * i], 3, "%02x", (unsigned char)id.bytes[i]);
    }
    nt_link_send(p->link, &m);
    return 0;
}

static int read_uid(const char *hex, struct nt_nccl_id *ret, struct nt_err *err)
{
    if (strlen(hex) != 2 * sizeof(ret->bytes) ||
        strspn(hex, "0123456789abcdef") != 2 * sizeof(ret->bytes)) {
        return nt_fail(err, NT_E_PROTO, 0, "uid is not %zu bytes in hex", sizeof(ret->bytes));
    }
    for (size_t i = 0; i < sizeof(ret->bytes); i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        ret->bytes[i] = (char)strtoul(pair, NULL, 16);
    }
    return 0;
}

/* A file without a name, into which NCCL writes the topology that it sees, and which nobody can
 * leave behind; -1 when none is to be made. A file that the driver named is its own business.
 * Every rank asks although only rank 0 writes: with the variable set NCCL goes through its topology
 * once more, together with all ranks of the node, and one that asks alone waits for ever. */
static int ask_for_topology(void)
{
    char path[64];
    int fd;
    if (getenv("NCCL_TOPO_DUMP_FILE") != NULL) {
        return -1;
    }
    fd = memfd_create("nccltune-topology", MFD_CLOEXEC);
    if (fd >= 0) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        (void)setenv("NCCL_TOPO_DUMP_FILE", path, 1);
    }
    return fd;
}

/* The caller frees; NULL when there is none. */
static char *take_topology(int fd)
{
    struct nt_buf xml;
    char path[64], *copy = NULL;
    if (fd < 0) {
        return NULL;
    }
    (void)unsetenv("NCCL_TOPO_DUMP_FILE");
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    nt_buf_init(&xml, TOPOLOGY_MAX);
    if (nt_buf_read_file(&xml, path, NULL) == 0 && xml.len > 0) {
        copy = strdup(xml.data);
    }
    nt_buf_done(&xml);
    (void)close(fd);
    return copy;
}

static void note_file(struct nt_buf *out, const char *key, const char *path)
{
    struct nt_buf text;
    char hex[NT_HEX_LEN + 1] = "absent";
    nt_buf_init(&text, CONF_MAX);
    if (access(path, F_OK) == 0) {
        if (nt_buf_read_file(&text, path, NULL) == 0) {
            nt_sha256_hex(nt_buf_str(&text), text.len, hex);
        } else {
            (void)snprintf(hex, sizeof(hex), "unreadable");
        }
    }
    nt_buf_done(&text);
    nt_buf_printf(out, "%s=%s %s\n", key, path, hex);
}

/* Provenance: what NCCL may have read, and through what it let itself be asked. The caller frees.
 */
static char *describe(const struct nt_probe *p, const struct nt_dev_info *info)
{
    const char *home = getenv("HOME"), *conf = getenv("NCCL_CONF_FILE");
    char path[512], *text;
    struct nt_buf out;
    nt_buf_init(&out, NT_LINE_MAX / 8);
    nt_buf_printf(&out, "gpu=%s %s\n", info->uuid, info->pci);
    nt_buf_printf(&out, "nccl_file=%s\n", p->nccl.file);
    nt_buf_printf(&out, "tuner_abi=%d\nprofiler_abi=%d\n", nt_tuner_version(),
                  nt_profiler_version());
    nt_buf_printf(&out, "core=%d", p->cpu.core);
    for (unsigned k = 0; k < p->cpu.ntried; k++) {
        nt_buf_printf(&out, " %d:%llu", p->cpu.tried[k], (unsigned long long)p->cpu.ns[k]);
    }
    nt_buf_printf(&out, "\nbuffer_bytes=%llu\nl2_bytes=%llu\n", (unsigned long long)p->pool.bytes,
                  (unsigned long long)info->l2_bytes);
    note_file(&out, "conf_system", "/etc/nccl.conf");
    if (conf != NULL) { /* read in place of the user's */
        note_file(&out, "conf_named", conf);
    } else if (home != NULL) {
        (void)snprintf(path, sizeof(path), "%s/.nccl.conf", home);
        note_file(&out, "conf_user", path);
    }
    text = out.failed ? NULL : strdup(nt_buf_str(&out));
    nt_buf_done(&out);
    return text;
}

/* A graph of small calls, which begins on all ranks together; the least of some runs. Of kernels
 * that wait for nobody a slow core shows nothing. */
static int see_device(void *arg, uint64_t *ret_ns, struct nt_err *err)
{
    enum { CALLS = 20, RUNS = 6, DEADLINE_S = 30 };
    struct nt_probe *p = arg;
    struct CUgraphExec_st *g = NULL;
    uint32_t worst;
    int ended, rc = nt_capture_begin(p->stream, err);
    if (rc != 0) {
        return rc;
    }
    for (unsigned i = 0; rc == 0 && i < CALLS; i++) {
        rc = nt_probe_small_reduce(p, err);
    }
    ended = nt_capture_end(p->stream, &g, rc == 0 ? err : NULL);
    rc = rc == 0 ? ended : rc;
    *ret_ns = UINT64_MAX;
    for (unsigned i = 0; rc == 0 && i < RUNS; i++) {
        uint64_t begin = 0, ns;
        rc = nt_probe_meet(p, 0, nt_now_ns() + DEADLINE_S * UINT64_C(1000000000), &worst, err);
        if (rc == 0) {
            begin = nt_now_ns();
            rc = nt_graph_launch(g, p->stream, err);
        }
        if (rc == 0) {
            rc = nt_stream_sync(p->stream, err);
        }
        ns = nt_now_ns() - begin;
        *ret_ns = ns < *ret_ns ? ns : *ret_ns;
    }
    nt_graph_free(g);
    return rc;
}

/* All ranks try as many cores as the one that has fewest to try. */
static int pick_core(struct nt_probe *p, const char *pci, struct nt_err *err)
{
    uint32_t missing = 0;
    int rc;
    nt_cpu_find(&p->cpu, p->host_rank, p->host_ranks, pci);
    rc = nt_probe_meet(p, NT_CPU_TRIES - p->cpu.ntried, nt_now_ns() + 30 * UINT64_C(1000000000),
                       &missing, err);
    if (rc == 0 && missing < NT_CPU_TRIES) {
        p->cpu.ntried = NT_CPU_TRIES - missing;
        rc = nt_cpu_pick(&p->cpu, see_device, p, err);
    }
    return rc;
}

/* Runs on the watcher's thread while the main thread may be inside NCCL. */
static void abort_comm(void *arg)
{
    struct nt_probe *p = arg;
    nt_barrier_leave(&p->barrier);
    nt_backends_stop(p);
    (void)p->nccl.CommAbort(p->comm);
}

static int open_device(struct nt_probe *p, const struct nt_init *i, struct nt_dev_info *info,
                       struct nt_err *err)
{
    void *word = NULL;
    uint64_t bytes = 0;
    int rc = nt_dev_open(i->device, &p->dev, err);
    if (rc == 0) {
        rc = nt_dev_describe(i->device, info, err);
    }
    if (rc == 0) {
        p->device = i->device;
        p->capability = info->capability;
        rc = nt_stream_open(p->dev, &p->stream, err);
    }
    if (rc == 0) {
        rc = nt_dev_alloc(p->dev, sizeof(*p->word), &word, err);
        p->word = word;
    }
    if (rc == 0) {
        rc = nt_pool_size(p->dev, i->max_bytes, info->l2_bytes, &bytes, err);
    }
    if (rc == 0) {
        rc = nt_pool_open(p->dev, i->max_bytes, info->l2_bytes, bytes, NULL, &p->pool, err);
    }
    if (rc == 0) {
        rc = nt_dev_free_bytes(p->dev, &p->free_at_start, err);
    }
    if (rc == 0 && i->shm[0] != '\0') {
        rc = nt_barrier_open(&p->barrier, i->shm, p->world, err);
    }
    return rc;
}

static int init(struct nt_probe *p, const struct nt_init *i, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_READY};
    struct nt_dev_info info = {0};
    struct nt_nccl_id id;
    struct ncclComm *comm = NULL;
    uint64_t begin;
    int topology, rc;
    if (p->comm != NULL) {
        return nt_fail(err, NT_E_PROTO, 0, "one communicator for each process");
    }
    if (strcmp(i->backend, "nccl") != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "this probe has no backend '%s'", i->backend);
    }
    for (size_t v = 0; v < i->nvars; v++) {
        (void)setenv(i->vars[v].name, i->vars[v].value, 1);
    }
    rc = read_uid(i->uid, &id, err);
    if (rc == 0) {
        rc = open_device(p, i, &info, err);
    }
    if (rc != 0) {
        return rc;
    }
    topology = ask_for_topology();
    begin = nt_now_ns();
    rc = nt_nccl_check(&p->nccl, NULL, p->rank,
                       p->nccl.CommInitRank(&comm, (int)p->world, id, (int)p->rank),
                       "communicator creation", err);
    m.ready.init_ns = nt_now_ns() - begin;
    m.ready.topology_xml = take_topology(topology);
    if (rc == 0) {
        p->comm = comm;
        nt_link_guard(p->link, abort_comm, p);
        rc = pick_core(p, info.pci, err);
    }
    if (rc == 0) {
        m.ready.memory_bytes = nt_probe_memory(p);
        m.ready.text = describe(p, &info);
        nt_link_send(p->link, &m);
    }
    nt_msg_done(&m);
    return rc;
}

int nt_probe_small_reduce(struct nt_probe *p, struct nt_err *err)
{
    int rc;
    nt_tuner_rest();
    rc = p->nccl.AllReduce(p->word, p->word, 1, NT_NCCL_INT32, NT_NCCL_MAX, p->comm, p->stream);
    nt_tuner_resume();
    return nt_nccl_check(&p->nccl, p->comm, p->rank, rc, "barrier", err);
}

int nt_probe_meet(struct nt_probe *p, uint32_t vote, uint64_t deadline_ns, uint32_t *ret_vote,
                  struct nt_err *err)
{
    int32_t word = (int32_t)vote;
    int rc;
    if (p->barrier.page != NULL) {
        return nt_barrier_wait(&p->barrier, vote, deadline_ns, ret_vote, err);
    }
    rc = nt_dev_put(p->dev, p->word, &word, sizeof(word), err);
    if (rc == 0) {
        rc = nt_probe_small_reduce(p, err);
    }
    if (rc == 0) {
        rc = nt_stream_sync(p->stream, err);
    }
    if (rc == 0) {
        rc = nt_dev_get(p->dev, &word, p->word, sizeof(word), err);
    }
    if (rc == 0) {
        *ret_vote = (uint32_t)word;
    }
    return rc;
}

int nt_probe_gather(struct nt_probe *p, const void *mine, size_t bytes, void *all,
                    struct nt_err *err)
{
    void *from = NULL, *to = NULL;
    int rc = nt_dev_alloc(p->dev, bytes, &from, err);
    if (rc == 0) {
        rc = nt_dev_alloc(p->dev, bytes * p->world, &to, err);
    }
    if (rc == 0) {
        rc = nt_dev_put(p->dev, from, mine, bytes, err);
    }
    if (rc == 0) {
        rc =
            nt_nccl_check(&p->nccl, p->comm, p->rank,
                          p->nccl.AllGather(from, to, bytes / 4, NT_NCCL_INT32, p->comm, p->stream),
                          "exchange", err);
    }
    if (rc == 0) {
        rc = nt_stream_sync(p->stream, err);
    }
    if (rc == 0) {
        rc = nt_dev_get(p->dev, all, to, bytes * p->world, err);
    }
    nt_dev_free(p->dev, from);
    nt_dev_free(p->dev, to);
    return rc;
}

uint64_t nt_probe_memory(struct nt_probe *p)
{
    uint64_t now = 0;
    if (p->dev == NULL || nt_dev_free_bytes(p->dev, &now, NULL) != 0 || now > p->free_at_start) {
        return 0;
    }
    return p->free_at_start - now;
}

static int answer(struct nt_probe *p, const struct nt_msg *q, struct nt_err *err)
{
    struct nt_msg a = {0};
    int rc = 0;
    switch (q->type) {
    case NT_MSG_UID:
        return make_uid(p, err);
    case NT_MSG_INIT:
        return init(p, &q->init, err);
    case NT_MSG_CELLS:
    case NT_MSG_MEASURE:
        break;
    default:
        return nt_fail(err, NT_E_PROTO, 0, "a rank does not answer this kind of message");
    }
    if (p->comm == NULL) {
        return nt_fail(err, NT_E_PROTO, 0, "a question before init");
    }
    if (q->type == NT_MSG_CELLS) {
        a.type = NT_MSG_CELLS;
        rc = nt_cells(p, &q->cells.cs, &a.cells, err);
    } else {
        a.type = NT_MSG_RESULT;
        ((q->measure.flags & NT_M_CONTROL) != 0 ? nt_control : nt_measure)(p, &q->measure,
                                                                           &a.result);
    }
    if (rc == 0) {
        nt_link_send(p->link, &a);
        if (nt_dev_is_lost(p->dev)) {
            rc = nt_fail(err, NT_E_IO, 0,
                         "rank %u: the device does not work any more in this process", p->rank);
        }
    }
    nt_msg_done(&a);
    return rc;
}

static void close_all(struct nt_probe *p)
{
    nt_link_guard(p->link, NULL, NULL);
    nt_backends_close(p);
    if (p->comm != NULL) {
        (void)(p->broken[0] == '\0' ? p->nccl.CommDestroy(p->comm) : p->nccl.CommAbort(p->comm));
        p->comm = NULL;
    }
    nt_barrier_close(&p->barrier);
    if (p->dev != NULL) {
        nt_pool_close(&p->pool);
        nt_dev_free(p->dev, p->word);
        nt_stream_close(p->dev, p->stream);
        nt_dev_close(p->dev);
    }
}

int nt_probe_run(struct nt_probe *p)
{
    struct nt_err err = {0};
    const char *driver = NULL;
    bool quit = false;
    int rc = where_am_i(p, &driver, &err);
    if (rc == 0) {
        rc = nt_link_open(driver, &p->link, &err);
    }
    if (rc == 0) {
        rc = nt_link_start(p->link, &err);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "nccltune-probe-nccl: %s\n", err.msg);
        return nt_exit_code(rc);
    }
    rc = say_hello(p, &err);
    while (rc == 0 && !quit) {
        struct nt_msg q;
        nt_link_next(p->link, &q);
        quit = q.type == NT_MSG_QUIT;
        if (!quit) {
            rc = answer(p, &q, &err);
        }
        nt_msg_done(&q);
    }
    if (rc != 0) {
        die(p, rc, &err);
    }
    close_all(p);
    return EXIT_QUIT;
}
