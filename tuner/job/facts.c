#include "tuner/job/facts.h"
#include "tuner/base/json.h"
#include "tuner/topology/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void nt_facts_done(struct nt_facts *f)
{
    json_decref(f->groups);
    json_decref(f->health);
    json_decref(f->peers);
    json_decref(f->machines);
    free(f->topology_xml);
    *f = (struct nt_facts){0};
}

/* "2.28.9" of 22809, "13.0" of 13000. */
static void nccl_text(int v, char *out, size_t size)
{
    (void)snprintf(out, size, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}

/* "" of 0: a model has none. */
static void cuda_text(int v, char *out, size_t size)
{
    out[0] = '\0';
    if (v > 0) {
        (void)snprintf(out, size, "%d.%d", v / 1000, v % 1000 / 10);
    }
}

/* The display driver's own version ("580.159.04"), where the kernel module tells it; else what CUDA
 * says of it. */
static void driver_text(const struct nt_hello *hello, bool here, char *out, size_t size)
{
    struct nt_buf b;

    cuda_text(hello->driver, out, size);
    nt_buf_init(&b, 4096);
    if (here && nt_buf_read_file(&b, "/proc/driver/nvidia/version", NULL) == 0) {
        nt_driver_version(nt_buf_str(&b), out, size);
    }
    nt_buf_done(&b);
}

/* Lines "torch=VERSION" and "engine.NAME=VERSION" of what a rank says of itself: versions that did
 * not fit are left out whole. */
static void framework_text(const char *text, char *out, size_t size)
{
    static const char *const keys[] = {"torch", "engine."};
    size_t n = 0;

    out[0] = '\0';
    for (size_t len; *text != '\0'; text += len + (text[len] == '\n')) {
        len = strcspn(text, "\n");
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            size_t skip = k == 0 ? 0 : strlen(keys[k]), equal = strcspn(text, "=");
            bool is = strncmp(text, keys[k], strlen(keys[k])) == 0 && equal > skip &&
                      (k > 0 || equal == strlen(keys[k])) && equal + 1 < len;
            if (is && n + 2 + (len - skip) < size) {
                n += (size_t)snprintf(out + n, size - n, "%s%.*s %.*s", n > 0 ? ", " : "",
                                      (int)(equal - skip), text + skip, (int)(len - equal - 1),
                                      text + equal + 1);
            }
        }
    }
}

static void take_health(struct nt_facts *f, const struct nt_topology *t)
{
    f->health = json_array();
    for (int i = 0; f->health != NULL && i < t->nfindings; i++) {
        if (t->findings[i].unhealthy) {
            (void)json_array_append_new(f->health, json_string(t->findings[i].text));
        }
    }
}

static void take_identity(struct nt_facts *f, const struct nt_identity *id)
{
    (void)snprintf(f->identity, sizeof(f->identity), "%s", id->name);
    (void)nt_group_mask_text(id->known, f->mask, sizeof(f->mask));
    json_decref(f->groups);
    f->groups = json_object();
    for (int g = 0; f->groups != NULL && g < NT_GROUP_COUNT; g++) {
        if ((id->known & (1U << g)) != 0) {
            (void)json_object_set_new(f->groups, nt_group_names[g], json_string(id->group[g]));
        }
    }
}

void nt_facts_place(struct nt_facts *f, const struct nt_topology *machine,
                    const struct nt_hello *hello, unsigned world)
{
    bool taken[NT_MAX_GPUS] = {false};
    uint16_t gpus[NT_MAX_GPUS];
    struct nt_placement here;

    if (world == 0 || world >= (unsigned)machine->ngpus) {
        return;
    }
    for (unsigned r = 0; r < world; r++) {
        int g = nt_topology_gpu_at(machine, hello[r].gpu_pci);
        if (g < 0 || taken[g] || strcmp(hello[r].host, hello[0].host) != 0) {
            return;
        }
        taken[g] = true;
        gpus[r] = (uint16_t)g;
    }
    if (nt_placement_of(machine, gpus, (int)world, &here, NULL) == 0) {
        (void)snprintf(f->placement, sizeof(f->placement), "%s", here.key);
        take_identity(f, &machine->identity);
    }
}

