/* Race and refine: which executed tuples there are, which is fastest for each case, and which
 * process setting. */
#include "tuner/job/plan_i.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SETTING_LOSSES = 2, /* gangs of one process setting */
    REFINE_GANGS = 3,       /* of one process setting that may pay and is not yet told from noise */
    GRID_BLOCKS = 5,        /* of each tuple in a gang of the exhaustive grid */
};
/* What is this much slower in the first mode, for sure, is not raced in the others. */
static const double FAR_BEHIND = 1.4;

static const struct {
    uint32_t max_gangs, settings;
    double refine_share; /* of the confirm's time that may go into process settings */
    double worth;        /* of what a fresh gang must promise */
} efforts[NT_EFFORT_COUNT] = {[NT_QUICK] = {2, 4, 0.2, 2.0},
                              [NT_STANDARD] = {16, 12, 0.4, 1.0},
                              [NT_THOROUGH] = {16, 32, 2.0, 0.3}};

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
            (best == NONE || x->channels > c->arms[best].executed.channels)) {
            best = i;
        }
    }
    return best;
}

static bool have_cells(struct nt_plan *p, uint32_t setting)
{
    struct setting *s = &p->settings[setting];
    if (s->cells == NULL) {
        s->cells = calloc(p->npoints, sizeof(s->cells[0]));
        if (s->cells == NULL) {
            (void)nt_fail(&p->failed, NT_E_NOMEM, 0, "cells");
        }
    }
    return s->cells != NULL;
}

