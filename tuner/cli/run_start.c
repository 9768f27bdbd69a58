#include "tuner/cli/run_start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "profiles/format/receipt.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/cli/engine_arg.h"
#include "tuner/deliver/apply.h"
#include "tuner/deliver/fit.h"
#include "tuner/deliver/manifest.h"
#include "tuner/deliver/places.h"
#include "tuner/deliver/safe.h"

struct run {
    const struct nt_run_opts *a;
    const char *const *argv;
    struct nt_profile *profile;
    struct nt_machine machine;
    struct nt_fit fit;
    struct nt_apply apply;
    struct nt_engine_arg engine;
    struct nt_buf notes;
    char id[64], hash[65], table[PATH_MAX], tuner[PATH_MAX], env_plugin[PATH_MAX],
        profiler[PATH_MAX];
    bool disabled;
    void (*on_quota)(int); /* what the command finds for SIGXFSZ */
};

static const char *const *env_now(void)
{
    return (const char *const *)environ;
}

static bool is_off(const char *value)
{
    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

/* Receipts need a folder in memory that only this user can write to; root can make its own. */
static void want_receipts(struct run *r)
{
    char path[PATH_MAX];
    struct nt_why why = {""};
    int fd;

    if (geteuid() == 0 && getenv("NCCLTUNE_RECEIPTS") == NULL) {
        (void)mkdir("/run/nccltune", 0755);
        (void)mkdir("/run/nccltune/0", 0700);
    }
    fd = nt_receipt_folder(path, sizeof(path), &why);
    if (fd < 0) {
        nt_buf_printf(&r->notes, "no receipts, so doctor will have no proof: %s\n", why.text);
        return;
    }
    (void)close(fd);
}

static int check_fit(struct run *r, struct nt_err *err)
{
    const struct nt_run_opts *a = r->a;
    struct nt_fit_opts o = {.allow_rig = -1, .despite = &a->despite, .env = env_now()};
    const struct nt_fit_item *first = NULL;
    char options[256];
    bool forced;

    if (a->allow_rig != NULL) {
        o.allow_rig = nt_vocab_find(nt_rig_names, "rig", a->allow_rig, err);
    }
    nt_fit(r->profile, &r->machine, &o, &r->fit);
    for (size_t i = 0; i < r->fit.n; i++) {
        const struct nt_fit_item *f = &r->fit.v[i];
        first = first == NULL && f->stops ? f : first;
        if (a->verbose || a->dry_run || f->stops || f->kind != NT_FIT_NOTE) {
            (void)fprintf(stderr, "nccltune: %s%s\n", f->stops ? "does not fit: " : "", f->text);
        }
    }
    if (r->fit.fits) {
        return 0;
    }
    forced = nt_fit_forced_by(r->profile, &r->fit, options, sizeof(options));
    return nt_fail(err, first != NULL && first->kind == NT_FIT_UNKNOWN ? NT_E_MISSING : NT_E_NO, 0,
                   "the profile is not applied%s%s%s", forced ? "; with " : "", options,
                   forced ? " it is all the same" : "");
}

/* Release to write for: the profile's where it is among the candidates, else the first one's. */
static unsigned release(const struct run *r)
{
    unsigned version = 0;
    for (size_t i = 0; i < r->machine.nccl.n; i++) {
        if (strcmp(r->machine.nccl.v[i].version, r->profile->stack.nccl) == 0) {
            return 0;
        }
    }
    for (size_t i = 0; i < r->machine.nccl.n && version == 0; i++) {
        (void)(nt_nccl_version_parse(r->machine.nccl.v[i].version, &version, NULL) == 0);
    }
    return version;
}

/* What lies at its name is replaced and never opened or followed: who reads it takes no link. */
static int put(const char *path, const void *data, size_t len, struct nt_err *err)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX], temp[96];
    int rc, fd;

    nt_assert(slash != NULL);
    (void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return nt_fail(err, NT_E_IO, errno, "%s", folder);
    }
    rc = nt_safe_write_temp(fd, slash + 1, data, len, 0444, temp, sizeof(temp), err);
    if (rc == 0 && renameat(fd, temp, fd, slash + 1) != 0) {
        rc = nt_fail(err, NT_E_IO, errno, "write %s", path);
        (void)unlinkat(fd, temp, 0);
    }
    (void)close(fd);
    return rc;
}

