/* Chunk sizes: where NCCL lets a tuner choose them, the neighbours of each case's leaders, as
 * further tuples of the same race. */
#include "tuner/job/plan_i.h"

#include "tuner/job/chunks.h"

#include <math.h>

/*
 * A chunk matters least of all that a call asks for, and there are as many again for each tuple: so
 * it is tried last and only from the leaders, one of each mode. From there the walk goes a few
 * halves of NCCL's own chunk down, until that is worse, and where nothing was better up by doubles.
 * A step is a look like those of the exploration (read back, right data), then the looks of the
 * races. One that no mode takes for better than the best of the way is out at once; what stays is
 * raced on, gated and confirmed as any tuple. In a tie NCCL's own chunk wins.
 *
 * That a chunk was executed is told by nobody. Known is that NCCL asked for it (else the call is
 * unavailable), and what it cuts and rounds it to: see chunks.h.
 */

uint32_t chunks_room(const struct nt_plan *p, const struct cell *c)
{
    uint32_t steps = search_effort(p)->chunks, room = p->nmodes * 2 * steps; /* down and up */

    for (uint32_t i = 0; steps > 0 && i < c->narms; i++) {
        if (c->arms[i].own_chunk > 0) {
            return c->narms + room < MAX_ARMS ? room : MAX_ARMS - c->narms;
        }
    }
    return 0;
}

/* A call that leads to the arm and can carry a chunk: the default names no protocol. */
static bool call_of(const struct cell *c, uint32_t arm, struct nt_call *ret)
{
    for (uint32_t i = 0; i < c->ncalls; i++) {
        if (c->calls[i].arm == arm && c->calls[i].call.algo >= 0) {
            *ret = c->calls[i].call;
            return true;
        }
    }
    return false;
}

/* While the walk goes on, only its looks are measured. */
static void rest(const struct nt_plan *p, const struct cell *c, bool on)
{
    for (uint32_t k = 0; k < p->nmodes; k++) {
        nt_race_rest(c->race[p->modes[k]], on);
    }
}

/* Down from the leader that is next, or up from the same. */
static void start_from(struct chunk_walk *w, bool larger)
{
    w->larger = larger;
    w->found = w->found && larger;
    w->steps = w->chunk = 0;
    w->best = !w->found && w->at < w->n ? w->leaders[w->at] : w->best;
    w->last = NONE;
}

static void begin(struct nt_plan *p, struct cell *c)
{
    struct chunk_walk *w = &c->walk;

    for (uint32_t k = 0; k < p->nmodes; k++) {
        uint32_t arm = nt_race_verdict(c->race[p->modes[k]]).leader, i = 0;
        while (i < w->n && w->leaders[i] != arm) {
            i++;
        }
        if (arm != NT_NO_ARM && i == w->n) {
            w->leaders[w->n++] = arm;
        }
    }
    w->begun = true;
    start_from(w, false);
}

/* Is an arm slower (1) or faster (-1) in the mode that speaks most for it, beyond what its few
 * blocks may be off by? 0: about the same, which is not good enough: two that tie cost more to tell
 * apart than all the walk. */
static int compare(struct nt_plan *p, const struct cell *c, uint32_t arm, uint32_t with)
{
    static const double SURE = 2; /* standard errors */
    double least = INFINITY;

    for (uint32_t k = 0; k < p->nmodes && c->arms[arm].status == NT_ST_OK; k++) {
        double se, d = nt_race_apart(c->race[p->modes[k]], arm, with, &se);
        least = fmin(least, d / se);
    }
    return least < -SURE ? -1 : least > SURE;
}

/* What came of the last step, if there was one. */
static void weigh_last(struct nt_plan *p, struct cell *c)
{
    struct chunk_walk *w = &c->walk;
    int is = w->last != NONE ? compare(p, c, w->last, w->best) : 1;

    if (w->steps == 0) {
        return;
    }
    if (is < 0) {
        w->best = w->last;
        w->found = true;
    }
    for (uint32_t k = 0; is >= 0 && w->last != NONE && k < p->nmodes; k++) {
        nt_race_fail(c->race[p->modes[k]], w->last, NT_ST_OK);
    }
    if (is > 0) {
        w->steps = search_effort(p)->chunks; /* no further */
    }
    w->last = NONE;
}

