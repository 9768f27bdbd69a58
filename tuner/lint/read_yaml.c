/* Manifests: Kubernetes (env lists, ConfigMaps, commands), Compose, Ray's runtimeEnvYAML. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "tuner/lint/internal.h"

enum { DEPTH_MAX = 48, NODES_MAX = 200000, TEXT_DEPTH_MAX = 3, BRACKETS_MAX = 256 };

struct walk {
    struct nt_lint_file *f;
    yaml_document_t *doc;
    unsigned nodes; /* visited: aliases may make a small file large */
    uint32_t first_line;
    char group[128];
};

static const char *scalar(const yaml_node_t *n)
{
    return n != NULL && n->type == YAML_SCALAR_NODE ? (const char *)n->data.scalar.value : NULL;
}

static uint32_t line_of(const struct walk *w, const yaml_node_t *n)
{
    return (uint32_t)n->start_mark.line + w->first_line;
}

static const yaml_node_t *member(const struct walk *w, const yaml_node_t *map, const char *key)
{
    if (map == NULL || map->type != YAML_MAPPING_NODE) {
        return NULL;
    }
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        const char *k = scalar(yaml_document_get_node(w->doc, p->key));
        if (k != NULL && strcmp(k, key) == 0) {
            return yaml_document_get_node(w->doc, p->value);
        }
    }
    return NULL;
}

/* What a plain scalar turns into when nobody quotes it; NULL: a string. */
static const char *plain_type(const yaml_node_t *n)
{
    static const char *const bools[] = {"true", "false", "yes", "no", "on", "off", "y", "n", NULL};
    const char *s = scalar(n);
    char *end = NULL;
    if (s == NULL || n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) {
        return NULL;
    }
    if (*s == '\0' || strcmp(s, "~") == 0 || strcasecmp(s, "null") == 0) {
        return "null";
    }
    for (size_t i = 0; bools[i] != NULL; i++) {
        if (strcasecmp(s, bools[i]) == 0) {
            return "a boolean";
        }
    }
    if (isdigit((unsigned char)s[strspn(s, "+-.")])) {
        (void)strtod(s, &end);
        if (*end == '\0') {
            return "a number";
        }
    }
    return NULL;
}

enum typing { STRINGS, NUMBERS_TOO }; /* Compose takes numbers */

static void variable(struct walk *w, const char *name, const yaml_node_t *value, enum typing typing)
{
    const char *text = scalar(value), *type = value != NULL ? plain_type(value) : NULL;
    struct nt_lint_var *v;
    size_t len = text != NULL ? value->data.scalar.length : 0;
    bool number = type != NULL && strcmp(type, "a number") == 0;
    if (text == NULL) {
        return;
    }
    v = nt_lint_add(w->f, NT_W_ENV, line_of(w, value), name, strlen(name), text, len);
    if (v == NULL) {
        return;
    }
    free(v->group);
    v->group = strdup(w->group);
    if (v->group == NULL) {
        v->group = calloc(1, 1);
        w->f->full = true;
    }
    if (type != NULL && (typing == STRINGS || !number)) {
        nt_lint_find(w->f, NT_R_NOT_STRING, v->line, name,
                     "%.40s without quotes is %s; the API wants a string and refuses the manifest",
                     text, type);
    }
    if (nt_lint_is_ours(name) && len > 0 && text[len - 1] == '\n') {
        nt_lint_find(w->f, NT_R_BLANKS, v->line, name,
                     "a line end is part of the value: a block scalar with |- or >- has none");
    }
    if (strstr(text, "$(") != NULL) {
        v->unresolved = true;
        nt_lint_find(w->f, NT_R_UNRESOLVED, v->line, name, "Kubernetes replaces '%.80s'", text);
    }
}

static void text_inside(struct walk *w, const char *key, const yaml_node_t *n)
{
    const char *s = scalar(n), *dot = strrchr(key, '.');
    size_t len = s != NULL ? n->data.scalar.length : 0;
    uint32_t line = line_of(w, n) + (n->data.scalar.style == YAML_LITERAL_SCALAR_STYLE ||
                                     n->data.scalar.style == YAML_FOLDED_SCALAR_STYLE);
    struct nt_lines l = {s, s != NULL ? s + len : NULL, 0};
    const char *p;
    size_t m;
    if (s == NULL || strstr(s, "NCCL") == NULL) {
        return;
    }
    if (strstr(key, "nccl.conf") != NULL || (dot != NULL && strcmp(dot, ".conf") == 0)) {
        while (nt_lines_next(&l, &p, &m)) {
            nt_conf_line(w->f, p, m, line + l.line - 1);
        }
    } else if (w->f->depth < TEXT_DEPTH_MAX) {
        nt_shell_text(w->f, s, len, line, dot != NULL && strcmp(dot, ".env") == 0);
    }
}

