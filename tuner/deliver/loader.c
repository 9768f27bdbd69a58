/* Looks for the Python loader where a process's interpreter would. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tuner/deliver/scan.h"

static const char *const names[] = {"nccltune.pth", "nccltune.start"};

struct search {
    const char *root;
    bool packages; /* a folder of packages was seen */
    bool found;
};

static void look_into(struct search *s, const char *folder)
{
    char path[PATH_MAX];

    if (access(folder, X_OK) != 0) {
        return;
    }
    s->packages = true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, names[i]) < sizeof(path)) {
            s->found = s->found || access(path, F_OK) == 0;
        }
    }
}

/* site-packages and dist-packages of every Python below the prefix. */
static void look_below(struct search *s, const char *prefix)
{
    static const char *const libs[] = {"lib", "lib64"}, *const kinds[] = {"site", "dist"};
    char lib[PATH_MAX], folder[PATH_MAX + NAME_MAX + 32];

    for (size_t i = 0; i < 2; i++) {
        struct dirent *e;
        DIR *d = NULL;
        if ((size_t)snprintf(lib, sizeof(lib), "%s%s/%s", s->root, prefix, libs[i]) < sizeof(lib)) {
            d = opendir(lib);
        }
        while (d != NULL && (e = readdir(d)) != NULL) {
            for (size_t k = 0; k < 2 && strncmp(e->d_name, "python3", 7) == 0; k++) {
                (void)snprintf(folder, sizeof(folder), "%s/%s/%s-packages", lib, e->d_name,
                               kinds[k]);
                look_into(s, folder);
            }
        }
        if (d != NULL) {
            (void)closedir(d);
        }
    }
}

/* The folder above the one of a program: /venv of /venv/bin/python3. */
static void look_from(struct search *s, const char *program)
{
    char prefix[PATH_MAX];
    if (program == NULL || program[0] != '/' || strlen(program) >= sizeof(prefix)) {
        return;
    }
    memcpy(prefix, program, strlen(program) + 1);
    for (int up = 0; up < 2; up++) {
        *strrchr(prefix, '/') = '\0';
        if (prefix[0] == '\0') {
            return;
        }
    }
    look_below(s, prefix);
    if (strcmp(prefix, "/usr") == 0) {
        look_below(s, "/usr/local");
    }
}

static void look_along(struct search *s, const char *path)
{
    char loader[PATH_MAX];
    while (path != NULL && *path != '\0') {
        size_t len = strcspn(path, ":");
        if (path[0] == '/' && (size_t)snprintf(loader, sizeof(loader), "%s%.*s/nccltune_loader.py",
                                               s->root, (int)len, path) < sizeof(loader)) {
            s->found = s->found || access(loader, F_OK) == 0;
        }
        path += len + (path[len] == ':');
    }
}

/* The interpreter as it was called: a virtual environment's is a link, which exe has followed.
 * False: the first word is no program any more, as where a process has named itself. */
static bool called(const char *root, const struct nt_proc *p, const char *cwd, char *out,
                   size_t size)
{
    const char *word = nt_proc_word(p, 0), *path = nt_proc_env(p, "PATH");
    char program[PATH_MAX];

    if (word == NULL || word[0] == '\0') {
        return false;
    }
    if (word[0] == '/') {
        return (size_t)snprintf(out, size, "%s", word) < size;
    }
    if (strchr(word, '/') != NULL) {
        return cwd[0] == '/' && (size_t)snprintf(out, size, "%s/%s", cwd, word) < size;
    }
    for (size_t len; path != NULL && *path != '\0'; path += len + (path[len] == ':')) {
        len = strcspn(path, ":");
        if (path[0] == '/' && (size_t)snprintf(out, size, "%.*s/%s", (int)len, path, word) < size &&
            (size_t)snprintf(program, sizeof(program), "%s%s", root, out) < sizeof(program) &&
            access(program, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

enum nt_doctor_loader nt_scan_loader(const char *root, const struct nt_proc *p, const char *exe,
                                     const char *cwd)
{
    struct search s = {.root = strcmp(root, "/") == 0 ? "" : root};
    const char *venv = nt_proc_env(p, "VIRTUAL_ENV"), *home = nt_proc_env(p, "HOME");
    char user[PATH_MAX], program[PATH_MAX];
    bool known;

    if (p->uid != geteuid() || !p->environ_known) {
        return NT_LOADER_UNKNOWN;
    }
    known = called(s.root, p, cwd, program, sizeof(program));
    look_from(&s, known ? program : NULL);
    look_from(&s, exe);
    if (venv != NULL && venv[0] == '/') {
        look_below(&s, venv);
    }
    if (home != NULL && home[0] == '/' &&
        (size_t)snprintf(user, sizeof(user), "%s/.local", home) < sizeof(user)) {
        look_below(&s, user);
    }
    look_along(&s, nt_proc_env(p, "PYTHONPATH"));
    return s.found ? NT_LOADER_THERE : s.packages && known ? NT_LOADER_ABSENT : NT_LOADER_UNKNOWN;
}
