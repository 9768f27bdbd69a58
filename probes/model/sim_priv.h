/* sim_priv - what the files of the simulated machine share. */
#pragma once
#include "probes/model/sim.h"

/* The communicators of all process settings differ by these. */
enum { SIM_NO_P2P = 1, SIM_NO_NVLS = 2, SIM_COMMS = 4 };

struct nt_sim {
    struct nt_sim_params p;
    uint64_t machine, seed;         /* mixed with what the topology is */
    struct nt_comm comm[SIM_COMMS]; /* by SIM_NO_P2P | SIM_NO_NVLS; [0] is as is */
};

enum { SIM_HANGS, SIM_WRONG };

/* tuple.c */
int sim_chunk_bytes(const struct nt_sim_gang *g, const struct nt_case *c,
                    const struct nt_executed *x);
int sim_max_threads(const struct nt_sim_gang *g, int algo, int proto);
/* Which collective stands in for one that NCCL asks no tuner about. */
enum nt_coll sim_modelled(enum nt_coll c);
