#include "tuner/deliver/engine.h"

#include <stdio.h>
#include <string.h>
#include "schema/vocab.h"
#include "tuner/base/text.h"
#include "tuner/deliver/proc.h"

enum { MAX_LINE = 1024, MAX_WORDS = 10 };

/* What is given once, a bit each. */
enum { HAS_PROCESS = 1, HAS_ENGINE = 2, HAS_TABLE = 4, HAS_STATE = 8, HAS_ALL = 15 };
struct reading {
    struct nt_engine *to;
    unsigned has;
};

/* Cuts a line into its words; 0: too many. */
static size_t words_of(char *line, char *words[MAX_WORDS])
{
    size_t n = 0;
    char *word;

    while ((word = strsep(&line, " ")) != NULL) {
        if (n == MAX_WORDS) {
            return 0;
        }
        words[n++] = word;
    }
    return n;
}

static bool keep(char *out, size_t size, const char *text)
{
    (void)nt_clean(text, out, size);
    return text[0] != '\0' && strlen(text) < size;
}

static bool number(const char *text, uint64_t *ret)
{
    return nt_parse_u64(text, ret, NULL) == 0 && *ret <= INT64_MAX;
}

static bool once(struct reading *r, unsigned bit)
{
    bool first = (r->has & bit) == 0;
    r->has |= bit;
    return first;
}

/* "on" or "off: <reason>", to *on and why. */
static bool verdict(const char *text, bool *on, char *why, size_t size)
{
    *on = strcmp(text, "on") == 0;
    if (*on) {
        return true;
    }
    (void)nt_clean(strncmp(text, "off: ", 5) == 0 ? text + 5 : "", why, size);
    return why[0] != '\0';
}

static bool take_process(struct reading *r, char *rest)
{
    struct nt_engine *e = r->to;
    char *w[MAX_WORDS];
    uint64_t pid = 0;

    if (words_of(rest, w) != 4 || !number(w[0], &pid) || !number(w[1], &e->start_ticks)) {
        return false;
    }
    e->pid = (uint32_t)pid;
    return once(r, HAS_PROCESS) && pid > 0 && pid <= INT32_MAX &&
           keep(e->boot_id, sizeof(e->boot_id), w[2]) && keep(e->host, sizeof(e->host), w[3]);
}

static bool take_engine(struct reading *r, char *rest)
{
    char *w[MAX_WORDS];
    return words_of(rest, w) == 2 && once(r, HAS_ENGINE) &&
           keep(r->to->engine, sizeof(r->to->engine), w[0]) &&
           keep(r->to->version, sizeof(r->to->version), w[1]);
}

static bool take_table(struct reading *r, char *rest)
{
    bool none = strcmp(rest, "none") == 0;
    (void)snprintf(r->to->table, sizeof(r->to->table), "%s", none ? "" : rest);
    return once(r, HAS_TABLE) && (none || nt_table_is_hash(rest));
}

static bool take_state(struct reading *r, char *rest)
{
    return once(r, HAS_STATE) && verdict(rest, &r->to->on, r->to->why, sizeof(r->to->why));
}

static bool take_library(struct reading *r, char *rest)
{
    struct nt_engine *e = r->to;
    char *path = strchr(rest, ' ');

    if (path == NULL || path[1] == '\0') {
        return false;
    }
    *path++ = '\0';
    if (strcmp(rest, "mapped") != 0) { /* others may come; PyNccl's is the one that is known */
        if (strcmp(rest, "pynccl") == 0) {
            (void)nt_clean(path, e->pynccl, sizeof(e->pynccl));
        }
    } else if (e->nmapped == NT_ENGINE_LIBRARIES) {
        e->lost++;
    } else {
        (void)nt_clean(path, e->mapped[e->nmapped++], sizeof(e->mapped[0]));
    }
    return true;
}

/* "tp:0 of 8: on" */
static bool take_group(struct reading *r, char *rest)
{
    struct nt_engine *e = r->to;
    struct nt_engine_group g = {.ranks = 0};
    char *said = strstr(rest, ": "), *of = NULL;
    uint64_t ranks = 0;

    if (said == NULL) {
        return false;
    }
    *said = '\0';
    for (char *at = rest; (at = strstr(at, " of ")) != NULL; at++) {
        of = at;
    }
    if (of == NULL || !number(of + 4, &ranks) || ranks == 0 || ranks > UINT16_MAX) {
        return false;
    }
    *of = '\0';
    g.ranks = (unsigned)ranks;
    if (!keep(g.name, sizeof(g.name), rest) || !verdict(said + 2, &g.on, g.why, sizeof(g.why))) {
        return false;
    }
    if (e->ngroups == NT_ENGINE_GROUPS) {
        e->lost++;
    } else {
        e->groups[e->ngroups++] = g;
    }
    return true;
}

