/* Race and refine: which executed tuples there are, which is fastest for each case, and which
 * process setting. */
#include "tuner/job/plan_i.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRID_BLOCKS = 5 }; /* of each tuple in a gang of the exhaustive grid */
/* What is this much slower in the first mode, for sure, is not raced in the others. */
static const double FAR_BEHIND = 1.4;

static const struct effort efforts[NT_EFFORT_COUNT] = {[NT_QUICK] = {2, 4, 0.5, 2.0, 0},
                                                       [NT_STANDARD] = {16, 12, 1.0, 1.0, 2},
                                                       [NT_THOROUGH] = {16, 32, 2.0, 0.3, 3}};

const struct effort *search_effort(const struct nt_plan *p)
{
    return &efforts[p->spec.effort];
}

uint32_t search_resolve(const struct cell *c, const struct nt_call *call)
{
    uint32_t best = NONE;

    for (uint32_t i = 0; i < c->ncalls; i++) {
        if (nt_call_equal(&c->calls[i].call, call)) {
            return c->calls[i].arm;
        }
    }
    /* Not asked because a smaller bound was already above what NCCL opens: it runs the same. */
    for (uint32_t i = 0; i < c->narms && call->channels > 0; i++) {
        const struct nt_executed *x = &c->arms[i].executed;
        if (x->algo == call->algo && x->proto == call->proto && x->channels <= call->channels &&
            c->arms[i].call.chunk_bytes == call->chunk_bytes &&
            (best == NONE || x->channels > c->arms[best].executed.channels)) {
            best = i;
        }
    }
    return best;
}

bool search_have_cells(struct nt_plan *p, uint32_t setting)
{
    struct setting *s = &p->settings[setting];
    if (s->cells == NULL) {
        s->by_tuple = setting != 0 && confirm_by_tuple(s->vars);
        s->cells = calloc(p->npoints, sizeof(s->cells[0]));
        if (s->cells == NULL) {
            (void)nt_fail(&p->failed, NT_E_NOMEM, 0, "cells");
        }
    }
    return s->cells != NULL;
}

const double search_far = 0.2;

static double standing_of(const struct cell *c, enum nt_mode mode, uint32_t arm, double *ret_se)
{
    struct nt_standing st;

    *ret_se = NAN;
    if (c == NULL || c->race[mode] == NULL || arm >= c->narms || c->arms[arm].status != NT_ST_OK) {
        return NAN;
    }
    st = nt_race_standing(c->race[mode], arm);
    *ret_se = arm == 0 ? 0 : st.se;
    return st.state == NT_ARM_FAILED ? NAN : arm == 0 ? 0 : st.log_ratio;
}

/* log(default of the setting / default as is). Where variables act by the tuple alone, a tuple that
 * runs with and without them takes the same time: it tells that without what gangs do to all calls.
 */
static double shift_of(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode mode,
                       double *ret_own_se, double *ret_level_se)
{
    const struct cell *c = &p->settings[setting].cells[point], *as_is = NULL;
    double gang_sd = p->points[point].pre[mode].gang_sd, best = INFINITY, shift = NAN;
    uint32_t gangs, gangs_as_is;
    double level = refine_level(p, setting, point, mode, &gangs) -
                   refine_level(p, 0, point, mode, &gangs_as_is);

    as_is = p->settings[0].cells != NULL ? &p->settings[0].cells[point] : NULL;
    *ret_own_se = 0;
    *ret_level_se = gang_sd * sqrt(1.0 / gangs + 1.0 / gangs_as_is);
    for (uint32_t i = 0; p->settings[setting].by_tuple && i < c->narms; i++) {
        double here_se, there_se, here, there;
        if (c->arms[i].twin == NONE) {
            continue;
        }
        here = standing_of(c, mode, i, &here_se);
        there = standing_of(as_is, mode, c->arms[i].twin, &there_se);
        if (!isnan(here) && !isnan(there) && hypot(here_se, there_se) < best) {
            best = hypot(here_se, there_se);
            shift = there - here;
        }
    }
    if (isfinite(best) && !(fabs(shift - level) - 2 * hypot(best, *ret_level_se) > search_far)) {
        *ret_own_se = best;
        *ret_level_se = 0;
        return shift;
    }
    return level;
}

