/* Forms for SGLang and vLLM: the flags and variables that come as close to the profile's backends
 * as the engine allows, the table for the plugin, which can tell sizes and modes apart, and what
 * neither can be told. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiles/export/plan.h"
#include "tuner/base/hash.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"

enum { ENGINE_ROWS = 512 };

/* What an engine is told to have a backend at hand, and not to: of these the ones that are no flag
 * hold '='. */
struct way {
    uint8_t backend;      /* enum nt_backend */
    const char *with;     /* some row of it can be told; NULL: it is there by itself */
    const char *without;  /* it wins nowhere, see keep_out(); NULL: it stays off by itself */
    const char *size_var; /* largest size that the engine gives it, NULL: none */
    unsigned size_unit;   /* bytes of that variable's unit */
};
static const struct way sglang_ways[] = {
    {NT_BE_CUSTOM_ALL_REDUCE, NULL, "--disable-custom-all-reduce",
     "SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB", 1024},
    {NT_BE_TORCH_SYMM_MEM, "--enable-torch-symm-mem", NULL, NULL, 0},
    {NT_BE_MSCCLPP, "--enable-mscclpp", NULL, "SGLANG_MSCCLPP_MAX_BYTES", 1},
    {NT_BE_FLASHINFER, "--flashinfer-allreduce-fusion-backend=auto", NULL, NULL, 0},
    {NT_BE_PYNCCL, NULL, NULL, NULL, 0},
    {NT_BE_TORCH, NULL, NULL, NULL, 0},
    {NT_BE_NCCL, NULL, NULL, NULL, 0},
};
static const struct way vllm_ways[] = {
    {NT_BE_CUSTOM_ALL_REDUCE, NULL, "--disable-custom-all-reduce", NULL, 0},
    {NT_BE_TORCH_SYMM_MEM, "VLLM_ALLREDUCE_USE_SYMM_MEM=1", "VLLM_ALLREDUCE_USE_SYMM_MEM=0", NULL,
     0},
    {NT_BE_FLASHINFER, "VLLM_ALLREDUCE_USE_FLASHINFER=1", "VLLM_ALLREDUCE_USE_FLASHINFER=0", NULL,
     0},
    {NT_BE_NCCL_SYMMETRIC, "VLLM_USE_NCCL_SYMM_MEM=1", "VLLM_USE_NCCL_SYMM_MEM=0", NULL, 0},
    {NT_BE_PYNCCL, NULL, NULL, NULL, 0},
    {NT_BE_TORCH, NULL, NULL, NULL, 0},
    {NT_BE_NCCL, NULL, NULL, NULL, 0},
};

/* Names that the engine writes itself, whatever the environment said: the flag that agrees with a
 * value, if any. */
struct overrule {
    const char *name, *value, *flag, *why;
};
static const struct overrule sglang_overrules[] = {
    {"NCCL_NVLS_ENABLE", "1", "--enable-nccl-nvls", "SGLang sets it to 0 without this flag"},
    {"NCCL_CUMEM_ENABLE", NULL, NULL, "SGLang sets it to 1 with --enable-symm-mem"},
    {"NCCL_ALGO", NULL, NULL, "SGLang sets it with --enable-deterministic-inference"},
    {0}};
static const struct overrule vllm_overrules[] = {
    {"NCCL_PROTO", NULL, NULL, "vLLM sets it with VLLM_BATCH_INVARIANT=1"},
    {"NCCL_ALGO", NULL, NULL, "vLLM sets it with VLLM_BATCH_INVARIANT=1"},
    {"NCCL_NVLS_ENABLE", NULL, NULL, "vLLM sets it to 0 with VLLM_BATCH_INVARIANT=1"},
    {0}};

struct engine {
    const char *name;
    const struct way *ways;
    size_t nways;
    const struct overrule *overrules;
    const char *always; /* what no flag, variable or plugin can say */
};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
static const struct engine sglang = {
    "sglang", sglang_ways, COUNT(sglang_ways), sglang_overrules,
    "all-reduces that SGLang fuses with a norm or quantises are chosen in its layers, not in the "
    "group's all_reduce"};
