/* plan_i - what the files of the plan share. Private to tuner/job. */
#pragma once
#include "tuner/base/rng.h"
#include "tuner/job/plan.h"
#include "tuner/search/compose.h"
#include "tuner/search/race.h"
#include "tuner/search/refine.h"
#include "tuner/stats/stats.h"

enum { MAX_ARMS = 64, MAX_CALLS = 160, MAX_PRE = 96 };
enum { MAX_PAIRS = 32 }; /* twice the most of a spec: points in doubt have as many again */

/* A call that was asked for in a cell, and the arm that ran. */
struct request {
    struct nt_call call;
    uint32_t arm;
};
struct arm {
    struct nt_call call; /* the first that led here */
    struct nt_executed executed;
    uint8_t status;  /* enum nt_status; not ok: out */
    uint8_t gated;   /* bit per mode: its data was right there */
    double look_log; /* its first block, until the races exist; NAN: none */
    uint32_t look_samples;
    uint32_t twin; /* under variables that act by the tuple alone: the arm that is it "as is" */
    uint32_t own_chunk; /* that NCCL would take for it by itself; 0: not shown */
};
/* Where the walk from the leaders of a ladder size to their neighbours in chunk size stands. */
struct chunk_walk {
    uint32_t leaders[NT_MODE_COUNT], n, at; /* arms; the one it starts from */
    uint32_t steps, chunk; /* looks in this direction, and where the last one was */
    uint32_t best, last;   /* arms: of the way so far; of the last look, NONE: it gave none */
    bool larger, found;    /* the direction; the best is not the leader */
    bool begun, done;
};
/* One ladder size under one process setting. */
struct cell {
    struct arm arms[MAX_ARMS];
    uint32_t narms;
    struct request calls[MAX_CALLS];
    uint32_t ncalls;
    bool explored, hopeless;
    bool outgrown[NT_ALGO_COUNT][NT_PROTO_COUNT]; /* far behind at a smaller size already */
    bool passed; /* in this gang: what is far behind in the first mode, over in the others */
    struct chunk_walk walk;
    uint32_t combo, step; /* where the exploration stands: algo × proto, rung of the ladder */
    struct nt_race *race[NT_MODE_COUNT];
    struct {
        double sum, most; /* of log block medians */
        uint32_t n;
    } def[NT_MODE_COUNT][NT_RACE_MAX_GANGS]; /* the default's, by gang of the setting */
};
struct setting {
    char vars[NT_SETTING_LEN];
    struct cell *cells; /* [npoints]; NULL until it is tried */
    uint32_t gangs;     /* used by its races */
    bool pinned;        /* each mode's pick is held in the races of the others */
    bool pressed;       /* races that ask for a gang have measured on in this one */
    bool again;         /* its last gang was lost: another goes on in its place */
    bool by_tuple;      /* its variables act by nothing but the tuple that is executed */
    uint32_t losses;
    double table_gain, static_gain, se;
    uint8_t status; /* ok, or why it is out */
};
/* One ladder size of one collective. */
struct point {
    uint8_t coll;
    uint64_t bytes;
    float cost[NT_ALGO_COUNT][NT_PROTO_COUNT];
    bool asked; /* NCCL consults a tuner for it */
    struct {
        double value[MAX_PRE]; /* log medians of default blocks as is */
        uint32_t gang[MAX_PRE];
        uint32_t n;
        struct nt_noise noise;
        double gang_sd; /* between gangs, this and the neighbouring sizes together */
        double detectable;
        double est_ns; /* the default's time as the preflight left it: shapes of blocks follow from
                          it */
    } pre[NT_MODE_COUNT];
    struct nt_executed def; /* what the default executes */
};

