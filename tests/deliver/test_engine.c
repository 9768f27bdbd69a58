/* Receipts of the engines' plugins: what is read, what is refused, what doctor says of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/vocab.h"
#include "tests/deliver/make.h"

#define FIRST "nccltune-backends 1\n"
#define HEAD  FIRST "process 40 77 b-1 node1\nengine sglang 0.5.23\ntable " HASH_A "\n"
#define ON    HEAD "state on\n"
#define TP    "group tp:0 of 8: on\n"
#define CALL  "calls tp:0 graph bf16 1024-92681 custom-allreduce served 161 declined 0\n"

static struct nt_engine engines[3];

static void read_it(struct nt_engine *e, const char *text)
{
    struct nt_err err = {.code = NT_OK};
    if (nt_engine_read(text, strlen(text), e, &err) != 0) {
        fail_msg("%s: %s", text, err.msg);
    }
}

static void test_what_is_read(void **state)
{
    struct nt_engine *e = &engines[0];
    (void)state;
    read_it(e, ON "library pynccl /v/libnccl.so.2\nlibrary mapped /opt/nccl lib/libnccl.so.2\n"
                  "library other x\n" TP "group pp of x of 2: off: the table is for 8 ranks\n" CALL
                  "calls tp:0 graph bf16 1024-92681 custom-allreduce served 3 declined 4\n"
                  "left tp:0 eager bf16 12\n");
    assert_int_equal(e->pid, 40);
    assert_int_equal(e->start_ticks, 77);
    assert_string_equal(e->boot_id, "b-1");
    assert_string_equal(e->engine, "sglang");
    assert_string_equal(e->version, "0.5.23");
    assert_string_equal(e->table, HASH_A);
    assert_true(e->on);
    assert_string_equal(e->pynccl, "/v/libnccl.so.2");
    assert_int_equal(e->nmapped, 1);
    assert_string_equal(e->mapped[0], "/opt/nccl lib/libnccl.so.2");
    assert_int_equal(e->ngroups, 1 + 1);
    assert_true(e->groups[0].on && e->groups[0].ranks == 8);
    assert_int_equal(e->nrows, 2); /* called and traced: one row */
    assert_int_equal(e->rows[0].served, 164);
    assert_int_equal(e->rows[0].declined, 4);
    assert_int_equal(e->rows[0].max_bytes, 92681);
    assert_string_equal(e->rows[0].backend, "custom-allreduce");
    assert_int_equal(e->rows[0].mode, NT_GRAPH);
    assert_string_equal(e->rows[1].backend, "");
    assert_int_equal(e->rows[1].served, 12);
    read_it(e, FIRST "process 40 77 b-1 n\nengine vllm 0.33.0\ntable none\nstate off: too old\n");
    assert_false(e->on);
    assert_string_equal(e->why, "too old");
    assert_string_equal(e->table, "");
}

static void test_what_is_refused(void **state)
{
    static const char *const rows[] = {
        "",
        "nccltune-backends 2\nprocess 40 77 b-1 node1\n",
        HEAD, /* no state */
        FIRST "engine sglang 1\ntable none\nstate on\n",
        ON "state on\n",
        ON "process 41 77 b-1 node1\n",
        ON "table " HASH_B "\n",
        ON "engine vllm 1\n",
        ON "group tp:0 of 8: on", /* cut off */
        ON "\n",
        ON "noise\n",
        ON "group tp:0: on\n",
        ON "group tp:0 of 0: on\n",
        ON "group tp:0 of 70000: on\n",
        ON "group tp:0 of 8: perhaps\n",
        ON "group tp:0 of 8: off: \n",
        ON "group  of 8: on\n",
        ON "library mapped\n",
        ON "library mapped \n",
        ON "calls tp:0 graph bf16 1024 custom-allreduce served 1 declined 0\n",
        ON "calls tp:0 graph bf16 9-1 custom-allreduce served 1 declined 0\n",
        ON "calls tp:0 graph bf16 0-1 custom-allreduce served 1 declined 0\n",
        ON "calls tp:0 stream bf16 1-2 custom-allreduce served 1 declined 0\n",
        ON "calls tp:0 graph bf16 1-2 custom-allreduce served -1 declined 0\n",
        ON "calls tp:0 graph bf16 1-2 x served 18446744073709551615 declined 0\n",
        ON "calls tp:0 graph bf16 1-2 a-name-of-far-more-than-thirty-two-letters served 1 declined "
           "0\n",
        ON "calls tp:0 graph bf16 1-2  served 1 declined 0\n",
        ON "left tp:0 graph bf16 x\n",
        ON "left tp:0 graph bf16 1 2 3 4 5 6 7 8 9 10 11\n",
        FIRST "process 0 77 b-1 n\nengine e 1\ntable none\nstate on\n",
        FIRST "process 4294967297 77 b-1 n\nengine e 1\ntable none\nstate on\n",
        FIRST "process 40 77 b-1\nengine e 1\ntable none\nstate on\n",
        FIRST "process 40 77 b-1 n\nengine e\ntable none\nstate on\n",
        FIRST "process 40 77 b-1 n\nengine e 1\ntable abc\nstate on\n",
        FIRST "process 40 77 b-1 n\nengine e 1\ntable none\nstate maybe\n",
    };
    static char large[4096];
    struct nt_err err = {.code = NT_OK};
    int n;
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (nt_engine_read(rows[i], strlen(rows[i]), &engines[0], &err) == 0) {
            fail_msg("row %zu is taken: %s", i, rows[i]);
        }
    }
    n = snprintf(large, sizeof(large), ON "group %2000d of 8: on\n", 7);
    assert_int_equal(nt_engine_read(large, (size_t)n, &engines[0], &err), -NT_E_INVAL);
    assert_non_null(strstr(err.msg, "line 6 is cut or too long"));
    assert_int_equal(nt_engine_read(ON "left\0tp", sizeof(ON "left\0tp"), &engines[0], &err),
                     -NT_E_INVAL);
}

