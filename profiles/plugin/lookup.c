#include "profiles/plugin/lookup.h"

#include <stdlib.h>

static bool serves(const struct nt_table_row *r, unsigned coll, unsigned reg)
{
    return r->coll == coll &&
           (r->reg_buff == NT_TABLE_REG_ANY || r->reg_buff == NT_TABLE_REG_NO + reg);
}

struct nt_lookup *nt_lookup_new(const struct nt_table *t, uint32_t nranks, uint32_t nnodes)
{
    /* A row for any registration stands in three lists; one more end than rules, which the search
     * may look at when a list is empty. */
    size_t most = NT_REGS * (size_t)t->nrows + 1, n = 0;
    size_t size = sizeof(struct nt_lookup) + most * (sizeof(struct nt_rule) + sizeof(uint64_t));
    struct nt_lookup *l = calloc(1, size);
    struct nt_rule *rules;
    uint64_t *max_bytes;

    if (l == NULL) {
        return NULL;
    }
    max_bytes = (uint64_t *)(void *)(l + 1);
    rules = (struct nt_rule *)(void *)(max_bytes + most);
    l->rules = rules;
    l->max_bytes = max_bytes;
    for (uint32_t i = 0; i < t->nrows; i++) {
        struct nt_table_row r = nt_table_row(t, i);
        l->rows += r.nranks == nranks && r.nnodes == nnodes;
    }
    for (unsigned coll = 0; coll < NT_TABLE_COLLS; coll++) {
        for (unsigned reg = 0; reg < NT_REGS; reg++) {
            size_t begin = n;
            for (uint32_t i = 0; l->rows > 0 && i < t->nrows; i++) {
                struct nt_table_row r = nt_table_row(t, i);
                if (r.nranks == nranks && r.nnodes == nnodes && serves(&r, coll, reg)) {
                    rules[n] = (struct nt_rule){r.min_bytes, i,      r.chunk_bytes,
                                                r.channels,  r.algo, r.proto};
                    max_bytes[n++] = r.max_bytes;
                }
            }
            l->end[coll][reg] = (uint16_t)n;
            for (unsigned b = 0; b <= NT_BUCKETS; b++) {
                uint64_t start = b == 0 ? 0 : UINT64_C(1) << (b - 1U < 63U ? b - 1U : 63U);
                size_t k = begin;
                while (k < n && b < NT_BUCKETS && max_bytes[k] < start) {
                    k++;
                }
                l->first[coll][reg][b] = (uint16_t)(b < NT_BUCKETS ? k : n);
            }
        }
    }
    return l;
}

void nt_lookup_free(struct nt_lookup *l)
{
    free(l);
}
