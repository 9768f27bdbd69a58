#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/tunables.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/lint/internal.h"

/* What NCCL has after reading a live variable, in words. */
static const char *taken_text(const struct nt_lint_file *f, const struct nt_lint_var *v, char *out,
                              size_t size)
{
    const struct nt_tunable *t = nt_tunable_find(v->name, f->version);
    struct nt_taken taken;
    if (v->dead) {
        return "loses to another assignment";
    }
    if (v->where == NT_W_SHELL) {
        return "stays in the shell";
    }
    if (v->value == NULL) {
        return "the host's value";
    }
    if (v->unresolved) {
        return "known when the shell runs";
    }
    if (t == NULL || (t->flags & NT_F_GONE) != 0) {
        return "not read by NCCL";
    }
    nt_tunable_take(t, v->value, f->version, &taken);
    switch (taken.how) {
    case NT_TAKE_UNSET:
    case NT_TAKE_DEFAULT:
        (void)snprintf(out, size, "default: %s", t->def);
        return out;
    case NT_TAKE_FAILS:
        return "fails";
    case NT_TAKE_NOTHING:
        return "not read by NCCL";
    case NT_TAKE_AS_MEANT:
    case NT_TAKE_OTHER:
    case NT_TAKE_OUTSIDE:
        break;
    }
    if (t->type == NT_T_INT || t->type == NT_T_BYTES) {
        (void)snprintf(out, size, "%lld", (long long)taken.number);
        return out;
    }
    return v->value;
}

static bool shown(const struct nt_lint_var *v)
{
    return v->where != NT_W_POLICY && v->where != NT_W_LOG && nt_lint_is_ours(v->name);
}

static int by_line(const void *a, const void *b)
{
    const struct nt_lint_finding *x = *(const struct nt_lint_finding *const *)a,
                                 *y = *(const struct nt_lint_finding *const *)b;
    return x->line != y->line ? (x->line > y->line) - (x->line < y->line) : (x > y) - (x < y);
}

/* As a reader goes through the file, not as the checks did. */
static void findings_text(const struct nt_lint_file *f, struct nt_buf *out)
{
    const struct nt_lint_finding **sorted = calloc(f->nfindings + 1, sizeof(*sorted));

    for (size_t i = 0; i < f->nfindings && sorted != NULL; i++) {
        sorted[i] = &f->findings[i];
    }
    if (sorted != NULL) {
        qsort(sorted, f->nfindings, sizeof(*sorted), by_line);
    }
    for (size_t i = 0; i < f->nfindings; i++) {
        const struct nt_lint_finding *x = sorted != NULL ? sorted[i] : &f->findings[i];
        nt_buf_put_plain(out, f->name);
        nt_buf_printf(out, ":%u: %s: %s%s%s [%s]\n", x->line,
                      nt_lint_level_names[nt_lint_rule_level(x->rule)],
                      x->name != NULL ? x->name : "", x->name != NULL ? ": " : "", x->text,
                      nt_lint_rule_id(x->rule));
    }
    free(sorted);
}

void nt_lint_text(const struct nt_lint_file *f, struct nt_buf *out)
{
    char version[24], taken[128];
    nt_buf_put_plain(out, f->name);
    nt_buf_printf(out, ": %s, read as NCCL %s does\n", nt_lint_form_words[f->form],
                  nt_nccl_version_text(f->version, version, sizeof(version)));
    for (size_t i = 0; i < f->nvars; i++) {
        const struct nt_lint_var *v = &f->vars[i];
        if (!shown(v)) {
            continue;
        }
        nt_buf_printf(out, "%6u  ", v->line);
        nt_buf_put_plain(out, v->name);
        nt_buf_puts(out, " = ");
        nt_buf_put_plain(out, v->value != NULL ? v->value : "(host)");
        if (v->value == NULL || strcmp(taken_text(f, v, taken, sizeof(taken)), v->value) != 0) {
            nt_buf_puts(out, "  -> ");
            nt_buf_put_plain(out, taken_text(f, v, taken, sizeof(taken)));
        }
        if (v->group[0] != '\0') {
            nt_buf_puts(out, "  (");
            nt_buf_put_plain(out, v->group);
            nt_buf_puts(out, ")");
        }
        nt_buf_puts(out, "\n");
    }
    findings_text(f, out);
}

