/* The core of the plan: queue of steps, gangs, stages. What a stage does stands in its own file. */
#include "profiles/format/limits.h"
#include "tuner/job/plan_i.h"
#include "tuner/job/weigh.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const nt_arm_names[NT_ARM_COUNT + 1] = {
    [NT_ARM_SEARCH] = "search", [NT_ARM_DEFAULT] = "default",   [NT_ARM_TABLE] = "table",
    [NT_ARM_STATIC] = "static", [NT_ARM_AS_FOUND] = "as-found", [NT_ARM_BACKENDS] = "backends",
};
const char *const nt_stage_names[NT_STAGE_COUNT + 1] = {
    [NT_PREFLIGHT] = "preflight", [NT_RACE] = "race",       [NT_REFINE] = "refine",
    [NT_GATE] = "gate",           [NT_CONFIRM] = "confirm", [NT_BACKENDS] = "backends",
    [NT_PUBLISH] = "publish",
};

static const stage_fn stages[NT_STAGE_COUNT] = {
    [NT_PREFLIGHT] = preflight_refill, [NT_RACE] = race_refill,
    [NT_REFINE] = refine_refill,       [NT_GATE] = gate_refill,
    [NT_CONFIRM] = confirm_refill,     [NT_BACKENDS] = backends_refill,
    [NT_PUBLISH] = publish_refill,
};

static const tell_fn tells[PURPOSE_COUNT] = {
    [FOR_WARM] = preflight_tell,
    [FOR_NOISE] = preflight_tell,
    [FOR_TYPE] = preflight_type_tell,
    [FOR_EXPLORE] = explore_tell,
    [FOR_CHUNK] = chunks_tell,
    [FOR_BLOCK] = block_tell,
    [FOR_GATE] = gate_tell,
    [FOR_KEPT_LOOK] = kept_look_tell,
    [FOR_KEPT_BLOCK] = kept_block_tell,
    [FOR_KEPT_GATE] = kept_gate_tell,
    [FOR_CHECK] = check_tell,
    [FOR_BACKEND_LOOK] = backend_look_tell,
    [FOR_BACKEND_BLOCK] = backend_block_tell,
    [FOR_BACKEND_GATE] = backend_gate_tell,
    [FOR_BACKEND_CHECK] = backend_check_tell,
};

enum { MAX_LOSSES = 4 }; /* gangs lost in a row before the machine itself is blamed */

int nt_plan_new(const struct nt_spec *spec, struct nt_plan **ret, struct nt_err *err)
{
    struct nt_plan *p = calloc(1, sizeof(*p));

    if (p == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "plan");
    }
    p->spec = *spec;
    nt_rng_seed(&p->rng, nt_mix(spec->seed, 0x706c616e));
    p->points = calloc((size_t)NT_COLL_COUNT * spec->nsizes, sizeof(p->points[0]));
    p->order = calloc((size_t)NT_COLL_COUNT * spec->nsizes, sizeof(p->order[0]));
    if (p->points == NULL || p->order == NULL) {
        nt_plan_free(p);
        return nt_fail(err, NT_E_NOMEM, 0, "plan");
    }
    for (int c = 0; c < NT_COLL_COUNT; c++) {
        for (size_t i = 0; spec->colls[c] && i < spec->nsizes; i++) {
            p->points[p->npoints++] = (struct point){.coll = (uint8_t)c, .bytes = spec->sizes[i]};
        }
    }
    for (int m = 0; m < NT_MODE_COUNT; m++) {
        if (spec->modes[m]) {
            p->modes[p->nmodes++] = (enum nt_mode)m;
        }
    }
    p->raced_dtype = spec->raced_dtype;
    for (int i = NT_PLACE_COUNT - 1; i >= 0; i--) {
        p->raced_place = spec->places[i] ? (enum nt_place)i : p->raced_place;
    }
    for (size_t i = 0; i < spec->nsettings; i++) {
        (void)snprintf(p->settings[i].vars, NT_SETTING_LEN, "%s", spec->settings[i]);
    }
    p->nsettings = (uint32_t)spec->nsettings;
    *ret = p;
    return 0;
}

