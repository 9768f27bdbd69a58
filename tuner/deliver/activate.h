/*
 * activate - what `install --active` writes: the delivery file, a copy of the profile, the active
 * file, and, when asked, the unit that does the same at every boot.
 */
#pragma once
#include "tuner/deliver/apply.h"
#include "tuner/deliver/install.h"

#define NT_ACTIVATE_FOLDER  "/etc/nccltune"
#define NT_ACTIVATE_PROFILE NT_ACTIVATE_FOLDER "/profile.json"
#define NT_ACTIVATE_UNIT    "/etc/systemd/system/nccltune.service"

enum { NT_ACTIVATE_FILES = 5 };
struct nt_activate {
    struct nt_install_file file[NT_ACTIVATE_FILES];
    size_t n; /* 0: the profile sets nothing */
    struct nt_buf table, profile, active, unit;
    char hash[65], path[128];
    struct nt_apply apply;
};
struct nt_activate_opts {
    enum nt_product product;
    const char *tuner, *env_plugin, *profiler; /* NULL: not used */
    const char *boot_id;
    const char *boot_command;     /* of the unit; NULL: no unit */
    const struct nt_assign *more; /* of an engine's form */
    size_t nmore;
    const struct nt_buf *backends; /* the form itself, at this path below NT_ACTIVATE_FOLDER; NULL:
                                      none */
    const char *backends_path;
};

/* Makes the files' contents. nt_activate_done() frees, also after a failure. */
NT_MUST_CHECK int nt_activate(const struct nt_profile *p, const struct nt_activate_opts *o,
                              struct nt_activate *ret, struct nt_buf *notes, struct nt_err *err);
void nt_activate_done(struct nt_activate *a);
