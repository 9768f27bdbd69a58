#include "tuner/gang/gang.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/gang/gang_fsm.h"
#include "tuner/gang/gang_spec.h"
#include "tuner/gang/merge.h"
#include "tuner/gang/mps.h"
#include "tuner/launch/shm_names.h"
#include "tuner/gang/words.h"
#include "tuner/gang/writes.h"

enum { BARRIER_BYTES = 4096, CHUNK = 65536, DRAIN_CHUNKS = 64, SPARE_CONNS = 8 };

/* One stream. Who it is, is known after its hello. */
struct conn {
    uv_pipe_t pipe;
    struct nt_gang *gang;
    struct conn *next;
    int rank; /* -1: not said yet */
    bool open;
    struct nt_buf in;
};

struct rank {
    struct conn *conn;
    struct nt_msg init;   /* ours, to be sent */
    struct nt_msg answer; /* its last one, while the others have not answered */
    bool has_answer;
};

enum question { Q_NONE, Q_MEASURE, Q_CELLS };

struct nt_gang {
    struct nt_gang_fsm fsm;
    struct nt_gang_events events;
    const struct nt_launcher *launcher;
    struct nt_launch *launch; /* NULL: never started, or all of it gone */
    uv_loop_t *loop;
    uv_pipe_t listener;
    uv_timer_t timer;
    unsigned open; /* handles not yet closed; a launch counts as one */
    struct conn *conns;
    unsigned nconns;
    enum question question;
    struct nt_measure measure;
    char uid[sizeof(((struct nt_init *)0)->uid)];
    char dir[NT_GANG_DIR_MAX + 1], *program;
    struct nt_err said; /* what happened, noted when it did; code NT_OK: nothing */
    struct nt_shm_names shm;
    bool ending; /* the last answers are being given: no more questions */
    char chunk[CHUNK];
    uint32_t ns[NT_MAX_SAMPLES];
    struct nt_hello hello[NT_GANG_MAX];
    struct nt_ready ready[NT_GANG_MAX];
    struct nt_launch_exit exits[NT_GANG_MAX];
    struct rank rank[];
};

static void event(struct nt_gang *g, enum nt_gf_event ev, unsigned rank, uint32_t ms);

/* ---- what is said ---- */

/* A rank that hears nothing misses its deadline. */
static void say_line(struct nt_gang *g, unsigned rank, const struct nt_buf *line)
{
    struct conn *c = g->rank[rank].conn;

    if (c != NULL && c->open) {
        nt_write_line((uv_stream_t *)&c->pipe, line);
    }
}

static void say(struct nt_gang *g, unsigned rank, const struct nt_msg *m)
{
    struct nt_buf line;

    nt_buf_init(&line, NT_LINE_MAX + 2);
    nt_msg_encode(m, &line);
    say_line(g, rank, &line);
    nt_buf_done(&line);
}

static void say_all(struct nt_gang *g, const struct nt_msg *m)
{
    struct nt_buf line;

    nt_buf_init(&line, NT_LINE_MAX + 2);
    nt_msg_encode(m, &line);
    for (unsigned r = 0; r < g->fsm.world; r++) {
        say_line(g, r, &line);
    }
    nt_buf_done(&line);
}

static void say_init(struct nt_gang *g)
{
    for (unsigned r = 0; r < g->fsm.world; r++) {
        memcpy(g->rank[r].init.init.uid, g->uid, sizeof(g->uid));
        say(g, r, &g->rank[r].init);
    }
}

/* ---- what is reported ---- */

static void forget_answers(struct nt_gang *g)
{
    for (unsigned r = 0; r < g->fsm.world; r++) {
        if (g->rank[r].has_answer) {
            nt_msg_done(&g->rank[r].answer);
            g->rank[r].has_answer = false;
        }
    }
}

