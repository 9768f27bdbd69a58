/* What follows from the rows of a run taken together: launch shape, ranks, collective, validity. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tuner/base/text.h"
#include "tuner/import/internal.h"

/* No collective of two GPUs ends faster than a kernel can be launched. */
#define LEAST_TIME_US 1.0

static unsigned type_bytes(const char *type)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } rows[] = {{"int8", 1},     {"uint8", 1}, {"char", 1},   {"half", 2},   {"float16", 2},
                {"bfloat16", 2}, {"int32", 4}, {"uint32", 4}, {"int", 4},    {"float", 4},
                {"float32", 4},  {"int64", 8}, {"uint64", 8}, {"double", 8}, {"float64", 8}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(type, rows[i].name) == 0) {
            return rows[i].bytes;
        }
    }
    return strstr(type, "8") != NULL ? 1 : 0;
}

static int rank_order(const void *a, const void *b)
{
    const struct nt_imp_rank *x = a, *y = b;
    int c = strcmp(x->host, y->host);
    if (c == 0) {
        c = x->pid < y->pid ? -1 : x->pid > y->pid;
    }
    return c != 0 ? c : (x->rank < y->rank ? -1 : x->rank > y->rank);
}

static int device_order(const void *a, const void *b)
{
    const struct nt_imp_rank *x = a, *y = b;
    int c = strcmp(x->host, y->host);
    if (c == 0) {
        c = strcmp(x->bus, y->bus);
    }
    return c != 0 ? c : (x->device < y->device ? -1 : x->device > y->device);
}

