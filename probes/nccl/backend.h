/*
 * backend - who moves the bytes of a call: NCCL on plain, registered or symmetric buffers, or our
 * own kernels. One table; each backend is opened by all ranks together when a call first asks for
 * it.
 *
 * Errors     -NT_E_MISSING: the backend, or this call of it, is not to be had, with the reason, on
 *            every rank alike. Any other: the ranks are no longer in step.
 */
#pragma once
#include "probes/nccl/buffers.h"
#include "probes/nccl/coll.h"

struct nt_probe;
struct nt_ipc;

/* What a rank holds of one backend. */
struct nt_backend_state {
    bool tried, there;
    char why[200]; /* not there */
    struct nt_pool pool;
    void *registered[2]; /* input and output region: handles or windows of NCCL */
    struct nt_ipc *ipc;
};

/* Opens it, if that was not tried before. */
NT_MUST_CHECK int nt_backend_open(struct nt_probe *p, enum nt_backend id, uint64_t deadline_ns,
                                  struct nt_err *err);
void nt_backends_close(struct nt_probe *p); /* before the communicator */
/* Buffers that it works on. */
const struct nt_pool *nt_backend_pool(const struct nt_probe *p, enum nt_backend id);
/* Makes the call definite, where NCCL is not to decide. */
NT_MUST_CHECK int nt_backend_choose(const struct nt_probe *p, const struct nt_plan *plan,
                                    struct nt_call *call, struct nt_err *err);
NT_MUST_CHECK int nt_backend_issue(struct nt_probe *p, const struct nt_plan *plan,
                                   const struct nt_call *call, void *in, void *out,
                                   struct nt_err *err);
/* What ran: ours by what was chosen; of NCCL `ret` is what was read back. consulted: NCCL asked its
 * tuner for this call, which it does not when it takes a symmetric kernel. */
void nt_backend_executed(const struct nt_call *call, bool consulted, struct nt_executed *ret);
/* Does the backend run the calls of an ncclGroup as one? */
bool nt_backend_is_nccl(enum nt_backend id);

/* How long a kernel of ours may wait for the other ranks, from now on. */
void nt_backends_limit(struct nt_probe *p, uint64_t limit_ns);
/* After a stream is done: -NT_E_INTERRUPTED when a kernel has given up. */
NT_MUST_CHECK int nt_backends_check(const struct nt_probe *p, struct nt_err *err);
/* From any thread: what waits on the device ends. */
void nt_backends_stop(struct nt_probe *p);
