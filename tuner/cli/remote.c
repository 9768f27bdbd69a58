#include "tuner/cli/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tuner/base/text.h"

int nt_remote_token(const char *file, struct nt_buf *out, struct nt_err *err)
{
    const char *env = getenv("NCCLTUNE_TOKEN");
    int rc = 0;

    if (file != NULL) {
        rc = nt_buf_read_file(out, file, err);
        if (rc == 0 && out->len > 0) {
            out->data[strcspn(out->data, "\r\n")] = '\0';
        }
    } else if (env != NULL) {
        nt_buf_puts(out, env);
    }
    return rc;
}

int nt_remote_refused(unsigned status, const struct nt_buf *body, struct nt_err *err)
{
    static const struct {
        unsigned status;
        enum nt_code code;
    } means[] = {{400, NT_E_INVAL}, {404, NT_E_INVAL}, {413, NT_E_INVAL}, {422, NT_E_INVAL},
                 {401, NT_E_NO},    {403, NT_E_NO},    {409, NT_E_NO}};
    enum nt_code code = NT_E_IO;
    const char *words = "";
    json_t *o = NULL;
    int rc;

    for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++) {
        code = means[i].status == status ? means[i].code : code;
    }
    if (nt_json_parse(nt_buf_str(body), body->len, "answer", &o, NULL) == 0) {
        words = nt_json_opt_str(json_object_get(o, "error"), "message", "");
    }
    rc = nt_fail(err, code, 0, "the service says %u: %s", status, words);
    json_decref(o);
    return rc;
}

void nt_remote_print(FILE *out, const char *what, const json_t *words)
{
    struct nt_buf b;

    if (!json_is_string(words)) {
        return;
    }
    nt_buf_init(&b, 1 << 20);
    nt_buf_put_plain(&b, json_string_value(words));
    (void)fprintf(out, "%s: %s\n", what, nt_buf_str(&b));
    nt_buf_done(&b);
}