static void report_answer(struct nt_gang *g)
{
    enum question q = g->question;
    const void *answers[NT_GANG_MAX];
    struct nt_gang_result result;
    struct nt_cells cells;

    for (unsigned r = 0; r < g->fsm.world; r++) {
        answers[r] = &g->rank[r].answer.hello; /* a union: the address of each member */
    }
    if (q == Q_MEASURE) {
        nt_merge_results(&g->measure, (const struct nt_result *const *)answers, g->fsm.world, g->ns,
                         &result);
    } else {
        nt_merge_cells((const struct nt_cells *const *)answers, g->fsm.world, &cells);
    }
    forget_answers(g);
    g->question = Q_NONE;
    if (q == Q_MEASURE) {
        g->events.on_result(g->events.data, g, &result);
    } else {
        g->events.on_cells(g->events.data, g, &cells);
    }
}

static void report_failed(struct nt_gang *g, const struct nt_err *err)
{
    static const enum nt_status status[NT_GANG_END_COUNT] = {
        [NT_GANG_DONE] = NT_ST_CRASHED,     [NT_GANG_CANCELLED] = NT_ST_CRASHED,
        [NT_GANG_NO_START] = NT_ST_CRASHED, [NT_GANG_TIMEOUT] = NT_ST_TIMEOUT,
        [NT_GANG_CRASHED] = NT_ST_CRASHED,  [NT_GANG_BROKE] = NT_ST_CRASHED,
        [NT_GANG_SAID] = NT_ST_ERROR,       [NT_GANG_STUCK] = NT_ST_TIMEOUT,
    };
    struct nt_gang_result r = {.id = g->measure.id,
                               .status = status[g->fsm.how],
                               .rank = g->fsm.whom < g->fsm.world ? (int)g->fsm.whom : -1,
                               .executed = NT_EXECUTED_NONE};

    if (g->question == Q_CELLS) {
        g->events.on_cells(g->events.data, g, NULL);
    } else {
        (void)snprintf(r.error, sizeof(r.error), "%s", err->msg);
        g->events.on_result(g->events.data, g, &r);
    }
}

/* ---- the end ---- */

static void gang_free(struct nt_gang *g)
{
    forget_answers(g);
    for (unsigned r = 0; r < g->fsm.world; r++) {
        nt_msg_done(&g->rank[r].init);
        free(g->ready[r].topology_xml);
        free(g->ready[r].text);
    }
    free(g->program);
    free(g);
}

static void finish(struct nt_gang *g)
{
    struct nt_gang_facts facts = {.fsm = &g->fsm,
                                  .exits = g->exits,
                                  .program = g->program,
                                  .dir = g->dir,
                                  .said = g->said.code != NT_OK ? g->said.msg : NULL,
                                  .missing = nt_gang_is_missing(g)};
    char path[NT_GANG_DIR_MAX + 16];
    struct nt_err err;

    (void)nt_shm_names_unlink(&g->shm);
    (void)snprintf(path, sizeof(path), "%s/barrier", g->dir);
    (void)unlink(path);
    nt_gang_words(&facts, &err);
    g->ending = true;
    if (g->fsm.asked && !g->fsm.cancelled) {
        report_failed(g, &err);
    }
    g->events.on_end(g->events.data, g, g->fsm.how, &err);
    gang_free(g);
}

static void closed_one(struct nt_gang *g)
{
    if (--g->open == 0) {
        finish(g); /* frees g: last use */
    }
}

static void on_handle_closed(uv_handle_t *h)
{
    closed_one(h->data);
}

static void on_conn_closed(uv_handle_t *h)
{
    struct conn *c = h->data;
    struct nt_gang *g = c->gang;
    struct conn **at = &g->conns;

    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    g->nconns--;
    if (c->rank >= 0 && g->rank[c->rank].conn == c) {
        g->rank[c->rank].conn = NULL;
    }
    nt_buf_done(&c->in);
    free(c);
    closed_one(g);
}

static void close_conn(struct conn *c)
{
    if (c->open) {
        c->open = false;
        uv_close((uv_handle_t *)&c->pipe, on_conn_closed);
    }
}

