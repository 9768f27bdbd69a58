/* Backends in whole jobs on a made-up machine: which is named for a size and mode, and what never
 * is. */
#include "tests/job/play.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LADDER "1K,16K,128K,512K,2M,8M"

static struct play job(uint64_t seed, const char *backends)
{
    struct play p = {.spec = play_spec(LADDER, seed)};
    struct nt_err err = {0};

    if (nt_spec_set(backends, nt_backend_names, "backend", p.spec.backends, NT_BACKEND_COUNT,
                    &err) != 0) {
        fail_msg("%s", err.msg);
    }
    world_init(&p.w, seed);
    return p;
}

static void run(struct play *p)
{
    play(p);
    if (p->rc != 0) {
        fail_msg("%s", p->err.msg);
    }
}

static const struct nt_backend_row *row_at(const struct play *p, uint64_t bytes, enum nt_mode m)
{
    for (size_t i = 0; i < p->r->nbackend_rows; i++) {
        const struct nt_backend_row *r = &p->r->backend_rows[i];
        if (r->mode == m && bytes >= r->min_bytes && bytes <= r->max_bytes) {
            return r;
        }
    }
    return NULL;
}

static bool names(const struct play *p, int backend)
{
    for (size_t i = 0; i < p->r->nbackend_rows; i++) {
        if (p->r->backend_rows[i].call.backend == backend) {
            return true;
        }
    }
    return false;
}

static const char *note_of(const struct play *p, int backend)
{
    for (size_t i = 0; i < p->r->nbackend_notes; i++) {
        if (p->r->backend_notes[i].call.backend == backend) {
            return p->r->backend_notes[i].why;
        }
    }
    return NULL;
}

/* By the machine's truth no row is slower than NCCL's default or the table. */
static void never_worse(const struct play *p)
{
    for (size_t i = 0; i < p->r->nbackend_rows; i++) {
        const struct nt_backend_row *r = &p->r->backend_rows[i];
        for (size_t k = 0; k < p->spec.nsizes; k++) {
            struct nt_case cs = {.coll = r->coll, .bytes = p->spec.sizes[k], .mode = r->mode};
            double d, t;
            if (cs.bytes < r->min_bytes || cs.bytes > r->max_bytes) {
                continue;
            }
            d = world_true_ns(&p->w, &cs, &NT_CALL_DEFAULT, "");
            t = world_true_ns(&p->w, &cs, &r->call, "");
            assert_true(t < d);
            for (size_t j = 0; j < p->r->nrows; j++) {
                const struct nt_row_result *x = &p->r->rows[j];
                if (cs.bytes >= x->min_bytes && cs.bytes <= x->max_bytes) {
                    assert_true(t < world_true_ns(&p->w, &cs, &x->call, p->r->table_vars));
                }
            }
        }
    }
}

static void test_the_fastest_is_named(void **state)
{
    struct play p = job(1, "nccl,nccl-symmetric,ipc,host-memory,torch-symm-mem");
    const struct nt_backend_row *small, *large;
    (void)state;
    run(&p);
    never_worse(&p);
    for (int m = 0; m < NT_MODE_COUNT; m++) {
        if (!p.spec.modes[m]) {
            continue;
        }
        small = row_at(&p, 1024, (enum nt_mode)m);
        large = row_at(&p, 8 << 20, (enum nt_mode)m);
        assert_non_null(small);
        assert_true(small->call.backend == NT_BE_IPC && small->call.algo == NT_ONE_SHOT);
        assert_int_equal(small->bits, NT_BITS_DIFFERENT);
        assert_true(small->combos[NT_BF16][NT_IN_PLACE] && small->combos[NT_FP32][NT_OUT_OF_PLACE]);
        assert_non_null(large);
        assert_int_equal(large->call.backend, NT_BE_NCCL_SYMMETRIC);
        assert_int_equal(large->bits, NT_BITS_SAME);
    }
    assert_false(names(&p, NT_BE_HOST));
    assert_string_equal(note_of(&p, NT_BE_TORCH_SYMM_MEM), "no framework here");
    play_done(&p);
}

