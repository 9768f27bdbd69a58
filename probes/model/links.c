#include "probes/model/links.h"

#include <stdlib.h>
#include <string.h>

/* What a pci-only template does not say of the GPUs that stand in it. NVLinks: through switches. */
static const struct {
    uint16_t device;
    uint8_t cc, nvlinks;
} known[] = {{0x1db1, 70, 0},  {0x1db4, 70, 0},   {0x1db5, 70, 0},  {0x1eb8, 75, 0},
             {0x20b0, 80, 12}, {0x20b2, 80, 12},  {0x20b3, 80, 12}, {0x20b5, 80, 0},
             {0x20f1, 80, 0},  {0x2235, 86, 0},   {0x2237, 86, 0},  {0x26b5, 89, 0},
             {0x26b9, 89, 0},  {0x2684, 89, 0},   {0x2330, 90, 18}, {0x2331, 90, 0},
             {0x2335, 90, 18}, {0x2901, 100, 18}, {0x2bb1, 120, 0}, {0x2bb5, 120, 0}};
enum { ASSUMED_CC = 80 };
/* NCCL's: P2P through an Intel host bridge takes 6/5 of its rate there. */
static const float INTEL_P2P = 1.2F;

double nt_nvlink_gbs(int cc)
{
    return cc >= 100 ? 40.1 : cc >= 90 ? 20.6 : cc == 86 ? 12.0 : cc >= 70 ? 20.0 : 18.0;
}

double nt_pcie_gbs(int width, int speed_mts)
{
    static const struct {
        int mts, rate;
    } rates[] = {{2500, 15}, {5000, 30}, {8000, 60}, {16000, 120}, {32000, 240}, {64000, 480}};
    int rate = 60;

    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        rate = rates[i].mts == speed_mts ? rates[i].rate : rate;
    }
    return (width > 0 ? width : 16) * rate / 80.0;
}

static enum nt_host_cpu cpu_of(const struct nt_topo_cpu *c)
{
    if (strcmp(c->arch, "arm64") == 0 || strcmp(c->arch, "aarch64") == 0) {
        return NT_CPU_ARM;
    }
    if (strncmp(c->arch, "ppc", 3) == 0) {
        return NT_CPU_POWER;
    }
    return strcmp(c->vendor, "AuthenticAMD") == 0 ? NT_CPU_AMD : NT_CPU_INTEL;
}

/* GB/s between two sockets. */
static double socket_gbs(const struct nt_topo_cpu *c)
{
    switch (cpu_of(c)) {
    case NT_CPU_AMD:
        return 16;
    case NT_CPU_POWER:
        return 32;
    case NT_CPU_ARM:
        return 6;
    default:
        if (strcmp(c->vendor, "GenuineIntel") == 0 && c->family == 6) {
            return c->model >= 0xcf ? 40 : c->model >= 0x8f ? 22 : c->model >= 0x55 ? 10 : 6;
        }
        return 10;
    }
}

/* ------------------------------------------------------------------ numbers of links */

static int nv_up(int gpu)
{
    return 2 * gpu;
}
static int nv_direct(const struct machine *m, int a, int b)
{
    return 2 * m->gpus + a * m->gpus + b;
}
static int pci_up(const struct machine *m, int pci)
{
    return 2 * m->gpus + m->gpus * m->gpus + 2 * pci;
}
static int cpu_to_cpu(const struct machine *m, int a, int b)
{
    return pci_up(m, m->t->npcis) + a * m->t->ncpus + b;
}
static int nic_out(const struct machine *m, int net) /* net == nnets: the made-up one */
{
    return pci_up(m, m->t->npcis) + m->t->ncpus * m->t->ncpus + 2 * net;
}

/* ------------------------------------------------------------------ the machine */

static void look_at_gpu(struct machine *m, int g, bool *assumed_cc, bool *assumed_links,
                        bool *untold_links)
{
    const struct nt_topo_gpu *x = &m->t->gpus[g];
    int cc = x->gcn[0] != '\0' ? 0 : x->sm, links = x->nvlinks >= 0 ? x->switch_links : -1;

    for (size_t i = 0; x->pci >= 0 && i < sizeof(known) / sizeof(known[0]); i++) {
        if (m->t->pcis[x->pci].device == known[i].device && x->gcn[0] == '\0') {
            cc = cc > 0 ? cc : known[i].cc;
            if (links < 0) {
                links = known[i].nvlinks;
                *assumed_links = *assumed_links || links > 0;
            }
        }
    }
    *assumed_cc = *assumed_cc || cc <= 0;
    *untold_links = *untold_links || (links < 0 && x->gcn[0] == '\0');
    cc = cc > 0 ? cc : ASSUMED_CC;
    m->cc = m->cc == 0 || cc < m->cc ? cc : m->cc;
    m->cc_max = cc > m->cc_max ? cc : m->cc_max;
    m->switch_links[g] = links > 0 ? links : 0;
}

