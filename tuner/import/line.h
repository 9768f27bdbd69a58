/* line - one line of a log as words, with launchers' prefixes, colours, carriage returns and
 * the bars of a Markdown table gone.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NT_LINE_MAX = 4096, NT_LINE_WORDS = 96 };

struct nt_line {
    char text[NT_LINE_MAX];
    const char *word[NT_LINE_WORDS]; /* into text, not NUL-terminated */
    size_t len[NT_LINE_WORDS];
    size_t n;
};

void nt_line_split(struct nt_line *l, const char *raw, size_t len);
bool nt_line_is(const struct nt_line *l, size_t i, const char *word);
/* A whole word as a number, of any locale where it has decimals. "N/A" and "nan" are none. */
bool nt_line_u64(const struct nt_line *l, size_t i, uint64_t *ret);
/* The same, also written in thousands: "1,048,576", "1.048.576", "1'048'576". */
bool nt_line_count(const struct nt_line *l, size_t i, uint64_t *ret);
bool nt_line_i64(const struct nt_line *l, size_t i, int64_t *ret);
bool nt_line_double(const struct nt_line *l, size_t i, double *ret);
/* The number after `key` in the line's text, blanks between skipped. */
bool nt_line_after_u64(const struct nt_line *l, const char *key, uint64_t *ret);