static const struct engine vllm = {
    "vllm", vllm_ways, COUNT(vllm_ways), vllm_overrules,
    "all-reduces that vLLM's compiler pass fuses with a norm (fuse_allreduce_rms) do not pass "
    "through the communicator"};

struct form {
    const struct engine *engine;
    const struct nt_plan *plan;
    json_t *rows, *arguments, *env, *cannot;
    struct nt_buf hashed; /* what the table's hash is of */
};

static void NT_PRINTF(2, 3) cannot(struct form *f, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    json_array_append_new(f->cannot, json_string(text));
    nt_buf_printf(f->plan->notes, "%s: cannot be told: %s\n", f->engine->name, text);
}

static const struct way *way_of(const struct engine *e, int backend)
{
    for (size_t i = 0; i < e->nways; i++) {
        if (e->ways[i].backend == backend) {
            return &e->ways[i];
        }
    }
    return NULL;
}

static bool asked(const struct nt_profile *p, int backend)
{
    for (size_t i = 0; i < p->backends.asked.n; i++) {
        if (strcmp(p->backends.asked.v[i], nt_backend_names[backend]) == 0) {
            return true;
        }
    }
    return false;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Asked for, and not to be had where this was measured, the engine's package is not there for one:
 * nothing is known of it. What is noted of a backend that was measured begins with the status that
 * ruled it out, with its sizes, or is a tie. */
static bool not_had(const struct nt_profile *p, int backend)
{
    for (size_t i = 0; i < p->backends.notes.n; i++) {
        const struct nt_noted *n = &p->backends.notes.v[i];
        bool measured =
            begins(n->why, "at ") || begins(n->why, "from ") || begins(n->why, "a tie:");
        for (int k = NT_ST_WRONG; k < NT_ST_NOT_RECORDED; k++) {
            size_t len = strlen(nt_status_names[k]);
            measured = measured || (begins(n->why, nt_status_names[k]) && n->why[len] == ':');
        }
        if (!measured && strcmp(n->setting, nt_backend_names[backend]) == 0) {
            return true;
        }
    }
    return false;
}

static bool raced(const struct nt_profile *p, int backend)
{
    return asked(p, backend) && !not_had(p, backend);
}

/* A class of the engine's chooses its algorithm by itself: a row of one algorithm is not its. */
static bool by_algorithm(const struct nt_profile_backend *r)
{
    return r->algo >= 0 && strcmp(nt_backends[r->backend].probe, "framework") == 0;
}

static void add_row(struct form *f, const char *text)
{
    json_array_append_new(f->rows, json_string(text));
    nt_buf_printf(&f->hashed, "%s\n", text);
}

/* Rows that the engine's all_reduce can take. */
static void backend_rows(struct form *f)
{
    const struct nt_profile_backends *rows = &f->plan->p->backends.rows;
    for (size_t i = 0; i < rows->n; i++) {
        const struct nt_profile_backend *r = &rows->v[i];
        const char *name = nt_backend_names[r->backend];
        char lo[24], hi[24];
        struct nt_buf text;
        (void)nt_format_bytes(r->min_bytes, lo, sizeof(lo));
        (void)nt_format_bytes(r->max_bytes, hi, sizeof(hi));
        if (r->coll != NT_ALL_REDUCE) {
            cannot(f, "%s %s to %s: the plugin chooses for all_reduce only", nt_coll_names[r->coll],
                   lo, hi);
            continue;
        }
        if (r->mode == NT_STREAM) {
            continue; /* a way of measuring, not of calling */
        }
        if (way_of(f->engine, r->backend) == NULL) {
            cannot(f, "%s %s, %s to %s: %s has no such backend; it takes its own choice",
                   nt_mode_names[r->mode], name, lo, hi, f->engine->name);
            continue;
        }
        if (by_algorithm(r)) {
            cannot(f, "%s %s %s, %s to %s: %s's class chooses its algorithm by itself",
                   nt_mode_names[r->mode], name, nt_algo_names[r->algo], lo, hi, f->engine->name);
            continue;
        }
        nt_buf_init(&text, 1024);
        nt_buf_printf(&text, "%s,%s,%llu,%llu,%s,", nt_coll_names[r->coll], nt_mode_names[r->mode],
                      (unsigned long long)r->min_bytes, (unsigned long long)r->max_bytes, name);
        for (size_t s = 0; s < r->serves.n; s++) {
            nt_buf_printf(&text, "%s%s", s > 0 ? " " : "", r->serves.v[s]);
        }
        add_row(f, nt_buf_str(&text));
        nt_buf_done(&text);
    }
}

static int by_mode_and_bytes(const void *a, const void *b)
{
    const struct nt_profile_backend_class *const *x = a, *const *y = b;
    return (*x)->mode != (*y)->mode    ? (*x)->mode - (*y)->mode
           : (*x)->bytes < (*y)->bytes ? -1
                                       : (*x)->bytes > (*y)->bytes;
}

/* Neighbours of one mode with the same answer; returns the end of them. */
static size_t run_of(const struct nt_profile_backend_class *const *c, size_t i, size_t n)
{
    size_t end = i + 1;
    while (end < n && c[end]->mode == c[i]->mode && c[end]->verdict == c[i]->verdict) {
        end++;
    }
    return end;
}

/* The engine's own choice may be another than NCCL, so it is told where NCCL was the best of all
 * that was raced, if the kernel that both engines take by themselves was: from the first to the
 * last of neighbouring sizes, and nothing about sizes beyond. Where the profile does not know, nor
 * can the engine. */
static void nccl_rows(struct form *f)
{
    const struct nt_profile *p = f->plan->p;
    const struct nt_profile_backend_class *sorted[ENGINE_ROWS];
    size_t n = 0;
    for (size_t i = 0; i < p->backends.classes.n && n < ENGINE_ROWS; i++) {
        if (p->backends.classes.v[i].coll == NT_ALL_REDUCE) {
            sorted[n++] = &p->backends.classes.v[i];
        }
    }
    qsort(sorted, n, sizeof(sorted[0]), by_mode_and_bytes);
    for (size_t i = 0, end; i < n; i = end) {
        struct nt_buf text;
        char lo[24], hi[24];
        end = run_of(sorted, i, n);
        if (sorted[i]->verdict == NT_VD_TUNED || sorted[i]->mode == NT_STREAM) {
            continue;
        }
        if (sorted[i]->verdict != NT_VD_DEFAULT) {
            cannot(
                f, "%s, %s to %s: what is fastest could not be told here; %s takes its own choice",
                nt_mode_names[sorted[i]->mode], nt_format_bytes(sorted[i]->bytes, lo, sizeof(lo)),
                nt_format_bytes(sorted[end - 1]->bytes, hi, sizeof(hi)), f->engine->name);
            continue;
        }
        nt_buf_init(&text, 1024);
        nt_buf_printf(&text, "all_reduce,%s,%llu,%llu,nccl,", nt_mode_names[sorted[i]->mode],
                      (unsigned long long)sorted[i]->bytes,
                      (unsigned long long)sorted[end - 1]->bytes);
        for (size_t t = 0; t < p->dtypes.n; t++) {
            nt_buf_printf(&text, "%s%s/out %s/in", t > 0 ? " " : "", p->dtypes.v[t],
                          p->dtypes.v[t]);
        }
        add_row(f, nt_buf_str(&text));
        nt_buf_done(&text);
    }
}

/* A flag, or a variable when it holds '=' and does not begin with a dash. */
static void say(struct form *f, const char *what)
{
    const char *eq = strchr(what, '=');
    if (what[0] == '-' || eq == NULL) {
        json_array_append_new(f->arguments, json_string(what));
    } else {
        char name[64];
        (void)snprintf(name, sizeof(name), "%.*s", (int)(eq - what), what);
        json_object_set_new(f->env, name, json_string(eq + 1));
    }
}

/* Is it known at every size, eager and in graphs, what is best of all that was raced? What a check
 * took away may still be the better of the engine's two choices. */
static bool all_told(const struct nt_profile *p)
{
    bool any = false;

    for (size_t i = 0; i < p->backends.classes.n; i++) {
        const struct nt_profile_backend_class *c = &p->backends.classes.v[i];
        if (c->coll != NT_ALL_REDUCE || c->mode == NT_STREAM) {
            continue;
        }
        if (c->verdict != NT_VD_DEFAULT && c->verdict != NT_VD_TUNED) {
            return false;
        }
        any = true;
    }
    return any;
}

/* The profile has no row of it. Keeping the engine from a backend is a choice, too: only where it
 * was raced and is known to win nowhere. */
static void keep_out(struct form *f, const struct way *w)
{
    const char *name = nt_backend_names[w->backend];

    if (!raced(f->plan->p, w->backend)) {
        cannot(f, "%s, in any case: not to be had where this was measured; %s takes its own choice",
               name, f->engine->name);
    } else if (!all_told(f->plan->p)) {
        cannot(f,
               "%s, in any case: it has no row, but nor is it known to be slower everywhere; %s "
               "takes its own choice",
               name, f->engine->name);
    } else {
        say(f, w->without);
    }
}

static void engine_words(struct form *f)
{
    const struct nt_profile *p = f->plan->p;
    for (size_t i = 0; i < f->engine->nways; i++) {
        const struct way *w = &f->engine->ways[i];
        uint64_t largest = 0;
        bool rows = false;
        char text[128];
        for (size_t r = 0; r < p->backends.rows.n; r++) {
            const struct nt_profile_backend *row = &p->backends.rows.v[r];
            bool its = row->backend == w->backend;
            rows = rows || its; /* of another collective: no flag may keep that out */
            if (its && row->coll == NT_ALL_REDUCE && !by_algorithm(row) &&
                row->max_bytes > largest) {
                largest = row->max_bytes;
            }
        }
        if (largest > 0 && w->with != NULL) {
            say(f, w->with);
        }
        if (largest > 0 && w->size_var != NULL) {
            uint64_t units = largest / w->size_unit + 1;
            (void)snprintf(text, sizeof(text), "%s=%" PRIu64, w->size_var, units);
            say(f, text);
        }
        if (!rows && w->without != NULL && asked(p, w->backend)) {
            keep_out(f, w);
        }
    }
    for (const struct overrule *o = f->engine->overrules; o->name != NULL; o++) {
        for (size_t i = 0; i < f->plan->n; i++) {
            if (strcmp(f->plan->vars[i].name, o->name) != 0) {
                continue;
            }
            if (o->flag != NULL && strcmp(f->plan->vars[i].value, o->value) == 0) {
                say(f, o->flag);
            } else {
                cannot(f, "%s, in any case: %s", o->name, o->why);
            }
        }
    }
}

/* How it is started, for people: the form is for programs. */
static void launch_note(const struct form *f)
{
    size_t i;
    json_t *v;
    const char *name;
    nt_buf_printf(f->plan->notes, "%s: start with", f->engine->name);
    json_object_foreach(f->env, name, v)
    {
        nt_buf_printf(f->plan->notes, " %s=%s", name, json_string_value(v));
    }
    nt_buf_puts(f->plan->notes, strcmp(f->engine->name, "sglang") == 0
                                    ? " python -m sglang.launch_server"
                                    : " vllm serve");
    json_array_foreach(f->arguments, i, v)
    {
        nt_buf_printf(f->plan->notes, " %s", json_string_value(v));
    }
    nt_buf_puts(f->plan->notes, "\n");
}

static void add_table(struct form *f, json_t *o)
{
    const char *dir =
        f->plan->options->table_dir != NULL ? f->plan->options->table_dir : NT_EXPORT_TABLE_DIR;
    char hash[NT_HEX_LEN + 1], path[640];
    size_t n = json_array_size(f->rows);

    nt_sha256_hex(nt_buf_str(&f->hashed), f->hashed.len, hash);
    (void)snprintf(path, sizeof(path), "%s/%s.backends.json", dir, hash);
    json_object_set_new(o, "table",
                        json_pack("{s:s, s:I, s:s, s:O}", "engine", f->engine->name, "ranks",
                                  (json_int_t)f->plan->p->ranks, "hash", hash, "rows", f->rows));
    if (n > 0) {
        json_object_set_new(f->env, "NCCLTUNE_BACKENDS", json_string(hash));
        json_object_set_new(f->env, "NCCLTUNE_BACKENDS_TABLE", json_string(path));
        nt_buf_printf(f->plan->notes,
                      "%s: this form must lie at %s on every host, and the plugin (share/nccltune/"
                      "engines) in PYTHONPATH or site-packages\n",
                      f->engine->name, path);
    }
}

static int engine_form(const struct engine *e, const struct nt_plan *plan, struct nt_buf *out,
                       struct nt_err *err)
{
    const struct nt_profile *p = plan->p;
    struct form f = {.engine = e,
                     .plan = plan,
                     .rows = json_array(),
                     .arguments = json_array(),
                     .env = json_object(),
                     .cannot = json_array()};
    char text[24];
    json_t *o;
    bool whole;

    nt_buf_init(&f.hashed, 1 << 20);
    nt_buf_printf(&f.hashed, "%s,%u\n", e->name, p->ranks);
    for (size_t i = 0; i < plan->n; i++) {
        json_object_set_new(f.env, plan->vars[i].name, json_string(plan->vars[i].value));
    }
    backend_rows(&f);
    if (raced(p, NT_BE_CUSTOM_ALL_REDUCE) && p->dtypes.n > 0) {
        nccl_rows(&f);
    } else if (p->backends.present) {
        cannot(&f,
               "where NCCL beats %s's own kernels: its custom all-reduce was not raced, which "
               "`tune --probe nccltune-probe-framework` does where %s is installed",
               e->name, e->name);
    }
    engine_words(&f);
    if (json_array_size(f.rows) > 0) {
        cannot(&f, "%s", e->always);
        cannot(&f, "without the plugin no size and no mode can be told apart: the flags only "
                   "bring a backend in or keep it out");
    }
    o = json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:s}", "format", "nccltune-backends", "version",
                  1, "rig", nt_rig_names[p->rig], "identity",
                  p->identity.id != NULL ? p->identity.id : "", "measured_with_nccl", p->stack.nccl,
                  "written_for_nccl", nt_nccl_version_text(plan->version, text, sizeof(text)),
                  "product", nt_product_names[plan->product]);
    add_table(&f, o);
    launch_note(&f);
    json_object_set(o, "env", f.env);
    json_object_set(o, "arguments", f.arguments);
    json_object_set(o, "cannot_be_told", f.cannot);
    whole = !f.hashed.failed && json_object_size(o) == 11;
    if (whole) {
        nt_json_dump(o, true, out);
        nt_buf_puts(out, "\n");
    }
    json_decref(o);
    json_decref(f.rows);
    json_decref(f.arguments);
    json_decref(f.env);
    json_decref(f.cannot);
    nt_buf_done(&f.hashed);
    return whole ? 0 : nt_fail(err, NT_E_NOMEM, 0, "%s", e->name);
}

int nt_form_sglang(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err)
{
    return engine_form(&sglang, plan, out, err);
}

int nt_form_vllm(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err)
{
    return engine_form(&vllm, plan, out, err);
}
