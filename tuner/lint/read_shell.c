/*
 * Shell text: scripts, launch lines, Slurm scripts, RUN lines. A tokenizer of quotes, comments,
 * continuations and here-documents; commands that set variables are recognised by their words.
 * Nothing runs: $NAME is replaced by what the same file set before, everything else stays "not
 * resolved".
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/lint/internal.h"

enum { WORD_MAX = 4096, WORDS_MAX = 400, POOL_MAX = 65536, DEPTH_MAX = 4 };

struct word {
    size_t at, len; /* in the pool */
    uint32_t line;
    bool unresolved, quoted, spaced; /* spaced: holds a blank */
    bool fallback;                   /* of ${NAME:-text} the text stands here */
    bool splits;                     /* begins with the bare $NAME of a value with blanks */
};

struct shell {
    struct nt_lint_file *f;
    const char *p, *end;
    uint32_t line;
    bool exports_all;
    char pool[POOL_MAX];
    size_t used;
    struct word w[WORDS_MAX];
    size_t n;
    char target[256]; /* of > or >> of the current command */
    char heredoc[64];
    enum nt_lint_target heredoc_to;
    bool continued;
    unsigned nested; /* if and case that are open */
    unsigned branch; /* number of the current branch of them; 0: none */
    unsigned last_branch;
    char piped[WORD_MAX]; /* what the command before | echoes */
    uint32_t piped_line;
};

static const char *text_of(const struct shell *s, size_t i)
{
    return i < s->n ? s->pool + s->w[i].at : "";
}

static bool is(const struct shell *s, size_t i, const char *word)
{
    return i < s->n && strcmp(text_of(s, i), word) == 0;
}

/* The last word of a path: "/usr/bin/env" is "env". */
static bool is_program(const struct shell *s, size_t i, const char *name)
{
    const char *slash = strrchr(text_of(s, i), '/');
    return i < s->n && strcmp(slash != NULL ? slash + 1 : text_of(s, i), name) == 0;
}

static void put(struct shell *s, char c)
{
    struct word *w = &s->w[s->n];
    if (c != '\0' && w->len + 1 < WORD_MAX && s->used + WORDS_MAX + 2 < POOL_MAX) {
        s->pool[s->used++] = c;
        w->len++;
        w->spaced = w->spaced || c == ' ' || c == '\n';
    }
}

static void put_text(struct shell *s, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        put(s, text[i]);
    }
}

/* What the text set last under that name; NULL: nothing. */
static struct nt_lint_var *last(const struct shell *s, const char *name, size_t len)
{
    for (size_t i = s->f->nvars; i > 0; i--) {
        struct nt_lint_var *v = &s->f->vars[i - 1];
        if (strlen(v->name) == len && strncmp(v->name, name, len) == 0) {
            return v->value == NULL || v->where == NT_W_FILE ? NULL : v;
        }
    }
    return NULL;
}

/* ":-text" or "-text" up to the bracket, with nothing to expand in it. */
static bool has_default(const char *p, const char *end)
{
    p += p < end && *p == ':';
    return p < end && *p == '-' && memchr(p, '$', (size_t)(end - p)) == NULL &&
           memchr(p, '`', (size_t)(end - p)) == NULL && memchr(p, '"', (size_t)(end - p)) == NULL;
}

