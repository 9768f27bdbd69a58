#include "tuner/base/hash.h"

#include <sha2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void finish(SHA2_CTX *ctx, char hex[NT_HEX_LEN + 1])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t out[32];

    SHA256Final(out, ctx);
    for (size_t i = 0; i < sizeof(out); i++) {
        hex[2 * i] = digits[out[i] >> 4];
        hex[2 * i + 1] = digits[out[i] & 15];
    }
    hex[NT_HEX_LEN] = '\0';
}

void nt_sha256_hex(const void *data, size_t len, char hex[NT_HEX_LEN + 1])
{
    SHA2_CTX ctx;

    SHA256Init(&ctx);
    if (len > 0) {
        SHA256Update(&ctx, data, len);
    }
    finish(&ctx, hex);
}

bool nt_sha256_file_hex(const char *path, char hex[NT_HEX_LEN + 1])
{
    static const size_t CHUNK = 1 << 20;
    uint8_t *chunk = malloc(CHUNK);
    struct stat st;
    bool regular = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    FILE *in = chunk != NULL && regular ? fopen(path, "rbe") : NULL;
    SHA2_CTX ctx;
    size_t n;
    bool ok;

    hex[0] = '\0';
    if (in == NULL) {
        free(chunk);
        return false;
    }
    SHA256Init(&ctx);
    while ((n = fread(chunk, 1, CHUNK, in)) > 0) {
        SHA256Update(&ctx, chunk, n);
    }
    ok = ferror(in) == 0;
    (void)fclose(in);
    free(chunk);
    if (ok) {
        finish(&ctx, hex);
    }
    return ok;
}
