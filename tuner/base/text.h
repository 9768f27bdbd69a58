/*
 * text - numbers, sizes, durations and names as people write them, and the nearest right name.
 * Whole strings only: "16x", "", blanks and overflow are errors.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tuner/base/buf.h"

NT_MUST_CHECK int nt_parse_u64(const char *text, uint64_t *ret, struct nt_err *err);
NT_MUST_CHECK int nt_parse_i64(const char *text, int64_t *ret, struct nt_err *err);
NT_MUST_CHECK int nt_parse_double(const char *text, double *ret, struct nt_err *err);
/* A number of another locale, the first len bytes of text: "1,234.5", "1.234,5", "43,72",
 * "1'048'576". One comma before exactly three digits is read as thousands, unless decimal_comma. */
NT_MUST_CHECK bool nt_parse_local(const char *text, size_t len, bool decimal_comma, double *ret);
/* "512", "14K", "14KiB", "3.5M", "1G": binary multiples; a fraction must come out whole. */
NT_MUST_CHECK int nt_parse_bytes(const char *text, uint64_t *ret, struct nt_err *err);
/* "90", "90s", "5m", "1h30m", "250ms" into nanoseconds, above 0; a bare number is seconds. */
NT_MUST_CHECK int nt_parse_duration(const char *text, uint64_t *ret_ns, struct nt_err *err);
/* The same where 0 has a meaning: "0", "0s". */
NT_MUST_CHECK int nt_parse_wait(const char *text, uint64_t *ret_ns, struct nt_err *err);

/* "256", "14K", "3.5M" (exact), else plain digits. out: at least 24 bytes. Returns out. */
char *nt_format_bytes(uint64_t bytes, char *out, size_t size);
/* "850 ns", "12.3 µs", "4.56 ms", "1.23 s". Returns out. */
char *nt_format_ns(double ns, char *out, size_t size);

/* How many letters of a must be put in, left out, replaced or swapped with their neighbours to make
 * b, case ignored. Words of more than 63 characters are 64 from everything. */
size_t nt_edit_distance(const char *a, const char *b);
/* The name nearest to `word` by edit distance, NULL if none is near enough to suggest: a third of
 * its length, or 2 (1 in words of up to three characters); one that begins with the word, of three
 * characters at least, is. names: NULL-terminated. */
const char *nt_nearest(const char *word, const char *const *names);
/* nt_fail with NT_E_INVAL: "unknown WHAT 'WORD'; did you mean 'NEAR'?" or the list of names. */
int nt_fail_name(struct nt_err *err, const char *what, const char *word, const char *const *names);

/* Foreign text for people. Length of the valid UTF-8 sequence at text (len bytes left), 0 if there
 * is none; *ret_code its value. */
size_t nt_utf8(const char *text, size_t len, uint32_t *ret_code);
/* C0, DEL, C1, and the marks that turn the direction of text: what drives a terminal. */
bool nt_is_control(uint32_t code);
/* In place: what drives a terminal and what is no UTF-8 becomes '?'. Never longer than it was. */
void nt_text_plain(char *text);
void nt_buf_put_plain(struct nt_buf *out, const char *text);
/* One word for a shell, in single quotes whatever it is. */
void nt_buf_put_quoted(struct nt_buf *out, const char *text);
/* Whether a file is UTF-16, as Windows' shells and editors write it: by its mark, or by a NUL in
 * every second byte of its first word. */
bool nt_is_utf16(const char *text, size_t len);
