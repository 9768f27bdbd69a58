/* The file: written, read, cut, repaired, refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "probes/recording/recording.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char *const facts[NT_FACT_COUNT] = {[NT_FACT_RIG] = "nccl",
                                                 [NT_FACT_RANKS] = "2",
                                                 [NT_FACT_GPU] = "NVIDIA Q",
                                                 [NT_FACT_DATE] = "2024-05-06",
                                                 [NT_FACT_TOPOLOGY] = "<a b=\"c\\d\">\n</a>\n"};
static const uint32_t ns[] = {0, 12345, UINT32_MAX};

static struct nt_block block_of(uint64_t gang)
{
    return (struct nt_block){.cs = {1000, NT_ALL_REDUCE, NT_BF16, NT_IN_PLACE, NT_GRAPH},
                             .flags = NT_M_BUSY | NT_M_READBACK,
                             .process = "NCCL_PROTO=LL,Simple NCCL_X=\"q\"",
                             .call = {NT_RING, NT_LL, 4, 4096, NT_BE_NCCL},
                             .executed = {NT_RING, NT_LL, 4, 16},
                             .gang = gang,
                             .status = NT_ST_OK,
                             .verify = NT_VERIFY_BOTH,
                             .warmup = 2,
                             .inner = 20,
                             .base_ns = 7,
                             .elapsed_ns = 1000000,
                             .connect_ns = 5,
                             .memory_bytes = 6,
                             .error = "",
                             .ns = ns,
                             .count = 3};
}

static void temp_path(char *path, size_t size)
{
    int fd;
    (void)snprintf(path, size, "/tmp/nt-rec-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    (void)unlink(path);
}

static void add_block(struct nt_recorder *r, uint64_t gang)
{
    struct nt_block b = block_of(gang);
    struct nt_err e = {0};
    if (nt_recorder_block(r, &b, &e) != 0) {
        fail_msg("%s", e.msg);
    }
}

static void test_round_trip(void **state)
{
    char path[64];
    struct nt_recorder *w = NULL;
    struct nt_recording *r = NULL;
    struct nt_block failed = block_of(2), plain = {.cs = {.bytes = 8},
                                                   .process = "",
                                                   .call = NT_CALL_DEFAULT,
                                                   .executed = NT_EXECUTED_NONE,
                                                   .gang = 3};
    struct nt_cells cells = {.cs = failed.cs, .asked = true, .cost = {{1.5F, -1, 2e6F}}};
    const struct nt_block *b;

    (void)state;
    temp_path(path, sizeof(path));
    failed.status = NT_ST_WRONG;
    failed.wrong = 9;
    failed.error = "rank 1, \"line\"\nnext \\ end";
    failed.count = 0;
    failed.flags = 0;
    assert_int_equal(nt_recorder_open(path, facts, &w, &r, NULL), 0);
    assert_null(r);
    assert_int_equal(nt_recorder_gang(w, &(struct nt_recorded_gang){1, "A=1,2", 10, 11, 12}, NULL),
                     0);
    assert_int_equal(nt_recorder_cells(w, "", &cells, NULL), 0);
    add_block(w, 1);
    assert_int_equal(nt_recorder_block(w, &failed, NULL), 0);
    assert_int_equal(nt_recorder_block(w, &plain, NULL), 0);
    assert_int_equal(nt_recorder_close(w, NULL), 0);

    assert_int_equal(nt_recording_load(path, &r, NULL), 0);
    for (size_t i = 0; i < NT_FACT_COUNT; i++) {
        assert_string_equal(nt_recording_fact(r, (enum nt_fact)i),
                            facts[i] != NULL ? facts[i] : "");
    }
    assert_int_equal(nt_recording_blocks(r), 3);
    b = nt_recording_block(r, 0);
    assert_true(nt_case_equal(&b->cs, &failed.cs));
    assert_int_equal(b->flags, NT_M_BUSY | NT_M_READBACK);
    assert_string_equal(b->process, failed.process);
    assert_memory_equal(&b->call, &failed.call, sizeof(b->call));
    assert_true(nt_executed_equal(&b->executed, &failed.executed));
    assert_int_equal(b->gang, 1);
    assert_int_equal(b->verify, NT_VERIFY_BOTH);
    assert_int_equal(b->warmup, 2);
    assert_int_equal(b->inner, 20);
    assert_int_equal(b->base_ns, 7);
    assert_int_equal(b->elapsed_ns, 1000000);
    assert_int_equal(b->connect_ns, 5);
    assert_int_equal(b->memory_bytes, 6);
    assert_int_equal(b->count, 3);
    assert_memory_equal(b->ns, ns, sizeof(ns));
    b = nt_recording_block(r, 1);
    assert_int_equal(b->status, NT_ST_WRONG);
    assert_int_equal(b->wrong, 9);
    assert_string_equal(b->error, failed.error);
    b = nt_recording_block(r, 2);
    assert_int_equal(b->call.algo, -1);
    assert_int_equal(b->executed.algo, -1);
    assert_int_equal(nt_recording_gangs(r), 1);
    assert_string_equal(nt_recording_gang(r, 0)->process, "A=1,2");
    assert_int_equal(nt_recording_gang(r, 0)->start_ns, 10);
    nt_recording_free(r);
    (void)unlink(path);
}

static void test_goes_on(void **state)
{
    char path[64];
    const char *other[NT_FACT_COUNT];
    struct nt_recorder *w = NULL;
    struct nt_recording *old = NULL, *r = NULL;
    struct nt_err e = {0};

    (void)state;
    temp_path(path, sizeof(path));
    assert_int_equal(nt_recorder_open(path, facts, &w, NULL, NULL), 0);
    add_block(w, 1);
    assert_int_equal(nt_recorder_close(w, NULL), 0);
    memcpy((void *)other, (const void *)facts, sizeof(facts));
    other[NT_FACT_DATE] = "2024-05-07"; /* may differ */
    assert_int_equal(nt_recorder_open(path, other, &w, &old, NULL), 0);
    assert_int_equal(nt_recording_blocks(old), 1);
    nt_recording_free(old);
    add_block(w, 2);
    assert_int_equal(nt_recorder_close(w, NULL), 0);
    assert_int_equal(nt_recording_load(path, &r, NULL), 0);
    assert_int_equal(nt_recording_blocks(r), 2);
    nt_recording_free(r);
    other[NT_FACT_GPU] = "NVIDIA R";
    assert_int_equal(nt_recorder_open(path, other, &w, NULL, &e), -NT_E_INVAL);
    assert_non_null(strstr(e.msg, "gpu is 'NVIDIA Q', not 'NVIDIA R'"));
    (void)unlink(path);
}

