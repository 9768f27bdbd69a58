/* The job's plan against a landscape, in process. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/bench/rivals.h"
#include "tuner/job/plan_i.h"

struct play {
    const struct land *l;
    struct nt_plan *p;
    struct land_gang gang[NT_PLAN_GANGS];
    uint64_t number[NT_PLAN_GANGS];
    struct nt_result result;
    uint64_t think_ns, steps;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct land_gang *gang_of(struct play *y, uint64_t number)
{
    for (size_t i = 0; i < NT_PLAN_GANGS; i++) {
        if (y->number[i] == number) {
            return &y->gang[i];
        }
    }
    nt_assert(false);
    return NULL;
}

static void answer(struct play *y, const struct nt_plan_step *s, struct nt_plan_outcome *o)
{
    struct nt_measure m = s->m;

    memset(o, 0, sizeof(*o));
    free(y->result.ns);
    y->result.ns = NULL;
    switch (s->kind) {
    case NT_DO_START:
        for (size_t i = 0; i < s->ngangs; i++) {
            y->number[i] = s->gangs[i].number;
            land_start(y->l, s->gangs[i].number, s->gangs[i].vars, &y->gang[i]);
            o->elapsed_ns =
                y->gang[i].start_ns > o->elapsed_ns ? y->gang[i].start_ns : o->elapsed_ns;
        }
        break;
    case NT_DO_CELLS:
        land_cells(y->l, gang_of(y, s->gang), &s->cs, &o->cells);
        o->elapsed_ns = 200000;
        break;
    case NT_DO_MEASURE:
        if (s->arm != NT_ARM_SEARCH && s->arm != NT_ARM_TABLE) {
            m.call = NT_CALL_DEFAULT;
        }
        land_measure(y->l, gang_of(y, s->gang), &m, &y->result);
        o->result = &y->result;
        o->elapsed_ns = y->result.elapsed_ns;
        break;
    default:
        break;
    }
}

FILE *ours_decisions;

/* A step as text, exactly: two builds that decide alike write the same. */
static void print_step(const struct play *y, const struct nt_plan_step *s)
{
    char text[80], call[48];

    if (s->kind == NT_DO_START) {
        (void)fprintf(ours_decisions, "%llu: gang %llu %s '%s'\n", (unsigned long long)y->l->seed,
                      (unsigned long long)s->gangs[0].number, nt_stage_names[s->stage],
                      s->gangs[0].vars);
    } else if (s->kind == NT_DO_MEASURE) {
        (void)fprintf(ours_decisions, "%s %s %u\n", nt_case_text(&s->cs, text, sizeof(text)),
                      nt_call_text(&s->m.call, call, sizeof(call)), s->m.samples);
    }
}

static void print_found(const struct nt_plan *p)
{
    const struct nt_found *f;

    for (size_t i = 0; (f = nt_plan_found(p, i)) != NULL; i++) {
        (void)fprintf(ours_decisions, "found %zu: %u\n", i, f->pick);
        for (size_t k = 0; k < f->narms; k++) {
            (void)fprintf(ours_decisions, " %a %a %u %d\n", f->arms[k].log_ratio, f->arms[k].se,
                          f->arms[k].blocks, f->arms[k].dropped);
        }
    }
}

/* One step; false: nothing more before `until`. */
static bool step(struct play *y, enum nt_stage until, int *rc, struct nt_err *err)
{
    struct nt_plan_step s;
    struct nt_plan_outcome o;
    uint64_t begin = now_ns();

    *rc = nt_plan_next(y->p, &s, err);
    y->think_ns += now_ns() - begin;
    if (*rc != 0 || s.kind == NT_DO_FINISHED || s.stage >= until) {
        return false;
    }
    if (ours_decisions != NULL) {
        print_step(y, &s);
    }
    answer(y, &s, &o);
    begin = now_ns();
    *rc = nt_plan_tell(y->p, &o, err);
    y->think_ns += now_ns() - begin;
    y->steps++;
    return *rc == 0;
}

static double search_seconds(const struct nt_plan *p)
{
    uint64_t ns = 0;
    for (int s = NT_RACE; s < NT_CONFIRM; s++) {
        ns += p->result.stage_ns[s];
    }
    return (double)ns / 1e9;
}

