#include "tuner/cli/commands.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "profiles/json/profile.h"
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
    NT_OPT_SOME(
        NT_O_BYTES, decide_args, bytes, "bytes", 'b', "SIZE",
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
                   : printf(", %s in the search\n",
                            nt_format_ns(c->runners_up.v[i].ns, was, sizeof(was))));
    }
    for (size_t i = 0; i < c->rejected.n; i++) {
        (void)printf("  rejected  %s: %s\n", c->rejected.v[i].setting, c->rejected.v[i].why);
    }
}

static int print_json(const struct nt_profile *p, const struct nt_profile_choice *d,
                      struct nt_err *err)
{
    struct nt_buf out;
    int rc;
    nt_buf_init(&out, 1 << 20);
    rc = nt_profile_choice_json(p, d, true, &out, err);
    if (rc == 0) {
        (void)printf("%s\n", nt_buf_str(&out));
    }
    nt_buf_done(&out);
    return rc;
}

/* Who moves the bytes, by mode; nothing where it is NCCL as it is. */
static void print_backends(const struct nt_profile *p, int coll, uint64_t bytes, int mode)
{
    for (int m = 0; m < NT_MODE_COUNT; m++) {
        const struct nt_profile_backend *r =
            mode < 0 || mode == m ? nt_profile_backend(p, coll, bytes, m) : NULL;
        struct nt_call call;
        char text[64];
        if (r == NULL) {
            continue;
        }
        call = (struct nt_call){.algo = (int8_t)r->algo,
                                .proto = (int8_t)r->proto,
                                .channels = (uint16_t)r->blocks,
                                .backend = (uint8_t)r->backend};
        (void)printf("  backend   %s in %s mode, bits %s, for",
                     nt_call_text(&call, text, sizeof(text)), nt_mode_names[m],
                     nt_bits_names[r->bits]);
        for (size_t i = 0; i < r->serves.n; i++) {
            (void)printf(" %s", r->serves.v[i]);
        }
        (void)printf("; where the deployment cannot select it, NCCL as above\n");
    }
}

/* What was measured of backends next to that size, by mode, the rows' and what was turned down. */
static void print_backend_evidence(const struct nt_profile *p, int coll, uint64_t bytes, int mode)
{
    for (int m = 0; m < NT_MODE_COUNT; m++) {
        const struct nt_profile_backend_class *near =
            mode < 0 || mode == m ? nt_profile_backend_evidence(p, coll, bytes, m) : NULL;
        char at[24];
        if (near == NULL) {
            continue;
        }
        (void)printf("  backends  %s %s %s: %s %s", nt_coll_names[coll],
                     nt_format_bytes(near->bytes, at, sizeof(at)), nt_mode_names[m], near->setting,
                     nt_class_verdict_names[near->verdict]);
        if (!isnan(near->gain)) {
            (void)printf(", gain %.1f %%", 100 * near->gain);
        }
        (void)printf("%s%s\n", near->why != NULL && near->why[0] != '\0' ? "; " : "",
                     near->why != NULL ? near->why : "");
    }
}

static int run_decide(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct decide_args *a = opts;
    enum nt_product product = a->variables_only ? NT_STATIC : NT_TABLE;
    struct nt_profile_choice d;
    struct nt_profile *p = NULL;
    char at[24];
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
    rc = rc == 0 ? nt_wrap(err, nt_profile_choose(p, product, coll, a->bytes, mode, &d, err), "%s",
                           args[0])
                 : rc;
    if (rc == 0 && a->format != NULL && a->format[0] == 'j') {
        rc = print_json(p, &d, err);
    } else if (rc == 0) {
        (void)printf("%s %s: %s\n  why       %s\n", nt_coll_names[coll],
                     nt_format_bytes(a->bytes, at, sizeof(at)), d.setting, d.why);
        for (size_t i = 0; i < p->product[product].vars.n; i++) {
            (void)printf("  variable  %s=%s\n", p->product[product].vars.v[i].name,
                         p->product[product].vars.v[i].value);
        }
        print_backends(p, coll, a->bytes, mode);
        if (d.evidence == NULL && mode >= 0) {
            (void)printf("  evidence  none of mode %s\n", nt_mode_names[mode]);
        }
        for (int m = 0; m < NT_MODE_COUNT; m++) { /* the nearest size of each mode */
            const struct nt_profile_class *c =
                mode < 0 || mode == m ? nt_profile_evidence(p, product, coll, a->bytes, m) : NULL;
            if (c != NULL) {
                print_class(c, d.setting);
            }
        }
        print_backend_evidence(p, coll, a->bytes, mode);
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
