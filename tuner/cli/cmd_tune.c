/* tune: runs a job and writes its profile. */
#include "probes/model/graphs.h"
#include "probes/recording/recording.h"
#include "tuner/base/hash.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/cli/changed.h"
#include "tuner/cli/commands.h"
#include "tuner/cli/env.h"
#include "tuner/cli/nodes.h"
#include "tuner/cli/recorded.h"
#include "tuner/cli/resumed.h"
#include "tuner/cli/ticket.h"
#include "tuner/cli/tune_print.h"
#include "tuner/cli/where.h"
#include "tuner/job/run.h"
#include "tuner/job/weigh.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tune_args {
    const char *rig, *collectives, *workload, *sizes, *modes, *dtypes, *effort, *db, *out, *nccl,
        *devices, *format, *pace, *backends, *probe, *ticket, *progress;
    struct nt_strs fix, env, try;
    struct nt_nodes_args on;
    uint32_t ranks, pairs;
    uint64_t seed, budget_ns, max_memory;
    int64_t resume;
    bool dry_run, null, quiet, same_bits, no_groups, no_overlap, if_changed;
    const char *die_after;
};

enum { NO_RESUME = INT32_MIN }; /* what nobody asks for: 0 is asked for by mistake */

static const struct tune_args defaults = {.resume = NO_RESUME,
                                          .rig = "auto",
                                          .collectives = NULL,
                                          .sizes = NULL,
                                          .out = "nccltune-profile.json",
                                          .format = "text",
                                          .pace = "none",
                                          .progress = "text",
                                          .seed = 1};
static const char *const formats[] = {"text", "json", NULL};
static const char *const paces[] = {"none", "real", NULL};

