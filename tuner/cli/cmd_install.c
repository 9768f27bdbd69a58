/* install, uninstall: the loader and the active profile on a machine, by manifest. */
#include "tuner/cli/commands.h"
#include "tuner/cli/engine_arg.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tuner/base/json.h"
#include "tuner/deliver/activate.h"
#include "tuner/deliver/active.h"
#include "tuner/deliver/fit.h"
#include "tuner/deliver/places.h"
#include "tuner/deliver/safe.h"

/* The plugins for SGLang and vLLM: a package, and what the engines find it by. */
static const char *const engine_files[] = {"nccltune_engines/__init__.py",
                                           "nccltune_engines/agree.py",
                                           "nccltune_engines/plugin.py",
                                           "nccltune_engines/receipt.py",
                                           "nccltune_engines/sglang.py",
                                           "nccltune_engines/table.py",
                                           "nccltune_engines/vllm.py",
                                           "nccltune_engines-1.0.dist-info/METADATA",
                                           "nccltune_engines-1.0.dist-info/entry_points.txt"};
enum { ENGINE_FILES = sizeof(engine_files) / sizeof(engine_files[0]) };
enum { LOADER_SOURCES = 3, LOADER_FILES = LOADER_SOURCES + 1 /* compiled */, MAX_LOADER = 1 << 20 };

struct install_args {
    const char *root, *python, *active, *engine, *loader, *plugins, *allow_rig, *topology;
    bool dry_run, variables_only, observe, at_boot;
    struct nt_strs despite, users;
};

#define A struct install_args
static const struct nt_opt install_opts[] = {
    NT_OPT(NT_O_STR, install_args, python, "python", 0, "PATH",
           "put the loader into this interpreter's packages"),
    NT_OPT(NT_O_STR, install_args, active, "active", 'a', "PROFILE",
           "make this profile the machine's, if it fits"),
    NT_OPT(NT_O_FLAG, install_args, variables_only, "static", 0, NULL,
           "the variables-only product, without the tuner plugin"),
    {.name = "engine",
     .type = NT_O_STR,
     .offset = offsetof(A, engine),
     .arg = "ENGINE",
     .help = "also the profile's backends, by this engine's plugin, which goes beside the loader: "
             "sglang or vllm",
     .choices = nt_engine_arg_names},
    NT_OPT(NT_O_FLAG, install_args, observe, "observe", 0, NULL,
           "count what NCCL executes, with the profiler plugin"),
    NT_OPT(NT_O_FLAG, install_args, at_boot, "at-boot", 0, NULL,
           "also a systemd unit that does the same at every boot"),
    NT_OPT(NT_O_STRS, install_args, users, "receipts-for", 0, "USER",
           "make this user's folder of receipts in /run/nccltune; may be repeated"),
    {.name = "allow-rig",
     .type = NT_O_STR,
     .offset = offsetof(A, allow_rig),
     .arg = "KIND",
     .help = "take a profile that was measured on this rig instead of a real node",
     .choices = nt_rig_names},
    {.name = "despite",
     .type = NT_O_STRS,
     .offset = offsetof(A, despite),
     .arg = "WHAT",
     .help = "take it although this does not fit; may be repeated",
     .choices = nt_fit_names},
    NT_OPT(NT_O_FLAG, install_args, dry_run, "dry-run", 'n', NULL, "say what would be done"),
    NT_OPT(NT_O_STR, install_args, root, "root", 0, "DIR", "install below this folder (default /)"),
    NT_OPT(NT_O_STR, install_args, plugins, "plugins", 0, "DIR",
           "folder of the NCCL plugins (default: lib/nccltune beside this program)"),
    NT_OPT(NT_O_STR, install_args, loader, "loader", 0, "DIR",
           "folder of the loader's files (default: share/nccltune/loader beside this program)"),
    NT_OPT(NT_O_STR, install_args, topology, "topo", 0, "FILE",
           "the machine, as an NCCL topology file (default: looked at)"),
    {0}};

static void print_said(const struct nt_buf *said)
{
    (void)fputs(nt_buf_str(said), stdout);
}

