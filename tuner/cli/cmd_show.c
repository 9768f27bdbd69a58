#include "tuner/cli/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tuner/base/text.h"
#include "tuner/cli/hints.h"
#include "tuner/cli/profile_arg.h"

struct show_args {
    const char *format, *db;
    bool reproduce;
};

static const char *const formats[] = {"table", "json", NULL};
static const struct nt_opt show_opts[] = {
    {.name = "format",
     .type = NT_O_STR,
     .offset = offsetof(struct show_args, format),
     .arg = "FORM",
     .help = "table or json (default table)",
     .choices = formats},
    NT_OPT(NT_O_FLAG, show_args, reproduce, "reproduce", 'r', NULL,
           "also the two nccl-tests commands of every published class"),
    NT_OPT(NT_O_STR, show_args, db, "db", 0, "FILE",
           "database of the job (default NCCLTUNE_DB, else the user's own)"),
    {0}};

static const char *known(const char *s)
{
    return s != NULL && s[0] != '\0' ? s : "unknown";
}

static void print_vars(const char *title, const struct nt_assigns *vars)
{
    for (size_t i = 0; i < vars->n; i++) {
        (void)printf("  %-10s%s=%s\n", title, vars->v[i].name, vars->v[i].value);
    }
}

static void print_texts(const char *before, const struct nt_texts *t)
{
    (void)printf("%s", before);
    for (size_t i = 0; i < t->n; i++) {
        bool in = strcmp(t->v[i], "in") == 0, out = strcmp(t->v[i], "out") == 0;
        (void)printf("%s %s%s", i > 0 ? "," : "", t->v[i], in ? " place" : out ? " of place" : "");
    }
}

static void print_head(const struct nt_profile *p)
{
    (void)printf("profile    of %s, nccltune %s%s%s\n", known(p->created), known(p->tool),
                 p->job != NULL && p->job[0] != '\0' ? ", job " : "", p->job != NULL ? p->job : "");
    (void)printf("machine    %s, %u ranks on %u node%s%s%s\n", known(p->identity.id), p->ranks,
                 p->nodes, p->nodes == 1 ? "" : "s",
                 p->placement != NULL && p->placement[0] != '\0' ? ", placement " : "",
                 p->placement != NULL ? p->placement : "");
    (void)printf("stack      NCCL %s, CUDA %s, driver %s, %s\n", known(p->stack.nccl),
                 known(p->stack.cuda), known(p->stack.driver), known(p->stack.gpu));
    if (p->stack.framework != NULL && p->stack.framework[0] != '\0') {
        (void)printf("framework  %s\n", p->stack.framework);
    }
    (void)printf("rig        %s%s%s%s\n", nt_rig_names[p->rig],
                 p->rig != NT_RIG_NCCL ? " (functional: not a real node)" : "",
                 p->stand_in != NULL && p->stand_in[0] != '\0' ? ", played from " : "",
                 p->stand_in != NULL ? p->stand_in : "");
    print_texts("confirmed ", &p->modes);
    print_texts(";", &p->dtypes);
    print_texts(";", &p->places);
    (void)printf("\n");
    for (size_t i = 0; i < p->health.n; i++) {
        (void)printf("health     %s\n", p->health.v[i]);
    }
    for (size_t i = 0; i < p->warnings.n; i++) {
        (void)printf("warning    %s\n", p->warnings.v[i]);
    }
    for (size_t i = 0; i < p->site.n; i++) {
        (void)printf("site       %s=%s\n", p->site.v[i].name, p->site.v[i].value);
    }
    if (!p->baselines.same) {
        for (size_t i = 0; i < p->baselines.as_found.n; i++) {
            (void)printf("as found   %s=%s\n", p->baselines.as_found.v[i].name,
                         p->baselines.as_found.v[i].value);
        }
    }
}

static const char *time_text(double ns, char *out, size_t size)
{
    return isnan(ns) ? "-" : nt_format_ns(ns, out, size);
}

/* Field width for printf that counts characters, not bytes: "µs" has one byte more. */
static int width(const char *s, int characters)
{
    for (; *s != '\0'; s++) {
        characters += ((unsigned char)*s & 0xc0) == 0x80;
    }
    return characters;
}

/* A class is in the profile when any of its modes proved the gain: this one did not by itself. */
static bool proved_elsewhere(const struct nt_profile_class *c)
{
    return c->verdict == NT_VD_TUNED && c->p_adjusted > 0.005;
}

