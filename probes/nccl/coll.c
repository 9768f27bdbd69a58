#include "probes/nccl/coll.h"

enum { ROOT = 0, FP8_ADDS_FROM = 90 };

/* One call, with the pointers as NCCL wants them. */
struct call {
    const struct nt_nccl *n;
    const struct nt_plan *p;
    const void *send;
    void *recv;
    struct ncclComm *comm;
    struct CUstream_st *stream;
};

static int issue_broadcast(const struct call *c)
{
    return c->n->Broadcast(c->send, c->recv, c->p->count, c->p->dtype, ROOT, c->comm, c->stream);
}

static int issue_reduce(const struct call *c)
{
    return c->n->Reduce(c->send, c->recv, c->p->count, c->p->dtype, NT_NCCL_SUM, ROOT, c->comm,
                        c->stream);
}

static int issue_all_gather(const struct call *c)
{
    return c->n->AllGather(c->send, c->recv, c->p->per, c->p->dtype, c->comm, c->stream);
}

static int issue_reduce_scatter(const struct call *c)
{
    return c->n->ReduceScatter(c->send, c->recv, c->p->per, c->p->dtype, NT_NCCL_SUM, c->comm,
                               c->stream);
}

static int issue_all_reduce(const struct call *c)
{
    return c->n->AllReduce(c->send, c->recv, c->p->count, c->p->dtype, NT_NCCL_SUM, c->comm,
                           c->stream);
}

/* Sends `count` elements to each of `peers` ranks from the next one on (all of them: alltoall; one:
 * the ring shift), and receives as many. `shared`: one block for each rank in the buffers. */
static int exchange(const struct call *c, unsigned first, unsigned peers, uint64_t count,
                    bool blocks)
{
    const struct nt_plan *p = c->p;
    uint64_t stride = blocks ? count * p->elem_bytes : 0;
    int rc = c->n->GroupStart(), ended;
    for (unsigned i = first; rc == NT_NCCL_SUCCESS && i < first + peers; i++) {
        unsigned to = (p->rank + i) % p->world, from = (p->rank + p->world - i) % p->world;
        rc = c->n->Send((const char *)c->send + to * stride, count, p->dtype, (int)to, c->comm,
                        c->stream);
        if (rc == NT_NCCL_SUCCESS) {
            rc = c->n->Recv((char *)c->recv + from * stride, count, p->dtype, (int)from, c->comm,
                            c->stream);
        }
    }
    ended = c->n->GroupEnd();
    return rc != NT_NCCL_SUCCESS ? rc : ended;
}

static int issue_alltoall(const struct call *c)
{
    return exchange(c, 0, c->p->world, c->p->per, true);
}

static int issue_sendrecv(const struct call *c)
{
    return exchange(c, 1, 1, c->p->count, false);
}

/* Which side holds only one rank's share. */
enum side { NEITHER, SEND, RECV };
static const struct {
    int (*issue)(const struct call *c);
    enum side small;
    bool adds;
    enum nt_pattern_kind result;
} rows[NT_COLL_COUNT] = {
    [NT_BROADCAST] = {issue_broadcast, NEITHER, false, NT_PATTERN_RAW},
    [NT_REDUCE] = {issue_reduce, NEITHER, true, NT_PATTERN_SUM},
    [NT_ALL_GATHER] = {issue_all_gather, SEND, false, NT_PATTERN_GATHER},
    [NT_REDUCE_SCATTER] = {issue_reduce_scatter, RECV, true, NT_PATTERN_SUM},
    [NT_ALL_REDUCE] = {issue_all_reduce, NEITHER, true, NT_PATTERN_SUM},
    [NT_ALLTOALL] = {issue_alltoall, NEITHER, false, NT_PATTERN_TRANSPOSE},
    [NT_SENDRECV] = {issue_sendrecv, NEITHER, false, NT_PATTERN_RAW},
};

/* limit: up to it every integer is exact. int32 keeps clear of its sign. */
static const struct {
    uint32_t mantissa, bias, limit;
} formats[NT_DTYPE_COUNT] = {
    [NT_BF16] = {7, 127, 256},     [NT_FP32] = {23, 127, 1U << 24}, [NT_FP16] = {10, 15, 2048},
    [NT_INT32] = {0, 0, 1U << 30}, [NT_FP8] = {3, 7, 16},
};

