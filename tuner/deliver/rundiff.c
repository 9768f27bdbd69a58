#include "tuner/deliver/rundiff.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "schema/tunables.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/topology/topology.h"

const char *const nt_weight_names[] = {"likely", "possible", "unlikely", "no effect", NULL};

static void NT_PRINTF(6, 7) add(struct nt_rundiff *d, enum nt_weight weight, int order,
                                const char *what, const char *name, const char *fmt, ...)
{
    struct nt_difference *x;
    va_list ap;

    if (d->n == NT_RUNDIFF_MAX) {
        d->more++;
        return;
    }
    x = &d->v[d->n++];
    *x = (struct nt_difference){.weight = weight, .order = order, .what = what};
    (void)snprintf(x->name, sizeof(x->name), "%s", name);
    va_start(ap, fmt);
    (void)vsnprintf(x->text, sizeof(x->text), fmt, ap);
    va_end(ap);
}

/* ---- command ---- */

static void diff_command(const json_t *a, const json_t *b, struct nt_rundiff *d)
{
    const json_t *x = json_object_get(a, "command"), *y = json_object_get(b, "command");
    size_t n = json_array_size(x) > json_array_size(y) ? json_array_size(x) : json_array_size(y);
    unsigned differ = 0;
    size_t first = 0;

    for (size_t i = 0; i < n; i++) {
        if (!json_equal(json_array_get(x, i), json_array_get(y, i))) {
            first = differ++ == 0 ? i : first;
        }
    }
    if (differ > 0) {
        const char *p = json_string_value(json_array_get(x, first));
        const char *q = json_string_value(json_array_get(y, first));
        add(d, NT_W_LIKELY, 0, "command", "command",
            "not the same command: word %zu was %.150s, is %.150s%s", first,
            p != NULL ? p : "absent", q != NULL ? q : "absent",
            differ > 1 ? ", and more differ" : "");
    }
    if (strcmp(nt_json_opt_str(a, "cwd", ""), nt_json_opt_str(b, "cwd", "")) != 0) {
        add(d, NT_W_UNLIKELY, 90, "command", "cwd", "started in %.200s, before in %.200s",
            nt_json_opt_str(b, "cwd", "?"), nt_json_opt_str(a, "cwd", "?"));
    }
}

/* ---- machine ---- */

static void diff_identity(const json_t *a, const json_t *b, struct nt_rundiff *d)
{
    struct nt_identity x, y;
    uint32_t compared = 0, differ;
    char text[160];

    if (nt_identity_parse(json_object_get(a, "identity"), &x, NULL) != 0 ||
        nt_identity_parse(json_object_get(b, "identity"), &y, NULL) != 0) {
        return;
    }
    differ = nt_identity_compare(&x, &y, &compared);
    if (compared != 0 && differ != 0) {
        add(d, NT_W_LIKELY, 1, "machine", "identity",
            "another machine, or its hardware changed: %s was %s, is %s",
            nt_group_mask_text(differ, text, sizeof(text)), x.name, y.name);
    }
}

static bool has_finding(const json_t *list, const json_t *finding)
{
    size_t i;
    json_t *f;
    json_array_foreach(list, i, f)
    {
        if (json_equal(json_object_get(f, "text"), json_object_get(finding, "text"))) {
            return true;
        }
    }
    return false;
}

/* Findings of `there` that are not in `here`. */
static void diff_health(const json_t *here, const json_t *there, bool new, struct nt_rundiff *d)
{
    size_t i;
    json_t *f;
    json_array_foreach(there, i, f)
    {
        if (!has_finding(here, f)) {
            bool bad = nt_json_opt_bool(f, "unhealthy", false);
            add(d, bad ? NT_W_LIKELY : NT_W_POSSIBLE, 2, "health",
                nt_json_opt_str(f, "finding", "?"), "%s: %.300s", new ? "new" : "gone since",
                nt_json_opt_str(f, "text", ""));
        }
    }
}

static const char *words(const json_t *list, char *out, size_t size)
{
    size_t i, at = 0;
    json_t *w;
    out[0] = '\0';
    json_array_foreach(list, i, w)
    {
        int n = snprintf(out + at, size - at, "%s%s", i > 0 ? ", " : "",
                         json_is_string(w) ? json_string_value(w) : "?");
        at += n > 0 && (size_t)n < size - at ? (size_t)n : 0;
    }
    return out[0] != '\0' ? out : "nothing";
}

