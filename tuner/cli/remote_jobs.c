#include "tuner/cli/remote_jobs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tuner/base/text.h"
#include "tuner/cli/fetch.h"
#include "tuner/cli/remote.h"
#include "tuner/cli/rows.h"

enum { PATH_SIZE = 96, TRIES = 10, PAUSE_S = 3 };

struct client {
    const struct nt_remote_jobs *a;
    struct nt_buf token;
    bool json;
};

/* ---- asking ---- */

/* No service there, or none that ends what it says, is missing: "no" is what one answers. */
static int missing(struct nt_err *err)
{
    err->code = NT_E_MISSING;
    return -NT_E_MISSING;
}

/* The answer to one request; the caller owns *ret. */
static int ask(const struct client *c, const char *method, const char *path, const json_t *body,
               json_t **ret, struct nt_err *err)
{
    struct nt_buf out, in;
    unsigned status = 0;
    int rc;

    nt_buf_init(&out, 1 << 20);
    nt_buf_init(&in, NT_FETCH_MAX_BYTES);
    if (body != NULL) {
        nt_json_dump(body, false, &out);
    }
    rc = nt_fetch(&(struct nt_fetch){.from = c->a->server,
                                     .token = c->token.len > 0 ? c->token.data : NULL,
                                     .method = method,
                                     .path = path,
                                     .body = body != NULL ? nt_buf_str(&out) : NULL},
                  &status, &in, err);
    rc = rc == -NT_E_IO ? missing(err) : rc;
    rc = rc == 0 && status / 100 != 2 ? nt_remote_refused(status, &in, err) : rc;
    rc = rc == 0 ? nt_json_parse(nt_buf_str(&in), in.len, "the answer", ret, err) : rc;
    nt_buf_done(&out);
    nt_buf_done(&in);
    return rc;
}

static const char *text_of(const json_t *o, const char *name)
{
    return nt_json_opt_str(o, name, "");
}

static void print_json(const json_t *o)
{
    struct nt_buf b;

    nt_buf_init(&b, NT_FETCH_MAX_BYTES);
    nt_json_dump(o, false, &b);
    (void)puts(nt_buf_str(&b));
    (void)fflush(stdout);
    nt_buf_done(&b);
}

/* "job 3: running, on the second try", and what it made. */
static void print_job(const struct client *c, const json_t *o)
{
    long long profile = nt_json_opt_i64(o, "profile", 0);
    const char *reason = text_of(o, "reason");
    struct nt_buf b;

    if (c->json) {
        print_json(o);
        return;
    }
    nt_buf_init(&b, 1 << 20);
    nt_buf_put_plain(&b, text_of(o, "state"));
    if (reason[0] != '\0') {
        nt_buf_puts(&b, ", ");
        nt_buf_put_plain(&b, reason);
    }
    if (profile > 0 && strcmp(text_of(o, "state"), "done") == 0) {
        nt_buf_printf(&b, ", profile %lld", profile);
    }
    (void)printf("job %lld: %s\n", (long long)nt_json_opt_i64(o, "id", 0), nt_buf_str(&b));
    (void)fflush(stdout);
    nt_buf_done(&b);
}

/* ---- the list ---- */

static struct nt_value text(const char *x)
{
    return x[0] == '\0' ? (struct nt_value){.type = NT_VALUE_NULL}
                        : (struct nt_value){.type = NT_VALUE_TEXT, .text = x, .len = strlen(x)};
}

static struct nt_value whole(const json_t *o, const char *name)
{
    return json_object_get(o, name) == NULL
               ? (struct nt_value){.type = NT_VALUE_NULL}
               : (struct nt_value){.type = NT_VALUE_INT, .i = nt_json_opt_i64(o, name, 0)};
}

