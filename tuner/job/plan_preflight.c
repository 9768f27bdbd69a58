/* Preflight: cells, clocks warm, default against default from fresh gangs. */
#include "tuner/base/text.h"
#include "tuner/job/plan_i.h"

#include <math.h>

enum { NOISE_BLOCKS = 2, WARM_MOST = 12 };
/* Gangs that say that a machine is too noisy: three of which one was disturbed say so too. */
enum { SURE_GANGS = 8 };
/* A class in which only a larger gain than this could be told cannot be tuned. */
static const double LEAST_TOLD = 1.6;
static const double WARM_WITHIN = 0.03; /* log units between the last three blocks */

static uint32_t gangs_wanted(const struct nt_plan *p)
{
    return p->spec.effort == NT_QUICK ? 2 : 3;
}

/* The ladder size nearest to 1 MiB: long enough to load the machine, short enough to repeat. */
static uint32_t warm_point(const struct nt_plan *p)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < p->npoints; i++) {
        double a = fabs(log((double)p->points[i].bytes / 1048576.0));
        double b = fabs(log((double)p->points[best].bytes / 1048576.0));
        best = a < b ? i : best;
    }
    return best;
}

static bool warm_enough(const struct nt_plan *p)
{
    double lo = INFINITY, hi = -INFINITY;

    if (p->warm_n < 3) {
        return false;
    }
    for (uint32_t i = 0; i < 3; i++) {
        double x = p->warm[(p->warm_n - 1 - i) % 4];
        lo = fmin(lo, x);
        hi = fmax(hi, x);
    }
    return hi - lo < WARM_WITHIN || p->warm_n >= WARM_MOST;
}

static void push_noise(struct nt_plan *p)
{
    for (uint32_t i = 0; i < p->npoints; i++) {
        p->order[i] = i;
    }
    nt_rng_shuffle(&p->rng, p->order, p->npoints);
    for (uint32_t b = 0; b < NOISE_BLOCKS; b++) {
        for (uint32_t i = 0; i < p->npoints; i++) {
            for (uint32_t m = 0; m < p->nmodes; m++) {
                uint32_t at = p->order[i];
                struct nt_case cs = plan_case(p, at, p->modes[m]);
                double est = plan_default_ns(p, at, p->modes[m]);
                unsigned n = plan_samples(p->modes[m], est);
                struct todo *t = plan_measure(p, 0, FOR_NOISE, &cs, NT_CALL_DEFAULT, est, n);
                t->point = at;
                t->mode = p->modes[m];
                t->step.m.flags = p->pre_gang == 1 && b == 0 ? NT_M_READBACK : 0;
                t->step.m.verify = b == 0 ? NT_VERIFY_BOTH : NT_VERIFY_NO;
            }
        }
    }
}

/* Three gangs tell next to nothing of how gangs of one size differ, and one of them that was
 * disturbed too much: the median of this size and its neighbours. */
static void smooth_noise(struct nt_plan *p)
{
    enum { REACH = 2 };

    for (uint32_t k = 0; k < p->nmodes; k++) {
        enum nt_mode m = p->modes[k];
        for (uint32_t i = 0; i < p->npoints; i++) {
            double sd[2 * REACH + 1];
            size_t n = 0;
            for (uint32_t j = i < REACH ? 0 : i - REACH; j < p->npoints && j <= i + REACH; j++) {
                if (p->points[j].coll == p->points[i].coll) {
                    sd[n++] = p->points[j].pre[m].noise.gang_sd;
                }
            }
            p->points[i].pre[m].gang_sd = nt_median(sd, n);
        }
    }
}

/* What the search may not use: the table's confirm; as much for racing backends and as much for
 * their pairs. Of a budget too small for all of that they take what there is, down to half as much
 * as the table's alone: fewer of them are confirmed then. */
static uint64_t reserve_ns(const struct nt_plan *p)
{
    uint64_t table = confirm_cost_ns(p), all = 3 * table, least = table / 2 * 3, room;
    uint64_t budget = p->spec.budget_ns, spent = p->result.stage_ns[NT_PREFLIGHT];

    if (!nt_spec_has_backends(&p->spec)) {
        return table;
    }
    room = budget > spent ? (budget - spent) / 4 * 3 : 0;
    return budget == 0 || all < room ? all : room > least ? room : least;
}

