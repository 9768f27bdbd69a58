/* The plugins' parts by themselves: look-up, CSV reader, the ranks' meeting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "profiles/plugin/csv.h"
#include "profiles/plugin/lookup.h"
#include "profiles/plugin/meet.h"
#include "tests/plugin/host.h"

/* ---- look-up ---- */

static uint64_t rng_state;

static uint64_t rng(void) /* xorshift64: the test needs no quality, only repetition */
{
    rng_state ^= rng_state << 13U;
    rng_state ^= rng_state >> 7U;
    rng_state ^= rng_state << 17U;
    return rng_state;
}

/* Disjoint ascending ranges, some wide and some of one byte, some adjacent and some apart. */
static size_t random_rows(struct nt_table_row *rows, size_t most)
{
    size_t n = 0;
    for (unsigned coll = 0; coll < NT_TABLE_COLLS; coll++) {
        for (unsigned reg = NT_TABLE_REG_NO; reg <= NT_TABLE_REG_YES; reg++) {
            uint64_t at = rng() % 3;
            uint64_t shift = rng() % 50;
            while (n < most && rng() % 40 != 0) {
                uint64_t width = rng() % ((UINT64_C(1) << shift) + 1);
                rows[n++] = (struct nt_table_row){.coll = (uint8_t)coll,
                                                  .nranks = 8,
                                                  .nnodes = 1,
                                                  .min_bytes = at,
                                                  .max_bytes = at + width,
                                                  .reg_buff = (uint8_t)reg,
                                                  .algo = 1,
                                                  .proto = (int8_t)(rng() % 3)};
                at += width + 1 + (rng() % 2) * (rng() % 1000);
                shift = rng() % 8 == 0 ? rng() % 50 : shift;
                if (at > UINT64_MAX / 4) {
                    break;
                }
            }
        }
    }
    return n;
}

static struct nt_table_row in_order[300]; /* the table's rows, decoded once */

static int64_t linear(const struct nt_table *t, unsigned coll, unsigned reg, uint64_t bytes)
{
    for (uint32_t i = 0; i < t->nrows; i++) {
        const struct nt_table_row *r = &in_order[i];
        if (r->coll == coll && r->min_bytes <= bytes && bytes <= r->max_bytes &&
            (r->reg_buff == NT_TABLE_REG_ANY ||
             (reg != NT_REG_UNKNOWN && r->reg_buff == NT_TABLE_REG_NO + reg))) {
            return i;
        }
    }
    return -1;
}

static void check_at(const struct nt_table *t, const struct nt_lookup *l, uint64_t bytes,
                     uint64_t seed)
{
    for (unsigned coll = 0; coll < NT_TABLE_COLLS; coll++) {
        for (unsigned reg = 0; reg < NT_REGS; reg++) {
            const struct nt_rule *r = nt_lookup_find(l, coll, (enum nt_reg)reg, bytes);
            int64_t got = r != NULL ? (int64_t)r->row : -1, want = linear(t, coll, reg, bytes);
            if (got != want) {
                fail_msg("seed %llu coll %u reg %u bytes %llu: row %lld, want %lld",
                         (unsigned long long)seed, coll, reg, (unsigned long long)bytes,
                         (long long)got, (long long)want);
            }
        }
    }
}

static void test_lookup_is_the_linear_scan(void **state)
{
    static struct nt_table_row rows[300];
    (void)state;
    for (uint64_t seed = 1; seed <= (NT_SLOW ? 6 : 30); seed++) {
        uint8_t *data;
        size_t size, n;
        char hash[NT_HASH_HEX + 1];
        struct nt_why why = {""};
        struct nt_table t;
        struct nt_lookup *l;
        rng_state = seed * 0x9e3779b97f4a7c15U;
        n = random_rows(rows, COUNT(rows));
        for (size_t i = 0; seed % 3 == 0 && i < n; i++) { /* every third: for any registration */
            rows[i].reg_buff = rows[i].reg_buff == NT_TABLE_REG_NO ? NT_TABLE_REG_ANY : 99;
        }
        for (size_t i = n; i-- > 0;) {
            if (rows[i].reg_buff == 99) {
                rows[i] = rows[--n];
            }
        }
        if (nt_table_write(NT_TABLE_TABLE, NULL, 0, rows, n, &data, &size, hash, &why) != 0) {
            fail_msg("seed %llu: %s", (unsigned long long)seed, why.text);
        }
        assert_int_equal(nt_table_read(data, size, &t, NULL), 0);
        for (uint32_t i = 0; i < t.nrows; i++) {
            in_order[i] = nt_table_row(&t, i);
        }
        l = nt_lookup_new(&t, 8, 1);
        assert_non_null(l);
        assert_int_equal(l->rows, n);
        for (size_t i = 0; i < n; i++) {
            check_at(&t, l, rows[i].min_bytes, seed);
            check_at(&t, l, rows[i].min_bytes - 1, seed);
            check_at(&t, l, rows[i].max_bytes, seed);
            check_at(&t, l, rows[i].max_bytes + 1, seed);
        }
        for (unsigned b = 0; b < 64; b++) {
            check_at(&t, l, UINT64_C(1) << b, seed);
            check_at(&t, l, (UINT64_C(1) << b) - 1, seed);
        }
        check_at(&t, l, UINT64_MAX, seed);
        nt_lookup_free(l);
        l = nt_lookup_new(&t, 4, 1); /* nothing is for this communicator */
        assert_int_equal(l->rows, 0);
        for (unsigned b = 0; b < 64; b++) {
            assert_null(nt_lookup_find(l, NT_TABLE_ALL_REDUCE, NT_REG_NO, UINT64_C(1) << b));
        }
        nt_lookup_free(l);
        free(data);
    }
}

