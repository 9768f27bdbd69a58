/*
 * topology - the machine as NCCL sees it: model, readers, identity, health, placement classes.
 *
 * A topology comes from the live machine, from an NCCL topology XML or from the text of
 * `nvidia-smi topo -m`. Sources know different things: `known` says which groups of facts this one
 * knows, and identities are compared over the groups known to both.
 *
 * Units      *_mbps megabit per second, *_mts megatransfers per second, widths in lanes, memory in
 *            bytes. Bus ids are domain<<20 | bus<<12 | device<<4 | function.
 * Ownership  readers give *ret to the caller, who passes it to nt_topology_free(); everything that
 *            the struct points to is its own and read-only to users.
 * Errors     0 or -enum nt_code. Text that is no topology is -NT_E_INVAL with the reason; a live
 *            machine without a GPU or driver is -NT_E_MISSING with what to do.
 * Threads    plain data after reading.
 */
#pragma once
#include <jansson.h>
#include <stdint.h>
#include "tuner/base/buf.h"
#include "tuner/base/hash.h"

/* Limits; a larger input is refused. */
enum { NT_MAX_GPUS = 256, NT_MAX_NETS = 256, NT_MAX_PCIS = 4096, NT_MAX_CPUS = 512 };

/* The hardware facts that make up an identity, one SHA-256 each. Finer than one group a part, so
 * that sources that know half of a part can be compared over that half (docs/topology.md). */
#define NT_GROUPS(X)                                                                               \
    X(GPUS, "gpus", "GPU models")                                                                  \
    X(MEMORY, "memory", "GPU memory and MIG")                                                      \
    X(CAPABILITY, "capability", "compute capabilities")                                            \
    X(NVLINK, "nvlink", "NVLinks between GPUs")                                                    \
    X(C2C, "c2c", "chip-to-chip links to the CPU")                                                 \
    X(PATHS, "paths", "path types between GPUs")                                                   \
    X(P2P, "p2p", "peer access as the driver reports it")                                          \
    X(PCIE, "pcie", "PCIe switches and link widths")                                               \
    X(NICS, "nics", "NICs and which GPUs they are near to")                                        \
    X(RATES, "rates", "NIC port rates")                                                            \
    X(NUMA, "numa", "GPUs and NICs by NUMA node")                                                  \
    X(CPU, "cpu", "CPU models")

enum nt_group {
#define X(id, name, words) NT_G_##id,
    NT_GROUPS(X)
#undef X
        NT_GROUP_COUNT
};
extern const char *const nt_group_names[]; /* NULL-terminated, by enum nt_group */

/* What NCCL calls the way between two devices; order is distance. */
enum nt_path {
    NT_PATH_LOC,
    NT_PATH_NVL,
    NT_PATH_NVB,
    NT_PATH_C2C,
    NT_PATH_PIX,
    NT_PATH_PXB,
    NT_PATH_P2C,
    NT_PATH_PXN,
    NT_PATH_PHB,
    NT_PATH_SYS,
    NT_PATH_NET,
    NT_PATH_DIS,
    NT_PATH_COUNT
};
extern const char *const nt_path_names[]; /* "LOC", "NVL", … */

enum nt_topo_source { NT_TOPO_LIVE, NT_TOPO_XML, NT_TOPO_SMI, NT_TOPO_SOURCE_COUNT };
extern const char *const nt_topo_source_names[]; /* "live", "xml", "smi" */

/* Facts that a source may not know. */
enum nt_tri { NT_UNKNOWN = -1, NT_OFF = 0, NT_ON = 1 };

struct nt_topo_cpu {
    int host; /* index of the host, from 0 */
    int numa; /* as the source numbers it; -1: not told */
    int family, model;
    char arch[16], vendor[24]; /* "" when not known */
    char *affinity;            /* as written; may be NULL */
};

enum nt_pci_kind { NT_PCI_SWITCH, NT_PCI_GPU, NT_PCI_NIC, NT_PCI_OTHER };

struct nt_topo_pci {
    int parent; /* index in pcis (smaller than its own), -1: the CPU */
    int cpu;    /* index in cpus */
    enum nt_pci_kind kind;
    uint64_t bus;
    uint32_t class; /* 0: not told */
    uint16_t vendor, device, sub_vendor, sub_device;
    int width, max_width;         /* 0: not told */
    int speed_mts, max_speed_mts; /* 0: not told */
    int acs;                      /* enum nt_tri: a port above it redirects peer traffic */
    int iommu;                    /* enum nt_tri: its DMA is translated (not passed through) */
    char busid[20];               /* as written, lower case */
    char acs_port[20];            /* the port that redirects, when acs is on */
};

