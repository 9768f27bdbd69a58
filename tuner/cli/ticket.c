#include "tuner/cli/ticket.h"
#include "tuner/base/json.h"
#include "tuner/job/plan.h"
#include "tuner/store/service.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int see_state(void *data, const struct nt_store_job *j, struct nt_err *err)
{
    (void)err;
    *(bool *)data = j->state == NT_JOB_DONE;
    return 0;
}

int nt_ticket_find(const char *key, const char *db, int64_t *ret_job, bool *ret_done,
                   struct nt_err *err)
{
    struct nt_store_owner owner;
    struct nt_store *store = NULL;
    char path[PATH_MAX];
    bool done = false;
    int64_t job = 0;
    int rc;

    if (strlen(key) != 32 || key[strspn(key, "0123456789abcdef")] != '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "--ticket: 32 lower-case hex digits");
    }
    rc = nt_store_default_path(db, true, path, sizeof(path), err);
    rc = rc == 0 ? nt_store_open(path, NT_STORE_WRITE, &store, err) : rc;
    rc = rc == 0 ? nt_store_job_of_key(store, key, &job, &owner, err) : rc;
    if (rc == 0 && job != 0) {
        rc = nt_store_job_load(store, job, see_state, &done, err);
    }
    nt_store_close(store);
    if (rc == 0) {
        *ret_job = job;
        *ret_done = done;
    }
    return rc;
}

void nt_ticket_follow_parent(void)
{
    pid_t parent = getppid();
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) { /* it ended before the kernel knew */
        (void)raise(SIGTERM);
    }
}

void nt_ticket_progress(const struct nt_job_progress *p, bool paced)
{
    char cs[64], call[48], best[128];
    struct nt_buf b;
    json_t *o = json_pack("{s:I, s:s, s:f, s:I, s:I, s:b}", "run", (json_int_t)p->job, "stage",
                          nt_stage_names[p->plan.stage], "done", p->plan.done, "trials",
                          (json_int_t)p->plan.trials, "wall_ms", (json_int_t)(p->wall_ns / 1000000),
                          "begins", (int)p->stage_begins);

    if (o != NULL && paced && p->plan.left_ns > 0) {
        (void)json_object_set_new(o, "left_ms",
                                  json_integer((json_int_t)(p->plan.left_ns / 1000000)));
    }
    if (o != NULL && p->plan.best_gain > 0.02) {
        (void)snprintf(best, sizeof(best), "%s %s",
                       nt_case_text(&p->plan.best_case, cs, sizeof(cs)),
                       nt_call_text(&p->plan.best_call, call, sizeof(call)));
        (void)json_object_set_new(o, "best_gain", json_real(1 - exp(-p->plan.best_gain)));
        (void)json_object_set_new(o, "best", json_string(best));
    }
    nt_buf_init(&b, 4096);
    nt_json_dump(o, false, &b);
    (void)fprintf(stderr, "%s\n", nt_buf_str(&b));
    (void)fflush(stderr);
    nt_buf_done(&b);
    json_decref(o);
}
