#include "tuner/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int nt_parse_u64(const char *text, uint64_t *ret, struct nt_err *err)
{
    char *end = NULL;
    unsigned long long v;

    errno = 0;
    v = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
    if (end == NULL || *end != '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "'%.100s' is not a whole number", text);
    }
    if (errno == ERANGE) {
        return nt_fail(err, NT_E_INVAL, 0, "'%.100s' is too large", text);
    }
    *ret = v;
    return 0;
}

int nt_parse_i64(const char *text, int64_t *ret, struct nt_err *err)
{
    char *end = NULL;
    long long v;
    const char *digits = text[0] == '-' ? text + 1 : text;

    errno = 0;
    v = isdigit((unsigned char)digits[0]) ? strtoll(text, &end, 10) : 0;
    if (end == NULL || *end != '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "'%.100s' is not a whole number", text);
    }
    if (errno == ERANGE) {
        return nt_fail(err, NT_E_INVAL, 0, "'%.100s' is out of range", text);
    }
    *ret = v;
    return 0;
}

int nt_parse_double(const char *text, double *ret, struct nt_err *err)
{
    char *end = NULL;
    double v;

    /* strtod takes hexadecimal, which nobody means by 0x10 in a column of times */
    if (text[0] == '\0' || isspace((unsigned char)text[0]) || strpbrk(text, "xX") != NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "'%.100s' is not a number", text);
    }
    v = strtod(text, &end);
    if (*end != '\0' || !isfinite(v)) {
        return nt_fail(err, NT_E_INVAL, 0, "'%.100s' is not a number", text);
    }
    *ret = v;
    return 0;
}

/* Whether text is digits in groups of three: "1,048,576". */
static bool in_thousands(const char *text, char sep)
{
    size_t lead = strspn(text, "0123456789");
    if (lead < 1 || lead > 3 || text[0] == '0' || text[lead] != sep) {
        return false;
    }
    for (text += lead; *text == sep; text += 4) {
        if (strspn(text + 1, "0123456789") != 3) {
            return false;
        }
    }
    return *text == '\0';
}

static void drop(char *text, char c)
{
    size_t n = 0;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p != c) {
            text[n++] = *p;
        }
    }
    text[n] = '\0';
}

bool nt_parse_local(const char *text, size_t len, bool decimal_comma, double *ret)
{
    char copy[48], *dot, *comma, *end = NULL;
    double v;

    if (len == 0 || len >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (strspn(copy, "0123456789.,'+-eE") != len) {
        return false;
    }
    drop(copy, '\'');
    dot = strrchr(copy, '.');
    comma = strrchr(copy, ',');
    if (dot != NULL && comma != NULL) { /* the last one is the decimal sign */
        drop(copy, dot > comma ? ',' : '.');
    } else if (comma != NULL && in_thousands(copy, ',') &&
               !(decimal_comma && comma == strchr(copy, ','))) {
        drop(copy, ',');
    } else if (dot != NULL && dot != strchr(copy, '.') && in_thousands(copy, '.')) {
        drop(copy, '.');
    }
    comma = strchr(copy, ',');
    if (comma != NULL) {
        *comma = '.';
    }
    v = strtod(copy, &end);
    if (end == copy || *end != '\0' || !isfinite(v)) {
        return false;
    }
    *ret = v;
    return true;
}

/* The decimal number at the start of text, *end past it; negative, hex, inf and nan are refused. */
static bool leading_number(const char *text, double *ret, const char **end)
{
    char *stop = NULL;
    if (!isdigit((unsigned char)text[0]) || (text[0] == '0' && (text[1] | 32) == 'x')) {
        return false;
    }
    *ret = strtod(text, &stop);
    *end = stop;
    return isfinite(*ret);
}

int nt_parse_bytes(const char *text, uint64_t *ret, struct nt_err *err)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1},        {"B", 1},        {"K", 1024},     {"KB", 1024},
                 {"KiB", 1024},  {"M", 1048576},  {"MB", 1048576}, {"MiB", 1048576},
                 {"G", 1 << 30}, {"GB", 1 << 30}, {"GiB", 1 << 30}};
    const char *unit = NULL;
    double v = 0;

    if (leading_number(text, &v, &unit)) {
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
            if (strcasecmp(unit, units[i].unit) == 0) {
                v *= units[i].factor;
                if (v != floor(v) || v >= 0x1p53) {
                    return nt_fail(err, NT_E_INVAL, 0, "'%.100s' is not a whole number of bytes",
                                   text);
                }
                *ret = (uint64_t)v;
                return 0;
            }
        }
    }
    return nt_fail(err, NT_E_INVAL, 0, "'%.100s' is not a size (write 512, 14K, 3.5M or 1G)", text);
}

