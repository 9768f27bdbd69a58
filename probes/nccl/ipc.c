#include "probes/nccl/ipc.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "probes/nccl/probe.h"
#include "probes/nccl/shots.h"

/* CHUNK: what each rank writes to each in the trial of peer access. One-shot is meant for small
 * calls: the stage has room for ONE_SHOT_BYTES from each rank, and for two-shot calls of any size
 * as far as memory allows. Shared memory comes in GRAIN, the size of the driver's own pieces, so
 * that a handle stands for exactly one allocation. */
enum { CHUNK = 1 << 16, ONE_SHOT_BYTES = 2 << 20, GRAIN = 2 << 20, SHARE = 8, PAGE = 4096 };
static const uint64_t host_half_most = 64U << 20;
static const uint64_t first_limit_ns = 5000000000U;

struct nt_ipc {
    struct nt_dev *dev;
    unsigned world, rank;
    bool host;
    struct nt_pool pool;
    char *shared, *map[NT_SHOT_RANKS]; /* own; of each rank, as this one sees it */
    void *map_in[NT_SHOT_RANKS], *map_out[NT_SHOT_RANKS];
    void *epoch;
    void *page; /* host: what all ranks have mapped */
    size_t page_bytes;
    int page_fd;
    uint32_t *words; /* shots.h, here */
    void *words_dev;
    uint64_t half_bytes, limit_ns;
    unsigned most_blocks, usual_blocks;
};

/* What a rank tells the others. */
struct card {
    uint32_t failed, blocks;
    int32_t pid, fd;
    uint64_t half_bytes, pool_bytes;
    char device[64];
    struct nt_dev_handle shared, in, out;
};
_Static_assert(sizeof(struct card) % 4 == 0, "sent as 32-bit words");

static uint64_t round_up(uint64_t v, uint64_t to)
{
    return (v + to - 1) / to * to;
}

/* Shared device memory: flags, the stage of ll, the stage. */
static uint64_t ll_at(void)
{
    return round_up(NT_SHOT_FLAG_BYTES, GRAIN);
}

static uint64_t stage_at(const struct nt_ipc *i)
{
    return ll_at() + round_up(nt_shot_ll_stage_bytes(i->world), GRAIN);
}

static int unavailable(struct nt_err *err, const char *what)
{
    char words[sizeof(err->msg)];
    (void)snprintf(words, sizeof(words), "%s", err->msg);
    return nt_fail(err, NT_E_MISSING, 0, "%s: %s", what, words);
}

/* All ranks go on, or none does. rc: of this rank. */
static int agree(struct nt_probe *p, int rc, uint64_t deadline_ns, struct nt_err *err)
{
    struct nt_err other = {0};
    uint32_t worst = 0;
    int met = nt_probe_meet(p, rc != 0, deadline_ns, &worst, &other);
    if (met != 0) {
        *err = other;
        return met;
    }
    if (rc == 0 && worst != 0) {
        return nt_fail(err, NT_E_MISSING, 0, "not to be had on another rank");
    }
    return rc == 0 ? 0 : unavailable(err, "shared memory");
}

static int open_words(struct nt_ipc *i, struct nt_err *err)
{
    void *m = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int rc;
    if (m == MAP_FAILED) {
        return nt_fail(err, NT_E_NOMEM, 0, "a page");
    }
    rc = nt_dev_pin(i->dev, m, PAGE, &i->words_dev, err);
    if (rc != 0) {
        (void)munmap(m, PAGE);
        return rc;
    }
    i->words = m;
    return 0;
}

static uint64_t half_wanted(const struct nt_ipc *i, uint64_t max_bytes, uint64_t free_bytes)
{
    uint64_t one = max_bytes < ONE_SHOT_BYTES ? max_bytes : ONE_SHOT_BYTES;
    uint64_t a = nt_shot_stage_bytes(one, i->world, NT_ONE_SHOT, NT_PUSH);
    uint64_t b = nt_shot_stage_bytes(max_bytes, i->world, NT_TWO_SHOT, NT_PUSH);
    uint64_t want = a > b ? a : b, most = i->host ? host_half_most : free_bytes / SHARE;
    want = want > most ? most : want;
    return round_up(want < GRAIN ? GRAIN : want, GRAIN);
}

