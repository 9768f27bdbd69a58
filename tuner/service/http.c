#include "tuner/service/http.h"
#include "tuner/base/log.h"
#include "tuner/service/listen.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SWEEP_MS = 1000, STREAM_BLOCK = 16384, FEW_LEFT = 10 };

const struct nt_http_limits nt_http_default_limits = {.connections = 1024,
                                                      .header_bytes = 16384,
                                                      .body_bytes = 1 << 20,
                                                      .head_ms = 10000,
                                                      .body_ms = 20000,
                                                      .send_ms = 60000,
                                                      .idle_ms = 60000};

struct nt_http_shared {
    struct MHD_Response *response, *unchanged; /* 200 and 304 */
    unsigned status, holders;
    char etag[72];
    size_t bytes;
};

struct conn { /* one accepted connection */
    struct conn *next, **prev;
    int fd;
    uint64_t since_ms; /* of the connection, or of its last request's end */
    uint64_t begun_ms; /* first line of the request that is being read; 0: none */
    uint64_t moved_ms; /* when an answer was begun, or a stream last asked for bytes; 0: neither */
    bool busy;         /* a request is being answered */
    bool local, ended;
    uid_t uid;
};

struct request {
    struct nt_http_req pub;
    struct nt_http *http;
    struct conn *conn;
    struct MHD_Connection *mhd;
    struct request *next, **prev; /* of the streams, or of those that the app holds */
    bool linked;
    bool handed; /* to the app */
    bool ready;  /* the answer is there */
    bool suspended;
    bool too_large;
    bool refused; /* the answer is there, its body is still to be read, and thrown away */
    size_t seen_bytes;
    uint64_t spoke_ms; /* a stream's last bytes */
};

enum { RENEWALS = 28 }; /* of sockets whose name was taken away */

struct listener {
    struct MHD_Daemon *mhd;
    uv_poll_t poll;
    struct nt_listen_name name;
    unsigned port;
    bool open;
};

struct nt_http {
    uv_loop_t *loop;
    struct nt_http_limits limits;
    struct nt_http_app app;
    struct listener listener[NT_HTTP_LISTENERS + RENEWALS];
    size_t nlisteners;
    uv_timer_t timer, sweep;
    struct conn *conns;
    struct request *held; /* suspended: streams and requests at the app */
    struct nt_http_stats stats;
    bool closing;
    unsigned handles; /* open ones */
};

/* --- answers ------------------------------------------------------------------------------------
 */

static void header(struct MHD_Response *r, const char *name, const char *value)
{
    (void)MHD_add_response_header(r, name, value);
}

static void common_headers(struct MHD_Response *r, const char *type, const char *etag,
                           const char *cache)
{
    if (type != NULL) {
        header(r, "Content-Type", type);
    }
    if (etag != NULL && etag[0] != '\0') {
        header(r, "ETag", etag);
    }
    header(r, "Cache-Control", cache != NULL ? cache : "no-store");
    header(r, "X-Content-Type-Options", "nosniff");
}

static void page_headers(struct MHD_Response *r)
{
    header(r, "Content-Security-Policy",
           "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' "
           "data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
           "frame-ancestors 'none'");
    header(r, "Referrer-Policy", "no-referrer");
    header(r, "Cross-Origin-Opener-Policy", "same-origin");
}

struct nt_http_shared *nt_http_shared_new(unsigned status, const char *type, const char *etag,
                                          const char *cache, const void *data, size_t len)
{
    struct nt_http_shared *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    s->status = status;
    s->holders = 1;
    s->bytes = len;
    (void)snprintf(s->etag, sizeof(s->etag), "%s", etag);
    s->response = MHD_create_response_from_buffer(len, (void *)data, MHD_RESPMEM_MUST_COPY);
    s->unchanged = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (s->response == NULL || s->unchanged == NULL) {
        nt_http_shared_drop(s);
        return NULL;
    }
    common_headers(s->response, type, etag, cache);
    common_headers(s->unchanged, NULL, etag, cache);
    return s;
}

struct nt_http_shared *nt_http_shared_keep(struct nt_http_shared *s)
{
    if (s != NULL) {
        s->holders++;
    }
    return s;
}

