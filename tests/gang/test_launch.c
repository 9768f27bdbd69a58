/* Starting processes: what a rank writes does not fill the disk, and no rank outlives its driver.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tuner/launch/launch.h"

static int exits;
static bool closed;

static void on_exit_of(void *data, unsigned rank, const struct nt_launch_exit *how)
{
    (void)data;
    (void)rank;
    exits += how->error == 0 && how->status == 0;
}

static void on_closed(void *data)
{
    (void)data;
    closed = true;
}

static void test_a_log_is_cut(void **state)
{
    static const char *const args[] = {"-c", "echo first; yes | head -c 150000000; echo last",
                                       NULL};
    static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    const struct nt_launch_events events = {.on_exit = on_exit_of, .on_closed = on_closed};
    char dir[] = "/tmp/nt-launch-XXXXXX", path[64], word[8] = "";
    struct nt_launch_spec spec = {
        .program = "/bin/sh", .args = args, .env = env, .rank_var = "RANK", .world = 2};
    struct nt_launch *l = NULL;
    struct nt_err err;
    uv_loop_t loop;
    (void)state;
    spec.dir = mkdtemp(dir);
    assert_non_null(spec.dir);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(nt_launcher_local.start(&loop, &spec, &events, &l, &err), 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_true(closed);
    assert_int_equal(exits, 2);
    for (unsigned r = 0; r < 2; r++) {
        struct stat st;
        FILE *f;
        nt_launch_log_path(dir, r, path, sizeof(path));
        f = fopen(path, "re");
        assert_non_null(f);
        assert_int_equal(fstat(fileno(f), &st), 0);
        assert_true(st.st_size > 0 && st.st_size <= NT_LAUNCH_LOG_MOST);
        assert_non_null(fgets(word, sizeof(word), f));
        assert_string_equal(word, "first\n");
        assert_int_equal(fclose(f), 0);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* Ranks that heed no TERM, each with a child that left its group; killed is their driver. */
static _Noreturn void drive(const char *dir)
{
    static const char *const args[] = {
        "-c", "trap '' TERM\nsetsid sleep 1000 &\n: > up-$RANK\nwhile :; do sleep 1000; done",
        NULL};
    const char *env[3] = {"PATH=/usr/bin:/bin", NULL, NULL};
    const struct nt_launch_events events = {.on_exit = on_exit_of, .on_closed = on_closed};
    char mark[64];
    struct nt_launch_spec spec = {
        .program = "/bin/sh", .args = args, .env = env, .rank_var = "RANK", .world = 2, .dir = dir};
    struct nt_launch *l;
    struct nt_err err;
    uv_loop_t loop;

    (void)snprintf(mark, sizeof(mark), "MARK=%s", dir);
    env[1] = spec.mark = mark;
    if (uv_loop_init(&loop) != 0 || nt_launcher_local.start(&loop, &spec, &events, &l, &err) != 0) {
        _exit(1);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    _exit(2);
}

static void wait_for_file(const char *dir, const char *name)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    for (int i = 0; access(path, F_OK) != 0; i++) {
        assert_true(i < 1000);
        (void)usleep(10000);
    }
    assert_int_equal(unlink(path), 0);
}

/* Every descendant is ours to wait for, once its parent has gone: there is none left in the end. */
static void test_ranks_end_with_the_driver(void **state)
{
    char dir[] = "/tmp/nt-launch-XXXXXX", path[64];
    int left = 1000;
    pid_t driver, pid;
    (void)state;

    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    assert_non_null(mkdtemp(dir));
    driver = fork();
    if (driver == 0) {
        drive(dir);
    }
    wait_for_file(dir, "up-0");
    wait_for_file(dir, "up-1");
    assert_int_equal(kill(driver, SIGKILL), 0);
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && left-- > 0) {
        (void)usleep(pid == 0 ? 10000 : 0);
    }
    assert_int_equal(errno, ECHILD);
    assert_true(left > 0);
    for (unsigned r = 0; r < 2; r++) {
        nt_launch_log_path(dir, r, path, sizeof(path));
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_log_is_cut),
                                       cmocka_unit_test(test_ranks_end_with_the_driver)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
