/* nccltune import: other people's measurements. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/vocab.h"
#include "tuner/base/foreign.h"
#include "tuner/base/hash.h"
#include "tuner/cli/commands.h"
#include "tuner/cli/store_import.h"
#include "tuner/cli/where.h"
#include "tuner/import/table.h"

enum { MAX_FILES = 256 };

struct import_args {
    const char *format, *place, *db;
    bool across, dry_run;
};

static const char *const formats[] = {"text", "json", "csv", NULL};
static const char *const places[] = {"out", "in", NULL};
static const struct import_args import_defaults = {.format = "text", .place = "out"};

static const struct nt_opt import_opts[] = {
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(struct import_args, format),
     .arg = "FORMAT",
     .help = "text (default), json, or csv (verdicts only)",
     .choices = formats},
    {.name = "place",
     .type = NT_O_STR,
     .offset = offsetof(struct import_args, place),
     .arg = "out|in",
     .help = "which placement to compare: out of place (default) or in place",
     .choices = places},
    NT_OPT(NT_O_FLAG, import_args, across, "across", 0, NULL,
           "compare across launch shapes, versions and machines, and say so"),
    NT_OPT(NT_O_FLAG, import_args, dry_run, "dry-run", 'n', NULL, "read and judge, store nothing"),
    NT_OPT(NT_O_STR, import_args, db, "db", 0, "PATH",
           "the database (default NCCLTUNE_DB, else "
           "${XDG_STATE_HOME:-~/.local/state}/nccltune/nccltune.db)"),
    {0}};

struct output {
    struct nt_buf text;
    json_t *files, *tables;
    struct nt_store *store; /* NULL: dry run */
};

static int verdicts(const struct import_args *o, struct nt_table *t, struct output *out,
                    struct nt_err *err)
{
    struct nt_verdicts v = {0};
    int rc = nt_table_decide(t, &v, err);
    if (rc != 0) {
        return rc;
    }
    if (strcmp(o->format, "json") == 0) {
        (void)json_array_append_new(out->tables, nt_verdicts_json(t, &v));
    } else if (strcmp(o->format, "csv") == 0) {
        nt_verdicts_csv(t, &v, &out->text);
    } else {
        nt_verdicts_text(t, &v, &out->text);
    }
    nt_verdicts_done(&v);
    return 0;
}

/* Said on standard error: the answer on standard output is the same for a dry run. */
static void stored(const char *path, int64_t id, bool known)
{
    (void)fprintf(stderr, "nccltune: %s: %s import %lld\n", path,
                  known ? "known already as" : "stored as", (long long)id);
}

static int store_table(struct output *out, const struct nt_table *t, const struct nt_buf *text,
                       struct nt_err *err)
{
    char hex[NT_HEX_LEN + 1];
    int64_t id = 0;
    bool known = false;
    int rc;
    if (out->store == NULL) {
        return 0;
    }
    nt_sha256_hex(nt_buf_str(text), text->len, hex);
    rc = nt_store_import_table(out->store, t, hex, &id, &known, err);
    if (rc == 0) {
        stored(t->name, id, known);
    }
    return rc;
}

static int store_runs(struct output *out, const struct nt_imp_file *f, const char *label,
                      struct nt_err *err)
{
    int64_t id = 0;
    bool known = false;
    int rc;
    if (out->store == NULL || nt_imp_usable_rows(f) == 0) {
        return 0;
    }
    rc = nt_store_import_runs(out->store, f, label, &id, &known, err);
    if (rc == 0) {
        stored(f->name, id, known);
    }
    return rc;
}

