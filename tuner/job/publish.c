#include "tuner/job/publish.h"
#include "tuner/base/text.h"
#include "tuner/job/peers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void add_assigns(struct nt_profile *p, struct nt_assigns *list, const char *words)
{
    char copy[2048], *save = NULL;

    (void)snprintf(copy, sizeof(copy), "%s", words);
    for (char *w = strtok_r(copy, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(w, '=');
        if (eq != NULL) {
            *eq = '\0';
            nt_profile_assign(p, list, w, eq + 1);
        }
    }
}

/* first: to stand before the others, or -1 */
static void add_names(struct nt_profile *p, struct nt_texts *list, const char *const *names,
                      const bool *on, int first)
{
    if (first >= 0) {
        *NT_PROFILE_ADD(p, list) = names[first];
    }
    for (int i = 0; names[i] != NULL; i++) {
        if (on[i] && i != first) {
            *NT_PROFILE_ADD(p, list) = names[i];
        }
    }
}

static void fill_machine(struct nt_profile *p, const struct nt_facts *f)
{
    const char *name;
    json_t *v;
    size_t i;

    p->identity.id = nt_profile_text(p, strcmp(f->identity, "unknown") != 0 ? f->identity : "");
    p->identity.mask = nt_profile_text(p, f->mask);
    json_object_foreach(f->groups, name, v)
    {
        nt_profile_assign(p, &p->identity.groups, name, json_string_value(v));
    }
    json_array_foreach(f->health, i, v)
    {
        *NT_PROFILE_ADD(p, &p->health) = nt_profile_text(p, json_string_value(v));
    }
    if (f->peers != NULL) {
        json_t *broken = nt_peers_broken(f->peers);
        json_array_foreach(broken, i, v)
        {
            *NT_PROFILE_ADD(p, &p->health) =
                nt_profile_textf(p, "peer access %s", json_string_value(v));
        }
        json_decref(broken);
    }
    p->stack.nccl = nt_profile_text(p, f->nccl);
    p->stack.nccl_sha256 = nt_profile_text(p, f->nccl_sha256);
    p->stack.cuda = nt_profile_text(p, f->cuda);
    p->stack.driver = nt_profile_text(p, f->driver);
    p->stack.framework = f->framework[0] != '\0' ? nt_profile_text(p, f->framework) : NULL;
    p->stack.gpu = nt_profile_text(p, f->gpu);
}

static void add_row(struct nt_profile *p, const struct nt_row_result *r)
{
    struct nt_profile_row *out = NT_PROFILE_ADD(p, &p->product[NT_TABLE].rows);
    *out = (struct nt_profile_row){.min_bytes = r->min_bytes,
                                   .max_bytes = r->max_bytes,
                                   .coll = r->coll,
                                   .algo = r->call.algo,
                                   .proto = r->call.proto,
                                   .channels = r->call.channels,
                                   .chunk_bytes = r->call.chunk_bytes,
                                   .reg_buff = -1,
                                   .executed_channels = r->executed.channels,
                                   .executed_warps = r->executed.warps};
}

static struct nt_profile *new_profile(const struct nt_spec *spec, const struct nt_facts *facts)
{
    struct nt_profile *p = nt_profile_new();

    if (p == NULL) {
        return NULL;
    }
    p->rig = nt_spec_told_rig(spec);
    p->stand_in = spec->stand_in[0] != '\0' ? nt_profile_text(p, spec->stand_in) : NULL;
    p->ranks = spec->ranks;
    p->nodes = spec->nodes;
    p->placement = nt_profile_text(p, facts->placement);
    add_assigns(p, &p->site, spec->fixed);
    fill_machine(p, facts);
    return p;
}

int nt_publish_draft(const struct nt_spec *spec, const struct nt_plan *plan,
                     const struct nt_facts *facts, const char *table_vars, struct nt_profile **ret,
                     struct nt_err *err)
{
    struct nt_profile *p = new_profile(spec, facts);
    size_t n = 0;
    const struct nt_row_result *rows = nt_plan_rows(plan, &n);

    if (p == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "profile");
    }
    p->product[NT_TABLE].present = true;
    add_assigns(p, &p->product[NT_TABLE].vars, table_vars);
    for (size_t i = 0; i < n; i++) {
        add_row(p, &rows[i]);
    }
    *ret = p;
    return 0;
}

