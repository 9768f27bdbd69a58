/* Publish: what the pairs say about every class, row and product. */
#include "tuner/base/text.h"
#include "tuner/job/plan_i.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char unproved[] = "a gain could not be proved";
const double publish_tail_limit = 1.05; /* p95 of tuned over default, pooled per row */
enum { TAIL_LEAST = 200 };              /* iterations an arm, before the tail is judged */

/* The faster of the baselines for a check point, by its mean. */
static enum nt_arm faster_baseline(const struct nt_plan *p, const struct check_point *c)
{
    double d = nt_estimate(c->x[NT_ARM_DEFAULT], p->spec.pairs, 0.95).mean;
    double a = nt_estimate(c->x[NT_ARM_AS_FOUND], p->spec.pairs, 0.95).mean;
    return p->spec.as_found[0] != '\0' && a < d ? NT_ARM_AS_FOUND : NT_ARM_DEFAULT;
}

/* Pairs that a point has, and how sure of it a second look must be. */
static uint32_t pairs_of(const struct nt_plan *p, const struct check_point *c)
{
    return p->spec.pairs + (c->longer ? p->confirm.further : 0);
}

static double sure_of(const struct check_point *c)
{
    return c->longer ? 0.975 : 0.95;
}

/* log(arm / baseline), worst of the baselines: its mean, and the one-sided upper bound, which is
 * INFINITY when it cannot be told. */
static double guard_bound_of(const struct nt_plan *p, const struct check_point *c, enum nt_arm arm,
                             double *ret_mean)
{
    static const enum nt_arm baselines[] = {NT_ARM_DEFAULT, NT_ARM_AS_FOUND};
    double worst = -INFINITY;

    *ret_mean = -INFINITY;
    if (c->broken[arm]) {
        *ret_mean = INFINITY;
        return INFINITY;
    }
    for (size_t i = 0; i < 2; i++) {
        struct nt_est e;
        if (baselines[i] == NT_ARM_AS_FOUND && p->spec.as_found[0] == '\0') {
            continue;
        }
        e = nt_estimate_pairs(c->x[arm], c->x[baselines[i]], pairs_of(p, c), sure_of(c));
        if (e.n < 2) {
            *ret_mean = INFINITY;
            return INFINITY;
        }
        worst = fmax(worst, e.upper);
        *ret_mean = fmax(*ret_mean, e.mean);
    }
    return worst;
}

static double guard_bound(const struct nt_plan *p, const struct check_point *c, enum nt_arm arm)
{
    double mean;
    return guard_bound_of(p, c, arm, &mean);
}

/* Seen to be slower than the default by more than the guard allows, whatever ran, and beyond doubt:
 * a product has some hundred such points. */
static bool shown_slower(const struct nt_plan *p, const struct check_point *c, enum nt_arm arm)
{
    struct nt_est e = nt_estimate_pairs(c->x[arm], c->x[NT_ARM_DEFAULT], pairs_of(p, c), 0.999);

    return e.n >= 2 && e.mean > log(p->spec.guard) && e.lo > 0;
}

static bool guard_holds(const struct nt_plan *p, const struct check_point *c, enum nt_arm arm)
{
    return (c->not_recorded && c->kind != CHECK_CLASS) ||
           (confirm_same_work(p, c, arm) && !shown_slower(p, c, arm)) ||
           guard_bound(p, c, arm) < log(p->spec.guard);
}

static const char *check_name(enum check k)
{
    static const char *const names[CHECK_COUNT] = {[CHECK_CLASS] = "the size itself",
                                                   [CHECK_VARIANT] = "other type or placement",
                                                   [CHECK_EDGE] = "edge",
                                                   [CHECK_OFF] = "odd size",
                                                   [CHECK_BUSY] = "beside compute",
                                                   [CHECK_GROUP] = "group of 8",
                                                   [CHECK_OTHER] = "untuned collective"};
    return names[k];
}

