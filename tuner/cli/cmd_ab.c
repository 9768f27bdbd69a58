/* ab: did the user's own figure rise? A command in turns with a profile and without. */
#include "tuner/cli/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "profiles/format/receipt.h"
#include "tuner/base/json.h"
#include "tuner/base/rng.h"
#include "tuner/base/text.h"
#include "tuner/cli/ab_child.h"
#include "tuner/cli/engine_arg.h"
#include "tuner/deliver/ab.h"
#include "tuner/deliver/ended.h"
#include "tuner/deliver/figure.h"
#include "tuner/deliver/manifest.h"
#include "tuner/deliver/safe.h"

enum { MAX_OUTPUT = 4 << 20 };

struct ab_args {
    struct nt_run_opts run; /* first: the rows of NT_RUN_ROWS() */
    const char *figure, *in, *better, *between, *format;
    uint32_t pairs;
    uint64_t budget_ns, timeout_ns, seed;
    double no_slower;
    bool seconds, unproven, verbose;
};
static const char *const formats[] = {"text", "json", NULL};
static const char *const betters[] = {"higher", "lower", NULL};
static const struct ab_args ab_defaults = {
    .format = "text", .pairs = 6, .timeout_ns = UINT64_C(3600) * 1000000000U, .seed = 1};

static const struct nt_opt ab_opts[] = {
    NT_RUN_ROWS("the profile to compare with none"),
    NT_OPT(NT_O_STR, ab_args, figure, "figure", 0, "NAME=REGEX",
           "the number in the first group of REGEX (POSIX extended) where it matches last in what "
           "the command prints"),
    NT_OPT(NT_O_STR, ab_args, in, "in", 0, "FILE",
           "look for the figure in this file, which each run writes anew, instead"),
    NT_OPT(NT_O_FLAG, ab_args, seconds, "seconds", 0, NULL,
           "the figure is the command's wall time; less is better"),
    {.name = "better",
     .type = NT_O_STR,
     .offset = offsetof(struct ab_args, better),
     .arg = "WHICH",
     .help = "which figure is better (default higher for a NAME that ends in /s; else it must be "
             "said)",
     .choices = betters},
    NT_OPT(NT_O_U32, ab_args, pairs, "pairs", 0, "COUNT",
           "pairs of runs, one with and one without, 2 to 60 (default 6)"),
    NT_OPT(NT_O_DOUBLE, ab_args, no_slower, "no-slower", 0, "PERCENT",
           "exit 0 also when it is proved that no more than this is lost (default 0: only when it "
           "is faster)"),
    NT_OPT(NT_O_DURATION, ab_args, budget_ns, "budget", 0, "TIME",
           "start no pair that would not be done by then, as 30m (default none)"),
    NT_OPT(NT_O_DURATION, ab_args, timeout_ns, "timeout", 0, "TIME",
           "end a run, and all that it started, after this time (default 1h)"),
    NT_OPT(NT_O_STR, ab_args, between, "between", 0, "COMMAND",
           "run by sh between any two runs, without the profile; to clear caches, to wait"),
    NT_OPT(NT_O_FLAG, ab_args, unproven, "unproven", 0, NULL,
           "count runs although no receipt proves that the profile was applied in them"),
    NT_OPT(NT_O_U64, ab_args, seed, "seed", 0, "N", "which of the two comes first (default 1)"),
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(struct ab_args, format),
     .arg = "FORM",
     .help = "text or json (default text)",
     .choices = formats},
    NT_OPT(NT_O_FLAG, ab_args, verbose, "verbose", 'v', NULL,
           "show what the command prints, on stderr"),
    {0}};

struct ab {
    const struct ab_args *o;
    const char *const *argv;
    struct nt_ab a;
    struct nt_figure_spec figure;
    char folder[PATH_MAX - 160], mark[96];
    unsigned runs;
    int signals;
    bool interrupted;
};

/* ---- what was asked for ---- */

static int check_environment(struct nt_err *err)
{
    const char *off = getenv("NCCLTUNE_DISABLE"), *other = getenv("NCCLTUNE_PROFILE");

    if (off != NULL && off[0] != '\0' && strcmp(off, "0") != 0) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "NCCLTUNE_DISABLE is set: no run would have the profile; unset it");
    }
    if (other != NULL && other[0] != '\0') {
        return nt_fail(err, NT_E_INVAL, 0,
                       "NCCLTUNE_PROFILE is set: the runs without would have a profile too; start "
                       "this from an environment that has none, outside of 'nccltune run'");
    }
    return 0;
}

