/* Routes of the queue. */
#include "schema/vocab.h"
#include "tuner/base/json.h"
#include "tuner/service/service_i.h"

#include <string.h>

static void put_text(json_t *o, const char *name, const char *text)
{
    if (text != NULL && text[0] != '\0') {
        (void)json_object_set_new(o, name, json_string(text));
    }
}

static void put_number(json_t *o, const char *name, uint64_t n)
{
    if (n != 0) {
        (void)json_object_set_new(o, name, json_integer((json_int_t)n));
    }
}

static json_t *parsed(const char *text)
{
    json_t *o = NULL;
    return text != NULL && nt_json_parse(text, strlen(text), "stored JSON", &o, NULL) == 0
               ? o
               : json_object();
}

static json_t *entry_json(const struct nt_service *s, const struct nt_store_entry *e)
{
    const struct nt_running *run = nt_jobs_running(s, e->id);
    struct nt_queue_item *item = nt_queue_find(&((struct nt_service *)(uintptr_t)s)->queue, e->id);
    json_t *o = json_pack("{s:I, s:s, s:s, s:s, s:i, s:o, s:i}", "id", (json_int_t)e->id, "kind",
                          nt_queue_kind_names[e->kind], "rig", e->rig, "state",
                          nt_queue_state_names[e->state], "priority", e->priority, "ask",
                          parsed(e->ask), "attempts", (int)e->attempts);
    if (o == NULL) {
        return NULL;
    }
    put_text(o, "reason", item != NULL && item->reason[0] != '\0' ? item->reason : e->reason);
    put_text(o, "by", e->by);
    put_text(o, "cause", e->cause);
    (void)json_object_set_new(o, "created_ms", json_integer((json_int_t)e->created_ms));
    put_number(o, "started_ms", e->started_ms);
    put_number(o, "finished_ms", e->finished_ms);
    put_number(o, "not_before_ms", e->state == NT_Q_QUEUED ? e->not_before_ms : 0);
    put_number(o, "run", (uint64_t)e->job);
    put_number(o, "profile", (uint64_t)e->profile);
    if (run != NULL && run->progress != NULL) {
        (void)json_object_set_new(o, "progress", parsed(run->progress));
    }
    return o;
}

struct entries {
    const struct nt_service *s;
    json_t *list;
};

static int take_entry(void *data, const struct nt_store_entry *e, struct nt_err *err)
{
    struct entries *x = data;
    return json_array_append_new(x->list, entry_json(x->s, e)) != 0
               ? nt_fail(err, NT_E_NOMEM, 0, "jobs")
               : 0;
}

int nt_api_jobs(struct nt_exchange *x, struct nt_err *err)
{
    struct entries e = {.s = x->s, .list = json_array()};
    const char *state = nt_http_arg(x->r, "state");
    int which = state != NULL ? nt_vocab_find(nt_queue_state_names, "state", state, err) : -1;
    int rc = nt_store_queue_list(x->store, which, nt_reply_number(x, "before", 0),
                                 (unsigned)nt_reply_number(x, "limit", 100), take_entry, &e, err);
    if (rc != 0) {
        json_decref(e.list);
        return rc;
    }
    return nt_reply_json(x, json_pack("{s:o}", "jobs", e.list), err);
}

/* The entry as it is now. */
static int reply_entry(struct nt_exchange *x, int64_t id, struct nt_err *err)
{
    struct entries e = {.s = x->s, .list = json_array()};
    int rc = nt_store_queue_load(x->store, id, take_entry, &e, err);
    if (rc == 0) {
        rc = nt_reply_json(x, json_incref(json_array_get(e.list, 0)), err);
    }
    json_decref(e.list);
    return rc;
}

int nt_api_job(struct nt_exchange *x, struct nt_err *err)
{
    return reply_entry(x, x->id, err);
}

