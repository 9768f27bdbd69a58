#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tuner/import/import.h"

#define HEAD                                                                                       \
    "# nThread 1 nGpus 1 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20 "   \
    "agg iters: 1 validation: 1 graph: 0\n"                                                        \
    "#  Rank  0 Group  0 Pid   11 on  alpha device  0 [0x01] Some GPU\n"                           \
    "#  Rank  1 Group  0 Pid   12 on  alpha device  1 [0x02] Some GPU\n"
#define COLS                                                                                       \
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     "    \
    "time   algbw   busbw #wrong\n"
#define OLD_COLS                                                                                   \
    "#       size         count    type   redop     time   algbw   busbw  error     time   algbw " \
    "  busbw  error\n"
#define ROW1 "1024 256 float sum -1 10.00 0.10 0.10 0 10.00 0.10 0.10 0\n"
#define ROW2 "2048 512 float sum -1 10.00 0.20 0.20 0 10.00 0.20 0.20 0\n"
#define ROW4 "4096 1024 float sum -1 10.00 0.41 0.41 0 10.00 0.41 0.41 0\n"
#define TAIL "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.2\n"

struct text_case {
    const char *name, *text;
    size_t runs, rows, usable; /* over all runs */
    const char *notes;         /* ids that must be there, blank-separated */
    const char *not_notes;
};

