/* record: the exhaustive landscape of a rig into a recording. */
#include "probes/recording/recording.h"
#include "tuner/base/text.h"
#include "tuner/cli/commands.h"
#include "tuner/cli/env.h"
#include "tuner/cli/recorded.h"
#include "tuner/cli/where.h"
#include "tuner/job/drive.h"
#include "tuner/job/record.h"
#include "tuner/job/workdir.h"
#include "tuner/launch/loop.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct record_args {
    const char *rig, *devices, *collectives, *sizes, *modes, *dtype, *nccl, *lease, *note, *probe;
    struct nt_strs fix, env, try;
    uint32_t ranks, gangs;
    uint64_t seed, budget_ns;
    bool quiet;
};

static const struct record_args defaults = {.rig = "nccl",
                                            .collectives = "all_reduce",
                                            .sizes = "256:64M",
                                            .modes = "eager,graph",
                                            .dtype = "bf16",
                                            .lease = "a",
                                            .note = "",
                                            .gangs = 12,
                                            .seed = 1};

#define T record_args
static const struct nt_opt opts[] = {
    NT_OPT(NT_O_STR, T, rig, "rig", 'r', "RIG", "nccl, mps-sockets or mps-p2p (default nccl)"),
    NT_OPT_SOME(NT_O_U32, T, ranks, "ranks", 'n', "COUNT", "ranks (default: one for each GPU)"),
    NT_OPT(NT_O_STR, T, devices, "devices", 0, "LIST",
           "CUDA devices, comma-separated, one a rank (default 0,1,…)"),
    NT_OPT(NT_O_STR, T, collectives, "collectives", 'c', "LIST",
           "collectives (default all_reduce)"),
    NT_OPT(NT_O_STR, T, sizes, "sizes", 's', "SIZES",
           "1K:256M (doubling) or a list (default 256:64M)"),
    NT_OPT(NT_O_STR, T, modes, "modes", 'm', "LIST", "modes (default eager,graph)"),
    NT_OPT(NT_O_STR, T, dtype, "dtype", 0, "TYPE", "data type (default bf16)"),
    NT_OPT_SOME(
        NT_O_U32, T, gangs, "gangs", 'g', "COUNT",
        "rounds of fresh gangs, at least 4: all tuples in the first 4, default and leaders in all "
        "(default 12)"),
    NT_OPT(
        NT_O_DURATION, T, budget_ns, "budget", 'b', "TIME",
        "take no longer: what is far behind the best is left to the first round, then rounds are "
        "left out, then the largest sizes"),
    NT_OPT(NT_O_STRS, T, try, "try", 0, "NAME=A,B",
           "process-scope values to record as well (NAME=A NAME=B: two that act together); may be "
           "repeated"),
    NT_OPT(NT_O_STRS, T, fix, "fix", 0, "NAME=VALUE",
           "site constraint in every gang; may be repeated"),
    NT_OPT(NT_O_STRS, T, env, "env", 0, "NAME=VALUE",
           "further variable of the ranks, not NCCL's; may be repeated"),
    NT_OPT(NT_O_STR, T, nccl, "nccl", 0, "FILE",
           "libnccl to record (default libnccl.so.2 as the loader finds it)"),
    NT_OPT(NT_O_STR, T, lease, "lease", 0, "NAME",
           "which stay on the machine this is, for two to be compared (default a)"),
    NT_OPT(NT_O_STR, T, note, "note", 0, "TEXT", "kept in the file"),
    NT_OPT(NT_O_U64, T, seed, "seed", 0, "N", "order of blocks (default 1)"),
    NT_OPT(NT_O_FLAG, T, quiet, "quiet", 'q', NULL, "no progress"),
    NT_OPT(NT_O_STR, T, probe, "probe", 0, "FILE",
           "probe program to measure with (default the installed one)"),
    {0}};
#undef T

struct rec {
    const struct record_args *a;
    const char *path;
    struct nt_spec spec;
    struct nt_env env;
    struct nt_record *plan;
    struct nt_recorder *out;
    struct nt_recording *old;
    char date[16], ranks[16], memory[24], nccl[16], cuda[16], driver[16];
    struct nt_recorded_gang gangs[NT_PLAN_GANGS];
    char vars[NT_PLAN_GANGS][NT_SETTING_LEN];
    uv_loop_t loop;
    uv_signal_t signals[NT_LOOP_ENDS];
    struct nt_drive *drive;
    unsigned round;
    uint64_t asked_ns; /* when the plan gave the step that is under way */
    int rc;
    struct nt_err *err;
    struct nt_drive_totals totals;
};

/* ------------------------------------------------------------------ sink */

