#include "tests/probe/fake/number.h"
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "probes/nccl/api.h"

static const struct {
    unsigned mantissa, exponent;
} formats[] = {[NT_NCCL_BF16] = {7, 8}, [NT_NCCL_FP16] = {10, 5}, [NT_NCCL_FP8_E4M3] = {3, 4}};

size_t number_bytes(int dtype)
{
    return dtype == NT_NCCL_FP8_E4M3 ? 1 : dtype == NT_NCCL_BF16 || dtype == NT_NCCL_FP16 ? 2 : 4;
}

/* Small floats: sign, exponent, mantissa. The largest exponent counts as an ordinary one, which is
 * right for fp8 and near enough for what overflowed. */
static float decode(int dtype, uint32_t bits)
{
    unsigned m = formats[dtype].mantissa, e = formats[dtype].exponent;
    int bias = (1 << (e - 1)) - 1, power = (int)(bits >> m & ((1U << e) - 1));
    float fraction = (float)(bits & ((1U << m) - 1)) / (float)(1U << m);
    float v = power == 0 ? ldexpf(fraction, 1 - bias) : ldexpf(1 + fraction, power - bias);
    return (bits >> (m + e) & 1) != 0 ? -v : v;
}

static uint32_t encode(int dtype, float v)
{
    unsigned m = formats[dtype].mantissa, e = formats[dtype].exponent;
    int bias = (1 << (e - 1)) - 1, most = (1 << e) - 1, power = 0;
    uint32_t sign = signbit(v) ? 1U << (m + e) : 0;
    float f = frexpf(fabsf(v), &power); /* v = f × 2^power, f in [0.5, 1) */
    power += bias - 1;
    if (!(fabsf(v) > 0) || power <= 0) {
        return sign;
    }
    if (power > most || isinf(v)) {
        return sign | ((uint32_t)most << m);
    }
    /* To the nearest; a mantissa that is rounded up to 2 raises the exponent. */
    return sign | (((uint32_t)power << m) + (uint32_t)rintf((2 * f - 1) * (float)(1U << m)));
}

static uint32_t load(const void *p, size_t bytes)
{
    uint32_t v = 0;
    memcpy(&v, p, bytes);
    return v;
}

static uint32_t combine(int dtype, bool larger, uint32_t a, uint32_t b)
{
    float x, y;
    if (dtype == NT_NCCL_INT32) {
        return !larger ? a + b : (int32_t)a > (int32_t)b ? a : b;
    }
    if (dtype == NT_NCCL_FP32) {
        memcpy(&x, &a, sizeof(x));
        memcpy(&y, &b, sizeof(y));
        x = larger ? fmaxf(x, y) : x + y;
        memcpy(&a, &x, sizeof(a));
        return a;
    }
    x = decode(dtype, a);
    y = decode(dtype, b);
    return encode(dtype, larger ? fmaxf(x, y) : x + y);
}

void number_combine(int dtype, bool larger, void *to, const void *from, size_t count)
{
    size_t bytes = number_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        char *t = (char *)to + i * bytes;
        uint32_t v =
            combine(dtype, larger, load(t, bytes), load((const char *)from + i * bytes, bytes));
        memcpy(t, &v, bytes);
    }
}
