#include "tuner/workload/explain.h"

#include <math.h>
#include <string.h>
#include <strings.h>

const char *const nt_blame_words[] = {"no answer: too many of its sizes were never measured",
                                      "communication cannot explain this step",
                                      "communication is part of this step",
                                      "communication is most of this step",
                                      "the measured collectives do not fit into this step",
                                      NULL};

/* Where a point stands alone, without repeats: how far a second measurement may lie. */
#define UNKNOWN_NOISE 0.10
/* A phase of which more calls than this are not measured gets no answer. */
#define MISSING_MAX  0.05
#define NOT_IT_BELOW 0.20
#define MOST_ABOVE   0.50

static struct nt_span around(const struct nt_point *p)
{
    double half = UNKNOWN_NOISE * p->us;
    if (p->sd >= 0 && p->repeats > 1) {
        half = 2 * p->sd / sqrt((double)p->repeats);
    }
    return (struct nt_span){p->us - half, p->us, p->us + half};
}

bool nt_curve_time(const struct nt_wl_curve *c, uint64_t bytes, struct nt_span *ret_us,
                   bool *ret_exact)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct nt_point *hi = &c->points[i], *lo = i > 0 ? hi - 1 : NULL;
        double part;
        struct nt_span a, b;
        if (hi->bytes == bytes) {
            *ret_us = around(hi);
            *ret_exact = true;
            return true;
        }
        if (hi->bytes < bytes) {
            continue;
        }
        if (lo == NULL) {
            return false; /* smaller than anything measured */
        }
        part = log((double)bytes / (double)lo->bytes) / log((double)hi->bytes / (double)lo->bytes);
        a = around(lo);
        b = around(hi);
        ret_us->mid = exp(log(lo->us) + part * (log(hi->us) - log(lo->us)));
        ret_us->lo = fmin(a.lo, b.lo);
        ret_us->hi = fmax(a.hi, b.hi);
        *ret_exact = false;
        return true;
    }
    return false;
}

