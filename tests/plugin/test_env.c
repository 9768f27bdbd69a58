/* The env plugin and the profiler plugin, each through its built library. */
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
#include <unistd.h>

#include "tests/plugin/host.h"

static const struct nt_table_var vars[] = {{"NCCL_BUFFSIZE", "8388608", false},
                                           {"NCCL_MAX_NCHANNELS", "16", true},
                                           {"NCCL_MIN_NCHANNELS", "4", false},
                                           {"NCCL_NTHREADS", "512", true},
                                           {"NCCL_P2P_LEVEL", "SYS", false}};

static const void *plugin(const char *path, const char *name)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const void *s = lib != NULL ? dlsym(lib, name) : NULL;
    if (s == NULL) {
        (void)dprintf(2, "%s: %s\n", name, dlerror());
        _exit(99);
    }
    return s;
}

static bool same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static const struct {
    const char *name, *user, *answer;
    enum nt_receipt_told told;
} questions[] = {{"NCCL_BUFFSIZE", NULL, "8388608", NT_TOLD_PROFILE},
                 {"NCCL_MAX_NCHANNELS", "32", "16", NT_TOLD_OVERRODE},
                 {"NCCL_MIN_NCHANNELS", "2", "2", NT_TOLD_KEPT},
                 {"NCCL_NTHREADS", "512", "512", NT_TOLD_SAME},
                 {"NCCL_P2P_LEVEL", "", "", NT_TOLD_KEPT}, /* set to nothing is set */
                 {"NCCL_SOCKET_IFNAME", "lo", "lo", NT_TOLD_USER},
                 {"NCCL_A", NULL, NULL, NT_TOLD_UNSET},
                 {"NCCL_ZZZ", NULL, NULL, NT_TOLD_UNSET}};

static int asks(void *arg)
{
    const struct nt_env_v1 *v1 = plugin(NT_ENV_LIB, "ncclEnvPlugin_v1");
    const struct nt_env_v2 *v2 = plugin(NT_ENV_LIB, "ncclEnvPlugin_v2");
    host_tell(arg);
    HOST_CHECK(v1->get_env("NCCL_BUFFSIZE") == NULL); /* before init: the environment */
    HOST_CHECK(v2->init(2, 30, 7, "", host_logger) == 0);
    HOST_CHECK(v1->init(2, 30, 7, "") == 0); /* again is nothing new */
    for (size_t i = 0; i < COUNT(questions); i++) {
        if (questions[i].user != NULL) {
            (void)setenv(questions[i].name, questions[i].user, 1);
        } else {
            (void)unsetenv(questions[i].name);
        }
        const char *first = v2->get_env(questions[i].name);
        HOST_CHECK(same(first, questions[i].answer));
        HOST_CHECK(v1->get_env(questions[i].name) == first);
    }
    HOST_CHECK(v2->finalize() == 0);
    HOST_CHECK(same(v2->get_env("NCCL_BUFFSIZE"), "8388608"));
    return 0;
}

static void test_env_answers(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    struct nt_receipt_name n;
    const uint8_t *r;
    (void)state;
    host_dir_vars(&d, NT_TABLE_STATIC, vars, COUNT(vars), NULL, 0);
    assert_int_equal(host_child(asks, &d, NULL, 0), 0);
    r = host_receipt(&d, 0, &head);
    assert_non_null(r);
    assert_int_equal(head.nccl_version, 23007);
    assert_int_equal(head.parts, 1U << NT_RECEIPT_ENV);
    assert_string_equal(head.path[NT_RECEIPT_ENV], NT_ENV_LIB);
    assert_int_equal(head.ncomms, 0);
    for (size_t i = 0; i < COUNT(questions); i++) {
        unsigned found = 0;
        for (uint32_t k = 0; k < NT_RECEIPT_NAMES; k++) {
            if (nt_receipt_name(r, k, &n) && strcmp(n.name, questions[i].name) == 0) {
                found++;
                assert_int_equal(n.told, questions[i].told);
                assert_int_equal(n.asked, i == 0 ? 3 : 2);
            }
        }
        assert_int_equal(found, 1);
    }
    assert_int_equal(head.lost_names, 0);
    (void)munmap((void *)(uintptr_t)r, NT_RECEIPT_BYTES);
    host_clean(&d);
}