/* Judges the classes of all products as one family. */
static void judge_classes(struct nt_plan *p)
{
    static const enum nt_arm products[] = {NT_ARM_TABLE, NT_ARM_STATIC};
    struct confirm *cf = &p->confirm;
    size_t n = 0, most = cf->npoints * 2;
    double *x = calloc(most * p->spec.pairs + 1, sizeof(*x)),
           *adjusted = calloc(most + 1, sizeof(*adjusted));
    size_t before = p->result.nclasses; /* of a product that an earlier round has judged */
    struct nt_class_result *out = calloc(most + before + 1, sizeof(*out));

    if (x == NULL || adjusted == NULL || out == NULL) {
        (void)nt_fail(&p->failed, NT_E_NOMEM, 0, "classes");
        goto out;
    }
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < cf->npoints; i++) {
            const struct check_point *c = &cf->points[i];
            enum nt_arm base = faster_baseline(p, c), arm = products[k];
            struct nt_est e;
            if (c->kind != CHECK_CLASS || !c->arms[arm]) {
                continue;
            }
            for (uint32_t j = 0; j < p->spec.pairs; j++) {
                x[n * p->spec.pairs + j] =
                    c->broken[arm] ? NAN : c->x[base][j] - c->x[arm][j] - log(p->spec.margin);
            }
            e = nt_estimate_pairs(c->x[base], c->x[arm], p->spec.pairs, 0.95);
            out[n++] = (struct nt_class_result){
                .cs = c->cs,
                .product = arm,
                .call = arm == NT_ARM_TABLE ? c->call : NT_CALL_DEFAULT,
                .in_row = arm == NT_ARM_TABLE && c->row != NONE,
                .default_ns = exp(nt_estimate(c->x[NT_ARM_DEFAULT], p->spec.pairs, 0.95).mean),
                .as_found_ns =
                    p->spec.as_found[0] == '\0'
                        ? NAN
                        : exp(nt_estimate(c->x[NT_ARM_AS_FOUND], p->spec.pairs, 0.95).mean),
                .tuned_ns = exp(nt_estimate(c->x[arm], p->spec.pairs, 0.95).mean),
                .gain = e.mean,
                .lo = e.lo,
                .hi = e.hi,
                .guard_upper = exp(guard_bound(p, c, arm)),
                .p95_ratio = NAN,
                .pairs = (unsigned)e.n};
        }
    }
    if (n > 0 && nt_maxt(x, n, p->spec.pairs, p->spec.seed, adjusted, &p->failed) == 0) {
        for (size_t i = 0; i < n; i++) {
            out[i].p = adjusted[i];
        }
        for (size_t i = 0; i < before; i++) {
            out[n + i] = p->result.classes[i];
        }
        free(p->result.classes);
        p->result.classes = out;
        p->result.nclasses = n + before;
        out = NULL;
    }
out:
    free(x);
    free(adjusted);
    free(out);
}

static struct nt_class_result *class_of(struct nt_plan *p, enum nt_arm product,
                                        const struct nt_case *cs)
{
    for (size_t i = 0; i < p->result.nclasses; i++) {
        struct nt_class_result *c = &p->result.classes[i];
        if (c->product == product && c->cs.coll == cs->coll && c->cs.bytes == cs->bytes &&
            c->cs.mode == cs->mode) {
            return c;
        }
    }
    return NULL;
}

static double quantile95(const float *x, size_t n)
{
    double *d = malloc((n + 1) * sizeof(*d));
    double q = NAN;

    if (d != NULL && n > 0) {
        for (size_t i = 0; i < n; i++) {
            d[i] = (double)x[i];
        }
        q = nt_quantile(d, n, 0.95);
    }
    free(d);
    return q;
}

double publish_tail(const float *def, size_t ndef, const float *tuned, size_t ntuned)
{
    return ndef < TAIL_LEAST || ntuned < TAIL_LEAST
               ? NAN
               : quantile95(tuned, ntuned) / quantile95(def, ndef);
}

/* Is the tail slower pair for pair, too? That of all gangs together hangs on the one or two
 * noisiest of them: between calls that run the same it was seen to differ by 9 % either way. */