/* Kinds of check points of the confirm. */
enum check {
    CHECK_CLASS,
    CHECK_VARIANT,
    CHECK_EDGE,
    CHECK_OFF,
    CHECK_BUSY,
    CHECK_GROUP,
    CHECK_OTHER,
    CHECK_COUNT
};
enum { MOST_BLOCKS = 8 }; /* of an arm at one point of a pair */
struct check_point {
    struct nt_case cs; /* dtype and place are chosen per pair when rotates */
    enum check kind;
    uint32_t row, point; /* NONE: belongs to no row */
    uint32_t flags;      /* NT_M_* */
    bool rotates;
    bool arms[NT_ARM_COUNT];           /* who runs it; baselines always */
    double x[NT_ARM_COUNT][MAX_PAIRS]; /* log ns per pair, of all its blocks; NAN: none */
    uint8_t blocks[NT_ARM_COUNT][MAX_PAIRS];
    double of_pair[NT_ARM_COUNT][MOST_BLOCKS]; /* log ns of the blocks of the pair at hand */
    double est_ns;
    struct nt_call call;  /* of the table there */
    struct nt_call asked; /* how the search asked for it: what a replay knows */
    uint32_t kept;        /* row that keeps this case of an untuned collective; NONE */
    bool not_recorded, broken[NT_ARM_COUNT];
    bool longer;                          /* looked at in the further pairs */
    struct nt_executed ran[NT_ARM_COUNT]; /* read back in the first pair; channels 0: not */
};
struct row { /* before and after the confirm */
    uint8_t coll;
    struct nt_row range; /* indices into sizes, bytes */
    struct nt_call call;
    struct nt_executed executed;
    bool out;
    char why[96];
    float *norm[2]; /* normalised samples of default and tuned, for the tail */
    size_t nnorm[2];
    size_t ends[2][MAX_PAIRS]; /* of each pair's among them */
};

enum purpose {
    FOR_NOTHING,
    FOR_WARM,
    FOR_NOISE,
    FOR_TYPE,
    FOR_EXPLORE,
    FOR_CHUNK,
    FOR_BLOCK,
    FOR_GATE,
    FOR_KEPT_LOOK,
    FOR_KEPT_BLOCK,
    FOR_KEPT_GATE,
    FOR_CHECK,
    FOR_CANARY,
    FOR_BACKEND_LOOK,
    FOR_BACKEND_BLOCK,
    FOR_BACKEND_GATE,
    FOR_BACKEND_CHECK,
    PURPOSE_COUNT
};
/* A queued step with what it is for. */
struct todo {
    struct nt_plan_step step;
    enum purpose purpose;
    uint32_t setting, point, mode, arm, index, rep;
};

struct confirm {
    struct check_point *points;
    size_t npoints;
    uint32_t pair, redo;
    uint32_t further; /* pairs after those of the spec, of points in doubt; 0: none */
    enum nt_arm arms[NT_ARM_COUNT];
    size_t narms;
    uint64_t begun_ns; /* used by the job when the pairs began */
    double pace;       /* of an earlier round, or of the pairs before the further ones; 0: there
                          was none */
    bool started, judged;
    bool again;        /* the second round: a table without the variables that the first had */
    bool table, fixed; /* products that take part: table, static */
};

/* ---- rows that keep untuned collectives as they are without the table's variables ---- */

enum { OTHER_SIZES = 3, MAX_OTHERS = NT_TUNER_COLLS * OTHER_SIZES };
/* NCCL left alone, NCCL by itself under the variables; first what ran without them, then others */
enum { KEPT_AS_IS, KEPT_OWN, KEPT_FIRST, KEPT_ARMS = KEPT_FIRST + 4 };
struct kept_arm {
    struct nt_call call;
    struct nt_executed executed;
    uint8_t status;        /* enum nt_status; not ok: out */
    double x[MOST_BLOCKS]; /* log ns of each round; NAN: none */
};
struct kept_case {
    struct nt_case cs;
    uint64_t min_bytes, max_bytes; /* of its row */
    float cost[NT_ALGO_COUNT][NT_PROTO_COUNT];
    struct kept_arm arms[KEPT_ARMS];
    uint32_t narms;
    double est_ns, gang_sd, noise; /* the last two in log units */
    bool pays;                     /* for the variables, when left to itself */
    uint32_t first, pick, gated;   /* arms; NONE: none */
};
enum kept_phase { KEPT_NEW, KEPT_LOOK, KEPT_BLOCKS, KEPT_REST, KEPT_GATE, KEPT_DONE };
struct kept {
    enum kept_phase phase;
    struct kept_case cases[MAX_OTHERS];
    uint32_t ncases, gangs;
    bool by_tuple; /* the variables act by nothing else */
};

/* ---- backends: a race and a confirm of their own, in gangs whose calls name their backend ---- */

