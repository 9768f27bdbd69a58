#include "tuner/import/table.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "schema/vocab.h"
#include "tuner/base/text.h"
#include "tuner/import/csv.h"
#include "tuner/import/internal.h"
#include "tuner/import/table_build.h"

const char *const nt_metric_names[] = {"time_us", "busbw_gbps", "algbw_gbps", NULL};

enum role {
    ROLE_IGNORED,
    ROLE_SIZE,
    ROLE_GROUP, /* part of what must be equal to compare */
    ROLE_RANKS, /* the same, printed "8 ranks" */
    ROLE_ARM,   /* part of the arm's name */
    ROLE_ROUND, /* which repeat */
    ROLE_COUNT, /* repeats behind the value */
    ROLE_SD,
    ROLE_VALUE,
    ROLE_UNKNOWN /* a value of an arm named by the column, if it holds numbers */
};

struct column {
    enum role role;
    enum nt_metric metric; /* of values */
    double scale;          /* to the metric's unit; sizes: to bytes */
    char arm[48];          /* wide form */
};

struct layout {
    struct column col[NT_CSV_COLUMNS];
    char name[NT_CSV_COLUMNS][48];
    size_t n;
    bool wide;
    enum nt_metric metric;
};

static const struct {
    const char *name;
    enum role role;
} column_rows[] = {
    {"collective", ROLE_GROUP},
    {"coll", ROLE_GROUP},
    {"gpus", ROLE_GROUP},
    {"gpu", ROLE_GROUP},
    {"machine", ROLE_GROUP},
    {"hardware", ROLE_GROUP},
    {"arch", ROLE_GROUP},
    {"dtype", ROLE_GROUP},
    {"type", ROLE_GROUP},
    {"op", ROLE_GROUP},
    {"redop", ROLE_GROUP},
    {"mode", ROLE_GROUP},
    {"operation", ROLE_GROUP},
    {"pattern", ROLE_GROUP},
    {"nodes", ROLE_GROUP},
    {"nnodes", ROLE_GROUP},
    {"pipeops", ROLE_GROUP},
    {"regbuff", ROLE_GROUP},
    {"graph", ROLE_GROUP},
    {"placement", ROLE_GROUP},
    {"test", ROLE_GROUP},
    {"ranks", ROLE_RANKS},
    {"n", ROLE_RANKS},
    {"nranks", ROLE_RANKS},
    {"world_size", ROLE_RANKS},
    {"tp", ROLE_RANKS},
    {"ws", ROLE_RANKS},
    {"ngpus", ROLE_RANKS},
    {"num_gpus", ROLE_RANKS},
    {"gpu_count", ROLE_RANKS},
    {"num_ranks", ROLE_RANKS},
    {"world", ROLE_RANKS},
    {"backend", ROLE_ARM},
    {"impl", ROLE_ARM},
    {"implementation", ROLE_ARM},
    {"method", ROLE_ARM},
    {"arm", ROLE_ARM},
    {"setting", ROLE_ARM},
    {"settings", ROLE_ARM},
    {"config", ROLE_ARM},
    {"variant", ROLE_ARM},
    {"provider", ROLE_ARM},
    {"label", ROLE_ARM},
    {"kernel", ROLE_ARM},
    {"layout", ROLE_ARM},
    {"library", ROLE_ARM},
    {"algorithm", ROLE_ARM},
    {"algo", ROLE_ARM},
    {"protocol", ROLE_ARM},
    {"proto", ROLE_ARM},
    {"channels", ROLE_ARM},
    {"nchannels", ROLE_ARM},
    {"version", ROLE_ARM},
    {"nccl_version", ROLE_ARM},
    {"topology", ROLE_ARM},
    {"communicator", ROLE_ARM},
    {"name", ROLE_ARM},
    {"repeat", ROLE_ROUND},
    {"rep", ROLE_ROUND},
    {"run", ROLE_ROUND},
    {"trial", ROLE_ROUND},
    {"cycle", ROLE_ROUND},
    {"round", ROLE_ROUND},
    {"seed", ROLE_ROUND},
    {"repeats", ROLE_COUNT},
    {"reps", ROLE_COUNT},
    {"samples", ROLE_COUNT},
    {"n_repeats", ROLE_COUNT},
    {"count", ROLE_COUNT},
    {"source", ROLE_IGNORED},
    {"notes", ROLE_IGNORED},
    {"note", ROLE_IGNORED},
    {"comment", ROLE_IGNORED},
    {"url", ROLE_IGNORED},
    {"ref", ROLE_IGNORED},
    {"algo_picked", ROLE_IGNORED},
    {"cost_metric", ROLE_IGNORED},
    {"speedup", ROLE_IGNORED},
    {"ratio", ROLE_IGNORED},
    {"winner", ROLE_IGNORED},
    {"best", ROLE_IGNORED},
    {"table", ROLE_IGNORED},
    {"date", ROLE_IGNORED},
    {"iters", ROLE_IGNORED},
    {"warmup", ROLE_IGNORED},
    {"iterations", ROLE_IGNORED},
    {"wrong", ROLE_IGNORED},
    {"elements", ROLE_IGNORED},
    {"numel", ROLE_IGNORED},
    {"min_us", ROLE_IGNORED},
    {"max_us", ROLE_IGNORED},
    {"p99_us", ROLE_IGNORED},
    {"p95_us", ROLE_IGNORED},
    {"delta_pct", ROLE_IGNORED},
    {"diff_pct", ROLE_IGNORED},
    {"gain_pct", ROLE_IGNORED},
    {"rank", ROLE_IGNORED},
    {"", ROLE_IGNORED},
};