/* An answer that is made, but not queued yet, is no holder for libmicrohttpd: hence the count. */
void nt_http_shared_drop(struct nt_http_shared *s)
{
    if (s != NULL && --s->holders == 0) {
        if (s->response != NULL) {
            MHD_destroy_response(s->response); /* those on their way keep it */
        }
        if (s->unchanged != NULL) {
            MHD_destroy_response(s->unchanged);
        }
        free(s);
    }
}

size_t nt_http_shared_bytes(const struct nt_http_shared *s)
{
    return s->bytes;
}

static bool empty_status(unsigned status)
{
    return status == 204 || status == 304;
}

static ssize_t read_stream(void *cls, uint64_t pos, char *out, size_t max)
{
    struct request *r = cls;
    size_t n;
    (void)pos;
    if (r->http->closing) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    n = r->http->app.pull(r->http->app.data, &r->pub, out, max);
    r->conn->moved_ms = uv_now(r->http->loop);
    if (n > 0) {
        r->spoke_ms = r->conn->moved_ms;
    }
    if (n == 0) { /* libmicrohttpd asks again at once unless it is put to sleep */
        r->conn->moved_ms = 0;
        r->suspended = true;
        MHD_suspend_connection(r->mhd);
    }
    return (ssize_t)n;
}

static struct MHD_Response *make_response(struct request *r)
{
    struct nt_http_answer *a = &r->pub.answer;
    struct MHD_Response *m;

    if (a->stream) {
        m = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, r, NULL);
    } else if (a->body.data != NULL && !a->body.failed && !empty_status(a->status)) {
        m = MHD_create_response_from_buffer(a->body.len, a->body.data, MHD_RESPMEM_MUST_FREE);
        if (m != NULL) { /* libmicrohttpd's now */
            nt_buf_init(&a->body, a->body.max);
        }
    } else {
        m = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    }
    if (m == NULL) {
        return NULL;
    }
    common_headers(m, empty_status(a->status) ? NULL : a->type, a->etag, a->cache);
    if (a->allow != NULL) {
        header(m, "Allow", a->allow);
    }
    if (a->status == 401) {
        header(m, "WWW-Authenticate", "Bearer");
    }
    if (a->page) {
        page_headers(m);
    }
    if (a->name[0] != '\0') {
        char text[160];
        (void)snprintf(text, sizeof(text), "attachment; filename=\"%s\"", a->name);
        header(m, "Content-Disposition", text);
    }
    return m;
}

static void link_held(struct request *r)
{
    struct nt_http *h = r->http;
    r->next = h->held;
    r->prev = &h->held;
    if (r->next != NULL) {
        r->next->prev = &r->next;
    }
    h->held = r;
    r->linked = true;
}

static void unlink_held(struct request *r)
{
    if (r->linked) {
        *r->prev = r->next;
        if (r->next != NULL) {
            r->next->prev = r->prev;
        }
        r->linked = false;
    }
}

static enum MHD_Result send_answer(struct request *r)
{
    struct nt_http *h = r->http;
    struct nt_http_answer *a = &r->pub.answer;
    struct nt_http_shared *s = a->shared;
    struct MHD_Response *m;
    unsigned status = a->status;
    enum MHD_Result ok;

    r->conn->begun_ms = 0;
    r->conn->moved_ms = uv_now(h->loop);
    if (s != NULL) {
        bool same = s->etag[0] != '\0' && nt_http_etag_in(r->pub.if_none_match, s->etag);
        status = same ? 304 : s->status;
        ok = MHD_queue_response(r->mhd, status, same ? s->unchanged : s->response);
    } else {
        if (a->status == 200 && a->etag[0] != '\0' &&
            nt_http_etag_in(r->pub.if_none_match, a->etag)) {
            a->status = status = 304;
        }
        m = make_response(r);
        if (m == NULL) {
            return MHD_NO;
        }
        if (a->stream) {
            h->stats.streams++;
            link_held(r);
        }
        ok = MHD_queue_response(r->mhd, status, m);
        MHD_destroy_response(m);
    }
    h->stats.by_status[status / 100 < 6 ? status / 100 : 5]++;
    return ok;
}

