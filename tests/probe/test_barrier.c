#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "probes/nccl/barrier.h"

enum { WORLD = 3, ROUNDS = 2000 };

static char path[] = "/tmp/nt-barrier-XXXXXX";

static int make_page(void **state)
{
    int fd;
    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/nt-barrier-XXXXXX");
    fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, NT_BARRIER_BYTES) != 0) {
        return -1;
    }
    return close(fd);
}

static int remove_page(void **state)
{
    (void)state;
    return unlink(path);
}

static uint64_t in_ms(unsigned ms)
{
    return nt_now_ns() + 1000000ULL * ms;
}

/* In round r, rank r % WORLD votes r % 7: everybody must learn just that. */
static void *rank(void *arg)
{
    unsigned me = *(const unsigned *)arg;
    struct nt_barrier b = {0};
    uintptr_t wrong = nt_barrier_open(&b, path, WORLD, NULL) != 0;
    for (unsigned r = 0; r < ROUNDS && wrong == 0; r++) {
        uint32_t heard = 99;
        int rc = nt_barrier_wait(&b, r % WORLD == me ? r % 7 : 0, in_ms(20000), &heard, NULL);
        wrong += rc != 0 || heard != r % 7;
    }
    nt_barrier_close(&b);
    return (void *)wrong; /* NOLINT(performance-no-int-to-ptr) */
}

static void test_votes(void **state)
{
    pthread_t threads[WORLD];
    unsigned ids[WORLD];
    (void)state;
    for (unsigned i = 0; i < WORLD; i++) {
        ids[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, rank, &ids[i]), 0);
    }
    for (unsigned i = 0; i < WORLD; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
}

static void test_deadline_breaks_it(void **state)
{
    struct nt_barrier a = {0}, b = {0};
    struct nt_err err = {0};
    uint32_t vote;
    (void)state;
    assert_int_equal(nt_barrier_open(&a, path, 2, NULL), 0);
    assert_int_equal(nt_barrier_open(&b, path, 2, NULL), 0);
    assert_int_equal(nt_barrier_wait(&a, 0, in_ms(20), &vote, &err), -NT_E_INTERRUPTED);
    assert_int_equal(nt_barrier_wait(&b, 0, in_ms(20000), &vote, &err), -NT_E_IO);
    assert_string_equal(err.msg, "another rank left the trial");
    nt_barrier_close(&a);
    nt_barrier_close(&b);
}

static void test_bad_page(void **state)
{
    struct nt_barrier b = {0};
    (void)state;
    assert_int_equal(nt_barrier_open(&b, "/nowhere/page", 2, NULL), -NT_E_IO);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(nt_barrier_open(&b, path, 2, NULL), -NT_E_IO);
    nt_barrier_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_votes, make_page, remove_page),
        cmocka_unit_test_setup_teardown(test_deadline_breaks_it, make_page, remove_page),
        cmocka_unit_test_setup_teardown(test_bad_page, make_page, remove_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
