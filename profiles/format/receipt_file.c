#include "profiles/format/receipt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "profiles/format/receipt_tidy.h"
#include "profiles/format/table_private.h"

/* Opens a folder that nobody else can write to; -1 with the reason. */
static int open_folder(const char *path, struct nt_why *why)
{
    struct stat st;
    const char *wrong = NULL;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        return nt_why_fail(why, "%.150s: %s", path, strerror(errno));
    }
    if (fstat(fd, &st) != 0) {
        wrong = strerror(errno);
    } else if (st.st_uid != geteuid()) {
        wrong = "owned by another user";
    } else if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        wrong = "writable by others";
    }
    if (wrong != NULL) {
        (void)close(fd);
        return nt_why_fail(why, "%.150s: %s", path, wrong);
    }
    return fd;
}

/* XDG_RUNTIME_DIR itself is held to the same rule before anything is made in it. */
static int runtime_folder(char *path, size_t size, struct nt_why *why)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    int parent;

    if (xdg == NULL || xdg[0] != '/') {
        return nt_why_fail(why, "no /run/nccltune/%u and no XDG_RUNTIME_DIR", (unsigned)geteuid());
    }
    parent = open_folder(xdg, why);
    if (parent < 0) {
        return -1;
    }
    (void)mkdirat(parent, "nccltune", 0700); /* there already, or open_folder() says why not */
    (void)close(parent);
    (void)snprintf(path, size, "%s/nccltune", xdg);
    return open_folder(path, why);
}

int nt_receipt_folder(char *path, size_t size, struct nt_why *why)
{
    const char *told = getenv("NCCLTUNE_RECEIPTS");
    int fd;

    if (told != NULL && told[0] != '\0') {
        if (told[0] != '/') {
            return nt_why_fail(why, "NCCLTUNE_RECEIPTS: not an absolute path");
        }
        (void)snprintf(path, size, "%s", told);
        return open_folder(path, why);
    }
    (void)snprintf(path, size, "/run/nccltune/%u", (unsigned)geteuid());
    fd = open_folder(path, why);
    return fd >= 0 ? fd : runtime_folder(path, size, why);
}

/* Reads a small file of /proc; "" on any error. */
static void slurp(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;
    out[n > 0 ? n : 0] = '\0';
    if (fd >= 0) {
        (void)close(fd);
    }
}

uint64_t nt_start_ticks(void)
{
    char stat[1024], *p;

    slurp("/proc/self/stat", stat, sizeof(stat));
    p = strrchr(stat, ')'); /* the name may hold anything; fields are counted after it */
    for (unsigned field = 2; p != NULL && field < 22; field++) {
        p = strchr(p + 1, ' ');
    }
    return p != NULL ? strtoull(p + 1, NULL, 10) : 0;
}

static void put_text(uint8_t *base, size_t at, size_t size, const char *s)
{
    (void)snprintf((char *)base + at, size, "%s", s);
}

