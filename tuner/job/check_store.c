/* Checks in the store: the outcome in, the last one and the whole history out. */
#include "tuner/job/check.h"
#include "tuner/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHECKS = 4096 };

static double ratio_of(double log_ratio, const struct nt_est *x)
{
    return x == NULL || x->n >= NT_CHECK_LEAST_PAIRS ? exp(log_ratio) : NAN;
}

static double ns_of(const struct nt_est *x)
{
    return x->n > 0 ? exp(x->mean) : NAN;
}

/* ------------------------------------------------------------------ the last one */

struct last {
    struct nt_check_outcome *o;
};

static const char *text_of(const struct nt_value *v)
{
    return v->type == NT_VALUE_TEXT ? v->text : "";
}
static double real_of(const struct nt_value *v)
{
    return v->type == NT_VALUE_REAL ? v->r : v->type == NT_VALUE_INT ? (double)v->i : NAN;
}
static int64_t int_of(const struct nt_value *v)
{
    return v->type == NT_VALUE_INT ? v->i : 0;
}

/* Columns: check, collective, bytes, mode, default_ns, tuned_ns, copy_ns, launch_ns. */
static int last_row(void *data, unsigned ncols, const char *const *names, const struct nt_value *v,
                    struct nt_err *err)
{
    struct nt_check_outcome *o = ((struct last *)data)->o;
    (void)ncols;
    (void)names;
    (void)err;

    if (v == NULL) {
        return 0;
    }
    o->last = int_of(&v[0]);
    for (size_t i = 0; i < NT_CHECK_CONTROLS; i++) {
        o->control_moves[i] = nt_check_move(&o->controls[i].log_ns, real_of(&v[6 + i]));
    }
    for (size_t i = 0; i < o->nrows; i++) {
        const struct nt_check_row *r = &o->rows[i];
        if (strcmp(text_of(&v[1]), nt_coll_names[r->cs.coll]) == 0 &&
            strcmp(text_of(&v[3]), nt_mode_names[r->cs.mode]) == 0 &&
            strcmp(text_of(&v[8]), nt_dtype_names[r->cs.dtype]) == 0 &&
            (uint64_t)int_of(&v[2]) == r->cs.bytes) {
            o->moves[i].default_last = nt_check_move(&r->log_default, real_of(&v[4]));
            o->moves[i].tuned_last = nt_check_move(&r->log_tuned, real_of(&v[5]));
        }
    }
    return 0;
}

static int look_back(struct nt_store *s, struct nt_check_outcome *o, struct nt_err *err)
{
    static const char sql[] =
        "SELECT r.id, c.collective, c.bytes, c.mode, w.default_ns, w.tuned_ns, r.copy_ns,"
        " r.launch_ns, c.dtype FROM checkrun AS r JOIN checkrow AS w ON w.check_id = r.id"
        " JOIN cases AS c ON c.id = w.case_id WHERE r.id ="
        " (SELECT id FROM checkrun WHERE profile = ?1 ORDER BY at_ms DESC, id DESC LIMIT 1)";
    const struct nt_value hash = {
        .type = NT_VALUE_TEXT, .text = o->profile_hash, .len = strlen(o->profile_hash)};
    struct last l = {.o = o};
    return nt_store_query(s, sql, &hash, 1, &(struct nt_query_limits){.rows = 4096}, last_row, &l,
                          NULL, err);
}

/* ------------------------------------------------------------------ keeping */

static int put_place(struct nt_store *s, const struct nt_facts *f, const char *site,
                     struct nt_store_check *c, struct nt_err *err)
{
    struct nt_buf health;
    int rc;

    nt_buf_init(&health, 1 << 16);
    if (f->health != NULL) {
        nt_json_dump(f->health, false, &health);
    }
    rc = nt_store_put_topology(
        s,
        &(struct nt_store_topology){.identity = f->identity,
                                    .mask = f->mask,
                                    .json = "",
                                    .xml = f->topology_xml != NULL ? f->topology_xml : "",
                                    .health = nt_buf_str(&health)},
        &c->topology, err);
    rc = rc == 0 ? nt_store_put_host(s, &(struct nt_store_host){.name = f->host, .facts = ""},
                                     &c->host, err)
                 : rc;
    rc = rc == 0 ? nt_store_put_stack(s,
                                      &(struct nt_store_stack){.nccl = f->nccl,
                                                               .nccl_sha256 = f->nccl_sha256,
                                                               .cuda = f->cuda,
                                                               .driver = f->driver,
                                                               .framework = f->framework,
                                                               .gpu = f->gpu,
                                                               .site = site},
                                      &c->stack, err)
                 : rc;
    nt_buf_done(&health);
    return rc;
}

