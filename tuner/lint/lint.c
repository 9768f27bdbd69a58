#include "tuner/lint/lint.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tuner/base/text.h"
#include "tuner/lint/internal.h"

const char *const nt_lint_form_names[] = {
#define X(name, id, words) id,
    NT_LINT_FORMS(X)
#undef X
        NULL};
const char *const nt_lint_form_words[] = {
#define X(name, id, words) words,
    NT_LINT_FORMS(X)
#undef X
        NULL};
const char *const nt_lint_level_names[] = {"info", "warning", "error", NULL};

static const struct {
    const char *id, *words;
    enum nt_lint_level level;
} rule_rows[] = {
#define X(name, id, level, words) {id, words, NT_LINT_##level},
    NT_LINT_RULES(X)
#undef X
};

const char *nt_lint_rule_id(enum nt_lint_rule rule)
{
    return rule_rows[rule].id;
}

const char *nt_lint_rule_words(enum nt_lint_rule rule)
{
    return rule_rows[rule].words;
}

enum nt_lint_level nt_lint_rule_level(enum nt_lint_rule rule)
{
    return rule_rows[rule].level;
}

bool nt_lines_next(struct nt_lines *l, const char **ret, size_t *ret_len)
{
    const char *eol;
    if (l->p >= l->end) {
        return false;
    }
    eol = memchr(l->p, '\n', (size_t)(l->end - l->p));
    *ret = l->p;
    *ret_len = (size_t)((eol != NULL ? eol : l->end) - l->p);
    l->p = eol != NULL ? eol + 1 : l->end;
    l->line++;
    return true;
}

/* Room for one more: capacity doubles at powers of two. */
static void *push(void *v_ptr, size_t *n, size_t size, size_t max)
{
    void **v = v_ptr;
    if (*n >= max) {
        return NULL;
    }
    if (*n == 0 || (*n >= 8 && (*n & (*n - 1)) == 0)) {
        void *grown = realloc(*v, (*n == 0 ? 8 : *n * 2) * size);
        if (grown == NULL) {
            return NULL;
        }
        *v = grown;
    }
    memset((char *)*v + *n * size, 0, size);
    return (char *)*v + (*n)++ * size;
}

void nt_lint_find(struct nt_lint_file *f, enum nt_lint_rule rule, uint32_t line, const char *name,
                  const char *fmt, ...)
{
    char text[480];
    struct nt_lint_finding *found;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    nt_text_plain(text);
    /* The last place is for saying that there was more. */
    found = push(&f->findings, &f->nfindings, sizeof(*found),
                 NT_LINT_MAX_FINDINGS - (rule != NT_R_LIMIT));
    if (found == NULL || (found->text = strdup(text)) == NULL) {
        f->nfindings -= found != NULL;
        f->full = true;
        return;
    }
    found->rule = rule;
    found->line = line;
    if (name != NULL) { /* kept with the file: findings outlive the caller's texts */
        found->name = strndup(name, 256);
        if (found->name != NULL) {
            nt_text_plain(found->name);
        }
    }
}

static char *copy_of(const char *s, size_t len)
{
    return strndup(s, len); /* ends at a NUL, as getenv's callers would see it */
}

struct nt_lint_var *nt_lint_add(struct nt_lint_file *f, enum nt_lint_where where, uint32_t line,
                                const char *name, size_t name_len, const char *value,
                                size_t value_len)
{
    struct nt_lint_var *v = push(&f->vars, &f->nvars, sizeof(*v), NT_LINT_MAX_VARS);
    if (v == NULL) {
        f->full = true;
        return NULL;
    }
    v->name = copy_of(name, name_len);
    v->value = value != NULL ? copy_of(value, value_len) : NULL;
    v->group = strdup("");
    v->line = line;
    v->where = (uint8_t)where;
    if (v->name == NULL || v->group == NULL || (value != NULL && v->value == NULL)) {
        free(v->name);
        free(v->value);
        free(v->group);
        f->nvars--;
        f->full = true;
        return NULL;
    }
    return v;
}

