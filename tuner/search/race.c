#include "tuner/search/race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/rng.h"
#include "tuner/search/belief.h"
#include "tuner/search/fit.h"
#include "tuner/stats/stats.h"

_Static_assert((int)NT_RACE_MAX_GANGS == (int)FIT_GANGS, "one limit");

const struct nt_race_config nt_race_defaults = {
    .margin = 0.02,
    .z_drop = 3.0,
    .tie = 0.002,
    .home = 0.003,
    .slack = 0.003,
    .z_stop = 2.0,
    .block_sd = 0.03,
    .gang_sd = 0.03,
    .block_samples = 20,
    .look_samples = 7,
    .looks = 2,
    .default_every = 8,
    .min_gangs = 4,
    .max_gangs = 6,
    .max_blocks = 20,
    .contenders = 8,
    .gang_blocks = 200,
    .seed = 1,
};

enum { FEW = 3 };                  /* are measured best … */
static const double OTHERS = 0.25; /* … the other contenders by so much of that */

struct runner {
    double prior, boost;
    uint32_t tie_rank;
    bool pinned, passed, alive;
    bool ahead;    /* among the best few */
    bool recalled; /* out on the word of one gang: gets one look in each that is run anyway */
    int why;
};

struct lane {        /* one gang's side of the race */
    uint32_t *queue; /* [most] arms of the round */
    uint32_t n, at;
    uint32_t since_default, blocks; /* blocks of other arms since; blocks of other arms at all */
    bool asked;
    struct nt_ask ask; /* unanswered */
};

struct place {
    double boost, value;
    uint32_t arm;
};

struct nt_race {
    struct nt_race_config config;
    uint32_t n, most; /* arms; with those that may be added */
    struct runner *runners;
    uint32_t *queues;       /* of all lanes */
    struct place *places;   /* [most] scratch for sorting */
    uint32_t *list, n_list; /* who is alive, ascending */
    bool pins;              /* any arm is pinned */
    struct lane lanes[NT_RACE_MAX_GANGS];
    struct fit fit;
    struct nt_rng rng;
    struct belief belief;
    uint32_t rivals;          /* not told to be slower than the leader, itself included */
    uint32_t recalled;        /* how many are */
    double price;             /* of this race's share of a gang's start, in full blocks */
    bool later;               /* the first gang is over, or about to be */
    bool resting;             /* only what is pinned is measured */
    bool stale;               /* verdict and the runners' `alive` are to be worked out */
    bool looked;              /* all that are to be looked at were */
    uint32_t open;            /* neither failed nor passed over */
    double margin, tie, home; /* of the config, in log units */
    struct nt_race_verdict verdict;
};

static int check_config(const struct nt_race_config *c, uint32_t n, struct nt_err *err)
{
    if (n == 0 || c->block_samples == 0 || c->look_samples == 0 || c->default_every < 2 ||
        c->max_gangs == 0 || c->max_gangs > NT_RACE_MAX_GANGS || c->max_blocks == 0 ||
        !(c->block_sd > 0.0) || !(c->gang_sd >= 0.0) || !(c->interaction_sd >= 0.0)) {
        return nt_fail(err, NT_E_INVAL, 0, "race: a limit is zero, or a noise not positive");
    }
    return 0;
}

/* Not measured by the preflight: about half of what gangs differ by, within what was seen. */
static double interaction_sd(const struct nt_race_config *c)
{
    return c->interaction_sd > 0.0 ? c->interaction_sd : fmin(fmax(0.5 * c->gang_sd, 0.01), 0.05);
}

uint32_t nt_race_add(struct nt_race *r, const struct nt_race_arm *arm)
{
    nt_assert(r->n < r->most);
    r->runners[r->n].prior = isnan(arm->prior) ? INFINITY : arm->prior;
    r->runners[r->n].tie_rank = arm->tie_rank;
    r->stale = true;
    return r->n++;
}

