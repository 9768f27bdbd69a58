/* From a model's config.json to the collectives of its steps. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "tuner/base/text.h"
#include "tuner/workload/workload.h"

struct model {
    uint64_t hidden, layers, vocab, experts, topk, dense_first, nextn, draft_vocab;
    uint64_t reduces; /* all-reduces in all layers of one pass, without all-to-all */
    uint8_t dtype;
};

static uint64_t number(const json_t *o, const char *const *keys)
{
    for (size_t i = 0; keys[i] != NULL; i++) {
        int64_t v = nt_json_opt_i64(o, keys[i], -1);
        if (v >= 0 && v < (INT64_C(1) << 40)) {
            return (uint64_t)v;
        }
    }
    return 0;
}

static const char *const hidden_keys[] = {"hidden_size", "n_embd",    "d_model",
                                          "dim",         "model_dim", NULL};
static const char *const layer_keys[] = {"num_hidden_layers", "n_layer", "num_layers", "n_layers",
                                         NULL};

static bool is_model(const json_t *o)
{
    return number(o, hidden_keys) > 0 && number(o, layer_keys) > 0;
}

/* The language model's part: the document itself, a text config by name, else the nested object
 * with the most layers (vision towers have fewer). */
static const json_t *text_part(const json_t *config, int depth, const char **ret_path)
{
    static const char *const names[] = {
        "text_config",    "llm_config", "language_config", "thinker_config",
        "language_model", "llm",        "decoder",         NULL};
    const json_t *best = NULL, *v;
    const char *key;
    if (is_model(config)) {
        return config;
    }
    for (size_t i = 0; depth < 4 && names[i] != NULL; i++) {
        const json_t *part = json_object_get(config, names[i]);
        const json_t *found = json_is_object(part) ? text_part(part, depth + 1, ret_path) : NULL;
        if (found != NULL) {
            *ret_path = names[i];
            return found;
        }
    }
    json_object_foreach((json_t *)(uintptr_t)config, key, v)
    {
        bool better = json_is_object(v) && is_model(v) &&
                      (best == NULL || number(v, layer_keys) > number(best, layer_keys));
        if (better) {
            best = v;
            *ret_path = key;
        }
    }
    return best;
}

static uint8_t dtype_of(const json_t *config, const json_t *part, struct nt_buf *notes)
{
    static const struct {
        const char *name;
        uint8_t dtype;
    } rows[] = {{"bfloat16", NT_BF16}, {"float16", NT_FP16}, {"float32", NT_FP32},
                {"half", NT_FP16},     {"float", NT_FP32},   {"bf16", NT_BF16},
                {"fp16", NT_FP16},     {"fp32", NT_FP32}};
    static const char *const keys[] = {"torch_dtype", "dtype"};
    for (size_t k = 0; k < 4; k++) {
        const char *s = nt_json_opt_str(k < 2 ? part : config, keys[k % 2], "");
        s += strncmp(s, "torch.", 6) == 0 ? 6 : 0;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            if (strcmp(s, rows[i].name) == 0) {
                return rows[i].dtype;
            }
        }
    }
    nt_buf_puts(notes, "activations are taken as bf16: the config names no type\n");
    return NT_BF16;
}

/* Layers of one mixer each ("M-M*-") reduce once a layer, others after attention and after the MLP.
 */
static uint64_t reduces_of(const json_t *part, uint64_t layers, struct nt_buf *notes)
{
    const char *pattern = nt_json_opt_str(part, "hybrid_override_pattern", "");
    if (*pattern != '\0') {
        nt_buf_puts(notes, "hybrid layers of one mixer each: one all-reduce a layer\n");
        return strlen(pattern);
    }
    return 2 * layers;
}

