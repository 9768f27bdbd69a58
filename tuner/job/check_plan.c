#include "tuner/job/check_plan.h"
#include "tuner/base/rng.h"
#include "tuner/job/plan_i.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 4, MAX_REDO = 3, COPY_BYTES = 32 << 20, CONTROL_SAMPLES = 8, COPIES = 4 };
enum { DEFAULT, TUNED, SIDES };

struct entry {
    struct nt_plan_step step;
    uint32_t what; /* row, or nrows + control */
    uint8_t side;
};

struct nt_check_plan {
    struct nt_check_spec spec;
    struct nt_check_control controls[NT_CHECK_CONTROLS];
    struct nt_rng rng;
    uint64_t gang, seq;
    unsigned pair, redo;
    struct nt_plan_gang live[SIDES]; /* by side */
    bool alive, lost, done;
    struct entry *queue;
    size_t head, tail, cap;
    /* [what][side][pair]: mean of the logarithms of blocks' medians, and how many */
    double (*x)[SIDES][NT_CHECK_PAIRS];
    uint8_t (*blocks)[SIDES][NT_CHECK_PAIRS];
    struct nt_err failed;
};

static size_t whats(const struct nt_check_plan *p)
{
    return p->spec.nrows + NT_CHECK_CONTROLS;
}

void nt_check_controls(struct nt_check_control ret[NT_CHECK_CONTROLS])
{
    ret[0] = (struct nt_check_control){"copy", NT_M_COPY, COPY_BYTES, {0}};
    ret[1] = (struct nt_check_control){"launch", NT_M_LAUNCH, 4096, {0}};
}

int nt_check_plan_new(const struct nt_check_spec *spec, struct nt_check_plan **ret,
                      struct nt_err *err)
{
    struct nt_check_plan *p;

    if (spec->pairs < NT_CHECK_LEAST_PAIRS || spec->pairs > NT_CHECK_PAIRS) {
        return nt_fail(err, NT_E_INVAL, 0, "%u pairs: must be %d to %d", spec->pairs,
                       NT_CHECK_LEAST_PAIRS, NT_CHECK_PAIRS);
    }
    p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "check");
    }
    p->spec = *spec;
    nt_check_controls(p->controls);
    nt_rng_seed(&p->rng, spec->seed);
    p->cap = 1 + (size_t)whats(p) * SIDES * BLOCKS;
    p->queue = calloc(p->cap, sizeof(p->queue[0]));
    p->x = calloc(whats(p), sizeof(p->x[0]));
    p->blocks = calloc(whats(p), sizeof(p->blocks[0]));
    if (p->queue == NULL || p->x == NULL || p->blocks == NULL) {
        nt_check_plan_free(p);
        return nt_fail(err, NT_E_NOMEM, 0, "check");
    }
    *ret = p;
    return 0;
}

void nt_check_plan_free(struct nt_check_plan *p)
{
    if (p != NULL) {
        free(p->queue);
        free(p->x);
        free(p->blocks);
        free(p);
    }
}

static struct entry *push(struct nt_check_plan *p, enum nt_do kind)
{
    struct entry *e = &p->queue[p->tail++];

    nt_assert(p->tail <= p->cap);
    *e = (struct entry){.step = {.kind = kind, .stage = NT_CONFIRM}};
    return e;
}

static void start(struct nt_check_plan *p)
{
    struct entry *e = push(p, NT_DO_START);
    bool tuned_first = nt_rng_below(&p->rng, 2) == 1;

    for (unsigned i = 0; i < SIDES; i++) {
        unsigned side = tuned_first ? SIDES - 1 - i : i;
        p->live[side] = (struct nt_plan_gang){.number = ++p->gang,
                                              .arm = side == TUNED ? p->spec.arm : NT_ARM_DEFAULT,
                                              .vars = side == TUNED ? p->spec.vars : ""};
        e->step.gangs[i] = p->live[side];
    }
    e->step.ngangs = SIDES;
    p->alive = true;
}

/* ------------------------------------------------------------------ blocks */

