/* Kept rows: variables of a process reach every collective, the untuned ones too. Where NCCL's own
 * choice under the table's variables is slower than what it runs without them, a row of the table
 * gives the call back what it was. */
#include "tuner/job/plan_i.h"
#include "profiles/format/limits.h"

#include <math.h>
#include <string.h>

/*
 * Looked at are the cases by which the confirm's guard judges the untuned collectives, in one gang
 * under the variables beside one of NCCL left alone, blocks in ABBA order. What runs the same tuple
 * under variables that act by nothing else needs nothing. For the others, first asked for is the
 * tuple that NCCL runs without the variables, with its channels; where that is not to be had, what
 * NCCL's own table offers, cheapest first by its estimate, a few.
 *
 * A row covers the size class of its case and no more: from the middle between it and the ladder
 * size below to the middle between it and the one above, as a row of one size does. What NCCL runs
 * by itself changes from class to class, channels first of all, so that the tuple of one size would
 * be a cap at the next. The confirm looks at both ends beside the case itself.
 */

enum { MOST_GANGS = 2, LEAST_ROUNDS = 4 }; /* pairs of them, where one is lost; rounds of blocks */
/* An arm's time in a case: more rounds where it takes less, and too long for so much as a look. */
static const double ROUNDS_NS = 60e6, TOO_LONG_NS = 600e6;
enum { UNDER, ALONE }; /* the live gangs */

/* ------------------------------------------------------------------ which cases */

uint32_t kept_others(const struct nt_plan *p, struct nt_case ret[MAX_OTHERS],
                     uint32_t ret_sizes[MAX_OTHERS])
{
    uint32_t last = (uint32_t)p->spec.nsizes - 1, n = 0;
    const uint32_t at[OTHER_SIZES] = {(last + 1) / 6, (last + 1) / 2, last - (last + 1) / 6};

    for (int coll = 0; coll < NT_TUNER_COLLS; coll++) {
        for (int i = 0; !p->spec.colls[coll] && i < OTHER_SIZES; i++) {
            struct nt_case cs = plan_case(p, 0, NT_EAGER);
            if (i > 0 && at[i] == at[i - 1]) { /* a ladder of one or two sizes */
                continue;
            }
            cs.coll = (uint8_t)coll;
            cs.bytes = confirm_align(p, p->spec.sizes[at[i]]);
            ret_sizes[n] = at[i];
            ret[n++] = cs;
        }
    }
    return n;
}

/* The size class of a case: see above. */
static void class_range(const struct nt_plan *p, uint32_t size, struct kept_case *c)
{
    const uint64_t *s = p->spec.sizes;

    c->min_bytes = size > 0 ? nt_compose_midpoint(s[size - 1], s[size]) + 1 : s[0];
    c->max_bytes = size + 1 < p->spec.nsizes ? nt_compose_midpoint(s[size], s[size + 1]) : s[size];
    c->min_bytes = c->cs.bytes < c->min_bytes ? c->cs.bytes : c->min_bytes;
}

uint32_t kept_call(const struct nt_plan *p, uint32_t at, struct nt_call *ret)
{
    const struct kept_case *c = &p->kept.cases[at];

    if (at >= p->kept.ncases || c->pick == NONE) {
        return NONE;
    }
    *ret = c->arms[c->pick].call;
    return at;
}

/* ------------------------------------------------------------------ may it be done */

static double block_ns(double est_ns)
{
    return est_ns * (plan_samples(NT_EAGER, est_ns) + 1) + 1e6;
}

static uint32_t rounds_of(double est_ns)
{
    uint32_t n = LEAST_ROUNDS;

    while (n < MOST_BLOCKS && (n + 2) * block_ns(est_ns) <= ROUNDS_NS) {
        n += 2;
    }
    return n;
}

/* Time that it takes, by guess, where all cases need all that may be tried. */
static double cost_ns(const struct nt_plan *p)
{
    enum { ARMS = KEPT_ARMS + 2 };
    double sum = (double)p->start_ns * 1.5;

    for (uint32_t i = 0; i < p->kept.ncases; i++) {
        double est = p->kept.cases[i].est_ns;
        sum += p->kept.cases[i].narms > 0 ? ARMS * rounds_of(est) * block_ns(est) : 0;
    }
    return sum;
}

