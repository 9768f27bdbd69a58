/* Whole jobs in made-up machines: what is published, what is not, and how a job ends. */
#include "tests/job/play.h"
#include "tuner/base/rng.h"

#include <math.h>
#include <string.h>

#define LADDER "1K,16K,128K,512K,1M,2M,8M"

static bool tree(const struct world_call *c)
{
    return c->x.algo == NT_TREE && c->x.proto == NT_SIMPLE;
}

/* ------------------------------------------------------------------ what is found and published */

static void tree_is_published(const struct play *p)
{
    static const uint64_t sizes[] = {512 << 10, 1 << 20};
    for (size_t i = 0; i < 2; i++) {
        for (int m = 0; m < NT_MODE_COUNT; m++) {
            const struct nt_class_result *c;
            if (!p->spec.modes[m]) {
                continue;
            }
            c = play_published(p, sizes[i], (enum nt_mode)m);
            assert_non_null(c);
            assert_true(c->call.algo == NT_TREE && c->call.proto == NT_SIMPLE);
            assert_true(c->p <= p->spec.alpha && c->lo > log(1.02) && c->guard_upper < 1);
            assert_true(c->tuned_ns < c->default_ns);
        }
    }
    assert_true(p->r->table_present);
}

static void nothing_is_published(const struct play *p)
{
    assert_int_equal(p->r->nrows, 0);
    assert_false(p->r->table_present);
    assert_false(p->r->static_present);
    for (size_t i = 0; i < p->r->nclasses; i++) {
        assert_false(p->r->classes[i].published);
        assert_true(p->r->classes[i].why[0] != '\0');
    }
}

static void no_tree(const struct play *p)
{
    for (size_t i = 0; i < p->r->nrows; i++) {
        assert_true(p->r->rows[i].call.algo != NT_TREE || p->r->rows[i].call.proto != NT_SIMPLE);
    }
}

/* The tree's row ends at 1 MiB itself: above it stands the cliff. */
static void row_ends_at_cliff(const struct play *p)
{
    tree_is_published(p);
    assert_int_equal(p->r->rows[p->r->nrows - 1].max_bytes, 1 << 20);
}

/* Scatters at sizes at which the row gains less than at its best. */
static double tree_scatters_below_1m(const struct world_call *c)
{
    static unsigned calls;
    bool there = tree(c) && c->step->m.cs.bytes % 16 != 0 && c->step->m.cs.bytes < (700 << 10);
    return there && calls++ % 3 == 0 ? 4 : 1;
}

static double graph_hates_tree(const struct world_call *c)
{
    return tree(c) && c->step->m.cs.mode == NT_GRAPH ? 4 : 1;
}

static double tree_slow_on_delivery(const struct world_call *c)
{
    return tree(c) && c->step->arm == NT_ARM_TABLE ? 4 : 1;
}

static double tree_slow_in_place(const struct world_call *c)
{
    return tree(c) && c->step->m.cs.place == NT_IN_PLACE ? 4 : 1;
}

static double tree_slow_beside_compute(const struct world_call *c)
{
    return tree(c) && (c->step->m.flags & NT_M_BUSY) != 0 ? 4 : 1;
}

/* The caller's own variables already give what the tree gives. */
static double as_found_fast(const struct world_call *c)
{
    return c->step->arm == NT_ARM_AS_FOUND ? 0.3 : 1;
}

static double as_found_slow(const struct world_call *c)
{
    return c->step->arm == NT_ARM_AS_FOUND ? 1.5 : 1;
}

static void judged_against_as_found(const struct play *p)
{
    nothing_is_published(p);
    for (size_t i = 0; i < p->r->nclasses; i++) {
        assert_true(p->r->classes[i].as_found_ns < p->r->classes[i].default_ns);
        assert_true(p->r->classes[i].gain < 0);
    }
}

/* Reported beside, but the gain is over the faster baseline, the default. */
static void judged_against_default(const struct play *p)
{
    tree_is_published(p);
    for (size_t i = 0; i < p->r->nclasses; i++) {
        const struct nt_class_result *c = &p->r->classes[i];
        assert_true(c->as_found_ns > c->default_ns);
        assert_true(fabs(c->gain - log(c->default_ns / c->tuned_ns)) < 1e-9);
    }
}

