#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/import/internal.h"

char *nt_imp_shape(const struct nt_imp_run *r, char *out, size_t size)
{
    unsigned per = r->procs > 0 ? (unsigned)(r->nranks / r->procs) : 0;
    if (r->procs == 0 || r->mixed || r->world != r->nranks) {
        if (r->threads > 0 && r->gpus > 0) {
            (void)snprintf(out, size, "%u x %u GPUs a process, processes not said", r->threads,
                           r->gpus);
        } else {
            (void)snprintf(out, size, "launch shape not said");
        }
    } else {
        (void)snprintf(out, size, "%u process%s x %u GPU%s on %u host%s", r->procs,
                       r->procs == 1 ? "" : "es", per, per == 1 ? "" : "s", r->hosts,
                       r->hosts == 1 ? "" : "s");
    }
    return out;
}

static json_t *real_or_null(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *nt_imp_notes_json(const struct nt_imp_notes *notes)
{
    json_t *list = json_array();
    for (size_t i = 0; i < notes->n; i++) {
        const struct nt_imp_note *n = &notes->v[i];
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:s, s:i, s:o}", "id", nt_imp_note_name(n->id),
                                              "level", nt_imp_level_names[nt_imp_note_level(n->id)],
                                              "line", (int)n->line, "text", nt_json_text(n->text)));
    }
    return list;
}

void nt_imp_notes_text(const struct nt_imp_notes *notes, const char *name, struct nt_buf *out)
{
    for (size_t i = 0; i < notes->n; i++) {
        const struct nt_imp_note *n = &notes->v[i];
        if (n->line > 0) {
            nt_buf_printf(out, "%s:%u: ", name, n->line);
        } else {
            nt_buf_printf(out, "%s: ", name);
        }
        nt_buf_printf(out, "%s: %s [%s]\n", nt_imp_level_names[nt_imp_note_level(n->id)], n->text,
                      nt_imp_note_name(n->id));
    }
    if (notes->full) {
        nt_buf_printf(out, "%s: more was found than is kept\n", name);
    }
}

static json_t *cell_json(const struct nt_imp_cell *c)
{
    json_t *o;
    if (!c->have) {
        return json_null();
    }
    o = json_pack("{s:f, s:f, s:f, s:o, s:b}", "time_us", c->time_us, "algbw_gbps", c->algbw,
                  "busbw_gbps", c->busbw, "wrong",
                  c->wrong < 0 ? json_null() : json_integer(c->wrong), "usable", c->usable);
    if (!isnan(c->error)) {
        (void)json_object_set_new(o, "rounding_error", json_real(c->error));
    }
    if (!isnan(c->min_us)) {
        (void)json_object_set_new(
            o, "per_iteration",
            json_pack("{s:o, s:o, s:o, s:o, s:i}", "min_us", real_or_null(c->min_us), "max_us",
                      real_or_null(c->max_us), "p99_us", real_or_null(c->p99_us), "cv_pct",
                      real_or_null(c->cv_pct), "samples", (int)c->nsamples));
    }
    return o;
}

