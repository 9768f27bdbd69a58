/* Watching with its child, its store and the queue: what watch.c makes of a sight is done here. */
#include "profiles/json/profile.h"
#include "tuner/base/json.h"
#include "tuner/base/log.h"
#include "tuner/deliver/fit.h"
#include "tuner/service/service_i.h"
#include "tuner/service/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 60000, SIGHT_MAX_BYTES = 1 << 20, JUDGED_MAX = 500 };
#define OURS "watch: " /* begins the words of states that were set here, and may be taken back */

struct nt_watcher {
    struct nt_service *s;
    struct nt_watch watch;
    struct nt_sight now;
    bool have;          /* now was seen since the start */
    uint64_t seen_ms;   /* of day */
    uint64_t looked_ms; /* loop's clock: when the last look began */
    bool looking, again;
    uv_timer_t timer;
};

/* --- profiles -----------------------------------------------------------------------------------
 */

struct judged {
    struct nt_service *s;
    const struct nt_sight *was; /* NULL: not known */
    const struct nt_sight *now;
    bool holds; /* a profile of the rig holds for the machine as it is */
    struct {
        int64_t id;
        enum nt_profile_state state;
        char why[320];
    } change[JUDGED_MAX];
    size_t n;
};

static void judge_one(struct judged *j, const struct nt_store_profile *row,
                      const struct nt_profile *p)
{
    struct nt_made_for made = {.driver = p->stack.driver != NULL ? p->stack.driver : "",
                               .nccl = p->stack.nccl != NULL ? p->stack.nccl : "",
                               .nccl_sha256 =
                                   p->stack.nccl_sha256 != NULL ? p->stack.nccl_sha256 : "",
                               .here = true};
    bool ours = strncmp(row->why, OURS, strlen(OURS)) == 0;
    enum nt_profile_state state = (enum nt_profile_state)row->state;
    struct nt_buf why;
    enum nt_holds holds;

    nt_profile_identity(p, &made.identity);
    nt_buf_init(&why, 1024);
    holds = nt_watch_judge(&made, j->was, j->now, &why);
    if (holds == NT_HOLDS && (state == NT_PS_CURRENT || ours)) {
        j->holds = true;
        state = NT_PS_CURRENT;
    } else if (holds == NT_HOLDS_NOT && state == NT_PS_CURRENT) {
        state = j->s->c->stale == NT_STALE_WITHHOLD ? NT_PS_WITHHELD : NT_PS_STALE;
    }
    if (state != row->state && j->n < JUDGED_MAX) {
        j->change[j->n].id = row->id;
        j->change[j->n].state = state;
        (void)snprintf(j->change[j->n++].why, sizeof(j->change[0].why), OURS "%.300s",
                       nt_buf_str(&why));
    }
    nt_buf_done(&why);
}

static int take_document(void *data, const struct nt_store_profile *row, struct nt_err *err)
{
    struct nt_profile *p = NULL;
    (void)err;
    if (nt_profile_parse(row->json, strlen(row->json), "a stored profile", &p, NULL) == 0) {
        judge_one(data, row, p);
    }
    nt_profile_free(p);
    return 0;
}

struct ids {
    int64_t v[JUDGED_MAX];
    size_t n;
};

static int take_id(void *data, const struct nt_store_profile *p, struct nt_err *err)
{
    struct ids *ids = data;
    (void)err;
    if (ids->n < JUDGED_MAX) {
        ids->v[ids->n++] = p->id;
    }
    return 0;
}

static int set_state(struct nt_service *s, int64_t id, enum nt_profile_state state, const char *why,
                     struct nt_err *err)
{
    int rc = nt_service_wrote(s, nt_store_profile_set_state(s->store, id, state, why, err), err);
    if (rc == 0) {
        s->version_ms = 0;
        nt_service_event(s, "profile", 0,
                         json_pack("{s:I, s:s, s:s}", "profile", (json_int_t)id, "state",
                                   nt_profile_state_names[state], "why", why),
                         true);
    }
    return rc;
}

/* Which profiles hold no longer, and which do again. *ret_holds: one does. */
static int judge_profiles(struct nt_watcher *w, const struct nt_sight *was, bool *ret_holds,
                          struct nt_err *err)
{
    struct nt_service *s = w->s;
    struct judged *j = calloc(1, sizeof(*j));
    struct ids *ids = calloc(1, sizeof(*ids));
    int rc = j == NULL || ids == NULL ? nt_fail(err, NT_E_NOMEM, 0, "profiles") : 0;

