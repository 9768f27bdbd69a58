/*
 * apply - the assignments that bring a profile into a process, and what becomes of each beside an
 * environment that is already there. Pure.
 *
 * Set if unset: a value that the user gave is kept and said. Names of ours (NCCLTUNE_*) that say
 * something else already are an error, because they mean another profile.
 */
#pragma once
#include "profiles/json/profile.h"

enum { NT_APPLY_VARS = 256 + 40, NT_APPLY_MORE = 32 };

enum nt_apply_how {
    NT_APPLY_SET,  /* had no value */
    NT_APPLY_SAME, /* had this value */
    NT_APPLY_KEPT, /* has another value of the user, which stays */
    NT_APPLY_COUNT
};
extern const char *const nt_apply_names[]; /* "set", "same", "kept" */

struct nt_apply_var {
    const char *name;
    const char *value;  /* the profile's */
    const char *before; /* the environment's, NULL if it has none */
    enum nt_apply_how how;
};

struct nt_apply_opts {
    enum nt_product product;
    unsigned nccl;                             /* release to write for; 0: that of the profile */
    const char *hash;                          /* of the delivery file */
    const char *table;                         /* its absolute path */
    const char *tuner, *env_plugin, *profiler; /* plugins' paths; NULL: not used */
    const char *job;                           /* NULL: none */
    unsigned local_ranks;                      /* 0: not told */
    const struct nt_assign *more;              /* of an engine's form: NCCLTUNE_BACKENDS… */
    size_t nmore;                              /* at most NT_APPLY_MORE */
};

struct nt_apply {
    struct nt_apply_var v[NT_APPLY_VARS];
    size_t n;
    char ranks[16];
};

/* Strings are borrowed from p, opts and env. One line a loss or warning to *notes. NT_E_NO: the
 * environment already has another profile, or a tuner plugin that is not ours. */
NT_MUST_CHECK int nt_apply(const struct nt_profile *p, const struct nt_apply_opts *opts,
                           const char *const *env, struct nt_apply *ret, struct nt_buf *notes,
                           struct nt_err *err);
