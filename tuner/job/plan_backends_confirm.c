/*
 * Backends, confirmed: pairs of fresh gangs, one that moves the bytes itself beside NCCL left
 * alone, the published table and what was found, blocks in ABBA order. A row of a backend stands
 * where it is faster than the fastest of them and at none of its check points slower than any.
 */
#include "tuner/job/plan_i.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BACKEND_CHECKS = 1024, MAX_REDO = 4, OPENING_MS = 15000 };

static const enum nt_arm rivals[] = {NT_ARM_DEFAULT, NT_ARM_AS_FOUND, NT_ARM_TABLE};
enum { RIVALS = sizeof(rivals) / sizeof(rivals[0]) };

/* ------------------------------------------------------------------ check points */

static bool table_serves(const struct nt_plan *p, const struct nt_case *cs)
{
    for (size_t i = 0; i < p->result.nrows; i++) {
        const struct nt_row_result *r = &p->result.rows[i];
        if (r->coll == cs->coll && cs->bytes >= r->min_bytes && cs->bytes <= r->max_bytes) {
            return true;
        }
    }
    return false;
}

static void add_check(struct nt_plan *p, enum check kind, uint32_t point, enum nt_mode m,
                      uint64_t bytes)
{
    struct backends *b = &p->backends;
    struct backend_check *c;

    if (b->nchecks == MAX_BACKEND_CHECKS) {
        plan_not_checked(p, "backends: more than %d check points", MAX_BACKEND_CHECKS);
        return;
    }
    c = &b->checks[b->nchecks++];
    *c = (struct backend_check){.cs = plan_case(p, point, m),
                                .kind = kind,
                                .point = point,
                                .arm = b->cells[point].pick[m],
                                .flags = kind == CHECK_BUSY ? NT_M_BUSY : 0};
    c->est_ns = plan_default_ns(p, point, m) * (double)bytes / (double)c->cs.bytes;
    c->cs.bytes = bytes;
    c->table = table_serves(p, &c->cs);
    b->with_table = b->with_table || c->table;
    for (int a = 0; a < NT_ARM_COUNT; a++) {
        for (int i = 0; i < MAX_PAIRS; i++) {
            c->x[a][i] = NAN;
        }
    }
}

/* The share of a ladder size: to the middle between it and its neighbours, never beyond the ladder.
 */
static void share(const struct nt_plan *p, uint32_t point, uint64_t *ret_lo, uint64_t *ret_hi)
{
    const struct point *pt = &p->points[point];
    bool first = point == 0 || pt[-1].coll != pt->coll;
    bool last = point + 1 == p->npoints || pt[1].coll != pt->coll;
    *ret_lo = first ? pt->bytes : nt_compose_midpoint(pt[-1].bytes, pt->bytes) + 1;
    *ret_hi = last ? pt->bytes : nt_compose_midpoint(pt->bytes, pt[1].bytes);
}

static void add_checks(struct nt_plan *p, uint32_t point, enum nt_mode m)
{
    uint64_t grain = UINT64_C(4) * p->spec.ranks, lo, hi, at = p->points[point].bytes;

    add_check(p, CHECK_CLASS, point, m, at);
    if (!p->spec.extra_guards) {
        return;
    }
    share(p, point, &lo, &hi);
    lo = (lo + grain - 1) / grain * grain;
    hi = hi / grain * grain;
    if (lo < at) {
        add_check(p, CHECK_EDGE, point, m, lo);
    }
    if (hi > at) {
        add_check(p, CHECK_EDGE, point, m, hi);
        if (at + 3 * grain < hi) {
            add_check(p, CHECK_OFF, point, m, at + 3 * grain);
        }
    }
    if (!p->spec.no_overlap) {
        add_check(p, CHECK_BUSY, point, m, at);
    }
}

