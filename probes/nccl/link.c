#include "probes/nccl/link.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "tuner/base/log.h"

/* QUEUE: the driver asks one question at a time; more than this many unread ones is a bug of its.
 * ABORT_S: aborting may itself hang; after this long the kernel ends the process. */
enum { QUEUE = 8, ABORT_S = 2, SAY_S = 1, EXIT_BROKEN = 1, EXIT_ENDED = 5 };

struct nt_link {
    int fd, signals;
    pthread_mutex_t lock; /* queue, guard, leaving */
    pthread_cond_t filled;
    pthread_mutex_t write_lock;
    struct nt_msg queue[QUEUE];
    unsigned head, count;
    nt_link_abort_cb abort;
    void *abort_arg;
    bool leaving; /* `quit` was read: end of file is no surprise any more */
};

static int connect_unix(const char *path, int *ret, struct nt_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd;
    if (strlen(path) >= sizeof(a.sun_path)) {
        return nt_fail(err, NT_E_INVAL, 0, "socket path too long: %s", path);
    }
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        int rc = nt_fail(err, NT_E_IO, errno, "connect to the driver at %s", path);
        (void)close(fd);
        return rc;
    }
    *ret = fd;
    return 0;
}

static int send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -1;
        }
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int connect_host(const char *host, const char *port, int *ret, struct nt_err *err)
{
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    int fd = -1;
    int rc = getaddrinfo(host, port, &hints, &found);
    if (rc != 0) {
        return nt_fail(err, NT_E_IO, 0, "driver's host %s: %s", host, gai_strerror(rc));
    }
    for (struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            int why = errno;
            (void)close(fd);
            fd = -1;
            errno = why;
        }
    }
    rc = fd >= 0 ? 0 : nt_fail(err, NT_E_IO, errno, "connect to the driver at %s:%s", host, port);
    freeaddrinfo(found);
    if (rc == 0) {
        *ret = fd;
    }
    return rc;
}

/* HOST:PORT:SECRET; the host may be a bracketed IPv6 address. The secret goes out as first line. */
static int connect_tcp(const char *where, int *ret, struct nt_err *err)
{
    char text[256], *host = text, *port, *secret;
    int fd = -1, rc;
    size_t len;
    (void)snprintf(text, sizeof(text) - 1, "%s", where);
    secret = strrchr(text, ':');
    if (secret == NULL || strlen(where) >= sizeof(text) - 1) {
        return nt_fail(err, NT_E_INVAL, 0, "%s must be tcp:HOST:PORT:SECRET", NT_ENV_DRIVER);
    }
    *secret++ = '\0';
    port = strrchr(text, ':');
    if (port == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "%s must be tcp:HOST:PORT:SECRET", NT_ENV_DRIVER);
    }
    *port++ = '\0';
    len = strlen(host);
    if (len > 1 && host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        host++;
    }
    rc = connect_host(host, port, &fd, err);
    if (rc != 0) {
        return rc;
    }
    len = strlen(secret);
    secret[len] = '\n';
    if (send_all(fd, secret, len + 1) != 0) {
        rc = nt_fail(err, NT_E_IO, errno, "greet the driver");
        (void)close(fd);
        return rc;
    }
    *ret = fd;
    return 0;
}

int nt_link_open(const char *driver, struct nt_link **ret, struct nt_err *err)
{
    int fd = -1, rc;
    struct nt_link *l;
    sigset_t ends;
    if (strncmp(driver, "unix:", 5) == 0) {
        rc = connect_unix(driver + 5, &fd, err);
    } else if (strncmp(driver, "tcp:", 4) == 0) {
        rc = connect_tcp(driver + 4, &fd, err);
    } else {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s must start with unix: or tcp:", NT_ENV_DRIVER);
    }
    if (rc != 0) {
        return rc;
    }
    l = calloc(1, sizeof(*l));
    if (l == NULL) {
        (void)close(fd);
        return nt_fail(err, NT_E_NOMEM, 0, "link");
    }
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigaddset(&ends, SIGINT);
    (void)sigaddset(&ends, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &ends, NULL);
    l->fd = fd;
    l->signals = signalfd(-1, &ends, SFD_CLOEXEC);
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)pthread_mutex_init(&l->write_lock, NULL);
    (void)pthread_cond_init(&l->filled, NULL);
    if (l->signals < 0) {
        rc = nt_fail(err, NT_E_IO, errno, "signalfd");
        (void)close(fd);
        free(l);
        return rc;
    }
    *ret = l;
    return 0;
}

/* The end of the process, from whichever thread. Nothing after the alarm can keep it alive. */
static _Noreturn void end(struct nt_link *l, int exit_code)
{
    nt_link_abort_cb cb;
    void *arg;
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(ABORT_S);
    (void)pthread_mutex_lock(&l->lock);
    cb = l->abort;
    arg = l->abort_arg;
    l->abort = NULL;
    (void)pthread_mutex_unlock(&l->lock);
    if (cb != NULL) {
        cb(arg);
    }
    _exit(exit_code);
}

