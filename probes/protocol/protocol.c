#include "probes/protocol/protocol.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/json.h"

uint32_t nt_case_flags(const struct nt_case *cs)
{
    return cs->coll == NT_BROADCAST || cs->coll == NT_REDUCE ? NT_M_BARRIER : 0;
}

/* One row per member: both directions are loops over these tables. */
enum kind {
    K_STR,    /* char[size] */
    K_TEXT,   /* char *, null: NULL */
    K_UINT,   /* unsigned integer of `size` bytes, at most `max` (0: what the type holds) */
    K_SOME,   /* the same, left out when it is 0 */
    K_INT,    /* signed integer of `size` bytes */
    K_BOOL,   /* bool */
    K_NAME,   /* uint8_t, a row of `names` */
    K_CHOICE, /* int8_t, a row of `names`; null: -1 */
    K_OBJECT, /* struct with `fields` */
    K_VARS,   /* vars and nvars of struct nt_init */
    K_COST,   /* cost of struct nt_cells */
    K_NS,     /* ns and count of struct nt_result */
};

struct field {
    const char *name;
    enum kind kind;
    size_t offset, size;
    uint64_t max;
    const char *const *names;
    const struct field *fields;
};

#define F(s, f, n, k)                                                                              \
    .name = (n), .kind = (k), .offset = offsetof(struct s, f), .size = sizeof(((struct s *)0)->f)
