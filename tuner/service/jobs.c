/* The queue with its store and its children: what queue.c decides is written down, then done. */
#include "tuner/base/json.h"
#include "tuner/base/log.h"
#include "tuner/base/text.h"
#include "tuner/service/service_i.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OUTPUT_MAX_BYTES = 64 << 20, GRACE_MS = 8000, TELL_MS = 500, FORMER_MS = 100 };

/* --- entries ------------------------------------------------------------------------------------
 */

const struct nt_running *nt_jobs_running(const struct nt_service *s, int64_t id)
{
    for (const struct nt_running *r = s->running; r != NULL; r = r->next) {
        if (r->id == id) {
            return r;
        }
    }
    return NULL;
}

static uint64_t now_ms(const struct nt_service *s)
{
    return nt_service_day_ms() - s->wall_offset_ms;
}

/* A stored entry that outlives the callback. */
struct loaded {
    struct nt_store_entry e;
    char *reason, *cause, *by, *ask;
};

static int keep(void *data, const struct nt_store_entry *e, struct nt_err *err)
{
    struct loaded *l = data;
    l->e = *e;
    l->e.reason = l->reason = strdup(e->reason);
    l->e.cause = l->cause = strdup(e->cause);
    l->e.by = l->by = strdup(e->by);
    l->e.ask = l->ask = strdup(e->ask);
    return l->reason == NULL || l->cause == NULL || l->by == NULL || l->ask == NULL
               ? nt_fail(err, NT_E_NOMEM, 0, "job")
               : 0;
}

static void loaded_done(struct loaded *l)
{
    free(l->reason);
    free(l->cause);
    free(l->by);
    free(l->ask);
}

static int load(struct nt_service *s, int64_t id, struct loaded *ret, struct nt_err *err)
{
    *ret = (struct loaded){.ask = NULL};
    return nt_store_queue_load(s->store, id, keep, ret, err);
}

static void tell_state(struct nt_service *s, const struct nt_store_entry *e)
{
    nt_service_event(s, "job", e->id,
                     json_pack("{s:I, s:s, s:s, s:s, s:s}", "job", (json_int_t)e->id, "state",
                               nt_queue_state_names[e->state], "reason", e->reason, "rig", e->rig,
                               "kind", nt_queue_kind_names[e->kind]),
                     true);
}

static int save(struct nt_service *s, const struct nt_store_entry *e, struct nt_err *err)
{
    int rc = nt_service_wrote(s, nt_store_queue_save(s->store, e, err), err);
    if (rc == 0) {
        tell_state(s, e);
    }
    return rc;
}

static unsigned lane_of(const struct nt_service *s, const char *rig)
{
    const struct nt_config_rig *r = nt_config_rig(s->c, rig);
    return r != NULL ? (unsigned)(r - s->c->rigs) : NT_CONFIG_RIGS;
}

static struct nt_queue_item item_of(const struct nt_service *s, const struct nt_store_entry *e)
{
    const struct nt_config_rig *r = nt_config_rig(s->c, e->rig);
    uint64_t day = nt_service_day_ms(), wait = e->not_before_ms > day ? e->not_before_ms - day : 0;
    struct nt_queue_item item = {.id = e->id,
                                 .priority = e->priority,
                                 .state = e->state,
                                 .gpus = r != NULL ? r->gpu_mask : 0,
                                 .lane = lane_of(s, e->rig),
                                 .attempts = e->attempts,
                                 .not_before_ms = now_ms(s) + wait};
    (void)snprintf(item.reason, sizeof(item.reason), "%s", e->reason);
    return item;
}

/* --- children -----------------------------------------------------------------------------------
 */

static void forget(struct nt_service *s, struct nt_running *r)
{
    struct nt_running **at = &s->running;
    while (*at != r) {
        at = &(*at)->next;
    }
    *at = r->next;
    free(r->progress);
    free(r);
}

/* A line of JSON on stderr: how far it is. */
static void on_line(void *data, const char *line)
{
    struct nt_running *r = data;
    struct nt_service *s = r->s;
    json_t *o = NULL;
    char *copy;

    if (line[0] != '{' || nt_json_parse(line, strlen(line), "progress", &o, NULL) != 0) {
        return;
    }
    copy = strdup(line);
    if (copy != NULL) {
        free(r->progress);
        r->progress = copy;
    }
    if (now_ms(s) - r->told_ms >= TELL_MS || nt_json_opt_bool(o, "begins", false)) {
        r->told_ms = now_ms(s);
        (void)json_object_set_new(o, "job", json_integer((json_int_t)r->id));
        nt_service_event(s, "progress", r->id, o, false);
    } else {
        json_decref(o);
    }
}

