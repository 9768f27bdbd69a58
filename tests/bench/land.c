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

static double recorded_ns(const struct land *l, const struct nt_case *c, const struct nt_call *call)
{
    struct nt_replay judge;
    struct nt_result r;
    double sum = 0;
    unsigned n = 0;

    for (uint64_t gang = 1; gang <= 24; gang++) { /* gangs of the other half, drawn evenly */
        struct nt_measure m = {.id = gang, .cs = *c, .call = *call, .samples = 31, .inner = 1};
        if (nt_replay_init(&judge, l->rec, 99, false, NT_ODD_GANGS, gang, NULL, 0, NULL) != 0) {
            continue;
        }
        nt_replay_measure(&judge, &m, &r);
        if (r.status == NT_ST_OK && r.count > 0) {
            sum += plan_log_median(&r);
            n++;
        }
        free(r.ns);
    }
    return n > 0 ? exp(sum / n) : NAN;
}

static bool look(const struct land *l, const struct land_gang *g, const struct nt_case *c,
                 const struct nt_call *call, struct land_arm *ret)
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
    ret->true_ns = ok ? recorded_ns(l, c, call) : NAN;
    free(r.ns);
    return ok && !isnan(ret->true_ns);
}

/* Number of the arm of a request, a new one where it runs what none did; NONE: nothing. */
static uint32_t add_arm(const struct land *l, const struct land_gang *g, struct land_case *c,
                        const struct nt_call *call)
{
    struct land_arm *a = &c->arm[c->n];
    uint32_t i = 0;

    if (c->n == LAND_ARMS || !look(l, g, &c->cs, call, a)) {
        return NONE;
    }
    while (i < c->n && !nt_executed_equal(&c->arm[i].executed, &a->executed)) {
        i++;
    }
    c->n += i == c->n;
    c->best_ns = c->n == 1 ? a->true_ns : fmin(c->best_ns, a->true_ns);
    return i;
}

static void find_arms(const struct land *l, const struct land_gang *g, struct land_case *c)
{
    struct nt_call none = NT_CALL_DEFAULT;

    if (add_arm(l, g, c, &none) == NONE) {
        return;
    }
    for (int k = 0; k < NT_ALGO_COUNT * NT_PROTO_COUNT; k++) {
        bool more = true;
        for (size_t b = 0; b < sizeof(bounds) / sizeof(bounds[0]) && more; b++) {
            struct nt_call call = {.algo = (int8_t)(k / NT_PROTO_COUNT),
                                   .proto = (int8_t)(k % NT_PROTO_COUNT),
                                   .channels = bounds[b]};
            uint32_t arm = add_arm(l, g, c, &call);
            if (arm != NONE && c->looks < LAND_LOOKS) {
                c->look[c->looks].call = call;
                c->look[c->looks++].arm = arm;
            }
            more = arm != NONE && c->arm[arm].executed.channels >= bounds[b];
        }
    }
}

/* What the judging gangs can tell of a tuple's gap; all of it where they saw too little. */
static double told(const struct land *l, const struct land_case *c, const struct land_arm *a,
                   unsigned family)
{
    double gap =
        l->rec == NULL ? NAN : truth_gap(l->rec, NT_ODD_GANGS, &c->cs, "", &a->executed, family);
    return isnan(gap) ? a->gap : expm1(gap);
}

static void find_gaps(const struct land *l, struct land_case *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        struct land_arm *a = &c->arm[i];
        a->gap = a->true_ns / c->best_ns - 1;
        a->told = told(l, c, a, 0);
        a->sure = told(l, c, a, l->ncases);
    }
}

static double grid_seconds(const struct land *l, const struct land_gang *g)
{
    double s = 4 * (double)g->start_ns / 1e9;

    for (uint32_t k = 0; k < l->ncases; k++) {
        const struct land_case *c = &l->cases[k];
        for (uint32_t i = 0; i < c->n; i++) {
            unsigned inner = plan_inner((enum nt_mode)c->cs.mode, c->arm[0].true_ns);
            unsigned n = plan_samples((enum nt_mode)c->cs.mode, c->arm[0].true_ns);
            double ns = isinf(c->arm[i].true_ns) ? c->best_ns : c->arm[i].true_ns;
            s += 20 * (ns * inner * (n + 1) + 4e5) / 1e9;
        }
    }
    return s;
}

static int survey(struct land *l, struct nt_err *err)
{
    struct land_gang g;
    int rc;

    l->cases = calloc(LAND_CASES, sizeof(l->cases[0]));
    if (l->cases == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "landscape");
    }
    rc = nt_spec_finish(&l->spec, err);
    rc = rc == 0 ? land_seed(l, 1, err) : rc;
    if (rc != 0) {
        return rc;
    }
    land_start(l, 1, "", &g);
    for (size_t i = 0; i < l->spec.nsizes; i++) {
        for (int m = 0; m < NT_MODE_COUNT && l->ncases < LAND_CASES; m++) {
            struct land_case *c = &l->cases[l->ncases];
            if (l->spec.modes[m]) {
                c->cs = (struct nt_case){.coll = NT_ALL_REDUCE,
                                         .bytes = l->spec.sizes[i],
                                         .dtype = NT_BF16,
                                         .mode = (uint8_t)m};
                find_arms(l, &g, c);
                l->ncases += c->n > 0;
            }
        }
    }
    for (uint32_t k = 0; k < l->ncases; k++) {
        find_gaps(l, &l->cases[k]);
    }
    l->grid_s = grid_seconds(l, &g);
    return l->ncases > 0 ? 0 : nt_fail(err, NT_E_INVAL, 0, "%s: no cases", l->name);
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
               enum twist twist, const char *name, struct nt_err *err)
{
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
    rc = nt_spec_add_sizes(&l->spec, "1K,4K,16K,64K,256K,1M,4M,16M,64M", err);
    return rc == 0 ? survey(l, err) : rc;
}

int land_recording(struct land *l, struct nt_recording *rec, const char *name, struct nt_err *err)
{
    int rc;

    *l = (struct land){.rec = rec};
    (void)snprintf(l->name, sizeof(l->name), "%s", name);
    init_spec(&l->spec);
    rc = nt_recorded_spec(rec, &l->spec, err);
    l->spec.nsettings = 1; /* as is */
    l->spec.extra_guards = false;
    return rc == 0 ? survey(l, err) : rc;
}

void land_done(struct land *l)
{
    nt_sim_free(l->sim);
    nt_topology_free(l->topology);
    nt_recording_free(l->rec);
    free(l->cases);
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
        nt_assert(nt_replay_init(&ret->replay, l->rec, l->seed, false, NT_EVEN_GANGS, number, NULL,
                                 0, NULL) == 0);
        start = nt_replay_start(&ret->replay);
        ret->start_ns = start != NULL ? start->start_ns : ret->start_ns;
    } else {
        char copy[2][NT_SETTING_LEN] = {"", ""};
        struct nt_var v[8];
        size_t n = 0;
        char *rest = copy[0], *word;
        (void)snprintf(copy[0], sizeof(copy[0]), "%s", vars);
        while ((word = strsep(&rest, " ")) != NULL && n < 8) {
            char *eq = strchr(word, '=');
            if (eq != NULL) {
                *eq = '\0';
                v[n++] = (struct nt_var){word, eq + 1};
            }
        }
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

const struct land_case *land_find(const struct land *l, const struct nt_case *c)
{
    for (uint32_t k = 0; k < l->ncases; k++) {
        if (l->cases[k].cs.bytes == c->bytes && l->cases[k].cs.mode == c->mode &&
            l->cases[k].cs.coll == c->coll) {
            return &l->cases[k];
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
