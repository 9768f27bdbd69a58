#include "tuner/search/refine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/rng.h"

const struct nt_refine_config nt_refine_defaults = {
    .min_gain = 0.02, .z = 1.64, .budget = 16, .seed = 1};

enum { VARS = NT_REFINE_MAX_VARS };

struct tried {
    uint32_t value[VARS];
    uint32_t var; /* changed last */
    double score, se;
    bool pair, failed;
};

/* A single change of the incumbent in the round under way. */
struct step {
    uint32_t var, value;
    double score;
};

struct nt_refine {
    struct nt_refine_config config;
    uint32_t n;
    uint32_t values[VARS];
    uint32_t order[VARS];                /* of variables, most urgent first */
    struct tried incumbent, asked, best; /* best: of the round, acceptable and better than others */
    bool asking, pairing, better;
    struct step gains[VARS]; /* single changes that improved in this round, one a variable */
    uint32_t n_gains;
    uint32_t at_var, at_value; /* next single change */
    struct tried *tried;       /* [budget] answered */
    uint32_t n_tried;
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
    r->n = n;
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

static bool same(const struct nt_refine *r, const uint32_t *a, const uint32_t *b)
{
    return memcmp(a, b, r->n * sizeof(*a)) == 0;
}

/* Known by an earlier answer: tried, or a change that by itself had failed; "as is" scores 0. */
static bool is_known(const struct nt_refine *r, const struct tried *t)
{
    static const uint32_t as_is[VARS] = {0};
    for (uint32_t i = 0; i < r->n_tried; i++) {
        const struct tried *old = &r->tried[i];
        if (same(r, old->value, t->value) || (old->failed && !old->pair && old->var == t->var &&
                                              old->value[t->var] == t->value[t->var])) {
            return true;
        }
    }
    return same(r, t->value, as_is) || same(r, t->value, r->incumbent.value);
}

static bool acceptable(const struct nt_refine *r, double score, double se)
{
    double gain = score - r->incumbent.score, needed = log1p(r->config.min_gain);
    /* the incumbent's own error counts too */
    return gain >= needed && gain - r->config.z * hypot(se, r->incumbent.se) > 0.0;
}

/* Ask for the incumbent with one more change, unless it was tried. */
static bool ask(struct nt_refine *r, const struct tried *from, uint32_t var, uint32_t value)
{
    struct tried t = *from;
    t.value[var] = value;
    t.var = var;
    t.pair = r->pairing;
    t.failed = false;
    if (is_known(r, &t)) {
        return false;
    }
    r->asked = t;
    r->asking = true;
    return true;
}

static bool next_single(struct nt_refine *r)
{
    for (; r->at_var < r->n; r->at_var++, r->at_value = 0) {
        uint32_t var = r->order[r->at_var];
        while (r->at_value < r->values[var]) {
            if (ask(r, &r->incumbent, var, r->at_value++)) {
                return true;
            }
        }
    }
    return false;
}

static bool next_pair(struct nt_refine *r)
{
    struct tried t = r->incumbent;
    if (r->pairing || r->n_gains < 2) {
        return false;
    }
    r->pairing = true;
    t.value[r->gains[0].var] = r->gains[0].value;
    return ask(r, &t, r->gains[1].var, r->gains[1].value);
}

/* The round is over: its best becomes the incumbent, and a new round starts from there. */
static bool next_round(struct nt_refine *r)
{
    if (!r->better) {
        return false;
    }
    r->incumbent = r->best;
    r->better = r->pairing = false;
    r->n_gains = 0;
    r->at_var = r->at_value = 0;
    return true;
}

bool nt_refine_next(struct nt_refine *r, uint32_t *setting)
{
    if (r->n_tried >= r->config.budget) {
        return false;
    }
    while (!r->asking && !next_single(r) && !next_pair(r)) {
        if (!next_round(r)) {
            return false;
        }
    }
    memcpy(setting, r->asked.value, r->n * sizeof(*setting));
    return true;
}

/* Keeps the best improving value of each variable, best first. */
static void add_gain(struct nt_refine *r, struct step s)
{
    uint32_t at = r->n_gains;
    for (uint32_t i = 0; i < r->n_gains; i++) {
        if (r->gains[i].var == s.var) {
            if (r->gains[i].score >= s.score) {
                return;
            }
            memmove(&r->gains[i], &r->gains[i + 1], (r->n_gains - i - 1) * sizeof(*r->gains));
            at = --r->n_gains;
            break;
        }
    }
    while (at > 0 && r->gains[at - 1].score < s.score) {
        at--;
    }
    memmove(&r->gains[at + 1], &r->gains[at], (r->n_gains - at) * sizeof(*r->gains));
    r->gains[at] = s;
    r->n_gains++;
}

void nt_refine_tell(struct nt_refine *r, double score, double se)
{
    nt_assert(r->asking && r->n_tried < r->config.budget);
    r->asking = false;
    r->asked.score = score;
    r->asked.se = se;
    r->tried[r->n_tried++] = r->asked;
    if (!isfinite(score)) {
        return;
    }
    if (!r->pairing && score - r->config.z * hypot(se, r->incumbent.se) > r->incumbent.score) {
        add_gain(r, (struct step){r->asked.var, r->asked.value[r->asked.var], score});
    }
    if (acceptable(r, score, se) && (!r->better || score > r->best.score)) {
        /* a pair must be worth more than either by the same margin, or the simpler one stays */
        if (r->pairing && r->better && score < r->best.score + log1p(r->config.min_gain)) {
            return;
        }
        r->best = r->asked;
        r->better = true;
    }
}

void nt_refine_fail(struct nt_refine *r)
{
    nt_assert(r->asking && r->n_tried < r->config.budget);
    r->asking = false;
    r->asked.failed = true;
    r->asked.score = NAN;
    r->tried[r->n_tried++] = r->asked;
}

bool nt_refine_hopeless(const struct nt_refine *r, double score, double se)
{
    /* alone, half of what is needed may do: as one of the best pair */
    double needed =
        r->pairing ? log1p(r->config.min_gain) + (r->better ? r->best.score : r->incumbent.score)
                   : r->incumbent.score + 0.5 * log1p(r->config.min_gain);
    return score + r->config.z * se < needed;
}

bool nt_refine_undecided(const struct nt_refine *r, double score, double se)
{
    return isfinite(score) && !acceptable(r, score, se) && !nt_refine_hopeless(r, score, se);
}

double nt_refine_incumbent(const struct nt_refine *r, uint32_t *setting, double *ret_se)
{
    const struct tried *t = r->better ? &r->best : &r->incumbent;
    memcpy(setting, t->value, r->n * sizeof(*setting));
    if (ret_se != NULL) {
        *ret_se = t->se;
    }
    return t->score;
}

uint32_t nt_refine_gangs(const struct nt_refine *r)
{
    return r->n_tried;
}
