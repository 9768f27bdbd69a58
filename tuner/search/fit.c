#include "tuner/search/fit.h"

#include <stdlib.h>
#include <string.h>

/* How much a belief from before weighs, in observations. */
static const double block_prior_df = 10.0, arm_prior_df = 6.0, inter_prior_df = 8.0;
/* A block further than this many standard deviations from the median of its kind is set aside. */
static const double stray_sd = 5.0;
/* Default blocks are compared across a gang's drift, so only gross ones are strays. */
static const double stray_mark_least = 0.25;

static void sort(double *x, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        double y = x[i];
        size_t k = i;
        for (; k > 0 && x[k - 1] > y; k--) {
            x[k] = x[k - 1];
        }
        x[k] = y;
    }
}

/* The k-th smallest; reorders x. */
static double select_kth(double *x, size_t n, size_t k)
{
    enum { SHORT = 24 }; /* an arm has few blocks */
    while (n > SHORT) {
        double a = x[0], b = x[n / 2], c = x[n - 1];
        double pivot = fmax(fmin(a, b), fmin(fmax(a, b), c));
        size_t below = 0, upto;
        for (size_t i = 0; i < n; i++) {
            double y = x[i];
            if (y < pivot) {
                x[i] = x[below];
                x[below++] = y;
            }
        }
        upto = below;
        for (size_t i = below; i < n; i++) {
            double y = x[i];
            if (y == pivot) {
                x[i] = x[upto];
                x[upto++] = y;
            }
        }
        if (k < below) {
            n = below;
        } else if (k < upto) {
            return pivot;
        } else {
            x += upto;
            n -= upto;
            k -= upto;
        }
    }
    sort(x, n);
    return x[k];
}

/* Of two, the smaller: what disturbs a block makes it slower. Reorders x. */
static double lower_median(double *x, size_t n)
{
    return n > 2 ? select_kth(x, n, (n - 1) / 2) : n == 2 ? fmin(x[0], x[1]) : x[0];
}

int fit_init(struct fit *f, uint32_t n_arms, double block_sd, double gang_sd, double interaction_sd,
             struct nt_err *err)
{
    *f = (struct fit){.n_arms = n_arms,
                      .block_var0 = block_sd * block_sd,
                      .inter_var0 = interaction_sd * interaction_sd,
                      .inter_df0 = inter_prior_df,
                      .gang_var = gang_sd * gang_sd,
                      .touched = FIT_NONE};
    f->block_var = f->block_var0;
    f->inter_var = f->inter_var0;
    f->arms = calloc(n_arms, sizeof(*f->arms));
    f->cells = calloc((size_t)n_arms * FIT_GANGS, sizeof(*f->cells));
    f->several = calloc(n_arms, sizeof(*f->several));
    f->votes = calloc((size_t)n_arms * FIT_GANGS, sizeof(*f->votes));
    if (f->arms == NULL || f->cells == NULL || f->several == NULL || f->votes == NULL) {
        fit_done(f);
        return nt_fail(err, NT_E_NOMEM, 0, "race of %u arms", n_arms);
    }
    for (uint32_t i = 0; i < n_arms; i++) {
        f->arms[i].last = FIT_NONE;
        f->arms[i].var = f->block_var0;
    }
    return 0;
}

void fit_done(struct fit *f)
{
    for (size_t g = 0; g < FIT_GANGS; g++) {
        free(f->gangs[g].marks);
    }
    free(f->arms);
    free(f->cells);
    free(f->several);
    free(f->obs);
    free(f->scratch);
    free(f->votes);
    free(f->seen);
    *f = (struct fit){0};
}

/* Room for one more item; *items is replaced. */
static int grow(void **items, size_t n, size_t *cap, size_t size, struct nt_err *err)
{
    size_t want = *cap == 0 ? 16 : 2 * *cap;
    void *p;
    if (n < *cap) {
        return 0;
    }
    p = realloc(*items, want * size);
    if (p == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "%zu blocks", want);
    }
    *items = p;
    *cap = want;
    return 0;
}

static int add_mark(struct fit *f, struct fit_gang *g, double y, double weight, struct nt_err *err)
{
    void *marks = g->marks;
    int rc = grow(&marks, g->n_marks, &g->cap, sizeof(*g->marks), err);
    g->marks = marks;
    if (rc == 0) {
        g->marks[g->n_marks++] = (struct fit_mark){.pos = g->blocks, .y = y, .weight = weight};
        f->moved = true;
    }
    return rc;
}

