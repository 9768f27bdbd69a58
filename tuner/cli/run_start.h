/*
 * run_start - what `run` does before it becomes the command: the profile held against the machine,
 * its files written, its variables set, the manifest kept. `ab` does the same in a child.
 *
 * The process is changed (environment, SIGXFSZ); words go to stderr. Ownership: all borrowed.
 */
#pragma once
#include "tuner/base/cli.h"
#include "tuner/cli/engine_arg.h"
#include "tuner/deliver/fit.h"

struct nt_run_opts {
    const char *profile, *engine, *allow_rig, *plugins, *topology, *root, *nvml;
    bool variables_only, observe, dry_run, verbose;
    uint32_t local_ranks;
    struct nt_strs despite;
    uint64_t *started_ns; /* NULL, or memory shared with whoever wants to know when the command took
                             over: CLOCK_MONOTONIC, ns */
};

/* Rows of a table of options for those of a profile's delivery; struct nt_run_opts is the first
 * member of the command's struct. */
/* clang-format off */
#define NT_RUN_ROWS(profile_help)                                                                  \
    NT_OPT(NT_O_STR, nt_run_opts, profile, "profile", 'p', "PROFILE", profile_help),               \
    NT_OPT(NT_O_FLAG, nt_run_opts, variables_only, "static", 0, NULL,                              \
           "the variables-only product, without the tuner plugin"),                                \
    {.name = "engine", .type = NT_O_STR, .offset = offsetof(struct nt_run_opts, engine),           \
     .arg = "ENGINE",                                                                              \
     .help = "also the profile's backends, by this engine's plugin: sglang or vllm",               \
     .choices = nt_engine_arg_names},                                                              \
    {.name = "allow-rig", .type = NT_O_STR, .offset = offsetof(struct nt_run_opts, allow_rig),     \
     .arg = "KIND",                                                                                \
     .help = "apply a profile that was measured on this rig instead of a real node",               \
     .choices = nt_rig_names},                                                                     \
    {.name = "despite", .type = NT_O_STRS, .offset = offsetof(struct nt_run_opts, despite),        \
     .arg = "WHAT", .help = "apply although this does not fit; may be repeated",                   \
     .choices = nt_fit_names},                                                                     \
    NT_OPT_SOME(NT_O_U32, nt_run_opts, local_ranks, "local-ranks", 0, "COUNT",                     \
           "ranks of the job on this host (default: those of the profile)"),                       \
    NT_OPT(NT_O_STR, nt_run_opts, plugins, "plugins", 0, "DIR",                                    \
           "folder of the NCCL plugins (default: lib/nccltune beside this program)"),              \
    NT_OPT(NT_O_STR, nt_run_opts, topology, "topo", 0, "FILE",                                     \
           "the machine, as an NCCL topology file (default: looked at)"),                          \
    NT_OPT(NT_O_STR, nt_run_opts, root, "root", 0, "DIR",                                          \
           "folder that holds the sys and proc of the machine (default: /)"),                      \
    NT_OPT(NT_O_STR, nt_run_opts, nvml, "nvml", 0, "LIBRARY",                                      \
           "NVML library (default: libnvidia-ml.so.1)")
/* clang-format on */

/* "20261130T012000-4711": time and process; sorts by time. */
void nt_run_new_id(char *out, size_t size);
/* Becomes the command: returns only for a dry run (0, its variables printed), or with an error.
 * *ret_shell: what a shell would exit with where the command itself could not be started (126, 127;
 * its manifest is gone again), else 0. id: NULL for a new one. */
NT_MUST_CHECK int nt_run_start(const struct nt_run_opts *o, const char *const *argv, const char *id,
                               int *ret_shell, struct nt_err *err);
