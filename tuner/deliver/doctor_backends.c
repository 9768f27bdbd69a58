/* Which backend the calls of an engine went to, by process and for the job. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "schema/vocab.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/deliver/doctor_private.h"

/* A group of another number of ranks than the table's is none of its affair. */
static bool is_other_size(const struct nt_engine_group *g)
{
    return strncmp(g->why, "the table is for ", 17) == 0;
}

/* ---- one process ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool is_libnccl(const char *path)
{
    return strncmp(base_name(path), "libnccl.so", 10) == 0;
}

/* PyNccl opens a libnccl by its name; ProcessGroupNCCL has the one that PyTorch brought. With one
 * file in the process it is the same for both; of two the other one is PyTorch's. */
static void say_libraries(const struct nt_engine *e, struct nt_doctor_verdict *v)
{
    const char *file[NT_ENGINE_LIBRARIES], *own = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < e->nmapped; i++) {
        if (is_libnccl(e->mapped[i])) {
            file[n++] = e->mapped[i];
            own = strcmp(e->mapped[i], e->pynccl) == 0 ? e->mapped[i] : own;
        }
    }
    if (e->pynccl[0] == '\0' || n == 0) {
        return;
    }
    if (n == 1) {
        nt_doctor_say(v, "PyNccl and ProcessGroupNCCL are two communicators of one library: %.180s",
                      file[0]);
        return;
    }
    nt_doctor_say(v, "PyNccl calls %.200s%s", e->pynccl,
                  own != NULL ? "" : ", by name: one of the files below");
    for (unsigned i = 0; i < n; i++) {
        if (file[i] != own) {
            nt_doctor_say(v, "ProcessGroupNCCL %s %.200s",
                          n == 2 && own != NULL ? "calls" : "may call", file[i]);
        }
    }
}

static void judge_groups(const struct nt_engine *e, struct nt_doctor_verdict *v)
{
    unsigned on = 0, off = 0;

    for (unsigned i = 0; i < e->ngroups; i++) {
        const struct nt_engine_group *g = &e->groups[i];
        on += g->on;
        if (!g->on && !is_other_size(g)) {
            off++;
            nt_doctor_trouble(v, NT_DR_PARTLY);
            nt_doctor_say(v, "backends: group %s of %u leaves all to the engine: %.150s", g->name,
                          g->ranks, g->why);
        }
    }
    if (on == 0 && off == 0) {
        nt_doctor_say(v, e->ngroups == 0 ? "backends: no all_reduce of a group yet"
                                         : "backends: no group has the table's number of ranks");
    }
}

void nt_doctor_engine(const struct nt_doctor_facts *f, const struct nt_doctor_world *w,
                      struct nt_doctor_verdict *v)
{
    const struct nt_engine *e = f->engine;
    const char *told = nt_proc_env(f->proc, "NCCLTUNE_BACKENDS");

    if (e == NULL) {
        if (f->no_engine != NULL && f->no_engine[0] != '\0') {
            nt_doctor_say(v, "receipt of backends: %.200s", f->no_engine);
        }
        if (told != NULL && told[0] != '\0' && v->counts && v->verdict != NT_DR_OFF) {
            nt_doctor_trouble(v, NT_DR_PARTLY);
            nt_doctor_say(v,
                          "backends: told of table %.12s, and no plugin of an engine left a "
                          "receipt: is share/nccltune/engines in its PYTHONPATH or packages?",
                          told);
        } else if (told != NULL && told[0] != '\0' && v->verdict == NT_DR_NOT_TOLD) {
            v->verdict = NT_DR_WAITING;
            nt_doctor_say(v, "told of backends; no plugin of an engine has left a receipt");
        }
        return;
    }
    (void)snprintf(v->backends, sizeof(v->backends), "%s %s table %.12s %s", e->engine, e->version,
                   e->table, e->on ? "on" : "off");
    if (!e->on) {
        nt_doctor_trouble(v, NT_DR_PARTLY);
        nt_doctor_say(v, "backends: nothing is taken: %.200s", e->why);
        return;
    }
    if (v->verdict == NT_DR_NOT_TOLD) { /* of backends alone, and they are there */
        v->verdict = NT_DR_APPLIED;
        (void)snprintf(v->hash, sizeof(v->hash), "%s", e->table);
    }
    if (w->active_backends[0] != '\0' && told == NULL &&
        strcmp(w->active_backends, e->table) != 0) {
        nt_doctor_trouble(v, NT_DR_STALE);
        nt_doctor_say(v, "backends: has table %.12s; active since is %.12s", e->table,
                      w->active_backends);
    }
    judge_groups(e, v);
    say_libraries(e, v);
}

