/* curves - measured times by size for `explain`, from tables, logs, a profile or the database. */
#pragma once
#include "tuner/import/table.h"
#include "tuner/workload/explain.h"

struct nt_curves; /* owns what the curves point to */

NT_MUST_CHECK int nt_curves_new(struct nt_curves **ret, struct nt_err *err);
void nt_curves_free(struct nt_curves *c);
/* A CSV table, or a log of nccl-tests; told apart by content. */
NT_MUST_CHECK int nt_curves_add_file(struct nt_curves *c, const char *path, struct nt_err *err);
/* The evidence of a profile: arms "default" and "profile". */
NT_MUST_CHECK int nt_curves_add_profile(struct nt_curves *c, const char *path, struct nt_err *err);
/* What the database holds of one source ("import 3", "job 7"; NULL: the only one there is). */
NT_MUST_CHECK int nt_curves_add_store(struct nt_curves *c, const char *db, const char *source,
                                      struct nt_err *err);
/* Sorted and ready; valid until something is added. */
size_t nt_curves_list(struct nt_curves *c, const struct nt_wl_curve **ret);
