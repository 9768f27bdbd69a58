#include "tuner/launch/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tuner/base/log.h"
#include "tuner/base/text.h"
#include "tuner/launch/log_tail.h"
#include "tuner/launch/remote_i.h"

/* A command that fails before any host has come is tried again: a controller that is busy, two of
 * them that make one folder. STRAY_MS: for a launcher's command to end by itself when its agents
 * have; then TERM, then KILL. ANSWER_MS: for a host to tell of the ends of ranks that were killed.
 */
enum { AGAIN_MS = 1000, TRIES = 3 };
enum { STRAY_MS = 5000, KILL_MS = 3000, ANSWER_MS = 2000, TAIL = 260 };
#define LOG_NAME "launcher.log"

/* ---- reports ---- */

void nt_remote_report(struct nt_launch *l, unsigned rank, const struct nt_launch_exit *how)
{
    if (!l->reported[rank]) {
        l->reported[rank] = true;
        l->left--;
        if (!l->abandoned) {
            l->events.on_exit(l->events.data, rank, how);
        }
    }
}

static void arm(struct nt_launch *l, uint32_t ms);

void nt_remote_give_up(struct nt_launch *l, unsigned from, unsigned to, int error,
                       const char *words)
{
    for (unsigned r = from; r < to; r++) {
        nt_remote_report(l, r,
                         &(struct nt_launch_exit){.status = 1, .error = error, .words = words});
    }
    if (l->left == 0) {
        nt_remote_finish(l);
    }
}

static void tail_of(const struct nt_launch *l, char *out, size_t size)
{
    char path[sizeof(l->dir) + 32];

    (void)snprintf(path, sizeof(path), "%s/" LOG_NAME, l->dir);
    nt_log_tail(path, out, size);
}

/* All that the launcher said, as far as one reads it: which line is the reason, launchers differ
 * in.
 */
static void show_log(const struct nt_launch *l)
{
    enum { BYTES = 16384, LINES = 40 };
    char path[sizeof(l->dir) + 32], *save = NULL;
    char *text = calloc(1, BYTES + 1);
    FILE *in;
    unsigned n = 0;

    (void)snprintf(path, sizeof(path), "%s/" LOG_NAME, l->dir);
    in = text != NULL ? fopen(path, "re") : NULL;
    if (in != NULL) {
        text[fread(text, 1, BYTES, in)] = '\0';
        (void)fclose(in);
        for (char *w = strtok_r(text, "\n", &save); w != NULL && n < LINES;
             w = strtok_r(NULL, "\n", &save), n++) {
            nt_log(NT_WARN, "%.60s: %.300s", l->remote->program, w);
        }
    }
    free(text);
}

/* "node-b, number 3" of those that are not here. */
static void missing(const struct nt_launch *l, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < l->remote->nodes && n + 1 < size; i++) {
        bool here = false;
        for (unsigned k = 0; k < l->nnodes; k++) {
            here = here || (l->node[k].known && l->node[k].number == i);
        }
        if (!here && l->remote->hosts[0] != NULL && l->remote->kind->each) {
            n +=
                (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", l->remote->hosts[i]);
        } else if (!here) {
            n += (size_t)snprintf(out + n, size - n, "%snumber %u", n > 0 ? ", " : "", i);
        }
    }
}

unsigned nt_remote_known(const struct nt_launch *l)
{
    unsigned n = 0;
    for (unsigned i = 0; i < l->nnodes; i++) {
        n += l->node[i].known;
    }
    return n;
}

/* ---- turns ---- */

static void on_again(uv_timer_t *t);

/* Whether its commands may begin now. Two mpiruns at once make the same folders on the same hosts,
 * and one of them may fail or hang. */
static bool take_turn(struct nt_launch *l)
{
    struct nt_remote_turns *t = l->remote->turns;
    struct nt_launch **at;

    if (t == NULL || t->now == NULL) {
        if (t != NULL) {
            t->now = l;
        }
        return true;
    }
    for (at = &t->waiting; *at != NULL; at = &(*at)->next_turn) {
    }
    *at = l;
    return false;
}

void nt_remote_pass_turn(struct nt_launch *l)
{
    struct nt_remote_turns *t = l->remote->turns;
    struct nt_launch **at;

    if (t == NULL) {
        return;
    }
    for (at = &t->waiting; *at != NULL && *at != l; at = &(*at)->next_turn) {
    }
    if (*at == l) {
        *at = l->next_turn;
    } else if (t->now == l) {
        t->now = t->waiting;
        if (t->now != NULL) {
            t->waiting = t->now->next_turn;
            (void)uv_timer_start(&t->now->again, on_again, 0, 0);
        }
    }
}

/* ---- the end ---- */

