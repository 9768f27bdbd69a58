/*
 * NCCL's topology XML, versions 1 and 2 (RCCL), as dumped by NCCL, shipped by clouds and written by
 * hand. Comments and prologue are blanked first: NCCL accepts "--" inside comments, expat does not.
 */
#include "tuner/topology/model.h"

#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NESTING = 64, MAX_BYTES = 16 << 20 };

enum tag {
    T_NONE,
    T_SYSTEM,
    T_CPU,
    T_PCI,
    T_GPU,
    T_NVLINK,
    T_C2C,
    T_NIC,
    T_NET,
    T_PCILINK,
    T_OTHER
};

static const struct {
    const char *name;
    enum tag tag;
    unsigned parents; /* bit per enum tag */
} tags[] = {
    {"system", T_SYSTEM, 1U << T_NONE},
    {"cpu", T_CPU, 1U << T_SYSTEM},
    {"pci", T_PCI, 1U << T_CPU | 1U << T_PCI},
    {"gpu", T_GPU, 1U << T_PCI},
    {"nvlink", T_NVLINK, 1U << T_GPU},
    {"xgmi", T_NVLINK, 1U << T_GPU},
    {"c2c", T_C2C, 1U << T_GPU},
    {"nic", T_NIC, 1U << T_PCI | 1U << T_CPU},
    {"net", T_NET, 1U << T_NIC},
    {"pcilink", T_PCILINK, 1U << T_PCI},
};

struct link { /* pcilink: resolved when all busids are known */
    int from;
    uint64_t bus;
};

struct reader {
    struct nt_model m;
    XML_Parser parser;
    struct nt_err *err;
    int rc;
    enum tag stack[MAX_NESTING];
    int pci_stack[MAX_NESTING];
    int depth, skip; /* skip > 0: inside an element that is not known */
    int cpu, gpu, nsystems, system_host, others;
    bool closed;    /* the last <system> is */
    bool full_gpus; /* every gpu element is filled in */
    struct {
        char hash[32];
        int host;
    } hosts[NT_MAX_CPUS];
    int nhosts;
    int host_number[NT_MAX_CPUS], host_first[NT_MAX_CPUS], new_host[NT_MAX_CPUS];
    struct link *links;
    int nlinks, link_cap;
};

static int stop(struct reader *r, enum nt_code code, const char *fmt, ...) NT_PRINTF(3, 4);

static int stop(struct reader *r, enum nt_code code, const char *fmt, ...)
{
    if (r->rc == 0) {
        char msg[320];
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(msg, sizeof(msg), fmt, ap);
        va_end(ap);
        r->rc = nt_fail(r->err, code, 0, "line %lu: %s",
                        (unsigned long)XML_GetCurrentLineNumber(r->parser), msg);
        (void)XML_StopParser(r->parser, XML_FALSE);
    }
    return r->rc;
}

/* An append that failed has filled err already. */
static void stop_full(struct reader *r)
{
    if (r->rc == 0) {
        r->rc = -(int)r->err->code;
        (void)XML_StopParser(r->parser, XML_FALSE);
    }
}

/* ---- attributes ---- */

static const char *attr(const char **atts, const char *name)
{
    for (; *atts != NULL; atts += 2) {
        if (strcmp(atts[0], name) == 0) {
            return atts[1];
        }
    }
    return NULL;
}

/* Numbers as NCCL takes them: any base, clamped; `otherwise` when absent or no number. */
static int attr_int(const char **atts, const char *name, int low, int high, int otherwise)
{
    const char *text = attr(atts, name);
    char *end;
    double v;

    if (text == NULL || *text == '\0') {
        return otherwise;
    }
    if (text[0] == '0' && (text[1] | 0x20) == 'x') {
        v = (double)strtoul(text, &end, 16);
    } else {
        v = strtod(text, &end);
    }
    if (end == text || *end != '\0' || v != v) {
        return otherwise;
    }
    return v < low ? low : v > high ? high : (int)v;
}

static void attr_text(const char **atts, const char *name, char *out, size_t size)
{
    const char *text = attr(atts, name);
    out[0] = '\0';
    if (text != NULL) {
        nt_copy_text(out, size, text, strlen(text));
    }
}

static void lower(char *s)
{
    for (; *s != '\0'; s++) {
        *s = *s >= 'A' && *s <= 'Z' ? (char)(*s | 0x20) : *s;
    }
}

static int attr_tri(const char **atts, const char *name)
{
    int v = attr_int(atts, name, -1, 1, -1);
    return v < 0 ? NT_UNKNOWN : v;
}

