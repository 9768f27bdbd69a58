/*
 * fake - a device and an NCCL without hardware, for the probe and whoever drives it.
 *
 * The device is host memory; streams run what is put on them at once, graphs keep it.
 * libfakenccl.so is opened by the probe like the real one; it moves data between the rank
 * processes, asks tuner and profiler plugins as NCCL does, and takes the time of a simple model.
 *
 * Environment
 *   FAKE_DEV_COUNT         devices, 8 unless set; 0: no GPU
 *   FAKE_DEV_CAPABILITY    90 unless set
 *   FAKE_DEV_LOST          RANK:N  after N waits for a stream every call of that rank fails
 *   FAKE_DEV_NO_PEER       memory is not shared between processes
 *   FAKE_DEV_BAD_COPY      copies between devices bring other data
 *   FAKE_SHOT_FAULT        KIND:RANK[:BYTES[:WHEN]] in our own kernels, in calls of at least BYTES
 *     hang                 that rank never comes
 *     wrong                one wrong byte at the end of its output
 *     WHEN                 replay: only when a graph is launched again; in-place; sometimes: in 3
 *                          of 10 calls
 *   FAKE_DEV_EVENT_FACTOR  times between events are multiplied by it
 *   FAKE_NCCL_SPEED        modelled times are multiplied by it (default 1)
 *   FAKE_NCCL_VERSION      22809 unless set; from 23003 on it asks a tuner (ABI v6) for chunk sizes
 *   FAKE_NCCL_CHUNKS       file to which rank 0 adds a line for each call in which that changed the
 *                          chunk: "PLUGIN BYTES CHUNK", the first as NCCL_TUNER_PLUGIN names it
 *   FAKE_NCCL_NO_WINDOWS   no symmetric windows
 *   FAKE_NCCL_EVENTS       "capture": a captured call's profiler event comes at capture, not replay
 *   FAKE_NCCL_FAULT        KIND:RANK[:BYTES[:ALGO[:PROTO]]], several separated by commas: on that
 *                          rank ("*": all), in calls of at least BYTES, through ALGO and PROTO
 *                          (names as in schema/vocab.h)
 *     hang crash error     never comes back; ends the process; the call fails
 *     wrong overrun input  one wrong byte at the end of the output; one just behind it; one in the
 *                          input
 *     lie                  the profiler is told of one channel more than was used
 *     init-hang init-crash init-error   in communicator creation
 *     abort-hang           ncclCommAbort does not come back
 */
#pragma once
#include <stdint.h>
#include "probes/nccl/dev.h"

/* Runs fn(arg) at once, or keeps it when the stream is being captured; free(arg) when it is no
 * longer needed. The result is fn's, 0 when kept. Exported by the program for the library. */
int fake_stream_put(struct CUstream_st *s, int (*fn)(void *arg), void *arg);
bool fake_stream_is_captured(struct CUstream_st *s);
/* Device memory that the library takes or gives back. */
void fake_memory_take(int64_t bytes);
