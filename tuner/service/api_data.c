/* Routes of what was measured: runs, views, topologies, what happened. */
#include "tuner/base/json.h"
#include "tuner/service/service_i.h"
#include "tuner/topology/topology.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct nt_query_limits limits = {
    .time_ns = 2000000000, .rows = 1000, .bytes = 16 << 20};

static json_t *value_json(const struct nt_value *v)
{
    static const char hex[] = "0123456789abcdef";
    struct nt_buf b;
    json_t *o;
    switch (v->type) {
    case NT_VALUE_INT:
        return json_integer((json_int_t)v->i);
    case NT_VALUE_REAL:
        return isfinite(v->r) ? json_real(v->r) : json_null();
    case NT_VALUE_TEXT:
        o = json_stringn(v->text, v->len);
        return o != NULL ? o : json_string("(not UTF-8)");
    case NT_VALUE_BLOB:
        nt_buf_init(&b, 256);
        for (size_t i = 0; i < v->len && i < 64; i++) {
            unsigned char c = (unsigned char)v->text[i];
            nt_buf_printf(&b, "%c%c", hex[c >> 4], hex[c & 15]);
        }
        o = json_string(nt_buf_str(&b));
        nt_buf_done(&b);
        return o;
    default:
        return json_null();
    }
}

/* --- rows as objects ----------------------------------------------------------------------------
 */

static int add_object(void *list, unsigned n, const char *const *names,
                      const struct nt_value *values, struct nt_err *err)
{
    json_t *o;
    if (values == NULL) {
        return 0;
    }
    o = json_object();
    for (unsigned i = 0; i < n; i++) {
        if (values[i].type != NT_VALUE_NULL) {
            (void)json_object_set_new(o, names[i], value_json(&values[i]));
        }
    }
    return json_array_append_new(list, o) != 0 ? nt_fail(err, NT_E_NOMEM, 0, "rows") : 0;
}

static int list_of(struct nt_exchange *x, enum nt_store_list which, const struct nt_value *args,
                   size_t n, json_t **ret, struct nt_err *err)
{
    json_t *list = json_array();
    int rc = nt_store_query(x->store, nt_store_list_sql(which), args, n, &limits, add_object, list,
                            NULL, err);
    if (rc != 0) {
        json_decref(list);
        return rc;
    }
    *ret = list;
    return 0;
}

/* A member that holds JSON as text becomes that JSON. */
static void unfold(json_t *o, const char *name, const char *as)
{
    const char *text = json_string_value(json_object_get(o, name));
    json_t *inner = NULL;
    if (text != NULL && (text[0] == '{' || text[0] == '[') &&
        nt_json_parse(text, strlen(text), name, &inner, NULL) == 0) {
        (void)json_object_set_new(o, as, inner);
        if (strcmp(name, as) != 0) {
            (void)json_object_del(o, name);
        }
    }
}

int nt_api_log(struct nt_exchange *x, struct nt_err *err)
{
    const struct nt_value args[] = {{.type = NT_VALUE_INT, .i = nt_reply_number(x, "before", 0)},
                                    {.type = NT_VALUE_INT, .i = nt_reply_number(x, "limit", 100)}};
    json_t *list = NULL, *o;
    size_t i;
    int rc = list_of(x, NT_LIST_EVENTS, args, 2, &list, err);

    if (rc != 0) {
        return rc;
    }
    json_array_foreach(list, i, o)
    {
        json_t *job = json_object_get(o, "job");
        unfold(o, "text", "data");
        if (job != NULL) {
            (void)json_object_set(o, "run", job);
            (void)json_object_del(o, "job");
        }
    }
    return nt_reply_json(x, json_pack("{s:o}", "events", list), err);
}

static void fix_topology(json_t *o)
{
    const char *xml = json_string_value(json_object_get(o, "xml"));
    struct nt_topology *t = NULL;
    struct nt_buf drawing;

    unfold(o, "health", "health");
    if (!json_is_array(json_object_get(o, "health"))) {
        (void)json_object_del(o, "health");
    }
    nt_buf_init(&drawing, 1 << 20);
    if (xml != NULL && xml[0] != '\0' && nt_topology_read_text(xml, strlen(xml), &t, NULL) == 0) {
        nt_topology_draw(t, 100, &drawing);
        (void)json_object_set_new(o, "drawing", json_string(nt_buf_str(&drawing)));
    }
    nt_topology_free(t);
    nt_buf_done(&drawing);
    (void)json_object_del(o, "xml");
    (void)json_object_del(o, "json");
}

int nt_api_topologies(struct nt_exchange *x, struct nt_err *err)
{
    json_t *list = NULL, *o;
    size_t i;
    int rc = list_of(x, NT_LIST_TOPOLOGIES, NULL, 0, &list, err);
    if (rc != 0) {
        return rc;
    }
    json_array_foreach(list, i, o)
    {
        fix_topology(o);
    }
    return nt_reply_json(x, json_pack("{s:o}", "topologies", list), err);
}

int nt_api_topology(struct nt_exchange *x, struct nt_err *err)
{
    const struct nt_value args[] = {{.type = NT_VALUE_INT, .i = x->id}};
    json_t *list = NULL;
    int rc = list_of(x, NT_LIST_TOPOLOGY, args, 1, &list, err);
    if (rc == 0 && json_array_size(list) == 0) {
        rc = nt_fail(err, NT_E_MISSING, 0, "there is no topology %lld", (long long)x->id);
    }
    if (rc == 0) {
        fix_topology(json_array_get(list, 0));
        rc = nt_reply_json(x, json_incref(json_array_get(list, 0)), err);
    }
    json_decref(list);
    return rc;
}

