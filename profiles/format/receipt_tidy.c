#include "profiles/format/receipt_tidy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "profiles/format/receipt.h"

enum { MOST_FILES = 1 << 16, HEAD_BYTES = 512, DIGITS = 20 };
static const uint64_t SECOND = 1000000000;

enum fate { KEEP, YOUNG, OLD };
struct item {
    char name[NAME_MAX + 1];
    uint64_t mtime_ns, bytes;
    ino_t inode;
    enum fate fate;
};
struct folder {
    int fd;
    const struct nt_tidy_rule *rule;
    struct nt_tidied *ret;
    uint64_t now_ns, boot_ns;
    char boot_id[40], host[80];
    struct item *v;
    size_t n, cap;
};

static uint64_t ns_of(struct timespec t)
{
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static void look_around(struct folder *f)
{
    struct timespec real, up;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, f->boot_id, sizeof(f->boot_id) - 1) : 0;

    if (fd >= 0) {
        (void)close(fd);
    }
    f->boot_id[n > 0 ? n : 0] = '\0';
    f->boot_id[strcspn(f->boot_id, "\n")] = '\0';
    (void)gethostname(f->host, sizeof(f->host) - 1);
    (void)clock_gettime(CLOCK_REALTIME, &real);
    (void)clock_gettime(CLOCK_BOOTTIME, &up);
    f->now_ns = ns_of(real);
    f->boot_ns = f->now_ns - ns_of(up);
}

static const char *skip_number(const char *s)
{
    size_t n = strspn(s, "0123456789");
    return n > 0 && n <= DIGITS ? s + n : NULL;
}

/* Of the plugins of NCCL, and of those of engines. */
static const struct {
    const char *prefix, *suffix;
} kinds[] = {{"", NT_RECEIPT_SUFFIX}, {"engine-", ".backends"}};

/* "<pid>.<ticks>.receipt" or "engine-<pid>.<ticks>.backends" with `tail` behind it; 0: something
 * else. */
static pid_t pid_of(const char *name, const char **ret_tail)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t before = strlen(kinds[i].prefix), behind = strlen(kinds[i].suffix);
        const char *number = name + before;
        const char *dot = strncmp(name, kinds[i].prefix, before) == 0 ? skip_number(number) : NULL;
        const char *end = dot != NULL && *dot == '.' ? skip_number(dot + 1) : NULL;
        long pid = end != NULL ? strtol(number, NULL, 10) : 0;
        if (end != NULL && strncmp(end, kinds[i].suffix, behind) == 0 && pid > 0 &&
            pid <= INT32_MAX) {
            *ret_tail = end + behind;
            return (pid_t)pid;
        }
    }
    return 0;
}

static bool is_page(const char *name)
{
    return strspn(name, "0123456789abcdef") == 32 && strcmp(name + 32, ".meet") == 0;
}

/* What the header says of boot and host; false: it is no receipt. */
static bool read_head(int fd, char boot[40], char host[80])
{
    uint8_t head[HEAD_BYTES + 1] = {0};
    ssize_t n = pread(fd, head, HEAD_BYTES, 0);

    if (n > 0 && sscanf((const char *)head,
                        "nccltune-backends 1\nprocess %*20[0-9] %*20[0-9] %39[^ \n] %79[^ \n]\n",
                        boot, host) == 2) {
        return true;
    }
    if (n != HEAD_BYTES || memcmp(head, nt_receipt_magic, sizeof(nt_receipt_magic)) != 0) {
        return false;
    }
    (void)snprintf(boot, 40, "%.39s", (const char *)head + NT_RECEIPT_AT_BOOT);
    (void)snprintf(host, 80, "%.79s", (const char *)head + NT_RECEIPT_AT_HOST);
    return true;
}

static enum fate by_age(const struct folder *f, const struct item *it)
{
    uint64_t age = f->now_ns > it->mtime_ns ? f->now_ns - it->mtime_ns : 0;
    return f->rule->older_ns != UINT64_MAX && age > f->rule->older_ns ? OLD : YOUNG;
}

static enum fate of_receipt(struct folder *f, int fd, pid_t pid, const struct item *it)
{
    char boot[40], host[80];

