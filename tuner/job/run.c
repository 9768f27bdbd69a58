#include "tuner/job/run.h"
#include "tuner/base/hash.h"
#include "tuner/base/json.h"
#include "tuner/base/log.h"
#include "tuner/job/facts.h"
#include "tuner/job/peers.h"
#include "tuner/job/publish.h"
#include "tuner/job/workdir.h"
#include "tuner/launch/loop.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SETTINGS_KNOWN = 1024 };

struct run {
    const struct nt_job_config *c;
    struct nt_spec spec;
    struct nt_plan *plan;
    int64_t job;
    struct nt_facts facts;
    bool facts_stored;
    json_t *peers; /* asked before the first gang; facts take it */
    uv_loop_t loop;
    struct nt_drive *drive;
    uv_signal_t signals[NT_LOOP_ENDS];
    uv_timer_t tick;
    uv_work_t hashing;
    bool hash_busy;
    char dir[64];
    char delivery[256], delivery_hash[65];
    struct nt_plan_gang live[NT_PLAN_GANGS]; /* as the plan has them */
    char live_vars[NT_PLAN_GANGS][NT_SETTING_LEN];
    size_t nlive;
    struct { /* settings already in the store */
        char vars[NT_SETTING_LEN];
        struct nt_call call;
        int64_t id;
    } * known;
    size_t nknown;
    enum nt_stage stage;
    bool stage_set;
    uint64_t stored, begin;
    int rc;
    struct nt_err err;
    struct nt_drive_totals totals;
};

/* ------------------------------------------------------------------ store */

static int setting_id(struct run *r, const char *vars, const struct nt_call *call, int64_t *ret,
                      struct nt_err *err)
{
    int rc;

    for (size_t i = r->nknown; i-- > 0;) {
        if (nt_call_equal(&r->known[i].call, call) && strcmp(r->known[i].vars, vars) == 0) {
            *ret = r->known[i].id;
            return 0;
        }
    }
    rc = nt_store_put_setting(r->c->store, &(struct nt_store_setting){.vars = vars, .call = *call},
                              ret, err);
    if (rc == 0 && r->nknown < SETTINGS_KNOWN) {
        (void)snprintf(r->known[r->nknown].vars, NT_SETTING_LEN, "%s", vars);
        r->known[r->nknown].call = *call;
        r->known[r->nknown++].id = *ret;
    }
    return rc;
}

static int store_start(struct run *r, const struct nt_plan_step *s,
                       const struct nt_drive_start *starts, struct nt_err *err)
{
    const struct nt_call none = NT_CALL_DEFAULT;
    int64_t ids[NT_PLAN_GANGS];
    int rc = 0;

    for (size_t i = 0; i < s->ngangs && rc == 0; i++) {
        rc = setting_id(r, s->gangs[i].vars, &none, &ids[i], err);
    }
    rc = rc == 0 ? nt_store_begin(r->c->store, err) : rc;
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < s->ngangs && rc == 0; i++) {
        struct nt_store_gang g = {.seq = s->seq + i,
                                  .number = s->gangs[i].number,
                                  .arm = nt_arm_names[s->gangs[i].arm],
                                  .setting = ids[i],
                                  .start_ns = starts[i].start_ns,
                                  .init_ns = starts[i].init_ns,
                                  .status = starts[i].status,
                                  .memory_bytes = starts[i].memory_bytes,
                                  .error = starts[i].error};
        rc = nt_store_add_gang(r->c->store, r->job, &g, err);
    }
    return nt_store_end(r->c->store, rc, err);
}

static int store_trial(struct run *r, const struct nt_plan_step *s, const struct nt_plan_outcome *o,
                       struct nt_err *err)
{
    const struct nt_result *x = o->result;
    struct nt_store_trial t = {.seq = s->seq,
                               .gang = s->gang,
                               .cs = s->m.cs,
                               .executed = x->executed,
                               .own_chunk_bytes = x->own_chunk_bytes,
                               .status = x->status,
                               .ns = x->ns,
                               .count = x->status == NT_ST_OK ? x->count : 0,
                               .base_ns = x->base_ns,
                               .elapsed_ns = o->elapsed_ns,
                               .connect_ns = x->connect_ns,
                               .memory_bytes = x->memory_bytes,
                               .wrong = x->wrong,
                               .bits = x->bits,
                               .flags = s->m.flags | (o->lost ? NT_TRIAL_LOST : 0),
                               .error = x->error};
    int rc = setting_id(r, s->vars, &s->m.call, &t.setting, err);
    return rc == 0 ? nt_store_add_trial(r->c->store, r->job, &t, err) : rc;
}

