#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/support.h"

static const struct {
    const char *machine;
    int n, classes;
    const char *first; /* text of the nearest */
} rows[] = {
    {"nvswitch8.xml", 2, 1, "NV18 ×1"},    {"nvswitch8.xml", 4, 1, "NV18 ×6"},
    {"nvswitch8.xml", 8, 1, "NV18 ×28"},   {"pcie4.xml", 1, 1, "L40S"},
    {"pcie4.xml", 2, 2, "PIX ×1"},         {"pcie4.xml", 3, 1, "PIX ×1, SYS ×2"},
    {"pcie4.xml", 4, 1, "PIX ×2, SYS ×4"}, {"pairs4.xml", 2, 2, "NV4 ×1"},
    {"tray2.xml", 5, 1, "NV18 ×10"},       {"mesh8.xml", 2, 3, "NV2 ×1"}, /* two links, one, none */
    {"amd4.xml", 2, 3, "XG2 ×1"},
};

static void test_classes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_topology *t = read_data(rows[i].machine);
        struct nt_placements p = {0};
        assert_int_equal(nt_placements_find(t, rows[i].n, &p, NULL), 0);
        if (p.n != rows[i].classes || strcmp(p.v[0].text, rows[i].first) != 0) {
            fail_msg("%s, %d GPUs: %d classes, '%s'", rows[i].machine, rows[i].n, p.n, p.v[0].text);
        }
        nt_placements_done(&p);
        nt_topology_free(t);
    }
}

static uint64_t choose(int n, int k)
{
    return k == 0 ? 1 : choose(n - 1, k - 1) * (uint64_t)n / (uint64_t)k;
}

/* Every subset is in exactly one class, and its own name says which. */
static void check_partition(const struct nt_topology *t, int n)
{
    struct nt_placements p = {0};
    uint64_t *seen, sum = 0;

    assert_int_equal(nt_placements_find(t, n, &p, NULL), 0);
    seen = calloc((size_t)p.n, sizeof(*seen));
    for (unsigned set = 0; set < 1U << t->ngpus; set++) {
        struct nt_placement one;
        uint16_t gpus[16];
        int k = 0, c = 0;
        for (uint16_t g = 0; g < t->ngpus; g++) {
            if ((set >> g & 1) != 0) {
                gpus[k++] = g;
            }
        }
        if (k != n) {
            continue;
        }
        assert_int_equal(nt_placement_of(t, gpus, n, &one, NULL), 0);
        while (c < p.n && strcmp(p.v[c].key, one.key) != 0) {
            c++;
        }
        assert_true(c < p.n);
        seen[c]++;
    }
    for (int c = 0; c < p.n; c++) {
        for (int d = 0; d < c; d++) {
            assert_string_not_equal(p.v[c].key, p.v[d].key);
        }
        assert_int_equal(seen[c], p.v[c].subsets);
        sum += p.v[c].subsets;
    }
    assert_int_equal(sum, choose(t->ngpus, n));
    free(seen);
    nt_placements_done(&p);
}

static void test_classes_part_all_subsets(void **state)
{
    static const char *const machines[] = {"nvswitch8.xml", "pcie4.xml", "mesh8.xml",
                                           "pairs4.xml",    "tray2.xml", "amd4.xml",
                                           "template4.xml"};
    (void)state;
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        struct nt_topology *t = read_data(machines[i]);
        for (int n = 1; n <= t->ngpus; n++) {
            check_partition(t, n);
        }
        nt_topology_free(t);
    }
}