static bool tail_is_slower(const struct nt_plan *p, const struct row *r)
{
    double x[MAX_PAIRS], none[MAX_PAIRS] = {0};
    size_t from[2] = {0, 0};

    for (uint32_t j = 0; j < p->spec.pairs; j++) {
        double tail[2];
        for (int side = 0; side < 2; side++) {
            size_t end = r->ends[side][j] > from[side] ? r->ends[side][j] : from[side];
            tail[side] = quantile95(r->norm[side] + from[side], end - from[side]);
            from[side] = end;
        }
        x[j] = log(tail[1] / tail[0]);
    }
    return nt_estimate_pairs(x, none, p->spec.pairs, 0.95).lo > 0;
}

static void judge_tail(struct nt_plan *p, uint32_t row)
{
    struct row *r = &p->rows[row];
    double ratio = publish_tail(r->norm[0], r->nnorm[0], r->norm[1], r->nnorm[1]);

    if (isnan(ratio)) {
        return;
    }
    for (size_t i = 0; i < p->confirm.npoints; i++) {
        const struct check_point *c = &p->confirm.points[i];
        struct nt_class_result *k =
            c->kind == CHECK_CLASS && c->row == row ? class_of(p, NT_ARM_TABLE, &c->cs) : NULL;
        if (k != NULL) {
            k->p95_ratio = ratio;
        }
    }
    if (!(ratio < publish_tail_limit) && tail_is_slower(p, r)) {
        r->out = true;
        (void)snprintf(r->why, sizeof(r->why),
                       "not within the guard: its slowest calls (p95) are %.0f %% slower",
                       100 * (ratio - 1));
    }
}

static void note_unchecked(struct nt_plan *p)
{
    for (size_t i = 0; i < p->confirm.npoints; i++) {
        const struct check_point *c = &p->confirm.points[i];
        if (c->not_recorded) {
            plan_not_checked(p, "confirm: %s", check_name(c->kind));
        }
    }
}

/* NCCL's own choice at this size is the same with and without the table's process variables. */
static bool default_unchanged(const struct nt_plan *p, const struct nt_case *cs)
{
    const struct setting *as_is = &p->settings[0], *s = &p->settings[p->table_setting];

    for (uint32_t i = 0; i < p->npoints && confirm_by_tuple(s->vars); i++) {
        if (p->points[i].coll == cs->coll && p->points[i].bytes == cs->bytes) {
            return compose_same(&s->cells[i].arms[0], &as_is->cells[i].arms[0]);
        }
    }
    return false;
}

/* What the pairs say about one ladder size of a row. */
struct part {
    bool stays; /* a gain is proved in some mode, or the row keeps the size from what the table's
                   variables make of it; and nothing at its points is slower */
    bool lo_holds,
        hi_holds; /* the row may reach down to, up to the middle between this size and the next */
};

/* What a group of calls runs, a row for one of them does not choose: NCCL asks for all of them at
 * once. Variables act on it, so with them it is a matter of the whole product. */
static bool is_of_product(const struct nt_plan *p, const struct check_point *c, enum nt_arm arm)
{
    bool vars = arm == NT_ARM_STATIC || p->settings[p->table_setting].vars[0] != '\0';

    return c->row == NONE || (c->kind == CHECK_GROUP && vars);
}

/* An odd size, compute beside and groups are looked at once for the whole row: it stands or falls
 * with them. */
static void judge_once(struct nt_plan *p, uint32_t row)
{
    for (size_t i = 0; i < p->confirm.npoints && !p->rows[row].out; i++) {
        const struct check_point *c = &p->confirm.points[i];
        if (c->row == row && confirm_once(c->kind) && !is_of_product(p, c, NT_ARM_TABLE) &&
            !guard_holds(p, c, NT_ARM_TABLE)) {
            p->rows[row].out = true;
            (void)snprintf(p->rows[row].why, sizeof(p->rows[row].why), "not within the guard: %s",
                           check_name(c->kind));
        }
    }
}