static int import_tables(const struct import_args *o, unsigned n, char **paths, struct output *out,
                         struct nt_err *err)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        struct nt_buf text;
        struct nt_table *t = NULL;
        nt_buf_init(&text, NT_IMP_MAX_BYTES);
        rc = nt_foreign_read(&text, paths[i], err);
        if (rc == 0) {
            rc = nt_table_parse(paths[i], nt_buf_str(&text), text.len, &t, err);
        }
        rc = rc == 0 ? store_table(out, t, &text, err) : rc;
        rc = rc == 0 ? verdicts(o, t, out, err) : rc;
        nt_table_free(t);
        nt_buf_done(&text);
    }
    return rc;
}

/* Whether nothing in the file is of nccl-tests: all that was noted is that there are no results,
 * and no command of theirs was seen. */
static bool is_foreign(const struct nt_imp_file *f)
{
    return f->notes.n == 1 && f->notes.v[0].id == NT_IMP_NO_RESULTS &&
           (f->nruns == 0 || f->runs[0].collective[0] == '\0');
}

static int import_runs(const struct import_args *o, unsigned n, char **paths, struct output *out,
                       struct nt_err *err)
{
    struct nt_imp_file *files[MAX_FILES] = {0};
    char labels[MAX_FILES][128];
    const char *label_of[MAX_FILES];
    struct nt_compare_opts compare = {
        .place = strcmp(o->place, "in") == 0 ? NT_IN_PLACE : NT_OUT_OF_PLACE, .across = o->across};
    struct nt_table *t = NULL;
    size_t usable = 0;
    unsigned foreign = 0;
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        struct nt_buf text;
        nt_buf_init(&text, NT_IMP_MAX_BYTES);
        rc = nt_foreign_read(&text, paths[i], err);
        if (rc == 0) {
            rc = nt_imp_read(paths[i], nt_buf_str(&text), text.len, &files[i], err);
        }
        if (rc == 0 && strcmp(o->format, "json") == 0) {
            (void)json_array_append_new(out->files, nt_imp_json(files[i]));
        } else if (rc == 0 && strcmp(o->format, "text") == 0) {
            nt_imp_text(files[i], &out->text);
        }
        usable += rc == 0 ? nt_imp_usable_rows(files[i]) : 0;
        foreign += rc == 0 && is_foreign(files[i]);
        label_of[i] = nt_label_of_file(paths[i], labels[i], sizeof(labels[i]));
        rc = rc == 0 ? store_runs(out, files[i], label_of[i], err) : rc;
        nt_buf_done(&text);
    }
    if (rc == 0 && n > 1) {
        rc = nt_table_from_files(files, label_of, n, &compare, &t, err);
    }
    if (rc == 0 && t != NULL) {
        rc = verdicts(o, t, out, err);
    }
    if (rc == 0 && usable == 0) {
        rc = foreign == n ? nt_fail(err, NT_E_INVAL, 0, "no output of nccl-tests or rccl-tests")
                          : nt_fail(err, NT_E_NO, 0, "no result that may be used");
    }
    for (unsigned i = 0; i < n; i++) {
        nt_imp_free(files[i]);
    }
    nt_table_free(t);
    return rc;
}

/* Names as for --rig recording:NAME, or paths. */
static int import_recordings(const struct import_args *o, unsigned n, char **names,
                             struct output *out, struct nt_err *err)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        struct nt_recording *rec = NULL;
        struct nt_recording_import im = {0};
        struct nt_buf bytes;
        char path[PATH_MAX], hex[NT_HEX_LEN + 1];
        nt_buf_init(&bytes, NT_RECORDING_MAX_BYTES);
        rc = nt_where_recording(names[i], path, sizeof(path), err);
        rc = rc == 0 ? nt_buf_read_file(&bytes, path, err) : rc;
        rc = rc == 0 ? nt_recording_load(path, &rec, err) : rc;
        if (rc == 0) {
            nt_sha256_hex(nt_buf_str(&bytes), bytes.len, hex);
            rc = nt_store_import_recording(out->store, rec, path, hex, &im, err);
        }
        if (rc == 0 && strcmp(o->format, "json") == 0) {
            (void)json_array_append_new(out->files,
                                        json_pack("{s:s,s:i,s:i}", "recording", path, "cells",
                                                  (int)im.cells, "rows", (int)im.rows));
        } else if (rc == 0) {
            nt_buf_printf(&out->text, "%s: %zu cells, %zu rows\n", path, im.cells, im.rows);
        }
        if (rc == 0 && out->store != NULL) {
            stored(path, im.id, im.known);
        }
        nt_recording_free(rec);
        nt_buf_done(&bytes);
    }
    return rc;
}

