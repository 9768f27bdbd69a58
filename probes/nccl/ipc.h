/*
 * ipc - our own all_reduce (shots.h) between the ranks of one host: over device memory that they
 * share by CUDA IPC, also several on one device, or over pinned host memory where no device reaches
 * another.
 *
 * Collective all ranks open, call and close in the same order. What one rank cannot do none does:
 *            -NT_E_MISSING with the reason on every rank. Any other error leaves the ranks apart.
 * Ownership  nt_ipc_open() gives *ret to the caller; the pool is borrowed and outlives it.
 * Threads    one, but for nt_ipc_stop().
 */
#pragma once
#include "probes/nccl/buffers.h"
#include "probes/nccl/coll.h"

struct nt_probe;
struct nt_ipc; /* opaque */

/* host: over host memory. pool: whose buffers `direct` works on. Before it is said to be there,
 * every rank has written into the memory of every other and has read it, and the data was right. */
NT_MUST_CHECK int nt_ipc_open(struct nt_probe *p, bool host, const struct nt_pool *pool,
                              uint64_t deadline_ns, struct nt_ipc **ret, struct nt_err *err);
void nt_ipc_close(struct nt_ipc *i); /* NULL is fine */
/* The slots that `direct` may use on every rank: the pool cut down to what all have. */
const struct nt_pool *nt_ipc_pool(const struct nt_ipc *i);

/* Fills in what the call leaves open (algorithm, protocol, blocks). -NT_E_MISSING with words when
 * the case or the call is not one of ours; the same on all ranks. */
NT_MUST_CHECK int nt_ipc_choose(const struct nt_ipc *i, const struct nt_plan *plan,
                                struct nt_call *call, struct nt_err *err);
void nt_ipc_executed(const struct nt_call *chosen, struct nt_executed *ret);
/* Puts one call on the stream; in and out are slots of the pool. */
NT_MUST_CHECK int nt_ipc_issue(const struct nt_ipc *i, const struct nt_plan *plan,
                               const struct nt_call *chosen, struct CUstream_st *stream, void *in,
                               void *out, struct nt_err *err);

/* A kernel waits at most so long for the others; for calls issued or captured from now on. */
void nt_ipc_limit(struct nt_ipc *i, uint64_t limit_ns);
/* Kernels that wait end soon, from any thread. */
void nt_ipc_stop(struct nt_ipc *i);
/* Has a kernel given up? Its data is not there, and the ranks are no longer in step. In words where
 * it stood; `words` is left alone otherwise. */
bool nt_ipc_gave_up(const struct nt_ipc *i, char *words, size_t size);
