/* The document as tables: one row a member, read and written by the same two walks. A member that
 * no row names is an error with the near name. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "profiles/json/profile_private.h"
#include "tuner/base/text.h"

enum kind {
    TEXT,  /* const char * */
    UINT,  /* unsigned */
    BYTES, /* uint64_t */
    NUM,   /* double, NAN: absent */
    RANGE, /* double[2] */
    FLAG,  /* bool */
    WORD,  /* int: index into a NULL-terminated table */
    TEXTS, /* struct nt_texts */
    VARS,  /* struct nt_assigns, an object */
    PART,  /* an object whose members lie in the same struct, at their own offsets */
    LIST,  /* an array of structs: {v, n} */
    MARK,  /* bool that says whether the object around it is there */
    KNOWN, /* read and written by hand */
};
enum { MAX_FIELDS = 32, MAX_LIST = 65536, MAX_TEXT = 4096 };
enum { NEEDED = 1, ZERO_IS_ABSENT = 2, MINUS_IS_ABSENT = 4 };

struct field {
    const char *key;
    enum kind kind;
    unsigned at, flags;
    const char *const *words;
    const struct field *parts;
    size_t size; /* of an element of a list */
};

#define AT(s, m) ((unsigned)offsetof(struct s, m))

static const struct field executed_fields[] = {
    {"channels", UINT, AT(nt_profile_row, executed_channels), ZERO_IS_ABSENT, 0, 0, 0},
    {"warps", UINT, AT(nt_profile_row, executed_warps), ZERO_IS_ABSENT, 0, 0, 0},
    {0}};
static const char *const reg_words[] = {"unregistered", "registered", NULL};
static const struct field row_fields[] = {
    {"coll", WORD, AT(nt_profile_row, coll), NEEDED, nt_coll_names, 0, 0},
    {"min_bytes", BYTES, AT(nt_profile_row, min_bytes), NEEDED, 0, 0, 0},
    {"max_bytes", BYTES, AT(nt_profile_row, max_bytes), NEEDED, 0, 0, 0},
    {"algo", WORD, AT(nt_profile_row, algo), MINUS_IS_ABSENT, nt_algo_names, 0, 0},
    {"proto", WORD, AT(nt_profile_row, proto), MINUS_IS_ABSENT, nt_proto_names, 0, 0},
    {"channels", UINT, AT(nt_profile_row, channels), ZERO_IS_ABSENT, 0, 0, 0},
    {"chunk_bytes", BYTES, AT(nt_profile_row, chunk_bytes), ZERO_IS_ABSENT, 0, 0, 0},
    {"buffers", WORD, AT(nt_profile_row, reg_buff), MINUS_IS_ABSENT, reg_words, 0, 0},
    {"executed", PART, 0, 0, 0, executed_fields, 0},
    {0}};
static const struct field runner_fields[] = {
    {"setting", TEXT, AT(nt_runner_up, setting), NEEDED, 0, 0, 0},
    {"ns", NUM, AT(nt_runner_up, ns), 0, 0, 0, 0},
    {0}};
static const struct field noted_fields[] = {
    {"setting", TEXT, AT(nt_noted, setting), NEEDED, 0, 0, 0},
    {"why", TEXT, AT(nt_noted, why), NEEDED, 0, 0, 0},
    {"memory_bytes", NUM, AT(nt_noted, memory_bytes), 0, 0, 0, 0},
    {0}};
