#include "tuner/import/table.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "schema/vocab.h"
#include "tuner/base/text.h"
#include "tuner/import/columns.h"
#include "tuner/import/internal.h"
#include "tuner/import/table_build.h"

const char *const nt_metric_names[] = {"time_us", "busbw_gbps", "algbw_gbps", NULL};

/* A file of another kind is refused by name, so that nobody reads rules as measurements. */
static int refuse_other_kinds(const char *name, const char *text, size_t len, struct nt_err *err)
{
    static const struct {
        const char *mark, *kind;
    } rows[] = {
        {"#nccltune-recording=", "a recording: use `import recording`"}, /* a topology is in it */
        {"communicator_configs",
         "a tuner file in protobuf text form (sizes per rank, upper bounds exclusive)"},
        {"msg_size_tuning_rules",
         "a tuner file in protobuf text form (sizes per rank, upper bounds exclusive)"},
        {"check_policy", "a guest policy in protobuf text form"},
        {"Out of bounds values", "output of nccl-tests: use `import nccl-tests`"},
        {"out-of-place", "output of nccl-tests: use `import nccl-tests`"},
        {"<graphs", "a graph file of NCCL"},
        {"<system", "a topology file of NCCL"},
    };
    size_t at = 0;
    while (at < len && (isspace((unsigned char)text[at]) || (unsigned char)text[at] >= 0x80)) {
        at++;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (memmem(text, len, rows[i].mark, strlen(rows[i].mark)) != NULL) {
            return nt_fail(err, NT_E_INVAL, 0, "%s: not a table of measurements but %s", name,
                           rows[i].kind);
        }
    }
    if (at < len && text[at] == '{') {
        return nt_fail(err, NT_E_INVAL, 0, "%s: not a table of measurements but JSON", name);
    }
    return 0;
}

static bool is_tuner_rule(const struct nt_csv *c)
{
    static const char *const colls[] = {"allreduce", "allgather", "reducescatter",
                                        "broadcast", "reduce",    NULL};
    for (size_t i = 0; colls[i] != NULL; i++) {
        if (c->n >= 8 && strcmp(c->cell[0], colls[i]) == 0 &&
            isdigit((unsigned char)c->cell[1][0])) {
            return true;
        }
    }
    return false;
}

static bool missing(const char *cell)
{
    static const char *const words[] = {"",    "-",    "--",   "n/a", "na",
                                        "nan", "none", "null", "oom", NULL};
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strcasecmp(cell, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A number above zero, with its unit or without; what stands behind ± is not looked at. *ret_unit:
 * of the unit's metric, NT_METRIC_COUNT when there is none. */
static bool positive(const struct nt_csv *c, const char *cell, double *ret,
                     enum nt_metric *ret_unit)
{
    static const struct {
        const char *word;
        double scale;
        enum nt_metric metric;
    } rows[] = {{"", 1, NT_METRIC_COUNT},     {"us", 1, NT_TIME_US},   {"\xc2\xb5s", 1, NT_TIME_US},
                {"\xce\xbcs", 1, NT_TIME_US}, {"ms", 1e3, NT_TIME_US}, {"ns", 1e-3, NT_TIME_US},
                {"s", 1e6, NT_TIME_US},       {"GB/s", 1, NT_BUSBW},   {"GBps", 1, NT_BUSBW}};
    const char *deviation = strstr(cell, "+-");
    size_t n = strspn(cell, "0123456789.,'+-eE");
    const char *unit;
    double v = 0;
    if (deviation != NULL && deviation < cell + n) {
        n = (size_t)(deviation - cell);
    }
    if (!nt_parse_local(cell, n, c->sep == ';', &v) || v <= 0) {
        return false;
    }
    unit = cell + n + strspn(cell + n, " ");
    if (strncmp(unit, "\xc2\xb1", 2) == 0 || strncmp(unit, "+-", 2) == 0 ||
        strncmp(unit, "+/-", 3) == 0) {
        unit += strcspn(unit, "umn");
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(unit, rows[i].word) == 0) {
            *ret = v * rows[i].scale;
            *ret_unit = rows[i].metric;
            return true;
        }
    }
    return false;
}

static bool size_of(const struct nt_csv *c, const char *cell, double scale, uint64_t *ret)
{
    enum nt_metric unit;
    char text[40];
    size_t n = 0;
    double v = 0;
    if (scale > 1) {
        if (!positive(c, cell, &v, &unit) || unit != NT_METRIC_COUNT || v * scale > 1e15) {
            return false;
        }
        *ret = (uint64_t)(v * scale + 0.5);
        return true;
    }
    for (; *cell != '\0' && n + 1 < sizeof(text); cell++) {
        if (*cell != ' ' && *cell != ',' && *cell != '_') {
            text[n++] = *cell;
        }
    }
    if (n > 1 && (text[n - 1] == 'B' || text[n - 1] == 'b') && text[n - 2] != 'i') {
        n--; /* "64KB" in a table of messages is 64 KiB */
    }
    text[n] = '\0';
    return nt_parse_bytes(text, ret, NULL) == 0;
}

/* The words that name group or arm of a record, joined. */
static void joined(const struct nt_layout *l, const struct nt_csv *c, bool arm, char *out,
                   size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < l->n && i < c->n; i++) {
        enum nt_role role = l->col[i].role;
        bool wanted = arm ? role == NT_ROLE_ARM : role == NT_ROLE_GROUP || role == NT_ROLE_RANKS;
        const char *tail = role == NT_ROLE_RANKS ? " ranks" : "";
        const char *head = "";
        if (!wanted || missing(c->cell[i]) || strcmp(c->cell[i], "-1") == 0) {
            continue;
        }
        if (!arm && role == NT_ROLE_GROUP && isdigit((unsigned char)c->cell[i][0])) {
            head = l->name[i]; /* a bare number needs its name */
        }
        n += (size_t)snprintf(out + n, size - n, "%s%s%s%.100s%s", n > 0 ? (arm ? "/" : ", ") : "",
                              head, head[0] != '\0' ? " " : "", c->cell[i], tail);
        if (n + 1 >= size) {
            return;
        }
    }
}

