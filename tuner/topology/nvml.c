#include "tuner/topology/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/topology/model.h"

/* NVML's ABI, as far as it is used here. */
struct pci_info {
    char bus_legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
struct memory_info {
    unsigned long long total, free, used;
};
struct use {
    unsigned gpu_percent, memory_percent;
};
struct field_value {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    union {
        double d;
        unsigned ui;
        unsigned long long ull;
    } value;
};
enum { SUCCESS = 0, NOT_SUPPORTED = 3, ENABLED = 1, FIELD_C2C_LINKS = 170, CAP_P2P = 0 };
enum { P2P_READ = 0, P2P_WRITE = 1 };

typedef void *device;

struct user_info { /* nvmlProcessInfo_v2_t */
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

struct nt_nvml {
    void *lib;
    int count;
    device *devices;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error)(int);
    int (*get_count)(unsigned *);
    int (*get_handle)(unsigned, device *);
    int (*get_pci)(device, struct pci_info *);
    int (*get_name)(device, char *, unsigned);
    int (*get_memory)(device, struct memory_info *);
    int (*get_use)(device, struct use *);
    int (*get_capability)(device, int *, int *);
    int (*get_mig)(device, unsigned *, unsigned *);
    int (*get_fields)(device, int, struct field_value *);
    int (*link_state)(device, unsigned, int *);
    int (*link_capability)(device, unsigned, int, unsigned *);
    int (*link_remote)(device, unsigned, struct pci_info *);
    int (*link_remote_type)(device, unsigned, int *);
    int (*get_users)(device d, unsigned *n, struct user_info *users);
    int (*p2p_status)(device, device, int, int *);
};

static const struct {
    const char *name;
    size_t offset;
    bool needed;
} symbols[] = {
    {"nvmlInit_v2", offsetof(struct nt_nvml, init), true},
    {"nvmlShutdown", offsetof(struct nt_nvml, shutdown), true},
    {"nvmlErrorString", offsetof(struct nt_nvml, error), false},
    {"nvmlDeviceGetCount_v2", offsetof(struct nt_nvml, get_count), true},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nt_nvml, get_handle), true},
    {"nvmlDeviceGetPciInfo_v3", offsetof(struct nt_nvml, get_pci), true},
    {"nvmlDeviceGetName", offsetof(struct nt_nvml, get_name), false},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct nt_nvml, get_memory), false},
    {"nvmlDeviceGetUtilizationRates", offsetof(struct nt_nvml, get_use), false},
    {"nvmlDeviceGetCudaComputeCapability", offsetof(struct nt_nvml, get_capability), false},
    {"nvmlDeviceGetMigMode", offsetof(struct nt_nvml, get_mig), false},
    {"nvmlDeviceGetFieldValues", offsetof(struct nt_nvml, get_fields), false},
    {"nvmlDeviceGetNvLinkState", offsetof(struct nt_nvml, link_state), false},
    {"nvmlDeviceGetNvLinkCapability", offsetof(struct nt_nvml, link_capability), false},
    {"nvmlDeviceGetNvLinkRemotePciInfo_v2", offsetof(struct nt_nvml, link_remote), false},
    {"nvmlDeviceGetNvLinkRemoteDeviceType", offsetof(struct nt_nvml, link_remote_type), false},
    {"nvmlDeviceGetP2PStatus", offsetof(struct nt_nvml, p2p_status), false},
    {"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(struct nt_nvml, get_users), false},
};

static int load_symbols(struct nt_nvml *n, struct nt_err *err)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *p = dlsym(n->lib, symbols[i].name);
        if (p == NULL && symbols[i].needed) {
            return nt_fail(err, NT_E_MISSING, 0, "NVML has no %s: the driver is too old",
                           symbols[i].name);
        }
        memcpy((char *)n + symbols[i].offset, &p, sizeof(p)); /* object to function pointer */
    }
    return 0;
}

static int nvml_fail(const struct nt_nvml *n, int code, const char *what, struct nt_err *err)
{
    return nt_fail(err, NT_E_MISSING, 0, "NVML: %s: %s", what,
                   n->error != NULL ? n->error(code) : "failed");
}