void nt_remote_closed_one(struct nt_launch *l)
{
    if (--l->open > 0) {
        return;
    }
    for (unsigned i = 0; i < l->nnodes; i++) {
        nt_wire_done(&l->node[i].wire);
    }
    for (size_t i = 0; i < l->nfiles; i++) {
        nt_buf_done(&l->files[i]);
    }
    nt_buf_done(&l->start);
    l->events.on_closed(l->events.data);
    free(l->socket);
    free(l);
}

static void on_handle_closed(uv_handle_t *h)
{
    nt_remote_closed_one(h->data);
}

void nt_remote_close_door(struct nt_launch *l)
{
    if (l->door != NULL) {
        nt_door_close(l->door); /* on_door_closed follows */
        l->door = NULL;
    }
}

static void on_door_closed(void *data)
{
    nt_remote_closed_one(data);
}

static void on_node_closed(uv_handle_t *h)
{
    struct node *n = h->data;
    nt_remote_closed_one(n->l);
}

void nt_remote_close_node(struct node *n)
{
    if (n->open) {
        n->open = false;
        n->l->open += nt_tunnel_close(&n->tunnel) ? 1 : 0;
        uv_close((uv_handle_t *)&n->tcp, on_node_closed);
    }
}

static bool any_alive(const struct nt_launch *l)
{
    return l->commands != NULL && nt_commands_alive(l->commands);
}

static void signal_commands(struct nt_launch *l, int signum)
{
    if (l->commands != NULL) {
        nt_commands_signal(l->commands, signum);
    }
}

static void close_timer(struct nt_launch *l)
{
    if (!uv_is_closing((uv_handle_t *)&l->timer)) {
        uv_close((uv_handle_t *)&l->timer, on_handle_closed);
        uv_close((uv_handle_t *)&l->again, on_handle_closed);
    }
}

/* No rank is left: agents are told so, and the launcher's commands get time to end. */
void nt_remote_finish(struct nt_launch *l)
{
    if (l->phase >= OVER) {
        return;
    }
    nt_remote_pass_turn(l);
    for (unsigned i = 0; i < l->nnodes; i++) {
        if (l->node[i].open) {
            nt_wire_send((uv_stream_t *)&l->node[i].tcp, NT_WIRE_END, 0, NULL, 0);
            nt_remote_close_node(&l->node[i]);
        }
    }
    nt_remote_close_door(l);
    if (!any_alive(l)) {
        close_timer(l);
    } else if (l->started) {
        l->phase = OVER;
        arm(l, STRAY_MS);
        return;
    } else { /* nothing that it could still do */
        l->phase = TERMED;
        signal_commands(l, SIGTERM);
        arm(l, KILL_MS);
        return;
    }
    l->phase = DEAD;
}

static void lose_all(struct nt_launch *l, const char *what)
{
    char words[200];

    for (unsigned i = 0; i < l->nnodes; i++) {
        unsigned from = l->node[i].number * l->each;
        if (l->node[i].known) {
            (void)snprintf(words, sizeof(words), "node %s %s", l->node[i].name, what);
            nt_remote_give_up(l, from, from + l->each, 0, words);
        }
    }
}

static void say_late(struct nt_launch *l)
{
    char who[120], tail[TAIL], words[NT_CONTACT_MAX + 600];
    unsigned strangers = l->door != NULL ? nt_door_strangers(l->door) : 0;

    missing(l, who, sizeof(who));
    tail_of(l, tail, sizeof(tail));
    show_log(l);
    (void)snprintf(
        words, sizeof(words),
        "%u of %u nodes did not connect back in time (%s): they must reach %s (--listen)%s%s%s",
        l->remote->nodes - nt_remote_known(l), l->remote->nodes, who,
        l->door != NULL ? nt_door_address(l->door) : "this host",
        strangers > 0 ? "; somebody who does not know the job's secret tried" : "",
        tail[0] != '\0' ? "; the launcher said: " : "", tail);
    nt_remote_give_up(l, 0, l->world, 0, words);
}

static void on_timer(uv_timer_t *t)
{
    struct nt_launch *l = t->data;

    switch (l->phase) {
    case WAITING:
        if (l->reason[0] != '\0') {
            nt_remote_give_up(l, 0, l->world, l->failed, l->reason);
        } else {
            say_late(l);
        }
        break;
    case KILLED:
        lose_all(l, "does not answer: whether its ranks have ended is not known");
        break;
    case OVER:
        l->phase = TERMED;
        signal_commands(l, SIGTERM);
        arm(l, KILL_MS);
        break;
    case TERMED:
        signal_commands(l, SIGKILL);
        break;
    default:
        break;
    }
}

static void arm(struct nt_launch *l, uint32_t ms)
{
    (void)uv_timer_start(&l->timer, on_timer, ms, 0);
}