/* What the blocks of a check take in one pair; those of backends are looked at before and after. */
static double check_ns(const struct nt_plan *p, const struct backend_check *c)
{
    const struct backends *b = &p->backends;
    enum nt_mode m = (enum nt_mode)c->cs.mode;
    double block = c->est_ns * plan_inner(m, c->est_ns) * (plan_samples(m, c->est_ns) + 1);
    double beside[2];

    for (int i = 0; i < 2; i++) {
        beside[i] = b->nblocks[i] > 0 ? b->beside_ns[i] / b->nblocks[i] : 1e6;
    }
    return confirm_blocks(c->kind, m, c->est_ns) *
           ((2 + c->table) * (block + confirm_beside_ns(c->kind)) + (1 + c->table) * beside[0] +
            beside[1]);
}

/* A pair by guess. */
static double pair_ns(const struct nt_plan *p)
{
    const struct backends *b = &p->backends;
    double pair = (double)p->start_ns * 2;
    for (size_t i = 0; i < b->nchecks; i++) {
        pair += check_ns(p, &b->checks[i]);
    }
    return pair;
}

/* What is left to do; how far the guess is off, the pairs so far tell. */
static double cost_ns(const struct nt_plan *p)
{
    const struct backends *b = &p->backends;
    double off = b->guessed_ns > 0 ? (double)(plan_used_ns(p) - b->begun_ns) / b->guessed_ns : 1;

    return off * pair_ns(p) * (p->spec.pairs - b->pair);
}

double backends_pairs_ns(const struct nt_plan *p)
{
    enum { CHECKS = 5 }; /* inside, edges, an odd size, beside compute */
    double pair = (double)p->start_ns * 2;

    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes && p->backends.cells[i].narms > 1; k++) {
            struct backend_check c = {.cs = plan_case(p, i, p->modes[k]),
                                      .kind = CHECK_CLASS,
                                      .est_ns = plan_default_ns(p, i, p->modes[k])};
            pair += (p->spec.extra_guards ? CHECKS : 1) * check_ns(p, &c);
        }
    }
    return pair * p->spec.pairs;
}

static bool is_of(const struct backend_check *c, const struct backend_check *of)
{
    return c->point == of->point && c->cs.mode == of->cs.mode;
}

/* By how much a class is expected to be faster, by the time that proving it takes. */
static double worth_of(const struct nt_plan *p, const struct backend_check *class)
{
    const struct backends *b = &p->backends;
    double ahead = nt_race_behind(b->cells[class->point].race[class->cs.mode], 0), ns = 1;
    for (size_t i = 0; i < b->nchecks; i++) {
        ns += is_of(&b->checks[i], class) ? check_ns(p, &b->checks[i]) : 0;
    }
    return fmax(ahead, 0) / ns;
}

/* Takes out the class that is worth least, with all its checks. */
static void drop_least(struct nt_plan *p)
{
    struct backends *b = &p->backends;
    struct backend_check least = {.point = NONE};
    double worth = INFINITY;
    size_t kept = 0;

    for (size_t i = 0; i < b->nchecks; i++) {
        if (b->checks[i].kind == CHECK_CLASS && worth_of(p, &b->checks[i]) < worth) {
            worth = worth_of(p, &b->checks[i]);
            least = b->checks[i];
        }
    }
    for (size_t i = 0; i < b->nchecks; i++) {
        if (!is_of(&b->checks[i], &least)) {
            b->checks[kept++] = b->checks[i];
        } else {
            free(b->checks[i].norm[0]);
            free(b->checks[i].norm[1]);
        }
    }
    b->nchecks = kept;
    b->dropped++;
    if (least.point != NONE) {
        b->cells[least.point].pick[least.cs.mode] = 0;
        b->cells[least.point].no_time[least.cs.mode] = true;
    }
}

