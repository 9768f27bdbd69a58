/*
 * meet - the ranks of one job on one host wait for one another before the first communicator that
 * has all of them, so that a rank without the profile is noticed instead of hanging the others.
 *
 * They meet in <receipts folder>/<hash of the job's name>.meet. Each process holds a lock on a byte
 * of that file while it lives: what a dead process left does not count, whatever its pid is now.
 */
#pragma once
#include "profiles/plugin/process.h"

struct nt_meeting {
    const char *job, *hash;
    uint32_t local_ranks;
    bool everyone;       /* the communicator has all ranks of this host: wait for them */
    unsigned timeout_ms; /* for everyone */
};

/* Whether a communicator of nranks on nnodes has all local_ranks of this host. host_told: NCCL was
 * told who its host is (NCCL_HOSTID); where then every rank is one of its own, nodes are no hosts.
 */
static inline bool nt_meet_everyone(size_t nranks, size_t nnodes, uint32_t local_ranks,
                                    bool host_told)
{
    return nranks == nnodes * (size_t)local_ranks ||
           (host_told && nranks == nnodes && nranks == local_ranks);
}

/* 0, or -1 with a sentence that names who is missing or differs. Called once per communicator that
 * is made; after everyone has once met, it returns at once. Where there is no folder to meet in: 0,
 * and *ret_met is false. Thread-safe. */
int nt_meet(const struct nt_meeting *m, bool *ret_met, struct nt_why *why);