static int told_nothing(void *arg)
{
    const struct nt_env_v1 *v1 = plugin(NT_ENV_LIB, "ncclEnvPlugin_v1");
    host_tell(arg);
    (void)setenv("NCCLTUNE_DISABLE", "1", 1);
    (void)setenv("NCCL_NTHREADS", "64", 1);
    HOST_CHECK(v1->init(2, 28, 9, "") == 0);
    HOST_CHECK(v1->get_env("NCCL_BUFFSIZE") == NULL);
    HOST_CHECK(same(v1->get_env("NCCL_NTHREADS"), "64"));
    return 0;
}

static int broken(void *arg)
{
    const struct nt_env_v1 *v1 = plugin(NT_ENV_LIB, "ncclEnvPlugin_v1");
    host_tell(arg);
    (void)setenv("NCCLTUNE_TABLE", "/nonexistent/table", 1);
    HOST_CHECK(v1->init(2, 28, 9, "") == NT_NCCL_INVALID_USAGE);
    HOST_CHECK(v1->init(2, 28, 9, "") == NT_NCCL_INVALID_USAGE);
    return 0;
}

static void test_env_decides_once(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    char err[2048];
    (void)state;
    host_dir_vars(&d, NT_TABLE_STATIC, vars, COUNT(vars), NULL, 0);
    assert_int_equal(host_child(told_nothing, &d, NULL, 0), 0);
    assert_int_equal(host_child(broken, &d, err, sizeof(err)), 0);
    assert_non_null(strstr(err, "/nonexistent/table: No such file"));
    assert_non_null(strstr(err, d.hash));
    assert_null(host_receipt(&d, 0, &head));
    host_clean(&d);
}

/* ---- the tuner plugin that the rows need ---- */

static const struct nt_table_row rows[] = {
    {.coll = NT_TABLE_ALL_REDUCE, .nranks = 8, .nnodes = 1, .max_bytes = 4096, .channels = 2}};

struct named {
    const struct host_dir *d;
    const char *tuner; /* NULL: unset */
    int result;
};

static int with_tuner(void *arg)
{
    const struct named *n = arg;
    const struct nt_env_v1 *v1 = plugin(NT_ENV_LIB, "ncclEnvPlugin_v1");
    host_tell(n->d);
    if (n->tuner != NULL) {
        (void)setenv("NCCL_TUNER_PLUGIN", n->tuner, 1);
    }
    for (int i = 0; i < 2; i++) { /* the second call fails as the first */
        HOST_CHECK(v1->init(2, 28, 9, "") == n->result);
    }
    return 0;
}

/* NCCL would go on without it, and its rank would hang the others. */
static void test_env_stops_without_the_tuner(void **state)
{
    struct host_dir table, fixed;
    (void)state;
    host_dir_vars(&table, NT_TABLE_TABLE, NULL, 0, rows, COUNT(rows));
    host_dir_vars(&fixed, NT_TABLE_STATIC, vars, COUNT(vars), NULL, 0);
    const struct named cases[] = {
        {&table, "/nonexistent/libnccl-tuner-x.so", NT_NCCL_INVALID_USAGE},
        {&table, "no-such-tuner", NT_NCCL_INVALID_USAGE},
        {&table, table.table, NT_NCCL_INVALID_USAGE}, /* no library */
        {&table, NT_TUNER_LIB, NT_NCCL_SUCCESS},
        {&table, "none", NT_NCCL_SUCCESS},
        {&table, "STATIC_PLUGIN", NT_NCCL_SUCCESS},
        {&table, NULL, NT_NCCL_SUCCESS},
        {&fixed, "/nonexistent/libnccl-tuner-x.so", NT_NCCL_SUCCESS} /* has no rows */};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char err[4096] = "";
        int rc = host_child(with_tuner, (void *)(uintptr_t)&cases[i], err, sizeof(err));
        bool says = strstr(err, cases[i].d->hash) != NULL && cases[i].tuner != NULL &&
                    strstr(err, cases[i].tuner) != NULL;
        if (rc != 0 || says != (cases[i].result != NT_NCCL_SUCCESS)) {
            fail_msg("case %zu: rc %d, '%s'", i, rc, err);
        }
    }
    host_clean(&table);
    host_clean(&fixed);
}

