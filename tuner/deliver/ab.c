#include "tuner/deliver/ab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tuner/base/json.h"
#include "tuner/base/rng.h"
#include "tuner/base/text.h"
#include "tuner/deliver/rundiff.h"
#include "tuner/stats/stats.h"

static const double LEVEL = 0.95, POWER = 0.8;
enum { MOST_MORE = 200 /* pairs more that are worth naming */ };

const char *const nt_ab_arm_names[] = {"without", "with", NULL};
const char *const nt_ab_verdict_names[] = {"faster", "no slower", "slower", "cannot tell", NULL};

enum nt_ab_arm nt_ab_first(unsigned pair, unsigned draw)
{
    return (nt_rng_abba(pair) ^ (draw & 1U)) != 0 ? NT_AB_WITH : NT_AB_WITHOUT;
}

bool nt_ab_counts(const struct nt_ab_pair *p)
{
    return p->run[NT_AB_WITHOUT].why[0] == '\0' && p->run[NT_AB_WITH].why[0] == '\0';
}

static size_t counted(const struct nt_ab *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) {
        n += nt_ab_counts(&a->v[i]);
    }
    return n;
}

bool nt_ab_hopeless(const struct nt_ab *a)
{
    size_t n = counted(a);
    return a->n - n > n;
}

/* ---- judging ---- */

/* Logarithm of with over without, the other way round where less is better: above 0 is better. */
static double log_gain(const struct nt_ab *a, const struct nt_ab_pair *p)
{
    double x = log(p->run[NT_AB_WITH].value) - log(p->run[NT_AB_WITHOUT].value);
    return a->higher ? x : -x;
}

static double share(const struct nt_ab *a, double x)
{
    return a->higher ? expm1(x) : -expm1(-x);
}

/* The loss that would be no matter, as log_gain() has it. */
static double log_of_loss(const struct nt_ab *a)
{
    return a->higher ? log1p(-a->slower) : -log1p(a->slower);
}

/* How many pairs more would show the difference that was seen; where those are too many, half of
 * what can be told now. */
static void ask_for_more(const struct nt_ab *a, const struct nt_est *e, struct nt_ab_answer *ret)
{
    double alpha = (1 - LEVEL) / 2, seen = fabs(e->mean);
    size_t most = e->n + MOST_MORE, n = nt_pairs_needed(seen, e->sd, alpha, POWER, most);

    if (n == 0) {
        seen = nt_detectable(e->sd, e->n, alpha, POWER) / 2;
        n = nt_pairs_needed(seen, e->sd, alpha, POWER, most);
    }
    if (n > 0) {
        ret->more = n > e->n ? n - e->n : 1;
        ret->then = fabs(share(a, copysign(seen, e->mean)));
    }
}

/* What half a last digit is in both figures of a pair, as log_gain() has it: a figure that always
 * comes out alike may lie anywhere within it. */
static double log_of_digits(const struct nt_ab_pair *p)
{
    double sum = 0;

    for (int arm = 0; arm < NT_AB_ARMS; arm++) {
        sum -= log1p(-p->run[arm].step / 2 / p->run[arm].value);
    }
    return sum;
}

