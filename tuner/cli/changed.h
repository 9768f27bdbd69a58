/* changed - tune --if-changed: whether machine, stack and health are as when it last ended well. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "tuner/base/err.h"

struct nt_changed {
    const char *rig;  /* as given: "nccl", "model:FILE" … */
    const char *nccl; /* file, or NULL */
    const char *db;   /* or NULL */
    unsigned ranks;   /* as given; 0: not */
    const char *out;  /* the profile that is to be there */
};
/* *ret_changed, which a profile that is gone or unreadable is, too, and the words for people. A
 * machine that cannot be read is an error. */
NT_MUST_CHECK int nt_changed_look(const struct nt_changed *c, bool *ret_changed, char *words,
                                  size_t size, struct nt_err *err);
/* It ended well on the machine as it is. */
NT_MUST_CHECK int nt_changed_remember(const struct nt_changed *c, struct nt_err *err);