static int add_obs(struct fit *f, uint32_t gang, uint32_t arm, double y, double weight,
                   struct nt_err *err)
{
    struct fit_arm *a = &f->arms[arm];
    void *obs = f->obs;
    int rc = grow(&obs, f->n_obs, &f->cap, sizeof(*f->obs), err);
    f->obs = obs;
    if (rc == 0) {
        const struct fit_gang *g = &f->gangs[gang];
        f->obs[f->n_obs] =
            (struct fit_obs){y, weight, NAN, NAN, gang, a->last, g->blocks, (uint32_t)g->n_marks};
        a->last = (uint32_t)f->n_obs++;
        f->moved = f->moved || (f->touched != FIT_NONE && f->touched != arm);
        f->touched = arm;
    }
    return rc;
}

int fit_add(struct fit *f, uint32_t gang, uint32_t arm, double y, double weight, struct nt_err *err)
{
    void *scratch = f->scratch, *seen = f->seen;
    size_t blocks = f->arms[0].blocks + f->n_obs;
    int rc = grow(&scratch, blocks, &f->n_scratch, sizeof(*f->scratch), err);
    f->scratch = scratch;
    rc = rc == 0 ? grow(&seen, blocks, &f->n_seen, sizeof(*f->seen), err) : rc;
    f->seen = seen;
    if (rc == 0) {
        rc = arm == 0 ? add_mark(f, &f->gangs[gang], y, weight, err)
                      : add_obs(f, gang, arm, y, weight, err);
    }
    if (rc == 0) {
        f->arms[arm].blocks++;
        f->arms[arm].told |= 1U << gang;
        f->gangs[gang].blocks++;
        f->n_gangs = gang + 1 > f->n_gangs ? gang + 1 : f->n_gangs;
    }
    return rc;
}

void fit_absent(struct fit *f, uint32_t gang, uint32_t arm)
{
    struct fit_arm *a = &f->arms[arm];

    for (uint32_t i = a->last; i != FIT_NONE; i = f->obs[i].prev) {
        a->blocks -= f->obs[i].gang == gang;
    }
    a->told &= ~(1U << gang);
    a->absent |= 1U << gang;
    f->cells[(size_t)gang * f->n_arms + arm] = (struct fit_cell){0};
    f->moved = true;
}

void fit_fail(struct fit *f, uint32_t arm)
{
    f->arms[arm].failed = true;
    f->moved = true;
}

/* ---- the level of a gang ---- */

enum { WINDOW = 5 };

/* What a gang's k-th default block is judged by: its neighbours in time, as the level may move; in
 * a gang of few, what all gangs' blocks say. */
static double mark_mid(const struct fit_gang *g, size_t k, double mid_of_all)
{
    double near[WINDOW];
    size_t from = k < WINDOW / 2 ? 0 : k - WINDOW / 2;
    if (g->n_marks < WINDOW) {
        return mid_of_all;
    }
    from = from + WINDOW > g->n_marks ? g->n_marks - WINDOW : from;
    for (size_t i = 0; i < WINDOW; i++) {
        near[i] = g->marks[from + i].y;
    }
    return lower_median(near, WINDOW);
}

/* Sets strays aside; returns how many blocks are left. */
static size_t mark_far(const struct fit *f, struct fit_gang *g, double mid_of_all)
{
    size_t left = 0;
    for (size_t k = 0; k < g->n_marks; k++) {
        struct fit_mark *m = &g->marks[k];
        double sd = sqrt(f->block_var / m->weight + f->gang_var);
        double off = fabs(m->y - mark_mid(g, k, mid_of_all));
        m->stray = off > fmax(stray_sd * sd, stray_mark_least);
        left += !m->stray;
    }
    return left;
}

