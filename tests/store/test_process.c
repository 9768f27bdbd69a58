/* Several programs on one database, and programs that die. */
#include "tests/store/fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static void wait_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

static void must_exit_clean(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("child: status %x", (unsigned)status);
    }
}

/* A job of its own with n trials; each number is written to `told` once its trial is committed. */
static void drive(const char *path, uint64_t n, int told)
{
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t setting = 0, job;
    if (nt_store_open(path, NT_STORE_WRITE, &s, &e) != 0) {
        (void)fprintf(stderr, "%s\n", e.msg);
        _exit(1);
    }
    job = start_job(s, &setting);
    for (uint64_t seq = 2; seq < n + 2; seq++) {
        struct nt_store_trial t = some_trial(seq, setting);
        if (nt_store_add_trial(s, job, &t, &e) != 0) {
            (void)fprintf(stderr, "%s\n", e.msg);
            _exit(2);
        }
        if (told >= 0 && write(told, &seq, sizeof(seq)) != sizeof(seq)) {
            _exit(3);
        }
    }
    nt_store_close(s);
    _exit(0);
}

static void test_two_jobs_on_one_new_database(void **state)
{
    struct place *p = *state;
    pid_t children[3];
    for (size_t i = 0; i < NT_COUNT(children); i++) {
        children[i] = fork();
        if (children[i] == 0) {
            drive(p->db, 150, -1);
        }
    }
    for (size_t i = 0; i < NT_COUNT(children); i++) {
        must_exit_clean(children[i]);
    }
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM job"), 3);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM trial"), 450);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM setting"), 1);
    assert_int_equal(count_of(p->db, "SELECT count(DISTINCT key) FROM job"), 3);
}

static int keep_job(void *data, const struct nt_store_job *j, struct nt_err *err)
{
    struct nt_store_job *out = data;
    (void)err;
    *out = *j;
    return 0;
}

static void test_killed_in_the_middle(void **state)
{
    struct place *p = *state;
    for (int round = 1; round <= 5; round++) {
        struct nt_err e = {0};
        struct nt_store *s = NULL;
        struct nt_store_cursor *c = NULL;
        const struct nt_store_step *step = NULL;
        struct nt_store_job j = {0};
        uint64_t seq = 0, last = 0, seen = 0;
        int told[2], rc;
        pid_t child;
        assert_int_equal(pipe(told), 0);
        child = fork();
        if (child == 0) {
            (void)close(told[0]);
            drive(p->db, 1000000, told[1]);
        }
        (void)close(told[1]);
        assert_int_equal(read(told[0], &last, sizeof(last)), sizeof(last));
        wait_ms(7 * round);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        while (read(told[0], &seq, sizeof(seq)) == sizeof(seq)) {
            last = seq;
        }
        (void)close(told[0]);
        OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
        OK(nt_store_job_load(s, round, keep_job, &j, &e));
        assert_false(j.owned);
        OK(nt_store_job_claim(s, round, &e)); /* its driver is dead */
        OK(nt_store_steps_open(s, round, 1, &c, &e));
        while ((rc = nt_store_steps_next(c, &step, &e)) == 0 && step != NULL) {
            seen++;
            assert_int_equal(step->kind == NT_STEP_GANG ? step->gang.seq : step->trial.seq, seen);
        }
        assert_int_equal(rc, 0);
        nt_store_steps_close(c);
        nt_store_close(s);
        /* All that was told is there; one more may have been committed and not told. */
        assert_true(seen == last || seen == last + 1);
    }
    assert_int_equal(
        count_of(p->db,
                 "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
        0);
}

static void test_one_driver_a_job(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    struct nt_store_job j = {0};
    int up[2], go[2];
    char byte = 0, words[64];
    pid_t child;
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(go), 0);
    child = fork();
    if (child == 0) { /* makes job 1 and keeps it */
        int64_t setting = 0;
        (void)close(go[1]);
        if (nt_store_open(p->db, NT_STORE_WRITE, &s, &e) != 0) {
            _exit(1);
        }
        (void)start_job(s, &setting);
        (void)!write(up[1], &byte, 1);
        (void)!read(go[0], &byte, 1);
        _exit(0); /* without release */
    }
    assert_int_equal(read(up[0], &byte, 1), 1);
    OK(nt_store_open(p->db, NT_STORE_WRITE, &s, &e));
    (void)snprintf(words, sizeof(words), "by process %d", (int)child);
    FAILS(nt_store_job_claim(s, 1, &e), NT_E_NO, words);
    OK(nt_store_job_load(s, 1, keep_job, &j, &e));
    assert_true(j.owned);
    assert_int_equal(write(go[1], &byte, 1), 1);
    must_exit_clean(child);
    OK(nt_store_job_claim(s, 1, &e));
    OK(nt_store_job_load(s, 1, keep_job, &j, &e));
    assert_true(j.owned);
    assert_int_equal(j.state, NT_JOB_RUNNING);
    /* A pid that came round: same number, other start; and another boot. */
    run_sql(p->db, "UPDATE job SET owner_pid = 1, owner_start = 12345678901");
    OK(nt_store_job_claim(s, 1, &e));
    run_sql(p->db, "UPDATE job SET owner_boot = 'x'");
    OK(nt_store_job_load(s, 1, keep_job, &j, &e));
    assert_false(j.owned);
    nt_store_close(s);
    for (int i = 0; i < 2; i++) {
        (void)close(up[i]);
        (void)close(go[i]);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)
    const struct CMUnitTest tests[] = {
        T(test_two_jobs_on_one_new_database),
        T(test_killed_in_the_middle),
        T(test_one_driver_a_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