static int list(const struct client *c, struct nt_err *err)
{
    static const char *const names[] = {"job", "state", "kind",    "rig",     "priority",
                                        "by",  "run",   "profile", "created", "reason"};
    enum { COLUMNS = sizeof(names) / sizeof(names[0]) };
    int format = nt_vocab_find(nt_rows_formats, "format", c->a->format, err);
    struct nt_rows *rows = NULL;
    json_t *o = NULL, *j;
    size_t i;
    int rc = format < 0 ? format : ask(c, "GET", "/v1/jobs?limit=1000", NULL, &o, err);

    rc = rc == 0 ? nt_rows_open((enum nt_rows_format)format, stdout, &rows, err) : rc;
    rc = rc == 0 ? nt_rows_add(rows, COLUMNS, names, NULL, err) : rc;
    json_array_foreach(rc == 0 ? json_object_get(o, "jobs") : NULL, i, j)
    {
        char created[32] = "";
        time_t t = (time_t)(nt_json_opt_i64(j, "created_ms", 0) / 1000);
        struct tm tm;
        const struct nt_value v[COLUMNS] = {
            whole(j, "id"),
            text(text_of(j, "state")),
            text(text_of(j, "kind")),
            text(text_of(j, "rig")),
            whole(j, "priority"),
            text(text_of(j, "by")),
            whole(j, "run"),
            whole(j, "profile"),
            text(localtime_r(&t, &tm) != NULL &&
                         strftime(created, sizeof(created), "%F %T", &tm) > 0
                     ? created
                     : ""),
            text(text_of(j, "reason"))};
        rc = rc == 0 ? nt_rows_add(rows, COLUMNS, names, v, err) : rc;
    }
    if (rows != NULL) {
        rc = nt_rows_close(rows, rc, err);
    }
    json_decref(o);
    return rc;
}

/* ---- following ---- */

struct follower {
    const struct client *c;
    int64_t job;
    uint64_t last; /* the last event seen */
    char kind[32];
    struct nt_buf data;
    bool over;
    unsigned told; /* hundredths of the stage, as printed last */
    char stage[32];
};

/* As the progress lines of `tune`; not more often than that something can be seen. */
static void print_progress(struct follower *f, const json_t *o)
{
    const char *stage = text_of(o, "stage");
    double done = json_number_value(json_object_get(o, "done"));
    unsigned hundredths = done > 0 && done <= 1 ? (unsigned)(100 * done) : 0;
    char left[40] = "";
    struct nt_buf b;

    if (strncmp(f->stage, stage, sizeof(f->stage) - 1) == 0 && hundredths < f->told + 5) {
        return;
    }
    (void)snprintf(f->stage, sizeof(f->stage), "%s", stage);
    f->told = hundredths;
    if (nt_json_opt_i64(o, "left_ms", 0) > 0) {
        (void)snprintf(left, sizeof(left), ", about %lld s left",
                       (long long)nt_json_opt_i64(o, "left_ms", 0) / 1000);
    }
    nt_buf_init(&b, 4096);
    nt_buf_put_plain(&b, stage);
    (void)printf("job %" PRId64 " %s %u %%, %lld trials%s\n", f->job, nt_buf_str(&b), hundredths,
                 (long long)nt_json_opt_i64(o, "trials", 0), left);
    (void)fflush(stdout);
    nt_buf_done(&b);
}

static bool is_over(const char *state)
{
    return strcmp(state, "done") == 0 || strcmp(state, "failed") == 0 ||
           strcmp(state, "cancelled") == 0;
}

static void take_event(struct follower *f)
{
    json_t *o = NULL;
    bool of_job = strcmp(f->kind, "job") == 0;

    if (nt_json_parse(nt_buf_str(&f->data), f->data.len, "event", &o, NULL) != 0 ||
        nt_json_opt_i64(o, "job", 0) != f->job) {
        json_decref(o);
        return;
    }
    f->over = of_job && is_over(text_of(o, "state"));
    if (f->c->json && !f->over) {
        print_json(o);
    } else if (of_job && !f->over) { /* how it ended is asked for */
        (void)json_object_set_new(o, "id", json_integer(f->job));
        print_job(f->c, o);
    } else if (strcmp(f->kind, "progress") == 0) {
        print_progress(f, o);
    }
    json_decref(o);
}

/* "id: 7", "event: job", "data: {…}", and an empty line, which ends the event. */
static int on_line(void *data, const char *line, struct nt_err *err)
{
    struct follower *f = data;
    const char *colon = strchr(line, ':'), *value;

    (void)err;
    if (line[0] == '\0') {
        if (f->data.len > 0) {
            take_event(f);
        }
        nt_buf_clear(&f->data);
        f->kind[0] = '\0';
        return f->over;
    }
    value = colon != NULL ? colon + 1 + (colon[1] == ' ') : "";
    if (strncmp(line, "id:", 3) == 0) {
        f->last = strtoull(value, NULL, 10);
    } else if (strncmp(line, "event:", 6) == 0) {
        (void)snprintf(f->kind, sizeof(f->kind), "%s", value);
    } else if (strncmp(line, "data:", 5) == 0) {
        nt_buf_puts(&f->data, value);
    }
    return 0;
}

