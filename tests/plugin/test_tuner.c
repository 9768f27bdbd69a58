#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/plugin/host.h"

enum { BC, RD, AG, RS, AR }; /* collectives */
enum { TREE, RING, CND, CNC, NVLS, NVLST, PAT };
enum { LL, LL128, SIMPLE };
#define CELL(a, p) (1U << ((a)*3 + (p)))

#define ROW(c, r, n, lo, hi, reg, a, p, ch)                                                        \
    {                                                                                              \
        .coll = (c), .nranks = (r), .nnodes = (n), .min_bytes = (lo), .max_bytes = (hi),           \
        .reg_buff = (reg), .algo = (a), .proto = (p), .channels = (ch)                             \
    }
static const struct nt_table_row rows[] = {
    ROW(AR, 8, 1, 1024, 65536, 0, TREE, LL, 4),
    ROW(AR, 8, 1, 65537, 1 << 20, 0, RING, LL128, 0),
    ROW(AR, 8, 1, 1 << 22, 1 << 24, 1, NVLS, SIMPLE, 16),
    ROW(AR, 8, 1, 1 << 22, 1 << 24, 2, RING, SIMPLE, 32),
    ROW(AR, 8, 1, 1 << 26, UINT64_MAX, 0, RING, SIMPLE, 24),
    ROW(AG, 8, 1, 0, 0, 0, RING, LL, 2),
    ROW(AG, 8, 1, 512, 4096, 0, PAT, SIMPLE, 0),
    ROW(RS, 8, 1, 0, 1 << 20, 0, -1, -1, 3),
    ROW(AR, 16, 2, 0, UINT64_MAX, 0, NVLST, SIMPLE, 0),
};
enum { NROWS = COUNT(rows) };

struct case_ {
    const char *name;
    size_t nranks, nnodes;
    struct host_call ask;
    int algo, proto, channels; /* wanted; -1: untouched */
    bool v2_untouched, v3_untouched;
};
static const struct case_ cases[] = {
    {"inside", 8, 1, {.coll = AR, .bytes = 4096}, TREE, LL, 4, false, false},
    {"lower edge", 8, 1, {.coll = AR, .bytes = 1024}, TREE, LL, 4, false, false},
    {"upper edge", 8, 1, {.coll = AR, .bytes = 65536}, TREE, LL, 4, false, false},
    {"below", 8, 1, {.coll = AR, .bytes = 1023}, -1, -1, 0, false, false},
    {"next row", 8, 1, {.coll = AR, .bytes = 65537}, RING, LL128, 0, false, false},
    {"between rows", 8, 1, {.coll = AR, .bytes = (1 << 20) + 1}, -1, -1, 0, false, false},
    {"other ranks", 4, 1, {.coll = AR, .bytes = 4096}, -1, -1, 0, false, false},
    {"other nodes", 8, 2, {.coll = AR, .bytes = 4096}, -1, -1, 0, false, false},
    {"other collective", 8, 1, {.coll = BC, .bytes = 4096}, -1, -1, 0, false, false},
    {"no such collective", 8, 1, {.coll = 5, .bytes = 4096}, -1, -1, 0, false, false},
    {"a group", 8, 1, {.coll = AR, .bytes = 4096, .pipe_ops = 2}, -1, -1, 0, false, false},
    {"zero bytes", 8, 1, {.coll = AG, .bytes = 0}, RING, LL, 2, false, false},
    {"largest", 8, 1, {.coll = AR, .bytes = SIZE_MAX}, RING, SIMPLE, 24, false, false},
    {"channels only", 8, 1, {.coll = RS, .bytes = 77}, -1, -1, 3, false, false},
    {"PAT is not in 2.21", 8, 1, {.coll = AG, .bytes = 1024}, PAT, SIMPLE, 0, true, false},
    {"PAT with six algorithms",
     8,
     1,
     {.coll = AG, .bytes = 1024, .nalgo = 6},
     -1,
     -1,
     0,
     true,
     false},
    {"buffers not registered", 8, 1, {.coll = AR, .bytes = 1 << 23}, NVLS, SIMPLE, 16, true, true},
    {"buffers registered",
     8,
     1,
     {.coll = AR, .bytes = 1 << 23, .reg_buff = 1},
     RING,
     SIMPLE,
     32,
     true,
     true},
    {"across nodes", 16, 2, {.coll = AR, .bytes = 12345}, NVLST, SIMPLE, 0, false, false},
};

