/*
 * plugins - the tuner and the profiler that this program exports for NCCL's STATIC_PLUGIN: what to
 * ask NCCL for, what NCCL showed, and what it then executed.
 *
 * One communicator a process. The tuner is called inside the NCCL call that the main thread makes
 * (or a thread that NCCL joins before it returns); the profiler also from NCCL's own threads.
 */
#pragma once
#include "schema/vocab.h"

/* What the tuner saw of the calls since nt_tuner_ask(). */
struct nt_tuner_seen {
    bool consulted;
    bool unavailable;     /* the asked cell is not one that NCCL allows: nothing was forced */
    uint32_t chunk_bytes; /* NCCL's own, the largest over its channels; 0: not shown */
    float cost[NT_ALGO_COUNT][NT_PROTO_COUNT]; /* as shown, µs; negative: unavailable */
};

/* From now on: calls of `coll` get what `call` asks for; others are left alone. Forgets what was
 * seen. */
void nt_tuner_ask(enum nt_coll coll, const struct nt_call *call);
/* Leaves all calls alone until the next nt_tuner_ask(); what was seen stays. */
void nt_tuner_rest(void);
/* Takes up again what nt_tuner_rest() left. */
void nt_tuner_resume(void);
void nt_tuner_seen(struct nt_tuner_seen *ret);
/* Interface version through which NCCL opened the tuner; 0: it did not. */
int nt_tuner_version(void);

/* Forgets the last event and switches collective events on. */
void nt_profiler_on(void);
void nt_profiler_off(void);
/* The first collective since nt_profiler_on(), waiting at most wait_ms for it. False: none came. */
bool nt_profiler_executed(unsigned wait_ms, struct nt_executed *ret);
int nt_profiler_version(void); /* 0: NCCL did not open it */
