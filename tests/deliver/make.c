#include "tests/deliver/make.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "profiles/format/bytes.h"

static char *words(const char *text, size_t *ret_len)
{
    size_t len = strlen(text);
    char *copy = malloc(len + 2);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, text, len + 1);
    copy[len + 1] = '\0';
    for (size_t i = 0; i < len; i++) {
        copy[i] = text[i] == '|' ? '\0' : text[i];
    }
    *ret_len = len > 0 ? len + 1 : 0;
    return copy;
}

struct nt_proc make_proc(uint32_t pid, const char *name, const char *environment,
                         const char *cmdline, const char *maps)
{
    struct nt_proc p = {.pid = pid, .inner_pid = pid, .uid = 1000, .start_ticks = 77};
    (void)nt_clean(name, p.name, sizeof(p.name));
    if (environment != NULL) {
        p.environ = words(environment, &p.environ_len);
        p.environ_known = true;
    }
    p.cmdline = words(cmdline != NULL ? cmdline : name, &p.cmdline_len);
    if (maps != NULL) {
        p.maps_known = true;
        nt_proc_take_maps(&p, maps);
    }
    return p;
}

uint8_t *make_receipt(const struct nt_proc *p, const char *hash, uint32_t parts, uint32_t nrows,
                      uint32_t nccl)
{
    uint8_t *r = nt_receipt_nowhere();
    if (r == NULL) {
        abort();
    }
    memcpy(r, nt_receipt_magic, 8);
    nt_le_put(r + NT_RECEIPT_AT_VERSION, 4, NT_RECEIPT_VERSION);
    nt_le_put(r + NT_RECEIPT_AT_SIZE, 4, NT_RECEIPT_BYTES);
    nt_le_put(r + NT_RECEIPT_AT_START, 8, p->start_ticks);
    nt_le_put(r + NT_RECEIPT_AT_PID, 4, p->inner_pid);
    nt_le_put(r + NT_RECEIPT_AT_UID, 4, p->uid);
    nt_le_put(r + NT_RECEIPT_AT_NROWS, 4, nrows);
    nt_le_put(r + NT_RECEIPT_AT_NCCL, 4, nccl);
    nt_le_put(r + NT_RECEIPT_AT_PARTS, 4, parts);
    memcpy(r + NT_RECEIPT_AT_HASH, hash, strlen(hash));
    (void)nt_receipt_add_comm(
        r, &(struct nt_receipt_comm){.nranks = 8, .nnodes = 1, .abi = 5, .rows = nrows});
    return r;
}

void make_done(uint8_t *receipt)
{
    if (receipt != NULL) {
        (void)munmap(receipt, NT_RECEIPT_BYTES);
    }
}