/* ------------------------------------------------------------------ wrong data, hangs, refusals */

static uint8_t wrong_above_600k(const struct world_call *c)
{
    bool looked = c->step->m.verify != NT_VERIFY_NO;
    return looked && tree(c) && c->step->m.cs.bytes > (600 << 10) ? NT_ST_WRONG : NT_ST_OK;
}

static uint8_t wrong_in_place(const struct world_call *c)
{
    bool looked = c->step->m.verify != NT_VERIFY_NO;
    return looked && tree(c) && c->step->m.cs.place == NT_IN_PLACE ? NT_ST_WRONG : NT_ST_OK;
}

static uint8_t wrong_in_graph(const struct world_call *c)
{
    bool looked = c->step->m.verify != NT_VERIFY_NO;
    return looked && tree(c) && c->step->m.cs.mode == NT_GRAPH ? NT_ST_WRONG : NT_ST_OK;
}

static uint8_t wrong_in_fp32(const struct world_call *c)
{
    bool looked = c->step->m.verify != NT_VERIFY_NO;
    return looked && tree(c) && c->step->m.cs.dtype == NT_FP32 ? NT_ST_WRONG : NT_ST_OK;
}

static uint8_t wrong_on_delivery(const struct world_call *c)
{
    bool looked = c->step->m.verify != NT_VERIFY_NO;
    return looked && tree(c) && c->step->arm == NT_ARM_TABLE ? NT_ST_WRONG : NT_ST_OK;
}

static uint8_t wrong_sometimes(const struct world_call *c)
{
    bool looked = c->step->m.verify != NT_VERIFY_NO;
    return looked && tree(c) && c->measure * 7919 % 10 < 3 ? NT_ST_WRONG : NT_ST_OK;
}

static uint8_t tree_is_wrong(const struct world_call *c)
{
    return c->step->m.verify != NT_VERIFY_NO && tree(c) ? NT_ST_WRONG : NT_ST_OK;
}

static double tree_ten_times_as_fast(const struct world_call *c)
{
    return tree(c) ? 0.1 : 1;
}

static uint8_t tree_hangs_in_replay(const struct world_call *c)
{
    return tree(c) && c->step->m.cs.mode == NT_GRAPH ? NT_ST_TIMEOUT : NT_ST_OK;
}

static uint8_t tree_hangs(const struct world_call *c)
{
    return tree(c) ? NT_ST_TIMEOUT : NT_ST_OK;
}

static uint8_t tree_hangs_on_delivery(const struct world_call *c)
{
    return tree(c) && c->step->arm == NT_ARM_TABLE ? NT_ST_TIMEOUT : NT_ST_OK;
}

static uint8_t ranks_disagree(const struct world_call *c)
{
    return tree(c) ? NT_ST_DISAGREE : NT_ST_OK;
}

static uint8_t tree_is_refused(const struct world_call *c)
{
    return tree(c) ? NT_ST_UNAVAILABLE : NT_ST_OK;
}

/* No row at 1 MiB; below the fault the tree is as good as ever. */
static void tree_below_600k_only(const struct play *p)
{
    assert_null(play_published(p, 1 << 20, NT_EAGER));
    assert_non_null(play_published(p, 512 << 10, NT_EAGER));
    for (size_t i = 0; i < p->r->nrows; i++) {
        assert_true(p->r->rows[i].call.algo != NT_TREE || p->r->rows[i].max_bytes <= 600 << 10);
    }
}

/* ------------------------------------------------------------------ process settings */

#define CHANNELS "NCCL_MIN_NCHANNELS=16"

static bool wide(const struct world_call *c)
{
    return strstr(c->step->vars, CHANNELS) != NULL;
}

static double wide_is_better(const struct world_call *c)
{
    return wide(c) ? 0.6 : 1;
}

static double wide_is_worse(const struct world_call *c)
{
    return wide(c) ? 1.3 : 1;
}

/* A large gain at most sizes, and one class that pays for it. */
static double wide_costs_small_sizes(const struct world_call *c)
{
    return wide(c) ? (c->step->m.cs.bytes < 2048 ? 1.5 : 0.6) : 1;
}

