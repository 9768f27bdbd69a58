/*
 * The text output of nccl-tests and rccl-tests. Columns are those that the table's own header
 * names; without one they are taken from the row. A row is printed in pieces, so log lines of NCCL
 * may stand between or inside them: what has begun as a row is completed by following lines of bare
 * numbers.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/vocab.h"
#include "tuner/base/text.h"
#include "tuner/import/internal.h"
#include "tuner/import/line.h"

enum { MAX_WIDTH = 12, MAX_VALUES = 2 * MAX_WIDTH, ROW_PREFIX_WORDS = 6 };

/* What a value may be; the rest of a table's columns are passed over. */
enum value { TIME, ALGBW, BUSBW, WRONG, ITER_MIN, ITER_MAX, ITER_P99, ITER_CV, VALUES };
static const struct {
    const char *word;
    enum value value;
} value_rows[] = {{"time", TIME},      {"cputime", TIME},   {"algbw", ALGBW},
                  {"busbw", BUSBW},    {"#wrong", WRONG},   {"wrong", WRONG},
                  {"error", WRONG},    {"res", WRONG},      {"i_min", ITER_MIN},
                  {"i_max", ITER_MAX}, {"i_p99", ITER_P99}, {"i_cv%", ITER_CV}};

struct columns {
    unsigned bodies, width; /* 1 or 2 placements of so many values */
    int8_t at[VALUES];      /* place of each in a body, -1: not there */
    int op, root;           /* 1: there is such a column, 0: there is none, -1: not known */
    bool header, error;     /* error: the old rounding column instead of #wrong */
    bool typeless;          /* rows without a type, as mscclpp-test prints them: one body of two */
    unsigned first;         /* placement of the first body, enum nt_place */
    double to_us;           /* of times: 2017's are milliseconds */
};

struct reader {
    struct nt_imp_file *f;
    size_t run;  /* index of the current run + 1; 0: none */
    bool failed; /* the current run reported a failure */
    uint32_t line_no;
    struct columns cols;
    unsigned first; /* of the columns that follow: the line above their names tells */
    uint32_t first_line;
    struct {
        bool active, split, stars[MAX_VALUES], second_only;
        size_t row, prefix;   /* prefix: words before the size */
        double v[MAX_VALUES]; /* NAN: N/A */
        bool integer[MAX_VALUES];
        unsigned n;
    } open;
};

static const struct columns no_header = {
    .bodies = 2, .width = 4, .at = {0, 1, 2, 3, -1, -1, -1, -1}, .op = -1, .root = -1, .to_us = 1};

static struct nt_imp_run *current(struct reader *rd)
{
    if (rd->run == 0 && nt_imp_add_run(rd->f, rd->line_no) != NULL) {
        rd->run = rd->f->nruns;
    }
    return rd->run > 0 ? &rd->f->runs[rd->run - 1] : NULL;
}

/* A line that only stands at the beginning of a run. */
static struct nt_imp_run *begin(struct reader *rd)
{
    const struct nt_imp_run *r = rd->run > 0 ? &rd->f->runs[rd->run - 1] : NULL;
    if (r != NULL && (r->nrows > 0 || r->summary || rd->failed)) {
        rd->run = 0;
        rd->failed = false;
        rd->cols = no_header;
    }
    return current(rd);
}

static bool is_type(const struct nt_line *l, size_t i)
{
    static const char *const types[] = {
        "float",   "half",    "double",   "bfloat16", "int8",       "uint8",        "char",
        "int",     "int32",   "uint32",   "int64",    "uint64",     "f8e4m3",       "f8e5m2",
        "fp8_e4",  "fp8_e5",  "fp8_e4m3", "fp8_e5m2", "float8e4m3", "float8e5m2",   "rccl_float8",
        "float16", "float32", "float64",  "fp8e4m3",  "fp8e5m2",    "rccl_bfloat8", NULL};
    for (size_t k = 0; types[k] != NULL; k++) {
        if (nt_line_is(l, i, types[k])) {
            return true;
        }
    }
    return false;
}