static int read_model(const json_t *config, struct model *m, struct nt_buf *notes,
                      struct nt_err *err)
{
    static const char *const vocab[] = {"vocab_size", "padded_vocab_size", NULL};
    static const char *const experts[] = {"n_routed_experts", "num_experts", "num_local_experts",
                                          "moe_num_experts", NULL};
    static const char *const topk[] = {"num_experts_per_tok", "moe_topk", "num_experts_per_token",
                                       "top_k_experts", NULL};
    static const char *const dense[] = {"first_k_dense_replace", NULL};
    static const char *const nextn[] = {"num_nextn_predict_layers", "mtp_num_hidden_layers",
                                        "num_mtp_modules", NULL};
    static const char *const draft_vocab[] = {"draft_vocab_size", NULL};
    const char *path = NULL;
    const json_t *part = json_is_object(config) ? text_part(config, 0, &path) : NULL;
    if (part == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "no hidden_size and num_hidden_layers in it");
    }
    if (path != NULL) {
        nt_buf_printf(notes, "the language model is taken from %s\n", path);
    }
    *m = (struct model){.hidden = number(part, hidden_keys), .layers = number(part, layer_keys)};
    m->vocab = number(part, vocab) > 0 ? number(part, vocab) : number(config, vocab);
    m->experts = number(part, experts);
    m->topk = number(part, topk);
    m->dense_first = number(part, dense);
    m->nextn = number(part, nextn);
    m->draft_vocab = number(part, draft_vocab);
    m->dtype = dtype_of(config, part, notes);
    m->reduces = reduces_of(part, m->layers, notes);
    if (m->hidden > (1U << 20) || m->layers > 10000 || m->vocab > (1U << 28)) {
        return nt_fail(err, NT_E_INVAL, 0, "sizes beyond any model");
    }
    return 0;
}

static void call(struct nt_wl_phase *p, enum nt_coll coll, uint8_t dtype, uint64_t bytes,
                 uint64_t count, const char *what)
{
    struct nt_wl_call *c;
    if (bytes == 0 || count == 0 || p->ncalls == NT_WL_CALLS) {
        return;
    }
    c = &p->calls[p->ncalls++];
    *c = (struct nt_wl_call){
        .coll = (uint8_t)coll, .dtype = dtype, .bytes = bytes, .count = (uint32_t)count};
    (void)snprintf(c->what, sizeof(c->what), "%s", what);
}

/* One pass of the model over so many tokens; rows: positions whose logits are wanted. */
static void pass(struct nt_wl_phase *p, const struct model *m, const struct nt_wl_serving *s,
                 uint64_t rows)
{
    uint64_t elem = nt_dtype_bytes((enum nt_dtype)m->dtype), bytes = p->tokens * m->hidden * elem;
    bool a2a = s->moe_all_to_all && m->experts > 0;
    uint64_t moe = a2a && m->layers > m->dense_first ? m->layers - m->dense_first : 0;
    call(p, NT_ALL_REDUCE, m->dtype, bytes, m->reduces - moe,
         "after attention and MLP of every layer");
    if (moe > 0) {
        uint64_t routed = bytes * (m->topk > 0 ? m->topk : 1);
        call(p, NT_ALLTOALL, m->dtype, routed, 2 * moe, "experts: dispatch and combine");
    }
    call(p, NT_ALL_REDUCE, m->dtype, bytes, 1, "embedding split over the vocabulary");
    if (s->logits) {
        call(p, NT_ALL_GATHER, m->dtype, rows * m->vocab * elem, 1, "logits");
    }
}

static struct nt_wl_phase *phase(struct nt_workload *w, const char *kind, uint32_t batch,
                                 bool named, uint8_t mode, uint64_t tokens)
{
    struct nt_wl_phase *p;
    if (w->nphases == NT_WL_PHASES) {
        return NULL;
    }
    p = &w->phases[w->nphases++];
    *p = (struct nt_wl_phase){.mode = mode, .tokens = (uint32_t)tokens, .steps = 1};
    if (named) {
        (void)snprintf(p->name, sizeof(p->name), "%s-%u", kind, batch);
    } else {
        (void)snprintf(p->name, sizeof(p->name), "%s", kind);
    }
    return p;
}