/* found: some class has a figure for the machine as it was found, so there is such a column. */
static void print_class(const struct nt_profile_class *c, bool found)
{
    char bytes[24], was[24], was_found[24], now[24], gain[48] = "-";
    const char *a, *b, *d;
    if (!isnan(c->gain)) {
        int n = snprintf(gain, sizeof(gain), "%+.1f %%", 100 * c->gain);
        if (!isnan(c->interval[0])) {
            (void)snprintf(gain + n, sizeof(gain) - (size_t)n, " [%.1f, %.1f]",
                           100 * c->interval[0], 100 * c->interval[1]);
        }
    } else if (!isnan(c->detectable)) {
        (void)snprintf(gain, sizeof(gain), "(from %.1f %%)", 100 * c->detectable);
    }
    a = time_text(c->default_ns, was, sizeof(was));
    b = found ? time_text(c->as_found_ns, was_found, sizeof(was_found)) : "";
    d = time_text(c->tuned_ns, now, sizeof(now));
    (void)printf("  %-15s%8s  %-7s%*s%*s%*s  %-24s%-15s %s", nt_coll_names[c->coll],
                 nt_format_bytes(c->bytes, bytes, sizeof(bytes)), nt_mode_names[c->mode],
                 width(a, 10), a, found ? width(b, 10) : 0, b, width(d, 10), d, gain,
                 c->setting != NULL ? c->setting : "", nt_class_verdict_names[c->verdict]);
    (void)printf(proved_elsewhere(c)                                      ? ", alone p = %.2g\n"
                 : c->verdict == NT_VD_UNDECIDED && !isnan(c->p_adjusted) ? ", p = %.2g\n"
                                                                          : "\n",
                 c->p_adjusted);
}

