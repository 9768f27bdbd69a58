/* How often a check looks, and what that costs: rows told early and late, limits, and the chances
 * of error over many checks. The machine is made up of normal scatter, so that what is true is
 * known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tuner/base/rng.h"
#include "tuner/job/check_plan.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum { ROWS = 8, STEP_NS = 1000 };

struct machine {
    uint64_t seed;
    double gain[ROWS];  /* true logarithm of default over tuned */
    double sd[ROWS];    /* of a pair's difference */
    unsigned lost_from; /* gangs do not start from this number on; 0: all do */
    uint64_t clock_ns, measures[ROWS];
};

static const double BASE_NS = 1e6;

static void do_step(struct machine *m, const struct nt_plan_step *s, uint32_t *ns,
                    struct nt_result *result, struct nt_plan_outcome *o)
{
    *o = (struct nt_plan_outcome){.elapsed_ns = STEP_NS};
    m->clock_ns += STEP_NS;
    for (unsigned i = 0; s->kind == NT_DO_START && i < s->ngangs; i++) {
        bool lost = m->lost_from != 0 && s->gangs[i].number >= m->lost_from;
        o->gangs[i].status = lost ? NT_ST_CRASHED : NT_ST_OK;
    }
    if (s->kind == NT_DO_MEASURE) {
        double log_ns = log(BASE_NS);
        if ((s->m.flags & (NT_M_COPY | NT_M_LAUNCH)) == 0) {
            unsigned row = (unsigned)(s->m.cs.bytes / 1024 - 1);
            struct nt_rng rng;
            nt_rng_seed(&rng, nt_mix(nt_mix(m->seed, s->gang), row));
            log_ns += m->sd[row] * sqrt(0.5) * nt_rng_normal(&rng);
            log_ns -= s->arm == NT_ARM_TABLE ? m->gain[row] : 0;
            m->measures[row]++;
        }
        *ns = (uint32_t)exp(log_ns);
        *result = (struct nt_result){
            .status = NT_ST_OK, .ns = ns, .count = 1, .executed = NT_EXECUTED_NONE};
        o->result = result;
    }
}

/* Rows whose gain of 20 % was proved to be at least `was_lo`. */
static unsigned check(struct machine *m, struct nt_check_spec spec, double was_lo,
                      struct nt_check_row rows[ROWS])
{
    struct nt_check_control controls[NT_CHECK_CONTROLS];
    struct nt_check_plan *p = NULL;
    struct nt_result result;
    uint32_t ns;
    unsigned counted;

    for (unsigned i = 0; i < ROWS; i++) {
        rows[i] = (struct nt_check_row){.cs = {.bytes = 1024 * (i + 1), .coll = NT_ALL_REDUCE},
                                        .call = NT_CALL_DEFAULT,
                                        .asked = NT_CALL_DEFAULT,
                                        .was = 0.2,
                                        .was_lo = was_lo,
                                        .was_default_ns = BASE_NS,
                                        .gains = true};
    }
    spec.arm = NT_ARM_TABLE;
    spec.vars = "";
    spec.rows = rows;
    spec.nrows = ROWS;
    spec.seed = m->seed;
    m->clock_ns = 0;
    memset(m->measures, 0, sizeof(m->measures));
    assert_int_equal(nt_check_plan_new(&spec, &p, NULL), 0);
    for (;;) {
        struct nt_plan_step s;
        struct nt_plan_outcome o;
        assert_int_equal(nt_check_next(p, &s, NULL), 0);
        if (s.kind == NT_DO_FINISHED) {
            break;
        }
        do_step(m, &s, &ns, &result, &o);
        assert_int_equal(nt_check_tell(p, &o, NULL), 0);
    }
    counted = nt_check_judge(p, controls);
    nt_check_plan_free(p);
    return counted;
}

static const struct nt_check_spec few = {.least = 3, .most = 3}, usual = {.least = 3, .most = 12};

static void set(struct machine *m, double gain, double sd)
{
    for (unsigned i = 0; i < ROWS; i++) {
        m->gain[i] = gain;
        m->sd[i] = sd;
    }
}

/* ------------------------------------------------------------------ when a row is told */

