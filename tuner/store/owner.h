/* owner - which process drives a job. A pid alone comes round; with the boot of the machine and the
 * process's start time it does not. Databases on network file systems are not supported by WAL, so
 * the owner is always of this machine; another boot id means that it ended. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "tuner/base/err.h"

struct nt_owner {
    int64_t pid, start; /* start: clock ticks since boot */
    char boot[40];
};

/* This process. */
NT_MUST_CHECK int nt_owner_self(struct nt_owner *ret, struct nt_err *err);
/* Any process of this machine as it is now; false when there is none. */
bool nt_owner_of(int64_t pid, struct nt_owner *ret);
bool nt_owner_alive(const struct nt_owner *o);
