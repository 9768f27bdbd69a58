#include "tests/bench/rivals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/tpe.h"
#include "tuner/base/rng.h"
#include "tuner/job/plan_i.h"

const char *const rival_names[RIVALS] = {
    "ours",    "exhaustive", "random",           "coordinate descent",
    "halving", "Optuna TPE", "racing over sizes"};

enum { GANGS = 4 };

struct tally {           /* of one arm in one case */
    double sum, squares; /* of log medians */
    uint32_t n;
    bool out; /* wrong, or left behind */
};
struct hunt {
    const struct land *l;
    struct tpe *tpe;
    struct nt_rng rng;
    struct land_gang gang;
    uint64_t gangs, id;
    bool told;                /* knows the tuples for nothing */
    uint32_t at;              /* process setting of the gang alive */
    struct {                  /* of each process setting */
        bool seen, done, out; /* done: of all cases, in a gang at least */
    } setting[LAND_SETTINGS];
    double seconds, next;
    struct tally (*tally)[LAND_ARMS]; /* [setting * cases + case] */
    struct outcome *ret;
};

static struct land_case *case_of(const struct hunt *h, uint32_t k)
{
    return &h->l->setting[h->at].cases[k];
}

/* Of the setting at hand. */
static struct tally *tally_of(const struct hunt *h, uint32_t k)
{
    return h->tally[h->at * h->l->ncases + k];
}

/* ------------------------------------------------------------------ measuring */

static double mean_of(const struct tally *t)
{
    return t->n > 0 && !t->out ? t->sum / t->n : INFINITY;
}

/* Of a case under a setting. */
static uint32_t best_under(const struct hunt *h, uint32_t setting, uint32_t k)
{
    const struct tally *t = h->tally[setting * h->l->ncases + k];
    uint32_t best = 0;
    for (uint32_t i = 1; i < h->l->setting[setting].cases[k].n; i++) {
        best = mean_of(&t[i]) < mean_of(&t[best]) ? i : best;
    }
    return best;
}

static uint32_t best_of(const struct hunt *h, uint32_t k)
{
    return best_under(h, h->at, k);
}

/* How good a setting seems: the mean over the cases of what its best tuples took. */
static double level_of(const struct hunt *h, uint32_t setting)
{
    double sum = 0;
    for (uint32_t k = 0; k < h->l->ncases; k++) {
        sum += mean_of(&h->tally[setting * h->l->ncases + k][best_under(h, setting, k)]);
    }
    return sum / h->l->ncases;
}

/* The setting that would be taken now; before any was seen whole, as is. */
static uint32_t best_setting(const struct hunt *h)
{
    uint32_t best = 0;
    double least = INFINITY;
    for (uint32_t s = 0; s < h->l->nsettings; s++) {
        double x = h->setting[s].done ? level_of(h, s) : INFINITY;
        best = x < least ? s : best;
        least = x < least ? x : least;
    }
    return best;
}

static void stand(struct hunt *h, bool last)
{
    struct standing *s;
    uint32_t setting;

    if ((!last && h->seconds < h->next) || h->ret->n + (last ? 0 : 1) >= STANDINGS) {
        return;
    }
    h->next = fmax(h->seconds, 0.004 * h->l->grid_s) * 1.08;
    s = &h->ret->at[h->ret->n++];
    *s = (struct standing){.seconds = h->seconds};
    setting = best_setting(h);
    for (uint32_t k = 0; k < h->l->ncases; k++) {
        const struct land_case *c = &h->l->setting[setting].cases[k];
        const struct land_arm *a = &c->arm[best_under(h, setting, k)];
        s->mean += a->gap / h->l->ncases;
        s->worst = fmax(s->worst, a->sure);
        s->exact += (a->told <= 0.01) / (double)h->l->ncases;
    }
}

/* One block; the log of its median, +inf where the tuple does not work. The first of an arm checks
 * its data. */
