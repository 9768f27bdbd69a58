#include "tuner/report/report.h"
#include "tuner/report/markup.h"
#include "tuner/report/sections.h"
#include "tuner/report/style.h"

#include <math.h>

/* Said at the top of a page whose figures are not of a real node. */
static const char *const rig_words[NT_RIG_COUNT] = {
    [NT_RIG_MPS_SOCKETS] = "real NCCL, but the ranks share one GPU and speak over sockets",
    [NT_RIG_MPS_P2P] = "real NCCL, but the ranks share one GPU",
    [NT_RIG_RECORDING] = "figures replayed from a recording",
    [NT_RIG_MODEL] = "figures of NCCL’s cost model: simulated, nothing was measured"};

struct counted {
    size_t classes, tuned, served; /* tuned: the gain is proved there; served: published along */
    double best;                   /* proved gain */
};

static struct counted count(const struct nt_profile *p)
{
    struct counted c = {0};

    for (int k = 0; k < NT_PRODUCT_COUNT; k++) {
        for (size_t i = 0; i < p->product[k].classes.n; i++) {
            const struct nt_profile_class *x = &p->product[k].classes.v[i];
            bool tuned = x->verdict == NT_VD_TUNED && !nt_served_only(x);
            c.classes++;
            c.served += nt_served_only(x);
            c.tuned += tuned;
            c.best = tuned ? fmax(c.best, x->gain) : c.best;
        }
    }
    return c;
}

static void add_head(const struct nt_report_in *in, struct nt_buf *out)
{
    const struct nt_profile *p = in->profile;
    const char *gpu =
        p->stack.gpu != NULL && p->stack.gpu[0] != '\0' ? p->stack.gpu : "unknown GPU";

    nt_buf_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src 'unsafe-inline'\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                     "<meta name=\"color-scheme\" content=\"light dark\">\n<title>nccltune: ");
    nt_markup_text(out, gpu);
    nt_buf_printf(out,
                  ", %u ranks</title>\n<style>\n%s%s</style>\n</head>\n<body>\n"
                  "<a class=\"skip\" href=\"#main\">Skip to the results</a>\n<header>\n<h1>",
                  p->ranks, nt_page_css, nt_plot_css);
    nt_markup_text(out, gpu);
    nt_buf_printf(out, ", %u ranks on %u node%s</h1>\n<p class=\"soft\">NCCL ", p->ranks, p->nodes,
                  p->nodes == 1 ? "" : "s");
    nt_markup_text(out, p->stack.nccl);
    nt_buf_puts(out, ", machine ");
    nt_markup_text(out, p->identity.id);
    nt_buf_puts(out, ", ");
    nt_markup_text(out, p->created);
    nt_buf_puts(out, ". Settings that nccltune found, proved or turned down.</p>\n");
    if (p->rig != NT_RIG_NCCL) {
        nt_buf_printf(out,
                      "<p class=\"note\" role=\"note\"><strong>Functional rig %s.</strong> Not a "
                      "real node: %s. These figures say nothing about a real node.</p>\n",
                      nt_rig_names[p->rig], rig_words[p->rig]);
    }
    if (p->health.n > 0) {
        nt_buf_puts(out, "<p class=\"note bad\" role=\"note\"><strong>Health.</strong> The machine "
                         "had findings when this was measured: ");
        for (size_t i = 0; i < p->health.n; i++) {
            nt_buf_puts(out, i > 0 ? "; " : "");
            nt_markup_text(out, p->health.v[i]);
        }
        nt_buf_puts(out, ".</p>\n");
    }
}

