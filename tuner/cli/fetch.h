/*
 * fetch - a request to a service: HTTP/1.1 over a Unix socket or plain TCP, blocking, with a limit
 * of time and size. TLS is the proxy's: for https there is curl.
 */
#pragma once
#include "tuner/base/buf.h"

struct nt_fetch {
    const char *from;  /* "unix:PATH" or "http://HOST:PORT" */
    const char *token; /* NULL: none */
    const char *method, *path;
    const char *body; /* JSON; NULL: none */
    const char *etag; /* of what is there already, without quotes; NULL: nothing */
};
enum { NT_FETCH_MAX_BYTES = 64 << 20, NT_FETCH_SECONDS = 30 };
/* A stream that is silent for so long is lost: the service says something every 15 s. */
enum { NT_FETCH_SILENT_SECONDS = 45, NT_FETCH_LINE_MAX = 1 << 20 };

/* Whether `from` names a service at all: NT_E_INVAL, before anything is asked. */
NT_MUST_CHECK int nt_fetch_check(const char *from, struct nt_err *err);
/* *ret_status; the body is appended. A service that cannot be reached: NT_E_IO. */
NT_MUST_CHECK int nt_fetch(const struct nt_fetch *f, unsigned *ret_status, struct nt_buf *body,
                           struct nt_err *err);

/* A line of a stream, without its end; 0: go on, 1: enough, or -enum nt_code. */
typedef int (*nt_fetch_line_cb)(void *data, const char *line, struct nt_err *err);
/* The lines of an answer that does not end, as they come, when *ret_status is 200; another answer
 * is appended to body. NT_E_IO when the stream ended before cb had enough. */
NT_MUST_CHECK int nt_fetch_lines(const struct nt_fetch *f, nt_fetch_line_cb cb, void *data,
                                 unsigned *ret_status, struct nt_buf *body, struct nt_err *err);