static double block(struct hunt *h, uint32_t k, uint32_t arm)
{
    const struct land_case *c = case_of(h, k);
    struct tally *t = &tally_of(h, k)[arm];
    double est = c->arm[0].true_ns, y;
    struct nt_measure m = {.id = ++h->id,
                           .cs = c->cs,
                           .call = c->arm[arm].call,
                           .warmup = 1,
                           .samples = plan_samples((enum nt_mode)c->cs.mode, est),
                           .inner = plan_inner((enum nt_mode)c->cs.mode, est),
                           .flags = arm != 0 ? NT_M_OWN : 0,
                           .verify = t->n == 0 ? NT_VERIFY_BEFORE : NT_VERIFY_NO,
                           .deadline_ms = 60000};
    struct nt_result r;

    land_measure(h->l, &h->gang, &m, &r);
    if (r.status == NT_ST_NOT_RECORDED) {
        return mean_of(t); /* it sits out this gang */
    }
    h->seconds += (double)r.elapsed_ns / 1e9;
    h->ret->blocks++;
    y = plan_log_median(&r);
    free(r.ns);
    if (isnan(y)) {
        t->out = true;
        return INFINITY;
    }
    t->sum += y;
    t->squares += y * y;
    t->n++;
    stand(h, false);
    return y;
}

static double blocks(struct hunt *h, uint32_t k, uint32_t arm, uint32_t n)
{
    for (uint32_t i = 0; i < n && !tally_of(h, k)[arm].out; i++) {
        (void)block(h, k, arm);
    }
    return mean_of(&tally_of(h, k)[arm]);
}

/* The looks by which ours finds out what a request runs: all methods pay for them, and may use what
 * they saw. Of one mode only, as a tuple does not depend on it; under each process setting anew. */
static void discover(struct hunt *h)
{
    for (uint32_t k = 0; k < h->l->ncases; k++) {
        const struct land_case *c = case_of(h, k);
        if (c->cs.mode != case_of(h, 0)->cs.mode) {
            continue;
        }
        for (uint32_t i = 0; i < c->looks; i++) {
            struct tally *t = &tally_of(h, k)[c->look[i].arm];
            struct nt_measure m = {.id = ++h->id,
                                   .cs = c->cs,
                                   .call = c->look[i].call,
                                   .samples = c->arm[0].true_ns > 3e6 ? 1 : 3,
                                   .inner = plan_inner((enum nt_mode)c->cs.mode, c->arm[0].true_ns),
                                   .flags = NT_M_READBACK,
                                   .verify = NT_VERIFY_BEFORE,
                                   .deadline_ms = 60000};
            struct nt_result r;
            double y;
            land_measure(h->l, &h->gang, &m, &r);
            h->seconds += (double)r.elapsed_ns / 1e9;
            y = plan_log_median(&r);
            free(r.ns);
            t->out = t->out || isnan(y);
            if (!t->out) {
                t->sum += y;
                t->squares += y * y;
                t->n++;
            }
        }
    }
    stand(h, false);
}

/* A fresh gang under a process setting. */
static void enter(struct hunt *h, uint32_t setting)
{
    h->at = setting;
    land_start(h->l, ++h->gangs, h->l->setting[setting].vars, &h->gang);
    h->seconds += (double)h->gang.start_ns / 1e9;
    if (!h->setting[setting].seen && !h->told) {
        discover(h);
    }
    h->setting[setting].seen = true;
}

/* Its gang is over. */
static void leave(struct hunt *h)
{
    h->setting[h->at].done = true;
}

/* All settings in an order by chance. */
static uint32_t shuffled(struct hunt *h, uint32_t *list)
{
    for (uint32_t s = 0; s < h->l->nsettings; s++) {
        list[s] = s;
    }
    nt_rng_shuffle(&h->rng, list, h->l->nsettings);
    return h->l->nsettings;
}

/* ------------------------------------------------------------------ the methods */

static void exhaustive(struct hunt *h)
{
    for (uint32_t g = 0; g < GANGS * h->l->nsettings; g++) {
        enter(h, g % h->l->nsettings);
        for (int b = 0; b < 5; b++) {
            for (uint32_t k = 0; k < h->l->ncases; k++) {
                for (uint32_t i = 0; i < case_of(h, k)->n; i++) {
                    (void)blocks(h, k, i, 1);
                }
            }
        }
        leave(h);
    }
}

/* Arms by chance, three blocks each, until half of them were seen in every gang. */
static void by_chance(struct hunt *h)
{
    uint32_t order[LAND_SETTINGS], n = h->l->nsettings;

    for (uint32_t g = 0; g < GANGS * n; g++) {
        n = g % n == 0 ? shuffled(h, order) : n;
        enter(h, order[g % n]);
        for (uint32_t k = 0; k < h->l->ncases; k++) {
            uint32_t arms = case_of(h, k)->n;
            (void)blocks(h, k, 0, 3);
            for (uint32_t i = 0; i < (arms + 1) / 2; i++) {
                (void)blocks(h, k, (uint32_t)nt_rng_below(&h->rng, arms), 3);
            }
        }
        leave(h);
    }
}

