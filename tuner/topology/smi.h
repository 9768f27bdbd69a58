/*
 * smi - the matrices in a text, before they mean a machine. Internal to the reader of
 * `nvidia-smi topo -m` (smi.c); smi_text.c fills it in.
 */
#pragma once
#include "tuner/topology/model.h"

enum { NT_SMI_COLS = NT_MAX_GPUS + NT_MAX_NETS, NT_SMI_NAME = 64 };

enum nt_smi_kind { NT_CELL_SELF, NT_CELL_PATH, NT_CELL_NV, NT_CELL_P2P };

struct nt_smi_cell {
    uint8_t kind;   /* enum nt_smi_kind */
    uint8_t value;  /* enum nt_path or enum nt_p2p */
    uint16_t links; /* NT_CELL_NV */
};

struct nt_smi_row {
    char name[NT_SMI_NAME];
    struct nt_smi_cell *cells; /* room for NT_SMI_COLS */
    int n;
    char affinity[NT_SMI_NAME];
    int numa; /* -1: not told */
};

struct nt_smi_matrix {
    char (*cols)[NT_SMI_NAME];
    int ncols, ngpus;                  /* ngpus: leading GPU columns */
    bool numa_column, affinity, whole; /* affinity: that column is there; whole: all rows, cells */
    char p2p_of;                       /* the letter behind -p2p, 'r' unless told */
    struct nt_smi_row *rows;
    int nrows, row_cap;
    unsigned line, last_line; /* of the header */
};

struct nt_smi {
    struct nt_err *err;
    struct nt_smi_matrix *matrices;
    int n, cap;
    struct {
        char short_name[16], name[NT_SMI_NAME];
    } legend[NT_MAX_NETS]; /* "NIC0" is "mlx5_2" */
    int nlegend;
    char p2p_of;
    unsigned line;
    bool table;        /* the frame of plain nvidia-smi was seen */
    char trouble[160]; /* the first line that says why there is no matrix */
};

/* Reads all lines; text is NUL-terminated. */
NT_MUST_CHECK int nt_smi_scan(struct nt_smi *r, const char *text, size_t len);
NT_MUST_CHECK int nt_smi_add_column(struct nt_smi *r, struct nt_smi_matrix *m, const char *p,
                                    size_t n);
void nt_smi_done(struct nt_smi *r);
