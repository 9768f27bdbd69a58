/* What a profile would make NCCL run for one call, and why. */
#include "profiles/json/profile_private.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"

#include <stdio.h>

/* Why this call runs so. */
static void reason(const struct nt_profile *p, enum nt_product product, int coll, uint64_t bytes,
                   const struct nt_profile_row *r, const struct nt_profile_class *c, char *out,
                   size_t size)
{
    const char *nccl = p->product[product].vars.n > 0 ? ": NCCL chooses, under the variables" : "";
    char lo[24], hi[24];
    if (r != NULL) {
        (void)snprintf(out, size, "the row for %s to %s bytes%s",
                       nt_format_bytes(r->min_bytes, lo, sizeof(lo)),
                       nt_format_bytes(r->max_bytes, hi, sizeof(hi)),
                       nt_profile_row_keeps(&p->product[product], r)
                           ? ", which keeps the call as it is without the variables: no gain"
                           : "");
    } else if (product == NT_TABLE && coll >= NT_TUNER_COLLS) {
        (void)snprintf(out, size, "NCCL asks no tuner about this collective; only variables apply");
    } else if (product == NT_STATIC) {
        (void)snprintf(out, size, "%s",
                       p->product[product].vars.n > 0
                           ? "NCCL chooses, under the product's variables"
                           : "the product sets nothing: NCCL chooses");
    } else if (c == NULL) {
        (void)snprintf(out, size, "no row, and this collective was not measured%s", nccl);
    } else {
        bool near = bytes / 2 <= c->bytes && c->bytes / 2 <= bytes;
        (void)snprintf(out, size, "no row covers it%s%s; nearest class %s: %s",
                       near ? "" : ", and no size near it was measured", nccl,
                       nt_format_bytes(c->bytes, lo, sizeof(lo)),
                       nt_class_verdict_names[c->verdict]);
    }
}

int nt_profile_choose(const struct nt_profile *p, enum nt_product product, int coll, uint64_t bytes,
                      int mode, struct nt_profile_choice *ret, struct nt_err *err)
{
    struct nt_call call = NT_CALL_DEFAULT;

    if (!p->product[product].present) {
        return nt_fail(err, NT_E_INVAL, 0, "no %s product", nt_product_names[product]);
    }
    *ret = (struct nt_profile_choice){.product = product, .coll = coll, .bytes = bytes};
    if (product == NT_TABLE) {
        ret->row = nt_profile_decide(p, coll, bytes);
    }
    ret->evidence = nt_profile_evidence(p, product, coll, bytes, mode);
    if (ret->row != NULL) {
        call = nt_profile_row_call(ret->row);
    }
    (void)nt_call_text(&call, ret->setting, sizeof(ret->setting));
    reason(p, product, coll, bytes, ret->row, ret->evidence, ret->why, sizeof(ret->why));
    return 0;
}

/* Who moves the bytes, by mode, where that is not NCCL as it is. */
static void add_backends(const struct nt_profile *p, const struct nt_profile_choice *d, json_t *o)
{
    json_t *modes = json_object();

    for (int m = 0; m < NT_MODE_COUNT; m++) {
        const struct nt_profile_backend *r = nt_profile_backend(p, d->coll, d->bytes, m);
        json_t *serves = json_array(), *row;
        for (size_t i = 0; r != NULL && i < r->serves.n; i++) {
            (void)json_array_append_new(serves, json_string(r->serves.v[i]));
        }
        row = r != NULL ? json_pack("{s:s, s:s, s:s, s:O}", "backend", nt_backend_names[r->backend],
                                    "numerics", nt_numerics_names[r->numerics], "bits",
                                    nt_bits_names[r->bits], "serves", serves)
                        : NULL;
        if (row != NULL && r->algo >= 0) {
            (void)json_object_set_new(row, "algo", json_string(nt_algo_names[r->algo]));
            (void)json_object_set_new(row, "proto", json_string(nt_proto_names[r->proto]));
        }
        if (row != NULL) {
            (void)json_object_set_new(modes, nt_mode_names[m], row);
        }
        json_decref(serves);
    }
    if (o != NULL && json_object_size(modes) > 0) {
        (void)json_object_set(o, "backends", modes);
    }
    json_decref(modes);
}

int nt_profile_choice_json(const struct nt_profile *p, const struct nt_profile_choice *d,
                           bool pretty, struct nt_buf *out, struct nt_err *err)
{
    const struct nt_profile_class *c = d->evidence;
    json_t *vars = json_object();
    json_t *o;

    for (size_t i = 0; i < p->product[d->product].vars.n; i++) {
        (void)json_object_set_new(vars, p->product[d->product].vars.v[i].name,
                                  json_string(p->product[d->product].vars.v[i].value));
    }
    o = json_pack("{s:s, s:I, s:s, s:s, s:s, s:o}", "collective", nt_coll_names[d->coll], "bytes",
                  (json_int_t)d->bytes, "product", nt_product_names[d->product], "setting",
                  d->setting, "why", d->why, "vars", vars);
    if (o != NULL && c != NULL) {
        json_t *evidence = nt_profile_class_json(c, err);
        if (evidence == NULL) {
            json_decref(o);
            return nt_wrap(err, -NT_E_NOMEM, "decision");
        }
        (void)json_object_set_new(o, "evidence", evidence);
    }
    add_backends(p, d, o);
    if (o == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "decision");
    }
    nt_json_dump(o, pretty, out);
    json_decref(o);
    return 0;
}
