#include "tuner/job/drive.h"
#include "tuner/gang/mps.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct slot {
    struct nt_drive *d;
    struct nt_plan_gang plan;
    struct nt_gang *gang; /* NULL: not running */
    char dir[NT_GANG_DIR_MAX + 1];
    char vars[NT_SETTING_LEN]; /* plan.vars may move on */
    struct nt_buf env;
    struct nt_drive_start start;
    bool up, stopped;
    char error[512];
    uint64_t t0;
};

enum phase { IDLE, STARTING, ASKING, STOPPING, ENDING };

struct nt_drive {
    uv_loop_t *loop;
    const struct nt_drive_config *c;
    struct slot slot[NT_PLAN_GANGS];
    size_t nslots;
    struct nt_plan_gang expected[NT_PLAN_GANGS];
    size_t nexpected;
    enum phase phase;
    struct nt_plan_step step;
    bool recovering; /* starting what the planner believes alive; the step comes after */
    uint64_t t0, begin;
    uint64_t stopped_ns; /* what stops took since the last start, which is told as a part of it */
    struct nt_mps *mps;
    bool mps_stopping, mps_up,
        mps_tired; /* tired: a gang died hard, the next one gets a fresh daemon */
    char mps_dir[NT_MPS_DIR_MAX + 1];
    uv_idle_t idle; /* the next step, never from inside an event */
    bool idle_on, interrupted, idle_closed;
    int rc;
    struct nt_err err;
    struct nt_drive_totals totals;
};

static void go(struct nt_drive *d);

static void fail(struct nt_drive *d, int rc)
{
    d->rc = d->rc != 0 ? d->rc : rc;
}

