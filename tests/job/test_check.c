/* The check of a profile: its rows, whole checks against a made-up machine, verdicts, what does not
 * fit, the history. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/job/world.h"
#include "tests/json/sample.h"
#include "tuner/base/rng.h"
#include "tuner/job/check.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ------------------------------------------------------------------ rows */

static void test_rows(void **state)
{
    struct nt_profile *p = nt_sample_profile();
    struct nt_check_row rows[NT_CHECK_ROWS];
    enum nt_product product;
    size_t n = 0;
    (void)state;
    assert_int_equal(nt_profile_finish(p, NULL), 0);
    assert_int_equal(nt_check_rows(p, &product, rows, &n, NULL), 0);
    assert_int_equal(product, NT_TABLE);
    assert_int_equal(n, 3); /* 14K eager and graph, 64M graph */
    assert_int_equal(rows[0].cs.bytes, 14336);
    assert_int_equal(rows[0].call.algo, NT_RING);
    assert_int_equal(rows[0].call.channels, 2);
    assert_int_equal(rows[0].executed.channels, 2);
    assert_int_equal(rows[0].min_bytes, 8192);
    assert_int_equal(rows[2].cs.bytes, 67108864);
    assert_int_equal(rows[2].cs.mode, NT_GRAPH);
    assert_true(fabs(rows[0].was + log(1 - p->product[NT_TABLE].classes.v[0].gain)) < 1e-12);
    nt_profile_free(p);

    /* A size that the row only keeps is looked at where there is none that gains. */
    for (int i = 0; i < 2; i++) {
        struct nt_profile_class *c;
        p = nt_sample_profile();
        c = nt_profile_add_class(p, NT_TABLE);
        *c = p->product[NT_TABLE].classes.v[0];
        c->bytes = 8192;
        c->verdict = NT_VD_KEPT;
        for (size_t k = 0; i == 1 && k < p->product[NT_TABLE].classes.n; k++) {
            c = &p->product[NT_TABLE].classes.v[k];
            c->verdict = c->bytes == 14336 ? NT_VD_KEPT : c->verdict;
        }
        assert_int_equal(nt_profile_finish(p, NULL), 0);
        assert_int_equal(nt_check_rows(p, &product, rows, &n, NULL), 0);
        assert_int_equal(rows[0].cs.bytes, i == 0 ? 14336 : 8192);
        assert_true(rows[0].gains == (i == 0));
        nt_profile_free(p);
    }

    p = nt_sample_empty();
    assert_int_equal(nt_check_rows(p, &product, rows, &n, NULL), 0);
    assert_int_equal(n, 0);
    nt_profile_free(p);
}

/* ------------------------------------------------------------------ whole checks */

static const struct nt_row_result served[] = {
    {.coll = NT_ALL_REDUCE,
     .min_bytes = 16384,
     .max_bytes = 1048576,
     .call = {.algo = NT_TREE, .proto = NT_SIMPLE, .channels = 2}}};

/* Rows at 512K in both modes, with the evidence that the made-up machine would give. */
static void make_rows(const struct world *w, struct nt_check_row rows[2])
{
    for (int i = 0; i < 2; i++) {
        struct nt_check_row *r = &rows[i];
        *r = (struct nt_check_row){
            .cs = {.bytes = 524288, .coll = NT_ALL_REDUCE, .mode = i == 0 ? NT_EAGER : NT_GRAPH},
            .min_bytes = served[0].min_bytes,
            .max_bytes = served[0].max_bytes,
            .call = served[0].call,
            .asked = served[0].call,
            .executed = NT_EXECUTED_NONE,
            .gains = true};
        r->was_default_ns = world_true_ns(w, &r->cs, &NT_CALL_DEFAULT, "");
        r->was_tuned_ns = world_true_ns(w, &r->cs, &r->call, "");
        r->was = log(r->was_default_ns / r->was_tuned_ns);
        r->was_lo = r->was - 0.03;
        r->was_hi = r->was + 0.03;
    }
}

/* As `spec` asks, with made-up rows. */
static unsigned check_rows(struct world *w, struct nt_check_spec spec,
                           const struct nt_row_result *row, struct nt_check_row rows[2],
                           struct nt_check_control controls[NT_CHECK_CONTROLS])
{
    struct nt_check_plan *p = NULL;
    unsigned counted;

