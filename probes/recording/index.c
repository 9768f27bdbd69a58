/* index - from blocks to cells: which call reaches which executed tuple, and its blocks. */
#include <stdlib.h>
#include <string.h>

#include "probes/recording/recording_priv.h"

static int order_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int order_case(const struct nt_case *a, const struct nt_case *b)
{
    int o = order_u64(a->bytes, b->bytes);
    o = o != 0 ? o : (int)a->coll - (int)b->coll;
    o = o != 0 ? o : (int)a->dtype - (int)b->dtype;
    o = o != 0 ? o : (int)a->place - (int)b->place;
    return o != 0 ? o : (int)a->mode - (int)b->mode;
}

static int order_call(const struct nt_call *a, const struct nt_call *b)
{
    int o = (int)a->algo - (int)b->algo;
    o = o != 0 ? o : (int)a->proto - (int)b->proto;
    o = o != 0 ? o : (int)a->channels - (int)b->channels;
    return o != 0 ? o : order_u64(a->chunk_bytes, b->chunk_bytes);
}

static int order_executed(const struct nt_executed *a, const struct nt_executed *b)
{
    int o = (int)a->algo - (int)b->algo;
    o = o != 0 ? o : (int)a->proto - (int)b->proto;
    o = o != 0 ? o : (int)a->channels - (int)b->channels;
    return o != 0 ? o : (int)a->warps - (int)b->warps;
}

/* Case, condition and process setting: what calls and cells have in common. */
static int order_place(const struct nt_rec_block *a, const struct nt_rec_block *b)
{
    int o = order_case(&a->b.cs, &b->b.cs);
    o = o != 0 ? o : order_u64(a->b.flags & NT_CELL_FLAGS, b->b.flags & NT_CELL_FLAGS);
    return o != 0 ? o : a->process - b->process;
}

static int order_by_call(const struct nt_rec_block *a, const struct nt_rec_block *b)
{
    int o = order_place(a, b);
    return o != 0 ? o : order_call(&a->b.call, &b->b.call);
}

/* A call that never ran anything is a cell of its own. */
static int order_by_cell(const struct nt_rec_block *a, const struct nt_rec_block *b)
{
    int o = order_place(a, b);
    o = o != 0 ? o : order_executed(&a->reached, &b->reached);
    return o != 0 || a->reached.algo >= 0 ? o : order_call(&a->b.call, &b->b.call);
}

static int compare_call(const void *a, const void *b, void *recording)
{
    const struct nt_recording *r = recording;
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    int o = order_by_call(&r->block[i], &r->block[k]);
    return o != 0 ? o : order_u64(i, k);
}

static int compare_cell(const void *a, const void *b, void *recording)
{
    const struct nt_recording *r = recording;
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    int o = order_by_cell(&r->block[i], &r->block[k]);
    o = o != 0 ? o : order_u64(r->block[i].b.gang, r->block[k].b.gang);
    return o != 0 ? o : order_u64(i, k);
}

static int compare_gang(const void *a, const void *b, void *recording)
{
    const struct nt_recording *r = recording;
    const struct nt_rec_block *x = &r->block[*(const uint32_t *)a],
                              *y = &r->block[*(const uint32_t *)b];
    int o = x->process - y->process;
    return o != 0 ? o : order_u64(x->b.gang, y->b.gang);
}

/* Every other gang of a process setting is odd, by number. */
static void mark_halves(struct nt_recording *r)
{
    uint32_t place = 0;

    qsort_r(r->order, r->nblocks, sizeof(r->order[0]), compare_gang, r);
    for (size_t i = 0; i < r->nblocks; i++) {
        struct nt_rec_block *x = &r->block[r->order[i]];
        const struct nt_rec_block *before = i > 0 ? &r->block[r->order[i - 1]] : NULL;
        if (before == NULL || before->process != x->process) {
            place = 0;
        } else if (before->b.gang != x->b.gang) {
            place++;
        }
        x->place = place;
        x->odd = place % 2 != 0;
        r->process[x->process].ngangs = place + 1;
    }
}

/* One entry for each distinct call; what it executed anywhere is where all its blocks belong, so
 * that the gangs in which it failed are part of the cell. */
