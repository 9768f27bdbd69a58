#include "tuner/launch/secret.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "tuner/base/hash.h"

enum { BLOCK = 64, PART_MAX = 128, TEXT_MAX = 4 * (PART_MAX + 1) };
_Static_assert((int)NT_SECRET_LEN == (int)BLOCK, "the key is one block of SHA-256");

int nt_secret_make(char *out, struct nt_err *err)
{
    uint8_t bytes[NT_SECRET_LEN / 2];
    size_t have = 0;

    while (have < sizeof(bytes)) {
        ssize_t n = getrandom(bytes + have, sizeof(bytes) - have, 0);
        if (n < 0 && errno != EINTR) {
            return nt_fail(err, NT_E_IO, errno, "random numbers");
        }
        have += n > 0 ? (size_t)n : 0;
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
    return 0;
}

static void keyed(const char *key, uint8_t pad, const void *data, size_t len, char *hex)
{
    uint8_t text[BLOCK + TEXT_MAX];

    for (size_t i = 0; i < BLOCK; i++) {
        text[i] = (uint8_t)key[i] ^ pad;
    }
    memcpy(text + BLOCK, data, len);
    nt_sha256_hex(text, BLOCK + len, hex);
}

static uint8_t digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

void nt_secret_proof(const char *secret, const char *role, const char *name, const char *agent,
                     const char *driver, char *out)
{
    char text[TEXT_MAX], inner[NT_HEX_LEN + 1];
    uint8_t bytes[NT_HEX_LEN / 2];
    int n = snprintf(text, sizeof(text), "%.128s %.128s %.128s %.128s", role, name, agent, driver);

    nt_assert(n > 0 && (size_t)n < sizeof(text) && strlen(secret) == NT_SECRET_LEN);
    keyed(secret, 0x36, text, (size_t)n, inner);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(digit(inner[2 * i]) << 4 | digit(inner[2 * i + 1]));
    }
    keyed(secret, 0x5c, bytes, sizeof(bytes), out);
}

bool nt_secret_same(const char *a, const char *b)
{
    size_t n = strlen(a);
    unsigned differs = 0;

    if (strlen(b) != n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        differs |= (unsigned)(unsigned char)a[i] ^ (unsigned)(unsigned char)b[i];
    }
    return differs == 0;
}
