#include "tuner/job/record.h"
#include "tuner/base/rng.h"
#include "tuner/search/compose.h"
#include "tuner/stats/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SATURATED = 2 << 20 };
enum { LEAST_GANGS = 4, MAX_TUPLES = 64, SIDE_BY_SIDE = NT_PLAN_GANGS, MAX_LOSSES = 4 };
static const double LEADS = 1.25; /* a tuple this near to the best of its case is a leader */
static const double BEHIND = 1.4; /* one this far behind gets the least samples */
/* How far behind the best a tuple may be that rounds 2 to 4 still measure: the first that fits. */
static const double CUTS[] = {INFINITY, 4, 2, BEHIND, LEADS};
enum { CUTS_COUNT = sizeof(CUTS) / sizeof(CUTS[0]) };
/* Where time is short: the default and tuples this near to the best stand for the leaders in place
 * and at edges, and no channels are counted of an algorithm that is this far behind with NCCL's. */
static const double FRONT = 1.12, HOPELESS = 4;
static const double EXTRAS = 1.6; /* time in place and at the edge, in that at the size proper */
static const double EXPLORING = 0.25; /* of the budget, at most: three more gangs of what leads
                                          are worth more than large sizes */
static const uint16_t ladder[] = {0, 1, 2, 4, 8, 16, 24, 32, 48, 64};
enum { RUNGS = sizeof(ladder) / sizeof(ladder[0]), COMBOS = NT_ALGO_COUNT * NT_PROTO_COUNT };

struct tuple {
    struct nt_call call;
    struct nt_executed executed;
    double sum[NT_MODE_COUNT]; /* of log medians */
    uint32_t n[NT_MODE_COUNT];
    float spent_ns[NT_MODE_COUNT]; /* by its last block at the size proper */
    bool out;
};
struct spot { /* one size under one setting */
    struct tuple tuples[MAX_TUPLES];
    uint32_t n, combo, step;
    bool explored;
    float cost[NT_ALGO_COUNT][NT_PROTO_COUNT];
    bool asked, costed;
};
struct job {
    struct nt_plan_step step;
    uint32_t setting, point, tuple;
    bool explores, extra;
};

struct nt_record {
    struct nt_spec spec;
    struct nt_rng rng;
    unsigned rounds, round;
    size_t group; /* first setting of the gangs that are alive */
    uint64_t gang, seq, held_ns, starts_ns, blocks, tuples;
    uint32_t npoints, nmodes, losses, unexplored;
    double cut; /* one of CUTS */
    enum nt_mode modes[NT_MODE_COUNT];
    uint32_t ncolls;
    /* The points: size by size, each with all collectives, so that a budget which ends in between
     * is spent on all of them alike. */
    uint8_t coll[NT_COLL_COUNT * NT_MAX_SIZES];
    uint64_t bytes[NT_COLL_COUNT * NT_MAX_SIZES];
    struct spot *spots; /* [setting * npoints + point] */
    struct nt_plan_gang live[SIDE_BY_SIDE];
    size_t nlive;
    struct job *queue;
    size_t head, tail, cap;
    bool extras; /* this round goes to in place and edges too */
    bool filled, ends_round, done;
    enum nt_dtype dtype;
    struct nt_err failed;
};

int nt_record_new(const struct nt_spec *spec, unsigned gangs, uint64_t first_gang,
                  struct nt_record **ret, struct nt_err *err)
{
    struct nt_record *r = calloc(1, sizeof(*r));

    if (r == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "record");
    }
    r->spec = *spec;
    r->rounds = gangs < LEAST_GANGS ? LEAST_GANGS : gangs;
    r->gang = first_gang - 1;
    r->cut = CUTS[0];
    nt_rng_seed(&r->rng, spec->seed);
    for (int c = 0; c < NT_COLL_COUNT; c++) {
        r->ncolls += spec->colls[c];
    }
    for (size_t i = 0; i < spec->nsizes; i++) {
        for (int c = 0; c < NT_COLL_COUNT; c++) {
            if (spec->colls[c]) {
                r->coll[r->npoints] = (uint8_t)c;
                r->bytes[r->npoints++] = spec->sizes[i];
            }
        }
    }
    for (int m = 0; m < NT_MODE_COUNT; m++) {
        if (spec->modes[m]) {
            r->modes[r->nmodes++] = (enum nt_mode)m;
        }
    }
    r->dtype = spec->raced_dtype;
    r->spots = calloc((size_t)r->npoints * spec->nsettings, sizeof(r->spots[0]));
    if (r->spots == NULL) {
        nt_record_free(r);
        return nt_fail(err, NT_E_NOMEM, 0, "record");
    }
    *ret = r;
    return 0;
}

