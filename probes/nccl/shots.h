/*
 * shots - all_reduce over memory that the ranks of one host share: the same code runs on the device
 * (one lane a thread) and in the fake of tests/probe (one lane a block), where processes really
 * meet.
 *
 * Variants   one_shot: every rank adds up everything, one meeting; two_shot: every rank adds up its
 *            share and all take it, two meetings. push: ranks only write data into each other's
 *            stage; pull: they only read it; direct: on the callers' own buffers, which all ranks
 *            have mapped, with a meeting before and one after. ll (one_shot, small calls): push
 *            without a meeting, as NCCL's protocol of that name: each 8 bytes stored hold 4 of data
 *            and the number of the call, and whoever reads them waits for the number.
 * Sums       rank 0 first, then rank 1, …, in fp32, rounded once: every rank gets the same bits.
 * Meetings   block b of a rank meets block b of all others, through flags[block][from] in each
 *            rank's memory. A flag only ever grows: epoch of the call + number of the meeting. The
 *            epoch is kept on the device and moved on by the kernel itself, so a graph replays as
 *            often as it likes. All ranks launch the same calls with the same number of blocks.
 * Ordering   A lane writes its data; the block synchronises (bar.sync orders them before what
 *            follows in any lane); lane r stores its flag with release at system scope, which is
 *            cumulative over all of them. The peer's lane loads it with acquire at system scope and
 *            its block synchronises before any lane reads the data. Data is read with plain loads,
 *            never through the read-only cache.
 * Stage      two halves, used in turn by call. A rank writes into a half in call n + 2 only after
 *            its call n + 1 is done, in which every block waited for a flag that each peer sets
 *            after its call n has ended (calls of a stream run one after the other). So nobody
 *            still reads call n's data, and no meeting is needed at the end. All blocks see one
 *            epoch: block 0 moves on those of the blocks that did not run.
 *            What ll writes lies apart, in a stage where nothing but numbers of earlier calls can
 *            stand; it has halves for the same reason, as each rank waits for data of all others.
 * Elements   block b handles vectors of 16 bytes number (b * lanes + lane) + k * blocks * lanes of
 *            each part on every rank, so what a block reads was written by the same block of the
 *            peer: a meeting of blocks is enough.
 * Watchdog   a wait ends after limit_ns, or when the host or another block says stop; the words are
 *            in host memory, so the host sees it and can say it while the kernel runs.
 */
#pragma once
#include <stdint.h>
#include <string.h>
#include "schema/vocab.h"

enum {
    NT_SHOT_RANKS = 16,
    NT_SHOT_BLOCKS = 264, /* most blocks of a call */
    NT_SHOT_THREADS = 512,
    NT_SHOT_VEC = 16,     /* bytes of a vector; buffers are aligned to it */
    NT_SHOT_MEETINGS = 2, /* flags grow by this much with each call */
    NT_SHOT_FLAG_BYTES = NT_SHOT_BLOCKS * NT_SHOT_RANKS * 8,
    NT_SHOT_EPOCH_BYTES = NT_SHOT_BLOCKS * 8,
    NT_SHOT_LL_BYTES = 1 << 18,              /* most data of an ll call */
    NT_SHOT_LL_UNITS = NT_SHOT_LL_BYTES / 8, /* 8 bytes of data, 16 of the stage */
};
/* Of `words`. From NT_SHOT_BLOCK on: who gave up first, on whom, and what it had seen of what. */
enum {
    NT_SHOT_STOP,
    NT_SHOT_GAVE_UP,
    NT_SHOT_BLOCK,
    NT_SHOT_FROM,
    NT_SHOT_SEEN,
    NT_SHOT_WANTED,
    NT_SHOT_WAITED_MS,
    NT_SHOT_WORDS
};

struct nt_shot {
    const void *in[NT_SHOT_RANKS]; /* direct: of all ranks; else only the own is used */
    void *out[NT_SHOT_RANKS];
    void *stage[NT_SHOT_RANKS];  /* of all ranks, two halves of half_bytes each */
    uint64_t *ll[NT_SHOT_RANKS]; /* of all ranks, nt_shot_ll_stage_bytes() */
    uint64_t *flags[NT_SHOT_RANKS];
    uint64_t *epoch; /* own, [NT_SHOT_BLOCKS] */
    uint32_t *words; /* host memory, [NT_SHOT_WORDS] */
    uint64_t half_bytes, bytes, limit_ns;
    uint32_t world, rank;
    uint8_t dtype, algo, proto;
};

