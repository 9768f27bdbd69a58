/*
 * lookup - which row serves a call, for one communicator: built once, then read without locks or
 * allocation. Rows of a (collective, registration) are sorted and disjoint; a table over the
 * binary logarithm of the bytes gives the few that can meet the call.
 */
#pragma once
#include "profiles/format/table.h"

struct nt_rule {
    uint64_t min_bytes;
    uint32_t row, chunk_bytes;
    uint16_t channels;
    int8_t algo, proto;
};

/* What is known of a call's buffers; ABIs before v4 do not say. */
enum nt_reg { NT_REG_NO, NT_REG_YES, NT_REG_UNKNOWN, NT_REGS };
enum { NT_BUCKETS = 65 }; /* bytes 0; then 2^(b-1) <= bytes < 2^b */

struct nt_lookup {
    uint32_t rows; /* rows of the delivery file that serve this communicator */
    const struct nt_rule *rules;
    const uint64_t *max_bytes; /* of each rule, apart: the search reads nothing else */
    /* per collective and registration: first rule whose end is not below the bucket's start */
    uint16_t first[NT_TABLE_COLLS][NT_REGS][NT_BUCKETS + 1];
    uint16_t end[NT_TABLE_COLLS][NT_REGS];
};

/* One block of memory, freed by nt_lookup_free. NULL: out of memory. The table is only read. */
struct nt_lookup *nt_lookup_new(const struct nt_table *t, uint32_t nranks, uint32_t nnodes);
void nt_lookup_free(struct nt_lookup *l); /* NULL is fine */

/* NULL: no row serves the call. coll < NT_TABLE_COLLS. */
static inline const struct nt_rule *nt_lookup_find(const struct nt_lookup *l, unsigned coll,
                                                   enum nt_reg reg, uint64_t bytes)
{
    unsigned bucket = bytes == 0 ? 0U : 64U - (unsigned)__builtin_clzll(bytes);
    unsigned at = l->first[coll][reg][bucket], n = l->first[coll][reg][bucket + 1] - at + 1U;

    /* The rule sought is the first whose end is at or above bytes: one of these n. */
    while (n > 1) {
        unsigned half = n / 2;
        at = l->max_bytes[at + half - 1] < bytes ? at + half : at;
        n -= half;
    }
    if (at >= l->end[coll][reg] || l->rules[at].min_bytes > bytes || l->max_bytes[at] < bytes) {
        return NULL;
    }
    return &l->rules[at];
}