static void close_all(struct nt_gang *g)
{
    for (struct conn *c = g->conns; c != NULL; c = c->next) {
        close_conn(c);
    }
    uv_close((uv_handle_t *)&g->listener, on_handle_closed);
    uv_close((uv_handle_t *)&g->timer, on_handle_closed);
}

static void note_shm_names(struct nt_gang *g)
{
    for (unsigned r = 0; g->launch != NULL && r < g->fsm.world; r++) {
        nt_shm_names_read(&g->shm, g->launcher->pid(g->launch, r));
    }
}

static void signal_all(struct nt_gang *g, int signum)
{
    if (g->launch != NULL) {
        g->launcher->signal(g->launch, signum);
    }
}

static void on_timer(uv_timer_t *t);

static void act(struct nt_gang *g, unsigned acts)
{
    if (acts & (NT_GF_DO_READY | NT_GF_DO_QUIT | NT_GF_DO_TERM | NT_GF_DO_KILL)) {
        note_shm_names(g); /* before a word that may end a rank */
    }
    if (acts & NT_GF_DO_UID) {
        say(g, 0, &(struct nt_msg){.type = NT_MSG_UID});
    }
    if (acts & NT_GF_DO_INIT) {
        say_init(g);
    }
    if (acts & NT_GF_DO_QUIT) {
        say_all(g, &(struct nt_msg){.type = NT_MSG_QUIT});
    }
    if (acts & NT_GF_DO_TERM) {
        say_all(g, &(struct nt_msg){.type = NT_MSG_ABORT});
        signal_all(g, SIGTERM);
    }
    if (acts & NT_GF_DO_KILL) {
        signal_all(g, SIGKILL);
    }
    if (acts & NT_GF_DO_ARM) {
        uv_update_time(g->loop); /* what took long before the timer is not part of it */
        (void)uv_timer_start(&g->timer, on_timer, g->fsm.arm_ms, 0);
    }
    if (acts & NT_GF_DO_DISARM) {
        (void)uv_timer_stop(&g->timer);
    }
    if (acts & NT_GF_DO_READY) {
        g->events.on_ready(g->events.data, g, g->hello, g->ready);
    }
    if (acts & NT_GF_DO_ANSWER) {
        report_answer(g);
    }
    if ((acts & NT_GF_DO_ABANDON) && g->launch != NULL) {
        g->launcher->abandon(g->launch);
    }
    if (acts & NT_GF_DO_CLOSE) {
        close_all(g);
    }
}

static void event(struct nt_gang *g, enum nt_gf_event ev, unsigned rank, uint32_t ms)
{
    act(g, nt_gf_step(&g->fsm, ev, rank, ms));
}

/* ---- what ranks say ---- */

static bool at_work(const struct nt_gang *g)
{
    return g->fsm.state <= NT_GF_BUSY;
}

/* The event that ends the gang, with its words; the first ones are kept. */
static void broke(struct conn *c, enum nt_gf_event ev, const char *words)
{
    struct nt_gang *g = c->gang;

    if (at_work(g) && g->said.code == NT_OK) {
        if (c->rank < 0) {
            (void)nt_fail(&g->said, NT_E_PROTO, 0, "a rank that has not said hello: %s", words);
        } else {
            (void)nt_fail(&g->said, NT_E_PROTO, 0, "rank %d: %s", c->rank, words);
        }
    }
    event(g, ev, c->rank < 0 ? NT_GF_NOBODY : (unsigned)c->rank, 0);
}

/* What the launcher calls the host counts: ranks of one host are those that it started there. */
static void take_host(struct nt_gang *g, unsigned rank)
{
    const char *host =
        g->launch != NULL && g->launcher->host != NULL ? g->launcher->host(g->launch, rank) : "";
    if (host[0] != '\0') {
        (void)snprintf(g->hello[rank].host, sizeof(g->hello[rank].host), "%s", host);
    }
}

