/*
 * store - every measurement and what was concluded from it, in one SQLite database.
 *
 * Units      *_ns nanoseconds, *_ms milliseconds (times of day: since 1970, UTC), *_bytes bytes.
 *            Numbers that do not fit in 63 bits are refused (NT_E_INVAL).
 * Ownership  nt_store_open() gives *ret to the caller, who passes it to nt_store_close(). Strings
 *            and arrays passed in are borrowed until the call returns; those handed out by a
 *            callback or a cursor are valid until it returns or moves on. A NULL string is stored
 *            as "".
 * Errors     0 or -enum nt_code. NT_E_STORE: the database cannot be used (locked, damaged, full,
 *            foreign, newer, not writable), NT_E_MISSING: there is none yet, NT_E_INVAL: the call's
 *            own input, NT_E_NO: refused for a reason that the words give. err->sys is SQLite's
 *            extended code, negated. Words name the file and what to do.
 * Writing    each nt_store_add_*() and _save() is a committed transaction of its own, unless it
 * runs between nt_store_begin() and nt_store_end(). A killed program loses nothing that was
 *            committed; a power cut may cost what came after nt_store_checkpoint_stage().
 * Threads    one at a time. A write waits at most NT_STORE_BUSY_MS for another program's.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "schema/vocab.h"
#include "tuner/base/buf.h"

enum { NT_STORE_BUSY_MS = 5000 };

struct nt_store; /* opaque */

/* --- opening -----------------------------------------------------------------------------------
 */

enum nt_store_mode {
    NT_STORE_READ, /* an existing database of anybody, never changed; no file is made beside it when
                      its folder is not writable */
    NT_STORE_WRITE, /* made, or brought to this version, when needed */
    NT_STORE_LOOK,  /* for nt_store_try(): read, of any version that could be brought to this one */
};

/* A database of a newer nccltune, of another program, a damaged file, a folder: NT_E_STORE. */
NT_MUST_CHECK int nt_store_open(const char *path, enum nt_store_mode mode, struct nt_store **ret,
                                struct nt_err *err);
/* Whether NT_STORE_WRITE could open it, told without making or changing it: a database that is to
 * be made is tried as a file in its folder. */
NT_MUST_CHECK int nt_store_try(const char *path, struct nt_err *err);
void nt_store_close(struct nt_store *s); /* NULL is fine; rolls back an open transaction */

/* Where the database is: `given` (--db, may be NULL), else NCCLTUNE_DB, else
 * ${XDG_STATE_HOME:-~/.local/state}/nccltune/nccltune.db. With make_folders the folders of that
 * last form are made, mode 0700. */
NT_MUST_CHECK int nt_store_default_path(const char *given, bool make_folders, char *out,
                                        size_t size, struct nt_err *err);

/* One transaction around many calls. end commits if rc is 0 and undoes everything otherwise;
 * returns rc, or the error of the commit. Not nested. */
NT_MUST_CHECK int nt_store_begin(struct nt_store *s, struct nt_err *err);
NT_MUST_CHECK int nt_store_end(struct nt_store *s, int rc, struct nt_err *err);

/* --- what is measured: each row is kept once, the same content gives the same id ----------------
 */

struct nt_store_topology {
    const char *identity; /* 12 hex digits; "" when not known */
    const char *mask;     /* the groups of facts that the identity covers */
    const char *json;     /* the model as nccltune writes it, or "" */
    const char *xml;      /* NCCL's dump, or "" */
    const char *health;   /* findings as JSON, or "" (not checked) */
};
struct nt_store_host {
    const char *name;
    const char *facts; /* JSON: system, kernel, processors, conf files found … or "" */
};
struct nt_store_stack { /* the key of its own beside the topology */
    const char *nccl, *nccl_sha256, *cuda, *driver, *framework;
    const char *gpu;  /* name of the GPU model */
    const char *site; /* site constraints and fixed variables, sorted "NAME=VALUE" lines, or "" */
};
struct nt_store_setting {
    const char *vars; /* process-scope variables, sorted, as the caller writes them; "" as is */
    struct nt_call call;
};

