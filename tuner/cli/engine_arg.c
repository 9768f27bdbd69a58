#include "tuner/cli/engine_arg.h"

#include <stdio.h>
#include <string.h>
#include "profiles/export/export.h"
#include "tuner/base/json.h"

const char *const nt_engine_arg_names[] = {"sglang", "vllm", NULL};

/* The form's variables that are the engine's and its plugin's; NCCL's come as they always do. */
static bool is_engines(const char *name)
{
    static const char *const prefixes[] = {"NCCLTUNE_BACKENDS", "SGLANG_", "VLLM_"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void take_words(struct nt_engine_arg *e)
{
    size_t i, at = 0;
    json_t *v;
    const char *name;

    json_object_foreach(json_object_get(e->doc, "env"), name, v)
    {
        if (is_engines(name) && e->n < NT_APPLY_MORE) {
            e->vars[e->n++] = (struct nt_assign){name, json_string_value(v)};
        }
        if (strcmp(name, "NCCLTUNE_BACKENDS_TABLE") == 0) {
            (void)snprintf(e->path, sizeof(e->path), "%s", json_string_value(v));
        }
    }
    json_array_foreach(json_object_get(e->doc, "arguments"), i, v)
    {
        at += (size_t)snprintf(e->arguments + at, sizeof(e->arguments) - at, "%s%s",
                               at > 0 ? " " : "", json_string_value(v));
        at = at < sizeof(e->arguments) ? at : sizeof(e->arguments) - 1;
    }
}

int nt_engine_arg_make(const struct nt_profile *p, const char *engine, bool variables_only,
                       const char *folder, struct nt_engine_arg *ret, struct nt_buf *notes,
                       struct nt_err *err)
{
    const struct nt_export_options o = {.variables_only = variables_only,
                                        .allow_rig = p->rig, /* whether it fits is decided */
                                        .table_dir = folder};
    const struct nt_export_format *format = nt_export_find(engine, err);
    int rc;

    *ret = (struct nt_engine_arg){.n = 0};
    nt_buf_init(&ret->form, NT_PROFILE_MAX_BYTES);
    if (format == NULL) {
        return -NT_E_INVAL;
    }
    rc = nt_export(p, format, &o, &ret->form, notes, err);
    if (rc == 0) {
        rc = nt_json_parse(nt_buf_str(&ret->form), ret->form.len, "form", &ret->doc, err);
    }
    if (rc == 0) {
        take_words(ret);
    }
    return rc;
}

void nt_engine_arg_done(struct nt_engine_arg *e)
{
    nt_buf_done(&e->form);
    json_decref(e->doc);
    *e = (struct nt_engine_arg){.n = 0};
}

void nt_engine_arg_unasked(const struct nt_profile *p, const char *engine, struct nt_buf *notes)
{
    if (engine == NULL && p->backends.rows.n > 0) {
        nt_buf_printf(
            notes,
            "who moves the bytes (%zu row%s of backends) is left to the program; --engine "
            "sglang or vllm tells it\n",
            p->backends.rows.n, p->backends.rows.n == 1 ? "" : "s");
    }
}

const char *nt_engine_arg_nothing(const struct nt_profile *p)
{
    return p->backends.rows.n > 0 ? "nothing is set: what the profile has is about backends"
                                  : "the profile sets nothing: NCCL's defaults are the best found";
}
