#include "tuner/cli/curves.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/json/profile.h"
#include "tuner/base/foreign.h"
#include "tuner/store/store.h"

enum { CURVES_MAX = 512, POINTS_MAX = 2048 };

struct nt_curves {
    struct nt_wl_curve list[CURVES_MAX];
    struct nt_point *points[CURVES_MAX]; /* of list[i], POINTS_MAX of them */
    char *arms[CURVES_MAX];
    size_t n;
};

int nt_curves_new(struct nt_curves **ret, struct nt_err *err)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret != NULL ? 0 : nt_fail(err, NT_E_NOMEM, 0, "curves");
}

void nt_curves_free(struct nt_curves *c)
{
    for (size_t i = 0; c != NULL && i < c->n; i++) {
        free(c->points[i]);
        free(c->arms[i]);
    }
    free(c);
}

static int add(struct nt_curves *c, const char *arm, int coll, int mode, uint32_t ranks,
               const struct nt_point *p, struct nt_err *err)
{
    size_t i = 0;
    if (coll < 0 || coll >= NT_COLL_COUNT || !(p->us > 0) || !isfinite(p->us)) {
        return 0; /* nothing that a workload could ask for */
    }
    while (i < c->n && (strcmp(c->arms[i], arm) != 0 || c->list[i].coll != coll ||
                        c->list[i].mode != mode || c->list[i].ranks != ranks)) {
        i++;
    }
    if (i == CURVES_MAX) {
        return nt_fail(err, NT_E_INVAL, 0, "more than %d curves", CURVES_MAX);
    }
    if (i == c->n) {
        c->points[i] = malloc(POINTS_MAX * sizeof(struct nt_point));
        c->arms[i] = strdup(arm);
        if (c->points[i] == NULL || c->arms[i] == NULL) {
            free(c->points[i]);
            free(c->arms[i]);
            return nt_fail(err, NT_E_NOMEM, 0, "curves");
        }
        c->list[i] = (struct nt_wl_curve){.arm = c->arms[i],
                                          .coll = (uint8_t)coll,
                                          .mode = (int8_t)mode,
                                          .ranks = ranks,
                                          .points = c->points[i]};
        c->n++;
    }
    for (size_t k = 0; k < c->list[i].n;
         k++) { /* one point a size: a second one wins when faster */
        if (c->points[i][k].bytes == p->bytes) {
            if (p->us < c->points[i][k].us) {
                c->points[i][k] = *p;
            }
            return 0;
        }
    }
    if (c->list[i].n < POINTS_MAX) {
        c->points[i][c->list[i].n++] = *p;
    }
    return 0;
}

static double factor(int coll, uint32_t ranks) /* bus bandwidth over algorithm bandwidth */
{
    double n = ranks;
    return coll == NT_ALL_REDUCE ? 2 * (n - 1) / n
           : coll == NT_ALL_GATHER || coll == NT_REDUCE_SCATTER || coll == NT_ALLTOALL ? (n - 1) / n
                                                                                       : 1;
}

static int add_table(struct nt_curves *c, struct nt_table *t, struct nt_err *err)
{
    struct nt_verdicts v = {0};
    int rc = nt_table_decide(t, &v, err);
    for (size_t i = 0; rc == 0 && i < v.n; i++) {
        const struct nt_verdict_row *r = &v.rows[i];
        /* A table that names no collective is of the one that everybody measures. */
        int coll = r->coll >= 0 ? r->coll : NT_ALL_REDUCE;
        for (size_t k = 0; rc == 0 && k < r->narms; k++) {
            double us = r->arms[k].value, scale = 1;
            struct nt_point p = {
                .bytes = r->bytes, .sd = r->arms[k].sd, .repeats = r->arms[k].repeats};
            if (t->metric != NT_TIME_US) {
                if (r->ranks < 2) {
                    continue; /* a bus bandwidth without ranks is no time */
                }
                scale = t->metric == NT_BUSBW ? factor(coll, r->ranks) : 1;
                us = (double)r->bytes * scale / (us * 1e3);
                p.sd = -1;
            }
            p.us = us;
            rc = add(c, r->arms[k].name, coll, r->mode, r->ranks, &p, err);
        }
    }
    nt_verdicts_done(&v);
    return rc;
}

static bool is_log(const char *text, size_t len)
{
    static const char *const marks[] = {"out-of-place", "busbw", "Out of bounds values",
                                        "\"out_of_place\""};
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (memmem(text, len, marks[i], strlen(marks[i])) != NULL &&
            memmem(text, len, "busbw_gbps", 10) == NULL) {
            return true;
        }
    }
    return false;
}

static int add_log(struct nt_curves *c, const char *path, const struct nt_buf *text,
                   struct nt_err *err)
{
    const struct nt_compare_opts o = {.place = NT_OUT_OF_PLACE, .across = true};
    struct nt_imp_file *f = NULL;
    struct nt_table *t = NULL;
    const char *label = "nccl"; /* what a log shows is what the machine runs today */
    int rc = nt_imp_read(path, nt_buf_str(text), text->len, &f, err);
    rc = rc == 0 ? nt_table_from_files(&f, &label, 1, &o, &t, err) : rc;
    rc = rc == 0 ? add_table(c, t, err) : rc;
    nt_table_free(t);
    nt_imp_free(f);
    return rc;
}

