/* What the guard looks at beside sizes and modes: what users may leave out, and what a row keeps.
 */
#include "tests/job/play.h"
#include "tuner/base/rng.h"

#include <stdio.h>
#include <string.h>

#define CHANNELS "NCCL_MIN_NCHANNELS=16"

/* More channels cost 4 and 8 KiB, and bring something from there on. */
static double channels_cost_8k(const struct world_call *c)
{
    uint64_t bytes = c->step->m.cs.bytes;
    return c->x.channels <= 2 ? 1 : bytes < (12 << 10) ? 1.3 : 0.7;
}

/* A size that pays for the table's variables has a row that gives it back what it was: it is kept,
 * and not called faster. */
static void test_a_size_is_kept(void **state)
{
    unsigned kept = 0;
    (void)state;

    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct play p = {.spec = play_spec("256:64M", seed)};
        (void)snprintf(p.spec.settings[1], NT_SETTING_LEN, "%s", CHANNELS);
        p.spec.nsettings = 2;
        world_init(&p.w, seed);
        p.w.factor = channels_cost_8k;
        play(&p);
        assert_int_equal(p.rc, 0);
        play_never_worse(&p);
        assert_string_equal(p.r->table_vars, CHANNELS);
        for (size_t i = 0; i < p.r->nclasses; i++) {
            const struct nt_class_result *c = &p.r->classes[i];
            kept += c->cs.bytes == 8 << 10 && c->kept && c->call.channels > 0;
        }
        play_done(&p);
    }
    assert_int_equal(kept, 4 * 2); /* in both modes */
}

/* Eight calls in a group are another matter, whatever a row says of one of them. */
static double wide_costs_groups(const struct world_call *c)
{
    bool wide = strstr(c->step->vars, CHANNELS) != NULL;
    return !wide ? 1 : (c->step->m.flags & NT_M_GROUP8) != 0 ? 3 : 0.7;
}

static uint8_t no_group_is_called(const struct world_call *c)
{
    return (c->step->m.flags & NT_M_GROUP8) != 0 ? NT_ST_CRASHED : NT_ST_OK;
}

/* What costs groups of calls is of no matter where nobody makes them: none is
 * measured. */
static void test_no_groups(void **state)
{
    struct play p = {.spec = play_spec("256:64M", 2)};
    (void)state;

    (void)snprintf(p.spec.settings[1], NT_SETTING_LEN, "%s", CHANNELS);
    p.spec.nsettings = 2;
    p.spec.no_groups = true;
    world_init(&p.w, 2);
    p.w.factor = wide_costs_groups;
    p.w.fault = no_group_is_called;
    play(&p);
    assert_int_equal(p.rc, 0);
    assert_string_equal(p.r->table_vars, CHANNELS);
    play_done(&p);
}

static double tree_slow_beside_compute(const struct world_call *c)
{
    return c->x.algo == NT_TREE && (c->step->m.flags & NT_M_BUSY) != 0 ? 4 : 1;
}

/* … and so what is slow beside compute, where nothing computes beside a call. */
static void test_no_overlap(void **state)
{
    (void)state;
    for (unsigned told = 0; told < 2; told++) {
        struct play p = {.spec = play_spec("256:64M", 3)};
        const struct nt_class_result *c;
        p.spec.no_overlap = told > 0;
        world_init(&p.w, 3);
        p.w.factor = tree_slow_beside_compute;
        play(&p);
        assert_int_equal(p.rc, 0);
        c = play_published(&p, 512 << 10, NT_GRAPH);
        assert_int_equal(c != NULL && c->call.algo == NT_TREE, told > 0);
        play_done(&p);
    }
}

/* Trees take a fifth less, beside compute as much, but gangs differ by more there than its pairs
 * can tell. */
static double tree_in_doubt(const struct world_call *c)
{
    bool tree = c->x.algo == NT_TREE;

    if ((c->step->m.flags & NT_M_BUSY) == 0) {
        return tree ? 0.8 : 1;
    }
    return (tree ? 1.002 : 1) *
           (1 + 0.06 * ((double)(nt_mix(c->step->gang, 3) % 1000) / 1000 - 0.5));
}

