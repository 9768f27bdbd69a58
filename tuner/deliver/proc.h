/*
 * proc - one process as /proc shows it: what it was started with, what it maps, where it comes
 * from.
 *
 * Everything in it was written by the process's owner and is treated as hostile: reads are bounded,
 * texts are cut, and nothing of it is printed without nt_clean().
 *
 * Ownership  nt_proc_done() frees what a struct nt_proc holds.
 * Errors     0 or -enum nt_code; NT_E_MISSING: there is no such process.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "profiles/format/receipt.h"
#include "tuner/base/buf.h"

enum { NT_PROC_NCCLS = 4, NT_PROC_PATH = 256, NT_PROC_ANCESTORS = 24 };

struct nt_proc_library {
    char path[NT_PROC_PATH];
    char device[24]; /* as maps writes it */
    uint64_t inode;
};

struct nt_proc {
    uint32_t pid, ppid, uid;
    uint32_t inner_pid;   /* in the process's own pid namespace */
    uint64_t start_ticks; /* since boot */
    char name[32];
    bool environ_known, maps_known, gone;
    char *environ, *cmdline; /* texts after one another, each with its NUL; owned */
    size_t environ_len, cmdline_len;
    bool gpu; /* maps a device of NVIDIA's */
    struct nt_proc_library nccl[NT_PROC_NCCLS];
    unsigned nnccl;
    char plugin[NT_RECEIPT_PARTS]
               [NT_PROC_PATH];        /* of ours, by enum nt_receipt_part; "" not mapped */
    char foreign_tuner[NT_PROC_PATH]; /* somebody else's tuner plugin */
};

/* proc: the folder, NULL for /proc. with_maps: maps is read too (the costly part). */
NT_MUST_CHECK int nt_proc_read(const char *proc, uint32_t pid, bool with_maps, struct nt_proc *ret,
                               struct nt_err *err);
void nt_proc_done(struct nt_proc *p);
/* All numbers in the folder, ascending; the caller frees *ret. */
NT_MUST_CHECK int nt_proc_list(const char *proc, uint32_t **ret, size_t *ret_n, struct nt_err *err);

/* Value of a variable at exec; NULL: it had none (or nothing is known). */
const char *nt_proc_env(const struct nt_proc *p, const char *name);
/* Word i of the command line; NULL at its end. */
const char *nt_proc_word(const struct nt_proc *p, size_t i);

/* The parts of it, from text. stat: false when it is none. */
bool nt_proc_take_stat(struct nt_proc *p, const char *stat);
void nt_proc_take_status(struct nt_proc *p, const char *status);
void nt_proc_take_maps(struct nt_proc *p, const char *maps);

/* Options of a Python command line that matter to a loader: 'S', 'I', 'E' of -S, -I, -E (also
 * joined, as in -IS). */
bool nt_proc_is_python(const struct nt_proc *p);
bool nt_proc_python_flag(const struct nt_proc *p, char flag);

/* Printable ASCII, everything else as '?'. Returns out. */
char *nt_clean(const char *text, char *out, size_t size);