int nt_race_new(const struct nt_race_config *config, const struct nt_race_arm *arms, uint32_t n,
                struct nt_race **ret, struct nt_err *err)
{
    struct nt_race *r;
    int rc = check_config(config, n, err);
    if (rc != 0) {
        return rc;
    }
    r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "race of %u arms", n);
    }
    r->config = *config;
    r->most = n + config->room;
    r->price = config->gang_blocks;
    r->margin = log1p(config->margin);
    r->tie = log1p(config->tie);
    r->home = log1p(config->home);
    nt_rng_seed(&r->rng, config->seed);
    belief_init(&r->belief, config->z_drop, config->z_stop);
    r->runners = calloc(r->most, sizeof(*r->runners));
    r->queues = calloc((size_t)r->most * NT_RACE_MAX_GANGS, sizeof(*r->queues));
    r->places = calloc(r->most, sizeof(*r->places));
    r->list = calloc(r->most, sizeof(*r->list));
    if (r->runners == NULL || r->queues == NULL || r->places == NULL || r->list == NULL) {
        nt_race_free(r);
        return nt_fail(err, NT_E_NOMEM, 0, "race of %u arms", n);
    }
    rc = fit_init(&r->fit, r->most, config->block_sd, config->gang_sd, interaction_sd(config), err);
    if (rc != 0) {
        nt_race_free(r);
        return rc;
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)nt_race_add(r, &arms[i]);
    }
    for (uint32_t g = 0; g < NT_RACE_MAX_GANGS; g++) {
        r->lanes[g].queue = r->queues + (size_t)g * r->most;
    }
    *ret = r;
    return 0;
}

void nt_race_free(struct nt_race *r)
{
    if (r != NULL) {
        fit_done(&r->fit);
        free(r->runners);
        free(r->queues);
        free(r->places);
        free(r->list);
        free(r);
    }
}

void nt_race_boost(struct nt_race *r, uint32_t arm, double by)
{
    nt_assert(arm < r->n);
    r->runners[arm].boost += by;
}

void nt_race_price(struct nt_race *r, double blocks)
{
    r->price = blocks;
    r->stale = r->stale || !r->later;
    r->later = true;
}

void nt_race_rest(struct nt_race *r, bool rest)
{
    r->resting = rest;
}

void nt_race_pin(struct nt_race *r, uint32_t arm)
{
    nt_assert(arm < r->n);
    r->runners[arm].pinned = r->pins = true;
    r->stale = true;
}

void nt_race_pass(struct nt_race *r, uint32_t arm, bool pass)
{
    nt_assert(arm < r->n);
    pass = pass && arm != 0;
    r->stale = r->stale || r->runners[arm].passed != pass;
    r->runners[arm].passed = pass;
}

/* ---- verdict ---- */

static bool failed(const struct nt_race *r, uint32_t arm)
{
    return r->fit.arms[arm].failed;
}

static bool passed_over(const struct nt_race *r, uint32_t arm)
{
    return r->runners[arm].passed && !r->runners[arm].pinned;
}

static uint32_t looks_left(const struct nt_race *r, uint32_t arm)
{
    uint32_t blocks = r->fit.arms[arm].blocks, looks = arm == 0 ? 1 : r->config.looks;
    if (passed_over(r, arm)) {
        return 0;
    }
    return blocks < looks ? looks - blocks : 0;
}

/* Gangs that it ran in, those that were set aside too. */
static uint32_t gangs_of(const struct nt_race *r, uint32_t arm)
{
    return (uint32_t)__builtin_popcount(r->fit.arms[arm].told);
}

static bool pinned_are_known(const struct nt_race *r)
{
    for (uint32_t i = 0; i < r->n && r->pins; i++) {
        if (r->runners[i].pinned && !failed(r, i) && gangs_of(r, i) < r->config.min_gangs) {
            return false;
        }
    }
    return true;
}

static uint32_t gangs_used(const struct nt_race *r)
{
    uint32_t used = 0;
    for (uint32_t g = 0; g < NT_RACE_MAX_GANGS; g++) {
        used += r->lanes[g].blocks > 0;
    }
    return used;
}

/* Of those that ran in so many gangs the smallest estimate; one that few blocks stand behind has to
 * be that much better. */
static uint32_t find_best(const struct nt_race *r, uint32_t gangs)
{
    uint32_t best = NT_NO_ARM;
    double least = INFINITY;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct fit_arm *a = &r->fit.arms[i]; /* else it cannot be, however well it is known */
        if (a->effect < least && !a->failed && gangs_of(r, i) >= gangs) {
            double x = belief_cautious(&r->belief, &r->fit, i);
            best = x < least ? i : best;
            least = x < least ? x : least;
        }
    }
    return best;
}

