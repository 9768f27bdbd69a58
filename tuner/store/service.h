/*
 * service - what the daemon keeps in the database: its queue, what it saw last, and which profiles
 * no longer hold. As store.h: units, ownership, errors, one committed transaction a call.
 */
#pragma once
#include <signal.h>
#include "tuner/store/store.h"

enum nt_queue_kind { NT_QUEUE_TUNE, NT_QUEUE_CHECK, NT_QUEUE_KIND_COUNT };
extern const char *const nt_queue_kind_names[]; /* "tune", "check", NULL */

/* proposed waits for a person, queued for its turn. cancelling and running have, or had, a child.
 */
#define NT_QUEUE_STATES(X)                                                                         \
    X(PROPOSED, "proposed")                                                                        \
    X(QUEUED, "queued")                                                                            \
    X(RUNNING, "running")                                                                          \
    X(CANCELLING, "cancelling")                                                                    \
    X(DONE, "done")                                                                                \
    X(FAILED, "failed")                                                                            \
    X(CANCELLED, "cancelled")
enum nt_queue_state {
#define X(name, word) NT_Q_##name,
    NT_QUEUE_STATES(X)
#undef X
        NT_QUEUE_STATE_COUNT
};
extern const char *const nt_queue_state_names[]; /* NULL-terminated */

struct nt_store_owner { /* a process: its pid, its start in ticks, the boot of the machine */
    int64_t pid, start;
    char boot[40];
};

struct nt_store_entry {
    int64_t id;
    char key[33]; /* of the tuning run; given by the store */
    uint8_t kind, state;
    char rig[64];       /* name in the configuration */
    const char *ask;    /* JSON of what a client named */
    int priority;       /* higher first */
    const char *reason; /* why it is in this state, in words; "" */
    const char *cause;  /* "": a person asked; else what it is for, unique among the living */
    const char *by;     /* who asked */
    unsigned attempts;
    uint64_t not_before_ms, created_ms, started_ms, finished_ms; /* 0: not yet */
    struct nt_store_owner owner;                                 /* pid 0: none */
    int64_t job, profile; /* of the run, filled when read; 0: none yet */
};

/* rig … by, state and not_before_ms of *e are read. A second living entry of one cause adds
 * nothing: *ret_id is 0. */
NT_MUST_CHECK int nt_store_queue_add(struct nt_store *s, const struct nt_store_entry *e,
                                     int64_t *ret_id, struct nt_err *err);
/* Writes state, reason, priority, attempts, not_before_ms, started_ms, finished_ms and owner. */
NT_MUST_CHECK int nt_store_queue_save(struct nt_store *s, const struct nt_store_entry *e,
                                      struct nt_err *err);
typedef int (*nt_store_entry_cb)(void *data, const struct nt_store_entry *e, struct nt_err *err);
/* The newest first, at most `limit`, below the id `before` (0: from the newest), in one state (-1:
 * any). */
NT_MUST_CHECK int nt_store_queue_list(struct nt_store *s, int state, int64_t before, unsigned limit,
                                      nt_store_entry_cb on_entry, void *data, struct nt_err *err);
/* Those that are not over, oldest first. */
NT_MUST_CHECK int nt_store_queue_living(struct nt_store *s, nt_store_entry_cb on_entry, void *data,
                                        struct nt_err *err);
/* NT_E_MISSING: no such entry. */
NT_MUST_CHECK int nt_store_queue_load(struct nt_store *s, int64_t id, nt_store_entry_cb on_entry,
                                      void *data, struct nt_err *err);

/* The newest current profile that an entry of this rig made; *ret_job 0: none. */
NT_MUST_CHECK int nt_store_rig_profile(struct nt_store *s, const char *rig, int64_t *ret_profile,
                                       int64_t *ret_job, struct nt_err *err);