/* ---- elements ---- */

static void on_system(struct reader *r, const char **atts)
{
    const char *version = attr(atts, "version");

    if (version == NULL) {
        (void)stop(r, NT_E_INVAL, "<system> has no version");
        return;
    }
    if (strcmp(version, "1") != 0 && strcmp(version, "2") != 0) {
        (void)stop(r, NT_E_INVAL, "topology version '%.20s' is not known (1 and 2 are)", version);
        return;
    }
    r->m.t->version = version[0] - '0';
    r->nsystems++;
    r->system_host = -1; /* cpus without host_hash: one host a system */
}

static int host_of(struct reader *r, const char *hash)
{
    if (hash == NULL || *hash == '\0') {
        if (r->system_host < 0) {
            r->system_host = r->nhosts;
            r->hosts[r->nhosts].hash[0] = '\0';
            r->nhosts++;
        }
        return r->system_host;
    }
    for (int i = 0; i < r->nhosts; i++) {
        if (strncmp(r->hosts[i].hash, hash, sizeof(r->hosts[i].hash) - 1) == 0) {
            return i;
        }
    }
    (void)snprintf(r->hosts[r->nhosts].hash, sizeof(r->hosts[0].hash), "%s", hash);
    return r->nhosts++;
}

static void on_cpu(struct reader *r, const char **atts)
{
    const char *numa = attr(atts, "numaid"), *hash = attr(atts, "host_hash"),
               *affinity = attr(atts, "affinity");
    struct nt_topo_cpu *c;

    if (numa == NULL) {
        (void)stop(r, NT_E_INVAL, "<cpu> has no numaid");
        return;
    }
    c = nt_model_cpu(&r->m, r->err);
    if (c == NULL) {
        stop_full(r);
        return;
    }
    c->numa = attr_int(atts, "numaid", -1, 1 << 20, -1);
    c->family = attr_int(atts, "familyid", -1, 1 << 16, -1);
    c->model = attr_int(atts, "modelid", -1, 1 << 16, -1);
    attr_text(atts, "arch", c->arch, sizeof(c->arch));
    attr_text(atts, "vendor", c->vendor, sizeof(c->vendor));
    c->host = host_of(r, hash);
    if (affinity != NULL && strlen(affinity) < 4096) {
        size_t n = strlen(affinity) + 1;
        c->affinity = malloc(n);
        if (c->affinity != NULL) {
            nt_copy_text(c->affinity, n, affinity, n - 1);
        }
    }
    r->cpu = r->m.t->ncpus - 1;
    r->m.c2c_told = r->m.c2c_told || hash != NULL; /* written by an NCCL that knows C2C */
}

static void on_pci(struct reader *r, const char **atts)
{
    const char *bus = attr(atts, "busid"), *speed = attr(atts, "link_speed");
    struct nt_topo_pci *p;

    if (bus == NULL) {
        (void)stop(r, NT_E_INVAL, "<pci> has no busid");
        return;
    }
    p = nt_model_pci(&r->m, r->err);
    if (p == NULL) {
        stop_full(r);
        return;
    }
    if (!nt_parse_bus(bus, &p->bus)) {
        (void)stop(r, NT_E_INVAL, "'%.40s' is no PCI bus id", bus);
        return;
    }
    attr_text(atts, "busid", p->busid, sizeof(p->busid));
    lower(p->busid);
    p->cpu = r->cpu;
    p->parent = r->stack[r->depth - 1] == T_PCI ? r->pci_stack[r->depth - 1] : -1;
    p->class = (uint32_t)attr_int(atts, "class", 0, 0xffffff, 0);
    p->vendor = (uint16_t)attr_int(atts, "vendor", 0, 0xffff, 0);
    p->device = (uint16_t)attr_int(atts, "device", 0, 0xffff, 0);
    p->sub_vendor = (uint16_t)attr_int(atts, "subsystem_vendor", 0, 0xffff, 0);
    p->sub_device = (uint16_t)attr_int(atts, "subsystem_device", 0, 0xffff, 0);
    p->width = attr_int(atts, "link_width", 0, 64, 0);
    p->width = p->width > 32 ? 0 : p->width; /* 63 and 255 stand for unknown */
    p->speed_mts = speed != NULL ? nt_parse_link_speed(speed) : 0;
    r->pci_stack[r->depth] = r->m.t->npcis - 1;
}

