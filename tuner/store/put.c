/* What is measured: each content once, found again by its hash or its words. */
#include "tuner/store/db.h"
#include "tuner/base/hash.h"

#include <stdio.h>
#include <string.h>

enum { HASH_MAX_BYTES = 64 << 20 };

/* Hash over texts with their lengths, so that no two lists of texts read the same. */
static int hash_texts(const char *const *texts, size_t n, char hex[NT_HEX_LEN + 1],
                      struct nt_err *err)
{
    struct nt_buf b;
    int rc = 0;
    nt_buf_init(&b, HASH_MAX_BYTES);
    for (size_t i = 0; i < n; i++) {
        const char *text = texts[i] != NULL ? texts[i] : "";
        nt_buf_printf(&b, "%zu:", strlen(text));
        nt_buf_puts(&b, text);
    }
    if (b.failed) {
        rc = nt_fail(err, NT_E_INVAL, 0, "more than %d MiB of text in one row of the database",
                     HASH_MAX_BYTES >> 20);
    } else {
        nt_sha256_hex(b.data, b.len, hex);
    }
    nt_buf_done(&b);
    return rc;
}

enum { MAX_TEXTS = 8 };

static int put_texts(struct nt_store *s, enum nt_stmt_id get, enum nt_stmt_id put,
                     const char *const *texts, size_t n, int64_t *ret_id, struct nt_err *err)
{
    char hex[NT_HEX_LEN + 1];
    struct nt_value v[1 + MAX_TEXTS];
    int rc = hash_texts(texts, n, hex, err);
    if (rc != 0) {
        return rc;
    }
    nt_assert(n <= MAX_TEXTS);
    v[0] = nt_v_text(hex);
    for (size_t i = 0; i < n; i++) {
        v[1 + i] = nt_v_text(texts[i]);
    }
    return nt_db_intern(s, get, put, v, 1, 1 + n, ret_id, err);
}

int nt_store_put_topology(struct nt_store *s, const struct nt_store_topology *t, int64_t *ret_id,
                          struct nt_err *err)
{
    const char *const texts[] = {t->identity, t->mask, t->json, t->xml, t->health};
    return put_texts(s, NT_SQL_GET_TOPOLOGY, NT_SQL_PUT_TOPOLOGY, texts, NT_COUNT(texts), ret_id,
                     err);
}

int nt_store_put_host(struct nt_store *s, const struct nt_store_host *h, int64_t *ret_id,
                      struct nt_err *err)
{
    const char *const texts[] = {h->name, h->facts};
    return put_texts(s, NT_SQL_GET_HOST, NT_SQL_PUT_HOST, texts, NT_COUNT(texts), ret_id, err);
}

int nt_store_put_stack(struct nt_store *s, const struct nt_store_stack *k, int64_t *ret_id,
                       struct nt_err *err)
{
    const char *const texts[] = {k->nccl,      k->nccl_sha256, k->cuda, k->driver,
                                 k->framework, k->gpu,         k->site};
    return put_texts(s, NT_SQL_GET_STACK, NT_SQL_PUT_STACK, texts, NT_COUNT(texts), ret_id, err);
}

static const char *algo_word(int8_t algo)
{
    return algo < 0 ? "" : nt_algo_names[algo];
}
static const char *proto_word(int8_t proto)
{
    return proto < 0 ? "" : nt_proto_names[proto];
}
static int check_pair(int algo, int proto, struct nt_err *err)
{
    return algo < NT_ALGO_ALL && proto < NT_PROTO_ALL && (algo < 0) == (proto < 0)
               ? 0
               : nt_fail(err, NT_E_INVAL, 0, "algorithm %d with protocol %d", algo, proto);
}

/* For people: "default", "ring/ll/4", "ring/ll/4 NCCL_X=1"; never the same words for two settings
 * of different calls. */
static void label_setting(const char *vars, const struct nt_call *c, struct nt_buf *out)
{
    char call[96];
    bool worded = c->algo >= 0 || c->backend != NT_BE_NCCL;
    if (worded) {
        nt_buf_puts(out, nt_call_text(c, call, sizeof(call)));
    }
    if (c->algo < 0 && c->channels > 0) {
        nt_buf_printf(out, "%schannels=%u", out->len > 0 ? " " : "", (unsigned)c->channels);
    }
    if (!worded && c->chunk_bytes > 0) {
        nt_buf_printf(out, "%sasked-chunk=%u", out->len > 0 ? " " : "", (unsigned)c->chunk_bytes);
    }
    if (vars[0] != '\0') {
        nt_buf_printf(out, "%s%s", out->len > 0 ? " " : "", vars);
    } else if (out->len == 0) {
        nt_buf_puts(out, "default");
    }
}

int nt_store_put_setting(struct nt_store *s, const struct nt_store_setting *x, int64_t *ret_id,
                         struct nt_err *err)
{
    const char *vars = x->vars != NULL ? x->vars : "";
    const struct nt_call *c = &x->call;
    char numbers[64], hex[NT_HEX_LEN + 1];
    struct nt_buf label;
    int rc = check_pair(c->algo, c->proto, err);

