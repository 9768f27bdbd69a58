/* The table of routes. */
#include "profiles/export/export.h"
#include "schema/vocab.h"
#include "tuner/lint/lint.h"
#include "tuner/service/api.h"

static const char *const export_products[] = {"table", "static", NULL};

#define LIMIT                                                                                      \
    {                                                                                              \
        .name = "limit", .type = "integer", .min = 1, .max = 1000,                                 \
        .help = "at most so many (default 100)"                                                    \
    }
#define BEFORE                                                                                     \
    {                                                                                              \
        .name = "before", .type = "integer", .min = 1, .max = INT64_MAX,                           \
        .help = "only those with a lower id: the next page"                                        \
    }
#define RIG                                                                                        \
    {                                                                                              \
        .name = "allow_rig", .type = "string", .words = nt_rig_names,                              \
        .help = "also profiles of this functional rig"                                             \
    }

static const struct nt_param jobs_params[] = {LIMIT,
                                              BEFORE,
                                              {.name = "state",
                                               .type = "string",
                                               .words = nt_queue_state_names,
                                               .help = "in this state only"},
                                              {0}};
static const struct nt_param page_params[] = {LIMIT, BEFORE, {0}};
static const struct nt_param events_params[] = {
    {.name = "job", .type = "integer", .min = 1, .max = INT64_MAX, .help = "of this job only"},
    {.name = "after",
     .type = "integer",
     .min = 0,
     .max = INT64_MAX,
     .help =
         "from this event on, as Last-Event-ID; 0, or one that is not known: from the oldest kept"},
    {0}};
static const struct nt_param match_params[] = {
    {.name = "identity",
     .type = "string",
     .min = 1,
     .max = 64,
     .required = true,
     .help = "of the machine, as `topo` prints it: 12 hex digits"},
    {.name = "nccl", .type = "string", .min = 1, .max = 32, .help = "its NCCL, as 2.28.9"},
    {.name = "driver", .type = "string", .min = 1, .max = 32, .help = "its driver"},
    {.name = "gpu", .type = "string", .min = 1, .max = 64, .help = "its GPU model"},
    {.name = "ranks", .type = "integer", .min = 1, .max = 65536, .help = "of the communicator"},
    {.name = "nodes", .type = "integer", .min = 1, .max = 65536, .help = "of the communicator"},
    {.name = "placement", .type = "string", .max = 64, .help = "placement class"},
    RIG,
    {0}};
static const struct nt_param export_params[] = {
    {.name = "product",
     .type = "string",
     .words = export_products,
     .help = "table (default) or static: variables only"},
    {.name = "nccl", .type = "string", .min = 1, .max = 32, .help = "release to write for"},
    RIG,
    {0}};
static const struct nt_param table_params[] = {RIG, {0}};
static const struct nt_param decide_params[] = {{.name = "collective",
                                                 .type = "string",
                                                 .words = nt_coll_names,
                                                 .required = true,
                                                 .help = "the collective"},
                                                {.name = "bytes",
                                                 .type = "integer",
                                                 .min = 1,
                                                 .max = INT64_C(1) << 50,
                                                 .required = true,
                                                 .help = "as NCCL's tuner counts them"},
                                                {.name = "mode",
                                                 .type = "string",
                                                 .words = nt_mode_names,
                                                 .help = "evidence of this mode only"},
                                                {.name = "product",
                                                 .type = "string",
                                                 .words = export_products,
                                                 .help = "table (default) or static"},
                                                {0}};
static const struct nt_param view_params[] = {
    LIMIT,
    {.name = "job",
     .type = "integer",
     .min = 1,
     .max = INT64_MAX,
     .help = "rows of this tuning run only, in views that have the column"},
    {.name = "offset", .type = "integer", .min = 0, .max = 1000000000, .help = "rows to pass over"},
    {0}};

#define GET(path_, role_, how_, fn_, params_, gives_, summary_)                                    \
    .method = "GET", .path = (path_), .role = NT_ROLE_##role_, .how = NT_ON_##how_,                \
    .fn = nt_api_##fn_, .params = (params_), .gives = (gives_), .summary = (summary_),             \
    .status = 200
#define POST(path_, role_, how_, fn_, body_, gives_, status_, summary_)                            \
    .method = "POST", .path = (path_), .role = NT_ROLE_##role_, .how = NT_ON_##how_,               \
    .fn = nt_api_##fn_, .body = (body_), .gives = (gives_), .summary = (summary_),                 \
    .status = (status_)