/* Another GPU below the same CPU at the same place: somebody's copy, of which no fact can be told.
 * (Hosts of a file that has no hashes repeat places below CPUs of their own.) */
static bool bus_is_taken(const struct reader *r, int pci)
{
    const struct nt_topology *t = r->m.t;
    const struct nt_topo_pci *p = &t->pcis[pci];

    for (size_t i = 0; i < (size_t)t->ngpus; i++) {
        const struct nt_topo_pci *q = &t->pcis[t->gpus[i].pci];
        if (t->gpus[i].pci != pci && q->bus == p->bus && q->cpu == p->cpu) {
            return true;
        }
    }
    return false;
}

static void on_gpu(struct reader *r, const char **atts)
{
    int pci = r->pci_stack[r->depth - 1];
    struct nt_topo_gpu *g;

    if (bus_is_taken(r, pci)) {
        (void)stop(r, NT_E_INVAL, "two GPUs at %s", r->m.t->pcis[pci].busid);
        return;
    }
    g = nt_model_gpu(&r->m, r->err);

    if (g == NULL) {
        stop_full(r);
        return;
    }
    g->pci = pci;
    g->dev = attr_int(atts, "dev", -1, 1 << 20, -1);
    g->rank = attr_int(atts, "rank", -1, 1 << 24, -1);
    g->sm = attr_int(atts, "sm", 0, 100000, 0);
    g->gdr = attr_tri(atts, "gdr");
    attr_text(atts, "gcn", g->gcn, sizeof(g->gcn));
    g->nvlinks = 0;
    g->c2c_links = 0;
    r->m.t->pcis[pci].kind = NT_PCI_GPU;
    r->full_gpus = r->full_gpus && g->sm > 0;
    r->gpu = r->m.t->ngpus - 1;
}

static void on_nvlink(struct reader *r, const char **atts, bool xgmi)
{
    struct nt_topo_end *e = nt_model_end(&r->m, r->err);

    if (e == NULL) {
        stop_full(r);
        return;
    }
    attr_text(atts, "target", e->target, sizeof(e->target));
    lower(e->target);
    if (!nt_parse_bus(e->target, &e->bus)) {
        (void)stop(r, NT_E_INVAL, "<%s> leads to '%s', which is no PCI bus id",
                   xgmi ? "xgmi" : "nvlink", e->target);
        return;
    }
    e->gpu = r->gpu;
    e->xgmi = xgmi;
    e->count = attr_int(atts, "count", 0, 256, 1);
    e->tclass = (uint32_t)attr_int(atts, "tclass", 0, 0xffffff, 0);
}

static void on_net(struct reader *r, const char **atts)
{
    bool in_pci = r->stack[r->depth - 2] == T_PCI;
    struct nt_topo_net *n = nt_model_net(&r->m, r->err);

    if (n == NULL) {
        stop_full(r);
        return;
    }
    n->cpu = r->cpu;
    n->pci = in_pci ? r->pci_stack[r->depth - 2] : -1;
    n->dev = attr_int(atts, "dev", -1, 1 << 20, -1);
    n->port = attr_int(atts, "port", -1, 1 << 16, -1);
    n->speed_mbps = (uint32_t)attr_int(atts, "speed", 0, 100000000, 0);
    n->gdr = attr_tri(atts, "gdr");
    n->coll = attr_int(atts, "coll", 0, 1, 0) != 0;
    attr_text(atts, "name", n->name, sizeof(n->name));
}

static void on_nic(struct reader *r)
{
    struct nt_topo_pci *p = r->stack[r->depth - 1] == T_PCI
                                ? &r->m.t->pcis[r->pci_stack[r->depth - 1]]
                                : NULL; /* a virtual NIC at the CPU */
    if (p != NULL && p->kind != NT_PCI_GPU) {
        p->kind = NT_PCI_NIC;
    }
}

static void on_pcilink(struct reader *r, const char **atts)
{
    const char *target = attr(atts, "target");
    struct link *l;

    if (r->nlinks == r->link_cap) {
        int cap = r->link_cap == 0 ? 16 : r->link_cap * 2;
        l = cap > 4096 ? NULL : realloc(r->links, (size_t)cap * sizeof(*l));
        if (l == NULL) {
            (void)stop(r, NT_E_INVAL, "too many pcilinks");
            return;
        }
        r->links = l;
        r->link_cap = cap;
    }
    l = &r->links[r->nlinks];
    if (target == NULL || !nt_parse_bus(target, &l->bus)) {
        (void)stop(r, NT_E_INVAL, "<pcilink> has no target");
        return;
    }
    l->from = r->pci_stack[r->depth - 1];
    r->nlinks++;
}

