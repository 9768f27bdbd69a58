/*
 * links - capacities of a machine's links and the ways between its devices; internal to the model.
 * A link is one direction. Devices are the topology's: GPUs, then NICs, then, at index `ndevs`, one
 * made-up socket NIC where there is none.
 */
#pragma once
#include "probes/model/graphs.h"

enum { MAX_HOPS = 64 };

struct machine {
    const struct nt_topology *t;
    int gpus; /* used: the first of the topology */
    int cc;   /* least */
    int cc_max;
    enum nt_host_cpu cpu;
    bool no_p2p;
    double link_gbs;   /* of one NVLink */
    int *switch_links; /* [gpus], assumed ones too */
    uint16_t *direct;  /* [gpus * gpus] NVLinks */
    double *cap;       /* capacity of each link, GB/s */
    int links;
};

struct route {
    int n;
    int link[MAX_HOPS];
    float share[MAX_HOPS]; /* of the channel's speed that it takes there */
    enum nt_path type;
    double gbs; /* least capacity on the way, of an empty machine */
};

NT_MUST_CHECK int machine_init(struct machine *m, const struct nt_topology *t, int gpus,
                               bool no_p2p, struct nt_buf *note, struct nt_err *err);
void machine_done(struct machine *m);
/* false: no way. */
bool machine_route(const struct machine *m, int from, int to, struct route *ret);
double machine_nvlink(const struct machine *m, int gpu); /* GB/s of all its links */
