/*
 * Path types as NCCL names them (its src/graph/topo.cc and paths.cc): the type of the worst part of
 * the way. The PCIe tree gives PIX, PXB, PHB, SYS; NVLink, detours over a GPU and C2C come on top.
 */
#include "tuner/topology/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Broadcom's Gen4 and Gen5 switches show two levels though all ports have full rate; NCCL drops the
 * inner one. id: vendor, device and both subsystem ids; level 0 is the outer switch. */
static int bcm_generation(const struct nt_topo_pci *p, int level)
{
    uint64_t id = (uint64_t)p->vendor << 48 | (uint64_t)p->device << 32 |
                  (uint64_t)p->sub_vendor << 16 | (p->sub_device & 0xf000U);
    if (id == UINT64_C(0x1000c0101000a000)) {
        return 4;
    }
    return id == (UINT64_C(0x1000c03010000000) | (uint64_t)level << 12) ? 5 : 0;
}

/* Parent of each PCI device with the inner Broadcom levels dropped. */
static void flat_parents(const struct nt_topology *t, int *parent)
{
    bool absorbed[NT_MAX_PCIS] = {false};

    for (int i = 0; i < t->npcis; i++) {
        int up = t->pcis[i].parent;
        if (t->pcis[i].kind == NT_PCI_SWITCH && up >= 0 && !absorbed[up]) {
            int gen = bcm_generation(&t->pcis[up], 0);
            absorbed[i] = gen != 0 && bcm_generation(&t->pcis[i], 1) == gen;
        }
        parent[i] = up >= 0 && absorbed[up] ? t->pcis[up].parent : up;
    }
}

struct climb {
    const struct nt_topology *t;
    int parent[NT_MAX_PCIS];
    int depth[NT_MAX_PCIS]; /* 1 + distance of the switch from the device climbed from; 0: not above
                             */
    int cpu, host, pci;
};

static void climb_from(struct climb *c, int pci, int cpu, int host)
{
    int d = 1;
    memset(c->depth, 0, sizeof(c->depth));
    c->pci = pci;
    c->cpu = cpu;
    c->host = host;
    for (int p = pci >= 0 ? c->parent[pci] : -1; p >= 0; p = c->parent[p]) {
        c->depth[p] = d++;
    }
}

static bool joined_sideways(const struct climb *c, int sw)
{
    for (int i = 0; i < c->t->npcilinks; i++) {
        const int *l = c->t->pcilinks[i];
        if ((l[0] == sw && c->depth[l[1]] > 0) || (l[1] == sw && c->depth[l[0]] > 0)) {
            return true;
        }
    }
    return false;
}

static bool host_has_net(const struct nt_topology *t, int host)
{
    for (int i = 0; i < t->nnets; i++) {
        if (t->nets[i].host == host) {
            return true;
        }
    }
    return false;
}

static enum nt_path climb_to(const struct climb *c, int pci, int cpu, int host)
{
    int first = pci >= 0 ? c->parent[pci] : -1;

    if (host != c->host) {
        return host_has_net(c->t, host) && host_has_net(c->t, c->host) ? NT_PATH_NET : NT_PATH_DIS;
    }
    if (pci >= 0 && pci == c->pci) {
        return NT_PATH_PIX; /* two ports of one card */
    }
    for (int p = first; p >= 0; p = c->parent[p]) {
        if (c->depth[p] > 0) {
            return p == first && c->depth[p] == 1 ? NT_PATH_PIX : NT_PATH_PXB;
        }
        if (joined_sideways(c, p)) {
            return NT_PATH_PXB;
        }
    }
    return cpu >= 0 && cpu == c->cpu ? NT_PATH_PHB : NT_PATH_SYS;
}

static void device_place(const struct nt_topology *t, int dev, int *pci, int *cpu, int *host)
{
    if (dev < t->ngpus) {
        *pci = t->gpus[dev].pci;
        *cpu = t->gpus[dev].cpu;
        *host = t->gpus[dev].host;
    } else {
        *pci = t->nets[dev - t->ngpus].pci;
        *cpu = t->nets[dev - t->ngpus].cpu;
        *host = t->nets[dev - t->ngpus].host;
    }
}

static void pcie_types(const struct nt_topology *t, bool flat, uint8_t *out)
{
    struct climb c = {.t = t};

    for (int i = 0; i < t->npcis; i++) {
        c.parent[i] = t->pcis[i].parent;
    }
    if (flat) {
        flat_parents(t, c.parent);
    }
    for (int a = 0; a < t->ndevs; a++) {
        int pci, cpu, host;
        device_place(t, a, &pci, &cpu, &host);
        climb_from(&c, pci, cpu, host);
        for (int b = 0; b < t->ndevs; b++) {
            device_place(t, b, &pci, &cpu, &host);
            out[a * t->ndevs + b] = a == b ? NT_PATH_LOC : (uint8_t)climb_to(&c, pci, cpu, host);
        }
    }
}

