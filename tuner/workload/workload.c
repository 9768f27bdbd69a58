#include "tuner/base/text.h"
#include "tuner/workload/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const document_keys[] = {"format", "version", "name", "ranks",
                                            "phases", "comment", NULL};
static const char *const phase_keys[] = {"name", "mode", "tokens", "steps", "calls", NULL};
static const char *const call_keys[] = {"collective", "bytes", "dtype", "count", "what", NULL};

enum { MAX_COUNT = 1000000 };

static int name_of(const json_t *o, const char *what, char *out, size_t size, struct nt_err *err)
{
    const char *s = NULL;
    int rc = nt_json_str(o, "name", &s, err);
    if (rc != 0) {
        return nt_wrap(err, rc, "%s", what);
    }
    if (*s == '\0' || strlen(s) >= size) {
        return nt_fail(err, NT_E_INVAL, 0, "%s: a name has 1 to %zu characters", what, size - 1);
    }
    (void)snprintf(out, size, "%s", s);
    return 0;
}

static int word(const json_t *o, const char *key, const char *const *names, const char *otherwise,
                uint8_t *ret, struct nt_err *err)
{
    int i = nt_vocab_find(names, key, nt_json_opt_str(o, key, otherwise), err);
    if (i < 0) {
        return i;
    }
    *ret = (uint8_t)i;
    return 0;
}

static int parse_call(const json_t *o, struct nt_wl_call *c, struct nt_err *err)
{
    uint64_t count = 0;
    const char *coll = NULL;
    int rc = nt_json_only(o, "call", call_keys, err);
    rc = rc == 0 ? nt_json_str(o, "collective", &coll, err) : rc;
    rc = rc == 0 ? word(o, "collective", nt_coll_names, "", &c->coll, err) : rc;
    rc = rc == 0 ? word(o, "dtype", nt_dtype_names, "bf16", &c->dtype, err) : rc;
    rc = rc == 0 ? nt_json_u64(o, "bytes", &c->bytes, err) : rc;
    rc = rc == 0 ? nt_json_u64(o, "count", &count, err) : rc;
    if (rc != 0) {
        return rc;
    }
    if (count == 0 || count > MAX_COUNT || c->bytes == 0 || c->bytes > (UINT64_C(1) << 40)) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "bytes and count are above 0; count at most %d, bytes at most 1T",
                       MAX_COUNT);
    }
    c->count = (uint32_t)count;
    (void)snprintf(c->what, sizeof(c->what), "%.63s", nt_json_opt_str(o, "what", ""));
    return 0;
}

static int parse_phase(const json_t *o, struct nt_wl_phase *p, struct nt_err *err)
{
    json_t *calls = NULL;
    int64_t tokens = nt_json_opt_i64(o, "tokens", 0);
    int rc = nt_json_only(o, "phase", phase_keys, err);
    rc = rc == 0 ? name_of(o, "phase", p->name, sizeof(p->name), err) : rc;
    rc = rc == 0 ? word(o, "mode", nt_mode_names, "graph", &p->mode, err) : rc;
    rc = rc == 0 ? nt_json_arr(o, "calls", &calls, err) : rc;
    if (rc != 0) {
        return rc;
    }
    p->tokens = tokens > 0 && tokens <= UINT32_MAX ? (uint32_t)tokens : 0;
    p->steps = nt_json_opt_num(o, "steps", 1);
    if (!(p->steps > 0) || !isfinite(p->steps)) {
        return nt_fail(err, NT_E_INVAL, 0, "phase %s: steps is a number above 0", p->name);
    }
    p->ncalls = json_array_size(calls);
    if (p->ncalls == 0 || p->ncalls > NT_WL_CALLS) {
        return nt_fail(err, NT_E_INVAL, 0, "phase %s: 1 to %d calls", p->name, NT_WL_CALLS);
    }
    for (size_t i = 0; rc == 0 && i < p->ncalls; i++) {
        rc = parse_call(json_array_get(calls, i), &p->calls[i], err);
        rc = rc != 0 ? nt_wrap(err, rc, "phase %s, call %zu", p->name, i + 1) : 0;
    }
    return rc;
}