/* What became of it, into the store; the queue knows already. */
static void settle(struct nt_service *s, int64_t id, const struct nt_queue_end *end,
                   const char *words)
{
    struct nt_queue_item item;
    struct nt_err err = {0};
    struct loaded l;
    int rc;

    nt_queue_tell_ended(&s->queue, id, end, now_ms(s), &item);
    rc = load(s, id, &l, &err);
    if (rc == 0) {
        struct nt_buf reason;
        uint64_t wait = item.not_before_ms > now_ms(s) ? item.not_before_ms - now_ms(s) : 0;
        nt_buf_init(&reason, 2048);
        nt_buf_puts(&reason, item.reason);
        if (item.state != NT_Q_DONE && item.state != NT_Q_CANCELLED && words[0] != '\0' &&
            end->exit_code != 5) {
            nt_buf_printf(&reason, ": ");
            nt_buf_put_plain(&reason, words);
        }
        l.e.state = item.state;
        l.e.reason = nt_buf_str(&reason);
        l.e.attempts = item.attempts;
        l.e.not_before_ms = item.state == NT_Q_QUEUED ? nt_service_day_ms() + wait : 0;
        l.e.finished_ms = item.state == NT_Q_QUEUED ? 0 : nt_service_day_ms();
        l.e.owner = (struct nt_store_owner){0};
        rc = save(s, &l.e, &err);
        nt_buf_done(&reason);
    }
    if (rc != 0) { /* the next start finds it running without a child, and goes on from there */
        nt_log(NT_ERROR, "job %lld: %s", (long long)id, err.msg);
    }
    loaded_done(&l);
    s->version_ms = 0;
    nt_service_look_at_profiles(s);
}

static void on_done(void *data, const struct nt_queue_end *end, bool timed_out,
                    const struct nt_buf *out, const char *tail)
{
    struct nt_running *r = data;
    struct nt_service *s = r->s;
    int64_t id = r->id;
    struct nt_queue_end is = *end;
    (void)timed_out;
    /* That a profile drifted, or that nobody can tell, is an answer and no failure of the job. */
    if (r->kind == NT_QUEUE_CHECK && is.signal == 0 &&
        (is.exit_code == 0 || is.exit_code == 1 || is.exit_code == 4) &&
        nt_checks_take(s, id, r->rig, nt_buf_str(out), out->len)) {
        is.exit_code = 0;
    }
    forget(s, r);
    settle(s, id, &is, tail);
    nt_jobs_run(s);
}

static struct nt_running *new_running(struct nt_service *s, int64_t id)
{
    struct nt_running *r = calloc(1, sizeof(*r));
    if (r != NULL) {
        *r = (struct nt_running){.s = s, .id = id, .since_ms = now_ms(s), .next = s->running};
        s->running = r;
    }
    return r;
}

static int spawn(struct nt_service *s, const struct nt_store_entry *e, struct nt_running *r,
                 struct nt_err *err)
{
    const struct nt_config_rig *rig = nt_config_rig(s->c, e->rig);
    struct nt_command_words c = {.n = 0};
    struct nt_child_spec spec = {.args = c.v,
                                 .output_max = OUTPUT_MAX_BYTES,
                                 .grace_ms = GRACE_MS,
                                 .on_line = on_line,
                                 .on_done = on_done,
                                 .data = r};
    int64_t run = 0;
    int rc = rig == NULL
                 ? nt_fail(err, NT_E_INVAL, 0, "the configuration has no rig %s any more", e->rig)
                 : 0;

    r->kind = e->kind;
    (void)snprintf(r->rig, sizeof(r->rig), "%s", e->rig);
    if (rc == 0 && e->kind == NT_QUEUE_CHECK) {
        rc = nt_checks_run_of(s, e, &run, err);
    }
    if (rc == 0) {
        spec.turns = nt_config_rig_measures(rig) ? NT_TURNS_MEASURE : NT_TURNS_LAST;
        rc = nt_command_make(&c, s, rig, e, run, err);
        rc = rc == 0 ? nt_child_start(&s->children, &spec, &r->child, err) : rc;
        nt_command_done(&c);
    }
    return rc;
}

/* RUNNING is written before the child is there, its process after: whoever finds RUNNING without a
 * living process knows that it ended. */