double search_effect_apart(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode mode,
                           uint32_t arm, double *ret_own_se, double *ret_level_se)
{
    const struct setting *s = &p->settings[setting];
    const struct cell *c = s->cells != NULL ? &s->cells[point] : NULL;
    double se, own = standing_of(c, mode, arm, &se), shift_se, twin_se, twin = NAN;

    *ret_own_se = se;
    *ret_level_se = isnan(own) ? NAN : 0;
    if (setting == 0 || isnan(own)) {
        return own;
    }
    own += shift_of(p, setting, point, mode, &shift_se, ret_level_se);
    *ret_own_se = hypot(se, shift_se);
    if (c->arms[arm].twin != NONE) {
        twin = standing_of(&p->settings[0].cells[point], mode, c->arms[arm].twin, &twin_se);
    }
    if (!isnan(twin) && *ret_level_se == 0 && twin_se <= *ret_own_se &&
        !(fabs(own - twin) - 2 * *ret_own_se > search_far)) {
        *ret_own_se = twin_se;
        return twin;
    }
    return own;
}

double search_effect(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode mode,
                     uint32_t arm, double *ret_se)
{
    double level_se, effect = search_effect_apart(p, setting, point, mode, arm, ret_se, &level_se);
    *ret_se = setting == 0 ? *ret_se : hypot(*ret_se, level_se);
    return effect;
}

/* ------------------------------------------------------------------ racing */

/* Memory is all that can fail here. */
static void tell_race(struct nt_plan *p, struct nt_race *r, uint32_t gang, uint32_t arm,
                      double log_ns, uint32_t samples)
{
    if (nt_race_tell(r, gang, arm, log_ns, samples, &p->failed) != 0) {
        p->failed.code = p->failed.code != NT_OK ? p->failed.code : NT_E_NOMEM;
    }
}

/* Time of a full block of the default. */
static double block_ns(const struct nt_plan *p, uint32_t point, enum nt_mode m)
{
    double est = plan_default_ns(p, point, m);
    return est * plan_inner(m, est) * (1 + plan_samples(m, est));
}

double search_gang_blocks(const struct nt_plan *p, uint32_t point, enum nt_mode m, uint32_t races)
{
    return (double)p->start_ns / (races > 0 ? races : 1) / block_ns(p, point, m);
}

static bool is_outgrown(const struct cell *c, uint32_t arm)
{
    const struct nt_executed *x = &c->arms[arm].executed;
    return arm > 0 && c->arms[arm].status == NT_ST_OK && c->outgrown[x->algo][x->proto];
}

/* A tuple that lost "as is", for sure, does so under variables that do nothing to it. */
static bool lost_as_is(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode m,
                       uint32_t arm)
{
    const struct cell *as_is = &p->settings[0].cells[point];
    uint32_t twin = p->settings[setting].cells[point].arms[arm].twin;

    return setting != 0 && arm > 0 && twin != NONE && as_is->race[m] != NULL &&
           nt_race_behind(as_is->race[m], twin) > 0;
}

/* Is a tuple not raced, by what was seen at smaller sizes or without the variables? */
static bool is_no_match(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode m,
                        uint32_t arm)
{
    return is_outgrown(&p->settings[setting].cells[point], arm) ||
           lost_as_is(p, setting, point, m, arm);
}