static int take_direction(struct ab *b, struct nt_err *err)
{
    const struct ab_args *o = b->o;
    size_t len = strlen(b->a.name);

    if (o->better != NULL) {
        b->a.higher = strcmp(o->better, "higher") == 0;
    } else if (o->seconds) {
        b->a.higher = false;
    } else if (len > 2 && strcmp(b->a.name + len - 2, "/s") == 0) {
        b->a.higher = true;
    } else {
        return nt_fail(err, NT_E_INVAL, 0, "--better higher or --better lower: which %s is better?",
                       b->a.name);
    }
    return 0;
}

static int take_figure(struct ab *b, struct nt_err *err)
{
    const struct ab_args *o = b->o;
    int rc = 0;

    if ((o->figure != NULL) == o->seconds) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "what is to be compared? Either --figure NAME=REGEX, as in "
                       "--figure 'tok/s=throughput: ([0-9.]+)', or --seconds");
    }
    if (o->in != NULL && o->seconds) {
        return nt_fail(err, NT_E_INVAL, 0, "--in says where a --figure is");
    }
    if (o->figure != NULL) {
        rc = nt_figure_open(o->figure, &b->figure, err);
    }
    (void)snprintf(b->a.name, sizeof(b->a.name), "%s", o->seconds ? "seconds" : b->figure.name);
    return rc == 0 ? take_direction(b, err) : rc;
}

static int check_profile(const struct ab_args *o, struct nt_err *err)
{
    const struct nt_profile_product *product;
    struct nt_profile *p = NULL;
    int rc;

    if (o->run.profile == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "--profile PROFILE is missing");
    }
    rc = nt_profile_load(o->run.profile, &p, err);
    if (rc != 0) {
        return rc;
    }
    product = &p->product[o->run.variables_only ? NT_STATIC : NT_TABLE];
    if (product->present && product->rows.n == 0 && product->vars.n == 0 && o->run.engine == NULL) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: with it and without it are the same%s",
                     nt_engine_arg_nothing(p),
                     p->backends.rows.n > 0 ? "; --engine sglang or vllm tells the program" : "");
    }
    nt_profile_free(p);
    return rc;
}

static int take_options(struct ab *b, struct nt_err *err)
{
    const struct ab_args *o = b->o;
    int rc;

    if (o->pairs < NT_AB_LEAST_PAIRS || o->pairs > NT_AB_PAIRS) {
        return nt_fail(err, NT_E_INVAL, 0, "%u pairs: must be %d to %d", o->pairs,
                       NT_AB_LEAST_PAIRS, NT_AB_PAIRS);
    }
    if (!(o->no_slower >= 0 && o->no_slower < 100)) {
        return nt_fail(err, NT_E_INVAL, 0, "--no-slower %g: a share of 0 to 100 %%", o->no_slower);
    }
    b->a.slower = o->no_slower / 100;
    b->a.wanted = o->pairs;
    rc = check_environment(err);
    rc = rc == 0 ? take_figure(b, err) : rc;
    return rc == 0 ? check_profile(o, err) : rc;
}

/* Before anything runs: does it fit, could it be proved? */
static int try_profile(struct ab *b, struct nt_err *err)
{
    struct nt_run_opts dry = b->o->run;
    struct nt_ab_child c = {.argv = b->argv,
                            .run = &dry,
                            .id = b->a.id,
                            .with = true,
                            .mark = b->mark,
                            .signals = b->signals,
                            .log = -1,
                            .timeout_ns = b->o->timeout_ns};
    struct nt_ab_end end;
    struct nt_why why = {""};
    char path[PATH_MAX];
    int fd, rc;

    dry.dry_run = true;
    rc = nt_ab_child_run(&c, &end, err);
    if (rc != 0 || end.interrupted) {
        b->interrupted = rc == 0;
        return rc;
    }
    fd = nt_receipt_folder(path, sizeof(path), &why);
    if (fd >= 0) {
        (void)close(fd);
    } else if (!b->o->unproven) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "no folder of receipts, so nothing could prove that the profile is applied "
                       "(%s): set NCCLTUNE_RECEIPTS to one in memory that is yours alone (mode "
                       "0700), or count runs without proof, --unproven",
                       why.text);
    }
    return 0;
}