static int store_cells(struct run *r, const struct nt_plan_step *s, const struct nt_plan_outcome *o,
                       struct nt_err *err)
{
    struct nt_store_cells c = {.seq = s->seq,
                               .gang = s->gang,
                               .cs = s->cs,
                               .asked = o->cells.asked,
                               .status = o->lost ? NT_ST_CRASHED : NT_ST_OK,
                               .error = ""};
    memcpy(c.cost, o->cells.cost, sizeof(c.cost));
    return nt_store_add_cells(r->c->store, r->job, &c, err);
}

static void die_after(struct run *r, const struct nt_plan_step *s)
{
    char *at = NULL;
    uint64_t steps = r->c->die_after != NULL ? strtoull(r->c->die_after, &at, 10) : 0;

    if (steps > 0 && (*at != '@' || strcmp(at + 1, nt_stage_names[s->stage]) == 0) &&
        ++r->stored == steps) {
        (void)raise(SIGKILL);
    }
}

/* The step is in the store before the next answer is heard. */
static int on_step(void *data, const struct nt_plan_step *s, const struct nt_plan_outcome *o,
                   const struct nt_drive_start *starts, struct nt_err *err)
{
    struct run *r = data;
    int rc = 0;

    switch (s->kind) {
    case NT_DO_START:
        rc = store_start(r, s, starts, err);
        break;
    case NT_DO_CELLS:
        rc = store_cells(r, s, o, err);
        break;
    case NT_DO_MEASURE:
        rc = store_trial(r, s, o, err);
        break;
    default:
        return 0;
    }
    if (rc == 0) {
        die_after(r, s);
    }
    return rc;
}

/* ------------------------------------------------------------------ facts */

static void hash_file(uv_work_t *w)
{
    struct run *r = w->data;
    (void)nt_sha256_file_hex(r->facts.nccl_file, r->facts.nccl_sha256);
}

static int store_facts(struct run *r, struct nt_err *err)
{
    struct nt_store *st = r->c->store;
    struct nt_buf text, health;
    json_t *o = nt_facts_json(&r->facts);
    int64_t topology = 0, host = 0, stack = 0;
    int rc;

    nt_buf_init(&text, 1 << 20);
    nt_buf_init(&health, 1 << 16);
    nt_json_dump(o, false, &text);
    if (r->facts.health != NULL) {
        nt_json_dump(r->facts.health, false, &health);
    }
    rc = o == NULL || text.failed ? nt_fail(err, NT_E_NOMEM, 0, "facts") : 0;
    rc = rc == 0 ? nt_store_put_topology(st,
                                         &(struct nt_store_topology){.identity = r->facts.identity,
                                                                     .mask = r->facts.mask,
                                                                     .json = "",
                                                                     .xml = r->facts.topology_xml,
                                                                     .health = nt_buf_str(&health)},
                                         &topology, err)
                 : rc;
    rc = rc == 0 ? nt_store_put_host(
                       st, &(struct nt_store_host){.name = r->facts.host, .facts = ""}, &host, err)
                 : rc;
    rc = rc == 0 ? nt_store_put_stack(st,
                                      &(struct nt_store_stack){.nccl = r->facts.nccl,
                                                               .nccl_sha256 = r->facts.nccl_sha256,
                                                               .cuda = r->facts.cuda,
                                                               .driver = r->facts.driver,
                                                               .framework = r->facts.framework,
                                                               .gpu = r->facts.gpu,
                                                               .site = r->spec.fixed},
                                      &stack, err)
                 : rc;
    rc = rc == 0
             ? nt_store_job_set_place(st, r->job, topology, host, stack, r->facts.placement, err)
             : rc;
    rc = rc == 0 ? nt_store_add_event(st, r->job, "facts", nt_buf_str(&text), err) : rc;
    json_decref(o);
    nt_buf_done(&text);
    nt_buf_done(&health);
    return rc;
}

