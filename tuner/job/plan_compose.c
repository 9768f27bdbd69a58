/* From the races to the two products, and the gate: right data in every type, placement and mode of
 * a row. */
#include "tuner/job/plan_i.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GATE_ROUNDS = 4 };

/* ------------------------------------------------------------------ will the confirm let it pass?
 */

/* Student's t by which the guard's bound stands off the mean. */
static double pass_quantile(const struct nt_plan *p)
{
    return nt_student_quantile(0.95, p->spec.pairs - 1.0);
}

/* Chance that the pairs tell a class to be within the guard, when it is believed to run at exp(e)
 * of the default, give or take se. */
static double pass_chance(const struct nt_plan *p, uint32_t point, enum nt_mode m, double e,
                          double se, double quantile)
{
    double pairs = p->spec.pairs;
    double sd = confirm_sd(p, point, m) / sqrt(pairs) + 1e-4;
    double bound = e + quantile * sd;

    return nt_normal_cdf((log(p->spec.guard) - bound) / sqrt(sd * sd + se * se));
}

bool compose_same(const struct arm *a, const struct arm *b)
{
    return a->status == NT_ST_OK && b->status == NT_ST_OK && a->executed.channels > 0 &&
           nt_executed_equal(&a->executed, &b->executed) &&
           a->call.chunk_bytes == b->call.chunk_bytes;
}

/* What this arm runs is what NCCL runs "as is", under variables that act by nothing else: it has
 * nothing to gain or to lose, whatever noise says. One gang may differ from another by a tenth
 * where calls are short; only what is far beyond that is believed before the confirm. */
static bool runs_as_is(const struct nt_plan *p, uint32_t setting, uint32_t point, uint32_t arm,
                       double effect, double se)
{
    static const double FAR = 0.2; /* log units */

    return compose_same(&p->settings[setting].cells[point].arms[arm],
                        &p->settings[0].cells[point].arms[0]) &&
           effect - 2 * se < FAR && confirm_by_tuple(p->settings[setting].vars);
}

/* What the gangs of a setting did to all of its cases is one error for all of them: chances are
 * worked out for some of its values (Gauss and Hermite's), and put together by their weights. */
static const struct {
    double z, weight;
} commons[] = {{-1.7320508, 1.0 / 6}, {0, 2.0 / 3}, {1.7320508, 1.0 / 6}};
enum { COMMONS = sizeof(commons) / sizeof(commons[0]) };

struct passing {
    double quantile, common_se; /* of all cases alike */
    double chance[COMMONS];
};

static void start_passing(const struct nt_plan *p, uint32_t setting, struct passing *ret)
{
    *ret = (struct passing){.quantile = pass_quantile(p), .common_se = refine_level_se(p, setting)};
    for (size_t i = 0; i < COMMONS; i++) {
        ret->chance[i] = 1;
    }
}

static void must_pass(const struct nt_plan *p, struct passing *x, uint32_t point, enum nt_mode m,
                      double e, double own_se, double level_se)
{
    double common = fmin(x->common_se, level_se);
    double se = sqrt(own_se * own_se + level_se * level_se - common * common);

    for (size_t i = 0; i < COMMONS; i++) {
        x->chance[i] *= pass_chance(p, point, m, e + commons[i].z * common, se, x->quantile);
    }
}

static double passes(const struct passing *x)
{
    double sum = 0;
    for (size_t i = 0; i < COMMONS; i++) {
        sum += commons[i].weight * x->chance[i];
    }
    return sum;
}

/* What a row must gain. Under variables that make NCCL choose otherwise, rows are also what keeps a
 * size from paying for the gain of others: little will do. */
static double row_gain(uint32_t setting)
{
    return setting == 0 ? nt_compose_defaults.min_gain : nt_compose_defaults.min_gain / 4;
}

