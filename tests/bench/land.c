#include "tests/bench/land.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/job/truth.h"
#include "tuner/base/rng.h"
#include "tuner/cli/recorded.h"
#include "tuner/job/plan_i.h"

const char *const twist_names[TWISTS] = {"none",  "two peaks", "cliff",       "fast and wrong",
                                         "noisy", "drift",     "late winner", "null"};
bool land_recorded_noise;
static const uint16_t bounds[] = {0, 1, 2, 4, 8, 16, 24, 32, 48, 64};

/* ------------------------------------------------------------------ twists */

static bool is_late(const struct nt_executed *x)
{
    return x->algo == NT_TREE && x->proto == NT_SIMPLE;
}
static bool is_wrong(const struct nt_case *c, const struct nt_executed *x)
{
    return x->algo == NT_TREE && x->proto == NT_LL && c->bytes >= 65536;
}

/* What the twist makes of the time of a tuple. */
static double twisted(const struct land *l, const struct nt_sim_gang *g, const struct nt_case *c,
                      const struct nt_executed *x)
{
    double ns = nt_sim_true_ns(g, c, 0, x), other;
    struct nt_call none = NT_CALL_DEFAULT;
    struct nt_executed own;

    switch (l->twist) {
    case TWIST_PEAKS:
        return x->channels == 2 || x->channels >= 24 ? ns * 0.8 : x->channels > 2 ? ns * 1.3 : ns;
    case TWIST_CLIFF:
        return x->algo == NT_RING && x->proto == NT_LL ? ns * (c->bytes > 262144 ? 4 : 0.7) : ns;
    case TWIST_WRONG:
        return is_wrong(c, x) ? ns * 0.4 : ns;
    case TWIST_LATE:
        if (is_late(x) && nt_sim_executed(g, c, &none, &own)) {
            other = nt_sim_true_ns(g, c, 0, &own);
            return other * (0.8 + 0.02 * fabs(log2(x->channels) - 3));
        }
        return ns;
    case TWIST_NULL:
        return nt_sim_executed(g, c, &none, &own) ? nt_sim_true_ns(g, c, 0, &own) : ns;
    default:
        return ns;
    }
}

/* ------------------------------------------------------------------ the truth */

enum { MAX_SETTING_VARS = 8 };

/* "A=1 B=2" as variables; text is taken apart. */
static size_t split(char *text, struct nt_var *vars)
{
    size_t n = 0;
    char *word;

    while ((word = strsep(&text, " ")) != NULL && n < MAX_SETTING_VARS) {
        char *eq = strchr(word, '=');
        if (eq != NULL) {
            *eq = '\0';
            vars[n++] = (struct nt_var){word, eq + 1};
        }
    }
    return n;
}

static void replay_start(const struct land *l, enum nt_half half, uint64_t seed, uint64_t gang,
                         const char *vars, struct nt_replay *ret)
{
    char text[NT_SETTING_LEN];
    struct nt_var v[MAX_SETTING_VARS];
    size_t n;

    (void)snprintf(text, sizeof(text), "%s", vars);
    n = split(text, v);
    nt_assert(nt_replay_init(ret, l->rec, seed, false, half, gang, v, n, NULL) == 0);
}

static double recorded_ns(const struct land *l, const char *vars, const struct nt_case *c,
                          const struct nt_call *call)
{
    struct nt_replay judge;
    struct nt_result r;
    double sum = 0;
    unsigned n = 0;

    for (uint64_t gang = 1; gang <= 24; gang++) { /* gangs of the other half, drawn evenly */
        struct nt_measure m = {.id = gang, .cs = *c, .call = *call, .samples = 31, .inner = 1};
        replay_start(l, NT_ODD_GANGS, 99, gang, vars, &judge);
        nt_replay_measure(&judge, &m, &r);
        if (r.status == NT_ST_OK && r.count > 0) {
            sum += plan_log_median(&r);
            n++;
        }
        free(r.ns);
    }
    return n > 0 ? exp(sum / n) : NAN;
}

