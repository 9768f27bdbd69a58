/* Steps of a job: added one by one, read again in order. */
#include "tuner/store/db.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COST_BYTES = 4 * NT_ALGO_COUNT * NT_PROTO_COUNT };

/* --- packing: little-endian words of 32 bits, on every machine
 * -------------------------------------- */

static void put_u32(uint8_t *out, uint32_t x)
{
    out[0] = (uint8_t)x;
    out[1] = (uint8_t)(x >> 8);
    out[2] = (uint8_t)(x >> 16);
    out[3] = (uint8_t)(x >> 24);
}
static uint32_t get_u32(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}
static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

struct summary {
    double median, mean, sd; /* sd of the sample, 0 for one value */
    uint32_t min, p95;       /* p95: nearest rank */
};

/* sorted: room for n words. */
static struct summary summarise(const uint32_t *ns, size_t n, uint32_t *sorted)
{
    struct summary r = {0};
    size_t low = (n - 1) / 2, high = n / 2;
    double sum = 0, squares = 0;
    memcpy(sorted, ns, n * sizeof(*ns));
    qsort(sorted, n, sizeof(*sorted), ascending);
    for (size_t i = 0; i < n; i++) {
        sum += ns[i];
    }
    r.mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        squares += (ns[i] - r.mean) * (ns[i] - r.mean);
    }
    r.sd = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    r.median = ((double)sorted[low] + sorted[high]) / 2;
    r.min = sorted[0];
    r.p95 = sorted[(n * 95 + 99) / 100 - 1];
    return r;
}

/* --- adding
 * ------------------------------------------------------------------------------------------ */

static int add_step(struct nt_store *s, int64_t job, uint64_t seq, enum nt_store_kind kind,
                    struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_int(job), nt_v_u64(seq), nt_v_int(kind)};
    return nt_db_run(s, NT_SQL_ADD_STEP, v, NT_COUNT(v), err);
}

static int status_word(uint8_t status, struct nt_value *ret, struct nt_err *err)
{
    if (status >= NT_STATUS_COUNT) {
        return nt_fail(err, NT_E_INVAL, 0, "status %u is outside the vocabulary", status);
    }
    *ret = nt_v_text(nt_status_names[status]);
    return 0;
}

static int insert_gang(struct nt_store *s, int64_t job, const struct nt_store_gang *g,
                       struct nt_err *err)
{
    struct nt_value status = nt_v_null();
    int rc = status_word(g->status, &status, err);
    if (rc == 0) {
        rc = add_step(s, job, g->seq, NT_STEP_GANG, err);
    }
    if (rc == 0) {
        const struct nt_value v[] = {nt_v_int(job),
                                     nt_v_u64(g->seq),
                                     nt_v_u64(g->number),
                                     nt_v_text(g->arm),
                                     nt_v_int(g->setting),
                                     nt_v_u64(g->start_ns),
                                     nt_v_u64(g->init_ns),
                                     status,
                                     nt_v_u64(g->memory_bytes),
                                     nt_v_text(g->error)};
        rc = nt_db_run(s, NT_SQL_ADD_GANG, v, NT_COUNT(v), err);
    }
    return rc;
}

static int insert_cells(struct nt_store *s, int64_t job, const struct nt_store_cells *c,
                        struct nt_err *err)
{
    struct nt_value status = nt_v_null();
    uint8_t cost[COST_BYTES];
    int64_t case_id = 0;
    int rc = status_word(c->status, &status, err);
    if (rc == 0) {
        rc = nt_db_case(s, &c->cs, &case_id, err);
    }
    if (rc == 0) {
        rc = add_step(s, job, c->seq, NT_STEP_CELLS, err);
    }
    for (size_t i = 0; i < NT_ALGO_COUNT * NT_PROTO_COUNT; i++) {
        uint32_t bits;
        memcpy(&bits, &c->cost[i / NT_PROTO_COUNT][i % NT_PROTO_COUNT], sizeof(bits));
        put_u32(cost + 4 * i, bits);
    }
    if (rc == 0) {
        const struct nt_value v[] = {nt_v_int(job),       nt_v_u64(c->seq),
                                     nt_v_u64(c->gang),   nt_v_int(case_id),
                                     nt_v_int(c->asked),  status,
                                     nt_v_text(c->error), nt_v_blob(cost, sizeof(cost))};
        rc = nt_db_run(s, NT_SQL_ADD_CELLS, v, NT_COUNT(v), err);
    }
    return rc;
}

