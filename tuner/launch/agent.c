#include "tuner/launch/agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/base/cli.h"
#include "tuner/base/hash.h"
#include "tuner/base/text.h"
#include "tuner/launch/greet.h"
#include "tuner/launch/loop.h"
#include "tuner/launch/shm_names.h"
#include "tuner/launch/tunnel.h"

enum { LISTEN_MORE = 8, KILL_MS = 3000, LEAVE_MS = 5000, CHUNK = 65536, LINE = 2048 };
enum { TMP_LONGEST = 60, DIR_SIZE = 112, PATH_SIZE = DIR_SIZE + 32, TAG_LEN = 8 };
#define PREFIX "nccltune-agent-"

struct args {
    bool from_stdin;
    uint32_t node;
    const char *number_from;
};
enum { NO_NODE = UINT32_MAX };
static const struct args defaults = {.node = NO_NODE};
static const struct nt_opt opts[] = {
    NT_OPT(NT_O_FLAG, args, from_stdin, "stdin", 0, NULL,
           "read the contact from the first line of stdin, not from " NT_ENV_LAUNCH),
    NT_OPT(NT_O_U32, args, node, "node", 0, "N", "number of this host"),
    NT_OPT(NT_O_STR, args, number_from, "number-from", 0, "NAME",
           "variable of the launcher with the number of this host"),
    {0}};
static const struct nt_command command = {
    .name = "nccltune-agent",
    .summary = "starts the ranks of one host; started itself by nccltune's launcher",
    .args = "",
    .opts = opts,
    .defaults = &defaults,
    .size = sizeof(struct args)};

struct file {
    char *was, is[PATH_SIZE]; /* path at the driver, and here */
};

struct agent {
    uv_loop_t loop;
    uv_tcp_t driver;
    uv_pipe_t listener;
    uv_timer_t timer;
    uv_signal_t signals[3];
    struct nt_wire wire;
    struct nt_tunnel tunnel;
    struct nt_launch *launch;
    struct nt_shm_names shm;
    unsigned world, first, nfiles;
    size_t log_most;
    struct file files[NT_AGENT_FILES];
    char dir[DIR_SIZE], chunk[CHUNK];
    bool started, ending, kill_sent;
    int rc;
};

static uv_stream_t *driver(struct agent *a)
{
    return (uv_stream_t *)&a->driver;
}

/* ---- the end ---- */

static void close_if_open(void *h)
{
    if (!uv_is_closing(h)) {
        uv_close(h, NULL);
    }
}

static void all_closed(void *data)
{
    struct agent *a = data;

    close_if_open(&a->driver);
}

/* Nothing of ours runs any more: the loop ends when these are closed. Once. */
static void leave(struct agent *a)
{
    (void)uv_read_stop(driver(a));
    close_if_open(&a->listener);
    close_if_open(&a->timer);
    nt_loop_close_signals(a->signals, 3, true); /* what is left to do is to clear up */
    if (!nt_tunnel_close(&a->tunnel)) {
        all_closed(a);
    }
}

static void note_shm(struct agent *a)
{
    for (unsigned r = 0; a->launch != NULL && r < a->world; r++) {
        nt_shm_names_read(&a->shm, nt_launcher_local.pid(a->launch, r));
    }
}

static void on_timer(uv_timer_t *t);

/* TERM, then KILL, then no more waiting, as far as it takes. */
static void end(struct agent *a)
{
    if (!a->ending) {
        a->ending = true;
        if (a->launch == NULL) {
            leave(a);
            return;
        }
        note_shm(a);
        nt_launcher_local.signal(a->launch, SIGTERM);
        (void)uv_timer_start(&a->timer, on_timer, NT_LAUNCH_ORPHAN_MS, 0);
    }
}

static void on_timer(uv_timer_t *t)
{
    struct agent *a = t->data;

    if (a->launch == NULL) {
        end(a);
    } else if (!a->kill_sent) {
        a->kill_sent = true;
        nt_launcher_local.signal(a->launch, SIGKILL);
        (void)uv_timer_start(&a->timer, on_timer, KILL_MS, 0);
    } else {
        nt_launcher_local.abandon(a->launch);
    }
}

