/* The service put together: requests to routes, readers of the database, timers, start and end. */
#include "tuner/service/service.h"
#include "tuner/base/hash.h"
#include "tuner/base/json.h"
#include "tuner/base/log.h"
#include "tuner/launch/loop.h"
#include "tuner/service/assets.h"
#include "tuner/service/service_i.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOW_MS = 5000,   /* readers, heartbeats, new profiles of others */
    VERSION_MS = 250, /* how old an answer from the cache may be */
    BEAT_MS = 15000,
    LAG_MS = 20,
    LAG_AFTER_MS = 2000, /* the loop's lateness is measured so long after anything happened */
    THIN_AT_ONCE = 20,
};

uint64_t nt_service_day_ms(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* --- what happened ------------------------------------------------------------------------------
 */

int nt_service_wrote(struct nt_service *s, int rc, const struct nt_err *err)
{
    if (rc == 0) {
        s->trouble.code = NT_OK;
    } else if (rc == -NT_E_STORE || rc == -NT_E_DAMAGED || rc == -NT_E_IO) {
        if (s->trouble.code == NT_OK) {
            nt_log(NT_ERROR, "%s", err->msg);
        }
        s->trouble = *err;
    }
    return rc;
}

static void on_lag(uv_timer_t *t);

/* Something happens: how late the loop is matters, and is measured for a while. A service with
 * nothing to do is woken by nothing. */
static void measure_lag(struct nt_service *s)
{
    s->lag_until_ms = uv_now(&s->loop) + LAG_AFTER_MS;
    if (!s->closed && !uv_is_active((uv_handle_t *)&s->lag_timer)) {
        s->lag_due_ns = uv_hrtime() + (uint64_t)LAG_MS * 1000000;
        (void)uv_timer_start(&s->lag_timer, on_lag, LAG_MS, 0);
    }
}

void nt_service_event(struct nt_service *s, const char *kind, int64_t job, json_t *data, bool keep)
{
    struct nt_err err = {0};
    struct nt_buf text;

    if (data == NULL) {
        return;
    }
    measure_lag(s);
    nt_buf_init(&text, 1 << 16);
    nt_json_dump(data, false, &text);
    json_decref(data);
    if (!text.failed) {
        nt_events_add(&s->events, kind, job, nt_buf_str(&text));
        if (keep) {
            nt_log(NT_INFO, "%s %s", kind, nt_buf_str(&text));
            (void)nt_service_wrote(
                s, nt_store_add_event(s->store, 0, kind, nt_buf_str(&text), &err), &err);
        }
        if (s->http != NULL) {
            nt_http_wake(s->http);
        }
    }
    nt_buf_done(&text);
}

static size_t pull(void *data, struct nt_http_req *r, char *out, size_t max)
{
    struct nt_service *s = data;
    struct nt_exchange *x = r->app;
    size_t n = 0;

    for (;;) {
        const struct nt_event *e = nt_events_after(&s->events, r->cursor, x->only_job);
        size_t took = e != NULL ? nt_event_text(e, out + n, max - n) : 0;
        if (e == NULL || (took == 0 && n > 0)) {
            break;
        }
        r->cursor = e->seq; /* one that fits in no block is passed over */
        n += took;
    }
    if (n == 0 && r->beat) { /* proxies and clients see that it lives */
        n = (size_t)snprintf(out, max, ": \n\n");
    }
    r->beat = false;
    return n;
}

/* --- requests -----------------------------------------------------------------------------------
 */

static void answer_error(struct nt_http_req *r, int rc, const struct nt_err *err)
{
    nt_reply_fail(&r->answer, rc, err);
}

static void answer_status(struct nt_http_req *r, unsigned status, const char *code,
                          const char *words)
{
    json_t *o = json_pack("{s:{s:s, s:s}}", "error", "code", code, "message", words);
    nt_buf_clear(&r->answer.body);
    nt_json_dump(o, false, &r->answer.body);
    json_decref(o);
    r->answer.status = status;
    r->answer.type = "application/json";
}

/* "localhost:8080" → whether this service goes by that name: a page of another site that has its
 * own name point here (DNS rebinding) is refused. */
static bool known_host(const struct nt_service *s, const char *host)
{
    static const char *const ours[] = {"localhost", "127.0.0.1", "[::1]", "nccltune", NULL};
    const char *list = s->c->hosts;
    size_t n;

    if (host == NULL || s->c->behind_proxy) {
        return true;
    }
    n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    for (const char *const *w = ours; *w != NULL; w++) {
        if (strlen(*w) == n && strncasecmp(*w, host, n) == 0) {
            return true;
        }
    }
    while (*list != '\0') {
        size_t len;
        list += strspn(list, ", ");
        len = strcspn(list, ", ");
        if (len == n && len > 0 && strncasecmp(list, host, n) == 0) {
            return true;
        }
        list += len;
    }
    return false;
}

/* A browser says where the page is from that asks; other sites' pages have no business here. */
static bool same_site(const struct nt_http_req *r)
{
    const char *at;
    if (r->fetch_site != NULL && strcmp(r->fetch_site, "same-origin") != 0 &&
        strcmp(r->fetch_site, "none") != 0) {
        return false;
    }
    if (r->origin == NULL) {
        return true;
    }
    at = strstr(r->origin, "://");
    return at != NULL && r->host != NULL && strcasecmp(at + 3, r->host) == 0;
}

static enum nt_role role_of(const struct nt_service *s, struct nt_exchange *x)
{
    const char *name = "";
    enum nt_role role = nt_access_token(&s->access, x->r->authorization, &name);

    if (role == NT_ROLE_NONE && x->r->authorization == NULL && x->r->local) {
        role = nt_access_peer(&s->access, x->r->uid, getuid());
        (void)snprintf(x->who, sizeof(x->who), "uid %u", (unsigned)x->r->uid);
    } else {
        (void)snprintf(x->who, sizeof(x->who), "%s", name);
    }
    return role;
}

static bool serve_asset(struct nt_service *s, struct nt_http_req *r)
{
    char etag[72];
    for (const struct nt_asset *a = nt_assets; a->path != NULL; a++) {
        if (strcmp(a->path, r->path) == 0) {
            struct nt_http_answer *o = &r->answer;
            (void)s;
            (void)snprintf(etag, sizeof(etag), "\"%.32s\"", a->sha256);
            o->status = 200;
            o->type = a->type;
            o->cache = "no-cache";
            o->page = true;
            (void)snprintf(o->etag, sizeof(o->etag), "%s", etag);
            nt_buf_add(&o->body, a->data, a->len);
            return true;
        }
    }
    return false;
}

/* Route, role and parameters; true: refused, and answered. */
static bool refused(struct nt_service *s, struct nt_exchange *x)
{
    struct nt_http_req *r = x->r;
    struct nt_err err = {0};
    const char *allow = NULL;

    if (!known_host(s, r->host) || !same_site(r)) {
        answer_status(r, 403, "forbidden", "not for pages of other sites, or under this name");
        return true;
    }
    x->route = nt_route_find(r->method, r->path, x, &allow);
    if (x->route == NULL) {
        if (allow == NULL && strcmp(r->method, "GET") == 0 && serve_asset(s, r)) {
            return true;
        }
        r->answer.allow = allow;
        answer_status(r, allow != NULL ? 405 : 404, allow != NULL ? "method" : "not_found",
                      allow != NULL ? "not with this method" : "there is nothing at this path");
        return true;
    }
    x->role = role_of(s, x);
    if (x->role < x->route->role) {
        bool unknown = x->role == NT_ROLE_NONE;
        answer_status(r, unknown ? 401 : 403, unknown ? "unauthorized" : "forbidden",
                      unknown ? "a valid token is needed: Authorization: Bearer TOKEN"
                              : "your role does not reach for this");
        return true;
    }
    if (nt_route_check(x->route, r, &err) != 0) {
        answer_error(r, -NT_E_INVAL, &err);
        return true;
    }
    if (x->route->body != NULL && !nt_http_type_is(r->content_type, "application/json")) {
        answer_status(r, 415, "media_type", "the body must be application/json");
        return true;
    }
    /* What changes something must not be a request that a page of any site could send. */
    if (x->route->body == NULL && strcmp(r->method, "GET") != 0 && r->content_type != NULL &&
        !nt_http_type_is(r->content_type, "application/json")) {
        answer_status(r, 415, "media_type", "this takes no body, or application/json");
        return true;
    }
    return false;
}

static bool on_head(void *data, struct nt_http_req *r)
{
    struct nt_service *s = data;
    struct nt_exchange *x = calloc(1, sizeof(*x));

    if (x == NULL || s->stopping) {
        free(x);
        answer_status(r, 503, "stopping", "the service is stopping, or out of memory");
        return true;
    }
    x->s = s;
    x->r = r;
    r->app = x;
    measure_lag(s);
    return refused(s, x);
}

static void on_end(void *data, struct nt_http_req *r)
{
    (void)data;
    free(r->app);
    r->app = NULL;
}

/* The version of the profiles, looked up now and then. */
static int64_t version(struct nt_service *s)
{
    uint64_t now = uv_now(&s->loop);
    if (s->version_ms == 0 || now - s->version_ms >= VERSION_MS) {
        int64_t v;
        struct nt_err err = {0};
        if (nt_store_version(s->store, &v, &err) == 0) {
            s->version = v;
        }
        s->version_ms = now | 1;
    }
    return s->version;
}

static void cache_key(const struct nt_exchange *x, struct nt_buf *out)
{
    nt_buf_puts(out, x->r->path);
    for (size_t i = 0; i < x->r->nargs; i++) {
        nt_buf_printf(out, "\x1f%s\x1f%s", x->r->args[i].name, x->r->args[i].value);
    }
}

static void keep_answer(struct nt_exchange *x)
{
    struct nt_http_answer *a = &x->r->answer;
    struct nt_http_shared *made;
    struct nt_buf key;

    if (a->status != 200 || a->body.failed || a->name[0] != '\0') {
        if (a->status == 200 && a->etag[0] == '\0' && !a->body.failed) {
            char hash[NT_HEX_LEN + 1];
            nt_sha256_hex(nt_buf_str(&a->body), a->body.len, hash);
            (void)snprintf(a->etag, sizeof(a->etag), "\"%.32s\"", hash);
        }
        a->cache = a->status == 200 ? "no-cache" : NULL;
        return;
    }
    if (a->etag[0] == '\0') {
        char hash[NT_HEX_LEN + 1];
        nt_sha256_hex(nt_buf_str(&a->body), a->body.len, hash);
        (void)snprintf(a->etag, sizeof(a->etag), "\"%.32s\"", hash);
    }
    nt_buf_init(&key, 4096);
    cache_key(x, &key);
    made = nt_http_shared_new(200, a->type, a->etag, "no-cache", nt_buf_str(&a->body), a->body.len);
    if (made != NULL && !key.failed) {
        a->shared =
            nt_http_shared_keep(nt_cache_put(&x->s->cache, nt_buf_str(&key), x->version, made));
    } else {
        nt_http_shared_drop(made);
    }
    nt_buf_done(&key);
}

void nt_reply_done(struct nt_exchange *x, int rc, const struct nt_err *err)
{
    if (rc != 0) {
        answer_error(x->r, rc, err);
    } else if (x->route->keep != NT_KEEP_NOT) {
        keep_answer(x);
    }
    nt_http_answer(x->s->http, x->r);
}

/* --- readers ------------------------------------------------------------------------------------
 */

static void start_waiting(struct nt_service *s);

static void on_work(uv_work_t *w)
{
    struct nt_exchange *x = w->data;
    x->rc = x->route->fn(x, &x->err);
}

static void on_worked(uv_work_t *w, int status)
{
    struct nt_exchange *x = w->data;
    struct nt_service *s = x->s;
    (void)status;
    for (size_t i = 0; i < NT_READERS; i++) {
        if (s->reader[i].store == x->store) {
            s->reader[i].busy = false;
            s->reader[i].used_ms = uv_now(&s->loop);
        }
    }
    x->store = NULL;
    nt_reply_done(x, x->rc, &x->err);
    start_waiting(s);
}

/* A second connection for reading, because a question may take longer than the loop can wait. */
static bool begin_work(struct nt_service *s, struct nt_exchange *x)
{
    for (size_t i = 0; i < NT_READERS; i++) {
        struct nt_err err = {0};
        int rc = 0;
        if (s->reader[i].busy) {
            continue;
        }
        if (s->reader[i].store == NULL) {
            rc = nt_service_database(s, &err);
        }
        if (rc == 0 && s->reader[i].store == NULL) {
            rc = nt_store_open(s->database, NT_STORE_READ, &s->reader[i].store, &err);
        }
        if (rc != 0) {
            s->reader[i].store = NULL;
            nt_reply_done(x, -NT_E_STORE, &err);
            return true;
        }
        s->reader[i].busy = true;
        x->store = s->reader[i].store;
        x->work.data = x;
        (void)uv_queue_work(&s->loop, &x->work, on_work, on_worked);
        return true;
    }
    return false;
}

static void start_waiting(struct nt_service *s)
{
    while (s->waiting != NULL && begin_work(s, s->waiting)) {
        struct nt_exchange *x = s->waiting;
        s->waiting = x->next;
        s->nwaiting--;
        if (s->waiting == NULL) {
            s->waiting_end = &s->waiting;
        }
    }
}

static void work(struct nt_service *s, struct nt_exchange *x)
{
    static const struct nt_err many = {.code = NT_E_INTERRUPTED,
                                       .msg = "too many questions at once; ask again"};
    if (s->waiting == NULL && begin_work(s, x)) {
        return;
    }
    if (s->nwaiting >= NT_WAITING_MAX) {
        nt_reply_done(x, -NT_E_INTERRUPTED, &many);
        return;
    }
    *s->waiting_end = x;
    s->waiting_end = &x->next;
    s->nwaiting++;
}

static bool from_cache(struct nt_service *s, struct nt_exchange *x)
{
    struct nt_http_shared *have;
    struct nt_buf key;
    if (x->route->keep == NT_KEEP_NOT) {
        return false;
    }
    x->version = x->route->keep == NT_KEEP_EVER ? -1 : version(s);
    nt_buf_init(&key, 4096);
    cache_key(x, &key);
    have = key.failed ? NULL : nt_cache_get(&s->cache, nt_buf_str(&key), x->version);
    nt_buf_done(&key);
    x->r->answer.shared = nt_http_shared_keep(have);
    return have != NULL;
}

static void on_request(void *data, struct nt_http_req *r)
{
    struct nt_service *s = data;
    struct nt_exchange *x = r->app;
    struct nt_err err = {0};
    int rc;

    if (from_cache(s, x)) {
        nt_http_answer(s->http, r);
        return;
    }
    if (x->route->how == NT_ON_WORK) {
        work(s, x);
        return;
    }
    x->store = s->store;
    rc = strcmp(r->method, "GET") != 0 ? nt_service_database(s, &err) : 0;
    rc = rc == 0 ? x->route->fn(x, &err) : rc;
    if (rc != 0 || !x->later) {
        nt_reply_done(x, rc, &err);
    }
}

/* --- timers -------------------------------------------------------------------------------------
 */

static void close_readers(struct nt_service *s, bool all)
{
    for (size_t i = 0; i < NT_READERS; i++) {
        if (s->reader[i].store != NULL && !s->reader[i].busy &&
            (all || uv_now(&s->loop) - s->reader[i].used_ms > NT_READER_IDLE_MS)) {
            nt_store_close(s->reader[i].store);
            s->reader[i].store = NULL;
        }
    }
}

static int note_newest(void *data, const struct nt_store_profile *p, struct nt_err *err)
{
    struct nt_service *s = data;
    if (p->id > s->newest_profile) {
        s->newest_profile = p->id;
        if (!s->newest_known) { /* it was there before us */
            return 0;
        }
        nt_service_event(s, "profile", 0,
                         json_pack("{s:I, s:s, s:s, s:s, s:I}", "profile", (json_int_t)p->id,
                                   "state", nt_profile_state_names[p->state], "identity",
                                   p->identity, "rig", p->rig, "run", (json_int_t)p->job),
                         true);
        return nt_watcher_new_profile(s, p, err);
    }
    return 0;
}

void nt_service_look_at_profiles(struct nt_service *s)
{
    struct nt_err err = {0};
    if (nt_store_profile_list(s->store, 0, 1, note_newest, s, &err) != 0) {
        nt_log(NT_WARN, "%s", err.msg);
    }
}

/* A few at a time: the loop must not wait. */
static void retain(struct nt_service *s)
{
    uint64_t age = (uint64_t)s->c->samples_days * 86400000, now = nt_service_day_ms(), n = 0;
    struct nt_err err = {0};
    if (age != 0 && now > age && nt_store_thin(s->store, now - age, THIN_AT_ONCE, &n, &err) != 0) {
        nt_log(NT_WARN, "retention: %s", err.msg);
    }
}

/* Nobody could reach the service, and nothing would tell why. */
static void look_at_sockets(struct nt_service *s)
{
    struct nt_err err = {0};
    const char *path;
    int rc = nt_http_renew(s->http, s->c->socket_mode, &path, &err);

    if (rc == 0 && path != NULL) {
        nt_log(NT_WARN, "socket %s was removed or replaced: listening there anew", path);
    } else if (rc != 0 && !s->deaf) {
        nt_log(NT_ERROR,
               "socket %s was removed or replaced, and nobody reaches the service there: %s (tried "
               "again every %d s)",
               path, err.msg, SLOW_MS / 1000);
    }
    s->deaf = rc != 0;
}

static void on_slow(uv_timer_t *t)
{
    struct nt_service *s = t->data;
    bool was_gone;

    look_at_sockets(s);
    was_gone = s->gone;
    if (nt_service_database(s, NULL) != 0) {
        nt_http_beat(s->http, BEAT_MS);
        return;
    }
    if (was_gone) {
        nt_jobs_run(s);
    }
    retain(s);
    close_readers(s, false);
    nt_service_look_at_profiles(s);
    nt_checks_due(s);
    nt_http_beat(s->http, BEAT_MS);
}

static void on_lag(uv_timer_t *t)
{
    static const double edges[] = {1, 2, 5, 10, 20, 50, 100};
    struct nt_service *s = t->data;
    uint64_t now = uv_hrtime(), late = now > s->lag_due_ns ? now - s->lag_due_ns : 0;
    double ms = (double)late / 1e6;
    size_t i = 0;

    while (i < sizeof(edges) / sizeof(edges[0]) && ms > edges[i]) {
        i++;
    }
    s->lag_bucket[i]++;
    s->lag_sum_ms += ms;
    s->lag_n++;
    s->lag_max_ns = late > s->lag_max_ns ? late : s->lag_max_ns;
    s->lag_due_ns = now + (uint64_t)LAG_MS * 1000000;
    if (uv_now(&s->loop) < s->lag_until_ms || s->running != NULL) {
        (void)uv_timer_start(t, on_lag, LAG_MS, 0);
    }
}

/* --- start and end ------------------------------------------------------------------------------
 */

static void close_handle(void *handle)
{
    uv_close(handle, NULL);
}

/* Last of all, when no child runs any more. */
static void finish(struct nt_service *s)
{
    if (s->closed) {
        return;
    }
    s->closed = true;
    nt_http_close(s->http);
    s->http = NULL;
    nt_uevents_close(&s->uevents);
    nt_watcher_close(s);
    close_handle(&s->queue_timer);
    close_handle(&s->slow_timer);
    close_handle(&s->lag_timer);
    nt_loop_close_signals(s->signals, 3, s->stopping);
}

static void try_finish(struct nt_service *s)
{
    if (s->stopping && nt_jobs_idle(s) && s->asks == 0 && !nt_watcher_busy(s)) {
        finish(s);
    }
}

static void on_slow_stop(uv_timer_t *t)
{
    try_finish(t->data);
}

static void on_signal(uv_signal_t *h, int signum)
{
    struct nt_service *s = h->data;
    struct nt_err err = {0};

    if (signum == SIGHUP) { /* tokens may be changed while it runs */
        if (s->c->tokens[0] != '\0' && nt_access_read(&s->access, s->c->tokens, &err) != 0) {
            nt_log(NT_ERROR, "the tokens stay as they were: %s", err.msg);
        }
        return;
    }
    if (!s->stopping) {
        nt_log(NT_INFO, "stopping: jobs are interrupted, and go on at the next start");
        s->stopping = true;
        nt_queue_stop_all(&s->queue);
        nt_jobs_run(s);
        (void)uv_timer_start(&s->slow_timer, on_slow_stop, 20, 20);
    }
}

static int open_places(struct nt_service *s, struct nt_err *err)
{
    char list[sizeof(s->c->listen)], *rest = list, *where;
    unsigned n = 0;
    int rc = 0;

    (void)snprintf(list, sizeof(list), "%s", s->c->listen);
    while (rc == 0 && (where = strsep(&rest, ", ")) != NULL) {
        char addr[64];
        unsigned port;
        bool loopback;
        if (where[0] == '\0') {
            continue;
        }
        if (strncmp(where, "unix:", 5) != 0) {
            rc = nt_http_parse_address(where, addr, sizeof(addr), &port, &loopback, err);
            if (rc == 0 && s->access.n == 0) {
                rc = nt_fail(err, NT_E_INVAL, 0,
                             "%s: TCP is only for who has a token; name their file with tokens",
                             where);
            }
            if (rc == 0 && !loopback && !s->c->behind_proxy) {
                rc = nt_fail(err, NT_E_INVAL, 0,
                             "%s is reachable from other machines, and tokens would travel in the "
                             "clear; put a proxy with TLS in front and say behind_proxy",
                             where);
            }
        }
        rc = rc == 0 ? nt_http_listen(s->http, where, s->c->socket_mode, err) : rc;
        if (rc == 0 && s->o->on_ready != NULL) {
            char text[256];
            n++;
            if (nt_http_port(s->http) != 0 && strncmp(where, "unix:", 5) != 0) {
                (void)snprintf(text, sizeof(text), "%s:%u", addr, nt_http_port(s->http));
            } else {
                (void)snprintf(text, sizeof(text), "%s", where);
            }
            s->o->on_ready(s->o->data, text);
        }
        n += s->o->on_ready == NULL;
    }
    return rc == 0 && n == 0 ? nt_fail(err, NT_E_INVAL, 0,
                                       "listen names no place, so nobody could reach the service: "
                                       "unix:PATH or HOST:PORT")
                             : rc;
}

static void on_event(void *data)
{
    nt_watcher_look(data);
}

static int open_all(struct nt_service *s, struct nt_err *err)
{
    static const int signums[3] = {SIGINT, SIGTERM, SIGHUP};
    struct nt_http_limits limits = nt_http_default_limits;
    const struct nt_http_app app = {
        .on_head = on_head, .on_request = on_request, .pull = pull, .on_end = on_end, .data = s};
    int rc;

    limits.connections = s->c->max_connections;
    limits.body_bytes = (size_t)s->c->max_body_bytes;
    for (size_t i = 0; i < 3; i++) {
        (void)uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        (void)uv_signal_start(&s->signals[i], on_signal, signums[i]);
    }
    (void)uv_timer_init(&s->loop, &s->slow_timer);
    (void)uv_timer_init(&s->loop, &s->lag_timer);
    s->slow_timer.data = s->lag_timer.data = s;
    nt_children_init(&s->children, &s->loop);
    nt_turns_short();
    rc = nt_http_new(&s->loop, &limits, &app, &s->http, err);
    rc = rc == 0 ? nt_jobs_open(s, err) : rc;
    rc = rc == 0 ? nt_watcher_open(s, err) : rc;
    if (rc == 0 && s->c->topology[0] == '\0') { /* a file is nobody's event */
        nt_uevents_open(&s->uevents, &s->loop, on_event, s);
    }
    if (rc == 0) {
        rc = nt_store_profile_list(s->store, 0, 1, note_newest, s, err);
        s->newest_known = true;
    }
    if (rc == 0) {
        rc = open_places(s, err);
    }
    if (rc == 0) {
        (void)uv_timer_start(&s->slow_timer, on_slow, SLOW_MS, SLOW_MS);
        nt_jobs_run(s);
        nt_watcher_look(s);
    }
    return rc;
}

/* As many connections as were allowed, and what else is open. */
static void raise_files(const struct nt_config *c)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < c->max_connections + 128) {
        l.rlim_cur = l.rlim_max < c->max_connections + 128 ? l.rlim_max : c->max_connections + 128;
        (void)setrlimit(RLIMIT_NOFILE, &l);
    }
}

