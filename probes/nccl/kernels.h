/*
 * kernels - the only CUDA C++ of the project, as C functions that launch. Each returns a
 * cudaError_t.
 */
#pragma once
#include "probes/nccl/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NT_PRODUCT_SIZE = 1024 }; /* rows and columns of the busy matrices, fp32 */

int nt_kernel_fill(struct CUstream_st *s, void *buf, uint64_t count, const struct nt_pattern *p);
int nt_kernel_compare(struct CUstream_st *s, const void *buf, uint64_t count,
                      const struct nt_pattern *p, unsigned long long *differing);
int nt_kernel_tick(struct CUstream_st *s, unsigned *counter);
/* Adds the number of elements whose bits differ. */
int nt_kernel_differ(struct CUstream_st *s, const void *a, const void *b, uint64_t count,
                     unsigned elem_bytes, unsigned long long *differing);
struct nt_shot;
/* One call of shots.h. */
int nt_kernel_shot(struct CUstream_st *s, const struct nt_shot *shot, unsigned blocks);
/* Loads all variants for a number of ranks: a kernel that is loaded only when it is first launched
 * may wait for those that run, and they for it. *ret_blocks: blocks that one multiprocessor holds.
 */
int nt_kernel_shots_load(uint32_t world, unsigned *ret_blocks);
/* *ret_shared_bytes: with so much a block has a multiprocessor for itself. */
int nt_kernel_product_load(int device, int *ret_shared_bytes);
/* c = a × b, all NT_PRODUCT_SIZE squared, by so many blocks. */
int nt_kernel_product(struct CUstream_st *s, const float *a, const float *b, float *c,
                      unsigned blocks, int shared_bytes);

#ifdef __cplusplus
}
#endif
