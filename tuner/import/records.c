/*
 * One record a measurement: what rccl-tests writes with -Z csv and -Z json, and mscclpp-test with
 * -o. Both placements of a size are records of their own, one behind the other.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "schema/vocab.h"
#include "tuner/import/csv.h"
#include "tuner/import/internal.h"
#include "tuner/import/table.h"

/* The members of a record; the CSV's header names them in its own way, and leaves one out. */
enum member {
    CYCLE,
    NAME,
    NODES,
    RANKS,
    PER_NODE,
    PER_RANK,
    GPUS,
    SIZE,
    TYPE,
    REDOP,
    IN_PLACE,
    TIME,
    ALGBW,
    BUSBW,
    WRONG,
    MEMBERS
};
static const struct {
    const char *json, *csv;
} members[MEMBERS] = {[CYCLE] = {"numCycle", "numCycle"},
                      [NAME] = {"name", "collective"},
                      [NODES] = {"nodes", "nodes"},
                      [RANKS] = {"ranks", "ranks"},
                      [PER_NODE] = {"ranksPerNode", "rankspernode"},
                      [PER_RANK] = {"gpusPerRank", "gpusperrank"},
                      [GPUS] = {"gpus", "gpus"},
                      [SIZE] = {"size", "size"},
                      [TYPE] = {"type", "type"},
                      [REDOP] = {"redop", "redop"},
                      [IN_PLACE] = {"inPlace", "inplace"},
                      [TIME] = {"time", "time"},
                      [ALGBW] = {"algBw", "algbw"},
                      [BUSBW] = {"busBw", "busbw"},
                      [WRONG] = {"wrong", "#wrong"}};

struct record {
    char text[MEMBERS][64]; /* "": not there */
    uint32_t line;
    bool mscclpp;
};

static double number(const struct record *r, enum member m)
{
    char *end = NULL;
    double v = strtod(r->text[m], &end);
    return end != r->text[m] && *end == '\0' && isfinite(v) ? v : NAN;
}

static uint32_t small(const struct record *r, enum member m)
{
    double v = number(r, m);
    return v >= 0 && v <= NT_IMP_MAX_RANKS ? (uint32_t)v : 0;
}

/* The run of a record: another collective or launch shape begins another. */
static struct nt_imp_run *run_of(struct nt_imp_file *f, const struct record *rec)
{
    struct nt_imp_run *r = f->nruns > 0 ? &f->runs[f->nruns - 1] : NULL;
    uint32_t per_rank = rec->text[PER_RANK][0] != '\0' ? small(rec, PER_RANK) : 1;
    uint32_t procs = rec->text[GPUS][0] != '\0' ? 1 : small(rec, RANKS);
    uint32_t per_node = small(rec, PER_NODE);
    uint32_t gpus = rec->text[GPUS][0] != '\0' ? small(rec, GPUS) : per_rank;
    uint32_t world = procs * gpus <= NT_IMP_MAX_RANKS ? procs * gpus : 0;
    int coll = nt_coll_of(rec->text[NAME]);
    char collective[sizeof(r->collective)];
    nt_imp_copy(collective, sizeof(collective), coll >= 0 ? nt_coll_names[coll] : rec->text[NAME],
                strlen(coll >= 0 ? nt_coll_names[coll] : rec->text[NAME]));
    if (r != NULL && strcmp(r->collective, collective) == 0 && r->world == world &&
        r->gpus == gpus) {
        return r;
    }
    r = nt_imp_add_run(f, rec->line);
    if (r == NULL) {
        return NULL;
    }
    memcpy(r->collective, collective, sizeof(collective));
    (void)snprintf(r->tool, sizeof(r->tool), "%s", rec->mscclpp ? "mscclpp-test" : "rccl-tests");
    (void)snprintf(r->library, sizeof(r->library), "%s", rec->mscclpp ? "MSCCL++" : "RCCL");
    r->headers = 1;
    r->threads = 1;
    r->gpus = gpus;
    r->procs = procs;
    r->world = world;
    r->hosts = small(rec, NODES) > 0        ? small(rec, NODES)
               : per_node > 0 && procs > 0  ? procs / per_node
               : rec->text[GPUS][0] != '\0' ? 1
                                            : 0;
    r->summary = true; /* these forms have none */
    return r;
}