/* By how much the confirm's bound of a call stands off its mean: as for the tuned collective, where
 * the job has that mode. */
static double noise_of(const struct nt_plan *p, uint32_t point)
{
    return nt_student_quantile(0.95, p->spec.pairs - 1.0) * confirm_sd(p, point, NT_EAGER) /
           sqrt(p->spec.pairs);
}

static void collect(struct nt_plan *p)
{
    struct kept *k = &p->kept;
    struct nt_case cases[MAX_OTHERS];
    uint32_t sizes[MAX_OTHERS];

    k->by_tuple = confirm_by_tuple(p->settings[p->table_setting].vars);
    k->ncases = kept_others(p, cases, sizes);
    for (uint32_t i = 0; i < k->ncases; i++) {
        struct kept_case *c = &k->cases[i];
        *c = (struct kept_case){.cs = cases[i],
                                .pick = NONE,
                                .gated = NONE,
                                .narms = KEPT_OWN + 1,
                                .est_ns = plan_default_ns(p, sizes[i], NT_EAGER),
                                .gang_sd = p->points[sizes[i]].pre[NT_EAGER].gang_sd,
                                .noise = noise_of(p, sizes[i])};
        c->arms[KEPT_AS_IS].call = c->arms[KEPT_OWN].call = NT_CALL_DEFAULT;
        if (LEAST_ROUNDS * block_ns(c->est_ns) > TOO_LONG_NS) {
            c->narms = 0;
        }
        class_range(p, sizes[i], c);
    }
}

/* Only rows make a table of variables, and a recording does not hold what a table would do to
 * collectives that it was not made for. */
static bool wanted(struct nt_plan *p)
{
    const char *vars = p->settings[p->table_setting].vars;

    if (vars[0] == '\0' || p->nrows == 0 || !p->spec.extra_guards ||
        p->spec.rig == NT_RIG_RECORDING) {
        return false;
    }
    collect(p);
    if (p->spec.budget_ns > 0 &&
        (double)plan_used_ns(p) + cost_ns(p) + (double)p->reserve_ns > (double)p->spec.budget_ns) {
        plan_not_checked(p, "rows that keep untuned collectives: no time within the budget");
        p->kept.ncases = 0;
    }
    return p->kept.ncases > 0;
}

/* ------------------------------------------------------------------ looks and blocks */

static struct todo *push(struct nt_plan *p, enum purpose purpose, uint32_t at, uint32_t arm,
                         unsigned samples)
{
    struct kept_case *c = &p->kept.cases[at];
    struct todo *t = plan_measure(p, arm == KEPT_AS_IS ? ALONE : UNDER, purpose, &c->cs,
                                  c->arms[arm].call, c->est_ns, samples);
    t->index = at;
    t->arm = arm;
    return t;
}

/* What is there, and what NCCL runs by itself without and with the variables. */
static void push_looks(struct nt_plan *p)
{
    enum { SAMPLES = 3 };

    for (uint32_t i = 0; i < p->kept.ncases; i++) {
        struct todo *t;
        if (p->kept.cases[i].narms == 0) {
            continue;
        }
        t = plan_push(p, NT_DO_CELLS, FOR_KEPT_LOOK);
        t->index = i;
        t->step.gang = p->live[UNDER].number;
        t->step.arm = p->live[UNDER].arm;
        t->step.vars = p->live[UNDER].vars;
        t->step.cs = p->kept.cases[i].cs;
        for (uint32_t arm = KEPT_AS_IS; arm <= KEPT_OWN; arm++) {
            push(p, FOR_KEPT_LOOK, i, arm, SAMPLES)->step.m.flags = NT_M_READBACK;
        }
    }
}

/* Is it known to be there, and not out? */
static bool is_there(const struct kept_case *c, uint32_t arm)
{
    return arm < c->narms && c->arms[arm].status == NT_ST_OK;
}