static bool new_races(struct nt_plan *p, uint32_t setting, uint32_t point)
{
    struct cell *c = &p->settings[setting].cells[point];
    struct nt_race_arm arms[MAX_ARMS];

    for (uint32_t i = 0; i < c->narms; i++) {
        arms[i] = (struct nt_race_arm){.prior = c->arms[i].look_log,
                                       .tie_rank = search_tie_rank(&c->arms[i])};
    }
    for (uint32_t k = 0; k < p->nmodes; k++) {
        enum nt_mode m = p->modes[k];
        struct nt_race_config cfg = nt_race_defaults;
        double est = plan_default_ns(p, point, m);
        cfg.block_sd = fmax(p->points[point].pre[m].noise.block_sd, 0.005);
        cfg.gang_sd = fmax(p->points[point].pre[m].gang_sd, 0.005);
        cfg.block_samples = plan_samples(m, est);
        cfg.look_samples = cfg.block_samples < 3 ? cfg.block_samples : 3;
        cfg.max_gangs = efforts[p->spec.effort].max_gangs;
        cfg.min_gangs = cfg.min_gangs < cfg.max_gangs ? cfg.min_gangs : cfg.max_gangs;
        cfg.room = chunks_room(p, c);
        cfg.gang_blocks = search_gang_blocks(p, point, m, p->npoints * p->nmodes);
        cfg.seed = nt_mix(nt_mix(p->spec.seed, setting), nt_mix(point, m));
        if (nt_race_new(&cfg, arms, c->narms, &c->race[m], &p->failed) != 0) {
            return false;
        }
        for (uint32_t i = 0; i < c->narms; i++) {
            if (c->arms[i].status != NT_ST_OK) {
                nt_race_fail(c->race[m], i, c->arms[i].status);
                continue;
            }
            nt_race_pass(c->race[m], i, is_no_match(p, setting, point, m, i));
            if (m == explore_mode(p) && !isnan(c->arms[i].look_log)) {
                tell_race(p, c->race[m], p->race_gang, i, c->arms[i].look_log,
                          c->arms[i].look_samples);
            }
        }
    }
    return true;
}

static void push_block(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode m,
                       const struct nt_ask *ask)
{
    struct cell *c = &p->settings[setting].cells[point];
    struct nt_case cs = plan_case(p, point, m);
    const struct arm *a = &c->arms[ask->arm];
    double est = plan_default_ns(p, point, m);
    struct todo *t = plan_measure(p, 0, FOR_BLOCK, &cs, a->call, est, ask->samples);

    t->setting = setting;
    t->point = point;
    t->mode = m;
    t->arm = ask->arm;
    t->rep = ask->look;
    t->step.m.flags = ask->arm != 0 ? NT_M_OWN : 0; /* other gangs' times are no comparison */
    if ((a->gated & (1U << m)) == 0) { /* before it is timed in a mode, its data is right there */
        t->step.m.verify = NT_VERIFY_BEFORE;
        t->step.m.flags |= NT_M_READBACK;
        t->step.m.warmup = 0;
    }
}

static void note_default(const struct nt_plan *p, struct cell *c, uint32_t mode, double log_ns)
{
    double *most = &c->def[mode][p->race_gang].most;

    *most = c->def[mode][p->race_gang].n++ == 0 ? log_ns : fmax(*most, log_ns);
    c->def[mode][p->race_gang].sum += log_ns;
}

/* Is a block of the default due, which no race has asked for? A race of one is over before its
 * first; and each gang of a process setting tells what gangs do to calls, by three blocks where one
 * may be a stray. */
static bool default_due(const struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode m)
{
    const struct cell *c = &p->settings[setting].cells[point];
    uint32_t n = c->def[m][p->race_gang].n, gangs;

    for (uint32_t g = 0; setting == 0 && g < NT_RACE_MAX_GANGS; g++) {
        if (c->def[m][g].n > 0) {
            return false;
        }
    }
    return nt_race_verdict(c->race[m]).end != NT_RACE_NO_BASELINE &&
           (n == 0 || (setting != 0 && n < 3 &&
                       fabs(refine_level_in(p, setting, point, m, p->race_gang) -
                            refine_level(p, 0, point, m, &gangs)) > search_far));
}

