/* check: is a profile still true on its machine, and if not, what moved? */
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/cli/commands.h"
#include "tuner/cli/profile_arg.h"
#include "tuner/cli/rig.h"
#include "tuner/job/check.h"
#include "tuner/stats/change.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHANGES = 16, MAX_OUTPUT = 16 << 20 };
static const double CHANGE_ALPHA = 0.01;

struct check_args {
    const char *rig, *devices, *db, *nccl, *format, *probe, *pace, *pairs;
    struct nt_strs fix, env, despite;
    struct nt_nodes_args on;
    uint64_t seed, budget_ns;
    bool history;
};
static const char *const formats[] = {"text", "json", NULL};
static const char *const paces[] = {"none", "real", NULL};
static const struct check_args defaults = {
    .rig = "auto", .format = "text", .pace = "none", .pairs = "3:24", .seed = 1};

#define T check_args
static const struct nt_opt opts[] = {
    NT_OPT(
        NT_O_STR, T, pairs, "pairs", 0, "MIN:MAX",
        "pairs of fresh gangs, 2 to 256; rows that MIN cannot tell get more, up to MAX; one number "
        "is both (default 3:24)"),
    NT_OPT(NT_O_DURATION, T, budget_ns, "budget", 'b', "TIME",
           "begin no pair after the first MIN that would not end within this time (default none)"),
    NT_OPT(NT_O_STR, T, rig, "rig", 'r', "RIG",
           "auto, nccl, mps-sockets, mps-p2p, recording:NAME, model:TOPO.xml (default auto: the "
           "profile's)"),
    NT_OPT(NT_O_STR, T, devices, "devices", 0, "LIST",
           "CUDA devices, comma-separated, one a rank of a node (default 0,1,…)"),
    NT_NODES_OPTS(T),
    {.name = "despite",
     .type = NT_O_STRS,
     .offset = offsetof(struct T, despite),
     .arg = "WHAT",
     .help = "check although this is not as it was; may be repeated",
     .choices = nt_check_despite},
    NT_OPT(NT_O_FLAG, T, history, "history", 0, NULL,
           "measure nothing: the checks so far, where they changed, and what differed there"),
    NT_OPT(NT_O_STRS, T, fix, "fix", 0, "NAME=VALUE",
           "site constraint in both gangs; may be repeated"),
    NT_OPT(NT_O_STRS, T, env, "env", 0, "NAME=VALUE",
           "further variable of the ranks, not NCCL's; may be repeated"),
    NT_OPT(NT_O_STR, T, nccl, "nccl", 0, "FILE",
           "libnccl to check with (default libnccl.so.2 as the loader finds it)"),
    NT_OPT(NT_O_STR, T, db, "db", 0, "FILE",
           "database (default NCCLTUNE_DB, else in the state folder)"),
    NT_OPT(NT_O_U64, T, seed, "seed", 0, "N", "order of everything that is random (default 1)"),
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(struct T, format),
     .arg = "FORM",
     .help = "text or json (default text)",
     .choices = formats},
    {.name = "pace",
     .type = NT_O_STR,
     .offset = offsetof(struct T, pace),
     .arg = "PACE",
     .help = "recordings, models: keep the real durations (default none)",
     .choices = paces},
    NT_OPT(NT_O_STR, T, probe, "probe", 0, "FILE",
           "probe program to measure with (default the installed one)"),
    {0}};
#undef T