static int open_file(struct rec *r, const struct nt_hello *hello, const struct nt_ready *ready,
                     struct nt_err *err)
{
    const char *facts[NT_FACT_COUNT] = {NULL};
    time_t now = time(NULL);
    struct tm tm;

    (void)strftime(r->date, sizeof(r->date), "%Y-%m-%d", gmtime_r(&now, &tm));
    (void)snprintf(r->ranks, sizeof(r->ranks), "%u", r->spec.ranks);
    (void)snprintf(r->memory, sizeof(r->memory), "%llu",
                   (unsigned long long)hello->gpu_memory_bytes);
    (void)snprintf(r->nccl, sizeof(r->nccl), "%d", hello->nccl);
    (void)snprintf(r->cuda, sizeof(r->cuda), "%d", hello->cuda);
    (void)snprintf(r->driver, sizeof(r->driver), "%d", hello->driver);
    facts[NT_FACT_RIG] = nt_rig_names[r->spec.rig];
    facts[NT_FACT_RANKS] = r->ranks;
    facts[NT_FACT_GPU] = hello->gpu_name;
    facts[NT_FACT_GPU_MEMORY] = r->memory;
    facts[NT_FACT_NCCL] = r->nccl;
    facts[NT_FACT_CUDA] = r->cuda;
    facts[NT_FACT_DRIVER] = r->driver;
    facts[NT_FACT_DATE] = r->date;
    facts[NT_FACT_LEASE] = r->a->lease;
    facts[NT_FACT_CONDITIONS] = "places edges";
    facts[NT_FACT_TOPOLOGY] = ready->topology_xml;
    facts[NT_FACT_FIXED] = r->spec.fixed;
    facts[NT_FACT_NOTE] = r->a->note;
    return nt_recorder_open(r->path, facts, &r->out, NULL, err);
}

static int on_ready(void *data, const struct nt_plan_gang *g, const struct nt_hello *hello,
                    const struct nt_ready *ready, unsigned world, struct nt_err *err)
{
    struct rec *r = data;
    (void)g;
    (void)world;
    return r->out == NULL ? open_file(r, &hello[0], &ready[0], err) : 0;
}

static int keep_gangs(struct rec *r, const struct nt_plan_step *s,
                      const struct nt_drive_start *starts, struct nt_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < s->ngangs && rc == 0; i++) {
        struct nt_recorded_gang g = {.gang = s->gangs[i].number,
                                     .process = s->gangs[i].vars,
                                     .start_ns = starts[i].start_ns,
                                     .init_ns = starts[i].init_ns,
                                     .memory_bytes = starts[i].memory_bytes};
        if (starts[i].status == NT_ST_OK) {
            rc = nt_recorder_gang(r->out, &g, err);
        }
    }
    return rc;
}

static int keep_block(struct rec *r, const struct nt_plan_step *s, const struct nt_plan_outcome *o,
                      struct nt_err *err)
{
    const struct nt_result *x = o->result;
    struct nt_block b = {.cs = s->m.cs,
                         .flags = s->m.flags,
                         .process = s->vars,
                         .call = s->m.call,
                         .executed = x->executed,
                         .gang = s->gang,
                         .status = x->status,
                         .verify = s->m.verify,
                         .warmup = s->m.warmup,
                         .inner = s->m.inner,
                         .base_ns = x->base_ns,
                         .wrong = x->wrong,
                         .elapsed_ns = x->elapsed_ns,
                         .connect_ns = x->connect_ns,
                         .memory_bytes = x->memory_bytes,
                         .error = x->error,
                         .ns = x->ns,
                         .count = x->status == NT_ST_OK ? x->count : 0};
    return nt_recorder_block(r->out, &b, err);
}

static int on_step(void *data, const struct nt_plan_step *s, const struct nt_plan_outcome *o,
                   const struct nt_drive_start *starts, struct nt_err *err)
{
    struct rec *r = data;
    struct nt_record_progress p;
    int rc = 0;

    switch (s->kind) {
    case NT_DO_START:
        rc = r->out != NULL ? keep_gangs(r, s, starts, err) : 0;
        break;
    case NT_DO_CELLS:
        rc = o->lost ? 0 : nt_recorder_cells(r->out, s->vars, &o->cells, err);
        break;
    case NT_DO_MEASURE:
        rc = keep_block(r, s, o, err);
        break;
    case NT_DO_STOP:
        nt_record_progress(r->plan, &p);
        if (!r->a->quiet && p.round != r->round) {
            r->round = p.round;
            (void)fprintf(stderr, "round %u of %u: %llu blocks, %llu tuples, %.0f s\n", p.round,
                          p.rounds, (unsigned long long)p.blocks, (unsigned long long)p.tuples,
                          (double)p.held_ns / 1e9);
        }
        rc = r->out != NULL ? nt_recorder_flush(r->out, err) : 0;
        break;
    default:
        break;
    }
    return rc;
}

