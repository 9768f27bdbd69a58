#include "tests/job/truth.h"
#include "probes/recording/recording_priv.h"
#include "tuner/cli/recorded.h"
#include "tuner/job/plan_i.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GANGS = 256, LEAST_GANGS = 2, MAX_TUPLES = 96 };
/* Tuples this near to the best say how much a tuple scatters between gangs. */
static const double NEAR = 0.25;
/* Chance that a gap is told where there is none: in one case, well below the share of cases that
 * may have one; and anywhere in the recording, for the worst of them. */
static const double ALPHA_CASE = 0.005, ALPHA = 0.025;

/* ------------------------------------------------------------------ a job in this process */

struct player {
    const struct truth_config *c;
    uint64_t seed;
    enum nt_half half;
    struct nt_replay gang[NT_PLAN_GANGS];
    size_t n;
    struct nt_result result;
};

/* "A=1 B=2" as variables; text is taken apart. */
static size_t split(char *text, struct nt_var *vars, size_t max)
{
    size_t n = 0;
    char *save = NULL;

    for (char *w = strtok_r(text, " ", &save); w != NULL && n < max;
         w = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(w, '=');
        if (eq != NULL) {
            *eq = '\0';
            vars[n++] = (struct nt_var){.name = w, .value = eq + 1};
        }
    }
    return n;
}

static int start_gang(struct player *p, size_t i, const struct nt_plan_gang *g, uint64_t *ret_ns,
                      struct nt_err *err)
{
    char text[NT_SETTING_LEN];
    struct nt_var vars[NT_MAX_VARS];
    const struct nt_recorded_gang *start;
    int rc;

    (void)snprintf(text, sizeof(text), "%s", g->vars);
    rc = nt_replay_init(&p->gang[i], p->c->rec, p->seed, p->c->null, p->half, g->number, vars,
                        split(text, vars, NT_MAX_VARS), err);
    start = rc == 0 ? nt_replay_start(&p->gang[i]) : NULL;
    if (start != NULL && start->start_ns > *ret_ns) {
        *ret_ns = start->start_ns;
    }
    return rc;
}

static struct nt_replay *gang_of(struct player *p, uint64_t number)
{
    size_t i = 0;
    while (i + 1 < p->n && p->gang[i].gang != number) {
        i++;
    }
    return &p->gang[i];
}

static int do_step(struct player *p, const struct nt_plan_step *s, struct nt_plan_outcome *o,
                   struct nt_err *err)
{
    int rc = 0;

    *o = (struct nt_plan_outcome){0};
    switch (s->kind) {
    case NT_DO_START:
        p->n = s->ngangs;
        for (size_t i = 0; i < s->ngangs && rc == 0; i++) {
            rc = start_gang(p, i, &s->gangs[i], &o->elapsed_ns, err);
        }
        break;
    case NT_DO_CELLS:
        nt_replay_cells(gang_of(p, s->gang), &s->cs, &o->cells);
        break;
    case NT_DO_MEASURE:
        nt_replay_measure(gang_of(p, s->gang), &s->m, &p->result);
        o->result = &p->result;
        o->elapsed_ns = p->result.elapsed_ns;
        o->lost = p->result.status == NT_ST_TIMEOUT || p->result.status == NT_ST_CRASHED ||
                  p->result.status == NT_ST_ERROR;
        break;
    default:
        break;
    }
    return rc;
}

static int play(struct player *p, struct nt_plan *plan, uint64_t *steps, struct nt_err *err)
{
    for (;;) {
        struct nt_plan_step s;
        struct nt_plan_outcome o;
        int rc = nt_plan_next(plan, &s, err);
        if (rc != 0 || s.kind == NT_DO_FINISHED) {
            return rc;
        }
        rc = do_step(p, &s, &o, err);
        rc = rc == 0 ? nt_plan_tell(plan, &o, err) : rc;
        free(p->result.ns);
        p->result.ns = NULL;
        (*steps)++;
        if (rc != 0) {
            return rc;
        }
    }
}

