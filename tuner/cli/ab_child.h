/*
 * ab_child - one run of a command, to its end and to that of all that it started: what is left of
 * it is ended when it ends, when its time is up, when a signal asks us to end, and by a guard when
 * we die. Its output goes to a log.
 *
 * Signals    nt_ab_signals_open() blocks INT, TERM, HUP and CHLD in the caller for good; they are
 *            read here. Errors     0 or -enum nt_code; an end of whatever kind is no error.
 */
#pragma once
#include "tuner/cli/run_start.h"

NT_MUST_CHECK int nt_ab_signals_open(int *ret_fd, struct nt_err *err);

struct nt_ab_child {
    const char *const *argv;
    const struct nt_run_opts *run; /* as `run` starts it; NULL: as it is */
    const char *id;                /* of its manifest */
    bool with;                     /* with the profile; else NCCLTUNE_DISABLE is set */
    const char *mark;              /* "NAME=VALUE" that nothing else has in its environment */
    int signals, log;              /* log -1: stderr is the caller's, stdout nowhere */
    uint64_t timeout_ns;           /* from the command's start */
    bool show;                     /* what it prints goes to stderr too */
};
enum { NT_AB_LOG_MOST = 1 << 30 /* bytes; a command that prints more is ended */ };

struct nt_ab_end {
    int status, signal; /* exit code, or what ended it */
    bool timed_out, interrupted, spewed;
    double seconds; /* from the command's start, not that of our preparations */
};
/* An error is one of the start: the profile does not fit, there is no such command … */
NT_MUST_CHECK int nt_ab_child_run(const struct nt_ab_child *c, struct nt_ab_end *ret,
                                  struct nt_err *err);
