#include "tuner/base/log.h"

#include <stdarg.h>
#include <stdio.h>

static enum nt_level max_level = NT_WARN;

void nt_log_level(enum nt_level level)
{
    max_level = level;
}

void nt_log(enum nt_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char line[1024], out[2048];
    size_t n = 0;
    va_list ap;

    if (level > max_level) {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    for (const char *p = line; *p != '\0' && n + 5 < sizeof(out); p++) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x20 || c == 0x7f) { /* no terminal control from a child's text */
            n += (size_t)snprintf(out + n, sizeof(out) - n, "\\x%02x", c);
        } else {
            out[n++] = (char)c;
        }
    }
    out[n] = '\0';
    (void)fprintf(stderr, "nccltune: %s: %s\n", names[level], out);
}
