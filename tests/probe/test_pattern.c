#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "probes/nccl/api.h"
#include "probes/nccl/pattern.h"
#include "tests/probe/fake/number.h"

static const struct {
    int dtype;
    struct nt_pattern p;
} formats[] = {
    {NT_NCCL_BF16, {.elem_bytes = 2, .mantissa = 7, .bias = 127, .limit = 256}},
    {NT_NCCL_FP16, {.elem_bytes = 2, .mantissa = 10, .bias = 15, .limit = 2048}},
    {NT_NCCL_FP32, {.elem_bytes = 4, .mantissa = 23, .bias = 127, .limit = 1U << 24}},
    {NT_NCCL_INT32, {.elem_bytes = 4, .limit = 1U << 30}},
    {NT_NCCL_FP8_E4M3, {.elem_bytes = 1, .mantissa = 3, .bias = 7, .limit = 16}},
};
enum { FORMATS = sizeof(formats) / sizeof(formats[0]) };

static void test_known_bits(void **state)
{
    static const struct {
        size_t format;
        uint32_t value, bits;
    } rows[] = {{0, 1, 0x3F80},
                {0, 256, 0x4380},
                {1, 3, 0x4200},
                {1, 2048, 0x6800},
                {2, 5, 0x40A00000},
                {3, 77, 77},
                {4, 1, 0x38},
                {4, 16, 0x58},
                {4, 13, 0x55},
                {0, 0, 0},
                {2, 16777216, 0x4B800000}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t got = nt_pattern_encode(&formats[rows[i].format].p, rows[i].value);
        if (got != rows[i].bits) {
            fail_msg("row %zu: %08x instead of %08x", i, got, rows[i].bits);
        }
    }
}

/* Adding what all ranks put in, in any order, gives the bits that SUM says. */
static void test_sums_are_exact(void **state)
{
    static const unsigned worlds[] = {1, 2, 3, 8, 16, 17, 64};
    (void)state;
    for (size_t f = 0; f < FORMATS; f++) {
        for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
            struct nt_pattern own = formats[f].p, sum;
            unsigned nonzero = 0;
            own.kind = NT_PATTERN_OWN;
            own.world = worlds[w];
            own.salt = 12345;
            sum = own;
            sum.kind = NT_PATTERN_SUM;
            for (uint64_t i = 0; i < 500; i++) {
                uint32_t up = 0, down = 0, want = nt_pattern_bits(&sum, i);
                for (unsigned r = 0; r < own.world; r++) {
                    uint32_t v;
                    own.rank = r;
                    v = nt_pattern_bits(&own, i);
                    number_combine(formats[f].dtype, false, &up, &v, 1);
                    nonzero += v != 0;
                    own.rank = own.world - 1 - r;
                    v = nt_pattern_bits(&own, i);
                    number_combine(formats[f].dtype, false, &down, &v, 1);
                }
                if (up != want || down != want) {
                    fail_msg("format %zu of %u ranks at %u: %08x %08x instead of %08x", f,
                             own.world, (unsigned)i, up, down, want);
                }
            }
            assert_true(nonzero > 0);
        }
    }
}

static double share_equal(const struct nt_pattern *a, const struct nt_pattern *b)
{
    unsigned equal = 0;
    for (uint64_t i = 0; i < 4096; i++) {
        equal += nt_pattern_bits(a, i) == nt_pattern_bits(b, i);
    }
    return equal / 4096.0;
}

/* Another rank, another salt or another place gives other values, as far as the dtype allows. */
static void test_values_tell_apart(void **state)
{
    (void)state;
    for (size_t f = 0; f < FORMATS; f++) {
        for (int raw = 0; raw < 2; raw++) {
            struct nt_pattern a = formats[f].p, b;
            double most = f == FORMATS - 1 && !raw ? 0.6 : 0.1;
            a.kind = raw ? NT_PATTERN_RAW : NT_PATTERN_OWN;
            a.world = 8;
            b = a;
            b.rank = 5;
            assert_true(share_equal(&a, &b) < most);
            b = a;
            b.salt = 1;
            assert_true(share_equal(&a, &b) < most);
            b = a;
            b.first = 1;
            assert_true(share_equal(&a, &b) < most);
        }
    }
}

static void test_store_and_differs(void **state)
{
    (void)state;
    for (size_t f = 0; f < FORMATS; f++) {
        struct nt_pattern p = formats[f].p;
        unsigned char buf[64];
        p.kind = NT_PATTERN_RAW;
        p.world = 2;
        memset(buf, 0, sizeof(buf));
        for (uint64_t i = 0; i < 16; i++) {
            nt_pattern_store(&p, buf, i);
            assert_int_equal(nt_pattern_differs(&p, buf, i), 0);
        }
        for (uint64_t i = 0; i < 16; i++) {
            assert_int_equal(nt_pattern_differs(&p, buf, i), 0); /* neighbours untouched */
        }
        buf[3 * p.elem_bytes] ^= 1;
        assert_int_equal(nt_pattern_differs(&p, buf, 3), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_bits),
        cmocka_unit_test(test_sums_are_exact),
        cmocka_unit_test(test_values_tell_apart),
        cmocka_unit_test(test_store_and_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
