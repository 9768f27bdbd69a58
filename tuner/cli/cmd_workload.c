/* nccltune workload: the collectives of a model's step. */
#include <stdio.h>
#include <string.h>

#include "tuner/base/text.h"
#include "tuner/cli/commands.h"
#include "tuner/cli/receipts_workload.h"
#include "tuner/workload/workload.h"

enum { CONFIG_MAX = 16 << 20, RECEIPTS_MAX = 1024 };

struct workload_args {
    uint32_t tp, draft, prefill;
    const char *batch, *mode, *name, *out, *format;
    bool all_to_all, no_logits;
};

static const char *const formats[] = {"json", "text", NULL};
static const struct workload_args workload_defaults = {
    .tp = 8, .batch = "1", .mode = "graph", .format = "json"};

static const struct nt_opt workload_opts[] = {
    NT_OPT_SOME(NT_O_U32, workload_args, tp, "tp", 0, "RANKS", "tensor-parallel ranks (default 8)"),
    NT_OPT(NT_O_STR, workload_args, batch, "batch", 'b', "LIST",
           "requests in a step, as 1,8,32 (default 1)"),
    NT_OPT(NT_O_U32, workload_args, draft, "draft", 0, "TOKENS",
           "draft tokens verified together for each request (default 0: no speculation)"),
    NT_OPT(NT_O_U32, workload_args, prefill, "prefill", 0, "TOKENS",
           "tokens of a prefill chunk (default 0: none)"),
    {.name = "mode",
     .type = NT_O_STR,
     .offset = offsetof(struct workload_args, mode),
     .arg = "MODE",
     .help = "how decode and verify run: graph (default) or eager",
     .choices = nt_mode_names},
    NT_OPT(NT_O_FLAG, workload_args, all_to_all, "all-to-all", 0, NULL,
           "experts exchange tokens instead of reducing over all ranks"),
    NT_OPT(NT_O_FLAG, workload_args, no_logits, "no-logits", 0, NULL,
           "leave out the gathering of the logits"),
    NT_OPT(NT_O_STR, workload_args, name, "name", 0, "NAME",
           "of the workload (default: the file's)"),
    NT_OPT(NT_O_STR, workload_args, out, "out", 'o', "FILE",
           "write there instead of standard output"),
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(struct workload_args, format),
     .arg = "FORMAT",
     .help = "json (default) or text",
     .choices = formats},
    {0}};

static int batches(const char *list, struct nt_wl_serving *s, struct nt_err *err)
{
    while (*list != '\0') {
        char word[32];
        uint64_t v = 0;
        size_t n = strcspn(list, ",");
        int rc;
        (void)snprintf(word, sizeof(word), "%.*s", (int)(n < sizeof(word) ? n : sizeof(word) - 1),
                       list);
        rc = nt_parse_u64(word, &v, err);
        if (rc == 0 && v > UINT32_MAX) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s is too large", word);
        } else if (rc == 0 && s->nbatches == NT_WL_BATCHES) {
            rc = nt_fail(err, NT_E_INVAL, 0, "at most %d sizes", NT_WL_BATCHES);
        }
        if (rc != 0) {
            return nt_wrap(err, rc, "--batch");
        }
        s->batches[s->nbatches++] = (uint32_t)v;
        list += n + (list[n] == ',');
    }
    return 0;
}

static void text(const struct nt_workload *w, struct nt_buf *out)
{
    nt_buf_printf(out, "%s: %u ranks\n", w->name, w->ranks);
    for (size_t i = 0; i < w->nphases; i++) {
        const struct nt_wl_phase *p = &w->phases[i];
        nt_buf_printf(out, "%s (%s, %u tokens)\n", p->name, nt_mode_names[p->mode], p->tokens);
        for (size_t k = 0; k < p->ncalls; k++) {
            const struct nt_wl_call *c = &p->calls[k];
            char size[24];
            nt_buf_printf(out, "  %5u x %-14s %8s %s  %s\n", c->count, nt_coll_names[c->coll],
                          nt_format_bytes(c->bytes, size, sizeof(size)), nt_dtype_names[c->dtype],
                          c->what);
        }
    }
}

