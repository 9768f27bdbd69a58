/* sha256 - SHA-256 (FIPS 180-4) of one block of memory, without any library, because the plugins
 * link nothing but libc. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "profiles/format/limits.h"

void nt_format_sha256(const void *data, size_t len, uint8_t digest[32]);
/* hex: lower case, NUL-terminated. */
void nt_format_sha256_hex(const void *data, size_t len, char hex[NT_HASH_HEX + 1]);
