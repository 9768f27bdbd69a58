/* Any bytes are either refused or a table whose content, written again, gives the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/format/sha256.h"
#include "profiles/format/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct nt_table_row rows[NT_TABLE_MAX_ROWS];
    static struct nt_table_var_text text[NT_TABLE_MAX_VARS];
    static struct nt_table_var vars[NT_TABLE_MAX_VARS];
    struct nt_table t;
    struct nt_why why;
    size_t at = 0, n = 0, again = 0;
    uint8_t *out = NULL;
    char hash[NT_HASH_HEX + 1], want[NT_HASH_HEX + 1];

    if (nt_table_read(data, size, &t, &why) != 0) {
        return 0;
    }
    for (uint32_t i = 0; i < t.nrows; i++) {
        rows[i] = nt_table_row(&t, i);
    }
    while (nt_table_next_var(&t, &at, &text[n])) {
        vars[n] = (struct nt_table_var){text[n].name, text[n].value, text[n].override};
        n++;
    }
    nt_format_sha256_hex(data, size, want);
    if (n != t.nvars ||
        nt_table_write(t.product, vars, n, rows, t.nrows, &out, &again, hash, &why) != 0 ||
        again != size || strcmp(hash, want) != 0) {
        abort();
    }
    free(out);
    return 0;
}
