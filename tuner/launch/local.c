#include "tuner/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/launch/guard.h"

enum { LOG_PATH_MAX = 4096 };

struct process {
    uv_process_t handle;
    struct nt_launch *launch;
    unsigned rank;
    int error; /* of the start */
    int log;
    bool alive, reported;
};

struct nt_launch {
    struct nt_launch_events events;
    uv_timer_t look; /* at the logs */
    struct nt_guard guard;
    unsigned world, open; /* processes, handles not yet closed */
    struct process process[];
};

void nt_launch_log_path(const char *dir, unsigned rank, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/rank-%u.log", dir, rank);
}

static void report(struct process *p, const struct nt_launch_exit *how)
{
    if (!p->reported) {
        p->reported = true;
        p->launch->events.on_exit(p->launch->events.data, p->rank, how);
    }
}

static void on_look(uv_timer_t *t)
{
    struct nt_launch *l = t->data;
    struct stat st;

    for (unsigned r = 0; r < l->world; r++) {
        if (fstat(l->process[r].log, &st) == 0 && st.st_size > NT_LAUNCH_LOG_MOST) {
            int cut = ftruncate(l->process[r].log, NT_LAUNCH_LOG_KEPT);
            (void)cut; /* the next look tries again */
        }
    }
}

static void on_look_closed(uv_handle_t *h)
{
    struct nt_launch *l = h->data;

    on_look(&l->look); /* what was written since */
    for (unsigned r = 0; r < l->world; r++) {
        (void)close(l->process[r].log);
    }
    nt_guard_end(&l->guard);
    l->events.on_closed(l->events.data);
    free(l);
}

static void on_process_closed(uv_handle_t *h)
{
    struct process *p = h->data;
    struct nt_launch *l = p->launch;

    if (p->error != 0) { /* reported here, so never before start() returned */
        report(p, &(struct nt_launch_exit){.error = p->error});
    }
    if (--l->open == 0) {
        uv_close((uv_handle_t *)&l->look, on_look_closed);
    }
}

static void on_process_exit(uv_process_t *h, int64_t status, int signum)
{
    struct process *p = h->data;

    p->alive = false;
    (void)uv_kill(-h->pid, SIGKILL); /* what is left of its group */
    nt_guard_drop(&p->launch->guard, h->pid);
    report(p, &(struct nt_launch_exit){.status = status, .signal = signum});
    uv_close((uv_handle_t *)h, on_process_closed);
}

/* env with rank_var appended; NULL without memory. The caller frees the array and its last text. */
static char **rank_env(const struct nt_launch_spec *spec, unsigned rank)
{
    size_t n = 0, size = strlen(spec->rank_var) + 16;
    char **env, *own = malloc(size);

    while (spec->env[n] != NULL) {
        n++;
    }
    env = calloc(n + 2, sizeof(env[0]));
    if (env == NULL || own == NULL) {
        free((void *)env);
        free(own);
        return NULL;
    }
    memcpy((void *)env, (const void *)spec->env, n * sizeof(env[0]));
    (void)snprintf(own, size, "%s=%u", spec->rank_var, spec->first + rank);
    env[n] = own;
    return env;
}

static void free_env(char **env)
{
    size_t n = 0;
    while (env != NULL && env[n] != NULL) {
        n++;
    }
    if (n > 0) {
        free(env[n - 1]);
    }
    free((void *)env);
}

static char **rank_args(const struct nt_launch_spec *spec)
{
    size_t n = 0;
    char **args;

    while (spec->args != NULL && spec->args[n] != NULL) {
        n++;
    }
    args = calloc(n + 2, sizeof(args[0]));
    if (args != NULL) {
        args[0] = (char *)spec->program;
        if (n > 0) {
            memcpy((void *)(args + 1), (const void *)spec->args, n * sizeof(args[0]));
        }
    }
    return args;
}

static int open_log(const struct nt_launch_spec *spec, unsigned rank, int *ret_fd,
                    struct nt_err *err)
{
    char path[LOG_PATH_MAX];

    if (strlen(spec->dir) > sizeof(path) - 32) {
        return nt_fail(err, NT_E_INVAL, ENAMETOOLONG, "%.100s", spec->dir);
    }
    nt_launch_log_path(spec->dir, spec->first + rank, path, sizeof(path));
    *ret_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    return *ret_fd >= 0 ? 0 : nt_fail(err, NT_E_IO, errno, "create %s", path);
}

/* Everything that a start needs and that can fail without a process. */
struct prepared {
    char **args, **env[NT_LAUNCH_MAX];
    int log[NT_LAUNCH_MAX];
};

