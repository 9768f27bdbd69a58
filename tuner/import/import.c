#include "tuner/import/import.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/hash.h"
#include "tuner/base/text.h"
#include "tuner/import/internal.h"

const char *const nt_imp_level_names[] = {"info", "warning", "error", NULL};

static const struct {
    const char *name;
    enum nt_imp_level level;
} note_rows[] = {
#define X(name, id, level) {id, NT_IMP_##level},
    NT_IMP_NOTES(X)
#undef X
};

const char *nt_imp_note_name(enum nt_imp_note_id id)
{
    return note_rows[id].name;
}

enum nt_imp_level nt_imp_note_level(enum nt_imp_note_id id)
{
    return note_rows[id].level;
}

void *nt_imp_push(void *v_ptr, size_t *n, size_t size, size_t max)
{
    void **v = v_ptr;
    char *slot;
    if (*n >= max) {
        return NULL;
    }
    if (*n == 0 || (*n >= 8 && (*n & (*n - 1)) == 0)) {
        void *grown = realloc(*v, (*n == 0 ? 8 : *n * 2) * size);
        if (grown == NULL) {
            return NULL;
        }
        *v = grown;
    }
    slot = (char *)*v + *n * size;
    memset(slot, 0, size);
    (*n)++;
    return slot;
}

void nt_imp_note(struct nt_imp_notes *notes, enum nt_imp_note_id id, uint32_t line, const char *fmt,
                 ...)
{
    char text[400];
    struct nt_imp_note *note;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    nt_text_plain(text);
    note = nt_imp_push(&notes->v, &notes->n, sizeof(*note), NT_IMP_MAX_NOTES);
    if (note == NULL) {
        notes->full = true;
        return;
    }
    note->id = id;
    note->line = line;
    note->text = strdup(text);
    if (note->text == NULL) {
        notes->n--;
        notes->full = true;
    }
}

void nt_imp_notes_done(struct nt_imp_notes *notes)
{
    for (size_t i = 0; i < notes->n; i++) {
        free(notes->v[i].text);
    }
    free(notes->v);
    *notes = (struct nt_imp_notes){0};
}

void nt_imp_copy(char *out, size_t size, const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len && text[i] != '\0' && n + 1 < size; i++) {
        out[n++] = text[i];
    }
    out[n] = '\0';
    nt_text_plain(out);
}

void nt_imp_cell_init(struct nt_imp_cell *c)
{
    *c = (struct nt_imp_cell){
        .wrong = -1, .error = NAN, .min_us = NAN, .max_us = NAN, .p99_us = NAN, .cv_pct = NAN};
}

struct nt_imp_run *nt_imp_add_run(struct nt_imp_file *f, uint32_t line)
{
    struct nt_imp_run *r = nt_imp_push(&f->runs, &f->nruns, sizeof(*r), NT_IMP_MAX_RUNS);
    if (r != NULL) {
        r->out_of_bounds = -1;
        r->avg_busbw = NAN;
        r->first_line = line;
        r->checked = true;
    }
    return r;
}

struct nt_imp_row *nt_imp_add_row(struct nt_imp_file *f, struct nt_imp_run *r, uint32_t line)
{
    struct nt_imp_row *row = nt_imp_push(&r->rows, &r->nrows, sizeof(*row), NT_IMP_MAX_ROWS);
    if (row == NULL) {
        f->notes.full = true;
        return NULL;
    }
    row->line = line;
    row->root = -1;
    nt_imp_cell_init(&row->place[0]);
    nt_imp_cell_init(&row->place[1]);
    return row;
}

struct nt_imp_rank *nt_imp_add_rank(struct nt_imp_run *r)
{
    return nt_imp_push(&r->ranks, &r->nranks, sizeof(*r->ranks), NT_IMP_MAX_RANKS);
}

