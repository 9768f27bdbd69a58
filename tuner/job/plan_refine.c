/* Refine: which process setting the table gets. Each is a gang, or several where one cannot tell.
 */
#include "tuner/job/plan_i.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OWN_DF = 40, /* degrees of freedom of errors that many cases make up */
    LEVEL_DF = 4 /* of the belief about what gangs do to all cases */
};

/* ------------------------------------------------------------------ which settings */

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

/* ------------------------------------------------------------------ scoring */

/* What gangs do to all cases alike: the scatter, from gang to gang of a setting, of the mean over
 * its cases. */
struct scatter {
    double sum, weight; /* of one gang: off its setting's mean */
    double squares, df; /* of all gangs so far */
};

static void add_case(struct scatter *s, double weight, double off)
{
    if (!isnan(off)) {
        s->sum += weight * off;
        s->weight += weight;
    }
}

/* One gang is over; returns whether it saw enough of all cases to count. */
static bool add_gang(struct scatter *s, double all)
{
    bool counts = 2 * s->weight > all;
    s->squares += counts ? s->sum * s->sum / (s->weight * s->weight) : 0;
    s->df += counts;
    s->sum = s->weight = 0;
    return counts;
}

static double weigh_all(const struct nt_plan *p)
{
    double all = 0;
    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            all += plan_weight(p, i, p->modes[k]);
        }
    }
    return all;
}

/* Mean of a case's blocks in one gang of the preflight. */
static double preflight_mean(const struct nt_plan *p, uint32_t point, enum nt_mode m, uint32_t gang)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->points[point].pre[m].n; i++) {
        if (p->points[point].pre[m].gang[i] == gang) {
            sum += p->points[point].pre[m].value[i];
            n++;
        }
    }
    return n > 0 ? sum / n : NAN;
}

/* Of three and more blocks one that is far above the others is a stray. */
double refine_level_in(const struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode mode,
                       uint32_t gang)
{
    const struct setting *s = &p->settings[setting];
    double sum, most;
    uint32_t n;

    if (gang >= s->gangs) {
        return preflight_mean(p, point, mode, gang - s->gangs);
    }
    if (s->cells == NULL || s->cells[point].def[mode][gang].n == 0) {
        return NAN;
    }
    n = s->cells[point].def[mode][gang].n;
    sum = s->cells[point].def[mode][gang].sum;
    most = s->cells[point].def[mode][gang].most;
    return n > 2 && most - (sum - most) / (n - 1) > search_far ? (sum - most) / (n - 1) : sum / n;
}

static uint32_t level_gangs(const struct nt_plan *p, uint32_t setting)
{
    return p->settings[setting].gangs + (setting == 0 ? p->pre_gang : 0);
}

double refine_level(const struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode mode,
                    uint32_t *ret_gangs)
{
    double x[NT_RACE_MAX_GANGS + MAX_PRE], copy[NT_RACE_MAX_GANGS + MAX_PRE], sum = 0, middle;
    uint32_t n = 0, all = level_gangs(p, setting);

    for (uint32_t g = 0; g < all; g++) {
        x[n] = refine_level_in(p, setting, point, mode, g);
        n += isnan(x[n]) ? 0 : 1;
    }
    *ret_gangs = n;
    if (n < 3) {
        return n == 0 ? NAN : n == 1 ? x[0] : (x[0] + x[1]) / 2;
    }
    memcpy(copy, x, n * sizeof(x[0]));
    middle = nt_median(copy, n);
    *ret_gangs = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (fabs(x[i] - middle) <= search_far) {
            sum += x[i];
            (*ret_gangs)++;
        }
    }
    return *ret_gangs > 0 ? sum / *ret_gangs : middle;
}

static void add_setting(const struct nt_plan *p, uint32_t setting, double all, struct scatter *s)
{
    uint32_t n = level_gangs(p, setting), gangs;
    bool any = false;

    /* the first race goes on in the last gang of the preflight */
    for (uint32_t g = setting == 0 ? 1 : 0; g < n; g++) {
        for (uint32_t i = 0; i < p->npoints; i++) {
            for (uint32_t k = 0; k < p->nmodes; k++) {
                enum nt_mode m = p->modes[k];
                double off =
                    refine_level_in(p, setting, i, m, g) - refine_level(p, setting, i, m, &gangs);
                add_case(s, plan_weight(p, i, m), fabs(off) > search_far ? NAN : off);
            }
        }
        any = add_gang(s, all) || any;
    }
    s->df -= any; /* the mean is their own */
}

/* Few gangs may be alike by chance. By how much single cases scatter is known better, and about
 * half of that (variance) is what gangs do to all of them: it counts as much as so many gangs. */
