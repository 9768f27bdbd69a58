/* Exploration: which executed tuples there are, by a short look at each call that may differ. */
#include "profiles/format/limits.h"
#include "tuner/job/plan_i.h"

#include <math.h>

/* Channels asked for; 0 is NCCL's own count. A rung above what is executed ends the ladder. */
static const uint16_t ladder[] = {0, 1, 2, 4, 8, 16, 24, 32, 48, 64};
enum { RUNGS = sizeof(ladder) / sizeof(ladder[0]), COMBOS = NT_ALGO_COUNT * NT_PROTO_COUNT };
enum {
    MAX_HANGS = 2
}; /* of one algorithm and protocol in a job, before it is left alone everywhere */
/* How far behind Simple, in one size, a protocol is that a larger size need not see with all its
 * counts of channels: there NCCL's own shows whether it came back. */
static const double OUTGROWN = 1.6;

static bool combo_is_worth(struct nt_plan *p, uint32_t setting, uint32_t point, int algo, int proto)
{
    const struct cell *asis = p->settings[0].cells != NULL ? &p->settings[0].cells[point] : NULL;
    double best = INFINITY, leader = 0;

    if (p->hangs[algo][proto] >= MAX_HANGS) {
        return false;
    }
    if (setting == 0 || asis == NULL || !asis->explored) {
        return true;
    }
    for (uint32_t k = 0; k < p->nmodes;
         k++) { /* what was far behind as is does not come back by more channels */
        double se;
        best = INFINITY;
        leader = 0;
        for (uint32_t i = 0; i < asis->narms; i++) {
            double e = search_effect(p, 0, point, p->modes[k], i, &se);
            leader = e < leader ? e : leader;
            if (asis->arms[i].executed.algo == algo && asis->arms[i].executed.proto == proto &&
                e < best) {
                best = e;
            }
        }
        if (best < leader + log(1.25)) {
            return true;
        }
    }
    return isinf(best);
}

static bool channels_known(const struct cell *c, int algo, int proto, uint16_t channels)
{
    for (uint32_t i = 0; i < c->narms; i++) {
        const struct nt_executed *x = &c->arms[i].executed;
        if (x->algo == algo && x->proto == proto && x->channels == channels) {
            return true;
        }
    }
    return false;
}

/* LL and LL128 pay bandwidth for latency: once they are far behind Simple, they are likely to be at
 * larger sizes. */
static bool outgrown(const struct nt_plan *p, uint32_t setting, uint32_t point, int algo, int proto)
{
    const struct cell *below = point > 0 && p->points[point - 1].coll == p->points[point].coll
                                   ? &p->settings[setting].cells[point - 1]
                                   : NULL;
    double best = INFINITY, mine = INFINITY;
    int leader = NT_LL;

    if (below == NULL || !below->explored || proto == NT_SIMPLE) {
        return false;
    }
    if (below->outgrown[algo][proto]) {
        return true;
    }
    for (uint32_t i = 0; i < below->narms; i++) {
        const struct arm *a = &below->arms[i];
        if (a->status == NT_ST_OK && a->look_log < best) {
            best = a->look_log;
            leader = a->executed.proto;
        }
        if (a->status == NT_ST_OK && a->executed.algo == algo && a->executed.proto == proto) {
            mine = fmin(mine, a->look_log);
        }
    }
    return leader == NT_SIMPLE && isfinite(mine) && mine > best + log(OUTGROWN);
}

/* The next call to look at, or false. combo 0 is the default, k + 1 the k-th of algorithm ×
 * protocol. */
static bool next_call(struct nt_plan *p, uint32_t setting, uint32_t point, struct nt_call *ret)
{
    struct cell *c = &p->settings[setting].cells[point];

    if (c->combo == 0) {
        *ret = NT_CALL_DEFAULT;
        return true;
    }
    for (; c->combo <= COMBOS; c->combo++, c->step = 0) {
        int algo = (int)(c->combo - 1) / NT_PROTO_COUNT,
            proto = (int)(c->combo - 1) % NT_PROTO_COUNT;
        if (!p->points[point].asked || p->points[point].cost[algo][proto] < 0 ||
            c->narms + 1 >= MAX_ARMS || c->ncalls + 1 >= MAX_CALLS ||
            (c->step == 0 && !combo_is_worth(p, setting, point, algo, proto))) {
            continue;
        }
        if (c->step == 0) {
            c->outgrown[algo][proto] = outgrown(p, setting, point, algo, proto);
        }
        for (; c->step < RUNGS; c->step++) {
            /* No row may hold a count that NCCL would take unchecked. */
            if (ladder[c->step] == 0 || (nt_channels_safe(algo, p->spec.nodes) &&
                                         !channels_known(c, algo, proto, ladder[c->step]))) {
                *ret = (struct nt_call){
                    .algo = (int8_t)algo, .proto = (int8_t)proto, .channels = ladder[c->step]};
                return true;
            }
        }
    }
    return false;
}