static void on_signal(uv_signal_t *s, int signum)
{
    (void)signum;
    end(s->data);
}

static void cannot(struct agent *a, const struct nt_err *err)
{
    (void)fprintf(stderr, "nccltune-agent: %s\n", err->msg);
    nt_wire_send(driver(a), NT_WIRE_WORDS, 0, err->msg, strlen(err->msg));
    a->rc = -(int)err->code;
}

/* ---- ranks ---- */

static void send_exit(struct agent *a, unsigned rank, const struct nt_launch_exit *how)
{
    char path[PATH_SIZE], head[64];
    struct nt_buf out;
    size_t most = a->log_most > 0 ? a->log_most : NT_AGENT_LOG_TAIL;
    int n = snprintf(head, sizeof(head), "%lld%c%d%c%d", (long long)how->status, 0, how->signal, 0,
                     how->error),
        fd;

    nt_buf_init(&out, NT_WIRE_MAX);
    nt_buf_add(&out, head, (size_t)n + 1);
    nt_launch_log_path(a->dir, a->first + rank, path, sizeof(path));
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        off_t size = lseek(fd, 0, SEEK_END);
        off_t at = a->log_most == 0 && size > (off_t)most ? size - (off_t)most : 0;
        ssize_t got = 1;
        for (size_t have = 0; got > 0 && have < most; have += (size_t)got) {
            size_t want = most - have < CHUNK ? most - have : CHUNK;
            got = pread(fd, a->chunk, want, at + (off_t)have);
            nt_buf_add(&out, a->chunk, got > 0 ? (size_t)got : 0);
            got = got > 0 ? got : 0;
        }
        (void)close(fd);
    }
    nt_wire_send(driver(a), NT_WIRE_EXIT, rank, nt_buf_str(&out), out.len);
    nt_buf_done(&out);
}

static void on_exit_of(void *data, unsigned rank, const struct nt_launch_exit *how)
{
    struct agent *a = data;

    if (how->signal != 0 || how->status != 0) {
        note_shm(a); /* what the others share with it */
    }
    nt_tunnel_drain(&a->tunnel);
    send_exit(a, rank, how);
}

static void on_launch_closed(void *data)
{
    struct agent *a = data;

    a->launch = NULL;
    (void)nt_shm_names_unlink(&a->shm);
    if (a->ending) {
        leave(a);
    } else { /* END, or the end of the connection, is to follow */
        (void)uv_timer_start(&a->timer, on_timer, LEAVE_MS, 0);
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct agent *a = listener->data;
    if (status == 0) {
        nt_tunnel_accept(&a->tunnel, listener);
    }
}

/* ---- what the driver says ---- */

/* A file that a variable names: a copy in our folder. */
static int take_file(struct agent *a, const struct nt_frame *f, struct nt_err *err)
{
    size_t at = 0;
    const char *was = nt_wire_string(f, &at);
    struct file *x = &a->files[a->nfiles];

    if (was == NULL || a->nfiles == NT_AGENT_FILES || (x->was = strdup(was)) == NULL) {
        return nt_fail(err, NT_E_PROTO, 0, "a file that cannot be kept");
    }
    (void)snprintf(x->is, sizeof(x->is), "%s/file-%u", a->dir, a->nfiles++);
    return nt_write_file(x->is, f->data + at, f->len - at, 0600, err);
}

/* What a host has of its own, whatever the driver has. */
static bool is_ours(const char *name, size_t len)
{
    static const char *const own[] = {"HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "USER", "LOGNAME"};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (strlen(own[i]) == len && strncmp(own[i], name, len) == 0) {
            return true;
        }
    }
    return false;
}

static void add(struct nt_buf *out, const char *name, size_t len, const char *value)
{
    nt_buf_add(out, name, len);
    nt_buf_printf(out, "=%s", value);
    nt_buf_add(out, "", 1);
}

/* One variable of the driver's, as it is here. */
static void take_variable(const struct agent *a, const char *word, const char *socket,
                          struct nt_buf *out)
{
    size_t len = strcspn(word, "=");
    const char *value = word[len] == '=' ? word + len + 1 : "";
    char here[PATH_SIZE];

