/* rng - xoshiro256**, seeded through splitmix64 from any number of keys. Deterministic on every
 * machine; for sampling and ordering, never for secrets. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct nt_rng {
    uint64_t s[4];
};

void nt_rng_seed(struct nt_rng *r, uint64_t seed);
uint64_t nt_mix64(uint64_t x);           /* splitmix64's finaliser: a hash of one word */
uint64_t nt_mix(uint64_t a, uint64_t b); /* combines two keys into one */
uint64_t nt_rng_next(struct nt_rng *r);  /* 64 uniform bits */
uint64_t nt_rng_below(struct nt_rng *r, uint64_t n); /* uniform in [0, n), n > 0, without bias */
double nt_rng_unit(struct nt_rng *r);                /* uniform in [0, 1) */
double nt_rng_normal(struct nt_rng *r); /* standard normal (Box-Muller, one value used) */
void nt_rng_shuffle(struct nt_rng *r, uint32_t *items, size_t n);
/* Who of two comes first in turn i: 0 1 1 0 1 0 0 1 … (Thue and Morse's order). Neither what grows
 * with time nor what grows faster than it favours one of them. */
unsigned nt_rng_abba(unsigned i);