/* One verdict in the profile and in the database. */
static int verdict_of(bool published, bool unproved)
{
    return published ? NT_VD_TUNED : unproved ? NT_VD_UNDECIDED : NT_VD_GUARD;
}

static uint8_t store_kind(bool published, bool unproved)
{
    return published ? NT_STORE_WINNER : unproved ? NT_STORE_NO_WINNER : NT_STORE_REJECTED;
}

static const struct nt_found *found_for(const struct nt_plan *plan, const struct nt_case *cs)
{
    const struct nt_found *f;
    for (size_t i = 0; (f = nt_plan_found(plan, i)) != NULL; i++) {
        if (f->cs.coll == cs->coll && f->cs.bytes == cs->bytes && f->cs.mode == cs->mode) {
            return f;
        }
    }
    return NULL;
}

static double detectable(const struct nt_found *f)
{
    return f != NULL && isfinite(f->detectable) ? 1 - exp(-f->detectable) : NAN;
}

enum { RUNNERS_UP = 4 };

/* The best tuples that are not the row's, and those that were ruled out. */
static void add_others(struct nt_profile *p, struct nt_profile_class *out, const struct nt_found *f,
                       const struct nt_call *mine)
{
    const struct nt_found_arm *best[RUNNERS_UP] = {NULL};
    char text[64];

    for (size_t i = 0; f != NULL && i < f->narms; i++) {
        const struct nt_found_arm *a = &f->arms[i];
        size_t at = RUNNERS_UP;
        if (a->status != NT_ST_OK) {
            struct nt_noted *r = NT_PROFILE_ADD(p, &out->rejected);
            *r = (struct nt_noted){
                .setting = nt_profile_text(p, nt_call_text(&a->call, text, sizeof(text))),
                .why = nt_status_names[a->status],
                .memory_bytes = NAN};
            continue;
        }
        if (isnan(a->log_ratio) || nt_call_equal(&a->call, mine)) {
            continue;
        }
        while (at > 0 && (best[at - 1] == NULL || a->log_ratio < best[at - 1]->log_ratio)) {
            if (at < RUNNERS_UP) {
                best[at] = best[at - 1];
            }
            at--;
        }
        if (at < RUNNERS_UP) {
            best[at] = a;
        }
    }
    for (size_t i = 0; i < RUNNERS_UP && best[i] != NULL; i++) {
        struct nt_runner_up *r = NT_PROFILE_ADD(p, &out->runners_up);
        *r = (struct nt_runner_up){
            .setting = nt_profile_text(p, nt_call_text(&best[i]->call, text, sizeof(text))),
            .ns = f->default_ns * exp(best[i]->log_ratio)};
    }
}

const struct nt_found_arm *nt_publish_forgone(const struct nt_found *f, const struct nt_call *mine)
{
    const double matters = log(1.02);
    const struct nt_found_arm *pick = f != NULL && f->narms > 0 ? &f->arms[f->pick] : NULL;

    for (size_t i = 0; pick != NULL && i < f->narms; i++) {
        const struct nt_found_arm *a = &f->arms[i];
        if (nt_call_equal(&a->call, mine) && fabs(a->log_ratio) < matters &&
            a->log_ratio - pick->log_ratio > matters) {
            return pick;
        }
    }
    return NULL;
}

static void add_forgone(struct nt_profile *p, struct nt_profile_class *out,
                        const struct nt_found *f, const struct nt_call *mine)
{
    const struct nt_found_arm *pick = nt_publish_forgone(f, mine);
    struct nt_noted *n = pick != NULL ? NT_PROFILE_ADD(p, &out->rejected) : NULL;
    char text[64];

    if (n != NULL) {
        *n = (struct nt_noted){
            .setting = pick == f->arms
                           ? "variables alone"
                           : nt_profile_text(p, nt_call_text(&pick->call, text, sizeof(text))),
            .why = nt_profile_textf(p,
                                    "took %.0f %% less time in the search, but it was not sure "
                                    "enough in every mode for the variables to hang on it",
                                    100 * (1 - exp(pick->log_ratio))),
            .memory_bytes = NAN};
    }
}

