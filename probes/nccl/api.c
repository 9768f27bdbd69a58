#include "probes/nccl/api.h"
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void loaded_from(void *lib, const char *asked, char *out, size_t size)
{
    struct link_map *map = NULL;
    const char *name = dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && map != NULL ? map->l_name : asked;
    char *full = realpath(name, NULL);
    (void)snprintf(out, size, "%s", full != NULL ? full : name);
    free(full);
}

/* Symbol and its place in struct nt_nccl. */
static const struct {
    const char *symbol;
    size_t at;
    bool optional;
} functions[] = {
#define X(type, field, args) {"nccl" #field, offsetof(struct nt_nccl, field), false},
    NT_NCCL_FUNCTIONS(X)
#undef X
#define X(type, field, args) {"nccl" #field, offsetof(struct nt_nccl, field), true},
        NT_NCCL_OPTIONAL(X)
#undef X
};

int nt_nccl_open(struct nt_nccl *n, struct nt_err *err)
{
    const char *name = getenv(NT_ENV_NCCL_LIB);
    if (name == NULL || *name == '\0') {
        name = "libnccl.so.2";
    }
    /* Global, because NCCL's own plugins may look for its symbols. */
    n->lib = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (n->lib == NULL) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "no NCCL: %s; install libnccl2, or set %s to the path of libnccl.so.2",
                       dlerror(), NT_ENV_NCCL_LIB);
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *symbol = dlsym(n->lib, functions[i].symbol);
        if (symbol == NULL && !functions[i].optional) {
            return nt_fail(err, NT_E_MISSING, 0, "%s has no %s; NCCL 2.21 or later is needed", name,
                           functions[i].symbol);
        }
        memcpy((char *)n + functions[i].at, &symbol, sizeof(symbol));
    }
    loaded_from(n->lib, name, n->file, sizeof(n->file));
    return nt_nccl_check(n, NULL, 0, n->GetVersion(&n->version), "version", err);
}

int nt_nccl_check(const struct nt_nccl *n, struct ncclComm *comm, unsigned rank, int result,
                  const char *what, struct nt_err *err)
{
    const char *last;
    if (result == NT_NCCL_SUCCESS) {
        return 0;
    }
    last = n->GetLastError(comm);
    return nt_fail(err, NT_E_IO, 0, "%s on rank %u: %s%s%s", what, rank, n->GetErrorString(result),
                   last != NULL && *last != '\0' ? ": " : "", last != NULL ? last : "");
}

int nt_nccl_dtype(const struct nt_nccl *n, enum nt_dtype t, int *ret, struct nt_err *err)
{
    static const struct {
        int number, since;
    } rows[NT_DTYPE_COUNT] = {[NT_BF16] = {NT_NCCL_BF16, 0},
                              [NT_FP32] = {NT_NCCL_FP32, 0},
                              [NT_FP16] = {NT_NCCL_FP16, 0},
                              [NT_INT32] = {NT_NCCL_INT32, 0},
                              [NT_FP8] = {NT_NCCL_FP8_E4M3, NT_NCCL_FP8_SINCE}};
    if (n->version < rows[t].since) {
        return nt_fail(err, NT_E_MISSING, 0, "NCCL %d has no %s, it came with %d", n->version,
                       nt_dtype_names[t], rows[t].since);
    }
    *ret = rows[t].number;
    return 0;
}