static void print_notes(const struct nt_buf *notes)
{
    const char *line = nt_buf_str(notes);
    while (*line != '\0') {
        size_t len = strcspn(line, "\n");
        (void)fprintf(stderr, "nccltune: %.*s\n", (int)len, line);
        line += len + (line[len] == '\n');
    }
}

/* All that is to be installed: put in place together or not at all. */
struct plan {
    struct nt_install_file file[LOADER_FILES + ENGINE_FILES + NT_ACTIVATE_FILES];
    size_t n;
    char path[LOADER_FILES][PATH_MAX + 32], engine_path[ENGINE_FILES][PATH_MAX + 64];
    struct nt_buf loader[LOADER_FILES], engines[ENGINE_FILES], notes, said;
    struct nt_activate active;
    struct nt_engine_arg engine;
    const char *nothing_active; /* the profile sets nothing: in words; NULL: it does */
};

/* ---- the loader ---- */

static bool is_ours(const struct nt_install_where *w, const char *path)
{
    json_t *files = NULL;
    bool found = false;

    if (nt_installed(w, &files, NULL) == 0) {
        for (size_t i = 0; i < json_array_size(files); i++) {
            const char *p = nt_json_opt_str(json_array_get(files, i), "path", "");
            found = found || strcmp(p, path) == 0;
        }
    }
    json_decref(files);
    return found;
}

/* Where the packages cannot be written to, every start would compile the loader anew, which takes
 * as long as the rest of it. A file that the interpreter has made already serves as well. */
static void plan_compiled(const struct install_args *a, const struct nt_install_where *w,
                          struct plan *plan, const char *packages)
{
    enum { SOURCE, COMPILED = LOADER_SOURCES };
    char name[128], there[2 * PATH_MAX + 64];
    struct nt_buf *code = &plan->loader[COMPILED];
    int folder;

    if (!nt_python_compile(a->python, nt_buf_str(&plan->loader[SOURCE]), plan->loader[SOURCE].len,
                           plan->path[SOURCE], name, sizeof(name), code)) {
        nt_buf_puts(&plan->said, "the loader is not compiled beforehand: its starts take longer\n");
        return;
    }
    if (snprintf(plan->path[COMPILED], sizeof(plan->path[COMPILED]), "%s/%s", packages, name) >=
        (int)sizeof(plan->path[COMPILED])) {
        return;
    }
    (void)snprintf(there, sizeof(there), "%s%s", w->root != NULL ? w->root : "",
                   plan->path[COMPILED]);
    if (access(there, F_OK) == 0 && !is_ours(w, plan->path[COMPILED])) {
        return;
    }
    (void)snprintf(there, sizeof(there), "%s/__pycache__", packages);
    folder = nt_safe_folder(w->root, there, geteuid(), 0, NULL);
    if (folder < 0 && folder != -NT_E_MISSING) { /* one that others can write to */
        return;
    }
    if (folder >= 0) {
        (void)close(folder);
    }
    plan->file[plan->n++] = (struct nt_install_file){.path = plan->path[COMPILED],
                                                     .data = code->data,
                                                     .len = code->len,
                                                     .mode = 0644,
                                                     .part = "loader"};
}

/* Beside the loader's: --loader DIR/loader names DIR/engines too. */
static int plan_engines(const struct install_args *a, struct plan *plan, const char *packages,
                        struct nt_err *err)
{
    char from[PATH_MAX];
    int rc = 0;

    if (a->loader != NULL) {
        (void)snprintf(from, sizeof(from), "%s/../engines", a->loader);
    } else if (!nt_place_engines(from, sizeof(from))) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "the engines' plugins are not beside this program (share/nccltune/engines)");
    }
    for (size_t i = 0; rc == 0 && i < ENGINE_FILES; i++) {
        char source[PATH_MAX + 64];
        (void)snprintf(source, sizeof(source), "%s/%s", from, engine_files[i]);
        (void)snprintf(plan->engine_path[i], sizeof(plan->engine_path[i]), "%s/%s", packages,
                       engine_files[i]);
        rc = nt_buf_read_file(&plan->engines[i], source, err);
        plan->file[plan->n++] = (struct nt_install_file){.path = plan->engine_path[i],
                                                         .data = plan->engines[i].data,
                                                         .len = plan->engines[i].len,
                                                         .mode = 0644,
                                                         .part = "loader"};
    }
    return rc;
}

