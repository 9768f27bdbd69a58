/* What a program prints where a figure is looked for: the first byte says in what pieces it comes.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/deliver/figure.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_figure_spec s = {.open = false};
    struct nt_figure_found *f = calloc(1, sizeof(*f));
    size_t step;

    if (f == NULL || size == 0 || nt_figure_open("t=speed: ?([^,]*)", &s, NULL) != 0) {
        free(f);
        return 0;
    }
    step = (size_t)data[0] + 1;
    data++, size--;
    for (size_t at = 0; at < size; at += step) {
        nt_figure_feed(&s, (const char *)data + at, size - at < step ? size - at : step, f);
    }
    nt_figure_end(&s, f);
    if (f->number) {
        nt_assert(f->matches > 0 && !isnan(f->last.value));
        nt_assert(strlen(f->last.unit) < sizeof(f->last.unit));
    }
    nt_figure_close(&s);
    free(f);
    return 0;
}
