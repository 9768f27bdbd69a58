/*
 * What one decision of the tuner plugin costs, through the built library with its receipt, beside a
 * linear scan of the same rows in the same run.
 *
 * Batches of 64 calls are timed, the same loop around an empty function is taken off, and the three
 * take turns. Prints median and 99th percentile of a call over all batches, and fails above the
 * limits given as arguments (ns, 0: none) or when a call allocated. Also what the plugin costs a
 * communicator: the first one reads the table and writes the receipt; the env plugin, over all that
 * a communicator asks; and the profiler plugin, for one call as NCCL 2.28 tells it. What NCCL
 * itself does more for a profiler is not in it.
 */
#include <dlfcn.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "profiles/format/table.h"
#include "profiles/plugin/abi.h"

enum { COMMS = 100, BATCH = 64, BATCHES = 20000, ROWS = 1000, CALLS = 4096, CELLS = 21 };

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);

/* The program's own allocator functions stand before libc's in every library it loads. */
static unsigned long allocations;
void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}
void *calloc(size_t nmemb, size_t size)
{
    allocations++;
    return __libc_calloc(nmemb, size);
}
void *realloc(void *ptr, size_t size)
{
    allocations++;
    return __libc_realloc(ptr, size);
}

struct call {
    int coll;
    size_t bytes;
};
typedef int (*ask_cb)(void *context, int coll, size_t bytes, int pipe_ops, float **cost, int nalgo,
                      int nproto, int reg_buff, int *channels);

static struct nt_table_row rows[ROWS];
static unsigned nrows = ROWS;
static struct call calls[CALLS];
static double samples[4][BATCHES], start_us, later_us;

static int empty(void *context, int coll, size_t bytes, int pipe_ops, float **cost, int nalgo,
                 int nproto, int reg_buff, int *channels)
{
    (void)context, (void)coll, (void)bytes, (void)pipe_ops, (void)cost, (void)nalgo, (void)nproto;
    (void)reg_buff, (void)channels;
    return 0;
}

static int linear(void *context, int coll, size_t bytes, int pipe_ops, float **cost, int nalgo,
                  int nproto, int reg_buff, int *channels)
{
    float *cells = (float *)(void *)cost;
    (void)context, (void)reg_buff, (void)nalgo;
    for (unsigned i = 0; i < nrows && pipe_ops <= 1; i++) {
        const struct nt_table_row *r = &rows[i];
        if (r->coll == coll && r->nranks == 8 && r->nnodes == 1 && bytes >= r->min_bytes &&
            bytes <= r->max_bytes) {
            if (cells[r->algo * nproto + r->proto] >= 0) {
                cells[r->algo * nproto + r->proto] = 0;
                *channels = r->channels;
            }
            return 0;
        }
    }
    return 0;
}

static double now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* 200 rows a collective, five an octave, from 64 B up. */
static void make_rows(void)
{
    for (unsigned i = 0; i < nrows; i++) {
        unsigned k = i % 200;
        uint64_t octave = UINT64_C(64) << k / 5, step = octave / 5;
        uint64_t min = octave + k % 5 * step;
        rows[i] = (struct nt_table_row){.coll = (uint8_t)(i / 200),
                                        .nranks = 8,
                                        .nnodes = 1,
                                        .min_bytes = min,
                                        .max_bytes = min + step - 1,
                                        .algo = 1,
                                        .proto = (int8_t)(i % 3),
                                        .channels = (uint16_t)(1 + i % 32)};
    }
    srandom(7);
    for (unsigned i = 0; i < CALLS; i++) {
        const struct nt_table_row *r = &rows[(unsigned long)random() % nrows];
        uint64_t width = r->max_bytes - r->min_bytes + 1;
        calls[i] = (struct call){r->coll, r->min_bytes + (uint64_t)random() % width};
    }
}

static double batch(ask_cb ask, void *context, unsigned at)
{
    static float cost[CELLS]; /* all offered */
    int channels = 0;
    double start = now_ns();
    for (unsigned i = 0; i < BATCH; i++) {
        const struct call *c = &calls[(at + i) % CALLS];
        (void)ask(context, c->coll, c->bytes, 1, (float **)(void *)cost, 7, 3, 0, &channels);
    }
    return (now_ns() - start) / BATCH;
}

