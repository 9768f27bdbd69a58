/* The JSON that nccl-tests writes with -J (format version 3), and records of others. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/import/internal.h"

enum { KNOWN_VERSION = 3 };

static uint32_t u32(const json_t *o, const char *key)
{
    int64_t v = nt_json_opt_i64(o, key, 0);
    return v > 0 && v <= UINT32_MAX ? (uint32_t)v : 0;
}

static uint64_t u64(const json_t *o, const char *key)
{
    int64_t v = nt_json_opt_i64(o, key, 0);
    return v > 0 ? (uint64_t)v : 0;
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void text_of(char *out, size_t size, const json_t *v)
{
    if (json_is_string(v)) {
        nt_imp_copy(out, size, json_string_value(v), json_string_length(v));
    }
}

static void per_iteration(struct nt_imp_cell *c, const json_t *o)
{
    const json_t *times = json_object_get(o, "times_us");
    size_t n = json_array_size(times);
    if (!json_is_object(o)) {
        return;
    }
    c->min_us = number(o, "min_us");
    c->max_us = number(o, "max_us");
    c->p99_us = number(o, "p99_us");
    c->cv_pct = number(o, "cv_pct");
    c->samples_us = n > 0 && n <= NT_IMP_MAX_ROWS ? malloc(n * sizeof(double)) : NULL;
    for (size_t i = 0; c->samples_us != NULL && i < n; i++) {
        const json_t *v = json_array_get(times, i);
        if (json_is_number(v)) {
            c->samples_us[c->nsamples++] = json_number_value(v);
        }
    }
}

static void cell(struct nt_imp_run *r, struct nt_imp_cell *c, const json_t *o, const json_t *iter)
{
    double time = number(o, "time"), wrong = number(o, "nwrong");
    if (!json_is_object(o)) {
        return; /* null: this placement was not measured */
    }
    if (isnan(time)) {
        time = number(o, "cpu_time");
        r->cpu_time = r->cpu_time || !isnan(time);
    }
    c->have = isfinite(time) && time > 0;
    c->time_us = c->have ? time : 0;
    c->algbw = isnan(number(o, "alg_bw")) ? 0 : number(o, "alg_bw");
    c->busbw = isnan(number(o, "bus_bw")) ? 0 : number(o, "bus_bw");
    if (wrong >= 0) {
        c->wrong = wrong < 9e18 ? (int64_t)(wrong + 0.5) : INT64_MAX;
    }
    per_iteration(c, iter);
}

static void result(struct nt_imp_file *f, struct nt_imp_run *r, const json_t *o, uint32_t index)
{
    struct nt_imp_row *row = json_is_object(o) ? nt_imp_add_row(f, r, index) : NULL;
    const json_t *root = json_object_get(o, "root");
    if (row == NULL) {
        return;
    }
    row->bytes = u64(o, "size");
    row->count = u64(o, "count");
    text_of(row->dtype, sizeof(row->dtype), json_object_get(o, "type"));
    text_of(row->op, sizeof(row->op), json_object_get(o, "redop"));
    if (json_is_string(root)) { /* "    -1": as the text table pads it */
        long v = strtol(json_string_value(root), NULL, 10);
        row->root = v >= -1 && v <= NT_IMP_MAX_RANKS ? (int32_t)v : -1;
    } else if (json_is_integer(root)) {
        json_int_t v = json_integer_value(root);
        row->root = v >= -1 && v <= NT_IMP_MAX_RANKS ? (int32_t)v : -1;
    }
    cell(r, &row->place[0], json_object_get(o, "out_of_place"),
         json_object_get(o, "out_of_place_per_iter"));
    cell(r, &row->place[1], json_object_get(o, "in_place"),
         json_object_get(o, "in_place_per_iter"));
    if (r->collective[0] == '\0') {
        const char *name = nt_json_opt_str(o, "experiment_name", "");
        (void)nt_imp_collective(name, strlen(name), r->collective, sizeof(r->collective));
    }
}

static void config(struct nt_imp_run *r, const json_t *o)
{
    const json_t *devices = json_object_get(o, "devices"), *d;
    size_t i;
    r->headers = 1;
    r->threads = u32(o, "nthreads");
    r->gpus = u32(o, "ngpus");
    r->min_bytes = u64(o, "minimum_bytes");
    r->max_bytes = u64(o, "maximum_bytes");
    r->warmup = u32(o, "warmup_iters");
    r->iters = u32(o, "iterations");
    r->agg = u32(o, "aggregated_iterations");
    r->graph = u32(o, "graph");
    r->checked = nt_json_opt_i64(o, "validation", 1) != 0;
    /* Booleans are the words "true" and "false" in some releases. */
    r->blocking = nt_json_opt_bool(o, "blocking_collectives", false) ||
                  strcmp(nt_json_opt_str(o, "blocking_collectives", ""), "true") == 0;
    r->per_iter = nt_json_opt_bool(o, "per_iter_timing", false) ||
                  strcmp(nt_json_opt_str(o, "per_iter_timing", ""), "true") == 0;
    json_array_foreach(devices, i, d)
    {
        struct nt_imp_rank *rank = json_is_object(d) ? nt_imp_add_rank(r) : NULL;
        if (rank == NULL) {
            continue;
        }
        rank->rank = u32(d, "rank");
        rank->pid = u32(d, "pid");
        rank->device = (int32_t)u32(d, "device");
        text_of(rank->host, sizeof(rank->host), json_object_get(d, "hostname"));
        text_of(rank->bus, sizeof(rank->bus), json_object_get(d, "device_hex"));
        text_of(rank->gpu, sizeof(rank->gpu), json_object_get(d, "device_info"));
    }
}

