#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tuner/base/buf.h"
#include "tuner/base/json.h"
#include "tuner/job/spec.h"

static void test_sizes(void **state)
{
    static const struct {
        const char *text, *says; /* says: NULL when it is fine */
        size_t n;
        uint64_t first, last; /* after finish */
    } rows[] = {
        {"1K", NULL, 1, 1024, 1024},
        {"1K:256M", NULL, 19, 1024, 256 << 20},
        {"1K:1500", NULL, 1, 1024, 1024},
        {"4M,1K,14K,3.5M", NULL, 4, 1024, 4 << 20},
        {"1K:4K,2K,8K", NULL, 4, 1024, 8192},
        {"256", NULL, 1, 256, 256},
        {"", "empty word", 0, 0, 0},
        {"1K,,2K", "empty word", 0, 0, 0},
        {"4K:1K", "empty range", 0, 0, 0},
        {"0:4K", "", 0, 0, 0},
        {"16x", "16x", 0, 0, 0},
        {"1K:", "", 0, 0, 0},
        {"-4", "", 0, 0, 0},
        {"32G", "above 16G", 0, 0, 0},
        {"1:16G,3:16G", "more than 48 sizes", 0, 0, 0},
        {"8", "at least 16", 0, 0, 0},
        {"1026", NULL, 1, 1026, 1026},
        {"1027", "multiple of 2", 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_spec s;
        struct nt_err e = {0};
        int rc;
        nt_spec_init(&s);
        s.ranks = 4;
        s.colls[NT_ALL_REDUCE] = s.modes[NT_EAGER] = s.dtypes[NT_BF16] = s.places[0] = true;
        rc = nt_spec_add_sizes(&s, rows[i].text, &e);
        rc = rc == 0 ? nt_spec_finish(&s, &e) : rc;
        if (rc != (rows[i].says == NULL ? 0 : -NT_E_INVAL) ||
            (rc != 0 && strstr(e.msg, rows[i].says) == NULL)) {
            fail_msg("'%s': %d '%s'", rows[i].text, rc, e.msg);
        }
        if (rc == 0 && (s.nsizes != rows[i].n || s.sizes[0] != rows[i].first ||
                        s.sizes[s.nsizes - 1] != rows[i].last)) {
            fail_msg("'%s': %zu sizes, %llu to %llu", rows[i].text, s.nsizes,
                     (unsigned long long)s.sizes[0], (unsigned long long)s.sizes[s.nsizes - 1]);
        }
    }
}

/* Whole elements of every type, for every rank where each has a share; what is in place must exist.
 */
static void test_shares(void **state)
{
    static const struct {
        enum nt_coll coll;
        enum nt_dtype dtype;
        enum nt_place place;
        uint64_t bytes;
        const char *says;
    } rows[] = {
        {NT_ALL_REDUCE, NT_BF16, NT_IN_PLACE, 1000002, NULL},
        {NT_ALL_REDUCE, NT_FP8, NT_IN_PLACE, 1000001, NULL},
        {NT_ALL_REDUCE, NT_INT32, NT_IN_PLACE, 1000002, "multiple of 4"},
        {NT_BROADCAST, NT_FP16, NT_IN_PLACE, 1000002, NULL},
        {NT_ALL_GATHER, NT_BF16, NT_OUT_OF_PLACE, 1000008, NULL},
        {NT_ALL_GATHER, NT_BF16, NT_OUT_OF_PLACE, 1000002, "multiple of 8; 1000000 is one"},
        {NT_REDUCE_SCATTER, NT_FP32, NT_OUT_OF_PLACE, 1000008, "gives each of 4 ranks as much"},
        {NT_ALLTOALL, NT_FP8, NT_OUT_OF_PLACE, 1000004, NULL},
        {NT_ALLTOALL, NT_BF16, NT_IN_PLACE, 4096, "alltoall does not exist in place"},
        {NT_SENDRECV, NT_BF16, NT_IN_PLACE, 4096, "sendrecv does not exist in place"},
        {NT_SENDRECV, NT_BF16, NT_OUT_OF_PLACE, 4098, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_spec s;
        struct nt_err e = {0};
        int rc;
        nt_spec_init(&s);
        s.ranks = 4;
        s.colls[rows[i].coll] = s.modes[NT_EAGER] = s.dtypes[rows[i].dtype] = true;
        s.places[rows[i].place] = true;
        s.sizes[s.nsizes++] = rows[i].bytes;
        rc = nt_spec_finish(&s, &e);
        if (rc != (rows[i].says == NULL ? 0 : -NT_E_INVAL) ||
            (rc != 0 && strstr(e.msg, rows[i].says) == NULL)) {
            fail_msg("row %zu: %d '%s'", i, rc, e.msg);
        }
    }
}

static void test_finish(void **state)
{
    static const struct {
        const char *says;
        unsigned ranks, pairs;
        enum nt_effort effort;
        bool colls, modes, dtypes, places, sizes;
        unsigned want_pairs;
    } rows[] = {
        {NULL, 4, 0, NT_QUICK, true, true, true, true, true, 9},
        {NULL, 4, 0, NT_STANDARD, true, true, true, true, true, 12},
        {NULL, 2, 0, NT_THOROUGH, true, true, true, true, true, 16},
        {NULL, 1024, 8, NT_STANDARD, true, true, true, true, true, 8},
        {"2 to 1024", 1, 0, NT_STANDARD, true, true, true, true, true, 0},
        {"2 to 1024", 0, 0, NT_STANDARD, true, true, true, true, true, 0},
        {"2 to 1024", 1025, 0, NT_STANDARD, true, true, true, true, true, 0},
        {"8 to 16", 4, 7, NT_STANDARD, true, true, true, true, true, 0},
        {"8 to 16", 4, 17, NT_STANDARD, true, true, true, true, true, 0},
        {"nothing to tune", 4, 0, NT_STANDARD, false, true, true, true, true, 0},
        {"nothing to tune", 4, 0, NT_STANDARD, true, false, true, true, true, 0},
        {"nothing to tune", 4, 0, NT_STANDARD, true, true, false, true, true, 0},
        {"nothing to tune", 4, 0, NT_STANDARD, true, true, true, false, true, 0},
        {"nothing to tune", 4, 0, NT_STANDARD, true, true, true, true, false, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_spec s;
        struct nt_err e = {0};
        int rc;
        nt_spec_init(&s);
        s.ranks = rows[i].ranks;
        s.pairs = rows[i].pairs;
        s.effort = rows[i].effort;
        s.colls[NT_ALL_REDUCE] = rows[i].colls;
        s.modes[NT_EAGER] = rows[i].modes;
        s.dtypes[NT_BF16] = rows[i].dtypes;
        s.places[NT_IN_PLACE] = rows[i].places;
        s.sizes[0] = 1 << 20;
        s.nsizes = rows[i].sizes;
        rc = nt_spec_finish(&s, &e);
        if (rc != (rows[i].says == NULL ? 0 : -NT_E_INVAL) ||
            (rc != 0 && strstr(e.msg, rows[i].says) == NULL) ||
            (rc == 0 && s.pairs != rows[i].want_pairs)) {
            fail_msg("row %zu: %d '%s', %u pairs", i, rc, e.msg, s.pairs);
        }
    }
}

static void test_names(void **state)
{
    static const struct {
        const char *text, *says;
        unsigned on; /* bits of the table */
    } rows[] = {{"eager", NULL, 1U << NT_EAGER},
                {"graph,eager", NULL, 1U << NT_EAGER | 1U << NT_GRAPH},
                {"eager,eager", NULL, 1U << NT_EAGER},
                {"eagre", "did you mean 'eager'", 0},
                {"eager,", "empty word", 0},
                {"", "empty word", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool table[NT_MODE_COUNT] = {true, true, true};
        struct nt_err e = {0};
        unsigned on = 0;
        int rc = nt_spec_set(rows[i].text, nt_mode_names, "mode", table, NT_MODE_COUNT, &e);
        for (int m = 0; m < NT_MODE_COUNT; m++) {
            on |= table[m] ? 1U << m : 0;
        }
        if (rc != (rows[i].says == NULL ? 0 : -NT_E_INVAL) ||
            (rc == 0 ? on != rows[i].on : strstr(e.msg, rows[i].says) == NULL)) {
            fail_msg("'%s': %d '%s'", rows[i].text, rc, e.msg);
        }
    }
}

/* Each member is another value than the default, so that one left out is seen. */
static void fill(struct nt_spec *s)
{
    struct nt_err e = {0};

    nt_spec_init(s);
    s->rig = NT_RIG_RECORDING;
    s->shown_rig = NT_RIG_MPS_P2P;
    s->effort = NT_THOROUGH;
    s->seed = UINT64_C(1) << 62;
    s->ranks = 6;
    s->nodes = 3;
    s->colls[NT_ALL_REDUCE] = s->colls[NT_REDUCE] = true;
    s->modes[NT_STREAM] = s->modes[NT_GRAPH] = true;
    s->dtypes[NT_FP16] = s->dtypes[NT_FP8] = true;
    s->raced_dtype = NT_FP8;
    s->places[NT_IN_PLACE] = true;
    s->budget_ns = 123456789;
    s->max_memory_bytes = 77;
    s->pairs = 11;
    s->margin = 1.07;
    s->guard = 1.11;
    s->alpha = 0.013;
    (void)snprintf(s->settings[1], NT_SETTING_LEN, "NCCL_MIN_NCHANNELS=16 NCCL_NTHREADS=128");
    s->nsettings = 2;
    (void)snprintf(s->fixed, sizeof(s->fixed), "NCCL_NVLS_ENABLE=0");
    (void)snprintf(s->as_found, sizeof(s->as_found), "NCCL_ALGO=ring");
    (void)snprintf(s->devices, sizeof(s->devices), "6,7,0,1,2,3");
    s->extra_guards = false;
    s->no_groups = s->no_overlap = true;
    s->weights[0] = (struct nt_weight){1024, 122.5, NT_ALL_REDUCE, NT_GRAPH};
    s->nweights = 1;
    assert_int_equal(nt_spec_add_sizes(s, "1K:64K,100K", &e), 0);
    assert_int_equal(nt_spec_finish(s, &e), 0);
}

/* The type that is named first is raced. */
static void test_dtypes(void **state)
{
    static const struct {
        const char *text;
        int raced; /* -1: refused */
    } rows[] = {{"bf16,fp32", NT_BF16},  {"fp32,bf16", NT_FP32}, {"fp32", NT_FP32},
                {"int32,fp8", NT_INT32}, {"fp8,fp8", NT_FP8},    {"", -1},
                {",fp32", -1},           {"fp32,", -1},          {"fp33", -1}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_spec s;
        struct nt_err e = {0};
        int rc;
        nt_spec_init(&s);
        rc = nt_spec_set_dtypes(&s, rows[i].text, &e);
        assert_int_equal(rc < 0, rows[i].raced < 0);
        if (rc == 0) {
            assert_int_equal(s.raced_dtype, rows[i].raced);
            assert_true(s.dtypes[s.raced_dtype]);
        }
    }
}

static void test_json(void **state)
{
    struct nt_spec s, back;
    struct nt_err e = {0};
    json_t *a, *b;
    (void)state;

    fill(&s);
    a = nt_spec_to_json(&s);
    assert_non_null(a);
    assert_int_equal(nt_spec_from_json(a, &back, &e), 0);
    b = nt_spec_to_json(&back);
    assert_true(json_equal(a, b));
    assert_true(back.rig == s.rig && back.shown_rig == s.shown_rig && back.effort == s.effort);
    assert_true(back.seed == s.seed && back.ranks == 6 && back.nodes == 3 && back.pairs == 11);
    assert_memory_equal(back.colls, s.colls, sizeof(s.colls));
    assert_memory_equal(back.modes, s.modes, sizeof(s.modes));
    assert_memory_equal(back.dtypes, s.dtypes, sizeof(s.dtypes));
    assert_int_equal(back.raced_dtype, s.raced_dtype);
    assert_memory_equal(back.places, s.places, sizeof(s.places));
    assert_int_equal(back.nsizes, s.nsizes);
    assert_memory_equal(back.sizes, s.sizes, s.nsizes * sizeof(s.sizes[0]));
    assert_string_equal(back.devices, s.devices);
    assert_true(back.budget_ns == s.budget_ns && back.max_memory_bytes == 77);
    assert_memory_equal(&back.margin, &s.margin, sizeof(double));
    assert_memory_equal(&back.guard, &s.guard, sizeof(double));
    assert_memory_equal(&back.alpha, &s.alpha, sizeof(double));
    assert_int_equal(back.nsettings, 2);
    assert_string_equal(back.settings[0], "");
    assert_string_equal(back.settings[1], s.settings[1]);
    assert_string_equal(back.fixed, s.fixed);
    assert_string_equal(back.as_found, s.as_found);
    assert_false(back.extra_guards);
    assert_true(back.no_groups && back.no_overlap);
    assert_int_equal(back.nweights, 1);
    assert_true(back.weights[0].bytes == 1024 && back.weights[0].calls == 122.5 &&
                back.weights[0].coll == NT_ALL_REDUCE && back.weights[0].mode == NT_GRAPH);
    json_decref(a);
    json_decref(b);
}

/* A stored spec that somebody edited is refused, never half read. */
static void test_bad_json(void **state)
{
    static const struct {
        const char *member, *value, *says; /* value: JSON, or NULL to take it away */
    } rows[] = {
        {"rig", "\"ncl\"", "did you mean 'nccl'"},
        {"rig", NULL, "rig"},
        {"effort", "\"fast\"", "effort"},
        {"seed", "-1", "seed"},
        {"seed", "\"1\"", "seed"},
        {"ranks", "1", "2 to 1024"},
        {"ranks", "4294967298", "ranks"},
        {"pairs", "99", "8 to 16"},
        {"margin", "\"x\"", "margin"},
        {"modes", "[\"eagr\"]", "did you mean 'eager'"},
        {"modes", "[1]", "modes"},
        {"modes", "[]", "nothing to tune"},
        {"sizes", "[]", "nothing to tune"},
        {"sizes", "[-4]", "sizes"},
        {"sizes", "[\"1K\"]", "sizes"},
        {"settings", "[]", "settings"},
        {"settings", "[1]", "settings"},
        {"weights", "{}", "weights"},
        {"weights", "[1]", "weights"},
        {"weights", "[{\"collective\":\"all_reduc\",\"mode\":\"graph\",\"bytes\":4,\"calls\":1}]",
         "did you mean 'all_reduce'"},
        {"weights", "[{\"collective\":\"all_reduce\",\"mode\":\"graph\",\"bytes\":4,\"calls\":0}]",
         "above 0"},
        {"fixed", "7", "fixed"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_spec s, back = {.seed = 42};
        struct nt_err e = {0};
        json_t *o, *v;
        int rc;
        fill(&s);
        o = nt_spec_to_json(&s);
        v = rows[i].value != NULL ? json_loads(rows[i].value, JSON_DECODE_ANY, NULL) : NULL;
        assert_int_equal(v != NULL ? json_object_set_new(o, rows[i].member, v)
                                   : json_object_del(o, rows[i].member),
                         0);
        rc = nt_spec_from_json(o, &back, &e);
        if (rc != -NT_E_INVAL || strstr(e.msg, rows[i].says) == NULL || back.seed != 42) {
            fail_msg("%s = %s: %d '%s'", rows[i].member, rows[i].value, rc, rc ? e.msg : "");
        }
        json_decref(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),    cmocka_unit_test(test_shares),
        cmocka_unit_test(test_finish),   cmocka_unit_test(test_names),
        cmocka_unit_test(test_dtypes),   cmocka_unit_test(test_json),
        cmocka_unit_test(test_bad_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
