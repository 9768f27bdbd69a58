/*
 * Matrices of `nvidia-smi topo` as people paste them: tabs or blanks, colour codes, prompts,
 * quotes, fences, Markdown bars, glued headers, rows wrapped by the terminal, inside longer
 * reports; with other matrices (second host, topo -p2p) behind it.
 *
 * A line is a row when a device name is followed by matrix words, and a header when it names GPUs
 * and no matrix words. Everything else is not ours.
 */
#include "tuner/topology/smi.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1200 };

struct token {
    const char *p;
    size_t n;
};

/* ---- words ---- */

static const struct {
    const char *word;
    struct nt_smi_cell cell;
} words[] = {
    {"X", {NT_CELL_SELF, 0, 0}},
    {"PIX", {NT_CELL_PATH, NT_PATH_PIX, 0}},
    {"PXB", {NT_CELL_PATH, NT_PATH_PXB, 0}},
    {"PHB", {NT_CELL_PATH, NT_PATH_PHB, 0}},
    {"NODE", {NT_CELL_PATH, NT_PATH_PHB, 0}}, /* NCCL knows no difference */
    {"SYS", {NT_CELL_PATH, NT_PATH_SYS, 0}},
    {"SOC", {NT_CELL_PATH, NT_PATH_SYS, 0}}, /* before driver 384 */
    {"C2C", {NT_CELL_PATH, NT_PATH_C2C, 0}},
    {"OK", {NT_CELL_P2P, NT_P2P_OK, 0}},
    {"CNS", {NT_CELL_P2P, NT_P2P_CHIPSET, 0}},
    {"GNS", {NT_CELL_P2P, NT_P2P_GPU, 0}},
    {"TNS", {NT_CELL_P2P, NT_P2P_TOPOLOGY, 0}},
    {"DR", {NT_CELL_P2P, NT_P2P_DISABLED, 0}},
    {"NS", {NT_CELL_P2P, NT_P2P_OFF, 0}},
    {"U", {NT_CELL_P2P, NT_P2P_UNKNOWN, 0}},
};

/* The matrix word at the start of p: its length, 0 when there is none. */
static size_t word_at(const char *p, size_t n, struct nt_smi_cell *ret)
{
    size_t best = 0;

    if (n >= 3 && p[0] == 'N' && p[1] == 'V' && isdigit((unsigned char)p[2])) {
        unsigned v = 0;
        size_t i = 2;
        for (; i < n && i < 6 && isdigit((unsigned char)p[i]); i++) {
            v = v * 10 + (unsigned)(p[i] - '0');
        }
        *ret = (struct nt_smi_cell){NT_CELL_NV, NT_PATH_NVL, (uint16_t)v};
        return i;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t len = strlen(words[i].word);
        if (len > best && len <= n && memcmp(p, words[i].word, len) == 0) {
            best = len;
            *ret = words[i].cell;
        }
    }
    return best;
}

/* A token that is nothing but matrix words ("PIX", "NV4NV4"): how many, written to cells; 0 if not.
 */
static int words_of(struct token t, struct nt_smi_cell *cells, int room)
{
    int k = 0;
    while (t.n > 0) {
        struct nt_smi_cell c;
        size_t len = word_at(t.p, t.n, &c);
        if (len == 0) {
            return 0;
        }
        if (k < room) {
            cells[k] = c;
        }
        k++;
        t.p += len;
        t.n -= len;
    }
    return k <= room ? k : 0;
}

/* "GPU12" at p: its length, 0 when it is none. */
static size_t gpu_at(const char *p, size_t n)
{
    size_t i = 3;
    if (n < 4 || memcmp(p, "GPU", 3) != 0 || !isdigit((unsigned char)p[3])) {
        return 0;
    }
    while (i < n && i < 7 && isdigit((unsigned char)p[i])) {
        i++;
    }
    return i;
}

/* Names that are glued in a header without blanks can be told apart when they end in digits. */
static size_t name_at(const char *p, size_t n)
{
    static const char *const stems[] = {"NIC", "mlx5_bond_", "mlx5_", "mlx4_"};
    size_t g = gpu_at(p, n);

    for (size_t i = 0; i < sizeof(stems) / sizeof(stems[0]) && g == 0; i++) {
        size_t len = strlen(stems[i]);
        if (n > len && memcmp(p, stems[i], len) == 0 && isdigit((unsigned char)p[len])) {
            while (len < n && isdigit((unsigned char)p[len])) {
                len++;
            }
            g = len;
        }
    }
    return g;
}