    if (rc == 0 && c->backend >= NT_BACKEND_COUNT) {
        rc = nt_fail(err, NT_E_INVAL, 0, "backend %u is outside the vocabulary", c->backend);
    }
    if (rc != 0) {
        return rc;
    }
    (void)snprintf(numbers, sizeof(numbers), "%s/%s/%u/%u%s%s", algo_word(c->algo),
                   proto_word(c->proto), (unsigned)c->channels, (unsigned)c->chunk_bytes,
                   c->backend != NT_BE_NCCL ? "/" : "",
                   c->backend != NT_BE_NCCL ? nt_backend_names[c->backend] : "");
    rc = hash_texts((const char *const[]){vars, numbers}, 2, hex, err);
    if (rc != 0) {
        return rc;
    }
    nt_buf_init(&label, HASH_MAX_BYTES);
    label_setting(vars, c, &label);
    if (label.failed) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "the words of a setting");
    } else {
        const struct nt_value v[] = {nt_v_text(hex),
                                     nt_v_text(vars),
                                     nt_v_text(algo_word(c->algo)),
                                     nt_v_text(proto_word(c->proto)),
                                     nt_v_int(c->channels),
                                     nt_v_int(c->chunk_bytes),
                                     nt_v_text(nt_buf_str(&label)),
                                     nt_v_text(nt_backend_names[c->backend])};
        rc =
            nt_db_intern(s, NT_SQL_GET_SETTING, NT_SQL_PUT_SETTING, v, 1, NT_COUNT(v), ret_id, err);
    }
    nt_buf_done(&label);
    return rc;
}

/* "" is -1: left to NCCL, not read. */
static int read_pair(struct nt_store *s, sqlite3_stmt *st, int column, int8_t *ret_algo,
                     int8_t *ret_proto, struct nt_err *err)
{
    uint8_t algo = 0, proto = 0;
    int rc;
    if (nt_db_text(st, column)[0] == '\0') {
        *ret_algo = -1;
        *ret_proto = -1;
        return 0;
    }
    rc = nt_db_word(s, st, column, nt_algo_names, &algo, err);
    if (rc == 0) {
        rc = nt_db_word(s, st, column + 1, nt_proto_names, &proto, err);
    }
    if (rc == 0) {
        *ret_algo = (int8_t)algo;
        *ret_proto = (int8_t)proto;
    }
    return rc;
}

int nt_store_get_setting(struct nt_store *s, int64_t id, struct nt_buf *vars,
                         struct nt_call *ret_call, struct nt_err *err)
{
    const struct nt_value key[] = {nt_v_int(id)};
    struct nt_call call = NT_CALL_DEFAULT;
    sqlite3_stmt *st = NULL;
    int rc = nt_db_start(s, NT_SQL_READ_SETTING, key, NT_COUNT(key), &st, err);
    int step;

    if (rc != 0) {
        return rc;
    }
    step = sqlite3_step(st);
    if (step == SQLITE_ROW) {
        rc = read_pair(s, st, 1, &call.algo, &call.proto, err);
        call.channels = (uint16_t)nt_db_u64(st, 3);
        call.chunk_bytes = (uint32_t)nt_db_u64(st, 4);
        if (rc == 0) {
            rc = nt_db_word(s, st, 5, nt_backend_names, &call.backend, err);
        }
        if (rc == 0 && vars != NULL) {
            nt_buf_puts(vars, nt_db_text(st, 0));
        }
    } else if (step == SQLITE_DONE) {
        rc = nt_fail(err, NT_E_INVAL, 0, "database %s holds no setting %lld", s->path,
                     (long long)id);
    } else {
        rc = nt_db_fail(s, err, NULL);
    }
    nt_db_done(st);
    if (rc == 0) {
        *ret_call = call;
    }
    return rc;
}

int nt_db_case(struct nt_store *s, const struct nt_case *c, int64_t *ret_id, struct nt_err *err)
{
    if (c->coll >= NT_COLL_COUNT || c->dtype >= NT_DTYPE_COUNT || c->place >= NT_PLACE_COUNT ||
        c->mode >= NT_MODE_COUNT) {
        return nt_fail(err, NT_E_INVAL, 0, "case %u/%u/%u/%u is outside the vocabulary", c->coll,
                       c->dtype, c->place, c->mode);
    }
    const struct nt_value v[] = {
        nt_v_text(nt_coll_names[c->coll]), nt_v_u64(c->bytes), nt_v_text(nt_dtype_names[c->dtype]),
        nt_v_text(nt_place_names[c->place]), nt_v_text(nt_mode_names[c->mode])};
    return nt_db_intern(s, NT_SQL_GET_CASE, NT_SQL_PUT_CASE, v, NT_COUNT(v), NT_COUNT(v), ret_id,
                        err);
}

int nt_db_executed(struct nt_store *s, const struct nt_executed *x, int64_t *ret_id,
                   struct nt_err *err)
{
    char text[96];
    int rc = check_pair(x->algo, x->proto, err);
    if (rc != 0) {
        return rc;
    }
    if (x->algo < 0) {
        *ret_id = 0;
        return 0;
    }
    const struct nt_value v[] = {nt_v_text(algo_word(x->algo)), nt_v_text(proto_word(x->proto)),
                                 nt_v_int(x->channels), nt_v_int(x->warps),
                                 nt_v_text(nt_executed_text(x, text, sizeof(text)))};
    return nt_db_intern(s, NT_SQL_GET_EXECUTED, NT_SQL_PUT_EXECUTED, v, 4, NT_COUNT(v), ret_id,
                        err);
}