void nt_plan_free(struct nt_plan *p)
{
    if (p == NULL) {
        return;
    }
    for (uint32_t s = 0; s < p->nsettings; s++) {
        for (uint32_t i = 0; p->settings[s].cells != NULL && i < p->npoints; i++) {
            for (int m = 0; m < NT_MODE_COUNT; m++) {
                nt_race_free(p->settings[s].cells[i].race[m]);
            }
        }
        free(p->settings[s].cells);
    }
    nt_refine_free(p->refine);
    confirm_free(p);
    backends_free(p);
    nt_drift_free(&p->drift);
    free(p->result.backend_classes);
    free(p->result.classes);
    free(p->points);
    free(p->order);
    free(p->queue);
    free(p);
}

/* ------------------------------------------------------------------ queue */

static int fail(struct nt_plan *p, enum nt_code code, const char *what)
{
    return p->failed.code != NT_OK ? -(int)p->failed.code
                                   : nt_fail(&p->failed, code, 0, "%s", what);
}

struct todo *plan_push(struct nt_plan *p, enum nt_do kind, enum purpose purpose)
{
    static struct todo scratch; /* written when memory ran out; the plan has failed then */
    struct todo *t;

    if (p->tail == p->cap) {
        size_t cap = p->cap == 0 ? 256 : p->cap * 2;
        struct todo *grown = realloc(p->queue, cap * sizeof(p->queue[0]));
        if (grown == NULL) {
            (void)fail(p, NT_E_NOMEM, "queue of steps");
            return &scratch;
        }
        p->queue = grown;
        p->cap = cap;
    }
    t = &p->queue[p->tail++];
    *t = (struct todo){.purpose = purpose,
                       .setting = NONE,
                       .point = NONE,
                       .mode = NONE,
                       .arm = NONE,
                       .index = NONE};
    t->step.kind = kind;
    t->step.stage = p->stage;
    return t;
}

void plan_flush(struct nt_plan *p)
{
    p->head = p->tail = 0;
}

static const char *arm_vars(const struct nt_plan *p, enum nt_arm arm, uint32_t setting)
{
    switch (arm) {
    case NT_ARM_SEARCH:
        return p->settings[setting].vars;
    case NT_ARM_TABLE:
        return p->settings[p->table_setting].vars;
    case NT_ARM_STATIC:
        return p->static_vars;
    case NT_ARM_AS_FOUND:
        return p->spec.as_found;
    default:
        return "";
    }
}

/* After a lost gang: does NCCL left alone still work? Asked of a gang that runs just that. */
static void push_canary(struct nt_plan *p)
{
    struct nt_case cs = plan_case(p, 0, p->modes[0]);

    for (size_t i = 0; i < p->nlive && p->canary; i++) {
        if (p->live[i].arm == NT_ARM_DEFAULT || p->live[i].arm == NT_ARM_BACKENDS ||
            (p->live[i].arm == NT_ARM_SEARCH && p->live_setting == 0)) {
            p->canary = false;
            (void)plan_measure(p, i, FOR_CANARY, &cs, NT_CALL_DEFAULT, 1e6, 3);
        }
    }
}

int plan_start(struct nt_plan *p, const enum nt_arm *arms, size_t n, uint32_t setting)
{
    struct todo *t = plan_push(p, NT_DO_START, FOR_NOTHING);

    t->setting = setting;
    t->step.ngangs = n;
    p->live_setting = setting;
    p->race_gang = NONE;
    for (size_t i = 0; i < n; i++) {
        t->step.gangs[i] = (struct nt_plan_gang){
            .number = ++p->gang_number, .arm = arms[i], .vars = arm_vars(p, arms[i], setting)};
        p->live[i] = t->step.gangs[i];
    }
    p->nlive = n;
    if (p->canary) {
        push_canary(p);
    }
    return 0;
}

void plan_stop(struct nt_plan *p)
{
    if (p->nlive > 0) {
        (void)plan_push(p, NT_DO_STOP, FOR_NOTHING);
        p->nlive = 0;
    }
}

