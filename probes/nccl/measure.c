#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "probes/nccl/probe.h"
#include "tuner/base/rng.h"

/* BASE_RUNS: repetitions of what is taken off, of which the median counts. READBACK_WAIT_MS: NCCL's
 * own threads may bring the event after the stream is done. */
enum { BASE_RUNS = 9, READBACK_WAIT_MS = 200, EAGER_CHECKS = 2, DEADLINE_MS = 60000 };

/* What a rank found, said when they meet: the largest is everybody's. */
enum vote { VOTE_GO, VOTE_TOO_SLOW, VOTE_WRONG, VOTE_UNAVAILABLE };

struct trial {
    struct nt_probe *p;
    const struct nt_measure *m;
    struct nt_result *r;
    struct nt_call call; /* what is asked for, definite where our own kernels run */
    bool consulted;      /* NCCL asked its tuner about it */
    struct nt_plan plan;
    struct nt_slots slots;
    unsigned group; /* calls in one ncclGroup; of our kernels, just one after the other */
    unsigned inner; /* groups in one iteration */
    bool closing;   /* a 4-byte all_reduce follows each group */
    unsigned next;  /* the slot where the next iteration begins */
    uint64_t deadline_ns;
    uint64_t base_ns; /* taken off an iteration */
    struct CUgraphExec_st *graph, *empty;
    struct CUevent_st *from, *to; /* graph mode: recorded by both graphs */
};

static int meet(struct trial *t, enum vote vote, enum vote *ret_worst, struct nt_err *err)
{
    uint32_t worst = 0;
    int rc = nt_probe_meet(t->p, vote, t->deadline_ns, &worst, err);
    if (rc == 0) {
        *ret_worst = (enum vote)worst;
    }
    return rc;
}

/* Waits for the stream; a kernel of ours may have given up on the others. */
static int settle(struct trial *t, struct nt_err *err)
{
    int rc = nt_stream_sync(t->p->stream, err);
    return rc != 0 ? rc : nt_backends_check(t->p, err);
}

/* One group of calls on the slots from `slot` on. */
static int put_group(struct trial *t, unsigned slot, struct nt_err *err)
{
    const struct nt_nccl *n = &t->p->nccl;
    bool grouped = t->group > 1 && nt_backend_is_nccl((enum nt_backend)t->call.backend);
    int rc = 0;
    if (grouped) {
        rc = nt_nccl_check(n, t->p->comm, t->p->rank, n->GroupStart(), "group start", err);
    }
    for (unsigned i = 0; rc == 0 && i < t->group; i++) {
        rc = nt_backend_issue(t->p, &t->plan, &t->call, nt_slot_in(&t->slots, slot + i),
                              nt_slot_out(&t->slots, slot + i), err);
    }
    if (grouped) {
        int ended = n->GroupEnd();
        if (rc == 0) {
            rc = nt_nccl_check(n, t->p->comm, t->p->rank, ended, nt_coll_names[t->plan.cs.coll],
                               err);
        }
    }
    return rc;
}

/* What an iteration consists of. Without `calls` it is what is taken off. In a graph each group is
 * followed by a small kernel that depends on it, as in a model's step. */
static int put_iteration(struct trial *t, unsigned slot, unsigned groups, bool calls,
                         struct nt_err *err)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < groups; i++) {
        if (calls) {
            rc = put_group(t, slot + i * t->group, err);
        }
        if (rc == 0 && t->closing) {
            rc = nt_probe_small_reduce(t->p, err);
        }
        if (rc == 0 && t->m->cs.mode == NT_GRAPH) {
            rc = nt_dev_tick(t->p->dev, t->p->stream, err);
        }
    }
    return rc;
}

/* Ends what `rc` came out of as a graph that is on the device. */
static int captured(struct trial *t, int rc, struct CUgraphExec_st **ret, struct nt_err *err)
{
    struct CUgraphExec_st *g = NULL;
    int ended = nt_capture_end(t->p->stream, &g, rc == 0 ? err : NULL);
    rc = rc == 0 ? ended : rc;
    if (rc == 0) {
        rc = nt_graph_upload(g, t->p->stream, err);
    }
    if (rc == 0) {
        rc = settle(t, err);
    }
    if (rc != 0) {
        nt_graph_free(g);
        return rc;
    }
    *ret = g;
    return 0;
}