    if (rc == 0) {
        *j = (struct judged){.s = s, .was = was, .now = &w->watch.settled};
        rc = nt_store_profile_list(s->store, 0, JUDGED_MAX, take_id, ids, err);
    }
    for (size_t i = 0; rc == 0 && i < ids->n; i++) {
        rc = nt_store_profile_load(s->store, ids->v[i], take_document, j, err);
    }
    for (size_t i = 0; rc == 0 && i < j->n; i++) {
        rc = set_state(s, j->change[i].id, j->change[i].state, j->change[i].why, err);
    }
    if (rc == 0) {
        *ret_holds = j->holds;
    }
    free(j);
    free(ids);
    return rc;
}

/* --- jobs ---------------------------------------------------------------------------------------
 */

struct causes {
    const char *key;
    int64_t v[64];
    size_t n;
    bool there;
};

static int take_cause(void *data, const struct nt_store_entry *e, struct nt_err *err)
{
    struct causes *c = data;
    (void)err;
    if (strcmp(e->cause, c->key) == 0) {
        c->there = true;
    } else if (strncmp(e->cause, "machine ", 8) == 0 && c->n < sizeof(c->v) / sizeof(c->v[0])) {
        c->v[c->n++] = e->id;
    }
    return 0;
}

/* A job for the machine as it is, once; those for what it was are not wanted any more. */
static int want_job(struct nt_watcher *w, bool holds, const char *why, struct nt_err *err)
{
    struct nt_service *s = w->s;
    char key[NT_WATCH_KEY], reason[320];
    struct causes c = {.key = nt_sight_key(&w->watch.settled, key, sizeof(key))};
    struct nt_store_entry e = {.kind = NT_QUEUE_TUNE,
                               .state =
                                   s->c->change == NT_CHANGE_QUEUE ? NT_Q_QUEUED : NT_Q_PROPOSED,
                               .ask = "{}",
                               .cause = key,
                               .by = "watch",
                               .reason = reason};
    int64_t id = 0;
    int rc = nt_store_queue_living(s->store, take_cause, &c, err);

    for (size_t i = 0; rc == 0 && i < c.n; i++) {
        if (nt_queue_find(&s->queue, c.v[i]) != NULL) {
            rc = nt_jobs_cancel(s, c.v[i], "watch: the machine is another one now", err);
        }
    }
    if (rc != 0 || holds || c.there || s->c->change == NT_CHANGE_OFF || s->c->rig[0] == '\0') {
        return rc;
    }
    (void)snprintf(reason, sizeof(reason), "%.300s", why);
    (void)snprintf(e.rig, sizeof(e.rig), "%s", s->c->rig);
    return nt_jobs_add(s, &e, &id, err);
}

/* --- sights -------------------------------------------------------------------------------------
 */

static void remember(struct nt_watcher *w, struct nt_err *err)
{
    json_t *o = nt_sight_json(&w->watch.settled);
    struct nt_buf b;
    nt_buf_init(&b, SIGHT_MAX_BYTES);
    nt_json_dump(o, false, &b);
    (void)nt_service_wrote(w->s, nt_store_snapshot_put(w->s->store, "machine", nt_buf_str(&b), err),
                           err);
    nt_buf_done(&b);
    json_decref(o);
}

/* Written down last: a daemon that dies before sees the change anew. */
static void on_settled(struct nt_watcher *w, const struct nt_sight *was, const char *why)
{
    struct nt_err err = {0};
    bool holds = false;
    int rc = judge_profiles(w, was, &holds, &err);
    rc = rc == 0 ? want_job(w, holds, why, &err) : rc;
    if (rc == 0) {
        remember(w, &err);
    } else {
        nt_log(NT_ERROR, "watch: %s", err.msg);
        w->watch.have = was != NULL; /* again with the next look */
        if (was != NULL) {
            w->watch.settled = *was;
        }
    }
}

static void take_sight(struct nt_watcher *w, const struct nt_sight *sight)
{
    struct nt_sight *was = malloc(sizeof(*was));
    bool had = w->watch.have;

    if (was == NULL) {
        return;
    }
    *was = w->watch.settled;
    w->now = *sight;
    w->have = true;
    w->seen_ms = nt_service_day_ms();
    nt_watch_tell(&w->watch, sight, uv_now(&w->s->loop));
    for (size_t i = 0; i < w->watch.nevents; i++) {
        const struct nt_watch_event *e = &w->watch.events[i];
        nt_service_event(w->s, "machine", 0,
                         json_pack("{s:s, s:s, s:b, s:s}", "what", nt_watch_kind_names[e->kind],
                                   "text", e->text, "unhealthy", (int)e->unhealthy, "identity",
                                   sight->seen ? sight->identity.name : ""),
                         true);
        if (e->kind == NT_WATCH_SETTLED) {
            on_settled(w, had ? was : NULL, e->text);
        }
    }
    free(was);
}