static bool is_op(const struct nt_line *l, size_t i)
{
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg", "none", "mulsum", NULL};
    for (size_t k = 0; ops[k] != NULL; k++) {
        if (nt_line_is(l, i, ops[k])) {
            return true;
        }
    }
    return false;
}

/* The value of that kind in the body that begins at `from`; NAN: there is none. */
static double value_at(const struct reader *rd, unsigned from, enum value kind)
{
    int at = (int)rd->cols.at[kind]; /* -1: no such column */
    return at >= 0 && from + (unsigned)at < rd->open.n ? rd->open.v[from + (unsigned)at] : NAN;
}

static void fill_cell(const struct reader *rd, unsigned from, struct nt_imp_cell *c)
{
    double time = value_at(rd, from, TIME), wrong = value_at(rd, from, WRONG);
    double algbw = value_at(rd, from, ALGBW), busbw = value_at(rd, from, BUSBW);
    c->have = isfinite(time) && time > 0;
    c->time_us = c->have ? time * rd->cols.to_us : 0;
    c->algbw = isfinite(algbw) ? algbw : 0;
    c->busbw = isfinite(busbw) ? busbw : 0;
    if (isfinite(wrong)) {
        unsigned at = from + (unsigned)rd->cols.at[WRONG];
        bool count = rd->cols.header ? !rd->cols.error : rd->open.integer[at];
        if (count && wrong >= 0) {
            c->wrong = wrong < 9e18 ? (int64_t)(wrong + 0.5) : INT64_MAX;
        } else if (!count) {
            c->error = wrong;
            c->wrong = rd->open.stars[at] ? 1 : -1;
        }
    }
    c->min_us = value_at(rd, from, ITER_MIN);
    c->max_us = value_at(rd, from, ITER_MAX);
    c->p99_us = value_at(rd, from, ITER_P99);
    c->cv_pct = value_at(rd, from, ITER_CV);
}

static void close_row(struct reader *rd)
{
    struct nt_imp_run *r = rd->open.active ? current(rd) : NULL;
    struct nt_imp_row *row;
    unsigned bodies = rd->open.second_only ? 1 : rd->cols.bodies, first = rd->cols.first;
    unsigned least = rd->cols.typeless ? 3 : 4;
    if (r == NULL || rd->open.row >= r->nrows) {
        rd->open.active = false;
        return;
    }
    rd->open.active = false;
    row = &r->rows[rd->open.row];
    for (unsigned b = 0; b < bodies; b++) {
        unsigned from = b * rd->cols.width;
        unsigned needed = rd->cols.width < least ? rd->cols.width : least;
        if (rd->open.n >= from + needed) {
            fill_cell(rd, from, &row->place[first ^ (rd->open.second_only ? 1 : b)]);
        }
    }
    if (rd->open.n < rd->cols.width * bodies && !(rd->cols.typeless && rd->open.n >= least)) {
        nt_imp_note(&rd->f->notes, NT_IMP_CUT_ROW, row->line, "size %llu: %u of %u values",
                    (unsigned long long)row->bytes, rd->open.n, rd->cols.width * bodies);
    } else if (rd->open.split) {
        nt_imp_note(&rd->f->notes, NT_IMP_SPLIT_ROW, row->line,
                    "size %llu: put together around log lines", (unsigned long long)row->bytes);
    }
}

/* Appends word i to the open row; false when it is no value of a row. */
static bool add_value(struct reader *rd, const struct nt_line *l, size_t i)
{
    struct nt_line one = {.n = 1};
    double v = NAN;
    unsigned n = rd->open.n;
    if (n >= rd->cols.width * rd->cols.bodies || n >= MAX_VALUES) {
        return false;
    }
    if (!nt_line_is(l, i, "N/A") && !nt_line_double(l, i, &v)) {
        if (l->len[i] < 2 || l->word[i][l->len[i] - 1] != '*') {
            return false;
        }
        one.word[0] = l->word[i];
        one.len[0] = l->len[i] - 1;
        if (!nt_line_double(&one, 0, &v)) {
            return false;
        }
        rd->open.stars[n] = true;
    }
    rd->open.integer[n] = memchr(l->word[i], '.', l->len[i]) == NULL &&
                          memchr(l->word[i], ',', l->len[i]) == NULL &&
                          (memchr(l->word[i], 'e', l->len[i]) == NULL || v >= 1);
    rd->open.v[n] = v;
    rd->open.n++;
    return true;
}