#define T tune_args
static const struct nt_opt opts[] = {
    NT_OPT(NT_O_STR, T, rig, "rig", 'r', "RIG",
           "auto, nccl, mps-sockets, mps-p2p, recording:NAME, model:TOPO.xml (default auto: nccl)"),
    NT_OPT_SOME(NT_O_U32, T, ranks, "ranks", 'n', "COUNT",
                "ranks, of all nodes (default: one for each GPU, or as recorded)"),
    NT_OPT(NT_O_STR, T, devices, "devices", 0, "LIST",
           "CUDA devices, comma-separated, one a rank of a node (default 0,1,…)"),
    NT_OPT(NT_O_STR, T, collectives, "collectives", 'c', "LIST",
           "collectives to tune (default all_reduce, or the workload's)"),
    NT_OPT(NT_O_STR, T, workload, "workload", 'w', "FILE",
           "what the model's steps call (see `workload`): its sizes are raced, and its weights "
           "decide"),
    NT_OPT(NT_O_STR, T, sizes, "sizes", 's', "SIZES",
           "1K:256M (doubling) or a list (default 256:64M, or as recorded)"),
    NT_OPT(NT_O_STR, T, modes, "modes", 'm', "LIST",
           "modes that a row must serve (default eager,graph)"),
    NT_OPT(NT_O_STR, T, dtypes, "dtypes", 0, "LIST",
           "data types; the first is raced, all guard (default bf16,fp32)"),
    {.name = "effort",
     .letter = 'e',
     .type = NT_O_STR,
     .offset = offsetof(struct T, effort),
     .arg = "EFFORT",
     .help = "how much time to spend (default standard)",
     .choices = nt_effort_names},
    NT_OPT(NT_O_STR, T, backends, "backends", 0, "LIST",
           "who may move the bytes: nccl, nccl-registered, nccl-symmetric, ipc, host-memory, …, or "
           "auto for all that the probe measures (default nccl)"),
    NT_OPT(NT_O_FLAG, T, same_bits, "same-bits", 0, NULL,
           "only backends whose results have every bit of NCCL's"),
    NT_OPT(NT_O_FLAG, T, no_groups, "no-groups", 0, NULL,
           "no program here calls several collectives as one NCCL group: not checked"),
    NT_OPT(NT_O_FLAG, T, no_overlap, "no-overlap", 0, NULL,
           "no program here computes beside its calls: not checked"),
    NT_OPT(NT_O_DURATION, T, budget_ns, "budget", 'b', "TIME",
           "end within this time, of a recording in the time that was recorded; refused below the "
           "least that works"),
    NT_OPT(NT_O_STRS, T, try, "try", 0, "NAME=A,B",
           "process-scope values to try instead of the table's; may be repeated"),
    NT_OPT(NT_O_STRS, T, fix, "fix", 0, "NAME=VALUE",
           "site constraint in every arm; may be repeated"),
    NT_OPT(NT_O_STRS, T, env, "env", 0, "NAME=VALUE",
           "further variable of the ranks, not NCCL's; may be repeated"),
    NT_OPT_SOME(NT_O_BYTES, T, max_memory, "max-memory", 0, "SIZE",
                "device memory that a product may add on a rank (default: no limit)"),
    NT_OPT(NT_O_U64, T, seed, "seed", 0, "N", "order of everything that is random (default 1)"),
    NT_OPT(NT_O_STR, T, nccl, "nccl", 0, "FILE",
           "libnccl to tune (default libnccl.so.2 as the loader finds it)"),
    NT_OPT(NT_O_STR, T, db, "db", 0, "FILE",
           "database (default NCCLTUNE_DB, else in the state folder)"),
    NT_OPT(NT_O_STR, T, out, "out", 'o', "FILE",
           "profile to write (default ./nccltune-profile.json)"),
    NT_OPT(NT_O_I64, T, resume, "resume", 0, "JOB", "go on with an interrupted job"),
    NT_OPT(NT_O_FLAG, T, if_changed, "if-changed", 0, NULL,
           "do nothing while machine, stack and health are as when it last ended well"),
    NT_OPT(NT_O_FLAG, T, dry_run, "dry-run", 0, NULL, "print what would be done, and end"),
    NT_OPT(NT_O_FLAG, T, quiet, "quiet", 'q', NULL, "no progress"),
    {.name = "format",
     .type = NT_O_STR,
     .offset = offsetof(struct T, format),
     .arg = "FORMAT",
     .help = "what is printed at the end: the summary, or the profile (default text)",
     .choices = formats},
    NT_OPT(NT_O_FLAG, T, null, "null", 0, NULL,
           "recordings: every setting draws from the default's samples"),
    NT_NODES_OPTS(T),
    NT_NODES_COUNT(T, "--launch: nodes (default: as many as --hosts, or the allocation's); models: "
                      "so many copies of the machine (default 1)"),
    {.name = "pace",
     .type = NT_O_STR,
     .offset = offsetof(struct T, pace),
     .arg = "PACE",
     .help = "recordings, models: keep the real durations (default none)",
     .choices = paces},
    NT_OPT_SOME(NT_O_U32, T, pairs, "pairs", 0, "COUNT",
                "pairs of the confirm, 8 to 16 (default by effort)"),
    NT_OPT(NT_O_STR, T, probe, "probe", 0, "FILE",
           "probe program to measure with (default the installed one)"),
    NT_OPT(NT_O_STR, T, ticket, "ticket", 0, "KEY",
           "for the service: key of the run; there already, it goes on, or is done"),
    {.name = "progress",
     .type = NT_O_STR,
     .offset = offsetof(struct T, progress),
     .arg = "FORMAT",
     .help = "of the lines about progress (default text)",
     .choices = formats},
    NT_OPT(NT_O_STR, T, die_after, "die-after", 0, "STEPS[@STAGE]",
           "for tests: end by SIGKILL after so many stored steps"),
    {0}};
#undef T

struct tune {
    const struct tune_args *a;
    struct nt_spec spec;
    struct nt_workload workload; /* no phases: none was given */
    struct nt_env env;
    struct nt_over over; /* several nodes */
    char probe[PATH_MAX], plugin[PATH_MAX], recording[PATH_MAX], seed[24], nodes[24];
    const char
        *args[8];    /* recording: the file that stands in for the machine; of a model its XML */
    char source[80]; /* of the job to go on with */
    bool null;
    struct nt_buf settings;
    /* progress */
    bool tty;
    size_t last_width;
};

/* ------------------------------------------------------------------ spec */

/* The program's arguments for a stand-in of a machine: a file, the seed, the pace. */
static size_t stand_in_args(struct tune *t)
{
    size_t n = 0;

    t->args[n++] = t->recording;
    t->args[n++] = "--seed";
    (void)snprintf(t->seed, sizeof(t->seed), "%llu", (unsigned long long)t->spec.seed);
    t->args[n++] = t->seed;
    t->args[n++] = "--pace";
    t->args[n++] = t->a->pace;
    return n;
}

