/* Machines changed in ways that must not count, and in ways that must. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/changes.h"
#include "tests/topology/support.h"
#include "tuner/base/rng.h"
#include "tuner/base/json.h"

static const char *const machines[] = {"nvswitch8.xml", "pcie4.xml", "mesh8.xml", "pairs4.xml",
                                       "tray1.xml",     "tray2.xml", "amd4.xml",  "template4.xml"};
enum { MACHINES = sizeof(machines) / sizeof(machines[0]) };

static struct element *load(const char *name)
{
    char path[4096];
    struct nt_buf b;
    struct element *e;

    nt_buf_init(&b, 1 << 20);
    assert_int_equal(nt_buf_read_file(&b, data_path(name, path, sizeof(path)), NULL), 0);
    { /* the template's comment is no XML for strict parsers: that is its point */
        char *start = strstr(b.data, "<!--"), *end = start != NULL ? strstr(start, "-->") : NULL;
        if (end != NULL) {
            memset(start, ' ', (size_t)(end + 3 - start));
        }
    }
    e = tree_parse(b.data, b.len);
    assert_non_null(e);
    nt_buf_done(&b);
    return e;
}

static void test_what_does_not_count(void **state)
{
    struct nt_rng rng;
    (void)state;
    nt_rng_seed(&rng, 11);
    for (int m = 0; m < MACHINES; m++) {
        struct nt_topology *t = read_data(machines[m]);
        struct element *all = load(machines[m]);
        for (size_t c = 0; c < nsame_changes; c++) {
            struct element *e = load(machines[m]);
            struct nt_topology *one, *sum;
            same_changes[c].change(e, &rng);
            same_changes[c].change(all, &rng);
            one = read_tree(e);
            sum = read_tree(all);
            if (strcmp(t->identity.name, one->identity.name) != 0 ||
                strcmp(t->identity.name, sum->identity.name) != 0) {
                struct nt_buf words;
                nt_buf_init(&words, 1 << 20);
                (void)nt_topology_diff(t, "before", one, "after", &words);
                fail_msg("%s, %s:\n%s", machines[m], same_changes[c].name, nt_buf_str(&words));
            }
            if (nt_topology_healthy(one) != nt_topology_healthy(t)) {
                fail_msg("%s, %s: health changed", machines[m], same_changes[c].name);
            }
            nt_topology_free(one);
            nt_topology_free(sum);
            tree_free(e);
        }
        tree_free(all);
        nt_topology_free(t);
    }
}

static void test_machines_differ(void **state)
{
    (void)state;
    for (int a = 0; a < MACHINES; a++) {
        struct nt_topology *x = read_data(machines[a]);
        for (int b = 0; b < MACHINES; b++) {
            struct nt_topology *y = read_data(machines[b]);
            if (nt_identity_match(&x->identity, &y->identity) != (a == b)) {
                fail_msg("%s and %s", machines[a], machines[b]);
            }
            nt_topology_free(y);
        }
        nt_topology_free(x);
    }
}

/* ---- changes that must count, and which group tells ---- */

static void other_model(struct element *e)
{
    struct element *gpu = tree_find(e, "gpu", 0);
    for (int i = 0;; i++) {
        struct element *p = tree_find(e, "pci", i);
        if (p->nkids > 0 && p->kids[0] == gpu) {
            tree_set(p, "device", "0x2331");
            return;
        }
    }
}

static void other_sm(struct element *e)
{
    tree_set(tree_find(e, "gpu", 1), "sm", "61");
}

static void fewer_links(struct element *e)
{
    tree_set(tree_find(e, "nvlink", 0), "count", "1");
}

/* The NVLink of a GPU (by number of its element) that ends at a bus id. */
static char *target_of(struct element *e, int gpu, const char *bus)
{
    struct element *g = tree_find(e, "gpu", gpu);
    for (int i = 0; i < g->nkids; i++) {
        if (strcmp(tree_attr(g->kids[i], "target"), bus) == 0) {
            return tree_attr(g->kids[i], "target");
        }
    }
    return NULL;
}

/* 0-4 and 1-5 become 0-5 and 1-4, at both ends: every GPU keeps its counts. */
static void crossed_pairs(struct element *e)
{
    static const char *const bus[] = {"0000:30:00.0", "0000:38:00.0", "0000:50:00.0",
                                      "0000:58:00.0"};
    char *t[] = {target_of(e, 0, bus[2]), target_of(e, 1, bus[3]), target_of(e, 4, bus[0]),
                 target_of(e, 5, bus[1])};
    const char *to[] = {bus[3], bus[2], bus[1], bus[0]};
    for (int i = 0; i < 4; i++) {
        nt_assert(t[i] != NULL);
        memcpy(t[i], to[i], strlen(to[i]) + 1);
    }
}

