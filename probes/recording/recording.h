/*
 * recording - measurements taken earlier on real GPUs: written while they are taken, read back, and
 * drawn from as if the machine were here.
 *
 * File       gzip (or plain) CSV. Lines "#key=value" hold facts; after "#gang" and "#cells" stand
 *            one gang's start and one case's costs. Every other line is one block of one cell:
 *            case, flags, process setting, call, executed tuple, gang, status, …, samples.
 * Keys       A process setting is the text "NAME=VALUE NAME=VALUE" of the tunables that were set,
 *            sorted by name, "" for none (nt_recording_process()). A cell is (case, busy and group
 *            flags, process setting, executed tuple); calls that executed the same share it.
 * Draws      two-level: a replayed gang draws from one recorded gang, by its number in an order
 * that the seed chooses, so that none is drawn twice before all were; samples with replacement,
 *            keyed by the measure's id. So a resumed job sees the same world. Failures and
 * unavailable cells replay; what was never recorded is NT_ST_NOT_RECORDED, never invented. A cell
 *            that the recorded gang lacks is drawn from the next one that has it, and so beside
 *            others of another gang, unless NT_M_OWN asks for this gang or nothing; what a call
 *            executes is told all the same.
 * Ownership  texts passed in are borrowed for the call; what accessors return lives as long as the
 *            recording. A result's ns belongs to the caller (free, or nt_msg_done).
 * Threads    a recording is constant once loaded: any number may draw from it.
 */
#pragma once
#include "probes/protocol/protocol.h"

struct nt_recording; /* opaque */

/* Facts, one "#key=value" each. */
enum nt_fact {
    NT_FACT_RIG, /* that was recorded: "nccl", "mps-p2p", … */
    NT_FACT_RANKS,
    NT_FACT_HOST,
    NT_FACT_GPU,        /* name */
    NT_FACT_GPU_MEMORY, /* bytes */
    NT_FACT_NCCL,       /* 22809 */
    NT_FACT_CUDA,
    NT_FACT_DRIVER,
    NT_FACT_NCCL_FILE,
    NT_FACT_DATE,  /* 2025-01-31 */
    NT_FACT_LEASE, /* one stay on one machine */
    NT_FACT_FIXED, /* "NAME=VALUE NAME=VALUE": set in every gang by the rig or the site, no part
                      of process settings */
    NT_FACT_CONDITIONS, /* guard conditions held, blank-separated */
    NT_FACT_TEXT,       /* provenance of `ready` */
    NT_FACT_TOPOLOGY,   /* NCCL's XML */
    NT_FACT_NOTE,
    NT_FACT_COUNT
};
extern const char *const nt_fact_names[];

/* One block: what one measure gave. */
struct nt_block {
    struct nt_case cs;
    uint32_t flags;      /* NT_M_BUSY, NT_M_GROUP8, NT_M_BARRIER and NT_M_READBACK */
    const char *process; /* process setting */
    struct nt_call call;
    struct nt_executed executed;
    uint64_t gang;  /* number in the recording */
    uint8_t status; /* enum nt_status */
    uint8_t verify; /* enum nt_verify */
    uint32_t warmup, inner, base_ns;
    uint64_t wrong, elapsed_ns, connect_ns, memory_bytes;
    const char *error; /* words, or "" */
    const uint32_t *ns;
    size_t count;
};

struct nt_recorded_gang {
    uint64_t gang;
    const char *process;
    uint64_t start_ns; /* start of the processes → ready */
    uint64_t init_ns, memory_bytes;
};

/* Sorted and joined as the key wants it: of those variables that can make a difference (NCCL's, no
 * site constraints, no debugging, nothing that a profile may never carry such as plugins and host
 * ids), without the assignments in `fixed` (NT_FACT_FIXED). Appended to *out. */
void nt_recording_process(const struct nt_var *vars, size_t nvars, const char *fixed,
                          struct nt_buf *out);

/* ---- writing: append, restartable ---- */

struct nt_recorder; /* opaque */

/* A new file takes the facts ([NT_FACT_COUNT], NULL where unknown); an old one must hold the same
 * ones (DATE, NOTE and TEXT aside), or NT_E_INVAL says which differs. Lines that a crash cut are
 * dropped. One writer at a time (flock), else NT_E_INVAL. *ret_old, which may be NULL: what the
 * file already held (nt_recording_free), NULL when it is new. */