static void add(struct nt_imp_file *f, const struct record *rec)
{
    struct nt_imp_run *r = run_of(f, rec);
    double bytes = number(rec, SIZE), wrong = number(rec, WRONG), time = number(rec, TIME);
    struct nt_imp_row *row = r != NULL && r->nrows > 0 ? &r->rows[r->nrows - 1] : NULL;
    unsigned place = small(rec, IN_PLACE) == 1;
    struct nt_imp_cell *c;
    if (r == NULL || !(bytes >= 0 && bytes < 1e15)) {
        return;
    }
    if (row == NULL || row->place[place].have || row->bytes != (uint64_t)bytes ||
        strcmp(row->dtype, rec->text[TYPE]) != 0 || strcmp(row->op, rec->text[REDOP]) != 0) {
        row = nt_imp_add_row(f, r, rec->line);
    }
    if (row == NULL) {
        return;
    }
    row->bytes = (uint64_t)bytes;
    nt_imp_copy(row->dtype, sizeof(row->dtype), rec->text[TYPE], strlen(rec->text[TYPE]));
    nt_imp_copy(row->op, sizeof(row->op), rec->text[REDOP], strlen(rec->text[REDOP]));
    c = &row->place[place];
    c->have = time > 0;
    c->time_us = c->have ? time : 0;
    c->algbw = isnan(number(rec, ALGBW)) ? 0 : number(rec, ALGBW);
    c->busbw = isnan(number(rec, BUSBW)) ? 0 : number(rec, BUSBW);
    if (wrong >= 0) {
        c->wrong = wrong < 9e18 ? (int64_t)(wrong + 0.5) : INT64_MAX;
    }
}

bool nt_imp_is_record(const json_t *o)
{
    return json_object_get(o, members[SIZE].json) != NULL &&
           json_object_get(o, members[BUSBW].json) != NULL &&
           json_object_get(o, members[TIME].json) != NULL;
}

void nt_imp_add_record(struct nt_imp_file *f, const json_t *o, uint32_t index)
{
    struct record rec = {.line = index, .mscclpp = json_object_get(o, "kernel") != NULL};
    for (int m = 0; m < MEMBERS; m++) {
        const json_t *v = json_object_get(o, members[m].json);
        if (json_is_string(v)) {
            nt_imp_copy(rec.text[m], sizeof(rec.text[m]), json_string_value(v),
                        json_string_length(v));
        } else if (json_is_integer(v)) {
            (void)snprintf(rec.text[m], sizeof(rec.text[m]), "%lld",
                           (long long)json_integer_value(v));
        } else if (json_is_real(v)) {
            (void)snprintf(rec.text[m], sizeof(rec.text[m]), "%.17g", json_real_value(v));
        }
    }
    add(f, &rec);
}

bool nt_imp_is_records_csv(const char *text, size_t len)
{
    const char *eol = memchr(text, '\n', len);
    size_t n = eol != NULL ? (size_t)(eol - text) : len;
    static const char *const words[] = {"numCycle", "inplace", "busbw", NULL};
    for (size_t i = 0; words[i] != NULL; i++) {
        if (memmem(text, n, words[i], strlen(words[i])) == NULL) {
            return false;
        }
    }
    return true;
}

int nt_imp_parse_records_csv(struct nt_imp_file *f, const char *text, size_t len,
                             struct nt_err *err)
{
    struct nt_csv *c = malloc(sizeof(*c));
    int column[NT_CSV_COLUMNS];
    size_t n;
    if (c == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "%s", f->name);
    }
    nt_csv_open(c, text, len);
    n = nt_csv_next(c) ? c->n : 0;
    for (size_t i = 0; i < NT_CSV_COLUMNS; i++) { /* a row may be wider than its header */
        column[i] = MEMBERS;
        for (int m = 0; m < MEMBERS && i < n; m++) {
            column[i] = strcasecmp(c->cell[i], members[m].csv) == 0 ? m : column[i];
        }
    }
    while (nt_csv_next(c)) {
        struct record rec = {.line = c->line};
        /* Built with MPI, it writes the nodes behind the name and no header above them. */
        bool nodes = c->n == n + 1;
        for (size_t i = 0; i < c->n; i++) {
            int m = nodes && i == 2 ? NODES : column[i - (nodes && i > 2)];
            if (m < MEMBERS) {
                nt_imp_copy(rec.text[m], sizeof(rec.text[m]), c->cell[i], strlen(c->cell[i]));
            }
        }
        if (c->n == n || nodes) {
            add(f, &rec);
        } else {
            nt_imp_note(&f->notes, NT_IMP_CUT_ROW, c->line, "%zu cells where the first row has %zu",
                        c->n, n);
        }
    }
    free(c);
    return 0;
}