    if (!read_head(fd, boot, host)) {
        f->ret->foreign++;
        return KEEP;
    }
    if (strcmp(boot, f->boot_id) != 0) {
        return OLD;
    }
    if (strcmp(host, f->host) != 0 || kill(pid, 0) == 0 || errno != ESRCH) {
        f->ret->alive++;
        return KEEP;
    }
    return by_age(f, it);
}

/* A page is a job's as long as one of its ranks holds its byte. */
static enum fate of_page(struct folder *f, int fd, const struct item *it)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(fd, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK) {
        f->ret->alive++;
        return KEEP;
    }
    return it->mtime_ns < f->boot_ns ? OLD : by_age(f, it);
}

/* A temporary that was left by a process killed while it made its receipt: with a dot before its
 * name, or ".new" behind it. */
static enum fate of_temporary(struct folder *f, const struct item *it)
{
    return it->mtime_ns < f->boot_ns || f->now_ns - it->mtime_ns > 3600 * SECOND ? OLD : KEEP;
}

static void judge(struct folder *f, struct item *it)
{
    const char *tail = "";
    bool hidden = it->name[0] == '.';
    pid_t pid = pid_of(it->name + hidden, &tail);
    bool fresh = it->name[0] == 'e' && strcmp(tail, ".new") == 0, temporary = hidden || fresh;
    bool page = is_page(it->name);
    struct stat st;
    int fd;

    if (!page && (pid == 0 || (tail[0] != '\0') != temporary)) {
        return; /* nothing that we make */
    }
    f->ret->seen++;
    fd = openat(f->fd, it->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        f->ret->foreign++;
    } else {
        it->mtime_ns = ns_of(st.st_mtim);
        it->bytes = (uint64_t)st.st_blocks * 512;
        it->inode = st.st_ino;
        it->fate = temporary ? of_temporary(f, it)
                   : page    ? of_page(f, fd, it)
                             : of_receipt(f, fd, pid, it);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

static int list(struct folder *f)
{
    int copy = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    struct dirent *e;
    int rc = 0;

    if (dir == NULL) {
        if (copy >= 0) {
            (void)close(copy);
        }
        return -1;
    }
    while (rc == 0 && f->n < MOST_FILES && (e = readdir(dir)) != NULL) {
        if (f->n == f->cap) {
            size_t cap = f->cap == 0 ? 64 : f->cap * 2;
            struct item *grown = realloc(f->v, cap * sizeof(*grown));
            if (grown == NULL) {
                rc = -1;
                break;
            }
            f->v = grown;
            f->cap = cap;
        }
        f->v[f->n] = (struct item){.fate = KEEP};
        (void)snprintf(f->v[f->n].name, sizeof(f->v[f->n].name), "%s", e->d_name);
        f->n++;
    }
    (void)closedir(dir);
    return rc;
}

static int oldest_first(const void *a, const void *b)
{
    uint64_t x = ((const struct item *)a)->mtime_ns, y = ((const struct item *)b)->mtime_ns;
    return x < y ? -1 : x > y;
}

/* Only what was looked at: another file of that name has another inode. */
static bool remove_item(struct folder *f, const struct item *it)
{
    struct stat st;

    if (f->rule->dry_run) {
        return true;
    }
    return fstatat(f->fd, it->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == it->inode &&
           unlinkat(f->fd, it->name, 0) == 0;
}

int nt_receipts_tidy(int folder, const struct nt_tidy_rule *rule, struct nt_tidied *ret)
{
    struct folder f = {.fd = folder, .rule = rule, .ret = ret};
    unsigned left;
    int rc;

    *ret = (struct nt_tidied){0};
    look_around(&f);
    rc = list(&f);
    for (size_t i = 0; rc == 0 && i < f.n; i++) {
        judge(&f, &f.v[i]);
    }
    left = ret->seen;
    if (rc == 0 && f.n > 0) {
        qsort(f.v, f.n, sizeof(f.v[0]), oldest_first);
    }
    for (size_t i = 0; rc == 0 && i < f.n; i++) {
        const struct item *it = &f.v[i];
        if (it->fate == OLD || (it->fate == YOUNG && left > rule->most)) {
            bool gone = remove_item(&f, it);
            ret->removed += gone;
            ret->failed += !gone;
            ret->bytes += gone ? it->bytes : 0;
            left -= gone;
        } else {
            ret->young += it->fate == YOUNG;
        }
    }
    free(f.v);
    return rc;
}