/* Own memory, and what the others need to know of it. */
static int prepare(struct nt_ipc *i, const struct nt_probe *p, struct card *c, struct nt_err *err)
{
    struct nt_dev_info info;
    uint64_t free_bytes = 0;
    void *memory = NULL;
    int rc = nt_dev_shots_load(i->dev, i->world, &c->blocks, err);
    if (rc == 0) {
        rc = nt_dev_describe(p->device, &info, err);
    }
    if (rc == 0) {
        memcpy(c->device, info.uuid, sizeof(c->device));
        rc = nt_dev_free_bytes(i->dev, &free_bytes, err);
    }
    if (rc == 0) {
        c->half_bytes = half_wanted(i, i->pool.max_bytes, free_bytes);
        rc = open_words(i, err);
    }
    if (rc == 0) {
        rc = nt_dev_alloc(i->dev, NT_SHOT_EPOCH_BYTES, &i->epoch, err);
    }
    if (rc != 0 || i->host) {
        return rc;
    }
    rc = nt_dev_alloc(i->dev, stage_at(i) + 2 * c->half_bytes, &memory, err);
    i->shared = memory;
    if (rc == 0) {
        rc = nt_dev_share(i->dev, i->shared, &c->shared, err);
    }
    if (rc == 0) {
        rc = nt_dev_share(i->dev, i->pool.in, &c->in, err);
    }
    return rc != 0 ? rc : nt_dev_share(i->dev, i->pool.out, &c->out, err);
}

/* Layout of host memory: flags of every rank, then two halves of every rank. */
static uint64_t host_flags(unsigned rank)
{
    return rank * round_up(NT_SHOT_FLAG_BYTES, PAGE);
}
static uint64_t host_stage(const struct nt_ipc *i, unsigned rank)
{
    return host_flags(i->world) + rank * 2 * i->half_bytes;
}

/* Rank 0 makes an anonymous file, which the others open through /proc: nothing is left over. */
static int make_page(struct nt_ipc *i, struct card *c, uint64_t half_bytes, struct nt_err *err)
{
    i->half_bytes = half_bytes;
    i->page_fd = memfd_create("nccltune-host-memory", MFD_CLOEXEC);
    if (i->page_fd < 0 || ftruncate(i->page_fd, (off_t)host_stage(i, i->world)) != 0) {
        return nt_fail(err, NT_E_NOMEM, 0, "shared host memory");
    }
    c->pid = getpid();
    c->fd = i->page_fd;
    return 0;
}