/* 0444: the file's name is the hash of its content, so there is nothing to change in it. */
static int write_table(struct run *r, enum nt_product product, struct nt_err *err)
{
    char folder[PATH_MAX - 80];
    struct nt_buf bytes;
    int rc = nt_state_folder("tables", folder, sizeof(folder), err);

    nt_buf_init(&bytes, NT_PROFILE_MAX_BYTES);
    rc = rc == 0 ? nt_profile_delivery(r->profile, product, &bytes, r->hash, err) : rc;
    (void)snprintf(r->table, sizeof(r->table), "%s/%s.nctable", folder, r->hash);
    if (rc == 0 && !r->a->dry_run) {
        rc = put(r->table, bytes.data, bytes.len, err);
    }
    nt_buf_done(&bytes);
    return nt_wrap(err, rc, "what the profile sets cannot be delivered, and nothing is started");
}

/* The engine finds the plugin by itself, in any folder that its interpreter looks for packages in.
 */
static int find_plugin(struct nt_err *err)
{
    const char *before = getenv("PYTHONPATH");
    char folder[PATH_MAX];
    struct nt_buf value;
    int rc = 0;

    if (!nt_place_engines(folder, sizeof(folder))) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "--engine: share/nccltune/engines is not beside this program");
    }
    nt_buf_init(&value, 1 << 20);
    nt_buf_printf(&value, "%s%s%s", folder, before != NULL && before[0] != '\0' ? ":" : "",
                  before != NULL ? before : "");
    if (value.failed || setenv("PYTHONPATH", nt_buf_str(&value), 1) != 0) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "PYTHONPATH");
    }
    nt_buf_done(&value);
    return rc;
}

static int write_backends(struct run *r, enum nt_product product, struct nt_err *err)
{
    char folder[PATH_MAX - 80];
    int rc = nt_state_folder("tables", folder, sizeof(folder), err);

    rc = rc == 0 ? nt_engine_arg_make(r->profile, r->a->engine, product == NT_STATIC, folder,
                                      &r->engine, &r->notes, err)
                 : rc;
    if (rc == 0 && r->engine.path[0] != '\0') {
        rc = find_plugin(err);
        rc = rc == 0 && !r->a->dry_run
                 ? put(r->engine.path, r->engine.form.data, r->engine.form.len, err)
                 : rc;
    }
    return rc;
}

/* A rig with its ranks on one GPU is one host, whatever its ranks tell NCCL. */
static unsigned local_ranks(const struct run *r)
{
    const struct nt_profile *p = r->profile;
    bool one_host = p->rig == NT_RIG_MPS_SOCKETS || p->rig == NT_RIG_MPS_P2P;

    if (r->a->local_ranks > 0) {
        return r->a->local_ranks;
    }
    return one_host ? p->ranks : p->nodes > 0 ? p->ranks / p->nodes : 0;
}

static int prepare(struct run *r, struct nt_err *err)
{
    const struct nt_run_opts *a = r->a;
    enum nt_product product = a->variables_only ? NT_STATIC : NT_TABLE;
    const struct nt_profile *p = r->profile;
    struct nt_apply_opts o;
    int rc;

    if (!p->product[product].present) {
        return nt_fail(err, NT_E_INVAL, 0, "the profile has no %s product%s",
                       nt_product_names[product],
                       product == NT_TABLE ? "; --static applies its variables" : "");
    }
    rc = check_fit(r, err);
    rc = rc == 0 ? write_table(r, product, err) : rc;
    rc = rc == 0 && a->engine != NULL ? write_backends(r, product, err) : rc;
    nt_engine_arg_unasked(p, a->engine, &r->notes);
    if (rc != 0) {
        return rc;
    }
    o = (struct nt_apply_opts){
        .product = product,
        .nccl = release(r),
        .hash = r->hash,
        .table = r->table,
        .job = r->id,
        .local_ranks = local_ranks(r),
        .more = r->engine.vars,
        .nmore = r->engine.n,
    };
    if (nt_place_plugin(a->plugins, "tuner", r->tuner, sizeof(r->tuner))) {
        o.tuner = r->tuner;
    }
    if (nt_place_plugin(a->plugins, "env", r->env_plugin, sizeof(r->env_plugin))) {
        o.env_plugin = r->env_plugin;
    }
    if (a->observe) {
        if (!nt_place_plugin(a->plugins, "profiler", r->profiler, sizeof(r->profiler))) {
            return nt_fail(err, NT_E_MISSING, 0, "--observe: the profiler plugin is not installed");
        }
        o.profiler = r->profiler;
    }
    rc = nt_apply(p, &o, env_now(), &r->apply, &r->notes, err);
    if (rc == 0 && r->apply.n > 0) {
        want_receipts(r);
    }
    return rc;
}

