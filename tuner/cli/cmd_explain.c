/* nccltune explain: how much of a step can be communication at all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/text.h"
#include "tuner/cli/commands.h"
#include "tuner/cli/curves.h"

enum { STEPS_MAX = 16 };

struct explain_args {
    const char *workload, *profile, *db, *source, *today, *format;
    struct nt_strs steps, measured;
};

static const char *const formats[] = {"text", "json", NULL};
static const struct explain_args explain_defaults = {.format = "text"};

static const struct nt_opt explain_opts[] = {
    NT_OPT(NT_O_STR, explain_args, workload, "workload", 'w', "FILE",
           "the collectives of a step (see `workload`)"),
    NT_OPT(NT_O_STRS, explain_args, steps, "step", 's', "PHASE=MS[,MODE]",
           "a phase of it and how long its step takes in milliseconds; repeat for others"),
    NT_OPT(NT_O_STRS, explain_args, measured, "measured", 'm', "FILE",
           "measured times: a CSV table or a log of nccl-tests; may be repeated"),
    NT_OPT(NT_O_STR, explain_args, profile, "profile", 'p', "PROFILE",
           "times of a profile's evidence"),
    NT_OPT(NT_O_STR, explain_args, db, "db", 0, "PATH",
           "the database, where neither of the two is given"),
    NT_OPT(NT_O_STR, explain_args, source, "source", 0, "NAME",
           "of the database: 'import 3', 'job 7'"),
    NT_OPT(NT_O_STR, explain_args, today, "today", 0, "ARM",
           "the backend or setting that runs today (default: default, nccl, pynccl)"),
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(struct explain_args, format),
     .arg = "FORMAT",
     .help = "text (default) or json",
     .choices = formats},
    {0}};

struct step {
    struct nt_wl_phase phase;
    double ms;
};

/* "verify=29,eager" */
static int parse_step(const char *text, const struct nt_workload *w, struct step *ret,
                      struct nt_err *err)
{
    const struct nt_wl_phase *phase = NULL;
    const char *eq = strchr(text, '='), *comma = strchr(text, ',');
    char name[NT_WL_NAME], ms[32];
    int mode, rc;
    if (eq == NULL || (size_t)(eq - text) >= sizeof(name)) {
        return nt_fail(err, NT_E_INVAL, 0, "--step %s: PHASE=MILLISECONDS[,MODE]", text);
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)(eq - text), text);
    (void)snprintf(ms, sizeof(ms), "%.*s",
                   (int)(comma != NULL && comma - eq < 31 ? comma - eq - 1 : 31), eq + 1);
    rc = nt_workload_phase(w, name, &phase, err);
    rc = rc == 0 ? nt_parse_double(ms, &ret->ms, err) : rc;
    if (rc == 0 && !(ret->ms > 0)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "a step takes more than 0 ms");
    }
    if (rc != 0) {
        return nt_wrap(err, rc, "--step %s", text);
    }
    ret->phase = *phase;
    if (comma != NULL) {
        mode = nt_vocab_find(nt_mode_names, "mode", comma + 1, err);
        if (mode < 0) {
            return nt_wrap(err, mode, "--step %s", text);
        }
        ret->phase.mode = (uint8_t)mode;
    }
    return 0;
}

static void call_text(const struct nt_explained_call *x, struct nt_buf *out)
{
    char size[24];
    const struct nt_wl_call *c = x->call;
    nt_buf_printf(out, "  %5u x %-14s %8s  ", c->count, nt_coll_names[c->coll],
                  nt_format_bytes(c->bytes, size, sizeof(size)));
    if (!x->measured) {
        nt_buf_puts(out, "never measured at this size\n");
        return;
    }
    nt_buf_printf(out, "%8.1f µs%s = %.2f ms", x->now.mid, x->exact ? "" : " (between sizes)",
                  c->count * x->now.mid / 1e3);
    if (x->best_us < x->now.mid) {
        nt_buf_printf(out, "; %s %.1f µs", x->best_arm, x->best_us);
    }
    nt_buf_puts(out, "\n");
}