static struct part judge_size(struct nt_plan *p, uint32_t row, uint32_t point)
{
    struct part part = {.lo_holds = true, .hi_holds = true};
    bool gained = false, safe = true, keeps = false;
    const char *why = unproved;

    for (size_t i = 0; i < p->confirm.npoints; i++) {
        const struct check_point *c = &p->confirm.points[i];
        bool holds = true;
        struct nt_class_result *k;
        if (c->row != row || c->point != point || is_of_product(p, c, NT_ARM_TABLE)) {
            continue;
        }
        holds = guard_holds(p, c, NT_ARM_TABLE);
        if (c->kind == CHECK_EDGE) {
            bool *edge = c->cs.bytes < p->points[point].bytes ? &part.lo_holds : &part.hi_holds;
            *edge = *edge && holds;
        } else if (!holds) {
            safe = false;
            why = c->broken[NT_ARM_TABLE] ? "wrong, refused or not executed on the delivery path"
                                          : check_name(c->kind);
        }
        k = c->kind == CHECK_CLASS ? class_of(p, NT_ARM_TABLE, &c->cs) : NULL;
        gained = gained || (k != NULL && k->p <= p->spec.alpha);
        keeps = keeps || (k != NULL && p->table_setting != 0 && !default_unchanged(p, &c->cs));
    }
    part.stays = (gained || keeps) && safe && !p->rows[row].out;
    for (size_t i = 0; i < p->confirm.npoints; i++) {
        const struct check_point *c = &p->confirm.points[i];
        struct nt_class_result *k = c->kind == CHECK_CLASS && c->row == row && c->point == point
                                        ? class_of(p, NT_ARM_TABLE, &c->cs)
                                        : NULL;
        if (k != NULL) {
            k->published = part.stays;
            k->kept = part.stays && !gained;
            k->unproved = !part.stays && safe && !p->rows[row].out;
            (void)snprintf(k->why, sizeof(k->why), "%s%s",
                           safe || p->rows[row].out ? "" : "not within the guard: ",
                           k->published       ? ""
                           : p->rows[row].out ? p->rows[row].why
                                              : why);
        }
    }
    return part;
}

/* A row is cut down to the runs of sizes that stay, and at an edge that does not hold to the size
 * inside. */
static void publish_row(struct nt_plan *p, uint32_t row)
{
    const struct row *r = &p->rows[row];
    const uint64_t *s = p->spec.sizes;
    uint32_t base = 0;
    struct nt_row_result *open = NULL;

    while (p->points[base].coll != r->coll) {
        base++;
    }
    judge_tail(p, row);
    judge_once(p, row);
    for (uint32_t i = r->range.first; i <= r->range.last; i++) {
        struct part part = judge_size(p, row, base + i);
        uint64_t lo =
            i == r->range.first ? r->range.min_bytes : nt_compose_midpoint(s[i - 1], s[i]) + 1;
        uint64_t hi = i == r->range.last ? r->range.max_bytes : nt_compose_midpoint(s[i], s[i + 1]);
        if (!part.stays || p->result.nrows == NT_MAX_ROWS) {
            open = NULL;
            continue;
        }
        if (open == NULL || !part.lo_holds) {
            open = &p->result.rows[p->result.nrows++];
            *open = (struct nt_row_result){.coll = r->coll,
                                           .min_bytes = part.lo_holds ? lo : s[i],
                                           .call = r->call,
                                           .executed = r->executed,
                                           .pairs = p->spec.pairs};
        }
        open->max_bytes = part.hi_holds ? hi : s[i];
        open = part.hi_holds ? open : NULL;
    }
}

/* Variables of process scope reach every call: not one checked point may be slower. Names the first
 * that is. */
