/*
 * fit - whether a profile fits a machine: decided once by run and install, never by the processes.
 * Pure.
 *
 * What does not fit stops, unless it was asked for by name; what cannot be told is said.
 */
#pragma once
#include "profiles/json/profile.h"
#include "tuner/base/cli.h"
#include "tuner/deliver/machine.h"

enum nt_fit_kind {
    NT_FIT_RIG,       /* not measured on a real node */
    NT_FIT_IDENTITY,  /* another machine: never passed over */
    NT_FIT_UNKNOWN,   /* nothing that both know */
    NT_FIT_HEALTH,    /* a finding that the profile was not made with */
    NT_FIT_STACK,     /* another NCCL or driver */
    NT_FIT_PLACEMENT, /* other GPUs than those of the profile's placement class */
    NT_FIT_SITE,      /* a site constraint that differs */
    NT_FIT_NOTE,
    NT_FIT_COUNT
};

struct nt_fit_item {
    enum nt_fit_kind kind;
    const char *name; /* how --despite names it; NULL: cannot be passed over that way */
    bool stops;
    bool passed; /* would stop, and was asked to be passed over */
    char text[320];
};
struct nt_fit {
    struct nt_fit_item v[64];
    size_t n;
    bool fits; /* nothing stops */
};
struct nt_fit_opts {
    int allow_rig;                 /* enum nt_rig; -1: only profiles of a real node */
    const struct nt_strs *despite; /* names; NULL: none */
    const char *const *env;        /* for site constraints and CUDA_VISIBLE_DEVICES */
};

/* "unknown", "stack", "placement" and the names of health findings; NULL-terminated. */
extern const char *const nt_fit_names[];

void nt_fit(const struct nt_profile *p, const struct nt_machine *m, const struct nt_fit_opts *opts,
            struct nt_fit *ret);
/* The options of run and install with which a profile that does not fit is taken all the same, as
 * "--allow-rig recording --despite unknown". false, and "", when it fits or no option helps. */
bool nt_fit_forced_by(const struct nt_profile *p, const struct nt_fit *f, char *out, size_t size);
/* The identity that a profile carries. */
void nt_profile_identity(const struct nt_profile *p, struct nt_identity *ret);
