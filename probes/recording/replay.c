/* replay - draws from a recording. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/recording/recording_priv.h"
#include "tuner/base/rng.h"

/* Blocks of one cell and one recorded gang. */
struct draw {
    const struct nt_recording *rec;
    const uint32_t *block; /* numbers */
    size_t count;
    uint32_t wait; /* turns until that gang's; 0: it is */
};

static const struct nt_rec_block *block_at(const struct draw *d, size_t i)
{
    return &d->rec->block[d->block[i]];
}

static bool in_half(const struct nt_rec_block *x, enum nt_half half)
{
    return half == NT_ALL_GANGS || x->odd == (half == NT_ODD_GANGS);
}

/* Whether a block can answer a measure: a failure always, a good one when it has samples or none
 * are asked for. */
static bool answers(const struct nt_rec_block *x, unsigned samples)
{
    return x->b.status != NT_ST_OK || x->b.count > 0 || samples == 0;
}

/* The next run of blocks of one gang in a cell that can answer, from *i on. */
static bool next_gang(const struct nt_replay *p, struct nt_cell cell, unsigned samples, size_t *i,
                      struct draw *ret)
{
    while (*i < cell.count) {
        struct draw d = {.rec = p->rec, .block = cell.block + *i};
        bool any = false;
        while (*i + d.count < cell.count &&
               block_at(&d, d.count)->b.gang == block_at(&d, 0)->b.gang) {
            any = any || answers(block_at(&d, d.count), samples);
            d.count++;
        }
        *i += d.count;
        if (any && in_half(block_at(&d, 0), p->half)) {
            *ret = d;
            return true;
        }
    }
    return false;
}

/* Where the i-th of n gangs stands in the order in which this seed draws them. */
static uint32_t turn_of(const struct nt_replay *p, uint32_t i, uint32_t n)
{
    uint64_t mine = nt_mix64(nt_mix(p->seed, i));
    uint32_t before = 0;

    for (uint32_t k = 0; k < n; k++) {
        uint64_t other = nt_mix64(nt_mix(p->seed, k));
        before += other < mine || (other == mine && k < i);
    }
    return before;
}

/* A replayed gang keeps to one recorded gang. The seed says in which order they take turns, so that
 * none comes again before all did: drawn twice, one shows nothing new. Where a cell lacks the gang
 * whose turn it is, the next one that it has, unless that is not wanted (NT_M_OWN): so cells stay
 * together wherever both were recorded, also when one of them has fewer gangs. */
static bool choose_gang(const struct nt_replay *p, struct nt_cell cell, unsigned samples,
                        struct draw *ret)
{
    struct draw d = {.rec = p->rec};

    ret->wait = UINT32_MAX;
    for (size_t i = 0; next_gang(p, cell, samples, &i, &d);) {
        const struct nt_rec_block *x = block_at(&d, 0);
        uint32_t of_all = p->rec->process[x->process].ngangs;
        uint32_t n = p->half == NT_ALL_GANGS    ? of_all
                     : p->half == NT_EVEN_GANGS ? (of_all + 1) / 2
                                                : of_all / 2;
        uint32_t mine = turn_of(p, p->half == NT_ALL_GANGS ? x->place : x->place / 2, n);
        d.wait = (mine + n - (uint32_t)(p->gang % n)) % n;
        if (d.wait < ret->wait) {
            *ret = d;
        }
    }
    return ret->wait != UINT32_MAX;
}

static uint64_t text_hash(const char *text)
{
    uint64_t h = 0;
    for (; *text != '\0'; text++) {
        h = nt_mix(h, (unsigned char)*text);
    }
    return h;
}

/* The same for the same cell in every copy of a recording, however it has grown. */
static uint64_t cell_key(const struct nt_rec_block *x)
{
    uint64_t k = nt_mix(x->b.cs.bytes, x->b.cs.coll);
    k = nt_mix(k, (uint64_t)x->b.cs.dtype << 16 | (uint64_t)x->b.cs.place << 8 | x->b.cs.mode);
    k = nt_mix(k, x->b.flags & NT_CELL_FLAGS);
    k = nt_mix(k, text_hash(x->b.process));
    return nt_mix(k, (uint64_t)(uint8_t)x->reached.algo << 40 |
                         (uint64_t)(uint8_t)x->reached.proto << 32 |
                         (uint64_t)x->reached.channels << 16 | x->reached.warps);
}

static void not_recorded(struct nt_result *ret, const char *words)
{
    ret->status = NT_ST_NOT_RECORDED;
    (void)snprintf(ret->error, sizeof(ret->error), "not in this recording: %s", words);
}

/* Time of the calls themselves: samples are per call, a group's is for the group, and the graph's
 * own time was taken off. */