static void add_class(struct nt_profile *p, const struct nt_plan *plan,
                      const struct nt_class_result *c)
{
    enum nt_product product = c->product == NT_ARM_TABLE ? NT_TABLE : NT_STATIC;
    struct nt_profile_class *out = nt_profile_add_class(p, product);
    const struct nt_plan_result *r = nt_plan_result(plan);
    char text[64];

    out->bytes = c->cs.bytes;
    out->coll = c->cs.coll;
    out->mode = c->cs.mode;
    out->verdict = c->kept ? NT_VD_KEPT : verdict_of(c->published, c->unproved);
    out->default_ns = c->default_ns;
    out->tuned_ns = c->tuned_ns;
    out->as_found_ns = c->as_found_ns;
    /* In fractions of the faster baseline's time: 0.11 is 11 % less time. */
    out->gain = 1 - exp(-c->gain);
    if (isfinite(c->lo) && isfinite(c->hi)) { /* one pair alone has none */
        out->interval[0] = 1 - exp(-c->lo);
        out->interval[1] = 1 - exp(-c->hi);
    }
    out->p_adjusted = c->p;
    out->pairs = c->pairs;
    out->guard_upper = isfinite(c->guard_upper) ? c->guard_upper : NAN;
    out->p95_ratio = c->p95_ratio;
    out->detectable = detectable(found_for(plan, &c->cs));
    out->setting = nt_profile_text(
        p, product != NT_TABLE ? (r->static_vars[0] != '\0' ? r->static_vars : "static")
           : !c->in_row && r->table_vars[0] != '\0' ? "variables alone"
                                                    : nt_call_text(&c->call, text, sizeof(text)));
    add_others(p, out, product == NT_TABLE ? found_for(plan, &c->cs) : NULL, &c->call);
    if (product == NT_TABLE && c->kept) {
        add_forgone(p, out, found_for(plan, &c->cs), &c->call);
    }
    if (!c->published && c->why[0] != '\0') {
        struct nt_noted *n = NT_PROFILE_ADD(p, &out->rejected);
        *n = (struct nt_noted){
            .setting = out->setting, .why = nt_profile_text(p, c->why), .memory_bytes = NAN};
    }
}

/* Sizes that took no part in the confirm: the default is the best that was found there. */
static void add_defaults(struct nt_profile *p, const struct nt_spec *spec,
                         const struct nt_plan *plan)
{
    const struct nt_plan_result *r = nt_plan_result(plan);
    const struct nt_found *f;

    for (size_t i = 0; (f = nt_plan_found(plan, i)) != NULL; i++) {
        bool seen = false;
        for (size_t k = 0; k < r->nclasses; k++) {
            const struct nt_class_result *c = &r->classes[k];
            seen = seen || (c->product == NT_ARM_TABLE && c->cs.coll == f->cs.coll &&
                            c->cs.bytes == f->cs.bytes && c->cs.mode == f->cs.mode);
        }
        if (!seen) {
            struct nt_profile_class *out = nt_profile_add_class(p, NT_TABLE);
            struct nt_call none = NT_CALL_DEFAULT;
            out->bytes = f->cs.bytes;
            out->coll = f->cs.coll;
            out->mode = f->cs.mode;
            out->verdict = f->detectable > log(1.6) ? NT_VD_NOISY : NT_VD_DEFAULT;
            out->default_ns = f->default_ns;
            out->detectable = detectable(f);
            out->setting = "default";
            add_others(p, out, f, &none);
        }
    }
    (void)spec;
}

/* What became of each process setting: the gain that the search saw, and where it ended. */
static void add_tried(struct nt_profile *p, const struct nt_plan_result *r)
{
    for (size_t i = 0; i < r->nsettings; i++) {
        const struct nt_setting_score *s = &r->settings[i];
        bool table = r->table_present && strcmp(s->vars, r->table_vars) == 0;
        bool alone = r->static_present && strcmp(s->vars, r->static_vars) == 0;
        size_t n = strlen(s->vars);
        const char *why;

        if (n == 0) {
            continue;
        }
        why = s->status != NT_ST_OK
                  ? nt_profile_textf(p, "out: %s", nt_status_names[s->status])
                  : nt_profile_textf(
                        p, "%+.1f %% less time on average in the search, give or take %.1f %%%s%s",
                        100 * s->table_gain, 200 * s->se,
                        table || alone ? ": published"
                        : strncmp(r->withdrawn, s->vars, n) == 0 && r->withdrawn[n] == ':'
                            ? "; confirmed and withdrawn"
                            : "",
                        strncmp(r->withdrawn, s->vars, n) == 0 && !table ? r->withdrawn + n : "");
        *(struct nt_noted *)NT_PROFILE_ADD(p, &p->tried) = (struct nt_noted){
            .setting = nt_profile_text(p, s->vars), .why = why, .memory_bytes = NAN};
    }
}

