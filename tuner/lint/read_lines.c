/* Forms that are lines of assignments: nccl.conf, env files, a process's environment, systemd, UCC.
 */
#include <ctype.h>
#include <string.h>

#include "tuner/lint/internal.h"

enum { CONF_MAX = 1023, COMMENTS_SKIPPED_SINCE = 22600 };

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* "{{path}}", "<path>", "$HOME" where nothing replaces them. */
static bool placeholder(const char *v, size_t len)
{
    const char *lt = memchr(v, '<', len);
    return memmem(v, len, "{{", 2) != NULL || memchr(v, '$', len) != NULL ||
           (lt != NULL && memchr(lt, '>', len - (size_t)(lt - v)) != NULL);
}

static bool quoted(const char *v, size_t len)
{
    return len > 0 && (v[0] == '"' || v[0] == '\'' || v[len - 1] == '"' || v[len - 1] == '\'');
}

/* Where a comment begins that follows a value: a blank, then #. len when there is none. */
static size_t comment_at(const char *v, size_t len)
{
    for (size_t i = 1; i < len; i++) {
        if (v[i] == '#' && is_blank(v[i - 1])) {
            return i;
        }
    }
    return len;
}

/* What a reader that keeps every byte makes of a value. who: "NCCL", "docker". */
static void kept(struct nt_lint_file *f, const char *who, uint32_t line,
                 const struct nt_lint_var *v)
{
    size_t len = strlen(v->value), end = len;
    while (end > 0 && v->value[end - 1] == '\r') {
        end--;
    }
    if (!nt_lint_is_ours(v->name) || end == 0) {
        return;
    }
    if (quoted(v->value, end)) {
        nt_lint_find(f, NT_R_QUOTES, line, v->name, "%s keeps the quotes: the value is %.80s", who,
                     v->value);
    }
    if (comment_at(v->value, end) < end) {
        nt_lint_find(f, NT_R_COMMENT_KEPT, line, v->name,
                     "%s knows no comments behind values: the value is '%.80s'", who, v->value);
    } else if (is_blank(v->value[0]) || is_blank(v->value[end - 1])) {
        nt_lint_find(f, NT_R_BLANKS, line, v->name, "%s trims no blanks: the value is '%.80s'", who,
                     v->value);
    }
    if (placeholder(v->value, end)) {
        nt_lint_find(f, NT_R_NO_EXPANSION, line, v->name,
                     "nothing replaces '%.80s': it is taken as it is", v->value);
    }
}

static bool starts(const char *s, size_t len, const char *word)
{
    size_t n = strlen(word);
    return len >= n && strncmp(s, word, n) == 0;
}

void nt_conf_line(struct nt_lint_file *f, const char *line, size_t len, uint32_t number)
{
    const char *eq = memchr(line, '=', len);
    size_t name_len = eq != NULL ? (size_t)(eq - line) : 0, at = 0;
    struct nt_lint_var *v;
    while (at < len && (is_blank(line[at]) || line[at] == '\r')) {
        at++;
    }
    if (at == len || (line[0] == '#' && (eq == NULL || f->version >= COMMENTS_SKIPPED_SINCE))) {
        return;
    }
    if (line[at] == '#') {
        if (eq != NULL) {
            nt_lint_find(f, NT_R_COMMENT_SET, number, NULL, "taken as an assignment to '%.*s'%s",
                         (int)(name_len > 60 ? 60 : name_len), line,
                         line[0] == '#' ? ": NCCL skips such comments since 2.26 only"
                                        : ": # is a comment in the first column only");
        }
        return;
    }
    if (eq == NULL) {
        nt_lint_find(f, NT_R_NO_ASSIGNMENT, number, NULL, "no = in this line: NCCL ignores it");
        return;
    }
    if (name_len > CONF_MAX || len - name_len - 1 > CONF_MAX) {
        nt_lint_find(f, NT_R_TOO_LONG, number, NULL,
                     "name or value is longer than %d characters: NCCL cuts it", CONF_MAX);
    }
    if (starts(line + at, len - at, "export ")) {
        nt_lint_find(f, NT_R_EXPORT_KEPT, number, NULL,
                     "NCCL takes 'export ' as part of the name: '%.*s' is set, which nobody reads",
                     (int)(name_len > 60 ? 60 : name_len), line);
        return;
    }
    if (name_len > 0 && (is_blank(line[0]) || is_blank(line[name_len - 1]))) {
        nt_lint_find(f, NT_R_BLANKS, number, NULL,
                     "NCCL trims no blanks: it sets '%.*s', which nobody reads",
                     (int)(name_len > 60 ? 60 : name_len), line);
        return;
    }
    v = nt_lint_add(f, NT_W_FILE, number, line, name_len, eq + 1, len - name_len - 1);
    if (v != NULL) {
        kept(f, "NCCL", number, v);
    }
}