/* Who takes part, and have all of them been looked at? */
static void take_stock(struct nt_race *r)
{
    r->looked = true;
    r->open = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        if (!failed(r, i)) {
            r->open += !passed_over(r, i);
            r->looked = r->looked && looks_left(r, i) == 0;
        }
    }
}

/* Comparisons with squares stand in for those with roots and quotients where they are this far from
 * equal: more than rounding can do. */
static const double SURELY = 1 + 1e-9, DISTURBED = 0.336; /* log(1.4): the most, as was seen */

/* Is an arm slower than the leader beyond the margin? 0: not for sure, 1: by z_drop in gangs like
 * these, 2: in all. One of whom nothing is known is not. Most are far from either bound, which
 * takes less work to tell. */
static int far_behind(const struct nt_race *r, uint32_t arm, uint32_t leader)
{
    const struct fit *f = &r->fit;
    double few = r->config.z_drop, many;
    double se, square, other, d = fit_apart(f, arm, leader) - r->margin;
    if (!(d > 0.0)) {
        return 0;
    }
    /* All times the arm's information. The gangs' part of the variance is not below 0, and not
     * above twice the largest: leans on gangs add up to 2 and none is above 1. */
    square = d * d * f->arms[arm].info;
    other = f->arms[arm].info / f->arms[leader].info;
    many = r->belief.by[belief_least_degrees(f, arm, leader)].drop;
    if (square > many * many * (1 + other + 2 * f->shift_var_most * f->arms[arm].info) * SURELY) {
        return 2;
    }
    if (square * SURELY < few * few * (1 + other)) {
        return 0;
    }
    (void)fit_difference(f, arm, leader, &se);
    return d / se > r->belief.by[belief_degrees(f, arm, leader, se)].drop ? 2 : d / se > few;
}

/* Is it by one gang alone, the only one or the worst, which may have been disturbed throughout? */
static bool hangs_on_a_gang(const struct nt_race *r, uint32_t arm, uint32_t leader)
{
    double se, effect = fit_effect_at_best(&r->fit, arm, &se);
    double d = effect - r->fit.arms[leader].effect - r->margin;
    return (gangs_of(r, arm) == 1 && fit_apart(&r->fit, arm, leader) < DISTURBED) ||
           !(d > r->config.z_drop * hypot(se, 1.0 / sqrt(r->fit.arms[leader].info)));
}

/* Is its promise larger than that, that is worse? Where it is told without a root. */
static bool promises_less(const struct nt_race *r, uint32_t arm, double value)
{
    const struct fit_arm *a = &r->fit.arms[arm];
    double d = a->effect - value, stop = r->belief.by[belief_least_degrees(&r->fit, arm, arm)].stop;
    return d > 0.0 && d * d * a->info > stop * stop * SURELY;
}

static void set_alive(struct nt_race *r, uint32_t arm, bool alive)
{
    r->runners[arm].alive = alive;
    r->list[r->n_list] = arm;
    r->n_list += alive;
}

/* Works out who is still in contention and returns how many; one of whom nothing is known is. In
 * the first gang, whose blocks say nothing of other gangs, that is who gets more of them; later all
 * that gangs may yet turn. Blocks of one gang may have been disturbed together: who is out by what
 * one alone says is not alive, but recalled; the default is in all gangs anyway. */
static uint32_t find_alive(struct nt_race *r, uint32_t leader)
{
    r->rivals = r->recalled = r->n_list = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        bool in = !failed(r, i) && !passed_over(r, i), rival = in, recalled = false;
        if (in && leader != NT_NO_ARM && i != leader && looks_left(r, i) == 0) {
            int behind = far_behind(r, i, leader);
            rival = behind < 2;
            in = r->later ? behind < 2 : behind < 1;
            recalled = i != 0 && behind == 2 && hangs_on_a_gang(r, i, leader);
        }
        r->runners[i].recalled = recalled;
        r->recalled += recalled;
        set_alive(r, i, in);
        r->rivals += rival;
    }
    return r->n_list;
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->boost != y->boost) {
        return x->boost > y->boost ? -1 : 1;
    }
    if (x->value != y->value) {
        return x->value < y->value ? -1 : 1;
    }
    return x->arm < y->arm ? -1 : 1;
}

