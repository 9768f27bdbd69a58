/* tune_print - a job for people: what it will do, how it goes, and what came of it. On standard
 * output but for progress. */
#pragma once
#include "tuner/job/run.h"

/* One line on standard error; on a terminal over the one before, of that width. paced: durations
 * mean something. Returns its width. */
size_t nt_tune_print_progress(const struct nt_job_progress *p, bool paced, bool tty, size_t before);
void nt_tune_print_plan(const struct nt_spec *s);
/* path: of the profile that was written. */
void nt_tune_print_summary(const struct nt_spec *s, const char *path,
                           const struct nt_job_outcome *o);
