/*
 * gang_fsm - the life of a gang as a pure machine: events in, actions out; no clock, no I/O.
 *
 *   HELLO -all hellos-> UID -uid-> INIT -all readys-> IDLE <-> BUSY
 *   IDLE, BUSY -stop-> QUIT; any failure -> TERM (all ranks); QUIT, TERM -timer-> KILL
 *   all ranks ended, from anywhere -> CLOSED; KILL -timer-> CLOSED (stuck)
 *
 * The first blame holds. Nothing leaves CLOSED.
 */
#pragma once
#include "tuner/gang/gang.h"

/* A rank that is not known: of BROKE and SAID. */
enum { NT_GF_NOBODY = NT_GANG_MAX };

enum nt_gf_state {
    NT_GF_HELLO,
    NT_GF_UID,
    NT_GF_INIT,
    NT_GF_IDLE,
    NT_GF_BUSY, /* up to here the gang is at work */
    NT_GF_QUIT,
    NT_GF_TERM,
    NT_GF_KILL,
    NT_GF_CLOSED,
    NT_GF_STATE_COUNT
};

enum nt_gf_event {
    NT_GF_EV_HELLO, /* of a rank, well-formed; the shell knows which connection it came from */
    NT_GF_EV_UID,
    NT_GF_EV_READY,
    NT_GF_EV_ANSWER, /* to the question that was asked last */
    NT_GF_EV_BROKE,  /* a rank said what is not the protocol */
    NT_GF_EV_SAID,   /* a rank said `error` */
    NT_GF_EV_EOF,    /* a rank's stream ended */
    NT_GF_EV_EXIT_OK,
    NT_GF_EV_EXIT_BAD,
    NT_GF_EV_NO_START, /* a process could not be started: counts as its end */
    NT_GF_EV_TIMER,
    NT_GF_EV_ASK, /* the caller's: rank is ignored, ms is the deadline */
    NT_GF_EV_STOP,
    NT_GF_EV_KILL,
    NT_GF_EVENT_COUNT
};

/* Actions, to be done in this order. */
enum {
    NT_GF_DO_UID = 1,       /* ask rank 0 */
    NT_GF_DO_INIT = 2,      /* to all */
    NT_GF_DO_QUIT = 4,      /* to all */
    NT_GF_DO_TERM = 8,      /* abort to all, and the signal */
    NT_GF_DO_KILL = 16,     /* */
    NT_GF_DO_ARM = 32,      /* the timer, arm_ms from now, instead of what it was */
    NT_GF_DO_DISARM = 64,   /* */
    NT_GF_DO_READY = 128,   /* report */
    NT_GF_DO_ANSWER = 256,  /* report what the ranks answered */
    NT_GF_DO_ABANDON = 512, /* processes that do not end */
    NT_GF_DO_CLOSE = 1024,  /* everything; report the end when closed */
};

struct nt_gang_fsm {
    enum nt_gf_state state;
    struct nt_gang_times times; /* filled in, no zeros */
    unsigned world, answered, alive;
    bool has_answered[NT_GANG_MAX], ended[NT_GANG_MAX];
    bool asked;     /* a question is open; still so when CLOSED: its answer is the failure */
    bool cancelled; /* the caller stopped or killed it: no answers any more */
    bool blamed;    /* how, whom and when are decided */
    enum nt_gang_end how;
    unsigned whom;
    enum nt_gf_state when;
    uint32_t arm_ms;
};

/* The processes were started: the timer runs for arm_ms. */
void nt_gf_init(struct nt_gang_fsm *f, unsigned world, const struct nt_gang_times *times);
/* rank: of those events that have one. ms: of NT_GF_EV_ASK. Returns actions. */
unsigned nt_gf_step(struct nt_gang_fsm *f, enum nt_gf_event ev, unsigned rank, uint32_t ms);
