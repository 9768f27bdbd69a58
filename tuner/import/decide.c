#include "tuner/import/decide.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *const nt_verdict_names[] = {"winner",       "tie",   "no_winner",
                                        "not_credible", "alone", NULL};
const char *const nt_verdict_words[] = {"winner",
                                        "tie",
                                        "no winner: too noisy",
                                        "gain not credible: outlier",
                                        "nothing to compare with",
                                        NULL};

/* Below this no collective of two GPUs can end: a kernel launch alone takes longer. */
#define LEAST_TIME_US 1.0
/* How far a value lies off its neighbours before it is called an outlier. */
#define OFF_CURVE 1.10
#define OFF_EDGE  1.50

void nt_curve_flags(const double *t, size_t n, size_t i, bool *ret_spike, bool *ret_dip)
{
    *ret_spike = false;
    *ret_dip = false;
    if (i + 1 < n && i > 0) {
        *ret_spike = t[i] > OFF_CURVE * t[i - 1] && t[i] > OFF_CURVE * t[i + 1];
    } else if (i + 1 < n) {
        *ret_spike = t[i] > OFF_EDGE * t[i + 1];
    }
    /* After a spike every normal value looks like a dip, so two smaller sizes must agree. */
    if (i > 1) {
        *ret_dip = OFF_CURVE * t[i] < t[i - 1] && OFF_CURVE * t[i] < t[i - 2] &&
                   (i + 1 == n || t[i + 1] > OFF_CURVE * t[i]);
    }
}

static bool word_among(const char *word, size_t len, const char *const *words)
{
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strlen(words[i]) == len && strncasecmp(word, words[i], len) == 0) {
            return true;
        }
    }
    return false;
}

/* A label made of words for NCCL's own callers and of words that mean nothing beside them: any
 * other word names a setting or another library ("torch_symm_mem", "nccl_graph_xml"). */
const char *nt_backend_library(const char *label)
{
    static const char *const callers[] = {
        "nccl", "pynccl", "torch", "pytorch", "c10d", "distributed", "processgroupnccl", NULL};
    static const char *const neutral[] = {
        "dist",         "default", "all",     "reduce",   "allreduce", "native",
        "communicator", "backend", "process", "group",    "pg",        "allgather",
        "gather",       "vllm",    "sglang",  "baseline", "stock",     NULL};
    bool called = false;
    for (const char *p = label; *p != '\0';) {
        size_t n = strcspn(p, " _-.()/:");
        bool caller = word_among(p, n, callers);
        called = called || caller;
        if (n > 0 && !caller && !word_among(p, n, neutral)) {
            return label;
        }
        p += n + (p[n] != '\0');
    }
    return called ? "nccl" : label;
}

/* Student's t, two-sided 5 percent. */
static double t_critical(double df)
{
    static const double t[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                               2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                               2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
    if (!(df >= 1)) {
        return t[0];
    }
    return df >= 20 ? 1.96 + 2.5 / df : t[(size_t)df - 1];
}

/* Welch's test: do the two means differ by more than their noise? */
static bool stands_out(const struct nt_arm *a, const struct nt_arm *b)
{
    double na = a->repeats > 0 ? a->repeats : 1, nb = b->repeats > 0 ? b->repeats : 1;
    double va = a->sd * a->sd / na, vb = b->sd * b->sd / nb;
    double df;
    if (na < 2 || nb < 2) {
        return false;
    }
    if (va + vb <= 0) {
        return true;
    }
    df = (va + vb) * (va + vb) / (va * va / (na - 1) + vb * vb / (nb - 1));
    return fabs(a->value - b->value) > t_critical(df) * sqrt(va + vb);
}

static void judge(const struct nt_arm *best, const struct nt_arm *second, bool higher,
                  struct nt_decision *d)
{
    bool noise_known = best->sd >= 0 && second->sd >= 0;
    d->verdict = NT_WINNER;
    if (!higher && best->value < LEAST_TIME_US) {
        d->verdict = NT_OUTLIER;
        (void)snprintf(d->why, sizeof(d->why), "%.2f us is less than one kernel launch takes",
                       best->value);
    } else if (strcmp(best->name, second->name) != 0 &&
               strcmp(nt_backend_library(best->name), nt_backend_library(second->name)) == 0) {
        d->verdict = NT_TIE;
        (void)snprintf(d->why, sizeof(d->why), "both labels are the same library (%s)",
                       nt_backend_library(best->name));
    } else if (best->drift || second->drift) {
        d->verdict = NT_NO_WINNER;
        (void)snprintf(d->why, sizeof(d->why), "%.60s drifted: its later rounds are slower",
                       best->drift ? best->name : second->name);
    } else if (noise_known && (d->margin_pct < NT_TIE_PCT || !stands_out(best, second))) {
        d->verdict = NT_NO_WINNER;
        (void)snprintf(d->why, sizeof(d->why),
                       "%.1f %% apart; standard deviations %.3g and %.3g over %u and %u repeats",
                       d->margin_pct, best->sd, second->sd, best->repeats, second->repeats);
    } else if (d->margin_pct < NT_TIE_PCT) {
        d->verdict = NT_TIE;
        (void)snprintf(d->why, sizeof(d->why), "less than %.0f %% apart", NT_TIE_PCT);
    } else if (best->dip) {
        d->verdict = NT_OUTLIER;
        (void)snprintf(d->why, sizeof(d->why), "%.60s is faster here than at smaller sizes",
                       best->name);
    } else if (second->spike) {
        d->verdict = NT_OUTLIER;
        (void)snprintf(d->why, sizeof(d->why),
                       "%.60s is slower here than at its neighbouring sizes", second->name);
    } else if (best->overlap || second->overlap) {
        (void)snprintf(d->why, sizeof(d->why),
                       "by the best of values that are listed more than once");
    } else if (!noise_known) {
        (void)snprintf(d->why, sizeof(d->why), "by the numbers; their noise is not known");
    }
}

void nt_decide(const struct nt_arm *arms, size_t n, bool higher, struct nt_decision *ret)
{
    struct nt_decision d = {.best = -1, .second = -1, .margin_pct = NAN, .verdict = NT_ALONE};
    for (size_t i = 0; i < n; i++) { /* equal values stay in the order given */
        double v = arms[i].value;
        if (d.best < 0 || (higher ? v > arms[d.best].value : v < arms[d.best].value)) {
            d.second = d.best;
            d.best = (int)i;
        } else if (d.second < 0 || (higher ? v > arms[d.second].value : v < arms[d.second].value)) {
            d.second = (int)i;
        }
    }
    if (d.second >= 0) {
        double b = arms[d.best].value, s = arms[d.second].value;
        d.margin_pct = 100 * (higher ? b / s - 1 : s / b - 1);
        judge(&arms[d.best], &arms[d.second], higher, &d);
    } else {
        (void)snprintf(d.why, sizeof(d.why), "%s", n == 1 ? "a single arm" : "no usable value");
    }
    *ret = d;
}
