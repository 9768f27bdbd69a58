/*
 * coll - the collectives as one table: what a case means in elements and buffers, how it is called,
 * and what must stand in the buffers afterwards.
 *
 * `bytes` of a case is what NCCL's tuner sees: element size × max(send count, receive count).
 * all_gather and reduce_scatter have count/world elements on the short side, alltoall sends
 * count/world to each rank, sendrecv sends all of it to the next rank. The root is rank 0.
 */
#pragma once
#include "probes/nccl/api.h"

/* A stretch of a buffer and what belongs there. */
struct nt_region {
    bool in;           /* of the input buffer, else of the output buffer */
    uint64_t at_bytes; /* from the buffer's begin */
    uint64_t count;    /* elements */
    struct nt_pattern pattern;
};
enum { NT_REGIONS = 3 };

/* Who calls. */
struct nt_seat {
    unsigned rank, world;
    int capability; /* of the device: 90 for 9.0 */
};

struct nt_plan {
    struct nt_case cs;
    unsigned world, rank;
    int dtype; /* NCCL's number */
    uint32_t elem_bytes;
    uint64_t count, per; /* elements: all, and of one rank's share */
    struct nt_pattern base;
};

/* -NT_E_INVAL when the bytes do not divide into elements and ranks; -NT_E_MISSING when NCCL
 * has no such dtype (fp8 adds from compute capability 9.0 on), or no such collective in place. */
NT_MUST_CHECK int nt_plan_make(const struct nt_nccl *n, const struct nt_case *cs,
                               const struct nt_seat *seat, struct nt_plan *ret, struct nt_err *err);
/* Puts one call on the stream. in and out: buffers of cs.bytes each; in place only out is used. */
NT_MUST_CHECK int nt_plan_issue(const struct nt_plan *p, const struct nt_nccl *n,
                                struct ncclComm *comm, struct CUstream_st *stream, void *in,
                                void *out, struct nt_err *err);
/* Running it again on its own result gives the same: true out of place and for copies. */
bool nt_plan_repeats(const struct nt_plan *p);
/* What to write before a call, over the poison. */
void nt_plan_input(const struct nt_plan *p, uint32_t salt, struct nt_region *ret);
/* What must be there after it, in both buffers; returns the number of regions. */
unsigned nt_plan_output(const struct nt_plan *p, uint32_t salt, struct nt_region ret[NT_REGIONS]);