/* A crash at any byte: what was flushed is kept, what is half is dropped, and it goes on. */
static void test_cut_anywhere(void **state)
{
    char path[64];
    struct stat st;
    off_t full, flushed;

    (void)state;
    temp_path(path, sizeof(path));
    for (off_t keep = -1, step = 1; keep == -1 || keep >= 0; keep -= step) {
        struct nt_recorder *w = NULL;
        struct nt_recording *old = NULL, *r = NULL;
        struct nt_err e = {0};
        size_t kept;

        (void)unlink(path);
        assert_int_equal(nt_recorder_open(path, facts, &w, NULL, NULL), 0);
        add_block(w, 1);
        add_block(w, 2);
        assert_int_equal(nt_recorder_flush(w, NULL), 0);
        assert_int_equal(stat(path, &st), 0);
        flushed = st.st_size;
        add_block(w, 3);
        assert_int_equal(nt_recorder_close(w, NULL), 0);
        assert_int_equal(stat(path, &st), 0);
        full = st.st_size;
        keep = keep == -1 ? full : keep;
        step = keep > full - 12 ? 1 : 7;
        assert_int_equal(truncate(path, keep), 0);

        if (nt_recorder_open(path, facts, &w, &old, &e) != 0) {
            fail_msg("cut at %ld of %ld: %s", (long)keep, (long)full, e.msg);
        }
        kept = old != NULL ? nt_recording_blocks(old) : 0;
        if (kept < (keep >= flushed ? 2U : 0U) || (keep == full && kept != 3)) {
            fail_msg("cut at %ld of %ld: kept %zu", (long)keep, (long)full, kept);
        }
        nt_recording_free(old);
        add_block(w, 4);
        assert_int_equal(nt_recorder_close(w, NULL), 0);
        if (nt_recording_load(path, &r, &e) != 0) {
            fail_msg("cut at %ld of %ld: %s", (long)keep, (long)full, e.msg);
        }
        assert_int_equal(nt_recording_blocks(r), kept + 1);
        nt_recording_free(r);
        if (keep == 0) {
            break;
        }
        if (keep < step) {
            keep = step; /* the last one is the empty file */
        }
    }
    (void)unlink(path);
}

