/*
 * buffers - device memory for the cases: one region for inputs and one for outputs, cut into slots
 * of the size that a case needs, so that consecutive calls rotate beyond the L2.
 *
 * Around each slot lies a guard of NT_GUARD_BYTES that nobody may write. Many slots of a small case
 * still fit into the L2 together (only what is touched counts); cases of some hundred KiB and more
 * do not.
 */
#pragma once
#include "probes/nccl/dev.h"

enum { NT_GUARD_BYTES = 4096, NT_GROUP = 8 };

/* Where a pool's memory comes from, where it is not plain device memory. */
struct nt_pool_source {
    int (*alloc)(void *arg, size_t bytes, void **ret, struct nt_err *err);
    void (*free)(void *arg, void *p); /* takes NULL */
    void *arg;
};

struct nt_pool {
    char *in, *out;
    uint64_t bytes; /* of each of the two */
    uint64_t max_bytes, l2_bytes;
    struct nt_pool_source source;
};

struct nt_slots {
    const struct nt_pool *pool;
    uint64_t stride;
    unsigned count; /* at least 2 */
};

/* Room for cases up to max_bytes: NT_GROUP slots of that size where memory allows, 2 at least
 * (-NT_E_INVAL when not even those fit). *ret: bytes of each region. */
NT_MUST_CHECK int nt_pool_size(struct nt_dev *d, uint64_t max_bytes, uint64_t l2_bytes,
                               uint64_t *ret, struct nt_err *err);
/* source NULL: device memory. */
NT_MUST_CHECK int nt_pool_open(struct nt_dev *d, uint64_t max_bytes, uint64_t l2_bytes,
                               uint64_t bytes, const struct nt_pool_source *source,
                               struct nt_pool *ret, struct nt_err *err);
void nt_pool_close(struct nt_pool *p); /* also one that was never opened */
/* -NT_E_INVAL when bytes is above the pool's max_bytes, or fewer than `least` slots fit. */
NT_MUST_CHECK int nt_pool_cut(const struct nt_pool *p, uint64_t bytes, unsigned least,
                              struct nt_slots *ret, struct nt_err *err);
void *nt_slot_in(const struct nt_slots *s, unsigned i); /* i may be any number: it goes round */
void *nt_slot_out(const struct nt_slots *s, unsigned i);
