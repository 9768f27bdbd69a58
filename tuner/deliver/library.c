#include "tuner/deliver/library.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tuner/base/json.h"

const char *nt_env_get(const char *const *env, const char *name)
{
    size_t len = strlen(name);
    for (; env != NULL && *env != NULL; env++) {
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') {
            return *env + len + 1;
        }
    }
    return NULL;
}

bool nt_find_program(const struct nt_command_line *c, char *out, size_t size)
{
    const char *name = c->argv[0], *path = nt_env_get(c->env, "PATH");

    if (strchr(name, '/') != NULL) {
        (void)snprintf(out, size, "%s", name);
        return access(out, X_OK) == 0;
    }
    path = path != NULL ? path : "/usr/bin:/bin";
    for (; *path != '\0'; path += *path == ':') {
        size_t len = strcspn(path, ":");
        struct stat st;
        int n = snprintf(out, size, "%.*s/%s", (int)len, len > 0 ? path : ".", name);
        if (n > 0 && (size_t)n < size && access(out, X_OK) == 0 && stat(out, &st) == 0 &&
            S_ISREG(st.st_mode)) {
            return true;
        }
        path += len;
    }
    return false;
}

static bool is_python(const char *path)
{
    const char *base = strrchr(path, '/');
    base = base != NULL ? base + 1 : path;
    return strncmp(base, "python", 6) == 0 && base[6 + strspn(base + 6, "0123456789.")] == '\0';
}

void nt_find_python(const struct nt_command_line *c, char *out, size_t size)
{
    char program[PATH_MAX], line[512] = "";
    const char *const *env = c->env;

    out[0] = '\0';
    if (!nt_find_program(c, program, sizeof(program))) {
        return;
    }
    if (!is_python(program)) {
        int fd = open(program, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        ssize_t n = fd >= 0 ? read(fd, line, sizeof(line) - 1) : -1;
        char *word, *rest = NULL;
        if (fd >= 0) {
            (void)close(fd);
        }
        line[n > 0 ? n : 0] = '\0';
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "#!", 2) != 0) {
            return;
        }
        word = strtok_r(line + 2, " \t", &rest);
        if (word != NULL && strcmp(word, "/usr/bin/env") == 0) {
            word = strtok_r(NULL, " \t", &rest);
        }
        if (word == NULL || !is_python(word)) {
            return;
        }
        const char *argv[] = {word, NULL};
        if (!nt_find_program(&(struct nt_command_line){argv, env}, program, sizeof(program))) {
            return;
        }
    }
    (void)snprintf(out, size, "%s", program);
}

void nt_library_version(const void *data, size_t len, char *out, size_t size)
{
    static const char mark[] = "NCCL version ";
    const char *p = data, *end = p + len;

    out[0] = '\0';
    while (p < end && (p = memmem(p, (size_t)(end - p), mark, sizeof(mark) - 1)) != NULL) {
        size_t n = 0;
        p += sizeof(mark) - 1;
        while (p + n < end && n + 1 < size && ((p[n] >= '0' && p[n] <= '9') || p[n] == '.')) {
            n++;
        }
        if (n >= 5 && p + n < end && (p[n] == '+' || p[n] == '\0' || p[n] == ' ')) {
            memcpy(out, p, n);
            out[n] = '\0';
            return;
        }
    }
}

/* ---- hashes already taken ---- */

/* What must be as it was for a hash to hold. */
static void stamp(const struct stat *st, char *out, size_t size)
{
    (void)snprintf(out, size, "%llu:%llu:%lld:%lld.%09ld", (unsigned long long)st->st_dev,
                   (unsigned long long)st->st_ino, (long long)st->st_size,
                   (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
}

static bool from_cache(const json_t *cache, const char *stamped, struct nt_library *l)
{
    const json_t *o = json_object_get(cache, l->path);
    if (o == NULL || strcmp(nt_json_opt_str(o, "stamp", ""), stamped) != 0) {
        return false;
    }
    (void)snprintf(l->sha256, sizeof(l->sha256), "%s", nt_json_opt_str(o, "sha256", ""));
    (void)snprintf(l->version, sizeof(l->version), "%s", nt_json_opt_str(o, "version", ""));
    return l->sha256[0] != '\0';
}

static void look_into(struct nt_library *l, json_t *cache, bool *dirty)
{
    char stamped[128];
    struct stat st;
    void *m = MAP_FAILED;
    int fd = open(l->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        stamp(&st, stamped, sizeof(stamped));
        if (!from_cache(cache, stamped, l)) {
            m = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        }
    }
    (void)close(fd);
    if (m != MAP_FAILED) {
        nt_library_version(m, (size_t)st.st_size, l->version, sizeof(l->version));
        nt_sha256_hex(m, (size_t)st.st_size, l->sha256);
        (void)munmap(m, (size_t)st.st_size);
        (void)json_object_set_new(cache, l->path,
                                  json_pack("{s:s, s:s, s:s}", "stamp", stamped, "sha256",
                                            l->sha256, "version", l->version));
        *dirty = true;
    }
}

/* ---- candidates ---- */

static void add(struct nt_libraries *l, const char *path, const char *why)
{
    char real[PATH_MAX];
    struct stat st;

    if (l->n == NT_LIBRARIES || realpath(path, real) == NULL || stat(real, &st) != 0 ||
        !S_ISREG(st.st_mode) || strlen(real) >= sizeof(l->v[0].path)) {
        return;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->v[i].path, real) == 0) {
            return;
        }
    }
    memset(&l->v[l->n], 0, sizeof(l->v[0]));
    memcpy(l->v[l->n].path, real, strlen(real) + 1); /* seen above to fit */
    (void)snprintf(l->v[l->n].why, sizeof(l->v[0].why), "%s", why);
    l->n++;
}

