/* Dockerfile: ENV in both forms, ARG, and the shell texts of RUN. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tuner/lint/internal.h"

enum { INSTRUCTION_MAX = 65536, VALUE_MAX = 4096 };

/* One instruction with its continuations joined: comment lines inside it are dropped, as Docker
 * does. Line ends stay, so that lines can be counted. */
static bool instruction(struct nt_lines *l, char *out, size_t *ret_len, uint32_t *ret_line)
{
    const char *line;
    size_t n, used = 0;
    bool more = true, first = true;
    while (more && nt_lines_next(l, &line, &n)) {
        size_t at = 0;
        n -= n > 0 && line[n - 1] == '\r';
        while (at < n && (line[at] == ' ' || line[at] == '\t')) {
            at++;
        }
        if (at == n || line[at] == '#') {
            if (!first && used + 1 < INSTRUCTION_MAX) {
                out[used++] = '\n';
            }
            continue;
        }
        if (first) {
            *ret_line = l->line;
            first = false;
        }
        while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t')) {
            n--;
        }
        more = line[n - 1] == '\\';
        n -= more;
        if (used + n + 2 < INSTRUCTION_MAX) {
            memcpy(out + used, line, n);
            used += n;
            out[used++] = '\n';
        }
    }
    *ret_len = used;
    return !first;
}

static const struct nt_lint_var *known(const struct nt_lint_file *f, size_t before,
                                       const char *name, size_t len)
{
    for (size_t i = before; i > 0; i--) {
        const struct nt_lint_var *v = &f->vars[i - 1];
        if (v->where != NT_W_FILE && v->value != NULL && strlen(v->name) == len &&
            strncmp(v->name, name, len) == 0) {
            return v->unresolved ? NULL : v;
        }
    }
    return NULL;
}

struct value {
    char text[VALUE_MAX];
    size_t len;
    bool unresolved;
};

static void put(struct value *v, const char *s, size_t len)
{
    if (v->len + len < VALUE_MAX) {
        memcpy(v->text + v->len, s, len);
        v->len += len;
    }
}

/* $NAME or ${NAME} at s: replaced by an earlier ENV; returns how much was read. */
static size_t dollar(const struct nt_lint_file *f, size_t before, const char *s, size_t len,
                     struct value *v)
{
    bool brace = len > 1 && s[1] == '{';
    size_t from = brace ? 2 : 1, n = from;
    const struct nt_lint_var *var;
    while (n < len && (isalnum((unsigned char)s[n]) || s[n] == '_')) {
        n++;
    }
    var = n > from ? known(f, before, s + from, n - from) : NULL;
    if (brace) {
        if (n >= len || s[n] != '}') { /* ${A:-b} */
            var = NULL;
            while (n < len && s[n] != '}') {
                n++;
            }
        }
        n += n < len;
    }
    if (var != NULL) {
        put(v, var->value, strlen(var->value));
    } else {
        put(v, s, n);
        v->unresolved = v->unresolved || n > 1;
    }
    return n;
}

/* A value up to an unquoted blank (whole: up to the end). Returns how much was read. */
static size_t value_of(const struct nt_lint_file *f, size_t before, const char *s, size_t len,
                       bool whole, struct value *v)
{
    char quote = '\0';
    size_t i = 0;
    v->len = 0;
    v->unresolved = false;
    while (i < len && (whole || quote != '\0' || !isspace((unsigned char)s[i]))) {
        if (quote == '\0' ? (s[i] == '"' || s[i] == '\'') : s[i] == quote) {
            quote = quote == '\0' ? s[i] : '\0';
            i++;
        } else if (s[i] == '\\' && quote != '\'' && i + 1 < len) {
            put(v, s + i + 1, 1);
            i += 2;
        } else if (s[i] == '$' && quote != '\'') {
            i += dollar(f, before, s + i, len - i, v);
        } else {
            put(v, s + i, 1);
            i++;
        }
    }
    return i;
}

static uint32_t lines_in(const char *s, size_t len)
{
    uint32_t n = 0;
    for (size_t i = 0; i < len; i++) {
        n += s[i] == '\n';
    }
    return n;
}

