/* Which profile is for a machine, and why not the others. */
#include "profiles/json/profile.h"
#include "tuner/base/json.h"
#include "tuner/deliver/fit.h"
#include "tuner/service/service_i.h"

#include <stdio.h>
#include <string.h>

enum { CONSIDERED_MAX = 1000, TOLD_MAX = 100 };

struct wanted {
    const char *identity; /* its name */
    bool grouped;         /* and its groups of facts: */
    struct nt_identity groups;
    const char *nccl, *driver, *gpu, *placement; /* NULL: not said */
    int64_t ranks, nodes;                        /* 0: not said */
    int allow;                                   /* enum nt_rig; -1: a real node only */
};

struct match {
    const struct nt_exchange *x;
    struct wanted want;
    json_t *considered, *best, *best_notes;
    unsigned best_score;
};

static void note(json_t *list, const char *what, const char *theirs, const char *asked)
{
    (void)json_array_append_new(list,
                                json_sprintf("%s: made for %s, asked for %s", what, theirs, asked));
}

/* --- what keeps a profile from serving at all ---------------------------------------------------
 */

struct made_on {
    struct nt_identity id;
    bool read;
};

static int take_identity(void *data, const struct nt_store_profile *row, struct nt_err *err)
{
    struct made_on *m = data;
    struct nt_profile *p = NULL;
    (void)err;
    if (nt_profile_parse(row->json, strlen(row->json), "a stored profile", &p, NULL) == 0) {
        nt_profile_identity(p, &m->id);
        m->read = true;
    }
    nt_profile_free(p);
    return 0;
}

/* Two machines by the facts that both know; by their names where only those are told. */
static void look_at_identity(const struct match *m, const struct nt_store_profile *p, json_t *why)
{
    struct made_on made = {.read = false};
    uint32_t differ, compared = 0;
    char mask[160];

    if (strcmp(m->want.identity, p->identity) == 0) {
        return;
    }
    if (!m->want.grouped ||
        nt_store_profile_load(m->x->store, p->id, take_identity, &made, NULL) != 0 || !made.read) {
        note(why, "identity", p->identity, m->want.identity);
        return;
    }
    differ = nt_identity_compare(&made.id, &m->want.groups, &compared);
    if (compared == 0 || differ != 0) {
        (void)json_array_append_new(
            why, json_sprintf("identity: made for %s, asked for %s: other %s", p->identity,
                              m->want.identity,
                              compared == 0 ? "facts, nothing can be compared"
                                            : nt_group_mask_text(differ, mask, sizeof(mask))));
    }
}

static void count_differs(json_t *why, const char *what, uint32_t theirs, int64_t asked)
{
    if (asked != 0 && asked != theirs) {
        (void)json_array_append_new(
            why, json_sprintf("%s: made for %u, asked for %lld", what, theirs, (long long)asked));
    }
}

static void obstacles(const struct match *m, const struct nt_store_profile *p, json_t *why)
{
    const struct wanted *w = &m->want;

    count_differs(why, "ranks", p->ranks, w->ranks);
    count_differs(why, "nodes", p->nodes, w->nodes);
    if (w->placement != NULL && strcmp(w->placement, p->placement) != 0) {
        note(why, "placement", p->placement, w->placement);
    }
    if (strcmp(p->rig, nt_rig_names[NT_RIG_NCCL]) != 0 &&
        (w->allow < 0 || strcmp(p->rig, nt_rig_names[w->allow]) != 0)) {
        (void)json_array_append_new(
            why, json_sprintf("rig: measured on %s, which is no real node; allow_rig=%s takes it",
                              p->rig, p->rig));
    }
    if (p->state == NT_PS_WITHHELD || p->state == NT_PS_RETIRED) {
        (void)json_array_append_new(
            why, json_sprintf("%s: %s", nt_profile_state_names[p->state], p->why));
    }
    look_at_identity(m, p, why);
}

/* What is said beside a profile that serves: another stack does not rule it out, and is worse. */
static unsigned nearness(const struct match *m, const struct nt_store_profile *p, json_t *notes)
{
    const struct {
        const char *name, *theirs, *asked;
        unsigned weight;
    } stack[] = {{"nccl", p->nccl, m->want.nccl, 4},
                 {"driver", p->driver, m->want.driver, 2},
                 {"gpu", p->gpu, m->want.gpu, 1}};
    unsigned score = p->state == NT_PS_CURRENT ? 8 : 0;

    for (size_t i = 0; i < sizeof(stack) / sizeof(stack[0]); i++) {
        if (stack[i].asked == NULL || strcmp(stack[i].asked, stack[i].theirs) == 0) {
            score += stack[i].weight;
        } else {
            note(notes, stack[i].name, stack[i].theirs, stack[i].asked);
        }
    }
    if (p->site[0] != '\0') {
        (void)json_array_append_new(notes, json_sprintf("site constraints: %s", p->site));
    }
    if (p->state == NT_PS_STALE) {
        (void)json_array_append_new(notes, json_sprintf("stale: %s", p->why));
    }
    return score;
}