/* The watcher must not wait for a driver that does not read, nor long for a main thread that holds
 * the lock while it does. */
static void say_error(struct nt_link *l, const char *words)
{
    struct nt_msg m = {.type = NT_MSG_ERROR};
    struct nt_buf line;
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += SAY_S;
    (void)snprintf(m.error, sizeof(m.error), "%s", words);
    nt_buf_init(&line, NT_LINE_MAX);
    nt_msg_encode(&m, &line);
    if (!line.failed && pthread_mutex_timedlock(&l->write_lock, &until) == 0) {
        (void)send(l->fd, line.data, line.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)pthread_mutex_unlock(&l->write_lock);
    }
    nt_buf_done(&line);
}

void nt_link_die(struct nt_link *l, int exit_code, const char *words)
{
    nt_log(NT_ERROR, "%s", words);
    say_error(l, words);
    end(l, exit_code);
}

static void take_line(struct nt_link *l, const char *line, size_t len)
{
    struct nt_msg m;
    struct nt_err err = {0};
    bool full;
    if (nt_msg_decode(line, len, &m, &err) != 0) {
        nt_link_die(l, EXIT_BROKEN, err.msg);
    }
    if (m.type == NT_MSG_ABORT) {
        end(l, EXIT_ENDED);
    }
    (void)pthread_mutex_lock(&l->lock);
    l->leaving = l->leaving || m.type == NT_MSG_QUIT;
    full = l->count == QUEUE;
    if (!full) {
        l->queue[(l->head + l->count++) % QUEUE] = m;
        (void)pthread_cond_signal(&l->filled);
    }
    (void)pthread_mutex_unlock(&l->lock);
    if (full) {
        nt_link_die(l, EXIT_BROKEN, "more questions than answers");
    }
}

/* False at end of file. */
static bool read_more(struct nt_link *l, struct nt_buf *in)
{
    char chunk[16384];
    const char *eol;
    ssize_t n = recv(l->fd, chunk, sizeof(chunk), 0);
    if (n <= 0) {
        return n < 0 && errno == EINTR;
    }
    nt_buf_add(in, chunk, (size_t)n);
    if (in->failed) {
        nt_link_die(l, EXIT_BROKEN, "a line of the driver is too long");
    }
    while (in->len > 0 && (eol = memchr(in->data, '\n', in->len)) != NULL) {
        size_t len = (size_t)(eol - in->data);
        take_line(l, in->data, len);
        nt_buf_consume(in, len + 1);
    }
    return true;
}

static void *watch(void *arg)
{
    struct nt_link *l = arg;
    struct nt_buf in;
    bool leaving;
    struct pollfd fds[] = {{.fd = l->fd, .events = POLLIN}, {.fd = l->signals, .events = POLLIN}};
    nt_buf_init(&in, NT_LINE_MAX + 16384);
    do {
        fds[0].revents = fds[1].revents = 0;
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            break;
        }
        if (fds[1].revents != 0) {
            end(l, EXIT_ENDED);
        }
    } while (fds[0].revents == 0 || read_more(l, &in));
    (void)pthread_mutex_lock(&l->lock);
    leaving = l->leaving;
    (void)pthread_mutex_unlock(&l->lock);
    if (!leaving) {
        end(l, EXIT_ENDED);
    }
    /* The driver has gone after `quit`: the main thread is cleaning up, but not for ever. */
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(ABORT_S);
    nt_buf_done(&in);
    return NULL;
}

int nt_link_start(struct nt_link *l, struct nt_err *err)
{
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, watch, l);
    if (rc != 0) {
        return nt_fail(err, NT_E_IO, rc, "start the watcher");
    }
    (void)pthread_detach(thread);
    return 0;
}

void nt_link_guard(struct nt_link *l, nt_link_abort_cb cb, void *arg)
{
    (void)pthread_mutex_lock(&l->lock);
    l->abort = cb;
    l->abort_arg = arg;
    (void)pthread_mutex_unlock(&l->lock);
}

void nt_link_next(struct nt_link *l, struct nt_msg *ret)
{
    (void)pthread_mutex_lock(&l->lock);
    while (l->count == 0) {
        (void)pthread_cond_wait(&l->filled, &l->lock);
    }
    *ret = l->queue[l->head];
    l->head = (l->head + 1) % QUEUE;
    l->count--;
    (void)pthread_mutex_unlock(&l->lock);
}

void nt_link_send(struct nt_link *l, const struct nt_msg *m)
{
    struct nt_buf line;
    int rc;
    nt_buf_init(&line, NT_LINE_MAX);
    nt_msg_encode(m, &line);
    nt_assert(!line.failed && line.len > 0);
    (void)pthread_mutex_lock(&l->write_lock);
    rc = send_all(l->fd, line.data, line.len);
    (void)pthread_mutex_unlock(&l->write_lock);
    nt_buf_done(&line);
    if (rc != 0) {
        end(l, EXIT_ENDED);
    }
}
