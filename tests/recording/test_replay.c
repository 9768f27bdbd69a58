#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/recording/world.h"

enum { GANGS = 4000 };

static struct nt_recording *rec;
static const struct nt_call default_call = NT_CALL_DEFAULT,
                            ring7 = {NT_RING, NT_LL, 7, 0, NT_BE_NCCL},
                            ring8 = {NT_RING, NT_LL, 8, 0, NT_BE_NCCL},
                            ring9 = {NT_RING, NT_LL, 9, 0, NT_BE_NCCL},
                            nvls = {NT_NVLS, NT_SIMPLE, 0, 0, NT_BE_NCCL},
                            tree2 = {NT_TREE, NT_SIMPLE, 2, 0, NT_BE_NCCL},
                            pat = {NT_PAT, NT_SIMPLE, 1, 0, NT_BE_NCCL};
static const struct nt_case kilo = {.bytes = 1024, .coll = NT_ALL_REDUCE};

static int load(void **state)
{
    struct nt_buf b;
    struct nt_err e = {0};
    int rc;
    (void)state;
    nt_buf_init(&b, 1 << 20);
    world_text(&b);
    rc = nt_recording_parse(nt_buf_str(&b), b.len, "world", &rec, &e);
    if (rc != 0) {
        print_error("%s\n", e.msg);
    }
    nt_buf_done(&b);
    return rc;
}

static int unload(void **state)
{
    (void)state;
    nt_recording_free(rec);
    return 0;
}

static struct nt_measure ask(uint64_t id, const struct nt_call *call, unsigned samples)
{
    return (struct nt_measure){
        .id = id, .cs = kilo, .call = *call, .samples = samples, .warmup = 2};
}

static struct nt_replay gang_of(uint64_t seed, uint64_t gang, bool null, enum nt_half half)
{
    struct nt_replay p;
    assert_int_equal(nt_replay_init(&p, rec, seed, null, half, gang, NULL, 0, NULL), 0);
    return p;
}

static struct nt_result draw(uint64_t seed, uint64_t gang, const struct nt_measure *m)
{
    struct nt_replay p = gang_of(seed, gang, false, NT_ALL_GANGS);
    struct nt_result r;
    nt_replay_measure(&p, m, &r);
    return r;
}

static void test_cells(void **state)
{
    static const struct {
        const struct nt_call *call;
        uint32_t flags;
        const char *process;
        size_t blocks; /* 0: not there */
    } rows[] = {{&default_call, 0, "", 8},
                {&default_call, NT_M_BUSY, "", 4},
                {&default_call, NT_M_READBACK, "", 8}, /* no part of the key */
                {&default_call, NT_M_GROUP8, "", 0},
                {&default_call, 0, "NCCL_BUFFSIZE=1", 1},
                {&default_call, 0, "NCCL_BUFFSIZE=2", 0},
                {&ring8, 0, "", 8}, /* with its alias */
                {&ring9, 0, "", 8},
                {&nvls, 0, "", 4},
                {&tree2, 0, "", 4}, /* with the gang in which it crashed */
                {&ring7, 0, "", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        long cell = nt_recording_find(rec, &kilo, rows[i].flags, rows[i].process, rows[i].call);
        size_t blocks = cell < 0 ? 0 : nt_recording_cell(rec, (size_t)cell).count;
        if (blocks != rows[i].blocks) {
            fail_msg("row %zu: %zu blocks", i, blocks);
        }
    }
    assert_int_equal(nt_recording_find(rec, &kilo, 0, "", &ring8),
                     nt_recording_find(rec, &kilo, 0, "", &ring9));
}

static void test_same_world_again(void **state)
{
    struct nt_measure m = ask(17, &default_call, 50), other = ask(18, &default_call, 50);
    struct nt_result a = draw(1, 5, &m), b = draw(1, 5, &m), c = draw(1, 5, &other),
                     d = draw(2, 5, &m);
    (void)state;
    assert_int_equal(a.status, NT_ST_OK);
    assert_int_equal(a.count, 50);
    assert_memory_equal(a.ns, b.ns, 50 * sizeof(a.ns[0]));
    assert_int_equal(a.elapsed_ns, b.elapsed_ns);
    assert_memory_not_equal(a.ns, c.ns, 50 * sizeof(a.ns[0]));
    assert_memory_not_equal(a.ns, d.ns, 50 * sizeof(a.ns[0]));
    free(a.ns);
    free(b.ns);
    free(c.ns);
    free(d.ns);
}

/* One gang: always the same recorded one, for all cells that it holds; over gangs, all of them
 * equally often; within, all samples. */
static void test_two_levels(void **state)
{
    unsigned seen[5] = {0}, values[200] = {0};
    (void)state;
    for (uint64_t g = 0; g < GANGS; g++) {
        struct nt_measure m = ask(g, &default_call, 4), o = ask(g + 1, &ring8, 4);
        struct nt_result a = draw(3, g, &m), b = draw(3, g, &o);
        unsigned of = a.ns[0] / 1000;
        assert_in_range(of, 1, 4);
        seen[of]++;
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(a.ns[i] / 1000, of);
            assert_int_equal(b.ns[i] / 1000, of);
            assert_in_range(b.ns[i] % 1000, 501, 604);
            values[a.ns[i] % 1000]++;
        }
        free(a.ns);
        free(b.ns);
    }
    for (unsigned of = 1; of <= 4; of++) { /* binomial, sd 27: six of them */
        assert_in_range(seen[of], GANGS / 4 - 165, GANGS / 4 + 165);
    }
    for (unsigned i = 1; i <= 4; i++) { /* both blocks; sd 42 */
        assert_in_range(values[i], GANGS / 2 - 255, GANGS / 2 + 255);
        assert_in_range(values[100 + i], GANGS / 2 - 255, GANGS / 2 + 255);
    }
}