static int make_spec(const struct truth_config *c, uint64_t seed, struct nt_spec *s,
                     struct nt_err *err)
{
    int rc;

    nt_spec_init(s);
    s->effort = c->effort;
    s->seed = seed;
    nt_recorded_colls(c->rec, s->colls);
    s->modes[NT_EAGER] = s->modes[NT_GRAPH] = true;
    s->places[NT_OUT_OF_PLACE] = s->places[NT_IN_PLACE] = true;
    s->dtypes[NT_BF16] = s->dtypes[NT_FP32] = true; /* whichever was recorded */
    rc = nt_recorded_spec(c->rec, s, err);
    return rc == 0 ? nt_spec_finish(s, err) : rc;
}

/* ------------------------------------------------------------------ what gangs say of a cell */

/* Log median of each gang. */
struct level {
    uint64_t gang[MAX_GANGS];
    double x[MAX_GANGS];
    size_t n;
};

static bool level_of(const struct nt_recording *r, long cell, enum nt_half half, struct level *ret)
{
    struct nt_cell c = cell >= 0 ? nt_recording_cell(r, (size_t)cell) : (struct nt_cell){0};
    uint32_t ns[NT_MAX_SAMPLES], scratch[NT_MAX_SAMPLES];
    size_t n = 0; /* samples of the gang, from all its blocks: a short first look weighs little */

    ret->n = 0;
    for (size_t i = 0; i < c.count; i++) {
        const struct nt_rec_block *b = &r->block[c.block[i]];
        bool in = half == NT_ALL_GANGS || b->odd == (half == NT_ODD_GANGS);
        if (!in || b->b.status != NT_ST_OK || b->b.count == 0) {
            continue;
        }
        if (ret->n == 0 || ret->gang[ret->n - 1] != b->b.gang) {
            if (ret->n == MAX_GANGS) {
                break;
            }
            ret->gang[ret->n++] = b->b.gang;
            n = 0;
        }
        for (size_t k = 0; k < b->b.count && n < NT_MAX_SAMPLES; k++) {
            ns[n++] = b->b.ns[k];
        }
        memcpy(scratch, ns, n * sizeof(ns[0]));
        ret->x[ret->n - 1] = log(nt_quantile_u32(scratch, n, 0.5));
    }
    return ret->n > 0;
}

/* log(a / b) of two means of gangs that have nothing to do with each other: Welch; the interval
 * wrong on either side with the chance `alpha`. */
static struct nt_est compare_apart(const struct level *a, const struct level *b, double alpha)
{
    struct nt_est ea = nt_estimate(a->x, a->n, 0.95), eb = nt_estimate(b->x, b->n, 0.95);
    double va = ea.se * ea.se, vb = eb.se * eb.se, df;
    struct nt_est e = {.n = a->n < b->n ? a->n : b->n, .mean = ea.mean - eb.mean};

    df = (va + vb) * (va + vb) /
         (va * va / ((double)a->n - 1) + vb * vb / ((double)b->n - 1) + 1e-300);
    e.se = sqrt(va + vb);
    e.lo = e.mean - e.se * nt_student_quantile(1 - alpha, df < 1 ? 1 : df);
    e.hi = 2 * e.mean - e.lo;
    return e;
}

/* Scatter of one tuple in one gang, when what the tuple and what the gang have in common is taken
 * off: from all tuples of a case that are near the best, so that few gangs suffice. */
struct scatter {
    double sd, df;
};

static double at_gang(const struct level *l, uint64_t gang)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->gang[i] == gang) {
            return l->x[i];
        }
    }
    return NAN;
}

/* What all tuples do alike in a gang: means of what is left when each tuple's own level is taken
 * off, by turns, as not every tuple was seen in every gang. */
struct gangs {
    uint64_t gang[MAX_GANGS];
    double x[MAX_GANGS];
    size_t n;
};