/* More than there is room for is counted; what drives a terminal is taken out. */
static void test_bounds(void **state)
{
    struct nt_buf text;
    struct nt_engine *e = &engines[0];
    (void)state;
    nt_buf_init(&text, NT_ENGINE_BYTES);
    nt_buf_puts(&text, ON);
    for (unsigned i = 0; i < NT_ENGINE_ROWS + 5U; i++) {
        nt_buf_printf(&text,
                      "calls tp:0 graph bf16 %u-%u ipc served 9223372036854775807 declined 0\n",
                      i + 1, i + 1);
    }
    for (unsigned i = 0; i < NT_ENGINE_GROUPS + 2U; i++) {
        nt_buf_printf(&text, "group g%u of 8: off: \x1b[31m\n", i);
    }
    for (unsigned i = 0; i < NT_ENGINE_LIBRARIES + 1U; i++) {
        nt_buf_puts(&text, "library mapped /x\n");
    }
    nt_buf_puts(&text, "calls tp:0 graph bf16 1-1 ipc served 5 declined 0\n");
    read_it(e, nt_buf_str(&text));
    assert_int_equal(e->lost, 5 + 2 + 1);
    assert_int_equal(e->rows[0].served, INT64_MAX);
    assert_string_equal(e->groups[0].why, "?[31m");
    nt_buf_done(&text);
}

/* ---- what doctor makes of it ---- */

#define GPU      "1-2 rw-s 0 00:06 421 /dev/nvidia0\n"
#define NCCL     "1-2 r-xp 0 08:01 7001 /opt/nccl/lib/libnccl.so.2.28.9\n"
#define TUNER    "1-2 r-xp 0 08:01 7003 /lib/nccltune/libnccl-tuner-nccltune.so\n"
#define TOLD     "NCCLTUNE_PROFILE=" HASH_B "|NCCLTUNE_TABLE=/t"
#define BACKENDS "|NCCLTUNE_BACKENDS=" HASH_A "|NCCLTUNE_BACKENDS_TABLE=/b"

static void judge(const char *environment, const char *text, const char *active, uint32_t pid,
                  struct nt_engine *e, struct nt_doctor_backends *b, struct nt_doctor_verdict *v)
{
    struct nt_proc p = make_proc(pid, "worker", environment, NULL, GPU NCCL TUNER);
    struct nt_doctor_world w = {.active_env = false};
    struct nt_doctor_facts f = {.proc = &p, .no_receipt = ""};
    uint8_t *r = NULL;

    (void)snprintf(w.active_backends, sizeof(w.active_backends), "%s", active);
    if (strstr(environment, "NCCLTUNE_PROFILE") != NULL) {
        r = make_receipt(&p, HASH_B, 1U << NT_RECEIPT_TUNER, 0, 22304);
        assert_int_equal(nt_receipt_read(r, NT_RECEIPT_BYTES, &f.head, NULL), 0);
        f.receipt = r;
    }
    if (text != NULL && text[0] == '!') {
        f.no_engine = text + 1;
    } else if (text != NULL) {
        read_it(e, text);
        f.engine = e;
    }
    nt_doctor_judge(&f, &w, v);
    if (b != NULL) {
        nt_doctor_backends_add(b, &f, v);
    }
    make_done(r);
    nt_proc_done(&p);
}