static int all_cases(void *arg)
{
    struct host h;
    host_tell(arg);
    host_open(&h);
    for (int abi = 2; abi <= 6; abi++) {
        for (size_t i = 0; i < COUNT(cases); i++) {
            const struct case_ *c = &cases[i];
            struct host_call ask = c->ask;
            void *ctx = NULL;
            bool untouched = (abi == 2 && c->v2_untouched) || (abi == 3 && c->v3_untouched);
            int algo = untouched ? -1 : c->algo, proto = untouched ? -1 : c->proto;
            int channels = untouched ? 0 : c->channels;
            ask.abi = abi;
            HOST_CHECK(host_init(&h, abi, c->nranks, c->nnodes, &ctx) == NT_NCCL_SUCCESS);
            HOST_CHECK(ctx != NULL);
            HOST_CHECK(host_ask(&h, ctx, &ask) == NT_NCCL_SUCCESS);
            if (ask.algo != algo || ask.proto != proto || ask.channels != channels ||
                (abi != 2 && ask.touched != (algo >= 0))) {
                (void)dprintf(2, "v%d %s: algo %d proto %d channels %d, %u cells touched\n", abi,
                              c->name, ask.algo, ask.proto, ask.channels, ask.touched);
                return 1;
            }
            HOST_CHECK(host_end(&h, abi, ctx) == NT_NCCL_SUCCESS);
        }
        HOST_CHECK(host_end(&h, abi, NULL) == NT_NCCL_SUCCESS);
    }
    return 0;
}

static void test_every_interface(void **state)
{
    struct host_dir d;
    (void)state;
    host_dir(&d, rows, NROWS);
    assert_int_equal(host_child(all_cases, &d, NULL, 0), 0);
    host_clean(&d);
}

/* Cells that NCCL does not offer are never written, whatever negative number they hold; then the
 * channels of the row are not given either. */
static int closed_cells(void *arg)
{
    static const float values[] = {-1, -1024, -0.5F};
    struct host h;
    host_tell(arg);
    host_open(&h);
    for (int abi = 3; abi <= 6; abi++) {
        void *ctx = NULL;
        HOST_CHECK(host_init(&h, abi, 8, 1, &ctx) == NT_NCCL_SUCCESS);
        for (size_t i = 0; i < COUNT(values); i++) {
            struct host_call a = {.abi = abi,
                                  .coll = AR,
                                  .bytes = 4096,
                                  .ignored = values[i],
                                  .closed = CELL(TREE, LL)};
            struct host_call b = {.abi = abi,
                                  .coll = AR,
                                  .bytes = 70000,
                                  .ignored = values[i],
                                  .closed = CELL(RING, LL128)};
            HOST_CHECK(host_ask(&h, ctx, &a) == 0 && a.touched == 0 && a.channels == 0);
            HOST_CHECK(host_ask(&h, ctx, &b) == 0 && b.touched == 0 && b.channels == 0);
        }
        HOST_CHECK(host_end(&h, abi, ctx) == 0);
    }
    /* v2 shows no table: what its two flags rule out is never asked for */
    void *ctx = NULL;
    struct host_call n = {.abi = 2, .coll = AR, .bytes = 12345, .no_nvls = true};
    HOST_CHECK(host_init(&h, 2, 16, 2, &ctx) == NT_NCCL_SUCCESS);
    HOST_CHECK(host_ask(&h, ctx, &n) == 0 && n.algo == -1 && n.proto == -1);
    return host_end(&h, 2, ctx);
}

static void test_closed_cells(void **state)
{
    struct host_dir d;
    (void)state;
    host_dir(&d, rows, NROWS);
    assert_int_equal(host_child(closed_cells, &d, NULL, 0), 0);
    host_clean(&d);
}

struct quiet {
    const struct host_dir *d;
    const char *name, *value;
};

