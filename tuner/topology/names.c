#include "tuner/topology/model.h"

#include <stdio.h>
#include <string.h>

const char *const nt_group_names[] = {
#define X(id, name, words) name,
    NT_GROUPS(X)
#undef X
        NULL};

const char *const nt_path_names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C",
                                     "PXN", "PHB", "SYS", "NET", "DIS", NULL};

const char *const nt_topo_source_names[] = {"live", "xml", "smi", NULL};

const char *const nt_end_names[] = {"gpu", "switch", "cpu", "self", "outside", NULL};

const char *const nt_p2p_names[] = {"unknown",  "OK",       "chipset", "gpu",
                                    "topology", "disabled", "off",     NULL};

const char *const nt_finding_names[] = {"narrow_link", "nvlink_missing", "nvlink_count_0",
                                        "nvlink_self", "nvlink_one_way", "c2c_missing",
                                        "gdr_lost",    "p2p_off",        "acs_on",
                                        "iommu_on",    "port_down",      "mixed_gpus",
                                        "mig",         "note",           NULL};

/* Only for words: identities use the numbers. */
static const struct {
    uint16_t vendor, device;
    const char *name;
} models[] = {
    {0x10de, 0x15f8, "Tesla P100 PCIe"},
    {0x10de, 0x15f9, "Tesla P100 SXM2"},
    {0x10de, 0x1db1, "V100 SXM2 16GB"},
    {0x10de, 0x1db5, "V100 SXM2 32GB"},
    {0x10de, 0x1db8, "V100 SXM3 32GB"},
    {0x10de, 0x1eb8, "T4"},
    {0x10de, 0x20b0, "A100 SXM4 40GB"},
    {0x10de, 0x20b2, "A100 SXM4 80GB"},
    {0x10de, 0x20b5, "A100 PCIe 80GB"},
    {0x10de, 0x20f1, "A100 PCIe 40GB"},
    {0x10de, 0x2235, "A40"},
    {0x10de, 0x2237, "A10G"},
    {0x10de, 0x2204, "RTX 3090"},
    {0x10de, 0x2684, "RTX 4090"},
    {0x10de, 0x26b5, "L40"},
    {0x10de, 0x26b9, "L40S"},
    {0x10de, 0x2321, "H100 NVL"},
    {0x10de, 0x2330, "H100 SXM5 80GB"},
    {0x10de, 0x2331, "H100 PCIe"},
    {0x10de, 0x2335, "H200 SXM 141GB"},
    {0x10de, 0x2342, "GH200 480GB"},
    {0x10de, 0x2901, "B200"},
    {0x10de, 0x2941, "GB200"},
    {0x10de, 0x2b85, "RTX 5090"},
    {0x1002, 0x66a1, "Radeon MI60"},
    {0x1002, 0x738c, "Instinct MI100"},
    {0x1002, 0x740c, "Instinct MI250"},
    {0x1002, 0x7408, "Instinct MI250X"},
    {0x1002, 0x74a1, "Instinct MI300X"},
    {0x1002, 0x74b5, "Instinct MI300X VF"},
};

char *nt_gpu_model(const struct nt_topology *t, int gpu, char *out, size_t size)
{
    const struct nt_topo_gpu *g = &t->gpus[gpu];
    const struct nt_topo_pci *p = g->pci >= 0 ? &t->pcis[g->pci] : NULL;

    if (g->name[0] != '\0') {
        (void)snprintf(out, size, "%s", g->name);
        return out;
    }
    (void)snprintf(out, size, "GPU");
    if (p == NULL || p->vendor == 0 || p->device == 0) {
        return out;
    }
    (void)snprintf(out, size, "GPU %04x:%04x", p->vendor, p->device);
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        if (models[i].vendor == p->vendor && models[i].device == p->device) {
            (void)snprintf(out, size, "%s", models[i].name);
        }
    }
    return out;
}

bool nt_has_xgmi(const struct nt_topology *t)
{
    return t->nends > 0 && t->ends[0].xgmi;
}

const char *nt_link_kind(const struct nt_topology *t)
{
    return nt_has_xgmi(t) ? "xGMI link" : "NVLink";
}

/* dev of every GPU is told and no two are equal: then it is the better name. */
static bool devs_unique(const struct nt_topology *t)
{
    bool seen[1024] = {false};
    for (int i = 0; i < t->ngpus; i++) {
        int dev = t->gpus[i].dev;
        if (dev < 0 || dev >= (int)(sizeof(seen) / sizeof(seen[0])) || seen[dev]) {
            return false;
        }
        seen[dev] = true;
    }
    return true;
}

int nt_topology_gpu_at(const struct nt_topology *t, const char *busid)
{
    uint64_t bus;

    if (!nt_parse_bus(busid, &bus)) {
        return -1;
    }
    for (int g = 0; g < t->ngpus; g++) {
        if (t->gpus[g].pci >= 0 && t->pcis[t->gpus[g].pci].bus == bus) {
            return g;
        }
    }
    return -1;
}

char *nt_gpu_label(const struct nt_topology *t, int gpu, char *out, size_t size)
{
    (void)snprintf(out, size, "GPU%d", devs_unique(t) ? t->gpus[gpu].dev : gpu);
    return out;
}

char *nt_net_label(const struct nt_topology *t, int net, char *out, size_t size)
{
    if (t->nets[net].name[0] != '\0') {
        (void)snprintf(out, size, "NIC%d (%s)", net, t->nets[net].name);
    } else {
        (void)snprintf(out, size, "NIC%d", net);
    }
    return out;
}

void nt_driver_version(const char *text, char *out, size_t size)
{
    for (const char *at = text; (at = strpbrk(at, "0123456789")) != NULL;) {
        size_t n = strspn(at, "0123456789.");
        bool word = at == text || at[-1] == ' ' || at[-1] == '\t';

        if (word && memchr(at, '.', n) != NULL) {
            (void)snprintf(out, size, "%.*s", (int)n, at);
            return;
        }
        at += n;
    }
}