static void on_element(struct reader *r, enum tag tag, const char *name, const char **atts)
{
    switch (tag) {
    case T_SYSTEM:
        on_system(r, atts);
        break;
    case T_CPU:
        on_cpu(r, atts);
        break;
    case T_PCI:
        on_pci(r, atts);
        break;
    case T_GPU:
        on_gpu(r, atts);
        break;
    case T_NVLINK:
        on_nvlink(r, atts, name[0] == 'x');
        break;
    case T_C2C:
        r->m.t->gpus[r->gpu].c2c_links += attr_int(atts, "count", 0, 1024, 1);
        break;
    case T_NIC:
        on_nic(r);
        break;
    case T_NET:
        on_net(r, atts);
        break;
    case T_PCILINK:
        on_pcilink(r, atts);
        break;
    case T_NONE:
    case T_OTHER:
        break;
    }
}

/* What other XML with a root of its own is. */
static void refuse_root(struct reader *r, const char *name, const char **atts)
{
    if (strcmp(name, "graphs") == 0 || strcmp(name, "graph") == 0) {
        (void)stop(r, NT_E_INVAL,
                   "an NCCL graph file (NCCL_GRAPH_DUMP_FILE), not a topology; "
                   "NCCL_TOPO_DUMP_FILE writes that");
    } else if (strcmp(name, "topology") == 0 || attr(atts, "complete_cpuset") != NULL) {
        (void)stop(r, NT_E_INVAL,
                   "an hwloc topology (lstopo), not NCCL's; NCCL_TOPO_DUMP_FILE "
                   "writes that");
    } else if (strcmp(name, "algo") == 0 && attr(atts, "nchunksperloop") != NULL) {
        (void)stop(r, NT_E_INVAL, "an algorithm of MSCCL, not a topology; NCCL does not read it");
    } else if (strcmp(name, "nvidia_smi_log") == 0) {
        (void)stop(r, NT_E_INVAL, "the output of nvidia-smi -q -x; `nvidia-smi topo -m` is needed");
    } else {
        (void)stop(r, NT_E_INVAL, "starts with <%.40s>, an NCCL topology with <system>", name);
    }
}

static void XMLCALL on_start(void *arg, const char *name, const char **atts)
{
    struct reader *r = arg;
    enum tag tag = T_OTHER, up;
    bool fits = false;

    if (r->rc != 0) {
        return;
    }
    if (r->skip > 0) {
        r->skip++;
        return;
    }
    if (r->depth == 0) { /* our own wrapper, which lets a file hold several systems */
        r->stack[r->depth++] = T_NONE;
        return;
    }
    up = r->stack[r->depth - 1];
    for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
        if (strcmp(name, tags[i].name) == 0) {
            tag = tags[i].tag;
            fits = (tags[i].parents >> up & 1) != 0;
        }
    }
    if (up == T_NONE && !fits) {
        refuse_root(r, name, atts);
    } else if (tag == T_OTHER) {
        r->others++;
        r->skip = 1;
    } else if (!fits) {
        (void)stop(r, NT_E_INVAL, "<%s> where it does not belong", name);
    } else if (r->depth >= MAX_NESTING) {
        (void)stop(r, NT_E_INVAL, "nested deeper than %d", MAX_NESTING);
    } else {
        on_element(r, tag, name, atts);
        r->stack[r->depth++] = tag;
    }
}

static void XMLCALL on_end(void *arg, const char *name)
{
    struct reader *r = arg;
    (void)name;
    if (r->skip > 0) {
        r->skip--;
    } else if (r->depth > 0) {
        r->depth--;
    }
}

/* Text between elements is a log's prefix, but for the dots that stand for what was left out. */
static void XMLCALL on_text(void *arg, const char *s, int len)
{
    static const char *const marks[] = {"...", "[...]", "....", "\xe2\x80\xa6", "(...)", "[snip]"};
    struct reader *r = arg;
    while (len > 0 && (*s == ' ' || *s == '\t' || *s == '\n')) {
        s++;
        len--;
    }
    while (len > 0 && (s[len - 1] == ' ' || s[len - 1] == '\r' || s[len - 1] == '\t')) {
        len--;
    }
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]) && r->rc == 0; i++) {
        if (strlen(marks[i]) == (size_t)len && memcmp(s, marks[i], (size_t)len) == 0) {
            (void)stop(r, NT_E_INVAL, "cut in the middle: '%s' stands for elements left out",
                       marks[i]);
        }
    }
}

