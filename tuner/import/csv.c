#include "tuner/import/csv.h"

#include <string.h>

/* The bytes of the separator at p, 0 when there is none. */
static size_t separates(const char *p, const char *end, char sep)
{
    size_t blanks = 0;
    if (sep == '|' && end - p >= 3 &&
        (memcmp(p, "\xe2\x94\x82", 3) == 0 || memcmp(p, "\xe2\x94\x83", 3) == 0)) {
        return 3; /* bars of a frame */
    }
    if (sep != ' ') {
        return *p == sep;
    }
    while (p + blanks < end && p[blanks] == ' ') {
        blanks++;
    }
    return blanks > 1 ? blanks : 0;
}

void nt_csv_open(struct nt_csv *c, const char *text, size_t len)
{
    static const char seps[] = ",;\t|";
    size_t best = 0;
    *c = (struct nt_csv){.p = text, .end = text + len, .sep = ',', .next_line = 1};
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        c->p += 3;
    }
    for (const char *line = c->p; line < c->end;) {
        const char *eol = memchr(line, '\n', (size_t)(c->end - line));
        eol = eol != NULL ? eol : c->end;
        if (*line != '#' && *line != '\n' && *line != '\r') {
            for (size_t s = 0; seps[s] != '\0'; s++) {
                size_t n = 0;
                bool quoted = false;
                for (const char *q = line; q < eol; q++) {
                    quoted ^= *q == '"';
                    n += !quoted && separates(q, eol, seps[s]) > 0;
                }
                if (n > best) {
                    best = n;
                    c->sep = seps[s];
                }
            }
            if (best == 0 && memmem(line, (size_t)(eol - line), "  ", 2) != NULL) {
                c->sep = ' ';
            }
            return;
        }
        line = eol + 1;
    }
}

void nt_csv_copy(struct nt_csv *c, const struct nt_csv *from)
{
    *c = (struct nt_csv){
        .p = from->p, .end = from->end, .sep = from->sep, .next_line = from->next_line};
}

static void trim(char **cell, const char *marks)
{
    char *s = *cell + strspn(*cell, marks), *e = s + strlen(s);
    while (e > s && strchr(marks, e[-1]) != NULL) {
        *--e = '\0';
    }
    *cell = s;
}

/* One record from p; quotes may hold separators, and line ends. */
static void record(struct nt_csv *c)
{
    size_t used = 0;
    bool quoted = false;
    c->n = 0;
    c->truncated = false;
    c->cell[c->n++] = c->text;
    while (c->sep == ' ' && c->p < c->end && *c->p == ' ') {
        c->p++;
    }
    while (c->p < c->end && (quoted || *c->p != '\n')) {
        char ch = *c->p++;
        c->next_line += ch == '\n';
        if (ch == '"') {
            if (quoted && c->p < c->end && *c->p == '"') {
                c->p++;
            } else {
                quoted = !quoted;
                continue;
            }
        } else if (!quoted && separates(c->p - 1, c->end, c->sep) > 0) {
            c->p += separates(c->p - 1, c->end, c->sep) - 1;
            if (c->n == NT_CSV_COLUMNS || used + 2 >= sizeof(c->text)) {
                c->truncated = true;
                continue;
            }
            c->text[used++] = '\0';
            c->cell[c->n++] = c->text + used;
            continue;
        }
        if (used + 2 < sizeof(c->text)) {
            c->text[used++] = ch == '\0' || ch == '\n' ? ' ' : ch;
        } else {
            c->truncated = true;
        }
    }
    c->text[used] = '\0';
    c->next_line += c->p < c->end;
    c->p += c->p < c->end;
    for (size_t i = 0; i < c->n; i++) {
        trim(&c->cell[i], c->sep == '|' ? " \t\r*`" : " \t\r");
    }
    c->n -= c->sep == ' ' && c->n > 1 && c->cell[c->n - 1][0] == '\0';
}

bool nt_csv_next(struct nt_csv *c)
{
    while (c->p < c->end) {
        bool comment = *c->p == '#';
        c->line = c->next_line;
        if (comment) { /* quotes in a comment mean nothing */
            const char *eol = memchr(c->p, '\n', (size_t)(c->end - c->p));
            c->p = eol != NULL ? eol + 1 : c->end;
            c->next_line++;
            continue;
        }
        record(c);
        if (c->n > 1 || c->cell[0][0] != '\0') {
            return true;
        }
    }
    return false;
}
