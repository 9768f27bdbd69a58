#include "schema/vocab.h"
#include "tuner/base/text.h"

#include <stdio.h>
#include <string.h>

const char *const nt_coll_names[NT_COLL_COUNT + 1] = {
    [NT_BROADCAST] = "broadcast",   [NT_REDUCE] = "reduce",
    [NT_ALL_GATHER] = "all_gather", [NT_REDUCE_SCATTER] = "reduce_scatter",
    [NT_ALL_REDUCE] = "all_reduce", [NT_ALLTOALL] = "alltoall",
    [NT_SENDRECV] = "sendrecv",
};
const char *const nt_algo_names[NT_ALGO_ALL + 1] = {
    [NT_TREE] = "tree",
    [NT_RING] = "ring",
    [NT_COLLNET_DIRECT] = "collnet_direct",
    [NT_COLLNET_CHAIN] = "collnet_chain",
    [NT_NVLS] = "nvls",
    [NT_NVLS_TREE] = "nvls_tree",
    [NT_PAT] = "pat",
    [NT_ONE_SHOT] = "one_shot",
    [NT_TWO_SHOT] = "two_shot",
    [NT_SYMMETRIC] = "symmetric",
};
const char *const nt_proto_names[NT_PROTO_ALL + 1] = {
    [NT_LL] = "ll",     [NT_LL128] = "ll128",   [NT_SIMPLE] = "simple", [NT_PUSH] = "push",
    [NT_PULL] = "pull", [NT_DIRECT] = "direct", [NT_WINDOW] = "window"};
const char *const nt_backend_names[NT_BACKEND_COUNT + 1] = {
    [NT_BE_NCCL] = "nccl",
    [NT_BE_REGISTERED] = "nccl-registered",
    [NT_BE_NCCL_SYMMETRIC] = "nccl-symmetric",
    [NT_BE_IPC] = "ipc",
    [NT_BE_HOST] = "host-memory",
    [NT_BE_TORCH] = "torch-distributed",
    [NT_BE_TORCH_SYMM_MEM] = "torch-symm-mem",
    [NT_BE_CUSTOM_ALL_REDUCE] = "custom-allreduce",
    [NT_BE_PYNCCL] = "pynccl",
    [NT_BE_FLASHINFER] = "flashinfer",
    [NT_BE_MSCCLPP] = "mscclpp",
};
const char *const nt_numerics_names[NT_NUM_COUNT + 1] = {
    [NT_NUM_NCCL] = "nccl", [NT_NUM_RANK] = "rank-order-fp32"};
const char *const nt_bits_names[NT_BITS_COUNT + 1] = {
    [NT_BITS_UNKNOWN] = "unknown", [NT_BITS_SAME] = "same", [NT_BITS_DIFFERENT] = "different"};

#define TUNED_COLLS                                                                                \
    {                                                                                              \
        true, true, true, true, true, false, false                                                 \
    }
#define ALL_COLLS                                                                                  \
    {                                                                                              \
        true, true, true, true, true, true, true                                                   \
    }
#define ONLY_REDUCE                                                                                \
    {                                                                                              \
        [NT_ALL_REDUCE] = true                                                                     \
    }
#define ALL_MODES                                                                                  \
    {                                                                                              \
        true, true, true                                                                           \
    }
