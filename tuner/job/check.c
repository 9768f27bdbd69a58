#include "tuner/job/check.h"
#include "tuner/base/hash.h"
#include "tuner/base/json.h"
#include "tuner/job/workdir.h"
#include "tuner/launch/loop.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const nt_check_despite[] = {"nccl", "driver", "gpu", "health", NULL};

struct check {
    const struct nt_check_config *c;
    struct nt_check_outcome *o;
    struct nt_check_plan *plan;
    char dir[64], vars[NT_SETTING_LEN], delivery[256];
    uv_loop_t loop;
    uv_signal_t signals[NT_LOOP_ENDS];
    struct nt_drive *drive;
    int rc;
    struct nt_err err;
};

/* ------------------------------------------------------------------ does it fit? */

static void NT_PRINTF(4, 5)
    differ(struct nt_check_outcome *o, const char *what, bool stops, const char *fmt, ...)
{
    struct nt_check_differs *d;
    va_list ap;

    if (o->ndiffers == sizeof(o->differs) / sizeof(o->differs[0])) {
        return;
    }
    d = &o->differs[o->ndiffers++];
    *d = (struct nt_check_differs){.what = what, .stops = stops};
    va_start(ap, fmt);
    (void)vsnprintf(d->text, sizeof(d->text), fmt, ap);
    va_end(ap);
}

static bool passed_over(const struct nt_strs *despite, const char *what)
{
    for (size_t i = 0; despite != NULL && i < despite->n; i++) {
        if (strcmp(despite->v[i], what) == 0) {
            return true;
        }
    }
    return false;
}

static void fit_text(struct nt_check_outcome *o, const struct nt_strs *despite, const char *what,
                     const char *name, const char *was, const char *is)
{
    if (was != NULL && was[0] != '\0' && is[0] != '\0' && strcmp(was, is) != 0) {
        differ(o, what, !passed_over(despite, what), "%s: made with %.80s, here is %.80s", name,
               was, is);
    }
}

static void fit_identity(struct nt_check_outcome *o, const struct nt_profile *p,
                         const struct nt_facts *f)
{
    for (size_t i = 0; i < p->identity.groups.n; i++) {
        const struct nt_assign *g = &p->identity.groups.v[i];
        const char *here = nt_json_opt_str(f->groups, g->name, NULL);
        if (here != NULL && strcmp(here, g->value) != 0) {
            differ(o, "identity", true, "another machine: %s not as on the profile's", g->name);
        }
    }
}

static bool listed(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *t = json_string_value(json_array_get(list, i));
        if (t != NULL && strcmp(t, text) == 0) {
            return true;
        }
    }
    return false;
}

static void fit_health(struct nt_check_outcome *o, const struct nt_profile *p,
                       const struct nt_facts *f, const struct nt_strs *despite)
{
    for (size_t i = 0; i < json_array_size(f->health); i++) {
        const char *text = json_string_value(json_array_get(f->health, i));
        bool known = false;
        for (size_t k = 0; text != NULL && k < p->health.n; k++) {
            known = known || strcmp(p->health.v[k], text) == 0;
        }
        if (text != NULL && !known) {
            differ(o, "health", !passed_over(despite, "health"), "health: %.200s", text);
        }
    }
    for (size_t k = 0; f->health != NULL && k < p->health.n; k++) {
        if (!listed(f->health, p->health.v[k])) {
            differ(o, "note", false, "health, no more: %.200s", p->health.v[k]);
        }
    }
}

static bool has_word(const char *list, const char *name, const char *value)
{
    size_t n = strlen(name), v = strlen(value);

    for (; *list != '\0'; list += strcspn(list, " "), list += *list == ' ') {
        size_t len = strcspn(list, " ");
        if (len == n + 1 + v && memcmp(list, name, n) == 0 && list[n] == '=' &&
            memcmp(list + n + 1, value, v) == 0) {
            return true;
        }
    }
    return false;
}

/* A driver is told by its own version ("580.159.04"), or, of a recording, by the CUDA version that
 * it is made for ("13.0"): one says nothing of the other. */
