/*
 * api - NCCL as a table of functions, opened at run time, so that the version can be chosen and
 * building needs no libnccl.
 *
 * The types are NCCL's ABI; abi_check.c holds them against nccl.h where that is there.
 */
#pragma once
#include <stddef.h>
#include "probes/nccl/dev.h"
#include "schema/vocab.h"

#define NT_ENV_NCCL_LIB "NCCLTUNE_NCCL_LIB" /* path of libnccl; else libnccl.so.2 */

enum { NT_NCCL_SUCCESS = 0, NT_NCCL_SUM = 0, NT_NCCL_MAX = 2, NT_NCCL_ID_BYTES = 128 };
enum {
    NT_NCCL_INT32 = 2,
    NT_NCCL_FP16 = 6,
    NT_NCCL_FP32 = 7,
    NT_NCCL_BF16 = 9,
    NT_NCCL_FP8_E4M3 = 10
};
enum { NT_NCCL_FP8_SINCE = 22403 }; /* the first version with fp8 types */
enum { NT_NCCL_WIN_COLL_SYMMETRIC = 1 };

struct nt_nccl_id {
    char bytes[NT_NCCL_ID_BYTES];
};
struct ncclComm;

#define NT_NCCL_BUFS const void *in, void *out, size_t count, int dtype
#define NT_NCCL_TAIL struct ncclComm *comm, struct CUstream_st *stream
#define NT_NCCL_FUNCTIONS(X)                                                                       \
    X(int, GetVersion, (int *version))                                                             \
    X(const char *, GetErrorString, (int result))                                                  \
    X(const char *, GetLastError, (struct ncclComm * comm))                                        \
    X(int, GetUniqueId, (struct nt_nccl_id * id))                                                  \
    X(int, CommInitRank, (struct ncclComm * *ret, int world, struct nt_nccl_id id, int rank))      \
    X(int, CommAbort, (struct ncclComm * comm))                                                    \
    X(int, CommDestroy, (struct ncclComm * comm))                                                  \
    X(int, GroupStart, (void))                                                                     \
    X(int, GroupEnd, (void))                                                                       \
    X(int, AllReduce, (NT_NCCL_BUFS, int op, NT_NCCL_TAIL))                                        \
    X(int, Broadcast, (NT_NCCL_BUFS, int root, NT_NCCL_TAIL))                                      \
    X(int, Reduce, (NT_NCCL_BUFS, int op, int root, NT_NCCL_TAIL))                                 \
    X(int, AllGather, (NT_NCCL_BUFS, NT_NCCL_TAIL))                                                \
    X(int, ReduceScatter, (NT_NCCL_BUFS, int op, NT_NCCL_TAIL))                                    \
    X(int, Send, (const void *buf, size_t count, int dtype, int peer, NT_NCCL_TAIL))               \
    X(int, Recv, (void *buf, size_t count, int dtype, int peer, NT_NCCL_TAIL))

/* NULL where the library is too old for them. */
#define NT_NCCL_OPTIONAL(X)                                                                        \
    X(int, MemAlloc, (void **ret, size_t bytes))                                                   \
    X(int, MemFree, (void *p))                                                                     \
    X(int, CommRegister, (struct ncclComm * comm, void *p, size_t bytes, void **ret))              \
    X(int, CommDeregister, (struct ncclComm * comm, void *handle))                                 \
    X(int, CommWindowRegister,                                                                     \
      (struct ncclComm * comm, void *p, size_t bytes, void **ret, int flags))                      \
    X(int, CommWindowDeregister, (struct ncclComm * comm, void *window))

struct nt_nccl {
    void *lib;
    char file[256]; /* what was really loaded */
    int version;    /* 22809 */
#define X(type, name, args) type(*name) args;
    NT_NCCL_FUNCTIONS(X)
    NT_NCCL_OPTIONAL(X)
#undef X
};

/* -NT_E_MISSING with words what to do. The library stays loaded for the life of the process. */
NT_MUST_CHECK int nt_nccl_open(struct nt_nccl *n, struct nt_err *err);
/* 0 for success, else -NT_E_IO: "all_reduce on rank 3: unhandled cuda error: last words of NCCL".
 * comm may be NULL. */
NT_MUST_CHECK int nt_nccl_check(const struct nt_nccl *n, struct ncclComm *comm, unsigned rank,
                                int result, const char *what, struct nt_err *err);
/* NCCL's number of a dtype; -NT_E_MISSING where this version does not have it. */
NT_MUST_CHECK int nt_nccl_dtype(const struct nt_nccl *n, enum nt_dtype t, int *ret,
                                struct nt_err *err);
