#include "tuner/cli/tune_print.h"
#include "tuner/base/text.h"
#include "tuner/cli/hints.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t nt_tune_print_progress(const struct nt_job_progress *p, bool paced, bool tty, size_t before)
{
    char line[256], best[128] = "", left[48] = "", cs[64], call[48], text[24];
    size_t n;

    if (p->plan.best_gain > 0.02 && p->plan.stage != NT_PUBLISH) {
        (void)snprintf(best, sizeof(best), ", up to %.0f %% to be confirmed (%s %s)",
                       100 * (1 - exp(-p->plan.best_gain)),
                       nt_case_text(&p->plan.best_case, cs, sizeof(cs)),
                       nt_call_text(&p->plan.best_call, call, sizeof(call)));
    }
    if (paced && p->plan.left_ns > 0) {
        (void)snprintf(left, sizeof(left), ", about %s left",
                       nt_format_ns((double)p->plan.left_ns, text, sizeof(text)));
    }
    (void)snprintf(line, sizeof(line), "job %lld %s %3.0f %%, %llu trials, %s%s", (long long)p->job,
                   nt_stage_names[p->plan.stage], 100 * p->plan.done,
                   (unsigned long long)p->plan.trials,
                   nt_format_ns((double)p->wall_ns, text, sizeof(text)), left);
    n = strlen(line) + strlen(best);
    if (tty) {
        (void)fprintf(stderr, "\r%s%s%*s", line, best, (int)(before > n ? before - n : 0), "");
    } else {
        (void)fprintf(stderr, "%s%s\n", line, best);
    }
    (void)fflush(stderr);
    return n;
}

void nt_tune_print_plan(const struct nt_spec *s)
{
    char bytes[24], text[24];

    (void)printf("rig        %s%s%s, %u ranks, %u nodes\n", nt_rig_names[s->rig],
                 s->rig == s->shown_rig ? "" : " of ",
                 s->rig == s->shown_rig ? "" : nt_rig_names[s->shown_rig], s->ranks, s->nodes);
    (void)printf("effort     %s, %u pairs, seed %llu", nt_effort_names[s->effort], s->pairs,
                 (unsigned long long)s->seed);
    if (s->budget_ns > 0) {
        (void)printf(", budget %s", nt_format_ns((double)s->budget_ns, text, sizeof(text)));
    }
    (void)printf("\ncollective");
    for (int i = 0; i < NT_COLL_COUNT; i++) {
        (void)printf("%s%s", s->colls[i] ? " " : "", s->colls[i] ? nt_coll_names[i] : "");
    }
    (void)printf("\nmodes     ");
    for (int i = 0; i < NT_MODE_COUNT; i++) {
        (void)printf("%s%s", s->modes[i] ? " " : "", s->modes[i] ? nt_mode_names[i] : "");
    }
    (void)printf("\ntypes      %s raced", nt_dtype_names[s->raced_dtype]);
    for (int i = 0; i < NT_DTYPE_COUNT; i++) {
        bool guards = s->dtypes[i] && i != (int)s->raced_dtype;
        (void)printf("%s%s", guards ? ", " : "", guards ? nt_dtype_names[i] : "");
    }
    (void)printf("\nbackends  ");
    for (int i = 0; i < NT_BACKEND_COUNT; i++) {
        (void)printf("%s%s", s->backends[i] ? " " : "", s->backends[i] ? nt_backend_names[i] : "");
    }
    (void)printf("%s\n", s->same_bits ? ", same bits only" : "");
    if (s->no_groups || s->no_overlap) {
        (void)printf("unchecked %s%s\n", s->no_groups ? " groups" : "",
                     s->no_overlap ? " overlap" : "");
    }
    (void)printf("sizes     ");
    for (size_t i = 0; i < s->nsizes; i++) {
        (void)printf(" %s", nt_format_bytes(s->sizes[i], bytes, sizeof(bytes)));
    }
    for (size_t i = 0; i < s->nweights; i++) {
        const struct nt_weight *x = &s->weights[i];
        (void)printf("\n%s %s %s %s, %.6g calls", i == 0 ? "weights   " : "          ",
                     nt_coll_names[x->coll], nt_format_bytes(x->bytes, bytes, sizeof(bytes)),
                     nt_mode_names[x->mode], x->calls);
    }
    (void)printf(
        "\nchunks     %s",
        s->effort == NT_QUICK || s->rig == NT_RIG_RECORDING || s->rig == NT_RIG_MODEL
            ? "NCCL's own"
            : "tried at the leaders from 1M on, where NCCL asks for them (2.30.3 and later)");
    (void)printf("\nfixed      %s\nas found   %s\n", s->fixed[0] != '\0' ? s->fixed : "-",
                 s->as_found[0] != '\0' ? s->as_found : "as NCCL alone");
    for (size_t i = 0; i < s->nsettings; i++) {
        (void)printf("%s %s\n", i == 0 ? "settings  " : "          ",
                     i == 0 ? "NCCL's own" : s->settings[i]);
    }
}

