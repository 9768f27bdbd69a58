/* Any bytes become a text within bounds, or are refused. */
#include <stdint.h>
#include <string.h>

#include "tuner/base/foreign.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_buf b;
    nt_buf_init(&b, 1 << 16);
    nt_buf_add(&b, data, size < 1 << 16 ? size : 1 << 16);
    if (!b.failed && nt_foreign_text(&b, "fuzz", NULL) == 0) {
        nt_assert(b.len <= b.max && (b.len == 0 || b.data[b.len] == '\0'));
    }
    nt_buf_done(&b);
    return 0;
}
