#include "tuner/launch/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tuner/base/text.h"
#include "tuner/launch/agent.h"
#include "tuner/launch/commands.h"
#include "tuner/launch/door.h"
#include "tuner/launch/log_tail.h"
#include "tuner/launch/tunnel.h"

/* STRAY_MS: for a launcher's command to end by itself when its agents have; then TERM, then KILL.
 * ANSWER_MS: for a host to tell of the ends of ranks that were killed. */
enum { STRAY_MS = 5000, KILL_MS = 3000, ANSWER_MS = 2000, TAIL = 260 };
#define LOG_NAME "launcher.log"

/* A host whose agent has connected. */
struct node {
    struct nt_launch *l;
    uv_tcp_t tcp;
    struct nt_wire wire;
    struct nt_tunnel tunnel;
    unsigned number; /* of the launcher */
    bool known, open;
    char name[NT_NODE_LEN], identity[2 * NT_NODE_LEN];
};

struct nt_launch {
    struct nt_launch_events events;
    const struct nt_remote *remote;
    uv_loop_t *loop;
    uv_timer_t timer;
    struct nt_door *door;         /* until all hosts are in */
    struct nt_commands *commands; /* until all have ended */
    struct node node[NT_REMOTE_HOSTS];
    unsigned nnodes, each; /* each: ranks on a host */
    unsigned open;         /* handles not closed */
    unsigned world, left;  /* left: ranks that have not been reported */
    bool reported[NT_LAUNCH_MAX];
    bool started, abandoned;
    enum { WAITING, RUNNING, KILLED, OVER, TERMED, DEAD } phase;
    int failed;       /* libuv's code of a command that could not be started */
    char reason[300]; /* for which WAITING is to end at the next timer; "": it is late */
    char *socket, dir[4096];
    struct nt_buf start, files[NT_AGENT_FILES]; /* frames' payloads */
    size_t nfiles;
    char chunk[NT_TUNNEL_CHUNK];
};

static void finish(struct nt_launch *l);

/* ---- reports ---- */

static void report(struct nt_launch *l, unsigned rank, const struct nt_launch_exit *how)
{
    if (!l->reported[rank]) {
        l->reported[rank] = true;
        l->left--;
        if (!l->abandoned) {
            l->events.on_exit(l->events.data, rank, how);
        }
    }
}

static void arm(struct nt_launch *l, uint32_t ms);

/* Ranks from … to - 1 that have not ended count as ended, for what is in words. */
static void give_up(struct nt_launch *l, unsigned from, unsigned to, int error, const char *words)
{
    for (unsigned r = from; r < to; r++) {
        report(l, r, &(struct nt_launch_exit){.status = 1, .error = error, .words = words});
    }
    if (l->left == 0) {
        finish(l);
    }
}

static void tail_of(const struct nt_launch *l, char *out, size_t size)
{
    char path[sizeof(l->dir) + 32];

    (void)snprintf(path, sizeof(path), "%s/" LOG_NAME, l->dir);
    nt_log_tail(path, out, size);
}

/* "node-b, number 3" of those that are not here. */
static void missing(const struct nt_launch *l, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < l->remote->nodes && n + 1 < size; i++) {
        bool here = false;
        for (unsigned k = 0; k < l->nnodes; k++) {
            here = here || (l->node[k].known && l->node[k].number == i);
        }
        if (!here && l->remote->hosts[0] != NULL && l->remote->kind->each) {
            n +=
                (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", l->remote->hosts[i]);
        } else if (!here) {
            n += (size_t)snprintf(out + n, size - n, "%snumber %u", n > 0 ? ", " : "", i);
        }
    }
}

static unsigned known_nodes(const struct nt_launch *l)
{
    unsigned n = 0;
    for (unsigned i = 0; i < l->nnodes; i++) {
        n += l->node[i].known;
    }
    return n;
}

/* ---- the end ---- */