static void env(struct nt_lint_file *f, const char *s, size_t len, uint32_t line, bool arg)
{
    size_t before = f->nvars, i = 0, word = 0;
    struct value *v = malloc(sizeof(*v));
    if (v == NULL) {
        f->full = true;
        return;
    }
    while (word < len && s[word] != '=' && !isspace((unsigned char)s[word])) {
        word++;
    }
    if (word < len && s[word] != '=' && !arg) { /* the old form: ENV NAME all the rest */
        size_t at = word, end = len;
        struct nt_lint_var *var;
        while (at < len && isspace((unsigned char)s[at])) {
            at++;
        }
        while (end > at && isspace((unsigned char)s[end - 1])) {
            end--;
        }
        (void)value_of(f, before, s + at, end - at, true, v);
        var = nt_lint_add(f, NT_W_ENV, line, s, word, v->text, v->len);
        if (var != NULL) {
            var->unresolved = v->unresolved;
        }
        i = len;
    }
    while (i < len) {
        size_t name = i;
        struct nt_lint_var *var;
        if (isspace((unsigned char)s[i])) {
            i++;
            continue;
        }
        while (i < len && s[i] != '=' && !isspace((unsigned char)s[i])) {
            i++;
        }
        if (i >= len || s[i] != '=') {
            if (!arg) {
                nt_lint_find(f, NT_R_BAD_SYNTAX, line + lines_in(s, name), NULL,
                             "'%.*s' in ENV is no NAME=value: a value with blanks needs quotes",
                             (int)(i - name > 60 ? 60 : i - name), s + name);
            }
            continue;
        }
        {
            size_t name_len = i - name;
            i++;
            i += value_of(f, before, s + i, len - i, false, v);
            var = nt_lint_add(f, arg ? NT_W_SHELL : NT_W_ENV, line + lines_in(s, name), s + name,
                              name_len, v->text, v->len);
            if (var != NULL) {
                var->unresolved = v->unresolved;
            }
        }
    }
    free(v);
}

static bool begins(const char *s, size_t len, const char *word, size_t *ret_rest)
{
    size_t n = strlen(word);
    if (len <= n || strncasecmp(s, word, n) != 0 || !isspace((unsigned char)s[n])) {
        return false;
    }
    while (n < len && isspace((unsigned char)s[n])) {
        n++;
    }
    *ret_rest = n;
    return true;
}

/* Exports of a RUN die with it. Line ends inside it were continued. */
static void run(struct nt_lint_file *f, const char *s, size_t len, uint32_t line)
{
    size_t before = f->nvars, n = 0;
    char *text = malloc(2 * len + 1);
    if (text == NULL) {
        f->full = true;
        return;
    }
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '\n') {
            text[n++] = '\\';
        }
        text[n++] = s[i];
    }
    nt_shell_text(f, text, n, line, false);
    for (size_t i = before; i < f->nvars; i++) {
        struct nt_lint_var *v = &f->vars[i];
        if (v->where == NT_W_ENV && v->group[0] == '\0') {
            v->where = NT_W_SHELL;
        }
    }
    free(text);
}

void nt_read_dockerfile(struct nt_lint_file *f, const char *text, size_t len)
{
    struct nt_lines l = {text, text + len, 0};
    char *buf = malloc(INSTRUCTION_MAX);
    size_t n = 0;
    uint32_t line = 0;
    if (buf == NULL) {
        f->full = true;
        return;
    }
    while (instruction(&l, buf, &n, &line)) {
        size_t at = 0, rest = 0;
        while (at < n && isspace((unsigned char)buf[at])) {
            at++;
        }
        if (begins(buf + at, n - at, "ENV", &rest)) {
            env(f, buf + at + rest, n - at - rest, line, false);
        } else if (begins(buf + at, n - at, "ARG", &rest)) {
            env(f, buf + at + rest, n - at - rest, line, true);
        } else if (begins(buf + at, n - at, "RUN", &rest)) {
            run(f, buf + at + rest, n - at - rest, line);
        }
    }
    free(buf);
}