static double percent(double log_ratio)
{
    return -100 * expm1(-log_ratio);
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* ------------------------------------------------------------------ an outcome */

/* What it has is about who moves the bytes, which a check does not measure. */
static bool only_backends(const struct nt_profile *p, const struct nt_check_outcome *o)
{
    return o->nrows == 0 && p->backends.rows.n > 0;
}

static const char *verdict_text(const struct nt_profile *p, const struct nt_check_outcome *o)
{
    static const char *const words[NT_CK_COUNT] = {
        [NT_CK_HOLDS] = "it holds",
        [NT_CK_DRIFTED] = "it has drifted: tune anew",
        [NT_CK_CANNOT_TELL] = "cannot tell: too noisy; what would tell is said beside the rows",
        [NT_CK_NOT_MEASURED] = "not measured"};
    bool noisy = false;
    for (size_t i = 0; i < o->nrows; i++) {
        noisy = noisy || o->rows[i].verdict == NT_CK_CANNOT_TELL;
    }
    return only_backends(p, o) ? "cannot tell: no row but those of backends"
           : o->verdict == NT_CK_CANNOT_TELL && o->nrows > 0 && !noisy
               ? "cannot tell: not all rows were measured; why not is said beside them"
           : o->nrows == 0 ? "the profile sets nothing: there is nothing to check"
                           : words[o->verdict];
}

static const char *ns_text(const struct nt_est *log_ns, char *out, size_t size)
{
    return log_ns->n > 0 ? nt_format_ns(exp(log_ns->mean), out, size) : "-";
}

static void print_row(const struct nt_check_row *r, const struct nt_check_moves *m)
{
    char bytes[24], a[24], b[24], now[64] = "-", was[24] = "-";

    if (isfinite(r->was)) {
        (void)snprintf(was, sizeof(was), "%+.1f %%", percent(r->was));
    }
    if (r->ratio.n >= NT_CHECK_LEAST_PAIRS) {
        (void)snprintf(now, sizeof(now), "%+.1f %% [%.1f, %.1f]", percent(r->ratio.mean),
                       percent(r->ratio.lo), percent(r->ratio.hi));
    }
    (void)printf("  %-15s %8s  %-6s %9s  %-24s %5zu %-12s %9s %-11s %9s %-11s\n",
                 nt_coll_names[r->cs.coll], nt_format_bytes(r->cs.bytes, bytes, sizeof(bytes)),
                 nt_mode_names[r->cs.mode], was, now, r->ratio.n,
                 nt_check_verdict_names[r->verdict], ns_text(&r->log_default, a, sizeof(a)),
                 nt_move_names[m->default_profile], ns_text(&r->log_tuned, b, sizeof(b)),
                 nt_move_names[m->tuned_profile]);
    if (r->why[0] != '\0') {
        (void)printf("    %s\n", r->why);
    }
}

static void print_controls(const struct nt_check_outcome *o)
{
    const struct nt_check_control *copy = &o->controls[0], *launch = &o->controls[1];

    if (copy->log_ns.n == 0) {
        (void)printf("control: not measured on this rig\n");
        return;
    }
    (void)printf(
        "control: copies within the device at %.0f GB/s%s%s%s, a launch takes %.1f us%s%s%s\n",
        (double)copy->bytes / exp(copy->log_ns.mean), o->last != 0 ? " (" : "",
        o->last != 0 ? nt_move_names[o->control_moves[0]] : "", o->last != 0 ? ")" : "",
        exp(launch->log_ns.mean) / 1e3, o->last != 0 ? " (" : "",
        o->last != 0 ? nt_move_names[o->control_moves[1]] : "", o->last != 0 ? ")" : "");
}

/* Which of the three moved, in one sentence; against the last check where there is one. */
static void print_moved(const struct nt_check_outcome *o)
{
    unsigned n[2][NT_MOVE_COUNT] = {{0}};
    static const char *const sides[2] = {"default", "tuned"};

    for (size_t i = 0; i < o->nrows; i++) {
        const struct nt_check_moves *m = &o->moves[i];
        n[0][o->last != 0 ? m->default_last : m->default_profile]++;
        n[1][o->last != 0 ? m->tuned_last : m->tuned_profile]++;
    }
    for (int side = 0; side < 2; side++) {
        (void)printf("%s: against the %s %u rows as before, %u slower, %u faster%s\n", sides[side],
                     o->last != 0 ? "last check" : "profile", n[side][NT_MOVE_SAME],
                     n[side][NT_MOVE_SLOWER], n[side][NT_MOVE_FASTER],
                     n[side][NT_MOVE_UNKNOWN] > 0 ? ", others cannot be told" : "");
    }
}

static void print_outcome(const struct nt_profile *p, const struct nt_check_outcome *o)
{
    const char *type = o->nrows > 0 ? nt_dtype_names[o->rows[0].cs.dtype] : "";
    bool other = o->nrows > 0 && p->dtypes.n > 0 && strcmp(type, p->dtypes.v[0]) != 0;

    (void)printf("profile %.12s, %s, %u ranks, %u pairs%s%s\n", o->profile_hash,
                 nt_rig_names[p->rig], p->ranks, o->pairs, o->nrows > 0 ? ", " : "", type);
    if (other) {
        (void)printf("what was proved is of %s, which is not recorded here: looked at is %s, which "
                     "the rows serve too\n",
                     p->dtypes.v[0], type);
    }
    for (size_t i = 0; i < o->ndiffers; i++) {
        (void)printf("differs: %s\n", o->differs[i].text);
    }
    if (o->nrows > 0) {
        (void)printf("  %-15s %8s  %-6s %9s  %-24s %5s %-12s %9s %-11s %9s %-11s\n", "collective",
                     "bytes", "mode", "proved", "now [95 %]", "pairs", "verdict", "default", "",
                     "tuned", "");
        for (size_t i = 0; i < o->nrows; i++) {
            print_row(&o->rows[i], &o->moves[i]);
        }
        print_controls(o);
        print_moved(o);
    }
    if (p->backends.rows.n > 0) {
        (void)printf("not checked: %zu row%s of backends, which only `tune --backends` measures\n",
                     p->backends.rows.n, p->backends.rows.n == 1 ? "" : "s");
    }
    (void)printf("%s\n", verdict_text(p, o));
}

static json_t *row_json(const struct nt_check_row *r, const struct nt_check_moves *m)
{
    char call[64];
    return json_pack(
        "{s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:s, "
        "s:s}",
        "collective", nt_coll_names[r->cs.coll], "bytes", (json_int_t)r->cs.bytes, "mode",
        nt_mode_names[r->cs.mode], "dtype", nt_dtype_names[r->cs.dtype], "setting",
        nt_call_text(&r->call, call, sizeof(call)), "verdict", nt_check_verdict_names[r->verdict],
        "why", r->why, "pairs", (int)r->ratio.n, "was_gain", number(percent(r->was) / 100), "gain",
        number(percent(r->ratio.mean) / 100), "lo", number(percent(r->ratio.lo) / 100), "hi",
        number(percent(r->ratio.hi) / 100), "default_ns", number(exp(r->log_default.mean)),
        "tuned_ns", number(exp(r->log_tuned.mean)), "default_moved",
        nt_move_names[m->default_profile], "tuned_moved", nt_move_names[m->tuned_profile],
        "default_moved_since_last", nt_move_names[m->default_last], "tuned_moved_since_last",
        nt_move_names[m->tuned_last]);
}

static int dump(json_t *o, struct nt_err *err)
{
    struct nt_buf b;
    int rc;

    nt_buf_init(&b, MAX_OUTPUT);
    if (o != NULL) {
        nt_json_dump(o, true, &b);
    }
    rc = o == NULL || b.failed ? nt_fail(err, NT_E_NOMEM, 0, "check") : 0;
    if (rc == 0) {
        (void)printf("%s\n", nt_buf_str(&b));
    }
    nt_buf_done(&b);
    json_decref(o);
    return rc;
}

static int print_json(const struct nt_profile *p, const struct nt_check_outcome *o, bool fits,
                      struct nt_err *err)
{
    json_t *rows = json_array(), *differs = json_array(), *control = json_object();

    for (size_t i = 0; fits && i < o->nrows; i++) {
        (void)json_array_append_new(rows, row_json(&o->rows[i], &o->moves[i]));
    }
    for (size_t i = 0; i < o->ndiffers; i++) {
        (void)json_array_append_new(differs,
                                    json_pack("{s:s, s:s, s:b}", "what", o->differs[i].what, "text",
                                              o->differs[i].text, "stops", o->differs[i].stops));
    }
    for (size_t i = 0; i < NT_CHECK_CONTROLS; i++) {
        const struct nt_check_control *c = &o->controls[i];
        (void)json_object_set_new(control, c->name != NULL ? c->name : "",
                                  json_pack("{s:I, s:o, s:s}", "bytes", (json_int_t)c->bytes, "ns",
                                            number(c->log_ns.n > 0 ? exp(c->log_ns.mean) : NAN),
                                            "moved_since_last",
                                            nt_move_names[o->control_moves[i]]));
    }
    return dump(
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:I, s:I, s:s, s:s, s:s}", "verdict",
                  !fits                 ? "does not fit"
                  : only_backends(p, o) ? nt_check_verdict_names[NT_CK_CANNOT_TELL]
                  : o->nrows == 0       ? "nothing to check"
                                        : nt_check_verdict_names[o->verdict],
                  "profile", o->profile_hash, "rig", nt_rig_names[p->rig], "ranks", (int)p->ranks,
                  "pairs", (int)o->pairs, "rows", rows, "control", control, "differs", differs,
                  "check", (json_int_t)o->check, "last_check", (json_int_t)o->last, "nccl",
                  o->facts.nccl, "driver", o->facts.driver, "identity", o->facts.identity),
        err);
}