/* A large library is hashed beside the loop; its key is stored when that is done. */
static void hash_done(uv_work_t *w, int status)
{
    struct run *r = w->data;
    (void)status;

    r->hash_busy = false;
    if (r->rc == 0) {
        r->rc = store_facts(r, &r->err);
        if (r->rc != 0 && r->drive != NULL) {
            nt_drive_interrupt(r->drive);
        }
    }
}

static int on_ready(void *data, const struct nt_plan_gang *g, const struct nt_hello *hello,
                    const struct nt_ready *ready, unsigned world, struct nt_err *err)
{
    struct run *r = data;
    struct nt_facts now = {0};
    int rc;
    (void)g;

    if (r->facts_stored) {
        return 0;
    }
    r->facts_stored = true;
    rc = nt_facts_take(&now, hello, ready, world, r->c->machines, err);
    rc = rc == 0 && r->facts.known ? nt_facts_same(&r->facts, &now, err) : rc;
    nt_facts_done(&r->facts);
    r->facts = now;
    r->facts.peers = json_incref(r->peers);
    if (rc == 0) {
        r->hashing.data = r;
        r->hash_busy = uv_queue_work(&r->loop, &r->hashing, hash_file, hash_done) == 0;
    }
    return rc;
}

static int facts_row(void *data, unsigned ncols, const char *const *names,
                     const struct nt_value *values, struct nt_err *err)
{
    struct run *r = data;
    json_t *o = NULL;
    int rc;
    (void)ncols;
    (void)names;

    if (values == NULL) {
        return 0;
    }
    rc = nt_json_parse(values[0].text, values[0].len, "facts of the job", &o, err);
    if (rc == 0) {
        nt_facts_done(&r->facts);
        rc = nt_facts_from_json(o, &r->facts, err);
    }
    json_decref(o);
    return rc;
}

static int load_facts(struct run *r, struct nt_err *err)
{
    const struct nt_value arg = {.type = NT_VALUE_INT, .i = r->job};
    return nt_store_query(
        r->c->store, "SELECT text FROM events WHERE job = ?1 AND kind = 'facts' ORDER BY event",
        &arg, 1, &(struct nt_query_limits){.rows = 100}, facts_row, r, NULL, err);
}

/* ------------------------------------------------------------------ delivery */

static int write_delivery(struct run *r, struct nt_err *err)
{
    struct nt_profile *draft = NULL;
    struct nt_buf bytes;
    int rc =
        nt_publish_draft(&r->spec, r->plan, &r->facts, nt_plan_table_vars(r->plan), &draft, err);

    nt_buf_init(&bytes, 1 << 22);
    rc = rc == 0 ? nt_profile_delivery(draft, NT_TABLE, &bytes, r->delivery_hash, err) : rc;
    rc = rc == 0 ? nt_profile_write_delivery(draft, NT_TABLE, r->dir, r->delivery,
                                             sizeof(r->delivery), err)
                 : rc;
    nt_buf_done(&bytes);
    nt_profile_free(draft);
    return nt_wrap(err, rc, "delivery file of the confirm");
}