const struct nt_backend_info nt_backends[NT_BACKEND_COUNT] = {
    [NT_BE_NCCL] = {.library = "nccl",
                    .needs = "nothing",
                    .buffers = "any device memory",
                    .probe = "nccl",
                    .colls = ALL_COLLS,
                    .modes = ALL_MODES},
    [NT_BE_REGISTERED] = {.library = "nccl",
                          .needs = "ncclCommRegister",
                          .buffers = "from ncclMemAlloc, registered with the communicator",
                          .probe = "nccl",
                          .since = 21903,
                          .colls = TUNED_COLLS,
                          .modes = ALL_MODES},
    [NT_BE_NCCL_SYMMETRIC] =
        {.library = "nccl",
         .needs = "ncclCommWindowRegister; peer access between all ranks",
         .buffers = "from ncclMemAlloc, in a symmetric window",
         .probe = "nccl",
         .since = 22703,
         .colls = {[NT_ALL_GATHER] = true, [NT_REDUCE_SCATTER] = true, [NT_ALL_REDUCE] = true},
         .modes = ALL_MODES},
    [NT_BE_IPC] = {.library = "ipc",
                   .needs = "CUDA IPC and peer access between all ranks",
                   .buffers = "any device memory; shared by IPC handles for two_shot/direct",
                   .probe = "nccl",
                   .numerics = NT_NUM_RANK,
                   .colls = ONLY_REDUCE,
                   .modes = ALL_MODES,
                   .one_host = true},
    [NT_BE_HOST] = {.library = "ipc",
                    .needs = "shared pinned host memory; no peer access",
                    .buffers = "any device memory",
                    .probe = "nccl",
                    .numerics = NT_NUM_RANK,
                    .colls = ONLY_REDUCE,
                    .modes = ALL_MODES,
                    .one_host = true},
    [NT_BE_TORCH] = {.library = "nccl",
                     .needs = "PyTorch",
                     .buffers = "any device memory",
                     .probe = "framework",
                     .colls = ALL_COLLS,
                     .modes = ALL_MODES},
    [NT_BE_TORCH_SYMM_MEM] = {.library = "torch-symm-mem",
                              .needs = "PyTorch; peer access between all ranks",
                              .buffers = "a symmetric buffer of fixed size",
                              .probe = "framework",
                              .numerics = NT_NUM_RANK,
                              .colls = ONLY_REDUCE,
                              .modes = ALL_MODES,
                              .one_host = true},
    [NT_BE_CUSTOM_ALL_REDUCE] = {.library = "custom-allreduce",
                                 .needs = "vLLM or SGLang; peer access between all ranks",
                                 .buffers = "any device memory",
                                 .probe = "framework",
                                 .numerics = NT_NUM_RANK,
                                 .colls = ONLY_REDUCE,
                                 .modes = ALL_MODES,
                                 .one_host = true},
    [NT_BE_PYNCCL] = {.library = "nccl",
                      .needs = "vLLM or SGLang",
                      .buffers = "any device memory",
                      .probe = "framework",
                      .colls = ONLY_REDUCE,
                      .modes = ALL_MODES},
    [NT_BE_FLASHINFER] = {.library = "flashinfer",
                          .needs = "FlashInfer and vLLM; peer access between all ranks",
                          .buffers = "any device memory",
                          .probe = "framework",
                          .numerics = NT_NUM_RANK,
                          .colls = ONLY_REDUCE,
                          .modes = ALL_MODES,
                          .one_host = true},
    [NT_BE_MSCCLPP] = {.library = "mscclpp",
                       .needs = "MSCCL++ and SGLang; 8 or 16 ranks with peer access",
                       .buffers = "any device memory",
                       .probe = "framework",
                       .numerics = NT_NUM_RANK,
                       .colls = ONLY_REDUCE,
                       .modes = {[NT_GRAPH] = true},
                       .one_host = true},
};
const char *const nt_dtype_names[NT_DTYPE_COUNT + 1] = {[NT_BF16] = "bf16",
                                                        [NT_FP32] = "fp32",
                                                        [NT_FP16] = "fp16",
                                                        [NT_INT32] = "int32",
                                                        [NT_FP8] = "fp8"};
const char *const nt_place_names[NT_PLACE_COUNT + 1] = {
    [NT_OUT_OF_PLACE] = "out", [NT_IN_PLACE] = "in"};
const char *const nt_mode_names[NT_MODE_COUNT + 1] = {
    [NT_EAGER] = "eager", [NT_STREAM] = "stream", [NT_GRAPH] = "graph"};
const char *const nt_rig_names[NT_RIG_COUNT + 1] = {
    [NT_RIG_NCCL] = "nccl",       [NT_RIG_MPS_SOCKETS] = "mps-sockets",
    [NT_RIG_MPS_P2P] = "mps-p2p", [NT_RIG_RECORDING] = "recording",
    [NT_RIG_MODEL] = "model",
};
const char *const nt_status_names[NT_STATUS_COUNT + 1] = {
    [NT_ST_OK] = "ok",
    [NT_ST_UNAVAILABLE] = "unavailable",
    [NT_ST_WRONG] = "wrong",
    [NT_ST_DISAGREE] = "disagree",
    [NT_ST_TIMEOUT] = "timeout",
    [NT_ST_CRASHED] = "crashed",
    [NT_ST_ERROR] = "error",
    [NT_ST_TOO_SLOW] = "too_slow",
    [NT_ST_NOT_RECORDED] = "not_recorded",
};

bool nt_coll_shares(enum nt_coll c)
{
    return c == NT_ALL_GATHER || c == NT_REDUCE_SCATTER || c == NT_ALLTOALL;
}

bool nt_coll_in_place(enum nt_coll c)
{
    return c != NT_ALLTOALL && c != NT_SENDRECV;
}

