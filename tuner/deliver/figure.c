#include "tuner/deliver/figure.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tuner/base/text.h"

/* ---- numbers ---- */

static const struct {
    const char *name;
    double seconds;
} times[] = {{"ns", 1e-9},   {"us", 1e-6}, {"\xc2\xb5s", 1e-6}, {"\xce\xbcs", 1e-6}, {"ms", 1e-3},
             {"msec", 1e-3}, {"s", 1},     {"sec", 1},          {"secs", 1},         {"second", 1},
             {"seconds", 1}, {"min", 60},  {"mins", 60},        {"minutes", 60},     {"h", 3600},
             {"hours", 3600}};

/* Units that take a prefix; other words that begin with its letter ("tokens") do not. */
static const char *const prefixed[] = {
    "",          "B",     "B/s",    "b/s",    "bit/s", "bps",        "tok/s", "tokens/s",
    "samples/s", "it/s",  "it",     "req/s",  "rps",   "requests/s", "tps",   "qps",
    "FLOP/s",    "FLOPS", "Flop/s", "flop/s", "flops", NULL};

/* "k", "Mi": the factor, and how many bytes it takes; 1 and 0 for none. */
static double prefix_of(const char *unit, size_t *ret_len)
{
    static const char letters[] = "kMGTP";
    const char *at;
    char first = unit[0] == 'K' ? 'k' : unit[0];
    bool binary = unit[0] != '\0' && unit[1] == 'i' && (unit[2] == '\0' || unit[2] == 'B');
    double factor = 1;

    *ret_len = 0;
    at = first != '\0' ? strchr(letters, first) : NULL;
    if (at == NULL) {
        return 1;
    }
    for (const char *l = letters; l <= at; l++) {
        factor *= binary ? 1024 : 1000;
    }
    *ret_len = binary ? 2 : 1;
    return factor;
}

