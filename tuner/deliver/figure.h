/*
 * figure - a number that a program prints, found by an extended regular expression of POSIX. Pure.
 *
 * Of what is printed the last match counts; lines end with \n or \r (progress bars), colours are
 * taken out. Units: a time comes out in seconds ("980 ms" is 0.98 s), prefixes of rates and sizes
 * are multiplied out ("1.2k tok/s" is 1200 tok/s), what else stands behind the number is its unit.
 */
#pragma once
#include <regex.h>
#include "tuner/base/buf.h"

struct nt_figure {
    double value;
    double step;   /* what one more in the last digit would be: 0.1 of "82.2", 100 of "1.2k" */
    char unit[16]; /* "s", "tok/s", "" */
};
/* "82.2", "1,234.5 tok/s", "1.2k", "980 ms", "12 GB/s": the whole text, blanks around it aside. */
bool nt_figure_parse(const char *text, size_t len, struct nt_figure *ret);

struct nt_figure_spec {
    char name[64];
    regex_t re;
    bool open; /* re is to be freed */
};
/* "NAME=REGEX"; the first group of REGEX holds the number. nt_figure_close() frees. */
NT_MUST_CHECK int nt_figure_open(const char *assignment, struct nt_figure_spec *ret,
                                 struct nt_err *err);
void nt_figure_close(struct nt_figure_spec *s); /* zeroed is fine */

/* What was found so far in a text that comes in pieces; zeroed to begin with. */
enum { NT_FIGURE_LINE = 8192 /* a longer line is taken in pieces of this length */ };
struct nt_figure_found {
    unsigned matches;
    bool number; /* the last match is one */
    struct nt_figure last;
    char text[80]; /* of the last match's group */
    char line[NT_FIGURE_LINE];
    size_t len;
};
void nt_figure_feed(const struct nt_figure_spec *s, const char *text, size_t len,
                    struct nt_figure_found *f);
/* The text has ended: a last line without its end counts too. */
void nt_figure_end(const struct nt_figure_spec *s, struct nt_figure_found *f);
