/*
 * Health: what makes an equal machine slower or unsafe, each finding named. Compared with siblings
 * (devices of the same kind and model) where the source knows no maximum of its own.
 */
#include "tuner/topology/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- link widths ---- */

static bool siblings(const struct nt_topology *t, int a, int b)
{
    const struct nt_topo_pci *x = &t->pcis[a], *y = &t->pcis[b];
    return x->kind == y->kind && x->vendor == y->vendor && x->device == y->device &&
           (x->kind == NT_PCI_GPU || x->kind == NT_PCI_NIC) && x->class >> 8 == y->class >> 8;
}

/* What the link could do where the source tells, else what it does. */
static int width_of(const struct nt_topo_pci *p)
{
    return p->max_width > 0 ? p->max_width : p->width;
}

/* The width that most siblings have, itself included; of two equally frequent ones the wider. */
static int usual_width(const struct nt_topology *t, int pci)
{
    int count[33] = {0}, best = 0;

    for (int i = 0; i < t->npcis; i++) {
        int w = width_of(&t->pcis[i]);
        if ((i == pci || siblings(t, i, pci)) && w > 0 && w <= 32) {
            count[w]++;
        }
    }
    for (int w = 1; w <= 32; w++) {
        best = count[w] > 0 && count[w] >= count[best] ? w : best;
    }
    return best;
}

/* Gb/s of all ports of a NIC. */
static double port_gbps(const struct nt_topology *t, int pci)
{
    double sum = 0;
    for (int i = 0; i < t->nnets; i++) {
        if (t->nets[i].pci == pci) {
            sum += t->nets[i].speed_mbps / 1000.0;
        }
    }
    return sum;
}

/* A NIC whose link cannot carry its ports, though a wider one could: the least width that can. */
static int width_for_ports(const struct nt_topology *t, int pci)
{
    const struct nt_topo_pci *p = &t->pcis[pci];
    double need = port_gbps(t, pci);
    int w = width_of(p), speed = p->max_speed_mts > 0 ? p->max_speed_mts : p->speed_mts;

    if (p->kind != NT_PCI_NIC || w <= 0 || w >= 16 || speed == 0 || need <= 0) {
        return w;
    }
    while (w < 16 && nt_link_gbps(w, speed) < need) {
        w *= 2;
    }
    return w > 16 ? 16 : w;
}

/* NCCL's dumps tell one width, and which one depends on its version: so a link narrower than it
 * should be counts as what it should be, here and for the live machine alike. */
int nt_pci_built_width(const struct nt_topology *t, int pci)
{
    const struct nt_topo_pci *p = &t->pcis[pci];
    int w = width_of(p), other;

    if (w == 0 || (p->kind != NT_PCI_GPU && p->kind != NT_PCI_NIC)) {
        return w;
    }
    other = usual_width(t, pci);
    w = other > w ? other : w;
    other = width_for_ports(t, pci);
    return other > w ? other : w;
}

static void device_label(const struct nt_topology *t, int pci, char *out, size_t size)
{
    (void)snprintf(out, size, "switch %s", t->pcis[pci].busid);
    for (int i = 0; i < t->ngpus; i++) {
        if (t->gpus[i].pci == pci) {
            (void)nt_gpu_label(t, i, out, size);
            return;
        }
    }
    for (int i = 0; i < t->nnets; i++) {
        if (t->nets[i].pci == pci) {
            (void)nt_net_label(t, i, out, size);
            return;
        }
    }
}