static void add_backend_row(struct nt_profile *p, const struct nt_backend_row *r)
{
    struct nt_profile_backend *out = NT_PROFILE_ADD(p, &p->backends.rows);
    *out = (struct nt_profile_backend){.min_bytes = r->min_bytes,
                                       .max_bytes = r->max_bytes,
                                       .coll = r->coll,
                                       .mode = r->mode,
                                       .backend = r->call.backend,
                                       .algo = r->call.algo,
                                       .proto = r->call.proto,
                                       .blocks = r->call.channels,
                                       .numerics = nt_backends[r->call.backend].numerics,
                                       .bits = r->bits};
    for (int d = 0; d < NT_DTYPE_COUNT; d++) {
        for (int place = 0; place < NT_PLACE_COUNT; place++) {
            if (r->combos[d][place]) {
                *NT_PROFILE_ADD(p, &out->serves) =
                    nt_profile_textf(p, "%s/%s", nt_dtype_names[d], nt_place_names[place]);
            }
        }
    }
}

static void add_backend_class(struct nt_profile *p, const struct nt_backend_class *c)
{
    struct nt_profile_backend_class *out = NT_PROFILE_ADD(p, &p->backends.classes);
    char text[64];

    *out = (struct nt_profile_backend_class){
        .bytes = c->cs.bytes,
        .coll = c->cs.coll,
        .mode = c->cs.mode,
        .verdict = c->kept ? NT_VD_DEFAULT : verdict_of(c->published, c->unproved),
        .setting = nt_profile_text(p, nt_call_text(&c->call, text, sizeof(text))),
        .rival = nt_arm_names[c->rival],
        .default_ns = c->default_ns,
        .rival_ns = c->rival_ns,
        .ns = c->ns,
        .gain = 1 - exp(-c->gain),
        .interval = {1 - exp(-c->lo), 1 - exp(-c->hi)},
        .p_adjusted = c->p,
        .guard_upper = isfinite(c->guard_upper) ? c->guard_upper : NAN,
        .p95_ratio = c->p95_ratio,
        .pairs = c->pairs,
        .why = nt_profile_text(p, c->why)};
}

static void add_peers(struct nt_profile *p, const json_t *doc)
{
    json_t *words = doc != NULL ? nt_peers_words(doc) : NULL, *v;
    size_t i;

    json_array_foreach(words, i, v)
    {
        *NT_PROFILE_ADD(p, &p->backends.peers) = nt_profile_text(p, json_string_value(v));
    }
    json_decref(words);
}

/* With its sizes where it is not said of all. */
static void add_backend_note(struct nt_profile *p, const struct nt_spec *spec,
                             const struct nt_backend_note *n)
{
    uint64_t first = spec->sizes[0], last = spec->sizes[spec->nsizes - 1];
    char text[64], lo[24], hi[24];
    const char *why = n->why;

    if (n->min_bytes > 0 && (n->min_bytes > first || n->max_bytes < last)) {
        (void)nt_format_bytes(n->min_bytes, lo, sizeof(lo));
        (void)nt_format_bytes(n->max_bytes, hi, sizeof(hi));
        why = n->min_bytes == n->max_bytes
                  ? nt_profile_textf(p, "at %s: %s", lo, n->why)
                  : nt_profile_textf(p, "from %s to %s: %s", lo, hi, n->why);
    }
    *(struct nt_noted *)NT_PROFILE_ADD(p, &p->backends.notes) =
        (struct nt_noted){.setting = nt_profile_text(p, nt_call_text(&n->call, text, sizeof(text))),
                          .why = nt_profile_text(p, why),
                          .memory_bytes = NAN};
}

