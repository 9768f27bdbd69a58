#include "tuner/gang/merge.h"

#include <stdio.h>

/* The worst of two holds. A rank that fails makes others fail, so what says more about the setting
 * weighs more. */
static const unsigned weight[NT_STATUS_COUNT] = {
    [NT_ST_OK] = 0,          [NT_ST_TOO_SLOW] = 1, [NT_ST_NOT_RECORDED] = 2,
    [NT_ST_UNAVAILABLE] = 3, [NT_ST_ERROR] = 4,    [NT_ST_DISAGREE] = 5,
    [NT_ST_WRONG] = 6,       [NT_ST_TIMEOUT] = 7,  [NT_ST_CRASHED] = 8,
};

int nt_merge_check(const struct nt_measure *m, const struct nt_result *r, struct nt_err *err)
{
    if (r->id != m->id) {
        return nt_fail(err, NT_E_PROTO, 0, "answered question %llu when asked %llu",
                       (unsigned long long)r->id, (unsigned long long)m->id);
    }
    if (r->status == NT_ST_OK && r->count != m->samples) {
        return nt_fail(err, NT_E_PROTO, 0, "gave %zu samples when asked for %u", r->count,
                       m->samples);
    }
    return 0;
}

static void worsen(struct nt_gang_result *ret, enum nt_status status, int rank, const char *words)
{
    if (weight[status] > weight[ret->status]) {
        ret->status = status;
        ret->rank = rank;
        (void)snprintf(ret->error, sizeof(ret->error), "%s",
                       words[0] != '\0' ? words : nt_status_names[status]);
    }
}

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Ranks that ran the call must have run the same; what a rank that failed says is not compared. */
static void merge_executed(const struct nt_result *const *results, unsigned world,
                           struct nt_gang_result *ret)
{
    const struct nt_result *first = NULL;

    for (unsigned i = 0; i < world; i++) {
        const struct nt_result *r = results[i];
        if (r->status != NT_ST_OK && r->status != NT_ST_WRONG) {
            continue;
        }
        if (first == NULL) {
            first = r;
            ret->executed = r->executed;
            ret->own_chunk_bytes = r->own_chunk_bytes;
            continue;
        }
        if (r->own_chunk_bytes != first->own_chunk_bytes) {
            ret->own_chunk_bytes = 0;
        }
        if (!nt_executed_equal(&first->executed, &r->executed)) {
            struct nt_executed one = first->executed, other = r->executed;
            char words[160], a[48], b[48];
            (void)snprintf(words, sizeof(words), "ranks executed %s and %s",
                           nt_executed_text(&one, a, sizeof(a)),
                           nt_executed_text(&other, b, sizeof(b)));
            worsen(ret, NT_ST_DISAGREE, -1, words);
        }
    }
}

void nt_merge_results(const struct nt_measure *m, const struct nt_result *const *results,
                      unsigned world, uint32_t *ns, struct nt_gang_result *ret)
{
    unsigned unavailable = 0;

    *ret = (struct nt_gang_result){
        .id = m->id, .status = NT_ST_OK, .rank = -1, .executed = NT_EXECUTED_NONE};
    for (unsigned i = 0; i < world; i++) {
        const struct nt_result *r = results[i];
        ret->base_ns = (uint32_t)greater(ret->base_ns, r->base_ns);
        ret->elapsed_ns = greater(ret->elapsed_ns, r->elapsed_ns);
        ret->connect_ns = greater(ret->connect_ns, r->connect_ns);
        ret->memory_bytes = greater(ret->memory_bytes, r->memory_bytes);
        ret->wrong += r->wrong;
        ret->bits = r->bits > ret->bits ? r->bits : ret->bits; /* different counts most */
        unavailable += r->status == NT_ST_UNAVAILABLE;
        worsen(ret, r->wrong > 0 ? NT_ST_WRONG : (enum nt_status)r->status, (int)i, r->error);
    }
    if (unavailable > 0 && unavailable < world) {
        worsen(ret, NT_ST_DISAGREE, -1, "unavailable on some ranks only");
    }
    if (unavailable == world) {
        ret->rank = -1;
    }
    merge_executed(results, world, ret);
    if (ret->status == NT_ST_OK) {
        for (size_t k = 0; k < m->samples; k++) {
            ns[k] = results[0]->ns[k];
            for (unsigned i = 1; i < world; i++) {
                ns[k] = (uint32_t)greater(ns[k], results[i]->ns[k]);
            }
        }
        ret->ns = ns;
        ret->count = m->samples;
    }
}

void nt_merge_cells(const struct nt_cells *const *cells, unsigned world, struct nt_cells *ret)
{
    *ret = *cells[0];
    for (unsigned i = 1; i < world; i++) {
        ret->asked = ret->asked && cells[i]->asked;
        for (unsigned a = 0; a < NT_ALGO_COUNT; a++) {
            for (unsigned p = 0; p < NT_PROTO_COUNT; p++) {
                float mine = ret->cost[a][p], other = cells[i]->cost[a][p];
                if (other < 0 || (mine >= 0 && other > mine)) {
                    ret->cost[a][p] = other;
                }
            }
        }
    }
}