static bool product_is_safe(struct nt_plan *p, enum nt_arm arm, char *why, size_t size)
{
    uint64_t grown = p->result.memory_bytes[arm] > p->result.memory_bytes[NT_ARM_DEFAULT]
                         ? p->result.memory_bytes[arm] - p->result.memory_bytes[NT_ARM_DEFAULT]
                         : 0;

    if (p->spec.max_memory_bytes > 0 && grown > p->spec.max_memory_bytes) {
        (void)snprintf(why, size, "takes %llu MiB more memory on a rank",
                       (unsigned long long)(grown >> 20));
        return false;
    }
    if (arm == NT_ARM_TABLE && p->settings[p->table_setting].vars[0] == '\0') {
        return true;
    }
    for (size_t i = 0; i < p->confirm.npoints; i++) {
        const struct check_point *c = &p->confirm.points[i];
        /* What a row serves is judged with the row: it can go back to the default alone. The ends
         * of a row that keeps a call are where it may end sooner. */
        if (c->arms[arm] && is_of_product(p, c, arm) && c->kind != CHECK_EDGE &&
            !guard_holds(p, c, arm)) {
            char text[64];
            (void)snprintf(why, size, "not within the guard: %s at %s", check_name(c->kind),
                           nt_case_text(&c->cs, text, sizeof(text)));
            return false;
        }
    }
    return true;
}

static bool in_doubt(const struct nt_plan *p, const struct check_point *c, enum nt_arm arm)
{
    double mean;
    return guard_bound_of(p, c, arm, &mean) >= log(p->spec.guard) && mean < log(p->spec.guard);
}

/* Is there a class that looks faster, of a row (NONE: of any)? */
static bool promises(const struct nt_plan *p, enum nt_arm arm, uint32_t row)
{
    for (size_t i = 0; i < p->confirm.npoints; i++) {
        const struct check_point *c = &p->confirm.points[i];
        struct nt_est e;
        if (c->kind != CHECK_CLASS || !c->arms[arm] || (row != NONE && c->row != row)) {
            continue;
        }
        e = nt_estimate_pairs(c->x[faster_baseline(p, c)], c->x[arm], p->spec.pairs, 0.99);
        if (e.n >= 2 && e.lower > log(p->spec.margin)) {
            return true;
        }
    }
    return false;
}

/* Ends of rows are left out: a row that fails there ends sooner. */
static bool fails(const struct nt_plan *p, const struct check_point *c, enum nt_arm arm)
{
    return c->arms[arm] && c->kind != CHECK_EDGE && !guard_holds(p, c, arm);
}

/* Does a point fail for good that takes along the whole product, or with a row, that? */
static bool is_lost(const struct nt_plan *p, enum nt_arm arm, uint32_t row)
{
    for (size_t i = 0; i < p->confirm.npoints; i++) {
        const struct check_point *c = &p->confirm.points[i];
        if ((row == NONE || (c->row == row && confirm_once(c->kind))) && fails(p, c, arm) &&
            !in_doubt(p, c, arm)) {
            return true;
        }
    }
    return false;
}

bool publish_mark_doubts(struct nt_plan *p)
{
    const bool takes_part[NT_ARM_COUNT] = {
        [NT_ARM_TABLE] = p->confirm.table, [NT_ARM_STATIC] = p->confirm.fixed};
    bool any = false;

    for (int arm = 0; arm < NT_ARM_COUNT; arm++) {
        bool rows = arm == NT_ARM_TABLE && p->settings[p->table_setting].vars[0] == '\0';
        for (size_t i = 0; i < p->confirm.npoints && takes_part[arm]; i++) {
            struct check_point *c = &p->confirm.points[i];
            uint32_t of = rows ? c->row : NONE;
            if (fails(p, c, (enum nt_arm)arm) && in_doubt(p, c, (enum nt_arm)arm) &&
                promises(p, (enum nt_arm)arm, of) && !is_lost(p, (enum nt_arm)arm, of)) {
                c->longer = any = true;
            }
        }
    }
    return any;
}

