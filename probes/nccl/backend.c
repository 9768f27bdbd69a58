#include "probes/nccl/backend.h"
#include <stdio.h>
#include <string.h>
#include "probes/nccl/ipc.h"
#include "probes/nccl/probe.h"

/* Two megabytes: the pieces in which the driver hands out memory that is shared or registered. */
enum { GRAIN = 2 << 20, MIB = 1 << 20 };

struct ops {
    /* The ranks have agreed on s->pool.bytes. -NT_E_MISSING where it is not to be had. */
    int (*open)(struct nt_probe *p, struct nt_backend_state *s, uint64_t deadline_ns,
                struct nt_err *err);
    void (*close)(struct nt_probe *p, struct nt_backend_state *s);
    bool own_pool;
    bool nccl;
};

static int missing(struct nt_err *err, const char *what)
{
    return nt_fail(err, NT_E_MISSING, 0, "%s", what);
}

/* What this rank could not do is done by none. */
static int agree(struct nt_probe *p, int rc, uint64_t deadline_ns, struct nt_err *err)
{
    uint32_t worst = 0;
    char words[160];
    int met;
    (void)snprintf(words, sizeof(words), "%.150s", rc != 0 ? err->msg : "not on another rank");
    met = nt_probe_meet(p, rc != 0, deadline_ns, &worst, err);
    return met != 0 ? met : worst != 0 ? missing(err, words) : 0;
}

/* The size of a region that every rank can have: the least, in whole MiB. Votes learn the largest.
 */
static int agree_bytes(struct nt_probe *p, uint64_t *bytes, uint64_t deadline_ns,
                       struct nt_err *err)
{
    uint32_t mib = (uint32_t)((*bytes + MIB - 1) / MIB), least = 0;
    int rc = nt_probe_meet(p, INT32_MAX - mib, deadline_ns, &least, err);
    if (rc == 0) {
        *bytes = ((uint64_t)(INT32_MAX - least) * MIB + GRAIN - 1) / GRAIN * GRAIN;
    }
    return rc;
}

/* ---- NCCL on buffers of its own ---- */

static int mem_alloc(void *arg, size_t bytes, void **ret, struct nt_err *err)
{
    struct nt_probe *p = arg;
    return nt_nccl_check(&p->nccl, p->comm, p->rank, p->nccl.MemAlloc(ret, bytes), "ncclMemAlloc",
                         err);
}

static void mem_free(void *arg, void *p)
{
    if (p != NULL) {
        (void)((struct nt_probe *)arg)->nccl.MemFree(p);
    }
}

static int open_nccl_pool(struct nt_probe *p, struct nt_backend_state *s, uint64_t deadline_ns,
                          struct nt_err *err)
{
    const struct nt_pool_source source = {mem_alloc, mem_free, p};
    struct nt_pool pool = {0};
    uint64_t bytes = s->pool.bytes;
    int rc = nt_pool_open(p->dev, p->pool.max_bytes, p->pool.l2_bytes, bytes, &source, &pool, err);
    s->pool = pool;
    return agree(p, rc, deadline_ns, err);
}

static int open_registered(struct nt_probe *p, struct nt_backend_state *s, uint64_t deadline_ns,
                           struct nt_err *err)
{
    const struct nt_nccl *n = &p->nccl;
    int rc;
    if (n->MemAlloc == NULL || n->MemFree == NULL || n->CommRegister == NULL ||
        n->CommDeregister == NULL) {
        return missing(err, "this NCCL has no ncclCommRegister; it came with 2.19");
    }
    rc = open_nccl_pool(p, s, deadline_ns, err);
    for (unsigned i = 0; rc == 0 && i < 2; i++) {
        rc = nt_nccl_check(n, p->comm, p->rank,
                           n->CommRegister(p->comm, i == 0 ? s->pool.in : s->pool.out,
                                           s->pool.bytes, &s->registered[i]),
                           "ncclCommRegister", err);
        rc = agree(p, rc, deadline_ns, err);
    }
    return rc;
}

