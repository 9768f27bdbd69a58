/*
 * limits - bounds and numbers of the delivery file and the receipt. Numbers of collectives,
 * algorithms and protocols are NCCL's own; ranks, nodes and bytes are plain counts.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
    NT_TABLE_MAX_ROWS = 4096,
    NT_TABLE_MAX_VARS = 256,
    NT_TABLE_MAX_NAME = 63,    /* characters of a variable's name */
    NT_TABLE_MAX_VALUE = 1023, /* characters of its value */
    NT_TABLE_MAX_RANKS = 1 << 20,
    NT_TABLE_MAX_CHANNELS = 64,
    NT_TABLE_MAX_CHUNK = 1 << 26,
    NT_TABLE_COLLS = 5,  /* broadcast, reduce, all_gather, reduce_scatter, all_reduce: 0 … 4 */
    NT_TABLE_ALGOS = 7,  /* tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat */
    NT_TABLE_PROTOS = 3, /* ll, ll128, simple */
    NT_CLASS_COUNT = 40, /* size classes: class c holds 2^(c-1) < bytes <= 2^c; the last holds all
                            above, class 0 holds 0 and 1 */
    NT_HASH_HEX = 64,    /* characters of a SHA-256 in hex, without the NUL */
};

enum {
    NT_TABLE_BROADCAST,
    NT_TABLE_REDUCE,
    NT_TABLE_ALL_GATHER,
    NT_TABLE_REDUCE_SCATTER,
    NT_TABLE_ALL_REDUCE
};
enum {
    NT_TABLE_TREE,
    NT_TABLE_RING,
    NT_TABLE_COLLNET_DIRECT,
    NT_TABLE_COLLNET_CHAIN,
    NT_TABLE_NVLS,
    NT_TABLE_NVLS_TREE,
    NT_TABLE_PAT
};
enum { NT_TABLE_LL, NT_TABLE_LL128, NT_TABLE_SIMPLE };

/* Whether NCCL has a kernel for the combination at all (not whether this machine can run it). */
bool nt_kernel_exists(int coll, int algo, int proto);
/* NCCL uses a tuner's channel count unchecked for CollNet and for NVLS across nodes: none is ever
 * given there. algo -1 (any) counts as safe on one node only. */
bool nt_channels_safe(int algo, uint32_t nnodes);
/* Bytes to which NCCL rounds a chunk down; a chunk below it is a division by zero inside NCCL. */
uint32_t nt_proto_grain(int proto);

/* Size class of a message, 0 … NT_CLASS_COUNT - 1. */
static inline unsigned nt_size_class(uint64_t bytes)
{
    unsigned c = bytes <= 1 ? 0U : 64U - (unsigned)__builtin_clzll(bytes - 1);
    return c < NT_CLASS_COUNT ? c : NT_CLASS_COUNT - 1U;
}
