/*
 * This machine, as NCCL finds it: GPUs and NVLinks from NVML, everything else from sysfs below a
 * root that tests may set. Besides what NCCL reads: current link widths, ACS, IOMMU, P2P status.
 */
#include "tuner/topology/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tuner/topology/nvml.h"

enum { MAX_LEVELS = 64 };

struct live {
    struct nt_model m;
    struct nt_err *err;
    const char *root;
    struct nt_nvml *nvml;
    char arch[16], vendor[24];
    int family, model;
};

/* ---- files ---- */

/* First line of a small file, without its end; false when it cannot be read. */
static bool read_line(char *out, size_t size, const char *fmt, ...) NT_PRINTF(3, 4);

static bool read_line(char *out, size_t size, const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list ap;
    ssize_t n;
    int fd;

    va_start(ap, fmt);
    (void)vsnprintf(path, sizeof(path), fmt, ap);
    va_end(ap);
    out[0] = '\0';
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    n = read(fd, out, size - 1);
    (void)close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return n > 0;
}

static long read_number(const char *dir, const char *name, int base, long otherwise)
{
    char text[64], *end;
    long v;

    if (!read_line(text, sizeof(text), "%s/%s", dir, name)) {
        return otherwise;
    }
    v = strtol(text, &end, base);
    return end == text ? otherwise : v;
}

/* Sorted entries of a folder, "." and ".." left out; the caller frees each and the list. */
static int not_hidden(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int list_folder(const struct live *l, const char *below, struct dirent ***ret)
{
    char path[PATH_MAX];
    int n;

    (void)snprintf(path, sizeof(path), "%s%s", l->root, below);
    n = scandir(path, ret, not_hidden, versionsort);
    return n < 0 ? 0 : n;
}

static void free_list(struct dirent **list, int n)
{
    for (int i = 0; i < n; i++) {
        free(list[i]);
    }
    if (n > 0) {
        free(list);
    }
}

/* ---- PCI ---- */

/* Whether a path's last component is a PCI device; its bus id. */
static bool last_bus(const char *path, uint64_t *ret)
{
    const char *name = strrchr(path, '/');
    return name != NULL && strlen(name) > 11 && nt_parse_bus(name + 1, ret);
}

/* Cuts the last component off. */
static bool go_up(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) {
        return false;
    }
    *slash = '\0';
    return true;
}

/* A bridge that sends peer traffic up instead of across: ACS request or completion redirect, or
 * upstream forwarding. The extended configuration space is readable for root only. */
static int acs_redirects(const char *path)
{
    unsigned char c[4096];
    char file[PATH_MAX + 8];
    ssize_t n;
    unsigned at = 0x100;
    int fd;

    (void)snprintf(file, sizeof(file), "%s/config", path);
    fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NT_UNKNOWN;
    }
    n = read(fd, c, sizeof(c));
    (void)close(fd);
    if (n <= 0x100) {
        return NT_UNKNOWN;
    }
    for (int i = 0; i < 64 && at >= 0x100 && at + 8 <= (unsigned)n; i++) {
        unsigned id = c[at] | (unsigned)c[at + 1] << 8;
        if (id == 0x000d) {
            return (c[at + 6] & 0x1c) != 0 ? NT_ON : NT_OFF;
        }
        at = (c[at + 2] | (unsigned)c[at + 3] << 8) >> 4;
    }
    return NT_OFF;
}

/* All ports above a device: the first that redirects. */
static void look_for_acs(struct nt_topo_pci *p, const char *path)
{
    char up[PATH_MAX];
    uint64_t bus;

    (void)snprintf(up, sizeof(up), "%s", path);
    while (go_up(up) && last_bus(up, &bus)) {
        int acs = acs_redirects(up);
        if (acs == NT_ON) {
            const char *name = strrchr(up, '/') + 1;
            nt_copy_text(p->acs_port, sizeof(p->acs_port), name, strlen(name));
            p->acs = NT_ON;
            return;
        }
        p->acs = acs == NT_OFF && p->acs == NT_UNKNOWN ? NT_OFF : p->acs;
    }
}

static int iommu_translates(const char *path)
{
    char type[32];
    if (!read_line(type, sizeof(type), "%s/iommu_group/type", path)) {
        return access(path, F_OK) == 0 ? NT_OFF : NT_UNKNOWN;
    }
    return strncmp(type, "DMA", 3) == 0 ? NT_ON : NT_OFF;
}

