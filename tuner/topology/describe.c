/* The facts of each group in words. Lines carry no numbering of their own, so equal machines have
 * the same lines; some groups are hashed by them (identity.c), all are compared by them in a diff.
 */
#include "tuner/topology/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void describe_gpus(const struct nt_topology *t, struct nt_buf *out)
{
    for (int i = 0; i < t->ngpus; i++) {
        const struct nt_topo_pci *p = &t->pcis[t->gpus[i].pci];
        nt_buf_printf(out, "GPU %04x:%04x\n", p->vendor, p->device);
    }
}

static void describe_memory(const struct nt_topology *t, struct nt_buf *out)
{
    for (int i = 0; i < t->ngpus; i++) {
        /* Drivers keep a varying part for themselves: rounded to 4 GiB. */
        uint64_t gib = (t->gpus[i].memory_bytes + (UINT64_C(1) << 31)) >> 32 << 2;
        nt_buf_printf(out, "GPU with %llu GiB%s\n", (unsigned long long)gib,
                      t->gpus[i].mig == NT_ON ? ", MIG on" : "");
    }
}

static void describe_capability(const struct nt_topology *t, struct nt_buf *out)
{
    for (int i = 0; i < t->ngpus; i++) {
        const struct nt_topo_gpu *g = &t->gpus[i];
        if (g->gcn[0] != '\0') {
            nt_buf_printf(out, "GPU of %s with %d units\n", g->gcn, g->sm);
        } else {
            nt_buf_printf(out, "GPU of capability %d.%d\n", g->sm / 10, g->sm % 10);
        }
    }
}

static void describe_nvlink(const struct nt_topology *t, struct nt_buf *out)
{
    for (int a = 0; a < t->ngpus; a++) {
        for (int b = 0; b < a; b++) {
            nt_buf_printf(out, "pair of GPUs with %d %ss\n", t->links[a * t->ngpus + b],
                          nt_link_kind(t));
        }
    }
}

static void describe_c2c(const struct nt_topology *t, struct nt_buf *out)
{
    for (int i = 0; i < t->ngpus; i++) {
        nt_buf_puts(out, t->gpus[i].c2c_links > 0 ? "GPU joined to its CPU by C2C\n"
                                                  : "GPU without C2C\n");
    }
}

static void describe_paths(const struct nt_topology *t, struct nt_buf *out)
{
    for (int a = 0; a < t->ngpus; a++) {
        for (int b = 0; b < a; b++) {
            nt_buf_printf(out, "pair of GPUs at %s\n", nt_path_names[t->wire[a * t->ndevs + b]]);
        }
    }
}

static void describe_p2p(const struct nt_topology *t, struct nt_buf *out)
{
    for (int a = 0; a < t->ngpus; a++) {
        for (int b = 0; b < a; b++) {
            nt_buf_printf(out, "pair of GPUs %s peer access\n",
                          t->p2p[a * t->ngpus + b] == NT_P2P_OK ? "with" : "without");
        }
    }
}

static void describe_pcie(const struct nt_topology *t, struct nt_buf *out)
{
    static const char *const kinds[] = {"switch", "GPU", "NIC", "device"};
    int gpus[NT_MAX_PCIS] = {0}, nics[NT_MAX_PCIS] = {0};

    for (int i = t->npcis - 1; i >= 0; i--) {
        int up = t->pcis[i].parent;
        gpus[i] += t->pcis[i].kind == NT_PCI_GPU;
        nics[i] += t->pcis[i].kind == NT_PCI_NIC;
        if (up >= 0) {
            gpus[up] += gpus[i];
            nics[up] += nics[i];
        }
    }
    for (int i = 0; i < t->npcis; i++) {
        int w = nt_pci_built_width(t, i), above = 0;
        if (gpus[i] + nics[i] == 0) {
            continue;
        }
        for (int p = t->pcis[i].parent; p >= 0; p = t->pcis[p].parent) {
            above++;
        }
        nt_buf_printf(out, "%s%s at x%d, %d switches above", kinds[t->pcis[i].kind],
                      nt_nic_kind(&t->pcis[i]), w == 0 ? 16 : w, above);
        if (t->pcis[i].kind == NT_PCI_SWITCH || t->pcis[i].kind == NT_PCI_OTHER) {
            nt_buf_printf(out, ", %d GPUs and %d NICs below", gpus[i], nics[i]);
        }
        nt_buf_puts(out, "\n");
    }
}