static const struct nt_env_v2 *asked;

static void *ask_many(void *arg)
{
    char name[32];
    for (int i = 0; i < 300; i++) { /* threads ask for the same names, in another order */
        (void)snprintf(name, sizeof(name), "NCCL_NAME_%d", (i * 7 + (int)(intptr_t)arg) % 300);
        if (asked->get_env(name) != NULL || !same(asked->get_env("NCCL_BUFFSIZE"), "8388608")) {
            return &asked;
        }
    }
    return NULL;
}

static int from_threads(void *arg)
{
    pthread_t t[8];
    host_tell(arg);
    (void)unsetenv("NCCL_BUFFSIZE");
    asked = plugin(NT_ENV_LIB, "ncclEnvPlugin_v2");
    HOST_CHECK(asked->init(2, 30, 7, "", host_logger) == 0);
    for (intptr_t i = 0; i < 8; i++) {
        HOST_CHECK(pthread_create(&t[i], NULL, ask_many, (void *)i) == 0);
    }
    for (int i = 0; i < 8; i++) {
        void *bad = NULL;
        HOST_CHECK(pthread_join(t[i], &bad) == 0 && bad == NULL);
    }
    for (int i = 0; i < 400; i++) { /* more names than there is room for */
        char name[32];
        (void)snprintf(name, sizeof(name), "NCCL_MORE_%d", i);
        HOST_CHECK(asked->get_env(name) == NULL);
    }
    return 0;
}

static void test_env_threads(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    struct nt_receipt_name n;
    const uint8_t *r;
    unsigned names = 0, asked_of_first = 0;
    (void)state;
    host_dir_vars(&d, NT_TABLE_STATIC, vars, COUNT(vars), NULL, 0);
    assert_int_equal(host_child(from_threads, &d, NULL, 0), 0);
    r = host_receipt(&d, 0, &head);
    assert_non_null(r);
    for (uint32_t k = 0; k < NT_RECEIPT_NAMES; k++) {
        if (nt_receipt_name(r, k, &n)) {
            names++;
            asked_of_first += strcmp(n.name, "NCCL_NAME_0") == 0 ? n.asked : 0;
        }
    }
    assert_int_equal(names, NT_RECEIPT_NAMES);
    assert_int_equal(asked_of_first, 8);
    assert_int_equal(head.lost_names, 300 + 1 + 400 - NT_RECEIPT_NAMES);
    (void)munmap((void *)(uintptr_t)r, NT_RECEIPT_BYTES);
    host_clean(&d);
}

/* Tuner and env plugin of one process share its receipt. */
static int both(void *arg)
{
    struct host h;
    void *ctx = NULL;
    const struct nt_env_v1 *v1 = plugin(NT_ENV_LIB, "ncclEnvPlugin_v1");
    host_tell(arg);
    HOST_CHECK(v1->init(2, 28, 9, "") == 0);
    host_open(&h);
    HOST_CHECK(host_init(&h, 5, 8, 1, &ctx) == 0);
    (void)v1->get_env("NCCL_BUFFSIZE");
    return host_end(&h, 5, ctx);
}

