#include "tuner/deliver/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "profiles/format/sha256.h"
#include "tuner/deliver/active.h"
#include "tuner/deliver/safe.h"

enum { APART_MS = 2000, MAX_TABLE = 4 << 20, MAX_NAMES = 4096 };

/* What is to be read of a process's files. */
struct want {
    const char *proc;
    const struct nt_proc *p;
    const char *boot_id;
    const char *table;        /* a delivery file's path; NULL: a receipt */
    struct nt_engine *engine; /* of the engine's plugin, to here; NULL: that of NCCL's plugins */
};

/* The file system as the process sees it: its container's. */
static const char *root_of(const struct want *w, char *out, size_t size)
{
    int fd;
    (void)snprintf(out, size, "%s/%u/root", w->proc != NULL ? w->proc : "/proc", w->p->pid);
    fd = open(out, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return "/";
    }
    (void)close(fd);
    return out;
}

/* ---- receipts ---- */

static bool is_of(const struct want *w, uint32_t pid, uint64_t ticks, const char *boot_id,
                  char why[256])
{
    if (pid != w->p->inner_pid || ticks != w->p->start_ticks) {
        (void)snprintf(why, 256, "names another process than its file");
        return false;
    }
    if (w->boot_id[0] != '\0' && strcmp(boot_id, w->boot_id) != 0) {
        (void)snprintf(why, 256, "from before the last boot");
        return false;
    }
    return true;
}

static bool check(const struct want *w, const struct nt_buf *b, char why[256])
{
    struct nt_receipt_head h;
    struct nt_why bad = {""};

    if (nt_receipt_read(b->data, b->len, &h, &bad) != 0) {
        (void)snprintf(why, 256, "%.255s", bad.text);
        return false;
    }
    if (!is_of(w, h.pid, h.start_ticks, h.boot_id, why)) {
        return false;
    }
    if (w->p->inner_pid == w->p->pid && h.uid != w->p->uid) {
        (void)snprintf(why, 256, "names another user than the process's");
        return false;
    }
    return true;
}

static bool check_engine(const struct want *w, const struct nt_buf *b, char why[256])
{
    struct nt_err err = {.code = NT_OK};

    if (nt_engine_read(nt_buf_str(b), b->len, w->engine, &err) != 0) {
        (void)snprintf(why, 256, "%.255s", err.msg);
        return false;
    }
    return is_of(w, w->engine->pid, w->engine->start_ticks, w->engine->boot_id, why);
}

/* An earlier process of this number left one. */
static bool has_old(int folder, uint32_t pid)
{
    int copy = dup(folder);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    struct dirent *e;
    char prefix[16];
    bool found = false;

    (void)snprintf(prefix, sizeof(prefix), "%u.", pid);
    for (int i = 0; dir != NULL && !found && i < MAX_NAMES && (e = readdir(dir)) != NULL; i++) {
        found = strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    } else if (copy >= 0) {
        (void)close(copy);
    }
    return found;
}

/* 1: found, 0: none here, -1: something is wrong with it. */
static int read_from(const struct want *w, const char *root, const char *path, struct nt_buf *out,
                     char why[256])
{
    struct nt_err err = {.code = NT_OK};
    char name[80];
    int rc, folder = nt_safe_folder(root, path, w->p->uid, 0, &err);

    if (folder < 0) {
        (void)snprintf(why, 256, "%.255s", folder == -NT_E_MISSING ? "" : err.msg);
        return folder == -NT_E_MISSING ? 0 : -1;
    }
    (void)snprintf(name, sizeof(name), "%s%u.%llu%s", w->engine != NULL ? NT_ENGINE_PREFIX : "",
                   w->p->inner_pid, (unsigned long long)w->p->start_ticks,
                   w->engine != NULL ? NT_ENGINE_SUFFIX : NT_RECEIPT_SUFFIX);
    rc = nt_safe_read(folder, name, w->p->uid, out, &err);
    if (rc == -NT_E_MISSING) {
        (void)snprintf(why, 256, "%s",
                       w->engine == NULL && has_old(folder, w->p->inner_pid)
                           ? "stale: of an earlier process of this number"
                           : "");
        (void)close(folder);
        return 0;
    }
    (void)close(folder);
    if (rc != 0) {
        (void)snprintf(why, 256, "%.255s", err.msg);
        return -1;
    }
    return (w->engine != NULL ? check_engine(w, out, why) : check(w, out, why)) ? 1 : -1;
}