static void fill_capacities(struct machine *m)
{
    const struct nt_topology *t = m->t;

    for (int g = 0; g < m->gpus; g++) {
        m->cap[nv_up(g)] = m->cap[nv_up(g) + 1] = m->switch_links[g] * m->link_gbs;
        for (int h = 0; h < m->gpus; h++) {
            m->cap[nv_direct(m, g, h)] = m->direct[g * m->gpus + h] * m->link_gbs;
        }
    }
    for (int i = 0; i < t->npcis; i++) {
        m->cap[pci_up(m, i)] = m->cap[pci_up(m, i) + 1] =
            nt_pcie_gbs(t->pcis[i].width, t->pcis[i].speed_mts);
    }
    for (int a = 0; a < t->ncpus; a++) {
        for (int b = 0; b < t->ncpus; b++) {
            m->cap[cpu_to_cpu(m, a, b)] = socket_gbs(&t->cpus[a]);
        }
    }
    for (int i = 0; i <= t->nnets; i++) {
        double mbps = i < t->nnets && t->nets[i].speed_mbps > 0 ? t->nets[i].speed_mbps : 10000;
        m->cap[nic_out(m, i)] = m->cap[nic_out(m, i) + 1] = mbps / 8000;
    }
}

int machine_init(struct machine *m, const struct nt_topology *t, int gpus, bool no_p2p,
                 struct nt_buf *note, struct nt_err *err)
{
    bool assumed_cc = false, assumed_links = false, untold_links = false, xgmi = false;

    *m = (struct machine){.t = t, .gpus = gpus, .no_p2p = no_p2p};
    m->switch_links = calloc((size_t)gpus, sizeof(m->switch_links[0]));
    m->direct = calloc((size_t)gpus * (size_t)gpus, sizeof(m->direct[0]));
    m->links = nic_out(m, t->nnets + 1);
    m->cap = calloc((size_t)m->links, sizeof(m->cap[0]));
    if (m->switch_links == NULL || m->direct == NULL || m->cap == NULL) {
        machine_done(m);
        return nt_fail(err, NT_E_NOMEM, 0, "links of the machine");
    }
    for (int g = 0; g < gpus; g++) {
        look_at_gpu(m, g, &assumed_cc, &assumed_links, &untold_links);
        xgmi = xgmi || t->gpus[g].gcn[0] != '\0';
    }
    for (int i = 0; i < t->nends; i++) {
        const struct nt_topo_end *e = &t->ends[i];
        if (e->kind == NT_END_GPU && e->gpu < gpus && e->peer >= 0 && e->peer < gpus) {
            m->direct[e->gpu * gpus + e->peer] =
                (uint16_t)(m->direct[e->gpu * gpus + e->peer] + e->count);
        }
    }
    m->link_gbs = nt_nvlink_gbs(m->cc);
    m->cpu = t->ncpus > 0 ? cpu_of(&t->cpus[0]) : NT_CPU_INTEL;
    for (int i = 1; i < t->ncpus; i++) {
        m->cpu = cpu_of(&t->cpus[i]) != m->cpu ? NT_CPU_MIXED : m->cpu;
    }
    fill_capacities(m);
    if (note != NULL && xgmi) {
        nt_buf_puts(note, "AMD GPUs: NCCL's figures for Ampere stand in; ");
    } else if (note != NULL && assumed_cc) {
        nt_buf_printf(note, "capability not told, taken as %d.%d; ", ASSUMED_CC / 10,
                      ASSUMED_CC % 10);
    }
    if (note != NULL && assumed_links) {
        nt_buf_puts(note, "NVLinks not told, taken from the GPU's model; ");
    }
    if (note != NULL && untold_links && gpus > 1) { /* a template of a cloud: most have some */
        nt_buf_puts(note, "neither NVLinks nor the GPU's model told: taken as without NVLink; ");
    }
    return 0;
}

void machine_done(struct machine *m)
{
    free(m->switch_links);
    free(m->direct);
    free(m->cap);
}

double machine_nvlink(const struct machine *m, int gpu)
{
    double links = m->switch_links[gpu];
    for (int g = 0; g < m->gpus; g++) {
        links += m->direct[gpu * m->gpus + g];
    }
    return links * m->link_gbs;
}

/* ------------------------------------------------------------------ ways */

static void hop(const struct machine *m, struct route *r, int link, float share)
{
    if (r->n < MAX_HOPS) {
        r->link[r->n] = link;
        r->share[r->n++] = share;
        r->gbs = m->cap[link] < r->gbs ? m->cap[link] : r->gbs;
    }
}