static void test_load_is_strict(void **state)
{
    char path[64];
    struct nt_recorder *w = NULL, *second = NULL;
    struct nt_recording *r = NULL;
    struct nt_err e = {0};
    struct stat st;

    (void)state;
    temp_path(path, sizeof(path));
    assert_int_equal(nt_recording_load(path, &r, &e), -NT_E_INVAL);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes to it: refused, not waited for */
    assert_int_equal(nt_recording_load(path, &r, &e), -NT_E_INVAL);
    assert_non_null(strstr(e.msg, "no regular file"));
    (void)alarm(20);
    assert_int_equal(nt_recorder_open(path, facts, &w, NULL, &e), -NT_E_IO);
    (void)alarm(0);
    (void)unlink(path);
    assert_int_equal(nt_recorder_open(path, facts, &w, NULL, NULL), 0);
    add_block(w, 1);
    assert_int_equal(nt_recorder_open(path, facts, &second, NULL, &e), -NT_E_INVAL);
    assert_non_null(strstr(e.msg, "by another process"));
    assert_int_equal(nt_recorder_close(w, NULL), 0);
    assert_int_equal(nt_recording_load(path, &r, &e), 0); /* the second one left it as it was */
    nt_recording_free(r);
    r = NULL;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 3), 0);
    assert_int_equal(nt_recording_load(path, &r, &e), -NT_E_INVAL);
    assert_non_null(strstr(e.msg, "damaged or was not closed"));
    (void)unlink(path);
    assert_int_equal(nt_write_file(path, "a picture\n", 10, 0600, NULL), 0);
    assert_int_equal(nt_recorder_open(path, facts, &w, NULL, &e), -NT_E_INVAL);
    assert_non_null(strstr(e.msg, "no recording"));
    assert_int_equal(nt_recording_load(path, &r, &e), -NT_E_INVAL);
    (void)unlink(path);
    assert_int_equal(nt_write_file(path, "#!/bin/sh\nexit\n", 15, 0600, NULL), 0);
    assert_int_equal(nt_recorder_open(path, facts, &w, NULL, &e), -NT_E_INVAL);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 15); /* a user's script survives a wrong name */
    (void)unlink(path);
}

#define HEAD "#nccltune-recording=1\n"
#define COLUMNS                                                                                    \
    "case,flags,process,call,executed,gang,status,verify,warmup,inner,base_ns,wrong,elapsed_ns,"   \
    "connect_ns,memory_bytes,error,ns\n"
#define LINE "all_reduce 8 bf16 out eager,,,default,ring/ll/1/2,1,ok,0,1,1,0,0,5,0,0,,1 2\n"

