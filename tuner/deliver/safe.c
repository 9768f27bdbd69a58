#include "tuner/deliver/safe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* NULL: keeps the rule. */
static const char *broken_rule(const struct stat *st, uid_t uid, bool on_the_way)
{
    if (st->st_uid != 0 && st->st_uid != uid) {
        return "owned by another user";
    }
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0 &&
        !(on_the_way && st->st_uid == 0 && (st->st_mode & S_ISVTX) != 0)) {
        return "writable by others";
    }
    return NULL;
}

/* Opens the next folder of a walk. */
static int step(int at, const char *name, unsigned flags)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && (flags & NT_SAFE_CREATE) != 0 &&
        (mkdirat(at, name, 0755) == 0 || errno == EEXIST)) {
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    }
    return fd;
}

static int open_failed(const char *path, int e, struct nt_err *err)
{
    if (e == ENOENT) {
        return nt_fail(err, NT_E_MISSING, e, "%s", path);
    }
    if (e == ELOOP || e == ENOTDIR) {
        return nt_fail(err, NT_E_NO, 0, "%s: a symbolic link or no folder on the way", path);
    }
    return nt_fail(err, NT_E_IO, e, "%s", path);
}

int nt_safe_folder(const char *root, const char *path, uid_t uid, unsigned flags,
                   struct nt_err *err)
{
    char copy[PATH_MAX], *rest = NULL;
    int fd;

    if ((size_t)snprintf(copy, sizeof(copy), "%s", path) >= sizeof(copy)) {
        return nt_fail(err, NT_E_INVAL, ENAMETOOLONG, "%.200s", path);
    }
    fd = open(root != NULL && root[0] != '\0' ? root : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return open_failed(root != NULL ? root : "/", errno, err);
    }
    for (char *part = strtok_r(copy, "/", &rest); part != NULL;) {
        char *after = strtok_r(NULL, "/", &rest);
        const char *wrong;
        struct stat st;
        int next = strcmp(part, "..") != 0 ? step(fd, part, flags) : (errno = ELOOP, -1);
        int e = errno;
        (void)close(fd);
        fd = next;
        if (fd < 0) {
            return open_failed(path, e, err);
        }
        wrong = fstat(fd, &st) != 0 ? strerror(errno) : broken_rule(&st, uid, after != NULL);
        if (wrong != NULL) {
            (void)close(fd);
            return nt_fail(err, NT_E_NO, 0, "%s: '%s' is %s", path, part, wrong);
        }
        part = after;
    }
    return fd;
}

int nt_safe_read(int folder, const char *name, uid_t uid, struct nt_buf *out, struct nt_err *err)
{
    char chunk[65536];
    struct stat st;
    const char *wrong = NULL;
    int rc = 0;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0) {
        return open_failed(name, errno, err);
    }
    if (fstat(fd, &st) != 0) {
        wrong = strerror(errno);
    } else if (!S_ISREG(st.st_mode)) {
        wrong = "no regular file";
    } else {
        wrong = broken_rule(&st, uid, false);
    }
    if (wrong != NULL) {
        rc = nt_fail(err, NT_E_NO, 0, "%s: %s", name, wrong);
    }
    for (ssize_t n = 1; rc == 0 && n > 0;) {
        n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR) {
            n = 1;
            continue;
        }
        if (n < 0) {
            rc = nt_fail(err, NT_E_IO, errno, "read %s", name);
        } else if (n > 0) {
            nt_buf_add(out, chunk, (size_t)n);
            rc = out->failed ? nt_fail(err, NT_E_NO, 0, "%s: larger than %zu bytes", name, out->max)
                             : 0;
        }
    }
    (void)close(fd);
    return rc;
}

int nt_safe_write_temp(int folder, const char *name, const void *data, size_t len, unsigned mode,
                       char *ret_temp, size_t size, struct nt_err *err)
{
    const char *p = data;
    int fd, e = 0;

    (void)snprintf(ret_temp, size, ".%.64s.%ld.tmp", name, (long)getpid());
    (void)unlinkat(folder, ret_temp, 0); /* of a process of our number that was killed */
    fd = openat(folder, ret_temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return nt_fail(err, NT_E_IO, errno, "create %s", name);
    }
    for (size_t at = 0; at < len && e == 0;) {
        ssize_t n = write(fd, p + at, len - at);
        if (n < 0 && errno != EINTR) {
            e = errno;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    if (e == 0 && (fchmod(fd, (mode_t)mode) != 0 || fsync(fd) != 0)) {
        e = errno;
    }
    (void)close(fd);
    if (e != 0) {
        (void)unlinkat(folder, ret_temp, 0);
        return nt_fail(err, NT_E_IO, e, "write %s", name);
    }
    return 0;
}

int nt_own_folder(const char *path, struct nt_err *err)
{
    char copy[PATH_MAX];
    struct stat st;

    if (path[0] != '/' || (size_t)snprintf(copy, sizeof(copy), "%s", path) >= sizeof(copy)) {
        return nt_fail(err, NT_E_INVAL, 0, "%.200s: not a usable absolute path", path);
    }
    for (char *p = copy + 1; p != NULL;) {
        p = strchr(p, '/');
        if (p != NULL) {
            *p = '\0';
        }
        if (mkdir(copy, 0700) != 0 && errno != EEXIST) {
            return nt_fail(err, NT_E_IO, errno, "create folder %s", copy);
        }
        if (p != NULL) {
            *p++ = '/';
        }
    }
    if (stat(path, &st) != 0) {
        return nt_fail(err, NT_E_IO, errno, "%s", path);
    }
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return nt_fail(err, NT_E_NO, 0, "%s: must be a folder of this user, not writable by others",
                       path);
    }
    return 0;
}

int nt_state_path(const char *leaf, char *out, size_t size, struct nt_err *err)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n;

    if (state != NULL && state[0] == '/') { /* relative ones are to be ignored (XDG) */
        n = snprintf(out, size, "%s/nccltune/%s", state, leaf);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(out, size, "%s/.local/state/nccltune/%s", home, leaf);
    } else {
        return nt_fail(err, NT_E_INVAL, 0, "no HOME and no XDG_STATE_HOME to keep %s in", leaf);
    }
    if (n < 0 || (size_t)n >= size) {
        return nt_fail(err, NT_E_INVAL, ENAMETOOLONG, "folder of %s", leaf);
    }
    return 0;
}

int nt_state_folder(const char *leaf, char *out, size_t size, struct nt_err *err)
{
    int rc = nt_state_path(leaf, out, size, err);
    return rc == 0 ? nt_own_folder(out, err) : rc;
}