static struct element *parent_of(struct element *root, const struct element *kid, int *at)
{
    for (int i = 0; i < root->nkids; i++) {
        struct element *up;
        if (root->kids[i] == kid) {
            *at = i;
            return root;
        }
        up = parent_of(root->kids[i], kid, at);
        if (up != NULL) {
            return up;
        }
    }
    return NULL;
}

static void take_out(struct element *root, struct element *e)
{
    int at = 0;
    struct element *up = parent_of(root, e, &at);
    up->nkids--;
    memmove(&up->kids[at], &up->kids[at + 1], (size_t)(up->nkids - at) * sizeof(struct element *));
}

/* The PCI device of the nth NIC moves below another parent. */
static struct element *nic_device(struct element *e, int nth)
{
    int at;
    return parent_of(e, tree_find(e, "nic", nth), &at);
}

static void nic_to_other_switch(struct element *e)
{
    struct element *nic = nic_device(e, 0), *last = tree_find(e, "cpu", 1)->kids[0];
    take_out(e, nic);
    last->kids[last->nkids++] = nic;
}

static void nic_off_the_switch(struct element *e)
{
    struct element *nic = nic_device(e, 0), *cpu = tree_find(e, "cpu", 0);
    take_out(e, nic);
    cpu->kids[cpu->nkids++] = nic;
}

static void nic_gone(struct element *e)
{
    struct element *nic = nic_device(e, 1);
    take_out(e, nic);
    tree_free(nic);
}

static void nic_slower(struct element *e)
{
    tree_set(tree_find(e, "net", 0), "speed", "200000");
}

static void one_more_switch(struct element *e)
{
    static const char text[] = "<pci busid=\"0000:fd:00.0\" class=\"0x060400\" link_width=\"16\"/>";
    struct element *cpu = tree_find(e, "cpu", 0), *sw = tree_parse(text, strlen(text));
    sw->kids[sw->nkids++] = cpu->kids[0]->kids[0];
    cpu->kids[0]->kids[0] = sw;
}

static void all_narrow_visit(struct element *e, void *arg)
{
    (void)arg;
    if (strcmp(e->name, "pci") == 0 && e->nkids > 0 && strcmp(e->kids[0]->name, "gpu") == 0) {
        tree_set(e, "link_width", "8");
    }
}

/* One GPU at x8 is unwell; all at x8 are another machine. */
static void all_narrow(struct element *e)
{
    tree_each(e, all_narrow_visit, NULL);
}

static void other_cpu(struct element *e)
{
    for (int i = 0; tree_find(e, "cpu", i) != NULL; i++) {
        tree_set(tree_find(e, "cpu", i), "modelid", "207");
    }
}

static void c2c_gone(struct element *e)
{
    for (int i = 0; tree_find(e, "gpu", i) != NULL; i++) {
        tree_drop_kid(tree_find(e, "gpu", i), 1);
    }
}

static void gpu_to_other_socket(struct element *e)
{
    struct element *sw = tree_find(e, "cpu", 0)->kids[0], *gpu = sw->kids[0];
    struct element *other = tree_find(e, "cpu", 1)->kids[0];
    take_out(e, gpu);
    other->kids[other->nkids++] = gpu;
}

static void ethernet(struct element *e)
{
    tree_set(nic_device(e, 0), "class", "0x020000");
}

#define G(x) (1U << NT_G_##x)

static const struct {
    const char *name, *machine;
    void (*change)(struct element *);
    uint32_t differ;
} other[] = {
    {"GPU model", "nvswitch8.xml", other_model, G(GPUS)},
    {"capability", "nvswitch8.xml", other_sm, G(CAPABILITY)},
    {"NVLinks lost", "nvswitch8.xml", fewer_links, G(NVLINK)},
    {"NVLink lost to a GPU", "mesh8.xml", fewer_links, G(NVLINK)},
    {"crossed pairs", "mesh8.xml", crossed_pairs, G(NVLINK)},
    {"NIC at the other socket", "pcie4.xml", nic_to_other_switch, G(PCIE) | G(NICS)},
    {"NIC beside its switch", "nvswitch8.xml", nic_off_the_switch, G(PCIE) | G(NICS)},
    {"NIC gone", "nvswitch8.xml", nic_gone, G(PCIE) | G(NICS) | G(RATES)},
    {"NIC slower", "nvswitch8.xml", nic_slower, G(RATES)},
    {"one more switch", "pcie4.xml", one_more_switch, G(PCIE) | G(PATHS) | G(NICS)},
    {"all GPUs at x8", "pcie4.xml", all_narrow, G(PCIE)},
    {"CPU model", "pcie4.xml", other_cpu, G(CPU)},
    {"no C2C", "tray1.xml", c2c_gone, G(C2C)},
    {"GPU at the other socket", "pcie4.xml", gpu_to_other_socket,
     G(PCIE) | G(PATHS) | G(NICS) | G(NUMA)},
    {"RoCE for InfiniBand", "nvswitch8.xml", ethernet, G(PCIE)},
};