/* Hexagon and two triangles inside one machine: every GPU has two NVLinks in both. */
static void test_regular_subsets_are_told_apart(void **state)
{
    /* NVLink ring 0..5, triangles 6 7 8 and 9 10 11 */
    static const uint8_t pairs[][2] = {{0, 1}, {1, 2}, {2, 3}, {3, 4},  {4, 5},   {5, 0},
                                       {6, 7}, {7, 8}, {6, 8}, {9, 10}, {10, 11}, {9, 11}};
    static const uint16_t ring[] = {0, 1, 2, 3, 4, 5}, triangles[] = {6, 7, 8, 9, 10, 11};
    struct nt_placement a, b;
    struct nt_topology *t;
    struct nt_buf text;
    (void)state;
    nt_buf_init(&text, 1 << 16);
    for (int i = 0; i < 12; i++) {
        nt_buf_printf(&text, " GPU%d", i);
    }
    for (int i = 0; i < 12; i++) {
        nt_buf_printf(&text, "\nGPU%d", i);
        for (int j = 0; j < 12; j++) {
            bool joined = false;
            for (int k = 0; k < 12; k++) {
                joined = joined || (pairs[k][0] == i && pairs[k][1] == j) ||
                         (pairs[k][0] == j && pairs[k][1] == i);
            }
            nt_buf_puts(&text, i == j ? " X" : joined ? " NV4" : " SYS");
        }
    }
    t = read_or_fail("ring and triangles", nt_buf_str(&text), text.len);
    assert_int_equal(nt_placement_of(t, ring, 6, &a, NULL), 0);
    assert_int_equal(nt_placement_of(t, triangles, 6, &b, NULL), 0);
    assert_string_not_equal(a.key, b.key);
    check_partition(t, 6);
    nt_topology_free(t);
    nt_buf_done(&text);
}

/* 72 GPUs on one fabric are as quick as two; 20 that are all different are refused in time. */
static void test_large(void **state)
{
    struct nt_buf text;
    struct nt_topology *t;
    struct nt_placements p = {0};
    (void)state;
    nt_buf_init(&text, 1 << 20);
    nt_buf_puts(&text, "<system version=\"1\">");
    for (int i = 0; i < 72; i++) {
        nt_buf_printf(&text,
                      "<cpu numaid=\"0\" host_hash=\"%d\" arch=\"arm64\"><pci "
                      "busid=\"00%02x:01:00.0\" class=\"0x030200\">"
                      "<gpu dev=\"0\" sm=\"100\"><nvlink target=\"fffffff:ff:ff.0\" count=\"18\" "
                      "tclass=\"0x068000\"/></gpu></pci></cpu>",
                      i / 4 + 1, i % 4);
    }
    nt_buf_puts(&text, "</system>");
    t = read_or_fail("rack", nt_buf_str(&text), text.len);
    assert_int_equal(t->nhosts, 18);
    assert_int_equal(nt_placements_find(t, 36, &p, NULL), 0);
    assert_int_equal(p.n, 1);
    assert_true(p.v[0].subsets == UINT64_MAX);
    nt_placements_done(&p);
    nt_topology_free(t);
    nt_buf_clear(&text);
    for (int i = 0; i < 24; i++) {
        nt_buf_printf(&text, " GPU%d", i);
    }
    for (int i = 0; i < 24; i++) {
        nt_buf_printf(&text, "\nGPU%d", i);
        for (int j = 0; j < 24; j++) {
            char cell[16];
            (void)snprintf(cell, sizeof(cell), " NV%d",
                           1 + (i > j ? i * (i - 1) / 2 + j : j * (j - 1) / 2 + i));
            nt_buf_puts(&text, i == j ? " X" : cell);
        }
    }
    t = read_or_fail("all different", nt_buf_str(&text), text.len);
    assert_int_equal(nt_placements_cost(t, 12), UINT64_MAX);
    assert_int_equal(nt_placements_find(t, 12, &p, NULL), -NT_E_INVAL);
    nt_topology_free(t);
    nt_buf_done(&text);
}

static void test_bad_arguments(void **state)
{
    static const uint16_t twice[] = {1, 1}, beyond[] = {0, 9};
    struct nt_topology *t = read_data("pcie4.xml");
    struct nt_placements p = {0};
    struct nt_placement one;
    (void)state;
    assert_int_equal(nt_placements_find(t, 5, &p, NULL), -NT_E_INVAL);
    assert_int_equal(nt_placements_find(t, 0, &p, NULL), -NT_E_INVAL);
    assert_int_equal(nt_placement_of(t, twice, 2, &one, NULL), -NT_E_INVAL);
    assert_int_equal(nt_placement_of(t, beyond, 2, &one, NULL), -NT_E_INVAL);
    nt_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_classes_part_all_subsets),
        cmocka_unit_test(test_regular_subsets_are_told_apart),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
