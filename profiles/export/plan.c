#include "profiles/export/plan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "profiles/format/limits.h"
#include "tuner/base/text.h"

/* Releases whose tuner interface the plugin does not have: before 2.21 there is only v1. */
enum { FIRST_TUNER = 22105 };

/* Paths that need no quoting anywhere: not in a shell, a unit file, an env file or YAML. */
static int check_path(const char *what, const char *path, struct nt_err *err)
{
    if (path[0] != '/' || path[strspn(path, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                            "0123456789_./+@,-")] != '\0') {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%s '%s': must be an absolute path of letters, digits and _./+@,-", what,
                       path);
    }
    return 0;
}

static void note(struct nt_plan *plan, const char *name, const char *why)
{
    nt_buf_printf(plan->notes, "%s: %s\n", name, why);
}

static void add_vars(struct nt_plan *plan)
{
    const struct nt_assigns *vars = &plan->p->product[plan->product].vars;
    for (size_t i = 0; i < vars->n && plan->n < NT_TABLE_MAX_VARS; i++) {
        struct nt_err why = {0};
        if (nt_tunable_for_profile(vars->v[i].name, vars->v[i].value, plan->version,
                                   plan->product == NT_TABLE, &why) != 0) {
            nt_buf_printf(plan->notes, "left out: %s\n", why.msg);
        } else {
            plan->vars[plan->n++] = vars->v[i];
        }
    }
}

static void add_table(struct nt_plan *plan, const struct nt_export_format *format)
{
    const struct nt_profile_rows *rows = &plan->p->product[NT_TABLE].rows;
    char text[24];
    if (plan->version < FIRST_TUNER) {
        nt_buf_printf(plan->notes,
                      "rows: NCCL %s has no tuner interface that the plugin speaks (2.21 and later "
                      "do); only variables are written\n",
                      nt_nccl_version_text(plan->version, text, sizeof(text)));
        return;
    }
    plan->table = true;
    for (size_t i = 0; plan->version < NT_V(2, 30, 3) && !format->rows_only && i < rows->n; i++) {
        if (rows->v[i].chunk_bytes > 0) {
            nt_buf_printf(plan->notes,
                          "row %zu: NCCL %s does not ask a tuner for chunk sizes (2.30.3 and later "
                          "do): its calls are left alone\n",
                          i, nt_nccl_version_text(plan->version, text, sizeof(text)));
        }
    }
    if (!format->rows_only) {
        plan->vars[plan->n++] = (struct nt_assign){"NCCL_TUNER_PLUGIN", plan->plugin};
        plan->vars[plan->n++] = (struct nt_assign){"NCCLTUNE_PROFILE", plan->hash};
        plan->vars[plan->n++] = (struct nt_assign){"NCCLTUNE_TABLE", plan->path};
    }
}

static int check_rig(const struct nt_profile *p, const struct nt_export_options *o,
                     struct nt_err *err)
{
    if (p->rig != NT_RIG_NCCL && p->rig != o->allow_rig) {
        return nt_fail(err, NT_E_NO, 0,
                       "measured on rig %s, not on a real node; --allow-rig %s exports it all the "
                       "same",
                       nt_rig_names[p->rig], nt_rig_names[p->rig]);
    }
    return 0;
}

int nt_plan_make(struct nt_plan *plan, const struct nt_profile *p,
                 const struct nt_export_format *format, const struct nt_export_options *options,
                 struct nt_buf *notes, struct nt_err *err)
{
    const char *dir = options->table_dir != NULL ? options->table_dir : NT_EXPORT_TABLE_DIR;
    unsigned own = 0;
    struct nt_buf bytes;
    char text[24];
    int rc;

