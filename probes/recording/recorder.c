/* recorder - a recording while it is taken. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "probes/recording/recording_priv.h"

struct nt_recorder {
    gzFile out;
    int fd; /* of the same file, for fsync */
    char *path;
    struct nt_buf line;
};

enum { LINE_BYTES = 4 << 20 };

static void put_escaped(struct nt_buf *b, const char *text)
{
    for (; *text != '\0'; text++) {
        const char *e = *text == '\n'   ? "\\n"
                        : *text == '\r' ? "\\r"
                        : *text == '\\' ? "\\\\"
                                        : NULL;
        if (e != NULL) {
            nt_buf_puts(b, e);
        } else {
            nt_buf_add(b, text, 1);
        }
    }
}

/* A CSV field, quoted where it must be. */
static void put_field(struct nt_buf *b, const char *text)
{
    if (strpbrk(text, ",\"\n\r") == NULL) {
        nt_buf_puts(b, text);
        return;
    }
    nt_buf_puts(b, "\"");
    for (; *text != '\0'; text++) {
        nt_buf_add(b, text, 1);
        if (*text == '"') {
            nt_buf_puts(b, "\"");
        }
    }
    nt_buf_puts(b, "\"");
}

static int put_line(struct nt_recorder *r, struct nt_err *err)
{
    int code;

    if (r->line.failed) {
        nt_buf_clear(&r->line);
        return nt_fail(err, NT_E_INVAL, 0, "%s: a line that is too long", r->path);
    }
    nt_buf_puts(&r->line, "\n");
    if (r->line.failed || gzwrite(r->out, r->line.data, (unsigned)r->line.len) <= 0) {
        const char *words = gzerror(r->out, &code);
        return nt_fail(err, NT_E_IO, code == Z_ERRNO ? errno : 0, "write %s: %s", r->path, words);
    }
    nt_buf_clear(&r->line);
    return 0;
}

static int put_facts(struct nt_recorder *r, const char *const *facts, struct nt_err *err)
{
    int rc;

    nt_buf_puts(&r->line, "#" NT_FACT_VERSION "=" NT_RECORDING_VERSION);
    rc = put_line(r, err);
    for (size_t i = 0; rc == 0 && i < NT_FACT_COUNT; i++) {
        if (facts[i] != NULL) {
            nt_buf_printf(&r->line, "#%s=", nt_fact_names[i]);
            put_escaped(&r->line, facts[i]);
            rc = put_line(r, err);
        }
    }
    if (rc == 0) {
        nt_buf_puts(&r->line, nt_recording_columns);
        rc = put_line(r, err);
    }
    return rc;
}

static int compare_facts(const struct nt_recording *old, const char *const *facts, const char *path,
                         struct nt_err *err)
{
    for (size_t i = 0; i < NT_FACT_COUNT; i++) {
        const char *was = nt_recording_fact(old, (enum nt_fact)i);
        if (i == NT_FACT_DATE || i == NT_FACT_NOTE || i == NT_FACT_TEXT) {
            continue;
        }
        if (strcmp(was, facts[i] != NULL ? facts[i] : "") != 0) {
            return nt_fail(err, NT_E_INVAL, 0,
                           "%s is another recording: %s is '%.80s', not '%.80s'", path,
                           nt_fact_names[i], was, facts[i] != NULL ? facts[i] : "");
        }
    }
    return 0;
}

/* The whole lines of a file whose end is damaged, in a new file in its place. */
static int repair(const char *path, const char *text, size_t len, struct nt_err *err)
{
    char tmp[4096];
    gzFile out;
    bool fine;

    if (snprintf(tmp, sizeof(tmp), "%s.repair", path) >= (int)sizeof(tmp)) {
        return nt_fail(err, NT_E_INVAL, ENAMETOOLONG, "%.100s", path);
    }
    out = gzopen(tmp, "wb6e");
    if (out == NULL) {
        return nt_fail(err, NT_E_IO, errno, "create %s", tmp);
    }
    fine = len == 0 || gzfwrite(text, len, 1, out) == 1;
    fine = gzclose(out) == Z_OK && fine;
    if (!fine || rename(tmp, path) != 0) {
        int saved = errno;
        (void)unlink(tmp);
        return nt_fail(err, NT_E_IO, saved, "repair %s", path);
    }
    return 0;
}

