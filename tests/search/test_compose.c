#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "tuner/base/rng.h"
#include "tuner/search/compose.h"

enum { SIZES = 4, MODES = 2, CHOICES = 4 };
static const uint64_t sizes[SIZES] = {1024, 4096, 16384, 65536};
#define X NAN

/* Gains in percent, [size][choice 1..3][mode eager, graph]; X: unknown. Rows wanted as
 * "min-max:choice", "" for none. */
struct compose_case {
    const char *name;
    double gain[SIZES][CHOICES - 1][MODES];
    struct {
        uint64_t min, max;
        uint32_t choice;
    } rows[SIZES];
};

#define NO                                                                                         \
    {                                                                                              \
        {0, 0}, {0, 0},                                                                            \
        {                                                                                          \
            0, 0                                                                                   \
        }                                                                                          \
    }
static const struct compose_case cases[] = {
    {"the default wins everywhere", {NO, NO, NO, NO}, {{0}}},
    {"one size in the middle", {NO, {{10, 10}, {0, 0}, {0, 0}}, NO, NO}, {{2049, 8192, 1}}},
    {"never beyond the ladder",
     {{{10, 10}, {0, 0}, {0, 0}}, NO, NO, {{0, 0}, {9, 9}, {0, 0}}},
     {{1024, 2048, 1}, {32769, 65536, 2}}},
    {"neighbours with one choice are one row",
     {{{10, 10}, {0, 0}, {0, 0}}, {{20, 5}, {0, 0}, {0, 0}}, NO, NO},
     {{1024, 8192, 1}}},
    {"a tied choice joins two sizes", /* 2 is best at one, 1 at the other, both near */
     {{{10, 10}, {10.5, 10.5}, {0, 0}}, {{10, 10}, {2, 2}, {0, 0}}, NO, NO},
     {{1024, 8192, 1}}},
    {"no tie, two rows",
     {{{10, 10}, {15, 15}, {0, 0}}, {{10, 10}, {2, 2}, {0, 0}}, NO, NO},
     {{1024, 2048, 2}, {2049, 8192, 1}}},
    {"good in one mode, bad in the other", {NO, {{30, -5}, {0, 0}, {0, 0}}, NO, NO}, {{0}}},
    {"good in one mode, even in the other",
     {NO, {{30, -0.5}, {4, 4}, {0, 0}}, NO, NO},
     {{2049, 8192, 1}}},
    {"unknown in one mode", {NO, {{30, X}, {5, 5}, {0, 0}}, NO, NO}, {{2049, 8192, 2}}},
    {"too little to be worth a row", {NO, {{1.9, 1.9}, {0, 0}, {0, 0}}, NO, NO}, {{0}}},
    {"of equals the smaller rank", /* ranks: 3 before 2 before 1 */
     {NO, {{10, 10}, {10, 10}, {9.7, 9.7}}, NO, NO},
     {{2049, 8192, 3}}},
    {"the middle goes with the side that makes fewer rows",
     {{{10, 10}, {0, 0}, {0, 0}},
      {{10, 10}, {0, 0}, {10.5, 10.5}},
      {{0, 0}, {0, 0}, {10, 10}},
      {{0, 0}, {0, 0}, {10, 10}}},
     {{1024, 2048, 1}, {2049, 65536, 3}}},
};

static void fill(struct nt_effect *e, const struct compose_case *c)
{
    for (size_t s = 0; s < SIZES; s++) {
        for (size_t m = 0; m < MODES; m++) {
            struct nt_effect *cell = e + (s * MODES + m) * CHOICES;
            cell[0] = (struct nt_effect){0.0, 0.0};
            for (size_t k = 1; k < CHOICES; k++) {
                cell[k] = (struct nt_effect){-log1p(c->gain[s][k - 1][m] / 100.0), 0.0};
            }
        }
    }
}

static void test_rows(void **state)
{
    static const uint32_t rank[CHOICES] = {0, 9, 8, 7};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct compose_case *c = &cases[i];
        struct nt_effect effects[SIZES * MODES * CHOICES];
        struct nt_compose_in in = {sizes, SIZES, MODES, CHOICES, effects, NULL, rank};
        struct nt_row rows[SIZES];
        size_t n = 99, want = 0;
        fill(effects, c);
        assert_int_equal(nt_compose(&nt_compose_defaults, &in, rows, &n, NULL), 0);
        while (want < SIZES && c->rows[want].choice != 0) {
            want++;
        }
        if (n != want) {
            fail_msg("%s: %zu rows, not %zu", c->name, n, want);
        }
        for (size_t k = 0; k < n; k++) {
            if (rows[k].min_bytes != c->rows[k].min || rows[k].max_bytes != c->rows[k].max ||
                rows[k].choice != c->rows[k].choice) {
                fail_msg("%s: row %zu is %llu-%llu:%u", c->name, k,
                         (unsigned long long)rows[k].min_bytes,
                         (unsigned long long)rows[k].max_bytes, rows[k].choice);
            }
        }
    }
}

