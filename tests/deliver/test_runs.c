/* What differs between two runs; notes, variables and words of a manifest; versions of a library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tuner/base/json.h"
#include "tuner/deliver/library.h"
#include "tuner/deliver/manifest.h"
#include "tuner/deliver/rundiff.h"
#include "tuner/topology/topology.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
struct diff_case {
    const char *name, *a, *b; /* members of the manifests */
    size_t n;
    enum nt_weight weight; /* of the first */
    const char *what, *says;
};
static const struct diff_case cases[] = {
    {"nothing", "'command':['x']", "'command':['x']", 0, 0, NULL, NULL},
    {"the command", "'command':['x','-n','1']", "'command':['x','-n','2']", 1, NT_W_LIKELY,
     "command", "word 2 was 1, is 2"},
    {"a shorter command", "'command':['x','y']", "'command':['x']", 1, NT_W_LIKELY, "command",
     "is absent"},
    {"a finding", "'machine':{'health':[]}",
     "'machine':{'health':[{'finding':'narrow_link','unhealthy':true,'text':'GPU 3: x8'}]}", 1,
     NT_W_LIKELY, "health", "new: GPU 3: x8"},
    {"a finding that is gone",
     "'machine':{'health':[{'finding':'note','unhealthy':false,'text':'GPU 3: x8'}]}",
     "'machine':{'health':[]}", 1, NT_W_POSSIBLE, "health", "gone since"},
    {"held down by heat", "'machine':{'clocks':[{'slowed':[]}]}",
     "'machine':{'clocks':[{'slowed':['hw_thermal']}]}", 1, NT_W_LIKELY, "clock",
     "held down by hw_thermal, before by nothing"},
    {"power limit", "'machine':{'clocks':[{'power_limit_w':700}]}",
     "'machine':{'clocks':[{'power_limit_w':500}]}", 1, NT_W_LIKELY, "clock", "was 700, is 500"},
    {"idle clock", "'machine':{'clocks':[{'sm_mhz':345}]}",
     "'machine':{'clocks':[{'sm_mhz':1980}]}", 1, NT_W_UNLIKELY, "clock", "at the start"},
    {"a clock within its noise", "'machine':{'clocks':[{'memory_mhz':2619}]}",
     "'machine':{'clocks':[{'memory_mhz':2600}]}", 0, 0, NULL, NULL},
    {"profile", "'profile':null", "'profile':{'hash':'abcdef','product':'table'}", 1, NT_W_LIKELY,
     "profile", "was none (-), is abcdef (table)"},
    {"NCCL", "'machine':{'nccl':[{'path':'/a','version':'2.28.9','sha256':'1'}]}",
     "'machine':{'nccl':[{'path':'/a','version':'2.29.2','sha256':'2'}]}", 1, NT_W_LIKELY,
     "library", "was 2.28.9 (/a), is 2.29.2"},
    {"another build of it", "'machine':{'nccl':[{'path':'/a','version':'2.28.9','sha256':'1'}]}",
     "'machine':{'nccl':[{'path':'/a','version':'2.28.9','sha256':'2'}]}", 1, NT_W_POSSIBLE,
     "library", "another build"},
    {"the same file elsewhere",
     "'machine':{'nccl':[{'path':'/a','version':'2.28.9','sha256':'1'}]}",
     "'machine':{'nccl':[{'path':'/b','version':'2.28.9','sha256':'1'}]}", 1, NT_W_UNLIKELY,
     "library", "the same bytes"},
    {"driver", "'machine':{'driver':'575.1'}", "'machine':{'driver':'580.65'}", 1, NT_W_LIKELY,
     "driver", "driver was 575.1, is 580.65"},
    {"a variable of the first order", "'variables':{}", "'variables':{'NCCL_ALGO':'Ring'}", 1,
     NT_W_LIKELY, "variable", "NCCL_ALGO was not set, is Ring"},
    {"a name that NCCL does not know", "'variables':{}", "'variables':{'NCCL_BUFSIZE':'4'}", 1,
     NT_W_UNLIKELY, "variable", "NCCL knows no such name"},
    {"only logging", "'variables':{}", "'variables':{'NCCL_DEBUG':'INFO'}", 1, NT_W_UNLIKELY,
     "variable", "NCCL_DEBUG"},
    {"a buffer that LL does not use", "'variables':{'NCCL_PROTO':'LL','NCCL_BUFFSIZE':'4194304'}",
     "'variables':{'NCCL_PROTO':'LL','NCCL_BUFFSIZE':'16777216'}", 1, NT_W_NONE, "variable",
     "it does nothing here"},
    {"the same buffer where it counts", "'variables':{'NCCL_BUFFSIZE':'4194304'}",
     "'variables':{'NCCL_BUFFSIZE':'16777216'}", 1, NT_W_LIKELY, "variable",
     "NCCL_BUFFSIZE was 4194304, is 16777216"},
    {"a framework's own", "'variables':{'VLLM_X':'1'}", "'variables':{}", 1, NT_W_POSSIBLE,
     "variable", "VLLM_X was 1, is not set"},
    {"names of ours are the profile's line", "'variables':{'NCCLTUNE_JOB':'1'}",
     "'variables':{'NCCLTUNE_JOB':'2'}", 0, 0, NULL, NULL},
    {"likeliest first", "'machine':{'kernel':'5','driver':'1'},'variables':{'NCCL_DEBUG':'INFO'}",
     "'machine':{'kernel':'6','driver':'2'},'variables':{}", 3, NT_W_LIKELY, "driver", "driver"},
};

