/*
 * mps - NVIDIA's Multi-Process Service for gangs whose ranks share a GPU: one daemon in the
 * foreground, a direct child with private folders, for one gang or pair.
 *
 * Events     on_ready when clients can connect; on_end exactly once, last, never before
 *            nt_mps_start() has returned; the object is freed after it.
 * Files      DIR/pipe and DIR/log (0700), removed at the end; DIR itself is the caller's.
 * Errors     nt_mps_start() fails for a bad spec (a folder too long for sockets) or without memory;
 *            then there are no events. err of on_end is NULL after a stop that went well;
 *            NT_E_MISSING when the program is not there.
 * Orphans    when the caller's process dies, a guard ends the daemon and its servers, after the
 *            ranks (launch.h).
 * Threads    the loop's thread. Gangs end before their daemon is stopped.
 */
#pragma once
#include <uv.h>
#include "tuner/base/err.h"

struct nt_mps; /* opaque */

struct nt_mps_spec {
    const char *dir;        /* existing private folder */
    const char *program;    /* NULL: nvidia-cuda-mps-control in the caller's PATH */
    const char *const *env; /* "NAME=VALUE", NULL-terminated: what the daemon gets besides PATH and
                               its two folders; CUDA_VISIBLE_DEVICES belongs here */
    uint32_t start_ms;      /* until the control socket exists [10000] */
    uint32_t stop_ms;       /* quit → TERM → KILL, each [5000] */
};

struct nt_mps_events {
    void (*on_ready)(void *data, struct nt_mps *m);
    void (*on_end)(void *data, struct nt_mps *m, const struct nt_err *err);
    void *data;
};

NT_MUST_CHECK int nt_mps_start(uv_loop_t *loop, const struct nt_mps_spec *spec,
                               const struct nt_mps_events *events, struct nt_mps **ret,
                               struct nt_err *err);
void nt_mps_stop(struct nt_mps *m);

/* Longest folder: the daemon's sockets in it must fit into sun_path. */
enum { NT_MPS_DIR_MAX = 80 };
/* "CUDA_MPS_PIPE_DIRECTORY=…" and "CUDA_MPS_LOG_DIRECTORY=…" for a client of the daemon in dir. */
enum { NT_MPS_VARS = 2, NT_MPS_VAR_SIZE = NT_MPS_DIR_MAX + 48 };
void nt_mps_env(const char *dir, char out[NT_MPS_VARS][NT_MPS_VAR_SIZE]);