/* Letters of units and of what is no measurement, in ASCII. */
static const struct {
    const char *utf8, *ascii;
} letters[] = {
    {"\xc2\xb5", "u"}, {"\xce\xbc", "u"}, {"\xce\x94", "delta "}, {"\xe2\x88\x86", "delta "}};

/* "Time (µs)" -> "time_us" */
static void normal_name(char *out, size_t size, const char *cell)
{
    char ascii[200];
    size_t n = 0;
    for (; *cell != '\0' && n + 8 < sizeof(ascii); cell++) {
        const char *as = NULL;
        for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]) && as == NULL; i++) {
            as = strncmp(cell, letters[i].utf8, strlen(letters[i].utf8)) == 0 ? letters[i].ascii
                                                                              : NULL;
            cell += as != NULL ? strlen(letters[i].utf8) - 1 : 0;
        }
        if (as == NULL) {
            ascii[n++] = *cell;
        } else {
            n += (size_t)snprintf(ascii + n, sizeof(ascii) - n, "%s", as);
        }
    }
    ascii[n] = '\0';
    n = 0;
    for (cell = ascii; *cell != '\0' && n + 1 < size; cell++) {
        unsigned char c = (unsigned char)*cell;
        if (isalnum(c) || c == '.' || c == '+') {
            out[n++] = (char)tolower(c);
        } else if (c == '/') {
            continue; /* GB/s */
        } else if (n > 0 && out[n - 1] != '_') {
            out[n++] = '_';
        }
    }
    while (n > 0 && out[n - 1] == '_') {
        n--;
    }
    out[n] = '\0';
}

