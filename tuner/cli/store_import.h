/* store_import - other people's measurements into the database, each file with its provenance. */
#pragma once
#include "probes/recording/recording.h"
#include "tuner/import/table.h"
#include "tuner/store/store.h"

/* *ret_known: a file of the same content is there already, and nothing was added. label: the
 * setting that the file stands for. */
NT_MUST_CHECK int nt_store_import_runs(struct nt_store *s, const struct nt_imp_file *f,
                                       const char *label, int64_t *ret_id, bool *ret_known,
                                       struct nt_err *err);
NT_MUST_CHECK int nt_store_import_table(struct nt_store *s, const struct nt_table *t,
                                        const char *sha256, int64_t *ret_id, bool *ret_known,
                                        struct nt_err *err);
struct nt_recording_import {
    int64_t id;
    bool known;
    size_t cells, rows; /* a row: one cell in one gang */
};
/* s NULL: only counts. */
NT_MUST_CHECK int nt_store_import_recording(struct nt_store *s, const struct nt_recording *rec,
                                            const char *path, const char *sha256,
                                            struct nt_recording_import *ret, struct nt_err *err);
