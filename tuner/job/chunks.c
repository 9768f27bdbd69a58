#include "tuner/job/chunks.h"

/* Slots of NCCL's buffers as they are by default; a smaller buffer cuts what is asked for. */
enum { LARGE = 1 << 20 }; /* calls below are not worth the trials */
enum { SIMPLE_SLOT = 4194304 / 8, LL128_SLOT = 4915200 / 8 / 16 * 15 };

/* least: below it steps cost more than they overlap, and NVLS goes no lower by itself. most: 0
 * where NCCL's own is what fits. split: a step of all ranks together moves a chunk for each. */
static const struct rule {
    uint32_t grain, least, most;
    bool split;
} rules[NT_ALGO_COUNT][NT_PROTO_COUNT] = {
    [NT_TREE] =
        {[NT_LL128] = {1920, 15360, LL128_SLOT, false}, [NT_SIMPLE] = {512, 16384, 0, false}},
    [NT_RING] = {[NT_LL128] = {1920, 15360, 0, true}, [NT_SIMPLE] = {512, 16384, 0, true}},
    [NT_NVLS] = {[NT_SIMPLE] = {512, 16384, 0, true}},
    [NT_NVLS_TREE] = {[NT_SIMPLE] = {512, 16384, 0, true}},
    [NT_PAT] = {[NT_SIMPLE] = {512, 16384, SIMPLE_SLOT, true}},
};

static const struct rule *rule_of(const struct nt_chunked *c)
{
    bool known = c->algo >= 0 && c->algo < NT_ALGO_COUNT && c->proto >= 0 &&
                 c->proto < NT_PROTO_COUNT && c->channels > 0 && c->ranks > 0 && c->bytes >= LARGE;
    const struct rule *r = known ? &rules[c->algo][c->proto] : NULL;

    return r != NULL && r->grain > 0 ? r : NULL;
}

/* Of a channel: a chunk that is no smaller is not the limit. Broadcast and reduce are passed on
 * along the ring as a whole. */
static uint64_t share(const struct nt_chunked *c, const struct rule *r)
{
    bool whole = c->algo == NT_RING && (c->coll == NT_BROADCAST || c->coll == NT_REDUCE);

    return c->bytes / c->channels / (r->split && !whole ? c->ranks : 1);
}

uint32_t nt_chunk_smaller(const struct nt_chunked *c, uint32_t from)
{
    const struct rule *r = rule_of(c);
    uint32_t next = from;

    do {
        next = r != NULL ? next / 2 / r->grain * r->grain : 0;
    } while (next > 0 && next >= r->least && next >= share(c, r));
    return next > 0 && next >= r->least ? next : 0;
}

uint32_t nt_chunk_larger(const struct nt_chunked *c, uint32_t from)
{
    const struct rule *r = rule_of(c);

    if (r == NULL || from == 0 || from > r->most / 2 || from >= share(c, r)) {
        return 0;
    }
    return from * 2 / r->grain * r->grain;
}