static int plan_loader(const struct install_args *a, const struct nt_install_where *w,
                       struct plan *plan, struct nt_err *err)
{
    static const char *const names[LOADER_SOURCES] = {"nccltune_loader.py", "nccltune.pth",
                                                      "nccltune.start"};
    char packages[PATH_MAX], real[PATH_MAX], from[PATH_MAX];
    int rc = nt_python_packages(a->python, packages, sizeof(packages), err);

    if (rc == 0 && a->loader == NULL && !nt_place_loader(from, sizeof(from))) {
        rc = nt_fail(err, NT_E_MISSING, 0,
                     "the loader's files are not beside this program; name them with --loader");
    }
    if (rc == 0 && (a->root != NULL || realpath(packages, real) == NULL)) {
        (void)snprintf(real, sizeof(real), "%s", packages);
    }
    for (size_t i = 0; rc == 0 && i < LOADER_SOURCES; i++) {
        char source[PATH_MAX + 32];
        (void)snprintf(source, sizeof(source), "%s/%s", a->loader != NULL ? a->loader : from,
                       names[i]);
        (void)snprintf(plan->path[i], sizeof(plan->path[i]), "%s/%s", real, names[i]);
        rc = nt_buf_read_file(&plan->loader[i], source, err);
        plan->file[plan->n++] = (struct nt_install_file){.path = plan->path[i],
                                                         .data = plan->loader[i].data,
                                                         .len = plan->loader[i].len,
                                                         .mode = 0644,
                                                         .part = "loader"};
    }
    if (rc == 0) {
        plan_compiled(a, w, plan, real);
    }
    return rc == 0 && a->engine != NULL ? plan_engines(a, plan, real, err) : rc;
}

/* ---- the active profile ---- */

static int check_fit(const struct install_args *a, const struct nt_profile *p, struct nt_err *err)
{
    struct nt_fit_opts o = {.allow_rig = -1, .despite = &a->despite};
    struct nt_machine m;
    struct nt_fit *fit = calloc(1, sizeof(*fit));
    char options[256];
    bool fits, forced;

    if (fit == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "fit");
    }
    if (a->allow_rig != NULL) {
        o.allow_rig = nt_vocab_find(nt_rig_names, "rig", a->allow_rig, err);
    }
    nt_machine_read(&(struct nt_machine_opts){.topology = a->topology}, NULL, &m);
    nt_fit(p, &m, &o, fit);
    for (size_t i = 0; i < fit->n; i++) {
        const struct nt_fit_item *f = &fit->v[i];
        if (f->stops || f->kind != NT_FIT_NOTE) {
            (void)fprintf(stderr, "nccltune: %s%s\n", f->stops ? "does not fit: " : "", f->text);
        }
    }
    fits = fit->fits;
    forced = nt_fit_forced_by(p, fit, options, sizeof(options));
    free(fit);
    nt_machine_done(&m);
    return fits ? 0
                : nt_fail(err, NT_E_NO, 0, "the profile does not fit this machine%s%s%s",
                          forced ? "; " : "", options, forced ? " installs it all the same" : "");
}

static void add_words(struct nt_buf *out, const char *option, const struct nt_strs *list)
{
    for (size_t i = 0; i < list->n; i++) {
        nt_buf_printf(out, " --%s %s", option, list->v[i]);
    }
}

/* What the unit runs: this program, on the copy of the profile. */
static int boot_command(const struct install_args *a, struct nt_buf *out, struct nt_err *err)
{
    char self[PATH_MAX], real[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n <= 0) {
        return nt_fail(err, NT_E_IO, errno, "/proc/self/exe");
    }
    self[n] = '\0';
    nt_buf_printf(out, "%s install --active " NT_ACTIVATE_PROFILE "%s%s%s%s", self,
                  a->variables_only ? " --static" : "", a->observe ? " --observe" : "",
                  a->engine != NULL ? " --engine " : "", a->engine != NULL ? a->engine : "");
    if (a->allow_rig != NULL) {
        nt_buf_printf(out, " --allow-rig %s", a->allow_rig);
    }
    if (a->plugins != NULL) {
        if (realpath(a->plugins, real) == NULL) {
            return nt_fail(err, NT_E_INVAL, errno, "%s", a->plugins);
        }
        nt_buf_printf(out, " --plugins %s", real);
    }
    add_words(out, "despite", &a->despite);
    add_words(out, "receipts-for", &a->users);
    if (strpbrk(nt_buf_str(out), "\t\n\"'\\%$") != NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "a unit cannot hold: %s", nt_buf_str(out));
    }
    return 0;
}