/* Adds to the best `most` so far, in order; returns how many there are. */
static uint32_t add_place(struct place *best, uint32_t n, uint32_t most, struct place x)
{
    uint32_t k = n < most ? n : most;
    while (k > 0 && by_place(&x, &best[k - 1]) < 0) {
        if (k < most) {
            best[k] = best[k - 1];
        }
        k--;
    }
    if (k < most) {
        best[k] = x;
    }
    return n < most ? n + 1 : n;
}

/* Of many that cannot be told apart, fewer go on with each gang: the leader, the default while it
 * is alive, and those that may be best; the first of them are measured best. Returns how many do.
 */
static uint32_t cap_alive(struct nt_race *r, uint32_t alive, uint32_t leader)
{
    uint32_t gangs = gangs_used(r), n = 0, cap = r->config.contenders / (gangs > 1 ? gangs : 1);

    cap = (cap > FEW ? cap : FEW) - r->runners[0].alive;
    if (!r->looked) {
        return alive;
    }
    for (uint32_t k = 0; k < alive; k++) {
        uint32_t i = r->list[k];
        if (i != 0 && n == cap && i != leader && promises_less(r, i, r->places[n - 1].value)) {
            r->runners[i].alive = r->runners[i].ahead = false;
        } else if (i != 0) {
            double value = i == leader ? -INFINITY : belief_promise(&r->belief, &r->fit, i);
            n = add_place(r->places, n, cap, (struct place){0.0, value, i});
            r->runners[i].alive = r->runners[i].ahead = false;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        r->runners[r->places[k].arm].ahead = k < FEW;
        r->runners[r->places[k].arm].alive = true;
    }
    r->n_list = 0;
    for (uint32_t k = 0; k < alive; k++) {
        set_alive(r, r->list[k], r->runners[r->list[k]].alive);
    }
    return r->n_list;
}

/* Is the arm as good as the leader? The default is while it seems to lose very little, which may be
 * chance: it needs no proof. What a row must gain to be worth having is compose's to say. */
static bool is_tied(const struct nt_race *r, uint32_t arm, uint32_t leader)
{
    double se, d = fit_apart(&r->fit, arm, leader);
    if (arm == 0 && d <= r->home) {
        (void)fit_difference(&r->fit, arm, leader, &se);
        if (d <= r->config.z_stop * se) {
            return true;
        }
    }
    return d <= r->tie;
}

/* A leader that few gangs have seen is one that is asked for more of, and not yet picked: of many
 * some seem fast in a gang that another was slow in. */
static uint32_t find_pick(const struct nt_race *r, uint32_t leader)
{
    uint32_t best, pick, most = gangs_of(r, 0);
    uint32_t enough = most < r->config.min_gangs ? most : r->config.min_gangs;
    if (leader == NT_NO_ARM) {
        return 0;
    }
    best = gangs_of(r, leader) >= enough ? leader : find_best(r, enough);
    best = pick = best != NT_NO_ARM ? best : leader;
    for (uint32_t k = 0; k < r->n_list; k++) {
        uint32_t i = r->list[k];
        if (gangs_of(r, i) < enough || !is_tied(r, i, best)) {
            continue;
        }
        if (i == 0) {
            return 0;
        }
        if (r->runners[i].tie_rank < r->runners[pick].tie_rank) {
            pick = i;
        }
    }
    return pick;
}

/* What the pick may lose to those alive, at z_stop; not known before all have been looked at. */
static double find_loss(const struct nt_race *r, uint32_t pick)
{
    double loss = 0.0;
    if (pick == NT_NO_ARM || !r->looked) {
        return INFINITY;
    }
    for (uint32_t k = 0; k < r->n_list; k++) {
        uint32_t i = r->list[k];
        double se, d;
        if (i != pick) {
            d = fit_difference(&r->fit, pick, i, &se);
            loss =
                isnan(d)
                    ? INFINITY
                    : fmax(loss, d + r->belief.by[belief_degrees(&r->fit, i, pick, se)].stop * se);
        }
    }
    return loss;
}

/* Did it run in enough gangs to be picked? */
static bool stands(const struct nt_race *r, uint32_t pick)
{
    return pick != NT_NO_ARM && gangs_of(r, pick) >= r->config.min_gangs;
}

/* What one gang more is expected to save of what is lost to the likeliest rival: an error falls
 * with the root of the gangs, so 1 in 2 n. */
static double find_saving(const struct nt_race *r, uint32_t pick)
{
    double saving = 0.0;
    if (pick == NT_NO_ARM || !r->looked) {
        return INFINITY;
    }
    for (uint32_t k = 0; k < r->n_list; k++) {
        uint32_t i = r->list[k], gangs = belief_gangs(&r->fit, i, pick);
        double se, d;
        if (i != pick) {
            d = fit_difference(&r->fit, pick, i, &se);
            saving = isnan(d) || gangs == 0
                         ? INFINITY
                         : fmax(saving, belief_loss(&r->belief, d, se,
                                                    belief_degrees(&r->fit, i, pick, se)) /
                                            (2.0 * gangs));
        }
    }
    return saving;
}

static enum nt_race_end find_end(const struct nt_race *r, const struct nt_race_verdict *v)
{
    if (failed(r, 0)) {
        return NT_RACE_NO_BASELINE;
    }
    if (r->open == 1) {
        return NT_RACE_SEPARATED; /* there is nothing but the default */
    }
    if (!r->looked || !pinned_are_known(r)) {
        return NT_RACE_RUNNING;
    }
    if (stands(r, v->leader) && r->rivals == 1 && r->recalled == 0) {
        return NT_RACE_SEPARATED;
    }
    if (stands(r, v->pick) && r->recalled == 0 && v->loss <= log1p(r->config.slack)) {
        return NT_RACE_TIED;
    }
    return v->gangs >= r->config.max_gangs ? NT_RACE_LIMIT : NT_RACE_RUNNING;
}

static void update(struct nt_race *r)
{
    struct nt_race_verdict v = {0};
    if (!r->stale) {
        return;
    }
    r->stale = false;
    fit_update(&r->fit);
    take_stock(r);
    v.leader = find_best(r, 0);
    v.alive = cap_alive(r, find_alive(r, v.leader), v.leader);
    v.gangs = gangs_used(r);
    v.pick = failed(r, 0) ? NT_NO_ARM : find_pick(r, v.leader);
    v.loss = find_loss(r, v.pick);
    v.end = find_end(r, &v);
    if (r->pins) { /* what is pinned is measured on, but decides nothing */
        r->n_list = 0;
        for (uint32_t i = 0; i < r->n; i++) {
            const struct runner *u = &r->runners[i];
            set_alive(r, i, u->alive || (u->pinned && !failed(r, i)));
        }
    }
    r->verdict = v;
}

/* ---- what to measure next ---- */

/* Blocks of an arm in a gang average their noise, not what the arm does in that gang: the most is
 * learned of the time when so many are taken that another gang would be as well spent. */
static double target_blocks(const struct nt_race *r, uint32_t arm)
{
    uint32_t alive = r->verdict.alive > 0 ? r->verdict.alive : 1;
    double n = sqrt(r->price / alive * r->fit.arms[arm].var / r->fit.inter_var);
    n *= arm == 0 || r->runners[arm].ahead ? 1.0 : OTHERS;
    return fmin(fmax(n, 1.0), (double)r->config.max_blocks);
}

/* Is the arm to be looked at once in this gang, beside the leader? */
static bool is_recalled_to(const struct nt_race *r, uint32_t gang, uint32_t arm)
{
    return r->runners[arm].recalled && !r->resting && fit_cell(&r->fit, arm, gang)->told <= 0.0 &&
           fit_cell(&r->fit, r->verdict.leader, gang)->weight > 0.0;
}

/* Iterations wanted of the arm in this gang now; 0: none. */
static uint32_t wanted(const struct nt_race *r, uint32_t gang, uint32_t arm)
{
    const struct fit_cell *c = fit_cell(&r->fit, arm, gang);
    double most;
    if (failed(r, arm) || fit_is_absent(&r->fit, gang, arm)) {
        return 0;
    }
    if (arm != 0 && (looks_left(r, arm) > 0 || is_recalled_to(r, gang, arm))) {
        return r->config.look_samples < r->config.block_samples ? r->config.look_samples
                                                                : r->config.block_samples;
    }
    if (r->resting && !r->runners[arm].pinned) {
        return 0;
    }
    most = target_blocks(r, arm); /* strays are replaced, each once */
    return r->runners[arm].alive && c->weight < most - 0.5 && c->told < 2 * most
               ? r->config.block_samples
               : 0;
}

/* First looks go by boost and prior, shuffled within each stretch between two default blocks. */
static void order_by_prior(struct nt_race *r, struct lane *l)
{
    uint32_t stretch = r->config.default_every - 1;
    for (uint32_t i = 0; i < l->n; i++) {
        const struct runner *u = &r->runners[l->queue[i]];
        r->places[i] = (struct place){u->boost, u->prior, l->queue[i]};
    }
    qsort(r->places, l->n, sizeof(*r->places), by_place);
    for (uint32_t i = 0; i < l->n; i++) {
        l->queue[i] = r->places[i].arm;
    }
    for (uint32_t i = 0; i < l->n; i += stretch) {
        nt_rng_shuffle(&r->rng, l->queue + i, l->n - i < stretch ? l->n - i : stretch);
    }
}

static void new_round(struct nt_race *r, uint32_t gang)
{
    struct lane *l = &r->lanes[gang];
    uint32_t most = 0;
    bool listed = r->looked && r->recalled == 0;
    l->n = l->at = 0;
    for (uint32_t k = 0; k < (listed ? r->n_list : r->n); k++) {
        uint32_t i = listed ? r->list[k] : k, left = looks_left(r, i);
        if (wanted(r, gang, i) > 0) {
            l->queue[l->n++] = i;
            most = i != 0 && left > most ? left : most;
        }
    }
    if (most == r->config.looks && most > 0) {
        order_by_prior(r, l);
    } else {
        nt_rng_shuffle(&r->rng, l->queue, l->n);
    }
}

static bool next_in_queue(struct nt_race *r, uint32_t gang, struct nt_ask *ret)
{
    struct lane *l = &r->lanes[gang];
    for (int rounds = 0; rounds < 2; rounds++) {
        while (l->at < l->n) {
            uint32_t arm = l->queue[l->at++], samples = wanted(r, gang, arm);
            if (samples > 0) {
                *ret = (struct nt_ask){arm, samples, arm != 0 && looks_left(r, arm) > 0};
                return true;
            }
        }
        new_round(r, gang);
    }
    return false;
}

static bool decided(const struct nt_race_verdict *v)
{
    return v->end != NT_RACE_RUNNING && v->end != NT_RACE_LIMIT;
}

bool nt_race_next(struct nt_race *r, uint32_t gang, struct nt_ask *ret)
{
    struct lane *l = &r->lanes[gang];
    nt_assert(gang < NT_RACE_MAX_GANGS);
    if (!r->later && l->blocks == 0 && gangs_used(r) > 0) {
        r->later = r->stale = true;
    }
    update(r);
    if (decided(&r->verdict) || (l->blocks == 0 && r->verdict.gangs >= r->config.max_gangs)) {
        return false;
    }
    if (l->asked && (l->ask.arm == 0 || wanted(r, gang, l->ask.arm) > 0)) {
        *ret = l->ask;
        return true;
    }
    /* the queue first: a default block that no other block follows would tell nothing */
    l->asked = next_in_queue(r, gang, &l->ask);
    if (l->asked && l->ask.arm != 0 &&
        (!fit_has_level(&r->fit, gang) || l->since_default + 1 >= r->config.default_every)) {
        l->at--; /* comes after it */
        l->ask = (struct nt_ask){0, r->config.block_samples, l->ask.look};
    }
    *ret = l->ask;
    return l->asked;
}

int nt_race_tell(struct nt_race *r, uint32_t gang, uint32_t arm, double log_ns, uint32_t samples,
                 struct nt_err *err)
{
    struct lane *l = &r->lanes[gang];
    int rc;
    nt_assert(gang < NT_RACE_MAX_GANGS && arm < r->n);
    if (!isfinite(log_ns) || samples == 0) {
        return nt_fail(err, NT_E_INVAL, 0, "a block of %u samples with log %g", samples, log_ns);
    }
    rc = fit_add(&r->fit, gang, arm, log_ns, (double)samples / r->config.block_samples, err);
    if (rc == 0) {
        l->asked = l->asked && l->ask.arm != arm;
        l->since_default = arm == 0 ? 0 : l->since_default + 1;
        l->blocks += arm != 0;
        r->stale = true;
    }
    return rc;
}

void nt_race_absent(struct nt_race *r, uint32_t gang, uint32_t arm)
{
    nt_assert(gang < NT_RACE_MAX_GANGS && arm != 0 && arm < r->n);
    fit_absent(&r->fit, gang, arm);
    r->stale = true;
}

void nt_race_fail(struct nt_race *r, uint32_t arm, int why)
{
    nt_assert(arm < r->n);
    fit_fail(&r->fit, arm);
    r->runners[arm].why = why;
    r->stale = true;
}

bool nt_race_wants_gang(struct nt_race *r)
{
    update(r);
    return !decided(&r->verdict) && r->verdict.gangs < r->config.max_gangs;
}

struct nt_race_verdict nt_race_verdict(struct nt_race *r)
{
    struct nt_race_verdict v;
    update(r);
    v = r->verdict;
    if (!r->later) { /* of those who would go on into another gang */
        r->later = r->stale = true;
        (void)cap_alive(r, find_alive(r, v.leader), v.leader);
    }
    v.saving = find_saving(r, v.pick);
    r->later = r->later && !r->stale;
    return v;
}

double nt_race_apart(struct nt_race *r, uint32_t a, uint32_t b, double *ret_se)
{
    nt_assert(a < r->n && b < r->n);
    update(r);
    return fit_difference(&r->fit, a, b, ret_se);
}

double nt_race_behind(struct nt_race *r, uint32_t arm)
{
    double se, d;
    update(r);
    if (r->verdict.leader == NT_NO_ARM) {
        return -INFINITY;
    }
    d = fit_difference(&r->fit, arm, r->verdict.leader, &se);
    return isnan(d) ? -INFINITY : d - r->config.z_drop * se;
}

static int by_standing(const void *a, const void *b)
{
    const struct nt_standing *x = a, *y = b;
    if (x->state != y->state) {
        return x->state < y->state ? -1 : 1;
    }
    if (isnan(x->log_ratio) != isnan(y->log_ratio)) {
        return isnan(x->log_ratio) ? 1 : -1;
    }
    if (x->log_ratio != y->log_ratio && !isnan(x->log_ratio)) {
        return x->log_ratio < y->log_ratio ? -1 : 1;
    }
    return x->arm < y->arm ? -1 : 1;
}

struct nt_standing nt_race_standing(struct nt_race *r, uint32_t arm)
{
    const struct fit_arm *a = &r->fit.arms[arm];
    struct nt_standing s = {.arm = arm, .why = r->runners[arm].why, .blocks = a->blocks};
    update(r);
    s.state = a->failed ? NT_ARM_FAILED : r->runners[arm].alive ? NT_ARM_ALIVE : NT_ARM_DROPPED;
    s.gangs = gangs_of(r, arm);
    s.log_ratio = fit_difference(&r->fit, arm, 0, &s.se);
    return s;
}

void nt_race_standings(struct nt_race *r, struct nt_standing *out)
{
    for (uint32_t i = 0; i < r->n; i++) {
        out[i] = nt_race_standing(r, i);
    }
    qsort(out, r->n, sizeof(*out), by_standing);
}

void nt_race_noise(struct nt_race *r, double *ret_block_sd, double *ret_interaction_sd)
{
    update(r);
    *ret_block_sd = sqrt(r->fit.block_var);
    *ret_interaction_sd = sqrt(r->fit.inter_var);
}

void nt_race_share(struct nt_race *const *races, uint32_t n)
{
    static const double own_df = 8.0, near = 0.7, least = 0.002; /* of the belief; log units */
    for (uint32_t i = 0; i < n; i++) {
        update(races[i]); /* before any belief changes */
    }
    for (uint32_t i = 0; i < n; i++) {
        double prior = interaction_sd(&races[i]->config);
        double squares = own_df * prior * prior, df = own_df;
        for (uint32_t k = 0; k < n; k++) {
            const struct fit *f = &races[k]->fit;
            double w = pow(near, fabs((double)i - (double)k));
            squares += w * f->inter_excess;
            df += w * f->inter_df;
        }
        fit_believe(&races[i]->fit, sqrt(fmax(squares / df, least * least)), own_df);
        races[i]->stale = true;
    }
}
