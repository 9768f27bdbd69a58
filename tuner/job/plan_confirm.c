/*
 * Confirm: pairs of fresh gangs on the delivery path, all alive together, blocks in ABBA order;
 * every class, edge and other check point in every pair. Rows are cut only at points that were
 * themselves checked in the same pairs, so a shrunk row needs no further round.
 */
#include "tuner/job/plan_i.h"
#include "schema/tunables.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CHECKS = 2048, MAX_REDO = 4, MAX_REDO_FURTHER = 2 };

uint64_t confirm_align(const struct nt_plan *p, uint64_t bytes)
{
    uint64_t grain = UINT64_C(4) * p->spec.ranks;
    return bytes / grain * grain;
}

void confirm_free(struct nt_plan *p)
{
    free(p->confirm.points);
    p->confirm.points = NULL;
    for (uint32_t r = 0; r < NT_MAX_ROWS; r++) {
        free(p->rows[r].norm[0]);
        free(p->rows[r].norm[1]);
        p->rows[r].norm[0] = p->rows[r].norm[1] = NULL;
    }
}

/* ------------------------------------------------------------------ check points */

static struct check_point *add_check(struct nt_plan *p, enum check kind, const struct nt_case *cs,
                                     uint32_t row, uint32_t point)
{
    static struct check_point scratch;
    struct check_point *c;

    if (p->confirm.npoints == MAX_CHECKS) {
        plan_not_checked(p, "confirm: more than %d check points", MAX_CHECKS);
        return &scratch;
    }
    c = &p->confirm.points[p->confirm.npoints++];
    *c = (struct check_point){
        .kind = kind, .cs = *cs, .row = row, .point = point, .kept = NONE, .call = NT_CALL_DEFAULT};
    c->call = row != NONE ? p->rows[row].call : NT_CALL_DEFAULT;
    c->asked = c->call;
    if (row != NONE && point != NONE) {
        const struct cell *at = &p->settings[p->table_setting].cells[point];
        uint32_t arm_there = search_resolve(at, &c->call);
        c->asked = arm_there != NONE ? at->arms[arm_there].call : c->call;
    }
    c->est_ns = point != NONE ? plan_default_ns(p, point, (enum nt_mode)cs->mode) : 1e6;
    /* A recording holds other types and placements for some cells only: they are points of their
     * own there. */
    c->rotates = p->spec.rig != NT_RIG_RECORDING &&
                 (kind == CHECK_CLASS || kind == CHECK_EDGE || kind == CHECK_OFF);
    c->arms[NT_ARM_TABLE] = p->confirm.table;
    c->arms[NT_ARM_STATIC] = p->confirm.fixed && row == NONE;
    for (int a = 0; a < NT_ARM_COUNT; a++) {
        for (int i = 0; i < MAX_PAIRS; i++) {
            c->x[a][i] = NAN;
        }
    }
    return c;
}

static uint32_t row_of(const struct nt_plan *p, uint32_t point)
{
    for (uint32_t r = 0; r < p->nrows; r++) {
        if (p->rows[r].coll == p->points[point].coll &&
            p->points[point].bytes >= p->rows[r].range.min_bytes &&
            p->points[point].bytes <= p->rows[r].range.max_bytes) {
            return r;
        }
    }
    return NONE;
}

/* The parts of a row that belong to one ladder size begin and end here. */
static void segment(const struct nt_plan *p, const struct row *r, uint32_t size, uint64_t *ret_min,
                    uint64_t *ret_max)
{
    const uint64_t *s = p->spec.sizes;
    *ret_min =
        size == r->range.first ? r->range.min_bytes : nt_compose_midpoint(s[size - 1], s[size]) + 1;
    *ret_max =
        size == r->range.last ? r->range.max_bytes : nt_compose_midpoint(s[size], s[size + 1]);
}

static void add_edges(struct nt_plan *p, uint32_t row, uint32_t size, uint32_t point)
{
    uint64_t grain = UINT64_C(4) * p->spec.ranks, lo = 0, hi = 0;

    segment(p, &p->rows[row], size, &lo, &hi);
    lo = confirm_align(p, lo + grain - 1);
    hi = confirm_align(p, hi);
    for (uint32_t k = 0; k < p->nmodes; k++) {
        struct nt_case cs = plan_case(p, point, p->modes[k]);
        if (hi > cs.bytes) {
            cs.bytes = hi;
            add_check(p, CHECK_EDGE, &cs, row, point)->est_ns *=
                (double)hi / (double)p->points[point].bytes;
        }
        if (lo < p->points[point].bytes) {
            cs.bytes = lo;
            (void)add_check(p, CHECK_EDGE, &cs, row, point);
        }
    }
}