/* Bytes of the stage of ll, both halves. */
static inline uint64_t nt_shot_ll_stage_bytes(unsigned world)
{
    return 2ULL * world * NT_SHOT_LL_UNITS * 16;
}

/* Bytes of one half of the stage that a call needs; 0: none. */
static inline uint64_t nt_shot_stage_bytes(uint64_t bytes, unsigned world, int algo, int proto)
{
    uint64_t vectors = (bytes + NT_SHOT_VEC - 1) / NT_SHOT_VEC;
    uint64_t part = (vectors + world - 1) / world * NT_SHOT_VEC, whole = part * world;
    if (proto == NT_DIRECT || proto == NT_LL) {
        return 0;
    }
    if (algo == NT_ONE_SHOT) {
        return vectors * NT_SHOT_VEC * (proto == NT_PUSH ? world : 1);
    }
    return proto == NT_PUSH ? 2 * whole : whole + part;
}

#ifdef __CUDACC__
#define NT_SHOT_FN     static __device__ __forceinline__
#define NT_SHOT_UNROLL _Pragma("unroll")
#else
#define NT_SHOT_FN static inline
#define NT_SHOT_UNROLL
#endif

/* Where a lane stands. */
struct nt_lane {
    uint32_t block, blocks, lane, lanes;
    uint64_t epoch;
};

/* ---- what differs between device and host ---- */
#ifdef __CUDACC__
#include <cuda_fp16.h>
typedef uint4 nt_vec;
NT_SHOT_FN uint64_t nt_shot_load(const uint64_t *p)
{
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
NT_SHOT_FN void nt_shot_store(uint64_t *p, uint64_t v)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}
/* Each word of 64 bits arrives whole. */
NT_SHOT_FN void nt_shot_store_unit(uint64_t *p, uint64_t a, uint64_t b)
{
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" : : "l"(p), "l"(a), "l"(b) : "memory");
}
NT_SHOT_FN void nt_shot_load_unit(const uint64_t *p, uint64_t *a, uint64_t *b)
{
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(*a), "=l"(*b)
                 : "l"(p)
                 : "memory");
}
NT_SHOT_FN uint32_t nt_shot_word(const uint32_t *p)
{
    return *(const volatile uint32_t *)p;
}
NT_SHOT_FN void nt_shot_say(uint32_t *p, uint32_t value)
{
    *(volatile uint32_t *)p = value;
}
NT_SHOT_FN uint64_t nt_shot_clock(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}
/* The block meets; true when all lanes say so. */
NT_SHOT_FN bool nt_shot_all(bool mine)
{
    return __syncthreads_and(mine) != 0;
}
NT_SHOT_FN void nt_shot_pause(void)
{
}
NT_SHOT_FN float nt_shot_half(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}
NT_SHOT_FN uint32_t nt_shot_to_half(float f)
{
    return __half_as_ushort(__float2half_rn(f));
}
NT_SHOT_FN float nt_shot_float(uint32_t bits)
{
    return __uint_as_float(bits);
}
NT_SHOT_FN uint32_t nt_shot_float_bits(float f)
{
    return __float_as_uint(f);
}
#else
#include <sched.h>
#include <time.h>
typedef struct {
    uint32_t x, y, z, w;
} nt_vec;
NT_SHOT_FN uint64_t nt_shot_load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
NT_SHOT_FN void nt_shot_store(uint64_t *p, uint64_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
NT_SHOT_FN void nt_shot_store_unit(uint64_t *p, uint64_t a, uint64_t b)
{
    __atomic_store_n(p, a, __ATOMIC_RELAXED);
    __atomic_store_n(p + 1, b, __ATOMIC_RELAXED);
}
NT_SHOT_FN void nt_shot_load_unit(const uint64_t *p, uint64_t *a, uint64_t *b)
{
    *a = __atomic_load_n(p, __ATOMIC_RELAXED);
    *b = __atomic_load_n(p + 1, __ATOMIC_RELAXED);
}
NT_SHOT_FN uint32_t nt_shot_word(const uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
NT_SHOT_FN void nt_shot_say(uint32_t *p, uint32_t value)
{
    __atomic_store_n(p, value, __ATOMIC_RELAXED);
}
NT_SHOT_FN uint64_t nt_shot_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}
NT_SHOT_FN bool nt_shot_all(bool mine)
{
    return mine;
}
NT_SHOT_FN void nt_shot_pause(void)
{
    (void)sched_yield();
}
NT_SHOT_FN float nt_shot_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}
NT_SHOT_FN uint32_t nt_shot_float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}
/* Numbers that fp16 holds as normal ones; that is all the fake is given. */
NT_SHOT_FN float nt_shot_half(uint32_t h)
{
    return (h & 0x7FFFU) == 0
               ? 0.0F
               : nt_shot_float((h & 0x8000U) << 16 | ((h & 0x7FFFU) + 0x1C000U) << 13);
}
NT_SHOT_FN uint32_t nt_shot_to_half(float f)
{
    uint32_t b = nt_shot_float_bits(f), m = b & 0x7FFFFFFFU;
    m += 0xFFFU + (m >> 13 & 1U);
    return (b >> 16 & 0x8000U) | (f == 0.0F ? 0 : (m >> 13) - 0x1C000U);
}
#endif