static bool look(const struct land *l, const char *vars, const struct land_gang *g,
                 const struct nt_case *c, const struct nt_call *call, struct land_arm *ret)
{
    struct nt_measure m = {
        .id = 1, .cs = *c, .call = *call, .samples = 1, .inner = 1, .flags = NT_M_READBACK};
    struct land_gang copy = *g;
    struct nt_result r;
    bool ok;

    *ret = (struct land_arm){.call = *call};
    if (l->rec == NULL) {
        if (!nt_sim_executed(&g->sim, c, call, &ret->executed)) {
            return false;
        }
        ret->true_ns = twisted(l, &g->sim, c, &ret->executed);
        if (l->twist == TWIST_WRONG && is_wrong(c, &ret->executed)) {
            ret->true_ns = INFINITY;
        }
        return true;
    }
    nt_replay_measure(&copy.replay, &m, &r);
    ok = r.status == NT_ST_OK && r.executed.algo >= 0;
    ret->executed = r.executed;
    ret->true_ns = ok ? recorded_ns(l, vars, c, call) : NAN;
    free(r.ns);
    return ok && !isnan(ret->true_ns);
}

/* Number of the arm of a request, a new one where it runs what none did; NONE: nothing. */
static uint32_t add_arm(const struct land *l, const char *vars, const struct land_gang *g,
                        struct land_case *c, const struct nt_call *call)
{
    struct land_arm *a = &c->arm[c->n];
    uint32_t i = 0;

    if (c->n == LAND_ARMS || !look(l, vars, g, &c->cs, call, a)) {
        return NONE;
    }
    while (i < c->n && !nt_executed_equal(&c->arm[i].executed, &a->executed)) {
        i++;
    }
    c->n += i == c->n;
    c->best_ns = c->n == 1 ? a->true_ns : fmin(c->best_ns, a->true_ns);
    return i;
}

static void find_arms(const struct land *l, const char *vars, const struct land_gang *g,
                      struct land_case *c)
{
    struct nt_call none = NT_CALL_DEFAULT;

    if (add_arm(l, vars, g, c, &none) == NONE) {
        return;
    }
    for (int k = 0; k < NT_ALGO_COUNT * NT_PROTO_COUNT; k++) {
        bool more = true;
        for (size_t b = 0; b < sizeof(bounds) / sizeof(bounds[0]) && more; b++) {
            struct nt_call call = {.algo = (int8_t)(k / NT_PROTO_COUNT),
                                   .proto = (int8_t)(k % NT_PROTO_COUNT),
                                   .channels = bounds[b]};
            uint32_t arm = add_arm(l, vars, g, c, &call);
            if (arm != NONE && c->looks < LAND_LOOKS) {
                c->look[c->looks].call = call;
                c->look[c->looks++].arm = arm;
            }
            more = arm != NONE && c->arm[arm].executed.channels >= bounds[b];
        }
    }
}

/* What the judging gangs can tell of a tuple's gap; all of it where they saw too little. */
static double told(const struct land *l, uint32_t setting, const struct land_case *c,
                   const struct land_arm *a, unsigned family)
{
    const char *vars = l->setting[setting].vars, *best = l->setting[l->best].vars;
    double gap = NAN;

    if (l->rec != NULL) {
        gap = setting == l->best
                  ? truth_gap(l->rec, NT_ODD_GANGS, &c->cs, vars, &a->executed, family)
                  : truth_gap_apart(l->rec, NT_ODD_GANGS, &c->cs, vars, &a->executed, best, family);
    }
    return isnan(gap) ? a->gap : expm1(gap);
}

static void find_gaps(const struct land *l, uint32_t setting, uint32_t k)
{
    struct land_case *c = &l->setting[setting].cases[k];
    double best_ns = l->setting[l->best].cases[k].best_ns;

    for (uint32_t i = 0; i < c->n; i++) {
        struct land_arm *a = &c->arm[i];
        a->gap = a->true_ns / best_ns - 1;
        a->told = told(l, setting, c, a, 0);
        a->sure = told(l, setting, c, a, l->ncases);
    }
}

static double grid_seconds(const struct land *l, uint32_t setting, const struct land_gang *g)
{
    double s = 4 * (double)g->start_ns / 1e9;

    for (uint32_t k = 0; k < l->ncases; k++) {
        const struct land_case *c = &l->setting[setting].cases[k];
        for (uint32_t i = 0; i < c->n; i++) {
            unsigned inner = plan_inner((enum nt_mode)c->cs.mode, c->arm[0].true_ns);
            unsigned n = plan_samples((enum nt_mode)c->cs.mode, c->arm[0].true_ns);
            double ns = isinf(c->arm[i].true_ns) ? c->best_ns : c->arm[i].true_ns;
            s += 20 * (ns * inner * (n + 1) + 4e5) / 1e9;
        }
    }
    return s;
}