static int capture(struct trial *t, unsigned groups, struct CUgraphExec_st **ret,
                   struct nt_err *err)
{
    int rc = nt_capture_begin(t->p->stream, err);
    return rc != 0 ? rc : captured(t, put_iteration(t, 0, groups, true, err), ret, err);
}

/* The graph that is timed, on the device and after a call at which the ranks meet. How late a rank
 * launches a graph, and sees its end, depends on the core it runs on, by 34 µs where it was seen,
 * and comes once a step, not with each call. */
static int capture_timed(struct trial *t, bool calls, struct CUgraphExec_st **ret,
                         struct nt_err *err)
{
    int rc = nt_capture_begin(t->p->stream, err);
    if (rc != 0) {
        return rc;
    }
    if (calls) {
        rc = nt_probe_small_reduce(t->p, err);
    }
    if (rc == 0) {
        rc = nt_event_capture(t->from, t->p->stream, err);
    }
    if (rc == 0) {
        rc = put_iteration(t, 0, t->inner, calls, err);
    }
    if (rc == 0) {
        rc = nt_event_capture(t->to, t->p->stream, err);
    }
    return captured(t, rc, ret, err);
}

static int make_graphs(struct trial *t, struct nt_err *err)
{
    int rc = nt_event_open(&t->from, err);
    if (rc == 0) {
        rc = nt_event_open(&t->to, err);
    }
    if (rc == 0) {
        rc = capture_timed(t, true, &t->graph, err);
    }
    return rc != 0 ? rc : capture_timed(t, false, &t->empty, err);
}

/* Eager: the host's clock from the release of the barrier until the stream is done, the same moment
 * of start on every rank. Device events would leave out the rank's own launch, and with it how late
 * it makes the others. */
static int run_eager(struct trial *t, bool calls, uint64_t *ret_ns, struct nt_err *err)
{
    uint64_t begin = nt_now_ns();
    int rc = put_iteration(t, t->next, 1, calls, err);
    if (rc == 0) {
        rc = settle(t, err);
    }
    *ret_ns = nt_now_ns() - begin;
    return rc;
}

static int run_graph(struct trial *t, bool calls, uint64_t *ret_ns, struct nt_err *err)
{
    int rc = nt_graph_launch(calls ? t->graph : t->empty, t->p->stream, err);
    if (rc == 0) {
        rc = settle(t, err);
    }
    return rc != 0 ? rc : nt_event_between_ns(t->from, t->to, ret_ns, err);
}

/* Back to back: the device's own events, as the launches hide behind the calls before them. */
static int run_stream(struct trial *t, bool calls, uint64_t *ret_ns, struct nt_err *err)
{
    struct CUevent_st *from = NULL, *to = NULL;
    int rc = nt_event_open(&from, err);
    if (rc == 0) {
        rc = nt_event_open(&to, err);
    }
    if (rc == 0) {
        rc = nt_event_record(from, t->p->stream, err);
    }
    if (rc == 0) {
        rc = put_iteration(t, t->next, t->inner, calls, err);
    }
    if (rc == 0) {
        rc = nt_event_record(to, t->p->stream, err);
    }
    if (rc == 0) {
        rc = settle(t, err);
    }
    if (rc == 0) {
        rc = nt_event_between_ns(from, to, ret_ns, err);
    }
    nt_event_close(from);
    nt_event_close(to);
    return rc;
}

static int (*const run_mode[NT_MODE_COUNT])(struct trial *t, bool calls, uint64_t *ret_ns,
                                            struct nt_err *err) = {
    [NT_EAGER] = run_eager, [NT_STREAM] = run_stream, [NT_GRAPH] = run_graph};

/* Over what tells one first call from another; never 0. */
static uint64_t call_key(const struct trial *t)
{
    const struct nt_case *cs = &t->plan.cs;
    const uint64_t words[] = {cs->bytes,
                              cs->coll,
                              cs->dtype,
                              cs->place,
                              (uint64_t)t->call.algo,
                              (uint64_t)t->call.proto,
                              t->call.channels,
                              t->call.chunk_bytes,
                              t->call.backend,
                              t->group,
                              t->closing};
    uint64_t key = 1;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        key = nt_mix(key, words[i]);
    }
    return key != 0 ? key : 1;
}

