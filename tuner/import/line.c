#include "tuner/import/line.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/text.h"

/* ESC [ … letter: the colours of a terminal. Returns the bytes to skip. */
static size_t escape_len(const char *p, size_t len)
{
    size_t i = 2;
    if (len < 2 || p[0] != '\x1b' || p[1] != '[') {
        return 0;
    }
    while (i < len && !isalpha((unsigned char)p[i])) {
        i++;
    }
    return i < len ? i + 1 : i;
}

/* "[1,0]<stdout>:", as mpirun tags its lines; blanks may follow or not. */
static size_t tag_len(const char *p, size_t len)
{
    size_t i = 1;
    if (len < 3 || p[0] != '[' || !isdigit((unsigned char)p[1])) {
        return 0;
    }
    while (i < len && (isdigit((unsigned char)p[i]) || p[i] == ',')) {
        i++;
    }
    if (i >= len || p[i++] != ']' || i >= len || p[i] != '<') {
        return 0;
    }
    while (i < len && p[i] != '>') {
        i++;
    }
    if (++i >= len) {
        return len;
    }
    return p[i] == ':' ? i + 1 : i;
}

/* A blank by another name: no-break, thin or narrow. Returns its bytes, 0 when it is none. */
static size_t blank_len(const char *p, size_t len)
{
    static const char *const blanks[] = {"\xc2\xa0", "\xe2\x80\x89", "\xe2\x80\xaf"};
    for (size_t i = 0; i < sizeof(blanks) / sizeof(blanks[0]); i++) {
        size_t n = strlen(blanks[i]);
        if (len >= n && memcmp(p, blanks[i], n) == 0) {
            return n;
        }
    }
    return 0;
}

void nt_line_split(struct nt_line *l, const char *raw, size_t len)
{
    size_t out = 0, i = 0;
    bool in_word = false;
    l->n = 0;
    while (i < len && (raw[i] == ' ' || raw[i] == '\t')) {
        i++;
    }
    i += tag_len(raw + i, len - i);
    while (i < len && out + 1 < sizeof(l->text)) {
        size_t skip = escape_len(raw + i, len - i);
        if (skip > 0) {
            i += skip;
            continue;
        }
        skip = blank_len(raw + i, len - i);
        if (skip > 0 || isspace((unsigned char)raw[i]) || raw[i] == '\0' || raw[i] == '|') {
            l->text[out++] = ' ';
            i += skip > 0 ? skip : 1;
            continue;
        }
        l->text[out++] = raw[i++];
    }
    while (out > 0 && l->text[out - 1] == ' ') {
        out--;
    }
    l->text[out] = '\0';
    for (size_t k = 0; k < out; k++) {
        if (l->text[k] == ' ') {
            in_word = false;
        } else if (in_word) {
            l->len[l->n - 1]++;
        } else if (l->n < NT_LINE_WORDS) {
            l->word[l->n] = &l->text[k];
            l->len[l->n++] = 1;
            in_word = true;
        } else {
            break;
        }
    }
}

bool nt_line_is(const struct nt_line *l, size_t i, const char *word)
{
    return i < l->n && strlen(word) == l->len[i] && strncmp(l->word[i], word, l->len[i]) == 0;
}

/* 1 to 19 digits and nothing else: always fits. */
static bool digits(const char *p, size_t len, uint64_t *ret)
{
    uint64_t v = 0;
    if (len == 0 || len > 19) {
        return false;
    }
    for (size_t k = 0; k < len; k++) {
        if (!isdigit((unsigned char)p[k])) {
            return false;
        }
        v = v * 10 + (uint64_t)(p[k] - '0');
    }
    *ret = v;
    return true;
}

bool nt_line_u64(const struct nt_line *l, size_t i, uint64_t *ret)
{
    return i < l->n && digits(l->word[i], l->len[i], ret);
}

bool nt_line_count(const struct nt_line *l, size_t i, uint64_t *ret)
{
    char plain[24];
    size_t lead = i < l->n ? strcspn(l->word[i], ",.'") : 0, n = 0;
    char sep = i < l->n && lead < l->len[i] ? l->word[i][lead] : '\0';
    if (sep == '\0') {
        return nt_line_u64(l, i, ret);
    }
    for (size_t k = 0; k < l->len[i]; k++) {
        bool place = k >= lead && (k - lead) % 4 == 0;
        if (place != (l->word[i][k] == sep) || n + 1 >= sizeof(plain)) {
            return false;
        }
        if (!place) {
            plain[n++] = l->word[i][k];
        }
    }
    return lead >= 1 && lead <= 3 && (l->len[i] - lead) % 4 == 0 && digits(plain, n, ret);
}

bool nt_line_i64(const struct nt_line *l, size_t i, int64_t *ret)
{
    uint64_t v = 0;
    size_t minus = i < l->n && l->word[i][0] == '-';
    if (i >= l->n || !digits(l->word[i] + minus, l->len[i] - minus, &v) || v > INT64_MAX) {
        return false;
    }
    *ret = minus ? -(int64_t)v : (int64_t)v;
    return true;
}

bool nt_line_double(const struct nt_line *l, size_t i, double *ret)
{
    char word[40];
    char *end = NULL;
    if (i >= l->n || l->len[i] >= sizeof(word)) {
        return false;
    }
    memcpy(word, l->word[i], l->len[i]);
    word[l->len[i]] = '\0';
    if (strspn(word, "0123456789.eE+-") != l->len[i]) {
        return nt_parse_local(word, l->len[i], false, ret);
    }
    *ret = strtod(word, &end);
    return *end == '\0' && end != word && *ret > -1e300 && *ret < 1e300;
}

bool nt_line_after_u64(const struct nt_line *l, const char *key, uint64_t *ret)
{
    const char *p = strstr(l->text, key);
    if (p == NULL) {
        return false;
    }
    p += strlen(key);
    p += strspn(p, " ");
    return digits(p, strspn(p, "0123456789"), ret);
}