/* Both of NCCL's own are known, and what runs under the variables may take another time. */
static bool may_differ(const struct nt_plan *p, const struct kept_case *c)
{
    const struct nt_executed *as_is = &c->arms[KEPT_AS_IS].executed,
                             *own = &c->arms[KEPT_OWN].executed;

    return is_there(c, KEPT_AS_IS) && is_there(c, KEPT_OWN) && as_is->channels > 0 &&
           own->channels > 0 && !(p->kept.by_tuple && nt_executed_equal(as_is, own));
}

static void add_arm(struct kept_case *c, struct nt_call call)
{
    for (uint32_t i = 0; i < c->narms; i++) {
        if (nt_call_equal(&c->arms[i].call, &call)) {
            return;
        }
    }
    if (c->narms < KEPT_ARMS) {
        c->arms[c->narms++] = (struct kept_arm){.call = call, .executed = NT_EXECUTED_NONE};
    }
}

static struct nt_call call_of(const struct nt_plan *p, int algo, int proto, uint16_t channels)
{
    return (struct nt_call){.algo = (int8_t)algo,
                            .proto = (int8_t)proto,
                            .channels = nt_channels_safe(algo, p->spec.nodes) ? channels : 0};
}

/* The tuple that ran without the variables. */
static void add_first(const struct nt_plan *p, struct kept_case *c)
{
    const struct nt_executed *x = &c->arms[KEPT_AS_IS].executed;

    if (!nt_executed_equal(x, &c->arms[KEPT_OWN].executed)) {
        add_arm(c, call_of(p, x->algo, x->proto, x->channels));
    }
    c->first = c->narms > KEPT_FIRST ? KEPT_FIRST : NONE;
}

/* What else NCCL offers there, with as many channels as it opens without the variables. */
static void add_rest(const struct nt_plan *p, struct kept_case *c)
{
    bool taken[NT_ALGO_COUNT][NT_PROTO_COUNT] = {{false}};

    while (c->narms < KEPT_ARMS) {
        int algo = -1, proto = -1;
        for (int a = 0; a < NT_ALGO_COUNT; a++) {
            for (int k = 0; k < NT_PROTO_COUNT; k++) {
                if (c->cost[a][k] >= 0 && !taken[a][k] &&
                    (algo < 0 || c->cost[a][k] < c->cost[algo][proto])) {
                    algo = a;
                    proto = k;
                }
            }
        }
        if (algo < 0) {
            return;
        }
        taken[algo][proto] = true;
        add_arm(c, call_of(p, algo, proto, c->arms[KEPT_AS_IS].executed.channels));
    }
}

static void push_block(struct nt_plan *p, uint32_t at, uint32_t arm, uint32_t rep)
{
    struct kept_case *c = &p->kept.cases[at];
    struct todo *t = push(p, FOR_KEPT_BLOCK, at, arm, plan_samples(NT_EAGER, c->est_ns));

    t->rep = rep;
    if (rep == 0 && arm > KEPT_OWN) {
        t->step.m.flags = NT_M_READBACK;
        t->step.m.verify = NT_VERIFY_BEFORE;
        t->step.m.warmup = 0;
    }
}

/* Blocks of NCCL left alone, of its own choice under the variables, and of the calls from `from`
 * on: A B C … C B A. */
static void push_blocks(struct nt_plan *p, uint32_t at, uint32_t from)
{
    struct kept_case *c = &p->kept.cases[at];
    uint32_t order[KEPT_ARMS], n = 0, rounds = rounds_of(c->est_ns);

    for (uint32_t a = 0; a < c->narms; a++) {
        if (is_there(c, a) && (a <= KEPT_OWN || a >= from)) {
            order[n++] = a;
            for (uint32_t i = 0; i < MOST_BLOCKS; i++) {
                c->arms[a].x[i] = NAN;
            }
        }
    }
    for (uint32_t b = 0; b < rounds; b += 2) {
        for (uint32_t i = 0; i < n; i++) {
            push_block(p, at, order[i], b);
        }
        for (uint32_t i = n; i-- > 0;) {
            push_block(p, at, order[i], b + 1);
        }
    }
}