bool nt_lint_is_name(const char *s, size_t len)
{
    if (len == 0 || isdigit((unsigned char)s[0])) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (!isalnum((unsigned char)s[i]) && s[i] != '_') {
            return false;
        }
    }
    return true;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcasecmp(s + n - m, end) == 0;
}

/* Whether any line begins with the words, blanks before them skipped. */
static bool line_begins(const char *text, size_t len, const char *words)
{
    struct nt_lines l = {text, text + len, 0};
    const char *line;
    size_t n, m = strlen(words);
    while (nt_lines_next(&l, &line, &n)) {
        size_t i = 0;
        while (i < n && (line[i] == ' ' || line[i] == '\t')) {
            i++;
        }
        if (n - i >= m && strncmp(line + i, words, m) == 0) {
            return true;
        }
    }
    return false;
}

static bool contains(const char *text, size_t len, const char *words)
{
    return memmem(text, len, words, strlen(words)) != NULL;
}

static enum nt_lint_form by_json(const char *text, size_t len)
{
    static const char *const keys[] = {"\"env", "\"environment\"", "\"containerEnv\"", "\"ENV",
                                       "NCCL_"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (contains(text, len, keys[i])) {
            return NT_LINT_JSON_ENV;
        }
    }
    return NT_LINT_THRESHOLDS;
}

static bool tuner_rule(const char *text, size_t len)
{
    static const char *const colls[] = {"allreduce,", "allgather,", "reducescatter,", "broadcast,",
                                        "reduce,",    "alltoall,",  "sendrecv,"};
    for (size_t i = 0; i < sizeof(colls) / sizeof(colls[0]); i++) {
        if (line_begins(text, len, colls[i])) {
            return true;
        }
    }
    return false;
}

/* "NCCL_DEBUG=INFO ./run": assignments before a program. */
static bool launches(const char *line, size_t len)
{
    static const char *const programs[] = {"mpirun", "mpiexec", "srun", "torchrun", "python", NULL};
    size_t at = 0, words = 0;
    while (at < len) {
        size_t n = 0;
        const char *eq;
        while (at < len && (line[at] == ' ' || line[at] == '\t')) {
            at++;
        }
        while (at + n < len && line[at + n] != ' ' && line[at + n] != '\t') {
            n++;
        }
        eq = memchr(line + at, '=', n);
        if (eq == NULL || !nt_lint_is_name(line + at, (size_t)(eq - line) - at)) {
            bool path = words > 0 && n > 2 && (line[at] == '/' || memcmp(line + at, "./", 2) == 0);
            for (size_t i = 0; programs[i] != NULL && !path && words > 0; i++) {
                path = n >= strlen(programs[i]) &&
                       strncmp(line + at, programs[i], strlen(programs[i])) == 0;
            }
            return path;
        }
        words++;
        at += n;
    }
    return false;
}

static bool is_shell(const char *text, size_t len)
{
    static const char *const begins[] = {
        "#!",           "export ",      "mpirun ",      "srun ",        "source ",
        "docker run ",  "setenv ",      "mpiexec ",     "torchrun ",    "declare -x ",
        "podman run ",  "sudo docker ", "sudo podman ", "singularity ", "apptainer ",
        "set -x NCCL_", "set -gx ",     "kubectl ",     "horovodrun ",  "deepspeed "};
    struct nt_lines l = {text, text + len, 0};
    const char *line;
    size_t n;
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        if (line_begins(text, len, begins[i])) {
            return true;
        }
    }
    while (nt_lines_next(&l, &line, &n)) {
        if (launches(line, n)) {
            return true;
        }
    }
    return false;
}