static int get_devices(struct nt_nvml *n, struct nt_err *err)
{
    unsigned count = 0;
    int rc = n->get_count(&count);

    if (rc != SUCCESS) {
        return nvml_fail(n, rc, "counting GPUs", err);
    }
    if (count > NT_MAX_GPUS) {
        return nt_fail(err, NT_E_INVAL, 0, "more than %d GPUs", NT_MAX_GPUS);
    }
    n->devices = calloc(count + 1, sizeof(*n->devices));
    if (n->devices == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "NVML");
    }
    for (unsigned i = 0; i < count; i++) {
        /* A GPU of another user or without permission: not ours to use. */
        if (n->get_handle(i, &n->devices[n->count]) == SUCCESS) {
            n->count++;
        }
    }
    return 0;
}

int nt_nvml_open(const char *library, struct nt_nvml **ret, struct nt_err *err)
{
    struct nt_nvml *n = calloc(1, sizeof(*n));
    int rc;

    if (n == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "NVML");
    }
    n->lib = dlopen(library != NULL ? library : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (n->lib == NULL) {
        rc = nt_fail(err, NT_E_MISSING, 0, "cannot open NVML: %s", dlerror());
        goto fail;
    }
    rc = load_symbols(n, err);
    if (rc != 0) {
        n->shutdown = NULL;
        goto fail;
    }
    nt_assert(n->init != NULL); /* needed, so it was found */
    rc = n->init();
    if (rc != SUCCESS) {
        rc = nvml_fail(n, rc, "starting", err);
        n->shutdown = NULL;
        goto fail;
    }
    rc = get_devices(n, err);
    if (rc == 0) {
        *ret = n;
        return 0;
    }
fail:
    nt_nvml_close(n);
    return rc;
}

void nt_nvml_close(struct nt_nvml *n)
{
    if (n == NULL) {
        return;
    }
    if (n->shutdown != NULL) {
        (void)n->shutdown();
    }
    if (n->lib != NULL) {
        (void)dlclose(n->lib);
    }
    free(n->devices);
    free(n);
}

int nt_nvml_count(struct nt_nvml *n)
{
    return n->count;
}

/* NVML writes an eight-digit domain in capitals; sysfs and NCCL four digits in small letters. */
static bool take_bus(const struct pci_info *p, uint64_t *bus, char busid[20])
{
    char text[sizeof(p->bus_id) + 1];

    nt_copy_text(text, sizeof(text), p->bus_id, strnlen(p->bus_id, sizeof(p->bus_id)));
    if (!nt_parse_bus(text, bus)) {
        return false;
    }
    (void)snprintf(busid, 20, "%04llx:%02llx:%02llx.%llx", (unsigned long long)(*bus >> 20),
                   (unsigned long long)(*bus >> 12 & 0xff), (unsigned long long)(*bus >> 4 & 0xff),
                   (unsigned long long)(*bus & 0xf));
    return true;
}

static int max_links(int sm)
{
    return sm < 60 ? 0 : sm < 70 ? 4 : sm < 80 ? 6 : sm < 90 ? 12 : NT_NVML_LINKS;
}

/* As NCCL counts: active links that are capable of peer access. */
static void get_links(struct nt_nvml *n, device d, struct nt_nvml_gpu *g)
{
    static const uint32_t classes[] = {0x030200, 0x068001, 0x068000}; /* by NVML's device type */

    if (n->link_state == NULL || n->link_remote == NULL || g->sm == 0) {
        return;
    }
    g->links_told = true;
    for (unsigned l = 0; l < (unsigned)max_links(g->sm); l++) {
        struct pci_info remote = {0};
        unsigned capable = 1;
        int active = 0, type = 255, k = g->nlinks;
        if (n->link_capability != NULL &&
            (n->link_capability(d, l, CAP_P2P, &capable) != SUCCESS || capable == 0)) {
            continue;
        }
        if (n->link_state(d, l, &active) != SUCCESS || active != ENABLED ||
            n->link_remote(d, l, &remote) != SUCCESS ||
            !take_bus(&remote, &g->link[k].bus, g->link[k].busid)) {
            continue;
        }
        if (n->link_remote_type != NULL && n->link_remote_type(d, l, &type) == SUCCESS &&
            type >= 0 && type < (int)(sizeof(classes) / sizeof(classes[0]))) {
            g->link[k].tclass = classes[type];
        }
        g->nlinks++;
    }
}

