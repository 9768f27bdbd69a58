/*
 * query - other people's SQL, possibly on other people's databases.
 *
 * What keeps it harmless: an authorizer that allows reading and listed functions only, from the
 * preparation to the end (table-valued PRAGMAs prepare statements of their own while they run); one
 * statement; SQLite's limits lowered; a deadline in the progress handler; a limit of SQLite's
 * memory, since what an aggregate collects is under no other; and a schema that is not trusted (see
 * connect in open.c).
 */
#include "tuner/store/db.h"
#include "tuner/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    VALUE_MAX_BYTES = 4 << 20,
    SQL_MAX_BYTES = 1 << 16,
    PATTERN_MAX_BYTES = 200,
    OPS_BETWEEN_LOOKS = 2000,
    MEMORY_MAX_MIB = 512
};

/* Nothing here reads files, loads code, or keeps state; and no single call takes long, because the
 * deadline is looked at between SQLite's instructions only: printf and format build a billion
 * characters one by one; instr, replace and trim are quadratic. Short enough to walk. */
/* clang-format off */
static const char *const functions[] = {
    "->", "->>", "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "avg",
    "ceil", "ceiling", "char", "coalesce", "concat", "concat_ws", "cos", "cosh", "count",
    "cume_dist", "current_date", "current_time", "current_timestamp", "date", "datetime",
    "degrees", "dense_rank", "exp", "first_value", "floor", "glob", "group_concat", "hex",
    "ifnull", "iif", "json", "json_array", "json_array_length", "json_each", "json_extract",
    "json_group_array", "json_group_object", "json_object", "json_quote", "json_tree",
    "json_type", "json_valid", "julianday", "lag", "last_value", "lead", "length", "like",
    "likelihood", "likely", "ln", "log", "log10", "log2", "lower", "max", "median", "min",
    "mod", "nth_value", "ntile", "nullif", "octet_length", "percent_rank", "percentile",
    "percentile_cont", "percentile_disc", "pi", "pow", "power", "quote", "radians", "rank",
    "round", "row_number", "sign", "sin", "sinh", "sqlite_version", "sqrt", "strftime",
    "string_agg", "substr", "substring", "sum", "tan", "tanh", "time", "timediff", "total",
    "trunc", "typeof", "unhex", "unicode", "unixepoch", "unlikely", "upper", NULL
};
/* clang-format on */

/* Tables that are there without being in the schema and show more than the data. */
static const char *const hidden[] = {
    "bytecode",      "dbstat",      "fts3tokenize", "sqlite_dbpage",
    "sqlite_memory", "sqlite_stmt", "tables_used",  NULL};

static bool listed(const char *word, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (sqlite3_stricmp(word, *list) == 0) {
            return true;
        }
    }
    return false;
}

static int authorize(void *data, int action, const char *a, const char *b, const char *database,
                     const char *view)
{
    (void)data;
    (void)database;
    (void)view;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_RECURSIVE:
        return SQLITE_OK;
    case SQLITE_READ:
        return sqlite3_strnicmp(a, "pragma_", 7) == 0 || listed(a, hidden) ? SQLITE_DENY
                                                                           : SQLITE_OK;
    case SQLITE_FUNCTION:
        return listed(b, functions) ? SQLITE_OK : SQLITE_DENY;
    default:
        return SQLITE_DENY;
    }
}

static uint64_t now_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

struct deadline {
    uint64_t at_ns; /* 0: none */
    bool passed;
};

static int late(void *data)
{
    struct deadline *d = data;
    d->passed = d->at_ns != 0 && now_ns() >= d->at_ns;
    return d->passed;
}

/* SQLite's limits while a query runs, and what they were. */
static const struct {
    int id, value;
} narrow[] = {{SQLITE_LIMIT_LENGTH, VALUE_MAX_BYTES},
              {SQLITE_LIMIT_SQL_LENGTH, SQL_MAX_BYTES},
              {SQLITE_LIMIT_COLUMN, 200},
              {SQLITE_LIMIT_EXPR_DEPTH, 200},
              {SQLITE_LIMIT_COMPOUND_SELECT, 50},
              {SQLITE_LIMIT_ATTACHED, 0},
              {SQLITE_LIMIT_WORKER_THREADS, 0},
              {SQLITE_LIMIT_VDBE_OP, 1000000},
              {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_MAX_BYTES}};