struct unit {
    const char *word;
    enum nt_metric metric;
    double scale;
};
/* Words at either end of a column's name that say what it holds; longest first. */
static const struct unit units[] = {
    {"busbw_gbps", NT_BUSBW, 1},
    {"busbw_gbs", NT_BUSBW, 1},
    {"bus_bw_gbps", NT_BUSBW, 1},
    {"algbw_gbps", NT_ALGBW, 1},
    {"algbw_gbs", NT_ALGBW, 1},
    {"bandwidth_gbps", NT_ALGBW, 1},
    {"bandwidth", NT_ALGBW, 1},
    {"latency_us", NT_TIME_US, 1},
    {"latency_ms", NT_TIME_US, 1e3},
    {"latency_ns", NT_TIME_US, 1e-3},
    {"median_us", NT_TIME_US, 1},
    {"latency", NT_TIME_US, 1},
    {"time_us", NT_TIME_US, 1},
    {"time_ms", NT_TIME_US, 1e3},
    {"time_ns", NT_TIME_US, 1e-3},
    {"time_s", NT_TIME_US, 1e6},
    {"mean_us", NT_TIME_US, 1},
    {"mean_ms", NT_TIME_US, 1e3},
    {"avg_us", NT_TIME_US, 1},
    {"p50_us", NT_TIME_US, 1},
    {"busbw", NT_BUSBW, 1},
    {"algbw", NT_ALGBW, 1},
    {"median", NT_TIME_US, 1},
    {"time", NT_TIME_US, 1},
    {"mean", NT_TIME_US, 1},
    {"gbps", NT_BUSBW, 1},
    {"gbs", NT_BUSBW, 1},
    {"us", NT_TIME_US, 1},
    {"ms", NT_TIME_US, 1e3},
    {"ns", NT_TIME_US, 1e-3},
};

static const struct unit *unit_of(const char *name, char *rest, size_t size)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t n = strlen(units[i].word);
        if (len < n) {
            continue;
        }
        if (strcmp(name + len - n, units[i].word) == 0 && (len == n || name[len - n - 1] == '_')) {
            (void)snprintf(rest, size, "%.*s", (int)(len > n ? len - n - 1 : 0), name);
            return &units[i];
        }
        if (strncmp(name, units[i].word, n) == 0 && name[n] == '_') {
            (void)snprintf(rest, size, "%s", name + n + 1);
            return &units[i];
        }
    }
    (void)snprintf(rest, size, "%s", name);
    return NULL;
}

/* "msg_size_kib": a size, and bytes of one. False: no size. */
static bool is_size(const char *name, double *ret_scale)
{
    static const char *const stems[] = {
        "size",       "msg_size",     "message_size",  "buffer_size", "tensor_size", "data_size",
        "input_size", "payload_size", "transfer_size", "msgsize",     "payload",     "message",
        "msg",        "bytes",        "nbytes",        "buffer"};
    static const struct {
        const char *unit;
        double scale;
    } scales[] = {{"", 1},          {"_b", 1},        {"_byte", 1},      {"_bytes", 1},
                  {"_in_bytes", 1}, {"_k", 1024},     {"_kb", 1024},     {"_kib", 1024},
                  {"_m", 1 << 20},  {"_mb", 1 << 20}, {"_mib", 1 << 20}, {"_g", 1 << 30},
                  {"_gb", 1 << 30}, {"_gib", 1 << 30}};
    for (size_t i = 0; i < sizeof(stems) / sizeof(stems[0]); i++) {
        size_t n = strlen(stems[i]);
        for (size_t k = 0; k < sizeof(scales) / sizeof(scales[0]); k++) {
            if (strncmp(name, stems[i], n) == 0 && strcmp(name + n, scales[k].unit) == 0) {
                *ret_scale = scales[k].scale;
                return true;
            }
        }
    }
    return false;
}

/* What compares the others: "speedup_vs_nccl", "delta_time". */
static bool is_comparison(const char *name)
{
    static const char *const words[] = {"delta", "diff",  "difference", "improvement", "speedup",
                                        "gain",  "ratio", "change",     "saving",      "winner",
                                        "best",  "vs",    "pct"};
    for (size_t n; *name != '\0'; name += n + (name[n] == '_')) {
        n = strcspn(name, "_");
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
            if (strlen(words[i]) == n && strncmp(name, words[i], n) == 0) {
                return true;
            }
        }
    }
    return false;
}

