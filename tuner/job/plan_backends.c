/*
 * Backends: who moves the bytes. Every backend of the spec is raced, size by size and mode by mode,
 * against NCCL left alone in gangs of its own, so that what hangs or spoils memory spoils nothing
 * else; every block of it is checked. What was wrong once is out of the job. The choice for a size
 * and mode is then right in every type and placement that its row names, and confirmed in pairs.
 */
#include "tuner/job/plan_i.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GATE_ROUNDS = 4, MOST_HANGS = 2, LOOK = 3, OPENING_MS = 15000 };

/* What is asked of each backend; one row without algorithm: its own choice. */
static const struct {
    uint8_t backend;
    int8_t algo, proto;
    uint16_t channels;
} variants[] = {
    {NT_BE_REGISTERED, -1, -1, 0},
    {NT_BE_NCCL_SYMMETRIC, -1, -1, 0},
    {NT_BE_IPC, NT_ONE_SHOT, NT_LL, 0},
    {NT_BE_IPC, NT_ONE_SHOT, NT_PUSH, 0},
    {NT_BE_IPC, NT_ONE_SHOT, NT_PULL, 0},
    {NT_BE_IPC, NT_ONE_SHOT, NT_DIRECT, 0},
    {NT_BE_IPC, NT_TWO_SHOT, NT_DIRECT, 0},
    {NT_BE_IPC, NT_TWO_SHOT, NT_DIRECT, 16},
    {NT_BE_IPC, NT_TWO_SHOT, NT_DIRECT, 48},
    {NT_BE_IPC, NT_TWO_SHOT, NT_PUSH, 0},
    {NT_BE_IPC, NT_TWO_SHOT, NT_PULL, 0},
    {NT_BE_HOST, NT_ONE_SHOT, NT_PULL, 0},
    {NT_BE_HOST, NT_TWO_SHOT, NT_PULL, 0},
    {NT_BE_TORCH, -1, -1, 0},
    {NT_BE_TORCH_SYMM_MEM, -1, -1, 0},
    {NT_BE_TORCH_SYMM_MEM, NT_ONE_SHOT, NT_PULL, 0},
    {NT_BE_TORCH_SYMM_MEM, NT_ONE_SHOT, NT_DIRECT, 0},
    {NT_BE_TORCH_SYMM_MEM, NT_TWO_SHOT, NT_PULL, 0},
    {NT_BE_CUSTOM_ALL_REDUCE, -1, -1, 0},
    {NT_BE_PYNCCL, -1, -1, 0},
    {NT_BE_FLASHINFER, -1, -1, 0},
    {NT_BE_MSCCLPP, -1, -1, 0},
};
enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };
_Static_assert((int)VARIANTS < (int)MAX_BACKEND_ARMS, "an arm each, and the default");

static const struct {
    uint32_t min_gangs, max_gangs;
} efforts[NT_EFFORT_COUNT] = {[NT_QUICK] = {2, 2}, [NT_STANDARD] = {3, 6}, [NT_THOROUGH] = {6, 10}};

void backends_free(struct nt_plan *p)
{
    struct backends *b = &p->backends;
    for (uint32_t i = 0; b->cells != NULL && i < p->npoints; i++) {
        for (int m = 0; m < NT_MODE_COUNT; m++) {
            nt_race_free(b->cells[i].race[m]);
        }
    }
    for (size_t i = 0; i < b->nchecks; i++) {
        free(b->checks[i].norm[0]);
        free(b->checks[i].norm[1]);
    }
    free(b->cells);
    free(b->checks);
    b->nchecks = 0;
    b->cells = NULL;
    b->checks = NULL;
}

static struct nt_backend_note *note_of(struct nt_plan *p, const struct nt_call *call,
                                       const char *why)
{
    struct nt_plan_result *r = &p->result;
    struct nt_backend_note *n;
    for (size_t i = 0; i < r->nbackend_notes; i++) {
        bool covers;
        n = &r->backend_notes[i];
        covers = n->call.algo < 0 || /* said of the whole backend */
                 (n->call.algo == call->algo && n->call.proto == call->proto);
        if (n->call.backend == call->backend && covers &&
            strncmp(n->why, why, sizeof(n->why) - 1) == 0) {
            return n;
        }
    }
    if (r->nbackend_notes == NT_MAX_BACKEND_NOTES) {
        return NULL;
    }
    n = &r->backend_notes[r->nbackend_notes++];
    *n = (struct nt_backend_note){.call = *call, .min_bytes = UINT64_MAX};
    (void)snprintf(n->why, sizeof(n->why), "%.*s", (int)sizeof(n->why) - 1, why);
    return n;
}