/* What there is no time for stays with NCCL. */
static void fit_budget(struct nt_plan *p)
{
    struct backends *b = &p->backends;

    while (b->nchecks > 0 && p->spec.budget_ns > 0 &&
           (double)plan_used_ns(p) + cost_ns(p) > (double)p->spec.budget_ns) {
        drop_least(p);
    }
    b->with_table = false;
    for (size_t i = 0; i < b->nchecks; i++) {
        b->with_table = b->with_table || b->checks[i].table;
    }
}

static void note_dropped(struct nt_plan *p)
{
    if (p->backends.dropped > 0) {
        plan_not_checked(p,
                         "backends: %u sizes and modes with a faster one were not confirmed: no "
                         "time within the budget",
                         p->backends.dropped);
    }
}

bool backends_set_up_pairs(struct nt_plan *p)
{
    struct backends *b = &p->backends;

    b->checks = calloc(MAX_BACKEND_CHECKS, sizeof(b->checks[0]));
    if (b->checks == NULL) {
        (void)nt_fail(&p->failed, NT_E_NOMEM, 0, "check points");
        return false;
    }
    for (uint32_t i = 0; i < p->npoints; i++) {
        for (uint32_t k = 0; k < p->nmodes; k++) {
            if (b->cells[i].pick[p->modes[k]] > 0) {
                add_checks(p, i, p->modes[k]);
            }
        }
    }
    fit_budget(p);
    if (b->nchecks == 0) {
        note_dropped(p);
    }
    return b->nchecks > 0;
}

/* ------------------------------------------------------------------ pairs */

/* Types and placements in turn, as far as the pick serves them. */
static void rotate(const struct nt_plan *p, uint32_t index, struct nt_case *cs)
{
    const struct backend_check *c = &p->backends.checks[index];
    const struct backend_arm *a = &p->backends.cells[c->point].arms[c->arm];
    uint8_t combos[NT_DTYPE_COUNT * NT_PLACE_COUNT][2];
    uint32_t n = 0, at;

    for (int d = 0; d < NT_DTYPE_COUNT; d++) {
        for (int place = 0; place < NT_PLACE_COUNT; place++) {
            if (a->right[cs->mode][d][place]) {
                combos[n][0] = (uint8_t)d;
                combos[n++][1] = (uint8_t)place;
            }
        }
    }
    if (n > 0 && c->kind != CHECK_BUSY) {
        at = (p->backends.pair + index) % n;
        cs->dtype = combos[at][0];
        cs->place = combos[at][1];
    }
}

static void push_check(struct nt_plan *p, uint32_t index, size_t live, uint32_t rep)
{
    const struct backend_check *c = &p->backends.checks[index];
    enum nt_arm arm = p->live[live].arm;
    struct nt_case cs = c->cs;
    struct nt_call call = NT_CALL_DEFAULT;
    struct todo *t;

    if ((arm == NT_ARM_TABLE && !c->table) || c->broken) {
        return;
    }
    if (arm == NT_ARM_BACKENDS) {
        call = p->backends.cells[c->point].arms[c->arm].call;
    }
    rotate(p, index, &cs);
    t = plan_measure(p, live, FOR_BACKEND_CHECK, &cs, call, c->est_ns,
                     plan_samples((enum nt_mode)cs.mode, c->est_ns));
    t->index = index;
    t->arm = arm;
    t->rep = rep;
    t->step.m.flags = c->flags;
    if (arm == NT_ARM_BACKENDS) { /* right in all pairs, before and after */
        t->step.m.verify = NT_VERIFY_BOTH;
        t->step.m.deadline_ms += OPENING_MS;
        t->step.m.flags |= rep == 0 && p->backends.pair == 0 ? NT_M_READBACK : 0;
    }
}

static uint32_t check_blocks(const struct nt_plan *p, uint32_t index)
{
    const struct backend_check *c = &p->backends.checks[index];

    return confirm_blocks(c->kind, (enum nt_mode)c->cs.mode, c->est_ns);
}