static void look_at_width(struct nt_model *m, int i)
{
    const struct nt_topology *t = m->t;
    const struct nt_topo_pci *p = &t->pcis[i];
    char who[48];
    int w = width_of(p), usual = usual_width(t, i), ports = width_for_ports(t, i);

    device_label(t, i, who, sizeof(who));
    if (p->max_width > 0 && p->width > 0 && p->width < p->max_width) {
        nt_find(m, NT_F_NARROW_LINK, true, who, "%s (%s) runs at x%d, its link is built for x%d",
                who, p->busid, p->width, p->max_width);
    } else if (p->kind != NT_PCI_SWITCH && w > 0 && usual > w) {
        nt_find(m, NT_F_NARROW_LINK, true, who, "%s (%s) %s x%d, others of its kind at x%d", who,
                p->busid, p->max_width == 0 ? "is at" : "has a link of", w, usual);
    } else if (w > 0 && ports > w) {
        nt_find(m, NT_F_NARROW_LINK, true, who,
                "%s (%s) is at x%d, %.0f Gbit/s; its ports need %.0f (x%d)", who, p->busid, w,
                nt_link_gbps(w, p->speed_mts), port_gbps(t, i), ports);
    } else if (p->kind == NT_PCI_NIC && p->max_speed_mts > p->speed_mts && p->speed_mts > 0 &&
               nt_link_gbps(p->width, p->speed_mts) < port_gbps(t, i)) {
        nt_find(m, NT_F_NARROW_LINK, true, who,
                "%s (%s) runs at %.1f GT/s of %.1f and cannot carry its ports", who, p->busid,
                p->speed_mts / 1000.0, p->max_speed_mts / 1000.0);
    }
}

static void look_at_widths(struct nt_model *m)
{
    for (int i = 0; i < m->t->npcis; i++) {
        if (m->t->pcis[i].kind != NT_PCI_OTHER) {
            look_at_width(m, i);
        }
    }
}

/* ---- NVLink ---- */

/* NVLinks that a GPU has: what its ends say, or (smi) what its pairs say. */
static int links_of(const struct nt_topology *t, int gpu)
{
    int sum = 0;
    if (t->source != NT_TOPO_SMI) {
        return t->gpus[gpu].nvlinks;
    }
    for (int i = 0; i < t->ngpus; i++) {
        sum += t->links[gpu * t->ngpus + i];
    }
    return sum;
}

/* What most siblings have; of two equally frequent values the larger. Siblings: GPUs of the same
 * capability, on all hosts: a tray may have lost its links as a whole. have: links_of() of each. */
static int usual_links(const struct nt_topology *t, const int *have, int gpu)
{
    int best = have[gpu], best_n = 0;

    for (int i = 0; i < t->ngpus; i++) {
        int n = 0;
        if (t->gpus[i].sm != t->gpus[gpu].sm) {
            continue;
        }
        for (int j = 0; j < t->ngpus; j++) {
            n += t->gpus[j].sm == t->gpus[gpu].sm && have[j] == have[i];
        }
        if (n > best_n || (n == best_n && have[i] > best)) {
            best = have[i];
            best_n = n;
        }
    }
    return best;
}

static void look_at_nvlink(struct nt_model *m, const int *links, int gpu)
{
    const struct nt_topology *t = m->t;
    const struct nt_topo_gpu *g = &t->gpus[gpu];
    const char *kind = nt_link_kind(t);
    int have = links[gpu], usual = usual_links(t, links, gpu);
    char who[16];

    (void)nt_gpu_label(t, gpu, who, sizeof(who));
    if (g->self_links > 0) {
        nt_find(m, NT_F_NVLINK_SELF, true, who, "%d %ss of %s end at %s itself", g->self_links,
                kind, who, who);
    }
    if (g->dead_links > 0) {
        nt_find(m, NT_F_NVLINK_COUNT_0, true, who, "%s lists %ss with count 0", who, kind);
    } else if (have == 0 && usual > 0) {
        nt_find(m, NT_F_NVLINK_MISSING, true, who, "%s has no %ss, its siblings have %d", who, kind,
                usual);
    } else if (have < usual && !nt_has_xgmi(t)) { /* xGMI meshes are uneven by design */
        if (t->source == NT_TOPO_SMI) {
            nt_find(m, NT_F_NVLINK_MISSING, true, who,
                    "%s has fewer NVLinks to the other GPUs than its siblings have", who);
        } else {
            nt_find(m, NT_F_NVLINK_MISSING, true, who, "%s has %d NVLinks, its siblings have %d",
                    who, have, usual);
        }
    }
}