static size_t gang_index(struct gangs *g, uint64_t gang)
{
    size_t i = 0;
    while (i < g->n && g->gang[i] != gang) {
        i++;
    }
    if (i == g->n && g->n < MAX_GANGS) {
        g->gang[g->n] = gang;
        g->x[g->n++] = 0;
    }
    return i < MAX_GANGS ? i : MAX_GANGS - 1;
}

static double level_off(const struct level *l, struct gangs *g)
{
    double sum = 0;
    for (size_t i = 0; i < l->n; i++) {
        sum += l->x[i] - g->x[gang_index(g, l->gang[i])];
    }
    return sum / (double)l->n;
}

static void sweep(const struct level *all, size_t n, const bool *in, struct gangs *g)
{
    double sum[MAX_GANGS] = {0}, count[MAX_GANGS] = {0};

    for (size_t t = 0; t < n; t++) {
        double mine = in[t] ? level_off(&all[t], g) : 0;
        for (size_t i = 0; in[t] && i < all[t].n; i++) {
            size_t k = gang_index(g, all[t].gang[i]);
            sum[k] += all[t].x[i] - mine;
            count[k] += 1;
        }
    }
    for (size_t k = 0; k < g->n; k++) {
        g->x[k] = count[k] > 0 ? sum[k] / count[k] : 0;
    }
}

/* all: levels of the tuples of one case. */
static struct scatter scatter_of(const struct level *all, size_t n)
{
    static struct gangs g; /* large */
    double least = INFINITY, sum = 0, df = 1;
    bool in[MAX_TUPLES];

    for (size_t t = 0; t < n; t++) {
        least = fmin(least, nt_mean(all[t].x, all[t].n));
    }
    g.n = 0;
    for (size_t t = 0; t < n; t++) {
        in[t] = nt_mean(all[t].x, all[t].n) < least + NEAR;
    }
    for (int k = 0; k < 20; k++) {
        sweep(all, n, in, &g);
    }
    for (size_t t = 0; t < n; t++) {
        double mine = in[t] ? level_off(&all[t], &g) : 0;
        for (size_t i = 0; in[t] && i < all[t].n; i++) {
            double r = all[t].x[i] - mine - g.x[gang_index(&g, all[t].gang[i])];
            sum += r * r;
        }
        df += in[t] ? (double)all[t].n - 1 : 0;
    }
    df -= (double)g.n;
    return df > 0 ? (struct scatter){.sd = sqrt(sum / df), .df = df}
                  : (struct scatter){.sd = INFINITY, .df = 1};
}

/* log(a / b) by their common gangs, the interval wrong on either side with the chance `alpha`. n: 0
 * when they have too few gangs in common. */
static struct nt_est compare(const struct level *a, const struct level *b, struct scatter s,
                             double alpha)
{
    struct nt_est e = {.n = 0};

    for (size_t i = 0; i < a->n; i++) {
        double y = at_gang(b, a->gang[i]);
        if (!isnan(y)) {
            e.mean += a->x[i] - y;
            e.n++;
        }
    }
    if (e.n < LEAST_GANGS) {
        return (struct nt_est){.n = 0, .mean = NAN};
    }
    e.mean /= (double)e.n;
    e.se = s.sd * sqrt(2 / (double)e.n);
    e.lo = e.mean - e.se * nt_student_quantile(1 - alpha, s.df);
    e.hi = 2 * e.mean - e.lo;
    return e;
}

static long cell_of(const struct nt_recording *r, const struct nt_case *cs, const char *vars,
                    const struct nt_executed *x)
{
    for (size_t i = 0; i < r->nrange; i++) {
        const struct nt_rec_block *b = &r->block[nt_recording_cell(r, i).block[0]];
        if (nt_case_equal(&b->b.cs, cs) && (b->b.flags & NT_CELL_FLAGS) == 0 &&
            strcmp(b->b.process, vars) == 0 && nt_executed_equal(&b->reached, x)) {
            return (long)i;
        }
    }
    return -1;
}

