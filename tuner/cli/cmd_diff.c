/* diff: what changed between two runs, likeliest cause first. */
#include "tuner/cli/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/deliver/manifest.h"
#include "tuner/deliver/rundiff.h"

struct diff_args {
    const char *format;
    bool all;
};
static const char *const formats[] = {"text", "json", NULL};
static const struct diff_args diff_defaults = {.format = "text"};
static const struct nt_opt diff_opts[] = {
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(struct diff_args, format),
     .arg = "FORM",
     .help = "text or json (default text)",
     .choices = formats},
    NT_OPT(NT_O_FLAG, diff_args, all, "all", 'a', NULL, "also what cannot have made a difference"),
    {0}};

static void print_text(const json_t *a, const json_t *b, struct nt_rundiff *d, bool all,
                       struct nt_buf *out)
{
    size_t hidden = d->more;
    int weight = -1;

    nt_buf_printf(out, "%s, then %s\n", json_string_value(json_object_get(a, "id")),
                  json_string_value(json_object_get(b, "id")));
    nt_rundiff_notes(a, b, out);
    for (size_t i = 0; i < d->n; i++) {
        if (d->v[i].weight == NT_W_NONE && !all) {
            hidden++;
            continue;
        }
        if ((int)d->v[i].weight != weight) {
            weight = (int)d->v[i].weight;
            nt_buf_printf(out, "%s:\n", nt_weight_names[weight]);
        }
        nt_text_plain(d->v[i].text);
        nt_buf_printf(out, "  %-9s %s\n", d->v[i].what, d->v[i].text);
    }
    if (d->n == 0) {
        nt_buf_puts(out, "nothing that a manifest holds differs\n");
    }
    if (hidden > 0) {
        nt_buf_printf(out, "%zu difference%s without effect not shown\n", hidden,
                      hidden == 1 ? "" : "s");
    }
}

static int run_diff(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct diff_args *o = opts;
    json_t *a = NULL, *b = NULL, *json;
    struct nt_rundiff *d = calloc(1, sizeof(*d));
    struct nt_buf out;
    int rc;
    (void)nargs;

    if (d == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "diff");
    }
    rc = nt_manifest_load(args[0], &a, err);
    nt_buf_init(&out, 4 << 20);
    rc = rc == 0 ? nt_manifest_load(args[1], &b, err) : rc;
    if (rc == 0) {
        nt_rundiff(a, b, d);
        if (strcmp(o->format, "json") == 0) {
            json = nt_rundiff_json(a, b, d);
            nt_json_dump(json, true, &out);
            json_decref(json);
        } else {
            print_text(a, b, d, o->all, &out);
        }
        (void)fputs(nt_buf_str(&out), stdout);
    }
    nt_buf_done(&out);
    json_decref(a);
    json_decref(b);
    free(d);
    return rc;
}

const struct nt_command nt_cmd_diff = {
    .name = "diff",
    .summary = "what changed between two runs, likeliest cause first",
    .args = "RUN RUN",
    .min_args = 2,
    .max_args = 2,
    .opts = diff_opts,
    .defaults = &diff_defaults,
    .size = sizeof(struct diff_args),
    .run = run_diff,
    .details = "The earlier run first. RUN as for 'nccltune note'. Compared are command, machine, "
               "health, clocks, profile, NCCL, driver and the variables that matter; variables are "
               "weighed by what NCCL does with them."};
