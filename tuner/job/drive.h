/*
 * drive - does what a planner says: starts and ends gangs, asks them, and tells the planner what
 * came of it. One libuv loop; nothing blocks it.
 *
 * Ownership  config and what it points to live until on_end. nt_drive_start() gives *ret to the
 * loop: it is freed after on_end. Errors     whatever the planner, the sink or the machine cannot
 * go on with ends the drive with that error. Files      all below config.dir; removed as gangs end,
 * but for what the caller put there. Threads    the loop's thread.
 */
#pragma once
#include "tuner/gang/gang.h"
#include "tuner/job/plan.h"

/* Anything that hands out steps and learns of their outcomes: a tuning plan, a recording plan. */
struct nt_planner {
    int (*next)(void *plan, struct nt_plan_step *ret, struct nt_err *err);
    int (*tell)(void *plan, const struct nt_plan_outcome *o, struct nt_err *err);
    /* What next() would say, and nothing else happens. With it a question is asked before the
     * answer to the one before is kept, so that ranks do not wait for the disk; its own answer is
     * looked at after. NULL: never. */
    int (*peek)(void *plan, struct nt_plan_step *ret, struct nt_err *err);
    void *plan;
};

struct nt_drive_start {
    uint64_t start_ns, init_ns, memory_bytes;
    uint8_t status;
    const char *error; /* "" */
};

struct nt_drive_sink {
    /* A gang has come up: who its ranks are. Called before the START's on_step. May be NULL. */
    int (*on_ready)(void *data, const struct nt_plan_gang *g, const struct nt_hello *hello,
                    const struct nt_ready *ready, unsigned world, struct nt_err *err);
    /* A step is done; kept before anything else is heard of the ranks, and before a step that is no
     * question or of another stage. starts: per gang of a START, wall time of
     * its own start. */
    int (*on_step)(void *data, const struct nt_plan_step *s, const struct nt_plan_outcome *o,
                   const struct nt_drive_start *starts, struct nt_err *err);
    /* Variables of an arm beside the process setting (plugin, table): "NAME=VALUE" words appended
     * to *out. A table of ours that one names is carried to the ranks' hosts. */
    int (*arm_env)(void *data, enum nt_arm arm, struct nt_buf *out, struct nt_err *err);
    void (*on_end)(void *data, int rc, const struct nt_err *err);
    void *data;
};
struct nt_drive_config {
    const struct nt_planner *planner;
    const struct nt_drive_sink *sink;
    const char *program; /* the probe */
    const char *const *args;
    const char *dir; /* private folder, short (sockets) */
    unsigned ranks;
    const unsigned *devices; /* [ranks]; NULL: rank N has device N */
    enum nt_rig rig;
    const struct nt_remote *remote; /* the ranks are on other hosts; NULL: here */
    bool virtual_time;              /* a replay: outcomes carry the replayed times */
    const char *const *env;         /* "NAME=VALUE" of every rank in every arm, NULL-terminated */
    uint64_t max_bytes;
    const char *mps_program; /* NULL: from the PATH */
};

struct nt_drive_totals {
    uint64_t wall_ns;      /* from start to end */
    uint64_t measuring_ns; /* ranks at work on questions */
    uint64_t starting_ns;  /* gangs starting and ending */
    uint64_t gangs;
};

struct nt_drive; /* opaque */

NT_MUST_CHECK int nt_drive_start(uv_loop_t *loop, const struct nt_drive_config *config,
                                 struct nt_drive **ret, struct nt_err *err);
/* Ends gangs and daemon; on_end follows with NT_E_INTERRUPTED. Again: kills them. */
void nt_drive_interrupt(struct nt_drive *d);
/* After a resume: the gangs that the planner believes alive are started before the next step. */
void nt_drive_expect(struct nt_drive *d, const struct nt_plan_gang *gangs, size_t n);
/* Valid until on_end has returned. */
const struct nt_drive_totals *nt_drive_totals(const struct nt_drive *d);
