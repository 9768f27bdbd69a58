/*
 * model - what the fake NCCL believes, how long its calls take, and what goes wrong on purpose.
 *
 * Its beliefs are wrong on purpose too: it takes Ring for slower than it is in small calls, so that
 * there is something to find. Of NCCL's variables it knows NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS,
 * NCCL_ALGO and NCCL_PROTO.
 */
#pragma once
#include "schema/vocab.h"

struct model {
    unsigned rank, world;
    unsigned channels; /* of the communicator */
    double speed;
    bool masked[NT_TUNER_COLLS][NT_ALGO_COUNT][NT_PROTO_COUNT]; /* NCCL_ALGO, NCCL_PROTO */
};

void model_init(struct model *m, unsigned rank, unsigned world);
/* The table as NCCL shows it to a tuner: µs, -1 where impossible. */
void model_table(const struct model *m, enum nt_coll coll, uint64_t bytes,
                 float table[NT_ALGO_COUNT][NT_PROTO_COUNT]);
/* Channels that a call really uses; bound 0: NCCL's choice. */
unsigned model_channels(const struct model *m, uint64_t bytes, unsigned bound);
/* Chunks: its own, rounded down to the protocol's grain; and the largest that its buffers hold. */
uint64_t model_chunk(enum nt_coll coll, int algo, int proto);
/* How long a call takes. algo -1: send and receive. Large calls like chunks of a fourth of its own
 * best, half is next. */
uint64_t model_ns(const struct model *m, enum nt_coll coll, uint64_t bytes, int algo, int proto,
                  unsigned channels, uint64_t chunk);
/* Is this fault (fake.h) to happen on this rank in this call? */
bool model_fault(const struct model *m, const char *kind, uint64_t bytes, int algo, int proto);
