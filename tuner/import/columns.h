/*
 * columns - what the columns of a table of measurements hold, by their names alone. Internal to the
 * reader of tables (table.c).
 */
#pragma once
#include "tuner/import/csv.h"
#include "tuner/import/table.h"

enum nt_role {
    NT_ROLE_IGNORED,
    NT_ROLE_SIZE,
    NT_ROLE_GROUP, /* part of what must be equal to compare */
    NT_ROLE_RANKS, /* the same, printed "8 ranks" */
    NT_ROLE_ARM,   /* part of the arm's name */
    NT_ROLE_ROUND, /* which repeat */
    NT_ROLE_COUNT, /* repeats behind the value */
    NT_ROLE_SD,
    NT_ROLE_VALUE,
    NT_ROLE_UNKNOWN /* a value of an arm named by the column, if it holds numbers */
};

struct nt_column {
    enum nt_role role;
    enum nt_metric metric; /* of values */
    double scale;          /* to the metric's unit; sizes: to bytes */
    bool unit;             /* the name says it */
    char arm[48];          /* wide form */
};

struct nt_layout {
    struct nt_column col[NT_CSV_COLUMNS];
    char name[NT_CSV_COLUMNS][48];
    size_t n;
    bool wide;
    bool unit; /* a column's name says it */
    enum nt_metric metric;
    uint32_t ranks; /* that a line above the table says; 0: none */
    unsigned part;  /* which table of the text, from 1 */
};

bool nt_columns_have(const struct nt_layout *l, enum nt_role role);
/* The record that c holds as names. NT_E_INVAL: none is of a size, or none of a value; name is for
 * the message. */
NT_MUST_CHECK int nt_columns_read(struct nt_layout *l, const struct nt_csv *c, const char *name,
                                  struct nt_err *err);