/* Every backend of the vocabulary is either raced or in the profile with the reason. */
static void test_none_is_forgotten(void **state)
{
    (void)state;
    for (int framework = 0; framework < 2; framework++) {
        struct play p = job(6, "nccl");
        p.w.framework = framework != 0;
        for (int b = 0; b < NT_BACKEND_COUNT; b++) {
            p.spec.backends[b] = true;
        }
        run(&p);
        for (int b = NT_BE_NCCL + 1; b < NT_BACKEND_COUNT; b++) {
            bool there = (nt_backends[b].probe[0] == 'f') == p.w.framework;
            const char *note = note_of(&p, b);
            if (there ? note != NULL && strncmp(note, "a tie", 5) != 0
                      : note == NULL || strstr(note, framework ? "another" : "framework") == NULL) {
                fail_msg("%s: note '%s'", nt_backend_names[b], note != NULL ? note : "");
            }
            if (!there && names(&p, b)) {
                fail_msg("%s is named, and it is not here", nt_backend_names[b]);
            }
        }
        play_done(&p);
    }
}

/* What an engine brings along wins where it is faster; one that is for graphs in graphs only. */
static void test_backends_of_a_framework(void **state)
{
    struct play p = job(7, "nccl,torch-distributed,torch-symm-mem,custom-allreduce,pynccl,"
                           "flashinfer,mscclpp");
    const struct nt_backend_row *small, *large;
    (void)state;
    p.w.framework = true;
    run(&p);
    never_worse(&p);
    small = row_at(&p, 1024, NT_EAGER);
    large = row_at(&p, 8 << 20, NT_GRAPH);
    assert_true(small != NULL && small->call.backend == NT_BE_FLASHINFER);
    assert_true(large != NULL && large->call.backend == NT_BE_MSCCLPP);
    large = row_at(&p, 8 << 20, NT_EAGER);
    assert_true(large != NULL && large->call.backend == NT_BE_TORCH_SYMM_MEM &&
                large->call.algo == NT_TWO_SHOT);
    for (size_t i = 0; i < p.r->nbackend_rows; i++) {
        const struct nt_backend_row *r = &p.r->backend_rows[i];
        assert_true(r->call.backend != NT_BE_MSCCLPP || r->mode == NT_GRAPH);
        assert_true(r->call.backend != NT_BE_PYNCCL && r->call.backend != NT_BE_TORCH);
    }
    play_done(&p);
}

static const struct nt_backend_class *class_of(const struct play *p, uint64_t bytes, enum nt_mode m)
{
    const struct nt_backend_class *found = NULL;
    for (size_t i = 0; i < p->r->nbackend_classes; i++) {
        const struct nt_backend_class *c = &p->r->backend_classes[i];
        if (c->cs.bytes == bytes && c->cs.mode == m) {
            assert_null(found);
            found = c;
        }
    }
    return found;
}

/* An engine that would take its own kernel is told to keep NCCL, so the result says where that is
 * the answer: with who came next and by how much, also where nothing at all was to be confirmed. */
