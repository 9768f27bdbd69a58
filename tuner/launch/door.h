/*
 * door - the port on which a launch's agents come in: listens, greets (greet.h), and hands over the
 * connections of those that know the secret. Who does not is sent away, and holds
 * nobody up: where too many wait, who has waited longest goes.
 *
 * Ownership  the door is the loop's until on_closed; a descriptor that is handed over is the
 *            callback's.
 * Threads    the loop's thread.
 */
#pragma once
#include <uv.h>
#include "tuner/launch/greet.h"

enum { NT_DOOR_GREETING = 128 }; /* connections that have not proved anything yet, at most */

struct nt_door; /* opaque */

struct nt_door_events {
    /* Somebody of this launch; rest: what came behind the greeting already. */
    void (*on_in)(void *data, int fd, const char *node, const char *rest, size_t len);
    /* Somebody of this launch, who has proved it, but cannot take part. */
    void (*on_refused)(void *data, const char *words);
    void (*on_closed)(void *data);
    void *data;
};

/* listen: "ADDRESS", "ADDRESS:PORT", "ADDRESS:FROM-TO" ("[…]" around an IPv6 address); NULL: all
 * addresses of this host, any free port. */
NT_MUST_CHECK int nt_door_open(uv_loop_t *loop, const char *listen, const char *version,
                               const struct nt_door_events *events, struct nt_door **ret,
                               struct nt_err *err);
/* What agents are told; it holds the secret. */
const char *nt_door_contact(const struct nt_door *d);
const char *nt_door_address(const struct nt_door *d); /* the same for people, without it */
unsigned nt_door_strangers(const struct nt_door *d);  /* sent away so far */
void nt_door_close(struct nt_door *d);                /* on_closed follows */
