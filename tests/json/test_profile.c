#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profiles/format/table.h"
#include "tests/json/sample.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct nt_profile *finished(void)
{
    struct nt_profile *p = nt_sample_profile();
    struct nt_err e = {0};
    if (nt_profile_finish(p, &e) != 0) {
        fail_msg("sample: %s", e.msg);
    }
    return p;
}

static char *dumped(const struct nt_profile *p)
{
    struct nt_buf b;
    char *copy;
    nt_buf_init(&b, NT_PROFILE_MAX_BYTES);
    assert_int_equal(nt_profile_dump(p, &b, NULL), 0);
    copy = strdup(nt_buf_str(&b));
    nt_buf_done(&b);
    return copy;
}

static void test_round_trip(void **state)
{
    struct nt_profile *p = finished(), *q = NULL;
    const struct nt_profile_row *r;
    struct nt_err e = {0};
    char *once, *twice;
    (void)state;

    once = dumped(p);
    if (nt_profile_parse(once, strlen(once), "sample", &q, &e) != 0) {
        fail_msg("%s", e.msg);
    }
    twice = dumped(q);
    assert_string_equal(once, twice);
    assert_int_equal(q->ranks, 8);
    assert_int_equal(q->rig, NT_RIG_NCCL);
    assert_string_equal(q->product[NT_TABLE].vars.v[0].name, "NCCL_BUFFSIZE");
    assert_int_equal(q->product[NT_TABLE].rows.n, 2);
    r = &q->product[NT_TABLE].rows.v[0];
    assert_int_equal(r->min_bytes, 8192);
    assert_int_equal(r->algo, NT_RING);
    assert_int_equal(r->channels, 2);
    assert_int_equal(r->executed_warps, 16);
    assert_int_equal(r->reg_buff, -1);
    assert_true(isnan(q->product[NT_TABLE].classes.v[0].as_found_ns));
    assert_int_equal(q->product[NT_TABLE].classes.v[1].as_found_ns, 13700);
    assert_string_equal(q->product[NT_TABLE].classes.v[1].rejected.v[0].why,
                        "slower in eager mode");
    assert_true(isnan(q->memory.static_bytes));
    assert_string_equal(q->delivery.hash, p->delivery.hash);
    free(once);
    free(twice);
    nt_profile_free(p);
    nt_profile_free(q);
}

/* A class of one pair, as all others were lost, has no bounds. */
static void test_without_bounds(void **state)
{
    struct nt_profile *p = nt_sample_profile(), *q = NULL;
    struct nt_profile_backend_class *c = &p->backends.classes.v[0];
    struct nt_err e = {0};
    char *text;
    (void)state;

    c->interval[0] = -INFINITY;
    c->interval[1] = 1;
    c->guard_upper = INFINITY;
    c->p_adjusted = NAN;
    c->pairs = 1;
    assert_int_equal(nt_profile_finish(p, &e), 0);
    text = dumped(p);
    if (nt_profile_parse(text, strlen(text), "sample", &q, &e) != 0) {
        fail_msg("%s", e.msg);
    }
    c = &q->backends.classes.v[0];
    assert_true(isnan(c->interval[0]) && isnan(c->interval[1]) && isnan(c->guard_upper));
    free(text);
    nt_profile_free(p);
    nt_profile_free(q);
}

static void test_empty_profile_is_a_result(void **state)
{
    struct nt_profile *p = nt_sample_empty();
    (void)state;
    assert_int_equal(nt_profile_finish(p, NULL), 0);
    assert_null(nt_profile_decide(p, NT_ALL_REDUCE, 14336));
    nt_profile_free(p);
}

static void test_saved_and_loaded(void **state)
{
    char path[] = "/tmp/nt-profile-XXXXXX";
    struct nt_profile *p = finished(), *q = NULL;
    int fd = mkstemp(path);
    struct nt_err e = {0};
    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(nt_profile_save(p, path, NULL), 0);
    assert_int_equal(nt_profile_load(path, &q, NULL), 0);
    assert_int_equal(nt_profile_load("/nowhere/x.json", &q, &e), -NT_E_INVAL);
    assert_non_null(strstr(e.msg, "/nowhere/x.json"));
    (void)unlink(path);
    nt_profile_free(p);
    nt_profile_free(q);
}

