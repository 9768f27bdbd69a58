/* Whatever is accepted can be written, read again and written equal. */
#include <stdint.h>
#include <string.h>
#include "profiles/json/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_profile *p = NULL, *q = NULL;
    struct nt_buf once, twice;

    nt_buf_init(&once, NT_PROFILE_MAX_BYTES);
    nt_buf_init(&twice, NT_PROFILE_MAX_BYTES);
    if (nt_profile_parse((const char *)data, size, "input", &p, NULL) == 0) {
        nt_assert(nt_profile_dump(p, &once, NULL) == 0);
        nt_assert(nt_profile_parse(nt_buf_str(&once), once.len, "again", &q, NULL) == 0);
        nt_assert(nt_profile_dump(q, &twice, NULL) == 0);
        nt_assert(strcmp(nt_buf_str(&once), nt_buf_str(&twice)) == 0);
    }
    nt_buf_done(&once);
    nt_buf_done(&twice);
    nt_profile_free(p);
    nt_profile_free(q);
    return 0;
}
