#include "tuner/cli/ab_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tuner/launch/guard.h"

enum { LOOK_MS = 200, GRACE_MS = 5000, STUCK_MS = 20000 };

/* Without those that whoever started us has us ignore (nohup): blocked they would not be ignored.
 */
static void our_signals(sigset_t *set)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    struct sigaction now;

    (void)sigemptyset(set);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i] == SIGCHLD || sigaction(all[i], NULL, &now) != 0 || now.sa_handler != SIG_IGN) {
            (void)sigaddset(set, all[i]);
        }
    }
}

int nt_ab_signals_open(int *ret_fd, struct nt_err *err)
{
    sigset_t set;
    int fd;

    our_signals(&set);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        return nt_fail(err, NT_E_IO, errno, "signals");
    }
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        return nt_fail(err, NT_E_IO, errno, "signals");
    }
    *ret_fd = fd;
    return 0;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* ---- in the child ---- */

static int set_environment(const struct nt_ab_child *c, struct nt_err *err)
{
    char name[64];
    size_t len = strcspn(c->mark, "=");

    (void)snprintf(name, sizeof(name), "%.*s", (int)len, c->mark);
    if (setenv(name, c->mark + len + 1, 1) != 0 ||
        (c->run != NULL && !c->with && setenv("NCCLTUNE_DISABLE", "1", 1) != 0)) {
        return nt_fail(err, NT_E_NOMEM, 0, "environment");
    }
    return 0;
}

static _Noreturn void child(const struct nt_ab_child *c, uint64_t *started_ns, int tell)
{
    struct nt_run_opts run = {.topology = NULL};
    struct nt_err err = {.code = NT_OK};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), shell = 0, rc;
    sigset_t set;
    ssize_t n;

    (void)setsid();
    our_signals(&set);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(c->log >= 0 ? c->log : null, STDOUT_FILENO);
    if (c->log >= 0) {
        (void)dup2(c->log, STDERR_FILENO);
    }
    rc = set_environment(c, &err);
    if (rc == 0 && c->run == NULL) {
        (void)execvp(c->argv[0], (char *const *)(uintptr_t)c->argv);
        rc = nt_fail(&err, NT_E_INVAL, errno, "%.300s", c->argv[0]);
    } else if (rc == 0) {
        if (c->with) {
            run = *c->run;
        } else {
            run.topology = c->run->topology;
            run.root = c->run->root;
            run.nvml = c->run->nvml;
        }
        run.started_ns = started_ns;
        rc = nt_run_start(&run, c->argv, c->id, &shell, &err);
    }
    if (rc != 0) { /* a dry run has come back without */
        n = write(tell, &err, sizeof(err));
        (void)n;
    }
    (void)fflush(NULL);
    _exit(0);
}

/* ---- in the parent ---- */

struct watched {
    const struct nt_ab_child *c;
    struct nt_guard guard;
    pid_t pid;
    int told; /* ends when the command starts; -1: it has */
    bool alive, ending;
    uint64_t *started_ns; /* shared with the child: when the command took over; 0: not said */
    uint64_t start_ns, end_ns, ending_ns;
    off_t shown;
    struct nt_err failed; /* of the start */
    struct nt_ab_end *end;
};

/* From here on all of it is on its way out: the guard asks, waits and kills. */
static void end_all(struct watched *w)
{
    if (!w->ending) {
        w->ending = true;
        w->ending_ns = now_ns();
        nt_guard_finish(&w->guard);
    }
}

static void read_signals(struct watched *w)
{
    struct signalfd_siginfo s;

    while (read(w->c->signals, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
        if (s.ssi_signo != SIGCHLD) {
            w->end->interrupted = true;
            end_all(w);
        }
    }
}

static void read_told(struct watched *w)
{
    ssize_t n = read(w->told, &w->failed, sizeof(w->failed));

    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return;
    }
    if (n != (ssize_t)sizeof(w->failed)) {
        w->failed.code = NT_OK;
    }
    w->failed.msg[sizeof(w->failed.msg) - 1] = '\0';
    (void)close(w->told);
    w->told = -1;
    /* Not when we get to hear of it: until then a short command may be over. */
    w->start_ns = *w->started_ns != 0 ? *w->started_ns : now_ns();
}