/* Its place in the table of known calls, taken or free. */
static size_t known_at(const struct nt_probe *p, uint64_t key)
{
    size_t at = key % NT_KNOWN_CALLS;

    while (p->known[at].key != 0 && p->known[at].key != key) {
        at = (at + 1) % NT_KNOWN_CALLS;
    }
    return at;
}

/* The first call connects the algorithm, and shows the tuner what NCCL allows. The closing
 * all_reduce has one to connect too. Where a call takes tens of milliseconds one that tells nothing
 * new is worth leaving out. */
static int first_call(struct trial *t, enum vote *ret_worst, struct nt_err *err)
{
    const struct nt_call *call = &t->call;
    struct nt_tuner_seen seen;
    bool nccl = nt_backend_is_nccl((enum nt_backend)call->backend), none = true;
    bool *used = nccl ? &t->p->used[t->plan.cs.coll][call->algo + 1][call->proto + 1] : &none;
    bool asked = nccl && (call->algo >= 0 || call->channels > 0 || call->chunk_bytes > 0);
    const char *why = NULL;
    uint64_t begin = nt_now_ns();
    size_t at = known_at(t->p, call_key(t));
    int rc;
    if (t->p->known[at].key != 0) {
        t->consulted = t->p->known[at].consulted;
        *ret_worst = VOTE_GO;
        return 0;
    }
    rc = put_group(t, 0, err);
    if (rc == 0) {
        rc = settle(t, err);
    }
    if (rc != 0) {
        return rc;
    }
    if (!*used) {
        t->r->connect_ns += nt_now_ns() - begin;
        *used = true;
    }
    if (t->closing) {
        rc = nt_probe_small_reduce(t->p, err);
        if (rc == 0) {
            rc = settle(t, err);
        }
        if (rc != 0) {
            return rc;
        }
    }
    nt_tuner_seen(&seen);
    t->consulted = seen.consulted;
    if (asked && !seen.consulted) {
        why = "NCCL did not ask this program's tuner, so nothing can be asked of it";
    } else if (asked && seen.unavailable) {
        why = "NCCL marks the cell unavailable";
    } else if (call->chunk_bytes > 0 && nt_tuner_version() < 6) {
        why = "a chunk size can be asked of NCCL 2.30.3 and later";
    } else if (call->chunk_bytes > 0 && seen.chunk_bytes == 0) {
        why = "NCCL did not ask this program's tuner for a chunk size";
    }
    rc = meet(t, why != NULL ? VOTE_UNAVAILABLE : VOTE_GO, ret_worst, err);
    if (rc == 0 && *ret_worst == VOTE_UNAVAILABLE) {
        t->r->status = NT_ST_UNAVAILABLE;
        (void)snprintf(t->r->error, sizeof(t->r->error), "%s",
                       why != NULL ? why : "unavailable on another rank");
    } else if (rc == 0 && *ret_worst == VOTE_GO && t->p->nknown < NT_KNOWN_CALLS / 2) {
        t->p->known[at].key = call_key(t);
        t->p->known[at].consulted = t->consulted;
        t->p->nknown++;
    }
    return rc;
}

/* One untimed call with NCCL's profiler on. For a graph the event comes at capture or at replay,
 * depending on whether the call has proxy operations: the first one that comes is it. The graph is
 * of its own, because events of a capture made with the profiler on never stop. */
static int read_back(struct trial *t, struct nt_err *err)
{
    bool by_graph = t->m->cs.mode == NT_GRAPH, tuned = t->plan.cs.coll < NT_TUNER_COLLS;
    struct CUgraphExec_st *g = NULL;
    int rc;
    if (!nt_backend_is_nccl((enum nt_backend)t->call.backend)) {
        nt_backend_executed(&t->call, false, &t->r->executed);
        return 0;
    }
    nt_profiler_on();
    if (by_graph) {
        enum vote worst;
        rc = capture(t, 1, &g, err);
        if (rc == 0) {
            rc = meet(t, VOTE_GO, &worst, err);
        }
        if (rc == 0) {
            rc = nt_graph_launch(g, t->p->stream, err);
        }
    } else {
        rc = put_group(t, 0, err);
    }
    if (rc == 0) {
        rc = settle(t, err);
    }
    if (rc == 0 && tuned) {
        struct nt_tuner_seen seen;
        nt_tuner_seen(&seen);
        t->r->own_chunk_bytes = seen.chunk_bytes;
        (void)nt_profiler_executed(READBACK_WAIT_MS, &t->r->executed);
        nt_backend_executed(&t->call, t->consulted, &t->r->executed);
    }
    nt_profiler_off();
    nt_graph_free(g);
    return rc;
}