static const struct text_case cases[] = {
    {"plain", HEAD COLS ROW1 ROW2 ROW4 TAIL, 1, 3, 3, "", "cut-off wrong-data split-row"},
    {"prefixed by mpirun",
     "[1,0]<stdout>:" HEAD "[1,0]<stdout>:" COLS "[1,0]<stdout>: " ROW1 "[1,0]<stdout>: " ROW4
     "[1,0]<stdout>:# Out of bounds values : 0 OK\n",
     1, 2, 2, "", "cut-off no-results"},
    {"prefixed by a pod's name and a date",
     HEAD COLS "2026-01-02T03:04:05.6Z worker-0: " ROW1 "worker-0: " ROW4 TAIL, 1, 2, 2, "",
     "no-results"},
    {"colours and carriage returns",
     HEAD COLS "\x1b[32m1024 256 float sum -1 10.00 0.10 0.10 0 "
               "10.00 0.10 0.10 0\x1b[0m\r\n" ROW4 TAIL,
     1, 2, 2, "", "cut-row"},
    {"rows split by log lines behind a tag, glued to values",
     "[0] " HEAD "[0] " COLS
     "[0]   1024 256 float sum -1[0] alpha:1:2 [0] NCCL INFO a\n[0] alpha:1:2 [0] NCCL INFO b\n"
     "[0]   10.00 0.10 0.10 0[0] alpha:1:2 [0] NCCL INFO c\n[0]   10.00 0.10 0.10 0\n"
     "[0]   2048 512 float sum -1 10.00 0.20 0.20 N/Aalpha:1:2 [0] NCCL INFO d\n[0]   10.00 0.20 "
     "0.20 0\n[0] " TAIL,
     1, 2, 2, "split-row", "cut-row garbled-row"},
    {"decimal commas, and thousands",
     HEAD COLS "1.024 256 float sum -1 10,00 0,10 0,10 0 10,00 0,10 0,10 0\n"
               "1'048'576 262'144 float sum -1 1'000.00 1.05 1.05 0 1,000.00 1.05 1.05 0\n" TAIL,
     1, 2, 2, "", "cut-row garbled-row"},
    {"a Markdown table, with blanks of another kind",
     HEAD COLS
     "| 1024 | 256 | float | sum | -1 | 10.00 | 0.10 | 0.10 | 0 | 10.00 | 0.10 | 0.10 | "
     "0 |\n2048\xc2\xa0 512 float sum -1 10.00 0.20\xe2\x80\xaf 0.20 0 10.00 0.20 0.20 0\n" TAIL,
     1, 2, 2, "", "cut-row"},
    {"broken at a width, inside numbers",
     "#    size  count   type  redop root   time  algbw  busbw #wrong   ti\n"
     "me  algbw  busbw #wrong\n"
     "     1024    256  float    sum   -1  10.00   0.10   0.10      0 10.\n00   0.10   0.10      "
     "0\n"
     "     2048    512  float    sum   -1  10.00   0.20   0.20      0 10.\n00   0.20   0.20      "
     "0\n"
     "     4096   1024  float    sum   -1  10.00   0.41   0.41      0 10.\n00   0.41   0.41      "
     "0\n",
     1, 3, 3, "", "cut-row split-row wrong-data garbled-row"},
    {"the layout before 2019, in milliseconds",
     "# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 1048576(bytes) warmup iters: 5 "
     "iters: 20 validation: 1\n"
     "#   Rank  0 on      alpha device  0 [0x04] Some GPU\n#   Rank  1 on      alpha device  1 "
     "[0x05] Some GPU\n"
     "#                                          out-of-place                    in-place\n"
     "#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  "
     "busbw      res\n"
     "     1048576        262144   float     sum    0.100  10.49  10.49    1e-07    0.100  10.49  "
     "10.49    1e-07\n"
     " Out of bounds values : 0 OK\n Avg bus bandwidth    : 10.4858\n",
     1, 1, 1, "rounding-error", "garbled-row implausible wrong-data"},
    {"rows without a type, one placement of two",
     "#                                    in-place                       out-of-place\n"
     "#       size         count     time   algbw   busbw  #wrong     time   algbw   busbw  "
     "#wrong\n"
     "     1048576        262144   100.00   10.49   18.35       0\n     2097152        524288   "
     "100.00   20.97   36.70       0\n",
     1, 2, 2, "", "cut-row garbled-row"},
    {"units glued to the names, no data check",
     "     size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)\n"
     "    33554432        33554432    uint8         768          43.69          43.69\n",
     1, 1, 1, "not-checked", "cut-row garbled-row"},
    {"records of rccl-tests as CSV, nodes without a header",
     "numCycle, collective, ranks, rankspernode, gpusperrank, size, type, redop, inplace, time, "
     "algbw, busbw, #wrong\n"
     "1, \"AllReduce\", 2, 16, 8, 1, 1048576, \"float\", \"sum\", 0, 100.0, 10.4858, 19.66, \"0\"\n"
     "1, \"AllReduce\", 2, 16, 8, 1, 1048576, \"float\", \"sum\", 1, 100.0, 10.4858, 19.66, \"7\"\n"
     "1, \"AllGather\", 2, 16, 8, 1, 1048576, \"float\", \"none\", 1, 100.0, 10.4858, 9.83, "
     "\"N/A\"\n",
     2, 2, 2, "wrong-data not-checked", "cut-row cut-off garbled-row"},
    {"records of rccl-tests as JSON",
     "[{\"numCycle\": 0, \"name\": \"AlltoAll\", \"gpus\": 8, \"size\": 1048576, \"type\": "
     "\"half\", \"redop\": \"none\",\n"
     " \"inPlace\": 0, \"time\": 100.0, \"algBw\": 10.4858, \"busBw\": 9.175, \"wrong\": \"0\"}]\n",
     1, 1, 1, "", "cut-off garbled-row wrong-data"},
    {"records one a line",
     "{\"algBw\":10.4858,\"busBw\":18.35,\"kernel\":2,\"name\":\"AllReduce\",\"ranks\":8,"
     "\"ranksPerNode\":8,\"size\":1048576,\"time\":100.0}\n"
     "{\"algBw\":20.9716,\"busBw\":36.7,\"kernel\":2,\"name\":\"AllReduce\",\"ranks\":8,"
     "\"ranksPerNode\":8,\"size\":2097152,\"time\":100.0}\n",
     1, 2, 2, "not-checked", "garbled-row"},
    {"cut off inside a row", HEAD COLS ROW1 "2048 512 float sum -1 10.00 0.20", 1, 2, 1,
     "cut-off cut-row", ""},
    {"cut off between rows", HEAD COLS ROW1, 1, 1, 1, "cut-off", "cut-row"},
    {"started and hung", HEAD COLS, 1, 0, 0, "cut-off no-results", ""},
    {"row split by log lines",
     HEAD COLS
     "1024 256 float sum -1alpha:11:22 [0] NCCL INFO Connected all rings\n"
     "alpha:11:22 [0] NCCL INFO comm 0x1 rank 0 nranks 2\n"
     " 10.00 0.10 0.10 0\nalpha:11:22 [0] NCCL WARN something\n 10.00 0.10 0.10 0\n" ROW4 TAIL,
     1, 2, 2, "split-row", "cut-row"},
    {"wrong elements",
     HEAD COLS "1024 256 float sum -1 10.00 0.10 0.10 7 10.00 0.10 0.10 7\n" ROW4
               "# Out of bounds values : 14 FAILED\n",
     1, 2, 1, "wrong-data", ""},
    {"the verdict says FAILED, no row does",
     HEAD COLS ROW1 ROW4 "# Out of bounds values : 3 FAILED\n", 1, 2, 0, "wrong-data", ""},
    {"old column is a rounding",
     OLD_COLS "1024 256 float sum 10.00 0.10 0.10 5e-07 10.00 0.10 "
              "0.10 1e-06\n# Out of bounds values : 0 OK\n",
     1, 1, 1, "rounding-error", "wrong-data"},
    {"old column with an asterisk",
     OLD_COLS "1024 256 float sum 10.00 0.10 0.10 5e-01* 10.00 0.10 "
              "0.10 1e+00*\n",
     1, 1, 0, "wrong-data", ""},
    {"not checked",
     HEAD COLS "1024 256 float sum -1 10.00 0.10 0.10 N/A 10.00 0.10 0.10 N/A\n" TAIL, 1, 1, 1,
     "not-checked", "wrong-data"},
    {"no header", ROW1 ROW2 ROW4, 1, 3, 3, "no-header", ""},
    {"no root, no header", "1024 256 float sum 10.00 0.10 0.10 0 10.00 0.10 0.10 0\n", 1, 1, 1, "",
     "cut-row"},
    {"below one launch", HEAD COLS "1024 256 float sum -1 0.50 2.05 2.05 0 0.50 2.05 2.05 0\n", 1,
     1, 0, "implausible", ""},
    {"bandwidth does not fit",
     HEAD COLS "1024 256 float sum -1 10.00 9.10 9.10 0 10.00 9.10 9.10 0\n", 1, 1, 0,
     "garbled-row", ""},
    {"two runs", HEAD COLS ROW1 ROW4 TAIL HEAD COLS ROW1 ROW4 TAIL, 2, 4, 4, "", "duplicate-rank"},
    {"programs of their own in one log", HEAD HEAD COLS COLS ROW1 ROW1 ROW4 ROW4 TAIL TAIL, 2, 4, 0,
     "duplicate-rank", ""},
    {"cycles", HEAD COLS ROW1 ROW4 ROW1 ROW4 TAIL, 1, 4, 4, "repeats", ""},
    {"averages only",
     "Out of bounds values : 0 OK\nAvg bus bandwidth : 481\n\nAvg bus bandwidth : 104\n", 2, 0, 0,
     "summary-only no-results", ""},
    {"launch command only", "mpirun -np 2 ./all_reduce_perf -b 8 -e 128M\n", 1, 0, 0, "no-results",
     ""},
    {"per-iteration columns",
     "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw "
     "busbw "
     "#wrong i_min i_max i_p99 i_cv%\n"
     "1024 256 float sum -1 10.00 0.10 0.10 0 9.00 12.00 11.90 3.10 10.00 0.10 0.10 0 9.00 12.00 "
     "11.90 3.10\n",
     1, 1, 1, "", "cut-row"},
    {"a column that nobody knows",
     "# size count type redop root time algbw busbw copybw #wrong time algbw busbw copybw #wrong\n"
     "1024 256 float sum -1 10.00 0.10 0.10 99.0 3 10.00 0.10 0.10 99.0 0\n" TAIL,
     1, 1, 1, "wrong-data", "cut-row garbled-row"},
    {"all_gather of 2019",
     "#  size count type time algbw busbw error time algbw busbw error\n"
     "1024 128 float 10.00 0.10 0.05 0e+00 10.00 0.10 0.05 0e+00\n" TAIL,
     1, 1, 1, "rounding-error", "cut-row garbled-row"},
    {"broadcast of 2019",
     "#  size count type root time algbw busbw error time algbw busbw error\n"
     "1024 256 float 0 10.00 0.10 0.10 0e+00 10.00 0.10 0.10 0e+00\n" TAIL,
     1, 1, 1, "rounding-error", "cut-row garbled-row"},
    {"with time stamps",
     "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong timestamp\n"
     "1024 256 float sum -1 10.00 0.10 0.10 0 10.00 0.10 0.10 0  2025-10-28 12:00:00\n" TAIL,
     1, 1, 1, "", "cut-row split-row"},
    {"CPU times are no latencies",
     "# size count type redop root cputime algbw busbw #wrong cputime algbw busbw #wrong\n"
     "1024 256 float sum -1 10.00 0.10 0.10 0 10.00 0.10 0.10 0\n" TAIL,
     1, 1, 0, "", "cut-row"},
    {"a device of two ranks",
     "#  Rank  0 Group  0 Pid   11 on  alpha device  0 [0x01] Some GPU\n"
     "#  Rank  1 Group  0 Pid   12 on  alpha device  0 [0x01] Some GPU\n" COLS ROW1 TAIL,
     1, 1, 1, "shared-gpu", "duplicate-rank"},
    {"crashed", HEAD COLS ROW1 "alpha: Test NCCL failure common.cu:958 'unhandled cuda error'\n", 1,
     1, 1, "run-failed cut-off", ""},
    {"nothing of the kind", "hello\nworld 1 2 3\n", 1, 0, 0, "no-results", ""},
    {"empty", "", 0, 0, 0, "no-results", ""},
};

