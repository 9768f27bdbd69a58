/* tpe - Optuna's sampler in a Python process, a line a question. */
#pragma once
#include "tests/bench/rivals.h"

/* A study of one case: algorithm/protocol is a category, the count of channels a number. */
NT_MUST_CHECK int tpe_study(struct tpe *t, uint32_t study, const struct land_case *c, uint64_t seed,
                            struct nt_err *err);
/* … of a choice among n, numbered. */
NT_MUST_CHECK int tpe_choice(struct tpe *t, uint32_t study, uint32_t n, uint64_t seed,
                             struct nt_err *err);
NT_MUST_CHECK int tpe_ask(struct tpe *t, uint32_t study, uint32_t *ret_arm, struct nt_err *err);
NT_MUST_CHECK int tpe_tell(struct tpe *t, uint32_t study, double y, struct nt_err *err);