/* Behind "$": a name, {name…}, (command), anything else. Leaves s->p behind it. */
static void expansion(struct shell *s)
{
    const char *from = s->p - 1, *name = s->p;
    char open = s->p < s->end ? *s->p : '\0';
    size_t len = 0;
    bool first = s->w[s->n].len == 0 && !s->w[s->n].quoted, several;
    const struct nt_lint_var *v;
    if (open == '{') {
        name++;
    }
    if (open == '(' || open == '{') { /* to the matching bracket; quotes inside do not count */
        char close = open == '(' ? ')' : '}';
        int level = 0;
        do {
            level += *s->p == open;
            level -= *s->p == close;
            s->line += *s->p == '\n';
            s->p++;
        } while (s->p < s->end && level > 0);
    }
    while (name + len < s->end && (isalnum((unsigned char)name[len]) || name[len] == '_')) {
        len++;
    }
    if (open != '(' && open != '{') {
        s->p += len > 0 ? len : (s->p < s->end && *s->p != '"' && !isspace((unsigned char)*s->p));
    }
    v = open != '(' && len > 0 && (open != '{' || (name + len < s->end && name[len] == '}'))
            ? last(s, name, len)
            : NULL;
    several = v != NULL && first && strpbrk(v->value, " \t\n") != NULL;
    if (v != NULL &&
        (several || !v->unresolved)) { /* of several words those that are known count */
        s->w[s->n].splits = s->w[s->n].splits || several;
        s->w[s->n].unresolved = s->w[s->n].unresolved || v->unresolved;
        put_text(s, v->value, strlen(v->value));
        return;
    }
    if (open == '{' && len > 0 && has_default(name + len, s->p - 1)) {
        name += len + 1 + (name[len] == ':');
        put_text(s, name, (size_t)(s->p - 1 - name));
        s->w[s->n].fallback = true;
        return;
    }
    put_text(s, from, (size_t)(s->p - from));
    s->w[s->n].unresolved = s->w[s->n].unresolved || s->p - from > 1;
}

/* One quoted stretch; s->p stands behind the opening quote. */
static void quoted(struct shell *s, char quote)
{
    s->w[s->n].quoted = true;
    while (s->p < s->end && *s->p != quote) {
        char c = *s->p++;
        s->line += c == '\n';
        if (quote == '"' && c == '\\' && s->p < s->end && strchr("$`\"\\\n", *s->p) != NULL) {
            c = *s->p++;
            s->line += c == '\n';
            if (c != '\n') {
                put(s, c);
            }
        } else if (quote == '"' && (c == '$' || c == '`')) {
            if (c == '$') {
                expansion(s);
            } else {
                s->w[s->n].unresolved = true;
                put(s, c);
            }
        } else {
            put(s, c);
        }
    }
    if (s->p < s->end) {
        s->p++;
    } else {
        nt_lint_find(s->f, NT_R_BAD_SYNTAX, s->w[s->n].line, NULL, "a quote that is never closed");
    }
}

/* Backslash, blanks, end of line: the writer meant to go on, the shell ends the command. */
static void backslash(struct shell *s)
{
    const char *q = s->p;
    while (q < s->end && (*q == ' ' || *q == '\t' || *q == '\r')) {
        q++;
    }
    if (q > s->p && (q == s->end || *q == '\n')) {
        nt_lint_find(
            s->f, NT_R_COMMAND_ENDS, s->line, NULL,
            "a blank%s follows the backslash: the command ends here, and what follows is another "
            "one",
            *s->p == '\r' ? " (carriage return)" : "");
        s->p = q;
        return;
    }
    if (s->p < s->end) {
        put(s, *s->p);
        s->line += *s->p == '\n';
        s->p++;
    }
}

static bool ends_word(char c)
{
    return isspace((unsigned char)c) || (c != '\0' && strchr(";&|()<>", c) != NULL);
}

/* The last word, which began with a bare $NAME, as the words that the shell makes of it. */
static void split_last(struct shell *s)
{
    const struct word from = s->w[s->n - 1];
    char *text = s->pool + from.at;
    size_t len = from.len;
    s->n--;
    for (size_t i = 0; i < len;) {
        size_t skip = strspn(text + i, " \t\n"), n = strcspn(text + i + skip, " \t\n");
        i += skip;
        if (n == 0 || s->n == WORDS_MAX) {
            break;
        }
        s->w[s->n] = from;
        s->w[s->n].at = from.at + i;
        s->w[s->n].len = n;
        s->w[s->n].spaced = false;
        text[i + n] = '\0';
        s->w[s->n].unresolved = from.unresolved && strpbrk(text + i, "$`") != NULL;
        s->n++;
        i += n + 1;
    }
}