static void test_uncertain_estimates_guard(void **state)
{
    struct nt_effect effects[4] = {{0, 0}, {-0.2, 0.01}, {0, 0}, {0.0, 0.05}};
    struct nt_compose_in in = {sizes, 1, 2, 2, effects, NULL, NULL};
    struct nt_row rows[1];
    size_t n = 99;
    (void)state;
    assert_int_equal(nt_compose(&nt_compose_defaults, &in, rows, &n, NULL), 0);
    assert_int_equal(n, 0); /* may be 5 % slower in the second mode, for all that is known */
    effects[3].se = 0.005;
    assert_int_equal(nt_compose(&nt_compose_defaults, &in, rows, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_true(fabs(rows[0].gain - 0.1) < 1e-12);
}

static void test_weights(void **state)
{
    /* choice 1 gains in eager, 2 in graph; who weighs more decides */
    static const struct nt_effect effects[6] = {{0, 0}, {-0.2, 0}, {-0.01, 0},
                                                {0, 0}, {0, 0},    {-0.1, 0}};
    static const struct {
        double weight[2];
        uint32_t choice;
    } rows[] = {{{3, 1}, 1}, {{1, 3}, 2}, {{1, 0}, 1}, {{0, 1}, 2}, {{0, 0}, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_compose_in in = {sizes, 1, 2, 3, effects, rows[i].weight, NULL};
        struct nt_row row;
        size_t n = 0;
        assert_int_equal(nt_compose(&nt_compose_defaults, &in, &row, &n, NULL), 0);
        assert_int_equal(n, 1);
        assert_int_equal(row.choice, rows[i].choice);
    }
}

/* Rows of random input: in order, apart, inside the ladder, each size served by what may serve it
 * or by none. */
static void test_invariants(void **state)
{
    enum { S = 12, C = 6 };
    struct nt_rng rng;
    uint64_t ladder[S];
    (void)state;
    nt_rng_seed(&rng, 31);
    for (int run = 0; run < 500; run++) {
        struct nt_effect e[S * C];
        struct nt_compose_in in = {ladder, S, 1, C, e, NULL, NULL};
        struct nt_row rows[S];
        size_t n = 0;
        uint64_t next = 1 + nt_rng_below(&rng, 8);
        for (size_t s = 0; s < S; s++) {
            ladder[s] = next;
            next += 1 + nt_rng_below(&rng, next);
            for (size_t c = 0; c < C; c++) {
                e[s * C + c].log_ratio = c == 0 ? 0.0 : 0.04 * nt_rng_normal(&rng);
                e[s * C + c].se = 0.0;
            }
        }
        assert_int_equal(nt_compose(&nt_compose_defaults, &in, rows, &n, NULL), 0);
        for (size_t k = 0; k < n; k++) {
            assert_true(rows[k].min_bytes <= ladder[rows[k].first]);
            assert_true(rows[k].max_bytes >= ladder[rows[k].last]);
            assert_true(rows[k].min_bytes >= ladder[0] && rows[k].max_bytes <= ladder[S - 1]);
            assert_true(k == 0 || rows[k].min_bytes > rows[k - 1].max_bytes);
            for (size_t s = rows[k].first; s <= rows[k].last; s++) {
                assert_true(e[s * C + rows[k].choice].log_ratio <= -log1p(0.02) + 1e-12);
            }
        }
    }
}

static void test_bad_input(void **state)
{
    static const uint64_t twice[2] = {1024, 1024};
    static const struct nt_effect e[2] = {{0, 0}, {0, 0}};
    struct nt_compose_in in = {twice, 2, 1, 1, e, NULL, NULL};
    struct nt_row rows[2];
    struct nt_err err = {0};
    size_t n = 99;
    (void)state;
    assert_int_equal(nt_compose(&nt_compose_defaults, &in, rows, &n, &err), -NT_E_INVAL);
    in.n_sizes = 1;
    in.n_choices = 0;
    assert_int_equal(nt_compose(&nt_compose_defaults, &in, rows, &n, &err), -NT_E_INVAL);
    assert_int_equal(n, 99);
    in.n_choices = 1;
    in.n_sizes = 0;
    assert_int_equal(nt_compose(&nt_compose_defaults, &in, rows, &n, &err), 0);
    assert_int_equal(n, 0);
}

/* A row whose last size is kept ends at it, unless another row follows at once. */
static void test_ends(void **state)
{
    static const uint64_t steps[5] = {1024, 2048, 4096, 8192, 16384};
    static const struct {
        bool kept[5], follows;
        uint64_t ends;
    } told[] = {
        {{false}, false, 5792},
        {{false, false, true}, false, 4096},
        {{false, true, true}, false, 4096},
        {{false, true}, false, 5792}, /* within the row */
        {{false, false, true}, true, 5792},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        struct nt_row rows[2] = {
            {.min_bytes = 1449, .max_bytes = 5792, .choice = 1, .first = 1, .last = 2},
            {.min_bytes = told[i].follows ? 5793 : 11586, .max_bytes = 16384, .choice = 2}};
        rows[1].first = told[i].follows ? 3 : 4;
        rows[1].last = 4;
        nt_compose_end(steps, told[i].kept, rows, 2);
        assert_int_equal(rows[0].max_bytes, told[i].ends);
        assert_int_equal(rows[0].min_bytes, 1449);
        assert_int_equal(rows[1].max_bytes, 16384);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_uncertain_estimates_guard),
        cmocka_unit_test(test_weights),   cmocka_unit_test(test_invariants),
        cmocka_unit_test(test_bad_input), cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