/* ---- saying and remembering ---- */

static void say(const struct run *r)
{
    struct nt_buf line;
    const char *note = nt_buf_str(&r->notes);

    for (; *note != '\0'; note += *note == '\n') {
        size_t len = strcspn(note, "\n");
        (void)fprintf(stderr, "nccltune: %.*s\n", (int)len, note);
        note += len;
    }
    nt_buf_init(&line, 1 << 16);
    nt_buf_printf(&line, "run %s:", r->id);
    if (r->disabled) {
        nt_buf_puts(&line, " NCCLTUNE_DISABLE is set: nothing is applied");
    } else if (r->profile == NULL) {
        nt_buf_puts(&line, " no profile");
    } else if (r->apply.n == 0) {
        nt_buf_printf(&line, " %s", nt_engine_arg_nothing(r->profile));
    } else {
        nt_buf_printf(&line, " profile %.12s", r->hash);
    }
    for (int how = 0; how < NT_APPLY_COUNT; how++) {
        bool any = false;
        for (size_t i = 0; i < r->apply.n; i++) {
            const struct nt_apply_var *v = &r->apply.v[i];
            if ((int)v->how == how && strncmp(v->name, "NCCLTUNE_", 9) != 0) {
                nt_buf_printf(&line, "%s %s%s", any ? "" : ";", any ? "" : nt_apply_names[how],
                              any ? "" : " ");
                nt_buf_puts(&line, v->name);
                any = true;
            }
        }
    }
    (void)fprintf(stderr, "nccltune: %s\n", nt_buf_str(&line));
    nt_buf_done(&line);
}

static json_t *applied(const struct run *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->apply.n; i++) {
        const struct nt_apply_var *v = &r->apply.v[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:o, s:s, s:o}", "name", v->name, "value",
                            nt_json_text(v->value), "how", nt_apply_names[v->how], "before",
                            v->before != NULL ? nt_json_text(v->before) : json_null()));
    }
    return list;
}

static json_t *manifest(const struct run *r)
{
    char created[32], cwd[PATH_MAX], file[PATH_MAX] = "";
    time_t now = time(NULL);
    struct tm tm;
    json_t *profile = json_null(), *fit = json_array();

    (void)strftime(created, sizeof(created), "%FT%TZ", gmtime_r(&now, &tm));
    if (getcwd(cwd, sizeof(cwd)) == NULL) {
        cwd[0] = '\0';
    }
    nt_text_plain(cwd); /* JSON is UTF-8, names of files need not be */
    if (r->profile != NULL && !r->disabled) {
        (void)snprintf(file, sizeof(file), "%s", r->a->profile);
        nt_text_plain(file);
        profile = json_pack("{s:s, s:s, s:s, s:o}", "hash", r->hash, "file", file, "product",
                            nt_product_names[r->a->variables_only ? NT_STATIC : NT_TABLE], "table",
                            nt_json_text(r->table));
    }
    for (size_t i = 0; i < r->fit.n; i++) {
        (void)json_array_append_new(fit, json_string(r->fit.v[i].text));
    }
    return json_pack("{s:s, s:i, s:s, s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:{}}", "format",
                     NT_RUN_FORMAT, "version", 1, "id", r->id, "created", created, "command",
                     nt_manifest_command(r->argv), "cwd", cwd, "profile", profile, "fit", fit,
                     "applied", applied(r), "variables", nt_manifest_variables(env_now()),
                     "machine", nt_machine_json(&r->machine), "notes");
}

static void print_plan(const struct run *r)
{
    for (size_t i = 0; i < r->apply.n; i++) {
        const struct nt_apply_var *v = &r->apply.v[i];
        (void)printf("%-5s %s=%s\n", nt_apply_names[v->how], v->name,
                     v->how == NT_APPLY_KEPT ? v->before : v->value);
    }
}

