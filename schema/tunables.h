/*
 * tunables - every variable that NCCL 2.18 to 2.32 reads, one row each: what it may be, what NCCL
 * makes of a text, who may set it, what it costs. Search, export, validation and lint read this
 * table and nothing else.
 *
 * Versions   NCCL's own number, NT_V(2, 28, 9) = 22809. `since` is the first release that reads
 *            the row so, `until` the first that no longer does (0: still). A domain that changed
 *            is two rows of one name.
 * Ownership  rows and their texts are constant; strings passed in are borrowed for the call.
 * Threads    plain constant data.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "schema/vocab.h"

#define NT_V(major, minor, patch) ((major)*10000U + (minor)*100U + (patch))
enum { NT_NCCL_OLDEST = 21800, NT_NCCL_NEWEST = 23299 }; /* what the table covers */

/* "2.28.9" → 22809; "2.28" → 22899: the newest of that minor release. */
NT_MUST_CHECK int nt_nccl_version_parse(const char *text, unsigned *ret, struct nt_err *err);
/* 22809 → "2.28.9", 22899 → "2.28". Returns out. */
char *nt_nccl_version_text(unsigned version, char *out, size_t size);

/* One assignment. Borrowed texts; the profile keeps its own. */
struct nt_assign {
    const char *name, *value;
};

/* When NCCL reads it (nccl reference: P, S, C, X). */
enum nt_scope {
    NT_SCOPE_PARAM,  /* once per process, at first use; NCCL_NO_CACHE can make it re-read */
    NT_SCOPE_STATIC, /* once per process, for good */
    NT_SCOPE_COMM,   /* at every communicator */
    NT_SCOPE_CALL,   /* at calls */
};

/* How NCCL reads the text. */
enum nt_tunable_type {
    NT_T_INT,   /* strtoll, base 0, trailing junk dropped */
    NT_T_BYTES, /* as INT; the number is bytes */
    NT_T_ENUM,  /* one of `words` */
    NT_T_LEVEL, /* LOC … SYS, or the old integers */
    NT_T_ALGOS, /* NCCL_ALGO's list */
    NT_T_PROTOS,
    NT_T_TEXT, /* taken as it is */
};

enum nt_tunable_flag {
    NT_F_CORRUPT = 1,       /* a bad value can give wrong data */
    NT_F_HANG = 2,          /* … or a hang */
    NT_F_CRASH = 4,         /* … or a crash, or failing communicators */
    NT_F_ALL_RANKS = 8,     /* ranks must agree */
    NT_F_SITE = 16,         /* site constraint: taken from the caller, never searched */
    NT_F_FORBIDS = 32,      /* site constraint that can forbid something: never overridden */
    NT_F_NO_PROFILE = 64,   /* never from a profile */
    NT_F_MASKS_TABLE = 128, /* would mask the tuner table: only in `static` */
    NT_F_DEBUG = 256,       /* logging, dumps, identity: no effect on speed that is meant */
    NT_F_POW2 = 512,        /* the number must be a power of two */
    NT_F_NOT_NCCL = 1024,   /* read by a plugin or a framework, not by NCCL itself */
    NT_F_EXACT = 4096,      /* words in exactly this case */
    NT_F_JOINED = 8192,     /* several words joined with |; a leading digit is the old numbering */
    NT_F_GONE = 2048,       /* NCCL 2.18 and later never read it */
    NT_F_BY_TUPLE = 16384, /* speed changes only by the algorithm, protocol and channels executed */
};

struct nt_tunable {
    const char *name;
    unsigned since, until;
    uint8_t type;             /* enum nt_tunable_type */
    uint8_t scope;            /* enum nt_scope */
    uint8_t pcie, nvl, net;   /* relevance: 0 none, 1 second order, 2 first order */
    uint16_t flags;           /* enum nt_tunable_flag */
    int64_t lo, hi, step;     /* INT, BYTES: legal range and multiple; step 0 or 1: any */
    const char *const *words; /* ENUM: NULL-terminated */
    const char *def;          /* NCCL's default in words of the variable; "auto…" when computed */
    const char *price;        /* memory in words, or NULL */
    const char *help;         /* one line */
    const char *config;       /* ncclConfig_t field that the variable overrides, or NULL */
    const char *instead;      /* for a name that is gone: what to use, or NULL */
    const char *source;       /* NCCL source file that reads it */
};

/* NCCL's own spellings, as NCCL_ALGO and NCCL_PROTO take them in any case; by enum. */
extern const char *const nt_nccl_functions[NT_TUNER_COLLS + 1]; /* "Broadcast" … */
extern const char *const nt_nccl_algos[NT_ALGO_COUNT + 1];
extern const char *const nt_nccl_protos[NT_PROTO_COUNT + 1];

extern const struct nt_tunable nt_tunables[]; /* sorted by name, then since */
extern const size_t nt_tunables_count;

