/*
 * http - HTTP/1.1 by libmicrohttpd on a libuv loop: listening, limits, requests, answers, streams.
 * Knows nothing of routes or of tuning.
 *
 * Limits     headers, body, connections, and time: to the end of the headers, of the body, and idle
 *            between requests; reaching one ends the connection (or is 413).
 * Ownership  a request belongs to this part; the app may use it from on_request until it calls
 *            nt_http_answer(), once, then or later, on the loop thread. Its client may be gone by
 *            then: that is noticed here.
 * Threads    all on the loop's, except that a thread may read a request and fill its answer between
 *            on_request and nt_http_answer().
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>
#include "tuner/base/buf.h"

enum { NT_HTTP_ARGS = 16, NT_HTTP_LISTENERS = 4 };

struct nt_http_limits {
    unsigned connections;
    size_t header_bytes, body_bytes;
    unsigned head_ms, body_ms; /* from the request's first line */
    unsigned send_ms;          /* for a client to take its answer */
    unsigned idle_ms;          /* between requests */
};
extern const struct nt_http_limits nt_http_default_limits;

/* An answer that many requests share: its bytes are kept once. */
struct nt_http_shared; /* opaque, counted */
struct nt_http_shared *nt_http_shared_new(unsigned status, const char *type, const char *etag,
                                          const char *cache, const void *data, size_t len);
/* One more holder; returns s. Who made or kept it drops it once; NULL is fine. */
struct nt_http_shared *nt_http_shared_keep(struct nt_http_shared *s);
void nt_http_shared_drop(struct nt_http_shared *s);
size_t nt_http_shared_bytes(const struct nt_http_shared *s);

struct nt_http_answer {
    unsigned status;
    const char *type; /* of the body; constant text */
    struct nt_buf body;
    const char *allow;             /* methods, for 405; constant text, NULL elsewhere */
    char etag[72];                 /* "": none */
    const char *cache;             /* Cache-Control; NULL: no-store */
    bool page;                     /* for browsers: policy headers */
    char name[96];                 /* of the file to save it as; "": none */
    struct nt_http_shared *shared; /* instead of all above; the request drops it */
    bool stream;                   /* the app's pull() gives the body, piece by piece */
};

struct nt_http_req {
    const char *method, *path;
    struct {
        const char *name, *value;
    } args[NT_HTTP_ARGS];
    size_t nargs;
    const char *authorization, *if_none_match, *content_type, *host, *origin, *fetch_site,
        *last_event_id; /* NULL: not sent */
    bool local;         /* came through a Unix socket; uid is its peer's */
    uid_t uid;
    struct nt_buf body;
    struct nt_http_answer answer;
    uint64_t cursor; /* the app's, of a stream */
    bool beat;       /* a stream that was silent for long; the app clears it */
    void *app;       /* the app's; freed by its on_end */
};

struct nt_http_app {
    /* The headers are there. True: answered already (r->answer), the body is not read. */
    bool (*on_head)(void *data, struct nt_http_req *r);
    /* The whole request is there. */
    void (*on_request)(void *data, struct nt_http_req *r);
    /* The next bytes of a stream; 0: none now, nt_http_wake() asks again. */
    size_t (*pull)(void *data, struct nt_http_req *r, char *out, size_t max);
    /* The request is over, whether answered or not. */
    void (*on_end)(void *data, struct nt_http_req *r);
    void *data;
};

struct nt_http_stats {
    uint64_t requests, accepted, timed_out, too_large;
    unsigned connections, streams;
    uint64_t by_status[6]; /* 1xx … 5xx */
};

struct nt_http; /* opaque */
NT_MUST_CHECK int nt_http_new(uv_loop_t *loop, const struct nt_http_limits *limits,
                              const struct nt_http_app *app, struct nt_http **ret,
                              struct nt_err *err);
/* "unix:PATH" (mode: of the socket) or "ADDR:PORT". A socket of a dead daemon is replaced, of a
 * living one refused. */
NT_MUST_CHECK int nt_http_listen(struct nt_http *h, const char *where, unsigned mode,
                                 struct nt_err *err);
/* Listens anew at a Unix socket whose name was removed or taken by another file. *ret_path: which,
 * also of a failure; NULL: each is where it was. */
NT_MUST_CHECK int nt_http_renew(struct nt_http *h, unsigned mode, const char **ret_path,
                                struct nt_err *err);
/* The port of a TCP listener asked for with port 0; 0: no such. */
unsigned nt_http_port(const struct nt_http *h);
void nt_http_answer(struct nt_http *h, struct nt_http_req *r);
void nt_http_wake(struct nt_http *h); /* streams have something to send */
/* Streams that sent nothing for so long are asked too, with `beat` set. */
void nt_http_beat(struct nt_http *h, uint64_t ms);
const struct nt_http_stats *nt_http_stats(const struct nt_http *h);
/* Ends all connections and frees; requests that the app holds end with on_end. */
void nt_http_close(struct nt_http *h);

const char *nt_http_arg(const struct nt_http_req *r, const char *name); /* NULL: not given */
/* "application/json" of "application/json; charset=utf-8". */
bool nt_http_type_is(const char *content_type, const char *type);
/* Whether an If-None-Match header names this tag. */
bool nt_http_etag_in(const char *header, const char *etag);
/* "ADDR:PORT" or "[ADDR]:PORT" into its parts; whether the address is of this machine only. */
NT_MUST_CHECK int nt_http_parse_address(const char *text, char *addr, size_t size,
                                        unsigned *ret_port, bool *ret_loopback, struct nt_err *err);
