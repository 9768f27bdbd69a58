#include "tuner/cli/where.h"
#include "tuner/base/text.h"
#include "tuner/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Folder of the running program, without the slash; "." when it cannot be told. */
static void own_dir(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    char *slash;

    (void)snprintf(out + (n > 0 ? n : 0), size - (size_t)(n > 0 ? n : 0), "%s",
                   n > 0 ? "" : "./nccltune");
    slash = strrchr(out, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
}

/* The first of the patterns, with %s the program's folder and the name, that exists. */
static bool first_of(const char *const *patterns, const char *name, char *out, size_t size)
{
    char dir[PATH_MAX], joined[2 * PATH_MAX];

    own_dir(dir, sizeof(dir));
    for (; *patterns != NULL; patterns++) {
        const char *p = *patterns;
        size_t n = 0;
        for (; *p != '\0' && n + 1 < sizeof(joined); p++) {
            if (*p == '@' || *p == '*') {
                n += (size_t)snprintf(joined + n, sizeof(joined) - n, "%s", *p == '@' ? dir : name);
            } else {
                joined[n++] = *p;
            }
        }
        joined[n < sizeof(joined) ? n : sizeof(joined) - 1] = '\0';
        if (access(joined, R_OK) == 0) {
            char real[PATH_MAX];
            return realpath(joined, real) != NULL && snprintf(out, size, "%s", real) < (int)size;
        }
    }
    return false;
}

int nt_where_probe(const char *kind, char *out, size_t size, struct nt_err *err)
{
    static const char *const patterns[] = {"@/../libexec/nccltune/nccltune-probe-*",
                                           "@/../../probes/*/nccltune-probe-*", NULL};
    if (!first_of(patterns, kind, out, size)) {
        return nt_fail(err, NT_E_MISSING, 0, "the probe nccltune-probe-%s is not installed%s", kind,
                       strcmp(kind, "nccl") == 0 ? ": it is built where CUDA and NCCL's header are "
                                                   "found; try a recording (--rig recording:NAME)"
                                                 : "");
    }
    return 0;
}

int nt_where_agent(char *out, size_t size, struct nt_err *err)
{
    static const char *const patterns[] = {"@/../libexec/nccltune/nccltune-*",
                                           "@/../launch/nccltune-*", NULL};
    return first_of(patterns, "agent", out, size)
               ? 0
               : nt_fail(err, NT_E_MISSING, 0, "nccltune-agent is not installed");
}

int nt_where_self(char *out, size_t size, struct nt_err *err)
{
    static const char *const patterns[] = {"@/*", NULL};
    return first_of(patterns, "nccltune", out, size)
               ? 0
               : nt_fail(err, NT_E_MISSING, 0, "the path of nccltune cannot be told");
}

int nt_where_plugin(const char *kind, char *out, size_t size, struct nt_err *err)
{
    static const char *const patterns[] = {
        "@/../lib/nccltune/libnccl-*-nccltune.so",
        "@/../lib/x86_64-linux-gnu/nccltune/libnccl-*-nccltune.so",
        "@/../lib/aarch64-linux-gnu/nccltune/libnccl-*-nccltune.so",
        "@/../lib64/nccltune/libnccl-*-nccltune.so",
        "@/../../profiles/plugin/libnccl-*-nccltune.so",
        NULL};
    if (!first_of(patterns, kind, out, size)) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "libnccl-%s-nccltune.so is not installed beside this program", kind);
    }
    return 0;
}

#define SUFFIX ".csv.gz"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int fail_recording(const char *name, const char *dir, struct nt_err *err)
{
    static char names[64][128]; /* for the message only */
    const char *list[65] = {NULL};
    struct dirent *e;
    size_t n = 0;
    DIR *d = opendir(dir);

    while (d != NULL && n < 64 && (e = readdir(d)) != NULL) {
        size_t len = strlen(e->d_name);
        if (len > strlen(SUFFIX) && len < sizeof(names[0]) &&
            strcmp(e->d_name + len - strlen(SUFFIX), SUFFIX) == 0) {
            (void)snprintf(names[n], sizeof(names[0]), "%.*s", (int)(len - strlen(SUFFIX)),
                           e->d_name);
            list[n] = names[n];
            n++;
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    qsort((void *)list, n, sizeof(list[0]), by_text); /* NOLINT: pointers are sorted */
    for (size_t i = 0; i < n && name[0] == '\0'; i++) {
        (void)fprintf(stderr, "recording:%s\n", list[i]);
    }
    if (n > 0 && name[0] == '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "which recording? Those that are here are named above");
    }
    return n > 0 ? nt_fail_name(err, "recording", name, list)
                 : nt_fail(err, NT_E_INVAL, 0, "no recording '%s', and none is installed", name);
}

int nt_where_recording(const char *name, char *out, size_t size, struct nt_err *err)
{
    static const char *const by_name[] = {"@/../share/nccltune/recordings/*" SUFFIX,
                                          "@/../../../../probes/recordings/*" SUFFIX, NULL};
    static const char *const folders[] = {"@/../share/nccltune/recordings",
                                          "@/../../../../probes/recordings", NULL};
    char dir[PATH_MAX] = "";

    if (strchr(name, '/') != NULL || access(name, R_OK) == 0) {
        if (access(name, R_OK) != 0 || realpath(name, dir) == NULL ||
            snprintf(out, size, "%s", dir) >= (int)size) {
            return nt_fail(err, NT_E_INVAL, 0, "recording %s cannot be read", name);
        }
        return 0;
    }
    if (first_of(by_name, name, out, size)) {
        return 0;
    }
    (void)first_of(folders, "", dir, sizeof(dir));
    return fail_recording(name, dir, err);
}

/* The folders of the usual place are made when the job begins: then the first one that is missing
 * is tried. */
static int try_database(const char *given, struct nt_err *err)
{
    const char *named = given != NULL ? given : getenv("NCCLTUNE_DB");
    char path[PATH_MAX], *slash;
    int rc = nt_store_default_path(given, false, path, sizeof(path), err);

    if (rc == 0 && (named == NULL || (given == NULL && named[0] == '\0'))) {
        while ((slash = strrchr(path, '/')) != NULL && slash != path) {
            *slash = '\0';
            if (access(path, F_OK) == 0) {
                *slash = '/';
                break;
            }
        }
    }
    return rc == 0 ? nt_store_try(path, err) : rc;
}

int nt_where_out(const char *out, const char *db, int *ret_hold, struct nt_err *err)
{
    struct stat st;
    char path[PATH_MAX];
    int rc;

    *ret_hold = -1;
    if (nt_store_default_path(db, false, path, sizeof(path), NULL) == 0 && strcmp(path, out) == 0) {
        return nt_fail(err, NT_E_INVAL, 0, "--out %.200s is the database: give another name", out);
    }
    if (out[0] == '\0' || (stat(out, &st) == 0 && S_ISDIR(st.st_mode))) {
        return nt_fail(err, NT_E_INVAL, 0, "--out '%.200s' is no name for a file", out);
    }
    rc = nt_write_try(out, ret_hold, err);
    return rc != 0 ? nt_wrap(err, rc, "--out %.200s: nothing can be written there", out)
                   : try_database(db, err);
}
