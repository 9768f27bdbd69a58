#include "tuner/cli/commands.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "tuner/cli/remote.h"
#include "tuner/cli/remote_jobs.h"
#include "tuner/cli/rows.h"

struct jobs_args {
    const char *format, *db, *server, *token_file;
    bool upgrade, follow;
    struct nt_remote_ask ask; /* last: what is from here on is of submit only */
};

static const struct jobs_args jobs_defaults = {.format = "table"};
static const struct nt_opt jobs_opts[] = {
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(struct jobs_args, format),
     .arg = "FORM",
     .help = "table, csv or json (default table)",
     .choices = nt_rows_formats},
    NT_OPT(NT_O_FLAG, jobs_args, upgrade, "upgrade", 0, NULL,
           "bring a database of an older nccltune to this version first"),
    NT_OPT(NT_O_STR, jobs_args, db, "db", 0, "PATH",
           "the database (default NCCLTUNE_DB, else "
           "${XDG_STATE_HOME:-~/.local/state}/nccltune/nccltune.db)"),
    NT_OPT(NT_O_STR, jobs_args, server, "server", 0, "WHERE",
           "the queue of a service instead: unix:PATH or http://HOST:PORT (default for what is "
           "done there: " NT_REMOTE_DEFAULT ")"),
    NT_OPT(NT_O_STR, jobs_args, token_file, "token-file", 0, "FILE",
           "file that holds the service's token (default the variable NCCLTUNE_TOKEN, else none)"),
    NT_OPT(NT_O_FLAG, jobs_args, follow, "follow", 0, NULL,
           "of submit and resume: follow the job until it ends"),
    NT_OPT(NT_O_STR, jobs_args, ask.rig, "rig", 0, "NAME",
           "submit: a rig of the service's configuration"),
    NT_OPT(NT_O_STR, jobs_args, ask.collectives, "collectives", 'c', "LIST",
           "submit: all_reduce, all_gather, … (default the service's)"),
    NT_OPT(NT_O_STR, jobs_args, ask.sizes, "sizes", 's', "LIST",
           "submit: bytes, as 1K:256M or a list (default the service's)"),
    NT_OPT(NT_O_STR, jobs_args, ask.modes, "modes", 'm', "LIST",
           "submit: eager, stream, graph (default the service's)"),
    NT_OPT(NT_O_STR, jobs_args, ask.dtypes, "dtypes", 0, "LIST",
           "submit: data types (default the service's)"),
    NT_OPT(NT_O_STR, jobs_args, ask.effort, "effort", 'e', "WORD",
           "submit: quick, standard or thorough (default the rig's)"),
    NT_OPT(NT_O_DURATION, jobs_args, ask.budget_ns, "budget", 'b', "TIME",
           "submit: time that the job may take"),
    NT_OPT(NT_O_STR, jobs_args, ask.seed, "seed", 0, "NUMBER", "submit: of its random choices"),
    NT_OPT(NT_O_STR, jobs_args, ask.priority, "priority", 0, "NUMBER",
           "submit: -100 to 100, higher ones first (default 0)"),
    {0}};

static const char *const names[] = {"job",   "state",  "stage", "rig",     "ranks",   "nodes",
                                    "steps", "trials", "gpu_s", "created", "finished"};
enum { COLUMNS = sizeof(names) / sizeof(names[0]) };

static struct nt_value text(const char *x)
{
    return x[0] == '\0' ? (struct nt_value){.type = NT_VALUE_NULL}
                        : (struct nt_value){.type = NT_VALUE_TEXT, .text = x, .len = strlen(x)};
}
static struct nt_value whole(uint64_t x)
{
    return (struct nt_value){.type = NT_VALUE_INT, .i = (int64_t)x};
}

/* Local time, to the second. */
static const char *when(uint64_t ms, char *out, size_t size)
{
    time_t t = (time_t)(ms / 1000);
    struct tm tm;
    if (ms == 0 || localtime_r(&t, &tm) == NULL || strftime(out, size, "%F %T", &tm) == 0) {
        out[0] = '\0';
    }
    return out;
}

