/*
 * csv - the configuration file of NVIDIA's example tuner as a second input, for who has one: same
 * columns and the same "first match whose combination NCCL offers", without its traps. Words and
 * numbers that are not known are errors, and calls that no row matches stay untouched.
 *
 *   collective,minBytes,maxBytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps[,regBuff]]
 *
 * -1 is "any", for channels "leave". Lines that begin with '#' and blank lines are skipped.
 */
#pragma once
#include "profiles/format/table.h"

enum { NT_CSV_MAX_BYTES = 1 << 20, NT_CSV_ANY = -1 };

struct nt_csv_row {
    uint64_t min_bytes, max_bytes;
    int64_t nnodes, nranks, pipe_ops;
    int line; /* in the file, from 1 */
    int8_t coll, algo, proto, reg_buff;
    uint8_t channels; /* 0: leave */
};

/* Rows of `text` (size bytes, any content). *ret is malloc'd, NULL for no rows. */
int nt_csv_parse(const char *text, size_t size, struct nt_csv_row **ret, size_t *ret_n,
                 struct nt_why *why);
/* Reads and parses a regular file. */
int nt_csv_load(const char *path, struct nt_csv_row **ret, size_t *ret_n, struct nt_why *why);
/* What row i will do, in one sentence. */
void nt_csv_describe(const struct nt_csv_row *rows, size_t i, char *out, size_t size);
