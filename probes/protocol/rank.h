/*
 * rank - the whole life of a rank that answers by itself, one question at a time: for probes that
 * replay or simulate. What it answers is its own: a table of functions.
 *
 * Errors     whatever ends the rank is said to the driver, in an `error` message, and on stderr.
 * Ownership  what a ready points to is borrowed until the next call; a result's ns is freed by the
 * loop.
 */
#pragma once
#include "probes/protocol/protocol.h"
#include "tuner/base/cli.h"

struct nt_rank_ops {
    /* Everything that is there before the driver is asked anything. arg: the program's one
     * argument. */
    int (*open)(void *self, unsigned rank, unsigned world, const char *arg, struct nt_err *err);
    void (*hello)(void *self, struct nt_hello *h); /* v, rank, world and pid are set */
    int (*init)(void *self, const struct nt_init *i, struct nt_ready *ready, uint64_t *ret_took_ns,
                struct nt_err *err);
    void (*cells)(void *self, const struct nt_case *c, struct nt_cells *ret);
    void (*measure)(void *self, const struct nt_measure *m, struct nt_result *ret);
    void (*close)(void *self); /* also after an open that failed */
};

/* Parses the command line into *args (command->size bytes), serves, and returns the exit code.
 * *pace, which lies in args, is read after that: "real" takes as long as the answers say it took.
 */
int nt_rank_main(const struct nt_command *command, int argc, char **argv, void *args,
                 const char *const *pace, const struct nt_rank_ops *ops, void *self);