static int number_order(const void *a, const void *b)
{
    const struct nt_imp_rank *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void ranks(struct nt_imp_file *f, struct nt_imp_run *r)
{
    struct nt_imp_rank *copy = r->nranks > 0 ? malloc(r->nranks * sizeof(*copy)) : NULL;
    size_t shared = 0, twice = 0;
    if (copy == NULL) {
        return;
    }
    memcpy(copy, r->ranks, r->nranks * sizeof(*copy));
    qsort(copy, r->nranks, sizeof(*copy), rank_order);
    for (size_t i = 0; i < r->nranks; i++) {
        bool new_host = i == 0 || strcmp(copy[i].host, copy[i - 1].host) != 0;
        r->hosts += new_host;
        r->procs += new_host || copy[i].pid != copy[i - 1].pid;
    }
    qsort(copy, r->nranks, sizeof(*copy), device_order);
    for (size_t i = 1; i < r->nranks; i++) {
        shared += device_order(&copy[i], &copy[i - 1]) == 0 && copy[i].rank != copy[i - 1].rank;
    }
    qsort(copy, r->nranks, sizeof(*copy), number_order);
    for (size_t i = 1; i < r->nranks; i++) {
        twice += copy[i].rank == copy[i - 1].rank;
    }
    if (twice > 0) {
        r->mixed = true;
        nt_imp_note(&f->notes, NT_IMP_DUPLICATE_RANK, r->first_line,
                    "%zu rank lines repeat a rank: %u programs of their own wrote into one log "
                    "(built without MPI?), not one run of %zu ranks; its rows are not used",
                    twice, (unsigned)twice + 1, r->nranks);
    } else {
        r->world = copy[r->nranks - 1].rank + 1; /* rank lines above the excerpt may be missing */
        r->world_inferred = r->world != r->nranks;
    }
    if (r->world_inferred) {
        nt_imp_note(&f->notes, NT_IMP_INFERRED, r->first_line,
                    "%zu of %u ranks are listed: launch shape and machine are not known", r->nranks,
                    r->world);
    }
    if (shared > 0 && twice == 0) {
        nt_imp_note(&f->notes, NT_IMP_SHARED_GPU, r->first_line,
                    "ranks on a device of another rank: %zu; a functional rig, not a machine to "
                    "compare with",
                    shared);
    }
    free(copy);
}

/* All ratios of busbw to algbw that the printed digits allow. */
static bool ratio_range(const struct nt_imp_run *r, double *ret_lo, double *ret_hi)
{
    double lo = 0, hi = INFINITY;
    for (size_t i = 0; i < 2 * r->nrows; i++) {
        const struct nt_imp_cell *c = &r->rows[i / 2].place[i % 2];
        /* Two decimals, fewer where the number is wide. */
        double digit = c->busbw >= 9999.995 ? 0.5 : c->busbw >= 999.995 ? 0.05 : 0.005;
        if (c->have && c->algbw > 0.1) {
            double down = (c->busbw - digit) / (c->algbw + 0.0051);
            double up = (c->busbw + digit) / (c->algbw - 0.0051);
            lo = down > lo ? down : lo;
            hi = up < hi ? up : hi;
        }
    }
    *ret_lo = lo;
    *ret_hi = hi;
    return lo > 0 && lo < hi;
}

static void infer_world(struct nt_imp_file *f, struct nt_imp_run *r, double lo, double hi)
{
    double least, most; /* ranks, if the collective is an all-reduce: ratio = 2 (n - 1) / n */
    if (lo >= 2) {
        return;
    }
    least = ceil(2 / (2 - lo) - 1e-9);
    most = hi < 2 ? floor(2 / (2 - hi) + 1e-9) : INFINITY;
    if (least >= 2 && least == most && least < NT_IMP_MAX_RANKS) {
        r->world = (uint32_t)least;
        r->world_inferred = true;
        nt_imp_note(&f->notes, NT_IMP_INFERRED, r->first_line,
                    "%u ranks, by the ratio of bus to algorithm bandwidth", r->world);
    } else if (least >= 2 && most > least) {
        nt_imp_note(&f->notes, NT_IMP_INFERRED, r->first_line,
                    "%.0f to %.0f ranks, by the ratio of bus to algorithm bandwidth", least, most);
    }
}

/* What the table's numbers tell of the collective and its ranks. */
static void infer(struct nt_imp_file *f, struct nt_imp_run *r)
{
    const struct nt_imp_row *first = r->nrows > 0 ? &r->rows[0] : NULL;
    uint64_t part = first != NULL ? first->count * type_bytes(first->dtype) : 0;
    double lo = 0, hi = 0;
    bool reduces;
    if (part == 0 || first->bytes < part) {
        return;
    }
    reduces = strcmp(first->op, "none") != 0 && first->op[0] != '\0' && first->root < 0;
    if (r->collective[0] == '\0' && reduces) {
        (void)snprintf(r->collective, sizeof(r->collective), "%s",
                       part == first->bytes ? "all_reduce" : "reduce_scatter");
        r->collective_inferred = true;
        nt_imp_note(&f->notes, NT_IMP_INFERRED, r->first_line,
                    "%s, by operator, root and the count beside the size", r->collective);
    }
    if (r->world > 0 || r->mixed) {
        return;
    }
    if (part < first->bytes && first->bytes % part == 0 && first->bytes / part < NT_IMP_MAX_RANKS) {
        r->world = (uint32_t)(first->bytes / part);
        r->world_inferred = true;
        nt_imp_note(&f->notes, NT_IMP_INFERRED, r->first_line,
                    "%u ranks, by the count beside the size", r->world);
    } else if (strcmp(r->collective, "all_reduce") == 0 && ratio_range(r, &lo, &hi)) {
        infer_world(f, r, lo, hi);
    }
}

/* "20-allreduce-socket.txt" says what its table does not. */
static void collective_from_name(struct nt_imp_file *f, struct nt_imp_run *r)
{
    static const struct {
        const char *word, *collective;
    } rows[] = {{"allreduce", "all_reduce"},
                {"all_reduce", "all_reduce"},
                {"allgather", "all_gather"},
                {"all_gather", "all_gather"},
                {"reducescatter", "reduce_scatter"},
                {"reduce_scatter", "reduce_scatter"},
                {"alltoall", "alltoall"},
                {"broadcast", "broadcast"},
                {"sendrecv", "sendrecv"}};
    const char *base = strrchr(f->name, '/');
    base = base != NULL ? base + 1 : f->name;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && r->collective[0] == '\0'; i++) {
        if (strcasestr(base, rows[i].word) != NULL) {
            (void)snprintf(r->collective, sizeof(r->collective), "%s", rows[i].collective);
            r->collective_inferred = true;
            nt_imp_note(&f->notes, NT_IMP_INFERRED, r->first_line,
                        "collective %s is taken from the file's name", r->collective);
        }
    }
}