static void environment(struct nt_imp_file *f, struct nt_imp_run *r, const json_t *env)
{
    const json_t *v;
    size_t i, left_out = 0;
    json_array_foreach(env, i, v)
    {
        const char *text = json_is_string(v) ? json_string_value(v) : "";
        left_out += !nt_imp_add_env(r, text, strlen(text));
    }
    if (left_out > 0) {
        nt_imp_note(&f->notes, NT_IMP_PRIVACY, 0,
                    "%zu of %zu variables were not kept: only NCCL_* and RCCL_* are", left_out,
                    json_array_size(env));
    }
}

/* One document of nccl-tests: a run. */
static int document(struct nt_imp_file *f, const json_t *doc, struct nt_err *err)
{
    const json_t *results = json_object_get(doc, "results"), *args, *v;
    struct nt_imp_run *r;
    size_t i;
    int64_t version;
    if (!json_is_array(results) || !json_is_object(json_object_get(doc, "config"))) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%s: JSON, but not that of nccl-tests (no config, results)", f->name);
    }
    r = nt_imp_add_run(f, 0);
    if (r == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "%s", f->name);
    }
    version = nt_json_opt_i64(doc, "version", 0);
    if (version != KNOWN_VERSION) {
        nt_imp_note(&f->notes, NT_IMP_FORMAT, 0, "format version %lld; version %d is known",
                    (long long)version, KNOWN_VERSION);
    }
    (void)snprintf(r->tool, sizeof(r->tool), "nccl-tests");
    (void)snprintf(r->library, sizeof(r->library), "NCCL");
    r->library_version = u32(doc, "nccl_version");
    args = json_object_get(doc, "args");
    v = json_array_get(args, 0);
    if (json_is_string(v)) {
        (void)nt_imp_collective(json_string_value(v), json_string_length(v), r->collective,
                                sizeof(r->collective));
    }
    config(r, json_object_get(doc, "config"));
    environment(f, r, json_object_get(doc, "env"));
    json_array_foreach(results, i, v)
    {
        result(f, r, v, (uint32_t)i + 1);
    }
    r->summary = json_is_object(json_object_get(doc, "out_of_bounds"));
    if (r->summary) {
        r->out_of_bounds = nt_json_opt_i64(json_object_get(doc, "out_of_bounds"), "count", -1);
        r->avg_busbw = number(json_object_get(doc, "average_bus_bandwidth"), "bandwidth");
        if (r->out_of_bounds > 0) {
            nt_imp_note(&f->notes, NT_IMP_WRONG_DATA, 0,
                        "the program's own verdict: %lld values out of bounds",
                        (long long)r->out_of_bounds);
        }
    }
    json_array_foreach(json_object_get(doc, "errors"), i, v)
    {
        char words[200] = "";
        text_of(words, sizeof(words), v);
        nt_imp_note(&f->notes, NT_IMP_RUN_FAILED, 0, "%s", words);
    }
    return 0;
}

/* A document, a record, or a list of either. */
static int value(struct nt_imp_file *f, const json_t *v, uint32_t line, struct nt_err *err)
{
    const json_t *item;
    size_t i;
    int rc = 0;
    if (!json_is_array(v)) {
        if (!nt_imp_is_record(v)) {
            return document(f, v, err);
        }
        nt_imp_add_record(f, v, line);
        return 0;
    }
    json_array_foreach(v, i, item)
    {
        rc = rc == 0 && !json_is_array(item) ? value(f, item, (uint32_t)i + 1, err) : rc;
    }
    return rc;
}

/* Several values one behind the other: results appended to one file, records one a line. */
int nt_imp_parse_json(struct nt_imp_file *f, const char *text, size_t len, struct nt_err *err)
{
    size_t at = 0;
    uint32_t n = 0;
    int rc = 0;
    while (rc == 0) {
        json_error_t je;
        json_t *v;
        while (at < len && (isspace((unsigned char)text[at]) || (unsigned char)text[at] >= 0x80)) {
            at++; /* the byte order mark too */
        }
        if (at == len) {
            break;
        }
        v = json_loadb(text + at, len - at, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &je);
        if (v == NULL) {
            return nt_fail(err, NT_E_INVAL, 0, "%s is not JSON: line %d: %s", f->name, je.line,
                           je.text);
        }
        rc = value(f, v, ++n, err);
        json_decref(v);
        at += (size_t)je.position;
    }
    return rc;
}
