/* ticket - a tuning run that the service started: its key was chosen there, so that started twice
 * it is one run; its progress is for a program; and it ends when the service does. */
#pragma once
#include <sys/types.h>
#include "tuner/job/run.h"

/* What there is of the run of this key: *ret_job 0: nothing yet; *ret_done: it is over. A key that
 * is none: NT_E_INVAL. */
NT_MUST_CHECK int nt_ticket_find(const char *key, const char *db, int64_t *ret_job, bool *ret_done,
                                 struct nt_err *err);
/* Interrupts this process when its parent ends. */
void nt_ticket_follow_parent(void);
/* One line of JSON on stderr. */
void nt_ticket_progress(const struct nt_job_progress *p, bool paced);