void nt_record_free(struct nt_record *r)
{
    if (r != NULL) {
        free(r->spots);
        free(r->queue);
        free(r);
    }
}

static struct job *push(struct nt_record *r, enum nt_do kind)
{
    static struct job scratch;
    struct job *j;

    if (r->tail == r->cap) {
        size_t cap = r->cap == 0 ? 1024 : r->cap * 2;
        struct job *grown = realloc(r->queue, cap * sizeof(*grown));
        if (grown == NULL) {
            (void)nt_fail(&r->failed, NT_E_NOMEM, 0, "record");
            return &scratch;
        }
        r->queue = grown;
        r->cap = cap;
    }
    j = &r->queue[r->tail++];
    *j = (struct job){.step = {.kind = kind, .stage = NT_RACE, .arm = NT_ARM_SEARCH}};
    return j;
}

static size_t group_size(const struct nt_record *r)
{
    size_t left = r->spec.nsettings - r->group;
    return left < SIDE_BY_SIDE ? left : SIDE_BY_SIDE;
}

static struct spot *spot_of(struct nt_record *r, uint32_t setting, uint32_t point)
{
    return &r->spots[(size_t)setting * r->npoints + point];
}

static double est_ns(const struct tuple *t, enum nt_mode m)
{
    return t->n[m] > 0 ? exp(t->sum[m] / t->n[m]) : NAN;
}

static double best_ns(const struct spot *s, enum nt_mode m)
{
    double best = INFINITY;
    for (uint32_t i = 0; i < s->n; i++) {
        double x = est_ns(&s->tuples[i], m);
        best = x < best ? x : best;
    }
    return best;
}

/* ------------------------------------------------------------------ blocks */

static bool in_haste(const struct nt_record *r)
{
    return r->spec.budget_ns > 0;
}

static unsigned inner_of(enum nt_mode m, double est)
{
    return m == NT_EAGER ? 1
           : est < 50e3  ? 20
           : est < 300e3 ? 10
           : est < 1e6   ? 4
           : est < 4e6   ? 2
                         : 1;
}

static void push_block(struct nt_record *r, uint32_t setting, uint32_t point, uint32_t tuple,
                       enum nt_mode m, enum nt_place place, uint64_t bytes)
{
    const struct spot *s = spot_of(r, setting, point);
    const struct tuple *t = &s->tuples[tuple];
    double est = est_ns(t, m), best = best_ns(s, m), each;
    bool behind;
    struct job *j = push(r, NT_DO_MEASURE);
    struct nt_measure *q = &j->step.m;

    est = isnan(est) ? est_ns(t, r->modes[0]) : est;
    best = isfinite(best) ? best : best_ns(s, r->modes[0]);
    est = isnan(est) ? 1e6 : est;
    j->setting = setting;
    j->point = point;
    j->tuple = tuple;
    j->extra = place != NT_OUT_OF_PLACE || bytes != r->bytes[point];
    j->step.gang = r->live[setting - r->group].number;
    j->step.vars = r->spec.settings[setting];
    q->cs = (struct nt_case){.coll = r->coll[point],
                             .bytes = bytes,
                             .dtype = (uint8_t)r->dtype,
                             .place = (uint8_t)place,
                             .mode = (uint8_t)m};
    j->step.cs = q->cs;
    q->call = t->call;
    behind = isfinite(best) && est > best * BEHIND;
    q->inner = inner_of(m, isfinite(best) && !behind ? best : est);
    each = est * q->inner;
    q->samples = each > 20e6 ? 3 : each > 4e6 || (in_haste(r) && m == NT_GRAPH) ? 5 : 8;
    if (behind) { /* it decides nothing */
        q->samples = each > 8e6 ? 1 : 3;
    }
    q->warmup = each > 8e6 && (t->n[m] > 0 || behind) ? 0 : 1;
    q->flags = r->round == 0 || j->extra ? NT_M_READBACK : 0;
    q->verify = r->round == 0 && !(behind && each > 8e6) ? NT_VERIFY_BEFORE : NT_VERIFY_NO;
    q->deadline_ms = 6000 + (uint32_t)(each * 1e-6 * (q->samples + 3) * 10);
}

