#include "probes/nccl/shots.h"
#include "probes/nccl/kernels.h"

/* Two blocks of this size fit a multiprocessor, whatever the variant: at most 64 registers. */
static const int threads = NT_SHOT_THREADS, blocks_each = 2;

/* WORLD 0: any number of ranks. */
template <int DTYPE, int WORLD, bool ONE_SHOT, bool DIRECT>
static __global__ void __launch_bounds__(threads, blocks_each)
    shot(const __grid_constant__ struct nt_shot s)
{
    struct nt_lane l = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x, 0};
    nt_shot_run(&s, l, WORLD != 0 ? WORLD : s.world, DTYPE, WORLD != 0 ? NT_SHOT_FLIGHT / WORLD : 0,
                ONE_SHOT, DIRECT);
}

template <int DTYPE, int WORLD>
static __global__ void __launch_bounds__(threads, blocks_each)
    shot_ll(const __grid_constant__ struct nt_shot s)
{
    struct nt_lane l = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x, 0};
    nt_shot_run_ll(&s, l, WORLD != 0 ? WORLD : s.world, DTYPE);
}

typedef void (*shot_fn)(struct nt_shot s);

template <int DTYPE, bool ONE_SHOT, bool DIRECT> static shot_fn of_world(uint32_t world)
{
    return world == 2   ? shot<DTYPE, 2, ONE_SHOT, DIRECT>
           : world == 4 ? shot<DTYPE, 4, ONE_SHOT, DIRECT>
           : world == 8 ? shot<DTYPE, 8, ONE_SHOT, DIRECT>
                        : shot<DTYPE, 0, ONE_SHOT, DIRECT>;
}

template <int DTYPE> static shot_fn ll_of_world(uint32_t world)
{
    return world == 2   ? shot_ll<DTYPE, 2>
           : world == 4 ? shot_ll<DTYPE, 4>
           : world == 8 ? shot_ll<DTYPE, 8>
                        : shot_ll<DTYPE, 0>;
}

template <int DTYPE> static shot_fn of_dtype(uint32_t world, int algo, int proto)
{
    bool direct = proto == NT_DIRECT;
    if (proto == NT_LL) {
        return ll_of_world<DTYPE>(world);
    }
    return algo == NT_ONE_SHOT
               ? (direct ? of_world<DTYPE, true, true>(world) : of_world<DTYPE, true, false>(world))
               : (direct ? of_world<DTYPE, false, true>(world)
                         : of_world<DTYPE, false, false>(world));
}

static shot_fn pick(int dtype, uint32_t world, int algo, int proto)
{
    return dtype == NT_FP32   ? of_dtype<NT_FP32>(world, algo, proto)
           : dtype == NT_BF16 ? of_dtype<NT_BF16>(world, algo, proto)
                              : of_dtype<NT_FP16>(world, algo, proto);
}

int nt_kernel_shot(struct CUstream_st *stream, const struct nt_shot *s, unsigned blocks)
{
    shot_fn fn = pick(s->dtype, s->world, s->algo, s->proto);
    fn<<<blocks, threads, 0, stream>>>(*s);
    return cudaGetLastError();
}

int nt_kernel_shots_load(uint32_t world, unsigned *ret_blocks)
{
    static const uint8_t dtypes[] = {NT_BF16, NT_FP32, NT_FP16};
    int least = 0;
    for (uint8_t dtype : dtypes) {
        for (int algo = NT_ONE_SHOT; algo <= NT_TWO_SHOT; algo++) {
            for (int proto : {NT_LL, NT_PULL, NT_DIRECT}) { /* push is pull's kernel */
                int each = 0;
                cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                    &each, pick(dtype, world, algo, proto), threads, 0);
                if (e != cudaSuccess) {
                    return e;
                }
                least = least == 0 || each < least ? each : least;
            }
        }
    }
    *ret_blocks = (unsigned)least;
    return cudaSuccess;
}
