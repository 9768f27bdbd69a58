/*
 * table - measurements as backend by size: CSV files of several shapes, and runs of nccl-tests laid
 * side by side. Both become entries that the same code decides upon.
 *
 * Only entries of one group are ever compared: collective, machine, ranks, and for runs also data
 * type, placement, launch shape, graph mode and library version.
 * Ownership as in import.h: *_new/_read give to the caller, who calls nt_table_free().
 */
#pragma once
#include "tuner/import/decide.h"
#include "tuner/import/import.h"

enum nt_metric { NT_TIME_US, NT_BUSBW, NT_ALGBW, NT_METRIC_COUNT };
extern const char *const nt_metric_names[]; /* "time_us", "busbw_gbps", "algbw_gbps" */

enum { NT_TABLE_MAX = 200000 };

struct nt_entry {
    uint32_t group, arm; /* indices into the tables of names */
    uint64_t bytes;
    double value;         /* in the table's metric */
    double sd;            /* < 0: not known */
    uint32_t repeats;     /* behind value */
    uint32_t line, round; /* round: which repeat this is, 0 … */
    uint32_t ranks;       /* 0: not said */
    int8_t coll, mode;    /* enum nt_coll, nt_mode; -1: not said */
};

struct nt_table {
    char *name;
    enum nt_metric metric;
    struct nt_entry *entries;
    size_t n;
    bool no_unit;          /* while reading: no cell has said one */
    char **groups, **arms; /* in order of appearance */
    size_t ngroups, narms;
    struct nt_imp_notes notes;
};

/* One size of one group: arms[] is allocated, its names belong to the table. */
struct nt_verdict_row {
    uint32_t group, ranks;
    int8_t coll, mode; /* as in the entries */
    uint64_t bytes;
    struct nt_arm *arms;
    size_t narms;
    struct nt_decision decision;
};
struct nt_verdicts {
    struct nt_verdict_row *rows;
    size_t n;
};

/* CSV, semicolons or tabs. Long form (a backend column) or wide form (a column a backend). A file
 * of another kind is refused with the kind's name. */
NT_MUST_CHECK int nt_table_parse(const char *name, const char *text, size_t len,
                                 struct nt_table **ret, struct nt_err *err);

struct nt_compare_opts {
    int place;   /* enum nt_place */
    bool across; /* compare even where launch shape, version or machine differ */
};
/* Runs of several files: labels[i] names the setting of files[i]; equal labels are repeats. The
 * table's notes say what was not compared, and why. */
NT_MUST_CHECK int nt_table_from_files(struct nt_imp_file *const *files, const char *const *labels,
                                      size_t n, const struct nt_compare_opts *opts,
                                      struct nt_table **ret, struct nt_err *err);
void nt_table_free(struct nt_table *t);

/* Every group and size, ascending. Adds notes on drift and double entries to the table. */
NT_MUST_CHECK int nt_table_decide(struct nt_table *t, struct nt_verdicts *ret, struct nt_err *err);
void nt_verdicts_done(struct nt_verdicts *v);

json_t *nt_verdicts_json(const struct nt_table *t, const struct nt_verdicts *v);
void nt_verdicts_text(const struct nt_table *t, const struct nt_verdicts *v, struct nt_buf *out);
void nt_verdicts_csv(const struct nt_table *t, const struct nt_verdicts *v, struct nt_buf *out);
/* "allreduce", "All-Reduce" -> NT_ALL_REDUCE; -1: no collective of the vocabulary. */
int nt_coll_of(const char *word);
/* "exp2-default-rep3.txt" is a repeat of "exp2-default": the file's name without folder, extension
 * and the ending that numbers it. Returns out. */
char *nt_label_of_file(const char *path, char *out, size_t size);