/* Neighbours of an arm: the next counts of channels, and the others at the same request. */
static uint32_t neighbours(const struct land_case *c, uint32_t at, uint32_t *out)
{
    const struct nt_executed *x = &c->arm[at].executed;
    uint32_t up = NONE, down = NONE, n = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        const struct nt_executed *y = &c->arm[i].executed;
        if (i == at) {
            continue;
        }
        if (y->algo != x->algo || y->proto != x->proto) {
            if (y->channels == x->channels) {
                out[n++] = i;
            }
        } else if (y->channels > x->channels) {
            up = up == NONE || y->channels < c->arm[up].executed.channels ? i : up;
        } else {
            down = down == NONE || y->channels > c->arm[down].executed.channels ? i : down;
        }
    }
    if (up != NONE) {
        out[n++] = up;
    }
    if (down != NONE) {
        out[n++] = down;
    }
    return n;
}

static void descend(struct hunt *h, uint32_t k, uint32_t at)
{
    uint32_t list[LAND_ARMS], n;
    double here = blocks(h, k, at, 3);
    bool moved = true;

    while (moved) {
        moved = false;
        n = neighbours(case_of(h, k), at, list);
        nt_rng_shuffle(&h->rng, list, n);
        for (uint32_t i = 0; i < n && !moved; i++) {
            double there = tally_of(h, k)[list[i]].n > 0 ? mean_of(&tally_of(h, k)[list[i]])
                                                         : blocks(h, k, list[i], 3);
            if (there < here) {
                at = list[i];
                here = there;
                moved = true;
            }
        }
    }
}

/* Do they differ by one variable that only one of them has? */
static bool one_step(const char *a, const char *b)
{
    char text[NT_SETTING_LEN], *rest = text, *word;
    const char *more = strlen(a) > strlen(b) ? a : b, *less = more == a ? b : a;
    unsigned apart = 0;

    (void)snprintf(text, sizeof(text), "%s", more);
    while ((word = strsep(&rest, " ")) != NULL) {
        apart += word[0] != '\0' && strstr(less, word) == NULL;
    }
    return apart == 1;
}

/* Where the best arm of the case under another setting is found under this one; else the default.
 */
static uint32_t same_arm(const struct hunt *h, uint32_t setting, uint32_t k)
{
    const struct land_case *from = &h->l->setting[setting].cases[k], *c = case_of(h, k);
    const struct land_arm *a = land_tuple(c, &from->arm[best_under(h, setting, k)].executed);
    return a != NULL ? (uint32_t)(a - c->arm) : 0;
}

/* The process setting is a coordinate more, of all cases together: a step of it costs a gang. */
static uint32_t descend_settings(struct hunt *h)
{
    uint32_t order[LAND_SETTINGS], here = 0, n = h->l->nsettings > 1 ? shuffled(h, order) : 0;

    for (uint32_t i = 0; i < n; i++) {
        if (h->setting[order[i]].seen ||
            !one_step(h->l->setting[order[i]].vars, h->l->setting[here].vars)) {
            continue;
        }
        enter(h, order[i]);
        for (uint32_t k = 0; k < h->l->ncases; k++) {
            descend(h, k, same_arm(h, here, k));
        }
        leave(h);
        if (level_of(h, order[i]) < level_of(h, here)) {
            here = order[i];
            i = UINT32_MAX; /* from there, all directions again */
        }
    }
    return here;
}

static void coordinate_descent(struct hunt *h)
{
    uint32_t here = 0;

    for (int g = 0; g < GANGS; g++) {
        enter(h, here);
        for (uint32_t k = 0; k < h->l->ncases; k++) {
            descend(h, k, g == 0 ? 0 : (uint32_t)nt_rng_below(&h->rng, case_of(h, k)->n));
        }
        leave(h);
        here = g == 0 ? descend_settings(h) : here;
    }
}

static uint32_t alive(const struct hunt *h, uint32_t k, uint32_t *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < case_of(h, k)->n; i++) {
        if (!tally_of(h, k)[i].out) {
            list[n++] = i;
        }
    }
    return n;
}

static uint32_t alive_settings(const struct hunt *h, uint32_t *list)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < h->l->nsettings; s++) {
        if (!h->setting[s].out) {
            list[n++] = s;
        }
    }
    return n;
}

