/* engine_arg - what `run` and `install` tell an engine's plugin: the form for it, whose file lies
 * where they put it, and the variables that go with it. */
#pragma once
#include <jansson.h>
#include "profiles/json/profile.h"
#include "tuner/deliver/apply.h"

extern const char *const nt_engine_arg_names[]; /* "sglang", "vllm" */

struct nt_engine_arg {
    struct nt_buf form; /* bytes of the file */
    char path[512];     /* where it must lie; "": the profile has no row for this engine */
    struct nt_assign vars[NT_APPLY_MORE];
    size_t n;
    char arguments[512]; /* that the engine must be started with, "" none */
    json_t *doc;         /* owns the variables' texts */
};

/* folder: of the form's file, absolute. What is lost goes to *notes, a line each.
 * nt_engine_arg_done() frees, also after a failure. */
NT_MUST_CHECK int nt_engine_arg_make(const struct nt_profile *p, const char *engine,
                                     bool variables_only, const char *folder,
                                     struct nt_engine_arg *ret, struct nt_buf *notes,
                                     struct nt_err *err);
void nt_engine_arg_done(struct nt_engine_arg *e);

/* No engine was named: says what of the profile that leaves out, a line to *notes; nothing where it
 * is nothing. */
void nt_engine_arg_unasked(const struct nt_profile *p, const char *engine, struct nt_buf *notes);
/* … of a profile that tells NCCL nothing. */
const char *nt_engine_arg_nothing(const struct nt_profile *p);
