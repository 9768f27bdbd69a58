/* The program in a real gang gives what the library draws, and says that it is simulated. */
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
#include <unistd.h>

#include "tests/model/machines.h"
#include "tuner/gang/gang.h"

enum { GANG = 6, SAMPLES = 20 };

struct run {
    struct nt_hello hello;
    struct nt_cells cells;
    uint64_t init_ns;
    enum nt_status status;
    uint32_t ns[SAMPLES];
    char text[256];
    enum nt_gang_end how;
    struct nt_err err;
};

static const struct nt_case cs = {.bytes = 1 << 20, .coll = NT_ALL_REDUCE};

static void on_ready(void *data, struct nt_gang *g, const struct nt_hello *hello,
                     const struct nt_ready *ready)
{
    struct run *r = data;
    r->hello = hello[1];
    r->init_ns = ready[0].init_ns;
    (void)snprintf(r->text, sizeof(r->text), "%s", ready[0].text);
    nt_gang_cells(g, &cs);
}

static void on_cells(void *data, struct nt_gang *g, const struct nt_cells *cells)
{
    struct run *r = data;
    r->cells = *cells;
    nt_gang_measure(
        g,
        &(struct nt_measure){
            .id = 3, .cs = cs, .call = NT_CALL_DEFAULT, .samples = SAMPLES, .deadline_ms = 20000});
}

static void on_result(void *data, struct nt_gang *g, const struct nt_gang_result *result)
{
    struct run *r = data;
    r->status = result->status;
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

static struct run run_gang(unsigned world)
{
    char dir[] = "/tmp/nt-model-XXXXXX", file[64];
    const char *args[] = {file, "--seed", "7", NULL};
    struct run r = {0};
    struct nt_gang_events events = {on_ready, on_cells, on_result, on_end, &r};
    struct nt_gang_spec spec = {.world = world,
                                .program = getenv("MODEL_PROBE"),
                                .args = args,
                                .dir = dir,
                                .init = {.backend = "nccl", .gang = GANG}};
    struct nt_gang *g = NULL;
    struct nt_buf b;
    uv_loop_t loop;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(file, sizeof(file), "%s/topology.xml", dir);
    nt_buf_init(&b, 1 << 20);
    machine_xml(BRIDGED, &b);
    assert_int_equal(nt_write_file(file, b.data, b.len, 0600, NULL), 0);
    nt_buf_done(&b);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(nt_gang_start(&loop, &spec, &events, &g, NULL), 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return r;
}

static void test_gang(void **state)
{
    struct run r = run_gang(4);
    struct nt_topology *t = machine_topology(BRIDGED);
    struct nt_sim *sim = NULL;
    struct nt_sim_gang g;
    struct nt_result want;
    (void)state;

    if (r.how != NT_GANG_DONE) {
        fail_msg("%s: %s", nt_gang_end_names[r.how], r.err.msg);
    }
    assert_string_equal(r.hello.rig, "model");
    assert_int_equal(strncmp(r.hello.gpu_name, "simulated ", 10), 0);
    assert_int_equal(strncmp(r.text, "simulated=", 10), 0);
    assert_int_equal(r.status, NT_ST_OK);
    assert_int_equal(nt_sim_new(t, 4, 1, &nt_sim_defaults, 1, 7, &sim, NULL, NULL), 0);
    assert_int_equal(nt_sim_gang_init(&g, sim, GANG, NULL, 0, NULL), 0);
    assert_true(r.cells.asked && r.cells.cost[NT_RING][NT_LL] > 0 &&
                r.cells.cost[NT_RING][NT_LL128] < 0);
    assert_int_equal(r.init_ns, nt_sim_start_ns(&g));
    nt_sim_measure(
        &g, &(struct nt_measure){.id = 3, .cs = cs, .call = NT_CALL_DEFAULT, .samples = SAMPLES},
        &want);
    assert_memory_equal(r.ns, want.ns, sizeof(r.ns));
    free(want.ns);
    nt_sim_free(sim);
    nt_topology_free(t);
}

static void test_refusal(void **state)
{
    struct run r = run_gang(5);
    (void)state;
    assert_int_equal(r.how, NT_GANG_SAID);
    assert_non_null(strstr(r.err.msg, "5 ranks on 1 nodes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gang), cmocka_unit_test(test_refusal)};
    return cmocka_run_group_tests_name("model_probe", tests, NULL, NULL);
}
