/* What was concluded: verdicts, profiles, events; and other people's measurements. */
#include "tuner/store/db.h"
#include "tuner/base/hash.h"

#include <string.h>

static int verdict_word(uint8_t kind, struct nt_value *ret, struct nt_err *err)
{
    if (kind >= NT_STORE_VERDICT_COUNT) {
        return nt_fail(err, NT_E_INVAL, 0, "verdict %u is outside the vocabulary", kind);
    }
    *ret = nt_v_text(nt_store_verdict_names[kind]);
    return 0;
}

static int put_verdict(struct nt_store *s, int64_t job, const struct nt_store_verdict *x,
                       struct nt_err *err)
{
    struct nt_value kind = nt_v_null();
    int64_t case_id = 0;
    int rc = verdict_word(x->kind, &kind, err);
    if (rc == 0) {
        rc = nt_db_case(s, &x->cs, &case_id, err);
    }
    if (rc == 0) {
        const struct nt_value v[] = {nt_v_int(job),
                                     nt_v_text(x->stage),
                                     nt_v_text(x->product),
                                     nt_v_int(case_id),
                                     nt_v_int(x->setting),
                                     kind,
                                     nt_v_real(x->default_ns),
                                     nt_v_real(x->tuned_ns),
                                     nt_v_real(x->speedup),
                                     nt_v_real(x->lo),
                                     nt_v_real(x->hi),
                                     nt_v_real(x->p),
                                     nt_v_int(x->pairs),
                                     nt_v_text(x->reason)};
        rc = nt_db_run(s, NT_SQL_SAVE_VERDICT, v, NT_COUNT(v), err);
    }
    return rc;
}

int nt_store_save_verdict(struct nt_store *s, int64_t job, const struct nt_store_verdict *v,
                          struct nt_err *err)
{
    bool own = false;
    int rc = nt_db_enter(s, &own, err);
    return rc == 0 ? nt_db_leave(s, own, put_verdict(s, job, v, err), err) : rc;
}

int nt_store_verdicts(struct nt_store *s, int64_t job, nt_store_verdict_cb on_verdict, void *data,
                      struct nt_err *err)
{
    sqlite3_stmt *st = NULL;
    int step = SQLITE_DONE, rc = 0;
    if (sqlite3_prepare_v2(
            s->db,
            "SELECT v.stage, v.product, c.collective, c.bytes, c.dtype, c.place, c.mode,"
            " v.setting_id, v.kind, v.speedup, v.lo, v.hi, v.p, v.default_ns, v.tuned_ns, v.pairs,"
            " v.reason FROM verdict AS v JOIN cases AS c ON c.id = v.case_id WHERE v.job_id = ?1"
            " ORDER BY v.id",
            -1, &st, NULL) != SQLITE_OK ||
        sqlite3_bind_int64(st, 1, job) != SQLITE_OK) {
        rc = nt_db_fail(s, err, NULL);
    }
    while (rc == 0 && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct nt_store_verdict v = {.stage = nt_db_text(st, 0),
                                     .product = nt_db_text(st, 1),
                                     .setting = sqlite3_column_int64(st, 7),
                                     .speedup = nt_db_real(st, 9),
                                     .lo = nt_db_real(st, 10),
                                     .hi = nt_db_real(st, 11),
                                     .p = nt_db_real(st, 12),
                                     .default_ns = nt_db_real(st, 13),
                                     .tuned_ns = nt_db_real(st, 14),
                                     .pairs = (uint32_t)nt_db_u64(st, 15),
                                     .reason = nt_db_text(st, 16)};
        rc = nt_db_read_case(s, st, 2, &v.cs, err);
        if (rc == 0) {
            rc = nt_db_word(s, st, 8, nt_store_verdict_names, &v.kind, err);
        }
        if (rc == 0) {
            rc = on_verdict(data, &v, err);
        }
    }
    if (rc == 0 && step != SQLITE_DONE) {
        rc = nt_db_fail(s, err, NULL);
    }
    (void)sqlite3_finalize(st);
    return rc;
}

