/*
 * abi - NCCL's plugin interfaces as far as these plugins take part, written down from their
 * documentation so that no NCCL header is needed and one binary serves every version.
 *
 * Enumerations travel as int. One exported object per interface version; NCCL takes the newest that
 * it knows: tuner v2 (2.21) … v6 (2.30.3), env v1 (2.28.7) and v2 (2.30.7), profiler v1 (2.23) … v6
 * (2.29).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NT_EXPORT __attribute__((visibility("default")))

enum nt_nccl_result {
    NT_NCCL_SUCCESS = 0,
    NT_NCCL_SYSTEM_ERROR = 2,
    NT_NCCL_INVALID_USAGE = 5,
};
enum nt_nccl_level { NT_NCCL_WARN = 2, NT_NCCL_INFO = 3 };
enum { NT_NCCL_ENV = 128, NT_NCCL_TUNING = 64, NT_NCCL_ALL = -1 }; /* NCCL_DEBUG_SUBSYS bits */

typedef void (*nt_logger)(int level, unsigned long flags, const char *file, int line,
                          const char *fmt, ...);

/* ---- tuner ---- */

struct nt_tuner_v2 {
    const char *name;
    int (*init)(size_t nranks, size_t nnodes, nt_logger log, void **context);
    int (*get_coll_info)(void *context, int coll, size_t bytes, int collnet, int nvls, int pipe_ops,
                         int *algo, int *proto, int *channels);
    int (*destroy)(void *context);
};
struct nt_tuner_v3 {
    const char *name;
    int (*init)(size_t nranks, size_t nnodes, nt_logger log, void **context);
    int (*get_coll_info)(void *context, int coll, size_t bytes, int pipe_ops, float **cost,
                         int nalgo, int nproto, int *channels);
    int (*destroy)(void *context);
};
struct nt_tuner_v4 {
    const char *name;
    int (*init)(size_t nranks, size_t nnodes, nt_logger log, void **context);
    int (*get_coll_info)(void *context, int coll, size_t bytes, int pipe_ops, float **cost,
                         int nalgo, int nproto, int reg_buff, int *channels);
    int (*destroy)(void *context);
};
struct nt_tuner_v5 {
    const char *name;
    int (*init)(void **context, uint64_t comm_id, size_t nranks, size_t nnodes, nt_logger log,
                void *nvl_domain, void *constants);
    int (*get_coll_info)(void *context, int coll, size_t bytes, int pipe_ops, float **cost,
                         int nalgo, int nproto, int reg_buff, int *channels);
    int (*finalize)(void *context);
};
struct nt_tuner_v6 {
    const char *name;
    int (*init)(void **context, uint64_t comm_id, size_t nranks, size_t nnodes, nt_logger log,
                void *nvl_domain, void *constants);
    int (*get_coll_info)(void *context, int coll, size_t bytes, int pipe_ops, float **cost,
                         int nalgo, int nproto, int reg_buff, int *channels);
    int (*finalize)(void *context);
    int (*get_chunk_size)(void *context, int coll, size_t bytes, int algo, int proto, int channels,
                          size_t *chunk_bytes);
};

/* ---- env ---- */

struct nt_env_v1 {
    const char *name;
    int (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix);
    int (*finalize)(void);
    const char *(*get_env)(const char *name);
};
struct nt_env_v2 {
    const char *name;
    int (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix, nt_logger log);
    int (*finalize)(void);
    const char *(*get_env)(const char *name);
};