    if (is_ours(word, len)) {
        return;
    }
    if (strncmp(value, "unix:", 5) == 0 && strcmp(value + 5, socket) == 0) {
        (void)snprintf(here, sizeof(here), "unix:%s/driver", a->dir);
        value = here;
    }
    for (unsigned i = 0; i < a->nfiles; i++) {
        value = strcmp(value, a->files[i].was) == 0 ? a->files[i].is : value;
    }
    add(out, word, len, value);
}

static void add_ours(struct nt_buf *out)
{
    static const char *const names[] = {"HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", NULL};

    for (const char *const *n = names; *n != NULL; n++) {
        const char *value = getenv(*n);
        const struct passwd *me =
            value == NULL && strcmp(*n, "HOME") == 0 ? getpwuid(geteuid()) : NULL;
        value = me != NULL ? me->pw_dir : value;
        if (value != NULL) {
            add(out, *n, strlen(*n), value);
        }
    }
}

/* Which of the ranks are here: for those that share out what a host has. */
static void add_place(const struct agent *a, struct nt_buf *out)
{
    char number[16];

    (void)snprintf(number, sizeof(number), "%u", a->first);
    add(out, "NCCLTUNE_HOST_FIRST", strlen("NCCLTUNE_HOST_FIRST"), number);
    (void)snprintf(number, sizeof(number), "%u", a->world);
    add(out, "NCCLTUNE_HOST_RANKS", strlen("NCCLTUNE_HOST_RANKS"), number);
}

static int listen_here(struct agent *a, struct nt_err *err)
{
    char path[PATH_SIZE];
    int rc;

    (void)snprintf(path, sizeof(path), "%s/driver", a->dir);
    rc = uv_pipe_bind(&a->listener, path);
    if (rc == 0) {
        rc = uv_listen((uv_stream_t *)&a->listener, (int)a->world + LISTEN_MORE, on_connection);
    }
    return rc == 0 ? 0 : nt_fail(err, NT_E_IO, -rc, "listen on %s", path);
}

struct start {
    const char *program, *rank_var, *socket;
    const char **args, **env;
    struct nt_buf text;
    char mark[PATH_SIZE + 32];
};

/* The array of the strings in a buffer; NULL without memory. The caller frees it. */
static const char **strings(const struct nt_buf *b)
{
    size_t n = 0;
    const char **list = (const char **)calloc(b->len + 1, sizeof(list[0]));

    for (size_t at = 0; list != NULL && at < b->len; at += strlen(b->data + at) + 1) {
        list[n++] = b->data + at;
    }
    return list;
}

static int read_start(struct agent *a, const struct nt_frame *f, struct start *s,
                      struct nt_err *err)
{
    const char *head[7];
    uint64_t number[4] = {0};
    size_t at = 0;
    bool good = true;

    for (size_t i = 0; i < 7 && good; i++) {
        head[i] = nt_wire_string(f, &at);
        good = head[i] != NULL && (i >= 4 || nt_parse_u64(head[i], &number[i], NULL) == 0);
    }
    if (!good || number[0] < 1 || number[0] > NT_LAUNCH_MAX || number[1] > NT_WIRE_MAX / 2 ||
        number[2] > f->len || number[3] > f->len) {
        return nt_fail(err, NT_E_PROTO, 0, "what is to be started is not understood");
    }
    a->world = (unsigned)number[0];
    a->log_most = (size_t)number[1];
    a->first = f->id;
    s->program = head[4];
    s->rank_var = head[5];
    s->socket = head[6];
    s->args = (const char **)calloc(number[2] + 1, sizeof(s->args[0]));
    for (size_t i = 0; s->args != NULL && i < number[2] && good; i++) {
        s->args[i] = nt_wire_string(f, &at);
        good = s->args[i] != NULL;
    }
    for (size_t i = 0; i < number[3] && good; i++) {
        const char *word = nt_wire_string(f, &at);
        good = word != NULL;
        if (good) {
            take_variable(a, word, s->socket, &s->text);
        }
    }
    add_ours(&s->text);
    add_place(a, &s->text);
    s->env = strings(&s->text);
    if (s->args == NULL || s->env == NULL || s->text.failed || !good) {
        return nt_fail(err, NT_E_PROTO, 0, "what is to be started is not whole");
    }
    return 0;
}