void explore_look(struct nt_plan *p, enum purpose purpose, uint32_t setting, uint32_t point,
                  const struct nt_call *call)
{
    struct nt_case cs = plan_case(p, point, explore_mode(p));
    double est = plan_default_ns(p, point, explore_mode(p));
    unsigned full = plan_samples(explore_mode(p), est);
    struct todo *t = plan_measure(p, 0, purpose, &cs, *call, est,
                                  purpose == FOR_CHUNK ? full
                                  : est > 3e6          ? 1
                                  : full < 3           ? full
                                                       : 3);

    t->setting = setting;
    t->point = point;
    t->mode = explore_mode(p);
    t->step.m.warmup = 0; /* the read-back and the gate warm it up */
    t->step.m.flags = NT_M_READBACK;
    t->step.m.verify = NT_VERIFY_BEFORE;
}

bool explore_push(struct nt_plan *p, uint32_t setting, uint32_t point)
{
    struct nt_call call;

    if (!next_call(p, setting, point, &call)) {
        return false;
    }
    explore_look(p, FOR_EXPLORE, setting, point, &call);
    return true;
}

uint32_t explore_find(const struct cell *c, const struct nt_executed *x, uint32_t chunk_bytes)
{
    for (uint32_t i = 0; i < c->narms; i++) {
        if (c->arms[i].status == NT_ST_OK && nt_executed_equal(&c->arms[i].executed, x) &&
            c->arms[i].call.chunk_bytes == chunk_bytes) {
            return i;
        }
    }
    return NONE;
}

void explore_failed(struct nt_plan *p, const struct nt_call *call, uint8_t status)
{
    if (call->algo < 0 || status == NT_ST_OK) {
        return;
    }
    if (call->chunk_bytes > 0) {
        chunks_failed(p, call, status);
    } else if (status == NT_ST_TIMEOUT || status == NT_ST_CRASHED) {
        p->hangs[call->algo][call->proto]++;
    }
}

/* Does one look say that what was far behind at a smaller size is so here? */
static bool still_outgrown(struct cell *c, const struct nt_call *call, double look_log)
{
    bool *out = &c->outgrown[call->algo][call->proto];

    *out = *out && look_log > c->arms[0].look_log + log(OUTGROWN);
    return *out;
}

void explore_add(struct nt_plan *p, const struct todo *t, const struct nt_result *r)
{
    const struct setting *s = &p->settings[t->setting];
    struct cell *c = &s->cells[t->point];
    bool ok = r->status == NT_ST_OK;
    struct arm *a = &c->arms[c->narms++];

    *a = (struct arm){.call = t->step.m.call,
                      .executed = ok ? r->executed : NT_EXECUTED_NONE,
                      .status = r->status,
                      .gated = (uint8_t)(1U << t->mode),
                      .look_log = plan_log_median(r),
                      .look_samples = (uint32_t)r->count,
                      .twin = NONE,
                      .own_chunk = r->own_chunk_bytes};
    if (ok && s->by_tuple && p->settings[0].cells != NULL) {
        a->twin = explore_find(&p->settings[0].cells[t->point], &a->executed, a->call.chunk_bytes);
    }
}

void explore_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    struct cell *c = &p->settings[t->setting].cells[t->point];
    const struct nt_result *r = o->result;
    const struct nt_call *call = &t->step.m.call;
    bool ok = r->status == NT_ST_OK;
    uint32_t at = ok && call->algo >= 0 ? explore_find(c, &r->executed, 0) : NONE;

    if (call->algo < 0 && !ok) {
        if (!o->lost) {
            c->hopeless = true; /* the default itself cannot be measured under this setting */
        }
        return;
    }
    if (ok && call->algo < 0 && c->narms > 0) {
        return; /* asked again after a lost gang */
    }
    explore_failed(p, call, r->status);
    if (at == NONE && r->status != NT_ST_UNAVAILABLE && r->status != NT_ST_NOT_RECORDED) {
        at = c->narms;
        explore_add(p, t, r);
    }
    if (at != NONE) {
        c->calls[c->ncalls++] = (struct request){.call = *call, .arm = at};
    }
    if (call->algo < 0) {
        c->combo = 1;
    } else if (r->status == NT_ST_NOT_RECORDED) {
        c->step++; /* of this count of channels; the recording may hold others */
    } else if (!ok || (call->channels > 0 && r->executed.channels < call->channels) ||
               still_outgrown(c, call, plan_log_median(r))) {
        c->combo++; /* not there, broken, no more channels to open, or no better than before */
        c->step = 0;
    } else {
        c->step++;
    }
}