int nt_nvml_gpu(struct nt_nvml *n, int index, struct nt_nvml_gpu *ret, struct nt_err *err)
{
    struct nt_nvml_gpu g = {.mig = NT_UNKNOWN, .c2c_links = -1, .busy_percent = -1};
    struct use use = {0};
    device d = n->devices[index];
    struct pci_info pci = {0};
    struct memory_info memory = {0};
    struct field_value field = {.field = FIELD_C2C_LINKS};
    char name[96] = "";
    unsigned mig = 0, pending = 0;
    int major = 0, minor = 0, rc = n->get_pci(d, &pci);

    if (rc != SUCCESS || !take_bus(&pci, &g.bus, g.busid)) {
        return nvml_fail(n, rc, "PCI bus id of a GPU", err);
    }
    if (n->get_name != NULL && n->get_name(d, name, sizeof(name)) == SUCCESS) {
        nt_copy_text(g.name, sizeof(g.name), name, strnlen(name, sizeof(name)));
    }
    if (n->get_use != NULL && n->get_use(d, &use) == SUCCESS) {
        g.busy_percent = (int)use.gpu_percent;
    }
    if (n->get_memory != NULL && n->get_memory(d, &memory) == SUCCESS) {
        g.memory_bytes = memory.total;
        g.used_bytes = memory.used;
    }
    if (n->get_capability != NULL && n->get_capability(d, &major, &minor) == SUCCESS) {
        g.sm = major * 10 + minor;
    }
    if (n->get_mig != NULL) { /* not supported: a GPU that has no MIG */
        g.mig = n->get_mig(d, &mig, &pending) == SUCCESS && mig != 0 ? NT_ON : NT_OFF;
    }
    if (n->get_fields != NULL && n->get_fields(d, 1, &field) == SUCCESS &&
        (field.result == SUCCESS || field.result == NOT_SUPPORTED)) {
        g.c2c_links = field.result == SUCCESS ? (int)(field.value.ui & 0xff) : 0;
    }
    get_links(n, d, &g);
    *ret = g;
    return 0;
}

enum nt_p2p nt_nvml_p2p(struct nt_nvml *n, int a, int b)
{
    static const enum nt_p2p words[] = {NT_P2P_OK,       NT_P2P_CHIPSET,  NT_P2P_GPU,
                                        NT_P2P_TOPOLOGY, NT_P2P_DISABLED, NT_P2P_OFF};
    enum nt_p2p worst = NT_P2P_OK;

    if (n->p2p_status == NULL) {
        return NT_P2P_UNKNOWN;
    }
    for (int cap = P2P_READ; cap <= P2P_WRITE && worst == NT_P2P_OK; cap++) {
        int s = -1;
        if (n->p2p_status(n->devices[a], n->devices[b], cap, &s) != SUCCESS || s < 0 ||
            s >= (int)(sizeof(words) / sizeof(words[0]))) {
            return NT_P2P_UNKNOWN;
        }
        worst = words[s];
    }
    return worst;
}

int nt_nvml_users(struct nt_nvml *n, int index, unsigned *pids, unsigned max)
{
    struct user_info users[128] = {{0}};
    unsigned count = sizeof(users) / sizeof(users[0]);

    if (n->get_users == NULL || n->get_users(n->devices[index], &count, users) != SUCCESS) {
        return -1;
    }
    count = count < max ? count : max;
    for (unsigned i = 0; i < count; i++) {
        pids[i] = users[i].pid;
    }
    return (int)count;
}
