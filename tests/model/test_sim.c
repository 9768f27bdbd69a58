/* Graphs of described machines, what would be executed there, and draws. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model/machines.h"

/* ------------------------------------------------------------------ graphs */

struct found {
    const char *name;
    enum machine_kind kind;
    struct nt_comm_opts opts;
    int channels; /* of the communicator */
    struct {
        int channels;
        double intra;
        enum nt_path type;
    } ring, tree, nvls;
};
static const struct found founds[] = {
    /* As NCCL dumps them on machines of this kind: 360 of 370 GB/s in twelve rings. */
    {"eight on NVSwitch",
     SWITCHED,
     {0},
     24,
     {12, 30, NT_PATH_NVL},
     {12, 30, NT_PATH_NVL},
     {16, 20, NT_PATH_NVL}},
    {"two: a tree goes both ways",
     SWITCHED,
     {.ranks = 2},
     24,
     {12, 30, NT_PATH_NVL},
     {12, 60, NT_PATH_NVL},
     {16, 20, NT_PATH_NVL}},
    {"one NIC for two GPUs: doubled",
     SWITCHED,
     {.nodes = 2},
     16,
     {8, 24, NT_PATH_NVL},
     {8, 24, NT_PATH_NVL},
     {4, 60, NT_PATH_NVL}},
    {"no NVLS",
     SWITCHED,
     {.no_nvls = true},
     24,
     {12, 30, NT_PATH_NVL},
     {12, 30, NT_PATH_NVL},
     {0, 0, NT_PATH_LOC}},
    {"channels opened",
     SWITCHED,
     {.min_channels = 32},
     32,
     {12, 30, NT_PATH_NVL},
     {12, 30, NT_PATH_NVL},
     {16, 20, NT_PATH_NVL}},
    /* The sockets' 22 GB/s, of which a GPU behind an Intel bridge takes 6/5. */
    {"without NVLink",
     BRIDGED,
     {0},
     2,
     {1, 18, NT_PATH_SYS},
     {1, 18, NT_PATH_SYS},
     {0, 0, NT_PATH_LOC}},
    {"one switch",
     BRIDGED,
     {.ranks = 2},
     4,
     {2, 20, NT_PATH_PIX},
     {2, 40, NT_PATH_PIX},
     {0, 0, NT_PATH_LOC}},
};

static void check_graph(const char *name, const char *what, const struct nt_graph *g, int channels,
                        double intra, enum nt_path type)
{
    if (g->channels != channels || fabs((double)g->bw_intra - intra) > 1e-4 ||
        (channels > 0 && g->type_intra != type)) {
        fail_msg("%s: %s %d x %.2f %s", name, what, g->channels, (double)g->bw_intra,
                 nt_path_names[g->type_intra]);
    }
}

static void test_graphs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(founds) / sizeof(founds[0]); i++) {
        const struct found *f = &founds[i];
        struct nt_topology *t = machine_topology(f->kind);
        struct nt_comm c;
        assert_int_equal(nt_comm_init(t, &f->opts, &c, NULL, NULL), 0);
        check_graph(f->name, "rings", &c.graph[NT_GRAPH_RING], f->ring.channels, f->ring.intra,
                    f->ring.type);
        check_graph(f->name, "trees", &c.graph[NT_GRAPH_TREE], f->tree.channels, f->tree.intra,
                    f->tree.type);
        check_graph(f->name, "NVLS", &c.graph[NT_GRAPH_NVLS], f->nvls.channels, f->nvls.intra,
                    f->nvls.type);
        if (c.channels != f->channels) {
            fail_msg("%s: %d channels", f->name, c.channels);
        }
        nt_topology_free(t);
    }
}

/* One GPU a node and sockets: the very figures that NCCL 2.28.9 gave its tuner on such a machine
 * (recording mps-sockets-r4-h200), from the topology alone. */