/* Of a recording: did so few of the judging gangs see this setting that it cannot be told how good
 * it is? */
static bool thin(const struct land *l, const struct land_setting *s)
{
    uint32_t few = 0;
    for (uint32_t k = 0; k < l->ncases; k++) {
        few += truth_gangs(l->rec, NT_ODD_GANGS, &s->cases[k].cs, s->vars) < TRUTH_JUDGES;
    }
    return few * 2 > l->ncases;
}

/* The tuples of every case under one setting; false: a case that there is as is cannot be had. */
static bool survey_setting(struct land *l, struct land_setting *s, bool as_is)
{
    struct land_gang g;

    land_start(l, 1, s->vars, &g);
    for (size_t i = 0; i < l->spec.nsizes * NT_MODE_COUNT && l->ncases < LAND_CASES; i++) {
        struct land_case c = {.cs = {.coll = NT_ALL_REDUCE,
                                     .bytes = l->spec.sizes[i / NT_MODE_COUNT],
                                     .dtype = (uint8_t)l->spec.raced_dtype,
                                     .mode = (uint8_t)(i % NT_MODE_COUNT)}};
        if (as_is && l->spec.modes[c.cs.mode]) {
            s->cases[l->ncases] = c;
            find_arms(l, s->vars, &g, &s->cases[l->ncases]);
            l->ncases += s->cases[l->ncases].n > 0;
        }
    }
    for (uint32_t k = 0; k < l->ncases && !as_is; k++) {
        s->cases[k].cs = l->setting[0].cases[k].cs;
        find_arms(l, s->vars, &g, &s->cases[k]);
        if (s->cases[k].n == 0) {
            return false;
        }
    }
    return true;
}

static void rank_settings(struct land *l)
{
    for (uint32_t s = 0; s < l->nsettings; s++) {
        double sum = 0;
        for (uint32_t k = 0; k < l->ncases; k++) {
            sum += log(l->setting[s].cases[k].best_ns);
        }
        l->setting[s].mean_log = sum / l->ncases;
        l->best = l->setting[s].mean_log < l->setting[l->best].mean_log ? s : l->best;
    }
}

/* The settings that a job may ask for: those of its spec, and together, which a recording does not
 * hold. */
static void list_settings(struct land *l)
{
    const struct nt_spec *spec = &l->spec;
    uint32_t n = (uint32_t)spec->nsettings, all = l->rec != NULL ? n : 1U << (n - 1);

    l->nsettings = all < LAND_SETTINGS ? all : LAND_SETTINGS;
    for (uint32_t s = 0; s < l->nsettings; s++) {
        char *vars = l->setting[s].vars;
        for (uint32_t i = 1, at = 0; i < n; i++) {
            bool in = l->rec != NULL ? i == s : (s >> (i - 1) & 1) != 0;
            at += in ? (uint32_t)snprintf(vars + at, NT_SETTING_LEN - at, "%s%s", at > 0 ? " " : "",
                                          spec->settings[i])
                     : 0;
        }
    }
}

/* The job is not offered a setting that lacks a case, or that nobody can judge. */
static void leave_out(struct land *l, uint32_t setting)
{
    free(l->setting[setting].cases);
    l->nsettings--;
    l->spec.nsettings--;
    for (uint32_t s = setting; s < l->nsettings; s++) {
        l->setting[s] = l->setting[s + 1];
        memcpy(l->spec.settings[s], l->spec.settings[s + 1], NT_SETTING_LEN);
    }
    l->setting[l->nsettings].cases = NULL;
}

