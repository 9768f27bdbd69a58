/* Routes that call a part of nccltune: lint, SQL, doctor. */
#include "schema/tunables.h"
#include "tuner/base/json.h"
#include "tuner/lint/lint.h"
#include "tuner/service/service_i.h"

#include <stdio.h>
#include <string.h>

enum { SQL_ROWS = 1000, SQL_OUT_BYTES = 16 << 20, SQL_MAX_BYTES = 65536 };

static int opt_text(const json_t *o, const char *name, size_t max, const char **ret,
                    struct nt_err *err)
{
    int rc = 0;
    if (json_object_get(o, name) != NULL) {
        rc = nt_json_str(o, name, ret, err);
        if (rc == 0 && strlen(*ret) > max) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s: at most %zu bytes", name, max);
        }
    }
    return rc;
}

int nt_api_lint(struct nt_exchange *x, struct nt_err *err)
{
    static const char *const known[] = {"text", "name", "form", "nccl", NULL};
    const char *text = NULL, *name = "file", *form = NULL, *nccl = "2.28";
    struct nt_lint_opts how = {.form = -1};
    struct nt_lint_file *file = NULL;
    json_t *o = NULL;
    int rc = nt_reply_body(x, known, &o, err);

    rc = rc == 0 ? nt_json_str(o, "text", &text, err) : rc;
    rc = rc == 0 ? opt_text(o, "name", 200, &name, err) : rc;
    rc = rc == 0 ? opt_text(o, "form", 40, &form, err) : rc;
    rc = rc == 0 ? opt_text(o, "nccl", 32, &nccl, err) : rc;
    rc = rc == 0 ? nt_wrap(err, nt_nccl_version_parse(nccl, &how.version, err), "nccl") : rc;
    if (rc == 0 && form != NULL) {
        how.form = nt_vocab_find(nt_lint_form_names, "form", form, err);
        rc = how.form < 0 ? how.form : 0;
    }
    rc = rc == 0 ? nt_lint_read(name, text, json_string_length(json_object_get(o, "text")), &how,
                                &file, err)
                 : rc;
    if (rc == 0) {
        nt_lint_across(&file, 1);
        rc = nt_reply_json(x,
                           json_pack("{s:I, s:o}", "errors", (json_int_t)nt_lint_errors(file),
                                     "file", nt_lint_json(file)),
                           err);
    }
    nt_lint_free(file);
    json_decref(o);
    return rc;
}

/* In a process of its own: what a stranger's SQL can take of time and memory is taken there. */
int nt_api_query(struct nt_exchange *x, struct nt_err *err)
{
    static const char *const known[] = {"sql", "rows", NULL};
    const char *sql = NULL;
    int64_t rows = SQL_ROWS;
    char count[24];
    json_t *o = NULL;
    int rc = nt_reply_body(x, known, &o, err);

    rc = rc == 0 ? nt_json_str(o, "sql", &sql, err) : rc;
    if (rc == 0 && (sql[0] == '\0' || strlen(sql) > SQL_MAX_BYTES)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "sql: between 1 and %d bytes", SQL_MAX_BYTES);
    }
    if (rc == 0 && json_object_get(o, "rows") != NULL) {
        rc = nt_json_i64(o, "rows", &rows, err);
        if (rc == 0 && (rows < 1 || rows > 10000)) {
            rc = nt_fail(err, NT_E_INVAL, 0, "rows: between 1 and 10000");
        }
    }
    if (rc == 0) {
        const char *const args[] = {"query",  "-",   "--format", "json",         "--timeout", "2s",
                                    "--rows", count, "--db",     x->s->database, NULL};
        (void)snprintf(count, sizeof(count), "%lld", (long long)rows);
        rc = nt_ask_child(x, args, sql, NULL, json_object_get(o, "rows") == NULL, err);
    }
    json_decref(o);
    return rc;
}

int nt_api_doctor(struct nt_exchange *x, struct nt_err *err)
{
    static const char *const args[] = {"doctor", "--format", "json", NULL};
    return nt_ask_child(x, args, NULL, NULL, false, err);
}