/* command and args as one command line; what follows -c is a script. */
static void command_line(struct walk *w, const yaml_node_t *seq)
{
    struct nt_buf b;
    uint32_t line = line_of(w, seq);
    nt_buf_init(&b, NT_LINT_MAX_BYTES);
    for (const yaml_node_item_t *i = seq->data.sequence.items.start;
         i < seq->data.sequence.items.top; i++) {
        const yaml_node_t *n = yaml_document_get_node(w->doc, *i);
        const char *s = scalar(n);
        if (s == NULL) {
            continue;
        }
        if (strchr(s, '\n') != NULL || strncmp(s, "export ", 7) == 0 ||
            strstr(s, " NCCL_") != NULL ||
            (strchr(s, ' ') != NULL && strncmp(s, "NCCL_", 5) == 0)) {
            text_inside(w, "command.sh", n);
            continue;
        }
        nt_buf_puts(&b, "'");
        for (const char *c = s; *c != '\0'; c++) {
            nt_buf_printf(&b, *c == '\'' ? "'\\''" : "%c", *c);
        }
        nt_buf_puts(&b, "' ");
    }
    if (strstr(nt_buf_str(&b), "NCCL") != NULL && w->f->depth < TEXT_DEPTH_MAX) {
        nt_shell_text(w->f, nt_buf_str(&b), b.len, line, false);
    }
    nt_buf_done(&b);
}

static void parse(struct nt_lint_file *f, const char *text, size_t len, uint32_t first_line);
static void node(struct walk *w, const char *key, const yaml_node_t *n, enum typing typing,
                 int depth);

static void pair(struct walk *w, const char *k, const yaml_node_t *v, enum typing typing, int depth)
{
    char saved[sizeof(w->group)];
    bool sequence = v->type == YAML_SEQUENCE_NODE;
    memcpy(saved, w->group, sizeof(saved));
    if (strcmp(k, "envFrom") == 0 || strcmp(k, "env_file") == 0) {
        nt_lint_find(w->f, NT_R_SOURCED, line_of(w, v), NULL,
                     "%s: variables come from elsewhere; what stands here wins over them", k);
    } else if ((strcmp(k, "command") == 0 || strcmp(k, "args") == 0 ||
                strcmp(k, "entrypoint") == 0) &&
               sequence) {
        command_line(w, v);
    } else if (strcmp(k, "runtimeEnvYAML") == 0 && scalar(v) != NULL &&
               w->f->depth < TEXT_DEPTH_MAX) {
        w->f->depth++;
        parse(w->f, scalar(v), v->data.scalar.length, line_of(w, v) + 1);
        w->f->depth--;
    } else if (v->type == YAML_SCALAR_NODE &&
               (nt_lint_is_ours(k) || strcmp(w->group, "env_vars") == 0)) {
        variable(w, k, v, typing);
    } else if (v->type == YAML_SCALAR_NODE) {
        text_inside(w, k, v);
    } else {
        if (strcmp(k, "env_vars") == 0) {
            (void)snprintf(w->group, sizeof(w->group), "env_vars");
        } else if (!sequence && strcmp(k, "environment") != 0 && strcmp(k, "env") != 0) {
            (void)snprintf(w->group, sizeof(w->group), "%.120s", k);
        }
        node(w, k, v, strcmp(k, "environment") == 0 ? NUMBERS_TOO : STRINGS, depth + 1);
    }
    memcpy(w->group, saved, sizeof(saved));
}

static void mapping(struct walk *w, const yaml_node_t *n, enum typing typing, int depth)
{
    const char *name = scalar(member(w, n, "name"));
    const yaml_node_t *value = member(w, n, "value"), *from = member(w, n, "valueFrom");
    if (name != NULL &&
        value != NULL) { /* a row of an env list: all names count, for the API refuses all */
        variable(w, name, value, STRINGS);
        return;
    }
    if (name != NULL && from != NULL) {
        if (nt_lint_is_ours(name)) {
            nt_lint_find(w->f, NT_R_FROM_HOST, line_of(w, n), name,
                         "the value is taken from elsewhere");
        }
        return;
    }
    if (name != NULL && (member(w, n, "env") != NULL || member(w, n, "image") != NULL)) {
        (void)snprintf(w->group, sizeof(w->group), "container %.100s", name);
    }
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
         p++) {
        const char *k = scalar(yaml_document_get_node(w->doc, p->key));
        const yaml_node_t *v = yaml_document_get_node(w->doc, p->value);
        if (k != NULL && v != NULL) {
            pair(w, k, v, typing, depth);
        }
    }
}

