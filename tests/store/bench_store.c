/*
 * bench_store [FILE] - 300,000 trials with 10 million samples: how fast they go in, how large the
 * file is, how long each view takes. Three jobs with a profile each, 48 cases, 40 settings. Without
 * FILE a temporary one is used and removed.
 */
#include "tuner/base/rng.h"
#include "tuner/store/store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    JOBS = 3,
    TRIALS_A_JOB = 100000,
    SETTINGS = 40,
    GANGS = 100,
    SIZES = 24,
    BATCH = 1000,
    COMMITTED = 5000,
    LEAST = 21,
    SPREAD = 28 /* samples a trial: 21 … 48, 34 on average; 2 % have none */
};

static struct nt_err e;

static void must(int rc)
{
    if (rc != 0) {
        (void)fprintf(stderr, "bench_store: %s\n", e.msg);
        exit(1);
    }
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct nt_case make_case(uint64_t i)
{
    return (struct nt_case){.bytes = UINT64_C(256) << (i % SIZES),
                            .coll = NT_ALL_REDUCE,
                            .mode = i / SIZES % 2 == 0 ? NT_EAGER : NT_GRAPH};
}

static void add(struct nt_store *s, int64_t job, uint64_t seq, const int64_t *settings,
                struct nt_rng *rng, size_t *samples)
{
    uint32_t ns[LEAST + SPREAD];
    uint64_t which = nt_rng_below(rng, SETTINGS);
    double base = 5000 + 100 * (double)(seq % 48) + 300 * (double)which;
    struct nt_store_trial t = {.seq = seq,
                               .gang = 1 + seq * GANGS / (TRIALS_A_JOB + GANGS + 1),
                               .cs = make_case(seq),
                               .setting = settings[which],
                               .executed = {.algo = which % 2 == 0 ? NT_RING : NT_TREE,
                                            .channels = (uint16_t)(1 + which / 2),
                                            .warps = 8},
                               .ns = ns,
                               .count = LEAST + nt_rng_below(rng, SPREAD),
                               .elapsed_ns = 5000000 + seq,
                               .memory_bytes = 700000000};
    for (size_t i = 0; i < t.count; i++) {
        ns[i] = (uint32_t)(base * (1 + 0.05 * fabs(nt_rng_normal(rng))));
    }
    if (nt_rng_below(rng, 50) == 0) {
        t.count = 0;
        t.status = NT_ST_UNAVAILABLE;
        t.executed = NT_EXECUTED_NONE;
    }
    *samples += t.count;
    must(nt_store_add_trial(s, job, &t, &e));
}

static int64_t start(struct nt_store *s, int64_t *settings)
{
    struct nt_store_job j = {.spec = "{}", .seed = 1, .ranks = 4, .nodes = 1};
    int64_t job = 0;
    for (unsigned i = 0; i < SETTINGS; i++) {
        struct nt_store_setting x = {.call = NT_CALL_DEFAULT};
        if (i > 0) {
            x.call = (struct nt_call){.algo = i % 2 == 0 ? NT_RING : NT_TREE,
                                      .proto = NT_SIMPLE,
                                      .channels = (uint16_t)i};
        }
        must(nt_store_put_setting(s, &x, &settings[i], &e));
    }
    must(nt_store_job_create(s, &j, &job, &e));
    for (uint64_t i = 1; i <= GANGS; i++) {
        struct nt_store_gang g = {
            .seq = i, .number = i, .arm = "search", .setting = settings[0], .start_ns = 1};
        must(nt_store_add_gang(s, job, &g, &e));
    }
    return job;
}

static void profile(struct nt_store *s, int64_t job, const int64_t *settings)
{
    struct nt_store_profile_row rows[2 * SIZES];
    char json[32];
    int64_t id = 0;
    for (uint64_t i = 0; i < 2 * SIZES; i++) {
        rows[i] = (struct nt_store_profile_row){.product = "table",
                                                .min_bytes = UINT64_C(256) << (i % SIZES),
                                                .max_bytes = UINT64_C(256) << (i % SIZES),
                                                .cs = make_case(i),
                                                .setting = settings[i % SETTINGS],
                                                .default_ns = 100,
                                                .as_found_ns = NAN,
                                                .tuned_ns = 90,
                                                .speedup = 1.11,
                                                .lo = 1.1,
                                                .hi = 1.12,
                                                .p = 0.001,
                                                .pairs = 12};
    }
    (void)snprintf(json, sizeof(json), "{\"job\":%lld}", (long long)job);
    must(nt_store_save_profile(s, job, json, rows, sizeof(rows) / sizeof(rows[0]), &id, &e));
}

static int count_rows(void *data, unsigned n, const char *const *names,
                      const struct nt_value *values, struct nt_err *err)
{
    (void)n;
    (void)names;
    (void)err;
    *(size_t *)data += values != NULL;
    return 0;
}

static void time_views(const char *path)
{
    struct nt_store *s = NULL;
    must(nt_store_open(path, NT_STORE_READ, &s, &e));
    for (const struct nt_store_view *v = nt_store_views; v->name != NULL; v++) {
        double best = INFINITY, first = 0;
        size_t rows = 0;
        for (int i = 0; i < 3; i++) {
            double t = now();
            rows = 0;
            must(nt_store_query(s, v->sql, NULL, 0, NULL, count_rows, &rows, NULL, &e));
            t = now() - t;
            first = i == 0 ? t : first;
            best = t < best ? t : best;
        }
        (void)printf("view %-13s %7zu rows  first %8.1f ms  best of 3 %8.1f ms\n", v->name, rows,
                     1e3 * first, 1e3 * best);
    }
    nt_store_close(s);
}

static void time_inserts(struct nt_store *s)
{
    struct nt_rng rng;
    int64_t settings[SETTINGS], job = 0;
    size_t samples = 0, trials = 0;
    double t;
    nt_rng_seed(&rng, 1);
    t = now();
    for (unsigned k = 0; k < JOBS; k++) {
        job = start(s, settings);
        for (uint64_t done = 0; done < TRIALS_A_JOB; done += BATCH) {
            must(nt_store_begin(s, &e));
            for (uint64_t i = 0; i < BATCH; i++, trials++) {
                add(s, job, GANGS + 1 + done + i, settings, &rng, &samples);
            }
            must(nt_store_end(s, 0, &e));
        }
        profile(s, job, settings);
    }
    t = now() - t;
    (void)printf(
        "batched by %d: %zu trials, %zu samples in %.2f s: %.0f samples/s, %.0f trials/s\n", BATCH,
        trials, samples, t, (double)samples / t, (double)trials / t);
    job = start(s, settings);
    samples = 0;
    t = now();
    for (uint64_t i = 0; i < COMMITTED; i++) {
        add(s, job, GANGS + 1 + i, settings, &rng, &samples);
    }
    t = now() - t;
    (void)printf("each committed: %d trials in %.2f s: %.0f trials/s, %.0f samples/s\n", COMMITTED,
                 t, COMMITTED / t, (double)samples / t);
    t = now();
    must(nt_store_checkpoint_stage(s, job, "race", 1, &e));
    (void)printf("end of a stage: %.1f ms\n", 1e3 * (now() - t));
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/nt-bench-XXXXXX", path[64];
    const char *file = argc > 1 ? argv[1] : path;
    struct nt_store *s = NULL;
    struct stat st;
    if (argc < 2) {
        if (mkdtemp(folder) == NULL) {
            return 1;
        }
        (void)snprintf(path, sizeof(path), "%s/bench.db", folder);
    }
    must(nt_store_open(file, NT_STORE_WRITE, &s, &e));
    time_inserts(s);
    nt_store_close(s);
    if (stat(file, &st) == 0) {
        (void)printf("file: %.1f MiB\n", (double)st.st_size / (1 << 20));
    }
    time_views(file);
    if (argc < 2) {
        (void)unlink(path);
        (void)rmdir(folder);
    }
    return 0;
}
