/*
 * How good are the picks of the search, how much device time does it take beside the exhaustive
 * grid, and are the gains that a job claims there? By recordings, see truth.h.
 *
 * usage: bench_truth [--null] [--seeds N] [--from N] [--effort E] [--json FILE] [--verbose]
 * RECORDING…
 *
 * Recordings of the same rig, ranks, GPU and NCCL judge each other. Ends with 1 when a figure of
 * one of them is out of its bounds.
 */
#include "tests/job/truth.h"
#include "tuner/base/cli.h"
#include "tuner/base/json.h"
#include "tuner/cli/recorded.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RECORDINGS = 64 };
static const double CASES_WITHOUT_GAP = 0.98, WORST_GAP = 0.015, SEARCH_SHARE = 0.45;

struct args {
    uint32_t seeds;
    uint64_t from;
    bool null, verbose, parts;
    const char *effort, *json;
};
static const struct args defaults = {.seeds = 20, .from = 1, .effort = "standard"};
static const struct nt_opt opts[] = {
    NT_OPT(NT_O_U32, args, seeds, "seeds", 's', "N", "jobs of each recording (20)"),
    NT_OPT(NT_O_U64, args, from, "from", 0, "SEED", "first seed (1)"),
    NT_OPT(NT_O_FLAG, args, null, "null", 0, NULL, "every cell draws from the default's samples"),
    NT_OPT(NT_O_FLAG, args, parts, "parts", 0, NULL, "by collective and mode, too"),
    NT_OPT(NT_O_FLAG, args, verbose, "verbose", 'v', NULL, "each gap, as it is found"),
    NT_OPT(NT_O_STR, args, json, "json", 0, "FILE", "the figures once more, as JSON"),
    {.name = "effort",
     .type = NT_O_STR,
     .offset = offsetof(struct args, effort),
     .arg = "EFFORT",
     .help = "of the jobs (standard)",
     .choices = nt_effort_names},
    {0}};
static const struct nt_command command = {.name = "bench_truth",
                                          .summary = "judges jobs by recordings",
                                          .args = "RECORDING…",
                                          .min_args = 1,
                                          .max_args = MAX_RECORDINGS,
                                          .opts = opts,
                                          .defaults = &defaults,
                                          .size = sizeof(struct args)};

static bool same_types(const struct nt_recording *a, const struct nt_recording *b)
{
    for (int d = 0; d < NT_DTYPE_COUNT; d++) {
        if (nt_recorded_dtype(a, (enum nt_dtype)d) != nt_recorded_dtype(b, (enum nt_dtype)d)) {
            return false;
        }
    }
    return true;
}

static bool same_machine(const struct nt_recording *a, const struct nt_recording *b)
{
    struct nt_buf of_a, of_b;
    bool same;

    nt_buf_init(&of_a, 1 << 14);
    nt_buf_init(&of_b, 1 << 14);
    nt_recording_setup(a, &of_a);
    nt_recording_setup(b, &of_b);
    same = strcmp(nt_buf_str(&of_a), nt_buf_str(&of_b)) == 0;
    nt_buf_done(&of_a);
    nt_buf_done(&of_b);
    return same;
}

/* The recording of the same machine and types that has the most gangs to judge by; NULL: there is
 * none. */
static const struct nt_recording *other_lease(struct nt_recording *const rec[], unsigned n,
                                              unsigned of)
{
    const struct nt_recording *best = NULL;

    for (unsigned k = 0; k < n; k++) {
        bool other = k != of && same_machine(rec[of], rec[k]) && same_types(rec[of], rec[k]);
        if (other && (best == NULL || nt_recording_gangs(rec[k]) > nt_recording_gangs(best))) {
            best = rec[k];
        }
    }
    return best;
}