struct nt_topo_gpu {
    int host, cpu, pci;         /* indices; cpu and pci -1: not known */
    int dev, rank;              /* -1: not told */
    int sm;                     /* NVIDIA: 10 × compute capability; 0: not told */
    int gdr;                    /* enum nt_tri */
    int mig;                    /* enum nt_tri */
    int nvlinks;                /* all NVLink or xGMI ends, self-links too; -1: not known */
    int self_links, dead_links; /* ends at this GPU itself; ends listed with count 0 */
    int switch_links;           /* ends at NVSwitches */
    int c2c_links;              /* to its CPU; 0: none; -1: not known */
    uint64_t memory_bytes;      /* 0: not told */
    uint64_t used_bytes;        /* live only, when it was read, by anybody; 0: not told */
    int busy_percent;           /* live only, when it was read, by anybody; -1: not told */
    char gcn[16];               /* AMD architecture, "" otherwise */
    char name[64];              /* product name, "" when not told */
};

struct nt_topo_net {
    int host, cpu, pci;  /* indices; pci -1: virtual; cpu -1: not known */
    int dev, port;       /* -1: not told */
    uint32_t speed_mbps; /* 0: not told */
    int gdr;             /* enum nt_tri */
    bool coll;           /* offers in-network collectives */
    char name[64];
};

/* Where NVLinks of a GPU lead to. */
enum nt_end_kind {
    NT_END_GPU,
    NT_END_SWITCH,
    NT_END_CPU,
    NT_END_SELF,
    NT_END_OUTSIDE, /* a GPU that the source does not list */
    NT_END_KIND_COUNT
};
extern const char *const nt_end_names[]; /* "gpu", "switch", … */

struct nt_topo_end {
    int gpu, peer; /* indices in gpus; peer -1 unless a GPU of this topology */
    enum nt_end_kind kind;
    bool xgmi;
    int count;
    uint32_t tclass; /* PCI class of the target, 0: not told */
    uint64_t bus;
    char target[20]; /* as written */
};

/* NVML's answer for a pair. */
enum nt_p2p { /* nt_p2p_names[]: "unknown", "OK", "chipset", … */
              NT_P2P_UNKNOWN,
              NT_P2P_OK,
              NT_P2P_CHIPSET,
              NT_P2P_GPU,
              NT_P2P_TOPOLOGY,
              NT_P2P_DISABLED,
              NT_P2P_OFF,
              NT_P2P_COUNT
};

extern const char *const nt_p2p_names[];

struct nt_identity {
    uint32_t known;    /* bit per enum nt_group */
    char name[12 + 1]; /* hex, over the known groups; "unknown" when there is none */
    char group[NT_GROUP_COUNT][NT_HEX_LEN + 1]; /* "" when not known */
};

enum nt_finding_kind {
    NT_F_NARROW_LINK,
    NT_F_NVLINK_MISSING,
    NT_F_NVLINK_COUNT_0,
    NT_F_NVLINK_SELF,
    NT_F_NVLINK_ONE_WAY,
    NT_F_C2C_MISSING,
    NT_F_GDR_LOST,
    NT_F_P2P_OFF,
    NT_F_ACS_ON,
    NT_F_IOMMU_ON,
    NT_F_PORT_DOWN,
    NT_F_MIXED_GPUS,
    NT_F_MIG,
    NT_F_NOTE, /* about the text that was read */
    NT_FINDING_COUNT
};
extern const char *const nt_finding_names[]; /* "narrow_link", … */

struct nt_finding {
    enum nt_finding_kind kind;
    bool unhealthy;  /* false: worth knowing, but the machine's nature or the text's */
    char device[48]; /* "GPU 3", "NIC 0 (mlx5_0)", "GPU 0-GPU 1", "" for the whole */
    char text[256];  /* one sentence */
};

struct nt_topology {
    enum nt_topo_source source;
    int version; /* of the XML; 0 otherwise */
    uint32_t known;
    int nhosts;
    struct nt_topo_cpu *cpus;
    struct nt_topo_pci *pcis;
    struct nt_topo_gpu *gpus;
    struct nt_topo_net *nets;
    struct nt_topo_end *ends;
    int (*pcilinks)[2]; /* PCIe switches joined sideways: indices in pcis */
    int ncpus, npcis, ngpus, nnets, nends, npcilinks;
    /* Devices are the GPUs, then the nets. path[a * ndevs + b] is enum nt_path as NCCL has it (from
     * GPU to net with PXN); wire[] is what joins the two directly: NVLink, else the way through the
     * PCIe tree as it is (no detours over other GPUs, no switch levels flattened). */
    int ndevs;
    uint8_t *path, *wire;
    uint16_t *links; /* ngpus × ngpus: NVLinks (or xGMI) usable between two GPUs */
    uint8_t *p2p;    /* ngpus × ngpus: enum nt_p2p */
    struct nt_identity identity;
    struct nt_finding *findings;
    int nfindings;
};

