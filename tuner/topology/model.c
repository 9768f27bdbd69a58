#include "tuner/topology/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const what_names[] = {"CPUs", "PCI devices", "GPUs",
                                         "NICs", "NVLinks",     "PCI switch links"};

/* Appends one zeroed element to an array of the topology. */
static void *grow(void *array, int *n, int *cap, size_t size, int max, int what, struct nt_err *err)
{
    void **v = array;
    if (*n >= max) {
        (void)nt_fail(err, NT_E_INVAL, 0, "more than %d %s", max, what_names[what]);
        return NULL;
    }
    if (*n == *cap) {
        int c = *cap == 0 ? 16 : *cap * 2;
        void *p = realloc(*v, (size_t)c * size);
        if (p == NULL) {
            (void)nt_fail(err, NT_E_NOMEM, 0, "topology");
            return NULL;
        }
        *v = p;
        *cap = c;
    }
    memset((char *)*v + (size_t)*n * size, 0, size);
    (*n)++;
    return (char *)*v + (size_t)(*n - 1) * size;
}

struct nt_topo_cpu *nt_model_cpu(struct nt_model *m, struct nt_err *err)
{
    struct nt_topo_cpu *c =
        grow(&m->t->cpus, &m->t->ncpus, &m->cpu_cap, sizeof(*m->t->cpus), NT_MAX_CPUS, 0, err);
    if (c != NULL) {
        c->numa = c->family = c->model = -1;
    }
    return c;
}

struct nt_topo_pci *nt_model_pci(struct nt_model *m, struct nt_err *err)
{
    struct nt_topo_pci *p =
        grow(&m->t->pcis, &m->t->npcis, &m->pci_cap, sizeof(*m->t->pcis), NT_MAX_PCIS, 1, err);
    if (p != NULL) {
        p->parent = -1;
        p->kind = NT_PCI_OTHER;
        p->acs = p->iommu = NT_UNKNOWN;
    }
    return p;
}

struct nt_topo_gpu *nt_model_gpu(struct nt_model *m, struct nt_err *err)
{
    struct nt_topo_gpu *g =
        grow(&m->t->gpus, &m->t->ngpus, &m->gpu_cap, sizeof(*m->t->gpus), NT_MAX_GPUS, 2, err);
    if (g != NULL) {
        g->cpu = g->pci = g->dev = g->rank = g->nvlinks = g->c2c_links = -1;
        g->gdr = g->mig = NT_UNKNOWN;
        g->busy_percent = -1;
    }
    return g;
}

struct nt_topo_net *nt_model_net(struct nt_model *m, struct nt_err *err)
{
    struct nt_topo_net *n =
        grow(&m->t->nets, &m->t->nnets, &m->net_cap, sizeof(*m->t->nets), NT_MAX_NETS, 3, err);
    if (n != NULL) {
        n->cpu = n->pci = n->dev = n->port = -1;
        n->gdr = NT_UNKNOWN;
    }
    return n;
}

struct nt_topo_end *nt_model_end(struct nt_model *m, struct nt_err *err)
{
    return grow(&m->t->ends, &m->t->nends, &m->end_cap, sizeof(*m->t->ends), NT_MAX_GPUS * 64, 4,
                err);
}

int (*nt_model_pcilink(struct nt_model *m, struct nt_err *err))[2]
{
    return grow(&m->t->pcilinks, &m->t->npcilinks, &m->pcilink_cap, sizeof(*m->t->pcilinks), 1024,
                5, err);
}

void nt_find(struct nt_model *m, enum nt_finding_kind kind, bool unhealthy, const char *device,
             const char *fmt, ...)
{
    struct nt_topology *t = m->t;
    struct nt_finding *f;
    va_list ap;

    if (t->nfindings == m->finding_cap) {
        int c = m->finding_cap == 0 ? 16 : m->finding_cap * 2;
        f = c > 4096 ? NULL : realloc(t->findings, (size_t)c * sizeof(*f));
        if (f == NULL) {
            m->failed = true;
            return;
        }
        t->findings = f;
        m->finding_cap = c;
    }
    f = &t->findings[t->nfindings++];
    *f = (struct nt_finding){.kind = kind, .unhealthy = unhealthy};
    (void)snprintf(f->device, sizeof(f->device), "%s", device);
    va_start(ap, fmt);
    (void)vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
}