int nt_plan_make(const struct nt_nccl *n, const struct nt_case *cs, const struct nt_seat *seat,
                 struct nt_plan *ret, struct nt_err *err)
{
    unsigned rank = seat->rank, world = seat->world;
    struct nt_plan p = {.cs = *cs, .world = world, .rank = rank};
    unsigned share = nt_coll_shares(cs->coll) ? world : 1;
    int rc = nt_nccl_dtype(n, cs->dtype, &p.dtype, err);
    if (rc != 0) {
        return rc;
    }
    if (cs->dtype == NT_FP8 && rows[cs->coll].adds && seat->capability < FP8_ADDS_FROM) {
        return nt_fail(err, NT_E_MISSING, 0, "%s of fp8 needs compute capability 9.0, not %d.%d",
                       nt_coll_names[cs->coll], seat->capability / 10, seat->capability % 10);
    }
    if (cs->place == NT_IN_PLACE && !nt_coll_in_place(cs->coll)) {
        return nt_fail(err, NT_E_MISSING, 0, "%s does not exist in place", nt_coll_names[cs->coll]);
    }
    p.elem_bytes = nt_dtype_bytes(cs->dtype);
    if (cs->bytes == 0 || cs->bytes % ((uint64_t)p.elem_bytes * share) != 0) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%s of %llu bytes: not a multiple of %u bytes of %s for each of %u ranks",
                       nt_coll_names[cs->coll], (unsigned long long)cs->bytes, p.elem_bytes,
                       nt_dtype_names[cs->dtype], share);
    }
    p.count = cs->bytes / p.elem_bytes;
    p.per = p.count / world;
    p.base = (struct nt_pattern){.elem_bytes = p.elem_bytes,
                                 .mantissa = formats[cs->dtype].mantissa,
                                 .bias = formats[cs->dtype].bias,
                                 .limit = formats[cs->dtype].limit,
                                 .world = world,
                                 .rank = rank,
                                 .per = p.per};
    *ret = p;
    return 0;
}

/* Where this rank's share begins in a buffer of everybody's. */
static uint64_t own_at(const struct nt_plan *p)
{
    return p->rank * p->per * p->elem_bytes;
}

int nt_plan_issue(const struct nt_plan *p, const struct nt_nccl *n, struct ncclComm *comm,
                  struct CUstream_st *stream, void *in, void *out, struct nt_err *err)
{
    enum side small = rows[p->cs.coll].small;
    struct call c = {.n = n, .p = p, .send = in, .recv = out, .comm = comm, .stream = stream};
    if (p->cs.place == NT_IN_PLACE) {
        c.send = (char *)out + (small == SEND ? own_at(p) : 0);
        c.recv = (char *)out + (small == RECV ? own_at(p) : 0);
    }
    return nt_nccl_check(n, comm, p->rank, rows[p->cs.coll].issue(&c), nt_coll_names[p->cs.coll],
                         err);
}

bool nt_plan_repeats(const struct nt_plan *p)
{
    return p->cs.place == NT_OUT_OF_PLACE || !rows[p->cs.coll].adds;
}

static struct nt_region region(const struct nt_plan *p, bool in, enum nt_pattern_kind kind,
                               uint32_t salt, uint64_t first, uint64_t count)
{
    struct nt_region r = {
        .in = in, .at_bytes = first * p->elem_bytes, .count = count, .pattern = p->base};
    r.pattern.kind = kind;
    r.pattern.salt = salt;
    r.pattern.first = first;
    return r;
}

void nt_plan_input(const struct nt_plan *p, uint32_t salt, struct nt_region *ret)
{
    bool small = rows[p->cs.coll].small == SEND, in = p->cs.place == NT_OUT_OF_PLACE;
    enum nt_pattern_kind kind = rows[p->cs.coll].adds ? NT_PATTERN_OWN : NT_PATTERN_RAW;
    *ret = region(p, in, kind, salt, 0, small ? p->per : p->count);
    if (small && !in) {
        ret->at_bytes = own_at(p); /* the pattern still counts from the share's begin */
    }
}

/* The result proper: one region of the output. */
static struct nt_region result(const struct nt_plan *p, uint32_t salt)
{
    enum nt_coll coll = p->cs.coll;
    bool share = rows[coll].small == RECV, in_place = p->cs.place == NT_IN_PLACE;
    struct nt_region r = region(p, false, rows[coll].result, salt, share ? p->rank * p->per : 0,
                                share ? p->per : p->count);
    if (share && !in_place) {
        r.at_bytes = 0;
    }
    switch (coll) {
    case NT_BROADCAST:
        r.pattern.rank = ROOT;
        break;
    case NT_SENDRECV:
        r.pattern.rank = (p->rank + p->world - 1) % p->world;
        break;
    case NT_REDUCE:
        if (p->rank != ROOT) { /* nothing arrives there */
            r.pattern.kind = in_place ? NT_PATTERN_OWN : NT_PATTERN_POISON;
        }
        break;
    default:
        break;
    }
    return r;
}

unsigned nt_plan_output(const struct nt_plan *p, uint32_t salt, struct nt_region ret[NT_REGIONS])
{
    unsigned n = 0;
    bool in_place = p->cs.place == NT_IN_PLACE, share = rows[p->cs.coll].small == RECV;
    ret[n++] = result(p, salt);
    if (!in_place) {
        nt_plan_input(p, salt, &ret[n++]); /* NCCL takes it as const */
        if (share) {
            ret[n++] = region(p, false, NT_PATTERN_POISON, salt, p->per, p->count - p->per);
        }
    } else if (share) { /* the other shares stay what they were */
        uint64_t end = (p->rank + 1) * p->per;
        ret[n++] = region(p, false, NT_PATTERN_OWN, salt, 0, p->rank * p->per);
        ret[n++] = region(p, false, NT_PATTERN_OWN, salt, end, p->count - end);
    }
    return n;
}
