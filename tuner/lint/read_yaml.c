/* Manifests: Kubernetes (env lists, ConfigMaps, commands), Compose, Ray's runtimeEnvYAML. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "tuner/base/text.h"
#include "tuner/lint/internal.h"

enum { DEPTH_MAX = 48, NODES_MAX = 200000, TEXT_DEPTH_MAX = 3, BRACKETS_MAX = 256 };

struct walk {
    struct nt_lint_file *f;
    yaml_document_t *doc;
    unsigned nodes; /* visited: aliases may make a small file large */
    uint32_t first_line;
    char group[128];
    char file[256]; /* whose content stands beside its path: cloud-init, Ansible, blueprints */
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

/* Kubernetes' API and Ray refuse what is no string. Compose takes numbers, and a name without a
 * value is the host's. Of other files nobody knows who reads them: a name without a value is none.
 */
enum typing { STRINGS, COMPOSE, ANYBODY };

/* Values that are no strings: what the consumer makes of them. False: there is no variable. */
static bool typed(struct walk *w, const char *name, const yaml_node_t *value, enum typing typing)
{
    const char *type = plain_type(value);
    uint32_t line = line_of(w, value);
    if (type == NULL || (typing != STRINGS && strcmp(type, "a number") == 0)) {
        return true;
    }
    if (typing == COMPOSE && strcmp(type, "null") == 0) {
        if (nt_lint_is_ours(name)) {
            (void)nt_lint_add(w->f, NT_W_ENV, line, name, strlen(name), NULL, 0);
            nt_lint_find(w->f, NT_R_FROM_HOST, line, name, "no value: the host's is passed on");
        }
        return false;
    }
    if (typing == ANYBODY && strcmp(type, "null") == 0) {
        return false;
    }
    if (typing == ANYBODY) {
        nt_lint_find(w->f, NT_R_CONSUMER, line, name,
                     "%.40s without quotes is %s: consumers write it in different ways",
                     scalar(value), type);
    } else {
        nt_lint_find(w->f, NT_R_NOT_STRING, line, name,
                     "%.40s without quotes is %s; the API wants a string and refuses the manifest",
                     scalar(value), type);
    }
    return true;
}

/* What takes the place of $ in a value: Compose's shell-like names, Kubernetes' $(NAME), a renderer
 * of templates. With a default ("${NAME:-1}") the value is that, unless the host has another. */
static void dollar(struct walk *w, struct nt_lint_var *v)
{
    const char *p = strchr(v->value, '$'), *dash, *end;
    char text[256];
    if (p == NULL || p[1] == '$') {
        return;
    }
    dash = p[1] == '{' ? strpbrk(p, "-}") : NULL;
    end = dash != NULL ? strchr(dash, '}') : NULL;
    if (p == v->value && dash != NULL && *dash == '-' && end != NULL && end[1] == '\0' &&
        strchr(dash, '$') == NULL) {
        (void)snprintf(text, sizeof(text), "%.*s", (int)(end - dash - 1), dash + 1);
        if (nt_lint_is_ours(v->name)) {
            nt_lint_find(w->f, NT_R_FROM_HOST, v->line, v->name,
                         "the host's %.*s, or else '%.80s': checked is the latter",
                         (int)(dash - p - 2 - (dash[-1] == ':')), p + 2, text);
        }
        free(v->value);
        v->value = strdup(text);
        w->f->full = w->f->full || v->value == NULL;
        return;
    }
    v->unresolved = true;
    if (nt_lint_is_ours(v->name)) {
        nt_lint_find(w->f, NT_R_UNRESOLVED, v->line, v->name, "%s replaces '%.80s'",
                     p[1] == '(' ? "Kubernetes" : "whoever renders or starts this", v->value);
    }
}

