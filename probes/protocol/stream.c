#include "probes/protocol/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tuner/base/text.h"

#define UNIX "unix:"

int nt_stream_open(const char *driver, struct nt_stream *ret, struct nt_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd;

    if (driver == NULL || strncmp(driver, UNIX, strlen(UNIX)) != 0 ||
        strlen(driver) - strlen(UNIX) >= sizeof(a.sun_path)) {
        return nt_fail(err, NT_E_INVAL, 0, "%s: must be unix:PATH", NT_ENV_DRIVER);
    }
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", driver + strlen(UNIX));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof(a)) != 0) {
        int rc = nt_fail(err, NT_E_IO, errno, "connect to %s", a.sun_path);
        if (fd >= 0) {
            (void)close(fd);
        }
        return rc;
    }
    ret->fd = fd;
    nt_buf_init(&ret->in, 2 * NT_LINE_MAX);
    return 0;
}

void nt_stream_close(struct nt_stream *s)
{
    (void)close(s->fd);
    nt_buf_done(&s->in);
}

int nt_stream_send(struct nt_stream *s, const struct nt_msg *m, struct nt_err *err)
{
    struct nt_buf line;
    size_t done = 0;
    int rc = 0;

    nt_buf_init(&line, NT_LINE_MAX + 2);
    nt_msg_encode(m, &line);
    if (line.failed) {
        rc = nt_fail(err, NT_E_BUG, 0, "a message that cannot be sent");
    }
    while (rc == 0 && done < line.len) {
        ssize_t n = send(s->fd, line.data + done, line.len - done, MSG_NOSIGNAL);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno != EINTR) {
            rc = nt_fail(err, NT_E_IO, errno, "write to the driver");
        }
    }
    nt_buf_done(&line);
    return rc;
}

static int read_more(struct nt_stream *s, struct nt_err *err)
{
    char chunk[16384];
    ssize_t n;

    do {
        n = read(s->fd, chunk, sizeof(chunk));
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        return nt_fail(err, NT_E_IO, n < 0 ? errno : 0, "the driver is gone");
    }
    nt_buf_add(&s->in, chunk, (size_t)n);
    return s->in.failed ? nt_fail(err, NT_E_PROTO, 0, "a line that is too long") : 0;
}

int nt_stream_next(struct nt_stream *s, struct nt_msg *ret, struct nt_err *err)
{
    size_t seen = 0;
    int rc = 0;

    for (;;) {
        const char *nl =
            s->in.len > seen ? memchr(s->in.data + seen, '\n', s->in.len - seen) : NULL;
        if (nl != NULL) {
            size_t len = (size_t)(nl - s->in.data);
            rc = nt_msg_decode(s->in.data, len, ret, err);
            nt_buf_consume(&s->in, len + 1);
            return rc;
        }
        seen = s->in.len;
        rc = read_more(s, err);
        if (rc != 0) {
            return rc;
        }
    }
}

int nt_stream_env(const char *name, unsigned *ret, struct nt_err *err)
{
    const char *text = getenv(name);
    uint64_t v = 0;
    int rc = text != NULL ? nt_parse_u64(text, &v, err) : nt_fail(err, NT_E_INVAL, 0, "not set");

    if (rc == 0 && v > UINT32_MAX) {
        rc = nt_fail(err, NT_E_INVAL, 0, "too large");
    }
    if (rc != 0) {
        return nt_wrap(err, rc, "%s", name);
    }
    *ret = (unsigned)v;
    return 0;
}