struct nt_case plan_case(const struct nt_plan *p, uint32_t point, enum nt_mode mode)
{
    return (struct nt_case){.coll = p->points[point].coll,
                            .bytes = p->points[point].bytes,
                            .dtype = (uint8_t)p->raced_dtype,
                            .place = (uint8_t)p->raced_place,
                            .mode = (uint8_t)mode};
}

bool plan_serves(const struct nt_plan *p, uint8_t coll, int dtype, int place)
{
    return p->spec.dtypes[dtype] && p->spec.places[place] && !p->absent[coll][dtype] &&
           (place == NT_OUT_OF_PLACE || nt_coll_in_place((enum nt_coll)coll));
}

/* Calls per iteration (K): enough that a graph's launch and its clock are small beside them. */
unsigned plan_inner(enum nt_mode mode, double est_ns)
{
    static const struct {
        double below_ns;
        unsigned inner;
    } table[] = {{50e3, 20}, {300e3, 10}, {1e6, 4}, {4e6, 2}};

    for (size_t i = 0; mode != NT_EAGER && i < sizeof(table) / sizeof(table[0]); i++) {
        if (est_ns < table[i].below_ns) {
            return table[i].inner;
        }
    }
    return 1;
}

/* Iterations of a full block: some milliseconds of calls, at least three. */
unsigned plan_samples(enum nt_mode mode, double est_ns)
{
    double each = est_ns * plan_inner(mode, est_ns), n = 6e6 / each;
    unsigned most = mode == NT_EAGER ? 12 : 6, least = each > 20e6 ? 2 : 3;
    return n > most ? most : n < least ? least : (unsigned)n;
}

struct todo *plan_measure(struct nt_plan *p, size_t live, enum purpose purpose,
                          const struct nt_case *cs, struct nt_call call, double est_ns,
                          unsigned samples)
{
    struct todo *t = plan_push(p, NT_DO_MEASURE, purpose);
    struct nt_measure *m = &t->step.m;

    t->step.gang = p->live[live].number;
    t->step.arm = p->live[live].arm;
    t->step.vars = p->live[live].vars;
    t->step.cs = *cs;
    m->cs = *cs;
    m->call = call;
    m->warmup = 1;
    m->samples = samples;
    m->inner = plan_inner((enum nt_mode)cs->mode, est_ns);
    m->verify = NT_VERIFY_NO;
    /* Connecting an algorithm for the first time and an arm far slower than expected both have
     * room. */
    m->deadline_ms = 4000 + (uint32_t)fmin(60e3, 20.0 * est_ns * 1e-6 * (samples + 3) * m->inner);
    return t;
}

double plan_log_median(const struct nt_result *r)
{
    uint32_t copy[NT_MAX_SAMPLES];
    double median;

    if (r->status != NT_ST_OK || r->count == 0 || r->count > NT_MAX_SAMPLES) {
        return NAN;
    }
    memcpy(copy, r->ns, r->count * sizeof(copy[0]));
    median = nt_quantile_u32(copy, r->count, 0.5);
    return median > 0 ? log(median) : NAN;
}

void plan_not_checked(struct nt_plan *p, const char *fmt, ...)
{
    char text[160];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < p->result.nnot_checked; i++) {
        if (strcmp(p->result.not_checked[i].text, text) == 0) {
            return;
        }
    }
    if (p->result.nnot_checked < sizeof(p->result.not_checked) / sizeof(p->result.not_checked[0])) {
        memcpy(p->result.not_checked[p->result.nnot_checked++].text, text, sizeof(text));
    }
}

/* Log default time under a setting, the mean of its gangs; for "as is" those of the preflight count
 * too. */
double plan_default_log(const struct nt_plan *p, uint32_t setting, uint32_t point,
                        enum nt_mode mode)
{
    const struct cell *c =
        p->settings[setting].cells != NULL ? &p->settings[setting].cells[point] : NULL;
    double sum = 0;
    uint32_t n = 0;

