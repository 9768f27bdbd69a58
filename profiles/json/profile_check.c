/* What a profile may say, on the way in and on the way out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiles/format/limits.h"
#include "profiles/json/profile_private.h"
#include "tuner/base/text.h"

static int bad(struct nt_err *err, const char *what, const char *why)
{
    return nt_fail(err, NT_E_INVAL, 0, "%s: %s", what, why);
}

static bool is_hex(const char *s, size_t len)
{
    return strlen(s) == len && s[strspn(s, "0123456789abcdef")] == '\0';
}

static bool is_name(const char *s)
{
    return s[0] != '\0' && strlen(s) <= NT_TABLE_MAX_NAME && !(s[0] >= '0' && s[0] <= '9') &&
           s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static const char *text(const char *s)
{
    return s != NULL ? s : "";
}

static int check_names(const char *what, const struct nt_assigns *list, struct nt_err *err)
{
    for (size_t i = 0; i < list->n; i++) {
        if (!is_name(text(list->v[i].name)) || list->v[i].value == NULL) {
            return nt_fail(err, NT_E_INVAL, 0, "%s: '%.80s' is not a variable's name", what,
                           text(list->v[i].name));
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(list->v[i].name, list->v[j].name) == 0) {
                return nt_fail(err, NT_E_INVAL, 0, "%s: %s twice", what, list->v[i].name);
            }
        }
    }
    return 0;
}

static int check_words(const char *what, const struct nt_texts *list, const char *const *words,
                       struct nt_err *err)
{
    for (size_t i = 0; i < list->n; i++) {
        int rc = nt_vocab_find(words, what, text(list->v[i]), err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int check_head(const struct nt_profile *p, struct nt_err *err)
{
    int rc;
    if (p->rig < 0 || p->rig >= NT_RIG_COUNT) {
        return bad(err, "rig", "unknown");
    }
    if (strlen(text(p->created)) != 20 || p->created[10] != 'T' || p->created[19] != 'Z') {
        return bad(err, "created", "must be a UTC time such as 2026-01-31T12:00:00Z");
    }
    if (p->ranks < 1 || p->ranks > NT_TABLE_MAX_RANKS || p->nodes < 1 || p->nodes > p->ranks) {
        return bad(err, "ranks", "at least 1, and at least one a node");
    }
    if (text(p->identity.id)[0] != '\0' && !is_hex(p->identity.id, 12)) {
        return bad(err, "identity.id", "must be 12 hex digits");
    }
    for (size_t i = 0; i < p->identity.groups.n; i++) {
        if (!is_hex(text(p->identity.groups.v[i].value), NT_HASH_HEX)) {
            return bad(err, "identity.groups", "a value is not a SHA-256 in hex");
        }
    }
    if (text(p->stack.nccl_sha256)[0] != '\0' && !is_hex(p->stack.nccl_sha256, NT_HASH_HEX)) {
        return bad(err, "stack.nccl_sha256", "not a SHA-256 in hex");
    }
    rc = check_words("mode", &p->modes, nt_mode_names, err);
    if (rc == 0) {
        rc = check_words("dtype", &p->dtypes, nt_dtype_names, err);
    }
    if (rc == 0) {
        rc = check_words("place", &p->places, nt_place_names, err);
    }
    if (rc == 0) {
        rc = check_names("site", &p->site, err);
    }
    if (rc == 0) {
        rc = check_names("baselines.pristine", &p->baselines.pristine, err);
    }
    return rc != 0 ? rc : check_names("baselines.as_found", &p->baselines.as_found, err);
}

static int check_class(const struct nt_profile_class *c, struct nt_err *err)
{
    if (c->coll < 0 || c->coll >= NT_COLL_COUNT || c->mode < 0 || c->mode >= NT_MODE_COUNT ||
        c->verdict < 0 || c->verdict >= NT_VD_COUNT) {
        return bad(err, "class", "collective, mode or verdict out of range");
    }
    if (c->bytes == 0 || c->bytes > INT64_MAX) {
        return bad(err, "class.bytes", "out of range");
    }
    if ((c->default_ns <= 0) || (c->tuned_ns <= 0) || (c->as_found_ns <= 0)) { /* NAN passes */
        return bad(err, "class", "times must be above 0");
    }
    if (c->p_adjusted < 0 || c->p_adjusted > 1) {
        return bad(err, "class.p_adjusted", "must be in 0 to 1");
    }
    if (c->interval[0] > c->interval[1]) {
        return bad(err, "class.interval", "low above high");
    }
    if ((c->verdict == NT_VD_TUNED || c->verdict == NT_VD_KEPT) &&
        (isnan(c->tuned_ns) || isnan(c->default_ns))) {
        return bad(err, "class", "tuned or kept without its times");
    }
    return 0;
}