/* What tells one table of a text from the others: its ranks, or its number. */
static void table_of(const struct nt_layout *l, char *group, size_t size)
{
    size_t n = strlen(group);
    if (l->ranks > 0 && !nt_columns_have(l, NT_ROLE_RANKS)) {
        n += (size_t)snprintf(group + n, size - n, "%s%u ranks", n > 0 ? ", " : "", l->ranks);
    }
    if (l->part > 1 && n + 1 < size) {
        (void)snprintf(group + n, size - n, "%stable %u", n > 0 ? ", " : "", l->part);
    }
}

static void one_value(struct nt_table *t, const struct nt_layout *l, const struct nt_csv *c,
                      size_t i, uint64_t bytes, struct nt_entry e)
{
    char group[256], arm[192];
    const struct nt_column *col = &l->col[i];
    enum nt_metric unit;
    if (missing(c->cell[i])) {
        return;
    }
    if (!positive(c, c->cell[i], &e.value, &unit) ||
        (unit != NT_METRIC_COUNT && (unit == NT_TIME_US) != (l->metric == NT_TIME_US))) {
        nt_imp_note(&t->notes, NT_IMP_BAD_CELL, c->line, "'%.40s' is no %s", c->cell[i],
                    nt_metric_names[l->metric]);
        return;
    }
    t->no_unit = t->no_unit && unit == NT_METRIC_COUNT;
    e.value *= unit == NT_METRIC_COUNT ? col->scale : 1; /* the cell's unit beats the name's */
    e.sd *= e.sd >= 0 ? col->scale : 1;
    joined(l, c, false, group, sizeof(group));
    table_of(l, group, sizeof(group));
    joined(l, c, true, arm, sizeof(arm));
    if (l->wide) {
        (void)snprintf(arm, sizeof(arm), "%s", col->arm);
    }
    e.bytes = bytes;
    e.line = c->line;
    if (!nt_table_add(t, group, arm, &e)) {
        t->notes.full = true;
    }
}

static int mode_of(const char *cell)
{
    for (int m = 0; nt_mode_names[m] != NULL; m++) {
        if (strcasecmp(cell, nt_mode_names[m]) == 0) {
            return m;
        }
    }
    return -1;
}

/* The line of dashes below a Markdown table's names. */
static bool is_rule(const struct nt_csv *c)
{
    bool dashes = false;
    for (size_t i = 0; i < c->n; i++) {
        if (strspn(c->cell[i], "-: ") != strlen(c->cell[i])) {
            return false;
        }
        dashes = dashes || c->cell[i][0] != '\0';
    }
    return dashes;
}

