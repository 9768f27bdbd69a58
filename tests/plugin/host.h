/*
 * host - plays NCCL for the plugins: loads the built library, asks as each interface version asks,
 * and takes the cheapest cell as NCCL does. What a process was told is decided once in its life, so
 * every case runs in a child of its own (host_child).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "profiles/format/receipt.h"
#include "profiles/format/table.h"
#include "profiles/plugin/abi.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct host {
    void *lib;
    const struct nt_tuner_v2 *v2;
    const struct nt_tuner_v3 *v3;
    const struct nt_tuner_v4 *v4;
    const struct nt_tuner_v5 *v5;
    const struct nt_tuner_v6 *v6;
};

/* A question and NCCL's view of the answer. */
struct host_call {
    int abi, coll;
    size_t bytes;
    int pipe_ops, reg_buff;
    int nalgo, nproto;         /* 0: 7 and 3 */
    float ignored;             /* value of the cells in `closed`; 0: -1 */
    uint32_t closed;           /* bit algo * 3 + proto: NCCL does not offer the cell */
    bool no_collnet, no_nvls;  /* v2 */
    int algo, proto, channels; /* answer; channels 0: NCCL's own */
    unsigned touched;          /* cells that changed */
};

extern char host_log[1 << 16]; /* what the plugin logged through NCCL, of this process */
void host_logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

void host_open(struct host *h); /* ends the process if the plugin cannot be loaded */
int host_init(const struct host *h, int abi, size_t nranks, size_t nnodes, void **ctx);
int host_ask(const struct host *h, void *ctx, struct host_call *c);
int host_end(const struct host *h, int abi, void *ctx);

/* Runs fn in a child with NCCLTUNE_* variables only as fn sets them; its stderr goes to `err` (of
 * size err_size, may be NULL). Returns what fn returned, 200 + signal when it was killed. */
int host_child(int (*fn)(void *arg), void *arg, char *err, size_t err_size);

/* For children: says what failed and returns 1. */
#define HOST_CHECK(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)dprintf(2, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                            \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* A folder of this test with a delivery file in it; removed by host_clean. */
struct host_dir {
    char path[128], table[256], receipts[256], hash[NT_HASH_HEX + 1];
    uint8_t *data;
    size_t size;
};
void host_dir(struct host_dir *d, const struct nt_table_row *rows, size_t nrows);
void host_dir_vars(struct host_dir *d, enum nt_table_product product,
                   const struct nt_table_var *vars, size_t nvars, const struct nt_table_row *rows,
                   size_t nrows);
void host_put(const char *path, const void *data, size_t size, unsigned mode);
void host_tell(const struct host_dir *d); /* sets the variables of this process */
void host_clean(struct host_dir *d);
/* Maps receipt number i of the folder (any order); NULL when there are fewer. */
const uint8_t *host_receipt(const struct host_dir *d, unsigned i, struct nt_receipt_head *head);