static void learn_level(struct nt_plan *p)
{
    struct scatter s = {0};
    double all = weigh_all(p), sd = 0;

    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            sd += plan_weight(p, i, p->modes[k]) / all * p->points[i].pre[p->modes[k]].gang_sd;
        }
    }
    for (uint32_t x = 0; x < p->nsettings; x++) {
        if (p->settings[x].cells != NULL && p->settings[x].status == NT_ST_OK) {
            add_setting(p, x, all, &s);
        }
    }
    p->level_df = LEVEL_DF + s.df;
    p->level_sd = sqrt((LEVEL_DF * 0.5 * sd * sd + s.squares) / p->level_df);
}

double refine_level_se(const struct nt_plan *p, uint32_t setting)
{
    double as_is = p->settings[0].gangs + p->pre_gang;
    return setting == 0
               ? 0
               : p->level_sd * sqrt(1 / fmax(1, p->settings[setting].gangs) + 1 / fmax(1, as_is));
}

/* The arm of a setting that runs what another arm runs as is; NONE. */
static uint32_t twin_of(const struct cell *c, uint32_t as_is)
{
    for (uint32_t i = 0; i < c->narms; i++) {
        if (c->arms[i].twin == as_is && c->arms[i].status == NT_ST_OK) {
            return i;
        }
    }
    return NONE;
}

/* A race's own pick, and not the least of all estimates: that is too good by chance, the more so
 * the fewer gangs there were. Where the tuple that was picked "as is" can be had, what is new must
 * be better for all that few gangs know. */
uint32_t refine_pick(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode m,
                     double *ret_effect, double *ret_own_se, double *ret_level_se)
{
    const struct setting *s = &p->settings[setting];
    const struct cell *c = s->cells != NULL ? &s->cells[point] : NULL;
    struct nt_race_verdict v;
    uint32_t pick, old, as_is;
    double effect, own_se, level_se;

    *ret_effect = NAN;
    *ret_own_se = *ret_level_se = 0;
    if (c == NULL || c->race[m] == NULL) {
        return NONE;
    }
    v = nt_race_verdict(c->race[m]);
    pick = v.pick;
    if (pick == NT_NO_ARM) {
        return NONE;
    }
    *ret_effect = search_effect_apart(p, setting, point, m, pick, ret_own_se, ret_level_se);
    as_is = setting != 0 && s->by_tuple ? refine_pick(p, 0, point, m, &effect, &own_se, &level_se)
                                        : NONE;
    old = as_is != NONE ? twin_of(c, as_is) : NONE;
    if (old != NONE && old != pick) {
        effect = search_effect_apart(p, setting, point, m, old, &own_se, &level_se);
        if (!isnan(effect) && !(*ret_effect + *ret_own_se < effect)) {
            *ret_effect = effect;
            *ret_own_se = own_se;
            *ret_level_se = level_se;
            return old;
        }
    }
    return pick;
}

/* Weighted mean gain over "as is" so far, of the picks against those as is, and of the defaults. */
static void score(struct nt_plan *p, uint32_t setting, struct nt_score *ret)
{
    struct setting *s = &p->settings[setting];
    double table = 0, fixed = 0, sum = 0, own = 0, level = 0, se;

    learn_level(p);
    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            enum nt_mode m = p->modes[k];
            double w = plan_weight(p, i, m), effect[2], own_se[2], level_se[2], alone;
            uint32_t as_is = refine_pick(p, 0, i, m, &effect[0], &own_se[0], &level_se[0]);
            uint32_t pick = refine_pick(p, setting, i, m, &effect[1], &own_se[1], &level_se[1]);
            if (isnan(effect[0]) || isnan(effect[1])) {
                continue;
            }
            alone = search_effect(p, setting, i, m, 0, &se);
            fixed -= w * (isnan(alone) ? 0 : alone);
            table += w * (effect[0] - effect[1]);
            sum += w;
            level += level_se[1] > 0 ? w : 0;
            if (level_se[1] > 0 || s->cells[i].arms[pick].twin != as_is) {
                own += w * w * (own_se[0] * own_se[0] + own_se[1] * own_se[1]);
            }
        }
    }
    *ret = (struct nt_score){.mean = NAN, .price = search_gang_price(p, setting)};
    if (sum > 0) {
        double of_level = refine_level_se(p, setting) * level / sum;
        double of_own = sqrt(own) / sum;
        s->table_gain = ret->mean = table / sum;
        s->static_gain = fixed / sum;
        s->se = ret->se = hypot(of_level, of_own);
        ret->df = fmin(OWN_DF, p->level_df * pow(fmax(ret->se, 1e-9) / fmax(of_level, 1e-9), 4));
    }
}

/* ------------------------------------------------------------------ trying */