static const struct field class_fields[] = {
    {"coll", WORD, AT(nt_profile_class, coll), NEEDED, nt_coll_names, 0, 0},
    {"bytes", BYTES, AT(nt_profile_class, bytes), NEEDED, 0, 0, 0},
    {"mode", WORD, AT(nt_profile_class, mode), NEEDED, nt_mode_names, 0, 0},
    {"verdict", WORD, AT(nt_profile_class, verdict), NEEDED, nt_class_verdict_names, 0, 0},
    {"setting", TEXT, AT(nt_profile_class, setting), 0, 0, 0, 0},
    {"default_ns", NUM, AT(nt_profile_class, default_ns), 0, 0, 0, 0},
    {"tuned_ns", NUM, AT(nt_profile_class, tuned_ns), 0, 0, 0, 0},
    {"as_found_ns", NUM, AT(nt_profile_class, as_found_ns), 0, 0, 0, 0},
    {"gain", NUM, AT(nt_profile_class, gain), 0, 0, 0, 0},
    {"interval", RANGE, AT(nt_profile_class, interval), 0, 0, 0, 0},
    {"p_adjusted", NUM, AT(nt_profile_class, p_adjusted), 0, 0, 0, 0},
    {"pairs", UINT, AT(nt_profile_class, pairs), 0, 0, 0, 0},
    {"guard_upper", NUM, AT(nt_profile_class, guard_upper), 0, 0, 0, 0},
    {"p95_ratio", NUM, AT(nt_profile_class, p95_ratio), 0, 0, 0, 0},
    {"detectable", NUM, AT(nt_profile_class, detectable), 0, 0, 0, 0},
    {"runners_up", LIST, AT(nt_profile_class, runners_up), 0, 0, runner_fields,
     sizeof(struct nt_runner_up)},
    {"rejected", LIST, AT(nt_profile_class, rejected), 0, 0, noted_fields, sizeof(struct nt_noted)},
    {"reproduce", TEXTS, AT(nt_profile_class, reproduce), 0, 0, 0, 0},
    {0}};
#define PRODUCT(i, m) AT(nt_profile, product[i].m)
static const struct field static_fields[] = {
    {NULL, MARK, PRODUCT(NT_STATIC, present), 0, 0, 0, 0},
    {"vars", VARS, PRODUCT(NT_STATIC, vars), NEEDED, 0, 0, 0},
    {"classes", LIST, PRODUCT(NT_STATIC, classes), NEEDED, 0, class_fields,
     sizeof(struct nt_profile_class)},
    {0}};
static const struct field table_fields[] = {
    {NULL, MARK, PRODUCT(NT_TABLE, present), 0, 0, 0, 0},
    {"vars", VARS, PRODUCT(NT_TABLE, vars), NEEDED, 0, 0, 0},
    {"rows", LIST, PRODUCT(NT_TABLE, rows), NEEDED, 0, row_fields, sizeof(struct nt_profile_row)},
    {"classes", LIST, PRODUCT(NT_TABLE, classes), NEEDED, 0, class_fields,
     sizeof(struct nt_profile_class)},
    {0}};
static const struct field product_fields[] = {
    {"static", PART, 0, 0, 0, static_fields, 0}, {"table", PART, 0, 0, 0, table_fields, 0}, {0}};
static const struct field rig_fields[] = {
    {"kind", WORD, AT(nt_profile, rig), NEEDED, nt_rig_names, 0, 0},
    {"functional", KNOWN, 0, 0, 0, 0, 0}, /* true: not a real node */
    {"stand_in", TEXT, AT(nt_profile, stand_in), 0, 0, 0, 0},
    {0}};
static const struct field identity_fields[] = {
    {"id", TEXT, AT(nt_profile, identity.id), NEEDED, 0, 0, 0},
    {"mask", TEXT, AT(nt_profile, identity.mask), 0, 0, 0, 0},
    {"groups", VARS, AT(nt_profile, identity.groups), 0, 0, 0, 0},
    {0}};
static const struct field stack_fields[] = {
    {"nccl", TEXT, AT(nt_profile, stack.nccl), NEEDED, 0, 0, 0},
    {"nccl_sha256", TEXT, AT(nt_profile, stack.nccl_sha256), 0, 0, 0, 0},
    {"cuda", TEXT, AT(nt_profile, stack.cuda), 0, 0, 0, 0},
    {"driver", TEXT, AT(nt_profile, stack.driver), 0, 0, 0, 0},
    {"gpu", TEXT, AT(nt_profile, stack.gpu), 0, 0, 0, 0},
    {"framework", TEXT, AT(nt_profile, stack.framework), 0, 0, 0, 0},
    {0}};
static const struct field baseline_fields[] = {
    {"pristine", VARS, AT(nt_profile, baselines.pristine), 0, 0, 0, 0},
    {"as_found", VARS, AT(nt_profile, baselines.as_found), 0, 0, 0, 0},
    {"same", FLAG, AT(nt_profile, baselines.same), 0, 0, 0, 0},
    {0}};