/* Of a case; returns how many are left. each: blocks of an arm. */
static uint32_t halve_case(struct hunt *h, uint32_t k, uint32_t each, bool alone)
{
    uint32_t list[LAND_ARMS], n = alive(h, k, list);

    for (uint32_t i = 0; i < n && (n > 1 || !alone); i++) {
        (void)blocks(h, k, list[i], each > 16 ? 16 : each);
    }
    n = alive(h, k, list);
    for (uint32_t i = 1; i < n; i++) {
        for (uint32_t j = i;
             j > 0 && mean_of(&tally_of(h, k)[list[j]]) < mean_of(&tally_of(h, k)[list[j - 1]]);
             j--) {
            uint32_t t = list[j];
            list[j] = list[j - 1];
            list[j - 1] = t;
        }
    }
    for (uint32_t i = (n + 1) / 2; i < n; i++) {
        tally_of(h, k)[list[i]].out = true;
    }
    return (n + 1) / 2;
}

static void halve_settings(struct hunt *h)
{
    uint32_t list[LAND_SETTINGS], n = alive_settings(h, list);

    for (uint32_t left = (n + 1) / 2; n > left; n--) {
        uint32_t worst = 0;
        for (uint32_t i = 1; i < n; i++) {
            worst = level_of(h, list[i]) > level_of(h, list[worst]) ? i : worst;
        }
        h->setting[list[worst]].out = true;
        list[worst] = list[n - 1];
    }
}

/* The better half goes on, with twice the blocks, in a fresh gang; so does that of the settings. */
static void halving(struct hunt *h)
{
    uint32_t list[LAND_SETTINGS], most = 2, n = alive_settings(h, list);

    for (uint32_t each = 1; most > 1 || n > 1; each *= 2) {
        most = 1;
        for (uint32_t s = 0; s < n; s++) {
            enter(h, list[s]);
            for (uint32_t k = 0; k < h->l->ncases; k++) {
                uint32_t left = halve_case(h, k, each, n == 1);
                most = left > most ? left : most;
            }
            leave(h);
        }
        halve_settings(h);
        n = alive_settings(h, list);
    }
}

/* A study a case and process setting, as many trials as arms in all, told the log of each block's
 * median; and one of the settings, a trial a gang, told the mean of the cases' best. */
static int ask_setting(struct hunt *h, uint32_t *ret, struct nt_err *err)
{
    uint32_t study = h->l->nsettings * h->l->ncases;
    int rc = 0;

    *ret = 0;
    if (h->l->nsettings > 1) {
        rc = h->gangs == 0
                 ? tpe_choice(h->tpe, study, h->l->nsettings, nt_rng_next(&h->rng) >> 33, err)
                 : 0;
        rc = rc == 0 ? tpe_ask(h->tpe, study, ret, err) : rc;
    }
    *ret = *ret < h->l->nsettings ? *ret : 0;
    return rc;
}

static int by_tpe(struct hunt *h, struct nt_err *err)
{
    int rc = 0;

    for (uint32_t g = 0; g < GANGS * h->l->nsettings && rc == 0; g++) {
        uint32_t setting = 0;
        bool seen;
        rc = ask_setting(h, &setting, err);
        seen = h->setting[setting].seen;
        enter(h, setting);
        for (uint32_t k = 0; k < h->l->ncases && rc == 0; k++) {
            const struct land_case *c = case_of(h, k);
            uint32_t study = setting * h->l->ncases + k;
            rc = !seen ? tpe_study(h->tpe, study, c, nt_rng_next(&h->rng) >> 33, err) : 0;
            for (uint32_t i = 0; i < (c->n + 1) / 2 && rc == 0; i++) {
                uint32_t arm = 0;
                double y;
                rc = tpe_ask(h->tpe, study, &arm, err);
                if (rc != 0 || arm >= c->n) {
                    break;
                }
                y = tally_of(h, k)[arm].out ? INFINITY : block(h, k, arm);
                rc = tpe_tell(h->tpe, study, isinf(y) ? 99 : y, err);
            }
        }
        leave(h);
        if (rc == 0 && h->l->nsettings > 1) {
            rc = tpe_tell(h->tpe, h->l->nsettings * h->l->ncases, level_of(h, setting), err);
        }
    }
    return rc;
}