void backends_note(struct nt_plan *p, const struct nt_call *call, const char *why)
{
    struct nt_backend_note *n = note_of(p, call, why);
    if (n != NULL) {
        n->min_bytes = n->max_bytes = 0;
    }
}

/* Said of one size of the ladder; of the first and the last of a collective: of all. */
static void note_at(struct nt_plan *p, const struct nt_call *call, uint32_t point, const char *why)
{
    struct nt_backend_note *n = note_of(p, call, why);
    uint64_t bytes = p->points[point].bytes;

    if (n == NULL || n->min_bytes == 0) {
        return;
    }
    n->min_bytes = bytes < n->min_bytes ? bytes : n->min_bytes;
    n->max_bytes = bytes > n->max_bytes ? bytes : n->max_bytes;
}

static bool is_out(const struct nt_plan *p, const struct nt_call *c)
{
    return p->backends.out[c->backend] ||
           p->backends.variant_out[c->backend][c->algo + 1][c->proto + 1];
}

/* In all races: what is out is no arm any more. */
static void drop_arms(struct nt_plan *p, uint8_t status)
{
    for (uint32_t i = 0; i < p->npoints; i++) {
        struct backend_cell *c = &p->backends.cells[i];
        for (uint32_t a = 1; a < c->narms; a++) {
            if (c->arms[a].status != NT_ST_OK || !is_out(p, &c->arms[a].call)) {
                continue;
            }
            c->arms[a].status = status;
            for (uint32_t k = 0; c->explored && k < p->nmodes; k++) {
                nt_race_fail(c->race[p->modes[k]], a, status);
            }
        }
    }
}

void backends_ban(struct nt_plan *p, const struct nt_call *call, const struct nt_result *r)
{
    struct backends *b = &p->backends;
    struct nt_call whole = {.algo = -1, .proto = -1, .backend = call->backend};
    char why[160];

    (void)snprintf(why, sizeof(why), "%s: %.120s", nt_status_names[r->status],
                   r->error[0] != '\0' ? r->error : "out of this job");
    if (r->status == NT_ST_WRONG || r->status == NT_ST_DISAGREE ||
        ++b->hangs[call->backend] >= MOST_HANGS) {
        b->out[call->backend] = true;
        backends_note(p, &whole, why);
    } else {
        b->variant_out[call->backend][call->algo + 1][call->proto + 1] = true;
        backends_note(p, call, why);
    }
    b->bans++;
    drop_arms(p, r->status);
}

/* ------------------------------------------------------------------ race */

/* The mode of a backend's first look: some are for graphs only. False: none of the job's. */
static bool look_mode(const struct nt_plan *p, uint8_t backend, enum nt_mode *ret)
{
    for (uint32_t k = 0; k < p->nmodes; k++) {
        if (nt_backends[backend].modes[p->modes[k]]) {
            *ret = p->modes[k];
            return true;
        }
    }
    return false;
}

/* The next variant to look at and in which mode, or false. */
static bool next_variant(struct nt_plan *p, uint32_t point, struct nt_call *ret, enum nt_mode *mode)
{
    struct backend_cell *c = &p->backends.cells[point];
    for (; c->variant < VARIANTS; c->variant++) {
        struct nt_call call = {.algo = variants[c->variant].algo,
                               .proto = variants[c->variant].proto,
                               .channels = variants[c->variant].channels,
                               .backend = variants[c->variant].backend};
        if (p->spec.backends[call.backend] &&
            nt_backends[call.backend].colls[p->points[point].coll] && !is_out(p, &call) &&
            look_mode(p, call.backend, mode)) {
            *ret = call;
            return true;
        }
    }
    return false;
}

static struct todo *push(struct nt_plan *p, enum purpose purpose, uint32_t point, enum nt_mode m,
                         uint32_t arm, const struct nt_call *call, unsigned samples)
{
    struct nt_case cs = plan_case(p, point, m);
    double est = plan_default_ns(p, point, m);
    struct todo *t = plan_measure(p, 0, purpose, &cs, *call, est, samples);
    t->point = point;
    t->mode = m;
    t->arm = arm;
    if (call->backend != NT_BE_NCCL) { /* never timed without a look at its data */
        t->step.m.verify = NT_VERIFY_BOTH;
        t->step.m.deadline_ms += OPENING_MS;
    }
    return t;
}