/* ---- the text around it ---- */

static const char *find(const char *text, size_t len, const char *what)
{
    return len == 0 ? NULL : memmem(text, len, what, strlen(what));
}

static void blank(char *from, char *to)
{
    for (; from < to; from++) {
        if (*from != '\n') {
            *from = ' ';
        }
    }
}

/* Blanks comments, <?..?> and <!..>; false when a comment is not closed. */
static bool blank_markup(char *text, size_t len)
{
    static const struct {
        const char *open, *close;
    } kinds[] = {{"<!--", "-->"},   {"<?", "?>"},      {"<!", ">"}, /* and a launcher's tags: */
                 {"<stdout>", ">"}, {"<stderr>", ">"}, {"<stddiag>", ">"}};
    char *p = text, *end = text + len;

    while ((p = memchr(p, '<', (size_t)(end - p))) != NULL) {
        size_t k = 0, n = sizeof(kinds) / sizeof(kinds[0]);
        const char *close;
        while (k < n && ((size_t)(end - p) < strlen(kinds[k].open) ||
                         memcmp(p, kinds[k].open, strlen(kinds[k].open)) != 0)) {
            k++;
        }
        if (k == n) {
            p++;
            continue;
        }
        close = find(p, (size_t)(end - p), kinds[k].close);
        if (close == NULL) {
            return false;
        }
        blank(p, text + (close - text) + strlen(kinds[k].close));
    }
    return true;
}

/* Blanks what a log or a report has around the systems; returns the length that is left. */
static size_t cut_out(struct reader *r, char *text, size_t len)
{
    const char *from = find(text, len, "<system"), *p = from, *end = text + len, *last = NULL;

    r->closed = true;
    if (from == NULL) {
        return len;
    }
    while ((p = find(p, (size_t)(end - p), "</system>")) != NULL) {
        last = p += strlen("</system>");
    }
    blank(text, text + (from - text));
    r->closed = last != NULL && find(last, (size_t)(end - last), "<system") == NULL;
    return r->closed ? (size_t)(last - text) : len;
}

static int explain(struct reader *r)
{
    enum XML_Error code = XML_GetErrorCode(r->parser);
    unsigned long line = (unsigned long)XML_GetCurrentLineNumber(r->parser);

    if (!r->closed) {
        return nt_fail(r->err, NT_E_INVAL, 0, "line %lu: cut off: <system> is not closed", line);
    }
    if (code == XML_ERROR_TAG_MISMATCH) {
        return nt_fail(r->err, NT_E_INVAL, 0, "line %lu: damaged: an element is not closed", line);
    }
    if (code == XML_ERROR_NO_MEMORY) {
        return nt_fail(r->err, NT_E_NOMEM, 0, "topology");
    }
    return nt_fail(r->err, NT_E_INVAL, 0, "line %lu: not well-formed XML: %s", line,
                   XML_ErrorString(code));
}

static int parse(struct reader *r, const char *text, size_t len)
{
    static const char open[] = "<nccltune>", close[] = "</nccltune>";

    XML_SetUserData(r->parser, r);
    XML_SetElementHandler(r->parser, on_start, on_end);
    XML_SetCharacterDataHandler(r->parser, on_text);
    if (XML_Parse(r->parser, open, sizeof(open) - 1, 0) == XML_STATUS_ERROR ||
        XML_Parse(r->parser, text, (int)len, 0) == XML_STATUS_ERROR ||
        XML_Parse(r->parser, close, sizeof(close) - 1, 1) == XML_STATUS_ERROR) {
        return r->rc != 0 ? r->rc : explain(r);
    }
    return r->rc;
}

static int resolve_pcilinks(struct reader *r)
{
    struct nt_topology *t = r->m.t;
    for (int i = 0; i < r->nlinks; i++) {
        for (int j = 0; j < t->npcis; j++) {
            if (t->pcis[j].bus == r->links[i].bus &&
                t->cpus[t->pcis[j].cpu].host == t->cpus[t->pcis[r->links[i].from].cpu].host) {
                int(*l)[2] = nt_model_pcilink(&r->m, r->err);
                if (l == NULL) {
                    return -(int)r->err->code;
                }
                (*l)[0] = r->links[i].from;
                (*l)[1] = j;
                break;
            }
        }
    }
    return 0;
}

