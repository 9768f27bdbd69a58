/*
 * child - a program of ours as a child process on the loop: its input, its output up to a limit,
 * its lines of errors, its end, and the end of all that it started.
 *
 * The child leads a session of its own, and gives way to this process. After it ended, whatever
 * processes it left behind are ended too, before on_done is called: they become children of this
 * process. Ownership  the child frees itself after on_done.
 */
#pragma once
#include <uv.h>
#include "tuner/base/buf.h"
#include "tuner/service/queue.h"
#include "tuner/service/turns.h"

struct nt_child; /* opaque */

enum { NT_CHILDREN = 64, NT_CHILD_BLOCK = 65536 };
/* The children of one loop, so that orphans can be told from them. Zeroed, then nt_children_init().
 * Processes that this one starts by other ways would be taken for orphans: there are none. */
struct nt_children {
    uv_loop_t *loop;
    int pids[NT_CHILDREN]; /* living; 0: free */
    char block[NT_CHILD_BLOCK];
};
/* What the children of ended children do not reap comes to this process from now on. */
void nt_children_init(struct nt_children *g, uv_loop_t *loop);

struct nt_child_spec {
    const char *const *args; /* args[0]: the program; NULL-terminated; borrowed for the call */
    const char *input;       /* for its stdin; NULL: none; copied */
    size_t output_max;       /* of stdout; more ends it */
    uint64_t time_ms;        /* it is ended after that; 0: no limit */
    uint64_t memory_bytes;   /* of address space; 0: no limit */
    enum nt_turns turns;     /* how far it gives way */
    uint64_t grace_ms;       /* between asking and killing */
    void (*on_line)(void *data, const char *line); /* of stderr; may be NULL */
    /* end as the queue takes it. out: stdout; tail: the last of stderr. */
    void (*on_done)(void *data, const struct nt_queue_end *end, bool timed_out,
                    const struct nt_buf *out, const char *tail);
    void *data;
};

/* A failed start is an error here, and on_done is not called. */
NT_MUST_CHECK int nt_child_start(struct nt_children *g, const struct nt_child_spec *spec,
                                 struct nt_child **ret, struct nt_err *err);
int nt_child_pid(const struct nt_child *c);
/* Asks it to end (SIGTERM), kills it after the grace. Again does nothing. */
void nt_child_stop(struct nt_child *c);
