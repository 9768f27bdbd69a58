#include "tuner/cli/commands.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "profiles/json/profile.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"

struct decide_args {
    const char *collective, *mode, *format;
    uint64_t bytes;
    bool variables_only;
};

static const char *const formats[] = {"table", "json", NULL};
static const struct nt_opt decide_opts[] = {
    {.name = "collective",
     .letter = 'c',
     .type = NT_O_STR,
     .offset = offsetof(struct decide_args, collective),
     .arg = "NAME",
     .help = "the collective",
     .choices = nt_coll_names},
    NT_OPT(NT_O_BYTES, decide_args, bytes, "bytes", 'b', "SIZE",
           "48K, 1M or plain bytes, as NCCL counts them: element size x the larger of send and "
           "receive count"),
    {.name = "mode",
     .type = NT_O_STR,
     .offset = offsetof(struct decide_args, mode),
     .arg = "MODE",
     .help = "evidence of this mode only (default: any)",
     .choices = nt_mode_names},
    NT_OPT(NT_O_FLAG, decide_args, variables_only, "static", 0, NULL,
           "the variables-only product instead of the table"),
    {.name = "format",
     .type = NT_O_STR,
     .offset = offsetof(struct decide_args, format),
     .arg = "FORM",
     .help = "table or json (default table)",
     .choices = formats},
    {0}};

/* Why this call runs so. */
static void reason(const struct nt_profile *p, enum nt_product product, int coll,
                   const struct nt_profile_row *r, const struct nt_profile_class *c, char *out,
                   size_t size)
{
    char lo[24], hi[24];
    if (r != NULL) {
        (void)snprintf(out, size, "the row for %s to %s bytes",
                       nt_format_bytes(r->min_bytes, lo, sizeof(lo)),
                       nt_format_bytes(r->max_bytes, hi, sizeof(hi)));
    } else if (product == NT_TABLE && coll >= NT_TUNER_COLLS) {
        (void)snprintf(out, size, "NCCL asks no tuner about this collective; only variables apply");
    } else if (product == NT_STATIC) {
        (void)snprintf(out, size, "%s",
                       p->product[product].vars.n > 0
                           ? "NCCL chooses, under the product's variables"
                           : "the product sets nothing: NCCL chooses");
    } else if (c == NULL) {
        (void)snprintf(out, size, "no row, and this collective was not measured");
    } else {
        (void)snprintf(out, size, "no row covers it; nearest class %s: %s",
                       nt_format_bytes(c->bytes, lo, sizeof(lo)),
                       nt_class_verdict_names[c->verdict]);
    }
}

static void print_class(const struct nt_profile_class *c, const char *chosen)
{
    char at[24], was[24], now[24];
    (void)printf("  evidence  %s %s %s: %s", nt_coll_names[c->coll],
                 nt_format_bytes(c->bytes, at, sizeof(at)), nt_mode_names[c->mode],
                 nt_class_verdict_names[c->verdict]);
    if (!isnan(c->default_ns) && !isnan(c->tuned_ns)) {
        (void)printf(", default %s, tuned %s", nt_format_ns(c->default_ns, was, sizeof(was)),
                     nt_format_ns(c->tuned_ns, now, sizeof(now)));
    }
    if (!isnan(c->gain) && !isnan(c->interval[0])) {
        (void)printf(", gain %.1f %% (%.1f to %.1f), %u pairs", 100 * c->gain, 100 * c->interval[0],
                     100 * c->interval[1], c->pairs);
    }
    (void)printf("\n");
    for (size_t i = 0; i < c->runners_up.n; i++) {
        if (strcmp(c->runners_up.v[i].setting, chosen) == 0) {
            continue; /* where a row was turned down, the default that stays is among them */
        }
        (void)printf("  runner-up %s", c->runners_up.v[i].setting);
        (void)(isnan(c->runners_up.v[i].ns)
                   ? printf("\n")
                   : printf(" %s\n", nt_format_ns(c->runners_up.v[i].ns, was, sizeof(was))));
    }
    for (size_t i = 0; i < c->rejected.n; i++) {
        (void)printf("  rejected  %s: %s\n", c->rejected.v[i].setting, c->rejected.v[i].why);
    }
}