int nt_parse_wait(const char *text, uint64_t *ret_ns, struct nt_err *err)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
    const char *p = text;
    double total = 0;

    while (*p != '\0') {
        double v = 0;
        size_t i;
        if (!leading_number(p, &v, &p)) {
            goto bad;
        }
        if (*p == '\0') {
            total += v * 1e9;
            break;
        }
        for (i = 0; i < 4 && strncmp(p, units[i].unit, strlen(units[i].unit)) != 0; i++) {
        }
        if (i == 4) {
            goto bad;
        }
        total += v * units[i].ns;
        p += strlen(units[i].unit);
    }
    if (p != text && total >= 0 && total < 0x1p62) {
        *ret_ns = (uint64_t)total;
        return 0;
    }
bad:
    return nt_fail(err, NT_E_INVAL, 0, "'%.100s' is not a duration (write 90s, 5m or 1h30m)", text);
}

int nt_parse_duration(const char *text, uint64_t *ret_ns, struct nt_err *err)
{
    uint64_t ns = 0;
    int rc = nt_parse_wait(text, &ns, err);

    if (rc == 0 && ns == 0) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "'%.100s' is no time at all; write what there is, such as 500ms, 90s or 5m, "
                       "or leave it out",
                       text);
    }
    if (rc == 0) {
        *ret_ns = ns;
    }
    return rc;
}

char *nt_format_bytes(uint64_t bytes, char *out, size_t size)
{
    static const char suffix[] = " KMGT";
    unsigned i = 0;
    uint64_t unit = 1;

    while (i < 4 && bytes >= unit * 1024) {
        unit *= 1024;
        i++;
    }
    if (i > 0 && bytes % unit == 0) {
        (void)snprintf(out, size, "%llu%c", (unsigned long long)(bytes / unit), suffix[i]);
    } else if (i > 0 && bytes * 2 % unit == 0) {
        (void)snprintf(out, size, "%llu.5%c", (unsigned long long)(bytes / unit), suffix[i]);
    } else if (i > 1 && bytes % (unit / 1024) == 0) {
        (void)snprintf(out, size, "%llu%c", (unsigned long long)(bytes / (unit / 1024)),
                       suffix[i - 1]);
    } else {
        (void)snprintf(out, size, "%llu", (unsigned long long)bytes);
    }
    return out;
}