/* ---- one run ---- */

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static void NT_PRINTF(2, 3) not_counted(struct nt_ab_run *r, const char *fmt, ...)
{
    va_list ap;

    if (r->why[0] == '\0') {
        va_start(ap, fmt);
        (void)vsnprintf(r->why, sizeof(r->why), fmt, ap);
        va_end(ap);
    }
}

/* from: where the figure is; NULL: it cannot be read. */
static void take_printed(const struct ab *b, FILE *from, const char *where, struct nt_ab_run *r)
{
    struct nt_figure_found *f = calloc(1, sizeof(*f));
    char chunk[16384];
    size_t n;

    while (f != NULL && from != NULL && (n = fread(chunk, 1, sizeof(chunk), from)) > 0) {
        nt_figure_feed(&b->figure, chunk, n, f);
    }
    if (f == NULL || from == NULL) {
        not_counted(r, "%.100s cannot be read: %s", where, strerror(errno));
    } else {
        nt_figure_end(&b->figure, f);
        if (f->matches == 0) {
            not_counted(r, "no figure: nothing in %.120s matches --figure", where);
        } else if (!f->number) {
            not_counted(r, "no figure: '%.79s' in %.120s is no number", f->text, where);
        } else if (!(f->last.value > 0)) {
            not_counted(r, "the figure is %g: it must be above 0", f->last.value);
        } else {
            r->value = f->last.value;
            r->step = f->last.step;
            (void)snprintf(r->unit, sizeof(r->unit), "%s", f->last.unit);
        }
    }
    free(f);
}

/* What tells a file from the same one written again: of clocks and file systems' idea of the time
 * nothing is assumed, only that a write leaves another one. */
static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* before: the file of --in when the run began; NULL: there was none. */
static void take_value(const struct ab *b, const struct stat *before, struct nt_ab_run *r)
{
    const char *where = b->o->in != NULL ? b->o->in : r->log;
    struct stat st;
    FILE *from;

    if (b->o->seconds) {
        r->value = r->seconds;
        (void)snprintf(r->unit, sizeof(r->unit), "s");
        if (!(r->value > 0)) {
            not_counted(r, "it took no time");
        }
        return;
    }
    if (before != NULL && stat(where, &st) == 0 && same_file(before, &st)) {
        not_counted(r, "no figure: %.120s was not written by this run", where);
        return;
    }
    from = fopen(where, "re");
    take_printed(b, from, where, r);
    if (from != NULL) {
        (void)fclose(from);
    }
}

static void take_end(const struct ab *b, const struct nt_ab_end *end, struct nt_ab_run *r)
{
    char t[32];

    r->seconds = end->seconds;
    if (end->timed_out) {
        not_counted(r, "not done after %s and ended (--timeout); %.100s",
                    nt_format_ns((double)b->o->timeout_ns, t, sizeof(t)), r->log);
    } else if (end->spewed) {
        not_counted(r, "printed more than %d MiB and was ended; %.100s", NT_AB_LOG_MOST >> 20,
                    r->log);
    } else if (end->signal != 0) {
        not_counted(r, "ended by signal %d (%s); %.100s", end->signal, strsignal(end->signal),
                    r->log);
    } else if (end->status != 0) {
        not_counted(r, "exit code %d; %.100s", end->status, r->log);
    }
}

/* Did the profile get there? */
static void take_receipts(struct ab *b, const json_t *manifest, struct nt_ab_run *r)
{
    struct nt_ended ended = {.receipts = 0};
    struct nt_err err = {.code = NT_OK};

    (void)snprintf(b->a.profile, sizeof(b->a.profile), "%s",
                   nt_json_opt_str(json_object_get(manifest, "profile"), "hash", ""));
    if (!nt_ended_can_prove(manifest)) {
        (void)snprintf(r->applied, sizeof(r->applied), "no plugin of ours goes with this");
    } else if (nt_ended(manifest, &ended, &err) != 0) {
        (void)snprintf(r->applied, sizeof(r->applied), "%.150s", err.msg);
    } else if (ended.job.counted == 0) {
        (void)snprintf(r->applied, sizeof(r->applied),
                       "no process made a communicator with the profile%s",
                       ended.receipts > 0 ? " (it was told, and made none)" : "");
    } else {
        (void)snprintf(r->applied, sizeof(r->applied), "%.150s", ended.job.text);
    }
    if (!ended.job.applied && !b->o->unproven) {
        not_counted(r, "profile not proved: %.120s%s%.120s; --unproven counts it all the same",
                    r->applied, ended.why[0] != '\0' ? "; " : "", ended.why);
    }
}

