/* The live reader over machines written out as sysfs and a stub of NVML. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/topology/support.h"

static char folder[256]; /* of all machines of this run */

static int run(char *const *argv)
{
    pid_t pid;
    int status = -1;
    if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0 ||
        waitpid(pid, &status, 0) != pid) {
        return -1;
    }
    return status;
}

/* Where the machine of a data file, changed as the options say, lies. */
static void root_of(const char *name, const char *const *options, char root[512])
{
    int n = snprintf(root, 512, "%s/%s", folder, name);
    for (; options != NULL && *options != NULL; options++) {
        n += snprintf(root + n, 512 - (size_t)n, "+%s", *options);
    }
}

/* Adds it to what one run of the script makes. */
static void order(FILE *jobs, const char *name, const char *const *options)
{
    char root[512], xml[4096];

    root_of(name, options, root);
    (void)fprintf(jobs, "%s %s", data_path(name, xml, sizeof(xml)), root);
    for (; options != NULL && *options != NULL; options++) {
        (void)fprintf(jobs, " %s", *options);
    }
    (void)fprintf(jobs, "\n");
}

static struct nt_topology *read_root(const char *root, const char *library)
{
    char file[600];
    struct nt_topology *t = NULL;
    struct nt_err e = {0};
    struct nt_live_opts opts = {.root = root, .nvml = library};

    (void)snprintf(file, sizeof(file), "%s/nvml.txt", root);
    assert_int_equal(setenv("NT_STUB_NVML", file, 1), 0);
    if (nt_topology_read_live(&opts, &t, &e) != 0) {
        fail_msg("%s: %s", root, e.msg);
    }
    return t;
}

static struct nt_topology *read_live(const char *name, const char *const *options)
{
    char root[512];
    root_of(name, options, root);
    return read_root(root, getenv("NT_STUB_LIBRARY"));
}

static const char *const names[] = {"nvswitch8.xml", "pcie4.xml",     "mesh8.xml", "pairs4.xml",
                                    "tray1.xml",     "template4.xml", "vm2.xml"};

/* A machine and NCCL's dump of it are the same machine. */
static void test_live_is_what_xml_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct nt_topology *xml = read_data(names[i]), *live = read_live(names[i], NULL);
        struct nt_buf words;
        uint32_t compared;
        nt_buf_init(&words, 1 << 20);
        if (!nt_topology_diff(xml, "xml", live, "live", &words) || !nt_topology_healthy(live)) {
            fail_msg("%s: %s\n%s", names[i], nt_buf_str(&words),
                     live->nfindings > 0 ? live->findings[0].text : "");
        }
        (void)nt_identity_compare(&xml->identity, &live->identity, &compared);
        if (compared != xml->known) { /* live knows all that a dump does */
            fail_msg("%s: compared %x of %x", names[i], compared, xml->known);
        }
        if (memcmp(xml->path, live->path, (size_t)xml->ngpus) != 0) {
            fail_msg("%s: other paths", names[i]);
        }
        nt_buf_done(&words);
        nt_topology_free(xml);
        nt_topology_free(live);
    }
}

static const struct {
    const char *name, *machine;
    const char *options[6];
    enum nt_finding_kind kind;
    bool unhealthy, same; /* identity as before */
    const char *words;
} rows[] = {
    {"GPU at x4",
     "pcie4.xml",
     {"--width", "0000:14:00.0=4"},
     NT_F_NARROW_LINK,
     true,
     true,
     "GPU1 (0000:14:00.0) runs at x4, its link is built for x16"},
    {"GPU in a slot of x4",
     "pcie4.xml",
     {"--slot", "0000:14:00.0=4"},
     NT_F_NARROW_LINK,
     true,
     true,
     "GPU1 (0000:14:00.0) has a link of x4, others of its kind at x16"},
    {"switch at x8",
     "pcie4.xml",
     {"--width", "0000:10:00.0=8"},
     NT_F_NARROW_LINK,
     true,
     true,
     "switch 0000:10:00.0"},
    {"ACS", "pcie4.xml", {"--acs", "0000:13:00.0"}, NT_F_ACS_ON, true, true, "above 1 GPU "},
    {"IOMMU", "nvswitch8.xml", {"--iommu", "DMA-FQ"}, NT_F_IOMMU_ON, true, true, "for 8 GPUs"},
    {"IOMMU on ARM", "tray1.xml", {"--iommu", "DMA"}, NT_F_IOMMU_ON, false, true, "for 4 GPUs"},
    {"P2P off for a pair",
     "pcie4.xml",
     {"--p2p", "0-3=3"},
     NT_F_P2P_OFF,
     true,
     false,
     "between GPU0 and GPU3 (1 of 6 pairs)"},
    {"NVLink lost",
     "nvswitch8.xml",
     {"--drop-link", "5"},
     NT_F_NVLINK_MISSING,
     true,
     false,
     "GPU5 has 17 NVLinks, its siblings have 18"},
    {"port down",
     "nvswitch8.xml",
     {"--down", "mlx5_3"},
     NT_F_PORT_DOWN,
     false,
     false,
     "port 1 of mlx5_3"},
    {"MIG", "pcie4.xml", {"--mig", "2"}, NT_F_MIG, false, false, "1 of 4 GPUs"},
};

