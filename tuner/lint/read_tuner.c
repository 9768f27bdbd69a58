/*
 * Files of tuner plugins: the CSV of NCCL's example tuner, as that plugin's own code reads it
 * (strtok, strcmp, a buffer of 256), and files in protobuf text form.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/vocab.h"
#include "tuner/lint/internal.h"

enum { LINE_BUFFER = 256, RULES_MAX = 4096, FIELDS = 10, FIELDS_MIN = 8 };

static const char *const coll_words[] = {"broadcast",     "reduce",    "allgather",
                                         "reducescatter", "allreduce", NULL};
static const char *const algo_words[] = {
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat", NULL};
static const char *const proto_words[] = {"ll", "ll128", "simple", NULL};

struct rule {
    uint32_t line;
    int coll, algo, proto;
    unsigned long long min, max;
    long nodes, ranks, pipe, reg; /* -1: any */
};

static int index_of(const char *const *words, const char *word)
{
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], word) == 0) {
            return i;
        }
    }
    return -1;
}

/* Which algorithms have a kernel for a collective (src/device/generate.py); all but Tree and Ring
 * in Simple only. */
static bool has_kernel(const struct rule *r)
{
    static const unsigned algos[] = {
        [NT_BROADCAST] = 1U << NT_RING,
        [NT_REDUCE] = 1U << NT_RING,
        [NT_ALL_GATHER] = 1U << NT_RING | 1U << NT_COLLNET_DIRECT | 1U << NT_NVLS | 1U << NT_PAT,
        [NT_REDUCE_SCATTER] =
            1U << NT_RING | 1U << NT_COLLNET_DIRECT | 1U << NT_NVLS | 1U << NT_PAT,
        [NT_ALL_REDUCE] = (1U << NT_PAT) - 1,
    };
    bool simple_only = r->algo != NT_TREE && r->algo != NT_RING;
    return (algos[r->coll] >> r->algo & 1) != 0 && (!simple_only || r->proto == NT_SIMPLE);
}

static bool covers(long wide, long narrow)
{
    return wide == -1 || wide == narrow;
}

static void shadowed(struct nt_lint_file *f, const struct rule *rules, size_t n,
                     const struct rule *r)
{
    for (size_t i = 0; i < n; i++) {
        const struct rule *e = &rules[i];
        if (e->coll == r->coll && e->min <= r->min && e->max >= r->max &&
            covers(e->nodes, r->nodes) && covers(e->ranks, r->ranks) && covers(e->pipe, r->pipe) &&
            covers(e->reg, r->reg)) {
            nt_lint_find(f, NT_R_RULE_SHADOWED, r->line, NULL,
                         "the rule at line %u matches all of this first", e->line);
            return;
        }
    }
}

static int word_or(struct nt_lint_file *f, uint32_t line, const char *const *words,
                   const char *what, const char *word, int otherwise)
{
    int i = index_of(words, word);
    if (i < 0) {
        nt_lint_find(f, NT_R_RULE_TEXT, line, NULL,
                     "%s '%.40s' is unknown: the tuner silently takes %s", what, word,
                     words[otherwise]);
        return otherwise;
    }
    return i;
}