/* ---- the launcher's commands ---- */

/* Not where each host has a command of its own: the others' agents are on their way. */
static bool worth_another(struct nt_launch *l, int64_t status, int signum)
{
    if (l->remote->kind->each || l->nnodes > 0 || (status == 0 && signum == 0) ||
        l->reason[0] != '\0' || l->tries + 1 >= TRIES) {
        return false;
    }
    l->tries++;
    (void)uv_timer_start(&l->again, on_again, AGAIN_MS, 0);
    return true;
}

static void on_command_exit(void *data, unsigned i, int64_t status, int signum)
{
    struct nt_launch *l = data;
    char tail[TAIL], words[600], who[120], how[60];

    if (l->phase == WAITING && worth_another(l, status, signum)) {
        return;
    }
    if (l->phase == WAITING) {
        tail_of(l, tail, sizeof(tail));
        show_log(l);
        if (l->remote->kind->each) {
            (void)snprintf(who, sizeof(who), "%s", l->remote->hosts[i]);
        } else {
            missing(l, who, sizeof(who));
        }
        (void)snprintf(how, sizeof(how), signum != 0 ? "signal %d" : "exit code %d",
                       signum != 0 ? signum : (int)status);
        (void)snprintf(words, sizeof(words), "%.100s ended with %s before node %s connected%s%s",
                       l->remote->program, how, who, tail[0] != '\0' ? "; it said: " : "", tail);
        nt_remote_give_up(l, 0, l->world, 0, words);
    }
    if (l->phase >= OVER && !any_alive(l)) {
        close_timer(l);
    }
}

static void on_commands_closed(void *data)
{
    struct nt_launch *l = data;
    l->commands = NULL;
    nt_remote_closed_one(l);
}

static void begin(struct nt_launch *l, struct nt_err *err);

static void on_again(uv_timer_t *t)
{
    struct nt_launch *l = t->data;
    struct nt_err err = {0};

    if (l->phase != WAITING || l->commands != NULL) {
        return;
    }
    begin(l, &err);
}

/* ---- the start ---- */

static int add_file(struct nt_launch *l, const char *path, struct nt_err *err)
{
    struct nt_buf *b = &l->files[l->nfiles];

    if (l->nfiles == NT_AGENT_FILES) {
        return nt_fail(err, NT_E_INVAL, 0, "more than %d files for a gang", NT_AGENT_FILES);
    }
    l->nfiles++;
    nt_buf_init(b, NT_WIRE_MAX);
    nt_buf_add(b, path, strlen(path) + 1);
    return nt_buf_read_file(b, path, err);
}

static size_t count(const char *const *list)
{
    size_t n = 0;
    while (list != NULL && list[n] != NULL) {
        n++;
    }
    return n;
}

static void add_string(struct nt_buf *b, const char *text)
{
    nt_buf_add(b, text, strlen(text) + 1);
}

/* What START says (agent.h). */
static int make_start(struct nt_launch *l, const struct nt_launch_spec *spec, struct nt_err *err)
{
    const uint64_t numbers[4] = {l->each, spec->remote->log_bytes, count(spec->args),
                                 count(spec->env)};
    char text[24];

    nt_buf_init(&l->start, NT_WIRE_MAX);
    for (size_t i = 0; i < 4; i++) {
        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)numbers[i]);
        add_string(&l->start, text);
    }
    add_string(&l->start, spec->program);
    add_string(&l->start, spec->rank_var);
    add_string(&l->start, spec->socket != NULL ? spec->socket : "");
    for (size_t i = 0; i < numbers[2]; i++) {
        add_string(&l->start, spec->args[i]);
    }
    for (size_t i = 0; i < numbers[3]; i++) {
        add_string(&l->start, spec->env[i]);
    }
    return l->start.failed ? nt_fail(err, NT_E_INVAL, 0, "an environment that is too large") : 0;
}

static int prepare(struct nt_launch *l, const struct nt_launch_spec *spec, struct nt_err *err)
{
    int rc = make_start(l, spec, err);

    for (size_t i = 0; rc == 0 && i < count(spec->files); i++) {
        rc = add_file(l, spec->files[i], err);
    }
    if (rc == 0 && (snprintf(l->dir, sizeof(l->dir), "%s", spec->dir) >= (int)sizeof(l->dir) ||
                    (spec->socket != NULL && (l->socket = strdup(spec->socket)) == NULL))) {
        rc = nt_fail(err, NT_E_INVAL, 0, "a folder that is too long, or no memory");
    }
    return rc;
}

