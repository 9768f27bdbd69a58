#include "tuner/base/hash.h"

#include <sha2.h>
#include <stdint.h>

void nt_sha256_hex(const void *data, size_t len, char hex[NT_HEX_LEN + 1])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t out[32];
    SHA2_CTX ctx;

    SHA256Init(&ctx);
    if (len > 0) {
        SHA256Update(&ctx, data, len);
    }
    SHA256Final(out, &ctx);
    for (size_t i = 0; i < sizeof(out); i++) {
        hex[2 * i] = digits[out[i] >> 4];
        hex[2 * i + 1] = digits[out[i] & 15];
    }
    hex[NT_HEX_LEN] = '\0';
}