static void mark_strays(struct fit *f)
{
    size_t n = 0;
    bool few = false;
    double mid;
    for (uint32_t g = 0; g < f->n_gangs; g++) {
        few = few || (f->gangs[g].n_marks > 0 && f->gangs[g].n_marks < WINDOW);
    }
    for (uint32_t g = 0; g < f->n_gangs && few; g++) {
        for (size_t k = 0; k < f->gangs[g].n_marks; k++) {
            f->scratch[n++] = f->gangs[g].marks[k].y;
        }
    }
    mid = few ? lower_median(f->scratch, n) : NAN;
    for (uint32_t g = 0; g < f->n_gangs; g++) {
        struct fit_gang *gang = &f->gangs[g];
        if (mark_far(f, gang, mid) == 0 && gang->n_marks > 1) {
            /* no stray block but a gang that is different: it is judged by itself */
            for (size_t k = 0; k < gang->n_marks; k++) {
                f->scratch[k] = gang->marks[k].y;
            }
            (void)mark_far(f, gang, lower_median(f->scratch, gang->n_marks));
        }
    }
}

/* Kalman filter of a level that wanders with variance `q` a block. */
struct track {
    double q, x, p, likelihood; /* likelihood: its log */
};

static void follow(struct track *t, const struct fit_mark *m, double noise, uint32_t steps)
{
    t->p += t->q * (double)steps;
    if (!m->stray && isinf(t->p)) {
        t->x = m->y;
        t->p = noise;
    } else if (!m->stray) {
        double f = t->p + noise;
        t->likelihood -= 0.5 * (log(f) + (m->y - t->x) * (m->y - t->x) / f);
        t->x += t->p / f * (m->y - t->x);
        t->p *= noise / f;
    }
}

/* Several at once, which takes little longer than one; the first leaves what it filtered. */
static void filter_level(struct fit_gang *g, double block_var, struct track *tracks, size_t n)
{
    uint32_t pos = 0;
    for (size_t i = 0; i < n; i++) {
        tracks[i].x = tracks[i].likelihood = 0.0;
        tracks[i].p = INFINITY;
    }
    for (size_t k = 0; k < g->n_marks; k++) {
        struct fit_mark *m = &g->marks[k];
        double noise = block_var / m->weight;
        for (size_t i = 0; i < n; i++) {
            follow(&tracks[i], m, noise, m->pos - pos);
        }
        pos = m->pos;
        m->filtered = tracks[0].x;
        m->var = tracks[0].p;
    }
}

/* The pace is the most plausible of a few, and standing still unless another is clearly better. */
static void smooth_level(struct fit_gang *g, double block_var)
{
    enum { PACES = 4 };
    static const double paces[PACES] = {0.0, 0.004, 0.04,
                                        0.4}; /* of a block's variance, per block */
    static const double worth = 1.5;          /* of log-likelihood */
    struct track tracks[PACES];
    double best, q = 0.0;
    size_t k = g->n_marks, used = 0;
    for (size_t i = 0; i < PACES; i++) {
        tracks[i].q = paces[i] * block_var;
    }
    filter_level(g, block_var, tracks, PACES);
    best = tracks[0].likelihood + worth;
    for (size_t i = 1; i < PACES; i++) {
        if (tracks[i].likelihood > best) {
            best = tracks[i].likelihood;
            q = tracks[i].q;
        }
    }
    if (q > 0.0) {
        tracks[0].q = q;
        filter_level(g, block_var, tracks, 1);
    }
    g->ss = g->df = 0.0;
    while (k-- > 0) { /* smooth backwards; before the first good block its level holds */
        struct fit_mark *m = &g->marks[k];
        m->level = m->filtered;
        if (k + 1 < g->n_marks) {
            double step = q * (double)(m[1].pos - m->pos);
            double c = isinf(m->var) || step == 0.0 ? 1.0 : m->var / (m->var + step);
            m->level += c * (m[1].level - m->filtered);
        }
        if (!m->stray) {
            used++;
            g->ss += m->weight * (m->y - m->level) * (m->y - m->level);
        }
    }
    g->df = q == 0.0 && used > 1 ? (double)(used - 1) : 0.0;
    g->ss = g->df > 0.0 ? g->ss : 0.0;
}

/* Is any default block of the gang usable? */
static bool has_level(const struct fit_gang *g)
{
    return g->n_marks > 0 && !isinf(g->marks[g->n_marks - 1].var);
}

static double level_at(const struct fit_gang *g, struct fit_obs *o)
{
    const struct fit_mark *m = g->marks;
    size_t next = o->before;
    if (next == 0 || next == g->n_marks) {
        return m[next == 0 ? 0 : next - 1].level + g->off;
    }
    if (isnan(o->between)) {
        o->between = (double)(o->pos - m[next - 1].pos) / (double)(m[next].pos - m[next - 1].pos);
    }
    return m[next - 1].level + o->between * (m[next].level - m[next - 1].level) + g->off;
}