static void plan_next(struct nt_watcher *w);

static void on_looked(void *data, const struct nt_queue_end *end, bool timed_out,
                      const struct nt_buf *out, const char *tail)
{
    struct nt_watcher *w = data;
    struct nt_sight *sight = calloc(1, sizeof(*sight));
    struct nt_err err = {0};
    json_t *o = NULL;
    int rc = 0;

    w->looking = false;
    if (w->s->stopping || sight == NULL) {
        free(sight);
        return;
    }
    if (timed_out || end->signal != 0 || end->exit_code != 0) {
        (void)snprintf(sight->why, sizeof(sight->why), "looking failed: %.150s",
                       timed_out ? "it took too long" : tail);
    } else {
        rc = nt_json_parse(nt_buf_str(out), out->len, "what was seen", &o, &err);
        rc = rc == 0 ? nt_sight_parse(o, sight, &err) : rc;
    }
    if (rc == 0) {
        nt_queue_tell_load(&w->s->queue, sight->load_known, sight->busy, sight->foreign,
                           uv_now(&w->s->loop));
        take_sight(w, sight);
        nt_jobs_run(w->s);
    } else {
        nt_log(NT_ERROR, "watch: %s", err.msg);
    }
    json_decref(o);
    free(sight);
    if (w->again) {
        nt_watcher_look(w->s);
    } else {
        plan_next(w);
    }
}

void nt_watcher_look(struct nt_service *s)
{
    struct nt_watcher *w = s->watcher;
    const char *args[] = {s->o->program, "serve", "--look", NULL, NULL, NULL};
    struct nt_child_spec spec = {.args = args,
                                 .output_max = SIGHT_MAX_BYTES,
                                 .time_ms = LOOK_MS,
                                 .grace_ms = 2000,
                                 .on_done = on_looked,
                                 .data = w};
    struct nt_child *child;
    struct nt_err err = {0};

    if (w->looking || s->stopping) {
        w->again = w->looking;
        return;
    }
    if (s->o->config_path != NULL) {
        args[3] = "--config";
        args[4] = s->o->config_path;
    }
    w->again = false;
    w->looked_ms = uv_now(&s->loop);
    if (nt_child_start(&s->children, &spec, &child, &err) == 0) {
        w->looking = true;
    } else {
        nt_log(NT_ERROR, "watch: %s", err.msg);
        plan_next(w);
    }
}

static void on_time(uv_timer_t *t)
{
    nt_watcher_look(((struct nt_watcher *)t->data)->s);
}

/* Load is looked at more often, but only while a job needs to know. */
static bool load_matters(const struct nt_service *s)
{
    for (size_t i = 0; i < s->queue.n; i++) {
        const struct nt_queue_item *x = &s->queue.items[i];
        if (x->gpus != 0 && x->state != NT_Q_PROPOSED) {
            return true;
        }
    }
    return false;
}

static void plan_next(struct nt_watcher *w)
{
    const struct nt_config *c = w->s->c;
    uint64_t now = uv_now(&w->s->loop), wake = nt_watch_wake(&w->watch);
    uint64_t wait = c->interval_ns != 0 ? c->interval_ns / 1000000 : UINT64_MAX;

    if (load_matters(w->s) && c->load_ns / 1000000 < wait) {
        wait = c->load_ns / 1000000;
    }
    if (wake != UINT64_MAX) {
        uint64_t soon = wake > now ? wake - now : 1;
        wait = soon < wait ? soon : wait;
    }
    if (wait != UINT64_MAX) {
        (void)uv_timer_start(&w->timer, on_time, wait, 0);
    }
}

/* The queue changed: load may matter now, and an old sight of it says nothing. */
void nt_watcher_queue_changed(struct nt_service *s)
{
    struct nt_watcher *w = s->watcher;
    uint64_t each_ms = s->c->load_ns / 1000000;

    if (w == NULL || w->looking || !load_matters(s)) {
        return;
    }
    if (uv_now(&s->loop) - w->looked_ms > 2 * each_ms) {
        nt_queue_tell_load(&s->queue, true, UINT64_MAX, s->queue.foreign, uv_now(&s->loop));
        nt_watcher_look(s);
    } else if (!uv_is_active((uv_handle_t *)&w->timer) ||
               uv_timer_get_due_in(&w->timer) > each_ms) {
        plan_next(w);
    }
}

/* --- a new profile ------------------------------------------------------------------------------
 */

struct replaced {
    const struct nt_store_profile *fresh;
    int64_t v[JUDGED_MAX];
    size_t n;
};

