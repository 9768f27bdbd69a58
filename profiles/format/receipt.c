#include "profiles/format/receipt.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include "profiles/format/table_private.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "counters are written in place");
_Static_assert(NT_RECEIPT_AT_ROWS % 8 == 0 && NT_RECEIPT_AT_CLASSES % 8 == 0 &&
                   NT_RECEIPT_AT_EXECUTED % 8 == 0 && NT_RECEIPT_AT_NAMES % 8 == 0 &&
                   NT_RECEIPT_AT_CHANGES % 8 == 0,
               "counters are aligned");

enum { COMM_BYTES = 64, ROW_BYTES = 16, EXECUTED_BYTES = 24, NAME_BYTES = 96 };
enum { CHANGE_BYTES = 256, AT_COMMS = 4, AT_BITS = 8, AT_NAME = 16, AT_BEFORE = 80, AT_NOW = 168 };
enum { HAD_VALUE = 1, HAS_VALUE = 2 };     /* bits of a change */
enum { NAME_FREE, NAME_BUSY, NAME_READY }; /* state of a slot of a name or of a change */

const uint8_t nt_receipt_magic[8] = {'N', 'T', 'R', 'C', 'P', 'T', '\n', 0};
const char *const nt_receipt_told_names[] = {"unset",   "user",     "kept", "same",
                                             "profile", "overrode", NULL};

static uint64_t load64(const uint8_t *p)
{
    return __atomic_load_n((const uint64_t *)(const void *)p, __ATOMIC_RELAXED);
}

static uint32_t load32(const uint8_t *p)
{
    return __atomic_load_n((const uint32_t *)(const void *)p, __ATOMIC_ACQUIRE);
}

