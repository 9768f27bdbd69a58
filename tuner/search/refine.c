#include "tuner/search/refine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/rng.h"
#include "tuner/search/belief.h"

const struct nt_refine_config nt_refine_defaults = {
    .min_gain = 0.005, .z = 2.33, .worth = 2e-3, .max_gangs = 6, .budget = 16, .seed = 1};

enum { VARS = NT_REFINE_MAX_VARS };
#define NONE UINT32_MAX

struct tried {
    uint32_t value[VARS];
    uint32_t var;  /* changed last */
    uint32_t from; /* the incumbent then: index */
    uint32_t round, gangs;
    struct nt_score score;
    bool pair, failed;
};

struct nt_refine {
    struct nt_refine_config config;
    struct belief belief;
    uint32_t n;
    uint32_t values[VARS];
    uint32_t order[VARS]; /* of variables, most urgent first */
    struct tried *tried;  /* [0]: as is; [budget + 1], those asked for */
    uint32_t n_tried;
    uint32_t incumbent, asked; /* indices; asked NONE: nothing */
    uint32_t round;            /* from 1 on */
    uint32_t at_var, at_value; /* next single change */
    bool paired;               /* the round's pair was asked for */
};

/* Urgent variables first; equal ones in an order by the seed. */
static void order_vars(struct nt_refine *r, const struct nt_refine_var *vars)
{
    struct nt_rng rng;
    nt_rng_seed(&rng, r->config.seed);
    for (uint32_t i = 0; i < r->n; i++) {
        r->order[i] = i;
    }
    nt_rng_shuffle(&rng, r->order, r->n);
    for (uint32_t i = 1; i < r->n; i++) {
        for (uint32_t k = i; k > 0 && vars[r->order[k]].urgency > vars[r->order[k - 1]].urgency;
             k--) {
            uint32_t t = r->order[k];
            r->order[k] = r->order[k - 1];
            r->order[k - 1] = t;
        }
    }
}

int nt_refine_new(const struct nt_refine_config *config, const struct nt_refine_var *vars,
                  uint32_t n, struct nt_refine **ret, struct nt_err *err)
{
    struct nt_refine *r;
    if (n > VARS) {
        return nt_fail(err, NT_E_INVAL, 0, "%u variables to refine, at most %d", n, VARS);
    }
    r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "refine");
    }
    r->config = *config;
    belief_init(&r->belief, config->z, config->z);
    r->n = n;
    r->round = r->n_tried = 1;
    r->asked = NONE;
    for (uint32_t i = 0; i < n; i++) {
        r->values[i] = vars[i].values;
    }
    order_vars(r, vars);
    r->tried = calloc((size_t)config->budget + 1, sizeof(*r->tried));
    if (r->tried == NULL) {
        nt_refine_free(r);
        return nt_fail(err, NT_E_NOMEM, 0, "refine with a budget of %u", config->budget);
    }
    *ret = r;
    return 0;
}

void nt_refine_free(struct nt_refine *r)
{
    if (r != NULL) {
        free(r->tried);
        free(r);
    }
}

/* ---- comparing ---- */

/* By how much a is better than b, and its error. */
static double apart(const struct nt_refine *r, uint32_t a, uint32_t b, double *ret_se,
                    double *ret_df)
{
    const struct nt_score *x = &r->tried[a].score, *y = &r->tried[b].score;
    double vx = x->se * x->se, vy = y->se * y->se, sum = vx + vy;
    *ret_se = sqrt(sum);
    *ret_df = b == 0 || !(vy > 0.0) ? x->df : sum * sum / (vx * vx / x->df + vy * vy / y->df);
    return x->mean - y->mean;
}

static uint32_t whole(double df)
{
    return (uint32_t)fmin(fmax(df, BELIEF_KIND), BELIEF_MOST);
}

/* Is it better than the other for sure? NAN is not. */
static bool beats(const struct nt_refine *r, uint32_t a, uint32_t b)
{
    double se, df, d = apart(r, a, b, &se, &df);
    return se > 0.0 ? d > r->belief.by[whole(df)].drop * se : d > 0.0;
}

