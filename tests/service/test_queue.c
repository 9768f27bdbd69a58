/* The queue as a machine: what starts, what waits, what stops, and a day of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/rng.h"
#include "tuner/service/queue.h"

enum { ALL_DAY = 12 * 60 };

static struct nt_queue_policy policy(void)
{
    return (struct nt_queue_policy){.max_running = 4, .idle_ms = 30000, .pause_foreign = true};
}

static void add(struct nt_queue *q, int64_t id, int priority, uint64_t gpus, unsigned lane)
{
    struct nt_queue_item item = {
        .id = id, .priority = priority, .state = NT_Q_QUEUED, .gpus = gpus, .lane = lane};
    assert_int_equal(nt_queue_add(q, &item, NULL), 0);
}

/* Asks until it says wait; the ids that started, as digits. */
static const char *started(struct nt_queue *q, uint64_t now, char *out)
{
    struct nt_queue_step step;
    size_t n = 0;
    for (;;) {
        nt_queue_next(q, now, ALL_DAY, &step);
        if (step.what != NT_QUEUE_START) {
            break;
        }
        out[n++] = (char)('0' + step.id);
    }
    out[n] = '\0';
    return out;
}

static void test_order(void **state)
{
    static const struct {
        const char *name;
        struct {
            int priority;
            uint64_t gpus;
            unsigned lane;
        } job[5];
        const char *starts;
    } cases[] = {
        {"first come, first served", {{0, 1, 0}, {0, 2, 0}, {0, 4, 0}}, "123"},
        {"the higher priority first", {{0, 1, 0}, {5, 2, 0}}, "21"},
        {"one at a time per GPU", {{0, 1, 0}, {0, 1, 0}, {0, 2, 0}}, "13"},
        {"all collides with each", {{0, 3, 0}, {0, UINT64_MAX, 0}, {0, 4, 0}}, "1"},
        {"a job that waits has its GPUs first", {{0, 1, 0}, {0, 3, 0}, {0, 2, 0}, {0, 8, 0}}, "14"},
        {"no GPU: one at a time per lane", {{0, 0, 1}, {0, 0, 1}, {0, 0, 2}}, "13"},
        {"no GPU and a GPU never collide", {{0, 0, 1}, {0, 1, 1}}, "12"},
        {"no more than allowed", {{0, 1, 0}, {0, 2, 0}, {0, 4, 0}, {0, 8, 0}, {0, 16, 0}}, "1234"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct nt_queue_policy p = policy();
        struct nt_queue q;
        char got[16];
        nt_queue_init(&q, &p);
        for (int k = 0; k < 5 && (cases[i].job[k].gpus != 0 || cases[i].job[k].lane != 0); k++) {
            add(&q, k + 1, cases[i].job[k].priority, cases[i].job[k].gpus, cases[i].job[k].lane);
        }
        if (strcmp(started(&q, 1000, got), cases[i].starts) != 0) {
            fail_msg("%s: %s, not %s", cases[i].name, got, cases[i].starts);
        }
        nt_queue_done(&q);
    }
}

static void test_ends(void **state)
{
    static const struct {
        const char *name;
        enum nt_stop stop;
        unsigned attempts; /* before this one */
        struct nt_queue_end end;
        enum nt_queue_state to;
        uint64_t wait_ms;
        unsigned left_attempts;
    } cases[] = {
        {"done", NT_STOP_NONE, 0, {true, 0, 0}, NT_Q_DONE, 0, 1},
        {"done although it was to be cancelled", NT_STOP_CANCEL, 0, {true, 0, 0}, NT_Q_DONE, 0, 1},
        {"cancelled", NT_STOP_CANCEL, 0, {true, 0, 5}, NT_Q_CANCELLED, 0, 1},
        {"cancelled by force", NT_STOP_CANCEL, 0, {true, 9, 0}, NT_Q_CANCELLED, 0, 1},
        {"paused", NT_STOP_PAUSE, 2, {true, 0, 5}, NT_Q_QUEUED, 0, 2},
        {"paused, by force", NT_STOP_PAUSE, 2, {true, 9, 0}, NT_Q_QUEUED, 0, 2},
        {"the service ends", NT_STOP_SHUTDOWN, 2, {true, 0, 5}, NT_Q_QUEUED, 0, 2},
        {"somebody interrupts", NT_STOP_NONE, 2, {true, 0, 5}, NT_Q_QUEUED, 10000, 2},
        {"noisy", NT_STOP_NONE, 0, {true, 0, 4}, NT_Q_QUEUED, 3600000, 1},
        {"noisy three times", NT_STOP_NONE, 2, {true, 0, 4}, NT_Q_FAILED, 0, 3},
        {"crashed", NT_STOP_NONE, 0, {true, 11, 0}, NT_Q_QUEUED, 5000, 1},
        {"crashed again", NT_STOP_NONE, 1, {true, 11, 0}, NT_Q_QUEUED, 20000, 2},
        {"crashed three times", NT_STOP_NONE, 2, {true, 11, 0}, NT_Q_FAILED, 0, 3},
        {"not started", NT_STOP_NONE, 0, {false, 0, 0}, NT_Q_QUEUED, 5000, 1},
        {"database", NT_STOP_NONE, 0, {true, 0, 1}, NT_Q_QUEUED, 5000, 1},
        {"bad input", NT_STOP_NONE, 0, {true, 0, 2}, NT_Q_FAILED, 0, 1},
        {"something is missing", NT_STOP_NONE, 0, {true, 0, 3}, NT_Q_FAILED, 0, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct nt_queue_policy p = policy();
        struct nt_queue q;
        struct nt_queue_item got;
        char text[16];
        nt_queue_init(&q, &p);
        add(&q, 1, 0, 1, 0);
        q.items[0].attempts = cases[i].attempts;
        assert_string_equal(started(&q, 1000, text), "1");
        if (cases[i].stop == NT_STOP_CANCEL) {
            assert_int_equal(nt_queue_cancel(&q, 1), NT_Q_CANCELLING);
        } else {
            q.items[0].stop = cases[i].stop;
        }
        nt_queue_tell_ended(&q, 1, &cases[i].end, 2000, &got);
        if (got.state != cases[i].to || got.attempts != cases[i].left_attempts ||
            (got.state == NT_Q_QUEUED && got.not_before_ms != 2000 + cases[i].wait_ms) ||
            (q.n == 1) != (got.state == NT_Q_QUEUED)) {
            fail_msg("%s: %s, %u attempts, not before %llu", cases[i].name,
                     nt_queue_state_names[got.state], got.attempts,
                     (unsigned long long)got.not_before_ms);
        }
        nt_queue_done(&q);
    }
}

static void test_idle(void **state)
{
    const struct nt_queue_policy p = policy();
    struct nt_queue q;
    struct nt_queue_step step;
    char got[16];
    (void)state;
    nt_queue_init(&q, &p);
    nt_queue_tell_load(&q, true, 1, 0, 1000);
    add(&q, 1, 0, 3, 0);
    assert_string_equal(started(&q, 1000, got), "");
    assert_non_null(strstr(nt_queue_find(&q, 1)->reason, "busy"));
    nt_queue_tell_load(&q, true, 0, 0, 5000);
    assert_string_equal(started(&q, 5000, got), "");
    nt_queue_next(&q, 5000, ALL_DAY, &step);
    assert_int_equal(step.wake_ms, 35000); /* GPU 0 is idle since 5000 */
    assert_string_equal(started(&q, 34999, got), "");
    nt_queue_tell_load(&q, true, 2, 0, 35000); /* and now the other one is not */
    assert_string_equal(started(&q, 35000, got), "");
    nt_queue_tell_load(&q, false, 0, 0, 36000); /* nobody knows: nothing waits for it */
    assert_string_equal(started(&q, 36000, got), "1");
    nt_queue_done(&q);
}

static void test_foreign(void **state)
{
    const struct nt_queue_policy p = policy();
    const struct nt_queue_end interrupted = {.spawned = true, .exit_code = 5};
    struct nt_queue q;
    struct nt_queue_step step;
    struct nt_queue_item item;
    char got[16];
    (void)state;
    nt_queue_init(&q, &p);
    add(&q, 1, 0, 3, 0);
    add(&q, 2, 0, 4, 0);
    assert_string_equal(started(&q, 0, got), "12");
    nt_queue_tell_load(&q, true, 7, 2, 1000); /* our own load is no reason */
    nt_queue_next(&q, 1000, ALL_DAY, &step);
    assert_int_equal(step.what, NT_QUEUE_STOP);
    assert_int_equal(step.id, 1);
    nt_queue_next(&q, 1000, ALL_DAY, &step);
    assert_int_equal(step.what, NT_QUEUE_WAIT); /* told once */
    nt_queue_tell_ended(&q, 1, &interrupted, 2000, &item);
    assert_int_equal(item.state, NT_Q_QUEUED);
    assert_non_null(strstr(item.reason, "paused"));
    assert_string_equal(started(&q, 2000, got), "");
    nt_queue_tell_load(&q, true, 4, 0, 3000);
    assert_string_equal(started(&q, 32999, got), "");
    assert_string_equal(started(&q, 33000, got), "1");
    nt_queue_done(&q);
}

static void test_windows(void **state)
{
    static const struct {
        const char *text;
        unsigned minute;
        int open; /* -1: refused */
    } cases[] = {{"", 0, 1},
                 {"22:00-06:00", 22 * 60, 1},
                 {"22:00-06:00", 6 * 60, 0},
                 {"22:00-06:00", 0, 1},
                 {"22:00-06:00", 12 * 60, 0},
                 {"08:00-09:00, 12:30-13:00", 12 * 60 + 45, 1},
                 {"08:00-09:00, 12:30-13:00", 10 * 60, 0},
                 {"00:00-24:00", 23 * 60 + 59, 1},
                 {"8-9", 0, -1},
                 {"25:00-26:00", 0, -1},
                 {"08:00", 0, -1},
                 {"06:00-06:00", 0, -1},
                 {"08:00-09:00,00:00-00:00", 0, -1},
                 {"08:00-09:00x", 0, -1},
                 {",", 0, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct nt_window w[NT_QUEUE_WINDOWS];
        size_t n = 0;
        int rc = nt_windows_parse(cases[i].text, w, &n, NULL);
        int got = rc != 0 ? -1 : nt_windows_open(w, n, cases[i].minute);
        if (got != cases[i].open) {
            fail_msg("'%s' at %u: %d", cases[i].text, cases[i].minute, got);
        }
    }
}

static void test_window_and_stop(void **state)
{
    struct nt_queue_policy p = policy();
    struct nt_queue q;
    struct nt_queue_step step;
    (void)state;
    p.windows[0] = (struct nt_window){22 * 60, 6 * 60};
    p.nwindows = 1;
    nt_queue_init(&q, &p);
    add(&q, 1, 0, 1, 0);
    nt_queue_next(&q, 0, ALL_DAY, &step);
    assert_int_equal(step.what, NT_QUEUE_WAIT);
    assert_int_equal(step.wake_ms, 60000);
    nt_queue_next(&q, 0, 23 * 60, &step);
    assert_int_equal(step.what, NT_QUEUE_START);
    add(&q, 2, 0, 2, 0);
    nt_queue_stop_all(&q);
    nt_queue_next(&q, 0, 23 * 60, &step);
    assert_int_equal(step.what, NT_QUEUE_STOP);
    nt_queue_next(&q, 0, 23 * 60, &step);
    assert_int_equal(step.what, NT_QUEUE_WAIT); /* nothing starts any more */
    nt_queue_done(&q);
}

/* A day of jobs, loads, cancels and crashes: at no time two jobs on one GPU, and in the end every
 * job is over, exactly once. */
static void test_day(void **state)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    enum { JOBS = 40, DAY_MS = 86400000 / 8, TICK_MS = 1000 }; /* some hours: minutes there */
#else
    enum { JOBS = 300, DAY_MS = 86400000, TICK_MS = 1000 };
#endif
    const struct nt_queue_policy p = policy();
    struct nt_queue q;
    struct nt_rng rng;
    uint64_t ends_ms[JOBS + 1] = {0};
    unsigned over[JOBS + 1] = {0}, begun = 0, added = 0;
    (void)state;
    nt_queue_init(&q, &p);
    nt_rng_seed(&rng, 20261129);
    for (uint64_t now = 0; now < 2 * (uint64_t)DAY_MS + 36000000; now += TICK_MS) {
        struct nt_queue_step step;
        if (added < JOBS && now < DAY_MS && nt_rng_below(&rng, 250) == 0) {
            added++;
            add(&q, added, (int)nt_rng_below(&rng, 5), nt_rng_below(&rng, 16), added % 3);
        }
        if (now % 5000 == 0) {
            bool foreign = now < DAY_MS && nt_rng_below(&rng, 200) == 0;
            nt_queue_tell_load(&q, true, foreign ? 3 : 0, foreign ? 1 : 0, now);
        }
        if (q.n > 0 && nt_rng_below(&rng, 2000) == 0) {
            int64_t id = q.items[nt_rng_below(&rng, q.n)].id;
            over[id] += nt_queue_cancel(&q, id) == NT_Q_CANCELLED;
        }
        for (int64_t id = 1; id <= JOBS; id++) {
            bool due = ends_ms[id] != 0 && ends_ms[id] <= now;
            struct nt_queue_item *x = due ? nt_queue_find(&q, id) : NULL, got;
            if (x != NULL) {
                struct nt_queue_end end = {.spawned = true};
                end.exit_code = x->stop != NT_STOP_NONE ? 5 : (int)nt_rng_below(&rng, 3) % 2;
                ends_ms[id] = 0;
                nt_queue_tell_ended(&q, id, &end, now, &got);
                over[id] += got.state != NT_Q_QUEUED;
            }
        }
        for (nt_queue_next(&q, now, ALL_DAY, &step); step.what != NT_QUEUE_WAIT;
             nt_queue_next(&q, now, ALL_DAY, &step)) {
            begun += step.what == NT_QUEUE_START;
            ends_ms[step.id] = step.what == NT_QUEUE_START
                                   ? now + 1000 + nt_rng_below(&rng, 1200000)
                                   : now + nt_rng_below(&rng, 3000);
        }
        for (size_t i = 0; i < q.n; i++) {
            const struct nt_queue_item *a = &q.items[i];
            for (size_t k = 0; k < i && a->state != NT_Q_QUEUED; k++) {
                const struct nt_queue_item *b = &q.items[k];
                bool both = b->state != NT_Q_QUEUED;
                assert_false(both && (a->gpus & b->gpus) != 0);
                assert_false(both && a->gpus == 0 && b->gpus == 0 && a->lane == b->lane);
            }
        }
    }
    assert_true(added > JOBS * 2 / 3 && begun >= added - JOBS / 2);
    assert_int_equal(q.n, 0);
    for (unsigned id = 1; id <= added; id++) {
        assert_int_equal(over[id], 1);
    }
    nt_queue_done(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),   cmocka_unit_test(test_ends),
        cmocka_unit_test(test_idle),    cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_windows), cmocka_unit_test(test_window_and_stop),
        cmocka_unit_test(test_day)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