static void one_record(struct nt_table *t, const struct nt_layout *l, const struct nt_csv *c)
{
    uint64_t bytes = 0, v = 0;
    double sd = 0;
    bool sized = false, value = false;
    enum nt_metric unit;
    struct nt_entry e = {.sd = -1, .repeats = 1, .round = NT_ROUND_UNKNOWN, .coll = -1, .mode = -1};
    for (size_t i = 0; i < l->n && i < c->n; i++) {
        const struct nt_column *col = &l->col[i];
        if (col->role == NT_ROLE_SIZE) {
            sized = size_of(c, c->cell[i], col->scale, &bytes);
        } else if (col->role == NT_ROLE_SD && strcmp(c->cell[i], "0") == 0) {
            e.sd = 0;
        } else if (col->role == NT_ROLE_SD && positive(c, c->cell[i], &sd, &unit)) {
            e.sd = sd;
        } else if (col->role == NT_ROLE_COUNT && nt_parse_u64(c->cell[i], &v, NULL) == 0) {
            e.repeats = v < 1000000 ? (uint32_t)v : 1000000;
        } else if (col->role == NT_ROLE_RANKS && nt_parse_u64(c->cell[i], &v, NULL) == 0 &&
                   v < 65536) {
            e.ranks = (uint32_t)v;
        } else if (strncmp(l->name[i], "coll", 4) == 0) {
            e.coll = (int8_t)nt_coll_of(c->cell[i]);
        } else if (strcmp(l->name[i], "mode") == 0) {
            e.mode = (int8_t)mode_of(c->cell[i]);
        } else if (col->role == NT_ROLE_ROUND) {
            e.round = nt_parse_u64(c->cell[i], &v, NULL) == 0 && v < 1000000 ? (uint32_t)v : 0;
        }
    }
    if (e.ranks == 0) {
        e.ranks = l->ranks;
    }
    if (!sized) {
        if (!is_rule(c)) {
            nt_imp_note(&t->notes, NT_IMP_BAD_CELL, c->line, "no size in this row");
        }
        return;
    }
    for (size_t i = 0; i < l->n && i < c->n && !(value && !l->wide); i++) {
        if (l->col[i].role == NT_ROLE_VALUE && l->col[i].metric == l->metric) {
            one_value(t, l, c, i, bytes, e);
            value = true;
        }
    }
}

/* Whether the next record has a size: names that head no such column are a sentence's. A column
 * without a unit whose first cell is a word is no backend's: it is left out. */
static bool heads_rows(const struct nt_csv *at, struct nt_layout *l)
{
    struct nt_csv *c = malloc(sizeof(*c));
    bool found = false, rule = true;
    if (c == NULL) {
        return true;
    }
    nt_csv_copy(c, at);
    while (rule && nt_csv_next(c)) {
        rule = is_rule(c) || c->n == 1;
    }
    for (size_t i = 0; i < l->n && i < c->n && !rule; i++) {
        struct nt_column *col = &l->col[i];
        uint64_t bytes;
        double v;
        enum nt_metric unit;
        found = found || (col->role == NT_ROLE_SIZE && size_of(c, c->cell[i], col->scale, &bytes));
        if (l->wide && col->role == NT_ROLE_VALUE && !col->unit && !missing(c->cell[i]) &&
            !positive(c, c->cell[i], &v, &unit) &&
            (isalpha((unsigned char)c->cell[i][0]) || strchr("([", c->cell[i][0]) != NULL)) {
            col->role = NT_ROLE_IGNORED;
        }
    }
    free(c);
    return found;
}

/* "World Size: 4", "TP=4": how many ranks the table below is of; 0: the line does not say. */
static uint32_t ranks_said(const char *line, size_t len)
{
    static const char *const words[] = {"world size", "world_size", "tp", "ws", "nranks", "ranks"};
    char text[200];
    snprintf(text, sizeof(text), "%.*s", (int)(len < sizeof(text) ? len : sizeof(text) - 1), line);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const char *p = strcasestr(text, words[i]);
        size_t n = strlen(words[i]);
        unsigned long v;
        if (p == NULL || (p > text && isalnum((unsigned char)p[-1]))) {
            continue;
        }
        p += n + strspn(p + n, " =:*_`");
        v = isdigit((unsigned char)*p) ? strtoul(p, NULL, 10) : 0;
        if (v > 0 && v < 65536) {
            return (uint32_t)v;
        }
    }
    return 0;
}

/* Another table of the same text begins with this record. */
static bool next_table(struct nt_table *t, const struct nt_csv *c, struct nt_layout *l,
                       uint32_t ranks)
{
    struct nt_layout *other = malloc(sizeof(*other));
    bool begins = other != NULL && nt_columns_read(other, c, "", NULL) == 0 && heads_rows(c, other);
    if (begins && other->metric != l->metric) {
        nt_imp_note(&t->notes, NT_IMP_NOT_COMPARED, c->line,
                    "a table of %s begins; only those of %s are read",
                    nt_metric_names[other->metric], nt_metric_names[l->metric]);
        other->n = 0; /* none of its records has a size */
    }
    if (begins) {
        other->metric = l->metric;
        other->part = l->part + 1;
        other->ranks = ranks;
        *l = *other;
    }
    free(other);
    return begins;
}

