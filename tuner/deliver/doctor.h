/*
 * doctor - what a live process really got of a profile, from facts that were read elsewhere. Pure.
 *
 * A receipt without its plugin in the process's maps is a claim, not a proof. What cannot be told
 * is said to be so.
 */
#pragma once
#include <jansson.h>
#include "profiles/format/receipt.h"
#include "profiles/format/table.h"
#include "tuner/deliver/engine.h"
#include "tuner/deliver/proc.h"

/* name, words */
#define NT_VERDICTS(X)                                                                             \
    X(APPLIED, "applied")                                                                          \
    X(PARTLY, "partly")        /* something of it did not arrive; the reasons say what */          \
    X(TOO_LATE, "too late")    /* NCCL had started before the variables came */                    \
    X(TWO_NCCL, "two libnccl") /* applied, but a second copy may serve some communicators */       \
    X(MISSED, "missed")        /* the profile should have come and did not: loader, launcher */    \
    X(STALE, "stale")          /* another profile than the one that is active now */               \
    X(CLAIMED, "claimed")      /* told, or a receipt, but no plugin: not proven */                 \
    X(WAITING, "waiting")      /* told; no communicator yet */                                     \
    X(LAUNCHER, "launcher")    /* no rank: what it started is counted */                           \
    X(NOT_TOLD, "not told")                                                                        \
    X(OFF, "off")         /* NCCLTUNE_DISABLE */                                                   \
    X(UNKNOWN, "unknown") /* may not be looked at */

enum nt_doctor_finding {
#define X(name, text) NT_DR_##name,
    NT_VERDICTS(X)
#undef X
        NT_DR_COUNT
};
extern const char *const nt_doctor_names[];

/* What holds for the whole host. */
struct nt_doctor_world {
    char boot_id[40];
    char active[NT_HASH_HEX + 1];          /* hash of the active profile, "" if none */
    char active_table[512];                /* its NCCLTUNE_TABLE */
    bool active_env;                       /* it carries the env plugin */
    char active_backends[NT_HASH_HEX + 1]; /* its NCCLTUNE_BACKENDS */
};

/* Whether the Python loader is installed into the process's interpreter. */
enum nt_doctor_loader { NT_LOADER_UNKNOWN, NT_LOADER_ABSENT, NT_LOADER_THERE };

/* One process. Everything borrowed. */
struct nt_doctor_facts {
    const struct nt_proc *proc;
    const struct nt_proc *ancestors[NT_PROC_ANCESTORS]; /* parent first */
    unsigned nancestors;
    const uint8_t *receipt; /* checked by nt_receipt_read(); NULL: none */
    struct nt_receipt_head head;
    const char *no_receipt;         /* why there is none, "" unless something is wrong with it */
    const struct nt_table *table;   /* what it was told; NULL: not known */
    const struct nt_engine *engine; /* what an engine's plugin wrote; NULL: nothing */
    const char *no_engine;          /* why not, "" or NULL unless something is wrong with it */
    enum nt_doctor_loader loader;
};

enum { NT_DOCTOR_REASONS = 24 };
struct nt_doctor_verdict {
    enum nt_doctor_finding verdict;
    bool counts;                /* a rank: it makes, or can make, communicators on GPUs */
    char hash[NT_HASH_HEX + 1]; /* the profile it has or was told, "" none */
    char job[128];
    char backends[160]; /* what its engine's plugin goes by: the same on all ranks; "" none */
    unsigned comms, max_ranks, max_local; /* max_local: ranks of one node */
    unsigned n;
    char reason[NT_DOCTOR_REASONS][256]; /* most important first */
};

void nt_doctor_judge(const struct nt_doctor_facts *f, const struct nt_doctor_world *w,
                     struct nt_doctor_verdict *ret);

/* One judged process among the others. */
struct nt_doctor_member {
    const struct nt_doctor_facts *facts;
    struct nt_doctor_verdict *verdict;
};
/* A process without communicator and receipt whose descendants are counted is a launcher: it is
 * shown, and no longer counted. */
void nt_doctor_family(struct nt_doctor_member *m, size_t n);

/* Who gave a process a value of a variable at its start, in words. */
void nt_doctor_blame(const struct nt_doctor_facts *f, const char *name, char *out, size_t size);

/* ---- the job ---- */

struct nt_doctor_job {
    unsigned counted, by_verdict[NT_DR_COUNT];
    bool disagree;  /* two hashes, or a hash and none, or two tables of backends, among those that
                       count; or told to nt_doctor_job() */
    bool applied;   /* in all of them, the same */
    char text[256]; /* one sentence */
};
/* disagree: already known of them. */
void nt_doctor_job(const struct nt_doctor_verdict *v, size_t n, bool disagree,
                   struct nt_doctor_job *ret);

/* Calls per collective and size class, summed over the receipts. */
struct nt_doctor_class {
    uint64_t served, left, grouped;
    struct nt_receipt_executed executed[NT_RECEIPT_CELLS];
    bool in_table; /* a row of the profile is for this class */
};
struct nt_doctor_calls {
    struct nt_doctor_class of[NT_TABLE_COLLS][NT_CLASS_COUNT];
    unsigned receipts; /* summed */
    bool observed;     /* the profiler plugin counted: what was executed is known */
};
void nt_doctor_calls_add(struct nt_doctor_calls *c, const struct nt_doctor_facts *f);
/* A line a class, for people and for programs. */
void nt_doctor_calls_text(const struct nt_doctor_calls *c, struct nt_buf *out);
json_t *nt_doctor_calls_json(const struct nt_doctor_calls *c);

/* ---- which backend an engine's calls went to ---- */

/* A row of one group, over all processes. */
struct nt_doctor_choice {
    struct nt_engine_row row;        /* counts summed */
    unsigned processes;              /* that made such calls */
    uint32_t served_by, declined_by; /* one that was served, one that only declined; 0: none */
};
enum { NT_DOCTOR_CHOICES = 1024, NT_DOCTOR_SPLITS = 16 };
struct nt_doctor_backends {
    unsigned receipts, lost; /* lost: choices and differences that found no room */
    struct nt_doctor_choice v[NT_DOCTOR_CHOICES];
    unsigned n;
    uint32_t first; /* the process that the others are held against */
    char as_first[160];
    char split[NT_DOCTOR_SPLITS][256]; /* in what ranks disagree */
    unsigned nsplit;
};
void nt_doctor_backends_add(struct nt_doctor_backends *b, const struct nt_doctor_facts *f,
                            const struct nt_doctor_verdict *v);
/* Finds the ranks that disagree, when all are added. */
void nt_doctor_backends_judge(struct nt_doctor_backends *b);
void nt_doctor_backends_text(const struct nt_doctor_backends *b, struct nt_buf *out);
json_t *nt_doctor_backends_json(const struct nt_doctor_backends *b);
/* Of one process: a line a mode and type; nothing without a receipt. */
void nt_doctor_engine_text(const struct nt_engine *e, struct nt_buf *out);
json_t *nt_doctor_engine_json(const struct nt_engine *e);

json_t *nt_doctor_verdict_json(const struct nt_doctor_facts *f, const struct nt_doctor_verdict *v);
