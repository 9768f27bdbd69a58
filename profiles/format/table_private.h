/* What reader and writer of the delivery file share; for this folder only. */
#pragma once
#include "profiles/format/bytes.h"
#include "profiles/format/table.h"

extern const uint8_t nt_table_magic[8];
enum { NT_TABLE_VERSION = 1, NT_HEADER_BYTES = 64, NT_ROW_BYTES = 48 };
enum { NT_POLICY_UNSET = '?', NT_POLICY_OVERRIDE = '!' };

int nt_table_check_var(enum nt_table_product product, const char *name, const char *value,
                       struct nt_why *why);
/* NULL, or what is wrong with the row by itself. */
const char *nt_table_wrong_row(const struct nt_table_row *r);
int nt_table_order(const struct nt_table_row *a, const struct nt_table_row *b);
