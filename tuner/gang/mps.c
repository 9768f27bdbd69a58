#include "tuner/gang/mps.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/launch/guard.h"
#include "tuner/launch/launch.h"
#include "tuner/launch/log_tail.h"

/* Orphaned, it ends after its clients: they have let go of the GPU by then, or been killed. */
enum { ORPHAN_MS = NT_LAUNCH_ORPHAN_MS + 500 };
enum { POLL_MS = 20, START_MS = 10000, STOP_MS = 5000, PATH_SIZE = NT_MPS_DIR_MAX + 32 };
#define PROGRAM "nvidia-cuda-mps-control"

/* STARTING -control socket there-> READY -stop-> QUIT -timer-> TERM -timer-> KILL; the daemon's
 * exit leads to CLOSED from anywhere. */
enum state { STARTING, READY, QUIT, TERM, KILL, CLOSED };

struct nt_mps {
    enum state state;
    struct nt_mps_events events;
    uv_loop_t *loop;
    uv_process_t daemon, quitter;
    uv_timer_t timer;
    struct nt_guard guard;
    unsigned open;
    bool quitting; /* the process that says quit is there */
    uint64_t deadline_ms;
    uint32_t stop_ms;
    char dir[NT_MPS_DIR_MAX + 1], vars[NT_MPS_VARS][NT_MPS_VAR_SIZE], *path, *program;
    const char **env; /* borrows from copy and vars */
    char **copy;
    size_t ncopy;
    struct nt_err err; /* code NT_OK: none */
};

void nt_mps_env(const char *dir, char out[NT_MPS_VARS][NT_MPS_VAR_SIZE])
{
    (void)snprintf(out[0], NT_MPS_VAR_SIZE, "CUDA_MPS_PIPE_DIRECTORY=%s/pipe", dir);
    (void)snprintf(out[1], NT_MPS_VAR_SIZE, "CUDA_MPS_LOG_DIRECTORY=%s/log", dir);
}

static void mps_free(struct nt_mps *m)
{
    for (size_t i = 0; i < m->ncopy; i++) {
        free(m->copy[i]);
    }
    free((void *)m->copy);
    free((void *)m->env);
    free(m->path);
    free(m->program);
    free(m);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    (void)remove(path);
    return 0;
}

static void remove_folders(const struct nt_mps *m)
{
    static const char *const names[] = {"pipe", "log"};
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_SIZE];
        (void)snprintf(path, sizeof(path), "%s/%s", m->dir, names[i]);
        (void)nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
}

static void on_closed(uv_handle_t *h)
{
    struct nt_mps *m = h->data;

    if (--m->open == 0) {
        nt_guard_end(&m->guard);
        remove_folders(m);
        m->events.on_end(m->events.data, m, m->err.code != NT_OK ? &m->err : NULL);
        mps_free(m);
    }
}

static void close_all(struct nt_mps *m)
{
    m->state = CLOSED;
    uv_close((uv_handle_t *)&m->timer, on_closed);
    if (m->quitting) {
        (void)uv_process_kill(&m->quitter, SIGKILL); /* closes when it is reaped */
    }
}

static void arm(struct nt_mps *m, uint32_t ms, uint32_t period_ms);

static void signal_group(struct nt_mps *m, enum state next, int signum)
{
    m->state = next;
    (void)uv_kill(-m->daemon.pid, signum);
    arm(m, m->stop_ms, 0);
}