enum nt_lint_target nt_lint_target(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (strstr(path, "nccl.conf") != NULL) {
        return NT_TO_CONF;
    }
    return strstr(path, "/etc/environment") != NULL || (dot != NULL && strcmp(dot, ".env") == 0)
               ? NT_TO_ENV
               : NT_TO_OTHER;
}

/* Carriage returns are said once, not at every line. */
static void carriage_returns(struct nt_lint_file *f, const char *text, size_t len, const char *who)
{
    struct nt_lines l = {text, text + len, 0};
    const char *line;
    size_t n, count = 0;
    uint32_t first = 0;
    while (nt_lines_next(&l, &line, &n)) {
        if (n > 0 && line[n - 1] == '\r') {
            first = first == 0 ? l.line : first;
            count++;
        }
    }
    if (count > 0) {
        nt_lint_find(f, NT_R_CRLF, first, NULL,
                     "%zu lines end with a carriage return, which %s takes as part of the value",
                     count, who);
    }
}

void nt_read_conf(struct nt_lint_file *f, const char *text, size_t len)
{
    struct nt_lines l = {text, text + len, 0};
    const char *line;
    size_t n;
    carriage_returns(f, text, len, "NCCL");
    while (nt_lines_next(&l, &line, &n)) {
        nt_conf_line(f, line, n, l.line);
    }
}

/* docker run --env-file: blanks before the name are dropped, nothing else is. */
static void docker_line(struct nt_lint_file *f, const char *line, size_t len, uint32_t number)
{
    const char *eq;
    size_t name_len;
    struct nt_lint_var *v;
    while (len > 0 && is_blank(*line)) {
        line++;
        len--;
    }
    len -= len > 0 && line[len - 1] == '\r'; /* docker's scanner drops it */
    if (len == 0 || line[0] == '#') {
        return;
    }
    eq = memchr(line, '=', len);
    name_len = eq != NULL ? (size_t)(eq - line) : len;
    for (size_t i = 0; i < name_len; i++) {
        if (is_blank(line[i])) {
            nt_lint_find(f, starts(line, len, "export ") ? NT_R_EXPORT_KEPT : NT_R_BLANKS, number,
                         NULL, "docker refuses the whole file: the name '%.*s' has a blank",
                         (int)(name_len > 60 ? 60 : name_len), line);
            return;
        }
    }
    v = nt_lint_add(f, NT_W_ENV, number, line, name_len, eq != NULL ? eq + 1 : NULL,
                    eq != NULL ? len - name_len - 1 : 0);
    if (v != NULL && v->value != NULL) {
        kept(f, "docker", number, v);
    } else if (v != NULL && nt_lint_is_ours(v->name)) {
        nt_lint_find(f, NT_R_FROM_HOST, number, v->name,
                     "no value: docker passes the host's, and nothing if the host has none");
    }
}

void nt_read_docker_env(struct nt_lint_file *f, const char *text, size_t len)
{
    struct nt_lines l = {text, text + len, 0};
    const char *line;
    size_t n;
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* docker skips it */
        l.p += 3;
    }
    while (nt_lines_next(&l, &line, &n)) {
        docker_line(f, line, n, l.line);
    }
}

/* The value as a shell or a dotenv reader delivers it; says where others keep more, unless it is
 * known who reads it. */
static void env_value(struct nt_lint_file *f, const char *name, size_t name_len, const char *v,
                      size_t len, uint32_t number, bool known)
{
    size_t end = comment_at(v, len), close = 0;
    const char *differs = NULL;
    struct nt_lint_var *var;
    if (len > 0 && (v[0] == '"' || v[0] == '\'')) {
        const char *q = memchr(v + 1, v[0], len - 1);
        close = q != NULL ? (size_t)(q - v) : 0;
    }
    if (close > 0) {
        v++;
        end = close - 1;
        differs = "docker --env-file and nccl.conf keep the quotes";
    } else {
        if (end < len) {
            differs = "docker --env-file and nccl.conf keep the comment as part of the value";
        } else if (end > 0 && is_blank(v[end - 1])) {
            differs = "docker --env-file and nccl.conf keep the blanks behind the value";
        }
        while (end > 0 && is_blank(v[end - 1])) {
            end--;
        }
        for (size_t i = 0; i < end && differs == NULL; i++) {
            if (is_blank(v[i])) {
                differs = "docker --env-file takes it whole, a shell takes the first word and runs "
                          "the rest";
            }
        }
    }
    var = nt_lint_add(f, NT_W_ENV, number, name, name_len, v, end);
    if (var == NULL || !nt_lint_is_ours(var->name)) {
        return;
    }
    if (known) {
        var->unresolved = strchr(var->value, '$') != NULL;
        return;
    }
    if (differs != NULL) {
        nt_lint_find(f, NT_R_CONSUMER, number, var->name, "%s", differs);
    }
    if (strchr(var->value, '$') != NULL) {
        var->unresolved = true;
        nt_lint_find(f, NT_R_CONSUMER, number, var->name,
                     "a shell replaces '%.60s'; docker --env-file and nccl.conf do not",
                     var->value);
    } else if (placeholder(var->value, strlen(var->value))) {
        nt_lint_find(f, NT_R_NO_EXPANSION, number, var->name, "nothing replaces '%.80s'",
                     var->value);
    }
}

