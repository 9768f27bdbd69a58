/*
 * library - which libnccl a command is going to load, as far as that can be known before it runs:
 * candidates in the order of the dynamic loader, with version and SHA-256.
 */
#pragma once
#include <jansson.h>
#include "tuner/base/buf.h"
#include "tuner/base/hash.h"

enum { NT_LIBRARIES = 8 };

struct nt_library {
    char path[512];   /* resolved */
    char why[64];     /* "LD_PRELOAD", "the interpreter's site-packages", … */
    char version[24]; /* "2.28.9"; "" not told by the file */
    char sha256[NT_HEX_LEN + 1];
};
struct nt_libraries {
    struct nt_library v[NT_LIBRARIES];
    size_t n;
};

/* How a command looks to the loader. env: NAME=VALUE, NULL-terminated (as environ). */
struct nt_command_line {
    const char *const *argv; /* NULL-terminated */
    const char *const *env;
};

/* Value of a variable of an environment, NULL if it has none. */
const char *nt_env_get(const char *const *env, const char *name);
/* Looks `name` up in PATH of env as execvp does; false: not found. */
bool nt_find_program(const struct nt_command_line *c, char *out, size_t size);
/* The interpreter that runs the program: itself if it is a Python, that of its #! line; "" if
 * neither. */
void nt_find_python(const struct nt_command_line *c, char *out, size_t size);
/* cache: file of hashes already taken (made if missing), NULL: none. */
void nt_libraries_find(const struct nt_command_line *c, const char *cache,
                       struct nt_libraries *ret);
/* "NCCL version 2.28.9+cuda13.0" in the file's bytes → "2.28.9"; "" when there is none. */
void nt_library_version(const void *data, size_t len, char *out, size_t size);
json_t *nt_libraries_json(const struct nt_libraries *l);
