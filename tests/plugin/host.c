#include "tests/plugin/host.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

char host_log[1 << 16];

void host_logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    static int busy; /* several communicators may log at once; lines of the loser are dropped */
    va_list ap;
    (void)level, (void)flags, (void)file, (void)line;
    if (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE) != 0) {
        return;
    }
    size_t at = strlen(host_log);
    va_start(ap, fmt);
    (void)vsnprintf(host_log + at, sizeof(host_log) - at, fmt, ap);
    va_end(ap);
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}

static const void *symbol(void *lib, const char *name)
{
    const void *s = dlsym(lib, name);
    if (s == NULL) {
        (void)dprintf(2, "%s is missing\n", name);
        _exit(99);
    }
    return s;
}

void host_open(struct host *h)
{
    h->lib = dlopen(NT_TUNER_LIB, RTLD_NOW | RTLD_LOCAL);
    if (h->lib == NULL) {
        (void)dprintf(2, "%s\n", dlerror());
        _exit(99);
    }
    h->v2 = symbol(h->lib, "ncclTunerPlugin_v2");
    h->v3 = symbol(h->lib, "ncclTunerPlugin_v3");
    h->v4 = symbol(h->lib, "ncclTunerPlugin_v4");
    h->v5 = symbol(h->lib, "ncclTunerPlugin_v5");
    h->v6 = symbol(h->lib, "ncclTunerPlugin_v6");
}

int host_init(const struct host *h, int abi, size_t nranks, size_t nnodes, void **ctx)
{
    switch (abi) {
    case 2:
        return h->v2->init(nranks, nnodes, host_logger, ctx);
    case 3:
        return h->v3->init(nranks, nnodes, host_logger, ctx);
    case 4:
        return h->v4->init(nranks, nnodes, host_logger, ctx);
    case 5:
        return h->v5->init(ctx, 77, nranks, nnodes, host_logger, NULL, NULL);
    default:
        return h->v6->init(ctx, 77, nranks, nnodes, host_logger, NULL, NULL);
    }
}

int host_end(const struct host *h, int abi, void *ctx)
{
    int (*const end[])(void *) = {h->v2->destroy, h->v3->destroy, h->v4->destroy, h->v5->finalize,
                                  h->v6->finalize};
    return end[abi - 2](ctx);
}

static int ask(const struct host *h, void *ctx, struct host_call *c, float *cost)
{
    float **table = (float **)(void *)cost;
    switch (c->abi) {
    case 2:
        return h->v2->get_coll_info(ctx, c->coll, c->bytes, !c->no_collnet, !c->no_nvls,
                                    c->pipe_ops, &c->algo, &c->proto, &c->channels);
    case 3:
        return h->v3->get_coll_info(ctx, c->coll, c->bytes, c->pipe_ops, table, c->nalgo, c->nproto,
                                    &c->channels);
    case 4:
        return h->v4->get_coll_info(ctx, c->coll, c->bytes, c->pipe_ops, table, c->nalgo, c->nproto,
                                    c->reg_buff, &c->channels);
    case 5:
        return h->v5->get_coll_info(ctx, c->coll, c->bytes, c->pipe_ops, table, c->nalgo, c->nproto,
                                    c->reg_buff, &c->channels);
    default:
        return h->v6->get_coll_info(ctx, c->coll, c->bytes, c->pipe_ops, table, c->nalgo, c->nproto,
                                    c->reg_buff, &c->channels);
    }
}

int host_ask(const struct host *h, void *ctx, struct host_call *c)
{
    float cost[32], before[32];
    int rc, best = -1;

    c->nalgo = c->nalgo > 0 ? c->nalgo : 7;
    c->nproto = c->nproto > 0 ? c->nproto : 3;
    for (int i = 0; i < 32; i++) {
        bool open = i < c->nalgo * c->nproto &&
                    nt_kernel_exists(c->coll, i / c->nproto, i % c->nproto) &&
                    (c->closed >> (unsigned)i & 1U) == 0;
        before[i] = open ? (float)(100 + i) : c->ignored < 0 ? c->ignored : -1;
        before[i] = i < c->nalgo * c->nproto ? before[i] : 7; /* not the table's: must stay */
    }
    memcpy(cost, before, sizeof(cost));
    c->algo = c->proto = -1;
    c->channels = 0;
    c->pipe_ops = c->pipe_ops > 0 ? c->pipe_ops : 1;
    rc = ask(h, ctx, c, cost);
    c->touched = 0;
    for (int i = 0; i < 32; i++) {
        c->touched += cost[i] != before[i];
    }
    if (c->abi != 2) {
        for (int i = 0; i < c->nalgo * c->nproto; i++) {
            best = cost[i] >= 0 && (best < 0 || cost[i] < cost[best]) ? i : best;
        }
        c->algo = best >= 0 && c->touched > 0 ? best / c->nproto : -1;
        c->proto = best >= 0 && c->touched > 0 ? best % c->nproto : -1;
    }
    return rc;
}