/* Here 4 % more. */
static double tree_too_slow(const struct world_call *c)
{
    bool busy = (c->step->m.flags & NT_M_BUSY) != 0;
    return tree_in_doubt(c) * (busy && c->x.algo == NT_TREE ? 1.04 : 1);
}

/* What the guard cannot tell within its pairs is looked at for longer, and what is slower falls. */
static void test_a_longer_look(void **state)
{
    unsigned longer = 0, published = 0, slow = 0;
    (void)state;

    for (uint64_t seed = 1; seed <= 12; seed++) {
        for (int bad = 0; bad < 2; bad++) {
            struct play p = {.spec = play_spec("256:64M", seed)};
            const struct nt_class_result *c;
            bool there;
            world_init(&p.w, seed);
            p.w.null = true;
            p.w.factor = bad ? tree_too_slow : tree_in_doubt;
            play(&p);
            assert_int_equal(p.rc, 0);
            c = play_published(&p, 512 << 10, NT_GRAPH);
            there = c != NULL && c->call.algo == NT_TREE;
            longer += bad == 0 && p.r->further > 0;
            published += bad == 0 && there;
            slow += bad == 1 && there;
            play_done(&p);
        }
    }
    print_message("%u of 12 looked at for longer, %u published, %u slow ones\n", longer, published,
                  slow);
    assert_true(longer >= 3 && published >= 9);
    assert_int_equal(slow, 0);
}

static unsigned may_lose; /* gangs of the longer look, from its first */
static struct {
    uint64_t last; /* gang of the default that was asked last, and how many there were */
    unsigned gangs, pairs;
} looked;

/* Gangs of the default after those of the plan's pairs are lost in their first call: the table's
 * would condemn what they ran. */
static uint8_t lost_in_a_longer_look(const struct world_call *c)
{
    if (c->step->stage != NT_CONFIRM || c->step->arm != NT_ARM_DEFAULT) {
        return NT_ST_OK;
    }
    looked.gangs += c->step->gang != looked.last;
    looked.last = c->step->gang;
    return looked.gangs > looked.pairs && looked.gangs <= looked.pairs + may_lose ? NT_ST_TIMEOUT
                                                                                  : NT_ST_OK;
}

/* A gang lost in it is started again. When too many are, what the plan's own pairs say stands: the
 * doubt too. */
static void test_a_longer_look_that_loses_gangs(void **state)
{
    unsigned longer[2] = {0}, published[2] = {0};
    (void)state;

    for (uint64_t seed = 1; seed <= 12; seed++) {
        for (int all = 0; all < 2; all++) {
            struct play p = {.spec = play_spec("256:64M", seed)};
            const struct nt_class_result *c;
            world_init(&p.w, seed);
            p.w.null = true;
            p.w.factor = tree_in_doubt;
            p.w.fault = lost_in_a_longer_look;
            may_lose = all ? 1000 : 1;
            looked.last = looked.gangs = 0;
            looked.pairs = p.spec.pairs;
            play(&p);
            assert_int_equal(p.rc, 0);
            c = play_published(&p, 512 << 10, NT_GRAPH);
            if (looked.gangs > looked.pairs) {
                longer[all]++;
                published[all] += c != NULL && c->call.algo == NT_TREE;
                assert_int_equal(p.r->further, all ? 0 : p.spec.pairs);
            }
            play_done(&p);
        }
    }
    print_message("one lost: %u of %u published; all: %u of %u\n", published[0], longer[0],
                  published[1], longer[1]);
    assert_true(longer[0] >= 3 && longer[1] == longer[0]);
    assert_true(published[1] < published[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_size_is_kept), cmocka_unit_test(test_no_groups),
        cmocka_unit_test(test_no_overlap), cmocka_unit_test(test_a_longer_look),
        cmocka_unit_test(test_a_longer_look_that_loses_gangs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
