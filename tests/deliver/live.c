/* A process that has a communicator as NCCL makes one: loads the plugins that the environment
 * names, makes a communicator of 8 ranks, asks for the variables named on the command line, makes
 * some calls, says "ready" and lives until its standard input ends. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/plugin/host.h"

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

int main(int argc, char **argv)
{
    struct host h;
    struct host_call call = {.abi = 5, .coll = NT_TABLE_ALL_REDUCE, .bytes = 16384};
    void *ctx = NULL;
    char byte;

    for (int i = 1; i < argc; i++) { /* NAME=VALUE: as a program that sets variables itself */
        if (strchr(argv[i], '=') != NULL) {
            (void)putenv(argv[i]);
        }
    }
    if (ask_env(argc, argv) != 0) {
        return 1;
    }
    if (getenv("NCCL_TUNER_PLUGIN") != NULL) {
        host_open(&h);
        if (host_init(&h, 5, 8, 1, &ctx) != NT_NCCL_SUCCESS) {
            return 1;
        }
        for (int i = 0; i < 3; i++) {
            if (host_ask(&h, ctx, &call) != NT_NCCL_SUCCESS) {
                return 1;
            }
        }
    }
    (void)puts("ready");
    (void)fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return ctx != NULL && host_end(&h, 5, ctx) != NT_NCCL_SUCCESS;
}
