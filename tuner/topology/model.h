/*
 * model - builds a topology: readers append what they see, nt_model_finish() works out the rest
 * (devices of pci-only files, order, NVLink ends, path types, identity, health).
 *
 * Internal to tuner/topology; err is never NULL here. nt_model_*() that add return NULL with *err
 * filled when a limit is reached or memory runs out; pointers are valid until the next addition of
 * the same kind.
 */
#pragma once
#include "tuner/topology/topology.h"

struct nt_model {
    struct nt_topology *t;
    int cpu_cap, pci_cap, gpu_cap, net_cap, end_cap, pcilink_cap, finding_cap;
    /* What only the source knows about its own completeness. */
    bool nvlinks_told; /* a GPU without NVLinks has none (a dump), not "to be filled in" (a
                          template) */
    bool nets_told;    /* NICs are listed as NCCL lists them, not guessed from PCI classes */
    bool numa_told;    /* cpu of each GPU is known */
    bool c2c_told, p2p_told, memory_told;
    bool failed;     /* a finding was lost */
    bool wires_told; /* wire[] is filled in by the reader: there is no PCIe tree */
};

NT_MUST_CHECK int nt_model_new(struct nt_model *m, enum nt_topo_source source, struct nt_err *err);
void nt_model_abort(struct nt_model *m);
struct nt_topo_cpu *nt_model_cpu(struct nt_model *m, struct nt_err *err);
struct nt_topo_pci *nt_model_pci(struct nt_model *m, struct nt_err *err);
struct nt_topo_gpu *nt_model_gpu(struct nt_model *m, struct nt_err *err);
struct nt_topo_net *nt_model_net(struct nt_model *m, struct nt_err *err);
struct nt_topo_end *nt_model_end(struct nt_model *m, struct nt_err *err);
int (*nt_model_pcilink(struct nt_model *m, struct nt_err *err))[2];
/* Allocates wire, path, links and p2p for the devices there are. */
NT_MUST_CHECK int nt_model_matrices(struct nt_model *m, struct nt_err *err);
/* Hands the topology over; on failure it is freed. */
NT_MUST_CHECK int nt_model_finish(struct nt_model *m, struct nt_topology **ret, struct nt_err *err);

/* Findings. device may be "". When memory runs out the finding is dropped and finish() fails. */
void nt_find(struct nt_model *m, enum nt_finding_kind kind, bool unhealthy, const char *device,
             const char *fmt, ...) NT_PRINTF(5, 6);
/* All health findings that follow from the model. */
void nt_health_look(struct nt_model *m);

/* "NVLink" or "xGMI link". */
const char *nt_link_kind(const struct nt_topology *t);
bool nt_has_xgmi(const struct nt_topology *t);
/* wire, path, links from what is in the model. */
void nt_paths_compute(struct nt_model *m);
/* Group hashes for t->known. */
NT_MUST_CHECK int nt_identity_compute(struct nt_topology *t, struct nt_err *err);

/* Width that the link is built for: what counts for identity; 0: not told. */
int nt_pci_built_width(const struct nt_topology *t, int pci);

/* Printable ASCII copy, cut to fit; other bytes become '?'. */
void nt_copy_text(char *out, size_t size, const char *text, size_t len);
/* "0000:1b:00.0", "1B:00.0", "00000000:1B:00.0": false when it is none. */
bool nt_parse_bus(const char *text, uint64_t *ret);
/* fffffff:ff:ff.0, what NVML says of an NVLink fabric that this machine cannot see. */
bool nt_bus_is_fabric(uint64_t bus);
/* "16.0 GT/s PCIe" in MT/s, 0 when not told. */
int nt_parse_link_speed(const char *text);
/* 0x0302, 0x0300, 0x0380, 0x1200 … of a vendor that makes them, or no vendor told. */
bool nt_class_is_gpu(uint32_t class, uint16_t vendor);
bool nt_class_is_nic(uint32_t class);
/* " InfiniBand", " Ethernet", "" for other devices and where the class is not told. */
const char *nt_nic_kind(const struct nt_topo_pci *p);
/* Gb/s that one direction of a link carries, coding taken off. */
double nt_link_gbps(int width, int speed_mts);
/* CPUID families as Linux has them: older NCCL wrote AMD's with the extension shifted. */
int nt_cpu_family(const char *vendor, int family);
