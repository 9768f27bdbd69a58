/*
 * nodes - the options of a command that measures over several nodes, and what they mean.
 */
#pragma once
#include "tuner/base/cli.h"
#include "tuner/cli/env.h"
#include "tuner/job/nodes.h"

struct nt_nodes_args {
    const char *launch, *hosts, *listen;
    uint32_t nodes;
    uint64_t wait_ns;
};
/* Rows of an option table whose struct has the member `on`. */
#define NT_NODES_OPTS(S)                                                                           \
    NT_OPT(NT_O_STR, S, on.launch, "launch", 0, "WORDS",                                           \
           "several nodes: the launcher (srun, mpirun, mpiexec.hydra, ssh, kubectl) and its "      \
           "options"),                                                                             \
        NT_OPT(NT_O_STR, S, on.hosts, "hosts", 0, "LIST",                                          \
               "--launch: hosts, or pods, comma-separated (default: those of the launcher's "      \
               "allocation)"),                                                                     \
        NT_OPT(NT_O_STR, S, on.listen, "listen", 0, "ADDRESS[:PORT[-PORT]]",                       \
               "--launch: where nodes connect back to (default all addresses, any port)"),         \
        NT_OPT(NT_O_DURATION, S, on.wait_ns, "launch-wait", 0, "TIME",                             \
               "--launch: for all nodes to connect (default 2m)")
#define NT_NODES_COUNT(S, help_) NT_OPT_SOME(NT_O_U32, S, on.nodes, "nodes", 0, "COUNT", help_)

struct nt_over {
    struct nt_remote remote;
    struct nt_remote_turns turns;
    char agent[4096];
    json_t *machines; /* NULL: not asked yet; owned */
    bool on;          /* --launch was given */
};

/* Without --launch the other options are refused. */
NT_MUST_CHECK int nt_over_open(const struct nt_nodes_args *a, struct nt_over *ret,
                               struct nt_err *err);
void nt_over_close(struct nt_over *o);
/* Ranks are counted by node from here …: s->ranks (0 or all) becomes those of one node. */
NT_MUST_CHECK int nt_over_each(const struct nt_over *o, struct nt_spec *s, struct nt_err *err);
/* … to here: asks the nodes who they are, holds them against each other, says what is wrong;
 * s->ranks and the devices become those of all nodes. */
NT_MUST_CHECK int nt_over_ranks(struct nt_over *o, struct nt_env *e, struct nt_spec *s,
                                struct nt_err *err);
/* For what takes both: NULL without --launch. */
const struct nt_remote *nt_over_remote(const struct nt_over *o);
