/*
 * fit_model RECORDING… - the model beside what was recorded, as tables for docs/model.md: the
 * errors of its times (without deviation and noise) by mode and protocol, and what the recording's
 * own noise is: samples, outliers, gangs, one tuple in one gang, drift over gangs, failures.
 *
 * Errors are log(model / median over gangs). A recording without a topology has no errors.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/model/sim.h"
#include "probes/recording/recording.h"
#include "tuner/stats/stats.h"

enum { MAX_GANGS = 64, MAX_CELLS = 8192, SAMPLES = 1 << 16 };

/* A cell under NCCL's own process setting. */
struct spot {
    struct nt_case cs;
    struct nt_executed executed;
    double level[MAX_GANGS]; /* log median of each gang; NAN: not seen */
    double mean;
    bool is_default;
};
struct noise {      /* of one mode */
    double *sample; /* log, less the block's median */
    size_t samples, blocks, failed;
};
struct fit {
    const struct nt_recording *rec;
    struct spot *spot;
    size_t n, gangs;
    uint64_t gang[MAX_GANGS];
    struct noise noise[NT_MODE_COUNT];
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t gang_of(struct fit *f, uint64_t number)
{
    size_t i = 0;
    while (i < f->gangs && f->gang[i] != number) {
        i++;
    }
    if (i == f->gangs && f->gangs < MAX_GANGS) {
        f->gang[f->gangs++] = number;
    }
    return i < MAX_GANGS ? i : MAX_GANGS - 1;
}

/* Samples beside their block's median, and the block's log median. */
static double take_block(struct noise *n, const struct nt_block *b)
{
    double x[NT_MAX_SAMPLES], copy[NT_MAX_SAMPLES], mid;
    size_t count = b->count;

    for (size_t i = 0; i < count; i++) {
        x[i] = log((double)b->ns[i]);
    }
    memcpy(copy, x, count * sizeof(x[0]));
    mid = nt_median(copy, count);
    for (size_t i = 0; i < count && count >= 5 && n->samples < SAMPLES; i++) {
        n->sample[n->samples++] = x[i] - mid;
    }
    return mid;
}

static bool counts(const struct nt_block *b)
{
    return (b->flags & (NT_M_BUSY | NT_M_GROUP8)) == 0 && b->process[0] == '\0' &&
           b->cs.place == NT_OUT_OF_PLACE;
}

static void take_cell(struct fit *f, struct nt_cell c)
{
    const struct nt_block *first = nt_recording_block(f->rec, c.block[0]);
    struct spot *s = &f->spot[f->n];
    size_t seen = 0;

    *s = (struct spot){.cs = first->cs, .executed = NT_EXECUTED_NONE};
    for (size_t i = 0; i < MAX_GANGS; i++) {
        s->level[i] = NAN;
    }
    for (size_t i = 0; i < c.count; i++) {
        const struct nt_block *b = nt_recording_block(f->rec, c.block[i]);
        struct noise *n = &f->noise[b->cs.mode];
        n->blocks++;
        n->failed += (size_t)(b->status == NT_ST_TIMEOUT || b->status == NT_ST_CRASHED ||
                              b->status == NT_ST_WRONG || b->status == NT_ST_ERROR);
        s->is_default = s->is_default || b->call.algo < 0;
        s->executed = b->executed.channels > 0 ? b->executed : s->executed;
        if (b->status == NT_ST_OK && b->count >= 2) { /* single samples are looks */
            s->level[gang_of(f, b->gang)] = take_block(n, b);
        }
    }
    for (size_t i = 0; i < MAX_GANGS; i++) {
        s->mean += isnan(s->level[i]) ? 0 : s->level[i];
        seen += isnan(s->level[i]) ? 0 : 1;
    }
    s->mean /= seen > 0 ? (double)seen : NAN;
    f->n += seen >= 2 && f->n + 1 < MAX_CELLS;
}

/* ---- errors of the model ---- */

struct errors {
    double x[MAX_CELLS], sum, squares, worst;
    size_t n;
};

static void add_error(struct errors *e, double x)
{
    e->x[e->n++] = fabs(x);
    e->sum += x;
    e->squares += x * x;
    e->worst = fabs(x) > fabs(e->worst) ? x : e->worst;
}

static size_t split(char *text, struct nt_var *v, size_t max)
{
    size_t n = 0;
    char *save = NULL;
    for (char *w = strtok_r(text, " ", &save); w != NULL && n < max;
         w = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(w, '=');
        if (eq != NULL) {
            *eq = '\0';
            v[n++] = (struct nt_var){w, eq + 1};
        }
    }
    return n;
}

static void print_errors(const struct nt_sim_gang *g, const struct fit *f)
{
    static struct errors e; /* large */

    for (int m = 0; m < NT_MODE_COUNT; m++) {
        for (int p = 0; p < NT_PROTO_COUNT; p++) {
            e = (struct errors){.n = 0};
            for (size_t i = 0; i < f->n; i++) {
                const struct spot *s = &f->spot[i];
                double ns;
                if (s->cs.mode != m || s->executed.algo < 0 || s->executed.proto != p) {
                    continue;
                }
                ns = nt_sim_true_ns(g, &s->cs, 0, &s->executed);
                if (isfinite(ns) && ns > 0) {
                    add_error(&e, log(ns) - s->mean);
                }
            }
            if (e.n > 0) {
                qsort(e.x, e.n, sizeof(e.x[0]), by_value);
                (void)printf("| %s | %s | %zu | %+.1f %% | %.1f %% | %.1f %% | %+.0f %% |\n",
                             nt_mode_names[m], nt_proto_names[p], e.n, 100 * e.sum / (double)e.n,
                             100 * sqrt(e.squares / (double)e.n), 100 * e.x[e.n / 2],
                             100 * e.worst);
            }
        }
    }
}

static int errors_of(const struct fit *f, struct nt_err *err)
{
    const char *xml = nt_recording_fact(f->rec, NT_FACT_TOPOLOGY);
    unsigned ranks = (unsigned)strtoul(nt_recording_fact(f->rec, NT_FACT_RANKS), NULL, 10);
    bool apart = strcmp(nt_recording_fact(f->rec, NT_FACT_RIG), "mps-sockets") == 0;
    char fixed[1024];
    struct nt_var vars[16];
    struct nt_topology *t = NULL;
    struct nt_sim *sim = NULL;
    struct nt_sim_gang g;
    int rc;

    if (xml[0] == '\0') {
        (void)printf("No topology recorded: no errors.\n");
        return 0;
    }
    (void)snprintf(fixed, sizeof(fixed), "%s", nt_recording_fact(f->rec, NT_FACT_FIXED));
    rc = nt_topology_read_xml(xml, strlen(xml), &t, err);
    rc = rc == 0 ? nt_sim_new(t, ranks, apart ? ranks : 1, &nt_sim_quiet, 1, 1, &sim, NULL, err)
                 : rc;
    rc = rc == 0 ? nt_sim_gang_init(&g, sim, 1, vars, split(fixed, vars, 16), err) : rc;
    if (rc == 0) {
        (void)printf("| mode | protocol | cells | bias | rms | median | worst |\n"
                     "|---|---|---|---|---|---|---|\n");
        print_errors(&g, f);
    }
    nt_sim_free(sim);
    nt_topology_free(t);
    return rc;
}

/* ---- noise ---- */

/* Samples: the robust sd; outliers are those beyond five of it, above. */
static void print_samples(struct noise *n)
{
    double sd, far = 0, excess = 0;

    qsort(n->sample, n->samples, sizeof(n->sample[0]), by_value);
    sd = n->samples > 0 ? (n->sample[n->samples * 84 / 100] - n->sample[n->samples * 16 / 100]) / 2
                        : NAN;
    for (size_t i = 0; i < n->samples; i++) {
        if (n->sample[i] > 5 * sd) {
            far++;
            excess += n->sample[i];
        }
    }
    (void)printf(" %.1f %% | %.2f %% | %.0f %% |", 100 * sd, 100 * far / (double)n->samples,
                 far > 0 ? 100 * excess / far : 0);
}

/* What a gang does to all tuples of a case, and to one of them beyond that (block noise included);
 * drift: from the first gang to the last, by the default. Medians over the cases. */
static void print_gangs(const struct fit *f, int mode)
{
    static double gang_sd[MAX_CELLS], one_sd[MAX_CELLS], drift[MAX_CELLS];
    size_t cases = 0;

    for (size_t d = 0; d < f->n; d++) {
        double gang[MAX_GANGS] = {0}, count[MAX_GANGS] = {0}, squares = 0, df = 0, sum = 0, all = 0;
        double st = 0, sx = 0, mean_t = 0, vg = 0;
        if (!f->spot[d].is_default || f->spot[d].cs.mode != mode) {
            continue;
        }
        for (int pass = 0; pass < 2; pass++) { /* gangs' means first, then what is left */
            for (size_t i = 0; i < f->n; i++) {
                const struct spot *s = &f->spot[i];
                if (!nt_case_equal(&s->cs, &f->spot[d].cs) || s->mean > f->spot[d].mean + 0.25) {
                    continue;
                }
                df -= pass == 1;
                for (size_t g = 0; g < f->gangs; g++) {
                    double x = s->level[g] - s->mean;
                    if (isnan(x)) {
                        continue;
                    }
                    gang[g] += pass == 0 ? x : 0;
                    count[g] += pass == 0;
                    squares += pass == 1 ? (x - gang[g]) * (x - gang[g]) : 0;
                    df += pass == 1;
                }
            }
            for (size_t g = 0; g < f->gangs && pass == 0; g++) {
                gang[g] /= count[g] > 0 ? count[g] : 1;
            }
        }
        for (size_t g = 0; g < f->gangs; g++) {
            if (count[g] > 0) {
                sum += gang[g];
                all += 1;
                mean_t += (double)g;
            }
        }
        for (size_t g = 0; g < f->gangs; g++) {
            double x = count[g] > 0 ? gang[g] - sum / all : 0, t = (double)g - mean_t / all;
            vg += x * x;
            st += count[g] > 0 ? t * t : 0;
            sx += count[g] > 0 ? t * x : 0;
        }
        df -= all - 1;
        if (all < 3 || df < 1) {
            continue;
        }
        gang_sd[cases] = sqrt(vg / (all - 1));
        one_sd[cases] = sqrt(squares / df);
        drift[cases++] = sx / st * (double)(f->gangs - 1);
    }
    (void)printf(" %.1f %% | %.1f %% | %+.1f %% |", 100 * nt_median(gang_sd, cases),
                 100 * nt_median(one_sd, cases), 100 * nt_median(drift, cases));
}

static int fit(const char *path, struct nt_err *err)
{
    const char *slash = strrchr(path, '/');
    struct nt_recording *rec = NULL;
    struct fit f = {.n = 0};
    int rc = nt_recording_load(path, &rec, err);

    f.rec = rec;
    f.spot = calloc(MAX_CELLS, sizeof(*f.spot));
    for (int m = 0; m < NT_MODE_COUNT; m++) {
        f.noise[m].sample = calloc(SAMPLES, sizeof(double));
    }
    for (size_t i = 0; rc == 0 && i < nt_recording_cells(rec); i++) {
        struct nt_cell c = nt_recording_cell(rec, i);
        if (c.count > 0 && counts(nt_recording_block(rec, c.block[0]))) {
            take_cell(&f, c);
        }
    }
    if (rc == 0) {
        (void)printf("\n### %s\n\n", slash != NULL ? slash + 1 : path);
        rc = errors_of(&f, err);
        (void)printf("\n| mode | sample sd | outliers | their mean | gang sd | tuple in a gang | "
                     "drift | failed |\n|---|---|---|---|---|---|---|---|\n");
        for (int m = 0; rc == 0 && m < NT_MODE_COUNT; m++) {
            struct noise *n = &f.noise[m];
            if (n->samples > 0) {
                (void)printf("| %s |", nt_mode_names[m]);
                print_samples(n);
                print_gangs(&f, m);
                (void)printf(" %zu of %zu |\n", n->failed, n->blocks);
            }
        }
    }
    for (int m = 0; m < NT_MODE_COUNT; m++) {
        free(f.noise[m].sample);
    }
    free(f.spot);
    nt_recording_free(rec);
    return rc;
}

int main(int argc, char **argv)
{
    struct nt_err err = {0};
    int rc = 0;

    if (argc < 2) {
        (void)fprintf(stderr, "usage: fit_model RECORDING...\n");
        return 2;
    }
    for (int i = 1; i < argc && rc == 0; i++) {
        rc = fit(argv[i], &err);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "fit_model: %s\n", err.msg);
    }
    return nt_exit_code(rc);
}
