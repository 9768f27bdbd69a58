/*
 * probe - one rank: what it holds, and how it answers the driver's questions.
 */
#pragma once
#include "probes/nccl/backend.h"
#include "probes/nccl/barrier.h"
#include "probes/nccl/buffers.h"
#include "probes/nccl/coll.h"
#include "probes/nccl/cpu.h"
#include "probes/nccl/link.h"
#include "probes/nccl/plugins.h"

enum { NT_KNOWN_CALLS = 1 << 14 };

struct nt_probe {
    unsigned rank, world;
    unsigned host_rank, host_ranks; /* among those of this host */
    unsigned device;
    int capability; /* of the device, from init on */
    struct nt_link *link;
    struct nt_nccl nccl;
    struct nt_dev *dev;
    struct CUstream_st *stream;
    struct ncclComm *comm; /* NULL until init */
    struct nt_pool pool;   /* of NCCL as it is, and of our kernels */
    struct nt_backend_state backends[NT_BACKEND_COUNT];
    struct nt_barrier barrier; /* page NULL: the ranks are on several hosts */
    int32_t *word;             /* device: a vote, the closing barrier */
    struct nt_cpu cpu;
    uint64_t free_at_start; /* device memory when the buffers were there and NCCL was not */
    bool used[NT_COLL_COUNT][NT_ALGO_COUNT + 1][NT_PROTO_COUNT + 1]; /* connected by some call */
    /* Calls that this communicator has made and NCCL allows, by hash; 0: free. The same on every
     * rank, for all get the same questions. */
    struct {
        uint64_t key;
        bool consulted;
    } known[NT_KNOWN_CALLS];
    uint32_t nknown;
    char broken[200]; /* why the communicator is of no use any more; "" while it is */
};

/* Until the driver says quit; returns the exit code. */
int nt_probe_run(struct nt_probe *p);

/* Meets the other ranks: over the page of the host, else by a 4-byte all_reduce. The largest vote
 * comes back on all of them. */
NT_MUST_CHECK int nt_probe_meet(struct nt_probe *p, uint32_t vote, uint64_t deadline_ns,
                                uint32_t *ret_vote, struct nt_err *err);
/* What each rank has to say, from all of them in `all`; a multiple of 4 bytes each. Not while the
 * tuner is asked for something. */
NT_MUST_CHECK int nt_probe_gather(struct nt_probe *p, const void *mine, size_t bytes, void *all,
                                  struct nt_err *err);
/* Puts a 4-byte all_reduce on the stream; the tuner does not touch it. */
NT_MUST_CHECK int nt_probe_small_reduce(struct nt_probe *p, struct nt_err *err);
/* Device memory that NCCL has taken up to now (and whoever shares the device). */
uint64_t nt_probe_memory(struct nt_probe *p);

/* Answers. The rank keeps in step with the others whatever it finds; *ret is always filled. */
void nt_measure(struct nt_probe *p, const struct nt_measure *m, struct nt_result *ret);
/* The same for what is no collective (NT_M_CONTROL). */
void nt_control(struct nt_probe *p, const struct nt_measure *m, struct nt_result *ret);
/* -NT_E_IO when NCCL or the device failed; a case that does not exist is an answer. */
NT_MUST_CHECK int nt_cells(struct nt_probe *p, const struct nt_case *cs, struct nt_cells *ret,
                           struct nt_err *err);

/* The data of one slot before a call and after it. Poisons the output with its guards, writes the
 * input; then counts elements that are not what they must be, guards included. */
NT_MUST_CHECK int nt_verify_prepare(struct nt_probe *p, const struct nt_plan *plan,
                                    const struct nt_slots *slots, unsigned slot, uint32_t salt,
                                    struct nt_err *err);
NT_MUST_CHECK int nt_verify_compare(struct nt_probe *p, const struct nt_plan *plan,
                                    const struct nt_slots *slots, unsigned slot, uint32_t salt,
                                    struct nt_err *err);