/* Kept with the run, so that `diff` shows it and `note` can add to it. */
static int annotate(const struct ab *b, unsigned pair, enum nt_ab_arm arm,
                    const struct nt_ab_run *r, json_t **ret, struct nt_err *err)
{
    char figure[128], words[512], *notes[2] = {words, figure};

    (void)snprintf(words, sizeof(words), "ab=%s, pair %u, %s the profile%s%s", b->a.id, pair + 1,
                   nt_ab_arm_names[arm], r->why[0] != '\0' ? ", does not count: " : "", r->why);
    nt_text_plain(words);
    (void)snprintf(figure, sizeof(figure), "%s=%.17g", b->a.name, r->value);
    return nt_manifest_annotate(r->id, notes, r->value > 0 ? 2 : 1, ret, err);
}

static void say_run(const struct ab *b, unsigned pair, enum nt_ab_arm arm,
                    const struct nt_ab_run *r)
{
    char took[32];

    (void)fprintf(stderr, "nccltune: pair %u of %u, %s: ", pair + 1, b->o->pairs,
                  nt_ab_arm_names[arm]);
    if (r->value > 0) {
        (void)fprintf(stderr, "%s %.6g%s%s, ", b->a.name, r->value, r->unit[0] != '\0' ? " " : "",
                      r->unit);
    }
    (void)fprintf(stderr, "took %s", nt_format_ns(r->seconds * 1e9, took, sizeof(took)));
    (void)fprintf(stderr, "%s%s%s%s\n", r->applied[0] != '\0' ? ", " : "", r->applied,
                  r->why[0] != '\0' ? ", does not count: " : "", r->why);
}

/* The run's own words are gone with it when it was cut off. */
static void drop_run(const struct nt_ab_run *r)
{
    nt_manifest_drop(r->id);
    (void)unlink(r->log);
}

static int do_run(struct ab *b, unsigned pair, enum nt_ab_arm arm, struct nt_ab_run *r,
                  json_t **ret_manifest, struct nt_err *err)
{
    struct nt_ab_child c = {.argv = b->argv,
                            .run = &b->o->run,
                            .id = r->id,
                            .with = arm == NT_AB_WITH,
                            .mark = b->mark,
                            .signals = b->signals,
                            .timeout_ns = b->o->timeout_ns,
                            .show = b->o->verbose};
    char path[PATH_MAX];
    struct nt_ab_end end = {.status = 0};
    struct stat before;
    bool there = b->o->in != NULL && stat(b->o->in, &before) == 0;
    int rc;

    (void)snprintf(r->id, sizeof(r->id), "%.40s.%u", b->a.id, ++b->runs);
    (void)snprintf(path, sizeof(path), "%s/%s.log", b->folder, r->id);
    (void)snprintf(r->log, sizeof(r->log), "%.255s", path);
    c.log = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (c.log < 0) {
        return nt_fail(err, NT_E_IO, errno, "%s", path);
    }
    rc = nt_ab_child_run(&c, &end, err);
    (void)close(c.log);
    if (rc != 0 || end.interrupted) {
        b->interrupted = rc == 0;
        drop_run(r);
        return rc;
    }
    take_end(b, &end, r);
    if (r->why[0] == '\0') {
        take_value(b, there ? &before : NULL, r);
    }
    rc = nt_manifest_load(r->id, ret_manifest, err);
    if (rc != 0) {
        return nt_wrap(err, rc, "the run's manifest was not kept (%.200s says why)", r->log);
    }
    if (arm == NT_AB_WITH) {
        take_receipts(b, *ret_manifest, r);
    }
    json_decref(*ret_manifest);
    *ret_manifest = NULL;
    rc = annotate(b, pair, arm, r, ret_manifest, err);
    say_run(b, pair, arm, r);
    return rc;
}

static int do_between(struct ab *b, struct nt_err *err)
{
    const char *const argv[] = {"sh", "-c", b->o->between, NULL};
    struct nt_ab_child c = {.argv = argv,
                            .mark = b->mark,
                            .signals = b->signals,
                            .log = -1,
                            .timeout_ns = b->o->timeout_ns};
    struct nt_ab_end end;
    int rc = nt_ab_child_run(&c, &end, err);

    if (rc == 0 && end.interrupted) {
        b->interrupted = true;
    } else if (rc == 0 && (end.timed_out || end.signal != 0 || end.status != 0)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "--between '%.100s' %s (exit code %d)", b->o->between,
                     end.timed_out ? "was not done in time" : "failed", end.status);
    }
    return rc;
}

