#include "tuner/deliver/made.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_noted(const struct nt_made *m, const char *path)
{
    for (size_t i = 0; i < m->n; i++) {
        if (strcmp(m->path[i], path) == 0) {
            return true;
        }
    }
    return false;
}

static void note(struct nt_made *m, const char *path)
{
    char **more = NULL, *copy = is_noted(m, path) ? NULL : strdup(path);

    if (copy != NULL) {
        more = realloc((void *)m->path, (m->n + 1) * sizeof(m->path[0]));
    }
    if (more == NULL) {
        free(copy); /* without memory it stays behind, empty */
        return;
    }
    m->path = more;
    m->path[m->n++] = copy;
}

void nt_made_note(struct nt_made *m, const char *root, const char *folder)
{
    char path[PATH_MAX];
    size_t len = root != NULL ? strlen(root) : 0;
    struct stat st;

    if ((size_t)snprintf(path, sizeof(path), "%s%s", root != NULL ? root : "", folder) >=
        sizeof(path)) {
        return;
    }
    for (char *p = path + len; p != NULL;) {
        p = strchr(p + 1, '/');
        if (p != NULL) {
            *p = '\0';
        }
        if (lstat(path, &st) != 0 && errno == ENOENT) {
            note(m, path); /* after those on the way to it */
        }
        if (p != NULL) {
            *p = '/';
        }
    }
}

void nt_made_take_away(const struct nt_made *m)
{
    for (size_t i = m->n; i > 0; i--) {
        (void)rmdir(m->path[i - 1]);
    }
}

void nt_made_done(struct nt_made *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->path[i]);
    }
    free((void *)m->path);
    *m = (struct nt_made){0};
}