/* One that cannot be started is told of by the timer, after this has returned. */
static int start_commands(struct nt_launch *l, struct nt_err *err)
{
    const struct nt_commands_events events = {on_command_exit, on_commands_closed, l};
    char path[sizeof(l->dir) + 32];
    int rc;

    (void)snprintf(path, sizeof(path), "%s/" LOG_NAME, l->dir);
    (void)unlink(path); /* what an earlier try said */
    rc = nt_commands_start(l->loop, l->remote, nt_door_contact(l->door), path, &events,
                           &l->commands, &l->failed, err);
    l->open += rc == 0;
    if (l->failed != 0) {
        (void)snprintf(l->reason, sizeof(l->reason), "the launcher %.100s cannot be started: %s",
                       l->remote->program, uv_strerror(l->failed));
    }
    return rc;
}

/* From here on everything ends by events. */
static void begin(struct nt_launch *l, struct nt_err *err)
{
    const struct nt_remote *r = l->remote;

    if (start_commands(l, err) != 0) {
        l->failed = UV_EINVAL;
        (void)snprintf(l->reason, sizeof(l->reason), "%.250s", err->msg);
    }
    if (l->reason[0] != '\0') {
        arm(l, 0);
    } else if (!uv_is_active((uv_handle_t *)&l->timer)) { /* else it is another try */
        arm(l, r->wait_ms != 0 ? r->wait_ms : NT_REMOTE_WAIT_MS);
    }
}

static void dispose(struct nt_launch *l)
{
    for (size_t i = 0; i < l->nfiles; i++) {
        nt_buf_done(&l->files[i]);
    }
    nt_buf_done(&l->start);
    free(l->socket);
    free(l);
}

static int remote_start(uv_loop_t *loop, const struct nt_launch_spec *spec,
                        const struct nt_launch_events *events, struct nt_launch **ret,
                        struct nt_err *err)
{
    const struct nt_remote *r = spec->remote;
    struct nt_launch *l;
    struct nt_err why = {0};
    int rc;

    nt_assert(r != NULL && r->nodes >= 1 && r->nodes <= NT_REMOTE_HOSTS);
    if (spec->world == 0 || spec->world > NT_LAUNCH_MAX || spec->world % r->nodes != 0) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%u ranks on %u nodes: must be 1 to %d, equally many on each", spec->world,
                       r->nodes, NT_LAUNCH_MAX);
    }
    l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "launch of %u processes", spec->world);
    }
    l->events = *events;
    l->remote = r;
    l->loop = loop;
    l->world = l->left = spec->world;
    l->each = spec->world / r->nodes;
    rc = prepare(l, spec, err);
    if (rc == 0) {
        const struct nt_door_events door = {nt_remote_on_in, nt_remote_on_refused, on_door_closed,
                                            l};
        rc = nt_door_open(loop, r->listen, NT_VERSION, &door, &l->door, err);
    }
    if (rc != 0) {
        dispose(l);
        return rc;
    }
    l->open = 3; /* timers, door */
    (void)uv_timer_init(loop, &l->timer);
    (void)uv_timer_init(loop, &l->again);
    l->timer.data = l->again.data = l;
    if (take_turn(l)) {
        begin(l, &why);
    }
    *ret = l;
    return 0;
}

static void remote_signal(struct nt_launch *l, int signum)
{
    if (l->phase == WAITING) { /* never from inside the caller's own call */
        if (l->reason[0] == '\0') {
            (void)snprintf(l->reason, sizeof(l->reason), "ended before all nodes had connected");
        }
        arm(l, 0);
        return;
    }
    if (l->phase != RUNNING && l->phase != KILLED) {
        return;
    }
    for (unsigned i = 0; i < l->nnodes; i++) {
        if (l->node[i].open) {
            nt_wire_send((uv_stream_t *)&l->node[i].tcp, NT_WIRE_SIGNAL, (uint32_t)signum, NULL, 0);
        }
    }
    if (signum == SIGKILL) {
        l->phase = KILLED;
        arm(l, ANSWER_MS);
    }
}

static void remote_abandon(struct nt_launch *l)
{
    l->abandoned = true;
    nt_remote_give_up(l, 0, l->world, 0, NULL);
    signal_commands(l, SIGKILL);
}

static pid_t remote_pid(const struct nt_launch *l, unsigned rank)
{
    (void)l;
    (void)rank;
    return 0;
}

static const char *remote_host(const struct nt_launch *l, unsigned rank)
{
    for (unsigned i = 0; i < l->nnodes; i++) {
        if (l->node[i].known && l->node[i].number == rank / l->each) {
            return l->node[i].name;
        }
    }
    return "";
}

const struct nt_launcher nt_launcher_remote = {.name = "remote",
                                               .start = remote_start,
                                               .signal = remote_signal,
                                               .abandon = remote_abandon,
                                               .pid = remote_pid,
                                               .host = remote_host};