/* It takes the place of those made for the same, and of those that no longer hold. Not of one made
 * under other site constraints: that answers who has those. */
static int take_replaced(void *data, const struct nt_store_profile *p, struct nt_err *err)
{
    struct replaced *r = data;
    const struct nt_store_profile *f = r->fresh;
    bool alike = strcmp(p->rig, f->rig) == 0 && p->ranks == f->ranks && p->nodes == f->nodes &&
                 strcmp(p->placement, f->placement) == 0 && strcmp(p->site, f->site) == 0;
    bool same = strcmp(p->identity, f->identity) == 0 && strcmp(p->nccl, f->nccl) == 0 &&
                strcmp(p->driver, f->driver) == 0;
    bool over = p->state != NT_PS_CURRENT && strncmp(p->why, OURS, strlen(OURS)) == 0;
    (void)err;
    if (p->state != NT_PS_RETIRED && alike && (same || over) && r->n < JUDGED_MAX) {
        r->v[r->n++] = p->id;
    }
    return 0;
}

int nt_watcher_new_profile(struct nt_service *s, const struct nt_store_profile *fresh,
                           struct nt_err *err)
{
    struct replaced *r = calloc(1, sizeof(*r));
    char why[96];
    int rc;

    if (r == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "profiles");
    }
    r->fresh = fresh;
    rc = nt_store_profile_list(s->store, fresh->id, JUDGED_MAX, take_replaced, r, err);
    (void)snprintf(why, sizeof(why), OURS "replaced by profile %lld", (long long)fresh->id);
    for (size_t i = 0; rc == 0 && i < r->n; i++) {
        rc = set_state(s, r->v[i], NT_PS_RETIRED, why, err);
    }
    free(r);
    return rc;
}

/* --- start, end, and what is told ---------------------------------------------------------------
 */

int nt_watcher_open(struct nt_service *s, struct nt_err *err)
{
    struct nt_watcher *w = calloc(1, sizeof(*w));
    struct nt_sight *was = calloc(1, sizeof(*was));
    struct nt_buf b;
    uint64_t at = 0;
    bool found = false;
    json_t *o = NULL;
    int rc = w == NULL || was == NULL ? nt_fail(err, NT_E_NOMEM, 0, "watch") : 0;

    nt_buf_init(&b, SIGHT_MAX_BYTES);
    rc = rc == 0 ? nt_store_snapshot_get(s->store, "machine", &b, &at, &found, err) : rc;
    if (rc == 0) {
        nt_watch_init(&w->watch, s->c->settle_ns / 1000000);
        w->s = s;
        (void)uv_timer_init(&s->loop, &w->timer);
        w->timer.data = w;
        s->watcher = w;
        /* Until the first look nobody knows whether GPUs are idle. */
        nt_queue_tell_load(&s->queue, true, UINT64_MAX, 0, uv_now(&s->loop));
        if (found && nt_json_parse(nt_buf_str(&b), b.len, "the stored machine", &o, NULL) == 0 &&
            nt_sight_parse(o, was, NULL) == 0) {
            nt_watch_restore(&w->watch, was);
        }
    }
    json_decref(o);
    nt_buf_done(&b);
    free(was);
    if (rc != 0) {
        free(w);
    }
    return rc;
}

static void on_closed(uv_handle_t *h)
{
    free(h->data);
}

void nt_watcher_close(struct nt_service *s)
{
    if (s->watcher != NULL) {
        uv_close((uv_handle_t *)&s->watcher->timer, on_closed);
        s->watcher = NULL;
    }
}

bool nt_watcher_busy(const struct nt_service *s)
{
    return s->watcher != NULL && s->watcher->looking;
}

json_t *nt_watcher_json(const struct nt_service *s)
{
    const struct nt_watcher *w = s->watcher;
    const struct nt_sight *x = w->have ? &w->now : &w->watch.settled;
    const char *state = !w->have && !w->watch.have ? "unknown"
                        : !w->have                 ? "not looked at yet"
                        : !x->seen                 ? "unreadable"
                        : w->watch.pending         ? "changing"
                                                   : "settled";
    json_t *o = nt_sight_json(x), *identity = json_object_get(o, "identity");

    if (o == NULL) {
        return NULL;
    }
    (void)json_object_set_new(o, "state", json_string(state));
    if (w->have) {
        (void)json_object_set_new(o, "seen_ms", json_integer((json_int_t)w->seen_ms));
    }
    if (identity != NULL) { /* the name, as everywhere; the groups beside it */
        json_t *name = json_incref(json_object_get(identity, "name"));
        (void)json_object_set(o, "groups", json_object_get(identity, "groups"));
        (void)json_object_set_new(o, "identity", name);
    }
    return o;
}