int host_child(int (*fn)(void *arg), void *arg, char *err, size_t err_size)
{
    static const char *const vars[] = {
        "NCCLTUNE_PROFILE", "NCCLTUNE_TABLE",    "NCCLTUNE_DISABLE",     "NCCLTUNE_JOB",
        "NCCLTUNE_CSV",     "NCCLTUNE_RECEIPTS", "NCCLTUNE_LOCAL_RANKS", "LOCAL_RANK",
        "XDG_RUNTIME_DIR",  "NCCL_TUNER_PLUGIN", "NCCL_HOSTID",          "NCCLTUNE_LOADER"};
    int fds[2] = {-1, -1}, status = 0;
    size_t n = 0;
    pid_t pid;

    if (err != NULL && pipe(fds) != 0) {
        return 98;
    }
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        for (size_t i = 0; i < COUNT(vars); i++) {
            (void)unsetenv(vars[i]);
        }
        if (err != NULL) {
            (void)dup2(fds[1], 2);
            (void)close(fds[0]);
            (void)close(fds[1]);
        }
        _exit(fn(arg));
    }
    if (err != NULL) {
        (void)close(fds[1]);
        for (ssize_t got = 1; got > 0 && n<err_size - 1; n += got> 0 ? (size_t)got : 0) {
            got = read(fds[0], err + n, err_size - 1 - n);
        }
        err[n] = '\0';
        (void)close(fds[0]);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return 97;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

void host_put(const char *path, const void *data, size_t size, unsigned mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || fchmod(fd, (mode_t)mode) != 0) {
        perror(path);
        abort();
    }
    (void)close(fd);
}

void host_dir_vars(struct host_dir *d, enum nt_table_product product,
                   const struct nt_table_var *vars, size_t nvars, const struct nt_table_row *rows,
                   size_t nrows)
{
    struct nt_why why = {""};

    memset(d, 0, sizeof(*d));
    (void)snprintf(d->path, sizeof(d->path), "/tmp/nt-plugin-XXXXXX");
    if (mkdtemp(d->path) == NULL ||
        nt_table_write(product, vars, nvars, rows, nrows, &d->data, &d->size, d->hash, &why) != 0) {
        (void)fprintf(stderr, "%s: %s\n", d->path, why.text);
        abort();
    }
    (void)snprintf(d->table, sizeof(d->table), "%s/%s.nctable", d->path, d->hash);
    (void)snprintf(d->receipts, sizeof(d->receipts), "%s/receipts", d->path);
    if (mkdir(d->receipts, 0700) != 0) {
        abort();
    }
    host_put(d->table, d->data, d->size, 0644);
}

void host_dir(struct host_dir *d, const struct nt_table_row *rows, size_t nrows)
{
    host_dir_vars(d, NT_TABLE_TABLE, NULL, 0, rows, nrows);
}

void host_tell(const struct host_dir *d)
{
    (void)setenv("NCCLTUNE_PROFILE", d->hash, 1);
    (void)setenv("NCCLTUNE_TABLE", d->table, 1);
    (void)setenv("NCCLTUNE_RECEIPTS", d->receipts, 1);
}

static void empty(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        (void)unlinkat(dirfd(dir), e->d_name, 0);
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

void host_clean(struct host_dir *d)
{
    empty(d->receipts);
    (void)rmdir(d->receipts);
    empty(d->path);
    (void)rmdir(d->path);
    free(d->data);
}

const uint8_t *host_receipt(const struct host_dir *d, unsigned i, struct nt_receipt_head *head)
{
    DIR *dir = opendir(d->receipts);
    struct dirent *e;
    const uint8_t *found = NULL;
    unsigned n = 0;

    while (dir != NULL && found == NULL && (e = readdir(dir)) != NULL) {
        const char *dot = strrchr(e->d_name, '.');
        struct nt_why why = {""};
        if (dot == NULL || strcmp(dot, NT_RECEIPT_SUFFIX) != 0 || n++ != i) {
            continue;
        }
        int fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_CLOEXEC);
        struct stat st;
        void *m = MAP_FAILED;
        if (fd >= 0 && fstat(fd, &st) == 0) {
            m = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        }
        (void)close(fd);
        if (m == MAP_FAILED || nt_receipt_read(m, (size_t)st.st_size, head, &why) != 0) {
            (void)fprintf(stderr, "%s: %s\n", e->d_name, why.text);
            abort();
        }
        found = m;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return found;
}
