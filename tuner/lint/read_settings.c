/* Files of other languages that hold an environment: TOML, HCL, INI, Lua modules, PowerShell. Of
 * none of them is the whole understood: a name of ours with a value behind it is a setting,
 * wherever it stands: NAME = "value", "NAME" : value, setenv("NAME", "value"), $env:NAME = 'value'.
 */
#include <ctype.h>
#include <string.h>

#include "tuner/lint/internal.h"

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static size_t blanks(const char *s, size_t len, size_t at)
{
    while (at < len && (s[at] == ' ' || s[at] == '\t')) {
        at++;
    }
    return at;
}

/* The value behind the name that ends at `at`: between quotes, else one word. */
static void setting(struct nt_lint_file *f, const char *s, size_t len, size_t at, const char *name,
                    size_t name_len, uint32_t number)
{
    size_t from, n = 0;
    char quote;
    at += at < len && (s[at] == '"' || s[at] == '\'');
    at = blanks(s, len, at);
    if (at >= len || s[at] == '\0' || strchr("=:,", s[at]) == NULL) {
        return;
    }
    from = blanks(s, len, at + 1);
    quote = from < len && (s[from] == '"' || s[from] == '\'') ? s[from] : '\0';
    from += quote != '\0';
    while (from + n < len &&
           (quote != '\0' ? s[from + n] != quote : strchr(" \t\r,;#)}", s[from + n]) == NULL)) {
        n++;
    }
    (void)nt_lint_add(f, NT_W_ENV, number, name, name_len, s + from, n);
}

void nt_read_settings(struct nt_lint_file *f, const char *text, size_t len)
{
    struct nt_lines l = {text, text + len, 0};
    const char *s;
    size_t n;
    while (nt_lines_next(&l, &s, &n)) {
        size_t start = blanks(s, n, 0);
        if (start < n && (s[start] == '#' || s[start] == ';' ||
                          (n - start > 1 &&
                           (memcmp(s + start, "--", 2) == 0 || memcmp(s + start, "//", 2) == 0)))) {
            continue;
        }
        for (size_t at = start; at < n; at++) {
            size_t k = 0;
            char name[128];
            if (!is_word(s[at]) || (at > 0 && is_word(s[at - 1]))) {
                continue;
            }
            while (at + k < n && is_word(s[at + k]) && k + 1 < sizeof(name)) {
                name[k] = s[at + k];
                k++;
            }
            name[k] = '\0';
            if (nt_lint_is_name(name, k) && nt_lint_is_ours(name)) {
                setting(f, s, n, at + k, name, k, l.line);
            }
            at += k;
        }
    }
    if (f->nvars == 0) {
        nt_lint_find(f, NT_R_OTHER_KIND, 0, NULL, "no setting that NCCL reads");
    }
}