bool nt_engine_same_row(const struct nt_engine_row *a, const struct nt_engine_row *b)
{
    return a->mode == b->mode && a->min_bytes == b->min_bytes && a->max_bytes == b->max_bytes &&
           strcmp(a->group, b->group) == 0 && strcmp(a->dtype, b->dtype) == 0 &&
           strcmp(a->backend, b->backend) == 0;
}

void nt_engine_add_count(uint64_t *to, uint64_t more)
{
    *to = more > INT64_MAX - *to ? INT64_MAX : *to + more;
}

static bool take_mode(const char *word, uint8_t *ret)
{
    int mode = nt_vocab_find(nt_mode_names, "mode", word, NULL);
    *ret = (uint8_t)mode;
    return mode == NT_EAGER || mode == NT_GRAPH;
}

static bool add_row(struct nt_engine *e, char *const w[3], struct nt_engine_row *row)
{
    if (!keep(row->group, sizeof(row->group), w[0]) || !take_mode(w[1], &row->mode) ||
        !keep(row->dtype, sizeof(row->dtype), w[2])) {
        return false;
    }
    for (unsigned i = 0; i < e->nrows; i++) { /* calls, and calls that torch.compile traced */
        struct nt_engine_row *r = &e->rows[i];
        if (nt_engine_same_row(r, row)) {
            nt_engine_add_count(&r->served, row->served);
            nt_engine_add_count(&r->declined, row->declined);
            return true;
        }
    }
    if (e->nrows == NT_ENGINE_ROWS) {
        e->lost++;
    } else {
        e->rows[e->nrows++] = *row;
    }
    return true;
}

/* "tp:0 graph bf16 1024-92681 custom-allreduce served 161 declined 0" */
static bool take_calls(struct reading *r, char *rest)
{
    struct nt_engine_row row = {.mode = 0};
    char *w[MAX_WORDS], *dash;

    if (words_of(rest, w) != 9 || (dash = strchr(w[3], '-')) == NULL) {
        return false;
    }
    *dash = '\0';
    return number(w[3], &row.min_bytes) && number(dash + 1, &row.max_bytes) && row.min_bytes > 0 &&
           row.min_bytes <= row.max_bytes && keep(row.backend, sizeof(row.backend), w[4]) &&
           strcmp(w[5], "served") == 0 && number(w[6], &row.served) &&
           strcmp(w[7], "declined") == 0 && number(w[8], &row.declined) && add_row(r->to, w, &row);
}

/* "tp:0 eager bf16 12" */
static bool take_left(struct reading *r, char *rest)
{
    struct nt_engine_row row = {.mode = 0};
    char *w[MAX_WORDS];
    return words_of(rest, w) == 4 && number(w[3], &row.served) && add_row(r->to, w, &row);
}

static bool take_line(struct reading *r, char *line)
{
    static const struct {
        const char *word;
        bool (*take)(struct reading *r, char *rest);
    } kinds[] = {{"process ", take_process}, {"engine ", take_engine},   {"table ", take_table},
                 {"state ", take_state},     {"library ", take_library}, {"group ", take_group},
                 {"calls ", take_calls},     {"left ", take_left}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t n = strlen(kinds[i].word);
        if (strncmp(line, kinds[i].word, n) == 0) {
            return kinds[i].take(r, line + n);
        }
    }
    return false;
}

int nt_engine_read(const char *text, size_t len, struct nt_engine *ret, struct nt_err *err)
{
    static const char first[] = "nccltune-backends 1\n";
    struct reading r = {.to = ret};
    const char *at = text + sizeof(first) - 1, *end = text + len;

    memset(ret, 0, sizeof(*ret));
    if (len < sizeof(first) - 1 || memcmp(text, first, sizeof(first) - 1) != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "not a receipt of nccltune-backends 1");
    }
    for (unsigned line = 2; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = stop != NULL ? (size_t)(stop - at) : 0;
        char copy[MAX_LINE];
        if (stop == NULL || n >= sizeof(copy) || memchr(at, '\0', n) != NULL) {
            return nt_fail(err, NT_E_INVAL, 0, "receipt of backends: line %u is cut or too long",
                           line);
        }
        memcpy(copy, at, n);
        copy[n] = '\0';
        if (!take_line(&r, copy)) {
            return nt_fail(err, NT_E_INVAL, 0, "receipt of backends: line %u is not understood",
                           line);
        }
        at = stop + 1;
    }
    return r.has == HAS_ALL ? 0 : nt_fail(err, NT_E_INVAL, 0, "receipt of backends: not whole");
}
