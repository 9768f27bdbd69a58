/*
 * cache - answers that are the same for everybody until the database changes, kept ready to send.
 * Least recently used go first; bounded in number and bytes.
 */
#pragma once
#include "tuner/service/http.h"

enum { NT_CACHE_SLOTS = 128, NT_CACHE_MAX_BYTES = 6 << 20 };

struct nt_cache {
    struct {
        uint64_t hash, used;
        char *key;
        struct nt_http_shared *answer;
        int64_t version; /* of the database; -1: holds whatever happens there */
    } slot[NT_CACHE_SLOTS];
    uint64_t clock;
    size_t bytes;
    uint64_t hits, misses;
};

void nt_cache_done(struct nt_cache *c);
/* Borrowed until the next call; NULL: not here, or of an older version. */
struct nt_http_shared *nt_cache_get(struct nt_cache *c, const char *key, int64_t version);
/* Takes the answer over and returns it, borrowed as from get. */
struct nt_http_shared *nt_cache_put(struct nt_cache *c, const char *key, int64_t version,
                                    struct nt_http_shared *answer);
