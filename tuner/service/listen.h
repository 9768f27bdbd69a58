/* listen - sockets to listen at, and who is at the other end of a local one. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "tuner/base/err.h"

/* Where a Unix socket is found, and what is found there while it is this one. */
struct nt_listen_name {
    char path[108]; /* "": TCP */
    dev_t dev;
    ino_t ino;
};

/* "unix:PATH" or "ADDR:PORT" (numeric). port: of TCP, else 0. The caller closes *ret_fd after
 * nt_listen_unlink(). */
NT_MUST_CHECK int nt_listen_open(const char *where, unsigned mode, int *ret_fd,
                                 struct nt_listen_name *ret_name, unsigned *ret_port,
                                 struct nt_err *err);
/* Whether the open socket is still found under its name; true for TCP. */
bool nt_listen_there(const struct nt_listen_name *name);
/* Takes the name away, unless it is somebody else's by now. */
void nt_listen_unlink(const struct nt_listen_name *name);
/* False: not a local connection, or its peer cannot be told. */
bool nt_listen_peer(int fd, uid_t *ret_uid);
