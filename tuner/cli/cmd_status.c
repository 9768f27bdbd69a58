/* status: what is installed and active here, and whether it still fits. */
#include "tuner/cli/commands.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "profiles/format/sha256.h"
#include "tuner/base/json.h"
#include "tuner/deliver/activate.h"
#include "tuner/deliver/active.h"
#include "tuner/deliver/fit.h"

enum { MAX_TABLE = 4 << 20 };

struct status_args {
    const char *format, *root, *topology, *allow_rig;
    struct nt_strs despite;
};
static const char *const formats[] = {"text", "json", NULL};
static const struct status_args status_defaults = {.format = "text"};
static const struct nt_opt status_opts[] = {
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(struct status_args, format),
     .arg = "FORM",
     .help = "text or json (default text)",
     .choices = formats},
    {.name = "allow-rig",
     .type = NT_O_STR,
     .offset = offsetof(struct status_args, allow_rig),
     .arg = "KIND",
     .help = "as it was installed with",
     .choices = nt_rig_names},
    {.name = "despite",
     .type = NT_O_STRS,
     .offset = offsetof(struct status_args, despite),
     .arg = "WHAT",
     .help = "as it was installed with; may be repeated",
     .choices = nt_fit_names},
    NT_OPT(NT_O_STR, status_args, root, "root", 0, "DIR",
           "folder that was installed below (default /)"),
    NT_OPT(NT_O_STR, status_args, topology, "topo", 0, "FILE",
           "the machine, as an NCCL topology file (default: looked at)"),
    {0}};

/* Adds a sentence to the list of what is wrong. */
static void NT_PRINTF(2, 3) wrong(json_t *o, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    (void)json_array_append_new(json_object_get(o, "wrong"), json_string(text));
}

/* The folder of packages, NULL when the entry is no loader's, or its folder is still there. */
static const char *gone_folder(const struct nt_install_where *w, const json_t *f, char *out,
                               size_t size)
{
    static const char loader[] = "/nccltune_loader.py";
    const char *path = nt_json_opt_str(f, "path", "");
    size_t len = strlen(path), tail = sizeof(loader) - 1;
    const char *root = w->root != NULL ? w->root : "";

    if (strcmp(nt_json_opt_str(f, "part", ""), "loader") != 0 || len <= tail ||
        strcmp(path + len - tail, loader) != 0 ||
        (size_t)snprintf(out, size, "%s%.*s", root, (int)(len - tail), path) >= size ||
        access(out, F_OK) == 0 || errno != ENOENT) {
        return NULL;
    }
    return out + strlen(root);
}

/* An environment that was deleted since: named, with what forgets it; returns how many of the
 * missing files lay in one. */
static unsigned look_for_gone(const struct nt_install_where *w, const json_t *files, json_t *o)
{
    char path[2 * PATH_MAX];
    unsigned n = 0;
    size_t i, j;
    json_t *f, *other;

    json_array_foreach(files, i, f)
    {
        const char *folder = gone_folder(w, f, path, sizeof(path));
        if (folder == NULL) {
            continue;
        }
        json_array_foreach(files, j, other)
        {
            const char *p = nt_json_opt_str(other, "path", "");
            n += strncmp(p, folder, strlen(folder)) == 0 && p[strlen(folder)] == '/';
        }
        wrong(o,
              "%s is gone, and the loader that was installed there: `nccltune uninstall%s%s "
              "--python %s` forgets it",
              folder, w->root != NULL ? " --root " : "", w->root != NULL ? w->root : "", folder);
    }
    return n;
}

static void look_at_files(const struct nt_install_where *w, json_t *o)
{
    struct nt_err err = {.code = NT_OK};
    json_t *files = NULL, *f;
    unsigned missing = 0;
    size_t i;

    if (nt_installed(w, &files, &err) != 0) {
        wrong(o, "%s", err.msg);
        return;
    }
    json_array_foreach(files, i, f)
    {
        const char *state = nt_json_opt_str(f, "state", ""), *part = nt_json_opt_str(f, "part", "");
        bool of_a_boot =
            strcmp(part, "active") == 0 && strcmp(state, nt_file_state_names[NT_FILE_MISSING]) == 0;
        if (strcmp(state, nt_file_state_names[NT_FILE_CHANGED]) == 0) {
            wrong(o, "%s was changed since it was installed", nt_json_opt_str(f, "path", ""));
        } else if (strcmp(state, nt_file_state_names[NT_FILE_OURS]) != 0 && !of_a_boot) {
            missing++;
        }
    }
    missing -= look_for_gone(w, files, o);
    if (missing > 0) { /* which is said beside each */
        wrong(o,
              "%u of these files are missing or cannot be read: `nccltune install` puts them there "
              "again; `nccltune uninstall` takes away and forgets all",
              missing);
    }
    (void)json_object_set_new(o, "files", files);
}

static void look_at_table(const struct nt_install_where *w, const struct nt_active *a, json_t *o)
{
    const char *path = nt_active_get(a, "NCCLTUNE_TABLE");
    struct nt_err err = {.code = NT_OK};
    char hash[NT_HASH_HEX + 1];
    struct nt_buf data;

    nt_buf_init(&data, MAX_TABLE);
    if (nt_install_read(w, path, &data, &err) != 0) {
        wrong(o, "the active profile's table: %s", err.msg);
    } else {
        nt_format_sha256_hex(nt_buf_str(&data), data.len, hash);
        if (strcmp(hash, nt_active_get(a, "NCCLTUNE_PROFILE")) != 0) {
            wrong(o, "%s has another hash than the active file says", path);
        }
    }
    nt_buf_done(&data);
}

