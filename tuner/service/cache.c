#include "tuner/service/cache.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_of(const char *key)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a: only spares comparisons */
    for (; *key != '\0'; key++) {
        h = (h ^ (unsigned char)*key) * UINT64_C(0x100000001b3);
    }
    return h;
}

static void clear(struct nt_cache *c, size_t i)
{
    if (c->slot[i].key != NULL) {
        c->bytes -= nt_http_shared_bytes(c->slot[i].answer);
        nt_http_shared_drop(c->slot[i].answer);
        free(c->slot[i].key);
        memset(&c->slot[i], 0, sizeof(c->slot[i]));
    }
}

void nt_cache_done(struct nt_cache *c)
{
    for (size_t i = 0; i < NT_CACHE_SLOTS; i++) {
        clear(c, i);
    }
}

struct nt_http_shared *nt_cache_get(struct nt_cache *c, const char *key, int64_t version)
{
    uint64_t h = hash_of(key);
    for (size_t i = 0; i < NT_CACHE_SLOTS; i++) {
        if (c->slot[i].key != NULL && c->slot[i].hash == h && strcmp(c->slot[i].key, key) == 0) {
            if (c->slot[i].version >= 0 && c->slot[i].version != version) {
                clear(c, i);
                break;
            }
            c->slot[i].used = ++c->clock;
            c->hits++;
            return c->slot[i].answer;
        }
    }
    c->misses++;
    return NULL;
}

struct nt_http_shared *nt_cache_put(struct nt_cache *c, const char *key, int64_t version,
                                    struct nt_http_shared *answer)
{
    size_t bytes = nt_http_shared_bytes(answer), oldest;
    char *copy = strdup(key);

    for (;;) {
        oldest = 0;
        for (size_t i = 0; i < NT_CACHE_SLOTS; i++) {
            if (c->slot[i].key != NULL && strcmp(c->slot[i].key, key) == 0) {
                clear(c, i);
            }
            if (c->slot[i].used < c->slot[oldest].used) {
                oldest = i;
            }
        }
        if (c->bytes + bytes <= NT_CACHE_MAX_BYTES || c->bytes == 0) {
            break;
        }
        for (size_t i = 0; i < NT_CACHE_SLOTS; i++) { /* empty ones are the least used */
            if (c->slot[i].key != NULL &&
                (c->slot[oldest].key == NULL || c->slot[i].used < c->slot[oldest].used)) {
                oldest = i;
            }
        }
        clear(c, oldest);
    }
    clear(c, oldest);
    c->slot[oldest].hash = hash_of(key);
    c->slot[oldest].used = ++c->clock;
    c->slot[oldest].key = copy;
    c->slot[oldest].answer = answer;
    c->slot[oldest].version = version;
    c->bytes += bytes;
    if (copy == NULL) { /* not found again; replaced as any other */
        c->slot[oldest].key = strdup("");
    }
    return answer;
}