/* One text of the sample replaced by another: the reader says no, and why. */
static void test_changed_documents_are_refused(void **state)
{
    static const struct {
        const char *from, *to, *says;
    } rows[] = {
        {"\"nccltune-profile\"", "\"nccl\"", "not a profile"},
        {"\"version\": 1", "\"version\": 2", "profile of version 2; this program reads version 1"},
        {"\"ranks\": 8", "\"ranks\": \"8\"", "ranks: must be a whole number"},
        {"\"ranks\": 8", "\"ranks\": 0", "at least 1"},
        {"\"ranks\": 8", "\"rank\": 8", "did you mean 'ranks'"},
        {"\"kind\": \"nccl\"", "\"kind\": \"ncl\"", "did you mean 'nccl'"},
        {"\"kind\": \"nccl\"", "\"kind\": \"mps-p2p\"", "functional"},
        {"0123456789ab", "0123456789AB", "12 hex digits"},
        {"\"nccl\": \"2.28.9\"", "\"nccl\": \"2.12.7\"", "not a release"},
        {"\"nccl\": \"2.28.9\"", "\"nccl\": \"new\"", "not an NCCL version"},
        {"\"NCCL_BUFFSIZE\": \"8388608\"", "\"NCCL_BUFSIZE\": \"8388608\"",
         "did you mean 'NCCL_BUFFSIZE'"},
        {"\"NCCL_BUFFSIZE\": \"8388608\"", "\"NCCL_BUFFSIZE\": \"8M\"", "drops 'M'"},
        {"\"NCCL_BUFFSIZE\": \"8388608\"", "\"NCCL_TUNER_PLUGIN\": \"/tmp/x.so\"",
         "never from a profile"},
        {"\"NCCL_BUFFSIZE\": \"8388608\"", "\"LD_PRELOAD\": \"/tmp/x.so\"", "unknown variable"},
        {"\"NCCL_MIN_NCHANNELS\": \"16\"", "\"NCCL_ALGO\": \"allreduce:ring\"",
         "mask the tuner table"},
        {"\"allreduce:tree,ring;allgather:ring\"", "\"ring\"", "names the functions"},
        {"\"algo\": \"ring\"", "\"algo\": \"rng\"", "did you mean 'ring'"},
        {"\"algo\": \"ring\"", "\"algo\": \"nvls\"", "delivery file"},
        {"\"channels\": 2,", "\"channels\": 4,", "above the channels seen executed"},
        {"\"max_bytes\": 32768", "\"max_bytes\": 9000000", "delivery file"},
        {"\"max_bytes\": 32768", "\"max_bytes\": 65536", "the document was changed"},
        {"\"max_bytes\": 32768", "\"max_bytes\": 9000", "no class in it was found faster"},
        {"\"bytes\": 14336,", "\"bytes\": -1,", "must be a whole number"},
        {"\"created\": \"2026", "\"created\": \"26", "created"},
        {"\"Example GPU\"", "\"Example\\nGPU\"", "one line of text"},
        {"\"Example GPU\"", "\"Example\\u0000GPU\"", "not JSON"},
        {"\"gain\": 0.25,", "\"gain\": \"x\",", "gain: must be a number"},
        {"\"modes\": [", "\"modes\": [\"lazy\",", "unknown mode 'lazy'"},
        {"\"backend\": \"ipc\"", "\"backend\": \"nccl\"", "out of range"},
        {"\"backend\": \"ipc\"", "\"backend\": \"nccl-symmetric\"", "not an algorithm"},
        {"\"backend\": \"ipc\"", "\"backend\": \"ipx\"", "did you mean 'ipc'"},
        {"\"max_bytes\": 16384", "\"max_bytes\": 2048", "no class in it was found faster"},
        {"\"max_bytes\": 16384", "\"max_bytes\": 512", "serves nothing"},
        {"\"same_bits\": false", "\"same_bits\": true", "row.bits"},
        {"\"algo\": \"ring\"", "\"algo\": \"one_shot\"", "algo and proto go together"},
    };
    struct nt_profile *p = finished();
    char *text = dumped(p);
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_profile *q = NULL;
        struct nt_err e = {0};
        struct nt_buf b;
        const char *at = strstr(text, rows[i].from);
        int rc;
        if (at == NULL) {
            fail_msg("the sample has no %s", rows[i].from);
        }
        nt_buf_init(&b, NT_PROFILE_MAX_BYTES);
        nt_buf_add(&b, text, (size_t)(at - text));
        nt_buf_puts(&b, rows[i].to);
        nt_buf_puts(&b, at + strlen(rows[i].from));
        rc = nt_profile_parse(nt_buf_str(&b), b.len, "changed", &q, &e);
        if (rc != -NT_E_INVAL || strstr(e.msg, rows[i].says) == NULL) {
            fail_msg("%s → %s: rc %d, '%s'", rows[i].from, rows[i].to, rc, e.msg);
        }
        nt_buf_done(&b);
    }
    free(text);
    nt_profile_free(p);
}