int nt_workload_parse(const char *text, size_t len, const char *what, struct nt_workload *ret,
                      struct nt_err *err)
{
    json_t *doc = NULL, *phases = NULL;
    struct nt_workload w = {0};
    const char *format = NULL;
    uint64_t version = 0, ranks = 0;
    int rc = nt_json_parse(text, len, what, &doc, err);
    if (rc != 0) {
        return rc;
    }
    rc = nt_json_str(doc, "format", &format, err);
    if (rc == 0 && strcmp(format, NT_WL_FORMAT) != 0) {
        rc = nt_fail(err, NT_E_INVAL, 0, "format is '%.40s', not '%s'", format, NT_WL_FORMAT);
    }
    rc = rc == 0 ? nt_json_u64(doc, "version", &version, err) : rc;
    if (rc == 0 && version != 1) {
        rc = nt_fail(err, NT_E_INVAL, 0, "version %llu; 1 is known", (unsigned long long)version);
    }
    rc = rc == 0 ? nt_json_only(doc, "workload", document_keys, err) : rc;
    rc = rc == 0 ? name_of(doc, "workload", w.name, sizeof(w.name), err) : rc;
    rc = rc == 0 ? nt_json_u64(doc, "ranks", &ranks, err) : rc;
    if (rc == 0 && (ranks < 2 || ranks > 65536)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "ranks: 2 to 65536");
    }
    w.ranks = (uint32_t)ranks;
    rc = rc == 0 ? nt_json_arr(doc, "phases", &phases, err) : rc;
    w.nphases = rc == 0 ? json_array_size(phases) : 0;
    if (rc == 0 && (w.nphases == 0 || w.nphases > NT_WL_PHASES)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "1 to %d phases", NT_WL_PHASES);
    }
    for (size_t i = 0; rc == 0 && i < w.nphases; i++) {
        rc = parse_phase(json_array_get(phases, i), &w.phases[i], err);
    }
    json_decref(doc);
    if (rc != 0) {
        return nt_wrap(err, rc, "%s", what);
    }
    *ret = w;
    return 0;
}

json_t *nt_workload_json(const struct nt_workload *w)
{
    json_t *phases = json_array();
    for (size_t i = 0; i < w->nphases; i++) {
        const struct nt_wl_phase *p = &w->phases[i];
        json_t *calls = json_array();
        for (size_t k = 0; k < p->ncalls; k++) {
            const struct nt_wl_call *c = &p->calls[k];
            (void)json_array_append_new(
                calls, json_pack("{s:s, s:I, s:s, s:i, s:s}", "collective", nt_coll_names[c->coll],
                                 "bytes", (json_int_t)c->bytes, "dtype", nt_dtype_names[c->dtype],
                                 "count", (int)c->count, "what", c->what));
        }
        (void)json_array_append_new(phases,
                                    json_pack("{s:s, s:s, s:i, s:f, s:o}", "name", p->name, "mode",
                                              nt_mode_names[p->mode], "tokens", (int)p->tokens,
                                              "steps", p->steps, "calls", calls));
    }
    return json_pack("{s:s, s:i, s:s, s:i, s:o}", "format", NT_WL_FORMAT, "version", 1, "name",
                     w->name, "ranks", (int)w->ranks, "phases", phases);
}

int nt_workload_phase(const struct nt_workload *w, const char *name, const struct nt_wl_phase **ret,
                      struct nt_err *err)
{
    const char *names[NT_WL_PHASES + 1] = {NULL};
    for (size_t i = 0; i < w->nphases; i++) {
        names[i] = w->phases[i].name;
        if (strcmp(name, names[i]) == 0) {
            *ret = &w->phases[i];
            return 0;
        }
    }
    return nt_fail_name(err, "phase", name, names);
}

static int most_calls(const void *a, const void *b)
{
    const struct nt_wl_class *x = a, *y = b;
    if (x->calls != y->calls) {
        return x->calls > y->calls ? -1 : 1;
    }
    return x->cs.bytes < y->cs.bytes ? -1 : x->cs.bytes > y->cs.bytes;
}

size_t nt_workload_classes(const struct nt_workload *w, struct nt_wl_class *out, size_t max)
{
    struct nt_wl_class all[NT_WL_PHASES * NT_WL_CALLS];
    size_t n = 0;
    for (size_t i = 0; i < w->nphases; i++) {
        const struct nt_wl_phase *p = &w->phases[i];
        for (size_t k = 0; k < p->ncalls; k++) {
            const struct nt_wl_call *c = &p->calls[k];
            struct nt_case cs = {.bytes = c->bytes,
                                 .coll = c->coll,
                                 .dtype = c->dtype,
                                 .place = NT_OUT_OF_PLACE,
                                 .mode = p->mode};
            size_t at = 0;
            while (at < n && !nt_case_equal(&all[at].cs, &cs)) {
                at++;
            }
            if (at == n) {
                all[n++] = (struct nt_wl_class){.cs = cs};
            }
            all[at].calls += p->steps * c->count;
        }
    }
    qsort(all, n, sizeof(all[0]), most_calls);
    for (size_t i = 0; i < n && i < max; i++) {
        out[i] = all[i];
    }
    return n;
}
