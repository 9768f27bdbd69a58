#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/probe/ranks.h"

enum { PATIENCE_MS = 20000 };

uint64_t ranks_now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int listen_at(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_true(strlen(path) < sizeof(a.sun_path));
    memcpy(a.sun_path, path, strlen(path));
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, RANKS_MAX), 0);
    return fd;
}

static const char *build_dir(void)
{
    const char *dir = getenv("NT_BUILD_DIR");
    return dir != NULL ? dir : "build/release";
}

static void add(char **env, size_t *n, const char *fmt, const char *value)
{
    char text[512];
    (void)snprintf(text, sizeof(text), "%s%s", fmt, value);
    env[(*n)++] = strdup(text);
}

static pid_t spawn(const struct ranks *r, unsigned rank, const char *const *more)
{
    char *env[32] = {NULL}, program[512], log[128], text[256];
    size_t n = 0;
    pid_t pid;
    (void)snprintf(program, sizeof(program), "%s/tests/probe/nccltune-probe-fake", build_dir());
    (void)snprintf(log, sizeof(log), "%s/rank%u.log", r->dir, rank);
    for (size_t i = 0; more != NULL && more[i] != NULL; i++) {
        env[n++] = strdup(more[i]); /* the first of two equal names is what getenv finds */
    }
    (void)snprintf(text, sizeof(text), "%u", rank);
    add(env, &n, NT_ENV_RANK "=", text);
    (void)snprintf(text, sizeof(text), "%u", r->n);
    add(env, &n, NT_ENV_WORLD "=", text);
    (void)snprintf(text, sizeof(text), "unix:%s/driver", r->dir);
    add(env, &n, NT_ENV_DRIVER "=", text);
    (void)snprintf(text, sizeof(text), "%s/tests/probe/libfakenccl.so", build_dir());
    add(env, &n, "NCCLTUNE_NCCL_LIB=", text);
    add(env, &n, "NCCL_TUNER_PLUGIN=", "STATIC_PLUGIN");
    add(env, &n, "NCCL_PROFILER_PLUGIN=", "STATIC_PLUGIN");
    add(env, &n, "TMPDIR=", r->dir);
    add(env, &n, "TSAN_OPTIONS=", "atexit_sleep_ms=0"); /* it would wait a second for the watcher */
    add(env, &n, "HOME=", r->dir);
    pid = fork();
    if (pid == 0) {
        int fd = open(log, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
        (void)execle(program, program, (char *)NULL, env);
        _exit(127);
    }
    for (size_t i = 0; i < n; i++) {
        free(env[i]);
    }
    assert_true(pid > 0);
    return pid;
}

static void make_page(struct ranks *r)
{
    int fd;
    (void)snprintf(r->shm, sizeof(r->shm), "%s/page", r->dir);
    fd = open(r->shm, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    (void)close(fd);
}

static void wait_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, PATIENCE_MS) != 1) {
        fail_msg("a rank said nothing for %d ms", PATIENCE_MS);
    }
}

/* False at end of file. */
static bool read_line(struct ranks *r, int fd, struct nt_buf *in, struct nt_msg *ret)
{
    char *eol, chunk[65536];
    struct nt_err err = {0};
    (void)r;
    while (in->len == 0 || (eol = memchr(in->data, '\n', in->len)) == NULL) {
        ssize_t n;
        wait_readable(fd);
        n = recv(fd, chunk, sizeof(chunk), 0);
        if (n <= 0) {
            return false;
        }
        nt_buf_add(in, chunk, (size_t)n);
    }
    if (nt_msg_decode(in->data, (size_t)(eol - in->data), ret, &err) != 0) {
        fail_msg("%s in %s", err.msg, nt_buf_str(in));
    }
    nt_buf_consume(in, (size_t)(eol - in->data) + 1);
    return true;
}

/* A rank says who it is only with its first line. */
static void accept_one(struct ranks *r, int listener)
{
    struct nt_msg m;
    struct nt_buf in;
    int fd;
    wait_readable(listener);
    fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    nt_buf_init(&in, 2 * NT_LINE_MAX);
    assert_true(read_line(r, fd, &in, &m));
    if (m.type == NT_MSG_ERROR) {
        fail_msg("a rank would not start: %s", m.error);
    }
    assert_int_equal(m.type, NT_MSG_HELLO);
    assert_true(m.hello.rank < r->n && r->fd[m.hello.rank] < 0);
    r->fd[m.hello.rank] = fd;
    r->in[m.hello.rank] = in;
    r->hello[m.hello.rank] = m.hello;
    nt_msg_done(&m);
}

