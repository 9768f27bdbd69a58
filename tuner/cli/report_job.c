#include "tuner/cli/report_job.h"
#include "tuner/stats/stats.h"
#include "tuner/topology/topology.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWING_COLUMNS = 110, DRAWING_BYTES = 1 << 20 };

/* Everything that must outlive its row is kept here. NULL without memory. */
static const char *keep(struct nt_report_job *j, const char *text)
{
    char *copy = strdup(text != NULL ? text : "");
    char **grown;

    if (copy == NULL) {
        return NULL;
    }
    if ((j->ntexts & (j->ntexts - 1)) == 0) {
        grown = realloc(j->texts, (j->ntexts == 0 ? 1 : 2 * j->ntexts) * sizeof(*grown));
        if (grown == NULL) {
            free(copy);
            return NULL;
        }
        j->texts = grown;
    }
    j->texts[j->ntexts++] = copy;
    return copy;
}

static struct nt_report_arm *add_arm(struct nt_report_job *j)
{
    struct nt_report_arm *grown;

    if ((j->narms & (j->narms - 1)) == 0) {
        grown = realloc(j->arms, (j->narms == 0 ? 1 : 2 * j->narms) * sizeof(*grown));
        if (grown == NULL) {
            return NULL;
        }
        j->arms = grown;
    }
    return &j->arms[j->narms++];
}

/* ------------------------------------------------------------------ arms */

static double real(const struct nt_value *v)
{
    return v->type == NT_VALUE_REAL ? v->r : v->type == NT_VALUE_INT ? (double)v->i : NAN;
}

static const char *text(const struct nt_value *v)
{
    return v->type == NT_VALUE_TEXT ? v->text : "";
}

/* collective, bytes, mode, then what `what` of a query says. */
static int arm_of(struct nt_report_job *j, const struct nt_value *v, struct nt_report_arm **ret,
                  struct nt_err *err)
{
    int coll = nt_vocab_find(nt_coll_names, "collective", text(&v[0]), err);
    int mode = coll < 0 ? coll : nt_vocab_find(nt_mode_names, "mode", text(&v[2]), err);
    struct nt_report_arm *a = mode < 0 ? NULL : add_arm(j);

    if (mode < 0) {
        return mode;
    }
    if (a == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "report");
    }
    *a = (struct nt_report_arm){.coll = coll,
                                .mode = mode,
                                .bytes = (uint64_t)v[1].i,
                                .setting = "default",
                                .ns = NAN,
                                .lo_ns = NAN,
                                .hi_ns = NAN,
                                .why = ""};
    *ret = a;
    return 0;
}

/* The race's verdicts: a speedup of 0.8 [0.7, 0.9] is a time of default / 0.8 [/ 0.9, / 0.7]. */
static const char race_sql[] =
    "SELECT c.collective, c.bytes, c.mode, s.label, v.default_ns, v.speedup, v.lo, v.hi,"
    " v.kind = 'rejected', v.reason"
    " FROM verdict AS v JOIN cases AS c ON c.id = v.case_id JOIN setting AS s ON s.id ="
    " v.setting_id WHERE v.job_id = ?1 AND v.stage = 'race' AND s.label <> 'default'"
    " ORDER BY v.id";

static int on_race(void *data, unsigned ncols, const char *const *names, const struct nt_value *v,
                   struct nt_err *err)
{
    struct nt_report_job *j = data;
    struct nt_report_arm *a = NULL;
    double base;
    int rc;

    (void)ncols;
    (void)names;
    rc = v != NULL ? arm_of(j, v, &a, err) : 0;
    if (rc != 0 || v == NULL) {
        return rc;
    }
    base = real(&v[4]);
    a->ns = base / real(&v[5]);
    a->lo_ns = base / real(&v[7]);
    a->hi_ns = base / real(&v[6]);
    a->rejected = v[8].i != 0;
    a->setting = keep(j, text(&v[3]));
    a->why = keep(j, text(&v[9]));
    return a->setting != NULL && a->why != NULL ? 0 : nt_fail(err, NT_E_NOMEM, 0, "report");
}

/* The default against itself in the raced cases: gangs are what is independent. */
static const char noise_sql[] =
    "SELECT c.collective, c.bytes, c.mode, avg(g.mean), avg(g.mean * g.mean), count(*)"
    " FROM (SELECT t.case_id, avg(t.median_ns) AS mean FROM trial AS t"
    " JOIN setting AS s ON s.id = t.setting_id"
    " JOIN gang AS a ON a.job_id = t.job_id AND a.number = t.gang"
    " WHERE t.job_id = ?1 AND s.label = 'default' AND t.median_ns IS NOT NULL"
    " AND a.arm IN ('search', 'default', 'backends') AND t.flags & 6 = 0"
    " GROUP BY t.case_id, t.gang) AS g JOIN cases AS c ON c.id = g.case_id"
    " WHERE c.id IN (SELECT case_id FROM verdict WHERE job_id = ?1 AND stage = 'race')"
    " GROUP BY c.collective, c.bytes, c.mode";