static int lesser(int a, int b)
{
    return a <= 0 ? b : b <= 0 ? a : a < b ? a : b;
}

static int width_in(const char *path, const char *name)
{
    long w = read_number(path, name, 10, 0);
    return w > 0 && w <= 32 ? (int)w : 0; /* 63 and 255 stand for unknown */
}

static int speed_in(const char *path, const char *name)
{
    char text[64];
    return read_line(text, sizeof(text), "%s/%s", path, name) ? nt_parse_link_speed(text) : 0;
}

/* What sysfs says of a device; its link is as good as the lesser of its two ends. */
static void fill_pci(struct nt_topo_pci *p, const char *path)
{
    char port[PATH_MAX];
    uint64_t bus;

    p->class = (uint32_t)read_number(path, "class", 16, 0);
    p->vendor = (uint16_t)read_number(path, "vendor", 16, 0);
    p->device = (uint16_t)read_number(path, "device", 16, 0);
    p->sub_vendor = (uint16_t)read_number(path, "subsystem_vendor", 16, 0);
    p->sub_device = (uint16_t)read_number(path, "subsystem_device", 16, 0);
    p->width = width_in(path, "current_link_width");
    p->max_width = width_in(path, "max_link_width");
    p->speed_mts = speed_in(path, "current_link_speed");
    p->max_speed_mts = speed_in(path, "max_link_speed");
    (void)snprintf(port, sizeof(port), "%s", path);
    if (go_up(port) && last_bus(port, &bus)) {
        p->max_width = lesser(p->max_width, width_in(port, "max_link_width"));
        p->max_speed_mts = lesser(p->max_speed_mts, speed_in(port, "max_link_speed"));
    }
    p->iommu = iommu_translates(path);
}

static int cpu_of(struct live *l, int numa)
{
    struct nt_topo_cpu *c;
    char text[1024];

    for (int i = 0; i < l->m.t->ncpus; i++) {
        if (l->m.t->cpus[i].numa == numa) {
            return i;
        }
    }
    c = nt_model_cpu(&l->m, l->err);
    if (c == NULL) {
        return -1;
    }
    c->numa = numa;
    c->family = l->family;
    c->model = l->model;
    memcpy(c->arch, l->arch, sizeof(c->arch));
    memcpy(c->vendor, l->vendor, sizeof(c->vendor));
    if (read_line(text, sizeof(text), "%s/sys/devices/system/node/node%d/cpumap", l->root, numa)) {
        c->affinity = strdup(text);
    }
    return l->m.t->ncpus - 1;
}

static int find_pci(const struct live *l, uint64_t bus)
{
    for (int i = 0; i < l->m.t->npcis; i++) {
        if (l->m.t->pcis[i].bus == bus) {
            return i;
        }
    }
    return -1;
}

/* The switch above a device, as NCCL climbs: every second bridge, so that a switch is named by its
 * upstream port; false at the root complex. */
static bool switch_above(char *path)
{
    uint64_t bus;
    return go_up(path) && last_bus(path, &bus) && go_up(path) && last_bus(path, &bus);
}

/* Adds a device (its real path) and the switches above it; its index, or -1 with *err filled. */
static int add_pci(struct live *l, const char *path, int cpu, int depth)
{
    char up[PATH_MAX];
    struct nt_topo_pci *p;
    uint64_t bus = 0;
    int parent = -1, i;

    if (!last_bus(path, &bus) || depth > MAX_LEVELS) {
        (void)nt_fail(l->err, NT_E_INVAL, 0, "%s is no PCI device", path);
        return -1;
    }
    i = find_pci(l, bus);
    if (i >= 0) {
        return i;
    }
    (void)snprintf(up, sizeof(up), "%s", path);
    if (switch_above(up) && (parent = add_pci(l, up, cpu, depth + 1)) < 0) {
        return -1;
    }
    p = nt_model_pci(&l->m, l->err);
    if (p == NULL) {
        return -1;
    }
    nt_copy_text(p->busid, sizeof(p->busid), strrchr(path, '/') + 1,
                 strlen(strrchr(path, '/') + 1));
    p->bus = bus;
    p->parent = parent;
    p->cpu = parent >= 0 ? l->m.t->pcis[parent].cpu : cpu;
    p->kind = NT_PCI_SWITCH;
    fill_pci(p, path);
    return l->m.t->npcis - 1;
}

