/* service_i - what the files of the service share. */
#pragma once
#include "tuner/service/uevent.h"
#include "tuner/service/api.h"
#include "tuner/service/cache.h"
#include "tuner/service/child.h"
#include "tuner/service/config.h"
#include "tuner/service/events.h"
#include "tuner/service/service.h"

enum {
    NT_READERS = 2,
    NT_WAITING_MAX = 128, /* requests that wait for a reader */
    NT_READER_IDLE_MS = 10000,
    NT_CHILD_ARGS = 80,
};

struct nt_running { /* a job's child */
    struct nt_running *next;
    struct nt_service *s;
    int64_t id;
    struct nt_child *child; /* NULL: one of a former daemon is being ended */
    struct nt_store_owner former;
    uint8_t kind; /* enum nt_queue_kind */
    char rig[64];
    bool asked; /* the former one was sent SIGTERM */
    uint64_t since_ms;
    char *progress;   /* its last, JSON; NULL: none yet */
    uint64_t told_ms; /* when progress was last made an event */
};

struct nt_service {
    const struct nt_service_options *o;
    const struct nt_config *c;
    uv_loop_t loop;
    char database[PATH_MAX];
    struct nt_store *store; /* writer, on the loop */
    int64_t version;        /* of the database, as last looked at */
    uint64_t version_ms;
    struct nt_err trouble; /* of the last write; code 0: none */
    int lock;              /* descriptor of the database's file; -1: none yet */
    bool gone;             /* it is no longer where its path says */
    struct nt_buf openapi; /* the document, once it was asked for */
    struct nt_http *http;
    struct nt_access access;
    struct nt_cache cache;
    struct nt_events events;
    struct nt_children children;
    struct nt_queue queue;
    struct nt_running *running;
    struct nt_watcher *watcher;
    struct nt_uevents uevents;
    struct {
        struct nt_store *store; /* NULL: not open */
        bool busy;
        uint64_t used_ms;
    } reader[NT_READERS];
    struct nt_exchange *waiting, **waiting_end;
    unsigned nwaiting;
    unsigned asks; /* children that answer requests */
    uv_timer_t queue_timer, slow_timer, lag_timer;
    uv_signal_t signals[3];
    uint64_t started_ms; /* of day */
    uint64_t lag_due_ns, lag_max_ns, lag_until_ms;
    double lag_sum_ms;
    uint64_t lag_n, lag_bucket[8];
    int64_t newest_profile;
    bool newest_known;
    bool stopping, closed, deaf; /* deaf: at a socket whose name was taken away */
    uint64_t wall_offset_ms;     /* time of day − loop time */
};

uint64_t nt_service_day_ms(void);

/* serve.c */
/* What happened: to streams, and, when `keep`, into the database. data is taken over. */
void nt_service_event(struct nt_service *s, const char *kind, int64_t job, json_t *data, bool keep);
/* A write failed or worked: healthz says so. Returns rc. */
int nt_service_wrote(struct nt_service *s, int rc, const struct nt_err *err);
/* database.c. The lock is given up by closing s->lock, after the store was closed.
 * Whether the database is still where its path says: after it was moved or removed, what this
 * process writes is lost to everybody who looks there, its own children first. */
NT_MUST_CHECK int nt_service_lock(struct nt_service *s, struct nt_err *err);
NT_MUST_CHECK int nt_service_database(struct nt_service *s, struct nt_err *err);
/* A profile that came into the database, whoever wrote it, becomes an event, and replaces others.
 */
void nt_service_look_at_profiles(struct nt_service *s);

/* jobs.c: the queue with its store and children. */
NT_MUST_CHECK int nt_jobs_open(struct nt_service *s, struct nt_err *err);
void nt_jobs_run(struct nt_service *s); /* does what the queue says, until it says wait */
void nt_jobs_close(struct nt_service *s);
bool nt_jobs_idle(const struct nt_service *s);
/* An entry of these contents; *ret_id 0: its cause is in the queue already. */
NT_MUST_CHECK int nt_jobs_add(struct nt_service *s, struct nt_store_entry *e, int64_t *ret_id,
                              struct nt_err *err);
NT_MUST_CHECK int nt_jobs_cancel(struct nt_service *s, int64_t id, const char *who,
                                 struct nt_err *err);
/* A failed, cancelled or proposed one into the queue. */
NT_MUST_CHECK int nt_jobs_resume(struct nt_service *s, int64_t id, const char *who,
                                 struct nt_err *err);
NT_MUST_CHECK int nt_jobs_priority(struct nt_service *s, int64_t id, int priority,
                                   struct nt_err *err);
/* What a client may ask for, checked: JSON text of it appended to *out. */
NT_MUST_CHECK int nt_jobs_check_ask(const struct nt_config *c, const json_t *body,
                                    struct nt_buf *out, struct nt_err *err);
/* The words of a job's command line; done with nt_command_done(). run: of a check. */
struct nt_command_words {
    const char *v[NT_CHILD_ARGS]; /* NULL-ended, into text */
    size_t n, at[NT_CHILD_ARGS];
    struct nt_buf text;
};
NT_MUST_CHECK int nt_command_make(struct nt_command_words *c, const struct nt_service *s,
                                  const struct nt_config_rig *r, const struct nt_store_entry *e,
                                  int64_t run, struct nt_err *err);
void nt_command_done(struct nt_command_words *c);
const struct nt_running *nt_jobs_running(const struct nt_service *s, int64_t id);

/* The command line of a check of the rig's profile, or of the one asked for, into *ret_run: the run
 * whose profile it is. NT_E_NO: there is none. */
NT_MUST_CHECK int nt_checks_run_of(struct nt_service *s, const struct nt_store_entry *e,
                                   int64_t *ret_run, struct nt_err *err);
/* What a check said, as an event; false: it said nothing that can be read. */
bool nt_checks_take(struct nt_service *s, int64_t id, const char *rig, const char *out, size_t len);
void nt_checks_due(struct nt_service *s); /* queues those whose time has come */

json_t *nt_profile_row_json(const struct nt_store_profile *p); /* NULL: out of memory */

/* Starts `nccltune ARGS…`, whose stdout, JSON, answers the request. none: the answer where it says
 * that there is nothing (exit code 2); NULL: that is bad input. whole: rows that were cut off are
 * no answer. */
NT_MUST_CHECK int nt_ask_child(struct nt_exchange *x, const char *const *args, const char *input,
                               const char *none, bool whole, struct nt_err *err);

/* watcher.c: what is seen of the machine, and what follows from it. */
NT_MUST_CHECK int nt_watcher_open(struct nt_service *s, struct nt_err *err);
void nt_watcher_look(struct nt_service *s); /* now, or as soon as the one under way is over */
void nt_watcher_queue_changed(struct nt_service *s);
NT_MUST_CHECK int nt_watcher_new_profile(struct nt_service *s, const struct nt_store_profile *fresh,
                                         struct nt_err *err);
bool nt_watcher_busy(const struct nt_service *s);
json_t *nt_watcher_json(const struct nt_service *s); /* NULL: out of memory */
void nt_watcher_close(struct nt_service *s);
