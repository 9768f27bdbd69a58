/*
 * turns - who goes first where the service and what it started want one core.
 *
 * Nothing here needs a privilege, gives more of the processor than before, or must work: where the
 * kernel does not know it, all stays as it was.
 */
#pragma once
#include <sys/types.h>

/* How far a child steps back. Whoever measures keeps its priority: a niceness is inherited by the
 * ranks and cannot be taken back, so that a job that measures is given none. */
enum nt_turns {
    NT_TURNS_EQUAL,   /* not at all: somebody waits for it */
    NT_TURNS_LAST,    /* it and all that it starts: niceness, batch, and its session */
    NT_TURNS_MEASURE, /* its session alone, in which its ranks are not */
};

/* Asks for short turns, soon, for the calling thread: it works a little at a time, and somebody
 * waits for each answer. Not inherited. */
void nt_turns_short(void);
void nt_turns_give_way(pid_t child, enum nt_turns how);