void ranks_start(struct ranks *r, unsigned n, const char *const *env)
{
    char path[128];
    int listener;
    *r = (struct ranks){.n = n, .dir = "/tmp/nt-probe-XXXXXX"};
    assert_non_null(mkdtemp(r->dir));
    (void)snprintf(path, sizeof(path), "%s/driver", r->dir);
    make_page(r);
    listener = listen_at(path);
    for (unsigned i = 0; i < n; i++) {
        r->fd[i] = -1;
        r->pid[i] = spawn(r, i, env);
    }
    for (unsigned i = 0; i < n; i++) {
        accept_one(r, listener);
    }
    (void)close(listener);
}

void ranks_say_text(struct ranks *r, unsigned rank, const char *line)
{
    size_t len = strlen(line);
    assert_int_equal(send(r->fd[rank], line, len, MSG_NOSIGNAL), (ssize_t)len);
}

void ranks_say(struct ranks *r, unsigned rank, const struct nt_msg *m)
{
    struct nt_buf line;
    nt_buf_init(&line, NT_LINE_MAX);
    nt_msg_encode(m, &line);
    ranks_say_text(r, rank, nt_buf_str(&line));
    nt_buf_done(&line);
}

void ranks_hear(struct ranks *r, unsigned rank, enum nt_msg_type type, struct nt_msg *ret)
{
    if (!read_line(r, r->fd[rank], &r->in[rank], ret)) {
        fail_msg("rank %u closed its stream", rank);
    }
    if (ret->type != type) {
        fail_msg("rank %u: message %d instead of %d: %s", rank, (int)ret->type, (int)type,
                 ret->type == NT_MSG_ERROR ? ret->error : "");
    }
}

void ranks_init(struct ranks *r, uint64_t max_bytes, bool by_page)
{
    struct nt_msg m = {.type = NT_MSG_UID}, uid;
    ranks_say(r, 0, &m);
    ranks_hear(r, 0, NT_MSG_UID, &uid);
    m = (struct nt_msg){.type = NT_MSG_INIT};
    (void)snprintf(m.init.uid, sizeof(m.init.uid), "%s", uid.uid);
    (void)snprintf(m.init.backend, sizeof(m.init.backend), "nccl");
    (void)snprintf(m.init.shm, sizeof(m.init.shm), "%s", by_page ? r->shm : "");
    m.init.max_bytes = max_bytes;
    for (unsigned i = 0; i < r->n; i++) {
        m.init.device = i;
        ranks_say(r, i, &m);
    }
    nt_msg_done(&uid);
}

void ranks_measure(struct ranks *r, const struct nt_measure *m, struct nt_msg *ret)
{
    const struct nt_msg q = {.type = NT_MSG_MEASURE, .measure = *m};
    for (unsigned i = 0; i < r->n; i++) {
        ranks_say(r, i, &q);
    }
    for (unsigned i = 0; i < r->n; i++) {
        ranks_hear(r, i, NT_MSG_RESULT, &ret[i]);
        assert_int_equal(ret[i].result.id, m->id);
    }
}

void ranks_results_done(struct ranks *r, struct nt_msg *results)
{
    for (unsigned i = 0; i < r->n; i++) {
        nt_msg_done(&results[i]);
    }
}

int ranks_end(struct ranks *r, unsigned rank, unsigned ms)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    uint64_t until = ranks_now_ms() + ms;
    int status = 0;
    while (waitpid(r->pid[rank], &status, WNOHANG) == 0) {
        if (ranks_now_ms() > until) {
            fail_msg("rank %u still runs after %u ms", rank, ms);
        }
        (void)nanosleep(&pause, NULL);
    }
    r->pid[rank] = 0;
    return status;
}

void ranks_quit(struct ranks *r)
{
    const struct nt_msg m = {.type = NT_MSG_QUIT};
    for (unsigned i = 0; i < r->n; i++) {
        ranks_say(r, i, &m);
    }
    for (unsigned i = 0; i < r->n; i++) {
        assert_int_equal(ranks_end(r, i, PATIENCE_MS), 0);
    }
    ranks_kill(r);
}

static void remove_dir(const struct ranks *r)
{
    char path[128];
    static const char *const names[] = {"driver", "page"};
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", r->dir, names[i]);
        (void)unlink(path);
    }
    for (unsigned i = 0; i < r->n; i++) {
        (void)snprintf(path, sizeof(path), "%s/rank%u.log", r->dir, i);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(r->dir), 0); /* a rank leaves nothing behind in its TMPDIR */
}

void ranks_kill(struct ranks *r)
{
    for (unsigned i = 0; i < r->n; i++) {
        if (r->pid[i] > 0) {
            (void)kill(r->pid[i], SIGKILL);
            (void)waitpid(r->pid[i], NULL, 0);
            r->pid[i] = 0;
        }
        if (r->fd[i] >= 0) {
            (void)close(r->fd[i]);
            r->fd[i] = -1;
        }
        nt_buf_done(&r->in[i]);
    }
    remove_dir(r);
}
