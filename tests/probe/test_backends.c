/* Who moves the bytes: NCCL on other buffers and our own kernels, between real processes. The
 * kernels' code is the device's own (shots.h), with one lane a block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "tests/probe/ranks.h"

enum { MAX_BYTES = 1 << 18 };

static void start(struct ranks *r, unsigned n, const char *const *env)
{
    ranks_start(r, n, env);
    ranks_init(r, MAX_BYTES, true);
    for (unsigned i = 0; i < n; i++) {
        struct nt_msg m;
        ranks_hear(r, i, NT_MSG_READY, &m);
        nt_msg_done(&m);
    }
}

static struct nt_measure question(int backend, int algo, int proto, uint64_t bytes)
{
    return (struct nt_measure){
        .id = 7,
        .cs = {.bytes = bytes, .coll = NT_ALL_REDUCE, .dtype = NT_BF16, .mode = NT_EAGER},
        .call = {.algo = (int8_t)algo, .proto = (int8_t)proto, .backend = (uint8_t)backend},
        .warmup = 1,
        .samples = 3,
        .inner = 3,
        .verify = NT_VERIFY_BOTH,
        .flags = NT_M_READBACK | NT_M_BITS,
        .deadline_ms = 20000};
}

static const struct {
    int backend, algo, proto;
} calls[] = {{NT_BE_IPC, NT_ONE_SHOT, NT_LL},
             {NT_BE_IPC, NT_ONE_SHOT, NT_PUSH},
             {NT_BE_IPC, NT_ONE_SHOT, NT_PULL},
             {NT_BE_IPC, NT_ONE_SHOT, NT_DIRECT},
             {NT_BE_IPC, NT_TWO_SHOT, NT_PUSH},
             {NT_BE_IPC, NT_TWO_SHOT, NT_PULL},
             {NT_BE_IPC, NT_TWO_SHOT, NT_DIRECT},
             {NT_BE_HOST, NT_ONE_SHOT, NT_PULL},
             {NT_BE_HOST, NT_TWO_SHOT, NT_PULL},
             {NT_BE_IPC, -1, -1},
             {NT_BE_HOST, -1, -1}};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static void check_one(struct ranks *r, const struct nt_measure *m)
{
    struct nt_msg got[RANKS_MAX];
    bool exists = m->call.algo != NT_ONE_SHOT ||
                  ((m->call.proto != NT_DIRECT || m->cs.place != NT_IN_PLACE) &&
                   (m->call.proto != NT_LL || m->cs.bytes <= 1 << 18));
    ranks_measure(r, m, got);
    for (unsigned k = 0; k < r->n; k++) {
        const struct nt_result *x = &got[k].result;
        char call[64], cs[64];
        bool ok = exists ? x->status == NT_ST_OK && x->count == m->samples && x->bits != 0
                         : x->status == NT_ST_UNAVAILABLE;
        if (!ok || (exists && (x->executed.algo < NT_ONE_SHOT || x->executed.channels == 0)) ||
            (exists && m->call.algo >= 0 && x->executed.algo != m->call.algo)) {
            fail_msg("%s %s of %u: %s, %u wrong: %s", nt_call_text(&m->call, call, sizeof(call)),
                     nt_case_text(&m->cs, cs, sizeof(cs)), r->n, nt_status_names[x->status],
                     (unsigned)x->wrong, x->error);
        }
    }
    ranks_results_done(r, got);
}

/* Every variant, mode, place and type; sizes that are no multiple of anything. */
static void test_all_variants_are_right(void **state)
{
    static const unsigned worlds[] = {2, 3, 4};
    static const uint64_t bytes[] = {4, 4 * 1021, 4 * 16385};
    static const uint8_t dtypes[] = {NT_BF16, NT_FP32, NT_FP16};
    (void)state;
    for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
        static const char *const env[] = {"FAKE_NCCL_SPEED=0.01", NULL};
        struct ranks r;
        unsigned n = 0;
        start(&r, worlds[w], env);
        for (size_t b = 0; b < sizeof(bytes) / sizeof(bytes[0]); b++) {
            for (size_t c = 0; c < CALLS; c++, n++) { /* the rest goes round */
                struct nt_measure m =
                    question(calls[c].backend, calls[c].algo, calls[c].proto, bytes[b]);
                m.cs.mode = (uint8_t)(n % NT_MODE_COUNT);
                m.cs.place = (uint8_t)(n / 3 % NT_PLACE_COUNT);
                m.cs.dtype = dtypes[n / 2 % 3];
                m.call.channels = (uint16_t)(calls[c].algo < 0 ? 0 : n % 5);
                check_one(&r, &m);
            }
        }
        ranks_quit(&r);
    }
}