static void note(struct nt_mps *m, const char *what)
{
    char path[PATH_SIZE], tail[200];
    size_t n;

    if (m->err.code != NT_OK) {
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/mps.log", m->dir);
    nt_log_tail(path, tail, sizeof(tail));
    if (tail[0] == '\0') {
        (void)snprintf(path, sizeof(path), "%s/log/control.log", m->dir);
        nt_log_tail(path, tail, sizeof(tail));
    }
    (void)nt_fail(&m->err, NT_E_IO, 0, "the MPS daemon %s", what);
    n = strlen(m->err.msg);
    if (tail[0] != '\0') {
        (void)snprintf(m->err.msg + n, sizeof(m->err.msg) - n, "; its log ends: %s", tail);
    }
}

static void on_timer(uv_timer_t *t)
{
    struct nt_mps *m = t->data;
    char path[PATH_SIZE];

    switch (m->state) {
    case STARTING:
        (void)snprintf(path, sizeof(path), "%s/pipe/control", m->dir);
        if (access(path, F_OK) == 0) {
            m->state = READY;
            (void)uv_timer_stop(&m->timer);
            m->events.on_ready(m->events.data, m);
        } else if (uv_now(m->loop) >= m->deadline_ms) {
            note(m, "did not open its control socket in time");
            signal_group(m, TERM, SIGTERM);
        }
        break;
    case QUIT:
        signal_group(m, TERM, SIGTERM);
        break;
    case TERM:
        signal_group(m, KILL, SIGKILL);
        break;
    case KILL: /* not even that ends it */
        note(m, "does not end even when it is killed");
        uv_close((uv_handle_t *)&m->daemon, on_closed);
        close_all(m);
        break;
    case READY:
    case CLOSED:
        break;
    }
}

static void arm(struct nt_mps *m, uint32_t ms, uint32_t period_ms)
{
    uv_update_time(m->loop);
    (void)uv_timer_start(&m->timer, on_timer, ms, period_ms);
}

static void on_daemon_exit(uv_process_t *p, int64_t status, int signum)
{
    struct nt_mps *m = p->data;
    char words[80];

    (void)uv_kill(-p->pid, SIGKILL); /* its servers */
    nt_guard_drop(&m->guard, p->pid);
    if (m->state < QUIT) {
        (void)snprintf(words, sizeof(words), "ended by itself (exit code %lld, signal %d)",
                       (long long)status, signum);
        note(m, words);
    }
    uv_close((uv_handle_t *)p, on_closed);
    if (m->state != CLOSED) {
        close_all(m);
    }
}

static void on_quitter_exit(uv_process_t *p, int64_t status, int signum)
{
    struct nt_mps *m = p->data;
    (void)status; /* what counts is that the daemon ends */
    (void)signum;
    m->quitting = false;
    uv_close((uv_handle_t *)p, on_closed);
}

/* in, out: descriptors, or -1 for /dev/null. The handle must be closed whatever it returns. */
static int spawn(struct nt_mps *m, uv_process_t *p, const char *arg, int in, int out,
                 uv_exit_cb on_exit)
{
    char *args[] = {m->program, (char *)arg, NULL};
    uv_stdio_container_t io[3];
    uv_process_options_t o = {.file = m->program,
                              .args = args,
                              .env = (char **)m->env,
                              .cwd = m->dir,
                              .flags = UV_PROCESS_DETACHED,
                              .stdio = io,
                              .stdio_count = 3,
                              .exit_cb = on_exit};
    int fds[3] = {in, out, out};
    int rc;

    for (size_t i = 0; i < 3; i++) {
        io[i].flags = fds[i] >= 0 ? UV_INHERIT_FD : UV_IGNORE;
        io[i].data.fd = fds[i];
    }
    m->open++;
    rc = uv_spawn(m->loop, p, &o);
    p->data = m;
    return rc;
}

/* "quit" on the standard input of a second control program: the daemon's only documented end. */
static int open_quit(const struct nt_mps *m)
{
    char path[PATH_SIZE];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/pipe/quit", m->dir);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && (write(fd, "quit\n", 5) != 5 || lseek(fd, 0, SEEK_SET) != 0)) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

void nt_mps_stop(struct nt_mps *m)
{
    int fd;

    if (m->state == STARTING) {
        signal_group(m, TERM, SIGTERM);
    }
    if (m->state != READY) {
        return;
    }
    m->state = QUIT;
    fd = open_quit(m);
    if (fd < 0 || spawn(m, &m->quitter, NULL, fd, -1, on_quitter_exit) != 0) {
        if (fd >= 0) {
            uv_close((uv_handle_t *)&m->quitter, on_closed);
        }
        signal_group(m, TERM, SIGTERM);
    } else {
        m->quitting = true;
        arm(m, m->stop_ms, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* The program's path: as given, or the first in PATH. */
static int find_program(const char *given, char **ret, struct nt_err *err)
{
    const char *path = getenv("PATH");
    char at[4096];

    for (const char *p = given == NULL ? path : NULL; p != NULL && *p != '\0';) {
        size_t n = strcspn(p, ":");
        if (n > 0 && snprintf(at, sizeof(at), "%.*s/" PROGRAM, (int)n, p) < (int)sizeof(at) &&
            access(at, X_OK) == 0) {
            given = at;
            break;
        }
        p += n + (p[n] == ':');
    }
    if (given == NULL || access(given, X_OK) != 0) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "%s is not here: several ranks on one GPU need NVIDIA's MPS (it comes with "
                       "the driver)",
                       given != NULL ? given : PROGRAM);
    }
    *ret = strdup(given);
    return *ret != NULL ? 0 : nt_fail(err, NT_E_NOMEM, 0, "MPS");
}

/* Copies of what the daemon gets: it may be needed again to say quit. */
static int make_env(struct nt_mps *m, const char *const *env)
{
    const char *path = getenv("PATH");
    size_t n = 0, size = (path != NULL ? strlen(path) : 0) + sizeof("PATH=");

    while (env != NULL && env[n] != NULL) {
        n++;
    }
    m->copy = calloc(n + 1, sizeof(m->copy[0]));
    m->env = calloc(n + NT_MPS_VARS + 2, sizeof(m->env[0]));
    m->path = malloc(size);
    if (m->copy == NULL || m->env == NULL || m->path == NULL) {
        return -1;
    }
    (void)snprintf(m->path, size, "PATH=%s", path != NULL ? path : "");
    for (size_t i = 0; i < n; i++) {
        m->copy[i] = strdup(env[i]);
        if (m->copy[i] == NULL) {
            return -1;
        }
        m->ncopy++;
        m->env[i] = m->copy[i];
    }
    nt_mps_env(m->dir, m->vars);
    m->env[n] = m->vars[0];
    m->env[n + 1] = m->vars[1];
    m->env[n + 2] = m->path;
    return 0;
}

static int make_folders(const struct nt_mps *m, struct nt_err *err)
{
    static const char *const names[] = {"pipe", "log"};
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_SIZE];
        (void)snprintf(path, sizeof(path), "%s/%s", m->dir, names[i]);
        if (mkdir(path, 0700) != 0) {
            return nt_fail(err, NT_E_IO, errno, "create %s", path);
        }
    }
    return 0;
}

/* What fails here is an end like any other. */
static void begin(struct nt_mps *m, const struct nt_mps_spec *spec)
{
    char path[PATH_SIZE];
    int log, rc = find_program(spec->program, &m->program, &m->err);

    if (rc == 0) {
        rc = make_folders(m, &m->err);
    }
    if (rc == 0) {
        rc = nt_guard_start(&(struct nt_guard_spec){.mark = m->vars[0],
                                                    .wait_ms = ORPHAN_MS,
                                                    .grace_ms = NT_LAUNCH_ORPHAN_MS},
                            &m->guard, &m->err);
    }
    if (rc == 0) {
        (void)snprintf(path, sizeof(path), "%s/mps.log", m->dir);
        log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        rc = spawn(m, &m->daemon, "-f", -1, log, on_daemon_exit);
        if (log >= 0) {
            (void)close(log);
        }
        if (rc != 0) {
            (void)nt_fail(&m->err, NT_E_MISSING, -rc, "start %s", m->program);
            uv_close((uv_handle_t *)&m->daemon, on_closed);
        } else {
            nt_guard_add(&m->guard, m->daemon.pid);
        }
    }
    if (rc != 0) {
        close_all(m);
        return;
    }
    uv_update_time(m->loop);
    m->deadline_ms = uv_now(m->loop) + (spec->start_ms != 0 ? spec->start_ms : START_MS);
    arm(m, POLL_MS, POLL_MS);
}

int nt_mps_start(uv_loop_t *loop, const struct nt_mps_spec *spec,
                 const struct nt_mps_events *events, struct nt_mps **ret, struct nt_err *err)
{
    struct nt_mps *m;

    if (strlen(spec->dir) > NT_MPS_DIR_MAX) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "MPS folder %s: %zu bytes, more than the %d that leave room for its sockets",
                       spec->dir, strlen(spec->dir), NT_MPS_DIR_MAX);
    }
    m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "MPS");
    }
    (void)snprintf(m->dir, sizeof(m->dir), "%s", spec->dir);
    if (make_env(m, spec->env) != 0) {
        mps_free(m);
        return nt_fail(err, NT_E_NOMEM, 0, "MPS");
    }
    m->events = *events;
    m->loop = loop;
    m->stop_ms = spec->stop_ms != 0 ? spec->stop_ms : STOP_MS;
    (void)uv_timer_init(loop, &m->timer);
    m->timer.data = m;
    m->open = 1;
    begin(m, spec);
    *ret = m;
    return 0;
}