static bool start_pair(struct nt_plan *p)
{
    struct backends *b = &p->backends;
    enum nt_arm arms[NT_PLAN_GANGS];
    size_t n = 0;

    arms[n++] = NT_ARM_DEFAULT;
    arms[n++] = NT_ARM_BACKENDS;
    if (b->with_table) {
        arms[n++] = NT_ARM_TABLE;
    }
    if (p->spec.as_found[0] != '\0') {
        arms[n++] = NT_ARM_AS_FOUND;
    }
    confirm_start_pair(p, arms, n, (uint32_t)b->nchecks, check_blocks, push_check);
    return true;
}

/* Samples over a constant of the class: what the tail is judged on. */
static void keep_tail(struct nt_plan *p, struct backend_check *c, int side,
                      const struct nt_result *r)
{
    float *grown = realloc(c->norm[side], (c->nnorm[side] + r->count) * sizeof(float));

    if (grown == NULL) {
        (void)nt_fail(&p->failed, NT_E_NOMEM, 0, "samples");
        return;
    }
    c->norm[side] = grown;
    for (size_t i = 0; i < r->count; i++) {
        grown[c->nnorm[side]++] = (float)(r->ns[i] / c->est_ns);
    }
}

void backend_check_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    struct backend_check *c = &p->backends.checks[t->index];
    const struct nt_result *r = o->result;
    double x = plan_log_median(r), *at = &c->x[t->arm][p->backends.pair];
    unsigned n;

    if (isnan(x)) {
        if (t->arm == NT_ARM_BACKENDS && r->status != NT_ST_NOT_RECORDED) {
            c->broken = true;
            c->refused = r->status == NT_ST_UNAVAILABLE;
            if (r->status != NT_ST_UNAVAILABLE && r->status != NT_ST_TOO_SLOW) {
                const struct backend_arm *a = &p->backends.cells[c->point].arms[c->arm];
                backends_ban(p, &a->call, r);
            }
        }
        return;
    }
    n = ++c->blocks[t->arm][p->backends.pair];
    *at = n == 1 ? x : *at + (x - *at) / n;
    if (c->kind == CHECK_CLASS && (t->arm == NT_ARM_DEFAULT || t->arm == NT_ARM_BACKENDS)) {
        keep_tail(p, c, t->arm == NT_ARM_BACKENDS, r);
    }
}

/* ------------------------------------------------------------------ verdicts */

static bool is_rival(const struct nt_plan *p, const struct backend_check *c, enum nt_arm arm)
{
    return arm == NT_ARM_DEFAULT || (arm == NT_ARM_TABLE && c->table) ||
           (arm == NT_ARM_AS_FOUND && p->spec.as_found[0] != '\0');
}

static enum nt_arm fastest_rival(const struct nt_plan *p, const struct backend_check *c)
{
    enum nt_arm best = NT_ARM_DEFAULT;
    for (size_t i = 1; i < RIVALS; i++) {
        if (is_rival(p, c, rivals[i]) && nt_estimate(c->x[rivals[i]], p->spec.pairs, 0.95).mean <
                                             nt_estimate(c->x[best], p->spec.pairs, 0.95).mean) {
            best = rivals[i];
        }
    }
    return best;
}

/* Worst one-sided 95 % upper bound of log(backend / rival); INFINITY when it cannot be told. */
static double guard_bound(const struct nt_plan *p, const struct backend_check *c)
{
    const struct backend_arm *a = &p->backends.cells[c->point].arms[c->arm];
    double worst = -INFINITY;

    if (c->broken || a->status != NT_ST_OK) {
        return INFINITY;
    }
    for (size_t i = 0; i < RIVALS; i++) {
        if (is_rival(p, c, rivals[i])) {
            struct nt_est e =
                nt_estimate_pairs(c->x[NT_ARM_BACKENDS], c->x[rivals[i]], p->spec.pairs, 0.95);
            worst = e.n < 2 ? INFINITY : fmax(worst, e.upper);
        }
    }
    return worst;
}