int nt_curves_add_file(struct nt_curves *c, const char *path, struct nt_err *err)
{
    struct nt_buf text;
    struct nt_table *t = NULL;
    int rc;
    nt_buf_init(&text, NT_IMP_MAX_BYTES);
    rc = nt_foreign_read(&text, path, err);
    if (rc == 0 && is_log(nt_buf_str(&text), text.len)) {
        rc = add_log(c, path, &text, err);
    } else if (rc == 0) {
        rc = nt_table_parse(path, nt_buf_str(&text), text.len, &t, err);
        rc = rc == 0 ? add_table(c, t, err) : rc;
    }
    nt_table_free(t);
    nt_buf_done(&text);
    return rc;
}

int nt_curves_add_profile(struct nt_curves *c, const char *path, struct nt_err *err)
{
    struct nt_profile *p = NULL;
    int rc = nt_profile_load(path, &p, err);
    for (int product = 0; rc == 0 && product < NT_PRODUCT_COUNT; product++) {
        const struct nt_profile_classes *classes = &p->product[product].classes;
        for (size_t i = 0; rc == 0 && i < classes->n; i++) {
            const struct nt_profile_class *k = &classes->v[i];
            bool served = k->verdict == NT_VD_TUNED || k->verdict == NT_VD_KEPT;
            struct nt_point now = {
                .bytes = k->bytes, .us = k->default_ns / 1e3, .sd = -1, .repeats = 1};
            struct nt_point tuned = {.bytes = k->bytes,
                                     .sd = -1,
                                     .repeats = 1,
                                     .us = (served ? k->tuned_ns : k->default_ns) / 1e3};
            rc = add(c, "default", k->coll, k->mode, p->ranks, &now, err);
            rc = rc == 0 ? add(c, "profile", k->coll, k->mode, p->ranks, &tuned, err) : rc;
        }
    }
    if (rc == 0 && p->backends.rows.n > 0) {
        (void)fprintf(stderr, "nccltune: note: the profile's rows of backends other than NCCL are "
                              "not counted here\n");
    }
    nt_profile_free(p);
    return rc;
}

struct rows {
    struct nt_curves *c;
    const char *source;
    char found[96];
    bool several;
};

/* source, collective, bytes, mode, ranks, contender, n, median_ns, sd_ns */
static int on_row(void *data, unsigned ncols, const char *const *names, const struct nt_value *v,
                  struct nt_err *err)
{
    struct rows *r = data;
    struct nt_point p = {.sd = -1};
    int mode = -1;
    (void)names;
    if (v == NULL || ncols != 9 || v[7].type == NT_VALUE_NULL) {
        return 0;
    }
    if (r->source == NULL && r->found[0] != '\0' && strcmp(r->found, v[0].text) != 0) {
        r->several = true;
        return 0;
    }
    (void)snprintf(r->found, sizeof(r->found), "%s", v[0].text);
    for (int m = 0; nt_mode_names[m] != NULL; m++) {
        mode = strcmp(v[3].text, nt_mode_names[m]) == 0 ? m : mode;
    }
    p.bytes = (uint64_t)v[2].i;
    p.us = (v[7].type == NT_VALUE_INT ? (double)v[7].i : v[7].r) / 1e3;
    p.repeats = (uint32_t)v[6].i;
    p.sd = v[8].type == NT_VALUE_REAL ? v[8].r / 1e3 : -1;
    return add(r->c, v[5].text, nt_coll_of(v[1].text), mode, (uint32_t)v[4].i, &p, err);
}

int nt_curves_add_store(struct nt_curves *c, const char *db, const char *source, struct nt_err *err)
{
    static const char sql[] =
        "SELECT source, collective, bytes, mode, ranks, contender, n, median_ns, sd_ns FROM "
        "contenders "
        "WHERE place IN ('out', '') AND (?1 = '' OR source = ?1) ORDER BY source, bytes";
    struct nt_value arg = {.type = NT_VALUE_TEXT, .text = source != NULL ? source : ""};
    struct rows rows = {.c = c, .source = source};
    const struct nt_query_limits limits = {.time_ns = UINT64_C(60000000000), .rows = 200000};
    struct nt_store *store = NULL;
    char path[PATH_MAX];
    int rc = nt_store_default_path(db, false, path, sizeof(path), err);
    arg.len = strlen(arg.text);
    rc = rc == 0 ? nt_store_open(path, NT_STORE_READ, &store, err) : rc;
    rc = rc == 0 ? nt_store_query(store, sql, &arg, 1, &limits, on_row, &rows, NULL, err) : rc;
    nt_store_close(store);
    if (rc == 0 && rows.several) {
        rc =
            nt_fail(err, NT_E_INVAL, 0,
                    "the database holds several sources; name one with --source (see `query --view "
                    "imports`, `jobs`), as in --source '%s'",
                    rows.found);
    } else if (rc == 0 && rows.found[0] == '\0') {
        rc = nt_fail(err, NT_E_MISSING, 0, "%s holds no measurement%s%s", path,
                     source != NULL ? " of " : "", source != NULL ? source : "");
    }
    return rc;
}

static int by_bytes(const void *a, const void *b)
{
    const struct nt_point *x = a, *y = b;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

size_t nt_curves_list(struct nt_curves *c, const struct nt_wl_curve **ret)
{
    for (size_t i = 0; i < c->n; i++) {
        qsort(c->points[i], c->list[i].n, sizeof(struct nt_point), by_bytes);
    }
    *ret = c->list;
    return c->n;
}
