/* Routes of profiles: lists, documents, forms, and which one is for a machine. */
#include "profiles/export/export.h"
#include "profiles/json/profile.h"
#include "tuner/base/json.h"
#include "tuner/service/service_i.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *nt_profile_row_json(const struct nt_store_profile *p)
{
    json_t *o = json_pack("{s:I, s:I, s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "id",
                          (json_int_t)p->id, "run", (json_int_t)p->job, "state",
                          nt_profile_state_names[p->state], "created_ms", (json_int_t)p->created_ms,
                          "rig", p->rig, "identity", p->identity, "gpu", p->gpu, "nccl", p->nccl,
                          "driver", p->driver, "placement", p->placement, "ranks",
                          (json_int_t)p->ranks, "nodes", (json_int_t)p->nodes);
    if (o != NULL && p->site[0] != '\0') {
        (void)json_object_set_new(o, "site", json_string(p->site));
    }
    if (o != NULL && p->why[0] != '\0') {
        (void)json_object_set_new(o, "why", json_string(p->why));
    }
    return o;
}

static int add_row(void *list, const struct nt_store_profile *p, struct nt_err *err)
{
    return json_array_append_new(list, nt_profile_row_json(p)) != 0
               ? nt_fail(err, NT_E_NOMEM, 0, "profiles")
               : 0;
}

int nt_api_profiles(struct nt_exchange *x, struct nt_err *err)
{
    json_t *list = json_array();
    int rc = nt_store_profile_list(x->store, nt_reply_number(x, "before", 0),
                                   (unsigned)nt_reply_number(x, "limit", 100), add_row, list, err);
    if (rc != 0) {
        json_decref(list);
        return rc;
    }
    return nt_reply_json(x, json_pack("{s:o}", "profiles", list), err);
}

/* --- one ----------------------------------------------------------------------------------------
 */

static int handed_out(const struct nt_store_profile *p, struct nt_err *err)
{
    return p->state == NT_PS_WITHHELD
               ? nt_fail(err, NT_E_NO, 0, "profile %lld is withheld: %s", (long long)p->id, p->why)
               : 0;
}

static int give_document(void *data, const struct nt_store_profile *p, struct nt_err *err)
{
    struct nt_exchange *x = data;
    struct nt_http_answer *a = &x->r->answer;
    int rc = handed_out(p, err);
    if (rc == 0) {
        a->status = 200;
        a->type = "application/json";
        (void)snprintf(a->etag, sizeof(a->etag), "\"%.64s\"", p->hash);
        nt_buf_puts(&a->body, p->json);
        rc = a->body.failed ? nt_fail(err, NT_E_NOMEM, 0, "profile") : 0;
    }
    return rc;
}

int nt_api_profile(struct nt_exchange *x, struct nt_err *err)
{
    return nt_store_profile_load(x->store, x->id, give_document, x, err);
}

struct parsed {
    struct nt_profile *p;
};

static int parse_it(void *data, const struct nt_store_profile *p, struct nt_err *err)
{
    int rc = handed_out(p, err);
    return rc == 0 ? nt_profile_parse(p->json, strlen(p->json), "the stored profile",
                                      &((struct parsed *)data)->p, err)
                   : rc;
}

static int load(struct nt_exchange *x, struct nt_profile **ret, struct nt_err *err)
{
    struct parsed got = {NULL};
    int rc = nt_store_profile_load(x->store, x->id, parse_it, &got, err);
    if (rc == 0) {
        *ret = got.p;
    }
    return rc;
}

static int allowed_rig(const struct nt_exchange *x)
{
    const char *text = nt_http_arg(x->r, "allow_rig");
    return text != NULL ? nt_vocab_find(nt_rig_names, "rig", text, NULL) : -1;
}

static int check_rig(const struct nt_exchange *x, const struct nt_profile *p, struct nt_err *err)
{
    return p->rig == NT_RIG_NCCL || (int)p->rig == allowed_rig(x)
               ? 0
               : nt_fail(err, NT_E_NO, 0,
                         "profile %lld was measured on the functional rig %s: allow_rig=%s hands "
                         "it out",
                         (long long)x->id, nt_rig_names[p->rig], nt_rig_names[p->rig]);
}

static bool wants_static(const struct nt_exchange *x)
{
    const char *text = nt_http_arg(x->r, "product");
    return text != NULL && strcmp(text, "static") == 0;
}

