/*
 * gang - the rank processes of one communicator: starts them, is their rendezvous, asks them one
 * question at a time, puts their answers together, and ends them whatever they do.
 *
 * Life       nt_gang_start → on_ready → (nt_gang_measure → on_result | nt_gang_cells → on_cells)* →
 *            nt_gang_stop → on_end. Many gangs may live on one loop.
 * Events     never before nt_gang_start() has returned. Each question has exactly one answer, also
 *            when the gang fails meanwhile (its status then says why), unless the caller stopped or
 *            killed the gang. on_end comes exactly once, last, when no process is left and nothing
 *            is held; the gang is freed after it returns. Inside on_ready, on_result and on_cells
 *            every function below may be called; a question asked inside an answer that reports the
 *            gang's failure is dropped.
 * Ownership  spec and what it points to are borrowed until nt_gang_start() returns; what events
 *            point to, until they return.
 * Errors     nt_gang_start() fails only for a bad spec or without memory; then there are no events.
 * Files      in the caller's folder: the socket and the barrier file (removed), rank-N.log (kept).
 * Signals    the caller's process ignores SIGPIPE from the first gang on (libuv's rule).
 * Threads    the loop's thread.
 */
#pragma once
#include "probes/protocol/protocol.h"
#include "tuner/launch/launch.h"
#include "tuner/launch/remote.h"

struct nt_gang; /* opaque */

enum { NT_GANG_MAX = NT_LAUNCH_MAX };

/* Why a gang ended. */
enum nt_gang_end {
    NT_GANG_DONE,      /* stopped by the caller; all ranks ended by themselves, with exit code 0 */
    NT_GANG_CANCELLED, /* killed by the caller, or stopped before it was ready */
    NT_GANG_NO_START,  /* socket, folder or a process could not be made */
    NT_GANG_TIMEOUT,   /* a deadline passed; also: did not end after quit */
    NT_GANG_CRASHED,   /* a rank ended or closed its stream by itself */
    NT_GANG_BROKE,     /* a rank broke the protocol */
    NT_GANG_SAID,      /* a rank said `error` */
    NT_GANG_STUCK,     /* not even SIGKILL ended a rank: what it held is not free */
    NT_GANG_END_COUNT
};
extern const char *const nt_gang_end_names[];

/* Zero: the default in brackets. */
struct nt_gang_times {
    uint32_t hello_ms; /* start of the processes → all hellos [60000] */
    uint32_t init_ms;  /* each of uid, init → ready [120000] */
    uint32_t cells_ms; /* [30000] */
    uint32_t slack_ms; /* beyond a measure's own deadline [2000] */
    uint32_t quit_ms;  /* quit → ended by itself [10000] */
    uint32_t grace_ms; /* TERM → KILL → given up [3000] */
};

struct nt_gang_spec {
    const struct nt_launcher *launcher; /* NULL: remote where that is given, else local */
    const struct nt_remote *remote;     /* the ranks are on other hosts; NULL: on this one */
    const char *const *files; /* that env names and ranks read: carried to other hosts; or NULL */
    unsigned world;
    const char *program, *const *args; /* as for the launcher */
    const char *const *env;  /* "NAME=VALUE" of every rank, NULL-terminated: all they get but the
                                protocol's three and mps's two */
    const char *dir;         /* existing private folder (0700) of this gang alone */
    const char *mps;         /* folder of a running nt_mps, or NULL */
    struct nt_init init;     /* what all ranks share; uid, shm and device are filled in here */
    const unsigned *devices; /* [world]; NULL: rank N has device N */
    const struct nt_var *rank_vars; /* [world][nrank_vars], after those of init; may be NULL */
    size_t nrank_vars;
    struct nt_gang_times times;
};

/* The ranks' answers to one measure, put together. */
struct nt_gang_result {
    uint64_t id;
    enum nt_status status;       /* the worst of the ranks' */
    const uint32_t *ns;          /* per iteration, the slowest rank; only with NT_ST_OK */
    size_t count;                /* as many as were asked for with NT_ST_OK, else 0 */
    uint32_t base_ns;            /* greatest */
    struct nt_executed executed; /* the same on every rank, or status is disagree */
    uint32_t own_chunk_bytes;    /* the same on every rank, else 0: not known */
    uint8_t bits;                /* enum nt_bits: different where any rank's are */
    uint64_t wrong;              /* sum */
    uint64_t elapsed_ns, connect_ns, memory_bytes; /* greatest */
    int rank;                                      /* whom `error` is about; -1: nobody alone */
    char error[512];                               /* words when status is not ok */
};

struct nt_gang_events {
    /* hello and ready: one a rank. A launcher that knows hosts has put its name in hello. */
    void (*on_ready)(void *data, struct nt_gang *g, const struct nt_hello *hello,
                     const struct nt_ready *ready);
    /* A cell is available when all ranks say so; cost is the greatest. NULL when the gang failed
     * meanwhile. */
    void (*on_cells)(void *data, struct nt_gang *g, const struct nt_cells *cells);
    void (*on_result)(void *data, struct nt_gang *g, const struct nt_gang_result *result);
    void (*on_end)(void *data, struct nt_gang *g, enum nt_gang_end how, const struct nt_err *err);
    void *data;
};

NT_MUST_CHECK int nt_gang_start(uv_loop_t *loop, const struct nt_gang_spec *spec,
                                const struct nt_gang_events *events, struct nt_gang **ret,
                                struct nt_err *err);
/* After on_ready, one question at a time (a bug otherwise). A gang that is ending by itself takes
 * the question and answers with its failure. */
void nt_gang_measure(struct nt_gang *g, const struct nt_measure *m);
void nt_gang_cells(struct nt_gang *g, const struct nt_case *c);
/* quit, then TERM, then KILL, as far as it takes. Only on_end follows. */
void nt_gang_stop(struct nt_gang *g);
/* KILL at once. Only on_end follows. */
void nt_gang_kill(struct nt_gang *g);

/* In on_result (failed), on_cells (NULL) and on_end: the launcher or a host failed, so that what
 * was asked is not to blame. on_end has the words. */
bool nt_gang_is_missing(const struct nt_gang *g);

/* The longest folder that leaves room for a socket's name (sun_path has 108 bytes). */
enum { NT_GANG_DIR_MAX = 90 };
