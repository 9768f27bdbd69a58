#include "tuner/job/nodes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tuner/base/json.h"
#include "tuner/job/workdir.h"
#include "tuner/launch/loop.h"
#include "tuner/topology/topology.h"

struct ask {
    struct nt_nodes *ret;
    struct nt_launch *launch;
    uv_loop_t loop;
    uv_timer_t timer;
    uv_signal_t signals[NT_LOOP_ENDS];
    const char *dir;
    bool killed, interrupted, closed;
    struct nt_err *err;
    int rc;
};

static void on_exit_of(void *data, unsigned rank, const struct nt_launch_exit *how)
{
    struct ask *a = data;
    struct nt_node_said *s = &a->ret->v[rank];
    char path[4096];

    if (how->words != NULL || how->error != 0) {
        if (a->rc == 0) {
            a->rc = nt_fail(a->err, NT_E_MISSING, 0, "%s",
                            how->words != NULL ? how->words : uv_strerror(how->error));
        }
        return;
    }
    s->status = how->signal != 0 ? -1 : how->status;
    (void)snprintf(s->host, sizeof(s->host), "%s", nt_launcher_remote.host(a->launch, rank));
    nt_launch_log_path(a->dir, rank, path, sizeof(path));
    if (access(path, R_OK) == 0 && nt_buf_read_file(&s->text, path, NULL) != 0) {
        nt_buf_clear(&s->text);
    }
    (void)unlink(path);
}

static void on_closed(void *data)
{
    struct ask *a = data;

    a->closed = true;
    uv_close((uv_handle_t *)&a->timer, NULL);
    nt_loop_close_signals(a->signals, NT_LOOP_ENDS, a->interrupted);
}

/* KILL, and what does not end even so is left. */
static void on_timer(uv_timer_t *t)
{
    enum { GIVE_UP_MS = 10000 };
    struct ask *a = t->data;

    if (!a->killed) {
        a->killed = true;
        nt_launcher_remote.signal(a->launch, SIGKILL);
        (void)uv_timer_start(t, on_timer, GIVE_UP_MS, 0);
    } else {
        nt_launcher_remote.abandon(a->launch);
    }
}

static void on_signal(uv_signal_t *h, int signum)
{
    struct ask *a = h->data;
    (void)signum;

    if (!a->interrupted && !a->closed) {
        a->interrupted = true;
        on_timer(&a->timer);
    }
}

static int open_loop(struct ask *a, unsigned nodes, struct nt_err *err)
{
    int rc = nt_loop_open(&a->loop, 4 * nodes, err);

    rc = rc == 0 ? nt_loop_watch_ends(&a->loop, a->signals, on_signal, a, err) : rc;
    if (rc == 0) {
        (void)uv_timer_init(&a->loop, &a->timer);
        a->timer.data = a;
    }
    return rc;
}

static int ask(struct ask *a, const struct nt_launch_spec *spec, uint32_t most_ms,
               struct nt_err *err)
{
    const struct nt_launch_events events = {on_exit_of, on_closed, a};
    int rc = open_loop(a, spec->world, err);

    if (rc != 0) {
        return rc;
    }
    rc = nt_launcher_remote.start(&a->loop, spec, &events, &a->launch, err);
    if (rc == 0) {
        (void)uv_timer_start(&a->timer, on_timer, most_ms, 0);
    } else {
        on_closed(a);
    }
    (void)uv_run(&a->loop, UV_RUN_DEFAULT);
    nt_assert(uv_loop_close(&a->loop) == 0);
    if (a->interrupted) {
        return nt_fail(err, NT_E_INTERRUPTED, 0, "interrupted");
    }
    return rc != 0 ? rc : a->rc;
}

int nt_nodes_ask(const struct nt_remote *remote, const char *program, const char *const *args,
                 const char *const *env, const char *tmpdir, uint32_t most_ms, struct nt_nodes *ret,
                 struct nt_err *err)
{
    struct nt_remote whole = *remote; /* points into the caller's, which lives on */
    struct nt_workdir work = {0};
    struct ask a = {.ret = ret, .err = err};
    int rc = nt_workdir_make(tmpdir, &work, err);
    struct nt_launch_spec spec = {.program = program,
                                  .args = args,
                                  .env = env,
                                  .rank_var = "NCCLTUNE_NODE_NUMBER",
                                  .world = remote->nodes,
                                  .dir = work.path,
                                  .remote = &whole};