static void publish_static(struct nt_plan *p)
{
    char why[96] = "";
    bool safe = p->confirm.fixed && product_is_safe(p, NT_ARM_STATIC, why, sizeof(why)),
         gained = false;

    /* All its classes stand in one process: those of rows included. */
    for (size_t i = 0; safe && i < p->confirm.npoints; i++) {
        const struct check_point *c = &p->confirm.points[i];
        if (c->kind == CHECK_CLASS && c->arms[NT_ARM_STATIC] && !guard_holds(p, c, NT_ARM_STATIC)) {
            char text[64];
            safe = false;
            (void)snprintf(why, sizeof(why), "not within the guard at %s",
                           nt_case_text(&c->cs, text, sizeof(text)));
        }
    }
    for (size_t i = 0; i < p->result.nclasses; i++) {
        gained = gained || (p->result.classes[i].product == NT_ARM_STATIC &&
                            p->result.classes[i].p <= p->spec.alpha);
    }
    p->result.static_present = safe && gained;
    for (size_t i = 0; i < p->result.nclasses; i++) {
        struct nt_class_result *k = &p->result.classes[i];
        if (k->product == NT_ARM_STATIC) {
            k->published = p->result.static_present;
            k->unproved = safe && !k->published;
            (void)snprintf(k->why, sizeof(k->why), "%s", k->published ? "" : safe ? unproved : why);
        }
    }
    if (p->result.static_present) {
        (void)snprintf(p->result.static_vars, NT_SETTING_LEN, "%s", p->static_vars);
    }
}

/* why NULL: no gain was proved; what has a reason of its own keeps it. */
static void withdraw_table(struct nt_plan *p, const char *why)
{
    p->result.nrows = 0;
    for (size_t i = 0; i < p->result.nclasses; i++) {
        struct nt_class_result *k = &p->result.classes[i];
        if (k->product == NT_ARM_TABLE && (why != NULL || k->published)) {
            k->published = k->kept = false;
            k->unproved = why == NULL;
            (void)snprintf(k->why, sizeof(k->why), "%s", why != NULL ? why : unproved);
        }
    }
}

/* What the pairs say of one case that a row keeps. Not one of the family: no gain is claimed. */
static void add_kept_class(struct nt_plan *p, const struct check_point *c)
{
    size_t n = p->result.nclasses;
    struct nt_class_result *grown = realloc(p->result.classes, (n + 1) * sizeof(*grown));
    enum nt_arm base = faster_baseline(p, c);
    struct nt_est e = nt_estimate_pairs(c->x[base], c->x[NT_ARM_TABLE], p->spec.pairs, 0.95);
    bool found = p->spec.as_found[0] != '\0';

    if (grown == NULL) {
        (void)nt_fail(&p->failed, NT_E_NOMEM, 0, "classes");
        return;
    }
    p->result.classes = grown;
    if (e.n < 2) { /* the same tuple as by default in another mode: nothing more was measured */
        return;
    }
    p->result.nclasses = n + 1;
    grown[n] = (struct nt_class_result){
        .cs = c->cs,
        .product = NT_ARM_TABLE,
        .call = c->call,
        .in_row = true,
        .default_ns = exp(nt_estimate(c->x[NT_ARM_DEFAULT], p->spec.pairs, 0.95).mean),
        .as_found_ns =
            found ? exp(nt_estimate(c->x[NT_ARM_AS_FOUND], p->spec.pairs, 0.95).mean) : NAN,
        .tuned_ns = exp(nt_estimate(c->x[NT_ARM_TABLE], p->spec.pairs, 0.95).mean),
        .gain = e.mean,
        .lo = e.lo,
        .hi = e.hi,
        .p = NAN,
        .guard_upper = exp(guard_bound(p, c, NT_ARM_TABLE)),
        .p95_ratio = NAN,
        .pairs = (unsigned)e.n,
        .published = true,
        .kept = true};
}

/* What the variables of a table do to the sizes that it leaves to NCCL: they are within the guard.
 */
static void publish_alone(struct nt_plan *p, const char *vars)
{
    for (size_t i = 0; vars[0] != '\0' && i < p->result.nclasses; i++) {
        struct nt_class_result *k = &p->result.classes[i];
        if (k->product == NT_ARM_TABLE && !k->in_row) {
            k->published = k->p <= p->spec.alpha;
            k->unproved = !k->published;
            (void)snprintf(k->why, sizeof(k->why), "%s", k->published ? "" : unproved);
        }
    }
}

