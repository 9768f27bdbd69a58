/* move - the data of one call, through the windows of the wire. */
#pragma once
#include "tests/probe/fake/wire.h"

struct move_call {
    enum nt_coll coll;
    const void *in;
    void *out;
    size_t count; /* as given to NCCL */
    int dtype;
    bool larger; /* max instead of sum */
    unsigned root;
};
/* What one rank sends to and receives from each other in a group; bytes 0: nothing. */
struct move_exchange {
    const void *in[WIRE_RANKS];
    void *out[WIRE_RANKS];
    uint64_t in_bytes[WIRE_RANKS], out_bytes[WIRE_RANKS];
};

/* 0, or -1 when aborted. */
int move_collective(struct wire *w, const struct move_call *c);
int move_exchanges(struct wire *w, const struct move_exchange *x);
