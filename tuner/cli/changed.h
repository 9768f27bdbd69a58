/* changed - tune --if-changed: whether machine, stack and health are as when the same was last
 * asked for and ended well. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "tuner/base/cli.h"
#include "tuner/base/hash.h"

struct nt_changed {
    const char *rig;   /* as given: "nccl", "model:FILE" … */
    const char *nccl;  /* file, or NULL */
    const char *db;    /* or NULL */
    unsigned ranks;    /* as given; 0: not */
    const char *out;   /* the profile that is to be there */
    const char *asked; /* hash of what else was asked for */
};
/* The hash of what the options say, but for those of `except` (NULL-terminated); of a workload file
 * its content. */
NT_MUST_CHECK int nt_changed_asked(const struct nt_opt *opts, const void *values,
                                   const char *const *except, char hex[NT_HEX_LEN + 1],
                                   struct nt_err *err);
/* *ret_changed, which a profile that is gone or unreadable is, too, and the words for people. A
 * machine that cannot be read is an error. */
NT_MUST_CHECK int nt_changed_look(const struct nt_changed *c, bool *ret_changed, char *words,
                                  size_t size, struct nt_err *err);
/* It ended well on the machine as it is. */
NT_MUST_CHECK int nt_changed_remember(const struct nt_changed *c, struct nt_err *err);