/* NULL when nothing is active. */
static bool look_at_active(const struct nt_install_where *w, json_t *o)
{
    struct nt_err err = {.code = NT_OK};
    struct nt_active a = {.n = 0};
    struct nt_buf text;
    char boot[40];
    bool there = false;
    int rc;

    nt_buf_init(&text, NT_ACTIVE_MAX);
    nt_boot_id(boot);
    rc = nt_install_read(w, NT_ACTIVE_FOLDER "/" NT_ACTIVE_NAME, &text, &err);
    if (rc == 0) {
        rc = nt_active_parse(nt_buf_str(&text), text.len, &a, &err);
    }
    if (rc == 0) {
        there = true;
        (void)json_object_set_new(o, "active", json_string(nt_active_get(&a, "NCCLTUNE_PROFILE")));
        if (strcmp(a.boot, boot) != 0) {
            wrong(o, "%s", "the active file is of another boot: no loader takes it");
        }
        look_at_table(w, &a, o);
        nt_active_done(&a);
    } else if (rc != -NT_E_MISSING) {
        wrong(o, "active file: %s: no loader takes it", err.msg);
    }
    nt_buf_done(&text);
    return there;
}

static void look_at_fit(const struct status_args *args, const struct nt_install_where *w, json_t *o)
{
    struct nt_fit_opts fo = {.allow_rig = -1, .despite = &args->despite};
    struct nt_fit *fit = calloc(1, sizeof(*fit));
    struct nt_profile *p = NULL;
    struct nt_err err = {.code = NT_OK};
    struct nt_machine m;
    struct nt_buf text;

    nt_buf_init(&text, NT_PROFILE_MAX_BYTES);
    if (args->allow_rig != NULL) {
        fo.allow_rig = nt_vocab_find(nt_rig_names, "rig", args->allow_rig, &err);
    }
    if (nt_install_read(w, NT_ACTIVATE_PROFILE, &text, &err) != 0 ||
        nt_profile_parse(nt_buf_str(&text), text.len, NT_ACTIVATE_PROFILE, &p, &err) != 0) {
        wrong(o, "whether it still fits cannot be told: %s", err.msg);
    } else if (fit != NULL) {
        nt_machine_read(&(struct nt_machine_opts){.topology = args->topology}, NULL, &m);
        nt_fit(p, &m, &fo, fit);
        for (size_t i = 0; i < fit->n; i++) {
            if (fit->v[i].stops) {
                wrong(o, "no longer fits: %s", fit->v[i].text);
            } else if (fit->v[i].passed) {
                (void)json_array_append_new(json_object_get(o, "despite"),
                                            json_string(fit->v[i].text));
            }
        }
        (void)json_object_set_new(o, "fits", json_boolean(fit->fits));
        nt_machine_done(&m);
    }
    nt_buf_done(&text);
    nt_profile_free(p);
    free(fit);
}

static void print_text(const json_t *o)
{
    const char *active = nt_json_opt_str(o, "active", NULL);
    const json_t *despite = json_object_get(o, "despite");
    size_t i;
    json_t *x;

    (void)printf("active: %s%s\n", active != NULL ? "profile " : "no profile",
                 active != NULL ? active : "");
    if (json_is_true(json_object_get(o, "fits"))) {
        (void)printf("  %s\n", json_array_size(despite) == 0
                                   ? "it fits this machine"
                                   : "it is taken here despite what was let through:");
    }
    json_array_foreach(despite, i, x)
    {
        (void)printf("  despite: %s\n", json_string_value(x));
    }
    json_array_foreach(json_object_get(o, "files"), i, x)
    {
        (void)printf("%s  %-8s %-9s %s\n", i == 0 ? "installed:\n" : "",
                     nt_json_opt_str(x, "part", ""), nt_json_opt_str(x, "state", ""),
                     nt_json_opt_str(x, "path", ""));
    }
    json_array_foreach(json_object_get(o, "wrong"), i, x)
    {
        (void)printf("wrong: %s\n", json_string_value(x));
    }
}

static int run_status(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct status_args *a = opts;
    struct nt_install_where w = {.root = a->root};
    json_t *o = json_pack("{s:n, s:[], s:[], s:[]}", "active", "files", "despite", "wrong");
    struct nt_buf out;
    int rc = nt_install_where_check(&w, err);
    (void)nargs;
    (void)args;

    if (rc != 0 || o == NULL) {
        json_decref(o);
        return rc != 0 ? rc : nt_fail(err, NT_E_NOMEM, 0, "status");
    }
    look_at_files(&w, o);
    if (look_at_active(&w, o)) {
        look_at_fit(a, &w, o);
    }
    if (strcmp(a->format, "json") == 0) {
        nt_buf_init(&out, 1 << 20);
        nt_json_dump(o, true, &out);
        (void)puts(nt_buf_str(&out));
        nt_buf_done(&out);
    } else {
        print_text(o);
    }
    rc = json_array_size(json_object_get(o, "wrong")) > 0 ? -NT_E_NO : 0; /* it has been said */
    json_decref(o);
    return rc;
}

const struct nt_command nt_cmd_status = {
    .name = "status",
    .summary = "what is installed and active here, and whether it still fits",
    .args = "",
    .opts = status_opts,
    .defaults = &status_defaults,
    .size = sizeof(struct status_args),
    .run = run_status,
    .details = "Exit code 1 when something is wrong: a file was changed or is missing, the active "
               "file is one that no loader takes, or the profile fits no longer."};