static int by_size(const void *a, const void *b)
{
    const struct nt_profile_class *x = *(const struct nt_profile_class *const *)a,
                                  *y = *(const struct nt_profile_class *const *)b;
    if (x->coll != y->coll) {
        return x->coll < y->coll ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return (x->mode > y->mode) - (x->mode < y->mode);
}

/* The words of the last column, as far as they occur. */
static void print_legend(const struct nt_profile_classes *classes, enum nt_product which, bool vars)
{
    static const char *const meaning[NT_VD_COUNT] = {
        [NT_VD_TUNED] = ("in the profile: a gain is proved in one mode at least, and no mode and "
                         "no check is slower"),
        [NT_VD_KEPT] = ("a row keeps it as it is without the variables, which reach every call; no "
                        "slower, and no gain is claimed; `decide` tells what was forgone"),
        [NT_VD_DEFAULT] = "nothing looked faster than NCCL's own choice, which stays",
        [NT_VD_UNDECIDED] = "a gain could not be proved (p of 0.005 would); NCCL's choice stays",
        [NT_VD_NOISY] = "too noisy for a verdict; NCCL's choice stays",
        [NT_VD_GUARD] = "could not be shown to be no slower everywhere; NCCL's choice stays",
        [NT_VD_NOT_CHECKED] = "found by the search, not confirmed; NCCL's choice stays"};
    /* Variables reach every size of a process: one may be served for what others gain. */
    static const char everywhere[] = "in the profile, whose variables reach every size: a gain is "
                                     "proved at one at least, and none that was checked is slower";
    (void)printf("  gain: less time than the faster baseline, with its 95 %% interval\n"
                 "  setting: algorithm/protocol/channels; what is left out is NCCL's choice\n");
    for (size_t i = 0; i < classes->n; i++) {
        if (isnan(classes->v[i].gain) && !isnan(classes->v[i].detectable)) {
            (void)printf("  (from …): the smallest gain that the pairs would have proved there, in "
                         "four cases of five\n");
            break;
        }
    }
    for (size_t i = 0; i < classes->n; i++) {
        if (proved_elsewhere(&classes->v[i])) {
            (void)printf("  alone p: of a gain in this mode by itself; %s proves it\n",
                         which == NT_STATIC ? "another size or mode" : "another mode");
            break;
        }
    }
    for (size_t i = 0; which == NT_TABLE && i < classes->n; i++) {
        if (classes->v[i].setting != NULL &&
            strcmp(classes->v[i].setting, "variables alone") == 0) {
            (void)printf("  variables alone: no row, only the table's variables, which reach every "
                         "call; each mode by itself\n");
            break;
        }
    }
    for (int k = 0; k < NT_VD_COUNT; k++) {
        for (size_t i = 0; i < classes->n; i++) {
            if ((int)classes->v[i].verdict == k) {
                (void)printf("  %s: %s%s\n", nt_class_verdict_names[k],
                             k == NT_VD_TUNED && which == NT_STATIC ? everywhere : meaning[k],
                             vars && k > NT_VD_KEPT ? ", under the variables" : "");
                break;
            }
        }
    }
}

static void print_classes(const struct nt_profile_classes *classes, enum nt_product which,
                          bool vars)
{
    const struct nt_profile_class **sorted = calloc(classes->n + 1, sizeof(*sorted));
    bool found = false;

    for (size_t i = 0; i < classes->n; i++) {
        found = found || !isnan(classes->v[i].as_found_ns);
    }
    (void)printf("  %-15s%8s  %-7s%10s%s%10s  %-24s%-16s%s\n", "collective", "bytes", "mode",
                 "default", found ? "  as found" : "", "tuned", "gain [95 %]", "setting",
                 "verdict");
    for (size_t i = 0; i < classes->n && sorted != NULL; i++) {
        sorted[i] = &classes->v[i];
    }
    if (sorted != NULL) {
        qsort(sorted, classes->n, sizeof(*sorted), by_size);
    }
    for (size_t i = 0; i < classes->n; i++) {
        print_class(sorted != NULL ? sorted[i] : &classes->v[i], found);
    }
    free(sorted);
    print_legend(classes, which, vars);
}

static void print_rows(const struct nt_profile_product *product)
{
    for (size_t i = 0; i < product->rows.n; i++) {
        const struct nt_profile_row *r = &product->rows.v[i];
        char lo[24], hi[24], text[64];
        struct nt_call call = nt_profile_row_call(r);
        (void)printf("  row       %s %s to %s: %s", nt_coll_names[r->coll],
                     nt_format_bytes(r->min_bytes, lo, sizeof(lo)),
                     nt_format_bytes(r->max_bytes, hi, sizeof(hi)),
                     nt_call_text(&call, text, sizeof(text)));
        if (r->executed_channels > 0) {
            (void)printf(", executed on %u channel%s", r->executed_channels,
                         r->executed_channels == 1 ? "" : "s");
        }
        (void)printf("%s\n", nt_profile_row_keeps(product, r) ? ", kept" : "");
    }
}

static void print_product(const struct nt_profile *p, enum nt_product which, bool reproduce)
{
    const struct nt_profile_product *product = &p->product[which];
    bool of_frameworks = p->stack.framework != NULL && p->stack.framework[0] != '\0';
    if (!product->present) {
        return;
    }
    (void)printf("\nproduct %s%s\n", nt_product_names[which],
                 product->vars.n + product->rows.n > 0 ? ""
                 : of_frameworks && which == NT_TABLE
                     ? ": empty; a probe of frameworks asks NCCL for no settings per call"
                 : which == NT_STATIC && p->product[NT_TABLE].vars.n > 0
                     ? ": no variables without rows were found faster and nowhere slower"
                     : ": the defaults win here");
    print_vars("variable", &product->vars);
    print_rows(product);
    if (product->classes.n > 0) {
        print_classes(&product->classes, which, product->vars.n > 0);
    }
    for (size_t i = 0; i < product->classes.n && reproduce; i++) {
        const struct nt_profile_class *c = &product->classes.v[i];
        char bytes[24];
        if ((c->verdict == NT_VD_TUNED || c->verdict == NT_VD_KEPT) && c->reproduce.n == 2) {
            (void)printf("\n  %s %s %s\n    without  %s\n    with     %s\n", nt_coll_names[c->coll],
                         nt_format_bytes(c->bytes, bytes, sizeof(bytes)), nt_mode_names[c->mode],
                         c->reproduce.v[0], c->reproduce.v[1]);
        }
    }
}

static void print_noteds(const char *title, const struct nt_noteds *list)
{
    for (size_t i = 0; i < list->n; i++) {
        char bytes[24];
        (void)printf("%-13s%s: %s", i == 0 ? title : "", list->v[i].setting, list->v[i].why);
        if (!isnan(list->v[i].memory_bytes) && list->v[i].memory_bytes > 0) {
            (void)printf(", takes %s",
                         nt_format_bytes((uint64_t)list->v[i].memory_bytes, bytes, sizeof(bytes)));
        }
        (void)printf("\n");
    }
}

static void print_backend_class(const struct nt_profile_backend_class *c)
{
    char bytes[24], a[24], b[24], gain[48] = "-";
    const char *rival = time_text(c->rival_ns, a, sizeof(a)), *now = time_text(c->ns, b, sizeof(b));

    if (!isnan(c->gain) && !isnan(c->interval[0])) {
        (void)snprintf(gain, sizeof(gain), "%+.1f %% [%.1f, %.1f]", 100 * c->gain,
                       100 * c->interval[0], 100 * c->interval[1]);
    }
    (void)printf("  %-15s%8s  %-7s%*s %-9s%*s  %-24s%-32s%s%s%s\n", nt_coll_names[c->coll],
                 nt_format_bytes(c->bytes, bytes, sizeof(bytes)), nt_mode_names[c->mode],
                 width(rival, 10), rival, c->rival != NULL ? c->rival : "", width(now, 10), now,
                 gain, c->setting, nt_class_verdict_names[c->verdict],
                 c->why != NULL && c->why[0] != '\0' ? ": " : "", c->why != NULL ? c->why : "");
}

static void print_backends(const struct nt_profile *p)
{
    if (!p->backends.present) {
        return;
    }
    (void)printf("\nbackends%s%s\n", p->backends.same_bits ? ", only with NCCL's bits" : "",
                 p->backends.rows.n == 0 ? ": NCCL as it is wins here" : "");
    for (size_t i = 0; i < p->backends.rows.n; i++) {
        const struct nt_profile_backend *r = &p->backends.rows.v[i];
        struct nt_call call = {.algo = (int8_t)r->algo,
                               .proto = (int8_t)r->proto,
                               .channels = (uint16_t)r->blocks,
                               .backend = (uint8_t)r->backend};
        char lo[24], hi[24], text[64];
        (void)printf("  row       %s %s to %s %s: %s, adds up as %s, bits %s; for",
                     nt_coll_names[r->coll], nt_format_bytes(r->min_bytes, lo, sizeof(lo)),
                     nt_format_bytes(r->max_bytes, hi, sizeof(hi)), nt_mode_names[r->mode],
                     nt_call_text(&call, text, sizeof(text)), nt_numerics_names[r->numerics],
                     nt_bits_names[r->bits]);
        for (size_t k = 0; k < r->serves.n; k++) {
            (void)printf(" %s", r->serves.v[k]);
        }
        (void)printf("\n");
    }
    if (p->backends.classes.n > 0) {
        (void)printf("  %-15s%8s  %-7s%10s %-9s%10s  %-24s%-32s%s\n", "collective", "bytes", "mode",
                     "best of", "NCCL", "backend", "gain [95 %]", "setting", "verdict");
    }
    for (size_t i = 0; i < p->backends.classes.n; i++) {
        print_backend_class(&p->backends.classes.v[i]);
    }
    for (size_t i = 0; i < p->backends.peers.n; i++) {
        (void)printf("  peers     %s\n", p->backends.peers.v[i]);
    }
    for (size_t i = 0; i < p->backends.notes.n; i++) {
        (void)printf("  out       %s: %s\n", p->backends.notes.v[i].setting,
                     p->backends.notes.v[i].why);
    }
}

static void print_costs(const struct nt_profile *p)
{
    char a[24], b[24], c[24];
    if (!isnan(p->memory.default_bytes)) {
        (void)printf("memory       default %.0f MiB", p->memory.default_bytes / 1048576);
        (void)(isnan(p->memory.static_bytes)
                   ? 0
                   : printf(", static %.0f MiB", p->memory.static_bytes / 1048576));
        (void)(isnan(p->memory.table_bytes)
                   ? 0
                   : printf(", table %.0f MiB", p->memory.table_bytes / 1048576));
        (void)printf(" a rank\n");
    }
    if (!isnan(p->first_call.default_ns)) {
        (void)printf("first call   default %s, static %s, table %s\n",
                     time_text(p->first_call.default_ns, a, sizeof(a)),
                     time_text(p->first_call.static_ns, b, sizeof(b)),
                     time_text(p->first_call.table_ns, c, sizeof(c)));
    }
}

static int run_show(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct show_args *a = opts;
    struct nt_profile *p = NULL;
    struct nt_buf out;
    int rc = nt_load_profile_arg(args[0], a->db, &p, err);
    (void)nargs;

    if (rc == 0 && a->format != NULL && a->format[0] == 'j') {
        nt_buf_init(&out, NT_PROFILE_MAX_BYTES);
        rc = nt_profile_dump(p, &out, err);
        (void)fputs(nt_buf_str(&out), stdout);
        nt_buf_done(&out);
    } else if (rc == 0) {
        print_head(p);
        for (int i = NT_PRODUCT_COUNT - 1; i >= 0; i--) {
            print_product(p, (enum nt_product)i, a->reproduce);
        }
        print_backends(p);
        (void)printf("\n");
        print_noteds("not checked", &p->not_checked);
        print_noteds("not allowed", &p->not_allowed_here);
        print_noteds("inert", &p->inert);
        print_noteds("tried", &p->tried);
        nt_print_hints(p);
        print_costs(p);
        if (p->delivery.hash != NULL && p->delivery.hash[0] != '\0') {
            (void)printf("delivery     %s\n", p->delivery.file);
        }
    }
    nt_profile_free(p);
    return rc;
}

const struct nt_command nt_cmd_show = {
    .name = "show",
    .summary = "a profile, or that of a job: default, as found, tuned, evidence",
    .args = "PROFILE|JOB",
    .min_args = 1,
    .max_args = 1,
    .opts = show_opts,
    .size = sizeof(struct show_args),
    .run = run_show};