/* Reads one word at s->p; true when there was one. */
static bool read_word(struct shell *s)
{
    struct word *w;
    if (s->n == WORDS_MAX) { /* far beyond any launch line: the rest is dropped */
        s->n--;
        s->used = s->w[s->n].at;
        s->f->full = true;
    }
    w = &s->w[s->n];
    *w = (struct word){.at = s->used, .line = s->line};
    while (s->p < s->end && !ends_word(*s->p)) {
        char c = *s->p++;
        if (c == '\'' || c == '"') {
            quoted(s, c);
        } else if (c == '$') {
            expansion(s);
        } else if (c == '`') {
            w->unresolved = true;
            put(s, c);
        } else if (c == '\\' && s->p < s->end && *s->p == '\n') {
            s->p++;
            s->line++;
            s->continued = true;
        } else if (c == '\\') {
            backslash(s);
        } else {
            put(s, c);
        }
    }
    if (w->len == 0 && !w->quoted) {
        return false;
    }
    s->pool[s->used++] = '\0';
    s->n++;
    if (w->splits && !w->quoted) {
        split_last(s);
    }
    return true;
}

/* ---- what commands mean ---- */

static bool assignment(const struct shell *s, size_t i, size_t *ret_name_len)
{
    const char *t = text_of(s, i), *eq = strchr(t, '=');
    size_t n = eq != NULL ? (size_t)(eq - t) : 0;
    n -= n > 0 && t[n - 1] == '+'; /* A+=b */
    *ret_name_len = n;
    return i < s->n && eq != NULL && nt_lint_is_name(t, n);
}

static struct nt_lint_var *set(struct shell *s, enum nt_lint_where where, uint32_t line,
                               const char *name, size_t name_len, const char *value,
                               bool unresolved, uint32_t command)
{
    struct nt_lint_var *v =
        nt_lint_add(s->f, where, line, name, name_len, value, value != NULL ? strlen(value) : 0);
    if (v == NULL) {
        return NULL;
    }
    v->unresolved = unresolved;
    if (command > 0 || s->branch > 0) { /* branches exclude each other, commands are apart */
        char group[40];
        (void)snprintf(group, sizeof(group),
                       command > 0 ? "the command at line %u" : "branch %u of this text",
                       command > 0 ? command : s->branch);
        free(v->group);
        v->group = strdup(group);
        if (v->group == NULL) {
            s->f->full = true;
            v->group = calloc(1, 1);
        }
    }
    if (unresolved && nt_lint_is_ours(v->name)) {
        nt_lint_find(s->f, NT_R_UNRESOLVED, line, v->name,
                     "'%.80s' is only known when the shell runs", value);
    }
    return v;
}

/* NAME=VALUE at word i, or NAME alone (its value comes from the shell). */
static void set_word(struct shell *s, size_t i, enum nt_lint_where where, uint32_t command)
{
    const char *t = text_of(s, i), *value;
    char longer[WORD_MAX];
    size_t n = 0;
    if (!assignment(s, i, &n)) {
        return;
    }
    value = strchr(t, '=') + 1;
    if (t[n] == '+') { /* A+=b */
        struct nt_lint_var *had = last(s, t, n);
        (void)snprintf(longer, sizeof(longer), "%s%s", had != NULL ? had->value : "", value);
        value = longer;
        if (had != NULL) { /* it grows, and is not set twice */
            had->dead = true;
            s->w[i].unresolved = s->w[i].unresolved || had->unresolved;
            where = had->where == NT_W_ENV ? NT_W_ENV : where;
        }
    }
    if (set(s, where, s->w[i].line, t, n, value, s->w[i].unresolved, command) != NULL &&
        s->w[i].fallback && strncmp(t, "NCCL_", 5) == 0) {
        nt_lint_find(s->f, NT_R_FROM_HOST, s->w[i].line, s->f->vars[s->f->nvars - 1].name,
                     "what the shell has, or else '%.80s': checked is the latter", value);
    }
}