/* ------------------------------------------------------------------ judging */

/* Does the call run what ran without the variables, where these act by nothing else? */
static bool gives_back(const struct nt_plan *p, const struct kept_case *c, uint32_t arm)
{
    return p->kept.by_tuple && arm != NONE && is_there(c, arm) &&
           nt_executed_equal(&c->arms[arm].executed, &c->arms[KEPT_AS_IS].executed);
}

/* log(a / b) of the rounds, with its standard error; gangs differ beside. */
static double apart(const struct kept_case *c, uint32_t a, uint32_t b, double *ret_se)
{
    struct nt_est e = nt_estimate_pairs(c->arms[a].x, c->arms[b].x, MOST_BLOCKS, 0.95);
    bool gangs = (a == KEPT_AS_IS) != (b == KEPT_AS_IS);

    *ret_se = e.n < 2 ? INFINITY : hypot(e.se, gangs ? sqrt(2) * c->gang_sd : 0);
    return e.n < 2 ? NAN : e.mean;
}

bool kept_is_slower(double log_ratio, double se, double guard)
{
    return log_ratio > log(guard) / 2 && log_ratio > 2 * se;
}

bool kept_is_in_doubt(double log_ratio, double se, double guard, double noise)
{
    return log_ratio + 2 * se + noise > log(guard);
}

bool kept_is_no_slower(double log_ratio, double se, double guard)
{
    return log_ratio + se < log(guard) / 2;
}

/* NCCL's own choice under the variables pays for them, or the confirm may not be able to tell that
 * it does not. What gives the call back exactly is measured in the same gang, is no other than what
 * runs without them, and passes the guard as that: doubt speaks for it. */
static bool pays(const struct nt_plan *p, const struct kept_case *c)
{
    double se, d;
    bool exact = gives_back(p, c, c->first);

    d = apart(c, KEPT_OWN, exact ? c->first : KEPT_AS_IS, &se);
    return may_differ(p, c) && (kept_is_slower(d, se, p->spec.guard) ||
                                (exact && kept_is_in_doubt(d, se, p->spec.guard, c->noise)));
}

/* The best call that is no slower; NONE. */
static uint32_t best_of(const struct nt_plan *p, const struct kept_case *c)
{
    uint32_t best = NONE;
    double least = INFINITY;

    if (!c->pays || gives_back(p, c, c->first)) {
        return c->pays ? c->first : NONE;
    }
    for (uint32_t a = KEPT_FIRST; a < c->narms; a++) {
        double se, d = apart(c, a, KEPT_AS_IS, &se);
        if (is_there(c, a) && kept_is_no_slower(d, se, p->spec.guard) && d < least) {
            best = a;
            least = d;
        }
    }
    return best;
}

/* ------------------------------------------------------------------ phases */

/* Right data in all that the row would serve beside what was timed. */
static void push_gates(struct nt_plan *p, uint32_t at)
{
    struct kept_case *c = &p->kept.cases[at];

    for (uint32_t k = 0; k < p->nmodes; k++) {
        for (int d = 0; d < NT_DTYPE_COUNT; d++) {
            for (int place = 0; place < NT_PLACE_COUNT; place++) {
                struct nt_measure *m;
                if (!plan_serves(p, c->cs.coll, d, place)) {
                    continue;
                }
                m = &push(p, FOR_KEPT_GATE, at, c->pick, 0)->step.m;
                m->cs.mode = (uint8_t)p->modes[k];
                m->cs.dtype = (uint8_t)d;
                m->cs.place = (uint8_t)place;
                m->inner = plan_inner(p->modes[k], c->est_ns);
                m->warmup = 0;
                m->verify = NT_VERIFY_BEFORE;
            }
        }
    }
}