static int up(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void *tell_and_load(const char *lib, char *dir, const char **ret_error)
{
    char path[256], receipts[256], hash[NT_HASH_HEX + 1];
    struct nt_why why = {""};
    uint8_t *data;
    size_t size;
    FILE *f;

    *ret_error = "cannot write a delivery file";
    if (nt_table_write(NT_TABLE_TABLE, NULL, 0, rows, nrows, &data, &size, hash, &why) != 0 ||
        mkdtemp(dir) == NULL) {
        (void)fprintf(stderr, "%s\n", why.text);
        return NULL;
    }
    (void)snprintf(path, sizeof(path), "%s/table", dir);
    (void)snprintf(receipts, sizeof(receipts), "%s/receipts", dir);
    f = fopen(path, "we");
    if (f == NULL || fwrite(data, 1, size, f) != size || fclose(f) != 0 || chmod(path, 0644) != 0 ||
        mkdir(receipts, 0700) != 0) {
        return NULL;
    }
    free(data);
    (void)setenv("NCCLTUNE_PROFILE", hash, 1);
    (void)setenv("NCCLTUNE_TABLE", path, 1);
    (void)setenv("NCCLTUNE_RECEIPTS", receipts, 1);
    *ret_error = "cannot load the library";
    return dlopen(lib, RTLD_NOW | RTLD_LOCAL);
}

static void report(unsigned i, const char *name, double limit_median, double limit_p99, int *bad)
{
    double median, p99;
    qsort(samples[i], BATCHES, sizeof(double), up);
    median = samples[i][BATCHES / 2];
    p99 = samples[i][BATCHES / 100 * 99];
    (void)printf("%-22s median %7.1f ns  p99 %7.1f ns  (%d batches of %d calls, %u rows)\n", name,
                 median, p99, BATCHES, BATCH, nrows);
    *bad |= (limit_median > 0 && median > limit_median) || (limit_p99 > 0 && p99 > limit_p99);
}

/* The first, in us, and the median of later ones. */
static int communicators(const struct nt_tuner_v5 *v5, void **ret)
{
    double us[COMMS];

    for (int i = 0; i < COMMS; i++) {
        double start = now_ns();
        if (v5->init(ret, 1, 8, 1, NULL, NULL, NULL) != 0 || *ret == NULL) {
            return -1;
        }
        us[i] = (now_ns() - start) / 1e3;
        if (i + 1 < COMMS) {
            (void)v5->finalize(*ret);
        }
    }
    start_us = us[0];
    qsort(us, COMMS, sizeof(double), up);
    later_us = us[COMMS / 2];
    return 0;
}

/* A symbol of the library that lies beside the tuner's; NULL: not there. */
static void *beside(const char *tuner, const char *file, const char *symbol)
{
    char path[4096];
    const char *slash = strrchr(tuner, '/');
    void *lib;

    (void)snprintf(path, sizeof(path), "%.*s%s", slash != NULL ? (int)(slash - tuner + 1) : 0,
                   tuner, file);
    lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return lib != NULL ? dlsym(lib, symbol) : NULL;
}

/* All that NCCL asks while it makes a communicator goes through the env plugin: NAMES names (2.28.9
 * on an H200 asked 102), each more than once here. µs in its functions, with its start; < 0: not
 * there.
 */
static double environment(const char *tuner)
{
    enum { NAMES = 110, TIMES = 3 };
    char name[32];
    const struct nt_env_v2 *e = beside(tuner, "libnccl-env-nccltune.so", "ncclEnvPlugin_v2");
    double start = now_ns();

    if (e == NULL || e->init(2, 30, 7, "", NULL) != 0) {
        return -1;
    }
    for (int i = 0; i < NAMES * TIMES; i++) {
        (void)snprintf(name, sizeof(name), "NCCL_BENCH_%03d", i % NAMES);
        (void)e->get_env(name);
    }
    return (now_ns() - start) / 1e3;
}

/* One call each: the program's, what was executed for it, its end. */
static double profiled(const struct nt_profiler_v5 *v5, void *context, unsigned at)
{
    double start = now_ns();
    for (unsigned i = 0; i < BATCH; i++) {
        void *api = NULL, *handle = NULL;
        struct nt_prof_event_v4 call = {.type_v5 = NT_PROF_COLL_API,
                                        .coll_api = {.func = "AllReduce"}};
        struct nt_prof_event_v4 done = {.type_v5 = NT_PROF_COLL,
                                        .coll = {.func = "AllReduce",
                                                 .count = calls[(at + i) % CALLS].bytes / 2,
                                                 .datatype = "ncclBfloat16",
                                                 .channels = 24,
                                                 .algo = "RING",
                                                 .proto = "SIMPLE"}};
        (void)v5->start(context, &api, &call);
        done.parent = api;
        (void)v5->start(context, &handle, &done);
        if (handle != NULL) {
            (void)v5->stop(handle);
        }
        (void)v5->stop(api);
    }
    return (now_ns() - start) / BATCH;
}

static bool profiler(const char *tuner)
{
    const struct nt_profiler_v5 *v5 =
        beside(tuner, "libnccl-profiler-nccltune.so", "ncclProfiler_v5");
    void *context = NULL;
    int mask = 0;

    if (v5 == NULL || v5->init(&context, 1, &mask, "bench", 1, 8, 0, NULL) != 0 ||
        (mask & NT_PROF_COLL) == 0) {
        return false;
    }
    for (unsigned i = 0; i < BATCHES; i++) {
        samples[3][i] = profiled(v5, context, i * BATCH);
    }
    return v5->finalize(context) == 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

int main(int argc, char **argv)
{
    char dir[] = "/tmp/nt-bench-XXXXXX";
    const char *error;
    void *context = NULL, *lib;
    const struct nt_tuner_v5 *v5;
    unsigned long before;
    double us;
    int bad = 0;

    if (argc < 2) {
        (void)fprintf(stderr, "usage: %s LIBRARY [MEDIAN_NS [P99_NS [ROWS]]]\n", argv[0]);
        return 2;
    }
    nrows = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : ROWS;
    nrows = nrows == 0 || nrows > ROWS ? ROWS : nrows;
    make_rows();
    lib = tell_and_load(argv[1], dir, &error);
    v5 = lib != NULL ? dlsym(lib, "ncclTunerPlugin_v5") : NULL;
    if (v5 == NULL || communicators(v5, &context) != 0) {
        (void)fprintf(stderr, "%s\n", lib == NULL ? error : "the plugin refused");
        return 1;
    }
    before = allocations;
    for (unsigned i = 0; i < BATCHES; i++) {
        unsigned at = i * BATCH;
        double loop = batch(empty, context, at);
        samples[0][i] = loop;
        samples[1][i] = batch(v5->get_coll_info, context, at) - loop;
        samples[2][i] = batch(linear, context, at) - loop;
    }
    before = allocations - before; /* of the calls alone */
    bad |= before != 0;
    report(0, "empty call (taken off)", 0, 0, &bad);
    report(1, "plugin", argc > 2 ? strtod(argv[2], NULL) : 0, argc > 3 ? strtod(argv[3], NULL) : 0,
           &bad);
    report(2, "linear scan", 0, 0, &bad);
    (void)printf("a communicator         first %7.1f us  later %7.1f us\n", start_us, later_us);
    if (profiler(argv[1])) {
        report(3, "profiler plugin", 0, 0, &bad);
    }
    if ((us = environment(argv[1])) >= 0) {
        (void)printf("env plugin             %7.1f us in all for 110 names asked three times\n",
                     us);
    }
    (void)printf("allocations in %u calls: %lu\n", BATCHES * BATCH, before);
    (void)v5->finalize(context);
    (void)nftw(dir, remove_one, 4, FTW_DEPTH | FTW_PHYS);
    return bad;
}
