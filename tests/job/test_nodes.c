/* Nodes of one job: what they say of themselves, and whether they are alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/format/limits.h"
#include "tests/job/play.h"
#include "tuner/base/json.h"
#include "tuner/job/facts.h"
#include "tuner/job/nodes.h"

/* Of a machine that a topology describes; NULL: none. */
static json_t *identity(const char *file, char *name, size_t size)
{
    const char *source = getenv("NT_SOURCE_DIR");
    struct nt_topology *topology = NULL;
    char path[512];
    json_t *o;

    (void)snprintf(path, sizeof(path), "%s/tests/topology/data/%s", source != NULL ? source : ".",
                   file);
    assert_int_equal(nt_topology_read_file(path, &topology, NULL), 0);
    o = nt_identity_json(&topology->identity);
    (void)snprintf(name, size, "%s", topology->identity.name);
    nt_topology_free(topology);
    return o;
}

#define PCIE "pcie4.xml"
#define MESH "mesh8.xml"

/* As `topo --machine` prints it. */
static json_t *machine(const char *host, const char *driver, const char *kernel, const char *file,
                       const char *unhealthy)
{
    char name[16];
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:[]}", "host", host, "driver", driver, "cuda",
                          "13.0", "kernel", kernel, "health");

    if (file != NULL) {
        (void)json_object_set_new(o, "identity", identity(file, name, sizeof(name)));
    }
    if (unhealthy != NULL) {
        (void)json_array_append_new(json_object_get(o, "health"),
                                    json_pack("{s:s, s:b, s:s}", "finding", "narrow_link",
                                              "unhealthy", 1, "text", unhealthy));
    }
    return o;
}