/* How small a gain had to be to stay unseen. */
static void print_detectable(const struct nt_profile *p)
{
    const struct nt_profile_classes *all = &p->product[NT_TABLE].classes;
    const struct nt_profile_class *low = NULL, *high = NULL;
    char a[24], b[24];

    for (size_t i = 0; i < all->n; i++) {
        const struct nt_profile_class *c = &all->v[i];
        if (!isnan(c->detectable)) {
            low = low == NULL || c->detectable < low->detectable ? c : low;
            high = high == NULL || c->detectable > high->detectable ? c : high;
        }
    }
    if (low != NULL) {
        (void)printf(
            "smallest gain that could be proved: %.1f %% (%s %s %s) to %.1f %% (%s %s %s)\n",
            100 * low->detectable, nt_coll_names[low->coll],
            nt_format_bytes(low->bytes, a, sizeof(a)), nt_mode_names[low->mode],
            100 * high->detectable, nt_coll_names[high->coll],
            nt_format_bytes(high->bytes, b, sizeof(b)), nt_mode_names[high->mode]);
    }
}

void nt_tune_print_summary(const struct nt_spec *s, const char *path,
                           const struct nt_job_outcome *o)
{
    const struct nt_profile *p = o->profile;
    double wall = (double)o->totals.wall_ns / 1e9, idle;
    size_t n[NT_PRODUCT_COUNT] = {0}, served = 0, kept = 0;
    double best = 0;

    for (int k = 0; k < NT_PRODUCT_COUNT; k++) {
        for (size_t i = 0; i < p->product[k].classes.n; i++) {
            const struct nt_profile_class *c = &p->product[k].classes.v[i];
            if (c->verdict == NT_VD_TUNED && c->p_adjusted <= s->alpha) {
                n[k]++;
                best = c->gain > best ? c->gain : best;
            }
            served += c->verdict == NT_VD_TUNED && c->p_adjusted > s->alpha;
        }
    }
    if (n[NT_TABLE] + n[NT_STATIC] == 0) {
        (void)printf("\n%s\n", p->backends.rows.n > 0 ? "NCCL's defaults win here."
                                                      : "The defaults win here: an empty profile.");
    } else {
        (void)printf(
            "\n%zu classes faster by the table, %zu by variables alone; up to %.0f %% less time.\n",
            n[NT_TABLE], n[NT_STATIC], 100 * best);
    }
    for (size_t i = 0; i < p->product[NT_TABLE].rows.n; i++) {
        kept += nt_profile_row_keeps(&p->product[NT_TABLE], &p->product[NT_TABLE].rows.v[i]);
    }
    if (kept > 0) {
        (void)printf("%zu rows keep calls as they are without its variables.\n", kept);
    }
    if (p->backends.rows.n > 0) {
        (void)printf("%zu rows name another backend than NCCL as it is.\n", p->backends.rows.n);
    }
    if (served > 0) {
        (void)printf("%zu more in the same rows: not slower, no gain proved of them alone.\n",
                     served);
    }
    print_detectable(p);
    for (size_t i = 0; i < p->tried.n; i++) {
        if (strstr(p->tried.v[i].why, "withdrawn") != NULL) {
            (void)printf("%s: %s\n", p->tried.v[i].setting, p->tried.v[i].why);
        }
    }
    nt_print_hints(p);
    for (size_t i = 0; i < p->warnings.n; i++) {
        (void)printf("warning: %s\n", p->warnings.v[i]);
    }
    idle = wall - (double)(o->totals.measuring_ns + o->totals.starting_ns) / 1e9;
    (void)printf("job %lld: %llu trials, %s%llu gangs, %.1f s wall", (long long)o->job,
                 (unsigned long long)o->trials, o->resumed ? "since it went on " : "",
                 (unsigned long long)o->totals.gangs, wall);
    if (s->rig < NT_RIG_RECORDING) {
        (void)printf(" (%.1f %% neither measuring nor starting gangs)", 100 * idle / wall);
    }
    (void)printf("\ndevice time: search %.1f s = %.0f %% of the grid's %.1f s, confirm %.1f s\n",
                 (double)o->search_ns / 1e9,
                 100 * (double)o->search_ns / (double)(o->grid_ns > 0 ? o->grid_ns : 1),
                 (double)o->grid_ns / 1e9, (double)o->confirm_ns / 1e9);
    if (o->further > 0) {
        (void)printf("%u further pairs of what the guard was in doubt of\n", o->further);
    }
    (void)printf("profile: %s; `nccltune show %s` prints the evidence\n", path, path);
}