/* ---- lines ---- */

/* A comma of a CSV between two cells; those of a list of CPUs ("0-13,28-41") have digits on both
 * sides, those of a sentence a blank behind them (as " X " has). */
static bool parts_cells(const char *p, size_t n, size_t i)
{
    size_t next = i + 1;
    while (next + 1 < n && p[next] == ' ' && p[next + 1] == ' ') {
        next++;
    }
    return p[i] == ',' && next < n &&
           (p[next] != ' ' ||
            (next + 1 < n && p[next + 1] == 'X' && (next + 2 >= n || p[next + 2] == ' '))) &&
           !(i > 0 && isdigit((unsigned char)p[i - 1]) && isdigit((unsigned char)p[next]));
}

/* Copies a line with what is no text taken out: colour codes (the escape may be lost), carriage
 * returns, no-break spaces, Markdown bars, a CSV's commas. */
static size_t clean(char *out, const char *p, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\x1b' ||
            (p[i] == '[' && i + 1 < n && (isdigit((unsigned char)p[i + 1]) || p[i + 1] == 'm'))) {
            size_t j = i + (p[i] == '\x1b');
            j += j < n && p[j] == '[';
            while (j < n && (isdigit((unsigned char)p[j]) || p[j] == ';')) {
                j++;
            }
            if (j < n && (p[j] == 'm' || p[i] == '\x1b')) {
                i = j;
                continue;
            }
        }
        if ((unsigned char)p[i] == 0xc2 && i + 1 < n && (unsigned char)p[i + 1] == 0xa0) {
            out[k++] = ' ';
            i++;
        } else if (p[i] == '|' || p[i] == '\r' || parts_cells(p, n, i)) {
            out[k++] = ' ';
        } else {
            out[k++] = p[i];
        }
    }
    out[k] = '\0';
    return k;
}

static int tokens_of(const char *line, struct token *t, int room)
{
    int k = 0;
    while (*line != '\0' && k < room) {
        size_t n = strspn(line, " \t\v\f");
        line += n;
        n = strcspn(line, " \t\v\f");
        if (n > 0) {
            t[k++] = (struct token){line, n};
        }
        line += n;
    }
    return k;
}

static struct nt_smi_matrix *current(struct nt_smi *r)
{
    return r->n > 0 ? &r->matrices[r->n - 1] : NULL;
}

static int out_of_memory(struct nt_smi *r)
{
    return nt_fail(r->err, NT_E_NOMEM, 0, "topology");
}

/* NULL with *err filled when there are too many. */
static struct nt_smi_matrix *add_matrix(struct nt_smi *r)
{
    struct nt_smi_matrix *m;
    if (r->n == r->cap) {
        int cap = r->cap == 0 ? 4 : r->cap * 2;
        m = cap > 4096 ? NULL : realloc(r->matrices, (size_t)cap * sizeof(*m));
        if (m == NULL) {
            (void)(cap > 4096 ? nt_fail(r->err, NT_E_INVAL, 0, "too many matrices")
                              : out_of_memory(r));
            return NULL;
        }
        r->matrices = m;
        r->cap = cap;
    }
    nt_assert(r->matrices != NULL);
    m = &r->matrices[r->n++];
    *m = (struct nt_smi_matrix){.p2p_of = r->p2p_of, .line = r->line};
    r->p2p_of = 'r';
    return m;
}

int nt_smi_add_column(struct nt_smi *r, struct nt_smi_matrix *m, const char *p, size_t n)
{
    char(*cols)[NT_SMI_NAME];
    if (m->ncols >= NT_SMI_COLS) {
        return nt_fail(r->err, NT_E_INVAL, 0, "line %u: more than %d columns", r->line,
                       NT_SMI_COLS);
    }
    cols = realloc(m->cols, ((size_t)m->ncols + 1) * sizeof(*cols));
    if (cols == NULL) {
        return out_of_memory(r);
    }
    m->cols = cols;
    nt_copy_text(cols[m->ncols], NT_SMI_NAME, p, n);
    if (gpu_at(p, n) == n && m->ncols == m->ngpus) {
        m->ngpus++;
    }
    m->ncols++;
    return 0;
}

