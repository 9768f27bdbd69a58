/* Rows that keep untuned collectives as they are without the table's variables. */
#include "tests/job/play.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tuner/job/plan_i.h"
#include "tuner/job/publish.h"

#define CHANNELS "NCCL_MIN_NCHANNELS=16"
#define THREADS  "NCCL_NTHREADS=256"
static const char LADDER[] = "1K,8K,64K,512K,4M,32M"; /* the guard looks at 8K, 512K and 4M */

static const struct world *made_up;

static bool under(const struct world_call *c)
{
    return c->step->vars[0] != '\0';
}

/* A broadcast or a reduce of about 512K. */
static bool taxed(const struct world_call *c)
{
    uint64_t bytes = c->step->m.cs.bytes;
    return (c->step->m.cs.coll == NT_BROADCAST || c->step->m.cs.coll == NT_REDUCE) &&
           bytes > 150000 && bytes < 2000000;
}

/* The world's own price of 16 channels for 2 is taken off, so that all else is as it was. */
static double same_price(const struct world_call *c)
{
    return c->x.channels == 16 ? (1 + 0.12 / 2 + 0.02) / (1 + 0.12 / 16 + 0.16) : 1;
}

static double helps(const struct world_call *c)
{
    return same_price(c) *
           (under(c) && c->x.channels == 16 && c->step->m.cs.coll == NT_ALL_REDUCE ? 0.9 : 1);
}

/* More channels cost 5 %. */
static double by_channels(const struct world_call *c)
{
    return helps(c) * (taxed(c) && c->x.channels == 16 ? 1.05 : 1);
}

/* Whatever runs takes 5 % longer than what ran. */
static double whatever(const struct world_call *c)
{
    const struct nt_case *cs = &c->step->m.cs;

    if (!under(c) || !taxed(c)) {
        return helps(c);
    }
    return 1.05 * world_true_ns(made_up, cs, &NT_CALL_DEFAULT, "") /
           world_true_ns(made_up, cs, &c->call, c->step->vars);
}

/* All calls gain by what no tuple shows, but for the taxed; of these one tuple takes what the
 * default does. */
static double by_algorithm(const struct world_call *c)
{
    bool good = c->x.algo == NT_TREE && c->x.proto == NT_SIMPLE;
    const struct nt_case *cs = &c->step->m.cs;

    if (!under(c)) {
        return 1;
    }
    if (!taxed(c)) {
        return 0.85;
    }
    return !good ? 1.06
                 : 0.99 * world_true_ns(made_up, cs, &NT_CALL_DEFAULT, "") /
                       world_true_ns(made_up, cs, &c->call, c->step->vars);
}

static bool asked_as_kept(const struct world_call *c)
{
    return taxed(c) && c->call.algo >= 0;
}

static uint8_t wrong_in_place(const struct world_call *c)
{
    return asked_as_kept(c) && c->step->m.cs.place == NT_IN_PLACE &&
                   c->step->m.verify != NT_VERIFY_NO
               ? NT_ST_WRONG
               : NT_ST_OK;
}

static uint8_t hangs(const struct world_call *c)
{
    return asked_as_kept(c) && c->step->m.cs.coll == NT_REDUCE ? NT_ST_TIMEOUT : NT_ST_OK;
}

static uint8_t refused(const struct world_call *c)
{
    return asked_as_kept(c) && c->step->arm == NT_ARM_SEARCH ? NT_ST_UNAVAILABLE : NT_ST_OK;
}

static const struct made {
    const char *name, *setting;
    double (*factor)(const struct world_call *c);
    uint8_t (*fault)(const struct world_call *c);
    bool with_vars; /* the published table has them */
    unsigned kept;  /* rows */
    const char *call;
} rows[] = {
    {"nobody pays", CHANNELS, helps, NULL, true, 0, ""},
    {"what ran gives it back", CHANNELS, by_channels, NULL, true, 2, "ring/simple/2"},
    {"nothing gives it back", CHANNELS, whatever, NULL, false, 0, ""},
    {"another tuple does", THREADS, by_algorithm, NULL, true, 2, "tree/simple/2"},
    {"wrong in place", CHANNELS, by_channels, wrong_in_place, false, 0, ""},
    {"it hangs", CHANNELS, by_channels, hangs, false, 0, ""},
    {"NCCL has it not", CHANNELS, by_channels, refused, false, 0, ""},
};

static void set_up(struct play *p, const struct made *r, uint64_t seed)
{
    *p = (struct play){.spec = play_spec(LADDER, seed)};
    world_init(&p->w, seed);
    made_up = &p->w;
    p->w.factor = r->factor;
    p->w.fault = r->fault;
    p->w.block_sd = p->w.gang_sd = 0.003;
    p->w.interaction_sd = 0.0005;
    p->spec.pairs = 8;
    (void)snprintf(p->spec.settings[1], NT_SETTING_LEN, "%s", r->setting);
    p->spec.nsettings = 2;
}

static void look_at_rows(const struct play *p, const struct made *r)
{
    unsigned kept = 0;
    char text[64];

    for (size_t i = 0; i < p->r->nrows; i++) {
        const struct nt_row_result *w = &p->r->rows[i];
        assert_int_equal(w->kept, w->coll != NT_ALL_REDUCE);
        if (!w->kept || w->min_bytes > 524288 || w->max_bytes < 524288) {
            continue; /* doubt may give a row to another size */
        }
        kept++;
        assert_true(w->coll == NT_BROADCAST || w->coll == NT_REDUCE);
        assert_string_equal(nt_call_text(&w->call, text, sizeof(text)), r->call);
        assert_true(w->min_bytes > 65536 && w->max_bytes < 4194304);
    }
    if (kept != r->kept) {
        fail_msg("%s: %u rows keep a call, not %u", r->name, kept, r->kept);
    }
}

