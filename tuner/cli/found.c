#include "tuner/cli/found.h"
#include "schema/tunables.h"
#include "tuner/base/buf.h"
#include "tuner/deliver/active.h"
#include "tuner/lint/lint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_on(const char *name)
{
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' && strcmp(v, "0") != 0;
}

void nt_found_places(struct nt_found_places *ret)
{
    const char *active = getenv("NCCLTUNE_ACTIVE"), *named = getenv("NCCL_CONF_FILE"),
               *home = getenv("HOME");

    *ret = (struct nt_found_places){.system = "/etc/nccl.conf"};
    if (!is_on("NCCLTUNE_DISABLE") &&
        getenv("NCCLTUNE_PROFILE") == NULL) { /* as the loader has it */
        (void)snprintf(ret->active, sizeof(ret->active), "%s",
                       active != NULL && active[0] != '\0' ? active
                                                           : NT_ACTIVE_FOLDER "/" NT_ACTIVE_NAME);
    }
    if (named != NULL && named[0] != '\0') { /* one or the other, never both */
        (void)snprintf(ret->user, sizeof(ret->user), "%s", named);
    } else if (home != NULL && home[0] != '\0') {
        (void)snprintf(ret->user, sizeof(ret->user), "%s/.nccl.conf", home);
    }
}

/* false: not there, which is no error. */
static bool read_text(const char *path, struct nt_buf *out, int *rc, struct nt_err *err)
{
    if (path[0] == '\0' || (access(path, F_OK) != 0 && errno != EACCES)) {
        return false;
    }
    *rc = nt_buf_read_file(out, path, err);
    if (*rc != 0) {
        *rc = nt_wrap(err, *rc, "settings that are in force here");
    }
    return *rc == 0;
}

static int read_active(const char *path, nt_found_cb take, void *data, struct nt_err *err)
{
    struct nt_active a = {0};
    struct nt_buf text;
    char boot[40];
    int rc = 0;

    nt_buf_init(&text, NT_ACTIVE_MAX);
    nt_boot_id(boot);
    if (read_text(path, &text, &rc, err) &&
        nt_active_parse(nt_buf_str(&text), text.len, &a, NULL) == 0 && strcmp(a.boot, boot) == 0) {
        for (size_t i = 0; rc == 0 && i < a.n; i++) {
            rc = take(data, NT_FOUND_ACTIVE, path, a.v[i].name, a.v[i].value, err);
        }
    }
    nt_active_done(&a);
    nt_buf_done(&text);
    return rc;
}

static int read_conf(const char *path, enum nt_found_in in, nt_found_cb take, void *data,
                     struct nt_err *err)
{
    const struct nt_lint_opts o = {.version = NT_NCCL_NEWEST, .form = NT_LINT_CONF};
    struct nt_lint_file *f = NULL;
    struct nt_buf text;
    int rc = 0;

    nt_buf_init(&text, NT_LINT_MAX_BYTES);
    if (read_text(path, &text, &rc, err)) {
        rc = nt_lint_read(path, nt_buf_str(&text), text.len, &o, &f, err);
        for (size_t i = 0; rc == 0 && i < f->nvars; i++) {
            const struct nt_lint_var *v = &f->vars[i];
            if (v->where == NT_W_FILE && !v->dead && v->value != NULL) {
                rc = take(data, in, path, v->name, v->value, err);
            }
        }
    }
    nt_lint_free(f);
    nt_buf_done(&text);
    return rc;
}

int nt_found_read(const struct nt_found_places *p, nt_found_cb take, void *data, struct nt_err *err)
{
    int rc = read_active(p->active, take, data, err);

    rc = rc == 0 ? read_conf(p->user, NT_FOUND_USER, take, data, err) : rc;
    return rc == 0 ? read_conf(p->system, NT_FOUND_SYSTEM, take, data, err) : rc;
}
