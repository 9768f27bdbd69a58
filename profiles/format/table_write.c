#include "profiles/format/table.h"

#include <stdlib.h>
#include <string.h>
#include "profiles/format/sha256.h"
#include "profiles/format/table_private.h"

static int var_order(const void *a, const void *b)
{
    return strcmp(((const struct nt_table_var *)a)->name, ((const struct nt_table_var *)b)->name);
}

static int row_order(const void *a, const void *b)
{
    return nt_table_order(a, b);
}

static void put_header(uint8_t *d, enum nt_table_product product, size_t nvars, size_t nrows,
                       size_t rows_at, size_t size)
{
    memcpy(d, nt_table_magic, sizeof(nt_table_magic));
    nt_le_put(d + 8, 4, NT_TABLE_VERSION);
    nt_le_put(d + 12, 4, (uint64_t)product);
    nt_le_put(d + 16, 4, nvars);
    nt_le_put(d + 20, 4, nrows);
    nt_le_put(d + 24, 8, rows_at);
    nt_le_put(d + 32, 8, size);
}

static void put_row(uint8_t *p, const struct nt_table_row *r)
{
    nt_le_put(p, 8, r->min_bytes);
    nt_le_put(p + 8, 8, r->max_bytes);
    nt_le_put(p + 16, 4, r->nranks);
    nt_le_put(p + 20, 4, r->nnodes);
    nt_le_put(p + 24, 4, r->chunk_bytes);
    nt_le_put(p + 28, 2, r->channels);
    p[30] = r->coll;
    p[31] = r->reg_buff;
    p[32] = (uint8_t)r->algo;
    p[33] = (uint8_t)r->proto;
    nt_le_put(p + 34, 2, r->flags);
}

static size_t put_vars(char *to, const struct nt_table_var *vars, size_t n)
{
    char *p = to;
    for (size_t i = 0; i < n; i++) {
        *p++ = vars[i].override ? NT_POLICY_OVERRIDE : NT_POLICY_UNSET;
        p = stpcpy(p, vars[i].name);
        *p++ = '=';
        p = stpcpy(p, vars[i].value) + 1;
    }
    return (size_t)(p - to);
}

/* Sorted copy, so that the caller's order does not matter. */
static void *sorted(const void *items, size_t n, size_t size,
                    int (*order)(const void *, const void *))
{
    void *copy = malloc(n > 0 ? n * size : 1);
    if (copy != NULL && n > 0) {
        memcpy(copy, items, n * size);
        qsort(copy, n, size, order);
    }
    return copy;
}

static uint8_t *encode(enum nt_table_product product, const struct nt_table_var *vars, size_t nvars,
                       const struct nt_table_row *rows, size_t nrows, size_t *ret_size)
{
    size_t text = 0, rows_at, size;
    uint8_t *d;

    for (size_t i = 0; i < nvars; i++) {
        text += strlen(vars[i].name) + strlen(vars[i].value) + 3;
    }
    rows_at = NT_HEADER_BYTES + (text + 7) / 8 * 8;
    size = rows_at + nrows * NT_ROW_BYTES;
    d = calloc(1, size);
    if (d != NULL) {
        put_header(d, product, nvars, nrows, rows_at, size);
        (void)put_vars((char *)d + NT_HEADER_BYTES, vars, nvars);
        for (size_t i = 0; i < nrows; i++) {
            put_row(d + rows_at + i * NT_ROW_BYTES, &rows[i]);
        }
        *ret_size = size;
    }
    return d;
}

int nt_table_write(enum nt_table_product product, const struct nt_table_var *vars, size_t nvars,
                   const struct nt_table_row *rows, size_t nrows, uint8_t **ret_data,
                   size_t *ret_size, char ret_hash[NT_HASH_HEX + 1], struct nt_why *why)
{
    int rc = -1;
    size_t size = 0;
    uint8_t *d = NULL;
    struct nt_table back;
    struct nt_table_var *v = NULL;
    struct nt_table_row *r = NULL;

    if (nvars > NT_TABLE_MAX_VARS || nrows > NT_TABLE_MAX_ROWS) {
        return nt_why_fail(why, "%zu variables (at most %d), %zu rows (at most %d)", nvars,
                           NT_TABLE_MAX_VARS, nrows, NT_TABLE_MAX_ROWS);
    }
    for (size_t i = 0; i < nvars; i++) { /* before encoding: a line break would be structure */
        if (nt_table_check_var(product, vars[i].name, vars[i].value, why) != 0) {
            return -1;
        }
    }
    v = sorted(vars, nvars, sizeof(*v), var_order);
    r = sorted(rows, nrows, sizeof(*r), row_order);
    if (v != NULL && r != NULL) {
        d = encode(product, v, nvars, r, nrows, &size);
    }
    if (d == NULL) {
        rc = nt_why_fail(why, "out of memory");
        goto out;
    }
    rc = nt_table_read(d, size, &back, why); /* the reader is the one judge of what is valid */
    if (rc == 0) {
        nt_format_sha256_hex(d, size, ret_hash);
        *ret_data = d;
        *ret_size = size;
        d = NULL;
    }
out:
    free(v);
    free(r);
    free(d);
    return rc;
}