static bool new_race(struct nt_plan *p, uint32_t point, enum nt_mode m, struct nt_race **ret)
{
    struct backend_cell *c = &p->backends.cells[point];
    const struct nt_noise *noise = &p->points[point].pre[m].noise;
    struct nt_race_config cfg = nt_race_defaults;
    struct nt_race_arm arms[MAX_BACKEND_ARMS];

    for (uint32_t i = 0; i < c->narms; i++) {
        arms[i] = (struct nt_race_arm){.prior = c->arms[i].look_log,
                                       .tie_rank = c->arms[i].executed.channels};
    }
    cfg.block_sd = fmax(noise->block_sd, 0.005);
    cfg.gang_sd = fmax(noise->gang_sd, 0.005);
    cfg.block_samples = plan_samples(m, plan_default_ns(p, point, m));
    cfg.look_samples = cfg.block_samples < LOOK ? cfg.block_samples : LOOK;
    cfg.min_gangs = efforts[p->spec.effort].min_gangs;
    cfg.max_gangs = efforts[p->spec.effort].max_gangs;
    cfg.gang_blocks = search_gang_blocks(p, point, m, p->npoints * p->nmodes);
    cfg.seed = nt_mix(nt_mix(p->spec.seed, 0x6261636b), nt_mix(point, m));
    return nt_race_new(&cfg, arms, c->narms, ret, &p->failed) == 0;
}

static bool new_races(struct nt_plan *p, uint32_t point)
{
    struct backend_cell *c = &p->backends.cells[point];

    for (uint32_t k = 0; k < p->nmodes; k++) {
        enum nt_mode m = p->modes[k];
        if (!new_race(p, point, m, &c->race[m])) {
            return false;
        }
        for (uint32_t i = 1; i < c->narms; i++) {
            if (!nt_backends[c->arms[i].call.backend].modes[m]) {
                nt_race_fail(c->race[m], i, NT_ST_UNAVAILABLE);
            }
        }
    }
    c->explored = true;
    return true;
}

static bool push_next(struct nt_plan *p, uint32_t point)
{
    struct backend_cell *c = &p->backends.cells[point];
    enum nt_mode look = p->modes[0];
    struct nt_call call;
    struct nt_ask ask;

    if (!c->explored && next_variant(p, point, &call, &look)) {
        struct todo *t = push(p, FOR_BACKEND_LOOK, point, look, NONE, &call, LOOK);
        t->step.m.flags = NT_M_READBACK | NT_M_BITS;
        return true;
    }
    if (!c->explored && !new_races(p, point)) {
        return false;
    }
    for (uint32_t k = 0; k < p->nmodes && c->narms > 1; k++) {
        enum nt_mode m = p->modes[k];
        if (nt_race_next(c->race[m], p->race_gang, &ask)) {
            const struct backend_arm *a = &c->arms[ask.arm];
            struct todo *t = push(p, FOR_BACKEND_BLOCK, point, m, ask.arm, &a->call, ask.samples);
            if (ask.arm > 0 && (a->gated & (1U << m)) == 0) {
                t->step.m.flags = NT_M_READBACK | NT_M_BITS;
            }
            return true;
        }
    }
    return false;
}

static bool work_in_gang(struct nt_plan *p)
{
    for (; p->cursor < p->npoints && p->failed.code == NT_OK; p->cursor++) {
        if (push_next(p, p->order[p->cursor])) {
            return true;
        }
    }
    return false;
}

static bool wants_gang(struct nt_plan *p)
{
    for (uint32_t i = 0; i < p->npoints; i++) {
        struct backend_cell *c = &p->backends.cells[i];
        if (!c->explored) {
            return true;
        }
        for (uint32_t k = 0; k < p->nmodes && c->narms > 1; k++) {
            if (nt_race_wants_gang(c->race[p->modes[k]])) {
                return true;
            }
        }
    }
    return false;
}

static void start_gang(struct nt_plan *p)
{
    static const enum nt_arm arm = NT_ARM_BACKENDS;
    plan_stop(p);
    (void)plan_start(p, &arm, 1, 0);
    p->cursor = 0;
    for (uint32_t i = 0; i < p->npoints; i++) {
        p->order[i] = i;
    }
    nt_rng_shuffle(&p->rng, p->order, p->npoints);
}

