#include "tuner/job/peers.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "tuner/base/buf.h"
#include "tuner/base/json.h"
#include "tuner/launch/loop.h"

struct ask {
    uv_process_t process;
    uv_pipe_t out;
    uv_timer_t timer;
    struct nt_buf text;
    char chunk[4096];
    int64_t status;
};

static void on_ended(uv_process_t *p, int64_t status, int signum)
{
    struct ask *a = p->data;
    a->status = signum != 0 ? -1 : status;
    uv_close((uv_handle_t *)&a->timer, NULL);
    uv_close((uv_handle_t *)p, NULL);
}

/* A rank of the same group may hang on a device; it is ended as a whole. */
static void on_timer(uv_timer_t *t)
{
    struct ask *a = t->data;
    (void)uv_kill(-a->process.pid, SIGKILL);
}

static void on_alloc(uv_handle_t *h, size_t wanted, uv_buf_t *ret)
{
    struct ask *a = h->data;
    (void)wanted;
    *ret = uv_buf_init(a->chunk, sizeof(a->chunk));
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct ask *a = s->data;
    if (n > 0) {
        nt_buf_add(&a->text, buf->base, (size_t)n);
    } else if (n < 0) {
        uv_close((uv_handle_t *)s, NULL);
    }
}

static void start(uv_loop_t *loop, struct ask *a, const char *program, const char *const *env,
                  uint32_t most_ms)
{
    char *args[] = {(char *)program, (char *)"peers", NULL};
    uv_stdio_container_t io[3] = {
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&a->out},
        {.flags = UV_IGNORE}};
    uv_process_options_t o = {.exit_cb = on_ended,
                              .file = program,
                              .args = args,
                              .env = (char **)env,
                              .flags = UV_PROCESS_DETACHED,
                              .stdio = io,
                              .stdio_count = 3};

    a->process.data = a->out.data = a->timer.data = a;
    (void)uv_pipe_init(loop, &a->out, 0);
    (void)uv_timer_init(loop, &a->timer);
    if (uv_spawn(loop, &a->process, &o) != 0) {
        uv_close((uv_handle_t *)&a->process, NULL);
        uv_close((uv_handle_t *)&a->out, NULL);
        uv_close((uv_handle_t *)&a->timer, NULL);
        return;
    }
    (void)uv_timer_start(&a->timer, on_timer, most_ms, 0);
    (void)uv_read_start((uv_stream_t *)&a->out, on_alloc, on_read);
}

void nt_peers_ask(const char *program, const char *const *env, uint32_t most_ms, json_t **ret)
{
    struct ask a = {.status = -1};
    uv_loop_t loop;

    *ret = NULL;
    if (nt_loop_open(&loop, 0, NULL) != 0) {
        return;
    }
    nt_buf_init(&a.text, 1 << 20);
    start(&loop, &a, program, env, most_ms);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    nt_assert(uv_loop_close(&loop) == 0);
    if (a.status == 0 && nt_json_parse(nt_buf_str(&a.text), a.text.len, "peers", ret, NULL) != 0) {
        *ret = NULL;
    }
    nt_buf_done(&a.text);
}

static const char *const trials[] = {"copy", "write", "read"};
enum { TRIALS = sizeof(trials) / sizeof(trials[0]) };

static bool is_broken(const json_t *pair)
{
    for (size_t i = 0; i < TRIALS; i++) {
        if (strcmp(nt_json_opt_str(pair, trials[i], "ok"), "ok") != 0) {
            return true;
        }
    }
    return false;
}

static void say_pair(const json_t *pair, char *out, size_t size)
{
    double rate = nt_json_opt_num(pair, "bytes_per_s", 0);
    size_t n = (size_t)snprintf(out, size, "%d to %d: %s", (int)nt_json_opt_i64(pair, "from", -1),
                                (int)nt_json_opt_i64(pair, "to", -1),
                                nt_json_opt_bool(pair, "access", false) ? "access" : "no access");
    for (size_t i = 0; i < TRIALS && n < size; i++) {
        const char *said = nt_json_opt_str(pair, trials[i], "");
        if (*said != '\0') {
            n += (size_t)snprintf(out + n, size - n, ", %s %.60s", trials[i], said);
        }
    }
    if (rate > 0 && n < size) {
        (void)snprintf(out + n, size - n, ", %.0f GB/s", rate / 1e9);
    }
}

static json_t *words(const json_t *doc, bool all)
{
    json_t *list = json_array(), *pair;
    char text[320];
    size_t i;

    json_array_foreach(json_object_get(doc, "pairs"), i, pair)
    {
        if (all || is_broken(pair)) {
            say_pair(pair, text, sizeof(text));
            (void)json_array_append_new(list, json_string(text));
        }
    }
    if (all && json_is_object(doc)) {
        (void)snprintf(text, sizeof(text), "multicast: %.200s",
                       nt_json_opt_str(doc, "multicast", "not asked"));
        (void)json_array_append_new(list, json_string(text));
    }
    return list;
}

json_t *nt_peers_words(const json_t *doc)
{
    return words(doc, true);
}

json_t *nt_peers_broken(const json_t *doc)
{
    return words(doc, false);
}