/* None comes again before all did, and which is first hangs on the seed. */
static void test_gangs_take_turns(void **state)
{
    unsigned first[5] = {0};
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        unsigned seen = 0;
        for (uint64_t g = 0; g < 4; g++) {
            struct nt_measure m = ask(g, &default_call, 1);
            struct nt_result a = draw(seed, seed + g, &m);
            seen |= 1U << a.ns[0] / 1000;
            first[a.ns[0] / 1000] += g == 0;
            free(a.ns);
        }
        assert_int_equal(seen, 0x1e); /* gangs 1 to 4 */
    }
    for (unsigned of = 1; of <= 4; of++) { /* binomial, sd 6 */
        assert_in_range(first[of], 20, 80);
    }
}

/* The recording, but that ring/ll/8/8 has no second gang: its samples are the first's. */
static struct nt_recording *without_second_gang(void)
{
    static const char *const calls[] = {"ring/ll/8/0,ring/ll/8/8,", "ring/ll/9/0,ring/ll/8/8,"};
    struct nt_recording *ret = NULL;
    struct nt_err e = {0};
    struct nt_buf b;

    nt_buf_init(&b, 1 << 20);
    world_text(&b);
    for (size_t i = 0; i < 2; i++) {
        char line[64], *at;
        (void)snprintf(line, sizeof(line), "%s2,", calls[i]);
        at = strstr(nt_buf_str(&b), line);
        assert_non_null(at);
        at[strlen(calls[i])] = '1';
    }
    assert_int_equal(nt_recording_parse(nt_buf_str(&b), b.len, "world", &ret, &e), 0);
    nt_buf_done(&b);
    return ret;
}

/* A cell that fewer gangs have stays with the others wherever it can. */
static void test_stays_together(void **state)
{
    unsigned together = 0;
    struct nt_recording *all = rec;
    (void)state;

    rec = without_second_gang();
    for (uint64_t g = 0; g < GANGS; g++) {
        struct nt_measure m = ask(g, &default_call, 4), o = ask(g, &ring8, 4);
        struct nt_result a = draw(3, g, &m), c = draw(3, g, &o);
        unsigned of = c.ns[0] / 1000 == 2 ? 1 : c.ns[0] / 1000; /* its samples are gang 1's now */
        together += a.ns[0] / 1000 == of || a.ns[0] / 1000 == 2;
        free(a.ns);
        free(c.ns);
    }
    nt_recording_free(rec);
    rec = all;
    assert_int_equal(together, GANGS);
}