static void close_registered(struct nt_probe *p, struct nt_backend_state *s)
{
    for (unsigned i = 0; i < 2; i++) {
        if (s->registered[i] != NULL) {
            (void)p->nccl.CommDeregister(p->comm, s->registered[i]);
        }
    }
}

static int open_symmetric(struct nt_probe *p, struct nt_backend_state *s, uint64_t deadline_ns,
                          struct nt_err *err)
{
    const struct nt_nccl *n = &p->nccl;
    int rc;
    if (n->MemAlloc == NULL || n->MemFree == NULL || n->CommWindowRegister == NULL ||
        n->CommWindowDeregister == NULL) {
        return missing(err, "this NCCL has no ncclCommWindowRegister; it came with 2.27");
    }
    rc = open_nccl_pool(p, s, deadline_ns, err);
    for (unsigned i = 0; rc == 0 && i < 2; i++) {
        rc = nt_nccl_check(n, p->comm, p->rank,
                           n->CommWindowRegister(p->comm, i == 0 ? s->pool.in : s->pool.out,
                                                 s->pool.bytes, &s->registered[i],
                                                 NT_NCCL_WIN_COLL_SYMMETRIC),
                           "ncclCommWindowRegister", err);
        if (rc == 0 && s->registered[i] == NULL) {
            rc = missing(err, "NCCL gives no symmetric window here: no peer access between all "
                              "ranks, no cuMem, or windows are off");
        }
        rc = agree(p, rc, deadline_ns, err);
    }
    return rc;
}

static void close_symmetric(struct nt_probe *p, struct nt_backend_state *s)
{
    for (unsigned i = 0; i < 2; i++) {
        if (s->registered[i] != NULL) {
            (void)p->nccl.CommWindowDeregister(p->comm, s->registered[i]);
        }
    }
}

/* ---- ours ---- */

static int open_ipc(struct nt_probe *p, struct nt_backend_state *s, uint64_t deadline_ns,
                    struct nt_err *err)
{
    return nt_ipc_open(p, false, &p->pool, deadline_ns, &s->ipc, err);
}

static int open_host(struct nt_probe *p, struct nt_backend_state *s, uint64_t deadline_ns,
                     struct nt_err *err)
{
    return nt_ipc_open(p, true, &p->pool, deadline_ns, &s->ipc, err);
}

static void close_ipc(struct nt_probe *p, struct nt_backend_state *s)
{
    (void)p;
    nt_ipc_close(s->ipc);
    s->ipc = NULL;
}

/* A backend without a row here belongs to another program (nt_backends[].probe). */
static const struct ops rows[NT_BACKEND_COUNT] = {
    [NT_BE_NCCL] = {NULL, NULL, false, true},
    [NT_BE_REGISTERED] = {open_registered, close_registered, true, true},
    [NT_BE_NCCL_SYMMETRIC] = {open_symmetric, close_symmetric, true, true},
    [NT_BE_IPC] = {open_ipc, close_ipc, false, false},
    [NT_BE_HOST] = {open_host, close_ipc, false, false},
};

static void close_one(struct nt_probe *p, enum nt_backend id)
{
    struct nt_backend_state *s = &p->backends[id];
    if (rows[id].close != NULL) {
        rows[id].close(p, s);
    }
    if (rows[id].own_pool) {
        nt_pool_close(&s->pool);
    }
    *s = (struct nt_backend_state){.tried = s->tried};
}

static int open_one(struct nt_probe *p, enum nt_backend id, uint64_t deadline_ns,
                    struct nt_err *err)
{
    struct nt_backend_state *s = &p->backends[id];
    int rc = 0;
    if (rows[id].open == NULL) {
        return nt_fail(err, NT_E_MISSING, 0, "it is measured by the %s probe",
                       nt_backends[id].probe);
    }
    if (rows[id].nccl && p->nccl.version < nt_backends[id].since) {
        return nt_fail(err, NT_E_MISSING, 0, "it came with NCCL %d, this is %d",
                       nt_backends[id].since, p->nccl.version);
    }
    if (rows[id].own_pool) {
        rc = nt_pool_size(p->dev, p->pool.max_bytes, p->pool.l2_bytes, &s->pool.bytes, err);
        rc = agree(p, rc, deadline_ns, err);
        if (rc == 0) {
            rc = agree_bytes(p, &s->pool.bytes, deadline_ns, err);
        }
    }
    return rc != 0 ? rc : rows[id].open(p, s, deadline_ns, err);
}

