/*
 * remote - a launcher of several hosts: one command of the user's own launcher (srun, mpirun, …)
 * starts an agent on each host; agents connect back and start the ranks.
 *
 * Launchers dislike two of them at once, so one begins when all hosts of the one before are in.
 * A gang is one such command, or one a host (ssh, kubectl). Hosts are numbered by the launcher; the
 * ranks of one host follow one another. The launch listens on a port of its own until all hosts
 * have come, and takes nobody who cannot prove the launch's secret, which reaches agents by a
 * variable or by stdin, never by a command line.
 *
 * Ownership  struct nt_remote and what it points to are borrowed for the launch's whole life.
 * Errors     a launcher that is not there, fails, or does not bring all hosts in time, and a host
 *            that is lost, end all ranks with `words`.
 */
#pragma once
#include <stddef.h>
#include "tuner/base/buf.h"
#include "tuner/launch/launch.h"

enum { NT_REMOTE_HOSTS = 64, NT_REMOTE_WORDS = 32, NT_REMOTE_WAIT_MS = 120000 };

/* A row of the table of launchers. In words: @N number of hosts, @I this host's number, @H all
 * hosts, @h this host, @A the agent's path, @Q the same quoted for a shell. */
struct nt_remote_kind {
    const char *name, *program, *also; /* as the design calls it; the command; another name of it */
    bool each;                         /* a command a host; the contact goes in by stdin */
    const char *const *before, *const *after, *const *hosts, *const *agent;
    const char *number; /* variable with the number of the process */
    const char *says;   /* for help and manual */
};
extern const struct nt_remote_kind nt_remote_kinds[]; /* the last has no name */

/* Launches of one job begin one after the other. */
struct nt_remote_turns {
    struct nt_launch *now, *waiting;
};

struct nt_remote {
    const struct nt_remote_kind *kind;
    const char *program;                /* as the user wrote it */
    const char *words[NT_REMOTE_WORDS]; /* the user's own options; NULL-terminated */
    unsigned nodes;
    const char *hosts[NT_REMOTE_HOSTS + 1]; /* NULL-terminated; none: the launcher knows them */
    const char *agent;                      /* path, the same on every host */
    const char *listen;                     /* "ADDRESS", "ADDRESS:PORT", "ADDRESS:FROM-TO"; NULL */
    uint32_t wait_ms;              /* until all hosts have connected; 0: NT_REMOTE_WAIT_MS */
    struct nt_remote_turns *turns; /* zeroed, of all launches of a job; NULL: they do not wait */
    size_t log_bytes;              /* of what each rank writes, kept here; 0: its end only */
    char text[4096];               /* what words and hosts point into */
};

/* launch: "srun --partition gpu", a row's name or program with options, split at blanks. hosts:
 * "a,b" or NULL. nodes: 0: as many as hosts, or as the launcher's allocation has. NT_E_INVAL with
 * the nearest name, or what is missing. */
NT_MUST_CHECK int nt_remote_read(const char *launch, const char *hosts, unsigned nodes,
                                 struct nt_remote *ret, struct nt_err *err);
/* The command of host i (0 where there is one for all): words for execvp, NULL-terminated, in
 * *out, which they point into. */
NT_MUST_CHECK int nt_remote_command(const struct nt_remote *r, unsigned i, struct nt_buf *out,
                                    const char *words[], size_t max, struct nt_err *err);

extern const struct nt_launcher nt_launcher_remote;