static void describe_nics(const struct nt_topology *t, struct nt_buf *out)
{
    for (int k = t->ngpus; k < t->ndevs; k++) {
        int count[NT_PATH_COUNT] = {0};
        const char *sep = ": ";
        if (t->nets[k - t->ngpus].pci < 0 && t->source != NT_TOPO_SMI) {
            continue;
        }
        for (int g = 0; g < t->ngpus; g++) {
            count[t->wire[k * t->ndevs + g]]++;
        }
        nt_buf_puts(out, "NIC");
        for (int p = 0; p < NT_PATH_COUNT; p++) {
            if (count[p] > 0) {
                nt_buf_printf(out, "%s%s to %d GPU%s", sep, nt_path_names[p], count[p],
                              count[p] == 1 ? "" : "s");
                sep = ", ";
            }
        }
        nt_buf_puts(out, "\n");
    }
}

static void describe_rates(const struct nt_topology *t, struct nt_buf *out)
{
    for (int i = 0; i < t->nnets; i++) {
        if (t->nets[i].pci >= 0) {
            nt_buf_printf(out, "NIC port of %u Mbit/s\n", t->nets[i].speed_mbps);
        }
    }
}

static void describe_numa(const struct nt_topology *t, struct nt_buf *out)
{
    for (int c = 0; c < t->ncpus; c++) {
        int gpus = 0;
        for (int i = 0; i < t->ngpus; i++) {
            gpus += t->gpus[i].cpu == c;
        }
        if (gpus > 0) {
            nt_buf_printf(out, "NUMA node with %d GPU%s\n", gpus, gpus == 1 ? "" : "s");
        }
    }
}

/* Models, not sockets: NCCL lists only NUMA nodes that have devices. */
static void describe_cpu(const struct nt_topology *t, struct nt_buf *out)
{
    for (int c = 0; c < t->ncpus; c++) {
        const struct nt_topo_cpu *x = &t->cpus[c];
        bool seen = false;
        for (int d = 0; d < c && !seen; d++) {
            const struct nt_topo_cpu *y = &t->cpus[d];
            seen = strcmp(x->arch, y->arch) == 0 && strcmp(x->vendor, y->vendor) == 0 &&
                   x->family == y->family && x->model == y->model;
        }
        if (!seen) {
            nt_buf_printf(out, "CPU %s", x->arch);
            if (strcmp(x->arch, "x86_64") == 0) { /* elsewhere NCCL's versions differ in these */
                nt_buf_printf(out, " %s family %d model %d", x->vendor,
                              nt_cpu_family(x->vendor, x->family), x->model);
            }
            nt_buf_puts(out, "\n");
        }
    }
}

static void (*const describers[NT_GROUP_COUNT])(const struct nt_topology *, struct nt_buf *) = {
    [NT_G_GPUS] = describe_gpus,
    [NT_G_MEMORY] = describe_memory,
    [NT_G_CAPABILITY] = describe_capability,
    [NT_G_NVLINK] = describe_nvlink,
    [NT_G_C2C] = describe_c2c,
    [NT_G_PATHS] = describe_paths,
    [NT_G_P2P] = describe_p2p,
    [NT_G_PCIE] = describe_pcie,
    [NT_G_NICS] = describe_nics,
    [NT_G_RATES] = describe_rates,
    [NT_G_NUMA] = describe_numa,
    [NT_G_CPU] = describe_cpu,
};

void nt_group_describe(const struct nt_topology *t, enum nt_group g, struct nt_buf *out)
{
    if ((t->known >> g & 1) != 0) {
        describers[g](t, out);
    }
}