/* bf16 is the upper half of a float; to the nearest, ties to even. A NaN stays one. */
NT_SHOT_FN uint32_t nt_shot_to_bf16(float f)
{
    uint32_t b = nt_shot_float_bits(f);
    return (b & 0x7FFFFFFFU) > 0x7F800000U ? b >> 16 | 0x40U : (b + 0x7FFFU + (b >> 16 & 1U)) >> 16;
}

/* ---- adding up ---- */

enum { NT_SHOT_SUMS = 8, NT_SHOT_FLIGHT = 8 }; /* elements of a vector, loads in flight: at most */

/* The first of a sum is taken as it is: adding it to zero would lose the sign of -0. */
NT_SHOT_FN void nt_shot_add_to(float *sum, float x, bool first)
{
    *sum = first ? x : *sum + x;
}

NT_SHOT_FN void nt_shot_add_word(float *sum, uint32_t w, unsigned k, int dtype, bool first)
{
    if (dtype == NT_FP32) {
        nt_shot_add_to(&sum[k], nt_shot_float(w), first);
    } else if (dtype == NT_BF16) {
        nt_shot_add_to(&sum[2 * k], nt_shot_float(w << 16), first);
        nt_shot_add_to(&sum[2 * k + 1], nt_shot_float(w & 0xFFFF0000U), first);
    } else {
        nt_shot_add_to(&sum[2 * k], nt_shot_half(w & 0xFFFFU), first);
        nt_shot_add_to(&sum[2 * k + 1], nt_shot_half(w >> 16), first);
    }
}

NT_SHOT_FN void nt_shot_add(float *sum, nt_vec v, int dtype, bool first)
{
    nt_shot_add_word(sum, v.x, 0, dtype, first);
    nt_shot_add_word(sum, v.y, 1, dtype, first);
    nt_shot_add_word(sum, v.z, 2, dtype, first);
    nt_shot_add_word(sum, v.w, 3, dtype, first);
}

NT_SHOT_FN uint32_t nt_shot_round_word(const float *sum, unsigned k, int dtype)
{
    return dtype == NT_FP32   ? nt_shot_float_bits(sum[k])
           : dtype == NT_BF16 ? nt_shot_to_bf16(sum[2 * k]) | nt_shot_to_bf16(sum[2 * k + 1]) << 16
                              : nt_shot_to_half(sum[2 * k]) | nt_shot_to_half(sum[2 * k + 1]) << 16;
}

NT_SHOT_FN nt_vec nt_shot_round(const float *sum, int dtype)
{
    nt_vec v;
    v.x = nt_shot_round_word(sum, 0, dtype);
    v.y = nt_shot_round_word(sum, 1, dtype);
    v.z = nt_shot_round_word(sum, 2, dtype);
    v.w = nt_shot_round_word(sum, 3, dtype);
    return v;
}

