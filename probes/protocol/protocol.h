/*
 * protocol - what the driver and a rank say to each other: one JSON object a line, version 1.
 *
 * Both sides use this codec. A line is at most NT_LINE_MAX bytes; a longer one, a second answer to
 * one question, an unknown type or member or a missing one is a broken protocol (NT_E_PROTO), never
 * guessed around. Units: *_ns nanoseconds, *_ms milliseconds, bytes are bytes. Ownership: decoding
 * allocates inside struct nt_msg; nt_msg_done() frees it. Encoding borrows.
 *
 *   rank → driver    hello                       who I am
 *   driver → rank 0  uid {}    rank 0 → driver   uid {hex}     one per communicator
 *   driver → rank    init      rank → driver     ready
 *   driver → rank    cells     rank → driver     cells         availability and NCCL's own estimate
 *   driver → rank    measure   rank → driver     result
 *   driver → rank    abort | quit
 *   rank → driver    error {text}                before it ends by itself
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "schema/vocab.h"
#include "tuner/base/buf.h"

enum { NT_PROTOCOL_VERSION = 1, NT_LINE_MAX = 1 << 20, NT_MAX_SAMPLES = 4096, NT_MAX_VARS = 64 };

/* The three variables with which any launcher starts a rank. */
#define NT_ENV_RANK   "NCCLTUNE_RANK"
#define NT_ENV_WORLD  "NCCLTUNE_WORLD"
#define NT_ENV_DRIVER "NCCLTUNE_DRIVER" /* unix:PATH or tcp:HOST:PORT:SECRET */
/* And two more where the ranks are on several hosts: the first rank of this one, and how many. */
#define NT_ENV_HOST_FIRST "NCCLTUNE_HOST_FIRST"
#define NT_ENV_HOST_RANKS "NCCLTUNE_HOST_RANKS"

enum nt_msg_type {
    NT_MSG_HELLO,
    NT_MSG_UID,
    NT_MSG_INIT,
    NT_MSG_READY,
    NT_MSG_CELLS, /* question (case only) and answer (with cost) */
    NT_MSG_MEASURE,
    NT_MSG_RESULT,
    NT_MSG_ABORT,
    NT_MSG_QUIT,
    NT_MSG_ERROR,
    NT_MSG_TYPE_COUNT
};

struct nt_var {
    char *name, *value;
};

struct nt_hello {
    unsigned v, rank, world;
    long pid;
    char host[64], gpu_uuid[64], gpu_pci[32], gpu_name[64];
    uint64_t gpu_memory_bytes;
    int nccl, cuda,
        driver; /* version numbers as the libraries give them: 22809, 13000, 13000; 0: not there */
    char nccl_file[256]; /* path of the loaded libnccl, for its hash */
    char rig[24];        /* "nccl", or for a replay the rig that was recorded */
};

struct nt_init {
    char uid[257];    /* hex of ncclUniqueId; "" where the backend has none */
    char backend[32]; /* "nccl": NCCL's communicator; other backends are opened when a call first
                         asks for them */
    struct nt_var
        vars[NT_MAX_VARS]; /* set before the first NCCL call; per-rank values such as NCCL_HOSTID */
    size_t nvars;
    uint64_t max_bytes; /* largest case of this gang: sizes of the buffers */
    uint64_t gang;      /* number of the gang in its job: keys a replay's draws */
    char shm[256];   /* file that all ranks of the host map for their barrier; made by the driver,
                        zeroed, 4096 bytes */
    unsigned device; /* CUDA device of this rank */
};

struct nt_ready {
    uint64_t init_ns;      /* communicator creation */
    uint64_t memory_bytes; /* device memory taken since start, after init */
    char *topology_xml;    /* NCCL's dump, rank 0 only, or NULL */
    char *text; /* provenance: "key=value" lines (channels, paths, conf files found), or NULL */
};

/* Question: which cells are available for this case; cost and asked mean nothing. Answer: NCCL's
 * estimate in µs, negative = unavailable; asked = 0: NCCL's tuner was not consulted for this call.
 */
