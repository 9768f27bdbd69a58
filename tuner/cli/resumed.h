/* resumed - a job goes on as it began: what is asked for otherwise is refused, not passed over. */
#pragma once
#include "tuner/cli/env.h"
#include "tuner/job/spec.h"

/* Options of `tune` that a job keeps; NULL, 0 or empty: not given. */
struct nt_resumed {
    const char *collectives, *sizes, *modes, *dtypes, *effort, *devices;
    const struct nt_strs *try;
    uint64_t seed, budget_ns, max_memory;
    uint32_t pairs;
    bool no_groups, no_overlap;
};

/* NT_E_INVAL with the option that `spec`, the job's own, contradicts. usual_seed: counts as not
 * given. */
NT_MUST_CHECK int nt_resumed_check(const struct nt_resumed *given, uint64_t usual_seed,
                                   const struct nt_spec *spec, struct nt_env *env, int64_t job,
                                   struct nt_err *err);
/* File name of what --probe names, whatever folder it is in; "": not given, the installed one. */
const char *nt_probe_name(const char *probe);
/* Programs time in ways of their own: what two of them say does not belong into one job. */
NT_MUST_CHECK int nt_resumed_probe(const char *probe, const struct nt_spec *spec, int64_t job,
                                   struct nt_err *err);
/* " --NAME VALUE" for a shell; nothing without a value. */
void nt_shell_option(const char *name, const char *value, struct nt_buf *out);