static const struct {
    const char *key, *words;
    enum nt_weight weight;
    double apart; /* share of the larger from which it counts */
} clock_rows[] = {{"sm_max_mhz", "highest SM clock (MHz)", NT_W_LIKELY, 0.005},
                  {"power_limit_w", "power limit (W)", NT_W_LIKELY, 0.005},
                  {"memory_mhz", "memory clock (MHz)", NT_W_POSSIBLE, 0.02},
                  {"temperature_c", "temperature at the start (°C)", NT_W_UNLIKELY, 0.2},
                  {"sm_mhz", "SM clock at the start (MHz)", NT_W_UNLIKELY, 0.1}};

static void diff_gpu(size_t gpu, const json_t *x, const json_t *y, struct nt_rundiff *d)
{
    const json_t *slowed_x = json_object_get(x, "slowed"), *slowed_y = json_object_get(y, "slowed");
    char name[64], was[160], is[160];

    for (size_t i = 0; i < sizeof(clock_rows) / sizeof(clock_rows[0]); i++) {
        double p = nt_json_opt_num(x, clock_rows[i].key, NAN);
        double q = nt_json_opt_num(y, clock_rows[i].key, NAN);
        if (!isnan(p) && !isnan(q) && fabs(p - q) > clock_rows[i].apart * fmax(p, q)) {
            (void)snprintf(name, sizeof(name), "gpu%zu.%s", gpu, clock_rows[i].key);
            add(d, clock_rows[i].weight, 4, "clock", name, "GPU %zu: %s was %.0f, is %.0f", gpu,
                clock_rows[i].words, p, q);
        }
    }
    if (slowed_x != NULL && slowed_y != NULL && !json_equal(slowed_x, slowed_y)) {
        (void)snprintf(name, sizeof(name), "gpu%zu.slowed", gpu);
        add(d, NT_W_LIKELY, 3, "clock", name, "GPU %zu: held down by %s, before by %s", gpu,
            words(slowed_y, is, sizeof(is)), words(slowed_x, was, sizeof(was)));
    }
}

static void diff_clocks(const json_t *a, const json_t *b, struct nt_rundiff *d)
{
    size_t i;
    json_t *y;
    json_array_foreach(json_object_get(b, "clocks"), i, y)
    {
        const json_t *x = json_array_get(json_object_get(a, "clocks"), i);
        if (x != NULL) {
            diff_gpu(i, x, y, d);
        }
    }
}

static const struct {
    const char *key, *what, *words;
    enum nt_weight weight;
    int order;
} machine_rows[] = {{"driver", "driver", "driver", NT_W_LIKELY, 7},
                    {"cuda", "driver", "CUDA of the driver", NT_W_POSSIBLE, 8},
                    {"kernel", "host", "kernel", NT_W_POSSIBLE, 50},
                    {"host", "host", "host", NT_W_POSSIBLE, 51},
                    {"boot_id", "host", "boot", NT_W_UNLIKELY, 52}};

static void diff_machine(const json_t *a, const json_t *b, struct nt_rundiff *d)
{
    diff_identity(a, b, d);
    diff_health(json_object_get(a, "health"), json_object_get(b, "health"), true, d);
    diff_health(json_object_get(b, "health"), json_object_get(a, "health"), false, d);
    diff_clocks(a, b, d);
    for (size_t i = 0; i < sizeof(machine_rows) / sizeof(machine_rows[0]); i++) {
        const char *p = nt_json_opt_str(a, machine_rows[i].key, "");
        const char *q = nt_json_opt_str(b, machine_rows[i].key, "");
        if (strcmp(p, q) != 0 && strcmp(machine_rows[i].key, "boot_id") == 0) {
            add(d, machine_rows[i].weight, machine_rows[i].order, machine_rows[i].what, "boot",
                "the host was started anew in between, or it is another");
        } else if (strcmp(p, q) != 0) {
            add(d, machine_rows[i].weight, machine_rows[i].order, machine_rows[i].what,
                machine_rows[i].key, "%s was %.150s, is %.150s", machine_rows[i].words,
                p[0] != '\0' ? p : "not known", q[0] != '\0' ? q : "not known");
        }
    }
}

/* ---- profile and libraries ---- */

static void diff_profile(const json_t *a, const json_t *b, struct nt_rundiff *d)
{
    const json_t *x = json_object_get(a, "profile"), *y = json_object_get(b, "profile");
    const char *p = nt_json_opt_str(x, "hash", ""), *q = nt_json_opt_str(y, "hash", "");

    if (strcmp(p, q) != 0) {
        add(d, NT_W_LIKELY, 5, "profile", "hash", "profile was %.12s (%s), is %.12s (%s)",
            p[0] != '\0' ? p : "none", nt_json_opt_str(x, "product", "-"),
            q[0] != '\0' ? q : "none", nt_json_opt_str(y, "product", "-"));
    }
}

