/*
 * dev - all that the probe needs of a device: memory, streams, events, graphs, and kernels that
 * fill, compare, wait for each other and keep the device busy. dev_cuda.c and kernels.cu are the
 * real one; the fake of tests/probe implements the same functions on host memory.
 *
 * Errors     0 or -code with words; -NT_E_MISSING when there is no usable device.
 * Ownership  *_open and *_alloc give to the caller, *_close and *_free take NULL.
 * Threads    one thread, except that nt_dev_busy_start() keeps a thread of its own.
 */
#pragma once
#include <stddef.h>
#include "probes/nccl/pattern.h"
#include "tuner/base/err.h"

/* CUDA's own opaque types, so that a stream can be handed to NCCL as it is. */
struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

struct nt_shot; /* shots.h */

struct nt_dev_info {
    char uuid[64], pci[32], name[64];
    uint64_t memory_bytes, l2_bytes;
    int capability; /* 90 for compute capability 9.0 */
    unsigned multiprocessors;
};

struct nt_dev; /* one open device; opaque */

NT_MUST_CHECK int nt_dev_count(unsigned *ret, struct nt_err *err);
NT_MUST_CHECK int nt_dev_describe(unsigned device, struct nt_dev_info *ret, struct nt_err *err);
/* 0 where unknown. */
void nt_dev_versions(int *ret_cuda, int *ret_driver);

NT_MUST_CHECK int nt_dev_open(unsigned device, struct nt_dev **ret, struct nt_err *err);
void nt_dev_close(struct nt_dev *d);
/* Calls without a device in hand go to this one from now on; the last opened one before. */
NT_MUST_CHECK int nt_dev_use(struct nt_dev *d, struct nt_err *err);
/* What the driver says of one device's way to another; switches access on where there is one. */
struct nt_reach {
    bool access, atomics;
    int rank; /* the driver's performance rank, smaller is better */
};
NT_MUST_CHECK int nt_dev_reach(struct nt_dev *from, struct nt_dev *to, struct nt_reach *ret,
                               struct nt_err *err);
NT_MUST_CHECK int nt_dev_copy(struct nt_dev *to_dev, void *to, struct nt_dev *from_dev,
                              const void *from, size_t bytes, struct CUstream_st *s,
                              struct nt_err *err);
NT_MUST_CHECK int nt_dev_free_bytes(struct nt_dev *d, uint64_t *ret, struct nt_err *err);
NT_MUST_CHECK int nt_dev_alloc(struct nt_dev *d, size_t bytes, void **ret, struct nt_err *err);
void nt_dev_free(struct nt_dev *d, void *p);
/* Between host and device; wait for the copy. */
NT_MUST_CHECK int nt_dev_put(struct nt_dev *d, void *to, const void *from, size_t bytes,
                             struct nt_err *err);
NT_MUST_CHECK int nt_dev_get(struct nt_dev *d, void *to, const void *from, size_t bytes,
                             struct nt_err *err);
/* Memory of nt_dev_alloc() for the other processes of the host, which may be on other devices. */
struct nt_dev_handle {
    char bytes[64];
};
NT_MUST_CHECK int nt_dev_share(struct nt_dev *d, void *p, struct nt_dev_handle *ret,
                               struct nt_err *err);
NT_MUST_CHECK int nt_dev_map(struct nt_dev *d, const struct nt_dev_handle *h, void **ret,
                             struct nt_err *err);
void nt_dev_unmap(struct nt_dev *d, void *p);
/* Pins host memory (whole pages); *ret: where the device sees it. */
NT_MUST_CHECK int nt_dev_pin(struct nt_dev *d, void *host, size_t bytes, void **ret,
                             struct nt_err *err);
void nt_dev_unpin(struct nt_dev *d, void *host);
/* An error after which no call of this process will work again. */
bool nt_dev_is_lost(struct nt_dev *d);

NT_MUST_CHECK int nt_stream_open(struct nt_dev *d, struct CUstream_st **ret, struct nt_err *err);
void nt_stream_close(struct nt_dev *d, struct CUstream_st *s);
NT_MUST_CHECK int nt_stream_sync(struct CUstream_st *s, struct nt_err *err);

/* Without waiting. */
NT_MUST_CHECK int nt_stream_done(struct CUstream_st *s, bool *ret, struct nt_err *err);

NT_MUST_CHECK int nt_event_open(struct CUevent_st **ret, struct nt_err *err);
void nt_event_close(struct CUevent_st *e);
NT_MUST_CHECK int nt_event_record(struct CUevent_st *e, struct CUstream_st *s, struct nt_err *err);
/* As a part of the graph that is being captured: each launch records it. */
NT_MUST_CHECK int nt_event_capture(struct CUevent_st *e, struct CUstream_st *s, struct nt_err *err);
/* Both must have happened. */
NT_MUST_CHECK int nt_event_between_ns(struct CUevent_st *from, struct CUevent_st *to, uint64_t *ret,
                                      struct nt_err *err);

/* What is put on the stream between the two is kept and not run. The second call ends the capture
 * even when it fails. */
NT_MUST_CHECK int nt_capture_begin(struct CUstream_st *s, struct nt_err *err);
NT_MUST_CHECK int nt_capture_end(struct CUstream_st *s, struct CUgraphExec_st **ret,
                                 struct nt_err *err);
/* What a launch needs is on the device afterwards: launching it allocates nothing. */
NT_MUST_CHECK int nt_graph_upload(struct CUgraphExec_st *g, struct CUstream_st *s,
                                  struct nt_err *err);
NT_MUST_CHECK int nt_graph_launch(struct CUgraphExec_st *g, struct CUstream_st *s,
                                  struct nt_err *err);
void nt_graph_free(struct CUgraphExec_st *g);

/* Kernels; all are put on the stream. */
NT_MUST_CHECK int nt_dev_fill(struct CUstream_st *s, void *buf, uint64_t count,
                              const struct nt_pattern *p, struct nt_err *err);
/* Adds the number of elements that differ to the device's counter. */
NT_MUST_CHECK int nt_dev_compare(struct nt_dev *d, struct CUstream_st *s, const void *buf,
                                 uint64_t count, const struct nt_pattern *p, struct nt_err *err);
/* The same for elements of a that have other bits than those of b. */
NT_MUST_CHECK int nt_dev_differ(struct nt_dev *d, struct CUstream_st *s, const void *a,
                                const void *b, uint64_t count, unsigned elem_bytes,
                                struct nt_err *err);
/* Waits for the stream, gives the counter and sets it to zero. */
NT_MUST_CHECK int nt_dev_differing(struct nt_dev *d, struct CUstream_st *s, uint64_t *ret,
                                   struct nt_err *err);
/* A small kernel that depends on what is before it. */
NT_MUST_CHECK int nt_dev_tick(struct nt_dev *d, struct CUstream_st *s, struct nt_err *err);

/* Loads the kernels of shots.h for `world` ranks; *ret_blocks: blocks that the device holds at
 * once.
 */
NT_MUST_CHECK int nt_dev_shots_load(struct nt_dev *d, unsigned world, unsigned *ret_blocks,
                                    struct nt_err *err);
NT_MUST_CHECK int nt_dev_shot(struct CUstream_st *s, const struct nt_shot *shot, unsigned blocks,
                              struct nt_err *err);

/* Matrix products back to back on a stream of their own until stopped: half of the device, or of
 * the part that is left to each of so many ranks that share it. */
NT_MUST_CHECK int nt_dev_busy_start(struct nt_dev *d, unsigned sharers, struct nt_err *err);
int nt_dev_busy_stop(struct nt_dev *d, struct nt_err *err); /* also when not started */