/* What the confirm detects in a class, when a pair's difference has that sd. */
static double detectable(const struct nt_plan *p, double sd)
{
    uint32_t classes = p->npoints * p->nmodes;
    return log(p->spec.margin) + nt_detectable(sd, p->spec.pairs, p->spec.alpha / classes, 0.8);
}

/* Also what the confirm can detect: a tuned and a default gang in every pair. Returns the classes
 * that seem too noisy. */
static uint32_t fit_noise(struct nt_plan *p)
{
    uint32_t deaf = 0;

    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            enum nt_mode m = p->modes[k];
            struct nt_noise *n = &p->points[i].pre[m].noise;
            if (nt_noise_fit(p->points[i].pre[m].value, p->points[i].pre[m].gang,
                             p->points[i].pre[m].n, p->pre_gang, n, NULL) != 0) {
                *n = (struct nt_noise){.block_sd = 0.05, .gang_sd = 0.05};
            }
            p->points[i].pre[m].est_ns = 0; /* of all gangs so far */
            p->points[i].pre[m].est_ns = plan_default_ns(p, i, m);
        }
    }
    smooth_noise(p);
    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            enum nt_mode m = p->modes[k];
            p->points[i].pre[m].detectable = detectable(p, confirm_sd(p, i, m));
            deaf += p->points[i].pre[m].detectable > log(LEAST_TOLD);
        }
    }
    p->reserve_ns = reserve_ns(p);
    return deaf;
}

/* Classes that are too noisy for sure. One disturbed gang makes many of them seem so at once, and
 * their number then proves nothing: with the chance alpha, over all classes together, one is called
 * too noisy that is not (each by the lower bound of its own sd at alpha / classes: Bonferroni,
 * whatever they have in common). */
static uint32_t count_deaf(const struct nt_plan *p)
{
    uint32_t classes = p->npoints * p->nmodes, deaf = 0;

    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            const struct nt_noise *n = &p->points[i].pre[p->modes[k]].noise;
            double sd = confirm_sd_of(p, i, p->modes[k], n->gang_sd);
            deaf += detectable(p, nt_sd_at_least(sd, n->gangs, p->spec.alpha / classes)) >
                    log(LEAST_TOLD);
        }
    }
    return deaf;
}

/* The noise is known: can the job go on? seem: classes that seem too noisy. */
static void judge_noise(struct nt_plan *p, uint32_t seem)
{
    char text[24];
    uint32_t classes = p->npoints * p->nmodes, deaf = seem * 2 > classes ? count_deaf(p) : 0;

    if (seem * 2 > classes) {
        plan_not_checked(p, "gains below %.0f %% in %u of %u classes: too noisy here",
                         100 * (LEAST_TOLD - 1), seem, classes);
    }
    if (deaf * 2 > classes) {
        p->result.too_noisy = true;
        (void)nt_fail(&p->failed, NT_E_NOISY, 0,
                      "too noisy to tune: in %u of %u classes only gains above %.0f %% could be "
                      "told; stop what else runs on the machine, or pin clocks and processes",
                      deaf, classes, 100 * (LEAST_TOLD - 1));
    } else if (p->spec.budget_ns > 0 &&
               nt_plan_least_budget(p) + p->reserve_ns / 4 > p->spec.budget_ns) {
        (void)nt_fail(&p->failed, NT_E_INVAL, 0,
                      "--budget %s is too short: the confirm alone takes %.0f s %s; the least that "
                      "works is %.0f s",
                      nt_format_ns((double)p->spec.budget_ns, text, sizeof(text)),
                      (double)p->reserve_ns / 1e9,
                      p->spec.rig >= NT_RIG_RECORDING ? "of the time of what is played" : "here",
                      ceil(((double)nt_plan_least_budget(p) + (double)p->reserve_ns / 4) / 1e9));
    }
}