static uint32_t salt_of(const struct trial *t, unsigned round, unsigned slot)
{
    return (uint32_t)nt_mix(nt_mix(t->m->id, round), slot);
}

/* All are ready before any begins: the driver may hold up a rank that allocates, or makes a graph,
 * until the kernels that wait for that rank have given up. */
static int run_checked(struct trial *t, unsigned groups, struct nt_err *err)
{
    struct CUgraphExec_st *own = NULL;
    enum vote worst;
    int rc = 0;
    if (t->m->cs.mode == NT_GRAPH && groups != t->inner) {
        rc = capture(t, groups, &own, err);
    }
    if (rc == 0) {
        rc = meet(t, VOTE_GO, &worst, err);
    }
    if (rc == 0) {
        rc = t->m->cs.mode != NT_GRAPH
                 ? put_iteration(t, 0, groups, true, err)
                 : nt_graph_launch(own != NULL ? own : t->graph, t->p->stream, err);
    }
    if (rc == 0) {
        rc = settle(t, err);
    }
    nt_graph_free(own);
    return rc;
}

/* The gate: the whole of every buffer that an iteration of this mode uses. A call that adds in
 * place can use a buffer only once. */
static int verify(struct trial *t, unsigned round, enum vote *ret_worst, struct nt_err *err)
{
    unsigned groups = t->m->cs.mode == NT_EAGER ? EAGER_CHECKS : t->inner, most, slots;
    uint64_t wrong = 0;
    int rc = 0;
    most = t->slots.count / (t->group > 1 ? NT_GROUP : 1);
    if (!nt_plan_repeats(&t->plan) && groups > most) {
        groups = most;
    }
    slots = groups * t->group < t->slots.count ? groups * t->group : t->slots.count;
    for (unsigned s = 0; rc == 0 && s < slots; s++) {
        rc = nt_verify_prepare(t->p, &t->plan, &t->slots, s, salt_of(t, round, s), err);
    }
    if (rc == 0) {
        rc = run_checked(t, groups, err);
    }
    for (unsigned s = 0; rc == 0 && s < slots; s++) {
        rc = nt_verify_compare(t->p, &t->plan, &t->slots, s, salt_of(t, round, s), err);
    }
    if (rc == 0) {
        rc = nt_dev_differing(t->p->dev, t->p->stream, &wrong, err);
    }
    if (rc != 0) {
        return rc;
    }
    t->r->wrong += wrong;
    rc = meet(t, wrong > 0 ? VOTE_WRONG : VOTE_GO, ret_worst, err);
    if (rc == 0 && *ret_worst == VOTE_WRONG) {
        t->r->status = NT_ST_WRONG;
        (void)snprintf(t->r->error, sizeof(t->r->error), "%s",
                       wrong > 0 ? "data or the memory beside it is wrong"
                                 : "wrong on another rank");
    }
    return rc;
}

/* Floats whose sums are rounded, through NCCL left alone and through what is asked for: does every
 * bit agree? No verdict on whether either is right. */