/* The count of wrong elements that a log line is glued to: "0[0] host:1:2 [0] NCCL INFO". */
static void add_glued(struct reader *rd, const struct nt_line *l, size_t i)
{
    struct nt_line one = {.n = 1};
    if (i >= l->n || strstr(l->word[i], "NCCL ") == NULL) {
        return;
    }
    one.word[0] = l->word[i];
    one.len[0] = strncmp(l->word[i], "N/A", 3) == 0 ? 3 : strspn(l->word[i], "0123456789");
    if (one.len[0] > 0 && one.len[0] < l->len[i] && strchr(".:", l->word[i][one.len[0]]) == NULL) {
        (void)add_value(rd, &one, 0);
    }
}

/* The number that word i begins with: log text may be glued to the last column printed. */
static bool leading_int(const struct nt_line *l, size_t i, int32_t *ret, bool *ret_glued)
{
    struct nt_line one = {.n = 1};
    size_t n = 0;
    int64_t v = 0;
    if (i >= l->n) {
        return false;
    }
    n += l->word[i][0] == '-';
    while (n < l->len[i] && isdigit((unsigned char)l->word[i][n])) {
        n++;
    }
    *ret_glued = n < l->len[i];
    if (*ret_glued && (l->word[i][n] == '.' || l->word[i][n] == 'e')) {
        return false; /* a time */
    }
    one.word[0] = l->word[i];
    one.len[0] = n;
    if (n == 0 || !nt_line_i64(&one, 0, &v) || v < -1 || v > NT_IMP_MAX_RANKS) {
        return false;
    }
    *ret = (int32_t)v;
    return true;
}

/* Whether the integer at word i is the root: without a header what remains must fill whole bodies.
 */
static bool root_here(const struct reader *rd, const struct nt_line *l, size_t i)
{
    size_t values = 0;
    double v;
    if (rd->cols.root >= 0) {
        return rd->cols.root == 1;
    }
    for (size_t k = i; k < l->n; k++) {
        values += nt_line_double(l, k, &v) || nt_line_is(l, k, "N/A");
    }
    return values % 4 == 1 || nt_line_is(l, i, "-1");
}

/* The word that a row begins with: size, count and type, behind prefixes. l->n: the line is no
 * row. */
static size_t row_head(const struct nt_line *l, bool typeless, uint64_t *bytes, uint64_t *count)
{
    size_t i = 0;
    double time;
    while (i + 2 < l->n &&
           !(nt_line_count(l, i, bytes) && nt_line_count(l, i + 1, count) &&
             (is_type(l, i + 2) || (typeless && nt_line_double(l, i + 2, &time))))) {
        if (i++ == ROW_PREFIX_WORDS || l->word[i - 1][0] == '#') {
            return l->n;
        }
    }
    return i + 2 < l->n && *bytes <= (UINT64_C(1) << 50) ? i : l->n;
}