void nt_env_line(struct nt_lint_file *f, const char *line, size_t n, uint32_t number, bool known)
{
    const char *eq;
    size_t name_len;
    n -= n > 0 && line[n - 1] == '\r';
    while (n > 0 && is_blank(*line)) {
        line++;
        n--;
    }
    if (starts(line, n, "export ")) {
        line += 7;
        n -= 7;
    }
    eq = memchr(line, '=', n);
    name_len = eq != NULL ? (size_t)(eq - line) : 0;
    if (n == 0 || *line == '#') {
        return;
    }
    if (eq == NULL || !nt_lint_is_name(line, name_len)) {
        bool spaced = name_len > 0 && is_blank(line[name_len - 1]);
        nt_lint_find(f, spaced ? NT_R_BLANKS : NT_R_NO_ASSIGNMENT, number, NULL, "'%.*s': %s",
                     (int)(n > 60 ? 60 : n), line,
                     spaced ? "a blank before =: a shell takes the name as a command"
                            : "no assignment");
        return;
    }
    env_value(f, line, name_len, eq + 1, n - name_len - 1, number, known);
}

void nt_read_env(struct nt_lint_file *f, const char *text, size_t len)
{
    struct nt_lines l = {text, text + len, 0};
    const char *line;
    size_t n;
    carriage_returns(f, text, len, "a shell");
    while (nt_lines_next(&l, &line, &n)) {
        nt_env_line(f, line, n, l.line, false);
    }
}

void nt_read_environ(struct nt_lint_file *f, const char *text, size_t len)
{
    uint32_t number = 0;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\0', len - at);
        size_t n = end != NULL ? (size_t)(end - (text + at)) : len - at;
        const char *eq = memchr(text + at, '=', n);
        number++;
        if (eq != NULL) {
            size_t name_len = (size_t)(eq - (text + at));
            (void)nt_lint_add(f, NT_W_ENV, number, text + at, name_len, eq + 1, n - name_len - 1);
        }
        at += n + 1;
    }
}

/* Words of Environment=: blanks split, quotes group, backslash escapes. Returns the next place. */
static size_t systemd_word(const char *s, size_t len, size_t at, char *out, size_t size,
                           size_t *ret_len)
{
    char quote = '\0';
    size_t n = 0;
    while (at < len && (quote != '\0' || !is_blank(s[at]))) {
        char c = s[at++];
        if (quote != '\0' ? c == quote : (c == '"' || c == '\'')) {
            quote = quote != '\0' ? '\0' : c;
        } else {
            if (c == '\\' && at < len) {
                c = s[at++];
            }
            if (n + 1 < size) {
                out[n++] = c;
            }
        }
    }
    *ret_len = n;
    return at;
}

static void systemd_environment(struct nt_lint_file *f, const char *s, size_t len, uint32_t number)
{
    for (size_t at = 0; at < len;) {
        char word[2048];
        size_t n = 0;
        const char *eq;
        struct nt_lint_var *v;
        if (is_blank(s[at])) {
            at++;
            continue;
        }
        at = systemd_word(s, len, at, word, sizeof(word), &n);
        eq = memchr(word, '=', n);
        if (eq == NULL) {
            nt_lint_find(
                f, NT_R_NO_ASSIGNMENT, number, NULL,
                "'%.*s' is no assignment: a value with blanks needs quotes around the whole "
                "NAME=value",
                (int)(n > 60 ? 60 : n), word);
            continue;
        }
        v = nt_lint_add(f, NT_W_ENV, number, word, (size_t)(eq - word), eq + 1,
                        n - (size_t)(eq - word) - 1);
        for (const char *p = v != NULL ? strchr(v->value, '%') : NULL; p != NULL;
             p = strchr(p + 2, '%')) {
            if (p[1] != '%') {
                v->unresolved = true;
                nt_lint_find(f, NT_R_UNRESOLVED, number, v->name,
                             "systemd replaces %%%c itself; write %%%%%c to hand it to NCCL",
                             p[1] != '\0' ? p[1] : ' ', p[1] != '\0' ? p[1] : ' ');
                break;
            }
        }
        if (v != NULL && nt_lint_is_ours(v->name) &&
            memchr(v->value, '$', strlen(v->value)) != NULL) {
            nt_lint_find(f, NT_R_NO_EXPANSION, number, v->name,
                         "systemd replaces no variables here: the value is '%.80s'", v->value);
        }
    }
}

