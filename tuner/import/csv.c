#include "tuner/import/csv.h"

#include <string.h>

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
                    n += !quoted && *q == seps[s];
                }
                if (n > best) {
                    best = n;
                    c->sep = seps[s];
                }
            }
            return;
        }
        line = eol + 1;
    }
}

static void trim(char **cell)
{
    char *s = *cell, *e = s + strlen(s);
    while (*s == ' ' || *s == '\t') {
        s++;
    }
    while (e > s && (e[-1] == ' ' || e[-1] == '\t' || e[-1] == '\r')) {
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
        } else if (ch == c->sep && !quoted) {
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
        trim(&c->cell[i]);
    }
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
