#include "tuner/cli/fetch.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX_BYTES = 65536 };

/* A socket that waits for nothing longer than the limit, nor for a connection: -1 and errno. */
static int limited_socket(int family, int type, int protocol)
{
    const struct timeval limit = {.tv_sec = NT_FETCH_SECONDS};
    int fd = socket(family, type | SOCK_CLOEXEC, protocol);
    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    }
    return fd;
}

static int connect_unix(const char *path, int *ret_fd, struct nt_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd;
    if (snprintf(a.sun_path, sizeof(a.sun_path), "%s", path) >= (int)sizeof(a.sun_path)) {
        return nt_fail(err, NT_E_INVAL, 0, "the path of the socket is longer than %zu",
                       sizeof(a.sun_path) - 1);
    }
    fd = limited_socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        int rc = nt_fail(err, NT_E_IO, errno, "service at %s", path);
        if (fd >= 0) {
            (void)close(fd);
        }
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

/* "HOST:PORT", "[::1]:PORT" */
static int connect_tcp(const char *where, int *ret_fd, struct nt_err *err)
{
    char host[256];
    const char *colon = strrchr(where, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    size_t n = colon != NULL ? (size_t)(colon - where) : 0;
    int fd = -1, rc, cause = 0;

    if (colon == NULL || n >= sizeof(host) || colon[1] == '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "'%.100s' says no port", where);
    }
    if (where[0] == '[' && n > 2 && where[n - 1] == ']') {
        where++;
        n -= 2;
    }
    (void)snprintf(host, sizeof(host), "%.*s", (int)n, where);
    rc = getaddrinfo(host, colon + 1, &hints, &list);
    if (rc != 0) {
        return nt_fail(err, NT_E_IO, 0, "service at %s: %s", host, gai_strerror(rc));
    }
    for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = limited_socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            cause = errno;
            (void)close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0) {
        return nt_fail(err, NT_E_IO, cause, "service at %s%s", host, colon);
    }
    *ret_fd = fd;
    return 0;
}

int nt_fetch_check(const char *from, struct nt_err *err)
{
    const char *host = from + 7;
    size_t len;

    if (strncmp(from, "unix:", 5) == 0 && from[5] != '\0') {
        return 0;
    }
    if (strncmp(from, "http://", 7) == 0) {
        len = strcspn(host, "/");
        for (size_t i = 1; i + 1 < len; i++) { /* "HOST:PORT", neither empty */
            if (host[i] == ':') {
                return 0;
            }
        }
        return nt_fail(err, NT_E_INVAL, 0, "'%.100s' says no port", from);
    }
    return nt_fail(err, NT_E_INVAL, 0,
                   "'%.100s' is no service: unix:PATH or http://HOST:PORT (https: by curl)", from);
}

static int open_connection(const char *from, int *ret_fd, struct nt_err *err)
{
    if (strncmp(from, "unix:", 5) == 0) {
        return connect_unix(from + 5, ret_fd, err);
    }
    if (strncmp(from, "http://", 7) == 0) {
        char where[300];
        (void)snprintf(where, sizeof(where), "%.*s", (int)strcspn(from + 7, "/"), from + 7);
        return connect_tcp(where, ret_fd, err);
    }
    return nt_fetch_check(from, err);
}

static int send_all(int fd, const struct nt_buf *b, struct nt_err *err)
{
    for (size_t sent = 0; sent < b->len;) {
        ssize_t n = send(fd, b->data + sent, b->len - sent, MSG_NOSIGNAL);
        if (n <= 0) {
            return nt_fail(err, NT_E_IO, errno, "sending to the service");
        }
        sent += (size_t)n;
    }
    return 0;
}

static time_t now_s(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* The whole answer has the limit: one that comes byte by byte would never end. */
static int receive_all(int fd, struct nt_buf *b, struct nt_err *err)
{
    const time_t end = now_s() + NT_FETCH_SECONDS;
    char block[16384];
    ssize_t n;
    while ((n = recv(fd, block, sizeof(block), 0)) > 0 && now_s() < end) {
        nt_buf_add(b, block, (size_t)n);
        if (b->failed) {
            return nt_fail(err, NT_E_IO, 0, "the answer is larger than %d MiB",
                           NT_FETCH_MAX_BYTES >> 20);
        }
    }
    if (n > 0 || (n < 0 && errno == EAGAIN)) {
        return nt_fail(err, NT_E_IO, 0, "the service gave no whole answer within %d s",
                       NT_FETCH_SECONDS);
    }
    return n < 0 ? nt_fail(err, NT_E_IO, errno, "reading from the service") : 0;
}

/* "HTTP/1.1 200 OK", headers, an empty line, and as many bytes as were announced. */
static int split(const struct nt_buf *all, unsigned *ret_status, struct nt_buf *body,
                 struct nt_err *err)
{
    const char *text = nt_buf_str(all), *end = strstr(text, "\r\n\r\n"), *at;
    unsigned long length;
    size_t have;

    if (end == NULL || end - text > HEAD_MAX_BYTES || strncmp(text, "HTTP/1.1 ", 9) != 0) {
        return nt_fail(err, NT_E_IO, 0, "what answered there speaks no HTTP/1.1");
    }
    *ret_status = (unsigned)strtoul(text + 9, NULL, 10);
    have = all->len - (size_t)(end + 4 - text);
    at = strcasestr(text, "\r\nContent-Length:");
    length = at != NULL && at < end ? strtoul(at + 17, NULL, 10) : have;
    if (*ret_status != 304 && length != have) {
        return nt_fail(err, NT_E_IO, 0, "the answer broke off: %zu of %lu bytes", have, length);
    }
    nt_buf_add(body, end + 4, have);
    return 0;
}

/* Connected, and asked. *ret_fd: -1 after a failure. */
static int ask(const struct nt_fetch *f, const char *version, int *ret_fd, struct nt_err *err)
{
    struct nt_buf out;
    int rc = open_connection(f->from, ret_fd, err);

    if (rc != 0) {
        return rc;
    }
    nt_buf_init(&out, 4 << 20);
    nt_buf_printf(&out, "%s %s HTTP/%s\r\nHost: %s\r\nConnection: close\r\n", f->method, f->path,
                  version, strncmp(f->from, "unix:", 5) == 0 ? "localhost" : f->from + 7);
    if (f->token != NULL) {
        nt_buf_printf(&out, "Authorization: Bearer %s\r\n", f->token);
    }
    if (f->etag != NULL) {
        nt_buf_printf(&out, "If-None-Match: \"%s\"\r\n", f->etag);
    }
    if (f->body != NULL) {
        nt_buf_printf(&out, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                      strlen(f->body), f->body);
    } else {
        nt_buf_puts(&out, "\r\n");
    }
    rc = out.failed ? nt_fail(err, NT_E_INVAL, 0, "the request is too large")
                    : send_all(*ret_fd, &out, err);
    nt_buf_done(&out);
    if (rc != 0) {
        (void)close(*ret_fd);
        *ret_fd = -1;
    }
    return rc;
}

int nt_fetch(const struct nt_fetch *f, unsigned *ret_status, struct nt_buf *body,
             struct nt_err *err)
{
    struct nt_buf in;
    int fd = -1, rc = ask(f, "1.1", &fd, err);

    if (rc != 0) {
        return rc;
    }
    nt_buf_init(&in, NT_FETCH_MAX_BYTES);
    rc = receive_all(fd, &in, err);
    rc = rc == 0 ? split(&in, ret_status, body, err) : rc;
    (void)close(fd);
    nt_buf_done(&in);
    return rc;
}

/* ---- streams ---- */

/* One line, without its end: 1, 0 at the end of the stream, or -enum nt_code. */
static int read_line(FILE *in, struct nt_buf *line, struct nt_err *err)
{
    int c;

    nt_buf_clear(line);
    while ((c = getc(in)) != EOF && c != '\n') {
        char x = (char)c;
        nt_buf_add(line, &x, 1);
        if (line->failed) {
            return nt_fail(err, NT_E_IO, 0, "a line of more than %d bytes", NT_FETCH_LINE_MAX);
        }
    }
    if (line->len > 0 && line->data[line->len - 1] == '\r') {
        line->data[--line->len] = '\0';
    }
    return c != EOF;
}

static int read_head(FILE *in, struct nt_buf *line, unsigned *ret_status, struct nt_err *err)
{
    int rc = read_line(in, line, err);

    if (rc < 0 || strncmp(nt_buf_str(line), "HTTP/1.", 7) != 0 || line->len < 12) {
        return rc < 0 ? rc : nt_fail(err, NT_E_IO, 0, "what answered there speaks no HTTP/1");
    }
    *ret_status = (unsigned)strtoul(line->data + 9, NULL, 10);
    for (size_t bytes = 0; rc > 0 && line->len > 0; bytes += line->len) {
        rc = read_line(in, line, err);
        if (bytes > HEAD_MAX_BYTES) {
            return nt_fail(err, NT_E_IO, 0, "headers of more than %d bytes", HEAD_MAX_BYTES);
        }
    }
    return rc < 0 ? rc : 0;
}

static int take_lines(FILE *in, struct nt_buf *line, nt_fetch_line_cb cb, void *data,
                      struct nt_err *err)
{
    int rc;

    while ((rc = read_line(in, line, err)) > 0) {
        rc = cb(data, nt_buf_str(line), err);
        if (rc != 0) {
            return rc > 0 ? 0 : rc;
        }
    }
    return rc < 0 ? rc : nt_fail(err, NT_E_IO, 0, "the service ended the stream");
}

/* Asked by HTTP/1.0, so that what comes is the lines and no chunks. */
int nt_fetch_lines(const struct nt_fetch *f, nt_fetch_line_cb cb, void *data, unsigned *ret_status,
                   struct nt_buf *body, struct nt_err *err)
{
    const struct timeval silent = {.tv_sec = NT_FETCH_SILENT_SECONDS};
    struct nt_buf line;
    FILE *in;
    int fd = -1, rc = ask(f, "1.0", &fd, err);

    if (rc != 0) {
        return rc;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silent, sizeof(silent));
    in = fdopen(fd, "r");
    if (in == NULL) {
        (void)close(fd);
        return nt_fail(err, NT_E_NOMEM, 0, "stream");
    }
    nt_buf_init(&line, NT_FETCH_LINE_MAX);
    rc = read_head(in, &line, ret_status, err);
    if (rc == 0 && *ret_status == 200) {
        rc = take_lines(in, &line, cb, data, err);
    } else if (rc == 0) {
        while ((rc = read_line(in, &line, err)) > 0 && body->len < NT_FETCH_LINE_MAX) {
            nt_buf_add(body, nt_buf_str(&line), line.len);
        }
        nt_buf_add(body, nt_buf_str(&line), line.len); /* the last one has no end */
        rc = rc < 0 ? rc : 0;
    }
    nt_buf_done(&line);
    (void)fclose(in);
    return rc;
}
