/*
 * env - what the ranks' environment is made of: a written list, the caller's site constraints, and
 * nothing else. Also what of the caller's environment is "as found".
 */
#pragma once
#include "tuner/base/cli.h"
#include "tuner/cli/found.h"
#include "tuner/gang/gang.h"
#include "tuner/job/spec.h"

struct nt_env {
    struct nt_buf text;    /* NUL-ended "NAME=VALUE" */
    const char *list[192]; /* into text; filled by nt_env_list() */
    unsigned devices[NT_GANG_MAX];
    bool have_devices;             /* they were named */
    bool no_peers;                 /* no GPU of the machine may reach into another */
    bool modelled, nvlink;         /* the machine is only described; it has NVLinks */
    unsigned version;              /* of the libnccl that will be tuned, 0: not known */
    struct nt_found_places places; /* files whose settings are in force; nt_env_init() fills it */
    struct nt_buf said;            /* lines about them, for a real machine */
};

void nt_env_init(struct nt_env *e);
void nt_env_done(struct nt_env *e);
/* Sorts the caller's variables, those of the environment and then those of files, into constraints
 * (spec->fixed, the list) and spec->as_found; adds --fix and --env. What /etc/nccl.conf says
 * reaches every process: where NCCL takes an empty value for none, only as_found has it; else it is
 * fixed, and said. */
NT_MUST_CHECK int nt_env_take(struct nt_env *e, struct nt_spec *s, const char *nccl,
                              const struct nt_strs *fix, const struct nt_strs *extra,
                              struct nt_err *err);
/* "4,5": CUDA devices, one a rank; NULL or "": not named. Fills spec->devices and, where they are
 * not given, spec->ranks. */
NT_MUST_CHECK int nt_env_devices(struct nt_env *e, struct nt_spec *s, const char *list,
                                 struct nt_err *err);
/* A job goes on under its own constraints: those that `now`, of nt_env_take(), does not name are
 * put in force; one that it has beside them is refused. */
NT_MUST_CHECK int nt_env_go_on(struct nt_env *e, const struct nt_spec *now,
                               const struct nt_spec *job, struct nt_err *err);
/* Ranks and devices of a real rig: GPUs there are, MPS there is, NCCL's version. NT_E_MISSING with
 * what to do. */
NT_MUST_CHECK int nt_env_ranks(struct nt_env *e, struct nt_spec *s, struct nt_err *err);
/* The part of it that is about no GPU: NCCL's version as it is here, and what files say. */
void nt_env_look(struct nt_env *e);
/* GPUs that CUDA_VISIBLE_DEVICES leaves of so many; NULL: all. CUDA ends the list at -1. */
int nt_env_visible(const char *text, int gpus);
/* Process settings to try: the table's for this box and version, without those that a constraint
 * leaves without effect; or those given. */
NT_MUST_CHECK int nt_env_settings(struct nt_env *e, struct nt_spec *s, const struct nt_strs *given,
                                  struct nt_err *err);
const char *const *nt_env_list(struct nt_env *e);