/* ---- memory: a stretch of vectors, of which the last may be cut ---- */

NT_SHOT_FN nt_vec nt_shot_get(const void *base, uint64_t i, uint64_t bytes)
{
    nt_vec v = {0, 0, 0, 0};
    if ((i + 1) * NT_SHOT_VEC <= bytes) {
        return ((const nt_vec *)base)[i];
    }
    for (uint64_t at = i * NT_SHOT_VEC, k = 0; at + k < bytes; k += 2) { /* elements have 2 or 4 */
        uint32_t h = *(const uint16_t *)((const char *)base + at + k);
        uint32_t *w = k < 4 ? &v.x : k < 8 ? &v.y : k < 12 ? &v.z : &v.w;
        *w |= h << (8 * (k % 4));
    }
    return v;
}

NT_SHOT_FN void nt_shot_put(void *base, uint64_t i, uint64_t bytes, nt_vec v)
{
    if ((i + 1) * NT_SHOT_VEC <= bytes) {
        ((nt_vec *)base)[i] = v;
        return;
    }
    for (uint64_t at = i * NT_SHOT_VEC, k = 0; at + k < bytes; k += 2) {
        uint32_t w = k < 4 ? v.x : k < 8 ? v.y : k < 12 ? v.z : v.w;
        *(uint16_t *)((char *)base + at + k) = (uint16_t)(w >> (8 * (k % 4)));
    }
}

/* ---- meetings ---- */

/* Of the waits that end at the same time the words may be mixed; they are for people. */
NT_SHOT_FN void nt_shot_give_up(const struct nt_shot *s, uint32_t block, uint32_t from,
                                uint64_t seen, uint64_t until, uint64_t waited_ns)
{
    if (nt_shot_word(&s->words[NT_SHOT_GAVE_UP]) == 0) {
        nt_shot_say(&s->words[NT_SHOT_BLOCK], block);
        nt_shot_say(&s->words[NT_SHOT_FROM], from);
        nt_shot_say(&s->words[NT_SHOT_SEEN], (uint32_t)seen);
        nt_shot_say(&s->words[NT_SHOT_WANTED], (uint32_t)until);
        nt_shot_say(&s->words[NT_SHOT_WAITED_MS], (uint32_t)(waited_ns / 1000000U));
        nt_shot_say(&s->words[NT_SHOT_GAVE_UP], 1);
    }
}

/* Once in a thousand polls of a wait: may it go on? *begin: 0 at first. */
NT_SHOT_FN bool nt_shot_patient(const struct nt_shot *s, uint32_t block, uint32_t from,
                                uint64_t seen, uint64_t until, uint64_t *begin)
{
    uint64_t now = nt_shot_clock();
    *begin = *begin == 0 ? now : *begin;
    if (now - *begin > s->limit_ns || nt_shot_word(&s->words[NT_SHOT_STOP]) != 0 ||
        nt_shot_word(&s->words[NT_SHOT_GAVE_UP]) != 0) {
        nt_shot_give_up(s, block, from, seen, until, now - *begin);
        return false;
    }
    return true;
}

/* Block `block` of this rank waits for the same block of rank `from`. */
NT_SHOT_FN bool nt_shot_wait(const struct nt_shot *s, uint32_t block, uint32_t from, uint64_t until)
{
    const uint64_t *flag = &s->flags[s->rank][(uint64_t)block * NT_SHOT_RANKS + from];
    uint64_t begin = 0;
    for (uint32_t polls = 1; nt_shot_load(flag) < until; polls++) {
        if (polls % 1024 != 0) {
            nt_shot_pause();
        } else if (!nt_shot_patient(s, block, from, nt_shot_load(flag), until, &begin)) {
            return false;
        }
    }
    return true;
}

/* What this block wrote before is there for the same block of all ranks afterwards. False: given
 * up, the same on all lanes of the block. */
NT_SHOT_FN bool nt_shot_meet(const struct nt_shot *s, const struct nt_lane *l, unsigned number)
{
    uint64_t value = l->epoch + number, at = (uint64_t)l->block * NT_SHOT_RANKS;
    bool ok = true;
    (void)nt_shot_all(true);
    for (uint32_t r = l->lane; r < s->world; r += l->lanes) {
        nt_shot_store(&s->flags[r][at + s->rank], value);
    }
    for (uint32_t r = l->lane; ok && r < s->world; r += l->lanes) {
        ok = nt_shot_wait(s, l->block, r, value);
    }
    return nt_shot_all(ok);
}

