#include "tuner/deliver/apply.h"

#include <stdio.h>
#include <string.h>
#include "tuner/deliver/library.h"

/* Releases whose tuner interface the plugin has, and those that know an env plugin. */
enum { FIRST_TUNER = 22105, FIRST_ENV = 22807 };

const char *const nt_apply_names[] = {"set", "same", "kept", NULL};

static void add(struct nt_apply *a, const char *const *env, const char *name, const char *value)
{
    const char *before = nt_env_get(env, name);
    nt_assert(a->n < NT_APPLY_VARS);
    a->v[a->n++] = (struct nt_apply_var){.name = name,
                                         .value = value,
                                         .before = before,
                                         .how = before == NULL               ? NT_APPLY_SET
                                                : strcmp(before, value) == 0 ? NT_APPLY_SAME
                                                                             : NT_APPLY_KEPT};
}

static void add_vars(const struct nt_profile *p, const struct nt_apply_opts *o, unsigned version,
                     const char *const *env, struct nt_apply *ret, struct nt_buf *notes)
{
    const struct nt_assigns *vars = &p->product[o->product].vars;
    for (size_t i = 0; i < vars->n && i < 256; i++) {
        struct nt_err why = {.code = NT_OK};
        if (nt_tunable_for_profile(vars->v[i].name, vars->v[i].value, version,
                                   o->product == NT_TABLE, &why) != 0) {
            nt_buf_printf(notes, "left out: %s\n", why.msg);
            continue;
        }
        add(ret, env, vars->v[i].name, vars->v[i].value);
        if (ret->v[ret->n - 1].how == NT_APPLY_KEPT) {
            nt_buf_printf(notes, "%s=%s is yours and stays; the profile has %s\n", vars->v[i].name,
                          ret->v[ret->n - 1].before, vars->v[i].value);
        }
    }
}

/* What NCCL would take instead of the table's choice. */
static void say_masks(const char *const *env, struct nt_buf *notes)
{
    for (; env != NULL && *env != NULL; env++) {
        char name[64];
        size_t len = strcspn(*env, "=");
        const struct nt_tunable *t;
        (void)snprintf(name, sizeof(name), "%.*s", (int)(len < 63 ? len : 63), *env);
        t = nt_tunable_any(name);
        if (t != NULL && (t->flags & NT_F_MASKS_TABLE) != 0) {
            nt_buf_printf(
                notes, "%s is yours and stays; what it rules out the table cannot choose\n", *env);
        }
    }
}

static int check_other(const struct nt_apply *a, const struct nt_apply_opts *o, struct nt_err *err)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct nt_apply_var *v = &a->v[i];
        if (v->how == NT_APPLY_KEPT && strcmp(v->name, "NCCLTUNE_PROFILE") == 0) {
            return nt_fail(err, NT_E_NO, 0,
                           "NCCLTUNE_PROFILE already names another profile (%.64s); unset it first",
                           v->before);
        }
        if (v->how == NT_APPLY_KEPT && strncmp(v->name, "NCCLTUNE_BACKENDS", 17) == 0) {
            return nt_fail(err, NT_E_NO, 0,
                           "%s already names other backends (%.120s); unset it first", v->name,
                           v->before);
        }
        if (v->how == NT_APPLY_KEPT && v->value == o->tuner) {
            return nt_fail(err, NT_E_NO, 0,
                           "NCCL_TUNER_PLUGIN=%.120s is set: a tuner plugin is never replaced, and "
                           "without ours the table does nothing; unset it, or use --static",
                           v->before);
        }
    }
    return 0;
}

int nt_apply(const struct nt_profile *p, const struct nt_apply_opts *o, const char *const *env,
             struct nt_apply *ret, struct nt_buf *notes, struct nt_err *err)
{
    bool rows = o->product == NT_TABLE && p->product[NT_TABLE].rows.n > 0;
    unsigned version = o->nccl;
    int rc = 0;

    ret->n = 0;
    if (version == 0) {
        rc = nt_nccl_version_parse(p->stack.nccl, &version, err);
        if (rc != 0) {
            return rc;
        }
    }
    add_vars(p, o, version, env, ret, notes);
    if (rows && (version < FIRST_TUNER || o->tuner == NULL)) {
        return nt_fail(err, NT_E_NO, 0,
                       version < FIRST_TUNER
                           ? "NCCL %s has no tuner interface that the plugin speaks; use --static"
                           : "the table needs the tuner plugin, which is not installed (NCCL %s): "
                             "--plugins DIR "
                             "names its folder, --static does without",
                       p->stack.nccl);
    }
    nt_assert(o->nmore <= NT_APPLY_MORE);
    for (size_t i = 0; i < o->nmore; i++) {
        add(ret, env, o->more[i].name, o->more[i].value);
    }
    if (ret->n == 0 && !rows) {
        return 0; /* the defaults win: nothing to tell anybody */
    }
    if (rows) {
        say_masks(env, notes);
        add(ret, env, "NCCL_TUNER_PLUGIN", o->tuner);
    }
    if (o->env_plugin != NULL && version >= FIRST_ENV) {
        add(ret, env, "NCCL_ENV_PLUGIN", o->env_plugin);
    }
    if (o->profiler != NULL) {
        add(ret, env, "NCCL_PROFILER_PLUGIN", o->profiler);
    }
    add(ret, env, "NCCLTUNE_PROFILE", o->hash);
    add(ret, env, "NCCLTUNE_TABLE", o->table);
    if (o->job != NULL) {
        add(ret, env, "NCCLTUNE_JOB", o->job);
    }
    if (o->local_ranks > 0) {
        (void)snprintf(ret->ranks, sizeof(ret->ranks), "%u", o->local_ranks);
        add(ret, env, "NCCLTUNE_LOCAL_RANKS", ret->ranks);
    }
    return check_other(ret, o, err);
}
