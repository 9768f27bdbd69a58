/*
 * cpu - the core on which a rank's main thread stays while it is timed.
 *
 * Where that thread happens to run can add to all that it sees of its device: on two cores of a
 * virtual machine with two H200 the end of a graph was always seen 34 µs late, 1.7 µs a call of
 * twenty. Gangs that are compared must not differ by that, so every rank tries a few cores once and
 * stays on a good one. Only while timed: the threads of NCCL and of CUDA, which begin with the mask
 * of the thread that makes them, go where they want.
 */
#pragma once
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include "tuner/base/err.h"

enum { NT_CPU_TRIES = 4 };

struct nt_cpu {
    cpu_set_t free; /* where it may run otherwise */
    int core;       /* -1: wherever the scheduler puts it */
    int tried[NT_CPU_TRIES];
    uint64_t ns[NT_CPU_TRIES]; /* what `run` took there */
    unsigned ntried;
};

/* Cores for a rank to try, the first preferred, none of which another of `world` ranks tries, and
 * not the first of the set, to which a machine's interrupts go; every second one, as neighbours may
 * be threads of one core. 0 when the set has less than two for every rank. */
unsigned nt_cpu_candidates(const cpu_set_t *allowed, unsigned rank, unsigned world,
                           int ret[NT_CPU_TRIES]);
/* "0-3,8": the cores of a list as Linux writes it. False: not such a list. */
bool nt_cpu_parse(const char *list, cpu_set_t *ret);

/* The first of n > 0 times that is at most 5 % above the least. */
unsigned nt_cpu_choose(const uint64_t *ns, unsigned n);

/* Fills in what there is to try, near the device (pci: its address, "0000:1b:00.0") where they are
 * enough; ntried 0 where too few cores are free, the machine has no such device, or the rank is
 * alone. */
void nt_cpu_find(struct nt_cpu *c, unsigned rank, unsigned world, const char *pci);
/* Picks by how long `run` takes on each of c->tried. An error is that of `run`; the thread is free
 * again in any case. */
NT_MUST_CHECK int nt_cpu_pick(struct nt_cpu *c,
                              int (*run)(void *arg, uint64_t *ret_ns, struct nt_err *err),
                              void *arg, struct nt_err *err);
/* From here to there the calling thread stays. */
void nt_cpu_stay(const struct nt_cpu *c);
void nt_cpu_roam(const struct nt_cpu *c);
