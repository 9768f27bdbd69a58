/* Checks by schedule: which profile, when, and what their answer means. */
#include "tuner/base/json.h"
#include "tuner/base/log.h"
#include "tuner/service/service_i.h"

#include <stdio.h>
#include <string.h>

static int take_run(void *data, const struct nt_store_profile *p, struct nt_err *err)
{
    (void)err;
    *(int64_t *)data = p->job;
    return 0;
}

int nt_checks_run_of(struct nt_service *s, const struct nt_store_entry *e, int64_t *ret_run,
                     struct nt_err *err)
{
    json_t *ask = NULL;
    int64_t profile = 0, run = 0;
    int rc = nt_json_parse(e->ask, strlen(e->ask), "the stored job", &ask, err);

    if (rc == 0) {
        profile = nt_json_opt_i64(ask, "profile", 0);
        rc = profile != 0 ? nt_store_profile_load(s->store, profile, take_run, &run, err)
                          : nt_store_rig_profile(s->store, e->rig, &profile, &run, err);
    }
    if (rc == 0 && run == 0) {
        rc = nt_fail(err, NT_E_NO, 0, "the rig %s has no current profile to check", e->rig);
    }
    if (rc == 0) {
        *ret_run = run;
    }
    json_decref(ask);
    return rc;
}

/* The verdict of all rows: the worst of theirs. */
static const char *verdict_of(const json_t *rows, size_t *ret_drifted)
{
    const json_t *row;
    size_t i, holds = 0;

    *ret_drifted = 0;
    json_array_foreach(rows, i, row)
    {
        const char *v = nt_json_opt_str(row, "verdict", "");
        *ret_drifted += strcmp(v, "drifted") == 0;
        holds += strcmp(v, "holds") == 0;
    }
    return *ret_drifted > 0 ? "drifted" : holds > 0 ? "holds" : "cannot tell";
}

/* The profile that drifted holds no longer. */
static void mark(struct nt_service *s, const char *rig, size_t drifted, size_t rows)
{
    struct nt_err err = {0};
    int64_t profile = 0, run = 0;
    char why[128];
    bool withhold = s->c->stale == NT_STALE_WITHHOLD;
    int rc = nt_store_rig_profile(s->store, rig, &profile, &run, &err);

    if (rc == 0 && profile != 0) {
        (void)snprintf(why, sizeof(why), "watch: drifted in a check, %zu of %zu rows", drifted,
                       rows);
        rc = nt_service_wrote(s,
                              nt_store_profile_set_state(s->store, profile,
                                                         withhold ? NT_PS_WITHHELD : NT_PS_STALE,
                                                         why, &err),
                              &err);
        s->version_ms = 0;
        nt_service_event(s, "profile", 0,
                         json_pack("{s:I, s:s, s:s}", "profile", (json_int_t)profile, "state",
                                   nt_profile_state_names[withhold ? NT_PS_WITHHELD : NT_PS_STALE],
                                   "why", why),
                         true);
    }
    if (rc != 0) {
        nt_log(NT_ERROR, "check: %s", err.msg);
    }
}

bool nt_checks_take(struct nt_service *s, int64_t id, const char *rig, const char *out, size_t len)
{
    json_t *o = NULL, *rows;
    size_t drifted = 0;
    const char *verdict;

    if (nt_json_parse(out, len, "the check", &o, NULL) != 0) {
        return false;
    }
    rows = json_object_get(o, "rows");
    verdict = verdict_of(rows, &drifted);
    verdict = nt_json_opt_str(o, "verdict", verdict);
    nt_service_event(s, "check", id,
                     json_pack("{s:I, s:s, s:s, s:I, s:I, s:I}", "job", (json_int_t)id, "rig", rig,
                               "verdict", verdict, "rows", (json_int_t)json_array_size(rows),
                               "drifted", (json_int_t)drifted, "check",
                               (json_int_t)nt_json_opt_i64(o, "check", 0)),
                     true);
    if (drifted > 0) {
        mark(s, rig, drifted, json_array_size(rows));
    }
    json_decref(o);
    return true;
}

void nt_checks_due(struct nt_service *s)
{
    for (size_t i = 0; i < s->c->nrigs; i++) {
        const struct nt_config_rig *r = &s->c->rigs[i];
        struct nt_err err = {0};
        int64_t profile = 0, run = 0, id = 0;
        uint64_t last = 0, now = nt_service_day_ms();
        char cause[96];
        struct nt_store_entry e = {.kind = NT_QUEUE_CHECK,
                                   .state = NT_Q_QUEUED,
                                   .ask = "{}",
                                   .by = "schedule",
                                   .reason = "",
                                   .cause = cause};
        int rc;

        if (r->check_ns == 0) {
            continue;
        }
        (void)snprintf(cause, sizeof(cause), "check %s", r->name);
        (void)snprintf(e.rig, sizeof(e.rig), "%s", r->name);
        rc = nt_store_queue_last(s->store, NT_QUEUE_CHECK, r->name, &last, &err);
        if (rc == 0 && now - last >= r->check_ns / 1000000) {
            rc = nt_store_rig_profile(s->store, r->name, &profile, &run, &err);
            rc = rc == 0 && profile != 0 ? nt_jobs_add(s, &e, &id, &err) : rc;
        }
        if (rc != 0) {
            nt_log(NT_WARN, "check: %s", err.msg);
        }
    }
}

int nt_api_profile_checks(struct nt_exchange *x, struct nt_err *err)
{
    char run[24];
    int64_t id = 0;
    const char *const args[] = {"check", run,    "--history",    "--format",
                                "json",  "--db", x->s->database, NULL};
    int rc = nt_store_profile_load(x->store, x->id, take_run, &id, err);
    (void)snprintf(run, sizeof(run), "%lld", (long long)id);
    /* Exit code 2 here: it was never checked. */
    return rc == 0 ? nt_ask_child(x, args, NULL, "{\"checks\":[],\"changes\":[]}", false, err) : rc;
}