enum { MAX_BACKEND_ARMS = 24 };
struct backend_arm {
    struct nt_call call;
    struct nt_executed executed;
    uint8_t status;              /* enum nt_status; not ok: out */
    uint8_t gated;               /* a bit per mode: its data was right there */
    uint8_t bits[NT_MODE_COUNT]; /* enum nt_bits: the worst that was seen there */
    double look_log;             /* its first block; NAN: none */
    uint32_t look_samples;
    bool tried[NT_MODE_COUNT][NT_DTYPE_COUNT][NT_PLACE_COUNT],
        right[NT_MODE_COUNT][NT_DTYPE_COUNT][NT_PLACE_COUNT];
};
struct backend_cell {                          /* one ladder size */
    struct backend_arm arms[MAX_BACKEND_ARMS]; /* [0] is NCCL left alone */
    uint32_t narms, variant;                   /* variant: the next to look at */
    bool explored;
    struct nt_race *race[NT_MODE_COUNT];
    uint32_t pick[NT_MODE_COUNT]; /* 0: NCCL stays */
    bool no_time[NT_MODE_COUNT];  /* to confirm the pick */
};
struct backend_check {
    struct nt_case cs;
    enum check kind;
    uint32_t point, arm, flags;
    double est_ns;
    double x[NT_ARM_COUNT][MAX_PAIRS];
    uint8_t blocks[NT_ARM_COUNT][MAX_PAIRS];
    bool table;     /* a published row of the table serves it: it must be beaten too */
    float *norm[2]; /* samples of default and backend over est_ns, for the tail; classes only */
    size_t nnorm[2];
    bool broken, refused; /* refused: it is broken for no worse reason than that */
};
enum backend_phase { BACKENDS_NEW, BACKENDS_RACE, BACKENDS_GATE, BACKENDS_PAIRS, BACKENDS_DONE };
struct backends {
    enum backend_phase phase;
    struct backend_cell *cells; /* [npoints] */
    uint32_t gangs, rounds;     /* of the race; of the gate */
    bool out[NT_BACKEND_COUNT]; /* wrong once, or hung twice: out of the job */
    bool variant_out[NT_BACKEND_COUNT][NT_ALGO_ALL + 1][NT_PROTO_ALL + 1];
    uint32_t hangs[NT_BACKEND_COUNT];
    uint32_t bans, bans_known; /* taken out, in all; those after which races began anew */
    double beside_ns[2]; /* what blocks took beside their calls: of NCCL left alone, of backends */
    uint32_t nblocks[2];
    struct backend_check *checks;
    size_t nchecks;
    uint32_t pair, redo;
    uint64_t begun_ns;        /* used by the job when the pairs began */
    double guessed_ns;        /* of the pairs so far */
    uint32_t dropped;         /* sizes and modes, for want of time */
    bool started, with_table; /* the pairs; a published table takes part */
    bool told;                /* where NCCL stays is in the result */
};

struct nt_plan {
    struct nt_spec spec;
    struct nt_rng rng;
    struct nt_err failed; /* code set: the job cannot go on */
    enum nt_stage stage;
    bool finished;
    uint64_t seq, gang_number, trials;
    uint64_t held_ns, reserve_ns, start_ns; /* start_ns: mean time to start gangs */
    uint32_t starts;

    struct todo *queue;
    size_t head, tail, cap;
    struct nt_plan_gang live[NT_PLAN_GANGS];
    size_t nlive;
    uint32_t live_setting;   /* of a search gang */
    uint32_t losses;         /* gangs lost in a row without a good trial between */
    uint32_t default_losses; /* gangs lost over NCCL left alone, in all */
    bool canary;             /* the next gang first shows that the default still works */

    struct point *points;
    uint32_t npoints;
    uint32_t *order; /* scratch: points in random order */
    enum nt_mode modes[NT_MODE_COUNT];
    uint32_t nmodes;
    enum nt_dtype raced_dtype;
    enum nt_place raced_place;
    bool absent[NT_COLL_COUNT][NT_DTYPE_COUNT]; /* NCCL or the device has no such type there */

    struct setting settings[NT_MAX_SETTINGS * 2];
    uint32_t nsettings;

    /* preflight */
    uint32_t pre_gang, warm_n;
    double warm[4];

