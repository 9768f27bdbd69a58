#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tuner/workload/workload.h"

#define MODEL                                                                                      \
    "\"hidden_size\":7168,\"num_hidden_layers\":61,\"vocab_size\":129280,\"torch_dtype\":"         \
    "\"bfloat16\""
#define MOE ",\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"first_k_dense_replace\":3"

struct config_case {
    const char *name, *config, *phase;
    struct nt_wl_serving s;
    /* the first call of that phase, and how many calls there are */
    enum nt_coll coll;
    uint64_t bytes;
    size_t count, calls;
    const char *says; /* in the notes */
};

#define TP8   .tp = 8, .batches = {1}, .nbatches = 1, .mode = NT_GRAPH
#define STORY TP8, .draft_tokens = 3, .prefill_chunk = 8192, .logits = true

static const struct config_case configs[] = {
    {"decode", "{" MODEL "}", "decode", {STORY}, NT_ALL_REDUCE, 14336, 122, 3, ""},
    {"verify", "{" MODEL "}", "verify", {STORY}, NT_ALL_REDUCE, 43008, 122, 3, ""},
    {"prefill", "{" MODEL "}", "prefill", {STORY}, NT_ALL_REDUCE, 117440512, 122, 3, ""},
    {"draft", "{" MODEL "}", "draft", {STORY}, NT_ALL_REDUCE, 14336, 4, 2, ""},
    {"no logits", "{" MODEL "}", "decode", {TP8}, NT_ALL_REDUCE, 14336, 122, 2, ""},
    {"batches",
     "{" MODEL "}",
     "decode-32",
     {.tp = 8, .batches = {1, 32}, .nbatches = 2},
     NT_ALL_REDUCE,
     458752,
     122,
     2,
     ""},
    {"nested",
     "{\"text_config\":{" MODEL "},\"vision_config\":{\"hidden_size\":1,\"num_hidden_layers\":2}}",
     "decode",
     {TP8},
     NT_ALL_REDUCE,
     14336,
     122,
     2,
     "text_config"},
    {"nested twice",
     "{\"thinker_config\":{\"text_config\":{" MODEL "}}}",
     "decode",
     {TP8},
     NT_ALL_REDUCE,
     14336,
     122,
     2,
     "thinker_config"},
    {"nested by another name",
     "{\"brain\":{" MODEL "}}",
     "decode",
     {TP8},
     NT_ALL_REDUCE,
     14336,
     122,
     2,
     "brain"},
    {"old names and no type",
     "{\"n_embd\":1024,\"n_layer\":4}",
     "decode",
     {TP8},
     NT_ALL_REDUCE,
     2048,
     8,
     2,
     "taken as bf16"},
    {"fp32",
     "{\"hidden_size\":1024,\"num_hidden_layers\":4,\"dtype\":\"float32\"}",
     "decode",
     {TP8},
     NT_ALL_REDUCE,
     4096,
     8,
     2,
     ""},
    {"experts reduce",
     "{" MODEL MOE "}",
     "decode",
     {TP8},
     NT_ALL_REDUCE,
     14336,
     122,
     2,
     "256 experts"},
    {"experts exchange",
     "{" MODEL MOE "}",
     "decode",
     {TP8, .moe_all_to_all = true},
     NT_ALL_REDUCE,
     14336,
     64,
     3,
     "all-to-all"},
    {"nothing to exchange",
     "{" MODEL "}",
     "decode",
     {TP8, .moe_all_to_all = true},
     NT_ALL_REDUCE,
     14336,
     122,
     2,
     "no experts"},
    {"hybrid",
     "{\"hidden_size\":1024,\"num_hidden_layers\":4,\"hybrid_override_pattern\":\"M-M*\"}",
     "decode",
     {TP8},
     NT_ALL_REDUCE,
     2048,
     4,
     2,
     "hybrid"},
};

static void test_configs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        const struct config_case *c = &configs[i];
        struct nt_workload w;
        const struct nt_wl_phase *p = NULL;
        struct nt_err e = {0};
        struct nt_buf notes;
        json_t *doc = NULL;
        int rc;
        nt_buf_init(&notes, 4096);
        rc = nt_json_parse(c->config, strlen(c->config), c->name, &doc, &e);
        rc = rc == 0 ? nt_workload_from_config(doc, "m", &c->s, &w, &notes, &e) : rc;
        rc = rc == 0 ? nt_workload_phase(&w, c->phase, &p, &e) : rc;
        if (rc != 0 || p == NULL) {
            fail_msg("%s: %s", c->name, e.msg);
            return;
        }
        if (p->calls[0].coll != c->coll || p->calls[0].bytes != c->bytes ||
            p->calls[0].count != c->count || p->ncalls != c->calls ||
            strstr(nt_buf_str(&notes), c->says) == NULL) {
            fail_msg("%s: %u x %d of %llu bytes, %zu calls; %s", c->name, p->calls[0].count,
                     p->calls[0].coll, (unsigned long long)p->calls[0].bytes, p->ncalls,
                     nt_buf_str(&notes));
        }
        json_decref(doc);
        nt_buf_done(&notes);
    }
}