static void classify(struct column *c, const char *name)
{
    static const char *const sd_words[] = {"stdev", "stddev", "std", "sigma", "sd", NULL};
    const struct unit *u;
    *c = (struct column){.role = ROLE_UNKNOWN, .scale = 1};
    for (size_t i = 0; i < sizeof(column_rows) / sizeof(column_rows[0]); i++) {
        if (strcmp(name, column_rows[i].name) == 0) {
            c->role = column_rows[i].role;
        }
    }
    if (c->role == ROLE_UNKNOWN && is_size(name, &c->scale)) {
        c->role = ROLE_SIZE;
    }
    if (c->role == ROLE_UNKNOWN && is_comparison(name)) {
        c->role = ROLE_IGNORED;
    }
    u = unit_of(name, c->arm, sizeof(c->arm));
    if (u != NULL) {
        c->metric = u->metric;
        c->scale = c->role == ROLE_SIZE ? c->scale : u->scale;
    }
    for (size_t i = 0; sd_words[i] != NULL && c->role == ROLE_UNKNOWN; i++) {
        size_t n = strlen(sd_words[i]);
        if (strncmp(name, sd_words[i], n) == 0 && (name[n] == '\0' || name[n] == '_')) {
            c->role = ROLE_SD;
        }
    }
    if (c->role == ROLE_UNKNOWN && u != NULL) {
        c->role = ROLE_VALUE;
    }
}

static bool has(const struct layout *l, enum role role)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->col[i].role == role) {
            return true;
        }
    }
    return false;
}

static int layout_of(struct layout *l, const struct nt_csv *c, const char *name, struct nt_err *err)
{
    bool value[NT_METRIC_COUNT] = {false};
    *l = (struct layout){.n = c->n, .metric = NT_METRIC_COUNT};
    for (size_t i = 0; i < c->n; i++) {
        normal_name(l->name[i], sizeof(l->name[i]), c->cell[i]);
        classify(&l->col[i], l->name[i]);
    }
    if (!has(l, ROLE_SIZE)) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%s: the first row names no column of sizes (size_bytes)", name);
    }
    l->wide = !has(l, ROLE_ARM);
    for (size_t i = 0; i < l->n; i++) {
        struct column *col = &l->col[i];
        if (l->wide && col->role == ROLE_UNKNOWN) {
            col->role = ROLE_VALUE; /* an arm's name without a unit */
        }
        if (col->role == ROLE_VALUE) {
            value[col->metric] = true;
            if (col->arm[0] == '\0') {
                (void)snprintf(col->arm, sizeof(col->arm), "default");
            }
        }
    }
    for (int m = NT_METRIC_COUNT - 1; m >= 0; m--) {
        l->metric = value[m] ? (enum nt_metric)m : l->metric;
    }
    if (l->metric == NT_METRIC_COUNT) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%s: the first row names no column of times or bandwidths (time_us, "
                       "busbw_gbps)",
                       name);
    }
    return 0;
}

