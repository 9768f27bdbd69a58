#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/probe/ranks.h"

enum { MAX_BYTES = 1 << 14, GONE_MS = 3000 };

static void start(struct ranks *r, unsigned n, const char *fault)
{
    char text[128];
    const char *const env[] = {text, "FAKE_NCCL_SPEED=0.1", NULL};
    (void)snprintf(text, sizeof(text), "FAKE_NCCL_FAULT=%s", fault);
    ranks_start(r, n, env);
    ranks_init(r, MAX_BYTES, true);
}

static void take_ready(struct ranks *r)
{
    for (unsigned i = 0; i < r->n; i++) {
        struct nt_msg m;
        ranks_hear(r, i, NT_MSG_READY, &m);
        nt_msg_done(&m);
    }
}

static struct nt_measure question(enum nt_coll coll, uint64_t bytes)
{
    return (struct nt_measure){
        .id = 7,
        .cs = {.bytes = bytes, .coll = (uint8_t)coll, .dtype = NT_FP32, .mode = NT_EAGER},
        .call = {.algo = -1, .proto = -1},
        .warmup = 1,
        .samples = 3,
        .inner = 2,
        .verify = NT_VERIFY_BOTH,
        .deadline_ms = 20000};
}

static void ask_all(struct ranks *r, const struct nt_measure *m)
{
    const struct nt_msg q = {.type = NT_MSG_MEASURE, .measure = *m};
    for (unsigned i = 0; i < r->n; i++) {
        ranks_say(r, i, &q);
    }
}

/* Long enough that all are inside the call; nothing depends on it being exact. */
static void let_them_hang(void)
{
    (void)usleep(200000);
}