/* A resumed job must meet the world that it began in. */
static int keep_source(struct tune *t, const char *kind, const char *name, struct nt_err *err)
{
    char hex[NT_HEX_LEN + 1], now[sizeof(t->spec.source)];
    bool file = strchr(name, '/') != NULL || access(name, R_OK) == 0;
    struct nt_spec *s = &t->spec;

    if (!nt_sha256_file_hex(t->recording, hex)) {
        return nt_fail(err, NT_E_INVAL, 0, "%.300s cannot be read", t->recording);
    }
    (void)snprintf(now, sizeof(now), "%s%s", hex, t->null ? " null" : "");
    if (t->a->resume != 0 && t->source[0] != '\0' && strcmp(t->source, now) != 0) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "job %lld began with other content than that of %.300s%s: name that, or "
                       "start anew",
                       (long long)t->a->resume, t->recording, t->null ? " with --null" : "");
    }
    (void)snprintf(s->source, sizeof(s->source), "%s", now);
    if (snprintf(s->stand_in, sizeof(s->stand_in), "%s:%s", kind, file ? t->recording : name) >=
        (int)sizeof(s->stand_in)) {
        s->stand_in[0] = '\0'; /* half a name is none */
    }
    return 0;
}

static int use_recording(struct tune *t, const char *name, struct nt_err *err)
{
    struct nt_recording *rec = NULL;
    const struct nt_spec asked = t->spec;
    int rc = nt_where_recording(name, t->recording, sizeof(t->recording), err);
    size_t n;

    rc = rc == 0 ? nt_where_probe("recording", t->probe, sizeof(t->probe), err) : rc;
    rc = rc == 0 ? nt_recording_load(t->recording, &rec, err) : rc;
    rc = rc == 0 ? keep_source(t, "recording", name, err) : rc;
    rc = rc == 0 && t->a->try.n > 0 ? nt_env_settings(&t->env, &t->spec, &t->a->try, err) : rc;
    rc = rc == 0 ? nt_wrap(err, nt_recorded_spec(rec, &t->spec, err), "%s", t->recording) : rc;
    nt_recording_free(rec);
    if (rc == 0 && t->a->dtypes != NULL) {
        nt_recorded_note_dropped(&asked, &t->spec);
    }
    n = stand_in_args(t);
    if (t->null) {
        t->args[n++] = "--null";
    }
    return rc;
}

/* A machine that exists only as a topology. */
static int use_model(struct tune *t, const char *file, struct nt_err *err)
{
    struct nt_spec *s = &t->spec;
    struct nt_topology *topology = NULL;
    struct nt_comm comm;
    struct nt_comm_opts o = {.ranks = s->ranks,
                             .nodes = t->a->on.nodes > 0 ? t->a->on.nodes : s->nodes};
    size_t n;
    int rc = realpath(file, t->recording) == NULL
                 ? nt_fail(err, NT_E_INVAL, errno, "topology cannot be read")
                 : nt_where_probe("model", t->probe, sizeof(t->probe), err);

    rc = rc == 0 ? nt_topology_read_file(t->recording, &topology, err) : rc;
    rc = rc == 0 ? nt_comm_init(topology, &o, &comm, NULL, err) : rc;
    nt_topology_free(topology);
    if (rc != 0) {
        return nt_wrap(err, rc, "--rig model:%s", file);
    }
    s->rig = s->shown_rig = NT_RIG_MODEL;
    t->env.modelled = true;
    t->env.nvlink = comm.graph[NT_GRAPH_RING].type_intra <= NT_PATH_NVB;
    s->ranks = (unsigned)comm.ranks;
    s->nodes = (unsigned)comm.nodes;
    s->as_found[0] = '\0';
    s->fixed[0] = '\0';
    n = stand_in_args(t);
    t->args[n++] = "--nodes";
    (void)snprintf(t->nodes, sizeof(t->nodes), "%u", s->nodes);
    t->args[n++] = t->nodes;
    return keep_source(t, "model", t->recording, err);
}

static int find_probe(struct tune *t, struct nt_err *err)
{
    if (t->a->probe == NULL) {
        return nt_where_probe("nccl", t->probe, sizeof(t->probe), err);
    }
    if (access(t->a->probe, X_OK) != 0 || realpath(t->a->probe, t->probe) == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "--probe %s is no program", t->a->probe);
    }
    return 0;
}

static int what_to_try(struct tune *t, struct nt_err *err)
{
    int rc = nt_env_settings(&t->env, &t->spec, &t->a->try, err);

    if (rc == 0 && t->workload.nphases > 0) {
        return nt_weigh_sizes(&t->spec, &t->workload, err);
    }
    return rc == 0 && t->a->sizes == NULL ? nt_spec_add_sizes(&t->spec, "256:64M", err) : rc;
}

/* On this host, or on those that the launcher reaches. */
static int find_ranks(struct tune *t, struct nt_err *err)
{
    struct nt_spec *s = &t->spec;
    int rc;

    if (t->over.on) {
        return nt_over_ranks(&t->over, &t->env, s, err);
    }
    rc = nt_env_ranks(&t->env, s, err);
    s->nodes = s->rig == NT_RIG_MPS_SOCKETS ? s->ranks : 1;
    return rc;
}

