#include "tests/job/world.h"
#include "tuner/base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){
        .seed = seed, .block_sd = 0.03, .gang_sd = 0.02, .interaction_sd = 0.005, .row_factor = 1};
}

/* NCCL's own estimate, µs. */
static float cost(const struct nt_case *cs, int algo, int proto)
{
    double us = 40 + (double)cs->bytes / (algo == NT_RING ? 9000.0 : 5000.0);
    us += algo == NT_RING ? 30 : 0;
    us = proto == NT_LL ? us * 0.4 + (double)cs->bytes / 3500.0 : us;
    return (float)us;
}

/* Time of what is not NCCL's own path, ns and ns a byte; those of the framework's probe too. */
static const struct speed {
    double start, byte;
} speeds[NT_BACKEND_COUNT][2] = {
    [NT_BE_NCCL_SYMMETRIC] = {{40e3, 0.06}},   [NT_BE_IPC] = {{15e3, 0.4}, {30e3, 0.08}},
    [NT_BE_HOST] = {{150e3, 4}, {300e3, 0.8}}, [NT_BE_TORCH_SYMM_MEM] = {{18e3, 0.4}, {33e3, 0.08}},
    [NT_BE_CUSTOM_ALL_REDUCE] = {{17e3, 0.4}}, [NT_BE_FLASHINFER] = {{10e3, 0.5}},
    [NT_BE_MSCCLPP] = {{25e3, 0.04}}};

/* Backends that are not NCCL's own path. */
static bool own_kernel(const struct nt_call *c)
{
    return speeds[c->backend][0].start > 0;
}

static bool there(const struct world *w, uint8_t backend)
{
    return backend == NT_BE_NCCL || (nt_backends[backend].probe[0] == 'f') == w->framework;
}

void world_executed(const struct nt_case *cs, const struct nt_call *call, const char *vars,
                    struct nt_executed *x)
{
    if (call->backend == NT_BE_NCCL_SYMMETRIC) {
        *x = (struct nt_executed){.algo = NT_SYMMETRIC, .proto = NT_WINDOW};
        return;
    }
    if (own_kernel(call)) {
        *x = (struct nt_executed){.algo = call->algo,
                                  .proto = call->proto,
                                  .channels = call->channels > 0 ? call->channels : 32,
                                  .warps = 16};
        if (call->algo < 0) {
            *x = NT_EXECUTED_NONE; /* a framework's class does not tell */
        }
        return;
    }
    uint16_t open = strstr(vars, "NCHANNELS=16") != NULL ? 16 : 2;
    uint16_t useful = cs->bytes < 4096 ? 1 : open;

    if (call->algo < 0) {
        float least = INFINITY;
        for (int a = 0; a < 2; a++) {
            for (int k = 0; k < 3; k += 2) {
                if (cost(cs, a, k) < least) {
                    least = cost(cs, a, k);
                    x->algo = (int8_t)a;
                    x->proto = (int8_t)k;
                }
            }
        }
    } else {
        x->algo = call->algo;
        x->proto = call->proto;
    }
    x->channels = call->channels > 0 && call->channels < useful ? call->channels : useful;
    x->warps = 16;
}

static double by_chunk(const struct world *w, const struct nt_case *cs, const struct nt_executed *x,
                       uint32_t chunk)
{
    if (w->own_chunk == 0 || chunk == 0 || chunk >= w->own_chunk || x->algo != NT_RING ||
        cs->bytes < (512U << 10)) {
        return 1;
    }
    return chunk >= w->own_chunk / 2 ? 0.8 : chunk >= w->own_chunk / 4 ? 0.6 : 0.9;
}

double world_true_ns(const struct world *w, const struct nt_case *cs, const struct nt_call *call,
                     const char *vars)
{
    struct nt_executed x = {0};
    double ns, b = (double)cs->bytes;

    if (own_kernel(call) && !w->null) {
        const struct speed *v = &speeds[call->backend][call->algo == NT_TWO_SHOT];
        ns = v->start + b * v->byte;
        ns *= call->proto == NT_PULL ? 1.2 : 1;
        return cs->mode == NT_EAGER ? ns + 15e3 : ns;
    }
    world_executed(cs, w->null ? &NT_CALL_DEFAULT : call, w->null ? "" : vars, &x);
    /* Unlike the estimate, the tree is far better from 16 KiB to 1 MiB. */
    ns = x.algo == NT_TREE ? 60e3 + b * (b > 1048576 ? 0.25 : 0.05) : 90e3 + b * 0.14;
    ns = x.proto == NT_LL ? ns * 0.7 + b * 0.25 : ns;
    ns *= 1 + 0.12 / x.channels + 0.01 * x.channels;
    ns *= w->null ? 1 : by_chunk(w, cs, &x, call->chunk_bytes);
    return cs->mode == NT_EAGER ? ns + 15e3 : ns;
}

