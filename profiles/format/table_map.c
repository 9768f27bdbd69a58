#include "profiles/format/table.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "profiles/format/sha256.h"
#include "profiles/format/table_private.h"

/* Largest valid file: every variable and every row at its limit. */
enum {
    MAX_FILE = NT_HEADER_BYTES + NT_TABLE_MAX_VARS * (NT_TABLE_MAX_NAME + NT_TABLE_MAX_VALUE + 3) +
               8 + NT_TABLE_MAX_ROWS * NT_ROW_BYTES
};

bool nt_table_is_hash(const char *text)
{
    return strspn(text, "0123456789abcdef") == NT_HASH_HEX && text[NT_HASH_HEX] == '\0';
}

static const char *wrong_file(const struct stat *st)
{
    if (!S_ISREG(st->st_mode)) {
        return "not a regular file";
    }
    if (st->st_uid != 0 && st->st_uid != geteuid()) {
        return "owned by another user";
    }
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return "writable by others";
    }
    if (st->st_size < NT_HEADER_BYTES || st->st_size > MAX_FILE) {
        return "no delivery file has this size";
    }
    return NULL;
}

static int read_all(int fd, uint8_t *to, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = pread(fd, to + at, size - at, (off_t)at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return -1;
        }
        at += (size_t)n;
    }
    return 0;
}

/* Copies the open file into memory of its own, read-only from then on. */
static int load(int fd, const char *path, const char *hash, struct nt_table *ret,
                struct nt_why *why)
{
    struct stat st;
    const char *wrong;
    char found[NT_HASH_HEX + 1];
    size_t size;
    void *mem;
    int rc = -1;

    if (fstat(fd, &st) != 0) {
        return nt_why_fail(why, "%.150s: %s", path, strerror(errno));
    }
    wrong = wrong_file(&st);
    if (wrong != NULL) {
        return nt_why_fail(why, "%.150s: %s", path, wrong);
    }
    size = (size_t)st.st_size;
    mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED) {
        return nt_why_fail(why, "%.150s: out of memory", path);
    }
    if (read_all(fd, mem, size) != 0) {
        rc = nt_why_fail(why, "%.150s: cannot be read whole", path);
        goto out;
    }
    nt_format_sha256_hex(mem, size, found);
    if (strcmp(found, hash) != 0) {
        rc = nt_why_fail(why, "%.150s: its SHA-256 is %s", path, found);
        goto out;
    }
    rc = nt_table_read(mem, size, ret, why);
    if (rc == 0 && mprotect(mem, size, PROT_READ) != 0) {
        rc = nt_why_fail(why, "%.150s: cannot be made read-only", path);
    }
out:
    if (rc != 0) {
        (void)munmap(mem, size);
    }
    return rc;
}

int nt_table_map(const char *path, const char *hash, struct nt_table *ret, struct nt_why *why)
{
    int fd, rc;

    if (!nt_table_is_hash(hash)) {
        return nt_why_fail(why, "'%.80s' is no SHA-256 in lower-case hex", hash);
    }
    if (path[0] != '/') {
        return nt_why_fail(why, "'%.150s' is not an absolute path", path);
    }
    /* O_NONBLOCK: a pipe in the file's place must not hold the process. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return nt_why_fail(why, "%.150s: %s", path,
                           errno == ELOOP ? "a symbolic link" : strerror(errno));
    }
    rc = load(fd, path, hash, ret, why);
    (void)close(fd);
    return rc;
}

void nt_table_unmap(struct nt_table *t)
{
    if (t != NULL && t->data != NULL) {
        (void)munmap((void *)(uintptr_t)t->data, t->size);
        t->data = NULL;
    }
}
