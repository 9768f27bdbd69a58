/*
 * remote - what all commands that speak to a service share: the token, and the service's words when
 * it says no.
 */
#pragma once
#include <stdio.h>
#include "tuner/base/json.h"

#define NT_REMOTE_DEFAULT "unix:/run/nccltune/nccltune.sock"

/* Of the file, or of the variable NCCLTUNE_TOKEN; nothing is appended when there is none. */
NT_MUST_CHECK int nt_remote_token(const char *file, struct nt_buf *out, struct nt_err *err);
/* What an answer of another status than the wanted one means: NT_E_INVAL when the request was at
 * fault, NT_E_NO when it was not allowed or not now, else NT_E_IO. */
NT_MUST_CHECK int nt_remote_refused(unsigned status, const struct nt_buf *body, struct nt_err *err);
/* "WHAT: words", as they may stand on a terminal; what is no text is left out. */
void nt_remote_print(FILE *out, const char *what, const json_t *words);