    spec.arm = NT_ARM_TABLE;
    spec.vars = "";
    spec.rows = rows;
    spec.nrows = 2;
    spec.seed = 1;
    w->rows = row;
    w->nrows = 1;
    assert_int_equal(nt_check_plan_new(&spec, &p, NULL), 0);
    for (;;) {
        struct nt_plan_step s;
        struct nt_plan_outcome o;
        assert_int_equal(nt_check_next(p, &s, NULL), 0);
        if (s.kind == NT_DO_FINISHED) {
            break;
        }
        assert_true(w->steps < 20000);
        world_do(w, &s, &o);
        assert_int_equal(nt_check_tell(p, &o, NULL), 0);
    }
    counted = nt_check_judge(p, controls);
    nt_check_plan_free(p);
    return counted;
}

static unsigned check_as(struct world *w, struct nt_check_spec spec, struct nt_check_row rows[2],
                         struct nt_check_control controls[NT_CHECK_CONTROLS])
{
    return check_rows(w, spec, served, rows, controls);
}

static unsigned check(struct world *w, unsigned pairs, struct nt_check_row rows[2],
                      struct nt_check_control controls[NT_CHECK_CONTROLS])
{
    make_rows(w, rows);
    return check_as(w, (struct nt_check_spec){.least = pairs, .most = pairs}, rows, controls);
}

static double slower_default(const struct world_call *c)
{
    return c->step->arm == NT_ARM_DEFAULT && (c->step->m.flags & NT_M_CONTROL) == 0 ? 1.3 : 1;
}
static double faster_default(const struct world_call *c)
{
    return c->step->arm == NT_ARM_DEFAULT && (c->step->m.flags & NT_M_CONTROL) == 0 ? 0.4 : 1;
}
static double all_slower(const struct world_call *c)
{
    (void)c;
    return 1.5;
}
static uint8_t wrong_data(const struct world_call *c)
{
    return c->step->arm == NT_ARM_TABLE && c->step->m.verify != NT_VERIFY_NO ? NT_ST_WRONG
                                                                             : NT_ST_OK;
}

static void test_checks(void **state)
{
    const struct {
        const char *name;
        double row_factor;
        double (*factor)(const struct world_call *c);
        uint8_t (*fault)(const struct world_call *c);
        enum nt_check_verdict verdict;
        const char *says;
        enum nt_move of_default, of_tuned;
    } rows[] = {
        {"as it was", 1, NULL, NULL, NT_CK_HOLDS, "", NT_MOVE_SAME, NT_MOVE_SAME},
        {"gone", 0, NULL, NULL, NT_CK_DRIFTED, "gone", NT_MOVE_SAME, NT_MOVE_SLOWER},
        {"less", 0.5, NULL, NULL, NT_CK_DRIFTED, "less", NT_MOVE_SAME, NT_MOVE_SLOWER},
        {"default faster", 1, faster_default, NULL, NT_CK_DRIFTED, "slower", NT_MOVE_FASTER,
         NT_MOVE_SAME},
        {"default slower", 1, slower_default, NULL, NT_CK_HOLDS, "", NT_MOVE_SLOWER, NT_MOVE_SAME},
        {"all slower", 1, all_slower, NULL, NT_CK_HOLDS, "", NT_MOVE_SLOWER, NT_MOVE_SLOWER},
        {"wrong", 1, NULL, wrong_data, NT_CK_DRIFTED, "wrong data", NT_MOVE_SAME, NT_MOVE_UNKNOWN},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct world w;
        struct nt_check_row r[2];
        struct nt_check_control c[NT_CHECK_CONTROLS];
        world_init(&w, 7);
        w.gang_sd = w.block_sd = 0.01;
        w.interaction_sd = 0.002;
        w.row_factor = rows[i].row_factor;
        w.factor = rows[i].factor;
        w.fault = rows[i].fault;
        assert_int_equal(check(&w, 4, r, c), 4);
        for (int k = 0; k < 2; k++) {
            if (r[k].verdict != rows[i].verdict || strstr(r[k].why, rows[i].says) == NULL) {
                fail_msg("%s: %s (%s), ratio %.3f [%.3f, %.3f], was %.3f", rows[i].name,
                         nt_check_verdict_names[r[k].verdict], r[k].why, r[k].ratio.mean,
                         r[k].ratio.lo, r[k].ratio.hi, r[k].was);
            }
            assert_int_equal(nt_check_move(&r[k].log_default, r[k].was_default_ns),
                             rows[i].of_default);
            if (rows[i].of_tuned != NT_MOVE_UNKNOWN) {
                assert_int_equal(nt_check_move(&r[k].log_tuned, r[k].was_tuned_ns),
                                 rows[i].of_tuned);
            }
        }
        assert_int_equal(nt_check_worst(r, 2), rows[i].verdict);
        assert_int_equal(c[0].log_ns.n, 8);
        assert_true(fabs(exp(c[0].log_ns.mean) / (rows[i].factor == all_slower ? 67.5e3 : 45e3) -
                         1) < 0.05);
    }
}