static void closed_one(struct nt_launch *l)
{
    if (--l->open > 0) {
        return;
    }
    for (unsigned i = 0; i < l->nnodes; i++) {
        nt_wire_done(&l->node[i].wire);
    }
    for (size_t i = 0; i < l->nfiles; i++) {
        nt_buf_done(&l->files[i]);
    }
    nt_buf_done(&l->start);
    l->events.on_closed(l->events.data);
    free(l->socket);
    free(l);
}

static void on_handle_closed(uv_handle_t *h)
{
    closed_one(h->data);
}

static void close_door(struct nt_launch *l)
{
    if (l->door != NULL) {
        nt_door_close(l->door); /* on_door_closed follows */
        l->door = NULL;
    }
}

static void on_door_closed(void *data)
{
    closed_one(data);
}

static void on_node_closed(uv_handle_t *h)
{
    struct node *n = h->data;
    closed_one(n->l);
}

static void on_tunnel_closed(void *data)
{
    struct node *n = data;
    closed_one(n->l);
}

static void close_node(struct node *n)
{
    if (n->open) {
        n->open = false;
        n->l->open += nt_tunnel_close(&n->tunnel) ? 1 : 0;
        uv_close((uv_handle_t *)&n->tcp, on_node_closed);
    }
}

static bool any_alive(const struct nt_launch *l)
{
    return l->commands != NULL && nt_commands_alive(l->commands);
}

static void signal_commands(struct nt_launch *l, int signum)
{
    if (l->commands != NULL) {
        nt_commands_signal(l->commands, signum);
    }
}

static void close_timer(struct nt_launch *l)
{
    if (!uv_is_closing((uv_handle_t *)&l->timer)) {
        uv_close((uv_handle_t *)&l->timer, on_handle_closed);
    }
}

/* No rank is left: agents are told so, and the launcher's commands get time to end. */
static void finish(struct nt_launch *l)
{
    if (l->phase >= OVER) {
        return;
    }
    for (unsigned i = 0; i < l->nnodes; i++) {
        if (l->node[i].open) {
            nt_wire_send((uv_stream_t *)&l->node[i].tcp, NT_WIRE_END, 0, NULL, 0);
            close_node(&l->node[i]);
        }
    }
    close_door(l);
    if (!any_alive(l)) {
        close_timer(l);
    } else if (l->started) {
        l->phase = OVER;
        arm(l, STRAY_MS);
        return;
    } else { /* nothing that it could still do */
        l->phase = TERMED;
        signal_commands(l, SIGTERM);
        arm(l, KILL_MS);
        return;
    }
    l->phase = DEAD;
}

static void lose_all(struct nt_launch *l, const char *what)
{
    char words[200];

    for (unsigned i = 0; i < l->nnodes; i++) {
        (void)snprintf(words, sizeof(words), "node %s %s", l->node[i].name, what);
        give_up(l, i * l->each, (i + 1) * l->each, 0, words);
    }
}

static void say_late(struct nt_launch *l)
{
    char who[120], tail[TAIL], words[NT_CONTACT_MAX + 600];
    unsigned strangers = l->door != NULL ? nt_door_strangers(l->door) : 0;

    missing(l, who, sizeof(who));
    tail_of(l, tail, sizeof(tail));
    (void)snprintf(
        words, sizeof(words),
        "%u of %u nodes did not connect back in time (%s): they must reach %s (--listen)%s%s%s",
        l->remote->nodes - known_nodes(l), l->remote->nodes, who,
        l->door != NULL ? nt_door_address(l->door) : "this host",
        strangers > 0 ? "; somebody who does not know the job's secret tried" : "",
        tail[0] != '\0' ? "; the launcher said: " : "", tail);
    give_up(l, 0, l->world, 0, words);
}

static void on_timer(uv_timer_t *t)
{
    struct nt_launch *l = t->data;

    switch (l->phase) {
    case WAITING:
        if (l->reason[0] != '\0') {
            give_up(l, 0, l->world, l->failed, l->reason);
        } else {
            say_late(l);
        }
        break;
    case KILLED:
        lose_all(l, "does not answer: whether its ranks have ended is not known");
        break;
    case OVER:
        l->phase = TERMED;
        signal_commands(l, SIGTERM);
        arm(l, KILL_MS);
        break;
    case TERMED:
        signal_commands(l, SIGKILL);
        break;
    default:
        break;
    }
}