/* What one case would run under a setting, as a row or by NCCL's own choice. */
struct outlook {
    double e;                        /* log(that / default as is) */
    double pass_e, own_se, level_se; /* by which its chance is judged */
    bool same;                       /* it is what runs as is */
    bool changed; /* NCCL's own choice is not what it is as is: a row that falls leaves no
                     known good */
};

/* False: not known. Hopeful: what is not known yet turns out well. */
static bool look_at(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode m,
                    bool hopeful, struct outlook *o)
{
    static const double HOPE = 1.64; /* standard errors */
    double se, def = search_effect(p, setting, point, m, 0, &se);
    uint32_t pick = refine_pick(p, setting, point, m, &o->e, &o->own_se, &o->level_se);

    if (isnan(o->e)) {
        return false;
    }
    if (pick != 0 && !(o->e < def - log1p(row_gain(setting)))) { /* too little for a row */
        pick = 0;
        o->e = search_effect_apart(p, setting, point, m, 0, &o->own_se, &o->level_se);
    }
    o->same = runs_as_is(p, setting, point, pick, o->e, hypot(o->own_se, o->level_se));
    o->changed = !runs_as_is(p, setting, point, 0, def, se);
    o->e = o->same ? 0 : o->e;
    o->pass_e = o->e;
    if (hopeful) {
        o->pass_e -= HOPE * hypot(o->own_se, o->level_se);
        o->own_se = o->level_se = 0;
    }
    return true;
}

/* Is a size better kept at what NCCL runs as is, by a row for it? Where what it would gain is less
 * than what all may lose by it: a size that falls takes the variables along. */
static bool keeps(struct nt_plan *p, uint32_t setting, uint32_t point, bool hopeful, double stake)
{
    const struct cell *c = &p->settings[setting].cells[point];
    double gain = 0, chance = 1, t = pass_quantile(p);
    bool can = false;

    for (uint32_t a = 0; setting != 0 && a < c->narms; a++) {
        can = can || runs_as_is(p, setting, point, a, 0, 0);
    }
    for (uint32_t k = 0; k < p->nmodes && can; k++) {
        struct outlook o;
        if (!look_at(p, setting, point, p->modes[k], hopeful, &o) || !o.changed) {
            return false;
        }
        gain -= plan_weight(p, point, p->modes[k]) * o.e;
        chance *=
            o.same ? 1
                   : pass_chance(p, point, p->modes[k], o.pass_e, hypot(o.own_se, o.level_se), t);
    }
    return can && gain < (1 - chance) * stake;
}

/* Weighted log gain over as is, in sum over all cases; NAN: not known. */
static double prospect(struct nt_plan *p, uint32_t setting, bool hopeful, double stake,
                       double *ret_chance)
{
    struct passing all;
    double gain = 0;

    start_passing(p, setting, &all);
    *ret_chance = 0;
    for (uint32_t i = 0; i < p->npoints; i++) {
        bool kept = p->settings[setting].cells != NULL && keeps(p, setting, i, hopeful, stake);
        for (uint32_t k = 0; k < p->nmodes && !kept; k++) {
            struct outlook o;
            if (!look_at(p, setting, i, p->modes[k], hopeful, &o)) {
                return NAN;
            }
            if (o.changed && !o.same) { /* else its row falls alone */
                must_pass(p, &all, i, p->modes[k], o.pass_e, o.own_se, o.level_se);
            }
            gain -= plan_weight(p, i, p->modes[k]) * o.e;
        }
    }
    *ret_chance = passes(&all);
    return gain;
}

/* What a setting is expected to bring beyond what can be had without it, in sum. */
static double stake_of(struct nt_plan *p, uint32_t setting, bool hopeful)
{
    double chance, with = prospect(p, setting, hopeful, 0, &chance),
                   rows = prospect(p, 0, hopeful, 0, &chance);
    return with > rows ? with - rows : 0;
}

/* What a process setting is expected to bring as the table's, in mean log gain over as is. Its
 * variables reach every class, and when one is not within the guard the whole product goes, while
 * without variables each row stands alone: *ret_chance that this does not happen. */