static json_t *make(const char *members)
{
    char text[2048];
    json_t *o = NULL;
    struct nt_err err = {.code = NT_OK};
    (void)snprintf(text, sizeof(text), "{%s}", members);
    for (char *p = text; *p != '\0'; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    if (nt_json_parse(text, strlen(text), "case", &o, &err) != 0) {
        fail_msg("%s: %s", text, err.msg);
    }
    return o;
}

static void test_diff(void **state)
{
    static struct nt_rundiff d;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct diff_case *c = &cases[i];
        json_t *a = make(c->a), *b = make(c->b), *json;
        nt_rundiff(a, b, &d);
        if (d.n != c->n ||
            (c->n > 0 && (d.v[0].weight != c->weight || strcmp(d.v[0].what, c->what) != 0 ||
                          strstr(d.v[0].text, c->says) == NULL))) {
            fail_msg("%s: %zu, first %s %s: %s", c->name, d.n,
                     d.n > 0 ? nt_weight_names[d.v[0].weight] : "", d.n > 0 ? d.v[0].what : "",
                     d.n > 0 ? d.v[0].text : "");
        }
        json = nt_rundiff_json(a, b, &d);
        assert_int_equal(json_array_size(json_object_get(json, "differences")), c->n);
        json_decref(json);
        json_decref(a);
        json_decref(b);
    }
}