static void step_text(const struct nt_explained *e, struct nt_buf *out)
{
    const char *hints[8];
    size_t n = nt_explain_hints(e, hints);
    nt_buf_printf(out, "%s: %.3g ms a step, %s\n", e->phase->name, e->step_ms,
                  nt_mode_names[e->phase->mode]);
    for (size_t i = 0; i < e->phase->ncalls; i++) {
        call_text(&e->calls[i], out);
    }
    if (e->blame != NT_BLAME_NOT_MEASURED) {
        nt_buf_printf(
            out,
            "  communication %.2f ms (%.2f to %.2f), %.0f %% of the step (%.0f to %.0f %%)%s\n"
            "    of it launch and latency %.2f ms, bytes %.2f ms\n",
            e->now_ms.mid, e->now_ms.lo, e->now_ms.hi, 100 * e->share.mid, 100 * e->share.lo,
            100 * e->share.hi, e->noise_known ? "" : "; noise not known, 10 % assumed", e->floor_ms,
            e->now_ms.mid - e->floor_ms);
    }
    if (e->blame != NT_BLAME_NOT_MEASURED && e->blame != NT_BLAME_IMPOSSIBLE) {
        nt_buf_printf(
            out,
            "    by the fastest way measured %.2f ms: tuning can save %.2f ms, %.1f %% of "
            "the step; were communication free, %.2f ms\n",
            e->best_ms, e->now_ms.mid - e->best_ms, 100 * (e->now_ms.mid - e->best_ms) / e->step_ms,
            e->now_ms.mid);
    }
    if (isfinite(e->turned_ms) && e->blame != NT_BLAME_NOT_MEASURED) {
        nt_buf_printf(out, "    the same calls %s: %.2f ms\n",
                      e->phase->mode == NT_GRAPH ? "without a graph" : "in a graph", e->turned_ms);
    }
    if (e->missing_calls > 0) {
        nt_buf_printf(out,
                      "  %.0f of %.0f calls were never measured and are not in these figures\n",
                      e->missing_calls, e->all_calls);
    }
    nt_buf_printf(out, "  => %s\n", nt_blame_words[e->blame]);
    for (size_t i = 0; i < n; i++) {
        nt_buf_printf(out, "     look at: %s\n", hints[i]);
    }
}

static void differences(const struct nt_explained *e, size_t n, struct nt_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            struct nt_span d;
            double ms;
            if (e[i].step_ms <= e[k].step_ms || e[i].blame == NT_BLAME_NOT_MEASURED ||
                e[k].blame == NT_BLAME_NOT_MEASURED) {
                continue;
            }
            d = nt_explain_difference(&e[i], &e[k]);
            ms = e[i].step_ms - e[k].step_ms;
            nt_buf_printf(out, "%s takes %.3g ms longer than %s, its communication %.2f ms",
                          e[i].phase->name, ms, e[k].phase->name, d.mid * ms);
            if (d.mid > 1) {
                nt_buf_puts(out, ": more than the whole difference; the rest of the step must be "
                                 "faster, or the times are not of these steps\n");
            } else {
                nt_buf_printf(out, ": %.0f %% of it (%.0f to %.0f %%)%s\n", 100 * d.mid, 100 * d.lo,
                              100 * fmin(d.hi, 1),
                              d.hi < 0.25 ? ": communication cannot explain the difference" : "");
            }
        }
    }
}

static json_t *span_json(struct nt_span s)
{
    return json_pack("{s:f, s:f, s:f}", "low", s.lo, "value", s.mid, "high", s.hi);
}

static json_t *step_json(const struct nt_explained *e)
{
    const char *hints[8];
    size_t n = nt_explain_hints(e, hints);
    json_t *calls = json_array(), *look = json_array();
    for (size_t i = 0; i < e->phase->ncalls; i++) {
        const struct nt_explained_call *x = &e->calls[i];
        json_t *o = json_pack("{s:s, s:I, s:i, s:b}", "collective", nt_coll_names[x->call->coll],
                              "bytes", (json_int_t)x->call->bytes, "count", (int)x->call->count,
                              "measured", x->measured);
        if (o != NULL && x->measured) {
            (void)json_object_set_new(o, "exact", json_boolean(x->exact));
            (void)json_object_set_new(o, "now_us", span_json(x->now));
            (void)json_object_set_new(o, "best_us", json_real(x->best_us));
            (void)json_object_set_new(o, "best", json_string(x->best_arm));
        }
        (void)json_array_append_new(calls, o);
    }
    for (size_t i = 0; i < n; i++) {
        (void)json_array_append_new(look, json_string(hints[i]));
    }
    return json_pack(
        "{s:s, s:s, s:f, s:o, s:o, s:o, s:f, s:f, s:f, s:o, s:b, s:b, s:s, s:o}", "phase",
        e->phase->name, "mode", nt_mode_names[e->phase->mode], "step_ms", e->step_ms, "calls",
        calls, "communication_ms", span_json(e->now_ms), "share", span_json(e->share), "launch_ms",
        e->floor_ms, "best_ms", e->best_ms, "calls_not_measured", e->missing_calls, "other_mode_ms",
        isfinite(e->turned_ms) ? json_real(e->turned_ms) : json_null(), "other_mode", e->other_mode,
        "noise_known", e->noise_known, "verdict", nt_blame_words[e->blame], "look_at", look);
}