void nt_ab_judge(const struct nt_ab *a, struct nt_ab_answer *ret)
{
    double x[NT_AB_PAIRS], sum[NT_AB_ARMS] = {0, 0}, digits = 0;
    struct nt_est e;
    size_t n = 0;
    bool coarse;

    for (size_t i = 0; i < a->n; i++) {
        if (nt_ab_counts(&a->v[i])) {
            x[n++] = log_gain(a, &a->v[i]);
            digits = fmax(digits, log_of_digits(&a->v[i]));
            for (int arm = 0; arm < NT_AB_ARMS; arm++) {
                sum[arm] += log(a->v[i].run[arm].value);
            }
        }
    }
    *ret = (struct nt_ab_answer){.verdict = NT_AB_CANNOT_TELL,
                                 .counted = n,
                                 .lost = a->n - n,
                                 .gain = NAN,
                                 .lo = NAN,
                                 .hi = NAN,
                                 .told = NAN,
                                 .then = NAN,
                                 .mean = {NAN, NAN}};
    for (int arm = 0; n > 0 && arm < NT_AB_ARMS; arm++) {
        ret->mean[arm] = exp(sum[arm] / (double)n);
    }
    if (n < NT_AB_LEAST_PAIRS) {
        return;
    }
    e = nt_estimate(x, n, LEVEL);
    /* Scatter beyond the last digit averages the rounding out; without it all runs are rounded the
     * same way, and no number of pairs would show that. */
    coarse = e.mean - e.lo < digits;
    e.lo = fmin(e.lo, e.mean - digits);
    e.hi = fmax(e.hi, e.mean + digits);
    ret->gain = share(a, e.mean);
    ret->lo = share(a, e.lo);
    ret->hi = share(a, e.hi);
    ret->told = share(a, fmax(digits, nt_detectable(e.sd, n, (1 - LEVEL) / 2, POWER)));
    if (e.lo > 0) {
        ret->verdict = NT_AB_FASTER;
    } else if (a->slower > 0 && e.lo > log_of_loss(a)) {
        ret->verdict = NT_AB_NO_SLOWER;
    } else if (e.hi < 0) {
        ret->verdict = NT_AB_SLOWER;
    } else if (coarse) {
        ret->coarse = true;
    } else if (e.sd > 0) {
        ask_for_more(a, &e, ret);
    }
}

/* ---- what else moved ---- */

/* The profile is what differs on purpose, and variables are its own: the rest of the environment is
 * the same by construction. */
static bool is_news(const struct nt_difference *d)
{
    return d->weight <= NT_W_POSSIBLE && strcmp(d->what, "profile") != 0 &&
           strcmp(d->what, "variable") != 0;
}

static void add_moved(struct nt_ab *a, const struct nt_difference *d)
{
    size_t i = 0;
    char text[320];

    (void)snprintf(text, sizeof(text), "%.319s", d->text);
    nt_text_plain(text);
    while (i < a->nmoved && strcmp(a->moved[i].text, text) != 0) {
        i++;
    }
    if (i == NT_AB_MOVED) {
        return;
    }
    if (i == a->nmoved) {
        (void)snprintf(a->moved[i].what, sizeof(a->moved[i].what), "%s", d->what);
        (void)snprintf(a->moved[i].text, sizeof(a->moved[i].text), "%s", text);
        a->nmoved++;
    }
    a->moved[i].pairs++;
}

static void take_common(struct nt_ab *a, const json_t *with)
{
    size_t i, at = 0;
    json_t *v;

    json_array_foreach(json_object_get(with, "applied"), i, v)
    {
        const char *name = nt_json_opt_str(v, "name", ""), *how = nt_json_opt_str(v, "how", "set");
        int n;
        if (strcmp(how, "set") == 0 || strncmp(name, "NCCLTUNE_", 9) == 0) {
            continue;
        }
        n = snprintf(a->common + at, sizeof(a->common) - at, "%s%.64s=%.64s", at > 0 ? ", " : "",
                     name, nt_json_opt_str(v, "before", ""));
        at += n > 0 && (size_t)n < sizeof(a->common) - at ? (size_t)n : 0;
        a->common[at] = '\0';
    }
    nt_text_plain(a->common);
}

int nt_ab_compare(struct nt_ab *a, const json_t *without, const json_t *with, struct nt_err *err)
{
    struct nt_rundiff *d = calloc(1, sizeof(*d));

    if (d == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "comparison of two runs");
    }
    nt_rundiff(without, with, d);
    for (size_t i = 0; i < d->n; i++) {
        if (is_news(&d->v[i])) {
            add_moved(a, &d->v[i]);
        }
    }
    free(d);
    take_common(a, with);
    return 0;
}

/* ---- words ---- */

static double percent(double x)
{
    return 100 * x;
}

static const char *s_of(size_t n)
{
    return n == 1 ? "" : "s";
}