static bool is_of_cuda(const char *driver)
{
    return strspn(driver, "0123456789") < 3;
}

static const char *driver_beside(const char *here, const char *was)
{
    return was != NULL && is_of_cuda(here) == is_of_cuda(was) ? here : "";
}

void nt_check_fit(const struct nt_profile *p, const struct nt_facts *facts, const char *site,
                  const struct nt_strs *despite, struct nt_check_outcome *ret)
{
    fit_identity(ret, p, facts);
    fit_health(ret, p, facts, despite);
    fit_text(ret, despite, "nccl", "NCCL", p->stack.nccl, facts->nccl);
    fit_text(ret, despite, "driver", "driver", p->stack.driver,
             driver_beside(facts->driver, p->stack.driver));
    fit_text(ret, despite, "gpu", "GPU", p->stack.gpu, facts->gpu);
    if (p->stack.framework != NULL && p->stack.framework[0] != '\0' &&
        facts->framework[0] != '\0' && strcmp(p->stack.framework, facts->framework) != 0) {
        differ(ret, "note", false, "framework: made with %.90s, here is %.90s", p->stack.framework,
               facts->framework); /* a table is NCCL's alone */
    }
    if (p->placement != NULL && strcmp(p->placement, facts->placement) != 0) {
        differ(ret, "placement", true, "made for %s%s, these are %s%s: name them by --devices",
               p->placement[0] != '\0' ? "GPUs of placement class " : "all GPUs of a machine",
               p->placement, facts->placement[0] != '\0' ? "of class " : "all of this one",
               facts->placement);
    }
    for (size_t i = 0; i < p->site.n; i++) {
        if (!has_word(site, p->site.v[i].name, p->site.v[i].value)) {
            differ(ret, "site", false, "made under %s=%.100s, which is not in force here",
                   p->site.v[i].name, p->site.v[i].value);
        }
    }
}

