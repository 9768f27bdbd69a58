/*
 * guard - a small process that outlives ours by seconds: when ours dies, however it dies, it ends
 * what ours had started, without those processes' help.
 *
 * It is told which process groups there are, and knows a mark, one "NAME=VALUE" that stands in the
 * environment of all of them and of nobody else: so it also finds what was started a moment before
 * it could be told, and what left its group. First TERM, then, after grace_ms, KILL.
 *
 * Ownership  the caller's memory; mark is borrowed until nt_guard_start() returns.
 * Errors     nt_guard_start(): 0 or -enum nt_code. The others cannot fail: a guard that is gone
 *            guards nothing.
 * Threads    any. The guard itself is a fork that runs nothing but system calls.
 */
#pragma once
#include <stdint.h>
#include <sys/types.h>
#include "tuner/base/err.h"

struct nt_guard {
    pid_t pid; /* 0: none */
    int fd;
};

struct nt_guard_spec {
    const char *mark;  /* "NAME=VALUE" of every process, or NULL: groups only */
    uint32_t wait_ms;  /* between our end and TERM */
    uint32_t grace_ms; /* between TERM and KILL */
};

NT_MUST_CHECK int nt_guard_start(const struct nt_guard_spec *spec, struct nt_guard *ret,
                                 struct nt_err *err);
void nt_guard_add(const struct nt_guard *g, pid_t group);
void nt_guard_drop(const struct nt_guard *g, pid_t group); /* it has ended; its number is free */
/* The guard ends, and ends nobody. */
void nt_guard_end(struct nt_guard *g);
/* The guard ends, now, what is left of them, as it would at our end; then itself. The caller reaps
 * its own children meanwhile: one that has ended and was not waited for counts as alive. */
void nt_guard_finish(struct nt_guard *g);
/* After nt_guard_finish(): whether that is done. */
bool nt_guard_gone(struct nt_guard *g);