/* ------------------------------------------------------------------ measuring */

static int exit_of(const struct nt_profile *p, const struct nt_check_outcome *o)
{
    switch (only_backends(p, o) ? NT_CK_CANNOT_TELL : o->verdict) {
    case NT_CK_DRIFTED:
        return -NT_E_NO; /* the text has said it */
    case NT_CK_HOLDS:
        return 0;
    default:
        return -NT_E_NOISY;
    }
}

/* "3:24", or "8" for both. */
static int parse_pairs(const char *text, unsigned *ret_least, unsigned *ret_most,
                       struct nt_err *err)
{
    char least[16];
    uint64_t a = 0, b = 0;
    size_t n = strcspn(text, ":");
    int rc = n < sizeof(least) ? 0 : nt_fail(err, NT_E_INVAL, 0, "not a number of pairs");

    (void)snprintf(least, sizeof(least), "%.*s", (int)(rc == 0 ? n : 0), text);
    rc = rc == 0 ? nt_parse_u64(least, &a, err) : rc;
    b = a;
    rc = rc == 0 && text[n] == ':' ? nt_parse_u64(text + n + 1, &b, err) : rc;
    if (rc == 0 && (a < NT_CHECK_LEAST_PAIRS || b > NT_CHECK_PAIRS || a > b)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "must be %d to %d, MIN not above MAX",
                     NT_CHECK_LEAST_PAIRS, NT_CHECK_PAIRS);
    }
    *ret_least = (unsigned)a;
    *ret_most = (unsigned)b;
    return nt_wrap(err, rc, "--pairs %.40s", text);
}

