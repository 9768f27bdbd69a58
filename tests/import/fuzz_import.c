/* Logs and JSON of nccl-tests: read, print, compare with itself. */
#include <stdint.h>
#include <stdlib.h>

#include "tuner/import/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_imp_file *f[2] = {NULL, NULL};
    const char *labels[2] = {"a", "b"};
    const struct nt_compare_opts o = {.across = true};
    struct nt_table *t = NULL;
    struct nt_verdicts v = {0};
    struct nt_buf out;
    nt_buf_init(&out, 1 << 20);
    if (nt_imp_read("all_reduce.log", (const char *)data, size, &f[0], NULL) == 0 &&
        nt_imp_read("b-rep2.log", (const char *)data, size, &f[1], NULL) == 0) {
        nt_imp_text(f[0], &out);
        json_decref(nt_imp_json(f[0]));
        if (nt_table_from_files(f, labels, 2, &o, &t, NULL) == 0 &&
            nt_table_decide(t, &v, NULL) == 0) {
            nt_verdicts_text(t, &v, &out);
        }
    }
    nt_verdicts_done(&v);
    nt_table_free(t);
    nt_imp_free(f[0]);
    nt_imp_free(f[1]);
    nt_buf_done(&out);
    return 0;
}