    *plan = (struct nt_plan){
        .p = p,
        .options = options,
        .product = options->variables_only ? NT_STATIC : NT_TABLE,
        .plugin = options->plugin != NULL ? options->plugin : NT_EXPORT_PLUGIN,
        .notes = notes,
    };
    rc = check_rig(p, options, err);
    if (rc == 0 && !p->product[plan->product].present) {
        rc = nt_fail(err, NT_E_INVAL, 0, "the profile has no %s product%s",
                     nt_product_names[plan->product],
                     plan->product == NT_TABLE ? "; --static writes its variables" : "");
    }
    if (rc == 0) {
        rc = nt_nccl_version_parse(p->stack.nccl, &own, err);
    }
    if (rc == 0) {
        rc = check_path("plugin", plan->plugin, err);
    }
    if (rc == 0) {
        rc = check_path("folder of the delivery file", dir, err);
    }
    if (rc != 0) {
        return rc;
    }
    plan->version = options->nccl != 0 ? options->nccl : own;
    if (plan->version / 100 != own / 100) {
        nt_buf_printf(notes, "measured with NCCL %s, written for %s: not confirmed there\n",
                      p->stack.nccl, nt_nccl_version_text(plan->version, text, sizeof(text)));
    }
    nt_buf_init(&bytes, NT_PROFILE_MAX_BYTES);
    rc = nt_profile_delivery(p, plan->product, &bytes, plan->hash, err);
    nt_buf_done(&bytes);
    if (rc == 0 && (size_t)snprintf(plan->path, sizeof(plan->path), "%s/%s.nctable", dir,
                                    plan->hash) >= sizeof(plan->path)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: path too long", dir);
    }
    if (rc == 0) {
        if (!format->rows_only) {
            add_vars(plan);
        } else {
            for (size_t i = 0; i < p->product[plan->product].vars.n; i++) {
                note(plan, p->product[plan->product].vars.v[i].name,
                     "this form carries no variables; env, nccl-conf or k8s do. The rows were "
                     "measured "
                     "under it: set it, too, or they are settings that nobody has measured");
            }
        }
        if (plan->product == NT_TABLE && p->product[NT_TABLE].rows.n > 0) {
            add_table(plan, format);
        }
        if (!format->read_by_plugin && p->backends.rows.n > 0) {
            nt_buf_printf(notes,
                          "backends: who moves the bytes (%zu row%s) is not in this form; those of "
                          "sglang and vllm carry it\n",
                          p->backends.rows.n, p->backends.rows.n == 1 ? "" : "s");
        }
    }
    return rc;
}

/* ---- comments ---- */

static void NT_PRINTF(3, 4) comment(struct nt_buf *out, const char *mark, const char *fmt, ...)
{
    char line[200]; /* NVIDIA's CSV reader breaks lines at 255 */
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    for (char *c = line; *c != '\0'; c++) {
        *c = *c == '=' ? ':' : *c == '\\' ? '/' : *c;
    }
    nt_buf_printf(out, "%s%s\n", mark, line);
}

static const char *or_unknown(const char *s)
{
    return s != NULL && s[0] != '\0' ? s : "unknown";
}

/* Evidence of a row: its tuned classes. */
static void row_comment(const struct nt_plan *plan, const struct nt_profile_row *r,
                        const char *mark, struct nt_buf *out)
{
    const struct nt_profile_classes *classes = &plan->p->product[NT_TABLE].classes;
    char lo[24], hi[24], at[24], call[64];
    struct nt_call asked = nt_profile_row_call(r);

    comment(out, mark, "%s %s to %s: %s%s", nt_coll_names[r->coll],
            nt_format_bytes(r->min_bytes, lo, sizeof(lo)),
            nt_format_bytes(r->max_bytes, hi, sizeof(hi)), nt_call_text(&asked, call, sizeof(call)),
            nt_profile_row_keeps(&plan->p->product[NT_TABLE], r)
                ? ", kept as it is without the variables (no gain)"
                : "");
    for (size_t i = 0; i < classes->n; i++) {
        const struct nt_profile_class *c = &classes->v[i];
        if (c->coll == r->coll && c->bytes >= r->min_bytes && c->bytes <= r->max_bytes &&
            c->verdict == NT_VD_TUNED && !isnan(c->gain)) {
            comment(out, mark, "  %s %s: %.1f %% less time (%.1f to %.1f %%, %u pairs)",
                    nt_format_bytes(c->bytes, at, sizeof(at)), nt_mode_names[c->mode],
                    100 * c->gain, 100 * c->interval[0], 100 * c->interval[1], c->pairs);
        }
    }
}