bool nt_imp_add_env(struct nt_imp_run *r, const char *assignment, size_t len)
{
    const char *eq = memchr(assignment, '=', len);
    size_t name_len = eq != NULL ? (size_t)(eq - assignment) : 0;
    char text[1024];
    char **slot = NULL;
    if (name_len < 6 || len >= sizeof(text) || memchr(assignment, '\0', len) != NULL ||
        (strncmp(assignment, "NCCL_", 5) != 0 && strncmp(assignment, "RCCL_", 5) != 0)) {
        return false;
    }
    nt_imp_copy(text, sizeof(text), assignment, len);
    for (size_t i = 0; i < r->nenv; i++) {
        if (strncmp(r->env[i], text, name_len + 1) == 0) {
            slot = &r->env[i];
            free(*slot);
        }
    }
    if (slot == NULL) {
        slot = nt_imp_push(&r->env, &r->nenv, sizeof(*slot), NT_IMP_MAX_ENV);
    }
    if (slot == NULL) {
        return false;
    }
    *slot = strdup(text);
    if (*slot == NULL) {
        *slot = r->env[--r->nenv];
    }
    return true;
}

bool nt_imp_collective(const char *program, size_t len, char *out, size_t size)
{
    static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                        "reduce",     "alltoallv",  "alltoall",       "sendrecv",
                                        "gather",     "scatter",    "hypercube",      "all_to_all",
                                        NULL};
    size_t start = len, end = len;
    while (start > 0 && program[start - 1] != '/' && program[start - 1] != '\\') {
        start--;
    }
    for (size_t i = 0; names[i] != NULL; i++) {
        size_t n = strlen(names[i]);
        if (end - start >= n + 5 && strncmp(program + start, names[i], n) == 0 &&
            strncmp(program + start + n, "_perf", 5) == 0) {
            (void)snprintf(out, size, "%s",
                           strcmp(names[i], "all_to_all") == 0 ? "alltoall" : names[i]);
            return true;
        }
    }
    return false;
}

static void run_done(struct nt_imp_run *r)
{
    for (size_t i = 0; i < r->nrows; i++) {
        free(r->rows[i].place[0].samples_us);
        free(r->rows[i].place[1].samples_us);
    }
    for (size_t i = 0; i < r->nenv; i++) {
        free(r->env[i]);
    }
    free(r->env);
    free(r->rows);
    free(r->ranks);
}

void nt_imp_free(struct nt_imp_file *f)
{
    if (f == NULL) {
        return;
    }
    for (size_t i = 0; i < f->nruns; i++) {
        run_done(&f->runs[i]);
    }
    free(f->runs);
    nt_imp_notes_done(&f->notes);
    free(f->name);
    free(f);
}

/* "[{": a list of records; "[1,0]<stdout>" is a launcher's tag. */
static bool opens_objects(const char *text, size_t len)
{
    size_t i = 0;
    while (i < len && isspace((unsigned char)text[i])) {
        i++;
    }
    return i < len && text[i] == '{';
}

static bool looks_like_json(const char *text, size_t len)
{
    size_t i = 0;
    while (i < len && (isspace((unsigned char)text[i]) || (unsigned char)text[i] >= 0x80)) {
        i++;
    }
    return i < len &&
           (text[i] == '{' || (text[i] == '[' && opens_objects(text + i + 1, len - i - 1)));
}

int nt_imp_read(const char *name, const char *text, size_t len, struct nt_imp_file **ret,
                struct nt_err *err)
{
    int rc;
    struct nt_imp_file *f = calloc(1, sizeof(*f));
    if (f == NULL || (f->name = strdup(name)) == NULL) {
        free(f);
        return nt_fail(err, NT_E_NOMEM, 0, "%s", name);
    }
    if (len > NT_IMP_MAX_BYTES) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: more than %d MiB", name, NT_IMP_MAX_BYTES >> 20);
        goto out;
    }
    if (nt_is_utf16(text, len)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: UTF-16 text; save it as UTF-8", name);
        goto out;
    }
    nt_sha256_hex(text, len, f->sha256);
    rc = looks_like_json(text, len)         ? nt_imp_parse_json(f, text, len, err)
         : nt_imp_is_records_csv(text, len) ? nt_imp_parse_records_csv(f, text, len, err)
                                            : nt_imp_parse_text(f, text, len, err);
    if (rc == 0) {
        nt_imp_finish(f);
        *ret = f;
        f = NULL;
    }
out:
    nt_imp_free(f);
    return rc;
}

size_t nt_imp_usable_rows(const struct nt_imp_file *f)
{
    size_t n = 0;
    for (size_t r = 0; r < f->nruns; r++) {
        for (size_t i = 0; i < f->runs[r].nrows; i++) {
            const struct nt_imp_row *row = &f->runs[r].rows[i];
            n += row->place[0].usable || row->place[1].usable;
        }
    }
    return n;
}
