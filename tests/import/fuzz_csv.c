/* Tables of backend by size: read, decide, print. */
#include <stdint.h>
#include <stdlib.h>

#include "tuner/import/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_table *t = NULL;
    struct nt_verdicts v = {0};
    struct nt_buf out;
    nt_buf_init(&out, 1 << 20);
    if (nt_table_parse("t.csv", (const char *)data, size, &t, NULL) == 0 &&
        nt_table_decide(t, &v, NULL) == 0) {
        nt_verdicts_text(t, &v, &out);
        nt_verdicts_csv(t, &v, &out);
        json_decref(nt_verdicts_json(t, &v));
    }
    nt_verdicts_done(&v);
    nt_table_free(t);
    nt_buf_done(&out);
    return 0;
}
