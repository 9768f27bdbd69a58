#include "tuner/cli/resumed.h"

#include <stdio.h>
#include <string.h>
#include "schema/vocab.h"
#include "tuner/base/text.h"

/* Needs no quotes in a shell. */
#define SHELL_PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"

/* Whether every size of `a` is one of `b`. */
static bool sizes_within(const struct nt_spec *a, const struct nt_spec *b)
{
    for (size_t i = 0, j; i < a->nsizes; i++) {
        for (j = 0; j < b->nsizes && b->sizes[j] != a->sizes[i]; j++) {
        }
        if (j == b->nsizes) {
            return false;
        }
    }
    return true;
}

static bool same_settings(const struct nt_spec *a, const struct nt_spec *b)
{
    bool same = a->nsettings == b->nsettings;
    for (size_t i = 0; same && i < a->nsettings; i++) {
        same = strcmp(a->settings[i], b->settings[i]) == 0;
    }
    return same;
}

/* `x` is what the given options alone would ask for. */
static int take(const struct nt_resumed *g, struct nt_env *env, struct nt_spec *x,
                struct nt_err *err)
{
    int rc = 0, effort = 0;

    nt_spec_init(x);
    if (g->effort != NULL) {
        effort = nt_vocab_find(nt_effort_names, "effort", g->effort, err);
        rc = effort < 0 ? effort : 0;
        x->effort = (enum nt_effort)effort;
    }
    if (rc == 0 && g->collectives != NULL) {
        rc = nt_wrap(
            err,
            nt_spec_set(g->collectives, nt_coll_names, "collective", x->colls, NT_COLL_COUNT, err),
            "--collectives");
    }
    if (rc == 0 && g->modes != NULL) {
        rc =
            nt_wrap(err, nt_spec_set(g->modes, nt_mode_names, "mode", x->modes, NT_MODE_COUNT, err),
                    "--modes");
    }
    if (rc == 0 && g->dtypes != NULL) {
        rc = nt_wrap(err, nt_spec_set_dtypes(x, g->dtypes, err), "--dtypes");
    }
    if (rc == 0 && g->sizes != NULL) {
        rc = nt_spec_add_sizes(x, g->sizes, err);
    }
    return rc == 0 && g->try->n > 0 ? nt_env_settings(env, x, g->try, err) : rc;
}

/* A recording holds one type, whatever else was asked for beside it. */
static bool other_types(const struct nt_spec *x, const struct nt_spec *s)
{
    if (s->rig == NT_RIG_RECORDING) {
        return !x->dtypes[s->raced_dtype];
    }
    return memcmp(x->dtypes, s->dtypes, sizeof(x->dtypes)) != 0 || x->raced_dtype != s->raced_dtype;
}

int nt_resumed_check(const struct nt_resumed *g, uint64_t usual_seed, const struct nt_spec *s,
                     struct nt_env *env, int64_t job, struct nt_err *err)
{
    struct nt_spec x;
    int rc = take(g, env, &x, err);
    const struct {
        const char *option;
        bool other;
    } rows[] = {
        {"devices", g->devices != NULL && strcmp(g->devices, s->devices) != 0},
        {"effort", g->effort != NULL && x.effort != s->effort},
        {"collectives", g->collectives != NULL && memcmp(x.colls, s->colls, sizeof(x.colls)) != 0},
        {"modes", g->modes != NULL && memcmp(x.modes, s->modes, sizeof(x.modes)) != 0},
        {"dtypes", g->dtypes != NULL && other_types(&x, s)},
        {"sizes", g->sizes != NULL && !(sizes_within(&x, s) && sizes_within(s, &x))},
        {"try", g->try->n > 0 && !same_settings(&x, s)},
        {"seed", g->seed != usual_seed && g->seed != s->seed},
        {"budget", g->budget_ns != 0 && g->budget_ns != s->budget_ns},
        {"max-memory", g->max_memory != 0 && g->max_memory != s->max_memory_bytes},
        {"no-groups", g->no_groups && !s->no_groups},
        {"no-overlap", g->no_overlap && !s->no_overlap},
        {"pairs", g->pairs != 0 && g->pairs != s->pairs},
    };

    for (size_t i = 0; rc == 0 && i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].other) {
            rc = nt_fail(err, NT_E_INVAL, 0,
                         "--%s: job %lld began with another and goes on with that: leave it out, "
                         "or start anew without --resume",
                         rows[i].option, (long long)job);
        }
    }
    return rc;
}

const char *nt_probe_name(const char *probe)
{
    const char *slash = probe != NULL ? strrchr(probe, '/') : NULL;

    return slash != NULL ? slash + 1 : probe != NULL ? probe : "";
}

int nt_resumed_probe(const char *probe, const struct nt_spec *spec, int64_t job, struct nt_err *err)
{
    char now[sizeof(spec->probe)];

    (void)snprintf(now, sizeof(now), "%s", nt_probe_name(probe));
    if (spec->probe[0] != '\0' && strcmp(spec->probe, now) != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "job %lld is measured by %s: name it again with --probe",
                       (long long)job, spec->probe);
    }
    return 0;
}

void nt_shell_option(const char *name, const char *value, struct nt_buf *out)
{
    if (value == NULL) {
        return;
    }
    nt_buf_printf(out, " --%s ", name);
    if (value[strspn(value, SHELL_PLAIN)] == '\0') {
        nt_buf_puts(out, value);
    } else {
        nt_buf_put_quoted(out, value);
    }
}
