/* Chunk sizes: which calls the plugin tells one, and whose calls it leaves alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/plugin/host.h"
#include "tests/probe/ranks.h"

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

/* ---- two ranks of a (fake) NCCL that loads the plugin as it would any ---- */

static const struct nt_table_row pair[] = {{.coll = AR,
                                            .nranks = 2,
                                            .nnodes = 1,
                                            .min_bytes = 8192,
                                            .max_bytes = 32768,
                                            .algo = RING,
                                            .proto = SIMPLE,
                                            .channels = 2,
                                            .chunk_bytes = 65536}};

/* What a call of 16 KiB executed; plugin: a path, or none. chunks: the file that tells them. */
static struct nt_executed executed(const struct host_dir *d, const char *plugin, int version,
                                   const char *chunks)
{
    char texts[6][400];
    const char *env[8] = {NULL};
    const struct nt_measure m = {.id = 1,
                                 .cs = {.bytes = 16384, .coll = NT_ALL_REDUCE, .dtype = NT_FP32},
                                 .call = NT_CALL_DEFAULT,
                                 .samples = 1,
                                 .inner = 1,
                                 .verify = NT_VERIFY_BOTH,
                                 .flags = NT_M_READBACK,
                                 .deadline_ms = 20000};
    struct nt_msg ready, got[RANKS_MAX];
    struct nt_executed x;
    struct ranks r;

    (void)snprintf(texts[0], sizeof(texts[0]), "NCCL_TUNER_PLUGIN=%s", plugin);
    (void)snprintf(texts[1], sizeof(texts[1]), "FAKE_NCCL_VERSION=%d", version);
    (void)snprintf(texts[2], sizeof(texts[2]), "FAKE_NCCL_CHUNKS=%s", chunks);
    (void)snprintf(texts[3], sizeof(texts[3]), "NCCLTUNE_PROFILE=%s", d->hash);
    (void)snprintf(texts[4], sizeof(texts[4]), "NCCLTUNE_TABLE=%s", d->table);
    (void)snprintf(texts[5], sizeof(texts[5]), "NCCLTUNE_RECEIPTS=%s", d->receipts);
    for (size_t i = 0; i < COUNT(texts); i++) {
        env[i] = texts[i];
    }
    ranks_start(&r, 2, env);
    ranks_init(&r, 1 << 16, true);
    for (unsigned i = 0; i < 2; i++) {
        ranks_hear(&r, i, NT_MSG_READY, &ready);
        nt_msg_done(&ready);
    }
    ranks_measure(&r, &m, got);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(got[i].result.status, NT_ST_OK);
        assert_int_equal(got[i].result.wrong, 0);
    }
    x = got[0].result.executed;
    ranks_results_done(&r, got);
    ranks_quit(&r);
    return x;
}

static void test_delivered(void **state)
{
    struct nt_executed served, left, alone;
    struct host_dir d;
    char chunks[256], line[512] = "", want[512];
    FILE *f;
    (void)state;

    host_dir(&d, pair, COUNT(pair));
    (void)snprintf(chunks, sizeof(chunks), "%s/chunks", d.path);
    alone = executed(&d, "none", 23007, chunks);
    left = executed(&d, NT_TUNER_LIB, 22907, chunks); /* tuner ABI v5 */
    assert_int_not_equal(access(chunks, F_OK), 0);
    assert_true(nt_executed_equal(&left, &alone));
    served = executed(&d, NT_TUNER_LIB, 23007, chunks);
    assert_true(served.algo == RING && served.proto == SIMPLE && served.channels == 2);
    assert_false(nt_executed_equal(&served, &alone));
    f = fopen(chunks, "re");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof(line), f));
    (void)fclose(f);
    (void)snprintf(want, sizeof(want), "%s 16384 65536\n", NT_TUNER_LIB);
    assert_string_equal(line, want);
    host_clean(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunk_below_v6),
        cmocka_unit_test(test_delivered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
