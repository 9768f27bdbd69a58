/* The program in a real gang gives what the library draws. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/recording/world.h"
#include "tuner/gang/gang.h"

enum { SEED = 11, GANG = 6, SAMPLES = 30 };

struct run {
    struct nt_hello hello;
    char topology[64];
    struct nt_cells cells;
    uint64_t init_ns;
    unsigned results;
    enum nt_status status;
    uint32_t ns[SAMPLES];
    struct nt_executed executed;
    enum nt_gang_end how;
    struct nt_err err;
};

static void on_ready(void *data, struct nt_gang *g, const struct nt_hello *hello,
                     const struct nt_ready *ready)
{
    struct run *r = data;
    r->hello = hello[1];
    r->init_ns = ready[0].init_ns;
    (void)snprintf(r->topology, sizeof(r->topology), "%s", ready[0].topology_xml);
    nt_gang_cells(g, &(struct nt_case){.bytes = 1024, .coll = NT_ALL_REDUCE});
}

static void on_cells(void *data, struct nt_gang *g, const struct nt_cells *cells)
{
    struct run *r = data;
    r->cells = *cells;
    nt_gang_measure(g, &(struct nt_measure){.id = 3,
                                            .cs = {.bytes = 1024, .coll = NT_ALL_REDUCE},
                                            .call = NT_CALL_DEFAULT,
                                            .samples = SAMPLES,
                                            .flags = NT_M_READBACK,
                                            .deadline_ms = 20000});
}

static void on_result(void *data, struct nt_gang *g, const struct nt_gang_result *result)
{
    struct run *r = data;
    r->results++;
    r->status = result->status;
    r->executed = result->executed;
    if (result->count == SAMPLES) {
        memcpy(r->ns, result->ns, sizeof(r->ns));
    }
    nt_gang_stop(g);
}

static void on_end(void *data, struct nt_gang *g, enum nt_gang_end how, const struct nt_err *err)
{
    struct run *r = data;
    (void)g;
    r->how = how;
    r->err = *err;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static struct run run_gang(unsigned world, const char *text, size_t len)
{
    char dir[] = "/tmp/nt-replay-XXXXXX", file[64];
    const char *args[] = {file, "--seed", "11", NULL};
    struct run r = {0};
    struct nt_gang_events events = {on_ready, on_cells, on_result, on_end, &r};
    struct nt_gang_spec spec = {.world = world,
                                .program = getenv("RECORDING_PROBE"),
                                .args = args,
                                .dir = dir,
                                .init = {.backend = "nccl", .gang = GANG}};
    struct nt_gang *g = NULL;
    uv_loop_t loop;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(file, sizeof(file), "%s/world.csv", dir);
    assert_int_equal(nt_write_file(file, text, len, 0600, NULL), 0); /* plain text reads as well */
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(nt_gang_start(&loop, &spec, &events, &g, NULL), 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return r;
}

static void test_gang(void **state)
{
    struct nt_buf b;
    struct run r;
    struct nt_recording *rec = NULL;
    struct nt_replay p;
    struct nt_result want;
    struct nt_measure m = {.id = 3,
                           .cs = {.bytes = 1024, .coll = NT_ALL_REDUCE},
                           .call = NT_CALL_DEFAULT,
                           .samples = SAMPLES};
    (void)state;
    nt_buf_init(&b, 1 << 20);
    world_text(&b);
    r = run_gang(2, b.data, b.len);
    if (r.how != NT_GANG_DONE || r.results != 1) {
        fail_msg("%s: %s", nt_gang_end_names[r.how], r.err.msg);
    }
    assert_string_equal(r.hello.rig, "nccl");
    assert_string_equal(r.hello.gpu_name, "NVIDIA Q");
    assert_int_equal(r.hello.nccl, 22809);
    assert_string_equal(r.topology, "<system/>\n");
    assert_true(r.cells.asked && r.cells.cost[NT_RING][NT_LL] == 4);
    assert_int_equal(r.status, NT_ST_OK);
    assert_int_equal(r.executed.algo, NT_TREE);
    assert_int_equal(nt_recording_parse(b.data, b.len, "world", &rec, NULL), 0);
    assert_int_equal(nt_replay_init(&p, rec, SEED, false, NT_ALL_GANGS, GANG, NULL, 0, NULL), 0);
    nt_replay_measure(&p, &m, &want);
    assert_memory_equal(r.ns, want.ns, sizeof(r.ns));
    assert_int_equal(r.init_ns, nt_replay_start(&p)->init_ns);
    free(want.ns);
    nt_recording_free(rec);
    nt_buf_done(&b);
}

static void test_refusals(void **state)
{
    struct nt_buf b;
    struct run r;
    (void)state;
    nt_buf_init(&b, 1 << 20);
    world_text(&b);
    r = run_gang(3, b.data, b.len);
    assert_int_equal(r.how, NT_GANG_SAID);
    assert_non_null(strstr(r.err.msg, "the recording has 2 ranks, this gang 3"));
    r = run_gang(2, "nothing\n", 8);
    assert_int_equal(r.how, NT_GANG_SAID);
    assert_non_null(strstr(r.err.msg, "must begin with"));
    nt_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gang),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