static json_t *gaps_json(const struct truth_gaps *g)
{
    double n = g->cases > 0 ? g->cases : 1;
    return json_pack("{s:i,s:i,s:i,s:i,s:f,s:f,s:f,s:f,s:f}", "cannot_tell", (int)g->thin, "cases",
                     (int)g->cases, "unknown", (int)g->unknown, "gaps", (int)g->gaps,
                     "worst_beyond_interval", g->worst, "worst_difference", g->worst_difference,
                     "worst_seen", g->worst_seen, "mean_difference", g->sum_difference / n,
                     "mean_half_width", g->sum_width / n);
}

static json_t *claims_json(const struct truth_claims *c)
{
    return json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "claims", (int)c->claims, "told_claims",
                     (int)c->told_claims, "false_claims", (int)c->false_claims, "pair_claims",
                     (int)c->pair_claims, "thin_claims", (int)c->thin_claims, "published",
                     (int)c->published, "told_published", (int)c->told_published, "slower",
                     (int)c->slower);
}

static void print_gaps(const char *what, const struct truth_gaps *g)
{
    double n = g->cases > 0 ? g->cases : 1;
    (void)printf("  %-34s %5u cases, %6.2f %% without a gap, worst %.2f %% (of %.2f %%), seen %.2f "
                 "%%, mean %.3f %% +- %.2f %%, %u not judged\n",
                 what, g->cases, 100 - 100.0 * g->gaps / n, 100 * expm1(g->worst),
                 100 * expm1(g->worst_difference), 100 * expm1(g->worst_seen),
                 100 * g->sum_difference / n, 100 * g->sum_width / n, g->unknown);
}

/* A job claims what is not, or ends as too noisy on a machine that is not, with a chance of alpha:
 * may it be that so many of n did? Not, where as many and more come in fewer than one series of
 * 100. */
static bool by_chance(unsigned k, unsigned n)
{
    static const double rate = 0.005, surprise = 0.01;
    double of_i = pow(1 - rate, n), fewer = 0; /* chance of i; of fewer than k */

    for (unsigned i = 0; i < k; i++) {
        fewer += of_i;
        of_i *= (double)(n - i) / (i + 1) * rate / (1 - rate);
    }
    return 1 - fewer >= surprise;
}

static bool print_noisy(const struct truth_sum *s, json_t *out)
{
    bool good = by_chance(s->noisy, s->jobs);

    (void)printf("  %-34s %u of %u jobs%s\n", "no profile: too noisy", s->noisy, s->jobs,
                 good ? "" : ", OUT OF BOUNDS");
    (void)json_object_set_new(out, "too_noisy", json_integer(s->noisy));
    return good;
}

static bool print_null(const struct truth_sum *s, json_t *out)
{
    bool good = by_chance(s->jobs - s->empty, s->jobs);

    (void)printf("  %-34s %u of %u jobs%s\n", "empty profiles", s->empty, s->jobs,
                 good ? "" : ", OUT OF BOUNDS");
    (void)json_object_set_new(out, "empty", json_integer(s->empty));
    return good;
}

/* A recording of two or three gangs leaves one or two to judge: they tell nothing of any case, nor
 * of a claim. It is said, and is no failure of the search. */
static bool tells_nothing(const struct truth_gaps *g)
{
    return g->cases == 0 && g->unknown > 0;
}

static bool within(const struct truth_gaps *g)
{
    return tells_nothing(g) ||
           (g->cases > 0 && g->gaps <= (1 - CASES_WITHOUT_GAP) * (double)g->cases &&
            expm1(g->worst) <= WORST_GAP);
}