json_t *nt_lint_json(const struct nt_lint_file *f)
{
    json_t *vars = json_array(), *findings = json_array();
    char version[24], taken[128];
    for (size_t i = 0; i < f->nvars; i++) {
        const struct nt_lint_var *v = &f->vars[i];
        if (shown(v)) {
            (void)json_array_append_new(
                vars,
                json_pack("{s:o, s:o, s:o, s:o, s:i, s:b}", "name", nt_json_text(v->name), "value",
                          v->value != NULL ? nt_json_text(v->value) : json_null(), "taken",
                          nt_json_text(taken_text(f, v, taken, sizeof(taken))), "group",
                          nt_json_text(v->group), "line", (int)v->line, "dead", v->dead));
        }
    }
    for (size_t i = 0; i < f->nfindings; i++) {
        const struct nt_lint_finding *x = &f->findings[i];
        (void)json_array_append_new(
            findings,
            json_pack("{s:s, s:s, s:i, s:o, s:o}", "rule", nt_lint_rule_id(x->rule), "level",
                      nt_lint_level_names[nt_lint_rule_level(x->rule)], "line", (int)x->line,
                      "name", x->name != NULL ? nt_json_text(x->name) : json_null(), "text",
                      nt_json_text(x->text)));
    }
    return json_pack("{s:o, s:s, s:s, s:o, s:o}", "file", nt_json_text(f->name), "form",
                     nt_lint_form_names[f->form], "nccl",
                     nt_nccl_version_text(f->version, version, sizeof(version)), "variables", vars,
                     "findings", findings);
}

static json_t *sarif_rules(void)
{
    static const char *const levels[] = {"note", "warning", "error"};
    json_t *rules = json_array();
    for (int i = 0; i < NT_LINT_RULE_COUNT; i++) {
        enum nt_lint_rule rule = (enum nt_lint_rule)i;
        (void)json_array_append_new(
            rules, json_pack("{s:s, s:{s:s}, s:{s:s}}", "id", nt_lint_rule_id(rule),
                             "shortDescription", "text", nt_lint_rule_words(rule),
                             "defaultConfiguration", "level", levels[nt_lint_rule_level(rule)]));
    }
    return rules;
}

static json_t *sarif_result(const struct nt_lint_file *f, const struct nt_lint_finding *x)
{
    static const char *const levels[] = {"note", "warning", "error"};
    char text[640];
    json_t *where = json_pack("{s:{s:o}}", "artifactLocation", "uri", nt_json_text(f->name));
    if (x->line > 0 && where != NULL) {
        (void)json_object_set_new(where, "region", json_pack("{s:i}", "startLine", (int)x->line));
    }
    (void)snprintf(text, sizeof(text), "%.120s%s%s", x->name != NULL ? x->name : "",
                   x->name != NULL ? ": " : "", x->text);
    return json_pack("{s:s, s:i, s:s, s:{s:o}, s:[{s:o}]}", "ruleId", nt_lint_rule_id(x->rule),
                     "ruleIndex", (int)x->rule, "level", levels[nt_lint_rule_level(x->rule)],
                     "message", "text", nt_json_text(text), "locations", "physicalLocation", where);
}

json_t *nt_lint_sarif(struct nt_lint_file *const *files, size_t n, const char *version)
{
    json_t *results = json_array();
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < files[i]->nfindings; k++) {
            (void)json_array_append_new(results, sarif_result(files[i], &files[i]->findings[k]));
        }
    }
    return json_pack("{s:s, s:s, s:[{s:{s:{s:s, s:s, s:o}}, s:o}]}", "$schema",
                     "https://json.schemastore.org/sarif-2.1.0.json", "version", "2.1.0", "runs",
                     "tool", "driver", "name", "nccltune lint", "version", version, "rules",
                     sarif_rules(), "results", results);
}