static int nothing_happens(void *arg)
{
    const struct quiet *q = arg;
    struct host h;
    host_tell(q->d);
    if (q->value != NULL) {
        (void)setenv(q->name, q->value, 1);
    } else {
        (void)unsetenv(q->name);
    }
    host_open(&h);
    for (int abi = 2; abi <= 6; abi++) {
        struct host_call ask = {.abi = abi, .coll = AR, .bytes = 4096};
        void *ctx = &h;
        HOST_CHECK(host_init(&h, abi, 8, 1, &ctx) == 0 && ctx == NULL);
        HOST_CHECK(host_ask(&h, ctx, &ask) == 0 && ask.touched == 0 && ask.channels == 0 &&
                   ask.algo == -1);
        HOST_CHECK(host_end(&h, abi, ctx) == 0);
    }
    HOST_CHECK(host_log[0] == '\0');
    return 0;
}

static void test_told_nothing(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    (void)state;
    host_dir(&d, rows, NROWS);
    const struct quiet quiet[] = {{&d, "NCCLTUNE_PROFILE", NULL},
                                  {&d, "NCCLTUNE_PROFILE", ""},
                                  {&d, "NCCLTUNE_DISABLE", "1"},
                                  {&d, "NCCLTUNE_DISABLE", "yes"}};
    for (size_t i = 0; i < COUNT(quiet); i++) {
        assert_int_equal(host_child(nothing_happens, (void *)(uintptr_t)&quiet[i], NULL, 0), 0);
    }
    assert_null(host_receipt(&d, 0, &head));
    host_clean(&d);
}

/* Every communicator fails, every time, and file and hash are named both ways. */
static int refused(void *arg)
{
    const struct host_dir *d = arg;
    struct host h;
    host_tell(d);
    host_open(&h);
    for (int abi = 6; abi >= 2; abi--) {
        void *ctx = &h;
        int rc = host_init(&h, abi, 8, 1, &ctx);
        HOST_CHECK(rc == NT_NCCL_INVALID_USAGE || rc == NT_NCCL_SYSTEM_ERROR);
        HOST_CHECK(ctx == NULL);
        HOST_CHECK(host_end(&h, abi, ctx) == 0);
    }
    HOST_CHECK(strstr(host_log, d->hash) != NULL && strstr(host_log, d->table) != NULL);
    return 0;
}

static void expect_refused(const struct host_dir *d, const char *what)
{
    char err[4096];
    int rc = host_child(refused, (void *)(uintptr_t)d, err, sizeof(err));
    if (rc != 0 || strstr(err, d->hash) == NULL || strstr(err, d->table) == NULL) {
        fail_msg("%s: rc %d, stderr '%s'", what, rc, err);
    }
}

static void test_bad_tables(void **state)
{
    struct host_dir d, e;
    char real[256];
    uint8_t *big = calloc(1, 1 << 24);
    struct nt_receipt_head head;
    (void)state;
    host_dir(&d, rows, NROWS);
    host_dir(&e, rows, NROWS - 1);
    (void)snprintf(real, sizeof(real), "%s/real", d.path);

    (void)unlink(d.table);
    expect_refused(&d, "missing");
    assert_int_equal(mkdir(d.table, 0755), 0);
    expect_refused(&d, "a folder");
    (void)rmdir(d.table);
    assert_int_equal(mkfifo(d.table, 0600), 0);
    expect_refused(&d, "a pipe");
    (void)unlink(d.table);
    host_put(real, d.data, d.size, 0644);
    assert_int_equal(symlink(real, d.table), 0);
    expect_refused(&d, "a link");
    (void)unlink(d.table);
    host_put(d.table, d.data, d.size, 0666);
    expect_refused(&d, "writable by others");
    (void)unlink(d.table);
    host_put(d.table, d.data, d.size, 0644);
    if (geteuid() == 0) {
        assert_int_equal(chown(d.table, 12345, 12345), 0);
        expect_refused(&d, "owned by another user");
        (void)unlink(d.table);
    }
    host_put(d.table, e.data, e.size, 0644);
    expect_refused(&d, "valid, but another");
    memcpy(big, d.data, d.size);
    host_put(d.table, big, 1 << 24, 0644);
    expect_refused(&d, "huge");
    for (size_t n = 0; n < d.size; n += NT_SLOW ? 13 : 1) {
        host_put(d.table, d.data, n, 0644);
        expect_refused(&d, "truncated");
    }
    for (size_t i = 0; i < d.size; i += NT_SLOW ? 13 : 1) {
        memcpy(big, d.data, d.size);
        big[i] ^= (uint8_t)(1U << i % 8);
        host_put(d.table, big, d.size, 0644);
        expect_refused(&d, "a bit is wrong");
    }
    assert_null(host_receipt(&d, 0, &head));
    free(big);
    host_clean(&d);
    host_clean(&e);
}