/* Has a row a class inside it with that verdict? */
static bool has(const struct nt_profile_product *product, const struct nt_profile_row *r,
                int verdict)
{
    for (size_t i = 0; i < product->classes.n; i++) {
        const struct nt_profile_class *c = &product->classes.v[i];
        if (c->coll == r->coll && c->verdict == verdict && c->bytes >= r->min_bytes &&
            c->bytes <= r->max_bytes) {
            return true;
        }
    }
    return false;
}

bool nt_profile_row_keeps(const struct nt_profile_product *product, const struct nt_profile_row *r)
{
    return !has(product, r, NT_VD_TUNED) && has(product, r, NT_VD_KEPT);
}

static int check_row(const struct nt_profile_product *product, const struct nt_profile_row *r,
                     struct nt_err *err)
{
    if (r->coll < 0 || r->coll >= NT_TUNER_COLLS) {
        return bad(err, "row.coll", "NCCL does not ask a tuner about this collective");
    }
    if (r->min_bytes > r->max_bytes || r->max_bytes > INT64_MAX) {
        return bad(err, "row", "min_bytes above max_bytes");
    }
    if (r->algo < -1 || r->algo >= NT_ALGO_COUNT || r->proto < -1 || r->proto >= NT_PROTO_COUNT ||
        (r->algo < 0) != (r->proto < 0)) {
        return bad(err, "row", "algo and proto go together");
    }
    if (r->reg_buff < -1 || r->reg_buff > 1) {
        return bad(err, "row.buffers", "out of range");
    }
    if (r->executed_channels > 0 && r->channels > r->executed_channels) {
        return bad(err, "row.channels", "above the channels seen executed");
    }
    /* A row stands on evidence; one that keeps a call, on there being variables to keep it from. */
    if (!has(product, r, NT_VD_TUNED) && (product->vars.n == 0 || !has(product, r, NT_VD_KEPT))) {
        return nt_fail(err, NT_E_INVAL, 0, "row %s: no class in it was found faster",
                       nt_coll_names[r->coll]);
    }
    return 0;
}

static int check_product(const struct nt_profile *p, enum nt_product which, unsigned version,
                         struct nt_err *err)
{
    const struct nt_profile_product *product = &p->product[which];
    int rc = check_names("vars", &product->vars, err);

    for (size_t i = 0; rc == 0 && i < product->vars.n; i++) {
        rc = nt_tunable_for_profile(product->vars.v[i].name, product->vars.v[i].value, version,
                                    which == NT_TABLE, err);
    }
    for (size_t i = 0; rc == 0 && i < product->classes.n; i++) {
        rc = check_class(&product->classes.v[i], err);
    }
    if (rc == 0 && product->rows.n > (which == NT_TABLE ? NT_PROFILE_MAX_ROWS : 0)) {
        rc = bad(err, "rows", which == NT_TABLE ? "too many" : "only a table has rows");
    }
    for (size_t i = 0; rc == 0 && i < product->rows.n; i++) {
        rc = check_row(product, &product->rows.v[i], err);
    }
    return rc;
}

static bool backend_proved(const struct nt_profile *p, const struct nt_profile_backend *r)
{
    for (size_t i = 0; i < p->backends.classes.n; i++) {
        const struct nt_profile_backend_class *c = &p->backends.classes.v[i];
        if (c->coll == r->coll && c->mode == r->mode && c->verdict == NT_VD_TUNED &&
            c->bytes >= r->min_bytes && c->bytes <= r->max_bytes) {
            return true;
        }
    }
    return false;
}