static void arm(struct nt_launch *l, uint32_t ms)
{
    (void)uv_timer_start(&l->timer, on_timer, ms, 0);
}

/* ---- hosts ---- */

static unsigned base_of(const struct node *n)
{
    return n->number * n->l->each;
}

static void lose_node(struct node *n, const char *why)
{
    struct nt_launch *l = n->l;
    bool running = l->phase == RUNNING || l->phase == KILLED;
    char words[480];

    close_node(n);
    (void)snprintf(words, sizeof(words), "node %s %s", n->name, why);
    give_up(l, running ? base_of(n) : 0, running ? base_of(n) + l->each : l->world, 0, words);
}

static void write_log(struct nt_launch *l, unsigned rank, const char *data, size_t len)
{
    char path[sizeof(l->dir) + 32];
    int fd;

    nt_launch_log_path(l->dir, rank, path, sizeof(path));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    while (fd >= 0 && len > 0) {
        ssize_t n = write(fd, data, len);
        if (n <= 0) {
            break;
        }
        data += n;
        len -= (size_t)n;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

static int heard_exit(struct node *n, const struct nt_frame *f, struct nt_err *err)
{
    struct nt_launch *l = n->l;
    int64_t v[3] = {0};
    size_t at = 0;
    struct nt_launch_exit how;
    char words[200];

    for (size_t i = 0; i < 3; i++) {
        const char *text = nt_wire_string(f, &at);
        if (text == NULL || nt_parse_i64(text, &v[i], err) != 0 || f->id >= l->each ||
            !l->started) {
            return nt_fail(err, NT_E_PROTO, 0, "told of an end that is not understood");
        }
    }
    how = (struct nt_launch_exit){.status = v[0], .signal = (int)v[1], .error = (int)v[2]};
    if (how.error != 0) { /* a program that is not there is no fault of a setting */
        (void)snprintf(words, sizeof(words), "node %s: the rank's program cannot be started: %s",
                       n->name, uv_strerror(how.error));
        how.words = words;
    }
    write_log(l, base_of(n) + f->id, f->data + at, f->len - at);
    report(l, base_of(n) + f->id, &how);
    if (l->left == 0) {
        finish(l);
    }
    return 0;
}

static void start_ranks(struct nt_launch *l)
{
    l->phase = RUNNING;
    l->started = true;
    (void)uv_timer_stop(&l->timer);
    close_door(l);
    for (unsigned i = 0; i < l->nnodes; i++) {
        uv_stream_t *s = (uv_stream_t *)&l->node[i].tcp;
        for (size_t k = 0; k < l->nfiles; k++) {
            nt_wire_send(s, NT_WIRE_FILE, 0, l->files[k].data, l->files[k].len);
        }
        nt_wire_send(s, NT_WIRE_START, base_of(&l->node[i]), l->start.data, l->start.len);
    }
}

/* Numbers are whole and each host comes once; "" when all is well. */
static void check_node(const struct node *n, char *out, size_t size)
{
    const struct nt_launch *l = n->l;
    const struct node *o;

    out[0] = '\0';
    if (n->number >= l->remote->nodes) {
        (void)snprintf(out, size, "the launcher started number %u on %s, of %u nodes", n->number,
                       n->name, l->remote->nodes);
    }
    for (unsigned i = 0; i < l->nnodes; i++) {
        o = &l->node[i];
        if (o != n && o->known && o->number == n->number) {
            (void)snprintf(out, size,
                           "the launcher gave number %u to %s and to %s: one process a node is "
                           "expected",
                           n->number, o->name, n->name);
        } else if (o != n && o->known && strcmp(o->identity, n->identity) == 0) {
            (void)snprintf(out, size,
                           "the launcher started numbers %u and %u both on %s: %u nodes are asked "
                           "for",
                           o->number, n->number, n->name, l->remote->nodes);
        }
    }
}

static int heard_node(struct node *n, const struct nt_frame *f, struct nt_err *err)
{
    struct nt_launch *l = n->l;
    size_t at = 0;
    const char *number = nt_wire_string(f, &at), *name = nt_wire_string(f, &at),
               *identity = name != NULL ? nt_wire_string(f, &at) : NULL;
    uint64_t v = 0;
    char words[300];

    if (l->phase != WAITING || n->known || identity == NULL ||
        nt_parse_u64(number, &v, NULL) != 0 || v > INT32_MAX) {
        return nt_fail(err, NT_E_PROTO, 0, "says who it is in a way that is not understood");
    }
    n->number = (unsigned)v;
    (void)snprintf(n->name, sizeof(n->name), "%s", name);
    (void)snprintf(n->identity, sizeof(n->identity), "%s", identity);
    check_node(n, words, sizeof(words));
    if (words[0] != '\0') {
        give_up(l, 0, l->world, 0, words);
        return 0;
    }
    n->known = true;
    if (known_nodes(l) == l->remote->nodes) {
        start_ranks(l);
    }
    return 0;
}

/* 0, or the node is to be lost. */
static int heard(struct node *n, const struct nt_frame *f, struct nt_err *err)
{
    switch (f->kind) {
    case NT_WIRE_NODE:
        return heard_node(n, f, err);
    case NT_WIRE_OPEN:
        nt_tunnel_connect(&n->tunnel, f->id, n->l->socket != NULL ? n->l->socket : "");
        return 0;
    case NT_WIRE_DATA:
    case NT_WIRE_CLOSE:
        nt_tunnel_hear(&n->tunnel, f);
        return 0;
    case NT_WIRE_EXIT:
        return heard_exit(n, f, err);
    case NT_WIRE_WORDS:
        return nt_fail(err, NT_E_MISSING, 0, "cannot go on: %.*s",
                       (int)(f->len < 300 ? f->len : 300), f->data);
    default:
        return nt_fail(err, NT_E_PROTO, 0, "said what only the driver may say");
    }
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct node *n = h->data;
    (void)suggested;
    *buf = uv_buf_init(n->l->chunk, sizeof(n->l->chunk));
}

static void take(struct node *n, const char *data, size_t len)
{
    struct nt_frame f;
    struct nt_err err = {0};
    int rc = nt_wire_feed(&n->wire, data, len, &err);

    while (rc == 0 && n->open && (rc = nt_wire_next(&n->wire, &f, &err)) == 1) {
        rc = heard(n, &f, &err);
    }
    if (rc < 0 && n->open) {
        lose_node(n, err.msg);
    }
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct node *node = s->data;

    if (n > 0) {
        take(node, buf->base, (size_t)n);
    } else if (n < 0) {
        lose_node(node, n == UV_EOF || n == UV_ECONNRESET ? "was lost: its connection ended"
                                                          : "was lost: it does not answer");
    }
}

/* ---- the door ---- */

static void on_in(void *data, int fd, const char *name, const char *rest, size_t len)
{
    struct nt_launch *l = data;
    struct node *n = &l->node[l->nnodes];

    if (l->phase != WAITING || l->nnodes == NT_REMOTE_HOSTS) {
        (void)close(fd);
        return;
    }
    nt_keep_alive(fd);
    l->nnodes++;
    n->l = l;
    n->open = true;
    (void)snprintf(n->name, sizeof(n->name), "%s", name);
    (void)uv_tcp_init(l->loop, &n->tcp);
    n->tcp.data = n;
    l->open++;
    nt_wire_init(&n->wire);
    nt_tunnel_init(&n->tunnel, l->loop, (uv_stream_t *)&n->tcp, on_tunnel_closed, n);
    if (uv_tcp_open(&n->tcp, fd) != 0) {
        (void)close(fd);
        lose_node(n, "has a connection that cannot be used");
    } else if (uv_read_start((uv_stream_t *)&n->tcp, on_alloc, on_read) != 0) {
        lose_node(n, "has a connection that cannot be read");
    } else {
        take(n, rest, len);
    }
}

static void on_refused(void *data, const char *words)
{
    struct nt_launch *l = data;
    if (l->phase == WAITING) {
        give_up(l, 0, l->world, 0, words);
    }
}

/* ---- the launcher's commands ---- */

static void on_command_exit(void *data, int64_t status, int signum)
{
    struct nt_launch *l = data;
    char tail[TAIL], words[600], who[120], how[60];

    if (l->phase == WAITING) {
        tail_of(l, tail, sizeof(tail));
        missing(l, who, sizeof(who));
        (void)snprintf(how, sizeof(how), signum != 0 ? "signal %d" : "exit code %d",
                       signum != 0 ? signum : (int)status);
        (void)snprintf(words, sizeof(words), "%.100s ended with %s before node %s connected%s%s",
                       l->remote->program, how, who, tail[0] != '\0' ? "; it said: " : "", tail);
        give_up(l, 0, l->world, 0, words);
    }
    if (l->phase >= OVER && !any_alive(l)) {
        close_timer(l);
    }
}

static void on_commands_closed(void *data)
{
    struct nt_launch *l = data;
    l->commands = NULL;
    closed_one(l);
}

/* ---- the start ---- */

static int add_file(struct nt_launch *l, const char *path, struct nt_err *err)
{
    struct nt_buf *b = &l->files[l->nfiles];

    if (l->nfiles == NT_AGENT_FILES) {
        return nt_fail(err, NT_E_INVAL, 0, "more than %d files for a gang", NT_AGENT_FILES);
    }
    l->nfiles++;
    nt_buf_init(b, NT_WIRE_MAX);
    nt_buf_add(b, path, strlen(path) + 1);
    return nt_buf_read_file(b, path, err);
}

static size_t count(const char *const *list)
{
    size_t n = 0;
    while (list != NULL && list[n] != NULL) {
        n++;
    }
    return n;
}

static void add_string(struct nt_buf *b, const char *text)
{
    nt_buf_add(b, text, strlen(text) + 1);
}

/* What START says (agent.h). */
static int make_start(struct nt_launch *l, const struct nt_launch_spec *spec, struct nt_err *err)
{
    const uint64_t numbers[4] = {l->each, spec->remote->log_bytes, count(spec->args),
                                 count(spec->env)};
    char text[24];

    nt_buf_init(&l->start, NT_WIRE_MAX);
    for (size_t i = 0; i < 4; i++) {
        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)numbers[i]);
        add_string(&l->start, text);
    }
    add_string(&l->start, spec->program);
    add_string(&l->start, spec->rank_var);
    add_string(&l->start, spec->socket != NULL ? spec->socket : "");
    for (size_t i = 0; i < numbers[2]; i++) {
        add_string(&l->start, spec->args[i]);
    }
    for (size_t i = 0; i < numbers[3]; i++) {
        add_string(&l->start, spec->env[i]);
    }
    return l->start.failed ? nt_fail(err, NT_E_INVAL, 0, "an environment that is too large") : 0;
}

