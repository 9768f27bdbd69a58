#include "tuner/base/foreign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <zlib.h>

#define MAX 4096

static struct nt_buf of(const char *bytes, size_t len)
{
    struct nt_buf b;
    nt_buf_init(&b, MAX);
    nt_buf_add(&b, bytes, len);
    return b;
}

/* What a text of `len` bytes becomes. */
static void becomes(const char *bytes, size_t len, const char *want)
{
    struct nt_buf b = of(bytes, len);
    assert_int_equal(nt_foreign_text(&b, "x", NULL), 0);
    assert_string_equal(nt_buf_str(&b), want);
    assert_int_equal(b.len, strlen(want));
    nt_buf_done(&b);
}

#define BECOMES(bytes, want) becomes(bytes, sizeof(bytes) - 1, want)

static void test_texts(void **state)
{
    (void)state;
    BECOMES("", "");
    BECOMES("plain\r\ntext\n", "plain\r\ntext\n");
    BECOMES("old\rends\r", "old\nends\n");
    BECOMES("{\"logs\": 1}\n", "{\"logs\": 1}\n");
}

static void test_utf16(void **state)
{
    (void)state;
    BECOMES("\xff\xfeG\0P\0\xb5\0", "GP\xc2\xb5");
    BECOMES("\xfe\xff\0G\0P\x20\xac", "GP\xe2\x82\xac");
    BECOMES("G\0P\0U\0000\0", "GPU0"); /* no mark */
    BECOMES("\xff\xfe\x3d\xd8\x00\xdeg\0", "\xf0\x9f\x98\x80g");
    BECOMES("\xff\xfe\x3d\xd8g\0\x00\xde", "?g?"); /* halves without their other half */
}

static void test_logs_of_containers(void **state)
{
    (void)state;
    BECOMES("{\"log\":\"\\tGPU0\\n\",\"stream\":\"stdout\"}\n"
            "{\"log\":\"\\u001b[1mX\\n\",\"stream\":\"stdout\"}\n"
            "{\"log\":\"cut",
            "\tGPU0\n\x1b[1mX\n");
    BECOMES("{\"time\": 1, \"log\": \"a\"}\n\n{\"log\": 5}\n", "a\n");
    BECOMES("{\"log\":\"a\\n\"}\nnone\n", "{\"log\":\"a\\n\"}\nnone\n"); /* not every line */
}

static size_t pack(const char *text, unsigned char *out, size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, 0), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)text;
    z.avail_in = (unsigned)strlen(text);
    z.next_out = out;
    z.avail_out = (unsigned)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    room -= z.avail_out;
    assert_int_equal(deflateEnd(&z), Z_OK);
    return room;
}

static void test_gzip(void **state)
{
    unsigned char packed[512];
    size_t one = pack("first\n", packed, sizeof(packed)), two;
    struct nt_buf b;
    (void)state;
    becomes((char *)packed, one, "first\n");
    two = pack("second\n", packed + one, sizeof(packed) - one);
    becomes((char *)packed, one + two, "first\nsecond\n");
    b = of((char *)packed, one - 3);
    assert_int_equal(nt_foreign_text(&b, "x", NULL), -NT_E_INVAL);
    nt_buf_done(&b);
}

/* A small file that unpacks to a large one. */
static void test_gzip_is_bounded(void **state)
{
    static char zeros[2 * MAX];
    unsigned char packed[512];
    struct nt_buf b;
    (void)state;
    memset(zeros, '0', sizeof(zeros) - 1);
    b = of((char *)packed, pack(zeros, packed, sizeof(packed)));
    assert_int_equal(nt_foreign_text(&b, "x", NULL), -NT_E_INVAL);
    nt_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_utf16),
                                       cmocka_unit_test(test_logs_of_containers),
                                       cmocka_unit_test(test_gzip),
                                       cmocka_unit_test(test_gzip_is_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