void nt_ab_sentence(const struct nt_ab *a, const struct nt_ab_answer *x, struct nt_buf *out)
{
    double gain = percent(x->gain), lo = percent(x->lo), hi = percent(x->hi);

    switch (x->verdict) {
    case NT_AB_FASTER:
        nt_buf_printf(out, "faster by %.1f %% [%.1f, %.1f]", gain, lo, hi);
        return;
    case NT_AB_SLOWER:
        nt_buf_printf(out, "slower by %.1f %% [%.1f, %.1f]", -gain, -hi, -lo);
        return;
    case NT_AB_NO_SLOWER:
        nt_buf_printf(out, "no slower than %.1f %%: %+.1f %% [%.1f, %.1f]", percent(a->slower),
                      gain, lo, hi);
        return;
    case NT_AB_CANNOT_TELL:
        break;
    }
    if (isnan(x->gain)) {
        nt_buf_printf(out, "cannot tell: %zu pair%s of %zu count%s, at least %d are wanted",
                      x->counted, s_of(x->counted), a->n, x->counted == 1 ? "s" : "",
                      NT_AB_LEAST_PAIRS);
        return;
    }
    nt_buf_printf(out, "cannot tell: %+.1f %% [%.1f, %.1f]", gain, lo, hi);
    if (x->more > 0) {
        nt_buf_printf(out, "; %zu more pair%s would tell %.2g %%", x->more, s_of(x->more),
                      percent(x->then));
    } else if (x->coarse) {
        nt_buf_printf(out, "; %sfigures with more digits would tell more",
                      gain == 0 ? "all figures are the same, and " : "");
    } else if (lo == 0 && hi == 0) {
        nt_buf_puts(out, "; all figures are the same");
    }
}

static void pair_text(const struct nt_ab *a, size_t i, struct nt_buf *out)
{
    const struct nt_ab_pair *p = &a->v[i];
    char value[NT_AB_ARMS][32];

    for (int arm = 0; arm < NT_AB_ARMS; arm++) {
        if (p->run[arm].value > 0) {
            (void)snprintf(value[arm], sizeof(value[arm]), "%.6g", p->run[arm].value);
        } else {
            (void)snprintf(value[arm], sizeof(value[arm]), "-");
        }
    }
    nt_buf_printf(out, "  %4zu  %-7s  %12s  %12s", i + 1, nt_ab_arm_names[p->first], value[0],
                  value[1]);
    if (nt_ab_counts(p)) {
        nt_buf_printf(out, "  %+6.1f %%\n", percent(share(a, log_gain(a, p))));
        return;
    }
    nt_buf_puts(out, "  does not count\n");
    for (int arm = 0; arm < NT_AB_ARMS; arm++) {
        if (p->run[arm].why[0] != '\0') {
            nt_buf_printf(out, "        %s the profile: ", nt_ab_arm_names[arm]);
            nt_buf_put_plain(out, p->run[arm].why);
            nt_buf_puts(out, "\n");
        }
    }
}

/* The words that say most of where the profile was: those of a run unlike the others, if any. */
static const char *applied_text(const struct nt_ab *a, bool *ret_all_same)
{
    const char *first = "";

    *ret_all_same = true;
    for (size_t i = 0; i < a->n; i++) {
        const char *here = a->v[i].run[NT_AB_WITH].applied;
        if (here[0] == '\0' || !nt_ab_counts(&a->v[i])) {
            continue;
        }
        if (first[0] != '\0' && strcmp(first, here) != 0) {
            *ret_all_same = false;
            return here;
        }
        first = here;
    }
    return first;
}