static int open_to_write(const char *db, struct nt_store **ret, struct nt_err *err)
{
    char path[PATH_MAX];
    int rc = nt_store_default_path(db, true, path, sizeof(path), err);

    return rc == 0 ? nt_store_open(path, NT_STORE_WRITE, ret, err) : rc;
}

static int measure(const struct check_args *a, const struct nt_profile *p, struct nt_err *err)
{
    const struct nt_rig_opts ro = {.rig = a->rig,
                                   .devices = a->devices,
                                   .probe = a->probe,
                                   .nccl = a->nccl,
                                   .pace = a->pace,
                                   .fix = &a->fix,
                                   .env = &a->env,
                                   .on = &a->on,
                                   .seed = a->seed};
    struct nt_rig_open *r = calloc(1, sizeof(*r));
    struct nt_check_outcome o = {0};
    struct nt_store *store = NULL;
    bool json = strcmp(a->format, "json") == 0;
    unsigned least = 0, most = 0;
    int rc = parse_pairs(a->pairs, &least, &most, err);

    rc = rc == 0 && r == NULL ? nt_fail(err, NT_E_NOMEM, 0, "check") : rc;
    rc = rc == 0 ? nt_rig_open(&ro, p, r, err) : rc;
    rc = rc == 0 ? open_to_write(a->db, &store, err) : rc; /* bad usage makes no database */

    if (rc == 0) {
        const struct nt_check_config c = {.profile = p,
                                          .store = store,
                                          .program = r->probe,
                                          .args = r->args,
                                          .plugin = r->plugin,
                                          .env = nt_env_list(&r->env),
                                          .site = r->spec.fixed,
                                          .devices = r->env.devices,
                                          .remote = nt_over_remote(&r->over),
                                          .machines = r->over.machines,
                                          .tmpdir = getenv("TMPDIR"),
                                          .rig = r->spec.rig,
                                          .virtual_time = r->virtual_time,
                                          .least_pairs = least,
                                          .most_pairs = most,
                                          .budget_ns = a->budget_ns,
                                          .seed = a->seed,
                                          .resolve = nt_rig_resolve,
                                          .data = r,
                                          .despite = &a->despite};
        rc = nt_check_run(&c, &o, err);
        if (json && (rc == 0 || o.ndiffers > 0)) {
            int rc2 = print_json(p, &o, rc == 0, rc == 0 ? err : NULL);
            rc = rc == 0 ? rc2 : rc;
        } else if (rc == 0) {
            print_outcome(p, &o);
        }
        rc = rc == 0 ? exit_of(p, &o) : rc;
    }
    nt_store_close(store);
    nt_check_outcome_done(&o);
    if (r != NULL) {
        nt_rig_close(r);
    }
    free(r);
    return rc;
}

