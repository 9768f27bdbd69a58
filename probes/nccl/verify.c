#include "probes/nccl/probe.h"

int nt_verify_prepare(struct nt_probe *p, const struct nt_plan *plan, const struct nt_slots *slots,
                      unsigned slot, uint32_t salt, struct nt_err *err)
{
    struct nt_region r;
    struct nt_pattern poison = {.kind = NT_PATTERN_POISON, .elem_bytes = 4};
    char *in = nt_slot_in(slots, slot), *out = nt_slot_out(slots, slot);
    int rc = nt_dev_fill(p->stream, out - NT_GUARD_BYTES, slots->stride / 4, &poison, err);
    if (rc == 0) {
        nt_plan_input(plan, salt, &r);
        rc = nt_dev_fill(p->stream, (r.in ? in : out) + r.at_bytes, r.count, &r.pattern, err);
    }
    return rc;
}

int nt_verify_compare(struct nt_probe *p, const struct nt_plan *plan, const struct nt_slots *slots,
                      unsigned slot, uint32_t salt, struct nt_err *err)
{
    struct nt_region regions[NT_REGIONS];
    struct nt_pattern poison = {.kind = NT_PATTERN_POISON, .elem_bytes = plan->elem_bytes};
    const char *in = nt_slot_in(slots, slot), *out = nt_slot_out(slots, slot);
    uint64_t after = slots->stride - NT_GUARD_BYTES - plan->cs.bytes;
    unsigned n = nt_plan_output(plan, salt, regions);
    int rc = nt_dev_compare(p->dev, p->stream, out - NT_GUARD_BYTES,
                            NT_GUARD_BYTES / plan->elem_bytes, &poison, err);
    if (rc == 0) {
        rc = nt_dev_compare(p->dev, p->stream, out + plan->cs.bytes, after / plan->elem_bytes,
                            &poison, err);
    }
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        const struct nt_region *r = &regions[i];
        rc = nt_dev_compare(p->dev, p->stream, (r->in ? in : out) + r->at_bytes, r->count,
                            &r->pattern, err);
    }
    return rc;
}
