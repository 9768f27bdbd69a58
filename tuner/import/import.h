/*
 * import - other people's measurements: logs of nccl-tests, rccl-tests and mscclpp-test in every
 * text layout, their JSON and CSV, and what is wrong with them.
 *
 * Units      times in microseconds as printed, bandwidths in GB/s (10^9), sizes in bytes of the
 *            `size` column.
 * Ownership  nt_imp_read() gives *ret to the caller, who passes it to nt_imp_free(). Text passed in
 *            is borrowed until the call returns. Nothing in the text is executed or followed.
 * Errors     0 or -enum nt_code. A log without a single result is no error: its notes say so.
 * Privacy    of the environment that JSON results carry only NCCL_* and RCCL_* names are kept.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "tuner/base/json.h"

enum {
    NT_IMP_MAX_BYTES = 64 << 20, /* of one file */
    NT_IMP_MAX_RUNS = 1024,
    NT_IMP_MAX_ROWS = 200000,
    NT_IMP_MAX_RANKS = 65536,
    NT_IMP_MAX_NOTES = 2000,
    NT_IMP_MAX_ENV = 256,
};

/* What can be said about an input: id, level, when. Words come with each note. */
#define NT_IMP_NOTES(X)                                                                            \
    X(WRONG_DATA, "wrong-data", ERROR)         /* #wrong above zero, or the summary says FAILED */ \
    X(RUN_FAILED, "run-failed", ERROR)         /* the program reported a failure or crashed */     \
    X(DUPLICATE_RANK, "duplicate-rank", ERROR) /* several programs wrote into one log */           \
    X(NO_RESULTS, "no-results", ERROR)         /* nothing to import */                             \
    X(GARBLED, "garbled-row", ERROR)           /* size, time and bandwidth do not fit together */  \
    X(IMPLAUSIBLE, "implausible", ERROR)       /* faster than one kernel launch */                 \
    X(NOT_COMPARED, "not-compared", WARN)      /* differ in what makes results comparable */       \
    X(DRIFT, "drift", WARN)                    /* later rounds are slower than the first */        \
    X(CUT_OFF, "cut-off", WARN)                /* ends before its largest size or its summary */   \
    X(CUT_ROW, "cut-row", WARN)                /* a row lacks columns */                           \
    X(SHARED_GPU, "shared-gpu", WARN)          /* several ranks on one device */                   \
    X(NOT_CHECKED, "not-checked", WARN)        /* the data of some or all rows was not verified */ \
    X(FORMAT, "unknown-format", WARN)          /* newer format version than known */               \
    X(SUMMARY_ONLY, "summary-only", WARN)      /* an average without the rows behind it */         \
    X(BAD_CELL, "bad-cell", WARN)              /* a table cell that is no number */                \
    X(SPLIT_ROW, "split-row", INFO)            /* a row was put together around log lines */       \
    X(ROUNDING_ERROR, "rounding-error", INFO)  /* old column: size of rounding, not a count */     \
    X(NO_HEADER, "no-header", INFO)            /* columns taken from the rows themselves */        \
    X(INFERRED, "inferred", INFO)              /* taken from the numbers, not from words */        \
    X(GRAPH, "graph-mode", INFO)               /* timed inside CUDA graphs */                      \
    X(SHAPE, "launch-shape", INFO)             /* several GPUs in one process */                   \
    X(PRIVACY, "not-kept", INFO)               /* variables that were left out */                  \
    X(CYCLES, "repeats", INFO)                 /* sizes that stand more than once */               \
    X(DUPLICATE_ENTRY, "duplicate-entry", WARN) /* a table lists one cell more than once */

enum nt_imp_note_id {
#define X(name, id, level) NT_IMP_##name,
    NT_IMP_NOTES(X)
#undef X
};
enum nt_imp_level { NT_IMP_INFO, NT_IMP_WARN, NT_IMP_ERROR };

struct nt_imp_note {
    enum nt_imp_note_id id;
    uint32_t line; /* 0: the whole file */
    char *text;
};
const char *nt_imp_note_name(enum nt_imp_note_id id);
enum nt_imp_level nt_imp_note_level(enum nt_imp_note_id id);
extern const char *const nt_imp_level_names[]; /* "info", "warning", "error" */