    /* race and refine */
    uint64_t gang_ns; /* measured in the search gang alive, first looks left out */
    uint32_t cursor, race_gang, hangs[NT_ALGO_COUNT][NT_PROTO_COUNT];
    bool chunks_out[NT_ALGO_COUNT]
                   [NT_PROTO_COUNT]; /* a chunk failed there: no other is asked for */
    struct nt_refine *refine;
    bool refine_begun, refined;                /* refine_at has its gang; the table's is chosen */
    uint32_t refine_at;                        /* setting being tried; 0: none */
    uint32_t table_values[NT_REFINE_MAX_VARS]; /* of the table's setting */
    uint32_t weighed;                          /* gangs that the table's had when last weighed */
    double level_sd, level_df;                 /* what gangs do to all cases alike */
    uint32_t knobs[NT_REFINE_MAX_VARS][16];    /* setting index of each value, [k][0] = 0 */
    uint32_t knob_values[NT_REFINE_MAX_VARS], nknobs;
    uint32_t table_setting;

    struct row rows[NT_MAX_ROWS];
    uint32_t nrows;
    struct nt_row_result
        served[NT_MAX_ROWS]; /* rows as the delivery file of the confirm has them */
    uint32_t nserved;
    char static_vars[NT_SETTING_LEN];
    uint32_t gate_at;
    bool gate_started;
    struct kept kept;
    struct confirm confirm;
    struct backends backends;
    struct nt_drift_log drift;

    double best_gain;
    struct nt_case best_case;
    struct nt_call best_call;
    struct nt_found found;
    struct nt_found_arm found_arms[MAX_ARMS];
    struct nt_plan_result result;
};

#define NONE UINT32_MAX

/* plan.c */
struct todo *plan_push(struct nt_plan *p, enum nt_do kind, enum purpose purpose);
void plan_flush(struct nt_plan *p);
int plan_start(struct nt_plan *p, const enum nt_arm *arms, size_t n, uint32_t setting);
void plan_stop(struct nt_plan *p);
struct todo *plan_measure(struct nt_plan *p, size_t live, enum purpose purpose,
                          const struct nt_case *cs, struct nt_call call, double est_ns,
                          unsigned samples);
struct nt_case plan_case(const struct nt_plan *p, uint32_t point, enum nt_mode mode);
/* Is the job to serve that type and placement, and is it there? */
bool plan_serves(const struct nt_plan *p, uint8_t coll, int dtype, int place);
unsigned plan_inner(enum nt_mode mode, double est_ns);
unsigned plan_samples(enum nt_mode mode, double est_ns);
double plan_log_median(const struct nt_result *r); /* NAN without samples */
void plan_not_checked(struct nt_plan *p, const char *fmt, ...) NT_PRINTF(2, 3);
double plan_default_log(const struct nt_plan *p, uint32_t setting, uint32_t point,
                        enum nt_mode mode);
/* What a case is worth, by time that it takes in the workload; without one all are worth 1. */
double plan_weight(const struct nt_plan *p, uint32_t point, enum nt_mode mode);
double plan_default_ns(const struct nt_plan *p, uint32_t point, enum nt_mode mode);
enum { LEAST_PAIRS = 8 };                       /* that can prove anything at alpha */
uint64_t plan_used_ns(const struct nt_plan *p); /* of the budget */
bool plan_search_over(const struct nt_plan *p);

/* Each stage queues steps while it has any; false: the stage is over. */
typedef bool (*stage_fn)(struct nt_plan *p);
bool preflight_refill(struct nt_plan *p);
bool race_refill(struct nt_plan *p);
bool refine_refill(struct nt_plan *p);
bool gate_refill(struct nt_plan *p);
bool confirm_refill(struct nt_plan *p);
bool backends_refill(struct nt_plan *p);
bool publish_refill(struct nt_plan *p);

typedef void (*tell_fn)(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void preflight_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void preflight_type_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void explore_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void chunks_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void block_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void gate_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void kept_cells_tell(struct nt_plan *p, const struct todo *t, const struct nt_cells *cells);
void kept_look_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void kept_block_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void kept_gate_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void check_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void backend_look_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void backend_block_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void backend_gate_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);
void backend_check_tell(struct nt_plan *p, const struct todo *t, const struct nt_plan_outcome *o);