double compose_expected(struct nt_plan *p, uint32_t setting, bool hopeful, double *ret_chance)
{
    double stake = setting == 0 ? 0 : stake_of(p, setting, hopeful);
    double gain = prospect(p, setting, hopeful, stake, ret_chance), sum = 0;

    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            sum += plan_weight(p, i, p->modes[k]);
        }
    }
    return sum > 0 && !isnan(gain) ? gain / sum : 0;
}

/* ------------------------------------------------------------------ table */

struct choices {
    struct nt_call call[MAX_CALLS];
    uint32_t rank[MAX_CALLS];
    size_t n;
};

/* Every call that some size of the collective was asked for; [0] is the default. */
static void collect_choices(const struct nt_plan *p, uint8_t coll, struct choices *out)
{
    const struct setting *s = &p->settings[p->table_setting];

    out->n = 1;
    out->call[0] = NT_CALL_DEFAULT;
    out->rank[0] = 0;
    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; p->points[i].coll == coll && k < s->cells[i].ncalls; k++) {
            const struct request *q = &s->cells[i].calls[k];
            const struct nt_executed *x = &s->cells[i].arms[q->arm].executed;
            uint32_t rank;
            size_t at = 1;
            while (at < out->n && !nt_call_equal(&out->call[at], &q->call)) {
                at++;
            }
            if (q->call.algo < 0 || at == MAX_CALLS) {
                continue;
            }
            if (at == out->n) {
                out->call[out->n++] = q->call;
                out->rank[at] = 0;
            }
            /* Fewer channels win a tie, and among those the call that asks for less. */
            rank = x->channels * 4U + (q->call.chunk_bytes > 0) * 2U + (q->call.channels > 0);
            out->rank[at] = rank > out->rank[at] ? rank : out->rank[at];
        }
    }
}

/* At a size that is kept all but what runs as is are out, and that is worth a row. */
static struct nt_effect kept_effect(const struct nt_plan *p, uint32_t point, uint32_t arm)
{
    bool same = arm != NONE && runs_as_is(p, p->table_setting, point, arm, 0, 0);
    return (struct nt_effect){.log_ratio = same ? -2 * row_gain(p->table_setting) : NAN, .se = 0};
}

/* kept_sizes: [size of the collective]: is it better kept? */
static void fill_effects(struct nt_plan *p, uint8_t coll, const struct choices *ch,
                         struct nt_effect *effects, bool *kept_sizes)
{
    double stake = p->table_setting == 0 ? 0 : stake_of(p, p->table_setting, false);
    size_t at = 0;

    for (uint32_t i = 0; i < p->npoints; i++) {
        bool kept = p->points[i].coll == coll && keeps(p, p->table_setting, i, false, stake);
        if (p->points[i].coll == coll) {
            *kept_sizes++ = kept;
        }
        for (uint32_t k = 0; p->points[i].coll == coll && k < p->nmodes; k++) {
            const struct cell *c = &p->settings[p->table_setting].cells[i];
            double se0, base = search_effect(p, p->table_setting, i, p->modes[k], 0, &se0);
            for (size_t x = 0; x < ch->n; x++, at++) {
                uint32_t arm = x == 0 ? 0 : search_resolve(c, &ch->call[x]);
                double se = NAN, e = arm == NONE ? NAN
                                                 : search_effect(p, p->table_setting, i,
                                                                 p->modes[k], arm, &se);
                effects[at] = kept && x > 0 ? kept_effect(p, i, arm)
                                            : (struct nt_effect){.log_ratio = e - base,
                                                                 .se = arm == 0 ? 0 : se};
            }
        }
    }
}

static void add_row(struct nt_plan *p, uint8_t coll, uint32_t first_point, const struct nt_row *r,
                    struct nt_call call)
{
    struct row *row = &p->rows[p->nrows++];

