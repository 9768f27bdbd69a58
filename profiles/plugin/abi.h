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

/* ---- profiler ---- */

/* Kinds of events, as bits of the mask. Only these are looked at. */
enum {
    NT_PROF_COLL = 1 << 1,
    NT_PROF_GROUP_API = 1 << 8,
    NT_PROF_COLL_API = 1 << 9,
    NT_PROF_CE_COLL = 1 << 12
};

/* A started event. Each version says the same at other places; what is not read is left out. */
struct nt_prof_event_v1 { /* 2.23: numbers instead of names */
    uint8_t type;
    void *parent;
    int rank;
    struct {
        const char *name;
        uint64_t comm_hash, seq;
        uint8_t func;
        const void *send;
        void *recv;
        size_t count;
        int root;
        uint8_t datatype;
        uint32_t op;
        size_t traffic_bytes;
        uint8_t max_channels, warps, algo, proto;
    } coll;
};
struct nt_prof_event_v2 { /* 2.24 */
    uint8_t type;
    void *parent;
    int rank;
    struct {
        const char *name;
        uint64_t comm_hash, seq;
        const char *func;
        const void *send;
        void *recv;
        size_t count;
        int root;
        const char *datatype;
        size_t traffic_bytes;
        uint8_t max_channels, warps;
        const char *algo, *proto;
    } coll;
};
struct nt_prof_event_v3 { /* 2.26 */
    uint8_t type;
    void *parent;
    int rank;
    struct {
        const char *name;
        uint64_t comm_hash, seq;
        const char *func;
        const void *send;
        void *recv;
        size_t count;
        int root;
        const char *datatype;
        uint8_t max_channels, warps;
        const char *algo, *proto;
    } coll;
};
struct nt_prof_event_v4 { /* 2.27; v5 (2.28) and v6 (2.29) with a wider type, at the same places */
    union {
        uint8_t type_v4;
        uint64_t type_v5;
    };
    void *parent;
    int rank;
    union {
        struct {
            uint64_t seq;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int root;
            const char *datatype;
            uint8_t channels, warps;
            const char *algo, *proto;
        } coll;
        struct { /* v6: by copy engines */
            uint64_t seq;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int root;
            const char *datatype;
        } ce_coll;
        struct {
            bool captured;
            int depth;
        } group_api;
        struct {
            const char *func;
            size_t count;
            const char *datatype;
            int root;
            void *stream;
            bool captured;
        } coll_api;
    };
};

#define NT_PROFILER(v, init_type, event_type)                                                      \
    struct nt_profiler_v##v {                                                                      \
        const char *name;                                                                          \
        init_type;                                                                                 \
        int (*start)(void *context, void **handle, const struct event_type *event);                \
        int (*stop)(void *handle);                                                                 \
        int (*record)(void *handle, int state, void *args);                                        \
        int (*finalize)(void *context);                                                            \
    }
NT_PROFILER(1, int (*init)(void **context, int *mask), nt_prof_event_v1);
NT_PROFILER(2, int (*init)(void **context, int *mask), nt_prof_event_v2);
NT_PROFILER(3, int (*init)(void **context, int *mask), nt_prof_event_v3);
NT_PROFILER(4,
            int (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_hash,
                        int nnodes, int nranks, int rank, nt_logger log),
            nt_prof_event_v4);
NT_PROFILER(5,
            int (*init)(void **context, uint64_t comm_id, int *mask, const char *comm_name,
                        int nnodes, int nranks, int rank, nt_logger log),
            nt_prof_event_v4);
NT_PROFILER(6,
            int (*init)(void **context, uint64_t comm_id, int *mask, const char *comm_name,
                        int nnodes, int nranks, int rank, nt_logger log),
            nt_prof_event_v4);