static int make_rows(struct nt_store *s, const struct nt_profile *p,
                     const struct nt_check_outcome *o, struct nt_store_check_row *rows,
                     struct nt_err *err)
{
    struct nt_buf vars;
    int rc = 0;

    nt_buf_init(&vars, 1 << 16);
    for (size_t i = 0; i < p->product[o->product].vars.n; i++) {
        const struct nt_assign *a = &p->product[o->product].vars.v[i];
        nt_buf_printf(&vars, "%s%s=%s", i > 0 ? " " : "", a->name, a->value);
    }
    for (size_t i = 0; i < o->nrows && rc == 0; i++) {
        const struct nt_check_row *r = &o->rows[i];
        rows[i] =
            (struct nt_store_check_row){.cs = r->cs,
                                        .min_bytes = r->min_bytes,
                                        .max_bytes = r->max_bytes,
                                        .was_ratio = ratio_of(r->was, NULL),
                                        .ratio = ratio_of(r->ratio.mean, &r->ratio),
                                        .lo = ratio_of(r->ratio.lo, &r->ratio),
                                        .hi = ratio_of(r->ratio.hi, &r->ratio),
                                        .default_ns = ns_of(&r->log_default),
                                        .tuned_ns = ns_of(&r->log_tuned),
                                        .default_move = nt_move_names[o->moves[i].default_profile],
                                        .tuned_move = nt_move_names[o->moves[i].tuned_profile],
                                        .verdict = nt_check_verdict_names[r->verdict],
                                        .why = r->why};
        rc = nt_store_put_setting(
            s, &(struct nt_store_setting){.vars = nt_buf_str(&vars), .call = r->call},
            &rows[i].setting, err);
    }
    nt_buf_done(&vars);
    return rc;
}

int nt_check_keep(struct nt_store *s, const struct nt_profile *p, const char *site,
                  struct nt_check_outcome *o, struct nt_err *err)
{
    struct nt_store_check_row *rows = calloc(o->nrows + 1, sizeof(*rows));
    struct nt_store_check c = {.profile = o->profile_hash,
                               .product = nt_product_names[o->product],
                               .rig = (uint8_t)p->rig,
                               .ranks = p->ranks,
                               .nodes = p->nodes,
                               .pairs = o->pairs,
                               .verdict = nt_check_verdict_names[o->verdict],
                               .copy_bytes = o->controls[0].bytes,
                               .copy_ns = ns_of(&o->controls[0].log_ns),
                               .launch_ns = ns_of(&o->controls[1].log_ns)};
    struct nt_buf differs;
    int rc = rows == NULL ? nt_fail(err, NT_E_NOMEM, 0, "check") : look_back(s, o, err);

    nt_buf_init(&differs, 1 << 16);
    for (size_t i = 0; i < o->ndiffers; i++) {
        nt_buf_printf(&differs, "%s%s", i > 0 ? "\n" : "", o->differs[i].text);
    }
    c.differs = nt_buf_str(&differs);
    rc = rc == 0 ? nt_store_begin(s, err) : rc;
    if (rc == 0) {
        rc = put_place(s, &o->facts, site, &c, err);
        rc = rc == 0 ? make_rows(s, p, o, rows, err) : rc;
        rc = rc == 0 ? nt_store_add_check(s, &c, rows, o->nrows, &o->check, err) : rc;
        rc = nt_store_end(s, rc, err);
    }
    nt_buf_done(&differs);
    free(rows);
    return rc;
}

/* ------------------------------------------------------------------ the history */

struct history {
    struct nt_check_point *v;
    size_t n;
};

#define TEXT(to, column) (void)snprintf(to, sizeof(to), "%s", text_of(&v[column]))