bool fit_has_level(const struct fit *f, uint32_t gang)
{
    return has_level(&f->gangs[gang]);
}

/* ---- cells ---- */

/* Of a set of gangs that is not empty, the least. */
static uint32_t first_bit(uint32_t set)
{
    return (uint32_t)__builtin_ctz(set);
}

static struct fit_cell *cell_at(struct fit *f, uint32_t arm, uint32_t gang)
{
    return &f->cells[(size_t)gang * f->n_arms + arm];
}

/* The default is level with itself; how well that is known is what its cell says. Where it was
 * disturbed it says nothing. */
static void redo_default_cell(struct fit *f)
{
    struct fit_arm *a = &f->arms[0];
    a->gangs = a->seen = 0;
    a->ss = a->df = 0.0;
    for (uint32_t g = 0; g < f->n_gangs; g++) {
        struct fit_cell *c = cell_at(f, 0, g);
        *c = (struct fit_cell){0};
        for (size_t k = 0; k < f->gangs[g].n_marks; k++) {
            bool odd = f->gangs[g].marks[k].stray || f->gangs[g].off != 0.0;
            c->weight += odd ? 0.0 : f->gangs[g].marks[k].weight;
            c->told += f->gangs[g].marks[k].weight;
        }
        a->gangs += c->weight > 0.0;
        a->seen |= c->weight > 0.0 ? 1U << g : 0;
        a->ss += f->gangs[g].ss;
        a->df += f->gangs[g].df;
    }
}

/* Where an arm's blocks lie, levels taken off: the middle of all, of each gang's, and of those; and
 * how far off one may lie by how they scatter. */
struct habit {
    double mid, limit;
    double of_gang[FIT_GANGS], weight[FIT_GANGS]; /* weight 0: it has no block there */
    double mid_of_gangs, gang_limit;
    bool several; /* gangs … */
    bool agreed;  /* … and most lie near their middle */
};

/* Is a distance more than what the interaction by itself allows, and noise of so much weight? */
static bool is_far(const struct fit *f, double off, double weight, double limit)
{
    return off > f->stray_least && off > limit &&
           off > stray_sd * sqrt(f->block_var / weight + f->inter_var);
}

/* The middle of n values, and how far from it is far by their own robust spread: an arm may be
 * noisier than others. Reorders x. */
static double middle_of(double *x, size_t n, double *ret_limit)
{
    double mid = lower_median(x, n);
    *ret_limit = 0.0;
    if (n >= 4) {
        for (size_t i = 0; i < n; i++) {
            x[i] = fabs(x[i] - mid);
        }
        *ret_limit = stray_sd * 1.4826 * lower_median(x, n);
    }
    return mid;
}

/* Takes the levels off the arm's blocks; the middle of all of them, and the fastest. False where
 * none has a level. */
static bool take_off(struct fit *f, uint32_t arm, struct habit *h)
{
    struct fit_arm *a = &f->arms[arm];
    size_t n = 0;
    a->fastest = FIT_NONE;
    for (uint32_t i = a->last; i != FIT_NONE; i = f->obs[i].prev) {
        struct fit_obs *o = &f->obs[i];
        const struct fit_gang *g = &f->gangs[o->gang];
        bool counts = has_level(g) && !fit_is_absent(f, o->gang, arm);
        o->above = counts ? o->y - level_at(g, o) : NAN;
        if (!isnan(o->above)) {
            f->scratch[n++] = o->above;
            a->fastest = n == 1 || o->above < f->obs[a->fastest].above ? i : a->fastest;
        }
    }
    if (n > 0) {
        h->mid = middle_of(f->scratch, n, &h->limit);
    }
    return n > 0;
}

/* One gang's part of it, from its last block on; the block before them. */
static uint32_t take_gang(struct fit *f, uint32_t i, struct habit *h)
{
    uint32_t gang = f->obs[i].gang;
    size_t n = 0;
    for (; i != FIT_NONE && f->obs[i].gang == gang; i = f->obs[i].prev) {
        if (!isnan(f->obs[i].above)) {
            f->scratch[n++] = f->obs[i].above;
            h->weight[gang] += f->obs[i].weight;
        }
    }
    h->of_gang[gang] = n > 0 ? lower_median(f->scratch, n) : NAN;
    return i;
}