/* A GPU or NIC by its real path. */
static int add_device(struct live *l, const char *path, enum nt_pci_kind kind)
{
    int cpu = cpu_of(l, (int)read_number(path, "numa_node", 10, -1));
    int i = cpu < 0 ? -1 : add_pci(l, path, cpu, 0);

    if (i < 0) {
        return -1;
    }
    l->m.t->pcis[i].kind = kind;
    look_for_acs(&l->m.t->pcis[i], path);
    return i;
}

/* ---- CPU ---- */

static void value_of(const char *text, const char *key, char *out, size_t size)
{
    const char *p = strstr(text, key);
    p = p != NULL ? strchr(p, ':') : NULL;
    out[0] = '\0';
    if (p != NULL) {
        p += 1 + strspn(p + 1, " \t");
        nt_copy_text(out, size, p, strcspn(p, "\n"));
    }
}

static void read_cpu(struct live *l)
{
    struct nt_buf b;
    char path[PATH_MAX], text[64];

    l->family = l->model = -1;
    (void)snprintf(path, sizeof(path), "%s/proc/cpuinfo", l->root);
    nt_buf_init(&b, 16U << 20);
    if (nt_buf_read_file(&b, path, NULL) == 0 && b.len > 0) {
        value_of(b.data, "vendor_id", l->vendor, sizeof(l->vendor));
        if (l->vendor[0] != '\0') {
            (void)snprintf(l->arch, sizeof(l->arch), "x86_64");
            value_of(b.data, "cpu family", text, sizeof(text));
            l->family = text[0] != '\0' ? (int)strtol(text, NULL, 10) : -1;
            value_of(b.data, "\nmodel\t", text, sizeof(text));
            l->model = text[0] != '\0' ? (int)strtol(text, NULL, 10) : -1;
        } else if (strstr(b.data, "CPU implementer") != NULL) {
            (void)snprintf(l->arch, sizeof(l->arch), "arm64");
        } else if (strstr(b.data, "POWER") != NULL) {
            (void)snprintf(l->arch, sizeof(l->arch), "ppc64");
        }
    }
    nt_buf_done(&b);
}

/* ---- GPUs ---- */

static bool device_path(const struct live *l, const char *busid, char out[PATH_MAX])
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s", l->root, busid);
    return realpath(path, out) != NULL;
}

static int add_links(struct live *l, const struct nt_nvml_gpu *g)
{
    for (int i = 0; i < g->nlinks; i++) {
        struct nt_topo_end *e = NULL;
        char path[PATH_MAX];
        for (int j = 0; j < l->m.t->nends && e == NULL; j++) {
            struct nt_topo_end *x = &l->m.t->ends[j];
            e = x->gpu == l->m.t->ngpus - 1 && x->bus == g->link[i].bus ? x : NULL;
        }
        if (e == NULL) {
            e = nt_model_end(&l->m, l->err);
            if (e == NULL) {
                return -(int)l->err->code;
            }
            e->gpu = l->m.t->ngpus - 1;
            e->bus = g->link[i].bus;
            e->tclass = g->link[i].tclass;
            memcpy(e->target, g->link[i].busid, sizeof(e->target));
            if (e->tclass == 0 && device_path(l, e->target, path)) {
                e->tclass = (uint32_t)read_number(path, "class", 16, 0);
            }
        }
        e->count++;
    }
    return 0;
}

static int add_nvml_gpu(struct live *l, int index)
{
    struct nt_nvml_gpu n;
    struct nt_topo_gpu *g;
    char path[PATH_MAX];
    int pci, rc = nt_nvml_gpu(l->nvml, index, &n, l->err);

    if (rc != 0) {
        return rc;
    }
    if (!device_path(l, n.busid, path)) {
        return nt_fail(l->err, NT_E_MISSING, errno, "%s/sys/bus/pci/devices/%s", l->root, n.busid);
    }
    pci = add_device(l, path, NT_PCI_GPU);
    g = pci < 0 ? NULL : nt_model_gpu(&l->m, l->err);
    if (g == NULL) {
        return -(int)l->err->code;
    }
    g->pci = pci;
    g->dev = index;
    g->sm = n.sm;
    g->mig = n.mig;
    g->memory_bytes = n.memory_bytes;
    g->used_bytes = n.used_bytes;
    g->busy_percent = n.busy_percent;
    g->c2c_links = n.c2c_links;
    g->nvlinks = n.links_told ? 0 : -1;
    memcpy(g->name, n.name, sizeof(g->name));
    l->m.nvlinks_told = l->m.nvlinks_told && n.links_told;
    l->m.c2c_told = l->m.c2c_told && n.c2c_links >= 0;
    l->m.memory_told = l->m.memory_told && n.memory_bytes > 0;
    return add_links(l, &n);
}