static int take_topology(struct nt_facts *f, const char *xml, const struct nt_hello *hello,
                         unsigned world, bool here, struct nt_err *err)
{
    struct nt_topology *t = NULL, *live = NULL;

    f->topology_xml = strdup(xml);
    if (f->topology_xml == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "topology");
    }
    if (nt_topology_read_xml(xml, strlen(xml), &t, err) != 0) {
        (void)snprintf(f->identity, sizeof(f->identity),
                       "unknown"); /* a dump we cannot read is no reason to stop */
        return 0;
    }
    take_identity(f, &t->identity);
    if (here && nt_topology_read_live(&(struct nt_live_opts){0}, &live, NULL) == 0) {
        nt_facts_place(f, live, hello, world);
    }
    take_health(f, live != NULL ? live : t); /* the machine itself knows more than NCCL's dump */
    nt_topology_free(live);
    nt_topology_free(t);
    return 0;
}

/* Of equal nodes the first speaks for all; what is wrong with any of them is wrong with the job's
 * machine. */
static void take_machines(struct nt_facts *f, const json_t *machines)
{
    const json_t *first = json_array_get(machines, 0);
    const char *driver = nt_json_opt_str(first, "driver", "");
    struct nt_identity id;
    json_t *m, *finding;
    size_t i, k;

    f->machines = json_incref((json_t *)machines);
    if (driver[0] != '\0') {
        (void)snprintf(f->driver, sizeof(f->driver), "%s", driver);
    }
    if (nt_identity_parse(json_object_get(first, "identity"), &id, NULL) == 0) {
        take_identity(f, &id);
        (void)snprintf(f->placement, sizeof(f->placement), "%s",
                       nt_json_opt_str(first, "placement", ""));
    }
    json_decref(f->health);
    f->health = json_array();
    json_array_foreach(machines, i, m)
    {
        json_array_foreach(json_object_get(m, "health"), k, finding)
        {
            if (nt_json_opt_bool(finding, "unhealthy", false)) {
                (void)json_array_append_new(
                    f->health, json_string(nt_json_opt_str(finding, "text", "unhealthy")));
            }
        }
    }
}

/* The first rank that is not like rank 0. */
static int check_alike(const struct nt_hello *hello, unsigned world, struct nt_err *err)
{
    const struct nt_hello *a = &hello[0];

    for (unsigned r = 1; r < world; r++) {
        const struct nt_hello *b = &hello[r];
        const struct {
            const char *what;
            int was, is;
        } rows[] = {{"CUDA", a->cuda, b->cuda}, {"a driver for CUDA", a->driver, b->driver}};

        if (b->nccl != a->nccl || strcmp(b->gpu_name, a->gpu_name) != 0) {
            return nt_fail(err, NT_E_MISSING, 0,
                           "rank %u on %s has NCCL %d on %s, rank 0 on %s has %d on %s: ranks must "
                           "be alike",
                           r, b->host, b->nccl, b->gpu_name, a->host, a->nccl, a->gpu_name);
        }
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            if (rows[i].was != 0 && rows[i].is != 0 && rows[i].was != rows[i].is) {
                return nt_fail(err, NT_E_MISSING, 0,
                               "rank %u on %s has %s %d, rank 0 on %s has %d: ranks must be alike",
                               r, b->host, rows[i].what, rows[i].is, a->host, rows[i].was);
            }
        }
    }
    return 0;
}

/* Lines "conf_…=PATH HASH" of what a rank says of itself: files that NCCL reads by itself. */
static void conf_lines(const char *text, struct nt_buf *out)
{
    for (size_t len; text != NULL && *text != '\0'; text += len + (text[len] == '\n')) {
        len = strcspn(text, "\n");
        if (strncmp(text, "conf_", 5) == 0) {
            nt_buf_puts(out, out->len > 0 ? ", " : "");
            nt_buf_add(out, text, len);
        }
    }
}

/* A file that NCCL reads on one node only makes ranks choose differently. */
static int check_conf(const struct nt_hello *hello, const struct nt_ready *ready, unsigned world,
                      struct nt_err *err)
{
    struct nt_buf was, is;
    int rc = 0;

    nt_buf_init(&was, 1 << 16);
    nt_buf_init(&is, 1 << 16);
    conf_lines(ready[0].text, &was);
    for (unsigned r = 1; rc == 0 && r < world; r++) {
        nt_buf_clear(&is);
        conf_lines(ready[r].text, &is);
        if (is.len > 0 && was.len > 0 && strcmp(nt_buf_str(&is), nt_buf_str(&was)) != 0) {
            rc = nt_fail(err, NT_E_MISSING, 0,
                         "NCCL's own files differ between nodes: %.150s on %s, %.150s on %s",
                         nt_buf_str(&was), hello[0].host, nt_buf_str(&is), hello[r].host);
        }
    }
    nt_buf_done(&was);
    nt_buf_done(&is);
    return rc;
}

