#include "tuner/service/look.h"
#include "tuner/deliver/library.h"
#include "tuner/deliver/machine.h"
#include "tuner/deliver/safe.h"
#include "tuner/topology/nvml.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { USERS_MAX = 128, DEPTH_MAX = 64 };

static void look_at_health(const struct nt_topology *t, struct nt_sight *s)
{
    for (int i = 0; i < t->nfindings && s->nfindings < NT_SIGHT_FINDINGS; i++) {
        const struct nt_finding *f = &t->findings[i];
        size_t n = s->nfindings++;
        (void)snprintf(s->finding[n].name, sizeof(s->finding[n].name), "%s",
                       nt_finding_names[f->kind]);
        (void)snprintf(s->finding[n].device, sizeof(s->finding[n].device), "%.47s", f->device);
        (void)snprintf(s->finding[n].text, sizeof(s->finding[n].text), "%.191s", f->text);
        s->finding[n].unhealthy = f->unhealthy;
    }
}

/* The libnccl of the rig that a change is tuned on, else what the loader finds. Its hash is kept in
 * a file: the library is large. */
static void look_at_nccl(const struct nt_config *c, struct nt_sight *s)
{
    static const char *const argv[] = {"nccltune", NULL};
    const struct nt_config_rig *rig = nt_config_rig(c, c->rig);
    char preload[NT_CONFIG_TEXT + 16], folder[PATH_MAX], cache[PATH_MAX + 16];
    const char *const chosen[] = {preload, NULL};
    struct nt_command_line command = {.argv = argv, .env = (const char *const *)(void *)environ};
    struct nt_libraries found = {.n = 0};
    bool has_cache = nt_state_folder("cache", folder, sizeof(folder), NULL) == 0;

    if (rig == NULL || (strncmp(rig->rig, "nccl", 4) != 0 && strncmp(rig->rig, "mps", 3) != 0)) {
        return; /* a recording or a model brings its own; without a rig nobody asks */
    }
    if (rig->nccl[0] != '\0') { /* as the loader would be told to take it */
        (void)snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", rig->nccl);
        command.env = chosen;
    }
    (void)snprintf(cache, sizeof(cache), "%s/libraries.json", folder);
    nt_libraries_find(&command, has_cache ? cache : NULL, &found);
    if (found.n > 0) {
        (void)snprintf(s->nccl, sizeof(s->nccl), "%s", found.v[0].version);
        (void)snprintf(s->nccl_sha256, sizeof(s->nccl_sha256), "%s", found.v[0].sha256);
    }
}

/* --- load ---------------------------------------------------------------------------------------
 */

static int parent_of(int pid)
{
    char path[64], line[512];
    const char *at;
    int parent = 0;
    FILE *f;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    f = fopen(path, "re");
    if (f == NULL) {
        return 0;
    }
    if (fgets(line, sizeof(line), f) != NULL && (at = strrchr(line, ')')) != NULL &&
        strlen(at) > 4) {
        parent = (int)strtol(at + 4, NULL, 10); /* ") S PARENT" */
    }
    (void)fclose(f);
    return parent;
}

static bool descends(int pid, int from)
{
    for (int i = 0; i < DEPTH_MAX && pid > 1; i++) {
        if (pid == from) {
            return true;
        }
        pid = parent_of(pid);
    }
    return false;
}

static void load_by_nvml(const struct nt_config *c, int parent, struct nt_sight *s)
{
    struct nt_nvml *n = NULL;
    if (nt_nvml_open(c->nvml[0] != '\0' ? c->nvml : NULL, &n, NULL) != 0) {
        return;
    }
    s->load_known = true;
    for (int i = 0; i < nt_nvml_count(n) && i < 64; i++) {
        struct nt_nvml_gpu g;
        unsigned pids[USERS_MAX];
        int users = nt_nvml_users(n, i, pids, USERS_MAX);
        if (nt_nvml_gpu(n, i, &g, NULL) == 0 &&
            (g.busy_percent > (int)c->idle_busy_percent || g.used_bytes > c->idle_memory_bytes)) {
            s->busy |= UINT64_C(1) << i;
        }
        for (int k = 0; k < users; k++) {
            if (!descends((int)pids[k], parent)) {
                s->foreign |= UINT64_C(1) << i;
                s->busy |= UINT64_C(1) << i;
            }
        }
    }
    nt_nvml_close(n);
}

/* "GPU PERCENT [foreign]" lines, for machines whose load something else knows. */
static void load_by_file(const struct nt_config *c, struct nt_sight *s)
{
    char line[128];
    FILE *f = fopen(c->load, "re");
    if (f == NULL) {
        return;
    }
    s->load_known = true;
    while (fgets(line, sizeof(line), f) != NULL) {
        char *at = line, *rest;
        unsigned long gpu = strtoul(at, &rest, 10), percent;
        if (rest == at || gpu > 63) {
            continue;
        }
        at = rest;
        percent = strtoul(at, &rest, 10);
        if (rest == at) {
            continue;
        }
        if (percent > c->idle_busy_percent) {
            s->busy |= UINT64_C(1) << gpu;
        }
        if (strstr(rest, "foreign") != NULL) {
            s->foreign |= UINT64_C(1) << gpu;
            s->busy |= UINT64_C(1) << gpu;
        }
    }
    (void)fclose(f);
}

void nt_look(const struct nt_config *c, int parent, struct nt_sight *ret)
{
    struct nt_machine m;
    *ret = (struct nt_sight){.seen = false};
    nt_machine_read(
        &(struct nt_machine_opts){.topology = c->topology[0] != '\0' ? c->topology : NULL,
                                  .nvml = c->nvml[0] != '\0' ? c->nvml : NULL},
        NULL, &m);
    if (m.topology != NULL) {
        ret->seen = true;
        ret->identity = m.topology->identity;
        look_at_health(m.topology, ret);
    } else {
        (void)snprintf(ret->why, sizeof(ret->why), "%.191s", m.why.msg);
    }
    (void)snprintf(ret->driver, sizeof(ret->driver), "%.23s", m.driver);
    (void)snprintf(ret->cuda, sizeof(ret->cuda), "%.15s", m.cuda);
    look_at_nccl(c, ret);
    if (c->load[0] != '\0') {
        load_by_file(c, ret);
    } else {
        load_by_nvml(c, parent, ret);
    }
    nt_machine_done(&m);
}