static void test_where_nccl_stays(void **state)
{
    static const struct {
        const char *backends;
        uint64_t until, from; /* the other's last size, NCCL's first */
        bool framework;
    } rows[] = {{"nccl,custom-allreduce", 16 << 10, 512 << 10, true},
                {"nccl,host-memory", 0, 1024, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct play p = job(9, rows[i].backends);
        p.w.framework = rows[i].framework;
        run(&p);
        for (size_t k = 0; k < 2 * p.spec.nsizes; k++) {
            uint64_t bytes = p.spec.sizes[k / 2];
            const struct nt_backend_class *c = class_of(&p, bytes, k % 2 ? NT_GRAPH : NT_EAGER);
            assert_non_null(c);
            assert_int_equal(c->kept, bytes >= rows[i].from);
            assert_true(c->published == (bytes <= rows[i].until) || bytes < rows[i].from);
            if (c->kept) {
                double t = world_true_ns(&p.w, &c->cs, &c->call, "");
                assert_true(c->gain < 0 && c->lo < c->gain && c->hi > c->gain && c->pairs == 0);
                assert_true(c->call.backend != NT_BE_NCCL && fabs(c->ns / t - 1) < 0.1);
                assert_non_null(strstr(c->why, "was faster in the race"));
            }
        }
        play_done(&p);
    }
}

/* A job without graphs has no use for it, and says so. */
static void test_not_in_the_modes_of_the_job(void **state)
{
    struct play p = job(8, "nccl,mscclpp");
    (void)state;
    p.w.framework = true;
    p.spec.modes[NT_GRAPH] = false;
    run(&p);
    assert_int_equal(p.r->nbackend_rows, 0);
    assert_string_equal(note_of(&p, NT_BE_MSCCLPP), "not in the modes of this job");
    play_done(&p);
}

/* The table's rows and figures are what they are without backends. */
static void test_only_nccl_changes_nothing(void **state)
{
    struct play a = job(3, "nccl"), b = job(3, "nccl,ipc");
    (void)state;
    run(&a);
    run(&b);
    assert_int_equal(a.r->nbackend_rows, 0);
    assert_int_equal(a.r->nbackend_notes, 0);
    assert_int_equal(a.r->stage_ns[NT_BACKENDS], 0);
    assert_true(b.r->nbackend_rows > 0);
    assert_int_equal(a.r->nrows, b.r->nrows);
    for (size_t i = 0; i < a.r->nrows; i++) {
        assert_true(a.r->rows[i].min_bytes == b.r->rows[i].min_bytes &&
                    nt_call_equal(&a.r->rows[i].call, &b.r->rows[i].call));
    }
    play_done(&a);
    play_done(&b);
}

/* Another name for NCCL as it is, and buffers that change nothing. */
static void test_ties_are_no_wins(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct play p = job(seed, "nccl,nccl-registered");
        run(&p);
        assert_int_equal(p.r->nbackend_rows, 0);
        play_done(&p);
    }
}

static bool is_ipc(const struct world_call *c)
{
    return c->call.backend == NT_BE_IPC;
}

static uint8_t wrong_if(const struct world_call *c, bool now)
{
    return is_ipc(c) && now && c->step->m.verify != NT_VERIFY_NO ? NT_ST_WRONG : NT_ST_OK;
}

static uint8_t wrong_above_2m(const struct world_call *c)
{
    return wrong_if(c, c->step->m.cs.bytes > (2 << 20));
}

static uint8_t wrong_in_place(const struct world_call *c)
{
    return wrong_if(c, c->step->m.cs.place == NT_IN_PLACE);
}

static uint8_t wrong_sometimes(const struct world_call *c)
{
    return wrong_if(c, c->measure * 7919 % 10 < 3);
}

static uint8_t wrong_always(const struct world_call *c)
{
    return wrong_if(c, true);
}

/* Only the pairs look at calls beside compute. */
static uint8_t wrong_in_pairs(const struct world_call *c)
{
    return wrong_if(c, (c->step->m.flags & NT_M_BUSY) != 0);
}

static uint8_t refuses_in_pairs(const struct world_call *c)
{
    return is_ipc(c) && (c->step->m.flags & NT_M_BUSY) != 0 ? NT_ST_UNAVAILABLE : NT_ST_OK;
}

/* What cannot run beside compute is not asked to where nothing does. */
static void test_no_overlap(void **state)
{
    (void)state;
    for (unsigned told = 0; told < 2; told++) {
        struct play p = job(1, "nccl,ipc");
        p.spec.no_overlap = told > 0;
        p.w.fault = refuses_in_pairs;
        run(&p);
        assert_int_equal(names(&p, NT_BE_IPC), told > 0);
        play_done(&p);
    }
}