/* plan_explore.c */
/* The mode of the looks; the others follow it. */
static inline enum nt_mode explore_mode(const struct nt_plan *p)
{
    return p->modes[0];
}
/* Queues the next look of a ladder size in the live gang; false: its tuples are all known. */
bool explore_push(struct nt_plan *p, uint32_t setting, uint32_t point);
/* Queues the look of one call: read back, its data compared, then timed. */
void explore_look(struct nt_plan *p, enum purpose purpose, uint32_t setting, uint32_t point,
                  const struct nt_call *call);
/* The arm that is this tuple: what was executed, and the chunk that was asked for; NONE: none. */
uint32_t explore_find(const struct cell *c, const struct nt_executed *x, uint32_t chunk_bytes);
/* A tuple more of the cell that the look was of. */
void explore_add(struct nt_plan *p, const struct todo *t, const struct nt_result *r);
/* A call that was to be measured failed so: what is not asked for again anywhere. */
void explore_failed(struct nt_plan *p, const struct nt_call *call, uint8_t status);

/* plan_chunks.c */
/* Arms that the walk may add to a cell whose tuples are all known. */
uint32_t chunks_room(const struct nt_plan *p, const struct cell *c);
/* To be called when the races want nothing more of the live gang. True: a look is queued, and the
 * races want it; false: the walk is over. */
bool chunks_push(struct nt_plan *p, uint32_t setting, uint32_t point);
/* A call with a chunk failed: with its algorithm and protocol none is asked for any more, and after
 * wrong data, a hang or an error all that were are out. */
void chunks_failed(struct nt_plan *p, const struct nt_call *call, uint8_t status);

/* plan_search.c */
/* Of arms that tie the smaller wins: fewer channels, then NCCL's own chunk. */
static inline uint32_t search_tie_rank(const struct arm *a)
{
    return a->executed.channels * 2U + (a->call.chunk_bytes > 0);
}
uint32_t search_resolve(const struct cell *c,
                        const struct nt_call *call); /* arm that runs it; NONE: not known */
double search_effect(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode mode,
                     uint32_t arm, double *ret_se); /* log(arm / default as is) */
/* The same with its error in parts: what blocks and gangs did to this arm, and what the gangs of
 * the setting did to its default, against those as is. */
double search_effect_apart(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode mode,
                           uint32_t arm, double *ret_own_se, double *ret_level_se);
bool search_have_cells(struct nt_plan *p, uint32_t setting);
void search_enter_gang(struct nt_plan *p, uint32_t setting);
bool search_work(struct nt_plan *p, uint32_t setting); /* false: nothing more in this gang */
bool search_race(struct nt_plan *p, uint32_t setting); /* false: its races are over */
double search_gang_price(const struct nt_plan *p, uint32_t setting);
enum { MAX_SETTING_LOSSES = 2 }; /* gangs of one process setting */
struct effort {
    uint32_t max_gangs, settings;
    double refine_share; /* of the confirm's time that may go into process settings */
    double worth;        /* of what a fresh gang must promise */
    uint32_t chunks;     /* steps to smaller and to larger chunks from a leader */
};
const struct effort *search_effort(const struct nt_plan *p);
/* What one gang or block says this far beyond its error (log units) is believed against all that is
 * known: calls that are short may differ by half of it. */
extern const double search_far;
/* plan_refine.c */
/* The arm that a setting would run in a case, and its effect as above; NONE: not known. */
uint32_t refine_pick(struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode mode,
                     double *ret_effect, double *ret_own_se, double *ret_level_se);
/* Log default time of a setting as its gangs saw it, stray ones left out, and how many saw it. */
double refine_level(const struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode mode,
                    uint32_t *ret_gangs);
/* The same of one gang: of the setting's races, those of the preflight follow; NAN: none. */
double refine_level_in(const struct nt_plan *p, uint32_t setting, uint32_t point, enum nt_mode mode,
                       uint32_t gang);
/* sd of what all cases of a setting have in common by its gangs and those as is. */
double refine_level_se(const struct nt_plan *p, uint32_t setting);
/* What the start of a gang costs each of so many races that share it, in full blocks of its own. */
double search_gang_blocks(const struct nt_plan *p, uint32_t point, enum nt_mode m, uint32_t races);
/* plan_compose.c */
int compose_products(struct nt_plan *p, struct nt_err *err);
bool compose_same(const struct arm *a, const struct arm *b); /* known to execute the same tuple */
/* p95 of tuned over default; NAN: too few iterations to judge it. */
double publish_tail(const float *def, size_t ndef, const float *tuned, size_t ntuned);
extern const double publish_tail_limit;
double compose_expected(struct nt_plan *p, uint32_t setting, bool hopeful, double *ret_chance);
/* plan_kept.c */
/* The cases by which the untuned collectives are judged under a product's variables: three sizes of
 * each, eager; ret_sizes: their indices in the ladder. Returns how many. */