/* Rows that keep untuned collectives stand with the table: each case of theirs has held in the
 * guard of the whole product. At an end that did not hold a row ends at its case. */
static void publish_kept(struct nt_plan *p)
{
    for (uint32_t r = 0; r < p->kept.ncases; r++) {
        const struct kept_case *k = &p->kept.cases[r];
        struct nt_row_result row = {.coll = k->cs.coll,
                                    .min_bytes = k->min_bytes,
                                    .max_bytes = k->max_bytes,
                                    .pairs = p->spec.pairs,
                                    .kept = true};
        if (k->pick == NONE || p->result.nrows == NT_MAX_ROWS) {
            continue;
        }
        row.call = k->arms[k->pick].call;
        row.executed = k->arms[k->pick].executed;
        for (size_t i = 0; i < p->confirm.npoints; i++) {
            const struct check_point *c = &p->confirm.points[i];
            if (c->kept == r && c->kind == CHECK_OTHER) {
                add_kept_class(p, c);
            } else if (c->kept == r && !guard_holds(p, c, NT_ARM_TABLE)) {
                *(c->cs.bytes < k->cs.bytes ? &row.min_bytes : &row.max_bytes) = k->cs.bytes;
            }
        }
        p->result.rows[p->result.nrows++] = row;
    }
}

static void publish_table(struct nt_plan *p)
{
    char at[24];
    char why[96] = "";
    const char *vars = p->settings[p->table_setting].vars;
    bool gained = false;

    for (uint32_t r = 0; r < p->nrows; r++) {
        publish_row(p, r);
    }
    for (size_t i = 0; i < p->result.nclasses; i++) {
        const struct nt_class_result *k = &p->result.classes[i];
        gained = gained || (k->product == NT_ARM_TABLE && k->published && k->p <= p->spec.alpha);
    }
    if (!gained && p->result.nrows > 0) {
        withdraw_table(p, NULL);
    }
    if (!product_is_safe(p, NT_ARM_TABLE, why, sizeof(why))) {
        withdraw_table(p, why);
        (void)snprintf(p->result.withdrawn, sizeof(p->result.withdrawn), "%s: %s", vars, why);
    }
    /* With process variables a size that lost its row runs the default under them, which was not
     * what was measured there: the whole product goes, unless that is what ran without them. */
    if (vars[0] != '\0' && p->result.nrows > 0) {
        for (size_t i = 0; i < p->result.nclasses; i++) {
            const struct nt_class_result *k = &p->result.classes[i];
            if (k->product == NT_ARM_TABLE && k->in_row && !k->published &&
                !default_unchanged(p, &k->cs)) {
                withdraw_table(p,
                               "a size of it fell back to the default under its process variables");
                (void)snprintf(p->result.withdrawn, sizeof(p->result.withdrawn),
                               "%s: a row did not hold at %s", vars,
                               nt_format_bytes(k->cs.bytes, at, sizeof(at)));
                break;
            }
        }
    }
    p->result.table_present = p->result.nrows > 0;
    if (p->result.table_present) {
        publish_alone(p, vars);
        publish_kept(p);
        (void)snprintf(p->result.table_vars, NT_SETTING_LEN, "%s", vars);
    }
}

/* The exhaustive grid from the job's own times: tuples × cases × settings, 4 gangs × 5 blocks,
 * starts included. */
