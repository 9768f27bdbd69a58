#include "tuner/service/child.h"
#include "tuner/base/log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4096, TAIL_BYTES = 1024, SWEEP_MS = 20 };

struct nt_child {
    struct nt_children *group;
    uv_process_t proc;
    uv_pipe_t in, out, errs;
    uv_timer_t timer;
    uv_write_t write;
    struct nt_child_spec spec;
    char *input;
    struct nt_buf output, line;
    char tail[TAIL_BYTES];
    struct nt_queue_end end;
    bool exited, out_ended, err_ended, in_closed, stopping, timed_out, closing, unborn;
    int pid;
    unsigned open;
};

void nt_children_init(struct nt_children *g, uv_loop_t *loop)
{
    g->loop = loop;
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* The slot of a pid; of 0 a free one; NULL: none. */
static int *slot(struct nt_children *g, int pid)
{
    for (size_t i = 0; i < NT_CHILDREN; i++) {
        if (g->pids[i] == pid) {
            return &g->pids[i];
        }
    }
    return NULL;
}

/* Kills and reaps children of ours that we did not start; how many are still there. */
static unsigned sweep_orphans(struct nt_children *g)
{
    char path[64], text[4096], *word, *rest = NULL;
    unsigned left = 0;
    size_t n;
    FILE *f;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "re");
    if (f == NULL) {
        return 0;
    }
    n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    (void)fclose(f);
    for (word = strtok_r(text, " \n", &rest); word != NULL; word = strtok_r(NULL, " \n", &rest)) {
        int pid = (int)strtol(word, NULL, 10);
        if (pid > 0 && slot(g, pid) == NULL) {
            (void)kill(pid, SIGKILL);
            left += waitpid(pid, NULL, WNOHANG) != pid;
        }
    }
    return left;
}

/* --- the end ------------------------------------------------------------------------------------
 */

static void on_closed(uv_handle_t *h)
{
    struct nt_child *c = h->data;
    if (--c->open == 0) {
        if (!c->unborn) {
            c->spec.on_done(c->spec.data, &c->end, c->timed_out, &c->output, c->tail);
        }
        nt_buf_done(&c->output);
        nt_buf_done(&c->line);
        free(c->input);
        free(c);
    }
}

static void close_all(struct nt_child *c)
{
    if (!c->closing) {
        c->closing = true;
        uv_close((uv_handle_t *)&c->proc, on_closed);
        if (!c->in_closed) {
            uv_close((uv_handle_t *)&c->in, on_closed);
        }
        uv_close((uv_handle_t *)&c->out, on_closed);
        uv_close((uv_handle_t *)&c->errs, on_closed);
        uv_close((uv_handle_t *)&c->timer, on_closed);
    }
}

static void on_sweep(uv_timer_t *t)
{
    struct nt_child *c = t->data;
    if (sweep_orphans(c->group) == 0) {
        close_all(c); /* what is still in the pipes is nobody's */
    }
}

static void settle(struct nt_child *c)
{
    if (c->exited && c->out_ended && c->err_ended && sweep_orphans(c->group) == 0) {
        close_all(c);
    } else if (c->exited) { /* a process that it left holds the pipes, or is dying */
        (void)uv_timer_start(&c->timer, on_sweep, SWEEP_MS, SWEEP_MS);
    }
}

static void on_exit_cb(uv_process_t *p, int64_t status, int signum)
{
    struct nt_child *c = p->data;
    c->exited = true;
    c->end.exit_code = (int)status;
    c->end.signal = signum;
    *slot(c->group, c->pid) = 0;
    (void)kill(-c->pid, SIGKILL); /* the rest of its group; the number is not used again before */
    settle(c);
}

static void on_late(uv_timer_t *t)
{
    struct nt_child *c = t->data;
    if (!c->stopping) {
        c->timed_out = true;
        nt_child_stop(c);
    } else if (!c->exited) {
        (void)kill(-c->pid, SIGKILL);
        (void)kill(c->pid, SIGKILL);
    }
}

void nt_child_stop(struct nt_child *c)
{
    if (!c->stopping && !c->exited) {
        c->stopping = true;
        (void)kill(c->pid, SIGTERM);
        (void)uv_timer_start(&c->timer, on_late, c->spec.grace_ms, 1000);
    }
}

/* --- pipes --------------------------------------------------------------------------------------
 */

static void give(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct nt_children *g = ((struct nt_child *)h->data)->group;
    (void)suggested;
    *buf = uv_buf_init(g->block, sizeof(g->block)); /* one read at a time on one loop */
}

static void on_out(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct nt_child *c = s->data;
    if (n > 0) {
        nt_buf_add(&c->output, buf->base, (size_t)n);
        if (c->output.failed) {
            nt_child_stop(c);
        }
    } else if (n < 0) {
        c->out_ended = true;
        (void)uv_read_stop(s);
        settle(c);
    }
}

