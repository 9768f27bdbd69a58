/* The whole topology as JSON, for programs. */
#include "tuner/base/json.h"
#include "tuner/topology/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *tri(int v)
{
    return v == NT_UNKNOWN ? json_null() : json_boolean(v == NT_ON);
}

/* null when not told. */
static json_t *number(int64_t v, int64_t not_told)
{
    return v == not_told ? json_null() : json_integer(v);
}

static json_t *text(const char *s)
{
    return s == NULL || s[0] == '\0' ? json_null() : nt_json_text(s);
}

static json_t *pci_json(const struct nt_topology *t, int i)
{
    static const char *const kinds[] = {"switch", "gpu", "nic", "other"};
    const struct nt_topo_pci *p = &t->pcis[i];
    char ids[24] = "", class[12] = "";

    if (p->vendor != 0 || p->device != 0) {
        (void)snprintf(ids, sizeof(ids), "%04x:%04x", p->vendor, p->device);
    }
    if (p->class != 0) {
        (void)snprintf(class, sizeof(class), "0x%06x", p->class);
    }
    return json_pack("{s:s, s:s, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "busid",
                     p->busid, "kind", kinds[p->kind], "parent", number(p->parent, -1), "cpu",
                     p->cpu, "class", text(class), "id", text(ids), "width", number(p->width, 0),
                     "max_width", number(p->max_width, 0), "speed_mts", number(p->speed_mts, 0),
                     "max_speed_mts", number(p->max_speed_mts, 0), "acs_redirect", tri(p->acs),
                     "iommu_translates", tri(p->iommu));
}

static json_t *ends_json(const struct nt_topology *t, int gpu)
{
    json_t *a = json_array();
    for (int i = 0; i < t->nends; i++) {
        const struct nt_topo_end *e = &t->ends[i];
        if (e->gpu == gpu) {
            (void)json_array_append_new(
                a, json_pack("{s:s, s:s, s:o, s:i, s:s}", "kind", e->xgmi ? "xgmi" : "nvlink", "to",
                             nt_end_names[e->kind], "peer", number(e->peer, -1), "count", e->count,
                             "target", e->target));
        }
    }
    return a;
}

static json_t *gpu_json(const struct nt_topology *t, int i)
{
    const struct nt_topo_gpu *g = &t->gpus[i];
    char label[16], model[80];

    return json_pack("{s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "label", nt_gpu_label(t, i, label, sizeof(label)), "model",
                     nt_gpu_model(t, i, model, sizeof(model)), "host", g->host, "cpu",
                     number(g->cpu, -1), "pci", number(g->pci, -1), "dev", number(g->dev, -1),
                     "rank", number(g->rank, -1), "sm", number(g->sm, 0), "gcn", text(g->gcn),
                     "gdr", tri(g->gdr), "mig", tri(g->mig), "memory_bytes",
                     number((int64_t)g->memory_bytes, 0), "nvlinks", number(g->nvlinks, -1),
                     "c2c_links", number(g->c2c_links, -1), "ends", ends_json(t, i));
}

static json_t *net_json(const struct nt_topology *t, int i)
{
    const struct nt_topo_net *n = &t->nets[i];
    return json_pack("{s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "name", text(n->name), "host",
                     n->host, "cpu", number(n->cpu, -1), "pci", number(n->pci, -1), "dev",
                     number(n->dev, -1), "port", number(n->port, -1), "speed_mbps",
                     number(n->speed_mbps, 0), "gdr", tri(n->gdr), "coll", (int)n->coll);
}

static json_t *cpu_json(const struct nt_topology *t, int i)
{
    const struct nt_topo_cpu *c = &t->cpus[i];
    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "host", c->host, "numa",
                     number(c->numa, -1), "arch", text(c->arch), "vendor", text(c->vendor),
                     "family", number(c->family, -1), "model", number(c->model, -1), "affinity",
                     text(c->affinity));
}

static json_t *finding_json(const struct nt_topology *t, int i)
{
    const struct nt_finding *f = &t->findings[i];
    return json_pack("{s:s, s:b, s:o, s:s}", "kind", nt_finding_names[f->kind], "unhealthy",
                     (int)f->unhealthy, "device", text(f->device), "text", f->text);
}

static json_t *list(const struct nt_topology *t, int n,
                    json_t *(*element)(const struct nt_topology *, int))
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++) {
        (void)json_array_append_new(a, element(t, i));
    }
    return a;
}

static json_t *path_row(const struct nt_topology *t, int a)
{
    json_t *row = json_array();
    for (int b = 0; b < t->ndevs; b++) {
        (void)json_array_append_new(row, json_string(nt_path_names[t->path[a * t->ndevs + b]]));
    }
    return row;
}

static json_t *link_row(const struct nt_topology *t, int a)
{
    json_t *row = json_array();
    for (int b = 0; b < t->ngpus; b++) {
        (void)json_array_append_new(row, json_integer(t->links[a * t->ngpus + b]));
    }
    return row;
}

static json_t *p2p_row(const struct nt_topology *t, int a)
{
    json_t *row = json_array();
    for (int b = 0; b < t->ngpus; b++) {
        (void)json_array_append_new(row, json_string(nt_p2p_names[t->p2p[a * t->ngpus + b]]));
    }
    return row;
}

static json_t *facts_json(const struct nt_topology *t)
{
    json_t *o = json_object();
    for (int g = 0; g < NT_GROUP_COUNT; g++) {
        struct nt_buf b;
        json_t *counts = json_object();
        char *save = NULL;
        if ((t->known >> g & 1) == 0) {
            json_decref(counts);
            continue;
        }
        nt_buf_init(&b, 1 << 21);
        nt_group_describe(t, (enum nt_group)g, &b);
        for (char *line = b.data != NULL ? strtok_r(b.data, "\n", &save) : NULL; line != NULL;
             line = strtok_r(NULL, "\n", &save)) {
            int64_t n = json_integer_value(json_object_get(counts, line));
            (void)json_object_set_new(counts, line, json_integer(n + 1));
        }
        nt_buf_done(&b);
        (void)json_object_set_new(o, nt_group_names[g], counts);
    }
    return o;
}

json_t *nt_topology_json(const struct nt_topology *t)
{
    return json_pack("{s:i, s:s, s:i, s:o, s:b, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "version", 1, "source", nt_topo_source_names[t->source], "xml_version",
                     t->version, "identity", nt_identity_json(&t->identity), "healthy",
                     (int)nt_topology_healthy(t), "findings", list(t, t->nfindings, finding_json),
                     "hosts", t->nhosts, "cpus", list(t, t->ncpus, cpu_json), "pcis",
                     list(t, t->npcis, pci_json), "gpus", list(t, t->ngpus, gpu_json), "nics",
                     list(t, t->nnets, net_json), "paths", list(t, t->ndevs, path_row), "nvlinks",
                     list(t, t->ngpus, link_row), "p2p", list(t, t->ngpus, p2p_row), "facts",
                     facts_json(t));
}