/* The last size below the middle to the next one that every rank can divide. */
static uint64_t edge_above(const struct nt_record *r, uint32_t point)
{
    uint64_t grain = UINT64_C(4) * r->spec.ranks, mid;
    if (point + r->ncolls >= r->npoints) {
        return 0;
    }
    mid = nt_compose_midpoint(r->bytes[point], r->bytes[point + r->ncolls]);
    return mid / grain * grain;
}

/* A leader of either mode serves both, so it is recorded in both; and so is the default. */
static bool within(const struct nt_record *r, const struct spot *s, uint32_t tuple, double factor)
{
    for (uint32_t k = 0; k < r->nmodes; k++) {
        if (est_ns(&s->tuples[tuple], r->modes[k]) <= best_ns(s, r->modes[k]) * factor) {
            return true;
        }
    }
    return tuple == 0;
}

static bool gets_extras(const struct nt_record *r, const struct spot *s, uint32_t tuple)
{
    return r->extras && within(r, s, tuple, in_haste(r) ? FRONT : LEADS);
}

/* A round in haste, which may be cut off: what leads, what leads in place and at edges, the rest.
 */
enum part { LEADERS, ELSEWHERE, REST, PARTS, WHOLE };

static void push_spot(struct nt_record *r, uint32_t setting, uint32_t point, enum part part)
{
    struct spot *s = spot_of(r, setting, point);
    uint64_t edge = edge_above(r, point);

    for (uint32_t i = 0; i < s->n; i++) {
        bool lead = within(r, s, i, LEADS);
        bool wanted = lead || r->round == 0 || (r->round < LEAST_GANGS && within(r, s, i, r->cut));
        bool extras = gets_extras(r, s, i) && (part == WHOLE || part == ELSEWHERE);
        wanted = wanted && (part == WHOLE || part == (lead ? LEADERS : REST));
        for (uint32_t k = 0; k < r->nmodes && !s->tuples[i].out; k++) {
            enum nt_mode m = r->modes[k];
            if (wanted) {
                push_block(r, setting, point, i, m, NT_OUT_OF_PLACE, r->bytes[point]);
            }
            if (extras && r->spec.places[NT_IN_PLACE]) {
                push_block(r, setting, point, i, m, NT_IN_PLACE, r->bytes[point]);
            }
            if (extras && edge > r->bytes[point]) {
                push_block(r, setting, point, i, m, NT_OUT_OF_PLACE, edge);
            }
        }
    }
}

/* ------------------------------------------------------------------ exploration */

static bool have_channels(const struct spot *s, int algo, int proto, uint16_t channels)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const struct nt_executed *x = &s->tuples[i].executed;
        if (x->algo == algo && x->proto == proto && x->channels == channels) {
            return true;
        }
    }
    return false;
}

static bool next_call(const struct spot *s, uint32_t *combo, uint32_t *step, struct nt_call *ret)
{
    if (*combo == 0) {
        *ret = NT_CALL_DEFAULT;
        return true;
    }
    for (; *combo <= COMBOS && s->n + 1 < MAX_TUPLES; (*combo)++, *step = 0) {
        int algo = (int)(*combo - 1) / NT_PROTO_COUNT, proto = (int)(*combo - 1) % NT_PROTO_COUNT;
        for (; s->asked && s->cost[algo][proto] >= 0 && *step < RUNGS; (*step)++) {
            if (ladder[*step] == 0 || !have_channels(s, algo, proto, ladder[*step])) {
                *ret = (struct nt_call){
                    .algo = (int8_t)algo, .proto = (int8_t)proto, .channels = ladder[*step]};
                return true;
            }
        }
    }
    return false;
}

/* Above SATURATED bytes every channel is used that a call may use: the tuples are those of the size
 * below. The first timed block of each reads back what it really is. */