const struct nt_route nt_routes[] = {
    {GET("/healthz", NONE, LOOP, healthz, NULL, "Health", "whether the service works"),
     .also = 503},
    {GET("/metrics", READ, LOOP, metrics, NULL, NULL, "figures for Prometheus"),
     .type = "text/plain; version=0.0.4"},
    {GET("/v1/openapi.json", NONE, LOOP, openapi, NULL, "Any", "this document")},
    {GET("/v1/server", READ, LOOP, server, NULL, "Server",
         "version, rigs and state of the service")},

    {GET("/v1/jobs", READ, LOOP, jobs, jobs_params, "Jobs", "jobs of the queue, newest first")},
    {POST("/v1/jobs", SUBMIT, LOOP, job_add, "NewJob", "Job", 201, "puts a job into the queue")},
    {GET("/v1/jobs/{id}", READ, LOOP, job, NULL, "Job", "one job, with its progress")},
    {.method = "PATCH",
     .path = "/v1/jobs/{id}",
     .role = NT_ROLE_SUBMIT,
     .fn = nt_api_job_change,
     .body = "JobChange",
     .gives = "Job",
     .status = 200,
     .summary = "changes a job's priority"},
    {POST("/v1/jobs/{id}/cancel", SUBMIT, LOOP, job_cancel, NULL, "Job", 202,
          "ends a job and all of its processes")},
    {POST(
        "/v1/jobs/{id}/resume", SUBMIT, LOOP, job_resume, NULL, "Job", 202,
        "queues a failed or cancelled job, which goes on where it was, or accepts a proposed one")},
    {GET("/v1/events", READ, STREAM, events, events_params, NULL,
         "server-sent events: jobs and their progress, machine, profiles"),
     .type = "text/event-stream"},
    {GET("/v1/log", READ, WORK, log, page_params, "Log", "what happened, newest first")},

    {GET("/v1/machine", READ, LOOP, machine, NULL, "Machine",
         "this machine as it was last seen: identity, health, stack")},
    {POST("/v1/machine/look", SUBMIT, LOOP, machine_look, NULL, "Machine", 202,
          "looks at the machine now")},
    {GET("/v1/topologies", READ, WORK, topologies, NULL, "Topologies",
         "machines that jobs ran on, newest first")},
    {GET("/v1/topologies/{id}", READ, WORK, topology, NULL, "Topology",
         "one machine, with a drawing where its topology was kept")},

    {GET("/v1/profiles", READ, WORK, profiles, page_params, "Profiles", "profiles, newest first"),
     .keep = NT_KEEP_VERSION},
    {GET("/v1/profiles/match", READ, WORK, profile_match, match_params, "Match",
         "the profile for a machine, and why not the others"),
     .keep = NT_KEEP_VERSION},
    {POST("/v1/profiles/match", READ, WORK, profile_match_facts, "MatchAsk", "Match", 200,
          "the same with all facts of the machine, so that what only one side knows is no "
          "difference")},
    {GET("/v1/profiles/{id}", READ, WORK, profile, NULL, "Profile", "the profile's document"),
     .keep = NT_KEEP_VERSION},
    {GET("/v1/profiles/{id}/export/{format}", READ, WORK, profile_export, export_params, NULL,
         "the profile in a deployment's form"),
     .type = "text/plain; charset=utf-8", .keep = NT_KEEP_VERSION},
    {GET("/v1/profiles/{id}/table", READ, WORK, profile_table, table_params, NULL,
         "the delivery file that the plugins read"),
     .type = "application/octet-stream", .keep = NT_KEEP_VERSION},
    {GET("/v1/profiles/{id}/decide", READ, WORK, profile_decide, decide_params, "Decision",
         "what would run for one call, and why")},
    {GET("/v1/profiles/{id}/checks", READ, LOOP, profile_checks, NULL, "Checks",
         "checks of the profile against the default, and where they changed")},
    {.method = "PATCH",
     .path = "/v1/profiles/{id}",
     .role = NT_ROLE_ADMIN,
     .fn = nt_api_profile_state,
     .body = "ProfileChange",
     .gives = "ProfileRow",
     .status = 200,
     .summary = "retires or withholds a profile, or makes it current again"},

    {GET("/v1/formats", READ, LOOP, formats, NULL, "Formats",
         "the forms that a profile can be handed out in")},
    {GET("/v1/runs", READ, WORK, runs, page_params, "Runs",
         "tuning runs of the database, also those of the command line")},
    {GET("/v1/runs/{id}", READ, WORK, run, NULL, "Run", "one tuning run")},
    {GET("/v1/views", READ, LOOP, views, NULL, "Views", "documented views of the measurements")},
    {GET("/v1/views/{name}", READ, WORK, view, view_params, "Rows", "rows of a view")},
    {POST("/v1/query", READ, LOOP, query, "Query", "QueryRows", 200, "read-only SQL")},
    {POST("/v1/lint", READ, WORK, lint, "Lint", "LintResult", 200,
          "what NCCL really makes of a configuration file")},
    {GET("/v1/doctor", SUBMIT, LOOP, doctor, NULL, "Any",
         "what each live process of this machine really got")},
    {0}};
