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
    uint64_t spent_ns, pair_ns; /* so far, and when the running pair began */
    uint64_t longest_ns;        /* of a pair */
    unsigned look;              /* pairs at the next look */
    double spent;               /* share of the chances, by the looks so far */
    struct row_state {
        bool told, faulty; /* faulty: the verdict was seen in an answer, not in times */
        struct nt_executed ran[SIDES];
    } * state;
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

    if (spec->least < NT_CHECK_LEAST_PAIRS || spec->most > NT_CHECK_PAIRS ||
        spec->least > spec->most) {
        return nt_fail(err, NT_E_INVAL, 0, "%u to %u pairs: must be %d to %d", spec->least,
                       spec->most, NT_CHECK_LEAST_PAIRS, NT_CHECK_PAIRS);
    }
    p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "check");
    }
    p->spec = *spec;
    p->look = spec->least;
    nt_check_controls(p->controls);
    nt_rng_seed(&p->rng, spec->seed);
    p->cap = 1 + (size_t)whats(p) * SIDES * BLOCKS;
    p->queue = calloc(p->cap, sizeof(p->queue[0]));
    p->x = calloc(whats(p), sizeof(p->x[0]));
    p->blocks = calloc(whats(p), sizeof(p->blocks[0]));
    p->state = calloc(spec->nrows + 1, sizeof(p->state[0]));
    if (p->queue == NULL || p->x == NULL || p->blocks == NULL || p->state == NULL) {
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
        free(p->state);
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
    p->pair_ns = p->spent_ns;
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
    if (first && (side == TUNED || !r->gains)) {
        m->flags |= NT_M_READBACK;
    }
    if (first && side == TUNED) {
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

/* Blocks of each row that is not told yet close together, in the order A B B A B A A B. */
static void push_blocks(struct nt_check_plan *p)
{
    uint32_t order[NT_CHECK_ROWS + NT_CHECK_CONTROLS];
    size_t n = 0;

    for (uint32_t i = 0; i < whats(p); i++) {
        if (i >= p->spec.nrows || !p->state[i].told) {
            order[n++] = i;
        }
    }
    nt_rng_shuffle(&p->rng, order, n);
    for (size_t i = 0; i < n; i++) {
        unsigned a = (unsigned)nt_rng_below(&p->rng, 2);
        unsigned blocks = order[i] < p->spec.nrows ? BLOCKS : BLOCKS / 2; /* controls are quiet */
        for (unsigned b = 0; b < SIDES * blocks; b++) {
            push_block(p, order[i], a ^ nt_rng_abba(b), b < SIDES && p->pair == 0);
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

/* ------------------------------------------------------------------ looks */

/* A row's logarithms in each pair, NAN where there is none. */
static void values(const struct nt_check_plan *p, size_t what, double v[SIDES][NT_CHECK_PAIRS])
{
    for (unsigned side = 0; side < SIDES; side++) {
        for (unsigned k = 0; k < p->pair; k++) {
            v[side][k] = p->blocks[what][side][k] > 0 ? p->x[what][side][k] : NAN;
        }
    }
}

/* A row that only keeps what the default runs, and does: the same work takes the same time, unless
 * it is shown to take more. */
static bool same_work(const struct nt_check_plan *p, size_t i)
{
    const struct nt_check_row *r = &p->spec.rows[i];
    const struct nt_executed *ran = p->state[i].ran;

    return !r->gains && r->call.chunk_bytes == 0 && ran[TUNED].channels > 0 &&
           nt_executed_equal(&ran[TUNED], &ran[DEFAULT]) && confirm_by_tuple(p->spec.vars);
}

/* Judges the rows that are not told yet; the last look spends what is left of the chances. Returns
 * whether there is one that further pairs could tell. */
static bool look(struct nt_check_plan *p, bool last)
{
    double v[SIDES][NT_CHECK_PAIRS];
    double spent = last ? 1 : nt_check_spent(p->pair, p->spec.most), share = spent - p->spent;
    bool open = false;

    for (size_t i = 0; i < p->spec.nrows; i++) {
        struct nt_check_row *r = &p->spec.rows[i], seen = *r;
        if (p->state[i].told) {
            continue;
        }
        values(p, i, v);
        nt_check_row_judge(r, v[DEFAULT], v[TUNED], p->pair, NT_CHECK_MISS * share,
                           NT_CHECK_ALARM / (double)p->spec.nrows * share);
        if (p->state[i].faulty) {
            r->verdict = seen.verdict;
            memcpy(r->why, seen.why, sizeof(r->why));
        } else if (r->verdict == NT_CK_CANNOT_TELL && same_work(p, i)) {
            r->verdict = NT_CK_HOLDS;
            r->why[0] = '\0';
        }
        p->state[i].told =
            p->state[i].faulty || r->verdict == NT_CK_HOLDS || r->verdict == NT_CK_DRIFTED;
        open = open || !p->state[i].told;
    }
    p->spent = spent;
    return open;
}

static bool affordable(const struct nt_check_plan *p)
{
    return p->pair < p->spec.least || p->spec.budget_ns == 0 ||
           p->spent_ns + p->longest_ns <= p->spec.budget_ns;
}

/* After a whole pair: another one, or is everything told? */
static void decide(struct nt_check_plan *p)
{
    uint64_t took = p->spent_ns - p->pair_ns;
    bool last;

    p->longest_ns = took > p->longest_ns ? took : p->longest_ns;
    last = p->pair == p->spec.most || !affordable(p);
    if (last || p->pair == p->look) {
        p->done = !look(p, last) || last;
        p->look = nt_check_next_look(p->pair, p->spec.most);
    }
}

static void refill(struct nt_check_plan *p)
{
    p->head = p->tail = 0;
    if (p->alive) {
        (void)push(p, NT_DO_STOP);
        p->alive = false;
    } else if (p->lost && ++p->redo > MAX_REDO) {
        clear_pair(p);
        p->done = true;
        (void)look(p, true);
    } else {
        if (p->lost) {
            clear_pair(p);
            p->lost = false;
        }
        start(p);
        push_blocks(p);
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

static void fault(struct nt_check_row *r, bool *faulty, const char *what, const char *words)
{
    *faulty = true;
    r->verdict = NT_CK_DRIFTED;
    (void)snprintf(r->why, sizeof(r->why), "%s%s%.100s", what, words[0] != '\0' ? ": " : "", words);
}

static void tell_row(struct nt_check_plan *p, const struct entry *e, const struct nt_result *x)
{
    struct nt_check_row *r = &p->spec.rows[e->what];
    bool *faulty = &p->state[e->what].faulty;
    char text[48];

    if ((e->step.m.flags & NT_M_READBACK) != 0 && x->status == NT_ST_OK) {
        p->state[e->what].ran[e->side] = x->executed;
    }
    if (x->status == NT_ST_NOT_RECORDED) {
        *faulty = true;
        r->verdict = NT_CK_NOT_MEASURED;
        (void)snprintf(r->why, sizeof(r->why), "%.150s", x->error);
    } else if (e->side == TUNED && x->status == NT_ST_WRONG) {
        fault(r, faulty, "wrong data", x->error);
    } else if (e->side == TUNED && x->status == NT_ST_UNAVAILABLE) {
        fault(r, faulty, "NCCL does not offer it any more", x->error);
    } else if (e->side == TUNED && (e->step.m.flags & NT_M_READBACK) != 0 &&
               x->status == NT_ST_OK && !as_asked(&x->executed, &r->call)) {
        fault(r, faulty, "the row is not in use, NCCL ran",
              nt_executed_text(&x->executed, text, sizeof(text)));
    }
}

int nt_check_tell(void *plan, const struct nt_plan_outcome *o, struct nt_err *err)
{
    struct nt_check_plan *p = plan;
    const struct entry *e = &p->queue[p->head++];
    bool gone = o->lost;

    (void)err;
    p->spent_ns += o->elapsed_ns;
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
    } else if (e->step.kind == NT_DO_STOP && !p->lost) {
        p->pair++;
        decide(p);
    }
    return 0;
}

unsigned nt_check_judge(struct nt_check_plan *p,
                        struct nt_check_control controls[NT_CHECK_CONTROLS])
{
    double v[SIDES][NT_CHECK_PAIRS];

    for (size_t i = 0; i < NT_CHECK_CONTROLS; i++) {
        double both[SIDES * NT_CHECK_PAIRS];
        values(p, p->spec.nrows + i, v);
        for (unsigned k = 0; k < p->pair; k++) {
            both[SIDES * k] = v[DEFAULT][k];
            both[SIDES * k + 1] = v[TUNED][k];
        }
        p->controls[i].log_ns = nt_estimate(both, (size_t)p->pair * SIDES, 0.95);
    }
    memcpy(controls, p->controls, sizeof(p->controls));
    return p->pair;
}