static bool in_round(const struct nt_refine *r, uint32_t i)
{
    return r->tried[i].round == r->round && !r->tried[i].failed && isfinite(r->tried[i].score.mean);
}

/* What it must be better by to take the other's place: simpler ones stay in a tie. */
static double needed(const struct nt_refine *r, uint32_t a, uint32_t b)
{
    bool simpler = b == r->incumbent || (r->tried[a].pair && !r->tried[b].pair);
    return simpler ? log1p(r->config.min_gain) : 0.0;
}

/* By enough to take its place, and for sure? */
static bool outdoes(const struct nt_refine *r, uint32_t i, uint32_t other)
{
    double gain = r->tried[i].score.mean - r->tried[other].score.mean;
    return gain >= log1p(r->config.min_gain) && beats(r, i, other);
}

static bool acceptable(const struct nt_refine *r, uint32_t i)
{
    return in_round(r, i) && outdoes(r, i, r->incumbent);
}

/* Of the round; the incumbent where none is acceptable. */
static uint32_t best_of_round(const struct nt_refine *r)
{
    uint32_t best = r->incumbent;
    for (uint32_t i = 1; i < r->n_tried; i++) {
        if (acceptable(r, i) &&
            r->tried[i].score.mean > r->tried[best].score.mean + needed(r, i, best)) {
            best = i;
        }
    }
    return best;
}

/* What another gang is expected to save of what is lost by judging between the two as things stand:
 * an error falls with the root of the gangs, so 1 in 2 n. */
static double saving(const struct nt_refine *r, uint32_t i, uint32_t rival, uint32_t gangs)
{
    double se, df, d = apart(r, i, rival, &se, &df);
    if (!(se > 0.0)) {
        return 0.0;
    }
    return belief_loss(&r->belief, -fabs(d - needed(r, i, rival)), se, whole(df)) / (2.0 * gangs);
}

/* The setting of which another gang would tell most about what to take; NONE: none is worth it. */
static uint32_t most_open(const struct nt_refine *r)
{
    uint32_t best = best_of_round(r), ret = NONE;
    double most = 1.0;
    for (uint32_t i = 1; i < r->n_tried; i++) {
        uint32_t rival = i == best ? r->incumbent : best, who = i;
        double x;
        if (!in_round(r, i)) {
            continue;
        }
        if (rival != 0 && (r->tried[i].gangs >= r->config.max_gangs ||
                           r->tried[rival].score.se > r->tried[i].score.se)) {
            who = rival;
        }
        if (r->tried[who].gangs >= r->config.max_gangs) {
            continue;
        }
        x = saving(r, i, rival, r->tried[who].gangs) /
            (r->config.worth * r->tried[who].score.price);
        if (x > most) {
            most = x;
            ret = who;
        }
    }
    return ret;
}

/* ---- asking ---- */

static bool same(const struct nt_refine *r, const uint32_t *a, const uint32_t *b)
{
    return memcmp(a, b, r->n * sizeof(*a)) == 0;
}

/* Known by an earlier answer: tried, or a change that by itself had failed. */
static bool is_known(const struct nt_refine *r, const struct tried *t)
{
    for (uint32_t i = 0; i < r->n_tried; i++) {
        const struct tried *old = &r->tried[i];
        if (same(r, old->value, t->value) || (old->failed && !old->pair && old->var == t->var &&
                                              old->value[t->var] == t->value[t->var])) {
            return true;
        }
    }
    return false;
}

/* Ask for a setting with one more change, unless it was tried. */
static bool ask(struct nt_refine *r, const uint32_t *from, uint32_t var, uint32_t value, bool pair)
{
    struct tried t = {
        .var = var, .from = r->incumbent, .round = r->round, .score.mean = NAN, .pair = pair};
    memcpy(t.value, from, r->n * sizeof(*from));
    t.value[var] = value;
    if (r->n_tried > r->config.budget || is_known(r, &t)) {
        return false;
    }
    r->asked = r->n_tried;
    r->tried[r->n_tried++] = t;
    return true;
}