static void test_judge(void **state)
{
    static const struct {
        const char *driver, *kernel, *unhealthy, *file;
        int rc;
        const char *says; /* in the error, or among what is said; NULL: nothing is */
    } rows[] = {
        {"580.1", "6.1", NULL, PCIE, 0, NULL},
        {"580.1", "6.2", NULL, PCIE, 0, "kernel 6.1 on n1, 6.2 on n2"},
        {"580.1", "6.1", "GPU 3 at x8", PCIE, 0, "n2 is unhealthy (narrow_link): GPU 3 at x8"},
        {"580.1", "6.1", NULL, NULL, 0, NULL}, /* knows less */
        {"570.1", "6.1", NULL, PCIE, -NT_E_MISSING, "driver 580.1 on n1, 570.1 on n2"},
        {"580.1", "6.1", NULL, MESH, -NT_E_MISSING, "different in"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_t *list = json_array();
        struct nt_err err = {0};
        struct nt_buf said;
        int rc;
        nt_buf_init(&said, 1 << 16);
        (void)json_array_append_new(list, machine("n1", "580.1", "6.1", PCIE, NULL));
        (void)json_array_append_new(
            list, machine("n2", rows[i].driver, rows[i].kernel, rows[i].file, rows[i].unhealthy));
        rc = nt_nodes_judge(list, &said, &err);
        assert_int_equal(rc, rows[i].rc);
        if (rows[i].says == NULL) {
            assert_string_equal(nt_buf_str(&said), "");
        } else if (strstr(rc != 0 ? err.msg : nt_buf_str(&said), rows[i].says) == NULL) {
            print_error("row %zu: %s%s\n", i, err.msg, nt_buf_str(&said));
            fail();
        }
        nt_buf_done(&said);
        json_decref(list);
    }
}

static void test_silent_node(void **state)
{
    json_t *list = json_array();
    struct nt_buf said;
    (void)state;

    nt_buf_init(&said, 1 << 16);
    (void)json_array_append_new(list, machine("n1", "580.1", "6.1", PCIE, NULL));
    (void)json_array_append_new(list, json_pack("{s:s}", "host", "n2"));
    assert_int_equal(nt_nodes_judge(list, &said, NULL), 0);
    assert_non_null(strstr(nt_buf_str(&said), "n2 could not say what machine it is"));
    nt_buf_done(&said);
    json_decref(list);
}

/* A job's machine is that of its nodes, not of the host that the driver runs on; files that NCCL
 * reads by itself are the same on all. */
static void test_facts(void **state)
{
    json_t *list = json_array();
    struct nt_hello hello[2] = {{.rig = "nccl", .host = "n1", .nccl = 22809, .driver = 13000},
                                {.rig = "nccl", .host = "n2", .nccl = 22809, .driver = 13000}};
    char same[] = "gpu=x\nconf_system=/etc/nccl.conf 1234\n",
         other[] = "conf_system=/etc/nccl.conf absent\n";
    struct nt_ready ready[2] = {{.text = same}, {.text = same}};
    struct nt_facts f = {0};
    struct nt_err err;
    char name[16];
    (void)state;

    (void)json_array_append_new(list, machine("n1", "580.1", "6.1", PCIE, NULL));
    (void)json_array_append_new(list, machine("n2", "580.1", "6.1", PCIE, "GPU 3 at x8"));
    assert_int_equal(nt_facts_take(&f, hello, ready, 2, list, NULL), 0);
    assert_string_equal(f.driver, "580.1");
    json_decref(identity(PCIE, name, sizeof(name)));
    assert_string_equal(f.identity, name);
    assert_int_equal(json_array_size(f.health), 1);
    nt_facts_done(&f);
    ready[1].text = other;
    assert_int_equal(nt_facts_take(&f, hello, ready, 2, list, &err), -NT_E_MISSING);
    assert_non_null(strstr(err.msg, "absent on n2"));
    nt_facts_done(&f);
    ready[1].text = same;
    hello[1].driver = 12080;
    assert_int_equal(nt_facts_take(&f, hello, ready, 2, list, &err), -NT_E_MISSING);
    assert_non_null(strstr(err.msg, "rank 1 on n2"));
    nt_facts_done(&f);
    json_decref(list);
}

/* Across nodes no call is made whose channels NCCL would take unchecked: no row may have it. */
static void test_channels(void **state)
{
    static const unsigned nodes[] = {1, 2};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        struct nt_spec spec = play_spec("1K,1M", 1);
        struct world w;
        struct nt_plan *plan = NULL;
        struct nt_plan_step s;
        unsigned asked = 0, with_channels = 0;

        world_init(&w, 1);
        spec.nodes = nodes[i];
        spec.pairs = 8;
        assert_int_equal(nt_plan_new(&spec, &plan, NULL), 0);
        for (;;) {
            struct nt_plan_outcome o = {0};
            struct nt_result nvls;
            assert_int_equal(nt_plan_next(plan, &s, NULL), 0);
            if (s.kind == NT_DO_FINISHED) {
                break;
            }
            world_do(&w, &s, &o);
            if (s.kind == NT_DO_CELLS && o.cells.asked) {
                o.cells.cost[NT_NVLS][NT_SIMPLE] = 100;
            }
            if (s.kind == NT_DO_MEASURE && s.m.call.algo == NT_NVLS) {
                asked++;
                with_channels += s.m.call.channels > 0;
                nvls = *o.result;
                nvls.status = NT_ST_WRONG; /* seen, and then left alone */
                if (s.m.call.channels == 0) {
                    struct nt_plan_step as = s;
                    as.m.call = NT_CALL_DEFAULT;
                    world_do(&w, &as, &o);
                    nvls = *o.result;
                    nvls.executed = (struct nt_executed){.algo = NT_NVLS,
                                                         .proto = NT_SIMPLE,
                                                         .channels = 8,
                                                         .warps = nvls.executed.warps};
                }
                o.result = &nvls;
            }
            assert_int_equal(nt_plan_tell(plan, &o, NULL), 0);
        }
        nt_plan_free(plan);
        assert_true(asked > 0);
        assert_int_equal(with_channels > 0, nt_channels_safe(NT_NVLS, nodes[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_judge), cmocka_unit_test(test_silent_node),
        cmocka_unit_test(test_facts), cmocka_unit_test(test_channels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
