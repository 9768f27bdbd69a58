#include "tuner/gang/writes.h"

#include <stdlib.h>

struct write {
    uv_write_t req;
    struct nt_buf rest;
};

static void on_written(uv_write_t *req, int status)
{
    struct write *w = req->data;
    (void)status;
    nt_buf_done(&w->rest);
    free(w);
}

void nt_write_line(uv_stream_t *stream, const struct nt_buf *line)
{
    uv_buf_t b = uv_buf_init(line->data, (unsigned)line->len);
    int n = line->failed ? UV_EINVAL : uv_try_write(stream, &b, 1);
    size_t sent = n > 0 ? (size_t)n : 0;
    struct write *w = NULL;

    if (sent == line->len || (n < 0 && n != UV_EAGAIN) || (w = calloc(1, sizeof(*w))) == NULL) {
        return;
    }
    nt_buf_init(&w->rest, line->len + 2);
    nt_buf_add(&w->rest, line->data + sent, line->len - sent);
    b = uv_buf_init(w->rest.data, (unsigned)w->rest.len);
    w->req.data = w;
    if (w->rest.failed || uv_write(&w->req, stream, &b, 1, on_written) != 0) {
        nt_buf_done(&w->rest);
        free(w);
    }
}