int nt_model_new(struct nt_model *m, enum nt_topo_source source, struct nt_err *err)
{
    *m = (struct nt_model){.t = calloc(1, sizeof(*m->t))};
    if (m->t == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    m->t->source = source;
    return 0;
}

void nt_topology_free(struct nt_topology *t)
{
    if (t == NULL) {
        return;
    }
    for (int i = 0; i < t->ncpus; i++) {
        free(t->cpus[i].affinity);
    }
    free(t->cpus);
    free(t->pcis);
    free(t->gpus);
    free(t->nets);
    free(t->ends);
    free(t->pcilinks);
    free(t->path);
    free(t->wire);
    free(t->links);
    free(t->p2p);
    free(t->findings);
    free(t);
}

void nt_model_abort(struct nt_model *m)
{
    nt_topology_free(m->t);
    m->t = NULL;
}

static int infer_gpu(struct nt_model *m, int pci, struct nt_err *err)
{
    struct nt_topo_gpu *g = nt_model_gpu(m, err);
    if (g == NULL) {
        return -(int)err->code;
    }
    m->t->pcis[pci].kind = NT_PCI_GPU;
    g->pci = pci;
    m->nvlinks_told = false;
    return 0;
}

static int infer_net(struct nt_model *m, int pci, struct nt_err *err)
{
    struct nt_topo_net *n = nt_model_net(m, err);
    if (n == NULL) {
        return -(int)err->code;
    }
    m->t->pcis[pci].kind = NT_PCI_NIC;
    n->pci = pci;
    m->nets_told = false;
    return 0;
}

/* Files without gpu and nic elements (templates that NCCL fills in) tell devices by PCI class. */
static int infer_devices(struct nt_model *m, struct nt_err *err)
{
    struct nt_topology *t = m->t;
    bool parent[NT_MAX_PCIS] = {false};
    int rc = 0;

    for (int i = 0; i < t->npcis; i++) {
        if (t->pcis[i].parent >= 0) {
            parent[t->pcis[i].parent] = true;
        }
    }
    for (int i = 0; i < t->npcis && rc == 0; i++) {
        struct nt_topo_pci *p = &t->pcis[i];
        if (p->kind == NT_PCI_GPU || p->kind == NT_PCI_NIC) {
            continue;
        }
        if (parent[i] || p->class >> 8 == 0x0604) {
            p->kind = NT_PCI_SWITCH;
        } else if (nt_class_is_gpu(p->class, p->vendor)) {
            rc = infer_gpu(m, i, err);
        } else if (nt_class_is_nic(p->class)) {
            rc = infer_net(m, i, err);
        }
    }
    return rc;
}

static void place_devices(struct nt_topology *t)
{
    for (int i = 0; i < t->ngpus; i++) {
        if (t->gpus[i].pci >= 0) {
            t->gpus[i].cpu = t->pcis[t->gpus[i].pci].cpu;
            t->gpus[i].host = t->cpus[t->gpus[i].cpu].host;
        }
    }
    for (int i = 0; i < t->nnets; i++) {
        if (t->nets[i].pci >= 0) {
            t->nets[i].cpu = t->pcis[t->nets[i].pci].cpu;
        }
        if (t->nets[i].cpu >= 0) {
            t->nets[i].host = t->cpus[t->nets[i].cpu].host;
        }
    }
    t->nhosts = 1;
    for (int i = 0; i < t->ncpus; i++) {
        if (t->cpus[i].host >= t->nhosts) {
            t->nhosts = t->cpus[i].host + 1;
        }
    }
}

static int gpu_order(const void *a, const void *b)
{
    const struct nt_topo_gpu *x = a, *y = b;
    return x->host != y->host ? (x->host < y->host ? -1 : 1)
                              : (x->dev > y->dev) - (x->dev < y->dev);
}

static int net_order(const void *a, const void *b)
{
    const struct nt_topo_net *x = a, *y = b;
    return x->host != y->host ? (x->host < y->host ? -1 : 1)
                              : (x->dev > y->dev) - (x->dev < y->dev);
}

/* By host, then by the number the source gives, where it numbers them; else as read. */
static void sort_devices(struct nt_topology *t)
{
    int where[NT_MAX_GPUS];
    bool numbered = true;

    for (int i = 0; i < t->ngpus; i++) {
        for (int j = 0; j < i && numbered; j++) {
            numbered = t->gpus[i].dev >= 0 &&
                       (t->gpus[i].dev != t->gpus[j].dev || t->gpus[i].host != t->gpus[j].host);
        }
        t->gpus[i].switch_links = i; /* borrowed: the place before sorting */
    }
    if (numbered && t->ngpus > 1) {
        qsort(t->gpus, (size_t)t->ngpus, sizeof(*t->gpus), gpu_order);
    }
    for (int i = 0; i < t->ngpus; i++) {
        where[t->gpus[i].switch_links] = i;
        t->gpus[i].switch_links = 0;
    }
    for (int i = 0; i < t->nends; i++) {
        t->ends[i].gpu = where[t->ends[i].gpu];
    }
    numbered = true;
    for (int i = 0; i < t->nnets; i++) {
        for (int j = 0; j < i && numbered; j++) {
            numbered = t->nets[i].dev >= 0 &&
                       (t->nets[i].dev != t->nets[j].dev || t->nets[i].host != t->nets[j].host);
        }
    }
    if (numbered && t->nnets > 1) {
        qsort(t->nets, (size_t)t->nnets, sizeof(*t->nets), net_order);
    }
}

static enum nt_end_kind end_kind(const struct nt_topo_end *e)
{
    if (e->peer >= 0) {
        return e->peer == e->gpu ? NT_END_SELF : NT_END_GPU;
    }
    if (e->tclass == 0x068001) {
        return NT_END_CPU;
    }
    if (e->tclass != 0 && nt_class_is_gpu(e->tclass, 0)) {
        return NT_END_OUTSIDE;
    }
    return NT_END_SWITCH; /* NVSwitches are rarely listed */
}

static void resolve_ends(struct nt_topology *t)
{
    for (int i = 0; i < t->ngpus; i++) {
        if (t->gpus[i].nvlinks >= 0) {
            t->gpus[i].nvlinks = 0;
        }
    }
    for (int i = 0; i < t->nends; i++) {
        struct nt_topo_end *e = &t->ends[i];
        struct nt_topo_gpu *g = &t->gpus[e->gpu];
        e->peer = -1;
        for (int j = 0; j < t->ngpus && !nt_bus_is_fabric(e->bus); j++) {
            if (t->gpus[j].pci >= 0 && t->gpus[j].host == g->host &&
                t->pcis[t->gpus[j].pci].bus == e->bus) {
                e->peer = j;
            }
        }
        e->kind = end_kind(e);
        g->nvlinks += e->count;
        g->dead_links += e->count == 0;
        if (e->kind == NT_END_SELF) {
            g->self_links += e->count;
        } else if (e->kind == NT_END_SWITCH) {
            g->switch_links += e->count;
        }
    }
}

int nt_model_matrices(struct nt_model *m, struct nt_err *err)
{
    struct nt_topology *t = m->t;
    size_t g = (size_t)t->ngpus, n = g + (size_t)t->nnets;

    t->ndevs = (int)n;
    t->path = calloc(n * n + 1, 1);
    t->wire = calloc(n * n + 1, 1);
    t->links = calloc(g * g + 1, sizeof(*t->links));
    t->p2p = calloc(g * g + 1, 1);
    if (t->path == NULL || t->wire == NULL || t->links == NULL || t->p2p == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    return 0;
}

/* Which groups of facts are known, from what is there. */
static uint32_t known_groups(const struct nt_model *m)
{
    const struct nt_topology *t = m->t;
    bool ids = t->ngpus > 0, sms = ids, kinds = !m->wires_told && t->npcis > 0, rates = true,
         cpus = false, numa = ids && m->numa_told, c2c = false;
    uint32_t k = 0;

    for (int i = 0; i < t->ngpus; i++) {
        const struct nt_topo_gpu *g = &t->gpus[i];
        ids = ids && g->pci >= 0 && t->pcis[g->pci].vendor != 0 && t->pcis[g->pci].device != 0;
        sms = sms && g->sm > 0;
        c2c = c2c || g->c2c_links > 0;
        numa = numa && g->cpu >= 0;
        if (!m->wires_told && g->cpu >= 0) {
            cpus = true;
        }
    }
    for (int i = 0; i < t->npcis; i++) {
        kinds = kinds && (t->pcis[i].kind != NT_PCI_OTHER || t->pcis[i].class != 0);
    }
    for (int i = 0; i < t->nnets; i++) {
        rates = rates && (t->nets[i].pci < 0 || t->nets[i].speed_mbps > 0);
    }
    for (int i = 0; i < t->ncpus; i++) {
        const struct nt_topo_cpu *c = &t->cpus[i];
        cpus = cpus && c->arch[0] != '\0' &&
               (strcmp(c->arch, "x86_64") != 0 || (c->vendor[0] != '\0' && c->family >= 0));
    }
    k |= (uint32_t)ids << NT_G_GPUS | (uint32_t)sms << NT_G_CAPABILITY;
    k |= (uint32_t)(m->memory_told && ids) << NT_G_MEMORY;
    if (m->nvlinks_told && t->ngpus > 0) {
        k |= 1U << NT_G_NVLINK | 1U << NT_G_PATHS;
        k |= (uint32_t)(c2c || m->c2c_told) << NT_G_C2C;
    }
    k |= (uint32_t)(m->p2p_told && t->ngpus > 0) << NT_G_P2P;
    k |= (uint32_t)(kinds && t->ngpus > 0) << NT_G_PCIE;
    k |= (uint32_t)(m->nets_told && t->ngpus > 0) << NT_G_NICS;
    k |= (uint32_t)(m->nets_told && rates && !m->wires_told && t->ngpus > 0) << NT_G_RATES;
    k |= (uint32_t)numa << NT_G_NUMA | (uint32_t)(cpus && t->ngpus > 0) << NT_G_CPU;
    return k;
}

int nt_model_finish(struct nt_model *m, struct nt_topology **ret, struct nt_err *err)
{
    int rc = 0;

    if (!m->wires_told) {
        rc = infer_devices(m, err);
        if (rc == 0) {
            place_devices(m->t);
            sort_devices(m->t);
            resolve_ends(m->t);
            rc = m->t->path == NULL ? nt_model_matrices(m, err) : 0;
        }
    } else {
        place_devices(m->t);
    }
    if (rc == 0) {
        nt_paths_compute(m);
        m->t->known = known_groups(m);
        nt_health_look(m);
        rc = m->failed ? nt_fail(err, NT_E_NOMEM, 0, "findings") : nt_identity_compute(m->t, err);
    }
    if (rc != 0) {
        nt_model_abort(m);
        return rc;
    }
    *ret = m->t;
    m->t = NULL;
    return 0;
}
