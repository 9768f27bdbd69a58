#include "schema/vocab.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/service/api.h"

#include <stdio.h>
#include <string.h>

/* --- paths --------------------------------------------------------------------------------------
 */

/* One segment of a pattern against one of a path; false: no match. */
static bool take_segment(const char *pattern, size_t plen, const char *text, size_t len,
                         struct nt_exchange *x, size_t *n)
{
    char *out;
    if (plen == 0 || pattern[0] != '{') {
        return plen == len && memcmp(pattern, text, len) == 0;
    }
    if (len == 0 || len >= NT_PATH_TEXT || *n == NT_PATH_PARAMS) {
        return false;
    }
    out = x->param[(*n)++];
    (void)snprintf(out, NT_PATH_TEXT, "%.*s", (int)len, text);
    if (plen == 4 && memcmp(pattern, "{id}", 4) == 0) {
        uint64_t id = 0;
        if (out[0] == '0' || out[strspn(out, "0123456789")] != '\0' ||
            nt_parse_u64(out, &id, NULL) != 0 || id > INT64_MAX) {
            return false;
        }
        x->id = (int64_t)id;
        return true;
    }
    return out[strspn(out, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] ==
           '\0';
}

static bool match(const char *pattern, const char *path, struct nt_exchange *x)
{
    size_t n = 0;
    for (;;) {
        size_t plen = strcspn(pattern, "/"), len = strcspn(path, "/");
        if (!take_segment(pattern, plen, path, len, x, &n)) {
            return false;
        }
        pattern += plen;
        path += len;
        if (*pattern == '\0' || *path == '\0') {
            return *pattern == *path;
        }
        pattern++;
        path++;
    }
}

static const char *allow_of(bool get, bool post, bool patch)
{
    static const char *const words[] = {
        "",      "GET, HEAD",        "POST",        "GET, HEAD, POST",
        "PATCH", "GET, HEAD, PATCH", "POST, PATCH", "GET, HEAD, POST, PATCH"};
    return words[(get ? 1 : 0) + (post ? 2 : 0) + (patch ? 4 : 0)];
}

const struct nt_route *nt_route_find(const char *method, const char *path, struct nt_exchange *x,
                                     const char **ret_allow)
{
    bool get = false, post = false, patch = false;
    for (const struct nt_route *r = nt_routes; r->path != NULL; r++) {
        if (!match(r->path, path, x)) {
            continue;
        }
        if (strcmp(r->method, method) == 0) {
            return r;
        }
        get = get || strcmp(r->method, "GET") == 0;
        post = post || strcmp(r->method, "POST") == 0;
        patch = patch || strcmp(r->method, "PATCH") == 0;
    }
    *ret_allow = get || post || patch ? allow_of(get, post, patch) : NULL;
    return NULL;
}

/* --- parameters ---------------------------------------------------------------------------------
 */

static bool is_utf8(const char *text)
{
    size_t left = strlen(text), n;
    uint32_t code;
    for (; left > 0; text += n, left -= n) {
        n = nt_utf8(text, left, &code);
        if (n == 0) {
            return false;
        }
    }
    return true;
}

static int check_value(const struct nt_param *p, const char *text, struct nt_err *err)
{
    static const char *const yes_no[] = {"true", "false", NULL};
    int64_t n = 0;
    int rc = 0;

    if (strcmp(p->type, "integer") == 0) {
        rc = nt_parse_i64(text, &n, err);
        if (rc == 0 && (n < p->min || n > p->max)) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%lld is not between %lld and %lld", (long long)n,
                         (long long)p->min, (long long)p->max);
        }
    } else if (strcmp(p->type, "boolean") == 0) {
        rc = nt_vocab_find(yes_no, "value", text, err) < 0 ? -NT_E_INVAL : 0;
    } else if (p->words != NULL) {
        rc = nt_vocab_find(p->words, "value", text, err) < 0 ? -NT_E_INVAL : 0;
    } else {
        size_t len = strlen(text);
        if (len < (size_t)p->min || (p->max > 0 && len > (size_t)p->max)) {
            rc = nt_fail(err, NT_E_INVAL, 0, "between %lld and %lld characters are taken",
                         (long long)p->min, (long long)p->max);
        } else if (!is_utf8(text)) {
            rc = nt_fail(err, NT_E_INVAL, 0, "not UTF-8");
        }
    }
    return nt_wrap(err, rc, "%s", p->name);
}

