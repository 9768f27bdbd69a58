#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tuner/import/table.h"

#define A(n, v)                                                                                    \
    {                                                                                              \
        .name = (n), .value = (v), .sd = -1, .repeats = 1                                          \
    }
#define AS(n, v, s, r)                                                                             \
    {                                                                                              \
        .name = (n), .value = (v), .sd = (s), .repeats = (r)                                       \
    }

struct decide_case {
    const char *name;
    struct nt_arm arms[4];
    size_t n;
    bool higher;
    int best, second;
    double margin_pct;
    enum nt_verdict verdict;
};

static const struct decide_case decisions[] = {
    {"winner", {A("a", 16), A("b", 10), A("c", 17)}, 3, false, 1, 0, 60, NT_WINNER},
    {"equal values keep their order", {A("a", 19), A("b", 19)}, 2, false, 0, 1, 0, NT_TIE},
    {"under two percent", {A("a", 100), A("b", 101.9)}, 2, false, 0, 1, 1.9, NT_TIE},
    {"two percent is a win", {A("a", 9.471), A("b", 9.664)}, 2, false, 0, 1, 2.038, NT_WINNER},
    {"bandwidth", {A("a", 7.7), A("b", 8.46)}, 2, true, 1, 0, 9.87, NT_WINNER},
    {"noise covers it",
     {AS("a", 100, 20, 3), AS("b", 110, 20, 3)},
     2,
     false,
     0,
     1,
     10,
     NT_NO_WINNER},
    {"noise does not cover it",
     {AS("a", 100, 0.5, 3), AS("b", 110, 0.5, 3)},
     2,
     false,
     0,
     1,
     10,
     NT_WINNER},
    {"repeats, and too near",
     {AS("a", 100, 0.1, 3), AS("b", 101, 0.1, 3)},
     2,
     false,
     0,
     1,
     1,
     NT_NO_WINNER},
    {"one repeat proves nothing",
     {AS("a", 100, 0, 1), AS("b", 110, 0, 1)},
     2,
     false,
     0,
     1,
     10,
     NT_NO_WINNER},
    {"one library, two labels", {A("pynccl", 100), A("torch", 120)}, 2, false, 0, 1, 20, NT_TIE},
    {"less than a launch", {A("a", 0.5), A("b", 9)}, 2, false, 0, 1, 1700, NT_OUTLIER},
    {"alone", {A("a", 1)}, 1, false, 0, -1, NAN, NT_ALONE},
    {"nobody", {A("a", 1)}, 0, false, -1, -1, NAN, NT_ALONE},
};

static void test_decide(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(decisions) / sizeof(decisions[0]); i++) {
        const struct decide_case *c = &decisions[i];
        struct nt_decision d;
        nt_decide(c->arms, c->n, c->higher, &d);
        if (d.best != c->best || d.second != c->second || d.verdict != c->verdict ||
            isnan(d.margin_pct) != isnan(c->margin_pct) ||
            fabs(d.margin_pct - c->margin_pct) > 0.01) {
            fail_msg("%s: %d %d %f %s", c->name, d.best, d.second, d.margin_pct,
                     nt_verdict_names[d.verdict]);
        }
    }
}

static void test_library(void **state)
{
    static const char *const rows[][2] = {{"PyNccl", "nccl"},
                                          {"torch.distributed", "nccl"},
                                          {"torch (NCCL)", "nccl"},
                                          {"nccl_default", "nccl"},
                                          {"vLLM PyNCCL", "nccl"},
                                          {"vllm_symm_mem", "vllm_symm_mem"},
                                          {"baseline", "baseline"},
                                          {"torch_symm_mem", "torch_symm_mem"},
                                          {"nccl_graph_xml", "nccl_graph_xml"},
                                          {"dist_multimem", "dist_multimem"},
                                          {"default", "default"},
                                          {"", ""}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_string_equal(nt_backend_library(rows[i][0]), rows[i][1]);
    }
}

static void test_curve(void **state)
{
    static const double t[] = {33, 34, 54, 35, 100}, dip[] = {30, 31, 12, 33};
    static const bool spikes[] = {false, false, true, false, false};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        bool spike = false, d = false;
        nt_curve_flags(t, 5, i, &spike, &d);
        assert_int_equal(spike, spikes[i]);
        assert_false(d); /* what follows a spike is no dip */
    }
    for (size_t i = 0; i < 4; i++) {
        bool spike = false, d = false;
        nt_curve_flags(dip, 4, i, &spike, &d);
        assert_int_equal(d, i == 2);
    }
}

