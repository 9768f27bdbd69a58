/*
 * bench_jobs - how near to the best, for how many device seconds: the job's search and its rivals
 * over landscapes. Prints CSV; scripts/bench_search makes tables and plots of it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/rivals.h"
#include "tests/model/machines.h"
#include "tuner/base/cli.h"

struct args {
    uint32_t seeds, tpe_seeds, ranks, nodes;
    const char *python, *script, *twist, *decisions;
    uint64_t jobs, from;
    bool alone, recorded_noise, settings, verbose;
};

static const char *const twists[] = {"none",  "peaks", "cliff", "wrong", "noisy",
                                     "drift", "late",  "null",  NULL};
#define A args
static const struct nt_opt opts[] = {
    NT_OPT(NT_O_U32, A, seeds, "seeds", 's', "N", "worlds a landscape (20)"),
    NT_OPT(NT_O_U32, A, tpe_seeds, "tpe-seeds", 0, "N", "of them, those that Optuna searches (3)"),
    NT_OPT(NT_O_U32, A, ranks, "ranks", 'n', "N", "of a simulated machine (one a GPU)"),
    NT_OPT(NT_O_U32, A, nodes, "nodes", 0, "N", "copies of a simulated machine (1)"),
    NT_OPT(NT_O_STR, A, python, "python", 0, "FILE", "interpreter with optuna (none: no TPE)"),
    NT_OPT(NT_O_STR, A, script, "script", 0, "FILE", "optuna_tpe.py"),
    NT_OPT(NT_O_U64, A, jobs, "jobs", 0, "N", "instead: whole jobs with their confirm"),
    NT_OPT(NT_O_U64, A, from, "from", 0, "SEED", "first seed (1)"),
    NT_OPT(NT_O_FLAG, A, alone, "alone", 0, NULL, "ours without its rivals"),
    NT_OPT(NT_O_FLAG, A, recorded_noise, "recorded-noise", 0, NULL,
           "a simulated machine as noisy as eager calls on recorded ones"),
    NT_OPT(NT_O_FLAG, A, settings, "settings", 0, NULL,
           "process settings are a dimension more: those recorded, or a few"),
    NT_OPT(NT_O_STR, A, decisions, "decisions", 0, "FILE",
           "all that ours asks for: equal files decide alike"),
    NT_OPT(NT_O_FLAG, A, verbose, "verbose", 'v', NULL, "each pick of ours that loses"),
    {.name = "twist",
     .type = NT_O_STR,
     .offset = offsetof(struct A, twist),
     .arg = "TWIST",
     .help = "what a search may stumble over (none)",
     .choices = twists},
    {0}};
#undef A
static const struct args defaults = {
    .seeds = 20, .tpe_seeds = 3, .nodes = 1, .twist = "none", .from = 1};
static const struct nt_command command = {.name = "bench_jobs",
                                          .summary = "the search and its rivals",
                                          .args = "FILE|switched|bridged",
                                          .min_args = 1,
                                          .max_args = 1,
                                          .opts = opts,
                                          .defaults = &defaults,
                                          .size = sizeof(struct args)};

static int load(const struct args *a, const char *file, struct land *l, struct nt_err *err)
{
    const char *slash = strrchr(file, '/'), *name = slash != NULL ? slash + 1 : file;
    struct nt_topology *t = NULL;
    struct nt_recording *rec = NULL;
    char full[96];
    int twist = nt_vocab_find(twists, "twist", a->twist, err), rc;

    if (strstr(name, ".csv") != NULL) {
        rc = nt_recording_load(file, &rec, err);
        return rc == 0 ? land_recording(l, rec, a->settings, name, err) : rc;
    }
    if (strcmp(name, "switched") == 0 || strcmp(name, "bridged") == 0) { /* our own */
        t = machine_topology(name[0] == 's' ? SWITCHED : BRIDGED);
        rc = t != NULL ? 0 : nt_fail(err, NT_E_BUG, 0, "a topology of our own");
    } else {
        rc = nt_topology_read_file(file, &t, err);
    }
    (void)snprintf(full, sizeof(full), "%.48s r%u n%u%s%s", name, a->ranks, a->nodes,
                   twist > 0 ? " " : "", twist > 0 ? a->twist : "");
    return rc == 0 ? land_model(l, t, a->ranks, a->nodes, (enum twist)twist, a->settings, full, err)
                   : rc;
}

