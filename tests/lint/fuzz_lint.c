/* Every form of configuration file: the first byte says which, 0xff lets lint find out. */
#include <stdint.h>
#include <stdlib.h>

#include "schema/tunables.h"
#include "tuner/lint/lint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_lint_opts o = {.version = NT_V(2, 28, 9), .form = -1};
    struct nt_lint_file *f = NULL;
    struct nt_buf out;
    if (size == 0) {
        return 0;
    }
    if (data[0] != 0xff) {
        o.form = data[0] % NT_LINT_FORM_COUNT;
        o.version = data[0] & 0x80 ? NT_V(2, 21, 5) : NT_V(2, 30, 7);
    }
    nt_buf_init(&out, 1 << 20);
    if (nt_lint_read("a", (const char *)data + 1, size - 1, &o, &f, NULL) == 0) {
        nt_lint_across(&f, 1);
        nt_lint_text(f, &out);
        if (size % 8 == 0) { /* the table of rules is long, and the same each time */
            json_decref(nt_lint_json(f));
            json_decref(nt_lint_sarif(&f, 1, "0"));
        }
    }
    nt_lint_free(f);
    nt_buf_done(&out);
    return 0;
}