int nt_route_check(const struct nt_route *route, const struct nt_http_req *r, struct nt_err *err)
{
    const char *names[NT_HTTP_ARGS + 1];
    size_t n = 0;

    for (const struct nt_param *p = route->params; p != NULL && p->name != NULL; p++) {
        names[n++] = p->name;
        if (p->required && nt_http_arg(r, p->name) == NULL) {
            return nt_fail(err, NT_E_INVAL, 0, "the parameter %s is missing", p->name);
        }
    }
    names[n] = NULL;
    for (size_t i = 0; i < r->nargs; i++) {
        const struct nt_param *p = route->params;
        int rc;
        for (size_t k = 0; k < i; k++) {
            if (strcmp(r->args[k].name, r->args[i].name) == 0) {
                return nt_fail(err, NT_E_INVAL, 0, "the parameter %s is given twice",
                               r->args[i].name);
            }
        }
        while (p != NULL && p->name != NULL && strcmp(p->name, r->args[i].name) != 0) {
            p++;
        }
        if (p == NULL || p->name == NULL) {
            return n == 0 ? nt_fail(err, NT_E_INVAL, 0, "this takes no parameters")
                          : nt_fail_name(err, "parameter", r->args[i].name, names);
        }
        rc = check_value(p, r->args[i].value, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int64_t nt_reply_number(const struct nt_exchange *x, const char *name, int64_t otherwise)
{
    const char *text = nt_http_arg(x->r, name);
    int64_t n = otherwise;
    return text != NULL && nt_parse_i64(text, &n, NULL) == 0 ? n : otherwise;
}

/* --- answers ------------------------------------------------------------------------------------
 */

int nt_reply_json(struct nt_exchange *x, json_t *value, struct nt_err *err)
{
    struct nt_http_answer *a = &x->r->answer;
    if (value == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "an answer");
    }
    nt_buf_clear(&a->body);
    nt_json_dump(value, false, &a->body);
    json_decref(value);
    if (a->body.failed) {
        return nt_fail(err, NT_E_NO, 0, "the answer is larger than %zu MiB; ask for less",
                       a->body.max >> 20);
    }
    a->type = "application/json";
    a->status = x->route->status;
    return 0;
}

/* Code of an error, as clients know it, and its status. */
static const struct {
    enum nt_code code;
    unsigned status;
    const char *word;
} faults[] = {
    {NT_E_INVAL, 400, "bad_input"},
    {NT_E_MISSING, 404, "not_found"},
    {NT_E_NO, 409, "refused"},
    {NT_E_STORE, 503, "database"},
    {NT_E_NOMEM, 503, "out_of_memory"},
    {NT_E_IO, 503, "input_output"},
    {NT_E_NOISY, 409, "too_noisy"},
    {NT_E_INTERRUPTED, 503, "stopping"},
    {NT_E_DAMAGED, 503, "database"},
    {NT_E_PROTO, 500, "bug"},
    {NT_E_BUG, 500, "bug"},
};

void nt_reply_fail(struct nt_http_answer *a, int rc, const struct nt_err *err)
{
    json_t *o;
    struct nt_buf plain;

    a->status = 500;
    nt_buf_init(&plain, 4096);
    nt_buf_put_plain(&plain, err->msg[0] != '\0' ? err->msg : nt_code_text((enum nt_code) - rc));
    o = json_object();
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if ((int)faults[i].code == -rc) {
            a->status = faults[i].status;
            (void)json_object_set_new(
                o, "error",
                json_pack("{s:s, s:s}", "code", faults[i].word, "message", nt_buf_str(&plain)));
        }
    }
    nt_buf_clear(&a->body);
    nt_json_dump(o, false, &a->body);
    json_decref(o);
    nt_buf_done(&plain);
    a->type = "application/json";
    a->cache = NULL;
    a->etag[0] = a->name[0] = '\0';
    a->page = a->stream = false;
    nt_http_shared_drop(a->shared);
    a->shared = NULL;
}

int nt_reply_body(const struct nt_exchange *x, const char *const *known, json_t **ret,
                  struct nt_err *err)
{
    json_t *o = NULL;
    int rc = nt_json_parse(nt_buf_str(&x->r->body), x->r->body.len, "the body", &o, err);
    if (rc == 0 && !json_is_object(o)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "the body is no JSON object");
    }
    rc = rc == 0 ? nt_json_only(o, "member", known, err) : rc;
    if (rc == 0) {
        *ret = o;
        return 0;
    }
    json_decref(o);
    return rc;
}
