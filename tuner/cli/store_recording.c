/* A recording into the database: what each tuple took in each gang. */
#include "tuner/cli/store_import.h"
#include "tuner/stats/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 640, MOST = 4096 }; /* samples of one tuple in one gang */

struct rows {
    struct nt_store_measurement *at;
    char (*setting)[MAX_TEXT]; /* of each cell */
    size_t n;
};

static bool counts(const struct nt_block *b)
{
    return b->status == NT_ST_OK && b->count > 0 && (b->flags & (NT_M_BUSY | NT_M_GROUP8)) == 0;
}

/* Blocks of one cell and gang, from *i on; false: no more in this cell. */
static bool next_gang(const struct nt_recording *rec, struct nt_cell c, size_t *i,
                      struct nt_store_measurement *ret)
{
    uint32_t ns[MOST];
    uint64_t gang = 0;
    double sum = 0, squares = 0;
    size_t n = 0;

    for (; *i < c.count; (*i)++) {
        const struct nt_block *b = nt_recording_block(rec, c.block[*i]);
        if (!counts(b)) {
            continue;
        }
        if (n > 0 && b->gang != gang) {
            break;
        }
        gang = b->gang;
        for (size_t k = 0; k < b->count && n < MOST; k++) {
            ns[n++] = b->ns[k];
            sum += b->ns[k];
            squares += (double)b->ns[k] * b->ns[k];
        }
    }
    if (n == 0) {
        return false;
    }
    ret->repeat = (uint32_t)gang;
    ret->samples = (uint32_t)n;
    ret->sd_ns = sqrt(fmax(0, squares / (double)n - sum / (double)n * sum / (double)n));
    ret->ns = nt_quantile_u32(ns, n, 0.5);
    return true;
}

static void add_cell(const struct nt_recording *rec, size_t cell, uint32_t ranks, struct rows *out)
{
    struct nt_cell c = nt_recording_cell(rec, cell);
    char tuple[64];
    size_t first = 0, i = 0;

    /* What its other blocks executed as well. */
    while (first < c.count && nt_recording_block(rec, c.block[first])->executed.algo < 0) {
        first++;
    }
    if (first < c.count) {
        const struct nt_block *b = nt_recording_block(rec, c.block[first]);
        struct nt_store_measurement m = {.collective = nt_coll_names[b->cs.coll],
                                         .dtype = nt_dtype_names[b->cs.dtype],
                                         .place = nt_place_names[b->cs.place],
                                         .mode = nt_mode_names[b->cs.mode],
                                         .backend = nt_backend_names[b->call.backend],
                                         .setting = out->setting[cell],
                                         .bytes = b->cs.bytes,
                                         .ranks = ranks,
                                         .algbw_gbps = NAN,
                                         .busbw_gbps = NAN};
        (void)snprintf(out->setting[cell], MAX_TEXT, "%s%s%s", b->process,
                       b->process[0] != '\0' ? " " : "",
                       nt_executed_text(&b->executed, tuple, sizeof(tuple)));
        while (next_gang(rec, c, &i, &m)) {
            out->at[out->n++] = m;
        }
    }
}

static json_t *provenance(const struct nt_recording *rec)
{
    json_t *o = json_object();

    for (int f = 0; f < NT_FACT_COUNT; f++) {
        const char *text = nt_recording_fact(rec, (enum nt_fact)f);
        if (f != NT_FACT_TOPOLOGY && f != NT_FACT_TEXT && text[0] != '\0') {
            (void)json_object_set_new(o, nt_fact_names[f], json_string(text));
        }
    }
    return o;
}

int nt_store_import_recording(struct nt_store *s, const struct nt_recording *rec, const char *path,
                              const char *sha256, struct nt_recording_import *ret,
                              struct nt_err *err)
{
    const char *slash = strrchr(path, '/');
    struct nt_store_import im = {
        .source = slash != NULL ? slash + 1 : path, .sha256 = sha256, .kind = "recording"};
    size_t cells = nt_recording_cells(rec);
    struct rows rows = {
        .at = calloc(nt_recording_blocks(rec) + 1, sizeof(*rows.at)),
        .setting = calloc(cells + 1, sizeof(*rows.setting)),
    };
    json_t *from = provenance(rec);
    struct nt_buf setup, text;
    uint32_t ranks = (uint32_t)strtoul(nt_recording_fact(rec, NT_FACT_RANKS), NULL, 10);
    int rc = 0;

    nt_buf_init(&setup, 1 << 14);
    nt_buf_init(&text, 1 << 16);
    if (rows.at == NULL || rows.setting == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "%s", path);
    }
    for (size_t i = 0; rc == 0 && i < cells; i++) {
        add_cell(rec, i, ranks, &rows);
    }
    nt_buf_puts(&setup, "recording ");
    nt_recording_setup(rec, &setup);
    nt_json_dump(from, false, &text);
    if (rc == 0 && (setup.failed || text.failed)) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "%s", path);
    }
    im.setup = nt_buf_str(&setup);
    im.provenance = nt_buf_str(&text);
    ret->cells = cells;
    ret->rows = rows.n;
    if (rc == 0 && s != NULL) {
        rc = nt_store_add_import(s, &im, rows.at, rows.n, &ret->id, &ret->known, err);
    }
    json_decref(from);
    nt_buf_done(&setup);
    nt_buf_done(&text);
    free(rows.at);
    free(rows.setting);
    return rc;
}