/* ---- the variants ---- */

/* A stretch of vectors: from..from+count of each source is added up and goes to each target. */
struct nt_shot_job {
    const void *src[NT_SHOT_RANKS];
    void *dst[NT_SHOT_RANKS];
    uint64_t from, count, src_bytes, dst_bytes; /* bytes: where the last vector is cut */
    uint32_t targets;
};

/* One vector: the general way, for a cut one and for any number of ranks. */
NT_SHOT_FN void nt_shot_sum_one(const struct nt_shot_job *j, uint64_t at, unsigned world, int dtype)
{
    float sum[NT_SHOT_SUMS] = {0};
    nt_vec v;
    NT_SHOT_UNROLL
    for (unsigned r = 0; r < world; r++) {
        nt_shot_add(sum, nt_shot_get(j->src[r], j->from + at, j->src_bytes), dtype, r == 0);
    }
    v = nt_shot_round(sum, dtype);
    NT_SHOT_UNROLL
    for (unsigned t = 0; t < world; t++) {
        if (t < j->targets) {
            nt_shot_put(j->dst[t], j->from + at, j->dst_bytes, v);
        }
    }
}

/* `batch` whole vectors, with all their loads in flight together. */
NT_SHOT_FN void nt_shot_sum_batch(const struct nt_shot_job *j, uint64_t i, uint64_t step,
                                  uint64_t full, unsigned world, int dtype, unsigned batch)
{
    nt_vec got[NT_SHOT_FLIGHT];
    NT_SHOT_UNROLL
    for (unsigned b = 0; b < batch; b++) {
        uint64_t at = i + b * step;
        at = j->from + (at < full ? at : i);
        NT_SHOT_UNROLL
        for (unsigned r = 0; r < world; r++) {
            got[b * world + r] = ((const nt_vec *)j->src[r])[at];
        }
    }
    NT_SHOT_UNROLL
    for (unsigned b = 0; b < batch; b++) {
        uint64_t at = i + b * step;
        float sum[NT_SHOT_SUMS] = {0};
        nt_vec v;
        NT_SHOT_UNROLL
        for (unsigned r = 0; r < world; r++) {
            nt_shot_add(sum, got[b * world + r], dtype, r == 0);
        }
        v = nt_shot_round(sum, dtype);
        NT_SHOT_UNROLL
        for (unsigned t = 0; t < world; t++) {
            if (t < j->targets && at < full) {
                ((nt_vec *)j->dst[t])[j->from + at] = v;
            }
        }
    }
}

NT_SHOT_FN void nt_shot_sum(const struct nt_shot_job *j, const struct nt_lane *l, unsigned world,
                            int dtype, unsigned batch)
{
    uint64_t step = (uint64_t)l->blocks * l->lanes, end = (j->from + j->count) * NT_SHOT_VEC;
    uint64_t i = (uint64_t)l->block * l->lanes + l->lane;
    uint64_t full = j->count - (j->count > 0 && (end > j->src_bytes || end > j->dst_bytes));
    for (; batch > 0 && i < full; i += step * batch) {
        nt_shot_sum_batch(j, i, step, full, world, dtype, batch);
    }
    if (batch > 0) { /* the cut one is left, for the lane whose turn it is */
        i = full + (full % step == (uint64_t)l->block * l->lanes + l->lane ? 0 : step);
    }
    for (; i < j->count; i += step) {
        nt_shot_sum_one(j, i, world, dtype);
    }
}

