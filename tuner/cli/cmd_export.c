#include "tuner/cli/commands.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
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

/* Files beside the form, and which of them were not there before. */
struct beside {
    struct {
        char path[2 * PATH_MAX];
        const struct nt_buf *data;
        const char *mount; /* where a consumer sees it; NULL: at its path */
        bool fresh;
    } v[2];
    size_t n;
};

static void add(struct beside *b, const char *folder, const char *name, const char *suffix,
                const struct nt_buf *data)
{
    nt_assert(b->n < sizeof(b->v) / sizeof(b->v[0]));
    (void)snprintf(b->v[b->n].path, sizeof(b->v[b->n].path), "%s/%s%s", folder, name, suffix);
    b->v[b->n].data = data;
    b->n++;
}

/* Where the delivery file is asked for or where the form points, and its bytes; sets table_dir. */
static int deliver(const struct nt_profile *p, const struct nt_export_format *format,
                   const struct export_args *a, struct nt_export_options *o, char real[PATH_MAX],
                   struct nt_buf *bytes, struct beside *files, struct nt_err *err)
{
    char dir[PATH_MAX], hash[65];
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
    rc = nt_profile_delivery(p, NT_TABLE, bytes, hash, err);
    if (rc == 0) {
        files->v[files->n].mount = !format->contained     ? NULL
                                   : o->table_dir != NULL ? o->table_dir
                                                          : NT_EXPORT_TABLE_DIR;
        add(files, real, hash, ".nctable", bytes);
    }
    return rc;
}

/* A form that a plugin reads goes where it says that it lies. */
static int deliver_form(const struct nt_buf *out, const char *real, struct beside *files,
                        struct nt_err *err)
{
    const char *named = NULL;
    json_t *o = NULL;
    int rc = nt_json_parse(nt_buf_str(out), out->len, "form", &o, err);

    if (rc == 0) {
        named = json_string_value(
            json_object_get(json_object_get(o, "env"), "NCCLTUNE_BACKENDS_TABLE"));
    }
    if (named != NULL) {
        add(files, real, strrchr(named, '/') + 1, "", out);
    }
    json_decref(o);
    return rc;
}

/* All of them, or none: what was not there before is taken away when one cannot be written. */
static int write_all(const struct export_args *a, struct beside *files, const struct nt_buf *out,
                     struct nt_err *err)
{
    int hold = -1, rc = a->out != NULL ? nt_write_try(a->out, &hold, err) : 0;

    for (size_t i = 0; rc == 0 && i < files->n; i++) {
        bool fresh = access(files->v[i].path, F_OK) != 0;
        /* 0644: the plugin refuses a file that others may write */
        rc = nt_write_file(files->v[i].path, files->v[i].data->data, files->v[i].data->len, 0644,
                           err);
        files->v[i].fresh = rc == 0 && fresh;
    }
    if (rc == 0 && a->out != NULL) {
        rc = nt_write_file(a->out, out->data, out->len, 0644, err);
    } else if (rc == 0 && (fputs(nt_buf_str(out), stdout) < 0 || fflush(stdout) != 0)) {
        rc = nt_fail(err, NT_E_IO, errno, "standard output");
    }
    for (size_t i = 0; i < files->n; i++) {
        if (rc == 0) {
            (void)fprintf(stderr, "note: wrote %s%s%s\n", files->v[i].path,
                          files->v[i].mount != NULL ? "; mount it in " : "",
                          files->v[i].mount != NULL ? files->v[i].mount : "");
        } else if (files->v[i].fresh) {
            (void)unlink(files->v[i].path);
        }
    }
    (void)(hold >= 0 ? close(hold) : 0);
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
    struct beside *files = calloc(1, sizeof(*files));
    char real[PATH_MAX];
    struct nt_buf out, notes, table;
    int rc = format == NULL  ? -NT_E_INVAL
             : files == NULL ? nt_fail(err, NT_E_NOMEM, 0, "export")
                             : 0;
    (void)nargs;

    nt_buf_init(&table, NT_PROFILE_MAX_BYTES);
    nt_buf_init(&out, NT_PROFILE_MAX_BYTES);
    nt_buf_init(&notes, 1 << 20);
    if (rc == 0 && a->nccl != NULL) {
        rc = nt_wrap(err, nt_nccl_version_parse(a->nccl, &o.nccl, err), "--nccl");
    }
    if (a->allow_rig != NULL) {
        o.allow_rig = nt_vocab_find(nt_rig_names, "rig", a->allow_rig, err);
    }
    rc = rc == 0 ? nt_write_apart(a->out, args[0], err) : rc;
    rc = rc == 0 ? nt_profile_load(args[0], &p, err) : rc;
    if (rc == 0) { /* the form first: a profile that is refused leaves no file */
        rc = nt_export(p, format, &o, &out, &notes, err);
    }
    if (rc == 0) {
        rc = deliver(p, format, a, &o, real, &table, files, err);
    }
    if (rc == 0) { /* again, now that the folder of the delivery file is known */
        nt_buf_clear(&out);
        nt_buf_clear(&notes);
        rc = nt_export(p, format, &o, &out, &notes, err);
    }
    if (rc == 0 && format->read_by_plugin) {
        rc = deliver_form(&out, real, files, err);
    }
    rc = rc == 0 ? write_all(a, files, &out, err) : rc;
    if (rc == 0) {
        print_notes(&notes);
    }
    free(files);
    nt_buf_done(&table);
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