/* ---- CSV ---- */

static void test_csv_rows(void **state)
{
    static const struct {
        const char *text;
        int rows; /* -1: refused */
        const char *says;
    } cases[] = {
        {"", 0, ""},
        {"\n\n# x\n  \n", 0, ""},
        {"allreduce,0,1,ring,ll,1,1,2", 1, ""},
        {"allreduce,0,1,ring,ll,1,1,2,1,0\nallgather,0,-1,pat,simple,-1,-1,-1\r\n", 2, ""},
        {"allreduce,0,1,ring,ll,1,1", -1, "line 1: needs 8"},
        {"allreduce,0,1,ring,ll,1,1,2,1,0,7", -1, "line 1: needs 8"},
        {"#\nallreduce,,,,,,,", -1, "line 2: minBytes"},
        {",,,,", -1, "needs 8"},
        {",", -1, "needs 8"},
        {",,,,,,,", -1, "collective"},
        {"AllReduce,0,1,ring,ll,1,1,2", -1, "collective"},
        {"alltoall,0,1,ring,ll,1,1,2", -1, "collective"},
        {"allreduce,-1,1,ring,ll,1,1,2", -1, "minBytes"},
        {"allreduce,2,1,ring,ll,1,1,2", -1, "maxBytes"},
        {"allreduce,0,1x,ring,ll,1,1,2", -1, "maxBytes"},
        {"allreduce,0,99999999999999999999,ring,ll,1,1,2", -1, "maxBytes"},
        {"allreduce,0,1,rings,ll,1,1,2", -1, "algorithm"},
        {"allreduce,0,1,ring,ll64,1,1,2", -1, "protocol"},
        {"allreduce,0,1,ring,ll,0,1,2", -1, "channels"},
        {"allreduce,0,1,ring,ll,65,1,2", -1, "channels"},
        {"allreduce,0,1,ring,ll,1,0,2", -1, "nNodes"},
        {"allreduce,0,1,ring,ll,1,1,+2", -1, "nRanks"},
        {"allreduce,0,1,ring,ll,1,1,2,x", -1, "numPipeOps"},
        {"allreduce,0,1,ring,ll,1,1,2,1,2", -1, "regBuff"},
        {"allreduce 0 1 ring ll 1 1 2 and a very long line without a comma", -1, "short fields"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t len = strlen(cases[i].text), n = 0;
        char *exact = malloc(len > 0 ? len : 1); /* no NUL: a reader that looks for one is found */
        struct nt_csv_row *rows = NULL;
        struct nt_why why = {""};
        memcpy(exact, cases[i].text, len);
        int rc = nt_csv_parse(exact, len, &rows, &n, &why);
        if ((rc == 0 ? (int)n : -1) != cases[i].rows || strstr(why.text, cases[i].says) == NULL) {
            fail_msg("'%s': rc %d, %zu rows, '%s'", cases[i].text, rc, n, why.text);
        }
        free(rows);
        free(exact);
    }
}

static void test_csv_nul(void **state)
{
    static const char text[] = "allreduce,0,1,ri\0ng,ll,1,1,2";
    struct nt_csv_row *rows = NULL;
    size_t n = 0;
    (void)state;
    assert_int_equal(nt_csv_parse(text, sizeof(text) - 1, &rows, &n, NULL), -1);
    assert_null(rows);
}

static void test_csv_says(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"allreduce,0,9,collnet_chain,simple,4,-1,-1", "does not check others here"},
        {"allreduce,0,9,nvls,simple,4,-1,-1", "4 channels on one node, NCCL's own across nodes"},
        {"allreduce,0,9,ring,ll,-1,2,16,1,0",
         "of 0 to 9 bytes, nodes 2, ranks 16, pipelined operations 1, registered 0: ring/ll where "
         "NCCL offers it, NCCL's own channels"},
        {"reduce,0,9,tree,simple,2,-1,-1", "never applies, NCCL has no tree/simple for it"}};
    char out[512];
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct nt_csv_row *rows = NULL;
        size_t n = 0;
        assert_int_equal(nt_csv_parse(cases[i].text, strlen(cases[i].text), &rows, &n, NULL), 0);
        nt_csv_describe(rows, 0, out, sizeof(out));
        if (strstr(out, cases[i].says) == NULL) {
            fail_msg("'%s': '%s'", cases[i].text, out);
        }
        free(rows);
    }
    struct nt_csv_row *rows = NULL;
    size_t n = 0;
    static const char two[] = "allreduce,0,-1,ring,ll,-1,-1,-1\nallreduce,5,9,tree,ll,2,1,8\n";
    assert_int_equal(nt_csv_parse(two, sizeof(two) - 1, &rows, &n, NULL), 0);
    nt_csv_describe(rows, 1, out, sizeof(out));
    assert_non_null(strstr(out, "only where line 1 cannot"));
    free(rows);
}