static enum nt_lint_form by_content(const char *base, const char *text, size_t len)
{
    size_t at = 0;
    while (at < len && (isspace((unsigned char)text[at]) || (unsigned char)text[at] >= 0x80)) {
        at++;
    }
    if (contains(text, len, "<graphs") || contains(text, len, "<graph ")) {
        return NT_LINT_GRAPH_XML;
    }
    if (contains(text, len, "<system")) {
        return NT_LINT_TOPO_XML;
    }
    if (at < len && text[at] == '{') {
        return by_json(text, len);
    }
    if (contains(text, len, "msg_size_tuning_rules") ||
        contains(text, len, "communicator_configs")) {
        return NT_LINT_TUNER_PROTO;
    }
    if (contains(text, len, "check_policy") || line_begins(text, len, "env_var {")) {
        return NT_LINT_POLICY;
    }
    if (contains(text, len, "latency_us") || contains(text, len, "size_bytes")) {
        return NT_LINT_MEASUREMENTS;
    }
    if (tuner_rule(text, len)) {
        return NT_LINT_TUNER_CSV;
    }
    if (contains(text, len, "NCCL INFO") || contains(text, len, "NCCL WARN") ||
        contains(text, len, " set by environment to ") || contains(text, len, "ncclTunerPlugin")) {
        return NT_LINT_LOG;
    }
    if (memchr(text, '\0', len) != NULL) { /* /proc/PID/environ, or no text at all */
        const char *eq = strchr(text, '=');
        return eq != NULL && nt_lint_is_name(text, (size_t)(eq - text)) ? NT_LINT_ENVIRON
                                                                        : NT_LINT_UNKNOWN;
    }
    if (line_begins(text, len, "GPU0") && contains(text, len, "CPU Affinity")) {
        return NT_LINT_UNKNOWN; /* nvidia-smi topo -m; its legend is full of = */
    }
    if (line_begins(text, len, "#SBATCH")) {
        return NT_LINT_SLURM;
    }
    if (line_begins(text, len, "FROM ")) {
        return NT_LINT_DOCKERFILE;
    }
    if (line_begins(text, len, "apiVersion:") || line_begins(text, len, "services:") ||
        line_begins(text, len, "env:") || line_begins(text, len, "- name:")) {
        return NT_LINT_YAML;
    }
    if (line_begins(text, len, "[Service]") || line_begins(text, len, "Environment=")) {
        return NT_LINT_SYSTEMD;
    }
    if (line_begins(text, len, "UCC_")) {
        return NT_LINT_UCC;
    }
    if (is_shell(text, len)) {
        return strcasestr(base, "docker") != NULL && ends_with(base, ".env") ? NT_LINT_DOCKER_ENV
                                                                             : NT_LINT_SHELL;
    }
    return NT_LINT_FORM_COUNT;
}

/* Prose that shows settings among others: which of them are meant, nobody can read off. */
static bool is_document(const char *name)
{
    return ends_with(name, ".md") || ends_with(name, ".rst") || ends_with(name, ".html");
}