static void add_summary(const struct nt_report_in *in, struct nt_buf *out)
{
    struct counted c = count(in->profile);

    nt_buf_printf(out,
                  "<section aria-labelledby=\"summary\"><h2 id=\"summary\">Summary</h2>\n<dl "
                  "class=\"tiles\">\n<div><dt>classes measured</dt><dd>%zu</dd></div>\n"
                  "<div><dt>proved faster</dt><dd>%zu</dd></div>\n",
                  c.classes, c.tuned);
    if (c.served > 0) {
        nt_buf_printf(out,
                      "<div><dt>more served, not slower; a gain not proved there</dt><dd>%zu</dd>"
                      "</div>\n",
                      c.served);
    }
    if (c.tuned > 0) {
        nt_buf_printf(out, "<div><dt>largest gain</dt><dd>%.1f %% less time</dd></div>\n",
                      100 * c.best);
    }
    nt_buf_puts(out, "</dl>\n<p>");
    nt_buf_puts(out, c.classes == 0 ? "No class was measured."
                     : c.tuned + c.served == 0 && in->profile->backends.rows.n == 0
                         ? "The defaults win here: the profile is empty, and that is a result."
                     : c.tuned + c.served == 0
                         ? "NCCL’s defaults win here; who else moves the bytes faster is below."
                         : "Every class that is not published stays with NCCL’s default.");
    nt_buf_puts(out, "</p>\n</section>\n");
}

static int add_figures(const struct nt_report_in *in, struct nt_buf *out, struct nt_err *err)
{
    struct nt_figures f;
    int rc = nt_figures_new(in, &f, err);

    if (rc != 0) {
        return rc;
    }
    nt_buf_printf(
        out,
        "<p>Time of one call and, below, what was gained. Filled marks are published; hollow ones "
        "of a tuned curve were measured and turned down. Bars are 95 %% intervals. Runners-up are "
        "%s, where they take at most %.1f times the default. The figures stand in <a "
        "href=\"#classes\">tables</a> too.</p>\n",
        in->narms > 0 ? "as the search saw them" : "estimates of the search, without intervals",
        NT_FIGURE_NEAR);
    if (f.n == 0) {
        nt_buf_puts(out, "<p>Nothing was measured.</p>\n");
    }
    nt_buf_puts(out, "<div class=\"figures\">\n");
    for (size_t i = 0; i < f.n; i++) {
        nt_buf_printf(out, "<figure><h3>%s, %s</h3>\n", nt_coll_names[f.v[i].coll],
                      nt_mode_names[f.v[i].mode]);
        nt_figure_svg(&f.v[i], false, out);
        nt_buf_puts(out, "</figure>\n");
    }
    nt_buf_puts(out, "</div>\n");
    nt_raced_table(in, out);
    nt_figures_free(&f);
    return 0;
}

static const struct {
    const char *id, *title;
    int (*add)(const struct nt_report_in *in, struct nt_buf *out, struct nt_err *err);
} sections[] = {{"time", "Time over size", add_figures},
                {"served", "What a process gets", nt_section_served},
                {"classes", "Gain per class", nt_section_classes},
                {"backends", "Who moves the bytes", nt_section_backends},
                {"rejected", "Rejected, and why", nt_section_rejected},
                {"machine", "Machine", nt_section_machine},
                {"provenance", "Provenance", nt_section_provenance},
                {"reproduce", "Reproduce", nt_section_reproduce}};
enum { NSECTIONS = sizeof(sections) / sizeof(sections[0]) };

int nt_report_html(const struct nt_report_in *in, struct nt_buf *out, struct nt_err *err)
{
    int rc = 0;

    add_head(in, out);
    nt_buf_puts(out, "<nav aria-label=\"Sections\"><ul>\n");
    for (size_t i = 0; i < NSECTIONS; i++) {
        nt_buf_printf(out, "<li><a href=\"#%s\">%s</a></li>\n", sections[i].id, sections[i].title);
    }
    nt_buf_puts(out, "</ul></nav>\n</header>\n<main id=\"main\" tabindex=\"-1\">\n");
    add_summary(in, out);
    for (size_t i = 0; rc == 0 && i < NSECTIONS; i++) {
        nt_buf_printf(out, "<section aria-labelledby=\"%s\"><h2 id=\"%s\">%s</h2>\n",
                      sections[i].id, sections[i].id, sections[i].title);
        rc = sections[i].add(in, out, err);
        nt_buf_puts(out, "</section>\n");
    }
    nt_buf_puts(out, "</main>\n<footer class=\"soft\"><p>Made by nccltune; nothing is loaded from "
                     "elsewhere and no script runs.</p></footer>\n</body>\n</html>\n");
    if (rc == 0 && out->failed) {
        rc = nt_fail(err, NT_E_INVAL, 0, "the report would be above %d MiB",
                     NT_REPORT_MAX_BYTES >> 20);
    }
    return rc;
}