NT_MUST_CHECK int nt_store_put_topology(struct nt_store *s, const struct nt_store_topology *t,
                                        int64_t *ret_id, struct nt_err *err);
NT_MUST_CHECK int nt_store_put_host(struct nt_store *s, const struct nt_store_host *h,
                                    int64_t *ret_id, struct nt_err *err);
NT_MUST_CHECK int nt_store_put_stack(struct nt_store *s, const struct nt_store_stack *k,
                                     int64_t *ret_id, struct nt_err *err);
NT_MUST_CHECK int nt_store_put_setting(struct nt_store *s, const struct nt_store_setting *x,
                                       int64_t *ret_id, struct nt_err *err);
/* vars of the setting appended to *vars (may be NULL). An unknown id: NT_E_INVAL. */
NT_MUST_CHECK int nt_store_get_setting(struct nt_store *s, int64_t id, struct nt_buf *vars,
                                       struct nt_call *ret_call, struct nt_err *err);

/* --- jobs --------------------------------------------------------------------------------------
 */

enum nt_job_state {
    NT_JOB_NEW,
    NT_JOB_RUNNING,
    NT_JOB_INTERRUPTED, /* can be resumed */
    NT_JOB_DONE,
    NT_JOB_FAILED, /* cannot */
    NT_JOB_STATE_COUNT
};
extern const char *const nt_job_state_names[]; /* "new", "running", … NULL */

struct nt_store_job {
    int64_t id;       /* given by the store */
    const char *key;  /* 32 hex digits, the same in every database the job is merged into; NULL when
                         one is made: the store gives it */
    const char *spec; /* JSON, all that is needed to run the job again */
    uint64_t seed;
    uint8_t rig; /* enum nt_rig */
    uint32_t ranks, nodes;
    const char *placement;            /* placement class, or "" */
    int64_t topology, host, stack;    /* ids; 0: not known yet */
    uint8_t state;                    /* enum nt_job_state; given by the store */
    const char *stage;                /* short word of the job's own; "" at first */
    uint64_t created_ms, finished_ms; /* given by the store; 0: not yet */
    uint64_t device_ns;               /* time in which gangs held the GPUs so far */
    uint64_t steps, trials;           /* counts, filled when read */
    bool owned;                       /* a living process runs it, filled when read */
};

/* Reads key and spec … stack of *j; the rest is given by the store. The job is claimed for this
 * process. */
NT_MUST_CHECK int nt_store_job_create(struct nt_store *s, const struct nt_store_job *j,
                                      int64_t *ret_id, struct nt_err *err);
/* Makes this process the only driver of the job and sets it running. A living other one: NT_E_NO,
 * names the process. No such job: NT_E_INVAL, names those there are. Given up by _release, by
 * process end, and by a reboot. */
NT_MUST_CHECK int nt_store_job_claim(struct nt_store *s, int64_t job, struct nt_err *err);
NT_MUST_CHECK int nt_store_job_release(struct nt_store *s, int64_t job, struct nt_err *err);
/* finished_ms is set with done and failed, and cleared with others. */
NT_MUST_CHECK int nt_store_job_set_state(struct nt_store *s, int64_t job, enum nt_job_state state,
                                         struct nt_err *err);
/* What preflight learned. 0 and NULL keep what is there. */
NT_MUST_CHECK int nt_store_job_set_place(struct nt_store *s, int64_t job, int64_t topology,
                                         int64_t host, int64_t stack, const char *placement,
                                         struct nt_err *err);
/* Enters a stage; everything committed up to here survives a power cut (fsync: some ms). */
NT_MUST_CHECK int nt_store_checkpoint_stage(struct nt_store *s, int64_t job, const char *stage,
                                            uint64_t device_ns, struct nt_err *err);