static bool next_single(struct nt_refine *r)
{
    for (; r->at_var < r->n; r->at_var++, r->at_value = 0) {
        uint32_t var = r->order[r->at_var];
        while (r->at_value < r->values[var]) {
            if (ask(r, r->tried[r->incumbent].value, var, r->at_value++, false)) {
                return true;
            }
        }
    }
    return false;
}

/* The best improving change of the round, of another variable than that; NONE. */
static uint32_t best_gain(const struct nt_refine *r, uint32_t other_than)
{
    uint32_t best = NONE;
    for (uint32_t i = 1; i < r->n_tried; i++) {
        if (in_round(r, i) && !r->tried[i].pair && r->tried[i].var != other_than &&
            beats(r, i, r->incumbent) &&
            (best == NONE || r->tried[i].score.mean > r->tried[best].score.mean)) {
            best = i;
        }
    }
    return best;
}

static bool next_pair(struct nt_refine *r)
{
    uint32_t a = best_gain(r, NONE), b = a != NONE ? best_gain(r, r->tried[a].var) : NONE;
    if (r->paired || b == NONE) {
        return false;
    }
    r->paired = true;
    return ask(r, r->tried[a].value, r->tried[b].var, r->tried[b].value[r->tried[b].var], true);
}

/* The round is over: its best becomes the incumbent, and a new round starts from there. */
static bool next_round(struct nt_refine *r)
{
    uint32_t best = best_of_round(r);
    if (best == r->incumbent) {
        return false;
    }
    r->incumbent = best;
    r->round++;
    r->paired = false;
    r->at_var = r->at_value = 0;
    return true;
}

bool nt_refine_next(struct nt_refine *r, uint32_t *setting)
{
    while (r->asked == NONE && !next_single(r)) {
        r->asked = most_open(r);
        if (r->asked == NONE && !next_pair(r) && !next_round(r)) {
            return false;
        }
    }
    memcpy(setting, r->tried[r->asked].value, r->n * sizeof(*setting));
    return true;
}

void nt_refine_tell(struct nt_refine *r, const struct nt_score *score)
{
    nt_assert(r->asked != NONE);
    r->tried[r->asked].score = *score;
    r->tried[r->asked].gangs++;
    r->asked = NONE;
}

void nt_refine_fail(struct nt_refine *r)
{
    nt_assert(r->asked != NONE);
    r->tried[r->asked].failed = true;
    r->asked = NONE;
}

void nt_refine_again(struct nt_refine *r, const uint32_t *setting, const struct nt_score *score)
{
    for (uint32_t i = 1; i < r->n_tried; i++) {
        if (same(r, r->tried[i].value, setting)) {
            r->tried[i].failed = r->tried[i].failed || score == NULL;
            r->tried[i].score = score != NULL ? *score : r->tried[i].score;
        }
    }
}

/* Is it better than what it was tried from, or what that was tried from where that is out? */
static bool stands(const struct nt_refine *r, uint32_t i)
{
    const struct tried *t = &r->tried[i];
    uint32_t from = t->from;
    while (r->tried[from].failed) {
        from = r->tried[from].from;
    }
    return !t->failed && isfinite(t->score.mean) && outdoes(r, i, from);
}

double nt_refine_incumbent(const struct nt_refine *r, uint32_t *setting, double *ret_se)
{
    const struct tried *best = &r->tried[0];
    for (uint32_t i = 1; i < r->n_tried; i++) {
        const struct tried *t = &r->tried[i];
        double tie = t->pair && !best->pair ? log1p(r->config.min_gain) : 0.0;
        if (stands(r, i) && t->score.mean > best->score.mean + tie) {
            best = t;
        }
    }
    memcpy(setting, best->value, r->n * sizeof(*setting));
    if (ret_se != NULL) {
        *ret_se = best->score.se;
    }
    return best->score.mean;
}

uint32_t nt_refine_tried(const struct nt_refine *r)
{
    return r->n_tried - 1 - (r->asked != NONE && r->tried[r->asked].gangs == 0);
}