static bool read_receipt(const struct want *w, struct nt_buf *out, char why[256])
{
    /* A path out of another user's environment could lead anywhere. */
    bool own = w->p->uid == geteuid();
    const char *told = own ? nt_proc_env(w->p, "NCCLTUNE_RECEIPTS") : NULL;
    const char *xdg = own ? nt_proc_env(w->p, "XDG_RUNTIME_DIR") : NULL;
    char root[PATH_MAX], folders[4][PATH_MAX], first[256] = "";
    const char *at = root_of(w, root, sizeof(root));

    (void)snprintf(folders[0], PATH_MAX, "%s", told != NULL ? told : "");
    (void)snprintf(folders[1], PATH_MAX, "/run/nccltune/%u", w->p->uid);
    (void)snprintf(folders[2], PATH_MAX, "%s%s", xdg != NULL ? xdg : "",
                   xdg != NULL ? "/nccltune" : "");
    (void)snprintf(folders[3], PATH_MAX, "/run/user/%u/nccltune", w->p->uid);
    for (size_t i = 0; i < 4; i++) {
        int found;
        if (folders[i][0] != '/') {
            continue;
        }
        nt_buf_clear(out);
        why[0] = '\0';
        found = read_from(w, at, folders[i], out, why);
        if (found == 1) {
            return true;
        }
        if (first[0] == '\0') {
            (void)snprintf(first, sizeof(first), "%s", why);
        }
    }
    nt_buf_clear(out);
    (void)nt_clean(first, why, 256);
    return false;
}

/* ---- tables ---- */

/* The path does not matter, the hash does: the caller compares it. */
static bool read_table(const struct want *w, struct nt_buf *out, char why[256])
{
    char root[PATH_MAX], folder[PATH_MAX], *slash;
    struct nt_err err = {.code = NT_OK};
    int fd, rc;

    (void)snprintf(folder, sizeof(folder), "%s", w->table);
    slash = strrchr(folder, '/');
    if (folder[0] != '/' || slash == NULL) {
        (void)snprintf(why, 256, "no absolute path");
        return false;
    }
    *slash = '\0';
    fd = nt_safe_folder(root_of(w, root, sizeof(root)), folder[0] != '\0' ? folder : "/", w->p->uid,
                        0, &err);
    rc = fd < 0 ? fd : nt_safe_read(fd, slash + 1, w->p->uid, out, &err);
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)snprintf(why, 256, "%.255s", rc != 0 ? err.msg : "");
    return rc == 0;
}

static bool read_now(const struct want *w, struct nt_buf *out, char why[256])
{
    why[0] = '\0';
    return w->table != NULL ? read_table(w, out, why) : read_receipt(w, out, why);
}

/* ---- apart ---- */

static void send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n <= 0) {
            return;
        }
        data += n;
        len -= (size_t)n;
    }
}

static uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* False: it took too long. */
static bool receive(int fd, struct nt_buf *out)
{
    uint64_t end = now_ms() + APART_MS;
    char chunk[65536];
    ssize_t n = 1;

    while (n > 0) {
        uint64_t now = now_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (now >= end || poll(&p, 1, (int)(end - now)) == 0) {
            return false;
        }
        n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR) {
            n = 1;
        } else if (n > 0) {
            nt_buf_add(out, chunk, (size_t)n);
        }
    }
    return true;
}

