/* tune_print - a job for people: what it will do, and what came of it. On standard output. */
#pragma once
#include "tuner/job/run.h"

void nt_tune_print_plan(const struct nt_spec *s);
/* path: of the profile that was written. */
void nt_tune_print_summary(const struct nt_spec *s, const char *path,
                           const struct nt_job_outcome *o);
