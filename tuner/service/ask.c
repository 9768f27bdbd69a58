/* What a client may ask for, checked; and the command line that it becomes. */
#include "tuner/base/json.h"
#include "tuner/job/spec.h"
#include "tuner/service/service_i.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what a client may ask for ------------------------------------------------------------------
 */

static int take_words(const json_t *body, const char *name, const char *const *names, json_t *out,
                      struct nt_err *err)
{
    json_t *list = NULL, *word;
    size_t i;
    int rc = 0;

    if (json_object_get(body, name) == NULL) {
        return 0;
    }
    rc = nt_json_arr(body, name, &list, err);
    if (rc == 0 && (json_array_size(list) == 0 || json_array_size(list) > 16)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: between 1 and 16", name);
    }
    json_array_foreach(list, i, word)
    {
        if (rc == 0 && !json_is_string(word)) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s: not a list of names", name);
        }
        if (rc == 0 && nt_vocab_find(names, name, json_string_value(word), err) < 0) {
            rc = -NT_E_INVAL;
        }
    }
    if (rc == 0) {
        (void)json_object_set(out, name, list);
    }
    return rc;
}

static int take_number(const json_t *body, const char *name, int64_t lo, int64_t hi, json_t *out,
                       struct nt_err *err)
{
    int64_t n = 0;
    int rc = 0;
    if (json_object_get(body, name) != NULL) {
        rc = nt_json_i64(body, name, &n, err);
        if (rc == 0 && (n < lo || n > hi)) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s: not between %lld and %lld", name, (long long)lo,
                         (long long)hi);
        }
        (void)json_object_set_new(out, name, json_integer((json_int_t)n));
    }
    return rc;
}

static int take_sizes(const json_t *body, json_t *out, struct nt_err *err)
{
    const char *text = NULL;
    struct nt_spec *spec;
    int rc;

    if (json_object_get(body, "sizes") == NULL) {
        return 0;
    }
    spec = calloc(1, sizeof(*spec));
    rc = spec == NULL ? nt_fail(err, NT_E_NOMEM, 0, "sizes")
                      : nt_json_str(body, "sizes", &text, err);
    if (rc == 0 && strlen(text) > 255) {
        rc = nt_fail(err, NT_E_INVAL, 0, "sizes: longer than 255");
    }
    if (rc == 0) {
        nt_spec_init(spec);
        spec->nsizes = 0;
        rc = nt_wrap(err, nt_spec_add_sizes(spec, text, err), "sizes");
    }
    if (rc == 0) {
        (void)json_object_set_new(out, "sizes", json_string(text));
    }
    free(spec);
    return rc;
}

static int take_effort(const json_t *body, json_t *out, struct nt_err *err)
{
    const char *effort = NULL;
    int rc;
    if (json_object_get(body, "effort") == NULL) {
        return 0;
    }
    rc = nt_json_str(body, "effort", &effort, err);
    if (rc == 0 && nt_vocab_find(nt_effort_names, "effort", effort, err) < 0) {
        rc = -NT_E_INVAL;
    }
    if (rc == 0) {
        (void)json_object_set_new(out, "effort", json_string(effort));
    }
    return rc;
}

int nt_jobs_check_ask(const struct nt_config *c, const json_t *body, struct nt_buf *out,
                      struct nt_err *err)
{
    json_t *ask = json_object();
    int rc = ask == NULL ? nt_fail(err, NT_E_NOMEM, 0, "job") : 0;
    (void)c;

    rc = rc == 0 ? take_words(body, "collectives", nt_coll_names, ask, err) : rc;
    rc = rc == 0 ? take_words(body, "modes", nt_mode_names, ask, err) : rc;
    rc = rc == 0 ? take_words(body, "dtypes", nt_dtype_names, ask, err) : rc;
    rc = rc == 0 ? take_sizes(body, ask, err) : rc;
    rc = rc == 0 ? take_effort(body, ask, err) : rc;
    rc = rc == 0 ? take_number(body, "budget_s", 1, 604800, ask, err) : rc;
    rc = rc == 0 ? take_number(body, "seed", 0, INT64_C(9007199254740991), ask, err) : rc;
    rc = rc == 0 ? take_number(body, "profile", 1, INT64_MAX, ask, err) : rc;
    if (rc == 0) {
        nt_json_dump(ask, false, out);
    }
    json_decref(ask);
    return rc;
}

/* --- the command line of a job ------------------------------------------------------------------
 */

static void word(struct nt_command_words *c, const char *text, size_t len)
{
    if (c->n + 1 < NT_CHILD_ARGS) {
        c->at[c->n++] = c->text.len;
        nt_buf_add(&c->text, text, len);
        nt_buf_add(&c->text, "", 1);
    } else {
        c->text.failed = true;
    }
}

static void option(struct nt_command_words *c, const char *name, const char *value)
{
    if (value != NULL && value[0] != '\0') {
        word(c, name, strlen(name));
        word(c, value, strlen(value));
    }
}