static void diff_libraries(const json_t *a, const json_t *b, struct nt_rundiff *d)
{
    const json_t *list_a = json_object_get(a, "nccl"), *list_b = json_object_get(b, "nccl");
    const json_t *x = json_array_get(list_a, 0), *y = json_array_get(list_b, 0);
    const char *was = nt_json_opt_str(x, "version", ""), *is = nt_json_opt_str(y, "version", "");

    if (x == NULL && y == NULL) {
        return;
    }
    if (strcmp(was, is) != 0) {
        add(d, NT_W_LIKELY, 6, "library", "nccl",
            "NCCL that is found first was %.24s (%.150s), is %.24s (%.150s)",
            was[0] != '\0' ? was : "unknown", nt_json_opt_str(x, "path", "none"),
            is[0] != '\0' ? is : "unknown", nt_json_opt_str(y, "path", "none"));
    } else if (!json_equal(json_object_get(x, "sha256"), json_object_get(y, "sha256"))) {
        add(d, NT_W_POSSIBLE, 6, "library", "nccl",
            "NCCL %.24s is another build than before: %.150s, before %.150s", is,
            nt_json_opt_str(y, "path", "?"), nt_json_opt_str(x, "path", "?"));
    } else if (!json_equal(json_object_get(x, "path"), json_object_get(y, "path"))) {
        add(d, NT_W_UNLIKELY, 6, "library", "nccl", "NCCL lies in %.200s now: the same bytes",
            nt_json_opt_str(y, "path", "?"));
    } else if (!json_equal(list_a, list_b)) {
        add(d, NT_W_POSSIBLE, 9, "library", "nccl",
            "another copy of NCCL came, went or changed; doctor tells which one is loaded");
    }
}

/* ---- variables ---- */

/* Names that every run has its own value of, or that the profile's line already says. */
static bool said_elsewhere(const char *name)
{
    return strncmp(name, "NCCLTUNE_", 9) == 0;
}

static const struct {
    const char *prefix;
    enum nt_weight weight;
} other_rows[] = {{"CUDA_VISIBLE_DEVICES", NT_W_LIKELY},
                  {"LD_PRELOAD", NT_W_LIKELY},
                  {"LD_LIBRARY_PATH", NT_W_POSSIBLE},
                  {"LD_AUDIT", NT_W_LIKELY},
                  {"CUDA_", NT_W_POSSIBLE},
                  {"SGLANG_", NT_W_POSSIBLE},
                  {"VLLM_", NT_W_POSSIBLE},
                  {"TORCH_", NT_W_POSSIBLE},
                  {"PYTORCH_", NT_W_POSSIBLE},
                  {"NVSHMEM_", NT_W_POSSIBLE},
                  {"UCX_", NT_W_POSSIBLE},
                  {"MSCCLPP_", NT_W_POSSIBLE},
                  {"FI_", NT_W_POSSIBLE},
                  {"OMP_", NT_W_POSSIBLE},
                  {"TRTLLM_", NT_W_POSSIBLE},
                  {"XLA_", NT_W_POSSIBLE},
                  {"FLASHINFER_", NT_W_POSSIBLE},
                  {"NCCL", NT_W_UNLIKELY},
                  {"", NT_W_UNLIKELY}};

static enum nt_weight weigh(const char *name, const char **why)
{
    const struct nt_tunable *t = nt_tunable_any(name);
    int most;

    *why = "";
    if (t == NULL) {
        size_t i = 0;
        while (strncmp(name, other_rows[i].prefix, strlen(other_rows[i].prefix)) != 0) {
            i++;
        }
        *why = strncmp(name, "NCCL_", 5) == 0 ? "; NCCL knows no such name" : "";
        return other_rows[i].weight;
    }
    if ((t->flags & NT_F_GONE) != 0) {
        *why = "; NCCL reads it no longer";
        return NT_W_NONE;
    }
    if ((t->flags & NT_F_DEBUG) != 0) {
        return NT_W_UNLIKELY;
    }
    most = t->pcie > t->nvl ? t->pcie : t->nvl;
    most = t->net > most ? t->net : most;
    return most == 2 ? NT_W_LIKELY : most == 1 ? NT_W_POSSIBLE : NT_W_UNLIKELY;
}