static void assert_exit(int status, int code)
{
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

/* One rank has wrong data, another place is written, or the input: all ranks say so, none is timed,
 * and only that rank counts. */
static void test_wrong_data(void **state)
{
    static const struct {
        const char *fault;
        enum nt_coll coll;
        unsigned rank;
    } rows[] = {{"wrong:1:4096", NT_ALL_REDUCE, 1},       {"overrun:0:4096", NT_ALL_REDUCE, 0},
                {"input:1:4096", NT_ALL_REDUCE, 1},       {"wrong:0:4096", NT_ALL_GATHER, 0},
                {"overrun:1:4096", NT_REDUCE_SCATTER, 1}, {"wrong:1:4096", NT_REDUCE, 1},
                {"wrong:1:2048", NT_ALLTOALL, 1},         {"wrong:0:4096", NT_SENDRECV, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ranks r;
        start(&r, 2, rows[i].fault);
        take_ready(&r);
        for (int mode = 0; mode < NT_MODE_COUNT; mode++) {
            struct nt_measure m = question(rows[i].coll, 4096);
            struct nt_msg got[RANKS_MAX];
            m.cs.mode = (uint8_t)mode;
            ranks_measure(&r, &m, got);
            for (unsigned k = 0; k < 2; k++) {
                const struct nt_result *x = &got[k].result;
                if (x->status != NT_ST_WRONG || x->count != 0 ||
                    (x->wrong > 0) != (k == rows[i].rank)) {
                    fail_msg("%s %s mode %d rank %u: %s, %u wrong", rows[i].fault,
                             nt_coll_names[rows[i].coll], mode, k, nt_status_names[x->status],
                             (unsigned)x->wrong);
                }
            }
            ranks_results_done(&r, got);
            m.cs.bytes = 1024; /* below the fault */
            ranks_measure(&r, &m, got);
            assert_int_equal(got[rows[i].rank].result.status, NT_ST_OK);
            ranks_results_done(&r, got);
        }
        ranks_quit(&r);
    }
}

static void test_only_one_cell_is_wrong(void **state)
{
    struct ranks r;
    struct nt_measure m = question(NT_ALL_REDUCE, 4096);
    struct nt_msg got[RANKS_MAX];
    (void)state;
    start(&r, 2, "wrong:*:0:ring:ll");
    take_ready(&r);
    for (int proto = NT_LL; proto <= NT_SIMPLE; proto += NT_SIMPLE) {
        m.call = (struct nt_call){.algo = NT_RING, .proto = (int8_t)proto};
        ranks_measure(&r, &m, got);
        assert_int_equal(got[0].result.status, proto == NT_LL ? NT_ST_WRONG : NT_ST_OK);
        ranks_results_done(&r, got);
    }
    ranks_quit(&r);
}

static void test_lie_is_passed_on(void **state)
{
    struct ranks r;
    struct nt_measure m = question(NT_ALL_REDUCE, 4096);
    struct nt_msg got[RANKS_MAX];
    (void)state;
    start(&r, 2, "lie:1");
    take_ready(&r);
    m.flags = NT_M_READBACK;
    ranks_measure(&r, &m, got);
    assert_int_equal(got[0].result.executed.channels + 1, got[1].result.executed.channels);
    ranks_results_done(&r, got);
    ranks_quit(&r);
}

/* All ranks are inside a call that never returns, at different places. */
static void test_driver_dies_in_a_hang(void **state)
{
    struct ranks r;
    struct nt_measure m = question(NT_ALL_REDUCE, 4096);
    (void)state;
    start(&r, 2, "hang:1");
    take_ready(&r);
    ask_all(&r, &m);
    let_them_hang();
    for (unsigned i = 0; i < 2; i++) {
        (void)close(r.fd[i]);
        r.fd[i] = -1;
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_exit(ranks_end(&r, i, GONE_MS), 5);
    }
    ranks_kill(&r);
}

static void test_abort_and_term_in_a_hang(void **state)
{
    const struct nt_msg stop = {.type = NT_MSG_ABORT};
    struct nt_measure m = question(NT_ALL_REDUCE, 4096);
    (void)state;
    for (int by_signal = 0; by_signal < 2; by_signal++) {
        struct ranks r;
        start(&r, 2, "hang:0");
        take_ready(&r);
        ask_all(&r, &m);
        let_them_hang();
        for (unsigned i = 0; i < 2; i++) {
            if (by_signal != 0) {
                assert_int_equal(kill(r.pid[i], SIGTERM), 0);
            } else {
                ranks_say(&r, i, &stop);
            }
        }
        for (unsigned i = 0; i < 2; i++) {
            assert_exit(ranks_end(&r, i, GONE_MS), 5);
        }
        ranks_kill(&r);
    }
}

/* Even when aborting does not come back. */
static void test_abort_hangs(void **state)
{
    const struct nt_msg stop = {.type = NT_MSG_ABORT};
    struct nt_measure m = question(NT_ALL_REDUCE, 4096);
    struct ranks r;
    int status;
    (void)state;
    start(&r, 2, "hang:*,abort-hang:0");
    take_ready(&r);
    ask_all(&r, &m);
    let_them_hang();
    ranks_say(&r, 0, &stop);
    status = ranks_end(&r, 0, GONE_MS);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGALRM);
    ranks_kill(&r);
}

static void test_init_faults(void **state)
{
    const struct nt_msg stop = {.type = NT_MSG_ABORT};
    struct nt_msg m;
    struct ranks r;
    (void)state;
    start(&r, 2, "init-error:1");
    ranks_hear(&r, 1, NT_MSG_ERROR, &m);
    assert_non_null(strstr(m.error, "communicator creation on rank 1: invalid usage: a fault"));
    nt_msg_done(&m);
    assert_exit(ranks_end(&r, 1, GONE_MS), 1);
    ranks_say(&r, 0, &stop); /* it waits for rank 1 inside communicator creation */
    assert_exit(ranks_end(&r, 0, GONE_MS), 5);
    ranks_kill(&r);
    start(&r, 2, "init-hang:0,init-crash:1");
    assert_true(WIFSIGNALED(ranks_end(&r, 1, GONE_MS)));
    (void)close(r.fd[0]);
    r.fd[0] = -1;
    assert_exit(ranks_end(&r, 0, GONE_MS), 5);
    ranks_kill(&r);
}

/* A call that fails is a result with words; the rank that waits for it is released by the page or
 * ended by the driver. */
static void test_call_fails(void **state)
{
    struct nt_measure m = question(NT_ALL_REDUCE, 4096);
    struct nt_msg got[RANKS_MAX];
    struct ranks r;
    (void)state;
    start(&r, 2, "error:*");
    take_ready(&r);
    ranks_measure(&r, &m, got);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(got[i].result.status, NT_ST_ERROR);
        assert_non_null(strstr(got[i].result.error, "all_reduce on rank "));
        assert_non_null(
            strstr(got[i].result.error, "unhandled system error: a fault was asked for"));
    }
    ranks_results_done(&r, got);
    ranks_measure(&r, &m, got); /* and it is not forgotten */
    assert_non_null(strstr(got[0].result.error, "an earlier trial failed: all_reduce on rank 0"));
    ranks_results_done(&r, got);
    ranks_quit(&r);
}

static void test_crash(void **state)
{
    struct nt_measure m = question(NT_ALL_REDUCE, 4096);
    struct ranks r;
    (void)state;
    start(&r, 2, "crash:1");
    take_ready(&r);
    ask_all(&r, &m);
    assert_true(WIFSIGNALED(ranks_end(&r, 1, GONE_MS)));
    (void)close(r.fd[0]);
    r.fd[0] = -1;
    assert_exit(ranks_end(&r, 0, GONE_MS), 5);
    ranks_kill(&r);
}

