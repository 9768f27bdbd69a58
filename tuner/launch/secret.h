/*
 * secret - how the two ends of a connection tell that they belong to one launch, without the secret
 * that both know ever being sent: each proves it over the other's nonce.
 *
 * The connection is authenticated when it begins, and not encrypted: it is for networks on which
 * nobody changes what others send.
 */
#pragma once
#include <stdbool.h>
#include "tuner/base/err.h"

enum { NT_SECRET_LEN = 64, NT_PROOF_LEN = 64 }; /* hex digits */

/* From the kernel's random numbers. out: NT_SECRET_LEN + 1 bytes. */
NT_MUST_CHECK int nt_secret_make(char *out, struct nt_err *err);
/* HMAC-SHA-256 of "ROLE NAME MINE THEIRS" under the secret, NT_SECRET_LEN digits, as hex; the
 * parts are at most 128 bytes each. out: NT_PROOF_LEN + 1 bytes. */
void nt_secret_proof(const char *secret, const char *role, const char *name, const char *agent,
                     const char *driver, char *out);
/* Equal, in a time that tells nothing of where they differ. */
bool nt_secret_same(const char *a, const char *b);