static int query_fail(struct nt_store *s, const struct deadline *d,
                      const struct nt_query_limits *limits, struct nt_err *err)
{
    int primary = sqlite3_errcode(s->db) & 0xff;
    char time[32];
    if (d->passed) {
        return nt_fail(err, NT_E_NO, 0,
                       "the query took longer than %s; ask for less, or give it more (--timeout)",
                       nt_format_ns((double)limits->time_ns, time, sizeof(time)));
    }
    switch (primary) {
    case SQLITE_AUTH:
        return nt_fail(err, NT_E_INVAL, 0, "a query may only read: %s", sqlite3_errmsg(s->db));
    case SQLITE_ERROR:
    case SQLITE_RANGE:
    case SQLITE_MISMATCH:
        return nt_fail(err, NT_E_INVAL, 0, "query: %s", sqlite3_errmsg(s->db));
    case SQLITE_TOOBIG:
        return nt_fail(err, NT_E_INVAL, 0, "query: a value or the text is too large");
    case SQLITE_NOMEM:
        return nt_fail(err, NT_E_NO, 0,
                       "the query needs more memory than there is or than %d MiB; ask for less",
                       MEMORY_MAX_MIB);
    default:
        return nt_db_fail(s, err, "query");
    }
}

/* What follows the statement may be blanks, semicolons and comments, else it is a second one. */
static bool only_blank(const char *tail)
{
    for (;;) {
        while (*tail == ';' || isspace((unsigned char)*tail)) {
            tail++;
        }
        if (tail[0] == '-' && tail[1] == '-') {
            tail += strcspn(tail, "\n");
        } else if (tail[0] == '/' && tail[1] == '*') {
            tail = strstr(tail + 2, "*/");
            if (tail == NULL) {
                return true;
            }
            tail += 2;
        } else {
            return *tail == '\0';
        }
    }
}

static int prepare_one(struct nt_store *s, const char *sql, const struct nt_value *args,
                       size_t nargs, sqlite3_stmt **st, const struct deadline *d,
                       const struct nt_query_limits *limits, struct nt_err *err)
{
    const char *tail = "";
    if (sqlite3_prepare_v2(s->db, sql, -1, st, &tail) != SQLITE_OK) {
        return query_fail(s, d, limits, err);
    }
    if (*st == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "query: no SQL in it");
    }
    if (!only_blank(tail)) {
        return nt_fail(err, NT_E_INVAL, 0, "query: one statement at a time");
    }
    if (!sqlite3_stmt_readonly(*st) || sqlite3_column_count(*st) == 0) {
        return nt_fail(err, NT_E_INVAL, 0, "a query may only read");
    }
    if ((size_t)sqlite3_bind_parameter_count(*st) > nargs) {
        return nt_fail(err, NT_E_INVAL, 0, "query: %d parameters, %zu values",
                       sqlite3_bind_parameter_count(*st), nargs);
    }
    return nt_db_bind(s, *st, args, nargs, err);
}

static size_t read_value(sqlite3_stmt *st, int column, struct nt_value *v)
{
    *v = (struct nt_value){.type = NT_VALUE_NULL};
    switch (sqlite3_column_type(st, column)) {
    case SQLITE_INTEGER:
        *v = nt_v_int(sqlite3_column_int64(st, column));
        return sizeof(v->i);
    case SQLITE_FLOAT:
        *v = (struct nt_value){.type = NT_VALUE_REAL, .r = sqlite3_column_double(st, column)};
        return sizeof(v->r);
    case SQLITE_TEXT:
        *v = (struct nt_value){.type = NT_VALUE_TEXT, .text = nt_db_text(st, column)};
        v->len = (size_t)sqlite3_column_bytes(st, column);
        return v->len;
    case SQLITE_BLOB:
        *v = nt_v_blob(sqlite3_column_blob(st, column), (size_t)sqlite3_column_bytes(st, column));
        return v->len;
    default:
        return 1;
    }
}

