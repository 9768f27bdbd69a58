/*
 * stream - a rank's end of the protocol for probes that do one thing at a time: blocking, no
 * thread. (The NCCL probe has its own, because NCCL may hang.)
 *
 * Errors   NT_E_IO: the driver is gone; NT_E_PROTO: it said what is not the protocol. A caller ends
 *          its process on either.
 */
#pragma once
#include "probes/protocol/protocol.h"

struct nt_stream {
    int fd;
    struct nt_buf in; /* what was read and not yet taken */
};

/* driver: the value of NT_ENV_DRIVER; only unix:PATH. */
NT_MUST_CHECK int nt_stream_open(const char *driver, struct nt_stream *ret, struct nt_err *err);
void nt_stream_close(struct nt_stream *s);
NT_MUST_CHECK int nt_stream_send(struct nt_stream *s, const struct nt_msg *m, struct nt_err *err);
/* Waits. The caller frees *ret with nt_msg_done(). */
NT_MUST_CHECK int nt_stream_next(struct nt_stream *s, struct nt_msg *ret, struct nt_err *err);
/* The number in NT_ENV_RANK or NT_ENV_WORLD. */
NT_MUST_CHECK int nt_stream_env(const char *name, unsigned *ret, struct nt_err *err);