static int use_machine(struct tune *t, struct nt_err *err)
{
    struct nt_spec *s = &t->spec;
    int rc = find_probe(t, err);

    (void)snprintf(s->probe, sizeof(s->probe), "%s", nt_probe_name(t->a->probe));
    rc = rc == 0 ? nt_where_plugin("tuner", t->plugin, sizeof(t->plugin), err) : rc;
    rc = rc == 0 ? find_ranks(t, err) : rc;
    rc = rc == 0 ? what_to_try(t, err) : rc;
    s->shown_rig = s->rig;
    return rc;
}

/* Options that the rig has no use for are refused: silence would say that they were heeded. */
static int check_given(const struct tune_args *a, struct nt_err *err)
{
    bool recording = strncmp(a->rig, "recording:", 10) == 0;
    bool model = strncmp(a->rig, "model:", 6) == 0;
    const struct {
        bool wrong;
        const char *says;
    } rows[] = {
        {(recording || model) && a->fix.n > 0, "--fix: only a machine that is here can be fixed"},
        {(recording || model) && a->probe != NULL,
         "--probe: a recording or model has its own program"},
        {(recording || model) && a->nccl != NULL, "--nccl: a recording or model runs none"},
        {(recording || model) && a->env.n > 0, "--env: a recording or model has no such ranks"},
        {(recording || model) && a->devices != NULL, "--devices: a recording or model has none"},
        {(recording || model) && a->backends != NULL,
         "--backends: a recording or model has only NCCL; others are measured on GPUs"},
        {a->same_bits && a->backends == NULL, "--same-bits: says something about --backends"},
        {a->resume != 0 && a->backends != NULL, "--backends: a resumed job has its own"},
        {!model && a->on.launch == NULL && a->on.nodes != 0,
         "--nodes: for models, or with --launch"},
        {a->on.launch != NULL && strcmp(a->rig, "auto") != 0 && strcmp(a->rig, "nccl") != 0,
         "--launch: only real nodes (--rig nccl) are launched on"},
        {a->on.launch != NULL && a->if_changed,
         "--if-changed: looks at this machine only, and not at those of --launch"},
        {!recording && a->null, "--null: for recordings only"},
        {a->resume != 0 && a->workload != NULL, "--workload: a resumed job has its own"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].wrong) {
            return nt_fail(err, NT_E_INVAL, 0, "%s", rows[i].says);
        }
    }
    return 0;
}

/* "STEPS[@STAGE]" */
static int check_die_after(const char *text, struct nt_err *err)
{
    const char *at = text != NULL ? strchr(text, '@') : NULL;
    char steps[32];
    uint64_t n = 0;
    int rc = 0;

    if (text != NULL) {
        (void)snprintf(steps, sizeof(steps), "%.*s", (int)(at != NULL ? at - text : 31), text);
        rc = nt_parse_u64(steps, &n, err);
        rc = rc == 0 && n == 0 ? nt_fail(err, NT_E_INVAL, 0, "at least 1 step") : rc;
    }
    if (rc == 0 && at != NULL) {
        int stage = nt_vocab_find(nt_stage_names, "stage", at + 1, err);
        rc = stage < 0 ? stage : 0;
    }
    return nt_wrap(err, rc, "--die-after");
}

/* The collectives that are named, else those of the workload, else all_reduce. */
static int take_colls(struct tune *t, struct nt_err *err)
{
    const char *named = t->a->collectives;
    struct nt_buf doc;
    int rc = 0;

    if (t->a->workload != NULL) {
        nt_buf_init(&doc, NT_PROFILE_MAX_BYTES);
        rc = nt_buf_read_file(&doc, t->a->workload, err);
        rc = rc == 0
                 ? nt_workload_parse(nt_buf_str(&doc), doc.len, t->a->workload, &t->workload, err)
                 : rc;
        nt_buf_done(&doc);
        if (rc == 0 && named == NULL) {
            nt_weigh_colls(&t->spec, &t->workload);
            return 0;
        }
    }
    return rc == 0 ? nt_wrap(err,
                             nt_spec_set(named != NULL ? named : "all_reduce", nt_coll_names,
                                         "collective", t->spec.colls, NT_COLL_COUNT, err),
                             "--collectives")
                   : rc;
}