/* "ALL,A=1,B=2": a comma always ends a value. */
static void export_list(struct shell *s, const char *list, uint32_t line, bool unresolved)
{
    struct nt_lint_var *last = NULL;
    while (*list != '\0') {
        size_t n = strcspn(list, ",");
        const char *eq = memchr(list, '=', n);
        if (eq != NULL && nt_lint_is_name(list, (size_t)(eq - list))) {
            char value[WORD_MAX];
            (void)snprintf(value, sizeof(value), "%.*s", (int)(n - (size_t)(eq - list) - 1),
                           eq + 1);
            last = set(s, NT_W_ENV, line, list, (size_t)(eq - list), value, unresolved, 0);
        } else if (last != NULL && n > 0 && strncmp(list, "ALL", n) != 0 &&
                   nt_lint_is_ours(last->name) && strncmp(list, "NCCL_", n < 5 ? n : 5) != 0) {
            nt_lint_find(s->f, NT_R_CUT, line, last->name,
                         "a comma ends the value here: NCCL gets '%.60s', and '%.*s' is taken as a "
                         "variable's name",
                         last->value, (int)(n > 60 ? 60 : n), list);
            last = NULL;
        }
        list += n + (list[n] == ',');
    }
}

static void exported(struct shell *s, const char *name, uint32_t line)
{
    bool found = false;
    for (size_t i = 0; i < s->f->nvars; i++) {
        struct nt_lint_var *v = &s->f->vars[i];
        if (v->where == NT_W_SHELL && strcmp(v->name, name) == 0) {
            v->where = NT_W_ENV;
            found = true;
        } else if (strcmp(v->name, name) == 0) {
            found = true;
        }
    }
    if (!found && nt_lint_is_name(name, strlen(name)) && nt_lint_is_ours(name)) {
        (void)set(s, NT_W_ENV, line, name, strlen(name), NULL, false, 0);
        nt_lint_find(s->f, NT_R_FROM_HOST, line, name,
                     "passed on with the value that the shell has");
    }
}

