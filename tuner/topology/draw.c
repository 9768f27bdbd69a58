/* The drawing for people: PCIe tree, then the matrix of path types in blocks that fit. */
#include "tuner/topology/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct canvas {
    const struct nt_topology *t;
    struct nt_buf *out;
    int columns;
    struct nt_buf line;
};

/* Ends the line, cut to the columns (a character is one column wide). */
static void flush(struct canvas *c)
{
    const char *p = nt_buf_str(&c->line);
    int width = 0;
    size_t cut = 0;

    for (size_t i = 0; p[i] != '\0'; i++) {
        if (((unsigned char)p[i] & 0xc0) == 0x80) {
            continue; /* the rest of a character */
        }
        width++;
        if (width == c->columns) {
            cut = i;
        }
    }
    if (width > c->columns) {
        nt_buf_add(c->out, p, cut);
        nt_buf_puts(c->out, "…");
    } else {
        size_t n = strlen(p);
        while (n > 0 && p[n - 1] == ' ') {
            n--;
        }
        nt_buf_add(c->out, p, n);
    }
    nt_buf_puts(c->out, "\n");
    nt_buf_clear(&c->line);
}

/* ---- tree ---- */

static void write_link(struct canvas *c, const struct nt_topo_pci *p)
{
    if (p->width > 0) {
        nt_buf_printf(&c->line, ", x%d", p->width);
        if (p->max_width > p->width) {
            nt_buf_printf(&c->line, " of x%d", p->max_width);
        }
    }
    if (p->speed_mts > 0) {
        nt_buf_printf(&c->line, " at %g GT/s", p->speed_mts / 1000.0);
    }
}

static void write_ends(struct canvas *c, int gpu)
{
    const struct nt_topology *t = c->t;
    int count[NT_END_KIND_COUNT] = {0};
    const char *kind = "NVLink";
    static const char *const to[] = {"to GPUs", "to switches", "to CPUs", "to itself",
                                     "to GPUs not listed"};

    for (int i = 0; i < t->nends; i++) {
        if (t->ends[i].gpu == gpu) {
            count[t->ends[i].kind] += t->ends[i].count;
            kind = t->ends[i].xgmi ? "xGMI" : "NVLink";
        }
    }
    for (int k = 0; k < NT_END_KIND_COUNT; k++) {
        if (count[k] > 0) {
            nt_buf_printf(&c->line, ", %s ×%d %s", kind, count[k], to[k]);
        }
    }
    if (t->gpus[gpu].c2c_links > 0) {
        nt_buf_puts(&c->line, ", C2C");
    }
}

static void write_gpu(struct canvas *c, int gpu)
{
    const struct nt_topo_gpu *g = &c->t->gpus[gpu];
    char label[16], model[80];

    nt_buf_printf(&c->line, "%s %s", nt_gpu_label(c->t, gpu, label, sizeof(label)),
                  nt_gpu_model(c->t, gpu, model, sizeof(model)));
    if (g->gcn[0] != '\0') {
        nt_buf_printf(&c->line, " %s", g->gcn);
    } else if (g->sm > 0) {
        nt_buf_printf(&c->line, " sm_%d", g->sm);
    }
    if (g->memory_bytes > 0) {
        nt_buf_printf(&c->line, " %.0f GiB", (double)g->memory_bytes / 1073741824.0);
    }
    if (g->pci >= 0) {
        nt_buf_printf(&c->line, " %s", c->t->pcis[g->pci].busid);
        write_link(c, &c->t->pcis[g->pci]);
    }
    write_ends(c, gpu);
}

static void write_net(struct canvas *c, int net)
{
    const struct nt_topo_net *n = &c->t->nets[net];
    char label[96];

    nt_buf_puts(&c->line, nt_net_label(c->t, net, label, sizeof(label)));
    if (n->pci >= 0) {
        nt_buf_printf(&c->line, " %s", c->t->pcis[n->pci].busid);
        write_link(c, &c->t->pcis[n->pci]);
    } else {
        nt_buf_puts(&c->line, " virtual");
    }
    if (n->speed_mbps > 0) {
        nt_buf_printf(&c->line, ", %g Gbit/s", n->speed_mbps / 1000.0);
    }
    nt_buf_puts(&c->line, n->gdr == NT_ON ? ", GPUDirect" : "");
}