static int insert_trial(struct nt_store *s, int64_t job, const struct nt_store_trial *t,
                        struct nt_err *err)
{
    struct nt_value status = nt_v_null(), none = nt_v_null();
    int64_t case_id = 0, executed_id = 0;
    struct summary sum = {0};
    bool some = t->count > 0;
    int rc = status_word(t->status, &status, err);
    if (rc == 0) {
        rc = nt_db_case(s, &t->cs, &case_id, err);
    }
    if (rc == 0) {
        rc = nt_db_executed(s, &t->executed, &executed_id, err);
    }
    if (rc == 0) {
        rc = add_step(s, job, t->seq, NT_STEP_TRIAL, err);
    }
    if (rc == 0) {
        rc = nt_db_scratch(s, 4 * (t->count + 1), err);
    }
    if (rc != 0) {
        return rc;
    }
    if (some) {
        sum = summarise(t->ns, t->count, s->scratch);
    }
    for (size_t i = 0; i < t->count; i++) {
        put_u32((uint8_t *)s->scratch + 4 * i, t->ns[i]);
    }
    const struct nt_value v[] = {nt_v_int(job),
                                 nt_v_u64(t->seq),
                                 nt_v_u64(t->gang),
                                 nt_v_int(case_id),
                                 nt_v_int(t->setting),
                                 nt_v_id(executed_id),
                                 status,
                                 nt_v_u64(t->count),
                                 some ? nt_v_real(sum.median) : none,
                                 some ? nt_v_real(sum.mean) : none,
                                 some ? nt_v_int(sum.min) : none,
                                 some ? nt_v_int(sum.p95) : none,
                                 some ? nt_v_real(sum.sd) : none,
                                 nt_v_u64(t->base_ns),
                                 nt_v_u64(t->elapsed_ns),
                                 nt_v_u64(t->connect_ns),
                                 nt_v_u64(t->memory_bytes),
                                 nt_v_u64(t->wrong),
                                 nt_v_int(t->flags),
                                 nt_v_text(t->error),
                                 nt_v_blob(s->scratch, 4 * t->count),
                                 nt_v_text(nt_bits_names[t->bits < NT_BITS_COUNT ? t->bits : 0]),
                                 nt_v_int(t->own_chunk_bytes)};
    return nt_db_run(s, NT_SQL_ADD_TRIAL, v, NT_COUNT(v), err);
}

int nt_store_add_gang(struct nt_store *s, int64_t job, const struct nt_store_gang *g,
                      struct nt_err *err)
{
    bool own = false;
    int rc = nt_db_enter(s, &own, err);
    return rc == 0 ? nt_db_leave(s, own, insert_gang(s, job, g, err), err) : rc;
}

int nt_store_add_cells(struct nt_store *s, int64_t job, const struct nt_store_cells *c,
                       struct nt_err *err)
{
    bool own = false;
    int rc = nt_db_enter(s, &own, err);
    return rc == 0 ? nt_db_leave(s, own, insert_cells(s, job, c, err), err) : rc;
}

int nt_store_add_trial(struct nt_store *s, int64_t job, const struct nt_store_trial *t,
                       struct nt_err *err)
{
    bool own = false;
    int rc = nt_db_enter(s, &own, err);
    return rc == 0 ? nt_db_leave(s, own, insert_trial(s, job, t, err), err) : rc;
}

/* --- reading
 * ------------------------------------------------------------------------------------------ */

struct nt_store_cursor {
    struct nt_store *store;
    int64_t job;
    sqlite3_stmt *walk, *detail[NT_STEP_TRIAL + 1]; /* detail by enum nt_store_kind */
    uint32_t *ns;
    size_t ns_max;
    struct nt_store_step step;
};

/* All of one kind have seq first and then what read_* expects. */
static const char *const detail_sql[NT_STEP_TRIAL + 1] = {
    [NT_STEP_GANG] = "SELECT seq, number, arm, setting_id, start_ns, init_ns, status, memory_bytes,"
                     " error FROM gang WHERE job_id = ?1 AND seq = ?2",
    [NT_STEP_CELLS] =
        "SELECT t.seq, t.gang, c.collective, c.bytes, c.dtype, c.place, c.mode, t.asked, t.status,"
        " t.error, t.cost FROM cells AS t JOIN cases AS c ON c.id = t.case_id"
        " WHERE t.job_id = ?1 AND t.seq = ?2",
    [NT_STEP_TRIAL] =
        "SELECT t.seq, t.gang, c.collective, c.bytes, c.dtype, c.place, c.mode, t.setting_id,"
        " x.algo, x.proto, x.channels, x.warps, t.status, t.base_ns, t.elapsed_ns, t.connect_ns,"
        " t.memory_bytes, t.wrong, t.flags, t.error, t.samples, t.bits, t.own_chunk_bytes"
        " FROM trial AS t"
        " JOIN cases AS c ON c.id = t.case_id LEFT JOIN executed AS x ON x.id = t.executed_id"
        " WHERE t.job_id = ?1 AND t.seq = ?2",
};