int nt_backend_open(struct nt_probe *p, enum nt_backend id, uint64_t deadline_ns,
                    struct nt_err *err)
{
    struct nt_backend_state *s = &p->backends[id];
    int rc;
    if (id == NT_BE_NCCL || s->there) {
        return 0;
    }
    if (s->tried) {
        return nt_fail(err, NT_E_MISSING, 0, "%s", s->why);
    }
    s->tried = true;
    rc = open_one(p, id, deadline_ns, err);
    if (rc == 0) {
        s->there = true;
    } else if (rc == -NT_E_MISSING) {
        char why[sizeof(s->why)];
        (void)snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, err->msg);
        close_one(p, id);
        memcpy(s->why, why, sizeof(why));
    }
    return rc;
}

void nt_backends_close(struct nt_probe *p)
{
    for (int id = 0; id < NT_BACKEND_COUNT; id++) {
        if (p->backends[id].there) {
            close_one(p, (enum nt_backend)id);
        }
    }
}

const struct nt_pool *nt_backend_pool(const struct nt_probe *p, enum nt_backend id)
{
    const struct nt_backend_state *s = &p->backends[id];
    return s->ipc != NULL ? nt_ipc_pool(s->ipc) : rows[id].own_pool ? &s->pool : &p->pool;
}

int nt_backend_choose(const struct nt_probe *p, const struct nt_plan *plan, struct nt_call *call,
                      struct nt_err *err)
{
    const struct nt_backend_info *info = &nt_backends[call->backend];
    if (!info->colls[plan->cs.coll] || !info->modes[plan->cs.mode]) {
        return nt_fail(err, NT_E_MISSING, 0, "it has no %s in %s mode",
                       nt_coll_names[plan->cs.coll], nt_mode_names[plan->cs.mode]);
    }
    return rows[call->backend].nccl
               ? 0
               : nt_ipc_choose(p->backends[call->backend].ipc, plan, call, err);
}

int nt_backend_issue(struct nt_probe *p, const struct nt_plan *plan, const struct nt_call *call,
                     void *in, void *out, struct nt_err *err)
{
    return rows[call->backend].nccl
               ? nt_plan_issue(plan, &p->nccl, p->comm, p->stream, in, out, err)
               : nt_ipc_issue(p->backends[call->backend].ipc, plan, call, p->stream, in, out, err);
}

void nt_backend_executed(const struct nt_call *call, bool consulted, struct nt_executed *ret)
{
    if (!rows[call->backend].nccl) {
        nt_ipc_executed(call, ret);
    } else if (call->backend == NT_BE_NCCL_SYMMETRIC && !consulted) {
        *ret = (struct nt_executed){.algo = NT_SYMMETRIC, .proto = NT_WINDOW};
    }
}

bool nt_backend_is_nccl(enum nt_backend id)
{
    return rows[id].nccl;
}

void nt_backends_limit(struct nt_probe *p, uint64_t limit_ns)
{
    for (int id = 0; id < NT_BACKEND_COUNT; id++) {
        if (p->backends[id].ipc != NULL) {
            nt_ipc_limit(p->backends[id].ipc, limit_ns);
        }
    }
}

int nt_backends_check(const struct nt_probe *p, struct nt_err *err)
{
    char words[160];
    for (int id = 0; id < NT_BACKEND_COUNT; id++) {
        if (p->backends[id].ipc != NULL &&
            nt_ipc_gave_up(p->backends[id].ipc, words, sizeof(words))) {
            return nt_fail(err, NT_E_INTERRUPTED, 0, "%s: %s", nt_backend_names[id], words);
        }
    }
    return 0;
}

void nt_backends_stop(struct nt_probe *p)
{
    for (int id = 0; id < NT_BACKEND_COUNT; id++) {
        if (p->backends[id].ipc != NULL) {
            nt_ipc_stop(p->backends[id].ipc);
        }
    }
}
