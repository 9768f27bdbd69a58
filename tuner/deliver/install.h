/*
 * install - files put on a machine by a manifest that holds their hashes, and taken away by it.
 *
 * A file that is there already is replaced only when the manifest says that it is ours and it is as
 * it was written; anything else is foreign and stops everything. Either all files are in place or
 * none is. The manifest is on disk before the first of them, so that what a power cut leaves can
 * still be taken away.
 *
 * Manifest   "nccltune-installed" version 1: files[{path, sha256, part}]; as root in
 *            /var/lib/nccltune/installed.json, else installed/installed.json in nt_state_folder().
 * Paths      absolute, below `root`; every folder and file by the rule of safe.h.
 */
#pragma once
#include <jansson.h>
#include "tuner/base/buf.h"

struct nt_install_file {
    const char *path;
    const void *data;
    size_t len;
    unsigned mode;
    const char *part; /* "loader", "active", "profile", "boot" */
};

struct nt_install_where {
    const char *root; /* NULL: / */
    bool dry_run;
};

enum nt_file_state { NT_FILE_OURS, NT_FILE_CHANGED, NT_FILE_MISSING, NT_FILE_UNREADABLE };
extern const char *const nt_file_state_names[]; /* "unchanged", … */

/* Before any of the others, with the caller's `--root`: NT_E_INVAL when it names no folder. */
NT_MUST_CHECK int nt_install_where_check(const struct nt_install_where *w, struct nt_err *err);
/* What is done, or would be, one line each, to *said. NT_E_NO: a foreign or changed file, or one
 * that others can write to. After a failure there is no file and no folder that was not there. */
NT_MUST_CHECK int nt_install(const struct nt_install_where *w, const struct nt_install_file *files,
                             size_t n, struct nt_buf *said, struct nt_err *err);
/* part NULL: all; prefix NULL: all, else only files below that folder. NT_E_NO: some file was
 * changed and is left. */
NT_MUST_CHECK int nt_uninstall(const struct nt_install_where *w, const char *part,
                               const char *prefix, struct nt_buf *said, struct nt_err *err);
/* Takes the entries of a loader below a folder from the manifest whose files are gone; no file is
 * touched. NT_E_INVAL: there are none. */
NT_MUST_CHECK int nt_install_forget(const struct nt_install_where *w, const char *prefix,
                                    struct nt_buf *said, struct nt_err *err);
/* The manifest's files, with what became of each: {path, part, state}. The caller owns *ret. */
NT_MUST_CHECK int nt_installed(const struct nt_install_where *w, json_t **ret, struct nt_err *err);
/* One file by the rule of safe.h, whoever put it there; appended. */
NT_MUST_CHECK int nt_install_read(const struct nt_install_where *w, const char *path,
                                  struct nt_buf *out, struct nt_err *err);
/* Compiled code of a source of at most 32 KiB that will lie at `path`, as `python` makes it;
 * ret_name: its file beside it ("__pycache__/…"). False: it does not come, and the source does
 * without. */
bool nt_python_compile(const char *python, const char *source, size_t len, const char *path,
                       char *ret_name, size_t size, struct nt_buf *out);
/* Folder of `python`'s own packages, asked of it. */
NT_MUST_CHECK int nt_python_packages(const char *python, char *out, size_t size,
                                     struct nt_err *err);
