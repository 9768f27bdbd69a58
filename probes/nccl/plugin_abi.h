/*
 * plugin_abi - NCCL's tuner interface v4 to v6 and profiler interface v4 to v6, in plain C: the
 * layouts that NCCL reads and calls. Results are ncclResult_t (0: success).
 *
 * The tuner's table is float[algorithms][protocols] in one piece, passed as float ** by type only.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*nt_nccl_log_fn)(int level, unsigned long flags, const char *file, int line,
                               const char *fmt, ...);

struct nt_tuner_v4 {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, nt_nccl_log_fn log, void **context);
    int (*coll_info)(void *context, int coll, size_t bytes, int pipe_ops, float **table, int algos,
                     int protos, int registered, int *channels);
    int (*destroy)(void *context);
};
struct nt_tuner_v5 {
    const char *name;
    int (*init)(void **context, uint64_t comm_id, size_t ranks, size_t nodes, nt_nccl_log_fn log,
                void *nvlink_domains, void *constants);
    int (*coll_info)(void *context, int coll, size_t bytes, int pipe_ops, float **table, int algos,
                     int protos, int registered, int *channels);
    int (*finalize)(void *context);
};
struct nt_tuner_v6 {
    struct nt_tuner_v5 base;
    int (*chunk_size)(void *context, int coll, size_t bytes, int algo, int proto, int channels,
                      size_t *chunk_bytes);
};

enum { NT_PROFILE_COLL = 2 }; /* bit of the activation mask, and type of an event */

struct nt_profiler_coll {
    uint64_t number;
    const char *func;
    const void *in;
    void *out;
    size_t count;
    int root;
    const char *dtype;
    uint8_t channels, warps;
    const char *algo, *proto;
};
/* v4 has a type of one byte; v5 and v6 of eight. Other events have other members after `rank`. */
struct nt_profiler_event_v4 {
    uint8_t type;
    void *parent;
    int rank;
    struct nt_profiler_coll coll;
};
struct nt_profiler_event_v5 {
    uint64_t type;
    void *parent;
    int rank;
    struct nt_profiler_coll coll;
};
struct nt_profiler_v4 {
    const char *name;
    int (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_id, int nodes,
                int ranks, int rank, nt_nccl_log_fn log);
    int (*start)(void *context, void **handle, struct nt_profiler_event_v4 *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *args);
    int (*finalize)(void *context);
};
struct nt_profiler_v5 { /* and v6 */
    const char *name;
    int (*init)(void **context, uint64_t comm_id, int *mask, const char *comm_name, int nodes,
                int ranks, int rank, nt_nccl_log_fn log);
    int (*start)(void *context, void **handle, struct nt_profiler_event_v5 *event);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *args);
    int (*finalize)(void *context);
};