struct tally {
    size_t wrong, unchecked, rounding, cells, implausible, first_wrong;
};

static void check_cell(struct nt_imp_file *f, const struct nt_imp_run *r,
                       const struct nt_imp_row *row, struct nt_imp_cell *c, struct tally *t)
{
    double algbw = c->have ? (double)row->bytes / c->time_us / 1e3 : 0;
    bool fits = r->cpu_time || fabs(algbw - c->algbw) <= 0.02 * algbw + 0.011;
    if (!c->have) {
        return;
    }
    t->cells++;
    t->unchecked += c->wrong < 0 && isnan(c->error);
    t->rounding += isnan(c->error) ? 0 : 1;
    if (!fits) {
        nt_imp_note(&f->notes, NT_IMP_GARBLED, row->line,
                    "size %llu: %.2f us is %.2f GB/s, the row says %.2f",
                    (unsigned long long)row->bytes, c->time_us, algbw, c->algbw);
    }
    if (c->wrong > 0) {
        t->wrong++;
        t->first_wrong = t->first_wrong > 0 ? t->first_wrong : row->line;
    }
    if (c->time_us < LEAST_TIME_US && row->bytes > 0 && r->world != 1) {
        t->implausible++;
        nt_imp_note(&f->notes, NT_IMP_IMPLAUSIBLE, row->line,
                    "size %llu: %.2f us is less than one kernel launch takes%s",
                    (unsigned long long)row->bytes, c->time_us,
                    r->graph > 0 ? " (graph mode divides by every launch)" : "");
    }
    c->usable = fits && c->wrong <= 0 && !r->mixed && !r->cpu_time &&
                (c->time_us >= LEAST_TIME_US || r->world == 1);
}

static void validity(struct nt_imp_file *f, struct nt_imp_run *r)
{
    struct tally t = {0};
    for (size_t i = 0; i < r->nrows; i++) {
        for (int p = 0; p < 2; p++) {
            check_cell(f, r, &r->rows[i], &r->rows[i].place[p], &t);
        }
    }
    if (t.wrong > 0) {
        nt_imp_note(&f->notes, NT_IMP_WRONG_DATA, (uint32_t)t.first_wrong,
                    "%zu of %zu cells have wrong elements; they are not used", t.wrong, t.cells);
    } else if (r->out_of_bounds > 0) { /* the verdict names no row: none can be trusted */
        for (size_t i = 0; i < r->nrows; i++) {
            r->rows[i].place[0].usable = r->rows[i].place[1].usable = false;
        }
    }
    if (t.rounding > 0) {
        nt_imp_note(&f->notes, NT_IMP_ROUNDING_ERROR, r->first_line,
                    "the error column is the size of a rounding, no count of wrong elements; %s",
                    r->out_of_bounds < 0    ? "no verdict line says whether it is within bounds"
                    : r->out_of_bounds == 0 ? "the verdict line says OK"
                                            : "the verdict line says FAILED");
    }
    if (t.unchecked > 0) {
        nt_imp_note(&f->notes, NT_IMP_NOT_CHECKED, r->first_line,
                    "the data of %zu of %zu cells was not checked (N/A)", t.unchecked, t.cells);
    }
}

static int cycle_order(const void *a, const void *b)
{
    const struct nt_imp_row *const *x = a, *const *y = b;
    int c = (*x)->bytes < (*y)->bytes ? -1 : (*x)->bytes > (*y)->bytes;
    if (c == 0) {
        c = strcmp((*x)->dtype, (*y)->dtype);
    }
    if (c == 0) {
        c = strcmp((*x)->op, (*y)->op);
    }
    if (c == 0) {
        c = (*x)->root < (*y)->root ? -1 : (*x)->root > (*y)->root;
    }
    return c != 0 ? c : (*x < *y ? -1 : *x > *y);
}

static bool same_case(const struct nt_imp_row *a, const struct nt_imp_row *b)
{
    return a->bytes == b->bytes && a->root == b->root && strcmp(a->dtype, b->dtype) == 0 &&
           strcmp(a->op, b->op) == 0;
}