static int history_row(void *data, unsigned ncols, const char *const *names,
                       const struct nt_value *v, struct nt_err *err)
{
    struct history *h = data;
    struct nt_check_point *p;
    double copy_ns, launch_ns;
    (void)ncols;
    (void)names;

    if (v == NULL) {
        return 0;
    }
    p = realloc(h->v, (h->n + 1) * sizeof(*p));
    if (p == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "history");
    }
    h->v = p;
    p = &h->v[h->n++];
    copy_ns = real_of(&v[6]);
    launch_ns = real_of(&v[7]);
    *p = (struct nt_check_point){.check = int_of(&v[0]),
                                 .ratio = real_of(&v[3]),
                                 .rows = (size_t)int_of(&v[4]),
                                 .copy_gbps = (double)int_of(&v[5]) / copy_ns,
                                 .launch_us = launch_ns / 1e3};
    TEXT(p->at, 1);
    TEXT(p->verdict, 2);
    TEXT(p->nccl, 8);
    TEXT(p->nccl_sha256, 9);
    TEXT(p->driver, 10);
    TEXT(p->cuda, 11);
    TEXT(p->gpu, 12);
    TEXT(p->host, 13);
    TEXT(p->identity, 14);
    TEXT(p->health, 15);
    TEXT(p->site, 16);
    TEXT(p->dtype, 17);
    return 0;
}

/* The newest that fit, oldest first. The logarithm is taken in C: SQLite may be built without. */
int nt_check_history(struct nt_store *s, const char *profile_hash,
                     struct nt_check_point **ret_points, size_t *ret_n, struct nt_err *err)
{
    static const char sql[] =
        "SELECT r.id, datetime(r.at_ms / 1000, 'unixepoch'), r.verdict,"
        " (SELECT avg(w.ratio) FROM checkrow AS w WHERE w.check_id = r.id),"
        " (SELECT count(w.ratio) FROM checkrow AS w WHERE w.check_id = r.id),"
        " r.copy_bytes, r.copy_ns, r.launch_ns, k.nccl, k.nccl_sha256, k.driver, k.cuda, k.gpu,"
        " h.name, t.identity, t.health, k.site,"
        " (SELECT iif(min(c.dtype) = max(c.dtype), min(c.dtype), 'mixed') FROM checkrow AS w"
        "  JOIN cases AS c ON c.id = w.case_id WHERE w.check_id = r.id AND w.ratio IS NOT NULL)"
        " FROM checkrun AS r"
        " LEFT JOIN topology AS t ON t.id = r.topology_id LEFT JOIN stack AS k ON k.id ="
        " r.stack_id LEFT JOIN host AS h ON h.id = r.host_id WHERE r.profile = ?1"
        " ORDER BY r.at_ms DESC, r.id DESC";
    const struct nt_value hash = {
        .type = NT_VALUE_TEXT, .text = profile_hash, .len = strlen(profile_hash)};
    struct history h = {0};
    int rc = nt_store_query(s, sql, &hash, 1, &(struct nt_query_limits){.rows = MOST_CHECKS},
                            history_row, &h, NULL, err);

    if (rc != 0) {
        free(h.v);
        return rc;
    }
    for (size_t i = 0; i < h.n / 2; i++) {
        struct nt_check_point swap = h.v[i];
        h.v[i] = h.v[h.n - 1 - i];
        h.v[h.n - 1 - i] = swap;
    }
    for (size_t i = 0; i < h.n; i++) {
        h.v[i].ratio = log(h.v[i].ratio);
    }
    *ret_points = h.v;
    *ret_n = h.n;
    return 0;
}

void nt_check_point_diff(const struct nt_check_point *good, const struct nt_check_point *bad,
                         struct nt_buf *out)
{
    const struct {
        const char *name, *was, *is;
    } rows[] = {
        {"health", good->health, bad->health},
        {"NCCL", good->nccl, bad->nccl},
        {"driver", good->driver, bad->driver},
        {"libnccl", good->nccl_sha256, bad->nccl_sha256},
        {"site constraints", good->site, bad->site},
        {"identity", good->identity, bad->identity},
        {"GPU", good->gpu, bad->gpu},
        {"CUDA", good->cuda, bad->cuda},
        {"host", good->host, bad->host},
    };
    size_t before = out->len;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].was, rows[i].is) != 0) {
            nt_buf_printf(out, "%s was %s, is %s\n", rows[i].name,
                          rows[i].was[0] != '\0' ? rows[i].was : "not known",
                          rows[i].is[0] != '\0' ? rows[i].is : "not known");
        }
    }
    if (fabs(log(bad->copy_gbps / good->copy_gbps)) > log(1.05)) {
        nt_buf_printf(out, "copies within the device: %.0f GB/s before, %.0f after\n",
                      good->copy_gbps, bad->copy_gbps);
    }
    if (fabs(log(bad->launch_us / good->launch_us)) > log(1.10)) {
        nt_buf_printf(out, "a kernel's launch: %.1f us before, %.1f after\n", good->launch_us,
                      bad->launch_us);
    }
    if (out->len == before) {
        nt_buf_puts(out, "nothing that is kept: machine, libraries and control are as they were\n");
    }
}
