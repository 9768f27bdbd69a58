#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tuner/base/json.h"

/* Reads a member named "v" as the type that `as` names; returns the code of nt_json_*. */
static int read_as(const json_t *o, char as, struct nt_err *err)
{
    const char *text;
    uint64_t u;
    int64_t i;
    double x;
    json_t *v;
    switch (as) {
    case 's':
        return nt_json_str(o, "v", &text, err);
    case 'u':
        return nt_json_u64(o, "v", &u, err);
    case 'i':
        return nt_json_i64(o, "v", &i, err);
    case 'n':
        return nt_json_num(o, "v", &x, err);
    case 'o':
        return nt_json_obj(o, "v", &v, err);
    default:
        return nt_json_arr(o, "v", &v, err);
    }
}

static void test_required_members(void **state)
{
    static const char types[] = "suinoa";
    static const struct {
        const char *text, *serves; /* the types that take it */
    } rows[] = {
        {"{}", ""},         {"{'v':null}", ""}, {"{'v':true}", ""},
        {"{'v':'7'}", "s"}, {"{'v':7}", "uin"}, {"{'v':-7}", "in"},
        {"{'v':7.0}", "n"}, {"{'v':{}}", "o"},  {"{'v':[]}", "a"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[32];
        json_t *o = NULL;
        (void)snprintf(text, sizeof(text), "%s", rows[i].text);
        for (char *c = text; *c != '\0'; c++) {
            *c = *c == '\'' ? '"' : *c;
        }
        assert_int_equal(nt_json_parse(text, strlen(text), "case", &o, NULL), 0);
        for (const char *t = types; *t != '\0'; t++) {
            struct nt_err err = {0};
            bool serves = strchr(rows[i].serves, *t) != NULL;
            int rc = read_as(o, *t, &err);
            if ((rc == 0) != serves || (rc != 0 && strstr(err.msg, "v") == NULL)) {
                fail_msg("%s as %c: %d %s", rows[i].text, *t, rc, err.msg);
            }
        }
        json_decref(o);
    }
}

static void test_only_one_value(void **state)
{
    static const char *const wrong[] = {"",    "{",           "{} {}", "{\"a\":1,\"a\":2}",
                                        "nul", "{\"a\":\xff}"};
    static const char *const known[] = {"rank", "ranks", NULL};
    struct nt_err err = {0};
    json_t *o = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(nt_json_parse(wrong[i], strlen(wrong[i]), "it", &o, &err), -NT_E_INVAL);
        assert_non_null(strstr(err.msg, "it is not JSON"));
    }
    o = json_pack("{s:i, s:i}", "rank", 1, "rnaks", 2);
    assert_int_equal(nt_json_only(o, "it", known, &err), -NT_E_INVAL);
    assert_non_null(strstr(err.msg, "ranks"));
    assert_int_equal(json_object_del(o, "rnaks"), 0);
    assert_int_equal(nt_json_only(o, "it", known, &err), 0);
    json_decref(o);
}

static void test_text_that_is_no_utf8(void **state)
{
    static const char *const rows[][2] = {
        {"", ""},
        {"plain", "plain"},
        {"\xc2\xb5s\n", "\xc2\xb5s\n"}, /* text stays as it is */
        {"a\xff", "a?"},
        {"\xff\xff", "??"},
        {"\xc2\xb5\xc2", "\xc2\xb5?"},
        {"cut \xe2\x82", "cut ??"},
    };
    char large[4096];
    json_t *s;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        s = nt_json_text(rows[i][0]);
        assert_string_equal(json_string_value(s), rows[i][1]);
        json_decref(s);
    }
    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    large[4000] = '\xfe';
    s = nt_json_text(large);
    assert_int_equal(json_string_length(s), sizeof(large) - 1); /* nothing is cut off */
    json_decref(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_required_members),
        cmocka_unit_test(test_only_one_value),
        cmocka_unit_test(test_text_that_is_no_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