static bool new_refine(struct nt_plan *p)
{
    struct nt_refine_config cfg = nt_refine_defaults;
    struct nt_refine_var vars[NT_REFINE_MAX_VARS];

    collect_knobs(p);
    for (uint32_t k = 0; k < p->nknobs; k++) {
        vars[k] = (struct nt_refine_var){.values = p->knob_values[k], .urgency = p->nknobs - k};
    }
    cfg.budget = search_effort(p)->settings;
    cfg.worth *= search_effort(p)->worth;
    cfg.seed = p->spec.seed;
    return nt_refine_new(&cfg, vars, p->nknobs, &p->refine, &p->failed) == 0;
}

static bool may_go_on(const struct nt_plan *p)
{
    return !plan_search_over(p) && (double)p->result.stage_ns[NT_REFINE] <
                                       search_effort(p)->refine_share * (double)p->reserve_ns;
}

/* One gang under the setting being tried; false: it has been judged. */
static bool try_setting(struct nt_plan *p)
{
    static const enum nt_arm search = NT_ARM_SEARCH;
    struct setting *s = &p->settings[p->refine_at];
    struct nt_score x;

    if (s->status == NT_ST_OK && search_have_cells(p, p->refine_at)) {
        if (p->nlive == 0 || p->live_setting != p->refine_at || !p->refine_begun) {
            if (s->losses < MAX_SETTING_LOSSES) { /* a second one where the first was lost */
                plan_stop(p);
                (void)plan_start(p, &search, 1, p->refine_at);
                p->refine_begun = true;
                return true;
            }
            s->status = NT_ST_CRASHED;
        } else {
            if (p->race_gang == NONE) {
                search_enter_gang(p, p->refine_at);
            }
            if (search_work(p, p->refine_at)) {
                return true;
            }
        }
    }
    if (s->status == NT_ST_OK && s->cells != NULL) {
        score(p, p->refine_at, &x);
        nt_refine_tell(p->refine, &x);
    } else {
        nt_refine_fail(p->refine);
    }
    p->refine_at = 0;
    return false;
}

static void choose(struct nt_plan *p)
{
    uint32_t before = p->table_setting;

    (void)nt_refine_incumbent(p->refine, p->table_values, NULL);
    p->table_setting = asked_setting(p, p->table_values);
    p->table_setting = p->table_setting == NONE ? 0 : p->table_setting;
    p->weighed = p->table_setting == before ? p->weighed : NONE;
}

/* Tries one after the other; false: the table's setting is chosen. */
static bool try_settings(struct nt_plan *p)
{
    uint32_t values[NT_REFINE_MAX_VARS] = {0};

    while (p->failed.code == NT_OK) {
        if (p->refine_at != 0) {
            if (try_setting(p)) {
                return true;
            }
            continue;
        }
        if (!may_go_on(p) || !nt_refine_next(p->refine, values)) {
            break;
        }
        p->refine_at = asked_setting(p, values);
        p->refine_begun = false;
        if (p->refine_at == NONE || p->refine_at == 0) {
            p->refine_at = 0;
            nt_refine_fail(p->refine);
        }
    }
    choose(p);
    p->refined = true;
    return false;
}

/* A table with variables that falls in the confirm costs a second round with the rows alone. Where
 * the budget has no time for that, it must be the better bet from the start. */
static bool worth_trying(struct nt_plan *p, uint32_t setting, bool raced)
{
    static const double LEAST_CHANCE = 0.05;
    double chance, alone, with = compose_expected(p, setting, !raced, &chance),
                          rows = compose_expected(p, 0, !raced, &alone);
    bool twice = p->spec.budget_ns == 0 || plan_used_ns(p) + 2 * p->reserve_ns <= p->spec.budget_ns;

    return twice ? with > rows && chance > LEAST_CHANCE : chance * with > rows;
}

/* Asked when a gang begins, and once it is raced: what its blocks say is not known before, and
 * until then only what cannot be is given up. What falls leaves its place to the next best. */
static void weigh_table(struct nt_plan *p, bool raced)
{
    while (p->table_setting != 0 && (raced || p->settings[p->table_setting].gangs != p->weighed)) {
        struct setting *s = &p->settings[p->table_setting];
        uint32_t at = p->table_setting;
        struct nt_score x;

        score(p, at, &x);
        nt_refine_again(p->refine, p->table_values,
                        s->status == NT_ST_OK && worth_trying(p, at, raced) ? &x : NULL);
        p->weighed = s->gangs;
        choose(p);
        raced = false;
        if (p->table_setting == at) {
            return;
        }
    }
}

bool refine_refill(struct nt_plan *p)
{
    uint32_t raced;

    if (p->spec.nsettings < 2 || (p->refine == NULL && !new_refine(p))) {
        return false;
    }
    if (!p->refined && try_settings(p)) {
        return true;
    }
    do {
        weigh_table(p, false);
        if (p->table_setting != 0 && search_race(p, p->table_setting)) {
            return true;
        }
        raced = p->table_setting;
        weigh_table(p, true);
    } while (p->table_setting != raced && p->failed.code == NT_OK);
    return false;
}