static void look_at_classes(const struct play *p, const struct made *r)
{
    bool gained = false;

    for (size_t i = 0; i < p->r->nclasses; i++) {
        const struct nt_class_result *c = &p->r->classes[i];
        assert_int_equal(c->kept, c->cs.coll != NT_ALL_REDUCE);
        gained = gained || (c->product == NT_ARM_TABLE && c->published && c->p <= p->spec.alpha);
        if (c->kept) {
            assert_true(c->published && isnan(c->p) && fabs(c->gain) < 0.03);
            assert_int_equal(c->pairs, p->spec.pairs);
        }
    }
    if (!gained) {
        fail_msg("%s: no gain", r->name);
    }
}

static void test_worlds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
            struct play p;
            set_up(&p, &rows[i], seed);
            play(&p);
            if (p.rc != 0) {
                fail_msg("%s: %s", rows[i].name, p.err.msg);
            }
            if ((strcmp(p.r->table_vars, rows[i].setting) == 0) != rows[i].with_vars ||
                !p.r->table_present) {
                fail_msg("%s, seed %llu: published '%s', withdrawn '%s'", rows[i].name,
                         (unsigned long long)seed, p.r->table_vars, p.r->withdrawn);
            }
            look_at_rows(&p, &rows[i]);
            look_at_classes(&p, &rows[i]);
            play_done(&p);
        }
    }
}

/* It is a part of the budget. */
static void test_budget(void **state)
{
    struct play p;
    uint64_t least;
    (void)state;

    set_up(&p, &rows[1], 1);
    play(&p);
    least = nt_plan_least_budget(p.plan);
    play_done(&p);
    for (unsigned tenths = 14; tenths <= 30; tenths += 4) {
        set_up(&p, &rows[1], 1);
        p.spec.budget_ns = least * tenths / 10;
        play(&p);
        assert_int_equal(p.rc, 0);
        assert_true(p.w.clock_ns <= p.spec.budget_ns);
        look_at_rows(&p, &rows[1]);
        play_done(&p);
    }
}

static void test_judging(void **state)
{
    static const struct {
        double log_ratio, se, noise;
        bool slower, doubt, no_slower;
    } table[] = {
        {0, 0.001, 0.01, false, false, true},
        {0.03, 0.002, 0, true, true, false},
        {0.012, 0.001, 0, false, false, true},
        {0.016, 0.009, 0, false, true,
         false}, /* blocks scatter too much to say that it is slower */
        {0.016, 0.004, 0, true, false, false},
        {0.005, 0.004, 0.02, false, true, true}, /* pairs scatter too much to say that it is not */
        {-0.02, 0.005, 0.02, false, false, true},
        {NAN, INFINITY, 0.02, false, false, false},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        double x = table[i].log_ratio, se = table[i].se;
        if (kept_is_slower(x, se, 1.03) != table[i].slower ||
            kept_is_in_doubt(x, se, 1.03, table[i].noise) != table[i].doubt ||
            kept_is_no_slower(x, se, 1.03) != table[i].no_slower) {
            fail_msg("row %zu", i);
        }
    }
}

static void test_others(void **state)
{
    static const struct {
        const char *sizes;
        uint32_t n;
        uint64_t first[3];
    } table[] = {{"1K", 4, {1024}},
                 {"1K,1M", 8, {1024, 1048576}},
                 {"1K,8K,64K,512K,4M,32M", 12, {8192, 524288, 4194304}}};
    (void)state;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct nt_spec spec = play_spec(table[i].sizes, 1);
        struct nt_case cases[MAX_OTHERS];
        uint32_t at[MAX_OTHERS], n;
        struct nt_plan *p = NULL;
        struct nt_err err;
        assert_int_equal(nt_plan_new(&spec, &p, &err), 0);
        n = kept_others(p, cases, at);
        assert_int_equal(n, table[i].n);
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(cases[k].bytes, table[i].first[k % (n / 4)]);
            assert_int_equal(spec.sizes[at[k]], cases[k].bytes);
            assert_int_equal(cases[k].mode, NT_EAGER);
            assert_true(cases[k].coll != NT_ALL_REDUCE);
        }
        nt_plan_free(p);
    }
}

/* What a kept size would have had is told, where that was something. */
static void test_forgone(void **state)
{
    static const struct {
        double as_is, pick;
        uint32_t at; /* of the pick */
        bool told;
    } table[] = {{0, -0.15, 2, true},      {0.004, -0.15, 0, true},  {0, -0.01, 2, false},
                 {-0.15, -0.15, 1, false}, {-0.05, -0.15, 2, false}, {NAN, -0.15, 2, false},
                 {0, NAN, 2, false}};
    const struct nt_call kept = {.algo = NT_RING, .proto = NT_SIMPLE, .channels = 24};
    (void)state;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct nt_found_arm arms[3] = {{.call = NT_CALL_DEFAULT},
                                       {.call = kept, .log_ratio = table[i].as_is},
                                       {.call = {.algo = NT_TREE, .proto = NT_LL}}};
        const struct nt_found f = {.arms = arms, .narms = 3, .pick = table[i].at};
        const struct nt_found_arm *told;
        arms[table[i].at].log_ratio = table[i].pick;
        told = nt_publish_forgone(&f, &kept);
        if ((told != NULL) != table[i].told || (told != NULL && told != &arms[table[i].at])) {
            fail_msg("row %zu", i);
        }
    }
    assert_null(nt_publish_forgone(NULL, &kept));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_judging),
                                       cmocka_unit_test(test_others), cmocka_unit_test(test_worlds),
                                       cmocka_unit_test(test_budget),
                                       cmocka_unit_test(test_forgone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