/* A file of another kind is refused by name, so that nobody reads rules as measurements. */
static int refuse_other_kinds(const char *name, const char *text, size_t len, struct nt_err *err)
{
    static const struct {
        const char *mark, *kind;
    } rows[] = {
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
static void joined(const struct layout *l, const struct nt_csv *c, bool arm, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < l->n && i < c->n; i++) {
        enum role role = l->col[i].role;
        bool wanted = arm ? role == ROLE_ARM : role == ROLE_GROUP || role == ROLE_RANKS;
        const char *tail = role == ROLE_RANKS ? " ranks" : "";
        const char *head = "";
        if (!wanted || missing(c->cell[i]) || strcmp(c->cell[i], "-1") == 0) {
            continue;
        }
        if (!arm && role == ROLE_GROUP && isdigit((unsigned char)c->cell[i][0])) {
            head = l->name[i]; /* a bare number needs its name */
        }
        n += (size_t)snprintf(out + n, size - n, "%s%s%s%.100s%s", n > 0 ? (arm ? "/" : ", ") : "",
                              head, head[0] != '\0' ? " " : "", c->cell[i], tail);
        if (n + 1 >= size) {
            return;
        }
    }
}

static void one_value(struct nt_table *t, const struct layout *l, const struct nt_csv *c, size_t i,
                      uint64_t bytes, struct nt_entry e)
{
    char group[256], arm[192];
    const struct column *col = &l->col[i];
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
    e.value *= unit == NT_METRIC_COUNT ? col->scale : 1; /* the cell's unit beats the name's */
    e.sd *= e.sd >= 0 ? col->scale : 1;
    joined(l, c, false, group, sizeof(group));
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

static void one_record(struct nt_table *t, const struct layout *l, const struct nt_csv *c)
{
    uint64_t bytes = 0, v = 0;
    double sd = 0;
    bool sized = false, value = false;
    enum nt_metric unit;
    struct nt_entry e = {.sd = -1, .repeats = 1, .round = NT_ROUND_UNKNOWN, .coll = -1, .mode = -1};
    for (size_t i = 0; i < l->n && i < c->n; i++) {
        const struct column *col = &l->col[i];
        if (col->role == ROLE_SIZE) {
            sized = size_of(c, c->cell[i], col->scale, &bytes);
        } else if (col->role == ROLE_SD && strcmp(c->cell[i], "0") == 0) {
            e.sd = 0;
        } else if (col->role == ROLE_SD && positive(c, c->cell[i], &sd, &unit)) {
            e.sd = sd;
        } else if (col->role == ROLE_COUNT && nt_parse_u64(c->cell[i], &v, NULL) == 0) {
            e.repeats = v < 1000000 ? (uint32_t)v : 1000000;
        } else if (col->role == ROLE_RANKS && nt_parse_u64(c->cell[i], &v, NULL) == 0 &&
                   v < 65536) {
            e.ranks = (uint32_t)v;
        } else if (strncmp(l->name[i], "coll", 4) == 0) {
            e.coll = (int8_t)nt_coll_of(c->cell[i]);
        } else if (strcmp(l->name[i], "mode") == 0) {
            e.mode = (int8_t)mode_of(c->cell[i]);
        } else if (col->role == ROLE_ROUND) {
            e.round = nt_parse_u64(c->cell[i], &v, NULL) == 0 && v < 1000000 ? (uint32_t)v : 0;
        }
    }
    if (!sized) {
        if (!is_rule(c)) {
            nt_imp_note(&t->notes, NT_IMP_BAD_CELL, c->line, "no size in this row");
        }
        return;
    }
    for (size_t i = 0; i < l->n && i < c->n && !(value && !l->wide); i++) {
        if (l->col[i].role == ROLE_VALUE && l->col[i].metric == l->metric) {
            one_value(t, l, c, i, bytes, e);
            value = true;
        }
    }
}

/* Whether the next record has a size: names that head no such column are a sentence's. */
static bool heads_rows(const struct nt_csv *at, const struct layout *l)
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
        uint64_t bytes;
        found = found ||
                (l->col[i].role == ROLE_SIZE && size_of(c, c->cell[i], l->col[i].scale, &bytes));
    }
    free(c);
    return found;
}

/* The first line that names the columns; above it, a text may stand. Without one the error is about
 * the first line. */
static int find_header(struct nt_csv *c, struct layout *l, const char *name, const char *text,
                       size_t len, struct nt_err *err)
{
    enum { LINES = 200 };
    size_t at = 0;
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
        rc = layout_of(l, c, name, first == 0 ? err : NULL);
        if (rc == 0 && (n == 0 || heads_rows(c, l))) {
            return 0;
        }
        first = first == 0 ? rc : first;
        at = eol != NULL ? (size_t)(eol - text) + 1 : len;
        line++;
    }
    return first != 0 ? first : nt_fail(err, NT_E_INVAL, 0, "%s: empty", name);
}

int nt_table_parse(const char *name, const char *text, size_t len, struct nt_table **ret,
                   struct nt_err *err)
{
    struct nt_csv *c = malloc(sizeof(*c));
    struct layout *l = malloc(sizeof(*l));
    struct nt_table *t = NULL;
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
    while (rc == 0 && nt_csv_next(c)) {
        if (c->n == 1 && l->n > 2 && (c->sep == '|' || c->sep == ' ')) {
            continue; /* text behind the table, frames */
        }
        if (c->truncated || (c->n != l->n && c->n > 1)) {
            nt_imp_note(&t->notes, NT_IMP_BAD_CELL, c->line,
                        "%zu cells where the first row has %zu", c->n, l->n);
        }
        one_record(t, l, c);
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