/* What makes a name do nothing in a run; NULL: it may do something. */
static const char *inert(const json_t *vars, const char *name)
{
    struct nt_assign list[256];
    struct nt_conflict x[64];
    size_t n = 0, found;
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)vars, key, v)
    {
        if (n < 256 && json_is_string(v)) {
            list[n++] = (struct nt_assign){key, json_string_value(v)};
        }
    }
    found = nt_tunable_conflicts(list, n, NT_NCCL_NEWEST, x, 64);
    for (size_t i = 0; i < found && i < 64; i++) {
        if (x[i].kind == NT_X_INERT && strcmp(x[i].name, name) == 0) {
            return x[i].why;
        }
    }
    return NULL;
}

static void diff_variable(const char *name, const json_t *a, const json_t *b, struct nt_rundiff *d)
{
    const char *was = nt_json_opt_str(a, name, NULL), *is = nt_json_opt_str(b, name, NULL);
    const char *why, *idle_a, *idle_b;
    enum nt_weight weight;

    if (said_elsewhere(name) || (was != NULL && is != NULL && strcmp(was, is) == 0)) {
        return;
    }
    weight = weigh(name, &why);
    idle_a = was != NULL ? inert(a, name) : "";
    idle_b = is != NULL ? inert(b, name) : "";
    if (idle_a != NULL && idle_b != NULL && weight < NT_W_NONE) {
        add(d, NT_W_NONE, 10, "variable", name,
            "%s was %.100s, is %.100s; it does nothing here: %s", name,
            was != NULL ? was : "not set", is != NULL ? is : "not set",
            idle_b[0] != '\0' ? idle_b : idle_a);
        return;
    }
    add(d, weight, 10, "variable", name, "%s was %.150s, is %.150s%s", name,
        was != NULL ? was : "not set", is != NULL ? is : "not set", why);
}

static void diff_variables(const json_t *a, const json_t *b, struct nt_rundiff *d)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)a, key, v)
    {
        diff_variable(key, a, b, d);
    }
    json_object_foreach((json_t *)(uintptr_t)b, key, v)
    {
        if (json_object_get(a, key) == NULL) {
            diff_variable(key, a, b, d);
        }
    }
}

/* ---- all ---- */

static int by_likelihood(const void *x, const void *y)
{
    const struct nt_difference *a = x, *b = y;
    if (a->weight != b->weight) {
        return a->weight < b->weight ? -1 : 1;
    }
    if (a->order != b->order) {
        return a->order < b->order ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

void nt_rundiff(const json_t *a, const json_t *b, struct nt_rundiff *ret)
{
    ret->n = ret->more = 0;
    diff_command(a, b, ret);
    diff_machine(json_object_get(a, "machine"), json_object_get(b, "machine"), ret);
    diff_profile(a, b, ret);
    diff_libraries(json_object_get(a, "machine"), json_object_get(b, "machine"), ret);
    diff_variables(json_object_get(a, "variables"), json_object_get(b, "variables"), ret);
    qsort(ret->v, ret->n, sizeof(ret->v[0]), by_likelihood);
}

void nt_rundiff_notes(const json_t *a, const json_t *b, struct nt_buf *out)
{
    json_t *x = json_object_get(a, "notes"), *q;
    const json_t *y = json_object_get(b, "notes");
    const char *key;

    json_object_foreach(x, key, q)
    {
        const json_t *r = json_object_get(y, key);
        if (json_is_number(q) && json_is_number(r)) {
            double p = json_number_value(q), s = json_number_value(r);
            nt_buf_put_plain(out, key);
            nt_buf_printf(out, ": %g, then %g", p, s);
            if (p != 0) {
                nt_buf_printf(out, " (%+.1f %%)", 100 * (s - p) / fabs(p));
            }
            nt_buf_puts(out, "\n");
        } else if (json_is_string(q) && json_is_string(r)) {
            nt_buf_put_plain(out, key);
            nt_buf_puts(out, ": ");
            nt_buf_put_plain(out, json_string_value(q));
            nt_buf_puts(out, ", then ");
            nt_buf_put_plain(out, json_string_value(r));
            nt_buf_puts(out, "\n");
        }
    }
}

json_t *nt_rundiff_json(const json_t *a, const json_t *b, const struct nt_rundiff *d)
{
    json_t *list = json_array();

    for (size_t i = 0; i < d->n; i++) {
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s}", "likelihood", nt_weight_names[d->v[i].weight],
                            "what", d->v[i].what, "name", d->v[i].name, "text", d->v[i].text));
    }
    return json_pack("{s:s, s:s, s:O?, s:O?, s:o}", "before", nt_json_opt_str(a, "id", ""), "after",
                     nt_json_opt_str(b, "id", ""), "notes_before", json_object_get(a, "notes"),
                     "notes_after", json_object_get(b, "notes"), "differences", list);
}