static enum nt_lint_form form_of(const char *name, const char *text, size_t len)
{
    static const struct {
        const char *end;
        enum nt_lint_form form;
    } by_name[] = {{".yaml", NT_LINT_YAML},
                   {".yml", NT_LINT_YAML},
                   {".service", NT_LINT_SYSTEMD},
                   {".sbatch", NT_LINT_SLURM},
                   {".slurm", NT_LINT_SLURM},
                   {".sh", NT_LINT_SHELL},
                   {".bash", NT_LINT_SHELL},
                   {".fish", NT_LINT_SHELL},
                   {".dockerfile", NT_LINT_DOCKERFILE},
                   {".toml", NT_LINT_SETTINGS},
                   {".hcl", NT_LINT_SETTINGS},
                   {".nomad", NT_LINT_SETTINGS},
                   {".tf", NT_LINT_SETTINGS},
                   {".tfvars", NT_LINT_SETTINGS},
                   {".ini", NT_LINT_SETTINGS},
                   {".lua", NT_LINT_SETTINGS},
                   {".ps1", NT_LINT_SETTINGS},
                   {".cmake", NT_LINT_UNKNOWN},
                   {".mk", NT_LINT_UNKNOWN},
                   {".py", NT_LINT_UNKNOWN}, /* whose order of execution nobody can read off */
                   {".textproto", NT_LINT_TUNER_PROTO}};
    const char *base = strrchr(name, '/');
    enum nt_lint_form form;
    base = base != NULL ? base + 1 : name;
    form = by_content(base, text, len);
    if (is_document(name)) {
        return NT_LINT_UNKNOWN;
    }
    if (strncmp(base, "Makefile", 8) == 0 || ends_with(base, "CMakeLists.txt")) {
        return NT_LINT_UNKNOWN;
    }
    if (ends_with(base, "Dockerfile") || strncmp(base, "Dockerfile", 10) == 0) {
        return NT_LINT_DOCKERFILE;
    }
    for (size_t i = 0; i < sizeof(by_name) / sizeof(by_name[0]); i++) {
        bool sharper =
            form == NT_LINT_POLICY || (form == NT_LINT_SLURM && by_name[i].form == NT_LINT_SHELL);
        if (ends_with(base, by_name[i].end) && !sharper) {
            return by_name[i].form;
        }
    }
    if ((form == NT_LINT_SHELL || form == NT_LINT_ENVIRON || form == NT_LINT_UNKNOWN) &&
        (ends_with(base, ".conf") || strstr(base, "nccl.conf") != NULL)) {
        return NT_LINT_CONF; /* `export ` or a NUL there is a mistake, not another form */
    }
    if (form != NT_LINT_FORM_COUNT) {
        return form;
    }
    if (ends_with(base, ".xml")) {
        return NT_LINT_UNKNOWN;
    }
    if (strcmp(base, "environ") == 0) {
        return NT_LINT_ENVIRON;
    }
    if (ends_with(base, ".conf") || strstr(base, "nccl.conf") != NULL) {
        return NT_LINT_CONF;
    }
    if (strcasestr(base, "docker") != NULL && contains(text, len, "=")) {
        return NT_LINT_DOCKER_ENV;
    }
    return contains(text, len, "=") ? NT_LINT_ENV : NT_LINT_UNKNOWN;
}

static const nt_lint_reader readers[NT_LINT_FORM_COUNT] = {
    [NT_LINT_CONF] = nt_read_conf,
    [NT_LINT_ENV] = nt_read_env,
    [NT_LINT_DOCKER_ENV] = nt_read_docker_env,
    [NT_LINT_SHELL] = nt_read_shell,
    [NT_LINT_SLURM] = nt_read_shell,
    [NT_LINT_DOCKERFILE] = nt_read_dockerfile,
    [NT_LINT_YAML] = nt_read_yaml,
    [NT_LINT_JSON_ENV] = nt_read_json,
    [NT_LINT_SYSTEMD] = nt_read_systemd,
    [NT_LINT_SETTINGS] = nt_read_settings,
    [NT_LINT_ENVIRON] = nt_read_environ,
    [NT_LINT_LOG] = nt_read_log,
    [NT_LINT_TUNER_CSV] = nt_read_tuner_csv,
    [NT_LINT_TUNER_PROTO] = nt_read_textproto,
    [NT_LINT_POLICY] = nt_read_textproto,
    [NT_LINT_UCC] = nt_read_ucc,
};

/* What stands against a file that was given as another kind than it is. */
static void wrong_kind(struct nt_lint_file *f, enum nt_lint_form is)
{
    bool rules = is == NT_LINT_TUNER_PROTO;
    nt_lint_find(
        f, NT_R_BAD_SYNTAX, 1, NULL, "given as %s, but this is a %s%s", nt_lint_form_words[f->form],
        nt_lint_form_words[is],
        rules ? ": its upper bounds are exclusive and its sizes per rank, so a converter must "
                "shift and scale them"
              : "");
}