static void copy_tuples(struct nt_record *r, struct spot *s, const struct spot *below)
{
    for (uint32_t i = 0; i < below->n; i++) {
        s->tuples[i] =
            (struct tuple){.call = below->tuples[i].call, .executed = below->tuples[i].executed};
        for (uint32_t k = 0; k < r->nmodes && below->tuples[i].n[r->modes[k]] > 0; k++) {
            /* A first idea: twice the bytes, twice the time. */
            s->tuples[i].sum[r->modes[k]] = log(2 * est_ns(&below->tuples[i], r->modes[k]));
            s->tuples[i].n[r->modes[k]] = 1;
        }
    }
    s->n = below->n;
    s->explored = true;
    r->tuples += s->n;
}

/* The budget has no time for more: what is not explored by now is left out under this setting. */
static bool explored_enough(const struct nt_record *r)
{
    double share = (double)(r->group + group_size(r)) / (double)r->spec.nsettings;
    return in_haste(r) && (double)r->held_ns > (double)r->spec.budget_ns * EXPLORING * share;
}

/* One question of the exploration of a live setting; false: all its sizes are explored. */
static bool push_explore(struct nt_record *r)
{
    for (uint32_t point = 0; point < r->npoints; point++) {
        for (uint32_t setting = (uint32_t)r->group; setting < r->group + group_size(r); setting++) {
            struct spot *s = spot_of(r, setting, point);
            struct nt_call call;
            struct job *j;
            if (s->explored) {
                continue;
            }
            if (explored_enough(r)) {
                r->unexplored++;
                s->explored = true;
                r->tuples += s->n;
                continue;
            }
            if (s->costed && r->bytes[point] > SATURATED && point >= r->ncolls &&
                spot_of(r, setting, point - r->ncolls)->n > 0) {
                copy_tuples(r, s, spot_of(r, setting, point - r->ncolls));
                continue;
            }
            if (s->costed && !next_call(s, &s->combo, &s->step, &call)) {
                s->explored = true;
                r->tuples += s->n;
                continue;
            }
            j = push(r, s->costed ? NT_DO_MEASURE : NT_DO_CELLS);
            j->setting = setting;
            j->point = point;
            j->explores = true;
            j->step.gang = r->live[setting - r->group].number;
            j->step.vars = r->spec.settings[setting];
            j->step.cs = (struct nt_case){.coll = r->coll[point],
                                          .bytes = r->bytes[point],
                                          .dtype = (uint8_t)r->dtype,
                                          .mode = (uint8_t)r->modes[0]};
            if (s->costed) {
                j->step.m = (struct nt_measure){.cs = j->step.cs,
                                                .call = call,
                                                .samples = 1,
                                                .inner = inner_of(r->modes[0], 1e6),
                                                .flags = NT_M_READBACK,
                                                .verify = NT_VERIFY_BEFORE,
                                                .deadline_ms = 8000};
            }
            return true;
        }
    }
    return false;
}

static void tell_explore(struct nt_record *r, const struct job *j, const struct nt_plan_outcome *o)
{
    struct spot *s = spot_of(r, j->setting, j->point);
    const struct nt_result *x = o->result;
    const struct nt_call *call = &j->step.m.call;
    bool ok, known = false;

    if (j->step.kind == NT_DO_CELLS) {
        memcpy(s->cost, o->cells.cost, sizeof(s->cost));
        s->asked = o->cells.asked;
        s->costed = !o->lost;
        return;
    }
    ok = x->status == NT_ST_OK && x->count > 0;
    for (uint32_t i = 0; ok && i < s->n; i++) {
        known = known || nt_executed_equal(&s->tuples[i].executed, &x->executed);
    }
    if (ok && (!known || s->n == 0)) {
        struct tuple *t = &s->tuples[s->n++];
        *t = (struct tuple){.call = *call, .executed = x->executed};
        t->sum[r->modes[0]] = log((double)x->ns[0]); /* a first idea of how long it takes */
        t->n[r->modes[0]] = 1;
    }
    if (s->combo == 0) {
        s->combo = ok || !o->lost ? 1 : 0;
    } else if (!ok || (call->channels > 0 && x->executed.channels < call->channels)) {
        s->combo++;
        s->step = 0;
    } else if (in_haste(r) && call->channels == 0 &&
               (double)x->ns[0] > best_ns(s, r->modes[0]) * HOPELESS) {
        s->combo++;
    } else {
        s->step++;
    }
}