static int collect(const struct explain_args *o, struct nt_curves *c, struct nt_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->measured.n; i++) {
        rc = nt_curves_add_file(c, o->measured.v[i], err);
    }
    if (rc == 0 && o->profile != NULL) {
        rc = nt_curves_add_profile(c, o->profile, err);
    }
    if (rc == 0 && o->measured.n == 0 && o->profile == NULL) {
        rc = nt_curves_add_store(c, o->db, o->source, err);
    }
    return rc;
}

static int answer(const struct explain_args *o, const struct nt_workload *w,
                  const struct step *steps, struct nt_curves *c, struct nt_err *err)
{
    struct nt_explained e[STEPS_MAX] = {0};
    const struct nt_wl_curve *curves = NULL;
    size_t n = nt_curves_list(c, &curves), refused = 0;
    struct nt_buf out;

    for (size_t i = 0; i < o->steps.n; i++) {
        nt_explain(&steps[i].phase, steps[i].ms, w->ranks, curves, n, o->today, &e[i]);
        refused += e[i].blame == NT_BLAME_NOT_MEASURED;
    }
    nt_buf_init(&out, 16 << 20);
    if (strcmp(o->format, "json") == 0) {
        json_t *all = json_array();
        for (size_t i = 0; i < o->steps.n; i++) {
            (void)json_array_append_new(all, step_json(&e[i]));
        }
        nt_json_dump(all, true, &out);
        json_decref(all);
    } else {
        for (size_t i = 0; i < o->steps.n; i++) {
            step_text(&e[i], &out);
        }
        differences(e, o->steps.n, &out);
    }
    (void)fwrite(nt_buf_str(&out), 1, out.len, stdout);
    nt_buf_done(&out);
    return refused > 0 ? nt_fail(err, NT_E_NO, 0,
                                 "%zu of %zu steps: sizes that were never measured for %u ranks",
                                 refused, o->steps.n, w->ranks)
                       : 0;
}

static int run_explain(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct explain_args *o = opts;
    struct step steps[STEPS_MAX] = {0};
    struct nt_curves *c = NULL;
    struct nt_workload w;
    struct nt_buf doc;
    int rc;
    (void)nargs;
    (void)args;
    if (o->workload == NULL || o->steps.n == 0 || o->steps.n > STEPS_MAX) {
        return nt_fail(err, NT_E_INVAL, 0, "--workload FILE and 1 to %d --step PHASE=MS",
                       STEPS_MAX);
    }
    nt_buf_init(&doc, 16 << 20);
    rc = nt_buf_read_file(&doc, o->workload, err);
    rc = rc == 0 ? nt_workload_parse(nt_buf_str(&doc), doc.len, o->workload, &w, err) : rc;
    for (size_t i = 0; rc == 0 && i < o->steps.n; i++) {
        rc = parse_step(o->steps.v[i], &w, &steps[i], err);
    }
    rc = rc == 0 ? nt_curves_new(&c, err) : rc;
    rc = rc == 0 ? collect(o, c, err) : rc;
    rc = rc == 0 ? answer(o, &w, steps, c, err) : rc;
    nt_curves_free(c);
    nt_buf_done(&doc);
    return rc;
}

const struct nt_command nt_cmd_explain = {
    .name = "explain",
    .summary = "how much of a step can be communication at all",
    .args = "",
    .opts = explain_opts,
    .defaults = &explain_defaults,
    .size = sizeof(struct explain_args),
    .run = run_explain,
    .details = "Adds up the measured times of a step's collectives, by what runs today and by the "
               "fastest way "
               "measured, and holds them against the step: the share of the step with an interval, "
               "launch and "
               "latency apart from bytes, the most that tuning could save, what else to look at. "
               "Between two "
               "steps it says how much of the difference communication can be.\n\n"
               "Sizes between two measured ones are interpolated, and said to be; sizes outside "
               "are not invented: "
               "a step with more than a twentieth of such calls gets no answer (exit status 1).",
};