/* --- runs ---------------------------------------------------------------------------------------
 */

struct runs {
    json_t *list;
    int64_t before;
    size_t limit;
    bool with_spec;
};

static int add_run(void *data, const struct nt_store_job *j, struct nt_err *err)
{
    struct runs *r = data;
    bool lost = j->state == NT_JOB_RUNNING && !j->owned;
    json_t *o;

    if ((r->before != 0 && j->id >= r->before) || json_array_size(r->list) >= r->limit) {
        return 0;
    }
    o = json_pack("{s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "id", (json_int_t)j->id,
                  "state", nt_job_state_names[lost ? NT_JOB_INTERRUPTED : j->state], "stage",
                  j->stage, "rig", nt_rig_names[j->rig], "ranks", (json_int_t)j->ranks, "nodes",
                  (json_int_t)j->nodes, "steps", (json_int_t)j->steps, "trials",
                  (json_int_t)j->trials, "created_ms", (json_int_t)j->created_ms, "device_ms",
                  (json_int_t)(j->device_ns / 1000000));
    if (o != NULL && j->finished_ms != 0) {
        (void)json_object_set_new(o, "finished_ms", json_integer((json_int_t)j->finished_ms));
    }
    if (o != NULL && r->with_spec) {
        (void)json_object_set_new(o, "spec", json_string(j->spec));
        unfold(o, "spec", "spec");
    }
    return json_array_append_new(r->list, o) != 0 ? nt_fail(err, NT_E_NOMEM, 0, "runs") : 0;
}

int nt_api_runs(struct nt_exchange *x, struct nt_err *err)
{
    struct runs r = {.list = json_array(),
                     .before = nt_reply_number(x, "before", 0),
                     .limit = (size_t)nt_reply_number(x, "limit", 100)};
    int rc = nt_store_job_list(x->store, add_run, &r, err);
    if (rc != 0) {
        json_decref(r.list);
        return rc;
    }
    return nt_reply_json(x, json_pack("{s:o}", "runs", r.list), err);
}

int nt_api_run(struct nt_exchange *x, struct nt_err *err)
{
    struct runs r = {.list = json_array(), .limit = 1, .with_spec = true};
    int rc = nt_store_job_load(x->store, x->id, add_run, &r, err);
    if (rc == -NT_E_INVAL) {
        rc = nt_fail(err, NT_E_MISSING, 0, "there is no run %lld", (long long)x->id);
    }
    rc = rc == 0 ? nt_reply_json(x, json_incref(json_array_get(r.list, 0)), err) : rc;
    json_decref(r.list);
    return rc;
}

/* --- views --------------------------------------------------------------------------------------
 */

int nt_api_views(struct nt_exchange *x, struct nt_err *err)
{
    json_t *list = json_array();
    for (const struct nt_store_view *v = nt_store_views; v->name != NULL; v++) {
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:s}", "name", v->name, "help", v->help));
    }
    return nt_reply_json(x, json_pack("{s:o}", "views", list), err);
}

struct table {
    json_t *columns, *rows;
    bool has_job;
};

static int add_values(void *data, unsigned n, const char *const *names,
                      const struct nt_value *values, struct nt_err *err)
{
    struct table *t = data;
    json_t *row = json_array();
    if (values == NULL) {
        for (unsigned i = 0; i < n; i++) {
            (void)json_array_append_new(t->columns, json_string(names[i]));
            t->has_job = t->has_job || strcmp(names[i], "job") == 0;
        }
        json_decref(row);
        return 0;
    }
    for (unsigned i = 0; i < n; i++) {
        (void)json_array_append_new(row, value_json(&values[i]));
    }
    return json_array_append_new(t->rows, row) != 0 ? nt_fail(err, NT_E_NOMEM, 0, "rows") : 0;
}

static bool view_has_job(const char *name)
{
    static const char *const without[] = {"measurements", "imports", "contenders", "best", NULL};
    for (const char *const *w = without; *w != NULL; w++) {
        if (strcmp(*w, name) == 0) {
            return false;
        }
    }
    return true;
}

int nt_api_view(struct nt_exchange *x, struct nt_err *err)
{
    const struct nt_value args[] = {{.type = NT_VALUE_INT, .i = nt_reply_number(x, "job", 0)},
                                    {.type = NT_VALUE_INT, .i = nt_reply_number(x, "limit", 100)},
                                    {.type = NT_VALUE_INT, .i = nt_reply_number(x, "offset", 0)}};
    struct table t = {.columns = json_array(), .rows = json_array()};
    const char *view = NULL;
    char sql[256];
    bool cut = false;
    int rc = nt_store_view_sql(x->param[0], &view, err);

    if (rc != 0) {
        rc = -NT_E_MISSING; /* a name in the path */
    } else if (args[0].i != 0 && !view_has_job(x->param[0])) {
        rc = nt_fail(err, NT_E_INVAL, 0, "job: the view %s has no such column", x->param[0]);
    } else {
        (void)snprintf(sql, sizeof(sql), "SELECT * FROM (%s) WHERE (?1 = 0%s) LIMIT ?2 OFFSET ?3",
                       view, args[0].i != 0 ? " OR job = ?1" : "");
        rc = nt_store_query(x->store, sql, args, 3, &limits, add_values, &t, &cut, err);
    }
    if (rc != 0) {
        json_decref(t.columns);
        json_decref(t.rows);
        return rc;
    }
    return nt_reply_json(
        x, json_pack("{s:o, s:o, s:b}", "columns", t.columns, "rows", t.rows, "cut", cut), err);
}
