/*
 * commands - the processes of the user's launcher: one for all hosts, or one a host.
 *
 * Each is a group of its own, has the caller's environment and the launch's contact, by a variable
 * or as the one line of its stdin, and writes to one log. A guard ends them when we die.
 *
 * Ownership  freed before on_closed, which comes when all have ended; never before start returned.
 * Threads    the loop's thread.
 */
#pragma once
#include "tuner/launch/remote.h"

struct nt_commands; /* opaque */

struct nt_commands_events {
    void (*on_exit)(void *data, unsigned i, int64_t status, int signum); /* i: of its host */
    void (*on_closed)(void *data);
    void *data;
};

/* *ret_failed: libuv's code of one that could not be started, after which none is tried, or 0. */
NT_MUST_CHECK int nt_commands_start(uv_loop_t *loop, const struct nt_remote *remote,
                                    const char *contact, const char *log,
                                    const struct nt_commands_events *events,
                                    struct nt_commands **ret, int *ret_failed, struct nt_err *err);
bool nt_commands_alive(const struct nt_commands *c);
void nt_commands_signal(struct nt_commands *c, int signum);