static void write_head(uint8_t *base, const struct nt_receipt_start *start)
{
    char boot[40], host[80] = "";
    struct timespec t;

    slurp("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    boot[strcspn(boot, "\n")] = '\0';
    (void)gethostname(host, sizeof(host) - 1);
    (void)clock_gettime(CLOCK_REALTIME, &t);
    memcpy(base, nt_receipt_magic, sizeof(nt_receipt_magic));
    nt_le_put(base + NT_RECEIPT_AT_VERSION, 4, NT_RECEIPT_VERSION);
    nt_le_put(base + NT_RECEIPT_AT_SIZE, 4, NT_RECEIPT_BYTES);
    nt_le_put(base + NT_RECEIPT_AT_START, 8, nt_start_ticks());
    nt_le_put(base + NT_RECEIPT_AT_CREATED, 8,
              (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec);
    nt_le_put(base + NT_RECEIPT_AT_PID, 4, (uint64_t)getpid());
    nt_le_put(base + NT_RECEIPT_AT_UID, 4, geteuid());
    nt_le_put(base + NT_RECEIPT_AT_NROWS, 4, start->nrows);
    put_text(base, NT_RECEIPT_AT_BOOT, sizeof(boot), boot);
    put_text(base, NT_RECEIPT_AT_HASH, NT_RECEIPT_AT_HOST - NT_RECEIPT_AT_HASH, start->hash);
    put_text(base, NT_RECEIPT_AT_HOST, NT_RECEIPT_AT_JOB - NT_RECEIPT_AT_HOST, host);
    put_text(base, NT_RECEIPT_AT_JOB, 128, start->job);
}

static uint8_t *map(int fd)
{
    void *m = mmap(NULL, NT_RECEIPT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return m != MAP_FAILED ? m : NULL;
}

/* The whole file appears at once: written under another name, then linked. fallocate, because a
 * full file system must be an error here and not a SIGBUS at some later count. */
static uint8_t *create(int dir, const char *name, const struct nt_receipt_start *start,
                       struct nt_why *why)
{
    static unsigned
        serial; /* two plugins have two; the pid and the clash with O_EXCL do the rest */
    char tmp[96];
    uint8_t *base = NULL;
    int fd, e;

    (void)snprintf(tmp, sizeof(tmp), ".%s.%p.%u", name, (void *)&serial,
                   __atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED));
    fd = openat(dir, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        (void)nt_why_fail(why, "create %s: %s", tmp, strerror(errno));
        return NULL;
    }
    e = posix_fallocate(fd, 0, NT_RECEIPT_BYTES);
    base = e == 0 ? map(fd) : NULL;
    if (base != NULL) {
        write_head(base, start);
        if (linkat(dir, tmp, dir, name, 0) != 0) {
            e = errno;
            (void)munmap(base, NT_RECEIPT_BYTES);
            base = NULL;
        }
    }
    if (base == NULL) {
        (void)nt_why_fail(why, "create %s: %s", name, strerror(e != 0 ? e : ENOMEM));
    }
    (void)unlinkat(dir, tmp, 0);
    (void)close(fd);
    return base;
}

/* The receipt that another plugin of this process made. */
static uint8_t *join(int dir, const char *name, const struct nt_receipt_start *start,
                     struct nt_why *why)
{
    struct stat st;
    struct nt_receipt_head head;
    uint8_t *base = NULL;
    int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        (void)nt_why_fail(why, "open %s: %s", name, strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 && st.st_size == NT_RECEIPT_BYTES) {
        base = map(fd);
    }
    (void)close(fd);
    if (base == NULL || nt_receipt_read(base, NT_RECEIPT_BYTES, &head, why) != 0 ||
        head.pid != (uint32_t)getpid() || head.start_ticks != nt_start_ticks()) {
        (void)nt_why_fail(why, "%s is not this process's receipt", name);
        if (base != NULL) {
            (void)munmap(base, NT_RECEIPT_BYTES);
        }
        return NULL;
    }
    if (strcmp(head.hash, start->hash) != 0) {
        (void)__atomic_fetch_or((uint32_t *)(void *)(base + NT_RECEIPT_AT_PARTS), NT_RECEIPT_MIXED,
                                __ATOMIC_RELAXED);
    }
    return base;
}

/* Nobody else may ever clean up here. Counting names costs less than opening them, so the rest is
 * done only when there are too many; then a quarter goes at once. */
static void make_room(int dir)
{
    const struct nt_tidy_rule rule = {.older_ns = UINT64_MAX, .most = NT_RECEIPTS_MOST / 4 * 3};
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    struct nt_tidied tidied;
    unsigned n = 0;

    while (d != NULL && n < NT_RECEIPTS_MOST + 2 && readdir(d) != NULL) { /* . and .. too */
        n++;
    }
    if (d != NULL) {
        (void)closedir(d);
    } else if (copy >= 0) {
        (void)close(copy);
    }
    if (n >= NT_RECEIPTS_MOST + 2) {
        (void)nt_receipts_tidy(dir, &rule, &tidied); /* what stays is no reason not to go on */
    }
}

uint8_t *nt_receipt_attach(const struct nt_receipt_start *start, struct nt_why *why)
{
    char path[4096], name[64];
    uint8_t *base;
    int dir = nt_receipt_folder(path, sizeof(path), why);

    if (dir < 0) {
        return NULL;
    }
    (void)snprintf(name, sizeof(name), "%ld.%llu" NT_RECEIPT_SUFFIX, (long)getpid(),
                   (unsigned long long)nt_start_ticks());
    if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        base = join(dir, name, start, why);
    } else {
        make_room(dir);
        base = create(dir, name, start, why);
        if (base == NULL && faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
            base = join(dir, name, start, why); /* another thread's plugin was faster */
        }
    }
    (void)close(dir);
    return base;
}

uint8_t *nt_receipt_nowhere(void)
{
    void *m =
        mmap(NULL, NT_RECEIPT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return m != MAP_FAILED ? m : NULL;
}