static void flag(struct nt_command_words *c, const char *name, bool value)
{
    if (value) {
        word(c, name, strlen(name));
    }
}

static void number_option(struct nt_command_words *c, const char *name, uint64_t value,
                          const char *unit)
{
    char text[32];
    if (value != 0) {
        (void)snprintf(text, sizeof(text), "%" PRIu64 "%s", value, unit);
        option(c, name, text);
    }
}

/* Each blank-separated word of the list. */
static void list_option(struct nt_command_words *c, const char *name, const char *list)
{
    for (list += strspn(list, " "); *list != '\0'; list += strspn(list, " ")) {
        size_t n = strcspn(list, " ");
        word(c, name, strlen(name));
        word(c, list, n);
        list += n;
    }
}

static void joined(struct nt_command_words *c, const char *name, const json_t *ask,
                   const char *member, const char *otherwise)
{
    const json_t *list = json_object_get(ask, member), *x;
    struct nt_buf b;
    size_t i;

    if (list == NULL) {
        option(c, name, otherwise);
        return;
    }
    nt_buf_init(&b, 4096);
    json_array_foreach(list, i, x)
    {
        nt_buf_printf(&b, "%s%s", i > 0 ? "," : "", json_string_value(x));
    }
    option(c, name, nt_buf_str(&b));
    nt_buf_done(&b);
}

/* What tune and check share. */
static void rig_words(struct nt_command_words *c, const struct nt_service *s,
                      const struct nt_config_rig *r)
{
    option(c, "--rig", r->rig);
    option(c, "--db", s->database);
    option(c, "--format", "json");
    option(c, "--devices", r->devices);
    option(c, "--nccl", r->nccl);
    option(c, "--pace", r->pace);
    list_option(c, "--fix", r->fix);
    list_option(c, "--env", r->env);
}

static void check_words(struct nt_command_words *c, const struct nt_service *s,
                        const struct nt_config_rig *r, const struct nt_store_entry *e, int64_t run)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%lld", (long long)run);
    word(c, s->o->program, strlen(s->o->program));
    word(c, "check", 5);
    word(c, text, strlen(text));
    rig_words(c, s, r);
    number_option(c, "--seed", (uint64_t)e->id, "");
}

static void tune_words(struct nt_command_words *c, const struct nt_service *s,
                       const struct nt_config_rig *r, const struct nt_store_entry *e,
                       const json_t *ask)
{
    word(c, s->o->program, strlen(s->o->program));
    word(c, "tune", 4);
    rig_words(c, s, r);
    option(c, "--ticket", e->key);
    option(c, "--out", "/dev/null");
    option(c, "--progress", "json");
    option(c, "--workload", r->workload);
    number_option(c, "--ranks", r->ranks, "");
    joined(c, "--collectives", ask, "collectives", r->collectives);
    joined(c, "--modes", ask, "modes", r->modes);
    joined(c, "--dtypes", ask, "dtypes", r->dtypes);
    option(c, "--sizes", nt_json_opt_str(ask, "sizes", r->sizes));
    option(c, "--effort", nt_json_opt_str(ask, "effort", r->effort));
    flag(c, "--no-groups", r->no_groups);
    flag(c, "--no-overlap", r->no_overlap);
    number_option(c, "--budget",
                  (uint64_t)nt_json_opt_i64(ask, "budget_s", 0) != 0
                      ? (uint64_t)nt_json_opt_i64(ask, "budget_s", 0)
                      : (r->budget_ns + 999999999) / 1000000000, /* up: 0 would be none */
                  "s");
    if (json_object_get(ask, "seed") != NULL) { /* 0 is one, too */
        char text[24];
        (void)snprintf(text, sizeof(text), "%" PRId64, nt_json_opt_i64(ask, "seed", 0));
        option(c, "--seed", text);
    }
}

int nt_command_make(struct nt_command_words *c, const struct nt_service *s,
                    const struct nt_config_rig *r, const struct nt_store_entry *e, int64_t run,
                    struct nt_err *err)
{
    json_t *ask = NULL;
    int rc = nt_json_parse(e->ask, strlen(e->ask), "the stored job", &ask, err);

    *c = (struct nt_command_words){.n = 0};
    nt_buf_init(&c->text, 1 << 16);
    if (rc == 0) {
        if (e->kind == NT_QUEUE_CHECK) {
            check_words(c, s, r, e, run);
        } else {
            tune_words(c, s, r, e, ask);
        }
        rc = c->text.failed ? nt_fail(err, NT_E_INVAL, 0, "its command line is too long") : 0;
    }
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        c->v[i] = c->text.data + c->at[i];
    }
    json_decref(ask);
    return rc;
}

void nt_command_done(struct nt_command_words *c)
{
    nt_buf_done(&c->text);
}