    *ret = (struct nt_nodes){.n = remote->nodes};
    for (size_t i = 0; i < ret->n; i++) {
        nt_buf_init(&ret->v[i].text, NT_NODE_OUTPUT + 1);
    }
    whole.log_bytes = NT_NODE_OUTPUT;
    a.dir = work.path;
    rc = rc == 0 ? ask(&a, &spec, most_ms, err) : rc;
    nt_workdir_remove(&work);
    if (rc != 0) {
        nt_nodes_done(ret);
    }
    return rc;
}

void nt_nodes_done(struct nt_nodes *n)
{
    for (size_t i = 0; i < n->n; i++) {
        nt_buf_done(&n->v[i].text);
    }
    n->n = 0;
}

json_t *nt_nodes_machines(const struct nt_nodes *n)
{
    json_t *list = json_array(), *o;

    for (size_t i = 0; i < n->n; i++) {
        const struct nt_node_said *s = &n->v[i];
        o = NULL;
        if (s->status != 0 ||
            nt_json_parse(nt_buf_str(&s->text), s->text.len, "machine", &o, NULL) != 0 ||
            !json_is_object(o)) {
            json_decref(o);
            o = json_object();
        }
        (void)json_object_set_new(o, "host", json_string(s->host));
        (void)json_array_append_new(list, o);
    }
    return list;
}

/* ---- judging ---- */

static void identity_of(const json_t *machine, struct nt_identity *ret)
{
    const json_t *o = json_object_get(machine, "identity");

    if (o == NULL || nt_identity_parse(o, ret, NULL) != 0) {
        *ret = (struct nt_identity){.known = 0};
    }
}

static const char *host_of(const json_t *machine)
{
    return nt_json_opt_str(machine, "host", "?");
}

/* A word that both know and that differs. */
static bool differ(const json_t *a, const json_t *b, const char *key, const char **was,
                   const char **is)
{
    *was = nt_json_opt_str(a, key, "");
    *is = nt_json_opt_str(b, key, "");
    return **was != '\0' && **is != '\0' && strcmp(*was, *is) != 0;
}

static int compare(const json_t *a, const json_t *b, struct nt_buf *said, struct nt_err *err)
{
    static const struct {
        const char *key, *what;
        bool stops;
    } rows[] = {{"driver", "driver", true},
                {"cuda", "CUDA of the driver", true},
                {"kernel", "kernel", false}};
    struct nt_identity x, y;
    uint32_t compared = 0, mask;
    char text[160];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *was, *is;
        if (!differ(a, b, rows[i].key, &was, &is)) {
            continue;
        }
        if (rows[i].stops) {
            return nt_fail(err, NT_E_MISSING, 0, "nodes must be alike: %s %.60s on %s, %.60s on %s",
                           rows[i].what, was, host_of(a), is, host_of(b));
        }
        nt_buf_printf(said, "%s %s on %s, %s on %s\n", rows[i].what, was, host_of(a), is,
                      host_of(b));
    }
    identity_of(a, &x);
    identity_of(b, &y);
    mask = nt_identity_compare(&x, &y, &compared);
    return compared == 0 || mask == 0
               ? 0
               : nt_fail(err, NT_E_MISSING, 0,
                         "nodes must be alike: %s is machine %s, %s is %s, different in %s",
                         host_of(a), x.name, host_of(b), y.name,
                         nt_group_mask_text(mask, text, sizeof(text)));
}

static void say_health(const json_t *machine, struct nt_buf *said)
{
    json_t *finding;
    size_t i;

    json_array_foreach(json_object_get(machine, "health"), i, finding)
    {
        if (nt_json_opt_bool(finding, "unhealthy", false)) {
            nt_buf_printf(said, "%s is unhealthy (%s): %s\n", host_of(machine),
                          nt_json_opt_str(finding, "finding", ""),
                          nt_json_opt_str(finding, "text", ""));
        }
    }
}

int nt_nodes_judge(const json_t *machines, struct nt_buf *said, struct nt_err *err)
{
    const json_t *first = json_array_get(machines, 0);
    json_t *m;
    size_t i;
    int rc = 0;

    json_array_foreach(machines, i, m)
    {
        say_health(m, said);
        if (json_object_size(m) <= 1) {
            nt_buf_printf(said,
                          "%s could not say what machine it is: that it is like the others is "
                          "not known\n",
                          host_of(m));
        }
        rc = rc == 0 && i > 0 ? compare(first, m, said, err) : rc;
    }
    return rc;
}