static void test_delivery_file(void **state)
{
    struct nt_profile *p = finished();
    struct nt_buf b;
    struct nt_table t;
    struct nt_table_row r;
    struct nt_why why = {""};
    char hash[65], path[256], dir[] = "/tmp/nt-deliver-XXXXXX";
    (void)state;

    nt_buf_init(&b, 1 << 20);
    assert_int_equal(nt_profile_delivery(p, NT_TABLE, &b, hash, NULL), 0);
    assert_string_equal(hash, p->delivery.hash);
    assert_int_equal(nt_table_read(b.data, b.len, &t, NULL), 0);
    assert_int_equal(t.nrows, 2);
    assert_int_equal(t.nvars, 2);
    r = nt_table_row(&t, 0);
    assert_int_equal(r.nranks, 8);
    assert_int_equal(r.max_bytes, 32768);
    assert_int_equal(r.channels, 2);
    nt_buf_done(&b);

    assert_non_null(mkdtemp(dir));
    assert_int_equal(nt_profile_write_delivery(p, NT_TABLE, dir, path, sizeof(path), NULL), 0);
    if (nt_table_map(path, hash, &t, &why) != 0) { /* as the plugin does */
        fail_msg("%s", why.text);
    }
    nt_table_unmap(&t);
    (void)unlink(path);
    (void)rmdir(dir);
    nt_profile_free(p);
}

static void test_decide(void **state)
{
    static const struct {
        uint64_t bytes;
        int coll, algo; /* algo -1: default */
    } rows[] = {{8191, NT_ALL_REDUCE, -1},         {8192, NT_ALL_REDUCE, NT_RING},
                {32768, NT_ALL_REDUCE, NT_RING},   {32769, NT_ALL_REDUCE, -1},
                {8388609, NT_ALL_REDUCE, NT_TREE}, {67108865, NT_ALL_REDUCE, -1},
                {8192, NT_ALL_GATHER, -1}};
    struct nt_profile *p = finished();
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct nt_profile_row *r = nt_profile_decide(p, rows[i].coll, rows[i].bytes);
        if ((r != NULL ? r->algo : -1) != rows[i].algo) {
            fail_msg("%d %llu", rows[i].coll, (unsigned long long)rows[i].bytes);
        }
    }
    assert_int_equal(nt_profile_evidence(p, NT_TABLE, NT_ALL_REDUCE, 40000, NT_GRAPH)->bytes,
                     14336);
    assert_int_equal(nt_profile_evidence(p, NT_TABLE, NT_ALL_REDUCE, 1 << 30, NT_GRAPH)->bytes,
                     67108864);
    assert_null(nt_profile_evidence(p, NT_TABLE, NT_ALL_GATHER, 40000, -1));
    nt_profile_free(p);
}

/* A row may keep a call as it is, where there are variables to keep it from; it says that of
 * itself. */
static void test_kept(void **state)
{
    static const struct {
        int verdict;
        bool with_vars, keeps, good;
    } rows[] = {{NT_VD_KEPT, true, true, true},
                {NT_VD_KEPT, false, true, false},
                {NT_VD_TUNED, false, false, true},
                {NT_VD_GUARD, true, false, false}};
    (void)state;

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_profile *p = nt_sample_empty();
        struct nt_profile_product *table = &p->product[NT_TABLE];
        struct nt_profile_class *c = nt_profile_add_class(p, NT_TABLE);
        struct nt_profile_choice d;
        struct nt_err e = {0};
        *(struct nt_profile_row *)NT_PROFILE_ADD(p, &table->rows) =
            (struct nt_profile_row){.coll = NT_REDUCE,
                                    .min_bytes = 4096,
                                    .max_bytes = 16384,
                                    .algo = NT_RING,
                                    .proto = NT_LL,
                                    .reg_buff = -1,
                                    .channels = 2,
                                    .executed_channels = 2};
        c->coll = NT_REDUCE;
        c->bytes = 8192;
        c->mode = NT_EAGER;
        c->verdict = rows[i].verdict;
        c->default_ns = c->tuned_ns = 20000;
        if (rows[i].with_vars) {
            nt_profile_assign(p, &table->vars, "NCCL_MIN_NCHANNELS", "16");
        }
        assert_int_equal(nt_profile_row_keeps(table, &table->rows.v[0]), rows[i].keeps);
        assert_int_equal(nt_profile_finish(p, &e), rows[i].good ? 0 : -NT_E_INVAL);
        if (rows[i].good) {
            char *text = dumped(p);
            assert_int_equal(strstr(text, "\"verdict\": \"kept\"") != NULL, rows[i].keeps);
            free(text);
            assert_int_equal(nt_profile_choose(p, NT_TABLE, NT_REDUCE, 8192, -1, &d, &e), 0);
            assert_int_equal(strstr(d.why, "keeps the call as it is") != NULL, rows[i].keeps);
        }
        nt_profile_free(p);
    }
}

