#include "tuner/launch/guard.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tuner/launch/launch.h"

enum { POLL_MS = 50, KILL_MS = 3000, MARK_MAX = 512, ENVIRON_MAX = 1 << 18 };

/* What the guard knows: all of it made before the fork. */
struct watch {
    pid_t group[NT_LAUNCH_MAX];
    char mark[MARK_MAX];
    uint32_t wait_ms, grace_ms;
    char environ[ENVIRON_MAX];
};

static void pause_ms(uint32_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Whether the mark is one of the process's variables. */
static bool is_marked(struct watch *w, const char *pid)
{
    size_t len = 0, mark = strlen(w->mark) + 1;
    char path[64];
    ssize_t n = 1;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/environ", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    while (n > 0 && len < sizeof(w->environ) - 1) {
        n = read(fd, w->environ + len, sizeof(w->environ) - 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    (void)close(fd);
    w->environ[len] = '\0';
    for (size_t at = 0; at + mark <= len + 1; at += strlen(w->environ + at) + 1) {
        if (strcmp(w->environ + at, w->mark) == 0) {
            return true;
        }
    }
    return false;
}

/* To all that there are; true if there was one. */
static bool signal_all(struct watch *w, int signum)
{
    bool any = false;
    struct dirent *e;
    DIR *d;

    for (size_t i = 0; i < NT_LAUNCH_MAX; i++) {
        any |= w->group[i] > 0 && kill(-w->group[i], signum) == 0;
    }
    d = w->mark[0] != '\0' ? opendir("/proc") : NULL;
    while (d != NULL && (e = readdir(d)) != NULL) {
        if (isdigit((unsigned char)e->d_name[0]) && is_marked(w, e->d_name)) {
            any |= kill((pid_t)strtol(e->d_name, NULL, 10), signum) == 0;
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return any;
}

/* signum 0 and the first of them: the second is only for who did not heed the first. */
static bool gone_within(struct watch *w, int signum, uint32_t ms)
{
    for (uint32_t t = 0; t <= ms; t += POLL_MS) {
        if (!signal_all(w, signum)) {
            return true;
        }
        pause_ms(POLL_MS);
    }
    return false;
}

static void listen_until_end(struct watch *w, int fd)
{
    pid_t said;
    ssize_t n;

    while ((n = recv(fd, &said, sizeof(said), 0)) != 0) {
        pid_t want = said > 0 ? 0 : -said, put = said > 0 ? said : 0;
        if (n != (ssize_t)sizeof(said)) {
            continue; /* interrupted */
        }
        for (size_t i = 0; i < NT_LAUNCH_MAX; i++) {
            if (w->group[i] == want) {
                w->group[i] = put;
                break;
            }
        }
    }
}

/* Nothing of ours may stay open in it: what waits for the end of one of our streams would wait for
 * the guard's too. */
static void let_go(int fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int i = 0; i < 3 && null >= 0; i++) {
        (void)dup2(null, i);
    }
    (void)dup2(fd, 3);
    if (syscall(SYS_close_range, 4U, ~0U, 0U) != 0) {
        for (int i = 4; i < (int)sysconf(_SC_OPEN_MAX); i++) {
            (void)close(i);
        }
    }
    (void)setsid(); /* a signal to our group or terminal is not for it */
    if (chdir("/") != 0) {
        return;
    }
    (void)prctl(PR_SET_NAME, "nt-guard"); /* who kills us by our name does not mean it */
}

static _Noreturn void guard(struct watch *w, int fd)
{
    let_go(fd);
    listen_until_end(w, 3);
    pause_ms(w->wait_ms);
    (void)signal_all(w, SIGTERM);
    if (!gone_within(w, 0, w->grace_ms)) {
        (void)gone_within(w, SIGKILL, KILL_MS);
    }
    _exit(0);
}

int nt_guard_start(const struct nt_guard_spec *spec, struct nt_guard *ret, struct nt_err *err)
{
    struct watch *w = calloc(1, sizeof(*w));
    sigset_t all, before;
    int ends[2], sys;
    pid_t pid;

    if (w == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "guard");
    }
    if (spec->mark != NULL &&
        snprintf(w->mark, sizeof(w->mark), "%s", spec->mark) >= (int)sizeof(w->mark)) {
        free(w);
        return nt_fail(err, NT_E_INVAL, 0, "a mark of more than %d bytes", MARK_MAX - 1);
    }
    w->wait_ms = spec->wait_ms;
    w->grace_ms = spec->grace_ms;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        free(w);
        return nt_fail(err, NT_E_IO, errno, "guard");
    }
    (void)sigfillset(&all); /* a handler of ours must not run in it */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pid = fork();
    sys = errno;
    if (pid == 0) {
        guard(w, ends[1]);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)close(ends[1]);
    free(w);
    if (pid < 0) {
        (void)close(ends[0]);
        return nt_fail(err, NT_E_IO, sys, "start a guard");
    }
    *ret = (struct nt_guard){.pid = pid, .fd = ends[0]};
    return 0;
}

static void tell(const struct nt_guard *g, pid_t what)
{
    if (g->pid != 0) {
        ssize_t n = send(g->fd, &what, sizeof(what), MSG_NOSIGNAL);
        (void)n; /* it is gone */
    }
}

void nt_guard_add(const struct nt_guard *g, pid_t group)
{
    tell(g, group);
}

void nt_guard_drop(const struct nt_guard *g, pid_t group)
{
    tell(g, -group);
}

void nt_guard_end(struct nt_guard *g)
{
    if (g->pid != 0) {
        (void)kill(g->pid, SIGKILL); /* before it can see the stream end */
        (void)close(g->fd);
        while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR) {
        }
        g->pid = 0;
    }
}

void nt_guard_finish(struct nt_guard *g)
{
    if (g->pid != 0) {
        (void)close(g->fd);
        g->fd = -1;
    }
}

bool nt_guard_gone(struct nt_guard *g)
{
    if (g->pid != 0 && waitpid(g->pid, NULL, WNOHANG) != 0) {
        g->pid = 0;
    }
    return g->pid == 0;
}