static void unprepare(struct prepared *x, unsigned world)
{
    for (unsigned r = 0; x != NULL && r < world; r++) {
        free_env(x->env[r]);
        if (x->log[r] >= 0) {
            (void)close(x->log[r]);
        }
    }
    if (x != NULL) {
        free((void *)x->args);
    }
    free(x);
}

static int prepare(const struct nt_launch_spec *spec, struct prepared *x, struct nt_err *err)
{
    int rc = 0;

    for (unsigned r = 0; r < spec->world; r++) {
        x->log[r] = -1;
    }
    x->args = rank_args(spec);
    for (unsigned r = 0; rc == 0 && r < spec->world; r++) {
        x->env[r] = rank_env(spec, r);
        rc = x->args == NULL || x->env[r] == NULL
                 ? nt_fail(err, NT_E_NOMEM, 0, "launch of %u processes", spec->world)
                 : open_log(spec, r, &x->log[r], err);
    }
    return rc;
}

/* uv_spawn() makes a handle that must be closed whatever it returns. */
static void spawn(uv_loop_t *loop, const struct nt_launch_spec *spec, const struct prepared *x,
                  struct process *p)
{
    uv_stdio_container_t io[3] = {{.flags = UV_IGNORE},
                                  {.flags = UV_INHERIT_FD, .data.fd = x->log[p->rank]},
                                  {.flags = UV_INHERIT_FD, .data.fd = x->log[p->rank]}};
    uv_process_options_t o = {.file = spec->program,
                              .args = x->args,
                              .env = x->env[p->rank],
                              .cwd = spec->dir,
                              .flags = UV_PROCESS_DETACHED,
                              .stdio = io,
                              .stdio_count = 3,
                              .exit_cb = on_process_exit};

    p->error = uv_spawn(loop, &p->handle, &o);
    p->handle.data = p;
    p->alive = p->error == 0;
    if (p->alive) {
        nt_guard_add(&p->launch->guard, p->handle.pid);
    } else {
        uv_close((uv_handle_t *)&p->handle, on_process_closed);
    }
}

static int local_start(uv_loop_t *loop, const struct nt_launch_spec *spec,
                       const struct nt_launch_events *events, struct nt_launch **ret,
                       struct nt_err *err)
{
    struct nt_launch *l = NULL;
    struct prepared *x = NULL;
    int rc;

    if (spec->world == 0 || spec->world > NT_LAUNCH_MAX) {
        return nt_fail(err, NT_E_INVAL, 0, "%u processes: must be 1 to %d", spec->world,
                       NT_LAUNCH_MAX);
    }
    l = calloc(1, sizeof(*l) + spec->world * sizeof(l->process[0]));
    x = calloc(1, sizeof(*x));
    if (l == NULL || x == NULL) {
        free(l);
        free(x);
        return nt_fail(err, NT_E_NOMEM, 0, "launch of %u processes", spec->world);
    }
    rc = prepare(spec, x, err);
    if (rc == 0) {
        rc = nt_guard_start(
            &(struct nt_guard_spec){.mark = spec->mark, .grace_ms = NT_LAUNCH_ORPHAN_MS}, &l->guard,
            err);
    }
    if (rc == 0) {
        l->events = *events;
        l->world = l->open = spec->world;
        l->look.data = l;
        (void)uv_timer_init(loop, &l->look);
        (void)uv_timer_start(&l->look, on_look, NT_LAUNCH_LOG_LOOK_MS, NT_LAUNCH_LOG_LOOK_MS);
        for (unsigned r = 0; r < spec->world; r++) {
            l->process[r].launch = l;
            l->process[r].rank = r;
            l->process[r].log = x->log[r];
            spawn(loop, spec, x, &l->process[r]);
            x->log[r] = -1; /* closed with the launch */
        }
        *ret = l;
        l = NULL;
    }
    unprepare(x, spec->world);
    free(l);
    return rc;
}

static void local_signal(struct nt_launch *l, int signum)
{
    for (unsigned r = 0; r < l->world; r++) {
        if (l->process[r].alive) {
            (void)uv_kill(-l->process[r].handle.pid, signum);
        }
    }
}

static void local_abandon(struct nt_launch *l)
{
    for (unsigned r = 0; r < l->world; r++) {
        struct process *p = &l->process[r];
        if (p->alive) {
            p->alive = false;
            p->reported = true;
            uv_close((uv_handle_t *)&p->handle, on_process_closed);
        }
    }
}

static pid_t local_pid(const struct nt_launch *l, unsigned rank)
{
    return l->process[rank].alive ? l->process[rank].handle.pid : 0;
}

const struct nt_launcher nt_launcher_local = {.name = "local",
                                              .start = local_start,
                                              .signal = local_signal,
                                              .abandon = local_abandon,
                                              .pid = local_pid};