static bool plugin(const struct install_args *a, const char *kind, char *path)
{
    return nt_place_plugin(a->plugins, kind, path, PATH_MAX);
}

static int make_active(const struct install_args *a, const struct nt_profile *p, struct plan *plan,
                       struct nt_err *err)
{
    char tuner[PATH_MAX], env[PATH_MAX], profiler[PATH_MAX], boot[40];
    struct nt_activate_opts o = {.product = a->variables_only ? NT_STATIC : NT_TABLE};
    struct nt_buf command;
    int rc = 0;

    nt_buf_init(&command, 1 << 16);
    nt_boot_id(boot);
    o.boot_id = boot;
    o.tuner = plugin(a, "tuner", tuner) ? tuner : NULL;
    o.env_plugin = plugin(a, "env", env) ? env : NULL;
    o.profiler = a->observe && plugin(a, "profiler", profiler) ? profiler : NULL;
    if (a->observe && o.profiler == NULL) {
        rc = nt_fail(err, NT_E_MISSING, 0, "--observe: the profiler plugin is not installed");
    }
    if (rc == 0 && a->at_boot) {
        rc = boot_command(a, &command, err);
        o.boot_command = nt_buf_str(&command);
    }
    nt_engine_arg_unasked(p, a->engine, &plan->notes);
    if (rc == 0 && a->engine != NULL) {
        rc = nt_engine_arg_make(p, a->engine, a->variables_only, NT_ACTIVATE_FOLDER, &plan->engine,
                                &plan->notes, err);
        o.more = plan->engine.vars;
        o.nmore = plan->engine.n;
        o.backends = plan->engine.path[0] != '\0' ? &plan->engine.form : NULL;
        o.backends_path = plan->engine.path;
    }
    if (rc == 0) {
        rc = nt_activate(p, &o, &plan->active, &plan->notes, err);
    }
    for (size_t i = 0; rc == 0 && i < plan->active.n; i++) {
        plan->file[plan->n++] = plan->active.file[i];
    }
    plan->nothing_active = rc == 0 && plan->active.n == 0 ? nt_engine_arg_nothing(p) : NULL;
    nt_buf_done(&command);
    return rc;
}

/* A profile that does not fit is not left active from before. */
static int plan_active(const struct install_args *a, const struct nt_install_where *w,
                       struct plan *plan, struct nt_err *err)
{
    struct nt_profile *p = NULL;
    int rc = nt_profile_load(a->active, &p, err);

    if (rc == 0) {
        rc = check_fit(a, p, err);
        if (rc != 0) {
            (void)(nt_uninstall(w, "active", NULL, &plan->said, NULL) == 0);
        }
    }
    if (rc == 0) {
        rc = make_active(a, p, plan, err);
        print_notes(&plan->notes);
    }
    nt_profile_free(p);
    return rc;
}

/* ---- receipts ---- */

static int receipts_for(const struct nt_install_where *w, const char *user, struct nt_buf *said,
                        struct nt_err *err)
{
    const struct passwd *pw = getpwnam(user);
    char name[16];
    struct stat st;
    int fd, rc = 0;