static bool is_default(const char *arm)
{
    static const char *const names[] = {
        "default",  "nccl_default", "nccl",     "pynccl", "as found",
        "as-found", "DEFAULT",      "baseline", "main",   NULL};
    for (size_t i = 0; names[i] != NULL; i++) {
        if (strcasecmp(arm, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* How well a curve suits a call: 0 not at all, more is better. */
static int suits(const struct nt_wl_curve *c, const struct nt_wl_call *call, uint8_t mode,
                 uint32_t ranks)
{
    if (c->coll != call->coll || (c->ranks != 0 && c->ranks != ranks) || c->n == 0) {
        return 0;
    }
    return c->mode == (int8_t)mode ? 3 : c->mode < 0 ? 2 : 1;
}

static const struct nt_wl_curve *today(const struct nt_wl_curve *curves, size_t n,
                                       const struct nt_wl_call *call, uint8_t mode, uint32_t ranks,
                                       const char *arm)
{
    const struct nt_wl_curve *best = NULL;
    int best_rank = 0;
    for (size_t i = 0; i < n; i++) {
        int fit = suits(&curves[i], call, mode, ranks);
        bool named = arm != NULL ? strcmp(curves[i].arm, arm) == 0 : is_default(curves[i].arm);
        int rank = fit == 0 ? 0 : fit + (named ? 10 : 0);
        if (arm != NULL && !named) {
            continue;
        }
        if (rank > best_rank) {
            best = &curves[i];
            best_rank = rank;
        }
    }
    return best;
}

static void one_call(const struct nt_wl_curve *curves, size_t n, const struct nt_wl_phase *p,
                     uint32_t ranks, const char *arm, struct nt_explained_call *x,
                     struct nt_explained *e)
{
    const struct nt_wl_curve *now = today(curves, n, x->call, p->mode, ranks, arm);
    const struct nt_point *at;
    if (now == NULL || !nt_curve_time(now, x->call->bytes, &x->now, &x->exact)) {
        return;
    }
    x->measured = true;
    x->best_us = x->now.mid;
    x->best_arm = now->arm;
    x->floor_us = fmin(now->points[0].us, x->now.mid);
    at = now->points;
    e->noise_known = e->noise_known && at->sd >= 0 && at->repeats > 1;
    e->other_mode = e->other_mode || now->mode != (int8_t)p->mode;
    for (size_t i = 0; i < n; i++) {
        struct nt_span t;
        bool exact;
        /* Only what was measured in the same mode as the default may be held against it. */
        if (suits(&curves[i], x->call, p->mode, ranks) > 0 && curves[i].mode == now->mode &&
            nt_curve_time(&curves[i], x->call->bytes, &t, &exact) && t.mid < x->best_us) {
            x->best_us = t.mid;
            x->best_arm = curves[i].arm;
        }
    }
}

/* What the step's measured calls take in the other mode, by the same arm; NAN when one of them was
 * not measured there. */
static double turned(const struct nt_explained *e, const struct nt_wl_curve *curves, size_t n,
                     uint32_t ranks, const char *arm)
{
    uint8_t mode = e->phase->mode == NT_GRAPH ? NT_EAGER : NT_GRAPH;
    double sum = 0;
    for (size_t i = 0; i < e->phase->ncalls; i++) {
        const struct nt_wl_call *call = e->calls[i].call;
        const struct nt_wl_curve *c = today(curves, n, call, mode, ranks, arm);
        struct nt_span t;
        bool exact;
        if (!e->calls[i].measured) {
            continue;
        }
        if (e->other_mode || c == NULL || c->mode != (int8_t)mode ||
            !nt_curve_time(c, call->bytes, &t, &exact)) {
            return NAN;
        }
        sum += call->count * t.mid / 1e3;
    }
    return sum > 0 ? sum : NAN;
}

static enum nt_blame blame(const struct nt_explained *e)
{
    if (e->all_calls <= 0 || e->missing_calls > MISSING_MAX * e->all_calls) {
        return NT_BLAME_NOT_MEASURED;
    }
    if (e->share.lo > 1) {
        return NT_BLAME_IMPOSSIBLE;
    }
    if (e->share.hi < NOT_IT_BELOW) {
        return NT_BLAME_NOT_IT;
    }
    return e->share.lo > MOST_ABOVE ? NT_BLAME_MOST : NT_BLAME_PART;
}

void nt_explain(const struct nt_wl_phase *phase, double step_ms, uint32_t ranks,
                const struct nt_wl_curve *curves, size_t n, const char *default_arm,
                struct nt_explained *ret)
{
    struct nt_explained e = {.phase = phase, .step_ms = step_ms, .noise_known = true};
    for (size_t i = 0; i < phase->ncalls; i++) {
        struct nt_explained_call *x = &e.calls[i];
        double count = phase->calls[i].count;
        x->call = &phase->calls[i];
        e.all_calls += count;
        one_call(curves, n, phase, ranks, default_arm, x, &e);
        if (!x->measured) {
            e.missing_calls += count;
            continue;
        }
        e.now_ms.lo += count * x->now.lo / 1e3;
        e.now_ms.mid += count * x->now.mid / 1e3;
        e.now_ms.hi += count * x->now.hi / 1e3;
        e.best_ms += count * x->best_us / 1e3;
        e.floor_ms += count * x->floor_us / 1e3;
    }
    e.turned_ms = turned(&e, curves, n, ranks, default_arm);
    e.share =
        (struct nt_span){e.now_ms.lo / step_ms, e.now_ms.mid / step_ms, e.now_ms.hi / step_ms};
    e.blame = blame(&e);
    *ret = e;
}

size_t nt_explain_hints(const struct nt_explained *e, const char *out[8])
{
    bool small = e->floor_ms > 0.7 * e->now_ms.mid;
    bool eager = e->phase->mode == NT_EAGER;
    const struct {
        bool when;
        const char *text;
    } rows[] = {
        {e->blame == NT_BLAME_NOT_MEASURED,
         "measure the sizes of this step first (tune, or import a table that holds them)"},
        {e->blame == NT_BLAME_IMPOSSIBLE,
         "check that the table is of this machine, these ranks and this mode"},
        {eager,
         "this step runs without a CUDA graph: hundreds of kernels are launched by the host; "
         "capture it, or look at the host's share in a profile"},
        {e->other_mode,
         "the times are of another mode than this step, or do not say: measure in the step's "
         "own mode"},
        {e->blame == NT_BLAME_NOT_IT || e->blame == NT_BLAME_PART,
         "profile the kernels of one step (nsys): attention, matrix products, sampling"},
        {e->blame == NT_BLAME_NOT_IT, "clocks, power limits and memory bandwidth of the GPUs"},
        {small && e->share.mid >= NOT_IT_BELOW, "nearly all of it is launch and latency, not "
                                                "bytes: fewer or fused collectives, a custom or "
                                                "symmetric-memory all-reduce"},
        {!small && e->share.mid >= NOT_IT_BELOW, "bytes count here: link widths, peer access and "
                                                 "topology first, then protocol and channels"},
        {e->best_ms > 0.98 * e->now_ms.mid && e->blame >= NT_BLAME_PART &&
             e->blame < NT_BLAME_IMPOSSIBLE,
         "no measured alternative is faster: tuning saves nothing here"},
    };
    size_t n = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && n < 8; i++) {
        if (rows[i].when) {
            out[n++] = rows[i].text;
        }
    }
    return n;
}

struct nt_span nt_explain_difference(const struct nt_explained *slow,
                                     const struct nt_explained *fast)
{
    double step = slow->step_ms - fast->step_ms;
    struct nt_span d = {0, 0, 0};
    if (step > 0) {
        d.lo = fmax(0, slow->now_ms.lo - fast->now_ms.hi) / step;
        d.mid = fmax(0, slow->now_ms.mid - fast->now_ms.mid) / step;
        d.hi = fmax(0, slow->now_ms.hi - fast->now_ms.lo) / step;
    }
    return d;
}