/* A user can hang whoever reads from a file system that he himself serves. */
static bool read_apart(const struct want *w, struct nt_buf *out, char why[256])
{
    struct nt_buf all;
    int fds[2];
    bool ok = false;
    pid_t child;

    if (pipe2(fds, O_CLOEXEC) != 0) {
        (void)snprintf(why, 256, "%s", strerror(errno));
        return false;
    }
    child = fork();
    if (child == 0) {
        char reason[256] = "";
        char found = read_now(w, out, reason) ? '1' : '0';
        send_all(fds[1], &found, 1);
        send_all(fds[1], reason, sizeof(reason));
        send_all(fds[1], out->data, out->len);
        _exit(0);
    }
    (void)close(fds[1]);
    nt_buf_init(&all, out->max + 512);
    if (child < 0 || !receive(fds[0], &all)) {
        (void)snprintf(why, 256, "could not be read in %d ms", APART_MS);
        if (child > 0) {
            (void)kill(child, SIGKILL);
        }
    } else if (all.len >= 257 && !all.failed) {
        ok = all.data[0] == '1';
        (void)nt_clean(all.data + 1, why, 256);
        nt_buf_clear(out);
        nt_buf_add(out, all.data + 257, all.len - 257);
    } else {
        (void)snprintf(why, 256, "could not be read");
    }
    (void)close(fds[0]);
    if (child > 0) {
        (void)waitpid(child, NULL, 0);
    }
    nt_buf_done(&all);
    return ok;
}

static bool read_it(const struct want *w, struct nt_buf *out, char why[256])
{
    return w->p->uid == geteuid() ? read_now(w, out, why) : read_apart(w, out, why);
}

bool nt_scan_receipt(const char *proc, const struct nt_proc *p, const char *boot_id,
                     struct nt_buf *out, char why[256])
{
    return read_it(&(struct want){.proc = proc, .p = p, .boot_id = boot_id}, out, why);
}

/* ---- one process ---- */

static void free_scanned(struct nt_scanned *s)
{
    if (s != NULL) {
        free(s->engine);
        nt_proc_done(&s->proc);
        for (unsigned i = 0; i < NT_PROC_ANCESTORS; i++) {
            nt_proc_done(&s->ancestors[i]);
        }
        nt_buf_done(&s->receipt);
        nt_buf_done(&s->table);
        free(s);
    }
}

static void take_ancestors(const struct nt_scan_opts *o, struct nt_scanned *s)
{
    uint32_t pid = s->proc.ppid;
    unsigned n = 0;

    while (pid > 0 && n < NT_PROC_ANCESTORS &&
           nt_proc_read(o->proc, pid, false, &s->ancestors[n], NULL) == 0) {
        s->facts.ancestors[n] = &s->ancestors[n];
        pid = s->ancestors[n++].ppid;
    }
    s->facts.nancestors = n;
}

static void take_table(const struct nt_scan_opts *o, const struct nt_doctor_world *w,
                       struct nt_scanned *s)
{
    const char *told = nt_proc_env(&s->proc, "NCCLTUNE_TABLE");
    const char *hash =
        s->facts.receipt != NULL ? s->facts.head.hash : nt_proc_env(&s->proc, "NCCLTUNE_PROFILE");
    char found[NT_HASH_HEX + 1], why[256];
    struct want want = {.proc = o->proc, .p = &s->proc, .boot_id = w->boot_id, .table = told};

    if (told == NULL && hash != NULL && strcmp(hash, w->active) == 0) {
        want.table = w->active_table;
    }
    if (want.table == NULL || hash == NULL || !read_it(&want, &s->table, why)) {
        return;
    }
    nt_format_sha256_hex(s->table.data, s->table.len, found);
    if (strcmp(found, hash) == 0 &&
        nt_table_read(s->table.data, s->table.len, &s->parsed, NULL) == 0) {
        s->facts.table = &s->parsed;
    }
}

/* The text is read again here: what a child looked at is in its own memory. */
static void take_engine(const struct nt_scan_opts *o, const struct nt_doctor_world *w,
                        struct nt_scanned *s)
{
    struct nt_engine *e = calloc(1, sizeof(*e));
    struct want want = {.proc = o->proc, .p = &s->proc, .boot_id = w->boot_id, .engine = e};
    struct nt_buf text;

    nt_buf_init(&text, NT_ENGINE_BYTES);
    if (e != NULL && read_it(&want, &text, s->engine_why) &&
        nt_engine_read(nt_buf_str(&text), text.len, e, NULL) == 0) {
        s->engine = e;
        s->facts.engine = e;
    } else {
        free(e);
    }
    nt_buf_done(&text);
}