/* Asked for its own gang, a cell that lacks it says so, and still what it runs. */
static void test_its_own_gang(void **state)
{
    unsigned lacks = 0;
    struct nt_recording *all = rec;
    (void)state;

    rec = without_second_gang();
    for (uint64_t g = 0; g < 40; g++) {
        struct nt_measure m = ask(g, &default_call, 4), o = ask(g, &ring8, 4);
        struct nt_result a = draw(3, g, &m), c;
        o.flags = NT_M_OWN | NT_M_READBACK;
        c = draw(3, g, &o);
        assert_int_equal(c.status, a.ns[0] / 1000 == 2 ? NT_ST_NOT_RECORDED : NT_ST_OK);
        assert_int_equal(c.executed.algo, NT_RING);
        lacks += c.status != NT_ST_OK;
        free(a.ns);
        free(c.ns);
    }
    assert_int_equal(lacks, 10); /* one in four */
    nt_recording_free(rec);
    rec = all;
}

static void test_failures_replay(void **state)
{
    struct nt_measure m = ask(1, &nvls, 4), w = ask(1, &pat, 4);
    struct nt_result r = draw(1, 1, &m);
    unsigned crashed = 0;
    (void)state;
    assert_int_equal(r.status, NT_ST_UNAVAILABLE);
    assert_int_equal(r.count, 0);
    assert_string_equal(r.error, "words");
    r = draw(1, 1, &w);
    assert_int_equal(r.status, NT_ST_WRONG);
    assert_int_equal(r.wrong, 3);
    assert_int_equal(r.elapsed_ns, 9000);
    for (uint64_t g = 0; g < GANGS; g++) {
        m = ask(g, &tree2, 4);
        r = draw(1, g, &m);
        crashed += r.status == NT_ST_CRASHED;
        assert_true(r.status == NT_ST_CRASHED || r.status == NT_ST_OK);
        free(r.ns);
    }
    assert_in_range(crashed, GANGS / 4 - 165, GANGS / 4 + 165);
}

static void test_never_invented(void **state)
{
    static char name[] = "NCCL_BUFFSIZE", one[] = "1", two[] = "2";
    struct nt_var v = {name, two};
    struct nt_measure m = ask(1, &ring7, 4);
    struct nt_replay p;
    struct nt_result r = draw(1, 1, &m);
    (void)state;
    assert_int_equal(r.status, NT_ST_NOT_RECORDED);
    assert_non_null(strstr(r.error, "not in this recording"));
    m = ask(1, &default_call, 4);
    m.cs.mode = NT_GRAPH;
    assert_int_equal(draw(1, 1, &m).status, NT_ST_NOT_RECORDED);
    m.cs = (struct nt_case){.bytes = 2048, .coll = NT_ALL_REDUCE}; /* executed, never timed */
    assert_int_equal(draw(1, 1, &m).status, NT_ST_NOT_RECORDED);
    m.samples = 0;
    assert_int_equal(draw(1, 1, &m).status, NT_ST_OK);
    m = ask(1, &default_call, 4);
    assert_int_equal(nt_replay_init(&p, rec, 1, false, NT_ALL_GANGS, 1, &v, 1, NULL), 0);
    nt_replay_measure(&p, &m, &r);
    assert_int_equal(r.status, NT_ST_NOT_RECORDED);
    assert_null(nt_replay_start(&p)); /* the start of such a gang neither */
    v.value = one;
    assert_int_equal(nt_replay_init(&p, rec, 1, false, NT_ALL_GANGS, 1, &v, 1, NULL), 0);
    nt_replay_measure(&p, &m, &r);
    assert_int_equal(r.status, NT_ST_OK);
    assert_in_range(r.ns[0], 7901, 7904);
    free(r.ns);
}

