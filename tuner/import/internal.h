/* internal - what the readers of tuner/import share. */
#pragma once
#include "tuner/import/import.h"

/* Room for one more of *v (n used, `size` bytes each, capacity doubling, at most max). Returns the
 * new element, zeroed, and counts it; NULL when memory or the limit is reached. */
void *nt_imp_push(void *v_ptr, size_t *n, size_t size, size_t max);
void nt_imp_cell_init(struct nt_imp_cell *c);
struct nt_imp_run *nt_imp_add_run(struct nt_imp_file *f, uint32_t line);
struct nt_imp_row *nt_imp_add_row(struct nt_imp_file *f, struct nt_imp_run *r, uint32_t line);
struct nt_imp_rank *nt_imp_add_rank(struct nt_imp_run *r);
/* Keeps NCCL_* and RCCL_* only; true when kept. Later values of a name replace earlier ones. */
bool nt_imp_add_env(struct nt_imp_run *r, const char *assignment, size_t len);
/* "./build/all_reduce_perf_mpi" -> "all_reduce"; false when it is none. */
bool nt_imp_collective(const char *program, size_t len, char *out, size_t size);
/* A printable copy, cut to size: foreign text never reaches a terminal raw. */
void nt_imp_copy(char *out, size_t size, const char *text, size_t len);
/* Checks and conclusions over a whole file, once its rows are read. */
void nt_imp_finish(struct nt_imp_file *f);

NT_MUST_CHECK int nt_imp_parse_text(struct nt_imp_file *f, const char *text, size_t len,
                                    struct nt_err *err);
NT_MUST_CHECK int nt_imp_parse_json(struct nt_imp_file *f, const char *text, size_t len,
                                    struct nt_err *err);
/* A measurement as an object of its own (rccl-tests, mscclpp-test), and as a row of a CSV. */
bool nt_imp_is_record(const json_t *o);
void nt_imp_add_record(struct nt_imp_file *f, const json_t *o, uint32_t index);
bool nt_imp_is_records_csv(const char *text, size_t len);
NT_MUST_CHECK int nt_imp_parse_records_csv(struct nt_imp_file *f, const char *text, size_t len,
                                           struct nt_err *err);