static int compare_bits(struct trial *t, struct nt_err *err)
{
    struct nt_probe *p = t->p;
    struct nt_slots plain;
    struct nt_region in, out[NT_REGIONS];
    uint64_t differing = 0;
    int rc = nt_pool_cut(&p->pool, t->plan.cs.bytes, 2, &plain, err);
    if (rc != 0) {
        return rc;
    }
    nt_plan_input(&t->plan, salt_of(t, 2, 0), &in);
    (void)nt_plan_output(&t->plan, 0, out);
    in.pattern.kind = NT_PATTERN_FLOAT;
    for (unsigned s = 0; rc == 0 && s < 2; s++) { /* slot 0 for NCCL, slot 1 for the other */
        const struct nt_slots *slots = s == 0 ? &plain : &t->slots;
        char *at = in.in ? nt_slot_in(slots, s) : nt_slot_out(slots, s);
        rc = nt_dev_fill(p->stream, at + in.at_bytes, in.count, &in.pattern, err);
    }
    if (rc == 0) {
        nt_tuner_rest();
        rc = nt_plan_issue(&t->plan, &p->nccl, p->comm, p->stream, nt_slot_in(&plain, 0),
                           nt_slot_out(&plain, 0), err);
        nt_tuner_resume();
    }
    if (rc == 0) {
        rc = nt_backend_issue(p, &t->plan, &t->call, nt_slot_in(&t->slots, 1),
                              nt_slot_out(&t->slots, 1), err);
    }
    /* Where nothing arrives, nothing is compared. */
    if (rc == 0 && out[0].pattern.kind != NT_PATTERN_POISON &&
        (t->plan.cs.coll != NT_REDUCE || p->rank == 0)) {
        rc = nt_dev_differ(p->dev, p->stream, (char *)nt_slot_out(&plain, 0) + out[0].at_bytes,
                           (char *)nt_slot_out(&t->slots, 1) + out[0].at_bytes, out[0].count,
                           t->plan.elem_bytes, err);
    }
    if (rc == 0) {
        rc = nt_dev_differing(p->dev, p->stream, &differing, err);
    }
    if (rc == 0) {
        rc = nt_backends_check(p, err);
    }
    if (rc == 0) {
        t->r->bits = differing > 0 ? NT_BITS_DIFFERENT : NT_BITS_SAME;
    }
    return rc;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int closings(struct trial *t, unsigned count, uint64_t *ret_ns, struct nt_err *err)
{
    uint64_t begin = nt_now_ns();
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < count; i++) {
        rc = nt_probe_small_reduce(t->p, err);
    }
    if (rc == 0) {
        rc = settle(t, err);
    }
    *ret_ns = nt_now_ns() - begin;
    return rc;
}

/* Median of what `count` closing barriers (0: an iteration without its calls) take. */
static int median(struct trial *t, unsigned count, uint64_t *ret_ns, struct nt_err *err)
{
    uint64_t ns[BASE_RUNS] = {0};
    enum vote worst;
    for (unsigned i = 0; i < BASE_RUNS; i++) {
        int rc = meet(t, VOTE_GO, &worst, err);
        if (rc == 0) {
            rc = count > 0 ? closings(t, count, &ns[i], err)
                           : run_mode[t->m->cs.mode](t, false, &ns[i], err);
        }
        if (rc != 0) {
            return rc;
        }
    }
    qsort(ns, BASE_RUNS, sizeof(ns[0]), by_size);
    *ret_ns = ns[BASE_RUNS / 2];
    return 0;
}

/* What belongs to an iteration and not to its calls. In eager mode a closing barrier costs what a
 * second one adds to a first, so that launch and synchronisation stay in the call's time. */
static int measure_base(struct trial *t, struct nt_err *err)
{
    uint64_t one = 0, two = 0;
    int rc;
    if (t->m->cs.mode != NT_GRAPH && !t->closing) {
        return 0;
    }
    if (t->m->cs.mode != NT_EAGER) {
        rc = median(t, 0, &t->base_ns, err);
    } else {
        rc = median(t, 1, &one, err);
        rc = rc == 0 ? median(t, 2, &two, err) : rc;
        t->base_ns = two > one ? two - one : 0;
    }
    t->r->base_ns = (uint32_t)(t->base_ns / t->inner);
    return rc;
}

static int timed_block(struct trial *t, struct nt_err *err)
{
    enum vote vote = VOTE_GO, worst = VOTE_GO;
    unsigned all = t->m->warmup + t->m->samples;
    for (unsigned i = 0; i <= all; i++) { /* the last round is only a vote */
        uint64_t ns = 0;
        int rc = meet(t, vote, &worst, err);
        if (rc != 0 || worst != VOTE_GO || i == all) {
            if (rc != 0) {
                return rc;
            }
            break;
        }
        rc = run_mode[t->m->cs.mode](t, true, &ns, err);
        if (rc != 0) {
            return rc;
        }
        t->next = (t->next + t->inner * t->group) % t->slots.count;
        ns = (ns > t->base_ns ? ns - t->base_ns : 0) / t->inner;
        if (ns > UINT32_MAX) {
            vote = VOTE_TOO_SLOW;
        } else if (i >= t->m->warmup) {
            t->r->ns[t->r->count++] = ns > 0 ? (uint32_t)ns : 1;
        }
    }
    if (worst == VOTE_TOO_SLOW) {
        t->r->count = 0;
        t->r->status = NT_ST_TOO_SLOW;
        (void)snprintf(t->r->error, sizeof(t->r->error), "one call takes more than 4.29 s");
    }
    return 0;
}