/* ---- the meeting ---- */

struct rank {
    const struct host_dir *d;
    uint32_t local_ranks;
    int local_rank; /* -1: not told */
    char hash;      /* its profile, as a hash of this digit only */
    bool small;     /* its communicator has not all ranks */
    unsigned hold_ms, delay_ms;
    const char *says; /* NULL: agrees */
};
/* Long where all come or differ, so that a busy machine fails no test; short where one must be
 * missed. */
enum { LONG_MS = 20000, SHORT_MS = 600 };

static void nap(unsigned ms)
{
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
                    NULL);
}

static int go(const struct rank *r)
{
    char hash[NT_HASH_HEX + 1] = "", number[16];
    struct nt_why why = {""};
    bool met = false;
    memset(hash, r->hash != '\0' ? r->hash : 'a', NT_HASH_HEX);
    (void)setenv("NCCLTUNE_RECEIPTS", r->d->receipts, 1);
    (void)snprintf(number, sizeof(number), "%d", r->local_rank);
    if (r->local_rank >= 0) {
        (void)setenv("LOCAL_RANK", number, 1);
    } else {
        (void)unsetenv("LOCAL_RANK");
    }
    nap(r->delay_ms);
    const struct nt_meeting m = {
        .job = "job",
        .hash = hash,
        .local_ranks = r->local_ranks,
        .everyone = !r->small,
        .timeout_ms = r->says != NULL && strstr(r->says, "profile") == NULL ? SHORT_MS : LONG_MS};
    int rc = nt_meet(&m, &met, &why);
    if (!met || (rc == 0) != (r->says == NULL) ||
        (r->says != NULL && strstr(why.text, r->says) == NULL)) {
        (void)dprintf(2, "rank %d: rc %d, met %d, '%s'\n", r->local_rank, rc, met, why.text);
        return 1;
    }
    if (rc == 0 && !r->small) { /* later communicators do not wait again */
        const struct nt_meeting again = {.job = "job",
                                         .hash = hash,
                                         .local_ranks = 999,
                                         .everyone = true,
                                         .timeout_ms = SHORT_MS};
        rc = nt_meet(&again, &met, &why);
    }
    nap(r->hold_ms);
    return rc != 0 && r->says == NULL;
}

static void all(const struct rank *ranks, size_t n)
{
    pid_t pids[16];
    (void)fflush(NULL);
    for (size_t i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            _exit(go(&ranks[i]));
        }
    }
    for (size_t i = 0; i < n; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
}

static void test_who_is_everyone(void **state)
{
    static const struct {
        size_t nranks, nnodes;
        uint32_t local;
        bool host_told, everyone;
    } cases[] = {{8, 1, 8, false, true},  {4, 1, 8, false, false}, {16, 2, 8, false, true},
                 {2, 2, 8, false, false}, {8, 8, 8, false, false}, /* one of each of eight hosts */
                 {8, 8, 8, true, true},   {4, 4, 8, true, false},  {16, 2, 8, true, true},
                 {8, 2, 8, true, false}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (nt_meet_everyone(cases[i].nranks, cases[i].nnodes, cases[i].local,
                             cases[i].host_told) != cases[i].everyone) {
            fail_msg("case %zu", i);
        }
    }
}

