/*
 * agent - the one process that a launcher starts on each host: it connects back, starts the host's
 * ranks, carries their sockets, tells of their ends, and leaves nothing behind.
 *
 * What is said, in frames (wire.h):
 *   NODE   strings: node's number, its name, what makes a host the same one, process id
 *   START  strings: ranks here, log bytes wanted, arguments, variables, program, variable of the
 *          rank, the driver's socket, then the arguments, then the variables
 *   EXIT   strings: exit code, signal, error of the start; then what the rank wrote: its last
 *          bytes, or with log bytes wanted its first
 *
 * Life       a connection that ends, TERM, or the driver's END: ranks get TERM, after
 *            NT_LAUNCH_ORPHAN_MS KILL. A guard does the same when the agent is killed.
 */
#pragma once
#include "tuner/launch/launch.h"

enum { NT_AGENT_LOG_TAIL = 16 << 10, NT_AGENT_FILES = 8 };
/* A host that is gone does not say so: the connection is held for dead after so long without an
 * answer. */
enum { NT_ALIVE_IDLE_S = 10, NT_ALIVE_EVERY_S = 5, NT_ALIVE_TIMES = 4, NT_ALIVE_SENT_MS = 30000 };
void nt_keep_alive(int fd);