/* A server's parent is told, too, and has neither NCCL nor a receipt: it waits, and is told. */
static void test_told_without_nccl(void **state)
{
    static struct nt_doctor_verdict v;
    struct nt_proc p = make_proc(9, "server", "HOME=/" BACKENDS, NULL, "");
    struct nt_doctor_world w = {.active_env = false};
    struct nt_doctor_facts f = {.proc = &p, .no_receipt = ""};
    (void)state;
    nt_doctor_judge(&f, &w, &v);
    assert_int_equal(v.verdict, NT_DR_WAITING);
    assert_false(v.counts);
    nt_proc_done(&p);
}

static void test_verdicts(void **state)
{
    static const struct {
        const char *name, *environment, *text, *active;
        enum nt_doctor_finding verdict;
        const char *says, *never; /* NULL: nothing */
    } rows[] = {
        {"both", TOLD BACKENDS, ON TP, "", NT_DR_APPLIED, NULL, "backends:"},
        {"backends alone", "HOME=/", ON TP, "", NT_DR_APPLIED, NULL, NULL},
        {"off", TOLD BACKENDS, HEAD "state off: sglang 0.6 is not known\n", "", NT_DR_PARTLY,
         "backends: nothing is taken: sglang 0.6 is not known", NULL},
        {"a group is off", TOLD BACKENDS,
         ON TP "group tp:1 of 8: off: rank 0 has a, rank 3 has b\n", "", NT_DR_PARTLY,
         "group tp:1 of 8 leaves all to the engine: rank 0 has a", NULL},
        {"a group of another size is none of its affair", TOLD BACKENDS,
         ON TP "group pp:0 of 2: off: the table is for 8 ranks\n", "", NT_DR_APPLIED, NULL, "pp:0"},
        {"only groups of another size", TOLD BACKENDS,
         ON "group pp:0 of 2: off: the table is for 8 ranks\n", "", NT_DR_APPLIED,
         "no group has the table's number of ranks", NULL},
        {"no group yet", TOLD BACKENDS, ON, "", NT_DR_APPLIED, "no all_reduce of a group yet",
         NULL},
        {"told, and no plugin", TOLD BACKENDS, NULL, "", NT_DR_PARTLY,
         "told of table aaaaaaaaaaaa, and no plugin of an engine left a receipt", NULL},
        {"something is wrong with it", TOLD, "!owned by another user", "", NT_DR_APPLIED,
         "receipt of backends: owned by another user", NULL},
        {"another than the active", TOLD, ON TP, HASH_B, NT_DR_STALE,
         "backends: has table aaaaaaaaaaaa; active since is bbbbbbbbbbbb", NULL},
        {"told at its start", TOLD BACKENDS, ON TP, HASH_B, NT_DR_APPLIED, NULL, "active"},
        {"one library", TOLD BACKENDS,
         ON TP "library pynccl libnccl.so.2\nlibrary mapped /opt/nccl/lib/libnccl.so.2\n", "",
         NT_DR_APPLIED,
         "PyNccl and ProcessGroupNCCL are two communicators of one library: "
         "/opt/nccl/lib/libnccl.so.2",
         NULL},
        {"PyNccl's own", TOLD BACKENDS,
         ON TP "library pynccl /b/libnccl.so.2\nlibrary mapped /a/libnccl.so.2\n"
               "library mapped /b/libnccl.so.2\nlibrary mapped /c/libmscclpp.so\n",
         "", NT_DR_APPLIED, "PyNccl calls /b/libnccl.so.2", "mscclpp"},
        {"and PyTorch's", TOLD BACKENDS,
         ON TP "library pynccl /b/libnccl.so.2\nlibrary mapped /a/libnccl.so.2\n"
               "library mapped /b/libnccl.so.2\n",
         "", NT_DR_APPLIED, "ProcessGroupNCCL calls /a/libnccl.so.2", "calls /b/libnccl.so.2, by"},
        {"two, and PyNccl's by name", TOLD BACKENDS,
         ON TP "library pynccl libnccl.so.2\nlibrary mapped /a/libnccl.so.2\n"
               "library mapped /b/libnccl.so.2\n",
         "", NT_DR_APPLIED, "PyNccl calls libnccl.so.2, by name: one of the files below", NULL},
    };
    static struct nt_doctor_verdict v;
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool said = rows[i].says == NULL;
        judge(rows[i].environment, rows[i].text, rows[i].active, 40, &engines[0], NULL, &v);
        for (unsigned k = 0; k < v.n; k++) {
            said = said || strstr(v.reason[k], rows[i].says) != NULL;
            if (rows[i].never != NULL && strstr(v.reason[k], rows[i].never) != NULL) {
                fail_msg("%s: says '%s'", rows[i].name, v.reason[k]);
            }
        }
        if (v.verdict != rows[i].verdict || !said) {
            fail_msg("%s: '%s' %s", rows[i].name, nt_doctor_names[v.verdict],
                     v.n > 0 ? v.reason[v.n - 1] : "");
        }
    }
}