static int map_page(struct nt_ipc *i, const struct card *first, struct nt_err *err)
{
    char path[64];
    void *dev = NULL;
    int fd = -1, rc;
    void *m;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", first->pid, first->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    i->half_bytes = first->half_bytes;
    i->page_bytes = (size_t)host_stage(i, i->world);
    m = fd < 0 ? MAP_FAILED : mmap(NULL, i->page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (m == MAP_FAILED) {
        return nt_fail(err, NT_E_IO, errno, "shared host memory of rank 0");
    }
    rc = nt_dev_pin(i->dev, m, i->page_bytes, &dev, err);
    if (rc != 0) {
        (void)munmap(m, i->page_bytes);
        return rc;
    }
    i->page = m;
    i->shared = dev;
    return 0;
}

static int map_ranks(struct nt_ipc *i, const struct card *all, struct nt_err *err)
{
    int rc = 0;
    for (unsigned r = 0; rc == 0 && r < i->world; r++) {
        void *m = NULL;
        if (r == i->rank) {
            i->map[r] = i->shared;
            i->map_in[r] = i->pool.in;
            i->map_out[r] = i->pool.out;
            continue;
        }
        rc = nt_dev_map(i->dev, &all[r].shared, &m, err);
        i->map[r] = m;
        if (rc == 0) {
            rc = nt_dev_map(i->dev, &all[r].in, &i->map_in[r], err);
        }
        if (rc == 0) {
            rc = nt_dev_map(i->dev, &all[r].out, &i->map_out[r], err);
        }
    }
    return rc;
}

/* What all ranks have: the least of each, and so many blocks that those of all ranks of a device
 * are there at once (they wait for each other). Half of what the device holds: a small kernel that
 * ran when a block was placed leaves a hole in the registers of that multiprocessor, into which no
 * second block fits while the first waits. (132 of 264 blocks for each of two ranks did wait for
 * ever so, now and then; with half of them they are as fast.) */
static void settle(struct nt_ipc *i, const struct card *all)
{
    bool alone = true;
    i->half_bytes = all[0].half_bytes;
    i->most_blocks = NT_SHOT_BLOCKS;
    for (unsigned r = 0; r < i->world; r++) {
        unsigned sharing = 0;
        for (unsigned k = 0; k < i->world; k++) {
            sharing += memcmp(all[r].device, all[k].device, sizeof(all[r].device)) == 0;
        }
        alone = alone && sharing == 1;
        i->half_bytes = all[r].half_bytes < i->half_bytes ? all[r].half_bytes : i->half_bytes;
        i->pool.bytes = all[r].pool_bytes < i->pool.bytes ? all[r].pool_bytes : i->pool.bytes;
        if (all[r].blocks / 2 / sharing < i->most_blocks) {
            i->most_blocks = all[r].blocks / 2 / sharing;
        }
    }
    i->most_blocks = i->most_blocks == 0 ? 1 : i->most_blocks;
    /* A link is full with fewer blocks than a memory is. */
    i->usual_blocks = alone && i->most_blocks > 64 ? 64 : i->most_blocks;
}

static char *stage_of(const struct nt_ipc *i, unsigned rank)
{
    return i->host ? i->shared + host_stage(i, rank) : i->map[rank] + stage_at(i);
}

static struct nt_pattern mark(unsigned from, unsigned to)
{
    return (struct nt_pattern){.kind = NT_PATTERN_RAW, .elem_bytes = 4, .rank = from, .salt = to};
}

/* Real data both ways between every pair: each rank writes into the stage of each, itself included;
 * then it reads what the others wrote into its own, and what it finds in theirs. */
static int try_writes(struct nt_ipc *i, struct nt_probe *p, struct nt_err *err)
{
    int rc = 0;
    for (unsigned r = 0; rc == 0 && r < i->world; r++) {
        struct nt_pattern m = mark(i->rank, r);
        rc = nt_dev_fill(p->stream, stage_of(i, r) + i->rank * CHUNK, CHUNK / 4, &m, err);
    }
    return rc != 0 ? rc : nt_stream_sync(p->stream, err);
}

static int try_reads(struct nt_ipc *i, struct nt_probe *p, struct nt_err *err)
{
    int rc = 0;
    for (unsigned k = 0; rc == 0 && k < 2 * i->world; k++) {
        unsigned r = k / 2;
        bool theirs = k % 2 != 0; /* my reading of their memory, else their writing into mine */
        struct nt_pattern m = theirs ? mark(r, r) : mark(r, i->rank);
        uint64_t differing = 0;
        rc = nt_dev_compare(p->dev, p->stream, stage_of(i, theirs ? r : i->rank) + r * CHUNK,
                            CHUNK / 4, &m, err);
        if (rc == 0) {
            rc = nt_dev_differing(p->dev, p->stream, &differing, err);
        }
        if (rc == 0 && differing > 0) {
            rc = nt_fail(err, NT_E_IO, 0,
                         "what rank %u %s rank %u is not what was written; look for ACS and IOMMU",
                         theirs ? i->rank : r, theirs ? "reads from" : "wrote to",
                         theirs ? r : i->rank);
        }
    }
    return rc;
}

static int join(struct nt_ipc *i, struct nt_probe *p, uint64_t deadline_ns, struct nt_err *err)
{
    struct card mine = {.pool_bytes = i->pool.bytes, .fd = -1}, all[NT_SHOT_RANKS];
    struct nt_err own = {0};
    int rc = prepare(i, p, &mine, &own), told;
    if (rc == 0 && i->host && i->rank == 0) {
        rc = make_page(i, &mine, mine.half_bytes, &own);
    }
    mine.failed = rc != 0;
    told = nt_probe_gather(p, &mine, sizeof(mine), all, err);
    if (told != 0) {
        return told;
    }
    if (rc == 0) {
        settle(i, all);
        rc = i->host && all[0].failed == 0 ? map_page(i, &all[0], &own) : 0;
        if (rc == 0 && i->host && all[0].failed != 0) {
            rc = nt_fail(&own, NT_E_MISSING, 0, "rank 0 has none");
        }
    }
    for (unsigned r = 0; rc == 0 && r < i->world; r++) {
        if (all[r].failed != 0) {
            rc = nt_fail(&own, NT_E_MISSING, 0, "rank %u has none", r);
        }
    }
    if (rc == 0 && !i->host) {
        rc = map_ranks(i, all, &own);
    }
    *err = own;
    rc = agree(p, rc, deadline_ns, err);
    if (rc == 0) {
        rc = agree(p, try_writes(i, p, err), deadline_ns, err);
    }
    return rc != 0 ? rc : agree(p, try_reads(i, p, err), deadline_ns, err);
}

int nt_ipc_open(struct nt_probe *p, bool host, const struct nt_pool *pool, uint64_t deadline_ns,
                struct nt_ipc **ret, struct nt_err *err)
{
    struct nt_ipc *i;
    int rc;
    if (p->barrier.page == NULL || p->world > NT_SHOT_RANKS) {
        return nt_fail(err, NT_E_MISSING, 0, "all ranks must be on one host, at most %d",
                       NT_SHOT_RANKS);
    }
    i = calloc(1, sizeof(*i));
    if (i == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "shared memory");
    }
    *i = (struct nt_ipc){.dev = p->dev,
                         .world = p->world,
                         .rank = p->rank,
                         .host = host,
                         .pool = *pool,
                         .page_fd = -1,
                         .limit_ns = first_limit_ns};
    rc = join(i, p, deadline_ns, err);
    if (rc != 0) {
        nt_ipc_close(i);
        return rc;
    }
    *ret = i;
    return 0;
}