static json_t *run_json(const struct nt_imp_run *r)
{
    char shape[96];
    json_t *rows = json_array(), *env = json_array();
    json_t *o = json_pack(
        "{s:o, s:b, s:o, s:o, s:o, s:i, s:o, s:o, s:i, s:b, s:b, s:i, s:i, s:i, s:s}", "collective",
        r->collective[0] != '\0' ? json_string(r->collective) : json_null(), "collective_inferred",
        r->collective_inferred, "tool", nt_json_text(r->tool), "tool_version",
        nt_json_text(r->tool_version), "library", nt_json_text(r->library), "library_version",
        (int)r->library_version, "library_text", nt_json_text(r->library_text), "gpu",
        nt_json_text(r->nranks > 0 ? r->ranks[0].gpu : ""), "ranks", (int)r->world,
        "ranks_inferred", r->world_inferred, "mixed", r->mixed, "iterations", (int)r->iters,
        "warmup", (int)r->warmup, "graph", (int)r->graph, "launch_shape",
        nt_imp_shape(r, shape, sizeof(shape)));
    for (size_t i = 0; i < r->nrows; i++) {
        const struct nt_imp_row *row = &r->rows[i];
        (void)json_array_append_new(
            rows, json_pack("{s:I, s:I, s:s, s:s, s:i, s:i, s:i, s:o, s:o}", "bytes",
                            (json_int_t)row->bytes, "count", (json_int_t)row->count, "type",
                            row->dtype, "op", row->op, "root", (int)row->root, "line",
                            (int)row->line, "cycle", (int)row->cycle, "out_of_place",
                            cell_json(&row->place[0]), "in_place", cell_json(&row->place[1])));
    }
    for (size_t i = 0; i < r->nenv; i++) {
        (void)json_array_append_new(env, nt_json_text(r->env[i]));
    }
    if (o != NULL) {
        (void)json_object_set_new(o, "env", env);
        (void)json_object_set_new(o, "rows", rows);
        (void)json_object_set_new(o, "average_busbw_gbps", real_or_null(r->avg_busbw));
        (void)json_object_set_new(o, "out_of_bounds",
                                  r->out_of_bounds < 0 ? json_null()
                                                       : json_integer(r->out_of_bounds));
    } else {
        json_decref(rows);
        json_decref(env);
    }
    return o;
}

json_t *nt_imp_json(const struct nt_imp_file *f)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < f->nruns; i++) {
        json_t *r = run_json(&f->runs[i]);
        if (r != NULL) {
            (void)json_array_append_new(runs, r);
        }
    }
    return json_pack("{s:o, s:s, s:o, s:o}", "file", nt_json_text(f->name), "sha256", f->sha256,
                     "runs", runs, "notes", nt_imp_notes_json(&f->notes));
}

static void cell_text(const struct nt_imp_cell *c, struct nt_buf *out)
{
    if (!c->have) {
        nt_buf_printf(out, "  %10s %8s", "-", "");
        return;
    }
    nt_buf_printf(out, "  %10.2f %8.2f%s", c->time_us, c->busbw, c->usable ? " " : "!");
}

void nt_imp_text(const struct nt_imp_file *f, struct nt_buf *out)
{
    for (size_t i = 0; i < f->nruns; i++) {
        const struct nt_imp_run *r = &f->runs[i];
        char shape[96], size[24];
        if (r->nrows == 0) {
            continue;
        }
        nt_buf_printf(out, "%s: %s, %u rank%s%s, %s", f->name,
                      r->collective[0] != '\0' ? r->collective : "collective not said", r->world,
                      r->world == 1 ? "" : "s", r->world == 0 ? " (not said)" : "",
                      nt_imp_shape(r, shape, sizeof(shape)));
        if (r->nranks > 0) {
            nt_buf_printf(out, ", %s", r->ranks[0].gpu);
        }
        if (r->library_version > 0) {
            uint32_t v = r->library_version;
            uint32_t major = v >= 10000 ? v / 10000 : v / 1000,
                     rest = v >= 10000 ? v % 10000 : v % 1000;
            nt_buf_printf(out, ", %s %u.%u.%u", r->library, major, rest / 100, rest % 100);
        }
        nt_buf_printf(out, "\n%10s %8s %5s  %10s %8s   %10s %8s\n", "size", "type", "op", "out us",
                      "busbw", "in us", "busbw");
        for (size_t k = 0; k < r->nrows; k++) {
            const struct nt_imp_row *row = &r->rows[k];
            nt_buf_printf(out, "%10s %8s %5s", nt_format_bytes(row->bytes, size, sizeof(size)),
                          row->dtype, row->op);
            cell_text(&row->place[0], out);
            cell_text(&row->place[1], out);
            nt_buf_puts(out, "\n");
        }
    }
    nt_imp_notes_text(&f->notes, f->name, out);
}
