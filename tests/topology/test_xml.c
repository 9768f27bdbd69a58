/* What the XML reader takes, what it makes of it, and what it refuses and why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/support.h"

#define GPU(bus, dev)                                                                              \
    "<pci busid=\"" bus "\" class=\"0x030200\"><gpu dev=\"" dev "\" sm=\"80\"/></pci>"
#define ONE "<system version=\"1\"><cpu numaid=\"0\">" GPU("0000:01:00.0", "0") "</cpu></system>"

static const struct {
    const char *name, *text, *reason; /* reason NULL: it is taken */
} rows[] = {
    {"plain", ONE, NULL},
    {"byte order mark", "\xef\xbb\xbf" ONE, NULL},
    {"blanks before", "\n\n   " ONE, NULL},
    {"prologue", "<?xml version=\"1.0\"?>\n" ONE, NULL},
    {"prologue not first", "\n<?xml version=\"1.0\"?>\n" ONE, NULL},
    {"doctype", "<!DOCTYPE system>" ONE, NULL},
    {"dashes in a comment", "<!-- a -- b ---><!----->" ONE, NULL},
    {"comment inside",
     "<system version=\"1\"><!-- x --><cpu numaid=\"0\">" GPU("01:00.0",
                                                              "0") "<!-- </cpu> --></cpu></system>",
     NULL},
    {"in a log", "host:12 [0] NCCL INFO dump\n```xml\n" ONE "\n```\nbye\n", NULL},
    {"carriage returns",
     "<system version=\"1\">\r\n<cpu numaid=\"0\">\r\n" GPU("01:00.0",
                                                            "0") "\r\n</cpu>\r\n</system>\r\n",
     NULL},
    {"single quotes",
     "<system version='1'><cpu numaid='0'><pci busid='01:00.0' class='0x030200'/>"
     "</cpu></system>",
     NULL},
    {"unknown element",
     "<system version=\"1\"><thing><pci/></thing><cpu numaid=\"0\">" GPU("01:00.0",
                                                                         "0") "</cpu></system>",
     NULL},
    {"numbers in all bases",
     "<system version=\"1\"><cpu numaid=\"0x1\"><pci busid=\"01:00.0\" "
     "class=\"197120\"/></cpu></system>",
     NULL},
    {"busid without function",
     "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:01:1c\"/></cpu></system>", NULL},
    {"version 3", "<system version=\"3\"></system>", "version '3' is not known"},
    {"no version", "<system><cpu numaid=\"0\"/></system>", "has no version"},
    {"empty", "<system version=\"1\"></system>", "no PCI device"},
    {"no numaid", "<system version=\"1\"><cpu>" GPU("01:00.0", "0") "</cpu></system>", "no numaid"},
    {"no busid", "<system version=\"1\"><cpu numaid=\"0\"><pci class=\"0x0302\"/></cpu></system>",
     "no busid"},
    {"odd busid", "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"GPU0\"/></cpu></system>",
     "'GPU0' is no PCI bus id"},
    {"two GPUs at one place",
     "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x030200\">"
     "<gpu dev=\"0\" sm=\"90\"/></pci><pci busid=\"0000:01:00.0\" class=\"0x030200\">"
     "<gpu dev=\"1\" sm=\"90\"/></pci></cpu></system>",
     "two GPUs at 0000:01:00.0"},
    {"odd target",
     "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"01:00.0\"><gpu sm=\"80\">"
     "<nvlink target=\"x\"/></gpu></pci></cpu></system>",
     "leads to 'x'"},
    {"misplaced", "<system version=\"1\"><gpu dev=\"0\"/></system>",
     "<gpu> where it does not belong"},
    {"cut in an element", "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:0", "cut off"},
    {"cut between elements", "<system version=\"1\"><cpu numaid=\"0\">" GPU("01:00.0", "0"),
     "cut off"},
    {"second cut", ONE "<system version=\"1\"><cpu num", "cut off"},
    {"cut in a comment", "<system version=\"1\"><!-- the", "cut off inside a comment"},
    {"not closed", "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"01:00.0\"></cpu></system>",
     "an element is not closed"},
    {"not well-formed", "<system version=\"1\"><cpu numaid=0/></system>", "not well-formed"},
    {"cut in the middle",
     "<system version=\"1\"><cpu numaid=\"0\">" GPU("01:00.0", "0") "\n  ...\n</cpu></system>",
     "cut in the middle"},
    {"a launcher's tags",
     "[1,0]<stdout>:<system version=\"1\">\n[1,0]<stdout>:<cpu numaid=\"0\">" GPU(
         "01:00.0", "0") "\n[1,0]<stdout>:</cpu></system>\n",
     NULL},
    {"escaped for a web page",
     "&lt;system version=&quot;1&quot;&gt;&lt;cpu numaid=&#34;0&#34;&gt;&lt;pci "
     "busid=&quot;01:00.0&quot; class=&quot;0x030200&quot;/&gt;"
     "&lt;/cpu&gt;&lt;/system&gt;",
     NULL},
    {"graph file", "<graphs version=\"1\"><graph id=\"0\"/></graphs>", "an NCCL graph file"},
    {"hwloc",
     "<?xml version=\"1.0\"?><!DOCTYPE topology SYSTEM \"hwloc2.dtd\"><topology version=\"2.0\"/>",
     "hwloc"},
    {"smi log", "<nvidia_smi_log><gpu/></nvidia_smi_log>", "nvidia-smi -q -x"},
    {"MSCCL", "<algo name=\"a\" nchunksperloop=\"8\" nchannels=\"4\"><gpu id=\"0\"/></algo>",
     "an algorithm of MSCCL"},
    {"web page", "<html><body/></html>", "starts with <html>"},
    {"entities", "<!DOCTYPE a [<!ENTITY b \"c\">]><system version=\"1\"/>", NULL /* see below */},
};

