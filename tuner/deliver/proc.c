#include "tuner/deliver/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_MAPS = 16 << 20, MAX_ENVIRON = 2 << 20, MAX_CMDLINE = 256 << 10, MAX_STAT = 8192 };

char *nt_clean(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; *text != '\0' && n + 1 < size; text++) {
        out[n++] = *text >= 0x20 && *text <= 0x7e ? *text : '?';
    }
    out[n] = '\0';
    return out;
}

/* ---- texts ---- */

bool nt_proc_take_stat(struct nt_proc *p, const char *stat)
{
    const char *open = strchr(stat, '('), *close = strrchr(stat, ')');
    char name[sizeof(p->name)];
    unsigned long long ppid = 0, start = 0;

    if (open == NULL || close == NULL || close < open) {
        return false;
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)(close - open - 1), open + 1);
    (void)nt_clean(name, p->name, sizeof(p->name));
    for (unsigned field = 3; field <= 22;
         field++) { /* the name may hold anything: count after it */
        char *end;
        close = strchr(close + 1, ' ');
        if (close == NULL) {
            return false;
        }
        if (field == 4) {
            ppid = strtoull(close + 1, &end, 10);
        } else if (field == 22) {
            start = strtoull(close + 1, &end, 10);
        }
    }
    p->ppid = ppid <= UINT32_MAX ? (uint32_t)ppid : 0;
    p->start_ticks = start;
    return true;
}

/* "NSpid:\t4021\t17": the last number is that of the innermost namespace. */
void nt_proc_take_status(struct nt_proc *p, const char *status)
{
    const char *uid = strstr(status, "\nUid:"), *ns = strstr(status, "\nNSpid:");

    p->inner_pid = p->pid;
    if (uid != NULL) { /* real, effective: files belong to the effective one */
        char *end;
        (void)strtoul(uid + 5, &end, 10);
        p->uid = (uint32_t)strtoul(end, NULL, 10);
    }
    for (const char *at = ns != NULL ? ns + 7 : "\n"; *at != '\n' && *at != '\0';) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        if (end == at) {
            break;
        }
        p->inner_pid = (uint32_t)v;
        at = end;
    }
}

static void note_nccl(struct nt_proc *p, const char *path, const char *device, uint64_t inode)
{
    for (unsigned i = 0; i < p->nnccl; i++) {
        if (p->nccl[i].inode == inode && strcmp(p->nccl[i].device, device) == 0) {
            return;
        }
    }
    if (p->nnccl < NT_PROC_NCCLS) {
        struct nt_proc_library *l = &p->nccl[p->nnccl++];
        (void)nt_clean(path, l->path, sizeof(l->path));
        (void)snprintf(l->device, sizeof(l->device), "%s", device);
        l->inode = inode;
    }
}

static void take_mapping(struct nt_proc *p, const char *path, const char *device, uint64_t inode)
{
    static const char *const parts[NT_RECEIPT_PARTS] = {"tuner", "env", "profiler"};
    const char *base = strrchr(path, '/');
    char name[64];

    base = base != NULL ? base + 1 : path;
    if (strncmp(path, "/dev/nvidia", 11) == 0) {
        p->gpu = true;
    } else if (strncmp(base, "libnccl.so", 10) == 0) {
        note_nccl(p, path, device, inode);
    }
    for (unsigned i = 0; i < NT_RECEIPT_PARTS; i++) {
        (void)snprintf(name, sizeof(name), "libnccl-%s-nccltune.so", parts[i]);
        if (strncmp(base, name, strlen(name)) == 0) {
            (void)nt_clean(path, p->plugin[i], sizeof(p->plugin[i]));
            return;
        }
    }
    if (strncmp(base, "libnccl-tuner", 13) == 0) {
        (void)nt_clean(path, p->foreign_tuner, sizeof(p->foreign_tuner));
    }
}

/* "start-end perms offset dev inode   path" */
void nt_proc_take_maps(struct nt_proc *p, const char *maps)
{
    while (*maps != '\0') {
        char line[PATH_MAX + 128], device[24];
        size_t len = strcspn(maps, "\n");
        unsigned long long inode = 0;
        int at = 0;
        (void)snprintf(line, sizeof(line), "%.*s", (int)(len < PATH_MAX ? len : PATH_MAX), maps);
        maps += len + (maps[len] == '\n');
        /* NOLINTNEXTLINE(cert-err34-c): a number too large is only a wrong inode */
        if (sscanf(line, "%*s %*s %*s %23s %llu %n", device, &inode, &at) == 2 && at > 0 &&
            line[at] == '/') {
            take_mapping(p, line + at, device, inode);
        }
    }
}

const char *nt_proc_env(const struct nt_proc *p, const char *name)
{
    size_t len = strlen(name);
    for (size_t at = 0; at < p->environ_len; at += strlen(p->environ + at) + 1) {
        if (strncmp(p->environ + at, name, len) == 0 && p->environ[at + len] == '=') {
            return p->environ + at + len + 1;
        }
    }
    return NULL;
}

const char *nt_proc_word(const struct nt_proc *p, size_t i)
{
    size_t at = 0;
    for (; i > 0 && at < p->cmdline_len; i--) {
        at += strlen(p->cmdline + at) + 1;
    }
    return at < p->cmdline_len ? p->cmdline + at : NULL;
}