static uint64_t calls_ns(const struct nt_block *b, double mean_ns, uint64_t calls)
{
    double inner = b->inner > 0 ? b->inner : 1;
    return (uint64_t)((mean_ns + b->base_ns) * inner * (double)calls);
}

static double mean(const uint32_t *ns, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += ns[i];
    }
    return count > 0 ? sum / (double)count : 0;
}

/* What a block took besides its calls. */
static uint64_t overhead_ns(const struct nt_block *b)
{
    uint64_t known = b->connect_ns + calls_ns(b, mean(b->ns, b->count), b->count + b->warmup);
    return b->elapsed_ns > known ? b->elapsed_ns - known : 0;
}

/* Prefers a good block that did the same besides timing. */
static const struct nt_block *like(const struct draw *d, const struct nt_measure *m,
                                   const struct nt_block *otherwise)
{
    for (size_t i = 0; i < d->count; i++) {
        const struct nt_block *b = &block_at(d, i)->b;
        if (b->status == NT_ST_OK && b->count > 0 && b->verify == m->verify &&
            ((b->flags ^ m->flags) & NT_M_READBACK) == 0) {
            return b;
        }
    }
    return otherwise;
}

/* Samples with replacement from all good blocks of the gang. */
static int draw_samples(const struct draw *d, struct nt_rng *rng, unsigned samples,
                        struct nt_result *ret)
{
    uint64_t total = 0;

    for (size_t i = 0; i < d->count; i++) {
        const struct nt_block *b = &block_at(d, i)->b;
        total += b->status == NT_ST_OK ? b->count : 0;
    }
    ret->ns = calloc(samples + 1U, sizeof(ret->ns[0]));
    if (ret->ns == NULL || total == 0) {
        return -1;
    }
    for (unsigned k = 0; k < samples; k++) {
        uint64_t at = nt_rng_below(rng, total);
        size_t i = 0;
        for (;; i++) {
            const struct nt_block *b = &block_at(d, i)->b;
            size_t n = b->status == NT_ST_OK ? b->count : 0;
            if (at < n) {
                ret->ns[k] = b->ns[at];
                break;
            }
            at -= n;
        }
    }
    ret->count = samples;
    return 0;
}

/* One block of those that can answer: it decides about success, and lends what is not samples. */
static const struct nt_block *choose_block(const struct draw *d, struct nt_rng *rng,
                                           unsigned samples)
{
    uint64_t n = 0, pick;
    size_t i = 0;

    for (size_t k = 0; k < d->count; k++) {
        n += answers(block_at(d, k), samples);
    }
    pick = nt_rng_below(rng, n);
    for (;; i++) {
        if (answers(block_at(d, i), samples) && pick-- == 0) {
            return &block_at(d, i)->b;
        }
    }
}

/* The first use of an algorithm in a gang connects it. */
static void connect_once(struct nt_replay *p, const struct nt_executed *x, struct nt_result *ret)
{
    unsigned at;

    if (x->algo < 0) {
        return;
    }
    at = (unsigned)(x->algo * NT_PROTO_COUNT + x->proto);
    if ((p->connected & (1U << at)) == 0) {
        p->connected |= 1U << at;
        ret->connect_ns = p->rec->process[p->process].connect_ns[at];
        ret->elapsed_ns += ret->connect_ns;
    }
}

static bool has_samples(const struct nt_recording *r, long cell)
{
    struct nt_cell c = cell >= 0 ? nt_recording_cell(r, (size_t)cell) : (struct nt_cell){0};
    for (size_t i = 0; i < c.count; i++) {
        if (r->block[c.block[i]].b.status == NT_ST_OK && r->block[c.block[i]].b.count > 0) {
            return true;
        }
    }
    return false;
}

/* The cell whose samples are drawn. With `null`, that of the default of the same case, as is where
 * that was recorded (-1: nowhere); a cell that never gave samples stays what it is. */
static long source_cell(const struct nt_replay *p, const struct nt_measure *m, long cell)
{
    struct nt_call none = NT_CALL_DEFAULT;
    long as_is = nt_recording_find(p->rec, &m->cs, m->flags, "", &none);
    long here = nt_recording_cell_of(p->rec, &m->cs, m->flags, p->process, &none);

    if (!p->null || !has_samples(p->rec, cell)) {
        return cell;
    }
    return has_samples(p->rec, as_is) ? as_is : here;
}

static void fail_like(const struct nt_block *b, struct nt_result *ret)
{
    ret->status = b->status;
    ret->wrong = b->wrong;
    ret->elapsed_ns = b->elapsed_ns;
    (void)snprintf(ret->error, sizeof(ret->error), "%s", b->error);
}

static void measure_cell(struct nt_replay *p, const struct nt_measure *m, struct nt_cell cell,
                         struct nt_cell source, struct nt_result *ret)
{
    const struct nt_rec_block *any = &p->rec->block[cell.block[0]];
    const struct nt_block *b, *alike;
    struct draw d = {.rec = p->rec};
    struct nt_rng rng;

