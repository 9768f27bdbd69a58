#include "tests/probe/fake/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CHANNELS = 4, CHANNEL_BYTES = 16384, CELL_BYTES = 4096, OWN_CHUNK = 131072 };
enum { LARGE_BYTES = 512 << 10 }; /* where chunks matter */

static unsigned env_channels(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    long v = text != NULL ? strtol(text, NULL, 10) : 0;
    return v > 0 && v <= 64 ? (unsigned)v : otherwise;
}

/* Is this name allowed for the function by a variable of the form [function:][^]name,…;… ? */
static bool allowed(const char *variable, const char *function, const char *name)
{
    const char *all = getenv(variable);
    char text[256], *rest = text, *entry;
    bool ok = true;
    (void)snprintf(text, sizeof(text), "%s", all != NULL ? all : "");
    while (all != NULL && (entry = strsep(&rest, ";")) != NULL) {
        char *list = strchr(entry, ':'), *word;
        bool inverted, named = false;
        if (list != NULL) {
            *list++ = '\0';
            if (strcasecmp(entry, function) != 0) {
                continue;
            }
        } else {
            list = entry;
        }
        inverted = *list == '^';
        list += inverted;
        while ((word = strsep(&list, ",")) != NULL) {
            named = named || strcasecmp(word, name) == 0;
        }
        ok = named != inverted; /* the last entry for a function wins */
    }
    return ok;
}

static void read_masks(struct model *m)
{
    static const char *const functions[NT_TUNER_COLLS] = {"Broadcast", "Reduce", "AllGather",
                                                          "ReduceScatter", "AllReduce"};
    for (int c = 0; c < NT_TUNER_COLLS; c++) {
        for (int a = 0; a < NT_ALGO_COUNT; a++) {
            for (int p = 0; p < NT_PROTO_COUNT; p++) {
                m->masked[c][a][p] = !allowed("NCCL_ALGO", functions[c], nt_algo_names[a]) ||
                                     !allowed("NCCL_PROTO", functions[c], nt_proto_names[p]);
            }
        }
    }
}

void model_init(struct model *m, unsigned rank, unsigned world)
{
    const char *speed = getenv("FAKE_NCCL_SPEED");
    unsigned least = env_channels("NCCL_MIN_NCHANNELS", 1);
    unsigned most = env_channels("NCCL_MAX_NCHANNELS", 64);
    *m = (struct model){.rank = rank,
                        .world = world,
                        .channels = CHANNELS < least ? least : CHANNELS,
                        .speed = speed != NULL ? strtod(speed, NULL) : 1.0};
    m->channels = m->channels > most ? most : m->channels;
    read_masks(m);
}

static bool exists(enum nt_coll coll, int algo, int proto)
{
    return proto != NT_LL128 && (algo == NT_RING || (algo == NT_TREE && coll == NT_ALL_REDUCE));
}

static unsigned steps(unsigned world)
{
    unsigned n = 0;
    while ((1U << n) < world) {
        n++;
    }
    return n;
}

static double us(const struct model *m, uint64_t bytes, int algo, int proto, unsigned channels,
                 double ring_latency)
{
    double latency = algo == NT_TREE ? 90 + 20.0 * steps(m->world)
                                     : ring_latency + 20.0 * (m->world > 0 ? m->world - 1 : 0);
    double rate = 200.0 * channels; /* bytes/µs */
    latency *= proto == NT_SIMPLE ? 2 : 1;
    rate *= proto == NT_LL ? 0.5 : 1;
    rate *= algo == NT_TREE ? 0.8 : 1;
    return latency + (double)bytes / rate;
}

void model_table(const struct model *m, enum nt_coll coll, uint64_t bytes,
                 float table[NT_ALGO_COUNT][NT_PROTO_COUNT])
{
    for (int a = 0; a < NT_ALGO_COUNT; a++) {
        for (int p = 0; p < NT_PROTO_COUNT; p++) {
            table[a][p] = exists(coll, a, p) && !m->masked[coll][a][p]
                              ? (float)us(m, bytes, a, p, model_channels(m, bytes, 0), 120)
                              : -1.0F;
        }
    }
}

unsigned model_channels(const struct model *m, uint64_t bytes, unsigned bound)
{
    uint64_t cells = (bytes + CELL_BYTES - 1) / CELL_BYTES;
    uint64_t n = bound > 0 ? bound : bytes / CHANNEL_BYTES + 1;
    n = n > m->channels ? m->channels : n;
    return (unsigned)(n > cells ? cells : n);
}

uint64_t model_chunk(enum nt_coll coll, int algo, int proto)
{
    (void)coll;
    (void)algo;
    return proto == NT_LL ? OWN_CHUNK / 4 : OWN_CHUNK;
}

static double by_chunk(uint64_t bytes, int proto, uint64_t own, uint64_t chunk)
{
    return bytes < LARGE_BYTES || proto != NT_SIMPLE || chunk >= own ? 1.0
           : chunk >= own / 2                                        ? 0.7
           : chunk >= own / 4                                        ? 0.5
                                                                     : 0.9;
}

uint64_t model_ns(const struct model *m, enum nt_coll coll, uint64_t bytes, int algo, int proto,
                  unsigned channels, uint64_t chunk)
{
    double factor = by_chunk(bytes, proto, model_chunk(coll, algo, proto), chunk);
    return (uint64_t)(m->speed * 1000.0 * factor * us(m, bytes, algo, proto, channels, 60));
}

/* One entry: KIND:RANK[:BYTES[:ALGO[:PROTO]]]. */
static bool applies(const struct model *m, char *entry, const char *kind, uint64_t bytes, int algo,
                    int proto)
{
    char *rest = entry, *f[5] = {NULL};
    for (size_t i = 0; i < 5 && rest != NULL; i++) {
        f[i] = strsep(&rest, ":");
    }
    return f[1] != NULL && strcmp(f[0], kind) == 0 &&
           (strcmp(f[1], "*") == 0 || strtoul(f[1], NULL, 10) == m->rank) &&
           (f[2] == NULL || bytes >= strtoull(f[2], NULL, 10)) &&
           (f[3] == NULL || (algo >= 0 && strcmp(f[3], nt_algo_names[algo]) == 0)) &&
           (f[4] == NULL || (proto >= 0 && strcmp(f[4], nt_proto_names[proto]) == 0));
}

bool model_fault(const struct model *m, const char *kind, uint64_t bytes, int algo, int proto)
{
    const char *all = getenv("FAKE_NCCL_FAULT");
    char text[256], *rest = text, *entry;
    bool found = false;
    if (all == NULL) {
        return false;
    }
    (void)snprintf(text, sizeof(text), "%s", all);
    while (!found && (entry = strsep(&rest, ",")) != NULL) {
        found = applies(m, entry, kind, bytes, algo, proto);
    }
    return found;
}