static uint8_t refuses_above_1k(const struct world_call *c)
{
    return is_ipc(c) && c->step->m.cs.bytes > 1024 ? NT_ST_UNAVAILABLE : NT_ST_OK;
}

/* A backend that ends between two sizes has a row up to there. */
static void test_a_row_ends_where_the_backend_does(void **state)
{
    struct play p = job(1, "nccl,ipc");
    const struct nt_backend_row *row;
    (void)state;
    p.w.fault = refuses_above_1k;
    run(&p);
    row = row_at(&p, 1024, NT_GRAPH);
    assert_non_null(row);
    assert_true(row->call.backend == NT_BE_IPC && row->max_bytes == 1024);
    assert_null(row_at(&p, 2048, NT_GRAPH));
    play_done(&p);
}

/* Wrong once, anywhere, and nothing of the backend is trusted any more. */
static uint8_t wrong_in_one_variant(const struct world_call *c)
{
    return wrong_if(c, c->call.algo == NT_TWO_SHOT && c->call.proto == NT_PUSH);
}

static unsigned hangs; /* each costs a gang and its deadline */

static uint8_t hang_if(bool now)
{
    hangs += now;
    return now ? NT_ST_TIMEOUT : NT_ST_OK;
}

static uint8_t hangs_in_replay(const struct world_call *c)
{
    return hang_if(is_ipc(c) && c->step->m.cs.mode == NT_GRAPH);
}

static uint8_t always_hangs(const struct world_call *c)
{
    return hang_if(is_ipc(c));
}

static uint8_t crashes_the_gang(const struct world_call *c)
{
    return is_ipc(c) && c->call.algo == NT_TWO_SHOT ? NT_ST_CRASHED : NT_ST_OK;
}

static double ten_times_as_fast(const struct world_call *c)
{
    return is_ipc(c) ? 0.1 : 1;
}

static void test_never_in_a_profile(void **state)
{
    static const struct {
        const char *name;
        uint8_t (*fault)(const struct world_call *c);
        double (*factor)(const struct world_call *c);
    } rows[] = {{"wrong above 2 MiB", wrong_above_2m, NULL},
                {"wrong in place", wrong_in_place, NULL},
                {"wrong in 3 of 10", wrong_sometimes, NULL},
                {"fast and wrong", wrong_always, ten_times_as_fast},
                {"wrong in one variant", wrong_in_one_variant, NULL},
                {"wrong in the pairs", wrong_in_pairs, NULL},
                {"hangs in replay", hangs_in_replay, NULL},
                {"hangs", always_hangs, ten_times_as_fast}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct play p = job(i + 1, "nccl,nccl-symmetric,ipc");
        p.w.fault = rows[i].fault;
        p.w.factor = rows[i].factor;
        hangs = 0;
        run(&p);
        if (hangs > 2) {
            fail_msg("%s: asked for %u times more", rows[i].name, hangs - 2);
        }
        if (names(&p, NT_BE_IPC)) {
            fail_msg("%s: it is in the profile", rows[i].name);
        }
        if (note_of(&p, NT_BE_IPC) == NULL) {
            fail_msg("%s: no reason", rows[i].name);
        }
        assert_true(names(&p, NT_BE_NCCL_SYMMETRIC)); /* the job went on */
        play_done(&p);
    }
}

/* One that wins the race and is wrong in the gate: the second best is not lost with it. */
static void test_the_second_best(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct play p = job(seed, "nccl,nccl-symmetric,ipc");
        unsigned rows = 0;
        p.spec.effort = NT_QUICK;
        p.w.fault = wrong_in_place;
        run(&p);
        assert_false(names(&p, NT_BE_IPC));
        for (size_t i = 0; i < p.spec.nsizes; i++) {
            rows += row_at(&p, p.spec.sizes[i], NT_EAGER) != NULL;
            rows += row_at(&p, p.spec.sizes[i], NT_GRAPH) != NULL;
        }
        if (rows + 2 < 2 * p.spec.nsizes) { /* pairs may fall short of the proof */
            fail_msg("seed %u: %u of %zu", (unsigned)seed, rows, 2 * p.spec.nsizes);
        }
        never_worse(&p);
        play_done(&p);
    }
}

