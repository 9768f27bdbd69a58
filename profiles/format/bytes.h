/* bytes - little-endian numbers in memory of any alignment. */
#pragma once
#include <stdint.h>
#include <string.h>

static inline uint64_t nt_le_get(const uint8_t *p, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++) {
        v |= (uint64_t)p[i] << 8U * i;
    }
    return v;
}

static inline void nt_le_put(uint8_t *p, unsigned n, uint64_t v)
{
    for (unsigned i = 0; i < n; i++) {
        p[i] = (uint8_t)(v >> 8U * i);
    }
}

static inline uint16_t nt_le16(const uint8_t *p)
{
    return (uint16_t)nt_le_get(p, 2);
}

static inline uint32_t nt_le32(const uint8_t *p)
{
    return (uint32_t)nt_le_get(p, 4);
}

static inline uint64_t nt_le64(const uint8_t *p)
{
    return nt_le_get(p, 8);
}
