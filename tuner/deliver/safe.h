/*
 * safe - folders and files that nobody but root and their user can have written.
 *
 * The rule: no symbolic link anywhere below the start; a file or folder is owned by root or by
 * `uid` and not writable by group or others. A folder on the way that root owns and that has the
 * sticky bit (as /tmp) passes, because what lies in it cannot be exchanged by others. Everything is
 * checked on the open descriptor.
 *
 * Ownership  descriptors returned are the caller's to close.
 * Errors     0 (or a descriptor) or -enum nt_code: NT_E_NO when the rule is broken, NT_E_MISSING
 *            when there is no such file.
 */
#pragma once
#include <sys/types.h>
#include "tuner/base/buf.h"

enum nt_safe_flags {
    NT_SAFE_CREATE = 1, /* missing folders are made, 0755 */
};

/* Opens folder `path` below folder `root` (NULL or "": /). root itself is taken as it is. */
NT_MUST_CHECK int nt_safe_folder(const char *root, const char *path, uid_t uid, unsigned flags,
                                 struct nt_err *err);
/* Appends the file's bytes to *out; a file larger than out->max is refused. Never blocks on a pipe.
 */
NT_MUST_CHECK int nt_safe_read(int folder, const char *name, uid_t uid, struct nt_buf *out,
                               struct nt_err *err);
/* Writes to a temporary of the folder, synchronised, with this mode; *ret_temp (at least 96 bytes)
 * is its name, for renameat() or unlinkat(). */
NT_MUST_CHECK int nt_safe_write_temp(int folder, const char *name, const void *data, size_t len,
                                     unsigned mode, char *ret_temp, size_t size,
                                     struct nt_err *err);
/* Makes the folders of an absolute path (0700 each) for files of the caller's own, such as those
 * under XDG_STATE_HOME; links on the way are the user's own affair. The last one must be the
 * caller's. */
NT_MUST_CHECK int nt_own_folder(const char *path, struct nt_err *err);
/* ${XDG_STATE_HOME:-~/.local/state}/nccltune/LEAF: the words only, for who reads; nothing is made.
 * NT_E_INVAL when neither is set. */
NT_MUST_CHECK int nt_state_path(const char *leaf, char *out, size_t size, struct nt_err *err);
/* The same, made if missing, for who writes. */
NT_MUST_CHECK int nt_state_folder(const char *leaf, char *out, size_t size, struct nt_err *err);