/* Levels of all tuples of a case with enough gangs. */
struct field {
    struct level at[MAX_TUPLES];
    long cell[MAX_TUPLES];
    size_t n, best; /* best: index */
};

static bool field_of(const struct nt_recording *r, enum nt_half half, const struct nt_case *cs,
                     const char *vars, struct field *f)
{
    double least = INFINITY;

    f->n = 0;
    for (size_t i = 0; i < r->nrange && f->n < MAX_TUPLES; i++) {
        const struct nt_rec_block *b = &r->block[nt_recording_cell(r, i).block[0]];
        struct level *l = &f->at[f->n];
        if (!nt_case_equal(&b->b.cs, cs) || (b->b.flags & NT_CELL_FLAGS) != 0 ||
            strcmp(b->b.process, vars) != 0 || !level_of(r, (long)i, half, l) ||
            l->n < LEAST_GANGS) {
            continue;
        }
        if (nt_mean(l->x, l->n) < least) {
            least = nt_mean(l->x, l->n);
            f->best = f->n;
        }
        f->cell[f->n++] = (long)i;
    }
    return f->n > 0;
}

static const struct nt_executed *tuple_of(const struct nt_recording *r, const struct field *f,
                                          size_t i)
{
    return &r->block[nt_recording_cell(r, (size_t)f->cell[i]).block[0]].reached;
}

static const struct nt_executed *best_of(const struct nt_recording *r, const struct field *f)
{
    return tuple_of(r, f, f->best);
}

/* ------------------------------------------------------------------ judging */

/* The tuple that the pick loses most to, by the lower end of the interval. alpha: of all tuples of
 * the case together, as the best is not known beforehand and of many equal tuples some always seems
 * better. */
static struct nt_est worst_of(const struct field *f, size_t mine, double alpha, size_t *ret_other)
{
    struct scatter s = scatter_of(f->at, f->n);
    struct nt_est worst = {.n = 0, .lo = -INFINITY};

    *ret_other = mine;
    for (size_t i = 0; i < f->n; i++) {
        struct nt_est e = i != mine
                              ? compare(&f->at[mine], &f->at[i], s, alpha / (double)(f->n - 1))
                              : (struct nt_est){.n = 0};
        if (e.n > 0 && e.lo > worst.lo) {
            worst = e;
            *ret_other = i;
        }
    }
    return worst;
}

/* Index of a tuple in its field; n: not recorded there often enough. */
static size_t find_tuple(const struct nt_recording *r, enum nt_half half, const struct nt_case *cs,
                         const char *vars, const struct nt_executed *x, struct field *f)
{
    long cell = cell_of(r, cs, vars, x);
    size_t i = 0;

    (void)field_of(r, half, cs, vars, f);
    while (i < f->n && f->cell[i] != cell) {
        i++;
    }
    return i;
}

double truth_gap(const struct nt_recording *rec, enum nt_half half, const struct nt_case *cs,
                 const char *vars, const struct nt_executed *x, unsigned family)
{
    static struct field f; /* large */
    size_t mine = find_tuple(rec, half, cs, vars, x, &f), other;
    double alpha = family > 0 ? ALPHA / family : ALPHA_CASE;

    return mine == f.n ? NAN : fmax(worst_of(&f, mine, alpha, &other).lo, 0);
}

unsigned truth_gangs(const struct nt_recording *rec, enum nt_half half, const struct nt_case *cs,
                     const char *vars)
{
    struct nt_call none = NT_CALL_DEFAULT;
    struct level l;

    (void)level_of(rec, nt_recording_find(rec, cs, 0, vars, &none), half, &l);
    return (unsigned)l.n;
}

