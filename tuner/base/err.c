#include "tuner/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *text;
    int exit_code;
} codes[] = {[NT_OK] = {"done", 0},
#define X(name, text_, exit_) [NT_E_##name] = {text_, exit_},
             NT_ERRORS(X)
#undef X
};

/* In parentheses: see err.h, where it may be a macro. */
int(nt_fail)(struct nt_err *err, enum nt_code code, int sys, const char *fmt, ...)
{
    if (err != NULL) {
        va_list ap;
        size_t n;
        err->code = code;
        err->sys = sys;
        va_start(ap, fmt);
        (void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
        va_end(ap);
        n = strlen(err->msg);
        if (sys > 0) {
            (void)snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", strerror(sys));
        }
    }
    return -(int)code;
}

int nt_wrap(struct nt_err *err, int rc, const char *fmt, ...)
{
    if (err != NULL && rc != 0) {
        char old[sizeof(err->msg)];
        va_list ap;
        size_t n;
        (void)snprintf(old, sizeof(old), "%s", err->msg);
        va_start(ap, fmt);
        (void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
        va_end(ap);
        n = strlen(err->msg);
        (void)snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", old);
    }
    return rc;
}

int nt_exit_code(int rc)
{
    size_t code = (size_t)(rc < 0 ? -rc : rc);
    return code < sizeof(codes) / sizeof(codes[0]) ? codes[code].exit_code : 70;
}

const char *nt_code_text(enum nt_code code)
{
    return (size_t)code < sizeof(codes) / sizeof(codes[0]) ? codes[code].text : "unknown error";
}

void nt_assert_fail(const char *cond, const char *file, int line)
{
    (void)fprintf(stderr, "nccltune: bug: %s:%d: %s does not hold\n", file, line, cond);
    abort();
}