/* --- requests -----------------------------------------------------------------------------------
 */

static enum MHD_Result take_arg(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_len,
                                const char *value, size_t value_len)
{
    struct request *r = cls;
    (void)kind;
    if (r->pub.nargs == NT_HTTP_ARGS || strlen(key) != key_len ||
        (value != NULL && strlen(value) != value_len)) {
        r->too_large = true; /* more than any route takes, or a NUL inside */
        return MHD_NO;
    }
    r->pub.args[r->pub.nargs].name = key;
    r->pub.args[r->pub.nargs++].value = value != NULL ? value : "";
    return MHD_YES;
}

static const char *request_header(const struct request *r, const char *name)
{
    return MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, name);
}

static void refuse(struct request *r, unsigned status, const char *code, const char *words)
{
    struct nt_http_answer *a = &r->pub.answer;
    a->status = status;
    a->type = "application/json";
    nt_buf_clear(&a->body);
    nt_buf_printf(&a->body, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}", code, words);
    r->http->stats.too_large += status == 413;
}

/* A client that is still sending would not read an answer, but see its connection break. */
static bool has_body(const struct request *r)
{
    const char *text = request_header(r, "Content-Length");
    return request_header(r, "Transfer-Encoding") != NULL ||
           (text != NULL && strcmp(text, "0") != 0);
}

static bool body_too_large(const struct request *r)
{
    const char *text = request_header(r, "Content-Length");
    return text != NULL &&
           (strlen(text) > 18 || strtoull(text, NULL, 10) > r->http->limits.body_bytes);
}

/* libmicrohttpd is given room for twice as much, so that it is us who refuse. */
static bool head_too_large(const struct request *r)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info != NULL && info->header_size > r->http->limits.header_bytes;
}

static enum MHD_Result begin(struct nt_http *h, struct MHD_Connection *mhd, struct conn *conn,
                             const char *url, const char *method, const char *version, void **ret)
{
    struct request *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return MHD_NO;
    }
    *ret = r;
    h->stats.requests++;
    conn->busy = true;
    r->http = h;
    r->mhd = mhd;
    r->conn = conn;
    r->pub.method = strcmp(method, "HEAD") == 0 ? "GET" : method;
    r->pub.path = url;
    r->pub.local = conn->local;
    r->pub.uid = conn->uid;
    nt_buf_init(&r->pub.body, h->limits.body_bytes);
    nt_buf_init(&r->pub.answer.body, (size_t)64 << 20);
    r->pub.authorization = request_header(r, "Authorization");
    r->pub.if_none_match = request_header(r, "If-None-Match");
    r->pub.content_type = request_header(r, "Content-Type");
    r->pub.host = request_header(r, "Host");
    r->pub.origin = request_header(r, "Origin");
    r->pub.fetch_site = request_header(r, "Sec-Fetch-Site");
    r->pub.last_event_id = request_header(r, "Last-Event-ID");
    (void)MHD_get_connection_values_n(mhd, MHD_GET_ARGUMENT_KIND, take_arg, r);
    if (r->too_large) {
        r->too_large = false;
        refuse(r, 400, "bad_input", "too many parameters, or a NUL in one");
        return send_answer(r);
    }
    if (head_too_large(r)) {
        refuse(r, 431, "too_large", "the headers are larger than the limit");
        return send_answer(r);
    }
    if (r->pub.host == NULL && strcmp(version, "HTTP/1.1") == 0) {
        refuse(r, 400, "bad_input", "HTTP/1.1 asks for a Host header");
        return send_answer(r);
    }
    if (body_too_large(r)) {
        refuse(r, 413, "too_large", "the body is larger than the limit");
        return send_answer(r);
    }
    if (!h->app.on_head(h->app.data, &r->pub)) {
        return MHD_YES;
    }
    r->refused = has_body(r);
    return r->refused ? MHD_YES : send_answer(r);
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *mhd, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *size, void **ctx)
{
    struct nt_http *h = cls;
    struct request *r = *ctx;
    const union MHD_ConnectionInfo *info;

    if (r == NULL) {
        info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        return info == NULL || info->socket_context == NULL
                   ? MHD_NO
                   : begin(h, mhd, info->socket_context, url, method, version, ctx);
    }
    if (*size > 0) { /* no answer is allowed before the body's end */
        r->seen_bytes += *size;
        r->too_large = r->too_large || r->seen_bytes > h->limits.body_bytes;
        if (r->seen_bytes > 4 * h->limits.body_bytes) {
            h->stats.too_large++;
            return MHD_NO;
        }
        if (!r->too_large && !r->refused) {
            nt_buf_add(&r->pub.body, data, *size);
        }
        *size = 0;
        return MHD_YES;
    }
    r->conn->begun_ms = 0;
    if (r->refused) {
        return send_answer(r);
    }
    if (r->too_large || r->pub.body.failed) {
        refuse(r, 413, "too_large", "the body is larger than the limit");
        return send_answer(r);
    }
    if (!r->handed) {
        r->handed = true;
        h->app.on_request(h->app.data, &r->pub);
        if (!r->ready) {
            r->suspended = true;
            link_held(r);
            MHD_suspend_connection(mhd);
            return MHD_YES;
        }
    }
    return r->ready ? send_answer(r) : MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **ctx,
                         enum MHD_RequestTerminationCode why)
{
    struct nt_http *h = cls;
    struct request *r = *ctx;
    (void)mhd;
    (void)why;
    if (r == NULL) {
        return;
    }
    *ctx = NULL;
    if (r->pub.answer.stream && r->linked) {
        h->stats.streams--;
    }
    unlink_held(r);
    r->conn->busy = false;
    r->conn->begun_ms = r->conn->moved_ms = 0;
    r->conn->since_ms = uv_now(h->loop);
    h->app.on_end(h->app.data, &r->pub);
    nt_buf_done(&r->pub.body);
    nt_buf_done(&r->pub.answer.body);
    nt_http_shared_drop(r->pub.answer.shared);
    free(r);
}