/* NCCL as it is takes part always: it is what the others are judged against. */
static int take_backends(struct tune *t, struct nt_err *err)
{
    struct nt_spec *s = &t->spec;
    const char *asked = t->a->backends;
    bool framework = strncmp(nt_probe_name(t->a->probe), "nccltune-probe-framework", 24) == 0;
    int rc = 0;

    if (asked != NULL && strcmp(asked, "auto") == 0) {
        for (int b = 0; b < NT_BACKEND_COUNT; b++) {
            s->backends[b] = strcmp(nt_backends[b].probe, framework ? "framework" : "nccl") == 0;
        }
    } else if (asked != NULL) {
        rc = nt_wrap(
            err,
            nt_spec_set(asked, nt_backend_names, "backend", s->backends, NT_BACKEND_COUNT, err),
            "--backends");
    }
    s->backends[NT_BE_NCCL] = true;
    s->same_bits = t->a->same_bits;
    return rc;
}

/* The ladder is final: what each of its sizes is worth. */
static int weigh(struct tune *t, struct nt_err *err)
{
    double covered = 1;
    int rc = t->workload.nphases > 0 ? nt_weigh(&t->spec, &t->workload, &covered, err) : 0;

    if (rc == 0 && covered < 1) {
        (void)fprintf(stderr,
                      "workload %s: %.0f %% of its calls are of no collective, mode and size that "
                      "is tuned here; they decide nothing\n",
                      t->workload.name, 100 * (1 - covered));
    }
    return rc;
}

/* Options that a job keeps have no default of their own: what was given and what was not must be
 * told apart when it goes on. */
static const char *or_usual(const char *given, const char *usual)
{
    return given != NULL ? given : usual;
}

static int make_spec(struct tune *t, struct nt_err *err)
{
    static const char *const rigs[] = {"auto",           "nccl",           "mps-sockets", "mps-p2p",
                                       "recording:NAME", "model:TOPO.xml", NULL};
    const struct tune_args *a = t->a;
    struct nt_spec *s = &t->spec;
    int rc, effort = nt_vocab_find(nt_effort_names, "effort", or_usual(a->effort, "standard"), err);

    nt_spec_init(s);
    s->effort = (enum nt_effort)effort;
    s->seed = a->seed;
    s->ranks = a->ranks;
    s->pairs = a->pairs;
    s->budget_ns = a->budget_ns;
    s->no_groups = a->no_groups;
    s->no_overlap = a->no_overlap;
    s->max_memory_bytes = a->max_memory;
    s->places[NT_OUT_OF_PLACE] = s->places[NT_IN_PLACE] = true;
    rc = take_colls(t, err);
    rc = rc == 0 ? take_backends(t, err) : rc;
    rc = rc == 0 ? nt_wrap(err,
                           nt_spec_set(or_usual(a->modes, "eager,graph"), nt_mode_names, "mode",
                                       s->modes, NT_MODE_COUNT, err),
                           "--modes")
                 : rc;
    rc = rc == 0 ? nt_wrap(err, nt_spec_set_dtypes(s, or_usual(a->dtypes, "bf16,fp32"), err),
                           "--dtypes")
                 : rc;
    rc = rc == 0 && a->sizes != NULL ? nt_spec_add_sizes(s, a->sizes, err) : rc;
    rc = rc == 0 ? nt_over_open(&a->on, &t->over, err) : rc;
    rc = rc == 0 ? nt_over_each(&t->over, s, err) : rc;
    rc = rc == 0 ? nt_env_devices(&t->env, s, a->devices, err) : rc;
    rc = rc == 0 ? nt_env_take(&t->env, s, a->nccl, &a->fix, &a->env, err) : rc;
    if (rc != 0) {
        return rc;
    }
    if (strcmp(a->rig, "recording") == 0) {
        rc = use_recording(t, "", err); /* says which there are */
    } else if (strncmp(a->rig, "recording:", 10) == 0) {
        rc = use_recording(t, a->rig + 10, err);
    } else if (strncmp(a->rig, "model:", 6) == 0) {
        rc = use_model(t, a->rig + 6, err);
        rc = rc == 0 ? what_to_try(t, err) : rc;
    } else {
        int rig = strcmp(a->rig, "auto") == 0 ? NT_RIG_NCCL
                                              : nt_vocab_find(nt_rig_names, "rig", a->rig, NULL);
        if (rig < 0 || rig > NT_RIG_MPS_P2P) {
            return nt_fail_name(err, "rig", a->rig, rigs);
        }
        s->rig = (enum nt_rig)rig;
        rc = use_machine(t, err);
    }
    rc = rc == 0 ? nt_spec_finish(s, err) : rc;
    return rc == 0 ? weigh(t, err) : rc;
}

/* ------------------------------------------------------------------ progress */

