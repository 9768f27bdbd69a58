/*
 * report - one self-contained HTML page about a profile: what was measured, gained, rejected, where
 * and how to repeat it. Pure: text in, text out. No script and nothing loaded; a policy in the page
 * forbids both.
 *
 * Units      *_ns nanoseconds, bytes are bytes, gains fractions.
 * Foreign    profiles, databases and topologies are other people's: every text is escaped, and
 *            what would hide or reorder words on the screen is shown as U+FFFD.
 * Ownership  everything in nt_report_in is borrowed until the call returns; nt_figures_free() frees
 *            what nt_figures_new() gave, which borrows the names of its input.
 * Errors     0 or -enum nt_code; a page above NT_REPORT_MAX_BYTES is -NT_E_INVAL.
 */
#pragma once
#include "profiles/json/profile.h"

#define NT_FIGURE_NEAR 1.5 /* a setting is a runner-up where it takes up to so many defaults */
enum { NT_REPORT_MAX_BYTES = 64 << 20, NT_FIGURE_RUNNERS = 3, NT_FIGURE_SERIES = 7 };

/* One setting in one case as the search of a job saw it. */
struct nt_report_arm {
    int coll, mode;
    uint64_t bytes;
    const char *setting;
    double ns, lo_ns, hi_ns; /* 95 %; NAN: not known */
    bool rejected;
    const char *why; /* rejected: the reason */
};
struct nt_report_fact {
    const char *name, *value;
};
struct nt_report_in {
    const struct nt_profile *profile;
    const char *source;               /* where the profile came from, for people */
    const struct nt_report_arm *arms; /* none: the runners-up of the profile are shown */
    size_t narms;
    const struct nt_report_fact *facts; /* further lines of provenance */
    size_t nfacts;
    const char *drawing; /* of the topology, as text; NULL: not known */
};

NT_MUST_CHECK int nt_report_html(const struct nt_report_in *in, struct nt_buf *out,
                                 struct nt_err *err);

/* ------------------------------------------------------------------ the figures */

enum nt_series_kind {
    NT_SERIES_DEFAULT,
    NT_SERIES_AS_FOUND,
    NT_SERIES_TABLE,
    NT_SERIES_STATIC,
    NT_SERIES_RUNNER
};
struct nt_figure_point {
    int coll, mode, kind; /* kind: enum nt_series_kind */
    const char *name;     /* of the series; a setting for runners-up */
    uint64_t bytes;
    double ns, lo_ns, hi_ns;
    double gain, gain_lo, gain_hi; /* table and static; NAN elsewhere */
    bool published;                /* stands in the product; of the default: told by the profile */
};
struct nt_series {
    const struct nt_figure_point *v; /* ascending by bytes */
    size_t n;
    double score; /* of runners-up: how near to the best, over how many sizes */
};
/* One collective in one mode; series in the order of their kind. */
struct nt_figure {
    int coll, mode;
    struct nt_series series[NT_FIGURE_SERIES];
    size_t nseries;
};
struct nt_figures {
    struct nt_figure *v; /* by collective, then mode */
    size_t n;
    struct nt_figure_point *points;
};
NT_MUST_CHECK int nt_figures_new(const struct nt_report_in *in, struct nt_figures *ret,
                                 struct nt_err *err);
void nt_figures_free(struct nt_figures *f);

/* Appends an <svg> element. alone: a document of its own, with its title and style inside. */
void nt_figure_svg(const struct nt_figure *f, bool alone, struct nt_buf *out);
