#include "probes/nccl/buffers.h"

/* More slots than this gain nothing: together they are far above any L2, or too small to matter. */
enum { MOST_SLOTS = 1024, ALIGN = 4096 };

/* Both regions together take at most this share of the free memory, unless the least needs more:
 * NCCL connects further algorithms later, and other ranks may share the device. */
enum { SHARE = 4 };

static uint64_t stride_of(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN + (uint64_t)2 * NT_GUARD_BYTES;
}

int nt_pool_size(struct nt_dev *d, uint64_t max_bytes, uint64_t l2_bytes, uint64_t *ret,
                 struct nt_err *err)
{
    uint64_t free_bytes = 0, stride = stride_of(max_bytes), least = 2 * stride, both = 2 * least;
    uint64_t bytes;
    int rc = nt_dev_free_bytes(d, &free_bytes, err);
    if (rc != 0) {
        return rc;
    }
    if (max_bytes > free_bytes || both > free_bytes) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "cases of %llu bytes need %llu bytes of device memory, %llu are free",
                       (unsigned long long)max_bytes, (unsigned long long)both,
                       (unsigned long long)free_bytes);
    }
    bytes = NT_GROUP * stride > l2_bytes + stride ? NT_GROUP * stride : l2_bytes + stride;
    if (bytes > free_bytes / (2 * SHARE)) {
        bytes = free_bytes / (2 * SHARE);
    }
    *ret = bytes < least ? least : bytes;
    return 0;
}

static int from_device(void *arg, size_t bytes, void **ret, struct nt_err *err)
{
    return nt_dev_alloc(arg, bytes, ret, err);
}

static void to_device(void *arg, void *p)
{
    nt_dev_free(arg, p);
}

int nt_pool_open(struct nt_dev *d, uint64_t max_bytes, uint64_t l2_bytes, uint64_t bytes,
                 const struct nt_pool_source *source, struct nt_pool *ret, struct nt_err *err)
{
    struct nt_pool p = {.bytes = bytes, .max_bytes = max_bytes, .l2_bytes = l2_bytes};
    void *in = NULL, *out = NULL;
    int rc;
    p.source = source != NULL ? *source : (struct nt_pool_source){from_device, to_device, d};
    rc = p.source.alloc(p.source.arg, p.bytes, &in, err);
    if (rc == 0) {
        rc = p.source.alloc(p.source.arg, p.bytes, &out, err);
    }
    if (rc != 0) {
        p.source.free(p.source.arg, in);
        return rc;
    }
    p.in = in;
    p.out = out;
    *ret = p;
    return 0;
}

void nt_pool_close(struct nt_pool *p)
{
    if (p->source.free != NULL) {
        p->source.free(p->source.arg, p->in);
        p->source.free(p->source.arg, p->out);
    }
    *p = (struct nt_pool){0};
}

int nt_pool_cut(const struct nt_pool *p, uint64_t bytes, unsigned least, struct nt_slots *ret,
                struct nt_err *err)
{
    uint64_t stride, fit, wanted;
    if (bytes > p->max_bytes) {
        return nt_fail(err, NT_E_INVAL, 0, "%llu bytes are above this gang's largest case of %llu",
                       (unsigned long long)bytes, (unsigned long long)p->max_bytes);
    }
    stride = stride_of(bytes);
    fit = p->bytes / stride;
    if (fit < least) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "device memory for %llu buffers of %llu bytes, %u needed",
                       (unsigned long long)fit, (unsigned long long)bytes, least);
    }
    /* Input and output together exceed the L2 before a slot comes round again. */
    wanted = p->l2_bytes / (2 * (stride - 2 * (uint64_t)NT_GUARD_BYTES)) + 2;
    wanted = wanted > MOST_SLOTS ? MOST_SLOTS : wanted;
    wanted = wanted < least ? least : wanted;
    *ret = (struct nt_slots){
        .pool = p, .stride = stride, .count = (unsigned)(wanted < fit ? wanted : fit)};
    return 0;
}

static uint64_t offset(const struct nt_slots *s, unsigned i)
{
    return (uint64_t)(i % s->count) * s->stride + NT_GUARD_BYTES;
}

void *nt_slot_in(const struct nt_slots *s, unsigned i)
{
    return s->pool->in + offset(s, i);
}

void *nt_slot_out(const struct nt_slots *s, unsigned i)
{
    return s->pool->out + offset(s, i);
}
