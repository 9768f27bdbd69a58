/*
 * nodes - one program on every node, once, by the launcher of a job, and what each said; and
 * whether nodes that are to serve one job are alike.
 *
 * Blocks     for as long as the program takes, or most_ms, on a loop of its own; called before the
 *            job's loop runs. SIGINT, SIGTERM and SIGHUP end it.
 * Errors     NT_E_MISSING with words: the launcher or a node failed. A program that only says
 *            nothing useful is no error.
 */
#pragma once
#include <jansson.h>
#include "tuner/base/buf.h"
#include "tuner/launch/remote.h"

enum { NT_NODE_OUTPUT = 4 << 20 };

struct nt_node_said {
    char host[64];
    struct nt_buf text; /* stdout and stderr, its first NT_NODE_OUTPUT bytes */
    int64_t status;     /* exit code; -1: ended by a signal */
};
struct nt_nodes {
    struct nt_node_said v[NT_REMOTE_HOSTS];
    size_t n;
};

/* args and env as nt_launch_spec has them; tmpdir: where the private folder is made, NULL: /tmp. */
NT_MUST_CHECK int nt_nodes_ask(const struct nt_remote *remote, const char *program,
                               const char *const *args, const char *const *env, const char *tmpdir,
                               uint32_t most_ms, struct nt_nodes *ret, struct nt_err *err);
void nt_nodes_done(struct nt_nodes *n);

/* What `nccltune topo --machine` said on each: a list of its objects, "host" as the launcher calls
 * it; null for a node that said none. New reference; NULL without memory. */
json_t *nt_nodes_machines(const struct nt_nodes *n);
/* NT_E_MISSING names two nodes and in what they differ: a job's figures are of equal ones. What may
 * differ, or is wrong with one of them, is appended to *said, a line each. Pure. */
NT_MUST_CHECK int nt_nodes_judge(const json_t *machines, struct nt_buf *said, struct nt_err *err);