/* The first line of a request is there. */
static void *on_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct nt_http *h = cls;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    (void)uri;
    if (info != NULL && info->socket_context != NULL) {
        ((struct conn *)info->socket_context)->begun_ms = uv_now(h->loop);
    }
    return NULL;
}

/* --- connections --------------------------------------------------------------------------------
 */

static void on_sweep(uv_timer_t *t);

static void on_connection(void *cls, struct MHD_Connection *mhd, void **ctx,
                          enum MHD_ConnectionNotificationCode code)
{
    struct nt_http *h = cls;
    struct conn *c = *ctx;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        c = calloc(1, sizeof(*c));
        if (c == NULL) {
            return; /* its requests are refused */
        }
        c->fd = info != NULL ? info->connect_fd : -1;
        c->since_ms = uv_now(h->loop);
        c->local = nt_listen_peer(c->fd, &c->uid);
        c->next = h->conns;
        c->prev = &h->conns;
        if (c->next != NULL) {
            c->next->prev = &c->next;
        }
        h->conns = c;
        if (h->stats.connections == 0) {
            (void)uv_timer_start(&h->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
        }
        h->stats.connections++;
        h->stats.accepted++;
        *ctx = c;
    } else if (c != NULL) {
        *c->prev = c->next;
        if (c->next != NULL) {
            c->next->prev = c->prev;
        }
        h->stats.connections--;
        if (h->stats.connections == 0) { /* nobody to look after: the loop sleeps */
            (void)uv_timer_stop(&h->sweep);
        }
        free(c);
        *ctx = NULL;
    }
}

/* Those that keep a connection without using it, or feed a request drop by drop. */
static void on_sweep(uv_timer_t *t)
{
    struct nt_http *h = t->data;
    const struct nt_http_limits *l = &h->limits;
    uint64_t now = uv_now(h->loop);
    /* With few left, who only waits makes room. */
    bool tight = h->stats.connections + h->stats.connections / FEW_LEFT >= l->connections;

    for (struct conn *c = h->conns; c != NULL; c = c->next) {
        uint64_t idle = tight ? l->idle_ms / 30 : l->idle_ms;
        bool late = c->begun_ms != 0   ? now - c->begun_ms > (c->busy ? l->body_ms : l->head_ms)
                    : c->moved_ms != 0 ? now - c->moved_ms > l->send_ms
                                       : !c->busy && now - c->since_ms > idle;
        if (late && !c->ended && c->fd >= 0) {
            c->ended = true;
            h->stats.timed_out++;
            (void)shutdown(c->fd, SHUT_RDWR); /* libmicrohttpd sees the end and cleans up */
        }
    }
}