/* Only the collectives that nobody tunes pay. */
static double wide_costs_others(const struct world_call *c)
{
    return wide(c) ? (c->step->m.cs.coll != NT_ALL_REDUCE ? 1.5 : 0.6) : 1;
}

/* Eight calls in a group are another matter, whatever a row says of one of them. */
static double wide_costs_groups(const struct world_call *c)
{
    return !wide(c) ? 1 : (c->step->m.flags & NT_M_GROUP8) != 0 ? 3 : 0.7;
}

/* Small calls run the very tuple that the default runs, and gangs differ too much there for twelve
 * pairs to show it. */
static double wide_runs_the_same_small(const struct world_call *c)
{
    static const double levels[] = {0.92, 1.08, 1, 1.05, 0.95};

    if (c->step->m.cs.bytes < 4096) {
        return levels[nt_mix(c->step->gang, c->step->m.cs.mode) % 5];
    }
    return wide(c) ? 0.6 : 1;
}

/* Beside compute a block may have waited for a product, whatever ran in it. */
static double waits_now_and_then(const struct world_call *c)
{
    bool waits = (c->step->m.flags & NT_M_BUSY) != 0 && nt_mix(c->measure, 7) % 12 == 0;
    return (waits ? 1000 : 1) * (tree(c) ? 1.2 : 1);
}

/* Good in the search; as delivered, one size pays for it. */
static double wide_falls_on_delivery(const struct world_call *c)
{
    bool delivered = c->step->arm == NT_ARM_TABLE || c->step->arm == NT_ARM_STATIC;
    return !wide(c) ? 1 : delivered && c->step->m.cs.bytes < 2048 ? 1.5 : 0.6;
}

static void wide_is_published(const struct play *p)
{
    assert_true(p->r->static_present);
    assert_non_null(strstr(p->r->static_vars, CHANNELS));
    tree_is_published(p);
    assert_string_equal(p->r->table_vars, CHANNELS);
    for (size_t i = 0; i < p->r->nclasses; i++) { /* what stands without a row is judged too */
        const struct nt_class_result *k = &p->r->classes[i];
        assert_true(k->product != NT_ARM_TABLE || k->published || k->why[0] != '\0');
        assert_true(k->product != NT_ARM_TABLE || k->in_row ||
                    k->published == (k->p <= p->spec.alpha));
    }
}

static void wide_goes_with_the_table(const struct play *p)
{
    tree_is_published(p);
    assert_string_equal(p->r->table_vars, CHANNELS);
}

static void wide_is_not_published(const struct play *p)
{
    assert_null(strstr(p->r->static_vars, CHANNELS));
    assert_string_equal(p->r->table_vars, "");
}

/* … and the rows without it get a round of their own. */
static void rows_alone_are_published(const struct play *p)
{
    wide_is_not_published(p);
    assert_non_null(strstr(p->r->withdrawn, CHANNELS));
    tree_is_published(p);
}

static uint8_t wide_does_not_start(const struct nt_plan_gang *g, uint64_t *ret_memory)
{
    (void)ret_memory;
    return strstr(g->vars, CHANNELS) != NULL ? NT_ST_CRASHED : NT_ST_OK;
}

static void failed_start_is_told(const struct play *p)
{
    wide_is_not_published(p);
    assert_int_equal(p->r->nsettings, 2);
    assert_string_equal(p->r->settings[1].vars, CHANNELS);
    assert_int_equal(p->r->settings[1].status, NT_ST_CRASHED);
    tree_is_published(p);
}

static uint8_t wide_hangs(const struct world_call *c)
{
    return wide(c) ? NT_ST_TIMEOUT : NT_ST_OK;
}

/* Good at first; the default itself does not come back at a large size. */
static uint8_t wide_default_hangs(const struct world_call *c)
{
    bool large = c->step->m.cs.bytes > (4 << 20);
    return wide(c) && large && c->step->m.call.algo < 0 ? NT_ST_TIMEOUT : NT_ST_OK;
}

static uint8_t table_takes_memory(const struct nt_plan_gang *g, uint64_t *ret_memory)
{
    *ret_memory += g->arm == NT_ARM_TABLE ? UINT64_C(600) << 20 : 0;
    return NT_ST_OK;
}