char *nt_format_ns(double ns, char *out, size_t size)
{
    static const struct {
        double ns;
        const char *name;
    } units[] = {{1e3, "µs"}, {1e6, "ms"}, {1e9, "s"}, {60e9, "min"}, {3600e9, "h"}};
    size_t i = 0;

    if (ns < 999.5) {
        (void)snprintf(out, size, "%.0f ns", ns);
        return out;
    }
    /* The unit is the one in which three digits are enough: 999.6 µs is 1 ms, not 1e+03 µs. */
    while (i + 1 < sizeof(units) / sizeof(units[0]) && ns / units[i].ns >= 999.5) {
        i++;
    }
    (void)snprintf(out, size, ns / units[i].ns < 999.5 ? "%.3g %s" : "%.0f %s", ns / units[i].ns,
                   units[i].name);
    return out;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

size_t nt_edit_distance(const char *a, const char *b)
{
    size_t rows[3][64], n = strlen(a), m = strlen(b);

    if (n > 63 || m > 63) {
        return 64;
    }
    for (size_t j = 0; j <= m; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3];
        const size_t *up = rows[(i - 1) % 3], *two_up = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = up[j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1);
            best = up[j] + 1 < best ? up[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]) && two_up[j - 2] + 1 < best) {
                best = two_up[j - 2] + 1;
            }
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *nt_nearest(const char *word, const char *const *names)
{
    const char *best = NULL;
    size_t len = strlen(word), least = (len / 3 > 2 ? len / 3 : len > 3 ? 2 : 1) + 1;

    for (; *names != NULL; names++) {
        bool begins = len > 2 && strncasecmp(word, *names, len) == 0;
        size_t d = begins ? 1 : nt_edit_distance(word, *names);
        if (d < least) {
            least = d;
            best = *names;
        }
    }
    return best;
}

int nt_fail_name(struct nt_err *err, const char *what, const char *word, const char *const *names)
{
    const char *near = nt_nearest(word, names);
    char list[320] = "";
    size_t n = 0;

    if (near != NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "unknown %s '%.80s'; did you mean '%s'?", what, word,
                       near);
    }
    for (; *names != NULL && n + strlen(*names) + 3 < sizeof(list); names++) {
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", n > 0 ? ", " : "", *names);
    }
    return nt_fail(err, NT_E_INVAL, 0, "unknown %s '%.80s'; known: %s%s", what, word, list,
                   *names != NULL ? ", …" : "");
}

size_t nt_utf8(const char *text, size_t len, uint32_t *ret_code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text;
    size_t n = p[0] < 0x80   ? 1
               : p[0] < 0xc2 ? 0
               : p[0] < 0xe0 ? 2
               : p[0] < 0xf0 ? 3
               : p[0] < 0xf5 ? 4
                             : 0;
    uint32_t code = n < 2 ? p[0] : p[0] & (0x7fU >> n);
    if (n == 0 || n > len) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (p[i] & 0x3fU);
    }
    if (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        return 0;
    }
    *ret_code = code;
    return n;
}

bool nt_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

void nt_text_plain(char *text)
{
    size_t len = strlen(text), out = 0;
    for (size_t i = 0; i < len;) {
        uint32_t code = 0;
        size_t n = nt_utf8(text + i, len - i, &code);
        if (n == 0 || nt_is_control(code)) {
            text[out++] = '?';
        } else {
            memmove(text + out, text + i, n);
            out += n;
        }
        i += n > 0 ? n : 1;
    }
    text[out] = '\0';
}

void nt_buf_put_plain(struct nt_buf *out, const char *text)
{
    char *copy = strdup(text);
    if (copy == NULL) {
        out->failed = true;
        return;
    }
    nt_text_plain(copy);
    nt_buf_puts(out, copy);
    free(copy);
}

void nt_buf_put_quoted(struct nt_buf *out, const char *text)
{
    nt_buf_puts(out, "'");
    for (size_t len; *text != '\0'; text += len) {
        len = strcspn(text, "'");
        nt_buf_add(out, text, len);
        if (text[len] == '\'') {
            nt_buf_puts(out, "'\\''");
            len++;
        }
    }
    nt_buf_puts(out, "'");
}

bool nt_is_utf16(const char *text, size_t len)
{
    if (len >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0)) {
        return true;
    }
    for (size_t first = 0; first < 2 && len >= 8; first++) {
        bool pairs = true;
        for (size_t i = 0; i < 8; i++) {
            pairs = pairs && (text[i] == '\0') == (i % 2 == first);
        }
        if (pairs) {
            return true;
        }
    }
    return false;
}