/* What a call asks for in its arm: the tuner of the search, the rows of a table, nothing. */
static struct nt_call asked(const struct world *w, const struct nt_plan_step *s)
{
    if (s->arm == NT_ARM_SEARCH || s->arm == NT_ARM_BACKENDS) {
        return s->m.call;
    }
    /* The delivered plugin leaves a row alone whose chunk it cannot tell. */
    for (size_t i = 0; s->arm == NT_ARM_TABLE && i < w->nrows; i++) {
        const struct nt_row_result *r = &w->rows[i];
        if (r->coll == s->m.cs.coll && s->m.cs.bytes >= r->min_bytes &&
            s->m.cs.bytes <= r->max_bytes && (r->call.chunk_bytes == 0 || w->own_chunk > 0)) {
            return r->call;
        }
    }
    return NT_CALL_DEFAULT;
}

static double noise_log(const struct world *w, const struct world_call *c, struct nt_rng *noise)
{
    const struct nt_case *cs = &c->step->m.cs;
    uint64_t gang_key = nt_mix(w->seed, c->step->gang), case_key = nt_mix(cs->bytes, cs->mode);
    uint64_t arm_key =
        (uint64_t)c->x.algo * 4096 + (uint64_t)c->x.proto * 256 + (w->null ? 0 : c->x.channels);
    struct nt_rng gang, arm;

    nt_rng_seed(&gang, nt_mix(gang_key, case_key));
    nt_rng_seed(&arm, nt_mix(gang_key, nt_mix(cs->bytes + cs->mode, arm_key)));
    return w->gang_sd * nt_rng_normal(&gang) + w->interaction_sd * nt_rng_normal(&arm) +
           w->block_sd * nt_rng_normal(noise);
}

static void time_it(struct world *w, const struct world_call *c, struct nt_plan_outcome *o)
{
    const struct nt_measure *m = &c->step->m;
    double ns = world_true_ns(w, &m->cs, &c->call, c->step->vars);
    struct nt_rng noise;

    nt_rng_seed(&noise, nt_mix(w->seed, m->id));
    if (c->step->arm == NT_ARM_TABLE && c->call.algo >= 0) {
        ns = ns * w->row_factor +
             (1 - w->row_factor) * world_true_ns(w, &m->cs, &NT_CALL_DEFAULT, c->step->vars);
    }
    if ((m->flags & NT_M_CONTROL) != 0) {
        ns = m->flags & NT_M_COPY ? 45e3 : 5e3;
    }
    ns *= m->flags & NT_M_GROUP8 ? 6 : m->flags & NT_M_BARRIER ? 2 : 1;
    ns *= (w->factor != NULL ? w->factor(c) : 1) * exp(noise_log(w, c, &noise));
    for (unsigned i = 0; i < m->samples; i++) {
        w->ns[i] = (uint32_t)(ns * exp(0.02 * nt_rng_normal(&noise)));
        if (w->backend_tail_share > 0 && c->call.backend != NT_BE_NCCL &&
            nt_rng_unit(&noise) < w->backend_tail_share) {
            w->ns[i] *= 6;
        }
        if (w->tail_share > 0 && c->step->arm == NT_ARM_TABLE &&
            (w->tail_every == 0 || c->step->gang % w->tail_every == 0) &&
            nt_rng_unit(&noise) < w->tail_share) {
            w->ns[i] *= 3;
        }
    }
    w->result.count = m->samples;
    o->elapsed_ns = (uint64_t)(ns *
                                   (m->samples + m->warmup + (m->verify != NT_VERIFY_NO) +
                                    (m->flags & NT_M_READBACK)) *
                                   m->inner +
                               5e5) +
                    (c->call.backend != NT_BE_NCCL ? w->backend_beside_ns : 0) +
                    ((c->step->m.flags & NT_M_BUSY) != 0 ? w->product_ns : 0);
}

static bool exists(const struct world *w, const struct nt_case *cs)
{
    return (cs->place == NT_OUT_OF_PLACE || nt_coll_in_place((enum nt_coll)cs->coll)) &&
           !(w->no_fp8 && cs->dtype == NT_FP8);
}