static void store32(uint8_t *p, uint32_t v)
{
    __atomic_store_n((uint32_t *)(void *)p, v, __ATOMIC_RELEASE);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* ---- reading ---- */

static const char *text(const uint8_t *d, size_t at, size_t size)
{
    return memchr(d + at, '\0', size) != NULL ? (const char *)d + at : NULL;
}

int nt_receipt_read(const void *data, size_t size, struct nt_receipt_head *ret, struct nt_why *why)
{
    const uint8_t *d = data;
    struct nt_receipt_head h = {0};

    if (size < 16 || memcmp(d, nt_receipt_magic, sizeof(nt_receipt_magic)) != 0) {
        return nt_why_fail(why, "not a receipt");
    }
    if (nt_le32(d + NT_RECEIPT_AT_VERSION) != NT_RECEIPT_VERSION) {
        return nt_why_fail(why, "receipt of version %u; this program reads version %d",
                           nt_le32(d + NT_RECEIPT_AT_VERSION), NT_RECEIPT_VERSION);
    }
    if (size != NT_RECEIPT_BYTES || nt_le32(d + NT_RECEIPT_AT_SIZE) != NT_RECEIPT_BYTES ||
        (uintptr_t)d % 8 != 0) {
        return nt_why_fail(why, "receipt of %zu bytes instead of %d", size, NT_RECEIPT_BYTES);
    }
    h.start_ticks = nt_le64(d + NT_RECEIPT_AT_START);
    h.created_ns = nt_le64(d + NT_RECEIPT_AT_CREATED);
    h.pid = nt_le32(d + NT_RECEIPT_AT_PID);
    h.uid = nt_le32(d + NT_RECEIPT_AT_UID);
    h.nccl_version = load32(d + NT_RECEIPT_AT_NCCL);
    h.nrows = load32(d + NT_RECEIPT_AT_NROWS);
    h.ncomms = load32(d + NT_RECEIPT_AT_NCOMMS);
    h.lost_names = load32(d + NT_RECEIPT_AT_LOST_NAMES);
    h.parts = load32(d + NT_RECEIPT_AT_PARTS);
    h.flags = load32(d + NT_RECEIPT_AT_FLAGS);
    h.lost_changes = load32(d + NT_RECEIPT_AT_LOST_CHANGES);
    h.boot_id = text(d, NT_RECEIPT_AT_BOOT, NT_RECEIPT_AT_HASH - NT_RECEIPT_AT_BOOT);
    h.hash = text(d, NT_RECEIPT_AT_HASH, NT_RECEIPT_AT_HOST - NT_RECEIPT_AT_HASH);
    h.host = text(d, NT_RECEIPT_AT_HOST, NT_RECEIPT_AT_JOB - NT_RECEIPT_AT_HOST);
    h.job = text(d, NT_RECEIPT_AT_JOB, 128);
    for (unsigned i = 0; i <= NT_RECEIPT_PARTS; i++) {
        h.path[i] = text(d, NT_RECEIPT_AT_PATHS + (size_t)i * NT_RECEIPT_PATH, NT_RECEIPT_PATH);
        if (h.path[i] == NULL) {
            return nt_why_fail(why, "receipt with a text without end");
        }
    }
    if (h.boot_id == NULL || h.hash == NULL || h.host == NULL || h.job == NULL) {
        return nt_why_fail(why, "receipt with a text without end");
    }
    if (h.nrows > NT_TABLE_MAX_ROWS || (h.hash[0] != '\0' && !nt_table_is_hash(h.hash))) {
        return nt_why_fail(why, "receipt with a damaged header");
    }
    *ret = h;
    return 0;
}

bool nt_receipt_comm(const void *data, uint32_t i, struct nt_receipt_comm *ret)
{
    const uint8_t *p = (const uint8_t *)data + NT_RECEIPT_AT_COMMS + (size_t)i * COMM_BYTES;
    ret->nranks = load32(p);
    if (ret->nranks == 0) {
        return false;
    }
    ret->nnodes = nt_le32(p + 4);
    ret->created_ns = nt_le64(p + 8);
    ret->id = nt_le64(p + 16);
    ret->abi = nt_le32(p + 24);
    ret->rows = nt_le32(p + 28);
    ret->ended_ns = load64(p + 32);
    return true;
}

bool nt_receipt_name(const void *data, uint32_t i, struct nt_receipt_name *ret)
{
    const uint8_t *p = (const uint8_t *)data + NT_RECEIPT_AT_NAMES + (size_t)i * NAME_BYTES;
    if (load32(p + 72) != NAME_READY || memchr(p, '\0', NT_RECEIPT_NAME) == NULL) {
        return false;
    }
    ret->name = (const char *)p;
    ret->asked = load32(p + 64);
    ret->told = (enum nt_receipt_told)(load32(p + 68) % NT_TOLD_COUNT);
    return true;
}

bool nt_receipt_change(const void *data, uint32_t i, struct nt_receipt_change *ret)
{
    const uint8_t *p = (const uint8_t *)data + NT_RECEIPT_AT_CHANGES + (size_t)i * CHANGE_BYTES;
    uint32_t bits = nt_le32(p + AT_BITS);

    if (load32(p) != NAME_READY || memchr(p + AT_NAME, '\0', NT_RECEIPT_NAME) == NULL ||
        memchr(p + AT_BEFORE, '\0', NT_RECEIPT_CHANGE_VALUE) == NULL ||
        memchr(p + AT_NOW, '\0', NT_RECEIPT_CHANGE_VALUE) == NULL) {
        return false;
    }
    ret->name = (const char *)p + AT_NAME;
    ret->before = (bits & HAD_VALUE) != 0 ? (const char *)p + AT_BEFORE : NULL;
    ret->now = (bits & HAS_VALUE) != 0 ? (const char *)p + AT_NOW : NULL;
    ret->comms = nt_le32(p + AT_COMMS);
    return true;
}

uint64_t nt_receipt_row_applied(const void *data, uint32_t row)
{
    return load64((const uint8_t *)data + nt_receipt_at_row(row));
}

uint64_t nt_receipt_row_unavailable(const void *data, uint32_t row)
{
    return load64((const uint8_t *)data + nt_receipt_at_row(row) + 8);
}

struct nt_receipt_class nt_receipt_class(const void *data, unsigned coll, unsigned class)
{
    const uint8_t *p = (const uint8_t *)data + nt_receipt_at_class(coll, class, NT_FATE_SERVED);
    return (struct nt_receipt_class){load64(p), load64(p + 8), load64(p + 16)};
}

static size_t at_executed(unsigned coll, unsigned class, unsigned cell)
{
    return NT_RECEIPT_AT_EXECUTED +
           (((size_t)coll * NT_CLASS_COUNT + class) * NT_RECEIPT_CELLS + cell) * EXECUTED_BYTES;
}

struct nt_receipt_executed nt_receipt_executed(const void *data, unsigned coll, unsigned class,
                                               unsigned cell)
{
    const uint8_t *p = (const uint8_t *)data + at_executed(coll, class, cell);
    return (struct nt_receipt_executed){load64(p), load64(p + 8), load32(p + 16), load32(p + 20)};
}

/* ---- writing ---- */

static void put_text(uint8_t *base, size_t at, size_t size, const char *s)
{
    (void)snprintf((char *)base + at, size, "%s", s);
}

void nt_receipt_set_part(uint8_t *base, enum nt_receipt_part part, const char *path)
{
    put_text(base, NT_RECEIPT_AT_PATHS + (size_t)part * NT_RECEIPT_PATH, NT_RECEIPT_PATH, path);
    (void)__atomic_fetch_or((uint32_t *)(void *)(base + NT_RECEIPT_AT_PARTS), 1U << part,
                            __ATOMIC_RELEASE);
}

void nt_receipt_set_nccl(uint8_t *base, uint32_t version, const char *path)
{
    if (path != NULL) {
        put_text(base, NT_RECEIPT_AT_PATHS + (size_t)NT_RECEIPT_LIBNCCL * NT_RECEIPT_PATH,
                 NT_RECEIPT_PATH, path);
    }
    if (version != 0) {
        store32(base + NT_RECEIPT_AT_NCCL, version);
    }
}

int nt_receipt_add_comm(uint8_t *base, const struct nt_receipt_comm *comm)
{
    uint32_t i =
        __atomic_fetch_add((uint32_t *)(void *)(base + NT_RECEIPT_AT_NCOMMS), 1, __ATOMIC_RELAXED);
    uint8_t *p = base + NT_RECEIPT_AT_COMMS + (size_t)i * COMM_BYTES;

    if (i >= NT_RECEIPT_COMMS) {
        return -1;
    }
    nt_le_put(p + 4, 4, comm->nnodes);
    nt_le_put(p + 8, 8, now_ns());
    nt_le_put(p + 16, 8, comm->id);
    nt_le_put(p + 24, 4, comm->abi);
    nt_le_put(p + 28, 4, comm->rows);
    store32(p, comm->nranks); /* last: makes the slot visible */
    return (int)i;
}

void nt_receipt_end_comm(uint8_t *base, int slot)
{
    if (slot >= 0) {
        uint8_t *p = base + NT_RECEIPT_AT_COMMS + (size_t)slot * COMM_BYTES + 32;
        __atomic_store_n((uint64_t *)(void *)p, now_ns(), __ATOMIC_RELAXED);
    }
}

static uint32_t name_slot(const char *name)
{
    uint32_t h = 2166136261U;
    for (; *name != '\0'; name++) {
        h = (h ^ (uint8_t)*name) * 16777619U;
    }
    return h % NT_RECEIPT_NAMES;
}

/* True once the slot holds `name`, taking it if it is free. */
static bool take_name(uint8_t *p, const char *name)
{
    uint32_t *state = (uint32_t *)(void *)(p + 72), seen = NAME_FREE;
    if (__atomic_compare_exchange_n(state, &seen, NAME_BUSY, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_ACQUIRE)) {
        put_text(p, 0, NT_RECEIPT_NAME, name);
        __atomic_store_n(state, NAME_READY, __ATOMIC_RELEASE);
        return true;
    }
    for (unsigned i = 0; seen == NAME_BUSY && i < 100000; i++) { /* another thread writes a name */
        seen = __atomic_load_n(state, __ATOMIC_ACQUIRE);
    }
    return seen == NAME_READY && strncmp((const char *)p, name, NT_RECEIPT_NAME - 1) == 0;
}

void nt_receipt_add_name(uint8_t *base, const char *name, enum nt_receipt_told told)
{
    uint32_t at = name_slot(name);
    for (uint32_t i = 0; i < NT_RECEIPT_NAMES; i++) {
        uint8_t *p =
            base + NT_RECEIPT_AT_NAMES + (size_t)((at + i) % NT_RECEIPT_NAMES) * NAME_BYTES;
        if (take_name(p, name)) {
            store32(p + 68, (uint32_t)told);
            (void)__atomic_fetch_add((uint32_t *)(void *)(p + 64), 1, __ATOMIC_RELAXED);
            return;
        }
    }
    (void)__atomic_fetch_add((uint32_t *)(void *)(base + NT_RECEIPT_AT_LOST_NAMES), 1,
                             __ATOMIC_RELAXED);
}

void nt_receipt_set_flags(uint8_t *base, uint32_t flags)
{
    (void)__atomic_fetch_or((uint32_t *)(void *)(base + NT_RECEIPT_AT_FLAGS), flags,
                            __ATOMIC_RELAXED);
}

void nt_receipt_add_change(uint8_t *base, const struct nt_receipt_change *change)
{
    for (uint32_t i = 0; i < NT_RECEIPT_CHANGES; i++) {
        uint8_t *p = base + NT_RECEIPT_AT_CHANGES + (size_t)i * CHANGE_BYTES;
        bool is_new = load32(p) == NAME_FREE;
        uint32_t had = nt_le32(p + AT_BITS) & HAD_VALUE;

        if (!is_new && strncmp((const char *)p + AT_NAME, change->name, NT_RECEIPT_NAME - 1) != 0) {
            continue;
        }
        store32(p, NAME_BUSY); /* a reader passes it by while its texts change */
        if (is_new) {
            had = change->before != NULL ? HAD_VALUE : 0;
            nt_le_put(p + AT_COMMS, 4, change->comms);
            put_text(p, AT_NAME, NT_RECEIPT_NAME, change->name);
            put_text(p, AT_BEFORE, NT_RECEIPT_CHANGE_VALUE, had != 0 ? change->before : "");
        }
        put_text(p, AT_NOW, NT_RECEIPT_CHANGE_VALUE, change->now != NULL ? change->now : "");
        nt_le_put(p + AT_BITS, 4, had | (change->now != NULL ? HAS_VALUE : 0));
        store32(p, NAME_READY);
        return;
    }
    (void)__atomic_fetch_add((uint32_t *)(void *)(base + NT_RECEIPT_AT_LOST_CHANGES), 1,
                             __ATOMIC_RELAXED);
}

/* Raises *at (or lowers it, where 0 means nothing yet) to v. */
static void bound(uint8_t *at, uint32_t v, bool lowest)
{
    uint32_t seen = load32(at);
    while (lowest ? seen == 0 || v < seen : v > seen) {
        if (__atomic_compare_exchange_n((uint32_t *)(void *)at, &seen, v, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            return;
        }
    }
}

void nt_receipt_add_executed(uint8_t *base, unsigned coll, uint64_t bytes, unsigned cell,
                             unsigned channels, bool captured)
{
    size_t at = at_executed(coll, nt_size_class(bytes), cell);
    if (channels > 0) {
        bound(base + at + 16, channels, true);
        bound(base + at + 20, channels, false);
    }
    nt_receipt_count(base, at + (captured ? 8 : 0));
}
