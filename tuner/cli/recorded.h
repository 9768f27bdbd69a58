/* recorded - the job that a recording can answer. */
#pragma once
#include "probes/recording/recording.h"
#include "tuner/job/spec.h"

/* Sets rig, ranks, process settings, data type and, where none were asked for, the sizes to what
 * the recording holds; s->ranks not 0 must agree. The caller calls nt_spec_finish(). */
NT_MUST_CHECK int nt_recorded_spec(const struct nt_recording *rec, struct nt_spec *s,
                                   struct nt_err *err);
