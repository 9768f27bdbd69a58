/*
 * rows - answers of many rows for people and programs: an aligned table, CSV (RFC 4180), or a JSON
 * array of objects. Written as they come; only a table keeps its first rows to find the widths of
 * its columns. Foreign text cannot drive the terminal: control characters are shown escaped.
 */
#pragma once
#include <stdio.h>
#include "tuner/store/store.h"

enum nt_rows_format { NT_ROWS_TABLE, NT_ROWS_CSV, NT_ROWS_JSON, NT_ROWS_FORMAT_COUNT };
extern const char *const nt_rows_formats[]; /* "table", "csv", "json", NULL */

struct nt_rows; /* opaque */
NT_MUST_CHECK int nt_rows_open(enum nt_rows_format format, FILE *out, struct nt_rows **ret,
                               struct nt_err *err);
/* An nt_store_row_cb with data = struct nt_rows *: names once with values NULL, then the rows. An
 * output that cannot be written is NT_E_IO. */
int nt_rows_add(void *rows, unsigned ncols, const char *const *names, const struct nt_value *values,
                struct nt_err *err);
/* Writes what is left. rc: of the rows so far; returned, or the error of the output. */
NT_MUST_CHECK int nt_rows_close(struct nt_rows *r, int rc, struct nt_err *err);