/* Two ranks: a sum has one rounding whoever makes it. With more the order shows. */
static void test_bits(void **state)
{
    static const struct {
        unsigned world;
        uint8_t dtype, backend, bits;
    } rows[] = {{2, NT_BF16, NT_BE_IPC, NT_BITS_SAME},
                {2, NT_FP32, NT_BE_HOST, NT_BITS_SAME},
                {4, NT_BF16, NT_BE_IPC, NT_BITS_DIFFERENT},
                {4, NT_BF16, NT_BE_REGISTERED, NT_BITS_SAME}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ranks r;
        struct nt_msg got[RANKS_MAX];
        struct nt_measure m = question(rows[i].backend, -1, -1, 8192);
        start(&r, rows[i].world, NULL);
        m.cs.dtype = rows[i].dtype;
        ranks_measure(&r, &m, got);
        for (unsigned k = 0; k < r.n; k++) {
            assert_int_equal(got[k].result.status, NT_ST_OK);
            if (got[k].result.bits != rows[i].bits) {
                fail_msg("row %zu: bits %s", i, nt_bits_names[got[k].result.bits]);
            }
        }
        ranks_results_done(&r, got);
        ranks_quit(&r);
    }
}

/* What is not to be had is said with its reason, on every rank, again when asked again, and the
 * ranks stay in step. */