/* Neither wrong nor hung, but not to be had where it would be delivered. */
static void test_refused_in_the_pairs(void **state)
{
    struct play p = job(6, "nccl,nccl-symmetric,ipc");
    (void)state;
    p.w.fault = refuses_in_pairs;
    run(&p);
    assert_false(names(&p, NT_BE_IPC));
    for (size_t i = 0; i < p.r->nbackend_classes; i++) {
        const struct nt_backend_class *c = &p.r->backend_classes[i];
        assert_true(c->call.backend != NT_BE_IPC || strstr(c->why, "refused") != NULL);
    }
    play_done(&p);
}

/* One variant that crashes does not take the others with it … once. */
static void test_a_variant_is_ruled_out_alone(void **state)
{
    struct play p = job(5, "nccl,ipc");
    (void)state;
    p.w.fault = crashes_the_gang;
    run(&p);
    for (size_t i = 0; i < p.r->nbackend_rows; i++) {
        assert_int_equal(p.r->backend_rows[i].call.algo, NT_ONE_SHOT);
    }
    assert_non_null(note_of(&p, NT_BE_IPC));
    play_done(&p);
}

/* The less time there is, the fewer are confirmed; what was left out is said, and never more is
 * spent. */
/* From `enough` percent on some rows are proved. */
static void within_the_budget(uint64_t beside_ns, uint64_t product_ns, unsigned enough)
{
    bool some = false, said = false;
    for (unsigned percent = 100; percent > 0; percent -= 10) {
        static uint64_t whole;
        struct play p = job(11, "nccl,nccl-symmetric,ipc");
        bool out = false;
        p.w.backend_beside_ns = beside_ns;
        p.w.product_ns = product_ns;
        p.spec.budget_ns = percent == 100 ? 0 : whole / 100 * percent;
        play(&p);
        if (p.rc != 0 && percent < 40) { /* too short for any job: refused at its beginning */
            assert_non_null(strstr(p.err.msg, "too short"));
            play_done(&p);
            break;
        }
        assert_int_equal(p.rc, 0);
        whole = percent == 100 ? p.w.clock_ns : whole;
        for (size_t i = 0; i < p.r->nnot_checked; i++) {
            out = out || strstr(p.r->not_checked[i].text, "were not confirmed: no time") != NULL;
        }
        if (percent < 100 && p.w.clock_ns > p.spec.budget_ns + p.spec.budget_ns / 10) {
            fail_msg("%u %%: %.1f s of %.1f s", percent, (double)p.w.clock_ns / 1e9,
                     (double)p.spec.budget_ns / 1e9);
        }
        assert_true(percent < 100 || (p.r->nbackend_classes > 4 && !out));
        assert_true(percent < enough || p.r->nbackend_rows > 0);
        some = some || (out && p.r->nbackend_rows > 0);
        said = said || out;
        never_worse(&p);
        play_done(&p);
    }
    assert_true(said && some); /* not all or nothing */
}

static void test_within_the_budget(void **state)
{
    (void)state;
    within_the_budget(60000000, 0, 40);
    within_the_budget(1000000, 120000000, 60); /* more than is reckoned with */
}