    if (pw == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "there is no user '%s'", user);
    }
    (void)snprintf(name, sizeof(name), "%u", (unsigned)pw->pw_uid);
    if (w->dry_run) {
        nt_buf_printf(said, "would make " NT_ACTIVE_FOLDER "/%s\n", name);
        return 0;
    }
    fd = nt_safe_folder(w->root, NT_ACTIVE_FOLDER, geteuid(), NT_SAFE_CREATE, err);
    if (fd < 0) {
        return fd;
    }
    if (mkdirat(fd, name, 0700) != 0 && errno != EEXIST) {
        rc = nt_fail(err, NT_E_IO, errno, "make " NT_ACTIVE_FOLDER "/%s", name);
    } else if (fchownat(fd, name, pw->pw_uid, pw->pw_gid, AT_SYMLINK_NOFOLLOW) != 0 ||
               fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        rc = nt_fail(err, NT_E_IO, errno, NT_ACTIVE_FOLDER "/%s", name);
    } else if (!S_ISDIR(st.st_mode)) {
        rc = nt_fail(err, NT_E_NO, 0, NT_ACTIVE_FOLDER "/%s is no folder", name);
    } else {
        nt_buf_printf(said, "receipts of %s go to " NT_ACTIVE_FOLDER "/%s\n", user, name);
    }
    (void)close(fd);
    return rc;
}

static int carry_out(const struct install_args *a, const struct nt_install_where *w,
                     struct plan *plan, struct nt_err *err)
{
    int rc = 0;

    if (a->python != NULL) {
        rc = plan_loader(a, w, plan, err);
    }
    if (rc == 0 && a->active != NULL) {
        rc = plan_active(a, w, plan, err);
    }
    if (rc == 0) {
        rc = nt_install(w, plan->file, plan->n, &plan->said, err);
    }
    if (rc == 0 && plan->nothing_active != NULL) {
        nt_buf_printf(&plan->said, "%s\n", plan->nothing_active);
        rc = nt_uninstall(w, "active", NULL, &plan->said, err);
    }
    for (size_t i = 0; rc == 0 && i < a->users.n; i++) {
        rc = receipts_for(w, a->users.v[i], &plan->said, err);
    }
    return rc;
}

static int run_install(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct install_args *a = opts;
    struct nt_install_where w = {.root = a->root, .dry_run = a->dry_run};
    struct plan *plan;
    int rc;
    (void)nargs;
    (void)args;

    if (a->python == NULL && a->active == NULL && a->users.n == 0) {
        return nt_fail(err, NT_E_INVAL, 0, "nothing to install: --python, --active or both");
    }
    rc = nt_install_where_check(&w, err);
    if (rc != 0) {
        return rc;
    }
    plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "install");
    }
    nt_buf_init(&plan->said, 1 << 20);
    nt_buf_init(&plan->notes, 1 << 16);
    for (size_t i = 0; i < LOADER_FILES; i++) {
        nt_buf_init(&plan->loader[i], MAX_LOADER);
    }
    for (size_t i = 0; i < ENGINE_FILES; i++) {
        nt_buf_init(&plan->engines[i], MAX_LOADER);
    }
    rc = carry_out(a, &w, plan, err);
    print_said(&plan->said);
    for (size_t i = 0; i < LOADER_FILES; i++) {
        nt_buf_done(&plan->loader[i]);
    }
    for (size_t i = 0; i < ENGINE_FILES; i++) {
        nt_buf_done(&plan->engines[i]);
    }
    nt_engine_arg_done(&plan->engine);
    nt_buf_done(&plan->said);
    nt_buf_done(&plan->notes);
    nt_activate_done(&plan->active);
    free(plan);
    return rc;
}

const struct nt_command nt_cmd_install = {
    .name = "install",
    .summary = "the Python loader and the active profile, on this machine",
    .args = "",
    .opts = install_opts,
    .size = sizeof(struct install_args),
    .run = run_install,
    .details =
        "--python puts the loader into one interpreter; --active checks that a profile fits this "
        "machine and writes /run/nccltune/active, which the loader of every interpreter reads "
        "until the next boot. A profile that does not fit is not left active.\n\nEvery file is "
        "written down with its hash; a file that is there and not ours, or was changed, stops "
        "everything before the first one is written. 'nccltune uninstall' takes away what is as "
        "it was installed."};

/* ---- uninstall ---- */