static bool print_sum(const struct truth_sum *s, const struct truth_config *c,
                      const struct truth_gaps *disagreement, uint64_t grid_ns, unsigned tuples,
                      json_t *out)
{
    double share = (double)s->search_ns / s->jobs / (double)grid_ns;
    bool own = within(&s->own), chosen = within(&s->chosen);
    bool good = own && chosen && share <= SEARCH_SHARE && s->said.false_claims == 0;

    print_gaps("picks by the odd gangs", &s->own);
    print_gaps("the even gangs' best, by the odd", &s->oracle);
    print_gaps("picks beside the even gangs' best", &s->chosen);
    (void)printf(
        "  %-34s %5u cases, both tuples in fewer than %d judging gangs; %u seem a gap, worst "
        "%.2f %%\n",
        "... cannot tell", s->chosen.thin, (int)TRUTH_JUDGES, s->chosen.thin_gaps,
        100 * expm1(s->chosen.thin_worst));
    if (tells_nothing(&s->own)) {
        (void)printf("  %-34s too few gangs: no pick is judged\n", "NOT JUDGED");
    }
    if (!own || !chosen) {
        (void)printf("  %-34s%s%s\n", "OUT OF BOUNDS by", own ? "" : " the odd gangs",
                     chosen ? "" : " the even gangs' best");
    }
    if (c->other != NULL) {
        print_gaps("the same picks by the other lease", &s->other);
        print_gaps("the leases' own disagreement", disagreement);
        (void)json_object_set_new(out, "other", gaps_json(&s->other));
        (void)json_object_set_new(out, "disagreement", gaps_json(disagreement));
    }
    (void)printf("  %-34s %.1f s = %.1f %% of the grid's %.1f s (%u tuples); confirm %.1f s\n",
                 "search, device time a job", (double)s->search_ns / s->jobs / 1e9, 100 * share,
                 (double)grid_ns / 1e9, tuples, (double)s->confirm_ns / s->jobs / 1e9);
    (void)printf(
        "  %-34s %.1f rows a job; %u gains claimed, %u of them judged, %u false (%u more by two "
        "gangs, which cannot tell: %u seem so); %u published classes, %u of them judged, %u "
        "slower; %u of %u "
        "profiles empty\n",
        "published", (double)s->rows / s->jobs, s->said.claims, s->said.told_claims,
        s->said.false_claims, s->said.pair_claims, s->said.thin_claims, s->said.published,
        s->said.told_published, s->said.slower, s->empty, s->jobs);
    (void)json_object_set_new(out, "own", gaps_json(&s->own));
    (void)json_object_set_new(out, "oracle", gaps_json(&s->oracle));
    (void)json_object_set_new(out, "chosen", gaps_json(&s->chosen));
    (void)json_object_update_new(out, claims_json(&s->said));
    (void)json_object_update_new(out, json_pack("{s:f,s:f,s:f,s:f,s:i,s:i}", "search_s",
                                                (double)s->search_ns / s->jobs / 1e9, "grid_s",
                                                (double)grid_ns / 1e9, "search_share", share,
                                                "confirm_s", (double)s->confirm_ns / s->jobs / 1e9,
                                                "tuples", (int)tuples, "empty", (int)s->empty));
    return good;
}

/* By collective and mode: picks by either judge, claims. */
static void print_parts(const struct truth_sum *s, bool print, json_t *out)
{
    json_t *parts = json_array(), *one;

    for (int coll = 0; coll < NT_COLL_COUNT; coll++) {
        for (int m = 0; m < NT_MODE_COUNT; m++) {
            const struct truth_part *p = &s->part[coll][m];
            double own = p->own.cases > 0 ? p->own.cases : 1,
                   chosen = p->chosen.cases > 0 ? p->chosen.cases : 1;
            if (p->own.cases + p->own.unknown == 0) {
                continue;
            }
            one = json_pack("{s:s,s:s,s:o,s:o,s:o}", "collective", nt_coll_names[coll], "mode",
                            nt_mode_names[m], "own", gaps_json(&p->own), "chosen",
                            gaps_json(&p->chosen), "other", gaps_json(&p->other));
            (void)json_object_update_new(one, claims_json(&p->said));
            (void)json_array_append_new(parts, one);
            if (print) {
                (void)printf("  %-14s %-6s odd gangs: %4u cases, %6.2f %%, worst %.2f %%; even "
                             "gangs' best: %4u, %6.2f %%, %.2f %%; %u of %u claims judged, %u "
                             "false; %u of %u classes judged, %u slower\n",
                             nt_coll_names[coll], nt_mode_names[m], p->own.cases,
                             100 - 100.0 * p->own.gaps / own, 100 * expm1(p->own.worst),
                             p->chosen.cases, 100 - 100.0 * p->chosen.gaps / chosen,
                             100 * expm1(p->chosen.worst), p->said.told_claims, p->said.claims,
                             p->said.false_claims, p->said.told_published, p->said.published,
                             p->said.slower);
            }
        }
    }
    (void)json_object_set_new(out, "parts", parts);
}