static bool is_gang_far(const struct fit *f, const struct habit *h, uint32_t gang)
{
    return is_far(f, fabs(h->of_gang[gang] - h->mid_of_gangs), h->weight[gang], h->gang_limit);
}

static void take_gangs(struct fit *f, const struct fit_arm *a, struct habit *h)
{
    double mids[FIT_GANGS] = {0};
    size_t gangs = 0, near = 0;
    for (uint32_t i = a->last; i != FIT_NONE;) {
        i = take_gang(f, i, h);
    }
    for (uint32_t g = 0; g < f->n_gangs; g++) {
        if (h->weight[g] > 0.0) {
            mids[gangs++] = h->of_gang[g];
        }
    }
    h->mid_of_gangs = middle_of(mids, gangs, &h->gang_limit);
    for (uint32_t g = 0; g < f->n_gangs; g++) {
        near += h->weight[g] > 0.0 && !is_gang_far(f, h, g);
    }
    h->agreed = gangs > 2 && 2 * near > gangs;
}

/* What disturbs a block makes it slower than most of the arm's; what disturbs a gang, than most of
 * its gangs. */
static bool is_stray(const struct fit *f, const struct fit_obs *o, const struct habit *h)
{
    double off = o->above - h->mid;
    return is_far(f, h->several ? off : fabs(off), o->weight, h->limit) ||
           (h->agreed && is_gang_far(f, h, o->gang));
}

/* What arms that most of their gangs agree about say of each of them. */
struct vote {
    uint32_t n, fast; /* all; to how many it is far faster than their others */
};

static void cast_votes(struct fit *f, uint32_t arm, struct vote *votes)
{
    struct habit h = {.several = true};

    if (!take_off(f, arm, &h)) {
        return;
    }
    take_gangs(f, &f->arms[arm], &h);
    for (uint32_t g = 0; g < f->n_gangs && h.agreed; g++) {
        double off = h.of_gang[g] - h.mid_of_gangs;
        if (h.weight[g] > 0.0) {
            f->votes[(size_t)g * f->n_arms + votes[g].n++] = off;
            votes[g].fast += off < 0.0 && is_gang_far(f, &h, g);
        }
    }
}

/* What disturbs makes slower: where most seem far faster than in other gangs, it is the default
 * that was disturbed, however many its blocks. They say where the level is, also for those that too
 * few gangs saw to tell. */
static void set_offs(struct fit *f)
{
    struct vote votes[FIT_GANGS] = {{0}};

    for (uint32_t g = 0; g < f->n_gangs; g++) {
        f->gangs[g].off = 0.0;
    }
    for (uint32_t i = 1; i < f->n_arms; i++) {
        if (!f->arms[i].failed && __builtin_popcount(f->arms[i].told) > 2) {
            cast_votes(f, i, votes);
        }
    }
    for (uint32_t g = 0; g < f->n_gangs; g++) {
        if (2 * votes[g].fast > votes[g].n) {
            f->gangs[g].off = lower_median(f->votes + (size_t)g * f->n_arms, votes[g].n);
        }
    }
}

static void redo_cells(struct fit *f, uint32_t arm)
{
    struct fit_arm *a = &f->arms[arm];
    struct habit h = {.several = (a->told & (a->told - 1)) != 0};
    for (uint32_t left = a->told; left != 0; left &= left - 1) {
        *cell_at(f, arm, first_bit(left)) = (struct fit_cell){0};
    }
    a->gangs = a->seen = 0;
    a->ss = a->df = 0.0;
    if (!take_off(f, arm, &h)) {
        return;
    }
    if (h.several) {
        take_gangs(f, a, &h);
    }
    for (uint32_t i = a->last; i != FIT_NONE; i = f->obs[i].prev) {
        const struct fit_obs *o = &f->obs[i];
        struct fit_cell *c = cell_at(f, arm, o->gang);
        double d;
        if (fit_is_absent(f, o->gang, arm)) {
            continue;
        }
        c->told += o->weight;
        if (isnan(o->above) || is_stray(f, o, &h)) {
            continue;
        }
        d = o->above - c->mean;
        a->gangs += c->weight == 0.0;
        a->seen |= 1U << o->gang;
        a->df += c->weight > 0.0;
        a->ss += c->weight > 0.0 ? d * d * c->weight * o->weight / (c->weight + o->weight) : 0.0;
        c->weight += o->weight;
        c->mean += d * o->weight / c->weight;
    }
}

