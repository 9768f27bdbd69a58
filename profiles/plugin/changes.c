#include "profiles/plugin/changes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_START = 1 << 20, MAX_VARS = 512 };
static const char prefix[] = "NCCL_", plugin[] = "_PLUGIN";

/* NAME=VALUE texts, in one block of memory. */
struct variables {
    char *text;
    size_t n;
    const char *v[MAX_VARS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    pid_t pid; /* whose: a forked child begins anew; 0: nobody's */
    struct variables first;
} seen;

static bool is_ours(const char *assignment)
{
    return strncmp(assignment, prefix, sizeof(prefix) - 1) == 0 && strchr(assignment, '=') != NULL;
}

/* Length of the name. */
static size_t name_len(const char *assignment)
{
    return strcspn(assignment, "=");
}

static const char *find(const char *const *v, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (strncmp(v[i], name, len) == 0 && v[i][len] == '=') {
            return v[i] + len + 1;
        }
    }
    return NULL;
}

static bool is_the_profiles(const struct nt_process *p, const char *name, const char *value)
{
    struct nt_table_var_text t;
    size_t at = 0;
    while (nt_table_next_var(&p->table, &at, &t)) {
        if (strcmp(t.name, name) == 0) {
            return value != NULL && strcmp(t.value, value) == 0;
        }
    }
    return false;
}

static void add(const struct nt_process *p, const char *assignment, const char *before,
                const char *now, uint32_t comms)
{
    char name[NT_RECEIPT_NAME];
    size_t len = name_len(assignment), tail = sizeof(plugin) - 1;

    if (len >= sizeof(name)) {
        return;
    }
    memcpy(name, assignment, len);
    name[len] = '\0';
    if ((len > tail && strcmp(name + len - tail, plugin) == 0) ||
        (comms == 0 && before == NULL && is_the_profiles(p, name, now))) {
        return;
    }
    nt_receipt_add_change(p->receipt,
                          &(struct nt_receipt_change){name, before, now, .comms = comms});
}

/* `now` against `before`, both NAME=VALUE. */
static void compare(const struct nt_process *p, const struct variables *before,
                    const struct variables *now, uint32_t comms)
{
    for (size_t i = 0; i < now->n; i++) {
        size_t len = name_len(now->v[i]);
        const char *was = find(before->v, before->n, now->v[i], len);
        if (was == NULL || strcmp(was, now->v[i] + len + 1) != 0) {
            add(p, now->v[i], was, now->v[i] + len + 1, comms);
        }
    }
    for (size_t i = 0; i < before->n; i++) {
        size_t len = name_len(before->v[i]);
        if (find(now->v, now->n, before->v[i], len) == NULL) {
            add(p, before->v[i], before->v[i] + len + 1, NULL, comms);
        }
    }
}

static void take_now(struct variables *ret)
{
    ret->n = 0;
    for (char **e = environ; e != NULL && *e != NULL && ret->n < MAX_VARS; e++) {
        if (is_ours(*e)) {
            ret->v[ret->n++] = *e;
        }
    }
}

static bool keep(const struct variables *from, struct variables *ret)
{
    size_t size = 1;
    char *at;

    for (size_t i = 0; i < from->n; i++) {
        size += strlen(from->v[i]) + 1;
    }
    at = malloc(size);
    if (at == NULL) {
        return false;
    }
    free(ret->text);
    ret->text = at;
    ret->n = from->n;
    for (size_t i = 0; i < from->n; i++) {
        size_t len = strlen(from->v[i]) + 1;
        if (len > size) {
            ret->n = i; /* another thread sets a longer value meanwhile */
            break;
        }
        ret->v[i] = memcpy(at, from->v[i], len);
        at += len;
        size -= len;
    }
    return true;
}

/* The environment at exec. False: it cannot be read, or the program wrote its title over it. */
static bool read_start(struct variables *ret, bool *ret_told)
{
    int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    ssize_t n = 1;
    size_t len = 0;

    ret->n = 0;
    *ret_told = false;
    ret->text = fd >= 0 ? malloc(MAX_START + 1) : NULL;
    while (ret->text != NULL && n > 0 && len < MAX_START) {
        n = read(fd, ret->text + len, MAX_START - len);
        len += n > 0 ? (size_t)n : 0;
        n = n < 0 && errno == EINTR ? 1 : n;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (ret->text == NULL || n != 0) {
        return false;
    }
    ret->text[len] = '\0';
    for (size_t at = 0; at < len; at += strlen(ret->text + at) + 1) {
        const char *e = ret->text + at;
        *ret_told = *ret_told || strncmp(e, "NCCLTUNE_PROFILE=", 17) == 0;
        if (is_ours(e) && ret->n < MAX_VARS) {
            ret->v[ret->n++] = e;
        }
    }
    return strchr(ret->text, '=') != NULL;
}

static void note_first(const struct nt_process *p, const struct variables *now)
{
    const char *env_plugin = getenv("NCCL_ENV_PLUGIN");
    uint32_t flags = 0;
    struct nt_receipt_head head;
    struct variables *start = calloc(1, sizeof(*start));
    bool told = false;

    if (start != NULL && read_start(start, &told)) {
        compare(p, start, now, 0);
        if (!told) {
            flags |= NT_RECEIPT_INSIDE;
            flags |= getenv("NCCLTUNE_LOADER") != NULL ? (uint32_t)NT_RECEIPT_BY_LOADER : 0;
        }
    }
    if (env_plugin != NULL && strstr(env_plugin, "libnccl-env-nccltune.so") != NULL &&
        p->has_receipt && nt_receipt_read(p->receipt, NT_RECEIPT_BYTES, &head, NULL) == 0 &&
        (head.parts & 1U << NT_RECEIPT_ENV) == 0) {
        flags |= NT_RECEIPT_ENV_LATE; /* NCCL looks for it once, before anything else */
    }
    nt_receipt_set_flags(p->receipt, flags);
    if (start != NULL) {
        free(start->text);
        free(start);
    }
}

void nt_changes_note(const struct nt_process *p)
{
    struct variables *now;
    struct nt_receipt_head head = {0};

    (void)pthread_mutex_lock(&lock);
    now = calloc(1, sizeof(*now));
    if (now != NULL) {
        take_now(now);
        if (seen.pid != getpid()) {
            note_first(p, now);
            seen.pid = keep(now, &seen.first) ? getpid() : 0;
        } else if (p->has_receipt &&
                   nt_receipt_read(p->receipt, NT_RECEIPT_BYTES, &head, NULL) == 0) {
            compare(p, &seen.first, now, head.ncomms);
        }
        free(now);
    }
    (void)pthread_mutex_unlock(&lock);
}