NT_MUST_CHECK int nt_recorder_open(const char *path, const char *const *facts,
                                   struct nt_recorder **ret, struct nt_recording **ret_old,
                                   struct nt_err *err);
NT_MUST_CHECK int nt_recorder_gang(struct nt_recorder *r, const struct nt_recorded_gang *g,
                                   struct nt_err *err);
NT_MUST_CHECK int nt_recorder_cells(struct nt_recorder *r, const char *process,
                                    const struct nt_cells *c, struct nt_err *err);
NT_MUST_CHECK int nt_recorder_block(struct nt_recorder *r, const struct nt_block *b,
                                    struct nt_err *err);
/* What was added so far survives a crash after this. */
NT_MUST_CHECK int nt_recorder_flush(struct nt_recorder *r, struct nt_err *err);
NT_MUST_CHECK int nt_recorder_close(struct nt_recorder *r, struct nt_err *err); /* NULL is fine */

/* ---- reading ---- */

enum { NT_RECORDING_MAX_BYTES = 1 << 30 }; /* unpacked */

NT_MUST_CHECK int nt_recording_load(const char *path, struct nt_recording **ret,
                                    struct nt_err *err);
/* The same from memory, unpacked. */
NT_MUST_CHECK int nt_recording_parse(const char *text, size_t len, const char *what,
                                     struct nt_recording **ret, struct nt_err *err);
void nt_recording_free(struct nt_recording *r); /* NULL is fine */

const char *nt_recording_fact(const struct nt_recording *r, enum nt_fact f); /* "" if unknown */
/* What two recordings must have in common for their times to be compared, as one text: "RIG; RANKS;
 * GPU; NCCL; FIXED". Of FIXED what forbids NVLink multicast is left out where there is none to
 * forbid: between ranks that share a GPU. */
void nt_recording_setup(const struct nt_recording *r, struct nt_buf *out);
size_t nt_recording_blocks(const struct nt_recording *r);
const struct nt_block *nt_recording_block(const struct nt_recording *r, size_t i);
size_t nt_recording_gangs(const struct nt_recording *r);
const struct nt_recorded_gang *nt_recording_gang(const struct nt_recording *r, size_t i);

/* A cell: block numbers, by gang and then by place in the file. */
struct nt_cell {
    const uint32_t *block; /* numbers for nt_recording_block() */
    size_t count;
};
size_t nt_recording_cells(const struct nt_recording *r);
struct nt_cell nt_recording_cell(const struct nt_recording *r, size_t i);
/* Number of the cell that this call reaches, or -1. flags: only BUSY and GROUP8 count. */
long nt_recording_find(const struct nt_recording *r, const struct nt_case *c, uint32_t flags,
                       const char *process, const struct nt_call *call);

/* ---- replaying ---- */

enum nt_half {
    NT_ALL_GANGS,
    NT_EVEN_GANGS,
    NT_ODD_GANGS
}; /* choose on one half, judge on the
      other: by place among the setting's
      gangs */

/* One gang that draws. Plain data; copy it freely. */
struct nt_replay {
    const struct nt_recording *rec;
    uint64_t seed, gang;
    bool null; /* every cell draws from the default's samples of its case */
    enum nt_half half;
    int process;        /* number in the recording, -1: not recorded */
    uint32_t connected; /* algorithm × protocol already used: connecting costs once a gang */
};

/* For a gang number and its variables (those of init). A process setting that was not recorded is
 * no failure here: each measure then says so. Fails only without memory. */
NT_MUST_CHECK int nt_replay_init(struct nt_replay *p, const struct nt_recording *rec, uint64_t seed,
                                 bool null, enum nt_half half, uint64_t gang,
                                 const struct nt_var *vars, size_t nvars, struct nt_err *err);
/* The recorded gang whose start this one repeats; NULL when starts were not recorded. */
const struct nt_recorded_gang *nt_replay_start(const struct nt_replay *p);
/* False, cost all negative and asked false: that case's costs were not recorded. */
bool nt_replay_cells(const struct nt_replay *p, const struct nt_case *c, struct nt_cells *ret);
/* Always fills *ret: what is not in the recording, or no memory, is a status with words.
 * ret->elapsed_ns: drawn samples and warm-up, and the recorded rest (gate, read-back, overhead). */
void nt_replay_measure(struct nt_replay *p, const struct nt_measure *m, struct nt_result *ret);