static void print_outcome(const struct land *l, enum rival r, uint64_t seed,
                          const struct outcome *o)
{
    for (unsigned i = 0; i < o->n; i++) {
        const struct standing *s = &o->at[i];
        (void)printf("%s,%s,%llu,%u,%.4f,%.4f,%.6f,%.6f,%.4f,%.4f,%llu,%llu,%u\n", l->name,
                     rival_names[r], (unsigned long long)seed, i + 1 == o->n, s->seconds, l->grid_s,
                     s->mean, s->worst, s->exact, o->preflight_s, (unsigned long long)o->blocks,
                     (unsigned long long)o->decide_ns, l->ncases);
    }
    if (l->nsettings > 1) {
        const struct land_setting *s = &l->setting[o->setting];
        (void)printf("=%s,%llu,%s,%.6f\n", rival_names[r], (unsigned long long)seed, s->vars,
                     expm1(s->mean_log - l->setting[l->best].mean_log));
    }
}

static double tuples(const struct land *l)
{
    double n = 0;
    for (uint32_t k = 0; k < l->nsettings * l->ncases; k++) {
        n += l->setting[k / l->ncases].cases[k % l->ncases].n;
    }
    return n / (l->nsettings * l->ncases);
}

static int run_rivals(const struct args *a, struct land *l, struct nt_err *err)
{
    static struct outcome o;
    struct tpe *tpe = NULL;
    int rc = 0;

    if (a->python != NULL) {
        tpe = tpe_open(a->python, a->script, err);
        if (tpe == NULL) {
            (void)fprintf(stderr, "without Optuna: %s\n", err->msg);
        }
    }
    (void)printf("#%s: %u cases, %.1f tuples a case, grid %.1f s, %u settings, best '%s'\n",
                 l->name, l->ncases, tuples(l), l->grid_s, l->nsettings, l->setting[l->best].vars);
    for (uint64_t seed = a->from; seed < a->from + a->seeds && rc == 0; seed++) {
        rc = land_seed(l, seed, err);
        for (int r = 0; r < RIVALS && rc == 0; r++) {
            if ((a->alone && r != RIVAL_OURS) ||
                (r == RIVAL_TPE && (tpe == NULL || seed >= a->from + a->tpe_seeds))) {
                continue;
            }
            rc = rival_run((enum rival)r, l, tpe, seed, &o, err);
            if (rc == 0) {
                print_outcome(l, (enum rival)r, seed, &o);
            } else {
                rc = nt_wrap(err, rc, "%s, %s, seed %llu", l->name, rival_names[r],
                             (unsigned long long)seed);
            }
        }
    }
    tpe_close(tpe);
    return rc;
}

static int run_jobs(const struct args *a, struct land *l, struct nt_err *err)
{
    unsigned long long published = 0, untrue = 0;
    double worst = 0;
    int rc = 0;

    for (uint64_t seed = a->from; seed < a->from + a->jobs && rc == 0; seed++) {
        unsigned p = 0, f = 0;
        double w = 0;
        rc = land_seed(l, seed, err);
        rc = rc == 0 ? rival_job(l, &p, &f, &w, err) : rc;
        published += p;
        untrue += f;
        worst = w > worst ? w : worst;
    }
    if (rc == 0) {
        (void)printf("!%s,%llu,%llu,%llu,%.5f\n", l->name, (unsigned long long)a->jobs, published,
                     untrue, worst);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct args a;
    unsigned nargs = 0;
    bool help = false;
    struct nt_err err = {0};
    struct land l = {0};
    int rc = nt_cli_parse(&command, argc - 1, argv + 1, &a, &nargs, &help, &err);

    land_recorded_noise = rc == 0 && a.recorded_noise;
    ours_verbose = rc == 0 && a.verbose;
    if (rc == 0 && help) {
        nt_cli_help("bench_jobs", &command, stdout);
        return 0;
    }
    rc = rc == 0 ? load(&a, argv[1], &l, &err) : rc;
    if (rc == 0 && a.decisions != NULL && (ours_decisions = fopen(a.decisions, "w")) == NULL) {
        rc = nt_fail(&err, NT_E_IO, 0, "cannot write %s", a.decisions);
    }
    if (rc == 0) {
        rc = a.jobs > 0 ? run_jobs(&a, &l, &err) : run_rivals(&a, &l, &err);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "bench_jobs: %s\n", err.msg);
    }
    if (ours_decisions != NULL && fclose(ours_decisions) != 0 && rc == 0) {
        (void)fprintf(stderr, "bench_jobs: cannot write %s\n", a.decisions);
        rc = -NT_E_IO;
    }
    land_done(&l);
    return nt_exit_code(rc);
}
