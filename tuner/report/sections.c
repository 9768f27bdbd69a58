#include "tuner/report/sections.h"
#include "tuner/base/text.h"
#include "tuner/report/markup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool given(const char *s)
{
    return s != NULL && s[0] != '\0';
}

/* A table that may be wider than the screen scrolls by keyboard too. */
static void open_table(struct nt_buf *out, const char *caption, const char *heads)
{
    nt_buf_printf(out,
                  "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"%s\">\n<table>"
                  "<caption>%s</caption>\n<thead><tr>%s</tr></thead>\n<tbody>\n",
                  caption, caption, heads);
}

static void close_table(struct nt_buf *out)
{
    nt_buf_puts(out, "</tbody></table></div>\n");
}

#define HEAD(word) "<th scope=\"col\">" word "</th>"
#define NUM(word)  "<th scope=\"col\" class=\"num\">" word "</th>"

static void cell(struct nt_buf *out, const char *class, const char *text)
{
    nt_buf_printf(out, "<td class=\"%s\">", class);
    nt_markup_text(out, given(text) ? text : "–");
    nt_buf_puts(out, "</td>");
}

static void time_cell(struct nt_buf *out, double ns)
{
    char text[24];
    cell(out, "num", !isfinite(ns) ? "" : nt_format_ns(ns, text, sizeof(text)));
}

static void number_cell(struct nt_buf *out, double v, int decimals)
{
    if (isnan(v)) {
        cell(out, "num", "");
    } else {
        nt_buf_printf(out, "<td class=\"num\">%.*f</td>", decimals, v);
    }
}

/* ------------------------------------------------------------------ classes */

static const char *const verdict_words[NT_VD_COUNT] = {
    [NT_VD_TUNED] =
        ("in the profile: a gain is proved in one mode at least (of variables alone, which reach "
         "every size: at one size at least), and no mode and no check is slower"),
    [NT_VD_KEPT] = ("a row keeps it as it is without the variables, which reach every call; no "
                    "slower, and no gain is claimed"),
    [NT_VD_DEFAULT] = "nothing looked faster than NCCL’s own choice, which stays",
    [NT_VD_UNDECIDED] = "a gain could not be proved; NCCL’s choice stays",
    [NT_VD_NOISY] = "too noisy for a verdict; NCCL’s choice stays",
    [NT_VD_GUARD] = "could not be shown to be no slower everywhere; NCCL’s choice stays",
    [NT_VD_NOT_CHECKED] = "found by the search, not confirmed; NCCL’s choice stays"};

/* Family-wise error of a claimed gain (the confirm's own). */
static const double ALPHA = 0.005;

bool nt_served_only(const struct nt_profile_class *c)
{
    return c->verdict == NT_VD_TUNED && !(c->p_adjusted <= ALPHA);
}

#define CLASS_HEADS                                                                                \
    NUM("tuned")                                                                                   \
    NUM("gain")                                                                                    \
    NUM("95 %") HEAD("verdict") HEAD("setting") NUM("p") NUM("pairs") NUM("guard") NUM("p95")

static void class_row(const struct nt_profile_class *c, bool as_found, struct nt_buf *out)
{
    char bytes[24];

    nt_buf_printf(out, "<tr><th scope=\"row\">%s</th><td class=\"num\">%s</td><td>%s</td>",
                  nt_coll_names[c->coll], nt_format_bytes(c->bytes, bytes, sizeof(bytes)),
                  nt_mode_names[c->mode]);
    time_cell(out, c->default_ns);
    if (as_found) {
        time_cell(out, c->as_found_ns);
    }
    time_cell(out, c->tuned_ns);
    if (isnan(c->gain)) {
        cell(out, "num", "");
    } else {
        nt_buf_printf(out, "<td class=\"num\">%+.1f %%</td>", 100 * c->gain);
    }
    if (isnan(c->interval[0])) {
        cell(out, "num", "");
    } else {
        nt_buf_printf(out, "<td class=\"num\">%.1f to %.1f %%</td>", 100 * c->interval[0],
                      100 * c->interval[1]);
    }
    nt_buf_printf(out, "<td><span class=\"tag %s\">%s</span>%s</td>",
                  nt_class_verdict_names[c->verdict], nt_class_verdict_names[c->verdict],
                  nt_served_only(c) ? ", not proved alone" : "");
    cell(out, "", c->setting);
    number_cell(out, c->p_adjusted, 4);
    nt_buf_printf(out, "<td class=\"num\">%u</td>", c->pairs);
    number_cell(out, c->guard_upper, 3);
    number_cell(out, c->p95_ratio, 3);
    nt_buf_puts(out, "</tr>\n");
}