/* Only the facts of a recording may be started over, cut or not: other files begin with # too. */
static bool begins_as_recording(const struct nt_buf *text)
{
    static const char first[] = "#nccltune-recording=";
    size_t n = sizeof(first) - 1;

    return strncmp(text->data, first, text->len < n ? text->len : n) == 0;
}

/* What a file already holds; NULL when there is none, or not even a line of columns. */
static int read_old(const char *path, const char *const *facts, struct nt_recording **ret,
                    struct nt_err *err)
{
    struct nt_buf text;
    size_t whole;
    bool cut = false;
    int rc;

    if (access(path, F_OK) != 0) {
        return 0;
    }
    nt_buf_init(&text, NT_RECORDING_MAX_BYTES);
    rc = nt_recording_unpack(path, &text, &cut, err);
    whole = text.len;
    while (whole > 0 && text.data[whole - 1] != '\n') {
        whole--;
    }
    if (rc == 0 && whole > 0 && strstr(text.data, nt_recording_columns) != NULL) {
        rc = nt_recording_parse(text.data, whole, path, ret, err);
        rc = rc != 0 ? rc : compare_facts(*ret, facts, path, err);
        if (rc == 0 && (cut || whole < text.len)) {
            rc = repair(path, text.data, whole, err);
        }
    } else if (rc == 0 && text.len > 0 && !begins_as_recording(&text)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s is there already and no recording", path);
    }
    nt_buf_done(&text);
    return rc;
}

static void recorder_free(struct nt_recorder *r)
{
    if (r != NULL) {
        if (r->out != NULL) {
            (void)gzclose(r->out);
        } else if (r->fd >= 0) {
            (void)close(r->fd);
        }
        nt_buf_done(&r->line);
        free(r->path);
        free(r);
    }
}

/* Opened, and locked while it is: two that write at once would mix their gangs. */
static int open_held(struct nt_recorder *r, struct nt_err *err)
{
    /* A pipe that nobody reads is refused, not waited for. */
    int fd = open(r->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    struct stat was, is;

    if (fd < 0) {
        return nt_fail(err, NT_E_IO, errno, "open %s", r->path);
    }
    if (r->fd >= 0 && fstat(r->fd, &was) == 0 && fstat(fd, &is) == 0 && was.st_ino == is.st_ino &&
        was.st_dev == is.st_dev) {
        (void)close(fd);
        return 0;
    }
    if (r->fd >= 0) {
        (void)close(r->fd);
    }
    r->fd = fd;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return nt_fail(err, NT_E_INVAL, 0, "%s is being written by another process", r->path);
    }
    return 0;
}

int nt_recorder_open(const char *path, const char *const *facts, struct nt_recorder **ret,
                     struct nt_recording **ret_old, struct nt_err *err)
{
    struct nt_recorder *r = calloc(1, sizeof(*r));
    struct nt_recording *old = NULL;
    struct stat st;
    int rc;

    if (r == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "recorder");
    }
    nt_buf_init(&r->line, LINE_BYTES);
    r->path = strdup(path);
    r->fd = -1;
    rc = r->path == NULL ? nt_fail(err, NT_E_NOMEM, 0, "recorder") : open_held(r, err);
    rc = rc == 0 ? read_old(path, facts, &old, err) : rc;
    rc = rc == 0 ? open_held(r, err) : rc; /* a repaired file is another one */
    if (rc == 0 && old == NULL && fstat(r->fd, &st) == 0 && S_ISREG(st.st_mode) &&
        ftruncate(r->fd, 0) != 0) {
        rc = nt_fail(err, NT_E_IO, errno, "begin %s", path);
    }
    if (rc == 0) {
        r->out = gzdopen(r->fd, "ab6");
        if (r->out == NULL) {
            rc = nt_fail(err, NT_E_NOMEM, 0, "recorder");
        }
    }
    if (rc == 0 && old == NULL) {
        rc = put_facts(r, facts, err);
    }
    if (rc != 0) {
        recorder_free(r);
        nt_recording_free(old);
        return rc;
    }
    if (ret_old != NULL) {
        *ret_old = old;
    } else {
        nt_recording_free(old);
    }
    *ret = r;
    return 0;
}

