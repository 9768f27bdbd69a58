/*
 * ab - a command's own figure with a profile and without: what pairs of runs say. Pure.
 *
 * A pair is two runs one after the other; which of them comes first is Thue and Morse's order, so
 * that neither drift nor what is left warm favours one. A pair counts when both of its runs do.
 *
 * Units      gain is a share: of the figure without, for one of which more is better; of the figure
 *            without that is saved, for one of which less is better. Positive: better with.
 * Ownership  the caller's memory; nothing is kept but copies.
 */
#pragma once
#include <jansson.h>
#include "tuner/base/buf.h"

enum nt_ab_arm { NT_AB_WITHOUT, NT_AB_WITH, NT_AB_ARMS };
extern const char *const nt_ab_arm_names[]; /* "without", "with" */
enum { NT_AB_PAIRS = 60, NT_AB_LEAST_PAIRS = 2, NT_AB_MOVED = 16 };

struct nt_ab_run {
    char id[64];   /* of its manifest; "" when it was never started */
    char log[256]; /* what it printed */
    double value;  /* above 0 */
    double step;   /* of its last digit; 0: it has all that it needs */
    char unit[16];
    double seconds;    /* wall, from the command's start */
    char applied[160]; /* "applied in 4 of 4"; "" for a run without */
    char why[320];     /* it does not count; "" when it does */
};
struct nt_ab_pair {
    enum nt_ab_arm first;
    struct nt_ab_run run[NT_AB_ARMS];
};
/* What else differs between the runs of a pair, as `diff` says it. */
struct nt_ab_moved {
    char what[16], text[320];
    unsigned pairs;
};

struct nt_ab {
    char id[64], name[64], profile[68]; /* profile: hash of the delivery file */
    bool higher;                        /* more is better */
    double slower;                      /* share that would be no matter; 0: none */
    unsigned wanted;                    /* pairs that were asked for */
    struct nt_ab_pair v[NT_AB_PAIRS];
    size_t n;
    struct nt_ab_moved moved[NT_AB_MOVED];
    size_t nmoved;
    char common[400]; /* variables of the profile that the user set, so that both arms have them */
};

enum nt_ab_verdict { NT_AB_FASTER, NT_AB_NO_SLOWER, NT_AB_SLOWER, NT_AB_CANNOT_TELL };
extern const char *const nt_ab_verdict_names[];

struct nt_ab_answer {
    enum nt_ab_verdict verdict;
    size_t counted, lost;
    double gain, lo, hi; /* with the 95 % interval; NAN without two pairs that count */
    double told;         /* the smallest gain that so many pairs show, 4 times of 5; NAN */
    size_t more;         /* pairs more, after which `then` would be; 0: not known */
    double then;
    bool coarse;             /* more could be told only of figures with more digits */
    double mean[NT_AB_ARMS]; /* geometric, of the pairs that count; NAN */
};

enum nt_ab_arm nt_ab_first(unsigned pair, unsigned draw); /* draw: 0 or 1, one for all pairs */
bool nt_ab_counts(const struct nt_ab_pair *p);
/* Pairs so far are beyond hope: more of them were lost than count. */
bool nt_ab_hopeless(const struct nt_ab *a);
void nt_ab_judge(const struct nt_ab *a, struct nt_ab_answer *ret);
/* What else moved between the runs of a pair: their manifests. NT_E_NOMEM. */
NT_MUST_CHECK int nt_ab_compare(struct nt_ab *a, const json_t *without, const json_t *with,
                                struct nt_err *err);

/* One sentence: "faster by 4.1 % [3.0, 5.2]". */
void nt_ab_sentence(const struct nt_ab *a, const struct nt_ab_answer *x, struct nt_buf *out);
void nt_ab_text(const struct nt_ab *a, const struct nt_ab_answer *x, struct nt_buf *out);
json_t *nt_ab_json(const struct nt_ab *a, const struct nt_ab_answer *x);
