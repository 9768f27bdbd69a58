/*
 * sim - a machine that exists only as a topology, measured: NCCL's cost model, what that leaves out
 * and matters for tuning, and noise. Everything from it is simulated, and says so.
 *
 * Additions  each a function of few parameters in struct nt_sim_params; the defaults are those of
 *            two H200 on NVLink (docs/model.md has the errors). They are: the share of NCCL's
 * latency that is real; what one channel carries, so that bandwidth grows with channels until the
 * link is full; what a channel more costs; chunks (a loop over the buffer costs, a deep tree fills
 * first); launch cost by mode; threads; clusters of four CTAs; and by how much the machine is not
 * as NCCL believes (`deviation`), smooth in bytes and channels. Draws      two-level: a gang has
 * its level, an arm its interaction with the gang, a block and a sample their noise; some samples
 * and blocks stray. Keyed by (seed, gang, case, tuple, id of the measure), so that a resumed job
 * sees the same world. Settings   process settings that make a difference: NCCL_ALGO, NCCL_PROTO,
 * NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE, NCCL_LL128_BUFFSIZE, NCCL_NTHREADS, NCCL_MIN/MAX_NCHANNELS,
 *            NCCL_MIN/MAX_CTAS, NCCL_P2P_DISABLE, NCCL_NVLS_ENABLE, NCCL_PAT_ENABLE. All others
 *            are inert here.
 * Ownership  nt_sim_new() gives *ret to the caller (nt_sim_free); the topology is borrowed for the
 *            call only. Gangs are plain data and borrow their sim.
 */
#pragma once
#include "probes/model/graphs.h"
#include "probes/protocol/protocol.h"

/* What depends on how GPUs reach each other. */
enum { NT_WAY_NVLINK, NT_WAY_OTHER, NT_WAYS };
struct nt_sim_way {
    double lat_share[NT_PROTO_COUNT]; /* of NCCL's latency, in one node */
    /* A channel, GB/s of the algorithm between two ranks: trees, all others. */
    double channel_gbs[2][NT_PROTO_COUNT];
    double link_share[NT_PROTO_COUNT]; /* of NCCL's bandwidth */
    /* Of two ranks a tree is but one link, used both ways: so many times NCCL's bandwidth, and none
     * of its corrections. Both fade with ranks. */
    double tree_pair[NT_PROTO_COUNT];
};

struct nt_sim_params {
    struct nt_sim_way way[NT_WAYS];
    double joint;      /* exponent with which channel and link limits meet: larger is sharper */
    double channel_us; /* each channel more */
    /* chunks */
    double loop_us[NT_PROTO_COUNT];  /* a loop more over the buffer */
    double fill;                     /* share of a tree's first chunk that is not hidden */
    double threads_exponent;         /* a channel's rate by its threads */
    double cluster;                  /* log units that counts not divisible by 4 cost, sm90 on */
    double launch_us[NT_MODE_COUNT]; /* eager adds it; stream is never faster; graph adds it */
    double group_share;              /* of eight calls, what a group of eight takes */
    double busy;                     /* log units beside a running matrix product */
    /* how far the machine is from NCCL's model, log units */
    double deviation, channel_deviation;
    /* noise, log units and shares */
    double gang_sd, interaction_sd, block_sd, sample_sd;
    double launch_sd;             /* of the launch, by gang and by block */
    double outliers, outlier_log; /* share of samples; mean of their exponential excess */
    double strays;                /* share of blocks that take three times as long */
    double drift;                 /* amplitude of a slow wave over measures */
    double broken[2];             /* share of tuples that hang; that give wrong data */
    double start_ms, start_rank_ms, connect_ms, overhead_us;
};
extern const struct nt_sim_params nt_sim_defaults;
extern const struct nt_sim_params nt_sim_quiet; /* the same without deviation and noise */

enum { NT_SIM_NCCL = 23007 }; /* release whose model this is */

struct nt_sim; /* opaque */

/* ranks, nodes: 0 for as many as there are. machine: which of the machines that this topology may
 * be (keys deviation and broken tuples); seed: draws. note may be NULL (see nt_comm_init). */
NT_MUST_CHECK int nt_sim_new(const struct nt_topology *t, unsigned ranks, unsigned nodes,
                             const struct nt_sim_params *params, uint64_t machine, uint64_t seed,
                             struct nt_sim **ret, struct nt_buf *note, struct nt_err *err);
void nt_sim_free(struct nt_sim *s);                        /* NULL is fine */
const struct nt_comm *nt_sim_comm(const struct nt_sim *s); /* as is */

struct nt_sim_gang {
    const struct nt_sim *sim;
    uint64_t number;
    struct nt_comm comm;
    struct nt_cost cost;
    uint64_t buffer[NT_PROTO_COUNT]; /* bytes */
    int threads;                     /* NCCL_NTHREADS, 0: automatic */
    uint32_t connected;              /* algorithm × protocol already used */
};

/* NT_E_INVAL: a communicator that these variables do not allow, with NCCL's reason. */
NT_MUST_CHECK int nt_sim_gang_init(struct nt_sim_gang *g, const struct nt_sim *s, uint64_t number,
                                   const struct nt_var *vars, size_t nvars, struct nt_err *err);
uint64_t nt_sim_start_ns(const struct nt_sim_gang *g); /* start of the processes → ready */

/* What NCCL would run; false: there is no such cell. */
bool nt_sim_executed(const struct nt_sim_gang *g, const struct nt_case *c,
                     const struct nt_call *call, struct nt_executed *ret);
/* Time without noise. flags: NT_M_BUSY, NT_M_GROUP8. */
double nt_sim_true_ns(const struct nt_sim_gang *g, const struct nt_case *c, uint32_t flags,
                      const struct nt_executed *x);
void nt_sim_cells(const struct nt_sim_gang *g, const struct nt_case *c, struct nt_cells *ret);
/* Always fills *ret (ns is the caller's, nt_msg_done or free). */
void nt_sim_measure(struct nt_sim_gang *g, const struct nt_measure *m, struct nt_result *ret);