static int survey(struct land *l, struct nt_err *err)
{
    struct land_gang g;
    int rc = nt_spec_finish(&l->spec, err);
    bool many, judged = true;

    rc = rc == 0 ? land_seed(l, 1, err) : rc;
    if (rc != 0) {
        return rc;
    }
    list_settings(l);
    many = l->nsettings > 1;
    for (uint32_t s = 0; s < l->nsettings && rc == 0; s++) {
        bool whole;
        l->setting[s].cases = calloc(LAND_CASES, sizeof(l->setting[s].cases[0]));
        if (l->setting[s].cases == NULL) {
            return nt_fail(err, NT_E_NOMEM, 0, "landscape");
        }
        whole = survey_setting(l, &l->setting[s], s == 0);
        if (!whole && l->rec == NULL) {
            return nt_fail(err, NT_E_INVAL, 0, "%s: a case that '%s' does not have", l->name,
                           l->setting[s].vars);
        }
        judged = !many || l->rec == NULL || !thin(l, &l->setting[s]);
        if (s > 0 && (!whole || !judged)) {
            leave_out(l, s--);
        } else if (!judged) {
            break;
        }
    }
    if (rc == 0 && many && (l->nsettings == 1 || !judged)) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "cannot tell: fewer than %d judging gangs of each process setting",
                       (int)TRUTH_JUDGES);
    }
    if (rc == 0 && l->ncases == 0) {
        return nt_fail(err, NT_E_INVAL, 0, "%s: no cases", l->name);
    }
    rank_settings(l);
    for (uint32_t s = 0; s < l->nsettings && rc == 0; s++) {
        for (uint32_t k = 0; k < l->ncases; k++) {
            find_gaps(l, s, k);
        }
        land_start(l, 1, l->setting[s].vars, &g);
        l->grid_s += grid_seconds(l, s, &g);
    }
    return rc;
}

static void init_spec(struct nt_spec *s)
{
    nt_spec_init(s);
    s->colls[NT_ALL_REDUCE] = true;
    s->modes[NT_EAGER] = s->modes[NT_GRAPH] = true;
    s->dtypes[NT_BF16] = true;
    s->places[NT_OUT_OF_PLACE] = true;
    s->extra_guards = false;
}

int land_model(struct land *l, struct nt_topology *t, unsigned ranks, unsigned nodes,
               enum twist twist, bool settings, const char *name, struct nt_err *err)
{
    /* What pays hangs on the machine. By name, as the job writes several of them. */
    static const char *const few[] = {"NCCL_BUFFSIZE=16777216", "NCCL_MIN_NCHANNELS=32",
                                      "NCCL_NTHREADS=256"};
    int rc;

    *l = (struct land){.topology = t, .ranks = ranks, .nodes = nodes, .twist = twist};
    (void)snprintf(l->name, sizeof(l->name), "%s", name);
    for (const char *p = name; *p != '\0' && *p != ' '; p++) {
        l->machine = nt_mix(l->machine, (uint64_t)*p);
    }
    init_spec(&l->spec);
    l->spec.rig = l->spec.shown_rig = NT_RIG_MODEL;
    l->spec.ranks = ranks > 0 ? ranks : (unsigned)t->ngpus * nodes;
    l->spec.nodes = nodes;
    for (size_t i = 0; settings && i < sizeof(few) / sizeof(few[0]); i++) {
        (void)snprintf(l->spec.settings[l->spec.nsettings++], NT_SETTING_LEN, "%s", few[i]);
    }
    rc = nt_spec_add_sizes(&l->spec, "1K,4K,16K,64K,256K,1M,4M,16M,64M", err);
    return rc == 0 ? survey(l, err) : rc;
}

int land_recording(struct land *l, struct nt_recording *rec, bool settings, const char *name,
                   struct nt_err *err)
{
    int rc;

    *l = (struct land){.rec = rec};
    (void)snprintf(l->name, sizeof(l->name), "%s", name);
    init_spec(&l->spec);
    l->spec.dtypes[NT_FP32] = true; /* whichever was recorded */
    rc = nt_recorded_spec(rec, &l->spec, err);
    if (rc == 0 && settings && l->spec.nsettings == 1) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: no process settings", name);
    }
    l->spec.nsettings = settings ? l->spec.nsettings : 1; /* as is */
    l->spec.extra_guards = false;
    return rc == 0 ? survey(l, err) : rc;
}

void land_done(struct land *l)
{
    nt_sim_free(l->sim);
    nt_topology_free(l->topology);
    nt_recording_free(l->rec);
    for (uint32_t s = 0; s < l->nsettings; s++) {
        free(l->setting[s].cases);
    }
}

/* ------------------------------------------------------------------ the world */

int land_seed(struct land *l, uint64_t seed, struct nt_err *err)
{
    struct nt_sim_params p = nt_sim_defaults;

    if (land_recorded_noise) { /* a tuple in a gang scattered by 0.038: half gang, half block */
        p.gang_sd = 0.037;
        p.interaction_sd = p.block_sd = 0.024;
        p.sample_sd = 0.038;
        p.outliers = 0.033;
        p.outlier_log = 0.44;
    }
    l->seed = seed;
    l->spec.seed = seed;
    if (l->rec != NULL) {
        return 0;
    }
    nt_sim_free(l->sim);
    l->sim = NULL;
    return nt_sim_new(l->topology, l->ranks, l->nodes, &p, l->machine, seed, &l->sim, NULL, err);
}