/* Copies vectors from..from+count of src to place `to` of dst. */
NT_SHOT_FN void nt_shot_copy(const struct nt_lane *l, const void *src, uint64_t from,
                             uint64_t src_bytes, void *dst, uint64_t to, uint64_t dst_bytes,
                             uint64_t count)
{
    enum { BATCH = 4 };
    uint64_t step = (uint64_t)l->blocks * l->lanes, own = (uint64_t)l->block * l->lanes + l->lane;
    uint64_t full = count - (count > 0 && ((from + count) * NT_SHOT_VEC > src_bytes ||
                                           (to + count) * NT_SHOT_VEC > dst_bytes));
    for (uint64_t i = own; i < full; i += step * BATCH) {
        nt_vec got[BATCH];
        NT_SHOT_UNROLL
        for (unsigned b = 0; b < BATCH; b++) {
            uint64_t at = i + b * step;
            got[b] = ((const nt_vec *)src)[from + (at < full ? at : i)];
        }
        NT_SHOT_UNROLL
        for (unsigned b = 0; b < BATCH; b++) {
            uint64_t at = i + b * step;
            if (at < full) {
                ((nt_vec *)dst)[to + at] = got[b];
            }
        }
    }
    if (full < count && full % step == own) {
        nt_shot_put(dst, to + full, dst_bytes, nt_shot_get(src, from + full, src_bytes));
    }
}

/* Parts of the two-shot variants, in vectors. */
struct nt_shot_parts {
    uint64_t vectors, per;
};
NT_SHOT_FN uint64_t nt_shot_part_count(const struct nt_shot_parts *p, unsigned r)
{
    uint64_t begin = r * p->per, end = begin + p->per;
    end = end > p->vectors ? p->vectors : end;
    return begin < end ? end - begin : 0;
}

NT_SHOT_FN char *nt_shot_half_of(const struct nt_shot *s, const struct nt_lane *l, unsigned r)
{
    return (char *)s->stage[r] + (l->epoch / NT_SHOT_MEETINGS % 2) * s->half_bytes;
}

/* Every rank has all inputs: in its own stage (push), in the owners' stages (pull), or where they
 * are (direct). */
NT_SHOT_FN bool nt_shot_one(const struct nt_shot *s, const struct nt_lane *l, unsigned world,
                            int dtype, unsigned batch, bool direct)
{
    uint64_t vectors = (s->bytes + NT_SHOT_VEC - 1) / NT_SHOT_VEC;
    struct nt_shot_job j;
    j.from = 0;
    j.count = vectors;
    j.src_bytes = direct ? s->bytes : vectors * NT_SHOT_VEC;
    j.dst_bytes = s->bytes;
    j.targets = 1;
    j.dst[0] = s->out[s->rank];
    NT_SHOT_UNROLL
    for (unsigned r = 0; r < world; r++) {
        if (!direct && s->proto == NT_PUSH) {
            nt_shot_copy(l, s->in[s->rank], 0, s->bytes, nt_shot_half_of(s, l, r),
                         s->rank * vectors, UINT64_MAX, vectors);
        }
        j.src[r] = direct ? s->in[r]
                   : s->proto == NT_PULL
                       ? nt_shot_half_of(s, l, r)
                       : nt_shot_half_of(s, l, s->rank) + r * vectors * NT_SHOT_VEC;
    }
    if (!direct && s->proto == NT_PULL) {
        nt_shot_copy(l, s->in[s->rank], 0, s->bytes, nt_shot_half_of(s, l, s->rank), 0, UINT64_MAX,
                     vectors);
    }
    if (!nt_shot_meet(s, l, 1)) {
        return false;
    }
    nt_shot_sum(&j, l, world, dtype, batch);
    /* The inputs are the callers' again only when all have read them. */
    return !direct || nt_shot_meet(s, l, 2);
}

/* Reads its share of all inputs and writes it into all outputs. */
NT_SHOT_FN bool nt_shot_two_direct(const struct nt_shot *s, const struct nt_lane *l, unsigned world,
                                   int dtype, unsigned batch, const struct nt_shot_parts *p)
{
    struct nt_shot_job j;
    j.from = s->rank * p->per;
    j.count = nt_shot_part_count(p, s->rank);
    j.src_bytes = j.dst_bytes = s->bytes;
    j.targets = world;
    NT_SHOT_UNROLL
    for (unsigned r = 0; r < world; r++) {
        j.src[r] = s->in[r];
        j.dst[r] = s->out[r];
    }
    if (!nt_shot_meet(s, l, 1)) {
        return false;
    }
    nt_shot_sum(&j, l, world, dtype, batch);
    return nt_shot_meet(s, l, 2);
}