/* Options that carry variables, in any command: mpirun -x, docker -e, srun --export, … */
static void options(struct shell *s, size_t i, uint32_t command)
{
    size_t n = 0;
    for (; i < s->n; i++) {
        const char *t = text_of(s, i);
        uint32_t line = s->w[i].line;
        bool list = strcmp(t, "--env") == 0 && strchr(text_of(s, i + 1), ',') != NULL &&
                    (is_program(s, 0, "singularity") || is_program(s, 0, "apptainer"));
        bool pair = strcmp(t, "-x") == 0 || strcmp(t, "-e") == 0 || strcmp(t, "--env") == 0;
        if (list) {
            export_list(s, text_of(s, i + 1), line, s->w[i + 1].unresolved);
            i++;
        } else if (pair && assignment(s, i + 1, &n)) {
            set_word(s, ++i, NT_W_ENV, command);
        } else if (pair && i + 1 < s->n && strncmp(text_of(s, i + 1), "NCCL_", 5) == 0) {
            exported(s, text_of(s, ++i), line);
        } else if (strncmp(t, "-e", 2) == 0 && strncmp(t + 2, "NCCL_", 5) == 0 &&
                   strchr(t, '=') != NULL) { /* docker's, without a blank */
            (void)set(s, NT_W_ENV, line, t + 2, strcspn(t + 2, "="), strchr(t, '=') + 1,
                      s->w[i].unresolved, command);
        } else if ((strcmp(t, "-genv") == 0 || strcmp(t, "-env") == 0) &&
                   assignment(s, i + 1, &n)) {
            set_word(s, ++i, NT_W_ENV, command);
        } else if ((strcmp(t, "-genv") == 0 || strcmp(t, "-env") == 0) && i + 2 < s->n) {
            (void)set(s, NT_W_ENV, line, text_of(s, i + 1), strlen(text_of(s, i + 1)),
                      text_of(s, i + 2), s->w[i + 2].unresolved, command);
            i += 2;
        } else if (strncmp(t, "--env=", 6) == 0 && strchr(t + 6, '=') != NULL) {
            const char *eq = strchr(t + 6, '=');
            (void)set(s, NT_W_ENV, line, t + 6, (size_t)(eq - t - 6), eq + 1, s->w[i].unresolved,
                      command);
        } else if (strncmp(t, "--export=", 9) == 0) {
            export_list(s, t + 9, line, s->w[i].unresolved);
        } else if (strcmp(t, "--env-file") == 0 || strncmp(t, "--env-file=", 11) == 0) {
            nt_lint_find(s->f, NT_R_SOURCED, line, NULL,
                         "an env file is read here; give it to lint as well (docker-env)");
        } else if (strncmp(t, "--runtime-env-json", 18) == 0) {
            const char *json = t[18] == '=' ? t + 19 : text_of(s, ++i);
            nt_read_json(s->f, json, strlen(json));
        } else if (assignment(s, i, &n) && nt_lint_is_ours(t) && !s->w[i].spaced) {
            set_word(s, i, NT_W_ENV, command); /* kubectl set env, ssh host NAME=value … */
        } else if (is_program(s, i, "env")) {
            while (i + 1 < s->n && (assignment(s, i + 1, &n) || text_of(s, i + 1)[0] == '-')) {
                set_word(s, ++i, NT_W_ENV, command);
            }
        }
    }
}

static void file_line(struct shell *s, enum nt_lint_target to, const char *p, size_t n,
                      uint32_t line)
{
    if (to == NT_TO_CONF) {
        nt_conf_line(s->f, p, n, line);
    } else if (to == NT_TO_ENV) {
        nt_env_line(s->f, p, n, line, true);
    }
}

static void file_text(struct shell *s, enum nt_lint_target to, const char *text, uint32_t line)
{
    struct nt_lines l = {text, text + strlen(text), 0};
    const char *p;
    size_t n;
    while (nt_lines_next(&l, &p, &n)) {
        file_line(s, to, p, n, line);
    }
}

static void joined(const struct shell *s, size_t from, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = from; i < s->n && n + 1 < size; i++) {
        n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? " " : "", text_of(s, i));
    }
}

/* echo … >> /etc/nccl.conf, echo … | tee /etc/environment */
static void writes_file(struct shell *s, size_t i, char end)
{
    bool echo = is(s, i, "echo") || is(s, i, "printf");
    char text[WORD_MAX];
    if (echo) {
        size_t from = i + 1;
        while (is(s, from, "-e") || is(s, from, "-n") || is(s, from, "-ne") || is(s, from, "-en")) {
            from++;
        }
        joined(s, from, text, sizeof(text));
        for (char *p = strstr(text, "\\n"); p != NULL; p = strstr(p, "\\n")) { /* echo -e, printf */
            *p = '\n';
            memmove(p + 1, p + 2, strlen(p + 2) + 1);
        }
        if (nt_lint_target(s->target) != NT_TO_OTHER) {
            file_text(s, nt_lint_target(s->target), text, s->w[i].line);
        } else if (end == '|') {
            (void)snprintf(s->piped, sizeof(s->piped), "%s", text);
            s->piped_line = s->w[i].line;
            return;
        }
    } else if (is(s, i, "tee") && s->piped[0] != '\0') {
        joined(s, i + 1, text, sizeof(text));
        file_text(s, nt_lint_target(text), s->piped, s->piped_line);
    }
    s->piped[0] = '\0';
}

