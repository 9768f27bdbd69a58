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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_size_is_kept), cmocka_unit_test(test_no_groups),
        cmocka_unit_test(test_no_overlap), cmocka_unit_test(test_a_longer_look)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