/* By how much the row is believed to be faster than NCCL's own choice "as is", over all modes; NAN:
 * not known. */
static double believed_gain(struct nt_plan *p, uint32_t row, uint32_t point)
{
    uint32_t arm = search_resolve(&p->settings[p->table_setting].cells[point], &p->rows[row].call);
    double gain = 0, se;

    for (uint32_t k = 0; k < p->nmodes; k++) {
        enum nt_mode m = p->modes[k];
        gain -= arm == NONE ? NAN
                            : plan_weight(p, point, m) *
                                  search_effect(p, p->table_setting, point, m, arm, &se);
    }
    return gain;
}

/* A row's checks that are made once stand where it gains most; its middle size where that is not
 * known. Where it hardly gains, which sizes next to its best ones may be, noise alone would decide
 * about all of it. */
static uint32_t once_at(struct nt_plan *p, uint32_t row, uint32_t first_point)
{
    const struct nt_row *r = &p->rows[row].range;
    uint32_t ret = (r->first + r->last) / 2;
    double most = 0;

    for (uint32_t size = r->first; size <= r->last; size++) {
        double gain = believed_gain(p, row, first_point + size);
        if (gain > most) {
            most = gain;
            ret = size;
        }
    }
    return ret;
}

/* Eight calls in a group, where the job has an eager mode and somebody calls so; NULL: not.
 * Variables alone are judged by them too. */
static struct check_point *add_group(struct nt_plan *p, const struct nt_case *cs, uint32_t row,
                                     uint32_t point)
{
    struct check_point *c;

    if (p->spec.no_groups || cs->mode != NT_EAGER) {
        return NULL;
    }
    c = add_check(p, CHECK_GROUP, cs, row, point);
    c->flags = NT_M_GROUP8;
    c->est_ns *= 4;
    c->arms[NT_ARM_STATIC] = p->confirm.fixed;
    return c;
}

/* Once a row: an odd size, beside a running product, eight calls in a group. */
static void add_once(struct nt_plan *p, uint32_t row, uint32_t first_point, uint32_t size)
{
    uint32_t point = first_point + size;
    struct nt_case cs = plan_case(p, point, p->modes[0]);
    /* No multiple of 16 bytes, and where it may be, none of the ranks; towards another size of the
     * row, as what comes right beyond its ends is for its edges to tell. */
    const struct nt_row *r = &p->rows[row].range;
    uint64_t lo = 0, hi = 0, off = UINT64_C(4) * (nt_coll_shares(cs.coll) ? p->spec.ranks * 3 : 1);
    bool below = size == r->last && size > r->first;
    uint64_t odd = below ? cs.bytes - off : cs.bytes + off;

    segment(p, &p->rows[row], size, &lo, &hi);
    if (odd >= lo && odd < hi) {
        cs.bytes = odd;
        (void)add_check(p, CHECK_OFF, &cs, row, point);
        cs.bytes = p->points[point].bytes;
    }
    if (!p->spec.no_overlap) {
        add_check(p, CHECK_BUSY, &cs, row, point)->flags = NT_M_BUSY;
    }
    (void)add_group(p, &cs, row, point);
}

/* What variables make of groups, whatever rows there are: at two sizes of each tuned collective. */
static void add_groups(struct nt_plan *p)
{
    const uint32_t at[] = {(uint32_t)p->spec.nsizes / 6, (uint32_t)p->spec.nsizes / 2};
    uint32_t first = 0;

    for (uint32_t i = 0; i < p->npoints; i++) {
        first = i > 0 && p->points[i].coll == p->points[i - 1].coll ? first : i;
        if (i - first == at[0] || i - first == at[1]) {
            struct nt_case cs = plan_case(p, i, p->modes[0]);
            struct check_point *c = add_group(p, &cs, NONE, i);
            if (c != NULL) {
                c->arms[NT_ARM_TABLE] =
                    p->confirm.table && p->settings[p->table_setting].vars[0] != '\0';
            }
        }
    }
}

