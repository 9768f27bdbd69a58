#include "tuner/store/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool boot_id(char *out, size_t size)
{
    bool ok = read_text("/proc/sys/kernel/random/boot_id", out, size);
    out[strcspn(out, "\n")] = '\0';
    return ok;
}

/* Field 22 of /proc/PID/stat; the name before it may hold anything, so count from the last ')'. A
 * zombie counts as ended. */
static int64_t start_ticks(int64_t pid)
{
    char path[64], text[1024];
    char *at;
    (void)snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    if (!read_text(path, text, sizeof(text)) || (at = strrchr(text, ')')) == NULL ||
        strlen(at) < 3 || at[2] == 'Z' || at[2] == 'X') {
        return -1;
    }
    at += 2;
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (at == NULL) {
            return -1;
        }
        at++;
    }
    return strtoll(at, NULL, 10);
}

int nt_owner_self(struct nt_owner *ret, struct nt_err *err)
{
    struct nt_owner o = {.pid = getpid()};
    o.start = start_ticks(o.pid);
    if (o.start < 0 || !boot_id(o.boot, sizeof(o.boot))) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "/proc cannot be read, by which two drivers of one job are told apart");
    }
    *ret = o;
    return 0;
}

bool nt_owner_of(int64_t pid, struct nt_owner *ret)
{
    struct nt_owner o = {.pid = pid};
    o.start = start_ticks(pid);
    if (o.start < 0 || !boot_id(o.boot, sizeof(o.boot))) {
        return false;
    }
    *ret = o;
    return true;
}

bool nt_owner_alive(const struct nt_owner *o)
{
    char boot[40];
    return o->pid > 0 && boot_id(boot, sizeof(boot)) && strcmp(boot, o->boot) == 0 &&
           start_ticks(o->pid) == o->start;
}
