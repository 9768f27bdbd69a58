/* The cost model against vectors made by compiling NCCL's own tuning.cc (v2.30.7). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "probes/model/cost.h"

static struct nt_comm comm(int ranks, int nodes, int cc, enum nt_host_cpu cpu, int channels,
                           struct nt_graph g)
{
    struct nt_comm m = {.ranks = ranks,
                        .nodes = nodes,
                        .local_ranks = ranks / nodes,
                        .cc_min = cc,
                        .cc_max = cc,
                        .cpu = cpu,
                        .channels = channels,
                        .ll128_forced = true};
    m.graph[NT_GRAPH_RING] = m.graph[NT_GRAPH_TREE] = g;
    return m;
}

static struct nt_comm golden_comm(char name)
{
    struct nt_graph pcie = {.channels = 2,
                            .bw_intra = 12,
                            .bw_inter = 12,
                            .type_intra = NT_PATH_PHB,
                            .type_inter = NT_PATH_PHB,
                            .same_channels = true};
    struct nt_graph nvlink = {.channels = 12,
                              .bw_intra = 30,
                              .bw_inter = 30,
                              .type_intra = NT_PATH_NVL,
                              .type_inter = NT_PATH_PIX,
                              .same_channels = true};
    struct nt_graph net = {.channels = 1,
                           .bw_intra = 10,
                           .bw_inter = 1.2F,
                           .type_intra = NT_PATH_PHB,
                           .type_inter = NT_PATH_PHB,
                           .same_channels = true};
    struct nt_graph rail = {.channels = 8,
                            .bw_intra = 48,
                            .bw_inter = 48,
                            .latency_inter = 1.5F,
                            .type_intra = NT_PATH_NVL,
                            .type_inter = NT_PATH_PIX};
    struct nt_comm m;

    switch (name) {
    case 'A':
        return comm(4, 1, 89, NT_CPU_INTEL, 4, pcie);
    case 'B':
        m = comm(8, 1, 90, NT_CPU_INTEL, 24, nvlink);
        m.graph[NT_GRAPH_NVLS] = (struct nt_graph){
            .channels = 16, .bw_intra = 20, .bw_inter = 20, .type_intra = NT_PATH_NVL};
        break;
    case 'C':
        return comm(4, 4, 80, NT_CPU_AMD, 2, net);
    case 'D':
        m = comm(16, 2, 90, NT_CPU_INTEL, 16, rail);
        m.graph[NT_GRAPH_NVLS] = rail;
        break;
    default:
        m = comm(64, 8, 100, NT_CPU_AMD, 16, rail);
        m.graph[NT_GRAPH_NVLS] = rail;
        break;
    }
    m.nvls = true;
    return m;
}

struct golden {
    char comm;
    enum nt_coll coll;
    enum nt_algo algo;
    enum nt_proto proto;
    double lat, bw, t[4]; /* at 1 KiB, 64 KiB, 1 MiB, 64 MiB */
};
#define AR NT_ALL_REDUCE
static const struct golden goldens[] = {
    {'A', AR, NT_TREE, NT_LL, 12.80, 2.905, {13.19, 50.40, 734.65, 23111.87}},
    {'A', AR, NT_TREE, NT_SIMPLE, 32.40, 11.040, {32.50, 42.29, 222.36, 7630.78}},
    {'A', AR, NT_RING, NT_SIMPLE, 42.60, 16.000, {42.66, 46.70, 108.14, 4236.90}},
    {'A', NT_ALL_GATHER, NT_RING, NT_LL128, 21.50, 29.440, {21.53, 23.73, 57.12, 2301.01}},
    {'A', NT_BROADCAST, NT_RING, NT_SIMPLE, 14.10, 24.000, {14.14, 16.83, 57.79, 2810.30}},
    {'B', AR, NT_RING, NT_LL128, 40.60, 189.257, {40.61, 40.95, 46.14, 395.19}},
    {'B', AR, NT_NVLS, NT_SIMPLE, 25.00, 182.857, {25.01, 25.36, 30.73, 392.00}},
    {'B', NT_ALL_GATHER, NT_NVLS, NT_SIMPLE, 25.00, 223.125, {25.00, 25.29, 29.70, 325.77}},
    {'C', AR, NT_RING, NT_SIMPLE, 92.40, 0.800, {130.64, 211.28, 1440.08, 84015.43}},
    {'C', NT_ALL_GATHER, NT_PAT, NT_SIMPLE, 27.20, 0.900, {28.34, 100.02, 1192.28, 74592.60}},
    {'D', AR, NT_RING, NT_LL128, 78.20, 156.587, {78.21, 78.62, 84.90, 506.77}},
    {'D', AR, NT_NVLS_TREE, NT_SIMPLE, 72.80, 246.187, {72.80, 73.07, 77.06, 345.39}},
    {'D', NT_BROADCAST, NT_RING, NT_SIMPLE, 232.40, 384.000, {232.40, 232.57, 235.13, 407.16}},
    {'E', AR, NT_RING, NT_SIMPLE, 918.40, 195.048, {918.41, 1286.10, 1291.14, 1629.82}},
    {'E', AR, NT_NVLS_TREE, NT_SIMPLE, 168.40, 195.048, {168.41, 168.96, 179.15, 598.48}},
};

/* As printed, give or take the last digit and float's 24 bits. */
static bool same(double got, double want, double digit)
{
    return fabs(got - want) <= 0.5001 * digit + 2e-7 * fabs(want);
}