struct nt_cells {
    struct nt_case cs;
    float cost[NT_ALGO_COUNT][NT_PROTO_COUNT];
    bool asked;
};

enum nt_verify { NT_VERIFY_NO, NT_VERIFY_BEFORE, NT_VERIFY_BOTH };

/* Flags of a measure. */
enum {
    NT_M_READBACK = 1, /* one untimed call with the profiler on: fills `executed` */
    NT_M_BUSY = 2,     /* beside a running matrix product on another stream */
    NT_M_GROUP8 =
        4, /* 8 equal calls in one ncclGroup, each on its own buffers; ns is for the group */
    NT_M_BARRIER = 8, /* broadcast, reduce: closing barrier, its cost taken off */
    NT_M_BITS = 16,   /* compare the result bit by bit with that of NCCL left alone */
    /* No collective at all, but what tells a slower machine from slower NCCL; only by themselves
     * and in eager mode: ns of one copy of `bytes` from device memory to device memory, all ranks
     * at once; of launching a small kernel and waiting for it. `inner` of them an iteration. */
    NT_M_COPY = 32,
    NT_M_LAUNCH = 64,
    NT_M_CONTROL = NT_M_COPY | NT_M_LAUNCH,
    NT_M_OWN = 128, /* a replay answers by the recorded gang whose turn it is, or not at all */
};

/* Flags that every timing of a case needs: NT_M_BARRIER where ranks that are done early would
 * otherwise begin the next call. */
uint32_t nt_case_flags(const struct nt_case *cs);

struct nt_measure {
    uint64_t id; /* number of the trial in its job: keys a replay's draws */
    struct nt_case cs;
    struct nt_call call;
    unsigned warmup,
        samples;    /* untimed and timed iterations; samples 0 = only gate and read-back */
    unsigned inner; /* stream, graph: calls per iteration (K) */
    uint8_t verify; /* enum nt_verify */
    uint32_t flags;
    uint32_t
        deadline_ms; /* the driver ends the gang after it; the rank may use it for its own checks */
};

struct nt_result {
    uint64_t id;
    uint8_t status; /* enum nt_status */
    uint32_t *ns; /* per iteration and call (already divided by inner; the empty graph taken off) */
    size_t count;
    uint32_t base_ns; /* per call, taken off: what the empty graph took, or the closing barrier */
    struct nt_executed executed;
    /* NCCL's own chunk, as it showed it to the tuner, whatever that then asked for; with
     * `executed`. 0, left out of the line: not shown (tuner ABI below v6, NCCL below 2.30.3). */
    uint32_t own_chunk_bytes;
    uint8_t bits;          /* enum nt_bits */
    uint64_t wrong;        /* elements that differed, over both checks */
    uint64_t elapsed_ns;   /* all of it on the rank: warm-up, gate, read-back, timing */
    uint64_t connect_ns;   /* first use of an algorithm: connecting; 0 otherwise */
    uint64_t memory_bytes; /* device memory taken since start, now */
    char error[200];       /* words when status is not ok */
};

struct nt_msg {
    enum nt_msg_type type;
    union {
        struct nt_hello hello;
        char uid[257]; /* answer: hex; question: "" */
        struct nt_init init;
        struct nt_ready ready;
        struct nt_cells cells;
        struct nt_measure measure;
        struct nt_result result;
        char error[512];
    };
};

/* Appends one line with its newline. What does not fit (a line above NT_LINE_MAX, a number above
 * INT64_MAX, two variables of one name) sets out->failed; bytes that are not UTF-8 become '?', and
 * a number that is not finite becomes -1. */
void nt_msg_encode(const struct nt_msg *m, struct nt_buf *out);
/* line: without the newline. *ret is written only on success. */
NT_MUST_CHECK int nt_msg_decode(const char *line, size_t len, struct nt_msg *ret,
                                struct nt_err *err);
void nt_msg_done(struct nt_msg *m);
