/*
 * truth - jobs replayed from a recording in this process, judged by gangs that they never saw.
 *
 * A job draws from the even gangs of its recording; its picks and claims are judged by the
 * medians of the odd ones (and of another recording of the same machine). Times of two tuples of a
 * process setting are compared gang by gang; how much a tuple scatters there is taken from all
 * tuples of that case near the best. Settings are compared by Welch's interval on gang means.
 */
#pragma once
#include "probes/recording/recording.h"
#include "tuner/job/plan.h"

struct truth_config {
    const struct nt_recording *rec;
    const struct nt_recording *other; /* another lease, or NULL */
    enum nt_effort effort;
    bool null; /* every cell draws from the default's samples: nothing is judged */
    bool verbose;
};

enum { TRUTH_JUDGES = 3 }; /* of two gangs, one that strays is half of what they say */
/* Picks judged by one recording. A gap is told when the pick is slower than some tuple by the
 * interval that holds for all tuples of its case together at 99.5 %: else the best of many equal
 * ones, chosen by the same gangs that judge, always seems faster. What counts of the worst is what
 * the interval leaves that holds at 97.5 % for all cases of the recording together. */
struct truth_gaps {
    unsigned family;    /* cases of a job */
    unsigned cases;     /* judged */
    unsigned unknown;   /* not recorded there often enough */
    unsigned gaps;      /* told */
    unsigned thin;      /* cannot tell: fewer than TRUTH_JUDGES gangs have both tuples … */
    unsigned thin_gaps; /* … in which those few speak of a gap */
    double thin_worst;
    double worst;            /* log units, beyond the interval of the recording */
    double worst_difference; /* of told gaps, the whole of it */
    double worst_seen;       /* of all cases, told or not: most of it is noise of the judge */
    double sum_difference, sum_width; /* of all cases; width: half of the interval */
};

/* Published classes, and of these the claims: a gain is proved. */
struct truth_claims {
    unsigned claims;
    unsigned told_claims, false_claims; /* that TRUTH_JUDGES gangs or more judge; are false */
    unsigned pair_claims, thin_claims;  /* that two gangs judge; seem false: cannot tell */
    unsigned published;
    unsigned told_published, slower; /* that two odd gangs have; are slower beyond the guard */
};
/* The same of one collective in one mode. */
struct truth_part {
    struct truth_gaps own, chosen, other;
    struct truth_claims said;
};

void truth_add_gaps(struct truth_gaps *to, const struct truth_gaps *g);
void truth_add_claims(struct truth_claims *to, const struct truth_claims *c);

struct truth_sum {
    unsigned jobs;
    unsigned noisy; /* ended as too noisy, without a profile */
    unsigned empty; /* nothing published; the noisy ones too */
    unsigned rows;
    struct truth_claims said;
    uint64_t search_ns, confirm_ns; /* device time, gang starts included */
    uint64_t steps;
    struct truth_gaps own, other;
    struct truth_gaps oracle; /* the even gangs' own best in the place of the picks */
    /* The picks beside the even gangs' own best, both judged by the odd: neither was chosen by
     * those who judge, so that the plain 95 % interval of the difference holds. The sharp judge:
     * it alone has `thin` cases. */
    struct truth_gaps chosen;
    struct truth_part part[NT_COLL_COUNT][NT_MODE_COUNT];
};

/* Plays one job and adds what came of it. That it ends as too noisy is no error. */
NT_MUST_CHECK int truth_job(const struct truth_config *c, uint64_t seed, struct truth_sum *sum,
                            struct nt_err *err);
/* The best of each case by the odd gangs of one recording, judged by the other: what no search can
 * know. */
NT_MUST_CHECK int truth_disagreement(const struct truth_config *c, struct truth_gaps *ret,
                                     struct nt_err *err);
/* By how much a tuple of a case is slower than another of its process setting, as far as half the
 * gangs can tell (see truth_gaps): of this case alone (family 0), or when that is asked of so many
 * cases together. Log units, 0: not at all, NAN: not recorded there often enough. */
double truth_gap(const struct nt_recording *rec, enum nt_half half, const struct nt_case *cs,
                 const char *vars, const struct nt_executed *x, unsigned family);
/* The same against the tuples of another process setting, which ran in other gangs. */
double truth_gap_apart(const struct nt_recording *rec, enum nt_half half, const struct nt_case *cs,
                       const char *vars, const struct nt_executed *x, const char *other_vars,
                       unsigned family);
/* Gangs of that half which hold the default of a case under a process setting. */
unsigned truth_gangs(const struct nt_recording *rec, enum nt_half half, const struct nt_case *cs,
                     const char *vars);
/* Device time of the exhaustive grid: every distinct tuple × case × process setting, 4 gangs × 5
 * blocks of the job's block length, gang starts included. */
NT_MUST_CHECK int truth_grid(const struct truth_config *c, uint64_t *ret_ns, unsigned *ret_tuples,
                             struct nt_err *err);