#define H               "collective,gpus,ranks,size_bytes,backend,time_us\n"
#define R(size, arm, v) "allreduce,G,4," #size "," arm "," #v "\n"

struct table_case {
    const char *name, *text;
    size_t rows;
    const char *says; /* in the CSV of verdicts */
    const char *note; /* or NULL */
};

static const struct table_case tables[] = {
    {"long form", H R(1024, "a", 10) R(1024, "b", 12) R(2048, "a", 20), 2,
     "1024,a,10,b,12,20.0,winner", NULL},
    {"byte order mark, semicolons, CRLF",
     "\xef\xbb\xbfsize;backend;time_us\r\n1K;a;10\r\n1K;b;12\r\n", 1, "1024,a,10,b,12,20.0,winner",
     NULL},
    {"quotes",
     "size,backend,gpus,time_us\n1024,\"a,1\",\"G \"\"x\"\"\",10\n1024,b,\"G \"\"x\"\"\",12\n", 1,
     "1024,\"a,1\",10,b,12,20.0,winner", NULL},
    {"wide form", "size_bytes,nccl_us,custom_us\n1024,12,10\n", 1,
     "1024,custom,10,nccl,12,20.0,winner", NULL},
    {"wide form of bandwidths", "n,size_bytes,busbw_gbps,busbw_nvls_off\n8,1024,120,100\n", 1,
     "1024,default,120,nvls_off,100,20.0,winner", NULL},
    {"markdown", "| size | a (us) | b (us) |\n|---|---|---|\n| 1K | 10 | 12 |\n", 1,
     "1024,a,10,b,12,20.0,winner", NULL},
    {"a micro sign, differences, marks of Markdown",
     "| Size | A (\xc2\xb5s) | B (\xce\xbcs) | \xce\x94 time | Improvement |\n|:-:|-:|-:|-:|---|\n"
     "| 1 KB | **10** | `12` | +2 | 1.2x |\n",
     1, "1024,a,10,b,12,20.0,winner", NULL},
    {"units in the cells",
     "| size | a time | b time | a busbw |\n|---|---|---|---|\n| 1 KB | 10 \xc2\xb5s | 0.012 ms | "
     "5 GB/s |\n",
     1, "1024,a,10,b,12,20.0,winner", NULL},
    {"a unit of another kind", "| size | a busbw | b busbw |\n| 1 KB | 10 GB/s | 12 us |\n", 1,
     ",,,alone", "bad-cell"},
    {"decimal commas", "Size;backend;time_us\n1K;a;10,125\n1K;b;12,15\n", 1,
     "1024,a,10.125,b,12.15,20.0,winner", NULL},
    {"thousands",
     "size,backend,time_us\n\"1,048,576\",a,\"1,000.5\"\n\"1,048,576\",b,\"1,200.6\"\n", 1,
     "1048576,a,1000.5,b,1200.6,20.0,winner", NULL},
    {"sizes in the name", "Msg Size (KiB),nccl us,custom us\n1,12,10\n", 1,
     "1024,custom,10,nccl,12,20.0,winner", NULL},
    {"aligned columns below a title, a shape with a comma",
     "Benchmark of size, time and luck\nWorld Size: 4\n================\n"
     "Tensor Shape         Tensor Size     a (us)    b (us)    Best (vs b)\n"
     "(32, 8192)           1 KB            10.00     12.00     a (1.20x)\n================\nDone, "
     "in 3 s\n",
     1, "1024,a,10,b,12,20.0,winner", NULL},
    {"a frame",
     "+------+--------+--------+\n\xe2\x94\x82 size \xe2\x94\x82 a (us) \xe2\x94\x82 b (us) "
     "\xe2\x94\x82\n"
     "\xe2\x94\x82 1 KB \xe2\x94\x82 10     \xe2\x94\x82 12     "
     "\xe2\x94\x82\n+------+--------+--------+\n",
     1, "1024,a,10,b,12,20.0,winner", NULL},
    {"no unit, too short for microseconds, a column of words",
     "| Tensor Size | a | b | Result |\n|---|---|---|---|\n| 1 MiB | 0.010 | 0.012 | a beats b "
     "|\n| 512 MiB | 1.5 | 1.2 | b beats a |\n",
     2, "1048576,a,10,b,12,20.0,winner", "inferred"},
    {"two tables of one text",
     "TP=4\n\nSize    a us   b us\n--------------------\n1 KB    10     12\n\nWorld Size: 8\nSize  "
     "  b us   a us   c us\n1 KB    10     12    11\n",
     2, "\"8 ranks, table 2\",1024,b,10,c,11,10.0,winner", NULL},
    {"another metric below", "size,a us,b us\n1K,10,12\nsize,a busbw,b busbw\n1K,99,98\n", 1,
     "1024,a,10,b,12,20.0,winner", "not-compared"},
    {"a mean and its deviation", "size,backend,mean_us\n1K,a,10 \xc2\xb1 0.5\n1K,b,12+-1\n", 1,
     "1024,a,10,b,12,20.0,winner", NULL},
    {"milliseconds", "size,backend,time_ms\n1024,a,0.010\n1024,b,0.012\n", 1,
     "1024,a,10,b,12,20.0,winner", NULL},
    {"algorithm and protocol name the arm",
     "collective,size_bytes,algorithm,protocol,channels,bandwidth_gbps,latency_us\n"
     "allreduce,1024,tree,ll,2,9,12\nallreduce,1024,ring,ll,4,8,10\n",
     1, "1024,ring/ll/4,10,tree/ll/2,12,20.0,winner", NULL},
    {"ranks are never mixed", H "allreduce,G,4,1024,a,10\nallreduce,G,8,1024,b,12\n", 2, ",,,alone",
     NULL},
    {"missing and broken cells",
     H R(1024, "a", 10) R(1024, "b", 12) R(1024, "c", -) R(1024, "d", fast), 1,
     "1024,a,10,b,12,20.0,winner", "bad-cell"},
    {"listed twice", H R(1024, "a", 10) R(1024, "b", 12) R(1024, "a", 11), 1,
     "1024,a,10,b,12,20.0,winner", "duplicate-entry"},
    {"an outlier makes the gain",
     H R(64, "a", 32) R(64, "n", 34) R(128, "a", 37) R(128, "n", 54) R(256, "a", 40)
         R(256, "n", 35),
     3, "128,a,37,n,54,45.9,not_credible", NULL},
    {"two runs of one setting",
     H R(4096, "x", 10) R(4096, "y", 13.8) R(65536, "x", 40) R(65536, "y", 29)
         R(1073741824, "x", 1000) R(1073741824, "y", 1001),
     3, "4096,x,10,y,13.8,38.0,no_winner", NULL},
    {"drift",
     "size,backend,run,time_us\n1024,a,1,10\n1024,a,2,10\n1024,a,3,40\n1024,a,4,41\n1024,a,5,40\n"
     "1024,b,1,60\n1024,b,2,61\n1024,b,3,60\n1024,b,4,60\n1024,b,5,60\n",
     1, ",no_winner,", "drift"},
};

