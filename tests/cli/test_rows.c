/* Tables, CSV and JSON of whatever a database holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/cli/rows.h"

#define TEXT(s)                                                                                    \
    {                                                                                              \
        .type = NT_VALUE_TEXT, .text = (s), .len = sizeof(s) - 1                                   \
    }

static char *print(enum nt_rows_format format, unsigned ncols, const char *const *names,
                   const struct nt_value *values, unsigned nrows)
{
    struct nt_rows *r = NULL;
    struct nt_err e = {0};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    int rc;
    assert_non_null(out);
    assert_int_equal(nt_rows_open(format, out, &r, &e), 0);
    rc = nt_rows_add(r, ncols, names, NULL, &e);
    for (unsigned i = 0; rc == 0 && i < nrows; i++) {
        rc = nt_rows_add(r, ncols, names, values + (size_t)i * ncols, &e);
    }
    assert_int_equal(nt_rows_close(r, rc, &e), 0);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void test_one_value(void **state)
{
    static const struct {
        struct nt_value v;
        const char *table, *csv, *json;
    } rows[] = {
        {{.type = NT_VALUE_NULL}, "-", "", "null"},
        {{.type = NT_VALUE_INT, .i = INT64_MIN},
         "-9223372036854775808",
         "-9223372036854775808",
         "-9223372036854775808"},
        {{.type = NT_VALUE_REAL, .r = 0.1}, "0.1", "0.1", "0.1"},
        {{.type = NT_VALUE_REAL, .r = 1.0 / 3},
         "0.3333333333333333",
         "0.3333333333333333",
         "0.3333333333333333"},
        {{.type = NT_VALUE_REAL, .r = INFINITY}, "inf", "inf", "null"},
        {{.type = NT_VALUE_BLOB, .text = "\x00\xff", .len = 2}, "(2 bytes)", "00ff", "\"00ff\""},
        {TEXT("plain"), "plain", "plain", "\"plain\""},
        {TEXT(""), "", "\"\"", "\"\""},
        {TEXT("a,b"), "a,b", "\"a,b\"", "\"a,b\""},
        {TEXT("say \"x\""), "say \"x\"", "\"say \"\"x\"\"\"", "\"say \\\"x\\\"\""},
        {TEXT("a\nb\tc"), "a\\nb\\tc", "\"a\nb\tc\"", "\"a\\u000ab\\u0009c\""},
        {TEXT(" blank"), " blank", "\" blank\"", "\" blank\""},
        {TEXT("\x1b[31mred"), "\\u001b[31mred", "\x1b[31mred", "\"\\u001b[31mred\""},
        {TEXT("\xe2\x80\xaeturned\xe2\x80\xac"), "\\u202eturned\\u202c",
         "\xe2\x80\xaeturned\xe2\x80\xac", "\"\\u202eturned\\u202c\""},
        {TEXT("\xc2\x9b"), "\\u009b", "\xc2\x9b", "\"\\u009b\""},
        {TEXT("µs → …"), "µs → …", "µs → …", "\"µs → …\""},
        {TEXT("cut \xe2\x82"), "cut \\xe2\\x82", "cut \xe2\x82", "\"cut \\ufffd\\ufffd\""},
        {TEXT("over \xc0\xaf"), "over \\xc0\\xaf", "over \xc0\xaf", "\"over \\ufffd\\ufffd\""},
        {TEXT("pair \xed\xa0\x80"), "pair \\xed\\xa0\\x80", "pair \xed\xa0\x80",
         "\"pair \\ufffd\\ufffd\\ufffd\""},
        {TEXT("012345678901234567890123456789012345678901234567890123456789x"),
         "01234567890123456789012345678901234567890123456789012345678…",
         "012345678901234567890123456789012345678901234567890123456789x",
         "\"012345678901234567890123456789012345678901234567890123456789x\""},
    };
    static const char *const name[] = {"c"};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char want[512];
        char *got = print(NT_ROWS_CSV, 1, name, &rows[i].v, 1);
        (void)snprintf(want, sizeof(want), "c\r\n%s\r\n", rows[i].csv);
        assert_string_equal(got, want);
        free(got);
        got = print(NT_ROWS_JSON, 1, name, &rows[i].v, 1);
        (void)snprintf(want, sizeof(want), "[\n {\"c\": %s}\n]\n", rows[i].json);
        assert_string_equal(got, want);
        json_t *parsed = json_loads(got, 0, NULL);
        assert_non_null(parsed);
        json_decref(parsed);
        free(got);
        got = print(NT_ROWS_TABLE, 1, name, &rows[i].v, 1);
        assert_non_null(strchr(got, '\n'));
        const char *cell = strchr(got, '\n') + 1;
        while (rows[i].table[0] != ' ' && *cell == ' ') { /* numbers stand to the right */
            cell++;
        }
        (void)snprintf(want, sizeof(want), "%s\n", rows[i].table);
        assert_string_equal(cell, want);
        free(got);
    }
}