static bool takes_prefix(const char *unit)
{
    for (size_t i = 0; prefixed[i] != NULL; i++) {
        if (strcmp(unit, prefixed[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Multiplies out what the unit says; *unit is what is left of it. */
static double scale(char *unit)
{
    size_t skip = 0;
    double factor;

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        if (strcmp(unit, times[i].name) == 0) {
            unit[0] = 's';
            unit[1] = '\0';
            return times[i].seconds;
        }
    }
    factor = prefix_of(unit, &skip);
    while (skip > 0 && unit[skip] == ' ') {
        skip++;
    }
    if (skip == 0 || !takes_prefix(unit + skip)) {
        return 1;
    }
    memmove(unit, unit + skip, strlen(unit + skip) + 1);
    return factor;
}

/* Read once more with another last digit: where that stands nt_parse_local() alone knows. digits:
 * without the exponent. */
static double step_of(const char *text, size_t digits, size_t len, double value)
{
    char other[64];
    double x;

    while (digits > 0 && !isdigit((unsigned char)text[digits - 1])) {
        digits--;
    }
    if (digits == 0 || len >= sizeof(other)) {
        return 0;
    }
    memcpy(other, text, len);
    other[digits - 1] = (char)(other[digits - 1] ^ 1); /* 0 and 1, … 8 and 9 */
    return nt_parse_local(other, len, false, &x) ? fabs(x - value) : 0;
}

bool nt_figure_parse(const char *text, size_t len, struct nt_figure *ret)
{
    struct nt_figure f;
    size_t n = 0, at, digits;
    double factor;

    while (len > 0 && isspace((unsigned char)text[0])) {
        text++, len--;
    }
    while (len > 0 && isspace((unsigned char)text[len - 1])) {
        len--;
    }
    while (n < len && (isdigit((unsigned char)text[n]) || strchr(".,'+-", text[n]) != NULL)) {
        n++;
    }
    digits = n;
    if (n < len && (text[n] | 32) == 'e') { /* an exponent, or the unit's first letter */
        at = n + 1 + (n + 1 < len && (text[n + 1] == '-' || text[n + 1] == '+'));
        if (at < len && isdigit((unsigned char)text[at])) {
            for (n = at; n < len && isdigit((unsigned char)text[n]);) {
                n++;
            }
        }
    }
    if (!nt_parse_local(text, n, false, &f.value)) {
        return false;
    }
    f.step = step_of(text, digits, n, f.value);
    while (n < len && isspace((unsigned char)text[n])) {
        n++;
    }
    if (len - n >= sizeof(f.unit) || memchr(text + n, '\0', len - n) != NULL) {
        return false;
    }
    memcpy(f.unit, text + n, len - n);
    f.unit[len - n] = '\0';
    if (strpbrk(f.unit, "0123456789") != NULL) { /* "1m30s", "12x3" */
        return false;
    }
    nt_text_plain(f.unit);
    factor = scale(f.unit);
    f.value *= factor;
    f.step *= factor;
    *ret = f;
    return true;
}

/* ---- finding it ---- */

int nt_figure_open(const char *assignment, struct nt_figure_spec *ret, struct nt_err *err)
{
    size_t len = strcspn(assignment, "=");
    char why[200];
    int e;

    if (len == 0 || len >= sizeof(ret->name) || assignment[len] == '\0') {
        return nt_fail(err, NT_E_INVAL, 0,
                       "'%.80s': a figure is NAME=REGEX, as in 'tok/s=throughput: ([0-9.]+)'",
                       assignment);
    }
    (void)snprintf(ret->name, sizeof(ret->name), "%.*s", (int)len, assignment);
    nt_text_plain(ret->name);
    e = regcomp(&ret->re, assignment + len + 1, REG_EXTENDED);
    if (e != 0) {
        (void)regerror(e, &ret->re, why, sizeof(why));
        return nt_fail(err, NT_E_INVAL, 0, "figure %s: '%.160s': %s", ret->name,
                       assignment + len + 1, why);
    }
    ret->open = true;
    if (ret->re.re_nsub == 0) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "figure %s: '%.160s' has no group; put ( ) around the number, as in "
                       "'throughput: ([0-9.]+)'",
                       ret->name, assignment + len + 1);
    }
    return 0;
}

void nt_figure_close(struct nt_figure_spec *s)
{
    if (s->open) {
        regfree(&s->re);
        s->open = false;
    }
}

/* Takes out what steers a terminal (ESC [ … letter), and NULs. */
static void plain(char *line, size_t len)
{
    size_t to = 0;

    for (size_t i = 0; i < len; i++) {
        if (line[i] == '\033' && i + 1 < len && line[i + 1] == '[') {
            for (i += 2; i < len && (unsigned char)(line[i] & 0x7f) < 0x40;) {
                i++;
            }
        } else if (line[i] != '\0') {
            line[to++] = line[i];
        }
    }
    line[to] = '\0';
}

static void take_line(const struct nt_figure_spec *s, struct nt_figure_found *f)
{
    const char *at = f->line;
    regmatch_t m[2];

    plain(f->line, f->len);
    f->len = 0;
    while (regexec(&s->re, at, 2, m, at == f->line ? 0 : REG_NOTBOL) == 0) {
        size_t len = m[1].rm_so >= 0 ? (size_t)(m[1].rm_eo - m[1].rm_so) : 0;
        const char *group = m[1].rm_so >= 0 ? at + m[1].rm_so : at;
        f->matches++;
        f->number = nt_figure_parse(group, len, &f->last);
        (void)snprintf(f->text, sizeof(f->text), "%.*s", (int)(len < 79 ? len : 79), group);
        nt_text_plain(f->text);
        at += m[0].rm_eo;
        if (*at == '\0') {
            break;
        }
        at += m[0].rm_eo == m[0].rm_so; /* nothing was matched: on by one */
    }
}

void nt_figure_feed(const struct nt_figure_spec *s, const char *text, size_t len,
                    struct nt_figure_found *f)
{
    for (size_t i = 0; i < len; i++) {
        bool ends = text[i] == '\n' || text[i] == '\r';
        if (!ends) {
            f->line[f->len++] = text[i];
        }
        if (ends || f->len == sizeof(f->line) - 1) {
            take_line(s, f);
        }
    }
}

void nt_figure_end(const struct nt_figure_spec *s, struct nt_figure_found *f)
{
    if (f->len > 0) {
        take_line(s, f);
    }
}
