/* One verdict of the doctors of several hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tuner/base/json.h"
#include "tuner/deliver/doctor_hosts.h"

#define HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

struct host {
    const char *name, *hash, *driver, *variable, *value;
    int ranks, counted, nccl;
    bool applied, disagree;
};

static json_t *process(const struct host *h)
{
    json_t *variables = json_object();
    if (h->variable != NULL) {
        (void)json_object_set_new(variables, h->variable, json_string(h->value));
    }
    return json_pack("{s:b, s:s, s:i, s:i, s:o}", "counts", 1, "profile", h->hash, "nccl_version",
                     h->nccl, "ranks", h->ranks, "variables", variables);
}

static json_t *document(const struct host *h)
{
    json_t *list = json_array();
    for (int i = 0; i < h->counted; i++) {
        (void)json_array_append_new(list, process(h));
    }
    (void)json_array_append_new(list, json_pack("{s:b, s:s}", "counts", 0, "profile", HASH_B));
    return json_pack("{s:s, s:s, s:b, s:s, s:b, s:o}", "host", h->name, "driver", h->driver,
                     "applied", h->applied, "verdict", "words", "ranks_disagree", h->disagree,
                     "processes", list);
}

#define A                                                                                          \
    {                                                                                              \
        "n1", HASH_A, "580.1", NULL, NULL, 4, 2, 22809, true, false                                \
    }

static void test_verdicts(void **state)
{
    static const struct {
        const char *name;
        struct host hosts[2];
        bool applied;
        const char *says; /* in a line; NULL: none at all */
    } rows[] = {
        {"alike", {A, {"n2", HASH_A, "580.1", NULL, NULL, 4, 2, 22809, true, false}}, true, NULL},
        {"another profile",
         {A, {"n2", HASH_B, "580.1", NULL, NULL, 4, 2, 22809, true, false}},
         false,
         "the profile differs: aaaaaaaaaaaa on n1; bbbbbbbbbbbb on n2"},
        {"no profile",
         {A, {"n2", "", "580.1", NULL, NULL, 4, 2, 22809, false, false}},
         false,
         "none on n2"},
        {"not applied on one",
         {A, {"n2", HASH_A, "580.1", NULL, NULL, 4, 2, 22809, false, false}},
         false,
         NULL},
        {"another NCCL",
         {A, {"n2", HASH_A, "580.1", NULL, NULL, 4, 2, 23003, true, false}},
         false,
         "NCCL differs: 2.28.9 on n1; 2.30.3 on n2"},
        {"another driver is said",
         {A, {"n2", HASH_A, "570.2", NULL, NULL, 4, 2, 22809, true, false}},
         true,
         "the driver differs"},
        {"a variable on one only",
         {A, {"n2", HASH_A, "580.1", "NCCL_ALGO", "ring", 4, 2, 22809, true, false}},
         false,
         "NCCL_ALGO differs: ring on n2; not set on the others"},
        {"a variable with two values",
         {{"n1", HASH_A, "580.1", "NCCL_ALGO", "tree", 4, 2, 22809, true, false},
          {"n2", HASH_A, "580.1", "NCCL_ALGO", "ring", 4, 2, 22809, true, false}},
         false,
         "NCCL_ALGO differs: tree on n1; ring on n2"},
        {"a variable of the site",
         {A, {"n2", HASH_A, "580.1", "NCCL_SOCKET_IFNAME", "eth1", 4, 2, 22809, true, false}},
         true,
         "the site's to set"},
        {"a host is missing",
         {{"n1", HASH_A, "580.1", NULL, NULL, 6, 2, 22809, true, false},
          {"n2", HASH_A, "580.1", NULL, NULL, 6, 2, 22809, true, false}},
         false,
         "has 6 ranks, 4 processes were looked at"},
        {"nobody on one",
         {{"n1", HASH_A, "580.1", NULL, NULL, 2, 2, 22809, true, false},
          {"n2", HASH_A, "580.1", NULL, NULL, 0, 0, 0, false, false}},
         false,
         "1 of 2 hosts has no process that counts"},
        {"ranks of one disagree",
         {A, {"n2", HASH_A, "580.1", NULL, NULL, 4, 2, 22809, false, true}},
         false,
         "the ranks of n2 disagree"},
        {"words that drive a terminal",
         {A, {"n\x1b[2J", HASH_A, "580.1", "NCCL_ALGO", "\x1b]0;x\a", 4, 2, 22809, true, false}},
         false,
         "NCCL_ALGO differs: ?]0;x? on n?[2J"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_t *docs[2] = {document(&rows[i].hosts[0]), document(&rows[i].hosts[1])};
        const struct nt_doctor_host hosts[2] = {{"a.json", docs[0]}, {"b.json", docs[1]}};
        struct nt_doctor_hosts h;
        struct nt_buf out;
        json_t *o;

        assert_int_equal(nt_doctor_hosts(hosts, 2, &h, NULL), 0);
        nt_buf_init(&out, 1 << 16);
        nt_doctor_hosts_text(&h, &out);
        if (h.applied != rows[i].applied ||
            (rows[i].says != NULL && strstr(nt_buf_str(&out), rows[i].says) == NULL) ||
            (rows[i].says == NULL && json_array_size(h.lines) > 0)) {
            print_error("%s: %d\n%s", rows[i].name, h.applied, nt_buf_str(&out));
            fail();
        }
        assert_null(strchr(nt_buf_str(&out), '\x1b'));
        o = nt_doctor_hosts_json(&h);
        assert_int_equal(json_array_size(json_object_get(o, "each")), 2);
        json_decref(o);
        nt_buf_done(&out);
        nt_doctor_hosts_done(&h);
        json_decref(docs[0]);
        json_decref(docs[1]);
    }
}

static void test_bad_documents(void **state)
{
    static const char *const texts[] = {"[]", "{}", "{\"processes\": 1, \"applied\": true}",
                                        "{\"processes\": []}", "3"};
    json_t *good = json_loads("{\"host\": \"n1\", \"processes\": [], \"applied\": false}", 0, NULL);
    struct nt_doctor_hosts h;
    struct nt_err err;
    (void)state;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json_t *bad = json_loads(texts[i], JSON_DECODE_ANY, NULL);
        const struct nt_doctor_host hosts[2] = {{"a.json", good}, {"b.json", bad}};
        assert_int_equal(nt_doctor_hosts(hosts, 2, &h, &err), -NT_E_INVAL);
        assert_non_null(strstr(err.msg, "b.json"));
        json_decref(bad);
    }
    const struct nt_doctor_host twice[2] = {{"a.json", good}, {"b.json", good}};
    assert_int_equal(nt_doctor_hosts(twice, 2, &h, &err), -NT_E_INVAL);
    assert_non_null(strstr(err.msg, "n1 is there twice"));
    json_decref(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_verdicts),
                                       cmocka_unit_test(test_bad_documents)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
