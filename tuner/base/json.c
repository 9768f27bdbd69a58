#include "tuner/base/json.h"
#include "tuner/base/text.h"

#include <stdlib.h>
#include <string.h>

int nt_json_parse(const char *text, size_t len, const char *what, json_t **ret, struct nt_err *err)
{
    json_error_t je;
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (v == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "%s is not JSON: line %d: %s", what, je.line, je.text);
    }
    *ret = v;
    return 0;
}

int nt_json_load(const char *path, size_t max_bytes, json_t **ret, struct nt_err *err)
{
    struct nt_buf b;
    int rc;

    nt_buf_init(&b, max_bytes);
    rc = nt_buf_read_file(&b, path, err);
    if (rc == 0) {
        rc = nt_json_parse(nt_buf_str(&b), b.len, path, ret, err);
    }
    nt_buf_done(&b);
    return rc;
}

static int dump_to_buf(const char *data, size_t len, void *out)
{
    nt_buf_add(out, data, len);
    return 0;
}

void nt_json_dump(const json_t *value, bool pretty, struct nt_buf *out)
{
    size_t flags = JSON_ENCODE_ANY | (pretty ? JSON_INDENT(2) | JSON_SORT_KEYS : JSON_COMPACT);
    if (json_dump_callback(value, dump_to_buf, out, flags) != 0) {
        out->failed = true;
    }
}

json_t *nt_json_text(const char *text)
{
    json_t *s = json_string(text);
    char *copy = s == NULL ? strdup(text) : NULL;
    if (copy != NULL) {
        nt_text_plain(copy);
        s = json_string(copy);
        free(copy);
    }
    return s;
}

static json_t *member(const json_t *o, const char *key, bool (*is)(const json_t *),
                      const char *type, struct nt_err *err)
{
    json_t *v = json_object_get(o, key);
    if (v == NULL || !is(v)) {
        (void)nt_fail(err, NT_E_INVAL, 0, "%s: %s", key, v == NULL ? "missing" : type);
        return NULL;
    }
    return v;
}

static bool is_str(const json_t *v)
{
    return json_is_string(v);
}
static bool is_int(const json_t *v)
{
    return json_is_integer(v);
}
static bool is_num(const json_t *v)
{
    return json_is_number(v);
}
static bool is_obj(const json_t *v)
{
    return json_is_object(v);
}
static bool is_arr(const json_t *v)
{
    return json_is_array(v);
}

int nt_json_str(const json_t *o, const char *key, const char **ret, struct nt_err *err)
{
    json_t *v = member(o, key, is_str, "must be a string", err);
    if (v == NULL) {
        return -NT_E_INVAL;
    }
    *ret = json_string_value(v);
    return 0;
}

int nt_json_i64(const json_t *o, const char *key, int64_t *ret, struct nt_err *err)
{
    json_t *v = member(o, key, is_int, "must be a whole number", err);
    if (v == NULL) {
        return -NT_E_INVAL;
    }
    *ret = json_integer_value(v);
    return 0;
}

int nt_json_u64(const json_t *o, const char *key, uint64_t *ret, struct nt_err *err)
{
    int64_t v = 0;
    int rc = nt_json_i64(o, key, &v, err);
    if (rc == 0 && v < 0) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: must not be negative", key);
    }
    if (rc == 0) {
        *ret = (uint64_t)v;
    }
    return rc;
}

int nt_json_num(const json_t *o, const char *key, double *ret, struct nt_err *err)
{
    json_t *v = member(o, key, is_num, "must be a number", err);
    if (v == NULL) {
        return -NT_E_INVAL;
    }
    *ret = json_number_value(v);
    return 0;
}

int nt_json_obj(const json_t *o, const char *key, json_t **ret, struct nt_err *err)
{
    json_t *v = member(o, key, is_obj, "must be an object", err);
    if (v == NULL) {
        return -NT_E_INVAL;
    }
    *ret = v;
    return 0;
}

int nt_json_arr(const json_t *o, const char *key, json_t **ret, struct nt_err *err)
{
    json_t *v = member(o, key, is_arr, "must be a list", err);
    if (v == NULL) {
        return -NT_E_INVAL;
    }
    *ret = v;
    return 0;
}

const char *nt_json_opt_str(const json_t *o, const char *key, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : otherwise;
}

int64_t nt_json_opt_i64(const json_t *o, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

double nt_json_opt_num(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

bool nt_json_opt_bool(const json_t *o, const char *key, bool otherwise)
{
    const json_t *v = json_object_get(o, key);
    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

int nt_json_only(const json_t *o, const char *what, const char *const *known, struct nt_err *err)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)o, key, v)
    {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], key) != 0) {
            i++;
        }
        if (known[i] == NULL) {
            return nt_fail_name(err, what, key, known);
        }
    }
    return 0;
}