static void on_progress(void *data, const struct nt_job_progress *p)
{
    struct tune *t = data;
    /* A replay without its pauses says nothing about how long it will take. */
    bool paced = t->spec.rig < NT_RIG_RECORDING || strcmp(t->a->pace, "real") == 0;

    if (strcmp(t->a->progress, "json") == 0) {
        nt_ticket_progress(p, paced);
        return;
    }
    if (t->a->quiet || (!t->tty && !p->stage_begins)) {
        return;
    }
    t->last_width = nt_tune_print_progress(p, paced, t->tty, t->last_width);
}

/* ------------------------------------------------------------------ the command */

static int save(const struct tune *t, const struct nt_job_outcome *o, struct nt_err *err)
{
    int rc = nt_profile_save(o->profile, t->a->out, err);

    if (rc != 0) {
        return nt_wrap(err, rc, "the profile stays in the database (nccltune show %lld)",
                       (long long)o->job);
    }
    if (rc == 0 && strcmp(t->a->format, "json") == 0) {
        struct nt_buf b;
        nt_buf_init(&b, NT_PROFILE_MAX_BYTES);
        rc = nt_profile_dump(o->profile, &b, err);
        (void)fputs(nt_buf_str(&b), stdout);
        nt_buf_done(&b);
    } else if (rc == 0) {
        nt_tune_print_summary(&t->spec, t->a->out, o);
    }
    return rc;
}

/* The whole command line: what a job does not store must be said again. */
static void say_how_to_resume(const struct tune *t, int64_t job, struct nt_err *err)
{
    const struct tune_args *a = t->a;
    struct nt_buf more;

    nt_buf_init(&more, (size_t)3 * PATH_MAX);
    nt_shell_option("rig", t->spec.rig >= NT_RIG_RECORDING ? a->rig : NULL, &more);
    nt_buf_puts(&more, a->null ? " --null" : "");
    nt_shell_option("nccl", a->nccl, &more);
    nt_shell_option("probe", a->probe, &more);
    nt_shell_option("launch", a->on.launch, &more);
    nt_shell_option("hosts", a->on.hosts, &more);
    nt_shell_option("listen", a->on.listen, &more);
    if (a->on.launch != NULL) {
        nt_buf_printf(&more, " --nodes %u", t->spec.nodes);
    }
    for (size_t i = 0; i < a->env.n; i++) {
        nt_shell_option("env", a->env.v[i], &more);
    }
    nt_shell_option("db", a->db, &more);
    nt_shell_option("out", strcmp(a->out, defaults.out) != 0 ? a->out : NULL, &more);
    if (err->code == NT_E_MISSING) {
        struct nt_err why = *err;
        (void)nt_fail(err, NT_E_MISSING, 0, "%.330s; `nccltune tune --resume %lld%s` goes on",
                      why.msg, (long long)job, nt_buf_str(&more));
    } else {
        (void)nt_fail(err, NT_E_INTERRUPTED, 0,
                      "interrupted; `nccltune tune --resume %lld%s` goes on", (long long)job,
                      nt_buf_str(&more));
    }
    nt_buf_done(&more);
}

static int run_job(struct tune *t, struct nt_err *err)
{
    char path[PATH_MAX];
    struct nt_store *store = NULL;
    struct nt_job_outcome o = {0};
    const char *const *env = NULL;
    int rc = nt_store_default_path(t->a->db, true, path, sizeof(path), err);

    rc = rc == 0 ? nt_store_open(path, NT_STORE_WRITE, &store, err) : rc;
    if (rc == 0) {
        struct nt_job_config c = {.spec = t->spec,
                                  .resume = t->a->resume,
                                  .key = t->a->ticket,
                                  .store = store,
                                  .program = t->probe,
                                  .args = t->args,
                                  .plugin = t->plugin,
                                  .devices = t->env.devices,
                                  .remote = nt_over_remote(&t->over),
                                  .machines = t->over.machines,
                                  .virtual_time = t->spec.rig >= NT_RIG_RECORDING,
                                  .version = NT_VERSION,
                                  .tmpdir = getenv("TMPDIR"),
                                  .on_progress = on_progress,
                                  .data = t,
                                  .die_after = t->a->die_after};
        env = nt_env_list(&t->env);
        c.env = env;
        rc = nt_job_run(&c, &o, err);
        if (t->tty && t->last_width > 0) {
            (void)fprintf(stderr, "\r%*s\r", (int)t->last_width, "");
        }
        if (rc == -NT_E_INTERRUPTED || (rc == -NT_E_MISSING && t->over.on && o.job != 0)) {
            say_how_to_resume(t, o.job, err);
        } else if (rc != 0 && o.job != 0) {
            rc = nt_wrap(err, rc, "job %lld", (long long)o.job);
        }
    }
    rc = rc == 0 ? save(t, &o, err) : rc;
    nt_profile_free(o.profile);
    nt_store_close(store);
    return rc;
}