static int prepare(struct nt_launch *l, const struct nt_launch_spec *spec, struct nt_err *err)
{
    int rc = make_start(l, spec, err);

    for (size_t i = 0; rc == 0 && i < count(spec->files); i++) {
        rc = add_file(l, spec->files[i], err);
    }
    if (rc == 0 && (snprintf(l->dir, sizeof(l->dir), "%s", spec->dir) >= (int)sizeof(l->dir) ||
                    (spec->socket != NULL && (l->socket = strdup(spec->socket)) == NULL))) {
        rc = nt_fail(err, NT_E_INVAL, 0, "a folder that is too long, or no memory");
    }
    return rc;
}

/* One that cannot be started is told of by the timer, after this has returned. */
static int start_commands(struct nt_launch *l, struct nt_err *err)
{
    const struct nt_commands_events events = {on_command_exit, on_commands_closed, l};
    char path[sizeof(l->dir) + 32];
    int rc;

    (void)snprintf(path, sizeof(path), "%s/" LOG_NAME, l->dir);
    rc = nt_commands_start(l->loop, l->remote, nt_door_contact(l->door), path, &events,
                           &l->commands, &l->failed, err);
    l->open += rc == 0;
    if (l->failed != 0) {
        (void)snprintf(l->reason, sizeof(l->reason), "the launcher %.100s cannot be started: %s",
                       l->remote->program, uv_strerror(l->failed));
    }
    return rc;
}