static int set_variables(const struct run *r, struct nt_err *err)
{
    for (size_t i = 0; i < r->apply.n; i++) {
        const struct nt_apply_var *v = &r->apply.v[i];
        if (v->how == NT_APPLY_SET && setenv(v->name, v->value, 1) != 0) {
            return nt_fail(err, NT_E_NOMEM, 0, "environment");
        }
    }
    return 0;
}

/* Bookkeeping: a disk that is full is no reason not to start the command. */
static void keep_manifest(const struct run *r)
{
    struct nt_err err = {.code = NT_OK};
    json_t *m = manifest(r);
    int rc = m != NULL ? nt_manifest_save(m, &err)
                       : nt_fail(&err, NT_E_NOMEM, 0, "what it says could not be put together");

    if (rc != 0) {
        (void)fprintf(stderr,
                      "nccltune: warning: no manifest of this run is kept, so note and diff will "
                      "not know it (%s); the command starts all the same.%s\n",
                      err.msg,
                      m != NULL ? " For the next one: free that folder, or set XDG_STATE_HOME to "
                                  "one that can be written"
                                : "");
    }
    json_decref(m);
}

/* Returns only on failure. */
static int start(const struct run *r, int *ret_shell, struct nt_err *err)
{
    int e;
    (void)fflush(NULL);
    (void)signal(SIGXFSZ, r->on_quota);
    if (r->a->started_ns != NULL) {
        struct timespec t;
        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        *r->a->started_ns = (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
    }
    (void)execvp(r->argv[0], (char *const *)(uintptr_t)r->argv);
    e = errno;
    nt_manifest_drop(r->id);
    *ret_shell = e == ENOENT ? 127 : 126;
    return nt_fail(err, NT_E_INVAL, e, "%.300s", r->argv[0]);
}

void nt_run_new_id(char *out, size_t size)
{
    time_t now = time(NULL);
    struct tm tm;
    char when[32];
    (void)strftime(when, sizeof(when), "%Y%m%dT%H%M%S", gmtime_r(&now, &tm));
    (void)snprintf(out, size, "%s-%ld", when, (long)getpid());
}

static int run_it(struct run *r, int *ret_shell, struct nt_err *err)
{
    int rc = 0;

    r->disabled = is_off(getenv("NCCLTUNE_DISABLE"));
    if (r->a->engine != NULL && r->a->profile == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "--engine: says what to take of a --profile");
    }
    if (r->a->profile != NULL) {
        rc = nt_profile_load(r->a->profile, &r->profile, err);
    }
    if (rc == 0) {
        nt_machine_read(&(struct nt_machine_opts){.topology = r->a->topology,
                                                  .root = r->a->root,
                                                  .nvml = r->a->nvml},
                        &(struct nt_command_line){r->argv, env_now()}, &r->machine);
    }
    if (rc == 0 && r->profile != NULL && !r->disabled) {
        rc = prepare(r, err);
    }
    if (rc != 0) {
        return rc;
    }
    say(r);
    if (r->a->dry_run) {
        print_plan(r);
        return 0;
    }
    rc = set_variables(r, err);
    if (rc == 0) {
        keep_manifest(r);
        rc = start(r, ret_shell, err);
    }
    return rc;
}

int nt_run_start(const struct nt_run_opts *o, const char *const *argv, const char *id,
                 int *ret_shell, struct nt_err *err)
{
    struct run *r = calloc(1, sizeof(*r));
    int rc;

    *ret_shell = 0;
    if (r == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "run");
    }
    r->a = o;
    r->argv = argv;
    r->on_quota = signal(SIGXFSZ, SIG_IGN); /* an error to report, not a death */
    nt_buf_init(&r->notes, 1 << 16);
    if (id != NULL) {
        (void)snprintf(r->id, sizeof(r->id), "%s", id);
    } else {
        nt_run_new_id(r->id, sizeof(r->id));
    }
    rc = run_it(r, ret_shell, err);
    nt_buf_done(&r->notes);
    nt_engine_arg_done(&r->engine);
    nt_machine_done(&r->machine);
    nt_profile_free(r->profile);
    free(r);
    return rc;
}