static json_t *of_machine(const char *file)
{
    char path[512];
    struct nt_topology *t = NULL;
    struct nt_err err = {.code = NT_OK};
    json_t *m;
    (void)snprintf(path, sizeof(path), "%s/tests/topology/data/%s", getenv("NT_SOURCE_DIR"), file);
    if (nt_topology_read_file(path, &t, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    m = json_pack("{s:{s:o}}", "machine", "identity", nt_identity_json(&t->identity));
    nt_topology_free(t);
    return m;
}

static void test_another_machine(void **state)
{
    static struct nt_rundiff d;
    json_t *a = of_machine("pcie4.xml"), *b = of_machine("nvswitch8.xml");
    (void)state;
    nt_rundiff(a, a, &d);
    assert_int_equal(d.n, 0);
    nt_rundiff(a, b, &d);
    assert_int_equal(d.n, 1);
    assert_int_equal(d.v[0].weight, NT_W_LIKELY);
    assert_string_equal(d.v[0].what, "machine");
    assert_non_null(strstr(d.v[0].text, "gpus"));
    json_decref(a);
    json_decref(b);
}

static void test_notes(void **state)
{
    json_t *a = make("'notes':{}"), *b = make("'id':'x'");
    struct nt_buf out;
    (void)state;
    assert_int_equal(nt_manifest_note(a, "tok/s=88.8", NULL), 0);
    assert_int_equal(nt_manifest_note(b, "tok/s=1", NULL), 0);
    assert_int_equal(nt_manifest_note(b, "tok/s=82.2", NULL), 0); /* replaces */
    assert_int_equal(nt_manifest_note(a, "model=a=b", NULL), 0);
    assert_int_equal(nt_manifest_note(b, "model=c", NULL), 0);
    assert_int_equal(nt_manifest_note(b, "only here=1", NULL), 0);
    assert_int_equal(nt_manifest_note(b, "=1", NULL), -NT_E_INVAL);
    assert_int_equal(nt_manifest_note(b, "tok/s", NULL), -NT_E_INVAL);
    assert_int_equal(nt_manifest_note(b, "x=\xff", NULL), -NT_E_INVAL);
    assert_int_equal(nt_manifest_note(b, "\x1b[2J=\x07", NULL), -NT_E_INVAL);
    /* Of a manifest that another hand has written. */
    json_object_set_new(json_object_get(a, "notes"), "\x1b[2J",
                        json_string("\xc2\x9b"
                                    "31m"));
    json_object_set_new(json_object_get(b, "notes"), "\x1b[2J", json_string("\x07"));
    nt_buf_init(&out, 4096);
    nt_rundiff_notes(a, b, &out);
    assert_non_null(strstr(nt_buf_str(&out), "?[2J: ?31m, then ?\n")); /* no terminal is driven */
    assert_non_null(strstr(nt_buf_str(&out), "tok/s: 88.8, then 82.2 (-7.4 %)\n"));
    assert_non_null(strstr(nt_buf_str(&out), "model: a=b, then c\n"));
    nt_buf_done(&out);
    json_decref(a);
    json_decref(b);
}

static void test_no_secrets(void **state)
{
    static const struct {
        const char *name;
        bool kept;
    } names[] = {{"NCCL_ALGO", true},          {"NCCLTUNE_JOB", true},
                 {"VLLM_API_KEY", false},      {"CUDA_VISIBLE_DEVICES", true},
                 {"HF_TOKEN", false},          {"SGLANG_ADMIN_PASSWORD", false},
                 {"AWS_SECRET", false},        {"LD_PRELOAD", true},
                 {"LD_PRELOAD_X", false},      {"HOME", false},
                 {"TORCH_NCCL_SECRETS", false}};
    const char *argv[] = {"serve",    "--api-key", "abc",   "--token=def",
                          "--tokens", "5",         "x\xff", NULL};
    const char *env[] = {"NCCL_A=1", "HF_TOKEN=x", "NCCL_B=", "NCCL_C=/tmp/\xfe", "junk", NULL};
    json_t *words = nt_manifest_command(argv), *vars = nt_manifest_variables(env);
    struct nt_buf out;
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        if (nt_manifest_keeps(names[i].name) != names[i].kept) {
            fail_msg("%s", names[i].name);
        }
    }
    nt_buf_init(&out, 4096);
    nt_json_dump(words, false, &out);
    assert_string_equal(nt_buf_str(&out),
                        "[\"serve\",\"--api-key\",\"…\",\"--token=…\",\"--tokens\",\"…\",\"x?\"]");
    nt_buf_clear(&out);
    nt_json_dump(vars, false, &out);
    assert_string_equal(nt_buf_str(&out),
                        "{\"NCCL_A\":\"1\",\"NCCL_B\":\"\",\"NCCL_C\":\"/tmp/?\"}");
    nt_buf_done(&out);
    json_decref(words);
    json_decref(vars);
}

static void test_library_version(void **state)
{
    static const struct {
        const char *bytes, *version;
    } rows[] = {{"x\0NCCL version 2.28.9+cuda13.0\0", "2.28.9"},
                {"NCCL version \0NCCL version %d\0NCCL version 2.30.7+cuda12.9", "2.30.7"},
                {"NCCL version 2.28.9", ""}, /* at the very end: cut off, perhaps */
                {"NCCL version 2+cuda", ""},
                {"nothing", ""}};
    static const size_t sizes[] = {32, 59, 19, 19, 7};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char out[24];
        nt_library_version(rows[i].bytes, sizes[i], out, sizeof(out));
        assert_string_equal(out, rows[i].version);
    }
}

/* Several at a time: each says "done", so each must be kept. */
static void test_notes_together(void **state)
{
    enum { WRITERS = 6, EACH = 8 };
    char folder[] = "/tmp/nt-runs-XXXXXX", path[64];
    json_t *m = NULL;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)setenv("XDG_STATE_HOME", folder, 1);
    m = json_pack("{s:s, s:i, s:s, s:{}}", "format", NT_RUN_FORMAT, "version", 1, "id", "r1",
                  "notes");
    assert_int_equal(nt_manifest_save(m, NULL), 0);
    json_decref(m);
    for (int w = 0; w < WRITERS; w++) {
        pid_t child = fork();
        assert_true(child >= 0);
        for (int i = 0; child == 0 && i < EACH; i++) {
            char word[32], *words[] = {word};
            (void)snprintf(word, sizeof(word), "n%d.%d=1", w, i);
            if (nt_manifest_annotate("last", words, 1, &m, NULL) != 0) {
                _exit(1);
            }
            json_decref(m);
        }
        if (child == 0) {
            _exit(0);
        }
    }
    for (int w = 0; w < WRITERS; w++) {
        int status = -1;
        assert_true(wait(&status) > 0 && status == 0);
    }
    assert_int_equal(nt_manifest_load("r1", &m, NULL), 0);
    assert_int_equal(json_object_size(json_object_get(m, "notes")), WRITERS * EACH);
    json_decref(m);
    nt_manifest_drop("r1");
    for (const char *const *p = (const char *const[]){"/nccltune/runs", "/nccltune", "", NULL};
         *p != NULL; p++) {
        (void)snprintf(path, sizeof(path), "%s%s", folder, *p);
        assert_int_equal(rmdir(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diff),       cmocka_unit_test(test_another_machine),
        cmocka_unit_test(test_notes),      cmocka_unit_test(test_notes_together),
        cmocka_unit_test(test_no_secrets), cmocka_unit_test(test_library_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
