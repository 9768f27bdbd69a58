/* words - why a gang ended, for people. */
#pragma once
#include "tuner/gang/gang_fsm.h"

struct nt_gang_facts {
    const struct nt_gang_fsm *fsm;      /* CLOSED */
    const struct nt_launch_exit *exits; /* [world], of those that have ended */
    const char *program, *dir;
    const char *said; /* what the shell noted when it happened, or NULL */
    bool missing;     /* said is of the launcher or a host */
};
/* Fills *err; code NT_OK and "" when the gang ended as it was told. */
void nt_gang_words(const struct nt_gang_facts *x, struct nt_err *err);