static void test_what_counts(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof(other) / sizeof(other[0]); c++) {
        struct nt_topology *a = read_data(other[c].machine), *b;
        struct element *e = load(other[c].machine);
        uint32_t compared, differ;
        struct nt_buf words;
        char got[160];
        other[c].change(e);
        b = read_tree(e);
        differ = nt_identity_compare(&a->identity, &b->identity, &compared);
        if (differ != other[c].differ) {
            fail_msg("%s: differ in %s", other[c].name,
                     nt_group_mask_text(differ, got, sizeof(got)));
        }
        nt_buf_init(&words, 1 << 20);
        assert_false(nt_topology_diff(a, "a", b, "b", &words));
        assert_non_null(strstr(nt_buf_str(&words), "different machines"));
        nt_buf_done(&words);
        tree_free(e);
        nt_topology_free(a);
        nt_topology_free(b);
    }
}

/* ---- sources that know different things ---- */

static void test_sources_compare_over_what_both_know(void **state)
{
    static const char smi[] =
        "     GPU0 GPU1 GPU2 GPU3 mlx5_0 mlx5_1 mlx5_2 mlx5_3 CPU Affinity NUMA Affinity\n"
        "GPU0  X   PIX  SYS  SYS  PIX PIX SYS SYS 0-7 0\n"
        "GPU1 PIX   X   SYS  SYS  PIX PIX SYS SYS 0-7 0\n"
        "GPU2 SYS  SYS   X   PIX  SYS SYS PIX PIX 8-15 1\n"
        "GPU3 SYS  SYS  PIX   X   SYS SYS PIX PIX 8-15 1\n";
    struct nt_topology *xml = read_data("pcie4.xml"), *text = read_or_fail("smi", smi, strlen(smi));
    uint32_t compared;
    (void)state;
    assert_int_equal(nt_identity_compare(&xml->identity, &text->identity, &compared), 0);
    assert_int_equal(compared, G(NVLINK) | G(PATHS) | G(NICS) | G(NUMA));
    nt_topology_free(xml);
    nt_topology_free(text);
}

static void test_nothing_in_common_is_no_match(void **state)
{
    struct nt_identity a = {.known = G(GPUS)}, b = {.known = G(PATHS)};
    (void)state;
    assert_false(nt_identity_match(&a, &b));
}

static void test_identity_as_json(void **state)
{
    struct nt_topology *t = read_data("nvswitch8.xml");
    json_t *o = nt_identity_json(&t->identity);
    struct nt_identity back;
    (void)state;
    assert_int_equal(nt_identity_parse(o, &back, NULL), 0);
    assert_memory_equal(&back, &t->identity, sizeof(back));
    (void)json_object_set_new(json_object_get(o, "groups"), "paths",
                              json_string("00000000000000000000000000000000"
                                          "00000000000000000000000000000000"));
    assert_int_not_equal(nt_identity_parse(o, &back, NULL), 0);
    (void)json_object_set_new(json_object_get(o, "groups"), "colour", json_string("x"));
    assert_int_not_equal(nt_identity_parse(o, &back, NULL), 0);
    json_decref(o);
    nt_topology_free(t);
}

/* NCCL before 2.2x wrote AMD's CPU family with the extension shifted. */
static void test_old_amd_families(void **state)
{
    struct nt_topology *a = read_data("amd4.xml"), *b;
    struct element *e = load("amd4.xml");
    (void)state;
    tree_set(tree_find(e, "cpu", 0), "familyid", "143");
    b = read_tree(e);
    assert_string_equal(a->identity.name, b->identity.name);
    tree_free(e);
    nt_topology_free(a);
    nt_topology_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_does_not_count),
        cmocka_unit_test(test_machines_differ),
        cmocka_unit_test(test_what_counts),
        cmocka_unit_test(test_sources_compare_over_what_both_know),
        cmocka_unit_test(test_nothing_in_common_is_no_match),
        cmocka_unit_test(test_identity_as_json),
        cmocka_unit_test(test_old_amd_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