static void test_golden(void **state)
{
    static const uint64_t bytes[4] = {1024, 65536, 1048576, 67108864};
    (void)state;

    for (size_t i = 0; i < sizeof(goldens) / sizeof(goldens[0]); i++) {
        const struct golden *g = &goldens[i];
        struct nt_comm m = golden_comm(g->comm);
        struct nt_cost c;
        nt_cost_init(&m, &c);
        if (!same(c.lat[g->coll][g->algo][g->proto], g->lat, 0.01) ||
            !same(c.bw[g->coll][g->algo][g->proto], g->bw, 0.001)) {
            fail_msg("%c %s %s/%s: lat %.3f bw %.4f", g->comm, nt_coll_names[g->coll],
                     nt_algo_names[g->algo], nt_proto_names[g->proto],
                     (double)c.lat[g->coll][g->algo][g->proto],
                     (double)c.bw[g->coll][g->algo][g->proto]);
        }
        for (int k = 0; k < 4; k++) {
            double t = nt_cost_us(&c, g->coll, g->algo, g->proto, bytes[k], 1);
            if (!same(t, g->t[k], 0.01)) {
                fail_msg("%c %s %s/%s %llu: %.4f, not %.2f", g->comm, nt_coll_names[g->coll],
                         nt_algo_names[g->algo], nt_proto_names[g->proto],
                         (unsigned long long)bytes[k], t, g->t[k]);
            }
        }
    }
}

/* Which cells there are, as "algorithm/protocol" of those with a time. */
struct there {
    const char *name;
    char comm;
    bool automatic; /* LL128 not forced */
    enum nt_coll coll;
    const char *cells;
};
static const struct there theres[] = {
    {"PCIe: no LL128 by itself", 'A', true, AR, "tree/ll tree/simple ring/ll ring/simple "},
    {"forced", 'A', false, AR, "tree/ll tree/ll128 tree/simple ring/ll ring/ll128 ring/simple "},
    {"NVSwitch", 'B', true, AR,
     "tree/ll tree/ll128 tree/simple ring/ll ring/ll128 ring/simple nvls/simple "},
    {"broadcast is a ring", 'B', true, NT_BROADCAST, "ring/ll ring/ll128 ring/simple "},
    {"no trees that gather", 'B', true, NT_REDUCE_SCATTER,
     "ring/ll ring/ll128 ring/simple nvls/simple "},
    {"one rank a node", 'C', true, NT_ALL_GATHER, "ring/ll ring/simple pat/simple "},
    {"two nodes: NVLSTree, no NVLS without CollNet", 'D', true, AR,
     "tree/ll tree/ll128 tree/simple ring/ll ring/ll128 ring/simple nvls_tree/simple "},
    {"no tuner is asked", 'B', true, NT_ALLTOALL, ""},
};

static void test_available(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(theres) / sizeof(theres[0]); i++) {
        const struct there *x = &theres[i];
        struct nt_comm m = golden_comm(x->comm);
        struct nt_cost c;
        struct nt_buf b;
        m.ll128_forced = !x->automatic;
        nt_cost_init(&m, &c);
        nt_buf_init(&b, 1024);
        for (int a = 0; a < NT_ALGO_COUNT; a++) {
            for (int p = 0; p < NT_PROTO_COUNT; p++) {
                if (nt_cost_us(&c, x->coll, (enum nt_algo)a, (enum nt_proto)p, 1024, 1) >= 0) {
                    nt_buf_printf(&b, "%s/%s ", nt_algo_names[a], nt_proto_names[p]);
                }
            }
        }
        if (strcmp(nt_buf_str(&b), x->cells) != 0) {
            fail_msg("%s: %s", x->name, nt_buf_str(&b));
        }
        nt_buf_done(&b);
    }
}

/* Several calls in flight share one batch but for rings; below 64 bytes there is no correction. */
static void test_query(void **state)
{
    struct nt_comm m = golden_comm('A');
    struct nt_cost c;
    (void)state;

    nt_cost_init(&m, &c);
    assert_true(
        same(nt_cost_us(&c, AR, NT_RING, NT_LL, 0, 3), 3 * c.lat[AR][NT_RING][NT_LL], 1e-3));
    assert_true(same(nt_cost_us(&c, AR, NT_TREE, NT_LL, 0, 8), c.lat[AR][NT_TREE][NT_LL], 1e-3));
    assert_true(
        same(nt_cost_us(&c, AR, NT_TREE, NT_LL, 0, 9), 2 * c.lat[AR][NT_TREE][NT_LL], 1e-3));
    m.ranks = 1;
    nt_cost_init(&m, &c);
    assert_true(nt_cost_us(&c, AR, NT_RING, NT_LL, 8, 1) < 0);
}

static void test_choice(void **state)
{
    static const struct {
        char comm;
        uint64_t bytes;
        enum nt_algo algo;
        enum nt_proto proto;
    } rows[] = {{'A', 8, NT_RING, NT_LL},
                {'A', 67108864, NT_RING, NT_SIMPLE},
                {'B', 8, NT_RING, NT_LL},
                {'C', 67108864, NT_RING, NT_SIMPLE},
                {'D', 67108864, NT_NVLS_TREE, NT_SIMPLE}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_comm m = golden_comm(rows[i].comm);
        struct nt_cost c;
        enum nt_algo a = NT_PAT;
        enum nt_proto p = NT_LL;
        nt_cost_init(&m, &c);
        assert_true(nt_cost_choose(&c, AR, rows[i].bytes, &a, &p));
        if (a != rows[i].algo || p != rows[i].proto) {
            fail_msg("%c %llu: %s/%s", rows[i].comm, (unsigned long long)rows[i].bytes,
                     nt_algo_names[a], nt_proto_names[p]);
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_available),
        cmocka_unit_test(test_query), cmocka_unit_test(test_choice)};
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