static int put_profile_row(struct nt_store *s, int64_t profile,
                           const struct nt_store_profile_row *x, struct nt_err *err)
{
    struct nt_value kind = nt_v_null();
    int64_t case_id = 0;
    int rc = verdict_word(x->kind, &kind, err);
    if (rc == 0) {
        rc = nt_db_case(s, &x->cs, &case_id, err);
    }
    if (rc == 0) {
        const struct nt_value v[] = {nt_v_int(profile),
                                     nt_v_text(x->product),
                                     nt_v_int(case_id),
                                     nt_v_u64(x->min_bytes),
                                     nt_v_u64(x->max_bytes),
                                     nt_v_int(x->setting),
                                     kind,
                                     nt_v_real(x->default_ns),
                                     nt_v_real(x->as_found_ns),
                                     nt_v_real(x->tuned_ns),
                                     nt_v_real(x->speedup),
                                     nt_v_real(x->lo),
                                     nt_v_real(x->hi),
                                     nt_v_real(x->p),
                                     nt_v_int(x->pairs)};
        rc = nt_db_run(s, NT_SQL_ADD_PROFILE_ROW, v, NT_COUNT(v), err);
    }
    return rc;
}

int nt_store_save_profile(struct nt_store *s, int64_t job, const char *json,
                          const struct nt_store_profile_row *rows, size_t n, int64_t *ret_id,
                          struct nt_err *err)
{
    char hex[NT_HEX_LEN + 1];
    bool own = false, found = false;
    int64_t id = 0;
    int rc = nt_db_enter(s, &own, err);
    if (rc != 0) {
        return rc;
    }
    nt_sha256_hex(json, strlen(json), hex);
    const struct nt_value v[] = {nt_v_int(job), nt_v_text(hex), nt_v_u64(nt_db_now_ms()),
                                 nt_v_text(json)};
    rc = nt_db_get(s, NT_SQL_GET_PROFILE, v, 2, &id, &found, err);
    if (rc == 0 && !found) {
        rc = nt_db_run(s, NT_SQL_ADD_PROFILE, v, NT_COUNT(v), err);
        id = sqlite3_last_insert_rowid(s->db);
        for (size_t i = 0; rc == 0 && i < n; i++) {
            rc = put_profile_row(s, id, &rows[i], err);
        }
    }
    rc = nt_db_leave(s, own, rc, err);
    if (rc == 0) {
        *ret_id = id;
    }
    return rc;
}

/* Why a job that is there has no profile. */
static int no_profile(void *data, const struct nt_store_job *job, struct nt_err *err)
{
    (void)data;
    return job->state == NT_JOB_FAILED
               ? nt_fail(err, NT_E_MISSING, 0,
                         "job %lld failed and has no profile; 'nccltune query --view events' tells "
                         "why",
                         (long long)job->id)
               : nt_fail(err, NT_E_MISSING, 0,
                         "job %lld has no profile yet; 'nccltune tune --resume %lld' finishes it",
                         (long long)job->id, (long long)job->id);
}

int nt_store_load_profile(struct nt_store *s, int64_t job, struct nt_buf *json, struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_int(job)};
    sqlite3_stmt *st = NULL;
    int rc = nt_db_start(s, NT_SQL_LOAD_PROFILE, v, NT_COUNT(v), &st, err);
    int step;
    if (rc != 0) {
        return rc;
    }
    step = sqlite3_step(st);
    if (step == SQLITE_ROW) {
        nt_buf_puts(json, nt_db_text(st, 0));
        if (json->failed) {
            rc = nt_fail(err, NT_E_INVAL, 0, "the profile of job %lld is larger than %zu bytes",
                         (long long)job, json->max);
        }
    } else if (step == SQLITE_DONE) {
        rc = nt_store_job_load(s, job, no_profile, NULL, err);
    } else {
        rc = nt_db_fail(s, err, NULL);
    }
    nt_db_done(st);
    return rc;
}

int nt_store_add_event(struct nt_store *s, int64_t job, const char *kind, const char *text,
                       struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_id(job), nt_v_u64(nt_db_now_ms()), nt_v_text(kind),
                                 nt_v_text(text)};
    bool own = false;
    int rc = nt_db_enter(s, &own, err);
    return rc == 0 ? nt_db_leave(s, own, nt_db_run(s, NT_SQL_ADD_EVENT, v, NT_COUNT(v), err), err)
                   : rc;
}