/* Through the stages. Push: [world shares from everybody][world shares of the result]; pull:
 * [my input][my share of the result]. */
NT_SHOT_FN bool nt_shot_two_staged(const struct nt_shot *s, const struct nt_lane *l, unsigned world,
                                   int dtype, unsigned batch, const struct nt_shot_parts *p)
{
    uint64_t part_bytes = p->per * NT_SHOT_VEC, whole = part_bytes * world;
    bool push = s->proto == NT_PUSH;
    char *mine = nt_shot_half_of(s, l, s->rank);
    struct nt_shot_job j;
    NT_SHOT_UNROLL
    for (unsigned r = 0; r < world; r++) {
        nt_shot_copy(l, s->in[s->rank], r * p->per, s->bytes,
                     push ? nt_shot_half_of(s, l, r) : mine, (push ? s->rank : r) * p->per,
                     UINT64_MAX, nt_shot_part_count(p, r));
    }
    if (!nt_shot_meet(s, l, 1)) {
        return false;
    }
    j.from = 0;
    j.count = nt_shot_part_count(p, s->rank);
    j.src_bytes = j.dst_bytes = UINT64_MAX;
    j.targets = push ? world : 1;
    NT_SHOT_UNROLL
    for (unsigned r = 0; r < world; r++) {
        j.src[r] = push ? mine + r * part_bytes : nt_shot_half_of(s, l, r) + s->rank * part_bytes;
        j.dst[r] = push ? nt_shot_half_of(s, l, r) + whole + s->rank * part_bytes : mine + whole;
    }
    nt_shot_sum(&j, l, world, dtype, batch);
    if (!nt_shot_meet(s, l, 2)) {
        return false;
    }
    NT_SHOT_UNROLL
    for (unsigned r = 0; r < world; r++) {
        const char *from = push ? mine + whole + r * part_bytes : nt_shot_half_of(s, l, r) + whole;
        nt_shot_copy(l, from, 0, UINT64_MAX, s->out[s->rank], r * p->per, s->bytes,
                     nt_shot_part_count(p, r));
    }
    return true;
}

/* 8 bytes of a buffer, of which the last may be cut. */
NT_SHOT_FN void nt_shot_get_unit(const void *base, uint64_t u, uint64_t bytes, uint32_t *w)
{
    w[0] = w[1] = 0;
    if ((u + 1) * 8 <= bytes) {
        w[0] = ((const uint32_t *)base)[2 * u];
        w[1] = ((const uint32_t *)base)[2 * u + 1];
        return;
    }
    for (uint64_t at = u * 8, k = 0; at + k < bytes; k += 2) {
        uint32_t h = *(const uint16_t *)((const char *)base + at + k);
        w[k / 4] |= h << (8 * (k % 4));
    }
}

NT_SHOT_FN void nt_shot_put_unit(void *base, uint64_t u, uint64_t bytes, const uint32_t *w)
{
    if ((u + 1) * 8 <= bytes) {
        ((uint32_t *)base)[2 * u] = w[0];
        ((uint32_t *)base)[2 * u + 1] = w[1];
        return;
    }
    for (uint64_t at = u * 8, k = 0; at + k < bytes; k += 2) {
        *(uint16_t *)((char *)base + at + k) = (uint16_t)(w[k / 4] >> (8 * (k % 4)));
    }
}

/* Waits until rank `from` has put this call's unit. */
NT_SHOT_FN bool nt_shot_take_unit(const struct nt_shot *s, uint32_t block, uint32_t from,
                                  const uint64_t *p, uint32_t number, uint32_t *w)
{
    uint64_t begin = 0;
    for (uint32_t polls = 1;; polls++) {
        uint64_t a, b;
        nt_shot_load_unit(p, &a, &b);
        if ((uint32_t)(a >> 32) == number && (uint32_t)(b >> 32) == number) {
            w[0] = (uint32_t)a;
            w[1] = (uint32_t)b;
            return true;
        }
        if (polls % 1024 != 0) {
            nt_shot_pause();
        } else if (!nt_shot_patient(s, block, from, a >> 32, number, &begin)) {
            return false;
        }
    }
}

/* A call's number in the units: never that of memory nobody wrote. It comes again after 2^31 calls,
 * far longer than a gang lives. */
