/*
 * link - the stream to the driver, and the thread that owns it.
 *
 * The main thread may be stuck inside NCCL or CUDA at any time, so a watcher thread reads: end of
 * file, TERM, a broken line or `abort` end the process from there, through ncclCommAbort where a
 * communicator is known. All other messages wait in a queue for the main thread.
 */
#pragma once
#include "probes/protocol/protocol.h"

struct nt_link;

/* Called by the watcher just before the process ends, with the pointer of nt_link_guard(). It may
 * block; the process ends all the same. */
typedef void (*nt_link_abort_cb)(void *arg);

/* Connects to where NT_ENV_DRIVER says: "unix:PATH" or "tcp:HOST:PORT:SECRET". Blocks TERM, INT
 * and HUP in the calling thread; call it before any thread is started. */
NT_MUST_CHECK int nt_link_open(const char *driver, struct nt_link **ret, struct nt_err *err);
/* Starts the watcher. */
NT_MUST_CHECK int nt_link_start(struct nt_link *l, struct nt_err *err);
/* From now on ending goes through cb(arg); NULL: nothing to abort any more. */
void nt_link_guard(struct nt_link *l, nt_link_abort_cb cb, void *arg);
/* Waits for the next message of the driver; the caller frees it with nt_msg_done(). */
void nt_link_next(struct nt_link *l, struct nt_msg *ret);
/* Writes one message; a driver that is gone ends the process. */
void nt_link_send(struct nt_link *l, const struct nt_msg *m);
/* Sends `error` and ends the process with this exit code, aborting what is guarded. */
_Noreturn void nt_link_die(struct nt_link *l, int exit_code, const char *words);