/* Column names of one header token, glued or not. */
static int add_columns(struct nt_smi *r, struct nt_smi_matrix *m, struct token t)
{
    size_t len = 0, at = 0;
    int rc = 0;

    if (t.n == strlen("Affinity") && memcmp(t.p, "Affinity", t.n) == 0) {
        return 0; /* of "CPU Affinity", wrapped between the two */
    }

    for (size_t k; at < t.n && (k = name_at(t.p + at, t.n - at)) > 0; at += k) {
        len++;
    }
    if (at < t.n || len < 2) {
        return nt_smi_add_column(r, m, t.p, t.n);
    }
    for (at = 0; at < t.n && rc == 0;) {
        size_t k = name_at(t.p + at, t.n - at);
        rc = nt_smi_add_column(r, m, t.p + at, k);
        at += k;
    }
    return rc;
}

/* Where the affinity columns begin in a header. */
static char *affinity_part(char *line)
{
    char *cpu = strstr(line, "CPU Aff"), *numa = strstr(line, "NUMA Aff");
    cpu = cpu == NULL ? strstr(line, "CPU") : cpu;
    return cpu == NULL || (numa != NULL && numa < cpu) ? numa : cpu;
}

/* The token that a header's names start with, behind prefixes of logs and quotes; -1: no header. A
 * sentence about a GPU is none. rest: where the affinity columns begin, NULL when there are none.
 */
static int header_start(const struct token *t, int n, const char *rest)
{
    for (int i = 0; i < n && i < 8 && (rest == NULL || t[i].p < rest); i++) {
        size_t len = rest != NULL && t[i].p + t[i].n > rest ? (size_t)(rest - t[i].p) : t[i].n;
        size_t at = 0;
        if (gpu_at(t[i].p, len) == 0) {
            continue;
        }
        for (size_t k; at < len && (k = name_at(t[i].p + at, len - at)) > 0;) {
            at += k;
        }
        if (at < len || (rest == NULL && i + 1 < n && name_at(t[i + 1].p, t[i + 1].n) == 0)) {
            return -1;
        }
        return i;
    }
    return -1;
}

/* A header, or the rest of one that the terminal wrapped. */
static int on_header(struct nt_smi *r, char *from, char *rest, bool more)
{
    struct token t[MAX_TOKENS];
    struct nt_smi_matrix *m = more ? current(r) : add_matrix(r);
    int n, rc = 0;

    if (m == NULL) {
        return -(int)r->err->code;
    }
    m->last_line = r->line;
    if (rest != NULL) {
        m->numa_column = m->numa_column || strstr(rest, "NUMA Aff") != NULL;
        *rest = '\0';
    }
    if (more && m->affinity) {
        return 0; /* "CPU Affi", "nity": broken inside the last columns */
    }
    m->affinity = rest != NULL;
    n = tokens_of(from, t, MAX_TOKENS);
    for (int i = 0; i < n && rc == 0; i++) {
        rc = add_columns(r, m, t[i]);
    }
    return rc;
}

static bool is_column(const struct nt_smi_matrix *m, struct token t)
{
    for (int i = 0; m != NULL && i < m->ncols; i++) {
        if (strlen(m->cols[i]) == t.n && memcmp(m->cols[i], t.p, t.n) == 0) {
            return true;
        }
    }
    return false;
}

/* The rest of a header that the terminal wrapped: on the next line, before any row. */
static bool wrapped_header(const struct nt_smi *r, const struct nt_smi_matrix *m,
                           struct token first, const char *rest)
{
    return m != NULL && m->nrows == 0 && m->ncols > 0 && r->line == m->last_line + 1 &&
           !is_column(m, first) && (rest != NULL || name_at(first.p, first.n) > 0);
}

/* The name of a column at the end of a token whose beginning is a log's prefix. */
static struct token behind_prefix(const struct nt_smi_matrix *m, struct token t)
{
    for (int i = 0; m != NULL && i < m->ncols; i++) {
        size_t n = strlen(m->cols[i]);
        if (n < t.n && memcmp(t.p + t.n - n, m->cols[i], n) == 0 &&
            strchr(":>])}", t.p[t.n - n - 1]) != NULL) {
            return (struct token){t.p + t.n - n, n};
        }
    }
    while (t.n > 0 && gpu_at(t.p, t.n) != t.n) {
        t.p++;
        t.n--;
    }
    return t;
}