    if (!choose_gang(p, source, m->samples, &d)) {
        not_recorded(ret, "it was never timed");
        return;
    }
    nt_rng_seed(&rng, nt_mix(nt_mix(nt_mix(p->seed, p->gang), cell_key(any)), m->id));
    b = choose_block(&d, &rng, m->samples);
    ret->memory_bytes = b->memory_bytes;
    if (m->flags & NT_M_READBACK) {
        ret->executed = any->reached;
    }
    if ((m->flags & NT_M_OWN) != 0 && d.wait > 0) {
        not_recorded(ret, "this gang did not time it");
        return;
    }
    if (b->status != NT_ST_OK) {
        fail_like(b, ret);
        return;
    }
    if (m->samples > 0 && draw_samples(&d, &rng, m->samples, ret) != 0) {
        ret->status = NT_ST_ERROR;
        (void)snprintf(ret->error, sizeof(ret->error), "out of memory");
        return;
    }
    alike = like(&d, m, b);
    ret->base_ns = b->base_ns;
    ret->elapsed_ns = overhead_ns(alike) +
                      calls_ns(b, mean(ret->ns, ret->count), (uint64_t)m->samples + m->warmup);
    connect_once(p, &any->reached, ret);
}

void nt_replay_measure(struct nt_replay *p, const struct nt_measure *m, struct nt_result *ret)
{
    long cell = -1, source = -1;

    *ret = (struct nt_result){.id = m->id, .status = NT_ST_OK, .executed = NT_EXECUTED_NONE};
    if ((m->flags & NT_M_CONTROL) != 0) {
        not_recorded(ret, "copies and launches");
        return;
    }
    if (p->process >= 0) {
        cell = nt_recording_cell_of(p->rec, &m->cs, m->flags, p->process, &m->call);
        source = cell >= 0 ? source_cell(p, m, cell) : -1;
    }
    if (p->process < 0) {
        not_recorded(ret, "no gang had this process setting");
    } else if (cell < 0) {
        not_recorded(ret, "no such case and call");
    } else if (source < 0) {
        not_recorded(ret, "no default of this case");
    } else {
        measure_cell(p, m, nt_recording_cell(p->rec, (size_t)cell),
                     nt_recording_cell(p->rec, (size_t)source), ret);
    }
    if (ret->status != NT_ST_OK) {
        free(ret->ns);
        ret->ns = NULL;
        ret->count = 0;
    }
}

int nt_replay_init(struct nt_replay *p, const struct nt_recording *rec, uint64_t seed, bool null,
                   enum nt_half half, uint64_t gang, const struct nt_var *vars, size_t nvars,
                   struct nt_err *err)
{
    struct nt_buf text;
    int rc = 0;

    nt_buf_init(&text, 1 << 16);
    nt_recording_process(vars, nvars, nt_recording_fact(rec, NT_FACT_FIXED), &text);
    if (text.failed) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "process setting");
    } else {
        *p = (struct nt_replay){.rec = rec,
                                .seed = seed,
                                .gang = gang,
                                .null = null,
                                .half = half,
                                .process = nt_recording_process_find(rec, nt_buf_str(&text))};
    }
    nt_buf_done(&text);
    return rc;
}

const struct nt_recorded_gang *nt_replay_start(const struct nt_replay *p)
{
    const struct nt_recording *r = p->rec;
    const struct nt_recorded_gang *found = NULL;
    const char *text = p->process >= 0 ? r->process[p->process].text : NULL;
    uint64_t n = 0;
    struct nt_rng rng;

    if (text == NULL) {
        return NULL;
    }
    nt_rng_seed(&rng, nt_mix(p->seed, p->gang));
    for (size_t i = 0; i < r->ngangs; i++) {
        n += strcmp(r->gang[i].process, text) == 0;
    }
    if (n > 0) {
        uint64_t pick = nt_rng_below(&rng, n);
        for (size_t i = 0; found == NULL; i++) {
            if (strcmp(r->gang[i].process, text) == 0 && pick-- == 0) {
                found = &r->gang[i];
            }
        }
    }
    return found;
}

bool nt_replay_cells(const struct nt_replay *p, const struct nt_case *c, struct nt_cells *ret)
{
    *ret = (struct nt_cells){.cs = *c};
    for (unsigned i = 0; i < NT_ALGO_COUNT * NT_PROTO_COUNT; i++) {
        ret->cost[i / NT_PROTO_COUNT][i % NT_PROTO_COUNT] = -1;
    }
    for (size_t i = 0; i < p->rec->ncells; i++) {
        const struct nt_rec_cells *x = &p->rec->cells[i];
        if (x->process == p->process && nt_case_equal(&x->cells.cs, c)) {
            *ret = x->cells;
            return true;
        }
    }
    return false;
}
