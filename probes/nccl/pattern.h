/*
 * pattern - what every element of a buffer must be, as a pure function of (rank, index, salt); the
 * same code fills and compares on the device, on the host and in the fake.
 *
 * Reductions: small positive integers, so that every partial sum over the ranks is exact in the
 * dtype whatever the order of the additions, and a result has exactly one right bit pattern. Where
 * a dtype cannot hold one unit from each rank (fp8, more than 16 ranks) only as many ranks add at
 * one index as fit, others at the next; the rest add zero. Copies: all bits of a hash.
 */
#pragma once
#include <stdint.h>

#ifdef __CUDACC__
#define NT_PATTERN_FN static __host__ __device__ __forceinline__
#else
#define NT_PATTERN_FN static inline
#endif

enum nt_pattern_kind {
    NT_PATTERN_POISON,    /* all bits one: NaN in every float type */
    NT_PATTERN_OWN,       /* what `rank` put in, numbers that can be added */
    NT_PATTERN_SUM,       /* the sum of OWN over all ranks */
    NT_PATTERN_RAW,       /* what `rank` put in, any bits */
    NT_PATTERN_GATHER,    /* RAW of every rank, `per` elements each, one after the other */
    NT_PATTERN_FLOAT,     /* what `rank` put in, floats whose sums are rounded */
    NT_PATTERN_TRANSPOSE, /* block b holds what rank b had in its block number `rank` */
};

struct nt_pattern {
    uint32_t kind; /* enum nt_pattern_kind */
    uint32_t elem_bytes;
    uint32_t mantissa, bias; /* float format; mantissa 0: plain integer */
    uint32_t limit;          /* largest integer up to which all are exact */
    uint32_t world, rank;
    uint32_t salt;
    uint64_t first; /* added to the index */
    uint64_t per;   /* elements of a block: GATHER, TRANSPOSE */
};

NT_PATTERN_FN uint32_t nt_pattern_hash(uint32_t salt, uint32_t rank, uint64_t index)
{
    uint32_t x = (uint32_t)index * 0x9E3779B1U + (uint32_t)(index >> 32) * 0x27D4EB2FU;
    x ^= rank * 0x85EBCA77U + salt * 0xC2B2AE3DU;
    x ^= x >> 16;
    x *= 0x7FEB352DU;
    x ^= x >> 15;
    x *= 0x846CA68BU;
    return x ^ (x >> 16);
}

/* What one rank adds at one index: 1..limit/adders, or 0 where it is not among the adders. */
NT_PATTERN_FN uint32_t nt_pattern_addend(const struct nt_pattern *p, uint32_t rank, uint64_t index)
{
    uint32_t adders = p->world < p->limit ? p->world : p->limit;
    uint32_t span = p->limit / adders;
    if ((rank + index) % p->world >= adders) {
        return 0;
    }
    span = span > 65536 ? 65536 : span;
    return 1 + (((nt_pattern_hash(p->salt, rank, index) >> 16) * span) >> 16);
}

/* An integer that the format holds exactly, as its bits. */
NT_PATTERN_FN uint32_t nt_pattern_encode(const struct nt_pattern *p, uint32_t v)
{
    uint32_t e = 0, m;
    if (p->mantissa == 0 || v == 0) {
        return v;
    }
    while (v >> (e + 1) != 0) {
        e++;
    }
    m = v - (1U << e);
    m = e <= p->mantissa ? m << (p->mantissa - e) : m >> (e - p->mantissa);
    return ((e + p->bias) << p->mantissa) | m;
}

/* A float of either sign between 1/2 and 8 with all of its mantissa in use; an integer: any. */
NT_PATTERN_FN uint32_t nt_pattern_float(const struct nt_pattern *p, uint32_t hash)
{
    uint32_t width = 8 * p->elem_bytes;
    if (p->mantissa == 0) {
        return hash;
    }
    return (hash >> 31) << (width - 1) | (p->bias - 1 + (hash >> 29 & 3U)) << p->mantissa |
           (hash & ((1U << p->mantissa) - 1));
}

NT_PATTERN_FN uint32_t nt_pattern_bits(const struct nt_pattern *p, uint64_t i)
{
    uint32_t bits = 0xFFFFFFFFU;
    uint64_t index = i + p->first;
    switch (p->kind) {
    case NT_PATTERN_OWN:
        bits = nt_pattern_encode(p, nt_pattern_addend(p, p->rank, index));
        break;
    case NT_PATTERN_SUM: {
        uint32_t sum = 0;
        for (uint32_t r = 0; r < p->world; r++) {
            sum += nt_pattern_addend(p, r, index);
        }
        bits = nt_pattern_encode(p, sum);
        break;
    }
    case NT_PATTERN_RAW:
        bits = nt_pattern_hash(p->salt, p->rank, index);
        break;
    case NT_PATTERN_FLOAT:
        bits = nt_pattern_float(p, nt_pattern_hash(p->salt, p->rank, index));
        break;
    case NT_PATTERN_GATHER:
        bits = nt_pattern_hash(p->salt, (uint32_t)(index / p->per), index % p->per);
        break;
    case NT_PATTERN_TRANSPOSE:
        bits =
            nt_pattern_hash(p->salt, (uint32_t)(index / p->per), p->rank * p->per + index % p->per);
        break;
    default:
        break;
    }
    return p->elem_bytes == 4 ? bits : bits & ((1U << (8 * p->elem_bytes)) - 1);
}

NT_PATTERN_FN void nt_pattern_store(const struct nt_pattern *p, void *buf, uint64_t i)
{
    uint32_t bits = nt_pattern_bits(p, i);
    switch (p->elem_bytes) {
    case 1:
        ((uint8_t *)buf)[i] = (uint8_t)bits;
        break;
    case 2:
        ((uint16_t *)buf)[i] = (uint16_t)bits;
        break;
    default:
        ((uint32_t *)buf)[i] = bits;
        break;
    }
}

/* 1 when element i is not what it must be. */
NT_PATTERN_FN uint32_t nt_pattern_differs(const struct nt_pattern *p, const void *buf, uint64_t i)
{
    uint32_t bits = nt_pattern_bits(p, i);
    switch (p->elem_bytes) {
    case 1:
        return ((const uint8_t *)buf)[i] != bits;
    case 2:
        return ((const uint16_t *)buf)[i] != bits;
    default:
        return ((const uint32_t *)buf)[i] != bits;
    }
}
