/*
 * queue - what runs next, and what must stop: a state machine without clock, processes or store.
 *
 * Ask nt_queue_next() after every tell; do what it says; tell what came of it. Whoever keeps the
 * entries writes a state down before acting on it.
 * Units      *_ms milliseconds of one clock (the caller's); minutes of the local day.
 * Ownership  plain memory inside; nt_queue_done() frees.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "tuner/base/err.h"
#include "tuner/store/service.h"

enum {
    NT_QUEUE_WINDOWS = 8,
    NT_QUEUE_GPUS = 64,
    NT_QUEUE_ATTEMPTS = 3,
    NT_QUEUE_WORDS = 160,
};

struct nt_window { /* minutes of the day; from > to goes over midnight */
    uint16_t from, to;
};
/* "22:00-06:00,12:00-13:00"; "" is none, which is always. */
NT_MUST_CHECK int nt_windows_parse(const char *text, struct nt_window *ret, size_t *ret_n,
                                   struct nt_err *err);
bool nt_windows_open(const struct nt_window *w, size_t n, unsigned minute);

enum nt_stop { NT_STOP_NONE, NT_STOP_CANCEL, NT_STOP_PAUSE, NT_STOP_SHUTDOWN };

struct nt_queue_item {
    int64_t id;
    int priority;
    uint8_t state; /* PROPOSED, QUEUED, RUNNING, CANCELLING while it is here */
    uint64_t gpus; /* bit per GPU; 0: it occupies none, and its lane instead */
    unsigned lane; /* of those without GPUs: one at a time */
    unsigned attempts;
    uint64_t not_before_ms;
    enum nt_stop stop; /* RUNNING: a stop was asked for */
    bool stop_sent;
    char reason[NT_QUEUE_WORDS];
};

struct nt_queue_policy {
    unsigned max_running;
    struct nt_window windows[NT_QUEUE_WINDOWS];
    size_t nwindows;
    uint64_t idle_ms; /* how long GPUs must have been idle */
    bool pause_foreign;
};

struct nt_queue {
    struct nt_queue_policy policy;
    struct nt_queue_item *items; /* by id, ascending */
    size_t n, cap;
    bool stopping; /* nothing starts any more */
    bool held;     /* nothing starts until the caller says otherwise */
    bool load_known;
    uint64_t idle_since_ms[NT_QUEUE_GPUS]; /* UINT64_MAX: busy */
    uint64_t foreign;                      /* GPUs on which others work, of running jobs */
};

enum nt_queue_do { NT_QUEUE_WAIT, NT_QUEUE_START, NT_QUEUE_STOP };
struct nt_queue_step {
    enum nt_queue_do what;
    int64_t id;       /* START, STOP */
    uint64_t wake_ms; /* WAIT: ask again then; UINT64_MAX: after the next tell */
};

/* How a child ended. */
struct nt_queue_end {
    bool spawned;  /* false: it could not be started */
    int signal;    /* that killed it; 0: none */
    int exit_code; /* of nccltune */
};

void nt_queue_init(struct nt_queue *q, const struct nt_queue_policy *policy);
void nt_queue_done(struct nt_queue *q);
/* An entry that is waiting, proposed or (found at the start of the daemon) being cancelled. */
NT_MUST_CHECK int nt_queue_add(struct nt_queue *q, const struct nt_queue_item *item,
                               struct nt_err *err);
struct nt_queue_item *nt_queue_find(struct nt_queue *q, int64_t id); /* NULL: not living */
size_t nt_queue_running(const struct nt_queue *q);

/* busy: GPUs that are in use by anybody; foreign: by others than us. known false: it cannot be
 * told, and nothing waits for it. */
void nt_queue_tell_load(struct nt_queue *q, bool known, uint64_t busy, uint64_t foreign,
                        uint64_t now_ms);
/* The state is then CANCELLED (and the item gone) or CANCELLING. */
enum nt_queue_state nt_queue_cancel(struct nt_queue *q, int64_t id);
void nt_queue_accept(struct nt_queue *q, int64_t id); /* of a proposed one */
void nt_queue_stop_all(struct nt_queue *q);           /* the daemon ends: all running ones stop */
/* The child of START runs (the item is RUNNING since nt_queue_next), and ended. *ret: what became
 * of it, with reason, attempts, not_before_ms; over ones are gone from the queue. */
void nt_queue_tell_ended(struct nt_queue *q, int64_t id, const struct nt_queue_end *end,
                         uint64_t now_ms, struct nt_queue_item *ret);
/* START: the item is RUNNING from here, its attempt counted. STOP: end its child. */
void nt_queue_next(struct nt_queue *q, uint64_t now_ms, unsigned minute, struct nt_queue_step *ret);
