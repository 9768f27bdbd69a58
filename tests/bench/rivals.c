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
    bool fresh; /* the gang alive was not asked for yet */
    double seconds, next;
    struct tally (*tally)[LAND_ARMS]; /* [case] */
    struct outcome *ret;
};

/* ------------------------------------------------------------------ measuring */

static void new_gang(struct hunt *h)
{
    if (h->fresh) { /* the one of the discovery */
        h->fresh = false;
        return;
    }
    land_start(h->l, ++h->gangs, "", &h->gang);
    h->seconds += (double)h->gang.start_ns / 1e9;
}

static double mean_of(const struct tally *t)
{
    return t->n > 0 && !t->out ? t->sum / t->n : INFINITY;
}

static uint32_t best_of(const struct hunt *h, uint32_t k)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < h->l->cases[k].n; i++) {
        best = mean_of(&h->tally[k][i]) < mean_of(&h->tally[k][best]) ? i : best;
    }
    return best;
}

static void stand(struct hunt *h, bool last)
{
    struct standing *s;

    if ((!last && h->seconds < h->next) || h->ret->n + (last ? 0 : 1) >= STANDINGS) {
        return;
    }
    h->next = fmax(h->seconds, 0.004 * h->l->grid_s) * 1.08;
    s = &h->ret->at[h->ret->n++];
    *s = (struct standing){.seconds = h->seconds};
    for (uint32_t k = 0; k < h->l->ncases; k++) {
        const struct land_case *c = &h->l->cases[k];
        const struct land_arm *a = &c->arm[best_of(h, k)];
        s->mean += a->gap / h->l->ncases;
        s->worst = fmax(s->worst, a->sure);
        s->exact += (a->told <= 0.01) / (double)h->l->ncases;
    }
}

/* One block; the log of its median, +inf where the tuple does not work. The first of an arm checks
 * its data. */
static double block(struct hunt *h, uint32_t k, uint32_t arm)
{
    const struct land_case *c = &h->l->cases[k];
    struct tally *t = &h->tally[k][arm];
    double est = c->arm[0].true_ns, y;
    struct nt_measure m = {.id = ++h->id,
                           .cs = c->cs,
                           .call = c->arm[arm].call,
                           .warmup = 1,
                           .samples = plan_samples((enum nt_mode)c->cs.mode, est),
                           .inner = plan_inner((enum nt_mode)c->cs.mode, est),
                           .verify = t->n == 0 ? NT_VERIFY_BEFORE : NT_VERIFY_NO,
                           .deadline_ms = 60000};
    struct nt_result r;

    land_measure(h->l, &h->gang, &m, &r);
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
    for (uint32_t i = 0; i < n && !h->tally[k][arm].out; i++) {
        (void)block(h, k, arm);
    }
    return mean_of(&h->tally[k][arm]);
}

/* The looks by which ours finds out what a request runs: all methods pay for them, and may use what
 * they saw. Of one mode only, as a tuple does not depend on it. */