int nt_api_profile_export(struct nt_exchange *x, struct nt_err *err)
{
    struct nt_http_answer *a = &x->r->answer;
    struct nt_export_options o = {.variables_only = wants_static(x), .allow_rig = allowed_rig(x)};
    const struct nt_export_format *format = nt_export_find(x->param[1], err);
    const char *nccl = nt_http_arg(x->r, "nccl");
    struct nt_profile *p = NULL;
    struct nt_buf notes;
    int rc;

    if (format == NULL) { /* a name in the path */
        return -NT_E_MISSING;
    }
    nt_buf_init(&notes, 1 << 20);
    rc = nccl != NULL ? nt_wrap(err, nt_nccl_version_parse(nccl, &o.nccl, err), "nccl") : 0;
    rc = rc == 0 ? load(x, &p, err) : rc;
    rc = rc == 0 ? check_rig(x, p, err) : rc;
    rc = rc == 0 ? nt_export(p, format, &o, &a->body, &notes, err) : rc;
    if (rc == 0) {
        a->status = 200;
        a->type = x->route->type;
        (void)snprintf(a->name, sizeof(a->name), "nccltune-%lld.%s", (long long)x->id,
                       format->name);
    }
    nt_buf_done(&notes);
    nt_profile_free(p);
    return rc;
}

int nt_api_profile_table(struct nt_exchange *x, struct nt_err *err)
{
    struct nt_http_answer *a = &x->r->answer;
    struct nt_profile *p = NULL;
    char hash[65];
    int rc = load(x, &p, err);

    rc = rc == 0 ? check_rig(x, p, err) : rc;
    rc = rc == 0 ? nt_profile_delivery(p, NT_TABLE, &a->body, hash, err) : rc;
    if (rc == 0) {
        a->status = 200;
        a->type = x->route->type;
        (void)snprintf(a->etag, sizeof(a->etag), "\"%s\"", hash);
        (void)snprintf(a->name, sizeof(a->name), "%s.nctable", hash);
    }
    nt_profile_free(p);
    return rc;
}

int nt_api_profile_decide(struct nt_exchange *x, struct nt_err *err)
{
    struct nt_http_answer *a = &x->r->answer;
    const char *mode = nt_http_arg(x->r, "mode");
    struct nt_profile *p = NULL;
    struct nt_profile_choice d;
    int coll = nt_vocab_find(nt_coll_names, "collective", nt_http_arg(x->r, "collective"), err);
    int which = mode != NULL ? nt_vocab_find(nt_mode_names, "mode", mode, err) : -1;
    int rc = load(x, &p, err);

    rc = rc == 0 ? nt_profile_choose(p, wants_static(x) ? NT_STATIC : NT_TABLE, coll,
                                     (uint64_t)nt_reply_number(x, "bytes", 0), which, &d, err)
                 : rc;
    rc = rc == 0 ? nt_profile_choice_json(p, &d, false, &a->body, err) : rc;
    if (rc == 0) {
        a->status = 200;
        a->type = "application/json";
    }
    nt_profile_free(p);
    return rc;
}

int nt_api_profile_state(struct nt_exchange *x, struct nt_err *err)
{
    static const char *const known[] = {"state", "why", NULL};
    static const char *const states[] = {"current", "withheld", "retired", NULL};
    const char *state = NULL, *why = "", *word;
    json_t *o = NULL, *list = json_array();
    char text[256];
    int rc = nt_reply_body(x, known, &o, err), which = 0;

    rc = rc == 0 ? nt_json_str(o, "state", &state, err) : rc;
    rc = rc == 0 && json_object_get(o, "why") != NULL ? nt_json_str(o, "why", &why, err) : rc;
    if (rc == 0 && strlen(why) > 200) {
        rc = nt_fail(err, NT_E_INVAL, 0, "why: at most 200 bytes");
    }
    if (rc == 0 && nt_vocab_find(states, "state", state, err) < 0) {
        rc = -NT_E_INVAL;
    }
    rc = rc == 0 ? nt_store_profile_load(x->store, x->id, add_row, list, err) : rc;
    if (rc == 0) {
        which = nt_vocab_find(nt_profile_state_names, "state", state, err);
        (void)snprintf(text, sizeof(text), "%s%sby %.31s", why, why[0] != '\0' ? ", " : "", x->who);
        rc = nt_service_wrote(
            x->s,
            nt_store_profile_set_state(x->store, x->id, (enum nt_profile_state)which, text, err),
            err);
    }
    if (rc == 0) {
        x->s->version_ms = 0; /* looked at anew with the next request */
        word = nt_profile_state_names[which];
        nt_service_event(
            x->s, "profile", 0,
            json_pack("{s:I, s:s, s:s}", "profile", (json_int_t)x->id, "state", word, "why", text),
            true);
        json_array_clear(list);
        rc = nt_store_profile_load(x->store, x->id, add_row, list, err);
    }
    rc = rc == 0 ? nt_reply_json(x, json_incref(json_array_get(list, 0)), err) : rc;
    json_decref(list);
    json_decref(o);
    return rc;
}
