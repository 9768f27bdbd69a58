/*
 * The env plugin under the real libnccl: ncclGetUniqueId asks for variables before it needs a GPU.
 * Skipped (77) where no libnccl that knows env plugins is found; NT_NCCL_LIB names one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/plugin/host.h"

static const char *const places[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                     "/usr/local/cuda/lib/libnccl.so.2"};
static const struct nt_table_var vars[] = {{"NCCL_SOCKET_FAMILY", "AF_INET", false},
                                           {"NCCL_SOCKET_IFNAME", "none9", false},
                                           {"NCCL_SOCKET_RCVBUF", "131072", true}};
static int nccl_version;

static void *open_nccl(void)
{
    const char *told = getenv("NT_NCCL_LIB");
    void *lib = told != NULL ? dlopen(told, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; told == NULL && lib == NULL && i < COUNT(places); i++) {
        lib = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    }
    return lib;
}

static int find_version(void *arg)
{
    void *lib = open_nccl();
    int (*get)(int *) =
        lib != NULL ? (int (*)(int *))(uintptr_t)dlsym(lib, "ncclGetVersion") : NULL;
    int v = 0, *ret = arg;
    if (get != NULL && get(&v) == 0) {
        FILE *f = fdopen(dup(*ret), "w");
        (void)fprintf(f, "%d", v);
        (void)fclose(f);
    }
    return 0;
}

static int unique_id(int *ret_result)
{
    char id[128];
    void *lib = open_nccl();
    int (*get)(char *) =
        lib != NULL ? (int (*)(char *))(uintptr_t)dlsym(lib, "ncclGetUniqueId") : NULL;
    HOST_CHECK(get != NULL);
    *ret_result = get(id);
    return 0;
}

static int asks_for_an_id(void *arg)
{
    int result = -1;
    host_tell(arg);
    (void)setenv("NCCL_ENV_PLUGIN", NT_ENV_LIB, 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    HOST_CHECK(unique_id(&result) == 0);
    HOST_CHECK(result == 0);
    return 0;
}

static void test_nccl_asks_us(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    struct nt_receipt_name n;
    const uint8_t *r;
    unsigned seen = 0;
    (void)state;
    host_dir_vars(&d, NT_TABLE_STATIC, vars, COUNT(vars), NULL, 0);
    assert_int_equal(host_child(asks_for_an_id, &d, NULL, 0), 0);
    r = host_receipt(&d, 0, &head);
    assert_non_null(r);
    assert_int_equal(head.nccl_version, nccl_version);
    assert_non_null(strstr(head.path[NT_RECEIPT_LIBNCCL], "libnccl"));
    for (uint32_t k = 0; k < NT_RECEIPT_NAMES; k++) {
        if (nt_receipt_name(r, k, &n)) {
            seen += strcmp(n.name, "NCCL_SOCKET_FAMILY") == 0 && n.told == NT_TOLD_PROFILE;
            seen += strcmp(n.name, "NCCL_SOCKET_IFNAME") == 0 && n.told == NT_TOLD_KEPT;
        }
    }
    assert_int_equal(seen, 2);
    host_clean(&d);
}

static int is_refused(void *arg)
{
    int result = 0;
    host_tell(arg);
    (void)setenv("NCCLTUNE_TABLE", "/nonexistent/table", 1);
    (void)setenv("NCCL_ENV_PLUGIN", NT_ENV_LIB, 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    HOST_CHECK(unique_id(&result) == 0);
    HOST_CHECK(result != 0);
    return 0;
}

static void test_nccl_fails_at_once(void **state)
{
    struct host_dir d;
    char err[4096];
    (void)state;
    host_dir_vars(&d, NT_TABLE_STATIC, vars, COUNT(vars), NULL, 0);
    assert_int_equal(host_child(is_refused, &d, err, sizeof(err)), 0);
    assert_non_null(strstr(err, d.hash));
    assert_non_null(strstr(err, "/nonexistent/table"));
    host_clean(&d);
}

/* The rows need a tuner that NCCL will not find: said before any rank waits for another. */
static int has_no_tuner(void *arg)
{
    int result = 0;
    host_tell(arg);
    (void)setenv("NCCL_TUNER_PLUGIN", "/nonexistent/libnccl-tuner-nccltune.so", 1);
    (void)setenv("NCCL_ENV_PLUGIN", NT_ENV_LIB, 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    HOST_CHECK(unique_id(&result) == 0);
    HOST_CHECK(result != 0);
    return 0;
}

static void test_nccl_stops_without_the_tuner(void **state)
{
    static const struct nt_table_row rows[] = {
        {.coll = NT_TABLE_ALL_REDUCE, .nranks = 8, .nnodes = 1, .max_bytes = 64, .channels = 2}};
    struct host_dir d;
    char err[4096];
    (void)state;
    host_dir(&d, rows, COUNT(rows));
    assert_int_equal(host_child(has_no_tuner, &d, err, sizeof(err)), 0);
    assert_non_null(strstr(err, d.hash));
    assert_non_null(strstr(err, "/nonexistent/libnccl-tuner-nccltune.so"));
    host_clean(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nccl_asks_us),
                                       cmocka_unit_test(test_nccl_fails_at_once),
                                       cmocka_unit_test(test_nccl_stops_without_the_tuner)};
    FILE *f = tmpfile();
    int fd = f != NULL ? fileno(f) : -1;
    char text[16];

    (void)host_child(find_version, &fd, NULL, 0);
    if (f == NULL || fseek(f, 0, SEEK_SET) != 0 || fgets(text, sizeof(text), f) == NULL ||
        (nccl_version = (int)strtol(text, NULL, 10)) < 22807) {
        (void)printf("skipped: no libnccl >= 2.28.7 (version %d)\n", nccl_version);
        return 77;
    }
    (void)fclose(f);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