static void test_tables(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        const struct table_case *c = &tables[i];
        struct nt_table *t = NULL;
        struct nt_verdicts v = {0};
        struct nt_err e = {0};
        struct nt_buf b;
        bool noted = c->note == NULL;
        nt_buf_init(&b, 1 << 20);
        if (nt_table_parse("t", c->text, strlen(c->text), &t, &e) != 0 ||
            nt_table_decide(t, &v, &e) != 0) {
            fail_msg("%s: %s", c->name, e.msg);
        }
        nt_verdicts_csv(t, &v, &b);
        if (v.n != c->rows || strstr(nt_buf_str(&b), c->says) == NULL) {
            fail_msg("%s: %zu rows:\n%s", c->name, v.n, nt_buf_str(&b));
        }
        for (size_t k = 0; k < t->notes.n && c->note != NULL; k++) {
            noted = noted || strcmp(nt_imp_note_name(t->notes.v[k].id), c->note) == 0;
        }
        if (!noted) {
            fail_msg("%s: no note %s", c->name, c->note);
        }
        nt_verdicts_done(&v);
        nt_table_free(t);
        nt_buf_done(&b);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {{"allreduce,0,65536,tree,simple,2,1,-1\n", "rules for NCCL's example tuner"},
                {"communicator_configs {\n}\n", "protobuf text"},
                {"# out-of-place\n", "nccl-tests"},
                {"<system version=\"1\">\n", "a topology file of NCCL"},
                {"#nccltune-recording=1\n#topology=<system version=\"1\">\n",
                 "a recording: use `import recording`"},
                {"{\"a\": 1}", "JSON"},
                {"backend,time_us\na,1\n", "no column of sizes"},
                {"size,backend\n1,a\n", "no column of times"},
                {"size,backend,time_us\n", "no row"},
                {"", "empty"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_table *t = NULL;
        struct nt_err e = {0};
        assert_int_equal(nt_table_parse("t", rows[i].text, strlen(rows[i].text), &t, &e),
                         -NT_E_INVAL);
        if (strstr(e.msg, rows[i].says) == NULL) {
            fail_msg("'%s': %s", rows[i].text, e.msg);
        }
    }
}

static struct nt_imp_file *log_of(const char *name, unsigned procs, double time)
{
    char text[1200];
    struct nt_imp_file *f = NULL;
    (void)snprintf(text, sizeof(text),
                   "# Collective test starting: all_reduce_perf\n"
                   "#  Rank  0 Group  0 Pid   11 on  alpha device  0 [0x01] G\n"
                   "#  Rank  1 Group  0 Pid   %u on  alpha device  1 [0x02] G\n"
                   "8192 2048 float sum -1 %.2f %.2f %.2f 0 %.2f %.2f %.2f 0\n"
                   "# Out of bounds values : 0 OK\n",
                   procs == 1 ? 11 : 12, time, 8.192 / time, 8.192 / time, time, 8.192 / time,
                   8.192 / time);
    assert_int_equal(nt_imp_read(name, text, strlen(text), &f, NULL), 0);
    return f;
}

static void test_runs(void **state)
{
    struct nt_imp_file *f[5] = {log_of("a-rep1", 2, 10), log_of("a-rep2", 2, 10.1),
                                log_of("b-rep1", 2, 12), log_of("b-rep2", 2, 12.1),
                                log_of("c", 1, 5)};
    const char *labels[] = {"a", "a", "b", "b", "c"};
    struct nt_compare_opts o = {0};
    struct nt_table *t = NULL;
    struct nt_verdicts v = {0};
    (void)state;
    assert_int_equal(nt_table_from_files(f, labels, 5, &o, &t, NULL), 0);
    assert_int_equal(nt_table_decide(t, &v, NULL), 0);
    assert_int_equal(v.n, 2); /* c has another launch shape: it stands alone */
    assert_int_equal(v.rows[0].narms, 2);
    assert_int_equal(v.rows[0].arms[0].repeats, 2);
    assert_int_equal(v.rows[0].decision.verdict, NT_WINNER);
    assert_int_equal(v.rows[1].decision.verdict, NT_ALONE);
    assert_int_equal(t->notes.n, 1);
    assert_non_null(strstr(t->notes.v[0].text, "launch shape"));
    nt_verdicts_done(&v);
    nt_table_free(t);
    t = NULL;
    o.across = true;
    assert_int_equal(nt_table_from_files(f, labels, 5, &o, &t, NULL), 0);
    assert_int_equal(nt_table_decide(t, &v, NULL), 0);
    assert_int_equal(v.n, 1);
    assert_non_null(strstr(t->notes.v[0].text, "although they should not"));
    nt_verdicts_done(&v);
    nt_table_free(t);
    for (size_t i = 0; i < 5; i++) {
        nt_imp_free(f[i]);
    }
}

static void test_labels(void **state)
{
    static const char *const rows[][2] = {{"/x/exp2-default-rep3.txt", "exp2-default"},
                                          {"a_run12.log", "a"},
                                          {"02-h100-16r-2.23.4.txt", "02-h100-16r-2.23.4"},
                                          {"rep1.txt", "rep1"},
                                          {"nccl-2.txt", "nccl-2"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char out[64];
        assert_string_equal(nt_label_of_file(rows[i][0], out, sizeof(out)), rows[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decide), cmocka_unit_test(test_library), cmocka_unit_test(test_curve),
        cmocka_unit_test(test_tables), cmocka_unit_test(test_refused), cmocka_unit_test(test_runs),
        cmocka_unit_test(test_labels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
