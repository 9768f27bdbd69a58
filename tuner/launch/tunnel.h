/*
 * tunnel - the Unix sockets of one host's ranks, carried over one connection as frames OPEN, DATA
 * and CLOSE. Both ends are this: the agent takes connections in and opens, the driver's side is
 * told of them and connects where the gang listens.
 *
 * Ownership  the carrier is the caller's, and open until nt_tunnel_close() was called.
 * Errors     none: a socket that fails is a socket that ends.
 * Threads    the loop's thread.
 */
#pragma once
#include <stdbool.h>
#include "tuner/launch/wire.h"

enum { NT_TUNNEL_CHUNK = 65536 };

struct nt_tunnel_end; /* opaque */

struct nt_tunnel {
    uv_loop_t *loop;
    uv_stream_t *carrier;
    struct nt_tunnel_end *ends;
    uint32_t next;                 /* number of the next one that is opened here */
    unsigned open;                 /* handles that are not closed yet */
    void (*on_closed)(void *data); /* after nt_tunnel_close(), once none is left */
    void *data;
    bool closing;
    char chunk[NT_TUNNEL_CHUNK];
};

void nt_tunnel_init(struct nt_tunnel *t, uv_loop_t *loop, uv_stream_t *carrier,
                    void (*on_closed)(void *data), void *data);
/* Agent: takes in a connection that waits at the listener. */
void nt_tunnel_accept(struct nt_tunnel *t, uv_stream_t *listener);
/* Driver: connects to path for the other side's connection `id`. */
void nt_tunnel_connect(struct nt_tunnel *t, uint32_t id, const char *path);
/* DATA and CLOSE of the other side; a number that is not known is passed over. */
void nt_tunnel_hear(struct nt_tunnel *t, const struct nt_frame *f);
/* Sends on what the sockets hold now, so that it comes before what is sent next. */
void nt_tunnel_drain(struct nt_tunnel *t);
/* All of them end. True: on_closed follows, never before this returns; false: there is none. */
bool nt_tunnel_close(struct nt_tunnel *t);
