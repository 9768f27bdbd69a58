/* recording_priv - what reading and drawing share. */
#pragma once
#include "probes/recording/recording.h"

enum { NT_CELL_FLAGS = NT_M_BUSY | NT_M_GROUP8, NT_PROCESSES = 4096 };

/* A block and what the index knows about it. */
struct nt_rec_block {
    struct nt_block b;
    size_t at;                  /* of its samples */
    int process;                /* number of its setting */
    struct nt_executed reached; /* its own tuple, or that of the same call elsewhere */
    uint32_t place;             /* of its gang among the setting's gangs */
    bool odd;                   /* that is */
};

struct nt_rec_process {
    char *text;                                          /* owned */
    uint32_t ngangs;                                     /* with blocks */
    uint64_t connect_ns[NT_ALGO_COUNT * NT_PROTO_COUNT]; /* greatest seen */
};

struct nt_rec_cells {
    int process;
    struct nt_cells cells;
};

struct nt_rec_range {
    uint32_t first, count; /* in `order` */
};

struct nt_recording {
    char *fact[NT_FACT_COUNT]; /* owned */
    struct nt_rec_block *block;
    size_t nblocks;
    uint32_t *ns; /* samples of all blocks */
    size_t nns;
    struct nt_rec_process *process;
    size_t nprocesses;
    struct nt_recorded_gang *gang;
    size_t ngangs;
    struct nt_rec_cells *cells;
    size_t ncells;
    char **text; /* owned: words of errors */
    size_t ntexts;
    /* the index */
    uint32_t *order; /* block numbers by cell, gang, place */
    struct nt_rec_range *cell;
    size_t nrange;
    uint32_t *call; /* one block number for each (case, flags, process, call), sorted by that */
    uint32_t *call_cell;
    size_t ncalls;
};

NT_MUST_CHECK int nt_recording_index(struct nt_recording *r, struct nt_err *err);
int nt_recording_process_find(const struct nt_recording *r, const char *text); /* or -1 */
long nt_recording_cell_of(const struct nt_recording *r, const struct nt_case *c, uint32_t flags,
                          int process, const struct nt_call *call);
/* "all_reduce 1024 bf16 out graph": bytes in plain digits, and back. */
void nt_case_write(const struct nt_case *c, struct nt_buf *out);
/* "busy+readback" */
void nt_flags_write(uint32_t flags, struct nt_buf *out);
/* The first line of columns. */
extern const char nt_recording_columns[];
#define NT_RECORDING_VERSION "1"
#define NT_FACT_VERSION      "nccltune-recording"
/* Whole file, unpacked, into *out. cut: a damaged end is no error; *ret_cut then says it was. */
NT_MUST_CHECK int nt_recording_unpack(const char *path, struct nt_buf *out, bool *ret_cut,
                                      struct nt_err *err);