static const struct field memory_fields[] = {
    {"default_bytes", NUM, AT(nt_profile, memory.default_bytes), 0, 0, 0, 0},
    {"static_bytes", NUM, AT(nt_profile, memory.static_bytes), 0, 0, 0, 0},
    {"table_bytes", NUM, AT(nt_profile, memory.table_bytes), 0, 0, 0, 0},
    {0}};
static const struct field first_call_fields[] = {
    {"default_ns", NUM, AT(nt_profile, first_call.default_ns), 0, 0, 0, 0},
    {"static_ns", NUM, AT(nt_profile, first_call.static_ns), 0, 0, 0, 0},
    {"table_ns", NUM, AT(nt_profile, first_call.table_ns), 0, 0, 0, 0},
    {0}};
static const struct field backend_row_fields[] = {
    {"coll", WORD, AT(nt_profile_backend, coll), NEEDED, nt_coll_names, 0, 0},
    {"mode", WORD, AT(nt_profile_backend, mode), NEEDED, nt_mode_names, 0, 0},
    {"min_bytes", BYTES, AT(nt_profile_backend, min_bytes), NEEDED, 0, 0, 0},
    {"max_bytes", BYTES, AT(nt_profile_backend, max_bytes), NEEDED, 0, 0, 0},
    {"backend", WORD, AT(nt_profile_backend, backend), NEEDED, nt_backend_names, 0, 0},
    {"algo", WORD, AT(nt_profile_backend, algo), MINUS_IS_ABSENT, nt_algo_names, 0, 0},
    {"proto", WORD, AT(nt_profile_backend, proto), MINUS_IS_ABSENT, nt_proto_names, 0, 0},
    {"blocks", UINT, AT(nt_profile_backend, blocks), ZERO_IS_ABSENT, 0, 0, 0},
    {"numerics", WORD, AT(nt_profile_backend, numerics), NEEDED, nt_numerics_names, 0, 0},
    {"bits", WORD, AT(nt_profile_backend, bits), NEEDED, nt_bits_names, 0, 0},
    {"serves", TEXTS, AT(nt_profile_backend, serves), NEEDED, 0, 0, 0},
    {0}};
static const struct field backend_class_fields[] = {
    {"coll", WORD, AT(nt_profile_backend_class, coll), NEEDED, nt_coll_names, 0, 0},
    {"bytes", BYTES, AT(nt_profile_backend_class, bytes), NEEDED, 0, 0, 0},
    {"mode", WORD, AT(nt_profile_backend_class, mode), NEEDED, nt_mode_names, 0, 0},
    {"verdict", WORD, AT(nt_profile_backend_class, verdict), NEEDED, nt_class_verdict_names, 0, 0},
    {"setting", TEXT, AT(nt_profile_backend_class, setting), NEEDED, 0, 0, 0},
    {"rival", TEXT, AT(nt_profile_backend_class, rival), 0, 0, 0, 0},
    {"default_ns", NUM, AT(nt_profile_backend_class, default_ns), 0, 0, 0, 0},
    {"rival_ns", NUM, AT(nt_profile_backend_class, rival_ns), 0, 0, 0, 0},
    {"ns", NUM, AT(nt_profile_backend_class, ns), 0, 0, 0, 0},
    {"gain", NUM, AT(nt_profile_backend_class, gain), 0, 0, 0, 0},
    {"interval", RANGE, AT(nt_profile_backend_class, interval), 0, 0, 0, 0},
    {"p_adjusted", NUM, AT(nt_profile_backend_class, p_adjusted), 0, 0, 0, 0},
    {"guard_upper", NUM, AT(nt_profile_backend_class, guard_upper), 0, 0, 0, 0},
    {"p95_ratio", NUM, AT(nt_profile_backend_class, p95_ratio), 0, 0, 0, 0},
    {"pairs", UINT, AT(nt_profile_backend_class, pairs), 0, 0, 0, 0},
    {"why", TEXT, AT(nt_profile_backend_class, why), 0, 0, 0, 0},
    {0}};
