/*
 * check - a profile held against its machine again: gangs, delivery, judging, and the history in
 * the store.
 *
 * Ownership  config and what it points to are borrowed for the call; nt_check_outcome_done() frees
 * what an outcome holds. Errors     -NT_E_MISSING: machine or stack is not what the profile was
 * made for (the words name what differs, and ret->differs holds all of it), or something is missing
 * here. A drifted row is no error: the verdict says so. Signals end it as they end a job.
 */
#pragma once
#include "tuner/base/cli.h"
#include "tuner/job/check_plan.h"
#include "tuner/job/drive.h"
#include "tuner/job/facts.h"
#include "tuner/store/store.h"

struct nt_check_config {
    const struct nt_profile *profile;
    struct nt_store *store;            /* NULL: nothing is kept, and there is no history */
    const char *program, *const *args; /* the probe */
    const char *plugin;                /* absolute path of the tuner plugin that delivers */
    const char *const *env;            /* of every rank, "NAME=VALUE", NULL-terminated */
    const char *site;                  /* site constraints in force, "NAME=VALUE NAME=VALUE" */
    const unsigned *devices;
    const struct nt_remote *remote; /* the ranks are on other hosts; NULL: here */
    const json_t *machines;         /* with it: what they said of themselves (nodes.h) */
    const char *mps_program, *tmpdir;
    enum nt_rig rig; /* of the gangs; a replay says `recording` */
    bool virtual_time;
    unsigned least_pairs, most_pairs;
    uint64_t budget_ns; /* as of nt_check_spec */
    uint64_t seed;
    /* A replay: changes *cs to a data type of the profile that was recorded, and *asked to a call
     * that was recorded and ran this; may be NULL. */
    void (*resolve)(void *data, const char *vars, struct nt_case *cs,
                    const struct nt_executed *executed, struct nt_call *asked);
    void *data;
    const struct nt_strs *despite; /* names of nt_check_despite that may differ; NULL: none */
};
/* What may differ when it is asked for: "nccl", "driver", "gpu", "health"; NULL-terminated. The
 * identity of the machine never. */
extern const char *const nt_check_despite[];

struct nt_check_differs {
    const char *what; /* a name of nt_check_despite, "identity", "placement", "site", or
                         "note" */
    bool stops;
    char text[240];
};
struct nt_check_moves { /* against the profile, and against the last check of the same profile */
    enum nt_move default_profile, tuned_profile, default_last, tuned_last;
};
struct nt_check_outcome {
    enum nt_product product;
    char profile_hash[65]; /* of the delivery file */
    struct nt_check_row *rows;
    struct nt_check_moves *moves; /* one a row */
    size_t nrows;
    struct nt_check_control controls[NT_CHECK_CONTROLS];
    enum nt_move control_moves[NT_CHECK_CONTROLS]; /* against the last check */
    unsigned pairs;
    enum nt_check_verdict verdict;
    struct nt_check_differs differs[32];
    size_t ndiffers;
    struct nt_facts facts;
    int64_t check, last; /* ids in the store; 0: none */
    struct nt_drive_totals totals;
};

NT_MUST_CHECK int nt_check_run(const struct nt_check_config *config, struct nt_check_outcome *ret,
                               struct nt_err *err);
void nt_check_outcome_done(struct nt_check_outcome *o);

/* Appends to *ret what differs between the machine a profile was made on and this one; pure. */
void nt_check_fit(const struct nt_profile *p, const struct nt_facts *facts, const char *site,
                  const struct nt_strs *despite, struct nt_check_outcome *ret);

/* Puts an outcome into the store, and tells it what moved since the last check of the profile that
 * is there. Called by nt_check_run(). */
NT_MUST_CHECK int nt_check_keep(struct nt_store *s, const struct nt_profile *p, const char *site,
                                struct nt_check_outcome *o, struct nt_err *err);

/* ---- the history ---- */

struct nt_check_point {
    int64_t check;
    char at[24], verdict[24];
    char dtype[24]; /* of its rows, "mixed" when of several; "" when none was measured */
    double ratio;   /* log, mean over its rows */
    size_t rows;
    double copy_gbps, launch_us; /* NAN: not measured */
    /* what it ran on */
    char nccl[24], nccl_sha256[65], driver[24], cuda[24], gpu[64], host[64], identity[16];
    char health[512], site[512];
};
/* All checks of a profile, oldest first; the caller frees *ret_points. */
NT_MUST_CHECK int nt_check_history(struct nt_store *s, const char *profile_hash,
                                   struct nt_check_point **ret_points, size_t *ret_n,
                                   struct nt_err *err);
/* What differs between two points, a line each, likeliest cause first; "nothing that is kept" when
 * nothing does. */
void nt_check_point_diff(const struct nt_check_point *good, const struct nt_check_point *bad,
                         struct nt_buf *out);