static void judge(struct nt_lint_file *f, char **field, size_t n, uint32_t line, struct rule *rules,
                  size_t *nrules)
{
    struct rule r = {.line = line, .pipe = -1, .reg = -1};
    long channels = strtol(field[5], NULL, 10);
    r.coll = word_or(f, line, coll_words, "collective", field[0], NT_ALL_REDUCE);
    r.algo = word_or(f, line, algo_words, "algorithm", field[3], NT_RING);
    r.proto = word_or(f, line, proto_words, "protocol", field[4], NT_SIMPLE);
    r.min = strtoull(field[1], NULL, 10);
    r.max = strtoull(field[2], NULL, 10);
    r.nodes = strtol(field[6], NULL, 10);
    r.ranks = strtol(field[7], NULL, 10);
    r.pipe = n > 8 ? strtol(field[8], NULL, 10) : -1;
    r.reg = n > 9 ? strtol(field[9], NULL, 10) : -1;
    for (size_t i = 1; i < 3; i++) {
        if (field[i][strspn(field[i], "0123456789 \r\n")] != '\0') {
            nt_lint_find(f, NT_R_NUMBER, line, NULL, "'%.30s' is taken as %llu bytes", field[i],
                         i == 1 ? r.min : r.max);
        }
    }
    if (r.min > r.max) {
        nt_lint_find(f, NT_R_RULE_EMPTY, line, NULL, "from %llu to %llu bytes: nothing lies in it",
                     r.min, r.max);
    }
    if (channels == -1) {
        nt_lint_find(
            f, NT_R_RULE_CHANNELS, line, NULL,
            "-1 is meant as the default, but the example tuner runs the call on one channel");
    } else if (channels < 1 || channels > 64) {
        nt_lint_find(f, NT_R_OUTSIDE, line, NULL, "%ld channels; NCCL has 1 to 64", channels);
    }
    if (!has_kernel(&r)) {
        nt_lint_find(f, NT_R_RULE_KERNEL, line, NULL,
                     "%s has no %s kernel in %s: the rule is passed over", coll_words[r.coll],
                     algo_words[r.algo], proto_words[r.proto]);
    }
    shadowed(f, rules, *nrules, &r);
    if (*nrules < RULES_MAX) {
        rules[(*nrules)++] = r;
    }
}

static void rule_line(struct nt_lint_file *f, const char *line, size_t len, uint32_t number,
                      struct rule *rules, size_t *nrules)
{
    char buf[LINE_BUFFER], *field[FIELDS], *save = NULL;
    size_t n = 0;
    bool empty = memmem(line, len, ",,", 2) != NULL || (len > 0 && line[0] == ',');
    if (len + 1 >= sizeof(buf)) {
        nt_lint_find(f, NT_R_TOO_LONG, number, NULL,
                     "longer than the tuner's buffer of %d characters: it becomes two lines",
                     LINE_BUFFER);
        len = sizeof(buf) - 2;
    }
    memcpy(buf, line, len);
    buf[len] = '\0';
    if (memchr(line, '\0', len) != NULL) {
        nt_lint_find(f, NT_R_BAD_SYNTAX, number, NULL, "a NUL ends the line for the tuner");
    }
    for (char *t = strtok_r(buf, ",", &save); t != NULL && n < FIELDS;
         t = strtok_r(NULL, ",", &save)) {
        field[n++] = t;
    }
    if (empty) {
        nt_lint_find(f, NT_R_RULE_TEXT, number, NULL,
                     "empty fields vanish: what follows moves to the left");
    }
    if (n < FIELDS_MIN) {
        nt_lint_find(f, NT_R_RULE_SKIPPED, number, NULL, "%zu fields; fewer than %d are skipped", n,
                     FIELDS_MIN);
        return;
    }
    if (index_of(coll_words, field[0]) < 0 && !isdigit((unsigned char)field[1][0]) &&
        index_of(algo_words, field[3]) < 0) {
        nt_lint_find(
            f, NT_R_RULE_TEXT, number, NULL,
            "a header without # in front: the tuner takes it for a rule (allreduce, 0 bytes)");
        return;
    }
    judge(f, field, n, number, rules, nrules);
}

void nt_read_tuner_csv(struct nt_lint_file *f, const char *text, size_t len)
{
    struct nt_lines l = {text, text + len, 0};
    struct rule *rules = malloc(RULES_MAX * sizeof(*rules));
    const char *line;
    size_t n, nrules = 0;
    if (rules == NULL) {
        f->full = true;
        return;
    }
    while (nt_lines_next(&l, &line, &n)) {
        size_t at = 0;
        n -= n > 0 && line[n - 1] == '\r';
        while (at < n && (line[at] == ' ' || line[at] == '\t')) {
            at++;
        }
        if (n == 0 || line[0] == '#') {
            continue;
        }
        if (at < n && line[at] == '#') {
            nt_lint_find(f, NT_R_COMMENT_SET, l.line, NULL,
                         "# is a comment in the first column only");
        }
        rule_line(f, line, n, l.line, rules, &nrules);
    }
    free(rules);
}

