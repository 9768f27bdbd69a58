/*
 * json - typed access to jansson objects, with errors that name the path to the value.
 * Borrowed: strings returned live as long as the object. `what` names the document in messages.
 */
#pragma once
#include <jansson.h>
#include <stdint.h>
#include "tuner/base/buf.h"

/* Parses exactly one value; duplicate keys are an error. The caller owns *ret (json_decref). */
NT_MUST_CHECK int nt_json_parse(const char *text, size_t len, const char *what, json_t **ret,
                                struct nt_err *err);
NT_MUST_CHECK int nt_json_load(const char *path, size_t max_bytes, json_t **ret,
                               struct nt_err *err);
/* Sorted keys and two blanks of indent when pretty, one line otherwise; appended to *out. */
void nt_json_dump(const json_t *value, bool pretty, struct nt_buf *out);

/* A string of text that may be no UTF-8, which JSON cannot hold: such bytes become '?'. NULL:
 * no memory. */
json_t *nt_json_text(const char *text);

/* Required members: a missing key or another type is an error. */
NT_MUST_CHECK int nt_json_str(const json_t *o, const char *key, const char **ret,
                              struct nt_err *err);
NT_MUST_CHECK int nt_json_u64(const json_t *o, const char *key, uint64_t *ret, struct nt_err *err);
NT_MUST_CHECK int nt_json_i64(const json_t *o, const char *key, int64_t *ret, struct nt_err *err);
NT_MUST_CHECK int nt_json_num(const json_t *o, const char *key, double *ret, struct nt_err *err);
NT_MUST_CHECK int nt_json_obj(const json_t *o, const char *key, json_t **ret, struct nt_err *err);
NT_MUST_CHECK int nt_json_arr(const json_t *o, const char *key, json_t **ret, struct nt_err *err);
/* Optional members: absent or null gives `otherwise`; another type too. */
const char *nt_json_opt_str(const json_t *o, const char *key, const char *otherwise);
int64_t nt_json_opt_i64(const json_t *o, const char *key, int64_t otherwise);
double nt_json_opt_num(const json_t *o, const char *key, double otherwise);
bool nt_json_opt_bool(const json_t *o, const char *key, bool otherwise);
/* An object with a member not in `known` (NULL-terminated) is an error that suggests the near name.
 */
NT_MUST_CHECK int nt_json_only(const json_t *o, const char *what, const char *const *known,
                               struct nt_err *err);