static bool holds(const struct nt_plan *p, const struct backend_check *c)
{
    return guard_bound(p, c) < log(p->spec.guard);
}

static void judge_class(const struct nt_plan *p, const struct backend_check *c, double *x,
                        struct nt_backend_class *out)
{
    const struct backend_arm *a = &p->backends.cells[c->point].arms[c->arm];
    enum nt_arm rival = fastest_rival(p, c);
    struct nt_est e = nt_estimate_pairs(c->x[rival], c->x[NT_ARM_BACKENDS], p->spec.pairs, 0.95);

    for (uint32_t j = 0; j < p->spec.pairs; j++) {
        x[j] = c->broken || a->status != NT_ST_OK
                   ? NAN
                   : c->x[rival][j] - c->x[NT_ARM_BACKENDS][j] - log(p->spec.margin);
    }
    *out = (struct nt_backend_class){
        .cs = c->cs,
        .call = a->call,
        .executed = a->executed,
        .bits = a->bits[c->cs.mode],
        .rival = rival,
        .default_ns = exp(nt_estimate(c->x[NT_ARM_DEFAULT], p->spec.pairs, 0.95).mean),
        .rival_ns = exp(nt_estimate(c->x[rival], p->spec.pairs, 0.95).mean),
        .ns = exp(nt_estimate(c->x[NT_ARM_BACKENDS], p->spec.pairs, 0.95).mean),
        .gain = e.mean,
        .lo = e.lo,
        .hi = e.hi,
        .guard_upper = exp(guard_bound(p, c)),
        .p95_ratio = NAN,
        .pairs = (unsigned)e.n};
}

/* All classes of all backends as one family. */
static bool judge_classes(struct nt_plan *p)
{
    struct backends *b = &p->backends;
    size_t n = 0;
    double *x = calloc(b->nchecks * p->spec.pairs + 1, sizeof(*x));
    double *adjusted = calloc(b->nchecks + 1, sizeof(*adjusted));
    struct nt_backend_class *out = calloc(b->nchecks + 1, sizeof(*out));
    bool ok = x != NULL && adjusted != NULL && out != NULL;

    for (size_t i = 0; ok && i < b->nchecks; i++) {
        if (b->checks[i].kind == CHECK_CLASS) {
            judge_class(p, &b->checks[i], &x[n * p->spec.pairs], &out[n]);
            n++;
        }
    }
    ok = ok && n > 0 && nt_maxt(x, n, p->spec.pairs, p->spec.seed, adjusted, &p->failed) == 0;
    for (size_t i = 0; ok && i < n; i++) {
        out[i].p = adjusted[i];
    }
    if (ok) {
        p->result.backend_classes = out;
        p->result.nbackend_classes = n;
        out = NULL;
    } else if (p->failed.code == NT_OK && n > 0) {
        (void)nt_fail(&p->failed, NT_E_NOMEM, 0, "classes of backends");
    }
    free(x);
    free(adjusted);
    free(out);
    return ok;
}

/* What the checks of one size and mode say: whether it stands, and how far its row may reach. */
struct standing {
    bool inside, lo, hi;
    const char *why;
};

static struct standing look_at(const struct nt_plan *p, uint32_t point, enum nt_mode m)
{
    static const char *const words[CHECK_COUNT] = {[CHECK_CLASS] = "the size itself",
                                                   [CHECK_OFF] = "odd size",
                                                   [CHECK_BUSY] = "beside compute"};
    struct standing s = {true, true, true, ""};

