/*
 * run - one tuning job from its spec to its profile: store, plan, drive, publish; resume.
 *
 * Ownership  config and what it points to are borrowed for the call.
 * Errors     NT_E_INTERRUPTED: the state is kept, nt_job_run() with the job's id goes on. Others as
 * the plan, the store and the machine give them. Signals    SIGINT, SIGTERM and SIGHUP end the job
 * in an orderly way, a second one at once.
 */
#pragma once
#include "profiles/json/profile.h"
#include "tuner/job/drive.h"
#include "tuner/store/store.h"

struct nt_job_progress {
    struct nt_plan_progress plan;
    uint64_t wall_ns;
    int64_t job;
    bool stage_begins; /* first report of a stage */
};

struct nt_job_config {
    struct nt_spec spec; /* of a new job */
    int64_t resume;      /* id of a job to go on with; 0: new */
    const char *key;     /* of a new job, 32 hex digits; NULL: one is made */
    struct nt_store *store;
    const char *program, *const *args; /* the probe */
    const char *plugin;                /* absolute path of the tuner plugin that confirm delivers */
    const char *const *env;            /* of every rank, "NAME=VALUE", NULL-terminated */
    const unsigned *devices;
    const struct nt_remote *remote; /* the ranks are on other hosts; NULL: here */
    const json_t *machines;         /* with it: what they said of themselves (nodes.h) */
    const char *mps_program;
    bool virtual_time;
    const char *version; /* of nccltune */
    const char *tmpdir;  /* where the private folder is made */
    void (*on_progress)(void *data, const struct nt_job_progress *p);
    void *data;
    /* Test hook, "STEPS" or "STEPS@STAGE": the process ends by SIGKILL after that many stored steps
     * (of the stage), NULL never. How many there are before a stage depends on the machine's speed.
     */
    const char *die_after;
};

struct nt_job_outcome {
    int64_t job;
    struct nt_profile *profile; /* the caller frees it */
    bool resumed;
    struct nt_drive_totals totals;                    /* since it was resumed */
    uint64_t held_ns, search_ns, confirm_ns, grid_ns; /* device time */
    unsigned further; /* pairs of the confirm beyond its own, of points in doubt */
    uint64_t trials;
    char delivery[256];
};

NT_MUST_CHECK int nt_job_run(const struct nt_job_config *config, struct nt_job_outcome *ret,
                             struct nt_err *err);