bool nt_proc_is_python(const struct nt_proc *p)
{
    const char *word = nt_proc_word(p, 0), *base;
    if (word == NULL) {
        return false;
    }
    base = strrchr(word, '/');
    base = base != NULL ? base + 1 : word;
    return strncmp(base, "python", 6) == 0 || strncmp(p->name, "python", 6) == 0;
}

bool nt_proc_python_flag(const struct nt_proc *p, char flag)
{
    const char *word;
    for (size_t i = 1; (word = nt_proc_word(p, i)) != NULL && word[0] == '-'; i++) {
        const char *letters = word + 1;
        if (*letters == '-' || *letters == '\0') { /* --long, -- and - */
            continue;
        }
        for (; *letters != '\0'; letters++) {
            if (*letters == flag) {
                return true;
            }
            if (strchr("cmWX", *letters) != NULL) { /* the rest, or the next word, is its value */
                break;
            }
        }
        if (*letters == 'c' || *letters == 'm') {
            return false; /* what follows are the program's words */
        }
        if (*letters != '\0' && letters[1] == '\0') {
            i++;
        }
    }
    return false;
}

/* ---- files ---- */

/* The file with a NUL behind it; NULL with errno. */
static char *slurp(int dir, const char *name, size_t max, size_t *ret_len)
{
    size_t cap = 16384, len = 0;
    char *data = malloc(cap);
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    while (fd >= 0 && data != NULL) {
        ssize_t n;
        if (len + 1 == cap) {
            char *more = cap < max ? realloc(data, cap * 2) : NULL;
            if (more == NULL) {
                break; /* as much as we take */
            }
            data = more;
            cap *= 2;
        }
        n = read(fd, data + len, cap - len - 1);
        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            if (n < 0) {
                free(data);
                data = NULL;
            }
            break;
        }
        len += n > 0 ? (size_t)n : 0;
    }
    if (fd < 0) {
        free(data);
        data = NULL;
    } else {
        (void)close(fd);
    }
    if (data != NULL) {
        data[len] = '\0';
        *ret_len = len;
    }
    return data;
}

void nt_proc_done(struct nt_proc *p)
{
    free(p->environ);
    free(p->cmdline);
    p->environ = p->cmdline = NULL;
    p->environ_len = p->cmdline_len = 0;
}

static void read_maps(int dir, struct nt_proc *p)
{
    size_t len = 0;
    char *maps = slurp(dir, "maps", MAX_MAPS, &len);
    if (maps != NULL) {
        p->maps_known = true;
        nt_proc_take_maps(p, maps);
    }
    free(maps);
}

int nt_proc_read(const char *proc, uint32_t pid, bool with_maps, struct nt_proc *ret,
                 struct nt_err *err)
{
    char path[PATH_MAX];
    struct nt_proc p = {.pid = pid, .inner_pid = pid};
    size_t len = 0;
    char *text;
    struct stat st;
    int dir;

    (void)snprintf(path, sizeof(path), "%s/%u", proc != NULL ? proc : "/proc", pid);
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return nt_fail(err, NT_E_MISSING, 0, "there is no process %u", pid);
    }
    text = slurp(dir, "stat", MAX_STAT, &len);
    if (text == NULL || !nt_proc_take_stat(&p, text)) {
        free(text);
        (void)close(dir);
        return nt_fail(err, NT_E_MISSING, 0, "process %u: no stat", pid);
    }
    free(text);
    p.uid = fstat(dir, &st) == 0 ? st.st_uid : 0;
    text = slurp(dir, "status", MAX_STAT, &len);
    if (text != NULL) {
        nt_proc_take_status(&p, text);
    }
    free(text);
    p.environ = slurp(dir, "environ", MAX_ENVIRON, &p.environ_len);
    p.environ_known = p.environ != NULL;
    p.cmdline = slurp(dir, "cmdline", MAX_CMDLINE, &p.cmdline_len);
    if (with_maps) {
        read_maps(dir, &p);
    }
    (void)close(dir);
    *ret = p;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int nt_proc_list(const char *proc, uint32_t **ret, size_t *ret_n, struct nt_err *err)
{
    DIR *dir = opendir(proc != NULL ? proc : "/proc");
    struct dirent *e;
    uint32_t *v = NULL;
    size_t n = 0, cap = 0;

    if (dir == NULL) {
        return nt_fail(err, NT_E_IO, errno, "%s", proc != NULL ? proc : "/proc");
    }
    while ((e = readdir(dir)) != NULL) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9') {
            continue;
        }
        if (n == cap) {
            uint32_t *more = realloc(v, (cap == 0 ? 1024 : cap * 2) * sizeof(*v));
            if (more == NULL) {
                free(v);
                (void)closedir(dir);
                return nt_fail(err, NT_E_NOMEM, 0, "processes");
            }
            v = more;
            cap = cap == 0 ? 1024 : cap * 2;
        }
        v[n++] = (uint32_t)strtoul(e->d_name, NULL, 10);
    }
    (void)closedir(dir);
    if (n > 0) {
        qsort(v, n, sizeof(*v), by_number);
    }
    *ret = v;
    *ret_n = n;
    return 0;
}
