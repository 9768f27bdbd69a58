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

/* Those near the device, if the kernel tells and they are enough. */
static void near_device(const char *pci, unsigned world, const cpu_set_t *allowed, cpu_set_t *ret)
{
    char path[96], list[1024];
    size_t at;
    cpu_set_t local;
    FILE *f;
    *ret = *allowed;
    at = (size_t)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.32s/local_cpulist", pci);
    for (char *c = path; at < sizeof(path) && *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    f = fopen(path, "re");
    if (f == NULL) {
        return;
    }
    if (fgets(list, sizeof(list), f) != NULL && nt_cpu_parse(list, &local)) {
        CPU_AND(&local, &local, allowed);
        if ((unsigned)CPU_COUNT(&local) >= 2 * world) {
            *ret = local;
        }
    }
    (void)fclose(f);
}

static bool go_to(int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)core, &one);
    return sched_setaffinity(0, sizeof(one), &one) == 0;
}

int nt_cpu_pick(struct nt_cpu *c, unsigned rank, unsigned world, const char *pci,
                int (*run)(void *arg, uint64_t *ret_ns, struct nt_err *err), void *arg,
                struct nt_err *err)
{
    cpu_set_t near;
    int cores[NT_CPU_TRIES], rc = 0;
    unsigned n;
    *c = (struct nt_cpu){.core = -1};
    if (sched_getaffinity(0, sizeof(c->free), &c->free) != 0) {
        return 0;
    }
    near_device(pci, world, &c->free, &near);
    n = nt_cpu_candidates(&near, rank, world, cores);
    for (unsigned k = 0; rc == 0 && k < n; k++) {
        uint64_t ns = 0;
        if (!go_to(cores[k])) {
            continue;
        }
        rc = run(arg, &ns, err);
        c->tried[c->ntried] = cores[k];
        c->ns[c->ntried++] = ns;
    }
    if (rc == 0 && c->ntried > 0) {
        c->core = c->tried[nt_cpu_choose(c->ns, c->ntried)];
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
