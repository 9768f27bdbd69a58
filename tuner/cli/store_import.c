#include "tuner/cli/store_import.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The vocabulary's word for a type of nccl-tests; another type keeps its own. */
static const char *dtype_word(const char *type)
{
    static const char *const rows[][2] = {
        {"float", "fp32"},   {"float32", "fp32"},  {"half", "fp16"},
        {"float16", "fp16"}, {"bfloat16", "bf16"}, {"int", "int32"},
        {"int32", "int32"},  {"f8e4m3", "fp8"},    {"fp8_e4m3", "fp8"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(type, rows[i][0]) == 0) {
            return rows[i][1];
        }
    }
    return type;
}

static const char *collective_word(const char *name)
{
    int c = nt_coll_of(name);
    return c >= 0 ? nt_coll_names[c] : name;
}

/* Cells of a file that may stand in the database: usable ones, and those with wrong data, which are
 * kept as such. Implausible and garbled ones never enter. */
static size_t cells(const struct nt_imp_file *f, const char *label,
                    struct nt_store_measurement *out)
{
    size_t n = 0;
    for (size_t r = 0; r < f->nruns; r++) {
        const struct nt_imp_run *run = &f->runs[r];
        for (size_t i = 0; i < 2 * run->nrows; i++) {
            const struct nt_imp_row *row = &run->rows[i / 2];
            const struct nt_imp_cell *c = &row->place[i % 2];
            if (!c->usable && c->wrong <= 0) {
                continue;
            }
            if (out != NULL) {
                double sd = c->cv_pct >= 0 ? c->cv_pct * c->time_us * 10 : NAN;
                out[n] = (struct nt_store_measurement){
                    .collective = collective_word(run->collective),
                    .dtype = dtype_word(row->dtype),
                    .place = nt_place_names[i % 2],
                    .mode = nt_mode_names[nt_imp_mode(run)],
                    .backend = strcmp(run->library, "RCCL") == 0 ? "rccl" : "nccl",
                    .setting = label,
                    .bytes = row->bytes,
                    .ranks = run->world,
                    .repeat = row->cycle + 1000 * (uint32_t)r,
                    .samples = run->iters,
                    .ns = c->time_us * 1e3,
                    .sd_ns = sd,
                    .algbw_gbps = c->algbw,
                    .busbw_gbps = c->busbw,
                    .wrong = c->wrong};
            }
            n++;
        }
    }
    return n;
}

/* What must be equal before figures of two files are compared: nothing is, while something is not
 * known. */
static void setup_of(const struct nt_imp_run *r, char *out, size_t size)
{
    char shape[96];
    out[0] = '\0';
    if (r->world > 0 && r->nranks == r->world && r->library_version > 0) {
        (void)snprintf(out, size, "%s; %s %u; %s", nt_imp_shape(r, shape, sizeof(shape)),
                       r->library, r->library_version, r->ranks[0].gpu);
    }
}

static json_t *provenance(const struct nt_imp_file *f)
{
    json_t *o = nt_imp_json(f), *run;
    size_t i;
    json_array_foreach(json_object_get(o, "runs"), i, run)
    {
        (void)json_object_del(run, "rows"); /* they are in the table */
    }
    return o;
}

static int store(struct nt_store *s, struct nt_store_import *im, json_t *from,
                 const struct nt_store_measurement *m, size_t n, int64_t *ret_id, bool *ret_known,
                 struct nt_err *err)
{
    struct nt_buf text;
    int rc;
    nt_buf_init(&text, 64 << 20);
    nt_json_dump(from, false, &text);
    im->provenance = nt_buf_str(&text);
    rc = text.failed ? nt_fail(err, NT_E_NOMEM, 0, "%s", im->source)
                     : nt_store_add_import(s, im, m, n, ret_id, ret_known, err);
    nt_buf_done(&text);
    json_decref(from);
    return rc;
}

int nt_store_import_runs(struct nt_store *s, const struct nt_imp_file *f, const char *label,
                         int64_t *ret_id, bool *ret_known, struct nt_err *err)
{
    size_t n = cells(f, label, NULL);
    struct nt_store_measurement *m = calloc(n + 1, sizeof(*m));
    struct nt_store_import im = {.source = f->name, .sha256 = f->sha256, .kind = "nccl-tests"};
    char setup[300] = "";
    int rc;
    if (m == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "%s", f->name);
    }
    (void)cells(f, label, m);
    if (f->nruns == 1) {
        setup_of(&f->runs[0], setup, sizeof(setup));
    }
    im.setup = setup;
    rc = store(s, &im, provenance(f), m, n, ret_id, ret_known, err);
    free(m);
    return rc;
}

int nt_store_import_table(struct nt_store *s, const struct nt_table *t, const char *sha256,
                          int64_t *ret_id, bool *ret_known, struct nt_err *err)
{
    struct nt_store_measurement *m = calloc(t->n + 1, sizeof(*m));
    struct nt_store_import im = {.source = t->name, .sha256 = sha256, .kind = "table", .setup = ""};
    json_t *groups = json_array();
    int rc;
    if (m == NULL) {
        json_decref(groups);
        return nt_fail(err, NT_E_NOMEM, 0, "%s", t->name);
    }
    for (size_t i = 0; i < t->n; i++) {
        const struct nt_entry *e = &t->entries[i];
        bool time = t->metric == NT_TIME_US;
        m[i] =
            (struct nt_store_measurement){.collective = e->coll >= 0 ? nt_coll_names[e->coll] : "",
                                          .dtype = "",
                                          .place = "",
                                          .mode = e->mode >= 0 ? nt_mode_names[e->mode] : "",
                                          .backend = t->arms[e->arm],
                                          .setting = "",
                                          .bytes = e->bytes,
                                          .ranks = e->ranks,
                                          .repeat = e->round == UINT32_MAX ? 0 : e->round,
                                          .samples = e->repeats,
                                          .ns = time ? e->value * 1e3 : NAN,
                                          .sd_ns = time && e->sd >= 0 ? e->sd * 1e3 : NAN,
                                          .algbw_gbps = t->metric == NT_ALGBW ? e->value : NAN,
                                          .busbw_gbps = t->metric == NT_BUSBW ? e->value : NAN,
                                          .wrong = -1};
    }
    for (size_t i = 0; i < t->ngroups; i++) {
        (void)json_array_append_new(groups, json_stringn(t->groups[i], strnlen(t->groups[i], 256)));
    }
    rc = store(s, &im,
               json_pack("{s:o, s:s, s:o}", "groups", groups, "metric", nt_metric_names[t->metric],
                         "notes", nt_imp_notes_json(&t->notes)),
               m, t->n, ret_id, ret_known, err);
    free(m);
    return rc;
}
