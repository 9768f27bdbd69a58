#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tuner/base/text.h"
#include "tuner/launch/remote_i.h"

static void on_tunnel_closed(void *data)
{
    struct node *n = data;
    nt_remote_closed_one(n->l);
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

    nt_remote_close_node(n);
    (void)snprintf(words, sizeof(words), "node %s %s", n->name, why);
    nt_remote_give_up(l, running ? base_of(n) : 0, running ? base_of(n) + l->each : l->world, 0,
                      words);
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
    nt_remote_report(l, base_of(n) + f->id, &how);
    if (l->left == 0) {
        nt_remote_finish(l);
    }
    return 0;
}

static void start_ranks(struct nt_launch *l)
{
    l->phase = RUNNING;
    l->started = true;
    nt_remote_pass_turn(l);
    (void)uv_timer_stop(&l->timer);
    nt_remote_close_door(l);
    for (unsigned i = 0; i < l->nnodes; i++) {
        uv_stream_t *s = (uv_stream_t *)&l->node[i].tcp;
        if (!l->node[i].known) { /* one more than was asked for, which has not said who it is */
            nt_remote_close_node(&l->node[i]);
            continue;
        }
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
        nt_remote_give_up(l, 0, l->world, 0, words);
        return 0;
    }
    n->known = true;
    if (nt_remote_known(l) == l->remote->nodes) {
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

void nt_remote_on_in(void *data, int fd, const char *name, const char *rest, size_t len)
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

void nt_remote_on_refused(void *data, const char *words)
{
    struct nt_launch *l = data;
    if (l->phase == WAITING) {
        nt_remote_give_up(l, 0, l->world, 0, words);
    }
}
