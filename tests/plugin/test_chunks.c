/* Chunk sizes: which calls the plugin tells one, and whose calls it leaves alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/plugin/host.h"

enum { AR = 4 }; /* all_reduce */
enum { TREE, RING };
enum { LL, SIMPLE = 2 };

static const struct nt_table_row rows[] = {
    {.coll = AR,
     .nranks = 8,
     .nnodes = 1,
     .min_bytes = 1024,
     .max_bytes = 65536,
     .algo = TREE,
     .proto = LL,
     .channels = 4},
    {.coll = AR,
     .nranks = 8,
     .nnodes = 1,
     .min_bytes = 1 << 26,
     .max_bytes = UINT64_MAX,
     .algo = RING,
     .proto = SIMPLE,
     .channels = 24,
     .chunk_bytes = 131072},
};

/* What NCCL asked (in bytes, 0 ends), then the chunk it is told for an executed combination. */
static const struct {
    size_t asked[4];
    int algo, proto;
    bool served;
} chunk_cases[] = {
    {{0}, RING, SIMPLE, false},           /* nothing was asked */
    {{1 << 27}, RING, SIMPLE, true},      /* the row that has one */
    {{0}, RING, SIMPLE, true},            /* asked for each of its channels */
    {{0}, TREE, SIMPLE, false},           /* NCCL chose otherwise */
    {{4096}, TREE, LL, false},            /* its row has none */
    {{10}, RING, SIMPLE, false},          /* no row */
    {{10, 1 << 27}, RING, SIMPLE, false}, /* a group, served differently */
    {{0}, RING, SIMPLE, false},
    {{1 << 27, 10, 1 << 27}, RING, SIMPLE, false},
    {{1 << 27, 1 << 27, 1 << 28}, RING, SIMPLE, true}, /* a group, served alike */
};

static int chunks(void *arg)
{
    struct host h;
    void *ctx = NULL;
    size_t chunk = 999;
    host_tell(arg);
    host_open(&h);
    HOST_CHECK(h.v6->get_chunk_size(NULL, AR, 1, RING, SIMPLE, 1, &chunk) == 0 && chunk == 999);
    HOST_CHECK(host_init(&h, 6, 8, 1, &ctx) == 0);
    for (size_t i = 0; i < COUNT(chunk_cases); i++) {
        for (size_t k = 0; chunk_cases[i].asked[k] != 0; k++) {
            struct host_call c = {.abi = 6, .coll = AR, .bytes = chunk_cases[i].asked[k]};
            HOST_CHECK(host_ask(&h, ctx, &c) == 0);
        }
        chunk = 999; /* 5000: the bytes of one channel, not of the call */
        HOST_CHECK(h.v6->get_chunk_size(ctx, AR, 5000, chunk_cases[i].algo, chunk_cases[i].proto, 1,
                                        &chunk) == 0);
        if (chunk != (chunk_cases[i].served ? 131072 : 999)) {
            (void)dprintf(2, "case %zu: chunk %zu\n", i, chunk);
            return 1;
        }
    }
    return host_end(&h, 6, ctx);
}

static void test_chunks(void **state)
{
    struct host_dir d;
    (void)state;
    host_dir(&d, rows, COUNT(rows));
    assert_int_equal(host_child(chunks, &d, NULL, 0), 0);
    host_clean(&d);
}

/* Below v6 nobody asks for a chunk: a row that was confirmed with one serves no call there, which
 * is said once and counted each time. The largest call of all is asked for. */
static int chunk_below_v6(void *arg)
{
    struct host h;
    host_tell(arg);
    host_open(&h);
    for (int abi = 5; abi <= 6; abi++) {
        struct host_call ask = {.abi = abi, .coll = AR, .bytes = SIZE_MAX};
        void *ctx = NULL;
        HOST_CHECK(host_init(&h, abi, 8, 1, &ctx) == 0);
        HOST_CHECK((strstr(host_log, "1 rows ask for a chunk size") != NULL) == (abi == 5));
        HOST_CHECK(host_ask(&h, ctx, &ask) == 0);
        HOST_CHECK(ask.touched == (abi == 6) && ask.channels == (abi == 6 ? 24 : 0));
        host_log[0] = '\0';
        HOST_CHECK(host_end(&h, abi, ctx) == 0);
    }
    return 0;
}

static void test_chunk_below_v6(void **state)
{
    struct host_dir d;
    struct nt_receipt_head head;
    const uint8_t *r;
    uint64_t applied = 0;
    (void)state;
    host_dir(&d, rows, COUNT(rows));
    assert_int_equal(host_child(chunk_below_v6, &d, NULL, 0), 0);
    r = host_receipt(&d, 0, &head);
    assert_non_null(r);
    for (uint32_t i = 0; i < COUNT(rows); i++) {
        applied += nt_receipt_row_applied(r, i);
    }
    assert_int_equal(applied, 1);
    struct nt_receipt_class c = nt_receipt_class(r, AR, nt_size_class(SIZE_MAX));
    assert_int_equal(c.served, 1);
    assert_int_equal(c.left, 1);
    (void)munmap((void *)(uintptr_t)r, NT_RECEIPT_BYTES);
    host_clean(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunk_below_v6),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
