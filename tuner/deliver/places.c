#include "tuner/deliver/places.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* rest is below the prefix, built below the build folder when the program was not installed, as
 * build/PRESET/tuner/cli/nccltune. */
static bool below_prefix(const char *rest, const char *built, char *out, size_t size)
{
    char self[PATH_MAX], joined[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash, real[PATH_MAX];

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    (void)snprintf(joined, sizeof(joined), "%s/../%s", self, rest);
    if (realpath(joined, real) == NULL) {
        (void)snprintf(joined, sizeof(joined), "%s/../../%s", self, built);
        if (realpath(joined, real) == NULL) {
            return false;
        }
    }
    return (size_t)snprintf(out, size, "%s", real) < size;
}

bool nt_place_plugins(char *out, size_t size)
{
    return below_prefix(NT_LIBDIR "/nccltune", "profiles/plugin", out, size);
}

bool nt_place_loader(char *out, size_t size)
{
    return below_prefix(NT_DATADIR "/nccltune/loader", "../../profiles/loader", out, size);
}

bool nt_place_engines(char *out, size_t size)
{
    return below_prefix(NT_DATADIR "/nccltune/engines", "../../profiles/engines", out, size);
}

bool nt_place_plugin(const char *dir, const char *kind, char *out, size_t size)
{
    char folder[PATH_MAX], path[PATH_MAX + 64], real[PATH_MAX];
    struct stat st;

    if (dir == NULL && !nt_place_plugins(folder, sizeof(folder))) {
        return false;
    }
    (void)snprintf(path, sizeof(path), "%s/libnccl-%s-nccltune.so", dir != NULL ? dir : folder,
                   kind);
    return realpath(path, real) != NULL && stat(real, &st) == 0 && S_ISREG(st.st_mode) &&
           (size_t)snprintf(out, size, "%s", real) < size;
}