/* ---- effects and variances ---- */

/* Also finds those seen in several gangs. */
static void pool_block_var(struct fit *f)
{
    double ss = block_prior_df * f->block_var0, df = block_prior_df;
    f->n_several = 0;
    for (uint32_t i = 0; i < f->n_arms; i++) {
        if (!f->arms[i].failed) {
            ss += f->arms[i].ss;
            df += f->arms[i].df;
        }
        if (f->arms[i].gangs > 1) {
            f->several[f->n_several++] = i;
        }
    }
    f->block_var = ss / df;
}

/* What a cell says about its arm's effect: the inverse of its variance. */
static double cell_info(const struct fit *f, const struct fit_arm *a, const struct fit_cell *c)
{
    return c->weight > 0.0 ? 1.0 / (f->inter_var + a->var / c->weight) : 0.0;
}

static double variance_of(const struct fit *f, const struct fit_arm *a)
{
    return (arm_prior_df * f->block_var + a->ss) / (arm_prior_df + a->df);
}

/* What the cells say of those seen in several gangs, by the variances believed now; and what all
 * say of each gang. */
static void set_infos(struct fit *f, double *of_gang)
{
    struct fit_seen *to = f->seen;
    for (uint32_t k = 0; k < f->n_several; k++) {
        struct fit_arm *a = &f->arms[f->several[k]];
        a->var = variance_of(f, a);
        a->info = 0.0;
        for (uint32_t left = a->seen; left != 0; left &= left - 1, to++) {
            const struct fit_cell *c = fit_cell(f, f->several[k], first_bit(left));
            *to = (struct fit_seen){c->mean, cell_info(f, a, c), first_bit(left)};
            a->info += to->info;
            of_gang[to->gang] += a->failed ? 0.0 : to->info;
        }
    }
}

/* Their effects, by the shifts that are believed; what then speaks for other shifts goes to sum. */
static void sweep(struct fit *f, double *sum)
{
    const struct fit_seen *c = f->seen;
    for (uint32_t k = 0; k < f->n_several; k++) {
        struct fit_arm *a = &f->arms[f->several[k]];
        double effect = 0.0;
        for (uint32_t i = 0; i < a->gangs; i++) {
            effect += c[i].info * (c[i].mean - f->gangs[c[i].gang].shift);
        }
        a->effect = effect /= a->info;
        for (uint32_t i = 0; i < a->gangs && !a->failed; i++) {
            sum[c[i].gang] += c[i].info * (c[i].mean - effect);
        }
        c += a->gangs;
    }
}

/* Both of an arm that was seen in one gang, as most are, or in none. */
static void set_single(struct fit *f, struct fit_arm *a, uint32_t arm)
{
    uint32_t gang = a->seen != 0 ? first_bit(a->seen) : 0;
    const struct fit_cell *c = fit_cell(f, arm, gang);
    a->var = variance_of(f, a);
    a->info = cell_info(f, a, c);
    a->effect = a->info > 0.0 ? a->info * (c->mean - f->gangs[gang].shift) / a->info : NAN;
}

static void believe(struct fit *f)
{
    f->inter_var =
        (f->inter_df0 * f->inter_var0 + fmax(0.0, f->inter_excess)) / (f->inter_df0 + f->inter_df);
}

void fit_believe(struct fit *f, double interaction_sd, double df)
{
    f->inter_var0 = interaction_sd * interaction_sd;
    f->inter_df0 = df;
    believe(f);
    f->moved = true; /* all weights change */
}

/* Variance of what arms do in a gang beyond their effect, from those seen in several. */
static void set_inter_var(struct fit *f)
{
    double ss = 0.0, noise = 0.0, cells = 0.0, arms = 0.0, df;
    const struct fit_seen *seen = f->seen;
    for (uint32_t k = 0; k < f->n_several; k++) {
        const struct fit_arm *a = &f->arms[f->several[k]];
        uint32_t i = a->failed ? a->gangs : 0;
        arms += a->failed ? 0.0 : 1.0;
        for (; i < a->gangs; i++) {
            double e = seen[i].mean - f->gangs[seen[i].gang].shift - a->effect;
            ss += e * e;
            noise += a->var / fit_cell(f, f->several[k], seen[i].gang)->weight;
            cells += 1.0;
        }
        seen += a->gangs;
    }
    df = cells - arms - (double)(f->n_gangs > 0 ? f->n_gangs - 1 : 0);
    f->inter_df = fmax(df, 0.0);
    f->inter_excess = df > 0.0 ? ss - noise * df / cells : 0.0;
    believe(f);
}

