/* The words of the store's enumerations and the views it answers by name. */
#include "tuner/store/db.h"
#include "tuner/base/text.h"

#include <string.h>

const char *const nt_job_state_names[NT_JOB_STATE_COUNT + 1] = {
    [NT_JOB_NEW] = "new",   [NT_JOB_RUNNING] = "running", [NT_JOB_INTERRUPTED] = "interrupted",
    [NT_JOB_DONE] = "done", [NT_JOB_FAILED] = "failed",
};
const char *const nt_store_verdict_names[NT_STORE_VERDICT_COUNT + 1] = {
    [NT_STORE_WINNER] = "winner",           [NT_STORE_TIE] = "tie",
    [NT_STORE_NO_WINNER] = "no winner",     [NT_STORE_REJECTED] = "rejected",
    [NT_STORE_NOT_CHECKED] = "not checked",
};

const struct nt_store_view nt_store_views[] = {
    {"speedups", "SELECT * FROM speedups",
     "default against tuned per size class of each job's newest profile, with interval"},
    {"jobs", "SELECT * FROM jobs", "every tuning run: state, rig, machine, cost"},
    {"best", "SELECT * FROM best",
     "fastest and second in each case, of jobs and imports; a look, not a proof"},
    {"verdicts", "SELECT * FROM verdicts",
     "what was found for each setting at each stage, and why"},
    {"rejected", "SELECT * FROM rejected",
     "settings that are in no profile, and why: verdicts and failed trials"},
    {"noise", "SELECT * FROM noise",
     "the default against itself: between gangs and within one; and how far two recordings of one "
     "rig disagree"},
    {"drift", "SELECT * FROM drift",
     "later blocks against earlier ones of the same setting and case"},
    {"trials", "SELECT * FROM trials", "everything measured, in order"},
    {"contenders", "SELECT * FROM contenders",
     "median and quartiles of every setting or backend in each case"},
    {"measurements", "SELECT * FROM measurements", "other people's measurements, as imported"},
    {"imports", "SELECT * FROM imports", "imported files with their provenance"},
    {"checks", "SELECT * FROM checks",
     "rows of profiles that were checked again: gain then and now, what moved, on what stack"},
    {"events", "SELECT * FROM events", "what happened during jobs"},
    {"queued", "SELECT * FROM queued", "what the service was asked for, and what became of it"},
    {"profiles", "SELECT * FROM profiles", "every profile: machine, stack, whether it still holds"},
    {NULL, NULL, NULL},
};

int nt_store_view_sql(const char *name, const char **ret_sql, struct nt_err *err)
{
    const char *names[NT_COUNT(nt_store_views)];
    for (size_t i = 0; i < NT_COUNT(nt_store_views); i++) {
        names[i] = nt_store_views[i].name;
        if (names[i] != NULL && strcmp(names[i], name) == 0) {
            *ret_sql = nt_store_views[i].sql;
            return 0;
        }
    }
    return nt_fail_name(err, "view", name, names);
}
