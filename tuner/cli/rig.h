/*
 * rig - what stands behind a rig's name for a command that measures a profile again: probe,
 * arguments, plugin, devices, environment.
 */
#pragma once
#include <limits.h>
#include "profiles/json/profile.h"
#include "probes/recording/recording.h"
#include "tuner/cli/env.h"
#include "tuner/cli/nodes.h"

struct nt_rig_opts {
    const char *rig;                 /* NULL or "auto": the profile's; else as for `tune` */
    const char *devices;             /* CUDA devices, one a rank; NULL: from 0 on */
    const char *probe;               /* program; NULL: the installed one */
    const char *nccl;                /* libnccl; NULL: as the loader finds it */
    const char *pace;                /* recordings, models */
    const struct nt_strs *fix, *env; /* site constraints, further variables of the ranks */
    const struct nt_nodes_args *on;  /* how the nodes of a profile of several are reached */
    uint64_t seed;
};
struct nt_rig_open {
    struct nt_spec spec; /* rig, ranks, nodes, fixed */
    struct nt_env env;
    struct nt_over over;
    bool virtual_time;
    char probe[PATH_MAX], plugin[PATH_MAX], file[PATH_MAX];
    const char *args[10];
    struct nt_recording *rec; /* NULL: not a recording */
    uint8_t dtype;            /* of a recording: what both it and the profile hold */
    char seed[24], nodes[24];
};

/* nt_rig_close() frees *ret, also after an error. */
NT_MUST_CHECK int nt_rig_open(const struct nt_rig_opts *o, const struct nt_profile *p,
                              struct nt_rig_open *ret, struct nt_err *err);
/* For nt_check_config's resolve; data: the open rig. */
void nt_rig_resolve(void *data, const char *vars, struct nt_case *cs,
                    const struct nt_executed *executed, struct nt_call *asked);
void nt_rig_close(struct nt_rig_open *r);
