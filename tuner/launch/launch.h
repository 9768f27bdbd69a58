/*
 * launch - starting the processes of one gang. A launcher is a struct of functions; `local` starts
 * them on this host, `remote` on others (remote.h). None needs more than this: start N copies of
 * one program, each with its number in one variable, and say when each has ended.
 *
 * Ownership  spec is borrowed until start() returns. The launch frees itself after on_closed.
 * Errors     start() fails for a bad spec, a folder that takes no logs, or without memory; then
 * there are no events. A process that could not be started is an on_exit with `error`, like any
 *            other end.
 * Events     never before start() has returned; on_exit once for each rank, on_closed last.
 * Threads    the loop's thread.
 */
#pragma once
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>
#include "tuner/base/err.h"

enum { NT_LAUNCH_MAX = 256 }; /* processes of one launch */

struct nt_launch_spec {
    const char *program;     /* path */
    const char *const *args; /* NULL-terminated, without the program's name; NULL: none */
    const char *const *env;  /* "NAME=VALUE", NULL-terminated: the whole environment but rank_var */
    const char *rank_var;    /* gets 0 … world - 1 */
    const char *mark; /* one of env that nobody else has: by it a guard finds them; or NULL */
    unsigned world;   /* 1 … NT_LAUNCH_MAX */
    unsigned first; /* rank_var gets first … first + world - 1, logs are numbered likewise; events
                       count from 0 all the same */
    const char *dir; /* working folder; stdout and stderr go to DIR/rank-N.log */
    /* For ranks on other hosts, where nothing of this host can be seen: */
    const struct nt_remote *remote; /* how to get there; `local` ignores it */
    const char *socket;             /* Unix socket whose "unix:PATH" stands in env, or NULL */
    const char *const *files;       /* paths that stand in env, NULL-terminated; NULL: none */
};
struct nt_remote;
/* A log that grows beyond LOG_MOST is cut to its first LOG_KEPT bytes, and grows from there: a rank
 * that spews does not fill the disk. */
enum { NT_LAUNCH_LOG_MOST = 64 << 20, NT_LAUNCH_LOG_KEPT = 1 << 20, NT_LAUNCH_LOG_LOOK_MS = 250 };

struct nt_launch_exit {
    int64_t status; /* exit code */
    int signal;     /* that ended it, or 0 */
    int error;      /* libuv's code of a start that failed, or 0 */
    /* The launcher or a host failed, not the process: what was tried says nothing of what it was
     * tried with. Valid during on_exit; NULL: no such thing. */
    const char *words;
};

struct nt_launch_events {
    void (*on_exit)(void *data, unsigned rank, const struct nt_launch_exit *how);
    void (*on_closed)(void *data); /* all have ended and nothing is held any more */
    void *data;
};

struct nt_launch; /* opaque, one type per launcher */

struct nt_launcher {
    const char *name;
    int (*start)(uv_loop_t *loop, const struct nt_launch_spec *spec,
                 const struct nt_launch_events *events, struct nt_launch **ret, struct nt_err *err);
    /* To every process that has not ended, and to what it started (its process group). */
    void (*signal)(struct nt_launch *l, int signum);
    /* Gives up waiting for processes that not even SIGKILL ends; on_closed follows, without their
     * on_exit. */
    void (*abandon)(struct nt_launch *l);
    /* Process id on this host; 0 when it has ended, never started, or lives elsewhere. */
    pid_t (*pid)(const struct nt_launch *l, unsigned rank);
    /* Name of the host that the rank runs on; NULL, or a result of "": it is not known. The ranks
     * of one host follow one another. */
    const char *(*host)(const struct nt_launch *l, unsigned rank);
};

/* Each rank is a session and process group of its own; what is left of the group when the rank has
 * ended is killed. stdin is /dev/null. When the caller's process dies, however it dies, the ranks
 * and what they started are ended by a guard: TERM, after NT_LAUNCH_ORPHAN_MS KILL. */
enum { NT_LAUNCH_ORPHAN_MS = 2000 };
extern const struct nt_launcher nt_launcher_local;

/* Path of a rank's log in a gang's folder. */
void nt_launch_log_path(const char *dir, unsigned rank, char *out, size_t size);