static void discover(struct hunt *h)
{
    new_gang(h);
    for (uint32_t k = 0; k < h->l->ncases; k++) {
        const struct land_case *c = &h->l->cases[k];
        if (c->cs.mode != h->l->cases[0].cs.mode) {
            continue;
        }
        for (uint32_t i = 0; i < c->looks; i++) {
            struct tally *t = &h->tally[k][c->look[i].arm];
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

/* ------------------------------------------------------------------ the methods */

static void exhaustive(struct hunt *h)
{
    for (int g = 0; g < GANGS; g++) {
        new_gang(h);
        for (int b = 0; b < 5; b++) {
            for (uint32_t k = 0; k < h->l->ncases; k++) {
                for (uint32_t i = 0; i < h->l->cases[k].n; i++) {
                    (void)blocks(h, k, i, 1);
                }
            }
        }
    }
}

/* Arms by chance, three blocks each, until half of them were seen in every gang. */
static void by_chance(struct hunt *h)
{
    for (int g = 0; g < GANGS; g++) {
        new_gang(h);
        for (uint32_t k = 0; k < h->l->ncases; k++) {
            uint32_t n = h->l->cases[k].n;
            (void)blocks(h, k, 0, 3);
            for (uint32_t i = 0; i < (n + 1) / 2; i++) {
                (void)blocks(h, k, (uint32_t)nt_rng_below(&h->rng, n), 3);
            }
        }
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
        n = neighbours(&h->l->cases[k], at, list);
        nt_rng_shuffle(&h->rng, list, n);
        for (uint32_t i = 0; i < n && !moved; i++) {
            double there = h->tally[k][list[i]].n > 0 ? mean_of(&h->tally[k][list[i]])
                                                      : blocks(h, k, list[i], 3);
            if (there < here) {
                at = list[i];
                here = there;
                moved = true;
            }
        }
    }
}

static void coordinate_descent(struct hunt *h)
{
    for (int g = 0; g < GANGS; g++) {
        new_gang(h);
        for (uint32_t k = 0; k < h->l->ncases; k++) {
            descend(h, k, g == 0 ? 0 : (uint32_t)nt_rng_below(&h->rng, h->l->cases[k].n));
        }
    }
}

static uint32_t alive(const struct hunt *h, uint32_t k, uint32_t *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->l->cases[k].n; i++) {
        if (!h->tally[k][i].out) {
            list[n++] = i;
        }
    }
    return n;
}

/* The better half goes on, with twice the blocks, in a fresh gang. */
static void halving(struct hunt *h)
{
    uint32_t list[LAND_ARMS], most = 2, n;

    for (uint32_t each = 1; most > 1; each *= 2) {
        most = 1;
        new_gang(h);
        for (uint32_t k = 0; k < h->l->ncases; k++) {
            n = alive(h, k, list);
            for (uint32_t i = 0; i < n && n > 1; i++) {
                (void)blocks(h, k, list[i], each > 16 ? 16 : each);
            }
            n = alive(h, k, list);
            for (uint32_t i = 1; i < n; i++) {
                for (uint32_t j = i;
                     j > 0 && mean_of(&h->tally[k][list[j]]) < mean_of(&h->tally[k][list[j - 1]]);
                     j--) {
                    uint32_t t = list[j];
                    list[j] = list[j - 1];
                    list[j - 1] = t;
                }
            }
            for (uint32_t i = (n + 1) / 2; i < n; i++) {
                h->tally[k][list[i]].out = true;
            }
            n = (n + 1) / 2;
            most = n > most ? n : most;
        }
    }
}

/* A study a case, as many trials as arms in all, told the log of each block's median. */
static int by_tpe(struct hunt *h, struct nt_err *err)
{
    int rc = 0;

    for (int g = 0; g < GANGS && rc == 0; g++) {
        new_gang(h);
        for (uint32_t k = 0; k < h->l->ncases && rc == 0; k++) {
            const struct land_case *c = &h->l->cases[k];
            rc = g == 0 ? tpe_study(h->tpe, k, c, nt_rng_next(&h->rng) >> 33, err) : 0;
            for (uint32_t i = 0; i < (c->n + 1) / 2 && rc == 0; i++) {
                uint32_t arm = 0;
                double y;
                rc = tpe_ask(h->tpe, k, &arm, err);
                if (rc != 0 || arm >= c->n) {
                    break;
                }
                y = h->tally[k][arm].out ? INFINITY : block(h, k, arm);
                rc = tpe_tell(h->tpe, k, isinf(y) ? 99 : y, err);
            }
        }
    }
    return rc;
}

/* Two standard errors behind the best: out. */
static void leave_behind(struct hunt *h, uint32_t k)
{
    uint32_t best = best_of(h, k);
    const struct tally *b = &h->tally[k][best];

    for (uint32_t i = 0; i < h->l->cases[k].n; i++) {
        struct tally *t = &h->tally[k][i];
        double var;
        if (i == best || t->n < 2 || b->n < 2) {
            continue;
        }
        var = (t->squares - t->sum * t->sum / t->n) / (t->n - 1) / t->n +
              (b->squares - b->sum * b->sum / b->n) / (b->n - 1) / b->n;
        t->out = t->out || mean_of(t) - mean_of(b) > 2 * sqrt(fmax(var, 1e-6));
    }
}

static const struct land_case *smaller(const struct land *l, uint32_t k, uint32_t *ret)
{
    for (uint32_t i = k; i-- > 0;) {
        if (l->cases[i].cs.mode == l->cases[k].cs.mode) {
            *ret = i;
            return &l->cases[i];
        }
    }
    return NULL;
}

/* Only algorithms and protocols that were within a fifth of the best at the size before. */
static void inherit(struct hunt *h, uint32_t k)
{
    uint32_t before = 0;
    const struct land_case *s = smaller(h->l, k, &before), *c = &h->l->cases[k];
    bool good[NT_ALGO_COUNT][NT_PROTO_COUNT] = {{false}};

    for (uint32_t i = 0; s != NULL && i < s->n; i++) {
        const struct tally *t = &h->tally[before][i];
        if (t->n > 0 && t->sum / t->n < mean_of(&h->tally[before][best_of(h, before)]) + 0.2) {
            good[s->arm[i].executed.algo][s->arm[i].executed.proto] = true;
        }
    }
    for (uint32_t i = 1; s != NULL && i < c->n; i++) {
        h->tally[k][i].out = !good[c->arm[i].executed.algo][c->arm[i].executed.proto];
    }
}

static void racing(struct hunt *h)
{
    uint32_t list[LAND_ARMS], n;

    for (int g = 0; g < GANGS; g++) {
        new_gang(h);
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
    struct hunt h = {.l = l, .tpe = tpe, .ret = ret};
    int rc = 0;

    memset(ret, 0, sizeof(*ret));
    if (r == RIVAL_OURS) {
        return ours_run(l, ret, err);
    }
    nt_rng_seed(&h.rng, nt_mix(seed, 1000 + (uint64_t)r));
    h.tally = calloc(l->ncases, sizeof(h.tally[0]));
    if (h.tally == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "rival");
    }
    if (r != RIVAL_EXHAUSTIVE) {
        discover(&h);
        h.fresh = true;
    }
    if (r == RIVAL_TPE) {
        rc = by_tpe(&h, err);
    } else {
        methods[r](&h);
    }
    stand(&h, true);
    free(h.tally);
    return rc;
}