static void start(struct nt_service *s, int64_t id)
{
    static const struct nt_queue_end unborn = {.spawned = false};
    struct nt_running *r = new_running(s, id);
    struct nt_err err = {0};
    struct loaded l = {.ask = NULL};
    struct nt_queue_item *item = nt_queue_find(&s->queue, id);
    int rc = r == NULL ? nt_fail(&err, NT_E_NOMEM, 0, "job") : load(s, id, &l, &err);

    if (rc == 0) {
        l.e.state = NT_Q_RUNNING;
        l.e.reason = "";
        l.e.attempts = item->attempts;
        l.e.started_ms = l.e.started_ms != 0 ? l.e.started_ms : nt_service_day_ms();
        rc = save(s, &l.e, &err);
    }
    rc = rc == 0 ? spawn(s, &l.e, r, &err) : rc;
    if (rc == 0) {
        if (nt_store_owner_of(nt_child_pid(r->child), &l.e.owner)) {
            (void)nt_service_wrote(s, nt_store_queue_save(s->store, &l.e, &err), &err);
        }
    } else {
        nt_log(NT_ERROR, "job %lld: %s", (long long)id, err.msg);
        if (r != NULL) {
            forget(s, r);
        }
        settle(s, id, &unborn, err.msg);
    }
    loaded_done(&l);
}

static void stop(struct nt_service *s, int64_t id)
{
    struct nt_running *r = s->running;
    while (r != NULL && r->id != id) {
        r = r->next;
    }
    if (r != NULL && r->child != NULL) {
        nt_child_stop(r->child);
    }
}

/* Children of a daemon that died: they end themselves when it does (tune asks the kernel to be
 * told), and are ended here if they do not. Their entry goes on where the run was. */
static void end_former(struct nt_service *s)
{
    static const struct nt_queue_end ended = {.spawned = true, .exit_code = 5};
    struct nt_running *next;
    for (struct nt_running *r = s->running; r != NULL; r = next) {
        int64_t id = r->id;
        next = r->next;
        if (r->child != NULL) {
            continue;
        }
        if (r->former.pid != 0 && nt_store_owner_alive(&r->former)) {
            bool hard = now_ms(s) - r->since_ms > GRACE_MS;
            if (!r->asked || hard) {
                (void)kill((int)r->former.pid, hard ? SIGKILL : SIGTERM);
                r->asked = true;
            }
            continue;
        }
        forget(s, r);
        settle(s, id, &ended, "");
        struct nt_queue_item *item = nt_queue_find(&s->queue, id);
        if (item != NULL) {
            item->not_before_ms = 0; /* nothing was wrong with it */
        }
    }
}

static bool any_former(const struct nt_service *s)
{
    for (const struct nt_running *r = s->running; r != NULL; r = r->next) {
        if (r->child == NULL) {
            return true;
        }
    }
    return false;
}

/* --- running it ---------------------------------------------------------------------------------
 */

static unsigned minute_of_day(void)
{
    time_t t = time(NULL);
    struct tm tm = {0};
    (void)localtime_r(&t, &tm);
    return (unsigned)(tm.tm_hour * 60 + tm.tm_min);
}

static void on_queue_timer(uv_timer_t *t)
{
    nt_jobs_run(t->data);
}

void nt_jobs_run(struct nt_service *s)
{
    struct nt_queue_step step;
    uint64_t wait;

    end_former(s);
    s->queue.held = nt_service_database(s, NULL) != 0; /* a child would begin another one there */
    for (;;) {
        nt_queue_next(&s->queue, now_ms(s), minute_of_day(), &step);
        if (step.what == NT_QUEUE_START) {
            start(s, step.id);
        } else if (step.what == NT_QUEUE_STOP) {
            stop(s, step.id);
        } else {
            break;
        }
    }
    if (s->closed) {
        return;
    }
    wait = step.wake_ms == UINT64_MAX ? UINT64_MAX
                                      : (step.wake_ms > now_ms(s) ? step.wake_ms - now_ms(s) : 0);
    wait = any_former(s) && wait > FORMER_MS ? FORMER_MS : wait;
    if (wait != UINT64_MAX) {
        (void)uv_timer_start(&s->queue_timer, on_queue_timer, wait > 0 ? wait : 1, 0);
    }
}

bool nt_jobs_idle(const struct nt_service *s)
{
    return s->running == NULL;
}

/* An entry that was there when the daemon starts. */
static int take_stored(void *data, const struct nt_store_entry *e, struct nt_err *err)
{
    struct nt_service *s = data;
    struct nt_queue_item item = item_of(s, e);
    int rc = nt_queue_add(&s->queue, &item, err);

    if (rc == 0 && (e->state == NT_Q_RUNNING || e->state == NT_Q_CANCELLING)) {
        struct nt_running *r = new_running(s, e->id);
        struct nt_queue_item *x = nt_queue_find(&s->queue, e->id);
        if (r == NULL) {
            return nt_fail(err, NT_E_NOMEM, 0, "job");
        }
        r->former = e->owner;
        x->stop_sent = true;
        x->stop = e->state == NT_Q_CANCELLING ? NT_STOP_CANCEL : NT_STOP_NONE;
    }
    return rc;
}