static bool by_nvlink(const struct machine *m, int a, int b, struct route *r)
{
    int n = m->gpus;

    r->type = NT_PATH_NVL;
    if (m->direct[a * n + b] > 0) {
        hop(m, r, nv_direct(m, a, b), 1);
        return true;
    }
    if (m->switch_links[a] > 0 && m->switch_links[b] > 0) {
        hop(m, r, nv_up(a), 1);
        hop(m, r, nv_up(b) + 1, 1);
        return true;
    }
    for (int g = 0; g < n; g++) {
        if (m->direct[a * n + g] > 0 && m->direct[g * n + b] > 0) {
            hop(m, r, nv_direct(m, a, g), 1);
            hop(m, r, nv_direct(m, g, b), 1);
            r->type = NT_PATH_NVB;
            return true;
        }
    }
    return false;
}

static void place(const struct machine *m, int dev, int *pci, int *cpu)
{
    const struct nt_topology *t = m->t;

    *pci = dev < t->ngpus ? t->gpus[dev].pci : dev < t->ndevs ? t->nets[dev - t->ngpus].pci : -1;
    *cpu = dev < t->ngpus ? t->gpus[dev].cpu : dev < t->ndevs ? t->nets[dev - t->ngpus].cpu : 0;
    *cpu = *cpu < 0 ? 0 : *cpu;
}

static bool is_above(const struct nt_topology *t, int above, int pci)
{
    for (; pci >= 0; pci = t->pcis[pci].parent) {
        if (pci == above) {
            return true;
        }
    }
    return false;
}

/* Over the PCIe tree; through the CPU even where a switch is nearer if `host`. */
static void by_pcie(const struct machine *m, int a, int b, bool host, struct route *r)
{
    const struct nt_topology *t = m->t;
    int pa, ca, pb, cb, down[MAX_HOPS], n = 0, meet;

    place(m, a, &pa, &ca);
    place(m, b, &pb, &cb);
    meet = host ? -1 : pa;
    while (meet >= 0 && !is_above(t, meet, pb)) {
        meet = t->pcis[meet].parent;
    }
    for (int p = pa; p >= 0 && p != meet; p = t->pcis[p].parent) {
        hop(m, r, pci_up(m, p), 1);
    }
    if (meet < 0 && ca != cb && ca < t->ncpus && cb < t->ncpus) {
        hop(m, r, cpu_to_cpu(m, ca, cb), 1);
    }
    for (int p = pb; p >= 0 && p != meet && n < MAX_HOPS; p = t->pcis[p].parent) {
        down[n++] = pci_up(m, p) + 1;
    }
    while (n > 0) {
        hop(m, r, down[--n], 1);
    }
    if (meet < 0 && m->cpu == NT_CPU_INTEL && a < m->gpus && b < m->gpus) {
        for (int i = 0; i < r->n; i++) {
            r->share[i] = INTEL_P2P;
        }
        r->gbs /= (double)INTEL_P2P;
    }
    if (host && r->type < NT_PATH_PHB) {
        r->type = NT_PATH_PHB;
    }
}

/* A GPU and a NIC. Over a peer on NVLink that sits nearer where NCCL would (PXN). */
static bool with_nic(const struct machine *m, int gpu, int dev, bool out, struct route *r)
{
    const struct nt_topology *t = m->t;
    int net = dev - t->ngpus, via = gpu;

    r->type = dev < t->ndevs ? (enum nt_path)t->path[gpu * t->ndevs + dev] : NT_PATH_PHB;
    if (r->type >= NT_PATH_NET) {
        return false;
    }
    for (int g = 0; r->type == NT_PATH_PXN && via == gpu && g < m->gpus; g++) {
        struct route nv = {.gbs = 5000};
        if (g != gpu && t->path[dev * t->ndevs + g] <= NT_PATH_P2C &&
            by_nvlink(m, out ? gpu : g, out ? g : gpu, &nv) && nv.type == NT_PATH_NVL) {
            via = g;
            for (int i = 0; i < nv.n; i++) {
                hop(m, r, nv.link[i], 1);
            }
        }
    }
    if (r->type == NT_PATH_PXN && via == gpu) {
        r->type = NT_PATH_SYS; /* the peer is not among the ranks */
    }
    by_pcie(m, out ? via : dev, out ? dev : via, false, r);
    hop(m, r, nic_out(m, net) + (out ? 0 : 1), 1);
    return true;
}

bool machine_route(const struct machine *m, int from, int to, struct route *ret)
{
    const struct nt_topology *t = m->t;

    *ret = (struct route){.gbs = 5000};
    if (from >= t->ngpus || to >= t->ngpus) {
        return from >= t->ngpus ? with_nic(m, to, from, false, ret)
                                : with_nic(m, from, to, true, ret);
    }
    if (!m->no_p2p && by_nvlink(m, from, to, ret)) {
        return true;
    }
    *ret = (struct route){.gbs = 5000, .type = (enum nt_path)t->path[from * t->ndevs + to]};
    if (ret->type < NT_PATH_PIX && ret->type != NT_PATH_C2C) {
        ret->type = NT_PATH_PHB; /* NVLink not to be used */
    }
    if (ret->type >= NT_PATH_NET) {
        return false;
    }
    by_pcie(m, from, to, m->no_p2p, ret);
    return true;
}