void block_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    struct cell *c = &p->settings[t->setting].cells[t->point];
    double x = plan_log_median(o->result);
    struct arm *a = &c->arms[t->arm];

    p->gang_ns += t->rep ? 0 : o->elapsed_ns;
    if (isnan(x)) {
        uint8_t status = o->result->status;
        if (t->arm == 0 && o->lost) {
            return; /* the default is asked again in the next gang */
        }
        if (status == NT_ST_NOT_RECORDED && t->arm != 0 &&
            ((a->gated & (1U << t->mode)) != 0 || o->result->executed.algo >= 0)) {
            nt_race_absent(c->race[t->mode], p->race_gang, t->arm); /* other gangs hold it */
            return;
        }
        if (status != NT_ST_NOT_RECORDED) {
            explore_failed(p, &a->call, status);
            a->status = status;
        }
        for (uint32_t k = 0; k < p->nmodes; k++) { /* a row serves all modes, so it is out of all */
            if (status != NT_ST_NOT_RECORDED || p->modes[k] == t->mode) {
                nt_race_fail(c->race[p->modes[k]], t->arm, status);
            }
        }
        return;
    }
    a->gated |= (uint8_t)(1U << t->mode);
    tell_race(p, c->race[t->mode], p->race_gang, t->arm, x, (uint32_t)o->result->count);
    if (t->arm == 0) {
        note_default(p, c, t->mode, x);
    }
}

/* A mode adds about the same to all tuples: on the recordings none that took 1.5 times the best
 * eager came within 20 % of the best in a graph. Once a gang, as one may have been disturbed. */
static void pass_far_behind(struct nt_plan *p, uint32_t setting, uint32_t point)
{
    struct cell *c = &p->settings[setting].cells[point];

    for (uint32_t i = 1; i < c->narms; i++) {
        bool behind = nt_race_behind(c->race[explore_mode(p)], i) > log(FAR_BEHIND);
        for (uint32_t k = 1; k < p->nmodes && c->arms[i].status == NT_ST_OK; k++) {
            nt_race_pass(c->race[p->modes[k]], i,
                         behind || is_no_match(p, setting, point, p->modes[k], i));
        }
    }
    c->passed = true;
}

/* The next block that a race wants of the live gang. */
static bool push_race(struct nt_plan *p, uint32_t setting, uint32_t point)
{
    struct cell *c = &p->settings[setting].cells[point];
    struct nt_ask ask;

    for (uint32_t k = 0; k < p->nmodes; k++) {
        if (k == 1 && !c->passed) {
            pass_far_behind(p, setting, point);
        }
        if (nt_race_next(c->race[p->modes[k]], p->race_gang, &ask)) {
            push_block(p, setting, point, p->modes[k], &ask);
            return true;
        }
    }
    return false;
}

/* Queues the next step of one ladder size in the live gang; false: nothing more is wanted of this
 * gang. */
static bool push_next(struct nt_plan *p, uint32_t setting, uint32_t point)
{
    struct cell *c = &p->settings[setting].cells[point];
    struct nt_ask ask;

    if (c->hopeless) {
        return false;
    }
    if (!c->explored) {
        if (explore_push(p, setting, point)) {
            return true;
        }
        c->explored = true;
        if (!new_races(p, setting, point)) {
            return false;
        }
        if (!isnan(c->arms[0].look_log)) {
            note_default(p, c, explore_mode(p), c->arms[0].look_log);
        }
    }
    if (push_race(p, setting, point) ||
        (!c->walk.done &&
         (chunks_push(p, setting, point) || (c->walk.begun && push_race(p, setting, point))))) {
        return true;
    }
    for (uint32_t k = 0; k < p->nmodes; k++) {
        enum nt_mode m = p->modes[k];
        if (default_due(p, setting, point, m)) {
            ask =
                (struct nt_ask){.arm = 0, .samples = plan_samples(m, plan_default_ns(p, point, m))};
            push_block(p, setting, point, m, &ask);
            return true;
        }
    }
    return false;
}

