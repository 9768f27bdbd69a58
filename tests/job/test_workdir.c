#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/job/tree.h"
#include "tuner/job/workdir.h"

/* leaf: "" for the folder itself. */
static bool there(const char *dir, const char *leaf)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, leaf);
    return access(path, F_OK) == 0;
}

static void touch(const char *dir, const char *leaf)
{
    char path[256];
    int fd;
    (void)snprintf(path, sizeof(path), "%s/%s", dir, leaf);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
}

static void test_made_private_and_removed(void **state)
{
    const char *base = *state;
    struct nt_workdir a, b;
    struct nt_err e = {0};
    struct stat st;

    assert_int_equal(nt_workdir_make(base, &a, &e), 0);
    assert_int_equal(nt_workdir_make(base, &b, &e), 0);
    assert_string_not_equal(a.path, b.path);
    assert_int_equal(stat(a.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(there(a.path, "")); /* the second did not take it for left over */
    touch(a.path, "x");
    nt_workdir_remove(&a);
    assert_int_equal(tree_count(base), 1);
    assert_true(there(b.path, ""));
    nt_workdir_remove(&b);
    nt_workdir_remove(&b); /* again is fine */
    assert_int_equal(tree_count(base), 0);
}

/* A driver that was killed leaves its folder; the next one clears it away, and nothing else. */
static void test_sweep(void **state)
{
    const char *base = *state;
    struct nt_workdir w;
    struct nt_err e = {0};
    char path[96], other[128], lookalike[128], file[160];
    int pipes[2], status;
    pid_t child;

    assert_int_equal(pipe(pipes), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct nt_workdir mine;
        if (nt_workdir_make(base, &mine, NULL) != 0 ||
            write(pipes[1], mine.path, sizeof(mine.path)) != sizeof(mine.path)) {
            _exit(1);
        }
        for (;;) {
            (void)pause();
        }
    }
    assert_int_equal(read(pipes[0], path, 64), 64);
    (void)snprintf(other, sizeof(other), "%s/nccltune-results", base);
    (void)snprintf(lookalike, sizeof(lookalike), "%s/nccltune-abcdef", base); /* without a lock */
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(mkdir(lookalike, 0700), 0);
    (void)snprintf(file, sizeof(file), "%s/sub", path);
    assert_int_equal(mkdir(file, 0700), 0);
    touch(path, "sub/rank0.log");

    assert_int_equal(nt_workdir_make(base, &w, &e), 0);
    assert_true(there(path, "sub/rank0.log")); /* its owner lives */
    nt_workdir_remove(&w);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(nt_workdir_make(base, &w, &e), 0);
    assert_false(there(path, ""));
    assert_true(there(other, "") && there(lookalike, "") && there(w.path, ""));
    nt_workdir_remove(&w);
    assert_int_equal(rmdir(other) + rmdir(lookalike), 0);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

/* A folder that a link points to is not followed. */
static void test_links_are_left(void **state)
{
    const char *base = *state;
    char target[128], link[128], lock[160];
    struct nt_workdir w;
    struct nt_err e = {0};

    (void)snprintf(target, sizeof(target), "%s/mine", base);
    (void)snprintf(link, sizeof(link), "%s/nccltune-uvwxyz", base);
    (void)snprintf(lock, sizeof(lock), "%s/lock", target);
    assert_int_equal(mkdir(target, 0700), 0);
    touch(target, "lock");
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(nt_workdir_make(base, &w, &e), 0);
    assert_true(there(target, "lock") && there(link, ""));
    nt_workdir_remove(&w);
    assert_int_equal(unlink(link) + unlink(lock) + rmdir(target), 0);
}

static void test_relative(void **state)
{
    struct nt_workdir w;
    struct nt_err e = {0};
    char was[512];

    assert_non_null(getcwd(was, sizeof(was)));
    assert_int_equal(chdir(*state), 0);
    assert_int_equal(nt_workdir_make(".", &w, &e), 0);
    assert_int_equal(w.path[0], '/'); /* the ranks run in another folder */
    nt_workdir_remove(&w);
    assert_int_equal(chdir(was), 0);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *tail;
        enum nt_code code;
        const char *says;
    } rows[] = {{"/there/is/none", NT_E_IO, "create a private folder"},
                {"/a-folder-name-that-is-too-long-for-the-socket-below-it-xxxxxxxxxxx", NT_E_INVAL,
                 "set TMPDIR"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char dir[160];
        struct nt_workdir w = {.lock = -1};
        struct nt_err e = {0};
        (void)snprintf(dir, sizeof(dir), "%s%s", (const char *)*state, rows[i].tail);
        (void)mkdir(dir, 0700); /* the long one is there */
        if (nt_workdir_make(dir, &w, &e) != -(int)rows[i].code ||
            strstr(e.msg, rows[i].says) == NULL) {
            fail_msg("%s: '%s'", dir, e.msg);
        }
        assert_int_equal(w.lock, -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_made_private_and_removed, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_sweep, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_links_are_left, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_relative, tree_make, tree_remove),
        cmocka_unit_test_setup_teardown(test_refusals, tree_make, tree_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
