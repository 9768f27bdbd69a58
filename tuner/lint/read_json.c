/* JSON with an environment: Ray's runtime_env, devcontainer, Docker's API, launch files. */
#include <stdio.h>
#include <string.h>

#include "tuner/lint/internal.h"

struct doc {
    struct nt_lint_file *f;
    const char *text;
    size_t len;
    size_t found; /* variables and refusals */
    size_t at;    /* where the last key was found, on this line */
    uint32_t line;
    unsigned missed; /* keys that were not found */
    const char *who; /* reads it */
};

/* jansson keeps no places: the line of the next "key" in the text. Members come in their order, so
 * that the search goes on from the last one: from the top each time, it takes minutes for a file
 * of many keys. One that is not there (it is written with escapes) keeps the line; after a hundred
 * of them nothing is looked for. */
static uint32_t line_of(struct doc *d, const char *key)
{
    char quoted[300];
    int n = snprintf(quoted, sizeof(quoted), "\"%.250s\"", key);
    const char *p =
        d->missed < 100 ? memmem(d->text + d->at, d->len - d->at, quoted, (size_t)n) : NULL;
    d->missed += p == NULL;
    for (; p != NULL && d->text + d->at < p; d->at++) {
        d->line += d->text[d->at] == '\n';
    }
    return d->line;
}

static void value(struct doc *d, const char *name, const json_t *v)
{
    char text[64];
    const char *s = text, *type = NULL;
    size_t len;
    if (json_is_string(v)) {
        s = json_string_value(v);
    } else if (json_is_integer(v)) {
        (void)snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(v));
        type = "a number";
    } else if (json_is_real(v)) {
        (void)snprintf(text, sizeof(text), "%g", json_real_value(v));
        type = "a number";
    } else if (json_is_boolean(v)) {
        (void)snprintf(text, sizeof(text), "%s", json_is_true(v) ? "true" : "false");
        type = "a boolean";
    } else if (json_is_null(v)) {
        text[0] = '\0';
        type = "null";
    } else {
        return;
    }
    d->found++;
    len = strlen(s);
    (void)nt_lint_add(d->f, NT_W_ENV, line_of(d, name), name, strlen(name), s, len);
    if (type != NULL) {
        nt_lint_find(d->f, NT_R_NOT_STRING, line_of(d, name), name,
                     "%s is %s: an environment holds strings only, and %s refuses the whole of it",
                     s, type, d->who);
    }
}

static void assignment(struct doc *d, const char *s)
{
    const char *eq = strchr(s, '=');
    if (eq != NULL && nt_lint_is_name(s, (size_t)(eq - s))) {
        d->found++;
        (void)nt_lint_add(d->f, NT_W_ENV, line_of(d, s), s, (size_t)(eq - s), eq + 1,
                          strlen(eq + 1));
    }
}

static bool is_environment(const char *key)
{
    static const char *const keys[] = {"env_vars",  "env", "environment", "containerEnv",
                                       "remoteEnv", "Env", NULL};
    for (size_t i = 0; keys[i] != NULL; i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Depth is bounded by jansson's parser. */
static void walk(struct doc *d, const char *key, const json_t *v)
{
    const json_t *member;
    const char *k;
    size_t i;
    if (json_is_object(v)) {
        const json_t *name = json_object_get(v, "name"), *val = json_object_get(v, "value");
        if (json_is_string(name) && val != NULL && !json_is_object(val) && !json_is_array(val)) {
            value(d, json_string_value(name), val);
            return;
        }
        json_object_foreach((json_t *)(uintptr_t)v, k, member)
        {
            bool nested = json_is_object(member) || json_is_array(member);
            if (nested) {
                walk(d, k, member);
            } else if (is_environment(key) || nt_lint_is_ours(k)) {
                value(d, k, member);
            }
        }
    } else if (json_is_array(v)) {
        json_array_foreach(v, i, member)
        {
            if (json_is_string(member)) {
                assignment(d, json_string_value(member));
            } else {
                walk(d, key, member);
            }
        }
    }
}

void nt_read_json(struct nt_lint_file *f, const char *text, size_t len)
{
    struct doc d = {.f = f,
                    .text = text,
                    .len = len,
                    .line = 1,
                    .who = memmem(text, len, "\"apiVersion\"", 12) != NULL ? "Kubernetes' API"
                           : memmem(text, len, "\"env_vars\"", 10) != NULL ? "Ray"
                                                                           : "its consumer"};
    json_t *root = NULL;
    struct nt_err err = {0};
    if (nt_json_parse(text, len, "it", &root, &err) != 0) {
        nt_lint_find(f, NT_R_BAD_SYNTAX, 0, NULL, "not JSON: %.200s", err.msg);
        return;
    }
    walk(&d, "", root);
    json_decref(root);
    if (d.found == 0) {
        nt_lint_find(f, NT_R_OTHER_KIND, 0, NULL, "no environment in this JSON");
    }
}