double truth_gap_apart(const struct nt_recording *rec, enum nt_half half, const struct nt_case *cs,
                       const char *vars, const struct nt_executed *x, const char *other_vars,
                       unsigned family)
{
    static struct field mine, others; /* large */
    size_t at = find_tuple(rec, half, cs, vars, x, &mine);
    double alpha = family > 0 ? ALPHA / family : ALPHA_CASE, gap = 0;

    if (at == mine.n || !field_of(rec, half, cs, other_vars, &others)) {
        return NAN;
    }
    for (size_t i = 0; i < others.n; i++) {
        gap = fmax(gap, compare_apart(&mine.at[at], &others.at[i], alpha / (double)others.n).lo);
    }
    return gap;
}

static void judge_pick(const struct nt_recording *r, enum nt_half half, const struct nt_case *cs,
                       const char *vars, const struct nt_executed *pick, bool verbose,
                       struct truth_gaps *g)
{
    static struct field f; /* large */
    size_t mine = find_tuple(r, half, cs, vars, pick, &f), other;
    struct nt_est e;

    if (mine == f.n) {
        g->unknown++;
        return;
    }
    g->cases++;
    e = worst_of(&f, mine, ALPHA / (double)(g->family > 0 ? g->family : 1), &other);
    g->worst = e.n > 0 ? fmax(g->worst, e.lo) : g->worst;
    e = worst_of(&f, mine, ALPHA_CASE, &other);
    if (e.n == 0) {
        return;
    }
    g->sum_width += isfinite(e.se) ? e.hi - e.mean : 0;
    g->sum_difference += fmax(e.mean, 0);
    g->worst_seen = fmax(g->worst_seen, e.mean);
    if (e.lo > 0) {
        g->gaps++;
        g->worst_difference = fmax(g->worst_difference, e.mean);
        if (verbose) {
            char text[80], x[48], y[48];
            (void)fprintf(stderr, "gap %s '%s': %s is %.2f %% [%.2f, %.2f] above %s\n",
                          nt_case_text(cs, text, sizeof(text)), vars,
                          nt_executed_text(pick, x, sizeof(x)), 100 * e.mean, 100 * e.lo,
                          100 * e.hi, nt_executed_text(tuple_of(r, &f, other), y, sizeof(y)));
        }
    }
}

/* What nobody can beat who sees only the even gangs: their own best. */
static void judge_oracle(const struct truth_config *c, const struct nt_case *cs, const char *vars,
                         struct truth_gaps *g)
{
    static struct field f; /* large */

    if (field_of(c->rec, NT_EVEN_GANGS, cs, vars, &f)) {
        judge_pick(c->rec, NT_ODD_GANGS, cs, vars, best_of(c->rec, &f), false, g);
    }
}

static void print_level(const char *half, const struct level *l)
{
    (void)fprintf(stderr, "; %s, us a gang:", half);
    for (size_t i = 0; i < l->n; i++) {
        (void)fprintf(stderr, " %.1f", exp(l->x[i]) / 1e3);
    }
}

/* What the search had seen of a tuple, and what both halves hold. */
static void print_seen(const char *what, const struct nt_found *f, const struct nt_executed *x,
                       const struct level *even, const struct level *odd)
{
    for (size_t i = 0; i < f->narms; i++) {
        const struct nt_found_arm *a = &f->arms[i];
        if (nt_executed_equal(&a->executed, x)) {
            (void)fprintf(stderr,
                          "   %s: seen %+.2f %% +- %.2f of the default, %u blocks in %u gangs",
                          what, 100 * a->log_ratio, 100 * a->se, a->blocks, a->gangs);
        }
    }
    print_level("even", even);
    print_level("odd", odd);
    (void)fprintf(stderr, "\n");
}

static size_t index_of(const struct field *f, long cell)
{
    size_t i = 0;
    while (i < f->n && f->cell[i] != cell) {
        i++;
    }
    return i;
}