static void test_as_nccl_said(void **state)
{
    static const char xml[] =
        "<system version=\"1\"><cpu numaid=\"-1\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
        "familyid=\"6\" modelid=\"207\"><pci busid=\"0000:00:06.0\" class=\"0x030200\" "
        "vendor=\"0x10de\" link_speed=\"32.0 GT/s PCIe\" link_width=\"0\"><gpu dev=\"0\" "
        "sm=\"90\" rank=\"0\" gdr=\"1\"/></pci><nic><net name=\"lo\" dev=\"0\" "
        "latency=\"0\" speed=\"10000\" port=\"0\" guid=\"0x0\" maxconn=\"65536\" "
        "gdr=\"0\"/></nic></cpu></system>";
    static const struct {
        uint64_t bytes;
        double tree_ll, tree_simple, ring_ll, ring_simple;
    } rows[] = {{256, 28.8733158, 65.0062332, 37.2399979, 92.7200012},
                {65536, 911.415, 297.193, 200.440, 211.280},
                {67108864, 543534.25, 178849.719, 167808.734, 84015.430}};
    struct nt_topology *t = NULL;
    struct nt_comm c;
    struct nt_cost cost;
    (void)state;

    assert_int_equal(nt_topology_read_xml(xml, strlen(xml), &t, NULL), 0);
    assert_int_equal(
        nt_comm_init(t, &(struct nt_comm_opts){.ranks = 4, .nodes = 4}, &c, NULL, NULL), 0);
    nt_cost_init(&c, &cost);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const double want[4] = {rows[i].tree_ll, rows[i].tree_simple, rows[i].ring_ll,
                                rows[i].ring_simple};
        for (int k = 0; k < 4; k++) {
            double got = nt_cost_us(&cost, NT_ALL_REDUCE, k < 2 ? NT_TREE : NT_RING,
                                    k % 2 == 0 ? NT_LL : NT_SIMPLE, rows[i].bytes, 1);
            if (fabs(got / want[k] - 1) > 3e-6) {
                fail_msg("%llu bytes, cell %d: %.4f, not %.4f", (unsigned long long)rows[i].bytes,
                         k, got, want[k]);
            }
        }
    }
    nt_topology_free(t);
}

static void test_refused(void **state)
{
    struct nt_topology *t = machine_topology(BRIDGED);
    struct nt_comm c;
    struct nt_err err;
    (void)state;
    assert_int_equal(nt_comm_init(t, &(struct nt_comm_opts){.ranks = 5}, &c, NULL, &err),
                     -NT_E_INVAL);
    assert_int_equal(nt_comm_init(t, &(struct nt_comm_opts){.ranks = 1}, &c, NULL, &err),
                     -NT_E_INVAL);
    assert_int_equal(
        nt_comm_init(t, &(struct nt_comm_opts){.ranks = 3, .nodes = 2}, &c, NULL, &err),
        -NT_E_INVAL);
    nt_topology_free(t);
}

/* ------------------------------------------------------------------ what is executed */

struct world {
    struct nt_sim *sim;
    struct nt_sim_gang gang;
};

static struct world world(enum machine_kind kind, const struct nt_sim_params *p, uint64_t gang,
                          const char *name, const char *value)
{
    struct world w = {0};
    struct nt_topology *t = machine_topology(kind);
    struct nt_var var = {(char *)name, (char *)value};
    assert_int_equal(nt_sim_new(t, 0, 0, p, 1, 7, &w.sim, NULL, NULL), 0);
    assert_int_equal(nt_sim_gang_init(&w.gang, w.sim, gang, &var, name != NULL, NULL), 0);
    nt_topology_free(t);
    return w;
}

struct ran {
    enum machine_kind kind;
    const char *name, *value;
    struct nt_case cs;
    struct nt_call call;
    const char *executed; /* "": no such cell */
};
#define AR(bytes_)                                                                                 \
    {                                                                                              \
        .bytes = (bytes_), .coll = NT_ALL_REDUCE, .mode = NT_GRAPH                                 \
    }
#define NONE                                                                                       \
    {                                                                                              \
        .algo = -1, .proto = -1                                                                    \
    }
