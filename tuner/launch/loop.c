#include "tuner/launch/loop.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LOOPS_OWN = 8, MOST = 4096 };

/* 0, or errno where fewer can be had. */
static int room(unsigned files)
{
    int fds[MOST], sys = 0;
    unsigned n = 0;

    while (n < files && n < MOST && sys == 0) {
        fds[n] = eventfd(0, EFD_CLOEXEC);
        sys = fds[n] < 0 ? errno : 0;
        n += sys == 0 ? 1 : 0;
    }
    for (unsigned i = 0; i < n; i++) {
        (void)close(fds[i]);
    }
    return sys;
}

int nt_loop_open(uv_loop_t *loop, unsigned files, struct nt_err *err)
{
    int sys = room(LOOPS_OWN + files), rc;

    if (sys != 0) {
        return nt_fail(err, NT_E_MISSING, sys,
                       "%u files more must be open at once; raise ulimit -n", LOOPS_OWN + files);
    }
    rc = uv_loop_init(loop);
    return rc == 0 ? 0 : nt_fail(err, NT_E_MISSING, -rc, "no event loop could be made");
}

int nt_loop_watch_ends(uv_loop_t *loop, uv_signal_t signals[NT_LOOP_ENDS], uv_signal_cb on_signal,
                       void *data, struct nt_err *err)
{
    static const int signums[NT_LOOP_ENDS] = {SIGINT, SIGTERM, SIGHUP};

    for (size_t i = 0; i < NT_LOOP_ENDS; i++) {
        struct sigaction now;
        int rc = uv_signal_init(loop, &signals[i]);
        if (rc != 0) { /* only the first makes a pipe */
            nt_assert(i == 0 && uv_loop_close(loop) == 0);
            return nt_fail(err, NT_E_MISSING, -rc, "signals cannot be watched");
        }
        signals[i].data = data;
        if (sigaction(signums[i], NULL, &now) != 0 || now.sa_handler != SIG_IGN) {
            (void)uv_signal_start(&signals[i], on_signal, signums[i]);
        }
    }
    return 0;
}

void nt_loop_close_signals(uv_signal_t *signals, size_t n, bool ending)
{
    sigset_t these, before;

    (void)sigemptyset(&these);
    for (size_t i = 0; i < n; i++) { /* 0: one that is ignored */
        (void)(signals[i].signum != 0 ? sigaddset(&these, signals[i].signum) : 0);
    }
    (void)pthread_sigmask(SIG_BLOCK, &these, &before);
    for (size_t i = 0; i < n; i++) {
        int signum = signals[i].signum;
        uv_close((uv_handle_t *)&signals[i], NULL); /* back to what is done by default */
        if (ending && signum != 0) {
            (void)signal(signum, SIG_IGN);
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}
