/*
 * A library with NVML's interface that answers from a file (NT_STUB_NVML), as make_live.py writes:
 *   gpu BUSID SM MEMORY_MIB MIG C2C_LINKS NAME     link GPU BUSID TYPE     p2p A B STATUS
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GPUS = 64, MAX_LINKS = 18 };

struct gpu {
    char busid[32], name[96];
    int sm, mig, c2c;
    unsigned long long mib;
    struct {
        char busid[32];
        int type;
    } link[MAX_LINKS];
    int nlinks;
};

struct pci_info {
    char bus_legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
struct field_value {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    union {
        double d;
        unsigned ui;
    } value;
};

static struct gpu gpus[MAX_GPUS];
static int ngpus, p2p[MAX_GPUS][MAX_GPUS];

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *p);
int nvmlDeviceGetName(void *device, char *name, unsigned size);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *info);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending);
int nvmlDeviceGetFieldValues(void *device, int n, struct field_value *v);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active);
int nvmlDeviceGetNvLinkCapability(void *device, unsigned link, int cap, unsigned *ret);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci_info *p);
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type);
int nvmlDeviceGetP2PStatus(void *a, void *b, int cap, int *status);

/* NVML writes eight digits of domain, in capitals. */
static void write_bus(struct pci_info *p, const char *busid)
{
    unsigned domain = 0;
    const char *rest = strchr(busid, ':');

    memset(p, 0, sizeof(*p));
    if (rest != NULL && sscanf(busid, "%x:", &domain) == 1) {
        (void)snprintf(p->bus_id, sizeof(p->bus_id), "%08X%s", domain, rest);
    }
    for (char *c = p->bus_id; *c != '\0'; c++) {
        *c = (char)toupper((unsigned char)*c);
    }
}

int nvmlInit_v2(void)
{
    const char *path = getenv("NT_STUB_NVML");
    FILE *in = path != NULL ? fopen(path, "r") : NULL;
    char line[256];
    int a, b, status;

    if (in == NULL) {
        return 9; /* driver not loaded */
    }
    ngpus = 0;
    memset(p2p, 0, sizeof(p2p));
    memset(gpus, 0, sizeof(gpus));
    while (fgets(line, sizeof(line), in) != NULL) {
        struct gpu g = {0};
        char bus[32];
        if (sscanf(line, "gpu %31s %d %llu %d %d %95[^\n]", g.busid, &g.sm, &g.mib, &g.mig, &g.c2c,
                   g.name) == 6 &&
            ngpus < MAX_GPUS) {
            gpus[ngpus++] = g;
        } else if (sscanf(line, "link %d %31s %d", &a, bus, &b) == 3 && a < ngpus &&
                   gpus[a].nlinks < MAX_LINKS) {
            memcpy(gpus[a].link[gpus[a].nlinks].busid, bus, sizeof(bus));
            gpus[a].link[gpus[a].nlinks++].type = b;
        } else if (sscanf(line, "p2p %d %d %d", &a, &b, &status) == 3 && a < MAX_GPUS &&
                   b < MAX_GPUS) {
            p2p[a][b] = p2p[b][a] = status;
        }
    }
    (void)fclose(in);
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

const char *nvmlErrorString(int code)
{
    return code == 9 ? "Driver Not Loaded" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = (unsigned)ngpus;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
    *device = &gpus[i];
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *p)
{
    write_bus(p, ((struct gpu *)device)->busid);
    return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    (void)snprintf(name, size, "%s", ((struct gpu *)device)->name);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *info)
{
    info[0] = ((struct gpu *)device)->mib << 20;
    info[1] = info[2] = 0;
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    *major = ((struct gpu *)device)->sm / 10;
    *minor = ((struct gpu *)device)->sm % 10;
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending)
{
    *now = *pending = (unsigned)((struct gpu *)device)->mig;
    return 0;
}

int nvmlDeviceGetFieldValues(void *device, int n, struct field_value *v)
{
    for (int i = 0; i < n; i++) {
        v[i].result = v[i].field == 170 ? 0 : 3;
        v[i].value.ui = (unsigned)((struct gpu *)device)->c2c;
    }
    return 0;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active)
{
    *active = (int)link < ((struct gpu *)device)->nlinks;
    return 0;
}

int nvmlDeviceGetNvLinkCapability(void *device, unsigned link, int cap, unsigned *ret)
{
    (void)device;
    (void)link;
    *ret = cap == 0;
    return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci_info *p)
{
    write_bus(p, ((struct gpu *)device)->link[link].busid);
    return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type)
{
    *type = ((struct gpu *)device)->link[link].type;
    return 0;
}

int nvmlDeviceGetP2PStatus(void *a, void *b, int cap, int *status)
{
    (void)cap;
    *status = p2p[(struct gpu *)a - gpus][(struct gpu *)b - gpus];
    return 0;
}