    for (size_t i = 0; i < p->backends.nchecks; i++) {
        const struct backend_check *c = &p->backends.checks[i];
        if (c->point != point || c->cs.mode != m || holds(p, c)) {
            continue;
        }
        /* What refuses a size beyond the class, be it the odd one, has a row that ends before. */
        if ((c->kind == CHECK_EDGE && !c->broken) ||
            (c->refused && c->cs.bytes != p->points[point].bytes)) {
            bool *edge = c->cs.bytes < p->points[point].bytes ? &s.lo : &s.hi;
            *edge = false;
        } else {
            s.inside = false;
            s.why = c->broken || words[c->kind] == NULL ? "wrong or refused" : words[c->kind];
        }
    }
    return s;
}

static struct nt_backend_class *class_at(struct nt_plan *p, uint32_t point, enum nt_mode m)
{
    for (size_t i = 0; i < p->result.nbackend_classes; i++) {
        struct nt_backend_class *c = &p->result.backend_classes[i];
        if (c->cs.coll == p->points[point].coll && c->cs.bytes == p->points[point].bytes &&
            c->cs.mode == m) {
            return c;
        }
    }
    return NULL;
}

/* Neighbours that choose the same, in the same types and placements, share a row where the edge
 * between them holds. */
static void add_row(struct nt_plan *p, uint32_t point, enum nt_mode m, const struct standing *s,
                    struct nt_backend_row **open)
{
    struct backends *b = &p->backends;
    const struct backend_arm *a = &b->cells[point].arms[b->cells[point].pick[m]];
    struct nt_plan_result *r = &p->result;
    uint64_t lo, hi;

    share(p, point, &lo, &hi);
    if (*open == NULL || !s->lo || (*open)->coll != p->points[point].coll ||
        !nt_call_equal(&(*open)->call, &a->call) ||
        memcmp((*open)->combos, a->right[m], sizeof(a->right[m])) != 0) {
        if (r->nbackend_rows == NT_MAX_BACKEND_ROWS) {
            *open = NULL;
            return;
        }
        *open = &r->backend_rows[r->nbackend_rows++];
        **open = (struct nt_backend_row){.coll = p->points[point].coll,
                                         .mode = (uint8_t)m,
                                         .min_bytes = s->lo ? lo : p->points[point].bytes,
                                         .call = a->call,
                                         .executed = a->executed,
                                         .pairs = p->spec.pairs};
        memcpy((*open)->combos, a->right[m], sizeof(a->right[m]));
    }
    (*open)->max_bytes = s->hi ? hi : p->points[point].bytes;
    (*open)->bits = a->bits[m] > (*open)->bits ? a->bits[m] : (*open)->bits;
    if (!s->hi) {
        *open = NULL;
    }
}

static bool in_row(const struct nt_backend_row *r, const struct nt_case *cs)
{
    return cs->coll == r->coll && cs->mode == r->mode && cs->bytes >= r->min_bytes &&
           cs->bytes <= r->max_bytes;
}

/* The slowest calls of all classes of a row together; NAN: too few to tell. */
static double tail_of(const struct nt_plan *p, const struct nt_backend_row *r)
{
    float *all[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    double ratio = NAN;

    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < p->backends.nchecks; i++) {
            const struct backend_check *c = &p->backends.checks[i];
            size_t more = c->kind == CHECK_CLASS && in_row(r, &c->cs) ? c->nnorm[side] : 0;
            float *grown = more > 0 ? realloc(all[side], (n[side] + more) * sizeof(float)) : NULL;
            if (grown != NULL) {
                memcpy(grown + n[side], c->norm[side], more * sizeof(float));
                all[side] = grown;
                n[side] += more;
            }
        }
    }
    ratio = publish_tail(all[0], n[0], all[1], n[1]);
    free(all[0]);
    free(all[1]);
    return ratio;
}