void nt_ipc_close(struct nt_ipc *i)
{
    if (i == NULL) {
        return;
    }
    for (unsigned r = 0; r < i->world; r++) {
        if (r != i->rank) {
            nt_dev_unmap(i->dev, i->map[r]);
            nt_dev_unmap(i->dev, i->map_in[r]);
            nt_dev_unmap(i->dev, i->map_out[r]);
        }
    }
    if (i->page != NULL) {
        nt_dev_unpin(i->dev, i->page);
        (void)munmap(i->page, i->page_bytes);
    } else if (!i->host) {
        nt_dev_free(i->dev, i->shared);
    }
    if (i->page_fd >= 0) {
        (void)close(i->page_fd);
    }
    nt_dev_free(i->dev, i->epoch);
    if (i->words != NULL) {
        nt_dev_unpin(i->dev, i->words);
        (void)munmap(i->words, PAGE);
    }
    free(i);
}

const struct nt_pool *nt_ipc_pool(const struct nt_ipc *i)
{
    return &i->pool;
}

/* From here on two shots take less traffic than one. Measured on NVLink and within one device. */
static int own_algo(const struct nt_ipc *i, uint64_t bytes)
{
    return bytes * (i->world - 1) <= (i->host ? 1U << 16 : 1U << 18) ? NT_ONE_SHOT : NT_TWO_SHOT;
}