    *row = (struct row){.coll = coll, .range = *r, .call = call, .executed = NT_EXECUTED_NONE};
    for (uint32_t s = r->first; s <= r->last; s++) {
        const struct cell *c = &p->settings[p->table_setting].cells[first_point + s];
        uint32_t arm = search_resolve(c, &call);
        if (arm != NONE && c->arms[arm].executed.channels > row->executed.channels) {
            row->executed = c->arms[arm].executed;
        }
    }
    if (row->call.channels > row->executed.channels) { /* never above those seen executed */
        row->call.channels = row->executed.channels;
    }
}

static void fill_weights(const struct nt_plan *p, uint32_t first_point, double *weights)
{
    for (uint32_t s = 0; s < p->spec.nsizes; s++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            weights[s * p->nmodes + k] = plan_weight(p, first_point + s, p->modes[k]);
        }
    }
}

static int compose_coll(struct nt_plan *p, uint8_t coll, uint32_t first_point, struct nt_err *err)
{
    struct choices *ch = calloc(1, sizeof(*ch));
    struct nt_effect *effects = calloc(p->spec.nsizes * p->nmodes * MAX_CALLS, sizeof(*effects));
    double weights[NT_MAX_SIZES * NT_MODE_COUNT];
    bool kept_sizes[NT_MAX_SIZES] = {false};
    struct nt_compose_config cfg = nt_compose_defaults;
    struct nt_row rows[NT_MAX_SIZES];
    size_t n = 0;
    int rc = ch == NULL || effects == NULL ? nt_fail(err, NT_E_NOMEM, 0, "compose") : 0;

    if (rc == 0) {
        collect_choices(p, coll, ch);
        fill_effects(p, coll, ch, effects, kept_sizes);
        fill_weights(p, first_point, weights);
        cfg.min_gain = row_gain(p->table_setting);
        rc = nt_compose(&cfg,
                        &(struct nt_compose_in){.sizes = p->spec.sizes,
                                                .n_sizes = p->spec.nsizes,
                                                .n_modes = p->nmodes,
                                                .n_choices = ch->n,
                                                .effects = effects,
                                                .weights = weights,
                                                .tie_rank = ch->rank},
                        rows, &n, err);
    }
    if (rc == 0) {
        nt_compose_end(p->spec.sizes, kept_sizes, rows, n);
    }
    for (size_t i = 0; rc == 0 && i < n && p->nrows < NT_MAX_ROWS; i++) {
        add_row(p, coll, first_point, &rows[i], ch->call[rows[i].choice]);
    }
    free(ch);
    free(effects);
    return rc;
}

/* ------------------------------------------------------------------ static */

/* Restrictions in per-function form that leave a fallback in each list: Ring and Simple are always
 * built. */
static const struct mask {
    const char *algo, *proto; /* NULL: not restricted */
    bool algos[NT_ALGO_COUNT], protos[NT_PROTO_COUNT];
} masks[] = {
    {"ring", NULL, {[NT_RING] = true}, {true, true, true}},
    {"tree,ring", NULL, {[NT_RING] = true, [NT_TREE] = true}, {true, true, true}},
    {NULL, "simple", {true, true, true, true, true, true, true}, {[NT_SIMPLE] = true}},
    {NULL,
     "ll,simple",
     {true, true, true, true, true, true, true},
     {[NT_LL] = true, [NT_SIMPLE] = true}},
    {"ring", "simple", {[NT_RING] = true}, {[NT_SIMPLE] = true}},
    {"ring", "ll,simple", {[NT_RING] = true}, {[NT_LL] = true, [NT_SIMPLE] = true}},
};

/* The call that NCCL makes of a size under a mask: its least estimate. */
static bool masked_call(const struct point *pt, const struct mask *m, struct nt_call *ret)
{
    float least = INFINITY;

    for (int a = 0; a < NT_ALGO_COUNT; a++) {
        for (int k = 0; k < NT_PROTO_COUNT; k++) {
            float cost = m->algos[a] && m->protos[k] ? pt->cost[a][k] : -1;
            if (cost >= 0 && cost < least) {
                least = cost;
                *ret = (struct nt_call){.algo = (int8_t)a, .proto = (int8_t)k};
            }
        }
    }
    return !isinf(least);
}

