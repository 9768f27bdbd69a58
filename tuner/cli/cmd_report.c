/* report: one HTML page about a profile, and its plots as files. */
#include "tuner/cli/commands.h"
#include "tuner/cli/profile_arg.h"
#include "tuner/cli/report_job.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct report_args {
    const char *out, *db, *svg, *topology;
    bool png;
};
static const struct report_args defaults = {.out = "nccltune-report.html"};

#define T report_args
static const struct nt_opt opts[] = {
    NT_OPT(NT_O_STR, T, out, "out", 'o', "FILE",
           "page to write; - is stdout (default ./nccltune-report.html)"),
    NT_OPT(NT_O_STR, T, svg, "svg", 0, "DIR", "also each plot as DIR/COLLECTIVE-MODE.svg"),
    NT_OPT(NT_O_FLAG, T, png, "png", 0, NULL,
           "with --svg: also as PNG, by rsvg-convert, inkscape or ImageMagick"),
    NT_OPT(NT_O_STR, T, topology, "topology", 0, "FILE",
           "NCCL topology XML or `nvidia-smi topo -m` to draw (default the job's own)"),
    NT_OPT(NT_O_STR, T, db, "db", 0, "FILE",
           "database of the job (default NCCLTUNE_DB, else the user's own)"),
    {0}};
#undef T

/* ------------------------------------------------------------------ plots as files */

/* NULL stands for nothing, "SVG" and "PNG" for the files. The first that is installed is used. */
static const char *const converters[][7] = {
    {"rsvg-convert", "--zoom=2", "--output", "PNG", "SVG"},
    {"inkscape", "SVG", "--export-type=png", "--export-filename", "PNG"},
    {"magick", "SVG", "PNG"},
    {"convert", "SVG", "PNG"}};

/* 0 done, 127 not installed, else its exit status. */
static int convert_by(const char *const *words, const char *svg, const char *png)
{
    char *argv[8] = {NULL};
    pid_t pid;
    int status = 0;

    for (size_t i = 0; i < 7 && words[i] != NULL; i++) {
        const char *w = strcmp(words[i], "SVG") == 0   ? svg
                        : strcmp(words[i], "PNG") == 0 ? png
                                                       : words[i];
        argv[i] = (char *)(uintptr_t)w;
    }
    if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0) {
        return 127;
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return 1;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int make_png(const char *svg, const char *png, struct nt_err *err)
{
    int status = 127;

    for (size_t i = 0; status == 127 && i < sizeof(converters) / sizeof(converters[0]); i++) {
        status = convert_by(converters[i], svg, png);
    }
    if (status == 127) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "--png needs rsvg-convert (librsvg2-bin), inkscape or ImageMagick");
    }
    return status == 0 ? 0 : nt_fail(err, NT_E_IO, 0, "%s: the converter failed (%d)", png, status);
}

static int plot_name(const struct report_args *a, const struct nt_figure *f, const char *ending,
                     char out[PATH_MAX], struct nt_err *err)
{
    int n = snprintf(out, PATH_MAX, "%s/%s-%s.%s", a->svg, nt_coll_names[f->coll],
                     nt_mode_names[f->mode], ending);

    return n < 0 || n >= PATH_MAX ? nt_fail(err, NT_E_INVAL, 0, "--svg: the name is too long") : 0;
}

static int write_plot(const struct report_args *a, const struct nt_figure *f, struct nt_err *err)
{
    char svg[PATH_MAX];
    struct nt_buf b;
    int rc = plot_name(a, f, "svg", svg, err);

    nt_buf_init(&b, NT_REPORT_MAX_BYTES);
    if (rc == 0) {
        nt_figure_svg(f, true, &b);
        rc = b.failed ? nt_fail(err, NT_E_INVAL, 0, "%s would be too large", svg)
                      : nt_write_file(svg, b.data, b.len, 0644, err);
    }
    nt_buf_done(&b);
    return rc;
}

static int convert_plot(const struct report_args *a, const struct nt_figure *f, struct nt_err *err)
{
    char svg[PATH_MAX], png[PATH_MAX];
    int rc = plot_name(a, f, "svg", svg, err);

    rc = rc == 0 ? plot_name(a, f, "png", png, err) : rc;
    return rc == 0 ? make_png(svg, png, err) : rc;
}

static int write_plots(const struct report_args *a, const struct nt_report_in *in,
                       struct nt_err *err)
{
    struct nt_figures f;
    int rc;