/* --- the loop -----------------------------------------------------------------------------------
 */

static void on_timer(uv_timer_t *t);

static void run(struct nt_http *h)
{
    MHD_UNSIGNED_LONG_LONG least = UINT64_MAX, ms;
    for (size_t i = 0; i < h->nlisteners; i++) {
        struct MHD_Daemon *d = h->listener[i].mhd;
        (void)MHD_run(d);
        if (MHD_get_timeout(d, &ms) == MHD_YES && ms < least) {
            least = ms;
        }
    }
    if (least != UINT64_MAX) {
        (void)uv_timer_start(&h->timer, on_timer, least, 0);
    } else {
        (void)uv_timer_stop(&h->timer);
    }
}

static void on_timer(uv_timer_t *t)
{
    run(t->data);
}

static void on_poll(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    run(p->data);
}

static void resume(struct request *r)
{
    if (r->suspended) {
        r->suspended = false;
        MHD_resume_connection(r->mhd);
    }
}

void nt_http_answer(struct nt_http *h, struct nt_http_req *r)
{
    struct request *own = (struct request *)(void *)r; /* its first member */
    nt_assert(own->handed && !own->ready);
    own->ready = true;
    if (own->suspended) {
        unlink_held(own);
        resume(own);
        (void)uv_timer_start(&h->timer, on_timer, 0, 0);
    }
}

/* Streams that were silent for `ms`, 0: all. */
static void wake(struct nt_http *h, uint64_t ms)
{
    uint64_t now = uv_now(h->loop);
    bool any = false;
    for (struct request *r = h->held; r != NULL; r = r->next) {
        if (r->pub.answer.stream && r->suspended && now - r->spoke_ms >= ms) {
            r->pub.beat = ms > 0;
            resume(r);
            any = true;
        }
    }
    if (any) {
        (void)uv_timer_start(&h->timer, on_timer, 0, 0);
    }
}

void nt_http_wake(struct nt_http *h)
{
    wake(h, 0);
}

void nt_http_beat(struct nt_http *h, uint64_t ms)
{
    wake(h, ms);
}

const struct nt_http_stats *nt_http_stats(const struct nt_http *h)
{
    return &h->stats;
}

unsigned nt_http_port(const struct nt_http *h)
{
    for (size_t i = 0; i < h->nlisteners; i++) {
        if (h->listener[i].port != 0) {
            return h->listener[i].port;
        }
    }
    return 0;
}

/* --- opening and closing ------------------------------------------------------------------------
 */

static void log_mhd(void *cls, const char *fmt, va_list ap) NT_PRINTF(2, 0);

static void log_mhd(void *cls, const char *fmt, va_list ap)
{
    char line[512];
    (void)cls;
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    line[strcspn(line, "\n")] = '\0';
    nt_log(NT_DEBUG, "http: %s", line);
}

int nt_http_new(uv_loop_t *loop, const struct nt_http_limits *limits, const struct nt_http_app *app,
                struct nt_http **ret, struct nt_err *err)
{
    struct nt_http *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "http");
    }
    h->loop = loop;
    h->limits = limits != NULL ? *limits : nt_http_default_limits;
    h->app = *app;
    (void)uv_timer_init(loop, &h->timer);
    (void)uv_timer_init(loop, &h->sweep);
    h->timer.data = h->sweep.data = h;
    h->handles = 2;
    *ret = h;
    return 0;
}