static const struct field backends_fields[] = {
    {NULL, MARK, AT(nt_profile, backends.present), 0, 0, 0, 0},
    {"same_bits", FLAG, AT(nt_profile, backends.same_bits), 0, 0, 0, 0},
    {"asked", TEXTS, AT(nt_profile, backends.asked), NEEDED, 0, 0, 0},
    {"peers", TEXTS, AT(nt_profile, backends.peers), 0, 0, 0, 0},
    {"rows", LIST, AT(nt_profile, backends.rows), NEEDED, 0, backend_row_fields,
     sizeof(struct nt_profile_backend)},
    {"classes", LIST, AT(nt_profile, backends.classes), NEEDED, 0, backend_class_fields,
     sizeof(struct nt_profile_backend_class)},
    {"notes", LIST, AT(nt_profile, backends.notes), 0, 0, noted_fields, sizeof(struct nt_noted)},
    {0}};
static const struct field delivery_fields[] = {
    {"hash", TEXT, AT(nt_profile, delivery.hash), 0, 0, 0, 0},
    {"file", TEXT, AT(nt_profile, delivery.file), 0, 0, 0, 0},
    {0}};
static const struct field profile_fields[] = {
    {"format", KNOWN, 0, 0, 0, 0, 0},
    {"version", KNOWN, 0, 0, 0, 0, 0},
    {"created", TEXT, AT(nt_profile, created), NEEDED, 0, 0, 0},
    {"tool", TEXT, AT(nt_profile, tool), 0, 0, 0, 0},
    {"job", TEXT, AT(nt_profile, job), 0, 0, 0, 0},
    {"rig", PART, 0, NEEDED, 0, rig_fields, 0},
    {"identity", PART, 0, NEEDED, 0, identity_fields, 0},
    {"health", TEXTS, AT(nt_profile, health), 0, 0, 0, 0},
    {"warnings", TEXTS, AT(nt_profile, warnings), 0, 0, 0, 0},
    {"stack", PART, 0, NEEDED, 0, stack_fields, 0},
    {"ranks", UINT, AT(nt_profile, ranks), NEEDED, 0, 0, 0},
    {"nodes", UINT, AT(nt_profile, nodes), NEEDED, 0, 0, 0},
    {"placement", TEXT, AT(nt_profile, placement), 0, 0, 0, 0},
    {"site", VARS, AT(nt_profile, site), 0, 0, 0, 0},
    {"baselines", PART, 0, 0, 0, baseline_fields, 0},
    {"modes", TEXTS, AT(nt_profile, modes), 0, 0, 0, 0},
    {"dtypes", TEXTS, AT(nt_profile, dtypes), 0, 0, 0, 0},
    {"places", TEXTS, AT(nt_profile, places), 0, 0, 0, 0},
    {"products", PART, 0, NEEDED, 0, product_fields, 0},
    {"backends", PART, 0, 0, 0, backends_fields, 0},
    {"not_checked", LIST, AT(nt_profile, not_checked), 0, 0, noted_fields, sizeof(struct nt_noted)},
    {"not_allowed_here", LIST, AT(nt_profile, not_allowed_here), 0, 0, noted_fields,
     sizeof(struct nt_noted)},
    {"inert", LIST, AT(nt_profile, inert), 0, 0, noted_fields, sizeof(struct nt_noted)},
    {"tried", LIST, AT(nt_profile, tried), 0, 0, noted_fields, sizeof(struct nt_noted)},
    {"memory", PART, 0, 0, 0, memory_fields, 0},
    {"first_call", PART, 0, 0, 0, first_call_fields, 0},
    {"delivery", PART, 0, 0, 0, delivery_fields, 0},
    {0}};

static bool last(const struct field *f)
{
    return f->key == NULL && f->kind != MARK;
}

/* One line of printable text: exports print these into files of many kinds. */
static bool printable(const char *s)
{
    size_t n = 0;
    for (; s[n] != '\0'; n++) {
        if ((unsigned char)s[n] < 0x20 || s[n] == 0x7f || n >= MAX_TEXT) {
            return false;
        }
    }
    return true;
}

/* ---- reading ---- */