static void heard_hello(struct conn *c, const struct nt_hello *h)
{
    struct nt_gang *g = c->gang;

    if (c->rank >= 0) {
        broke(c, NT_GF_EV_BROKE, "said hello twice");
    } else if (h->world != g->fsm.world) {
        char words[80];
        (void)snprintf(words, sizeof(words), "is one of %u, this gang has %u", h->world,
                       g->fsm.world);
        broke(c, NT_GF_EV_BROKE, words);
    } else if (g->rank[h->rank].conn != NULL || g->fsm.has_answered[h->rank]) {
        broke(c, NT_GF_EV_BROKE, "has the number of one that is there already");
    } else {
        c->rank = (int)h->rank;
        g->rank[h->rank].conn = c;
        g->hello[h->rank] = *h;
        take_host(g, h->rank);
        event(g, NT_GF_EV_HELLO, h->rank, 0);
    }
}

static void heard_ready(struct conn *c, struct nt_msg *m)
{
    struct nt_gang *g = c->gang;

    if (g->fsm.state == NT_GF_INIT && !g->fsm.has_answered[c->rank]) {
        nt_shm_names_read(&g->shm, g->launcher->pid(g->launch, (unsigned)c->rank));
        g->ready[c->rank] = m->ready; /* with its texts */
        m->ready = (struct nt_ready){0};
        event(g, NT_GF_EV_READY, (unsigned)c->rank, 0);
    } else {
        broke(c, NT_GF_EV_BROKE, "said ready without being asked");
    }
}

static void heard_answer(struct conn *c, struct nt_msg *m)
{
    struct nt_gang *g = c->gang;
    struct rank *r = &g->rank[c->rank];
    struct nt_err err = {0};
    bool fits = m->type == (g->question == Q_MEASURE ? NT_MSG_RESULT : NT_MSG_CELLS);

    if (g->fsm.state != NT_GF_BUSY || g->fsm.has_answered[c->rank] || !fits) {
        broke(c, NT_GF_EV_BROKE, "gave an answer to no question");
    } else if (m->type == NT_MSG_RESULT && nt_merge_check(&g->measure, &m->result, &err) != 0) {
        broke(c, NT_GF_EV_BROKE, err.msg);
    } else {
        r->answer = *m;
        r->has_answer = true;
        m->type = NT_MSG_QUIT; /* handed over */
        event(g, NT_GF_EV_ANSWER, (unsigned)c->rank, 0);
    }
}

static void heard(struct conn *c, struct nt_msg *m)
{
    struct nt_gang *g = c->gang;

    if (c->rank < 0 && m->type != NT_MSG_HELLO && m->type != NT_MSG_ERROR) {
        broke(c, NT_GF_EV_BROKE, "its first message is another one");
        return;
    }
    switch (m->type) {
    case NT_MSG_HELLO:
        heard_hello(c, &m->hello);
        break;
    case NT_MSG_UID:
        if (g->fsm.state == NT_GF_UID && c->rank == 0) {
            memcpy(g->uid, m->uid, sizeof(g->uid));
        } else {
            broke(c, NT_GF_EV_BROKE, "sent an id without being asked");
            return;
        }
        event(g, NT_GF_EV_UID, 0, 0);
        break;
    case NT_MSG_READY:
        heard_ready(c, m);
        break;
    case NT_MSG_CELLS:
    case NT_MSG_RESULT:
        heard_answer(c, m);
        break;
    case NT_MSG_ERROR:
        broke(c, NT_GF_EV_SAID, m->error);
        break;
    default:
        broke(c, NT_GF_EV_BROKE, "sent what only the driver may send");
    }
}

static void heard_line(struct conn *c)
{
    struct nt_msg m;
    struct nt_err err;

    if (!at_work(c->gang)) {
        return; /* whatever it says while it is being ended */
    }
    if (nt_msg_decode(nt_buf_str(&c->in), c->in.len, &m, &err) != 0) {
        broke(c, NT_GF_EV_BROKE, err.msg);
        return;
    }
    heard(c, &m);
    nt_msg_done(&m);
}

