#include "tests/job/world.h"
#include "tuner/base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.seed = seed,
                        .block_sd = 0.03,
                        .gang_sd = 0.02,
                        .interaction_sd = 0.005,
                        .wrong_algo = -1,
                        .wrong_proto = -1,
                        .row_factor = 1};
}

static float cost(const struct nt_case *cs, int algo, int proto)
{
    double us = 40 + (double)cs->bytes / (algo == NT_RING ? 9000.0 : 5000.0);
    us += algo == NT_RING ? 30 : 0;
    us = proto == NT_LL ? us * 0.4 + (double)cs->bytes / 3500.0 : us;
    return (float)us;
}

static void executed(const struct nt_case *cs, const struct nt_call *call, const char *vars,
                     struct nt_executed *x)
{
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

double world_true_ns(const struct world *w, const struct nt_case *cs, const struct nt_call *call,
                     const char *vars)
{
    struct nt_executed x = {0};
    double ns, b = (double)cs->bytes;

    executed(cs, w->null ? &NT_CALL_DEFAULT : call, vars, &x);
    /* Unlike the estimate, the tree is far better from 16 KiB to 1 MiB. */
    ns = x.algo == NT_TREE ? 60e3 + b * (b > 1048576 ? 0.25 : 0.05) : 90e3 + b * 0.14;
    ns = x.proto == NT_LL ? ns * 0.7 + b * 0.25 : ns;
    ns *= 1 + 0.12 / x.channels + 0.01 * x.channels;
    return cs->mode == NT_EAGER ? ns + 15e3 : ns;
}

static void measure(struct world *w, const struct nt_plan_step *s, struct nt_plan_outcome *o)
{
    const struct nt_measure *m = &s->m;
    struct nt_call call =
        s->arm == NT_ARM_SEARCH || s->arm == NT_ARM_TABLE ? m->call : NT_CALL_DEFAULT;
    struct nt_rng gang, arm, noise;
    double ns;
    bool dirty;

    memset(&w->result, 0, sizeof(w->result));
    w->result.id = m->id;
    w->result.ns = w->ns;
    o->result = &w->result;
    w->measures++;
    executed(&m->cs, &call, s->vars, &w->result.executed);
    dirty = w->result.executed.algo == w->wrong_algo &&
            w->result.executed.proto == w->wrong_proto && m->cs.bytes > w->wrong_above &&
            (!w->wrong_in_place || m->cs.place == NT_IN_PLACE);
    if (call.algo >= 0 && (call.algo > NT_RING || call.proto == NT_LL128)) {
        w->result.status = NT_ST_UNAVAILABLE;
        return;
    }
    if (w->measures == w->hang_at) {
        w->result.status = NT_ST_TIMEOUT;
        o->lost = true;
        o->elapsed_ns = (uint64_t)m->deadline_ms * 1000000;
        return;
    }
    if (m->verify != NT_VERIFY_NO && dirty) {
        w->result.status = NT_ST_WRONG;
        w->result.wrong = 7;
        return;
    }
    nt_rng_seed(&gang, nt_mix(nt_mix(w->seed, s->gang), nt_mix(m->cs.bytes, m->cs.mode)));
    nt_rng_seed(
        &arm, nt_mix(nt_mix(w->seed, s->gang),
                     nt_mix(m->cs.bytes + m->cs.mode, (uint64_t)w->result.executed.algo * 4096 +
                                                          (uint64_t)w->result.executed.proto * 256 +
                                                          w->result.executed.channels)));
    nt_rng_seed(&noise, nt_mix(w->seed, m->id));
    ns = world_true_ns(w, &m->cs, &call, s->vars);
    if (s->arm == NT_ARM_TABLE && call.algo >= 0) {
        ns = ns * w->row_factor +
             (1 - w->row_factor) * world_true_ns(w, &m->cs, &NT_CALL_DEFAULT, s->vars);
    }
    ns *= exp(w->gang_sd * nt_rng_normal(&gang) + w->interaction_sd * nt_rng_normal(&arm) +
              w->block_sd * nt_rng_normal(&noise));
    for (unsigned i = 0; i < m->samples; i++) {
        w->ns[i] = (uint32_t)(ns * exp(0.02 * nt_rng_normal(&noise)));
    }
    w->result.count = m->samples;
    o->elapsed_ns =
        (uint64_t)(ns * (m->samples + m->warmup + (m->verify != 0) + (m->flags & 1)) * m->inner +
                   5e5);
}

void world_do(struct world *w, const struct nt_plan_step *s, struct nt_plan_outcome *o)
{
    memset(o, 0, sizeof(*o));
    w->steps++;
    switch (s->kind) {
    case NT_DO_START:
        o->elapsed_ns = 1700000000;
        break;
    case NT_DO_STOP:
        o->elapsed_ns = 0;
        break;
    case NT_DO_CELLS:
        o->cells.cs = s->cs;
        o->cells.asked = true;
        for (int a = 0; a < NT_ALGO_COUNT; a++) {
            for (int k = 0; k < NT_PROTO_COUNT; k++) {
                o->cells.cost[a][k] = a <= NT_RING && k != NT_LL128 ? cost(&s->cs, a, k) : -1.0F;
            }
        }
        o->elapsed_ns = 200000;
        break;
    default:
        measure(w, s, o);
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
        world_do(w, &s, &o);
        if (getenv("WORLD_TRACE")) {
            char t[80], u[40];
            printf("%llu %d stage %d %s %s v%d f%x n%u gang %llu\n", (unsigned long long)s.seq,
                   s.kind, s.stage, nt_case_text(&s.cs, t, 80), nt_call_text(&s.m.call, u, 40),
                   s.m.verify, s.m.flags, s.m.samples, (unsigned long long)s.gang);
        }
        rc = nt_plan_tell(p, &o, err);
        if (rc != 0) {
            return rc;
        }
    }
}