static void add_backends(struct nt_profile *p, const struct nt_spec *spec,
                         const struct nt_facts *facts, const struct nt_plan_result *r)
{
    if (!nt_spec_has_backends(spec)) {
        return;
    }
    p->backends.present = true;
    add_peers(p, facts->peers);
    p->backends.same_bits = spec->same_bits;
    add_names(p, &p->backends.asked, nt_backend_names, spec->backends, -1);
    for (size_t i = 0; i < r->nbackend_rows; i++) {
        add_backend_row(p, &r->backend_rows[i]);
    }
    for (size_t i = 0; i < r->nbackend_classes; i++) {
        add_backend_class(p, &r->backend_classes[i]);
    }
    for (size_t i = 0; i < r->nbackend_notes; i++) {
        add_backend_note(p, spec, &r->backend_notes[i]);
    }
}

/* Not every probe can tell it. */
static double first_call(const struct nt_plan_result *r, enum nt_arm arm)
{
    return r->first_call_ns[arm] > 0 ? (double)r->first_call_ns[arm] : NAN;
}

static void add_notes(struct nt_profile *p, const struct nt_spec *spec,
                      const struct nt_plan_result *r)
{
    static const struct {
        const char *site, *setting, *why;
    } forbidden[] = {
        {"NCCL_NVLS_ENABLE=0", "nvls",
         "NCCL_NVLS_ENABLE=0 in the environment: NVLink multicast is not allowed here"},
        {"TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "multimem",
         "TORCH_SYMM_MEM_DISABLE_MULTICAST=1 in the environment: NVLink multicast is not allowed "
         "here"},
    };
    /* By wish; an empty profile says it, too. */
    const struct {
        bool is;
        const char *check, *why;
    } left_out[] = {
        {spec->no_groups, "confirm: group of 8", "no program here groups its calls (--no-groups)"},
        {spec->no_overlap, "confirm: beside compute",
         "no program here computes beside its calls (--no-overlap)"},
    };

    for (int k = 0; k < NT_DRIFT_COUNT; k++) {
        char text[240];
        if (nt_drift_found(&r->drift[k])) {
            nt_drift_text((enum nt_drift_kind)k, &r->drift[k], text, sizeof(text));
            *NT_PROFILE_ADD(p, &p->warnings) = nt_profile_text(p, text);
        }
    }
    for (size_t i = 0; i < r->nnot_checked; i++) {
        struct nt_noted *n = NT_PROFILE_ADD(p, &p->not_checked);
        *n = (struct nt_noted){
            .setting = nt_profile_text(p, r->not_checked[i].text),
            .why = spec->rig == NT_RIG_RECORDING ? "the recording does not hold it" : "not run",
            .memory_bytes = NAN};
    }
    for (size_t i = 0; i < sizeof(left_out) / sizeof(left_out[0]); i++) {
        if (left_out[i].is) {
            *(struct nt_noted *)NT_PROFILE_ADD(p, &p->not_checked) = (struct nt_noted){
                .setting = left_out[i].check, .why = left_out[i].why, .memory_bytes = NAN};
        }
    }
    for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++) {
        if (strstr(spec->fixed, forbidden[i].site) != NULL) {
            struct nt_noted *n = NT_PROFILE_ADD(p, &p->not_allowed_here);
            *n = (struct nt_noted){
                .setting = forbidden[i].setting, .why = forbidden[i].why, .memory_bytes = NAN};
        }
    }
    add_tried(p, r);
    /* Where ranks share a GPU, what one of them takes cannot be told. */
    if (spec->shown_rig != NT_RIG_MPS_SOCKETS && spec->shown_rig != NT_RIG_MPS_P2P) {
        p->memory.default_bytes = (double)r->memory_bytes[NT_ARM_DEFAULT];
        p->memory.table_bytes = r->table_present ? (double)r->memory_bytes[NT_ARM_TABLE] : NAN;
        p->memory.static_bytes = r->static_present ? (double)r->memory_bytes[NT_ARM_STATIC] : NAN;
    }
    p->first_call.default_ns = first_call(r, NT_ARM_DEFAULT);
    p->first_call.table_ns = r->table_present ? first_call(r, NT_ARM_TABLE) : NAN;
    p->first_call.static_ns = r->static_present ? first_call(r, NT_ARM_STATIC) : NAN;
}