static bool row(struct reader *rd, const struct nt_line *l)
{
    uint64_t bytes = 0, count = 0;
    size_t i = row_head(l, rd->cols.typeless, &bytes, &count), head = i;
    struct nt_imp_run *r;
    struct nt_imp_row *row;
    bool glued = false;
    if (i == l->n) {
        return false;
    }
    close_row(rd);
    r = current(rd);
    if (r != NULL && r->summary) { /* rows after a footer: a run whose header is not here */
        rd->run = 0;
        r = current(rd);
    }
    row = r != NULL ? nt_imp_add_row(rd->f, r, rd->line_no) : NULL;
    if (row == NULL) {
        return true;
    }
    row->bytes = bytes;
    row->count = count;
    if (!rd->cols.typeless) {
        nt_imp_copy(row->dtype, sizeof(row->dtype), l->word[i + 2], l->len[i + 2]);
    }
    i += rd->cols.typeless ? 2 : 3;
    if (is_op(l, i)) {
        nt_imp_copy(row->op, sizeof(row->op), l->word[i], l->len[i]);
        i++;
    }
    memset(&rd->open, 0, sizeof(rd->open));
    rd->open.active = true;
    rd->open.row = r->nrows - 1;
    rd->open.prefix = head;
    if (root_here(rd, l, i) && leading_int(l, i, &row->root, &glued)) {
        i++;
    }
    /* An out-of-place half that is left blank: the values stand far to the right. */
    rd->open.second_only = rd->cols.bodies == 2 && i > 0 && i < l->n &&
                           l->word[i] - (l->word[i - 1] + l->len[i - 1]) > 25;
    while (!glued && i < l->n && add_value(rd, l, i)) {
        i++;
    }
    if (!glued) {
        add_glued(rd, l, i);
    }
    if (rd->open.n == rd->cols.width * rd->cols.bodies) {
        close_row(rd);
    }
    return true;
}

static bool is_value(const struct nt_line *l, size_t i)
{
    double v;
    return nt_line_double(l, i, &v) || nt_line_is(l, i, "N/A");
}

/* Bare numbers that complete a row. Before them may stand what stood before the row, or a pod's or
 * rank's name with a colon; behind them places and dates, or a log line glued to the last one. */
static bool continues(struct reader *rd, const struct nt_line *l)
{
    size_t i = 0, k;
    if (!rd->open.active) {
        return false;
    }
    while (i < l->n && !is_value(l, i) &&
           (i < rd->open.prefix || (i < 2 && l->word[i][l->len[i] - 1] == ':'))) {
        i++;
    }
    for (k = i; k < l->n && is_value(l, k);) {
        k++;
    }
    if (k == i) {
        return false;
    }
    for (size_t m = k; m < l->n && strstr(l->word[k], "NCCL ") == NULL; m++) {
        if (!is_value(l, m) && memchr(l->word[m], ':', l->len[m]) == NULL &&
            memchr(l->word[m], '-', l->len[m]) == NULL) {
            return false;
        }
    }
    while (i < k && add_value(rd, l, i)) {
        i++;
    }
    add_glued(rd, l, i);
    rd->open.split = true;
    if (rd->open.n == rd->cols.width * rd->cols.bodies) {
        close_row(rd);
    }
    return true;
}

/* Whether word i names that column; its unit may be glued to it: "time(us)". */
static bool is_name(const struct nt_line *l, size_t i, const char *name)
{
    const char *unit = memchr(l->word[i], '(', l->len[i]);
    size_t n = unit != NULL ? (size_t)(unit - l->word[i]) : l->len[i];
    return strlen(name) == n && strncmp(l->word[i], name, n) == 0;
}

/* The place of word i among the values of the first body; bodies are counted by their times. */
static void header_value(struct columns *c, const struct nt_line *l, size_t i)
{
    int kind = -1;
    for (size_t k = 0; k < sizeof(value_rows) / sizeof(value_rows[0]); k++) {
        kind = is_name(l, i, value_rows[k].word) ? (int)value_rows[k].value : kind;
    }
    c->bodies += kind == TIME;
    if (c->bodies != 1 || nt_line_is(l, i, "timestamp")) {
        return;
    }
    if (kind >= 0) {
        c->at[kind] = c->width < MAX_WIDTH ? (int8_t)c->width : (int8_t)-1;
    }
    c->width++;
}

