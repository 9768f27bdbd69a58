#include "tuner/gang/gang_fsm.h"

#include <string.h>

static unsigned arm(struct nt_gang_fsm *f, uint32_t ms)
{
    f->arm_ms = ms;
    return NT_GF_DO_ARM;
}

static void blame(struct nt_gang_fsm *f, enum nt_gang_end how, unsigned rank)
{
    if (!f->blamed) {
        f->blamed = true;
        f->how = how;
        f->whom = rank;
        f->when = f->state;
    }
}

static unsigned enter(struct nt_gang_fsm *f, enum nt_gf_state state)
{
    f->state = state;
    f->answered = 0;
    memset(f->has_answered, 0, sizeof(f->has_answered));
    return 0;
}

static unsigned term(struct nt_gang_fsm *f)
{
    f->state = NT_GF_TERM;
    return NT_GF_DO_TERM | arm(f, f->times.grace_ms);
}

static unsigned fail(struct nt_gang_fsm *f, enum nt_gang_end how, unsigned rank)
{
    if (f->state > NT_GF_BUSY) {
        return 0; /* whatever ranks say while they are being ended */
    }
    blame(f, how, rank);
    return term(f);
}

/* All have ended, or it is no use to wait. */
static unsigned closed(struct nt_gang_fsm *f)
{
    blame(f, NT_GANG_DONE, 0);
    f->state = NT_GF_CLOSED;
    return NT_GF_DO_DISARM | NT_GF_DO_CLOSE;
}

static unsigned ended(struct nt_gang_fsm *f, unsigned rank, enum nt_gang_end how, bool well)
{
    unsigned acts = 0;

    if (f->ended[rank]) {
        return 0;
    }
    f->ended[rank] = true;
    f->alive--;
    if (f->state <= NT_GF_BUSY) {
        acts = fail(f, how, rank);
    } else if (f->state == NT_GF_QUIT && !well) {
        blame(f, how, rank);
    }
    return f->alive == 0 ? closed(f) : acts;
}

/* One answer of each rank moves a state on; a second one, or one in another state, is broken. */
static unsigned answer(struct nt_gang_fsm *f, enum nt_gf_state state, unsigned rank)
{
    if (f->state > NT_GF_BUSY) {
        return 0;
    }
    if (f->state != state || f->has_answered[rank] || (state == NT_GF_UID && rank != 0)) {
        return fail(f, NT_GANG_BROKE, rank);
    }
    f->has_answered[rank] = true;
    f->answered++;
    if (state != NT_GF_UID && f->answered < f->world) {
        return 0;
    }
    switch (state) {
    case NT_GF_HELLO:
        return enter(f, NT_GF_UID) | NT_GF_DO_UID | arm(f, f->times.init_ms);
    case NT_GF_UID:
        return enter(f, NT_GF_INIT) | NT_GF_DO_INIT | arm(f, f->times.init_ms);
    case NT_GF_INIT:
        return enter(f, NT_GF_IDLE) | NT_GF_DO_DISARM | NT_GF_DO_READY;
    default:
        f->asked = false;
        return enter(f, NT_GF_IDLE) | NT_GF_DO_DISARM | NT_GF_DO_ANSWER;
    }
}

static unsigned late(const struct nt_gang_fsm *f)
{
    unsigned rank = 0;
    while (f->state != NT_GF_UID && rank + 1 < f->world && f->has_answered[rank]) {
        rank++;
    }
    return rank;
}

static unsigned unended(const struct nt_gang_fsm *f)
{
    unsigned rank = 0;
    while (rank + 1 < f->world && f->ended[rank]) {
        rank++;
    }
    return rank;
}

static unsigned kill_all(struct nt_gang_fsm *f)
{
    f->state = NT_GF_KILL;
    return NT_GF_DO_KILL | arm(f, f->times.grace_ms);
}

static unsigned timer(struct nt_gang_fsm *f)
{
    switch (f->state) {
    case NT_GF_IDLE:
    case NT_GF_CLOSED:
        return 0; /* not armed */
    case NT_GF_QUIT:
        blame(f, NT_GANG_TIMEOUT, unended(f));
        return term(f);
    case NT_GF_TERM:
        return kill_all(f);
    case NT_GF_KILL:
        f->blamed = false; /* graver than any reason to kill */
        blame(f, NT_GANG_STUCK, unended(f));
        return closed(f) | NT_GF_DO_ABANDON;
    default:
        return fail(f, NT_GANG_TIMEOUT, late(f));
    }
}

static unsigned ask(struct nt_gang_fsm *f, uint32_t ms)
{
    if (f->asked || f->state < NT_GF_IDLE) {
        return 0; /* the shell asserts that callers do not */
    }
    f->asked = true;
    return f->state == NT_GF_IDLE ? enter(f, NT_GF_BUSY) | arm(f, ms) : 0;
}

static unsigned stop(struct nt_gang_fsm *f)
{
    f->cancelled = true;
    if (f->state == NT_GF_IDLE || f->state == NT_GF_BUSY) {
        f->state = NT_GF_QUIT;
        return NT_GF_DO_QUIT | arm(f, f->times.quit_ms);
    }
    return fail(f, NT_GANG_CANCELLED, 0); /* nothing to lose yet */
}

void nt_gf_init(struct nt_gang_fsm *f, unsigned world, const struct nt_gang_times *times)
{
    *f = (struct nt_gang_fsm){.world = world, .alive = world, .times = *times};
    (void)arm(f, times->hello_ms);
}

unsigned nt_gf_step(struct nt_gang_fsm *f, enum nt_gf_event ev, unsigned rank, uint32_t ms)
{
    if (f->state == NT_GF_CLOSED && ev != NT_GF_EV_ASK) {
        return 0;
    }
    switch (ev) {
    case NT_GF_EV_HELLO:
        return answer(f, NT_GF_HELLO, rank);
    case NT_GF_EV_UID:
        return answer(f, NT_GF_UID, rank);
    case NT_GF_EV_READY:
        return answer(f, NT_GF_INIT, rank);
    case NT_GF_EV_ANSWER:
        return answer(f, NT_GF_BUSY, rank);
    case NT_GF_EV_BROKE:
        return fail(f, NT_GANG_BROKE, rank);
    case NT_GF_EV_SAID:
        return fail(f, NT_GANG_SAID, rank);
    case NT_GF_EV_EOF:
        return fail(f, NT_GANG_CRASHED, rank);
    case NT_GF_EV_EXIT_OK:
        return ended(f, rank, NT_GANG_CRASHED, true);
    case NT_GF_EV_EXIT_BAD:
        return ended(f, rank, NT_GANG_CRASHED, false);
    case NT_GF_EV_NO_START:
        return ended(f, rank, NT_GANG_NO_START, false);
    case NT_GF_EV_TIMER:
        return timer(f);
    case NT_GF_EV_ASK:
        return ask(f, ms);
    case NT_GF_EV_STOP:
        return stop(f);
    case NT_GF_EV_KILL:
        f->cancelled = true;
        blame(f, NT_GANG_CANCELLED, 0);
        return f->state < NT_GF_KILL ? kill_all(f) : 0;
    case NT_GF_EVENT_COUNT:
        break;
    }
    return 0;
}
