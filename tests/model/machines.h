/* machines - topologies of our own, as NCCL would write them. */
#pragma once
#include <stdio.h>

#include "probes/model/sim.h"

enum machine_kind { SWITCHED, BRIDGED, MACHINES };

/* Eight Hopper GPUs on an NVSwitch, or four Ada GPUs on two sockets without NVLink. Each pair of
 * GPUs has a PCIe switch of its own, with one NIC of 400 Gbit/s. */
static inline void machine_xml(enum machine_kind kind, struct nt_buf *b)
{
    int gpus = kind == SWITCHED ? 8 : 4;

    nt_buf_puts(b, "<system version=\"1\">\n");
    for (int g = 0; g < gpus; g++) {
        if (g % (gpus / 2) == 0) {
            nt_buf_printf(
                b,
                "<cpu numaid=\"%d\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
                "modelid=\"143\">\n",
                g / (gpus / 2));
        }
        if (g % 2 == 0) {
            nt_buf_printf(b,
                          "<pci busid=\"0000:%02x:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s "
                          "PCIe\" link_width=\"16\">\n",
                          16 * (g + 1));
        }
        nt_buf_printf(b,
                      "<pci busid=\"0000:%02x:00.0\" class=\"0x030200\" vendor=\"0x10de\" "
                      "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"%d\" sm=\"%d\" "
                      "rank=\"%d\" gdr=\"1\">",
                      16 * (g / 2 * 2 + 1) + 1 + g % 2, g, kind == SWITCHED ? 90 : 89, g);
        if (kind == SWITCHED) {
            nt_buf_puts(b, "<nvlink target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/>");
        }
        nt_buf_puts(b, "</gpu></pci>\n");
        if (g % 2 == 1) {
            nt_buf_printf(b,
                          "<pci busid=\"0000:%02x:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s "
                          "PCIe\" link_width=\"16\"><nic><net name=\"mlx5_%d\" dev=\"%d\" "
                          "speed=\"400000\" port=\"1\" guid=\"0x%d\" maxconn=\"1024\" "
                          "gdr=\"1\"/></nic></pci>\n</pci>\n",
                          16 * g + 3, g / 2, g / 2, g / 2 + 1);
        }
        if (g % (gpus / 2) == gpus / 2 - 1) {
            nt_buf_puts(b, "</cpu>\n");
        }
    }
    nt_buf_puts(b, "</system>\n");
}

static inline struct nt_topology *machine_topology(enum machine_kind kind)
{
    struct nt_topology *t = NULL;
    struct nt_buf b;
    struct nt_err err;

    nt_buf_init(&b, 1 << 20);
    machine_xml(kind, &b);
    if (nt_topology_read_xml(b.data, b.len, &t, &err) != 0) {
        (void)fprintf(stderr, "%s\n", err.msg);
    }
    nt_buf_done(&b);
    return t;
}