    for (uint32_t g = 0; c != NULL && g < NT_RACE_MAX_GANGS; g++) {
        if (c->def[mode][g].n > 0) {
            sum += c->def[mode][g].sum / c->def[mode][g].n;
            n++;
        }
    }
    for (uint32_t i = 0, k; setting == 0 && i < p->points[point].pre[mode].n; i = k) {
        double gang = 0;
        for (k = i; k < p->points[point].pre[mode].n &&
                    p->points[point].pre[mode].gang[k] == p->points[point].pre[mode].gang[i];
             k++) {
            gang += p->points[point].pre[mode].value[k];
        }
        sum += gang / (k - i);
        n++;
    }
    return n > 0 ? sum / n : NAN;
}

double plan_default_ns(const struct nt_plan *p, uint32_t point, enum nt_mode mode)
{
    double l;

    if (p->points[point].pre[mode].est_ns > 0) {
        return p->points[point].pre[mode].est_ns;
    }
    l = plan_default_log(p, 0, point, mode);
    return !isnan(l) ? exp(l) : p->points[point].bytes > (4U << 20) ? 10e6 : 1e6;
}

double plan_weight(const struct nt_plan *p, uint32_t point, enum nt_mode mode)
{
    const struct point *pt = &p->points[point];
    double calls = nt_spec_weight(&p->spec, pt->coll, pt->bytes, (int)mode);

    return p->spec.nweights == 0 ? calls : calls * plan_default_ns(p, point, mode);
}

/* What the driver adds to each measure (messages, database, the planner): 0.21 to 0.28 ms in whole
 * jobs on one and two GPUs; starts hold what a stop took. */
static const uint64_t STEP_NS = 350000;

uint64_t plan_used_ns(const struct nt_plan *p)
{
    return p->held_ns + p->trials * STEP_NS;
}

/* A table with variables may need a second round. */
bool plan_search_over(const struct nt_plan *p)
{
    uint64_t reserve = p->reserve_ns;

    if (p->table_setting != 0 && p->settings[p->table_setting].vars[0] != '\0') {
        reserve += reserve * LEAST_PAIRS / p->spec.pairs;
    }
    return p->spec.budget_ns > 0 && plan_used_ns(p) + reserve >= p->spec.budget_ns;
}

/* ------------------------------------------------------------------ ask and tell */

int nt_plan_next(struct nt_plan *p, struct nt_plan_step *ret, struct nt_err *err)
{
    while (p->head == p->tail && p->failed.code == NT_OK && !p->finished) {
        plan_flush(p);
        if (!stages[p->stage](p)) { /* what it queued last, a stop, is still done */
            p->finished = p->stage == NT_PUBLISH;
            p->stage = p->finished ? p->stage : p->stage + 1;
        }
    }
    if (p->failed.code != NT_OK) {
        *err = p->failed;
        return -(int)p->failed.code;
    }
    if (p->head == p->tail) {
        *ret = (struct nt_plan_step){.kind = NT_DO_FINISHED, .stage = p->stage};
        return 0;
    }
    p->queue[p->head].step.seq = p->seq + 1;
    p->queue[p->head].step.m.id = p->seq + 1;
    *ret = p->queue[p->head].step;
    ret->m.flags |= ret->kind == NT_DO_MEASURE ? nt_case_flags(&ret->m.cs) : 0;
    return 0;
}

/* A gang is gone: all of its company is ended, and the stage starts afresh. */
static void lost(struct nt_plan *p, const char *why)
{
    static const enum nt_arm search = NT_ARM_SEARCH;
    bool searched = p->nlive > 0 && p->live[0].arm == NT_ARM_SEARCH, of_setting;
    struct setting *s = &p->settings[p->live_setting];

    of_setting = searched && p->live_setting != 0;
    if (searched && p->race_gang != NONE) {
        s->gangs--; /* the next one takes its place in the races */
        s->again = true;
    }
    s->losses += searched;
    plan_flush(p);
    p->nlive = p->nlive > 0 ? p->nlive : 1;
    plan_stop(p);
    p->canary = true;
    if (of_setting) { /* whose fault was it? A setting that hangs is no reason to give up the job */
        (void)plan_start(p, &search, 1, 0);
        plan_stop(p);
    }
    if (p->stage == NT_BACKENDS) { /* it bans what hangs, and counts by itself */
        return;
    }
    if (++p->losses >= MAX_LOSSES) {
        (void)nt_fail(
            &p->failed, NT_E_MISSING, 0,
            "%u gangs in a row were lost, the last: %.200s; look at the logs of its ranks",
            p->losses, why);
    }
}

