/* Runs of nccl-tests laid side by side, and why some of them cannot be. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "schema/vocab.h"
#include "tuner/import/internal.h"
#include "tuner/import/table_build.h"

enum { MAX_RUNS_NOTED = 64 };

char *nt_label_of_file(const char *path, char *out, size_t size)
{
    static const char *const words[] = {"repeat", "rep",  "run",   "trial", "try",
                                        "round",  "iter", "cycle", NULL};
    static const char *const endings[] = {".txt", ".log", ".out", ".json", ".csv", ".stdout", NULL};
    const char *base = strrchr(path, '/');
    size_t n, digits, w;
    base = base != NULL ? base + 1 : path;
    nt_imp_copy(out, size, base, strlen(base));
    n = strlen(out);
    for (size_t i = 0; endings[i] != NULL; i++) {
        w = strlen(endings[i]);
        if (n > w && strcasecmp(out + n - w, endings[i]) == 0) {
            out[n -= w] = '\0';
        }
    }
    digits = n;
    while (digits > 0 && isdigit((unsigned char)out[digits - 1])) {
        digits--;
    }
    for (size_t i = 0; digits < n && words[i] != NULL; i++) {
        w = strlen(words[i]);
        if (digits > w + 1 && strncasecmp(out + digits - w, words[i], w) == 0 &&
            strchr("-_.", out[digits - w - 1]) != NULL) {
            out[digits - w - 1] = '\0';
            break;
        }
    }
    return out;
}

/* What must be equal before two runs may be compared, as words; "" where nothing was said. */
struct aspects {
    char ranks[32], shape[96], version[80], machine[80], graph[32];
};

static void aspects_of(const struct nt_imp_run *r, struct aspects *a)
{
    memset(a, 0, sizeof(*a));
    if (r->world > 0) {
        (void)snprintf(a->ranks, sizeof(a->ranks), "%u ranks", r->world);
    }
    (void)nt_imp_shape(r, a->shape, sizeof(a->shape));
    if (r->library_version > 0) {
        (void)snprintf(a->version, sizeof(a->version), "%s %u", r->library, r->library_version);
    }
    if (r->nranks > 0) {
        (void)snprintf(a->machine, sizeof(a->machine), "%s", r->ranks[0].gpu);
    }
    if (r->graph > 0 || r->blocking > 0) {
        (void)snprintf(a->graph, sizeof(a->graph), "%s%s", r->graph > 0 ? "graph" : "",
                       r->blocking > 0 ? " blocking" : "");
    }
}

static void group_of(const struct nt_imp_run *r, const struct nt_imp_row *row,
                     const struct nt_compare_opts *o, char *out, size_t size)
{
    struct aspects a;
    aspects_of(r, &a);
    (void)snprintf(out, size, "%s %s %s%s, %s",
                   r->collective[0] != '\0' ? r->collective : "collective not said", row->dtype,
                   row->op, o->place == 1 ? " in place" : "",
                   a.ranks[0] != '\0' ? a.ranks : "ranks not said");
    if (!o->across) {
        size_t n = strlen(out);
        (void)snprintf(out + n, size - n, ", %s%s%s%s%s", a.shape, a.version[0] != '\0' ? ", " : "",
                       a.version, a.machine[0] != '\0' ? ", " : "", a.machine);
    }
    if (a.graph[0] != '\0') {
        size_t n = strlen(out);
        (void)snprintf(out + n, size - n, ", %s", a.graph);
    }
}

/* Why two runs are not compared; false when nothing stands against it. */
static bool differ(const struct nt_imp_run *x, const struct nt_imp_run *y, char *out, size_t size)
{
    struct aspects a, b;
    const struct {
        const char *what, *x, *y;
    } rows[] = {{"ranks", a.ranks, b.ranks},
                {"launch shape", a.shape, b.shape},
                {"version", a.version, b.version},
                {"GPU", a.machine, b.machine},
                {"mode", a.graph, b.graph}};
    size_t n = 0;
    aspects_of(x, &a);
    aspects_of(y, &b);
    out[0] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].x, rows[i].y) != 0 && n + 1 < size) {
            n +=
                (size_t)snprintf(out + n, size - n, "%s%s (%.60s against %.60s)", n > 0 ? ", " : "",
                                 rows[i].what, rows[i].x[0] != '\0' ? rows[i].x : "not said",
                                 rows[i].y[0] != '\0' ? rows[i].y : "not said");
        }
    }
    return n > 0;
}