int nt_store_steps_open(struct nt_store *s, int64_t job, uint64_t first_seq,
                        struct nt_store_cursor **ret, struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_int(job), nt_v_u64(first_seq)};
    struct nt_store_cursor *c = sqlite3_malloc64(sizeof(*c));
    int rc = 0;
    if (c == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "database %s: out of memory", s->path);
    }
    memset(c, 0, sizeof(*c));
    c->store = s;
    c->job = job;
    if (sqlite3_prepare_v2(s->db,
                           "SELECT seq, kind FROM step WHERE job_id = ?1 AND seq >= ?2"
                           " ORDER BY seq",
                           -1, &c->walk, NULL) != SQLITE_OK) {
        rc = nt_db_fail(s, err, NULL);
    }
    for (size_t i = NT_STEP_GANG; rc == 0 && i <= NT_STEP_TRIAL; i++) {
        if (sqlite3_prepare_v2(s->db, detail_sql[i], -1, &c->detail[i], NULL) != SQLITE_OK) {
            rc = nt_db_fail(s, err, NULL);
        }
    }
    if (rc == 0) {
        rc = nt_db_bind(s, c->walk, v, NT_COUNT(v), err);
    }
    if (rc == 0) {
        *ret = c;
        c = NULL;
    }
    nt_store_steps_close(c);
    return rc;
}

void nt_store_steps_close(struct nt_store_cursor *c)
{
    if (c != NULL) {
        (void)sqlite3_finalize(c->walk);
        for (size_t i = 0; i < NT_COUNT(c->detail); i++) {
            (void)sqlite3_finalize(c->detail[i]);
        }
        sqlite3_free(c->ns);
        sqlite3_free(c);
    }
}

static int read_gang(struct nt_store_cursor *c, sqlite3_stmt *st, struct nt_err *err)
{
    struct nt_store_gang *g = &c->step.gang;
    *g = (struct nt_store_gang){.seq = nt_db_u64(st, 0),
                                .number = nt_db_u64(st, 1),
                                .arm = nt_db_text(st, 2),
                                .setting = sqlite3_column_int64(st, 3),
                                .start_ns = nt_db_u64(st, 4),
                                .init_ns = nt_db_u64(st, 5),
                                .memory_bytes = nt_db_u64(st, 7),
                                .error = nt_db_text(st, 8)};
    return nt_db_word(c->store, st, 6, nt_status_names, &g->status, err);
}

static int read_cells(struct nt_store_cursor *c, sqlite3_stmt *st, struct nt_err *err)
{
    struct nt_store_cells *x = &c->step.cells;
    const uint8_t *cost = sqlite3_column_blob(st, 10);
    size_t known = (size_t)sqlite3_column_bytes(st, 10) / 4;
    int rc;
    *x = (struct nt_store_cells){.seq = nt_db_u64(st, 0),
                                 .gang = nt_db_u64(st, 1),
                                 .asked = sqlite3_column_int(st, 7) != 0,
                                 .error = nt_db_text(st, 9)};
    for (size_t i = 0; i < NT_ALGO_COUNT * NT_PROTO_COUNT; i++) {
        float us = -1; /* an algorithm that NCCL had not when this was written */
        if (i < known) {
            uint32_t bits = get_u32(cost + 4 * i);
            memcpy(&us, &bits, sizeof(us));
        }
        x->cost[i / NT_PROTO_COUNT][i % NT_PROTO_COUNT] = us;
    }
    rc = nt_db_read_case(c->store, st, 2, &x->cs, err);
    return rc == 0 ? nt_db_word(c->store, st, 8, nt_status_names, &x->status, err) : rc;
}

static int read_samples(struct nt_store_cursor *c, sqlite3_stmt *st, int column, struct nt_err *err)
{
    const uint8_t *in = sqlite3_column_blob(st, column);
    size_t n = (size_t)sqlite3_column_bytes(st, column) / 4;
    if (n > c->ns_max) {
        uint32_t *more = sqlite3_realloc64(c->ns, n * sizeof(*more));
        if (more == NULL) {
            return nt_fail(err, NT_E_NOMEM, 0, "database %s: out of memory", c->store->path);
        }
        c->ns = more;
        c->ns_max = n;
    }
    for (size_t i = 0; i < n; i++) {
        c->ns[i] = get_u32(in + 4 * i);
    }
    c->step.trial.ns = c->ns;
    c->step.trial.count = n;
    return 0;
}