static void range_text(const struct nt_engine_row *r, char *out, size_t size)
{
    char lo[24], hi[24];
    (void)snprintf(out, size, "%s to %s", nt_format_bytes(r->min_bytes, lo, sizeof(lo)),
                   nt_format_bytes(r->max_bytes, hi, sizeof(hi)));
}

static void counts_text(const struct nt_engine_row *r, struct nt_buf *out)
{
    char range[64];

    if (r->backend[0] == '\0') {
        nt_buf_printf(out, "%" PRIu64 " of no row, the engine's own choice", r->served);
        return;
    }
    range_text(r, range, sizeof(range));
    nt_buf_printf(out, "%s %s %" PRIu64, range, r->backend, r->served);
    if (r->declined > 0) {
        nt_buf_printf(out, " (%" PRIu64 " declined by the engine's class)", r->declined);
    }
}

static bool same_line(const struct nt_engine_row *a, const struct nt_engine_row *b)
{
    return a->mode == b->mode && strcmp(a->group, b->group) == 0 && strcmp(a->dtype, b->dtype) == 0;
}

void nt_doctor_engine_text(const struct nt_engine *e, struct nt_buf *out)
{
    for (unsigned i = 0; e != NULL && i < e->nrows; i++) {
        const struct nt_engine_row *r = &e->rows[i];
        bool more = i > 0 && same_line(r, &e->rows[i - 1]);
        if (!more) {
            nt_buf_printf(out, "%s             %s %s %s: ", i > 0 ? "\n" : "", r->group,
                          nt_mode_names[r->mode], r->dtype);
        }
        nt_buf_puts(out, more ? ", " : "");
        counts_text(r, out);
    }
    nt_buf_puts(out, e != NULL && e->nrows > 0 ? "\n" : "");
}

static json_t *row_json(const struct nt_engine_row *r)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:I}", "group", r->group, "mode", nt_mode_names[r->mode],
                          "dtype", r->dtype, "calls", (json_int_t)r->served);
    if (r->backend[0] != '\0') {
        (void)json_object_set_new(o, "backend", json_string(r->backend));
        (void)json_object_set_new(o, "min_bytes", json_integer((json_int_t)r->min_bytes));
        (void)json_object_set_new(o, "max_bytes", json_integer((json_int_t)r->max_bytes));
        (void)json_object_set_new(o, "declined", json_integer((json_int_t)r->declined));
    }
    return o;
}