static int by_case(const void *a, const void *b)
{
    const struct nt_profile_class *x = *(const struct nt_profile_class *const *)a,
                                  *y = *(const struct nt_profile_class *const *)b;
    if (x->coll != y->coll) {
        return x->coll - y->coll;
    }
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : x->mode - y->mode;
}

/* A profile's own order is that of its confirm; without memory it has to do. */
static const struct nt_profile_class **in_order(const struct nt_profile_classes *c)
{
    const struct nt_profile_class **v = calloc(c->n + 1, sizeof(*v));

    for (size_t i = 0; v != NULL && i < c->n; i++) {
        v[i] = &c->v[i];
    }
    if (v != NULL) {
        qsort(v, c->n, sizeof(*v), by_case);
    }
    return v;
}

static void class_table(const struct nt_profile_classes *list, enum nt_product product,
                        struct nt_buf *out)
{
    const struct nt_profile_class **v = in_order(list);
    bool as_found = false;

    for (size_t i = 0; i < list->n; i++) {
        as_found = as_found || !isnan(list->v[i].as_found_ns);
    }
    open_table(out, product == NT_TABLE ? "Product table" : "Product static",
               as_found ? HEAD("collective") NUM("bytes") HEAD("mode") NUM("default")
                              NUM("as found") CLASS_HEADS
                        : HEAD("collective") NUM("bytes") HEAD("mode") NUM("default") CLASS_HEADS);
    for (size_t i = 0; i < list->n; i++) {
        class_row(v != NULL ? v[i] : &list->v[i], as_found, out);
    }
    close_table(out);
    free(v);
}