static void feed(struct conn *c, const char *data, size_t len)
{
    while (len > 0 && c->open) {
        const char *nl = memchr(data, '\n', len);
        size_t piece = nl != NULL ? (size_t)(nl - data) : len;

        nt_buf_add(&c->in, data, piece);
        if (c->in.failed) {
            nt_buf_clear(&c->in);
            broke(c, NT_GF_EV_BROKE, "a line that is too long");
            return;
        }
        if (nl != NULL) {
            heard_line(c);
            nt_buf_clear(&c->in);
            piece++;
        }
        data += piece;
        len -= piece;
    }
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct conn *c = h->data;
    (void)suggested;
    *buf = uv_buf_init(c->gang->chunk, CHUNK);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = s->data;

    if (n > 0) {
        feed(c, buf->base, (size_t)n);
    } else if (n < 0 && c->rank < 0) {
        close_conn(c); /* came and went without a word */
    } else if (n < 0) {
        (void)uv_read_stop(s);
        event(c->gang, NT_GF_EV_EOF, (unsigned)c->rank, 0);
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct nt_gang *g = listener->data;
    struct conn *c = status == 0 ? calloc(1, sizeof(*c)) : NULL;

    if (c == NULL) {
        return;
    }
    (void)uv_pipe_init(g->loop, &c->pipe, 0);
    c->pipe.data = c;
    c->gang = g;
    c->rank = -1;
    c->open = true;
    c->next = g->conns;
    nt_buf_init(&c->in, NT_LINE_MAX);
    g->conns = c;
    g->nconns++;
    g->open++;
    if (uv_accept(listener, (uv_stream_t *)&c->pipe) != 0 || g->fsm.state != NT_GF_HELLO ||
        g->nconns > g->fsm.world + SPARE_CONNS ||
        uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read) != 0) {
        close_conn(c);
    }
}

/* What an ended process wrote before it ended counts: it is read now, before its end does. */
static void drain(struct conn *c)
{
    uv_os_fd_t fd;

    if (!c->open || uv_fileno((uv_handle_t *)&c->pipe, &fd) != 0) {
        return;
    }
    for (int i = 0; i < DRAIN_CHUNKS && c->open; i++) {
        ssize_t n = read(fd, c->gang->chunk, CHUNK);
        if (n <= 0) {
            return;
        }
        feed(c, c->gang->chunk, (size_t)n);
    }
}

/* Of this rank, and of those of whom it is not known which rank they are. */
static void drain_rank(struct nt_gang *g, unsigned rank)
{
    for (struct conn *c = g->conns; c != NULL; c = c->next) {
        if (c->rank < 0 || c->rank == (int)rank) {
            drain(c);
        }
    }
}

/* A loop that was kept busy looks at its timers first: an answer that came in time counts. */
static void on_timer(uv_timer_t *t)
{
    struct nt_gang *g = t->data;
    bool busy = g->fsm.state == NT_GF_BUSY;

    for (struct conn *c = busy ? g->conns : NULL; c != NULL; c = c->next) {
        drain(c);
    }
    if (!busy || (g->fsm.state == NT_GF_BUSY && !uv_is_active((uv_handle_t *)t))) {
        event(g, NT_GF_EV_TIMER, 0, 0);
    }
}

static void on_exit_of(void *data, unsigned rank, const struct nt_launch_exit *how)
{
    struct nt_gang *g = data;

    drain_rank(g, rank);
    g->exits[rank] = *how;
    g->exits[rank].words = NULL; /* the launcher's */
    if (how->words != NULL && at_work(g) && g->said.code == NT_OK) {
        (void)nt_fail(&g->said, NT_E_MISSING, 0, "%s", how->words);
    }
    event(g,
          how->error != 0 || how->words != NULL  ? NT_GF_EV_NO_START
          : how->signal != 0 || how->status != 0 ? NT_GF_EV_EXIT_BAD
                                                 : NT_GF_EV_EXIT_OK,
          rank, 0);
}