static void ask_row(const struct nt_check_plan *p, const struct nt_check_row *r, unsigned side,
                    bool first, struct nt_measure *m)
{
    enum nt_mode mode = (enum nt_mode)r->cs.mode;
    double est = r->was_default_ns > 0 ? r->was_default_ns : 1e6;

    *m = (struct nt_measure){.cs = r->cs,
                             .call = side == TUNED ? r->asked : NT_CALL_DEFAULT,
                             .warmup = 1,
                             .samples = plan_samples(mode, est),
                             .inner = plan_inner(mode, est),
                             .flags = nt_case_flags(&r->cs)};
    m->deadline_ms = 8000 + (uint32_t)fmin(60e3, 40.0 * est * 1e-6 * (m->samples + 3) * m->inner);
    if (first && side == TUNED) {
        m->flags |= NT_M_READBACK;
        m->verify = NT_VERIFY_BEFORE;
    }
    (void)p;
}

static void ask_control(const struct nt_check_control *c, struct nt_measure *m)
{
    *m = (struct nt_measure){.cs = {.bytes = c->bytes,
                                    .coll = NT_ALL_REDUCE,
                                    .dtype = NT_FP32,
                                    .place = NT_OUT_OF_PLACE,
                                    .mode = NT_EAGER},
                             .call = NT_CALL_DEFAULT,
                             .warmup = 2,
                             .samples = CONTROL_SAMPLES,
                             .inner = c->flag == NT_M_COPY ? COPIES : 1,
                             .flags = c->flag,
                             .deadline_ms = 20000};
}

static void push_block(struct nt_check_plan *p, uint32_t what, unsigned side, bool first)
{
    struct entry *e = push(p, NT_DO_MEASURE);

    e->what = what;
    e->side = (uint8_t)side;
    e->step.gang = p->live[side].number;
    e->step.arm = p->live[side].arm;
    e->step.vars = p->live[side].vars;
    if (what < p->spec.nrows) {
        ask_row(p, &p->spec.rows[what], side, first, &e->step.m);
    } else {
        ask_control(&p->controls[what - p->spec.nrows], &e->step.m);
    }
    e->step.cs = e->step.m.cs;
}

/* Each row's blocks close together, in the order A B B A B A A B. */
static void push_blocks(struct nt_check_plan *p)
{
    uint32_t order[NT_CHECK_ROWS + NT_CHECK_CONTROLS];
    size_t n = whats(p);

    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    nt_rng_shuffle(&p->rng, order, n);
    for (size_t i = 0; i < n; i++) {
        unsigned a = (unsigned)nt_rng_below(&p->rng, 2);
        unsigned blocks = order[i] < p->spec.nrows ? BLOCKS : BLOCKS / 2; /* controls are quiet */
        for (unsigned b = 0; b < SIDES * blocks; b++) {
            unsigned second = (b ^ (b >> 1) ^ (b >> 2)) & 1U; /* Thue and Morse's order */
            push_block(p, order[i], a ^ second, b < SIDES && p->pair == 0);
        }
    }
}

/* A lost pair is measured anew, in fresh gangs. */
static void clear_pair(struct nt_check_plan *p)
{
    for (size_t i = 0; i < whats(p); i++) {
        for (unsigned side = 0; side < SIDES; side++) {
            p->x[i][side][p->pair] = 0;
            p->blocks[i][side][p->pair] = 0;
        }
    }
}

static void refill(struct nt_check_plan *p)
{
    p->head = p->tail = 0;
    if (!p->alive && !p->lost && p->pair < p->spec.pairs) {
        start(p);
        push_blocks(p);
    } else if (p->alive) {
        (void)push(p, NT_DO_STOP);
        p->alive = false;
        p->pair += !p->lost;
    } else if (p->lost && ++p->redo <= MAX_REDO && p->pair < p->spec.pairs) {
        clear_pair(p);
        p->lost = false;
    } else {
        if (p->lost) {
            clear_pair(p);
        }
        p->done = true;
    }
}

int nt_check_next(void *plan, struct nt_plan_step *ret, struct nt_err *err)
{
    struct nt_check_plan *p = plan;

    (void)err;
    while (p->head == p->tail && !p->done) {
        refill(p);
    }
    if (p->head == p->tail) {
        *ret = (struct nt_plan_step){.kind = NT_DO_FINISHED};
        return 0;
    }
    p->queue[p->head].step.seq = p->queue[p->head].step.m.id = p->seq + 1;
    *ret = p->queue[p->head].step;
    return 0;
}

