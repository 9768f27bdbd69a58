/* csv - records of separated values, quotes included; bounded, in place of the text given. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NT_CSV_COLUMNS = 64, NT_CSV_TEXT = 8192 };

struct nt_csv {
    const char *p, *end;
    char sep;
    uint32_t line; /* where the record last read began */
    uint32_t next_line;
    char text[NT_CSV_TEXT];     /* the cells' text */
    char *cell[NT_CSV_COLUMNS]; /* trimmed, without quotes */
    size_t n;
    bool truncated; /* more columns or text than fit: the rest was dropped */
};

/* Skips a byte order mark. The separator is the commonest of , ; tab | in the first record; where
 * there is none and words stand apart by two blanks or more, those (sep is ' '). Bars of a frame
 * are as good as |; of cells between bars the marks of Markdown are taken off. */
void nt_csv_open(struct nt_csv *c, const char *text, size_t len);
/* A reader of its own that goes on where `from` stands. */
void nt_csv_copy(struct nt_csv *c, const struct nt_csv *from);
/* The next record that is neither blank nor a comment (# in column 0); false at the end. */
bool nt_csv_next(struct nt_csv *c);