/* The integer of a member, or `otherwise` when there is none. */
static int body_number(const json_t *o, const char *name, int64_t lo, int64_t hi, int64_t otherwise,
                       int64_t *ret, struct nt_err *err)
{
    int rc = 0;
    *ret = otherwise;
    if (json_object_get(o, name) != NULL) {
        rc = nt_json_i64(o, name, ret, err);
        if (rc == 0 && (*ret < lo || *ret > hi)) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s: %lld is not between %lld and %lld", name,
                         (long long)*ret, (long long)lo, (long long)hi);
        }
    }
    return rc;
}

int nt_api_job_add(struct nt_exchange *x, struct nt_err *err)
{
    static const char *const known[] = {"rig",      "kind",  "priority", "collectives",
                                        "sizes",    "modes", "dtypes",   "effort",
                                        "budget_s", "seed",  "profile",  NULL};
    struct nt_store_entry e = {.state = NT_Q_QUEUED, .reason = "", .cause = "", .by = x->who};
    struct nt_buf ask;
    json_t *o = NULL;
    const char *rig = "", *kind;
    int64_t id = 0, priority = 0;
    int which = 0, rc = nt_reply_body(x, known, &o, err);

    nt_buf_init(&ask, 1 << 16);
    rc = rc == 0 ? nt_json_str(o, "rig", &rig, err) : rc;
    if (rc == 0 && nt_config_rig(x->s->c, rig) == NULL) {
        rc = nt_fail(err, NT_E_INVAL, 0, "there is no rig '%.63s' in the configuration", rig);
    }
    rc = rc == 0 ? body_number(o, "priority", -100, 100, 0, &priority, err) : rc;
    if (rc == 0 && json_object_get(o, "kind") != NULL) {
        rc = nt_json_str(o, "kind", &kind, err);
        which = rc == 0 ? nt_vocab_find(nt_queue_kind_names, "kind", kind, err) : 0;
        rc = which < 0 ? which : rc;
    }
    if (rc == 0) {
        e.kind = (uint8_t)which;
        e.priority = (int)priority;
        (void)snprintf(e.rig, sizeof(e.rig), "%s", rig);
        rc = nt_jobs_check_ask(x->s->c, o, &ask, err);
    }
    if (rc == 0) {
        int64_t run;
        e.ask = nt_buf_str(&ask);
        rc = which == NT_QUEUE_CHECK ? nt_checks_run_of(x->s, &e, &run, err) : 0; /* there is one */
        rc = rc == -NT_E_MISSING
                 ? nt_fail(err, NT_E_INVAL, 0, "profile: there is none of this number")
                 : rc;
        rc = rc == 0 ? nt_jobs_add(x->s, &e, &id, err) : rc;
    }
    nt_buf_done(&ask);
    json_decref(o);
    return rc == 0 ? reply_entry(x, id, err) : rc;
}

int nt_api_job_change(struct nt_exchange *x, struct nt_err *err)
{
    static const char *const known[] = {"priority", NULL};
    json_t *o = NULL;
    int64_t priority = 0;
    int rc = nt_reply_body(x, known, &o, err);
    if (rc == 0 && json_object_get(o, "priority") == NULL) {
        rc = nt_fail(err, NT_E_INVAL, 0, "priority: missing");
    }
    rc = rc == 0 ? body_number(o, "priority", -100, 100, 0, &priority, err) : rc;
    rc = rc == 0 ? nt_jobs_priority(x->s, x->id, (int)priority, err) : rc;
    json_decref(o);
    return rc == 0 ? reply_entry(x, x->id, err) : rc;
}

int nt_api_job_cancel(struct nt_exchange *x, struct nt_err *err)
{
    int rc = nt_jobs_cancel(x->s, x->id, x->who, err);
    return rc == 0 ? reply_entry(x, x->id, err) : rc;
}

int nt_api_job_resume(struct nt_exchange *x, struct nt_err *err)
{
    int rc = nt_jobs_resume(x->s, x->id, x->who, err);
    return rc == 0 ? reply_entry(x, x->id, err) : rc;
}