int nt_service_run(const struct nt_service_options *o, struct nt_err *err)
{
    struct nt_service *s = calloc(1, sizeof(*s));
    int lock, rc;

    if (s == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "service");
    }
    s->o = o;
    s->c = o->config;
    s->lock = -1;
    s->waiting_end = &s->waiting;
    s->started_ms = nt_service_day_ms();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    raise_files(s->c);
    rc = nt_store_default_path(s->c->database[0] != '\0' ? s->c->database : NULL, true, s->database,
                               sizeof(s->database), err);
    rc = rc == 0 ? nt_store_open(s->database, NT_STORE_WRITE, &s->store, err) : rc;
    rc = rc == 0 ? nt_service_lock(s, err) : rc;
    if (rc == 0 && s->c->tokens[0] != '\0') {
        rc = nt_access_read(&s->access, s->c->tokens, err);
    }
    s->access.others = (enum nt_role)nt_vocab_find(nt_role_names, "", s->c->others, NULL);
    rc = rc == 0 ? nt_loop_open(&s->loop, 0, err) : rc;
    if (rc == 0) {
        nt_events_init(&s->events, s->started_ms);
        rc = open_all(s, err);
        if (rc != 0) {
            finish(s);
        }
        (void)uv_run(&s->loop, UV_RUN_DEFAULT);
        close_readers(s, true);
        nt_jobs_close(s);
        nt_cache_done(&s->cache);
        nt_events_done(&s->events);
        nt_assert(uv_loop_close(&s->loop) == 0);
    }
    nt_store_close(s->store);
    nt_buf_done(&s->openapi);
    lock = s->lock;
    free(s);
    if (lock >= 0) {
        (void)close(lock);
    }
    return rc;
}