static void judge_tails(struct nt_plan *p)
{
    struct nt_plan_result *r = &p->result;
    size_t kept = 0;

    for (size_t i = 0; i < r->nbackend_rows; i++) {
        double ratio = tail_of(p, &r->backend_rows[i]);
        bool out = !isnan(ratio) && !(ratio < publish_tail_limit);
        for (size_t k = 0; k < r->nbackend_classes; k++) {
            struct nt_backend_class *c = &r->backend_classes[k];
            if (!in_row(&r->backend_rows[i], &c->cs)) {
                continue;
            }
            c->p95_ratio = ratio;
            if (out) {
                c->published = false;
                (void)snprintf(c->why, sizeof(c->why),
                               "not within the guard: its slowest calls (p95) are %.0f %% slower",
                               100 * (ratio - 1));
            }
        }
        if (!out) {
            r->backend_rows[kept++] = r->backend_rows[i];
        }
    }
    r->nbackend_rows = kept;
}

static void publish(struct nt_plan *p)
{
    if (!judge_classes(p)) {
        return;
    }
    for (uint32_t k = 0; k < p->nmodes; k++) {
        enum nt_mode m = p->modes[k];
        struct nt_backend_row *open = NULL;
        for (uint32_t i = 0; i < p->npoints; i++) {
            struct nt_backend_class *c = class_at(p, i, m);
            struct standing s = look_at(p, i, m);
            if (c == NULL) {
                open = NULL;
                continue;
            }
            c->published = s.inside && c->p <= p->spec.alpha;
            c->unproved = s.inside && !c->published;
            if (!c->published) {
                (void)snprintf(c->why, sizeof(c->why), "%s%s",
                               s.inside ? "" : "not within the guard: ",
                               s.inside ? "a gain could not be proved" : s.why);
                open = NULL;
                continue;
            }
            add_row(p, i, m, &s, &open);
        }
    }
    judge_tails(p);
}

/* The best of those that NCCL was raced against; NCCL itself: there was none. */
static uint32_t runner_up(const struct backend_cell *c, enum nt_mode m, struct nt_standing *ret)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < c->narms; i++) {
        struct nt_standing s = nt_race_standing(c->race[m], i);
        if (c->arms[i].status == NT_ST_OK && s.state != NT_ARM_FAILED && isfinite(s.log_ratio) &&
            (best == 0 || s.log_ratio < ret->log_ratio)) {
            best = i;
            *ret = s;
        }
    }
    return best;
}

static void keep(struct nt_plan *p, uint32_t point, enum nt_mode m, struct nt_backend_class *out)
{
    const struct backend_cell *c = &p->backends.cells[point];
    struct nt_race_verdict v = nt_race_verdict(c->race[m]);
    struct nt_standing s = {0};
    const struct backend_arm *a = &c->arms[runner_up(c, m, &s)];
    double ns = plan_default_ns(p, point, m);
    bool told = v.end == NT_RACE_SEPARATED || v.end == NT_RACE_TIED ||
                (v.end == NT_RACE_LIMIT && v.loss <= log(p->spec.margin));

    *out = (struct nt_backend_class){.cs = plan_case(p, point, m),
                                     .call = a->call,
                                     .executed = a->executed,
                                     .bits = a->bits[m],
                                     .rival = NT_ARM_DEFAULT,
                                     .default_ns = ns,
                                     .rival_ns = ns,
                                     .ns = ns * exp(s.log_ratio),
                                     .gain = -s.log_ratio,
                                     .lo = -s.log_ratio - 1.96 * s.se,
                                     .hi = -s.log_ratio + 1.96 * s.se,
                                     .p = NAN,
                                     .guard_upper = NAN,
                                     .p95_ratio = NAN,
                                     .kept = told && !c->no_time[m],
                                     .unproved = !told || c->no_time[m]};
    (void)snprintf(out->why, sizeof(out->why), "%s",
                   c->no_time[m]     ? "no time to confirm it within the budget"
                   : !told           ? "which is faster could not be told in the race"
                   : s.log_ratio > 0 ? "NCCL as it is was faster in the race"
                                     : "no faster than NCCL as it is, as far as the race can tell");
}

