#include "tuner/launch/tunnel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { DRAIN_CHUNKS = 256 };

struct nt_tunnel_end {
    uv_pipe_t pipe;
    uv_shutdown_t shutdown;
    struct nt_tunnel *t;
    struct nt_tunnel_end *next;
    uint32_t id;
    bool closing; /* the other side has said CLOSE: what is still to be written is, then it ends */
};

void nt_tunnel_init(struct nt_tunnel *t, uv_loop_t *loop, uv_stream_t *carrier,
                    void (*on_closed)(void *data), void *data)
{
    *t = (struct nt_tunnel){.loop = loop, .carrier = carrier, .on_closed = on_closed, .data = data};
}

static void on_end_closed(uv_handle_t *h)
{
    struct nt_tunnel_end *e = h->data, **at = &e->t->ends;
    struct nt_tunnel *t = e->t;

    while (*at != e) {
        at = &(*at)->next;
    }
    *at = e->next;
    free(e);
    if (--t->open == 0 && t->closing) {
        t->on_closed(t->data);
    }
}

static void close_end(struct nt_tunnel_end *e)
{
    if (!uv_is_closing((uv_handle_t *)&e->pipe)) {
        uv_close((uv_handle_t *)&e->pipe, on_end_closed);
    }
}

static void say(struct nt_tunnel_end *e, enum nt_wire_kind kind, const char *data, size_t len)
{
    if (!e->t->closing && !e->closing) {
        nt_wire_send(e->t->carrier, kind, e->id, data, len);
    }
}

static void ended_here(struct nt_tunnel_end *e)
{
    say(e, NT_WIRE_CLOSE, NULL, 0);
    close_end(e);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct nt_tunnel_end *e = h->data;
    (void)suggested;
    *buf = uv_buf_init(e->t->chunk, NT_TUNNEL_CHUNK);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct nt_tunnel_end *e = s->data;

    if (n > 0) {
        say(e, NT_WIRE_DATA, buf->base, (size_t)n);
    } else if (n < 0) {
        ended_here(e);
    }
}

static struct nt_tunnel_end *new_end(struct nt_tunnel *t, uint32_t id)
{
    struct nt_tunnel_end *e = calloc(1, sizeof(*e));

    if (e != NULL) {
        (void)uv_pipe_init(t->loop, &e->pipe, 0);
        e->pipe.data = e->shutdown.data = e;
        e->t = t;
        e->id = id;
        e->next = t->ends;
        t->ends = e;
        t->open++;
    }
    return e;
}

void nt_tunnel_accept(struct nt_tunnel *t, uv_stream_t *listener)
{
    struct nt_tunnel_end *e = new_end(t, t->next++);

    if (e == NULL) {
        return;
    }
    if (t->closing || uv_accept(listener, (uv_stream_t *)&e->pipe) != 0 ||
        uv_read_start((uv_stream_t *)&e->pipe, on_alloc, on_read) != 0) {
        close_end(e);
        return;
    }
    say(e, NT_WIRE_OPEN, NULL, 0);
}

/* A Unix socket connects at once, or not at all: its listener's queue has room for all ranks. */
void nt_tunnel_connect(struct nt_tunnel *t, uint32_t id, const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct nt_tunnel_end *e = t->closing ? NULL : new_end(t, id);
    int fd;

    if (e == NULL) {
        return;
    }
    fd = strlen(path) < sizeof(a.sun_path) ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (fd >= 0) {
        memcpy(a.sun_path, path, strlen(path) + 1);
    }
    if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof(a)) != 0 ||
        uv_pipe_open(&e->pipe, fd) != 0) {
        if (fd >= 0) {
            (void)close(fd);
        }
        ended_here(e);
        return;
    }
    if (uv_read_start((uv_stream_t *)&e->pipe, on_alloc, on_read) != 0) {
        ended_here(e);
    }
}

static void on_shutdown(uv_shutdown_t *r, int status)
{
    (void)status;
    close_end(r->data);
}

void nt_tunnel_hear(struct nt_tunnel *t, const struct nt_frame *f)
{
    struct nt_tunnel_end *e = t->ends;

    while (e != NULL && (e->id != f->id || uv_is_closing((uv_handle_t *)&e->pipe))) {
        e = e->next;
    }
    if (e == NULL || e->closing) {
        return;
    }
    if (f->kind == NT_WIRE_DATA) {
        nt_wire_put((uv_stream_t *)&e->pipe, f->data, f->len);
    } else {
        e->closing = true;
        if (uv_shutdown(&e->shutdown, (uv_stream_t *)&e->pipe, on_shutdown) != 0) {
            close_end(e);
        }
    }
}

void nt_tunnel_drain(struct nt_tunnel *t)
{
    for (struct nt_tunnel_end *e = t->ends; e != NULL; e = e->next) {
        uv_os_fd_t fd;
        ssize_t n = 1;
        bool reads = !uv_is_closing((uv_handle_t *)&e->pipe) && !e->closing &&
                     uv_fileno((uv_handle_t *)&e->pipe, &fd) == 0;
        for (int i = 0; reads && n > 0 && i < DRAIN_CHUNKS; i++) {
            n = read(fd, t->chunk, NT_TUNNEL_CHUNK);
            if (n > 0) {
                say(e, NT_WIRE_DATA, t->chunk, (size_t)n);
            }
        }
    }
}

bool nt_tunnel_close(struct nt_tunnel *t)
{
    t->closing = true;
    for (struct nt_tunnel_end *e = t->ends; e != NULL; e = e->next) {
        close_end(e);
    }
    return t->open > 0;
}