void nt_ab_text(const struct nt_ab *a, const struct nt_ab_answer *x, struct nt_buf *out)
{
    const char *unit = a->n > 0 ? a->v[0].run[a->v[0].first].unit : "";
    bool same;
    const char *applied = applied_text(a, &same);

    unit = strcmp(unit, a->name) == 0 ? "" : unit;
    nt_buf_printf(out, "%s%s%s%s, %s is better; %zu pair%s of runs\n", a->name,
                  unit[0] != '\0' ? " (" : "", unit, unit[0] != '\0' ? ")" : "",
                  a->higher ? "more" : "less", a->n, s_of(a->n));
    nt_buf_puts(out, "  pair  first         without          with      gain\n");
    for (size_t i = 0; i < a->n; i++) {
        pair_text(a, i, out);
    }
    if (x->counted > 0) {
        nt_buf_printf(out, "  mean           %12.6g  %12.6g\n", x->mean[NT_AB_WITHOUT],
                      x->mean[NT_AB_WITH]);
    }
    if (applied[0] != '\0') {
        nt_buf_printf(out, "profile %.12s: %s%s\n", a->profile, applied,
                      same ? ", in every run that counts" : " in one run, not so in others");
    }
    if (a->common[0] != '\0') {
        nt_buf_printf(out, "set by you, so the same in both: %s\n", a->common);
    }
    for (size_t i = 0; i < a->nmoved; i++) {
        nt_buf_printf(out, "also not the same with as without, in %u of %zu pairs: %s\n",
                      a->moved[i].pairs, a->n, a->moved[i].text);
    }
    nt_ab_sentence(a, x, out);
    if (isfinite(x->told) && x->told > 0) {
        nt_buf_printf(out, " (95 %%; %zu pairs like these tell %.2g %%)", x->counted,
                      percent(x->told));
    }
    nt_buf_printf(out, "\nruns are kept: nccltune diff RUN RUN; this comparison is %s\n", a->id);
}

/* ---- for programs ---- */

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *run_json(const struct nt_ab_run *r)
{
    return json_pack("{s:s, s:o, s:s, s:o, s:o, s:s, s:b, s:o}", "run", r->id, "value",
                     number(r->value > 0 ? r->value : NAN), "unit", r->unit, "seconds",
                     number(r->seconds), "log", nt_json_text(r->log), "applied", r->applied,
                     "counts", r->why[0] == '\0', "why", nt_json_text(r->why));
}

json_t *nt_ab_json(const struct nt_ab *a, const struct nt_ab_answer *x)
{
    json_t *pairs = json_array(), *moved = json_array(), *more = json_null();
    struct nt_buf sentence;
    json_t *o;

    nt_buf_init(&sentence, 1024);
    nt_ab_sentence(a, x, &sentence);
    for (size_t i = 0; i < a->n; i++) {
        const struct nt_ab_pair *p = &a->v[i];
        (void)json_array_append_new(
            pairs,
            json_pack("{s:s, s:b, s:o, s:o, s:o}", "first", nt_ab_arm_names[p->first], "counts",
                      nt_ab_counts(p), "gain",
                      number(nt_ab_counts(p) ? share(a, log_gain(a, p)) : NAN), "without",
                      run_json(&p->run[NT_AB_WITHOUT]), "with", run_json(&p->run[NT_AB_WITH])));
    }
    for (size_t i = 0; i < a->nmoved; i++) {
        (void)json_array_append_new(moved, json_pack("{s:s, s:o, s:i}", "what", a->moved[i].what,
                                                     "text", nt_json_text(a->moved[i].text),
                                                     "pairs", (int)a->moved[i].pairs));
    }
    if (x->more > 0) {
        json_decref(more);
        more = json_pack("{s:i, s:f}", "pairs", (int)x->more, "tell", x->then);
    }
    o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
                  "s:o, s:o, s:o}",
                  "verdict", nt_ab_verdict_names[x->verdict], "answer", nt_buf_str(&sentence), "id",
                  a->id, "figure", a->name, "profile", a->profile, "higher_is_better", a->higher,
                  "pairs_counted", (int)x->counted, "pairs_lost", (int)x->lost, "gain",
                  number(x->gain), "lo", number(x->lo), "hi", number(x->hi), "tells",
                  number(x->told), "more", more, "without", number(x->mean[NT_AB_WITHOUT]), "with",
                  number(x->mean[NT_AB_WITH]), "pairs", pairs, "moved", moved, "set_in_both",
                  nt_json_text(a->common));
    nt_buf_done(&sentence);
    return o;
}