/* An untuned collective where the table's variables, if any, reach it. */
static struct check_point *add_other(struct nt_plan *p, enum check kind, const struct nt_case *cs,
                                     uint32_t kept)
{
    struct check_point *c = add_check(p, kind, cs, NONE, NONE);

    c->rotates = false;
    c->arms[NT_ARM_TABLE] = p->confirm.table && p->settings[p->table_setting].vars[0] != '\0';
    c->est_ns = plan_default_ns(p, (uint32_t)(p->spec.nsizes / 2), NT_EAGER);
    c->kept = kept_call(p, kept, &c->call);
    c->asked = c->call;
    if (c->kept != NONE) {
        const struct kept_case *k = &p->kept.cases[kept];
        c->est_ns = k->est_ns * fmax(1, (double)cs->bytes / (double)k->cs.bytes);
    }
    return c;
}

/* Where a row keeps it: both ends, and the modes that it serves beside. */
static void add_kept(struct nt_plan *p, uint32_t at)
{
    const struct kept_case *k = &p->kept.cases[at];
    uint64_t grain = UINT64_C(4) * p->spec.ranks;
    const uint64_t bytes[] = {k->cs.bytes, confirm_align(p, k->min_bytes + grain - 1),
                              confirm_align(p, k->max_bytes)};
    bool of_guard = false; /* its mode is one of the job's */

    for (uint32_t m = 0; m < p->nmodes || !of_guard; m++) {
        struct nt_case cs = k->cs;
        cs.mode = m < p->nmodes ? (uint8_t)p->modes[m] : k->cs.mode;
        of_guard = of_guard || cs.mode == k->cs.mode;
        for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
            cs.bytes = bytes[i];
            if (i == 0   ? cs.mode != k->cs.mode /* else it is there */
                : i == 1 ? cs.bytes < k->cs.bytes
                         : cs.bytes > k->cs.bytes) {
                enum check kind = i == 0 ? CHECK_OTHER : CHECK_EDGE;
                add_other(p, kind, &cs, at)->arms[NT_ARM_STATIC] = false;
            }
        }
    }
}

/* Process variables reach every collective: three sizes of those that are not tuned here. */
static void add_others(struct nt_plan *p)
{
    struct nt_case cases[MAX_OTHERS];
    uint32_t sizes[MAX_OTHERS], n = kept_others(p, cases, sizes);

    for (uint32_t i = 0; i < n; i++) {
        if (add_other(p, CHECK_OTHER, &cases[i], i)->kept != NONE) {
            add_kept(p, i);
        }
    }
}

/* The other types and placements of a class, where they do not rotate. */
static void add_variants(struct nt_plan *p, uint32_t row, uint32_t point, enum nt_mode mode)
{
    for (int d = 0; d < NT_DTYPE_COUNT; d++) {
        for (int place = 0; place < NT_PLACE_COUNT; place++) {
            struct nt_case cs = plan_case(p, point, mode);
            if (plan_serves(p, cs.coll, d, place) && (d != cs.dtype || place != cs.place)) {
                cs.dtype = (uint8_t)d;
                cs.place = (uint8_t)place;
                (void)add_check(p, CHECK_VARIANT, &cs, row, point);
            }
        }
    }
}

static void add_points(struct nt_plan *p)
{
    bool all = p->confirm.fixed || p->settings[p->table_setting].vars[0] != '\0';
    uint32_t first = 0;

    for (uint32_t i = 0; i < p->npoints; i++) {
        uint32_t row = p->confirm.table ? row_of(p, i) : NONE;
        first = i > 0 && p->points[i].coll == p->points[i - 1].coll ? first : i;
        for (uint32_t k = 0; k < p->nmodes && (all || row != NONE); k++) {
            struct nt_case cs = plan_case(p, i, p->modes[k]);
            struct check_point *c = add_check(p, CHECK_CLASS, &cs, row, i);
            c->arms[NT_ARM_STATIC] = p->confirm.fixed;
            if (row != NONE && p->spec.rig == NT_RIG_RECORDING) {
                add_variants(p, row, i, p->modes[k]);
            }
        }
        if (row != NONE && p->spec.extra_guards) {
            add_edges(p, row, i - first, i);
            if (once_at(p, row, first) == i - first) {
                add_once(p, row, first, i - first);
            }
        }
    }
    if (all && p->spec.extra_guards) {
        add_others(p);
        add_groups(p);
    }
}

/* With so many pairs more. */
static bool fits(const struct nt_plan *p, uint32_t pairs)
{
    double more = confirm_pace(p) * confirm_exact_ns(p) * pairs / p->spec.pairs;

    return p->spec.budget_ns == 0 || (double)plan_used_ns(p) + more <= (double)p->spec.budget_ns;
}