static int start(struct agent *a, const struct nt_frame *f, struct nt_err *err)
{
    struct nt_launch_events events = {on_exit_of, on_launch_closed, a};
    struct start s = {.program = NULL};
    int rc;

    if (a->started || a->ending) {
        return nt_fail(err, NT_E_PROTO, 0, "told to start twice");
    }
    a->started = true;
    nt_buf_init(&s.text, NT_WIRE_MAX);
    rc = read_start(a, f, &s, err);
    rc = rc == 0 ? listen_here(a, err) : rc;
    if (rc == 0) {
        (void)snprintf(s.mark, sizeof(s.mark), "NCCLTUNE_DRIVER=unix:%s/driver", a->dir);
        struct nt_launch_spec spec = {.program = s.program,
                                      .args = s.args,
                                      .env = s.env,
                                      .rank_var = s.rank_var,
                                      .mark = s.mark,
                                      .world = a->world,
                                      .first = a->first,
                                      .dir = a->dir};
        rc = nt_launcher_local.start(&a->loop, &spec, &events, &a->launch, err);
    }
    free((void *)s.args);
    free((void *)s.env);
    nt_buf_done(&s.text);
    return rc;
}

static int heard(struct agent *a, const struct nt_frame *f, struct nt_err *err)
{
    switch (f->kind) {
    case NT_WIRE_FILE:
        return take_file(a, f, err);
    case NT_WIRE_START:
        return start(a, f, err);
    case NT_WIRE_DATA:
    case NT_WIRE_CLOSE:
        nt_tunnel_hear(&a->tunnel, f);
        return 0;
    case NT_WIRE_SIGNAL:
        if (a->launch != NULL) {
            note_shm(a);
            nt_launcher_local.signal(a->launch, (int)f->id);
        }
        return 0;
    case NT_WIRE_END:
        end(a);
        return 0;
    default:
        return nt_fail(err, NT_E_PROTO, 0, "the driver said what only an agent may say");
    }
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct agent *a = h->data;
    (void)suggested;
    *buf = uv_buf_init(a->chunk, CHUNK);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct agent *a = s->data;
    struct nt_frame f;
    struct nt_err err = {0};
    int rc = n > 0 ? nt_wire_feed(&a->wire, buf->base, (size_t)n, &err) : 0;

    while (rc == 0 && (rc = nt_wire_next(&a->wire, &f, &err)) == 1) {
        rc = heard(a, &f, &err);
    }
    if (rc < 0) {
        cannot(a, &err);
    }
    if (rc < 0 || n < 0) {
        (void)uv_read_stop(s);
        end(a);
    }
}

/* ---- the beginning ---- */

static int contact_text(const struct args *o, char *line, size_t size, struct nt_err *err)
{
    const char *text = getenv(NT_ENV_LAUNCH);

    if (o->from_stdin) {
        size_t n = 0;
        while (n + 1 < size && read(STDIN_FILENO, line + n, 1) == 1 && line[n] != '\n') {
            n++;
        }
        line[n] = '\0';
        return n > 0 ? 0 : nt_fail(err, NT_E_INVAL, 0, "stdin has no contact: it must reach here");
    }
    if (text == NULL) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%s is not set: the launcher did not pass it on to this host",
                       NT_ENV_LAUNCH);
    }
    (void)snprintf(line, size, "%s", text);
    (void)unsetenv(NT_ENV_LAUNCH);
    return 0;
}

static int my_number(const struct args *o, unsigned *ret, struct nt_err *err)
{
    const char *text = o->number_from != NULL ? getenv(o->number_from) : NULL;
    uint64_t v = o->node;

    if (o->node == NO_NODE &&
        (text == NULL || nt_parse_u64(text, &v, NULL) != 0 || v > INT32_MAX)) {
        return nt_fail(err, NT_E_INVAL, 0, "%s is not set: which host this is cannot be told",
                       o->number_from != NULL ? o->number_from : "--node");
    }
    *ret = (unsigned)v;
    return 0;
}