static int print_json(const struct nt_profile *p, const struct decide_args *a, int coll,
                      enum nt_product product, const char *setting, const char *why,
                      const struct nt_profile_class *c)
{
    struct nt_buf out;
    json_t *vars = json_object();
    json_t *o;
    for (size_t i = 0; i < p->product[product].vars.n; i++) {
        json_object_set_new(vars, p->product[product].vars.v[i].name,
                            json_string(p->product[product].vars.v[i].value));
    }
    o = json_pack("{s:s, s:I, s:s, s:s, s:s, s:o}", "collective", nt_coll_names[coll], "bytes",
                  (json_int_t)a->bytes, "product", nt_product_names[product], "setting", setting,
                  "why", why, "vars", vars);
    if (o != NULL && c != NULL) {
        json_object_set_new(o, "evidence",
                            json_pack("{s:I, s:s, s:s}", "bytes", (json_int_t)c->bytes, "mode",
                                      nt_mode_names[c->mode], "verdict",
                                      nt_class_verdict_names[c->verdict]));
    }
    nt_buf_init(&out, 1 << 20);
    if (o != NULL) {
        nt_json_dump(o, true, &out);
        (void)printf("%s\n", nt_buf_str(&out));
    }
    json_decref(o);
    nt_buf_done(&out);
    return 0;
}

static int run_decide(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct decide_args *a = opts;
    enum nt_product product = a->variables_only ? NT_STATIC : NT_TABLE;
    const struct nt_profile_row *r = NULL;
    const struct nt_profile_class *c;
    struct nt_call call = NT_CALL_DEFAULT;
    struct nt_profile *p = NULL;
    char setting[64], why[160], at[24];
    int coll, mode = -1, rc;
    (void)nargs;

    if (a->collective == NULL || a->bytes == 0) {
        return nt_fail(err, NT_E_INVAL, 0, "--collective and --bytes say which call");
    }
    coll = nt_vocab_find(nt_coll_names, "collective", a->collective, err);
    if (a->mode != NULL) {
        mode = nt_vocab_find(nt_mode_names, "mode", a->mode, err);
    }
    rc = nt_profile_load(args[0], &p, err);
    if (rc == 0 && !p->product[product].present) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: no %s product", args[0], nt_product_names[product]);
    }
    if (rc != 0) {
        nt_profile_free(p);
        return rc;
    }
    if (product == NT_TABLE) {
        r = nt_profile_decide(p, coll, a->bytes);
    }
    c = nt_profile_evidence(p, product, coll, a->bytes, mode);
    if (r != NULL) {
        call = (struct nt_call){
            .algo = (int8_t)r->algo, .proto = (int8_t)r->proto, .channels = (uint16_t)r->channels};
    }
    (void)nt_call_text(&call, setting, sizeof(setting));
    reason(p, product, coll, r, c, why, sizeof(why));
    if (a->format != NULL && a->format[0] == 'j') {
        rc = print_json(p, a, coll, product, setting, why, c);
    } else {
        (void)printf("%s %s: %s\n  why       %s\n", nt_coll_names[coll],
                     nt_format_bytes(a->bytes, at, sizeof(at)), setting, why);
        for (size_t i = 0; i < p->product[product].vars.n; i++) {
            (void)printf("  variable  %s=%s\n", p->product[product].vars.v[i].name,
                         p->product[product].vars.v[i].value);
        }
        if (c == NULL && mode >= 0) {
            (void)printf("  evidence  none of mode %s\n", nt_mode_names[mode]);
        }
        if (c != NULL) {
            print_class(c, setting);
        }
    }
    nt_profile_free(p);
    return rc;
}

const struct nt_command nt_cmd_decide = {
    .name = "decide",
    .summary = "what a profile would make NCCL run for one call, and why",
    .args = "PROFILE",
    .min_args = 1,
    .max_args = 1,
    .opts = decide_opts,
    .size = sizeof(struct decide_args),
    .run = run_decide};