static int arm_env(void *data, enum nt_arm arm, struct nt_buf *out, struct nt_err *err)
{
    static const char *const fixed[NT_ARM_COUNT] = {
        [NT_ARM_SEARCH] = "NCCL_TUNER_PLUGIN=STATIC_PLUGIN",
        [NT_ARM_DEFAULT] = "NCCL_TUNER_PLUGIN=none",
        [NT_ARM_STATIC] = "NCCL_TUNER_PLUGIN=none",
        [NT_ARM_BACKENDS] =
            "NCCL_TUNER_PLUGIN=STATIC_PLUGIN", /* sees what NCCL asks, and asks nothing */
        [NT_ARM_AS_FOUND] = NULL,              /* whatever the caller has */
    };
    struct run *r = data;
    int rc = 0;

#define ADD(...) (nt_buf_printf(out, __VA_ARGS__), nt_buf_add(out, "", 1))
    ADD("NCCL_PROFILER_PLUGIN=STATIC_PLUGIN");
    if (fixed[arm] != NULL) {
        ADD("%s", fixed[arm]);
        ADD("NCCLTUNE_DISABLE=1"); /* a profile of this machine that a rank's Python would apply */
    }
    if (arm == NT_ARM_TABLE && !r->c->virtual_time) {
        rc = write_delivery(r, err); /* anew: a second round has other rows */
        ADD("NCCL_TUNER_PLUGIN=%s", r->c->plugin);
        ADD("NCCLTUNE_PROFILE=%s", r->delivery_hash);
        ADD("NCCLTUNE_TABLE=%s", r->delivery);
        if (r->c->remote == NULL) { /* receipts go with the job: these are no workers */
            ADD("NCCLTUNE_RECEIPTS=%s", r->dir);
        }
    }
#undef ADD
    return rc;
}

/* ------------------------------------------------------------------ planner, with progress */

static void keep_live(struct run *r, const struct nt_plan_step *s)
{
    if (s->kind == NT_DO_STOP) {
        r->nlive = 0;
    } else if (s->kind == NT_DO_START) {
        r->nlive = s->ngangs;
        for (size_t i = 0; i < s->ngangs; i++) {
            r->live[i] = s->gangs[i];
            (void)snprintf(r->live_vars[i], NT_SETTING_LEN, "%s", s->gangs[i].vars);
            r->live[i].vars = r->live_vars[i];
        }
    }
}

static void report(struct run *r, bool begins)
{
    struct nt_job_progress p = {
        .job = r->job, .wall_ns = uv_hrtime() - r->begin, .stage_begins = begins};

    if (r->c->on_progress != NULL) {
        nt_plan_progress(r->plan, &p.plan);
        r->c->on_progress(r->c->data, &p);
    }
}

static int plan_next(void *data, struct nt_plan_step *ret, struct nt_err *err)
{
    struct run *r = data;
    int rc = nt_plan_next(r->plan, ret, err);

    if (rc == 0 && (!r->stage_set || ret->stage != r->stage)) {
        struct nt_plan_progress p;
        nt_plan_progress(r->plan, &p);
        r->stage = ret->stage;
        r->stage_set = true;
        rc = nt_store_checkpoint_stage(r->c->store, r->job, nt_stage_names[ret->stage], p.held_ns,
                                       err);
        report(r, true);
    }
    return rc;
}

static int plan_peek(void *data, struct nt_plan_step *ret, struct nt_err *err)
{
    struct run *r = data;
    return nt_plan_next(r->plan, ret, err);
}

static int plan_tell(void *data, const struct nt_plan_outcome *o, struct nt_err *err)
{
    struct run *r = data;
    return nt_plan_tell(r->plan, o, err);
}

/* ------------------------------------------------------------------ resume */

static void start_outcome(struct nt_plan_outcome *o, size_t i, const struct nt_store_gang *g,
                          bool virtual_time)
{
    uint64_t took = virtual_time ? g->init_ns : g->start_ns;

    o->gangs[i].status = g->status;
    o->gangs[i].memory_bytes = g->memory_bytes;
    o->elapsed_ns = took > o->elapsed_ns ? took : o->elapsed_ns;
}

/* Whether the stored step is what the plan asks for now. */
static bool same_step(const struct nt_plan_step *s, size_t i, const struct nt_store_step *st,
                      int64_t setting)
{
    switch (s->kind) {
    case NT_DO_START:
        return st->kind == NT_STEP_GANG && st->gang.number == s->gangs[i].number;
    case NT_DO_CELLS:
        return st->kind == NT_STEP_CELLS && st->cells.gang == s->gang &&
               nt_case_equal(&st->cells.cs, &s->cs);
    default:
        return st->kind == NT_STEP_TRIAL && st->trial.gang == s->gang &&
               nt_case_equal(&st->trial.cs, &s->m.cs) && st->trial.setting == setting &&
               (st->trial.flags & ~NT_TRIAL_LOST) == s->m.flags;
    }
}