static bool has_note(const struct nt_imp_file *f, const char *id, size_t len)
{
    for (size_t i = 0; i < f->notes.n; i++) {
        const char *name = nt_imp_note_name(f->notes.v[i].id);
        if (strlen(name) == len && strncmp(name, id, len) == 0) {
            return true;
        }
    }
    return false;
}

static void want_notes(const struct nt_imp_file *f, const char *name, const char *ids, bool want)
{
    while (*ids != '\0') {
        size_t n = strcspn(ids, " ");
        if (has_note(f, ids, n) != want) {
            fail_msg("%s: note %.*s is %s", name, (int)n, ids, want ? "missing" : "there");
        }
        ids += n + (ids[n] == ' ');
    }
}

static void test_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct text_case *c = &cases[i];
        struct nt_imp_file *f = NULL;
        struct nt_err e = {0};
        size_t rows = 0;
        if (nt_imp_read("a.txt", c->text, strlen(c->text), &f, &e) != 0) {
            fail_msg("%s: %s", c->name, e.msg);
        }
        for (size_t r = 0; r < f->nruns; r++) {
            rows += f->runs[r].nrows;
        }
        if (f->nruns != c->runs || rows != c->rows || nt_imp_usable_rows(f) != c->usable) {
            fail_msg("%s: %zu runs, %zu rows, %zu usable", c->name, f->nruns, rows,
                     nt_imp_usable_rows(f));
        }
        want_notes(f, c->name, c->notes, true);
        want_notes(f, c->name, c->not_notes, false);
        nt_imp_free(f);
    }
}