uint32_t kept_others(const struct nt_plan *p, struct nt_case ret[MAX_OTHERS],
                     uint32_t ret_sizes[MAX_OTHERS]);
/* The last part of the gate: which of them get a row; false: over. */
bool kept_refill(struct nt_plan *p);
/* What the row of the at-th of them asks for; returns at, or NONE: there is no row. */
uint32_t kept_call(const struct nt_plan *p, uint32_t at, struct nt_call *ret);
/* Pays a call for the variables, by log(NCCL's own choice under them / what runs without), give or
 * take se? By half of the guard: the other half is for the noise of the confirm. */
bool kept_is_slower(double log_ratio, double se, double guard);
/* Or may the confirm, whose bound is off by `noise`, not be able to tell it within the guard? */
bool kept_is_in_doubt(double log_ratio, double se, double guard, double noise);
/* May another tuple stand in its place? */
bool kept_is_no_slower(double log_ratio, double se, double guard);
/* plan_publish.c */
/* Marks the points of which the guard says no only because their pairs are too few: by their mean
 * they are within it, and a gain hangs on them. False: there is none. */
bool publish_mark_doubts(struct nt_plan *p);
void publish_pairs(
    struct nt_plan *p); /* what the pairs so far say, into the result; once a round */
/* plan_backends.c */
void backends_free(struct nt_plan *p);
void backends_note(struct nt_plan *p, const struct nt_call *call, const char *why);
/* Wrong data, a hang or an error: what is never asked for again, anywhere. */
void backends_ban(struct nt_plan *p, const struct nt_call *call, const struct nt_result *r);
/* plan_backends_confirm.c */
/* Time that pairs take in which every contender wins, by what blocks took so far. */
double backends_pairs_ns(const struct nt_plan *p);
bool backends_set_up_pairs(struct nt_plan *p); /* false: nothing to confirm */
bool backends_next_pair(struct nt_plan *p);    /* false: judged */
void backends_keep(struct nt_plan *p);         /* what the race says where nothing was confirmed */
/* plan_confirm.c */
uint64_t confirm_cost_ns(const struct nt_plan *p);
bool confirm_once(enum check kind); /* one point of a row, by which all of it stands or falls */
/* That a block takes longer by a product beside it, which is begun and ended with it: 30 ms eager,
 * 70 in a graph on one H200 that four ranks share. */
double confirm_beside_ns(enum check kind);
uint32_t confirm_blocks(enum check kind, enum nt_mode m, double est_ns); /* an arm and pair */
/* Of all pairs, by guess, when their points are known. */
double confirm_exact_ns(const struct nt_plan *p);
/* One more pair of the points that are looked at for longer, by guess. */
double confirm_further_ns(const struct nt_plan *p);
/* How long pairs took, by what was guessed; 1: there was none. */
double confirm_pace(const struct nt_plan *p);
/* Starts a pair of these arms in an order by chance, and queues their blocks at all points: points
 * in an order by chance, A B … B A at each. */
void confirm_start_pair(struct nt_plan *p, enum nt_arm *arms, size_t n, uint32_t npoints,
                        uint32_t (*blocks_of)(const struct nt_plan *p, uint32_t index),
                        void (*push)(struct nt_plan *p, uint32_t index, size_t live, uint32_t rep));
/* sd of log(tuned / default) of one pair, as the preflight saw the noise */
double confirm_sd(const struct nt_plan *p, uint32_t point, enum nt_mode m);
/* … and as it were if gangs differed by so much. */
double confirm_sd_of(const struct nt_plan *p, uint32_t point, enum nt_mode m, double gang_sd);
void confirm_free(struct nt_plan *p);
bool confirm_same_work(const struct nt_plan *p, const struct check_point *c, enum nt_arm arm);
bool confirm_by_tuple(const char *vars);
bool confirm_as_asked(const struct nt_executed *x, const struct nt_call *call);
uint64_t confirm_align(const struct nt_plan *p, uint64_t bytes); /* down, to what ranks share */