static const struct ran rans[] = {
    {SWITCHED, NULL, NULL, AR(16384), {NT_RING, NT_SIMPLE, 24, 0, NT_BE_NCCL}, "ring/simple/1/9"},
    {SWITCHED, NULL, NULL, AR(1 << 20), {NT_RING, NT_LL, 0, 0, NT_BE_NCCL}, "ring/ll/24/16"},
    {SWITCHED, NULL, NULL, AR(1 << 20), {NT_RING, NT_LL, 5, 0, NT_BE_NCCL}, "ring/ll/5/16"},
    {SWITCHED, NULL, NULL, AR(1 << 20), {NT_RING, NT_LL, 64, 0, NT_BE_NCCL}, "ring/ll/24/16"},
    {SWITCHED,
     "NCCL_MIN_NCHANNELS",
     "32",
     AR(1 << 24),
     {NT_RING, NT_LL, 64, 0, NT_BE_NCCL},
     "ring/ll/32/16"},
    {SWITCHED,
     "NCCL_MAX_CTAS",
     "6",
     AR(1 << 24),
     {NT_RING, NT_LL, 64, 0, NT_BE_NCCL},
     "ring/ll/6/16"},
    {SWITCHED,
     "NCCL_NTHREADS",
     "256",
     AR(1 << 24),
     {NT_RING, NT_LL, 0, 0, NT_BE_NCCL},
     "ring/ll/24/8"},
    {SWITCHED, NULL, NULL, AR(1 << 28), NONE, "ring/simple/24/17"},
    {SWITCHED, "NCCL_ALGO", "allreduce:tree", AR(1 << 28), NONE, "tree/simple/24/16"},
    {SWITCHED, "NCCL_ALGO", "tree", AR(1 << 20), {NT_RING, NT_LL, 0, 0, NT_BE_NCCL}, ""},
    {SWITCHED, "NCCL_NVLS_ENABLE", "0", AR(1 << 20), {NT_NVLS, NT_SIMPLE, 0, 0, NT_BE_NCCL}, ""},
    {SWITCHED, NULL, NULL, AR(1 << 20), {NT_PAT, NT_SIMPLE, 0, 0, NT_BE_NCCL}, ""},
    {BRIDGED, NULL, NULL, AR(1 << 20), {NT_RING, NT_LL128, 0, 0, NT_BE_NCCL}, ""},
    {BRIDGED, "NCCL_PROTO", "LL128", AR(1 << 20), NONE, "ring/ll128/2/20"},
    {BRIDGED, NULL, NULL, {.bytes = 4096, .coll = NT_ALLTOALL}, NONE, "ring/simple/1/4"},
    {BRIDGED,
     NULL,
     NULL,
     {.bytes = 4096, .coll = NT_ALLTOALL},
     {NT_RING, NT_LL, 0, 0, NT_BE_NCCL},
     ""},
};

static void test_executed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rans) / sizeof(rans[0]); i++) {
        const struct ran *r = &rans[i];
        struct world w = world(r->kind, &nt_sim_quiet, 1, r->name, r->value);
        struct nt_executed x;
        char text[48] = "";
        if (nt_sim_executed(&w.gang, &r->cs, &r->call, &x)) {
            (void)nt_executed_text(&x, text, sizeof(text));
        }
        if (strcmp(text, r->executed) != 0) {
            fail_msg("row %zu: '%s', not '%s'", i, text, r->executed);
        }
        nt_sim_free(w.sim);
    }
}

/* ------------------------------------------------------------------ times and draws */

static const struct nt_measure measure = {.id = 9,
                                          .cs = AR(1 << 20),
                                          .call = NONE,
                                          .warmup = 1,
                                          .samples = 400,
                                          .inner = 10,
                                          .flags = NT_M_READBACK,
                                          .deadline_ms = 5000};

static double ask(struct world *w, const struct nt_measure *m)
{
    struct nt_result r;
    double sum = 0;
    nt_sim_measure(&w->gang, m, &r);
    assert_int_equal(r.status, NT_ST_OK);
    assert_int_equal(r.count, m->samples);
    assert_int_equal(r.executed.algo, NT_RING);
    for (size_t i = 0; i < r.count; i++) {
        sum += r.ns[i];
    }
    assert_true((double)r.elapsed_ns > sum * m->inner);
    free(r.ns);
    return sum / (double)m->samples;
}

