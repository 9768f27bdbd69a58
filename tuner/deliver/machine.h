/*
 * machine - what a profile is held against and what a run's manifest remembers of this host.
 *
 * Facts that cannot be had here are "" or absent; nothing is guessed.
 */
#pragma once
#include <jansson.h>
#include "tuner/deliver/library.h"
#include "tuner/topology/topology.h"

struct nt_machine_opts {
    const char *topology;    /* file to read instead of the live machine; NULL: live */
    const char *root, *nvml; /* as struct nt_live_opts */
};

struct nt_machine {
    struct nt_topology *topology; /* NULL: see why */
    struct nt_err why;
    char driver[64]; /* display driver, "580.65.06" */
    char cuda[16];   /* what the driver offers, "13.0" */
    char kernel[80], host[80], boot_id[40];
    struct nt_libraries nccl;
    json_t *clocks; /* per GPU: sm_mhz, sm_max_mhz, memory_mhz, power_limit_w, temperature_c,
                       slowed[]; NULL: NVML tells nothing */
};

/* A machine without a GPU is no error: topology is NULL then. nt_machine_done() frees. */
void nt_machine_read(const struct nt_machine_opts *opts, const struct nt_command_line *command,
                     struct nt_machine *ret);
void nt_machine_done(struct nt_machine *m);
/* Driver, CUDA, identity, findings, libraries, clocks, kernel, host. The caller owns it. */
json_t *nt_machine_json(const struct nt_machine *m);

/* The display driver's version, "" where there is none. */
void nt_machine_driver(char *out, size_t size);

/* Clocks, power limit, temperature and reasons to slow down of all GPUs, and the driver's versions
 * (each may be NULL; written only when told). NULL when NVML is not there. */
json_t *nt_clocks_read(const char *nvml, char driver[64], char cuda[16]);