static int emit(const struct workload_args *o, const struct nt_workload *w, struct nt_err *err)
{
    struct nt_buf out;
    int rc = 0;
    nt_buf_init(&out, 4 << 20);
    if (strcmp(o->format, "text") == 0) {
        text(w, &out);
    } else {
        json_t *doc = nt_workload_json(w);
        nt_json_dump(doc, true, &out);
        json_decref(doc);
    }
    if (o->out != NULL) {
        rc = nt_write_file(o->out, out.data, out.len, 0644, err);
    } else {
        (void)fwrite(nt_buf_str(&out), 1, out.len, stdout);
    }
    nt_buf_done(&out);
    return rc;
}

static int from_config(const struct workload_args *o, const char *path, struct nt_err *err)
{
    struct nt_wl_serving s = {.tp = o->tp,
                              .draft_tokens = o->draft,
                              .prefill_chunk = o->prefill,
                              .moe_all_to_all = o->all_to_all,
                              .logits = !o->no_logits};
    const char *base = strrchr(path, '/');
    struct nt_workload w;
    struct nt_buf notes;
    json_t *config = NULL;
    int mode = nt_vocab_find(nt_mode_names, "mode", o->mode, err);
    int rc = mode < 0 ? mode : batches(o->batch, &s, err);
    s.mode = (uint8_t)mode;
    nt_buf_init(&notes, 1 << 16);
    rc = rc == 0 ? nt_json_load(path, CONFIG_MAX, &config, err) : rc;
    rc = rc == 0 ? nt_workload_from_config(config,
                                           o->name != NULL ? o->name
                                           : base != NULL  ? base + 1
                                                           : path,
                                           &s, &w, &notes, err)
                 : rc;
    if (rc == 0) {
        (void)fputs(nt_buf_str(&notes), stderr);
        rc = emit(o, &w, err);
    }
    json_decref(config);
    nt_buf_done(&notes);
    return rc;
}

static int show(const struct workload_args *o, const char *path, struct nt_err *err)
{
    struct nt_buf doc;
    struct nt_workload w;
    int rc;
    nt_buf_init(&doc, CONFIG_MAX);
    rc = nt_buf_read_file(&doc, path, err);
    rc = rc == 0 ? nt_workload_parse(nt_buf_str(&doc), doc.len, path, &w, err) : rc;
    rc = rc == 0 ? emit(o, &w, err) : rc;
    nt_buf_done(&doc);
    return rc;
}

static int from_receipts(const struct workload_args *o, char **paths, unsigned n,
                         struct nt_err *err)
{
    struct nt_workload w;
    struct nt_buf notes;
    int rc;
    nt_buf_init(&notes, 1 << 16);
    rc = nt_workload_from_receipts(paths, n, o->name != NULL ? o->name : "receipts", &w, &notes,
                                   err);
    if (rc == 0) {
        (void)fputs(nt_buf_str(&notes), stderr);
        rc = emit(o, &w, err);
    }
    nt_buf_done(&notes);
    return rc;
}

static int run_workload(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    static const char *const actions[] = {"from-config", "from-receipts", "show", NULL};
    const struct workload_args *o = opts;
    int action = nt_vocab_find(actions, "action", args[0], err);
    if (action < 0) {
        return action;
    }
    for (unsigned i = 1; i < nargs && action != 2; i++) { /* what is shown may replace itself */
        int rc = nt_write_apart(o->out, args[i], err);
        if (rc != 0) {
            return rc;
        }
    }
    if (action == 1) {
        return from_receipts(opts, args + 1, nargs - 1, err);
    }
    if (nargs > 2) {
        return nt_fail(err, NT_E_INVAL, 0, "%s takes one file", args[0]);
    }
    return action == 0 ? from_config(opts, args[1], err) : show(opts, args[1], err);
}

const struct nt_command nt_cmd_workload = {
    .name = "workload",
    .summary = "which collectives a model's step makes",
    .args = "from-config|from-receipts|show FILE...",
    .min_args = 2,
    .max_args = RECEIPTS_MAX + 1,
    .opts = workload_opts,
    .defaults = &workload_defaults,
    .size = sizeof(struct workload_args),
    .run = run_workload,
    .details =
        "from-config reads a model's config.json and writes the collectives of its steps: decode, "
        "and "
        "with --draft verify and draft, with --prefill prefill. Tensor parallelism is assumed: two "
        "all-reduces a layer, one for the embedding, one all-gather for the logits. Sizes are "
        "tokens x "
        "hidden size x bytes of the activation type. What was assumed is said on standard "
        "error.\n\n"
        "from-receipts takes the calls that the plugins of a job's processes counted.\n\n"
        "The document can be written and changed by hand; show checks one and prints it.",
};
