/*
 * table - the delivery file <sha256>.nctable: what a profile does to a process, without evidence.
 *
 * Layout, all numbers little-endian, no padding but what is named, one encoding per content (so
 * that equal content has an equal hash):
 *   header     64 bytes: "NCTABLE\n", u32 version 1, u32 product, u32 variables, u32 rows,
 *              u64 offset of the rows, u64 bytes of the file, 24 zero bytes
 *   variables  sorted by name, each: one byte policy ('?' or '!'), NAME=VALUE, NUL; then zeros to
 *              a multiple of 8
 *   rows       48 bytes each, sorted by (coll, nranks, nnodes, min_bytes, reg_buff): u64
 *              min, u64 max, u32 nranks, u32 nnodes, u32 chunk, u16 channels, u8 coll, u8
 *              registration, i8 algo, i8 proto, u16 flags, 12 zero bytes
 *
 * Units      bytes are bytes as NCCL's tuner sees them: element size × max(send, receive count).
 * Ownership  a table read borrows the memory it was read from; nt_table_write's buffer and
 *            nt_table_map's memory are the caller's (free, nt_table_unmap).
 * Errors     0, or -1 with a sentence in *why (which may be NULL). Outputs are written only on
 *            success.
 * Threads    reading is thread-safe; nothing is shared.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "profiles/format/limits.h"

struct nt_why {
    char text[256];
};
/* Writes the sentence and returns -1. */
int nt_why_fail(struct nt_why *why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

enum nt_table_product { NT_TABLE_STATIC, NT_TABLE_TABLE };
enum nt_table_reg { NT_TABLE_REG_ANY, NT_TABLE_REG_NO, NT_TABLE_REG_YES };

/* One assignment of a process-scope variable. override: wins over a value that the user set. */
struct nt_table_var {
    const char *name, *value;
    bool override;
};

/* One rule. A row asks for an algorithm with protocol, for channels, or for both. */
struct nt_table_row {
    uint64_t min_bytes, max_bytes; /* inclusive; UINT64_MAX: no end */
    uint32_t nranks, nnodes;       /* exact; nranks >= 2, 1 <= nnodes <= nranks */
    uint32_t chunk_bytes;          /* tuner ABI v6; a multiple of nt_proto_grain(); 0: leave */
    uint16_t channels;             /* upper bound, never above those seen executed; 0: leave */
    uint8_t coll;                  /* 0 … NT_TABLE_COLLS - 1 */
    uint8_t reg_buff;              /* enum nt_table_reg */
    int8_t algo, proto;            /* both >= 0, or both -1: leave */
    uint16_t flags;                /* none is defined: 0 */
};

struct nt_table {
    enum nt_table_product product;
    uint32_t nvars, nrows;
    const uint8_t *data;
    const char *vars;    /* first assignment */
    const uint8_t *rows; /* first row */
    size_t size;
};

/* Reads and validates every byte: order, overlaps, ranges, names. Rows whose byte ranges meet under
 * one key are refused, rows for any registration beside rows for one of them too. A static product
 * has no rows; a table product has no NCCL_ALGO, NCCL_PROTO or NCCL_THREAD_THRESHOLDS, which would
 * mask it. Never allocates. */
int nt_table_read(const void *data, size_t size, struct nt_table *ret, struct nt_why *why);
/* Row i < nrows. */
struct nt_table_row nt_table_row(const struct nt_table *t, uint32_t i);
/* Assignments in order: *at = 0 to begin; false at the end. ret borrows the table's memory except
 * for the name, which is copied because the file holds NAME=VALUE in one string. */
struct nt_table_var_text {
    char name[NT_TABLE_MAX_NAME + 1];
    const char *value;
    bool override;
};
bool nt_table_next_var(const struct nt_table *t, size_t *at, struct nt_table_var_text *ret);

/* Sorts, validates and encodes into a malloc'd buffer; the hash is the file's name and
 * NCCLTUNE_PROFILE. Inputs are borrowed and need not be sorted. */
int nt_table_write(enum nt_table_product product, const struct nt_table_var *vars, size_t nvars,
                   const struct nt_table_row *rows, size_t nrows, uint8_t **ret_data,
                   size_t *ret_size, char ret_hash[NT_HASH_HEX + 1], struct nt_why *why);

/* 64 lower-case hex digits and nothing else. */
bool nt_table_is_hash(const char *text);
/* Reads a delivery file into private read-only memory, so that no later write to the file changes
 * what this process does. Absolute path to a regular file (no link), owned by root or the caller,
 * not writable by group or others, whose SHA-256 is `hash`. */
int nt_table_map(const char *path, const char *hash, struct nt_table *ret, struct nt_why *why);
void nt_table_unmap(struct nt_table *t); /* NULL and half-made are fine */