void nt_plan_header(const struct nt_plan *plan, const char *mark, struct nt_buf *out)
{
    const struct nt_profile *p = plan->p;
    char text[24];

    comment(out, mark, "nccltune profile %s (%s product)", plan->hash,
            nt_product_names[plan->product]);
    comment(out, mark, "machine %s, %u ranks on %u node%s%s%s", or_unknown(p->identity.id),
            p->ranks, p->nodes, p->nodes == 1 ? "" : "s",
            p->placement != NULL && p->placement[0] != '\0' ? ", placement " : "",
            p->placement != NULL ? p->placement : "");
    comment(out, mark, "stack NCCL %s, CUDA %s, driver %s, %s; written for NCCL %s",
            or_unknown(p->stack.nccl), or_unknown(p->stack.cuda), or_unknown(p->stack.driver),
            or_unknown(p->stack.gpu), nt_nccl_version_text(plan->version, text, sizeof(text)));
    if (p->rig != NT_RIG_NCCL) {
        comment(out, mark, "rig %s: a functional rig, not a real node; do not use in production",
                nt_rig_names[p->rig]);
    } else {
        comment(out, mark, "rig nccl");
    }
    for (size_t i = 0; i < p->site.n; i++) {
        comment(out, mark, "measured under %s %s, which the site sets and this profile does not",
                p->site.v[i].name, p->site.v[i].value);
    }
    for (size_t i = 0; i < p->health.n; i++) {
        comment(out, mark, "health: %s", p->health.v[i]);
    }
    for (size_t i = 0; i < p->not_checked.n; i++) {
        comment(out, mark, "not checked: %s: %s", p->not_checked.v[i].setting,
                p->not_checked.v[i].why);
    }
    for (size_t i = 0; plan->table && i < p->product[NT_TABLE].rows.n; i++) {
        row_comment(plan, &p->product[NT_TABLE].rows.v[i], mark, out);
    }
    if (plan->n == 0 && !plan->table) {
        comment(out, mark, "no settings: NCCL's defaults are the best found here%s",
                p->backends.rows.n > 0 ? " of what it can be told; backends are not in this form"
                                       : "");
    }
}

void nt_plan_needs(const struct nt_plan *plan, const char *mark, struct nt_buf *out)
{
    const struct nt_assigns *vars = &plan->p->product[plan->product].vars;
    for (size_t i = 0; i < vars->n; i++) {
        comment(out, mark,
                "needs %s %s, which this form cannot set: the rows were measured under it",
                vars->v[i].name, vars->v[i].value);
    }
}

void nt_plan_reason(const struct nt_plan *plan, const char *name, const char *mark,
                    struct nt_buf *out)
{
    static const struct {
        const char *name, *why;
    } ours[] = {{"NCCL_TUNER_PLUGIN", "chooses algorithm and protocol by size, from the table"},
                {"NCCLTUNE_PROFILE", "hash of the table: a rank that cannot honour it fails"},
                {"NCCLTUNE_TABLE", "the table; must be there on every node"}};
    const struct nt_tunable *t;

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (strcmp(name, ours[i].name) == 0) {
            comment(out, mark, "%s", ours[i].why);
            return;
        }
    }
    t = nt_tunable_find(name, plan->version);
    if (t != NULL) {
        comment(out, mark, "%s (default: %s)", t->help, t->def);
    }
}