/* Ranks on one device; under MPS all are. */
static unsigned sharers(const struct nt_probe *p)
{
    return getenv("CUDA_MPS_PIPE_DIRECTORY") != NULL ? p->world : 1;
}

static int time_calls(struct trial *t, struct nt_err *err)
{
    bool busy = (t->m->flags & NT_M_BUSY) != 0;
    int stopped, rc;
    t->r->ns = calloc(t->m->samples, sizeof(t->r->ns[0]));
    if (t->r->ns == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "%u samples", t->m->samples);
    }
    nt_cpu_stay(&t->p->cpu);
    rc = measure_base(t, err);
    nt_cpu_roam(&t->p->cpu); /* the busy thread begins with this one's mask */
    if (rc == 0 && busy) {
        rc = nt_dev_busy_start(t->p->dev, sharers(t->p), err);
    }
    if (rc == 0) {
        nt_cpu_stay(&t->p->cpu);
        rc = timed_block(t, err);
        nt_cpu_roam(&t->p->cpu);
    }
    if (!busy) {
        return rc;
    }
    stopped = nt_dev_busy_stop(t->p->dev, rc == 0 ? err : NULL);
    return rc != 0 ? rc : stopped;
}

/* The steps of a trial; each ends it by status or by error, on all ranks alike. */
static int run_trial(struct trial *t, struct nt_err *err)
{
    enum vote worst = VOTE_GO;
    int rc = meet(t, VOTE_GO, &worst, err);
    if (rc == 0) {
        rc = first_call(t, &worst, err);
    }
    if (rc != 0 || worst != VOTE_GO) {
        return rc;
    }
    if ((t->m->flags & NT_M_READBACK) != 0) {
        rc = read_back(t, err);
    }
    if (rc == 0 && t->m->cs.mode == NT_GRAPH) {
        rc = make_graphs(t, err);
    }
    if (rc == 0 && t->m->verify != NT_VERIFY_NO) {
        rc = verify(t, 0, &worst, err);
    }
    if (rc == 0 && worst == VOTE_GO && (t->m->flags & NT_M_BITS) != 0) {
        rc = compare_bits(t, err);
    }
    if (rc != 0 || worst != VOTE_GO || t->m->samples == 0) {
        return rc;
    }
    rc = time_calls(t, err);
    if (rc == 0 && t->r->status == NT_ST_OK && t->m->verify == NT_VERIFY_BOTH) {
        rc = verify(t, 1, &worst, err);
    }
    return rc;
}

/* What a failed step means for the trial. -NT_E_INVAL and -NT_E_MISSING come before any call. */
static enum nt_status status_of(int rc)
{
    return rc == -NT_E_MISSING       ? NT_ST_UNAVAILABLE
           : rc == -NT_E_INTERRUPTED ? NT_ST_TIMEOUT
                                     : NT_ST_ERROR;
}

static int plan(const struct nt_probe *p, const struct nt_case *cs, struct nt_plan *ret,
                struct nt_err *err)
{
    const struct nt_seat seat = {.rank = p->rank, .world = p->world, .capability = p->capability};
    return nt_plan_make(&p->nccl, cs, &seat, ret, err);
}

static int prepare(struct trial *t, struct nt_err *err)
{
    const struct nt_measure *m = t->m;
    if (t->p->broken[0] != '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "an earlier trial failed: %s", t->p->broken);
    }
    t->group = (m->flags & NT_M_GROUP8) != 0 ? NT_GROUP : 1;
    t->inner = m->cs.mode == NT_EAGER || m->inner == 0 ? 1 : m->inner;
    t->closing = (m->flags & nt_case_flags(&m->cs)) != 0;
    t->deadline_ns = nt_now_ns() + 1000000ULL * (m->deadline_ms > 0 ? m->deadline_ms : DEADLINE_MS);
    t->call = m->call;
    return plan(t->p, &m->cs, &t->plan, err);
}