static void dispose(struct nt_launch *l)
{
    for (size_t i = 0; i < l->nfiles; i++) {
        nt_buf_done(&l->files[i]);
    }
    nt_buf_done(&l->start);
    free(l->socket);
    free(l);
}

static int remote_start(uv_loop_t *loop, const struct nt_launch_spec *spec,
                        const struct nt_launch_events *events, struct nt_launch **ret,
                        struct nt_err *err)
{
    const struct nt_remote *r = spec->remote;
    struct nt_launch *l;
    int rc;

    nt_assert(r != NULL && r->nodes >= 1 && r->nodes <= NT_REMOTE_HOSTS);
    if (spec->world == 0 || spec->world > NT_LAUNCH_MAX || spec->world % r->nodes != 0) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%u ranks on %u nodes: must be 1 to %d, equally many on each", spec->world,
                       r->nodes, NT_LAUNCH_MAX);
    }
    l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "launch of %u processes", spec->world);
    }
    l->events = *events;
    l->remote = r;
    l->loop = loop;
    l->world = l->left = spec->world;
    l->each = spec->world / r->nodes;
    rc = prepare(l, spec, err);
    if (rc == 0) {
        const struct nt_door_events door = {on_in, on_refused, on_door_closed, l};
        rc = nt_door_open(loop, r->listen, NT_VERSION, &door, &l->door, err);
    }
    if (rc != 0) {
        dispose(l);
        return rc;
    }
    l->open = 2; /* timer, door */
    (void)uv_timer_init(loop, &l->timer);
    l->timer.data = l;
    rc = start_commands(l, err);
    if (rc != 0) { /* from here on everything ends by events */
        l->failed = UV_EINVAL;
        (void)snprintf(l->reason, sizeof(l->reason), "%.250s", err != NULL ? err->msg : "");
    }
    arm(l, l->reason[0] != '\0' ? 0 : r->wait_ms != 0 ? r->wait_ms : NT_REMOTE_WAIT_MS);
    *ret = l;
    return 0;
}