/* ------------------------------------------------------------------ rounds */

static void start_gangs(struct nt_record *r)
{
    struct job *j = push(r, NT_DO_START);

    j->step.ngangs = group_size(r);
    for (size_t i = 0; i < j->step.ngangs; i++) {
        j->step.gangs[i] = (struct nt_plan_gang){
            .number = ++r->gang, .arm = NT_ARM_SEARCH, .vars = r->spec.settings[r->group + i]};
        r->live[i] = j->step.gangs[i];
    }
    r->nlive = j->step.ngangs;
    r->filled = false;
}

static void stop_gangs(struct nt_record *r)
{
    (void)push(r, NT_DO_STOP);
    r->nlive = 0;
}

static void push_round(struct nt_record *r)
{
    uint32_t order[NT_COLL_COUNT * NT_MAX_SIZES];

    for (uint32_t i = 0; i < r->npoints; i++) {
        order[i] = i;
    }
    nt_rng_shuffle(&r->rng, order, r->npoints);
    for (int part = LEADERS; part < PARTS; part++) {
        for (uint32_t i = 0; i < r->npoints && (part == LEADERS || in_haste(r)); i++) {
            for (uint32_t k = 0; k < group_size(r); k++) {
                push_spot(r, (uint32_t)r->group + k, order[i],
                          in_haste(r) ? (enum part)part : WHOLE);
            }
        }
    }
    r->filled = true;
}

/* What a round takes that goes down to `cut`, by what each tuple took last. */
static double round_cost(const struct nt_record *r, double cut)
{
    double ns = (double)r->starts_ns / r->round; /* those of one round */

    for (size_t i = 0; i < (size_t)r->npoints * r->spec.nsettings; i++) {
        const struct spot *s = &r->spots[i];
        for (uint32_t t = 0; t < s->n; t++) {
            double times = within(r, s, t, cut) ? gets_extras(r, s, t) ? 1 + EXTRAS : 1 : 0;
            for (uint32_t k = 0; k < r->nmodes && !s->tuples[t].out; k++) {
                ns += s->tuples[t].spent_ns[r->modes[k]] * times;
            }
        }
    }
    return ns;
}

/* In haste: in place and edges in two rounds, so that each half of the gangs has them, but the
 * first of them before the leaders' further gangs and the second only beside those; then as far
 * down as there is time. A round of leaders may be cut off: half of them are worth its start.
 * False: there is not even time for that. */
static bool plan_round(struct nt_record *r)
{
    double left = (double)r->spec.budget_ns - (double)r->held_ns, leaders, elsewhere;
    unsigned rounds = r->round < LEAST_GANGS ? LEAST_GANGS - r->round : 1; /* to go */

    r->extras = r->round < LEAST_GANGS;
    if (!in_haste(r)) {
        return true;
    }
    elsewhere = round_cost(r, LEADS);
    r->extras = false;
    leaders = round_cost(r, LEADS);
    elsewhere -= leaders;
    r->extras = (r->round == 1 && leaders + elsewhere <= left) ||
                (r->round == 2 && rounds * leaders + elsewhere <= left);
    r->cut = LEADS;
    for (size_t i = 0; i < CUTS_COUNT && r->round < LEAST_GANGS; i++) {
        if (rounds * round_cost(r, CUTS[i]) <= left) {
            r->cut = CUTS[i];
            break;
        }
    }
    return left >= leaders * (r->spec.nsettings > SIDE_BY_SIDE ? 1 : 0.5);
}

/* The next group of settings, or the next round; false: the last one is over, or the budget. */
static bool next_round(struct nt_record *r)
{
    r->group += group_size(r);
    if (r->group < r->spec.nsettings) {
        return true;
    }
    r->group = 0;
    r->round++;
    return r->round < r->rounds && plan_round(r);
}

static bool overdue(const struct nt_record *r)
{
    return in_haste(r) && r->held_ns > r->spec.budget_ns;
}