/* What the job would pick now; where it has not looked yet, the default. */
static void take_standing(const struct play *y, struct outcome *ret)
{
    struct standing *s = &ret->at[ret->n++];
    size_t cases = (size_t)y->p->npoints * y->p->nmodes;
    uint32_t setting = land_setting(y->l, nt_plan_table_vars(y->p));
    bool any = y->p->settings[y->p->table_setting].cells != NULL;
    unsigned n = 0;

    nt_assert(setting != NONE);
    *s = (struct standing){.seconds = search_seconds(y->p)};
    for (size_t i = 0; i < cases; i++) {
        const struct nt_found *f = any ? nt_plan_found(y->p, i) : NULL;
        struct nt_case cs =
            plan_case(y->p, (uint32_t)(i / y->p->nmodes), y->p->modes[i % y->p->nmodes]);
        const struct land_case *c = land_find(y->l, setting, &cs);
        const struct nt_executed *x =
            f != NULL && f->pick < f->narms ? &f->arms[f->pick].executed : NULL;
        const struct land_arm *a = c == NULL ? NULL : x != NULL ? land_tuple(c, x) : &c->arm[0];
        if (a != NULL) {
            s->mean += a->gap;
            s->worst = fmax(s->worst, a->sure);
            s->exact += a->told <= 0.01;
            n++;
        }
    }
    s->mean /= n > 0 ? n : 1;
    s->exact /= n > 0 ? n : 1;
}

bool ours_verbose;

static void print_arm(const char *what, const struct land_case *c, const struct nt_found_arm *a)
{
    char x[48];
    (void)fprintf(stderr,
                  "  %s %s: %+.2f %% of the best, seen %+.2f %% +- %.2f of the default, "
                  "%u blocks in %u gangs%s\n",
                  what, nt_executed_text(&a->executed, x, sizeof(x)),
                  100 * land_gap(c, &a->executed), 100 * a->log_ratio, 100 * a->se, a->blocks,
                  a->gangs, a->dropped ? ", dropped" : "");
}

/* What was seen of picks that lose more than half of what counts as as good, and of the best. */
static void print_losses(const struct play *y)
{
    const struct nt_found *f;

    for (size_t i = 0; (f = nt_plan_found(y->p, i)) != NULL; i++) {
        const struct land_case *c =
            land_find(y->l, land_setting(y->l, nt_plan_table_vars(y->p)), &f->cs);
        char text[80];
        if (c == NULL || !(land_gap(c, &f->arms[f->pick].executed) > 0.005)) {
            continue;
        }
        (void)fprintf(stderr, "seed %llu, %s: %u gangs\n", (unsigned long long)y->l->seed,
                      nt_case_text(&f->cs, text, sizeof(text)), y->p->settings[0].gangs);
        print_arm("pick", c, &f->arms[f->pick]);
        for (size_t k = 0; k < f->narms; k++) {
            if (land_gap(c, &f->arms[k].executed) <= 0) {
                print_arm("best", c, &f->arms[k]);
            }
        }
    }
}

int ours_run(const struct land *l, struct outcome *ret, struct nt_err *err)
{
    struct play y = {.l = l};
    int rc = nt_plan_new(&l->spec, &y.p, err);
    double next = 0;

    if (rc != 0) {
        return rc;
    }
    while (step(&y, NT_CONFIRM, &rc, err)) {
        if (y.p->stage >= NT_RACE && search_seconds(y.p) >= next && ret->n + 1 < STANDINGS) {
            take_standing(&y, ret);
            next = fmax(next, 0.004 * l->grid_s) * 1.08;
        }
    }
    ret->preflight_s = (double)y.p->result.stage_ns[NT_PREFLIGHT] / 1e9;
    if (rc == 0) {
        take_standing(&y, ret);
    }
    if (rc == 0 && ours_verbose) {
        print_losses(&y);
    }
    if (rc == 0 && ours_decisions != NULL) {
        print_found(y.p);
    }
    ret->setting = rc == 0 ? land_setting(l, nt_plan_table_vars(y.p)) : 0;
    ret->blocks = y.steps;
    ret->decide_ns = y.think_ns;
    free(y.result.ns);
    nt_plan_free(y.p);
    return rc;
}

int rival_job(const struct land *l, unsigned *ret_published, unsigned *ret_false, double *ret_worst,
              struct nt_err *err)
{
    struct play y = {.l = l};
    int rc = nt_plan_new(&l->spec, &y.p, err);

    *ret_published = *ret_false = 0;
    *ret_worst = 0;
    if (rc != 0) {
        return rc;
    }
    while (step(&y, NT_STAGE_COUNT, &rc, err)) {
    }
    for (size_t i = 0; rc == 0 && i < nt_plan_result(y.p)->nclasses; i++) {
        const struct nt_class_result *k = &nt_plan_result(y.p)->classes[i];
        const struct land_case *c = land_find(l, 0, &k->cs);
        struct land_gang g;
        struct nt_executed x;
        double gap;
        if (!k->published || !k->in_row || c == NULL || l->rec != NULL) {
            continue;
        }
        land_start(l, 1, "", &g);
        (*ret_published)++;
        if (k->product == NT_ARM_TABLE && nt_sim_executed(&g.sim, &c->cs, &k->call, &x)) {
            gap = land_gap(c, &x) - land_gap(c, &c->arm[0].executed);
            *ret_worst = fmax(*ret_worst, gap);
            *ret_false += gap > -1e-9;
        }
    }
    free(y.result.ns);
    nt_plan_free(y.p);
    return rc;
}
