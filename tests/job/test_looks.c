/* Nothing is timed before its data was looked at, and nothing is served that was not looked at in
 * every type, placement and mode: by the steps of whole jobs, whatever later stages would catch. */
#include "tests/job/play.h"
#include "tuner/base/rng.h"

#include <stdio.h>
#include <string.h>

enum { MARKS = 1 << 20 };
/* By what ran, its size and mode; and by type and placement too. */
static bool looked[MARKS], looked_whole[MARKS];
static unsigned timed, blind;

static uint32_t mark_of(const struct nt_case *cs, const struct nt_executed *x, uint8_t backend,
                        uint64_t what)
{
    uint64_t tuple =
        nt_mix(nt_mix((uint64_t)x->algo * 16 + (uint64_t)x->proto, x->channels), backend);
    return (uint32_t)(nt_mix(nt_mix(tuple, cs->bytes), what) % MARKS);
}

static uint64_t combo_of(unsigned mode, unsigned dtype, unsigned place)
{
    return 1 + mode + 8 * dtype + 64 * place;
}

static uint8_t watch(const struct world_call *c)
{
    const struct nt_measure *m = &c->step->m;
    bool ours = c->step->arm == NT_ARM_SEARCH || c->step->arm == NT_ARM_BACKENDS;
    uint32_t mode = mark_of(&m->cs, &c->x, c->call.backend, 1000 + m->cs.mode);
    uint32_t combo =
        mark_of(&m->cs, &c->x, c->call.backend, combo_of(m->cs.mode, m->cs.dtype, m->cs.place));

    if (!ours || (c->call.algo < 0 && c->call.backend == NT_BE_NCCL)) {
        return NT_ST_OK;
    }
    if (m->verify != NT_VERIFY_NO) {
        looked[mode] = true;
        looked_whole[combo] = true;
    }
    if (m->samples > 0) {
        timed++;
        blind += !looked[mode] || (c->call.backend != NT_BE_NCCL && m->verify != NT_VERIFY_BOTH);
    }
    return NT_ST_OK;
}

static struct play job(const char *backends)
{
    struct play p = {.spec = play_spec("1K,64K,512K,2M", 3)};
    struct nt_err err = {0};

    memset(looked, 0, sizeof(looked));
    memset(looked_whole, 0, sizeof(looked_whole));
    timed = blind = 0;
    if (nt_spec_set(backends, nt_backend_names, "backend", p.spec.backends, NT_BACKEND_COUNT,
                    &err) != 0) {
        fail_msg("%s", err.msg);
    }
    world_init(&p.w, 3);
    p.w.fault = watch;
    play(&p);
    if (p.rc != 0) {
        fail_msg("%s", p.err.msg);
    }
    return p;
}

static void test_nothing_is_timed_unseen(void **state)
{
    struct play p = job("nccl,nccl-symmetric,ipc");
    (void)state;
    assert_true(timed > 500);
    assert_int_equal(blind, 0);
    play_done(&p);
}

/* Every row at every size of the ladder in it. */
static void test_rows_were_looked_at_everywhere(void **state)
{
    struct play p = job("nccl");
    unsigned seen = 0;
    (void)state;
    assert_true(p.r->nrows > 0);
    for (size_t i = 0; i < p.r->nrows; i++) {
        const struct nt_row_result *r = &p.r->rows[i];
        for (size_t s = 0; s < p.spec.nsizes; s++) {
            struct nt_case cs = {.coll = r->coll, .bytes = p.spec.sizes[s]};
            struct nt_executed x = {0};
            if (cs.bytes < r->min_bytes || cs.bytes > r->max_bytes) {
                continue;
            }
            world_executed(&cs, &r->call, p.r->table_vars, &x);
            for (unsigned k = 0; k < NT_MODE_COUNT * NT_DTYPE_COUNT * NT_PLACE_COUNT; k++) {
                unsigned mode = k % NT_MODE_COUNT, dtype = k / NT_MODE_COUNT % NT_DTYPE_COUNT;
                unsigned place = k / NT_MODE_COUNT / NT_DTYPE_COUNT;
                if (!p.spec.modes[mode] || !p.spec.dtypes[dtype] || !p.spec.places[place]) {
                    continue;
                }
                seen++;
                if (!looked_whole[mark_of(&cs, &x, NT_BE_NCCL, combo_of(mode, dtype, place))]) {
                    fail_msg("row %zu at %llu: %s %s %s was not looked at", i,
                             (unsigned long long)cs.bytes, nt_mode_names[mode],
                             nt_dtype_names[dtype], nt_place_names[place]);
                }
            }
        }
    }
    assert_true(seen >= 8);
    play_done(&p);
}

/* A protocol that is far behind at small sizes and wins at the largest. */
static double ll_comes_back(const struct world_call *c)
{
    return c->x.proto != NT_LL ? 1 : c->step->m.cs.bytes < 2 << 20 ? 4 : 0.2;
}

static void test_what_was_outgrown_may_come_back(void **state)
{
    struct play p = {.spec = play_spec("64K,512K,2M", 3)};
    const struct nt_class_result *k;
    (void)state;
    world_init(&p.w, 3);
    p.w.factor = ll_comes_back;
    play(&p);
    assert_int_equal(p.rc, 0);
    k = play_published(&p, 2 << 20, NT_GRAPH);
    assert_non_null(k);
    assert_int_equal(k->call.proto, NT_LL);
    play_done(&p);
}

/* A recording that holds a protocol with one channel, and not with as many as NCCL takes. */
static uint8_t own_count_not_recorded(const struct world_call *c)
{
    return c->call.proto == NT_SIMPLE && c->call.channels == 0 ? NT_ST_NOT_RECORDED : NT_ST_OK;
}

static void test_what_is_not_recorded_hides_nothing(void **state)
{
    struct play p = {.spec = play_spec("64K,512K,2M", 3)};
    const struct nt_found *f;
    unsigned cases = 0, held = 0;
    (void)state;
    world_init(&p.w, 3);
    p.w.fault = own_count_not_recorded;
    play(&p);
    assert_int_equal(p.rc, 0);
    for (; (f = nt_plan_found(p.plan, cases)) != NULL; cases++) {
        bool there = false;
        for (size_t i = 0; i < f->narms; i++) {
            there = there ||
                    (f->arms[i].executed.algo == NT_RING &&
                     f->arms[i].executed.proto == NT_SIMPLE && f->arms[i].executed.channels == 1);
        }
        held += there;
    }
    assert_true(cases > 0);
    assert_int_equal(held, cases);
    play_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_timed_unseen),
        cmocka_unit_test(test_rows_were_looked_at_everywhere),
        cmocka_unit_test(test_what_was_outgrown_may_come_back),
        cmocka_unit_test(test_what_is_not_recorded_hides_nothing),
    };
    return cmocka_run_group_tests_name("job_looks", tests, NULL, NULL);
}
