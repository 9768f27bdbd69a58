#include "profiles/format/limits.h"

/* Bit p of kernels[coll][algo]: protocol p exists (NCCL src/device/generate.py). */
enum { NONE = 0, SIMPLE = 1 << NT_TABLE_SIMPLE, ALL = 7 };
static const uint8_t kernels[NT_TABLE_COLLS][NT_TABLE_ALGOS] = {
    [NT_TABLE_BROADCAST] = {NONE, ALL},
    [NT_TABLE_REDUCE] = {NONE, ALL},
    [NT_TABLE_ALL_GATHER] = {NONE, ALL, SIMPLE, NONE, SIMPLE, NONE, SIMPLE},
    [NT_TABLE_REDUCE_SCATTER] = {NONE, ALL, SIMPLE, NONE, SIMPLE, NONE, SIMPLE},
    [NT_TABLE_ALL_REDUCE] = {ALL, ALL, SIMPLE, SIMPLE, SIMPLE, SIMPLE, NONE},
};

bool nt_kernel_exists(int coll, int algo, int proto)
{
    return coll >= 0 && coll < NT_TABLE_COLLS && algo >= 0 && algo < NT_TABLE_ALGOS && proto >= 0 &&
           proto < NT_TABLE_PROTOS && ((unsigned)kernels[coll][algo] >> (unsigned)proto & 1U) != 0;
}

bool nt_channels_safe(int algo, uint32_t nnodes)
{
    if (algo == NT_TABLE_COLLNET_DIRECT || algo == NT_TABLE_COLLNET_CHAIN) {
        return false;
    }
    return (algo != NT_TABLE_NVLS && algo != -1) || nnodes == 1;
}

uint32_t nt_proto_grain(int proto)
{
    static const uint32_t grain[NT_TABLE_PROTOS] = {16, 1920, 512};
    return proto >= 0 && proto < NT_TABLE_PROTOS ? grain[proto] : 512;
}