static uint8_t bits_of(const struct world *w, const struct nt_measure *m,
                       const struct nt_call *call)
{
    bool other = w->other_bits.dtype != 0 && m->cs.mode == w->other_bits.mode &&
                 m->cs.dtype == w->other_bits.dtype;

    if ((m->flags & NT_M_BITS) == 0) {
        return NT_BITS_UNKNOWN;
    }
    return other || nt_backends[call->backend].numerics != 0 ? NT_BITS_DIFFERENT : NT_BITS_SAME;
}

static void measure(struct world *w, const struct nt_plan_step *s, struct nt_plan_outcome *o)
{
    const struct nt_measure *m = &s->m;
    struct world_call c = {.step = s, .call = asked(w, s), .measure = ++w->measures};
    struct nt_result *r = &w->result;

    *r = (struct nt_result){.id = m->id, .ns = w->ns, .executed = NT_EXECUTED_NONE};
    o->result = r;
    world_executed(&m->cs, &c.call, s->vars, &c.x);
    if (w->measures == w->hang_at) {
        w->hung = *s;
        w->hung.vars = NULL;
        r->status = NT_ST_TIMEOUT;
    } else if (!there(w, c.call.backend)) {
        r->status = NT_ST_UNAVAILABLE;
        (void)snprintf(r->error, sizeof(r->error), "%s",
                       w->framework ? "measured by another program" : "no framework here");
    } else if (own_kernel(&c.call)) {
        r->status = w->fault != NULL ? w->fault(&c) : NT_ST_OK;
        r->bits = bits_of(w, m, &c.call);
    } else if (!exists(w, &m->cs) || c.call.algo > NT_RING ||
               (c.call.algo >= 0 && (c.call.proto == NT_LL128 || m->cs.coll >= NT_TUNER_COLLS)) ||
               (c.call.chunk_bytes > 0 && w->own_chunk == 0)) {
        r->status = NT_ST_UNAVAILABLE;
    } else if (w->fault != NULL) {
        r->status = w->fault(&c);
    }
    r->wrong = r->status == NT_ST_WRONG ? 7 : 0;
    o->lost = r->status == NT_ST_TIMEOUT || r->status == NT_ST_CRASHED || r->status == NT_ST_ERROR;
    if (r->status == NT_ST_OK) {
        r->executed = m->cs.coll < NT_TUNER_COLLS ? c.x : NT_EXECUTED_NONE;
        r->own_chunk_bytes = m->cs.coll < NT_TUNER_COLLS ? w->own_chunk : 0;
        time_it(w, &c, o);
    } else if (r->status == NT_ST_TIMEOUT) {
        o->elapsed_ns = (uint64_t)m->deadline_ms * 1000000;
    }
}

static void start(struct world *w, const struct nt_plan_step *s, struct nt_plan_outcome *o)
{
    o->elapsed_ns = 1700000000;
    for (size_t i = 0; i < s->ngangs; i++) {
        o->gangs[i].memory_bytes = UINT64_C(300) << 20;
        o->gangs[i].status =
            w->start != NULL ? w->start(&s->gangs[i], &o->gangs[i].memory_bytes) : NT_ST_OK;
    }
}

static void cells(const struct nt_plan_step *s, struct nt_plan_outcome *o)
{
    o->cells = (struct nt_cells){.cs = s->cs, .asked = s->cs.coll < NT_TUNER_COLLS};
    for (int a = 0; a < NT_ALGO_COUNT; a++) {
        for (int k = 0; k < NT_PROTO_COUNT; k++) {
            bool has = o->cells.asked && a <= NT_RING && k != NT_LL128;
            o->cells.cost[a][k] = has ? cost(&s->cs, a, k) : -1.0F;
        }
    }
}

void world_do(struct world *w, const struct nt_plan_step *s, struct nt_plan_outcome *o)
{
    memset(o, 0, sizeof(*o));
    w->steps++;
    switch (s->kind) {
    case NT_DO_START:
        start(w, s, o);
        break;
    case NT_DO_CELLS:
        cells(s, o);
        break;
    case NT_DO_MEASURE:
        measure(w, s, o);
        break;
    default:
        break;
    }
    w->clock_ns += o->elapsed_ns;
}

int world_run(struct world *w, struct nt_plan *p, struct nt_err *err)
{
    for (;;) {
        struct nt_plan_step s;
        struct nt_plan_outcome o;
        int rc = nt_plan_next(p, &s, err);
        if (rc != 0 || s.kind == NT_DO_FINISHED) {
            return rc;
        }
        w->rows = nt_plan_rows(p, &w->nrows);
        world_do(w, &s, &o);
        rc = nt_plan_tell(p, &o, err);
        if (rc != 0) {
            return rc;
        }
    }
}