static void test_one_receipt(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    (void)state;
    host_dir_vars(&d, NT_TABLE_TABLE, vars, COUNT(vars), NULL, 0);
    assert_int_equal(host_child(both, &d, NULL, 0), 0);
    assert_non_null(host_receipt(&d, 0, &head));
    assert_int_equal(head.parts, 1U << NT_RECEIPT_ENV | 1U << NT_RECEIPT_TUNER);
    assert_int_equal(head.ncomms, 1);
    assert_null(host_receipt(&d, 1, &head));
    host_clean(&d);
}

/* ---- profiler ---- */

#define COLL(f, n, t, ch, al, pr)                                                                  \
    {                                                                                              \
        .type_v5 = NT_PROF_COLL, .coll = {                                                         \
            .func = (f),                                                                           \
            .count = (n),                                                                          \
            .datatype = (t),                                                                       \
            .channels = (ch),                                                                      \
            .algo = (al),                                                                          \
            .proto = (pr)                                                                          \
        }                                                                                          \
    }

static int profile_new(void *arg)
{
    const struct nt_profiler_v5 *v5 = plugin(NT_PROFILER_LIB, "ncclProfiler_v5");
    void *ctx = NULL, *api = NULL, *h = &api;
    int mask = 0;
    struct nt_prof_event_v4 e = COLL("AllReduce", 1024, "ncclBfloat16", 4, "TREE", "LL");
    struct nt_prof_event_v4 g = COLL("AllGather", 512, "ncclFloat32", 8, "RING", "SIMPLE");
    struct nt_prof_event_v4 odd = COLL("AllReduce", 1024, "ncclBfloat16", 2, "SYMM", "");
    struct nt_prof_event_v4 call = {.type_v5 = NT_PROF_COLL_API,
                                    .coll_api = {.func = "AllReduce", .captured = true}};
    host_tell(arg);
    HOST_CHECK(v5->init(&ctx, 1, &mask, "comm", 1, 8, 0, host_logger) == 0 && ctx != NULL);
    HOST_CHECK(mask == (NT_PROF_COLL | NT_PROF_COLL_API));
    HOST_CHECK(v5->start(ctx, &h, &e) == 0 && h == NULL);
    e.coll.channels = 2;
    HOST_CHECK(v5->start(ctx, &h, &e) == 0);
    HOST_CHECK(v5->start(ctx, &api, &call) == 0 && api != NULL);
    e.parent = api;
    e.coll.channels = 6;
    HOST_CHECK(v5->start(ctx, &h, &e) == 0);
    HOST_CHECK(v5->stop(api) == 0 && v5->record(api, 22, NULL) == 0);
    call.coll_api.captured = false;
    HOST_CHECK(v5->start(ctx, &api, &call) == 0);
    g.parent = api;
    HOST_CHECK(v5->start(ctx, &h, &g) == 0);
    HOST_CHECK(v5->start(ctx, &h, &odd) == 0);
    return v5->finalize(ctx);
}

static int profile_others(void *arg)
{
    const struct nt_profiler_v6 *v6 = plugin(NT_PROFILER_LIB, "ncclProfiler_v6");
    const struct nt_profiler_v4 *v4 = plugin(NT_PROFILER_LIB, "ncclProfiler_v4");
    void *ctx = NULL, *h = &h;
    int mask = 0;
    struct nt_prof_event_v4 e = COLL("AllReduce", 1024, "ncclBfloat16", 6, "TREE", "LL");
    struct nt_prof_event_v4 ce = {
        .type_v5 = NT_PROF_CE_COLL,
        .ce_coll = {.func = "AllGather", .count = 512, .datatype = "ncclFloat32"}};
    host_tell(arg);
    HOST_CHECK(v6->init(&ctx, 1, &mask, "comm", 1, 8, 0, host_logger) == 0);
    HOST_CHECK((mask & NT_PROF_CE_COLL) != 0);
    HOST_CHECK(v6->start(ctx, &h, &ce) == 0 && h == NULL);
    HOST_CHECK(v4->init(&ctx, &mask, "comm", 1, 1, 2, 0, host_logger) == 0);
    HOST_CHECK(v4->start(ctx, &h, &e) == 0);
    return 0;
}