static void test_table_is_aligned(void **state)
{
    static const char *const names[] = {"name", "n", "words"};
    const struct nt_value v[] = {
        TEXT("µs"),
        {.type = NT_VALUE_INT, .i = 5},
        TEXT("left"),
        TEXT("long"),
        {.type = NT_VALUE_NULL},
        TEXT("x"),
        TEXT("a"),
        {.type = NT_VALUE_REAL, .r = 12.5},
        TEXT("y"),
    };
    char *got = print(NT_ROWS_TABLE, 3, names, v, 3);
    (void)state;
    assert_string_equal(got, "name     n  words\n"
                             "µs       5  left\n"
                             "long     -  x\n"
                             "a     12.5  y\n");
    free(got);
}

static void test_no_rows(void **state)
{
    static const char *const names[] = {"a", "b", "a"};
    static const char *const want[] = {"a  b  a:2\n", "a,b,a:2\r\n", "[]\n"};
    (void)state;
    for (int f = 0; f < NT_ROWS_FORMAT_COUNT; f++) {
        char *got = print((enum nt_rows_format)f, 3, names, NULL, 0);
        assert_string_equal(got, want[f]);
        free(got);
    }
}

/* More rows than the table keeps: all are there, in order. */
static void test_many_rows(void **state)
{
    static const char *const names[] = {"n"};
    enum { ROWS = 2000 };
    struct nt_value v[ROWS];
    unsigned lines = 0;
    (void)state;
    for (unsigned i = 0; i < ROWS; i++) {
        v[i] = (struct nt_value){.type = NT_VALUE_INT, .i = i};
    }
    char *got = print(NT_ROWS_TABLE, 1, names, v, ROWS);
    for (char *line = strchr(got, '\n') + 1; *line != '\0'; line = strchr(line, '\n') + 1) {
        assert_int_equal(strtoul(line, NULL, 10), lines++);
    }
    assert_int_equal(lines, ROWS);
    free(got);
}

static void test_full_output(void **state)
{
    static const char *const names[] = {"n"};
    const struct nt_value v = {.type = NT_VALUE_INT, .i = 1};
    struct nt_err e = {0};
    (void)state;
    for (int f = 0; f < NT_ROWS_FORMAT_COUNT; f++) {
        struct nt_rows *r = NULL;
        FILE *out = fopen("/dev/full", "we");
        int rc;
        assert_non_null(out);
        assert_int_equal(nt_rows_open((enum nt_rows_format)f, out, &r, &e), 0);
        rc = nt_rows_add(r, 1, names, NULL, &e);
        rc = rc == 0 ? nt_rows_add(r, 1, names, &v, &e) : rc;
        assert_int_equal(nt_rows_close(r, rc, &e), -NT_E_IO);
        (void)fclose(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_value),   cmocka_unit_test(test_table_is_aligned),
        cmocka_unit_test(test_no_rows),     cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_full_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