/* How it ended is how the command ends. */
static int verdict(const struct client *c, const json_t *o, struct nt_err *err)
{
    const char *state = text_of(o, "state");
    long long id = nt_json_opt_i64(o, "id", 0);

    print_job(c, o);
    if (strcmp(state, "failed") == 0) {
        return nt_fail(err, NT_E_NO, 0, "job %lld failed", id);
    }
    return strcmp(state, "cancelled") == 0
               ? nt_fail(err, NT_E_INTERRUPTED, 0,
                         "job %lld was cancelled: 'nccltune jobs resume %lld' goes on with it", id,
                         id)
               : 0;
}

/* In a moment it may be there, or able to answer. */
static bool is_away(int rc)
{
    return rc == -NT_E_MISSING || rc == -NT_E_IO;
}

/* Until the stream ends or the job does; 1: it is over, and its end was told. */
static int follow_once(struct follower *f, bool *ret_reached, struct nt_err *err)
{
    const struct client *c = f->c;
    char path[PATH_SIZE];
    struct nt_buf body;
    json_t *o = NULL;
    unsigned status = 0;
    int rc;

    (void)snprintf(path, sizeof(path), "/v1/jobs/%" PRId64, f->job);
    rc = ask(c, "GET", path, NULL, &o, err);
    *ret_reached = !is_away(rc);
    if (rc == 0 && is_over(text_of(o, "state"))) {
        rc = verdict(c, o, err);
        json_decref(o);
        return rc != 0 ? rc : 1;
    }
    json_decref(o);
    if (rc != 0) {
        return rc;
    }
    nt_buf_init(&body, NT_FETCH_LINE_MAX);
    (void)snprintf(path, sizeof(path), "/v1/events?job=%" PRId64 "&after=%" PRIu64, f->job,
                   f->last);
    rc = nt_fetch_lines(&(struct nt_fetch){.from = c->a->server,
                                           .token = c->token.len > 0 ? c->token.data : NULL,
                                           .method = "GET",
                                           .path = path},
                        on_line, f, &status, &body, err);
    rc = rc == 0 && status != 200 ? nt_remote_refused(status, &body, err) : rc;
    nt_buf_done(&body);
    nt_buf_clear(&f->data);
    return rc;
}

/* The job goes on whatever becomes of who follows it. A service that is started anew is found
 * again. */
static int follow(const struct client *c, int64_t job, struct nt_err *err)
{
    const struct timespec pause = {.tv_sec = PAUSE_S};
    struct follower f = {.c = c, .job = job};
    bool reached, ever = false;
    int rc = 0;

    nt_buf_init(&f.data, NT_FETCH_LINE_MAX);
    for (int left = TRIES; left > 0; left--) {
        rc = follow_once(&f, &reached, err);
        ever = ever || reached;
        if (rc == 1 || (rc != 0 && !is_away(rc)) || !ever) {
            break;
        }
        if (is_away(rc)) {
            (void)fprintf(stderr, "nccltune: %s; asked again in %d s\n", err->msg, PAUSE_S);
            (void)nanosleep(&pause, NULL);
        }
        left = reached ? TRIES : left;
    }
    nt_buf_done(&f.data);
    return rc == 1 ? 0 : rc == -NT_E_IO ? missing(err) : rc;
}

/* ---- what is done ---- */

static json_t *words_of(const char *list)
{
    json_t *a = json_array();

    for (const char *at = list; *at != '\0';) {
        size_t n = strcspn(at, ",");
        (void)json_array_append_new(a, json_stringn(at, n));
        at += n + (at[n] == ',');
    }
    return a;
}

static int put_whole(json_t *o, const char *name, const char *value, struct nt_err *err)
{
    int64_t x = 0;
    int rc = value == NULL ? 0 : nt_parse_i64(value, &x, err);

    if (rc == 0 && value != NULL) {
        (void)json_object_set_new(o, name, json_integer((json_int_t)x));
    }
    return nt_wrap(err, rc, "--%s", name);
}

