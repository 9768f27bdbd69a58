/* The columns of a table of measurements, by the names that people give them. */
#include "tuner/import/columns.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    enum nt_role role;
} column_rows[] = {
    {"collective", NT_ROLE_GROUP},
    {"coll", NT_ROLE_GROUP},
    {"gpus", NT_ROLE_GROUP},
    {"gpu", NT_ROLE_GROUP},
    {"machine", NT_ROLE_GROUP},
    {"hardware", NT_ROLE_GROUP},
    {"arch", NT_ROLE_GROUP},
    {"dtype", NT_ROLE_GROUP},
    {"type", NT_ROLE_GROUP},
    {"op", NT_ROLE_GROUP},
    {"redop", NT_ROLE_GROUP},
    {"mode", NT_ROLE_GROUP},
    {"operation", NT_ROLE_GROUP},
    {"pattern", NT_ROLE_GROUP},
    {"nodes", NT_ROLE_GROUP},
    {"nnodes", NT_ROLE_GROUP},
    {"pipeops", NT_ROLE_GROUP},
    {"regbuff", NT_ROLE_GROUP},
    {"graph", NT_ROLE_GROUP},
    {"placement", NT_ROLE_GROUP},
    {"test", NT_ROLE_GROUP},
    {"ranks", NT_ROLE_RANKS},
    {"n", NT_ROLE_RANKS},
    {"nranks", NT_ROLE_RANKS},
    {"world_size", NT_ROLE_RANKS},
    {"tp", NT_ROLE_RANKS},
    {"ws", NT_ROLE_RANKS},
    {"ngpus", NT_ROLE_RANKS},
    {"num_gpus", NT_ROLE_RANKS},
    {"gpu_count", NT_ROLE_RANKS},
    {"num_ranks", NT_ROLE_RANKS},
    {"world", NT_ROLE_RANKS},
    {"backend", NT_ROLE_ARM},
    {"impl", NT_ROLE_ARM},
    {"implementation", NT_ROLE_ARM},
    {"method", NT_ROLE_ARM},
    {"arm", NT_ROLE_ARM},
    {"setting", NT_ROLE_ARM},
    {"settings", NT_ROLE_ARM},
    {"config", NT_ROLE_ARM},
    {"variant", NT_ROLE_ARM},
    {"provider", NT_ROLE_ARM},
    {"label", NT_ROLE_ARM},
    {"kernel", NT_ROLE_ARM},
    {"layout", NT_ROLE_ARM},
    {"library", NT_ROLE_ARM},
    {"algorithm", NT_ROLE_ARM},
    {"algo", NT_ROLE_ARM},
    {"protocol", NT_ROLE_ARM},
    {"proto", NT_ROLE_ARM},
    {"channels", NT_ROLE_ARM},
    {"nchannels", NT_ROLE_ARM},
    {"version", NT_ROLE_ARM},
    {"nccl_version", NT_ROLE_ARM},
    {"topology", NT_ROLE_ARM},
    {"communicator", NT_ROLE_ARM},
    {"name", NT_ROLE_ARM},
    {"repeat", NT_ROLE_ROUND},
    {"rep", NT_ROLE_ROUND},
    {"run", NT_ROLE_ROUND},
    {"trial", NT_ROLE_ROUND},
    {"cycle", NT_ROLE_ROUND},
    {"round", NT_ROLE_ROUND},
    {"seed", NT_ROLE_ROUND},
    {"repeats", NT_ROLE_COUNT},
    {"reps", NT_ROLE_COUNT},
    {"samples", NT_ROLE_COUNT},
    {"n_repeats", NT_ROLE_COUNT},
    {"count", NT_ROLE_COUNT},
    {"source", NT_ROLE_IGNORED},
    {"notes", NT_ROLE_IGNORED},
    {"note", NT_ROLE_IGNORED},
    {"comment", NT_ROLE_IGNORED},
    {"url", NT_ROLE_IGNORED},
    {"ref", NT_ROLE_IGNORED},
    {"algo_picked", NT_ROLE_IGNORED},
    {"cost_metric", NT_ROLE_IGNORED},
    {"speedup", NT_ROLE_IGNORED},
    {"ratio", NT_ROLE_IGNORED},
    {"winner", NT_ROLE_IGNORED},
    {"best", NT_ROLE_IGNORED},
    {"table", NT_ROLE_IGNORED},
    {"date", NT_ROLE_IGNORED},
    {"iters", NT_ROLE_IGNORED},
    {"warmup", NT_ROLE_IGNORED},
    {"iterations", NT_ROLE_IGNORED},
    {"wrong", NT_ROLE_IGNORED},
    {"elements", NT_ROLE_IGNORED},
    {"numel", NT_ROLE_IGNORED},
    {"min_us", NT_ROLE_IGNORED},
    {"max_us", NT_ROLE_IGNORED},
    {"p99_us", NT_ROLE_IGNORED},
    {"p95_us", NT_ROLE_IGNORED},
    {"delta_pct", NT_ROLE_IGNORED},
    {"diff_pct", NT_ROLE_IGNORED},
    {"gain_pct", NT_ROLE_IGNORED},
    {"rank", NT_ROLE_IGNORED},
    {"", NT_ROLE_IGNORED},
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
        "size",       "msg_size",   "message_size", "buffer_size",   "tensor_size",
        "data_size",  "input_size", "payload_size", "transfer_size", "msgsize",
        "payload_sz", "msg_sz",     "sz",           "payload",       "message",
        "msg",        "bytes",      "nbytes",       "buffer"};
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

