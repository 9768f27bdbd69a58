#include "tuner/launch/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tuner/launch/greet.h"
#include "tuner/launch/guard.h"

enum { COMMAND_WORDS = 96, CONTACT = NT_CONTACT_MAX + NT_SECRET_LEN + 16 };

struct command {
    uv_process_t process;
    uv_pipe_t in; /* the contact goes in, where it does not go by a variable */
    struct nt_commands *all;
    bool alive;
};

struct nt_commands {
    struct nt_commands_events events;
    struct nt_guard guard;
    unsigned n, open; /* handles not closed */
    char contact[CONTACT];
    struct command v[NT_REMOTE_HOSTS];
};

static void on_closed(uv_handle_t *h)
{
    struct command *one = h->data;
    struct nt_commands *c = one->all;

    if (--c->open == 0) {
        const struct nt_commands_events events = c->events;
        nt_guard_end(&c->guard);
        explicit_bzero(c->contact, sizeof(c->contact));
        free(c);
        events.on_closed(events.data);
    }
}

static void on_exit_of(uv_process_t *p, int64_t status, int signum)
{
    struct command *one = p->data;

    one->alive = false;
    (void)uv_kill(-p->pid, SIGKILL); /* what is left of its group */
    nt_guard_drop(&one->all->guard, p->pid);
    uv_close((uv_handle_t *)p, on_closed);
    one->all->events.on_exit(one->all->events.data, (unsigned)(one - one->all->v), status, signum);
}

static void on_told(uv_write_t *req, int status)
{
    struct command *one = req->data;
    (void)status;
    free(req);
    uv_close((uv_handle_t *)&one->in, on_closed);
}

/* The contact as one line, and the end. */
static void tell_contact(struct command *one)
{
    uv_buf_t b[2] = {uv_buf_init(one->all->contact, (unsigned)strlen(one->all->contact)),
                     uv_buf_init((char *)"\n", 1)};
    uv_write_t *req = malloc(sizeof(*req));

    if (req != NULL) {
        req->data = one;
    }
    if (req == NULL || uv_write(req, (uv_stream_t *)&one->in, b, 2, on_told) != 0) {
        free(req);
        uv_close((uv_handle_t *)&one->in, on_closed);
    }
}

/* The caller's, for the launcher is the user's own program, and the contact. */
static char **make_env(const struct nt_commands *c, bool each, char *own, size_t size)
{
    size_t n = 0, out = 0;
    char **env;

    while (environ[n] != NULL) {
        n++;
    }
    env = (char **)calloc(n + 2, sizeof(env[0]));
    for (size_t i = 0; env != NULL && i < n; i++) {
        if (strncmp(environ[i], NT_ENV_LAUNCH "=", strlen(NT_ENV_LAUNCH) + 1) != 0) {
            env[out++] = environ[i];
        }
    }
    if (env != NULL && !each) {
        (void)snprintf(own, size, NT_ENV_LAUNCH "=%s", c->contact);
        env[out] = own;
    }
    return env;
}

/* 0, or libuv's code. uv_spawn() makes a handle that must be closed whatever it returns. */
static int spawn(uv_loop_t *loop, struct nt_commands *c, const char **words, char **env, bool tells,
                 int log)
{
    struct command *one = &c->v[c->n++];
    uv_stdio_container_t io[3] = {{.flags = tells ? UV_CREATE_PIPE | UV_READABLE_PIPE : UV_IGNORE,
                                   .data.stream = (uv_stream_t *)&one->in},
                                  {.flags = UV_INHERIT_FD, .data.fd = log},
                                  {.flags = UV_INHERIT_FD, .data.fd = log}};
    uv_process_options_t o = {.file = words[0],
                              .args = (char **)words,
                              .env = env,
                              .flags = UV_PROCESS_DETACHED,
                              .stdio = io,
                              .stdio_count = 3,
                              .exit_cb = on_exit_of};
    int rc;

    one->all = c;
    if (tells) {
        (void)uv_pipe_init(loop, &one->in, 0);
        one->in.data = one;
        c->open++;
    }
    rc = uv_spawn(loop, &one->process, &o);
    one->process.data = one;
    one->alive = rc == 0;
    c->open++;
    if (rc == 0) {
        nt_guard_add(&c->guard, one->process.pid);
        if (tells) {
            tell_contact(one);
        }
    } else {
        uv_close((uv_handle_t *)&one->process, on_closed);
        if (tells) {
            uv_close((uv_handle_t *)&one->in, on_closed);
        }
    }
    return rc;
}

static int start_all(uv_loop_t *loop, struct nt_commands *c, const struct nt_remote *r, int log,
                     int *ret_failed, struct nt_err *err)
{
    const char *words[COMMAND_WORDS];
    char own[CONTACT + 32];
    char **env = make_env(c, r->kind->each, own, sizeof(own));
    struct nt_buf text;
    int rc = env == NULL ? nt_fail(err, NT_E_NOMEM, 0, "launch") : 0;

    nt_buf_init(&text, 1 << 16);
    *ret_failed = 0;
    for (unsigned i = 0; rc == 0 && *ret_failed == 0 && i < (r->kind->each ? r->nodes : 1); i++) {
        rc = nt_remote_command(r, i, &text, words, COMMAND_WORDS, err);
        if (rc == 0) {
            *ret_failed = spawn(loop, c, words, env, r->kind->each, log);
        }
    }
    nt_buf_done(&text);
    explicit_bzero(own, sizeof(own));
    free((void *)env);
    return rc;
}

int nt_commands_start(uv_loop_t *loop, const struct nt_remote *remote, const char *contact,
                      const char *log, const struct nt_commands_events *events,
                      struct nt_commands **ret, int *ret_failed, struct nt_err *err)
{
    struct nt_commands *c = calloc(1, sizeof(*c));
    int fd, rc;

    if (c == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "launch");
    }
    c->events = *events;
    (void)snprintf(c->contact, sizeof(c->contact), "%s", contact);
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    rc = fd < 0 ? nt_fail(err, NT_E_IO, errno, "create %s", log)
                : nt_guard_start(&(struct nt_guard_spec){.grace_ms = NT_LAUNCH_ORPHAN_MS},
                                 &c->guard, err);
    rc = rc == 0 ? start_all(loop, c, remote, fd, ret_failed, err) : rc;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (rc != 0 && c->open == 0) { /* words of the first host are those of all: nothing runs */
        nt_guard_end(&c->guard);
        free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

bool nt_commands_alive(const struct nt_commands *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        if (c->v[i].alive) {
            return true;
        }
    }
    return false;
}

void nt_commands_signal(struct nt_commands *c, int signum)
{
    for (unsigned i = 0; i < c->n; i++) {
        if (c->v[i].alive) {
            (void)uv_kill(-c->v[i].process.pid, signum);
        }
    }
}