static void test_profiler(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    struct nt_receipt_executed x;
    const uint8_t *r;
    (void)state;
    host_dir_vars(&d, NT_TABLE_TABLE, NULL, 0, NULL, 0);
    assert_int_equal(host_child(profile_new, &d, NULL, 0), 0);
    r = host_receipt(&d, 0, &head);
    assert_non_null(r);
    x = nt_receipt_executed(r, NT_TABLE_ALL_REDUCE, 11, NT_TABLE_TREE * 3 + NT_TABLE_LL);
    assert_int_equal(x.eager, 2); /* 2048 bytes */
    assert_int_equal(x.captured, 1);
    assert_int_equal(x.min_channels, 2);
    assert_int_equal(x.max_channels, 6);
    x = nt_receipt_executed(r, NT_TABLE_ALL_GATHER, 14, NT_TABLE_RING * 3 + NT_TABLE_SIMPLE);
    assert_int_equal(x.eager, 1); /* 512 × 4 bytes × 8 ranks */
    assert_int_equal(x.captured, 0);
    x = nt_receipt_executed(r, NT_TABLE_ALL_REDUCE, 11, NT_RECEIPT_CELLS - 1);
    assert_int_equal(x.eager, 1);
    (void)munmap((void *)(uintptr_t)r, NT_RECEIPT_BYTES);
    host_clean(&d);
}

static void test_other_profilers(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    const uint8_t *r;
    unsigned cell = NT_TABLE_TREE * 3 + NT_TABLE_LL;
    (void)state;
    host_dir_vars(&d, NT_TABLE_TABLE, NULL, 0, NULL, 0);
    assert_int_equal(host_child(profile_others, &d, NULL, 0), 0);
    r = host_receipt(&d, 0, &head);
    assert_non_null(r);
    assert_int_equal(nt_receipt_executed(r, NT_TABLE_ALL_GATHER, 14, NT_RECEIPT_CELLS - 1).eager,
                     1);
    assert_int_equal(nt_receipt_executed(r, NT_TABLE_ALL_REDUCE, 11, cell).eager, 1);
    assert_int_equal(nt_receipt_executed(r, NT_TABLE_ALL_REDUCE, 11, cell).max_channels, 6);
    (void)munmap((void *)(uintptr_t)r, NT_RECEIPT_BYTES);
    host_clean(&d);
}

static int profile_old(void *arg)
{
    const struct nt_profiler_v1 *v1 = plugin(NT_PROFILER_LIB, "ncclProfiler_v1");
    const struct nt_profiler_v2 *v2 = plugin(NT_PROFILER_LIB, "ncclProfiler_v2");
    const struct nt_profiler_v3 *v3 = plugin(NT_PROFILER_LIB, "ncclProfiler_v3");
    void *ctx = NULL, *h = NULL;
    int mask = 0;
    struct nt_prof_event_v1 a = {.type = NT_PROF_COLL,
                                 .coll = {.func = 4,
                                          .count = 1024,
                                          .datatype = 9,
                                          .traffic_bytes = 4096,
                                          .max_channels = 30,
                                          .algo = 1}};
    struct nt_prof_event_v2 b = {.type = NT_PROF_COLL,
                                 .coll = {.func = "AllGather",
                                          .count = 16,
                                          .datatype = "ncclInt8",
                                          .traffic_bytes = 128,
                                          .algo = "NVLS_TREE",
                                          .proto = "SIMPLE"}};
    struct nt_prof_event_v3 c = {.type = NT_PROF_COLL,
                                 .coll = {.func = "Broadcast",
                                          .count = 1,
                                          .datatype = "ncclInt64",
                                          .algo = "RING",
                                          .proto = "LL128"}};
    struct nt_prof_event_v3 unknown = c;
    host_tell(arg);
    HOST_CHECK(v1->init(&ctx, &mask) == 0 && ctx != NULL && mask == NT_PROF_COLL);
    HOST_CHECK(v1->start(ctx, &h, &a) == 0);
    a.coll.datatype = 200;
    HOST_CHECK(v1->start(ctx, &h, &a) == 0);
    HOST_CHECK(v2->start(ctx, &h, &b) == 0);
    HOST_CHECK(v3->start(ctx, &h, &c) == 0);
    unknown.coll.func = "AllGather"; /* of how many ranks, v3 does not say */
    HOST_CHECK(v3->start(ctx, &h, &unknown) == 0);
    unknown.coll.func = NULL;
    HOST_CHECK(v3->start(ctx, &h, &unknown) == 0);
    unknown.type = 1;
    HOST_CHECK(v3->start(ctx, &h, &unknown) == 0 && v3->finalize(ctx) == 0);
    return 0;
}