static void variable(struct walk *w, const char *name, const yaml_node_t *value, enum typing typing)
{
    const char *text = scalar(value);
    struct nt_lint_var *v;
    size_t len = text != NULL ? value->data.scalar.length : 0;
    if (text == NULL || !typed(w, name, value, typing)) {
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
    if (nt_lint_is_ours(name) && len > 0 && text[len - 1] == '\n') {
        nt_lint_find(w->f, NT_R_BLANKS, v->line, name,
                     "a line end is part of the value: a block scalar with |- or >- has none");
    }
    dollar(w, v);
}

/* Whether a key holds prose: what it says is no shell text. */
static bool is_prose(const char *key)
{
    static const char *const keys[] = {"description", "label", "title",   "summary",
                                       "placeholder", "help",  "message", NULL};
    for (size_t i = 0; keys[i] != NULL; i++) {
        if (strcasecmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void text_inside(struct walk *w, const char *key, const yaml_node_t *n)
{
    const char *s = scalar(n), *name = w->file[0] != '\0' ? w->file : key;
    size_t len = s != NULL ? n->data.scalar.length : 0;
    uint32_t line = line_of(w, n) + (n->data.scalar.style == YAML_LITERAL_SCALAR_STYLE ||
                                     n->data.scalar.style == YAML_FOLDED_SCALAR_STYLE);
    struct nt_lines l = {s, s != NULL ? s + len : NULL, 0};
    const char *p, *dot;
    size_t m;
    if (s == NULL || strstr(s, "NCCL") == NULL || is_prose(key)) {
        return;
    }
    dot = strrchr(name, '.');
    if (nt_lint_target(name) == NT_TO_CONF || (dot != NULL && strcmp(dot, ".conf") == 0)) {
        while (nt_lines_next(&l, &p, &m)) {
            nt_conf_line(w->f, p, m, line + l.line - 1);
        }
    } else if (nt_lint_target(name) == NT_TO_ENV && w->file[0] != '\0') {
        while (nt_lines_next(&l, &p, &m)) {
            nt_env_line(w->f, p, m, line + l.line - 1, true);
        }
    } else if (w->f->depth < TEXT_DEPTH_MAX) {
        size_t first = w->f->nvars;
        nt_shell_text(w->f, s, len, line, dot != NULL && strcmp(dot, ".env") == 0);
        for (; first < w->f->nvars; first++) { /* a text of its own beside others */
            struct nt_lint_var *v = &w->f->vars[first];
            char *group = v->group[0] == '\0' ? strdup(w->group) : NULL;
            if (group != NULL) {
                free(v->group);
                v->group = group;
            }
        }
    }
}

/* command and args as one command line; what follows -c is a script. */
static void command_line(struct walk *w, const yaml_node_t *seq)
{
    struct nt_buf b;
    uint32_t line = line_of(w, seq), at = line;
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
        for (; at < line_of(w, n); at++) { /* each word keeps its line */
            nt_buf_puts(&b, "\\\n ");
        }
        nt_buf_put_quoted(&b, s);
        nt_buf_puts(&b, " ");
    }
    if (strstr(nt_buf_str(&b), "NCCL") != NULL && w->f->depth < TEXT_DEPTH_MAX) {
        nt_shell_text(w->f, nt_buf_str(&b), b.len, line, false);
    }
    nt_buf_done(&b);
}

/* Whether env_vars are those of Ray's runtime_env: in a string of that name, or a file of its own.
 */
static bool is_ray(const struct walk *w, enum typing typing)
{
    static const char *const keys[] = {"working_dir", "pip", "conda", "uv", "py_modules", NULL};
    const yaml_node_t *root = yaml_document_get_root_node(w->doc);
    bool found = w->f->depth > 0 || typing == STRINGS;
    for (size_t i = 0; keys[i] != NULL && !found; i++) {
        found = member(w, root, keys[i]) != NULL;
    }
    return found || (root->type == YAML_MAPPING_NODE &&
                     root->data.mapping.pairs.top - root->data.mapping.pairs.start == 1);
}

static void parse(struct nt_lint_file *f, const char *text, size_t len, uint32_t first_line);
static void node(struct walk *w, const char *key, const yaml_node_t *n, enum typing typing,
                 int depth);

static void pair(struct walk *w, const char *k, const yaml_node_t *v, enum typing typing, int depth)
{
    char saved[sizeof(w->group)], file[sizeof(w->file)];
    bool sequence = v->type == YAML_SEQUENCE_NODE;
    memcpy(saved, w->group, sizeof(saved));
    memcpy(file, w->file, sizeof(file));
    if (strcmp(k, "envFrom") == 0 || strcmp(k, "env_file") == 0) {
        nt_lint_find(w->f, NT_R_SOURCED, line_of(w, v), NULL,
                     "%s: variables come from elsewhere; what stands here wins over them", k);
    } else if ((strcasecmp(k, "command") == 0 || strcasecmp(k, "args") == 0 ||
                strcasecmp(k, "entrypoint") == 0) &&
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
        node(w, k, v,
             strcmp(k, "environment") == 0                     ? COMPOSE
             : strcmp(k, "env_vars") == 0 && is_ray(w, typing) ? STRINGS
                                                               : typing,
             depth + 1);
    }
    memcpy(w->group, saved, sizeof(saved));
    memcpy(w->file, file, sizeof(file));
}

static void mapping(struct walk *w, const yaml_node_t *n, enum typing typing, int depth)
{
    static const char *const paths[] = {"path", "dest", "destination", "target", NULL};
    const char *name = scalar(member(w, n, "name"));
    const char *ecs = scalar(member(w, n, "Name"));
    const yaml_node_t *value = member(w, n, "value"), *from = member(w, n, "valueFrom");
    if (name != NULL &&
        value != NULL) { /* a row of an env list: all names count, for the API refuses all */
        variable(w, name, value, STRINGS);
        return;
    }
    if (ecs != NULL && member(w, n, "Value") != NULL) { /* a container of CloudFormation */
        variable(w, ecs, member(w, n, "Value"), ANYBODY);
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
    w->file[0] = '\0';
    for (size_t i = 0; paths[i] != NULL && w->file[0] == '\0'; i++) {
        const char *path = scalar(member(w, n, paths[i]));
        (void)snprintf(w->file, sizeof(w->file), "%s", path != NULL ? path : "");
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
            if (v != NULL && v->value != NULL) {
                dollar(w, v);
            }
            if (v != NULL && v->value != NULL && nt_lint_is_ours(v->name) && v->value[0] != '\0' &&
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

/* A manifest of Kubernetes says so, a file of Compose has services. */
static enum typing first_typing(const struct walk *w, const yaml_node_t *root)
{
    return member(w, root, "apiVersion") != NULL || w->f->depth > 0 ? STRINGS
           : member(w, root, "services") != NULL                    ? COMPOSE
                                                                    : ANYBODY;
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
        node(&w, "", root, first_typing(&w, root), 0);
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
