/*
 * found - what of the caller's settings lies in files: what the Python loader applies on this
 * machine, the user's nccl.conf or the one that NCCL_CONF_FILE names, and the system's. In the
 * order in which one beats the next; the environment beats them all.
 */
#pragma once
#include <limits.h>
#include "tuner/base/err.h"

enum nt_found_in { NT_FOUND_ACTIVE, NT_FOUND_USER, NT_FOUND_SYSTEM };

struct nt_found_places {
    char active[PATH_MAX], user[PATH_MAX], system[PATH_MAX]; /* "": none */
};

/* Where they are for this process. */
void nt_found_places(struct nt_found_places *ret);

/* Not 0 ends the reading and is returned. Texts are valid during the call. */
typedef int (*nt_found_cb)(void *data, enum nt_found_in in, const char *path, const char *name,
                           const char *value, struct nt_err *err);
/* Each assignment of each file that is there, as its consumer takes it. An active file of another
 * boot, or one that the loader would not take, sets nothing. A file that cannot be read is
 * NT_E_INVAL: what it holds would be in force, and nobody would know. */
NT_MUST_CHECK int nt_found_read(const struct nt_found_places *p, nt_found_cb take, void *data,
                                struct nt_err *err);