static bool header(struct reader *rd, const struct nt_line *l)
{
    struct columns c = {.header = true,
                        .typeless = true,
                        .first = rd->line_no - rd->first_line <= 2 ? rd->first : NT_OUT_OF_PLACE,
                        .to_us = 1,
                        .at = {-1, -1, -1, -1, -1, -1, -1, -1}};
    bool size = false, cpu = false, bytes = false, res = false;
    for (size_t i = 0; i < l->n; i++) {
        size = size || is_name(l, i, "size");
        bytes = bytes || is_name(l, i, "bytes");
        res = res || is_name(l, i, "res");
        cpu = cpu || is_name(l, i, "cputime");
        c.typeless = c.typeless && !is_name(l, i, "type");
        c.op = c.op || is_name(l, i, "redop") || is_name(l, i, "op");
        c.root = c.root || is_name(l, i, "root");
        c.error = c.error || is_name(l, i, "error") || is_name(l, i, "res");
        header_value(&c, l, i);
    }
    if (bytes && res && !size) { /* the layout before 2019 */
        size = true;
        c.to_us = 1e3;
    }
    if (!size || c.bodies == 0 || c.bodies > 2 || c.width > MAX_WIDTH || c.at[ALGBW] < 0 ||
        c.at[BUSBW] < 0) {
        return false;
    }
    rd->cols = c;
    if (current(rd) != NULL) {
        current(rd)->per_iter = c.at[ITER_MIN] >= 0;
        current(rd)->cpu_time = current(rd)->cpu_time || cpu;
    }
    return true;
}

/* "out-of-place   in-place": whose the columns are that the next line names. */
static void placements(struct reader *rd, const struct nt_line *l)
{
    int first = -1;
    for (size_t i = 0; i < l->n; i++) {
        bool in = nt_line_is(l, i, "in-place"), out = nt_line_is(l, i, "out-of-place");
        if (first < 0 && (in || out)) {
            first = in ? NT_IN_PLACE : NT_OUT_OF_PLACE;
        } else if (first >= 0 && !in && !out && strchr("(+bp", l->word[i][0]) == NULL) {
            return; /* a sentence about them */
        }
    }
    if (first >= 0) {
        rd->first = (unsigned)first;
        rd->first_line = rd->line_no;
    }
}

static bool rank_line(struct reader *rd, const struct nt_line *l)
{
    size_t k = 0;
    uint64_t v = 0;
    struct nt_imp_run *r;
    struct nt_imp_rank *rank;
    while (k < l->n && !nt_line_is(l, k, "Rank")) {
        k++;
    }
    if (k + 6 >= l->n || !nt_line_u64(l, k + 1, &v) || v >= NT_IMP_MAX_RANKS ||
        (strstr(l->text, " Pid ") == NULL && strstr(l->text, " device ") == NULL)) {
        return false;
    }
    r = begin(rd);
    rank = r != NULL ? nt_imp_add_rank(r) : NULL;
    if (rank == NULL) {
        return true;
    }
    rank->rank = (uint32_t)v;
    rank->device = -1;
    for (size_t i = k + 2; i + 1 < l->n; i++) {
        if (nt_line_is(l, i, "Pid") && nt_line_u64(l, i + 1, &v)) {
            rank->pid = (uint32_t)v;
        } else if (nt_line_is(l, i, "on") && rank->host[0] == '\0') {
            nt_imp_copy(rank->host, sizeof(rank->host), l->word[i + 1], l->len[i + 1]);
        } else if (nt_line_is(l, i, "device") && nt_line_u64(l, i + 1, &v)) {
            rank->device = (int32_t)v;
            if (i + 2 < l->n && l->word[i + 2][0] == '[' && l->len[i + 2] > 2) {
                nt_imp_copy(rank->bus, sizeof(rank->bus), l->word[i + 2] + 1, l->len[i + 2] - 2);
            }
            if (i + 3 < l->n) {
                nt_imp_copy(rank->gpu, sizeof(rank->gpu), l->word[i + 3], strlen(l->word[i + 3]));
            }
            break;
        }
    }
    return true;
}

/* "2.23.4" at p; 0 when it is none. NCCL's own code: thousands before 2.9, ten thousands since. */
static uint32_t version_code(const char *p)
{
    uint32_t part[3] = {0};
    size_t n = 0;
    while (n < 3 && isdigit((unsigned char)*p)) {
        while (isdigit((unsigned char)*p) && part[n] < 1000) {
            part[n] = part[n] * 10 + (uint32_t)(*p++ - '0');
        }
        n++;
        if (*p != '.') {
            break;
        }
        p++;
    }
    if (n < 2) {
        return 0;
    }
    return part[0] > 2 || part[1] > 8 ? part[0] * 10000 + part[1] * 100 + part[2]
                                      : part[0] * 1000 + part[1] * 100 + part[2];
}