static int bad(const char *key, const char *what, struct nt_err *err)
{
    return nt_fail(err, NT_E_INVAL, 0, "%s: %s", key, what);
}

static int read_text(struct nt_profile *p, const char *key, const json_t *v, const char **ret,
                     struct nt_err *err)
{
    const char *s = json_string_value(v);
    if (s == NULL || !printable(s) || strlen(s) != json_string_length(v)) {
        return bad(key, "must be one line of text", err);
    }
    *ret = nt_profile_text(p, s);
    return 0;
}

static int read_texts(struct nt_profile *p, const char *key, const json_t *v, struct nt_texts *list,
                      struct nt_err *err)
{
    size_t i;
    json_t *item;
    if (!json_is_array(v) || json_array_size(v) > MAX_LIST) {
        return bad(key, "must be a list of texts", err);
    }
    json_array_foreach(v, i, item)
    {
        int rc = read_text(p, key, item, NT_PROFILE_ADD(p, list), err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int read_vars(struct nt_profile *p, const char *key, const json_t *v,
                     struct nt_assigns *list, struct nt_err *err)
{
    const char *name;
    json_t *value;
    if (!json_is_object(v)) {
        return bad(key, "must be an object of texts", err);
    }
    json_object_foreach((json_t *)v, name, value)
    {
        struct nt_assign a = {0};
        int rc = printable(name) ? read_text(p, name, value, &a.value, err)
                                 : bad(key, "a name is not printable", err);
        if (rc != 0) {
            return nt_wrap(err, rc, "%s", key);
        }
        a.name = nt_profile_text(p, name);
        *NT_PROFILE_ADD(p, list) = a;
    }
    return 0;
}

static int read_number(const struct field *f, const json_t *v, void *at, struct nt_err *err)
{
    json_int_t n = json_integer_value(v);
    if (f->kind == NUM) {
        double d = json_number_value(v);
        if (!json_is_number(v) || !isfinite(d)) {
            return bad(f->key, "must be a number", err);
        }
        *(double *)at = d;
        return 0;
    }
    if (!json_is_integer(v) || n < 0 || (f->kind == UINT && n > INT32_MAX)) {
        return bad(f->key, "must be a whole number, not negative", err);
    }
    if (f->kind == UINT) {
        *(unsigned *)at = (unsigned)n;
    } else {
        *(uint64_t *)at = (uint64_t)n;
    }
    return 0;
}

static int read_word(const struct field *f, const json_t *v, int *ret, struct nt_err *err)
{
    int rc;
    if (!json_is_string(v)) {
        return bad(f->key, "must be a name", err);
    }
    rc = nt_vocab_find(f->words, f->key, json_string_value(v), err);
    if (rc >= 0) {
        *ret = rc;
    }
    return rc < 0 ? rc : 0;
}

static int read_fields(struct nt_profile *p, const struct field *f, const json_t *o, void *base,
                       const char *what, struct nt_err *err);

static int read_list(struct nt_profile *p, const struct field *f, const json_t *v, void *at,
                     struct nt_err *err)
{
    size_t i, *n = (size_t *)(void *)((char *)at + sizeof(void *));
    json_t *item;
    if (!json_is_array(v) || json_array_size(v) > MAX_LIST) {
        return bad(f->key, "must be a list", err);
    }
    json_array_foreach(v, i, item)
    {
        char *e = nt_profile_grow(p, at, n, f->size);
        for (const struct field *part = f->parts; !last(part); part++) { /* what absence means */
            if (part->kind == NUM) {
                *(double *)(void *)(e + part->at) = NAN;
            } else if (part->kind == RANGE) {
                ((double *)(void *)(e + part->at))[0] = ((double *)(void *)(e + part->at))[1] = NAN;
            } else if (part->kind == WORD) {
                *(int *)(void *)(e + part->at) = -1;
            }
        }
        int rc = read_fields(p, f->parts, item, e, f->key, err);
        if (rc != 0) {
            return nt_wrap(err, rc, "%s[%zu]", f->key, i);
        }
    }
    return 0;
}

static int read_field(struct nt_profile *p, const struct field *f, const json_t *v, void *base,
                      struct nt_err *err)
{
    void *at = (char *)base + f->at;
    switch (f->kind) {
    case TEXT:
        return read_text(p, f->key, v, at, err);
    case UINT:
    case BYTES:
    case NUM:
        return read_number(f, v, at, err);
    case RANGE:
        if (json_array_size(v) != 2 || !json_is_number(json_array_get(v, 0)) ||
            !json_is_number(json_array_get(v, 1))) {
            return bad(f->key, "must be two numbers", err);
        }
        ((double *)at)[0] = json_number_value(json_array_get(v, 0));
        ((double *)at)[1] = json_number_value(json_array_get(v, 1));
        return 0;
    case FLAG:
        *(bool *)at = json_is_true(v);
        return json_is_boolean(v) ? 0 : bad(f->key, "must be true or false", err);
    case WORD:
        return read_word(f, v, at, err);
    case TEXTS:
        return read_texts(p, f->key, v, at, err);
    case VARS:
        return read_vars(p, f->key, v, at, err);
    case PART:
        return nt_wrap(err, read_fields(p, f->parts, v, base, f->key, err), "%s", f->key);
    case LIST:
        return read_list(p, f, v, at, err);
    case MARK:
    case KNOWN:
        break;
    }
    return 0;
}

static int read_fields(struct nt_profile *p, const struct field *f, const json_t *o, void *base,
                       const char *what, struct nt_err *err)
{
    const char *known[MAX_FIELDS + 1];
    size_t n = 0;
    int rc;

    if (!json_is_object(o)) {
        return nt_fail(err, NT_E_INVAL, 0, "must be an object");
    }
    for (const struct field *k = f; !last(k); k++) {
        nt_assert(n < MAX_FIELDS);
        if (k->key != NULL) {
            known[n++] = k->key;
        }
    }
    known[n] = NULL;
    rc = nt_json_only(o, "member", known, err);
    for (; rc == 0 && !last(f); f++) {
        const json_t *v = f->key != NULL ? json_object_get(o, f->key) : NULL;
        if (f->kind == MARK) {
            *(bool *)(void *)((char *)base + f->at) = true;
        } else if (v != NULL && !json_is_null(v)) {
            rc = read_field(p, f, v, base, err);
        } else if ((f->flags & NEEDED) != 0) {
            rc = bad(f->key, "missing", err);
        }
    }
    (void)what;
    return rc;
}

int nt_profile_from_json(struct nt_profile *p, const json_t *doc, struct nt_err *err)
{
    const char *format = nt_json_opt_str(doc, "format", "");
    int64_t version = nt_json_opt_i64(doc, "version", 0);
    bool functional = nt_json_opt_bool(json_object_get(doc, "rig"), "functional", false);
    int rc;

    if (strcmp(format, NT_PROFILE_FORMAT) != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "not a profile: format is not \"%s\"",
                       NT_PROFILE_FORMAT);
    }
    if (version != NT_PROFILE_VERSION) {
        return nt_fail(err, NT_E_INVAL, 0, "profile of version %lld; this program reads version %d",
                       (long long)version, NT_PROFILE_VERSION);
    }
    rc = read_fields(p, profile_fields, doc, p, "profile", err);
    if (rc == 0 && functional != (p->rig != NT_RIG_NCCL)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "rig: %s is %sfunctional", nt_rig_names[p->rig],
                     functional ? "not " : "");
    }
    return rc;
}

/* ---- writing ---- */

static json_t *text_json(const char *s)
{
    return s != NULL && printable(s) ? json_string(s) : NULL;
}

static json_t *write_fields(const struct field *f, const void *base, struct nt_err *err);

static json_t *write_list(const struct field *f, const void *at, struct nt_err *err)
{
    json_t *a = json_array();
    const char *v;
    size_t n;

    memcpy(&v, at, sizeof(v));
    memcpy(&n, (const char *)at + sizeof(v), sizeof(n));
    for (size_t i = 0; i < n; i++) {
        json_t *o = write_fields(f->parts, v + i * f->size, err);
        if (o == NULL || json_array_append_new(a, o) != 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static json_t *write_texts(const struct nt_texts *list)
{
    json_t *a = json_array();
    for (size_t i = 0; i < list->n; i++) {
        if (json_array_append_new(a, text_json(list->v[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static json_t *write_vars(const struct nt_assigns *list)
{
    json_t *o = json_object();
    for (size_t i = 0; i < list->n; i++) {
        if (!printable(list->v[i].name) ||
            json_object_set_new(o, list->v[i].name, text_json(list->v[i].value)) != 0) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

/* Digits that times and ratios deserve; a document that people read and diff. */
static json_t *num_json(double d)
{
    char text[40];
    if (d == floor(d) && fabs(d) < 1e15) {
        return json_integer((json_int_t)d);
    }
    (void)snprintf(text, sizeof(text), "%.6g", d);
    return json_loads(text, JSON_DECODE_ANY, NULL);
}

/* NULL with *absent: nothing to write. NULL without: not writable. */
static json_t *write_value(const struct field *f, const void *base, bool *absent,
                           struct nt_err *err)
{
    const void *at = (const char *)base + f->at;
    const double *d = at;
    uint64_t n = 0;

    switch (f->kind) {
    case TEXT:
        *absent = *(const char *const *)at == NULL || **(const char *const *)at == '\0';
        *absent = *absent && (f->flags & NEEDED) == 0;
        return *absent ? NULL : text_json(*(const char *const *)at);
    case UINT:
    case BYTES:
        n = f->kind == UINT ? *(const unsigned *)at : *(const uint64_t *)at;
        *absent = n == 0 && (f->flags & ZERO_IS_ABSENT) != 0;
        return *absent || n > INT64_MAX ? NULL : json_integer((json_int_t)n);
    case NUM: /* not known, or without bound: what a class with one pair has */
        *absent = !isfinite(d[0]);
        return *absent ? NULL : num_json(d[0]);
    case RANGE:
        *absent = !isfinite(d[0]) || !isfinite(d[1]);
        return *absent ? NULL : json_pack("[o, o]", num_json(d[0]), num_json(d[1]));
    case FLAG:
        return json_boolean(*(const bool *)at);
    case WORD:
        *absent = *(const int *)at < 0 && (f->flags & MINUS_IS_ABSENT) != 0;
        return *absent || *(const int *)at < 0 ? NULL : json_string(f->words[*(const int *)at]);
    case TEXTS:
        return write_texts(at);
    case VARS:
        return write_vars(at);
    case PART:
        *absent = f->parts->kind == MARK &&
                  !*(const bool *)(const void *)((const char *)base + f->parts->at);
        return *absent ? NULL : write_fields(f->parts, base, err);
    case LIST:
        return write_list(f, at, err);
    case MARK:
    case KNOWN:
        *absent = true;
        break;
    }
    return NULL;
}

static json_t *write_fields(const struct field *f, const void *base, struct nt_err *err)
{
    json_t *o = json_object();
    for (; !last(f); f++) {
        bool absent = false;
        json_t *v = write_value(f, base, &absent, err);
        if (absent) {
            continue;
        }
        if (v == NULL || json_object_set_new(o, f->key, v) != 0) {
            if (err == NULL || err->code == NT_OK) {
                (void)nt_fail(err, NT_E_INVAL, 0, "%s cannot be written", f->key);
            }
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

json_t *nt_profile_class_json(const struct nt_profile_class *c, struct nt_err *err)
{
    return write_fields(class_fields, c, err);
}

json_t *nt_profile_to_json(const struct nt_profile *p, struct nt_err *err)
{
    struct nt_err mine = {0};
    json_t *o = p->failed ? NULL : write_fields(profile_fields, p, &mine);

    if (o != NULL) {
        json_object_set_new(o, "format", json_string(NT_PROFILE_FORMAT));
        json_object_set_new(o, "version", json_integer(NT_PROFILE_VERSION));
        json_object_set_new(json_object_get(o, "rig"), "functional",
                            json_boolean(p->rig != NT_RIG_NCCL));
    } else if (p->failed) {
        (void)nt_fail(err, NT_E_NOMEM, 0, "profile");
    } else {
        (void)nt_fail(err, NT_E_INVAL, 0, "%s", mine.msg);
    }
    return o;
}
