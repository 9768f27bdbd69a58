/* profile_arg - "PROFILE|JOB" on a command line: a file of that name, else a job's number. */
#pragma once
#include "profiles/json/profile.h"
#include "tuner/store/store.h"

/* True when `arg` names no file and is the number of a job. */
bool nt_arg_is_job(const char *arg, int64_t *ret_job);
/* The database of --db (may be NULL) for reading; the caller closes *ret. */
NT_MUST_CHECK int nt_open_to_read(const char *db, struct nt_store **ret, struct nt_err *err);
/* The newest profile of a job; the caller frees *ret. */
NT_MUST_CHECK int nt_load_job_profile(struct nt_store *s, int64_t job, struct nt_profile **ret,
                                      struct nt_err *err);
/* Either of the two. */
NT_MUST_CHECK int nt_load_profile_arg(const char *arg, const char *db, struct nt_profile **ret,
                                      struct nt_err *err);