static void test_taken_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_topology *t = NULL;
        struct nt_err e = {0};
        int rc = nt_topology_read_text(rows[i].text, strlen(rows[i].text), &t, &e);
        if (strcmp(rows[i].name, "entities") ==
            0) { /* never expanded; refused one way or another */
            assert_int_not_equal(rc, 0);
        } else if (rows[i].reason == NULL ? rc != 0 : rc != -NT_E_INVAL) {
            fail_msg("%s: rc %d %s", rows[i].name, rc, e.msg);
        } else if (rows[i].reason != NULL && strstr(e.msg, rows[i].reason) == NULL) {
            fail_msg("%s: '%s'", rows[i].name, e.msg);
        }
        nt_topology_free(t);
    }
}

static void test_every_cut_is_refused(void **state)
{
    char path[4096];
    struct nt_buf b;
    size_t end;
    (void)state;
    nt_buf_init(&b, 1 << 20);
    assert_int_equal(nt_buf_read_file(&b, data_path("tray2.xml", path, sizeof(path)), NULL), 0);
    end = (size_t)(strstr(b.data, "</system>") - b.data);
    for (size_t n = 0; n < end + 9; n += 7) {
        struct nt_topology *t = NULL;
        struct nt_err e = {0};
        if (nt_topology_read_text(b.data, n, &t, &e) == 0) {
            fail_msg("%zu of %zu bytes are taken", n, b.len);
        }
        assert_true(e.msg[0] != '\0');
    }
    nt_buf_done(&b);
}

static enum nt_path path(const struct nt_topology *t, int a, int b)
{
    return (enum nt_path)t->path[a * t->ndevs + b];
}

static void test_model(void **state)
{
    struct nt_topology *t = read_data("mesh8.xml");
    (void)state;
    assert_int_equal(t->ngpus, 8);
    assert_int_equal(t->nnets, 4);
    assert_int_equal(t->ncpus, 2);
    assert_int_equal(t->nhosts, 1);
    assert_int_equal(t->links[0 * 8 + 1], 2);
    assert_int_equal(t->gpus[3].nvlinks, 6);
    assert_int_equal(path(t, 0, 0), NT_PATH_LOC);
    assert_int_equal(path(t, 0, 1), NT_PATH_NVL);
    assert_int_equal(path(t, 0, 5), NT_PATH_NVB);
    assert_int_equal(path(t, 0, 8), NT_PATH_PIX);
    assert_int_equal(path(t, 0, 9), NT_PATH_PXN); /* over a GPU beside that NIC */
    assert_int_equal(path(t, 9, 0), NT_PATH_PHB); /* the way back is not relayed */
    assert_int_equal(path(t, 0, 11), NT_PATH_SYS);
    nt_topology_free(t);
}

static void test_hosts(void **state)
{
    struct nt_topology *t = read_data("tray2.xml");
    (void)state;
    assert_int_equal(t->nhosts, 2);
    assert_int_equal(t->ngpus, 8);
    assert_int_equal(t->gpus[5].host, 1);
    assert_int_equal(t->links[0 * 8 + 7], 18);
    assert_int_equal(path(t, 0, 7), NT_PATH_NVL);
    assert_int_equal(path(t, 0, 8), NT_PATH_P2C); /* by C2C and the CPU to the NIC */
    assert_int_equal(t->gpus[0].c2c_links, 10);
    nt_topology_free(t);
}