/* The name that it goes by, and what is different on two hosts of one name. */
static void who_am_i(char *node, size_t size, struct nt_buf *out, unsigned number)
{
    const char *given = getenv(NT_ENV_NODE);
    char boot[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 && given == NULL ? read(fd, boot, sizeof(boot) - 1) : 0;

    if (fd >= 0) {
        (void)close(fd);
    }
    boot[n > 0 ? n : 0] = '\0';
    boot[strcspn(boot, "\n")] = '\0';
    if (given != NULL && given[0] != '\0') {
        (void)snprintf(node, size, "%s", given);
    } else if (gethostname(node, size - 1) != 0 || node[0] == '\0') {
        (void)snprintf(node, size, "host-%u", number);
    }
    node[size - 1] = '\0';
    for (char *c = node; *c != '\0'; c++) {
        *c = *c > ' ' && *c < 0x7f ? *c : '?';
    }
    nt_buf_printf(out, "%u%c%s%c%s %s%c%ld%c", number, 0, node, 0, node, boot, 0, (long)getpid(),
                  0);
}

/* Names those whose process ids are ours: a folder may be shared by hosts, or by containers. */
static void process_space(char tag[TAG_LEN + 1])
{
    char text[256] = "", hex[NT_HEX_LEN + 1];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, 64) : 0, m;

    if (fd >= 0) {
        (void)close(fd);
    }
    n = n > 0 ? n : 0;
    m = readlink("/proc/self/ns/pid", text + n, 64);
    nt_sha256_hex(text, (size_t)(n + (m > 0 ? m : 0)), hex);
    (void)snprintf(tag, TAG_LEN + 1, "%.*s", (int)TAG_LEN, hex);
}

