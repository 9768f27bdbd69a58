#include "tuner/cli/commands.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "profiles/export/export.h"
#include "tuner/base/json.h"

struct export_args {
    const char *format, *nccl, *allow_rig, *plugin, *dir, *table_dir, *out;
    bool variables_only;
};

#define A struct export_args
static const struct nt_opt export_opts[] = {
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(A, format),
     .arg = "FORM",
     .help = "form of the deployment (default env)",
     .choices = nt_export_format_names},
    NT_OPT(NT_O_FLAG, export_args, variables_only, "static", 0, NULL,
           "the variables-only product, for deployments without the tuner plugin"),
    NT_OPT(NT_O_STR, export_args, nccl, "nccl", 0, "VERSION",
           "NCCL release to write for, such as 2.23 (default: that of the profile)"),
    NT_OPT(NT_O_STR, export_args, dir, "dir", 'd', "DIR",
           "where the delivery file is written (default: beside --out, else .)"),
    NT_OPT(NT_O_STR, export_args, table_dir, "table-dir", 0, "PATH",
           "folder of the delivery file at the consumer (default: --dir; /etc/nccltune for k8s and "
           "docker)"),
    NT_OPT(NT_O_STR, export_args, plugin, "plugin", 0, "PATH",
           "the tuner plugin at the consumer (default " NT_EXPORT_PLUGIN ")"),
    {.name = "allow-rig",
     .type = NT_O_STR,
     .offset = offsetof(A, allow_rig),
     .arg = "KIND",
     .help = "export a profile that was measured on this rig instead of a real node",
     .choices = nt_rig_names},
    NT_OPT(NT_O_STR, export_args, out, "out", 'o', "FILE", "write the form here (default stdout)"),
    {0}};

/* The folder of --out, or the working folder. */
static void default_dir(const char *out, char *dir, size_t size)
{
    const char *slash = out != NULL ? strrchr(out, '/') : NULL;
    if (slash == NULL) {
        (void)snprintf(dir, size, ".");
    } else {
        (void)snprintf(dir, size, "%.*s", slash == out ? 1 : (int)(slash - out), out);
    }
}

/* Writes the delivery file where it is asked for or where the form points, and sets table_dir. */
static int deliver(const struct nt_profile *p, const struct nt_export_format *format,
                   const struct export_args *a, struct nt_export_options *o, char real[PATH_MAX],
                   struct nt_err *err)
{
    char dir[PATH_MAX], path[PATH_MAX + 80];
    bool rows = o->variables_only ? false : p->product[NT_TABLE].rows.n > 0;
    int rc;

    real[0] = '\0';
    if ((!rows && !format->read_by_plugin) || format->rows_only ||
        (format->embeds_table && a->dir == NULL)) {
        return 0;
    }
    if (a->dir != NULL) {
        (void)snprintf(dir, sizeof(dir), "%s", a->dir);
    } else {
        default_dir(a->out, dir, sizeof(dir));
    }
    if (realpath(dir, real) == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "%s: no such folder", dir);
    }
    if (o->table_dir == NULL && !format->contained) {
        o->table_dir = real;
    }
    if (!rows) {
        return 0;
    }
    rc = nt_profile_write_delivery(p, NT_TABLE, real, path, sizeof(path), err);
    if (rc == 0) {
        (void)fprintf(stderr, "note: wrote %s%s%s\n", path,
                      format->contained ? "; mount it in " : "",
                      !format->contained     ? ""
                      : o->table_dir != NULL ? o->table_dir
                                             : NT_EXPORT_TABLE_DIR);
    }
    return rc;
}

/* A form that a plugin reads goes where it says that it lies. */
static int deliver_form(const struct nt_buf *out, const char *real, struct nt_err *err)
{
    char path[2 * PATH_MAX];
    const char *named = NULL, *base;
    json_t *o = NULL;
    int rc = nt_json_parse(nt_buf_str(out), out->len, "form", &o, err);

    if (rc == 0) {
        named = json_string_value(
            json_object_get(json_object_get(o, "env"), "NCCLTUNE_BACKENDS_TABLE"));
    }
    if (named != NULL) {
        base = strrchr(named, '/');
        (void)snprintf(path, sizeof(path), "%s%s", real, base);
        rc = nt_write_file(path, out->data, out->len, 0644, err);
        if (rc == 0) {
            (void)fprintf(stderr, "note: wrote %s\n", path);
        }
    }
    json_decref(o);
    return rc;
}

static void print_notes(const struct nt_buf *notes)
{
    const char *line = nt_buf_str(notes);
    while (*line != '\0') {
        size_t len = strcspn(line, "\n");
        (void)fprintf(stderr, "note: %.*s\n", (int)len, line);
        line += len + (line[len] == '\n');
    }
}

static int run_export(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct export_args *a = opts;
    struct nt_export_options o = {.variables_only = a->variables_only,
                                  .allow_rig = -1,
                                  .plugin = a->plugin,
                                  .table_dir = a->table_dir};
    const struct nt_export_format *format = nt_export_find(a->format, err);
    struct nt_profile *p = NULL;
    char real[PATH_MAX];
    struct nt_buf out, notes;
    int rc = format == NULL ? -NT_E_INVAL : 0;
    (void)nargs;

    nt_buf_init(&out, NT_PROFILE_MAX_BYTES);
    nt_buf_init(&notes, 1 << 20);
    if (rc == 0 && a->nccl != NULL) {
        rc = nt_wrap(err, nt_nccl_version_parse(a->nccl, &o.nccl, err), "--nccl");
    }
    if (a->allow_rig != NULL) {
        o.allow_rig = nt_vocab_find(nt_rig_names, "rig", a->allow_rig, err);
    }
    if (rc == 0) {
        rc = nt_profile_load(args[0], &p, err);
    }
    if (rc == 0) { /* the form first: a profile that is refused leaves no file */
        rc = nt_export(p, format, &o, &out, &notes, err);
    }
    if (rc == 0) {
        rc = deliver(p, format, a, &o, real, err);
    }
    if (rc == 0) { /* again, now that the folder of the delivery file is known */
        nt_buf_clear(&out);
        nt_buf_clear(&notes);
        rc = nt_export(p, format, &o, &out, &notes, err);
    }
    if (rc == 0 && format->read_by_plugin) {
        rc = deliver_form(&out, real, err);
    }
    if (rc == 0 && a->out != NULL) {
        rc = nt_write_file(a->out, out.data, out.len, 0644, err);
    } else if (rc == 0) {
        (void)fputs(nt_buf_str(&out), stdout);
    }
    if (rc == 0) {
        print_notes(&notes);
    }
    nt_buf_done(&out);
    nt_buf_done(&notes);
    nt_profile_free(p);
    return rc;
}

static const struct export_args export_defaults = {.format = "env"};

const struct nt_command nt_cmd_export = {
    .name = "export",
    .summary = "write a profile in the form that a deployment takes",
    .args = "PROFILE",
    .min_args = 1,
    .max_args = 1,
    .opts = export_opts,
    .defaults = &export_defaults,
    .size = sizeof(struct export_args),
    .run = run_export,
    .details =
        "The form goes to stdout or --out; what the form cannot carry is said on stderr. A "
        "form with the table product names the delivery file HASH.nctable, which is written "
        "to --dir and must lie at the same path on every node. The forms sglang and vllm are "
        "read by the plugin of the engine: with rows of backends a copy is written to --dir "
        "as HASH.backends.json."};