int nt_publish_profile(const struct nt_spec *spec, const struct nt_plan *plan,
                       const struct nt_facts *facts, const char *version, int64_t job,
                       struct nt_profile **ret, struct nt_err *err)
{
    const struct nt_plan_result *r = nt_plan_result(plan);
    struct nt_profile *p = new_profile(spec, facts);
    char created[32];
    time_t now = time(NULL);
    struct tm tm;
    int rc;

    if (p == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "profile");
    }
    (void)strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    p->created = nt_profile_text(p, created);
    p->tool = nt_profile_text(p, version);
    p->job = nt_profile_textf(p, "%lld", (long long)job);
    p->baselines.same = spec->as_found[0] == '\0';
    add_assigns(p, &p->baselines.as_found, spec->as_found);
    add_names(p, &p->modes, nt_mode_names, spec->modes, -1);
    add_names(p, &p->dtypes, nt_dtype_names, spec->dtypes, (int)spec->raced_dtype);
    add_names(p, &p->places, nt_place_names, spec->places, -1);
    p->product[NT_TABLE].present = p->product[NT_STATIC].present = true;
    add_assigns(p, &p->product[NT_TABLE].vars, r->table_vars);
    add_assigns(p, &p->product[NT_STATIC].vars, r->static_vars);
    for (size_t i = 0; i < r->nrows; i++) {
        add_row(p, &r->rows[i]);
    }
    for (size_t i = 0; i < r->nclasses; i++) {
        add_class(p, plan, &r->classes[i]);
    }
    add_defaults(p, spec, plan);
    add_notes(p, spec, r);
    add_backends(p, spec, facts, r);
    rc = nt_profile_finish(p, err);
    if (rc != 0) {
        nt_profile_free(p);
        return nt_wrap(err, rc, "profile");
    }
    *ret = p;
    return 0;
}

/* ------------------------------------------------------------------ store */

static int setting_id(struct nt_store *store, const char *vars, const struct nt_call *call,
                      int64_t *ret, struct nt_err *err)
{
    return nt_store_put_setting(store, &(struct nt_store_setting){.vars = vars, .call = *call}, ret,
                                err);
}

/* product: "" for what NCCL is told, "backends" for who moves the bytes, whose race knows the
 * default by the other. */
static int save_race(struct nt_store *store, int64_t job, const char *product,
                     const struct nt_found *f, struct nt_err *err)
{
    int rc = 0;

    for (size_t i = product[0] != '\0'; i < f->narms && rc == 0; i++) {
        const struct nt_found_arm *a = &f->arms[i];
        bool ok = a->status == NT_ST_OK, pick = i == f->pick;
        if (product[0] != '\0' && ok && isnan(a->log_ratio)) {
            continue; /* not in this mode */
        }
        struct nt_store_verdict v = {
            .stage = "race",
            .product = product,
            .cs = f->cs,
            .kind = !ok    ? NT_STORE_REJECTED
                    : pick ? NT_STORE_WINNER
                           : NT_STORE_NO_WINNER,
            .speedup = ok ? exp(-a->log_ratio) : NAN,
            .lo = ok ? exp(-a->log_ratio - 1.96 * a->se) : NAN,
            .hi = ok ? exp(-a->log_ratio + 1.96 * a->se) : NAN,
            .p = NAN,
            .default_ns = f->default_ns,
            .tuned_ns = ok ? f->default_ns * exp(a->log_ratio) : NAN,
            .reason = ok ? (pick ? "leads, or ties with fewer channels" : "slower, or tied")
                         : nt_status_names[a->status]};
        rc = setting_id(store, f->vars, &a->call, &v.setting, err);
        rc = rc == 0 ? nt_store_save_verdict(store, job, &v, err) : rc;
    }
    return rc;
}