static int put_check_row(struct nt_store *s, int64_t check, size_t nr,
                         const struct nt_store_check_row *r, struct nt_err *err)
{
    int64_t cs = 0;
    int rc = nt_db_case(s, &r->cs, &cs, err);
    if (rc == 0) {
        const struct nt_value v[] = {nt_v_int(check),
                                     nt_v_u64(nr),
                                     nt_v_int(cs),
                                     nt_v_int(r->setting),
                                     nt_v_u64(r->min_bytes),
                                     nt_v_u64(r->max_bytes),
                                     nt_v_real(r->was_ratio),
                                     nt_v_real(r->ratio),
                                     nt_v_real(r->lo),
                                     nt_v_real(r->hi),
                                     nt_v_real(r->default_ns),
                                     nt_v_real(r->tuned_ns),
                                     nt_v_text(r->default_move),
                                     nt_v_text(r->tuned_move),
                                     nt_v_text(r->verdict),
                                     nt_v_text(r->why)};
        rc = nt_db_run(s, NT_SQL_ADD_CHECK_ROW, v, NT_COUNT(v), err);
    }
    return rc;
}

int nt_store_add_check(struct nt_store *s, const struct nt_store_check *c,
                       const struct nt_store_check_row *rows, size_t n, int64_t *ret_id,
                       struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_u64(nt_db_now_ms()), nt_v_text(c->profile),
                                 nt_v_text(c->product),    nt_v_text(nt_rig_names[c->rig]),
                                 nt_v_int(c->ranks),       nt_v_int(c->nodes),
                                 nt_v_id(c->topology),     nt_v_id(c->host),
                                 nt_v_id(c->stack),        nt_v_int(c->pairs),
                                 nt_v_text(c->verdict),    nt_v_text(c->differs),
                                 nt_v_u64(c->copy_bytes),  nt_v_real(c->copy_ns),
                                 nt_v_real(c->launch_ns)};
    bool own = false;
    int64_t id = 0;
    int rc = nt_db_enter(s, &own, err);
    if (rc != 0) {
        return rc;
    }
    rc = nt_db_run(s, NT_SQL_ADD_CHECK, v, NT_COUNT(v), err);
    id = sqlite3_last_insert_rowid(s->db);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = put_check_row(s, id, i + 1, &rows[i], err);
    }
    rc = nt_db_leave(s, own, rc, err);
    if (rc == 0) {
        *ret_id = id;
    }
    return rc;
}

static int put_measurement(struct nt_store *s, int64_t import, const struct nt_store_measurement *m,
                           struct nt_err *err)
{
    const struct nt_value v[] = {
        nt_v_int(import),         nt_v_text(m->collective),
        nt_v_u64(m->bytes),       nt_v_text(m->dtype),
        nt_v_text(m->place),      nt_v_text(m->mode),
        nt_v_text(m->backend),    nt_v_text(m->setting),
        nt_v_int(m->ranks),       nt_v_int(m->repeat),
        nt_v_int(m->samples),     nt_v_real(m->ns),
        nt_v_real(m->sd_ns),      nt_v_real(m->algbw_gbps),
        nt_v_real(m->busbw_gbps), m->wrong >= 0 ? nt_v_int(m->wrong) : nt_v_null()};
    return nt_db_run(s, NT_SQL_ADD_MEASUREMENT, v, NT_COUNT(v), err);
}

int nt_store_add_import(struct nt_store *s, const struct nt_store_import *im,
                        const struct nt_store_measurement *rows, size_t n, int64_t *ret_id,
                        bool *ret_known, struct nt_err *err)
{
    const struct nt_value v[] = {nt_v_text(im->sha256), nt_v_text(im->kind),
                                 nt_v_text(im->source), nt_v_text(im->provenance),
                                 nt_v_text(im->setup),  nt_v_u64(nt_db_now_ms())};
    bool own = false, found = false;
    int64_t id = 0;
    int rc = nt_db_enter(s, &own, err);
    if (rc != 0) {
        return rc;
    }
    rc = nt_db_get(s, NT_SQL_GET_IMPORT, v, 2, &id, &found, err);
    if (rc == 0 && !found) {
        rc = nt_db_run(s, NT_SQL_ADD_IMPORT, v, NT_COUNT(v), err);
        id = sqlite3_last_insert_rowid(s->db);
        for (size_t i = 0; rc == 0 && i < n; i++) {
            rc = put_measurement(s, id, &rows[i], err);
        }
    }
    rc = nt_db_leave(s, own, rc, err);
    if (rc == 0) {
        *ret_id = id;
        *ret_known = found;
    }
    return rc;
}