/* 1: good, 0: out of bounds, < 0: an error. */
static int judge(const struct args *a, const char *name, const struct nt_recording *rec,
                 const struct nt_recording *other, json_t *out, struct nt_err *err)
{
    struct truth_config c = {.rec = rec, .other = other, .null = a->null, .verbose = a->verbose};
    struct truth_sum sum = {0};
    struct truth_gaps disagreement = {0};
    uint64_t grid_ns = 0;
    unsigned tuples = 0;
    bool quiet;
    int rc = 0, effort = nt_vocab_find(nt_effort_names, "effort", a->effort, err);

    c.effort = (enum nt_effort)effort;
    for (uint64_t seed = a->from; seed < a->from + a->seeds && rc == 0; seed++) {
        rc = truth_job(&c, seed, &sum, err);
    }
    rc = rc == 0 && !a->null ? truth_grid(&c, &grid_ns, &tuples, err) : rc;
    rc = rc == 0 && !a->null && other != NULL ? truth_disagreement(&c, &disagreement, err) : rc;
    if (rc != 0) {
        return nt_wrap(err, rc, "%s", name);
    }
    (void)printf("%s: %u jobs%s\n", name, sum.jobs, a->null ? ", nothing to gain" : "");
    (void)json_object_update_new(out, json_pack("{s:s,s:i,s:b,s:s}", "recording", name, "jobs",
                                                (int)sum.jobs, "null", (int)a->null, "effort",
                                                a->effort));
    quiet = print_noisy(&sum, out);
    if (!a->null) {
        print_parts(&sum, a->parts, out);
    }
    return (a->null ? print_null(&sum, out)
                    : print_sum(&sum, &c, &disagreement, grid_ns, tuples, out)) &&
           quiet;
}

static int run(const struct args *a, unsigned n, char **names, struct nt_err *err)
{
    struct nt_recording *rec[MAX_RECORDINGS] = {NULL};
    json_t *all = json_array();
    bool good = true;
    int rc = 0;

    for (unsigned i = 0; i < n && rc == 0; i++) {
        rc = nt_recording_load(names[i], &rec[i], err);
    }
    for (unsigned i = 0; i < n && rc == 0; i++) {
        const char *slash = strrchr(names[i], '/'), *name = slash != NULL ? slash + 1 : names[i];
        const struct nt_recording *other = other_lease(rec, n, i);
        json_t *out = json_object();
        rc = judge(a, name, rec[i], other, out, err);
        good = good && rc == 1;
        rc = rc > 0 ? 0 : rc;
        (void)json_array_append_new(all, out);
        (void)fflush(stdout);
    }
    if (rc == 0 && a->json != NULL && json_dump_file(all, a->json, JSON_INDENT(1)) != 0) {
        rc = nt_fail(err, NT_E_IO, 0, "cannot write %s", a->json);
    }
    json_decref(all);
    for (unsigned i = 0; i < n; i++) {
        nt_recording_free(rec[i]);
    }
    return rc != 0 ? rc : good ? 0 : nt_fail(err, NT_E_NO, 0, "a figure is out of its bounds");
}

int main(int argc, char **argv)
{
    struct args a;
    unsigned nargs = 0;
    bool help = false;
    struct nt_err err = {0};
    int rc = nt_cli_parse(&command, argc - 1, argv + 1, &a, &nargs, &help, &err);

    if (rc == 0 && help) {
        nt_cli_help(NULL, &command, stdout);
        return 0;
    }
    rc = rc == 0 ? run(&a, nargs, argv + 1, &err) : rc;
    if (rc != 0) {
        (void)fprintf(stderr, "bench_truth: %s\n", err.msg);
    }
    return nt_exit_code(rc);
}
