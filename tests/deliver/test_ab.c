/* Figures that programs print, and what pairs of runs say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/json.h"
#include "tuner/deliver/ab.h"
#include "tuner/deliver/figure.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- numbers ---- */

static const struct {
    const char *text;
    double value; /* NAN: none */
    const char *unit;
} numbers[] = {
    {"82.2", 82.2, ""},
    {" 82.2\t", 82.2, ""},
    {"-3", -3, ""},
    {"1,234.5", 1234.5, ""},
    {"1'234", 1234, ""},
    {"1e3", 1000, ""},
    {"2.5E-3 s", 0.0025, "s"},
    {"980 ms", 0.98, "s"},
    {"980ms", 0.98, "s"},
    {"12 \xc2\xb5s", 12e-6, "s"},
    {"1.5 min", 90, "s"},
    {"1.2k", 1200, ""},
    {"1.2 ktok/s", 1200, "tok/s"},
    {"1.2K tokens/s", 1200, "tokens/s"},
    {"12 GB/s", 12e9, "B/s"},
    {"2 GiB/s", 2147483648.0, "B/s"},
    {"3 Mi", 3145728, ""},
    {"55 tokens/s", 55, "tokens/s"}, /* t is no prefix */
    {"55 kernels", 55, "kernels"},
    {"5 %", 5, "%"},
    {"5 examples", 5, "examples"}, /* e is no exponent */
    {"5e", 5, "e"},
    {"", NAN, ""},
    {"n/a", NAN, ""},
    {"nan", NAN, ""},
    {"inf", NAN, ""},
    {"1m30s", NAN, ""},
    {"0x10", NAN, ""},
    {"1.2.3", NAN, ""},
    {"5 a unit that is too long", NAN, ""},
};

static void test_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(numbers); i++) {
        struct nt_figure f = {.value = NAN};
        bool is = nt_figure_parse(numbers[i].text, strlen(numbers[i].text), &f);
        if (is != !isnan(numbers[i].value)) {
            fail_msg("'%s' is %s", numbers[i].text, is ? f.unit : "no number");
        }
        if (is && (fabs(f.value - numbers[i].value) > 1e-9 * fabs(numbers[i].value) ||
                   strcmp(f.unit, numbers[i].unit) != 0)) {
            fail_msg("'%s' came out as %g '%s'", numbers[i].text, f.value, f.unit);
        }
    }
}

static void test_steps(void **state)
{
    static const struct {
        const char *text;
        double step;
    } cases[] = {{"82.2", 0.1},      {"5", 1},      {"9.99", 0.01},   {"1,234", 1},
                 {"1,234.50", 0.01}, {"1.2k", 100}, {"980 ms", 1e-3}, {"2.5E-3 s", 1e-4},
                 {"12 GB/s", 1e9},   {"1e3", 1000}, {"5.", 1},        {"-0.50", 0.01}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct nt_figure f;
        assert_true(nt_figure_parse(cases[i].text, strlen(cases[i].text), &f));
        if (fabs(f.step - cases[i].step) > 1e-6 * cases[i].step) {
            fail_msg("'%s': one in its last digit is %g", cases[i].text, f.step);
        }
    }
}

static const struct {
    const char *spec, *text;
    unsigned matches;
    double value; /* NAN: the last match is no number */
} printed[] = {
    {"t=tps: ([0-9.]+)", "tps: 1\ntps: 2\n", 2, 2},
    {"t=tps: ([0-9.]+)", "tps: 1\ntps: 2", 2, 2}, /* no end of the last line */
    {"t=tps: ([0-9.]+)", "tps: 1, tps: 3\n", 2, 3},
    {"t=tps: ([0-9.]+)", "10%\rtps: 4\r99%\r", 1, 4},
    {"t=tps: ([0-9.]+)", "tps: \033[1;31m5\033[0m\n", 1, 5},
    {"t=tps: (.*)", "tps: 1\ntps: n/a\n", 2, NAN}, /* not an earlier one instead */
    {"t=tps: ([0-9.]+)?", "tps: x\n", 1, NAN},
    {"t=tps: ([0-9.]+)", "nothing\n", 0, NAN},
    {"t=tps: ([0-9.]+)", "", 0, NAN},
    {"t=^([0-9]+)", "12 13\n", 1, 12}, /* the line begins once */
    {"t=([0-9]*)", "a\n", 2, NAN},     /* of nothing, and no end of it */
    {"a=b=([0-9]+)", "b=7\n", 1, 7},
};