/* Keeps count of branches: what one sets, another does not override. */
static void branches(struct shell *s, size_t i)
{
    bool opens = is(s, i, "if") || is(s, i, "case"), closes = is(s, i, "fi") || is(s, i, "esac");
    s->nested += opens;
    s->nested -= closes && s->nested > 0;
    if (opens || is(s, i, "else") || is(s, i, "elif")) {
        s->branch = s->nested > 0 ? ++s->last_branch : 0;
    }
    if (s->nested == 0) {
        s->branch = 0;
    }
}

static size_t skip_keywords(const struct shell *s, size_t i)
{
    static const char *const words[] = {"if",    "then",    "else", "elif", "do",   "while",
                                        "until", "!",       "{",    "time", "sudo", "exec",
                                        "nohup", "command", "-E",   NULL};
    for (size_t k = 0; words[k] != NULL; k++) {
        if (is(s, i, words[k])) {
            i++;
            k = (size_t)-1;
        }
    }
    return i;
}

static void nested_shell(struct shell *s)
{
    for (size_t i = 1; i + 1 < s->n; i++) {
        const char *opt = text_of(s, i);
        bool c = opt[0] == '-' && opt[1] != '-' && opt[1] != '\0' && opt[strlen(opt) - 1] == 'c';
        if (c && (is_program(s, i - 1, "sh") || is_program(s, i - 1, "bash"))) {
            nt_shell_text(s->f, text_of(s, i + 1), strlen(text_of(s, i + 1)), s->w[i + 1].line,
                          false);
        }
    }
}

/* Commands whose arguments are text, not settings. */
static bool only_reads(const struct shell *s, size_t i)
{
    static const char *const words[] = {"echo", "printf", "grep", "egrep", "sed",    "awk",
                                        "test", "[",      "[[",   "alias", "return", NULL};
    for (size_t k = 0; words[k] != NULL; k++) {
        if (is(s, i, words[k])) {
            return true;
        }
    }
    return false;
}

static void exports(struct shell *s, size_t i)
{
    size_t n = 0;
    for (i++; i < s->n; i++) {
        if (assignment(s, i, &n)) {
            set_word(s, i, NT_W_ENV, 0);
        } else if (text_of(s, i)[0] != '-') {
            exported(s, text_of(s, i), s->w[i].line);
        }
    }
}

static void forget(struct shell *s, size_t i)
{
    for (i++; i < s->n; i++) {
        for (size_t k = 0; k < s->f->nvars; k++) {
            struct nt_lint_var *v = &s->f->vars[k];
            v->dead = v->dead || (v->where != NT_W_FILE && strcmp(v->name, text_of(s, i)) == 0);
        }
    }
}