static void note_best(struct nt_plan *p, uint32_t setting, uint32_t point)
{
    struct cell *c = &p->settings[setting].cells[point];
    for (uint32_t k = 0; k < p->nmodes && c->explored && !c->hopeless; k++) {
        struct nt_race_verdict v = nt_race_verdict(c->race[p->modes[k]]);
        double se, e = v.pick == NT_NO_ARM
                           ? NAN
                           : search_effect(p, setting, point, p->modes[k], v.pick, &se);
        if (-e > p->best_gain) {
            p->best_gain = -e;
            p->best_case = plan_case(p, point, p->modes[k]);
            p->best_call = c->arms[v.pick].call;
        }
    }
}

/* How far gangs differ is much alike at neighbouring sizes of a mode. */
static void share_noise(struct nt_plan *p, uint32_t setting)
{
    struct nt_race *races[NT_COLL_COUNT * NT_MAX_SIZES];

    for (uint32_t k = 0; k < p->nmodes; k++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < p->npoints; i++) {
            const struct cell *c = &p->settings[setting].cells[i];
            if (c->explored && !c->hopeless) {
                races[n++] = c->race[p->modes[k]];
            }
        }
        if (n > 0) {
            nt_race_share(races, n);
        }
    }
}

/* How dear a gang like the last one is: its time by that of a gang that measures everything that
 * may win. */
double search_gang_price(const struct nt_plan *p, uint32_t setting)
{
    double ns = 1;

    for (uint32_t i = 0; i < p->npoints; i++) {
        const struct cell *c = &p->settings[setting].cells[i];
        for (uint32_t a = 0; a < c->narms; a++) {
            bool in = c->arms[a].status == NT_ST_OK && !is_outgrown(c, a);
            double each = in ? exp(c->arms[a].look_log) : 0;
            for (uint32_t k = 0; k < p->nmodes && !isnan(each); k++) {
                double est = plan_default_ns(p, i, p->modes[k]);
                ns += GRID_BLOCKS * each * plan_inner(p->modes[k], est) *
                      (1 + plan_samples(p->modes[k], est));
            }
        }
    }
    return (double)(p->start_ns + p->gang_ns) / ((double)p->start_ns + ns);
}

/* Does the pick of this case gain what a gang like the last one costs? One that may lose more than
 * what passes for as good is worth half as much again. */
static bool is_worth_a_gang(const struct nt_plan *p, struct nt_race *race, double weight,
                            double price)
{
    static const double worth = 2e-3; /* log units, for a gang of the grid */
    static const double as_good = 0.01, risky = 1.5;
    struct nt_race_verdict v;

    if (!(weight > 0) || !nt_race_wants_gang(race)) {
        return false;
    }
    v = nt_race_verdict(race);
    return v.saving * (v.loss > as_good ? risky : 1) >
           efforts[p->spec.effort].worth * worth * price;
}

/* The start of a gang is paid by the races that are worth it: returns how many are. Alone: the
 * others rest. */
static uint32_t price_gang(struct nt_plan *p, uint32_t setting, bool alone)
{
    double price = search_gang_price(p, setting);
    bool in[NT_COLL_COUNT * NT_MAX_SIZES][NT_MODE_COUNT] = {{false}};
    uint32_t n = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < p->npoints; i++) {
            struct cell *c = &p->settings[setting].cells[i];
            for (uint32_t k = 0; k < p->nmodes && c->explored && !c->hopeless; k++) {
                enum nt_mode m = p->modes[k];
                if (pass == 0) {
                    in[i][m] = is_worth_a_gang(p, c->race[m], plan_weight(p, i, m), price);
                    n += in[i][m];
                    continue;
                }
                if (in[i][m]) {
                    nt_race_price(c->race[m], search_gang_blocks(p, i, m, n));
                }
                nt_race_rest(c->race[m], alone && !in[i][m]);
            }
        }
    }
    return n;
}

void search_enter_gang(struct nt_plan *p, uint32_t setting)
{
    share_noise(p, setting);
    (void)price_gang(p, setting, false);
    p->race_gang = p->settings[setting].gangs++;
    p->settings[setting].again = false;
    p->settings[setting].pressed = false;
    p->gang_ns = 0;
    p->cursor = 0;
    for (uint32_t i = 0; i < p->npoints; i++) {
        p->order[i] = i;
        p->settings[setting].cells[i].passed = false;
    }
    if (p->race_gang > 0) { /* the first explores, and learns from the sizes below */
        nt_rng_shuffle(&p->rng, p->order, p->npoints);
    }
}