static void cycles(struct nt_imp_file *f, struct nt_imp_run *r)
{
    struct nt_imp_row **by_size =
        r->nrows > 0 ? malloc(r->nrows * sizeof(struct nt_imp_row *)) : NULL;
    uint32_t most = 0;
    for (size_t i = 0; by_size != NULL && i < r->nrows; i++) {
        by_size[i] = &r->rows[i];
    }
    if (by_size != NULL) {
        qsort(by_size, r->nrows, sizeof(struct nt_imp_row *), cycle_order);
    }
    for (size_t i = 1; by_size != NULL && i < r->nrows; i++) {
        if (same_case(by_size[i], by_size[i - 1])) {
            by_size[i]->cycle = by_size[i - 1]->cycle + 1;
            most = by_size[i]->cycle > most ? by_size[i]->cycle : most;
        }
    }
    if (most > 0 && !r->mixed) {
        nt_imp_note(&f->notes, NT_IMP_CYCLES, r->first_line, "sizes stand up to %u times: repeats",
                    most + 1);
    }
    free(by_size);
}

static void completeness(struct nt_imp_file *f, struct nt_imp_run *r)
{
    uint64_t last = r->nrows > 0 ? r->rows[r->nrows - 1].bytes : 0;
    if (r->nrows == 0) {
        if (!isnan(r->avg_busbw) || r->summary) {
            nt_imp_note(&f->notes, NT_IMP_SUMMARY_ONLY, r->first_line,
                        "average bus bandwidth %g GB/s without its rows: an average over unknown "
                        "sizes compares with nothing",
                        r->avg_busbw);
        } else if (r->headers > 0 || r->nranks > 0) {
            nt_imp_note(&f->notes, NT_IMP_CUT_OFF, r->first_line,
                        "the run started and gave no result: it hung, crashed or was cut off");
        }
        return;
    }
    if (!r->summary) {
        char size[24], end[24];
        if (r->max_bytes > last) {
            nt_imp_note(&f->notes, NT_IMP_CUT_OFF, r->rows[r->nrows - 1].line,
                        "ends at %s of %s, and without a summary: cut off, hung or an excerpt",
                        nt_format_bytes(last, size, sizeof(size)),
                        nt_format_bytes(r->max_bytes, end, sizeof(end)));
        } else {
            nt_imp_note(&f->notes, NT_IMP_CUT_OFF, r->rows[r->nrows - 1].line,
                        "no summary: the program's own verdict on the data is missing");
        }
    }
    if (r->headers == 0 && r->library[0] == '\0' && r->nranks == 0) {
        nt_imp_note(&f->notes, NT_IMP_NO_HEADER, r->first_line,
                    "no header: launch shape, machine and version are not known");
    }
}

void nt_imp_finish(struct nt_imp_file *f)
{
    size_t rows = 0, summaries = 0;
    for (size_t i = 0; i < f->nruns; i++) {
        struct nt_imp_run *r = &f->runs[i];
        ranks(f, r);
        collective_from_name(f, r);
        infer(f, r);
        validity(f, r);
        cycles(f, r);
        completeness(f, r);
        rows += r->nrows;
        summaries += r->summary;
        if (r->graph > 0 && r->nrows > 0) {
            nt_imp_note(&f->notes, NT_IMP_GRAPH, r->first_line,
                        "timed in CUDA graphs: not to be mixed with eager figures");
        }
        if (r->procs > 0 && r->nranks > r->procs) {
            nt_imp_note(&f->notes, NT_IMP_SHAPE, r->first_line,
                        "%zu ranks, %u processes: small sizes are slower than with a process a GPU",
                        r->nranks, r->procs);
        }
    }
    if (rows == 0) {
        bool command =
            f->nruns > 0 && f->runs[0].collective[0] != '\0' && !f->runs[0].collective_inferred;
        nt_imp_note(&f->notes, NT_IMP_NO_RESULTS, 0, "%s",
                    summaries > 0 ? "only averages, no rows"
                    : command     ? "a launch command without its results"
                                  : "no result rows of nccl-tests or rccl-tests");
    }
}