static int on_noise(void *data, unsigned ncols, const char *const *names, const struct nt_value *v,
                    struct nt_err *err)
{
    struct nt_report_job *j = data;
    struct nt_report_arm *a = NULL;
    double n, half;
    int rc;

    (void)ncols;
    (void)names;
    rc = v != NULL ? arm_of(j, v, &a, err) : 0;
    if (rc != 0 || v == NULL) {
        return rc;
    }
    a->ns = real(&v[3]);
    n = real(&v[5]);
    if (n >= 2) {
        half = sqrt(fmax(0, real(&v[4]) - a->ns * a->ns) / (n - 1)) *
               nt_student_quantile(0.975, n - 1);
        a->lo_ns = a->ns - half;
        a->hi_ns = a->ns + half;
    }
    return 0;
}

/* ------------------------------------------------------------------ facts, topology */

static int add_fact(struct nt_report_job *j, const char *name, struct nt_err *err, const char *fmt,
                    ...) NT_PRINTF(4, 5);
static int add_fact(struct nt_report_job *j, const char *name, struct nt_err *err, const char *fmt,
                    ...)
{
    char value[256];
    va_list ap;
    struct nt_report_fact *f = &j->facts[j->nfacts++];

    nt_assert(j->nfacts <= NT_REPORT_FACTS);
    va_start(ap, fmt);
    (void)vsnprintf(value, sizeof(value), fmt, ap);
    va_end(ap);
    *f = (struct nt_report_fact){.name = name, .value = keep(j, value)};
    return f->value != NULL ? 0 : nt_fail(err, NT_E_NOMEM, 0, "report");
}

static const char place_sql[] =
    "SELECT coalesce(t.xml, ''), coalesce(h.name, ''), j.created, j.finished"
    " FROM jobs AS j JOIN job AS k ON k.id = j.job LEFT JOIN topology AS t ON t.id = k.topology_id"
    " LEFT JOIN host AS h ON h.id = k.host_id WHERE j.job = ?1";

static int on_place(void *data, unsigned ncols, const char *const *names, const struct nt_value *v,
                    struct nt_err *err)
{
    struct nt_report_job *j = data;
    int rc = 0;

    (void)ncols;
    (void)names;
    if (v == NULL) {
        return 0;
    }
    if (text(&v[1])[0] != '\0') {
        rc = add_fact(j, "Host", err, "%s", text(&v[1]));
    }
    rc = rc == 0 ? add_fact(j, "Job began (UTC)", err, "%s", text(&v[2])) : rc;
    rc = rc == 0 ? add_fact(j, "Job ended (UTC)", err, "%s", text(&v[3])) : rc;
    if (rc == 0 && text(&v[0])[0] != '\0' &&
        nt_report_draw(text(&v[0]), v[0].len, &j->drawing, NULL) != 0) {
        nt_buf_clear(&j->drawing); /* an old form: the report goes without */
    }
    return rc;
}

static int on_job(void *data, const struct nt_store_job *job, struct nt_err *err)
{
    struct nt_report_job *j = data;
    int rc = add_fact(j, "Job", err, "%lld, key %s, %s", (long long)job->id, job->key,
                      nt_job_state_names[job->state]);

    rc = rc == 0 ? add_fact(j, "Seed", err, "%llu", (unsigned long long)job->seed) : rc;
    return rc == 0 ? add_fact(j, "Effort", err, "%llu trials, GPUs held for %.1f s",
                              (unsigned long long)job->trials, (double)job->device_ns / 1e9)
                   : rc;
}

int nt_report_draw(const char *topology, size_t len, struct nt_buf *out, struct nt_err *err)
{
    struct nt_topology *t = NULL;
    int rc = nt_topology_read_text(topology, len, &t, err);

    if (rc == 0) {
        nt_topology_draw(t, DRAWING_COLUMNS, out);
        rc = out->failed ? nt_fail(err, NT_E_NOMEM, 0, "drawing") : 0;
    }
    nt_topology_free(t);
    return rc;
}

int nt_report_job_load(struct nt_store *s, int64_t job, struct nt_report_job *ret,
                       struct nt_err *err)
{
    static const struct {
        const char *sql;
        nt_store_row_cb on_row;
    } questions[] = {{race_sql, on_race}, {noise_sql, on_noise}, {place_sql, on_place}};
    const struct nt_value arg = {.type = NT_VALUE_INT, .i = job};
    struct nt_report_job j = {0};
    int rc;

    nt_buf_init(&j.drawing, DRAWING_BYTES);
    rc = nt_store_job_load(s, job, on_job, &j, err);
    for (size_t i = 0; rc == 0 && i < sizeof(questions) / sizeof(questions[0]); i++) {
        rc = nt_store_query(s, questions[i].sql, &arg, 1, NULL, questions[i].on_row, &j, NULL, err);
    }
    if (rc != 0) {
        nt_report_job_done(&j);
        return rc;
    }
    *ret = j;
    return 0;
}

void nt_report_job_done(struct nt_report_job *j)
{
    for (size_t i = 0; i < j->ntexts; i++) {
        free(j->texts[i]);
    }
    free(j->texts);
    free(j->arms);
    nt_buf_done(&j->drawing);
    *j = (struct nt_report_job){0};
}