static int listen_at(struct nt_http *h, const char *where, unsigned mode, struct nt_err *err)
{
    struct listener *l = &h->listener[h->nlisteners];
    const union MHD_DaemonInfo *info;
    int fd = -1, rc;

    rc = nt_listen_open(where, mode, &fd, &l->name, &l->port, err);
    if (rc != 0) {
        return rc;
    }
    l->mhd = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_access, h,
        MHD_OPTION_EXTERNAL_LOGGER, log_mhd, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, h->limits.connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        2 * h->limits.header_bytes, MHD_OPTION_CONNECTION_TIMEOUT, 0U, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_URI_LOG_CALLBACK, on_uri, h, MHD_OPTION_STRICT_FOR_CLIENT, 0, MHD_OPTION_END);
    if (l->mhd == NULL) {
        (void)close(fd);
        return nt_fail(err, NT_E_IO, 0, "%s: the server could not be started", where);
    }
    info = MHD_get_daemon_info(l->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    rc = info != NULL ? uv_poll_init(h->loop, &l->poll, info->epoll_fd) : UV_EINVAL;
    if (rc != 0) {
        MHD_stop_daemon(l->mhd);
        return nt_fail(err, NT_E_IO, -rc, "%s: the server cannot be watched", where);
    }
    l->poll.data = h;
    l->open = true;
    h->handles++;
    h->nlisteners++;
    (void)uv_poll_start(&l->poll, UV_READABLE, on_poll);
    return 0;
}

int nt_http_listen(struct nt_http *h, const char *where, unsigned mode, struct nt_err *err)
{
    return h->nlisteners < NT_HTTP_LISTENERS
               ? listen_at(h, where, mode, err)
               : nt_fail(err, NT_E_INVAL, 0, "at most %d places to listen at", NT_HTTP_LISTENERS);
}

/* The old one stays, for its connections and for who knows it by another name. */
int nt_http_renew(struct nt_http *h, unsigned mode, const char **ret_path, struct nt_err *err)
{
    char where[sizeof("unix:") + sizeof(h->listener[0].name.path)];
    int rc = 0;

    *ret_path = NULL;
    for (size_t i = 0, n = h->nlisteners; i < n; i++) {
        struct nt_listen_name *name = &h->listener[i].name;
        if (nt_listen_there(name)) {
            continue;
        }
        (void)snprintf(where, sizeof(where), "unix:%s", name->path);
        *ret_path = name->path;
        rc = n < NT_HTTP_LISTENERS + RENEWALS
                 ? listen_at(h, where, mode, err)
                 : nt_fail(err, NT_E_IO, 0, "after %d times: start the service anew", RENEWALS);
        if (rc == 0) {
            *ret_path = h->listener[n].name.path;
            name->path[0] = '\0';
            break;
        }
    }
    return rc;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct nt_http *h = handle->data;
    if (--h->handles == 0) {
        free(h);
    }
}

void nt_http_close(struct nt_http *h)
{
    if (h == NULL) {
        return;
    }
    h->closing = true;
    while (h->held != NULL) { /* none may be suspended when libmicrohttpd stops */
        struct request *r = h->held;
        if (r->pub.answer.stream) {
            h->stats.streams--;
        }
        unlink_held(r);
        if (!r->ready && !r->pub.answer.stream) {
            refuse(r, 503, "stopping", "the service is stopping");
            r->ready = true;
        }
        resume(r);
    }
    for (size_t i = 0; i < h->nlisteners; i++) {
        struct listener *l = &h->listener[i];
        (void)MHD_run(l->mhd);
        uv_poll_stop(&l->poll);
        uv_close((uv_handle_t *)&l->poll, on_handle_closed);
    }
    for (size_t i = 0; i < h->nlisteners; i++) {
        nt_listen_unlink(&h->listener[i].name); /* while its number is taken */
        MHD_stop_daemon(h->listener[i].mhd);
    }
    uv_close((uv_handle_t *)&h->timer, on_handle_closed);
    uv_close((uv_handle_t *)&h->sweep, on_handle_closed);
}

const char *nt_http_arg(const struct nt_http_req *r, const char *name)
{
    for (size_t i = 0; i < r->nargs; i++) {
        if (strcmp(r->args[i].name, name) == 0) {
            return r->args[i].value;
        }
    }
    return NULL;
}