static void test_fields(void **state)
{
    static const char text[] =
        "# nccl-tests version 2.18.0 nccl-headers=22907 nccl-library=22907\n"
        "# Collective test starting: all_gather_perf_mpi\n" HEAD
        "alpha:1:2 [0] NCCL INFO NCCL_PROTO set by environment to Simple.\n"
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        "2048 256 half none -1 1118174 0.00 0.00 0 10.00 0.20 0.10 0\n";
    struct nt_imp_file *f = NULL;
    char shape[96];
    const struct nt_imp_run *r;
    (void)state;
    assert_int_equal(nt_imp_read("x", text, strlen(text), &f, NULL), 0);
    assert_int_equal(f->nruns, 1);
    r = &f->runs[0];
    assert_string_equal(r->collective, "all_gather");
    assert_int_equal(r->library_version, 22907);
    assert_string_equal(r->tool_version, "2.18.0");
    assert_int_equal(r->iters, 20);
    assert_int_equal(r->warmup, 5);
    assert_int_equal(r->world, 2);
    assert_string_equal(nt_imp_shape(r, shape, sizeof(shape)), "2 processes x 1 GPU on 1 host");
    assert_int_equal(r->nenv, 1);
    assert_string_equal(r->env[0], "NCCL_PROTO=Simple");
    assert_string_equal(r->rows[0].dtype, "half");
    assert_int_equal(r->rows[0].root, -1);
    assert_true(r->rows[0].place[0].time_us > 1118173);
    assert_int_equal(r->rows[0].place[0].wrong, 0);
    nt_imp_free(f);
}

