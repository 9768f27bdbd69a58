/*
 * greet - the first lines between driver and agent, before frames: who speaks which version, and
 * that both know the launch's secret.
 *
 *   agent   "nccltune-agent VERSION NODE NONCE"
 *   driver  "NONCE PROOF"                 or "no WORDS"
 *   agent   "PROOF"
 *
 * What a launcher passes to an agent is its contact, "ADDRESS[,ADDRESS…]/PORT/SECRET".
 */
#pragma once
#include <stddef.h>
#include <stdbool.h>
#include "tuner/base/err.h"
#include "tuner/launch/secret.h"

#define NT_ENV_LAUNCH "NCCLTUNE_LAUNCH" /* contact, where the launcher exports variables */
#define NT_ENV_NODE   "NCCLTUNE_NODE"   /* name that a host is to go by, instead of its own */
#define NT_GREET_WORD "nccltune-agent"

enum { NT_GREET_LINE = 400, NT_NODE_LEN = 64, NT_CONTACT_MAX = 1024 };
/* How long either side waits for the other's line. */
enum { NT_GREET_MS = 5000 };

struct nt_contact {
    char addresses[NT_CONTACT_MAX], port[8], secret[NT_SECRET_LEN + 1];
};
NT_MUST_CHECK int nt_contact_read(const char *text, struct nt_contact *ret, struct nt_err *err);

/* The driver's side of one connection; lines come in without their newline. */
struct nt_greet {
    char version[24], node[NT_NODE_LEN], theirs[NT_SECRET_LEN + 1], ours[NT_SECRET_LEN + 1];
    bool proved;
};
/* The answer to a line, without newline, "" when there is none; then g->proved says that all is
 * well. Not 0: the connection is no agent of this launch, `answer` may say why. */
NT_MUST_CHECK int nt_greet_hear(struct nt_greet *g, const char *secret, const char *version,
                                const char *line, char answer[NT_GREET_LINE]);

/* The agent's side, which blocks: a connected, authenticated descriptor of the first address that
 * answers as the driver of this launch. */
NT_MUST_CHECK int nt_greet_connect(const struct nt_contact *c, const char *node,
                                   const char *version, int *ret_fd, struct nt_err *err);