/* ------------------------------------------------------------------ outcomes */

static bool as_asked(const struct nt_executed *x, const struct nt_call *call)
{
    return call->algo < 0 || x->algo < 0 ||
           (x->algo == call->algo && x->proto == call->proto &&
            (call->channels == 0 || x->channels <= call->channels));
}

static void fault(struct nt_check_row *r, const char *what, const char *words)
{
    r->verdict = NT_CK_DRIFTED;
    (void)snprintf(r->why, sizeof(r->why), "%s%s%.100s", what, words[0] != '\0' ? ": " : "", words);
}

static void tell_row(struct nt_check_plan *p, const struct entry *e, const struct nt_result *x)
{
    struct nt_check_row *r = &p->spec.rows[e->what];
    char text[48];

    if (x->status == NT_ST_NOT_RECORDED) {
        r->verdict = NT_CK_NOT_MEASURED;
        (void)snprintf(r->why, sizeof(r->why), "%.150s", x->error);
    } else if (e->side == TUNED && x->status == NT_ST_WRONG) {
        fault(r, "wrong data", x->error);
    } else if (e->side == TUNED && x->status == NT_ST_UNAVAILABLE) {
        fault(r, "NCCL does not offer it any more", x->error);
    } else if ((e->step.m.flags & NT_M_READBACK) != 0 && x->status == NT_ST_OK &&
               !as_asked(&x->executed, &r->call)) {
        fault(r, "the row is not in use, NCCL ran",
              nt_executed_text(&x->executed, text, sizeof(text)));
    }
}

int nt_check_tell(void *plan, const struct nt_plan_outcome *o, struct nt_err *err)
{
    struct nt_check_plan *p = plan;
    const struct entry *e = &p->queue[p->head++];
    bool gone = o->lost;

    (void)err;
    p->seq += e->step.kind == NT_DO_START ? e->step.ngangs : (size_t)(e->step.kind != NT_DO_STOP);
    for (size_t i = 0; e->step.kind == NT_DO_START && i < SIDES; i++) {
        gone = gone || o->gangs[i].status != NT_ST_OK;
    }
    if (e->step.kind == NT_DO_MEASURE) {
        double log_ns = plan_log_median(o->result);
        if (e->what < p->spec.nrows) {
            tell_row(p, e, o->result);
        }
        if (!isnan(log_ns)) {
            double *at = &p->x[e->what][e->side][p->pair];
            unsigned n = ++p->blocks[e->what][e->side][p->pair];
            *at += (log_ns - *at) / n;
        }
    }
    if (gone) { /* the rest of the pair is left out */
        p->head = p->tail = 0;
        p->lost = true;
    }
    return 0;
}

unsigned nt_check_judge(struct nt_check_plan *p,
                        struct nt_check_control controls[NT_CHECK_CONTROLS])
{
    double v[SIDES][NT_CHECK_PAIRS], both[SIDES * NT_CHECK_PAIRS];

    for (size_t i = 0; i < whats(p); i++) {
        size_t n = 0;
        for (unsigned k = 0; k < p->pair; k++) {
            for (unsigned side = 0; side < SIDES; side++) {
                bool known = p->blocks[i][side][k] > 0;
                v[side][k] = known ? p->x[i][side][k] : NAN;
                if (known) {
                    both[n++] = v[side][k];
                }
            }
        }
        if (i < p->spec.nrows) {
            struct nt_check_row *r = &p->spec.rows[i];
            r->ratio = nt_estimate_pairs(v[DEFAULT], v[TUNED], p->pair, 0.95);
            r->log_default = nt_estimate(v[DEFAULT], p->pair, 0.95);
            r->log_tuned = nt_estimate(v[TUNED], p->pair, 0.95);
            nt_check_row_judge(r);
        } else {
            p->controls[i - p->spec.nrows].log_ns = nt_estimate(both, n, 0.95);
        }
    }
    memcpy(controls, p->controls, sizeof(p->controls));
    return p->pair;
}
