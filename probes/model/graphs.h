/*
 * graphs - what NCCL would find on a machine: rings, trees and NVLS by the speed of a channel and
 * how many fit, as its src/graph/search.cc does in the main: descending lists of speeds, links that
 * channels use up, near paths before far ones.
 *
 * Simpler than NCCL's: a channel once found is kept (no going back over channels), CollNet graphs
 * are not searched, NVLS takes the shares that NCCL finds on NVSwitch machines. docs/model.md has
 * it against what NCCL dumped on a real machine.
 *
 * Errors   -NT_E_INVAL with words: no GPU in the topology, more ranks than it has, …
 * Pure     the same topology gives the same communicator.
 */
#pragma once
#include "probes/model/cost.h"

/* What of a process setting changes the graphs; 0 or "" is NCCL's default. */
struct nt_comm_opts {
    unsigned ranks; /* 0: one a GPU and node */
    unsigned nodes; /* copies of the machine; 0: 1 */
    bool no_p2p;    /* NCCL_P2P_DISABLE: everything through host memory */
    bool no_nvls;   /* NCCL_NVLS_ENABLE=0 */
    bool ll128;     /* forced */
    unsigned min_channels, max_channels;
};

/* Fills *ret. note (may be NULL): what had to be assumed because the topology does not tell it. */
NT_MUST_CHECK int nt_comm_init(const struct nt_topology *t, const struct nt_comm_opts *opts,
                               struct nt_comm *ret, struct nt_buf *note, struct nt_err *err);

/* GB/s: NVLink (or xGMI) one link, by capability; PCIe one direction. */
double nt_nvlink_gbs(int cc);
double nt_pcie_gbs(int width, int speed_mts);
