/* Sick machines: which finding, at which device, and that the well ones have none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/support.h"

static struct element *load(const char *name)
{
    char path[4096];
    struct element *e = tree_load(data_path(name, path, sizeof(path)));
    assert_non_null(e);
    return e;
}

static struct element *parent_of(struct element *root, const struct element *kid)
{
    for (int i = 0; i < root->nkids; i++) {
        struct element *up = root->kids[i] == kid ? root : parent_of(root->kids[i], kid);
        if (up != NULL) {
            return up;
        }
    }
    return NULL;
}

static void narrow_gpu(struct element *e)
{
    tree_set(parent_of(e, tree_find(e, "gpu", 2)), "link_width", "4");
}

static void narrow_nic(struct element *e)
{
    tree_set(parent_of(e, tree_find(e, "nic", 1)), "link_width", "8");
}

/* Both NICs: no sibling tells, the ports do (two of 100 Gbit/s). */
static void narrow_nics(struct element *e)
{
    tree_set(parent_of(e, tree_find(e, "nic", 0)), "link_width", "8");
    tree_set(parent_of(e, tree_find(e, "nic", 1)), "link_width", "8");
}

static void slow_nics(struct element *e)
{
    narrow_nics(e);
    for (int i = 0; i < 4; i++) {
        tree_set(tree_find(e, "net", i), "speed", "25000");
    }
}

static void no_links(struct element *e)
{
    while (tree_find(e, "gpu", 3)->nkids > 0) {
        tree_drop_kid(tree_find(e, "gpu", 3), 0);
    }
}

static void fewer_links(struct element *e)
{
    tree_set(tree_find(e, "nvlink", 4), "count", "3");
}

static void count_0(struct element *e)
{
    tree_set(tree_find(e, "nvlink", 0), "count", "0");
}

/* The first NVLink ends at its own GPU. */
static void self_link(struct element *e)
{
    tree_set(tree_find(e, "nvlink", 0), "target", "0001:00:00.0");
}

static void gdr_lost(struct element *e)
{
    tree_set(tree_find(e, "gpu", 1), "gdr", "0");
}

static void gdr_lost_nic(struct element *e)
{
    tree_set(tree_find(e, "net", 5), "gdr", "0");
}

static void gdr_nowhere(struct element *e)
{
    for (int i = 0; tree_find(e, "gpu", i) != NULL; i++) {
        tree_set(tree_find(e, "gpu", i), "gdr", "0");
    }
}

static void c2c_lost(struct element *e)
{
    tree_drop_kid(tree_find(e, "gpu", 2), 1);
}

static void c2c_fewer(struct element *e)
{
    tree_set(tree_find(e, "c2c", 3), "count", "4");
}

/* All four GPUs of the second tray. */
static void tray_without_links(struct element *e)
{
    for (int i = 4; i < 8; i++) {
        tree_drop_kid(tree_find(e, "gpu", i), 0);
    }
}

static void width_not_known(struct element *e)
{
    tree_set(parent_of(e, tree_find(e, "gpu", 2)), "link_width", "255");
}

static void other_model(struct element *e)
{
    tree_set(parent_of(e, tree_find(e, "gpu", 0)), "device", "0x2331");
}

static void outside(struct element *e)
{
    struct element *gpu = tree_find(e, "gpu", 7), *dev = parent_of(e, gpu), *sw = parent_of(e, dev);
    for (int i = 0; i < sw->nkids; i++) {
        if (sw->kids[i] == dev) {
            tree_drop_kid(sw, i);
            return;
        }
    }
}

static void nothing(struct element *e)
{
    (void)e;
}

