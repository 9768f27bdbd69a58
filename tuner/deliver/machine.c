#include "tuner/deliver/machine.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include "tuner/deliver/safe.h"

static void first_line(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    if (f != NULL) {
        if (fgets(out, (int)size, f) == NULL) {
            out[0] = '\0';
        }
        (void)fclose(f);
    }
    out[strcspn(out, "\n")] = '\0';
}

void nt_machine_driver(char *out, size_t size)
{
    char line[256];

    first_line("/proc/driver/nvidia/version", line, sizeof(line));
    nt_driver_version(line, out, size);
}

void nt_machine_read(const struct nt_machine_opts *opts, const struct nt_command_line *command,
                     struct nt_machine *ret)
{
    struct utsname u;
    char folder[PATH_MAX], cache[PATH_MAX + 16];
    bool has_cache;
    int rc;

    *ret = (struct nt_machine){.topology = NULL};
    if (opts->topology != NULL) {
        rc = nt_topology_read_file(opts->topology, &ret->topology, &ret->why);
    } else {
        rc = nt_topology_read_live(&(struct nt_live_opts){.root = opts->root, .nvml = opts->nvml},
                                   &ret->topology, &ret->why);
    }
    if (rc != 0) {
        ret->topology = NULL;
    }
    ret->clocks = nt_clocks_read(opts->nvml, ret->driver, ret->cuda);
    if (ret->driver[0] == '\0') {
        nt_machine_driver(ret->driver, sizeof(ret->driver));
    }
    if (uname(&u) == 0) {
        (void)snprintf(ret->kernel, sizeof(ret->kernel), "%.79s", u.release);
        (void)snprintf(ret->host, sizeof(ret->host), "%.79s", u.nodename);
    }
    first_line("/proc/sys/kernel/random/boot_id", ret->boot_id, sizeof(ret->boot_id));
    if (command != NULL) {
        has_cache = nt_state_folder("cache", folder, sizeof(folder), NULL) == 0;
        (void)snprintf(cache, sizeof(cache), "%s/libraries.json", folder);
        nt_libraries_find(command, has_cache ? cache : NULL, &ret->nccl);
    }
}

void nt_machine_done(struct nt_machine *m)
{
    nt_topology_free(m->topology);
    json_decref(m->clocks);
    m->topology = NULL;
    m->clocks = NULL;
}

json_t *nt_machine_json(const struct nt_machine *m)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "driver", m->driver, "cuda", m->cuda,
                          "kernel", m->kernel, "host", m->host, "boot_id", m->boot_id, "nccl",
                          nt_libraries_json(&m->nccl));
    json_t *health = json_array();

    if (m->topology != NULL) {
        (void)json_object_set_new(o, "identity", nt_identity_json(&m->topology->identity));
        for (int i = 0; i < m->topology->nfindings; i++) {
            const struct nt_finding *f = &m->topology->findings[i];
            (void)json_array_append_new(
                health, json_pack("{s:s, s:b, s:s, s:s}", "finding", nt_finding_names[f->kind],
                                  "unhealthy", f->unhealthy, "device", f->device, "text", f->text));
        }
    }
    (void)json_object_set_new(o, "health", health);
    if (m->clocks != NULL) {
        (void)json_object_set(o, "clocks", m->clocks);
    }
    return o;
}