static void test_when(void **state)
{
    const struct {
        const char *name;
        double gain, sd;
        size_t pairs; /* that it is told after */
        enum nt_check_verdict few, usual;
    } rows[] = {
        {"quiet", 0.2, 0.002, 3, NT_CK_HOLDS, NT_CK_HOLDS},
        {"gone, quiet", 0.0, 0.001, 3, NT_CK_DRIFTED, NT_CK_DRIFTED},
        {"gone", 0.0, 0.02, 6, NT_CK_CANNOT_TELL, NT_CK_DRIFTED},
        {"noise", 0.2, 0.06, 6, NT_CK_CANNOT_TELL, NT_CK_HOLDS},
        {"more noise", 0.2, 0.20, 12, NT_CK_CANNOT_TELL, NT_CK_HOLDS},
        {"gone, more noise", 0.0, 0.11, 12, NT_CK_CANNOT_TELL, NT_CK_DRIFTED},
        {"far too much", 0.2, 0.9, 12, NT_CK_CANNOT_TELL, NT_CK_CANNOT_TELL},
    };
    struct machine m = {.seed = 9};
    struct nt_check_row r[ROWS], once[ROWS];
    (void)state;

    set(&m, 0.2, 0.002);
    for (unsigned i = 0; i < COUNT(rows); i++) {
        m.gain[i] = rows[i].gain;
        m.sd[i] = rows[i].sd;
    }
    assert_int_equal(check(&m, few, 0.17, once), 3);
    assert_int_equal(check(&m, usual, 0.17, r), 12);
    for (unsigned i = 0; i < COUNT(rows); i++) {
        if (r[i].verdict != rows[i].usual || once[i].verdict != rows[i].few ||
            r[i].ratio.n != rows[i].pairs) {
            fail_msg("%s: 3 pairs %s, then %s after %zu (%s)", rows[i].name,
                     nt_check_verdict_names[once[i].verdict], nt_check_verdict_names[r[i].verdict],
                     r[i].ratio.n, r[i].why);
        }
        /* A row that is told is measured no more. */
        assert_int_equal(m.measures[i], rows[i].pairs * 8);
    }
    assert_non_null(strstr(r[6].why, "after 12 pairs between "));
    assert_non_null(strstr(r[6].why, " would tell"));
}

/* ------------------------------------------------------------------ limits */

static void test_limits(void **state)
{
    const struct {
        const char *name;
        unsigned least, most, lost_from, pairs;
        uint64_t budget_ns;
    } rows[] = {
        {.name = "all", .least = 3, .most = 12, .pairs = 12},
        {.name = "one look", .least = 5, .most = 5, .pairs = 5},
        {.name = "odd", .least = 2, .most = 7, .pairs = 7},
        {.name = "budget below the least", .least = 3, .most = 12, .pairs = 3, .budget_ns = 1},
        {.name = "budget between two looks",
         .least = 3,
         .most = 12,
         .pairs = 5,
         .budget_ns = 11 * (ROWS * 8 + 8 + 2) * STEP_NS / 2},
        {.name = "gangs that come up no more", .least = 3, .most = 12, .lost_from = 9, .pairs = 4},
    };
    (void)state;
    for (unsigned i = 0; i < COUNT(rows); i++) {
        struct machine m = {.seed = 4, .lost_from = rows[i].lost_from};
        struct nt_check_row r[ROWS];
        unsigned n;
        set(&m, 0.2, 0.9);
        n = check(&m,
                  (struct nt_check_spec){
                      .least = rows[i].least, .most = rows[i].most, .budget_ns = rows[i].budget_ns},
                  0.17, r);
        if (n != rows[i].pairs || r[0].ratio.n != n || r[0].verdict != NT_CK_CANNOT_TELL) {
            fail_msg("%s: %u pairs, %s", rows[i].name, n, nt_check_verdict_names[r[0].verdict]);
        }
        if (rows[i].budget_ns > 1) {
            assert_true(m.clock_ns <= rows[i].budget_ns);
        }
    }
}

static void test_looks(void **state)
{
    unsigned at = 3;
    double spent = 0;
    (void)state;
    for (unsigned k = 0; k < 3; k++) {
        double s = nt_check_spent(at, 12);
        assert_true(s > spent && s <= 1);
        spent = s;
        at = nt_check_next_look(at, 12);
    }
    assert_int_equal(at, 12);
    assert_true(spent == 1);
    assert_int_equal(nt_check_next_look(2, 3), 3);
    assert_true(nt_check_spent(3, 3) == 1);
}

/* ------------------------------------------------------------------ chances of error */

/* What is true lies at the edge, where errors are the likeliest; rows are independent, so that the
 * chance of the whole check is as large as it can be. */
static void test_errors(void **state)
{
    enum { CHECKS = 1000 };
    const struct {
        const char *name;
        double gain, was_lo;
        enum nt_check_verdict wrong;
        double of, stated; /* errors of so many chances */
        bool whole;
    } rows[] = {
        {"true, said to have drifted", 0.2, 0.2, NT_CK_DRIFTED, CHECKS, NT_CHECK_ALARM, true},
        {"nothing gained, said to hold", 0, 0.02, NT_CK_HOLDS, CHECKS * ROWS, NT_CHECK_MISS, false},
    };
    (void)state;
    for (unsigned i = 0; i < COUNT(rows); i++) {
        double errors = 0, most;
        for (uint64_t seed = 1; seed <= CHECKS; seed++) {
            struct machine m = {.seed = seed * 7919};
            struct nt_check_row r[ROWS];
            unsigned wrong = 0;
            set(&m, rows[i].gain, 0.05);
            (void)check(&m, usual, rows[i].was_lo, r);
            for (unsigned k = 0; k < ROWS; k++) {
                wrong += r[k].verdict == rows[i].wrong;
            }
            errors += rows[i].whole ? wrong > 0 : wrong;
        }
        most = rows[i].of * rows[i].stated;
        print_message("%s: %.0f of %.0f, stated %.0f\n", rows[i].name, errors, rows[i].of, most);
        assert_true(errors <= most + 3 * sqrt(most)); /* three times the chance of counting */
        assert_true(errors >= most / 4);              /* and not bought by telling nothing */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_when),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_looks),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