static void test_printed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(printed); i++) {
        for (size_t step = 1; step < 4; step += 2) { /* in pieces of any length */
            struct nt_figure_spec s = {.open = false};
            struct nt_figure_found *f = calloc(1, sizeof(*f));
            size_t len = strlen(printed[i].text);
            assert_non_null(f);
            assert_int_equal(nt_figure_open(printed[i].spec, &s, NULL), 0);
            for (size_t at = 0; at < len; at += step) {
                nt_figure_feed(&s, printed[i].text + at, len - at < step ? len - at : step, f);
            }
            nt_figure_end(&s, f);
            if (f->matches != printed[i].matches || f->number != !isnan(printed[i].value) ||
                (f->number && f->last.value != printed[i].value)) {
                fail_msg("%s: %u matches, '%s'", printed[i].spec, f->matches, f->text);
            }
            nt_figure_close(&s);
            free(f);
        }
    }
}

static void test_long_lines(void **state)
{
    struct nt_figure_spec s = {.open = false};
    struct nt_figure_found *f = calloc(1, sizeof(*f));
    static char text[5 * NT_FIGURE_LINE];
    (void)state;

    assert_non_null(f);
    memset(text, 'x', sizeof(text));
    text[7] = '\0'; /* a program may print any byte */
    memcpy(text + 2 * NT_FIGURE_LINE, "tps: 5", 6);
    assert_int_equal(nt_figure_open("t=tps: ([0-9]+)", &s, NULL), 0);
    nt_figure_feed(&s, text, sizeof(text), f);
    nt_figure_end(&s, f);
    assert_int_equal(f->matches, 1);
    assert_true(f->number && f->last.value == 5);
    nt_figure_close(&s);
    free(f);
}

static void test_specs(void **state)
{
    static const char *const bad[] = {"", "t", "=x(.)", "t=", "t=[0-9]+", "t=([0-9", "t=("};
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct nt_figure_spec s = {.open = false};
        struct nt_err err = {.code = NT_OK};
        int rc = nt_figure_open(bad[i], &s, &err);
        if (rc != -NT_E_INVAL || err.msg[0] == '\0') {
            fail_msg("'%s' was taken", bad[i]);
        }
        nt_figure_close(&s);
    }
}

/* ---- pairs ---- */

static struct nt_ab *pairs(bool higher, double slower, const double *without, const double *with,
                           size_t n)
{
    struct nt_ab *a = calloc(1, sizeof(*a));
    assert_non_null(a);
    a->higher = higher;
    a->slower = slower;
    (void)snprintf(a->name, sizeof(a->name), "tok/s");
    for (size_t i = 0; i < n; i++) {
        struct nt_ab_pair *p = &a->v[a->n++];
        p->first = nt_ab_first((unsigned)i, 0);
        p->run[NT_AB_WITHOUT].value = without[i];
        p->run[NT_AB_WITH].value = with[i];
        (void)snprintf(p->run[NT_AB_WITH].applied, sizeof(p->run[0].applied), "applied in 4 of 4");
        if (isnan(with[i])) {
            (void)snprintf(p->run[NT_AB_WITH].why, sizeof(p->run[0].why), "exit code 3");
        }
    }
    return a;
}