int nt_section_classes(const struct nt_report_in *in, struct nt_buf *out, struct nt_err *err)
{
    (void)err;
    nt_buf_puts(
        out,
        "<p>Times are medians over pairs of fresh processes. The gain is over the faster of "
        "default and as found, with its two-sided 95 % interval; p is adjusted over all classes. "
        "Guard is the upper bound (one-sided 95 %) of tuned over baseline at the worst point that "
        "was checked; p95 the ratio of the slow ends.</p>\n<dl class=\"pairs words\">\n");
    for (int v = 0; v < NT_VD_COUNT; v++) {
        nt_buf_printf(out, "<dt><span class=\"tag %s\">%s</span></dt><dd>%s</dd>\n",
                      nt_class_verdict_names[v], nt_class_verdict_names[v], verdict_words[v]);
    }
    nt_buf_puts(out, "</dl>\n");
    for (int k = NT_PRODUCT_COUNT - 1; k >= 0; k--) {
        const struct nt_profile_product *product = &in->profile->product[k];
        if (product->classes.n > 0) {
            class_table(&product->classes, (enum nt_product)k, out);
        } else if (product->present) {
            nt_buf_printf(out, "<p>Product %s: the defaults win here.</p>\n", nt_product_names[k]);
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ raced */

enum { RACED_SHOWN = 5000 };

static void raced_row(const struct nt_report_arm *a, struct nt_buf *out)
{
    char bytes[24], lo[24], hi[24];

    nt_buf_printf(out, "<tr><th scope=\"row\">%s</th><td class=\"num\">%s</td><td>%s</td>",
                  nt_coll_names[a->coll], nt_format_bytes(a->bytes, bytes, sizeof(bytes)),
                  nt_mode_names[a->mode]);
    cell(out, "wrap", a->setting);
    time_cell(out, a->ns);
    if (!isfinite(a->lo_ns) || !isfinite(a->hi_ns)) {
        cell(out, "num", "");
    } else {
        nt_buf_printf(out, "<td class=\"num\">%s to %s</td>",
                      nt_format_ns(a->lo_ns, lo, sizeof(lo)),
                      nt_format_ns(a->hi_ns, hi, sizeof(hi)));
    }
    nt_buf_puts(out, "</tr>\n");
}

/* The figures behind the runners-up, for readers of tables. */
void nt_raced_table(const struct nt_report_in *in, struct nt_buf *out)
{
    size_t n = 0;

    nt_buf_puts(out, "<details><summary>Times of all settings, as the search saw them</summary>\n");
    open_table(out, "Estimates of the search",
               HEAD("collective") NUM("bytes") HEAD("mode") HEAD("setting") NUM("time")
                   NUM("95 %"));
    for (; n < in->narms && n < RACED_SHOWN; n++) {
        raced_row(&in->arms[n], out);
    }
    for (int k = NT_PRODUCT_COUNT - 1; k >= 0 && in->narms == 0; k--) {
        const struct nt_profile_classes *list = &in->profile->product[k].classes;
        for (size_t i = 0; i < list->n; i++) {
            const struct nt_profile_class *c = &list->v[i];
            for (size_t j = 0; j < c->runners_up.n && n < RACED_SHOWN; j++, n++) {
                struct nt_report_arm a = {.coll = c->coll,
                                          .mode = c->mode,
                                          .bytes = c->bytes,
                                          .setting = c->runners_up.v[j].setting,
                                          .ns = c->runners_up.v[j].ns,
                                          .lo_ns = NAN,
                                          .hi_ns = NAN};
                raced_row(&a, out);
            }
        }
    }
    close_table(out);
    if (n == RACED_SHOWN) {
        nt_buf_printf(out, "<p>Only the first %d are shown.</p>\n", RACED_SHOWN);
    }
    nt_buf_puts(out, "</details>\n");
}

/* ------------------------------------------------------------------ served */

static void variables(const struct nt_assigns *a, struct nt_buf *out)
{
    if (a->n == 0) {
        return;
    }
    nt_buf_puts(out, "<pre tabindex=\"0\">");
    for (size_t i = 0; i < a->n; i++) {
        nt_markup_text(out, a->v[i].name);
        nt_buf_puts(out, "=");
        nt_markup_text(out, a->v[i].value);
        nt_buf_puts(out, "\n");
    }
    nt_buf_puts(out, "</pre>\n");
}

static void served_row(const struct nt_profile_row *r, struct nt_buf *out)
{
    char lo[24], hi[24], text[64];
    struct nt_call call = nt_profile_row_call(r);

    nt_buf_printf(out,
                  "<tr><th scope=\"row\">%s</th><td class=\"num\">%s</td><td class=\"num\">%s</td>"
                  "<td>%s</td><td class=\"num\">",
                  nt_coll_names[r->coll], nt_format_bytes(r->min_bytes, lo, sizeof(lo)),
                  nt_format_bytes(r->max_bytes, hi, sizeof(hi)),
                  nt_call_text(&call, text, sizeof(text)));
    if (r->executed_channels > 0) {
        nt_buf_printf(out, "%u", r->executed_channels);
    } else {
        nt_buf_puts(out, "–");
    }
    nt_buf_puts(out, "</td></tr>\n");
}

int nt_section_served(const struct nt_report_in *in, struct nt_buf *out, struct nt_err *err)
{
    (void)err;
    for (int k = NT_PRODUCT_COUNT - 1; k >= 0; k--) {
        const struct nt_profile_product *product = &in->profile->product[k];
        if (!product->present) {
            continue;
        }
        nt_buf_printf(out, "<h3>%s</h3>\n",
                      k == NT_TABLE ? "Product table: rows of the tuner plugin, and variables"
                                    : "Product static: variables alone");
        if (product->rows.n + product->vars.n == 0) {
            nt_buf_puts(out, "<p>Empty: the defaults win here.</p>\n");
        }
        if (product->rows.n > 0) {
            open_table(out, "Rows; calls outside of them are left alone",
                       HEAD("collective") NUM("from") NUM("to") HEAD("setting")
                           NUM("channels seen"));
            for (size_t i = 0; i < product->rows.n; i++) {
                served_row(&product->rows.v[i], out);
            }
            close_table(out);
        }
        variables(&product->vars, out);
    }
    return 0;
}

/* ------------------------------------------------------------------ rejected */

struct out_case { /* one setting that is out in one case */
    const char *setting, *why;
    uint64_t bytes;
    int coll, mode;
};

static int by_reason(const void *a, const void *b)
{
    const struct out_case *x = a, *y = b;
    int order = x->coll - y->coll;

    order = order != 0 ? order : strcmp(x->setting, y->setting);
    order = order != 0 ? order : strcmp(x->why, y->why);
    if (order == 0 && x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return order != 0 ? order : x->mode - y->mode;
}

static void add_out(struct out_case *v, size_t *n, const char *setting, const char *why, int coll,
                    int mode, uint64_t bytes)
{
    v[(*n)++] = (struct out_case){given(setting) ? setting : "?",
                                  given(why) ? why : "no reason is on record", bytes, coll, mode};
}

static struct out_case *collect_out(const struct nt_report_in *in, size_t *ret_n)
{
    size_t room = in->narms, n = 0;
    struct out_case *v;

    for (int k = 0; k < NT_PRODUCT_COUNT; k++) {
        for (size_t i = 0; i < in->profile->product[k].classes.n; i++) {
            room += in->profile->product[k].classes.v[i].rejected.n;
        }
    }
    v = calloc(room + 1, sizeof(*v));
    for (int k = 0; v != NULL && k < NT_PRODUCT_COUNT; k++) {
        for (size_t i = 0; i < in->profile->product[k].classes.n; i++) {
            const struct nt_profile_class *c = &in->profile->product[k].classes.v[i];
            for (size_t j = 0; j < c->rejected.n; j++) {
                add_out(v, &n, c->rejected.v[j].setting, c->rejected.v[j].why, c->coll, c->mode,
                        c->bytes);
            }
        }
    }
    for (size_t i = 0; v != NULL && i < in->narms; i++) {
        const struct nt_report_arm *a = &in->arms[i];
        if (a->rejected) {
            add_out(v, &n, a->setting, a->why, a->coll, a->mode, a->bytes);
        }
    }
    if (v != NULL) {
        qsort(v, n, sizeof(*v), by_reason);
    }
    *ret_n = n;
    return v;
}

/* All cases of one setting and reason in one row: sizes once, modes once. Returns how many. */
static size_t out_row(const struct out_case *v, size_t n, struct nt_buf *out)
{
    enum { SHOWN = 16 };
    bool modes[NT_MODE_COUNT] = {false};
    size_t k = 0, sizes = 0;
    const char *between = "";
    char bytes[24];

    nt_buf_printf(out, "<tr><th scope=\"row\">%s</th>", nt_coll_names[v->coll]);
    cell(out, "", v->setting);
    cell(out, "wrap", v->why);
    nt_buf_puts(out, "<td class=\"wrap\">");
    for (; k < n && v[k].coll == v->coll && strcmp(v[k].setting, v->setting) == 0 &&
           strcmp(v[k].why, v->why) == 0;
         k++) {
        modes[v[k].mode] = true;
        if ((k == 0 || v[k].bytes != v[k - 1].bytes) && sizes++ < SHOWN) {
            nt_buf_printf(out, "%s%s", sizes > 1 ? " " : "",
                          nt_format_bytes(v[k].bytes, bytes, sizeof(bytes)));
        }
    }
    if (sizes > SHOWN) {
        nt_buf_printf(out, " … %zu sizes", sizes);
    }
    nt_buf_puts(out, "</td><td>");
    for (int m = 0; m < NT_MODE_COUNT; m++) {
        nt_buf_printf(out, "%s%s", modes[m] ? between : "", modes[m] ? nt_mode_names[m] : "");
        between = modes[m] ? ", " : between;
    }
    nt_buf_puts(out, "</td></tr>\n");
    return k;
}

static void noteds(const char *title, const struct nt_noteds *list, struct nt_buf *out)
{
    char bytes[24];

    if (list->n == 0) {
        return;
    }
    nt_buf_printf(out, "<h3>%s</h3>\n<ul>\n", title);
    for (size_t i = 0; i < list->n; i++) {
        nt_buf_puts(out, "<li><code>");
        nt_markup_text(out, list->v[i].setting);
        nt_buf_puts(out, "</code>: ");
        nt_markup_text(out, list->v[i].why);
        if (list->v[i].memory_bytes >= 1 && list->v[i].memory_bytes < 1e18) {
            nt_buf_printf(out, ", takes %s",
                          nt_format_bytes((uint64_t)list->v[i].memory_bytes, bytes, sizeof(bytes)));
        }
        nt_buf_puts(out, "</li>\n");
    }
    nt_buf_puts(out, "</ul>\n");
}

int nt_section_rejected(const struct nt_report_in *in, struct nt_buf *out, struct nt_err *err)
{
    const struct nt_profile *p = in->profile;
    size_t n = 0;
    struct out_case *v = collect_out(in, &n);

    if (v == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "report");
    }
    if (n == 0) {
        nt_buf_puts(out,
                    "<p>Nothing was rejected after it had been found fast enough to try.</p>\n");
    } else {
        open_table(out, "Settings that were tried and are in no product there",
                   HEAD("collective") HEAD("setting") HEAD("why") HEAD("bytes") HEAD("modes"));
        for (size_t i = 0; i < n;) {
            i += out_row(v + i, n - i, out);
        }
        close_table(out);
    }
    free(v);
    noteds("Not checked", &p->not_checked, out);
    noteds("Not allowed here", &p->not_allowed_here, out);
    noteds("Inert: set, without effect here", &p->inert, out);
    noteds("Process settings that were tried", &p->tried, out);
    return 0;
}

/* ------------------------------------------------------------------ machine */

static void pair(struct nt_buf *out, const char *name, const char *value)
{
    nt_buf_puts(out, "<dt>");
    nt_markup_text(out, name);
    nt_buf_puts(out, "</dt><dd>");
    nt_markup_text(out, given(value) ? value : "unknown");
    nt_buf_puts(out, "</dd>\n");
}

static void joined(struct nt_buf *out, const char *name, const struct nt_texts *t,
                   const char *otherwise)
{
    nt_buf_printf(out, "<dt>%s</dt><dd>", name);
    for (size_t i = 0; i < t->n; i++) {
        nt_buf_puts(out, i > 0 ? ", " : "");
        nt_markup_text(out, t->v[i]);
    }
    nt_buf_printf(out, "%s</dd>\n", t->n == 0 ? otherwise : "");
}

int nt_section_machine(const struct nt_report_in *in, struct nt_buf *out, struct nt_err *err)
{
    const struct nt_profile *p = in->profile;
    (void)err;

    nt_buf_puts(out, "<dl class=\"pairs\">\n");
    pair(out, "GPU", p->stack.gpu);
    nt_buf_printf(out, "<dt>Ranks</dt><dd>%u on %u node%s</dd>\n", p->ranks, p->nodes,
                  p->nodes == 1 ? "" : "s");
    if (given(p->placement)) {
        pair(out, "Placement class", p->placement);
    }
    pair(out, "Identity", p->identity.id);
    pair(out, "Over these facts", p->identity.mask);
    joined(out, "Health", &p->health, "no findings");
    nt_buf_puts(out, "</dl>\n");
    if (p->identity.groups.n > 0) {
        nt_buf_puts(out, "<details><summary>SHA-256 of each group of facts</summary>\n");
        variables(&p->identity.groups, out);
        nt_buf_puts(out, "</details>\n");
    }
    nt_buf_puts(out, "<h3>Topology</h3>\n");
    if (given(in->drawing)) {
        nt_buf_puts(out, "<pre tabindex=\"0\" aria-label=\"Drawing of the topology\">");
        nt_markup_text(out, in->drawing);
        nt_buf_puts(out, "</pre>\n");
    } else {
        nt_buf_puts(out, "<p>A profile carries its machine’s identity, not its drawing: make the "
                         "report of the job, or give a topology.</p>\n");
    }
    return 0;
}

/* ------------------------------------------------------------------ provenance */

static void bytes_list(struct nt_buf *out, const char *name, const double *v, bool time)
{
    static const char *const arms[] = {"default", "static", "table"};
    const char *between = "";
    char text[24];

    if (isnan(v[0]) && isnan(v[1]) && isnan(v[2])) {
        return;
    }
    nt_buf_printf(out, "<dt>%s</dt><dd>", name);
    for (int i = 0; i < 3; i++) {
        if (isnan(v[i]) || v[i] <= 0) {
            continue;
        }
        nt_buf_printf(out, "%s%s ", between, arms[i]);
        if (time) {
            nt_buf_puts(out, nt_format_ns(v[i], text, sizeof(text)));
        } else {
            nt_buf_printf(out, "%.0f MiB", v[i] / 1048576);
        }
        between = ", ";
    }
    nt_buf_puts(out, "</dd>\n");
}

static void assigns(const char *title, const struct nt_assigns *a, struct nt_buf *out)
{
    if (a->n > 0) {
        nt_buf_printf(out, "<h3>%s</h3>\n", title);
        variables(a, out);
    }
}

int nt_section_provenance(const struct nt_report_in *in, struct nt_buf *out, struct nt_err *err)
{
    const struct nt_profile *p = in->profile;
    const double memory[] = {p->memory.default_bytes, p->memory.static_bytes,
                             p->memory.table_bytes};
    const double first[] = {p->first_call.default_ns, p->first_call.static_ns,
                            p->first_call.table_ns};
    (void)err;

    nt_buf_puts(out, "<dl class=\"pairs\">\n");
    pair(out, "Profile", in->source);
    pair(out, "Created", p->created);
    pair(out, "By nccltune", p->tool);
    nt_buf_printf(out, "<dt>Rig</dt><dd>%s%s</dd>\n", nt_rig_names[p->rig],
                  p->rig == NT_RIG_NCCL ? ": a real node" : ": functional, not a real node");
    for (size_t i = 0; i < in->nfacts; i++) {
        pair(out, in->facts[i].name, in->facts[i].value);
    }
    pair(out, "NCCL", p->stack.nccl);
    pair(out, "SHA-256 of its file", p->stack.nccl_sha256);
    pair(out, "CUDA", p->stack.cuda);
    pair(out, "Driver", p->stack.driver);
    joined(out, "Modes", &p->modes, "not told");
    joined(out, "Data types", &p->dtypes, "not told");
    joined(out, "Placements in memory", &p->places, "not told");
    bytes_list(out, "Device memory a rank", memory, false);
    bytes_list(out, "First call", first, true);
    if (given(p->delivery.file)) {
        pair(out, "Delivery file", p->delivery.file);
    }
    nt_buf_puts(out, "</dl>\n");
    assigns("Site constraints, in every arm", &p->site, out);
    assigns("Pristine baseline", &p->baselines.pristine, out);
    if (!p->baselines.same) {
        assigns("As-found baseline", &p->baselines.as_found, out);
    }
    return 0;
}

/* ------------------------------------------------------------------ reproduce */

static void reproduce(const struct nt_profile_class *c, enum nt_product product, struct nt_buf *out)
{
    char bytes[24];

    if (c->reproduce.n < 2) {
        return;
    }
    nt_buf_printf(out, "<details><summary>%s %s %s, %s (%s)</summary>\n<p>Without:</p>\n",
                  nt_coll_names[c->coll], nt_format_bytes(c->bytes, bytes, sizeof(bytes)),
                  nt_mode_names[c->mode], nt_product_names[product],
                  nt_class_verdict_names[c->verdict]);
    nt_buf_puts(out, "<pre class=\"command\">");
    nt_markup_text(out, c->reproduce.v[0]);
    nt_buf_puts(out, "</pre>\n<p>With:</p>\n<pre class=\"command\">");
    nt_markup_text(out, c->reproduce.v[1]);
    nt_buf_puts(out, "</pre>\n</details>\n");
}

int nt_section_reproduce(const struct nt_report_in *in, struct nt_buf *out, struct nt_err *err)
{
    (void)err;
    nt_buf_puts(out, "<p>Two commands of nccl-tests a class, without the profile and with it; "
                     "published classes come first.</p>\n");
    for (int pass = 0; pass < 2; pass++) {
        for (int k = NT_PRODUCT_COUNT - 1; k >= 0; k--) {
            const struct nt_profile_classes *list = &in->profile->product[k].classes;
            const struct nt_profile_class **v = in_order(list);
            for (size_t i = 0; i < list->n; i++) {
                const struct nt_profile_class *c = v != NULL ? v[i] : &list->v[i];
                bool published = c->verdict == NT_VD_TUNED || c->verdict == NT_VD_KEPT;
                if (published == (pass == 0)) {
                    reproduce(c, (enum nt_product)k, out);
                }
            }
            free(v);
        }
    }
    return 0;
}