static void add_listed(struct nt_libraries *l, const char *list, const char *why, bool folders)
{
    char path[PATH_MAX];
    for (; list != NULL && *list != '\0'; list += *list != '\0') {
        size_t len = strcspn(list, folders ? ":" : ": ");
        bool ours = memmem(list, len, "libnccl.so", strlen("libnccl.so")) != NULL;
        (void)snprintf(path, sizeof(path), "%.*s%s", (int)len, list,
                       folders ? "/libnccl.so.2" : "");
        if (len > 0 && (folders || ours)) {
            add(l, path, why);
        }
        list += len;
    }
}

/* The wheel beside the interpreter, below its PREFIX/lib. */
static void add_python(struct nt_libraries *l, const struct nt_command_line *c)
{
    char python[PATH_MAX], pattern[PATH_MAX + 80], *slash;
    glob_t found;

    nt_find_python(c, python, sizeof(python));
    for (int up = 0; up < 2 && python[0] != '\0'; up++) { /* PREFIX/bin/python → PREFIX */
        slash = strrchr(python, '/');
        if (slash == NULL) {
            return;
        }
        *slash = '\0';
    }
    if (python[0] == '\0') {
        return;
    }
    (void)snprintf(pattern, sizeof(pattern),
                   "%s/lib/python3*/{site,dist}-packages/nvidia/nccl/lib/libnccl.so.2", python);
    if (glob(pattern, GLOB_BRACE, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            add(l, found.gl_pathv[i], "the interpreter's site-packages");
        }
        globfree(&found);
    }
}

void nt_libraries_find(const struct nt_command_line *c, const char *cache, struct nt_libraries *ret)
{
    static const char system[] = "/lib/x86_64-linux-gnu:/lib/aarch64-linux-gnu:/lib64:/usr/lib64:"
                                 "/usr/local/lib:/usr/local/cuda/lib64";
    json_t *known = NULL;
    bool dirty = false;
    struct nt_buf text;

    *ret = (struct nt_libraries){.n = 0};
    add_listed(ret, nt_env_get(c->env, "LD_PRELOAD"), "LD_PRELOAD", false);
    add_python(ret, c);
    add_listed(ret, nt_env_get(c->env, "LD_LIBRARY_PATH"), "LD_LIBRARY_PATH", true);
    add_listed(ret, system, "the system's folders", true);
    if (cache == NULL || nt_json_load(cache, 1 << 20, &known, NULL) != 0 ||
        !json_is_object(known)) {
        json_decref(known);
        known = json_object();
    }
    for (size_t i = 0; i < ret->n; i++) {
        look_into(&ret->v[i], known, &dirty);
    }
    if (cache != NULL && dirty) { /* without the cache the next run takes a second longer */
        nt_buf_init(&text, 1 << 20);
        nt_json_dump(known, true, &text);
        (void)(nt_write_file(cache, text.data, text.len, 0600, NULL) == 0);
        nt_buf_done(&text);
    }
    json_decref(known);
}

json_t *nt_libraries_json(const struct nt_libraries *l)
{
    json_t *list = json_array();
    for (size_t i = 0; i < l->n; i++) {
        (void)json_array_append_new(
            list, json_pack("{s:o, s:s, s:s, s:s}", "path", nt_json_text(l->v[i].path), "found",
                            l->v[i].why, "version", l->v[i].version, "sha256", l->v[i].sha256));
    }
    return list;
}