static int consider(void *data, const struct nt_store_profile *p, struct nt_err *err)
{
    struct match *m = data;
    json_t *why = json_array(), *notes = json_array();
    (void)err;

    obstacles(m, p, why);
    if (json_array_size(why) == 0) {
        unsigned score = nearness(m, p, notes);
        if (m->best == NULL || score > m->best_score) { /* of equal ones the newest, seen first */
            json_decref(m->best);
            json_decref(m->best_notes);
            m->best = nt_profile_row_json(p);
            m->best_notes = json_incref(notes);
            m->best_score = score;
        }
        (void)json_array_extend(why, notes);
    }
    if (json_array_size(m->considered) < TOLD_MAX) {
        (void)json_array_append_new(
            m->considered, json_pack("{s:I, s:O}", "profile", (json_int_t)p->id, "why", why));
    }
    json_decref(why);
    json_decref(notes);
    return 0;
}

static int answer(struct nt_exchange *x, const struct wanted *want, struct nt_err *err)
{
    struct match m = {.x = x, .want = *want, .considered = json_array()};
    json_t *o;
    int rc = nt_store_profile_list(x->store, 0, CONSIDERED_MAX, consider, &m, err);

    if (rc != 0) {
        json_decref(m.considered);
        json_decref(m.best);
        json_decref(m.best_notes);
        return rc;
    }
    o = json_pack("{s:b, s:o}", "found", m.best != NULL, "considered", m.considered);
    if (o != NULL && m.best != NULL) {
        (void)json_object_set_new(o, "exact", json_boolean(json_array_size(m.best_notes) == 0));
        (void)json_object_set_new(o, "profile", m.best);
        (void)json_object_set_new(o, "notes", m.best_notes);
    }
    return nt_reply_json(x, o, err);
}

int nt_api_profile_match(struct nt_exchange *x, struct nt_err *err)
{
    const char *rig = nt_http_arg(x->r, "allow_rig");
    const struct wanted w = {.identity = nt_http_arg(x->r, "identity"),
                             .nccl = nt_http_arg(x->r, "nccl"),
                             .driver = nt_http_arg(x->r, "driver"),
                             .gpu = nt_http_arg(x->r, "gpu"),
                             .placement = nt_http_arg(x->r, "placement"),
                             .ranks = nt_reply_number(x, "ranks", 0),
                             .nodes = nt_reply_number(x, "nodes", 0),
                             .allow =
                                 rig != NULL ? nt_vocab_find(nt_rig_names, "rig", rig, NULL) : -1};
    return answer(x, &w, err);
}

static int body_text(const json_t *o, const char *name, const char **ret, struct nt_err *err)
{
    return json_object_get(o, name) != NULL ? nt_json_str(o, name, ret, err) : 0;
}

static int body_count(const json_t *o, const char *name, int64_t *ret, struct nt_err *err)
{
    int rc = json_object_get(o, name) != NULL ? nt_json_i64(o, name, ret, err) : 0;
    return rc == 0 && (*ret < 0 || *ret > 65536)
               ? nt_fail(err, NT_E_INVAL, 0, "%s: between 0 and 65536", name)
               : rc;
}

/* With all facts of the machine: sources know different ones, and are compared over what both know.
 */
int nt_api_profile_match_facts(struct nt_exchange *x, struct nt_err *err)
{
    static const char *const known[] = {"identity", "nccl",      "driver",    "gpu", "ranks",
                                        "nodes",    "placement", "allow_rig", NULL};
    struct wanted w = {.allow = -1, .grouped = true};
    const char *rig = NULL;
    json_t *o = NULL, *identity = NULL;
    int rc = nt_reply_body(x, known, &o, err);

    rc = rc == 0 ? nt_json_obj(o, "identity", &identity, err) : rc;
    rc = rc == 0 ? nt_identity_parse(identity, &w.groups, err) : rc;
    rc = rc == 0 ? body_text(o, "nccl", &w.nccl, err) : rc;
    rc = rc == 0 ? body_text(o, "driver", &w.driver, err) : rc;
    rc = rc == 0 ? body_text(o, "gpu", &w.gpu, err) : rc;
    rc = rc == 0 ? body_text(o, "placement", &w.placement, err) : rc;
    rc = rc == 0 ? body_text(o, "allow_rig", &rig, err) : rc;
    rc = rc == 0 ? body_count(o, "ranks", &w.ranks, err) : rc;
    rc = rc == 0 ? body_count(o, "nodes", &w.nodes, err) : rc;
    if (rc == 0 && rig != NULL) {
        w.allow = nt_vocab_find(nt_rig_names, "rig", rig, err);
        rc = w.allow < 0 ? w.allow : 0;
    }
    if (rc == 0) {
        w.identity = w.groups.name;
        rc = answer(x, &w, err);
    }
    json_decref(o);
    return rc;
}