static int run_import(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    static const char *const kinds[] = {"nccl-tests", "table", "recording", NULL};
    static int (*const by_kind[])(const struct import_args *, unsigned, char **, struct output *,
                                  struct nt_err *) = {import_runs, import_tables,
                                                      import_recordings};
    const struct import_args *o = opts;
    struct output out = {.files = json_array(), .tables = json_array()};
    char path[PATH_MAX];
    int kind = nt_vocab_find(kinds, "kind of input", args[0], err);
    int rc = kind < 0 ? kind : 0;
    nt_buf_init(&out.text, (size_t)256 << 20);
    if (rc == 0 && nargs - 1 > MAX_FILES) {
        rc = nt_fail(err, NT_E_INVAL, 0, "more than %d files", MAX_FILES);
    }
    if (rc == 0 && !o->dry_run) {
        rc = nt_store_default_path(o->db, true, path, sizeof(path), err);
        rc = rc == 0 ? nt_store_open(path, NT_STORE_WRITE, &out.store, err) : rc;
    }
    if (rc == 0) {
        rc = by_kind[kind](o, nargs - 1, args + 1, &out, err);
    }
    if (strcmp(o->format, "json") == 0 && (rc == 0 || rc == -NT_E_NO)) {
        json_t *all = json_pack("{s:O, s:O}", "files", out.files, "tables", out.tables);
        nt_json_dump(all, true, &out.text);
        json_decref(all);
    }
    (void)fwrite(nt_buf_str(&out.text), 1, out.text.len, stdout);
    nt_store_close(out.store);
    json_decref(out.files);
    json_decref(out.tables);
    nt_buf_done(&out.text);
    return rc;
}

const struct nt_command nt_cmd_import = {
    .name = "import",
    .summary = "read other people's measurements, and recordings",
    .args = "nccl-tests|table|recording FILE...",
    .min_args = 2,
    .max_args = MAX_FILES + 1,
    .opts = import_opts,
    .defaults = &import_defaults,
    .size = sizeof(struct import_args),
    .run = run_import,
    .details =
        "nccl-tests reads the text output of nccl-tests, rccl-tests and mscclpp-test in every "
        "layout, the JSON that -J writes, and the CSV or JSON of rccl-tests' -Z. A file may be "
        "compressed by gzip, UTF-16, or a container's log of JSON lines. Several files are laid "
        "side by side: files that differ only in "
        "\"-rep1\", \"-rep2\" are repeats of one setting. What differs in launch shape, library "
        "version, machine or mode is not compared, unless --across is given, and never "
        "silently.\n\n"
        "table reads CSV tables of backend by size, in long form (a column backend) or wide form "
        "(a "
        "column for each backend), times or bandwidths.\n\n"
        "recording takes files of `nccltune record` (or names, as --rig recording:NAME does): what "
        "each tuple took in each gang. Of two recordings of one rig `query --view noise` then "
        "tells "
        "how far they disagree.\n\n"
        "For each size the winner, the second, the margin and a verdict are shown: winner, tie "
        "(under 2 percent), no winner (repeats are known and too noisy), or gain not credible (it "
        "rests on an outlier).\n\n"
        "What was read is stored with its provenance; `query --view best` and `explain` find it "
        "there. A file "
        "of the same content is stored once. Rows with wrong data are stored as such and never "
        "compete; "
        "implausible and garbled ones are not stored. Of an environment only NCCL_* and RCCL_* are "
        "kept.",
};
