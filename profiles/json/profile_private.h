/* What the files of this folder share. */
#pragma once
#include "profiles/json/profile.h"
#include "tuner/base/json.h"

/* One JSON object that nt_profile_parse() would read; NULL: *err says what is not writable. */
json_t *nt_profile_to_json(const struct nt_profile *p, struct nt_err *err);
/* One class as it stands in the document; as above. */
json_t *nt_profile_class_json(const struct nt_profile_class *c, struct nt_err *err);
/* Fills an empty profile. Checks types, names and texts, not meaning. */
NT_MUST_CHECK int nt_profile_from_json(struct nt_profile *p, const json_t *doc, struct nt_err *err);
/* The commands of every class: made, never taken from a document. */
void nt_profile_fill_reproduce(struct nt_profile *p);