/* Not every NCCL has fp8, and not every device adds it up: what the default cannot do is no reason
 * to give up a row. */
static void push_types(struct nt_plan *p)
{
    for (uint32_t i = 0; i < p->npoints; i++) {
        bool last = i + 1 == p->npoints || p->points[i + 1].coll != p->points[i].coll;
        struct nt_case cs = plan_case(p, i, p->modes[0]);
        struct todo *t;
        if (!last || !p->spec.dtypes[NT_FP8] || p->raced_dtype == NT_FP8) {
            continue;
        }
        cs.dtype = NT_FP8;
        t = plan_measure(p, 0, FOR_TYPE, &cs, NT_CALL_DEFAULT, plan_default_ns(p, i, p->modes[0]),
                         0);
        t->point = i;
        t->step.m.warmup = 0;
    }
}

void preflight_type_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    const struct nt_case *cs = &t->step.cs;

    if (o->result->status == NT_ST_UNAVAILABLE) {
        p->absent[cs->coll][cs->dtype] = true;
        plan_not_checked(p, "%s of %s: not there", nt_coll_names[cs->coll],
                         nt_dtype_names[cs->dtype]);
    }
}

bool preflight_refill(struct nt_plan *p)
{
    static const enum nt_arm search = NT_ARM_SEARCH;
    uint32_t at = warm_point(p);

    if (p->pre_gang >= gangs_wanted(p) && p->nlive > 0) {
        uint32_t seem = fit_noise(p);
        if (seem * 2 <= p->npoints * p->nmodes || p->pre_gang >= SURE_GANGS) {
            judge_noise(p, seem);
            return false; /* the last gang stays: the race goes on in it */
        }
    }
    if (p->nlive == 0 || (p->nlive > 0 && p->pre_gang > 0 && p->warm_n == NONE)) {
        plan_stop(p);
        (void)plan_start(p, &search, 1, 0);
        p->warm_n = 0;
        for (uint32_t i = 0; p->pre_gang == 0 && i < p->npoints; i++) {
            struct todo *t = plan_push(p, NT_DO_CELLS, FOR_NOTHING);
            t->point = i;
            t->step.gang = p->live[0].number;
            t->step.arm = NT_ARM_SEARCH;
            t->step.vars = p->live[0].vars;
            t->step.cs = plan_case(p, i, p->modes[0]);
        }
        if (p->pre_gang == 0) {
            push_types(p);
        }
        return true;
    }
    if (!warm_enough(p)) {
        struct nt_case cs = plan_case(p, at, p->modes[0]);
        double est = plan_default_ns(p, at, p->modes[0]);
        (void)plan_measure(p, 0, FOR_WARM, &cs, NT_CALL_DEFAULT, est,
                           plan_samples(p->modes[0], est));
        return true;
    }
    p->pre_gang++;
    push_noise(p);
    p->warm_n = NONE; /* this gang is done when its noise blocks are */
    return true;
}

void preflight_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    double x = plan_log_median(o->result);

    if (o->result->status == NT_ST_WRONG) {
        (void)nt_fail(&p->failed, NT_E_NO, 0,
                      "NCCL's default gives wrong data on this machine (%llu elements): nothing "
                      "may be tuned here",
                      (unsigned long long)o->result->wrong);
        return;
    }
    if (isnan(x)) {
        if (!o->lost) {
            (void)nt_fail(&p->failed, NT_E_MISSING, 0,
                          "NCCL's default could not be measured: %s: %.300s",
                          nt_status_names[o->result->status], o->result->error);
        }
        return;
    }
    if (t->purpose == FOR_WARM) {
        p->warm[p->warm_n++ % 4] = x;
        return;
    }
    if (p->points[t->point].pre[t->mode].n < MAX_PRE) {
        uint32_t n = p->points[t->point].pre[t->mode].n++;
        p->points[t->point].pre[t->mode].value[n] = x;
        p->points[t->point].pre[t->mode].gang[n] = p->pre_gang - 1;
    }
    if (o->result->executed.algo >= 0 && p->points[t->point].def.channels == 0) {
        p->points[t->point].def = o->result->executed;
    }
}