static int refuse(const struct nt_check_outcome *o, struct nt_err *err)
{
    for (size_t i = 0; i < o->ndiffers; i++) {
        const struct nt_check_differs *d = &o->differs[i];
        if (d->stops && strcmp(d->what, "identity") == 0) {
            return nt_fail(err, NT_E_MISSING, 0, "%.240s; tune this machine anew", d->text);
        }
        if (d->stops && strcmp(d->what, "placement") == 0) {
            return nt_fail(err, NT_E_MISSING, 0, "%.240s", d->text);
        }
        if (d->stops) {
            return nt_fail(err, NT_E_MISSING, 0,
                           "%.240s; --despite %s checks it all the same, tune makes it anew",
                           d->text, d->what);
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ what the drive asks */

static int on_ready(void *data, const struct nt_plan_gang *g, const struct nt_hello *hello,
                    const struct nt_ready *ready, unsigned world, struct nt_err *err)
{
    struct check *c = data;
    int rc;
    (void)g;

    if (c->o->facts.known) {
        return 0;
    }
    rc = nt_facts_take(&c->o->facts, hello, ready, world, c->c->machines, err);
    if (rc == 0) {
        nt_check_fit(c->c->profile, &c->o->facts, c->c->site, c->c->despite, c->o);
        rc = refuse(c->o, err);
    }
    return rc;
}

static int on_step(void *data, const struct nt_plan_step *s, const struct nt_plan_outcome *o,
                   const struct nt_drive_start *starts, struct nt_err *err)
{
    (void)data;
    (void)s;
    (void)o;
    (void)starts;
    (void)err;
    return 0;
}

static int arm_env(void *data, enum nt_arm arm, struct nt_buf *out, struct nt_err *err)
{
    struct check *c = data;
    int rc = 0;

#define ADD(...) (nt_buf_printf(out, __VA_ARGS__), nt_buf_add(out, "", 1))
    ADD("NCCL_PROFILER_PLUGIN=STATIC_PLUGIN");
    if (arm == NT_ARM_TABLE && !c->c->virtual_time) {
        if (c->delivery[0] == '\0') {
            rc = nt_profile_write_delivery(c->c->profile, NT_TABLE, c->dir, c->delivery,
                                           sizeof(c->delivery), err);
        }
        ADD("NCCL_TUNER_PLUGIN=%s", c->c->plugin);
        ADD("NCCLTUNE_PROFILE=%s", c->o->profile_hash);
        ADD("NCCLTUNE_TABLE=%s", c->delivery);
        if (c->c->remote == NULL) { /* receipts go with the job: these are no workers */
            ADD("NCCLTUNE_RECEIPTS=%s", c->dir);
        }
    } else {
        ADD("NCCL_TUNER_PLUGIN=none");
        ADD("NCCLTUNE_DISABLE=1");
    }
#undef ADD
    return nt_wrap(err, rc, "delivery file of the check");
}

static void close_handles(struct check *c)
{
    nt_loop_close_signals(c->signals, NT_LOOP_ENDS, c->rc == -NT_E_INTERRUPTED);
}

static void on_end(void *data, int rc, const struct nt_err *err)
{
    struct check *c = data;
    if (c->rc == 0 && rc != 0) {
        c->rc = rc;
        c->err = *err;
    }
    c->o->totals = *nt_drive_totals(c->drive);
    c->drive = NULL;
    close_handles(c);
}

static void on_signal(uv_signal_t *h, int signum)
{
    struct check *c = h->data;
    (void)signum;
    if (c->drive != NULL) {
        nt_drive_interrupt(c->drive);
    }
}

/* ------------------------------------------------------------------ running */

static int open_loop(struct check *c, struct nt_err *err)
{
    int rc = nt_loop_open(&c->loop, NT_LOOP_GANGS(c->c->profile->ranks), err);

    return rc == 0 ? nt_loop_watch_ends(&c->loop, c->signals, on_signal, c, err) : rc;
}

static uint64_t largest(const struct check *c)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->o->nrows; i++) {
        bytes = c->o->rows[i].cs.bytes > bytes ? c->o->rows[i].cs.bytes : bytes;
    }
    for (size_t i = 0; i < NT_CHECK_CONTROLS; i++) {
        bytes = c->o->controls[i].bytes > bytes ? c->o->controls[i].bytes : bytes;
    }
    return bytes;
}

static int drive(struct check *c, struct nt_err *err)
{
    const struct nt_planner planner = {
        .next = nt_check_next, .tell = nt_check_tell, .plan = c->plan};
    const struct nt_drive_sink sink = {
        .on_ready = on_ready, .on_step = on_step, .arm_env = arm_env, .on_end = on_end, .data = c};
    const struct nt_drive_config dc = {.planner = &planner,
                                       .sink = &sink,
                                       .program = c->c->program,
                                       .args = c->c->args,
                                       .dir = c->dir,
                                       .ranks = c->c->profile->ranks,
                                       .devices = c->c->devices,
                                       .rig = c->c->rig,
                                       .remote = c->c->remote,
                                       .virtual_time = c->c->virtual_time,
                                       .env = c->c->env,
                                       .max_bytes = largest(c),
                                       .mps_program = c->c->mps_program};

    c->rc = open_loop(c, err);
    if (c->rc != 0) {
        return c->rc;
    }
    c->rc = nt_drive_start(&c->loop, &dc, &c->drive, &c->err);
    if (c->rc != 0) {
        close_handles(c);
    }
    (void)uv_run(&c->loop, UV_RUN_DEFAULT);
    nt_assert(uv_loop_close(&c->loop) == 0);
    if (c->rc != 0) {
        *err = c->err;
    }
    return c->rc;
}

static int plan(struct check *c, struct nt_err *err)
{
    const struct nt_assigns *vars;
    struct nt_check_spec spec = {.rows = c->o->rows,
                                 .least = c->c->least_pairs,
                                 .most = c->c->most_pairs,
                                 .budget_ns = c->c->budget_ns,
                                 .seed = c->c->seed};
    struct nt_buf bytes;
    size_t n = 0;
    int rc = nt_check_rows(c->c->profile, &c->o->product, c->o->rows, &c->o->nrows, err);

    nt_buf_init(&bytes, NT_PROFILE_MAX_BYTES);
    rc = rc == 0
             ? nt_profile_delivery(c->c->profile, c->o->product, &bytes, c->o->profile_hash, err)
             : rc;
    nt_buf_done(&bytes);
    if (rc != 0) {
        return rc;
    }
    vars = &c->c->profile->product[c->o->product].vars;
    for (size_t i = 0; i < vars->n && n < sizeof(c->vars); i++) {
        n += (size_t)snprintf(c->vars + n, sizeof(c->vars) - n, "%s%s=%s", i > 0 ? " " : "",
                              vars->v[i].name, vars->v[i].value);
    }
    if (n >= sizeof(c->vars)) {
        return nt_fail(err, NT_E_INVAL, 0, "the profile sets more variables than fit");
    }
    spec.nrows = c->o->nrows;
    spec.arm = c->o->product == NT_TABLE ? NT_ARM_TABLE : NT_ARM_STATIC;
    spec.vars = c->vars;
    for (size_t i = 0; i < c->o->nrows && c->c->resolve != NULL; i++) {
        struct nt_check_row *r = &c->o->rows[i];
        uint8_t dtype = r->cs.dtype;
        c->c->resolve(c->c->data, c->vars, &r->cs, &r->executed, &r->asked);
        if (r->cs.dtype != dtype) { /* its times were proved of another type */
            r->was = r->was_hi = r->was_default_ns = r->was_tuned_ns = NAN;
            r->was_lo = 0;
        }
    }
    nt_check_controls(c->o->controls);
    return nt_check_plan_new(&spec, &c->plan, err);
}

static void judge(struct check *c)
{
    struct nt_check_outcome *o = c->o;

    o->pairs = nt_check_judge(c->plan, o->controls);
    o->verdict = nt_check_worst(o->rows, o->nrows);
    for (size_t i = 0; i < o->nrows; i++) {
        o->moves[i].default_profile =
            nt_check_move(&o->rows[i].log_default, o->rows[i].was_default_ns);
        o->moves[i].tuned_profile = nt_check_move(&o->rows[i].log_tuned, o->rows[i].was_tuned_ns);
    }
}

int nt_check_run(const struct nt_check_config *config, struct nt_check_outcome *ret,
                 struct nt_err *err)
{
    struct check *c = calloc(1, sizeof(*c));
    struct nt_workdir work = {0};
    int rc;

    *ret = (struct nt_check_outcome){0};
    ret->rows = calloc(NT_CHECK_ROWS, sizeof(ret->rows[0]));
    ret->moves = calloc(NT_CHECK_ROWS, sizeof(ret->moves[0]));
    if (c == NULL || ret->rows == NULL || ret->moves == NULL) {
        free(c);
        return nt_fail(err, NT_E_NOMEM, 0, "check");
    }
    c->c = config;
    c->o = ret;
    rc = plan(c, err);
    if (rc == 0 && ret->nrows > 0) {
        rc = nt_workdir_make(config->tmpdir, &work, err);
        (void)snprintf(c->dir, sizeof(c->dir), "%s", work.path);
        rc = rc == 0 ? drive(c, err) : rc;
        nt_workdir_remove(&work);
    }
    if (rc == 0) {
        (void)nt_sha256_file_hex(ret->facts.nccl_file, ret->facts.nccl_sha256);
        judge(c);
        rc = config->store != NULL && ret->nrows > 0
                 ? nt_check_keep(config->store, config->profile, config->site, ret, err)
                 : 0;
    }
    nt_check_plan_free(c->plan);
    free(c);
    return rc;
}

void nt_check_outcome_done(struct nt_check_outcome *o)
{
    free(o->rows);
    free(o->moves);
    nt_facts_done(&o->facts);
    o->rows = NULL;
    o->moves = NULL;
}
