/* Whole jobs over every recording that is delivered, one seed each; scripts/bench/truth plays many.
 */
#include "tests/job/play.h"
#include "tests/job/truth.h"

#include <glob.h>
#include <math.h>
#include <stdlib.h>

/* Are its picks judged? Not in a recording of two or three gangs, of which too few are left for
 * that. */
static bool judge(const char *path, unsigned *told_claims)
{
    bool judged;
    struct nt_recording *rec = NULL;
    struct truth_config c = {.effort = NT_STANDARD};
    struct truth_sum s = {0}, null = {0};
    struct nt_err err = {0};
    int rc = nt_recording_load(path, &rec, &err);

    c.rec = rec;
    rc = rc == 0 ? truth_job(&c, 1, &s, &err) : rc;
    c.null = true;
    c.effort = NT_QUICK; /* where all are equal, a search is longest */
    rc = rc == 0 ? truth_job(&c, 1, &null, &err) : rc;
    if (rc != 0) {
        fail_msg("%s: %s", path, err.msg);
    }
    judged = s.own.cases > 0;
    if ((!judged && s.own.unknown == 0) || s.said.false_claims > 0 || s.said.slower > 0 ||
        null.empty != 1 || s.own.gaps * 20 > s.own.cases || expm1(s.own.worst) > 0.03) {
        fail_msg(
            "%s: %u cases, %u gaps, worst %.2f %%, %u false claims, %u slower; %s", path,
            s.own.cases, s.own.gaps, 100 * expm1(s.own.worst), s.said.false_claims, s.said.slower,
            null.empty == 1 ? "nothing claimed of nothing" : "claims where nothing is to gain");
    }
    *told_claims += s.said.told_claims;
    nt_recording_free(rec);
    return judged;
}

static void test_recordings(void **state)
{
    size_t most = SIZE_MAX, judged = 0;
    unsigned told = 0; /* claims that could have been called false */
    glob_t g;
    (void)state;

    assert_int_equal(glob(NT_RECORDINGS "/*.csv.gz", 0, NULL, &g), 0);
    assert_true(g.gl_pathc >= 7);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    most = 2; /* some minutes for all of them */
#endif
    for (size_t i = 0; i < g.gl_pathc && i < most; i++) {
        judged += judge(g.gl_pathv[i], &told);
    }
    assert_true(most < g.gl_pathc || told > 20);
    assert_true(judged + 2 >=
                (g.gl_pathc < most ? g.gl_pathc : most)); /* of four ranks, two leases */
    globfree(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recordings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