static int check_backend(const struct nt_profile *p, size_t at, struct nt_err *err)
{
    const struct nt_profile_backend *r = &p->backends.rows.v[at];
    const struct nt_call call = {
        .algo = (int8_t)r->algo, .proto = (int8_t)r->proto, .backend = (uint8_t)r->backend};

    if (r->coll < 0 || r->coll >= NT_COLL_COUNT || r->mode < 0 || r->mode >= NT_MODE_COUNT ||
        r->backend <= NT_BE_NCCL || r->backend >= NT_BACKEND_COUNT || r->numerics < 0 ||
        r->numerics >= NT_NUM_COUNT || r->bits < 0 || r->bits >= NT_BITS_COUNT) {
        return bad(err, "row", "collective, mode, backend or its numbers out of range");
    }
    if (r->algo < -1 || r->algo >= NT_ALGO_ALL || r->proto < -1 || r->proto >= NT_PROTO_ALL ||
        !nt_call_fits(&call)) {
        return bad(err, "row", "not an algorithm and protocol of this backend");
    }
    if (r->min_bytes > r->max_bytes || r->max_bytes > INT64_MAX || r->serves.n == 0) {
        return bad(err, "row", "serves nothing");
    }
    if (p->backends.same_bits && r->bits != NT_BITS_SAME) {
        return bad(err, "row.bits", "not the same, which was asked for");
    }
    for (size_t i = 0; i < at; i++) {
        const struct nt_profile_backend *o = &p->backends.rows.v[i];
        if (o->coll == r->coll && o->mode == r->mode && o->min_bytes <= r->max_bytes &&
            r->min_bytes <= o->max_bytes) {
            return bad(err, "rows", "two of one collective and mode overlap");
        }
    }
    return backend_proved(p, r) ? 0 : bad(err, "row", "no class in it was found faster");
}

static int check_backends(const struct nt_profile *p, struct nt_err *err)
{
    int rc = 0;

    if (p->backends.rows.n > NT_PROFILE_MAX_ROWS) {
        return bad(err, "rows", "too many");
    }
    for (size_t i = 0; rc == 0 && i < p->backends.classes.n; i++) {
        const struct nt_profile_backend_class *c = &p->backends.classes.v[i];
        if (c->coll < 0 || c->coll >= NT_COLL_COUNT || c->mode < 0 || c->mode >= NT_MODE_COUNT ||
            c->verdict < 0 || c->verdict >= NT_VD_COUNT || c->verdict == NT_VD_KEPT ||
            c->bytes == 0) {
            rc = bad(err, "class", "collective, mode, verdict or bytes out of range");
        } else if (c->default_ns <= 0 || c->rival_ns <= 0 || c->ns <= 0) { /* NAN passes */
            rc = bad(err, "class", "times must be above 0");
        }
    }
    for (size_t i = 0; rc == 0 && i < p->backends.rows.n; i++) {
        rc = check_backend(p, i, err);
    }
    return rc;
}

static int check_delivery(const struct nt_profile *p, struct nt_err *err)
{
    char hash[NT_HASH_HEX + 1], file[NT_HASH_HEX + 16];
    struct nt_buf bytes;
    int rc = 0;

    nt_buf_init(&bytes, NT_PROFILE_MAX_BYTES);
    if (p->product[NT_STATIC].present) {
        rc = nt_profile_delivery(p, NT_STATIC, &bytes, hash, err);
    }
    if (rc == 0 && p->product[NT_TABLE].present) {
        nt_buf_clear(&bytes);
        rc = nt_profile_delivery(p, NT_TABLE, &bytes, hash, err);
        (void)snprintf(file, sizeof(file), "%s.nctable", hash);
        if (rc == 0 && text(p->delivery.hash)[0] != '\0' &&
            (strcmp(p->delivery.hash, hash) != 0 || strcmp(text(p->delivery.file), file) != 0)) {
            rc = bad(err, "delivery", "does not belong to these rows: the document was changed");
        }
    } else if (rc == 0 && text(p->delivery.hash)[0] != '\0') {
        rc = bad(err, "delivery", "without a table product");
    }
    nt_buf_done(&bytes);
    return rc;
}