/* The rest of this gang's work under one setting. */
bool search_work(struct nt_plan *p, uint32_t setting)
{
    for (; p->cursor < p->npoints && p->failed.code == NT_OK; p->cursor++) {
        if (push_next(p, setting, p->order[p->cursor])) {
            return true;
        }
        note_best(p, setting, p->order[p->cursor]);
    }
    return false;
}

/* A fresh gang costs its start and what is measured in it: it is worth that while the pick of some
 * case is expected to gain by it. */
static bool wants_gang(struct nt_plan *p, uint32_t setting)
{
    const struct setting *s = &p->settings[setting];
    double price;

    for (uint32_t i = 0; i < p->npoints; i++) {
        if (!s->cells[i].explored) {
            return true;
        }
    }
    share_noise(p, setting);
    price = search_gang_price(p, setting);
    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes && !s->cells[i].hopeless; k++) {
            enum nt_mode m = p->modes[k];
            if (is_worth_a_gang(p, s->cells[i].race[m], plan_weight(p, i, m), price)) {
                return true;
            }
        }
    }
    return false;
}

/* Races for which another gang would be started pay for it alone: first they measure on in this one
 * as long as that may tell as much. Once a gang. */
static bool press(struct nt_plan *p, uint32_t setting)
{
    struct setting *s = &p->settings[setting];

    if (s->pressed || s->pinned || !wants_gang(p, setting)) {
        return false;
    }
    s->pressed = true;
    p->cursor = 0;
    return price_gang(p, setting, true) > 0;
}

/* A row serves all modes: each mode's pick must be known well in the others. */
static void pin_picks(struct nt_plan *p, uint32_t setting)
{
    for (uint32_t i = 0; i < p->npoints; i++) {
        struct cell *c = &p->settings[setting].cells[i];
        for (uint32_t k = 0; k < p->nmodes && c->explored && !c->hopeless; k++) {
            struct nt_race_verdict v = nt_race_verdict(c->race[p->modes[k]]);
            nt_race_rest(c->race[p->modes[k]], true);
            for (uint32_t j = 0; v.pick != NT_NO_ARM && v.pick != 0 && j < p->nmodes; j++) {
                if (j != k && c->arms[v.pick].status == NT_ST_OK) {
                    nt_race_pin(c->race[p->modes[j]], v.pick);
                }
            }
        }
    }
    p->settings[setting].pinned = true;
    p->cursor = 0;
}

/* All races of one setting, gang after gang. */
bool search_race(struct nt_plan *p, uint32_t setting)
{
    static const enum nt_arm search = NT_ARM_SEARCH;
    struct setting *s = &p->settings[setting];

    if (!search_have_cells(p, setting)) {
        return false;
    }
    for (;;) {
        if (p->nlive > 0 && p->live_setting == setting && p->live[0].arm == NT_ARM_SEARCH) {
            if (p->race_gang == NONE) {
                search_enter_gang(p, setting);
            }
            if (search_work(p, setting)) {
                return true;
            }
            if (press(p, setting)) {
                continue;
            }
            if (!s->pinned && !wants_gang(p, setting)) {
                pin_picks(p, setting);
                continue;
            }
        }
        if (p->failed.code != NT_OK || s->status != NT_ST_OK ||
            (s->gangs > 0 && plan_search_over(p)) || s->gangs >= NT_RACE_MAX_GANGS ||
            (!s->again && !wants_gang(p, setting))) {
            return false;
        }
        plan_stop(p);
        if (setting != 0 && s->losses >= MAX_SETTING_LOSSES) {
            s->status = NT_ST_CRASHED;
            return false;
        }
        (void)plan_start(p, &search, 1, setting);
        return true;
    }
}

bool race_refill(struct nt_plan *p)
{
    return search_race(p, 0);
}
