/* Whatever decodes must encode to a line that decodes to the same. */
#include <stdint.h>
#include <string.h>

#include "probes/protocol/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_msg m, again;
    struct nt_buf one, two;
    struct nt_err err;

    if (nt_msg_decode((const char *)data, size, &m, &err) != 0) {
        return 0;
    }
    nt_buf_init(&one, 8 << 20);
    nt_buf_init(&two, 8 << 20);
    nt_msg_encode(&m, &one);
    if (!one.failed) { /* escapes may make a line too long */
        nt_assert(nt_msg_decode(one.data, one.len - 1, &again, &err) == 0);
        nt_msg_encode(&again, &two);
        nt_assert(one.len == two.len && memcmp(one.data, two.data, one.len) == 0);
        nt_msg_done(&again);
    }
    nt_msg_done(&m);
    nt_buf_done(&one);
    nt_buf_done(&two);
    return 0;
}