/* Of a hundred checks of a profile that is true, few may say otherwise; with much noise it is said
 * that it cannot be told. */
static void test_false_alarms(void **state)
{
    unsigned drifted = 0, told = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct world w;
        struct nt_check_row r[2];
        struct nt_check_control c[NT_CHECK_CONTROLS];
        world_init(&w, seed);
        (void)check(&w, 3, r, c);
        drifted += nt_check_worst(r, 2) == NT_CK_DRIFTED;
        told += nt_check_worst(r, 2) == NT_CK_HOLDS;
        world_init(&w, seed);
        w.interaction_sd = 0.6;
        (void)check(&w, 3, r, c);
        drifted += nt_check_worst(r, 2) == NT_CK_DRIFTED;
    }
    assert_in_range(drifted, 0, 8);
    assert_in_range(told, 80, 100);
}

/* Gangs scatter too much to say that nothing is slower. */
static double gangs_scatter(const struct world_call *c)
{
    return 1 + 0.3 * ((double)(nt_mix(c->step->gang, 3) % 1000) / 1000 - 0.5);
}

/* A row that only keeps what the default runs is no slower for the pairs' scatter; one that runs
 * something else cannot be told. */
static void test_same_work(void **state)
{
    static const struct nt_row_result same = {
        .coll = NT_ALL_REDUCE,
        .min_bytes = 16384,
        .max_bytes = 1048576,
        .call = {.algo = NT_RING, .proto = NT_SIMPLE, .channels = 2}};
    (void)state;

    for (int kept = 0; kept < 2; kept++) {
        for (int gains = 0; gains < 2; gains++) {
            struct world w;
            struct nt_check_row r[2];
            struct nt_check_control c[NT_CHECK_CONTROLS];
            world_init(&w, 5);
            w.factor = gangs_scatter;
            make_rows(&w, r);
            for (int i = 0; i < 2; i++) {
                r[i].gains = gains;
                r[i].call = r[i].asked = kept ? same.call : served[0].call;
                r[i].was = r[i].was_lo = r[i].was_hi = gains ? 0.01 : 0;
            }
            w.row_factor = 0; /* nothing is gained by either */
            (void)check_rows(&w, (struct nt_check_spec){.least = 3, .most = 6},
                             kept ? &same : served, r, c);
            assert_int_equal(r[0].verdict, kept && !gains ? NT_CK_HOLDS : NT_CK_CANNOT_TELL);
            assert_true((r[0].why[0] == '\0') == (kept && !gains));
        }
    }
}

/* A gang that hangs costs its pair, and a fresh one takes its place; gangs that never come up end
 * it. */
static uint8_t no_start(const struct nt_plan_gang *g, uint64_t *ret_memory)
{
    (void)g;
    (void)ret_memory;
    return NT_ST_CRASHED;
}
static void test_losses(void **state)
{
    struct world w;
    struct nt_check_row r[2];
    struct nt_check_control c[NT_CHECK_CONTROLS];
    (void)state;
    world_init(&w, 3);
    w.hang_at = 20;
    assert_int_equal(check(&w, 3, r, c), 3);
    assert_int_equal(r[0].ratio.n, 3);
    assert_int_equal(nt_check_worst(r, 2), NT_CK_HOLDS);
    world_init(&w, 3);
    w.start = no_start;
    assert_int_equal(check(&w, 3, r, c), 0);
    assert_int_equal(r[0].verdict, NT_CK_NOT_MEASURED);
    assert_int_equal(nt_check_worst(r, 2), NT_CK_CANNOT_TELL);
}

/* ------------------------------------------------------------------ does it fit? */