unsigned nt_dtype_bytes(enum nt_dtype t)
{
    static const unsigned bytes[NT_DTYPE_COUNT] = {
        [NT_BF16] = 2, [NT_FP32] = 4, [NT_FP16] = 2, [NT_INT32] = 4, [NT_FP8] = 1};
    nt_assert((unsigned)t < NT_DTYPE_COUNT);
    return bytes[t];
}

int nt_vocab_find(const char *const *names, const char *what, const char *word, struct nt_err *err)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], word) == 0) {
            return i;
        }
    }
    return nt_fail_name(err, what, word, names);
}

bool nt_case_equal(const struct nt_case *a, const struct nt_case *b)
{
    return a->bytes == b->bytes && a->coll == b->coll && a->dtype == b->dtype &&
           a->place == b->place && a->mode == b->mode;
}

bool nt_executed_equal(const struct nt_executed *a, const struct nt_executed *b)
{
    return a->algo == b->algo && a->proto == b->proto && a->channels == b->channels &&
           a->warps == b->warps;
}

char *nt_case_text(const struct nt_case *c, char *out, size_t size)
{
    char bytes[24];
    (void)snprintf(out, size, "%s %s %s %s %s", nt_coll_names[c->coll],
                   nt_format_bytes(c->bytes, bytes, sizeof(bytes)), nt_dtype_names[c->dtype],
                   nt_place_names[c->place], nt_mode_names[c->mode]);
    return out;
}

bool nt_call_equal(const struct nt_call *a, const struct nt_call *b)
{
    return a->algo == b->algo && a->proto == b->proto && a->channels == b->channels &&
           a->chunk_bytes == b->chunk_bytes && a->backend == b->backend;
}

/* A symmetric window that NCCL takes no kernel of its own for is a registered buffer. */
static int memory_of(uint8_t backend, const struct nt_executed *x)
{
    return backend == NT_BE_NCCL_SYMMETRIC && x->algo != NT_SYMMETRIC ? NT_BE_REGISTERED
           : backend == NT_BE_TORCH || backend == NT_BE_PYNCCL        ? NT_BE_NCCL
                                                                      : backend;
}

bool nt_backend_same_path(const struct nt_call *a, const struct nt_executed *xa,
                          const struct nt_call *b, const struct nt_executed *xb)
{
    return strcmp(nt_backends[a->backend].library, nt_backends[b->backend].library) == 0 &&
           memory_of(a->backend, xa) == memory_of(b->backend, xb) && xa->algo >= 0 &&
           nt_executed_equal(xa, xb);
}

bool nt_call_fits(const struct nt_call *c)
{
    if (c->algo < 0 || c->proto < 0) {
        return c->algo < 0 && c->proto < 0;
    }
    if (strcmp(nt_backends[c->backend].library, "nccl") == 0) {
        return c->algo < NT_ALGO_COUNT && c->proto < NT_PROTO_COUNT;
    }
    return ((c->algo == NT_ONE_SHOT || c->algo == NT_TWO_SHOT) && c->proto >= NT_PUSH &&
            c->proto <= NT_DIRECT) ||
           (c->algo == NT_ONE_SHOT && c->proto == NT_LL);
}

char *nt_call_text(const struct nt_call *c, char *out, size_t size)
{
    const char *backend = c->backend != NT_BE_NCCL ? nt_backend_names[c->backend] : "";
    const char *gap = *backend != '\0' && c->algo >= 0 ? " " : "";
    char chunk[40] = "", bytes[24];
    if (c->chunk_bytes > 0) {
        (void)snprintf(chunk, sizeof(chunk), " asked-chunk=%s",
                       nt_format_bytes(c->chunk_bytes, bytes, sizeof(bytes)));
    }
    if (c->algo < 0) {
        (void)snprintf(out, size, "%s%s", *backend != '\0' ? backend : "default", chunk);
    } else if (c->channels == 0) {
        (void)snprintf(out, size, "%s%s%s/%s%s", backend, gap, nt_algo_names[c->algo],
                       nt_proto_names[c->proto], chunk);
    } else {
        (void)snprintf(out, size, "%s%s%s/%s/%u%s", backend, gap, nt_algo_names[c->algo],
                       nt_proto_names[c->proto], c->channels, chunk);
    }
    return out;
}

char *nt_executed_text(const struct nt_executed *x, char *out, size_t size)
{
    if (x->algo < 0) {
        (void)snprintf(out, size, "not read");
    } else {
        (void)snprintf(out, size, "%s/%s/%u/%u", nt_algo_names[x->algo], nt_proto_names[x->proto],
                       x->channels, x->warps);
    }
    return out;
}