static void memory_is_the_reason(const struct play *p)
{
    nothing_is_published(p);
    assert_true(p->r->memory_bytes[NT_ARM_TABLE] > p->r->memory_bytes[NT_ARM_DEFAULT]);
    for (size_t i = 0; i < p->r->nclasses; i++) {
        assert_non_null(strstr(p->r->classes[i].why, "memory"));
    }
}

static uint8_t table_does_not_start(const struct nt_plan_gang *g, uint64_t *ret_memory)
{
    (void)ret_memory;
    return g->arm == NT_ARM_TABLE ? NT_ST_ERROR : NT_ST_OK;
}

/* ------------------------------------------------------------------ the table */

static const struct machine {
    const char *name;
    void (*check)(const struct play *p);
    double (*factor)(const struct world_call *c);
    uint8_t (*fault)(const struct world_call *c);
    uint8_t (*start)(const struct nt_plan_gang *g, uint64_t *ret_memory);
    const char *setting, *as_found;
    double tail_share;
    uint64_t tail_every;
    bool lost_on_delivery; /* row_factor 0 */
    uint64_t max_memory_bytes;
} machines[] = {
    {.name = "a gain is there", .check = tree_is_published},
    {.name = "cliff just above a size", .check = row_ends_at_cliff},
    {.name = "noise in the middle of a row, not where it gains most",
     .check = tree_is_published,
     .factor = tree_scatters_below_1m},
    {.name = "gain in the search only", .check = nothing_is_published, .lost_on_delivery = true},
    {.name = "slower on the delivery path",
     .check = nothing_is_published,
     .factor = tree_slow_on_delivery},
    {.name = "modes with opposite winners", .check = no_tree, .factor = graph_hates_tree},
    {.name = "slower in place", .check = no_tree, .factor = tree_slow_in_place},
    {.name = "slower beside compute", .check = no_tree, .factor = tree_slow_beside_compute},
    {.name = "slow tail on the delivery path", .check = nothing_is_published, .tail_share = 0.12},
    {.name = "slow tail of single noisy gangs",
     .check = tree_is_published,
     .tail_share = 0.3,
     .tail_every = 4},
    {.name = "as found is faster",
     .check = judged_against_as_found,
     .factor = as_found_fast,
     .as_found = "NCCL_ALGO=tree"},
    {.name = "as found is slower",
     .check = judged_against_default,
     .factor = as_found_slow,
     .as_found = "NCCL_ALGO=ring"},
    {.name = "wrong above 600 KiB", .check = tree_below_600k_only, .fault = wrong_above_600k},
    {.name = "wrong in place", .check = no_tree, .fault = wrong_in_place},
    {.name = "wrong in graph mode", .check = no_tree, .fault = wrong_in_graph},
    {.name = "wrong in fp32", .check = no_tree, .fault = wrong_in_fp32},
    {.name = "wrong on the delivery path", .check = no_tree, .fault = wrong_on_delivery},
    {.name = "wrong in 3 of 10", .check = no_tree, .fault = wrong_sometimes},
    {.name = "fast and wrong",
     .check = no_tree,
     .fault = tree_is_wrong,
     .factor = tree_ten_times_as_fast},
    {.name = "hangs in replay", .check = no_tree, .fault = tree_hangs_in_replay},
    {.name = "a tuple that hangs", .check = no_tree, .fault = tree_hangs},
    {.name = "hangs on the delivery path", .check = no_tree, .fault = tree_hangs_on_delivery},
    {.name = "ranks that ran different things", .check = no_tree, .fault = ranks_disagree},
    {.name = "a refused tuple", .check = no_tree, .fault = tree_is_refused},
    {.name = "a better process setting",
     .check = wide_is_published,
     .factor = wide_is_better,
     .setting = CHANNELS},
    {.name = "a worse process setting",
     .check = wide_is_not_published,
     .factor = wide_is_worse,
     .setting = CHANNELS},
    {.name = "a process setting that changes nothing at small sizes",
     .check = wide_goes_with_the_table,
     .factor = wide_runs_the_same_small,
     .setting = CHANNELS},
    {.name = "calls that wait now and then beside compute",
     .check = tree_is_published,
     .factor = waits_now_and_then},
    {.name = "a process setting that falls on the delivery path",
     .check = rows_alone_are_published,
     .factor = wide_falls_on_delivery,
     .setting = CHANNELS},
    {.name = "a process setting that costs one size",
     .check = wide_is_not_published,
     .factor = wide_costs_small_sizes,
     .setting = CHANNELS},
    {.name = "a process setting that costs other collectives",
     .check = wide_is_not_published,
     .factor = wide_costs_others,
     .setting = CHANNELS},
    {.name = "a process setting that costs groups of calls",
     .check = rows_alone_are_published,
     .factor = wide_costs_groups,
     .setting = CHANNELS},
    {.name = "a process setting that does not start",
     .check = failed_start_is_told,
     .start = wide_does_not_start,
     .setting = CHANNELS},
    {.name = "a process setting that hangs",
     .check = failed_start_is_told,
     .fault = wide_hangs,
     .setting = CHANNELS},
    {.name = "a better process setting whose default hangs",
     .check = wide_is_not_published,
     .factor = wide_is_better,
     .fault = wide_default_hangs,
     .setting = CHANNELS},
    {.name = "memory limit",
     .check = memory_is_the_reason,
     .start = table_takes_memory,
     .max_memory_bytes = UINT64_C(512) << 20},
    {.name = "memory within the limit",
     .check = tree_is_published,
     .start = table_takes_memory,
     .max_memory_bytes = UINT64_C(700) << 20},
    {.name = "the delivered table does not start",
     .check = nothing_is_published,
     .start = table_does_not_start},
};

