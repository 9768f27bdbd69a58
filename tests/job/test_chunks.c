/* Chunk sizes: which may be asked for, and whole jobs on machines whose NCCL lets a tuner choose.
 */
#include "tests/job/play.h"
#include "tuner/job/chunks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OWN = 1 << 20, BEST = OWN / 4 };
#define LADDER "1K,128K,4M,16M"

/* ------------------------------------------------------------------ what is legal and can matter
 */

static void test_rules(void **state)
{
    static const struct {
        const char *name;
        struct nt_chunked call;
        uint32_t from, smaller, larger;
    } rows[] = {
        {"a ring's own is all that fits",
         {NT_ALL_REDUCE, NT_RING, NT_SIMPLE, 1 << 30, 8, 8},
         2 << 20,
         1 << 20,
         0},
        {"and so on", {NT_ALL_REDUCE, NT_RING, NT_SIMPLE, 1 << 30, 8, 8}, 1 << 20, 512 << 10, 0},
        {"a rank's part of a channel is less: the first that is smaller",
         {NT_ALL_REDUCE, NT_RING, NT_SIMPLE, 16 << 20, 8, 8},
         2 << 20,
         128 << 10,
         0},
        {"broadcast is passed on whole",
         {NT_BROADCAST, NT_RING, NT_SIMPLE, 16 << 20, 8, 8},
         512 << 10,
         256 << 10,
         0},
        {"a small call is one chunk",
         {NT_ALL_REDUCE, NT_RING, NT_SIMPLE, 64 << 10, 2, 4},
         OWN,
         0,
         0},
        {"no smaller than steps are worth",
         {NT_ALL_REDUCE, NT_TREE, NT_SIMPLE, 1 << 30, 8, 8},
         16 << 10,
         0,
         0},
        {"whole grains of LL128",
         {NT_ALL_REDUCE, NT_RING, NT_LL128, 1 << 30, 8, 8},
         576000,
         288000,
         0},
        {"a tree's LL128 takes less by itself",
         {NT_ALL_REDUCE, NT_TREE, NT_LL128, 1 << 30, 8, 8},
         72000,
         34560,
         144000},
        {"… up to its buffer",
         {NT_ALL_REDUCE, NT_TREE, NT_LL128, 1 << 30, 8, 8},
         576000,
         288000,
         0},
        {"… where the call is that long",
         {NT_ALL_REDUCE, NT_TREE, NT_LL128, 1 << 20, 16, 8},
         72000,
         34560,
         0},
        {"buffers of NVLS are made for its own",
         {NT_ALL_REDUCE, NT_NVLS, NT_SIMPLE, 1 << 30, 8, 8},
         128 << 10,
         64 << 10,
         0},
        {"PAT takes less by itself",
         {NT_ALL_GATHER, NT_PAT, NT_SIMPLE, 1 << 30, 8, 8},
         64 << 10,
         32 << 10,
         128 << 10},
        {"below 1 MiB", {NT_ALL_REDUCE, NT_TREE, NT_SIMPLE, (1 << 20) - 1, 2, 2}, OWN, 0, 0},
        {"from 1 MiB on", {NT_ALL_REDUCE, NT_TREE, NT_SIMPLE, 1 << 20, 2, 2}, OWN, 256 << 10, 0},
        {"LL", {NT_ALL_REDUCE, NT_RING, NT_LL, 1 << 30, 8, 8}, 32 << 10, 0, 0},
        {"CollNet", {NT_ALL_REDUCE, NT_COLLNET_DIRECT, NT_SIMPLE, 1 << 30, 8, 8}, 128 << 10, 0, 0},
        {"not known", {NT_ALL_REDUCE, -1, -1, 1 << 30, 8, 8}, 128 << 10, 0, 0},
        {"no channels", {NT_ALL_REDUCE, NT_RING, NT_SIMPLE, 1 << 30, 0, 8}, OWN, 0, 0},
        {"no chunk", {NT_ALL_REDUCE, NT_RING, NT_SIMPLE, 1 << 30, 8, 8}, 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t s = nt_chunk_smaller(&rows[i].call, rows[i].from);
        uint32_t l = nt_chunk_larger(&rows[i].call, rows[i].from);
        if (s != rows[i].smaller || l != rows[i].larger) {
            fail_msg("%s: %u and %u", rows[i].name, s, l);
        }
    }
}

/* ------------------------------------------------------------------ whole jobs */

static unsigned asked, delivered; /* calls with a chunk, in the search and as a table has them */
static uint32_t smallest;

static double count(const struct world_call *c)
{
    if (c->call.chunk_bytes > 0 && c->step->arm == NT_ARM_SEARCH) {
        asked++;
        smallest = c->call.chunk_bytes < smallest ? c->call.chunk_bytes : smallest;
    }
    delivered += c->call.chunk_bytes > 0 && c->step->arm == NT_ARM_TABLE;
    return 1;
}

static bool chunked(const struct world_call *c)
{
    return c->call.chunk_bytes > 0;
}

static double no_gain_delivered(const struct world_call *c)
{
    (void)count(c);
    return chunked(c) && c->step->arm == NT_ARM_TABLE ? 1.7 : 1;
}

static double all_worse(const struct world_call *c)
{
    (void)count(c);
    return chunked(c) ? 2 : 1;
}

static uint8_t wrong(const struct world_call *c)
{
    asked += chunked(c);
    return chunked(c) && c->step->m.verify != NT_VERIFY_NO ? NT_ST_WRONG : NT_ST_OK;
}

static uint8_t wrong_in_place(const struct world_call *c)
{
    bool looked = c->step->m.verify != NT_VERIFY_NO && c->step->m.cs.place == NT_IN_PLACE;
    return looked && chunked(c) ? NT_ST_WRONG : NT_ST_OK;
}

static uint8_t wrong_delivered(const struct world_call *c)
{
    bool looked = c->step->m.verify != NT_VERIFY_NO && c->step->arm == NT_ARM_TABLE;
    return looked && chunked(c) ? NT_ST_WRONG : NT_ST_OK;
}

static uint8_t hangs(const struct world_call *c)
{
    asked += chunked(c);
    return chunked(c) ? NT_ST_TIMEOUT : NT_ST_OK;
}

static uint8_t hangs_in_graph(const struct world_call *c)
{
    return chunked(c) && c->step->m.cs.mode == NT_GRAPH ? NT_ST_TIMEOUT : NT_ST_OK;
}

static uint8_t refused(const struct world_call *c)
{
    asked += chunked(c);
    return chunked(c) ? NT_ST_UNAVAILABLE : NT_ST_OK;
}

static struct play job(uint32_t own, uint64_t seed)
{
    struct play p = {.spec = play_spec(LADDER, seed)};
    world_init(&p.w, seed);
    p.w.own_chunk = own;
    p.w.factor = count;
    asked = delivered = 0;
    smallest = UINT32_MAX;
    return p;
}

static void run(struct play *p)
{
    play(p);
    if (p->rc != 0) {
        fail_msg("%s", p->err.msg);
    }
    play_never_worse(p);
}

static size_t rows_with_chunk(const struct play *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->r->nrows; i++) {
        n += p->r->rows[i].call.chunk_bytes > 0;
    }
    return n;
}