    if (mkdir(a->svg, 0755) != 0 && errno != EEXIST) {
        return nt_fail(err, NT_E_IO, errno, "--svg %s", a->svg);
    }
    rc = nt_figures_new(in, &f, err);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < f.n; i++) {
        rc = write_plot(a, &f.v[i], err);
    }
    for (size_t i = 0; rc == 0 && a->png && i < f.n; i++) { /* a converter may be broken */
        rc = convert_plot(a, &f.v[i], err);
    }
    nt_figures_free(&f);
    return rc;
}

/* ------------------------------------------------------------------ the command */

static int draw_file(const char *path, struct nt_buf *drawing, struct nt_err *err)
{
    struct nt_buf text;
    int rc;

    nt_buf_init(&text, NT_PROFILE_MAX_BYTES);
    nt_buf_clear(drawing);
    rc = nt_buf_read_file(&text, path, err);
    rc = rc == 0 ? nt_wrap(err, nt_report_draw(nt_buf_str(&text), text.len, drawing, err),
                           "--topology %s", path)
                 : rc;
    nt_buf_done(&text);
    return rc;
}

static int load(const struct report_args *a, const char *arg, struct nt_profile **ret,
                struct nt_report_job *job, struct nt_err *err)
{
    struct nt_store *s = NULL;
    int64_t number = 0;
    int rc;

    nt_buf_init(&job->drawing, NT_PROFILE_MAX_BYTES);
    if (!nt_arg_is_job(arg, &number)) {
        rc = nt_profile_load(arg, ret, err);
    } else {
        rc = nt_open_to_read(a->db, &s, err);
        rc = rc == 0 ? nt_load_job_profile(s, number, ret, err) : rc;
        rc = rc == 0 ? nt_report_job_load(s, number, job, err) : rc;
        nt_store_close(s);
    }
    return rc == 0 && a->topology != NULL ? draw_file(a->topology, &job->drawing, err) : rc;
}

static int write_page(const struct report_args *a, const struct nt_report_in *in,
                      struct nt_err *err)
{
    struct nt_buf page;
    int rc;

    nt_buf_init(&page, NT_REPORT_MAX_BYTES);
    rc = nt_report_html(in, &page, err);
    if (rc == 0 && strcmp(a->out, "-") == 0) {
        (void)fwrite(page.data, 1, page.len, stdout);
    } else if (rc == 0) {
        rc = nt_write_file(a->out, page.data, page.len, 0644, err);
        if (rc == 0) {
            (void)printf("%s: the page, for a browser\n", a->out);
        }
    }
    nt_buf_done(&page);
    return rc;
}

static int run_report(const void *opts_, unsigned nargs, char **args, struct nt_err *err)
{
    const struct report_args *a = opts_;
    struct nt_profile *p = NULL;
    struct nt_report_job job = {0};
    int rc = a->png && a->svg == NULL ? nt_fail(err, NT_E_INVAL, 0, "--png goes with --svg DIR")
                                      : nt_write_apart(a->out, args[0], err);
    (void)nargs;
    rc = rc == 0 ? load(a, args[0], &p, &job, err) : rc;

    if (rc == 0) {
        struct nt_report_in in = {.profile = p,
                                  .source = args[0],
                                  .arms = job.arms,
                                  .narms = job.narms,
                                  .facts = job.facts,
                                  .nfacts = job.nfacts,
                                  .drawing = nt_buf_str(&job.drawing)};
        rc = write_page(a, &in, err);
        rc = rc == 0 && a->svg != NULL ? write_plots(a, &in, err) : rc;
    }
    nt_report_job_done(&job);
    nt_profile_free(p);
    return rc;
}

const struct nt_command nt_cmd_report = {
    .name = "report",
    .summary = "one self-contained HTML page about a profile or a job, with plots",
    .args = "PROFILE|JOB",
    .min_args = 1,
    .max_args = 1,
    .opts = opts,
    .defaults = &defaults,
    .size = sizeof(struct report_args),
    .run = run_report,
    .details =
        "Time over size for the default, what was tuned and the runners-up, with intervals; the "
        "gain of every class; what was rejected and why; the machine, the stack and where the "
        "figures come from; and two commands of nccl-tests for every class.\n\n"
        "The page loads nothing and runs no script; it follows the reader's light or dark theme "
        "and fits a phone. The report of a job knows more than that of its profile: intervals of "
        "all settings that were raced, and the drawing of the topology."};