/* Options that say nothing of what is asked for: machine and place are looked at by themselves. */
static const char *const not_asked[] = {
    "rig",     "ranks", "nccl",   "db",   "out",    "seed",     "budget",    "resume", "if-changed",
    "dry-run", "quiet", "format", "pace", "ticket", "progress", "die-after", NULL};

/* What a resumed job needs besides its stored spec: the same probe. */
static int resume_spec(struct tune *t, struct nt_err *err);

static int run_tune(const void *opts_, unsigned nargs, char **args, struct nt_err *err)
{
    struct tune *t = calloc(1, sizeof(*t));
    struct tune_args given = *(const struct tune_args *)opts_;
    char words[512] = "", asked[NT_HEX_LEN + 1] = "";
    struct nt_changed changed = {given.rig, given.nccl, given.db, given.ranks, given.out, asked};
    bool done = false, differs = true;
    int rc, hold = -1; /* the output, where it is a pipe */
    (void)nargs;
    (void)args;

    if (t == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "tune");
    }
    if (given.resume != NO_RESUME && given.resume < 1) {
        free(t);
        return nt_fail(err, NT_E_INVAL, 0,
                       "--resume: jobs are numbered from 1; nccltune jobs lists them");
    }
    given.resume = given.resume == NO_RESUME ? 0 : given.resume;
    t->a = &given;
    t->null = given.null;
    t->tty = isatty(STDERR_FILENO) != 0;
    nt_env_init(&t->env);
    rc = check_given(t->a, err);
    rc = rc == 0 ? check_die_after(given.die_after, err) : rc;
    rc = rc == 0 ? nt_where_out(t->a->out, t->a->db, &hold, err) : rc;
    if (rc == 0 && given.ticket != NULL) {
        nt_ticket_follow_parent();
        rc = nt_ticket_find(given.ticket, given.db, &given.resume, &done, err);
    }
    if (rc == 0 && given.if_changed) {
        rc = nt_changed_asked(opts, &given, not_asked, asked, err);
    }
    if (rc == 0 && given.if_changed) {
        rc = nt_changed_look(&changed, &differs, words, sizeof(words), err);
        done = rc == 0 && !differs;
        (void)(rc == 0 ? printf("%s%s\n", words, done ? ": nothing done" : "") : 0);
    }
    rc = rc != 0 || done ? rc : t->a->resume != 0 ? resume_spec(t, err) : make_spec(t, err);
    if (rc == 0 && !done && t->a->dry_run) {
        nt_tune_print_plan(&t->spec);
    } else if (rc == 0 && !done) {
        rc = run_job(t, err);
        rc = rc == 0 && given.if_changed ? nt_changed_remember(&changed, err) : rc;
    }
    (void)(hold >= 0 ? close(hold) : 0);
    nt_env_done(&t->env);
    nt_over_close(&t->over);
    free(t);
    return rc;
}

struct found_spec {
    struct nt_spec spec;
    const char *database;
};

static int take_spec(void *data, const struct nt_store_job *j, struct nt_err *err)
{
    struct found_spec *f = data;
    json_t *o = NULL;
    int rc = nt_json_parse(j->spec, strlen(j->spec), "spec of the job", &o, err);
    rc = rc == 0 ? nt_spec_from_json(o, &f->spec, err) : rc;
    json_decref(o);
    return nt_wrap(err, rc, "what job %lld of %.300s was asked is damaged and cannot go on",
                   (long long)j->id, f->database);
}

static struct nt_resumed kept_options(const struct tune_args *a)
{
    return (struct nt_resumed){.collectives = a->collectives,
                               .sizes = a->sizes,
                               .modes = a->modes,
                               .dtypes = a->dtypes,
                               .effort = a->effort,
                               .devices = a->devices,
                               .try = &a->try,
                               .seed = a->seed,
                               .budget_ns = a->budget_ns,
                               .no_groups = a->no_groups,
                               .no_overlap = a->no_overlap,
                               .max_memory = a->max_memory,
                               .pairs = a->pairs};
}