static void test_old_profilers(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    const uint8_t *r;
    uint64_t all = 0;
    (void)state;
    host_dir_vars(&d, NT_TABLE_TABLE, NULL, 0, NULL, 0);
    assert_int_equal(host_child(profile_old, &d, NULL, 0), 0);
    r = host_receipt(&d, 0, &head);
    assert_non_null(r);
    assert_int_equal(nt_receipt_executed(r, NT_TABLE_ALL_REDUCE, 11, 3).eager, 1);
    assert_int_equal(nt_receipt_executed(r, NT_TABLE_ALL_REDUCE, 11, 3).max_channels, 0);
    assert_int_equal(
        nt_receipt_executed(r, NT_TABLE_ALL_GATHER, 7, NT_TABLE_NVLS_TREE * 3 + 2).eager, 1);
    assert_int_equal(nt_receipt_executed(r, NT_TABLE_BROADCAST, 3, 4).eager, 1);
    for (unsigned coll = 0; coll < NT_TABLE_COLLS; coll++) {
        for (unsigned class = 0; class < NT_CLASS_COUNT; class ++) {
            for (unsigned cell = 0; cell < NT_RECEIPT_CELLS; cell++) {
                all += nt_receipt_executed(r, coll, class, cell).eager;
            }
        }
    }
    assert_int_equal(all, 3);
    (void)munmap((void *)(uintptr_t)r, NT_RECEIPT_BYTES);
    host_clean(&d);
}

static int profile_nothing(void *arg)
{
    const struct nt_profiler_v5 *v5 = plugin(NT_PROFILER_LIB, "ncclProfiler_v5");
    void *ctx = &ctx, *h = &ctx;
    int mask = 7;
    struct nt_prof_event_v4 e = COLL("AllReduce", 1024, "ncclBfloat16", 4, "TREE", "LL");
    (void)arg;
    HOST_CHECK(v5->init(&ctx, 1, &mask, "comm", 1, 8, 0, host_logger) == 0);
    HOST_CHECK(mask == 0 && ctx == NULL);
    HOST_CHECK(v5->start(ctx, &h, &e) == 0 && h == NULL && v5->finalize(NULL) == 0);
    return 0;
}

static void test_profiler_told_nothing(void **state)
{
    (void)state;
    assert_int_equal(host_child(profile_nothing, NULL, NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_env_answers),
        cmocka_unit_test(test_env_decides_once),
        cmocka_unit_test(test_env_stops_without_the_tuner),
        cmocka_unit_test(test_env_threads),
        cmocka_unit_test(test_one_receipt),
        cmocka_unit_test(test_profiler),
        cmocka_unit_test(test_old_profilers),
        cmocka_unit_test(test_other_profilers),
        cmocka_unit_test(test_profiler_told_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