static void index_calls(struct nt_recording *r)
{
    size_t end;

    qsort_r(r->order, r->nblocks, sizeof(r->order[0]), compare_call, r);
    for (size_t i = 0; i < r->nblocks; i = end) {
        struct nt_executed reached = NT_EXECUTED_NONE;
        for (end = i; end < r->nblocks &&
                      order_by_call(&r->block[r->order[i]], &r->block[r->order[end]]) == 0;
             end++) {
            const struct nt_rec_block *x = &r->block[r->order[end]];
            if (reached.algo < 0) {
                reached = x->b.executed;
            }
        }
        for (size_t k = i; k < end; k++) {
            struct nt_rec_block *x = &r->block[r->order[k]];
            x->reached = x->b.executed.algo >= 0 ? x->b.executed : reached;
        }
        r->call[r->ncalls++] = r->order[i];
    }
}

static void index_cells(struct nt_recording *r, uint32_t *cell_of)
{
    qsort_r(r->order, r->nblocks, sizeof(r->order[0]), compare_cell, r);
    for (size_t i = 0; i < r->nblocks; i++) {
        if (i == 0 || order_by_cell(&r->block[r->order[i - 1]], &r->block[r->order[i]]) != 0) {
            r->cell[r->nrange++] = (struct nt_rec_range){.first = (uint32_t)i};
        }
        r->cell[r->nrange - 1].count++;
        cell_of[r->order[i]] = (uint32_t)(r->nrange - 1);
    }
}

static void note_connects(struct nt_recording *r)
{
    for (size_t i = 0; i < r->nblocks; i++) {
        const struct nt_rec_block *x = &r->block[i];
        if (x->b.executed.algo >= 0) {
            uint64_t *at =
                &r->process[x->process]
                     .connect_ns[x->b.executed.algo * NT_PROTO_COUNT + x->b.executed.proto];
            *at = *at > x->b.connect_ns ? *at : x->b.connect_ns;
        }
    }
}

int nt_recording_index(struct nt_recording *r, struct nt_err *err)
{
    size_t n = r->nblocks;
    uint32_t *cell_of = calloc(n + 1, sizeof(*cell_of));

    if (n > UINT32_MAX - 1) {
        free(cell_of);
        return nt_fail(err, NT_E_INVAL, 0, "a recording of more than 4 billion blocks");
    }
    r->order = calloc(n + 1, sizeof(*r->order));
    r->cell = calloc(n + 1, sizeof(*r->cell));
    r->call = calloc(n + 1, sizeof(*r->call));
    r->call_cell = calloc(n + 1, sizeof(*r->call_cell));
    if (cell_of == NULL || r->order == NULL || r->cell == NULL || r->call == NULL ||
        r->call_cell == NULL) {
        free(cell_of);
        return nt_fail(err, NT_E_NOMEM, 0, "index of a recording");
    }
    for (size_t i = 0; i < n; i++) {
        r->order[i] = (uint32_t)i;
    }
    mark_halves(r);
    index_calls(r);
    index_cells(r, cell_of);
    for (size_t i = 0; i < r->ncalls; i++) {
        r->call_cell[i] = cell_of[r->call[i]];
    }
    note_connects(r);
    free(cell_of);
    return 0;
}

long nt_recording_cell_of(const struct nt_recording *r, const struct nt_case *c, uint32_t flags,
                          int process, const struct nt_call *call)
{
    struct nt_rec_block wanted = {.b = {.cs = *c, .flags = flags, .call = *call},
                                  .process = process};
    size_t lo = 0, hi = r->ncalls;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int o = order_by_call(&wanted, &r->block[r->call[mid]]);
        if (o == 0) {
            return (long)r->call_cell[mid];
        }
        if (o < 0) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return -1;
}

long nt_recording_find(const struct nt_recording *r, const struct nt_case *c, uint32_t flags,
                       const char *process, const struct nt_call *call)
{
    int p = nt_recording_process_find(r, process);
    return p < 0 ? -1 : nt_recording_cell_of(r, c, flags, p, call);
}

size_t nt_recording_cells(const struct nt_recording *r)
{
    return r->nrange;
}

struct nt_cell nt_recording_cell(const struct nt_recording *r, size_t i)
{
    return (struct nt_cell){.block = r->order + r->cell[i].first, .count = r->cell[i].count};
}