static void on_launch_closed(void *data)
{
    struct nt_gang *g = data;
    g->launch = NULL;
    closed_one(g);
}

bool nt_gang_is_missing(const struct nt_gang *g)
{
    return g->fsm.how == NT_GANG_NO_START && g->said.code == NT_E_MISSING;
}

/* ---- the start ---- */

static int make_barrier(const struct nt_gang *g, struct nt_err *err)
{
    char path[NT_GANG_DIR_MAX + 16];
    int fd, rc = 0;

    (void)snprintf(path, sizeof(path), "%s/barrier", g->dir);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return nt_fail(err, NT_E_IO, errno, "create %s", path);
    }
    if (ftruncate(fd, BARRIER_BYTES) != 0) {
        rc = nt_fail(err, NT_E_IO, errno, "create %s", path);
    }
    (void)close(fd);
    return rc;
}

static int listen_at(struct nt_gang *g, const char *path, struct nt_err *err)
{
    int rc = uv_pipe_bind(&g->listener, path);
    if (rc == 0) {
        rc = uv_listen((uv_stream_t *)&g->listener, (int)g->fsm.world + SPARE_CONNS, on_connection);
    }
    return rc == 0 ? 0 : nt_fail(err, NT_E_IO, -rc, "listen on %s", path);
}

static int launch(struct nt_gang *g, const struct nt_gang_spec *spec, const char *path,
                  struct nt_err *err)
{
    struct nt_launch_events events = {on_exit_of, on_launch_closed, g};
    struct nt_launch_spec l = {.program = spec->program,
                               .args = spec->args,
                               .rank_var = NT_ENV_RANK,
                               .world = spec->world,
                               .dir = g->dir,
                               .remote = spec->remote,
                               .socket = path,
                               .files = spec->files};
    char mps[NT_MPS_VARS][NT_MPS_VAR_SIZE], world[40], driver[160];
    const char **env;
    size_t n = 0;
    int rc;

    while (spec->env != NULL && spec->env[n] != NULL) {
        n++;
    }
    env = calloc(n + 5, sizeof(env[0]));
    if (env == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "environment");
    }
    if (n > 0) {
        memcpy((void *)env, (const void *)spec->env, n * sizeof(env[0]));
    }
    (void)snprintf(world, sizeof(world), "%s=%u", NT_ENV_WORLD, spec->world);
    (void)snprintf(driver, sizeof(driver), "%s=unix:%s", NT_ENV_DRIVER, path);
    env[n++] = world;
    env[n++] = driver;
    l.mark = driver; /* its path is this gang's alone */
    if (spec->mps != NULL) {
        nt_mps_env(spec->mps, mps);
        env[n++] = mps[0];
        env[n++] = mps[1];
    }
    l.env = env;
    rc = g->launcher->start(g->loop, &l, &events, &g->launch, err);
    g->open += rc == 0;
    free((void *)env);
    return rc;
}

/* Everything that can fail for a reason outside: a failure is an end like any other. */
static void begin(struct nt_gang *g, const struct nt_gang_spec *spec)
{
    char path[NT_GANG_DIR_MAX + 16];
    int rc;

    (void)snprintf(path, sizeof(path), "%s/driver", g->dir);
    rc = spec->remote == NULL ? make_barrier(g, &g->said) : 0;
    if (rc == 0) {
        rc = listen_at(g, path, &g->said);
    }
    if (rc == 0) {
        rc = launch(g, spec, path, &g->said);
    }
    if (rc != 0) {
        for (unsigned r = 0; r < g->fsm.world; r++) {
            event(g, NT_GF_EV_NO_START, r, 0);
        }
    } else {
        act(g, NT_GF_DO_ARM);
    }
}