static uint64_t grid_ns(const struct nt_plan *p)
{
    double sum = 0;

    for (uint32_t s = 0; s < p->nsettings; s++) {
        if (p->settings[s].cells == NULL) {
            continue;
        }
        sum += 4.0 * (double)p->start_ns;
        for (uint32_t i = 0; i < p->npoints; i++) {
            const struct cell *c = &p->settings[s].cells[i];
            for (uint32_t k = 0; k < p->nmodes && c->explored && !c->hopeless; k++) {
                enum nt_mode m = p->modes[k];
                struct nt_standing st[MAX_ARMS];
                double base = plan_default_ns(p, i, m);
                nt_race_standings(c->race[m], st);
                for (uint32_t a = 0; a < c->narms; a++) {
                    double each = isnan(st[a].log_ratio) ? base : base * exp(st[a].log_ratio);
                    sum +=
                        st[a].state == NT_ARM_FAILED
                            ? 0
                            : 20 * (each * plan_inner(m, base) * (1 + plan_samples(m, each)) + 5e5);
                }
            }
        }
    }
    return (uint64_t)sum;
}

void publish_pairs(struct nt_plan *p)
{
    if (p->confirm.points == NULL || p->confirm.pair == 0 || p->confirm.judged) {
        return;
    }
    p->confirm.judged = true;
    judge_classes(p);
    note_unchecked(p);
    if (p->confirm.table) {
        publish_table(p);
    }
    if (!p->confirm.again) {
        publish_static(p);
    }
}

bool publish_refill(struct nt_plan *p)
{
    struct nt_plan_result *r = &p->result;

    plan_stop(p);
    r->pairs = p->spec.pairs;
    r->further = p->confirm.further;
    r->grid_ns = grid_ns(p);
    for (int k = 0; k < NT_DRIFT_COUNT; k++) {
        r->drift[k] = nt_drift_of(&p->drift, (enum nt_drift_kind)k);
    }
    for (uint32_t s = 0; s < p->nsettings && r->nsettings < NT_MAX_SETTINGS; s++) {
        if (p->settings[s].cells != NULL || p->settings[s].status != NT_ST_OK) {
            struct nt_setting_score *out = &r->settings[r->nsettings++];
            *out = (struct nt_setting_score){.table_gain = p->settings[s].table_gain,
                                             .static_gain = p->settings[s].static_gain,
                                             .se = p->settings[s].se,
                                             .status = p->settings[s].status};
            (void)snprintf(out->vars, sizeof(out->vars), "%s", p->settings[s].vars);
        }
    }
    publish_pairs(p);
    return false;
}

const struct nt_found *nt_plan_found(const struct nt_plan *plan, size_t i)
{
    struct nt_plan *p = (struct nt_plan *)plan; /* fills the one answer that it keeps */
    uint32_t point = (uint32_t)(i / (p->nmodes > 0 ? p->nmodes : 1));
    enum nt_mode m = p->modes[i % (p->nmodes > 0 ? p->nmodes : 1)];
    struct setting *s = &p->settings[p->table_setting];
    struct nt_standing st[MAX_ARMS];
    struct cell *c;
    struct nt_race_verdict v;

    if (point >= p->npoints || s->cells == NULL || s->cells[point].race[m] == NULL) {
        return NULL;
    }
    c = &s->cells[point];
    v = nt_race_verdict(c->race[m]);
    for (uint32_t a = 0; a < c->narms; a++) {
        struct nt_found_arm *out = &p->found_arms[a];
        *out = (struct nt_found_arm){
            .call = c->arms[a].call, .executed = c->arms[a].executed, .status = c->arms[a].status};
        out->log_ratio = search_effect(p, p->table_setting, point, m, a, &out->se);
    }
    nt_race_standings(c->race[m], st);
    for (uint32_t k = 0; k < c->narms; k++) {
        p->found_arms[st[k].arm].blocks = st[k].blocks;
        p->found_arms[st[k].arm].gangs = st[k].gangs;
    }
    p->found = (struct nt_found){.cs = plan_case(p, point, m),
                                 .vars = s->vars,
                                 .arms = p->found_arms,
                                 .narms = c->narms,
                                 .pick = v.pick == NT_NO_ARM ? 0 : v.pick,
                                 .default_ns = plan_default_ns(p, point, m),
                                 .block_sd = p->points[point].pre[m].noise.block_sd,
                                 .gang_sd = p->points[point].pre[m].noise.gang_sd,
                                 .detectable = p->points[point].pre[m].detectable};
    return &p->found;
}