static const struct {
    const char *name;
    bool higher;
    double slower, without[6], with[6]; /* NAN: that run does not count */
    size_t n, counted;
    enum nt_ab_verdict verdict;
    const char *says;
} answers[] = {
    {"faster",
     true,
     0,
     {100, 101, 99, 100},
     {110, 111.1, 108.9, 110},
     4,
     4,
     NT_AB_FASTER,
     "faster by 10.0 % [10.0, 10.0]"},
    {"less is better",
     false,
     0,
     {10, 10.1, 9.9},
     {8, 8.08, 7.92},
     3,
     3,
     NT_AB_FASTER,
     "faster by 20.0 %"},
    {"slower", true, 0, {100, 101, 100}, {90, 91, 90}, 3, 3, NT_AB_SLOWER, "slower by 10.0 % ["},
    {"slower in seconds",
     false,
     0,
     {10, 10, 10},
     {12, 12.1, 11.9},
     3,
     3,
     NT_AB_SLOWER,
     "slower by 20.0 % ["},
    {"noise",
     true,
     0,
     {100, 80, 120, 95},
     {101, 99, 104, 97},
     4,
     4,
     NT_AB_CANNOT_TELL,
     "more pairs would tell"},
    {"no slower",
     true,
     0.03,
     {100, 101, 100, 99},
     {100, 100.5, 100.4, 99},
     4,
     4,
     NT_AB_NO_SLOWER,
     "no slower than 3.0 %"},
    {"slower by less than matters",
     true,
     0.03,
     {100, 100, 100},
     {99, 99.01, 99},
     3,
     3,
     NT_AB_NO_SLOWER,
     "no slower than 3.0 %: -1.0 %"},
    {"slower by more",
     true,
     0.03,
     {100, 100, 100},
     {95, 95.1, 95},
     3,
     3,
     NT_AB_SLOWER,
     "slower by 5.0 %"},
    {"all the same",
     true,
     0,
     {100, 100, 100},
     {100, 100, 100},
     3,
     3,
     NT_AB_CANNOT_TELL,
     "all figures are the same"},
    {"a pair is lost",
     true,
     0,
     {100, 101, 99, 100},
     {110, NAN, 108.9, 110},
     4,
     3,
     NT_AB_FASTER,
     "faster by 10.0 %"},
    {"too few",
     true,
     0,
     {100, 100},
     {110, NAN},
     2,
     1,
     NT_AB_CANNOT_TELL,
     "cannot tell: 1 pair of 2 counts, at least 2"},
    {"none", true, 0, {0}, {0}, 0, 0, NT_AB_CANNOT_TELL, "cannot tell: 0 pairs of 0 count"},
};

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(answers); i++) {
        struct nt_ab *a = pairs(answers[i].higher, answers[i].slower, answers[i].without,
                                answers[i].with, answers[i].n);
        struct nt_ab_answer x;
        struct nt_buf out;
        json_t *o;
        nt_ab_judge(a, &x);
        nt_buf_init(&out, 65536);
        nt_ab_sentence(a, &x, &out);
        if (x.verdict != answers[i].verdict || x.counted != answers[i].counted ||
            strstr(nt_buf_str(&out), answers[i].says) == NULL) {
            fail_msg("%s: %s", answers[i].name, nt_buf_str(&out));
        }
        o = nt_ab_json(a, &x);
        assert_non_null(o);
        assert_string_equal(nt_json_opt_str(o, "answer", ""), nt_buf_str(&out));
        assert_int_equal(json_array_size(json_object_get(o, "pairs")), answers[i].n);
        nt_ab_text(a, &x, &out);
        assert_false(out.failed);
        assert_true((strstr(nt_buf_str(&out), "does not count") != NULL) ==
                    (answers[i].counted < answers[i].n));
        json_decref(o);
        nt_buf_done(&out);
        free(a);
    }
}

static void answer_to_steps(double with, double step, struct nt_ab_answer *ret, struct nt_buf *said)
{
    const double a[] = {82, 82, 82, 82}, b[] = {with, with, with, with};
    struct nt_ab *x = pairs(true, 0, a, b, 4);

    for (size_t i = 0; i < x->n; i++) {
        x->v[i].run[NT_AB_WITHOUT].step = x->v[i].run[NT_AB_WITH].step = step;
    }
    nt_ab_judge(x, ret);
    nt_buf_clear(said);
    nt_ab_sentence(x, ret, said);
    free(x);
}

/* 82.49 and 82.51 are always printed as 82 and 83: that is no gain of a percent, however often. */
static void test_few_digits(void **state)
{
    struct nt_ab_answer x;
    struct nt_buf said;
    (void)state;

    nt_buf_init(&said, 4096);
    answer_to_steps(83, 1, &x, &said);
    assert_int_equal(x.verdict, NT_AB_CANNOT_TELL);
    assert_true(x.coarse && x.more == 0 && x.lo <= 0 && x.hi > 0.024 && x.told > 0.012);
    assert_non_null(strstr(nt_buf_str(&said), "figures with more digits would tell more"));
    answer_to_steps(82, 1, &x, &said);
    assert_true(x.verdict == NT_AB_CANNOT_TELL && x.coarse && x.lo < -0.01 && x.hi > 0.01);
    answer_to_steps(84, 1, &x, &said);
    assert_int_equal(x.verdict, NT_AB_FASTER);
    assert_non_null(strstr(nt_buf_str(&said), "faster by 2.4 % [1.2, 3.7]"));
    answer_to_steps(83, 0.1, &x, &said);
    assert_true(x.verdict == NT_AB_FASTER && !x.coarse);
    nt_buf_done(&said);
}