/* The first line that names the columns; above it, a text may stand. Without one the error is about
 * the first line. */
static int find_header(struct nt_csv *c, struct nt_layout *l, const char *name, const char *text,
                       size_t len, struct nt_err *err)
{
    enum { LINES = 200 };
    size_t at = 0;
    uint32_t ranks = 0;
    int first = 0;
    for (unsigned n = 0, line = 1; n < LINES && at < len; n++) {
        const char *eol = memchr(text + at, '\n', len - at);
        int rc;
        nt_csv_open(c, text + at, len - at);
        c->next_line = line;
        if (!nt_csv_next(c)) {
            break;
        }
        if (n == 0 && is_tuner_rule(c)) {
            return nt_fail(err, NT_E_INVAL, 0,
                           "%s: not a table of measurements but rules for NCCL's example tuner "
                           "(lint reads them)",
                           name);
        }
        rc = nt_columns_read(l, c, name, first == 0 ? err : NULL);
        if (rc == 0 && (heads_rows(c, l) || n == 0)) {
            l->ranks = ranks;
            return 0;
        }
        if (eol != NULL && ranks_said(text + at, (size_t)(eol - text) - at) > 0) {
            ranks = ranks_said(text + at, (size_t)(eol - text) - at);
        }
        first = first == 0 ? rc : first;
        at = eol != NULL ? (size_t)(eol - text) + 1 : len;
        line++;
    }
    return first != 0 ? first : nt_fail(err, NT_E_INVAL, 0, "%s: empty", name);
}

/* Times without a unit that are too short for microseconds are milliseconds. */
static void milliseconds(struct nt_table *t, bool unit)
{
    double least = INFINITY;
    for (size_t i = 0; i < t->n; i++) {
        least = t->entries[i].value < least ? t->entries[i].value : least;
    }
    if (unit || !t->no_unit || t->metric != NT_TIME_US || least >= 1) {
        return;
    }
    for (size_t i = 0; i < t->n; i++) {
        t->entries[i].value *= 1e3;
        t->entries[i].sd *= t->entries[i].sd > 0 ? 1e3 : 1;
    }
    nt_imp_note(&t->notes, NT_IMP_INFERRED, 0,
                "times of no unit, down to %.4g: too short for microseconds, taken as milliseconds",
                least);
}

int nt_table_parse(const char *name, const char *text, size_t len, struct nt_table **ret,
                   struct nt_err *err)
{
    struct nt_csv *c = malloc(sizeof(*c));
    struct nt_layout *l = malloc(sizeof(*l));
    struct nt_table *t = NULL;
    uint32_t ranks = 0;
    int rc;
    if (c == NULL || l == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "%s", name);
        goto out;
    }
    if (nt_is_utf16(text, len)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: UTF-16 text; save it as UTF-8", name);
        goto out;
    }
    rc = refuse_other_kinds(name, text, len, err);
    if (rc != 0) {
        goto out;
    }
    rc = find_header(c, l, name, text, len, err);
    if (rc == 0) {
        rc = nt_table_new(name, l->metric, &t, err);
    }
    if (rc == 0) {
        t->no_unit = true;
    }
    while (rc == 0 && nt_csv_next(c)) {
        if (c->n == 1 && l->n != 1 && (c->sep == '|' || c->sep == ' ')) {
            ranks = ranks_said(c->cell[0], strlen(c->cell[0])) > 0
                        ? ranks_said(c->cell[0], strlen(c->cell[0]))
                        : ranks;
            continue; /* text between tables, frames */
        }
        if (c->n > 1 && next_table(t, c, l, ranks)) {
            ranks = 0;
            continue;
        }
        if (l->n == 0) {
            continue;
        }
        if (c->truncated || (c->n != l->n && c->n > 1)) {
            nt_imp_note(&t->notes, NT_IMP_BAD_CELL, c->line,
                        "%zu cells where the first row has %zu", c->n, l->n);
        }
        one_record(t, l, c);
    }
    if (rc == 0) {
        milliseconds(t, l->unit);
    }
    if (rc == 0 && t->n == 0) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: no row with a size and a %s", name,
                     nt_metric_names[l->metric]);
    }
    if (rc == 0) {
        *ret = t;
        t = NULL;
    }
out:
    nt_table_free(t);
    free(c);
    free(l);
    return rc;
}