/* ------------------------------------------------------------------ the history */

struct changes {
    struct nt_change v[MOST_CHANGES];
    size_t n;
};

static int find_changes(const struct nt_check_point *points, size_t n, uint64_t seed,
                        struct changes *ret, struct nt_err *err)
{
    double *x = calloc(n + 1, sizeof(*x));
    int rc;

    if (x == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "history");
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = points[i].ratio;
    }
    rc = nt_changes(x, n, CHANGE_ALPHA, seed, ret->v, MOST_CHANGES, &ret->n, err);
    free(x);
    return rc;
}

static void print_history(const struct nt_check_point *points, size_t n, size_t others,
                          const struct changes *c)
{
    struct nt_buf b;

    nt_buf_init(&b, MAX_OUTPUT);
    for (size_t i = 0, k = 0; i < n; i++) {
        const struct nt_check_point *p = &points[i];
        for (; k < c->n && c->v[k].at == i; k++) {
            nt_buf_printf(&b,
                          "-- %s here (p %.4f): from %.1f to %.1f %% less time. What differs:\n",
                          c->v[k].kind == NT_CHANGE_DRIFT ? "a drift passes" : "a step", c->v[k].p,
                          percent(c->v[k].before), percent(c->v[k].after));
            nt_check_point_diff(&points[i - 1], p, &b);
        }
        nt_buf_printf(&b, "%5lld  %s  %+6.1f %% over %zu rows  %-12s NCCL %s, driver %s",
                      (long long)p->check, p->at, percent(p->ratio), p->rows, p->verdict, p->nccl,
                      p->driver);
        if (isfinite(p->copy_gbps)) {
            nt_buf_printf(&b, ", copy %.0f GB/s, launch %.1f us", p->copy_gbps, p->launch_us);
        }
        nt_buf_puts(&b, "\n");
    }
    if (c->n == 0) {
        nt_buf_printf(&b, "no change that %zu checks can tell from chance\n", n);
    }
    if (others > 0) {
        nt_buf_printf(&b, "%zu more of another type than %s are left out\n", others,
                      points[0].dtype);
    }
    (void)fputs(nt_buf_str(&b), stdout);
    nt_buf_done(&b);
}

static json_t *change_json(const struct nt_check_point *points, const struct nt_change *c)
{
    struct nt_buf b;
    json_t *o;

    nt_buf_init(&b, MAX_OUTPUT);
    nt_check_point_diff(&points[c->at - 1], &points[c->at], &b);
    o = json_pack("{s:I, s:I, s:s, s:f, s:f, s:f, s:s}", "last_good",
                  (json_int_t)points[c->at - 1].check, "first_bad", (json_int_t)points[c->at].check,
                  "kind", c->kind == NT_CHANGE_DRIFT ? "drift" : "step", "gain_before",
                  percent(c->before) / 100, "gain_after", percent(c->after) / 100, "p", c->p,
                  "differs", nt_buf_str(&b));
    nt_buf_done(&b);
    return o;
}

static int history_json(const struct nt_check_point *points, size_t n, size_t others,
                        const struct changes *c, struct nt_err *err)
{
    json_t *list = json_array(), *changes = json_array();

    for (size_t i = 0; i < n; i++) {
        const struct nt_check_point *p = &points[i];
        (void)json_array_append_new(
            list, json_pack("{s:I, s:s, s:s, s:s, s:o, s:i, s:o, s:o, s:s, s:s, s:s, s:s, s:s}",
                            "check", (json_int_t)p->check, "at", p->at, "verdict", p->verdict,
                            "dtype", p->dtype, "gain", number(percent(p->ratio) / 100), "rows",
                            (int)p->rows, "copy_gbps", number(p->copy_gbps), "launch_us",
                            number(p->launch_us), "nccl", p->nccl, "driver", p->driver, "health",
                            p->health, "identity", p->identity, "host", p->host));
    }
    for (size_t i = 0; i < c->n; i++) {
        (void)json_array_append_new(changes, change_json(points, &c->v[i]));
    }
    return dump(json_pack("{s:o, s:o, s:i}", "checks", list, "changes", changes, "other_types",
                          (int)others),
                err);
}