static void node(struct walk *w, const char *key, const yaml_node_t *n, enum typing typing,
                 int depth)
{
    if (n == NULL || depth > DEPTH_MAX || ++w->nodes > NODES_MAX) {
        w->f->full = w->f->full || n != NULL;
        return;
    }
    if (n->type == YAML_MAPPING_NODE) {
        mapping(w, n, typing, depth);
    } else if (n->type == YAML_SEQUENCE_NODE) {
        for (const yaml_node_item_t *i = n->data.sequence.items.start;
             i < n->data.sequence.items.top; i++) {
            char saved[sizeof(w->group)];
            memcpy(saved, w->group, sizeof(saved));
            node(w, key, yaml_document_get_node(w->doc, *i), typing, depth + 1);
            memcpy(w->group, saved, sizeof(saved));
        }
    } else if (n->type == YAML_SCALAR_NODE) { /* - NCCL_ALGO=Ring */
        const char *s = scalar(n), *eq = strchr(s, '=');
        if (eq != NULL && nt_lint_is_name(s, (size_t)(eq - s))) {
            struct nt_lint_var *v = nt_lint_add(w->f, NT_W_ENV, line_of(w, n), s, (size_t)(eq - s),
                                                eq + 1, strlen(eq + 1));
            if (v != NULL && nt_lint_is_ours(v->name) && v->value[0] != '\0' &&
                (v->value[0] == '"' || v->value[0] == '\'')) {
                nt_lint_find(w->f, NT_R_QUOTES, v->line, v->name, "the quotes inside %.80s stay",
                             v->value);
            }
        }
    }
}

/* The line where brackets are nested deeper than any manifest's, 0 if none: libyaml looks at every
 * open one for each token, and a small file would keep it busy for minutes. Quotes do not matter:
 * no text has so many that stay open. */
static uint32_t too_deep(const char *text, size_t len)
{
    unsigned open = 0;
    uint32_t line = 1;
    for (size_t i = 0; i < len; i++) {
        line += text[i] == '\n';
        if (text[i] == '[' || text[i] == '{') {
            open++;
        } else if ((text[i] == ']' || text[i] == '}') && open > 0) {
            open--;
        }
        if (open > BRACKETS_MAX) {
            return line;
        }
    }
    return 0;
}

static void parse(struct nt_lint_file *f, const char *text, size_t len, uint32_t first_line)
{
    yaml_parser_t parser;
    bool more = true;
    unsigned documents = 0;
    uint32_t deep = too_deep(text, len);
    if (deep > 0) {
        nt_lint_find(f, NT_R_BAD_SYNTAX, first_line + deep - 1, NULL,
                     "brackets nested deeper than %d", BRACKETS_MAX);
        return;
    }
    if (yaml_parser_initialize(&parser) == 0) {
        f->full = true;
        return;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    while (more && documents++ < 1000) {
        yaml_document_t doc;
        struct walk w = {.f = f, .doc = &doc, .first_line = first_line};
        const yaml_node_t *root;
        if (yaml_parser_load(&parser, &doc) == 0) {
            nt_lint_find(f, NT_R_BAD_SYNTAX, (uint32_t)parser.problem_mark.line + first_line, NULL,
                         "%s%s", parser.problem != NULL ? parser.problem : "not YAML",
                         memmem(text, len, "{{", 2) != NULL ? "; a template must be rendered first"
                                                            : "");
            break;
        }
        root = yaml_document_get_root_node(&doc);
        more = root != NULL;
        if (documents > 1) {
            (void)snprintf(w.group, sizeof(w.group), "document %u", documents);
        }
        node(&w, "", root, STRINGS, 0);
        yaml_document_delete(&doc);
    }
    yaml_parser_delete(&parser);
}

void nt_read_yaml(struct nt_lint_file *f, const char *text, size_t len)
{
    parse(f, text, len, 1);
    if (f->nvars == 0 && f->nfindings == 0) {
        nt_lint_find(f, NT_R_OTHER_KIND, 0, NULL, "no environment in this manifest");
    }
}
