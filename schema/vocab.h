/*
 * vocab - the names and numbers of what is measured. Numbers of collectives, algorithms and
 * protocols are NCCL's own (nccl_tuner.h: NCCL_ALGO_*, NCCL_PROTO_*, ncclFunc_t); the delivery file
 * and the probes rely on that. Every name table is NULL-terminated and indexed by its enum, so that
 * nt_fail_name() can suggest.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "tuner/base/err.h"

enum nt_coll {
    NT_BROADCAST,
    NT_REDUCE,
    NT_ALL_GATHER,
    NT_REDUCE_SCATTER,
    NT_ALL_REDUCE, /* up to here NCCL asks a tuner */
    NT_ALLTOALL,
    NT_SENDRECV,
    NT_COLL_COUNT
};
enum { NT_TUNER_COLLS = NT_ALL_REDUCE + 1 };

enum nt_algo {
    NT_TREE,
    NT_RING,
    NT_COLLNET_DIRECT,
    NT_COLLNET_CHAIN,
    NT_NVLS,
    NT_NVLS_TREE,
    NT_PAT,
    NT_ALGO_COUNT
};
enum nt_proto { NT_LL, NT_LL128, NT_SIMPLE, NT_PROTO_COUNT };
enum nt_dtype { NT_BF16, NT_FP32, NT_FP16, NT_INT32, NT_FP8, NT_DTYPE_COUNT };
enum nt_place { NT_OUT_OF_PLACE, NT_IN_PLACE, NT_PLACE_COUNT };
enum nt_mode { NT_EAGER, NT_STREAM, NT_GRAPH, NT_MODE_COUNT };
/* Where measurements come from (design: "rig"). */
enum nt_rig {
    NT_RIG_NCCL,
    NT_RIG_MPS_SOCKETS,
    NT_RIG_MPS_P2P,
    NT_RIG_RECORDING,
    NT_RIG_MODEL,
    NT_RIG_COUNT
};
/* Why a trial has no samples, or that it has. */
enum nt_status {
    NT_ST_OK,
    NT_ST_UNAVAILABLE,  /* NCCL marks the cell so, or the backend is not there */
    NT_ST_WRONG,        /* data did not match */
    NT_ST_DISAGREE,     /* ranks executed different tuples */
    NT_ST_TIMEOUT,      /* a deadline passed: hung */
    NT_ST_CRASHED,      /* a rank ended, or wrote what is not the protocol */
    NT_ST_ERROR,        /* NCCL or CUDA said an error */
    NT_ST_TOO_SLOW,     /* above the range of a sample (4.29 s) */
    NT_ST_NOT_RECORDED, /* a replay was asked for what its recording does not hold */
    NT_STATUS_COUNT
};

extern const char *const nt_coll_names[];   /* "broadcast" … "all_reduce" … */
extern const char *const nt_algo_names[];   /* "tree" … "pat" */
extern const char *const nt_proto_names[];  /* "ll", "ll128", "simple" */
extern const char *const nt_dtype_names[];  /* "bf16", "fp32", … */
extern const char *const nt_place_names[];  /* "out", "in" */
extern const char *const nt_mode_names[];   /* "eager", "stream", "graph" */
extern const char *const nt_rig_names[];    /* "nccl", "mps-sockets", … */
extern const char *const nt_status_names[]; /* "ok", "unavailable", … */

unsigned nt_dtype_bytes(enum nt_dtype t);

/* Index of `word` in a NULL-terminated table, as an int >= 0; else -NT_E_INVAL with a suggestion.
 */
NT_MUST_CHECK int nt_vocab_find(const char *const *names, const char *what, const char *word,
                                struct nt_err *err);

/* What is measured. bytes as NCCL's tuner sees it: element size × max(send count, receive count).
 */
struct nt_case {
    uint64_t bytes;
    uint8_t coll, dtype, place, mode; /* enum nt_coll, nt_dtype, nt_place, nt_mode */
};

/* What the in-process tuner is asked for. */
struct nt_call {
    int8_t algo, proto;   /* enum, or -1: NCCL's own choice (both or none) */
    uint16_t channels;    /* upper bound; 0: NCCL's choice */
    uint32_t chunk_bytes; /* tuner ABI v6 only; 0: NCCL's choice */
};
#define NT_CALL_DEFAULT ((struct nt_call){.algo = -1, .proto = -1})

/* What NCCL ran, read back through its profiler interface; the same on every rank. */
struct nt_executed {
    int8_t algo, proto; /* -1: not read */
    uint16_t channels, warps;
};
#define NT_EXECUTED_NONE ((struct nt_executed){.algo = -1, .proto = -1})

bool nt_case_equal(const struct nt_case *a, const struct nt_case *b);
bool nt_executed_equal(const struct nt_executed *a, const struct nt_executed *b);
/* "all_reduce 14K bf16 out graph"; "ring/ll/4" ("default" when nothing is asked). Return out. */
char *nt_case_text(const struct nt_case *c, char *out, size_t size);
char *nt_call_text(const struct nt_call *c, char *out, size_t size);
char *nt_executed_text(const struct nt_executed *x, char *out, size_t size);