double search_effect(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode mode,
                     uint32_t arm, double *ret_se)
{
    struct cell *c = p->settings[setting].cells != NULL ? &p->settings[setting].cells[point] : NULL;
    struct nt_standing st;
    double shift = setting == 0 ? 0
                                : plan_default_log(p, setting, point, mode) -
                                      plan_default_log(p, 0, point, mode);

    *ret_se = NAN;
    if (c == NULL || c->race[mode] == NULL || arm >= c->narms || c->arms[arm].status != NT_ST_OK) {
        return NAN;
    }
    st = nt_race_standing(c->race[mode], arm);
    if (st.state != NT_ARM_FAILED) {
        double g = p->points[point].pre[mode].gang_sd;
        uint32_t gangs = p->settings[setting].gangs > 0 ? p->settings[setting].gangs : 1;
        *ret_se = setting == 0 ? st.se : sqrt(st.se * st.se + g * g / gangs);
        return st.log_ratio + shift;
    }
    return NAN;
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

static bool new_races(struct nt_plan *p, uint32_t setting, uint32_t point)
{
    struct cell *c = &p->settings[setting].cells[point];
    struct nt_race_arm arms[MAX_ARMS];

    for (uint32_t i = 0; i < c->narms; i++) {
        arms[i] = (struct nt_race_arm){.prior = c->arms[i].look_log,
                                       .tie_rank = c->arms[i].executed.channels};
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
            if (is_outgrown(c, i)) {
                nt_race_pass(c->race[m], i);
            }
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
    if ((a->gated & (1U << m)) == 0) { /* before it is timed in a mode, its data is right there */
        t->step.m.verify = NT_VERIFY_BEFORE;
        t->step.m.flags = NT_M_READBACK;
        t->step.m.warmup = 0;
    }
}

/* Gangs count alike, however many blocks each gave: what they differ by is what matters. */
static void note_default(const struct nt_plan *p, struct cell *c, uint32_t mode, double log_ns)
{
    if (c->def_blocks[mode] > 0 && c->def_gang[mode] != p->race_gang) {
        c->def_sum[mode] += c->def_last[mode] / c->def_blocks[mode];
        c->def_gangs[mode]++;
        c->def_last[mode] = 0;
        c->def_blocks[mode] = 0;
    }
    c->def_gang[mode] = p->race_gang;
    c->def_last[mode] += log_ns;
    c->def_blocks[mode]++;
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
        if ((status == NT_ST_TIMEOUT || status == NT_ST_CRASHED) && a->call.algo >= 0) {
            p->hangs[a->call.algo][a->call.proto]++;
        }
        if (status != NT_ST_NOT_RECORDED) {
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
 * eager came within 20 % of the best in a graph. */
static void pass_far_behind(struct nt_plan *p, struct cell *c)
{
    for (uint32_t i = 1; i < c->narms; i++) {
        if (nt_race_behind(c->race[explore_mode(p)], i) > log(FAR_BEHIND)) {
            for (uint32_t k = 1; k < p->nmodes; k++) {
                nt_race_pass(c->race[p->modes[k]], i);
            }
        }
    }
    c->passed = true;
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
    for (uint32_t k = 0; k < p->nmodes; k++) {
        if (k == 1 && !c->passed) {
            pass_far_behind(p, c);
        }
        if (nt_race_next(c->race[p->modes[k]], p->race_gang, &ask)) {
            push_block(p, setting, point, p->modes[k], &ask);
            return true;
        }
    }
    for (uint32_t k = 0; k < p->nmodes; k++) { /* a race of one is over before its first block */
        enum nt_mode m = p->modes[k];
        if (c->def_blocks[m] == 0 && nt_race_verdict(c->race[m]).end != NT_RACE_NO_BASELINE) {
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
static double gang_price(const struct nt_plan *p, uint32_t setting)
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
    double price = gang_price(p, setting);
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

static void enter_gang(struct nt_plan *p, uint32_t setting)
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
    }
    if (p->race_gang > 0) { /* the first explores, and learns from the sizes below */
        nt_rng_shuffle(&p->rng, p->order, p->npoints);
    }
}

/* The rest of this gang's work under one setting. */
static bool work_in_gang(struct nt_plan *p, uint32_t setting)
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
    price = gang_price(p, setting);
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
static bool race_setting(struct nt_plan *p, uint32_t setting)
{
    static const enum nt_arm search = NT_ARM_SEARCH;
    struct setting *s = &p->settings[setting];

    if (!have_cells(p, setting)) {
        return false;
    }
    for (;;) {
        if (p->nlive > 0 && p->live_setting == setting && p->live[0].arm == NT_ARM_SEARCH) {
            if (p->race_gang == NONE) {
                enter_gang(p, setting);
            }
            if (work_in_gang(p, setting)) {
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
    return race_setting(p, 0);
}

/* ------------------------------------------------------------------ refine: process settings */

/* The names of a setting: "A=1 B=2" → "A B". */
static void names_of(const char *vars, char *out, size_t size)
{
    size_t n = 0;
    bool value = false;
    for (; *vars != '\0' && n + 1 < size; vars++) {
        value = *vars == ' ' ? false : value || *vars == '=';
        if (!value) {
            out[n++] = *vars;
        }
    }
    out[n] = '\0';
}

/* Settings that name the same variables are values of one knob. */
static void collect_knobs(struct nt_plan *p)
{
    for (uint32_t s = 1; s < p->spec.nsettings; s++) {
        char mine[NT_SETTING_LEN], other[NT_SETTING_LEN];
        uint32_t k = 0;
        names_of(p->settings[s].vars, mine, sizeof(mine));
        for (; k < p->nknobs; k++) {
            names_of(p->settings[p->knobs[k][1]].vars, other, sizeof(other));
            if (strcmp(mine, other) == 0) {
                break;
            }
        }
        if (k == p->nknobs && p->nknobs < NT_REFINE_MAX_VARS) {
            p->nknobs++;
            p->knob_values[k] = 1;
        }
        if (k < p->nknobs && p->knob_values[k] < 16) {
            p->knobs[k][p->knob_values[k]++] = s;
        }
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "NAME=VALUE …" of several settings, sorted by name. */
static bool join_vars(const struct nt_plan *p, const uint32_t *parts, size_t n, char *out,
                      size_t size)
{
    char text[2 * NT_SETTING_LEN], *words[64], *save = NULL;
    size_t len = 0, nwords = 0;

    for (size_t i = 0; i < n; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s ", p->settings[parts[i]].vars);
        if (len >= sizeof(text)) {
            return false;
        }
    }
    for (char *w = strtok_r(text, " ", &save); w != NULL && nwords < 64;
         w = strtok_r(NULL, " ", &save)) {
        words[nwords++] = w;
    }
    qsort(words, nwords, sizeof(words[0]), by_text);
    out[0] = '\0';
    for (size_t i = 0, at = 0; i < nwords; i++) {
        at += (size_t)snprintf(out + at, size - at, "%s%s", i > 0 ? " " : "", words[i]);
        if (at >= size) {
            return false;
        }
    }
    return true;
}

/* Index of the setting that refine asks for; NONE: it cannot be had here. */
static uint32_t asked_setting(struct nt_plan *p, const uint32_t *values)
{
    uint32_t parts[NT_REFINE_MAX_VARS];
    char vars[NT_SETTING_LEN];
    size_t n = 0;

    for (uint32_t k = 0; k < p->nknobs; k++) {
        if (values[k] > 0) {
            parts[n++] = p->knobs[k][values[k]];
        }
    }
    if (n == 0 || !join_vars(p, parts, n, vars, sizeof(vars))) {
        return n == 0 ? 0 : NONE;
    }
    for (uint32_t s = 0; s < p->nsettings; s++) {
        if (strcmp(p->settings[s].vars, vars) == 0) {
            return s;
        }
    }
    if (p->spec.rig == NT_RIG_RECORDING ||
        p->nsettings == sizeof(p->settings) / sizeof(p->settings[0])) {
        return NONE;
    }
    (void)snprintf(p->settings[p->nsettings].vars, NT_SETTING_LEN, "%s", vars);
    return p->nsettings++;
}

/* log(pick / default as is). The least of all estimates would be too good by chance, the more so
 * the fewer gangs there were. */
static double pick_effect(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode m)
{
    const struct cell *c = &p->settings[setting].cells[point];
    struct nt_race_verdict v;
    double se;

    if (c->race[m] == NULL) {
        return NAN;
    }
    v = nt_race_verdict(c->race[m]);
    return v.pick == NT_NO_ARM ? NAN : search_effect(p, setting, point, m, v.pick, &se);
}

/* Weighted mean gain over "as is" so far: of the best tuples against the best as is, and of the
 * defaults. */
static void score(struct nt_plan *p, uint32_t setting)
{
    struct setting *s = &p->settings[setting];
    double table = 0, fixed = 0, sd[NT_MODE_COUNT] = {0}, var = 0, sum = 0, squares = 0;

    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            enum nt_mode m = p->modes[k];
            double d = plan_default_log(p, 0, i, m) - plan_default_log(p, setting, i, m);
            double best[2] = {pick_effect(p, 0, i, m), pick_effect(p, setting, i, m)};
            if (!isnan(d) && !isnan(best[0]) && !isnan(best[1])) {
                double w = plan_weight(p, i, m);
                table += w * (best[0] - best[1]);
                fixed += w * d;
                sd[m] += w * p->points[i].pre[m].gang_sd;
                sum += w;
                squares += w * w;
            }
        }
    }
    if (sum > 0) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            var += sd[p->modes[k]] * sd[p->modes[k]];
        }
        /* Gang levels of neighbouring sizes move together, as if about six were independent; those
         * of the modes do not. "As is" was measured in some three gangs. */
        s->table_gain = table / sum;
        s->static_gain = fixed / sum;
        s->se = sqrt(var * (1.0 / fmax(1, s->gangs) + 1.0 / 3)) / sum /
                sqrt(fmin(6, sum * sum / squares));
    }
}

static bool new_refine(struct nt_plan *p)
{
    struct nt_refine_config cfg = nt_refine_defaults;
    struct nt_refine_var vars[NT_REFINE_MAX_VARS];

    collect_knobs(p);
    for (uint32_t k = 0; k < p->nknobs; k++) {
        vars[k] = (struct nt_refine_var){.values = p->knob_values[k], .urgency = p->nknobs - k};
    }
    cfg.budget = efforts[p->spec.effort].settings;
    cfg.seed = p->spec.seed;
    return nt_refine_new(&cfg, vars, p->nknobs, &p->refine, &p->failed) == 0;
}

static bool refine_may_go_on(const struct nt_plan *p)
{
    return !plan_search_over(p) && (double)p->result.stage_ns[NT_REFINE] <
                                       efforts[p->spec.effort].refine_share * (double)p->reserve_ns;
}

/* One gang under the setting being tried; false: it has been judged. */
static bool try_setting(struct nt_plan *p)
{
    static const enum nt_arm search = NT_ARM_SEARCH;
    struct setting *s = &p->settings[p->refine_at];

    if (s->status == NT_ST_OK && have_cells(p, p->refine_at)) {
        if (p->nlive == 0 || p->live_setting != p->refine_at) {
            if (s->losses < MAX_SETTING_LOSSES) { /* a second one where the first was lost */
                plan_stop(p);
                (void)plan_start(p, &search, 1, p->refine_at);
                return true;
            }
            s->status = NT_ST_CRASHED;
        } else {
            if (p->race_gang == NONE) {
                enter_gang(p, p->refine_at);
                p->scored_half = false;
            }
            if (!p->scored_half && p->cursor * 2 > p->npoints) {
                p->scored_half = true;
                score(p, p->refine_at);
                if (p->spec.nweights == 0 && /* else the sizes that weigh most may be to come */
                    nt_refine_hopeless(p->refine, s->table_gain, s->se) &&
                    s->static_gain < log(p->spec.margin)) {
                    p->cursor = p->npoints;
                }
            }
            if (work_in_gang(p, p->refine_at)) {
                return true;
            }
            score(p, p->refine_at);
            if (s->gangs < REFINE_GANGS && refine_may_go_on(p) &&
                nt_refine_undecided(p->refine, s->table_gain, s->se)) {
                plan_stop(p);
                (void)plan_start(p, &search, 1, p->refine_at);
                return true;
            }
        }
    }
    if (s->status == NT_ST_OK && s->cells != NULL) {
        score(p, p->refine_at);
        nt_refine_tell(p->refine, s->table_gain, s->se);
    } else {
        nt_refine_fail(p->refine);
    }
    p->refine_at = 0;
    return false;
}

/* A table with variables that falls in the confirm costs a second round with the rows alone. Where
 * the budget has no time for that, it must be the better bet from the start. */
static bool worth_trying(struct nt_plan *p, uint32_t setting)
{
    static const double LEAST_CHANCE = 0.05;
    double chance, alone, with = compose_expected(p, setting, &chance),
                          rows = compose_expected(p, 0, &alone);
    bool twice = p->spec.budget_ns == 0 || plan_used_ns(p) + 2 * p->reserve_ns <= p->spec.budget_ns;

    return twice ? with > rows && chance > LEAST_CHANCE : chance * with > rows;
}

bool refine_refill(struct nt_plan *p)
{
    uint32_t values[NT_REFINE_MAX_VARS] = {0};

    if (p->spec.nsettings < 2 || (p->refine == NULL && !new_refine(p))) {
        return false;
    }
    while (p->failed.code == NT_OK) {
        if (p->refine_at != 0) {
            if (try_setting(p)) {
                return true;
            }
            continue;
        }
        if (!refine_may_go_on(p) || !nt_refine_next(p->refine, values)) {
            break;
        }
        p->refine_at = asked_setting(p, values);
        if (p->refine_at == NONE || p->refine_at == 0 || p->settings[p->refine_at].gangs > 0) {
            p->refine_at = 0;
            nt_refine_fail(p->refine);
        }
    }
    (void)nt_refine_incumbent(p->refine, values, NULL);
    p->table_setting = asked_setting(p, values);
    if (p->table_setting == NONE || p->settings[p->table_setting].status != NT_ST_OK ||
        !worth_trying(p, p->table_setting)) {
        p->table_setting = 0;
    }
    if (p->table_setting != 0 && race_setting(p, p->table_setting)) {
        return true;
    }
    if (p->settings[p->table_setting].status != NT_ST_OK) {
        p->table_setting = 0;
    }
    return false;
}
