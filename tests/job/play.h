/*
 * play - a whole job in the made-up machine, and its result as text that two jobs are compared by.
 */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/job/world.h"
#include "tuner/base/buf.h"

/* 4 ranks, all_reduce, eager and graph, bf16 raced beside fp32, both placements, finished. */
struct nt_spec play_spec(const char *sizes, uint64_t seed);

struct play {
    struct nt_spec spec;
    struct world w;
    struct nt_plan *plan;
    const struct nt_plan_result *r; /* NULL when the job failed */
    struct nt_err err;
    int rc;
};

/* Runs p->spec in p->w. The caller calls play_done(). */
void play(struct play *p);
void play_done(struct play *p);

/* Every field of a result, floating point exactly. */
void play_text(const struct nt_plan_result *r, struct nt_buf *out);
/* Fails the test when a published row is slower than the default by the machine's truth, with
 * `factor` taken into account, or reaches beyond the ladder. */
void play_never_worse(const struct play *p);
/* The published class of the table at that size and mode, or NULL. */
const struct nt_class_result *play_published(const struct play *p, uint64_t bytes,
                                             enum nt_mode mode);
