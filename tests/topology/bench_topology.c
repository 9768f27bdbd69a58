/*
 * Times reading, identity and health of topologies inside one process.
 *   bench_topology FILE…          files
 *   bench_topology --live ROOT LIBRARY
 * One line each: the median and the worst of the rounds in milliseconds, and what it is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tuner/topology/topology.h"

enum { ROUNDS = 51 };

static double now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int read_it(const char *path, const struct nt_live_opts *live, struct nt_topology **ret,
                   struct nt_err *err)
{
    return live != NULL ? nt_topology_read_live(live, ret, err)
                        : nt_topology_read_file(path, ret, err);
}

static int bench(const char *path, const struct nt_live_opts *live)
{
    double ms[ROUNDS];
    struct nt_err e = {0};
    int gpus = 0;

    for (int i = 0; i < ROUNDS; i++) {
        struct nt_topology *t = NULL;
        double start = now_ms();
        if (read_it(path, live, &t, &e) != 0) {
            (void)printf("%8s %8s  refused: %s\n", "-", "-", e.msg);
            return 0;
        }
        ms[i] = now_ms() - start;
        gpus = t->ngpus;
        nt_topology_free(t);
    }
    qsort(ms, ROUNDS, sizeof(ms[0]), by_value);
    (void)printf("%8.3f %8.3f  %3d GPUs  %s\n", ms[ROUNDS / 2], ms[ROUNDS - 1], gpus, path);
    return ms[ROUNDS / 2] > (live != NULL ? 20 : 10);
}

int main(int argc, char **argv)
{
    int slow = 0;

    if (argc == 4 && strcmp(argv[1], "--live") == 0) {
        return bench("live", &(struct nt_live_opts){.root = argv[2], .nvml = argv[3]});
    }
    for (int i = 1; i < argc; i++) {
        slow |= bench(argv[i], NULL);
    }
    return slow;
}
