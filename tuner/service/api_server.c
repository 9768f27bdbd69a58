/* Routes of the service itself: health, figures, events, and requests that a child answers. */
#include "tuner/base/json.h"
#include "tuner/service/service_i.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ASKS_MAX = 4, ASK_MS = 10000, ASK_OUT_BYTES = 32 << 20, DOCUMENT_BYTES = 4 << 20 };

int nt_api_healthz(struct nt_exchange *x, struct nt_err *err)
{
    struct nt_service *s = x->s;
    bool there = nt_service_database(s, NULL) == 0, ok = there && s->trouble.code == NT_OK;
    json_t *o = json_pack("{s:s, s:s}", "status", ok ? "ok" : "failing", "version", s->o->version);
    int rc;
    if (!ok) {
        (void)json_object_set_new(o, "why",
                                  json_string(there ? nt_code_text(s->trouble.code)
                                                    : "the database was moved or removed"));
    }
    rc = nt_reply_json(x, o, err);
    x->r->answer.status = ok ? 200 : 503;
    return rc;
}

int nt_api_openapi(struct nt_exchange *x, struct nt_err *err)
{
    struct nt_http_answer *a = &x->r->answer;
    struct nt_buf *doc = &x->s->openapi;
    if (doc->len == 0) { /* anybody may ask, as often as they like */
        nt_buf_init(doc, DOCUMENT_BYTES);
        nt_service_openapi(x->s->o->version, doc);
    }
    nt_buf_add(&a->body, nt_buf_str(doc), doc->len);
    a->status = 200;
    a->type = "application/json";
    return a->body.failed ? nt_fail(err, NT_E_NOMEM, 0, "document") : 0;
}

static unsigned count_state(const struct nt_service *s, enum nt_queue_state state)
{
    unsigned n = 0;
    for (size_t i = 0; i < s->queue.n; i++) {
        n += s->queue.items[i].state == state;
    }
    return n;
}

int nt_api_server(struct nt_exchange *x, struct nt_err *err)
{
    const struct nt_service *s = x->s;
    json_t *rigs = json_array();

    for (size_t i = 0; i < s->c->nrigs; i++) {
        const struct nt_config_rig *r = &s->c->rigs[i];
        size_t kind = strcspn(r->rig, ":"); /* what follows may be a path of this machine */
        (void)json_array_append_new(
            rigs, json_pack("{s:s, s:s#, s:s, s:b, s:s, s:I}", "name", r->name, "rig", r->rig,
                            (int)kind, "gpus", r->gpus, "functional",
                            strcmp(r->rig, "nccl") != 0 && strcmp(r->rig, "auto") != 0, "effort",
                            r->effort, "ranks", (json_int_t)r->ranks));
    }
    return nt_reply_json(x,
                         json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:{s:s, s:s}}", "version",
                                   s->o->version, "started_ms", (json_int_t)s->started_ms, "now_ms",
                                   (json_int_t)nt_service_day_ms(), "running",
                                   (json_int_t)nt_queue_running(&s->queue), "waiting",
                                   (json_int_t)count_state(s, NT_Q_QUEUED), "proposed",
                                   (json_int_t)count_state(s, NT_Q_PROPOSED), "rigs", rigs, "you",
                                   "name", x->who, "role", nt_role_names[x->role]),
                         err);
}

int nt_api_machine(struct nt_exchange *x, struct nt_err *err)
{
    return nt_reply_json(x, nt_watcher_json(x->s), err);
}

int nt_api_machine_look(struct nt_exchange *x, struct nt_err *err)
{
    nt_watcher_look(x->s);
    return nt_api_machine(x, err);
}

/* --- figures ------------------------------------------------------------------------------------
 */

static void metric(struct nt_buf *b, const char *name, const char *type, const char *help,
                   double value)
{
    nt_buf_printf(b, "# HELP nccltune_%s %s\n# TYPE nccltune_%s %s\nnccltune_%s %.9g\n", name, help,
                  name, type, name, value);
}