/* A bus id below this CPU was there before, below a CPU from `first` on of the same host. */
static bool repeats(const struct nt_topology *t, int first, int cpu)
{
    for (int i = 0; i < t->npcis; i++) {
        for (int j = 0; j < i && t->pcis[i].cpu == cpu; j++) {
            int other = t->pcis[j].cpu;
            if (t->pcis[j].bus == t->pcis[i].bus && other >= first && other < cpu &&
                t->cpus[other].host == t->cpus[cpu].host) {
                return true;
            }
        }
    }
    return false;
}

/* Dumps of several hosts put together without host_hash: where bus ids come again, the next host
 * begins. Hosts are numbered anew in order. */
static void split_hosts(struct reader *r)
{
    struct nt_topology *t = r->m.t;
    int *number = r->host_number, *first = r->host_first, next = 0;

    for (int c = 0; c < t->ncpus; c++) {
        int h = t->cpus[c].host;
        bool again = number[h] > 0 && r->hosts[h].hash[0] == '\0' && repeats(t, first[h], c);
        if (number[h] == 0 || again) {
            number[h] = ++next;
            first[h] = c;
        }
        r->new_host[c] = number[h] - 1;
        if (again) {
            nt_find(&r->m, NT_F_NOTE, false, "", "bus ids come again: taken as one more host");
        }
    }
    for (int c = 0; c < t->ncpus; c++) {
        t->cpus[c].host = r->new_host[c];
    }
}

static void add_notes(struct reader *r)
{
    struct nt_topology *t = r->m.t;
    int unknown = 0;

    for (int i = 0; i < t->npcis; i++) {
        unknown += t->pcis[i].kind == NT_PCI_OTHER && t->pcis[i].class == 0;
    }
    if (unknown > 0) {
        nt_find(&r->m, NT_F_NOTE, false, "",
                "%d PCI devices have no class: a template that NCCL fills in on the machine",
                unknown);
    }
    if (r->others > 0) {
        nt_find(&r->m, NT_F_NOTE, false, "", "%d elements of unknown kind are not looked at",
                r->others);
    }
}

static int read_system(struct reader *r, const char *text, size_t len)
{
    int rc = parse(r, text, len);

    if (rc == 0 && r->nsystems == 0) {
        rc = nt_fail(r->err, NT_E_INVAL, 0, "no <system> in it");
    }
    if (rc == 0 && r->m.t->npcis == 0) {
        rc = nt_fail(r->err, NT_E_INVAL, 0, "an empty topology: no PCI device in it");
    }
    if (rc == 0) {
        split_hosts(r);
        rc = resolve_pcilinks(r);
    }
    if (rc == 0) {
        r->m.nvlinks_told = r->full_gpus && r->m.t->ngpus > 0;
        r->m.c2c_told = r->m.c2c_told && r->m.nvlinks_told;
        r->m.nets_told = r->m.t->ngpus > 0;
        r->m.numa_told = true;
        add_notes(r);
    }
    return rc;
}

int nt_topology_read_xml(const char *text, size_t len, struct nt_topology **ret, struct nt_err *err)
{
    struct nt_err spare;
    struct reader *r = NULL;
    char *copy = NULL;
    int rc;

    err = err != NULL ? err : &spare;
    if (len > MAX_BYTES) {
        return nt_fail(err, NT_E_INVAL, 0, "larger than %d bytes", MAX_BYTES);
    }
    if (memchr(text, '\0', len) != NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "not a text file");
    }
    copy = malloc(len + 1);
    r = calloc(1, sizeof(*r));
    if (copy == NULL || r == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "topology");
        goto out;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (len >= 3 && memcmp(copy, "\xef\xbb\xbf", 3) == 0) {
        memset(copy, ' ', 3);
    }
    r->err = err;
    r->full_gpus = true;
    r->parser = XML_ParserCreate("UTF-8");
    rc = r->parser == NULL ? nt_fail(err, NT_E_NOMEM, 0, "topology")
                           : nt_model_new(&r->m, NT_TOPO_XML, err);
    if (rc == 0 && !blank_markup(copy, len)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "cut off inside a comment");
    }
    if (rc == 0) {
        len = cut_out(r, copy, len);
        rc = read_system(r, copy, len);
    }
    if (rc == 0) {
        rc = nt_model_finish(&r->m, ret, err);
    }
out:
    if (r != NULL) {
        if (r->parser != NULL) {
            XML_ParserFree(r->parser);
        }
        nt_model_abort(&r->m);
        free(r->links);
    }
    free(r);
    free(copy);
    return rc;
}
