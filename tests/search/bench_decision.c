/*
 * bench_decision [SIZES [ARMS [SEED]]] - what a decision of the search takes: nt_race_next() and
 * nt_race_tell() of one block, in a job of many sizes (24) with many tuples each (1000), gang after
 * gang and in each size after size, as a job does.
 *
 * Times are of the processor, so that other load on the machine counts only as far as it takes
 * caches and half a core away, and by the clock on the wall, in which it counts in full. The last
 * line is a hash of all that was decided and estimated, to the last bit: a change for speed alone
 * leaves it as it is.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/search/landscape.h"

enum { MAX_SIZES = 64 };

enum { CPU, WALL, CLOCKS };
static const clockid_t clocks[CLOCKS] = {CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC};

struct lot { /* decisions timed so far */
    float *us[CLOCKS];
    size_t n, cap;
    uint64_t hash;
};

/* Adds what all clocks say now, times `sign`. */
static void add_now(double *us, int sign)
{
    for (int i = 0; i < CLOCKS; i++) {
        struct timespec t;
        (void)clock_gettime(clocks[i], &t);
        us[i] += sign * (1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec);
    }
}

static void note(struct lot *lot, const double *us)
{
    size_t cap = lot->cap == 0 ? 65536 : 2 * lot->cap;

    for (int i = 0; i < CLOCKS; i++) {
        if (lot->n == lot->cap) {
            lot->us[i] = realloc(lot->us[i], cap * sizeof(lot->us[i][0]));
            nt_assert(lot->us[i] != NULL);
        }
        lot->us[i][lot->n] = (float)us[i];
    }
    lot->cap = lot->n == lot->cap ? cap : lot->cap;
    lot->n++;
}

static void mix(struct lot *lot, const void *what, size_t size)
{
    const unsigned char *p = what; /* FNV-1a */
    for (size_t i = 0; i < size; i++) {
        lot->hash = (lot->hash ^ p[i]) * UINT64_C(0x100000001b3);
    }
}

static void run_gang(struct lot *lot, struct landscape *l, struct nt_race *r, uint32_t gang)
{
    for (;;) {
        struct nt_ask ask;
        double us[CLOCKS] = {0}, y;
        bool more;
        add_now(us, -1);
        more = nt_race_next(r, gang, &ask);
        add_now(us, 1);
        if (!more) {
            return;
        }
        mix(lot, &ask.arm, sizeof(ask.arm));
        mix(lot, &ask.samples, sizeof(ask.samples));
        y = landscape_block(l, gang, ask.arm,
                            (double)ask.samples / (double)nt_race_defaults.block_samples);
        add_now(us, -1);
        nt_assert(nt_race_tell(r, gang, ask.arm, y, ask.samples, NULL) == 0);
        add_now(us, 1);
        note(lot, us);
    }
}

static void note_standings(struct lot *lot, struct nt_race *r, uint32_t arms)
{
    static struct nt_standing st[MAX_ARMS];
    struct nt_race_verdict v = nt_race_verdict(r);

    nt_race_standings(r, st);
    for (uint32_t i = 0; i < arms; i++) {
        mix(lot, &st[i].arm, sizeof(st[i].arm));
        mix(lot, &st[i].state, sizeof(st[i].state));
        if (!isnan(st[i].log_ratio)) {
            mix(lot, &st[i].log_ratio, sizeof(st[i].log_ratio));
            mix(lot, &st[i].se, sizeof(st[i].se));
        }
    }
    mix(lot, &v.end, sizeof(v.end));
    mix(lot, &v.pick, sizeof(v.pick));
    mix(lot, &v.alive, sizeof(v.alive));
    mix(lot, &v.loss, sizeof(v.loss));
    mix(lot, &v.saving, sizeof(v.saving));
}

static void run_job(struct lot *lot, uint32_t sizes, uint32_t arms, uint64_t seed)
{
    static struct nt_race_arm descriptions[MAX_ARMS];
    struct landscape *l = calloc(sizes, sizeof(*l));
    struct nt_race *races[MAX_SIZES] = {NULL};

    nt_assert(l != NULL);
    for (uint32_t s = 0; s < sizes; s++) {
        struct nt_race_config c;
        landscape_init(&l[s], (enum shape)(s % SHAPES), arms, nt_mix(seed, s));
        l[s].drift = s % 5 == 0 ? 0.1 : 0;
        l[s].stray = s % 7 == 0 ? 0.01 : 0;
        landscape_config(&l[s], nt_mix(seed, s), &c, descriptions);
        nt_assert(nt_race_new(&c, descriptions, arms, &races[s], NULL) == 0);
    }
    for (uint32_t gang = 0; gang < MAX_GANGS; gang++) {
        for (uint32_t s = 0; s < sizes; s++) {
            if (nt_race_wants_gang(races[s])) {
                run_gang(lot, &l[s], races[s], gang);
                note_standings(lot, races[s], arms);
            }
        }
        nt_race_share(races, sizes);
    }
    for (uint32_t s = 0; s < sizes; s++) {
        nt_race_free(races[s]);
    }
    free(l);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_clock(const struct lot *lot, int clock)
{
    float *us = lot->us[clock];
    double sum = 0;

    qsort(us, lot->n, sizeof(us[0]), by_value);
    for (size_t i = 0; i < lot->n; i++) {
        sum += (double)us[i];
    }
    printf("a decision, %s: median %.1f us, mean %.1f us, p99 %.1f us, most %.1f us\n",
           clock == CPU ? "processor" : "wall", (double)us[lot->n / 2], sum / (double)lot->n,
           (double)us[lot->n * 99 / 100], (double)us[lot->n - 1]);
    free(us);
}

int main(int argc, char **argv)
{
    uint32_t sizes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 24;
    uint32_t arms = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1000;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    struct lot lot = {.hash = UINT64_C(0xcbf29ce484222325)};
    double load[2] = {NAN, NAN};

    if (sizes < 1 || sizes > MAX_SIZES || arms < 2 || arms > MAX_ARMS) {
        fprintf(stderr, "usage: bench_decision [SIZES (1..%d) [ARMS (2..%d) [SEED]]]\n",
                (int)MAX_SIZES, (int)MAX_ARMS);
        return 2;
    }
    (void)getloadavg(&load[0], 1);
    run_job(&lot, sizes, arms, seed);
    (void)getloadavg(&load[1], 1);
    printf("%u sizes x %u tuples, seed %llu: %zu decisions; load %.1f before, %.1f after\n", sizes,
           arms, (unsigned long long)seed, lot.n, load[0], load[1]);
    for (int i = 0; i < CLOCKS; i++) {
        print_clock(&lot, i);
    }
    printf("decided: %016llx\n", (unsigned long long)lot.hash);
    return 0;
}