/* ---- all pairs ---- */

/* A run is held against the first one of all: figures of two units are not comparable. */
static void check_units(struct nt_ab *a, struct nt_ab_pair *p)
{
    const char *first = a->v[0].run[a->v[0].first].unit;

    for (int arm = 0; arm < NT_AB_ARMS; arm++) {
        struct nt_ab_run *r = &p->run[arm];
        if (r->why[0] == '\0' && a->v[0].run[a->v[0].first].why[0] == '\0' &&
            strcmp(r->unit, first) != 0) {
            not_counted(r, "the figure is in '%s', that of the first run in '%s'", r->unit, first);
        }
    }
}

static int do_pair(struct ab *b, unsigned pair, unsigned draw, struct nt_err *err)
{
    struct nt_ab_pair *p = &b->a.v[pair];
    json_t *m[NT_AB_ARMS] = {NULL, NULL};
    int rc = 0;

    *p = (struct nt_ab_pair){.first = nt_ab_first(pair, draw)};
    for (unsigned k = 0; k < NT_AB_ARMS && rc == 0 && !b->interrupted; k++) {
        enum nt_ab_arm arm = (enum nt_ab_arm)((unsigned)p->first ^ k);
        if (b->o->between != NULL && b->runs > 0) {
            rc = do_between(b, err);
        }
        if (rc == 0 && !b->interrupted) {
            rc = do_run(b, pair, arm, &p->run[arm], &m[arm], err);
        }
    }
    if (rc == 0 && !b->interrupted) {
        b->a.n++;
        check_units(&b->a, p);
        rc = nt_ab_counts(p) ? nt_ab_compare(&b->a, m[NT_AB_WITHOUT], m[NT_AB_WITH], err) : 0;
    }
    json_decref(m[NT_AB_WITHOUT]);
    json_decref(m[NT_AB_WITH]);
    return rc;
}

static int do_pairs(struct ab *b, struct nt_err *err)
{
    struct nt_rng rng;
    uint64_t begun = now_ns(), longest = 0;
    unsigned draw;
    int rc = 0;

    nt_rng_seed(&rng, b->o->seed);
    draw = (unsigned)nt_rng_below(&rng, 2);
    for (unsigned i = 0; i < b->o->pairs && rc == 0 && !b->interrupted; i++) {
        uint64_t at = now_ns(), took;
        if (b->o->budget_ns > 0 && i > 0 && at - begun + longest > b->o->budget_ns) {
            (void)fprintf(stderr,
                          "nccltune: another pair would not be done in the --budget: %u of %u\n", i,
                          b->o->pairs);
            break;
        }
        rc = do_pair(b, i, draw, err);
        took = now_ns() - at;
        longest = took > longest ? took : longest;
        if (nt_ab_hopeless(&b->a)) {
            break;
        }
    }
    return rc;
}

/* ---- the answer ---- */

static int print_answer(const struct ab *b, const struct nt_ab_answer *x, struct nt_err *err)
{
    struct nt_buf out;
    int rc;

    nt_buf_init(&out, MAX_OUTPUT);
    if (strcmp(b->o->format, "json") == 0) {
        json_t *o = nt_ab_json(&b->a, x);
        if (o != NULL) {
            nt_json_dump(o, true, &out);
            nt_buf_puts(&out, "\n");
        }
        json_decref(o);
    } else {
        nt_ab_text(&b->a, x, &out);
    }
    rc = out.failed || out.len == 0 ? nt_fail(err, NT_E_NOMEM, 0, "answer") : 0;
    (void)fputs(nt_buf_str(&out), stdout);
    nt_buf_done(&out);
    return rc;
}

/* The answer stays with the last run that had the profile. */
static void keep_answer(const struct ab *b, const struct nt_ab_answer *x)
{
    const struct nt_ab_run *r = &b->a.v[b->a.n - 1].run[NT_AB_WITH];
    struct nt_buf note;
    char *notes[1];
    json_t *m = NULL;

    nt_buf_init(&note, 1024);
    nt_buf_puts(&note, "ab-answer=");
    nt_ab_sentence(&b->a, x, &note);
    notes[0] = note.data;
    if (!note.failed && nt_manifest_annotate(r->id, notes, 1, &m, NULL) == 0) {
        json_decref(m);
    }
    nt_buf_done(&note);
}

