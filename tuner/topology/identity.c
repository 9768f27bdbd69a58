/*
 * Identity: one hash a group, over facts that two equal machines share whatever their numbering.
 * Nothing here looks at bus ids, names, device numbers, link speeds or affinity masks.
 */
#include "tuner/topology/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/topology/canon.h"

enum { TEXT_MAX = 1 << 20 };

/* ---- lines: sorted, so that order does not matter ---- */

static int by_line(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Hash of the lines of a description, order apart. */
static int hash_lines(struct nt_buf *text, char *hex, struct nt_err *err)
{
    struct nt_buf sorted;
    char **line;
    size_t n = 0, k = 0;
    int rc = 0;

    for (size_t i = 0; i < text->len; i++) {
        n += text->data[i] == '\n';
    }
    line = malloc((n + 1) * sizeof(*line));
    if (line == NULL || text->failed) {
        free(line);
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    for (char *p = text->data; k < n; k++) {
        line[k] = p;
        p = strchr(p, '\n');
        *p++ = '\0';
    }
    qsort(line, n, sizeof(*line), by_line);
    nt_buf_init(&sorted, TEXT_MAX * 2);
    for (k = 0; k < n; k++) {
        nt_buf_puts(&sorted, line[k]);
        nt_buf_puts(&sorted, "\n");
    }
    if (sorted.failed) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "topology");
    } else {
        nt_sha256_hex(nt_buf_str(&sorted), sorted.len, hex);
    }
    nt_buf_done(&sorted);
    free(line);
    return rc;
}

/* ---- graphs ---- */

struct colours {
    int n;
    uint32_t *node, *edge;
};

static bool colours_init(struct colours *c, int n)
{
    c->n = n;
    c->node = calloc((size_t)n + 1, sizeof(*c->node));
    c->edge = calloc((size_t)n * (size_t)n + 1, sizeof(*c->edge));
    if (c->node == NULL || c->edge == NULL) {
        free(c->node);
        free(c->edge);
        return false;
    }
    return true;
}

static int colours_name(struct colours *c, char *hex, struct nt_err *err)
{
    int rc = nt_canon(c->n, c->node, c->edge, hex, err);
    free(c->node);
    free(c->edge);
    return rc;
}

static uint32_t path_colour(const struct nt_topology *t, int a, int b)
{
    return t->wire[a * t->ndevs + b];
}

static uint32_t link_colour(const struct nt_topology *t, int a, int b)
{
    return t->links[a * t->ngpus + b];
}

static uint32_t p2p_colour(const struct nt_topology *t, int a, int b)
{
    return t->p2p[a * t->ngpus + b] == NT_P2P_OK;
}

static int hash_gpu_graph(const struct nt_topology *t,
                          uint32_t (*colour)(const struct nt_topology *, int, int), char *hex,
                          struct nt_err *err)
{
    struct colours c;

