/*
 * access - who may do what: three roles, tokens of a file, users of this machine.
 *
 * Only hashes of tokens are kept; all are compared, each in constant time.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "tuner/base/err.h"

enum nt_role { NT_ROLE_NONE, NT_ROLE_READ, NT_ROLE_SUBMIT, NT_ROLE_ADMIN, NT_ROLE_COUNT };
extern const char *const nt_role_names[]; /* "none", "read", … NULL */

enum { NT_TOKENS = 64, NT_TOKEN_MIN = 16 };

struct nt_token {
    enum nt_role role;
    unsigned char hash[32];
    char name[32];
    unsigned line; /* of the file */
};
struct nt_access {
    struct nt_token tokens[NT_TOKENS];
    size_t n;
    enum nt_role others; /* of a local user who is neither root nor the service's own */
};

/* "ROLE TOKEN [NAME]" lines; replaces those there were, unless it fails. A file that others may
 * read is refused, and one with a token twice. */
NT_MUST_CHECK int nt_access_read(struct nt_access *a, const char *path, struct nt_err *err);
NT_MUST_CHECK int nt_access_parse(struct nt_access *a, const char *text, struct nt_err *err);
/* The role of "Bearer TOKEN" (NULL: NONE), and a name for logs, "" when unknown. */
enum nt_role nt_access_token(const struct nt_access *a, const char *authorization,
                             const char **ret_name);
enum nt_role nt_access_peer(const struct nt_access *a, uid_t peer, uid_t self);