static void look_at_links(struct nt_model *m)
{
    const struct nt_topology *t = m->t;
    int outside = 0, c2c = 0, links[NT_MAX_GPUS];

    if ((t->known >> NT_G_NVLINK & 1) == 0) {
        return;
    }
    for (int i = 0; i < t->ngpus; i++) {
        links[i] = links_of(t, i);
    }
    for (int i = 0; i < t->ngpus; i++) {
        look_at_nvlink(m, links, i);
        c2c = t->gpus[i].c2c_links > c2c ? t->gpus[i].c2c_links : c2c;
    }
    for (int i = 0; i < t->ngpus; i++) {
        char who[16];
        if (t->gpus[i].c2c_links >= 0 && t->gpus[i].c2c_links < c2c) {
            (void)nt_gpu_label(t, i, who, sizeof(who));
            nt_find(m, NT_F_C2C_MISSING, true, who,
                    "%s has %d C2C links to its CPU, its siblings have %d", who,
                    t->gpus[i].c2c_links, c2c);
        }
    }
    for (int i = 0; i < t->nends; i++) {
        outside += t->ends[i].kind == NT_END_OUTSIDE;
    }
    if (outside > 0) {
        nt_find(m, NT_F_NOTE, false, "",
                "NVLinks lead to GPUs that are not listed: part of a machine");
    }
}

/* ---- GPUDirect, peer access, ACS, IOMMU ---- */

static void look_at_gdr(struct nt_model *m)
{
    const struct nt_topology *t = m->t;
    bool gpu_on = false;
    char who[80];

    for (int i = 0; i < t->ngpus; i++) {
        gpu_on = gpu_on || t->gpus[i].gdr == NT_ON;
    }
    for (int i = 0; i < t->ngpus && gpu_on; i++) {
        if (t->gpus[i].gdr == NT_OFF) {
            (void)nt_gpu_label(t, i, who, sizeof(who));
            nt_find(m, NT_F_GDR_LOST, true, who, "%s has lost GPUDirect RDMA, other GPUs have it",
                    who);
        }
    }
    for (int i = 0; i < t->nnets; i++) {
        bool other = false;
        for (int j = 0; j < t->nnets && !other; j++) {
            other = t->nets[j].gdr == NT_ON && t->nets[i].pci >= 0 && t->nets[j].pci >= 0 &&
                    t->nets[j].speed_mbps == t->nets[i].speed_mbps &&
                    siblings(t, t->nets[i].pci, t->nets[j].pci);
        }
        if (other && t->nets[i].gdr == NT_OFF) {
            (void)nt_net_label(t, i, who, sizeof(who));
            nt_find(m, NT_F_GDR_LOST, true, who,
                    "%s has lost GPUDirect RDMA, others of its kind have it", who);
        }
    }
}

