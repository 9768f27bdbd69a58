/*
 * chunks - which chunk sizes may be asked of NCCL for a call, and which of them can matter.
 *
 * A chunk is what a channel moves in one step of an algorithm. NCCL takes the most that a slot of
 * its buffers holds, and for some algorithms less where the call is small. From 2.30.3 on it takes
 * another number from a tuner: cut to what the buffers of the protocol hold, then rounded down to
 * the protocol's grain. Nothing else is checked.
 *
 * Smaller  where a call takes more than one chunk anyway: more steps, which overlap more. Not for
 *          LL, which is for calls so small that they are one chunk, nor for calls below 1 MiB,
 *          whose time is that of their start.
 * Larger   only where NCCL itself takes less than fits: Tree with LL128, PAT. Never for NVLS,
 *          whose buffers are made for its own chunk, which is not what NCCL cuts to.
 * Neither  for CollNet, which needs a plugin of the network and was tried by nobody.
 *
 * Pure. Bytes.
 */
#pragma once
#include "schema/vocab.h"

struct nt_chunked { /* a call */
    enum nt_coll coll;
    int algo, proto;
    uint64_t bytes;
    unsigned channels, ranks;
};
/* The next smaller or larger one that is legal and can make a difference, from a chunk of NCCL's
 * own or one of these: by halves and doubles. 0: there is none. */
uint32_t nt_chunk_smaller(const struct nt_chunked *c, uint32_t from);
uint32_t nt_chunk_larger(const struct nt_chunked *c, uint32_t from);
