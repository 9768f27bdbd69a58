/*
 * explain - how much of a step can be communication at all. Pure: sums over measured times.
 *
 * Units      microseconds for calls, milliseconds for steps.
 * Honesty    a size between two measured ones is interpolated, its interval spans both; a size
 *            outside of what was measured is "not measured", and a phase of which more than a
 *            twentieth of the calls is not measured gets no answer.
 */
#pragma once
#include "tuner/workload/workload.h"

struct nt_point {
    uint64_t bytes;
    double us, sd; /* sd < 0: not known */
    uint32_t repeats;
};
/* One collective, one way to run it. Points ascend by bytes, one a size. */
struct nt_wl_curve {
    const char *arm; /* backend or setting */
    uint8_t coll;
    int8_t mode;    /* enum nt_mode; -1: not said */
    uint32_t ranks; /* 0: not said */
    const struct nt_point *points;
    size_t n;
};

struct nt_span {
    double lo, mid, hi;
};

/* Time of one call; false when the size lies outside the points. *ret_exact: it was measured. */
bool nt_curve_time(const struct nt_wl_curve *c, uint64_t bytes, struct nt_span *ret_us,
                   bool *ret_exact);

struct nt_explained_call {
    const struct nt_wl_call *call;
    bool measured, exact;
    const char *best_arm; /* the fastest arm measured here, or NULL */
    struct nt_span now;   /* by the default arm, us a call */
    double best_us;       /* by the fastest arm */
    double floor_us;      /* what the smallest measured size takes: launch and latency */
};

enum nt_blame {
    NT_BLAME_NOT_MEASURED, /* refused */
    NT_BLAME_NOT_IT,       /* communication cannot explain the step */
    NT_BLAME_PART,
    NT_BLAME_MOST,       /* more than half of the step even at the low end */
    NT_BLAME_IMPOSSIBLE, /* the measured times do not fit into the step: overlap, or another machine
                          */
};
extern const char *const nt_blame_words[];

struct nt_explained {
    const struct nt_wl_phase *phase;
    double step_ms;
    struct nt_explained_call calls[NT_WL_CALLS];
    struct nt_span now_ms; /* all measured collectives of the step, by default */
    double best_ms;        /* the same by the fastest measured arms */
    double turned_ms; /* now_ms, if the step ran in the other of graph and eager; NAN: not known */
    double floor_ms;  /* of now_ms: launch and latency, whatever the bytes */
    double missing_calls, all_calls;
    struct nt_span share; /* of the step, 0 to 1 */
    bool other_mode;      /* the curves are of another mode than the phase, or say none */
    bool noise_known;
    enum nt_blame blame;
};

/* default_arm: what runs today; NULL: an arm that is called default, nccl or pynccl, else the first
 * curve. */
void nt_explain(const struct nt_wl_phase *phase, double step_ms, uint32_t ranks,
                const struct nt_wl_curve *curves, size_t n, const char *default_arm,
                struct nt_explained *ret);
/* What else to look at, most likely first; NULL-terminated constant texts. At most 8. */
size_t nt_explain_hints(const struct nt_explained *e, const char *out[8]);

/* How much of the difference between two steps communication can be: 0 to 1, in spans. */
struct nt_span nt_explain_difference(const struct nt_explained *slow,
                                     const struct nt_explained *fast);
