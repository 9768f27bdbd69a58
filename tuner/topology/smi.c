/* `nvidia-smi topo -m`: from the matrices of a text (smi_text.c) to a topology. */
#include "tuner/topology/smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 4 << 20 };

static const struct nt_smi_row *find_row(const struct nt_smi_matrix *m, const char *name)
{
    for (int i = 0; i < m->nrows; i++) {
        if (strcmp(m->rows[i].name, name) == 0) {
            return &m->rows[i];
        }
    }
    return NULL;
}

/* Columns of a matrix that came without its header: GPUs as there are GPU rows. */
static int name_columns(struct nt_smi *r, struct nt_smi_matrix *m)
{
    int rc = 0;
    for (int i = 0; i < m->nrows && rc == 0; i++) {
        rc = nt_smi_add_column(r, m, m->rows[i].name, strlen(m->rows[i].name));
    }
    for (int i = m->ncols; m->nrows > 0 && i < m->rows[0].n && rc == 0; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "NIC%d", i - m->ngpus);
        rc = nt_smi_add_column(r, m, name, strlen(name));
    }
    return rc;
}

/* topo -p2p. */
static bool is_p2p(const struct nt_smi_matrix *m)
{
    for (int i = 0; i < m->nrows; i++) {
        for (int j = 0; j < m->rows[i].n; j++) {
            if (m->rows[i].cells[j].kind == NT_CELL_P2P) {
                return true;
            }
        }
    }
    return false;
}

static int check_matrix(const struct nt_smi_matrix *m, struct nt_err *err)
{
    bool p2p = is_p2p(m);

    for (int i = 0; i < m->ngpus; i++) {
        const struct nt_smi_row *row = find_row(m, m->cols[i]);
        if (row == NULL) {
            return nt_fail(err, NT_E_INVAL, 0, "line %u: cut off: %d GPU columns, but no row of %s",
                           m->line, m->ngpus, m->cols[i]);
        }
        if (row->n != m->ncols) {
            return nt_fail(err, NT_E_INVAL, 0, "line %u: cut off: row of %s has %d of %d cells",
                           m->line, row->name, row->n, m->ncols);
        }
        for (int j = 0; j < m->ncols; j++) {
            if (j != i && (row->cells[j].kind == NT_CELL_P2P) != p2p) {
                return nt_fail(err, NT_E_INVAL, 0,
                               "line %u: row of %s mixes path types and P2P words", m->line,
                               row->name);
            }
            if ((row->cells[j].kind == NT_CELL_SELF) != (j == i)) {
                return nt_fail(err, NT_E_INVAL, 0, "line %u: row of %s: X is not in its column",
                               m->line, row->name);
            }
        }
    }
    for (int i = 0; i < m->nrows; i++) {
        bool column = false;
        for (int j = 0; j < m->ncols && !column; j++) {
            column = strcmp(m->rows[i].name, m->cols[j]) == 0;
        }
        if (!column && strncmp(m->rows[i].name, "GPU", 3) == 0) {
            return nt_fail(err, NT_E_INVAL, 0, "line %u: a row of %s, but no column of it", m->line,
                           m->rows[i].name);
        }
    }
    return 0;
}

static enum nt_path farther(uint8_t a, uint8_t b)
{
    return (enum nt_path)(a > b ? a : b);
}

static void fill_wire(struct nt_model *m, const struct nt_smi_matrix *x)
{
    struct nt_topology *t = m->t;
    int d = t->ndevs, g = t->ngpus, odd = 0;

    memset(t->wire, NT_PATH_SYS, (size_t)d * (size_t)d);
    for (int i = 0; i < x->ncols; i++) {
        const struct nt_smi_row *row = find_row(x, x->cols[i]);
        for (int j = 0; row != NULL && j < row->n && j < d; j++) {
            t->wire[i * d + j] =
                row->cells[j].kind == NT_CELL_SELF ? NT_PATH_LOC : row->cells[j].value;
            if (i < g && j < g) {
                t->links[i * g + j] = row->cells[j].kind == NT_CELL_NV ? row->cells[j].links : 0;
            }
        }
        t->wire[i * d + i] = NT_PATH_LOC;
        for (int j = 0; (row == NULL || row->n < d) && j < g;
             j++) { /* the NIC's row is not there */
            t->wire[i * d + j] = t->wire[j * d + i];
        }
    }
    for (int i = 0; i < d; i++) {
        for (int j = 0; j < i; j++) {
            uint8_t *a = &t->wire[i * d + j], *b = &t->wire[j * d + i];
            odd += *a != *b;
            *a = *b = (uint8_t)farther(*a, *b);
        }
    }
    for (int i = 0; i < g; i++) {
        for (int j = 0; j < i; j++) {
            uint16_t *a = &t->links[i * g + j], *b = &t->links[j * g + i];
            if (*a != *b && *a > 0 && *b > 0) {
                nt_find(m, NT_F_NVLINK_ONE_WAY, true, "",
                        "%s lists %d NVLinks to %s, which lists %d back", x->cols[i], *a,
                        x->cols[j], *b);
            }
            *a = *b = *a < *b ? *a : *b;
        }
    }
    if (odd > 0) {
        nt_find(m, NT_F_NOTE, false, "",
                "%d cells differ from their mirror image: the farther is taken", odd);
    }
}