/* Where chunks matter the best of them is found, confirmed and published; elsewhere none is asked
 * for, and nothing is lost of what is found there. */
static void test_found(void **state)
{
    static const uint64_t sizes[] = {4 << 20, 16 << 20};
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct play p = job(OWN, seed);
        run(&p);
        for (size_t i = 0; i < 2; i++) {
            for (int m = NT_EAGER; m <= NT_GRAPH; m += NT_GRAPH - NT_EAGER) {
                const struct nt_class_result *c = play_published(&p, sizes[i], (enum nt_mode)m);
                assert_non_null(c);
                assert_int_equal(c->call.algo, NT_RING);
                assert_int_equal(c->call.chunk_bytes, BEST);
                assert_true(c->gain > log(1.4));
            }
        }
        assert_non_null(play_published(&p, 128 << 10, NT_EAGER)); /* the tree */
        for (size_t i = 0; i < p.r->nrows; i++) {
            const struct nt_row_result *r = &p.r->rows[i];
            assert_true(r->call.chunk_bytes == 0 || r->max_bytes > (1 << 20));
        }
        assert_true(delivered > 0);
        play_done(&p);
    }
}

/* The walk: half, a fourth, and no further than that is better; each only at leaders. */
static void test_few_are_asked(void **state)
{
    struct play p = job(OWN, 3);
    (void)state;
    run(&p);
    assert_true(smallest >= BEST / 2);
    for (size_t i = 0; i < p.spec.nsizes * 2; i++) {
        const struct nt_found *f = nt_plan_found(p.plan, i);
        unsigned n = 0;
        for (size_t a = 0; a < f->narms; a++) {
            n += f->arms[a].call.chunk_bytes > 0;
            for (size_t b = 0; b < a; b++) { /* no two arms are one tuple */
                assert_false(nt_call_equal(&f->arms[a].call, &f->arms[b].call));
            }
        }
        assert_true(n <= 2 * 3);
        assert_true(f->cs.bytes >= (1 << 20) ? n > 0 : n == 0);
    }
    play_done(&p);
}

