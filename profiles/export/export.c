#include "profiles/export/export.h"

#include <string.h>
#include "profiles/export/plan.h"

enum quoting {
    RAW,       /* everything behind '=' is the value: quotes would be part of it */
    IF_NEEDED, /* single quotes where a shell would read more than a word */
    SINGLE,    /* always single quotes */
    UNIT,      /* double quotes around NAME=VALUE, '%' doubled */
};

/* Forms with a line a variable; `form` is for the others. */
struct writer {
    const char *begin; /* after the header; NULL: nothing */
    const char *prefix;
    enum quoting quoting;
    int (*form)(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err);
};

/* name, consumer, contained, rows only, embeds the table, read by a plugin, begin, prefix, quoting,
 * form */
#define SLURM                                                                                      \
    "# srun passes the environment on unless the site says otherwise; this says it again.\n"       \
    "export SLURM_EXPORT_ENV=ALL\n"
#define FORMATS(X)                                                                                 \
    X("env", "lines for `set -a; . FILE` and systemd's EnvironmentFile", 0, 0, 0, 0, NULL, "",     \
      IF_NEEDED, NULL)                                                                             \
    X("sh", "export lines for a shell", 0, 0, 0, 0, NULL, "export ", SINGLE, NULL)                 \
    X("nccl-conf", "NCCL's own file: /etc/nccl.conf, ~/.nccl.conf or NCCL_CONF_FILE", 0, 0, 0, 0,  \
      NULL, "", RAW, NULL)                                                                         \
    X("tuner-csv", "CSV of NVIDIA's example tuner plugin: rows only", 0, 1, 0, 0, NULL, NULL, RAW, \
      nt_form_csv)                                                                                 \
    X("json", "for programs: variables, delivery file, provenance", 0, 0, 0, 0, NULL, NULL, RAW,   \
      nt_form_json)                                                                                \
    X("k8s", "a Kubernetes ConfigMap, and what the pod needs", 1, 0, 1, 0, NULL, NULL, RAW,        \
      nt_form_k8s)                                                                                 \
    X("slurm", "lines for a batch script, before srun", 0, 0, 0, 0, SLURM, "export ", SINGLE,      \
      NULL)                                                                                        \
    X("docker", "docker run --env-file", 1, 0, 0, 0, NULL, "", RAW, NULL)                          \
    X("systemd", "a drop-in, UNIT.service.d/nccltune.conf", 0, 0, 0, 0, "[Service]\n",             \
      "Environment=", UNIT, NULL)                                                                  \
    X("ray", "runtime_env of a Ray job", 0, 0, 0, 0, NULL, NULL, RAW, nt_form_ray)                 \
    X("sglang", "JSON: flags, variables and the plugin's table of backends for SGLang", 0, 0, 0,   \
      1, NULL, NULL, RAW, nt_form_sglang)                                                          \
    X("vllm", "the same for vLLM", 0, 0, 0, 1, NULL, NULL, RAW, nt_form_vllm)

#define X(name_, help_, contained_, rows_, embeds_, read_, begin_, prefix_, quoting_, form_)       \
    {begin_, prefix_, quoting_, form_},
static const struct writer writers[] = {FORMATS(X)};
#undef X
#define X(name_, help_, contained_, rows_, embeds_, read_, ...)                                    \
    {name_, help_, contained_, rows_, embeds_, read_},
const struct nt_export_format nt_export_formats[] = {FORMATS(X){0}};
#undef X
#define X(name_, ...) name_,
const char *const nt_export_format_names[] = {FORMATS(X) NULL};
#undef X

const struct nt_export_format *nt_export_find(const char *name, struct nt_err *err)
{
    int i = nt_vocab_find(nt_export_format_names, "format", name, err);
    return i < 0 ? NULL : &nt_export_formats[i];
}

/* Values hold none of ' " \ $ ` and no control characters: nt_tunable_for_profile() and the plan's
 * check of paths see to it. What is left to quote: blanks ; ^ | and friends. */
static void write_line(const struct writer *w, const struct nt_assign *a, struct nt_buf *out)
{
    static const char word[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                               "_./:,+@-";
    bool plain = a->value[strspn(a->value, word)] == '\0';
    const char *quote = w->quoting == SINGLE || (w->quoting == IF_NEEDED && !plain) ? "'" : "";

    nt_assert(strpbrk(a->value, "'\"\\$`\n") == NULL);
    nt_buf_puts(out, w->prefix);
    if (w->quoting != UNIT) {
        nt_buf_printf(out, "%s=%s%s%s\n", a->name, quote, a->value, quote);
        return;
    }
    nt_buf_printf(out, "\"%s=", a->name);
    for (const char *c = a->value; *c != '\0'; c++) {
        nt_buf_add(out, *c == '%' ? "%%" : c, *c == '%' ? 2 : 1);
    }
    nt_buf_puts(out, "\"\n");
}

int nt_export(const struct nt_profile *p, const struct nt_export_format *format,
              const struct nt_export_options *options, struct nt_buf *out, struct nt_buf *notes,
              struct nt_err *err)
{
    const struct writer *w = &writers[format - nt_export_formats];
    struct nt_plan plan;
    int rc = nt_plan_make(&plan, p, format, options, notes, err);

    if (rc == 0 && format->rows_only && !plan.table) {
        rc = nt_fail(err, NT_E_INVAL, 0,
                     "%s carries only the rows of the table product; env or nccl-conf carry "
                     "variables",
                     format->name);
    }
    if (rc != 0) {
        return rc;
    }
    if (w->form != NULL) {
        rc = w->form(&plan, out, err);
    } else {
        nt_plan_header(&plan, "# ", out);
        nt_buf_puts(out, w->begin != NULL ? w->begin : "");
        for (size_t i = 0; i < plan.n; i++) {
            nt_plan_reason(&plan, plan.vars[i].name, "# ", out);
            write_line(w, &plan.vars[i], out);
        }
    }
    return rc != 0 || !out->failed ? rc : nt_fail(err, NT_E_NOMEM, 0, "%s", format->name);
}