static void test_ranks_meet(void **state)
{
    struct host_dir d;
    (void)state;
    host_dir(&d, NULL, 0);
    const struct rank four[] = {{&d, 4, 0, 0, false, 0, 0, NULL},
                                {&d, 4, 1, 0, false, 0, 100, NULL},
                                {&d, 4, -1, 0, false, 0, 0, NULL},
                                {&d, 4, 3, 0, false, 0, 50, NULL}};
    all(four, 4);
    all(four, 4); /* the seats of the dead are free */
    host_clean(&d);
}

static void test_a_rank_is_missing(void **state)
{
    struct host_dir d;
    const char *says = "the tuner plugin is in 2 of 3 ranks of this host";
    (void)state;
    host_dir(&d, NULL, 0);
    const struct rank two[] = {{&d, 3, 0, 0, false, 0, 0, says},
                               {&d, 3, 2, 0, false, 0, 0, "missing: local ranks 1"}};
    all(two, 2);
    /* the one that gives up first and goes is not missing to the other */
    const struct rank apart[] = {{&d, 3, 0, 0, false, 0, 0, "in 2 of 3 ranks"},
                                 {&d, 3, 2, 0, false, 0, 300,
                                  "in 2 of 3 ranks of this host; "
                                  "missing: local ranks 1"}};
    all(apart, 2);
    const struct rank unnumbered[] = {{&d, 2, -1, 0, false, 0, 0, "missing: the others"}};
    all(unnumbered, 1);
    /* dead ones do not count: two came and went, the third is alone */
    const struct rank late[] = {{&d, 2, 1, 0, false, 0, 0, "missing: local ranks 0"}};
    all(late, 1);
    host_clean(&d);
}

/* A smaller communicator does not wait, and still sees who differs. */
static int small_ones(void *arg)
{
    const struct rank first = {arg, 8, 0, 'a', true, 0, 0, NULL};
    const struct rank same = {arg, 8, 1, 'a', true, 0, 0, NULL};
    const struct rank other = {arg, 8, 2, 'c', true, 0, 0, "was told profile aaaa"};
    const struct rank *const children[] = {&same, &other};
    HOST_CHECK(go(&first) == 0);
    for (size_t i = 0; i < COUNT(children); i++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) {
            _exit(go(children[i]));
        }
        HOST_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    return 0;
}

static void test_a_rank_differs(void **state)
{
    struct host_dir d;
    (void)state;
    host_dir(&d, NULL, 0);
    const struct rank two[] = {{&d, 2, 0, 'b', false, 0, 100, "was told profile aaaa"},
                               {&d, 2, 1, 'a', false, 0, 0, "was told profile bbbb"}};
    all(two, 2);
    assert_int_equal(host_child(small_ones, &d, NULL, 0), 0);
    host_clean(&d);
}

static void *thread_rank(void *arg)
{
    const struct rank *r = arg;
    char hash[NT_HASH_HEX + 1] = "";
    struct nt_why why = {""};
    bool met = false;
    const struct nt_meeting m = {.job = "job",
                                 .hash = hash,
                                 .local_ranks = r->local_ranks,
                                 .everyone = true,
                                 .timeout_ms = LONG_MS};
    memset(hash, 'a', NT_HASH_HEX);
    return nt_meet(&m, &met, &why) == 0 && met ? NULL : arg;
}

static int threads(void *arg)
{
    struct rank *r = arg;
    pthread_t t[4];
    int bad = 0;
    (void)setenv("NCCLTUNE_RECEIPTS", r->d->receipts, 1);
    for (int i = 0; i < 4; i++) {
        bad += pthread_create(&t[i], NULL, thread_rank, arg) != 0;
    }
    for (int i = 0; i < 4; i++) {
        void *ret = NULL;
        bad += pthread_join(t[i], &ret) != 0 || ret != NULL;
    }
    return bad;
}

/* One process that drives several GPUs is several ranks. */
static void test_threads_are_ranks(void **state)
{
    struct host_dir d;
    (void)state;
    host_dir(&d, NULL, 0);
    struct rank r = {&d, 4, -1, 0, false, 0, 0, NULL};
    assert_int_equal(host_child(threads, &r, NULL, 0), 0);
    host_clean(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup_is_the_linear_scan),
        cmocka_unit_test(test_csv_rows),
        cmocka_unit_test(test_csv_nul),
        cmocka_unit_test(test_csv_says),
        cmocka_unit_test(test_who_is_everyone),
        cmocka_unit_test(test_ranks_meet),
        cmocka_unit_test(test_a_rank_is_missing),
        cmocka_unit_test(test_a_rank_differs),
        cmocka_unit_test(test_threads_are_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
