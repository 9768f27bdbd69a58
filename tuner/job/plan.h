/*
 * plan - the job as a pure machine: it says what to do next and is told what came of it.
 *
 * No clock, no I/O, no chance but the spec's seed: the same spec and the same outcomes give the
 * same steps. So a job is resumed by telling its stored outcomes again, and a test plays a whole
 * job against a fake world.
 *
 * Stages     preflight, race, refine, gate, confirm, publish (design: "A job").
 * Time       all decisions about time use the outcomes' elapsed_ns.
 * Ownership  nt_plan_new() gives *ret to the caller, who passes it to nt_plan_free(); pointers in a
 * step live until the next call.
 */
#pragma once
#include "probes/protocol/protocol.h"
#include "tuner/job/drift.h"
#include "tuner/job/spec.h"

enum nt_arm {
    NT_ARM_SEARCH,
    NT_ARM_DEFAULT,
    NT_ARM_TABLE,
    NT_ARM_STATIC,
    NT_ARM_AS_FOUND,
    NT_ARM_BACKENDS, /* calls name their backend themselves */
    NT_ARM_COUNT
};
extern const char *const nt_arm_names[];

enum nt_stage {
    NT_PREFLIGHT,
    NT_RACE,
    NT_REFINE,
    NT_GATE,
    NT_CONFIRM,
    NT_BACKENDS,
    NT_PUBLISH,
    NT_STAGE_COUNT
};
extern const char *const nt_stage_names[];

enum nt_do {
    NT_DO_START,   /* start gangs[0..ngangs) together; all of them are alive afterwards, or their
                      status says why not */
    NT_DO_CELLS,   /* ask gang for the cells of cs */
    NT_DO_MEASURE, /* one trial of gang */
    NT_DO_STOP,    /* end all gangs */
    NT_DO_FINISHED /* the result is there */
};
enum { NT_PLAN_GANGS = 4 };

struct nt_plan_gang {
    uint64_t number; /* of the gang in its job, from 1 */
    enum nt_arm arm;
    const char *vars; /* process setting; the arm's own variables (plugin, table) are the shell's */
};

struct nt_plan_step {
    enum nt_do kind;
    uint64_t seq; /* from 1; a START with n gangs takes seq … seq + n - 1, a STOP takes none */
    size_t ngangs;
    struct nt_plan_gang gangs[NT_PLAN_GANGS];
    uint64_t gang; /* CELLS, MEASURE */
    enum nt_arm arm;
    struct nt_case cs;
    struct nt_measure m; /* m.id is seq. In a table arm m.call is what the delivered table decides:
                            only for replays */
    const char *vars;    /* process setting of the gang */
    enum nt_stage stage;
};

/* Job's own flag in a stored trial: the gang was lost with it. */
#define NT_TRIAL_LOST (1U << 31)

struct nt_plan_outcome {
    uint64_t elapsed_ns; /* wall time of the step while gangs held the GPUs */
    struct {
        uint8_t status; /* enum nt_status: ok, or why it did not come up */
        uint64_t memory_bytes;
    } gangs[NT_PLAN_GANGS];         /* START */
    struct nt_cells cells;          /* CELLS */
    const struct nt_result *result; /* MEASURE */
    bool lost;                      /* MEASURE, CELLS: the gang is gone */
};

/* ------------------------------------------------------------------ the result */

enum { NT_MAX_ROWS = 256 };

/* One ladder size of one collective in one mode, for one product. */
struct nt_class_result {
    struct nt_case cs;
    enum nt_arm product; /* NT_ARM_TABLE or NT_ARM_STATIC */
    struct nt_call call; /* what the row asks there; default where there is none */
    bool in_row;
    double default_ns, as_found_ns, tuned_ns; /* medians over pairs; as_found NAN: none */
    double gain, lo, hi;                      /* log(faster baseline / tuned), two-sided 95 % */
    double p;                                 /* adjusted */
    double guard_upper; /* worst one-sided 95 % bound of tuned / baseline at its check points */
    double p95_ratio;   /* NAN: not enough iterations */
    unsigned pairs;
    bool published; /* stands in the product */
    bool kept; /* … by a row that only keeps it as it was without the table's variables: no gain
                  is claimed */
    bool unproved; /* it does not, for no other reason than that no gain could be proved */
    char why[96];  /* when not */
};
struct nt_row_result {
    uint8_t coll;
    uint64_t min_bytes, max_bytes;
    struct nt_call call;
    struct nt_executed executed;
    unsigned pairs;
    bool kept; /* of an untuned collective, as it was without the table's variables */
};
/* Who moves the bytes of one ladder size in one mode, as the pairs judged it. */
struct nt_backend_class {
    struct nt_case cs;
    struct nt_call call;
    struct nt_executed executed;
    uint8_t bits;                    /* enum nt_bits */
    enum nt_arm rival;               /* the fastest of NCCL's default, the table and as found */
    double default_ns, rival_ns, ns; /* medians over pairs */
    double gain, lo, hi;             /* log(rival / backend), two-sided 95 % */
    double p, guard_upper;           /* adjusted over the classes of all backends; as for rows */
    double p95_ratio;                /* of its row; NAN: not enough iterations */
    unsigned pairs;
    bool published;
    bool kept; /* not confirmed, because NCCL won the race: `call` came next, figures are of it */
    bool unproved; /* not published, but nothing that was checked speaks against it */
    char why[96];  /* when not published */
};
enum { NT_MAX_BACKEND_ROWS = 128, NT_MAX_BACKEND_NOTES = 64 };
struct nt_backend_row {
    uint8_t coll, mode;
    uint64_t min_bytes, max_bytes;
    struct nt_call call;
    struct nt_executed executed;
    uint8_t bits;
    bool combos[NT_DTYPE_COUNT][NT_PLACE_COUNT]; /* in which it was right and is served */
    unsigned pairs;
};
struct nt_backend_note {           /* not to be had, ruled out, or the same as another */
    struct nt_call call;           /* algo -1: the whole backend */
    uint64_t min_bytes, max_bytes; /* sizes at which it was said; 0: of all */
    char why[160];
};