static int arm_env(void *data, enum nt_arm arm, struct nt_buf *out, struct nt_err *err)
{
    (void)data;
    (void)arm;
    (void)err;
    nt_buf_add(out, "NCCLTUNE_DISABLE=1", sizeof("NCCLTUNE_DISABLE=1"));
    nt_buf_puts(out, "NCCL_TUNER_PLUGIN=STATIC_PLUGIN");
    nt_buf_add(out, "", 1);
    nt_buf_puts(out, "NCCL_PROFILER_PLUGIN=STATIC_PLUGIN");
    nt_buf_add(out, "", 1);
    return 0;
}

static void on_end(void *data, int rc, const struct nt_err *err)
{
    struct rec *r = data;
    r->totals = *nt_drive_totals(r->drive);
    r->drive = NULL;
    if (rc != 0) {
        r->rc = rc;
        *r->err = *err;
    }
    nt_loop_close_signals(r->signals, NT_LOOP_ENDS, r->rc == -NT_E_INTERRUPTED);
}

static int rec_next(void *data, struct nt_plan_step *ret, struct nt_err *err)
{
    struct rec *r = data;
    r->asked_ns = uv_hrtime();
    return nt_record_next(r->plan, ret, err);
}

/* The budget is of wall time: ending gangs, and what lies between the steps, counts as well. */
static int rec_tell(void *data, const struct nt_plan_outcome *o, struct nt_err *err)
{
    struct rec *r = data;
    struct nt_plan_outcome wall = *o;
    uint64_t ns = uv_hrtime() - r->asked_ns;

    wall.elapsed_ns = ns > o->elapsed_ns ? ns : o->elapsed_ns;
    return nt_record_tell(r->plan, &wall, err);
}

static void on_signal(uv_signal_t *h, int signum)
{
    struct rec *r = h->data;
    (void)signum;
    if (r->drive != NULL) {
        nt_drive_interrupt(r->drive);
    }
}

/* ------------------------------------------------------------------ the command */

static int make_spec(struct rec *r, struct nt_err *err)
{
    static const char *const rigs[] = {"nccl", "mps-sockets", "mps-p2p", NULL};
    const struct record_args *a = r->a;
    struct nt_spec *s = &r->spec;
    int rc, rig = nt_vocab_find(rigs, "rig", a->rig, err), dtype;

    if (rig < 0) {
        return rig;
    }
    dtype = nt_vocab_find(nt_dtype_names, "data type", a->dtype, err);
    if (dtype < 0) {
        return nt_wrap(err, dtype, "--dtype");
    }
    nt_spec_init(s);
    s->rig = s->shown_rig = (enum nt_rig)rig;
    s->ranks = a->ranks;
    s->seed = a->seed;
    s->budget_ns = a->budget_ns;
    s->dtypes[dtype] = true;
    s->places[NT_OUT_OF_PLACE] = s->places[NT_IN_PLACE] = true;
    rc = nt_wrap(
        err, nt_spec_set(a->collectives, nt_coll_names, "collective", s->colls, NT_COLL_COUNT, err),
        "--collectives");
    rc = rc == 0
             ? nt_wrap(err,
                       nt_spec_set(a->modes, nt_mode_names, "mode", s->modes, NT_MODE_COUNT, err),
                       "--modes")
             : rc;
    rc = rc == 0 ? nt_spec_add_sizes(s, a->sizes, err) : rc;
    rc = rc == 0 ? nt_env_take(&r->env, s, a->nccl, &a->fix, &a->env, err) : rc;
    rc = rc == 0 ? nt_env_devices(&r->env, s, a->devices, err) : rc;
    rc = rc == 0 ? nt_env_ranks(&r->env, s, err) : rc;
    if (rc == 0 && a->try.n > 0) {
        rc = nt_env_settings(&r->env, s, &a->try, err);
    }
    s->nodes = s->rig == NT_RIG_MPS_SOCKETS ? s->ranks : 1;
    return rc == 0 ? nt_spec_finish(s, err) : rc;
}

/* Gangs are numbered on from those that the file holds already, which must be of the same type: a
 * recording holds one. A file that cannot be read is the recorder's to speak of. */