static void test_machine(void **state)
{
    const struct machine *m = *state;

    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct play p = {.spec = play_spec(LADDER, seed)};
        world_init(&p.w, seed);
        p.w.factor = m->factor;
        p.w.fault = m->fault;
        p.w.start = m->start;
        p.w.tail_share = m->tail_share;
        p.w.tail_every = m->tail_every;
        p.w.row_factor = m->lost_on_delivery ? 0 : 1;
        p.spec.max_memory_bytes = m->max_memory_bytes;
        if (m->setting != NULL) {
            (void)snprintf(p.spec.settings[1], NT_SETTING_LEN, "%s", m->setting);
            p.spec.nsettings = 2;
        }
        if (m->as_found != NULL) {
            (void)snprintf(p.spec.as_found, sizeof(p.spec.as_found), "%s", m->as_found);
        }
        play(&p);
        if (p.rc != 0) {
            fail_msg("seed %llu: %s", (unsigned long long)seed, p.err.msg);
        }
        play_never_worse(&p);
        m->check(&p);
        play_done(&p);
    }
}

/* ------------------------------------------------------------------ jobs that end with an error */

static uint8_t default_wrong(const struct world_call *c)
{
    bool looked = c->step->m.verify != NT_VERIFY_NO;
    return looked && c->step->m.call.algo < 0 ? NT_ST_WRONG : NT_ST_OK;
}

static uint8_t default_hangs(const struct world_call *c)
{
    return c->step->m.call.algo < 0 ? NT_ST_TIMEOUT : NT_ST_OK;
}

static uint8_t default_hangs_above_4m(const struct world_call *c)
{
    bool large = c->step->m.cs.bytes > (4 << 20);
    return large && c->step->m.call.algo < 0 ? NT_ST_TIMEOUT : NT_ST_OK;
}

static uint8_t default_errs(const struct world_call *c)
{
    return c->step->m.call.algo < 0 ? NT_ST_ERROR : NT_ST_OK;
}

static uint8_t everything_hangs_later(const struct world_call *c)
{
    return c->measure > 100 ? NT_ST_TIMEOUT : NT_ST_OK;
}

static uint8_t nothing_starts(const struct nt_plan_gang *g, uint64_t *ret_memory)
{
    (void)g;
    (void)ret_memory;
    return NT_ST_CRASHED;
}

