/* What the tuner plugin writes down of a program that changes variables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/plugin/host.h"

static const struct nt_table_row rows[] = {
    {.coll = NT_TABLE_ALL_REDUCE, .nranks = 8, .nnodes = 1, .max_bytes = 4096, .channels = 2}};

/* What a program does to its variables, and how it was told. A child has the environment of this
 * program's start; what is set since counts as set by itself. */
static int changes_variables(void *arg)
{
    struct host h;
    void *ctx[3] = {NULL};
    (void)unsetenv("NCCL_DEBUG");
    (void)setenv("NCCL_BUFFSIZE", "8388608", 1); /* the profile's value, as a loader sets it */
    (void)setenv("NCCL_PROTO", "Simple", 1);
    (void)setenv("NCCL_NTHREADS", "256", 1);
    (void)setenv("NCCL_ENV_PLUGIN", "/lib/libnccl-env-nccltune.so", 1); /* named, not asked */
    (void)setenv("NCCLTUNE_LOADER", "set=NCCL_BUFFSIZE", 1);
    host_tell(arg);
    host_open(&h);
    HOST_CHECK(host_init(&h, 5, 8, 1, &ctx[0]) == 0);
    HOST_CHECK(host_init(&h, 5, 4, 1, &ctx[1]) == 0); /* nothing new */
    (void)setenv("NCCL_ALGO", "allreduce:ring", 1);
    (void)setenv("NCCL_BUFFSIZE", "4194304", 1);
    (void)setenv("NCCL_NET_PLUGIN", "another", 1);
    (void)unsetenv("NCCL_NTHREADS");
    (void)setenv("NOT_NCCLS", "1", 1);
    HOST_CHECK(host_init(&h, 5, 8, 1, &ctx[2]) == 0);
    return 0;
}

static void test_changed_variables(void **state)
{
    static const struct nt_table_var vars[] = {{"NCCL_BUFFSIZE", "8388608", false}};
    static const struct {
        const char *name, *before, *now;
        uint32_t comms;
    } wanted[] = {{"NCCL_PROTO", NULL, "Simple", 0},
                  {"NCCL_NTHREADS", NULL, NULL, 0}, /* … and taken away later */
                  {"NCCL_ALGO", NULL, "allreduce:ring", 2},
                  {"NCCL_BUFFSIZE", "8388608", "4194304", 2}};
    struct host_dir d;
    struct nt_receipt_head head;
    struct nt_receipt_change c;
    const uint8_t *r;
    (void)state;
    host_dir_vars(&d, NT_TABLE_TABLE, vars, COUNT(vars), rows, COUNT(rows));
    assert_int_equal(host_child(changes_variables, &d, NULL, 0), 0);
    r = host_receipt(&d, 0, &head);
    assert_non_null(r);
    assert_int_equal(head.flags, NT_RECEIPT_INSIDE | NT_RECEIPT_BY_LOADER | NT_RECEIPT_ENV_LATE);
    for (size_t i = 0; i < COUNT(wanted); i++) {
        unsigned found = 0;
        for (uint32_t k = 0; k < NT_RECEIPT_CHANGES; k++) {
            if (!nt_receipt_change(r, k, &c) || strcmp(c.name, wanted[i].name) != 0) {
                continue;
            }
            found++;
            if (c.comms != wanted[i].comms || (c.before == NULL) != (wanted[i].before == NULL) ||
                (c.now == NULL) != (wanted[i].now == NULL) ||
                (c.now != NULL && strcmp(c.now, wanted[i].now) != 0) ||
                (c.before != NULL && strcmp(c.before, wanted[i].before) != 0)) {
                fail_msg("%s: after %u, '%s', then '%s'", c.name, c.comms,
                         c.before != NULL ? c.before : "-", c.now != NULL ? c.now : "-");
            }
        }
        assert_int_equal(found, 1);
    }
    for (uint32_t k = 0; k < NT_RECEIPT_CHANGES; k++) {
        assert_false(nt_receipt_change(r, k, &c) &&
                     (strstr(c.name, "PLUGIN") != NULL || strcmp(c.name, "NOT_NCCLS") == 0));
    }
    (void)munmap((void *)(uintptr_t)r, NT_RECEIPT_BYTES);
    host_clean(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_changed_variables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