/* The document of a new job; the service looks at its words. */
static int describe(const struct nt_remote_ask *a, json_t **ret, struct nt_err *err)
{
    const struct {
        const char *name, *value;
        bool list;
    } words[] = {{"rig", a->rig, false},      {"collectives", a->collectives, true},
                 {"sizes", a->sizes, false},  {"modes", a->modes, true},
                 {"dtypes", a->dtypes, true}, {"effort", a->effort, false}};
    json_t *o;
    int rc;

    if (a->rig == NULL) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "submit: name a rig of the service with --rig (GET /v1/server lists them)");
    }
    o = json_object();
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (words[i].value != NULL) {
            (void)json_object_set_new(o, words[i].name,
                                      words[i].list ? words_of(words[i].value)
                                                    : json_string(words[i].value));
        }
    }
    if (a->budget_ns > 0) {
        (void)json_object_set_new(
            o, "budget_s", json_integer((json_int_t)((a->budget_ns + 999999999) / 1000000000)));
    }
    rc = put_whole(o, "seed", a->seed, err);
    rc = rc == 0 ? put_whole(o, "priority", a->priority, err) : rc;
    if (rc != 0) {
        json_decref(o);
        return rc;
    }
    *ret = o;
    return 0;
}

static int submit(const struct client *c, struct nt_err *err)
{
    json_t *body = NULL, *o = NULL;
    int rc = describe(&c->a->ask, &body, err);

    rc = rc == 0 ? ask(c, "POST", "/v1/jobs", body, &o, err) : rc;
    if (rc == 0) {
        print_job(c, o);
    }
    if (rc == 0 && c->a->follow) {
        rc = follow(c, nt_json_opt_i64(o, "id", 0), err);
    }
    json_decref(body);
    json_decref(o);
    return rc;
}

static int change(const struct client *c, const char *what, int64_t job, struct nt_err *err)
{
    char path[PATH_SIZE];
    json_t *o = NULL;
    int rc;

    (void)snprintf(path, sizeof(path), "/v1/jobs/%" PRId64 "/%s", job, what);
    rc = ask(c, "POST", path, NULL, &o, err);
    if (rc == 0) {
        print_job(c, o);
    }
    json_decref(o);
    return rc == 0 && c->a->follow ? follow(c, job, err) : rc;
}

static int act(const struct client *c, unsigned nargs, char **args, struct nt_err *err)
{
    static const char *const verbs[] = {"submit", "follow", "cancel", "resume", NULL};
    int64_t job = 0;
    int which, rc;

    which = nargs > 0 ? nt_vocab_find(verbs, "action", args[0], err) : 1;
    if (which > 0 && c->a->of_submit != NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "--%s is an option of submit only", c->a->of_submit);
    }
    if (nargs == 0) {
        return list(c, err);
    }
    if (which <= 0) {
        return which < 0 ? which
               : nargs == 1
                   ? submit(c, err)
                   : nt_fail(err, NT_E_INVAL, 0, "submit takes options only: '%s'", args[1]);
    }
    if (nargs != 2) {
        return nt_fail(err, NT_E_INVAL, 0, "%s: give the job's number", args[0]);
    }
    rc = nt_parse_i64(args[1], &job, err);
    if (rc == 0 && job <= 0) {
        rc = nt_fail(err, NT_E_INVAL, 0, "there is no job %" PRId64, job);
    }
    if (rc != 0) {
        return nt_wrap(err, rc, "%s", args[0]);
    }
    return which == 1 ? follow(c, job, err) : change(c, args[0], job, err);
}

int nt_remote_jobs_run(const struct nt_remote_jobs *a, unsigned nargs, char **args,
                       struct nt_err *err)
{
    struct client c = {.a = a, .json = strcmp(a->format, "json") == 0};
    int rc;

    nt_buf_init(&c.token, 4096);
    rc = nt_remote_token(a->token_file, &c.token, err);
    if (rc == 0) {
        rc = act(&c, nargs, args, err);
        rc = rc == -NT_E_MISSING ? nt_wrap(err, rc,
                                           "no service answers (start it with `nccltune serve`, or "
                                           "name another with --server)")
                                 : rc;
    }
    nt_buf_done(&c.token);
    return rc;
}