static bool library(struct reader *rd, const struct nt_line *l)
{
    const char *p = strstr(l->text, "CCL version");
    struct nt_imp_run *r;
    uint64_t v = 0;
    if (nt_line_after_u64(l, "ccl-library=", &v) && (r = current(rd)) != NULL) {
        r->library_version = v < 1000000 ? (uint32_t)v : 0;
        (void)snprintf(r->library, sizeof(r->library), "%s",
                       strstr(l->text, "rccl-library=") != NULL ? "RCCL" : "NCCL");
    }
    if (p == NULL || p == l->text || (p[-1] != 'N' && p[-1] != 'R') || (r = current(rd)) == NULL) {
        return false;
    }
    (void)snprintf(r->library, sizeof(r->library), "%cCCL", p[-1]);
    p += strlen("CCL version");
    p += strspn(p, " :");
    if (version_code(p) != 0) {
        r->library_version = version_code(p);
        nt_imp_copy(r->library_text, sizeof(r->library_text), p, strcspn(p, " "));
    }
    return true;
}

static bool parameters(struct reader *rd, const struct nt_line *l)
{
    uint64_t v = 0;
    struct nt_imp_run *r;
    if (strstr(l->text, "nThread ") == NULL || strstr(l->text, "minBytes ") == NULL) {
        return false;
    }
    r = begin(rd);
    if (r == NULL) {
        return true;
    }
    r->headers++;
#define FIELD(key, member, type)                                                                   \
    if (nt_line_after_u64(l, key, &v)) {                                                           \
        r->member = (type)(v > UINT32_MAX && sizeof(type) == 4 ? 0 : v);                           \
    }
    FIELD("nThread ", threads, uint32_t)
    FIELD("nGpus ", gpus, uint32_t)
    FIELD("minBytes ", min_bytes, uint64_t)
    FIELD("maxBytes ", max_bytes, uint64_t)
    FIELD("warmup iters:", warmup, uint32_t)
    FIELD("agg iters:", agg, uint32_t)
    FIELD("graph:", graph, uint32_t)
#undef FIELD
    if (nt_line_after_u64(l, "validation:", &v)) {
        r->checked = v != 0;
    }
    for (size_t i = 1; i + 1 < l->n; i++) { /* " iters:" also ends the names of two others */
        if (nt_line_is(l, i, "iters:") && !nt_line_is(l, i - 1, "warmup") &&
            !nt_line_is(l, i - 1, "agg") && nt_line_u64(l, i + 1, &v) && v <= UINT32_MAX) {
            r->iters = (uint32_t)v;
        }
    }
    return true;
}

static bool tool(struct reader *rd, const struct nt_line *l)
{
    static const char *const names[] = {"nccl-tests", "rccl-tests"};
    for (size_t i = 0; i < 2; i++) {
        const char *p = strstr(l->text, names[i]);
        struct nt_imp_run *r;
        if (p == NULL ||
            (strncmp(p + 10, " version ", 9) != 0 && strncmp(p + 10, ": Version", 9) != 0)) {
            continue;
        }
        r = strncmp(p + 10, " version ", 9) == 0 ? begin(rd) : current(rd);
        if (r != NULL) {
            (void)snprintf(r->tool, sizeof(r->tool), "%s", names[i]);
            p += strlen("nccl-tests version");
            p += strspn(p, " ");
            nt_imp_copy(r->tool_version, sizeof(r->tool_version), p, strcspn(p, " "));
            (void)library(rd, l);
        }
        return true;
    }
    return false;
}