void nt_read_systemd(struct nt_lint_file *f, const char *text, size_t len)
{
    struct nt_lines l = {text, text + len, 0};
    const char *line;
    size_t n;
    while (nt_lines_next(&l, &line, &n)) {
        n -= n > 0 && line[n - 1] == '\r';
        if (starts(line, n, "Environment=")) {
            systemd_environment(f, line + 12, n - 12, l.line);
        } else if (starts(line, n, "EnvironmentFile=")) {
            nt_lint_find(f, NT_R_SOURCED, l.line, NULL, "%.*s is read here; it was not looked at",
                         (int)(n - 16 > 100 ? 100 : n - 16), line + 16);
        }
    }
}

/* UCC's own file: sections in brackets, its own variables; a stray NCCL_ line is still seen. */
void nt_read_ucc(struct nt_lint_file *f, const char *text, size_t len)
{
    struct nt_lines l = {text, text + len, 0};
    const char *line;
    size_t n, ucc = 0;
    while (nt_lines_next(&l, &line, &n)) {
        const char *eq = memchr(line, '=', n);
        size_t name_len = eq != NULL ? (size_t)(eq - line) : 0;
        if (n == 0 || line[0] == '#' || line[0] == '[' || eq == NULL ||
            !nt_lint_is_name(line, name_len)) {
            continue;
        }
        ucc += starts(line, n, "UCC_");
        (void)nt_lint_add(f, NT_W_ENV, l.line, line, name_len, eq + 1, n - name_len - 1);
    }
    nt_lint_find(f, NT_R_OTHER_KIND, 0, NULL,
                 "%zu settings of UCC (score ranges, transports): NCCL reads none of them", ucc);
}

/* ---- logs ---- */

static const struct {
    const char *mark;
    enum nt_lint_rule rule;
    const char *words;
} log_rows[] = {
    {"using internal tuner", NT_R_TUNER_INACTIVE, "NCCL runs its own tuner: no plugin is active"},
    {"Failed to find ncclTunerPlugin", NT_R_TUNER_INACTIVE,
     "the library lacks the tuner interface that this NCCL asks for: not active"},
    {"Could not find: ./", NT_R_TUNER_INACTIVE,
     "a path that begins with ./ is not a path to NCCL: give an absolute one"},
    {"libnccl-tuner-./", NT_R_TUNER_INACTIVE,
     "a path that begins with ./ is not a path to NCCL: give an absolute one"},
    {"Failed to bind NVLink SHARP", NT_R_NVLS_CAUSE,
     "fabric manager or multicast is not available: repair that; NVLS off is no tuned gain"},
    {"Failed to bind NVLS", NT_R_NVLS_CAUSE,
     "fabric manager or multicast is not available: repair that; NVLS off is no tuned gain"},
};

/* Where the value begins behind "NAME set by environment to " or, as the network says it, "NAME set
 * to "; *ret_name_end is where the name ends. NULL: the line tells of no setting. */
static const char *set_value(const char *line, size_t n, const char **ret_name_end)
{
    static const char *const words[] = {" set by environment to ", " set to "};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const char *p = memmem(line, n, words[i], strlen(words[i])), *name = p;
        while (name != NULL && name > line && name[-1] != ' ') {
            name--;
        }
        if (p != NULL && (i == 0 || strncmp(name, "NCCL_", 5) == 0)) {
            *ret_name_end = p;
            return p + strlen(words[i]);
        }
    }
    return NULL;
}

void nt_read_log(struct nt_lint_file *f, const char *text, size_t len)
{
    struct nt_lines l = {text, text + len, 0};
    const char *line;
    size_t n;
    while (nt_lines_next(&l, &line, &n)) {
        const char *end = NULL, *p, *name;
        size_t value_len;
        n -= n > 0 && line[n - 1] == '\r';
        for (size_t i = 0; i < sizeof(log_rows) / sizeof(log_rows[0]); i++) {
            if (memmem(line, n, log_rows[i].mark, strlen(log_rows[i].mark)) != NULL) {
                nt_lint_find(f, log_rows[i].rule, l.line, NULL, "%s", log_rows[i].words);
                break;
            }
        }
        p = set_value(line, n, &end);
        if (p == NULL) {
            continue;
        }
        for (name = end; name > line && name[-1] != ' '; name--) {
        }
        value_len = (size_t)(line + n - p);
        value_len -= value_len > 0 && p[value_len - 1] == '.';
        if (nt_lint_is_name(name, (size_t)(end - name))) {
            (void)nt_lint_add(f, NT_W_LOG, l.line, name, (size_t)(end - name), p, value_len);
        }
    }
}