/* An own copy of a rank's init, made by the codec. */
static int make_init(const struct nt_gang *g, const struct nt_gang_spec *spec, unsigned rank,
                     struct nt_msg *ret, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_INIT, .init = spec->init};
    struct nt_buf line;
    int rc;

    if (spec->init.nvars + spec->nrank_vars > NT_MAX_VARS) {
        return nt_fail(err, NT_E_INVAL, 0, "more than %d variables", NT_MAX_VARS);
    }
    for (size_t i = 0; i < spec->nrank_vars; i++) {
        m.init.vars[m.init.nvars++] = spec->rank_vars[rank * spec->nrank_vars + i];
    }
    m.init.device = spec->devices != NULL ? spec->devices[rank] : rank;
    if (spec->remote == NULL) { /* else the ranks have no memory that all of them share */
        (void)snprintf(m.init.shm, sizeof(m.init.shm), "%s/barrier", g->dir);
    }
    nt_buf_init(&line, NT_LINE_MAX);
    nt_msg_encode(&m, &line);
    rc = line.failed ? nt_fail(err, NT_E_INVAL, 0, "variables that cannot be sent")
                     : nt_msg_decode(line.data, line.len - 1, ret, err);
    nt_buf_done(&line);
    return rc;
}

int nt_gang_start(uv_loop_t *loop, const struct nt_gang_spec *spec,
                  const struct nt_gang_events *events, struct nt_gang **ret, struct nt_err *err)
{
    struct nt_gang_times times = nt_gang_times_of(spec);
    struct nt_gang *g;
    int rc = nt_gang_spec_check(spec, err);

    if (rc != 0) {
        return rc;
    }
    g = calloc(1, sizeof(*g) + spec->world * sizeof(g->rank[0]));
    if (g == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "gang of %u", spec->world);
    }
    nt_gf_init(&g->fsm, spec->world, &times);
    g->events = *events;
    g->loop = loop;
    g->launcher = spec->launcher != NULL ? spec->launcher
                  : spec->remote != NULL ? &nt_launcher_remote
                                         : &nt_launcher_local;
    (void)snprintf(g->dir, sizeof(g->dir), "%s", spec->dir);
    g->program = strdup(spec->program);
    rc = g->program != NULL ? 0 : nt_fail(err, NT_E_NOMEM, 0, "gang");
    for (unsigned r = 0; rc == 0 && r < spec->world; r++) {
        rc = make_init(g, spec, r, &g->rank[r].init, err);
    }
    if (rc != 0) {
        gang_free(g);
        return rc;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)uv_pipe_init(loop, &g->listener, 0);
    (void)uv_timer_init(loop, &g->timer);
    g->listener.data = g->timer.data = g;
    g->open = 2;
    begin(g, spec);
    *ret = g;
    return 0;
}

/* ---- what the caller asks ---- */

static void ask(struct nt_gang *g, enum question q, const struct nt_msg *m, uint32_t ms)
{
    nt_assert(g->question == Q_NONE && g->fsm.state >= NT_GF_IDLE);
    g->question = q;
    if (g->fsm.state == NT_GF_IDLE) {
        say_all(g, m);
    }
    event(g, NT_GF_EV_ASK, 0, ms);
}

void nt_gang_measure(struct nt_gang *g, const struct nt_measure *m)
{
    uint64_t ms = (uint64_t)m->deadline_ms + g->fsm.times.slack_ms;
    nt_assert(m->samples <= NT_MAX_SAMPLES);
    if (g->ending) {
        return;
    }
    g->measure = *m;
    ask(g, Q_MEASURE, &(struct nt_msg){.type = NT_MSG_MEASURE, .measure = *m},
        ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX);
}

void nt_gang_cells(struct nt_gang *g, const struct nt_case *c)
{
    if (g->ending) {
        return;
    }
    ask(g, Q_CELLS, &(struct nt_msg){.type = NT_MSG_CELLS, .cells = {.cs = *c}},
        g->fsm.times.cells_ms);
}

void nt_gang_stop(struct nt_gang *g)
{
    event(g, NT_GF_EV_STOP, 0, 0);
}

void nt_gang_kill(struct nt_gang *g)
{
    event(g, NT_GF_EV_KILL, 0, 0);
}