static int read_executed(struct nt_store *s, sqlite3_stmt *st, int column, struct nt_executed *ret,
                         struct nt_err *err)
{
    struct nt_executed x = NT_EXECUTED_NONE;
    uint8_t algo = 0, proto = 0;
    int rc = 0;
    if (sqlite3_column_type(st, column) != SQLITE_NULL) {
        rc = nt_db_word(s, st, column, nt_algo_names, &algo, err);
        if (rc == 0) {
            rc = nt_db_word(s, st, column + 1, nt_proto_names, &proto, err);
        }
        x = (struct nt_executed){.algo = (int8_t)algo,
                                 .proto = (int8_t)proto,
                                 .channels = (uint16_t)nt_db_u64(st, column + 2),
                                 .warps = (uint16_t)nt_db_u64(st, column + 3)};
    }
    *ret = x;
    return rc;
}

static int read_trial(struct nt_store_cursor *c, sqlite3_stmt *st, struct nt_err *err)
{
    struct nt_store_trial *t = &c->step.trial;
    int rc;
    *t = (struct nt_store_trial){.seq = nt_db_u64(st, 0),
                                 .gang = nt_db_u64(st, 1),
                                 .setting = sqlite3_column_int64(st, 7),
                                 .base_ns = nt_db_u64(st, 13),
                                 .elapsed_ns = nt_db_u64(st, 14),
                                 .connect_ns = nt_db_u64(st, 15),
                                 .memory_bytes = nt_db_u64(st, 16),
                                 .wrong = nt_db_u64(st, 17),
                                 .flags = (uint32_t)nt_db_u64(st, 18),
                                 .error = nt_db_text(st, 19),
                                 .own_chunk_bytes = (uint32_t)nt_db_u64(st, 22)};
    rc = nt_db_read_case(c->store, st, 2, &t->cs, err);
    if (rc == 0) {
        rc = read_executed(c->store, st, 8, &t->executed, err);
    }
    if (rc == 0) {
        rc = nt_db_word(c->store, st, 12, nt_status_names, &t->status, err);
    }
    if (rc == 0) {
        rc = nt_db_word(c->store, st, 21, nt_bits_names, &t->bits, err);
    }
    return rc == 0 ? read_samples(c, st, 20, err) : rc;
}

static int read_detail(struct nt_store_cursor *c, int64_t seq, int64_t kind, struct nt_err *err)
{
    static int (*const read[NT_STEP_TRIAL + 1])(struct nt_store_cursor *, sqlite3_stmt *,
                                                struct nt_err *) = {
        [NT_STEP_GANG] = read_gang, [NT_STEP_CELLS] = read_cells, [NT_STEP_TRIAL] = read_trial};
    const struct nt_value v[] = {nt_v_int(c->job), nt_v_int(seq)};
    sqlite3_stmt *st;
    int rc, step;

    if (kind < NT_STEP_GANG || kind > NT_STEP_TRIAL) {
        return nt_fail(err, NT_E_STORE, 0,
                       "database %s: step %lld of job %lld is of kind %lld, which this nccltune "
                       "does not know",
                       c->store->path, (long long)seq, (long long)c->job, (long long)kind);
    }
    st = c->detail[kind];
    (void)sqlite3_reset(st);
    rc = nt_db_bind(c->store, st, v, NT_COUNT(v), err);
    if (rc != 0) {
        return rc;
    }
    step = sqlite3_step(st);
    if (step != SQLITE_ROW) {
        return step == SQLITE_DONE
                   ? nt_fail(err, NT_E_STORE, 0, "database %s: step %lld of job %lld has no row",
                             c->store->path, (long long)seq, (long long)c->job)
                   : nt_db_fail(c->store, err, NULL);
    }
    c->step.kind = (enum nt_store_kind)kind;
    return read[kind](c, st, err);
}

int nt_store_steps_next(struct nt_store_cursor *c, const struct nt_store_step **ret,
                        struct nt_err *err)
{
    int step = sqlite3_step(c->walk);
    int rc = 0;
    if (step == SQLITE_ROW) {
        rc =
            read_detail(c, sqlite3_column_int64(c->walk, 0), sqlite3_column_int64(c->walk, 1), err);
    } else if (step != SQLITE_DONE) {
        rc = nt_db_fail(c->store, err, NULL);
    }
    if (rc == 0) {
        *ret = step == SQLITE_ROW ? &c->step : NULL;
    }
    return rc;
}
