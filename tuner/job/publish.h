/* publish - from a finished plan to the profile document and the store's conclusions. */
#pragma once
#include "profiles/json/profile.h"
#include "tuner/job/facts.h"
#include "tuner/job/plan.h"
#include "tuner/store/store.h"

/* The caller owns *ret. job: id in its database, for the document. */
NT_MUST_CHECK int nt_publish_profile(const struct nt_spec *spec, const struct nt_plan *plan,
                                     const struct nt_facts *facts, const char *version, int64_t job,
                                     struct nt_profile **ret, struct nt_err *err);
/* The same document while the job still confirms: only what the delivery file needs. */
NT_MUST_CHECK int nt_publish_draft(const struct nt_spec *spec, const struct nt_plan *plan,
                                   const struct nt_facts *facts, const char *table_vars,
                                   struct nt_profile **ret, struct nt_err *err);
/* Verdicts of race and confirm, profile and rows. */
NT_MUST_CHECK int nt_publish_store(struct nt_store *store, int64_t job, const struct nt_plan *plan,
                                   const struct nt_profile *profile, struct nt_err *err);
/* Of a size that a row keeps as it was by the call `mine`: what the search would have had there, or
 * NULL, where that was no more than that, or the row is not what the default runs. */
const struct nt_found_arm *nt_publish_forgone(const struct nt_found *f, const struct nt_call *mine);