static void print_chosen(const struct nt_found *f, const struct nt_est *e,
                         const struct nt_executed *best, const struct level *const at[4])
{
    char text[80], x[48], y[48];
    const struct nt_executed *pick = &f->arms[f->pick].executed;

    (void)fprintf(stderr, "beside %s '%s': %s is %.2f %% [%.2f, %.2f] above %s, by %zu gangs\n",
                  nt_case_text(&f->cs, text, sizeof(text)), f->vars,
                  nt_executed_text(pick, x, sizeof(x)), 100 * e->mean, 100 * e->lo, 100 * e->hi,
                  nt_executed_text(best, y, sizeof(y)), e->n);
    print_seen("pick", f, pick, at[0], at[1]);
    print_seen("best", f, best, at[2], at[3]);
}

/* The pick against what exhaustive measurement by the same gangs would have chosen. */
static void judge_chosen(const struct truth_config *c, const struct nt_found *f,
                         struct truth_gaps *g)
{
    static struct field even, odd; /* large */
    static const struct level none;
    const struct nt_executed *pick = &f->arms[f->pick].executed;
    size_t mine = find_tuple(c->rec, NT_ODD_GANGS, &f->cs, f->vars, pick, &odd), best, seen;
    struct nt_est e;

    if (mine == odd.n || !field_of(c->rec, NT_EVEN_GANGS, &f->cs, f->vars, &even)) {
        g->unknown++;
        return;
    }
    best = index_of(&odd, even.cell[even.best]);
    if (best == odd.n) {
        g->unknown++;
        return;
    }
    e = best == mine ? (struct nt_est){.n = TRUTH_JUDGES}
                     : compare(&odd.at[mine], &odd.at[best], scatter_of(odd.at, odd.n), ALPHA);
    if (e.n < TRUTH_JUDGES) {
        g->thin++;
        g->thin_gaps += e.n > 0 && e.lo > 0;
        g->thin_worst = fmax(g->thin_worst, e.n > 0 ? e.lo : 0);
    } else {
        g->cases++;
        g->sum_width += isfinite(e.se) ? e.hi - e.mean : 0;
        g->sum_difference += e.mean;
        g->worst_seen = fmax(g->worst_seen, e.mean);
        g->gaps += e.lo > 0;
        g->worst = fmax(g->worst, e.lo);
        g->worst_difference = fmax(g->worst_difference, e.lo > 0 ? e.mean : 0);
    }
    if (c->verbose && e.n > 0 && e.lo > 0) {
        seen = index_of(&even, odd.cell[mine]);
        print_chosen(f, &e, best_of(c->rec, &even),
                     (const struct level *const[]){seen < even.n ? &even.at[seen] : &none,
                                                   &odd.at[mine], &even.at[even.best],
                                                   &odd.at[best]});
    }
}

static void judge_search(const struct truth_config *c, const struct nt_plan *plan,
                         struct truth_sum *sum)
{
    const struct nt_found *f;
    unsigned family = 0;

    while (nt_plan_found(plan, family) != NULL) {
        family++;
    }
    sum->oracle.family = family;
    for (size_t i = 0; (f = nt_plan_found(plan, i)) != NULL; i++) {
        const struct nt_executed *x = &f->arms[f->pick].executed;
        struct truth_part *part = &sum->part[f->cs.coll][f->cs.mode];
        struct truth_gaps own = {.family = family}, chosen = own, other = own;
        judge_pick(c->rec, NT_ODD_GANGS, &f->cs, f->vars, x, c->verbose, &own);
        judge_oracle(c, &f->cs, f->vars, &sum->oracle);
        judge_chosen(c, f, &chosen);
        if (c->other != NULL) {
            judge_pick(c->other, NT_ALL_GANGS, &f->cs, f->vars, x, false, &other);
        }
        truth_add_gaps(&sum->own, &own);
        truth_add_gaps(&sum->chosen, &chosen);
        truth_add_gaps(&sum->other, &other);
        truth_add_gaps(&part->own, &own);
        truth_add_gaps(&part->chosen, &chosen);
        truth_add_gaps(&part->other, &other);
    }
}