static void test_findings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_topology *well = read_live(rows[i].machine, NULL);
        struct nt_topology *t = read_live(rows[i].machine, rows[i].options);
        bool found = false;
        for (int k = 0; k < t->nfindings; k++) {
            found = found || (t->findings[k].kind == rows[i].kind &&
                              strstr(t->findings[k].text, rows[i].words) != NULL);
        }
        if (!found || nt_topology_healthy(t) == rows[i].unhealthy ||
            nt_identity_match(&well->identity, &t->identity) != rows[i].same) {
            fail_msg("%s: found %d healthy %d match %d; first '%s'", rows[i].name, found,
                     nt_topology_healthy(t), nt_identity_match(&well->identity, &t->identity),
                     t->nfindings > 0 ? t->findings[0].text : "");
        }
        nt_topology_free(well);
        nt_topology_free(t);
    }
}

/* More changes of pcie4.xml. */
static const char *const passed_through[] = {"--iommu", "identity", NULL},
                         *const less_memory[] = {"--memory", "40960", NULL},
                         *const near_memory[] = {"--memory", "81100", NULL};
static const char *const *const more[] = {passed_through, less_memory, near_memory};

static void test_iommu_passed_through(void **state)
{
    struct nt_topology *t = read_live("pcie4.xml", passed_through);
    (void)state;
    assert_int_equal(t->nfindings, 0);
    assert_int_equal(t->pcis[t->gpus[0].pci].iommu, NT_OFF);
    assert_int_equal(t->pcis[t->gpus[0].pci].acs, NT_OFF);
    nt_topology_free(t);
}

/* Memory is known to the live machine only: two of them are compared by it. */
static void test_memory(void **state)
{
    struct nt_topology *a = read_live("pcie4.xml", NULL), *b = read_live("pcie4.xml", less_memory),
                       *c = read_live("pcie4.xml", near_memory);
    uint32_t compared;
    (void)state;
    assert_int_equal(nt_identity_compare(&a->identity, &b->identity, &compared), 1U << NT_G_MEMORY);
    assert_true(nt_identity_match(&a->identity, &c->identity));
    nt_topology_free(a);
    nt_topology_free(b);
    nt_topology_free(c);
}

/* Without a driver, sysfs alone. */
static void test_without_nvml(void **state)
{
    struct nt_topology *xml = read_data("pcie4.xml"), *t;
    char root[512];
    uint32_t compared;
    (void)state;
    root_of("pcie4.xml", NULL, root);
    t = read_root(root, "/nonexistent/libnvidia-ml.so.1");
    assert_int_equal(t->ngpus, 4);
    assert_int_equal(nt_identity_compare(&xml->identity, &t->identity, &compared), 0);
    assert_int_equal(compared, 1U << NT_G_GPUS | 1U << NT_G_PCIE | 1U << NT_G_NICS |
                                   1U << NT_G_RATES | 1U << NT_G_NUMA | 1U << NT_G_CPU);
    assert_int_equal(count_findings(t, NT_F_NOTE, false), 1);
    nt_topology_free(t);
    nt_topology_free(xml);
}

static void test_no_machine(void **state)
{
    struct nt_topology *t = NULL;
    struct nt_err e = {0};
    struct nt_live_opts opts = {.root = "/nonexistent", .nvml = "/nonexistent/nvml.so"};
    (void)state;
    assert_int_equal(nt_topology_read_live(&opts, &t, &e), -NT_E_MISSING);
    assert_non_null(strstr(e.msg, "no NVIDIA GPU"));
}

static int set_up(void **state)
{
    char script[4096], jobs[512];
    char *argv[] = {(char[]){"python3"}, script, (char[]){"--jobs"}, jobs, NULL};
    FILE *out;

    (void)state;
    (void)snprintf(folder, sizeof(folder), "%s/topology-XXXXXX",
                   getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(script, sizeof(script), "%s/tests/topology/make_live.py",
                   getenv("NT_SOURCE_DIR"));
    (void)snprintf(jobs, sizeof(jobs), "%s/jobs", folder);
    out = fopen(jobs, "w");
    if (out == NULL) {
        return -1;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        order(out, names[i], NULL);
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        order(out, rows[i].machine, rows[i].options);
    }
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        order(out, "pcie4.xml", more[i]);
    }
    (void)fclose(out);
    return run(argv);
}

static int tear_down(void **state)
{
    char *argv[] = {(char[]){"rm"}, (char[]){"-rf"}, folder, NULL};
    (void)state;
    return run(argv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live_is_what_xml_says), cmocka_unit_test(test_findings),
        cmocka_unit_test(test_iommu_passed_through),  cmocka_unit_test(test_memory),
        cmocka_unit_test(test_without_nvml),          cmocka_unit_test(test_no_machine),
    };
    if (getenv("NT_STUB_LIBRARY") == NULL || getenv("NT_SOURCE_DIR") == NULL) {
        (void)printf("NT_STUB_LIBRARY and NT_SOURCE_DIR are not set\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