struct nt_imp_notes {
    struct nt_imp_note *v;
    size_t n;
    bool full; /* more were dropped */
};
void nt_imp_note(struct nt_imp_notes *notes, enum nt_imp_note_id id, uint32_t line, const char *fmt,
                 ...) NT_PRINTF(4, 5);
void nt_imp_notes_done(struct nt_imp_notes *notes);
json_t *nt_imp_notes_json(const struct nt_imp_notes *notes);
void nt_imp_notes_text(const struct nt_imp_notes *notes, const char *name, struct nt_buf *out);

/* One placement (out of place, in place) of one row. */
struct nt_imp_cell {
    bool have;   /* there is a time */
    bool usable; /* it may be compared: data not wrong, plausible, consistent */
    double time_us, algbw, busbw;
    int64_t wrong;                         /* elements; -1: not checked */
    double error;                          /* old column, largest rounding error; NAN: none */
    double min_us, max_us, p99_us, cv_pct; /* per-iteration columns; NAN: none */
    double *samples_us;                    /* JSON per-iteration times; owned, NULL: none */
    uint32_t nsamples;
};

struct nt_imp_row {
    uint64_t bytes, count;
    char dtype[16], op[16];
    int32_t root;                /* -1: none or all */
    uint32_t line, cycle;        /* cycle: 0 for the first row of that size in the run, 1 … */
    struct nt_imp_cell place[2]; /* enum nt_place */
};

struct nt_imp_rank {
    uint32_t rank, pid;
    int32_t device;
    char host[64], bus[24], gpu[64];
};

struct nt_imp_run {
    char tool[16]; /* "nccl-tests", "rccl-tests", "" */
    char tool_version[48];
    char collective[24]; /* "all_reduce", … ; "": not said */
    bool collective_inferred;
    char library[8];          /* "NCCL", "RCCL", "" */
    uint32_t library_version; /* 23102 for 2.31.2; 0: not said */
    char library_text[64];    /* as printed */
    uint32_t headers;         /* how often the parameter line was seen */
    uint32_t threads, gpus;   /* per process, per thread; 0: not said */
    uint32_t warmup, iters, agg, graph, blocking;
    bool cpu_time, per_iter, checked;
    uint64_t min_bytes, max_bytes;
    struct nt_imp_rank *ranks;
    size_t nranks;  /* listed */
    uint32_t world; /* ranks of the communicator; 0: not known */
    bool world_inferred;
    uint32_t hosts, procs; /* distinct, of the listed ranks */
    bool mixed;            /* several programs in one log: rows are not usable */
    struct nt_imp_row *rows;
    size_t nrows;
    bool summary;          /* a footer was seen */
    int64_t out_of_bounds; /* -1: not said */
    double avg_busbw;      /* NAN: not said */
    uint32_t first_line;
    char **env; /* "NAME=value" */
    size_t nenv;
};

struct nt_imp_file {
    char *name;
    char sha256[65];
    struct nt_imp_run *runs;
    size_t nruns;
    struct nt_imp_notes notes;
};

/* Text or JSON, told apart by content. name is for messages and, where nothing else says it, for
 * the collective. */
NT_MUST_CHECK int nt_imp_read(const char *name, const char *text, size_t len,
                              struct nt_imp_file **ret, struct nt_err *err);
void nt_imp_free(struct nt_imp_file *f);
/* New reference, or NULL when memory is out. */
json_t *nt_imp_json(const struct nt_imp_file *f);
void nt_imp_text(const struct nt_imp_file *f, struct nt_buf *out);
/* Rows with at least one usable cell. */
size_t nt_imp_usable_rows(const struct nt_imp_file *f);
/* enum nt_mode: how the run's calls were timed. */
int nt_imp_mode(const struct nt_imp_run *r);
/* "8 processes x 1 GPU on 1 host", "launch shape not said". Returns out. */
char *nt_imp_shape(const struct nt_imp_run *r, char *out, size_t size);