const struct nt_found *nt_plan_found_backends(const struct nt_plan *plan, size_t i)
{
    struct nt_plan *p = (struct nt_plan *)plan; /* fills the one answer that it keeps */
    uint32_t point = (uint32_t)(i / (p->nmodes > 0 ? p->nmodes : 1));
    enum nt_mode m = p->modes[i % (p->nmodes > 0 ? p->nmodes : 1)];
    const struct backend_cell *c = p->backends.cells;

    if (c == NULL || point >= p->npoints) {
        return NULL;
    }
    c += point;
    p->found = (struct nt_found){.cs = plan_case(p, point, m),
                                 .vars = "",
                                 .arms = p->found_arms,
                                 .pick = c->pick[m],
                                 .default_ns = plan_default_ns(p, point, m)};
    for (uint32_t a = 0; c->explored && a < c->narms; a++) {
        struct nt_standing s = nt_race_standing(c->race[m], a);
        p->found_arms[a] = (struct nt_found_arm){.call = c->arms[a].call,
                                                 .executed = c->arms[a].executed,
                                                 .log_ratio = s.log_ratio,
                                                 .se = s.se,
                                                 .status = c->arms[a].status,
                                                 .dropped = s.state == NT_ARM_DROPPED,
                                                 .blocks = s.blocks,
                                                 .gangs = s.gangs};
        p->found.narms++;
    }
    return &p->found;
}

void backends_keep(struct nt_plan *p)
{
    struct nt_plan_result *r = &p->result;
    size_t most = r->nbackend_classes + p->npoints * p->nmodes;
    struct nt_backend_class *grown = realloc(r->backend_classes, (most + 1) * sizeof(*grown));

    if (grown == NULL) {
        (void)nt_fail(&p->failed, NT_E_NOMEM, 0, "classes of backends");
        return;
    }
    r->backend_classes = grown;
    for (uint32_t i = 0; i < p->npoints; i++) {
        const struct backend_cell *c = &p->backends.cells[i];
        for (uint32_t k = 0; k < p->nmodes && c->explored && c->narms > 1; k++) {
            enum nt_mode m = p->modes[k];
            struct nt_standing s;
            if (c->pick[m] == 0 && class_at(p, i, m) == NULL && runner_up(c, m, &s) > 0) {
                keep(p, i, m, &r->backend_classes[r->nbackend_classes++]);
            }
        }
    }
}

static void clear_pair(struct nt_plan *p)
{
    for (size_t i = 0; i < p->backends.nchecks; i++) {
        for (int a = 0; a < NT_ARM_COUNT; a++) {
            p->backends.checks[i].x[a][p->backends.pair] = NAN;
            p->backends.checks[i].blocks[a][p->backends.pair] = 0;
        }
    }
}

/* A check of a pick that was ruled out meanwhile is not asked again. */
static bool any_left(struct nt_plan *p)
{
    bool any = false;
    for (size_t i = 0; i < p->backends.nchecks; i++) {
        struct backend_check *c = &p->backends.checks[i];
        c->broken = c->broken || p->backends.cells[c->point].arms[c->arm].status != NT_ST_OK;
        any = any || !c->broken;
    }
    return any;
}

bool backends_next_pair(struct nt_plan *p)
{
    struct backends *b = &p->backends;

    if (!b->started) {
        b->started = true;
        plan_stop(p); /* the gate's gang */
        b->begun_ns = plan_used_ns(p);
    } else if (p->nlive > 0) {
        plan_stop(p);
        b->guessed_ns += pair_ns(p);
        b->pair++;
        fit_budget(p);
    } else {
        clear_pair(p);
        if (++b->redo > MAX_REDO) {
            plan_not_checked(p, "backends: %u pairs were lost", b->redo);
            return false;
        }
    }
    if (!any_left(p) || b->pair == p->spec.pairs) {
        note_dropped(p);
        publish(p);
        return false;
    }
    return start_pair(p);
}