/* So many more pairs as are named do tell, most of the time: half the noise at four times as many.
 */
static void test_more_pairs(void **state)
{
    static const double without[] = {100, 100, 100, 100, 100, 100};
    static const double with[] = {104, 98, 105, 97, 104, 99};
    struct nt_ab *a = pairs(true, 0, without, with, 6);
    struct nt_ab_answer x;
    (void)state;

    nt_ab_judge(a, &x);
    assert_int_equal(x.verdict, NT_AB_CANNOT_TELL);
    assert_true(x.told > 0.03 && x.told < 0.08);
    assert_true(x.more > 10 && x.more < 200);
    assert_true(x.then > 0.005 && x.then < x.told);
    free(a);
}

static void test_order(void **state)
{
    static const char *const order = "ABBABAABBAABABBA";
    char got[17] = "", other[17] = "";
    int with_first = 0;
    (void)state;

    for (unsigned i = 0; i < 8; i++) {
        enum nt_ab_arm first = nt_ab_first(i, 0);
        got[2 * i] = first == NT_AB_WITHOUT ? 'A' : 'B';
        got[2 * i + 1] = first == NT_AB_WITHOUT ? 'B' : 'A';
        other[i] = nt_ab_first(i, 1) == first ? 'x' : '.';
        with_first += first == NT_AB_WITH;
    }
    assert_string_equal(got, order);
    assert_string_equal(other, "........");
    assert_int_equal(with_first, 4);
}

static void test_hopeless(void **state)
{
    static const double without[] = {1, 1, 1, 1}, with[] = {NAN, 1, NAN, NAN};
    static const bool expect[] = {false, true, false, true, true};
    (void)state;
    for (size_t n = 0; n <= 4; n++) {
        struct nt_ab *a = pairs(true, 0, without, with, n);
        assert_int_equal(nt_ab_hopeless(a), expect[n]);
        free(a);
    }
}

static json_t *manifest(const char *text)
{
    json_t *o = json_loads(text, 0, NULL);
    assert_non_null(o);
    return o;
}

/* Clocks and health are news; the profile and its variables are the purpose. */
static void test_moved(void **state)
{
    json_t *without =
        manifest("{\"profile\":null,\"variables\":{},\"machine\":{\"health\":[],\"clocks\":"
                 "[{\"slowed\":[],\"sm_mhz\":1980}]}}");
    json_t *with = manifest(
        "{\"profile\":{\"hash\":\"ab\",\"product\":\"table\"},\"variables\":"
        "{\"NCCL_BUFFSIZE\":\"8\"},\"machine\":{\"health\":[],\"clocks\":"
        "[{\"slowed\":[\"hw_thermal\"],\"sm_mhz\":345}]},\"applied\":[{\"name\":\"NCCL_BUFFSIZE\","
        "\"how\":\"set\",\"value\":\"8\"},{\"name\":\"NCCL_PROTO\",\"how\":\"kept\",\"value\":"
        "\"LL\",\"before\":\"Simple\"},{\"name\":\"NCCLTUNE_TABLE\",\"how\":\"same\"}]}");
    struct nt_ab *a = calloc(1, sizeof(*a));
    (void)state;

    assert_non_null(a);
    assert_int_equal(nt_ab_compare(a, without, with, NULL), 0);
    assert_int_equal(nt_ab_compare(a, without, with, NULL), 0);
    assert_int_equal(a->nmoved, 1);
    assert_string_equal(a->moved[0].what, "clock");
    assert_non_null(strstr(a->moved[0].text, "hw_thermal"));
    assert_int_equal(a->moved[0].pairs, 2);
    assert_string_equal(a->common, "NCCL_PROTO=Simple");
    json_decref(without);
    json_decref(with);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),    cmocka_unit_test(test_steps),
        cmocka_unit_test(test_few_digits), cmocka_unit_test(test_printed),
        cmocka_unit_test(test_long_lines), cmocka_unit_test(test_specs),
        cmocka_unit_test(test_answers),    cmocka_unit_test(test_more_pairs),
        cmocka_unit_test(test_order),      cmocka_unit_test(test_hopeless),
        cmocka_unit_test(test_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