static void test_ends(void **state)
{
    static const struct {
        const char *name;
        enum nt_code code;
        const char *says;
        uint8_t (*fault)(const struct world_call *c);
        uint8_t (*start)(const struct nt_plan_gang *g, uint64_t *ret_memory);
        double noise;
        uint64_t budget_ns;
    } rows[] = {
        {"the default is wrong", NT_E_NO, "wrong data", .fault = default_wrong},
        {"the default hangs", NT_E_MISSING, "in a row", .fault = default_hangs},
        {"the default hangs above 4 MiB", NT_E_MISSING, "default was lost",
         .fault = default_hangs_above_4m},
        {"the default errs", NT_E_MISSING, "in a row", .fault = default_errs},
        {"everything hangs later", NT_E_MISSING, "in a row", .fault = everything_hangs_later},
        {"nothing starts", NT_E_MISSING, "did not start", .start = nothing_starts},
        {"too noisy", NT_E_NOISY, "too noisy", .noise = 0.5},
        {"no budget", NT_E_INVAL, "least that works is", .budget_ns = 1000000000},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct play p = {.spec = play_spec(LADDER, 1)};
        world_init(&p.w, 1);
        p.w.fault = rows[i].fault;
        p.w.start = rows[i].start;
        p.w.gang_sd = fmax(p.w.gang_sd, rows[i].noise);
        p.w.block_sd = fmax(p.w.block_sd, rows[i].noise);
        p.spec.budget_ns = rows[i].budget_ns;
        play(&p);
        if (p.rc != -(int)rows[i].code || strstr(p.err.msg, rows[i].says) == NULL) {
            fail_msg("%s: %d '%s'", rows[i].name, p.rc, p.rc != 0 ? p.err.msg : "");
        }
        play_done(&p);
    }
}

static double least_of(const char *words)
{
    const char *at = strstr(words, "works is ");
    assert_non_null(at);
    return strtod(at + strlen("works is "), NULL);
}

/* The least budget that the refusal names works, and is kept; so is one that leaves some room. */
static void test_budget(void **state)
{
    static const struct {
        const char *sizes, *setting;
        double room;
        double (*factor)(const struct world_call *c);
    } rows[] = {{LADDER, NULL, 1, NULL},
                {LADDER, NULL, 1.5, NULL},
                {LADDER, CHANNELS, 1, wide_is_better},
                {LADDER, CHANNELS, 1.5, wide_is_better},
                {"512K", CHANNELS, 1, wide_is_better},
                {"256:64M", CHANNELS, 1.2, wide_is_better}};
    (void)state;

    for (size_t i = 0; i < 3 * sizeof(rows) / sizeof(rows[0]); i++) {
        /* An edge beyond the guard passes it in up to one of twenty: with seed 2 one does. */
        uint64_t seed = i % 3 + 3;
        struct play p = {.spec = play_spec(rows[i / 3].sizes, seed)};
        double least;
        if (rows[i / 3].setting != NULL) {
            (void)snprintf(p.spec.settings[1], NT_SETTING_LEN, "%s", rows[i / 3].setting);
            p.spec.nsettings = 2;
        }
        world_init(&p.w, seed);
        p.w.factor = rows[i / 3].factor;
        p.spec.budget_ns = 1000000000;
        play(&p);
        assert_int_equal(p.rc, -NT_E_INVAL);
        least = least_of(p.err.msg) * rows[i / 3].room;
        play_done(&p);

        world_init(&p.w, seed);
        p.w.factor = rows[i / 3].factor;
        p.spec.budget_ns = (uint64_t)(least * 1e9);
        play(&p);
        if (p.rc != 0 || p.w.clock_ns > p.spec.budget_ns) {
            fail_msg("row %zu, seed %llu: %.1f s of %.1f s: %s", i / 3, (unsigned long long)seed,
                     (double)p.w.clock_ns / 1e9, least, p.rc != 0 ? p.err.msg : "");
        }
        play_never_worse(&p);
        play_done(&p);
    }
}

/* What ends within a budget without one does so with it: the second round of a table whose
 * variables fell is not refused for want of time that is there. */