/* Which placement a value belongs to, and how many ranks a record says there were. */
static void test_placements(void **state)
{
    static const struct {
        const char *text;
        bool out, in;
        uint32_t world, hosts;
    } rows[] = {
        {"# out-of-place\n# size count type redop root time algbw busbw #wrong\n1024 256 float sum "
         "-1 10.00 0.10 0.10 0\n",
         true, false, 0, 0},
        {"# in-place\n# size count type redop root time algbw busbw #wrong\n1024 256 float sum -1 "
         "10.00 0.10 0.10 0\n",
         false, true, 0, 0},
        {"It was run in-place\n\n\n# size count type redop root time algbw busbw #wrong\n1024 256 "
         "float sum -1 10.00 0.10 0.10 0\n",
         true, false, 0, 0},
        {"#   in-place     out-of-place\n#  size  count  time  algbw  busbw  #wrong  time  algbw  "
         "busbw  #wrong\n1024 256 10.00 0.10 0.10 0\n",
         false, true, 0, 0},
        {"#   in-place     out-of-place\n#  size  count  time  algbw  busbw  #wrong  time  algbw  "
         "busbw  #wrong\n"
         "1024 256                                   10.00 0.10 0.10 0\n",
         true, false, 0, 0},
        {"{\"name\":\"x\",\"nodes\":2,\"ranks\":16,\"ranksPerNode\":8,\"gpusPerRank\":2,\"size\":"
         "1024,\"inPlace\":1,\"time\":10.0,"
         "\"algBw\":0.1,\"busBw\":0.1}",
         false, true, 32, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_imp_file *f = NULL;
        const struct nt_imp_row *r;
        assert_int_equal(nt_imp_read("a.txt", rows[i].text, strlen(rows[i].text), &f, NULL), 0);
        assert_int_equal(f->nruns, 1);
        assert_int_equal(f->runs[0].nrows, 1);
        r = &f->runs[0].rows[0];
        if (r->place[0].have != rows[i].out || r->place[1].have != rows[i].in ||
            (rows[i].world > 0 && f->runs[0].world != rows[i].world) ||
            f->runs[0].hosts != rows[i].hosts) {
            fail_msg("%s: %d %d, %u ranks", rows[i].text, r->place[0].have, r->place[1].have,
                     f->runs[0].world);
        }
        nt_imp_free(f);
    }
}

static void test_inferred(void **state)
{
    /* 8 ranks: busbw = algbw × 2 × 7 / 8 */
    static const char text[] =
        "1048576 262144 float sum -1 10.00 104.86 183.50 0 10.00 104.86 183.50 0\n";
    struct nt_imp_file *f = NULL;
    (void)state;
    assert_int_equal(nt_imp_read("x", text, strlen(text), &f, NULL), 0);
    assert_string_equal(f->runs[0].collective, "all_reduce");
    assert_int_equal(f->runs[0].world, 8);
    assert_true(f->runs[0].world_inferred);
    nt_imp_free(f);
}

static const char json_text[] =
    "{\"version\":3,\"args\":[\"./all_reduce_perf\"],\"env\":[\"SECRET=1\",\"NCCL_ALGO=Ring\"],"
    "\"nccl_version\":22809,\"config\":{\"nthreads\":1,\"ngpus\":1,\"maximum_bytes\":1024,"
    "\"per_iter_timing\":\"true\",\"devices\":[{\"rank\":0,\"pid\":1,\"hostname\":\"a\",\"device\":"
    "0,"
    "\"device_hex\":\"0x01\",\"device_info\":\"G\"},{\"rank\":1,\"pid\":2,\"hostname\":\"a\","
    "\"device\":1,"
    "\"device_hex\":\"0x02\",\"device_info\":\"G\"}]},\"results\":[{\"size\":1024,\"count\":256,"
    "\"type\":\"float\",\"redop\":\"sum\",\"root\":\"    -1\",\"out_of_place\":{\"time\":10.0,"
    "\"alg_bw\":0.1,\"bus_bw\":0.1,\"nwrong\":0.0},\"in_place\":{\"time\":10.0,\"alg_bw\":0.1,"
    "\"bus_bw\":0.1,\"nwrong\":null},\"out_of_place_per_iter\":{\"min_us\":9.0,\"max_us\":12.0,"
    "\"p99_us\":11.0,\"cv_pct\":3.0,\"times_us\":[9.0,10.0,12.0]}}],"
    "\"out_of_bounds\":{\"count\":0,\"okay\":true},\"average_bus_bandwidth\":{\"bandwidth\":0.1}}";

static void test_json(void **state)
{
    struct nt_imp_file *f = NULL;
    struct nt_err e = {0};
    const struct nt_imp_run *r;
    (void)state;
    assert_int_equal(nt_imp_read("x", json_text, strlen(json_text), &f, &e), 0);
    r = &f->runs[0];
    assert_string_equal(r->collective, "all_reduce");
    assert_int_equal(r->world, 2);
    assert_int_equal(r->nenv, 1);
    assert_string_equal(r->env[0], "NCCL_ALGO=Ring");
    want_notes(f, "json", "not-kept not-checked", true);
    assert_int_equal(r->rows[0].place[0].nsamples, 3);
    assert_int_equal(r->rows[0].place[1].wrong, -1);
    assert_int_equal(r->rows[0].root, -1);
    nt_imp_free(f);
    f = NULL;
    assert_int_equal(nt_imp_read("x", "{\"a\":1}", 7, &f, &e), -NT_E_INVAL);
    assert_int_equal(nt_imp_read("x", json_text, 200, &f, &e), -NT_E_INVAL); /* cut off */
    assert_null(f);
}

static void test_output(void **state)
{
    struct nt_imp_file *f = NULL;
    struct nt_buf b;
    json_t *j;
    (void)state;
    nt_buf_init(&b, 1 << 20);
    assert_int_equal(nt_imp_read("x", HEAD COLS ROW1, strlen(HEAD COLS ROW1), &f, NULL), 0);
    j = nt_imp_json(f);
    assert_non_null(j);
    nt_json_dump(j, false, &b);
    assert_non_null(strstr(nt_buf_str(&b), "\"time_us\":10.0"));
    nt_imp_text(f, &b);
    assert_non_null(strstr(nt_buf_str(&b), "[cut-off]"));
    json_decref(j);
    nt_imp_free(f);
    nt_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),       cmocka_unit_test(test_fields),
        cmocka_unit_test(test_placements), cmocka_unit_test(test_inferred),
        cmocka_unit_test(test_json),       cmocka_unit_test(test_output)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