/* NUMA nodes: the column, or groups of equal CPU affinity where there are several; one affinity for
 * all may be what a container allows. */
static int fill_numa(struct nt_model *m, const struct nt_smi_matrix *x, struct nt_err *err)
{
    bool by_numa = true, by_cpu = false;

    for (int i = 0; i < x->ngpus; i++) {
        const struct nt_smi_row *row = find_row(x, x->cols[i]);
        by_numa = by_numa && row->numa >= 0;
        by_cpu = by_cpu || strcmp(row->affinity, find_row(x, x->cols[0])->affinity) != 0;
    }
    for (int i = 0; i < x->ngpus && (by_numa || by_cpu); i++) {
        const struct nt_smi_row *row = find_row(x, x->cols[i]);
        int c = 0;
        if (!by_numa && (row->affinity[0] == '\0' || row->affinity[0] == 'N')) {
            return 0;
        }
        for (; c < m->t->ncpus; c++) {
            const struct nt_topo_cpu *cpu = &m->t->cpus[c];
            if (by_numa ? cpu->numa == row->numa : strcmp(cpu->affinity, row->affinity) == 0) {
                break;
            }
        }
        if (c == m->t->ncpus) {
            struct nt_topo_cpu *cpu = nt_model_cpu(m, err);
            if (cpu == NULL || (cpu->affinity = strdup(row->affinity)) == NULL) {
                return cpu == NULL ? -(int)err->code : nt_fail(err, NT_E_NOMEM, 0, "topology");
            }
            cpu->numa = row->numa;
        }
        m->t->gpus[i].cpu = c;
    }
    m->numa_told = by_numa || by_cpu;
    return 0;
}

static void fill_p2p(struct nt_smi *r, struct nt_model *m, const struct nt_smi_matrix *x)
{
    struct nt_topology *t = m->t;
    for (int k = 0; k < r->n; k++) {
        const struct nt_smi_matrix *p = &r->matrices[k];
        if (!p->whole || !is_p2p(p) || p->ngpus != x->ngpus ||
            (p->p2p_of != 'r' && p->p2p_of != 'w')) {
            continue; /* n, a, p: NVLink, atomics, proprietary */
        }
        for (int i = 0; i < p->ngpus; i++) {
            const struct nt_smi_row *row = find_row(p, p->cols[i]);
            for (int j = 0; j < p->ngpus; j++) {
                uint8_t *s = &t->p2p[i * t->ngpus + j];
                if (*s == NT_P2P_UNKNOWN || *s == NT_P2P_OK) {
                    *s = i == j ? NT_P2P_OK : row->cells[j].value;
                }
            }
        }
        m->p2p_told = true;
    }
    for (int i = 0; i < t->ngpus * t->ngpus && m->p2p_told; i++) {
        m->p2p_told = t->p2p[i] != NT_P2P_UNKNOWN;
    }
}

static int fill_devices(struct nt_smi *r, struct nt_model *m, const struct nt_smi_matrix *x)
{
    for (int i = 0; i < x->ngpus; i++) {
        struct nt_topo_gpu *g = nt_model_gpu(m, r->err);
        if (g == NULL) {
            return -(int)r->err->code;
        }
        g->dev = (int)strtol(x->cols[i] + 3, NULL, 10);
    }
    for (int i = x->ngpus; i < x->ncols; i++) {
        struct nt_topo_net *n = nt_model_net(m, r->err);
        if (n == NULL) {
            return -(int)r->err->code;
        }
        (void)snprintf(n->name, sizeof(n->name), "%s", x->cols[i]);
        for (int k = 0; k < r->nlegend; k++) {
            if (strcmp(r->legend[k].short_name, x->cols[i]) == 0) {
                (void)snprintf(n->name, sizeof(n->name), "%s", r->legend[k].name);
            }
        }
    }
    return 0;
}

