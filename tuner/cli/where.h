/* where - where the parts of an installation or a build tree are, from the program's own path. */
#pragma once
#include <stddef.h>
#include "tuner/base/err.h"

/* Absolute path of a probe ("nccl", "recording", …), the tuner plugin, or a recording by name or
 * path. NT_E_MISSING (probe, plugin) or NT_E_INVAL (recording, names the nearest) with words. */
NT_MUST_CHECK int nt_where_probe(const char *kind, char *out, size_t size, struct nt_err *err);
NT_MUST_CHECK int nt_where_plugin(const char *kind, char *out, size_t size, struct nt_err *err);
/* What a launcher starts on each host, and this program itself: the same paths there. */
NT_MUST_CHECK int nt_where_agent(char *out, size_t size, struct nt_err *err);
NT_MUST_CHECK int nt_where_self(char *out, size_t size, struct nt_err *err);
/* Whether a profile, and the job's database (given: --db or NULL), can be written there, told
 * before the job, not after it: tried, and nothing is changed. *ret_hold as nt_write_try() has it.
 */
NT_MUST_CHECK int nt_where_out(const char *out, const char *db, int *ret_hold, struct nt_err *err);
NT_MUST_CHECK int nt_where_recording(const char *name, char *out, size_t size, struct nt_err *err);