/* Not 0 stops the walk and is returned. */
typedef int (*nt_store_job_cb)(void *data, const struct nt_store_job *j, struct nt_err *err);
/* All jobs, newest first; or one (NT_E_INVAL if there is none of that id). */
NT_MUST_CHECK int nt_store_job_list(struct nt_store *s, nt_store_job_cb on_job, void *data,
                                    struct nt_err *err);
NT_MUST_CHECK int nt_store_job_load(struct nt_store *s, int64_t job, nt_store_job_cb on_job,
                                    void *data, struct nt_err *err);

/* --- steps: a job is resumed by replaying their outcomes in order of seq ------------------------
 */

/* seq is the number of the step in its job, from 1, unique over all kinds. */
struct nt_store_gang {
    uint64_t seq;
    uint64_t number;   /* of the gang in its job, unique there */
    const char *arm;   /* what it stands for: "search", "default", "as-found", "tuned" … */
    int64_t setting;   /* its process variables */
    uint64_t start_ns; /* launch to hello of the last rank */
    uint64_t init_ns;  /* communicator creation */
    uint8_t status;    /* enum nt_status: ok, or why it did not come up */
    uint64_t memory_bytes;
    const char *error;
};
struct nt_store_cells {
    uint64_t seq, gang; /* number of the gang */
    struct nt_case cs;
    float cost[NT_ALGO_COUNT][NT_PROTO_COUNT]; /* µs by NCCL's estimate; negative: unavailable */
    bool asked;                                /* false: NCCL consulted no tuner for this call */
    uint8_t status;
    const char *error;
};
struct nt_store_trial {
    uint64_t seq, gang; /* number of the gang */
    struct nt_case cs;
    int64_t setting;
    struct nt_executed executed;
    uint32_t own_chunk_bytes; /* NCCL's own, as it was shown; 0: it was not */
    uint8_t status;           /* enum nt_status */
    const uint32_t *ns;       /* per iteration, slowest rank; the store makes the summary from it */
    size_t count;
    uint64_t base_ns, elapsed_ns, connect_ns, memory_bytes, wrong;
    uint8_t bits;   /* enum nt_bits */
    uint32_t flags; /* of the measure (protocol.h) and the job's own above bit 16 */
    const char *error;
};

enum nt_store_kind { NT_STEP_GANG = 1, NT_STEP_CELLS, NT_STEP_TRIAL };
struct nt_store_step {
    enum nt_store_kind kind;
    union {
        struct nt_store_gang gang;
        struct nt_store_cells cells;
        struct nt_store_trial trial;
    };
};

NT_MUST_CHECK int nt_store_add_gang(struct nt_store *s, int64_t job, const struct nt_store_gang *g,
                                    struct nt_err *err);
NT_MUST_CHECK int nt_store_add_cells(struct nt_store *s, int64_t job,
                                     const struct nt_store_cells *c, struct nt_err *err);
NT_MUST_CHECK int nt_store_add_trial(struct nt_store *s, int64_t job,
                                     const struct nt_store_trial *t, struct nt_err *err);

/* A cursor over the steps of one job in order of seq, from first_seq on. Sees what was committed
 * when it was opened. Close it before the store, and before a long job goes on: while it is open
 * the write-ahead log cannot be shortened. */
struct nt_store_cursor; /* opaque */
NT_MUST_CHECK int nt_store_steps_open(struct nt_store *s, int64_t job, uint64_t first_seq,
                                      struct nt_store_cursor **ret, struct nt_err *err);
/* *ret is NULL after the last step. */
NT_MUST_CHECK int nt_store_steps_next(struct nt_store_cursor *c, const struct nt_store_step **ret,
                                      struct nt_err *err);
void nt_store_steps_close(struct nt_store_cursor *c);

/* --- conclusions --------------------------------------------------------------------------------
 */