/* Without a driver: the PCI devices that are NVIDIA's GPUs. */
static int add_sysfs_gpus(struct live *l)
{
    struct dirent **list = NULL;
    int n = list_folder(l, "/sys/bus/pci/devices", &list), rc = 0;

    for (int i = 0; i < n && rc == 0; i++) {
        char path[PATH_MAX];
        struct nt_topo_gpu *g;
        int pci;
        if (!device_path(l, list[i]->d_name, path) ||
            read_number(path, "vendor", 16, 0) != 0x10de ||
            read_number(path, "class", 16, 0) >> 16 != 0x03) {
            continue;
        }
        pci = add_device(l, path, NT_PCI_GPU);
        g = pci < 0 ? NULL : nt_model_gpu(&l->m, l->err);
        if (g == NULL) {
            rc = -(int)l->err->code;
        } else {
            g->pci = pci;
            g->dev = l->m.t->ngpus - 1;
        }
    }
    free_list(list, n);
    return rc;
}

static int add_gpus(struct live *l, const char *library)
{
    struct nt_err why = {0};
    int rc = nt_nvml_open(library, &l->nvml, &why);

    if (rc != 0 && rc != -NT_E_MISSING) {
        *l->err = why;
        return rc;
    }
    if (rc != 0) {
        l->m.nvlinks_told = l->m.c2c_told = l->m.memory_told = false;
        rc = add_sysfs_gpus(l);
        if (rc == 0 && l->m.t->ngpus == 0) {
            return nt_fail(
                l->err, NT_E_MISSING, 0,
                "no NVIDIA GPU on this machine (%.100s); a file can stand for it: an NCCL "
                "topology XML, or the text of `nvidia-smi topo -m`",
                why.msg);
        }
        nt_find(&l->m, NT_F_NOTE, false, "", "%.160s: NVLinks, memory and P2P are not known",
                why.msg);
        return rc;
    }
    for (int i = 0; i < nt_nvml_count(l->nvml) && rc == 0; i++) {
        rc = add_nvml_gpu(l, i);
    }
    if (rc == 0 && l->m.t->ngpus == 0) {
        rc = nt_fail(l->err, NT_E_MISSING, 0,
                     "the driver shows no GPU to this process; look at "
                     "CUDA and container device settings");
    }
    return rc;
}

/* ---- NICs ---- */

/* One PCI device for all functions of a card, as NCCL merges them. */
static int card_of(struct live *l, const char *path)
{
    uint64_t bus = 0;

    (void)last_bus(path, &bus);
    for (int i = 0; i < l->m.t->npcis; i++) {
        const struct nt_topo_pci *p = &l->m.t->pcis[i];
        if (p->kind == NT_PCI_NIC && p->bus >> 4 == bus >> 4) {
            return i;
        }
    }
    return add_device(l, path, NT_PCI_NIC);
}

/* The PCI device that a class entry is ("/sys/class/net/eth0/device"). One that only lies below a
 * PCI device (virtio, USB) is attached to the first CPU, as NCCL does it: it would not match NCCL's
 * own dump otherwise. */
static bool behind(const struct live *l, const char *class, const char *name, char out[PATH_MAX])
{
    char path[PATH_MAX];
    uint64_t bus;

    (void)snprintf(path, sizeof(path), "%s/sys/class/%s/%s/device", l->root, class, name);
    return realpath(path, out) != NULL && last_bus(out, &bus);
}

static int add_net(struct live *l, const char *class, const char *name, int port, uint32_t mbps)
{
    char path[PATH_MAX];
    int pci = -1, cpu = 0;
    struct nt_topo_net *n;

    if (behind(l, class, name, path)) {
        pci = card_of(l, path);
        if (pci < 0) {
            return -(int)l->err->code;
        }
        cpu = l->m.t->pcis[pci].cpu;
    }
    n = nt_model_net(&l->m, l->err);
    if (n == NULL) {
        return -(int)l->err->code;
    }
    n->pci = pci;
    n->cpu = cpu;
    n->port = port;
    n->speed_mbps = mbps;
    nt_copy_text(n->name, sizeof(n->name), name, strlen(name));
    return 0;
}