static bool race_in_budget(const struct nt_plan *p)
{
    return p->backends.gangs == 0 || p->spec.budget_ns == 0 ||
           (double)plan_used_ns(p) + backends_pairs_ns(p) / 2 < (double)p->spec.budget_ns;
}

/* Gang after gang until the races are decided; false: over. */
static bool race(struct nt_plan *p)
{
    struct backends *b = &p->backends;
    if (p->nlive > 0) {
        p->race_gang = b->gangs - 1;
        if (work_in_gang(p)) {
            return true;
        }
    }
    if (p->failed.code != NT_OK || !wants_gang(p) || b->gangs == NT_RACE_MAX_GANGS ||
        !race_in_budget(p)) {
        return false; /* half of what there is will not win */
    }
    b->gangs++;
    start_gang(p);
    return true;
}

/* NCCL left alone under another label, or the same kernel with as many blocks, is no contender. */
static uint32_t same_as(const struct nt_plan *p, uint32_t point, const struct nt_call *call,
                        const struct nt_executed *x)
{
    const struct backend_cell *c = &p->backends.cells[point];
    for (uint32_t i = 0; i < c->narms; i++) {
        if (c->arms[i].status == NT_ST_OK &&
            nt_backend_same_path(&c->arms[i].call, &c->arms[i].executed, call, x)) {
            return i;
        }
    }
    return NONE;
}

static void learn_right(struct nt_plan *p, struct backend_arm *a, const struct nt_case *cs,
                        const struct nt_result *r)
{
    (void)p;
    a->gated |= (uint8_t)(1U << cs->mode);
    a->tried[cs->mode][cs->dtype][cs->place] = true;
    a->right[cs->mode][cs->dtype][cs->place] = r->status == NT_ST_OK;
    a->bits[cs->mode] = r->bits > a->bits[cs->mode] ? r->bits : a->bits[cs->mode];
}

/* Said once a size: with --same-bits it is out, in that mode. */
static bool bits_rule_out(struct nt_plan *p, const struct backend_arm *a, const struct todo *t)
{
    bool out = p->spec.same_bits && a->bits[t->step.m.cs.mode] != NT_BITS_SAME;
    if (out) {
        note_at(p, &a->call, t->point,
                "its results have other bits than NCCL's, and --same-bits is set");
    }
    return out;
}

void backend_look_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    struct backend_cell *c = &p->backends.cells[t->point];
    const struct nt_result *r = o->result;
    const struct nt_call *call = &t->step.m.call;
    struct backend_arm a = {.call = *call,
                            .executed = r->executed,
                            .look_log = plan_log_median(r),
                            .look_samples = (uint32_t)r->count};
    uint32_t same;

    c->variant++;
    if (r->status == NT_ST_UNAVAILABLE || r->status == NT_ST_NOT_RECORDED) {
        note_at(p, call, t->point, r->error[0] != '\0' ? r->error : nt_status_names[r->status]);
        return;
    }
    if (r->status != NT_ST_OK) {
        backends_ban(p, call, r);
        return;
    }
    learn_right(p, &a, &t->step.m.cs, r);
    same = same_as(p, t->point, call, &r->executed);
    if (same != NONE) {
        if (c->arms[same].call.backend != call->backend) {
            char text[64], why[160];
            (void)snprintf(why, sizeof(why), "a tie: runs the same as %s",
                           nt_call_text(&c->arms[same].call, text, sizeof(text)));
            note_at(p, call, t->point, why);
        }
    } else if (!bits_rule_out(p, &a, t)) {
        c->arms[c->narms++] = a;
    }
}