json_t *nt_doctor_engine_json(const struct nt_engine *e)
{
    json_t *groups, *rows, *mapped;

    if (e == NULL) {
        return json_null();
    }
    groups = json_array();
    rows = json_array();
    mapped = json_array();
    for (unsigned i = 0; i < e->ngroups; i++) {
        const struct nt_engine_group *g = &e->groups[i];
        (void)json_array_append_new(groups,
                                    json_pack("{s:s, s:i, s:b, s:s}", "name", g->name, "ranks",
                                              (int)g->ranks, "on", g->on, "why", g->why));
    }
    for (unsigned i = 0; i < e->nrows; i++) {
        (void)json_array_append_new(rows, row_json(&e->rows[i]));
    }
    for (unsigned i = 0; i < e->nmapped; i++) {
        (void)json_array_append_new(mapped, nt_json_text(e->mapped[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:o, s:o, s:o, s:i}", "engine", e->engine,
                     "version", e->version, "table", e->table, "on", e->on, "why", e->why, "pynccl",
                     e->pynccl, "libraries", mapped, "groups", groups, "calls", rows, "lost",
                     (int)e->lost);
}

/* ---- the job ---- */

static struct nt_doctor_choice *choice_of(struct nt_doctor_backends *b,
                                          const struct nt_engine_row *r)
{
    struct nt_doctor_choice *c;

    for (unsigned i = 0; i < b->n; i++) {
        if (nt_engine_same_row(&b->v[i].row, r)) {
            return &b->v[i];
        }
    }
    if (b->n == NT_DOCTOR_CHOICES) {
        b->lost++;
        return NULL;
    }
    c = &b->v[b->n++];
    *c = (struct nt_doctor_choice){.row = *r};
    c->row.served = c->row.declined = 0;
    return c;
}

static void NT_PRINTF(2, 3) split(struct nt_doctor_backends *b, const char *fmt, ...)
{
    va_list ap;
    if (b->nsplit == NT_DOCTOR_SPLITS) {
        b->lost++;
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(b->split[b->nsplit++], sizeof(b->split[0]), fmt, ap);
    va_end(ap);
}

void nt_doctor_backends_add(struct nt_doctor_backends *b, const struct nt_doctor_facts *f,
                            const struct nt_doctor_verdict *v)
{
    const struct nt_engine *e = f->engine;

    if (e == NULL) {
        return;
    }
    if (b->receipts++ == 0) {
        b->first = f->proc->pid;
        (void)snprintf(b->as_first, sizeof(b->as_first), "%s", v->backends);
    } else if (strcmp(b->as_first, v->backends) != 0) {
        split(b, "process %u has %.90s, process %u has %.90s", b->first, b->as_first, f->proc->pid,
              v->backends);
    }
    b->lost += e->lost;
    for (unsigned i = 0; i < e->nrows; i++) {
        const struct nt_engine_row *r = &e->rows[i];
        struct nt_doctor_choice *c = choice_of(b, r);
        if (c == NULL || r->served + r->declined == 0) {
            continue;
        }
        nt_engine_add_count(&c->row.served, r->served);
        nt_engine_add_count(&c->row.declined, r->declined);
        c->processes++;
        c->served_by = r->served > 0 && r->declined == 0 ? f->proc->pid : c->served_by;
        c->declined_by = r->served == 0 ? f->proc->pid : c->declined_by;
    }
}

void nt_doctor_backends_judge(struct nt_doctor_backends *b)
{
    for (unsigned i = 0; i < b->n; i++) {
        const struct nt_doctor_choice *c = &b->v[i];
        char range[64];
        if (c->served_by != 0 && c->declined_by != 0) {
            range_text(&c->row, range, sizeof(range));
            split(b,
                  "%s %s %s %s: process %u had %s, process %u had its class decline and the "
                  "engine choose",
                  c->row.group, nt_mode_names[c->row.mode], c->row.dtype, range, c->served_by,
                  c->row.backend, c->declined_by);
        }
    }
}

void nt_doctor_backends_text(const struct nt_doctor_backends *b, struct nt_buf *out)
{
    if (b->receipts == 0) {
        return;
    }
    nt_buf_printf(out,
                  "backends of all_reduce, summed over %u receipt%s of engines (calls made or "
                  "captured; replays are none):\n",
                  b->receipts, b->receipts == 1 ? "" : "s");
    for (unsigned i = 0; i < b->n; i++) {
        const struct nt_doctor_choice *c = &b->v[i];
        nt_buf_printf(out, "  %s %s %s ", c->row.group, nt_mode_names[c->row.mode], c->row.dtype);
        counts_text(&c->row, out);
        nt_buf_printf(out, ", in %u process%s\n", c->processes, c->processes == 1 ? "" : "es");
    }
    for (unsigned i = 0; i < b->nsplit; i++) {
        nt_buf_printf(out, "  the ranks disagree: %s\n", b->split[i]);
    }
    if (b->lost > 0) {
        nt_buf_printf(out, "  %u lines more found no room\n", b->lost);
    }
}

json_t *nt_doctor_backends_json(const struct nt_doctor_backends *b)
{
    json_t *calls = json_array(), *splits = json_array();

    for (unsigned i = 0; i < b->n; i++) {
        json_t *o = row_json(&b->v[i].row);
        (void)json_object_set_new(o, "processes", json_integer(b->v[i].processes));
        (void)json_array_append_new(calls, o);
    }
    for (unsigned i = 0; i < b->nsplit; i++) {
        (void)json_array_append_new(splits, json_string(b->split[i]));
    }
    return json_pack("{s:i, s:o, s:o, s:i}", "receipts", (int)b->receipts, "calls", calls,
                     "disagree", splits, "lost", (int)b->lost);
}