static void whole_file(struct nt_lint_file *f, const char *text, size_t len)
{
    bool lines = f->form == NT_LINT_CONF || f->form == NT_LINT_ENV || f->form == NT_LINT_DOCKER_ENV;
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 &&
        (lines || f->form == NT_LINT_SHELL || f->form == NT_LINT_SLURM ||
         f->form == NT_LINT_TUNER_CSV)) {
        nt_lint_find(
            f, NT_R_BOM, 1, NULL,
            "the file begins with a byte order mark, which becomes part of its first word");
    }
    if (f->form != NT_LINT_ENVIRON) {
        const char *nul = memchr(text, '\0', len);
        uint32_t line = 1;
        for (const char *s = text; nul != NULL && s < nul; s++) {
            line += *s == '\n';
        }
        if (nul != NULL) {
            nt_lint_find(f, NT_R_BAD_SYNTAX, line, NULL,
                         "a NUL byte: no text file; what stands behind it may be lost");
        }
    }
    if (len > 0 && text[len - 1] != '\n' && (lines || f->form == NT_LINT_TUNER_CSV)) {
        uint32_t last = 1;
        for (size_t i = 0; i < len; i++) {
            last += text[i] == '\n';
        }
        nt_lint_find(f, NT_R_NO_NEWLINE, last, NULL,
                     "the last line has no end: it is taken, but a line appended with >> joins it");
    }
}

int nt_lint_read(const char *name, const char *text, size_t len, const struct nt_lint_opts *opts,
                 struct nt_lint_file **ret, struct nt_err *err)
{
    struct nt_lint_file *f = calloc(1, sizeof(*f));
    enum nt_lint_form is;
    if (f == NULL || (f->name = strdup(name)) == NULL) {
        free(f);
        return nt_fail(err, NT_E_NOMEM, 0, "%s", name);
    }
    if (len > NT_LINT_MAX_BYTES) {
        nt_lint_free(f);
        return nt_fail(err, NT_E_INVAL, 0, "%s: more than %d MiB", name, NT_LINT_MAX_BYTES >> 20);
    }
    f->version = opts->version;
    f->text = text;
    f->len = len;
    f->rccl = contains(text, len, "rccl") || contains(text, len, "RCCL") ||
              contains(text, len, "rocm") || contains(text, len, "ROCm");
    is = form_of(name, text, len);
    f->form = opts->form >= 0 ? (enum nt_lint_form)opts->form : is;
    if (nt_is_utf16(text, len)) {
        nt_lint_find(f, NT_R_BAD_SYNTAX, 1, NULL,
                     "UTF-16 text, of which no consumer takes a setting; save it as UTF-8");
    } else if (f->form == NT_LINT_TUNER_CSV &&
               (is == NT_LINT_TUNER_PROTO || is == NT_LINT_POLICY || is == NT_LINT_JSON_ENV ||
                is == NT_LINT_MEASUREMENTS)) {
        wrong_kind(f, is);
    } else if (readers[f->form] != NULL) {
        whole_file(f, text, len);
        readers[f->form](f, text, len);
        nt_lint_check(f);
    } else {
        nt_lint_find(f, NT_R_OTHER_KIND, 0, NULL, "a %s: no settings that NCCL reads%s",
                     is_document(name) ? "document" : nt_lint_form_words[f->form],
                     is_document(name) ? "; save the block that is meant as a file, or give --form"
                     : f->form == NT_LINT_MEASUREMENTS ? "; `import table` reads it"
                     : f->form == NT_LINT_GRAPH_XML
                         ? "; NCCL_GRAPH_FILE names such files, and each "
                           "holds for one machine only"
                         : "");
    }
    if (f->full) {
        nt_lint_find(f, NT_R_LIMIT, 0, NULL, "more was found than is kept");
    }
    f->text = NULL;
    f->len = 0;
    *ret = f;
    return 0;
}

void nt_lint_free(struct nt_lint_file *f)
{
    if (f == NULL) {
        return;
    }
    for (size_t i = 0; i < f->nvars; i++) {
        free(f->vars[i].name);
        free(f->vars[i].value);
        free(f->vars[i].group);
    }
    for (size_t i = 0; i < f->nfindings; i++) {
        free(f->findings[i].text);
        free(f->findings[i].name);
    }
    free(f->vars);
    free(f->findings);
    free(f->name);
    free(f);
}

size_t nt_lint_errors(const struct nt_lint_file *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->nfindings; i++) {
        n += nt_lint_rule_level(f->findings[i].rule) == NT_LINT_ERROR;
    }
    return n;
}
