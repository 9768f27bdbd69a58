#include "profiles/json/profile.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiles/json/profile_private.h"

const char *const nt_product_names[NT_PRODUCT_COUNT + 1] = {
    [NT_STATIC] = "static", [NT_TABLE] = "table"};
const char *const nt_class_verdict_names[NT_VD_COUNT + 1] = {[NT_VD_TUNED] = "tuned",
                                                             [NT_VD_KEPT] = "kept",
                                                             [NT_VD_DEFAULT] = "default",
                                                             [NT_VD_UNDECIDED] = "undecided",
                                                             [NT_VD_NOISY] = "noisy",
                                                             [NT_VD_GUARD] = "guard",
                                                             [NT_VD_NOT_CHECKED] = "not_checked"};

/* Everything that a profile owns hangs in one list: texts and grown arrays, freed together. */
struct block {
    struct block *next;
    max_align_t data[];
};
enum { SCRATCH = 512 };

struct nt_profile *nt_profile_new(void)
{
    struct nt_profile *p = calloc(1, sizeof(*p));
    if (p != NULL) {
        p->rig = NT_RIG_NCCL;
        p->baselines.same = true;
        p->memory.default_bytes = p->memory.static_bytes = p->memory.table_bytes = NAN;
        p->first_call.default_ns = p->first_call.static_ns = p->first_call.table_ns = NAN;
    }
    return p;
}