static int told_wrongly(void *arg)
{
    const struct quiet *q = arg;
    struct host h;
    void *ctx = &h;
    host_tell(q->d);
    if (q->value != NULL) {
        (void)setenv(q->name, q->value, 1);
    } else {
        (void)unsetenv(q->name);
    }
    host_open(&h);
    HOST_CHECK(host_init(&h, 5, 8, 1, &ctx) == NT_NCCL_INVALID_USAGE && ctx == NULL);
    return 0;
}

static void test_told_wrongly(void **state)
{
    struct host_dir d;
    char upper[NT_HASH_HEX + 1];
    (void)state;
    host_dir(&d, rows, NROWS);
    for (size_t i = 0; i <= NT_HASH_HEX; i++) {
        upper[i] = (char)(d.hash[i] >= 'a' && d.hash[i] <= 'f' ? d.hash[i] - 'a' + 'A' : d.hash[i]);
    }
    const struct quiet wrong[] = {{&d, "NCCLTUNE_TABLE", NULL},
                                  {&d, "NCCLTUNE_TABLE", ""},
                                  {&d, "NCCLTUNE_TABLE", "relative.nctable"},
                                  {&d, "NCCLTUNE_PROFILE", "abc"},
                                  {&d, "NCCLTUNE_PROFILE", upper},
                                  {&d, "NCCLTUNE_LOCAL_RANKS", "-1"},
                                  {&d, "NCCLTUNE_LOCAL_RANKS", "8x"}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char err[4096];
        int rc = host_child(told_wrongly, (void *)(uintptr_t)&wrong[i], err, sizeof(err));
        if (rc != 0 || strstr(err, "nccltune:") == NULL) {
            fail_msg("%s=%s: rc %d, '%s'", wrong[i].name,
                     wrong[i].value != NULL ? wrong[i].value : "(unset)", rc, err);
        }
    }
    host_clean(&d);
}

static int some_calls(void *arg)
{
    struct host h;
    void *ctx = NULL;
    struct host_call a = {.abi = 5, .coll = AR, .bytes = 4096}, b = a, c = a, e = a;
    host_tell(arg);
    (void)setenv("NCCLTUNE_JOB", "job 7/x", 1);
    host_open(&h);
    HOST_CHECK(host_init(&h, 5, 8, 1, &ctx) == 0);
    b.bytes = 12;
    c.pipe_ops = 2;
    e.closed = CELL(TREE, LL);
    HOST_CHECK(host_ask(&h, ctx, &a) == 0 && host_ask(&h, ctx, &a) == 0 &&
               host_ask(&h, ctx, &b) == 0 && host_ask(&h, ctx, &c) == 0 &&
               host_ask(&h, ctx, &e) == 0);
    HOST_CHECK(host_end(&h, 5, ctx) == 0);
    /* as NCCL does when the last communicator ends; the receipt goes on */
    HOST_CHECK(dlclose(h.lib) == 0);
    host_open(&h);
    HOST_CHECK(host_init(&h, 5, 8, 1, &ctx) == 0);
    HOST_CHECK(host_ask(&h, ctx, &a) == 0);
    return 0;
}