/* The device name that a row starts with, behind log prefixes ("[1,0]<stdout>:GPU0"). Returns the
 * index of its token, -1 when the line is no row. */
static int row_name(const struct nt_smi_matrix *m, const struct token *t, int n, struct token *ret)
{
    for (int i = 0; i + 1 < n && i < 8; i++) {
        struct nt_smi_cell c[NT_SMI_COLS];
        struct token name = t[i];
        name = is_column(m, name) ? name : behind_prefix(m, name);
        if (name.n > 0 && words_of(t[i + 1], c, NT_SMI_COLS) > 0) {
            *ret = name;
            return i;
        }
    }
    return -1;
}

/* The number in the NUMA column, second behind the cells: by tabs where there are tabs, since
 * fields may be empty. after: the end of the last cell. */
static int numa_of(const char *after, const struct token *rest, int nrest)
{
    char *end, text[NT_SMI_NAME] = "";
    const char *tab = strchr(after, '\t');
    long v;

    if (tab != NULL) {
        tab = strchr(tab + 1, '\t');
        if (tab != NULL) {
            size_t skip = strspn(tab + 1, " ");
            nt_copy_text(text, sizeof(text), tab + 1 + skip, strcspn(tab + 1 + skip, " \t"));
        }
    } else if (nrest >= 2) {
        int i = 1;
        while (i + 1 < nrest && rest[i - 1].p[rest[i - 1].n - 1] == ',') {
            i++; /* "0-13, 28-41" */
        }
        nt_copy_text(text, sizeof(text), rest[i].p, rest[i].n);
    }
    v = strtol(text, &end, 10);
    return end == text || *end != '\0' || v < 0 || v > 4096 ? -1 : (int)v;
}

static struct nt_smi_row *add_row(struct nt_smi_matrix *m, struct token name)
{
    struct nt_smi_row *row;
    if (m->nrows == m->row_cap) {
        int cap = m->row_cap == 0 ? 16 : m->row_cap * 2;
        row = realloc(m->rows, (size_t)cap * sizeof(*row));
        if (row == NULL) {
            return NULL;
        }
        m->rows = row;
        m->row_cap = cap;
    }
    row = &m->rows[m->nrows];
    *row = (struct nt_smi_row){.numa = -1};
    row->cells = malloc(NT_SMI_COLS * sizeof(*row->cells));
    if (row->cells == NULL) {
        return NULL;
    }
    nt_copy_text(row->name, sizeof(row->name), name.p, name.n);
    m->nrows++;
    return row;
}

/* Cells from the tokens on; what follows them are the affinity columns. */
static void fill_row(struct nt_smi_matrix *m, struct nt_smi_row *row, const struct token *t, int n)
{
    int i = 0;
    for (; i < n; i++) {
        int k = words_of(t[i], row->cells + row->n, NT_SMI_COLS - row->n);
        if (k == 0 || (m->ncols > 0 && row->n + k > m->ncols)) {
            break;
        }
        row->n += k;
    }
    if (i < n && row->affinity[0] == '\0') {
        nt_copy_text(row->affinity, sizeof(row->affinity), t[i].p, t[i].n);
        if (m->numa_column) {
            row->numa = numa_of(i > 0 ? t[i - 1].p + t[i - 1].n : t[0].p, t + i, n - i);
        }
    }
}

static bool has_row(const struct nt_smi_matrix *m, struct token name)
{
    for (int i = 0; i < m->nrows; i++) {
        if (strlen(m->rows[i].name) == name.n && memcmp(m->rows[i].name, name.p, name.n) == 0) {
            return true;
        }
    }
    return false;
}

static int on_row(struct nt_smi *r, const struct token *t, int n, int at, struct token name)
{
    struct nt_smi_matrix *m = current(r);
    struct nt_smi_row *row;

    if (m == NULL || has_row(m, name)) { /* rows without their header */
        m = add_matrix(r);
        if (m == NULL) {
            return -(int)r->err->code;
        }
    }
    if (m->nrows >= NT_SMI_COLS) {
        return nt_fail(r->err, NT_E_INVAL, 0, "line %u: more than %d rows", r->line, NT_SMI_COLS);
    }
    row = add_row(m, name);
    if (row == NULL) {
        return out_of_memory(r);
    }
    fill_row(m, row, t + at + 1, n - at - 1);
    return 0;
}