struct answer {
    nt_store_row_cb on_row;
    void *data;
    bool cut;
};

static int run_query(struct nt_store *s, sqlite3_stmt *st, const struct deadline *d,
                     const struct nt_query_limits *limits, struct answer *a, struct nt_err *err)
{
    unsigned n = (unsigned)sqlite3_column_count(st);
    struct nt_value *values = sqlite3_malloc64(n * sizeof(*values));
    const char **names = sqlite3_malloc64(n * sizeof(*names));
    uint64_t rows = 0, bytes = 0;
    int step = SQLITE_DONE, rc = 0;

    if (names == NULL || values == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "query: out of memory");
        goto out;
    }
    for (unsigned i = 0; i < n; i++) {
        names[i] = sqlite3_column_name(st, (int)i);
        if (names[i] == NULL) {
            rc = nt_fail(err, NT_E_NOMEM, 0, "query: out of memory");
            goto out;
        }
    }
    rc = a->on_row(a->data, n, names, NULL, err);
    while (rc == 0 && (step = sqlite3_step(st)) == SQLITE_ROW) {
        for (unsigned i = 0; i < n; i++) {
            bytes += read_value(st, (int)i, &values[i]);
        }
        if ((limits->rows != 0 && rows == limits->rows) ||
            (limits->bytes != 0 && bytes > limits->bytes)) {
            a->cut = true;
            step = SQLITE_DONE;
            break;
        }
        rc = a->on_row(a->data, n, names, values, err);
        rows++;
    }
    if (rc == 0 && step != SQLITE_DONE) {
        rc = query_fail(s, d, limits, err);
    }
out:
    sqlite3_free(values);
    sqlite3_free(names);
    return rc;
}

/* SQLite declares the columns of these tables by a CREATE TABLE of its own on first use, which the
 * authorizer would refuse. */
static void declare_json_tables(struct nt_store *s)
{
    static const char *const first[] = {"SELECT 1 FROM json_each('[]')",
                                        "SELECT 1 FROM json_tree('[]')"};
    for (size_t i = 0; i < NT_COUNT(first); i++) {
        sqlite3_stmt *st = NULL;
        (void)sqlite3_prepare_v2(s->db, first[i], -1, &st, NULL);
        (void)sqlite3_finalize(st);
    }
}

int nt_store_query(struct nt_store *s, const char *sql, const struct nt_value *args, size_t nargs,
                   const struct nt_query_limits *limits, nt_store_row_cb on_row, void *data,
                   bool *ret_cut, struct nt_err *err)
{
    static const struct nt_query_limits none = {0};
    const struct nt_query_limits *lim = limits != NULL ? limits : &none;
    struct deadline d = {.at_ns = lim->time_ns != 0 ? now_ns() + lim->time_ns : 0};
    struct answer a = {.on_row = on_row, .data = data};
    int before[NT_COUNT(narrow)];
    sqlite3_stmt *st = NULL;
    int rc;

    declare_json_tables(s);
    /* The process's, and left so: nothing else here comes near it, and others may be querying. */
    (void)sqlite3_hard_heap_limit64((sqlite3_int64)MEMORY_MAX_MIB << 20);
    for (size_t i = 0; i < NT_COUNT(narrow); i++) {
        before[i] = sqlite3_limit(s->db, narrow[i].id, narrow[i].value);
    }
    sqlite3_progress_handler(s->db, OPS_BETWEEN_LOOKS, late, &d);
    (void)sqlite3_set_authorizer(s->db, authorize, NULL);
    rc = prepare_one(s, sql, args, nargs, &st, &d, lim, err);
    if (rc == 0) {
        rc = run_query(s, st, &d, lim, &a, err);
    }
    (void)sqlite3_finalize(st);
    (void)sqlite3_set_authorizer(s->db, NULL, NULL);
    sqlite3_progress_handler(s->db, 0, NULL, NULL);
    for (size_t i = 0; i < NT_COUNT(narrow); i++) {
        (void)sqlite3_limit(s->db, narrow[i].id, before[i]);
    }
    if (rc == 0 && ret_cut != NULL) {
        *ret_cut = a.cut;
    }
    return rc;
}