/* When an entry of this kind and rig was last added; 0: never. */
NT_MUST_CHECK int nt_store_queue_last(struct nt_store *s, enum nt_queue_kind kind, const char *rig,
                                      uint64_t *ret_ms, struct nt_err *err);

/* The process of this pid as it is now; false when there is none. */
bool nt_store_owner_of(int64_t pid, struct nt_store_owner *ret);
bool nt_store_owner_alive(const struct nt_store_owner *o);
/* Who drives the run of this key; *ret_job 0: there is no such run yet. */
NT_MUST_CHECK int nt_store_job_of_key(struct nt_store *s, const char *key, int64_t *ret_job,
                                      struct nt_store_owner *ret_owner, struct nt_err *err);

/* What was seen last under a name; *ret_found false: nothing. The text is appended. */
NT_MUST_CHECK int nt_store_snapshot_get(struct nt_store *s, const char *name, struct nt_buf *json,
                                        uint64_t *ret_at_ms, bool *ret_found, struct nt_err *err);
NT_MUST_CHECK int nt_store_snapshot_put(struct nt_store *s, const char *name, const char *json,
                                        struct nt_err *err);

enum nt_profile_state { NT_PS_CURRENT, NT_PS_STALE, NT_PS_WITHHELD, NT_PS_RETIRED, NT_PS_COUNT };
extern const char *const nt_profile_state_names[]; /* "current", "stale", … NULL */
struct nt_store_profile {
    int64_t id, job;
    uint64_t created_ms;
    uint8_t state;
    const char *why;  /* words about the state */
    const char *json; /* the document; NULL in lists */
    const char *hash; /* of the document */
    const char *rig, *identity, *mask, *gpu, *nccl, *driver, *site, *placement;
    uint32_t ranks, nodes;
};
typedef int (*nt_store_profile_cb)(void *data, const struct nt_store_profile *p,
                                   struct nt_err *err);
/* The newest first; ids below `before` unless that is 0. */
NT_MUST_CHECK int nt_store_profile_list(struct nt_store *s, int64_t before, unsigned limit,
                                        nt_store_profile_cb on_profile, void *data,
                                        struct nt_err *err);
/* With its document. NT_E_MISSING: no such profile. */
NT_MUST_CHECK int nt_store_profile_load(struct nt_store *s, int64_t id,
                                        nt_store_profile_cb on_profile, void *data,
                                        struct nt_err *err);
NT_MUST_CHECK int nt_store_profile_set_state(struct nt_store *s, int64_t id,
                                             enum nt_profile_state state, const char *why,
                                             struct nt_err *err);

/* Constant questions of the service, by name; parameters ?1 … as said there. */
enum nt_store_list {
    NT_LIST_TOPOLOGIES, /* all, newest first */
    NT_LIST_TOPOLOGY,   /* ?1 id: with its JSON, XML and findings */
    NT_LIST_EVENTS,     /* ?1 newest id not included (0: all), ?2 limit */
    NT_LIST_COUNTS,     /* one row: how many of everything */
    NT_LIST_COUNT
};
const char *nt_store_list_sql(enum nt_store_list which);

/* Changes whenever profiles or their states did, whoever wrote them. */
NT_MUST_CHECK int nt_store_version(struct nt_store *s, int64_t *ret, struct nt_err *err);
/* A consistent copy while others write, there as a whole or not at all. `path` must not exist.
 * *stop (may be NULL) becomes not 0, from a signal too: NT_E_INTERRUPTED, and nothing is left. */
NT_MUST_CHECK int nt_store_backup(struct nt_store *s, const char *path,
                                  const volatile sig_atomic_t *stop, struct nt_err *err);
/* Raw samples of jobs that ended before `before_ms` are dropped, their summaries and all evidence
 * kept; at most `limit` trials in one call. *ret_n: how many lost their samples. */
NT_MUST_CHECK int nt_store_thin(struct nt_store *s, uint64_t before_ms, unsigned limit,
                                uint64_t *ret_n, struct nt_err *err);