/* A rank that the others wait for at the barrier: its peers say so at the deadline. */
static void test_missing_rank(void **state)
{
    struct nt_measure m = question(NT_ALL_REDUCE, 4096);
    struct nt_msg q = {.type = NT_MSG_MEASURE}, a;
    struct ranks r;
    (void)state;
    start(&r, 2, "");
    take_ready(&r);
    m.deadline_ms = 100;
    q.measure = m;
    ranks_say(&r, 0, &q);
    ranks_hear(&r, 0, NT_MSG_RESULT, &a);
    assert_int_equal(a.result.status, NT_ST_TIMEOUT);
    nt_msg_done(&a);
    ranks_say(&r, 1, &q);
    ranks_hear(&r, 1, NT_MSG_RESULT, &a);
    assert_int_equal(a.result.status, NT_ST_ERROR);
    assert_string_equal(a.result.error, "another rank left the trial");
    nt_msg_done(&a);
    ranks_quit(&r);
}

static void test_lost_device(void **state)
{
    static const char *const env[] = {"FAKE_DEV_LOST=1:6", NULL};
    struct nt_measure m = question(NT_ALL_REDUCE, 4096);
    struct nt_msg got;
    struct ranks r;
    (void)state;
    ranks_start(&r, 2, env);
    ranks_init(&r, MAX_BYTES, true);
    take_ready(&r);
    ask_all(&r, &m);
    ranks_hear(&r, 1, NT_MSG_RESULT, &got);
    assert_int_equal(got.result.status, NT_ST_ERROR);
    assert_non_null(strstr(got.result.error, "illegal memory access"));
    nt_msg_done(&got);
    ranks_hear(&r, 1, NT_MSG_ERROR, &got);
    assert_non_null(strstr(got.error, "does not work any more"));
    nt_msg_done(&got);
    assert_exit(ranks_end(&r, 1, GONE_MS), 1);
    (void)close(r.fd[0]);
    r.fd[0] = -1;
    assert_exit(ranks_end(&r, 0, GONE_MS), 5);
    ranks_kill(&r);
}

static void test_broken_lines(void **state)
{
    static const char *const lines[] = {"garbage\n", "{\"t\":\"nonsense\"}\n", "\n", "{}\n"};
    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct nt_msg m;
        struct ranks r;
        ranks_start(&r, 1, NULL);
        ranks_say_text(&r, 0, lines[i]);
        ranks_hear(&r, 0, NT_MSG_ERROR, &m);
        assert_true(strlen(m.error) > 0);
        nt_msg_done(&m);
        assert_exit(ranks_end(&r, 0, GONE_MS), 1);
        ranks_kill(&r);
    }
}

static void test_line_without_end(void **state)
{
    struct ranks r;
    struct nt_msg m;
    static char piece[65536];
    (void)state;
    memset(piece, 'x', sizeof(piece));
    ranks_start(&r, 1, NULL);
    for (int i = 0; i < 40 && send(r.fd[0], piece, sizeof(piece), MSG_NOSIGNAL) > 0; i++) {
    }
    ranks_hear(&r, 0, NT_MSG_ERROR, &m);
    assert_non_null(strstr(m.error, "too long"));
    nt_msg_done(&m);
    assert_exit(ranks_end(&r, 0, GONE_MS), 1);
    ranks_kill(&r);
}

/* Questions out of order, and more of them than answers. */
static void test_wrong_questions(void **state)
{
    struct nt_msg m = {.type = NT_MSG_MEASURE}, a;
    struct ranks r;
    (void)state;
    m.measure = question(NT_ALL_REDUCE, 64);
    ranks_start(&r, 1, NULL);
    ranks_say(&r, 0, &m);
    ranks_hear(&r, 0, NT_MSG_ERROR, &a);
    assert_string_equal(a.error, "a question before init");
    nt_msg_done(&a);
    assert_exit(ranks_end(&r, 0, GONE_MS), 1);
    ranks_kill(&r);
    start(&r, 1, "hang:*");
    take_ready(&r);
    for (int i = 0; i < 12; i++) {
        ranks_say(&r, 0, &m);
    }
    ranks_hear(&r, 0, NT_MSG_ERROR, &a);
    assert_string_equal(a.error, "more questions than answers");
    nt_msg_done(&a);
    assert_exit(ranks_end(&r, 0, GONE_MS), 1);
    ranks_kill(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_data),
        cmocka_unit_test(test_only_one_cell_is_wrong),
        cmocka_unit_test(test_lie_is_passed_on),
        cmocka_unit_test(test_driver_dies_in_a_hang),
        cmocka_unit_test(test_abort_and_term_in_a_hang),
        cmocka_unit_test(test_abort_hangs),
        cmocka_unit_test(test_init_faults),
        cmocka_unit_test(test_call_fails),
        cmocka_unit_test(test_crash),
        cmocka_unit_test(test_missing_rank),
        cmocka_unit_test(test_lost_device),
        cmocka_unit_test(test_broken_lines),
        cmocka_unit_test(test_line_without_end),
        cmocka_unit_test(test_wrong_questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