/* Off for every pair for want of support in the GPUs is the machine's nature; all else is not. */
static void look_at_p2p(struct nt_model *m)
{
    static const char *const why[] = {[NT_P2P_UNKNOWN] = "not known",
                                      [NT_P2P_CHIPSET] = "the chipset does not support it",
                                      [NT_P2P_GPU] = "the GPUs do not support it",
                                      [NT_P2P_TOPOLOGY] = "not over this path",
                                      [NT_P2P_DISABLED] = "switched off in the driver",
                                      [NT_P2P_OFF] = "not supported"};
    const struct nt_topology *t = m->t;
    int pairs = 0, off = 0, nature = 0, first_a = 0, first_b = 0;
    char a[16], b[16], pair[40];

    for (int i = 0; i < t->ngpus; i++) {
        for (int j = 0; j < i; j++) {
            uint8_t s = t->p2p[j * t->ngpus + i];
            pairs += t->gpus[i].host == t->gpus[j].host;
            if (s == NT_P2P_OK || s == NT_P2P_UNKNOWN) {
                s = t->p2p[i * t->ngpus + j];
            }
            if (s == NT_P2P_OK || s == NT_P2P_UNKNOWN) {
                continue;
            }
            off++;
            nature += s == NT_P2P_GPU || s == NT_P2P_OFF;
            if (off == 1) {
                first_a = j;
                first_b = i;
            }
        }
    }
    if (off == 0) {
        return;
    }
    (void)nt_gpu_label(t, first_a, a, sizeof(a));
    (void)nt_gpu_label(t, first_b, b, sizeof(b));
    (void)snprintf(pair, sizeof(pair), "%s-%s", a, b);
    {
        uint8_t s = t->p2p[first_a * t->ngpus + first_b];
        const char *reason = why[s == NT_P2P_OK ? t->p2p[first_b * t->ngpus + first_a] : s];
        if (off == pairs) {
            nt_find(m, NT_F_P2P_OFF, nature != off, "", "P2P is off between all GPUs: %s", reason);
        } else {
            nt_find(m, NT_F_P2P_OFF, true, pair,
                    "P2P is off between %s and %s%s (%d of %d pairs): %s", a, b,
                    off > 1 ? " and others" : "", off, pairs, reason);
        }
    }
}

static void look_at_ports_of_host(struct nt_model *m)
{
    const struct nt_topology *t = m->t;
    int acs = 0, iommu = 0;
    const char *port = "";
    bool arm = t->ncpus > 0 && strcmp(t->cpus[0].arch, "arm64") == 0;

    for (int i = 0; i < t->npcis; i++) {
        if (t->pcis[i].kind != NT_PCI_GPU) {
            continue;
        }
        if (t->pcis[i].acs == NT_ON) {
            acs++;
            port = t->pcis[i].acs_port;
        }
        iommu += t->pcis[i].iommu == NT_ON;
    }
    if (acs > 0) {
        nt_find(
            m, NT_F_ACS_ON, true, port,
            "ACS is on above %d GPU%s (port %s): peer traffic goes through the CPU; switch it off "
            "in the BIOS or with setpci",
            acs, acs == 1 ? "" : "s", port);
    }
    if (iommu > 0) { /* on ARM servers the SMMU is always on */
        nt_find(m, NT_F_IOMMU_ON, !arm, "",
                "the IOMMU translates for %d GPU%s: peer access can hang or corrupt; boot with "
                "iommu=pt or switch it off",
                iommu, iommu == 1 ? "" : "s");
    }
}

static void look_at_models(struct nt_model *m)
{
    const struct nt_topology *t = m->t;
    char a[80], b[80];
    int mig = 0;

    for (int i = 1; i < t->ngpus; i++) {
        (void)nt_gpu_model(t, 0, a, sizeof(a));
        (void)nt_gpu_model(t, i, b, sizeof(b));
        if (strcmp(a, b) != 0 || t->gpus[0].sm != t->gpus[i].sm) {
            nt_find(m, NT_F_MIXED_GPUS, false, "", "GPUs of different models: %s and %s", a, b);
            break;
        }
    }
    for (int i = 0; i < t->ngpus; i++) {
        mig += t->gpus[i].mig == NT_ON;
    }
    if (mig > 0) {
        nt_find(m, NT_F_MIG, false, "", "MIG is on for %d of %d GPUs: no P2P, no NVLS there", mig,
                t->ngpus);
    }
}

void nt_health_look(struct nt_model *m)
{
    look_at_widths(m);
    look_at_links(m);
    look_at_gdr(m);
    look_at_p2p(m);
    look_at_ports_of_host(m);
    look_at_models(m);
}

bool nt_topology_healthy(const struct nt_topology *t)
{
    for (int i = 0; i < t->nfindings; i++) {
        if (t->findings[i].unhealthy) {
            return false;
        }
    }
    return true;
}
