/*
 * wire - memory that the ranks of a fake communicator share: a barrier, what each is calling, and a
 * window of data for each. It lives in an anonymous file of the rank that made the unique id, and
 * is opened by the others through /proc, so that nothing is ever left over.
 */
#pragma once
#include <stdatomic.h>
#include <stdint.h>
#include "probes/nccl/api.h"

enum { WIRE_RANKS = 64, WIRE_WINDOW = 1 << 16 };

struct wire_call { /* what must be the same on all ranks */
    int32_t coll, algo, proto, channels;
    uint64_t bytes, chunk;
};
struct wire_page;
struct wire {
    struct wire_page *page;
    unsigned rank, world;
    uint32_t round;
    atomic_bool aborted;
};

int wire_make_id(struct nt_nccl_id *ret);
/* 0, or -1. */
int wire_open(struct wire *w, const struct nt_nccl_id *id, unsigned rank, unsigned world);
void wire_close(struct wire *w);
/* Waits for all; -1 when aborted meanwhile. */
int wire_meet(struct wire *w);
/* Waits for ever, or until aborted: what NCCL does when a peer is missing. Always -1. */
int wire_hang(struct wire *w);
struct wire_call *wire_call_of(struct wire *w, unsigned rank);
unsigned char *wire_window_of(struct wire *w, unsigned rank);