/* What three processes wrote, summed; and where they disagree. */
static void test_the_job(void **state)
{
    static const struct {
        const char *name, *text[3]; /* NULL: as the first */
        const char *says[2];
        bool disagree;
    } rows[] = {
        {"agreed",
         {ON TP CALL "left tp:0 graph bf16 2\n"},
         {"  tp:0 graph bf16 1K to 92681 custom-allreduce 483, in 3 processes\n",
          "  tp:0 graph bf16 6 of no row, the engine's own choice, in 3 processes\n"},
         false},
        {"later, that is all",
         {ON TP CALL, ON TP,
          ON TP "calls tp:0 graph bf16 1024-92681 custom-allreduce served 4 declined 2\n"},
         {"custom-allreduce 165 (2 declined by the engine's class), in 2 processes", NULL},
         false},
        {"one declines what another takes",
         {ON TP CALL, NULL,
          ON TP "calls tp:0 graph bf16 1024-92681 custom-allreduce served 0 declined 161\n"},
         {"the ranks disagree: tp:0 graph bf16 1K to 92681: process 41 had custom-allreduce, "
          "process 42 had its class decline",
          NULL},
         true},
        {"another table",
         {ON TP, NULL,
          FIRST "process 40 77 b-1 n\nengine sglang 0.5.23\ntable " HASH_B "\nstate on\n"},
         {"the ranks disagree: process 40 has sglang 0.5.23 table aaaaaaaaaaaa on, process 42 has "
          "sglang 0.5.23 table bbbbbbbbbbbb on",
          NULL},
         true},
        {"one is off",
         {ON TP, HEAD "state off: version\n", NULL},
         {"process 41 has sglang 0.5.23 table aaaaaaaaaaaa off", NULL},
         true},
    };
    struct nt_doctor_backends *b = calloc(1, sizeof(*b));
    static struct nt_doctor_verdict v[3];
    struct nt_doctor_job job;
    struct nt_buf out;
    json_t *json;
    (void)state;
    assert_non_null(b);
    for (size_t i = 0; i < COUNT(rows); i++) {
        memset(b, 0, sizeof(*b));
        nt_buf_init(&out, 1 << 16);
        for (uint32_t k = 0; k < 3; k++) {
            judge(TOLD BACKENDS, rows[i].text[k] != NULL ? rows[i].text[k] : rows[i].text[0], "",
                  40 + k, &engines[k], b, &v[k]);
        }
        nt_doctor_backends_judge(b);
        nt_doctor_backends_text(b, &out);
        nt_doctor_job(v, 3, b->nsplit > 0, &job);
        for (int k = 0; k < 2; k++) {
            if (rows[i].says[k] != NULL && strstr(nt_buf_str(&out), rows[i].says[k]) == NULL) {
                fail_msg("%s: %s", rows[i].name, nt_buf_str(&out));
            }
        }
        if (job.disagree != rows[i].disagree || (job.disagree && job.applied)) {
            fail_msg("%s: %d %s", rows[i].name, job.disagree, nt_buf_str(&out));
        }
        json = nt_doctor_backends_json(b);
        assert_int_equal(json_array_size(json_object_get(json, "disagree")), b->nsplit);
        assert_int_equal(json_integer_value(json_object_get(json, "receipts")), 3);
        json_decref(json);
        nt_buf_done(&out);
    }
    free(b);
}

static void test_of_one_process(void **state)
{
    struct nt_engine *e = &engines[0];
    struct nt_buf out;
    json_t *json;
    (void)state;
    read_it(e,
            ON TP CALL "calls tp:0 graph bf16 92682-1048576 torch-symm-mem served 20 declined 1\n"
                       "left tp:0 graph bf16 2\n"
                       "calls tp:0 eager fp32 4096-4096 pynccl served 1 declined 0\n");
    nt_buf_init(&out, 1 << 16);
    nt_doctor_engine_text(e, &out);
    assert_string_equal(nt_buf_str(&out),
                        "             tp:0 graph bf16: 1K to 92681 custom-allreduce 161, 92682 to "
                        "1M torch-symm-mem 20 (1 declined by the engine's class), 2 of no row, the "
                        "engine's own choice\n             tp:0 eager fp32: 4K to 4K pynccl 1\n");
    nt_buf_clear(&out);
    nt_doctor_engine_text(NULL, &out);
    assert_int_equal(out.len, 0);
    nt_buf_done(&out);
    json = nt_doctor_engine_json(e);
    assert_int_equal(json_array_size(json_object_get(json, "calls")), 4);
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(json, "calls"), 1), "backend")),
                        "torch-symm-mem");
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_read),   cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_bounds),         cmocka_unit_test(test_told_without_nccl),
        cmocka_unit_test(test_verdicts),       cmocka_unit_test(test_the_job),
        cmocka_unit_test(test_of_one_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