static void take_line(struct nt_child *c)
{
    const char *line = nt_buf_str(&c->line);
    size_t n = strlen(line), room = sizeof(c->tail) - 1;

    if (c->spec.on_line != NULL) {
        c->spec.on_line(c->spec.data, line);
    }
    if (line[0] != '{' && n > 0) { /* words for people */
        size_t had = strlen(c->tail);
        n = n < room ? n : room;
        if (had + n + 1 > room) {
            size_t cut = had + n + 1 - room;
            cut = cut < had ? cut : had;
            memmove(c->tail, c->tail + cut, had - cut + 1);
            had -= cut;
        }
        (void)snprintf(c->tail + had, sizeof(c->tail) - had, "%s%.*s", had > 0 ? "\n" : "", (int)n,
                       line);
    }
    nt_buf_clear(&c->line);
}

static void on_err(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct nt_child *c = s->data;
    for (ssize_t i = 0; i < n; i++) {
        if (buf->base[i] == '\n' || c->line.len + 1 >= LINE_MAX_BYTES) {
            take_line(c);
        }
        if (buf->base[i] != '\n' && buf->base[i] != '\0') {
            nt_buf_add(&c->line, &buf->base[i], 1);
        }
    }
    if (n < 0) {
        if (c->line.len > 0) {
            take_line(c);
        }
        c->err_ended = true;
        (void)uv_read_stop(s);
        settle(c);
    }
}

/* Nothing more comes: its end of file. */
static void end_input(struct nt_child *c)
{
    if (!c->in_closed && !c->closing) {
        c->in_closed = true;
        uv_close((uv_handle_t *)&c->in, on_closed);
    }
}

static void on_written(uv_write_t *w, int status)
{
    (void)status;
    end_input(w->data);
}

/* --- the start ----------------------------------------------------------------------------------
 */

static int spawn(struct nt_child *c)
{
    static const uv_stdio_flags in = UV_READABLE_PIPE, out = UV_WRITABLE_PIPE;
    uv_stdio_container_t io[3] = {
        {.flags = UV_CREATE_PIPE, .data.stream = (uv_stream_t *)&c->in},
        {.flags = UV_CREATE_PIPE, .data.stream = (uv_stream_t *)&c->out},
        {.flags = UV_CREATE_PIPE, .data.stream = (uv_stream_t *)&c->errs}};
    uv_process_options_t o = {.exit_cb = on_exit_cb,
                              .file = c->spec.args[0],
                              .args = (char **)(void *)c->spec.args,
                              .flags = UV_PROCESS_DETACHED,
                              .stdio_count = 3,
                              .stdio = io};
    io[0].flags = (uv_stdio_flags)(io[0].flags | in);
    io[1].flags = (uv_stdio_flags)(io[1].flags | out);
    io[2].flags = (uv_stdio_flags)(io[2].flags | out);
    return uv_spawn(c->group->loop, &c->proc, &o);
}

static void limit_memory(const struct nt_child *c)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they reserve terabytes */
    struct rlimit l = {.rlim_cur = c->spec.memory_bytes, .rlim_max = c->spec.memory_bytes};
    if (c->spec.memory_bytes != 0) {
        (void)prlimit(c->pid, RLIMIT_AS, &l, NULL);
    }
#else
    (void)c;
#endif
}

static struct nt_child *make(struct nt_children *g, const struct nt_child_spec *spec)
{
    struct nt_child *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return NULL;
    }
    c->group = g;
    c->spec = *spec;
    c->end.spawned = true;
    nt_buf_init(&c->output, spec->output_max);
    nt_buf_init(&c->line, LINE_MAX_BYTES);
    if (spec->input != NULL && (c->input = strdup(spec->input)) == NULL) {
        free(c);
        return NULL;
    }
    (void)uv_pipe_init(g->loop, &c->in, 0);
    (void)uv_pipe_init(g->loop, &c->out, 0);
    (void)uv_pipe_init(g->loop, &c->errs, 0);
    (void)uv_timer_init(g->loop, &c->timer);
    c->proc.data = c->in.data = c->out.data = c->errs.data = c->timer.data = c->write.data = c;
    c->open = 5;
    return c;
}

int nt_child_start(struct nt_children *g, const struct nt_child_spec *spec, struct nt_child **ret,
                   struct nt_err *err)
{
    struct nt_child *c;
    int *place = slot(g, 0), rc;

    if (place == NULL) {
        return nt_fail(err, NT_E_NO, 0, "%d children run already", NT_CHILDREN);
    }
    c = make(g, spec);
    if (c == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "child");
    }
    rc = spawn(c);
    if (rc != 0) {
        c->unborn = true;
        close_all(c);
        return nt_fail(err, NT_E_IO, -rc, "start %s", spec->args[0]);
    }
    c->pid = c->proc.pid;
    *place = c->pid;
    limit_memory(c);
    nt_turns_give_way(c->pid, spec->turns);
    (void)uv_read_start((uv_stream_t *)&c->out, give, on_out);
    (void)uv_read_start((uv_stream_t *)&c->errs, give, on_err);
    if (c->input != NULL) {
        uv_buf_t b = uv_buf_init(c->input, (unsigned)strlen(c->input));
        if (uv_write(&c->write, (uv_stream_t *)&c->in, &b, 1, on_written) != 0) {
            end_input(c);
        }
    } else {
        end_input(c);
    }
    if (spec->time_ms != 0) {
        (void)uv_timer_start(&c->timer, on_late, spec->time_ms, 0);
    }
    *ret = c;
    return 0;
}

int nt_child_pid(const struct nt_child *c)
{
    return c->pid;
}
