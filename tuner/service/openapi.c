/* The OpenAPI document, printed from the table of routes and the schemas of schemas.json. */
#include "tuner/base/json.h"
#include "tuner/service/api.h"
#include "tuner/service/assets.h"
#include "tuner/service/service.h"

#include <stdio.h>
#include <string.h>

static json_t *ref(const char *schema)
{
    char text[96];
    (void)snprintf(text, sizeof(text), "#/components/schemas/%s", schema);
    return json_pack("{s:s}", "$ref", text);
}

static json_t *content(const char *type, json_t *schema)
{
    return json_pack("{s:{s:o}}", type, "schema", schema);
}

static json_t *words_json(const char *const *words)
{
    json_t *list = json_array();
    for (; *words != NULL; words++) {
        (void)json_array_append_new(list, json_string(*words));
    }
    return list;
}

static json_t *param_schema(const struct nt_param *p)
{
    json_t *o = json_pack("{s:s}", "type", p->type);
    bool number = strcmp(p->type, "integer") == 0;
    if (p->words != NULL) {
        (void)json_object_set_new(o, "enum", words_json(p->words));
    } else if (number || p->min > 0) {
        (void)json_object_set_new(o, number ? "minimum" : "minLength", json_integer(p->min));
    }
    if (p->words == NULL && p->max > 0) {
        (void)json_object_set_new(o, number ? "maximum" : "maxLength", json_integer(p->max));
    }
    return o;
}

/* The parameters inside a path. */
static void path_params(const char *path, json_t *list)
{
    for (const char *at = strchr(path, '{'); at != NULL; at = strchr(at + 1, '{')) {
        size_t n = strcspn(at, "}");
        char name[32];
        json_t *schema;
        (void)snprintf(name, sizeof(name), "%.*s", (int)n - 1, at + 1);
        schema =
            strcmp(name, "id") == 0
                ? json_pack("{s:s, s:s, s:i}", "type", "integer", "format", "int64", "minimum", 1)
                : json_pack("{s:s, s:s, s:i, s:i}", "type", "string", "pattern",
                            "^[A-Za-z0-9._-]+$", "minLength", 1, "maxLength", NT_PATH_TEXT - 1);
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:o}", "name", name, "in",
                                                    "path", "required", 1, "schema", schema));
    }
}

static json_t *parameters(const struct nt_route *r)
{
    json_t *list = json_array();
    path_params(r->path, list);
    for (const struct nt_param *p = r->params; p != NULL && p->name != NULL; p++) {
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:s, s:s, s:b, s:o}", "name", p->name, "in",
                                              "query", "description", p->help, "required",
                                              (int)p->required, "schema", param_schema(p)));
    }
    return list;
}

static void answer(json_t *answers, const char *status, const char *words)
{
    (void)json_object_set_new(answers, status,
                              json_pack("{s:s, s:o}", "description", words, "content",
                                        content("application/json", ref("Error"))));
}

static json_t *responses(const struct nt_route *r)
{
    json_t *all = json_object(), *good;
    char status[16];
    bool works = r->how != NT_ON_LOOP || strcmp(r->method, "GET") != 0 || r->gives != NULL;

    (void)snprintf(status, sizeof(status), "%u", r->status);
    good = json_pack("{s:s}", "description", r->summary);
    if (r->gives != NULL) {
        (void)json_object_set_new(good, "content", content("application/json", ref(r->gives)));
    } else if (r->type != NULL) {
        (void)json_object_set_new(good, "content",
                                  content(r->type, json_pack("{s:s}", "type", "string")));
    }
    (void)json_object_set_new(all, status, good);
    if (r->keep != NT_KEEP_NOT) {
        (void)json_object_set_new(all, "304", json_pack("{s:s}", "description", "not changed"));
    }
    answer(all, "400", "bad input");
    answer(all, "403", "the role does not reach, or another site's page asked");
    if (r->role != NT_ROLE_NONE) {
        answer(all, "401", "no valid token");
    }
    if (strchr(r->path, '{') != NULL || r->how == NT_ON_WORK) {
        answer(all, "404", "not there");
    }
    if (strcmp(r->method, "GET") != 0 || r->how == NT_ON_WORK) {
        answer(all, "409", "refused, for the reason that it says");
    }
    if (r->body != NULL) {
        answer(all, "413", "the body is too large");
        answer(all, "415", "the body is not application/json");
    }
    if (works) {
        answer(all, "503", "the database cannot be used now, or too many ask at once");
    }
    if (r->also != 0) {
        (void)snprintf(status, sizeof(status), "%u", r->also);
        (void)json_object_set_new(all, status,
                                  json_pack("{s:s, s:o}", "description", r->summary, "content",
                                            content("application/json", ref(r->gives))));
    }
    return all;
}

static json_t *operation(const struct nt_route *r)
{
    json_t *o =
        json_pack("{s:s, s:s, s:o, s:o}", "summary", r->summary, "x-role", nt_role_names[r->role],
                  "parameters", parameters(r), "responses", responses(r));
    if (r->body != NULL) {
        (void)json_object_set_new(o, "requestBody",
                                  json_pack("{s:b, s:o}", "required", 1, "content",
                                            content("application/json", ref(r->body))));
    }
    if (r->role != NT_ROLE_NONE) {
        (void)json_object_set_new(o, "security", json_pack("[{s:[]}]", "token"));
    }
    return o;
}

static void lower(const char *method, char *out, size_t size)
{
    size_t i = 0;
    for (; method[i] != '\0' && i + 1 < size; i++) {
        out[i] = (char)(method[i] | 0x20);
    }
    out[i] = '\0';
}

void nt_service_openapi(const char *version, struct nt_buf *out)
{
    json_t *paths = json_object(), *schemas = NULL, *doc;
    struct nt_err err = {0};

    for (const struct nt_route *r = nt_routes; r->path != NULL; r++) {
        json_t *path = json_object_get(paths, r->path);
        char method[8];
        if (path == NULL) {
            path = json_object();
            (void)json_object_set_new(paths, r->path, path);
        }
        lower(r->method, method, sizeof(method));
        (void)json_object_set_new(path, method, operation(r));
    }
    nt_assert(nt_json_parse(nt_schemas_json, nt_schemas_json_len, "schemas", &schemas, &err) == 0);
    doc = json_pack("{s:s, s:{s:s, s:s, s:s}, s:o, s:{s:o, s:{s:{s:s, s:s}}}}", "openapi", "3.0.3",
                    "info", "title", "nccltune", "version", version, "description",
                    "Tuning jobs, profiles and measurements of one machine or fleet. Times are "
                    "milliseconds since 1970 (_ms) or as the unit in the name says.",
                    "paths", paths, "components", "schemas", schemas, "securitySchemes", "token",
                    "type", "http", "scheme", "bearer");
    nt_json_dump(doc, true, out);
    json_decref(doc);
}