void backend_block_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    struct backend_cell *c = &p->backends.cells[t->point];
    struct backend_arm *a = &c->arms[t->arm];
    const struct nt_result *r = o->result;
    double x = plan_log_median(r);

    if (!isnan(x)) {
        double calls = exp(x) * t->step.m.inner * (t->step.m.samples + t->step.m.warmup);
        p->backends.beside_ns[t->arm > 0] += fmax((double)o->elapsed_ns - calls, 0);
        p->backends.nblocks[t->arm > 0]++;
        if (t->arm > 0) {
            learn_right(p, a, &t->step.m.cs, r);
            if (bits_rule_out(p, a, t)) {
                nt_race_fail(c->race[t->mode], t->arm, NT_ST_UNAVAILABLE);
                return;
            }
        }
        if (nt_race_tell(c->race[t->mode], p->race_gang, t->arm, x, (uint32_t)r->count,
                         &p->failed) != 0) {
            p->failed.code = p->failed.code != NT_OK ? p->failed.code : NT_E_NOMEM;
        }
    } else if (t->arm == 0) {
        if (!o->lost) {
            nt_race_fail(c->race[t->mode], 0, r->status);
        }
    } else if (r->status == NT_ST_UNAVAILABLE || r->status == NT_ST_NOT_RECORDED ||
               r->status == NT_ST_TOO_SLOW) {
        nt_race_fail(c->race[t->mode], t->arm, r->status);
    } else {
        backends_ban(p, &t->step.m.call, r);
    }
}

/* ------------------------------------------------------------------ gate */

static void take_picks(struct nt_plan *p)
{
    for (uint32_t i = 0; i < p->npoints; i++) {
        struct backend_cell *c = &p->backends.cells[i];
        for (uint32_t k = 0; k < p->nmodes; k++) {
            enum nt_mode m = p->modes[k];
            struct nt_race_verdict v = {.pick = 0};
            if (c->explored && c->narms > 1) {
                v = nt_race_verdict(c->race[m]);
            }
            c->pick[m] = v.pick == NT_NO_ARM || v.end == NT_RACE_NO_BASELINE ||
                                 c->arms[v.pick].status != NT_ST_OK
                             ? 0
                             : v.pick;
        }
    }
}

/* What a pick was not tried in yet: queued, or only looked for. */
static bool untried(struct nt_plan *p, bool queue)
{
    bool any = false;
    for (uint32_t i = 0; i < p->npoints; i++) {
        struct backend_cell *c = &p->backends.cells[i];
        for (uint32_t k = 0; k < p->nmodes; k++) {
            enum nt_mode m = p->modes[k];
            const struct backend_arm *a = &c->arms[c->pick[m]];
            for (int d = 0; c->pick[m] > 0 && d < NT_DTYPE_COUNT; d++) {
                for (int place = 0; place < NT_PLACE_COUNT; place++) {
                    struct todo *t;
                    if (!plan_serves(p, p->points[i].coll, d, place) || a->tried[m][d][place]) {
                        continue;
                    }
                    any = true;
                    if (!queue) {
                        return true;
                    }
                    t = push(p, FOR_BACKEND_GATE, i, m, c->pick[m], &a->call, 0);
                    t->step.m.cs.dtype = t->step.cs.dtype = (uint8_t)d;
                    t->step.m.cs.place = t->step.cs.place = (uint8_t)place;
                    t->step.m.warmup = 0;
                    t->step.m.flags = NT_M_BITS;
                }
            }
        }
    }
    return any;
}

void backend_gate_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    struct backend_cell *c = &p->backends.cells[t->point];
    struct backend_arm *a = &c->arms[t->arm];
    const struct nt_result *r = o->result;

    if (r->status == NT_ST_OK || r->status == NT_ST_UNAVAILABLE ||
        r->status == NT_ST_NOT_RECORDED) {
        learn_right(p, a, &t->step.m.cs, r); /* what it does not do, its row does not name */
        if (r->status == NT_ST_OK && bits_rule_out(p, a, t)) {
            p->backends.bans++;
            nt_race_fail(c->race[t->mode], t->arm, NT_ST_UNAVAILABLE);
        }
    } else {
        backends_ban(p, &t->step.m.call, r);
    }
}

/* Did one that is out now take the blocks of the others, which are not told apart from NCCL? */
static bool was_spoilt(const struct backend_cell *c, enum nt_mode m)
{
    struct nt_race_verdict v = nt_race_verdict(c->race[m]);
    bool out = false, left = false;

    for (uint32_t i = 1; i < c->narms; i++) {
        struct nt_standing s = nt_race_standing(c->race[m], i);
        out = out || (s.state == NT_ARM_FAILED && s.blocks > 0);
        left = left || s.state != NT_ARM_FAILED;
    }
    return out && left && c->pick[m] == 0 && (v.end == NT_RACE_RUNNING || v.end == NT_RACE_LIMIT);
}

/* Races that a backend won which the gate then took out begin anew, among those that are left: the
 * second best is not lost with it. False: there are none, or no gangs or time for them. */
