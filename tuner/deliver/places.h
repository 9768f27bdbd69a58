/* places - where the installed parts lie: beside the running program, whatever its prefix is; of a
 * program that was not installed, in its build folder and the sources. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* PREFIX/lib/nccltune of the running program; false: not known. */
bool nt_place_plugins(char *out, size_t size);
/* PREFIX/share/nccltune/loader. */
bool nt_place_loader(char *out, size_t size);
/* PREFIX/share/nccltune/engines: the plugins for SGLang and vLLM, for PYTHONPATH. */
bool nt_place_engines(char *out, size_t size);
/* DIR/libnccl-KIND-nccltune.so (dir NULL: nt_place_plugins()) if there is such a file. kind:
 * "tuner", "env", "profiler". */
bool nt_place_plugin(const char *dir, const char *kind, char *out, size_t size);