/* Mean gain over "as is" of a setting, under a mask or none, by the chance that the confirm lets it
 * pass; NAN: not known at some size, or slower beyond guard. */
static double static_gain(struct nt_plan *p, uint32_t setting, const struct mask *m)
{
    struct passing all;
    double gain = 0, sum = 0;

    start_passing(p, setting, &all);
    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            struct nt_call call = NT_CALL_DEFAULT;
            double own_se = 0, level_se = 0, e;
            uint32_t arm = 0;
            if (m != NULL && p->points[i].coll == NT_ALL_REDUCE) {
                arm = masked_call(&p->points[i], m, &call)
                          ? search_resolve(&p->settings[setting].cells[i], &call)
                          : NONE;
            }
            e = arm == NONE
                    ? NAN
                    : search_effect_apart(p, setting, i, p->modes[k], arm, &own_se, &level_se);
            if (arm != NONE && runs_as_is(p, setting, i, arm, e, hypot(own_se, level_se))) {
                sum += plan_weight(p, i, p->modes[k]);
                continue;
            }
            if (!(e < log(p->spec.guard))) {
                return NAN;
            }
            gain -= plan_weight(p, i, p->modes[k]) * e;
            must_pass(p, &all, i, p->modes[k], e, own_se, level_se);
            sum += plan_weight(p, i, p->modes[k]);
        }
    }
    return sum > 0 ? passes(&all) * gain / sum : NAN;
}

static void static_text(struct nt_plan *p, uint32_t setting, const struct mask *m)
{
    char text[128] = "";
    size_t n = 0;

    if (m != NULL && m->algo != NULL) {
        n = (size_t)snprintf(text, sizeof(text), "NCCL_ALGO=allreduce:%s", m->algo);
    }
    if (m != NULL && m->proto != NULL) {
        (void)snprintf(text + n, sizeof(text) - n, "%sNCCL_PROTO=allreduce:%s", n > 0 ? " " : "",
                       m->proto);
    }
    n = strlen(p->settings[setting].vars);
    if (n + strlen(text) + 2 > sizeof(p->static_vars)) {
        return;
    }
    /* Names are sorted where the profile is written. */
    memcpy(p->static_vars, p->settings[setting].vars, n);
    if (n > 0 && text[0] != '\0') {
        p->static_vars[n++] = ' ';
    }
    memcpy(p->static_vars + n, text, strlen(text) + 1);
}

static void compose_static(struct nt_plan *p)
{
    double best = log(p->spec.margin);

    p->static_vars[0] = '\0';
    for (uint32_t s = 0; s < p->nsettings; s++) {
        bool masks_too = p->spec.colls[NT_ALL_REDUCE] && p->spec.rig != NT_RIG_RECORDING;
        if (p->settings[s].status != NT_ST_OK || p->settings[s].cells == NULL) {
            continue;
        }
        for (size_t i = 0; i <= (masks_too ? sizeof(masks) / sizeof(masks[0]) : 0); i++) {
            const struct mask *m = i == 0 ? NULL : &masks[i - 1];
            double gain = s == 0 && m == NULL ? NAN : static_gain(p, s, m);
            if (gain > best) {
                best = gain;
                static_text(p, s, m);
            }
        }
    }
}

int compose_products(struct nt_plan *p, struct nt_err *err)
{
    uint32_t first = 0;
    int rc = 0;

    p->nrows = 0;
    for (uint32_t i = 0; i < p->npoints && rc == 0; i++) {
        if (i == 0 || p->points[i].coll != p->points[i - 1].coll) {
            first = i;
            if (p->points[first]
                    .asked) { /* NCCL's tuner is never asked about the others: no rows for them */
                rc = compose_coll(p, p->points[i].coll, first, err);
            }
        }
    }
    if (!p->confirm.again) { /* the variables alone have been judged */
        compose_static(p);
    }
    return rc;
}

