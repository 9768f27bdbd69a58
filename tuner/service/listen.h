/* listen - sockets to listen at, and who is at the other end of a local one. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "tuner/base/err.h"

/* "unix:PATH" or "ADDR:PORT" (numeric). path: of a Unix socket, else ""; port: of TCP, else 0. The
 * caller closes *ret_fd, and unlinks path. */
NT_MUST_CHECK int nt_listen_open(const char *where, unsigned mode, int *ret_fd, char *path,
                                 size_t size, unsigned *ret_port, struct nt_err *err);
/* False: not a local connection, or its peer cannot be told. */
bool nt_listen_peer(int fd, uid_t *ret_uid);
