/* table_build - how the readers fill a table. */
#pragma once
#include "tuner/import/table.h"

#define NT_ROUND_UNKNOWN UINT32_MAX

NT_MUST_CHECK int nt_table_new(const char *name, enum nt_metric metric, struct nt_table **ret,
                               struct nt_err *err);
/* Copies *e under these names; false when memory or the limit is reached. */
bool nt_table_add(struct nt_table *t, const char *group, const char *arm, const struct nt_entry *e);