/* ------------------------------------------------------------------ gate */

static uint32_t first_point_of(const struct nt_plan *p, uint8_t coll)
{
    uint32_t i = 0;
    while (p->points[i].coll != coll) {
        i++;
    }
    return i;
}

static void push_gate(struct nt_plan *p, uint32_t row, uint32_t point, enum nt_mode mode, int dtype,
                      int place)
{
    const struct cell *c = &p->settings[p->table_setting].cells[point];
    struct nt_case cs = plan_case(p, point, mode);
    uint32_t arm = search_resolve(c, &p->rows[row].call);
    struct todo *t;

    cs.dtype = (uint8_t)dtype;
    cs.place = (uint8_t)place;
    t = plan_measure(p, 0, FOR_GATE, &cs, arm != NONE ? c->arms[arm].call : p->rows[row].call,
                     plan_default_ns(p, point, mode), 0);
    t->setting = p->table_setting;
    t->point = point;
    t->mode = mode;
    t->arm = arm;
    t->step.m.warmup = 0;
    t->step.m.verify = NT_VERIFY_BEFORE;
}

static void push_gates(struct nt_plan *p)
{
    for (uint32_t r = 0; r < p->nrows; r++) {
        for (uint32_t s = p->rows[r].range.first; s <= p->rows[r].range.last; s++) {
            uint32_t point = first_point_of(p, p->rows[r].coll) + s;
            for (uint32_t k = 0; k < p->nmodes; k++) {
                for (int d = 0; d < NT_DTYPE_COUNT; d++) {
                    for (int place = 0; place < NT_PLACE_COUNT; place++) {
                        bool raced = d == (int)p->raced_dtype && place == (int)p->raced_place;
                        if (plan_serves(p, p->rows[r].coll, d, place) && !raced) {
                            push_gate(p, r, point, p->modes[k], d, place);
                        }
                    }
                }
            }
        }
    }
}

/* gate_at counts the rounds; a row whose gate failed is composed anew without that tuple. */
bool gate_refill(struct nt_plan *p)
{
    static const enum nt_arm search = NT_ARM_SEARCH;

    if (p->kept.phase != KEPT_NEW) {
        return kept_refill(p);
    }
    if (p->gate_at == 0 || p->gate_started) {
        p->gate_started = false;
        if (compose_products(p, &p->failed) != 0 || p->nrows == 0 || ++p->gate_at > GATE_ROUNDS) {
            p->nrows = p->gate_at > GATE_ROUNDS ? 0 : p->nrows;
            plan_stop(p);
            return false;
        }
    } else if (p->nlive > 0) { /* all gates passed */
        return kept_refill(p);
    }
    if (p->nlive == 0 || p->live_setting != p->table_setting || p->live[0].arm != NT_ARM_SEARCH) {
        plan_stop(p);
        (void)plan_start(p, &search, 1, p->table_setting);
    }
    push_gates(p);
    return true;
}

void gate_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    struct cell *c = &p->settings[t->setting].cells[t->point];
    uint8_t status = o->result->status;

    if (status == NT_ST_NOT_RECORDED) {
        plan_not_checked(p, "gate: %s %s", nt_dtype_names[t->step.cs.dtype],
                         nt_place_names[t->step.cs.place]);
        return;
    }
    if (status == NT_ST_OK || t->arm == NONE || (o->lost && t->step.m.call.algo < 0)) {
        return;
    }
    if (c->arms[t->arm].call.chunk_bytes > 0) {
        chunks_failed(p, &c->arms[t->arm].call, status);
    }
    c->arms[t->arm].status = status;
    for (uint32_t k = 0; k < p->nmodes; k++) {
        nt_race_fail(c->race[p->modes[k]], t->arm, status);
    }
    p->gate_started = true; /* compose again without it */
}