static void test_receipt(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    struct nt_receipt_comm comm;
    const uint8_t *r;
    char host[80] = "";
    (void)state;
    host_dir(&d, rows, NROWS);
    assert_int_equal(host_child(some_calls, &d, NULL, 0), 0);
    r = host_receipt(&d, 0, &head);
    assert_non_null(r);
    assert_string_equal(head.hash, d.hash);
    assert_string_equal(head.job, "job 7/x");
    (void)gethostname(host, sizeof(host) - 1);
    assert_string_equal(head.host, host);
    assert_string_equal(head.path[NT_RECEIPT_TUNER], NT_TUNER_LIB);
    assert_int_equal(head.parts, 1U << NT_RECEIPT_TUNER);
    assert_int_equal(head.uid, geteuid());
    assert_int_equal(strlen(head.boot_id), 36);
    assert_int_equal(head.nrows, NROWS);
    assert_int_equal(head.ncomms, 2);
    assert_true(nt_receipt_comm(r, 0, &comm));
    assert_int_equal(comm.nranks, 8);
    assert_int_equal(comm.abi, 5);
    assert_int_equal(comm.id, 77);
    assert_true(comm.ended_ns >= comm.created_ns);
    assert_true(nt_receipt_comm(r, 1, &comm));
    assert_int_equal(comm.ended_ns, 0);
    assert_false(nt_receipt_comm(r, 2, &comm));

    struct nt_receipt_class c = nt_receipt_class(r, AR, nt_size_class(4096));
    assert_int_equal(c.served, 3);
    assert_int_equal(c.left, 1);
    assert_int_equal(c.grouped, 1);
    c = nt_receipt_class(r, AR, nt_size_class(12));
    assert_int_equal(c.left, 1);
    for (uint32_t i = 0, applied = 0; i < NROWS; i++) {
        applied += (uint32_t)nt_receipt_row_applied(r, i);
        assert_true(i + 1 < NROWS || applied == 3);
    }
    (void)munmap((void *)(uintptr_t)r, NT_RECEIPT_BYTES);
    assert_null(host_receipt(&d, 1, &head));
    host_clean(&d);
}

/* No folder, or one that others can write to: no receipt, and everything else works. */
static int without_receipt(void *arg)
{
    const struct quiet *q = arg;
    struct host h;
    void *ctx = NULL;
    struct host_call a = {.abi = 5, .coll = AR, .bytes = 4096};
    host_tell(q->d);
    (void)setenv(q->name, q->value, 1);
    host_open(&h);
    HOST_CHECK(host_init(&h, 5, 8, 1, &ctx) == 0);
    HOST_CHECK(host_ask(&h, ctx, &a) == 0 && a.algo == TREE && a.channels == 4);
    HOST_CHECK(strstr(host_log, "no receipt") != NULL);
    return host_end(&h, 5, ctx);
}

static void test_no_receipt(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    char link[300];
    (void)state;
    host_dir(&d, rows, NROWS);
    (void)snprintf(link, sizeof(link), "%s/link", d.path);
    assert_int_equal(symlink(d.receipts, link), 0);
    const struct quiet none[] = {{&d, "NCCLTUNE_RECEIPTS", "/nonexistent/folder"},
                                 {&d, "NCCLTUNE_RECEIPTS", "relative"},
                                 {&d, "NCCLTUNE_RECEIPTS", "/tmp"},
                                 {&d, "NCCLTUNE_RECEIPTS", link}};
    for (size_t i = 0; i < COUNT(none); i++) {
        char err[4096];
        int rc = host_child(without_receipt, (void *)(uintptr_t)&none[i], err, sizeof(err));
        if (rc != 0) {
            fail_msg("%s: rc %d, %s", none[i].value, rc, err);
        }
    }
    assert_null(host_receipt(&d, 0, &head));
    host_clean(&d);
}

enum { THREADS = 8, CALLS = 2000 };
static struct host shared;

static void *one_communicator(void *arg)
{
    void *ctx = NULL;
    int abi = *(const int *)arg;
    struct host_call a = {.abi = abi, .coll = AR, .bytes = 4096};
    if (host_init(&shared, abi, 8, 1, &ctx) != 0) {
        return &shared;
    }
    for (int i = 0; i < CALLS; i++) {
        if (host_ask(&shared, ctx, &a) != 0 || a.algo != TREE || a.channels != 4) {
            return &shared;
        }
    }
    return host_end(&shared, abi, ctx) == 0 ? NULL : &shared;
}