/* NCCL left alone is what all else is judged against: it may be lost once or twice, by chance. */
static void lost_default(struct nt_plan *p, const struct nt_plan_step *s, const struct nt_result *r)
{
    bool alone = s->arm == NT_ARM_DEFAULT ||
                 (s->arm == NT_ARM_SEARCH && p->live_setting == 0 && s->m.call.algo < 0);
    char text[80];

    if (alone && ++p->default_losses >= MAX_LOSSES) {
        (void)nt_fail(&p->failed, NT_E_MISSING, 0,
                      "NCCL's default was lost %u times, the last at %s (%s): %.200s",
                      p->default_losses, nt_case_text(&s->m.cs, text, sizeof(text)),
                      nt_status_names[r->status], r->error);
    }
}

static void tell_start(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    p->start_ns = (p->start_ns * p->starts + o->elapsed_ns) / (p->starts + 1);
    p->starts++;
    for (size_t i = 0; i < t->step.ngangs; i++) {
        enum nt_arm arm = t->step.gangs[i].arm;
        uint64_t memory = o->gangs[i].memory_bytes;
        if (o->gangs[i].status == NT_ST_OK) {
            /* Gangs of a pair start together, and the device tells what all have taken: the least
             * of all pairs is nearest to what one takes. */
            uint64_t *least = &p->result.memory_bytes[arm];
            *least = *least == 0 || memory < *least ? memory : *least;
            continue;
        }
        if (arm == NT_ARM_SEARCH && t->setting != 0) { /* this setting does not even start */
            p->settings[t->setting].status = o->gangs[i].status;
            plan_flush(p);
            plan_stop(p);
            return;
        }
        if (arm == NT_ARM_TABLE || arm == NT_ARM_STATIC) {
            p->confirm.table = p->confirm.table && arm != NT_ARM_TABLE;
            p->confirm.fixed = p->confirm.fixed && arm != NT_ARM_STATIC;
            plan_not_checked(p, "%s: its gang did not start (%s)", nt_arm_names[arm],
                             nt_status_names[o->gangs[i].status]);
        }
        lost(p, "a gang did not start");
        return;
    }
}

static void account(struct nt_plan *p, const struct nt_plan_step *s, uint64_t elapsed_ns)
{
    p->held_ns += elapsed_ns;
    p->result.stage_ns[s->stage] += elapsed_ns;
}

/* What tells whether the machine gets slower: see drift.h. */
static void note_drift(struct nt_plan *p, const struct todo *t, const struct nt_result *r)
{
    const struct nt_case *cs = &t->step.m.cs;
    enum nt_drift_kind kind;
    uint64_t what;

    if (t->purpose == FOR_BLOCK && t->step.m.call.algo < 0) {
        kind = NT_DRIFT_WITHIN;
    } else if (t->purpose == FOR_CHECK && t->step.arm == NT_ARM_DEFAULT) {
        kind = NT_DRIFT_OF_DEFAULT;
    } else if (t->purpose == FOR_CHECK && t->step.arm == NT_ARM_TABLE) {
        kind = NT_DRIFT_OF_TUNED;
    } else {
        return;
    }
    what = nt_mix(cs->bytes, cs->coll | (uint64_t)cs->dtype << 8 | (uint64_t)cs->place << 16 |
                                 (uint64_t)cs->mode << 24 |
                                 (uint64_t)(t->step.m.flags & ~(uint32_t)NT_M_READBACK) << 32);
    what = nt_mix(what, p->confirm.again); /* another table */
    nt_drift_add(&p->drift, kind, t->step.gang, what, plan_log_median(r));
}

/* What no row can hold is not raced, whatever a NCCL newer than this program offers. */
static void take_cells(struct point *pt, const struct nt_cells *cells)
{
    pt->asked = cells->asked;
    for (int a = 0; a < NT_ALGO_COUNT; a++) {
        for (int k = 0; k < NT_PROTO_COUNT; k++) {
            pt->cost[a][k] = nt_kernel_exists(pt->coll, a, k) ? cells->cost[a][k] : -1;
        }
    }
}

