/* Jobs over collectives other than all_reduce in the made-up machine: how they are timed, what may
 * be asked of them, and which types and placements are left out because they do not exist. */
#include "profiles/format/limits.h"
#include "tests/job/play.h"

#include <string.h>

/* What the machine saw, of each collective. */
static struct seen {
    uint64_t calls, asked, in_place, closed, gated_fp8, fp8;
} seen[NT_COLL_COUNT];

static uint8_t look(const struct world_call *c)
{
    const struct nt_measure *m = &c->step->m;
    struct seen *s = &seen[m->cs.coll];

    s->calls++;
    s->asked += m->call.algo >= 0;
    s->in_place += m->cs.place == NT_IN_PLACE;
    s->closed += (m->flags & NT_M_BARRIER) != 0;
    s->fp8 += m->cs.dtype == NT_FP8;
    s->gated_fp8 += m->cs.dtype == NT_FP8 && m->verify != NT_VERIFY_NO && m->call.algo >= 0;
    return NT_ST_OK;
}

static struct play job(const bool *colls, uint64_t seed)
{
    struct play p = {.spec = play_spec("1K:64M", seed)};

    memset(seen, 0, sizeof(seen));
    memcpy(p.spec.colls, colls, sizeof(p.spec.colls));
    world_init(&p.w, seed);
    p.w.fault = look;
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

/* … and no slower for the collectives that are not tuned, which must not lose by it. */
static double sixteen_is_fast(const struct world_call *c)
{
    bool sixteen = strstr(c->step->vars, "NCHANNELS=16") != NULL;
    return !sixteen ? 1 : c->step->m.cs.coll >= NT_TUNER_COLLS ? 0.5 : 0.9;
}

/* NCCL asks no tuner about them: variables only, never a row, never in place. */
static void test_pairs(void **state)
{
    static const bool colls[NT_COLL_COUNT] = {[NT_ALLTOALL] = true, [NT_SENDRECV] = true};
    (void)state;

    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct play p = job(colls, seed);
        unsigned published = 0;
        (void)snprintf(p.spec.settings[1], NT_SETTING_LEN, "NCCL_MIN_NCHANNELS=16");
        p.spec.nsettings = 2;
        p.w.factor = sixteen_is_fast;
        run(&p);
        for (int c = NT_ALLTOALL; c <= NT_SENDRECV; c++) {
            assert_true(seen[c].calls > 0);
            assert_int_equal(seen[c].asked + seen[c].in_place + seen[c].closed, 0);
        }
        assert_int_equal(p.r->nrows, 0);
        assert_true(p.r->static_present || p.r->table_present);
        for (size_t i = 0; i < p.r->nclasses; i++) {
            const struct nt_class_result *k = &p.r->classes[i];
            assert_true(k->call.algo < 0 && !k->in_row);
            published += k->published && k->gain > 0.3;
        }
        assert_true(published >= 20);
        play_done(&p);
    }
}

/* NCCL's own choice is the wrong one from 256 KiB to 1 MiB. */
static double ll_is_fast(const struct world_call *c)
{
    return c->x.proto == NT_LL && c->x.algo == NT_RING ? 0.4 : 1;
}

/* Ranks of these do not wait for each other: whoever times them closes with a barrier. The machine
 * offers a tree for all of them, of which no row may be made: NCCL has no such kernel. */
static void test_closing(void **state)
{
    static const bool colls[NT_COLL_COUNT] = {
        [NT_BROADCAST] = true, [NT_REDUCE] = true, [NT_ALL_GATHER] = true};
    struct play p = job(colls, 1);
    bool rows[NT_COLL_COUNT] = {0};
    (void)state;

    p.w.factor = ll_is_fast;
    run(&p);
    for (int c = 0; c < NT_COLL_COUNT; c++) {
        bool closes = c == NT_BROADCAST || c == NT_REDUCE;
        assert_true((seen[c].calls > 0) == colls[c]);
        assert_int_equal(seen[c].closed, closes ? seen[c].calls : 0);
    }
    for (size_t i = 0; i < p.r->nrows; i++) {
        const struct nt_row_result *row = &p.r->rows[i];
        assert_true(nt_kernel_exists(row->coll, row->call.algo, row->call.proto));
        rows[row->coll] = true;
    }
    assert_true(rows[NT_BROADCAST] && rows[NT_REDUCE] && rows[NT_ALL_GATHER]);
    play_done(&p);
}

static unsigned gangs;

static uint8_t count_start(const struct nt_plan_gang *g, uint64_t *ret_memory)
{
    (void)g;
    (void)ret_memory;
    gangs++;
    return NT_ST_OK;
}

static unsigned gangs_of(const bool *colls)
{
    struct play p = job(colls, 1);

    gangs = 0;
    p.w.start = count_start;
    run(&p);
    play_done(&p);
    return gangs;
}

/* Three collectives in one job need no more gangs than one, but for the search's own further looks.
 */
static void test_shared_gangs(void **state)
{
    static const bool
        one[NT_COLL_COUNT] = {[NT_ALL_REDUCE] = true},
        three[NT_COLL_COUNT] = {
            [NT_ALL_REDUCE] = true, [NT_ALL_GATHER] = true, [NT_REDUCE_SCATTER] = true};
    unsigned a = gangs_of(one), b = gangs_of(three);
    (void)state;

    if (b > a + a / 4) {
        fail_msg("%u gangs for one collective, %u for three", a, b);
    }
}

/* A type that is not there is left out, and said; it costs no row. */
static void test_fp8(void **state)
{
    static const bool colls[NT_COLL_COUNT] = {[NT_ALL_REDUCE] = true};
    size_t rows[2];
    (void)state;

    for (unsigned missing = 0; missing < 2; missing++) {
        struct play p = job(colls, 1);
        bool said = false;
        p.w.no_fp8 = missing != 0;
        p.spec.dtypes[NT_FP8] = p.spec.dtypes[NT_FP16] = p.spec.dtypes[NT_INT32] = true;
        run(&p);
        for (size_t i = 0; i < p.r->nnot_checked; i++) {
            said = said || strstr(p.r->not_checked[i].text, "all_reduce of fp8") != NULL;
        }
        assert_int_equal(said, missing);
        assert_true((seen[NT_ALL_REDUCE].gated_fp8 > 0) == !missing);
        assert_true(!missing ||
                    seen[NT_ALL_REDUCE].fp8 == 0); /* the look itself is answered before */
        rows[missing] = p.r->nrows;
        play_done(&p);
    }
    assert_true(rows[0] > 0 && rows[0] == rows[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_closing),
        cmocka_unit_test(test_shared_gangs),
        cmocka_unit_test(test_fp8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