int nt_facts_take(struct nt_facts *f, const struct nt_hello *hello, const struct nt_ready *ready,
                  unsigned world, const json_t *machines, struct nt_err *err)
{
    bool here = machines == NULL && strcmp(hello[0].rig, "nccl") == 0;
    int rc = 0;

    if (f->known) {
        return 0;
    }
    (void)snprintf(f->host, sizeof(f->host), "%s", hello[0].host);
    (void)snprintf(f->gpu, sizeof(f->gpu), "%s", hello[0].gpu_name);
    (void)snprintf(f->nccl_file, sizeof(f->nccl_file), "%s", hello[0].nccl_file);
    (void)snprintf(f->rig, sizeof(f->rig), "%s", hello[0].rig);
    nccl_text(hello[0].nccl, f->nccl, sizeof(f->nccl));
    cuda_text(hello[0].cuda, f->cuda, sizeof(f->cuda));
    driver_text(&hello[0], here, f->driver, sizeof(f->driver));
    rc = check_alike(hello, world, err);
    rc = rc == 0 && machines != NULL ? check_conf(hello, ready, world, err) : rc;
    if (rc != 0) {
        return rc;
    }
    if (ready[0].text != NULL) {
        (void)snprintf(f->text, sizeof(f->text), "%s", ready[0].text);
        framework_text(ready[0].text, f->framework, sizeof(f->framework));
    }
    f->known = true;
    rc = ready[0].topology_xml != NULL && ready[0].topology_xml[0] != '\0'
             ? take_topology(f, ready[0].topology_xml, hello, world, here, err)
             : 0;
    if (rc == 0 && machines != NULL) {
        take_machines(f, machines);
    }
    return rc;
}

#define MEMBER(f)                                                                                  \
    {                                                                                              \
#f, offsetof(struct nt_facts, f), sizeof(((struct nt_facts *)0)->f)                        \
    }
static const struct {
    const char *name;
    size_t offset, size;
} members[] = {MEMBER(host),      MEMBER(gpu),  MEMBER(nccl),      MEMBER(nccl_sha256),
               MEMBER(nccl_file), MEMBER(cuda), MEMBER(driver),    MEMBER(rig),
               MEMBER(identity),  MEMBER(mask), MEMBER(placement), MEMBER(text),
               MEMBER(framework)};

int nt_facts_same(const struct nt_facts *was, const struct nt_facts *is, struct nt_err *err)
{
    const struct {
        const char *what, *was, *is;
    } rows[] = {
        {"GPU", was->gpu, is->gpu},
        {"NCCL", was->nccl, is->nccl},
        {"CUDA", was->cuda, is->cuda},
        {"driver", was->driver, is->driver},
        {"framework", was->framework, is->framework},
        {"rig", was->rig, is->rig},
        {"identity", was->identity, is->identity},
        {"GPUs of placement class", was->placement, is->placement},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].was[0] != '\0' && rows[i].is[0] != '\0' &&
            strcmp(rows[i].was, rows[i].is) != 0) {
            return nt_fail(err, NT_E_MISSING, 0,
                           "begun with %s %s, here is %s: go on where it began, or start anew",
                           rows[i].what, rows[i].was, rows[i].is);
        }
    }
    return 0;
}

json_t *nt_facts_json(const struct nt_facts *f)
{
    json_t *o = json_object();

    for (size_t i = 0; o != NULL && i < sizeof(members) / sizeof(members[0]); i++) {
        (void)json_object_set_new(o, members[i].name,
                                  json_string((const char *)f + members[i].offset));
    }
    if (f->groups != NULL) {
        (void)json_object_set(o, "groups", f->groups);
    }
    if (f->health != NULL) {
        (void)json_object_set(o, "health", f->health);
    }
    if (f->peers != NULL) {
        (void)json_object_set(o, "peers", f->peers);
    }
    if (f->machines != NULL) {
        (void)json_object_set(o, "machines", f->machines);
    }
    return o;
}

int nt_facts_from_json(const json_t *o, struct nt_facts *ret, struct nt_err *err)
{
    struct nt_facts f = {.known = true};

    if (!json_is_object(o)) {
        return nt_fail(err, NT_E_STORE, 0, "the job's facts are no object");
    }
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        (void)snprintf((char *)&f + members[i].offset, members[i].size, "%s",
                       nt_json_opt_str(o, members[i].name, ""));
    }
    f.groups = json_incref(json_object_get(o, "groups"));
    f.health = json_incref(json_object_get(o, "health"));
    f.peers = json_incref(json_object_get(o, "peers"));
    f.machines = json_incref(json_object_get(o, "machines"));
    *ret = f;
    return 0;
}
