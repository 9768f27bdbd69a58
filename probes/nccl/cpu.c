#include "probes/nccl/cpu.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double as_good = 1.05;

unsigned nt_cpu_candidates(const cpu_set_t *allowed, unsigned rank, unsigned world,
                           int ret[NT_CPU_TRIES])
{
    int cores[CPU_SETSIZE];
    unsigned n = 0, found = 0;
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (CPU_ISSET((size_t)c, allowed)) {
            cores[n++] = c;
        }
    }
    for (unsigned k = 0; world > 0 && k < NT_CPU_TRIES; k++) {
        unsigned at = 1 + 2 * (rank + k * world);
        if (at < n) {
            ret[found++] = cores[at];
        }
    }
    return n < 2 * world ? 0 : found;
}

bool nt_cpu_parse(const char *list, cpu_set_t *ret)
{
    CPU_ZERO(ret);
    for (const char *at = list;;) {
        char *end;
        unsigned long from, to;
        if (!isdigit((unsigned char)*at)) {
            return false;
        }
        from = to = strtoul(at, &end, 10);
        if (*end == '-' && isdigit((unsigned char)end[1])) {
            to = strtoul(end + 1, &end, 10);
        }
        if (to < from || to >= CPU_SETSIZE) {
            return false;
        }
        for (unsigned long c = from; c <= to; c++) {
            CPU_SET(c, ret);
        }
        if (*end == '\0' || *end == '\n') {
            return true;
        }
        if (*end != ',') {
            return false;
        }
        at = end + 1;
    }
}

unsigned nt_cpu_choose(const uint64_t *ns, unsigned n)
{
    uint64_t best = UINT64_MAX;
    unsigned at = 0;
    for (unsigned k = 0; k < n; k++) {
        best = ns[k] < best ? ns[k] : best;
    }
    while (at + 1 < n && (double)ns[at] > (double)best * as_good) {
        at++;
    }
    return at;
}

/* Those near the device that are allowed; all allowed ones if the near ones are too few. False: no
 * such device on this machine. */
static bool near_device(const char *pci, unsigned world, const cpu_set_t *allowed, cpu_set_t *ret)
{
    char path[96], list[1024];
    size_t n =
        (size_t)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.32s/local_cpulist", pci);
    cpu_set_t local;
    FILE *f;
    for (char *c = path; n < sizeof(path) && *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    *ret = *allowed;
    if (fgets(list, sizeof(list), f) != NULL && nt_cpu_parse(list, &local)) {
        CPU_AND(&local, &local, allowed);
        if ((unsigned)CPU_COUNT(&local) >= 2 * world) {
            *ret = local;
        }
    }
    (void)fclose(f);
    return true;
}

static bool go_to(int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)core, &one);
    return sched_setaffinity(0, sizeof(one), &one) == 0;
}

void nt_cpu_find(struct nt_cpu *c, unsigned rank, unsigned world, const char *pci)
{
    cpu_set_t near;
    *c = (struct nt_cpu){.core = -1};
    if (world > 1 && sched_getaffinity(0, sizeof(c->free), &c->free) == 0 &&
        near_device(pci, world, &c->free, &near)) {
        c->ntried = nt_cpu_candidates(&near, rank, world, c->tried);
    }
}

int nt_cpu_pick(struct nt_cpu *c, int (*run)(void *arg, uint64_t *ret_ns, struct nt_err *err),
                void *arg, struct nt_err *err)
{
    bool there[NT_CPU_TRIES];
    int rc = 0;
    for (unsigned k = 0; rc == 0 && k < c->ntried; k++) {
        there[k] = go_to(c->tried[k]);
        rc = run(arg, &c->ns[k], err); /* the others run too */
        c->ns[k] = there[k] ? c->ns[k] : UINT64_MAX;
    }
    if (rc == 0 && c->ntried > 0) {
        unsigned k = nt_cpu_choose(c->ns, c->ntried);
        c->core = there[k] ? c->tried[k] : -1;
    }
    (void)sched_setaffinity(0, sizeof(c->free), &c->free);
    return rc;
}

void nt_cpu_stay(const struct nt_cpu *c)
{
    if (c->core >= 0) {
        (void)go_to(c->core);
    }
}

void nt_cpu_roam(const struct nt_cpu *c)
{
    if (c->core >= 0) {
        (void)sched_setaffinity(0, sizeof(c->free), &c->free);
    }
}
