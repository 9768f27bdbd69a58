/*
 * cost - what NCCL itself predicts: time of a collective by algorithm, protocol and bytes, as its
 * src/graph/tuning.cc (v2.30.7) computes it, in its float arithmetic.
 *
 * Units    latencies and times in µs, bandwidths in GB/s (10⁹ bytes/s), as NCCL has them.
 * Pure     plain data in and out; no errors: what cannot run has bandwidth 0 and time -1.
 */
#pragma once
#include "schema/vocab.h"
#include "tuner/topology/topology.h"

/* The graphs that NCCL searches. NVLS serves NVLSTree too, the tree PAT. */
enum nt_graph_kind {
    NT_GRAPH_RING,
    NT_GRAPH_TREE,
    NT_GRAPH_CHAIN,
    NT_GRAPH_NVLS,
    NT_GRAPH_DIRECT,
    NT_GRAPH_KINDS
};

struct nt_graph {
    int channels;             /* of the search, before NCCL doubles them */
    float bw_intra, bw_inter; /* GB/s a channel */
    float latency_inter;      /* µs, of the NIC */
    enum nt_path type_intra, type_inter;
    bool same_channels;
    bool simple_tree; /* the tree is one of NCCL's "simple" pattern: 15 % slower */
};

enum nt_host_cpu { NT_CPU_INTEL, NT_CPU_AMD, NT_CPU_MIXED, NT_CPU_ARM, NT_CPU_POWER };

struct nt_comm {
    int ranks, nodes, local_ranks; /* local_ranks: on the fullest node */
    int cc_min, cc_max;            /* 10 × compute capability */
    enum nt_host_cpu cpu;
    int channels, nvls_channels; /* of the communicator */
    struct nt_graph graph[NT_GRAPH_KINDS];
    bool nvls;           /* multicast works on every node */
    bool collnet;        /* a CollNet plugin is there and enabled */
    bool collnet_gather; /* … that can all-gather and reduce-scatter, with a head a local rank */
    bool ll128_forced;   /* NCCL_PROTO lists it: no tests of the hardware */
    bool pat_forced;     /* NCCL_PAT_ENABLE=1: several ranks a node too */
    float net_overhead;  /* µs, NCCL_NET_OVERHEAD; 0: by CPU */
};

struct nt_cost {
    int ranks, nodes, channels, cc_min;
    bool x86;
    float lat[NT_TUNER_COLLS][NT_ALGO_COUNT][NT_PROTO_COUNT];
    float bw[NT_TUNER_COLLS][NT_ALGO_COUNT][NT_PROTO_COUNT]; /* of the algorithm; 0: not there */
};

/* Latencies and bandwidths of a communicator: its init. */
void nt_cost_init(const struct nt_comm *comm, struct nt_cost *ret);

/* Prediction for one of `pipe_ops` calls in flight. bytes as NCCL's tuner sees them. -1: the cell
 * is not available, as is anything of a collective that NCCL asks no tuner about. */
float nt_cost_us(const struct nt_cost *c, enum nt_coll coll, enum nt_algo algo, enum nt_proto proto,
                 uint64_t bytes, unsigned pipe_ops);

/* The same in two parts, for one call: what does not depend on bytes, and what does. false: not
 * available. */
bool nt_cost_parts(const struct nt_cost *c, enum nt_coll coll, enum nt_algo algo,
                   enum nt_proto proto, uint64_t bytes, float *ret_lat, float *ret_bw);

/* What NCCL would choose: the least; ties to the lower algorithm, then protocol. false: nothing. */
bool nt_cost_choose(const struct nt_cost *c, enum nt_coll coll, uint64_t bytes,
                    enum nt_algo *ret_algo, enum nt_proto *ret_proto);

/* The graph that an algorithm runs on. */
enum nt_graph_kind nt_algo_graph(enum nt_algo a);