    if (!colours_init(&c, t->ngpus)) {
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    for (int a = 0; a < c.n; a++) {
        for (int b = 0; b < c.n; b++) {
            c.edge[a * c.n + b] = colour(t, a, b);
        }
    }
    return colours_name(&c, hex, err);
}

/* How far two devices of one kind are apart as seen from those of the other kind: follows from the
 * other edges, so it adds nothing, but it lets the graph be taken apart by socket and switch. */
static void fill_same_kind(struct colours *c, int from, int to, int other_from, int other_to)
{
    for (int a = from; a < to; a++) {
        for (int b = from; b < a; b++) {
            uint32_t best = NT_PATH_DIS;
            for (int o = other_from; o < other_to; o++) {
                uint32_t x = c->edge[a * c->n + o], y = c->edge[b * c->n + o];
                uint32_t far = x > y ? x : y;
                best = far < best ? far : best;
            }
            c->edge[a * c->n + b] = c->edge[b * c->n + a] = best;
        }
    }
}

/* GPUs and the NICs that are PCI devices; virtual ones are not hardware. */
static int hash_nics(const struct nt_topology *t, char *hex, struct nt_err *err)
{
    int dev[NT_MAX_GPUS + NT_MAX_NETS], n = 0;
    struct colours c;

    for (int i = 0; i < t->ndevs; i++) {
        if (i < t->ngpus || t->nets[i - t->ngpus].pci >= 0 || t->source == NT_TOPO_SMI) {
            dev[n++] = i;
        }
    }
    if (!colours_init(&c, n)) {
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    for (int a = 0; a < n; a++) {
        c.node[a] = a >= t->ngpus;
        for (int b = 0; b < n; b++) {
            c.edge[a * n + b] = t->wire[dev[a] * t->ndevs + dev[b]];
        }
    }
    fill_same_kind(&c, 0, t->ngpus, t->ngpus, n);
    fill_same_kind(&c, t->ngpus, n, 0, t->ngpus);
    return colours_name(&c, hex, err);
}

/* ---- PCIe tree ---- */

static int by_name(const void *a, const void *b)
{
    return memcmp(a, b, NT_HEX_LEN);
}

/* Names of subtrees, from the leaves up: children come after their parents. What leads to no GPU
 * and no NIC is left out. */
static int name_pcis(const struct nt_topology *t, bool models, char (*name)[NT_HEX_LEN + 1],
                     struct nt_err *err)
{
    static const char letter[] = {[NT_PCI_SWITCH] = 'S', [NT_PCI_GPU] = 'G', [NT_PCI_NIC] = 'N'};
    char(*kids)[NT_HEX_LEN + 1] = malloc(((size_t)t->npcis + 1) * sizeof(*kids));
    struct nt_buf text;
    int rc = 0;

    if (kids == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    nt_buf_init(&text, TEXT_MAX);
    for (int i = t->npcis - 1; i >= 0 && rc == 0; i--) {
        const struct nt_topo_pci *p = &t->pcis[i];
        int k = 0;
        for (int j = i + 1; j < t->npcis; j++) {
            if (t->pcis[j].parent == i && name[j][0] != '\0') {
                memcpy(kids[k++], name[j], sizeof(*kids));
            }
        }
        name[i][0] = '\0';
        if (k == 0 && (p->kind == NT_PCI_OTHER || p->kind == NT_PCI_SWITCH ||
                       (models && p->kind == NT_PCI_NIC))) {
            continue;
        }
        qsort(kids, (size_t)k, sizeof(*kids), by_name);
        nt_buf_clear(&text);
        nt_buf_printf(&text, "%c", p->kind == NT_PCI_OTHER ? 'S' : letter[p->kind]);
        if (!models) {
            int w = nt_pci_built_width(t, i);
            nt_buf_printf(&text, "%d", w == 0 ? 16 : w); /* as NCCL takes it when not told */
            nt_buf_puts(&text, nt_nic_kind(p));
        } else if (p->kind == NT_PCI_GPU) {
            nt_buf_printf(&text, "%04x:%04x", p->vendor, p->device);
        }
        for (int j = 0; j < k; j++) {
            nt_buf_add(&text, kids[j], NT_HEX_LEN);
        }
        rc = text.failed ? nt_fail(err, NT_E_NOMEM, 0, "topology") : 0;
        nt_sha256_hex(nt_buf_str(&text), text.len, name[i]);
    }
    nt_buf_done(&text);
    free(kids);
    return rc;
}

/* Hosts as sorted lists of CPUs as sorted lists of subtrees. */
static int hash_tree(const struct nt_topology *t, bool models, char *hex, struct nt_err *err)
{
    char(*name)[NT_HEX_LEN + 1] = calloc((size_t)t->npcis + 1, sizeof(*name));
    struct nt_buf all, host, cpu;
    char h[NT_HEX_LEN + 1];
    int rc;

    if (name == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    nt_buf_init(&all, TEXT_MAX);
    nt_buf_init(&host, TEXT_MAX);
    nt_buf_init(&cpu, TEXT_MAX);
    rc = name_pcis(t, models, name, err);
    for (int x = 0; x < t->nhosts && rc == 0; x++) {
        nt_buf_clear(&host);
        for (int c = 0; c < t->ncpus && rc == 0; c++) {
            nt_buf_clear(&cpu);
            for (int i = 0; i < t->npcis && t->cpus[c].host == x; i++) {
                if (t->pcis[i].cpu == c && t->pcis[i].parent < 0 && name[i][0] != '\0') {
                    nt_buf_printf(&cpu, "%s\n", name[i]);
                }
            }
            if (cpu.len > 0) {
                rc = hash_lines(&cpu, h, err);
                nt_buf_printf(&host, "%s\n", h);
            }
        }
        if (rc == 0 && host.len > 0) {
            rc = hash_lines(&host, h, err);
            nt_buf_printf(&all, "%s\n", h);
        }
    }
    if (rc == 0) {
        nt_buf_puts(&all, "tree\n");
        rc = hash_lines(&all, hex, err);
    }
    nt_buf_done(&all);
    nt_buf_done(&host);
    nt_buf_done(&cpu);
    free(name);
    return rc;
}

/* ---- groups ---- */

static int hash_description(const struct nt_topology *t, enum nt_group g, char *hex,
                            struct nt_err *err)
{
    struct nt_buf text;
    int rc;

    nt_buf_init(&text, TEXT_MAX);
    nt_buf_printf(&text, "%s\n", nt_group_names[g]);
    nt_group_describe(t, g, &text);
    rc = hash_lines(&text, hex, err);
    nt_buf_done(&text);
    return rc;
}

static bool one_model(const struct nt_topology *t)
{
    for (int i = 1; i < t->ngpus; i++) {
        const struct nt_topo_pci *a = &t->pcis[t->gpus[0].pci], *b = &t->pcis[t->gpus[i].pci];
        if (a->vendor != b->vendor || a->device != b->device) {
            return false;
        }
    }
    return true;
}

static int hash_group(const struct nt_topology *t, enum nt_group g, char *hex, struct nt_err *err)
{
    switch (g) {
    case NT_G_GPUS: /* several models: where each of them sits, too */
        return one_model(t) ? hash_description(t, g, hex, err) : hash_tree(t, true, hex, err);
    case NT_G_NVLINK:
        return hash_gpu_graph(t, link_colour, hex, err);
    case NT_G_PATHS:
        return hash_gpu_graph(t, path_colour, hex, err);
    case NT_G_P2P:
        return hash_gpu_graph(t, p2p_colour, hex, err);
    case NT_G_PCIE:
        return hash_tree(t, false, hex, err);
    case NT_G_NICS:
        return hash_nics(t, hex, err);
    default:
        return hash_description(t, g, hex, err);
    }
}

static void name_identity(struct nt_identity *id)
{
    char text[NT_GROUP_COUNT * (NT_HEX_LEN + 16)], hex[NT_HEX_LEN + 1];
    size_t n = 0;

    for (int g = 0; g < NT_GROUP_COUNT; g++) {
        if ((id->known >> g & 1) != 0) {
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s:%s\n", nt_group_names[g],
                                  id->group[g]);
        }
    }
    if (id->known == 0) {
        (void)snprintf(id->name, sizeof(id->name), "unknown");
        return;
    }
    nt_sha256_hex(text, n, hex);
    (void)snprintf(id->name, sizeof(id->name), "%.12s", hex);
}

int nt_identity_compute(struct nt_topology *t, struct nt_err *err)
{
    int rc = 0;

    t->identity = (struct nt_identity){.known = t->known};
    for (int g = 0; g < NT_GROUP_COUNT && rc == 0; g++) {
        if ((t->known >> g & 1) != 0) {
            rc = hash_group(t, (enum nt_group)g, t->identity.group[g], err);
        }
    }
    name_identity(&t->identity);
    return rc;
}

uint32_t nt_identity_compare(const struct nt_identity *a, const struct nt_identity *b,
                             uint32_t *ret_compared)
{
    uint32_t both = a->known & b->known, differ = 0;

    for (int g = 0; g < NT_GROUP_COUNT; g++) {
        if ((both >> g & 1) != 0 && strcmp(a->group[g], b->group[g]) != 0) {
            differ |= 1U << g;
        }
    }
    *ret_compared = both;
    return differ;
}

bool nt_identity_match(const struct nt_identity *a, const struct nt_identity *b)
{
    uint32_t compared;
    return nt_identity_compare(a, b, &compared) == 0 && compared != 0;
}

char *nt_group_mask_text(uint32_t mask, char *out, size_t size)
{
    size_t n = 0;

    (void)snprintf(out, size, "none");
    for (int g = 0; g < NT_GROUP_COUNT && n < size; g++) {
        if ((mask >> g & 1) != 0) {
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? " " : "", nt_group_names[g]);
        }
    }
    return out;
}

json_t *nt_identity_json(const struct nt_identity *id)
{
    json_t *known = json_array(), *groups = json_object(), *o;

    for (int g = 0; g < NT_GROUP_COUNT; g++) {
        if ((id->known >> g & 1) != 0) {
            (void)json_array_append_new(known, json_string(nt_group_names[g]));
            (void)json_object_set_new(groups, nt_group_names[g], json_string(id->group[g]));
        }
    }
    o = json_pack("{s:s, s:o, s:o}", "name", id->name, "known", known, "groups", groups);
    return o;
}

/* The known groups are those that have a hash; the name follows from them. */
int nt_identity_parse(const json_t *o, struct nt_identity *ret, struct nt_err *err)
{
    struct nt_identity id = {0};
    const char *name, *key;
    json_t *groups, *value;
    int rc = nt_json_str(o, "name", &name, err);

    if (rc != 0 || (rc = nt_json_obj(o, "groups", &groups, err)) != 0) {
        return rc;
    }
    json_object_foreach(groups, key, value)
    {
        int g = 0;
        while (g < NT_GROUP_COUNT && strcmp(key, nt_group_names[g]) != 0) {
            g++;
        }
        if (g == NT_GROUP_COUNT) {
            return nt_fail_name(err, "group of facts", key, nt_group_names);
        }
        if (!json_is_string(value) || json_string_length(value) != NT_HEX_LEN ||
            strspn(json_string_value(value), "0123456789abcdef") != NT_HEX_LEN) {
            return nt_fail(err, NT_E_INVAL, 0, "identity: '%s' is no SHA-256", key);
        }
        (void)snprintf(id.group[g], sizeof(id.group[g]), "%s", json_string_value(value));
        id.known |= 1U << g;
    }
    name_identity(&id);
    if (strcmp(id.name, name) != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "identity: name '%.20s' does not belong to the groups",
                       name);
    }
    *ret = id;
    return 0;
}