/* A PCI device: its GPUs or NIC ports on a line each, or the switch. */
static void write_pci(struct canvas *c, int pci, const char *indent, const char *branch,
                      const char *below)
{
    const struct nt_topology *t = c->t;
    bool first = true;

    for (int i = 0; i < t->ndevs; i++) {
        bool gpu = i < t->ngpus;
        if ((gpu ? t->gpus[i].pci : t->nets[i - t->ngpus].pci) != pci) {
            continue;
        }
        nt_buf_printf(&c->line, "%s%s", indent, first ? branch : below);
        if (gpu) {
            write_gpu(c, i);
        } else {
            write_net(c, i - t->ngpus);
        }
        flush(c);
        first = false;
    }
    if (first) {
        const struct nt_topo_pci *p = &t->pcis[pci];
        nt_buf_printf(&c->line, "%s%s%s %s", indent, branch,
                      p->kind == NT_PCI_SWITCH ? "switch" : "device", p->busid);
        write_link(c, p);
        flush(c);
    }
}

static void draw_below(struct canvas *c, int cpu, int parent, const char *indent)
{
    const struct nt_topology *t = c->t;
    int last = -1;
    bool nets = false;

    for (int i = 0; i < t->npcis; i++) {
        if (t->pcis[i].cpu == cpu && t->pcis[i].parent == parent) {
            last = i;
        }
    }
    for (int i = 0; i < t->nnets; i++) {
        nets = nets || (parent < 0 && t->nets[i].cpu == cpu && t->nets[i].pci < 0);
    }
    for (int i = 0; i <= last; i++) {
        char deeper[256];
        bool end = i == last && !nets;
        if (t->pcis[i].cpu != cpu || t->pcis[i].parent != parent) {
            continue;
        }
        write_pci(c, i, indent, end ? "└─ " : "├─ ", end ? "   " : "│  ");
        (void)snprintf(deeper, sizeof(deeper), "%s%s", indent, end ? "   " : "│  ");
        draw_below(c, cpu, i, deeper);
    }
    for (int i = 0; i < t->nnets && nets; i++) {
        if (t->nets[i].cpu == cpu && t->nets[i].pci < 0) {
            nt_buf_printf(&c->line, "%s└─ ", indent);
            write_net(c, i);
            flush(c);
        }
    }
}

static void draw_tree(struct canvas *c)
{
    const struct nt_topology *t = c->t;

    for (int i = 0; i < t->ncpus; i++) {
        const struct nt_topo_cpu *p = &t->cpus[i];
        if (t->nhosts > 1 && (i == 0 || p->host != t->cpus[i - 1].host)) {
            nt_buf_printf(&c->line, "host %d", p->host);
            flush(c);
        }
        if (p->numa >= 0) {
            nt_buf_printf(&c->line, "NUMA node %d", p->numa);
        } else {
            nt_buf_puts(&c->line, "one NUMA node");
        }
        nt_buf_printf(&c->line, "%s%s%s%s", p->arch[0] != '\0' ? ", " : "", p->arch,
                      p->vendor[0] != '\0' ? " " : "", p->vendor);
        if (p->family >= 0 && p->model >= 0) {
            nt_buf_printf(&c->line, " family %d model %d", nt_cpu_family(p->vendor, p->family),
                          p->model);
        }
        flush(c);
        draw_below(c, i, -1, "");
    }
}

/* ---- matrix ---- */

static void short_label(const struct nt_topology *t, int dev, char *out, size_t size)
{
    if (dev < t->ngpus) {
        (void)nt_gpu_label(t, dev, out, size);
    } else {
        (void)snprintf(out, size, "NIC%d", dev - t->ngpus);
    }
}