/* Tells the plan what is in the store; ends at the first step that is not. */
static int replay(struct run *r, struct nt_store_cursor *cursor, struct nt_err *err)
{
    for (;;) {
        const struct nt_store_step *st = NULL;
        struct nt_plan_step s;
        struct nt_plan_outcome o = {0};
        struct nt_result result = {0};
        int rc = nt_plan_next(r->plan, &s, err);

        if (rc != 0 || s.kind == NT_DO_FINISHED) {
            return rc;
        }
        r->stage = s.stage;
        if (s.kind == NT_DO_STOP) {
            keep_live(r, &s);
            rc = nt_plan_tell(r->plan, &o, err);
            if (rc != 0) {
                return rc;
            }
            continue;
        }
        for (size_t i = 0; i < (s.kind == NT_DO_START ? s.ngangs : 1); i++) {
            int64_t setting = 0;
            rc = nt_store_steps_next(cursor, &st, err);
            if (rc == 0 && st != NULL && s.kind == NT_DO_MEASURE) {
                rc = setting_id(r, s.vars, &s.m.call, &setting, err);
            }
            if (rc != 0 || st == NULL) {
                return rc;
            }
            if (!same_step(&s, i, st, setting)) {
                return nt_fail(err, NT_E_STORE, 0,
                               "job %lld was made by another version of nccltune and cannot be "
                               "resumed; start it anew",
                               (long long)r->job);
            }
            if (st->kind == NT_STEP_GANG) {
                start_outcome(&o, i, &st->gang, r->c->virtual_time);
            } else if (st->kind == NT_STEP_CELLS) {
                o.lost = st->cells.status != NT_ST_OK;
                memcpy(o.cells.cost, st->cells.cost, sizeof(o.cells.cost));
                o.cells.asked = st->cells.asked;
            } else {
                result = (struct nt_result){.id = s.seq,
                                            .status = st->trial.status,
                                            .ns = (uint32_t *)st->trial.ns,
                                            .count = st->trial.count,
                                            .base_ns = (uint32_t)st->trial.base_ns,
                                            .executed = st->trial.executed,
                                            .own_chunk_bytes = st->trial.own_chunk_bytes,
                                            .wrong = st->trial.wrong,
                                            .bits = st->trial.bits,
                                            .connect_ns = st->trial.connect_ns,
                                            .memory_bytes = st->trial.memory_bytes};
                (void)snprintf(result.error, sizeof(result.error), "%s", st->trial.error);
                o.elapsed_ns = st->trial.elapsed_ns;
                o.lost = (st->trial.flags & NT_TRIAL_LOST) != 0;
                o.result = &result;
            }
        }
        keep_live(r, &s);
        rc = nt_plan_tell(r->plan, &o, err);
        if (rc != 0) {
            return rc;
        }
    }
}

static int load_spec(void *data, const struct nt_store_job *j, struct nt_err *err)
{
    struct run *r = data;
    json_t *o = NULL;
    int rc = nt_json_parse(j->spec, strlen(j->spec), "spec of the job", &o, err);

    if (rc == 0 && j->state == NT_JOB_DONE) {
        rc = nt_fail(err, NT_E_NO, 0, "it is done already; `nccltune show %lld` prints it",
                     (long long)j->id);
    } else if (rc == 0 && j->state == NT_JOB_FAILED) {
        rc = nt_fail(err, NT_E_NO, 0,
                     "it failed and would again, `nccltune query --view events` tells why; start "
                     "anew without --resume");
    }
    rc = rc == 0 ? nt_spec_from_json(o, &r->spec, err) : rc;
    json_decref(o);
    return rc;
}

