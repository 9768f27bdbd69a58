/* Any bytes are refused or rows that can be described; nothing beyond the input is read. */
#include <stdint.h>
#include <stdlib.h>

#include "profiles/plugin/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_csv_row *rows = NULL;
    size_t n = 0;
    struct nt_why why;
    char out[300];

    if (nt_csv_parse((const char *)data, size, &rows, &n, &why) == 0) {
        for (size_t i = 0; i < n; i++) {
            if (rows[i].min_bytes > rows[i].max_bytes || rows[i].channels > NT_TABLE_MAX_CHANNELS) {
                abort();
            }
            nt_csv_describe(rows, i, out, sizeof(out));
        }
        free(rows);
    }
    return 0;
}