static void test_reproduce(void **state)
{
    struct nt_profile *p = finished();
    const struct nt_profile_product *t = &p->product[NT_TABLE];
    struct nt_buf without, with;
    (void)state;

    assert_string_equal(t->classes.v[1].reproduce.v[0],
                        "mpirun -np 8 -x NCCL_NVLS_ENABLE=0 -x NCCL_TUNER_PLUGIN=none "
                        "all_reduce_perf -b 14336 -e 14336 -d bfloat16 -g 1 -w 20 -n 200 -a 3 -c 1 "
                        "-G 20");
    assert_string_equal(t->classes.v[1].reproduce.v[1],
                        "mpirun -np 8 -x NCCL_NVLS_ENABLE=0 -x NCCL_BUFFSIZE=8388608 "
                        "-x NCCL_MIN_NCHANNELS=16 -x NCCL_TUNER_PLUGIN=none "
                        "-x NCCL_ALGO=AllReduce:Ring -x NCCL_PROTO=AllReduce:LL "
                        "-x NCCL_MAX_NCHANNELS=2 "
                        "all_reduce_perf -b 14336 -e 14336 -d bfloat16 -g 1 -w 20 -n 200 -a 3 -c 1 "
                        "-G 20");
    assert_string_equal(p->product[NT_STATIC].classes.v[0].reproduce.v[1],
                        "mpirun -np 8 -x NCCL_NVLS_ENABLE=0 "
                        "-x NCCL_ALGO='allreduce:tree,ring;allgather:ring' "
                        "-x NCCL_BUFFSIZE=8388608 -x NCCL_TUNER_PLUGIN=none "
                        "all_reduce_perf -b 67108864 -e 67108864 -d bfloat16 -g 1 -w 20 -n 20 -a 3 "
                        "-c 1 -G 20");
    nt_buf_init(&without, 4096);
    nt_buf_init(&with, 4096);
    p->nodes = 2;
    nt_profile_reproduce(p, NT_TABLE, &t->classes.v[0], "/opt/t.so", "/opt/x.nctable", &without,
                         &with);
    assert_non_null(strstr(nt_buf_str(&with), "--map-by ppr:4:node"));
    assert_non_null(strstr(nt_buf_str(&with), "-x NCCL_TUNER_PLUGIN=/opt/t.so"));
    assert_non_null(strstr(nt_buf_str(&with), "-x NCCLTUNE_TABLE=/opt/x.nctable"));
    assert_non_null(strstr(nt_buf_str(&with), " -z 1"));
    assert_null(strstr(nt_buf_str(&with), "NCCL_ALGO"));
    nt_buf_done(&without);
    nt_buf_done(&with);
    nt_profile_free(p);
}

static void test_commands_are_made_not_read(void **state)
{
    struct nt_profile *p = finished(), *q = NULL;
    char *text = dumped(p), *at = strstr(text, "mpirun -np 8");
    (void)state;
    at[0] = 'r'; /* another command */
    assert_int_equal(nt_profile_parse(text, strlen(text), "changed", &q, NULL), 0);
    for (int i = 0; i < NT_PRODUCT_COUNT; i++) {
        for (size_t c = 0; c < q->product[i].classes.n; c++) {
            assert_string_equal(q->product[i].classes.v[c].reproduce.v[0],
                                p->product[i].classes.v[c].reproduce.v[0]);
        }
    }
    free(text);
    nt_profile_free(p);
    nt_profile_free(q);
}

static void test_lists_grow(void **state)
{
    struct nt_profile *p = nt_profile_new();
    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        struct nt_profile_row *r = NT_PROFILE_ADD(p, &p->product[NT_TABLE].rows);
        assert_int_equal(r->max_bytes, 0);
        r->max_bytes = i + 1;
    }
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(p->product[NT_TABLE].rows.v[i].max_bytes, i + 1);
    }
    nt_profile_free(p);
    nt_profile_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_without_bounds),
        cmocka_unit_test(test_empty_profile_is_a_result),
        cmocka_unit_test(test_saved_and_loaded),
        cmocka_unit_test(test_changed_documents_are_refused),
        cmocka_unit_test(test_delivery_file),
        cmocka_unit_test(test_decide),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_reproduce),
        cmocka_unit_test(test_commands_are_made_not_read),
        cmocka_unit_test(test_lists_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