static void set_effects(struct fit *f)
{
    enum { SWEEPS = 3 }; /* of alternating least squares; a few arms, a few gangs */
    double info[FIT_GANGS] = {0};
    for (uint32_t g = 0; g < f->n_gangs; g++) {
        f->gangs[g].shift = f->gangs[g].shift_var = 0.0;
    }
    set_infos(f, info);
    for (int s = 0; s <= SWEEPS; s++) {
        double sum[FIT_GANGS] = {0};
        sweep(f, sum);
        for (uint32_t g = 0; g < f->n_gangs && s < SWEEPS; g++) {
            /* arms seen in one gang only say nothing of the gang */
            f->gangs[g].shift = info[g] > 0.0 ? sum[g] / info[g] : 0.0;
            f->gangs[g].shift_var = info[g] > 0.0 ? 1.0 / info[g] : 0.0;
        }
    }
    f->shift_var_most = 0.0;
    for (uint32_t g = 0; g < f->n_gangs; g++) {
        f->shift_var_most = fmax(f->shift_var_most, f->gangs[g].shift_var);
    }
    for (uint32_t i = 0; i < f->n_arms; i++) {
        if (f->arms[i].gangs <= 1) {
            set_single(f, &f->arms[i], i);
        }
    }
    set_inter_var(f);
}

void fit_update(struct fit *f)
{
    if (!f->moved && f->touched == FIT_NONE) {
        return;
    }
    f->stray_least = stray_sd * sqrt(f->inter_var);
    if (f->moved) {
        mark_strays(f);
        for (uint32_t g = 0; g < f->n_gangs; g++) {
            smooth_level(&f->gangs[g], f->block_var);
        }
        set_offs(f);
        redo_default_cell(f);
        for (uint32_t i = 1; i < f->n_arms; i++) {
            redo_cells(f, i);
        }
    } else {
        redo_cells(f, f->touched);
    }
    f->moved = false;
    f->touched = FIT_NONE;
    pool_block_var(f);
    set_effects(f);
}

double fit_noise_df(const struct fit *f, uint32_t arm)
{
    return arm_prior_df + f->arms[arm].df;
}

double fit_difference(const struct fit *f, uint32_t a, uint32_t b, double *ret_se)
{
    const struct fit_arm *x = &f->arms[a], *y = &f->arms[b];
    double var;
    if (!(x->info > 0.0 && y->info > 0.0)) {
        *ret_se = INFINITY;
        return NAN;
    }
    if (a == b) {
        *ret_se = 0.0;
        return 0.0;
    }
    var = 1.0 / x->info + 1.0 / y->info;
    for (uint32_t left = f->n_gangs > 1 ? x->seen | y->seen : 0; left != 0; left &= left - 1) {
        uint32_t g = first_bit(left);
        /* an error of the shift cancels as far as both lean on that gang */
        double lean = cell_info(f, x, fit_cell(f, a, g)) / x->info -
                      cell_info(f, y, fit_cell(f, b, g)) / y->info;
        var += lean * lean * f->gangs[g].shift_var;
    }
    *ret_se = sqrt(var);
    return x->effect - y->effect;
}

double fit_effect_at_best(const struct fit *f, uint32_t arm, double *ret_se)
{
    const struct fit_arm *a = &f->arms[arm];
    double against = -INFINITY, info = 0.0;
    if (a->gangs == 1) {
        const struct fit_obs *o = &f->obs[a->fastest];
        *ret_se = sqrt(f->inter_var + f->block_var / o->weight);
        return o->above - f->gangs[o->gang].shift;
    }
    for (uint32_t left = a->seen; left != 0; left &= left - 1) {
        uint32_t g = first_bit(left);
        const struct fit_cell *c = fit_cell(f, arm, g);
        double of_cell = cell_info(f, a, c);
        double speaks = of_cell * (c->mean - f->gangs[g].shift - a->effect);
        info = speaks > against ? of_cell : info;
        against = fmax(speaks, against);
    }
    *ret_se = a->gangs > 1 ? 1.0 / sqrt(a->info - info) : INFINITY;
    return a->gangs > 1 ? a->effect - against / (a->info - info) : NAN;
}
