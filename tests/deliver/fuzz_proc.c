/* What a hostile process can put into its files of /proc: the first byte chooses which. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/deliver/proc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_proc p = {.pid = 40};
    char *text, out[64];

    if (size == 0 || (text = malloc(size + 1)) == NULL) {
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = text[size] = '\0';
    switch (data[0] % 4) {
    case 0:
        (void)nt_proc_take_stat(&p, text);
        break;
    case 1:
        nt_proc_take_status(&p, text);
        break;
    case 2:
        nt_proc_take_maps(&p, text);
        for (unsigned i = 0; i < p.nnccl; i++) {
            nt_assert(strlen(nt_clean(p.nccl[i].path, out, sizeof(out))) < sizeof(out));
        }
        break;
    default:
        p.environ = p.cmdline = text;
        p.environ_len = p.cmdline_len = size;
        (void)nt_proc_env(&p, "NCCL_ALGO");
        (void)nt_proc_word(&p, 3);
        (void)nt_proc_python_flag(&p, 'S');
        (void)nt_proc_is_python(&p);
        break;
    }
    free(text);
    return 0;
}