#define MEMBER(s, f, k)                                                                            \
    {                                                                                              \
        F(s, f, #f, k)                                                                             \
    }
#define LIMITED(s, f, m)                                                                           \
    {                                                                                              \
        F(s, f, #f, K_UINT), .max = (m)                                                            \
    }
#define NAMED(s, f, k, t)                                                                          \
    {                                                                                              \
        F(s, f, #f, k), .names = (t)                                                               \
    }
#define OBJECT(s, f, n, sub)                                                                       \
    {                                                                                              \
        F(s, f, n, K_OBJECT), .fields = (sub)                                                      \
    }

static const struct field case_fields[] = {MEMBER(nt_case, bytes, K_UINT),
                                           NAMED(nt_case, coll, K_NAME, nt_coll_names),
                                           NAMED(nt_case, dtype, K_NAME, nt_dtype_names),
                                           NAMED(nt_case, place, K_NAME, nt_place_names),
                                           NAMED(nt_case, mode, K_NAME, nt_mode_names),
                                           {0}};
static const struct field call_fields[] = {NAMED(nt_call, backend, K_NAME, nt_backend_names),
                                           NAMED(nt_call, algo, K_CHOICE, nt_algo_names),
                                           NAMED(nt_call, proto, K_CHOICE, nt_proto_names),
                                           MEMBER(nt_call, channels, K_UINT),
                                           MEMBER(nt_call, chunk_bytes, K_UINT),
                                           {0}};
static const struct field executed_fields[] = {NAMED(nt_executed, algo, K_CHOICE, nt_algo_names),
                                               NAMED(nt_executed, proto, K_CHOICE, nt_proto_names),
                                               MEMBER(nt_executed, channels, K_UINT),
                                               MEMBER(nt_executed, warps, K_UINT),
                                               {0}};
static const struct field hello_fields[] = {MEMBER(nt_hello, v, K_UINT),
                                            MEMBER(nt_hello, rank, K_UINT),
                                            MEMBER(nt_hello, world, K_UINT),
                                            MEMBER(nt_hello, pid, K_INT),
                                            MEMBER(nt_hello, host, K_STR),
                                            MEMBER(nt_hello, gpu_uuid, K_STR),
                                            MEMBER(nt_hello, gpu_pci, K_STR),
                                            MEMBER(nt_hello, gpu_name, K_STR),
                                            MEMBER(nt_hello, gpu_memory_bytes, K_UINT),
                                            MEMBER(nt_hello, nccl, K_INT),
                                            MEMBER(nt_hello, cuda, K_INT),
                                            MEMBER(nt_hello, driver, K_INT),
                                            MEMBER(nt_hello, nccl_file, K_STR),
                                            MEMBER(nt_hello, rig, K_STR),
                                            {0}};
static const struct field uid_fields[] = {
    {.name = "hex", .kind = K_STR, .size = sizeof(((struct nt_msg *)0)->uid)}, {0}};
static const struct field init_fields[] = {
    MEMBER(nt_init, uid, K_STR),     MEMBER(nt_init, backend, K_STR),
    MEMBER(nt_init, vars, K_VARS),   MEMBER(nt_init, max_bytes, K_UINT),
    MEMBER(nt_init, gang, K_UINT),   MEMBER(nt_init, shm, K_STR),
    MEMBER(nt_init, device, K_UINT), {0}};
static const struct field ready_fields[] = {MEMBER(nt_ready, init_ns, K_UINT),
                                            MEMBER(nt_ready, memory_bytes, K_UINT),
                                            MEMBER(nt_ready, topology_xml, K_TEXT),
                                            MEMBER(nt_ready, text, K_TEXT),
                                            {0}};
static const struct field cells_fields[] = {OBJECT(nt_cells, cs, "case", case_fields),
                                            MEMBER(nt_cells, cost, K_COST),
                                            MEMBER(nt_cells, asked, K_BOOL),
                                            {0}};
static const struct field measure_fields[] = {MEMBER(nt_measure, id, K_UINT),
                                              OBJECT(nt_measure, cs, "case", case_fields),
                                              OBJECT(nt_measure, call, "call", call_fields),
                                              MEMBER(nt_measure, warmup, K_UINT),
                                              LIMITED(nt_measure, samples, NT_MAX_SAMPLES),
                                              MEMBER(nt_measure, inner, K_UINT),
                                              LIMITED(nt_measure, verify, NT_VERIFY_BOTH),
                                              LIMITED(nt_measure, flags,
                                                      NT_M_READBACK | NT_M_BUSY | NT_M_GROUP8 |
                                                          NT_M_BARRIER | NT_M_BITS | NT_M_CONTROL |
                                                          NT_M_OWN),
                                              MEMBER(nt_measure, deadline_ms, K_UINT),
                                              {0}};
static const struct field result_fields[] = {
    MEMBER(nt_result, id, K_UINT),
    NAMED(nt_result, status, K_NAME, nt_status_names),
    MEMBER(nt_result, ns, K_NS),
    MEMBER(nt_result, base_ns, K_UINT),
    OBJECT(nt_result, executed, "executed", executed_fields),
    MEMBER(nt_result, own_chunk_bytes, K_SOME),
    NAMED(nt_result, bits, K_NAME, nt_bits_names),
    MEMBER(nt_result, wrong, K_UINT),
    MEMBER(nt_result, elapsed_ns, K_UINT),
    MEMBER(nt_result, connect_ns, K_UINT),
    MEMBER(nt_result, memory_bytes, K_UINT),
    MEMBER(nt_result, error, K_STR),
    {0}};
static const struct field error_fields[] = {
    {.name = "text", .kind = K_STR, .size = sizeof(((struct nt_msg *)0)->error)}, {0}};
static const struct field no_fields[] = {{0}};

static const char *const type_names[NT_MSG_TYPE_COUNT + 1] = {
    [NT_MSG_HELLO] = "hello",   [NT_MSG_UID] = "uid",     [NT_MSG_INIT] = "init",
    [NT_MSG_READY] = "ready",   [NT_MSG_CELLS] = "cells", [NT_MSG_MEASURE] = "measure",
    [NT_MSG_RESULT] = "result", [NT_MSG_ABORT] = "abort", [NT_MSG_QUIT] = "quit",
    [NT_MSG_ERROR] = "error"};
static const struct field *const type_fields[NT_MSG_TYPE_COUNT] = {
    [NT_MSG_HELLO] = hello_fields,   [NT_MSG_UID] = uid_fields,
    [NT_MSG_INIT] = init_fields,     [NT_MSG_READY] = ready_fields,
    [NT_MSG_CELLS] = cells_fields,   [NT_MSG_MEASURE] = measure_fields,
    [NT_MSG_RESULT] = result_fields, [NT_MSG_ABORT] = no_fields,
    [NT_MSG_QUIT] = no_fields,       [NT_MSG_ERROR] = error_fields};

/* ---- encoding ---- */

static uint64_t get_uint(const void *at, size_t size)
{
    switch (size) {
    case 1:
        return *(const uint8_t *)at;
    case 2:
        return *(const uint16_t *)at;
    case 4:
        return *(const uint32_t *)at;
    default:
        return *(const uint64_t *)at;
    }
}

/* Names of GPUs, error texts of libraries and paths come in any encoding. */
static json_t *text_value(const char *text)
{
    json_t *v = json_string(text);
    if (v == NULL) {
        char *clean = strdup(text);
        for (char *c = clean; c != NULL && *c != '\0'; c++) {
            if ((unsigned char)*c >= 0x80) {
                *c = '?';
            }
        }
        v = clean != NULL ? json_string(clean) : NULL;
        free(clean);
    }
    return v;
}

static json_t *vars_value(const struct nt_init *init)
{
    json_t *o = json_object();
    for (size_t i = 0; i < init->nvars; i++) {
        if (json_object_get(o, init->vars[i].name) != NULL ||
            json_object_set_new(o, init->vars[i].name, text_value(init->vars[i].value)) != 0) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

static json_t *cost_value(const struct nt_cells *cells)
{
    json_t *rows = json_array();
    for (unsigned a = 0; a < NT_ALGO_COUNT; a++) {
        json_t *row = json_array();
        for (unsigned p = 0; p < NT_PROTO_COUNT; p++) {
            float c = cells->cost[a][p];
            (void)json_array_append_new(row, json_real(isfinite(c) ? (double)c : -1.0));
        }
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *ns_value(const struct nt_result *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->count; i++) {
        if (json_array_append_new(a, json_integer(r->ns[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static json_t *encode_fields(const void *base, const struct field *fields);

/* NULL: not to be said in this protocol. */
static json_t *encode_value(const void *base, const struct field *f)
{
    const char *at = (const char *)base + f->offset;
    uint64_t u;

    switch (f->kind) {
    case K_STR:
        return text_value(at);
    case K_TEXT:
        return *(char *const *)(const void *)at != NULL
                   ? text_value(*(char *const *)(const void *)at)
                   : json_null();
    case K_UINT:
    case K_SOME:
        u = get_uint(at, f->size);
        return u <= INT64_MAX ? json_integer((json_int_t)u) : NULL;
    case K_INT:
        return json_integer(f->size == sizeof(int) ? *(const int *)(const void *)at
                                                   : *(const long *)(const void *)at);
    case K_BOOL:
        return json_boolean(*(const bool *)at);
    case K_NAME:
        return json_string(f->names[*(const uint8_t *)at]);
    case K_CHOICE:
        return *(const int8_t *)at < 0 ? json_null() : json_string(f->names[*(const int8_t *)at]);
    case K_OBJECT:
        return encode_fields(at, f->fields);
    case K_VARS:
        return vars_value(base);
    case K_COST:
        return cost_value(base);
    case K_NS:
        return ns_value(base);
    }
    return NULL;
}

static int encode_into(json_t *o, const void *base, const struct field *fields)
{
    for (const struct field *f = fields; f->name != NULL; f++) {
        if (f->kind == K_SOME && get_uint((const char *)base + f->offset, f->size) == 0) {
            continue;
        }
        if (json_object_set_new(o, f->name, encode_value(base, f)) != 0) {
            return -1;
        }
    }
    return 0;
}

static json_t *encode_fields(const void *base, const struct field *fields)
{
    json_t *o = json_object();
    if (o != NULL && encode_into(o, base, fields) != 0) {
        json_decref(o);
        o = NULL;
    }
    return o;
}

void nt_msg_encode(const struct nt_msg *m, struct nt_buf *out)
{
    size_t before = out->len;
    json_t *o = json_object();

    nt_assert((unsigned)m->type < NT_MSG_TYPE_COUNT);
    if (o == NULL || json_object_set_new(o, "type", json_string(type_names[m->type])) != 0 ||
        encode_into(o, &m->hello, type_fields[m->type]) != 0) {
        out->failed = true;
    } else {
        nt_json_dump(o, false, out);
        if (out->len - before > NT_LINE_MAX) {
            out->failed = true;
        }
        nt_buf_puts(out, "\n");
    }
    json_decref(o);
}

/* ---- decoding ---- */

static int bad(const struct field *f, const char *must, struct nt_err *err)
{
    return nt_fail(err, NT_E_PROTO, 0, "%s: %s", f->name, must);
}

static int set_uint(char *at, const struct field *f, const json_t *v, struct nt_err *err)
{
    uint64_t top = f->size == 8 ? INT64_MAX : (UINT64_C(1) << (8 * f->size)) - 1;
    uint64_t u;

    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return bad(f, "must be a whole number, not negative", err);
    }
    u = (uint64_t)json_integer_value(v);
    if (u > (f->max != 0 ? f->max : top)) {
        return bad(f, "too large", err);
    }
    switch (f->size) {
    case 1:
        *(uint8_t *)at = (uint8_t)u;
        break;
    case 2:
        *(uint16_t *)(void *)at = (uint16_t)u;
        break;
    case 4:
        *(uint32_t *)(void *)at = (uint32_t)u;
        break;
    default:
        *(uint64_t *)(void *)at = u;
    }
    return 0;
}

static int set_int(char *at, const struct field *f, const json_t *v, struct nt_err *err)
{
    json_int_t i = json_integer_value(v);
    if (!json_is_integer(v) || (f->size == sizeof(int) && (i < INT32_MIN || i > INT32_MAX))) {
        return bad(f, "must be a whole number of its type", err);
    }
    if (f->size == sizeof(int)) {
        *(int *)(void *)at = (int)i;
    } else {
        *(long *)(void *)at = (long)i;
    }
    return 0;
}

static int set_name(char *at, const struct field *f, const json_t *v, struct nt_err *err)
{
    int i = -1;
    if (f->kind == K_NAME || !json_is_null(v)) {
        if (!json_is_string(v)) {
            return bad(f, "must be a name", err);
        }
        i = nt_vocab_find(f->names, f->name, json_string_value(v), err);
        if (i < 0) {
            return i;
        }
    }
    *(int8_t *)(void *)at = (int8_t)i;
    return 0;
}

static int set_vars(struct nt_init *init, const struct field *f, json_t *v, struct nt_err *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(v) || json_object_size(v) > NT_MAX_VARS) {
        return bad(f, "must be an object of few enough variables", err);
    }
    json_object_foreach(v, key, value)
    {
        struct nt_var *var = &init->vars[init->nvars];
        if (*key == '\0' || strchr(key, '=') != NULL || !json_is_string(value)) {
            return bad(f, "each must be NAME: \"value\"", err);
        }
        init->nvars++; /* counted first: nt_msg_done() frees what is half there */
        var->name = strdup(key);
        var->value = strdup(json_string_value(value));
        if (var->name == NULL || var->value == NULL) {
            return nt_fail(err, NT_E_NOMEM, 0, "variables of init");
        }
    }
    return 0;
}

static int set_cost(struct nt_cells *cells, const struct field *f, const json_t *v,
                    struct nt_err *err)
{
    if (!json_is_array(v) || json_array_size(v) != NT_ALGO_COUNT) {
        return bad(f, "must have one row per algorithm", err);
    }
    for (unsigned a = 0; a < NT_ALGO_COUNT; a++) {
        const json_t *row = json_array_get(v, a);
        if (!json_is_array(row) || json_array_size(row) != NT_PROTO_COUNT) {
            return bad(f, "must have one column per protocol", err);
        }
        for (unsigned p = 0; p < NT_PROTO_COUNT; p++) {
            const json_t *c = json_array_get(row, p);
            if (!json_is_number(c) || fabs(json_number_value(c)) > 1e30) {
                return bad(f, "must be numbers", err);
            }
            cells->cost[a][p] = (float)json_number_value(c);
        }
    }
    return 0;
}

static int set_ns(struct nt_result *r, const struct field *f, const json_t *v, struct nt_err *err)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n > NT_MAX_SAMPLES) {
        return bad(f, "must be a list of few enough samples", err);
    }
    r->ns = calloc(n + 1, sizeof(r->ns[0]));
    if (r->ns == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "samples");
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_array_get(v, i);
        if (!json_is_integer(s) || json_integer_value(s) < 0 ||
            json_integer_value(s) > UINT32_MAX) {
            return bad(f, "each must be nanoseconds below 4.29 s", err);
        }
        r->ns[i] = (uint32_t)json_integer_value(s);
    }
    r->count = n;
    return 0;
}

static int decode_fields(void *base, const struct field *fields, const json_t *o,
                         struct nt_err *err);

static int decode_value(void *base, const struct field *f, json_t *v, struct nt_err *err)
{
    char *at = (char *)base + f->offset;

    switch (f->kind) {
    case K_STR:
        if (!json_is_string(v) || json_string_length(v) >= f->size) {
            return bad(f, "must be a string that fits", err);
        }
        memcpy(at, json_string_value(v), json_string_length(v) + 1);
        return 0;
    case K_TEXT:
        if (!json_is_string(v)) {
            return json_is_null(v) ? 0 : bad(f, "must be a string or null", err);
        }
        *(char **)(void *)at = strdup(json_string_value(v));
        return *(char **)(void *)at != NULL ? 0 : nt_fail(err, NT_E_NOMEM, 0, "%s", f->name);
    case K_UINT:
    case K_SOME:
        return set_uint(at, f, v, err);
    case K_INT:
        return set_int(at, f, v, err);
    case K_BOOL:
        *(bool *)(void *)at = json_is_true(v);
        return json_is_boolean(v) ? 0 : bad(f, "must be true or false", err);
    case K_NAME:
    case K_CHOICE:
        return set_name(at, f, v, err);
    case K_OBJECT:
        return json_is_object(v) ? nt_wrap(err, decode_fields(at, f->fields, v, err), "%s", f->name)
                                 : bad(f, "must be an object", err);
    case K_VARS:
        return set_vars(base, f, v, err);
    case K_COST:
        return set_cost(base, f, v, err);
    case K_NS:
        return set_ns(base, f, v, err);
    }
    return 0;
}

static int decode_fields(void *base, const struct field *fields, const json_t *o,
                         struct nt_err *err)
{
    for (const struct field *f = fields; f->name != NULL; f++) {
        json_t *v = json_object_get(o, f->name);
        int rc = v != NULL           ? decode_value(base, f, v, err)
                 : f->kind == K_SOME ? 0
                                     : bad(f, "missing", err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int only_known(const struct field *fields, json_t *o, bool top, struct nt_err *err)
{
    const char *key;
    json_t *v;

    json_object_foreach(o, key, v)
    {
        const struct field *f = fields;
        while (f->name != NULL && strcmp(f->name, key) != 0) {
            f++;
        }
        if (f->name == NULL && !(top && strcmp(key, "type") == 0)) {
            return nt_fail(err, NT_E_PROTO, 0, "unknown member %.40s", key);
        }
        if (f->name != NULL && f->kind == K_OBJECT && only_known(f->fields, v, false, err) != 0) {
            return -NT_E_PROTO;
        }
    }
    return 0;
}

/* Values that must fit together. */
static int check(const struct nt_msg *m, struct nt_err *err)
{
    const struct nt_call *call = &m->measure.call;
    const struct nt_executed *x = &m->result.executed;

    if (m->type == NT_MSG_HELLO && m->hello.rank >= m->hello.world) {
        return nt_fail(err, NT_E_PROTO, 0, "rank %u of %u", m->hello.rank, m->hello.world);
    }
    if (m->type == NT_MSG_MEASURE &&
        (!nt_call_fits(call) || (m->measure.inner == 0 && m->measure.cs.mode != NT_EAGER))) {
        return nt_fail(err, NT_E_PROTO, 0,
                       "algo without proto, or one that the backend does not have, or inner 0");
    }
    if (m->type == NT_MSG_RESULT && (x->algo < 0) != (x->proto < 0)) {
        return nt_fail(err, NT_E_PROTO, 0, "executed: algo without proto");
    }
    return 0;
}

static int decode_object(json_t *o, struct nt_msg *m, struct nt_err *err)
{
    const char *name = json_string_value(json_object_get(o, "type"));
    const json_t *v = json_object_get(o, "v");
    int type, rc;

    if (name == NULL) {
        return nt_fail(err, NT_E_PROTO, 0, "type: missing");
    }
    type = nt_vocab_find(type_names, "message", name, err);
    if (type < 0) {
        return type;
    }
    m->type = (enum nt_msg_type)type;
    if (m->type == NT_MSG_HELLO && json_is_integer(v) &&
        json_integer_value(v) != NT_PROTOCOL_VERSION) {
        return nt_fail(err, NT_E_PROTO, 0, "the rank speaks protocol version %lld, the driver %d",
                       (long long)json_integer_value(v), NT_PROTOCOL_VERSION);
    }
    rc = decode_fields(&m->hello, type_fields[type], o, err);
    if (rc == 0) {
        rc = only_known(type_fields[type], o, true, err);
    }
    if (rc == 0) {
        rc = check(m, err);
    }
    return rc != 0 ? nt_wrap(err, rc, "%s", name) : 0;
}

int nt_msg_decode(const char *line, size_t len, struct nt_msg *ret, struct nt_err *err)
{
    struct nt_msg m = {0};
    json_t *o = NULL;
    int rc;

    if (len > NT_LINE_MAX) {
        return nt_fail(err, NT_E_PROTO, 0, "a line of %zu bytes, more than %d", len, NT_LINE_MAX);
    }
    rc = nt_json_parse(line, len, "message", &o, err);
    if (rc == 0) {
        rc = decode_object(o, &m, err);
    }
    json_decref(o);
    if (rc != 0) {
        nt_msg_done(&m);
        rc = rc == -NT_E_NOMEM ? rc : -NT_E_PROTO;
        if (err != NULL) {
            err->code = (enum nt_code) - rc;
        }
        return rc;
    }
    *ret = m;
    return 0;
}

void nt_msg_done(struct nt_msg *m)
{
    if (m == NULL) {
        return;
    }
    if (m->type == NT_MSG_INIT) {
        for (size_t i = 0; i < m->init.nvars; i++) {
            free(m->init.vars[i].name);
            free(m->init.vars[i].value);
        }
        m->init.nvars = 0;
    } else if (m->type == NT_MSG_READY) {
        free(m->ready.topology_xml);
        free(m->ready.text);
        m->ready.topology_xml = m->ready.text = NULL;
    } else if (m->type == NT_MSG_RESULT) {
        free(m->result.ns);
        m->result.ns = NULL;
        m->result.count = 0;
    }
}