static void command(struct shell *s, char end)
{
    size_t i = skip_keywords(s, 0), n = 0, first = i;
    uint32_t line = s->n > 0 ? s->w[0].line : s->line;
    branches(s, 0);
    while (assignment(s, i, &n)) {
        i++;
    }
    if (i >= s->n) {
        for (size_t k = first; k < s->n; k++) {
            set_word(s, k, s->exports_all ? NT_W_ENV : NT_W_SHELL, 0);
        }
    } else {
        for (size_t k = first; k < i; k++) {
            set_word(s, k, NT_W_ENV, line);
        }
        if (is(s, i, "export") ||
            ((is(s, i, "declare") || is(s, i, "typeset")) && is(s, i + 1, "-x"))) {
            exports(s, i);
        } else if (is(s, i, "declare") || is(s, i, "local") || is(s, i, "readonly")) {
            for (size_t k = i + 1; k < s->n; k++) {
                set_word(s, k, s->exports_all ? NT_W_ENV : NT_W_SHELL, 0);
            }
        } else if (is(s, i, "setenv") && i + 1 < s->n) {
            (void)set(s, NT_W_ENV, s->w[i].line, text_of(s, i + 1), strlen(text_of(s, i + 1)),
                      text_of(s, i + 2), i + 2 < s->n && s->w[i + 2].unresolved, 0);
        } else if (is(s, i, "unset")) {
            forget(s, i);
        } else if (is(s, i, "set") && text_of(s, i + 1)[0] == '-' &&
                   strchr(text_of(s, i + 1), 'x') != NULL && nt_lint_is_ours(text_of(s, i + 2))) {
            (void)set(s, NT_W_ENV, s->w[i].line, text_of(s, i + 2), strlen(text_of(s, i + 2)),
                      text_of(s, i + 3), i + 3 < s->n && s->w[i + 3].unresolved, 0); /* fish */
        } else if (is(s, i, "set") && (is(s, i + 1, "-a") || is(s, i + 2, "allexport"))) {
            s->exports_all = is(s, i + 1, "-a") || is(s, i + 1, "-o");
        } else if (is(s, i, "set") && is(s, i + 1, "+a")) {
            s->exports_all = false;
        } else if (is(s, i, "source") || is(s, i, ".")) {
            nt_lint_find(s->f, NT_R_SOURCED, s->w[i].line, NULL,
                         "%.200s is read here; it was not looked at", text_of(s, i + 1));
        } else if (!only_reads(s, i)) {
            options(s, i, line);
            nested_shell(s);
        }
        writes_file(s, i, end);
    }
    s->n = 0;
    s->used = 0;
    s->target[0] = '\0';
}

/* ---- the text ---- */

static void sbatch(struct shell *s, const char *line, size_t len)
{
    const char *p = memmem(line, len, "--export=", 9);
    if (len > 7 && strncmp(line, "#SBATCH", 7) == 0 && p != NULL) {
        char list[WORD_MAX];
        size_t n = 0;
        p += 9;
        while (p + n < line + len && !isspace((unsigned char)p[n])) {
            n++;
        }
        (void)snprintf(list, sizeof(list), "%.*s", (int)(n < sizeof(list) ? n : sizeof(list) - 1),
                       p);
        export_list(s, list, s->line, false);
    }
}

static void comment(struct shell *s)
{
    const char *from = s->p;
    while (s->p < s->end && *s->p != '\n') {
        s->p++;
    }
    sbatch(s, from, (size_t)(s->p - from));
    if (s->continued && s->n > 0) {
        nt_lint_find(s->f, NT_R_COMMAND_ENDS, s->line, NULL,
                     "a comment inside a continued command: the command ends here");
    }
}

/* < or >: the word behind it is a file, not an argument. */
static void redirection(struct shell *s)
{
    char c = *s->p;
    bool after_equals = s->n > 0 && s->p[-1] == '=';
    size_t had;
    if (after_equals) {
        size_t n = 0;
        char name[128] = "";
        if (assignment(s, s->n - 1, &n)) {
            (void)snprintf(name, sizeof(name), "%.*s", (int)n, text_of(s, s->n - 1));
            s->w[s->n - 1].unresolved = true;
        }
        if (name[0] != '\0' && nt_lint_is_ours(name)) {
            nt_lint_find(s->f, NT_R_REDIRECTION, s->line, name,
                         "the shell takes %c as a redirection: the value is empty; quote it, or "
                         "put the real "
                         "value in",
                         c);
        }
    }
    s->p++;
    if (c == '<' && s->p < s->end && *s->p == '<' && !(s->p + 1 < s->end && s->p[1] == '<')) {
        s->p++;
        s->p += s->p < s->end && *s->p == '-';
        c = 'h';
    }
    while (s->p < s->end && (*s->p == c || *s->p == '&' || *s->p == ' ' || *s->p == '\t')) {
        s->p++;
    }
    had = s->n;
    if (s->p < s->end && *s->p != '\n' && *s->p != '#' && read_word(s)) {
        if (c == '>') {
            (void)snprintf(s->target, sizeof(s->target), "%s", text_of(s, had));
        } else if (c == 'h') {
            (void)snprintf(s->heredoc, sizeof(s->heredoc), "%s", text_of(s, had));
        }
        s->n = had < s->n ? had : s->n - 1;
        s->used = s->w[s->n].at;
    }
}