int nt_recorder_gang(struct nt_recorder *r, const struct nt_recorded_gang *g, struct nt_err *err)
{
    nt_buf_printf(&r->line, "#gang=%llu,", (unsigned long long)g->gang);
    put_field(&r->line, g->process);
    nt_buf_printf(&r->line, ",%llu,%llu,%llu", (unsigned long long)g->start_ns,
                  (unsigned long long)g->init_ns, (unsigned long long)g->memory_bytes);
    return put_line(r, err);
}

int nt_recorder_cells(struct nt_recorder *r, const char *process, const struct nt_cells *c,
                      struct nt_err *err)
{
    nt_buf_puts(&r->line, "#cells=");
    put_field(&r->line, process);
    nt_buf_puts(&r->line, ",");
    nt_case_write(&c->cs, &r->line);
    nt_buf_printf(&r->line, ",%d,", c->asked);
    for (unsigned i = 0; i < NT_ALGO_COUNT * NT_PROTO_COUNT; i++) {
        nt_buf_printf(&r->line, "%s%.9g", i > 0 ? " " : "",
                      (double)c->cost[i / NT_PROTO_COUNT][i % NT_PROTO_COUNT]);
    }
    return put_line(r, err);
}

static void put_call(struct nt_buf *b, const struct nt_call *c)
{
    if (c->algo < 0) {
        nt_buf_puts(b, "default");
    } else {
        nt_buf_printf(b, "%s/%s/%u/%u", nt_algo_names[c->algo], nt_proto_names[c->proto],
                      c->channels, c->chunk_bytes);
    }
}

static void put_executed(struct nt_buf *b, const struct nt_executed *x)
{
    if (x->algo >= 0) {
        nt_buf_printf(b, "%s/%s/%u/%u", nt_algo_names[x->algo], nt_proto_names[x->proto],
                      x->channels, x->warps);
    }
}

int nt_recorder_block(struct nt_recorder *r, const struct nt_block *b, struct nt_err *err)
{
    struct nt_buf words;

    nt_case_write(&b->cs, &r->line);
    nt_buf_puts(&r->line, ",");
    nt_flags_write(b->flags, &r->line);
    nt_buf_puts(&r->line, ",");
    put_field(&r->line, b->process);
    nt_buf_puts(&r->line, ",");
    put_call(&r->line, &b->call);
    nt_buf_puts(&r->line, ",");
    put_executed(&r->line, &b->executed);
    nt_buf_printf(&r->line, ",%llu,%s,%u,%u,%u,%u,%llu,%llu,%llu,%llu,",
                  (unsigned long long)b->gang, nt_status_names[b->status], b->verify, b->warmup,
                  b->inner, b->base_ns, (unsigned long long)b->wrong,
                  (unsigned long long)b->elapsed_ns, (unsigned long long)b->connect_ns,
                  (unsigned long long)b->memory_bytes);
    nt_buf_init(&words, LINE_BYTES);
    put_escaped(&words, b->error != NULL ? b->error : "");
    put_field(&r->line, nt_buf_str(&words));
    nt_buf_done(&words);
    nt_buf_puts(&r->line, ",");
    for (size_t i = 0; i < b->count; i++) {
        nt_buf_printf(&r->line, "%s%u", i > 0 ? " " : "", b->ns[i]);
    }
    return put_line(r, err);
}

int nt_recorder_flush(struct nt_recorder *r, struct nt_err *err)
{
    if (gzflush(r->out, Z_SYNC_FLUSH) != Z_OK || fsync(r->fd) != 0) {
        return nt_fail(err, NT_E_IO, errno, "flush %s", r->path);
    }
    return 0;
}

int nt_recorder_close(struct nt_recorder *r, struct nt_err *err)
{
    int rc = 0;

    if (r != NULL) {
        if (gzclose(r->out) != Z_OK) {
            rc = nt_fail(err, NT_E_IO, errno, "close %s", r->path);
        }
        r->out = NULL;
        recorder_free(r);
    }
    return rc;
}
