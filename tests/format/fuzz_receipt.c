/*
 * A receipt with any bytes changed is refused or can be read whole. The input is edits of three
 * bytes of offset and one of value; an input of another form is offered as it is.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/format/bytes.h"
#include "profiles/format/receipt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t walk(const uint8_t *r, const struct nt_receipt_head *h)
{
    struct nt_receipt_comm c;
    struct nt_receipt_name n;
    uint64_t sum = strlen(h->boot_id) + strlen(h->hash) + strlen(h->host) + strlen(h->job);

    for (unsigned i = 0; i <= NT_RECEIPT_PARTS; i++) {
        sum += strlen(h->path[i]);
    }
    for (uint32_t i = 0; i < NT_RECEIPT_COMMS; i++) {
        sum += nt_receipt_comm(r, i, &c) ? c.rows : 0;
    }
    for (uint32_t i = 0; i < NT_RECEIPT_NAMES; i++) {
        sum +=
            nt_receipt_name(r, i, &n) ? strlen(n.name) + strlen(nt_receipt_told_names[n.told]) : 0;
    }
    for (uint32_t i = 0; i < NT_RECEIPT_CHANGES; i++) {
        struct nt_receipt_change x;
        if (nt_receipt_change(r, i, &x)) {
            sum += strlen(x.name) + (x.before != NULL ? strlen(x.before) : 0) +
                   (x.now != NULL ? strlen(x.now) : 0);
        }
    }
    for (uint32_t i = 0; i < h->nrows; i++) {
        sum += nt_receipt_row_applied(r, i);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(64) uint8_t r[NT_RECEIPT_BYTES];
    static const char hash[] = "04fb8ba2c763d1c9964d3ff665ba7119c6f14d70a19d30a43bab7059c4d4fc9d";
    struct nt_receipt_head h;
    struct nt_why why;
    volatile uint64_t sum = 0;

    (void)nt_receipt_read(data, size, &h, &why);
    memset(r, 0, sizeof(r));
    memcpy(r, nt_receipt_magic, sizeof(nt_receipt_magic));
    nt_le_put(r + NT_RECEIPT_AT_VERSION, 4, NT_RECEIPT_VERSION);
    nt_le_put(r + NT_RECEIPT_AT_SIZE, 4, NT_RECEIPT_BYTES);
    memcpy(r + NT_RECEIPT_AT_HASH, hash, sizeof(hash));
    nt_receipt_add_name(r, "NCCL_ALGO", NT_TOLD_USER);
    nt_receipt_add_change(r, &(struct nt_receipt_change){.name = "NCCL_ALGO", .now = "ring"});
    (void)nt_receipt_add_comm(r, &(struct nt_receipt_comm){.nranks = 8, .nnodes = 1});
    for (size_t i = 0; i + 4 <= size; i += 4) {
        r[nt_le_get(data + i, 3) % NT_RECEIPT_BYTES] = data[i + 3];
    }
    if (nt_receipt_read(r, sizeof(r), &h, &why) == 0) {
        sum = walk(r, &h);
    }
    return (int)(sum & 0);
}