static int many_communicators(void *arg)
{
    static const int abis[THREADS] = {2, 3, 4, 5, 6, 5, 5, 5};
    pthread_t t[THREADS];
    host_tell(arg);
    host_open(&shared);
    for (int i = 0; i < THREADS; i++) {
        HOST_CHECK(pthread_create(&t[i], NULL, one_communicator, (void *)(uintptr_t)&abis[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *bad = NULL;
        HOST_CHECK(pthread_join(t[i], &bad) == 0 && bad == NULL);
    }
    return 0;
}

static void test_threads(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    const uint8_t *r;
    (void)state;
    host_dir(&d, rows, NROWS);
    assert_int_equal(host_child(many_communicators, &d, NULL, 0), 0);
    r = host_receipt(&d, 0, &head);
    assert_non_null(r);
    assert_int_equal(head.ncomms, THREADS);
    assert_int_equal(nt_receipt_class(r, AR, 12).served, THREADS * CALLS);
    (void)munmap((void *)(uintptr_t)r, NT_RECEIPT_BYTES);
    host_clean(&d);
}

/* A forked child writes a receipt of its own. */
static int forks(void *arg)
{
    struct host h;
    void *ctx = NULL;
    int status = 0;
    struct host_call a = {.abi = 5, .coll = AR, .bytes = 4096};
    host_tell(arg);
    host_open(&h);
    HOST_CHECK(host_init(&h, 5, 8, 1, &ctx) == 0 && host_ask(&h, ctx, &a) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(host_init(&h, 5, 8, 1, &ctx) != 0 || host_ask(&h, ctx, &a) != 0);
    }
    HOST_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    return 0;
}

static void test_fork(void **state)
{
    struct host_dir d;
    struct nt_receipt_head a, b;
    const uint8_t *ra, *rb;
    (void)state;
    host_dir(&d, rows, NROWS);
    assert_int_equal(host_child(forks, &d, NULL, 0), 0);
    ra = host_receipt(&d, 0, &a);
    rb = host_receipt(&d, 1, &b);
    assert_non_null(ra);
    assert_non_null(rb);
    assert_int_not_equal(a.pid, b.pid);
    assert_int_equal(nt_receipt_class(ra, AR, 12).served, 1);
    assert_int_equal(nt_receipt_class(rb, AR, 12).served, 1);
    host_clean(&d);
}

enum { PROCESSES = NT_SLOW ? 50 : 500 };

static void test_many_processes(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    pid_t pids[PROCESSES];
    (void)state;
    host_dir(&d, rows, NROWS);
    (void)fflush(NULL);
    for (unsigned i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            _exit(some_calls(&d));
        }
        assert_true(pids[i] > 0);
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    for (unsigned i = 0; i < PROCESSES; i += 50) { /* reading one costs a walk of the folder */
        const uint8_t *r = host_receipt(&d, i, &head);
        assert_non_null(r);
        assert_int_equal(nt_receipt_class(r, AR, 12).served, 3);
        (void)munmap((void *)(uintptr_t)r, NT_RECEIPT_BYTES);
    }
    assert_non_null(host_receipt(&d, PROCESSES - 1, &head));
    assert_null(host_receipt(&d, PROCESSES, &head));
    host_clean(&d);
}

/* Ranks of one host, each a process. */
struct local {
    const struct host_dir *d;
    const char *rank;
    size_t nranks;
    const char *says; /* NULL: the communicator is made */
};

static int local_rank(const struct local *l)
{
    struct host h;
    void *ctx = NULL;
    int rc;
    host_tell(l->d);
    (void)setenv("NCCLTUNE_JOB", "a job/with any name", 1);
    (void)setenv("NCCLTUNE_LOCAL_RANKS", "3", 1);
    (void)setenv("LOCAL_RANK", l->rank, 1);
    host_open(&h);
    rc = host_init(&h, 5, l->nranks, 1, &ctx);
    HOST_CHECK((rc == NT_NCCL_SUCCESS) == (l->says == NULL));
    HOST_CHECK((ctx != NULL) == (l->says == NULL));
    HOST_CHECK(l->says == NULL || strstr(host_log, l->says) != NULL);
    return host_end(&h, 5, ctx);
}

static void locals(const struct local *l, size_t n)
{
    pid_t pids[8];
    (void)fflush(NULL);
    for (size_t i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            _exit(local_rank(&l[i]));
        }
    }
    for (size_t i = 0; i < n; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
}

static void test_local_ranks(void **state)
{
    struct host_dir d, e;
    (void)state;
    host_dir(&d, rows, NROWS);
    host_dir(&e, rows, NROWS - 1);
    (void)memcpy(e.receipts, d.receipts, sizeof(e.receipts)); /* the host's folder */
    const struct local three[] = {{&d, "0", 3, NULL}, {&d, "1", 3, NULL}, {&d, "2", 3, NULL}};
    locals(three, 3);
    const struct local pair[] = {{&d, "0", 2, NULL},
                                 {&d, "1", 2, NULL}}; /* the third has other work */
    locals(pair, 2);
    const struct local differ[] = {{&d, "0", 3, e.hash}, {&e, "1", 3, d.hash}};
    locals(differ, 2);
    (void)snprintf(e.receipts, sizeof(e.receipts), "%s/receipts", e.path);
    host_clean(&d);
    host_clean(&e);
}

static int csv_calls(void *arg)
{
    struct host h;
    void *ctx = NULL;
    struct host_call a = {.abi = 5, .coll = AR, .bytes = 1000}, b = a, c = a, e = a, f = a, g = a;
    (void)setenv("NCCLTUNE_CSV", "1", 1);
    (void)setenv("NCCL_TUNER_CONFIG_FILE", arg, 1);
    host_open(&h);
    HOST_CHECK(host_init(&h, 5, 8, 1, &ctx) == 0 && ctx != NULL);
    HOST_CHECK(strstr(host_log, "line 2: allreduce of 0 to 65536 bytes, nodes 1: tree/ll where "
                                "NCCL offers it, at most 2 channels") != NULL);
    HOST_CHECK(strstr(host_log, "broadcast of 0 to any bytes: never applies") != NULL);
    HOST_CHECK(host_ask(&h, ctx, &a) == 0 && a.algo == TREE && a.proto == LL && a.channels == 2);
    b.closed = CELL(TREE, LL); /* the next match serves */
    HOST_CHECK(host_ask(&h, ctx, &b) == 0 && b.algo == RING && b.proto == SIMPLE &&
               b.channels == 0);
    b.ignored = -1024;
    HOST_CHECK(host_ask(&h, ctx, &b) == 0 && b.algo == RING && b.touched == 1);
    c.bytes = 70000; /* unmatched: channels stay NCCL's */
    HOST_CHECK(host_ask(&h, ctx, &c) == 0 && c.algo == -1 && c.channels == 0);
    e.coll = BC;
    HOST_CHECK(host_ask(&h, ctx, &e) == 0 && e.touched == 0);
    f.coll = AG;
    f.pipe_ops = 4;
    HOST_CHECK(host_ask(&h, ctx, &f) == 0 && f.algo == RING && f.proto == LL128);
    g.coll = AG;
    HOST_CHECK(host_ask(&h, ctx, &g) == 0 && g.touched == 0); /* another number of operations */
    g.abi = 2;
    g.pipe_ops = 4;
    HOST_CHECK(host_ask(&h, ctx, &g) == 0 && g.algo == -1); /* LL128 unseen in v2 */
    return host_end(&h, 5, ctx);
}

static int csv_refused(void *arg)
{
    struct host h;
    void *ctx = &h;
    (void)setenv("NCCLTUNE_CSV", "1", 1);
    (void)setenv("NCCL_TUNER_CONFIG_FILE", arg, 1);
    host_open(&h);
    HOST_CHECK(host_init(&h, 5, 8, 1, &ctx) == NT_NCCL_INVALID_USAGE && ctx == NULL);
    return 0;
}

static void test_csv(void **state)
{
    static const char good[] = "# rules\n"
                               "allreduce,0,65536,tree,ll,2,1,-1\n"
                               "allreduce, 0, 65536, ring, simple, -1, -1, -1\r\n"
                               "broadcast,0,-1,tree,simple,2,-1,-1\n\n"
                               "allgather,0,4096,ring,ll128,-1,-1,8,4,-1";
    static const char bad[] = "allreduce,0,65536,ringg,ll,2,1,-1\n";
    struct host_dir d;
    char path[256];
    (void)state;
    host_dir(&d, rows, NROWS);
    (void)snprintf(path, sizeof(path), "%s/rules.csv", d.path);
    host_put(path, good, sizeof(good) - 1, 0644);
    assert_int_equal(host_child(csv_calls, path, NULL, 0), 0);
    host_put(path, bad, sizeof(bad) - 1, 0644);
    char err[4096];
    assert_int_equal(host_child(csv_refused, path, err, sizeof(err)), 0);
    assert_non_null(strstr(err, "line 1: algorithm cannot be read"));
    assert_int_equal(host_child(csv_refused, "/nonexistent/rules", NULL, 0), 0);
    host_clean(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_interface),
        cmocka_unit_test(test_closed_cells),

        cmocka_unit_test(test_told_nothing),
        cmocka_unit_test(test_bad_tables),
        cmocka_unit_test(test_told_wrongly),
        cmocka_unit_test(test_receipt),
        cmocka_unit_test(test_no_receipt),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_many_processes),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_local_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
