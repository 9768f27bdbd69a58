/*
 * engine - what the plugin for SGLang or vLLM wrote down in one process: which backend it chose for
 * which calls. Format "nccltune-backends 1", one text of lines (profiles/engines writes it).
 *
 * The text is its process's own and treated as hostile: every line must be one that the plugin
 * writes, all is bounded and cleaned, and what finds no room is counted. Pure.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "profiles/format/table.h"
#include "tuner/base/err.h"

#define NT_ENGINE_PREFIX "engine-"
#define NT_ENGINE_SUFFIX ".backends"

enum {
    NT_ENGINE_BYTES = 1 << 20,
    NT_ENGINE_GROUPS = 64,
    NT_ENGINE_ROWS = 512,
    NT_ENGINE_LIBRARIES = 8,
    NT_ENGINE_WORD = 32,
    NT_ENGINE_NAME = 64
};

/* Calls made or captured; replays of a graph are none. */
struct nt_engine_row {
    char group[NT_ENGINE_NAME], dtype[NT_ENGINE_WORD];
    char backend[NT_ENGINE_WORD];  /* "": what no row is for, left to the engine's own choice */
    uint8_t mode;                  /* enum nt_mode */
    uint64_t min_bytes, max_bytes; /* of the table's row; 0 where no row is */
    uint64_t served, declined;     /* declined: by the engine's class, then its own choice */
};
struct nt_engine_group {
    char name[NT_ENGINE_NAME], why[200]; /* why: not taken, "" when it is */
    unsigned ranks;
    bool on;
};
struct nt_engine {
    char engine[NT_ENGINE_WORD], version[NT_ENGINE_WORD];
    char table[NT_HASH_HEX + 1]; /* "": told of none */
    char why[200];               /* why nothing is taken, "" when it is */
    bool on;
    uint32_t pid;
    uint64_t start_ticks;
    char boot_id[40], host[80];
    char pynccl[256]; /* the name under which the engine opened its own libnccl, "" not told */
    char mapped[NT_ENGINE_LIBRARIES][256]; /* libraries of NCCL's and MSCCL++'s in the process */
    unsigned nmapped;
    struct nt_engine_group groups[NT_ENGINE_GROUPS];
    unsigned ngroups;
    struct nt_engine_row rows[NT_ENGINE_ROWS];
    unsigned nrows;
    unsigned lost; /* lines that found no room */
};

/* NT_E_INVAL with the line when it is no such text. *ret is large: for the heap. */
NT_MUST_CHECK int nt_engine_read(const char *text, size_t len, struct nt_engine *ret,
                                 struct nt_err *err);
/* The same group, mode, type, sizes and backend; counts do not matter. */
bool nt_engine_same_row(const struct nt_engine_row *a, const struct nt_engine_row *b);
/* Whoever wrote them can have written anything: sums stay at INT64_MAX. */
void nt_engine_add_count(uint64_t *to, uint64_t more);
