/* Holds our own declarations of NCCL against its header; compiled where nccl.h is there. */
#include <nccl.h>
#include "probes/nccl/api.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is NCCL's " #theirs)
SAME(NT_NCCL_SUCCESS, ncclSuccess);
SAME(NT_NCCL_SUM, ncclSum);
SAME(NT_NCCL_MAX, ncclMax);
SAME(NT_NCCL_INT32, ncclInt32);
SAME(NT_NCCL_FP16, ncclFloat16);
SAME(NT_NCCL_FP32, ncclFloat32);
SAME(NT_NCCL_BF16, ncclBfloat16);
#if NCCL_VERSION_CODE >= 22403
SAME(NT_NCCL_FP8_E4M3, ncclFloat8e4m3);
#endif
SAME(NT_NCCL_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
_Static_assert(sizeof(struct nt_nccl_id) == sizeof(ncclUniqueId), "the id is passed by value");
#if NCCL_VERSION_CODE >= 22703
SAME(NT_NCCL_WIN_COLL_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC);
#endif