/* What the table says of a job whose driver is gone without having said so. */
static const char *state_of(const struct nt_store_job *j)
{
    return j->state == NT_JOB_RUNNING && !j->owned ? nt_job_state_names[NT_JOB_INTERRUPTED]
                                                   : nt_job_state_names[j->state];
}

static int print_job(void *data, const struct nt_store_job *j, struct nt_err *err)
{
    char created[32], finished[32];
    const struct nt_value v[COLUMNS] = {
        whole((uint64_t)j->id),
        text(state_of(j)),
        text(j->stage),
        text(nt_rig_names[j->rig]),
        whole(j->ranks),
        whole(j->nodes),
        whole(j->steps),
        whole(j->trials),
        {.type = NT_VALUE_REAL, .r = round((double)j->device_ns / 1e8) / 10},
        text(when(j->created_ms, created, sizeof(created))),
        text(when(j->finished_ms, finished, sizeof(finished)))};
    return nt_rows_add(data, COLUMNS, names, v, err);
}

/* The first option given of those that only submit takes: the rows of `ask`, zero unless given. */
static const char *of_submit(const struct jobs_args *a)
{
    static const struct nt_remote_ask none;

    for (const struct nt_opt *o = jobs_opts; o->name != NULL; o++) {
        size_t size = o->type == NT_O_STR ? sizeof(const char *) : sizeof(uint64_t);
        if (o->offset >= offsetof(struct jobs_args, ask) &&
            memcmp((const char *)a + o->offset, &none, size) != 0) {
            return o->name;
        }
    }
    return NULL;
}

static int run_jobs(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct jobs_args *a = opts;
    struct nt_store *store = NULL;
    struct nt_rows *rows = NULL;
    char path[PATH_MAX];
    int format = nt_vocab_find(nt_rows_formats, "format", a->format, err);
    int rc = format < 0 ? format : nt_store_default_path(a->db, false, path, sizeof(path), err);

    if (a->server != NULL || nargs > 0) {
        return nt_remote_jobs_run(
            &(struct nt_remote_jobs){.server = a->server != NULL ? a->server : NT_REMOTE_DEFAULT,
                                     .token_file = a->token_file,
                                     .format = a->format,
                                     .follow = a->follow,
                                     .ask = a->ask,
                                     .of_submit = of_submit(a)},
            nargs, args, err);
    }
    if (of_submit(a) != NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "--%s is an option of submit only", of_submit(a));
    }
    if (rc == 0) { /* reading first: an upgrade makes no database */
        rc = nt_store_open(path, NT_STORE_READ, &store, err);
        if (rc == -NT_E_STORE && a->upgrade) {
            rc = nt_store_open(path, NT_STORE_WRITE, &store, err);
        }
    }
    if (rc == 0) {
        rc = nt_rows_open((enum nt_rows_format)format, stdout, &rows, err);
    }
    if (rc == 0) {
        rc = nt_rows_add(rows, COLUMNS, names, NULL, err);
        rc = rc == 0 ? nt_store_job_list(store, print_job, rows, err) : rc;
        rc = nt_rows_close(rows, rc, err);
    }
    nt_store_close(store);
    return rc;
}

const struct nt_command nt_cmd_jobs = {
    .name = "jobs",
    .summary = "tuning runs: state, stage, cost; the queue of a service",
    .args = "[submit | follow JOB | cancel JOB | resume JOB]",
    .max_args = 2,
    .opts = jobs_opts,
    .defaults = &jobs_defaults,
    .size = sizeof(struct jobs_args),
    .run = run_jobs,
    .details =
        "Lists the jobs of the database, newest first; times are local. A job whose process "
        "died is shown as interrupted: 'nccltune tune --resume JOB' goes on where it was.\n\nWith "
        "--server, or with something to do, it speaks of the queue of a service (nccltune "
        "serve): it lists it, submits a job by names, follows one live, cancels or resumes "
        "it. A followed job goes on whatever becomes of who follows. Exit status of "
        "following: 0 done, 1 failed, 3 there is no service, or it was lost, 5 cancelled, which "
        "can "
        "be resumed; with --format json each event is one line."};
