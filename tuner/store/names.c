/* The words of the store's enumerations and the views it answers by name. */
#include "tuner/store/store.h"
#include "tuner/base/text.h"

#include <string.h>

const char *const nt_job_state_names[NT_JOB_STATE_COUNT + 1] = {
    [NT_JOB_NEW] = "new",   [NT_JOB_RUNNING] = "running", [NT_JOB_INTERRUPTED] = "interrupted",
    [NT_JOB_DONE] = "done", [NT_JOB_FAILED] = "failed",
};
const char *const nt_store_verdict_names[NT_STORE_VERDICT_COUNT + 1] = {
    [NT_STORE_WINNER] = "winner",       [NT_STORE_TIE] = "tie",
    [NT_STORE_NO_WINNER] = "no winner", [NT_STORE_REJECTED] = "rejected",
    [NT_STORE_NOT_CHECKED] = "not checked",
};