static void add_points_anew(struct nt_plan *p)
{
    p->confirm.npoints = 0;
    add_points(p);
}

/* Within a budget the table comes before the variables alone, and rows that gain much before those
 * that gain little. */
static void fit_budget(struct nt_plan *p)
{
    if (p->confirm.table && p->confirm.fixed && !fits(p, LEAST_PAIRS)) {
        plan_not_checked(p, "static: no time for its confirm within the budget");
        p->confirm.fixed = false;
        add_points_anew(p);
    }
    while (p->nrows > 1 && !fits(p, LEAST_PAIRS)) {
        uint32_t least = 0;
        for (uint32_t r = 1; r < p->nrows; r++) {
            double a = p->rows[r].range.gain * (1 + p->rows[r].range.last - p->rows[r].range.first);
            double b = p->rows[least].range.gain *
                       (1 + p->rows[least].range.last - p->rows[least].range.first);
            least = a < b ? r : least;
        }
        plan_not_checked(p, "row %llu to %llu: no time for its confirm within the budget",
                         (unsigned long long)p->rows[least].range.min_bytes,
                         (unsigned long long)p->rows[least].range.max_bytes);
        p->nrows--;
        memmove(&p->rows[least], &p->rows[least + 1], (p->nrows - least) * sizeof(p->rows[0]));
        add_points_anew(p);
    }
}

/* The rows of the delivery file. */
static void serve(struct nt_plan *p)
{
    for (uint32_t r = 0; r < p->nrows; r++) {
        p->served[p->nserved++] = (struct nt_row_result){.coll = p->rows[r].coll,
                                                         .min_bytes = p->rows[r].range.min_bytes,
                                                         .max_bytes = p->rows[r].range.max_bytes,
                                                         .call = p->rows[r].call,
                                                         .executed = p->rows[r].executed};
    }
    for (uint32_t i = 0; i < p->kept.ncases && p->nserved < NT_MAX_ROWS; i++) {
        const struct kept_case *k = &p->kept.cases[i];
        if (k->pick != NONE) {
            p->served[p->nserved++] = (struct nt_row_result){.coll = k->cs.coll,
                                                             .min_bytes = k->min_bytes,
                                                             .max_bytes = k->max_bytes,
                                                             .call = k->arms[k->pick].call,
                                                             .executed = k->arms[k->pick].executed,
                                                             .kept = true};
        }
    }
}

/* In a second round: what the first said of its table stands until here, where another is judged in
 * its place. */
static void forget_table(struct nt_plan *p)
{
    struct nt_plan_result *r = &p->result;
    size_t n = 0;

    for (size_t i = 0; i < r->nclasses; i++) {
        if (r->classes[i].product != NT_ARM_TABLE) {
            r->classes[n++] = r->classes[i];
        }
    }
    r->nclasses = n;
    r->memory_bytes[NT_ARM_TABLE] = r->first_call_ns[NT_ARM_TABLE] = 0;
}

static bool set_up(struct nt_plan *p)
{
    struct confirm *c = &p->confirm;

    c->started = true;
    c->table = p->nrows > 0 || (p->table_setting != 0 && p->static_vars[0] == '\0');
    c->fixed = p->static_vars[0] != '\0' && !c->again;
    if (!c->table && !c->fixed) {
        return false;
    }
    c->points = calloc(MAX_CHECKS, sizeof(c->points[0]));
    if (c->points == NULL) {
        (void)nt_fail(&p->failed, NT_E_NOMEM, 0, "check points");
        return false;
    }
    add_points(p);
    fit_budget(p);
    if (c->again && !fits(p, LEAST_PAIRS)) {
        plan_not_checked(p,
                         "rows without the table's variables: no time for their confirm within the "
                         "budget");
        return false;
    }
    if (c->again) {
        forget_table(p);
    }
    serve(p);
    return true;
}

/* ------------------------------------------------------------------ pairs */

/* Latin square: each class meets all types and placements in turn, and in one pair the classes are
 * spread over them. */
