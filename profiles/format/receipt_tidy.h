/*
 * receipt_tidy - which receipts of processes that are gone may go. A receipt takes a quarter of a
 * mebibyte of memory, and nobody but these two takes it away: the writer, when there are too many,
 * and `doctor --clean`.
 *
 * Safety     only regular files of the caller's own, named as receipts (and their temporaries and
 *            meeting pages) are; nothing is followed, and what is removed is what was looked at.
 *            A process that lives keeps its receipt. One of another host name may live in a
 *            container whose processes are not seen here: it goes with the boot only.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* The writer's limit, and what `doctor --clean` leaves at most of dead processes. */
enum { NT_RECEIPTS_MOST = 512 };

struct nt_tidy_rule {
    uint64_t older_ns; /* dead ones last written to longer ago go; UINT64_MAX: none for their age */
    unsigned most;     /* files there may be; above it dead ones go, the oldest first */
    bool dry_run;
};
struct nt_tidied {
    unsigned seen, alive, young, foreign; /* foreign: not ours, or not what its name says */
    unsigned removed, failed;
    uint64_t bytes; /* that were given back */
};
/* folder: an open folder that only the caller can write to (nt_receipt_folder). 0, or -1 when it
 * cannot be listed or memory ran out. */
int nt_receipts_tidy(int folder, const struct nt_tidy_rule *rule, struct nt_tidied *ret);