static int first_gang(const char *path, enum nt_dtype dtype, uint64_t *ret, struct nt_err *err)
{
    struct nt_recording *old = NULL;
    uint64_t last = 0;
    int rc = 0;

    if (access(path, F_OK) == 0 && nt_recording_load(path, &old, NULL) == 0) {
        for (size_t i = 0; i < nt_recording_gangs(old); i++) {
            uint64_t g = nt_recording_gang(old, i)->gang;
            last = g > last ? g : last;
        }
        for (int d = 0; d < NT_DTYPE_COUNT && rc == 0; d++) {
            if (d != (int)dtype && nt_recorded_dtype(old, (enum nt_dtype)d)) {
                rc = nt_fail(err, NT_E_INVAL, 0, "%.200s holds %s, not %s: name another file", path,
                             nt_dtype_names[d], nt_dtype_names[dtype]);
            }
        }
    }
    nt_recording_free(old);
    *ret = last + 1;
    return rc;
}

static int drive(struct rec *r, const char *probe, const char *dir, struct nt_err *err)
{
    const struct nt_planner planner = {.next = rec_next, .tell = rec_tell, .plan = r};
    const struct nt_drive_sink sink = {
        .on_ready = on_ready, .on_step = on_step, .arm_env = arm_env, .on_end = on_end, .data = r};
    const struct nt_drive_config c = {.planner = &planner,
                                      .sink = &sink,
                                      .program = probe,
                                      .dir = dir,
                                      .ranks = r->spec.ranks,
                                      .devices = r->env.devices,
                                      .rig = r->spec.rig,
                                      .env = nt_env_list(&r->env),
                                      .max_bytes = r->spec.sizes[r->spec.nsizes - 1]};
    int rc = nt_loop_open(&r->loop, NT_LOOP_GANGS(r->spec.ranks), err);

    rc = rc == 0 ? nt_loop_watch_ends(&r->loop, r->signals, on_signal, r, err) : rc;
    if (rc != 0) {
        return rc;
    }
    r->err = err;
    r->rc = nt_drive_start(&r->loop, &c, &r->drive, err);
    if (r->rc != 0) {
        nt_loop_close_signals(r->signals, NT_LOOP_ENDS, false);
    }
    (void)uv_run(&r->loop, UV_RUN_DEFAULT);
    nt_assert(uv_loop_close(&r->loop) == 0);
    return r->rc;
}

static int find_probe(const char *named, char *out, size_t size, struct nt_err *err)
{
    char real[PATH_MAX];

    if (named == NULL) {
        return nt_where_probe("nccl", out, size, err);
    }
    if (realpath(named, real) == NULL || access(real, X_OK) != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "--probe %.200s is no program", named);
    }
    (void)snprintf(out, size, "%s", real);
    return 0;
}

static int run_record(const void *opts_, unsigned nargs, char **args, struct nt_err *err)
{
    struct rec *r = calloc(1, sizeof(*r));
    struct nt_workdir work = {0};
    struct nt_record_progress p;
    char probe[PATH_MAX] = "";
    uint64_t first = 1;
    int rc;
    (void)nargs;

    if (r == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "record");
    }
    r->a = opts_;
    r->path = args[0];
    nt_env_init(&r->env);
    rc = make_spec(r, err);
    rc = rc == 0 ? find_probe(r->a->probe, probe, sizeof(probe), err) : rc;
    rc = rc == 0 ? first_gang(r->path, r->spec.raced_dtype, &first, err) : rc;
    rc = rc == 0 ? nt_record_new(&r->spec, r->a->gangs, first, &r->plan, err) : rc;
    rc = rc == 0 ? nt_workdir_make(getenv("TMPDIR"), &work, err) : rc;
    rc = rc == 0 ? drive(r, probe, work.path, err) : rc;
    nt_workdir_remove(&work);
    if (r->out != NULL) {
        int rc2 = nt_recorder_close(r->out, rc == 0 ? err : NULL);
        rc = rc == 0 ? rc2 : rc;
    }
    if (rc == 0) {
        nt_record_progress(r->plan, &p);
        (void)printf("%s: %u rounds, %llu blocks, %llu distinct tuples, %.1f s\n", r->path, p.round,
                     (unsigned long long)p.blocks, (unsigned long long)p.tuples,
                     (double)r->totals.wall_ns / 1e9);
    }
    nt_record_free(r->plan);
    nt_env_done(&r->env);
    free(r);
    return rc;
}

const struct nt_command nt_cmd_record = {
    .name = "record",
    .summary = "the exhaustive landscape of a rig into a recording that can be tuned on anywhere",
    .args = "FILE.csv.gz",
    .min_args = 1,
    .max_args = 1,
    .opts = opts,
    .defaults = &defaults,
    .size = sizeof(struct record_args),
    .run = run_record,
    .details = "Measures every distinct executed algorithm, protocol and channel count for every "
               "size under every process "
               "setting given, most often the default and the leaders. A file that exists is "
               "continued with further "
               "gangs.",
};