enum nt_store_verdict_kind {
    NT_STORE_WINNER,
    NT_STORE_TIE,
    NT_STORE_NO_WINNER, /* cannot be told: noise */
    NT_STORE_REJECTED,
    NT_STORE_NOT_CHECKED,
    NT_STORE_VERDICT_COUNT
};
extern const char *const nt_store_verdict_names[]; /* "winner", "tie", "no winner", … NULL */

/* What was found for one setting in one case at one stage. Saved again, it replaces the former. */
struct nt_store_verdict {
    const char *stage;   /* "gate", "race", "refine", "confirm" */
    const char *product; /* "table", "static", or "" */
    struct nt_case cs;
    int64_t setting;
    uint8_t kind;   /* enum nt_store_verdict_kind */
    double speedup; /* default time / this setting's: 1.1 is 10 % faster; NAN: not measured */
    double lo, hi;  /* its 95 % interval; NAN: none */
    double p;       /* adjusted; NAN: none */
    double default_ns, tuned_ns; /* NAN: none */
    uint32_t pairs;
    const char *reason; /* words for people */
};
NT_MUST_CHECK int nt_store_save_verdict(struct nt_store *s, int64_t job,
                                        const struct nt_store_verdict *v, struct nt_err *err);
typedef int (*nt_store_verdict_cb)(void *data, const struct nt_store_verdict *v,
                                   struct nt_err *err);
NT_MUST_CHECK int nt_store_verdicts(struct nt_store *s, int64_t job, nt_store_verdict_cb on_verdict,
                                    void *data, struct nt_err *err);

/* One size class of a profile with its evidence; also those where the default stays. */
struct nt_store_profile_row {
    const char *product;           /* "table", "static" */
    uint64_t min_bytes, max_bytes; /* inclusive */
    struct nt_case cs;             /* the check point inside, at which the figures were taken */
    int64_t setting;               /* the default's where the default stays */
    uint8_t kind;                  /* enum nt_store_verdict_kind */
    double default_ns, as_found_ns, tuned_ns, speedup, lo, hi, p; /* as in a verdict */
    uint32_t pairs;
};
/* The document and its rows at once; the same document of the same job again changes nothing and
 * gives the same id. */
NT_MUST_CHECK int nt_store_save_profile(struct nt_store *s, int64_t job, const char *json,
                                        const struct nt_store_profile_row *rows, size_t n,
                                        int64_t *ret_id, struct nt_err *err);
/* The job's newest document, appended to *json. None: NT_E_MISSING. */
NT_MUST_CHECK int nt_store_load_profile(struct nt_store *s, int64_t job, struct nt_buf *json,
                                        struct nt_err *err);

/* Something that happened, for people and for `report`. job 0: none. text: words or JSON. */
NT_MUST_CHECK int nt_store_add_event(struct nt_store *s, int64_t job, const char *kind,
                                     const char *text, struct nt_err *err);

/* --- profiles checked again
 * -----------------------------------------------------------------------
 */

struct nt_store_check_row {
    struct nt_case cs;
    int64_t setting;
    uint64_t min_bytes, max_bytes;   /* of the profile's row; both 0: variables alone */
    double was_ratio, ratio, lo, hi; /* default over tuned: above 1 tuned is faster; NAN: none */
    double default_ns, tuned_ns;
    const char *default_move, *tuned_move, *verdict, *why; /* words */
};
struct nt_store_check {
    const char *profile; /* SHA-256 of the delivery file: 64 hex digits */
    const char *product; /* "table", "static" */
    uint8_t rig;         /* enum nt_rig */
    uint32_t ranks, nodes, pairs;
    int64_t topology, host, stack; /* ids; 0: not known */
    const char *verdict, *differs;
    uint64_t copy_bytes;
    double copy_ns, launch_ns; /* NAN: not measured */
};
/* All rows or nothing. */
NT_MUST_CHECK int nt_store_add_check(struct nt_store *s, const struct nt_store_check *c,
                                     const struct nt_store_check_row *rows, size_t n,
                                     int64_t *ret_id, struct nt_err *err);