/* ---- protobuf text ---- */

struct token {
    const char *s;
    size_t len;
    uint32_t line;
};

/* Names, numbers, strings without their quotes, and single signs. */
static bool next_token(const char **p, const char *end, uint32_t *line, struct token *t)
{
    while (*p < end && (isspace((unsigned char)**p) || **p == '#')) {
        if (**p == '#') {
            while (*p < end && **p != '\n') {
                (*p)++;
            }
        } else {
            *line += **p == '\n';
            (*p)++;
        }
    }
    if (*p == end) {
        return false;
    }
    *t = (struct token){*p, 1, *line};
    if (**p == '"' || **p == '\'') {
        char quote = *(*p)++;
        t->s = *p;
        while (*p < end && **p != quote && **p != '\n') {
            (*p)++;
        }
        t->len = (size_t)(*p - t->s);
        *p += *p < end;
        return true;
    }
    (*p)++;
    while (*p < end && (isalnum((unsigned char)*t->s) || *t->s == '_') &&
           (isalnum((unsigned char)**p) || **p == '_')) {
        (*p)++;
    }
    t->len = (size_t)(*p - t->s);
    return true;
}

static bool same(const struct token *t, const char *word)
{
    return t->len == strlen(word) && strncmp(t->s, word, t->len) == 0;
}

struct policy {
    struct token name, value;
    bool enforced;
};

static void policy_end(struct nt_lint_file *f, struct policy *p)
{
    if (p->name.len > 0 && p->value.s != NULL) {
        struct nt_lint_var *v = nt_lint_add(f, NT_W_POLICY, p->name.line, p->name.s, p->name.len,
                                            p->value.s, p->value.len);
        if (v != NULL) {
            v->enforced = p->enforced;
            nt_lint_find(f, NT_R_POLICY_SET, v->line, v->name, "the site %s %.80s",
                         v->enforced ? "insists on" : "recommends", v->value);
        }
    }
    *p = (struct policy){0};
}

void nt_read_textproto(struct nt_lint_file *f, const char *text, size_t len)
{
    const char *p = text, *end = text + len;
    uint32_t line = 1;
    struct token t, key = {0};
    struct policy policy = {0};
    size_t rules = 0;
    long level = 0;
    while (next_token(&p, end, &line, &t)) {
        if (same(&t, "{")) {
            level++;
            rules += same(&key, "msg_size_tuning_rules");
        } else if (same(&t, "}")) {
            level--;
            policy_end(f, &policy);
        } else if (same(&t, ":")) {
            continue;
        } else if (same(&key, "name")) {
            policy.name = t;
        } else if (same(&key, "value")) {
            policy.value = t;
        } else if (same(&key, "check_policy")) {
            policy.enforced =
                same(&t, "POLICY_ENFORCED") || memmem(t.s, t.len, "ENFORCE", 7) != NULL;
        }
        key = same(&key, "name") || same(&key, "value") || same(&key, "check_policy")
                  ? (struct token){0}
                  : t;
    }
    policy_end(f, &policy);
    if (level != 0) {
        nt_lint_find(f, NT_R_BAD_SYNTAX, line, NULL, "%s",
                     level > 0 ? "a { without its }" : "a } too many");
    }
    if (f->form == NT_LINT_TUNER_PROTO) {
        nt_lint_find(
            f, NT_R_OTHER_KIND, 0, NULL,
            "%zu rules of another vendor's tuner in protobuf text form: upper bounds are exclusive "
            "and sizes are per rank, so NCCL's example tuner must not be given this file",
            rules);
    }
}