void nt_profile_free(struct nt_profile *p)
{
    struct block *next;
    if (p == NULL) {
        return;
    }
    for (struct block *b = p->arena; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    free(p);
}

static void *own(struct nt_profile *p, size_t size)
{
    struct block *b = calloc(1, sizeof(*b) + size);
    if (b == NULL) {
        p->failed = true;
        return NULL;
    }
    b->next = p->arena;
    p->arena = b;
    return b->data;
}

const char *nt_profile_text(struct nt_profile *p, const char *text)
{
    size_t len = text != NULL ? strlen(text) : 0;
    char *copy = len > 0 ? own(p, len + 1) : NULL;
    if (copy == NULL) {
        return "";
    }
    memcpy(copy, text, len + 1);
    return copy;
}

const char *nt_profile_textf(struct nt_profile *p, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return nt_profile_text(p, text);
}

/* Arrays double when n reaches a power of two; the old one stays with the profile until its end. */
void *nt_profile_grow(struct nt_profile *p, void *v, size_t *n, size_t size)
{
    static max_align_t scratch[SCRATCH / sizeof(max_align_t)];
    void *array;

    nt_assert(size <= sizeof(scratch));
    memcpy(&array, v, sizeof(array));
    if (*n == 0 || (*n & (*n - 1)) == 0) {
        void *bigger = own(p, (*n == 0 ? 1 : *n * 2) * size);
        if (bigger == NULL) {
            memset(scratch, 0, sizeof(scratch));
            return scratch;
        }
        if (*n > 0) {
            memcpy(bigger, array, *n * size);
        }
        array = bigger;
        memcpy(v, &array, sizeof(array));
    }
    return (char *)array + (*n)++ * size;
}

void nt_profile_assign(struct nt_profile *p, struct nt_assigns *list, const char *name,
                       const char *value)
{
    struct nt_assign *a = NT_PROFILE_ADD(p, list);
    a->name = nt_profile_text(p, name);
    a->value = nt_profile_text(p, value);
}

struct nt_profile_class *nt_profile_add_class(struct nt_profile *p, enum nt_product product)
{
    struct nt_profile_class *c = NT_PROFILE_ADD(p, &p->product[product].classes);
    c->default_ns = c->tuned_ns = c->as_found_ns = c->gain = NAN;
    c->interval[0] = c->interval[1] = NAN;
    c->p_adjusted = c->guard_upper = c->p95_ratio = c->detectable = NAN;
    c->verdict = NT_VD_NOT_CHECKED;
    c->setting = "default";
    return c;
}

int nt_profile_parse(const char *text, size_t len, const char *what, struct nt_profile **ret,
                     struct nt_err *err)
{
    json_t *doc = NULL;
    struct nt_profile *p = NULL;
    int rc = nt_json_parse(text, len, what, &doc, err);

    if (rc == 0) {
        p = nt_profile_new();
        rc = p == NULL ? nt_fail(err, NT_E_NOMEM, 0, "profile") : nt_profile_from_json(p, doc, err);
    }
    if (rc == 0) {
        rc = nt_profile_check(p, err);
    }
    if (rc == 0) {
        nt_profile_fill_reproduce(p);
        *ret = p;
        p = NULL;
    } else if (doc != NULL) {
        rc = nt_wrap(err, rc, "%s", what);
    }
    nt_profile_free(p);
    json_decref(doc);
    return rc;
}

int nt_profile_load(const char *path, struct nt_profile **ret, struct nt_err *err)
{
    struct nt_buf b;
    int rc;

    nt_buf_init(&b, NT_PROFILE_MAX_BYTES);
    rc = nt_buf_read_file(&b, path, err);
    if (rc == 0) {
        rc = nt_profile_parse(nt_buf_str(&b), b.len, path, ret, err);
    }
    nt_buf_done(&b);
    return rc;
}

static int add_to_buf(const char *data, size_t len, void *out)
{
    nt_buf_add(out, data, len);
    return 0;
}

int nt_profile_dump(const struct nt_profile *p, struct nt_buf *out, struct nt_err *err)
{
    json_t *doc;
    int rc = nt_profile_check(p, err);

    if (rc != 0) {
        return rc;
    }
    doc = nt_profile_to_json(p, err);
    if (doc == NULL) {
        return -NT_E_INVAL;
    }
    /* six digits are more than a measurement has, and people read and diff the document */
    if (json_dump_callback(doc, add_to_buf, out,
                           JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(6)) != 0) {
        out->failed = true;
    }
    nt_buf_puts(out, "\n");
    json_decref(doc);
    return out->failed ? nt_fail(err, NT_E_NOMEM, 0, "profile") : 0;
}

int nt_profile_save(const struct nt_profile *p, const char *path, struct nt_err *err)
{
    struct nt_buf b;
    int rc;

    nt_buf_init(&b, NT_PROFILE_MAX_BYTES);
    rc = nt_profile_dump(p, &b, err);
    if (rc == 0) {
        rc = nt_write_file(path, b.data, b.len, 0644, err);
    }
    nt_buf_done(&b);
    return rc;
}

struct nt_call nt_profile_row_call(const struct nt_profile_row *r)
{
    return (struct nt_call){
        .algo = (int8_t)r->algo,
        .proto = (int8_t)r->proto,
        .channels = (uint16_t)(r->channels > UINT16_MAX ? UINT16_MAX : r->channels),
        .chunk_bytes = (uint32_t)(r->chunk_bytes > UINT32_MAX ? UINT32_MAX : r->chunk_bytes)};
}

const struct nt_profile_row *nt_profile_decide(const struct nt_profile *p, int coll, uint64_t bytes)
{
    const struct nt_profile_rows *rows = &p->product[NT_TABLE].rows;
    for (size_t i = 0; i < rows->n; i++) {
        const struct nt_profile_row *r = &rows->v[i];
        if (r->coll == coll && r->reg_buff <= 0 && bytes >= r->min_bytes && bytes <= r->max_bytes) {
            return r;
        }
    }
    return NULL;
}

const struct nt_profile_backend *nt_profile_backend(const struct nt_profile *p, int coll,
                                                    uint64_t bytes, int mode)
{
    for (size_t i = 0; i < p->backends.rows.n; i++) {
        const struct nt_profile_backend *r = &p->backends.rows.v[i];
        if (r->coll == coll && r->mode == mode && bytes >= r->min_bytes && bytes <= r->max_bytes) {
            return r;
        }
    }
    return NULL;
}

static double apart(uint64_t a, uint64_t b)
{
    return fabs(log((double)a + 1) - log((double)b + 1));
}

const struct nt_profile_backend_class *
nt_profile_backend_evidence(const struct nt_profile *p, int coll, uint64_t bytes, int mode)
{
    const struct nt_profile_backend_class *best = NULL;
    double least = INFINITY;

    for (size_t i = 0; i < p->backends.classes.n; i++) {
        const struct nt_profile_backend_class *c = &p->backends.classes.v[i];
        double far = apart(c->bytes, bytes);
        if (c->coll == coll && c->mode == mode && far < least) {
            best = c;
            least = far;
        }
    }
    return best;
}

const struct nt_profile_class *nt_profile_evidence(const struct nt_profile *p,
                                                   enum nt_product product, int coll,
                                                   uint64_t bytes, int mode)
{
    const struct nt_profile_classes *classes = &p->product[product].classes;
    const struct nt_profile_class *best = NULL;
    double least = INFINITY;

    for (size_t i = 0; i < classes->n; i++) {
        const struct nt_profile_class *c = &classes->v[i];
        double far = apart(c->bytes, bytes);
        if (c->coll == coll && (mode < 0 || c->mode == mode) && far < least) {
            best = c;
            least = far;
        }
    }
    return best;
}
