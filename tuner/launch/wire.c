#include "tuner/launch/wire.h"

#include <stdlib.h>
#include <string.h>

struct write {
    uv_write_t req;
    struct nt_buf rest;
};

void nt_wire_init(struct nt_wire *w)
{
    *w = (struct nt_wire){.used = 0};
    nt_buf_init(&w->in, 2 * (size_t)NT_WIRE_MAX);
}

void nt_wire_done(struct nt_wire *w)
{
    nt_buf_done(&w->in);
}

static uint32_t le32(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

static void put_le32(char *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++) {
        p[i] = (char)(v >> (8 * i) & 0xff);
    }
}

int nt_wire_feed(struct nt_wire *w, const char *data, size_t len, struct nt_err *err)
{
    nt_buf_add(&w->in, data, len);
    return w->in.failed ? nt_fail(err, NT_E_PROTO, 0, "more than can be kept") : 0;
}

int nt_wire_next(struct nt_wire *w, struct nt_frame *ret, struct nt_err *err)
{
    uint32_t len;
    uint8_t kind;

    nt_buf_consume(&w->in, w->used);
    w->used = 0;
    if (w->in.len < NT_WIRE_HEAD) {
        return 0;
    }
    len = le32(w->in.data);
    kind = (uint8_t)w->in.data[4];
    if (kind >= NT_WIRE_COUNT || len > NT_WIRE_MAX) {
        return nt_fail(err, NT_E_PROTO, 0, "frame of kind %u with %u bytes", kind, len);
    }
    if (w->in.len - NT_WIRE_HEAD < len) {
        return 0;
    }
    *ret = (struct nt_frame){.kind = (enum nt_wire_kind)kind,
                             .id = le32(w->in.data + 5),
                             .data = w->in.data + NT_WIRE_HEAD,
                             .len = len};
    w->used = NT_WIRE_HEAD + (size_t)len;
    return 1;
}

static void on_written(uv_write_t *req, int status)
{
    struct write *w = req->data;
    (void)status;
    nt_buf_done(&w->rest);
    free(w);
}

static void put2(uv_stream_t *s, const char *head, size_t nhead, const void *data, size_t len)
{
    uv_buf_t b[2] = {uv_buf_init((char *)head, (unsigned)nhead),
                     uv_buf_init((char *)data, (unsigned)len)};
    int n = uv_try_write(s, b, len > 0 ? 2 : 1);
    size_t sent = n > 0 ? (size_t)n : 0, head_sent = sent < nhead ? sent : nhead;
    struct write *w = NULL;
    uv_buf_t rest;

    if (sent == nhead + len || (n < 0 && n != UV_EAGAIN) || (w = calloc(1, sizeof(*w))) == NULL) {
        return;
    }
    nt_buf_init(&w->rest, nhead + len + 2);
    nt_buf_add(&w->rest, head + head_sent, nhead - head_sent);
    if (len > 0) {
        nt_buf_add(&w->rest, (const char *)data + (sent - head_sent), len - (sent - head_sent));
    }
    rest = uv_buf_init(w->rest.data, (unsigned)w->rest.len);
    w->req.data = w;
    if (w->rest.failed || uv_write(&w->req, s, &rest, 1, on_written) != 0) {
        nt_buf_done(&w->rest);
        free(w);
    }
}

void nt_wire_send(uv_stream_t *s, enum nt_wire_kind kind, uint32_t id, const void *data, size_t len)
{
    char head[NT_WIRE_HEAD];

    nt_assert(len <= NT_WIRE_MAX);
    put_le32(head, (uint32_t)len);
    head[4] = (char)kind;
    put_le32(head + 5, id);
    put2(s, head, sizeof(head), data, len);
}

void nt_wire_put(uv_stream_t *s, const void *data, size_t len)
{
    put2(s, data, len, NULL, 0);
}

const char *nt_wire_string(const struct nt_frame *f, size_t *at)
{
    const char *text = f->data + *at, *end;

    if (*at >= f->len || (end = memchr(text, '\0', f->len - *at)) == NULL) {
        return NULL;
    }
    *at += (size_t)(end - text) + 1;
    return text;
}
