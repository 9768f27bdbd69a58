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
