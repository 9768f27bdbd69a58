/* recorded - the job that a recording can answer. */
#pragma once
#include "probes/recording/recording.h"
#include "tuner/job/spec.h"

/* Sets rig, ranks, data type and, where none were asked for, process settings and sizes to what the
 * recording holds. What was asked for (ranks not 0, settings beyond the first, collectives, sizes,
 * modes) must be there, else NT_E_INVAL names it. The caller calls nt_spec_finish(). */
NT_MUST_CHECK int nt_recorded_spec(const struct nt_recording *rec, struct nt_spec *s,
                                   struct nt_err *err);
/* Does it hold that type, out of place? */
bool nt_recorded_dtype(const struct nt_recording *rec, enum nt_dtype dtype);
/* Adds the collectives that were recorded to *colls. */
void nt_recorded_colls(const struct nt_recording *rec, bool colls[NT_COLL_COUNT]);
/* Says on stderr which types that were asked for `s`, the job, has not. */
void nt_recorded_note_dropped(const struct nt_spec *asked, const struct nt_spec *s);