static void test_bad_configs(void **state)
{
    static const struct {
        const char *config;
        struct nt_wl_serving s;
        const char *says;
    } rows[] = {{"{}", {TP8}, "no hidden_size"},
                {"[]", {TP8}, "no hidden_size"},
                {"{\"hidden_size\":-1,\"num_hidden_layers\":4}", {TP8}, "no hidden_size"},
                {"{\"hidden_size\":99999999,\"num_hidden_layers\":4}", {TP8}, "beyond any model"},
                {"{" MODEL "}", {.tp = 1, .batches = {1}, .nbatches = 1}, "one rank"},
                {"{" MODEL "}", {.tp = 8, .nbatches = 0}, "batches"},
                {"{" MODEL "}", {.tp = 8, .batches = {0}, .nbatches = 1}, "a batch has"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_workload w;
        struct nt_err e = {0};
        struct nt_buf notes;
        json_t *doc = NULL;
        nt_buf_init(&notes, 4096);
        assert_int_equal(nt_json_parse(rows[i].config, strlen(rows[i].config), "x", &doc, &e), 0);
        assert_int_equal(nt_workload_from_config(doc, "m", &rows[i].s, &w, &notes, &e),
                         -NT_E_INVAL);
        if (strstr(e.msg, rows[i].says) == NULL) {
            fail_msg("%s: %s", rows[i].config, e.msg);
        }
        json_decref(doc);
        nt_buf_done(&notes);
    }
}

#define DOC(phases)                                                                                \
    "{\"format\":\"nccltune-workload\",\"version\":1,\"name\":\"w\",\"ranks\":8,\"phases\":"       \
    "[" phases "]}"
#define PHASE(calls) "{\"name\":\"decode\",\"calls\":[" calls "]}"
#define CALL         "{\"collective\":\"all_reduce\",\"bytes\":14336,\"count\":123}"

static void test_documents(void **state)
{
    static const struct {
        const char *text, *says; /* NULL: good */
    } rows[] = {
        {DOC(PHASE(CALL)), NULL},
        {"{", "}"},
        {"{\"format\":\"x\"}", "format is 'x'"},
        {DOC(""), "1 to 48 phases"},
        {DOC(PHASE("")), "1 to 12 calls"},
        {DOC(PHASE("{\"collective\":\"allreduce\",\"bytes\":1,\"count\":1}")),
         "did you mean 'all_reduce'"},
        {DOC(PHASE("{\"collective\":\"all_reduce\",\"bytes\":0,\"count\":1}")), "above 0"},
        {DOC(PHASE("{\"collective\":\"all_reduce\",\"bytes\":1,\"count\":1,\"cuont\":2}")),
         "cuont"},
        {DOC("{\"name\":\"a\",\"mode\":\"grpah\",\"calls\":[" CALL "]}"), "did you mean 'graph'"},
        {DOC("{\"name\":\"a\",\"steps\":-1,\"calls\":[" CALL "]}"), "steps"},
        {"{\"format\":\"nccltune-workload\",\"version\":2,\"name\":\"w\",\"ranks\":8,\"phases\":[]"
         "}",
         "version 2"},
        {"{\"format\":\"nccltune-workload\",\"version\":1,\"name\":\"w\",\"ranks\":1,\"phases\":[]"
         "}",
         "ranks"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_workload w;
        struct nt_err e = {0};
        int rc = nt_workload_parse(rows[i].text, strlen(rows[i].text), "f", &w, &e);
        if ((rc == 0) != (rows[i].says == NULL) ||
            (rc != 0 && strstr(e.msg, rows[i].says) == NULL)) {
            fail_msg("%s: rc %d, %s", rows[i].text, rc, e.msg);
        }
    }
}

static void test_round_trip(void **state)
{
    struct nt_wl_serving s = {STORY};
    struct nt_workload a, b;
    struct nt_buf notes, text;
    json_t *doc = NULL, *out;
    struct nt_wl_class classes[4];
    (void)state;
    nt_buf_init(&notes, 4096);
    nt_buf_init(&text, 1 << 20);
    assert_int_equal(nt_json_parse("{" MODEL "}", strlen("{" MODEL "}"), "x", &doc, NULL), 0);
    assert_int_equal(nt_workload_from_config(doc, "m", &s, &a, &notes, NULL), 0);
    out = nt_workload_json(&a);
    nt_json_dump(out, true, &text);
    assert_int_equal(nt_workload_parse(nt_buf_str(&text), text.len, "x", &b, NULL), 0);
    assert_int_equal(a.nphases, b.nphases);
    assert_int_equal(b.phases[1].calls[2].bytes, a.phases[1].calls[2].bytes);
    assert_int_equal(nt_workload_classes(&b, classes, 4), 6);
    assert_int_equal(classes[0].cs.bytes, 14336); /* decode's 123 and draft's 4 */
    assert_true(classes[0].calls > 126.9 && classes[0].calls < 127.1);
    json_decref(out);
    json_decref(doc);
    nt_buf_done(&notes);
    nt_buf_done(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_configs), cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_documents), cmocka_unit_test(test_round_trip)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