static int save_confirm(struct nt_store *store, int64_t job, const struct nt_plan_result *r,
                        struct nt_store_profile_row *rows, struct nt_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < r->nclasses && rc == 0; i++) {
        const struct nt_class_result *c = &r->classes[i];
        bool table = c->product == NT_ARM_TABLE;
        struct nt_store_verdict v = {.stage = "confirm",
                                     .product = table ? "table" : "static",
                                     .cs = c->cs,
                                     .kind = c->kept ? (uint8_t)NT_STORE_TIE
                                                     : store_kind(c->published, c->unproved),
                                     .speedup = exp(c->gain),
                                     .lo = exp(c->lo),
                                     .hi = exp(c->hi),
                                     .p = c->p,
                                     .default_ns = c->default_ns,
                                     .tuned_ns = c->tuned_ns,
                                     .pairs = c->pairs,
                                     .reason = c->kept        ? "kept as it was: no slower"
                                               : c->published ? "confirmed"
                                                              : c->why};
        rc = setting_id(store, table ? r->table_vars : r->static_vars, &c->call, &v.setting, err);
        rc = rc == 0 ? nt_store_save_verdict(store, job, &v, err) : rc;
        rows[i] = (struct nt_store_profile_row){.product = v.product,
                                                .min_bytes = c->cs.bytes,
                                                .max_bytes = c->cs.bytes,
                                                .cs = c->cs,
                                                .setting = v.setting,
                                                .kind = v.kind,
                                                .default_ns = c->default_ns,
                                                .as_found_ns = c->as_found_ns,
                                                .tuned_ns = c->tuned_ns,
                                                .speedup = v.speedup,
                                                .lo = v.lo,
                                                .hi = v.hi,
                                                .p = v.p,
                                                .pairs = v.pairs};
        for (size_t k = 0; k < r->nrows && table; k++) {
            if (r->rows[k].coll == c->cs.coll && c->cs.bytes >= r->rows[k].min_bytes &&
                c->cs.bytes <= r->rows[k].max_bytes) {
                rows[i].min_bytes = r->rows[k].min_bytes;
                rows[i].max_bytes = r->rows[k].max_bytes;
            }
        }
    }
    return rc;
}

static int save_backends(struct nt_store *store, int64_t job, const struct nt_plan_result *r,
                         struct nt_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < r->nbackend_classes && rc == 0; i++) {
        const struct nt_backend_class *c = &r->backend_classes[i];
        struct nt_store_verdict v = {.stage = "confirm",
                                     .product = "backends",
                                     .cs = c->cs,
                                     .kind = store_kind(c->published, c->unproved),
                                     .speedup = exp(c->gain),
                                     .lo = exp(c->lo),
                                     .hi = exp(c->hi),
                                     .p = c->p,
                                     .default_ns = c->rival_ns,
                                     .tuned_ns = c->ns,
                                     .pairs = c->pairs,
                                     .reason = c->published ? "confirmed" : c->why};
        if (c->pairs == 0) {
            continue; /* of the race, which is stored already */
        }
        rc = setting_id(store, "", &c->call, &v.setting, err);
        rc = rc == 0 ? nt_store_save_verdict(store, job, &v, err) : rc;
    }
    return rc;
}

int nt_publish_store(struct nt_store *store, int64_t job, const struct nt_plan *plan,
                     const struct nt_profile *profile, struct nt_err *err)
{
    const struct nt_plan_result *r = nt_plan_result(plan);
    struct nt_store_profile_row *rows = calloc(r->nclasses + 1, sizeof(*rows));
    const struct nt_found *f;
    struct nt_buf json;
    int64_t id = 0;
    int rc;

    nt_buf_init(&json, NT_PROFILE_MAX_BYTES);
    rc = rows == NULL ? nt_fail(err, NT_E_NOMEM, 0, "profile rows")
                      : nt_profile_dump(profile, &json, err);
    rc = rc == 0 ? nt_store_begin(store, err) : rc;
    if (rc == 0) {
        for (size_t i = 0; rc == 0 && (f = nt_plan_found(plan, i)) != NULL; i++) {
            rc = save_race(store, job, "", f, err);
        }
        for (size_t i = 0; rc == 0 && (f = nt_plan_found_backends(plan, i)) != NULL; i++) {
            rc = save_race(store, job, "backends", f, err);
        }
        rc = rc == 0 ? save_confirm(store, job, r, rows, err) : rc;
        rc = rc == 0 ? save_backends(store, job, r, err) : rc;
        rc = rc == 0
                 ? nt_store_save_profile(store, job, nt_buf_str(&json), rows, r->nclasses, &id, err)
                 : rc;
        rc = nt_store_end(store, rc, err);
    }
    nt_buf_done(&json);
    free(rows);
    return rc;
}