/* Pairs do not come about: who is to blame? */
static int why_not(const struct nt_ab *a, struct nt_err *err)
{
    const struct nt_ab_run *first[NT_AB_ARMS] = {NULL, NULL};

    for (size_t i = a->n; i-- > 0;) {
        for (int arm = 0; arm < NT_AB_ARMS; arm++) {
            first[arm] = a->v[i].run[arm].why[0] != '\0' ? &a->v[i].run[arm] : first[arm];
        }
    }
    if (first[NT_AB_WITHOUT] != NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "the command does not work here without the profile: %s",
                       first[NT_AB_WITHOUT]->why);
    }
    return nt_fail(err, NT_E_NO, 0,
                   "the profile is not applied, or the command does not work with it: %s",
                   first[NT_AB_WITH]->why);
}

static int finish(struct ab *b, struct nt_err *err)
{
    static const int codes[] = {[NT_AB_FASTER] = 0,
                                [NT_AB_NO_SLOWER] = 0,
                                [NT_AB_SLOWER] = -NT_E_NO,
                                [NT_AB_CANNOT_TELL] = -NT_E_NOISY};
    struct nt_ab_answer x;
    int rc;

    nt_ab_judge(&b->a, &x);
    if (b->a.n > 0) {
        rc = print_answer(b, &x, err);
        keep_answer(b, &x);
        if (rc != 0) {
            return rc;
        }
    }
    if (b->interrupted) {
        return nt_fail(err, NT_E_INTERRUPTED, 0, "interrupted after %zu pair%s", b->a.n,
                       b->a.n == 1 ? "" : "s");
    }
    return nt_ab_hopeless(&b->a) ? why_not(&b->a, err) : codes[x.verdict];
}

static int run_ab(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    struct ab *b = calloc(1, sizeof(*b));
    const char **argv = calloc(nargs + 1U, sizeof(*argv));
    int rc;

    if (b == NULL || argv == NULL) {
        free(b);
        free(argv);
        return nt_fail(err, NT_E_NOMEM, 0, "ab");
    }
    memcpy(argv, args, nargs * sizeof(*argv));
    b->o = opts;
    b->argv = argv;
    b->signals = -1;
    nt_run_new_id(b->a.id, sizeof(b->a.id));
    (void)snprintf(b->mark, sizeof(b->mark), "NCCLTUNE_AB=%s", b->a.id);
    rc = take_options(b, err);
    rc = rc == 0 ? nt_state_folder("runs", b->folder, sizeof(b->folder), err) : rc;
    rc = rc == 0 ? nt_ab_signals_open(&b->signals, err) : rc;
    rc = rc == 0 ? try_profile(b, err) : rc;
    rc = rc == 0 && !b->interrupted ? do_pairs(b, err) : rc;
    rc = rc == 0 ? finish(b, err) : rc;
    if (b->signals >= 0) {
        (void)close(b->signals);
    }
    nt_figure_close(&b->figure);
    free(argv);
    free(b);
    return rc;
}

const struct nt_command nt_cmd_ab = {
    .name = "ab",
    .summary = "a command in turns with a profile and without: did its own figure rise?",
    .args = "[options] --profile PROFILE (--figure NAME=REGEX | --seconds) -- COMMAND [ARG...]",
    .min_args = 1,
    .max_args = UINT_MAX,
    .opts = ab_opts,
    .defaults = &ab_defaults,
    .size = sizeof(struct ab_args),
    .run = run_ab,
    .hands_on = true,
    .details =
        "Starts the command as 'nccltune run' does, in turns with the profile and with "
        "NCCLTUNE_DISABLE=1 and nothing of ours, in the order A B B A B A A B. Each run has its "
        "manifest, and its output goes to a log beside it. The figure is read from what the "
        "command prints; thousands, units of time and k, M, G are understood. A pair counts when "
        "both runs end with 0 and print a figure, and the receipts prove that the profile was "
        "applied in every process that made a communicator. As soon as more pairs are lost than "
        "count, it stops.\n\nThe answer is the mean gain with its 95 % interval, from the "
        "logarithms of the pairs' ratios, and what else was not the same between the runs of a "
        "pair (clocks, health). The runs are kept with their figures as notes: 'nccltune diff' "
        "compares any two. The command must contain what talks NCCL: a server that runs already "
        "does not get the profile.\n\nExit code 0: faster (or, with --no-slower, proved to lose no "
        "more than that); 1: slower, or the command works only without the profile, or the profile "
        "was not applied; 2: the command fails, or prints no figure, without the profile too; 3: "
        "something is missing here; 4: cannot tell; 5: interrupted."};
