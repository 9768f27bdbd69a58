/* The few functions of the CUDA runtime that scripts/bench/paths_program.c opens, on the fake
 * device of tests/probe/fake. */
#include <string.h>
#include "tests/probe/fake/fake.h"

#define CUDA __attribute__((visibility("default")))
static struct nt_dev *device;

CUDA int cudaSetDevice(int number);
CUDA int cudaMalloc(void **ret, size_t bytes);
CUDA int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
CUDA int cudaStreamCreateWithFlags(struct CUstream_st **ret, unsigned flags);
CUDA int cudaStreamSynchronize(struct CUstream_st *s);
CUDA int cudaStreamBeginCapture(struct CUstream_st *s, int mode);
CUDA int cudaStreamEndCapture(struct CUstream_st *s, void **ret);
CUDA int cudaGraphInstantiateWithFlags(void **ret, void *graph, unsigned long long flags);
CUDA int cudaGraphLaunch(void *graph, struct CUstream_st *s);
CUDA const char *cudaGetErrorString(int code);

int cudaSetDevice(int number)
{
    return device != NULL ? 0 : nt_dev_open((unsigned)number, &device, NULL);
}

int cudaMalloc(void **ret, size_t bytes)
{
    return nt_dev_alloc(device, bytes, ret, NULL);
}

int cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
    (void)kind; /* the fake device's memory is the host's */
    memcpy(to, from, bytes);
    return 0;
}

int cudaStreamCreateWithFlags(struct CUstream_st **ret, unsigned flags)
{
    (void)flags;
    return nt_stream_open(device, ret, NULL);
}

int cudaStreamSynchronize(struct CUstream_st *s)
{
    return s != NULL ? nt_stream_sync(s, NULL) : 0;
}

int cudaStreamBeginCapture(struct CUstream_st *s, int mode)
{
    (void)mode;
    return nt_capture_begin(s, NULL);
}

int cudaStreamEndCapture(struct CUstream_st *s, void **ret)
{
    struct CUgraphExec_st *graph = NULL;
    int rc = nt_capture_end(s, &graph, NULL);
    *ret = graph;
    return rc;
}

int cudaGraphInstantiateWithFlags(void **ret, void *graph, unsigned long long flags)
{
    (void)flags;
    *ret = graph;
    return 0;
}

int cudaGraphLaunch(void *graph, struct CUstream_st *s)
{
    return nt_graph_launch(graph, s, NULL);
}

const char *cudaGetErrorString(int code)
{
    (void)code;
    return "the fake device says no";
}