int nt_profile_check(const struct nt_profile *p, struct nt_err *err)
{
    unsigned version = 0;
    json_t *doc;
    int rc;

    if (p->failed) {
        return nt_fail(err, NT_E_NOMEM, 0, "profile");
    }
    rc = check_head(p, err);
    if (rc == 0) {
        rc = nt_wrap(err, nt_nccl_version_parse(text(p->stack.nccl), &version, err), "stack.nccl");
    }
    if (rc == 0 && (version < NT_NCCL_OLDEST || version > NT_NCCL_NEWEST)) {
        rc = bad(err, "stack.nccl", "not a release that this program knows");
    }
    for (int i = 0; rc == 0 && i < NT_PRODUCT_COUNT; i++) {
        if (p->product[i].present) {
            rc = nt_wrap(err, check_product(p, (enum nt_product)i, version, err), "products.%s",
                         nt_product_names[i]);
        }
    }
    if (rc == 0 && p->backends.present) {
        rc = nt_wrap(err, check_backends(p, err), "backends");
    }
    if (rc == 0) {
        rc = check_delivery(p, err);
    }
    if (rc == 0) { /* every text can be written */
        doc = nt_profile_to_json(p, err);
        rc = doc == NULL ? -NT_E_INVAL : 0;
        json_decref(doc);
    }
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct nt_assign *)a)->name, ((const struct nt_assign *)b)->name);
}

static int by_range(const void *a, const void *b)
{
    const struct nt_profile_row *x = a, *y = b;
    if (x->coll != y->coll) {
        return x->coll < y->coll ? -1 : 1;
    }
    if (x->min_bytes != y->min_bytes) {
        return x->min_bytes < y->min_bytes ? -1 : 1;
    }
    return x->reg_buff - y->reg_buff;
}

void nt_profile_fill_reproduce(struct nt_profile *p)
{
    struct nt_buf out[2];

    nt_buf_init(&out[0], NT_PROFILE_MAX_BYTES);
    nt_buf_init(&out[1], NT_PROFILE_MAX_BYTES);
    for (int i = 0; i < NT_PRODUCT_COUNT; i++) {
        for (size_t c = 0; c < p->product[i].classes.n; c++) {
            struct nt_profile_class *class = &p->product[i].classes.v[c];
            nt_buf_clear(&out[0]);
            nt_buf_clear(&out[1]);
            nt_profile_reproduce(p, (enum nt_product)i, class, NULL, NULL, &out[0], &out[1]);
            class->reproduce.n = 0;
            *NT_PROFILE_ADD(p, &class->reproduce) = nt_profile_text(p, nt_buf_str(&out[0]));
            *NT_PROFILE_ADD(p, &class->reproduce) = nt_profile_text(p, nt_buf_str(&out[1]));
        }
    }
    nt_buf_done(&out[0]);
    nt_buf_done(&out[1]);
}

int nt_profile_finish(struct nt_profile *p, struct nt_err *err)
{
    char hash[NT_HASH_HEX + 1];
    struct nt_buf bytes;
    int rc = 0;

    nt_buf_init(&bytes, NT_PROFILE_MAX_BYTES);
    for (int i = 0; i < NT_PRODUCT_COUNT; i++) {
        struct nt_profile_product *product = &p->product[i];
        if (product->vars.n > 1) {
            qsort(product->vars.v, product->vars.n, sizeof(product->vars.v[0]), by_name);
        }
        if (product->rows.n > 1) {
            qsort(product->rows.v, product->rows.n, sizeof(product->rows.v[0]), by_range);
        }
    }
    p->delivery.hash = p->delivery.file = "";
    rc = nt_profile_check(p, err);
    if (rc == 0 && p->product[NT_TABLE].present) {
        rc = nt_profile_delivery(p, NT_TABLE, &bytes, hash, err);
        p->delivery.hash = nt_profile_text(p, hash);
        p->delivery.file = nt_profile_textf(p, "%s.nctable", hash);
    }
    nt_buf_done(&bytes);
    nt_profile_fill_reproduce(p);
    return rc != 0 ? rc : nt_profile_check(p, err);
}
