/*
 * remote_jobs - jobs of a service, from the command line: list, submit, follow, cancel, resume.
 */
#pragma once
#include "tuner/base/cli.h"

/* What a job is asked for by; zero or NULL: the service's default. */
struct nt_remote_ask {
    const char *rig, *collectives, *sizes, *modes, *dtypes, *effort;
    uint64_t budget_ns;
    const char *seed, *priority;
};
struct nt_remote_jobs {
    const char *server, *token_file, *format; /* a name of nt_rows_formats */
    bool follow;
    struct nt_remote_ask ask;
    const char *of_submit; /* the first given option of ask, for who takes none; NULL: none */
};

/* args: nothing (the list), submit, or follow, cancel or resume with a job's number. NT_E_NO: the
 * followed job failed; NT_E_INTERRUPTED: it was cancelled, and can be resumed; NT_E_MISSING: there
 * is no service there, or it was lost. */
NT_MUST_CHECK int nt_remote_jobs_run(const struct nt_remote_jobs *a, unsigned nargs, char **args,
                                     struct nt_err *err);
