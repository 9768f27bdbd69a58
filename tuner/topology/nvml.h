/*
 * nvml - the few things that only the driver knows, through NVML opened at run time (its ABI is
 * stable; no header of CUDA is needed). Functions that an old library lacks answer "not known".
 */
#pragma once
#include <stdint.h>
#include "tuner/base/err.h"
#include "tuner/topology/topology.h"

struct nt_nvml; /* opaque */

enum { NT_NVML_LINKS = 18 };

struct nt_nvml_gpu {
    uint64_t bus;
    char busid[20];
    char name[64];
    uint64_t memory_bytes; /* 0: not told */
    uint64_t used_bytes;   /* of it, by anybody; 0: not told */
    int busy_percent;      /* of the last moments, by anybody; -1: not told */
    int sm;                /* 0: not told */
    int mig;               /* enum nt_tri */
    int c2c_links;         /* -1: not told */
    bool links_told;
    struct {
        uint64_t bus;
        uint32_t tclass; /* 0: not told */
        char busid[20];
    } link[NT_NVML_LINKS]; /* active, peer-capable NVLinks */
    int nlinks;
};

/* library NULL: libnvidia-ml.so.1. -NT_E_MISSING when there is no library or no driver. */
NT_MUST_CHECK int nt_nvml_open(const char *library, struct nt_nvml **ret, struct nt_err *err);
void nt_nvml_close(struct nt_nvml *n);
int nt_nvml_count(struct nt_nvml *n);
NT_MUST_CHECK int nt_nvml_gpu(struct nt_nvml *n, int index, struct nt_nvml_gpu *ret,
                              struct nt_err *err);
/* The worse of reading and writing. */
enum nt_p2p nt_nvml_p2p(struct nt_nvml *n, int a, int b);
/* Processes that compute on a GPU, anybody's; at most `max`. -1: not known. */
int nt_nvml_users(struct nt_nvml *n, int index, unsigned *pids, unsigned max);
