/*
 * The env plugin: answers NCCL's questions for variables from the delivery file, everything else
 * from the environment, and writes down what was asked and told.
 *
 * A value that the user set wins unless the assignment says "override". Debug names are asked
 * before any plugin is there and are in no delivery file.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "profiles/plugin/process.h"

/* The file's assignments, in its order (sorted by name). Filled in init, then only read. */
struct var {
    char name[NT_TABLE_MAX_NAME + 1];
    const char *value; /* lives in the mapped file */
    bool override;
};
static struct var vars[NT_TABLE_MAX_VARS];
static size_t nvars;
static const struct nt_process *process; /* NULL: told nothing */

static const struct var *find(const char *name)
{
    size_t low = 0, high = nvars;
    while (low < high) {
        size_t mid = (low + high) / 2;
        int d = strcmp(name, vars[mid].name);
        if (d == 0) {
            return &vars[mid];
        }
        low = d > 0 ? mid + 1 : low;
        high = d < 0 ? mid : high;
    }
    return NULL;
}

static const char *get_env(const char *name)
{
    const struct nt_process *p = __atomic_load_n(&process, __ATOMIC_ACQUIRE);
    const char *user = getenv(name);
    const struct var *v;
    enum nt_receipt_told told = user != NULL ? NT_TOLD_USER : NT_TOLD_UNSET;
    const char *answer = user;

    if (p == NULL) {
        return user;
    }
    v = find(name);
    if (v != NULL && user != NULL && strcmp(user, v->value) == 0) {
        told = NT_TOLD_SAME;
    } else if (v != NULL && user != NULL && !v->override) {
        told = NT_TOLD_KEPT;
    } else if (v != NULL) {
        told = user != NULL ? NT_TOLD_OVERRODE : NT_TOLD_PROFILE;
        answer = v->value;
    }
    nt_receipt_add_name(p->receipt, name, told);
    return answer;
}

static void take_vars(const struct nt_table *t)
{
    struct nt_table_var_text text;
    size_t at = 0;

    nvars = 0;
    while (nt_table_next_var(t, &at, &text)) {
        memcpy(vars[nvars].name, text.name, sizeof(text.name));
        vars[nvars].value = text.value;
        vars[nvars++].override = text.override;
    }
}

/* As NCCL does it: the text as it is, then, if it is no file's name, as part of one. */
static void *open_tuner(const char *name)
{
    char longer[512];
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);

    if (lib == NULL && strchr(name, '/') == NULL && strncmp(name, "lib", 3) != 0) {
        (void)snprintf(longer, sizeof(longer), "libnccl-tuner-%s.so", name);
        lib = dlopen(longer, RTLD_NOW | RTLD_LOCAL);
    }
    return lib;
}

/* NCCL goes on without a tuner plugin that it cannot load, so a rank would be left on defaults
 * beside ranks that have the rows. Here it can still be stopped. A plugin that is another's, or
 * none by wish, is seen by those who wait for this rank, and by doctor. */
static int check_tuner(const struct nt_process *p, nt_logger log)
{
    const char *name = getenv("NCCL_TUNER_PLUGIN");
    void *lib;

    if (p->table.nrows == 0 || name == NULL || name[0] == '\0' || strcasecmp(name, "none") == 0 ||
        strncasecmp(name, "STATIC_PLUGIN", 13) == 0) {
        return NT_NCCL_SUCCESS;
    }
    lib = open_tuner(name);
    if (lib == NULL) {
        const char *why = dlerror();
        nt_say_error(log,
                     "profile %s cannot be honoured: its table needs the tuner plugin, and "
                     "NCCL_TUNER_PLUGIN=%.200s cannot be loaded: %.300s",
                     p->hash, name, why != NULL ? why : "");
        return NT_NCCL_INVALID_USAGE;
    }
    (void)dlclose(lib);
    return NT_NCCL_SUCCESS;
}

static int init(unsigned version, nt_logger log, const void *caller)
{
    const struct nt_process *p = NULL;
    Dl_info info;
    int rc;

    if (nt_process_disabled() || __atomic_load_n(&process, __ATOMIC_ACQUIRE) != NULL) {
        return NT_NCCL_SUCCESS;
    }
    rc = nt_process_get(NT_RECEIPT_ENV, log, &p);
    if (rc != NT_NCCL_SUCCESS || p->told == NT_TOLD_NOTHING) {
        return rc;
    }
    rc = check_tuner(p, log);
    if (rc != NT_NCCL_SUCCESS) {
        return rc;
    }
    nt_receipt_set_nccl(p->receipt, version, dladdr(caller, &info) != 0 ? info.dli_fname : NULL);
    take_vars(&p->table);
    __atomic_store_n(&process, p, __ATOMIC_RELEASE);
    nt_say_info(log, "nccltune: profile %s: %zu variables", p->hash, nvars);
    return NT_NCCL_SUCCESS;
}

/* NCCL's own numbering since 2.9. */
static unsigned version_of(uint8_t major, uint8_t minor, uint8_t patch)
{
    return major * 10000U + minor * 100U + patch;
}

static int init_v1(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix)
{
    (void)suffix;
    return init(version_of(major, minor, patch), NULL, __builtin_return_address(0));
}

static int init_v2(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix, nt_logger log)
{
    (void)suffix;
    return init(version_of(major, minor, patch), log, __builtin_return_address(0));
}

static int finalize(void)
{
    return NT_NCCL_SUCCESS; /* at exit, while other threads may still ask: nothing is taken away */
}

NT_EXPORT extern const struct nt_env_v1 ncclEnvPlugin_v1;
NT_EXPORT extern const struct nt_env_v2 ncclEnvPlugin_v2;

const struct nt_env_v1 ncclEnvPlugin_v1 = {"nccltune", init_v1, finalize, get_env};
const struct nt_env_v2 ncclEnvPlugin_v2 = {"nccltune", init_v2, finalize, get_env};