/* The next chunk in the direction of the walk; false: none. */
static bool next_step(const struct nt_plan *p, const struct cell *c, uint32_t point,
                      struct nt_call *ret)
{
    const struct chunk_walk *w = &c->walk;
    const struct arm *leader = &c->arms[w->leaders[w->at]];
    const struct nt_executed *x = &leader->executed;
    const struct nt_chunked call = {.coll = (enum nt_coll)p->points[point].coll,
                                    .algo = x->algo,
                                    .proto = x->proto,
                                    .bytes = p->points[point].bytes,
                                    .channels = x->channels,
                                    .ranks = p->spec.ranks};
    uint32_t chunk = w->steps > 0 ? w->chunk : leader->own_chunk;

    if (chunk == 0 || w->steps >= search_effort(p)->chunks || (w->larger && w->found) ||
        p->chunks_out[x->algo][x->proto] || c->narms >= MAX_ARMS || c->ncalls >= MAX_CALLS ||
        !call_of(c, w->leaders[w->at], ret)) {
        return false;
    }
    chunk = w->larger ? nt_chunk_larger(&call, chunk) : nt_chunk_smaller(&call, chunk);
    ret->chunk_bytes = chunk;
    return chunk > 0;
}

bool chunks_push(struct nt_plan *p, uint32_t setting, uint32_t point)
{
    struct cell *c = &p->settings[setting].cells[point];
    struct chunk_walk *w = &c->walk;
    struct nt_call call;

    if (!w->begun && chunks_room(p, c) > 0) {
        begin(p, c);
    }
    while (w->at < w->n) {
        weigh_last(p, c);
        if (next_step(p, c, point, &call)) {
            w->steps++;
            w->chunk = call.chunk_bytes;
            rest(p, c, true);
            explore_look(p, FOR_CHUNK, setting, point, &call);
            return true;
        }
        w->at += w->larger;
        start_from(w, !w->larger);
    }
    if (w->n > 0) {
        rest(p, c, false);
    }
    w->done = true;
    return false;
}

/* A tuple more, in the races of all modes. */
static void add_arm(struct nt_plan *p, const struct todo *t, const struct nt_result *r)
{
    struct cell *c = &p->settings[t->setting].cells[t->point];
    uint32_t at = c->narms;
    const struct arm *a = &c->arms[at];
    bool ok = r->status == NT_ST_OK;

    explore_add(p, t, r);
    c->calls[c->ncalls++] = (struct request){.call = a->call, .arm = at};
    for (uint32_t k = 0; k < p->nmodes; k++) {
        struct nt_race *race = c->race[p->modes[k]];
        struct nt_race_arm arm = {.prior = a->look_log, .tie_rank = search_tie_rank(a)};
        uint32_t added = nt_race_add(race, &arm);
        nt_assert(added == at);
        if (!ok) {
            nt_race_fail(race, at, r->status);
        } else if (p->modes[k] == explore_mode(p) && !isnan(a->look_log) &&
                   nt_race_tell(race, p->race_gang, at, a->look_log, a->look_samples, &p->failed) !=
                       0) {
            return;
        }
    }
    c->walk.last = ok ? at : NONE;
}

/* It is the path that is in doubt then, not the number. */
void chunks_failed(struct nt_plan *p, const struct nt_call *call, uint8_t status)
{
    bool mild = status == NT_ST_UNAVAILABLE || status == NT_ST_NOT_RECORDED;

    p->chunks_out[call->algo][call->proto] = true;
    for (uint32_t at = 0; !mild && at < p->nsettings * p->npoints; at++) {
        const struct setting *s = &p->settings[at / p->npoints];
        struct cell *c = s->cells != NULL ? &s->cells[at % p->npoints] : NULL;
        for (uint32_t i = 0; c != NULL && i < c->narms; i++) {
            struct arm *a = &c->arms[i];
            if (a->call.chunk_bytes == 0 || a->call.algo != call->algo ||
                a->call.proto != call->proto || a->status != NT_ST_OK) {
                continue;
            }
            a->status = status;
            for (uint32_t k = 0; k < p->nmodes; k++) {
                nt_race_fail(c->race[p->modes[k]], i, status);
            }
        }
    }
}

void chunks_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o)
{
    const struct nt_result *r = o->result;

    explore_failed(p, &t->step.m.call, r->status);
    if (r->status != NT_ST_NOT_RECORDED && r->status != NT_ST_UNAVAILABLE) {
        add_arm(p, t, r);
    }
}