static int build(struct nt_smi *r, const struct nt_smi_matrix *x, int others,
                 struct nt_topology **ret)
{
    struct nt_model m;
    int rc = nt_model_new(&m, NT_TOPO_SMI, r->err);

    if (rc != 0) {
        return rc;
    }
    m.wires_told = m.nvlinks_told = true;
    m.nets_told = x->ncols > x->ngpus;
    rc = fill_devices(r, &m, x);
    if (rc == 0) {
        rc = nt_model_matrices(&m, r->err);
    }
    if (rc == 0) {
        fill_wire(&m, x);
        fill_p2p(r, &m, x);
        rc = fill_numa(&m, x, r->err);
    }
    if (rc == 0 && others > 0) {
        nt_find(&m, NT_F_NOTE, false, "", "the text holds %d more matri%s: the first is read",
                others, others == 1 ? "x" : "ces");
    }
    if (rc != 0) {
        nt_model_abort(&m);
        return rc;
    }
    return nt_model_finish(&m, ret, r->err);
}

/* Why a text without a matrix is none. */
static int refuse(const struct nt_smi *r, bool p2p, const char *text)
{
    char first[80];
    size_t skip = strspn(text, " \t\r\n");

    if (strstr(text, "ROCm System Management") != NULL || strstr(text, "LINK TYPE TABLE") != NULL ||
        strstr(text, "HOPS TABLE") != NULL) {
        return nt_fail(r->err, NT_E_INVAL, 0,
                       "the output of rocm-smi or amd-smi; the XML that RCCL writes with "
                       "NCCL_TOPO_DUMP_FILE is needed");
    }
    if (r->trouble[0] != '\0') {
        return nt_fail(r->err, NT_E_INVAL, 0, "an error message, not a topology: %s", r->trouble);
    }
    if (p2p) {
        return nt_fail(r->err, NT_E_INVAL, 0,
                       "only the matrix of nvidia-smi topo -p2p; `nvidia-smi topo -m` is needed");
    }
    if (r->table) {
        return nt_fail(r->err, NT_E_INVAL, 0,
                       "the table of plain nvidia-smi; `nvidia-smi topo -m` is needed");
    }
    nt_copy_text(first, sizeof(first), text + skip, strcspn(text + skip, "\r\n"));
    if (first[0] == '\0') {
        return nt_fail(r->err, NT_E_INVAL, 0, "an empty file, not a topology");
    }
    return nt_fail(r->err, NT_E_INVAL, 0,
                   "neither NCCL's topology XML nor `nvidia-smi topo -m`: begins with '%s'", first);
}

/* The first whole matrix of paths. A damaged one is an error only when there is no whole one. */
static int choose(struct nt_smi *r, const char *text, struct nt_topology **ret)
{
    const struct nt_smi_matrix *first = NULL;
    struct nt_err damage = {0}; /* the first */
    bool p2p = false;
    int others = 0, bad = 0;

    for (int i = 0; i < r->n; i++) {
        struct nt_smi_matrix *m = &r->matrices[i];
        int rc = m->ncols == 0 ? name_columns(r, m) : 0;

        if (rc != 0) {
            return rc;
        }
        if (m->nrows == 0 && m->ncols < 2) {
            continue; /* a line that only looked like a header */
        }
        rc = check_matrix(m, bad == 0 ? &damage : NULL);
        bad = bad == 0 ? rc : bad;
        m->whole = rc == 0;
        p2p = p2p || is_p2p(m);
        if (rc == 0 && !is_p2p(m) && m->ngpus > 0) {
            others += first != NULL;
            first = first != NULL ? first : m;
        }
    }
    if (first == NULL && bad != 0 && r->trouble[0] == '\0') {
        *r->err = damage;
        return bad;
    }
    return first == NULL ? refuse(r, p2p, text) : build(r, first, others, ret);
}

int nt_topology_read_smi(const char *text, size_t len, struct nt_topology **ret, struct nt_err *err)
{
    struct nt_err spare;
    struct nt_smi *r;
    char *copy;
    int rc;

    err = err != NULL ? err : &spare;
    if (len > MAX_BYTES) {
        return nt_fail(err, NT_E_INVAL, 0, "larger than %d bytes", MAX_BYTES);
    }
    if (memchr(text, '\0', len) != NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "not a text file");
    }
    r = calloc(1, sizeof(*r));
    copy = malloc(len + 1);
    if (r == NULL || copy == NULL) {
        free(r);
        free(copy);
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    r->err = err;
    rc = nt_smi_scan(r, copy, len);
    if (rc == 0) {
        rc = choose(r, copy, ret);
    }
    nt_smi_done(r);
    free(r);
    free(copy);
    return rc;
}