static void job_metrics(const struct nt_service *s, struct nt_buf *b)
{
    nt_buf_puts(b, "# HELP nccltune_jobs jobs of the queue that are not over\n"
                   "# TYPE nccltune_jobs gauge\n");
    for (int i = 0; i < NT_Q_DONE; i++) {
        nt_buf_printf(b, "nccltune_jobs{state=\"%s\"} %u\n", nt_queue_state_names[i],
                      count_state(s, (enum nt_queue_state)i));
    }
}

static uint64_t resident_bytes(void)
{
    char line[128] = "", *rest = line;
    FILE *f = fopen("/proc/self/statm", "re"); /* pages: all, resident, … */
    if (f != NULL) {
        if (fgets(line, sizeof(line), f) == NULL) {
            line[0] = '\0';
        }
        (void)fclose(f);
    }
    (void)strtoul(rest, &rest, 10);
    return (uint64_t)strtoul(rest, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

int nt_api_metrics(struct nt_exchange *x, struct nt_err *err)
{
    static const char *const edges[] = {"0.001", "0.002", "0.005", "0.01",
                                        "0.02",  "0.05",  "0.1",   "+Inf"};
    struct nt_service *s = x->s;
    const struct nt_http_stats *h = nt_http_stats(s->http);
    struct nt_buf *b = &x->r->answer.body;
    uint64_t sum = 0;

    metric(b, "up", "gauge", "whether the database takes writes", s->trouble.code == NT_OK);
    metric(b, "http_requests_total", "counter", "requests begun", (double)h->requests);
    nt_buf_puts(b, "# HELP nccltune_http_answers_total answers by class of status\n"
                   "# TYPE nccltune_http_answers_total counter\n");
    for (unsigned i = 1; i < 6; i++) {
        nt_buf_printf(b, "nccltune_http_answers_total{class=\"%uxx\"} %" PRIu64 "\n", i,
                      h->by_status[i]);
    }
    metric(b, "http_connections", "gauge", "connections open", h->connections);
    metric(b, "http_streams", "gauge", "event streams open", h->streams);
    metric(b, "http_timed_out_total", "counter", "connections ended for being slow",
           (double)h->timed_out);
    metric(b, "cache_hits_total", "counter", "answers from memory", (double)s->cache.hits);
    metric(b, "cache_misses_total", "counter", "answers made", (double)s->cache.misses);
    metric(b, "resident_bytes", "gauge", "memory in use", (double)resident_bytes());
    job_metrics(s, b);
    nt_buf_puts(b, "# HELP nccltune_loop_lag_seconds how late the loop comes to a timer\n"
                   "# TYPE nccltune_loop_lag_seconds histogram\n");
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        sum += s->lag_bucket[i];
        nt_buf_printf(b, "nccltune_loop_lag_seconds_bucket{le=\"%s\"} %" PRIu64 "\n", edges[i],
                      sum);
    }
    nt_buf_printf(
        b, "nccltune_loop_lag_seconds_sum %.6f\nnccltune_loop_lag_seconds_count %" PRIu64 "\n",
        s->lag_sum_ms / 1000, s->lag_n);
    metric(b, "loop_lag_max_seconds", "gauge", "the worst of them", (double)s->lag_max_ns / 1e9);
    x->r->answer.status = 200;
    x->r->answer.type = x->route->type;
    return b->failed ? nt_fail(err, NT_E_NOMEM, 0, "metrics") : 0;
}

/* --- streams ------------------------------------------------------------------------------------
 */

int nt_api_events(struct nt_exchange *x, struct nt_err *err)
{
    struct nt_service *s = x->s;
    const char *last = x->r->last_event_id;
    int64_t after = nt_reply_number(x, "after", -1);

    if (nt_http_stats(s->http)->streams >= s->c->max_streams) {
        return nt_fail(err, NT_E_INTERRUPTED, 0, "%u event streams are open, the most there may be",
                       s->c->max_streams);
    }
    x->only_job = nt_reply_number(x, "job", 0);
    x->r->cursor = s->events.last;
    if (after >= 0) {
        x->r->cursor = nt_events_from(&s->events, (uint64_t)after);
    } else if (last != NULL && last[0] != '\0' && last[strspn(last, "0123456789")] == '\0' &&
               strlen(last) < 20) {
        x->r->cursor = nt_events_from(&s->events, strtoull(last, NULL, 10));
    }
    x->r->answer.status = 200;
    x->r->answer.type = x->route->type;
    x->r->answer.stream = true;
    return 0;
}

/* --- answered by a child ------------------------------------------------------------------------
 */

struct asked {
    struct nt_exchange *x;
    const char *none;
    bool whole;
};

/* Whole: an answer that broke off is none. */
static bool is_json(const struct nt_buf *b)
{
    json_t *o = NULL;
    int rc = nt_json_parse(nt_buf_str(b), b->len, "an answer", &o, NULL);
    json_decref(o);
    return rc == 0;
}

static void on_answer(void *data, const struct nt_queue_end *end, bool timed_out,
                      const struct nt_buf *out, const char *tail)
{
    static const enum nt_code by_exit[] = {[1] = NT_E_NO, [2] = NT_E_INVAL, [3] = NT_E_MISSING};
    struct asked *a = data;
    struct nt_exchange *x = a->x;
    struct nt_err err = {0};
    int rc = 0;

    x->s->asks--;
    if (timed_out || end->signal != 0) {
        rc = nt_fail(&err, NT_E_NO, 0, "it took more time or memory than it may; ask for less");
    } else if (end->exit_code == 2 && a->none != NULL) {
        nt_buf_puts(&x->r->answer.body, a->none);
        x->r->answer.status = 200;
        x->r->answer.type = "application/json";
    } else if (end->exit_code != 0 && !is_json(out)) {
        enum nt_code code = end->exit_code < 4 ? by_exit[end->exit_code] : NT_E_BUG;
        const char *words = strncmp(tail, "nccltune: ", 10) == 0 ? tail + 10 : tail;
        rc = nt_fail(&err, code, 0, "%s", words);
    } else if (a->whole && strncmp(tail, "nccltune: cut after ", 20) == 0) {
        rc = nt_fail(&err, NT_E_NO, 0,
                     "%s: there are more; LIMIT in the SQL, or rows (up to 10000), says that the "
                     "first are enough",
                     tail + 10);
    } else {
        nt_buf_add(&x->r->answer.body, out->data, out->len);
        x->r->answer.status = 200;
        x->r->answer.type = "application/json";
        rc = x->r->answer.body.failed ? nt_fail(&err, NT_E_NOMEM, 0, "answer") : 0;
    }
    free(a);
    nt_reply_done(x, rc, &err);
}

int nt_ask_child(struct nt_exchange *x, const char *const *args, const char *input,
                 const char *none, bool whole, struct nt_err *err)
{
    struct nt_service *s = x->s;
    const char *argv[NT_CHILD_ARGS] = {s->o->program};
    struct asked *a;
    struct nt_child *child;
    struct nt_child_spec spec = {.args = argv,
                                 .input = input,
                                 .output_max = ASK_OUT_BYTES,
                                 .time_ms = ASK_MS,
                                 .memory_bytes = UINT64_C(512) << 20,
                                 .grace_ms = 500,
                                 .on_done = on_answer};
    int rc;

    if (s->asks >= ASKS_MAX) {
        return nt_fail(err, NT_E_INTERRUPTED, 0, "%d such questions are being answered already",
                       ASKS_MAX);
    }
    a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "question");
    }
    *a = (struct asked){.x = x, .none = none, .whole = whole};
    for (size_t i = 0; args[i] != NULL && i + 2 < NT_CHILD_ARGS; i++) {
        argv[i + 1] = args[i];
    }
    spec.data = a;
    rc = nt_child_start(&s->children, &spec, &child, err);
    if (rc != 0) {
        free(a);
        return rc;
    }
    s->asks++;
    x->later = true;
    return 0;
}