/* One call in ten takes six times as long: nothing that the median shows. */
static void test_the_tail_counts(void **state)
{
    struct play p = job(4, "nccl,ipc");
    (void)state;
    p.w.backend_tail_share = 0.1;
    run(&p);
    assert_null(row_at(&p, 1024, NT_EAGER)); /* in long calls too few are seen to tell */
    assert_null(row_at(&p, 2 << 20, NT_EAGER));
    for (size_t i = 0; i < p.r->nbackend_classes; i++) {
        const struct nt_backend_class *c = &p.r->backend_classes[i];
        assert_true(isnan(c->p95_ratio) || (!c->published && c->p95_ratio > 1.05));
    }
    play_done(&p);
}

static void test_same_bits(void **state)
{
    struct play p = job(2, "nccl,nccl-symmetric,ipc");
    (void)state;
    p.spec.same_bits = true;
    run(&p);
    assert_false(names(&p, NT_BE_IPC));
    assert_true(names(&p, NT_BE_NCCL_SYMMETRIC));
    assert_non_null(strstr(note_of(&p, NT_BE_IPC), "--same-bits"));
    play_done(&p);
}

/* Other bits in one type of one mode only: out there, and what it says of the other stands. */
static void test_same_bits_by_mode(void **state)
{
    static const enum nt_mode modes[] = {NT_EAGER, NT_GRAPH};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        enum nt_mode good = modes[1 - i];
        struct play p = job(2, "nccl,nccl-symmetric");
        p.spec.same_bits = true;
        p.w.other_bits = (struct nt_case){.mode = (uint8_t)modes[i], .dtype = NT_FP32};
        run(&p);
        assert_non_null(row_at(&p, 128 << 10, good));
        for (size_t k = 0; k < p.r->nbackend_rows; k++) {
            assert_int_equal(p.r->backend_rows[k].mode, good);
            assert_int_equal(p.r->backend_rows[k].bits, NT_BITS_SAME);
        }
        for (size_t k = 0; k < p.r->nbackend_classes; k++) {
            const struct nt_backend_class *c = &p.r->backend_classes[k];
            assert_true(!c->published || c->bits == NT_BITS_SAME);
        }
        assert_non_null(strstr(note_of(&p, NT_BE_NCCL_SYMMETRIC), "--same-bits"));
        play_done(&p);
    }
}

/* All the same: nothing is named, whatever the noise. */
static void test_null(void **state)
{
    unsigned named = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct play p = job(seed, "nccl,nccl-symmetric,ipc");
        p.w.null = true;
        run(&p);
        named += p.r->nbackend_rows > 0;
        play_done(&p);
    }
    assert_int_equal(named, 0);
}

static void test_one_job_twice(void **state)
{
    struct play a = job(9, "nccl,ipc,nccl-symmetric"), b = a;
    (void)state;
    run(&a);
    run(&b);
    assert_int_equal(a.w.steps, b.w.steps);
    assert_int_equal(a.r->nbackend_rows, b.r->nbackend_rows);
    assert_memory_equal(a.r->backend_rows, b.r->backend_rows,
                        a.r->nbackend_rows * sizeof(a.r->backend_rows[0]));
    play_done(&a);
    play_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_ends_where_the_backend_does),
        cmocka_unit_test(test_the_fastest_is_named),
        cmocka_unit_test(test_none_is_forgotten),
        cmocka_unit_test(test_backends_of_a_framework),
        cmocka_unit_test(test_where_nccl_stays),
        cmocka_unit_test(test_not_in_the_modes_of_the_job),
        cmocka_unit_test(test_only_nccl_changes_nothing),
        cmocka_unit_test(test_ties_are_no_wins),
        cmocka_unit_test(test_never_in_a_profile),
        cmocka_unit_test(test_the_second_best),
        cmocka_unit_test(test_refused_in_the_pairs),
        cmocka_unit_test(test_a_variant_is_ruled_out_alone),
        cmocka_unit_test(test_within_the_budget),
        cmocka_unit_test(test_the_tail_counts),
        cmocka_unit_test(test_no_overlap),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_bits_by_mode),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_one_job_twice),
    };
    return cmocka_run_group_tests_name("job_backends", tests, NULL, NULL);
}