/* The draft model: one layer (or the model's own next-token layers) run once for every draft token
 * but the first. */
static void draft(struct nt_wl_phase *p, const struct model *m, const struct nt_wl_serving *s)
{
    uint64_t elem = nt_dtype_bytes((enum nt_dtype)m->dtype), bytes = p->tokens * m->hidden * elem;
    uint64_t steps = s->draft_tokens > 1 ? s->draft_tokens - 1 : 1;
    uint64_t vocab = m->draft_vocab > 0 ? m->draft_vocab : m->vocab;
    call(p, NT_ALL_REDUCE, m->dtype, bytes, 2 * steps * (m->nextn > 0 ? m->nextn : 1),
         "draft layers");
    if (s->logits) {
        call(p, NT_ALL_GATHER, m->dtype, p->tokens * vocab * elem, steps, "draft logits");
    }
}

static int check_serving(const struct nt_wl_serving *s, struct nt_err *err)
{
    if (s->tp < 2 || s->tp > 65536) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "tp %u: with one rank there are no collectives; 2 to 65536", s->tp);
    }
    if (s->nbatches == 0 || s->nbatches > NT_WL_BATCHES || s->draft_tokens > 1024 ||
        s->prefill_chunk > (1U << 24)) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "1 to %d batches, at most 1024 draft tokens and 16M of prefill",
                       NT_WL_BATCHES);
    }
    for (size_t i = 0; i < s->nbatches; i++) {
        if (s->batches[i] == 0 || s->batches[i] > (1U << 20)) {
            return nt_fail(err, NT_E_INVAL, 0, "a batch has 1 to 1M requests");
        }
    }
    return 0;
}

int nt_workload_from_config(const json_t *config, const char *name, const struct nt_wl_serving *s,
                            struct nt_workload *ret, struct nt_buf *notes, struct nt_err *err)
{
    struct model m = {0};
    struct nt_workload w = {.ranks = s->tp};
    bool named = s->nbatches > 1;
    int rc = check_serving(s, err);
    rc = rc == 0 ? read_model(config, &m, notes, err) : rc;
    if (rc != 0) {
        return nt_wrap(err, rc, "%s", name);
    }
    (void)snprintf(w.name, sizeof(w.name), "%.*s", (int)sizeof(w.name) - 1, name);
    if (m.experts > 0) {
        nt_buf_printf(notes, "%llu experts: %s\n", (unsigned long long)m.experts,
                      s->moe_all_to_all
                          ? "exchanged by all-to-all; element type as the activations'"
                          : "summed over all ranks, one all-reduce as for a dense MLP");
    }
    if (m.experts == 0 && s->moe_all_to_all) {
        nt_buf_puts(notes, "no experts in this model: nothing is exchanged by all-to-all\n");
    }
    for (size_t i = 0; i < s->nbatches; i++) {
        uint32_t b = s->batches[i];
        struct nt_wl_phase *p = phase(&w, "decode", b, named, s->mode, b);
        if (p != NULL) {
            pass(p, &m, s, b);
        }
        p = s->draft_tokens > 0
                ? phase(&w, "verify", b, named, s->mode, (uint64_t)b * s->draft_tokens)
                : NULL;
        if (p != NULL) {
            pass(p, &m, s, p->tokens);
        }
        p = s->draft_tokens > 0 ? phase(&w, "draft", b, named, s->mode, b) : NULL;
        if (p != NULL) {
            draft(p, &m, s);
        }
    }
    if (s->prefill_chunk > 0) {
        struct nt_wl_phase *p = phase(&w, "prefill", 0, false, NT_EAGER, s->prefill_chunk);
        if (p != NULL) {
            pass(p, &m, s, 1);
        }
    }
    *ret = w;
    return 0;
}