int nt_jobs_open(struct nt_service *s, struct nt_err *err)
{
    struct nt_queue_policy p = {.max_running = s->c->max_running,
                                .nwindows = s->c->nwindows,
                                .idle_ms = s->c->idle_ns / 1000000,
                                .pause_foreign = s->c->pause_foreign};
    memcpy(p.windows, s->c->windows, sizeof(p.windows));
    nt_queue_init(&s->queue, &p);
    (void)uv_timer_init(&s->loop, &s->queue_timer);
    s->queue_timer.data = s;
    return nt_store_queue_living(s->store, take_stored, s, err);
}

void nt_jobs_close(struct nt_service *s)
{
    while (s->running != NULL) {
        forget(s, s->running);
    }
    nt_queue_done(&s->queue);
}

/* --- asks ---------------------------------------------------------------------------------------
 */

int nt_jobs_add(struct nt_service *s, struct nt_store_entry *e, int64_t *ret_id, struct nt_err *err)
{
    struct nt_queue_item item;
    int64_t id = 0;
    int rc;

    if (s->queue.n >= s->c->max_queued) {
        return nt_fail(err, NT_E_NO, 0,
                       "%zu jobs are in the queue already, the most that are taken", s->queue.n);
    }
    rc = nt_service_wrote(s, nt_store_queue_add(s->store, e, &id, err), err);
    if (rc == 0 && id != 0) {
        e->id = id;
        item = item_of(s, e);
        rc = nt_queue_add(&s->queue, &item, err);
        tell_state(s, e);
    }
    if (rc == 0) {
        *ret_id = id;
        nt_watcher_queue_changed(s);
        nt_jobs_run(s);
    }
    return rc;
}

int nt_jobs_cancel(struct nt_service *s, int64_t id, const char *who, struct nt_err *err)
{
    struct nt_queue_item *item = nt_queue_find(&s->queue, id);
    struct loaded l;
    char reason[96];
    int rc = load(s, id, &l, err);

    if (rc == 0 && item == NULL) {
        rc = nt_fail(err, NT_E_NO, 0, "job %lld is %s already", (long long)id,
                     nt_queue_state_names[l.e.state]);
    }
    if (rc == 0) {
        bool runs = item->state == NT_Q_RUNNING || item->state == NT_Q_CANCELLING;
        (void)snprintf(reason, sizeof(reason), "cancelled by %.63s", who);
        l.e.state = runs ? NT_Q_CANCELLING : NT_Q_CANCELLED;
        l.e.reason = reason;
        l.e.finished_ms = runs ? 0 : nt_service_day_ms();
        rc = save(s, &l.e, err); /* first: a daemon that dies now goes on cancelling */
    }
    if (rc == 0) {
        (void)nt_queue_cancel(&s->queue, id);
        nt_jobs_run(s);
    }
    loaded_done(&l);
    return rc;
}

int nt_jobs_resume(struct nt_service *s, int64_t id, const char *who, struct nt_err *err)
{
    struct nt_queue_item item;
    struct loaded l;
    char reason[96];
    int rc = load(s, id, &l, err);

    if (rc == 0 && l.e.state != NT_Q_FAILED && l.e.state != NT_Q_CANCELLED &&
        l.e.state != NT_Q_PROPOSED) {
        rc = nt_fail(err, NT_E_NO, 0, "job %lld is %s", (long long)id,
                     nt_queue_state_names[l.e.state]);
    }
    if (rc == 0) {
        bool proposed = l.e.state == NT_Q_PROPOSED;
        (void)snprintf(reason, sizeof(reason), "%s by %.63s", proposed ? "accepted" : "resumed",
                       who);
        l.e.state = NT_Q_QUEUED;
        l.e.reason = reason;
        l.e.attempts = 0;
        l.e.not_before_ms = l.e.finished_ms = 0;
        rc = save(s, &l.e, err);
        if (rc == 0 && proposed) {
            nt_queue_accept(&s->queue, id);
        } else if (rc == 0) {
            item = item_of(s, &l.e);
            rc = nt_queue_add(&s->queue, &item, err);
        }
    }
    if (rc == 0) {
        nt_watcher_queue_changed(s);
        nt_jobs_run(s);
    }
    loaded_done(&l);
    return rc;
}

int nt_jobs_priority(struct nt_service *s, int64_t id, int priority, struct nt_err *err)
{
    struct nt_queue_item *item = nt_queue_find(&s->queue, id);
    struct loaded l;
    int rc = load(s, id, &l, err);

    if (rc == 0 && item == NULL) {
        rc = nt_fail(err, NT_E_NO, 0, "job %lld is %s already", (long long)id,
                     nt_queue_state_names[l.e.state]);
    }
    if (rc == 0) {
        l.e.priority = priority;
        rc = save(s, &l.e, err);
    }
    if (rc == 0) {
        item->priority = priority;
        nt_jobs_run(s);
    }
    loaded_done(&l);
    return rc;
}
