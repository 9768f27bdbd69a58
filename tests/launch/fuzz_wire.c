/* What comes over a launch's connection: lines of the greeting, then frames and their strings. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/launch/greet.h"
#include "tuner/launch/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void lines(const char *data, size_t size)
{
    static const char secret[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    struct nt_greet g = {.proved = false};
    struct nt_contact contact;
    char line[NT_GREET_LINE], answer[NT_GREET_LINE + 1];
    int rc = 0;

    for (size_t at = 0, n; rc == 0 && at < size; at += n + 1) {
        const char *eol = memchr(data + at, '\n', size - at);
        n = eol != NULL ? (size_t)(eol - data) - at : size - at;
        n = n < sizeof(line) - 1 ? n : sizeof(line) - 1;
        memcpy(line, data + at, n);
        line[n] = '\0';
        rc = nt_greet_hear(&g, secret, "1", line, answer);
        if (nt_contact_read(line, &contact, NULL) == 0 && strlen(contact.secret) != NT_SECRET_LEN) {
            abort();
        }
    }
    if (g.proved) {
        abort(); /* by guessing */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_wire w;
    struct nt_frame f;
    size_t piece = size > 0 ? data[0] % 16 + 1U : 1;

    lines((const char *)data, size);
    nt_wire_init(&w);
    for (size_t at = 0; at < size; at += piece) {
        size_t n = piece < size - at ? piece : size - at;
        if (nt_wire_feed(&w, (const char *)data + at, n, NULL) != 0) {
            break;
        }
        while (nt_wire_next(&w, &f, NULL) == 1) {
            size_t strings = 0, s = 0;
            while (nt_wire_string(&f, &s) != NULL) {
                strings++;
            }
            if (s > f.len || strings > f.len) {
                abort();
            }
        }
    }
    nt_wire_done(&w);
    return 0;
}
