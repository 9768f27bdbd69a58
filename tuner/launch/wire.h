/*
 * wire - frames between the driver and the agent on a host: a kind, a number and bytes. Pure but
 * for nt_wire_send().
 *
 *   4 bytes length of the payload, 1 byte kind, 4 bytes number, payload; little-endian
 *
 * One connection a host carries everything, so what was said first arrives first: a rank's last
 * words before its end.
 */
#pragma once
#include <stdint.h>
#include <uv.h>
#include "tuner/base/buf.h"

enum { NT_WIRE_HEAD = 9, NT_WIRE_MAX = 8 << 20 };

enum nt_wire_kind {
    NT_WIRE_NODE,   /* agent: who it is (agent.h) */
    NT_WIRE_FILE,   /* driver: path, NUL, content */
    NT_WIRE_START,  /* driver: what to start; number: of the first rank */
    NT_WIRE_OPEN,   /* agent: a rank has connected; number: of the connection, as of DATA, CLOSE */
    NT_WIRE_DATA,   /* both */
    NT_WIRE_CLOSE,  /* both: no more of it */
    NT_WIRE_SIGNAL, /* driver: to all ranks; number: the signal */
    NT_WIRE_EXIT,   /* agent: a rank's end, what it wrote; number: of the rank on this host */
    NT_WIRE_WORDS,  /* agent: why it cannot go on */
    NT_WIRE_END,    /* driver: that was all */
    NT_WIRE_COUNT
};

struct nt_frame {
    enum nt_wire_kind kind;
    uint32_t id;
    const char *data; /* valid until the next call */
    size_t len;
};

/* What is begun and not whole yet. */
struct nt_wire {
    struct nt_buf in;
    size_t used; /* of in, by the frame that was handed out last */
};

void nt_wire_init(struct nt_wire *w);
void nt_wire_done(struct nt_wire *w);
/* NT_E_PROTO where memory runs out. */
NT_MUST_CHECK int nt_wire_feed(struct nt_wire *w, const char *data, size_t len, struct nt_err *err);
/* 1: *ret is a frame; 0: none is whole; NT_E_PROTO: an unknown kind, or too long. */
NT_MUST_CHECK int nt_wire_next(struct nt_wire *w, struct nt_frame *ret, struct nt_err *err);

/* Copies what has to wait. A stream that takes no more ends, and that is an event of its reading
 * side. */
void nt_wire_send(uv_stream_t *s, enum nt_wire_kind kind, uint32_t id, const void *data,
                  size_t len);
void nt_wire_put(uv_stream_t *s, const void *data, size_t len); /* without a head */

/* The strings of a payload, one after the other; NULL when there is none any more. */
const char *nt_wire_string(const struct nt_frame *f, size_t *at);