static void test_unavailable(void **state)
{
    static const struct {
        const char *env;
        int backend;
        int coll;
        const char *why;
    } rows[] = {
        {"FAKE_NCCL_NO_WINDOWS=1", NT_BE_NCCL_SYMMETRIC, NT_ALL_REDUCE, "no symmetric window"},
        {"FAKE_DEV_NO_PEER=1", NT_BE_IPC, NT_ALL_REDUCE, "not supported"},
        {"X=1", NT_BE_TORCH, NT_ALL_REDUCE, "framework probe"},
        {"X=1", NT_BE_IPC, NT_ALL_GATHER, "no all_gather"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *const env[] = {rows[i].env, NULL};
        struct ranks r;
        struct nt_msg got[RANKS_MAX];
        start(&r, 2, env);
        for (int again = 0; again < 2; again++) {
            struct nt_measure m = question(rows[i].backend, -1, -1, 4096);
            m.cs.coll = (uint8_t)rows[i].coll;
            ranks_measure(&r, &m, got);
            for (unsigned k = 0; k < 2; k++) {
                assert_int_equal(got[k].result.status, NT_ST_UNAVAILABLE);
                if (strstr(got[k].result.error, rows[i].why) == NULL) {
                    fail_msg("row %zu: %s", i, got[k].result.error);
                }
            }
            ranks_results_done(&r, got);
            m = question(NT_BE_NCCL, -1, -1, 4096);
            ranks_measure(&r, &m, got);
            assert_int_equal(got[0].result.status, NT_ST_OK);
            ranks_results_done(&r, got);
        }
        ranks_quit(&r);
    }
}

static void test_symmetric_kernel_is_seen(void **state)
{
    struct ranks r;
    struct nt_msg got[RANKS_MAX];
    struct nt_measure m = question(NT_BE_NCCL_SYMMETRIC, -1, -1, 4096);
    (void)state;
    start(&r, 2, NULL);
    ranks_measure(&r, &m, got);
    assert_int_equal(got[0].result.status, NT_ST_OK);
    assert_int_equal(got[0].result.executed.algo, NT_SYMMETRIC);
    ranks_results_done(&r, got);
    ranks_quit(&r);
}

/* Wrong only above a size, only in place, only now and then: never a sample. */
static void test_wrong_data(void **state)
{
    static const struct {
        const char *fault;
        uint64_t bytes;
        int mode, place;
        bool seen;
    } rows[] = {{"wrong:1:65536", 65536, NT_EAGER, NT_OUT_OF_PLACE, true},
                {"wrong:1:65536", 32768, NT_EAGER, NT_OUT_OF_PLACE, false},
                {"wrong:0:0:in-place", 4096, NT_GRAPH, NT_IN_PLACE, true},
                {"wrong:0:0:in-place", 4096, NT_GRAPH, NT_OUT_OF_PLACE, false},
                {"wrong:1:0:sometimes", 4096, NT_STREAM, NT_OUT_OF_PLACE, true},
                {"wrong:1:0:replay", 4096, NT_GRAPH, NT_OUT_OF_PLACE, true}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[64];
        const char *const env[] = {text, NULL};
        struct ranks r;
        struct nt_msg got[RANKS_MAX];
        struct nt_measure m = question(NT_BE_IPC, NT_TWO_SHOT, NT_PUSH, rows[i].bytes);
        (void)snprintf(text, sizeof(text), "FAKE_SHOT_FAULT=%s", rows[i].fault);
        m.cs.mode = (uint8_t)rows[i].mode;
        m.cs.place = (uint8_t)rows[i].place;
        start(&r, 2, env);
        ranks_measure(&r, &m, got);
        for (unsigned k = 0; k < 2; k++) {
            int want = rows[i].seen ? NT_ST_WRONG : NT_ST_OK;
            if (got[k].result.status != want) {
                fail_msg("%s, row %zu: %s %s", rows[i].fault, i,
                         nt_status_names[got[k].result.status], got[k].result.error);
            }
        }
        ranks_results_done(&r, got);
        ranks_quit(&r);
    }
}

/* A rank that does not come, also only in a replay: the watchdog on the device ends it, in a part
 * of the deadline. */
static void test_hang_is_given_up(void **state)
{
    static const struct {
        const char *fault;
        int mode;
    } rows[] = {{"hang:1", NT_EAGER}, {"hang:0:0:replay", NT_GRAPH}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[64];
        const char *const env[] = {text, NULL};
        struct ranks r;
        struct nt_msg got[RANKS_MAX];
        struct nt_measure m = question(NT_BE_IPC, -1, -1, 4096);
        uint64_t begin = ranks_now_ms();
        (void)snprintf(text, sizeof(text), "FAKE_SHOT_FAULT=%s", rows[i].fault);
        m.cs.mode = (uint8_t)rows[i].mode;
        m.deadline_ms = 2000;
        start(&r, 2, env);
        ranks_measure(&r, &m, got);
        assert_int_equal(got[0].result.count, 0);
        assert_int_equal(got[1].result.count, 0);
        assert_true(got[0].result.status == NT_ST_TIMEOUT || got[1].result.status == NT_ST_TIMEOUT);
        assert_true(ranks_now_ms() - begin < 30000);
        ranks_results_done(&r, got);
        ranks_kill(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_variants_are_right),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_unavailable),
        cmocka_unit_test(test_symmetric_kernel_is_seen),
        cmocka_unit_test(test_wrong_data),
        cmocka_unit_test(test_hang_is_given_up),
    };
    return cmocka_run_group_tests_name("probe_backends", tests, NULL, NULL);
}
