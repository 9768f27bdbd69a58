/*
 * api - the routes: one table says method, path, who may, what it takes, what it gives, and who
 * answers. The OpenAPI document is printed from it, requests are checked by it.
 */
#pragma once
#include <jansson.h>
#include "tuner/service/access.h"
#include "tuner/service/http.h"
#include "tuner/store/service.h"

struct nt_service;
struct nt_exchange;

/* fills x->r->answer, or sets x->later and calls nt_reply_done() in time. An error becomes the
 * answer that its code stands for. */
typedef int (*nt_route_fn)(struct nt_exchange *x, struct nt_err *err);

enum nt_route_how {
    NT_ON_LOOP,  /* short, on the loop, with the writer of the database */
    NT_ON_WORK,  /* on a thread, with a reader of the database; touches x and constants only */
    NT_ON_STREAM /* answers with events as they come */
};

struct nt_param {
    const char *name;         /* NULL ends the list */
    const char *type;         /* "integer", "string", "boolean" */
    int64_t min, max;         /* of an integer; of a string: its length */
    const char *const *words; /* what a string may be; NULL: anything */
    const char *help;
    bool required;
};

enum { NT_PATH_PARAMS = 2, NT_PATH_TEXT = 96 };
struct nt_route {
    const char *method, *path; /* "/v1/jobs/{id}": {id} is a number from 1, others are names */
    enum nt_role role;
    enum nt_route_how how;
    nt_route_fn fn;
    const char *summary;
    const struct nt_param *params; /* of the query; NULL: none */
    const char *body;              /* schema of the JSON body; NULL: takes none */
    const char *gives;             /* schema of a JSON answer; NULL: not JSON */
    const char *type;              /* of an answer that is not JSON */
    unsigned status;               /* when all went well */
    unsigned also;                 /* another status with such an answer; 0: none */
    int keep;                      /* 1: the same until the database changes; 2: for ever */
};
extern const struct nt_route nt_routes[]; /* a NULL path ends */

enum nt_keep { NT_KEEP_NOT, NT_KEEP_VERSION, NT_KEEP_EVER };

struct nt_exchange {
    struct nt_service *s;
    struct nt_http_req *r;
    const struct nt_route *route;
    char param[NT_PATH_PARAMS][NT_PATH_TEXT]; /* of the path, in order */
    int64_t id;                               /* {id} */
    enum nt_role role;
    char who[64];
    struct nt_store *store;
    bool later;
    struct nt_exchange *next; /* waiting for a reader */
    int64_t version;          /* of the database when it was asked */
    uv_work_t work;
    int rc;
    struct nt_err err;
    int64_t only_job; /* of a stream; 0: all */
};

/* The route of a path; *ret_allow lists methods when the path is known and the method is not. Pure:
 * fills route, param and id of *x. */
const struct nt_route *nt_route_find(const char *method, const char *path, struct nt_exchange *x,
                                     const char **ret_allow);
/* The query's parameters by the route's list. */
NT_MUST_CHECK int nt_route_check(const struct nt_route *route, const struct nt_http_req *r,
                                 struct nt_err *err);

/* Takes the value over; NULL is out of memory. */
NT_MUST_CHECK int nt_reply_json(struct nt_exchange *x, json_t *value, struct nt_err *err);
int64_t nt_reply_number(const struct nt_exchange *x, const char *name, int64_t otherwise);
void nt_reply_fail(struct nt_http_answer *a, int rc, const struct nt_err *err);
void nt_reply_done(struct nt_exchange *x, int rc, const struct nt_err *err);
/* The body, an object with these members only. The caller frees *ret. */
NT_MUST_CHECK int nt_reply_body(const struct nt_exchange *x, const char *const *known, json_t **ret,
                                struct nt_err *err);

/* Handlers. */
#define NT_HANDLER(name) int nt_api_##name(struct nt_exchange *x, struct nt_err *err)
NT_HANDLER(healthz);
NT_HANDLER(metrics);
NT_HANDLER(openapi);
NT_HANDLER(server);
NT_HANDLER(jobs);
NT_HANDLER(job);
NT_HANDLER(job_add);
NT_HANDLER(job_change);
NT_HANDLER(job_cancel);
NT_HANDLER(job_resume);
NT_HANDLER(events);
NT_HANDLER(log);
NT_HANDLER(topologies);
NT_HANDLER(topology);
NT_HANDLER(machine);
NT_HANDLER(machine_look);
NT_HANDLER(profiles);
NT_HANDLER(profile);
NT_HANDLER(profile_match);
NT_HANDLER(profile_match_facts);
NT_HANDLER(profile_export);
NT_HANDLER(profile_table);
NT_HANDLER(profile_decide);
NT_HANDLER(profile_state);
NT_HANDLER(profile_checks);
NT_HANDLER(formats);
NT_HANDLER(runs);
NT_HANDLER(run);
NT_HANDLER(views);
NT_HANDLER(view);
NT_HANDLER(query);
NT_HANDLER(lint);
NT_HANDLER(doctor);
#undef NT_HANDLER