static bool summary(struct reader *rd, const struct nt_line *l)
{
    const char *oob = strstr(l->text, "Out of bounds values"),
               *avg = strstr(l->text, "Avg bus bandwidth");
    const char *p = oob != NULL ? oob : avg;
    struct nt_imp_run *r;
    uint64_t v = 0;
    if (p == NULL || (p = strchr(p, ':')) == NULL) {
        return false;
    }
    close_row(rd);
    r = current(rd);
    if (r != NULL && r->summary && (oob != NULL ? r->out_of_bounds >= 0 : !isnan(r->avg_busbw))) {
        rd->run = 0;
        r = current(rd);
    }
    if (r == NULL) {
        return true;
    }
    r->summary = true;
    p += strspn(p, ": ~");
    if (avg != NULL) {
        double bw = NAN;
        bool number = nt_parse_local(p, strspn(p, "0123456789.,e+-"), true, &bw);
        r->avg_busbw = number ? bw : NAN;
        return true;
    }
    r->out_of_bounds = nt_line_after_u64(l, "Out of bounds values : ", &v) && v < INT64_MAX
                           ? (int64_t)v
                           : (strstr(p, "FAILED") != NULL ? 1 : 0);
    if (strstr(p, "FAILED") != NULL) {
        r->out_of_bounds = r->out_of_bounds > 0 ? r->out_of_bounds : 1;
        nt_imp_note(&rd->f->notes, NT_IMP_WRONG_DATA, rd->line_no,
                    "the program's own verdict: %lld values out of bounds, FAILED",
                    (long long)r->out_of_bounds);
    }
    return true;
}

static void failures(struct reader *rd, const struct nt_line *l)
{
    static const char *const marks[] = {"Test NCCL failure",
                                        "Test CUDA failure",
                                        "Test failure",
                                        "Test timeout",
                                        "Segmentation fault",
                                        "SIGFPE",
                                        "Floating point exception",
                                        "Out of memory",
                                        "out of memory",
                                        "Killed",
                                        "CANCELLED AT",
                                        "MPI_ABORT was invoked",
                                        NULL};
    for (size_t i = 0; marks[i] != NULL; i++) {
        if (strstr(l->text, marks[i]) != NULL) {
            char text[200];
            nt_imp_copy(text, sizeof(text), l->text, strlen(l->text));
            if (!rd->failed) {
                nt_imp_note(&rd->f->notes, NT_IMP_RUN_FAILED, rd->line_no, "%s", text);
            }
            rd->failed = rd->run > 0;
            return;
        }
    }
}

/* What log lines and command lines say beside the table: variables, the program. */
static void context(struct reader *rd, const struct nt_line *l)
{
    const char *set = strstr(l->text, " set by environment to ");
    struct nt_imp_run *r = current(rd);
    char program[24];
    for (size_t i = 0; r != NULL && r->summary && i < l->n; i++) {
        if (nt_imp_collective(l->word[i], l->len[i], program, sizeof(program))) {
            rd->run = 0; /* the next launch line */
            r = current(rd);
        }
    }
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (r->collective[0] == '\0') {
            (void)nt_imp_collective(l->word[i], l->len[i], r->collective, sizeof(r->collective));
        }
        if (memchr(l->word[i], '=', l->len[i]) != NULL && !r->summary) {
            (void)nt_imp_add_env(r, l->word[i], l->len[i]);
        }
        if (set != NULL && l->word[i] + l->len[i] == set) {
            char text[600];
            int n = snprintf(text, sizeof(text), "%.*s=%s", (int)l->len[i], l->word[i],
                             set + strlen(" set by environment to "));
            n -= n > 0 && text[n < (int)sizeof(text) ? n - 1 : 0] == '.';
            (void)nt_imp_add_env(r, text, n > 0 && n < (int)sizeof(text) ? (size_t)n : 0);
        }
    }
}