static const struct {
    const char *name, *machine;
    void (*change)(struct element *);
    int kind; /* enum nt_finding_kind; -1: none at all */
    int count;
    bool unhealthy;
    const char *device; /* of the first one */
} rows[] = {
    {"well", "nvswitch8.xml", nothing, -1, 0, false, NULL},
    {"well", "pcie4.xml", nothing, -1, 0, false, NULL},
    {"well", "mesh8.xml", nothing, -1, 0, false, NULL},
    {"well", "pairs4.xml", nothing, -1, 0, false, NULL},
    {"well", "tray2.xml", nothing, -1, 0, false, NULL},
    {"well", "amd4.xml", nothing, -1, 0, false, NULL},
    {"well", "template4.xml", nothing, -1, 0, false, NULL},
    {"GPU at x4", "pcie4.xml", narrow_gpu, NT_F_NARROW_LINK, 1, true, "GPU2"},
    {"NIC at x8", "pcie4.xml", narrow_nic, NT_F_NARROW_LINK, 1, true, "NIC2 (mlx5_2)"},
    {"all NICs at x8", "pcie4.xml", narrow_nics, NT_F_NARROW_LINK, 2, true, "NIC0 (mlx5_0)"},
    {"slow NICs at x8", "pcie4.xml", slow_nics, -1, 0, false, NULL},
    {"GPU without NVLinks", "nvswitch8.xml", no_links, NT_F_NVLINK_MISSING, 1, true, "GPU3"},
    {"GPU with fewer NVLinks", "nvswitch8.xml", fewer_links, NT_F_NVLINK_MISSING, 1, true, "GPU1"},
    {"NVLinks with count 0", "nvswitch8.xml", count_0, NT_F_NVLINK_COUNT_0, 1, true, "GPU0"},
    {"NVLink to itself", "pairs4.xml", self_link, NT_F_NVLINK_SELF, 1, true, "GPU0"},
    {"NVLink one way", "mesh8.xml", fewer_links, NT_F_NVLINK_ONE_WAY, 1, true, "GPU0-GPU1"},
    {"gdr lost on a GPU", "nvswitch8.xml", gdr_lost, NT_F_GDR_LOST, 1, true, "GPU1"},
    {"gdr lost on a NIC", "nvswitch8.xml", gdr_lost_nic, NT_F_GDR_LOST, 1, true, "NIC5 (mlx5_5)"},
    {"no gdr anywhere", "nvswitch8.xml", gdr_nowhere, -1, 0, false, NULL},
    {"C2C lost", "tray1.xml", c2c_lost, NT_F_C2C_MISSING, 1, true, "GPU2"},
    {"C2C fewer", "tray1.xml", c2c_fewer, NT_F_C2C_MISSING, 1, true, "GPU3"},
    {"a tray without NVLinks", "tray2.xml", tray_without_links, NT_F_NVLINK_MISSING, 4, true,
     "GPU4"},
    {"width not known", "pcie4.xml", width_not_known, -1, 0, false, NULL},
    {"two models", "nvswitch8.xml", other_model, NT_F_MIXED_GPUS, 1, false, ""},
    {"part of a machine", "mesh8.xml", outside, NT_F_NOTE, 1, false, ""},
};

static const struct nt_finding *first_of(const struct nt_topology *t, int kind)
{
    for (int i = 0; i < t->nfindings; i++) {
        if ((int)t->findings[i].kind == kind) {
            return &t->findings[i];
        }
    }
    return NULL;
}

static void test_findings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_topology *t;
        const struct nt_finding *f;
        if (rows[i].change == nothing) {
            t = read_data(rows[i].machine);
        } else {
            struct element *e = load(rows[i].machine);
            rows[i].change(e);
            t = read_tree(e);
            tree_free(e);
        }
        f = first_of(t, rows[i].kind);
        if ((rows[i].kind < 0 && t->nfindings > 0) ||
            nt_topology_healthy(t) != !rows[i].unhealthy || (rows[i].kind >= 0 && f == NULL)) {
            fail_msg("%s (%s): %d findings, first '%s'", rows[i].name, rows[i].machine,
                     t->nfindings, t->nfindings > 0 ? t->findings[0].text : "");
        }
        if (f != NULL &&
            (count_findings(t, f->kind, false) != rows[i].count ||
             f->unhealthy != rows[i].unhealthy || strcmp(f->device, rows[i].device) != 0)) {
            fail_msg("%s: %d, '%s', device '%s'", rows[i].name, count_findings(t, f->kind, false),
                     f->text, f->device);
        }
        nt_topology_free(t);
    }
}

/* A narrow link is unwell, not another machine: the identity is that of the link as built. */
static void test_narrow_link_keeps_identity(void **state)
{
    void (*const changes[])(struct element *) = {narrow_gpu, narrow_nic, narrow_nics};
    struct nt_topology *a = read_data("pcie4.xml");
    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct element *e = load("pcie4.xml");
        struct nt_topology *b;
        struct nt_buf words;
        changes[i](e);
        b = read_tree(e);
        nt_buf_init(&words, 1 << 16);
        assert_true(nt_topology_diff(a, "a", b, "b", &words));
        assert_non_null(strstr(nt_buf_str(&words), "the same machine"));
        assert_non_null(strstr(nt_buf_str(&words), "only B: "));
        nt_buf_done(&words);
        nt_topology_free(b);
        tree_free(e);
    }
    nt_topology_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_findings),
        cmocka_unit_test(test_narrow_link_keeps_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