/* A job over several nodes goes on over as many. */
static int go_on_over(struct tune *t, struct nt_err *err)
{
    struct nt_nodes_args on = t->a->on;
    bool several = t->spec.rig == NT_RIG_NCCL && t->spec.nodes > 1;
    int rc;

    if (several && on.launch == NULL) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "job %lld runs on %u nodes: say again with --launch how they are reached",
                       (long long)t->a->resume, t->spec.nodes);
    }
    on.nodes = on.nodes == 0 && on.launch != NULL ? t->spec.nodes : on.nodes;
    rc = nt_over_open(&on, &t->over, err);
    if (rc == 0 && t->over.on && t->over.remote.nodes != t->spec.nodes) {
        rc = nt_fail(err, NT_E_INVAL, 0, "job %lld runs on %u node%s, not on %u",
                     (long long)t->a->resume, t->spec.nodes, t->spec.nodes == 1 ? "" : "s",
                     t->over.remote.nodes);
    }
    return rc == 0 ? nt_over_each(&t->over, &t->spec, err) : rc;
}

static int resume_spec(struct tune *t, struct nt_err *err)
{
    char path[PATH_MAX];
    struct nt_store *store = NULL;
    struct found_spec f = {.database = path};
    struct nt_spec now;
    const struct nt_resumed given = kept_options(t->a);
    int rc = nt_store_default_path(t->a->db, false, path, sizeof(path), err);

    rc = rc == 0 ? nt_store_open(path, NT_STORE_READ, &store, err) : rc;
    rc = rc == 0 ? nt_store_job_load(store, t->a->resume, take_spec, &f, err) : rc;
    nt_store_close(store);
    rc = rc == 0 ? nt_env_take(&t->env, &now, t->a->nccl, &t->a->fix, &t->a->env, err) : rc;
    if (rc != 0) {
        return rc;
    }
    t->spec = f.spec;
    (void)snprintf(t->source, sizeof(t->source), "%s", f.spec.source);
    if (f.spec.rig >= NT_RIG_RECORDING) {
        bool recording = f.spec.rig == NT_RIG_RECORDING;
        const char *kind = recording ? "recording:" : "model:",
                   *rig = strcmp(t->a->rig, "auto") == 0 ? f.spec.stand_in : t->a->rig;
        if (strncmp(rig, kind, strlen(kind)) != 0) {
            return nt_fail(err, NT_E_INVAL, 0, "job %lld %s: name it again with --rig %s",
                           (long long)t->a->resume,
                           recording ? "replays a recording" : "is of a model",
                           recording ? "recording:NAME" : "model:TOPO.xml");
        }
        t->null = t->null || strstr(f.spec.source, " null") != NULL;
        rc = (recording ? use_recording : use_model)(t, rig + strlen(kind), err);
        t->spec = f.spec;
    } else {
        rc = nt_resumed_probe(t->a->probe, &f.spec, t->a->resume, err);
        rc = rc == 0 ? nt_env_go_on(&t->env, &now, &t->spec, err) : rc;
        rc = rc == 0 ? go_on_over(t, err) : rc;
        rc = rc == 0 ? nt_env_devices(&t->env, &t->spec, f.spec.devices, err) : rc;
        rc = rc == 0 ? find_probe(t, err) : rc;
        rc = rc == 0 ? nt_where_plugin("tuner", t->plugin, sizeof(t->plugin), err) : rc;
        rc = rc == 0 ? find_ranks(t, err) : rc;
    }
    return rc == 0 ? nt_resumed_check(&given, defaults.seed, &t->spec, &t->env, t->a->resume, err)
                   : rc;
}

const struct nt_command nt_cmd_tune = {
    .name = "tune",
    .summary = "find, prove and write down the fastest settings for this machine",
    .args = "",
    .opts = opts,
    .defaults = &defaults,
    .size = sizeof(struct tune_args),
    .run = run_tune,
    .details =
        "Measures NCCL's default, races every algorithm, protocol and channel count that NCCL "
        "allows for each size, tries settings of process scope, and confirms what it found in "
        "pairs of fresh processes on the way it will be delivered. What is not proved to be "
        "faster, or is slower anywhere it was checked, stays with the default. Variables of a "
        "table reach every collective: where one that was not asked for would pay for them, a row "
        "of the verdict `kept` gives its calls back what NCCL runs without; it claims no gain.\n\n"
        "What was found here is a baseline, too: settings in the environment, in ~/.nccl.conf (or "
        "the file that NCCL_CONF_FILE names), in /etc/nccl.conf, and of the profile that is "
        "active. Site constraints among them (interfaces, NCCL_NVLS_ENABLE=0, …) are in every "
        "arm.\n\n"
        "With --launch the ranks are on several nodes: one command of the launcher starts "
        "nccltune-agent on each, which connects back and starts them. nccltune and NCCL are at the "
        "same paths everywhere, and the nodes are alike.\n\n"
        "A rig other than nccl is functional: it exercises everything, but its profile is not for "
        "a real node.",
};
