/*
 * workdir - the private folder of a running job, below TMPDIR: sockets, logs, the daemon's pipes.
 * What a killed driver left behind is cleared away by the next one.
 */
#pragma once
#include "tuner/base/err.h"

struct nt_workdir {
    char path[64]; /* short: sockets live in it */
    int lock;      /* held while the owner lives */
};

/* tmpdir: NULL or "" for /tmp. Also removes folders of this user whose owner is gone, and ends
 * their MPS daemons. */
NT_MUST_CHECK int nt_workdir_make(const char *tmpdir, struct nt_workdir *ret, struct nt_err *err);
void nt_workdir_remove(struct nt_workdir *w);
