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
bool nt_coll_shares(enum nt_coll c);   /* the bytes are divided by the number of ranks */
bool nt_coll_in_place(enum nt_coll c); /* it exists in place */

enum nt_algo {
    NT_TREE,
    NT_RING,
    NT_COLLNET_DIRECT,
    NT_COLLNET_CHAIN,
    NT_NVLS,
    NT_NVLS_TREE,
    NT_PAT,
    NT_ALGO_COUNT,               /* NCCL's own end here; a tuner is asked about no others */
    NT_ONE_SHOT = NT_ALGO_COUNT, /* every rank adds up everything */
    NT_TWO_SHOT,                 /* every rank adds up its share, then all have it */
    NT_SYMMETRIC,                /* NCCL's kernels on symmetric windows, whichever it took */
    NT_ALGO_ALL
};
enum nt_proto {
    NT_LL,
    NT_LL128,
    NT_SIMPLE,
    NT_PROTO_COUNT,
    NT_PUSH = NT_PROTO_COUNT, /* ranks only write into each other's memory */
    NT_PULL,                  /* ranks only read it (flags are still written) */
    NT_DIRECT,                /* both, straight on the callers' buffers */
    NT_WINDOW,                /* with NT_SYMMETRIC */
    NT_PROTO_ALL
};
/* Who moves the bytes. */
enum nt_backend {
    NT_BE_NCCL,
    NT_BE_REGISTERED,
    NT_BE_NCCL_SYMMETRIC,
    NT_BE_IPC,
    NT_BE_HOST,
    NT_BE_TORCH,
    NT_BE_TORCH_SYMM_MEM,
    NT_BE_CUSTOM_ALL_REDUCE,
    NT_BE_PYNCCL,
    NT_BE_FLASHINFER,
    NT_BE_MSCCLPP,
    NT_BACKEND_COUNT
};
/* In which order a backend adds up, against NCCL left alone. What two backends of one class give
 * agrees bit by bit; whether another one agrees too is measured (NT_M_BITS). */
enum nt_numerics {
    NT_NUM_NCCL, /* whatever NCCL does with its algorithm, rounded at every step */
    NT_NUM_RANK, /* rank after rank, in fp32, rounded once: the same on every rank */
    NT_NUM_COUNT
};
/* Whether a result agreed with that of NCCL left alone. */
enum nt_bits { NT_BITS_UNKNOWN, NT_BITS_SAME, NT_BITS_DIFFERENT, NT_BITS_COUNT };
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

extern const char *const nt_coll_names[];     /* "broadcast" … "all_reduce" … */
extern const char *const nt_algo_names[];     /* "tree" … "pat" */
extern const char *const nt_proto_names[];    /* "ll", "ll128", "simple" */
extern const char *const nt_dtype_names[];    /* "bf16", "fp32", … */
extern const char *const nt_place_names[];    /* "out", "in" */
extern const char *const nt_mode_names[];     /* "eager", "stream", "graph" */
extern const char *const nt_rig_names[];      /* "nccl", "mps-sockets", … */
extern const char *const nt_status_names[];   /* "ok", "unavailable", … */
extern const char *const nt_backend_names[];  /* "nccl", "nccl-registered", … */
extern const char *const nt_numerics_names[]; /* "nccl", "rank-order-fp32" */
extern const char *const nt_bits_names[];     /* "unknown", "same", "different" */

/* What is known of a backend before it is tried. */
struct nt_backend_info {
    const char *library; /* whose code moves the bytes: two backends of one library that execute
                            the same are one */
    const char *needs;   /* of machine and deployment, for people */
    const char *buffers; /* what it needs of the buffers, for people */
    const char *probe;   /* "nccl", or the program that measures it */
    int since;           /* NCCL version, 0: any */
    uint8_t numerics;    /* enum nt_numerics */
    bool colls[NT_COLL_COUNT];
    bool modes[NT_MODE_COUNT];
    bool one_host; /* all ranks on one host */
};
extern const struct nt_backend_info nt_backends[NT_BACKEND_COUNT];

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

/* Who is to move the bytes, and what is asked of it: of NCCL through the in-process tuner. */
struct nt_call {
    int8_t algo, proto;   /* enum, or -1: the backend's own choice (both or none) */
    uint16_t channels;    /* upper bound (blocks of our kernels); 0: the backend's choice */
    uint32_t chunk_bytes; /* tuner ABI v6 only; 0: NCCL's choice */
    uint8_t backend;      /* enum nt_backend */
};
#define NT_CALL_DEFAULT ((struct nt_call){.algo = -1, .proto = -1})

/* What was run, of NCCL read back through its profiler interface; the same on every rank. Blocks
 * and warps of a block stand for channels and warps of our kernels. */
struct nt_executed {
    int8_t algo, proto; /* -1: not read */
    uint16_t channels, warps;
};
#define NT_EXECUTED_NONE ((struct nt_executed){.algo = -1, .proto = -1})

bool nt_case_equal(const struct nt_case *a, const struct nt_case *b);
bool nt_executed_equal(const struct nt_executed *a, const struct nt_executed *b);
bool nt_call_equal(const struct nt_call *a, const struct nt_call *b);
/* Do two calls that executed the same run the same code on the same kind of memory? Two labels for
 * one thing are a tie. */
bool nt_backend_same_path(const struct nt_call *a, const struct nt_executed *xa,
                          const struct nt_call *b, const struct nt_executed *xb);
/* Does the call belong to its backend: algorithms of NCCL to NCCL, ours to ours? */
bool nt_call_fits(const struct nt_call *c);
/* "all_reduce 14K bf16 out graph"; "ring/ll/4" ("default" when nothing is asked), behind the
 * backend when that is not NCCL as it is: "ipc two_shot/direct/32"; with "asked-chunk=512K" behind
 * it, which no interface of NCCL says to have been executed. Return out. */
char *nt_case_text(const struct nt_case *c, char *out, size_t size);
char *nt_call_text(const struct nt_call *c, char *out, size_t size);
char *nt_executed_text(const struct nt_executed *x, char *out, size_t size);
