/* What the machine does without NCCL: beside it a change of NCCL's times can be judged. */
#include <stdio.h>
#include <stdlib.h>
#include "probes/nccl/probe.h"

enum { CONTROL_DEADLINE_MS = 20000 };

static int put(struct nt_probe *p, const struct nt_measure *m, const struct nt_slots *slots,
               unsigned slot, struct nt_err *err)
{
    return (m->flags & NT_M_COPY) != 0
               ? nt_dev_copy(p->dev, nt_slot_out(slots, slot), p->dev, nt_slot_in(slots, slot),
                             m->cs.bytes, p->stream, err)
               : nt_dev_tick(p->dev, p->stream, err);
}

/* The host's clock, as for an eager call. */
static int run_iteration(struct nt_probe *p, const struct nt_measure *m,
                         const struct nt_slots *slots, unsigned iteration, uint64_t *ret_ns,
                         struct nt_err *err)
{
    unsigned inner = m->inner > 0 ? m->inner : 1;
    uint64_t begin = nt_now_ns();
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < inner; i++) {
        rc = put(p, m, slots, iteration * inner + i, err);
    }
    if (rc == 0) {
        rc = nt_stream_sync(p->stream, err);
    }
    *ret_ns = (nt_now_ns() - begin) / inner;
    return rc;
}

static int prepare(struct nt_probe *p, const struct nt_measure *m, struct nt_slots *slots,
                   struct nt_result *ret, struct nt_err *err)
{
    int rc;

    if (p->broken[0] != '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "an earlier trial failed: %s", p->broken);
    }
    rc = nt_pool_cut(&p->pool, m->cs.bytes, 2, slots, err);
    ret->ns = calloc(m->samples + 1U, sizeof(ret->ns[0]));
    return rc == 0 && ret->ns == NULL ? nt_fail(err, NT_E_NOMEM, 0, "%u samples", m->samples) : rc;
}

static int run_control(struct nt_probe *p, const struct nt_measure *m, const struct nt_slots *slots,
                       struct nt_result *ret, struct nt_err *err)
{
    uint64_t deadline =
        nt_now_ns() + 1000000ULL * (m->deadline_ms > 0 ? m->deadline_ms : CONTROL_DEADLINE_MS);
    int rc = 0;

    nt_cpu_stay(&p->cpu);
    for (unsigned i = 0; rc == 0 && i < m->warmup + m->samples; i++) {
        uint32_t worst = 0;
        uint64_t ns = 0;
        rc = nt_probe_meet(p, 0, deadline, &worst, err);
        rc = rc == 0 ? run_iteration(p, m, slots, i, &ns, err) : rc;
        if (rc == 0 && i >= m->warmup) {
            ret->ns[ret->count++] = ns > UINT32_MAX ? UINT32_MAX : ns > 0 ? (uint32_t)ns : 1;
        }
    }
    nt_cpu_roam(&p->cpu);
    return rc;
}

void nt_control(struct nt_probe *p, const struct nt_measure *m, struct nt_result *ret)
{
    struct nt_err err = {0};
    struct nt_slots slots;
    uint64_t begin = nt_now_ns();
    int rc;

    *ret = (struct nt_result){.id = m->id, .status = NT_ST_OK, .executed = NT_EXECUTED_NONE};
    rc = prepare(p, m, &slots, ret, &err);
    if (rc == 0) {
        rc = run_control(p, m, &slots, ret, &err);
        if (rc != 0) { /* the others must not wait for this rank */
            nt_barrier_leave(&p->barrier);
            (void)snprintf(p->broken, sizeof(p->broken), "%.*s", (int)sizeof(p->broken) - 1,
                           err.msg);
        }
    }
    if (rc != 0) {
        ret->status = rc == -NT_E_INTERRUPTED ? NT_ST_TIMEOUT : NT_ST_ERROR;
        ret->count = 0;
        (void)snprintf(ret->error, sizeof(ret->error), "%.*s", (int)sizeof(ret->error) - 1,
                       err.msg);
    }
    ret->memory_bytes = nt_probe_memory(p);
    ret->elapsed_ns = nt_now_ns() - begin;
}
