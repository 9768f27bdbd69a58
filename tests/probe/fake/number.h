/* number - sums in NCCL's data types, on the host. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

size_t number_bytes(int dtype); /* NCCL's number of a dtype */
/* to[i] = to[i] + from[i], or the larger of the two. */
void number_combine(int dtype, bool larger, void *to, const void *from, size_t count);
