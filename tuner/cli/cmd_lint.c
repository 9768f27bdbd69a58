/* nccltune lint: configuration files and what NCCL really makes of them. */
#include <stdio.h>
#include <string.h>

#include "schema/tunables.h"
#include "tuner/cli/commands.h"
#include "tuner/lint/lint.h"

enum { MAX_FILES = 256 };

struct lint_args {
    const char *nccl, *format, *form;
};

static const char *const formats[] = {"text", "json", "sarif", NULL};
static const struct lint_args lint_defaults = {.nccl = "2.28", .format = "text"};

static const struct nt_opt lint_opts[] = {
    NT_OPT(NT_O_STR, lint_args, nccl, "nccl", 0, "VERSION",
           "the release that will read it, as 2.28 or 2.28.9 (default 2.28)"),
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(struct lint_args, format),
     .arg = "FORMAT",
     .help = "text (default), json or sarif",
     .choices = formats},
    {.name = "form",
     .type = NT_O_STR,
     .offset = offsetof(struct lint_args, form),
     .arg = "FORM",
     .help = "what the files are, when name and content do not say it (nccl-conf, docker-env, ...)",
     .choices = nt_lint_form_names},
    {0}};

static int read_one(const char *path, const struct nt_lint_opts *o, struct nt_lint_file **ret,
                    struct nt_err *err)
{
    struct nt_buf text;
    int rc;
    nt_buf_init(&text, NT_LINT_MAX_BYTES);
    rc = nt_buf_read_file(&text, path, err);
    if (rc == 0) {
        rc = nt_lint_read(path, nt_buf_str(&text), text.len, o, ret, err);
    }
    nt_buf_done(&text);
    return rc;
}

static void print(const struct lint_args *o, struct nt_lint_file *const *files, size_t n)
{
    struct nt_buf out;
    json_t *all = NULL;
    nt_buf_init(&out, (size_t)256 << 20);
    if (strcmp(o->format, "sarif") == 0) {
        all = nt_lint_sarif(files, n, NT_VERSION);
    } else if (strcmp(o->format, "json") == 0) {
        all = json_array();
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(o->format, "json") == 0) {
            (void)json_array_append_new(all, nt_lint_json(files[i]));
        } else if (strcmp(o->format, "text") == 0) {
            nt_lint_text(files[i], &out);
        }
    }
    if (all != NULL) {
        nt_json_dump(all, true, &out);
    }
    (void)fwrite(nt_buf_str(&out), 1, out.len, stdout);
    json_decref(all);
    nt_buf_done(&out);
}

static int run_lint(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct lint_args *o = opts;
    struct nt_lint_opts how = {.form = -1};
    struct nt_lint_file *files[MAX_FILES] = {0};
    size_t errors = 0;
    int rc = nt_nccl_version_parse(o->nccl, &how.version, err);
    if (rc == 0 && o->form != NULL) {
        how.form = nt_vocab_find(nt_lint_form_names, "form", o->form, err);
        rc = how.form < 0 ? how.form : 0;
    }
    for (unsigned i = 0; rc == 0 && i < nargs; i++) {
        rc = read_one(args[i], &how, &files[i], err);
    }
    if (rc == 0) {
        nt_lint_across(files, nargs);
        print(o, files, nargs);
        for (unsigned i = 0; i < nargs; i++) {
            errors += nt_lint_errors(files[i]);
        }
        if (errors > 0) {
            rc = nt_fail(err, NT_E_NO, 0, "%zu error%s found", errors, errors == 1 ? "" : "s");
        }
    }
    for (unsigned i = 0; i < nargs; i++) {
        nt_lint_free(files[i]);
    }
    return rc;
}

const struct nt_command nt_cmd_lint = {
    .name = "lint",
    .summary = "what NCCL really makes of configuration files",
    .args = "FILE...",
    .min_args = 1,
    .max_args = MAX_FILES,
    .opts = lint_opts,
    .defaults = &lint_defaults,
    .size = sizeof(struct lint_args),
    .run = run_lint,
    .details =
        "Reads env files, nccl.conf, shell fragments and launch lines, Dockerfiles, Kubernetes and "
        "Compose manifests, Slurm scripts, runtime_env JSON, systemd units, TOML, HCL and Lua "
        "files, NCCL logs, tuner CSVs "
        "and "
        "guest policies. Each is read as its consumer reads it, then as the given release of NCCL "
        "does. Nothing is executed, sourced or followed.\n\n"
        "Several files are also compared: the environment beats nccl.conf, the nccl.conf named "
        "first "
        "beats the next, and a site's policy beats a tuned value.\n\n"
        "Exit status 1 when an error was found.",
};