static void test_null(void **state)
{
    struct nt_replay p = gang_of(1, 9, true, NT_ALL_GANGS);
    struct nt_measure m = ask(4, &ring8, 40);
    struct nt_result r;
    (void)state;
    m.flags = NT_M_READBACK;
    nt_replay_measure(&p, &m, &r);
    assert_int_equal(r.status, NT_ST_OK);
    assert_int_equal(r.executed.algo, NT_RING); /* still what it is */
    for (unsigned i = 0; i < 40; i++) {
        assert_in_range(r.ns[i] % 1000, 1, 104); /* with the default's times */
    }
    free(r.ns);
    m = ask(4, &nvls, 4);
    nt_replay_measure(&p, &m, &r);
    assert_int_equal(r.status, NT_ST_UNAVAILABLE);
    m = ask(4, &ring8, 4);
    m.cs.bytes = 4096;
    nt_replay_measure(&p, &m, &r);
    assert_int_equal(r.status, NT_ST_NOT_RECORDED);
    assert_non_null(strstr(r.error, "no default of this case"));
    m = ask(4, &ring8, 4); /* what is no collective must not draw from one */
    m.flags = NT_M_COPY;
    nt_replay_measure(&p, &m, &r);
    assert_int_equal(r.status, NT_ST_NOT_RECORDED);
}

static void test_halves(void **state)
{
    (void)state;
    for (uint64_t g = 0; g < 100; g++) {
        struct nt_measure m = ask(g, &default_call, 1);
        struct nt_replay even = gang_of(1, g, false, NT_EVEN_GANGS),
                         odd = gang_of(1, g, false, NT_ODD_GANGS);
        struct nt_result a, b;
        nt_replay_measure(&even, &m, &a);
        nt_replay_measure(&odd, &m, &b);
        assert_int_equal(a.ns[0] / 1000 % 2, 1); /* gangs 1 and 3 are at even places */
        assert_int_equal(b.ns[0] / 1000 % 2, 0);
        free(a.ns);
        free(b.ns);
    }
}

static void test_what_it_took(void **state)
{
    struct nt_replay p = gang_of(1, 9, false, NT_ALL_GANGS);
    struct nt_measure m = ask(4, &default_call, 4);
    struct nt_result first, second;
    double sum = 0;
    (void)state;
    nt_replay_measure(&p, &m, &first);
    nt_replay_measure(&p, &m, &second);
    for (unsigned i = 0; i < 4; i++) {
        sum += first.ns[i];
    }
    /* Recorded overhead 10000, four samples and two more for warm-up; connecting 700 once. */
    assert_in_range(second.elapsed_ns, 10000 + (uint64_t)(sum * 1.5) - 3,
                    10000 + (uint64_t)(sum * 1.5) + 3);
    assert_int_equal(first.elapsed_ns, second.elapsed_ns + 700);
    assert_int_equal(first.connect_ns, 700);
    assert_int_equal(second.connect_ns, 0);
    assert_int_equal(first.memory_bytes, 100 + first.ns[0] / 1000);
    free(first.ns);
    free(second.ns);
}

static void test_start_and_cells(void **state)
{
    struct nt_replay p = gang_of(1, 9, false, NT_ALL_GANGS);
    const struct nt_recorded_gang *g = nt_replay_start(&p);
    struct nt_cells c;
    (void)state;
    assert_non_null(g);
    assert_int_equal(g->start_ns, 5000 + g->gang);
    nt_replay_cells(&p, &kilo, &c);
    assert_true(c.asked && c.cost[0][0] == 1 && c.cost[NT_PAT][NT_LL128] == 20 &&
                c.cost[NT_PAT][NT_SIMPLE] < 0);
    nt_replay_cells(&p, &(struct nt_case){.bytes = 1}, &c);
    assert_true(!c.asked && c.cost[0][0] < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cells),
                                       cmocka_unit_test(test_same_world_again),
                                       cmocka_unit_test(test_two_levels),
                                       cmocka_unit_test(test_gangs_take_turns),
                                       cmocka_unit_test(test_stays_together),
                                       cmocka_unit_test(test_its_own_gang),
                                       cmocka_unit_test(test_failures_replay),
                                       cmocka_unit_test(test_never_invented),
                                       cmocka_unit_test(test_null),
                                       cmocka_unit_test(test_halves),
                                       cmocka_unit_test(test_what_it_took),
                                       cmocka_unit_test(test_start_and_cells)};
    return cmocka_run_group_tests(tests, load, unload);
}