/* Removes what lies in a private folder of ours, and the folder. */
static void remove_dir(const char *path)
{
    struct dirent *e;
    DIR *dir = opendir(path);

    while (dir != NULL && (e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            (void)unlinkat(dirfd(dir), e->d_name, 0);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    (void)rmdir(path);
}

/* ------------------------------------------------------------------ loop */

static void on_idle(uv_idle_t *h)
{
    struct nt_drive *d = h->data;
    (void)uv_idle_stop(h);
    d->idle_on = false;
    go(d);
}

static void later(struct nt_drive *d)
{
    if (!d->idle_on && !d->idle_closed) { /* a second interrupt may come while it closes */
        d->idle_on = true;
        (void)uv_idle_start(&d->idle, on_idle);
    }
}

static void on_idle_closed(uv_handle_t *h)
{
    struct nt_drive *d = h->data;
    const struct nt_drive_sink *sink = d->c->sink;

    for (size_t i = 0; i < NT_PLAN_GANGS; i++) {
        nt_buf_done(&d->slot[i].env);
    }
    d->totals.wall_ns = uv_hrtime() - d->begin;
    sink->on_end(sink->data, d->rc, d->rc != 0 ? &d->err : NULL);
    free(d);
}

/* ------------------------------------------------------------------ MPS */

static bool wants_mps(const struct nt_drive *d)
{
    return d->c->rig == NT_RIG_MPS_SOCKETS || d->c->rig == NT_RIG_MPS_P2P;
}

static void on_mps_ready(void *data, struct nt_mps *m)
{
    struct nt_drive *d = data;
    (void)m;
    d->mps_up = true;
    later(d);
}

static void on_mps_end(void *data, struct nt_mps *m, const struct nt_err *err)
{
    struct nt_drive *d = data;
    (void)m;
    if (err != NULL && !d->mps_stopping) {
        d->err = d->rc == 0 ? *err : d->err;
        fail(d, -(int)err->code);
    }
    d->mps = NULL;
    d->mps_up = d->mps_tired = d->mps_stopping = false;
    (void)rmdir(d->mps_dir);
    later(d);
}

static int start_mps(struct nt_drive *d)
{
    const struct nt_mps_events events = {.on_ready = on_mps_ready, .on_end = on_mps_end, .data = d};
    struct nt_mps_spec spec = {.dir = d->mps_dir, .program = d->c->mps_program, .env = d->c->env};

    if (snprintf(d->mps_dir, sizeof(d->mps_dir), "%s/m", d->c->dir) >= (int)sizeof(d->mps_dir)) {
        return nt_fail(&d->err, NT_E_INVAL, 0,
                       "%s: too long for the sockets of MPS; set TMPDIR to a shorter one",
                       d->c->dir);
    }
    if (mkdir(d->mps_dir, 0700) != 0 && errno != EEXIST) {
        return nt_fail(&d->err, NT_E_IO, errno, "create %s", d->mps_dir);
    }
    return nt_mps_start(d->loop, &spec, &events, &d->mps, &d->err);
}

/* ------------------------------------------------------------------ gangs */

static void step_done(struct nt_drive *d, struct nt_plan_outcome *o);
static void do_step(struct nt_drive *d);

static bool all_started(const struct nt_drive *d)
{
    for (size_t i = 0; i < d->nslots; i++) {
        if (!d->slot[i].up && d->slot[i].gang != NULL) {
            return false;
        }
    }
    return true;
}

static void maybe_started(struct nt_drive *d)
{
    struct nt_plan_outcome o = {0};

    if (d->phase != STARTING || !all_started(d)) {
        return;
    }
    d->totals.starting_ns += uv_hrtime() - d->t0;
    d->phase = IDLE;
    for (size_t i = 0; i < d->nslots; i++) {
        struct slot *s = &d->slot[i];
        uint64_t took;
        o.gangs[i].status = s->start.status;
        o.gangs[i].memory_bytes = s->start.memory_bytes;
        /* As the store has it, so that a resumed job is told the same. */
        took = d->c->virtual_time ? s->start.init_ns : s->start.start_ns;
        o.elapsed_ns = took > o.elapsed_ns ? took : o.elapsed_ns;
        if (s->start.status != NT_ST_OK) {
            d->mps_tired = true;
        }
        if (d->recovering && s->start.status != NT_ST_OK) {
            fail(d, nt_fail(&d->err, NT_E_MISSING, 0, "a gang did not come up again: %.300s",
                            s->error));
        }
    }
    if (d->recovering) {
        d->recovering = false;
        later(d);
        return;
    }
    step_done(d, &o);
}

static void on_ready(void *data, struct nt_gang *g, const struct nt_hello *hello,
                     const struct nt_ready *ready)
{
    struct slot *s = data;
    struct nt_drive *d = s->d;
    const struct nt_drive_sink *sink = d->c->sink;
    (void)g;

    s->up = true;
    s->start =
        (struct nt_drive_start){.start_ns = uv_hrtime() - s->t0, .status = NT_ST_OK, .error = ""};
    for (unsigned r = 0; r < d->c->ranks; r++) {
        s->start.init_ns =
            ready[r].init_ns > s->start.init_ns ? ready[r].init_ns : s->start.init_ns;
        s->start.memory_bytes = ready[r].memory_bytes > s->start.memory_bytes
                                    ? ready[r].memory_bytes
                                    : s->start.memory_bytes;
    }
    if (d->rc == 0 && sink->on_ready != NULL) {
        fail(d, sink->on_ready(sink->data, &s->plan, hello, ready, d->c->ranks, &d->err));
    }
    maybe_started(d);
}

static struct slot *slot_of(struct nt_drive *d, uint64_t number)
{
    for (size_t i = 0; i < d->nslots; i++) {
        if (d->slot[i].plan.number == number) {
            return &d->slot[i];
        }
    }
    return NULL;
}

static void on_cells(void *data, struct nt_gang *g, const struct nt_cells *cells)
{
    struct slot *s = data;
    struct nt_plan_outcome o = {.lost = cells == NULL}; /* a moment, and its time is not stored */

    if (cells == NULL && nt_gang_is_missing(g)) {
        return; /* its end follows, and is the drive's */
    }
    if (cells != NULL) {
        o.cells = *cells;
    }
    step_done(s->d, &o);
}

/* A status that leaves no gang to go on with: after an error of NCCL or CUDA a communicator is not
 * used again. */
static bool is_lost(enum nt_status status)
{
    return status == NT_ST_TIMEOUT || status == NT_ST_CRASHED || status == NT_ST_ERROR;
}

static void on_result(void *data, struct nt_gang *g, const struct nt_gang_result *r)
{
    struct slot *s = data;
    struct nt_drive *d = s->d;
    struct nt_result one = {.id = r->id,
                            .status = (uint8_t)r->status,
                            .ns = (uint32_t *)r->ns,
                            .count = r->count,
                            .base_ns = r->base_ns,
                            .executed = r->executed,
                            .own_chunk_bytes = r->own_chunk_bytes,
                            .wrong = r->wrong,
                            .bits = r->bits,
                            .elapsed_ns = r->elapsed_ns,
                            .connect_ns = r->connect_ns,
                            .memory_bytes = r->memory_bytes};
    struct nt_plan_outcome o = {.result = &one, .lost = is_lost(r->status)};

    if (o.lost && nt_gang_is_missing(g)) {
        return; /* its end follows, and is the drive's */
    }
    (void)snprintf(one.error, sizeof(one.error), "%.199s", r->error);
    d->totals.measuring_ns += r->elapsed_ns;
    d->mps_tired = d->mps_tired || o.lost;
    o.elapsed_ns = d->c->virtual_time ? r->elapsed_ns : uv_hrtime() - d->t0;
    step_done(d, &o);
}

static bool all_ended(const struct nt_drive *d)
{
    for (size_t i = 0; i < d->nslots; i++) {
        if (d->slot[i].gang != NULL) {
            return false;
        }
    }
    return true;
}

static void on_end(void *data, struct nt_gang *g, enum nt_gang_end how, const struct nt_err *err)
{
    struct slot *s = data;
    struct nt_drive *d = s->d;
    struct nt_plan_outcome o = {0};

    s->gang = NULL;
    if (err != NULL) {
        (void)snprintf(s->error, sizeof(s->error), "%s", err->msg);
    }
    if (nt_gang_is_missing(g) && d->rc == 0) { /* no setting's fault: nothing is told or stored */
        d->err = *err;
        fail(d, -NT_E_MISSING);
    }
    if (how == NT_GANG_STUCK) {
        fail(d, nt_fail(&d->err, NT_E_MISSING, 0,
                        "a rank cannot be ended, not even by SIGKILL: its GPU is not free; look at "
                        "it with nvidia-smi"));
    }
    remove_dir(s->dir);
    if (!s->up) {
        s->up = true;
        s->start = (struct nt_drive_start){.start_ns = uv_hrtime() - s->t0,
                                           .status = how == NT_GANG_TIMEOUT ? NT_ST_TIMEOUT
                                                     : how == NT_GANG_SAID  ? NT_ST_ERROR
                                                                            : NT_ST_CRASHED,
                                           .error = s->error};
        /* What the very first gang says is about this machine, not about a setting. */
        if (err != NULL && (err->code == NT_E_MISSING || how == NT_GANG_SAID) &&
            d->totals.gangs <= NT_PLAN_GANGS && s->plan.number == 1 && d->rc == 0) {
            d->err = *err;
            d->err.code = NT_E_MISSING;
            fail(d, -NT_E_MISSING);
        }
        maybe_started(d);
    }
    if (d->phase == STOPPING && all_ended(d)) {
        d->totals.starting_ns += uv_hrtime() - d->t0;
        d->stopped_ns += uv_hrtime() - d->t0;
        o.elapsed_ns = 0; /* not stored, so not told: a resumed job must see the same */
        d->nslots = 0;
        d->phase = IDLE;
        step_done(d, &o);
    } else if (d->phase == ENDING || d->rc != 0) {
        later(d);
    }
}

static void add_words(struct nt_buf *b, const char *words) /* "A=1 B=2" as NUL-ended words */
{
    while (*words != '\0') {
        size_t n = strcspn(words, " ");
        if (n > 0) {
            nt_buf_add(b, words, n);
            nt_buf_add(b, "", 1);
        }
        words += n + (words[n] == ' ');
    }
}

static size_t add_vars(struct nt_init *init, char *text)
{
    char *save = NULL;
    for (char *w = strtok_r(text, " ", &save); w != NULL && init->nvars < NT_MAX_VARS;
         w = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(w, '=');
        if (eq != NULL) {
            *eq = '\0';
            init->vars[init->nvars++] = (struct nt_var){.name = w, .value = eq + 1};
        }
    }
    return init->nvars;
}

/* Files of ours that a variable names. */
static void carried(const struct nt_drive *d, const char *const *env, const char **files,
                    size_t max)
{
    size_t len = strlen(d->c->dir), n = 0;

    for (; *env != NULL && n + 1 < max; env++) {
        const char *value = strchr(*env, '=');
        if (value != NULL && strncmp(value + 1, d->c->dir, len) == 0 && value[1 + len] == '/') {
            files[n++] = value + 1;
        }
    }
    files[n] = NULL;
}

/* The launcher says itself when hosts do not come, and gangs wait their turn; 0: as for a gang on
 * this host. */
static uint32_t hello_ms(const struct nt_remote *r)
{
    enum { RANKS_MS = 120000 };
    return r == NULL
               ? 0
               : RANKS_MS + NT_PLAN_GANGS * (r->wait_ms != 0 ? r->wait_ms : NT_REMOTE_WAIT_MS);
}

static int start_gang(struct nt_drive *d, struct slot *s)
{
    static const char *const rig_vars[NT_RIG_COUNT] = {
        [NT_RIG_MPS_SOCKETS] = "NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_MNNVL_ENABLE=0",
        [NT_RIG_MPS_P2P] = "NCCL_MULTI_RANK_GPU_ENABLE=1",
    };
    const struct nt_gang_events events = {.on_ready = on_ready,
                                          .on_cells = on_cells,
                                          .on_result = on_result,
                                          .on_end = on_end,
                                          .data = s};
    struct nt_gang_spec spec = {.world = d->c->ranks,
                                .program = d->c->program,
                                .args = d->c->args,
                                .dir = s->dir,
                                .devices = d->c->devices,
                                .remote = d->c->remote};
    const char *env[256], *files[3];
    struct nt_var rank_vars[NT_GANG_MAX];
    char host_ids[NT_GANG_MAX][32], vars[NT_SETTING_LEN];
    size_t n = 0;
    int rc;

    if (snprintf(s->dir, sizeof(s->dir), "%s/g%llu", d->c->dir,
                 (unsigned long long)s->plan.number) >= (int)sizeof(s->dir) ||
        (mkdir(s->dir, 0700) != 0 && errno != EEXIST)) {
        return nt_fail(&d->err, NT_E_IO, errno, "create a folder in %s", d->c->dir);
    }
    nt_buf_init(&s->env, 1 << 16);
    if (rig_vars[d->c->rig] != NULL) {
        add_words(&s->env, rig_vars[d->c->rig]);
    }
    rc = d->c->sink->arm_env(d->c->sink->data, s->plan.arm, &s->env, &d->err);
    if (rc != 0 || s->env.failed) {
        return rc != 0 ? rc
                       : nt_fail(&d->err, NT_E_INVAL, 0, "the environment of a gang is too large");
    }
    for (const char *const *e = d->c->env; *e != NULL && n < 255; e++) {
        env[n++] = *e;
    }
    for (size_t at = 0; at < s->env.len && n < 255; at += strlen(s->env.data + at) + 1) {
        env[n++] = s->env.data + at;
    }
    env[n] = NULL;
    spec.env = env;
    carried(d, env, files, sizeof(files) / sizeof(files[0]));
    spec.files = files;
    spec.times.hello_ms = hello_ms(d->c->remote);
    spec.mps = d->mps_up ? d->mps_dir : NULL;
    (void)snprintf(spec.init.backend, sizeof(spec.init.backend), "nccl");
    spec.init.max_bytes = d->c->max_bytes;
    spec.init.gang = s->plan.number;
    (void)snprintf(vars, sizeof(vars), "%s", s->plan.vars);
    spec.init.nvars = add_vars(&spec.init, vars);
    for (unsigned r = 0; d->c->rig == NT_RIG_MPS_SOCKETS && r < d->c->ranks; r++) {
        (void)snprintf(host_ids[r], sizeof(host_ids[r]), "nccltune-rank-%u", r);
        rank_vars[r] = (struct nt_var){.name = (char *)"NCCL_HOSTID", .value = host_ids[r]};
        spec.rank_vars = rank_vars;
        spec.nrank_vars = 1;
    }
    s->t0 = uv_hrtime() - d->stopped_ns;
    d->totals.gangs++;
    rc = nt_gang_start(d->loop, &spec, &events, &s->gang, &d->err);
    return rc;
}

static void start_gangs(struct nt_drive *d, const struct nt_plan_gang *gangs, size_t n)
{
    d->phase = STARTING;
    d->t0 = uv_hrtime();
    d->nslots = n;
    for (size_t i = 0; i < n; i++) {
        struct slot *s = &d->slot[i];
        nt_buf_done(&s->env);
        *s = (struct slot){.d = d, .plan = gangs[i]};
        (void)snprintf(s->vars, sizeof(s->vars), "%s", gangs[i].vars);
        s->plan.vars = s->vars;
    }
    for (size_t i = 0; i < n && d->rc == 0; i++) {
        fail(d, start_gang(d, &d->slot[i]));
    }
    d->stopped_ns = 0;
    if (d->rc != 0) {
        d->phase = IDLE;
        later(d);
    }
}

/* ------------------------------------------------------------------ steps */

static bool is_question(const struct nt_plan_step *s)
{
    return s->kind == NT_DO_MEASURE || s->kind == NT_DO_CELLS;
}

/* The next question of the same stage, from inside the answer to the last one. False: whatever
 * comes next has to wait. */
static bool ask_early(struct nt_drive *d)
{
    struct nt_plan_step next;
    struct slot *s;

    if (d->rc != 0 || d->phase != IDLE || d->interrupted) {
        return false;
    }
    fail(d, d->c->planner->peek(d->c->planner->plan, &next, &d->err));
    if (d->rc != 0 || !is_question(&next) || next.stage != d->step.stage) {
        return false;
    }
    s = slot_of(d, next.gang);
    if (s == NULL || s->gang == NULL || !s->up) {
        return false;
    }
    d->step = next;
    do_step(d);
    return true;
}

static void keep(struct nt_drive *d, const struct nt_plan_step *s, const struct nt_plan_outcome *o)
{
    const struct nt_drive_sink *sink = d->c->sink;
    struct nt_drive_start starts[NT_PLAN_GANGS];

    for (size_t i = 0; i < NT_PLAN_GANGS; i++) {
        starts[i] = d->slot[i].start;
        starts[i].error = d->slot[i].error;
    }
    if (d->rc == 0) {
        fail(d, sink->on_step(sink->data, s, o, starts, &d->err));
    }
}

static void tell(struct nt_drive *d, const struct nt_plan_outcome *o)
{
    if (d->rc == 0) {
        fail(d, d->c->planner->tell(d->c->planner->plan, o, &d->err));
    }
}

static void step_done(struct nt_drive *d, struct nt_plan_outcome *o)
{
    bool asked = false;

    d->phase = d->phase == ENDING ? ENDING : IDLE;
    if (d->c->planner->peek != NULL && is_question(&d->step) && !o->lost) {
        struct nt_plan_step done = d->step;
        char vars[NT_SETTING_LEN];
        (void)snprintf(vars, sizeof(vars), "%s", done.vars != NULL ? done.vars : "");
        done.vars = vars; /* the planner's move on */
        tell(d, o);
        asked = ask_early(d);
        keep(d, &done, o);
    } else {
        keep(d, &d->step, o);
        tell(d, o);
    }
    if (!asked || d->rc != 0) {
        later(d);
    }
}

static void end(struct nt_drive *d)
{
    bool busy = false;

    d->phase = ENDING;
    for (size_t i = 0; i < d->nslots; i++) {
        if (d->slot[i].gang != NULL) {
            busy = true;
            if (!d->slot[i].stopped) {
                d->slot[i].stopped = true;
                nt_gang_stop(d->slot[i].gang);
            }
        }
    }
    if (!busy && d->mps != NULL) {
        busy = true;
        if (!d->mps_stopping) {
            d->mps_stopping = true;
            nt_mps_stop(d->mps);
        }
    }
    if (!busy && !d->idle_closed) {
        d->idle_closed = true;
        uv_close((uv_handle_t *)&d->idle, on_idle_closed);
    }
}

static void do_step(struct nt_drive *d)
{
    struct slot *s = slot_of(d, d->step.gang);
    struct nt_measure m = d->step.m;

    d->t0 = uv_hrtime();
    switch (d->step.kind) {
    case NT_DO_START:
        start_gangs(d, d->step.gangs, d->step.ngangs);
        return;
    case NT_DO_STOP:
        d->phase = STOPPING;
        for (size_t i = 0; i < d->nslots; i++) {
            if (d->slot[i].gang != NULL) {
                nt_gang_stop(d->slot[i].gang);
            }
        }
        if (all_ended(d)) {
            struct nt_plan_outcome o = {0};
            d->nslots = 0;
            d->phase = IDLE;
            step_done(d, &o);
        }
        return;
    default:
        break;
    }
    if (s == NULL || s->gang == NULL || !s->up) { /* ended between two questions */
        struct nt_result gone = {.id = m.id, .status = NT_ST_CRASHED};
        struct nt_plan_outcome o = {.result = &gone, .lost = true};
        (void)snprintf(gone.error, sizeof(gone.error), "%.190s",
                       s != NULL && s->error[0] != '\0' ? s->error : "its gang has ended");
        step_done(d, &o);
        return;
    }
    d->phase = ASKING;
    if (d->step.kind == NT_DO_CELLS) {
        nt_gang_cells(s->gang, &d->step.cs);
        return;
    }
    if (d->step.arm != NT_ARM_SEARCH && d->step.arm != NT_ARM_BACKENDS && !d->c->virtual_time) {
        m.call = NT_CALL_DEFAULT; /* the delivered table decides, or nobody */
    }
    nt_gang_measure(s->gang, &m);
}

/* The daemon that the next gang needs is there; false: wait. */
static bool have_mps(struct nt_drive *d)
{
    if (!wants_mps(d) || (d->mps_up && !d->mps_tired)) {
        return true;
    }
    if (d->mps == NULL) {
        fail(d, start_mps(d));
        if (d->rc != 0) {
            later(d);
        }
    } else if (d->mps_up) {
        d->mps_up = false;
        d->mps_stopping = true;
        nt_mps_stop(d->mps);
    }
    return false;
}

static void go(struct nt_drive *d)
{
    bool starts;

    if (d->rc != 0 || d->interrupted) {
        if (d->rc == 0) {
            fail(d, nt_fail(&d->err, NT_E_INTERRUPTED, 0, "interrupted"));
        }
        end(d);
        return;
    }
    if (d->phase == ENDING) {
        end(d);
        return;
    }
    if (d->phase != IDLE) {
        return;
    }
    fail(d, d->c->planner->next(d->c->planner->plan, &d->step, &d->err));
    if (d->rc != 0 || d->step.kind == NT_DO_FINISHED) {
        end(d);
        return;
    }
    starts = d->step.kind == NT_DO_START || d->nexpected > 0;
    if (starts && !have_mps(d)) {
        return;
    }
    if (d->nexpected > 0) {
        size_t n = d->nexpected;
        d->nexpected = 0;
        if (d->step.kind != NT_DO_START && d->step.kind != NT_DO_STOP) {
            d->recovering = true;
            start_gangs(d, d->expected, n);
            return;
        }
    }
    do_step(d);
}

int nt_drive_start(uv_loop_t *loop, const struct nt_drive_config *config, struct nt_drive **ret,
                   struct nt_err *err)
{
    struct nt_drive *d = calloc(1, sizeof(*d));

    if (d == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "drive");
    }
    d->loop = loop;
    d->c = config;
    d->begin = uv_hrtime();
    (void)uv_idle_init(loop, &d->idle);
    d->idle.data = d;
    later(d);
    *ret = d;
    return 0;
}

void nt_drive_interrupt(struct nt_drive *d)
{
    if (d->interrupted) {
        for (size_t i = 0; i < d->nslots; i++) {
            if (d->slot[i].gang != NULL) {
                nt_gang_kill(d->slot[i].gang);
            }
        }
    }
    d->interrupted = true;
    later(d);
}

void nt_drive_expect(struct nt_drive *d, const struct nt_plan_gang *gangs, size_t n)
{
    memcpy(d->expected, gangs, n * sizeof(gangs[0]));
    d->nexpected = n;
}

const struct nt_drive_totals *nt_drive_totals(const struct nt_drive *d)
{
    return &d->totals;
}