static void test_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no line of columns"},
        {HEAD, "no line of columns"},
        {COLUMNS, "line 1: must begin with"},
        {"#nccltune-recording=2\n" COLUMNS, "must begin with"},
        {HEAD "#rig=nccl\n#rig=nccl\n" COLUMNS, "line 3: a key for the second time"},
        {HEAD "#rug=nccl\n" COLUMNS, "an unknown key"},
        {HEAD "#rig\n" COLUMNS, "must be #key=value"},
        {HEAD "case\n", "other columns"},
        {HEAD COLUMNS "x\n", "not as many fields"},
        {HEAD COLUMNS ",,,,,,,,,,,,,,,,,,,,,,,,,,,,\n", "too many fields"},
        {HEAD COLUMNS "all_reduce 8 bf16 out eager,,,default,ring/ll/1/2,1,ok,0,1,1,0,0,5,0,0,,1 2",
         "is cut"},
        {HEAD COLUMNS "\"a,,,\n", "a quote that is not closed"},
        {HEAD COLUMNS "\"a\"b,,,\n", "text behind a closing quote"},
        {HEAD COLUMNS "all 8 bf16 out eager,,,default,,1,ok,0,1,1,0,0,5,0,0,,1\n",
         "unknown collective"},
        {HEAD COLUMNS "all_reduce -8 bf16 out eager,,,default,,1,ok,0,1,1,0,0,5,0,0,,1\n",
         "bytes: must be"},
        {HEAD COLUMNS "all_reduce 8 bf16 out,,,default,,1,ok,0,1,1,0,0,5,0,0,,1\n", "unknown mode"},
        {HEAD COLUMNS "all_reduce 8 bf16 out eager,busy+busy,,default,,1,ok,0,1,1,0,0,5,0,0,,1\n",
         "flags: unknown or twice"},
        {HEAD COLUMNS "all_reduce 8 bf16 out eager,,,ring/ll/1,,1,ok,0,1,1,0,0,5,0,0,,1\n",
         "call: must be"},
        {HEAD COLUMNS "all_reduce 8 bf16 out eager,,,default,ring/xx/1/2,1,ok,0,1,1,0,0,5,0,0,,1\n",
         "unknown executed"},
        {HEAD COLUMNS "all_reduce 8 bf16 out eager,,,default,,1,ok,3,1,1,0,0,5,0,0,,1\n",
         "verify: must be"},
        {HEAD COLUMNS "all_reduce 8 bf16 out eager,,,default,,1,fine,0,1,1,0,0,5,0,0,,1\n",
         "unknown status"},
        {HEAD COLUMNS "all_reduce 8 bf16 out eager,,,default,,1,ok,0,1,1,0,0,5,0,0,,4294967296\n",
         "ns: must be"},
        {HEAD COLUMNS "all_reduce 8 bf16 out eager,,,default,,1,ok,0,1,1,0,0,5,0,0,,1  2\n",
         "ns: must be"},
        {HEAD "#gang=1,,2\n" COLUMNS, "gang: needs five fields"},
        {HEAD "#cells=,all_reduce 8 bf16 out eager,1,1 2\n" COLUMNS,
         "needs a cost for every algorithm"},
        {HEAD "#cells=,all_reduce 8 bf16 out eager,1,1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 "
              "nan\n" COLUMNS,
         "needs a cost for every algorithm"},
        {HEAD "#cells=,all_reduce 8 bf16 out eager,1,1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 "
              "1\n" COLUMNS,
         "too many costs"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_recording *r = NULL;
        struct nt_err e = {0};
        int rc = nt_recording_parse(rows[i].text, strlen(rows[i].text), "file", &r, &e);
        if (rc != -NT_E_INVAL || strstr(e.msg, rows[i].says) == NULL || r != NULL) {
            fail_msg("%s: rc %d, '%s'", rows[i].text, rc, e.msg);
        }
    }
}

