/*
 * receipt - what a process that was told of a profile wrote down: one file per process,
 * <folder>/<pid>.<start ticks>.receipt, of fixed size, mapped shared by the plugins that write it
 * and read at any time, also after the process has ended.
 *
 * Every number is little-endian, every counter 8 bytes and only ever grows. Texts are
 * NUL-terminated. Offsets are the enumerators below; nothing of the layout depends on a compiler.
 *
 * Units      *_ns nanoseconds of the real-time clock, start ticks as in /proc/PID/stat (field 22).
 * Ownership  a receipt read borrows its memory. A writer's mapping lives as long as the process.
 * Errors     0, or -1 with a sentence in *why (which may be NULL).
 * Threads    counting is relaxed and atomic: any thread, several plugins at once. A reader of a
 *            live receipt sees each counter whole, not all of one moment.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "profiles/format/limits.h"
#include "profiles/format/table.h"

extern const uint8_t nt_receipt_magic[8]; /* "NTRCPT\n" and a zero byte */
#define NT_RECEIPT_SUFFIX ".receipt"

/* Who wrote: bit 1 << part of `parts`; path of its file in the header. */
enum nt_receipt_part {
    NT_RECEIPT_TUNER,
    NT_RECEIPT_ENV,
    NT_RECEIPT_PROFILER,
    NT_RECEIPT_PARTS,
    NT_RECEIPT_LIBNCCL = NT_RECEIPT_PARTS, /* path only */
};
/* Bit of `parts`: a plugin of this process was told another hash than the one written here. */
enum { NT_RECEIPT_MIXED = 1U << 16U };

/* Bits of `flags`: how the process was told, seen at its first communicator. */
enum nt_receipt_flag {
    NT_RECEIPT_INSIDE = 1,    /* the profile is not in the environment that it was started with */
    NT_RECEIPT_BY_LOADER = 2, /* … and the Python loader says that it set it */
    NT_RECEIPT_ENV_LATE = 4,  /* our env plugin was named, and NCCL had already started without */
};

enum { NT_RECEIPT_VERSION = 2 };
enum { NT_RECEIPT_COMMS = 128, NT_RECEIPT_NAMES = 512, NT_RECEIPT_NAME = 64 };
enum { NT_RECEIPT_CHANGES = 32, NT_RECEIPT_CHANGE_VALUE = 88 };
/* Cells of what was executed: algo * NT_TABLE_PROTOS + proto, and one for everything else. */
enum { NT_RECEIPT_CELLS = NT_TABLE_ALGOS * NT_TABLE_PROTOS + 1 };