/* Ports of RDMA devices that are up: those that NCCL uses. */
static int add_rdma(struct live *l, const char *name)
{
    struct dirent **ports = NULL;
    char below[300];
    int n, rc = 0;

    (void)snprintf(below, sizeof(below), "/sys/class/infiniband/%s/ports", name);
    n = list_folder(l, below, &ports);
    for (int i = 0; i < n && rc == 0; i++) {
        char state[64], rate[64];
        const char *port = ports[i]->d_name;
        (void)read_line(state, sizeof(state), "%s%s/%s/state", l->root, below, port);
        (void)read_line(rate, sizeof(rate), "%s%s/%s/rate", l->root, below, port);
        if (strstr(state, "ACTIVE") == NULL) {
            nt_find(&l->m, NT_F_PORT_DOWN, false, name, "port %.8s of %.32s is not active (%.32s)",
                    port, name, state);
            continue;
        }
        rc = add_net(l, "infiniband", name, (int)strtol(port, NULL, 10),
                     (uint32_t)(strtod(rate, NULL) * 1000));
    }
    free_list(ports, n);
    return rc;
}

/* Interfaces of the socket transport: none of containers and virtual machines of this host. */
static int add_interface(struct live *l, const char *name)
{
    static const char *const not [] = {"lo",  "docker", "veth",    "virbr",
                                       "br-", "cni",    "flannel", "tun"};
    char state[32], dir[PATH_MAX];
    long mbps;

    for (size_t i = 0; i < sizeof(not ) / sizeof(not [0]); i++) {
        if (strncmp(name, not [i], strlen(not [i])) == 0) {
            return 0;
        }
    }
    (void)snprintf(dir, sizeof(dir), "%s/sys/class/net/%s", l->root, name);
    if (!read_line(state, sizeof(state), "%s/operstate", dir) ||
        (strcmp(state, "up") != 0 && strcmp(state, "unknown") != 0)) {
        return 0;
    }
    mbps = read_number(dir, "speed", 10, -1);
    return add_net(l, "net", name, 0, mbps > 0 ? (uint32_t)mbps : 10000); /* NCCL's guess */
}

static int add_nets(struct live *l, const char *below, int (*add)(struct live *, const char *))
{
    struct dirent **list = NULL;
    int n = list_folder(l, below, &list), rc = 0;

    for (int i = 0; i < n && rc == 0; i++) {
        rc = add(l, list[i]->d_name);
    }
    free_list(list, n);
    return rc;
}

/* ---- all ---- */

static void add_p2p(struct live *l)
{
    struct nt_topology *t = l->m.t;
    int n = t->ngpus;

    l->m.p2p_told = l->nvml != NULL;
    for (int a = 0; a < n && l->nvml != NULL; a++) {
        for (int b = 0; b < n; b++) {
            t->p2p[a * n + b] =
                a == b ? NT_P2P_OK : (uint8_t)nt_nvml_p2p(l->nvml, t->gpus[a].dev, t->gpus[b].dev);
            l->m.p2p_told = l->m.p2p_told && t->p2p[a * n + b] != NT_P2P_UNKNOWN;
        }
    }
}

int nt_topology_read_live(const struct nt_live_opts *opts, struct nt_topology **ret,
                          struct nt_err *err)
{
    struct live l = {.root = opts != NULL && opts->root != NULL ? opts->root : ""};
    struct nt_err spare;
    int rc;

    l.err = err != NULL ? err : &spare;
    rc = nt_model_new(&l.m, NT_TOPO_LIVE, l.err);
    if (rc != 0) {
        return rc;
    }
    l.m.nvlinks_told = l.m.c2c_told = l.m.memory_told = true;
    l.m.nets_told = l.m.numa_told = true;
    read_cpu(&l);
    rc = add_gpus(&l, opts != NULL ? opts->nvml : NULL);
    if (rc == 0) {
        rc = add_nets(&l, "/sys/class/infiniband", add_rdma);
    }
    if (rc == 0 && l.m.t->nnets == 0) {
        rc = add_nets(&l, "/sys/class/net", add_interface);
    }
    if (rc == 0) {
        rc = nt_model_matrices(&l.m, l.err);
    }
    if (rc == 0) {
        add_p2p(&l);
        rc = nt_model_finish(&l.m, ret, l.err);
    }
    nt_nvml_close(l.nvml);
    nt_model_abort(&l.m);
    return rc;
}