/* "NIC0: mlx5_2" */
static void on_legend(struct nt_smi *r, const struct token *t)
{
    size_t n = t[0].n - 1;
    if (r->nlegend < NT_MAX_NETS && n < sizeof(r->legend[0].short_name)) {
        nt_copy_text(r->legend[r->nlegend].short_name, sizeof(r->legend[0].short_name), t[0].p, n);
        nt_copy_text(r->legend[r->nlegend].name, NT_SMI_NAME, t[1].p, t[1].n);
        r->nlegend++;
    }
}

/* Messages that stand where a matrix should. */
static void look_for_trouble(struct nt_smi *r, const char *line)
{
    static const char *const marks[] = {"command not found",
                                        "No such file",
                                        "not recognized",
                                        "NVIDIA-SMI has failed",
                                        "Failed to initialize NVML",
                                        "No devices were found",
                                        "Unable to determine",
                                        "couldn't communicate",
                                        "Insufficient",
                                        "rror:",
                                        "ERROR"};
    if (strstr(line, "| NVIDIA-SMI") != NULL || strstr(line, "NVIDIA-SMI 4") != NULL ||
        strstr(line, "NVIDIA-SMI 5") != NULL || strstr(line, "NVIDIA-SMI 6") != NULL) {
        r->table = true;
    }
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]) && r->trouble[0] == '\0'; i++) {
        if (strstr(line, marks[i]) != NULL) {
            size_t skip = strspn(line, " \t");
            nt_copy_text(r->trouble, sizeof(r->trouble), line + skip, strlen(line + skip));
        }
    }
}

static int on_line(struct nt_smi *r, char *line)
{
    struct token t[MAX_TOKENS], name;
    struct nt_smi_cell c[NT_SMI_COLS];
    struct nt_smi_matrix *m = current(r);
    const char *p2p = strstr(line, "-p2p");
    char *rest = affinity_part(line);
    int n = tokens_of(line, t, MAX_TOKENS), at;
    struct nt_smi_row *last = m != NULL && m->nrows > 0 ? &m->rows[m->nrows - 1] : NULL;

    look_for_trouble(r, line);
    if (p2p != NULL) {
        p2p += strlen("-p2p") + strspn(p2p + strlen("-p2p"), " ");
        r->p2p_of = *p2p != '\0' ? *p2p : 'r';
    }
    at = row_name(m, t, n, &name);
    if (at >= 0) {
        return on_row(r, t, n, at, name);
    }
    if (n == 2 && t[0].n > 1 && t[0].p[t[0].n - 1] == ':' && memcmp(t[0].p, "NIC", 3) == 0) {
        on_legend(r, t);
        return 0;
    }
    if (n > 0 && last != NULL && last->n < m->ncols && words_of(t[0], c, NT_SMI_COLS) > 0 &&
        !(n > 1 && t[1].p[0] == '=')) {
        fill_row(m, last, t, n); /* wrapped by the terminal */
        return 0;
    }
    if (n > 0 && wrapped_header(r, m, t[0], rest)) {
        return on_header(r, line, rest, true);
    }
    at = header_start(t, n, rest);
    return at < 0 ? 0 : on_header(r, line + (t[at].p - line), rest, false);
}

void nt_smi_done(struct nt_smi *r)
{
    for (int i = 0; i < r->n; i++) {
        for (int j = 0; j < r->matrices[i].nrows; j++) {
            free(r->matrices[i].rows[j].cells);
        }
        free(r->matrices[i].rows);
        free(r->matrices[i].cols);
    }
    free(r->matrices);
}

int nt_smi_scan(struct nt_smi *r, const char *text, size_t len)
{
    char *line = malloc(len + 1);
    int rc = 0;

    if (line == NULL) {
        return out_of_memory(r);
    }
    r->p2p_of = 'r';
    for (size_t at = 0; at < len && rc == 0;) {
        size_t n = strcspn(text + at, "\n");
        r->line++;
        (void)clean(line, text + at, n);
        rc = on_line(r, line);
        at += n + 1;
    }
    free(line);
    return rc;
}