/* Queues what is to be done in a phase; nothing: it is over. */
static void push_phase(struct nt_plan *p, bool again)
{
    struct kept *k = &p->kept;

    if (k->phase == KEPT_LOOK) {
        push_looks(p);
    }
    for (uint32_t i = 0; i < k->ncases && k->phase > KEPT_LOOK; i++) {
        struct kept_case *c = &k->cases[i];
        if (k->phase == KEPT_BLOCKS && may_differ(p, c)) {
            if (!again) {
                add_first(p, c);
            }
            push_blocks(p, i, KEPT_FIRST);
        } else if (k->phase == KEPT_REST) {
            c->pays = again ? c->pays : pays(p, c);
            if (c->pays && !gives_back(p, c, c->first)) {
                add_rest(p, c);
                push_blocks(p, i, KEPT_FIRST);
            }
        } else if (k->phase == KEPT_GATE) {
            c->pick = best_of(p, c);
            if (c->pick != NONE && (again || c->pick != c->gated)) {
                push_gates(p, i);
            }
            c->gated = c->pick;
        }
    }
}

/* A pair of gangs, anew where one was lost; false: enough of them were. */
static bool start(struct nt_plan *p)
{
    static const enum nt_arm arms[] = {[UNDER] = NT_ARM_SEARCH, [ALONE] = NT_ARM_DEFAULT};

    if (p->kept.gangs++ == MOST_GANGS) {
        plan_not_checked(p, "rows that keep untuned collectives: gangs were lost");
        p->kept.ncases = 0;
        p->kept.phase = KEPT_DONE;
        return false;
    }
    plan_stop(p);
    (void)plan_start(p, arms, 2, p->table_setting);
    return true;
}

bool kept_refill(struct nt_plan *p)
{
    struct kept *k = &p->kept;

    if (k->phase == KEPT_NEW && !wanted(p)) {
        k->phase = KEPT_DONE;
    } else if (k->phase == KEPT_NEW) {
        k->phase = KEPT_LOOK;
        if (start(p)) {
            push_phase(p, false);
            return true;
        }
    } else if (k->phase != KEPT_DONE && p->nlive == 0 && start(p)) {
        push_phase(p, true);
        return true;
    }
    k->phase +=
        k->phase < KEPT_GATE; /* which has rounds: what fails makes room for the next best */
    for (; k->phase < KEPT_DONE; k->phase++) {
        push_phase(p, false);
        if (p->head != p->tail) {
            return true;
        }
    }
    plan_stop(p);
    return false;
}

/* ------------------------------------------------------------------ answers */

void kept_cells_tell(struct nt_plan *p, const struct todo *t, const struct nt_cells *cells)
{
    memcpy(p->kept.cases[t->index].cost, cells->cost, sizeof(cells->cost));
}

/* It is out, for a reason that no other gang would change: but for NCCL left to itself. */
static void failed(struct kept_arm *a, const struct todo *t, const struct nt_plan_outcome *o)
{
    if (t->arm > KEPT_OWN || !o->lost) {
        a->status = o->result->status;
    }
}

void kept_look_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    struct kept_case *c = &p->kept.cases[t->index];
    struct kept_arm *a = &c->arms[t->arm];
    double x = plan_log_median(o->result);

    if (isnan(x)) {
        failed(a, t, o);
        return;
    }
    a->executed = o->result->executed;
    c->est_ns = t->arm == KEPT_AS_IS ? exp(x) : c->est_ns;
}

void kept_block_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    struct kept_arm *a = &p->kept.cases[t->index].arms[t->arm];
    double x = plan_log_median(o->result);

    if (isnan(x)) {
        failed(a, t, o);
        return;
    }
    if ((t->step.m.flags & NT_M_READBACK) != 0) {
        a->executed = o->result->executed;
        if (!confirm_as_asked(&a->executed, &a->call)) {
            a->status = NT_ST_UNAVAILABLE;
        } else if (a->call.channels > a->executed.channels) {
            a->call.channels = a->executed.channels; /* never above those seen executed */
        }
    }
    a->x[t->rep] = x;
}

void kept_gate_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    const struct nt_case *cs = &t->step.m.cs;
    bool absent = o->result->status == NT_ST_UNAVAILABLE && cs->dtype == NT_FP8;

    if (o->result->status != NT_ST_OK && !absent) {
        failed(&p->kept.cases[t->index].arms[t->arm], t, o);
    }
}