static void classify(struct nt_column *c, const char *name)
{
    static const char *const sd_words[] = {"stdev", "stddev", "std", "sigma", "sd", NULL};
    const struct unit *u;
    *c = (struct nt_column){.role = NT_ROLE_UNKNOWN, .scale = 1};
    for (size_t i = 0; i < sizeof(column_rows) / sizeof(column_rows[0]); i++) {
        if (strcmp(name, column_rows[i].name) == 0) {
            c->role = column_rows[i].role;
        }
    }
    if (c->role == NT_ROLE_UNKNOWN && is_size(name, &c->scale)) {
        c->role = NT_ROLE_SIZE;
    }
    if (c->role == NT_ROLE_UNKNOWN && is_comparison(name)) {
        c->role = NT_ROLE_IGNORED;
    }
    u = unit_of(name, c->arm, sizeof(c->arm));
    c->unit = u != NULL && u->word[strlen(u->word) - 1] == 's'; /* "time" alone says none */
    if (u != NULL) {
        c->metric = u->metric;
        c->scale = c->role == NT_ROLE_SIZE ? c->scale : u->scale;
    }
    for (size_t i = 0; sd_words[i] != NULL && c->role == NT_ROLE_UNKNOWN; i++) {
        size_t n = strlen(sd_words[i]);
        if (strncmp(name, sd_words[i], n) == 0 && (name[n] == '\0' || name[n] == '_')) {
            c->role = NT_ROLE_SD;
        }
    }
    if (c->role == NT_ROLE_UNKNOWN && u != NULL) {
        c->role = NT_ROLE_VALUE;
    }
}

bool nt_columns_have(const struct nt_layout *l, enum nt_role role)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->col[i].role == role) {
            return true;
        }
    }
    return false;
}

int nt_columns_read(struct nt_layout *l, const struct nt_csv *c, const char *name,
                    struct nt_err *err)
{
    bool value[NT_METRIC_COUNT] = {false};
    *l = (struct nt_layout){.n = c->n, .metric = NT_METRIC_COUNT, .part = 1};
    for (size_t i = 0; i < c->n; i++) {
        normal_name(l->name[i], sizeof(l->name[i]), c->cell[i]);
        classify(&l->col[i], l->name[i]);
    }
    if (!nt_columns_have(l, NT_ROLE_SIZE)) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%s: the first row names no column of sizes (size_bytes)", name);
    }
    l->wide = !nt_columns_have(l, NT_ROLE_ARM);
    for (size_t i = 0; i < l->n; i++) {
        struct nt_column *col = &l->col[i];
        if (l->wide && col->role == NT_ROLE_UNKNOWN) {
            col->role = NT_ROLE_VALUE; /* an arm's name without a unit */
        }
        if (col->role == NT_ROLE_VALUE) {
            l->unit = l->unit || col->unit;
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
