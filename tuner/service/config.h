/*
 * config - the service's one file: "[section]" and "name = value" lines, "#" comments. One table
 * says what there is; the documented file is printed from it.
 *
 * A [rig NAME] section names what jobs may run on: clients name it, never what is in it.
 * Ownership  nt_config_done() frees. Errors name file and line; unknown names suggest the near one.
 */
#pragma once
#include <limits.h>
#include <stdio.h>
#include "tuner/base/buf.h"
#include "tuner/service/queue.h"

enum { NT_CONFIG_RIGS = 16, NT_CONFIG_TEXT = 512 };

enum nt_on_change { NT_CHANGE_OFF, NT_CHANGE_PROPOSE, NT_CHANGE_QUEUE };
enum nt_on_stale { NT_STALE_WARN, NT_STALE_WITHHOLD };

struct nt_config_rig {
    char name[64];
    char rig[NT_CONFIG_TEXT]; /* as tune --rig */
    char gpus[128];           /* "all", "none", "0,1,2" */
    char devices[128], nccl[NT_CONFIG_TEXT], workload[NT_CONFIG_TEXT], fix[NT_CONFIG_TEXT],
        env[NT_CONFIG_TEXT];
    char effort[16], pace[16];
    char collectives[128], sizes[256], modes[64], dtypes[64];
    bool no_groups, no_overlap;
    uint32_t ranks;
    uint64_t budget_ns, check_ns; /* 0: none */
    uint64_t gpu_mask;            /* from gpus: bit per GPU */
    unsigned line;                /* of the file, where `rig` stands; 0: it does not */
};

struct nt_config {
    /* [server] */
    char listen[4 * 128], tokens[NT_CONFIG_TEXT], database[PATH_MAX], hosts[256], others[16];
    uint32_t socket_mode, max_connections, max_streams;
    uint64_t max_body_bytes;
    bool behind_proxy;
    /* [queue] */
    char window[64], foreign[16];
    uint32_t idle_busy_percent, max_queued, max_running;
    uint64_t idle_memory_bytes, idle_ns, load_ns;
    /* [watch] */
    char topology[NT_CONFIG_TEXT], nvml[NT_CONFIG_TEXT], on_change[16], on_stale[16], rig[64],
        load[NT_CONFIG_TEXT];
    uint64_t interval_ns, settle_ns;
    unsigned rig_line; /* of the file; 0: nowhere */
    /* [retention] */
    uint32_t samples_days;
    struct nt_config_rig rigs[NT_CONFIG_RIGS];
    size_t nrigs;
    /* made of the words above */
    enum nt_on_change change;
    enum nt_on_stale stale;
    struct nt_window windows[NT_QUEUE_WINDOWS];
    size_t nwindows;
    bool pause_foreign;
};

void nt_config_init(struct nt_config *c); /* the defaults */
NT_MUST_CHECK int nt_config_read(struct nt_config *c, const char *path, struct nt_err *err);
NT_MUST_CHECK int nt_config_parse(struct nt_config *c, const char *text, const char *what,
                                  struct nt_err *err);
/* After options of the command line changed it: checks what belongs together. */
NT_MUST_CHECK int nt_config_finish(struct nt_config *c, struct nt_err *err);
const struct nt_config_rig *nt_config_rig(const struct nt_config *c, const char *name);
/* On hardware: neither a recording nor a model. */
bool nt_config_rig_measures(const struct nt_config_rig *r);
/* The whole file with its defaults and what each line means. */
void nt_config_print(FILE *out);