static void one_line(struct reader *rd, const struct nt_line *l)
{
    uint64_t v = 0;
    const char *p;
    bool log = strstr(l->text, "NCCL INFO") != NULL || strstr(l->text, "NCCL WARN") != NULL;
    if (l->n == 0 || row(rd, l) || continues(rd, l)) {
        return;
    }
    if (log) { /* may stand inside an open row */
        (void)library(rd, l);
        context(rd, l);
        return;
    }
    placements(rd, l);
    if (header(rd, l) || summary(rd, l) || parameters(rd, l) || tool(rd, l) || rank_line(rd, l) ||
        library(rd, l)) {
        return;
    }
    p = strstr(l->text, "Collective test starting:");
    if (p != NULL && begin(rd) != NULL) {
        current(rd)->collective[0] = '\0';
        p += strlen("Collective test starting:");
        p += strspn(p, " ");
        (void)nt_imp_collective(p, strcspn(p, " "), current(rd)->collective,
                                sizeof(current(rd)->collective));
    } else if (nt_line_after_u64(l, "Reducing maxBytes to ", &v) && current(rd) != NULL) {
        current(rd)->max_bytes = v;
    } else if (strstr(l->text, "Blocking Enabled") != NULL && current(rd) != NULL) {
        current(rd)->blocking = 1;
    } else if (strstr(l->text, "Collective test concluded") == NULL) {
        failures(rd, l);
        context(rd, l);
    }
}

/* The line at `at` without its end; its length with it is what *ret_next is away. */
static size_t line_at(const char *text, size_t len, size_t at, size_t *ret_next)
{
    const char *end = memchr(text + at, '\n', len - at);
    size_t n = end != NULL ? (size_t)(end - (text + at)) : len - at;
    *ret_next = at + n + 1;
    return n - (n > 0 && text[at + n - 1] == '\r');
}

/* The width at which something broke the lines of this text, in the midst of words; 0: nothing
 * did. Then no line is longer, and several are just as long. */
static size_t wrap_width(const char *text, size_t len)
{
    enum { LEAST = 60, MOST = 300, LINES = 3 };
    size_t width = 0, lines = 0;
    for (size_t at = 0, next; at < len; at = next) {
        size_t n = line_at(text, len, at, &next);
        lines = n > width ? 1 : lines + (n == width);
        width = n > width ? n : width;
    }
    return width >= LEAST && width <= MOST && lines >= LINES ? width : 0;
}

/* Whether `next` is what a broken line goes on with: behind a row bare numbers, behind a comment
 * anything that is neither a comment nor a row. */
static bool is_rest(const struct nt_line *l, const struct nt_line *next, bool typeless)
{
    uint64_t bytes = 0, count = 0;
    bool is_row = row_head(l, typeless, &bytes, &count) < l->n;
    if (l->n == 0 || next->n == 0 || next->word[0][0] == '#' ||
        row_head(next, typeless, &bytes, &count) < next->n) {
        return false;
    }
    for (size_t i = 0; is_row && i < next->n; i++) {
        if (strspn(next->word[i], "0123456789.,eE+-*N/A") < next->len[i]) {
            return false;
        }
    }
    return is_row || l->word[0][0] == '#';
}

/* Reads the line at `at` together with the pieces that were broken off it. Returns the place of the
 * next line. */
static size_t whole_line(struct nt_line *l, const char *text, size_t len, size_t at, size_t width,
                         bool typeless, uint32_t *lines)
{
    char joined[NT_LINE_MAX];
    struct nt_line next;
    size_t following, n = line_at(text, len, at, &following), used = n, after;
    nt_line_split(l, text + at, n);
    *lines = 1;
    while (n == width && width > 0 && following < len) {
        n = line_at(text, len, following, &after);
        nt_line_split(&next, text + following, n);
        if (!is_rest(l, &next, typeless) || used + n > sizeof(joined)) {
            break;
        }
        if (*lines == 1) {
            memcpy(joined, text + at, used);
        }
        memcpy(joined + used, text + following, n);
        used += n;
        nt_line_split(l, joined, used);
        following = after;
        (*lines)++;
    }
    return following;
}

int nt_imp_parse_text(struct nt_imp_file *f, const char *text, size_t len, struct nt_err *err)
{
    struct reader rd = {.f = f, .cols = no_header};
    struct nt_line l;
    size_t at = len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    size_t width = wrap_width(text, len);
    uint32_t lines = 1;
    (void)err;
    for (rd.line_no = 1; at < len; rd.line_no += lines) {
        at = whole_line(&l, text, len, at, width, rd.cols.typeless, &lines);
        one_line(&rd, &l);
    }
    close_row(&rd);
    return 0;
}