/* Whatever has no chunk of its own, or is in a hurry, is played as ever. */
static void test_none_is_asked(void **state)
{
    static const struct {
        uint32_t own;
        enum nt_effort effort;
    } rows[] = {{0, NT_STANDARD}, {0, NT_THOROUGH}, {OWN, NT_QUICK}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct play p = job(rows[i].own, 5), plain = job(0, 5);
        struct nt_buf a, b;
        p.spec.effort = plain.spec.effort = rows[i].effort;
        nt_buf_init(&a, 1 << 20);
        nt_buf_init(&b, 1 << 20);
        run(&p);
        assert_int_equal(asked, 0);
        run(&plain);
        play_text(p.r, &a);
        play_text(plain.r, &b);
        assert_string_equal(nt_buf_str(&a), nt_buf_str(&b));
        nt_buf_done(&a);
        nt_buf_done(&b);
        play_done(&p);
        play_done(&plain);
    }
}

/* What speaks against a chunk keeps it out, and nothing else. */
static void test_kept_out(void **state)
{
    static const struct {
        const char *name;
        double (*factor)(const struct world_call *c);
        uint8_t (*fault)(const struct world_call *c);
        unsigned most_asked; /* 0: any number */
        bool null;
    } rows[] = {
        {"wrong data", count, wrong, 0, false},
        {"wrong data in place", count, wrong_in_place, 0, false},
        {"wrong data as delivered", count, wrong_delivered, 0, false},
        {"a hang", NULL, hangs, 2, false},
        {"a hang in graphs", count, hangs_in_graph, 0, false},
        {"NCCL does not ask", NULL, refused, 2, false},
        {"no gain as delivered", no_gain_delivered, NULL, 0, false},
        {"no gain at all", all_worse, NULL, 0, false},
        {"no difference between calls", count, NULL, 0, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (uint64_t seed = 1; seed <= 4; seed++) {
            struct play p = job(OWN, seed);
            p.w.factor = rows[i].factor;
            p.w.fault = rows[i].fault;
            p.w.null = rows[i].null;
            run(&p);
            if (rows_with_chunk(&p) > 0 || asked == 0 ||
                (rows[i].most_asked > 0 && asked > rows[i].most_asked)) {
                fail_msg("%s, seed %u: %zu rows, %u asked", rows[i].name, (unsigned)seed,
                         rows_with_chunk(&p), asked);
            }
            if (!rows[i].null && play_published(&p, 128 << 10, NT_EAGER) == NULL) {
                fail_msg("%s, seed %u: the tree is gone", rows[i].name, (unsigned)seed);
            }
            play_done(&p);
        }
    }
}

/* Under variables that widen all calls, tuples with a chunk are found anew and go with them. */
static double wide_is_better(const struct world_call *c)
{
    (void)count(c);
    return strstr(c->step->vars, "NCCL_MIN_NCHANNELS=16") != NULL ? 0.6 : 1;
}

static void test_with_variables(void **state)
{
    struct play p = job(OWN, 2);
    struct nt_err err;
    (void)state;
    (void)snprintf(p.spec.settings[1], NT_SETTING_LEN, "NCCL_MIN_NCHANNELS=16");
    p.spec.nsettings = 2;
    assert_int_equal(nt_spec_finish(&p.spec, &err), 0);
    p.w.factor = wide_is_better;
    run(&p);
    assert_string_equal(p.r->table_vars, "NCCL_MIN_NCHANNELS=16");
    assert_true(rows_with_chunk(&p) > 0);
    play_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),         cmocka_unit_test(test_found),
        cmocka_unit_test(test_few_are_asked), cmocka_unit_test(test_none_is_asked),
        cmocka_unit_test(test_kept_out),      cmocka_unit_test(test_with_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
