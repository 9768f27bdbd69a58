/* An active file that is taken without overrides is written back as it was. */
#include <stdint.h>
#include <string.h>

#include "tuner/deliver/active.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_assign vars[NT_ACTIVE_VARS];
    struct nt_active a;
    struct nt_buf out;
    bool plain = true;

    if (nt_active_parse((const char *)data, size, &a, NULL) != 0) {
        return 0;
    }
    for (size_t i = 0; i < a.n; i++) {
        vars[i] = (struct nt_assign){a.v[i].name, a.v[i].value};
        plain = plain && !a.v[i].override;
    }
    nt_buf_init(&out, NT_ACTIVE_MAX);
    if (plain && a.boot[0] != '\0') {
        nt_assert(nt_active_write(vars, a.n, a.boot, &out, NULL) == 0);
        nt_assert(out.len == size && memcmp(out.data, data, size) == 0);
    }
    nt_buf_done(&out);
    nt_active_done(&a);
    return 0;
}