/* NVLinks between two GPUs: direct ones of both ends; through NVSwitches what the weaker has. */
static void count_links(struct nt_model *m)
{
    struct nt_topology *t = m->t;
    int fabric[NT_MAX_GPUS] = {0}, n = t->ngpus;

    for (int i = 0; i < t->nends; i++) {
        const struct nt_topo_end *e = &t->ends[i];
        if (e->kind == NT_END_GPU) {
            uint16_t *l = &t->links[e->gpu * n + e->peer];
            *l = (uint16_t)(*l + e->count);
        } else if (e->kind == NT_END_SWITCH && nt_bus_is_fabric(e->bus)) {
            fabric[e->gpu] += e->count; /* a fabric that may span hosts */
        }
    }
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < a; b++) {
            const struct nt_topo_gpu *x = &t->gpus[a], *y = &t->gpus[b];
            int sa = x->host == y->host ? x->switch_links : fabric[a];
            int sb = x->host == y->host ? y->switch_links : fabric[b];
            uint16_t *ab = &t->links[a * n + b], *ba = &t->links[b * n + a];
            int direct = *ab < *ba ? *ab : *ba, through = sa < sb ? sa : sb;
            if (*ab != *ba) {
                char la[16], lb[16], pair[40];
                (void)nt_gpu_label(t, b, la, sizeof(la));
                (void)nt_gpu_label(t, a, lb, sizeof(lb));
                (void)snprintf(pair, sizeof(pair), "%s-%s", la, lb);
                nt_find(m, NT_F_NVLINK_ONE_WAY, true, pair,
                        "%s lists %d %ss to %s, which lists %d back", la, *ba, nt_link_kind(t), lb,
                        *ab);
            }
            *ab = *ba = (uint16_t)(direct + through);
        }
    }
}

/* NVLink through one other GPU of the same host; RCCL takes no such detours. */
static bool by_neighbour(const struct nt_topology *t, int a, int b)
{
    for (int g = 0; g < t->ngpus; g++) {
        if (g != a && g != b && t->links[a * t->ngpus + g] > 0 && t->links[g * t->ngpus + b] > 0) {
            return true;
        }
    }
    return false;
}

static void overlay_gpus(struct nt_topology *t)
{
    int n = t->ngpus;
    bool xgmi = nt_has_xgmi(t);

    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            uint8_t *path = &t->path[a * t->ndevs + b], *wire = &t->wire[a * t->ndevs + b];
            if (a == b) {
                continue;
            }
            if (t->links[a * n + b] > 0) {
                *path = *wire = NT_PATH_NVL;
            } else if (!xgmi && by_neighbour(t, a, b)) {
                *path = NT_PATH_NVB;
            } else if (t->gpus[a].c2c_links > 0 && t->gpus[b].c2c_links > 0 &&
                       t->gpus[a].cpu == t->gpus[b].cpu && t->gpus[a].cpu >= 0) {
                *path = *wire = NT_PATH_C2C;
            }
        }
    }
}

/* GPU to NIC: through the CPU by C2C, or over a peer on NVLink that sits nearer to the NIC (PXN,
 * only in this direction). */
static void overlay_nets(struct nt_topology *t)
{
    int n = t->ngpus, d = t->ndevs;

    for (int g = 0; g < n; g++) {
        for (int k = n; k < d; k++) {
            uint8_t *p = &t->path[g * d + k];
            if (t->gpus[g].c2c_links > 0 && *p == NT_PATH_PHB) {
                *p = t->path[k * d + g] = NT_PATH_P2C;
            }
        }
    }
    for (int g = 0; g < n; g++) {
        for (int k = n; k < d; k++) {
            uint8_t *p = &t->path[g * d + k];
            for (int peer = 0; peer<n && * p> NT_PATH_PXN && *p < NT_PATH_NET; peer++) {
                if (peer != g && t->gpus[peer].host == t->gpus[g].host &&
                    t->path[k * d + peer] <= NT_PATH_P2C && t->path[peer * d + g] == NT_PATH_NVL) {
                    *p = NT_PATH_PXN;
                }
            }
        }
    }
}

void nt_paths_compute(struct nt_model *m)
{
    struct nt_topology *t = m->t;

    if (m->wires_told) {
        memcpy(t->path, t->wire, (size_t)t->ndevs * (size_t)t->ndevs);
    } else {
        pcie_types(t, false, t->wire);
        pcie_types(t, true, t->path);
        count_links(m);
    }
    overlay_gpus(t);
    overlay_nets(t);
}
