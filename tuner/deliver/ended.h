/*
 * ended - whether a run that has ended had its profile: what the receipts of its processes say,
 * which stay when these end. The judge is doctor's; that a plugin was in a process is taken from
 * its receipt, since there is no process left to look into.
 *
 * Errors     0 or -enum nt_code. NT_E_MISSING: there is no folder of receipts.
 */
#pragma once
#include "tuner/deliver/doctor.h"

struct nt_ended {
    struct nt_doctor_job job; /* counted, applied (not when ranks are missing), and a sentence */
    unsigned receipts;
    unsigned missing,
        of;        /* ranks of a communicator on this host alone, of which no receipt tells */
    char why[256]; /* of the first rank in which it was not wholly applied; "" */
};
/* manifest: of `run`. Receipts are those of this user that name its id, in the folder that
 * processes of this environment use. */
NT_MUST_CHECK int nt_ended(const json_t *manifest, struct nt_ended *ret, struct nt_err *err);
/* Whether a plugin of ours was named to the run at all; else nothing can leave a receipt. */
bool nt_ended_can_prove(const json_t *manifest);