/* Two standard errors behind the best: out. */
static void leave_behind(struct hunt *h, uint32_t k)
{
    uint32_t best = best_of(h, k);
    const struct tally *b = &tally_of(h, k)[best];

    for (uint32_t i = 0; i < case_of(h, k)->n; i++) {
        struct tally *t = &tally_of(h, k)[i];
        double var;
        if (i == best || t->n < 2 || b->n < 2) {
            continue;
        }
        var = (t->squares - t->sum * t->sum / t->n) / (t->n - 1) / t->n +
              (b->squares - b->sum * b->sum / b->n) / (b->n - 1) / b->n;
        t->out = t->out || mean_of(t) - mean_of(b) > 2 * sqrt(fmax(var, 1e-6));
    }
}

static const struct land_case *smaller(const struct hunt *h, uint32_t k, uint32_t *ret)
{
    for (uint32_t i = k; i-- > 0;) {
        if (case_of(h, i)->cs.mode == case_of(h, k)->cs.mode) {
            *ret = i;
            return case_of(h, i);
        }
    }
    return NULL;
}

/* Only algorithms and protocols that were within a fifth of the best at the size before. */
static void inherit(struct hunt *h, uint32_t k)
{
    uint32_t before = 0;
    const struct land_case *s = smaller(h, k, &before), *c = case_of(h, k);
    bool good[NT_ALGO_COUNT][NT_PROTO_COUNT] = {{false}};

    for (uint32_t i = 0; s != NULL && i < s->n; i++) {
        const struct tally *t = &tally_of(h, before)[i];
        if (t->n > 0 && t->sum / t->n < mean_of(&tally_of(h, before)[best_of(h, before)]) + 0.2) {
            good[s->arm[i].executed.algo][s->arm[i].executed.proto] = true;
        }
    }
    for (uint32_t i = 1; s != NULL && i < c->n; i++) {
        tally_of(h, k)[i].out = !good[c->arm[i].executed.algo][c->arm[i].executed.proto];
    }
}

/* Settings likewise, by how much their best tuples are behind, over the cases. */
static void leave_settings_behind(struct hunt *h)
{
    uint32_t best = best_setting(h), n = h->l->ncases;

    for (uint32_t s = 0; s < h->l->nsettings; s++) {
        double sum = 0, squares = 0, mean;
        for (uint32_t k = 0; k < n; k++) {
            double d = mean_of(&h->tally[s * n + k][best_under(h, s, k)]) -
                       mean_of(&h->tally[best * n + k][best_under(h, best, k)]);
            sum += d;
            squares += d * d;
        }
        mean = sum / n;
        h->setting[s].out =
            h->setting[s].out ||
            (s != best && n > 1 && mean > 2 * sqrt((squares / n - mean * mean) / (n - 1)));
    }
}

static void racing(struct hunt *h)
{
    uint32_t list[LAND_ARMS], settings[LAND_SETTINGS], n;

    for (int g = 0; g < GANGS; g++) {
        uint32_t m = alive_settings(h, settings);
        for (uint32_t s = 0; s < m; s++) {
            enter(h, settings[s]);
            for (uint32_t k = 0; k < h->l->ncases; k++) {
                if (g == 0) {
                    inherit(h, k);
                }
                for (int round = 0; round < 3; round++) {
                    n = alive(h, k, list);
                    for (uint32_t i = 0; i < n && n > 1; i++) {
                        (void)blocks(h, k, list[i], 2);
                    }
                    leave_behind(h, k);
                }
            }
            leave(h);
        }
        leave_settings_behind(h);
    }
}

int rival_run(enum rival r, const struct land *l, struct tpe *tpe, uint64_t seed,
              struct outcome *ret, struct nt_err *err)
{
    static void (*const methods[RIVALS])(struct hunt *) = {[RIVAL_EXHAUSTIVE] = exhaustive,
                                                           [RIVAL_RANDOM] = by_chance,
                                                           [RIVAL_DESCENT] = coordinate_descent,
                                                           [RIVAL_HALVING] = halving,
                                                           [RIVAL_RACING] = racing};
    struct hunt h = {.l = l, .tpe = tpe, .ret = ret, .told = r == RIVAL_EXHAUSTIVE};
    int rc = 0;

    memset(ret, 0, sizeof(*ret));
    if (r == RIVAL_OURS) {
        return ours_run(l, ret, err);
    }
    nt_rng_seed(&h.rng, nt_mix(seed, 1000 + (uint64_t)r));
    h.tally = calloc((size_t)l->nsettings * l->ncases, sizeof(h.tally[0]));
    if (h.tally == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "rival");
    }
    if (r == RIVAL_TPE) {
        rc = by_tpe(&h, err);
    } else {
        methods[r](&h);
    }
    stand(&h, true);
    ret->setting = best_setting(&h);
    free(h.tally);
    return rc;
}