/* The body of a here-document; lines for an nccl.conf are read as such. */
static void heredoc(struct shell *s)
{
    struct nt_lines l = {s->p, s->end, s->line - 1};
    const char *line;
    size_t n;
    while (nt_lines_next(&l, &line, &n)) {
        size_t tabs = 0;
        while (tabs < n && line[tabs] == '\t') {
            tabs++;
        }
        s->p = l.p;
        s->line = l.line + 1;
        if (n - tabs == strlen(s->heredoc) && strncmp(line + tabs, s->heredoc, n - tabs) == 0) {
            break;
        }
        file_line(s, s->heredoc_to, line, n, l.line);
    }
    s->heredoc[0] = '\0';
    s->heredoc_to = NT_TO_OTHER;
}

static void end_command(struct shell *s, char end)
{
    if (s->heredoc[0] != '\0') { /* cat > /etc/nccl.conf <<EOF, tee /etc/nccl.conf <<EOF */
        char all[WORD_MAX];
        joined(s, 0, all, sizeof(all));
        s->heredoc_to = nt_lint_target(s->target) != NT_TO_OTHER ? nt_lint_target(s->target)
                        : nt_lint_target(all) != NT_TO_OTHER     ? nt_lint_target(all)
                                                                 : s->heredoc_to;
    }
    if (s->n > 0) {
        command(s, end);
    } else if (end != '|') {
        s->piped[0] = '\0';
    }
}

static void scan(struct shell *s)
{
    while (s->p < s->end) {
        char c = *s->p;
        if (c == '\n') {
            end_command(s, c);
            s->p++;
            s->line++;
            s->continued = false;
            if (s->heredoc[0] != '\0') {
                heredoc(s);
            }
        } else if (isspace((unsigned char)c)) {
            s->p++;
        } else if (c == '(' || c == ')') {
            end_command(s, ';');
            s->p++;
        } else if (c == '#') {
            comment(s);
        } else if (c == ';' || c == '&' || c == '|') {
            bool two = s->p + 1 < s->end && s->p[1] == c;
            end_command(s, two ? ';' : c);
            if (two && c == ';' && s->nested > 0) {
                s->branch = ++s->last_branch; /* ;; ends a branch of a case */
            }
            s->p += two ? 2 : 1;
        } else if (c == '<' || c == '>') {
            redirection(s);
        } else {
            const char *before = s->p;
            if (!read_word(s) && s->p == before) {
                s->p++; /* whatever it is, it is no word */
            }
        }
    }
    end_command(s, '\n');
}

void nt_shell_text(struct nt_lint_file *f, const char *text, size_t len, uint32_t first_line,
                   bool exports_all)
{
    struct shell *s = f->depth < DEPTH_MAX ? malloc(sizeof(*s)) : NULL;
    if (s == NULL) {
        f->full = true;
        return;
    }
    *s = (struct shell){
        .f = f, .p = text, .end = text + len, .line = first_line, .exports_all = exports_all};
    f->depth++;
    scan(s);
    f->depth--;
    free(s);
}

void nt_read_shell(struct nt_lint_file *f, const char *text, size_t len)
{
    struct nt_lines l = {text, text + len, 0};
    const char *line;
    size_t n;
    while (nt_lines_next(&l, &line, &n)) {
        if (n > 0 && line[n - 1] == '\r') {
            nt_lint_find(
                f, NT_R_CRLF, l.line, NULL,
                "lines end with carriage returns, which a shell takes as part of the last word");
            break;
        }
    }
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        len -= 3;
    }
    nt_shell_text(f, text, len, 1, false);
}
