#include "tuner/launch/shm_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "/dev/shm/"
#define PREFIX FOLDER "nccl-"

void nt_shm_names_line(struct nt_shm_names *s, const char *line)
{
    const char *at = strstr(line, " " PREFIX), *name;
    size_t len;

    if (at == NULL) {
        return;
    }
    name = at + 1 + strlen(FOLDER);
    len = strcspn(name, " \n/"); /* " (deleted)" follows a name that is gone */
    if (len >= NT_SHM_NAME_MAX || (name[len] != '\n' && name[len] != '\0') ||
        s->count == NT_SHM_NAMES) {
        return;
    }
    for (size_t i = 0; i < s->count; i++) {
        if (strlen(s->name[i]) == len && memcmp(s->name[i], name, len) == 0) {
            return;
        }
    }
    if (s->name == NULL) {
        s->name = calloc(NT_SHM_NAMES, sizeof(s->name[0]));
    }
    if (s->name != NULL) {
        memcpy(s->name[s->count], name, len);
        s->name[s->count++][len] = '\0';
    }
}

void nt_shm_names_read(struct nt_shm_names *s, pid_t pid)
{
    char path[64], line[4096];
    FILE *in;

    (void)snprintf(path, sizeof(path), "/proc/%ld/maps", (long)pid);
    in = pid > 0 ? fopen(path, "re") : NULL;
    while (in != NULL && fgets(line, sizeof(line), in) != NULL) {
        nt_shm_names_line(s, line);
    }
    if (in != NULL) {
        (void)fclose(in);
    }
}

size_t nt_shm_names_unlink(struct nt_shm_names *s)
{
    size_t removed = 0;

    for (size_t i = 0; i < s->count; i++) {
        char path[sizeof(FOLDER) + NT_SHM_NAME_MAX];
        (void)snprintf(path, sizeof(path), FOLDER "%s", s->name[i]);
        removed += unlink(path) == 0;
    }
    free(s->name);
    *s = (struct nt_shm_names){0};
    return removed;
}