static void rotate(const struct nt_plan *p, uint32_t index, struct nt_case *cs)
{
    int combos[NT_DTYPE_COUNT * NT_PLACE_COUNT][2];
    uint32_t n = 0, at;

    for (int d = 0; d < NT_DTYPE_COUNT; d++) {
        for (int place = 0; place < NT_PLACE_COUNT; place++) {
            if (plan_serves(p, cs->coll, d, place)) {
                combos[n][0] = d;
                combos[n++][1] = place;
            }
        }
    }
    at = (p->confirm.pair + index) % n;
    cs->dtype = (uint8_t)combos[at][0];
    cs->place = (uint8_t)combos[at][1];
}

/* All that these variables do to a call shows in what it executes. */
bool confirm_by_tuple(const char *vars)
{
    char text[NT_SETTING_LEN], *save = NULL;

    (void)snprintf(text, sizeof(text), "%s", vars);
    for (char *w = strtok_r(text, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        const struct nt_tunable *t;
        w[strcspn(w, "=")] = '\0';
        t = nt_tunable_any(w);
        if (t == NULL || (t->flags & NT_F_BY_TUPLE) == 0) {
            return false;
        }
    }
    return true;
}

/* The product changed nothing there: the same tuple ran as by default, and its variables, if any,
 * act by nothing else. There is nothing to be slower. */
bool confirm_same_work(const struct nt_plan *p, const struct check_point *c, enum nt_arm arm)
{
    const char *vars = arm == NT_ARM_TABLE ? p->settings[p->table_setting].vars : p->static_vars;

    if (arm == NT_ARM_TABLE && c->call.chunk_bytes > 0) {
        return false; /* of which no read-back tells */
    }
    return p->spec.as_found[0] == '\0' && !c->broken[arm] && c->ran[arm].channels > 0 &&
           nt_executed_equal(&c->ran[arm], &c->ran[NT_ARM_DEFAULT]) && confirm_by_tuple(vars);
}

/* … and nothing more to measure, unless somebody wants to see the figure. */
static bool settled(const struct nt_plan *p, const struct check_point *c)
{
    bool kept = c->kept != NONE && c->kind == CHECK_OTHER && c->cs.mode == NT_EAGER;

    return !p->confirm.fixed && c->kind != CHECK_CLASS && !kept &&
           confirm_same_work(p, c, NT_ARM_TABLE);
}

static bool baseline(enum nt_arm arm)
{
    return arm == NT_ARM_DEFAULT || arm == NT_ARM_AS_FOUND;
}

static void push_check(struct nt_plan *p, uint32_t index, size_t live, uint32_t rep)
{
    const struct check_point *c = &p->confirm.points[index];
    enum nt_arm arm = p->live[live].arm;
    struct nt_case cs = c->cs;
    struct todo *t;

    if ((!baseline(arm) && !c->arms[arm]) || c->broken[arm] || settled(p, c)) {
        return;
    }
    if (c->rotates) {
        rotate(p, index, &cs);
    }
    t = plan_measure(p, live, FOR_CHECK, &cs, arm == NT_ARM_TABLE ? c->asked : NT_CALL_DEFAULT,
                     c->est_ns, plan_samples((enum nt_mode)cs.mode, c->est_ns));
    t->index = index;
    t->arm = arm;
    t->rep = rep;
    t->step.m.flags = c->flags;
    if (rep == 0 && !baseline(arm)) {
        t->step.m.verify = p->confirm.pair == 0 ? NT_VERIFY_BOTH : NT_VERIFY_BEFORE;
        t->step.m.warmup = 0;
    }
    if (rep == 0 && p->confirm.pair == 0) {
        t->step.m.flags |= NT_M_READBACK;
    }
}

static uint32_t check_blocks(const struct nt_plan *p, uint32_t index)
{
    const struct check_point *c = &p->confirm.points[index];

    if (p->confirm.further > 0 && !c->longer) {
        return 0;
    }
    return confirm_blocks(c->kind, (enum nt_mode)c->cs.mode, c->est_ns);
}

void confirm_start_pair(struct nt_plan *p, enum nt_arm *arms, size_t n, uint32_t npoints,
                        uint32_t (*blocks_of)(const struct nt_plan *p, uint32_t index),
                        void (*push)(struct nt_plan *p, uint32_t index, size_t live, uint32_t rep))
{
    uint32_t order[NT_PLAN_GANGS], points[MAX_CHECKS];

    nt_assert(n <= NT_PLAN_GANGS && npoints <= MAX_CHECKS);
    for (uint32_t i = (uint32_t)n; i > 1; i--) { /* start order at random */
        uint32_t j = (uint32_t)nt_rng_below(&p->rng, i);
        enum nt_arm swap = arms[i - 1];
        arms[i - 1] = arms[j];
        arms[j] = swap;
    }
    (void)plan_start(p, arms, n, p->table_setting);
    for (uint32_t i = 0; i < npoints; i++) {
        points[i] = i;
    }
    nt_rng_shuffle(&p->rng, points, npoints);
    for (uint32_t i = 0; i < npoints; i++) {
        uint32_t blocks = blocks_of(p, points[i]);
        for (uint32_t k = 0; k < n; k++) {
            order[k] = k;
        }
        nt_rng_shuffle(&p->rng, order, n);
        for (uint32_t b = 0; b < blocks; b += 2) {
            for (size_t k = 0; k < n; k++) { /* A B … */
                push(p, points[i], order[k], b);
            }
            for (size_t k = n; k-- > 0;) { /* … B A */
                push(p, points[i], order[k], b + 1);
            }
        }
    }
}

static bool start_pair(struct nt_plan *p)
{
    enum nt_arm arms[NT_PLAN_GANGS];
    size_t n = 0;

    arms[n++] = NT_ARM_DEFAULT;
    if (p->confirm.table) {
        arms[n++] = NT_ARM_TABLE;
    }
    if (p->confirm.fixed) {
        arms[n++] = NT_ARM_STATIC;
    }
    if (p->spec.as_found[0] != '\0') {
        arms[n++] = NT_ARM_AS_FOUND;
    }
    confirm_start_pair(p, arms, n, (uint32_t)p->confirm.npoints, check_blocks, push_check);
    return true;
}

static void clear_pair(struct nt_plan *p)
{
    for (size_t i = 0; i < p->confirm.npoints; i++) {
        for (int a = 0; a < NT_ARM_COUNT; a++) {
            p->confirm.points[i].x[a][p->confirm.pair] = NAN;
            p->confirm.points[i].blocks[a][p->confirm.pair] = 0;
        }
    }
}

/* Variables reach every call, so that a table with them falls as a whole. Its rows alone may stand
 * all the same: they get one round more, from the gate on. Whether there is time for it is known
 * when they are composed; that its gangs can be started is looked at here. */
static bool once_more(struct nt_plan *p)
{
    double starts = LEAST_PAIRS * 1.5 * (double)p->start_ns, took;

    if (p->confirm.again || !p->confirm.table || p->settings[p->table_setting].vars[0] == '\0' ||
        (p->spec.budget_ns > 0 && (double)plan_used_ns(p) + starts > (double)p->spec.budget_ns)) {
        return false;
    }
    publish_pairs(p);
    if (p->result.table_present || p->failed.code != NT_OK) {
        return false;
    }
    took = confirm_pace(p);
    confirm_free(p);
    p->confirm = (struct confirm){.again = true, .pace = took};
    p->kept = (struct kept){0};
    p->table_setting = p->nserved = p->gate_at = 0;
    p->stage = NT_GATE;
    return true;
}

/* Every point is judged by the pairs that all have. */
static void look_no_longer(struct nt_plan *p)
{
    for (size_t i = 0; i < p->confirm.npoints; i++) {
        p->confirm.points[i].longer = false;
    }
    p->confirm.pair = p->spec.pairs;
    p->confirm.further = 0;
}

/* Where the guard says no of points that are within it by their mean, as many pairs again, of these
 * points alone: a gang's start and a block or two each, where a whole table may fall by one of
 * them. The draws of a recording would not be new ones. Within a budget only where a round without
 * the variables still has its time. */
static bool look_longer(struct nt_plan *p)
{
    struct confirm *c = &p->confirm;
    bool vars = p->settings[p->table_setting].vars[0] != '\0';
    double all, cost;

    if (c->further > 0 || p->spec.rig == NT_RIG_RECORDING || !publish_mark_doubts(p)) {
        return false;
    }
    all = confirm_pace(p) * confirm_exact_ns(p);
    cost = confirm_pace(p) * confirm_further_ns(p) * p->spec.pairs;
    if (cost > all / 2 ||
        (p->spec.budget_ns > 0 &&
         (double)plan_used_ns(p) + cost + (vars ? all * LEAST_PAIRS / p->spec.pairs : 0) >
             (double)p->spec.budget_ns)) {
        look_no_longer(p);
        return false;
    }
    c->pace = confirm_pace(p);
    c->further = p->spec.pairs;
    c->redo = 0;
    return true;
}

bool confirm_refill(struct nt_plan *p)
{
    struct confirm *c = &p->confirm;

    if (!c->started) {
        plan_stop(p);
        if (!set_up(p)) {
            return false;
        }
        c->begun_ns = plan_used_ns(p);
        return start_pair(p);
    }
    if (!c->table && !c->fixed) {
        plan_stop(p);
        return false;
    }
    if (p->nlive > 0) { /* the pair is done */
        plan_stop(p);
        if (++c->pair >= LEAST_PAIRS && c->pair < p->spec.pairs && !fits(p, 1)) {
            plan_not_checked(p, "confirm: no time for more than %u of %u pairs within the budget",
                             c->pair, p->spec.pairs);
            p->spec.pairs = c->pair;
        }
        if (c->pair == p->spec.pairs + c->further && !look_longer(p)) {
            return once_more(p);
        }
    } else { /* it was lost: a fresh one in its place */
        clear_pair(p);
        if (++c->redo > MAX_REDO_FURTHER && c->further > 0) {
            look_no_longer(p); /* before the job is given up: all that was planned is there */
            return once_more(p);
        }
        if (c->redo > MAX_REDO) {
            plan_not_checked(p, "confirm: %u pairs were lost", c->redo);
            c->table = c->fixed = false;
            return false;
        }
    }
    return start_pair(p);
}

/* Samples of a row's classes over a constant of the class: what the tail is judged on. */
static void keep_tail(struct nt_plan *p, const struct check_point *c, enum nt_arm arm,
                      const struct nt_result *r)
{
    int side = arm == NT_ARM_DEFAULT ? 0 : 1;
    struct row *row = &p->rows[c->row];
    float *grown = realloc(row->norm[side], (row->nnorm[side] + r->count) * sizeof(float));

    if (grown == NULL) {
        (void)nt_fail(&p->failed, NT_E_NOMEM, 0, "samples");
        return;
    }
    row->norm[side] = grown;
    for (size_t i = 0; i < r->count; i++) {
        grown[row->nnorm[side]++] = (float)(r->ns[i] / c->est_ns);
    }
    row->ends[side][p->confirm.pair] = row->nnorm[side];
}

bool confirm_as_asked(const struct nt_executed *x, const struct nt_call *call)
{
    return x->algo == call->algo && x->proto == call->proto &&
           (call->channels == 0 || x->channels <= call->channels);
}

/* One figure of an arm's blocks. Beside compute a call may wait now and then for as long as a
 * product takes, ten times its own time, by chance: a block has two levels, and their mean says
 * little of a difference of a few percent. Other single blocks, by which a whole row falls, stray
 * too, seldom. */
static double of_blocks(enum check kind, const double *x, size_t n)
{
    double copy[MOST_BLOCKS];

    memcpy(copy, x, n * sizeof(x[0]));
    return confirm_once(kind) ? nt_median(copy, n) : nt_mean(copy, n);
}

void check_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    struct check_point *c = &p->confirm.points[t->index];
    const struct nt_result *r = o->result;
    enum nt_arm arm = (enum nt_arm)t->arm;
    double x = plan_log_median(r), *at = &c->x[arm][p->confirm.pair];
    unsigned n;

    if (r->status == NT_ST_NOT_RECORDED) {
        c->not_recorded = true;
        return;
    }
    if (isnan(x)) {
        if (!baseline(arm)) { /* wrong, hung or refused on the delivery path: never in a profile */
            c->broken[arm] = true;
        }
        return;
    }
    if (arm == NT_ARM_TABLE && (t->step.m.flags & NT_M_READBACK) != 0 &&
        (c->row != NONE || c->kept != NONE) && c->kind != CHECK_GROUP &&
        !confirm_as_asked(&r->executed, &c->call)) {
        c->broken[arm] = true; /* the row was not seen executed */
    }
    if (r->executed.channels > 0) {
        c->ran[arm] = r->executed;
    }
    n = ++c->blocks[arm][p->confirm.pair];
    if (n <= MOST_BLOCKS) {
        c->of_pair[arm][n - 1] = x;
        *at = of_blocks(c->kind, c->of_pair[arm], n);
    }
    if (c->kind == CHECK_CLASS && c->row != NONE && p->confirm.pair < p->spec.pairs &&
        (arm == NT_ARM_DEFAULT || arm == NT_ARM_TABLE)) {
        keep_tail(p, c, arm, r);
    }
}