static void reap(struct watched *w)
{
    int status = 0;

    if (!w->alive || waitpid(w->pid, &status, WNOHANG) != w->pid) {
        return;
    }
    w->alive = false;
    w->end_ns = now_ns();
    w->end->status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    w->end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    end_all(w); /* what it left behind would disturb the next run */
}

static void look_at_log(struct watched *w)
{
    struct stat st;
    char chunk[16384];
    ssize_t n = 1;

    if (w->c->log < 0 || fstat(w->c->log, &st) != 0) {
        return;
    }
    if (st.st_size > NT_AB_LOG_MOST && !w->ending) {
        w->end->spewed = true;
        end_all(w);
    }
    while (w->c->show && n > 0 && w->shown < st.st_size) {
        n = pread(w->c->log, chunk, sizeof(chunk), w->shown);
        if (n > 0) {
            (void)fwrite(chunk, 1, (size_t)n, stderr);
            w->shown += n;
        }
    }
}

static void wait_for_end(struct watched *w)
{
    uint64_t begun = now_ns();

    for (;;) {
        struct pollfd p[2] = {{.fd = w->c->signals, .events = POLLIN},
                              {.fd = w->told, .events = POLLIN}};
        uint64_t now;
        (void)poll(p, 2, LOOK_MS);
        if (w->told >= 0 && (p[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            read_told(w);
        }
        read_signals(w);
        reap(w);
        look_at_log(w);
        now = now_ns();
        if (!w->ending && now - (w->start_ns != 0 ? w->start_ns : begun) > w->c->timeout_ns) {
            w->end->timed_out = true;
            end_all(w);
        }
        if (!w->alive && w->ending && nt_guard_gone(&w->guard)) {
            break;
        }
        if (w->ending && now_ns() - w->ending_ns > (uint64_t)STUCK_MS * 1000000U) {
            break; /* not even KILL ends it */
        }
    }
    look_at_log(w);
    if (w->told >= 0) {
        read_told(w);
    }
}

static int start(struct watched *w, struct nt_err *err)
{
    int ends[2], rc;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return nt_fail(err, NT_E_IO, errno, "start of the command");
    }
    rc = nt_guard_start(&(struct nt_guard_spec){.mark = w->c->mark, .grace_ms = GRACE_MS},
                        &w->guard, err);
    if (rc == 0) {
        (void)fflush(NULL);
        w->pid = fork();
        if (w->pid == 0) {
            (void)close(ends[0]);
            (void)close(w->guard.fd); /* only we keep the guard waiting */
            child(w->c, w->started_ns, ends[1]);
        }
        if (w->pid < 0) {
            rc = nt_fail(err, NT_E_IO, errno, "start of the command");
            nt_guard_end(&w->guard);
        }
    }
    (void)close(ends[1]);
    if (rc != 0) {
        (void)close(ends[0]);
        return rc;
    }
    nt_guard_add(&w->guard, w->pid);
    w->told = ends[0];
    w->alive = true;
    return 0;
}

int nt_ab_child_run(const struct nt_ab_child *c, struct nt_ab_end *ret, struct nt_err *err)
{
    struct nt_ab_end end = {.status = 0};
    struct watched w = {.c = c, .end = &end, .told = -1};
    int rc;

    w.started_ns = mmap(NULL, sizeof(*w.started_ns), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w.started_ns == MAP_FAILED) {
        return nt_fail(err, NT_E_NOMEM, errno, "start of the command");
    }
    rc = start(&w, err);
    if (rc == 0) {
        wait_for_end(&w);
    }
    (void)munmap(w.started_ns, sizeof(*w.started_ns));
    if (rc != 0) {
        return rc;
    }
    if (w.alive) {
        return nt_fail(err, NT_E_IO, 0, "process %ld does not end, not even by SIGKILL",
                       (long)w.pid);
    }
    if (w.failed.code != NT_OK && !end.interrupted) {
        if (err != NULL) {
            *err = w.failed;
        }
        return -(int)w.failed.code;
    }
    if (w.start_ns != 0 && w.end_ns > w.start_ns) {
        end.seconds = (double)(w.end_ns - w.start_ns) / 1e9;
    }
    *ret = end;
    return 0;
}
