/* One matrix in all the shapes that people paste it in, and what is no matrix. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/support.h"

#define LEGEND                                                                                     \
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP "          \
    "interconnect between NUMA nodes (e.g., QPI/UPI)\n  NODE = Connection traversing PCIe as "     \
    "well as\nthe interconnect between PCIe Host\nBridges within a NUMA node\n  PHB  = "           \
    "Connection traversing PCIe as well as a PCIe Host Bridge\n(typically the CPU)\n  PIX  = "     \
    "Connection traversing at most a single PCIe bridge\n  NV#  = Connection traversing a "        \
    "bonded set of # NVLinks\n"

static const char tabs[] =
    "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV4\tPIX\tSYS\tPIX\tSYS\t0-15\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tNODE\tSYS\tNODE\tSYS\t0-15\t0\t\tN/A\n"
    "GPU2\tPIX\tNODE\t X \tSYS\tPIX\tSYS\t0-15\t0\t\tN/A\n"
    "GPU3\tSYS\tSYS\tSYS\t X \tSYS\tPHB\t16-31\t1\t\tN/A\n"
    "NIC0\tPIX\tNODE\tPIX\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tSYS\tSYS\tPHB\tSYS\t X \t\t\t\t\n" LEGEND
    "\nNIC Legend:\n\n  NIC0: mlx5_2\n  NIC1: mlx5_7\n";

static const struct {
    const char *name, *text;
} shapes[] = {
    {"blanks",
     "        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU "
     "NUMA ID\n"
     "GPU0     X      NV4     PIX     SYS     PIX     SYS     0-15    0               N/A\n"
     "GPU1    NV4      X      NODE    SYS     NODE    SYS     0-15    0               N/A\n"
     "GPU2    PIX     NODE     X      SYS     PIX     SYS     0-15    0               N/A\n"
     "GPU3    SYS     SYS     SYS      X      SYS     PHB     16-31   1               N/A\n"
     "NIC0    PIX     NODE    PIX     SYS      X      SYS\n"
     "NIC1    SYS     SYS     SYS     PHB     SYS      X\n" LEGEND},
    {"colours",
     "\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_2\tmlx5_7\tCPU Affinity\tNUMA Affinity\x1b[0m\r\n"
     "GPU0\t X \tNV4\tPIX\tSYS\tPIX\tSYS\t0-15\t0\r\n"
     "GPU1\tNV4\t X \tNODE\tSYS\tNODE\tSYS\t0-15\t0\r\n"
     "GPU2\tPIX\tNODE\t X \tSYS\tPIX\tSYS\t0-15\t0\r\n"
     "GPU3\tSYS\tSYS\tSYS\t X \tSYS\tPHB\t16-31\t1\r\n"
     "mlx5_2\tPIX\tNODE\tPIX\tSYS\t X \tSYS\r\nmlx5_7\tSYS\tSYS\tSYS\tPHB\tSYS\t X \r\n"},
    {"escapes lost", "[4mGPU0 GPU1 GPU2 GPU3 NIC0 NIC1 CPU Affinity NUMA Affinity[0m\n"
                     "GPU0 X NV4 PIX SYS PIX SYS 0-15 0\nGPU1 NV4 X NODE SYS NODE SYS 0-15 0\n"
                     "GPU2 PIX NODE X SYS PIX SYS 0-15 0\nGPU3 SYS SYS SYS X SYS PHB 16-31 1\n"
                     "NIC0 PIX NODE PIX SYS X SYS\nNIC1 SYS SYS SYS PHB SYS X\n"},
    {"glued", "GPU0GPU1GPU2GPU3NIC0NIC1CPU AffinityNUMA AffinityGPU NUMA ID\n"
              "GPU0 X NV4 PIX SYS PIX SYS 0-15 0 N/A\nGPU1 NV4 X NODE SYS NODE SYS 0-15 0 N/A\n"
              "GPU2 PIX NODE X SYS PIX SYS 0-15 0 N/A\nGPU3 SYS SYS SYS X SYS PHB 16-31 1 N/A\n"
              "NIC0 PIX NODE PIX SYS X SYS\nNIC1 SYS SYS SYS PHB SYS X\n"},
    {"prompt and fence",
     "Hi all,\nhere is mine:\n```\nuser@host:~$ nvidia-smi topo -m\n"
     "    GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 CPU Affinity NUMA Affinity\n"
     "GPU0 X NV4 PIX SYS PIX SYS 0-15 0\nGPU1 NV4 X NODE SYS NODE SYS 0-15 0\n"
     "GPU2 PIX NODE X SYS PIX SYS 0-15 0\nGPU3 SYS SYS SYS X SYS PHB 16-31 1\n"
     "NIC0 PIX NODE PIX SYS X SYS\nNIC1 SYS SYS SYS PHB SYS X\n```\nGPU0 is fast.\n"},
    {"quoted", "> \tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
               "> GPU0\t X \tNV4\tPIX\tSYS\tPIX\tSYS\t0-15\t0\n> GPU1\tNV4\t X "
               "\tNODE\tSYS\tNODE\tSYS\t0-15\t0\n"
               "> GPU2\tPIX\tNODE\t X \tSYS\tPIX\tSYS\t0-15\t0\n> GPU3\tSYS\tSYS\tSYS\t X "
               "\tSYS\tPHB\t16-31\t1\n"
               "> NIC0\tPIX\tNODE\tPIX\tSYS\t X \tSYS\n> NIC1\tSYS\tSYS\tSYS\tPHB\tSYS\t X \n"},
    {"launcher prefixes",
     "[1,0]<stdout>: GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 CPU Affinity NUMA Affinity\n"
     "[1,0]<stdout>:GPU0 X NV4 PIX SYS PIX SYS 0-15 0\n"
     "[1,0]<stdout>:GPU1 NV4 X NODE SYS NODE SYS 0-15 0\n"
     "[1,0]<stdout>:GPU2 PIX NODE X SYS PIX SYS 0-15 0\n"
     "[1,0]<stdout>:GPU3 SYS SYS SYS X SYS PHB 16-31 1\n"
     "[1,0]<stdout>: NIC0 PIX NODE PIX SYS X SYS\n[1,0]<stdout>: NIC1 SYS SYS SYS PHB SYS X\n"},
    {"host prefixes",
     "node7:\t\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
     "node7:\tGPU0\t X \tNV4\tPIX\tSYS\tPIX\tSYS\t0-15\t0\t\tN/A\nnode7:\tGPU1\tNV4\t X "
     "\tNODE\tSYS\tNODE\tSYS\t0-15\t0\t\tN/A\n"
     "node7:\tGPU2\tPIX\tNODE\t X \tSYS\tPIX\tSYS\t\t0\t\tN/A\nnode7:\tGPU3\tSYS\tSYS\tSYS\t X "
     "\tSYS\tPHB\t16-31\t1\t\tN/A\n"
     "node7:\tNIC0\tPIX\tNODE\tPIX\tSYS\t X \tSYS\nnode7:\tNIC1\tSYS\tSYS\tSYS\tPHB\tSYS\t X \n"},
    {"markdown", "| | GPU0 | GPU1 | GPU2 | GPU3 | NIC0 | NIC1 | CPU Affinity | NUMA Affinity |\n"
                 "|---|---|---|---|---|---|---|---|---|\n"
                 "| GPU0 | X | NV4 | PIX | SYS | PIX | SYS | 0-15 | 0 |\n"
                 "| GPU1 | NV4 | X | NODE | SYS | NODE | SYS | 0-15 | 0 |\n"
                 "| GPU2 | PIX | NODE | X | SYS | PIX | SYS | 0-15 | 0 |\n"
                 "| GPU3 | SYS | SYS | SYS | X | SYS | PHB | 16-31 | 1 |\n"
                 "| NIC0 | PIX | NODE | PIX | SYS | X | SYS | | |\n| NIC1 | SYS | SYS | SYS | PHB "
                 "| SYS | X | | |\n"},
    {"wrapped rows", "GPU0 GPU1 GPU2 GPU3\nNIC0 NIC1 CPU Affinity NUMA Affinity\n"
                     "GPU0 X NV4 PIX\nSYS PIX SYS 0-15 0\nGPU1 NV4 X NODE\nSYS NODE SYS 0-15 0\n"
                     "GPU2 PIX NODE X\nSYS PIX SYS 0-15 0\nGPU3 SYS SYS SYS\nX SYS PHB 16-31 1\n"
                     "NIC0 PIX NODE PIX\nSYS X SYS\nNIC1 SYS SYS SYS\nPHB SYS X\n"},
    {"header wrapped between words",
     "GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 CPU\nAffinity NUMA Affinity\n"
     "GPU0 X NV4 PIX SYS PIX SYS 0-15 0\nGPU1 NV4 X NODE SYS NODE SYS 0-15 0\n"
     "GPU2 PIX NODE X SYS PIX SYS 0-15 0\nGPU3 SYS SYS SYS X SYS PHB 16-31 1\n"
     "NIC0 PIX NODE PIX SYS X SYS\nNIC1 SYS SYS SYS PHB SYS X\n"},
    {"prefixes glued to every row",
     "[1,0]<stdout>:\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
     "[1,0]<stdout>:GPU0\t X \tNV4\tPIX\tSYS\tPIX\tSYS\t0-15\t0\n"
     "[1,0]<stdout>:GPU1\tNV4\t X \tNODE\tSYS\tNODE\tSYS\t0-15\t0\n"
     "[1,0]<stdout>:GPU2\tPIX\tNODE\t X \tSYS\tPIX\tSYS\t0-15\t0\n"
     "[1,0]<stdout>:GPU3\tSYS\tSYS\tSYS\t X \tSYS\tPHB\t16-31\t1\n"
     "[1,0]<stdout>:NIC0\tPIX\tNODE\tPIX\tSYS\t X \tSYS\n"
     "[1,0]<stdout>:NIC1\tSYS\tSYS\tSYS\tPHB\tSYS\t X \n"},
    {"broken inside the last columns",
     "        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    CPU Affi\nnity    NUMA Affinity\n"
     "GPU0     X      NV4     PIX     SYS     PIX     SYS     0-15    \n0\n"
     "GPU1    NV4      X      NODE    SYS     NODE    SYS     0-15    \n0\n"
     "GPU2    PIX     NODE     X      SYS     PIX     SYS     0-15    \n0\n"
     "GPU3    SYS     SYS     SYS      X      SYS     PHB     16-31   \n1\n"
     "NIC0    PIX     NODE    PIX     SYS      X      SYS\n"
     "NIC1    SYS     SYS     SYS     PHB     SYS      X\n"},
    {"CSV", ",GPU0,GPU1,GPU2,GPU3,NIC0,NIC1,CPU Affinity\n"
            "GPU0, X ,NV4,PIX,SYS,PIX,SYS,0-7,16-23\nGPU1,NV4, X ,NODE,SYS,NODE,SYS,0-7,16-23\n"
            "GPU2,PIX,NODE, X ,SYS,PIX,SYS,0-7,16-23\nGPU3,SYS,SYS,SYS, X ,SYS,PHB,8-15,24-31\n"
            "NIC0,PIX,NODE,PIX,SYS,X,SYS\nNIC1,SYS,SYS,SYS,PHB,SYS,X\n"},
    {"affinity in parts",
     "GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 CPU Affinity NUMA Affinity\n"
     "GPU0 X NV4 PIX SYS PIX SYS 0-7, 16-23 0\nGPU1 NV4 X NODE SYS NODE SYS 0-7, 16-23 0\n"
     "GPU2 PIX NODE X SYS PIX SYS 0-7, 16-23 0\nGPU3 SYS SYS SYS X SYS PHB 8-15, 24-31 1\n"
     "NIC0 PIX NODE PIX SYS X SYS\nNIC1 SYS SYS SYS PHB SYS X\n"},
    {"affinity without NUMA", "GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 CPU Affinity\n"
                              "GPU0 X NV4 PIX SYS PIX SYS 0-15\nGPU1 NV4 X NODE SYS NODE SYS 0-15\n"
                              "GPU2 PIX NODE X SYS PIX SYS 0-15\nGPU3 SYS SYS SYS X SYS PHB 16-31\n"
                              "NIC0 PIX NODE PIX SYS X SYS\nNIC1 SYS SYS SYS PHB SYS X\n"},
    {"old word for SYS", "GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 CPU Affinity NUMA Affinity\n"
                         "GPU0 X NV4 PIX SOC PIX SOC 0-15 0\nGPU1 NV4 X NODE SOC NODE SOC 0-15 0\n"
                         "GPU2 PIX NODE X SOC PIX SOC 0-15 0\nGPU3 SOC SOC SOC X SOC PHB 16-31 1\n"
                         "NIC0 PIX NODE PIX SOC X SOC\nNIC1 SOC SOC SOC PHB SOC X\n"},
    {"NIC rows left out",
     "GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 CPU Affinity NUMA Affinity\n"
     "GPU0 X NV4 PIX SYS PIX SYS 0-15 0\nGPU1 NV4 X NODE SYS NODE SYS 0-15 0\n"
     "GPU2 PIX NODE X SYS PIX SYS 0-15 0\nGPU3 SYS SYS SYS X SYS PHB 16-31 1\n"},
    {"other order", "GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 CPU Affinity NUMA Affinity\n"
                    "GPU0 X SYS SYS SYS PHB SYS 16-31 1\nGPU1 SYS X NODE NV4 SYS NODE 0-15 0\n"
                    "GPU2 SYS NODE X PIX SYS PIX 0-15 0\nGPU3 SYS NV4 PIX X SYS PIX 0-15 0\n"
                    "NIC0 PHB SYS SYS SYS X SYS\nNIC1 SYS NODE PIX PIX SYS X\n"},
    {"columns alone, no header", "GPU0 X NV4 PIX SYS PIX SYS\nGPU1 NV4 X NODE SYS NODE SYS\n"
                                 "GPU2 PIX NODE X SYS PIX SYS\nGPU3 SYS SYS SYS X SYS PHB\n"},
};

static void test_shapes(void **state)
{
    struct nt_topology *want = read_or_fail("tabs", tabs, strlen(tabs));
    (void)state;
    assert_int_equal(want->ngpus, 4);
    assert_int_equal(want->nnets, 2);
    assert_int_equal(want->links[1], 4);
    assert_string_equal(want->nets[1].name, "mlx5_7");
    assert_int_equal(want->known,
                     1U << NT_G_NVLINK | 1U << NT_G_PATHS | 1U << NT_G_NICS | 1U << NT_G_NUMA);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct nt_topology *t =
            read_or_fail(shapes[i].name, shapes[i].text, strlen(shapes[i].text));
        struct nt_buf words;
        bool all =
            strcmp(shapes[i].name, "columns alone, no header") == 0 || t->known == want->known;
        nt_buf_init(&words, 1 << 16);
        if (!nt_topology_diff(want, "tabs", t, shapes[i].name, &words) || !all) {
            fail_msg("%s: known %x\n%s", shapes[i].name, t->known, nt_buf_str(&words));
        }
        nt_buf_done(&words);
        nt_topology_free(t);
    }
    nt_topology_free(want);
}

#define TWO "    GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X\n"

static const struct {
    const char *name, *text, *reason; /* NULL: taken */
    enum nt_finding_kind finding;     /* NT_FINDING_COUNT: none */
    bool unhealthy;
} rows[] = {
    {"bare", TWO, NULL, NT_FINDING_COUNT, false},
    {"one GPU", "\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n", NULL, NT_FINDING_COUNT, false},
    {"one GPU, bare", "GPU0\nGPU0 X\n", NULL, NT_FINDING_COUNT, false},
    {"inside a report", "GPU models:\nGPU 0: A\nGPU0: B\n\nGPU Topology:\n" TWO "\nVersions of X\n",
     NULL, NT_FINDING_COUNT, false},
    {"second matrix", TWO "\n    GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X\n", NULL, NT_F_NOTE, false},
    {"mirror image differs", "    GPU0 GPU1\nGPU0 X PIX\nGPU1 SYS X\n", NULL, NT_F_NOTE, false},
    {"links one way", "    GPU0 GPU1\nGPU0 X NV4\nGPU1 NV2 X\n", NULL, NT_F_NVLINK_ONE_WAY, true},
    {"P2P fine", TWO "\n    GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n", NULL, NT_FINDING_COUNT, false},
    {"P2P never", TWO "\n    GPU0 GPU1\nGPU0 X GNS\nGPU1 GNS X\n", NULL, NT_F_P2P_OFF, false},
    {"P2P by chipset", TWO "\n    GPU0 GPU1\nGPU0 X CNS\nGPU1 CNS X\n", NULL, NT_F_P2P_OFF, true},
    {"P2P between some",
     "GPU0 GPU1 GPU2\nGPU0 X PIX SYS\nGPU1 PIX X SYS\nGPU2 SYS SYS X\n\n$ nvidia-smi topo -p2p r\n"
     "GPU0 GPU1 GPU2\nGPU0 X OK CNS\nGPU1 OK X CNS\nGPU2 CNS CNS X\n",
     NULL, NT_F_P2P_OFF, true},
    {"atomics are no P2P", TWO "$ nvidia-smi topo -p2p a\n    GPU0 GPU1\nGPU0 X NS\nGPU1 NS X\n",
     NULL, NT_FINDING_COUNT, false},
    {"lost NVLink",
     "GPU0 GPU1 GPU2 GPU3\nGPU0 X NV4 NV4 SYS\nGPU1 NV4 X NV4 SYS\nGPU2 NV4 NV4 X SYS\nGPU3 SYS "
     "SYS SYS X\n",
     NULL, NT_F_NVLINK_MISSING, true},
    {"damaged, then whole", "    GPU0 GPU1\nGPU0 X PIX\n\n" TWO, NULL, NT_FINDING_COUNT, false},
    {"P2P cut off", TWO "\n    GPU0 GPU1\nGPU0 X OK\n", NULL, NT_FINDING_COUNT, false},
    {"paths and P2P mixed", "GPU0 GPU1\nGPU0 X SYS\nGPU1 OK X\n", "mixes path types and P2P words",
     0, false},
    {"P2P with paths in it", TWO "GPU0 GPU1 GPU2\nGPU0 X OK SYS\nGPU1 OK X OK\nGPU2 OK OK X\n",
     NULL, NT_FINDING_COUNT, false},
    {"rows missing", "GPU0 GPU1 GPU2\nGPU0 X PIX SYS\nGPU1 PIX X SYS\n", "no row of GPU2", 0,
     false},
    {"cells missing", "GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX\n", "row of GPU1 has 1 of 2 cells", 0,
     false},
    {"header only", "\tGPU0\tGPU1\tCPU Affinity\n", "no row of GPU0", 0, false},
    {"X elsewhere", "GPU0 GPU1\nGPU0 PIX X\nGPU1 X PIX\n", "X is not in its column", 0, false},
    {"row without column", "GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X\nGPU2 PIX X\n", "no column", 0,
     false},
    {"P2P alone", "    GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n",
     "only the matrix of nvidia-smi topo -p2p", 0, false},
    {"shell message", "bash: nvidia-smi: command not found\n", "command not found", 0, false},
    {"driver message",
     "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
     "an error message", 0, false},
    {"NVML message", "Failed to initialize NVML: Driver/library version mismatch\n",
     "an error message", 0, false},
    {"plain nvidia-smi",
     "+---+\n| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15 |\n| 0  A100 |\n",
     "plain nvidia-smi", 0, false},
    {"prose", "The quick brown fox\njumps.\n", "begins with 'The quick brown fox'", 0, false},
    {"empty", "", "an empty file", 0, false},
    {"blank", " \n\t\n", "an empty file", 0, false},
    {"UTF-16", "\xff\xfeG\x01P\x01U\x01", "UTF-16", 0, false},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_topology *t = NULL;
        struct nt_err e = {0};
        int rc = nt_topology_read_text(rows[i].text, strlen(rows[i].text), &t, &e);
        if ((rc == 0) != (rows[i].reason == NULL) ||
            (rc != 0 && strstr(e.msg, rows[i].reason) == NULL)) {
            fail_msg("%s: rc %d '%s'", rows[i].name, rc, e.msg);
        }
        if (rc == 0) {
            int want = rows[i].finding == NT_FINDING_COUNT ? 0 : 1;
            if ((t->nfindings > 0) != (want > 0) ||
                (want > 0 && count_findings(t, rows[i].finding, rows[i].unhealthy) == 0) ||
                nt_topology_healthy(t) != !rows[i].unhealthy) {
                fail_msg("%s: %d findings, first '%s'", rows[i].name, t->nfindings,
                         t->nfindings > 0 ? t->findings[0].text : "");
            }
        }
        nt_topology_free(t);
    }
}

/* A matrix with a NUL in it, as a binary file has. */
static void test_binary(void **state)
{
    static const char text[] = "GPU0 GPU1\0GPU0 X PIX";
    struct nt_topology *t = NULL;
    (void)state;
    assert_int_equal(nt_topology_read_text(text, sizeof(text), &t, NULL), -NT_E_INVAL);
    assert_int_equal(nt_topology_read_xml("<system\0>", 9, &t, NULL), -NT_E_INVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_binary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