struct uninstall_args {
    const char *root, *python;
    bool dry_run, active;
};
static const struct nt_opt uninstall_opts[] = {
    NT_OPT(NT_O_STR, uninstall_args, python, "python", 0, "PATH",
           "only the loader of this interpreter; of one that is gone: its path, or its folder"),
    NT_OPT(NT_O_FLAG, uninstall_args, active, "active", 'a', NULL,
           "only the active file: the profile's files stay"),
    NT_OPT(NT_O_FLAG, uninstall_args, dry_run, "dry-run", 'n', NULL, "say what would be done"),
    NT_OPT(NT_O_STR, uninstall_args, root, "root", 0, "DIR",
           "folder that was installed below (default /)"),
    {0}};

/* Where a path that is not there would lie: the part of it that is there may go through links. */
static void resolve(const char *path, char out[PATH_MAX])
{
    char head[PATH_MAX], real[PATH_MAX];
    size_t len = strlen(path);

    (void)snprintf(head, sizeof(head), "%s", path);
    while (realpath(head, real) == NULL && strrchr(head, '/') > head) {
        *strrchr(head, '/') = '\0';
    }
    if (realpath(head, real) != NULL &&
        snprintf(out, PATH_MAX, "%s%s", strcmp(real, "/") != 0 ? real : "",
                 path + (strlen(head) < len ? strlen(head) : len)) < PATH_MAX) {
        return;
    }
    (void)snprintf(out, PATH_MAX, "%s", path);
}

/* An environment that was deleted: by its interpreter (DIR/bin/python), or by a folder of it. */
static int forget(const struct uninstall_args *a, const struct nt_install_where *w,
                  struct nt_buf *said, struct nt_err *err)
{
    char path[PATH_MAX], folder[PATH_MAX], config[PATH_MAX + 16];
    struct nt_err first;
    int rc;

    resolve(a->python, path);
    (void)snprintf(folder, sizeof(folder), "%s", path);
    for (int up = 0; up < 2 && strrchr(folder, '/') > folder; up++) {
        *strrchr(folder, '/') = '\0';
    }
    (void)snprintf(config, sizeof(config), "%s/pyvenv.cfg", folder);
    if (access(config, F_OK) == 0) { /* its interpreter alone has gone */
        return nt_uninstall(w, "loader", folder, said, err);
    }
    rc = nt_install_forget(w, path, said, &first);
    if (rc == -NT_E_INVAL && nt_install_forget(w, folder, said, NULL) == 0) {
        return 0;
    }
    if (rc != 0) {
        *err = first;
    }
    return rc;
}

static bool is_gone(const char *python)
{
    return strchr(python, '/') != NULL && access(python, F_OK) != 0 && errno == ENOENT;
}

static int run_uninstall(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct uninstall_args *a = opts;
    struct nt_install_where w = {.root = a->root, .dry_run = a->dry_run};
    char packages[PATH_MAX], real[PATH_MAX];
    const char *prefix = NULL;
    struct nt_buf said;
    int rc = nt_install_where_check(&w, err);
    bool gone = a->python != NULL && is_gone(a->python);
    (void)nargs;
    (void)args;

    if (rc == 0 && a->python != NULL && !gone) {
        rc = nt_python_packages(a->python, packages, sizeof(packages), err);
        prefix = a->root == NULL && rc == 0 && realpath(packages, real) != NULL ? real : packages;
    }
    nt_buf_init(&said, 1 << 20);
    if (rc == 0 && gone) {
        rc = forget(a, &w, &said, err);
    } else if (rc == 0) {
        rc = nt_uninstall(&w,
                          a->active        ? "active"
                          : prefix != NULL ? "loader"
                                           : NULL,
                          prefix, &said, err);
    }
    if (rc == 0 && said.len == 0) {
        nt_buf_puts(&said, "nothing is installed that could be taken away\n");
    }
    print_said(&said);
    nt_buf_done(&said);
    return rc;
}

const struct nt_command nt_cmd_uninstall = {
    .name = "uninstall",
    .summary = "take away what install put on this machine",
    .args = "",
    .opts = uninstall_opts,
    .size = sizeof(struct uninstall_args),
    .run = run_uninstall,
    .details = "Removes the files of the manifest that are as they were installed. A file that was "
               "changed since is left and named, and the exit code is 1. An environment that was "
               "deleted is "
               "forgotten by --python with the path that its interpreter had."};