/* Without host_hash: the bus ids tell that there are two. Two systems in one file are two hosts. */
static void test_hosts_without_hash(void **state)
{
    static const char *const texts[] = {
        "<system version=\"1\"><cpu numaid=\"0\">" GPU(
            "01:00.0",
            "0") "</cpu><cpu numaid=\"1\">" GPU("81:00.0",
                                                "1") "</cpu><cpu numaid=\"0\">" GPU("01:00.0",
                                                                                    "0") "</"
                                                                                         "cpu><cpu "
                                                                                         "numaid="
                                                                                         "\"1\""
                                                                                         ">" GPU(
                                                                                             "8"
                                                                                             "1"
                                                                                             ":"
                                                                                             "0"
                                                                                             "0"
                                                                                             "."
                                                                                             "0",
                                                                                             "1") "</cpu></system>",
        "<system version=\"1\"><cpu numaid=\"0\">" GPU(
            "01:00.0",
            "0") "</cpu><cpu numaid=\"1\">" GPU("81:00.0",
                                                "1") "</cpu></system>\n<system version=\"1\"><cpu "
                                                     "numaid=\"0\">" GPU(
                                                         "01:00.0",
                                                         "0") "</"
                                                              "cpu><cpu "
                                                              "numaid="
                                                              "\"1\""
                                                              ">" GPU("8"
                                                                      "1"
                                                                      ":"
                                                                      "0"
                                                                      "0"
                                                                      "."
                                                                      "0",
                                                                      "1") "</cpu></system>"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct nt_topology *t = read_or_fail("two hosts", texts[i], strlen(texts[i]));
        assert_int_equal(t->nhosts, 2);
        assert_int_equal(path(t, 0, 1), NT_PATH_SYS);
        assert_int_equal(path(t, 0, 2), NT_PATH_DIS); /* no NIC between them */
        nt_topology_free(t);
    }
}

static const struct {
    const char *name, *tree;
    enum nt_path want; /* between the two GPUs */
} ways[] = {
#define SW(bus, inner) "<pci busid=\"" bus "\" class=\"0x060400\">" inner "</pci>"
#define BCM(bus, sub, inner)                                                                       \
    "<pci busid=\"" bus "\" class=\"0x060400\" vendor=\"0x1000\" device=\"0xc030\" "               \
    "subsystem_vendor=\"0x1000\" subsystem_device=\"" sub "\">" inner "</pci>"
#define CPU(inner) "<system version=\"1\"><cpu numaid=\"0\">" inner "</cpu></system>"
#define A          GPU("01:00.0", "0")
#define B          GPU("02:00.0", "1")
    {"one switch", CPU(SW("10:00.0", A B)), NT_PATH_PIX},
    {"two levels", CPU(SW("10:00.0", A SW("11:00.0", B))), NT_PATH_PXB},
    {"host bridge", CPU(A SW("11:00.0", B)), NT_PATH_PHB},
    {"two sockets",
     "<system version=\"1\"><cpu numaid=\"0\">" A "</cpu><cpu numaid=\"1\">" B "</cpu></system>",
     NT_PATH_SYS},
    {"two levels of one chip",
     CPU(BCM("10:00.0", "0x0072", BCM("11:00.0", "0x1003", A) BCM("12:00.0", "0x1003", B))),
     NT_PATH_PIX},
    {"two chips",
     CPU(BCM("10:00.0", "0x0072", BCM("11:00.0", "0x0072", A) BCM("12:00.0", "0x0072", B))),
     NT_PATH_PXB},
    {"joined switches", CPU(SW("10:00.0", A "<pcilink target=\"0000:11:00.0\"/>") SW("11:00.0", B)),
     NT_PATH_PXB},
};

static void test_pcie_paths(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct nt_topology *t = read_or_fail(ways[i].name, ways[i].tree, strlen(ways[i].tree));
        if (path(t, 0, 1) != ways[i].want || path(t, 1, 0) != ways[i].want) {
            fail_msg("%s: %s", ways[i].name, nt_path_names[path(t, 0, 1)]);
        }
        nt_topology_free(t);
    }
}

static void test_template_knows_little(void **state)
{
    struct nt_topology *t = read_data("template4.xml");
    (void)state;
    assert_int_equal(t->ngpus, 4);
    assert_int_equal(t->nnets, 4);
    assert_int_equal(t->known, 1U << NT_G_PCIE | 1U << NT_G_NUMA | 1U << NT_G_CPU);
    nt_topology_free(t);
}

/* Names from files go to terminals. */
static void test_names_are_printable(void **state)
{
    static const char text[] =
        "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"01:00.0\" class=\"0x020000\">"
        "<nic><net name=\"\xc2\x9b[31m&#9;eth\xc3\xa9\" dev=\"0\"/></nic></pci></cpu></system>";
    struct nt_topology *t = read_or_fail("names", text, strlen(text));
    (void)state;
    for (const char *p = t->nets[0].name; *p != '\0'; p++) {
        assert_true(*p >= 0x20 && *p <= 0x7e);
    }
    nt_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken_or_refused),
        cmocka_unit_test(test_every_cut_is_refused),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_hosts_without_hash),
        cmocka_unit_test(test_pcie_paths),
        cmocka_unit_test(test_template_knows_little),
        cmocka_unit_test(test_names_are_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