/* Checks that measured no row are no values of a history, and those of two types of elements are
 * not of one: the newest one's type is told of. *ret_others: of another type. */
static size_t comparable(struct nt_check_point *points, size_t n, size_t *ret_others)
{
    char dtype[sizeof(points->dtype)] = "";
    size_t kept = 0;

    for (size_t i = n; i-- > 0 && dtype[0] == '\0';) {
        (void)snprintf(dtype, sizeof(dtype), "%s", points[i].dtype);
    }
    *ret_others = 0;
    for (size_t i = 0; i < n; i++) {
        if (points[i].dtype[0] == '\0' || !isfinite(points[i].ratio)) {
            continue;
        }
        if (strcmp(points[i].dtype, dtype) == 0) {
            points[kept++] = points[i];
        } else {
            (*ret_others)++;
        }
    }
    return kept;
}

static int history(const struct check_args *a, const struct nt_profile *p, struct nt_err *err)
{
    enum nt_product product;
    struct nt_check_row *rows = calloc(NT_CHECK_ROWS, sizeof(*rows));
    struct nt_check_point *points = NULL;
    struct nt_store *store = NULL;
    struct changes c = {.n = 0};
    struct nt_buf bytes;
    char hash[65];
    size_t n = 0, others = 0;
    int rc = rows == NULL ? nt_fail(err, NT_E_NOMEM, 0, "check")
                          : nt_check_rows(p, &product, rows, &n, err);

    nt_buf_init(&bytes, NT_PROFILE_MAX_BYTES);
    rc = rc == 0 ? nt_profile_delivery(p, product, &bytes, hash, err) : rc;
    rc = rc == 0 ? nt_open_to_read(a->db, &store, err) : rc;
    rc = rc == 0 ? nt_check_history(store, hash, &points, &n, err) : rc;
    if (rc == 0 && n == 0) {
        rc = nt_fail(err, NT_E_INVAL, 0,
                     "no check of profile %.12s is in the database; `nccltune check PROFILE` makes "
                     "one",
                     hash);
    }
    n = rc == 0 ? comparable(points, n, &others) : n;
    rc = rc == 0 ? find_changes(points, n, a->seed, &c, err) : rc;
    if (rc == 0 && strcmp(a->format, "json") == 0) {
        rc = history_json(points, n, others, &c, err);
    } else if (rc == 0) {
        print_history(points, n, others, &c);
    }
    nt_store_close(store);
    nt_buf_done(&bytes);
    free(points);
    free(rows);
    return rc;
}

static int run_check(const void *opts_, unsigned nargs, char **args, struct nt_err *err)
{
    const struct check_args *a = opts_;
    struct nt_profile *p = NULL;
    int rc = nt_load_profile_arg(args[0], a->db, &p, err);
    (void)nargs;

    if (rc == 0 && a->history) {
        rc = history(a, p, err);
    } else if (rc == 0) {
        rc = measure(a, p, err);
    }
    nt_profile_free(p);
    return rc;
}

const struct nt_command nt_cmd_check = {
    .name = "check",
    .summary = "a profile against the default again: does it hold, and what moved?",
    .args = "PROFILE|JOB",
    .min_args = 1,
    .max_args = 1,
    .opts = opts,
    .defaults = &defaults,
    .size = sizeof(struct check_args),
    .run = run_check,
    .details =
        "A few pairs of fresh gangs, default and tuned, alive together, on the delivery path: "
        "every row at its inside size in each mode that it serves, blocks in turns, and beside "
        "them copies within the device and kernel launches. Rows that cannot be told yet get "
        "further "
        "pairs and are looked at again when the pairs have doubled (3, 6, 12, 24), until each is "
        "told "
        "or "
        "a limit is reached. The chances of error hold over all looks together: the check says of "
        "a profile that is true that some row has drifted, 1 %; a row is said to hold that gains "
        "nothing any more, 2.5 %. The interval of a row is one of 95 % over all looks. What cannot "
        "be told is said with what would be needed. Times of default, tuned and control are "
        "held against the profile's and the last check's, so that it is seen which of them moved. "
        "Each check is kept: --view checks.\n\nExit code 0: it holds; 1: a row has drifted; 3: "
        "machine, health, NCCL or driver are not those of the profile (named); 4: cannot "
        "tell: too noisy, or not measured; rows of backends are not."};