struct nt_live_opts {
    const char *root; /* folder that holds sys/ and proc/; NULL: "" */
    const char *nvml; /* library to open; NULL: libnvidia-ml.so.1 */
};

NT_MUST_CHECK int nt_topology_read_live(const struct nt_live_opts *opts, struct nt_topology **ret,
                                        struct nt_err *err);
NT_MUST_CHECK int nt_topology_read_xml(const char *text, size_t len, struct nt_topology **ret,
                                       struct nt_err *err);
NT_MUST_CHECK int nt_topology_read_smi(const char *text, size_t len, struct nt_topology **ret,
                                       struct nt_err *err);
/* Finds out which of the two it is. */
NT_MUST_CHECK int nt_topology_read_text(const char *text, size_t len, struct nt_topology **ret,
                                        struct nt_err *err);
NT_MUST_CHECK int nt_topology_read_file(const char *path, struct nt_topology **ret,
                                        struct nt_err *err);
void nt_topology_free(struct nt_topology *t);

/* Index of the GPU at a PCI bus id ("0000:1b:00.0", any case, domain of four or eight digits), -1:
 * none. */
int nt_topology_gpu_at(const struct nt_topology *t, const char *busid);

/* What people call it: "GPU3", with the number the machine gives it where that is unique, else the
 * index; "NIC0 (mlx5_0)". Return out. */
char *nt_gpu_label(const struct nt_topology *t, int gpu, char *out, size_t size);
char *nt_net_label(const struct nt_topology *t, int net, char *out, size_t size);
/* Product name, that of a known PCI device id, "10de:2330", or "GPU". Returns out. */
char *nt_gpu_model(const struct nt_topology *t, int gpu, char *out, size_t size);

/* The facts of a group in words, one line each, equal lines repeated, in no particular order. */
void nt_group_describe(const struct nt_topology *t, enum nt_group g, struct nt_buf *out);

/* No finding is unhealthy. */
bool nt_topology_healthy(const struct nt_topology *t);

/* Compares over the groups known to both: returns the groups that differ (0: equal) and in
 * *ret_compared those that were compared. Nothing in common (*ret_compared is 0) is no match. */
uint32_t nt_identity_compare(const struct nt_identity *a, const struct nt_identity *b,
                             uint32_t *ret_compared);
bool nt_identity_match(const struct nt_identity *a, const struct nt_identity *b);
/* "gpus nvlink paths", "none" for 0. Returns out. */
char *nt_group_mask_text(uint32_t mask, char *out, size_t size);
/* {"name", "known": [..], "groups": {..}}; NULL when out of memory. The caller owns it. */
json_t *nt_identity_json(const struct nt_identity *id);
NT_MUST_CHECK int nt_identity_parse(const json_t *o, struct nt_identity *ret, struct nt_err *err);

/* Appends what differs, in words, one line each; the verdict follows the two names. Returns true
 * when the identities match. */
bool nt_topology_diff(const struct nt_topology *a, const char *name_a, const struct nt_topology *b,
                      const char *name_b, struct nt_buf *out);

/* A placement class: GPU subsets of one size that are alike inside (models, path types, NVLinks).
 */
struct nt_placement {
    char key[12 + 1]; /* hex; equal for equal classes, on any machine */
    int ngpus;
    uint16_t gpus[NT_MAX_GPUS]; /* the first such subset, indices ascending */
    uint64_t subsets;           /* how many there are; UINT64_MAX: more than that */
    char text[96];              /* "NV18 ×28", "PIX ×2, SYS ×4" */
};
struct nt_placements {
    struct nt_placement *v; /* nearest first */
    int n;
};
/* All classes of ngpus GPUs; -NT_E_INVAL when ngpus is out of range or there are too many subsets
 * to look at. nt_placements_done() frees. */
NT_MUST_CHECK int nt_placements_find(const struct nt_topology *t, int ngpus,
                                     struct nt_placements *ret, struct nt_err *err);
void nt_placements_done(struct nt_placements *p);
/* Subsets that nt_placements_find() would look at, alike ones by twins counted once; UINT64_MAX:
 * more than it takes on. */
uint64_t nt_placements_cost(const struct nt_topology *t, int ngpus);
/* The class of these GPUs (indices, any order, no repeats); `subsets` is left 0. */
NT_MUST_CHECK int nt_placement_of(const struct nt_topology *t, const uint16_t *gpus, int ngpus,
                                  struct nt_placement *ret, struct nt_err *err);

/* Appends tree and matrix, no line wider than `columns` (at least 80). */
void nt_topology_draw(const struct nt_topology *t, int columns, struct nt_buf *out);
/* The whole as an object; NULL when out of memory. The caller owns it. */
json_t *nt_topology_json(const struct nt_topology *t);
/* The version in the text of /proc/driver/nvidia/version: its first word that is one ("580.65.06").
 * Nothing found: out is left alone. */
void nt_driver_version(const char *text, char *out, size_t size);