/* --- other people's measurements
 * ------------------------------------------------------------------ */

struct nt_store_import {
    const char *source;     /* name of the file, for people */
    const char *sha256;     /* of its content: 64 hex digits */
    const char *kind;       /* "nccl-tests", "table" … */
    const char *provenance; /* JSON: versions, launch shape, GPUs … */
    const char *setup; /* what must be equal for figures of two files to be compared (launch shape,
                          versions, machine), as text; "": only within this file */
};
struct nt_store_measurement {
    const char *collective, *dtype, *place, *mode, *backend, *setting; /* "" where unknown */
    uint64_t bytes;
    uint32_t ranks;   /* 0: unknown */
    uint32_t repeat;  /* 0 the first time that this point stands in the file */
    uint32_t samples; /* that stand behind ns and sd_ns; 0: unknown */
    double ns, sd_ns, algbw_gbps, busbw_gbps; /* 10^9 bytes/s; NAN: not given */
    int64_t wrong;                            /* elements; -1: not checked or N/A */
};
/* All or nothing, in one transaction. A file of the same content and kind is not imported twice:
 * *ret_known is set and nothing added. */
NT_MUST_CHECK int nt_store_add_import(struct nt_store *s, const struct nt_store_import *im,
                                      const struct nt_store_measurement *rows, size_t n,
                                      int64_t *ret_id, bool *ret_known, struct nt_err *err);

/* --- questions
 * ------------------------------------------------------------------------------------ */

enum nt_value_type { NT_VALUE_NULL, NT_VALUE_INT, NT_VALUE_REAL, NT_VALUE_TEXT, NT_VALUE_BLOB };
struct nt_value {
    enum nt_value_type type;
    int64_t i;
    double r;
    const char *text; /* text (NUL-terminated) or blob */
    size_t len;
};
struct nt_query_limits {  /* 0: no limit */
    uint64_t time_ns;     /* reaching it is an error: NT_E_NO */
    uint64_t rows, bytes; /* reaching one ends the answer, and *ret_cut says so */
};
/* Called once with values NULL to announce the columns, then for every row. Not 0 ends the query
 * and is returned. */
typedef int (*nt_store_row_cb)(void *data, unsigned ncols, const char *const *names,
                               const struct nt_value *values, struct nt_err *err);
/* One SELECT that cannot change anything, whoever wrote it and whoever made the database: no
 * writing, PRAGMA, ATTACH, no function off a list, and only the statement's own memory and time.
 * Refused or wrong SQL: NT_E_INVAL. args are bound to ?1, ?2 …; ret_cut may be NULL. */
NT_MUST_CHECK int nt_store_query(struct nt_store *s, const char *sql, const struct nt_value *args,
                                 size_t nargs, const struct nt_query_limits *limits,
                                 nt_store_row_cb on_row, void *data, bool *ret_cut,
                                 struct nt_err *err);

struct nt_store_view {
    const char *name, *sql, *help; /* sql: the whole of it; help: one line */
};
extern const struct nt_store_view nt_store_views[]; /* ended by a NULL name */
/* The constant query of a documented view; an unknown name: NT_E_INVAL, names the nearest. */
NT_MUST_CHECK int nt_store_view_sql(const char *name, const char **ret_sql, struct nt_err *err);

/* --- two databases into one
 * ----------------------------------------------------------------------- */

struct nt_store_merged {
    uint64_t jobs, trials, measurements, profiles; /* that were new here */
    uint64_t conflicts; /* jobs that went different ways in the two: left as they are here */
    uint64_t driven;    /* further there, but a living process drives them here: left to it */
};
/* Adds to s what src holds and s does not; again, it adds nothing. src is only read. One
 * transaction. */
NT_MUST_CHECK int nt_store_merge(struct nt_store *s, const char *src_path,
                                 struct nt_store_merged *ret, struct nt_err *err);