/* What the search found for one raced case: the standing of each tuple it knows. */
struct nt_found_arm {
    struct nt_call call;
    struct nt_executed executed;
    double log_ratio, se; /* against the default as is; NAN: not known */
    uint8_t status;       /* enum nt_status: ok, or why it is out */
    bool dropped;
    uint32_t blocks, gangs; /* of the race, behind it */
};
struct nt_found {
    struct nt_case cs;
    const char *vars;
    const struct nt_found_arm *arms; /* [0] is the default of that process setting */
    size_t narms;
    uint32_t pick;            /* index, among ties the default or the fewest channels */
    double default_ns;        /* as is */
    double block_sd, gang_sd; /* preflight, log units */
    double detectable; /* smallest gain that the confirm can detect with 80 % power, log units */
};
struct nt_setting_score {
    char vars[NT_SETTING_LEN];
    double table_gain, static_gain, se; /* weighted mean log gain over as is */
    uint8_t status;
};
struct nt_plan_result {
    bool too_noisy; /* for sure, not even a 60 % gain could be told in most classes */
    char table_vars[NT_SETTING_LEN], static_vars[NT_SETTING_LEN]; /* as confirmed; "" = none */
    bool table_present, static_present;                           /* something is published */
    char withdrawn[NT_SETTING_LEN + 100]; /* variables that a first round's table had, and why not
                                            this one; "" = none */
    struct nt_row_result rows[NT_MAX_ROWS];
    size_t nrows;
    struct nt_class_result *classes;
    size_t nclasses;
    struct nt_backend_row backend_rows[NT_MAX_BACKEND_ROWS];
    size_t nbackend_rows;
    struct nt_backend_class *backend_classes;
    size_t nbackend_classes;
    struct nt_backend_note backend_notes[NT_MAX_BACKEND_NOTES];
    size_t nbackend_notes;
    struct nt_setting_score settings[NT_MAX_SETTINGS];
    size_t nsettings;
    uint64_t memory_bytes[NT_ARM_COUNT]; /* least over its gangs */
    uint64_t first_call_ns[NT_ARM_COUNT];
    struct {
        char text[160];
    } not_checked[64];
    size_t nnot_checked;
    struct nt_est drift[NT_DRIFT_COUNT]; /* n 0: cannot be told */
    uint64_t stage_ns[NT_STAGE_COUNT];   /* time that gangs held the GPUs */
    uint64_t grid_ns; /* what the exhaustive grid would have taken, from the job's own times */
    unsigned pairs;
    unsigned further; /* pairs of points that the guard was in doubt of, in its last round */
};

struct nt_plan; /* opaque */

NT_MUST_CHECK int nt_plan_new(const struct nt_spec *spec, struct nt_plan **ret, struct nt_err *err);
void nt_plan_free(struct nt_plan *p); /* NULL is fine */

/* The step to do now; the same again until it is told. */
NT_MUST_CHECK int nt_plan_next(struct nt_plan *p, struct nt_plan_step *ret, struct nt_err *err);
NT_MUST_CHECK int nt_plan_tell(struct nt_plan *p, const struct nt_plan_outcome *o,
                               struct nt_err *err);

/* The rows that a table arm serves from the confirm on; before, none. */
const struct nt_row_result *nt_plan_rows(const struct nt_plan *p, size_t *ret_n);
/* The process setting that goes with them. */
const char *nt_plan_table_vars(const struct nt_plan *p);
/* What the search found, one entry per raced case, under the process setting of the table. NULL
 * past the end. */
const struct nt_found *nt_plan_found(const struct nt_plan *p, size_t i);
/* The same of the race between backends; a case in which there was none has no arms. Noise is not
 * filled in. */
const struct nt_found *nt_plan_found_backends(const struct nt_plan *p, size_t i);
const struct nt_plan_result *nt_plan_result(const struct nt_plan *p); /* after FINISHED */

struct nt_plan_progress {
    enum nt_stage stage;
    double done; /* of the stage, 0 … 1 */
    uint64_t trials;
    uint64_t held_ns; /* GPUs held so far */
    uint64_t left_ns; /* estimate, 0: not known yet */
    double best_gain; /* largest estimated gain so far, log units */
    struct nt_case best_case;
    struct nt_call best_call;
};
void nt_plan_progress(const struct nt_plan *p, struct nt_plan_progress *ret);
/* Least budget that works, known from the end of the preflight on; 0 before. */
uint64_t nt_plan_least_budget(const struct nt_plan *p);
