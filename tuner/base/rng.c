#include "tuner/base/rng.h"

#include <math.h>

uint64_t nt_mix64(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t nt_mix(uint64_t a, uint64_t b)
{
    return nt_mix64(a ^ nt_mix64(b));
}

void nt_rng_seed(struct nt_rng *r, uint64_t seed)
{
    for (size_t i = 0; i < 4; i++) {
        seed = nt_mix64(seed + i);
        r->s[i] = seed;
    }
}

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t nt_rng_next(struct nt_rng *r)
{
    uint64_t *s = r->s;
    uint64_t out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return out;
}

uint64_t nt_rng_below(struct nt_rng *r, uint64_t n)
{
    uint64_t limit = UINT64_MAX - UINT64_MAX % n, x;
    do {
        x = nt_rng_next(r);
    } while (x >= limit);
    return x % n;
}

double nt_rng_unit(struct nt_rng *r)
{
    return (double)(nt_rng_next(r) >> 11) * 0x1.0p-53;
}

double nt_rng_normal(struct nt_rng *r)
{
    double u = 1.0 - nt_rng_unit(r), v = nt_rng_unit(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

void nt_rng_shuffle(struct nt_rng *r, uint32_t *items, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)nt_rng_below(r, i);
        uint32_t t = items[i - 1];
        items[i - 1] = items[j];
        items[j] = t;
    }
}

unsigned nt_rng_abba(unsigned i)
{
    unsigned odd = 0;
    for (; i != 0; i >>= 1) {
        odd ^= i & 1U;
    }
    return odd;
}