static void test_accepted(void **state)
{
    static const char text[] = HEAD "#rig=nccl\n" COLUMNS LINE "#gang=1,,5,6,7\n" LINE;
    struct nt_recording *r = NULL;
    struct nt_err e = {0};
    (void)state;
    if (nt_recording_parse(text, sizeof(text) - 1, "file", &r, &e) != 0) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(nt_recording_blocks(r), 2);
    assert_int_equal(nt_recording_cells(r), 1);
    assert_int_equal(nt_recording_cell(r, 0).count, 2);
    nt_recording_free(r);
}

static void test_process_text(void **state)
{
    static const struct {
        const char *name, *value, *fixed, *text;
    } rows[] = {
        {"NCCL_BUFFSIZE", "1048576", "", "NCCL_BUFFSIZE=1048576"},
        {"NCCL_BUFFSIZE", "1048576", "A=1 NCCL_BUFFSIZE=1048576", ""},
        {"NCCL_BUFFSIZE", "2097152", "NCCL_BUFFSIZE=1048576", "NCCL_BUFFSIZE=2097152"},
        {"NCCL_DEBUG", "WARN", "", ""},
        {"NCCL_HOSTID", "h1", "", ""},
        {"NCCL_TUNER_PLUGIN", "STATIC_PLUGIN", "", ""},
        {"CUDA_VISIBLE_DEVICES", "0", "", ""},
        {"NCCL_NOT_KNOWN_YET", "1", "", "NCCL_NOT_KNOWN_YET=1"},
    };
    static char b_name[] = "NCCL_MIN_CTAS", a_name[] = "NCCL_MAX_CTAS", four[] = "4";
    struct nt_var two[] = {{b_name, four}, {a_name, four}};
    struct nt_buf b;
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_var v = {(char *)rows[i].name, (char *)rows[i].value};
        nt_buf_init(&b, 1000);
        nt_recording_process(&v, 1, rows[i].fixed, &b);
        assert_string_equal(nt_buf_str(&b), rows[i].text);
        nt_buf_done(&b);
    }
    nt_buf_init(&b, 1000);
    nt_recording_process(two, 2, "", &b);
    assert_string_equal(nt_buf_str(&b), "NCCL_MAX_CTAS=4 NCCL_MIN_CTAS=4");
    nt_buf_done(&b);
}

/* Hosts that forbid multicast and hosts that do not are the same to ranks that share a GPU. */
static void test_setup(void **state)
{
    static const struct {
        const char *head, *text;
    } rows[] = {
        {"#rig=mps-sockets\n#ranks=4\n#gpu=NVIDIA Q\n#nccl=22809\n",
         "mps-sockets; 4; NVIDIA Q; 22809; "},
        {"#rig=mps-sockets\n#ranks=4\n#gpu=NVIDIA Q\n#nccl=22809\n#fixed=NVSHMEM_DISABLE_NVLS=1 "
         "NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1\n",
         "mps-sockets; 4; NVIDIA Q; 22809; "},
        {"#rig=mps-p2p\n#fixed=NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=16 NCCL_NVLS_ENABLE=2\n",
         "mps-p2p; ; ; ; NCCL_MAX_CTAS=16 NCCL_NVLS_ENABLE=2"},
        {"#rig=nccl\n#fixed=NCCL_NVLS_ENABLE=0\n", "nccl; ; ; ; NCCL_NVLS_ENABLE=0"},
    };
    (void)state;

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_recording *r = NULL;
        struct nt_err e = {0};
        struct nt_buf file, got;
        nt_buf_init(&file, 1000);
        nt_buf_init(&got, 1000);
        nt_buf_printf(&file, "%s%s%s", HEAD, rows[i].head, COLUMNS LINE);
        if (nt_recording_parse(nt_buf_str(&file), file.len, "file", &r, &e) != 0) {
            fail_msg("%s", e.msg);
        }
        nt_recording_setup(r, &got);
        assert_string_equal(nt_buf_str(&got), rows[i].text);
        nt_recording_free(r);
        nt_buf_done(&file);
        nt_buf_done(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_cut_anywhere), cmocka_unit_test(test_load_is_strict),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_process_text), cmocka_unit_test(test_setup)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