static bool race_anew(struct nt_plan *p)
{
    struct backends *b = &p->backends;
    bool any = false;

    if (b->bans == b->bans_known ||
        b->gangs + efforts[p->spec.effort].min_gangs > NT_RACE_MAX_GANGS || !race_in_budget(p)) {
        return false;
    }
    b->bans_known = b->bans;
    for (uint32_t i = 0; i < p->npoints; i++) {
        struct backend_cell *c = &b->cells[i];
        for (uint32_t k = 0; k < p->nmodes && c->explored && c->narms > 1; k++) {
            enum nt_mode m = p->modes[k];
            struct nt_race *anew = NULL;
            if (!was_spoilt(c, m)) {
                continue;
            }
            if (!new_race(p, i, m, &anew)) {
                return false;
            }
            for (uint32_t a = 1; a < c->narms; a++) {
                struct nt_standing s = nt_race_standing(c->race[m], a);
                if (s.state == NT_ARM_FAILED) {
                    nt_race_fail(anew, a, s.why);
                }
            }
            nt_race_free(c->race[m]);
            c->race[m] = anew;
            any = true;
        }
    }
    p->cursor = p->npoints; /* in fresh gangs, not in the one that is alive */
    return any;
}

/* False: every pick is right wherever it is to serve, or none is left. */
static bool gate(struct nt_plan *p)
{
    take_picks(p);
    if (!untried(p, false) || p->backends.rounds++ == GATE_ROUNDS * MAX_BACKEND_ARMS) {
        return false;
    }
    if (p->nlive == 0) {
        start_gang(p);
    }
    return untried(p, true);
}

/* ------------------------------------------------------------------ the stage */

/* Asked for, and this job has no mode or no collective of it: said once, never silently left out.
 */
static void note_misfits(struct nt_plan *p)
{
    for (int be = NT_BE_NCCL + 1; be < NT_BACKEND_COUNT; be++) {
        struct nt_call whole = {.algo = -1, .proto = -1, .backend = (uint8_t)be};
        enum nt_mode mode;
        bool colls = false;
        for (uint32_t i = 0; i < p->npoints; i++) {
            colls = colls || nt_backends[be].colls[p->points[i].coll];
        }
        if (p->spec.backends[be] && (!colls || !look_mode(p, (uint8_t)be, &mode))) {
            backends_note(p, &whole,
                          colls ? "not in the modes of this job"
                                : "does none of this job's collectives");
        }
    }
}

static bool begin(struct nt_plan *p)
{
    struct backends *b = &p->backends;

    publish_pairs(p); /* what the table serves is to be beaten too */
    if (!nt_spec_has_backends(&p->spec) || p->failed.code != NT_OK) {
        return false;
    }
    b->cells = calloc(p->npoints, sizeof(b->cells[0]));
    if (b->cells == NULL) {
        (void)nt_fail(&p->failed, NT_E_NOMEM, 0, "backends");
        return false;
    }
    for (uint32_t i = 0; i < p->npoints; i++) {
        b->cells[i].narms = 1;
        b->cells[i].arms[0] = (struct backend_arm){
            .call = NT_CALL_DEFAULT,
            .executed = p->points[i].def.channels > 0 ? p->points[i].def : NT_EXECUTED_NONE,
            .look_log = NAN};
    }
    note_misfits(p);
    plan_stop(p);
    return true;
}

bool backends_refill(struct nt_plan *p)
{
    struct backends *b = &p->backends;

    if (b->phase == BACKENDS_NEW) {
        b->phase = begin(p) ? BACKENDS_RACE : BACKENDS_DONE;
    }
    while (b->phase == BACKENDS_RACE || b->phase == BACKENDS_GATE) {
        if (b->phase == BACKENDS_RACE ? race(p) : gate(p)) {
            return true;
        }
        b->phase = b->phase == BACKENDS_RACE  ? BACKENDS_GATE
                   : race_anew(p)             ? BACKENDS_RACE
                   : backends_set_up_pairs(p) ? BACKENDS_PAIRS
                                              : BACKENDS_DONE;
    }
    if (b->phase == BACKENDS_PAIRS) {
        if (p->failed.code == NT_OK && backends_next_pair(p)) {
            return true;
        }
        b->phase = BACKENDS_DONE;
    }
    plan_stop(p);
    if (b->cells != NULL && !b->told && p->failed.code == NT_OK) {
        b->told = true;
        backends_keep(p);
    }
    return false;
}