/* The row that holds for this release; NULL when that release does not read the name. */
const struct nt_tunable *nt_tunable_find(const char *name, unsigned version);
/* The newest row of the name whatever the release, NULL for a name that no row has. */
const struct nt_tunable *nt_tunable_any(const char *name);
/* The nearest right name by edit distance, NULL when none is near. */
const char *nt_tunable_nearest(const char *name);
/* A site constraint: goes into every child and arm, is stored, is never searched. Also for names
 * outside NCCL (TORCH_SYMM_MEM_DISABLE_MULTICAST, NVSHMEM_DISABLE_NVLS). */
bool nt_tunable_is_site(const char *name);
/* name=value forbids something: no option may override it. */
bool nt_tunable_forbids(const char *name, const char *value);

/* What NCCL of that release makes of a value. */
enum nt_take {
    NT_TAKE_AS_MEANT,
    NT_TAKE_UNSET,   /* empty: as if it were not set */
    NT_TAKE_OTHER,   /* taken as something else than it says: "4M" is 4, "true" is 0 */
    NT_TAKE_OUTSIDE, /* taken, and outside the domain: nobody validates it, or it is clamped */
    NT_TAKE_DEFAULT, /* refused by NCCL, which goes on with its default */
    NT_TAKE_FAILS,   /* the communicator fails */
    NT_TAKE_NOTHING, /* this release does not read the name */
};
struct nt_taken {
    enum nt_take how;
    int64_t number; /* INT, BYTES, LEVEL (0 LOC … 9 SYS), ENUM: index of the word */
    uint16_t mask[NT_TUNER_COLLS]; /* ALGOS, PROTOS: bits by enum nt_algo / nt_proto */
    uint16_t named;                /* ALGOS, PROTOS: functions that an entry names (bits) */
    uint16_t stranded;             /* ALGOS: functions that it leaves without any algorithm */
    bool forces_ll128;             /* PROTOS: an explicit list that leaves LL128 on */
    char why[160];                 /* words when not AS_MEANT, else "" */
};
void nt_tunable_take(const struct nt_tunable *t, const char *value, unsigned version,
                     struct nt_taken *ret);

/* Whether a profile may carry it. Fails with the reason (and the near name): NT_E_INVAL. `table`:
 * the assignment goes with a tuner table, not into the variables-only product. */
NT_MUST_CHECK int nt_tunable_for_profile(const char *name, const char *value, unsigned version,
                                         bool table, struct nt_err *err);

/* Pairs that contradict or switch each other off. */
enum nt_conflict_kind {
    NT_X_INERT,   /* the first does nothing beside the second */
    NT_X_MIN_MAX, /* the first is above the second */
    NT_X_UNSAFE,  /* together they can hang, corrupt or fail */
};
struct nt_conflict {
    enum nt_conflict_kind kind;
    const char *name, *other; /* other: the assignment that causes it; may be an unset name */
    const char *why;
};
/* Conflicts among n assignments under one release. Writes at most max; returns how many there
 * are. */
size_t nt_tunable_conflicts(const struct nt_assign *vars, size_t n, unsigned version,
                            struct nt_conflict *out, size_t max);

/* Extra device memory per rank of these assignments against NCCL's defaults, in bytes; negative =
 * saved. channels and peers: per algorithm connected, as NCCL reports them. */
struct nt_memory_shape {
    unsigned channels, peers;
};
int64_t nt_tunable_memory_bytes(const struct nt_assign *vars, size_t n, unsigned version,
                                const struct nt_memory_shape *shape);

/* What the search tries. */
enum nt_box {
    NT_BOX_PCIE,
    NT_BOX_NVLINK,
    NT_BOX_IB,
    NT_BOX_SOCKETS,
    NT_BOX_SHARED_GPU,
    NT_BOX_COUNT
};
extern const char *const nt_box_names[];
enum { NT_KNOB_VARS = 2, NT_KNOBS_MAX = 32 };

/* One thing to vary: a variable, or variables that only make sense together. */
struct nt_knob {
    const char *vars[NT_KNOB_VARS + 1]; /* NULL-terminated */
    const char *const *values;   /* NULL-terminated, "as is" not among them; "a" or "a,b": one part
                                    a variable */
    uint8_t order[NT_BOX_COUNT]; /* 0: not on this box; 1: first order; 2: second order */
};
/* Knobs for a box and release, first order first; returns how many, at most NT_KNOBS_MAX. Variables
 * that are site constraints or that this release does not read are not there. */
size_t nt_knobs(enum nt_box box, unsigned version, const struct nt_knob *out[NT_KNOBS_MAX]);
size_t nt_knob_values(const struct nt_knob *k); /* without "as is" */
/* Assignments of value i (0 = as is: none). text holds the parts, at least 64 bytes. Returns how
 * many of out[NT_KNOB_VARS] were written. */
size_t nt_knob_assign(const struct nt_knob *k, size_t i, struct nt_assign out[NT_KNOB_VARS],
                      char *text, size_t size);