static void refill(struct nt_record *r)
{
    r->head = r->tail = 0;
    if (r->ends_round) { /* here, for now it is known how long ending them took */
        r->ends_round = false;
        r->done = !next_round(r);
    } else if (r->nlive == 0) {
        start_gangs(r);
    } else if (push_explore(r)) {
        return;
    } else if (!r->filled) {
        push_round(r);
    } else {
        stop_gangs(r);
        r->ends_round = true;
    }
}

int nt_record_next(struct nt_record *r, struct nt_plan_step *ret, struct nt_err *err)
{
    if (overdue(r) && r->nlive > 0) { /* what was measured stays good: the order is by chance */
        r->head = r->tail = 0;
        r->done = true;
        stop_gangs(r);
    }
    while (r->head == r->tail && !r->done && r->failed.code == NT_OK) {
        refill(r);
    }
    if (r->failed.code != NT_OK) {
        *err = r->failed;
        return -(int)r->failed.code;
    }
    if (r->head == r->tail) {
        *ret = (struct nt_plan_step){.kind = NT_DO_FINISHED};
        return 0;
    }
    r->queue[r->head].step.seq = r->seq + 1;
    r->queue[r->head].step.m.id = r->seq + 1;
    *ret = r->queue[r->head].step;
    ret->m.flags |= ret->kind == NT_DO_MEASURE ? nt_case_flags(&ret->m.cs) : 0;
    return 0;
}

/* A gang is gone: the rest of its round is left out, and so is what it died of. */
static void lost(struct nt_record *r, const struct job *j, const char *why)
{
    r->head = r->tail = 0;
    if (j->step.kind == NT_DO_MEASURE && !j->explores) {
        spot_of(r, j->setting, j->point)->tuples[j->tuple].out = true;
    }
    stop_gangs(r);
    if (++r->losses >= MAX_LOSSES) {
        (void)nt_fail(&r->failed, NT_E_MISSING, 0, "%u gangs in a row were lost, the last: %.200s",
                      r->losses, why);
    }
}

int nt_record_tell(struct nt_record *r, const struct nt_plan_outcome *o, struct nt_err *err)
{
    struct job j;
    bool gone = o->lost;

    nt_assert(r->head < r->tail);
    j = r->queue[r->head++];
    r->held_ns += o->elapsed_ns;
    if (j.step.kind == NT_DO_START || j.step.kind == NT_DO_STOP) {
        r->starts_ns += o->elapsed_ns;
    }
    r->seq += j.step.kind == NT_DO_START ? j.step.ngangs : (size_t)(j.step.kind != NT_DO_STOP);
    for (size_t i = 0; j.step.kind == NT_DO_START && i < j.step.ngangs; i++) {
        gone = gone || o->gangs[i].status != NT_ST_OK;
    }
    if (j.explores) {
        tell_explore(r, &j, o);
    } else if (j.step.kind == NT_DO_MEASURE) {
        struct tuple *t = &spot_of(r, j.setting, j.point)->tuples[j.tuple];
        const struct nt_result *x = o->result;
        r->blocks++;
        if (x->status != NT_ST_OK && !j.extra) {
            t->out = true;
        } else if (x->count > 0 && !j.extra) {
            enum nt_mode m = (enum nt_mode)j.step.cs.mode;
            uint32_t ns[NT_MAX_SAMPLES];
            memcpy(ns, x->ns, x->count * sizeof(ns[0]));
            t->sum[m] += log(nt_quantile_u32(ns, x->count, 0.5));
            t->n[m]++;
            t->spent_ns[m] = (float)o->elapsed_ns;
            r->losses = 0;
        }
    }
    if (gone) {
        lost(r, &j, o->result != NULL ? o->result->error : "a gang did not start");
    }
    if (r->failed.code != NT_OK) {
        *err = r->failed;
    }
    return -(int)r->failed.code;
}

void nt_record_progress(const struct nt_record *r, struct nt_record_progress *ret)
{
    *ret = (struct nt_record_progress){.round = r->round,
                                       .rounds = r->rounds,
                                       .blocks = r->blocks,
                                       .tuples = r->tuples,
                                       .unexplored = r->unexplored,
                                       .held_ns = r->held_ns};
}
