#include "tuner/service/access.h"
#include "profiles/format/sha256.h"
#include "schema/vocab.h"
#include "tuner/base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { TOKENS_MAX_BYTES = 1 << 16 };

const char *const nt_role_names[] = {"none", "read", "submit", "admin", NULL};

static int take_line(struct nt_access *a, char *line, unsigned number, struct nt_err *err)
{
    char *rest = line, *role, *token, *name;
    struct nt_token *t = &a->tokens[a->n];
    int i;

    line += strspn(line, " \t\r");
    if (line[0] == '\0' || line[0] == '#') {
        return 0;
    }
    role = strtok_r(line, " \t\r", &rest);
    token = strtok_r(NULL, " \t\r", &rest);
    name = strtok_r(NULL, " \t\r", &rest);
    i = nt_vocab_find(nt_role_names, "role", role, err);
    if (i <= NT_ROLE_NONE) {
        return i < 0 ? i : nt_fail(err, NT_E_INVAL, 0, "the role none needs no token");
    }
    if (token == NULL || strlen(token) < NT_TOKEN_MIN) {
        return nt_fail(err, NT_E_INVAL, 0, "a token has at least %d characters", NT_TOKEN_MIN);
    }
    if (a->n == NT_TOKENS) {
        return nt_fail(err, NT_E_INVAL, 0, "more than %d tokens", NT_TOKENS);
    }
    t->role = (enum nt_role)i;
    t->line = number;
    nt_format_sha256(token, strlen(token), t->hash);
    for (size_t k = 0; k < a->n; k++) {
        if (memcmp(a->tokens[k].hash, t->hash, sizeof(t->hash)) == 0) {
            return nt_fail(err, NT_E_INVAL, 0,
                           "this token stands in line %u already: it can be one role's and one "
                           "name's only",
                           a->tokens[k].line);
        }
    }
    (void)snprintf(t->name, sizeof(t->name), "%s", name != NULL ? name : nt_role_names[i]);
    a->n++;
    return 0;
}

int nt_access_parse(struct nt_access *a, const char *text, struct nt_err *err)
{
    char *copy = strdup(text), *rest = copy, *line;
    struct nt_access *fresh = calloc(1, sizeof(*fresh));
    unsigned number = 0;
    int rc = copy == NULL || fresh == NULL ? nt_fail(err, NT_E_NOMEM, 0, "tokens") : 0;

    while (rc == 0 && (line = strsep(&rest, "\n")) != NULL) {
        number++;
        rc = nt_wrap(err, take_line(fresh, line, number, err), "line %u", number);
    }
    if (rc == 0) {
        fresh->others = a->others;
        *a = *fresh;
    }
    if (copy != NULL) {
        explicit_bzero(copy, strlen(text));
    }
    free(fresh);
    free(copy);
    return rc;
}

int nt_access_read(struct nt_access *a, const char *path, struct nt_err *err)
{
    struct nt_buf b;
    struct stat st;
    int rc;

    if (stat(path, &st) != 0) {
        return nt_fail(err, NT_E_INVAL, errno, "tokens %s", path);
    }
    if ((st.st_mode & 077) != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "tokens %s: others can read it (mode %o); chmod 600",
                       path, st.st_mode & 0777U);
    }
    nt_buf_init(&b, TOKENS_MAX_BYTES);
    rc = nt_buf_read_file(&b, path, err);
    rc = rc == 0 ? nt_wrap(err, nt_access_parse(a, nt_buf_str(&b), err), "tokens %s", path) : rc;
    if (b.data != NULL) {
        explicit_bzero(b.data, b.len);
    }
    nt_buf_done(&b);
    return rc;
}

enum nt_role nt_access_token(const struct nt_access *a, const char *authorization,
                             const char **ret_name)
{
    enum nt_role role = NT_ROLE_NONE;
    unsigned char hash[32];

    *ret_name = "";
    if (authorization == NULL || strncasecmp(authorization, "Bearer ", 7) != 0) {
        return NT_ROLE_NONE;
    }
    nt_format_sha256(authorization + 7, strlen(authorization + 7), hash);
    for (size_t i = 0; i < a->n; i++) { /* all of them, to the last byte */
        unsigned char differ = 0;
        for (size_t k = 0; k < sizeof(hash); k++) {
            differ |= (unsigned char)(hash[k] ^ a->tokens[i].hash[k]);
        }
        if (differ == 0) {
            role = a->tokens[i].role;
            *ret_name = a->tokens[i].name;
        }
    }
    return role;
}

enum nt_role nt_access_peer(const struct nt_access *a, uid_t peer, uid_t self)
{
    return peer == 0 || peer == self ? NT_ROLE_ADMIN : a->others;
}
