#include "tuner/base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void nt_buf_init(struct nt_buf *b, size_t max)
{
    *b = (struct nt_buf){.max = max};
}

void nt_buf_done(struct nt_buf *b)
{
    if (b != NULL) {
        free(b->data);
        *b = (struct nt_buf){.max = b->max};
    }
}

void nt_buf_clear(struct nt_buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data != NULL) {
        b->data[0] = '\0';
    }
}

/* Room for len more bytes and the NUL. */
static bool reserve(struct nt_buf *b, size_t len)
{
    size_t need, cap;
    char *data;

    if (b->failed || len > b->max || b->len > b->max - len) {
        b->failed = true;
        return false;
    }
    need = b->len + len + 1;
    if (need <= b->cap) {
        return true;
    }
    cap = b->cap < 64 ? 64 : b->cap;
    while (cap < need) {
        cap *= 2;
    }
    data = realloc(b->data, cap);
    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void nt_buf_add(struct nt_buf *b, const void *data, size_t len)
{
    if (reserve(b, len)) {
        if (len > 0) {
            memcpy(b->data + b->len, data, len);
        }
        b->len += len;
        b->data[b->len] = '\0';
    }
}

void nt_buf_puts(struct nt_buf *b, const char *text)
{
    nt_buf_add(b, text, strlen(text));
}

void nt_buf_printf(struct nt_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->failed = true;
    } else if (reserve(b, (size_t)n)) {
        (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void nt_buf_consume(struct nt_buf *b, size_t len)
{
    nt_assert(len <= b->len);
    if (len > 0) {
        memmove(b->data, b->data + len, b->len - len + 1);
        b->len -= len;
    }
}

const char *nt_buf_str(const struct nt_buf *b)
{
    return b->data != NULL ? b->data : "";
}

enum { PARTNER_MS = 2000 };

/* Whether data comes, or the end. A pipe that nobody writes to would be waited for for ever:
 * somebody has to come within PARTNER_MS, and may then take as long as it wants. */
static bool await_writer(int fd, struct nt_buf *b)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char c;
    ssize_t n;

    if (poll(&p, 1, 0) > 0) {
        return true;
    }
    n = read(fd, &c, 1); /* 0: nobody holds the other end; EAGAIN: somebody does */
    if (n > 0) {
        nt_buf_add(b, &c, 1);
    }
    return n != 0 || poll(&p, 1, PARTNER_MS) > 0;
}

/* Opened without waiting for a writer of a pipe. */
static int open_to_read(const char *path, struct nt_buf *b, struct nt_err *err)
{
    struct stat st;
    int fd, flags;

    if (strcmp(path, "-") == 0) {
        fd = dup(STDIN_FILENO);
        return fd >= 0 ? fd : nt_fail(err, NT_E_INVAL, errno, "open %s", path);
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return nt_fail(err, NT_E_INVAL, errno, "open %s", path);
    }
    if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && !await_writer(fd, b)) {
        (void)close(fd);
        return nt_fail(err, NT_E_INVAL, 0, "%s is a pipe that nobody writes to", path);
    }
    flags = fcntl(fd, F_GETFL);
    (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    return fd;
}

int nt_buf_read_file(struct nt_buf *b, const char *path, struct nt_err *err)
{
    char chunk[65536];
    int rc = 0;
    int fd = open_to_read(path, b, err);

    if (fd < 0) {
        return fd;
    }
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            rc = nt_fail(err, errno == EISDIR ? NT_E_INVAL : NT_E_IO, errno, "read %s", path);
            break;
        }
        if (n == 0) {
            break;
        }
        nt_buf_add(b, chunk, (size_t)n);
        if (b->failed) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s is larger than %zu bytes", path, b->max);
            break;
        }
    }
    (void)close(fd);
    return rc;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -1;
        }
        data += n;
        len -= (size_t)n;
    }
    return fsync(fd);
}

/* Devices, pipes and what stdout is are written to: renaming over /dev/null or /dev/stdout would
 * replace it for every process of the machine. */
static bool is_written_through(const struct stat *st)
{
    struct stat out;

    return !S_ISREG(st->st_mode) || (fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == st->st_dev &&
                                     out.st_ino == st->st_ino);
}

/* A pipe that nobody reads would be waited for for ever: somebody has to come within PARTNER_MS. */
static int open_to_write(const char *path, const struct stat *st)
{
    const struct timespec wait = {.tv_nsec = 20000000};
    int fd = -1, flags = O_WRONLY | O_CLOEXEC | O_NOCTTY;

    if (!S_ISFIFO(st->st_mode)) {
        return open(path, flags);
    }
    for (int ms = 0; ms < PARTNER_MS && fd < 0; ms += 20) {
        fd = open(path, flags | O_NONBLOCK);
        if (fd < 0 && errno != ENXIO) {
            return -1;
        }
        if (fd < 0) {
            (void)nanosleep(&wait, NULL);
            errno = ENXIO;
        }
    }
    if (fd >= 0) {
        flags = fcntl(fd, F_GETFL);
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    }
    return fd;
}

static int write_through(const char *path, const struct stat *st, const void *data, size_t len,
                         struct nt_err *err)
{
    /* a file that is stdout is gone on with where stdout stands */
    int fd = S_ISREG(st->st_mode) ? dup(STDOUT_FILENO) : open_to_write(path, st);
    int saved;

    if (fd < 0 && errno == ENXIO && S_ISFIFO(st->st_mode)) {
        return nt_fail(err, NT_E_INVAL, 0, "%s is a pipe that nobody reads", path);
    }
    if (fd < 0) {
        return nt_fail(err, NT_E_IO, errno, "write %s", path);
    }
    (void)fflush(stdout);
    saved = write_all(fd, data, len) == 0 || errno == EINVAL || errno == EROFS ? 0 : errno;
    (void)close(fd);
    return saved == 0 ? 0 : nt_fail(err, NT_E_IO, saved, "write %s", path);
}

