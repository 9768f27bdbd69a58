/*
 * check_plan - is a profile still true? Fresh pairs of a default and a tuned gang, alive together,
 * every row at its inside point in each mode that it serves, blocks in turns; in the same gangs
 * what the machine does without NCCL. Rows that cannot be told yet get further pairs, and are
 * looked at again when the pairs have doubled, until each is told or a limit is reached. Pure like
 * the plan of a job.
 *
 * Chances    over all looks together. Each row: said to hold although nothing is gained (or it is
 * slower than a guard lets it be), NT_CHECK_MISS. The whole check: some row said to have drifted
 * although none has, NT_CHECK_ALARM. What a look may spend of them is the root of the share of the
 * most pairs that are there (Lan and DeMets), less what earlier looks spent; that the spent parts
 * add up holds whatever the looks have in common.
 *
 * Units      ratios and moves are natural logarithms; positive ratio: tuned is faster; positive
 * move: slower than it was. Ownership  nt_check_plan_new() gives *ret to the caller, who passes it
 * to nt_check_plan_free(); the rows that it was given are filled in and stay the caller's.
 */
#pragma once
#include "profiles/json/profile.h"
#include "tuner/job/plan.h"
#include "tuner/stats/stats.h"

enum { NT_CHECK_ROWS = 256, NT_CHECK_PAIRS = 256, NT_CHECK_LEAST_PAIRS = 2 };
#define NT_CHECK_MISS  0.025
#define NT_CHECK_ALARM 0.01

enum nt_check_verdict {
    NT_CK_HOLDS,
    NT_CK_DRIFTED,     /* the interval lies below what was proved: less, gone or slower */
    NT_CK_CANNOT_TELL, /* too noisy for the pairs that there were */
    NT_CK_NOT_MEASURED,
    NT_CK_COUNT
};
extern const char *const nt_check_verdict_names[]; /* "holds", "drifted", … NULL */

enum nt_move { NT_MOVE_UNKNOWN, NT_MOVE_SAME, NT_MOVE_SLOWER, NT_MOVE_FASTER, NT_MOVE_COUNT };
extern const char *const nt_move_names[]; /* "cannot tell", "as before", "slower", "faster", NULL */

struct nt_check_row {
    /* of the profile */
    struct nt_case cs;
    uint64_t min_bytes, max_bytes; /* of its row; both 0: variables alone */
    struct nt_call call;           /* what the row asks */
    struct nt_executed executed;   /* what it ran when it was proved; channels 0: not known */
    struct nt_call asked;          /* what a replay is asked: a call that was recorded */
    /* Ratio that was proved, and times; NAN: not known of this data type, was_lo is 0 then. */
    double was, was_lo, was_hi;
    double was_default_ns, was_tuned_ns;
    bool gains; /* faster was proved; else only that it is no slower */
    /* found */
    struct nt_est ratio; /* over pairs; the interval has 95 % over all looks */
    double most;         /* bound of the ratio from above that a drift is told by */
    struct nt_est log_default, log_tuned; /* over pairs, 95 % */
    enum nt_check_verdict verdict;
    char why[160]; /* "" when it holds */
};
struct nt_check_control {
    const char *name; /* "copy", "launch" */
    uint32_t flag;    /* NT_M_COPY, NT_M_LAUNCH */
    uint64_t bytes;
    struct nt_est log_ns; /* over gangs; n = 0: not measured on this rig */
};
enum { NT_CHECK_CONTROLS = 2 };

/* The product that would be delivered (the table where there is one) and its rows: of each row the
 * middle one of its sizes, in each mode that has evidence; of variables alone the sizes that they
 * made faster. A profile that sets nothing: *ret_n is 0. */
NT_MUST_CHECK int nt_check_rows(const struct nt_profile *p, enum nt_product *ret_product,
                                struct nt_check_row *rows, size_t *ret_n, struct nt_err *err);

/* What is measured beside the rows, not yet measured. */
void nt_check_controls(struct nt_check_control ret[NT_CHECK_CONTROLS]);

struct nt_check_spec {
    enum nt_arm arm;  /* NT_ARM_TABLE or NT_ARM_STATIC */
    const char *vars; /* of the tuned gang, "NAME=VALUE NAME=VALUE"; lives as long as the plan */
    struct nt_check_row *rows;
    size_t nrows;
    unsigned least, most; /* pairs: before the first look, at the last one */
    uint64_t budget_ns;   /* no pair is begun that would not end within it; 0: no limit. The least
                             pairs are measured all the same */
    uint64_t seed;
};
struct nt_check_plan; /* opaque */
NT_MUST_CHECK int nt_check_plan_new(const struct nt_check_spec *spec, struct nt_check_plan **ret,
                                    struct nt_err *err);
void nt_check_plan_free(struct nt_check_plan *p);
NT_MUST_CHECK int nt_check_next(void *plan, struct nt_plan_step *ret, struct nt_err *err);
NT_MUST_CHECK int nt_check_tell(void *plan, const struct nt_plan_outcome *o, struct nt_err *err);
/* After the last step: fills what was found of the rows, and *controls. Returns the pairs that
 * counted; a row that was told early has fewer. */
unsigned nt_check_judge(struct nt_check_plan *p,
                        struct nt_check_control controls[NT_CHECK_CONTROLS]);

/* Of what was measured now against a time that was measured before (NAN, 0: never). */
enum nt_move nt_check_move(const struct nt_est *log_now, double was_ns);
/* Estimates and verdict of one row, from the logarithms of its times in each pair (NAN: none). What
 * may be spent at this look, one-sided: `miss`, that it is falsely said to hold, `alarm`, to have
 * drifted. */
void nt_check_row_judge(struct nt_check_row *r, const double *log_default, const double *log_tuned,
                        size_t pairs, double miss, double alarm);
/* Share of a chance that looks up to the one after `pairs` may have spent together. */
double nt_check_spent(unsigned pairs, unsigned most);
/* Pairs before the look after the one at `pairs`. */
unsigned nt_check_next_look(unsigned pairs, unsigned most);
/* Of the whole: drifted if a row has, else cannot tell if one cannot, else holds. */
enum nt_check_verdict nt_check_worst(const struct nt_check_row *rows, size_t n);