static int open_job(struct run *r, struct nt_err *err)
{
    struct nt_store *st = r->c->store;
    struct nt_store_cursor *cursor = NULL;
    int rc;

    r->job = r->c->resume;
    if (r->job == 0) {
        json_t *o = nt_spec_to_json(&r->c->spec);
        struct nt_buf text;
        struct nt_store_job j = {.key = r->c->key,
                                 .seed = r->c->spec.seed,
                                 .rig = (uint8_t)nt_spec_told_rig(&r->c->spec),
                                 .ranks = r->c->spec.ranks,
                                 .nodes = r->c->spec.nodes};
        r->spec = r->c->spec;
        nt_buf_init(&text, 1 << 20);
        nt_json_dump(o, false, &text);
        j.spec = nt_buf_str(&text);
        rc = o == NULL || text.failed ? nt_fail(err, NT_E_NOMEM, 0, "spec")
                                      : nt_store_job_create(st, &j, &r->job, err);
        json_decref(o);
        nt_buf_done(&text);
        rc = rc == 0 ? nt_store_job_set_state(st, r->job, NT_JOB_RUNNING, err) : rc;
        return rc == 0 ? nt_plan_new(&r->spec, &r->plan, err) : rc;
    }
    rc = nt_store_job_load(st, r->job, load_spec, r, err);
    rc = rc == 0 ? nt_store_job_claim(st, r->job, err) : rc;
    rc = rc == 0 ? load_facts(r, err) : rc;
    rc = rc == 0 ? nt_plan_new(&r->spec, &r->plan, err) : rc;
    rc = rc == 0 ? nt_store_steps_open(st, r->job, 1, &cursor, err) : rc;
    rc = rc == 0 ? replay(r, cursor, err) : rc;
    nt_store_steps_close(cursor);
    return rc;
}

/* ------------------------------------------------------------------ loop */

static void on_signal(uv_signal_t *h, int signum)
{
    struct run *r = h->data;
    (void)signum;
    if (r->drive != NULL) {
        nt_drive_interrupt(r->drive);
    }
}

static void on_tick(uv_timer_t *h)
{
    report(h->data, false);
}

static void close_handles(struct run *r)
{
    nt_loop_close_signals(r->signals, NT_LOOP_ENDS, r->rc == -NT_E_INTERRUPTED);
    uv_close((uv_handle_t *)&r->tick, NULL);
}

static void on_end(void *data, int rc, const struct nt_err *err)
{
    struct run *r = data;
    if (r->rc == 0 && rc != 0) {
        r->rc = rc;
        r->err = *err;
    }
    r->totals = *nt_drive_totals(r->drive);
    r->drive = NULL;
    close_handles(r);
}

/* The first signal makes the loop's pipe; once it is there the other handles cannot fail. */
static int open_loop(struct run *r, struct nt_err *err)
{
    int rc = nt_loop_open(&r->loop, NT_LOOP_GANGS(r->spec.ranks), err);

    rc = rc == 0 ? nt_loop_watch_ends(&r->loop, r->signals, on_signal, r, err) : rc;
    if (rc != 0) {
        return rc;
    }
    (void)uv_timer_init(&r->loop, &r->tick);
    r->tick.data = r;
    (void)uv_timer_start(&r->tick, on_tick, 500, 500);
    return 0;
}

static int drive(struct run *r, struct nt_err *err)
{
    const struct nt_planner planner = {
        .next = plan_next, .tell = plan_tell, .peek = plan_peek, .plan = r};
    const struct nt_drive_sink sink = {
        .on_ready = on_ready, .on_step = on_step, .arm_env = arm_env, .on_end = on_end, .data = r};
    struct nt_drive_config dc = {.planner = &planner,
                                 .sink = &sink,
                                 .program = r->c->program,
                                 .args = r->c->args,
                                 .dir = r->dir,
                                 .ranks = r->spec.ranks,
                                 .devices = r->c->devices,
                                 .rig = r->spec.rig,
                                 .remote = r->c->remote,
                                 .virtual_time = r->c->virtual_time,
                                 .env = r->c->env,
                                 .mps_program = r->c->mps_program};
    /* The largest check point lies at most half an octave above the ladder. */
    dc.max_bytes = r->spec.sizes[r->spec.nsizes - 1] + (1U << 16);

    r->rc = open_loop(r, err);
    if (r->rc != 0) {
        return r->rc;
    }
    r->rc = nt_drive_start(&r->loop, &dc, &r->drive, &r->err);
    if (r->rc == 0 && r->nlive > 0) {
        nt_drive_expect(r->drive, r->live, r->nlive);
    }
    if (r->rc != 0) {
        close_handles(r);
    }
    (void)uv_run(&r->loop, UV_RUN_DEFAULT);
    nt_assert(uv_loop_close(&r->loop) == 0);
    if (r->rc != 0) {
        *err = r->err;
    }
    return r->rc;
}

