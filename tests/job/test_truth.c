/* The short form of scripts/bench/truth: jobs over a recording of the made-up machine. */
#include "tests/job/play.h"
#include "tests/job/truth.h"

#include <math.h>
#include <stdlib.h>

enum { SEEDS = 5 };

static struct nt_recording *rec;

static int load(void **state)
{
    const char *path = getenv("NT_MADE_UP");
    struct nt_err err = {0};
    (void)state;

    if (path == NULL || nt_recording_load(path, &rec, &err) != 0) {
        print_error("%s\n", path == NULL ? "NT_MADE_UP is not set" : err.msg);
        return -1;
    }
    return 0;
}

static int unload(void **state)
{
    (void)state;
    nt_recording_free(rec);
    return 0;
}

static struct truth_sum jobs(bool null, unsigned seeds)
{
    struct truth_config c = {.rec = rec, .effort = NT_STANDARD, .null = null};
    struct truth_sum sum = {0};
    struct nt_err err = {0};

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        if (truth_job(&c, seed, &sum, &err) != 0) {
            fail_msg("seed %llu: %s", (unsigned long long)seed, err.msg);
        }
    }
    return sum;
}

static void test_picks_and_claims(void **state)
{
    struct truth_config c = {.rec = rec, .effort = NT_STANDARD};
    struct truth_sum s = jobs(false, SEEDS);
    uint64_t grid_ns = 0;
    unsigned tuples = 0;
    (void)state;

    assert_true(s.own.cases >= SEEDS * 30);
    assert_true(s.own.gaps * 50 <= s.own.cases);
    assert_true(expm1(s.own.worst) <= 0.015);
    assert_true(s.chosen.cases + s.chosen.thin >= SEEDS * 30);
    assert_true(s.chosen.gaps * 50 <= s.chosen.cases && expm1(s.chosen.worst) <= 0.015);
    assert_true(s.said.claims >= SEEDS * 4);
    assert_int_equal(s.said.false_claims, 0);
    assert_int_equal(s.said.slower, 0);
    assert_int_equal(s.empty, 0);
    assert_int_equal(truth_grid(&c, &grid_ns, &tuples, NULL), 0);
    assert_true(tuples > 100 && (double)s.search_ns / SEEDS <= 0.45 * (double)grid_ns);
}

static void test_null(void **state)
{
    struct truth_sum s = jobs(true, 20);
    (void)state;
    assert_int_equal(s.empty, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_picks_and_claims),
        cmocka_unit_test(test_null),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
