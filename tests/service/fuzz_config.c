/* The service's configuration and time windows: any text gives an error or a configuration. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/service/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct nt_config c;
    struct nt_window w[NT_QUEUE_WINDOWS];
    struct nt_err err = {0};
    size_t n;
    char *text = malloc(size + 1);

    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    nt_config_init(&c);
    if (nt_config_parse(&c, text, "fuzz", &err) == 0 && nt_config_finish(&c, &err) == 0) {
        (void)nt_config_rig(&c, "a");
    }
    (void)(nt_windows_parse(text, w, &n, &err) == 0 && nt_windows_open(w, n, 0));
    free(text);
    return 0;
}