int nt_plan_tell(struct nt_plan *p, const struct nt_plan_outcome *o, struct nt_err *err)
{
    struct todo t;

    nt_assert(p->head < p->tail);
    t = p->queue[p->head++];
    account(p, &t.step, o->elapsed_ns);
    switch (t.step.kind) {
    case NT_DO_START:
        p->seq += t.step.ngangs;
        tell_start(p, &t, o);
        break;
    case NT_DO_STOP:
        break;
    case NT_DO_CELLS:
        p->seq++;
        if (o->lost) {
            lost(p, "asked for its cells");
        } else if (t.purpose == FOR_KEPT_LOOK) {
            kept_cells_tell(p, &t, &o->cells);
        } else {
            take_cells(&p->points[t.point], &o->cells);
        }
        break;
    default:
        p->seq++;
        p->trials++;
        if (o->result->status == NT_ST_OK) {
            p->losses = 0;
            note_drift(p, &t, o->result);
        }
        /* A table's gang asks for nothing itself, whatever its step says. */
        if ((t.step.m.call.algo < 0 || t.step.arm == NT_ARM_TABLE) &&
            o->result->connect_ns > p->result.first_call_ns[t.step.arm]) {
            p->result.first_call_ns[t.step.arm] = o->result->connect_ns;
        }
        if (tells[t.purpose] != NULL) {
            tells[t.purpose](p, &t, o);
        }
        if (o->lost) {
            lost_default(p, &t.step, o->result);
            lost(p, o->result->error);
        }
        break;
    }
    if (p->failed.code != NT_OK && err != NULL) {
        *err = p->failed;
    }
    return -(int)p->failed.code;
}

const struct nt_row_result *nt_plan_rows(const struct nt_plan *p, size_t *ret_n)
{
    *ret_n = p->nserved;
    return p->served;
}

const char *nt_plan_table_vars(const struct nt_plan *p)
{
    return p->settings[p->table_setting].vars;
}

const struct nt_plan_result *nt_plan_result(const struct nt_plan *p)
{
    nt_assert(p->finished);
    return &p->result;
}

uint64_t nt_plan_least_budget(const struct nt_plan *p)
{
    return p->reserve_ns == 0 ? 0 : p->reserve_ns + p->result.stage_ns[NT_PREFLIGHT];
}

static double stage_done(const struct nt_plan *p)
{
    uint32_t n = p->npoints > 0 ? p->npoints : 1;
    switch (p->stage) {
    case NT_PREFLIGHT:
        return fmin(1, p->pre_gang / 4.0);
    case NT_RACE:
        return fmin(1, (p->settings[0].gangs + p->cursor / (double)n) / 5.0);
    case NT_REFINE:
        return p->spec.nsettings > 1
                   ? fmin(1, (p->refine != NULL ? nt_refine_tried(p->refine) : 0) /
                                 (double)p->spec.nsettings)
                   : 1;
    case NT_CONFIRM:
        return p->confirm.pair / (double)(p->spec.pairs + p->confirm.further);
    default:
        return 1;
    }
}

void nt_plan_progress(const struct nt_plan *p, struct nt_plan_progress *ret)
{
    double done = stage_done(p);
    *ret = (struct nt_plan_progress){.stage = p->stage,
                                     .done = done,
                                     .trials = p->trials,
                                     .held_ns = p->held_ns,
                                     .best_gain = p->best_gain,
                                     .best_case = p->best_case,
                                     .best_call = p->best_call};
    if (p->stage == NT_CONFIRM) {
        ret->left_ns = (uint64_t)((double)p->reserve_ns * (1 - done));
    } else if (p->reserve_ns >
               0) { /* the search has taken about as long as the confirm on all machines seen */
        double search = (double)p->result.stage_ns[NT_RACE] + (double)p->result.stage_ns[NT_REFINE];
        double left = fmax((double)p->reserve_ns * 0.8 - search, 0);
        ret->left_ns = p->reserve_ns + (uint64_t)left;
    }
}
