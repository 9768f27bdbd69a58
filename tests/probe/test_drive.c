/* The real driver and the real probe on the fake device: what each assumes of the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tuner/gang/gang.h"

enum { WORLD = 3, ASKED = 4 };

struct seen {
    unsigned ready, cells, results, ends;
    enum nt_gang_end how;
    bool tree;
    struct nt_executed executed;
    uint32_t ns[ASKED];
    char words[512];
};

static void ask(struct nt_gang *g, unsigned n)
{
    const struct nt_measure m = {.id = n,
                                 .cs = {.bytes = 16384,
                                        .coll = NT_ALL_REDUCE,
                                        .dtype = NT_BF16,
                                        .mode = n % 2 == 0 ? NT_EAGER : NT_GRAPH},
                                 .call = {.algo = NT_RING, .proto = NT_LL, .channels = 2},
                                 .warmup = 2,
                                 .samples = 8,
                                 .inner = 4,
                                 .verify = NT_VERIFY_BOTH,
                                 .flags = NT_M_READBACK,
                                 .deadline_ms = 20000};
    nt_gang_measure(g, &m);
}

static void on_ready(void *data, struct nt_gang *g, const struct nt_hello *hello,
                     const struct nt_ready *ready)
{
    struct seen *s = data;
    const struct nt_case cs = {.bytes = 16384, .coll = NT_ALL_REDUCE, .dtype = NT_BF16};
    s->ready++;
    assert_int_equal(hello[2].rank, 2);
    assert_non_null(ready[0].topology_xml);
    nt_gang_cells(g, &cs);
}

static void on_cells(void *data, struct nt_gang *g, const struct nt_cells *cells)
{
    struct seen *s = data;
    s->cells++;
    s->tree = cells != NULL && cells->cost[NT_TREE][NT_LL] > 0 && cells->cost[NT_NVLS][NT_LL] < 0;
    ask(g, 0);
}

static void on_result(void *data, struct nt_gang *g, const struct nt_gang_result *r)
{
    struct seen *s = data;
    (void)snprintf(s->words, sizeof(s->words), "%s", r->error);
    s->executed = r->executed;
    for (size_t i = 0; i < r->count; i++) {
        s->ns[s->results] = r->ns[i] > s->ns[s->results] ? r->ns[i] : s->ns[s->results];
    }
    if (++s->results < ASKED) {
        ask(g, s->results);
    } else {
        nt_gang_stop(g);
    }
}

static void on_end(void *data, struct nt_gang *g, enum nt_gang_end how, const struct nt_err *err)
{
    struct seen *s = data;
    (void)g;
    s->ends++;
    s->how = how;
    if (how != NT_GANG_DONE) {
        (void)snprintf(s->words, sizeof(s->words), "%s", err != NULL ? err->msg : "");
    }
}

static void test_drive(void **state)
{
    char dir[] = "/tmp/nt-drive-XXXXXX", program[512], lib[512], path[128];
    const char *build = getenv("NT_BUILD_DIR");
    const char *env[] = {lib, "NCCL_TUNER_PLUGIN=STATIC_PLUGIN",
                         "NCCL_PROFILER_PLUGIN=STATIC_PLUGIN", "TSAN_OPTIONS=atexit_sleep_ms=0",
                         NULL};
    struct seen s = {0};
    const struct nt_gang_events events = {.on_ready = on_ready,
                                          .on_cells = on_cells,
                                          .on_result = on_result,
                                          .on_end = on_end,
                                          .data = &s};
    struct nt_gang_spec spec = {.world = WORLD,
                                .program = program,
                                .env = env,
                                .dir = dir,
                                .init = {.backend = "nccl", .max_bytes = 65536}};
    struct nt_gang *g = NULL;
    uv_loop_t loop;
    (void)state;
    build = build != NULL ? build : "build/release";
    (void)snprintf(program, sizeof(program), "%s/tests/probe/nccltune-probe-fake", build);
    (void)snprintf(lib, sizeof(lib), "NCCLTUNE_NCCL_LIB=%s/tests/probe/libfakenccl.so", build);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(nt_gang_start(&loop, &spec, &events, &g, NULL), 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    if (s.ends != 1 || s.how != NT_GANG_DONE || s.results != ASKED || !s.tree) {
        fail_msg("%s after %u results: %s", nt_gang_end_names[s.how], s.results, s.words);
    }
    assert_int_equal(s.executed.algo, NT_RING);
    assert_int_equal(s.executed.channels, 2);
    for (unsigned i = 0; i < ASKED; i++) {
        assert_true(s.ns[i] > 0);
    }
    for (unsigned i = 0; i < WORLD; i++) {
        (void)snprintf(path, sizeof(path), "%s/rank-%u.log", dir, i);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drive)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
