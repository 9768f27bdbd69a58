/* A process that has a communicator as NCCL makes one: loads the plugins that the environment
 * names, makes a communicator of 8 ranks, asks for the variables named on the command line, makes
 * some calls, says "ready" and lives until its standard input ends. Of its words NAME=VALUE is set
 * before, later:NAME=VALUE between its first communicator and a second one; with ranks:N it has N
 * of the communicator's ranks, as a process with N GPUs. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/plugin/host.h"

enum { RANKS = 8 };

static int ask_env(int argc, char **argv)
{
    const char *path = getenv("NCCL_ENV_PLUGIN");
    void *lib = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct nt_env_v2 *env = lib != NULL ? dlsym(lib, "ncclEnvPlugin_v2") : NULL;

    if (env == NULL) {
        return 0;
    }
    if (env->init(2, 28, 9, "", host_logger) != NT_NCCL_SUCCESS) {
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        (void)env->get_env(argv[i]);
    }
    return 0;
}

static const char later[] = "later:";

/* As a program that sets variables itself. True: there were some. */
static bool assign(char **argv, bool is_late)
{
    bool any = false;
    for (; *argv != NULL; argv++) {
        bool marked = strncmp(*argv, later, sizeof(later) - 1) == 0;
        if (marked == is_late && strchr(*argv, '=') != NULL) {
            (void)putenv(*argv + (is_late ? sizeof(later) - 1 : 0));
            any = true;
        }
    }
    return any;
}

static int ranks_here(char **argv)
{
    int n = 1;
    for (; *argv != NULL; argv++) {
        n = strncmp(*argv, "ranks:", 6) == 0 ? (int)strtol(*argv + 6, NULL, 10) : n;
    }
    return n >= 1 && n <= RANKS ? n : 1;
}

static int communicate(const struct host *h, void **ctx)
{
    struct host_call call = {.abi = 5, .coll = NT_TABLE_ALL_REDUCE, .bytes = 16384};

    if (host_init(h, 5, RANKS, 1, ctx) != NT_NCCL_SUCCESS) {
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        if (host_ask(h, *ctx, &call) != NT_NCCL_SUCCESS) {
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct host h;
    void *ctx[RANKS + 1] = {NULL};
    char byte;

    (void)assign(argv + 1, false);
    if (ask_env(argc, argv) != 0) {
        return 1;
    }
    if (getenv("NCCL_TUNER_PLUGIN") != NULL) {
        host_open(&h);
        for (int i = 0; i < ranks_here(argv + 1); i++) {
            if (communicate(&h, &ctx[i]) != 0) {
                return 1;
            }
        }
        if (assign(argv + 1, true) && communicate(&h, &ctx[RANKS]) != 0) {
            return 1;
        }
    }
    (void)puts("ready");
    (void)fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    for (int i = 0; i <= RANKS; i++) {
        if (ctx[i] != NULL && host_end(&h, 5, ctx[i]) != NT_NCCL_SUCCESS) {
            return 1;
        }
    }
    return 0;
}