static int publish(struct run *r, struct nt_job_outcome *ret, struct nt_err *err)
{
    int rc =
        nt_publish_profile(&r->spec, r->plan, &r->facts, r->c->version, r->job, &ret->profile, err);
    return rc == 0 ? nt_publish_store(r->c->store, r->job, r->plan, ret->profile, err) : rc;
}

static void fill_outcome(struct run *r, struct nt_job_outcome *ret)
{
    const struct nt_plan_result *x = nt_plan_result(r->plan);
    struct nt_plan_progress p;

    nt_plan_progress(r->plan, &p);
    ret->held_ns = p.held_ns;
    ret->trials = p.trials;
    ret->search_ns = x->stage_ns[NT_RACE] + x->stage_ns[NT_REFINE] + x->stage_ns[NT_GATE];
    ret->confirm_ns = x->stage_ns[NT_CONFIRM];
    ret->grid_ns = x->grid_ns;
    ret->further = x->further;
    ret->totals = r->totals;
    ret->resumed = r->c->resume != 0;
}

/* What the job ends as. An interrupted one, and one whose database failed under it, can be resumed.
 */
static enum nt_job_state end_state(int rc)
{
    switch (-rc) {
    case 0:
        return NT_JOB_DONE;
    case NT_E_INTERRUPTED:
    case NT_E_STORE:
    case NT_E_DAMAGED:
    case NT_E_IO:
    case NT_E_NOMEM:
    case NT_E_MISSING:
        return NT_JOB_INTERRUPTED;
    default:
        return NT_JOB_FAILED;
    }
}

int nt_job_run(const struct nt_job_config *config, struct nt_job_outcome *ret, struct nt_err *err)
{
    struct run *r = calloc(1, sizeof(*r));
    struct nt_workdir work = {0};
    bool opened;
    int rc;

    if (r == NULL || (r->known = calloc(SETTINGS_KNOWN, sizeof(r->known[0]))) == NULL) {
        free(r);
        return nt_fail(err, NT_E_NOMEM, 0, "job");
    }
    *ret = (struct nt_job_outcome){0};
    r->c = config;
    r->begin = uv_hrtime();
    rc = nt_workdir_make(config->tmpdir, &work, err);
    (void)snprintf(r->dir, sizeof(r->dir), "%s", work.path);
    rc = rc == 0 ? open_job(r, err) : rc;
    opened = r->plan != NULL;
    if (rc == 0 && nt_spec_has_backends(&r->spec) && r->spec.rig <= NT_RIG_MPS_P2P &&
        config->remote == NULL) {
        nt_peers_ask(config->program, config->env, NT_PEERS_MS, &r->peers);
    }
    ret->job = r->job;
    rc = rc == 0 ? drive(r, err) : rc;
    rc = rc == 0 ? publish(r, ret, err) : rc;
    if (rc == 0) {
        fill_outcome(r, ret);
    }
    if (opened) {
        struct nt_plan_progress p;
        int rc2;
        nt_plan_progress(r->plan, &p);
        rc2 = nt_store_checkpoint_stage(config->store, r->job,
                                        rc == 0 ? "done" : nt_stage_names[p.stage], p.held_ns,
                                        rc == 0 ? err : NULL);
        rc2 = rc2 == 0 ? nt_store_job_set_state(config->store, r->job, end_state(rc),
                                                rc == 0 ? err : NULL)
                       : rc2;
        if (rc2 == 0 && end_state(rc) == NT_JOB_FAILED && err != NULL) {
            struct nt_err none;
            rc2 = nt_store_add_event(config->store, r->job, "failed", err->msg, &none);
        }
        rc2 = rc2 == 0 ? nt_store_job_release(config->store, r->job, rc == 0 ? err : NULL) : rc2;
        rc = rc == 0 ? rc2 : rc;
    }
    nt_workdir_remove(&work);
    nt_plan_free(r->plan);
    nt_facts_done(&r->facts);
    json_decref(r->peers);
    free(r->known);
    free(r);
    return rc;
}