struct run_of {
    const struct nt_imp_file *file;
    const struct nt_imp_run *run;
};

static void note_differences(struct nt_table *t, const struct run_of *runs, size_t n, bool across)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            char why[300];
            if (strcmp(runs[i].run->collective, runs[k].run->collective) == 0 &&
                differ(runs[k].run, runs[i].run, why, sizeof(why))) {
                nt_imp_note(&t->notes, NT_IMP_NOT_COMPARED, 0, "%s and %s %s: %s differ%s",
                            runs[k].file->name, runs[i].file->name,
                            across ? "are compared although they should not be"
                                   : "are not compared",
                            why, strchr(why, ',') == NULL ? "s" : "");
                break; /* one reason a run is enough */
            }
        }
    }
}

int nt_coll_of(const char *word)
{
    for (int c = 0; nt_coll_names[c] != NULL; c++) {
        const char *a = word, *b = nt_coll_names[c];
        while (*a != '\0' || *b != '\0') { /* underscores, dashes and case do not count */
            a += strspn(a, "_- ");
            b += strspn(b, "_- ");
            if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) {
                break;
            }
            a += *a != '\0';
            b += *b != '\0';
        }
        if (*a == '\0' && *b == '\0') {
            return c;
        }
    }
    return -1;
}

/* Back-to-back calls are the mode "stream"; with a barrier after each they are single calls. */
int nt_imp_mode(const struct nt_imp_run *r)
{
    return r->graph > 0 ? NT_GRAPH : r->blocking > 0 ? NT_EAGER : NT_STREAM;
}

static uint32_t add_run(struct nt_table *t, const struct nt_imp_run *r, const char *label,
                        uint32_t round, const struct nt_compare_opts *o)
{
    uint32_t cycles = 0;
    for (size_t i = 0; i < r->nrows; i++) {
        const struct nt_imp_row *row = &r->rows[i];
        const struct nt_imp_cell *c = &row->place[o->place];
        struct nt_entry e = {.bytes = row->bytes,
                             .value = c->time_us,
                             .sd = -1,
                             .repeats = 1,
                             .line = row->line,
                             .round = round + row->cycle,
                             .ranks = r->world,
                             .coll = (int8_t)nt_coll_of(r->collective),
                             .mode = (int8_t)nt_imp_mode(r)};
        char group[400];
        cycles = row->cycle + 1 > cycles ? row->cycle + 1 : cycles;
        if (!c->usable) {
            continue;
        }
        group_of(r, row, o, group, sizeof(group));
        if (!nt_table_add(t, group, label, &e)) {
            t->notes.full = true;
        }
    }
    return cycles;
}

int nt_table_from_files(struct nt_imp_file *const *files, const char *const *labels, size_t n,
                        const struct nt_compare_opts *o, struct nt_table **ret, struct nt_err *err)
{
    struct nt_table *t = NULL;
    struct run_of runs[MAX_RUNS_NOTED];
    size_t nruns = 0;
    int rc = nt_table_new("runs side by side", NT_TIME_US, &t, err);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t round = 0;
        for (size_t k = 0; k < i; k++) { /* repeats are counted over the files of a label */
            round += strcmp(labels[k], labels[i]) == 0 ? 1000 : 0;
        }
        for (size_t r = 0; r < files[i]->nruns; r++) {
            const struct nt_imp_run *run = &files[i]->runs[r];
            round += add_run(t, run, labels[i], round, o);
            if (run->nrows > 0 && nruns < MAX_RUNS_NOTED) {
                runs[nruns++] = (struct run_of){files[i], run};
            }
        }
    }
    note_differences(t, runs, nruns, o->across);
    *ret = t;
    return 0;
}
