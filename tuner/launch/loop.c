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

void nt_loop_close_signals(uv_signal_t *signals, size_t n, bool ending)
{
    sigset_t these, before;

    (void)sigemptyset(&these);
    for (size_t i = 0; i < n; i++) {
        (void)sigaddset(&these, signals[i].signum);
    }
    (void)pthread_sigmask(SIG_BLOCK, &these, &before);
    for (size_t i = 0; i < n; i++) {
        int signum = signals[i].signum;
        uv_close((uv_handle_t *)&signals[i], NULL); /* back to what is done by default */
        if (ending) {
            (void)signal(signum, SIG_IGN);
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}