/* Opens the temporary beside the file that a write would replace; that one's path is put in real.
 */
static int open_temp(const char *path, char real[PATH_MAX], char *tmp, size_t size, unsigned mode,
                     struct nt_err *err)
{
    struct stat st;
    int fd;

    /* the file that a link names is replaced, not the link */
    if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode) || realpath(path, real) == NULL) {
        if (snprintf(real, PATH_MAX, "%s", path) >= PATH_MAX) {
            return nt_fail(err, NT_E_INVAL, ENAMETOOLONG, "write %.200s", path);
        }
    }
    if (snprintf(tmp, size, "%s.tmp.%ld", real, (long)getpid()) >= (int)size) {
        return nt_fail(err, NT_E_INVAL, ENAMETOOLONG, "write %.200s", path);
    }
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, (mode_t)mode);
    return fd >= 0 ? fd : nt_fail(err, NT_E_INVAL, errno, "create %s", real);
}

/* What nothing that is written here replaces: it holds measurements. NULL: something else. */
static const char *measurements(const char *path)
{
    static const struct {
        const char *what, *head;
        size_t n;
    } rows[] = {{"a database", "SQLite format 3", 16}, /* with its 0 */
                {"a packed file", "\x1f\x8b", 2},
                {"a recording", "#nccltune-recording=", 20}};
    char head[20] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t n = fd >= 0 ? read(fd, head, sizeof(head)) : -1;

    (void)(fd >= 0 ? close(fd) : 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (n >= (ssize_t)rows[i].n && memcmp(head, rows[i].head, rows[i].n) == 0) {
            return rows[i].what;
        }
    }
    return NULL;
}

/* Refuses what is no name for a file; *ret_st of what lies there, mode 0 where nothing does. */
static int look_at_target(const char *path, struct stat *ret_st, struct nt_err *err)
{
    const char *what;

    memset(ret_st, 0, sizeof(*ret_st));
    if (path[0] == '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "the path of a file to write is empty");
    }
    if (stat(path, ret_st) == 0 && S_ISDIR(ret_st->st_mode)) {
        return nt_fail(err, NT_E_INVAL, 0, "%s is a folder, not a file", path);
    }
    what = S_ISREG(ret_st->st_mode) ? measurements(path) : NULL;
    return what == NULL
               ? 0
               : nt_fail(err, NT_E_INVAL, 0,
                         "%s is %s, which is not written over: give another name", path, what);
}

int nt_write_apart(const char *path, const char *input, struct nt_err *err)
{
    struct stat out, in;

    if (path != NULL && stat(path, &out) == 0 && S_ISREG(out.st_mode) && stat(input, &in) == 0 &&
        out.st_dev == in.st_dev && out.st_ino == in.st_ino) {
        return nt_fail(err, NT_E_INVAL, 0, "%s is what is read: give another name to write to",
                       path);
    }
    return 0;
}

int nt_write_file(const char *path, const void *data, size_t len, unsigned mode, struct nt_err *err)
{
    struct stat st;
    char tmp[PATH_MAX + 32], real[PATH_MAX];
    int fd, saved, rc = look_at_target(path, &st, err);

    if (rc != 0 || (st.st_mode != 0 && is_written_through(&st))) {
        return rc != 0 ? rc : write_through(path, &st, data, len, err);
    }
    fd = open_temp(path, real, tmp, sizeof(tmp), mode, err);
    if (fd < 0) {
        return fd;
    }
    if (write_all(fd, data, len) != 0 || fchmod(fd, (mode_t)mode) != 0) {
        saved = errno;
        (void)close(fd);
        (void)unlink(tmp);
        return nt_fail(err, NT_E_IO, saved, "write %s", real);
    }
    (void)close(fd);
    if (rename(tmp, real) != 0) {
        saved = errno;
        (void)unlink(tmp);
        return nt_fail(err, NT_E_IO, saved, "rename to %s", real);
    }
    return 0;
}

/* A device is asked to take nothing: a full one says so even then. */
static int try_through(const char *path, const struct stat *st, int *ret_hold, struct nt_err *err)
{
    int fd, rc = 0;

    if (S_ISREG(st->st_mode)) {
        return 0; /* stdout, which is open */
    }
    fd = open_to_write(path, st);
    if (fd < 0 || write(fd, "", 0) < 0) {
        rc = nt_fail(err, fd < 0 ? NT_E_INVAL : NT_E_IO, errno, "write %s", path);
    }
    if (rc == 0 && S_ISFIFO(st->st_mode)) {
        *ret_hold = fd;
    } else if (fd >= 0) {
        (void)close(fd);
    }
    return rc;
}

int nt_write_try(const char *path, int *ret_hold, struct nt_err *err)
{
    static const char block[4096];
    struct stat st;
    char tmp[PATH_MAX + 32], real[PATH_MAX];
    int fd, rc = look_at_target(path, &st, err);

    *ret_hold = -1;
    if (rc != 0 || (st.st_mode != 0 && is_written_through(&st))) {
        return rc != 0 ? rc : try_through(path, &st, ret_hold, err);
    }
    fd = open_temp(path, real, tmp, sizeof(tmp), 0600, err);
    if (fd < 0) {
        return fd;
    }
    if (write_all(fd, block, sizeof(block)) != 0) {
        rc = nt_fail(err, NT_E_IO, errno, "write %s", real);
    }
    (void)close(fd);
    (void)unlink(tmp);
    return rc;
}