/* Where a link of the process's folder leads; "" where that cannot be told. */
static const char *link_of(const struct nt_scan_opts *o, uint32_t pid, const char *name, char *out,
                           size_t size)
{
    char link[PATH_MAX];
    ssize_t n;

    (void)snprintf(link, sizeof(link), "%s/%u/%s", o->proc != NULL ? o->proc : "/proc", pid, name);
    n = readlink(link, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return out;
}

static void take_loader(const struct nt_scan_opts *o, struct nt_scanned *s)
{
    const struct want w = {.proc = o->proc, .p = &s->proc};
    char root[PATH_MAX], exe[PATH_MAX], cwd[PATH_MAX];

    if (s->facts.receipt == NULL && nt_proc_is_python(&s->proc)) {
        s->facts.loader = nt_scan_loader(root_of(&w, root, sizeof(root)), &s->proc,
                                         link_of(o, s->proc.pid, "exe", exe, sizeof(exe)),
                                         link_of(o, s->proc.pid, "cwd", cwd, sizeof(cwd)));
    }
}

static bool worth_showing(const struct nt_scanned *s)
{
    bool plugin = false;
    for (unsigned i = 0; i < NT_RECEIPT_PARTS; i++) {
        plugin = plugin || s->proc.plugin[i][0] != '\0';
    }
    return s->proc.nnccl > 0 || plugin || s->facts.receipt != NULL || s->facts.engine != NULL ||
           (s->proc.gpu && nt_proc_env(&s->proc, "NCCLTUNE_PROFILE") != NULL);
}

/* NULL: gone, or nothing of interest (and not asked for by number). */
static struct nt_scanned *scan_one(const struct nt_scan_opts *o, const struct nt_doctor_world *w,
                                   uint32_t pid, bool asked, size_t *unreadable)
{
    struct nt_scanned *s = calloc(1, sizeof(*s));

    if (s == NULL || nt_proc_read(o->proc, pid, true, &s->proc, NULL) != 0) {
        free(s);
        return NULL;
    }
    nt_buf_init(&s->receipt, NT_RECEIPT_BYTES);
    nt_buf_init(&s->table, MAX_TABLE);
    s->facts.proc = &s->proc;
    s->facts.no_receipt = s->why;
    s->facts.no_engine = s->engine_why;
    *unreadable += !s->proc.maps_known && s->proc.cmdline_len > 0;
    if (asked || s->proc.maps_known) {
        if (nt_scan_receipt(o->proc, &s->proc, w->boot_id, &s->receipt, s->why) &&
            nt_receipt_read(s->receipt.data, s->receipt.len, &s->facts.head, NULL) == 0) {
            s->facts.receipt = (const uint8_t *)s->receipt.data;
        }
        take_engine(o, w, s);
    }
    if (!asked && !worth_showing(s)) {
        free_scanned(s);
        return NULL;
    }
    take_ancestors(o, s);
    take_table(o, w, s);
    take_loader(o, s);
    nt_doctor_judge(&s->facts, w, &s->verdict);
    return s;
}

/* ---- all ---- */

static void take_active(const struct nt_scan_opts *o, struct nt_doctor_world *w)
{
    char folder[PATH_MAX], *slash;
    struct nt_buf text;
    struct nt_active a;
    int fd;

    (void)snprintf(folder, sizeof(folder), "%s",
                   o->active != NULL ? o->active : NT_ACTIVE_FOLDER "/" NT_ACTIVE_NAME);
    slash = strrchr(folder, '/');
    if (slash == NULL) {
        return;
    }
    *slash = '\0';
    nt_buf_init(&text, NT_ACTIVE_MAX);
    fd = nt_safe_folder(NULL, folder, geteuid(), 0, NULL);
    if (fd >= 0 && nt_safe_read(fd, slash + 1, geteuid(), &text, NULL) == 0 &&
        nt_active_parse(nt_buf_str(&text), text.len, &a, NULL) == 0) {
        if (strcmp(a.boot, w->boot_id) == 0) {
            (void)snprintf(w->active, sizeof(w->active), "%s",
                           nt_active_get(&a, "NCCLTUNE_PROFILE"));
            (void)snprintf(w->active_table, sizeof(w->active_table), "%.511s",
                           nt_active_get(&a, "NCCLTUNE_TABLE"));
            w->active_env = nt_active_get(&a, "NCCL_ENV_PLUGIN") != NULL;
            if (nt_active_get(&a, "NCCLTUNE_BACKENDS") != NULL) {
                (void)snprintf(w->active_backends, sizeof(w->active_backends), "%.64s",
                               nt_active_get(&a, "NCCLTUNE_BACKENDS"));
            }
        }
        nt_active_done(&a);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    nt_buf_done(&text);
}

struct family {
    uint32_t pid, ppid;
    bool in, asked;
};

/* Marks the processes asked for and what descends from them. */
static void mark(struct family *all, size_t n, const struct nt_scan_opts *o)
{
    bool more = true;

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < o->npids; k++) {
            all[i].asked = all[i].asked || all[i].pid == o->pids[k];
        }
        all[i].in = all[i].asked || o->npids == 0;
    }
    while (more && o->npids > 0) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            for (size_t k = 0; k < n && !all[i].in; k++) {
                all[i].in = all[k].in && all[k].pid == all[i].ppid;
                more = more || all[i].in;
            }
        }
    }
}