static void print_claim(const struct nt_class_result *k, const struct nt_est *e,
                        const struct level *tuned, const struct level *base)
{
    char text[80], x[48];

    (void)fprintf(stderr, "claim %s: %s is %+.2f %% [%+.2f, %+.2f] of the default",
                  nt_case_text(&k->cs, text, sizeof(text)), nt_call_text(&k->call, x, sizeof(x)),
                  100 * e->mean, 100 * e->lo, 100 * e->hi);
    print_level("tuned", tuned);
    print_level("default", base);
    (void)fprintf(stderr, "\n");
}

static void judge_claims(const struct truth_config *c, const struct nt_spec *spec,
                         const struct nt_plan_result *r, struct truth_sum *sum)
{
    struct nt_call none = NT_CALL_DEFAULT;

    for (size_t i = 0; i < r->nclasses; i++) {
        const struct nt_class_result *k = &r->classes[i];
        const char *vars = k->product == NT_ARM_TABLE ? r->table_vars : r->static_vars;
        struct level tuned, base;
        struct nt_est e;
        struct truth_claims one;
        bool claimed = k->published && k->p <= spec->alpha, told, enough, wrong;
        if (!k->published) {
            continue;
        }
        told = level_of(c->rec, nt_recording_find(c->rec, &k->cs, 0, vars, &k->call), NT_ODD_GANGS,
                        &tuned) &&
               level_of(c->rec, nt_recording_find(c->rec, &k->cs, 0, "", &none), NT_ODD_GANGS,
                        &base) &&
               tuned.n >= LEAST_GANGS && base.n >= LEAST_GANGS;
        e = told ? compare_apart(&tuned, &base, ALPHA) : (struct nt_est){.n = 0};
        wrong = claimed && e.n > 0 && (e.mean >= 0 || e.lo > -log(spec->margin));
        enough = e.n >= TRUTH_JUDGES;
        one = (struct truth_claims){.claims = claimed,
                                    .told_claims = claimed && enough,
                                    .false_claims = wrong && enough,
                                    .pair_claims = claimed && told && !enough,
                                    .thin_claims = wrong && !enough,
                                    .published = 1,
                                    .told_published = told,
                                    .slower = e.n > 0 && e.lo > log(spec->guard)};
        truth_add_claims(&sum->said, &one);
        truth_add_claims(&sum->part[k->cs.coll][k->cs.mode].said, &one);
        if (wrong && c->verbose) {
            print_claim(k, &e, &tuned, &base);
        }
    }
}

int truth_job(const struct truth_config *c, uint64_t seed, struct truth_sum *sum,
              struct nt_err *err)
{
    struct player p = {.c = c, .seed = seed, .half = c->null ? NT_ALL_GANGS : NT_EVEN_GANGS};
    struct nt_plan *plan = NULL;
    struct nt_spec spec;
    int rc = make_spec(c, seed, &spec, err);

    rc = rc == 0 ? nt_plan_new(&spec, &plan, err) : rc;
    rc = rc == 0 ? play(&p, plan, &sum->steps, err) : rc;
    if (rc == -NT_E_NOISY) {
        sum->jobs++;
        sum->noisy++;
        sum->empty++;
        if (c->verbose) {
            (void)fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, err->msg);
        }
        rc = 0;
    } else if (rc == 0) {
        const struct nt_plan_result *r = nt_plan_result(plan);
        sum->jobs++;
        sum->empty += !r->table_present && !r->static_present;
        sum->rows += (unsigned)r->nrows;
        sum->search_ns += r->stage_ns[NT_RACE] + r->stage_ns[NT_REFINE] + r->stage_ns[NT_GATE];
        sum->confirm_ns += r->stage_ns[NT_CONFIRM];
        if (!c->null) {
            judge_search(c, plan, sum);
            judge_claims(c, &spec, r, sum);
        }
    }
    nt_plan_free(plan);
    return rc;
}