/* Folders of agents that were killed: of ours, and their process is gone. */
static void sweep(const char *tmp, const char *tag)
{
    DIR *d = opendir(tmp);
    struct dirent *e, *x;

    while (d != NULL && (e = readdir(d)) != NULL) {
        char *rest = e->d_name;
        const size_t at = strlen(PREFIX) + TAG_LEN;
        bool named = strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0 &&
                     strncmp(e->d_name + strlen(PREFIX), tag, TAG_LEN) == 0 && rest[at] == '-';
        long pid = named ? strtol(e->d_name + at + 1, &rest, 10) : 0;
        struct stat st;
        int fd = pid > 0 && *rest == '-' && kill((pid_t)pid, 0) != 0 && errno == ESRCH
                     ? openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                     : -1;
        DIR *in = fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() ? fdopendir(fd) : NULL;
        while (in != NULL && (x = readdir(in)) != NULL) {
            (void)unlinkat(fd, x->d_name, 0);
        }
        if (in != NULL) {
            (void)closedir(in);
            (void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
        } else if (fd >= 0) {
            (void)close(fd);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
}

/* Short, for the socket in it. */
static int make_dir(struct agent *a, struct nt_err *err)
{
    const char *tmp = getenv("TMPDIR");
    char tag[TAG_LEN + 1];
    bool fits =
        tmp != NULL && tmp[0] == '/' && strlen(tmp) <= TMP_LONGEST && access(tmp, W_OK) == 0;

    tmp = fits ? tmp : "/tmp";
    process_space(tag);
    sweep(tmp, tag);
    (void)snprintf(a->dir, sizeof(a->dir), "%s/" PREFIX "%s-%ld-XXXXXX", tmp, tag, (long)getpid());
    if (mkdtemp(a->dir) == NULL) {
        a->dir[0] = '\0';
        return nt_fail(err, NT_E_IO, errno, "create a folder in %s", tmp);
    }
    return 0;
}

static void remove_dir(struct agent *a)
{
    char path[PATH_SIZE];

    for (unsigned r = 0; r < a->world; r++) {
        nt_launch_log_path(a->dir, a->first + r, path, sizeof(path));
        (void)unlink(path);
    }
    for (unsigned i = 0; i < a->nfiles; i++) {
        (void)unlink(a->files[i].is);
        free(a->files[i].was);
    }
    (void)snprintf(path, sizeof(path), "%s/driver", a->dir);
    (void)unlink(path);
    if (a->dir[0] != '\0') {
        (void)rmdir(a->dir);
    }
}

static int serve(struct agent *a, int fd, const struct nt_buf *who, struct nt_err *err)
{
    static const int signums[3] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t ends, before;
    int rc, no_dir;

    (void)sigemptyset(&ends);
    for (size_t i = 0; i < 3; i++) {
        (void)sigaddset(&ends, signums[i]);
    }
    (void)pthread_sigmask(SIG_BLOCK, &ends, &before); /* from the folder on, we end in order */
    no_dir = make_dir(a, err);                        /* the driver is told, so that it can tell */
    rc = uv_loop_init(&a->loop);
    if (rc != 0) {
        (void)close(fd);
        return nt_fail(err, NT_E_MISSING, -rc, "no event loop can be made");
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)uv_tcp_init(&a->loop, &a->driver);
    (void)uv_pipe_init(&a->loop, &a->listener, 0);
    (void)uv_timer_init(&a->loop, &a->timer);
    for (size_t i = 0; i < 3; i++) {
        (void)uv_signal_init(&a->loop, &a->signals[i]);
        a->signals[i].data = a;
        (void)uv_signal_start(&a->signals[i], on_signal, signums[i]);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    a->driver.data = a->listener.data = a->timer.data = a;
    nt_tunnel_init(&a->tunnel, &a->loop, driver(a), all_closed, a);
    rc = uv_tcp_open(&a->driver, fd);
    rc = rc == 0 ? uv_read_start(driver(a), on_alloc, on_read) : rc;
    if (rc != 0) {
        a->rc = nt_fail(err, NT_E_IO, -rc, "read from the driver");
        end(a);
    } else if (no_dir != 0) {
        cannot(a, err);
        end(a);
    } else {
        nt_wire_send(driver(a), NT_WIRE_NODE, 0, nt_buf_str(who), who->len);
    }
    (void)uv_run(&a->loop, UV_RUN_DEFAULT);
    nt_assert(uv_loop_close(&a->loop) == 0);
    return a->rc;
}

static int run(struct agent *a, const struct args *o, struct nt_err *err)
{
    char line[LINE], node[NT_NODE_LEN];
    struct nt_contact contact;
    struct nt_buf who;
    unsigned number = 0;
    int fd = -1, rc = contact_text(o, line, sizeof(line), err);

    nt_buf_init(&who, 1024);
    rc = rc == 0 ? nt_contact_read(line, &contact, err) : rc;
    rc = rc == 0 ? my_number(o, &number, err) : rc;
    if (rc == 0) {
        who_am_i(node, sizeof(node), &who, number);
        rc = nt_greet_connect(&contact, node, NT_VERSION, &fd, err);
    }
    explicit_bzero(&contact, sizeof(contact));
    explicit_bzero(line, sizeof(line));
    if (rc == 0) {
        nt_keep_alive(fd);
        nt_wire_init(&a->wire);
        rc = serve(a, fd, &who, err); /* closes fd */
        nt_wire_done(&a->wire);
    }
    nt_buf_done(&who);
    remove_dir(a);
    return rc;
}

int main(int argc, char **argv)
{
    struct agent *a = calloc(1, sizeof(*a));
    struct args o;
    unsigned nargs = 0;
    bool help = false;
    struct nt_err err = {0};
    int rc = a == NULL ? nt_fail(&err, NT_E_NOMEM, 0, "agent")
                       : nt_cli_parse(&command, argc - 1, argv + 1, &o, &nargs, &help, &err);

    if (rc == 0 && help) {
        nt_cli_help(command.name, &command, stdout);
    } else if (rc == 0) {
        rc = run(a, &o, &err);
    }
    if (rc != 0 && err.msg[0] != '\0') {
        (void)fprintf(stderr, "nccltune-agent: %s\n", err.msg);
    }
    free(a);
    return nt_exit_code(rc);
}
