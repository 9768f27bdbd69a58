/* log_tail - what a process said last. */
#pragma once
#include <stddef.h>

/* The last lines of a file, at most size - 1 bytes, in one line: " | " between them, other control
 * characters as '?'. "" when there is none. */
void nt_log_tail(const char *path, char *out, size_t size);