/* All ranks together; what is not to be had, is had by none. */
static int open_backend(struct trial *t, struct nt_err *err)
{
    enum nt_backend id = (enum nt_backend)t->call.backend;
    uint64_t begin = nt_now_ns();
    bool tried = id == NT_BE_NCCL || t->p->backends[id].tried;
    int rc = nt_backend_open(t->p, id, t->deadline_ns, err);
    if (!tried) {
        t->r->connect_ns = nt_now_ns() - begin;
    }
    if (rc == 0) {
        rc = nt_backend_choose(t->p, &t->plan, &t->call, err);
    }
    if (rc == 0) {
        rc = nt_pool_cut(nt_backend_pool(t->p, id), t->plan.cs.bytes, t->group > 1 ? t->group : 2,
                         &t->slots, err);
    }
    if (rc == 0) {
        uint64_t now = nt_now_ns();
        nt_backends_limit(t->p, now < t->deadline_ns ? (t->deadline_ns - now) / 2 : 0);
    }
    return rc == 0 || id == NT_BE_NCCL ? rc : nt_wrap(err, rc, "%s", nt_backend_names[id]);
}

/* The communicator is of no use any more. */
static void give_up(struct nt_probe *p, const struct nt_err *err)
{
    nt_barrier_leave(&p->barrier);
    (void)snprintf(p->broken, sizeof(p->broken), "%.*s", (int)sizeof(p->broken) - 1, err->msg);
}

void nt_measure(struct nt_probe *p, const struct nt_measure *m, struct nt_result *ret)
{
    struct nt_err err = {0};
    struct trial t = {.p = p, .m = m, .r = ret};
    uint64_t begin = nt_now_ns();
    int rc;
    *ret = (struct nt_result){.id = m->id, .status = NT_ST_OK, .executed = NT_EXECUTED_NONE};
    rc = prepare(&t, &err);
    if (rc == 0) {
        rc = open_backend(&t, &err);
        if (rc != 0 && rc != -NT_E_MISSING && rc != -NT_E_INVAL) {
            give_up(p, &err);
        }
    }
    if (rc == 0) {
        bool nccl = nt_backend_is_nccl((enum nt_backend)t.call.backend);
        nt_tuner_ask(m->cs.coll, nccl ? &t.call : &NT_CALL_DEFAULT);
        rc = run_trial(&t, &err);
        nt_graph_free(t.graph);
        nt_graph_free(t.empty);
        nt_event_close(t.from);
        nt_event_close(t.to);
        if (rc != 0) {
            give_up(p, &err);
        }
    }
    nt_tuner_rest();
    if (rc != 0) {
        ret->status = (uint8_t)status_of(rc);
        ret->count = 0;
        (void)snprintf(ret->error, sizeof(ret->error), "%.*s", (int)sizeof(ret->error) - 1,
                       err.msg);
    } else if (ret->status != NT_ST_OK) {
        ret->count = 0;
    }
    ret->memory_bytes = nt_probe_memory(p);
    ret->elapsed_ns = nt_now_ns() - begin;
}

int nt_cells(struct nt_probe *p, const struct nt_case *cs, struct nt_cells *ret, struct nt_err *err)
{
    struct nt_tuner_seen seen = {0};
    struct nt_slots slots;
    struct nt_plan calls;
    int rc = plan(p, cs, &calls, err);
    *ret = (struct nt_cells){.cs = *cs};
    for (int a = 0; a < NT_ALGO_COUNT; a++) {
        for (int k = 0; k < NT_PROTO_COUNT; k++) {
            ret->cost[a][k] = -1.0F;
        }
    }
    if (rc == 0) {
        rc = nt_pool_cut(&p->pool, cs->bytes, 2, &slots, err);
    }
    if (rc != 0 || p->broken[0] != '\0') {
        return 0; /* no such case here: nothing is available */
    }
    nt_tuner_ask(cs->coll, &NT_CALL_DEFAULT);
    rc = nt_plan_issue(&calls, &p->nccl, p->comm, p->stream, nt_slot_in(&slots, 0),
                       nt_slot_out(&slots, 0), err);
    if (rc == 0) {
        rc = nt_stream_sync(p->stream, err);
    }
    nt_tuner_rest();
    nt_tuner_seen(&seen);
    if (rc == 0 && seen.consulted) {
        ret->asked = true;
        memcpy(ret->cost, seen.cost, sizeof(ret->cost));
    }
    return rc;
}
