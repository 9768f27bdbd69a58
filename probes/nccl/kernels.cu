#include "probes/nccl/kernels.h"

/* A grid-stride loop: this many blocks fill any device, and a buffer may have more elements than a
 * grid has threads. */
static const unsigned threads = 256, most_blocks = 1024;

static unsigned blocks_for(uint64_t count)
{
    uint64_t blocks = (count + threads - 1) / threads;
    return blocks == 0 ? 1 : blocks > most_blocks ? most_blocks : (unsigned)blocks;
}

static __global__ void fill(void *buf, uint64_t count, struct nt_pattern p)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        nt_pattern_store(&p, buf, i);
    }
}

static __global__ void compare(const void *buf, uint64_t count, struct nt_pattern p,
                               unsigned long long *differing)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    unsigned long long mine = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        mine += nt_pattern_differs(&p, buf, i);
    }
    if (mine > 0) {
        atomicAdd(differing, mine);
    }
}

static __global__ void differ(const unsigned char *a, const unsigned char *b, uint64_t count,
                              unsigned elem_bytes, unsigned long long *differing)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    unsigned long long mine = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        bool same = true;
        for (unsigned k = 0; k < elem_bytes; k++) {
            same = same && a[i * elem_bytes + k] == b[i * elem_bytes + k];
        }
        mine += !same;
    }
    if (mine > 0) {
        atomicAdd(differing, mine);
    }
}

static __global__ void tick(unsigned *counter)
{
    *counter += 1;
}

static const int tile = 32;

static __global__ void product(const float *a, const float *b, float *c)
{
    const int tiles = NT_PRODUCT_SIZE / tile;
    __shared__ float part_a[tile][tile], part_b[tile][tile];
    for (int at = blockIdx.x; at < tiles * tiles; at += gridDim.x) {
        int row = at / tiles * tile + threadIdx.y, col = at % tiles * tile + threadIdx.x;
        float sum = 0;
        for (int k = 0; k < NT_PRODUCT_SIZE; k += tile) {
            part_a[threadIdx.y][threadIdx.x] = a[row * NT_PRODUCT_SIZE + k + threadIdx.x];
            part_b[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * NT_PRODUCT_SIZE + col];
            __syncthreads();
            for (int i = 0; i < tile; i++) {
                sum += part_a[threadIdx.y][i] * part_b[i][threadIdx.x];
            }
            __syncthreads();
        }
        c[row * NT_PRODUCT_SIZE + col] = sum;
    }
}

int nt_kernel_fill(struct CUstream_st *s, void *buf, uint64_t count, const struct nt_pattern *p)
{
    fill<<<blocks_for(count), threads, 0, s>>>(buf, count, *p);
    return cudaGetLastError();
}

int nt_kernel_compare(struct CUstream_st *s, const void *buf, uint64_t count,
                      const struct nt_pattern *p, unsigned long long *differing)
{
    compare<<<blocks_for(count), threads, 0, s>>>(buf, count, *p, differing);
    return cudaGetLastError();
}

int nt_kernel_differ(struct CUstream_st *s, const void *a, const void *b, uint64_t count,
                     unsigned elem_bytes, unsigned long long *differing)
{
    differ<<<blocks_for(count), threads, 0, s>>>((const unsigned char *)a, (const unsigned char *)b,
                                                 count, elem_bytes, differing);
    return cudaGetLastError();
}

int nt_kernel_tick(struct CUstream_st *s, unsigned *counter)
{
    tick<<<1, 1, 0, s>>>(counter);
    return cudaGetLastError();
}

int nt_kernel_product_load(int device, int *ret_shared_bytes)
{
    const int own = 2 * tile * tile * (int)sizeof(float);
    int most = 0;
    cudaError_t e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e == cudaSuccess) {
        *ret_shared_bytes = most - own;
        e = cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 *ret_shared_bytes);
    }
    return e;
}

int nt_kernel_product(struct CUstream_st *s, const float *a, const float *b, float *c,
                      unsigned blocks, int shared_bytes)
{
    product<<<blocks, dim3(tile, tile), (size_t)shared_bytes, s>>>(a, b, c);
    return cudaGetLastError();
}