/* The same keys give the same samples; another gang, another level; noise has the size it says. */
static void test_draws(void **state)
{
    struct nt_sim_params p = nt_sim_defaults;
    struct world a = world(SWITCHED, &p, 1, NULL, NULL), b = world(SWITCHED, &p, 1, NULL, NULL);
    struct nt_measure next = measure;
    double first = ask(&a, &measure), level = 0, spread = 0;
    (void)state;
    assert_true(first == ask(&b, &measure));
    next.id++;
    assert_true(first != ask(&b, &next));
    for (uint64_t g = 0; g < 200; g++) {
        struct world w = world(SWITCHED, &p, 100 + g, NULL, NULL);
        double x = log(ask(&w, &measure));
        level += x / 200;
        spread += x * x / 200;
        nt_sim_free(w.sim);
    }
    spread = sqrt(spread - level * level);
    if (spread < 0.010 || spread > 0.035) { /* gang, interaction and block together: 0.016 */
        fail_msg("spread %.4f", spread);
    }
    nt_sim_free(a.sim);
    nt_sim_free(b.sim);
}

/* A world without deviation and noise is the model; more channels carry more until the link is
 * full, and eager pays its launch. */
static void test_truth(void **state)
{
    struct world w = world(SWITCHED, &nt_sim_quiet, 1, NULL, NULL);
    struct nt_case graph = AR(1 << 22), eager = graph;
    struct nt_executed x = {NT_RING, NT_LL, 1, 16};
    double t, last = INFINITY;
    (void)state;
    eager.mode = NT_EAGER;
    for (uint16_t c = 4; c <= 24; c = (uint16_t)(c + 4)) {
        x.channels = c;
        t = nt_sim_true_ns(&w.gang, &graph, 0, &x);
        assert_true(t < last);
        last = t;
    }
    t = nt_sim_true_ns(&w.gang, &eager, 0, &x) - nt_sim_true_ns(&w.gang, &graph, 0, &x);
    assert_true(fabs(t - 1000 * 5.3) < 1);
    assert_true(nt_sim_true_ns(&w.gang, &graph, NT_M_BUSY, &x) > last);
    assert_true(nt_sim_true_ns(&w.gang, &graph, NT_M_GROUP8, &x) > 6 * last);
    nt_sim_free(w.sim);
}

/* Tuples that hang take the deadline, wrong ones are found by the check only, and the default is
 * never one of them. */
static void test_broken(void **state)
{
    struct nt_sim_params p = nt_sim_quiet;
    struct world w;
    struct nt_result r;
    struct nt_measure m = measure;
    (void)state;
    p.broken[0] = 1;
    w = world(SWITCHED, &p, 1, NULL, NULL);
    (void)ask(&w, &measure);
    m.call = (struct nt_call){NT_TREE, NT_LL, 0, 0, NT_BE_NCCL};
    nt_sim_measure(&w.gang, &m, &r);
    assert_int_equal(r.status, NT_ST_TIMEOUT);
    assert_int_equal(r.elapsed_ns, 5000000000);
    nt_sim_free(w.sim);
    p.broken[0] = 0;
    p.broken[1] = 1;
    w = world(SWITCHED, &p, 1, NULL, NULL);
    nt_sim_measure(&w.gang, &m, &r);
    assert_int_equal(r.status, NT_ST_OK);
    free(r.ns);
    m.verify = NT_VERIFY_BEFORE;
    nt_sim_measure(&w.gang, &m, &r);
    assert_int_equal(r.status, NT_ST_WRONG);
    assert_true(r.ns == NULL && r.wrong > 0);
    nt_sim_free(w.sim);
}

static void test_settings_refused(void **state)
{
    struct world w = world(BRIDGED, &nt_sim_quiet, 1, NULL, NULL);
    struct nt_var bad = {(char *)"NCCL_ALGO", (char *)"allreduce:rings"};
    struct nt_sim_gang g;
    struct nt_err err;
    (void)state;
    assert_int_equal(nt_sim_gang_init(&g, w.sim, 1, &bad, 1, &err), -NT_E_INVAL);
    nt_sim_free(w.sim);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs),  cmocka_unit_test(test_as_nccl_said),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_executed),
        cmocka_unit_test(test_draws),   cmocka_unit_test(test_truth),
        cmocka_unit_test(test_broken),  cmocka_unit_test(test_settings_refused)};
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