static void test_second_round_within_a_budget(void **state)
{
    static const uint64_t driver_ns = 250000; /* a measure */
    uint64_t whole = 0;
    (void)state;

    for (unsigned round = 0; round < 2; round++) {
        struct play p = {.spec = play_spec("256:64M", 2)};
        (void)snprintf(p.spec.settings[1], NT_SETTING_LEN, "%s", CHANNELS);
        p.spec.nsettings = 2;
        p.spec.budget_ns = whole + whole / 20;
        world_init(&p.w, 2);
        p.w.factor = wide_costs_groups;
        play(&p);
        assert_int_equal(p.rc, 0);
        rows_alone_are_published(&p);
        whole = p.w.clock_ns + p.w.measures * driver_ns;
        play_done(&p);
    }
}

/* ------------------------------------------------------------------ nothing to gain */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { NULL_SEEDS = 10 }; /* a sanitizer looks at the code, not at the odds */
#else
enum { NULL_SEEDS = 100 };
#endif

static void test_null(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= NULL_SEEDS; seed++) {
        struct play p = {.spec = play_spec("1K,64K,1M,8M", seed)};
        world_init(&p.w, seed);
        p.w.null = true;
        if (seed % 2 == 0) {
            (void)snprintf(p.spec.settings[1], NT_SETTING_LEN, CHANNELS);
            p.spec.nsettings = 2;
        }
        play(&p);
        if (p.rc != 0) {
            fail_msg("seed %llu: %s", (unsigned long long)seed, p.err.msg);
        }
        if (p.r->table_present || p.r->static_present || p.r->nrows > 0) {
            fail_msg("seed %llu: something is published where nothing is to be gained",
                     (unsigned long long)seed);
        }
        play_done(&p);
    }
}

/* ------------------------------------------------------------------ one hang, anywhere */

static const struct nt_found_arm *found_arm(const struct play *p, const struct nt_case *cs,
                                            const struct nt_call *call)
{
    const struct nt_found *f;
    for (size_t i = 0; (f = nt_plan_found(p->plan, i)) != NULL; i++) {
        for (size_t a = 0; f->cs.bytes == cs->bytes && f->cs.mode == cs->mode && a < f->narms;
             a++) {
            if (nt_call_equal(&f->arms[a].call, call)) {
                return &f->arms[a];
            }
        }
    }
    return NULL;
}

/* The job goes on, and what hung is in no row. */
static void test_one_hang(void **state)
{
    uint64_t n = 1, searched = 0, confirmed = 0;
    (void)state;

    for (;; n += 3) {
        struct play p = {.spec = play_spec("64K,512K,8M", 1)};
        const struct nt_plan_step *hung = &p.w.hung;
        world_init(&p.w, 1);
        p.spec.pairs = 8;
        p.w.hang_at = n;
        play(&p);
        if (p.rc != 0) {
            fail_msg("hang at measure %llu: %s", (unsigned long long)n, p.err.msg);
        }
        if (p.w.hung.kind != NT_DO_MEASURE) {
            play_done(&p);
            break;
        }
        play_never_worse(&p);
        if (hung->arm == NT_ARM_SEARCH && hung->m.call.algo >= 0) {
            const struct nt_found_arm *a = found_arm(&p, &hung->m.cs, &hung->m.call);
            searched++;
            if (a == NULL || a->status != NT_ST_TIMEOUT) {
                fail_msg("hang at measure %llu: the tuple is still in", (unsigned long long)n);
            }
        }
        if (hung->arm == NT_ARM_TABLE && hung->m.flags == 0 &&
            play_published(&p, hung->m.cs.bytes, (enum nt_mode)hung->m.cs.mode) != NULL) {
            fail_msg("hang at measure %llu: the row that hung is published", (unsigned long long)n);
        }
        confirmed += hung->arm == NT_ARM_TABLE;
        play_done(&p);
    }
    assert_true(searched > 20 && confirmed > 20);
}

enum { NMACHINES = sizeof(machines) / sizeof(machines[0]) };

int main(void)
{
    static struct CMUnitTest each[NMACHINES];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_second_round_within_a_budget),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_one_hang),
    };

    for (size_t i = 0; i < NMACHINES; i++) {
        each[i] = (struct CMUnitTest){.name = machines[i].name,
                                      .test_func = test_machine,
                                      .initial_state = (void *)&machines[i]};
    }
    return cmocka_run_group_tests_name("machines", each, NULL, NULL) +
           cmocka_run_group_tests(tests, NULL, NULL);
}