NT_SHOT_FN uint32_t nt_shot_number(uint64_t epoch)
{
    return 0x80000000U | (uint32_t)(epoch / NT_SHOT_MEETINGS);
}

NT_SHOT_FN bool nt_shot_ll(const struct nt_shot *s, const struct nt_lane *l, unsigned world,
                           int dtype)
{
    uint64_t units = (s->bytes + 7) / 8, step = (uint64_t)l->blocks * l->lanes;
    uint64_t own = (uint64_t)l->block * l->lanes + l->lane;
    uint64_t half = l->epoch / NT_SHOT_MEETINGS % 2 * world * NT_SHOT_LL_UNITS;
    uint32_t number = nt_shot_number(l->epoch), w[2];
    bool ok = true;
    for (uint64_t u = own; u < units; u += step) {
        nt_shot_get_unit(s->in[s->rank], u, s->bytes, w);
        NT_SHOT_UNROLL
        for (unsigned r = 0; r < world; r++) {
            if (r != s->rank) {
                nt_shot_store_unit(s->ll[r] + 2 * (half + s->rank * NT_SHOT_LL_UNITS + u),
                                   (uint64_t)number << 32 | w[0], (uint64_t)number << 32 | w[1]);
            }
        }
    }
    for (uint64_t u = own; ok && u < units; u += step) {
        float sum[NT_SHOT_SUMS] = {0};
        NT_SHOT_UNROLL
        for (unsigned r = 0; r < world; r++) {
            if (r == s->rank) {
                nt_shot_get_unit(s->in[s->rank], u, s->bytes, w);
            } else {
                ok = ok && nt_shot_take_unit(s, l->block, r,
                                             s->ll[s->rank] + 2 * (half + r * NT_SHOT_LL_UNITS + u),
                                             number, w);
            }
            nt_shot_add_word(sum, w[0], 0, dtype, r == 0);
            nt_shot_add_word(sum, w[1], 1, dtype, r == 0);
        }
        if (ok) {
            w[0] = nt_shot_round_word(sum, 0, dtype);
            w[1] = nt_shot_round_word(sum, 1, dtype);
            nt_shot_put_unit(s->out[s->rank], u, s->bytes, w);
        }
    }
    return nt_shot_all(ok);
}

/* The call is over for this block. All lanes have read the epoch: the block has met since. */
NT_SHOT_FN void nt_shot_move_on(const struct nt_shot *s, const struct nt_lane *l)
{
    if (l->lane == 0) {
        s->epoch[l->block] = l->epoch + NT_SHOT_MEETINGS;
    }
    for (uint32_t b = l->blocks + l->lane; l->block == 0 && b < NT_SHOT_BLOCKS; b += l->lanes) {
        s->epoch[b] = l->epoch + NT_SHOT_MEETINGS;
    }
}

NT_SHOT_FN void nt_shot_run_ll(const struct nt_shot *s, struct nt_lane l, unsigned world, int dtype)
{
    l.epoch = s->epoch[l.block];
    if (nt_shot_ll(s, &l, world, dtype)) {
        nt_shot_move_on(s, &l);
    }
}

/* One call, by all lanes of all blocks. world, dtype and variant are those of s, as constants where
 * they are known; batch: vectors that a lane has in flight together, batch * world <=
 * NT_SHOT_FLIGHT; 0 where world is not a constant. */
NT_SHOT_FN void nt_shot_run(const struct nt_shot *s, struct nt_lane l, unsigned world, int dtype,
                            unsigned batch, bool one_shot, bool direct)
{
    struct nt_shot_parts p;
    bool ok;
    l.epoch = s->epoch[l.block];
    p.vectors = (s->bytes + NT_SHOT_VEC - 1) / NT_SHOT_VEC;
    p.per = (p.vectors + world - 1) / world;
    if (one_shot) {
        ok = nt_shot_one(s, &l, world, dtype, batch, direct);
    } else if (direct) {
        ok = nt_shot_two_direct(s, &l, world, dtype, batch, &p);
    } else {
        ok = nt_shot_two_staged(s, &l, world, dtype, batch, &p);
    }
    if (ok) {
        nt_shot_move_on(s, &l);
    }
}
