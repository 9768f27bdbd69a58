/* The page and its plots: escaping, which points are drawn, and inputs that nobody would make
 * kindly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>
#include "tests/json/sample.h"
#include "tuner/report/markup.h"
#include "tuner/report/report.h"

#define BAD "\xef\xbf\xbd"

static void test_markup(void **state)
{
    static const struct {
        const char *name, *in, *out;
        size_t most;
    } rows[] = {
        {"plain", "ring/ll/2", "ring/ll/2", 99},
        {"all five", "<a b='c' d=\"e\">&", "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;", 99},
        {"an entity is text", "&lt;", "&amp;lt;", 99},
        {"end of a CDATA", "]]>", "]]&gt;", 99},
        {"utf-8 stays", "12 µs", "12 µs", 99},
        {"controls",
         "a\x01\x7f"
         "b\n\t",
         "a" BAD BAD "b\n\t", 99},
        {"lone continuation", "a\x80z", "a" BAD "z", 99},
        {"cut sequence", "a\xe2\x82", "a" BAD BAD, 99},
        {"overlong", "\xc0\xaf", BAD BAD, 99},
        {"surrogate", "\xed\xa0\x80", BAD BAD BAD, 99},
        {"above the last", "\xf4\x90\x80\x80", BAD BAD BAD BAD, 99},
        {"right to left override",
         "a\xe2\x80\xae"
         "b",
         "a" BAD "b", 99},
        {"cut by characters", "µµµµ", "µµ…", 2},
        {"exactly as long", "µµ", "µµ", 2},
        {"NULL", NULL, "", 9},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_buf b;
        nt_buf_init(&b, 4096);
        nt_markup_cut(&b, rows[i].in, rows[i].most);
        if (strcmp(nt_buf_str(&b), rows[i].out) != 0) {
            fail_msg("%s: '%s'", rows[i].name, nt_buf_str(&b));
        }
        nt_buf_done(&b);
    }
}

/* Renders, and checks what holds for every page. The caller ends *out. */
static void render(const struct nt_report_in *in, struct nt_buf *out)
{
    static const char *const never[] = {"<script", "javascript:", "http://", "https://", "<img",
                                        "<link",   "@import",     "url(",    "onclick",  "\"nan",
                                        " nan",    " inf",        "-inf",    "Lnan",     "Mnan"};
    struct nt_err err = {0};

    nt_buf_init(out, NT_REPORT_MAX_BYTES);
    if (nt_report_html(in, out, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        const char *at = strstr(out->data, never[i]);
        if (at != NULL) {
            fail_msg("'%s' in %.80s", never[i], at);
        }
    }
    assert_non_null(strstr(out->data, "default-src 'none'"));
    assert_string_equal(out->data + out->len - 8, "</html>\n");
}

static void test_pages(void **state)
{
    static const struct {
        const char *name;
        struct nt_profile *(*make)(void);
        const char *says[8], *not ;
    } rows[] = {
        {"sample",
         nt_sample_profile,
         {"Example GPU, 8 ranks on 1 node", "+25.0 %", "13.7 µs", "NCCL_NVLS_ENABLE=0",
          "slower in eager mode", "ring/ll/4", "LL128 is not available here, takes 30M",
          "all_reduce_perf"},
         "Functional rig"},
        {"empty", nt_sample_empty, {"The defaults win here", "all_reduce, eager"}, "largest gain"},
        {"nothing", nt_profile_new, {"No class was measured", "unknown GPU"}, "<figure"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_profile *p = rows[i].make();
        struct nt_buf out;
        assert_non_null(p);
        if (p->ranks > 0) {
            assert_int_equal(nt_profile_finish(p, NULL), 0);
        }
        render(&(struct nt_report_in){.profile = p, .source = rows[i].name}, &out);
        for (size_t k = 0; k < 8 && rows[i].says[k] != NULL; k++) {
            if (strstr(out.data, rows[i].says[k]) == NULL) {
                fail_msg("%s: lacks '%s'", rows[i].name, rows[i].says[k]);
            }
        }
        assert_null(strstr(out.data, rows[i].not ));
        nt_buf_done(&out);
        nt_profile_free(p);
    }
}

static void test_rigs_are_marked(void **state)
{
    (void)state;
    for (int rig = 0; rig < NT_RIG_COUNT; rig++) {
        struct nt_profile *p = nt_sample_empty();
        struct nt_buf out;
        p->rig = rig;
        render(&(struct nt_report_in){.profile = p}, &out);
        assert_int_equal(strstr(out.data, "Functional rig") != NULL, rig != NT_RIG_NCCL);
        nt_buf_done(&out);
        nt_profile_free(p);
    }
}

/* A mode that is served because the other proved the gain is no proof of its own. */
static void test_claims(void **state)
{
    static const struct {
        double p;
        const char *proved, *best;
        bool served;
    } rows[] = {{0.0005, "<dd>4</dd>", "<dd>25.0 % less", false},
                {0.4, "<dd>3</dd>", "<dd>15.4 % less", true},
                {NAN, "<dd>3</dd>", "<dd>15.4 % less", true}};
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_profile *p = nt_sample_profile();
        struct nt_buf out;
        p->product[NT_TABLE].classes.v[1].p_adjusted = rows[i].p;
        render(&(struct nt_report_in){.profile = p}, &out);
        assert_non_null(strstr(out.data, rows[i].proved));
        assert_non_null(strstr(out.data, rows[i].best));
        assert_int_equal(strstr(out.data, "not proved alone") != NULL, rows[i].served);
        nt_buf_done(&out);
        nt_profile_free(p);
    }
}

#define HOSTILE "</title><script>alert(\"1\")</script>&\x01\xff'<img src=x onerror=y>"

static void test_hostile(void **state)
{
    struct nt_profile *p = nt_sample_profile();
    struct nt_profile_class *c;
    struct nt_report_arm arms[] = {
        {NT_ALL_REDUCE, NT_EAGER, 14336, HOSTILE, 29000, 28000, 31000, false, ""},
        {NT_ALL_REDUCE, NT_EAGER, 14336, HOSTILE "2", NAN, NAN, NAN, true, HOSTILE},
        {NT_ALL_REDUCE, NT_GRAPH, 0, "zero", 1, 1, 1, false, ""},
        {NT_ALL_REDUCE, NT_GRAPH, UINT64_MAX, "huge", 1e300, -1e300, INFINITY, false, ""},
        {NT_ALL_REDUCE, NT_GRAPH, 1048576, "default", 60000, -5, 1e12, false, ""}};
    const struct nt_report_fact facts[] = {{HOSTILE, HOSTILE}};
    struct nt_buf out;
    (void)state;

    p->created = p->tool = p->job = p->placement = HOSTILE;
    p->identity.id = p->identity.mask = HOSTILE;
    p->stack.nccl = p->stack.nccl_sha256 = p->stack.cuda = p->stack.driver = p->stack.gpu = HOSTILE;
    p->delivery.file = HOSTILE;
    nt_profile_assign(p, &p->site, HOSTILE, HOSTILE);
    *NT_PROFILE_ADD(p, &p->health) = HOSTILE;
    *NT_PROFILE_ADD(p, &p->modes) = HOSTILE;
    *NT_PROFILE_ADD(p, &p->not_checked) = (struct nt_noted){HOSTILE, HOSTILE, 1e300};
    c = &p->product[NT_TABLE].classes.v[0];
    c->setting = HOSTILE;
    c->gain = -1e300;
    c->interval[0] = -1e300;
    c->interval[1] = 1e300;
    *NT_PROFILE_ADD(p, &c->reproduce) = HOSTILE;
    *NT_PROFILE_ADD(p, &c->reproduce) = HOSTILE;
    *NT_PROFILE_ADD(p, &c->runners_up) = (struct nt_runner_up){HOSTILE, 29000};
    *NT_PROFILE_ADD(p, &c->rejected) = (struct nt_noted){NULL, NULL, NAN};
    for (size_t narms = 0; narms <= 5; narms += 5) {
        render(&(struct nt_report_in){.profile = p,
                                      .source = HOSTILE,
                                      .arms = arms,
                                      .narms = narms,
                                      .facts = facts,
                                      .nfacts = 1,
                                      .drawing = HOSTILE},
               &out);
        nt_buf_done(&out);
    }
    nt_profile_free(p);
}

/* As many classes as a profile can say, and a setting of its own for each runner-up. */
static void test_huge(void **state)
{
    struct nt_profile *p = nt_profile_new();
    struct nt_buf out;
    (void)state;

    p->product[NT_TABLE].present = true;
    for (unsigned i = 0; i < 20000; i++) {
        struct nt_profile_class *c = nt_profile_add_class(p, NT_TABLE);
        c->coll = (int)(i % NT_COLL_COUNT);
        c->mode = (int)(i % NT_MODE_COUNT);
        c->bytes = 256 + 4ULL * i;
        c->verdict = (int)(i % NT_VD_COUNT);
        c->default_ns = 1000 + i;
        c->tuned_ns = 900 + i;
        c->setting = "ring/ll";
        *NT_PROFILE_ADD(p, &c->runners_up) =
            (struct nt_runner_up){nt_profile_textf(p, "s%u", i), 950 + i};
        *NT_PROFILE_ADD(p, &c->rejected) =
            (struct nt_noted){"tree/ll", nt_profile_textf(p, "reason %u", i % 50), NAN};
    }
    render(&(struct nt_report_in){.profile = p}, &out);
    assert_non_null(strstr(out.data, "Only the first"));
    nt_buf_done(&out);
    nt_profile_free(p);
}

static void test_too_large_is_said(void **state)
{
    struct nt_profile *p = nt_sample_profile();
    struct nt_buf out;
    struct nt_err err = {0};
    (void)state;

    nt_buf_init(&out, 1000);
    assert_int_equal(nt_report_html(&(struct nt_report_in){.profile = p}, &out, &err), -NT_E_INVAL);
    assert_non_null(strstr(err.msg, "above"));
    nt_buf_done(&out);
    nt_profile_free(p);
}

static void test_figures(void **state)
{
    struct nt_profile *p = nt_sample_profile();
    const struct nt_report_arm arms[] = {
        {NT_ALL_REDUCE, NT_GRAPH, 14336, "default", 14000, 13000, 15000, false, ""},
        {NT_ALL_REDUCE, NT_GRAPH, 14336, "near", 15000, NAN, NAN, false, ""},
        {NT_ALL_REDUCE, NT_GRAPH, 1048576, "near", 62000, NAN, NAN, false, ""},
        {NT_ALL_REDUCE, NT_GRAPH, 14336, "one", 14500, NAN, NAN, false, ""},
        {NT_ALL_REDUCE, NT_GRAPH, 14336, "best", 11000, NAN, NAN, false, ""},
        {NT_ALL_REDUCE, NT_GRAPH, 14336, "fourth", 16000, NAN, NAN, false, ""},
        {NT_ALL_REDUCE, NT_GRAPH, 14336, "far", 40000, NAN, NAN, false, ""},
        {NT_ALL_REDUCE, NT_GRAPH, 14336, "out", 9000, NAN, NAN, true, "wrong"},
    };
    static const char *const names[] = {
        "default", "as found", "tuned (table)", "tuned (static)", "near", "best", "one"};
    struct nt_figures f;
    const struct nt_figure *g;
    (void)state;

    assert_int_equal(
        nt_figures_new(&(struct nt_report_in){.profile = p, .arms = arms, .narms = 8}, &f, NULL),
        0);
    assert_int_equal(f.n, 2);
    g = &f.v[1];
    assert_int_equal(g->mode, NT_GRAPH);
    assert_int_equal(g->nseries, 7);
    for (size_t i = 0; i < 7; i++) {
        assert_string_equal(g->series[i].v[0].name, names[i]);
    }
    /* The profile's time, with the search's spread around it. */
    assert_true(fabs(g->series[0].v[0].ns - 13500) < 0.1);
    assert_true(fabs(g->series[0].v[0].lo_ns - 13500.0 * 13 / 14) < 0.1);
    /* A class that stays with the default has no tuned point; the interval is that of the gain. */
    assert_int_equal(g->series[2].n, 2);
    assert_true(fabs(g->series[2].v[0].hi_ns - 13500 * (1 - g->series[2].v[0].gain_lo)) < 1);
    assert_true(g->series[2].v[0].published);
    nt_figures_free(&f);
    nt_profile_free(p);
}

static void test_svg_alone(void **state)
{
    struct nt_profile *p = nt_sample_profile();
    struct nt_figures f;
    struct nt_buf out;
    (void)state;

    assert_int_equal(nt_figures_new(&(struct nt_report_in){.profile = p}, &f, NULL), 0);
    nt_buf_init(&out, 1 << 20);
    nt_figure_svg(&f.v[1], true, &out);
    assert_non_null(strstr(out.data, "xmlns=\"http://www.w3.org/2000/svg\""));
    assert_non_null(strstr(out.data, "<style>"));
    assert_non_null(strstr(out.data, "ring/ll/4"));
    assert_non_null(strstr(out.data, "all_reduce, graph</text>"));
    /* 14K and 64M have a table row, 1M between them has not: two pieces, not one across. */
    assert_non_null(strstr(out.data, "<g class=\"s2\">\n<path class=\"line\" d=\"M"));
    assert_null(memchr(strstr(out.data, "<g class=\"s2\">\n"), 'L', 60));
    nt_buf_done(&out);
    nt_figures_free(&f);
    nt_profile_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_markup),    cmocka_unit_test(test_pages),
        cmocka_unit_test(test_hostile),   cmocka_unit_test(test_rigs_are_marked),
        cmocka_unit_test(test_huge),      cmocka_unit_test(test_too_large_is_said),
        cmocka_unit_test(test_claims),    cmocka_unit_test(test_figures),
        cmocka_unit_test(test_svg_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
