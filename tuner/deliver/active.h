/*
 * active - the flat file that tells the Python loader what to set, format "nccltune-active 1":
 *
 *     nccltune-active 1
 *     boot=<contents of /proc/sys/kernel/random/boot_id>
 *     NAME=VALUE          set if unset
 *     !NAME=VALUE         set in any case
 *
 * ASCII, at most 64 KiB. The loader (profiles/loader/nccltune_loader.py) takes it whole or not at
 * all, so that writing refuses what it would.
 */
#pragma once
#include "profiles/format/limits.h"
#include "schema/tunables.h"
#include "tuner/base/buf.h"

#define NT_ACTIVE_FOLDER "/run/nccltune"
#define NT_ACTIVE_NAME   "active"
enum { NT_ACTIVE_MAX = 65536, NT_ACTIVE_VARS = 256 + 40 };

struct nt_active {
    char boot[40];
    struct nt_active_var {
        char name[NT_TABLE_MAX_NAME + 1], value[NT_TABLE_MAX_VALUE + 1];
        bool override;
    } * v; /* nt_active_done() frees */
    size_t n;
};

/* vars must hold NCCLTUNE_PROFILE and NCCLTUNE_TABLE, and NCCLTUNE_BACKENDS and
 * NCCLTUNE_BACKENDS_TABLE both or neither. Appended to *out. */
NT_MUST_CHECK int nt_active_write(const struct nt_assign *vars, size_t n, const char *boot,
                                  struct nt_buf *out, struct nt_err *err);
NT_MUST_CHECK int nt_active_parse(const char *text, size_t len, struct nt_active *ret,
                                  struct nt_err *err);
void nt_active_done(struct nt_active *a);
const char *nt_active_get(const struct nt_active *a, const char *name); /* NULL: not in it */
/* Contents of the boot id file without its line end; "" when it cannot be read. */
void nt_boot_id(char out[40]);
