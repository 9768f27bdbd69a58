/*
 * loop - an event loop with room for what will run on it. libuv ends the process where the pipe of
 * its signals cannot be made, and a gang that runs out of descriptors only says that it did not
 * start: so they are counted before.
 */
#pragma once
#include <uv.h>
#include "tuner/base/err.h"

/* Descriptors of the gangs of a job: two alive together, a log and a connection each rank. */
#define NT_LOOP_GANGS(ranks) (4U * (ranks))

/* `files` are wanted beside the loop's own. NT_E_MISSING where so many cannot be opened. The caller
 * closes the loop. */
NT_MUST_CHECK int nt_loop_open(uv_loop_t *loop, unsigned files, struct nt_err *err);
enum { NT_LOOP_ENDS = 3 };
/* Watches what asks a program to end: SIGINT, SIGTERM, SIGHUP. One that whoever started us has us
 * ignore (nohup, a job in a script's background) stays ignored. On failure the loop is closed:
 * NT_E_MISSING. Handles are closed by nt_loop_close_signals(). */
NT_MUST_CHECK int nt_loop_watch_ends(uv_loop_t *loop, uv_signal_t signals[NT_LOOP_ENDS],
                                     uv_signal_cb on_signal, void *data, struct nt_err *err);
/* Closes handles that watch signals. With `ending` the signals are ignored from now on, without a
 * moment in between: the program ends by itself, and a second one must not change what it ends
 * with. Without, they do again what they did by default. */
void nt_loop_close_signals(uv_signal_t *signals, size_t n, bool ending);