enum nt_receipt_at {
    NT_RECEIPT_AT_VERSION = 8,  /* u32, NT_RECEIPT_VERSION */
    NT_RECEIPT_AT_SIZE = 12,    /* u32, NT_RECEIPT_BYTES */
    NT_RECEIPT_AT_START = 16,   /* u64 start ticks */
    NT_RECEIPT_AT_CREATED = 24, /* u64 ns */
    NT_RECEIPT_AT_PID = 32,     /* u32, in the process's own namespace */
    NT_RECEIPT_AT_UID = 36,     /* u32 */
    NT_RECEIPT_AT_NCCL = 40,    /* u32 as ncclGetVersion, 0 unknown */
    NT_RECEIPT_AT_NROWS = 44,   /* u32 rows of the delivery file */
    NT_RECEIPT_AT_NCOMMS = 48,  /* u32 communicators ever made; above NT_RECEIPT_COMMS not kept */
    NT_RECEIPT_AT_LOST_NAMES = 52,    /* u32 questions for names that found no room */
    NT_RECEIPT_AT_PARTS = 56,         /* u32 */
    NT_RECEIPT_AT_FLAGS = 60,         /* u32 */
    NT_RECEIPT_AT_BOOT = 64,          /* 40 bytes */
    NT_RECEIPT_AT_HASH = 104,         /* 72 */
    NT_RECEIPT_AT_HOST = 176,         /* 80 */
    NT_RECEIPT_AT_JOB = 256,          /* 128 */
    NT_RECEIPT_AT_LOST_CHANGES = 384, /* u32 changes of variables that found no room */
    NT_RECEIPT_AT_PATHS = 1024,       /* 4 × 256 */
    /* per communicator, 64 bytes: u32 ranks (0: slot not written yet), u32 nodes, u64 created ns,
     * u64 id (0 unknown), u32 ABI, u32 rows that serve it, u64 ended ns, spare */
    NT_RECEIPT_AT_COMMS = 2048,
    /* per row, 16 bytes: u64 calls it was applied to, u64 calls where NCCL had no such cell */
    NT_RECEIPT_AT_ROWS = NT_RECEIPT_AT_COMMS + NT_RECEIPT_COMMS * 64,
    /* per collective and size class, 32 bytes: u64 calls served by a row, u64 left alone because no
     * row is for them or NCCL had no such cell, u64 left alone as part of a group, spare */
    NT_RECEIPT_AT_CLASSES = NT_RECEIPT_AT_ROWS + NT_TABLE_MAX_ROWS * 16,
    /* per collective, size class and cell, 24 bytes: u64 eager, u64 captured, u32 fewest channels,
     * u32 most channels (0: not told) */
    NT_RECEIPT_AT_EXECUTED = NT_RECEIPT_AT_CLASSES + NT_TABLE_COLLS * NT_CLASS_COUNT * 32,
    /* hash table of names, 96 bytes: 64 name, u32 asked, u32 enum nt_receipt_told, u32 state (2:
     * written), spare */
    NT_RECEIPT_AT_NAMES =
        NT_RECEIPT_AT_EXECUTED + NT_TABLE_COLLS * NT_CLASS_COUNT * NT_RECEIPT_CELLS * 24,
    /* per variable that the program changed, 256 bytes: u32 state (2: written), u32 communicators
     * made before it was seen, u32 bits (1: had a value before, 2: has one now), 4 spare, 64 name,
     * 88 value before, 88 value now; longer values are cut */
    NT_RECEIPT_AT_CHANGES = NT_RECEIPT_AT_NAMES + NT_RECEIPT_NAMES * 96,
    NT_RECEIPT_BYTES = NT_RECEIPT_AT_CHANGES + NT_RECEIPT_CHANGES * 256,
    NT_RECEIPT_PATH = 256,
};

/* What NCCL was told last for a name. */
enum nt_receipt_told {
    NT_TOLD_UNSET,    /* neither the profile nor the environment has it */
    NT_TOLD_USER,     /* the environment's value; the profile has none */
    NT_TOLD_KEPT,     /* the environment's value, which the profile would have set otherwise */
    NT_TOLD_SAME,     /* the environment's value, equal to the profile's */
    NT_TOLD_PROFILE,  /* the profile's value; the environment had none */
    NT_TOLD_OVERRODE, /* the profile's value instead of the environment's */
    NT_TOLD_COUNT
};
extern const char *const nt_receipt_told_names[]; /* "unset" … "overrode" */

/* ---- reading ---- */

struct nt_receipt_head {
    uint64_t start_ticks, created_ns;
    uint32_t pid, uid, nccl_version, nrows, ncomms, lost_names, parts, flags, lost_changes;
    const char *boot_id, *hash, *host, *job;
    const char *path[NT_RECEIPT_PARTS + 1]; /* enum nt_receipt_part; "" unless written */
};
struct nt_receipt_comm {
    uint32_t nranks, nnodes, abi, rows;
    uint64_t id, created_ns, ended_ns; /* ended_ns 0: alive, or the process ended first */
};
struct nt_receipt_name {
    const char *name;
    uint32_t asked;
    enum nt_receipt_told told;
};
/* A variable of NCCL's (NCCL_…) that the program itself changed. comms 0: between its start and its
 * first communicator; else after so many had been made. NULL: not set. */
