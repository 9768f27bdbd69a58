/* hash - SHA-256 (libmd) as lower-case hex, for content keys. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define NT_HEX_LEN 64

/* hex: 65 bytes, NUL-terminated. */
void nt_sha256_hex(const void *data, size_t len, char hex[NT_HEX_LEN + 1]);

/* Of a file's content, in chunks. Returns false, and hex "", when it cannot be read or is no
 * regular file: a pipe or device may never end. */
bool nt_sha256_file_hex(const char *path, char hex[NT_HEX_LEN + 1]);
