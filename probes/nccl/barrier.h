/*
 * barrier - all ranks of a host meet in a shared page, and vote while they are there.
 *
 * A vote is a small number; everybody learns the largest. That is how ranks keep in step when one
 * of them found something: the others stop at the same place instead of waiting in a collective.
 * The page is the driver's: zeroed, at least NT_BARRIER_BYTES, one for each gang.
 */
#pragma once
#include <stdint.h>
#include "tuner/base/err.h"

enum { NT_BARRIER_BYTES = 4096 };

struct nt_barrier_page;
struct nt_barrier {
    struct nt_barrier_page *page; /* NULL: not mapped */
    unsigned world;
    uint32_t round; /* of this rank */
};

NT_MUST_CHECK int nt_barrier_open(struct nt_barrier *b, const char *path, unsigned world,
                                  struct nt_err *err);
void nt_barrier_close(struct nt_barrier *b);
/* Returns when all ranks have come. deadline_ns: nt_now_ns() after which to give up with
 * -NT_E_INTERRUPTED; the barrier is broken from then on: the others fail with -NT_E_IO. */
NT_MUST_CHECK int nt_barrier_wait(struct nt_barrier *b, uint32_t vote, uint64_t deadline_ns,
                                  uint32_t *ret_vote, struct nt_err *err);
/* This rank will not come any more: the others fail at once instead of at their deadline. */
void nt_barrier_leave(struct nt_barrier *b);

uint64_t nt_now_ns(void); /* monotonic */