void land_start(const struct land *l, uint64_t number, const char *vars, struct land_gang *ret)
{
    const struct nt_recorded_gang *start;

    *ret = (struct land_gang){.start_ns = 1000000000};
    if (l->rec != NULL) {
        replay_start(l, NT_EVEN_GANGS, l->seed, number, vars, &ret->replay);
        start = nt_replay_start(&ret->replay);
        ret->start_ns = start != NULL ? start->start_ns : ret->start_ns;
    } else {
        char text[NT_SETTING_LEN];
        struct nt_var v[MAX_SETTING_VARS];
        size_t n;
        (void)snprintf(text, sizeof(text), "%s", vars);
        n = split(text, v);
        nt_assert(nt_sim_gang_init(&ret->sim, l->sim, number, v, n, NULL) == 0);
        ret->start_ns = nt_sim_start_ns(&ret->sim);
    }
}

void land_cells(const struct land *l, const struct land_gang *g, const struct nt_case *c,
                struct nt_cells *ret)
{
    if (l->rec != NULL) {
        nt_replay_cells(&g->replay, c, ret);
        return;
    }
    nt_sim_cells(&g->sim, c, ret);
    if (l->twist == TWIST_LATE) {
        ret->cost[NT_TREE][NT_SIMPLE] += 1e6F;
    }
}

/* Scales a drawn block to what the twist makes of it. */
static void twist_block(const struct land *l, struct land_gang *g, const struct nt_measure *m,
                        struct nt_result *r)
{
    struct nt_executed x;
    struct nt_rng rng;
    double f;

    if (r->status != NT_ST_OK || !nt_sim_executed(&g->sim, &m->cs, &m->call, &x)) {
        return;
    }
    f = twisted(l, &g->sim, &m->cs, &x) / nt_sim_true_ns(&g->sim, &m->cs, 0, &x);
    if (l->twist == TWIST_NOISY && m->cs.bytes == 65536) {
        nt_rng_seed(&rng, nt_mix(nt_mix(l->seed, m->id), 5));
        f *= exp(0.07 * nt_rng_normal(&rng));
    }
    if (l->twist == TWIST_DRIFT) {
        f *= exp(0.15 * fmin(1, g->measures / 1500.0));
    }
    for (size_t i = 0; i < r->count; i++) {
        r->ns[i] = (uint32_t)fmin(r->ns[i] * f, UINT32_MAX);
    }
    r->elapsed_ns = (uint64_t)((double)r->elapsed_ns * f);
    if (l->twist == TWIST_WRONG && m->verify != NT_VERIFY_NO && is_wrong(&m->cs, &x)) {
        r->status = NT_ST_WRONG;
        r->wrong = 1;
        free(r->ns);
        r->ns = NULL;
        r->count = 0;
    }
}

void land_measure(const struct land *l, struct land_gang *g, const struct nt_measure *m,
                  struct nt_result *ret)
{
    g->measures++;
    if (l->rec != NULL) {
        nt_replay_measure(&g->replay, m, ret);
    } else {
        nt_sim_measure(&g->sim, m, ret);
        twist_block(l, g, m, ret);
    }
}

uint32_t land_setting(const struct land *l, const char *vars)
{
    for (uint32_t s = 0; s < l->nsettings; s++) {
        if (strcmp(l->setting[s].vars, vars) == 0) {
            return s;
        }
    }
    return NONE;
}

const struct land_case *land_find(const struct land *l, uint32_t setting, const struct nt_case *c)
{
    for (uint32_t k = 0; k < l->ncases; k++) {
        const struct land_case *x = &l->setting[setting].cases[k];
        if (x->cs.bytes == c->bytes && x->cs.mode == c->mode && x->cs.coll == c->coll) {
            return x;
        }
    }
    return NULL;
}

const struct land_arm *land_tuple(const struct land_case *c, const struct nt_executed *x)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (nt_executed_equal(&c->arm[i].executed, x)) {
            return &c->arm[i];
        }
    }
    return NULL;
}

double land_gap(const struct land_case *c, const struct nt_executed *x)
{
    const struct land_arm *a = land_tuple(c, x);
    return a != NULL ? a->gap : NAN;
}