int nt_ipc_choose(const struct nt_ipc *i, const struct nt_plan *plan, struct nt_call *call,
                  struct nt_err *err)
{
    const struct nt_case *cs = &plan->cs;
    uint64_t vectors = (cs->bytes + NT_SHOT_VEC - 1) / NT_SHOT_VEC, wanted, stage;
    if (cs->coll != NT_ALL_REDUCE ||
        (cs->dtype != NT_BF16 && cs->dtype != NT_FP32 && cs->dtype != NT_FP16)) {
        return nt_fail(err, NT_E_MISSING, 0, "it is an all_reduce of bf16, fp16 and fp32");
    }
    if (call->algo < 0) {
        call->algo = (int8_t)own_algo(i, cs->bytes);
        call->proto = (int8_t)(i->host                                 ? NT_PULL
                               : call->algo == NT_TWO_SHOT             ? NT_DIRECT
                               : cs->bytes * (i->world - 1) <= 1 << 16 ? NT_LL
                                                                       : NT_PUSH);
    }
    if (i->host && call->proto != NT_PULL) {
        return nt_fail(err, NT_E_MISSING, 0, "host memory is only pulled from");
    }
    if (call->algo == NT_ONE_SHOT && call->proto == NT_DIRECT && cs->place == NT_IN_PLACE) {
        return nt_fail(err, NT_E_MISSING, 0, "one_shot/direct does not exist in place");
    }
    if (call->proto == NT_LL && cs->bytes > NT_SHOT_LL_BYTES) {
        return nt_fail(err, NT_E_MISSING, 0, "one_shot/ll takes at most %d bytes",
                       NT_SHOT_LL_BYTES);
    }
    stage = nt_shot_stage_bytes(cs->bytes, i->world, call->algo, call->proto);
    if (stage > i->half_bytes) {
        return nt_fail(err, NT_E_MISSING, 0, "it needs a stage of %llu bytes, there are %llu",
                       (unsigned long long)stage, (unsigned long long)i->half_bytes);
    }
    wanted = call->algo == NT_TWO_SHOT ? (vectors + i->world - 1) / i->world
             : call->proto == NT_LL    ? (cs->bytes + 7) / 8
                                       : vectors;
    wanted = (wanted + NT_SHOT_THREADS - 1) / NT_SHOT_THREADS;
    if (call->channels == 0) {
        call->channels = (uint16_t)(wanted < i->usual_blocks ? wanted : i->usual_blocks);
    } else if (call->channels > i->most_blocks) {
        call->channels = (uint16_t)i->most_blocks; /* more would wait for each other for ever */
    }
    return 0;
}

void nt_ipc_executed(const struct nt_call *chosen, struct nt_executed *ret)
{
    *ret = (struct nt_executed){.algo = chosen->algo,
                                .proto = chosen->proto,
                                .channels = chosen->channels,
                                .warps = NT_SHOT_THREADS / 32};
}

int nt_ipc_issue(const struct nt_ipc *i, const struct nt_plan *plan, const struct nt_call *chosen,
                 struct CUstream_st *stream, void *in, void *out, struct nt_err *err)
{
    struct nt_shot s = {.epoch = i->epoch,
                        .words = i->words_dev,
                        .half_bytes = i->half_bytes,
                        .bytes = plan->cs.bytes,
                        .limit_ns = i->limit_ns,
                        .world = i->world,
                        .rank = i->rank,
                        .dtype = plan->cs.dtype,
                        .algo = (uint8_t)chosen->algo,
                        .proto = (uint8_t)chosen->proto};
    bool in_place = plan->cs.place == NT_IN_PLACE;
    for (unsigned r = 0; r < i->world; r++) {
        s.stage[r] = stage_of(i, r);
        s.ll[r] = i->host ? NULL : (uint64_t *)(void *)(i->map[r] + ll_at());
        s.flags[r] = (uint64_t *)(void *)(i->host ? i->shared + host_flags(r) : i->map[r]);
        if (chosen->proto == NT_DIRECT) { /* the slots lie at the same place on every rank */
            s.out[r] = (char *)i->map_out[r] + ((char *)out - i->pool.out);
            s.in[r] = in_place ? s.out[r] : (char *)i->map_in[r] + ((char *)in - i->pool.in);
        }
    }
    s.out[i->rank] = out;
    s.in[i->rank] = in_place ? out : in;
    return nt_dev_shot(stream, &s, chosen->channels, err);
}

void nt_ipc_limit(struct nt_ipc *i, uint64_t limit_ns)
{
    i->limit_ns = limit_ns < first_limit_ns ? limit_ns : first_limit_ns;
}

void nt_ipc_stop(struct nt_ipc *i)
{
    __atomic_store_n(&i->words[NT_SHOT_STOP], 1, __ATOMIC_RELAXED);
}

bool nt_ipc_gave_up(const struct nt_ipc *i, char *words, size_t size)
{
    const uint32_t *w = i->words;
    if (__atomic_load_n(&w[NT_SHOT_GAVE_UP], __ATOMIC_RELAXED) == 0) {
        return false;
    }
    (void)snprintf(words, size,
                   "a kernel gave up after %u ms: block %u is at meeting %u, that of "
                   "rank %u at %u",
                   w[NT_SHOT_WAITED_MS], w[NT_SHOT_BLOCK], w[NT_SHOT_WANTED], w[NT_SHOT_FROM],
                   w[NT_SHOT_SEEN]);
    return true;
}
