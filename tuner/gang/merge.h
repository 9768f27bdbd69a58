/* merge - one answer of each rank becomes the gang's answer: pure. */
#pragma once
#include "tuner/gang/gang.h"

/* What one rank may answer to this question: another id, or an ok without the samples that were
 * asked for, is a broken protocol. */
NT_MUST_CHECK int nt_merge_check(const struct nt_measure *m, const struct nt_result *r,
                                 struct nt_err *err);
/* results: [world], one a rank, all checked. ns: room for m->samples; ret->ns points to it. */
void nt_merge_results(const struct nt_measure *m, const struct nt_result *const *results,
                      unsigned world, uint32_t *ns, struct nt_gang_result *ret);
void nt_merge_cells(const struct nt_cells *const *cells, unsigned world, struct nt_cells *ret);
