/* receipts_workload - the collectives that processes of a job counted, as a workload. */
#pragma once
#include "tuner/workload/workload.h"

/* Phases "eager" and "graph". Ranks of one job make the same calls, so of several receipts the
 * largest count stands. A size class is represented by its upper end. notes: what that means. */
NT_MUST_CHECK int nt_workload_from_receipts(char *const *paths, unsigned n, const char *name,
                                            struct nt_workload *ret, struct nt_buf *notes,
                                            struct nt_err *err);