int truth_disagreement(const struct truth_config *c, struct truth_gaps *ret, struct nt_err *err)
{
    struct nt_spec spec;
    int rc = make_spec(c, 1, &spec, err);

    *ret = (struct truth_gaps){.family = (unsigned)(spec.nsettings * spec.nsizes) * NT_MODE_COUNT *
                                         NT_COLL_COUNT};
    for (size_t s = 0; rc == 0 && s < spec.nsettings; s++) {
        for (size_t i = 0; i < spec.nsizes * NT_COLL_COUNT; i++) {
            for (int m = 0; m < NT_MODE_COUNT; m++) {
                struct nt_case cs = {.coll = (uint8_t)(i % NT_COLL_COUNT),
                                     .bytes = spec.sizes[i / NT_COLL_COUNT],
                                     .mode = (uint8_t)m};
                static struct field f; /* large */
                if (spec.modes[m] && spec.colls[cs.coll] &&
                    field_of(c->rec, NT_ALL_GANGS, &cs, spec.settings[s], &f)) {
                    judge_pick(c->other, NT_ALL_GANGS, &cs, spec.settings[s], best_of(c->rec, &f),
                               false, ret);
                }
            }
        }
    }
    return rc;
}

/* ------------------------------------------------------------------ the grid */

static double cell_default_ns(const struct nt_recording *r, const struct nt_case *cs)
{
    struct nt_call none = NT_CALL_DEFAULT;
    struct level l;
    return level_of(r, nt_recording_find(r, cs, 0, "", &none), NT_ALL_GANGS, &l)
               ? exp(nt_mean(l.x, l.n))
               : 1e6;
}

/* One gang of the grid under one setting: five blocks of every tuple of every case. */
static uint64_t grid_gang(const struct nt_recording *r, const struct nt_spec *spec,
                          struct nt_replay *gang, const char *vars, unsigned *tuples)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < r->nrange; i++) {
        const struct nt_rec_block *b = &r->block[nt_recording_cell(r, i).block[0]];
        const struct nt_case *cs = &b->b.cs;
        struct nt_measure m = {.cs = *cs, .call = b->b.call, .warmup = 1};
        double est;
        bool in = false;
        for (size_t k = 0; k < spec->nsizes; k++) {
            in = in || (spec->sizes[k] == cs->bytes && spec->colls[cs->coll]);
        }
        if (!in || cs->place != NT_OUT_OF_PLACE || (b->b.flags & NT_CELL_FLAGS) != 0 ||
            strcmp(b->b.process, vars) != 0 || b->reached.algo < 0) {
            continue;
        }
        est = cell_default_ns(r, cs);
        m.inner = plan_inner((enum nt_mode)cs->mode, est);
        m.samples = plan_samples((enum nt_mode)cs->mode, est);
        for (unsigned k = 0; k < 5; k++) {
            struct nt_result x;
            m.id = i * 5 + k;
            nt_replay_measure(gang, &m, &x);
            sum += x.elapsed_ns;
            free(x.ns);
        }
        ++*tuples;
    }
    return sum;
}

int truth_grid(const struct truth_config *c, uint64_t *ret_ns, unsigned *ret_tuples,
               struct nt_err *err)
{
    struct nt_spec spec;
    struct player p = {.c = c, .seed = 1, .half = NT_ALL_GANGS};
    int rc = make_spec(c, 1, &spec, err);
    uint64_t sum = 0;
    unsigned tuples = 0;

    for (size_t s = 0; s < spec.nsettings; s++) {
        for (uint64_t g = 1; g <= 4 && rc == 0; g++) {
            struct nt_plan_gang gang = {.number = g, .vars = spec.settings[s]};
            uint64_t start = 0;
            rc = start_gang(&p, 0, &gang, &start, err);
            tuples = g == 1 && s == 0 ? 0 : tuples;
            sum += start;
            sum += rc == 0 ? grid_gang(c->rec, &spec, &p.gang[0], spec.settings[s], &tuples) : 0;
        }
    }
    *ret_ns = sum;
    *ret_tuples = tuples / 4;
    return rc;
}