static void cell(const struct nt_topology *t, int a, int b, char *out, size_t size)
{
    if (a == b) {
        (void)snprintf(out, size, "X");
    } else if (a < t->ngpus && b < t->ngpus && t->links[a * t->ngpus + b] > 0) {
        (void)snprintf(out, size, "%s%d", nt_has_xgmi(t) ? "XG" : "NV", t->links[a * t->ngpus + b]);
    } else {
        (void)snprintf(out, size, "%s", nt_path_names[t->path[a * t->ndevs + b]]);
    }
}

/* All pairs of GPUs and no NIC to show: a sentence says more than a large square. */
static bool uniform(const struct nt_topology *t)
{
    char first[16], other[16];
    if (t->ngpus <= 16 || t->ngpus > NT_MAX_GPUS) {
        return false;
    }
    cell(t, 0, 1, first, sizeof(first));
    for (int a = 0; a < t->ngpus; a++) {
        for (int b = 0; b < t->ngpus; b++) {
            cell(t, a, b, other, sizeof(other));
            if (a != b && strcmp(first, other) != 0) {
                return false;
            }
        }
    }
    return true;
}

static void draw_block(struct canvas *c, int from, int to)
{
    const struct nt_topology *t = c->t;
    char text[16];

    nt_buf_printf(&c->line, "%-7s", "");
    for (int b = from; b < to; b++) {
        short_label(t, b, text, sizeof(text));
        nt_buf_printf(&c->line, "%-6s", text);
    }
    flush(c);
    for (int a = 0; a < t->ndevs; a++) {
        short_label(t, a, text, sizeof(text));
        nt_buf_printf(&c->line, "%-7s", text);
        for (int b = from; b < to; b++) {
            cell(t, a, b, text, sizeof(text));
            nt_buf_printf(&c->line, "%-6s", text);
        }
        flush(c);
    }
}

static void draw_names(struct canvas *c)
{
    const struct nt_topology *t = c->t;
    int used = 0;

    for (int i = 0; i < t->nnets; i++) {
        char text[96];
        int n = snprintf(text, sizeof(text), "%s%s", nt_net_label(t, i, (char[96]){0}, 96),
                         i + 1 < t->nnets ? ", " : "");
        if (used > 0 && used + n > c->columns) {
            flush(c);
            used = 0;
        }
        nt_buf_puts(&c->line, text);
        used += n;
    }
    if (used > 0) {
        flush(c);
    }
}

static void draw_matrix(struct canvas *c)
{
    const struct nt_topology *t = c->t;
    int room = (c->columns - 7) / 6, from = 0;
    char text[16];

    if ((t->known >> NT_G_NVLINK & 1) == 0) {
        nt_buf_puts(&c->line, "Paths by PCIe alone: the file does not tell NVLinks.");
        flush(c);
    }
    if (uniform(t)) {
        cell(t, 0, 1, text, sizeof(text));
        nt_buf_printf(&c->line, "%s between any two of the %d GPUs", text, t->ngpus);
        flush(c);
        from = t->ngpus;
    }
    while (from < t->ndevs) {
        int to = from + room < t->ndevs ? from + room : t->ndevs;
        if (from < t->ngpus && to > t->ngpus && t->ndevs > room) {
            to = t->ngpus; /* NICs begin a block of their own */
        }
        draw_block(c, from, to);
        if (to < t->ndevs) {
            flush(c);
        }
        from = to;
    }
}

void nt_topology_draw(const struct nt_topology *t, int columns, struct nt_buf *out)
{
    struct canvas c = {.t = t, .out = out, .columns = columns < 80 ? 80 : columns};

    nt_buf_init(&c.line, 1 << 16);
    if (t->npcis > 0) {
        draw_tree(&c);
        flush(&c);
    }
    if (t->ndevs > 0) {
        draw_matrix(&c);
    }
    if (t->npcis == 0) {
        draw_names(&c);
    }
    out->failed = out->failed || c.line.failed;
    nt_buf_done(&c.line);
}