static void remote_signal(struct nt_launch *l, int signum)
{
    if (l->phase == WAITING) { /* never from inside the caller's own call */
        if (l->reason[0] == '\0') {
            (void)snprintf(l->reason, sizeof(l->reason), "ended before all nodes had connected");
        }
        arm(l, 0);
        return;
    }
    if (l->phase != RUNNING && l->phase != KILLED) {
        return;
    }
    for (unsigned i = 0; i < l->nnodes; i++) {
        if (l->node[i].open) {
            nt_wire_send((uv_stream_t *)&l->node[i].tcp, NT_WIRE_SIGNAL, (uint32_t)signum, NULL, 0);
        }
    }
    if (signum == SIGKILL) {
        l->phase = KILLED;
        arm(l, ANSWER_MS);
    }
}

static void remote_abandon(struct nt_launch *l)
{
    l->abandoned = true;
    give_up(l, 0, l->world, 0, NULL);
    signal_commands(l, SIGKILL);
}

static pid_t remote_pid(const struct nt_launch *l, unsigned rank)
{
    (void)l;
    (void)rank;
    return 0;
}

static const char *remote_host(const struct nt_launch *l, unsigned rank)
{
    for (unsigned i = 0; i < l->nnodes; i++) {
        if (l->node[i].known && l->node[i].number == rank / l->each) {
            return l->node[i].name;
        }
    }
    return "";
}

const struct nt_launcher nt_launcher_remote = {.name = "remote",
                                               .start = remote_start,
                                               .signal = remote_signal,
                                               .abandon = remote_abandon,
                                               .pid = remote_pid,
                                               .host = remote_host};
