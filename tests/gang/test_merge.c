#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tuner/gang/merge.h"
#include "tuner/launch/shm_names.h"

static const struct nt_measure asked = {.id = 7, .samples = 2};
#define RAN     .executed = {NT_RING, NT_LL, 4, 8}
#define NOT_RUN .executed = {-1, -1, 0, 0}

static void test_results(void **state)
{
    static uint32_t fast[] = {10, 40}, slow[] = {30, 20};
    static const struct {
        const char *name;
        struct nt_result a, b;
        enum nt_status status;
        int rank;
        const char *says;
    } rows[] = {
        {"both fine",
         {.ns = fast, .count = 2, RAN},
         {.ns = slow, .count = 2, RAN},
         NT_ST_OK,
         -1,
         ""},
        {"other channels",
         {.ns = fast, .count = 2, RAN},
         {.ns = slow, .count = 2, .executed = {NT_RING, NT_LL, 5, 8}},
         NT_ST_DISAGREE,
         -1,
         "ring/ll/4/8 and ring/ll/5/8"},
        {"read on one rank only",
         {.ns = fast, .count = 2, RAN},
         {.ns = slow, .count = 2, NOT_RUN},
         NT_ST_DISAGREE,
         -1,
         "not read"},
        {"wrong on one",
         {.ns = fast, .count = 2, RAN},
         {.status = NT_ST_WRONG, .wrong = 3, RAN, .error = "3 differ"},
         NT_ST_WRONG,
         1,
         "3 differ"},
        {"wrong elements though ok",
         {.ns = fast, .count = 2, RAN, .wrong = 2},
         {.ns = slow, .count = 2, RAN},
         NT_ST_WRONG,
         0,
         "wrong"},
        {"unavailable",
         {.status = NT_ST_UNAVAILABLE, NOT_RUN},
         {.status = NT_ST_UNAVAILABLE, NOT_RUN},
         NT_ST_UNAVAILABLE,
         -1,
         "unavailable"},
        {"unavailable on one",
         {.status = NT_ST_UNAVAILABLE, NOT_RUN},
         {.ns = slow, .count = 2, RAN},
         NT_ST_DISAGREE,
         -1,
         "some ranks only"},
        {"wrong weighs more than what it causes",
         {.status = NT_ST_ERROR, NOT_RUN},
         {.status = NT_ST_WRONG, .wrong = 1, RAN},
         NT_ST_WRONG,
         1,
         "wrong"},
        {"error and too slow",
         {.status = NT_ST_TOO_SLOW, RAN},
         {.status = NT_ST_ERROR, NOT_RUN, .error = "NCCL says"},
         NT_ST_ERROR,
         1,
         "NCCL says"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct nt_result *r[] = {&rows[i].a, &rows[i].b};
        struct nt_gang_result g;
        uint32_t ns[2];
        nt_merge_results(&asked, r, 2, ns, &g);
        if (g.status != rows[i].status || g.rank != rows[i].rank ||
            strstr(g.error, rows[i].says) == NULL) {
            fail_msg("%s: status %d rank %d '%s'", rows[i].name, (int)g.status, g.rank, g.error);
        }
        assert_int_equal(g.count, g.status == NT_ST_OK ? 2 : 0);
        assert_int_equal(g.wrong, rows[i].a.wrong + rows[i].b.wrong);
        if (g.status == NT_ST_OK) {
            assert_int_equal(g.ns[0], 30); /* the slowest of each iteration */
            assert_int_equal(g.ns[1], 40);
            assert_int_equal(g.executed.channels, 4);
        }
    }
}

static void test_greatest(void **state)
{
    static uint32_t ns[] = {1, 2};
    struct nt_result a = {.ns = ns, .count = 2, RAN, .elapsed_ns = 5, .memory_bytes = 9},
                     b = {.ns = ns, .count = 2, RAN, .connect_ns = 7, .base_ns = 3};
    const struct nt_result *r[] = {&a, &b};
    struct nt_gang_result g;
    uint32_t out[2];
    (void)state;
    nt_merge_results(&asked, r, 2, out, &g);
    assert_int_equal(g.id, 7);
    assert_int_equal(g.elapsed_ns, 5);
    assert_int_equal(g.memory_bytes, 9);
    assert_int_equal(g.connect_ns, 7);
    assert_int_equal(g.base_ns, 3);
}

/* Ranks that do not see one chunk of NCCL's own: none is known. */
static void test_own_chunk(void **state)
{
    static uint32_t ns[] = {1, 2};
    struct nt_result a = {.ns = ns, .count = 2, RAN, .own_chunk_bytes = 4096}, b = a;
    const struct nt_result *r[] = {&a, &b};
    struct nt_gang_result g;
    uint32_t out[2];
    (void)state;
    nt_merge_results(&asked, r, 2, out, &g);
    assert_int_equal(g.own_chunk_bytes, 4096);
    b.own_chunk_bytes = 8192;
    nt_merge_results(&asked, r, 2, out, &g);
    assert_int_equal(g.own_chunk_bytes, 0);
    assert_int_equal(g.status, NT_ST_OK);
}

static void test_check(void **state)
{
    struct nt_err e;
    (void)state;
    assert_int_equal(nt_merge_check(&asked, &(struct nt_result){.id = 7, .count = 2}, &e), 0);
    assert_int_equal(nt_merge_check(&asked, &(struct nt_result){.id = 8, .count = 2}, &e),
                     -NT_E_PROTO);
    assert_int_equal(nt_merge_check(&asked, &(struct nt_result){.id = 7, .count = 1}, &e),
                     -NT_E_PROTO);
    assert_int_equal(
        nt_merge_check(&asked, &(struct nt_result){.id = 7, .status = NT_ST_ERROR}, &e), 0);
}

static void test_cells(void **state)
{
    struct nt_cells a = {.asked = true, .cost = {{1, 2, -1}}},
                    b = {.asked = true, .cost = {{3, -1, 4}}}, out;
    const struct nt_cells *c[] = {&a, &b};
    (void)state;
    nt_merge_cells(c, 2, &out);
    assert_true(out.asked && out.cost[0][0] == 3 && out.cost[0][1] < 0 && out.cost[0][2] < 0);
    b.asked = false;
    nt_merge_cells(c, 2, &out);
    assert_false(out.asked);
}

static void test_shm_names(void **state)
{
    static const struct {
        const char *line, *name; /* NULL: none */
    } rows[] = {
        {"7f0-7f1 rw-s 00000000 00:19 5      /dev/shm/nccl-AbC123\n", "nccl-AbC123"},
        {"7f0-7f1 rw-s 00000000 00:19 5      /dev/shm/nccl-AbC123 (deleted)\n", NULL},
        {"7f0-7f1 rw-s 00000000 00:19 5      /dev/shm/nccl-a/../../etc/x\n", NULL},
        {"7f0-7f1 rw-s 00000000 00:19 5      /dev/shm/other\n", NULL},
        {"7f0-7f1 rw-s 00000000 00:19 5      /srv/dev/shm/nccl-x\n", NULL},
        {"7f0-7f1 rw-s 00000000 00:19 5      /dev/shm/nccl-"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
         NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_shm_names s = {0};
        nt_shm_names_line(&s, rows[i].line);
        nt_shm_names_line(&s, rows[i].line); /* once is enough */
        if (s.count != (rows[i].name != NULL)) {
            fail_msg("%s: %zu names", rows[i].line, s.count);
        }
        if (rows[i].name != NULL) {
            assert_string_equal(s.name[0], rows[i].name);
        }
        (void)nt_shm_names_unlink(&s);
        assert_int_equal(s.count, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),   cmocka_unit_test(test_greatest),
        cmocka_unit_test(test_own_chunk), cmocka_unit_test(test_check),
        cmocka_unit_test(test_cells),     cmocka_unit_test(test_shm_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
