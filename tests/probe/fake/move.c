#include "tests/probe/fake/move.h"
#include <string.h>
#include "tests/probe/fake/number.h"

/* Elements [begin, end) of every rank's input are in the windows: what this rank's output takes of
 * them. */
static void take(struct wire *w, const struct move_call *c, size_t begin, size_t end)
{
    size_t size = number_bytes(c->dtype), n = end - begin, skip = 0;
    char *out = (char *)c->out + begin * size;
    unsigned first = 0;
    switch (c->coll) {
    case NT_ALL_GATHER:
        for (unsigned r = 0; r < w->world; r++) {
            memcpy(out + r * c->count * size, wire_window_of(w, r), n * size);
        }
        return;
    case NT_BROADCAST:
        memcpy(out, wire_window_of(w, c->root), n * size);
        return;
    case NT_REDUCE:
        if (w->rank != c->root) {
            return;
        }
        break;
    case NT_REDUCE_SCATTER: { /* only the part that is this rank's share */
        size_t from = w->rank * c->count, to = from + c->count;
        size_t a = begin > from ? begin : from, b = end < to ? end : to;
        if (a >= b) {
            return;
        }
        skip = (a - begin) * size;
        out = (char *)c->out + (a - from) * size;
        n = b - a;
        break;
    }
    default:
        break;
    }
    memcpy(out, wire_window_of(w, first) + skip, n * size);
    for (unsigned r = first + 1; r < w->world; r++) {
        number_combine(c->dtype, c->larger, out, wire_window_of(w, r) + skip, n);
    }
}

int move_collective(struct wire *w, const struct move_call *c)
{
    size_t size = number_bytes(c->dtype), step = WIRE_WINDOW / size;
    size_t all = c->coll == NT_REDUCE_SCATTER ? c->count * w->world : c->count;
    for (size_t begin = 0; begin < all; begin += step) {
        size_t end = begin + step < all ? begin + step : all;
        if (c->in != NULL) {
            memcpy(wire_window_of(w, w->rank), (const char *)c->in + begin * size,
                   (end - begin) * size);
        }
        if (wire_meet(w) != 0) {
            return -1;
        }
        take(w, c, begin, end);
        if (wire_meet(w) != 0) {
            return -1;
        }
    }
    return 0;
}

static uint64_t part(uint64_t all, uint64_t begin)
{
    uint64_t left = all > begin ? all - begin : 0;
    return left < WIRE_WINDOW ? left : WIRE_WINDOW;
}

/* In round d everybody sends to the rank d further on. All go on until the longest is done. */
int move_exchanges(struct wire *w, const struct move_exchange *x)
{
    for (unsigned d = 0; d < w->world; d++) {
        unsigned to = (w->rank + d) % w->world, from = (w->rank + w->world - d) % w->world;
        uint64_t longest = 0;
        wire_call_of(w, w->rank)->bytes = x->in_bytes[to];
        if (wire_meet(w) != 0) {
            return -1;
        }
        for (unsigned r = 0; r < w->world; r++) {
            uint64_t b = wire_call_of(w, r)->bytes;
            longest = b > longest ? b : longest;
        }
        if (wire_meet(w) != 0) {
            return -1;
        }
        for (uint64_t begin = 0; begin < longest; begin += WIRE_WINDOW) {
            uint64_t out = part(x->in_bytes[to], begin), in = part(x->out_bytes[from], begin);
            if (out > 0) {
                memcpy(wire_window_of(w, w->rank), (const char *)x->in[to] + begin, out);
            }
            if (wire_meet(w) != 0) {
                return -1;
            }
            if (in > 0) {
                memcpy((char *)x->out[from] + begin, wire_window_of(w, from), in);
            }
            if (wire_meet(w) != 0) {
                return -1;
            }
        }
    }
    return 0;
}