static int check_asked(const struct family *all, size_t n, const struct nt_scan_opts *o,
                       struct nt_err *err)
{
    for (size_t k = 0; k < o->npids; k++) {
        bool found = false;
        for (size_t i = 0; i < n; i++) {
            found = found || all[i].pid == o->pids[k];
        }
        if (!found) {
            return nt_fail(err, NT_E_INVAL, 0, "there is no process %u", o->pids[k]);
        }
    }
    return 0;
}

/* Parents are needed only to find what descends from the processes asked for. */
static void take_parents(const struct nt_scan_opts *o, struct family *all, size_t n)
{
    for (size_t i = 0; o->npids > 0 && i < n; i++) {
        struct nt_proc p;
        if (nt_proc_read(o->proc, all[i].pid, false, &p, NULL) == 0) {
            all[i].ppid = p.ppid;
            nt_proc_done(&p);
        }
    }
}

static int judge_family(struct nt_scan *s, struct nt_err *err)
{
    struct nt_doctor_member *m = calloc(s->n + 1, sizeof(*m));

    if (m == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "processes");
    }
    for (size_t i = 0; i < s->n; i++) {
        m[i] = (struct nt_doctor_member){&s->v[i]->facts, &s->v[i]->verdict};
    }
    nt_doctor_family(m, s->n);
    free(m);
    return 0;
}

static int scan_all(const struct nt_scan_opts *o, const uint32_t *pids, size_t n, struct nt_scan *s,
                    struct nt_err *err)
{
    struct family *all = calloc(n + 1, sizeof(*all));
    int rc;

    s->v = calloc(n + 1, sizeof(struct nt_scanned *));
    if (all == NULL || s->v == NULL) {
        free(all);
        return nt_fail(err, NT_E_NOMEM, 0, "processes");
    }
    for (size_t i = 0; i < n; i++) {
        all[i].pid = pids[i];
    }
    take_parents(o, all, n);
    mark(all, n, o);
    rc = check_asked(all, n, o, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (all[i].in && all[i].pid != (uint32_t)getpid()) {
            s->v[s->n] = scan_one(o, &s->world, all[i].pid, all[i].asked, &s->unreadable);
            s->n += s->v[s->n] != NULL;
        }
    }
    free(all);
    return rc == 0 ? judge_family(s, err) : rc;
}

int nt_scan(const struct nt_scan_opts *o, struct nt_scan *ret, struct nt_err *err)
{
    struct nt_scan s = {.n = 0};
    uint32_t *pids = NULL;
    size_t n = 0;
    int rc = nt_proc_list(o->proc, &pids, &n, err);

    if (rc != 0) {
        return rc;
    }
    nt_boot_id(s.world.boot_id);
    take_active(o, &s.world);
    rc = scan_all(o, pids, n, &s, err);
    free(pids);
    if (rc != 0) {
        nt_scan_done(&s);
        return rc;
    }
    *ret = s;
    return 0;
}

void nt_scan_done(struct nt_scan *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free_scanned(s->v[i]);
    }
    free(s->v);
    s->v = NULL;
    s->n = 0;
}