struct nt_receipt_change {
    const char *name, *before, *now;
    uint32_t comms;
};
struct nt_receipt_class {
    uint64_t served, left, grouped;
};
struct nt_receipt_executed {
    uint64_t eager, captured;
    uint32_t min_channels, max_channels;
};

/* Validates; the other readers may be called only after it said 0. */
int nt_receipt_read(const void *data, size_t size, struct nt_receipt_head *ret, struct nt_why *why);
/* False: slot i < NT_RECEIPT_COMMS / NT_RECEIPT_NAMES / NT_RECEIPT_CHANGES is empty. */
bool nt_receipt_comm(const void *data, uint32_t i, struct nt_receipt_comm *ret);
bool nt_receipt_name(const void *data, uint32_t i, struct nt_receipt_name *ret);
bool nt_receipt_change(const void *data, uint32_t i, struct nt_receipt_change *ret);
uint64_t nt_receipt_row_applied(const void *data, uint32_t row);
uint64_t nt_receipt_row_unavailable(const void *data, uint32_t row);
struct nt_receipt_class nt_receipt_class(const void *data, unsigned coll, unsigned class);
struct nt_receipt_executed nt_receipt_executed(const void *data, unsigned coll, unsigned class,
                                               unsigned cell);

/* ---- the folder and the file ---- */

/* Folder of this user's receipts, opened for *at calls, or -1 with the reason: NCCLTUNE_RECEIPTS if
 * set, else /run/nccltune/<uid>, else XDG_RUNTIME_DIR/nccltune, which is made (0700) if missing.
 * Never through a link; owned by the caller and not writable by others; never in /tmp by itself. */
int nt_receipt_folder(char *path, size_t size, struct nt_why *why);

/* Start of this process in clock ticks since boot; 0 where /proc is missing. */
uint64_t nt_start_ticks(void);

struct nt_receipt_start {
    const char *hash, *job; /* "" if none */
    uint32_t nrows;
};
/* This process's receipt mapped for writing: made exclusively, or the one that another plugin of
 * this process made. NULL: *why says what is in the way. */
uint8_t *nt_receipt_attach(const struct nt_receipt_start *start, struct nt_why *why);
/* Memory to count into when there is no receipt, so that the fast path needs no branch. NULL: out
 * of memory. */
uint8_t *nt_receipt_nowhere(void);

/* ---- writing ---- */

void nt_receipt_set_part(uint8_t *base, enum nt_receipt_part part, const char *path);
void nt_receipt_set_nccl(uint8_t *base, uint32_t version, const char *path); /* path may be NULL */
/* Slot of the communicator, -1 when there are too many to keep. */
int nt_receipt_add_comm(uint8_t *base, const struct nt_receipt_comm *comm);
void nt_receipt_end_comm(uint8_t *base, int slot); /* -1 is fine */
void nt_receipt_add_name(uint8_t *base, const char *name, enum nt_receipt_told told);
void nt_receipt_set_flags(uint8_t *base, uint32_t flags);
/* A name that has a slot keeps the number of communicators and what was before. By one writer at a
 * time. */
void nt_receipt_add_change(uint8_t *base, const struct nt_receipt_change *change);
void nt_receipt_add_executed(uint8_t *base, unsigned coll, uint64_t bytes, unsigned cell,
                             unsigned channels, bool captured);

static inline void nt_receipt_count(uint8_t *base, size_t at)
{
    (void)__atomic_fetch_add((uint64_t *)(void *)(base + at), 1, __ATOMIC_RELAXED);
}
static inline size_t nt_receipt_at_row(uint32_t row)
{
    return NT_RECEIPT_AT_ROWS + (size_t)row * 16;
}
enum nt_receipt_fate { NT_FATE_SERVED, NT_FATE_LEFT, NT_FATE_GROUPED };
static inline size_t nt_receipt_at_class(unsigned coll, unsigned class, enum nt_receipt_fate fate)
{
    return NT_RECEIPT_AT_CLASSES + ((size_t)coll * NT_CLASS_COUNT + class) * 32 + (size_t)fate * 8;
}