static void test_fit(void **state)
{
    const struct {
        const char *nccl, *driver, *gpu, *group, *health, *placement, *despite, *what;
        bool stops;
    } rows[] = {
        {.what = NULL},
        {.nccl = "2.29.1", .what = "nccl", .stops = true},
        {.nccl = "2.29.1", .despite = "nccl", .what = "nccl"},
        {.driver = "999.1", .what = "driver", .stops = true},
        {.driver = "13.0", .what = NULL}, /* a recording's: of another kind */
        {.gpu = "Other GPU", .despite = "driver", .what = "gpu", .stops = true},
        {.group = "0000", .despite = "gpu", .what = "identity", .stops = true},
        {.health = "GPU 0: a narrow link", .what = "health", .stops = true},
        {.health = "GPU 0: a narrow link", .despite = "health", .what = "health"},
        {.what = "placement", .placement = "0a0b0c0d0e0f", .stops = true},
    };
    struct nt_profile *p = nt_sample_profile();
    (void)state;
    p->placement = "1a1b1c1d1e1f";
    assert_int_equal(nt_profile_finish(p, NULL), 0);
    assert_true(p->identity.groups.n > 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_check_outcome o = {0};
        struct nt_facts f = {.known = true, .groups = json_object(), .health = json_array()};
        struct nt_strs despite = {.v = {rows[i].despite}, .n = rows[i].despite != NULL};
        const struct nt_assign *g = &p->identity.groups.v[0];
        bool found = rows[i].what == NULL;
        (void)snprintf(f.nccl, sizeof(f.nccl), "%s",
                       rows[i].nccl != NULL ? rows[i].nccl : p->stack.nccl);
        (void)snprintf(f.driver, sizeof(f.driver), "%s",
                       rows[i].driver != NULL ? rows[i].driver : p->stack.driver);
        (void)snprintf(f.placement, sizeof(f.placement), "%s",
                       rows[i].placement != NULL ? rows[i].placement : p->placement);
        (void)snprintf(f.gpu, sizeof(f.gpu), "%s",
                       rows[i].gpu != NULL ? rows[i].gpu : p->stack.gpu);
        (void)json_object_set_new(f.groups, g->name,
                                  json_string(rows[i].group != NULL ? rows[i].group : g->value));
        for (size_t k = 0; k < p->health.n; k++) {
            (void)json_array_append_new(f.health, json_string(p->health.v[k]));
        }
        if (rows[i].health != NULL) {
            (void)json_array_append_new(f.health, json_string(rows[i].health));
        }
        nt_check_fit(p, &f, "", &despite, &o);
        for (size_t k = 0; k < o.ndiffers; k++) {
            if (rows[i].what != NULL && strcmp(o.differs[k].what, rows[i].what) == 0) {
                found = true;
                assert_int_equal(o.differs[k].stops, rows[i].stops);
            } else {
                assert_false(o.differs[k].stops);
            }
        }
        if (!found) {
            fail_msg("row %zu: %s is not said", i, rows[i].what);
        }
        nt_facts_done(&f);
    }
    nt_profile_free(p);
}

/* ------------------------------------------------------------------ history */

static void test_keep_and_history(void **state)
{
    char folder[] = "/tmp/nt-check-XXXXXX", path[64];
    struct nt_profile *p = nt_sample_profile();
    struct nt_store *s = NULL;
    struct nt_check_point *points = NULL;
    struct nt_buf b;
    size_t n = 0;
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/a.db", folder);
    assert_int_equal(nt_profile_finish(p, NULL), 0);
    assert_int_equal(nt_store_open(path, NT_STORE_WRITE, &s, NULL), 0);
    for (int i = 0; i < 3; i++) {
        struct nt_check_outcome o = {.pairs = 3};
        struct world w;
        world_init(&w, 5 + (uint64_t)i);
        w.row_factor = i < 2 ? 1 : 0;
        o.rows = calloc(2, sizeof(o.rows[0]));
        o.moves = calloc(2, sizeof(o.moves[0]));
        o.nrows = 2;
        memset(o.profile_hash, 'a', 64);
        (void)snprintf(o.facts.driver, sizeof(o.facts.driver), "%s", i < 2 ? "580.1" : "590.2");
        (void)check(&w, 3, o.rows, o.controls);
        o.verdict = nt_check_worst(o.rows, 2);
        assert_int_equal(nt_check_keep(s, p, "", &o, NULL), 0);
        assert_int_equal(o.last, i);
        assert_int_equal(o.check, i + 1);
        if (i > 0) {
            assert_int_equal(o.control_moves[0], NT_MOVE_SAME);
            assert_int_equal(o.moves[0].default_last, NT_MOVE_SAME);
        }
        nt_check_outcome_done(&o);
    }
    assert_int_equal(
        nt_check_history(s, "0000000000000000000000000000000000000000000000000000000000000000",
                         &points, &n, NULL),
        0);
    assert_int_equal(n, 0);
    free(points);
    assert_int_equal(
        nt_check_history(s, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                         &points, &n, NULL),
        0);
    assert_int_equal(n, 3);
    assert_true(points[0].ratio > 0.2 && points[2].ratio < 0.1);
    assert_string_equal(points[0].verdict, "holds");
    assert_string_equal(points[2].verdict, "drifted");
    nt_buf_init(&b, 4096);
    nt_check_point_diff(&points[1], &points[2], &b);
    assert_string_equal(nt_buf_str(&b), "driver was 580.1, is 590.2\n");
    nt_buf_clear(&b);
    nt_check_point_diff(&points[0], &points[1], &b);
    assert_non_null(strstr(nt_buf_str(&b), "nothing that is kept"));
    nt_buf_done(&b);
    free(points);
    nt_store_close(s);
    nt_profile_free(p);
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_false_alarms),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_same_work),
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_keep_and_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
